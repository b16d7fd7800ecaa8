"""Numbers of the pages are those of the results beside them, of a test, or of the program itself.

A new number that looks measured (a time, a ratio, a share, an error; ``support/page_numbers.py``)
fails here until it is tied: to results in docs/benchmarks, in ``support/claims.py``, which also
writes the numbers of new results into the pages; or in ``support/stated_numbers.py`` to the file
that has it as a default or asserts it.
"""

from __future__ import annotations

import importlib
import json

from claims import DOCS, PAGES, measured, renewed
from page_numbers import ROOT, doubted, functions, literals, untied, values, words_of
from stated_numbers import REASONS, STATED


def test_pages_say_what_was_measured():
    """After new measurements ``python tests/support/claims.py`` writes them into the pages."""
    for page, path in PAGES.items():
        words = words_of(path)
        missing = [line for line in measured(page) if " ".join(line.split()) not in words]
        assert missing == [], page


def test_numbers_that_look_measured_are_tied():
    """A number without a tie: leave it out, or tie it as the docstring of this file says."""
    loose = []
    for page, path in PAGES.items():
        sentences = [*measured(page), *(sentence for sentence, _ in STATED.get(page, ()))]
        loose += [f"{page}: {number}" for number in untied(words_of(path), sentences)]
    assert not loose, "\n".join(loose)


def test_what_is_behind_a_stated_number_has_it():
    wrong = []
    for page, sentences in STATED.items():
        words = words_of(PAGES[page])
        for sentence, behind in sentences:
            if " ".join(sentence.split()) not in words:
                wrong.append(f"{page}: no longer says '{sentence}'")
            elif behind not in REASONS:
                path, _, test = behind.partition("::")
                has_test = test in functions(ROOT / path) if test else path.startswith("daeosens/")
                if not has_test and not path.startswith("scripts/"):
                    wrong.append(f"{page}: no such test, {behind}")
                wrong += [
                    f"{page}: {behind} has no {number.group()}"
                    for number in doubted(sentence)
                    if not values(number.group()) & literals(ROOT / path)
                ]
    assert not wrong, "\n".join(wrong)


def test_a_new_number_is_seen_and_what_is_none_is_not():
    seen = (
        "takes 12 s",
        "is 3.5 times as fast",
        "in two minutes",
        "within 2 %",
        "90 bytes a step",
        "right to 3e-8",
        "an error of 0.02",
        "12 of 20 are right",
        "| rk4 | 498 | 3 |",
    )
    for words in seen:
        assert untied(f"A run {words} here.", ()) != [], words
        assert untied(f"A run {words} here.", (f"run {words} here",)) == []
    unseen = "`rtol=1e-8` and PETSc 3.26, orders 2 and 3 ([page](speed-1.5.md)), one of them"
    assert untied(unseen, ()) == []
    assert 0.02 in values("2 %")
    assert 2.0**27 in values("128 MiB")
    assert 10.0 in values("ten times")


def test_new_results_are_written_into_pages():
    rest = "| 1 | 2 |\n| 3 | 4 |\n"
    page = f"Runs are 150 times as\nfast, 2 of 3.\n| `rk4`, 3 + 4 | 1.5 | 1e-8 |\n{rest}"
    page = renewed(page, "are 12 times as fast, 2 of 3")
    page = renewed(page, "| `rk4`, 3 + 4 | 1.25 | 3e-9 |")
    page = renewed(page, "| 5 | 6 |")  # which of two lines?
    assert page == f"Runs are 12 times as\nfast, 2 of 3.\n| `rk4`, 3 + 4 | 1.25 | 3e-9 |\n{rest}"


def test_the_page_of_benchmarks_is_what_its_results_give(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "bench"))
    page = importlib.import_module("page")
    monkeypatch.setattr(
        page, "draw", lambda _figure, _rows, path: (DOCS / "images" / path.name).exists()
    )
    (tmp_path / "benchmarks").symlink_to(DOCS / "benchmarks")
    page.write_page(tmp_path)
    assert (tmp_path / "benchmarks.md").read_text() == (DOCS / "benchmarks.md").read_text()


def test_results_say_where_when_and_how_they_were_measured():
    for path in sorted((DOCS / "benchmarks").glob("*.json")):
        results = json.loads(path.read_text())
        assert results["command"].startswith(f"python scripts/bench/run.py {path.stem}")
        assert results["machine"]["processor"]
        assert results["machine"]["date"].endswith("UTC")
        assert results["rows"]
