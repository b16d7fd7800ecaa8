"""Figures of fits: bands, profile likelihoods, correlations, waterfalls of many starts.

Each function writes one file (by its suffix: png, pdf, svg) and returns its path.  Not collective:
call them by ``results.once``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from scipy.interpolate import PchipInterpolator

from daeosens.errors import InputError
from daeosens.inverse.discovered_model import Discovered
from daeosens.inverse.search.multistart import Multistart
from daeosens.inverse.uncertainty.prediction import Prediction
from daeosens.inverse.uncertainty.profiles import Profile, Profiles
from daeosens.report.canvas import COLORS, canvas

THRESHOLD_COLOR = COLORS[1]
POINTS = 201
"""Points of a drawn curve."""


def bands_figure(
    path: Path,
    prediction: Prediction,
    times: npt.ArrayLike,
    data: npt.ArrayLike,
    *,
    time_label: str,
    value_labels: Sequence[str],
    title: str = "",
) -> Path:
    """Draw data, fitted curves and both bands, a panel for each column.

    Parameters
    ----------
    path : Path
        The file to write.
    prediction : Prediction
        On times of its own, dense ones, with ``noise`` for the outer band.
    times, data : array_like [K], [K, q]
        The measurements; NaN is not drawn.
    time_label, value_labels : str, sequence of str [q]
        With units, "pelts [thousands]".
    title : str
        Above all.

    Raises
    ------
    InputError
        Columns that do not match.
    """
    values = np.asarray(data, dtype=float)
    values = values[:, None] if values.ndim == 1 else values
    size = prediction.value.shape[1]
    if values.shape[1] != size or len(value_labels) != size:
        raise InputError(
            f"{values.shape[1]} columns of data and {len(value_labels)} labels",
            expected=f"{size}, as the prediction",
        )
    percent = f"{100 * prediction.level:g} %"
    outer, inner = prediction.prediction, prediction.confidence
    clock = prediction.times
    with canvas(path, (6.5, 0.6 + 2.0 * size)) as figure:
        panels = figure.subplots(size, 1, sharex=True, squeeze=False)[:, 0]
        for j, axes in enumerate(panels):
            color = COLORS[j % len(COLORS)]
            if prediction.noise.any():
                axes.fill_between(
                    clock, outer[0][:, j], outer[1][:, j], color=color, alpha=0.16, linewidth=0
                )
            axes.fill_between(
                clock, inner[0][:, j], inner[1][:, j], color=color, alpha=0.4, linewidth=0
            )
            axes.plot(clock, prediction.value[:, j], color=color)
            (points,) = axes.plot(times, values[:, j], "o", color="black", zorder=4)
            points.set(markerfacecolor="white", clip_on=False)
            axes.set(ylabel=value_labels[j], xlim=(clock[0], clock[-1]))
            if axes.get_ylim()[0] > 0 or not (values[:, j] < 0).any():
                axes.set_ylim(bottom=0.0)
            axes.xaxis.set_major_locator(MaxNLocator(integer=False, steps=[1, 2, 5, 10]))
            axes.grid(visible=True)
        panels[-1].set_xlabel(time_label)
        handles = _band_handles(percent, with_noise=bool(prediction.noise.any()))
        figure.legend(
            handles=handles, loc="outside upper center", ncols=len(handles), title=title or None
        )
        figure.align_ylabels()
    return path


def profiles_figure(
    path: Path, profiles: Profiles, labels: Mapping[str, str] | None = None, *, columns: int = 3
) -> Path:
    """Draw each profile with its quadratic approximation, the threshold and the interval.

    Parameters
    ----------
    path : Path
        The file to write.
    profiles : Profiles
        From ``profile``.
    labels : mapping of str to str, optional
        Name -> label with unit; the names by default.
    columns : int
        Panels side by side.
    """
    known: Mapping[str, str] = {} if labels is None else labels
    entries = profiles.entries
    across = min(columns, len(entries))
    rows = math.ceil(len(entries) / across)
    with canvas(path, (0.6 + 2.2 * across, 0.7 + 1.9 * rows)) as figure:
        grid = figure.subplots(rows, across, squeeze=False, sharey=True)
        for axes, entry in zip(grid.flat, entries, strict=False):
            _draw_profile(axes, entry)
            axes.set_xlabel(known.get(entry.name, entry.name))
        # Places that are left over in the last row.
        for axes in list(grid.flat)[len(entries) :]:
            axes.remove()
        for line in grid:
            line[0].set_ylabel("rise of $-$log likelihood")
        handles_by_name: dict[str, Any] = {}
        for axes in list(grid.flat)[: len(entries)]:
            handles, names = axes.get_legend_handles_labels()
            handles_by_name |= dict(zip(names, handles, strict=True))
        percent = f"{100 * profiles.level:g} %"
        names = [name.format(percent=percent) for name in handles_by_name]
        wide = min(len(handles_by_name), 1 + across) if across < 3 else len(handles_by_name)
        figure.legend(list(handles_by_name.values()), names, loc="outside upper center", ncols=wide)
    return path


def correlation_figure(
    path: Path, names: Sequence[str], correlation: npt.ArrayLike, *, title: str = ""
) -> Path:
    """Draw a correlation matrix with its numbers; parameters on a bound stay empty.

    Raises
    ------
    InputError
        Another number of names than rows.
    """
    matrix = np.array(correlation, dtype=float)
    size = len(names)
    if matrix.shape != (size, size):
        raise InputError(f"correlation has shape {matrix.shape}", expected=f"{(size, size)}")
    side = 1.2 + 0.55 * size
    with canvas(path, (side + 0.8, side), boxed=True) as figure:
        axes = figure.subplots()
        image = axes.imshow(matrix, cmap="PuOr", vmin=-1.0, vmax=1.0)
        for i in range(size):
            for j in range(size):
                value = matrix[i, j]
                if math.isfinite(value):
                    color = "white" if abs(value) > 0.65 else "black"
                    text = f"{value:.2f}".replace("-", "\N{MINUS SIGN}")
                    axes.text(j, i, text, ha="center", va="center", color=color, fontsize=8.0)
        axes.set_xticks(range(size), names, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(size), names)
        axes.set_xticks(np.arange(size - 1) + 0.5, minor=True)
        axes.set_yticks(np.arange(size - 1) + 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1.0)
        axes.tick_params(which="both", length=0)
        axes.set_title(title)
        bar = figure.colorbar(image, ax=axes, label="correlation", shrink=0.8, aspect=20)
        bar.outline.set_linewidth(0.5)
    return path


def waterfall_figure(path: Path, starts: Multistart, *, floor: float = 1e-8) -> Path:
    """Draw the final values of all starts, best first, above the best one.

    Parameters
    ----------
    path : Path
        The file to write.
    starts : Multistart
        At least one of them finite.
    floor : float
        Smaller differences from the best value are drawn at it.
    """
    best = starts.best.value
    finite = [attempt for attempt in starts.ranked if math.isfinite(attempt.value)]
    heights = np.maximum([attempt.value - best for attempt in finite], floor)
    done = np.array([attempt.converged for attempt in finite])
    ranks = np.arange(1, len(finite) + 1)
    with canvas(path, (5.2, 3.2)) as figure:
        axes = figure.subplots()
        axes.plot(ranks, heights, color="0.7", linewidth=1.0, drawstyle="steps-mid")
        for mask, face, name in ((done, COLORS[0], "converged"), (~done, "white", "not converged")):
            if mask.any():
                axes.plot(
                    ranks[mask],
                    heights[mask],
                    "o",
                    color=COLORS[0],
                    markerfacecolor=face,
                    label=name,
                )
        failed = len(starts.attempts) - len(finite)
        axes.set(
            xlabel="start, best first" + (f" ({failed} more failed)" if failed else ""),
            ylabel="value above the best"
            + f", cut off at {floor:g}" * bool((heights == floor).any()),
            yscale="log",
            xlim=(0.3, len(finite) + 0.7),
        )
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 0.5 * floor), high)
        axes.yaxis.set_major_locator(LogLocator(numticks=8))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(visible=True)
        axes.legend()
    return path


def terms_figure(path: Path, discovered: Discovered) -> Path:
    """Draw the path of terms: what each set leaves unexplained, and its smallest share.

    A threshold above the smallest share of a set drops a term of it.

    Parameters
    ----------
    path : Path
        The file to write.
    discovered : Discovered
    """
    steps = [step for step in discovered.path if step.terms]
    counts = [len(step.terms) for step in steps]
    kept = sum(name in discovered.estimate for name in steps[0].terms)
    with canvas(path, (5.2, 4.4)) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True)
        for axes, kind, label in (
            (upper, "value", "half the sum of squares"),
            (lower, "smallest", "smallest share of a term"),
        ):
            heights = [getattr(step, kind) for step in steps]
            axes.plot(counts, heights, color="0.7", linewidth=1.0)
            for is_kept, face, name in ((True, COLORS[0], "kept"), (False, "white", "tried")):
                chosen = [k for k, count in enumerate(counts) if (count == kept) is is_kept]
                axes.plot(
                    [counts[k] for k in chosen],
                    [heights[k] for k in chosen],
                    "o",
                    color=COLORS[0],
                    markerfacecolor=face,
                    label=name,
                )
            axes.set(ylabel=label, yscale="log")
            axes.yaxis.set_major_locator(LogLocator(numticks=8))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.grid(visible=True)
        lower.set(xlabel="terms")
        lower.xaxis.set_major_locator(MaxNLocator(integer=True))
        upper.legend()
    return path


def _draw_profile(axes: Any, entry: Profile) -> None:
    height = entry.threshold
    color = COLORS[0]
    lower, upper = entry.interval
    # Points far above the threshold would press the rest together.
    shown = entry.rise <= 1.6 * height
    left, right = _window(entry)
    axes.axhline(height, color=THRESHOLD_COLOR, linewidth=1.0, label="{percent} threshold")
    # Evenly in the scale of the optimiser, in which the quadratic is one.
    scaled = np.linspace(*_in_scale(entry, left, right), POINTS)
    quadratic = height * ((scaled - entry.estimate) / entry.half_width) ** 2
    curve = np.exp(scaled) if entry.scale == "log" else scaled
    axes.plot(curve, quadratic, "--", color="0.45", linewidth=1.1, label="quadratic")
    if entry.scale == "log":
        center = math.exp(entry.estimate)
        symmetric = height * ((curve - center) / (center * entry.half_width)) ** 2
        axes.plot(curve, symmetric, "-.", color="0.6", linewidth=0.9, label="symmetric quadratic")
    path = _smooth(entry, scaled)
    axes.plot(curve, path, color=color, label="profile")
    axes.plot(entry.values[shown], entry.rise[shown], "o", color=color, markersize=3.0)
    for end, how in zip((lower, upper), entry.status, strict=True):
        if how in ("crossed", "bound"):
            axes.plot([end, end], [0.0, height], ":", color=color, linewidth=1.0)
    center = math.exp(entry.estimate) if entry.scale == "log" else entry.estimate
    axes.plot([center], [0.0], "v", color="black", markersize=4.5, clip_on=False, label="estimate")
    margin = 0.03 * (right - left)  # the outermost points are whole
    axes.set(xlim=(left - margin, right + margin), ylim=(0.0, 1.6 * height))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(visible=True)


def _window(entry: Profile) -> tuple[float, float]:
    """Return the values of the parameter between which to draw."""
    near = entry.x[entry.rise <= 1.6 * entry.threshold]
    reach = 1.25 * entry.half_width
    low, high = min(near.min(), entry.estimate - reach), max(near.max(), entry.estimate + reach)
    # A side that is open, or nearly so, must not make the other invisible.
    low = max(low, entry.estimate - 3.0 * entry.half_width)
    high = min(high, entry.estimate + 3.0 * entry.half_width)
    return (math.exp(low), math.exp(high)) if entry.scale == "log" else (float(low), float(high))


def _in_scale(entry: Profile, left: float, right: float) -> tuple[float, float]:
    return (math.log(left), math.log(right)) if entry.scale == "log" else (left, right)


def _smooth(entry: Profile, scaled: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Interpolate in the signed root of the rise, which is close to a straight line."""
    x, first = np.unique(entry.x, return_index=True)
    # Without overshoot between points (PCHIP), squared again at the end.
    roots = (np.sign(entry.x - entry.estimate) * np.sqrt(np.maximum(entry.rise, 0.0)))[first]
    if len(x) < 2:
        return np.full_like(scaled, np.nan)
    return np.asarray(PchipInterpolator(x, roots, extrapolate=False)(scaled), dtype=float) ** 2


def _band_handles(percent: str, *, with_noise: bool) -> list[Any]:
    """Return legend entries that fit panels of any colour."""
    handles: list[Any] = [
        Line2D(
            [], [], marker="o", color="black", markerfacecolor="white", linewidth=0, label="data"
        ),
        Line2D([], [], color="0.25", label="fit"),
        Patch(facecolor="0.25", alpha=0.4, linewidth=0, label=f"{percent} confidence"),
    ]
    if with_noise:
        patch = Patch(facecolor="0.25", alpha=0.16, linewidth=0)
        patch.set_label(f"{percent} prediction, with noise")
        handles.append(patch)
    return handles
