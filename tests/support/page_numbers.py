"""Numbers that a reader of a page may doubt, and where the pages' numbers come from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

UNITS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
WORDS = {word: float(value) for value, word in enumerate(UNITS, 1)}
WORDS |= {"twelve": 12.0, "twenty": 20.0, "hundred": 100.0, "thousand": 1000.0}
NUMBER = rf"(?:\b\d[\d.,]*(?:e[-+]?\d+)?|\b(?:{'|'.join(WORDS)}))"
DOUBTED = re.compile(
    "|".join(
        (
            rf"{NUMBER}[\s-]+(?:(?:micro|milli)?seconds?|minutes?|hours?|[mµ]?s)\b",
            rf"{NUMBER}(?: and a half)?\s+times\b",
            r"\btwice as\b|\bhalf as\b",
            r"\d[\d.]*\s*%",
            rf"{NUMBER}\s*(?:bytes|[kKMG]i?B)\b",
            r"\b\d[\d.]*e[-+]?\d+",  # 1e-12
            r"\b\d+\.\d+",  # any other number with a point
            rf"{NUMBER} of \d+",
            rf"{NUMBER} to (?:a )?{NUMBER}\b",
            r"\b(?:some|about) \d[\d ]*",
            r"\b\d+ iterations",
            r"(?<=\| )\d[\d., ]*(?= \|)",  # a cell of a table
        )
    )
)
NO_MEASUREMENTS = re.compile(
    r"`[^`]*`"  # names and settings
    r"|\(PETSc|PETSc(?: and petsc4py)? \d[\d.]*|petsc4py \d[\d.]*|DIRKES\w+"  # versions
    r"|\]\([^)]*\)|https?://\S+"  # links
)
ELSEWHERE = re.compile(  # code, tables by programs that tests hold to their files
    r"^```.*?^```|^<!-- written by.*?^<!-- end -->|^## TAO under valgrind.*?\Z",
    re.MULTILINE | re.DOTALL,
)
SCALES = {"%": 0.01, "MiB": 2.0**20, "GB": 1e9, "MB": 1e6}


def words_of(page: Path) -> str:
    """Return the page without code and tables that programs write, on one line."""
    return " ".join(ELSEWHERE.sub("", page.read_text()).split())


def doubted(words: str) -> Iterator[re.Match[str]]:
    """Find what looks like a measurement: times, ratios, shares, errors, numbers with a point."""
    # of the same length, so that places remain
    return DOUBTED.finditer(NO_MEASUREMENTS.sub(lambda name: "_" * len(name.group()), words))


def untied(words: str, sentences: Iterable[str]) -> list[str]:
    """Return numbers outside of all sentences, each with what is around it."""
    spans = [
        (place.start(), place.end())
        for sentence in sentences
        for place in re.finditer(re.escape(" ".join(sentence.split())), words)
    ]
    return [
        f"{number.group()}: ... {words[max(0, number.start() - 50) : number.end() + 30]} ..."
        for number in doubted(words)
        if not any(start <= number.start() and number.end() <= end for start, end in spans)
    ]


def values(number: str) -> set[float]:
    """Return what a program may write for a number of a page: 2 % is 0.02, two is 2.0."""
    together = re.sub(r"(?<=\d) (?=\d{3}\b)", "", number)  # 20 000
    tokens = [token.rstrip(".,") for token in re.findall(NUMBER, together)]
    plain = [WORDS[token] if token in WORDS else float(token.replace(",", "")) for token in tokens]
    scales = [1.0, *(scale for unit, scale in SCALES.items() if unit in number)]
    return {float(f"{value * scale:.12g}") for value in plain for scale in scales}


def literals(path: Path) -> set[float]:
    """Return the numbers that a program has, in strings of options too; and powers like 2**27."""
    if path.suffix != ".py":
        return {
            float(number) for number in re.findall(r"\b\d[\d.]*(?:e[-+]?\d+)?", path.read_text())
        }
    found: set[float] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            found.add(float(node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts = node.value.split(",")
            found |= {float(text) for text in parts if re.fullmatch(r"\d[\d.]*(?:e-?\d+)?", text)}
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            base, power = node.left, node.right
            if isinstance(base, ast.Constant) and isinstance(power, ast.Constant):
                found.add(float(base.value) ** float(power.value))
    return found


def functions(path: Path) -> set[str]:
    """Return the names of the functions of a program."""
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
