"""Faults, tried for real: a few of the table in each run, all of it with --all."""

import random

import pytest
from faults.table import ENDS, PAGE, REST, START, TABLE, started


def pytest_generate_tests(metafunc):
    if "case" not in metafunc.fixturenames:
        return
    whole = metafunc.config.getoption("all")
    chance = random.Random(metafunc.config.getoption("sample_seed"))
    cases = [
        pytest.param(family, case, id=f"{family.attempt.__name__}-{'-'.join(map(str, case))}")
        for family in TABLE
        for case in (
            family.cases
            if whole
            else chance.sample(family.cases, min(family.few, len(family.cases)))
        )
    ]
    metafunc.parametrize(("family", "case"), cases)


def test_what_is_promised_holds(family, case, tmp_path):
    family.attempt(tmp_path, *case)


@pytest.mark.parametrize("place", ["rhs", "outside"])
def test_rank_that_reaches_its_limit_of_memory_ends_the_job(place, tmp_path):
    with started(tmp_path, 2, "plain", "numpy", place, "limit of memory") as job:
        code = job.wait(START + ENDS)
        printed = job.printed()
    assert code != 0
    assert "MemoryError: Unable to allocate" in printed, printed
    assert "[rank 1]" in printed, printed


def test_page_has_the_table_with_all_promises_kept():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    told = {
        row.split(" | ")[0].strip("| "): [int(n) for n in row.strip("| ").split(" | ")[2:]]
        for row in rows
    }
    assert list(told) == [family.title for family in TABLE]
    for family in TABLE:
        cases, tried, kept = told[family.title]
        assert cases == len(family.cases) or not family.cases  # full disks need a superuser
        assert 0 < kept == tried <= cases
    assert REST in PAGE.read_text()
