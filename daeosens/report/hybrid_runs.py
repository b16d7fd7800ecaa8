"""Figures of runs with events: lines that break where the state jumps, in time and in the plane.

Each function writes one file (by its suffix: png, pdf, svg) and returns its path.  Not collective:
call them by ``results.once``.  Labels carry the units, "height [m]".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from matplotlib.lines import Line2D

from daeosens.errors import InputError
from daeosens.petsc.vectors import Array
from daeosens.report.canvas import COLORS, MARKERS, canvas
from daeosens.timestepping.trajectory.trajectory import Trajectory

_THIN: Any = {"color": "0.6", "linestyle": ":", "linewidth": 0.9, "zorder": 0}


@dataclass(frozen=True)
class JumpSeries:
    """A quantity along a run with events.

    Parameters
    ----------
    name : str
        Shown in the legend; nothing where it is empty.
    times, values : array_like [N+1]
        One for each state of the run, both of those at an event.
    events : sequence of int
        Numbers of the states before each event, from ``events_of``.
    style : str
        "plain", "line" without marks at events, "faint" for what it is compared with, or "points"
        without lines.
    """

    name: str
    times: npt.ArrayLike
    values: npt.ArrayLike
    events: Sequence[int] = ()
    style: Literal["plain", "line", "faint", "points"] = "plain"


@dataclass(frozen=True)
class Panel:
    """Axes of a figure: their label, with the unit, and what they show."""

    label: str
    series: Sequence[JumpSeries]


@dataclass(frozen=True)
class PlaneCurve:
    """A run in the plane of two quantities; a piece between events has the colour of its mode.

    Parameters
    ----------
    positions : array_like [N+1, 2]
        One for each state of the run.
    events : sequence of int
        As for ``JumpSeries``.
    modes : sequence of str
        Of each piece, for the legend: one more than events.
    """

    positions: npt.ArrayLike
    events: Sequence[int]
    modes: Sequence[str]


@dataclass(frozen=True)
class Surface:
    """The line a x + b y = c of the plane on which something happens."""

    name: str
    a: float
    b: float
    c: float = 0.0


def events_of(trajectory: Trajectory) -> tuple[int, ...]:
    """Return the numbers of the states before each event of a run."""
    return tuple(crossing.step for crossing in trajectory.crossings)


def pieces(length: int, events: Sequence[int]) -> list[slice]:
    """Return the parts of ``length`` states between events, the states at both ends included.

    Raises
    ------
    InputError
        Events that are not increasing numbers of states with one after them.

    Examples
    --------
    >>> pieces(6, [2])
    [slice(0, 3, None), slice(3, 6, None)]
    """
    # A run has both states of an event, one after the other: the piece before ends with the first
    # of them.
    ends = [*(step + 1 for step in events), length]
    starts = [0, *ends[:-1]]
    if any(end <= start for start, end in zip(starts, ends, strict=True)):
        raise InputError(
            f"events after states {list(events)} of {length}",
            expected="increasing numbers, each with a state after it",
        )
    return [slice(start, end) for start, end in zip(starts, ends, strict=True)]


def jumps_figure(
    path: Path,
    columns: Sequence[Sequence[Panel]],
    *,
    time_label: str,
    titles: Sequence[str] = (),
    moments: Sequence[float] = (),
) -> Path:
    """Draw quantities over time, with open marks before and filled ones after each event.

    Parameters
    ----------
    path : Path
        The file to write.
    columns : sequence of sequence of Panel
        Panels, column by column, all with the same time axis.
    time_label : str
        With the unit.
    titles : sequence of str
        Above each column.
    moments : sequence of float
        Times of events, drawn as thin lines through all panels.

    Raises
    ------
    InputError
        Columns of different lengths, another number of titles, series whose lengths do not match.
    """
    heights = [len(column) for column in columns]
    if not heights or min(heights) < 1 or len(set(heights)) > 1:
        raise InputError(f"columns of {heights} panels", expected="the same number, at least 1")
    if titles and len(titles) != len(columns):
        raise InputError(
            f"{len(titles)} titles", expected=f"one for each of {len(columns)} columns"
        )
    size = (0.4 + 3.4 * len(columns), 0.6 + 1.7 * heights[0])
    with canvas(path, size) as figure:
        grid: Any = figure.subplots(heights[0], len(columns), sharex=True, squeeze=False)
        for axes, panels in zip(grid, zip(*columns, strict=True), strict=True):
            if len({panel.label for panel in panels}) == 1:  # to be compared
                for other in axes[1:]:
                    other.sharey(axes[0])
        for j, column in enumerate(columns):
            for axes, panel in zip(grid[:, j], column, strict=True):
                for moment in moments:
                    axes.axvline(moment, **_THIN)
                draw_panel(axes, panel)
            grid[-1, j].set_xlabel(time_label)
            if titles:
                grid[0, j].set_title(titles[j])
        figure.align_ylabels()
    return path


def plane_figure(
    path: Path,
    curve: PlaneCurve,
    surfaces: Sequence[Surface],
    panels: Sequence[Panel],
    *,
    axis_labels: tuple[str, str],
    time_label: str,
    moments: Sequence[float] = (),
) -> Path:
    """Draw a run in the plane, with the lines where events happen; panels over time beside it.

    Parameters
    ----------
    path : Path
        The file to write.
    curve : PlaneCurve
        The run.
    surfaces : sequence of Surface
        Drawn where they lie inside the picture.
    panels : sequence of Panel
        One below the other.
    axis_labels : (str, str)
        Of the plane, with units.
    time_label, moments
        As for ``jumps_figure``.

    Raises
    ------
    InputError
        Positions that are not in the plane, another number of modes than of pieces.
    """
    positions = np.asarray(curve.positions, dtype=float)
    if positions.ndim != 2 or positions.shape[1] != 2:
        raise InputError(f"positions have shape {positions.shape}", expected="shape (N, 2)")
    parts = pieces(len(positions), curve.events)
    if len(curve.modes) != len(parts):
        raise InputError(
            f"{len(curve.modes)} modes for {len(parts)} pieces", expected="one for each piece"
        )
    known = list(dict.fromkeys(curve.modes))
    with canvas(path, (7.4, 3.4)) as figure:
        halves: Any = figure.subfigures(1, 2, width_ratios=(1.0, 1.05))
        plane: Any = halves[0].subplots()
        for part, mode in zip(parts, curve.modes, strict=True):
            # One entry in the legend for each mode.
            first = mode not in [line.get_label() for line in plane.get_lines()]
            color = COLORS[known.index(mode) % len(COLORS)]
            plane.plot(*positions[part].T, color=color, label=mode if first else "_")
        plane.plot(*positions[0], "D", color="black", markersize=4)
        beside: Any = {"xytext": (-6, -12), "textcoords": "offset points", "ha": "right"}
        plane.annotate("start", positions[0], **beside)
        plane.margins(0.12)
        _draw_surfaces(plane, surfaces)
        for step in curve.events:
            plane.plot(*positions[step], "o", color="black", markerfacecolor="white", zorder=4)
        plane.set(xlabel=axis_labels[0], ylabel=axis_labels[1])
        plane.grid(visible=True)
        plane.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        rows: Any = halves[1].subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, panel in zip(rows, panels, strict=True):
            for moment in moments:
                axes.axvline(moment, **_THIN)
            draw_panel(axes, panel)
        rows[-1].set_xlabel(time_label)
        halves[1].align_ylabels()
    return path


def draw_panel(axes: Any, panel: Panel) -> None:
    """Draw the series of one panel, with its legend where names are given."""
    shown: list[Line2D] = []
    plain = 0
    for series in panel.series:
        times, values = (
            np.asarray(column, dtype=float) for column in (series.times, series.values)
        )
        if times.shape != values.shape or times.ndim != 1:
            raise InputError(
                f'series "{series.name}" has {times.shape} times and {values.shape} values',
                expected="as many values as times",
            )
        color = "0.55" if series.style == "faint" else COLORS[plain % len(COLORS)]
        if series.style == "points":
            (line,) = axes.plot(times, values, ".", color="black", markersize=5, zorder=3)
        else:
            line = _draw_pieces(axes, times, values, series, color, plain)
            plain += series.style != "faint"
        if series.name:
            line.set_label(series.name)
            shown.append(line)
    axes.set_ylabel(panel.label)
    axes.margins(x=0.02, y=0.08)
    axes.grid(visible=True)
    if shown:
        axes.legend(handles=shown, loc="best", frameon=True, framealpha=0.85, edgecolor="none")


def _draw_pieces(
    axes: Any, times: Array, values: Array, series: JumpSeries, color: str, number: int
) -> Line2D:
    """Draw the pieces between events; return one of the lines, for the legend."""
    look: Any = {"color": color}
    if series.style == "faint":
        look |= {"linestyle": "--", "linewidth": 1.0}
    line: Any = None
    for part in pieces(len(times), series.events):
        (line,) = axes.plot(times[part], values[part], **look)
    if series.style == "plain":
        marker = MARKERS[number % len(MARKERS)]
        # Open before the jump, filled after it, as limits from the left and the right are drawn.
        for offset, face in ((0, "white"), (1, color)):
            states = np.array(series.events, dtype=int) + offset
            (marks,) = axes.plot(times[states], values[states], marker, color=color, zorder=4)
            marks.set_markerfacecolor(face)
    return line


def _draw_surfaces(axes: Any, surfaces: Sequence[Surface]) -> None:
    """Add lines through the whole picture without changing its limits, each with its name."""
    # Lines reach through the picture, and would otherwise stretch it.
    limits: Any = axes.axis()
    left, right, bottom, top = (float(limit) for limit in limits)
    for k, surface in enumerate(surfaces):
        if surface.b:
            x = np.array([left, right])
            y = (surface.c - surface.a * x) / surface.b
        else:
            x, y = np.full(2, surface.c / surface.a), np.array([bottom, top])
        color = COLORS[(k + 2) % len(COLORS)]
        axes.plot(x, y, "--", color=color, linewidth=1.0, label=surface.name, zorder=1)
    axes.axis(limits)
