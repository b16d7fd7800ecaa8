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
from matplotlib.patches import Ellipse

from daeosens.arrays import Array
from daeosens.errors import InputError
from daeosens.inverse.uncertainty import Covariance
from daeosens.report.canvas import COLORS, MARKERS, canvas
from daeosens.trajectory import Trajectory

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
        "plain", "faint" for what it is compared with, or "points" for single marks without lines.
    """

    name: str
    times: npt.ArrayLike
    values: npt.ArrayLike
    events: Sequence[int] = ()
    style: Literal["plain", "faint", "points"] = "plain"


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
        for j, column in enumerate(columns):
            for axes, panel in zip(grid[:, j], column, strict=True):
                for moment in moments:
                    axes.axvline(moment, **_THIN)
                _draw_panel(axes, panel)
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
            _draw_panel(axes, panel)
        rows[-1].set_xlabel(time_label)
        halves[1].align_ylabels()
    return path


@dataclass(frozen=True)
class EventFit:
    """One kind of data at events and its fit, in the units of the axis.

    Parameters
    ----------
    label : str
        Of the axis.
    data, sigma, fit : array_like [K]
        Measurements, noise level, and what the fit gives.
    """

    label: str
    data: npt.ArrayLike
    sigma: npt.ArrayLike
    fit: npt.ArrayLike


def event_fit_figure(
    path: Path,
    fits: Sequence[EventFit],
    covariance: Covariance,
    names: tuple[str, str],
    *,
    axis_labels: tuple[str, str],
    truth: tuple[float, float] | None = None,
    event_label: str = "event",
    level: float = 0.95,
) -> Path:
    """Draw data at events with error bars and their fit, residuals, and a confidence region.

    Parameters
    ----------
    path : Path
        The file to write.
    fits : sequence of EventFit
        A column for each: data above, residuals in noise levels below.
    covariance : Covariance
        Of the estimate.
    names : (str, str)
        The two parameters whose joint region is drawn.
    axis_labels : (str, str)
        Of these two, with units.
    truth : (float, float), optional
        Drawn as well.
    event_label : str
        Of the axis that counts the events, from 1.
    level : float
        Probability of the region.

    Raises
    ------
    InputError
        A parameter that was not estimated.
    """
    missing = [name for name in names if name not in covariance.names]
    if missing:
        raise InputError(
            f'"{missing[0]}" was not estimated', expected=f"two of {', '.join(covariance.names)}"
        )
    with canvas(path, (2.5 * len(fits) + 3.0, 3.3)) as figure:
        halves: Any = figure.subfigures(1, 2, width_ratios=(2.5 * len(fits), 3.0))
        grid: Any = halves[0].subplots(
            2, len(fits), sharex=True, squeeze=False, height_ratios=(2.2, 1)
        )
        for j, entry in enumerate(fits):
            data, sigma, fit = (
                np.asarray(each, dtype=float) for each in (entry.data, entry.sigma, entry.fit)
            )
            numbers = 1 + np.arange(data.size)
            upper, lower = grid[:, j]
            upper.plot(numbers, fit, "x", color=COLORS[1], label="fit", zorder=4)
            upper.errorbar(
                numbers,
                data,
                yerr=sigma * np.ones_like(data),
                fmt="o",
                color=COLORS[0],
                markerfacecolor="white",
                capsize=2.5,
                label="data",
            )
            upper.set(ylabel=entry.label)
            upper.legend()
            lower.axhline(0.0, color="0.4", linewidth=0.8)
            lower.bar(numbers, (data - fit) / sigma, width=0.6, color=COLORS[0])
            lower.set(xlabel=event_label, ylabel="residual / sigma", xticks=numbers)
            for axes in (upper, lower):
                axes.grid(visible=True)
        halves[0].align_ylabels()
        _draw_region(halves[1].subplots(), covariance, names, axis_labels, truth, level)
    return path


def _draw_region(
    axes: Any,
    covariance: Covariance,
    names: tuple[str, str],
    labels: tuple[str, str],
    truth: tuple[float, float] | None,
    level: float,
) -> None:
    """Draw the ellipse that holds both parameters with a probability, and single intervals."""
    chosen = [covariance.names.index(name) for name in names]
    matrix = covariance.matrix[np.ix_(chosen, chosen)]
    center = covariance.estimate[chosen]
    values, vectors = np.linalg.eigh(matrix)
    reach = np.sqrt(-2.0 * np.log1p(-level))  # chi-square with two degrees of freedom
    angle = float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))
    width, height = 2.0 * reach * np.sqrt(values[::-1])
    region = Ellipse(
        (float(center[0]), float(center[1])),
        width,
        height,
        angle=angle,
        facecolor=COLORS[0],
        edgecolor=COLORS[0],
        alpha=0.25,
    )
    axes.add_patch(region)
    half = covariance.quantile(level) * np.sqrt(np.diag(matrix))
    axes.errorbar(
        *center[:, None],
        xerr=half[:1],
        yerr=half[1:],
        fmt="o",
        color=COLORS[0],
        capsize=3,
        label=f"estimate, {100 * level:g} %",
    )
    if truth is not None:
        axes.plot(*truth, "*", color=COLORS[1], markersize=9, label="truth")
    limit = reach * np.sqrt(np.diag(matrix))
    for k, setter in enumerate((axes.set_xlim, axes.set_ylim)):
        marks = [center[k] - limit[k], center[k] + limit[k], *([] if truth is None else [truth[k]])]
        margin = 0.12 * (max(marks) - min(marks))
        setter(min(marks) - margin, max(marks) + margin)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.grid(visible=True)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.14), ncols=2)


def _draw_panel(axes: Any, panel: Panel) -> None:
    """Draw the series of one panel, with its legend where names are given."""
    shown: list[Line2D] = []
    plain = 0
    for series in panel.series:
        times, values = (np.asarray(each, dtype=float) for each in (series.times, series.values))
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
            plain += series.style == "plain"
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
    faint = series.style == "faint"
    line: Any = None
    for part in pieces(len(times), series.events):
        (line,) = axes.plot(times[part], values[part], "--" if faint else "-", color=color)
    if faint:
        line.set_linewidth(1.0)
        for each in axes.get_lines()[-len(series.events) - 1 :]:
            each.set_linewidth(1.0)
        return line
    marker = MARKERS[number % len(MARKERS)]
    for step, face in [(step, "white") for step in series.events] + [
        (step + 1, color) for step in series.events
    ]:
        axes.plot(times[step], values[step], marker, color=color, markerfacecolor=face, zorder=4)
    return line


def _draw_surfaces(axes: Any, surfaces: Sequence[Surface]) -> None:
    """Add lines through the whole picture without changing its limits, each with its name."""
    limits: Any = axes.axis()
    left, right, bottom, top = (float(each) for each in limits)
    for k, surface in enumerate(surfaces):
        if surface.b:
            x = np.array([left, right])
            y = (surface.c - surface.a * x) / surface.b
        else:
            x, y = np.full(2, surface.c / surface.a), np.array([bottom, top])
        color = COLORS[(k + 2) % len(COLORS)]
        axes.plot(x, y, "--", color=color, linewidth=1.0, label=surface.name, zorder=1)
    axes.axis(limits)
