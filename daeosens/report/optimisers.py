"""Figures of runs of a DAEO: its states, all local optimisers, and which of them was the lowest.

The function writes one file (by its suffix: png, pdf, svg) and returns its path.  Not collective:
call it by ``results.once``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import PowerNorm

from daeosens.errors import InputError
from daeosens.petsc.vectors import Array
from daeosens.report.canvas import COLORS, canvas
from daeosens.timestepping.trajectory.trajectory import Trajectory
from daeosens.tracing.daeo.branches import Branches
from daeosens.tracing.model import DAEOModel

DEEP = 0.9
"""Colours tell values of h up to this part of all."""

LOWEST, OTHERS = COLORS[1], "0.45"


class Stretch(NamedTuple):
    """Times [N], and y [N, n_y], between which one optimiser was the lowest; its number."""

    number: int
    t: Array
    y: Array


def stretches(report: Branches, end: float) -> list[Stretch]:
    """Return the lowest optimiser along a run, from jump to jump.

    Parameters
    ----------
    report : Branches
        ``run.report``.
    end : float
        When the run ends.
    """
    starts = [t for t, _ in report.active]
    stretches: list[Stretch] = []
    # One optimiser is the lowest from one jump to the next, or to the end.
    for (start, number), last in zip(report.active, [*starts[1:], end], strict=True):
        branch = report[number]
        t = branch.times
        inside = (t >= start) & (t <= last)
        if inside.any():
            stretches.append(Stretch(number, t[inside], branch.y[inside]))
    return stretches


def optimisers_figure(
    path: Path,
    run: Trajectory,
    *,
    time_label: str = "t",
    state_labels: Sequence[str] = (),
    optimiser_labels: Sequence[str] = (),
    points: int = 240,
) -> Path:
    """Draw the states, and every optimiser with its birth and death; the lowest one is thick.

    Circles are births, crosses deaths, dotted lines jumps.  If y has one component, colours behind
    the optimisers show h(t, x(t), y), counted from its lowest value at each time.

    Parameters
    ----------
    path : Path
        The file to write.
    run : Trajectory
        Of a ``DAEO``.
    time_label : str
        With the unit.
    state_labels, optimiser_labels : sequence of str
        Of x and y, with units; the names of the model where left out.
    points : int
        So many times and y, at most, have a colour.

    Raises
    ------
    InputError
        A run of another problem; another number of labels.
    """
    model, report = run.problem, run.report
    if not isinstance(model, DAEOModel) or not isinstance(report, Branches):
        raise InputError(
            f"the run is of {model}", expected="a run of a DAEO", remedy="solve(DAEO(...), ...)"
        )
    states = _labels(state_labels, model.state_names[: model.n_x], model.n_x, "x")
    optimisers = _labels(optimiser_labels, report.names, model.n_y, "y")
    jumps = [jump.t for jump in report.jumps]
    with canvas(path, (6.2, 1.2 + 1.5 * len(states) + 2.4 * len(optimisers))) as figure:
        heights = [*[1.0] * len(states), *[1.8] * len(optimisers)]
        column: Any = figure.subplots(
            len(heights), 1, sharex=True, squeeze=False, height_ratios=heights
        )
        panels = column[:, 0]
        for k, (axes, label) in enumerate(zip(panels, states, strict=False)):
            axes.plot(run.times, run.u[:, k], color=COLORS[0], gid=f"state {k}")
            axes.set(ylabel=label)
            axes.grid(visible=True)
        for k, (axes, label) in enumerate(zip(panels[len(states) :], optimisers, strict=True)):
            if model.n_y == 1:
                _draw_landscape(figure, axes, run, model, points)
            _draw_branches(axes, report, k, float(run.times[-1]))
            axes.set(ylabel=label)
        for axes in panels:
            for number, t in enumerate(jumps):
                axes.axvline(t, color="black", linestyle=":", linewidth=0.9, gid=f"jump {number}")
            axes.margins(x=0.0)
        panels[-1].set(xlabel=time_label)
        figure.align_ylabels()
        handles, names = panels[-1].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(names))
    return path


def _labels(own: Sequence[str], names: Sequence[str], count: int, letter: str) -> Sequence[str]:
    labels = own or names or [f"{letter}[{k}]" for k in range(count)]
    if len(labels) != count:
        raise InputError(f"{len(labels)} labels {list(labels)}", expected=f"{count}: of {letter}")
    return labels


def landscape(run: Trajectory, model: DAEOModel, points: int = 240) -> tuple[Array, Array, Array]:
    """Return times [N], y [M] and h(t, x(t), y) [M, N], counted from the lowest of each time.

    Parameters
    ----------
    run : Trajectory
        Of the model, whose y has one component.
    model : DAEOModel
    points : int
        N and M, at most.
    """
    first, last = float(run.times[0]), float(run.times[-1])
    grid: Array = np.linspace(first, last, points)  # steps are of many sizes
    x = np.stack([np.interp(grid, run.times, run.u[:, k]) for k in range(model.n_x)], axis=1)
    y: Array = np.linspace(float(model.box[0, 0]), float(model.box[0, 1]), points)
    # All pairs of y and t in one call; reshaped, rows are y and columns t.
    number, places = np.tile(np.arange(points), points), np.repeat(y, points)[:, None]
    values = model.values(grid[number], x[number], places, np.asarray(run.p))
    values = values.reshape(points, points)
    return grid, y, values - values.min(axis=0)


def _draw_landscape(figure: Any, axes: Any, run: Trajectory, model: DAEOModel, points: int) -> None:
    t, y, values = landscape(run, model, points)
    # The root spreads the low values, among which the optimisers lie.
    norm = PowerNorm(0.5, vmin=0.0, vmax=float(np.quantile(values, DEEP)) or 1.0)
    mesh = axes.pcolormesh(
        t, y, values, norm=norm, cmap="GnBu_r", shading="nearest", rasterized=True, gid="landscape"
    )
    figure.colorbar(mesh, ax=axes, label="h above its lowest value", extend="max", pad=0.01)


def _draw_branches(axes: Any, report: Branches, k: int, end: float) -> None:
    """Draw component k of every optimiser, and of the lowest one on top."""
    first = report.active[0][0] if report.active else -np.inf
    births, deaths = list[tuple[float, float]](), list[tuple[float, float]]()
    for branch in report.branches:
        label = "local optimisers" if branch.number == 0 else None
        axes.plot(
            branch.times,
            branch.y[:, k],
            color=OTHERS,
            linewidth=0.9,
            label=label,
            gid=f"branch {branch.number}",
        )
        if branch.born > first:
            births.append((branch.born, branch.y[0, k]))
        if branch.died <= end:
            deaths.append((branch.died, branch.y[-1, k]))
    for stretch in stretches(report, end):
        label = "the lowest" if stretch.t[0] == first else None
        axes.plot(
            stretch.t,
            stretch.y[:, k],
            color=LOWEST,
            linewidth=2.6,
            solid_capstyle="butt",
            label=label,
            gid=f"lowest {stretch.number}",
        )
    look: Any = {"linestyle": "none", "color": "black", "zorder": 3}
    for marker, name, places in (("o", "birth", births), ("x", "death", deaths)):
        if places:
            t, y = np.array(places).T
            axes.plot(t, y, marker, markerfacecolor="white", label=name, gid=f"{name}s", **look)
