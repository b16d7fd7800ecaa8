"""Figures of fits to data at events: the fitted run, residuals, the confidence region."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.patches import Ellipse

from daeosens.errors import InputError
from daeosens.inverse.uncertainty.covariance import Covariance
from daeosens.report.canvas import COLORS, canvas
from daeosens.report.hybrid_runs import JumpSeries, Panel, draw_panel

_POINTS: Any = {
    "color": "black",
    "markerfacecolor": "white",
    "capsize": 3,
    "markersize": 3,
    "zorder": 5,
}


@dataclass(frozen=True)
class EventFit:
    """One kind of data at events, and the fitted run.

    Parameters
    ----------
    label : str
        Of the axis, with the unit.
    curve : JumpSeries
        The fitted quantity over time.
    times, values : array_like [K]
        Where the measurements are drawn.
    residuals : array_like [K]
        Data minus fit, in noise levels.
    time_errors, value_errors : float or array_like [K], optional
        Noise levels, drawn as bars; none where it is known.
    """

    label: str
    curve: JumpSeries
    times: npt.ArrayLike
    values: npt.ArrayLike
    residuals: npt.ArrayLike
    time_errors: npt.ArrayLike | None = None
    value_errors: npt.ArrayLike | None = None


def event_fit_figure(
    path: Path,
    fits: Sequence[EventFit],
    estimate: Covariance,
    names: tuple[str, str],
    *,
    time_label: str,
    axis_labels: tuple[str, str],
    truth: tuple[float, float] | None = None,
    level: float = 0.95,
) -> Path:
    """Draw data and fit, a column for each kind, with residuals below; a confidence region beside.

    Parameters
    ----------
    path : Path
        The file to write (png, pdf, svg).
    fits : sequence of EventFit
        One or several.
    estimate : Covariance
        From ``covariance``.
    names : (str, str)
        The parameters whose joint region is drawn: by the covariance in their own units.
    time_label : str
        With the unit.
    axis_labels : (str, str)
        Of the two parameters, with units.
    truth : (float, float), optional
        Their true values.
    level : float
        Probability that the region holds both; that each interval holds one.

    Raises
    ------
    InputError
        A parameter that was not estimated; data whose lengths do not match.
    """
    missing = [name for name in names if name not in estimate.names]
    if missing:
        raise InputError(
            f'"{missing[0]}" was not estimated', expected=f"two of {', '.join(estimate.names)}"
        )
    for fit in fits:
        sizes = [np.size(column) for column in (fit.times, fit.values, fit.residuals)]
        if len(set(sizes)) > 1:
            raise InputError(
                f'"{fit.label}": {sizes} times, values and residuals', expected="as many of each"
            )
    columns = len(fits) + 1
    with canvas(path, (3.0 * columns, 3.4)) as figure:
        halves: Any = figure.subfigures(1, 2, width_ratios=(len(fits), 1.0))
        left, right = halves
        grid: Any = left.subplots(2, len(fits), sharex=True, squeeze=False, height_ratios=(2.4, 1))
        for axes, fit in zip(grid.T, fits, strict=True):
            _draw_fit(axes, fit, time_label)
        left.align_ylabels()
        _draw_region(right.subplots(), estimate, names, axis_labels, truth, level)
    return path


def _draw_fit(axes: Any, fit: EventFit, time_label: str) -> None:
    upper, lower = axes
    draw_panel(upper, Panel(fit.label, [fit.curve]))
    upper.errorbar(
        fit.times, fit.values, fit.value_errors, fit.time_errors, "o", label="data", **_POINTS
    )
    upper.legend(loc="best", frameon=True, framealpha=0.85, edgecolor="none")
    lower.axhline(0.0, color="0.4", linewidth=0.8)
    lower.vlines(fit.times, 0.0, fit.residuals, color=COLORS[0], linewidth=2.5)
    bound = 1.15 * max(1.0, float(np.abs(np.asarray(fit.residuals)).max()))
    lower.set(xlabel=time_label, ylabel="residual\n[sigma]", ylim=(-bound, bound))
    lower.grid(visible=True)


def _draw_region(
    axes: Any,
    estimate: Covariance,
    names: tuple[str, str],
    labels: tuple[str, str],
    truth: tuple[float, float] | None,
    level: float,
) -> None:
    """Draw the ellipse that holds both parameters, and the interval of each."""
    chosen = [estimate.names.index(name) for name in names]
    center, matrix = estimate.estimate[chosen], estimate.matrix[np.ix_(chosen, chosen)]
    sizes, directions = np.linalg.eigh(matrix)
    reach = math.sqrt(-2.0 * math.log1p(-level))  # chi-square with two degrees of freedom
    # Half axes are reach times the root of the eigenvalues; matplotlib wants whole ones, and the
    # angle of the first.
    region = Ellipse(
        (float(center[0]), float(center[1])),
        *(2.0 * reach * np.sqrt(sizes)).tolist(),
        angle=math.degrees(math.atan2(directions[1, 0], directions[0, 0])),
        facecolor=COLORS[5],
        edgecolor=COLORS[0],
        alpha=0.4,
        label=f"both, {100 * level:g} %",
    )
    axes.add_patch(region)
    # Each parameter by itself: a narrower interval than the shadow of the ellipse.
    half = estimate.quantile(level) * np.sqrt(np.diag(matrix))
    bars: Any = {"color": COLORS[0], "capsize": 3, "label": f"each, {100 * level:g} %"}
    axes.errorbar(*center, half[1], half[0], "o", **bars)
    if truth is not None:
        axes.plot(*truth, "*", color=COLORS[1], markersize=9, label="truth")
    axes.margins(0.12)
    axes.autoscale_view()
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.grid(visible=True)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, columnspacing=1.0)
