"""Figures of runs that switch: quantities over time with the switched-on times shaded; tangents.

Each function writes one file (by its suffix: png, pdf, svg) and returns its path.  Not collective:
call them by ``results.once``.  Labels carry the units, "rotor angle [rad]".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.ticker import MaxNLocator

from daeosens.errors import InputError
from daeosens.report.canvas import COLORS, canvas

Interval: TypeAlias = tuple[float, float]

REACH = 0.04
"""Half the length of a tangent, relative to the width of its axes."""


@dataclass(frozen=True)
class Course:
    """A quantity over time.

    Parameters
    ----------
    name : str
        For the legend; nothing where it is empty.
    times, values : array_like [N]
        Where two times are equal, the quantity jumps.
    """

    name: str
    times: npt.ArrayLike
    values: npt.ArrayLike


@dataclass(frozen=True)
class Row:
    """One axes of a figure over time.

    Parameters
    ----------
    label : str
        Of the axis, with the unit.
    courses : sequence of Course
        What is drawn.
    levels : mapping of str to float
        Dashed horizontal lines and their names.
    """

    label: str
    courses: Sequence[Course]
    levels: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Tangents:
    """A curve, and its slopes at some points as computed derivatives say.

    Parameters
    ----------
    name : str
        For the legend.
    x, y : array_like [N]
        The curve.
    at, values, slopes : array_like [K]
        Points on it and derivatives there, drawn as short tangents.
    mark : float, optional
        Where a vertical line in the curve's colour is drawn.
    """

    name: str
    x: npt.ArrayLike
    y: npt.ArrayLike
    at: npt.ArrayLike
    values: npt.ArrayLike
    slopes: npt.ArrayLike
    mark: float | None = None


@dataclass(frozen=True)
class TangentsPanel:
    """One axes of a figure of tangents: labels with units, curves, what their marks mean."""

    x_label: str
    y_label: str
    curves: Sequence[Tangents]
    mark_label: str = ""


def switching_figure(
    path: Path,
    rows: Sequence[Row],
    shaded: Sequence[Interval],
    *,
    time_label: str,
    shade_label: str = "",
) -> Path:
    """Draw quantities over time, one axes below the other, with the same times shaded in all.

    There is one legend: what has the same name has one colour, and other names have others.

    Parameters
    ----------
    path : Path
        The file to write.
    rows : sequence of Row
        From top to bottom.
    shaded : sequence of (float, float)
        When something is on.
    time_label, shade_label : str
        Of the time axis, with its unit; of the shaded times, in the legend.

    Raises
    ------
    InputError
        A course with another number of times than of values.
    """
    for row in rows:
        for course in row.courses:
            if np.shape(course.times) != np.shape(course.values):
                raise InputError(
                    f'"{course.name or row.label}" has times of shape {np.shape(course.times)} and '
                    f"values of shape {np.shape(course.values)}",
                    expected="as many times as values",
                )
    names = [
        name for row in rows for name in (*(course.name for course in row.courses), *row.levels)
    ]
    # One name, one colour in all axes, in the order in which names come.
    colors = {
        name: COLORS[k % len(COLORS)] for k, name in enumerate(dict.fromkeys(filter(None, names)))
    }
    with canvas(path, (6.5, 0.9 + 1.55 * len(rows))) as figure:
        column: Any = figure.subplots(len(rows), 1, sharex=True, squeeze=False)
        for axes, row in zip(column[:, 0], rows, strict=True):
            for k, (start, end) in enumerate(shaded):
                label = shade_label if k == 0 else ""
                axes.axvspan(start, end, color="0.9", linewidth=0, label=label or None, zorder=0)
            for k, course in enumerate(row.courses):
                other = COLORS[(len(colors) + k) % len(COLORS)]
                color = colors.get(course.name, other)
                axes.plot(course.times, course.values, color=color, label=course.name or None)
            for name, level in row.levels.items():
                axes.axhline(level, color=colors[name], linestyle="--", linewidth=1.0, label=name)
            axes.set(ylabel=row.label)
            axes.margins(x=0.01, y=0.1)
            axes.grid(visible=True, axis="y")
        column[-1, 0].set(xlabel=time_label)
        handles: dict[str, Any] = {}
        for axes in column[:, 0]:
            # By name: what several axes show stands in the legend once.
            lines, names = axes.get_legend_handles_labels()
            handles |= dict(zip(names, lines, strict=True))
        if handles:
            figure.legend(
                handles.values(), handles.keys(), loc="outside upper center", ncols=len(handles)
            )
        figure.align_ylabels()
    return path


def tangents_figure(path: Path, panels: Sequence[TangentsPanel]) -> Path:
    """Draw curves side by side with the tangents that computed derivatives give.

    A right derivative is seen to be tangent to its curve.

    Parameters
    ----------
    path : Path
        The file to write.
    panels : sequence of TangentsPanel
        From left to right.

    Raises
    ------
    InputError
        Points, values and slopes of different numbers.
    """
    for curve in (curve for panel in panels for curve in panel.curves):
        sizes = [np.size(column) for column in (curve.at, curve.values, curve.slopes)]
        if len(set(sizes)) > 1:
            raise InputError(
                f'"{curve.name}" has {sizes} points, values and slopes', expected="the same number"
            )
    with canvas(path, (0.4 + 3.3 * len(panels), 3.1)) as figure:
        row: Any = figure.subplots(1, len(panels), squeeze=False)
        for axes, panel in zip(row[0], panels, strict=True):
            for k, curve in enumerate(panel.curves):
                axes.plot(curve.x, curve.y, color=COLORS[k], label=curve.name)
                if curve.mark is not None:
                    axes.axvline(curve.mark, color=COLORS[k], linestyle=":")
            # An empty line, so that the legend has one grey entry for the marks of all colours.
            if panel.mark_label:
                axes.plot([], [], ":", color="0.3", label=panel.mark_label)
            left, right = axes.get_xlim()
            # Tangents of one width in the picture, whatever the slope.
            ends = REACH * (right - left) * np.array([-1.0, 1.0])
            for curve in panel.curves:
                points: Any = (curve.at, curve.values, curve.slopes)
                for x, y, slope in zip(*map(np.atleast_1d, points), strict=True):
                    axes.plot(x + ends, y + slope * ends, color="black", linewidth=2.0, zorder=3)
                    axes.plot(x, y, "o", color="white", markeredgecolor="black", zorder=4)
            axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
            axes.grid(visible=True)
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.legend(loc="upper left", frameon=True, framealpha=1.0, edgecolor="none")
    return path
