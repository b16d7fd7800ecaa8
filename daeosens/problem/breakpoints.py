"""Times at which the equations may jump: their check, and the side of them that a step sees."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError
from daeosens.petsc.vectors import finite_array

Breakpoints = tuple[float, ...]

LARGEST_MARGIN = 1e-12
"""What a margin beside a breakpoint is at most, as a part of the time."""


def admit_breakpoints(breakpoints: npt.ArrayLike) -> Breakpoints:
    """Return the times [K] at which the equations may jump, checked.

    Of those that rounding alone may have made two the first one is kept.

    Raises
    ------
    InputError
        Not finite, not a list of numbers, or not increasing.
    """
    times = finite_array(breakpoints, "breakpoints")
    if times.ndim != 1:
        raise InputError(f"breakpoints have shape {times.shape}", expected="shape (K,)")
    if (np.diff(times) <= 0).any():
        k = int(np.argmax(np.diff(times) <= 0))
        raise InputError(
            f"breakpoints are not increasing: {times[k]} is followed by {times[k + 1]}",
            expected="strictly increasing times",
        )
    kept: list[float] = []
    rounding = 4.0 * sys.float_info.epsilon
    for time in times.tolist():
        if not kept or time - kept[-1] > rounding * max(abs(time), abs(kept[-1])):
            kept.append(time)
    return tuple(kept)


def piece_of_step(breakpoints: Breakpoints, t: float, h: float) -> tuple[float, float]:
    """Return the neighbouring breakpoints between which the step of size ``h`` from ``t`` lies.

    The middle of the step decides, so that ends need to meet breakpoints to rounding only.
    """
    k = bisect_right(breakpoints, t + 0.5 * h)
    first = breakpoints[k - 1] if k else -math.inf
    return first, breakpoints[k] if k < len(breakpoints) else math.inf


def inside_of_step(breakpoints: Breakpoints, time: float, t: float, h: float) -> float:
    """Return a time of the step of size ``h`` from ``t``, off the breakpoints at its ends."""
    first, last = piece_of_step(breakpoints, t, h)
    margin = min(margin_beside(max(abs(t), h), h), 0.25 * (last - first))
    return min(max(time, first + margin), last - margin)


def margin_beside(size: float, h: float) -> float:
    """Return how far from a breakpoint callbacks see a step of size ``h`` at times of ``size``.

    As much as sums of some thousand numbers err (``np.cumsum`` of lengths), unless that is more
    than a millionth of the step; never less than what a few operations round.
    """
    return max(8.0 * sys.float_info.epsilon * size, min(LARGEST_MARGIN * size, 1e-6 * h))
