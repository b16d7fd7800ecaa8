"""Figures of controlled motions: paths in the plane, and the controls over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError
from daeosens.report.canvas import COLORS, MARKERS, canvas


@dataclass(frozen=True)
class Route:
    """A path in the plane: positions [N, 2] at the same times as those of the other routes."""

    name: str
    positions: npt.ArrayLike


@dataclass(frozen=True)
class ControlSeries:
    """A control over time.

    Parameters
    ----------
    label : str
        Of the axis, with the unit.
    times : array_like [K]
        Where it has the values; or the K ends of K - 1 intervals on which it is constant.
    values : array_like [K] or [K - 1]
        The control.
    bounds : (float, float)
        Lines drawn at its bounds; an infinite one is left out.
    """

    label: str
    times: npt.ArrayLike
    values: npt.ArrayLike
    bounds: tuple[float, float] = (-np.inf, np.inf)


def motion_figure(
    path: Path,
    routes: Sequence[Route],
    controls: Sequence[ControlSeries],
    *,
    time_label: str = "t",
    axis_labels: tuple[str, str] = ("x", "y"),
) -> Path:
    """Draw routes on the left, with thin lines between simultaneous positions; controls right.

    Parameters
    ----------
    path : Path
        The file to write (png, pdf, svg).
    routes : sequence of Route
        All of the same length.
    controls : sequence of ControlSeries
        One below the other.
    time_label, axis_labels
        With units.

    Raises
    ------
    InputError
        Routes of different lengths, not in the plane, or a control whose lengths do not match.
    """
    tracks = [np.asarray(route.positions, dtype=float) for route in routes]
    shapes = [track.shape for track in tracks]
    if not tracks or any(shape != (len(tracks[0]), 2) for shape in shapes):
        raise InputError(f"routes have shapes {shapes}", expected="shape (N, 2), the same N")
    for control in controls:
        n_times, n_values = np.size(control.times), np.size(control.values)
        if n_times - n_values not in (0, 1):
            raise InputError(
                f'control "{control.label}" has {n_times} times and {n_values} values',
                expected="as many values as times, or one less for a staircase",
            )
    with canvas(path, (7.2, 3.2)) as figure:
        halves: Any = figure.subfigures(1, 2, width_ratios=(1.0, 1.05))
        left, right = halves
        plane: Any = left.subplots()
        for links in zip(*tracks, strict=True):
            plane.plot(*np.transpose(links), color="0.8", linewidth=0.7)
        for k, (route, track) in enumerate(zip(routes, tracks, strict=True)):
            (line,) = plane.plot(*track.T, label=route.name, color=COLORS[k % len(COLORS)])
            line.set(marker=MARKERS[k % len(MARKERS)], markerfacecolor="white")
        plane.set(xlabel=axis_labels[0], ylabel=axis_labels[1], aspect="equal")
        plane.set_adjustable("datalim")
        plane.grid(visible=True)
        plane.legend()
        rows: Any = right.subplots(len(controls), 1, sharex=True, squeeze=False)[:, 0]
        for axes, control in zip(rows, controls, strict=True):
            for bound in control.bounds:
                if np.isfinite(bound):
                    axes.axhline(bound, color="0.6", linestyle=":", linewidth=1.0)
            times, values = np.asarray(control.times), np.asarray(control.values)
            if len(times) > len(values):
                axes.stairs(values, times, baseline=None, color=COLORS[0], linewidth=1.4)
            else:
                axes.plot(times, values, color=COLORS[0])
            axes.set(ylabel=control.label)
            axes.margins(y=0.12)
            axes.grid(visible=True)
        rows[-1].set(xlabel=time_label)
        right.align_ylabels()
    return path
