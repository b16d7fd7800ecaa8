"""Ordinary problems, as their users write them, with default settings, against independent truth.

A sample runs each time, all with ``--all``; ``scripts/zoo`` runs all and writes docs/zoo.md.
"""

import pytest
from zoo import CASES, FITS, TRUTH, WAITING, page
from zoo.case import all_marks
from zoo.runner import run

RUNS = [(case, style) for case in (*CASES, *FITS) for style in case.styles]
QUICK = [(case, style) for case, style in RUNS if not case.marks[style].startswith("slow")]
NAMES = [f"{case.name}, {style}" for case, style in QUICK]


@pytest.mark.parametrize(("case", "style"), QUICK, ids=NAMES)
def test_right_at_the_first_try_or_as_marked(case, style):
    mark = case.marks[style]
    outcome = run(case, style)
    seen = f"{outcome.verdict}: {outcome.errors or outcome.message}"
    if mark == "right":
        assert outcome.verdict == "right", seen
    else:
        assert outcome.verdict == mark.partition(":")[0], f"marked as '{mark}', but {seen}"


def test_refusals_name_a_remedy():
    marked = [run for run in RUNS if run[0].marks[run[1]].startswith("refused")]
    for case, style in marked[:6]:
        assert "try:" in run(case, style).message


def test_names_are_unique_and_have_truth():
    names = [case.name for case in (*CASES, *FITS)]
    assert len({*names, *(case.name for case in WAITING)}) == len(names) + len(WAITING)
    assert set(names) == set(TRUTH)


def test_truth_is_known_better_than_it_is_asked_for():
    for case in (*CASES, *FITS):
        known = TRUTH[case.name]["uncertainty"].values()
        for uncertainty, limit in zip(known, case.tolerances, strict=True):
            assert uncertainty < 0.3 * limit, case.name


def test_published_digits_agree_with_the_truth():
    published = [case for case in CASES if case.published]
    assert len(published) >= 8
    for case in published:
        assert TRUTH[case.name]["published"] < case.published_digits, case.name
    for case in FITS:
        if case.certified:
            assert TRUTH[case.name]["published"] < 1e-6, case.name


def test_page_is_up_to_date():
    rows = page.rows_of(page.PAGE.read_text())
    expected = {case.name: page.fixed_cells(case) for case in (*CASES, *FITS)}
    assert {name: cells[: page.FIXED] for name, cells in rows.items()} == expected


def test_most_problems_work():
    everything = (*CASES, *FITS)
    assert len(everything) >= 100
    assert sum("right" in case.marks.values() for case in everything) >= 0.85 * len(everything)


def test_marks_belong_to_cases_and_say_why():
    words = ("inaccurate: ", "wrong: ", "warned: ", "refused: ", "failed: ", "slow: ")
    runs = {(case.name, style) for case, style in RUNS}
    for style, marks in all_marks().items():
        for name, mark in marks.items():
            assert (name, style) in runs
            assert mark.startswith(words)
