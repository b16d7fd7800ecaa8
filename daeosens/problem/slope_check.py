"""Whether a callback changes as its derivative says, along one direction.

Arrays that carry derivatives see all that is computed with them.  What they cannot see is a number
made of decisions: the result of a bisection, the place in a table, ``int(1e9 * p) / 1e9``.  So a
derivative is compared with differences of the callback now and then.

Differences know less than derivatives, so theirs is the burden of proof.  One-sided differences,
extrapolated, from both sides and of two step sizes a hundredfold apart, have to agree with each
other within a twentieth of what they contradict, and no difference of any length may agree with the
derivative: at kinks, jumps and stairs, in noise, beyond the domain and where the callback varies on
smaller scales they do not, and nothing is said.
"""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from daeosens.petsc._kernels.derivative_numbers import BRANCHES
from daeosens.petsc.vectors import Array
from daeosens.problem.derivative_arrays import DerivativeArray, is_users, line_of, primal

MOST_LINES = 3
"""So many lines of the user's are named, at most."""

STEPS = (1e-4, 1e-6, 1e-8)
"""Of the differences, as parts of the arguments."""

SCALES = (1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
"""Of steps on which a contradiction has to show as well: stairs and rounding have one scale."""

LEAST = 1e-3
"""Relative differences of derivatives that are told."""

CERTAINTY = 20.0
"""How many times a contradiction has to exceed what differences say about each other."""

NEAR = 1e-4
"""Relative differences of derivatives that are not looked into."""

ROUNDING = 1e4 * np.finfo(float).eps
"""Of values, and of the changes of their terms, at most."""

SINGULAR = 1e-2
"""Part of the values that a derivative beside a singularity changes within the shortest step."""

UNBOUNDED = 3.0, 80.0
"""Factors by which differences grow on a way a hundred times shorter, next to a branch point."""

LEFT = 10.0 * np.finfo(float).eps
"""Part of the largest derivative of all entries that those of others may be made of."""

Shifted = Callable[[float], Any]
"""The callback at a distance along the direction; an array."""


@dataclass(frozen=True)
class Contradiction:
    """An entry of a callback whose differences all say another derivative.

    Attributes
    ----------
    entry : int
        Of the values, flattened.
    derivative, difference : float
        Along the direction.
    singular : bool
        The derivative would change the values within the shortest step by as much as they are:
        that of v / |v| beside 0.
    """

    entry: int
    derivative: float
    difference: float
    singular: bool


def contradiction(
    shifted: Shifted, derivative: Array, terms: Array, slopes: Shifted | None = None
) -> Contradiction | None:
    """Return the entry in which differences contradict a derivative most, if they do in any.

    Parameters
    ----------
    shifted : callable
        ``shifted(h) -> [q]``: the values at the distance h along a direction whose length is that
        of the arguments, so that h = 1 is a change by their own size.
    derivative : array [q]
        Along the direction.
    terms : array [q]
        Sizes of the parts that the derivative is a sum of.
    slopes : callable, optional
        ``slopes(h) -> [q]``: the derivative at such a distance.

    Notes
    -----
    Two evaluations where all is well; otherwise at most 25.

    Examples
    --------
    >>> import numpy as np
    >>> contradicted = contradiction(lambda h: np.array([3.0 * h]), np.zeros(1), np.zeros(1))
    >>> contradicted.entry, round(contradicted.difference, 6)
    (0, 3.0)
    """
    largest = STEPS[0]
    with np.errstate(all="ignore"):
        ahead, behind = shifted(largest), shifted(-largest)
        # nearly every call ends here: differences to second order agree with the derivative
        central = (ahead - behind) / (2.0 * largest)
        # sums of terms that cancel leave rounding, which has a derivative as well
        left = LEFT * float(np.max(terms, initial=0.0))
        doubtful = np.maximum(np.abs(central), np.abs(derivative)) > left
        doubtful &= np.abs(central - derivative) > NEAR * np.maximum(
            np.abs(central), np.abs(derivative)
        )
        if not doubtful.any():
            return None
        middle = shifted(0.0)
        size = np.abs(middle)
        sides = [_sides(shifted, middle, STEPS[0], ahead, behind)]
        for fine in STEPS[1:]:
            sides.append(_sides(shifted, middle, fine))
            # two lengths from two sides: as far as these four agree, the difference is known
            all_four = np.concatenate(sides[-2:])
            difference = sides[-1].mean(axis=0)
            spread = np.ptp(all_four, axis=0)
            off = np.abs(difference - derivative)
            # rounding of the values, divided by the step
            floor = ROUNDING * (size + terms) / fine
            certain = doubtful & (off > CERTAINTY * spread + floor)
            certain &= off > LEAST * np.maximum(np.abs(difference), np.abs(derivative))
            if certain.any():
                certain &= _everywhere(shifted, middle, derivative, off)
            # 1 - tanh(25 u) does not change by its derivative, which is below its rounding
            matters = np.abs(derivative) > NEAR * max(1.0, float(size.max(initial=0.0)))
            certain &= matters | (np.abs(difference) > 0.5 * off)
            if certain.any() and slopes is not None:
                certain[_at_kink(slopes, fine, sides[-1], ROUNDING * size / fine)] = False
            if certain.any():
                entry = int(np.where(certain, off, -1.0).argmax())
                slope, other = float(derivative[entry]), float(difference[entry])
                least = SINGULAR * float(size.max(initial=0.0))
                steep = abs(slope) * SCALES[-1] > least and abs(slope) > CERTAINTY * abs(other)
                return Contradiction(entry, slope, other, steep)
    return None


def _at_kink(slopes: Shifted, h: float, sides: Array, floor: Array) -> Array:
    """Return where [q] the derivatives on both sides are those that differences say.

    Several kinks at one point, of a flux against the wind where nothing blows, may have about the
    same differences on both sides of it, and neither is the derivative that is taken there.
    """
    result = np.ones(floor.shape, dtype=bool)
    for side, difference in zip((h, -h), sides, strict=True):
        try:
            slope = slopes(side)
        except Exception:  # noqa: BLE001 (what fails beside a point explains nothing)
            return np.zeros(floor.shape, dtype=bool)
        # to far less than what is told
        off = np.abs(slope - difference)
        result &= off <= np.maximum(LEAST / CERTAINTY * np.abs(difference), floor)
    return result


def _sides(
    shifted: Shifted, middle: Array, h: float, ahead: Array | None = None, behind: Any = None
) -> Array:
    """Return extrapolated differences from both sides [2, q]."""
    result: list[Array] = []
    for side, near in ((h, ahead), (-h, behind)):
        close = shifted(side) if near is None else near
        # from two points on one side, to second order: a kink in the middle spoils neither side
        result.append((4.0 * (close - middle) - (shifted(2.0 * side) - middle)) / (2.0 * side))
    return np.array(result)


def _everywhere(shifted: Shifted, middle: Array, derivative: Array, off: Array) -> Array:
    """Return where [q] differences of all lengths contradict a derivative.

    Values that lose digits, as (1e10 + x) - 1e10 does, follow their derivative on longer ways only,
    stairs on shorter ones.
    """
    differences = np.array([[(shifted(side) - middle) / side for side in (h, -h)] for h in SCALES])
    # Next to a branch point, of sqrt(x) or of the slopes of x^1.5, the shorter the way the nearer
    # differences come to a derivative that is far larger; across a jump they do at once.
    coarse, middling, fine = differences[-3:]
    growth, before = fine / middling, middling / coarse
    follows = (growth > UNBOUNDED[0]) & (growth < UNBOUNDED[1]) & (fine * derivative > 0.0)
    follows &= (before > 0.5 * growth) & (before < 2.0 * growth)
    follows &= np.abs(fine) > NEAR * np.abs(derivative)
    off_all: Array = np.all(np.abs(differences - derivative) > 0.5 * off, axis=(0, 1))
    return off_all & ~follows.any(axis=0)


@dataclass(frozen=True)
class Direction:
    """Changes of arguments along a random direction, of their own size.

    Attributes
    ----------
    changes : sequence of arrays or None
        For each argument; None for one that does not vary.
    weights : array [K]
        Of the slopes along K directions.
    """

    changes: Sequence[Any]
    weights: Array

    def shifted(self, plain: Sequence[Any], h: float) -> list[Any]:
        """Return arguments at a distance."""
        return [
            x if change is None else np.asarray(x, dtype=float)[()] + h * change
            for x, change in zip(plain, self.changes, strict=True)
        ]


def random_direction(
    arguments: Sequence[Any], plain: Sequence[Any], rng: np.random.Generator
) -> Direction | None:
    """Return a direction among those that arguments carry slopes along.

    Every one of the K directions is followed as far as the smallest of the numbers it moves; what
    is zero stays so, since nothing tells on which scale it would change.
    """
    count, reach = 0, None
    for x, value in zip(arguments, plain, strict=True):
        if type(x) is not DerivativeArray:
            continue
        slopes = np.abs(primal(x.slopes))
        count = slopes.shape[-1]
        size = np.abs(np.asarray(value, dtype=float))
        with np.errstate(all="ignore"):
            steps = np.where(slopes > 0.0, size[..., None] / slopes, np.inf)
        steps = steps.reshape(-1, count).min(axis=0, initial=np.inf)
        reach = steps if reach is None else np.minimum(reach, steps)
    if reach is None or not count:
        return None
    reach = np.where(np.isfinite(reach), reach, 0.0)
    if not reach.any():
        return None
    # random signs, so that errors of several directions do not cancel each time
    weights: Array = reach * rng.uniform(0.3, 1.0, count) * rng.choice([-1.0, 1.0], count)
    changes: list[Any] = [
        primal(x.slopes) @ weights if type(x) is DerivativeArray else None for x in arguments
    ]
    return Direction(changes, weights)


def deciding_lines(function: Callable[[], Any]) -> list[str]:
    """Return the user's lines in which an evaluation decides by numbers that vary.

    Those with a comparison, and those that make whole numbers.
    """
    places: dict[tuple[str, int], str] = {}
    last: list[Any] = [None, 0]

    def note(frame: FrameType, event: str, _argument: Any) -> Any:
        code = frame.f_code
        if not is_users(code.co_filename, frame.f_globals):
            return None
        if event in ("line", "return"):
            place, count = last
            if place is not None and len(BRANCHES[-1]) > count:
                places.setdefault(place[0], place[1])
            text = line_of(frame)
            if any(word in text.partition(": ")[2] for word in _WHOLE):
                places.setdefault((code.co_filename, frame.f_lineno), text)
            last[:] = [((code.co_filename, frame.f_lineno), text), len(BRANCHES[-1])]
        return note

    BRANCHES.append([])
    before = sys.gettrace()
    # line by line: slow, and only once an error is certain
    sys.settrace(note)
    try:
        function()
    finally:
        sys.settrace(before)
        BRANCHES.pop()
    return list(places.values())[:MOST_LINES]


_WHOLE = ("int(", "round(", "floor(", "ceil(", "rint(", "trunc(", "//", "bisect", "searchsorted")
