"""Figures of a case: work against precision, and how it grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from cases import Figure
from contest import Row

mpl.use("Agg")

LABELS = {
    "error": "relative error",
    "milliseconds": "time [ms]",
    "megabytes": "memory [MB]",
    "parameters": "number of parameters",
    "points": "points along a side",
    "unknowns": "number of unknowns",
    "steps": "steps of the run",
}
TASKS = {
    "full": "all sensitivities",
    "scalar": "gradient of one number",
    "hessian": "Hessian product",
    "gradient": "run and gradient",
}
IN_A_ROW = 3
"""Panels; more would be too small to read on a page."""
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")


def draw(figure: Figure, rows: Sequence[Row], path: Path) -> bool:
    """Write a figure; return whether there was anything to draw."""
    held = dict(figure.where)
    chosen = [
        row
        for row in rows
        if row.task == figure.task
        and all(row.setting.get(name) == value for name, value in held.items())
        and _x(row, figure)
        and getattr(row, figure.y)
    ]
    if not chosen:
        return False
    panels = list(dict.fromkeys(row.setting.get(figure.panels) for row in chosen))
    columns = 2 if len(panels) == 4 else min(len(panels), IN_A_ROW)
    lines = -(-len(panels) // columns)
    size = (3.2 * columns + 2.4, 3.0 * lines + 0.6)
    drawing, grid = plt.subplots(
        lines, columns, figsize=size, squeeze=False, sharey=True, layout="constrained"
    )
    axes = grid.ravel()
    names = list(dict.fromkeys(row.contestant for row in rows))
    for axis, panel in zip(axes, panels, strict=False):
        for k, name in enumerate(names):  # a contestant has its colour in all figures
            mine = [row for row in chosen if row.contestant == name]
            if not mine:
                continue
            inside = (row for row in mine if row.setting.get(figure.panels) == panel)
            points = [(_x(row, figure), getattr(row, figure.y)) for row in inside]
            if figure.x != "error":
                points.sort()
            marker = "osv^D<>ph"[k % 9]
            x, y = zip(*points, strict=True) if points else ((), ())
            # the first one is what the others are compared with: seen where lines coincide
            emphasis = {"lw": 2.5, "zorder": 2.5} if k == 0 else {"lw": 1.5}
            axis.loglog(
                x,
                y,
                f"{marker}-",
                color=f"C{k}" if k < 10 else "black",
                label=name,
                ms=4,
                **emphasis,
            )
        axis.set_xlabel(LABELS[figure.x])
        axis.grid(alpha=0.3)
        if figure.x != "error":
            _tick_values(axis, sorted({_x(row, figure) for row in chosen}))
        if figure.panels:
            axis.set_title(panel if isinstance(panel, str) else f"{figure.panels} = {panel}")
    for axis in axes[len(panels) :]:
        axis.remove()
    for row in grid:
        row[0].set_ylabel(f"{TASKS[figure.task]}\n{LABELS[figure.y]}")
    low, high = axes[0].get_ylim()
    axes[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1e3 else (1,)))
    axes[0].yaxis.set_major_formatter(PLAIN)
    axes[0].yaxis.set_minor_formatter(NullFormatter())
    drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=130)
    plt.close(drawing)
    return True


def _tick_values(axis: Any, values: Sequence[float]) -> None:
    """Mark the values that were measured, in plain numbers."""
    labels = [f"{value:.3g}" if value >= 1e5 else f"{value:g}" for value in values]
    axis.set_xticks(values, labels, fontsize="small")
    axis.xaxis.set_minor_locator(NullLocator())


def _x(row: Row, figure: Figure) -> float | None:
    if figure.x == "parameters":  # of N populations: their rates and interactions
        return row.setting["N"] + row.setting["N"] ** 2
    return row.error if figure.x == "error" else row.setting.get(figure.x)
