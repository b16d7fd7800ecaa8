"""The pages: their Python runs from the top, their links lead somewhere."""

import re
from pathlib import Path

import pytest
from public_names import public_names

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDS_MORE = ("./model.so", "dmda_or_vec")
"""What blocks that show an argument name, and only the reader has."""


def blocks(page):
    values = [code for language, code in BLOCK.findall(page.read_text()) if language == "python"]
    return [code for code in values if not any(name in code for name in NEEDS_MORE)]


def anchors(page):
    """Return what GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [item for item in PAGES if blocks(item)], ids=lambda item: item.stem
)
def test_code_runs_as_it_stands(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader = {"__name__": page.stem}
    for code in blocks(page):
        exec(compile(code, page.name, "exec"), reader)


def test_every_public_name_is_listed():
    table = (ROOT / "docs" / "reference.md").read_text()
    assert sorted(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)) == sorted(public_names())


def test_differences_that_pages_show_are_in_the_files_that_they_name():
    page = (ROOT / "docs" / "contributing.md").read_text()
    shown = [code for language, code in BLOCK.findall(page) if language == "diff"]
    assert len(shown) > 5
    for difference in shown:
        for part in difference.split("--- ")[1:]:
            path, *lines = part.splitlines()
            text = (ROOT / path).read_text().splitlines()
            assert not {line[1:] for line in lines} - set(text), path


@pytest.mark.parametrize("page", PAGES, ids=lambda item: item.stem)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)]+)\)", BLOCK.sub("", page.read_text())):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
