"""Figures for papers: fields, optimisation histories, work against precision.

Each function writes one file (by its suffix: png, pdf, svg) and returns its path.  Not collective:
call them by ``results.once``.  Labels carry the units, "pelts [thousands]".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from daeosens.errors import InputError
from daeosens.report.canvas import COLORS, MARKERS, canvas

Array: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class History:
    """Course of an optimisation: objective and gradient norm, one entry an iteration [N]."""

    name: str
    values: npt.ArrayLike
    gradient_norms: npt.ArrayLike


@dataclass(frozen=True)
class Curve:
    """One method in a log-log plot: points (x, y) [N], in the order in which they are joined."""

    name: str
    x: npt.ArrayLike
    y: npt.ArrayLike


def fields_figure(
    path: Path,
    rows: Mapping[str, Sequence[npt.ArrayLike]],
    titles: Sequence[str],
    *,
    extent: tuple[float, float, float, float],
    axis_labels: tuple[str, str] = ("x", "y"),
) -> Path:
    """Draw 2-D fields side by side, one row a quantity, one colour scale a row.

    Parameters
    ----------
    path : Path
        The file to write.
    rows : Mapping of str to sequence of array_like [ny, nx]
        Label of the row's colour bar (with unit) -> the fields, as many as there are titles.
    titles : sequence of str
        What each column shows.
    extent : (left, right, bottom, top)
        The box.
    axis_labels : (str, str)
        Names of the axes, with units.

    Raises
    ------
    InputError
        Another number of fields than of titles, or a field that is not 2-D.
    """
    for name, fields in rows.items():
        shapes = [np.shape(entry) for entry in fields]
        if len(fields) != len(titles) or any(len(shape) != 2 for shape in shapes):
            raise InputError(
                f'row "{name}" has {len(fields)} fields of shapes {shapes}',
                expected=f"{len(titles)} fields [ny, nx], one for each title",
            )
    aspect = (extent[3] - extent[2]) / (extent[1] - extent[0])
    letters = max(len(line) for name in rows for line in name.splitlines()) + len(axis_labels[1])
    size = (0.8 + 0.06 * letters + 1.75 * len(titles), 0.6 + 1.75 * aspect * len(rows))
    with canvas(path, size, boxed=True, layout="compressed") as figure:
        layout: Any = figure.get_layout_engine()
        layout.set(w_pad=0.06)  # so that numbers at the ends of two axes keep apart
        grid = figure.subplots(len(rows), len(titles), sharex=True, sharey=True, squeeze=False)
        for line, (name, fields) in zip(grid, rows.items(), strict=True):
            arrays = [np.asarray(entry, dtype=float) for entry in fields]
            least, most = min(a.min() for a in arrays), max(a.max() for a in arrays)
            images = [
                axes.imshow(
                    values, origin="lower", extent=extent, vmin=least, vmax=most, cmap="viridis"
                )
                for axes, values in zip(line, arrays, strict=True)
            ]
            bar = figure.colorbar(images[-1], ax=list(line), aspect=15, pad=0.01)
            bar.outline.set_linewidth(0.5)
            bar.ax.ticklabel_format(axis="y", useOffset=False)  # whole numbers beside the ticks
            bar.set_label(name, rotation=0, ha="left", va="center")
            line[0].set_ylabel(axis_labels[1], rotation=0, ha="right", va="center")
        for axes, title in zip(grid[0], titles, strict=True):
            axes.set_title(title)
        for axes in grid.flat:
            axes.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
            axes.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
        for axes in grid[-1]:
            axes.set_xlabel(axis_labels[0])
    return path


def history_figure(path: Path, histories: Sequence[History], *, value_label: str = "J") -> Path:
    """Draw objective and gradient norm over the iterations, on log scales where positive."""
    with canvas(path, (6.5, 2.8)) as figure:
        left, right = figure.subplots(1, 2)
        for k, entry in enumerate(histories):
            color = COLORS[k % len(COLORS)]
            style = ("-", "--", ":", "-.")[k % 4]  # histories may lie on one another
            left.plot(entry.values, style, color=color, label=entry.name)
            right.plot(entry.gradient_norms, style, color=color, label=entry.name)
        left.set(xlabel="iteration", ylabel=value_label)
        right.set(xlabel="iteration", ylabel="gradient norm")
        for axes in (left, right):
            _log_if_positive(axes)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.grid(visible=True)
        if len(histories) > 1:
            left.legend()
    return path


def work_precision_figure(
    path: Path,
    curves: Sequence[Curve],
    *,
    x_label: str,
    y_label: str,
    orders: Sequence[float] = (),
) -> Path:
    """Draw curves in a log-log plot, with dashed lines of given slopes to compare with.

    Raises
    ------
    InputError
        A value that is not positive: it has no logarithm.
    """
    for curve in curves:
        values = np.concatenate([np.ravel(curve.x), np.ravel(curve.y)])
        if not (values > 0).all():
            raise InputError(f'curve "{curve.name}" holds {values.min():g}', expected="values > 0")
    with canvas(path, (5.2, 3.8)) as figure:
        axes = figure.subplots()
        for k, curve in enumerate(curves):
            (line,) = axes.plot(curve.x, curve.y, label=curve.name, markerfacecolor="white")
            line.set(color=COLORS[k % len(COLORS)], marker=MARKERS[k % len(MARKERS)])
        axes.set(xscale="log", yscale="log", xlabel=x_label, ylabel=y_label)
        limits: Any = axes.axis()
        for order in orders:
            _slope(axes, order, np.log10(np.asarray(limits, dtype=float)))
        axes.axis(limits)
        if limits[1] < 30.0 * limits[0]:  # matplotlib 3.10 would crowd the labels of a decade
            ticks = _round_numbers(limits[0], limits[1])
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(visible=True)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return path


def _round_numbers(low: float, high: float) -> list[float]:
    """Return a few numbers for the labels of a log axis that spans little more than a decade."""
    leading = (1.0, 2.0, 5.0) if high > 6.0 * low else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    numbers = [digits * 10.0**exponent for exponent in exponents for digits in leading]
    return [number for number in numbers if low <= number <= high]


def _slope(axes: Any, order: float, logs: Array) -> None:
    """Add a dashed line of slope ``order`` through the middle of the plot, with its label."""
    left, right, bottom, top = (float(value) for value in logs)
    reach = min(0.3 * (right - left), 0.3 * (top - bottom) / max(abs(order), 1e-9))
    middle = (0.5 * (left + right), 0.5 * (bottom + top))
    xs = np.array([middle[0] - reach, middle[0] + reach])
    ys = middle[1] + order * (xs - middle[0])
    axes.plot(10**xs, 10**ys, "--", color="0.5", linewidth=1.0, label=f"slope {order:g}")


def _log_if_positive(axes: Any) -> None:
    if all((np.asarray(line.get_ydata(), dtype=float) > 0).all() for line in axes.get_lines()):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=8))
        axes.yaxis.set_minor_locator(NullLocator())
