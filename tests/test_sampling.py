"""Which cases of tests with many cases run: a sample, the same in every run with the same seed."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.fixture
def collect(tmp_path, run_mpi):
    """Collect two tests with 50 cases, one of them slow, and a slow one with a single case."""
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n")
    program = tmp_path / "test_cases.py"
    program.write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('k', range(50))\n"
        "def test_many(k): pass\n"
        "@pytest.mark.slow\n"
        "@pytest.mark.parametrize('k', range(50))\n"
        "def test_slow(k): pass\n"
        "@pytest.mark.slow\n"
        "def test_single(): pass\n"
    )

    def collected(*options, ranks=1, cases=program):
        words = ["-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", cases]
        words += ["--rootdir", tmp_path, *options]
        if ranks > 1:
            done = run_mpi(ranks, words)
        else:
            done = subprocess.run(
                [sys.executable, *map(str, words)], capture_output=True, text=True, check=True
            )
        names = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
        return {
            test: {name for name in names if name.partition("[")[0] == test}
            for test in ("test_many", "test_slow", "test_single")
        }

    return collected


def counts(sample):
    return [len(cases) for cases in sample.values()]


@pytest.mark.slow
def test_a_run_takes_a_sample_of_many_cases_and_all_of_few(collect):
    sample, another, everything = collect(), collect("--sample-seed=1"), collect("--all")
    assert counts(sample) == counts(another) == [4, 2, 1]
    assert counts(everything) == [50, 50, 1]
    assert sample == collect("--sample-seed=0")
    assert sample["test_many"] | another["test_many"] < everything["test_many"]
    assert sample["test_many"] != another["test_many"]


@pytest.mark.slow
def test_runs_on_several_ranks_take_other_cases(collect):
    alone, two, three = collect(), collect(ranks=2), collect(ranks=3)
    assert counts(two) == [1, 1, 1]
    assert counts(three) == [1, 1, 1]
    together = {test: alone[test] | two[test] | three[test] for test in alone}
    assert counts(together) == [4 + 1 + 1, 2 + 1 + 1, 1]


def test_a_quick_run_takes_a_case_of_each_test_that_is_not_slow(collect):
    quick = collect("--quick")
    assert counts(quick) == [1, 0, 0]


def test_a_case_is_collected_by_its_name(collect, tmp_path):
    named = collect(cases=f"{tmp_path / 'test_cases.py'}::test_slow[7]")
    assert named == {"test_many": set(), "test_slow": {"test_slow[7]"}, "test_single": set()}
