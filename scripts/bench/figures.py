"""Figures of a case: work against precision, and how it grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

from cases import Figure
from contest import Row

mpl.use("Agg")

LABELS = {
    "error": "relative error",
    "milliseconds": "time [ms]",
    "megabytes": "memory [MB]",
    "parameters": "number of parameters",
}


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
    size = (3.2 * len(panels) + 2.4, 3.6)
    drawing, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False, sharey=True)
    names = list(dict.fromkeys(row.contestant for row in rows))
    for axis, panel in zip(axes[0], panels, strict=True):
        for k, name in enumerate(names):
            mine = (row for row in chosen if row.contestant == name)
            inside = (row for row in mine if row.setting.get(figure.panels) == panel)
            points = [(_x(row, figure), getattr(row, figure.y)) for row in inside]
            if figure.x != "error":
                points.sort()
            marker = "osv^D<>ph"[k % 9]
            x, y = zip(*points, strict=True) if points else ((), ())
            axis.loglog(x, y, f"{marker}-", color=f"C{k}", label=name, ms=4)
        axis.set_xlabel(LABELS.get(figure.x, figure.x))
        axis.grid(alpha=0.3)
        if figure.panels:
            axis.set_title(panel if isinstance(panel, str) else f"{figure.panels} = {panel}")
    axes[0][0].set_ylabel(f"{figure.task}: {LABELS[figure.y]}")
    handles, labels = axes[0][0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    drawing.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(drawing)
    return True


def _x(row: Row, figure: Figure) -> float | None:
    if figure.x == "parameters":  # of N populations: their rates and interactions
        return row.setting["N"] + row.setting["N"] ** 2
    return row.error if figure.x == "error" else row.setting.get(figure.x)
