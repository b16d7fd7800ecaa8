"""When a minimisation stops: one set of rules for all methods, absolute and free of scale."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.optimize.result import Iterate
from daeosens.optimize.start import Bounds
from daeosens.petsc.vectors import Array, norm, read

_Reason = PETSc.TAO.ConvergedReason

SCALED = (
    "CONVERGED_SCALED_GRADIENT",
    "relative gradient within scaled_gradient_tolerance",
)
PREDICTED = (
    "CONVERGED_PREDICTED_DECREASE",
    "the model promised a decrease within predicted_decrease_tolerance",
)
STAGNATION = (
    "DIVERGED_STAGNATION",
    "neither value nor gradient norm falls any more (rounding reached, or a wrong Hessian)",
)

UNMOVED = (
    "DIVERGED_UNMOVED",
    (
        "no search finds a step any more: the value has fewer digits than its gradient "
        "(a smaller rtol may help, or breakpoints= at the times at which the equations jump)"
    ),
)
SEARCHES = 3
"""So many searches in a row that leave x where it is: the next ones would be the same."""

GRADIENT = 1e-8
"""Whoever asks for a smaller gradient norm wants it whatever rounding makes of the value."""

ROUNDED = (
    "CONVERGED_ROUNDING",
    "value and gradient norm no longer fall: the rounding of the value is reached",
)
FLAT, ROUNDING, SMALL = 10, 100.0 * sys.float_info.epsilon, 1e-6
"""In so many iterations a value that falls by less than this part has reached its rounding, where
the gradient norm is below this part of the largest one: searches could go on for hundreds more."""

NOISE = (
    "DIVERGED_STAGNATION",
    (
        "steps shrink, the value falls by less than the tolerance of its runs, and its gradient "
        "does not: a smaller rtol may help"
    ),
)
WITHIN_NOISE, SHRUNK = 6, 0.1
"""So many iterations, and the part of the first step that the last one is below, are shrinking."""

STUCK = ("DIVERGED_UNMOVED", "DIVERGED_STAGNATION", "DIVERGED_LS_FAILURE", "DIVERGED_TR_REDUCTION")
"""Reasons of searches that find nothing lower any more."""

EXHAUSTED = (
    "CONVERGED_ROUNDING",
    "the search found no lower value, and what its gradient promises is below the value's rounding",
)


@dataclass(frozen=True)
class Stopping:
    """The tolerances; 0 switches a rule off.

    Parameters
    ----------
    gradient, by_value, by_first : float
        The gradient norm: absolute, as a fraction of |J|, as a fraction of the first one.
    value : float
        Relative change of J in an iteration.
    scaled_gradient : float
        max_i |x_i - P_i(x_i - g_i d_i^2 / F)| / d_i with d_i = max(|x_i|, typical x_i),
        F = max(|J|, typical J); without bounds max_i |g_i| d_i / F.  Neither the units of x nor
        those of J change it.
    predicted_decrease : float
        -g.s/2 of the last full Newton step s, as a fraction of F.
    typical_x : Vec [n] or None
        Sizes of x below which a change no longer matters.
    typical_value : float
        Size of J, likewise.
    max_iterations : int
        When to give up.
    rounding : bool
        Whether to stop where neither the value falls beyond its rounding nor the gradient norm,
        which is small beside the first ones.
    noise : float
        Relative changes of J below this say nothing, of adaptive runs; 0: all digits count.
    patience : int
        Iterations in which neither value nor gradient norm falls, before giving up; 0 is off.

    Source
    ------
    Dennis, Schnabel, Numerical Methods for Unconstrained Optimization, section 7.2; the projection
    is ours.
    """

    gradient: float = 0.0
    by_value: float = 0.0
    by_first: float = 0.0
    value: float = 0.0
    scaled_gradient: float = 0.0
    predicted_decrease: float = 0.0
    typical_x: PETSc.Vec | None = None
    typical_value: float = 0.0
    max_iterations: int = 1000
    rounding: bool = False
    noise: float = 0.0
    patience: int = 0

    def reason(
        self, iterates: Sequence[Iterate], scaled: float, predicted: float
    ) -> tuple[int, tuple[str, str] | None]:
        """Return TAO's reason to stop at the last iterate, and a name and words of our own.

        Parameters
        ----------
        iterates : sequence of Iterate
            All so far.
        scaled, predicted : float
            The scale-free gradient and relative predicted decrease there; NaN if unknown.
        """
        last = iterates[-1]
        size, value = last.gradient_norm, last.value
        before = iterates[-2].value if last.iteration > 0 else math.inf
        change = abs(before - value) / max(abs(before), abs(value), sys.float_info.min)
        # The first that applies names the reason: a tolerance that was met before a limit that
        # was reached.
        rules: list[tuple[bool, int, tuple[str, str] | None]] = [
            (size <= self.gradient, _Reason.CONVERGED_GATOL, None),
            (size <= self.by_value * abs(value), _Reason.CONVERGED_GRTOL, None),
            (size <= self.by_first * iterates[0].gradient_norm, _Reason.CONVERGED_GTTOL, None),
            (0.0 < self.scaled_gradient >= scaled, _Reason.CONVERGED_USER, SCALED),
            (0.0 < self.predicted_decrease >= predicted, _Reason.CONVERGED_USER, PREDICTED),
            (0.0 < self.value >= change, _Reason.CONVERGED_USER, None),
            (self.rounding and _rounded(iterates), _Reason.CONVERGED_USER, ROUNDED),
            (last.iteration >= self.max_iterations, _Reason.DIVERGED_MAXITS, None),
            (_unmoved(iterates), _Reason.DIVERGED_USER, UNMOVED),
            (self._stagnant(iterates), _Reason.DIVERGED_USER, STAGNATION),
            (self._in_noise(iterates), _Reason.DIVERGED_USER, NOISE),
        ]
        for applies, reason, why in rules:
            if applies:
                return reason, why
        return _Reason.CONTINUE_ITERATING, None

    def _stagnant(self, iterates: Sequence[Iterate]) -> bool:
        if not 0 < self.patience < len(iterates):
            return False
        before, after = iterates[: -self.patience], iterates[-self.patience :]
        # Against the best of all earlier iterates: values that go up and down have not fallen
        # either.
        lowest = min(iterate.value for iterate in before)
        smallest = min(iterate.gradient_norm for iterate in before)
        return all(
            iterate.value >= lowest - 1e-15 * abs(lowest) and iterate.gradient_norm > 0.5 * smallest
            for iterate in after
        )

    def _in_noise(self, iterates: Sequence[Iterate]) -> bool:
        """Whether a search follows the errors of runs: along a direction that J does not feel."""
        if self.noise == 0.0 or len(iterates) <= WITHIN_NOISE:
            return False
        before, after = iterates[-WITHIN_NOISE - 1], iterates[-WITHIN_NOISE:]
        # The model promised more than J gave, again and again, so steps shrank; near a minimum
        # they shrink with the gradient.
        return (
            after[-1].step < SHRUNK * after[0].step
            and before.value - after[-1].value <= self.noise * abs(before.value)
            and min(iterate.gradient_norm for iterate in after) > 0.5 * before.gradient_norm
        )

    def converged_to_rounding(
        self, iterates: Sequence[Iterate], slopes: Sequence[float]
    ) -> tuple[str, str] | None:
        """Return how a search that is stuck has converged nevertheless; None: it has not.

        J has nothing to say of a decrease below its rounding.  What decrease is left is told by
        the search itself: from iterate k it was J_k - J, and near a minimum it goes with the square
        of the gradient.

        Parameters
        ----------
        iterates : sequence of Iterate
            All so far.
        slopes : sequence of float
            Norms of their gradients, without what bounds hold.
        """
        # A search whose gradient is wrong, or whose value is too coarse for its way, is stuck where
        # its gradient is not small, however little it gained.
        last = iterates[-1]
        if not self.rounding or slopes[-1] > SMALL * max(slopes):
            return None
        size, left = abs(last.value), 0.0
        for iterate, slope in zip(iterates, slopes, strict=True):
            gain = iterate.value - last.value
            # of a gain that is rounding itself, and from a smaller gradient, nothing follows
            if gain > ROUNDING * size and slope > slopes[-1]:
                left = max(left, gain * (slopes[-1] / slope) ** 2)
        return EXHAUSTED if left <= ROUNDING * size else None

    def size_of(self, value: float, first: float) -> float:
        """Return F: the larger of |J| and its typical size (by default that of the first J)."""
        return max(abs(value), self.typical_value if self.typical_value > 0.0 else abs(first))

    def scaled_norm(
        self, x: PETSc.Vec, gradient: PETSc.Vec, limits: Bounds | None, size: float
    ) -> float:
        """Return the scale-free gradient at x [n]; NaN if its rule is off.  Collective."""
        if self.scaled_gradient <= 0.0 or self.typical_x is None:
            return math.nan
        point = read(x)
        scale = np.maximum(np.abs(point), read(self.typical_x))
        if size == 0.0:
            size = sys.float_info.min
        # g_i d_i^2 / F, divided by d_i below. It is the step of steepest descent in the variables
        # x_i / d_i, and clipped to the bounds it vanishes where they hold x back.
        step = read(gradient) * scale * (scale / size)
        if limits is not None:
            step = np.clip(step, point - read(limits[1]), point - read(limits[0]))
        local = float((np.abs(step) / scale).max(initial=0.0))
        return x.comm.tompi4py().allreduce(local, MPI.MAX)


def _rounded(iterates: Sequence[Iterate]) -> bool:
    """Whether neither value nor gradient norm has fallen lately, where the latter is small."""
    if len(iterates) <= FLAT:
        return False
    before, after = iterates[:-FLAT], iterates[-FLAT:]
    # Three signs together: J has not fallen beyond its rounding, the gradient has not halved, and
    # it is small beside the largest. A plateau far from a minimum lacks the third.
    last, smallest = before[-1].value, min(iterate.gradient_norm for iterate in before)
    return (
        all(iterate.value >= last - ROUNDING * abs(last) for iterate in after)
        and min(iterate.gradient_norm for iterate in after) > 0.5 * smallest
        and smallest <= SMALL * max(iterate.gradient_norm for iterate in before)
    )


def _unmoved(iterates: Sequence[Iterate]) -> bool:
    """Whether the last searches have left x where it was."""
    # PETSc 3.26: BLMVM and BQNLS take a search that ends where it began for a success
    return len(iterates) > SEARCHES and all(iterate.step == 0.0 for iterate in iterates[-SEARCHES:])


def free_norm(x: PETSc.Vec, gradient: PETSc.Vec, limits: Bounds | None) -> float:
    """Return the 2-norm of the gradient without what bounds hold back at x.  Collective.

    Not cut by the width of the bounds, as the projected one is, so that it tells how far the
    gradient has fallen.
    """
    if limits is None:
        return norm(gradient)
    local = float(np.sum(free_part(read(x), read(gradient), read(limits[0]), read(limits[1])) ** 2))
    return math.sqrt(x.comm.tompi4py().allreduce(local))


def free_part(x: Array, gradient: Array, low: Array, high: Array) -> Array:
    """Return the gradient [n] at x [n], zero where a bound holds back what would lower J.

    Examples
    --------
    >>> bounds = np.zeros(3), np.ones(3)
    >>> free_part(np.array([0.0, 0.0, 0.5]), np.array([2.0, -2.0, 2.0]), *bounds).tolist()
    [0.0, -2.0, 2.0]
    """
    held = ((x <= low) & (gradient > 0.0)) | ((x >= high) & (gradient < 0.0))
    return np.where(held, 0.0, gradient)


def projected_norm(x: PETSc.Vec, gradient: PETSc.Vec, limits: Bounds | None) -> float:
    """Return the 2-norm of x - P(x - gradient), P the projection onto the bounds.  Collective."""
    if limits is None:
        return norm(gradient)
    point = read(x)
    # not by x - g, in which a g small beside x would be lost
    step = np.clip(read(gradient), point - read(limits[1]), point - read(limits[0]))
    local = float(np.sum(step**2))
    return math.sqrt(x.comm.tompi4py().allreduce(local))
