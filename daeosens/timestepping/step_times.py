"""Times at which steps end: what rounding alone tells apart, from each other or from an end."""

from __future__ import annotations

import math
import sys

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError
from daeosens.petsc.vectors import Array, finite_array

ROUNDING = 4.0 * sys.float_info.epsilon
"""Relative difference of times that are the same."""

STEP_ROUNDING = 1e-9
"""Times that differ by less than this part of the steps around them are the same."""

OUTSIDE = 1e-10
"""Times that lie outside the span by so small a part of it are sums of steps: its end is meant."""

LOGARITHMIC = 1e-12
"""Times of a log scale are not so much nearer to its start than the next one."""


def inside_span(span: tuple[float, float], times: Array, name: str) -> Array:
    """Return times [K], where those that rounding alone tells from an end of the span are that end.

    Raises
    ------
    InputError
        One lies outside.

    Examples
    --------
    >>> inside_span((0.0, 0.3), np.array([0.1, 0.1 * 3]), "observation time")
    array([0.1, 0.3])
    """
    times = at_ends(span, times)
    outside = times[(times < span[0]) | (times > span[1])]
    if outside.size:
        raise InputError(
            f"{name} {outside[0]:.16g} lies outside the time span",
            expected=f"times in [{span[0]:.16g}, {span[1]:.16g}]",
            remedy="a longer t_span, or fewer times",
        )
    return times


def span_rounding(span: tuple[float, float]) -> float:
    """Return how far apart times of a span may be and yet the same up to rounding."""
    return ROUNDING * max(abs(span[0]), abs(span[1]))


def at_ends(span: tuple[float, float], times: Array) -> Array:
    """Return times [K], where those that rounding alone tells from an end of the span are it."""
    first, last = span
    rounding = span_rounding(span)
    # sums of many steps miss the end by more than one rounding, outside of the span only
    slack = max(rounding, OUTSIDE * (last - first))
    times = np.where((first - slack <= times) & (times < first), first, times)
    times = np.where((last < times) & (times <= last + slack), last, times)
    return snapped(snapped(times, first, last, rounding), last, first, rounding)


def snapped(times: Array, mark: float, end: float, rounding: float) -> Array:
    """Return times [K], where those that rounding alone tells from ``mark`` are it.

    They are no farther from it than ``rounding``, that of the span, nor than a small part of how
    far from it, towards an end, the next time lies: that knows whether 1e-13 beside 0 is a sum of
    larger numbers, -0.6 + 6 * 0.1, or a time on a log scale.
    """
    # distances towards the other end of the span, positive inside of it
    away = (times - mark) * (1.0 if end > mark else -1.0)
    ordered = np.unique(np.append(away, abs(end - mark)))
    later = np.searchsorted(ordered, np.maximum(away, 0.0), side="right")
    # the next later time, or the end of the span
    following = ordered[np.minimum(later, ordered.size - 1)]
    limits = np.maximum(ROUNDING * abs(mark), LOGARITHMIC * following)
    close = np.abs(away) <= np.minimum(limits, rounding)
    # never past another time: their order stays
    apart = away[~close & (away > 0.0)].min(initial=math.inf)
    return np.where(close & (away < apart), mark, times)


def increasing(span: tuple[float, float], t_eval: npt.ArrayLike) -> Array:
    """Return the times [K] that steps have to hit, checked."""
    times = finite_array(t_eval, "t_eval")
    if times.ndim != 1:
        raise InputError(f"t_eval has shape {times.shape}", expected="shape (K,)")
    if (np.diff(times) < 0).any():
        k = int(np.argmax(np.diff(times) < 0))
        raise InputError(
            f"t_eval decreases: {times[k]:g} is followed by {times[k + 1]:g}",
            expected="times in order",
        )
    return np.unique(inside_span(span, times, "t_eval or observation time"))


def apart_from(times: Array, others: Array) -> Array:
    """Return the times [K] without those that rounding alone tells from one of the others.

    They are times of steps, which end at the others to rounding.
    """
    if not (times.size and others.size):
        return times
    # what is near is judged beside the steps around it, which may be tiny at the start
    gaps = np.diff(times, prepend=-math.inf, append=math.inf)
    later = np.minimum(np.searchsorted(others, times), others.size - 1)
    nearest = np.minimum(
        np.abs(others[later] - times), np.abs(others[np.maximum(later - 1, 0)] - times)
    )
    limits = np.minimum(np.minimum(gaps[:-1], gaps[1:]), np.ptp(np.append(times, others)))
    return times[nearest > STEP_ROUNDING * limits]


def beside(marks: Array, times: Array, distance: float) -> npt.NDArray[np.bool_]:
    """Return which of the marks have a time beside them, but not at them, within a distance."""
    if not times.size:
        return np.zeros(marks.size, dtype=bool)
    later = np.searchsorted(times, marks)
    before, after = times[np.maximum(later - 1, 0)], times[np.minimum(later, times.size - 1)]
    gaps = np.abs(marks - before), np.abs(after - marks)
    close_before, close_after = ((gap > 0.0) & (gap <= distance) for gap in gaps)
    return close_before | close_after
