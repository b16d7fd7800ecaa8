"""Tables, in the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

from contest import Row

HEADINGS = ("setting", "contestant", "task", "ms", "ratio", "error", "MB", "first, s")
WIDTHS = (40, 24, 16, 10, 8, 9, 8, 9)
ACCURACIES = tuple(10.0**-k for k in range(3, 10))


def words(setting: dict[str, Any]) -> str:
    """Return a setting in words."""
    return ", ".join(f"{name} {number(value)}" for name, value in setting.items())


def number(value: Any, form: str = ".4g") -> str:
    """Return a number, with an exponent only if it is small, or nothing."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    if not isinstance(value, float):
        return str(value)
    if form.endswith("g"):
        value = float(f"{value:{form}}")
        form = "e" if abs(value) < 0.01 else ".10g"
    mantissa, _, exponent = f"{value:{form}}".partition("e")
    return f"{float(mantissa):g}e{int(exponent)}" if int(exponent or 0) else mantissa


def heading() -> str:
    """Return the first line of the terminal's table."""
    return "".join(f"{word:<{width}}" for word, width in zip(HEADINGS, WIDTHS, strict=True))


def line(row: Row) -> str:
    """Return one line of the terminal's table."""
    cells = [
        words(row.setting),
        row.contestant,
        row.task,
        number(row.milliseconds, ".3g"),
        number(row.ratio, ".3g"),
        number(row.error, ".1e"),
        number(row.megabytes, ".1f"),
        number(row.first, ".2f"),
    ]
    padded = (f"{cell:<{width - 1}} " for cell, width in zip(cells, WIDTHS, strict=True))
    return "".join(padded) + row.note


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def contest_table(rows: Sequence[Row], quantity: str) -> str:
    """Return a line for each setting and task, a column for each contestant.

    With milliseconds go the ratio and the error.
    """
    names = list(dict.fromkeys(row.contestant for row in rows))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        line = cells.setdefault((words(row.setting), row.task), {})
        if row.milliseconds is None:
            continue
        text = number(getattr(row, quantity), ".3g")
        if quantity == "milliseconds":
            text += f" ({number(row.ratio, '.2g')}x) {number(row.error, '.0e')}"
        line[row.contestant] = text
    lines = (
        [*key, *(texts.get(name, "") for name in names)] for key, texts in cells.items() if texts
    )
    return markdown(["setting", "task", *names], lines)


def quotient_table(rows: Sequence[Row], above: str, below: str) -> str:
    """Return a line for each setting: the time of one task in those of another."""
    names = list(dict.fromkeys(row.contestant for row in rows))
    times = {(words(row.setting), row.contestant, row.task): row.milliseconds for row in rows}
    lines: list[list[str]] = []
    for setting in dict.fromkeys(words(row.setting) for row in rows):
        pairs = [[times.get((setting, name, task)) for task in (above, below)] for name in names]
        lines.append([setting, *(number(a / b, ".2f") if a and b else "" for a, b in pairs)])
    return markdown([f"{above} / {below}", *names], lines)


def accuracy_table(rows: Sequence[Row], panel: str) -> str:
    """Return a line for each value of ``panel``, task and accuracy: the times that it takes."""
    names = list(dict.fromkeys(row.contestant for row in rows))
    measured: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        if row.error and row.milliseconds:
            by_contestant = measured.setdefault((number(row.setting[panel]), row.task), {})
            by_contestant.setdefault(row.contestant, []).append((row.error, row.milliseconds))
    lines: list[list[str]] = []
    for key, by_contestant in measured.items():
        for error in ACCURACIES:
            times = [time_to(error, by_contestant.get(name, ())) for name in names]
            ratios = [a / times[0] if a and times[0] else None for a in times]
            cells = (
                f"{number(a, '.3g')} ({number(b, '.2g')}x)" if b else number(a, ".3g")
                for a, b in zip(times, ratios, strict=True)
            )
            lines.append([*key, number(error), *cells])
    return markdown([panel, "task", "error", *names], lines)


def time_to(error: float, points: Sequence[tuple[float, float]]) -> float | None:
    """Return the least time to an error or a smaller one; None if no point has it.

    ``points`` (error, time) are those of falling tolerances, joined by lines in logarithms.
    """
    times = [time for reached, time in points if reached <= error]
    for point, following in pairwise(points):
        (least, there), (most, elsewhere) = sorted((point, following))
        if least < error < most:
            part = log(error / least) / log(most / least)
            times.append(there * (elsewhere / there) ** part)
    return min(times, default=None)


def notes(rows: Sequence[Row]) -> list[str]:
    """Return what could not be measured, each reason once."""
    where: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row.note:
            where.setdefault((row.contestant, row.note), []).append(row.setting)
    return [
        f"{name}: {note}" + ("" if note.startswith("missing") else f" ({_summary(rows, settings)})")
        for (name, note), settings in where.items()
    ]


def _summary(rows: Sequence[Row], settings: list[dict[str, Any]]) -> str:
    """Return settings in words: by what they share, where nothing else does."""
    shared = {
        name: value
        for name, value in settings[0].items()
        if all(setting.get(name) == value for setting in settings)
    }
    like = [row.setting for row in rows if shared.items() <= row.setting.items()]
    if shared and all(setting in settings for setting in like):
        return words(shared)
    return "; ".join(dict.fromkeys(map(words, settings)))


def plain_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table of rows with the same fields."""
    if not rows:
        return ""
    lines = ([number(value, ".3g") for value in row.values()] for row in rows)
    return markdown([name.replace("_", " ") for name in rows[0]], lines)


def with_sources(table: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return a table with the commands, dates and processors behind its rows."""
    made = sorted({(row["date"][:10], row["processor"], row["command"]) for row in rows})
    notes = (f"- `{command}`, {date}, {processor}." for date, processor, command in made)
    return "\n".join([table, *notes]) + "\n"


def put_between(page: Path, script: str, text: str) -> None:
    """Write a text into a page, between the marks of the script that writes it."""
    begin, end = f"<!-- written by {script} -->", "<!-- end -->"
    before, _, rest = page.read_text().partition(begin)
    after = rest.partition(end)[2]
    page.write_text(f"{before}{begin}\n\n{text}\n{end}{after}")
