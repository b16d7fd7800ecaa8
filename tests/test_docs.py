"""The pages: their Python runs from the top, their links lead somewhere."""

import ast
import re
import subprocess
from pathlib import Path

import pytest
from public_names import public_names

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMPILED = re.compile(r"/\* (\w+\.c): (.*) \*/\n")
"""The first line of a block in C: its name, and how it is compiled."""
NEEDS_MORE = ("dmda_or_vec",)
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
    for language, code in BLOCK.findall(page.read_text()):
        if language == "c" and (first := COMPILED.match(code)):
            (tmp_path / first[1]).write_text(code)
            subprocess.run(first[2].split(), check=True)
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


def named_files(text):
    """Return the files that a text names, and the places in the package where each may be."""
    names = re.findall(r"`([\w/]+\.(?:py|pyx|c|h))(?::\w+)?`", text)
    return {name: list((ROOT / "daeosens").rglob(name.split("/")[-1])) for name in names}


def test_the_page_on_architecture_names_files_that_are_there():
    page = (ROOT / "docs" / "architecture.md").read_text()
    for name, places in named_files(page).items():
        assert [path for path in places if path.as_posix().endswith(f"/{name}")], name
    folders = re.findall(r"`((?:\w+/)+\w+)`", page)
    for folder in folders:
        assert list((ROOT / "daeosens").glob(f"**/{folder}*")) or (ROOT / folder).exists(), folder


def test_the_picture_of_the_packages_is_the_contract_of_imports():
    page = (ROOT / "docs" / "architecture.md").read_text()
    (line,) = re.findall(r"^`(errors < .*)`$", page, re.MULTILINE)
    contract = (ROOT / ".importlinter").read_text().split("layers =")[1].split("\n\n")[0]
    layers = [row.strip() for row in contract.splitlines() if row.strip()]
    assert line.split(" < ") == [row for row in layers[::-1] if row != "__main__"]
    rows = re.findall(r"^\| `(\w+)` \|.*\|.*\| (.*) \|$", page, re.MULTILINE)
    assert [name for name, _ in rows] == line.split(" < ")
    for package, first in rows:
        for name in re.findall(r"`([\w/]+)`", first):
            assert (ROOT / "daeosens" / package / f"{name}.py").exists(), (package, name)


def test_packages_say_in_a_few_lines_what_they_do_and_what_to_read_first():
    whole = ROOT / "daeosens"
    for package in sorted(whole.rglob("__init__.py")):
        if package.parent == whole:
            continue
        text = ast.get_docstring(ast.parse(package.read_text()))
        assert 4 <= len(text.splitlines()) <= 24, package
        (first,) = re.findall(r"[Rr]ead first:\s+(.*)", text, re.DOTALL) or [""]
        names = re.findall(r"``([\w/]+)(?:\.\w+)?``", first)
        assert names, package
        for name in names:
            assert [*package.parent.glob(f"{name}*"), *whole.glob(f"{name}*")], (package, name)
