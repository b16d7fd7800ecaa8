"""Figures for papers: data and fit, fields, optimisation histories, work against precision.

Each function writes one file (by its suffix: png, pdf, svg) and returns its path.  None touches
pyplot or any other global state of matplotlib.  Not collective: call them by ``results.once``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from daeosens.errors import DaeosensError, InputError

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
except ImportError as error:
    raise DaeosensError(
        "figures need matplotlib, which is not installed",
        expected="the optional extra 'plot'",
        remedy='pip install --no-build-isolation "daeosens[plot]"',
    ) from error

Array: TypeAlias = npt.NDArray[np.float64]

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which readers of all kinds of sight can tell apart."""
MARKERS = "os^Dv<>"
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "savefig.dpi": 200,
}


@dataclass(frozen=True)
class FitSeries:
    """One observed quantity and its fit.

    Parameters
    ----------
    name : str
        Shown in the legend.
    times, data : array_like [K]
        The observations.
    fit_times, fit : array_like [L]
        The fitted curve, on times of its own.
    residuals : array_like [K]
        Data minus fit at ``times``, in the scale of the noise (say, of logarithms over sigma).
    """

    name: str
    times: npt.ArrayLike
    data: npt.ArrayLike
    fit_times: npt.ArrayLike
    fit: npt.ArrayLike
    residuals: npt.ArrayLike


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


def fit_figure(
    path: Path,
    series: Sequence[FitSeries],
    *,
    time_label: str,
    value_label: str,
    residual_label: str,
    title: str = "",
) -> Path:
    """Draw data and fitted curves above, residuals below on the same time axis.

    Labels carry the units, "pelts [thousands]".
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.5, 4.6), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        lower.axhline(0.0, color="0.4", linewidth=0.8)
        width = _bar_width(series)
        for k, (entry, color) in enumerate(zip(series, COLORS, strict=False)):
            upper.plot(entry.fit_times, entry.fit, color=color, label=f"{entry.name}, fit")
            (points,) = upper.plot(entry.times, entry.data, MARKERS[k], color=color)
            points.set(markerfacecolor="white", label=f"{entry.name}, data")
            times = np.asarray(entry.times, dtype=float) + width * (k - 0.5 * (len(series) - 1))
            lower.bar(times, entry.residuals, width=width, color=color)
        upper.set(ylabel=value_label, ylim=(min(0.0, upper.get_ylim()[0]), None), title=title)
        upper.legend(ncols=len(series))
        lower.set(xlabel=time_label, ylabel=residual_label)
        bound = 1.1 * max(float(np.abs(np.asarray(entry.residuals)).max()) for entry in series)
        lower.set_ylim(-bound, bound)
        for axes in (upper, lower):
            axes.grid(visible=True)
        figure.align_ylabels()
        return _save(figure, path)


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
    with mpl.rc_context({**STYLE, "axes.spines.top": True, "axes.spines.right": True}):
        aspect = (extent[3] - extent[2]) / (extent[1] - extent[0])
        size = (0.9 + 1.75 * len(titles), 0.6 + 1.75 * aspect * len(rows))
        figure = Figure(figsize=size, layout="constrained")
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
            bar = figure.colorbar(images[-1], ax=list(line), label=name, shrink=0.95, aspect=15)
            bar.outline.set_linewidth(0.5)
            line[0].set_ylabel(axis_labels[1])
        for axes, title in zip(grid[0], titles, strict=True):
            axes.set_title(title)
        for axes in grid.flat:
            axes.xaxis.set_major_locator(MaxNLocator(3))
            axes.yaxis.set_major_locator(MaxNLocator(3))
        for axes in grid[-1]:
            axes.set_xlabel(axis_labels[0])
        return _save(figure, path)


def history_figure(path: Path, histories: Sequence[History], *, value_label: str = "J") -> Path:
    """Draw objective and gradient norm over the iterations, on log scales where positive."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.5, 2.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        for entry, color in zip(histories, COLORS, strict=False):
            left.plot(entry.values, color=color, label=entry.name)
            right.plot(entry.gradient_norms, color=color, label=entry.name)
        left.set(xlabel="iteration", ylabel=value_label)
        right.set(xlabel="iteration", ylabel="gradient norm")
        for axes in (left, right):
            _log_if_positive(axes)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.grid(visible=True)
        if len(histories) > 1:
            left.legend()
        return _save(figure, path)


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
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 3.8), layout="constrained")
        axes = figure.subplots()
        for k, curve in enumerate(curves):
            (line,) = axes.plot(curve.x, curve.y, label=curve.name, markerfacecolor="white")
            line.set(color=COLORS[k % len(COLORS)], marker=MARKERS[k % len(MARKERS)])
        axes.set(xscale="log", yscale="log", xlabel=x_label, ylabel=y_label)
        limits: Any = axes.axis()
        for order in orders:
            _slope(axes, order, np.log10(np.asarray(limits, dtype=float)))
        axes.axis(limits)
        axes.grid(visible=True)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return _save(figure, path)


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
        axes.yaxis.set_minor_formatter(NullFormatter())


def _bar_width(series: Sequence[FitSeries]) -> float:
    steps = [np.diff(np.sort(np.asarray(entry.times, dtype=float))) for entry in series]
    least = min((float(step.min()) for step in steps if len(step)), default=1.0)
    return 0.8 * least / len(series)


def _save(figure: Figure, path: Path) -> Path:
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise DaeosensError(
            f"{path}: the figure cannot be written ({error})",
            expected="a writable folder, and a suffix such as .png, .pdf, .svg",
            remedy=f"{path.with_suffix('.png').name} in a results folder",
        ) from error
    return path
