"""One descent by PETSc TAO: its callbacks, its stopping rules, how it survives failed solves."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import dot, norm, read
from daeosens.errors import SolveError
from daeosens.functional import Functional
from daeosens.options import Scope, scoped_options

Bounds: TypeAlias = tuple[PETSc.Vec, PETSc.Vec]
"""Lower and upper bounds [n]."""

MORE_THUENTE, ARMIJO = "more-thuente", "armijo"
"""TAO's line searches that can come back from a failed solve."""

CURVATURE = "tao_ls_gtol"

_Reason = PETSc.TAO.ConvergedReason


@dataclass(frozen=True)
class Iterate:
    """One accepted iterate; number 0 is the start.

    Parameters
    ----------
    iteration : int
        Its number.
    value : float
        J.
    gradient_norm : float
        2-norm of x - P(x - dJ/dx), P the projection onto the bounds; without bounds that of dJ/dx.
    step : float
        2-norm of the change of x since the iterate before.
    evaluations, failed_solves : int
        Evaluations of J so far, and how many of them failed.
    """

    iteration: int
    value: float
    gradient_norm: float
    step: float
    evaluations: int
    failed_solves: int

    def __str__(self) -> str:
        """Return the progress line, to stand under ``HEADING``."""
        return (
            f"{self.iteration:6d} {self.value: .10e}  {self.gradient_norm:.3e}  {self.step:.3e} "
            f"{self.evaluations:6d} {self.failed_solves:7d}"
        )


HEADING = "  iter             value   gradient       step  evals  failed"

Progress: TypeAlias = Callable[[Iterate, PETSc.Vec], object]


@dataclass
class Descent:
    """TAO's callbacks and what they must remember.

    Parameters
    ----------
    functional : Functional
        J.
    limits : (Vec, Vec) or None
        Lower and upper bounds [n].
    value_tolerance : float
        Relative change of J in an iteration below which to stop; 0 is off.
    max_iterations : int
        Where to stop, unless the option tao_max_it says otherwise.
    x : Vec [n]
        The last accepted iterate.  A copy, because PETSc 3.26 loses it when a line search fails.
    report : callable or None
        Gets each iterate.

    Notes
    -----
    ``gradient`` [n] belongs to ``x``; ``trial`` is the last evaluation that succeeded.
    """

    functional: Functional
    limits: Bounds | None
    value_tolerance: float
    max_iterations: int
    x: PETSc.Vec
    report: Progress | None
    evaluations: int = 0
    failed_solves: int = 0
    restarts: int = 0
    iterates: list[Iterate] = field(default_factory=list[Iterate])
    trial: tuple[float, PETSc.Vec] | None = None
    gradient: PETSc.Vec | None = None
    tolerances: tuple[float, float, float] = (0.0, 0.0, 0.0)
    monotone: bool = True
    scope: Scope | None = None
    relaxed: bool = False
    resuming: bool = False
    resumed_at: int = -1

    @property
    def failed_in_search(self) -> bool:
        """Whether a solve has failed since the last accepted iterate."""
        return self.failed_solves > self.iterates[-1].failed_solves

    def attach(self, tao: PETSc.TAO) -> None:
        """Become the callbacks of ``tao``, and take over the stopping rules that were set in it.

        PETSc 3.26: BQNLS and BNCG test the norm of the Fischer-Burmeister residual, BLMVM that of
        a projected gradient, BNCG counts an iteration late, and none looks at the change of the
        value.  Testing here makes the rules the same for all.
        """
        self.tolerances = tao.getTolerances()
        given = PETSc.Options()
        self.monotone = not given.hasName("tao_ls_armijo_memory_size")
        if given.hasName("tao_max_it"):
            self.max_iterations = tao.getMaximumIterations()
        tao.setTolerances(0.0, 0.0, 0.0)
        tao.setMaximumIterations(PETSc.UNLIMITED)
        tao.setObjectiveGradient(self.evaluate)
        tao.setMonitor(self.accept)

    def run(self, tao: PETSc.TAO, x: PETSc.Vec, scope: Scope) -> int:
        """Run TAO from ``x`` [n] and return its reason to stop.

        Where failed solves defeat a line search, TAO is run again from the last iterate, which
        begins with the gradient direction.  TAO itself means to do that, but, PETSc 3.26, LMVM's
        second search takes the first direction reversed (its MatSolve writes into the gradient)
        and BNCG's third one begins at a rejected point.
        """
        self.scope = scope
        while True:
            _solve(tao)
            reason: Any = tao.getConvergedReason()
            stuck = self.resumed_at == len(self.iterates)
            if reason != _Reason.DIVERGED_LS_FAILURE or not self.failed_in_search or stuck:
                return reason
            assert self.gradient is not None
            self.x.copy(x)
            self.trial = (self.iterates[-1].value, self.gradient)
            self.resuming = True
            self.resumed_at = len(self.iterates)
            self.restarts += 1

    def evaluate(self, tao: PETSc.TAO, x: PETSc.Vec, gradient: PETSc.Vec) -> float:
        """Return J(x) and fill ``gradient`` [n], for TAO."""
        if not self.resuming:
            self.evaluations += 1
            try:
                self.trial = _finite(*self.functional.value_and_gradient(x))
            except SolveError as error:
                return self._failed(tao, x, gradient, error)
        assert self.trial is not None
        value, computed = self.trial
        computed.copy(gradient)
        return value

    def _failed(
        self, tao: PETSc.TAO, x: PETSc.Vec, gradient: PETSc.Vec, error: SolveError
    ) -> float:
        """Count a failed solve, and give TAO what makes its line search come back."""
        self.failed_solves += 1
        if not self.iterates:
            raise SolveError(
                f"the functional cannot be evaluated at the start: {error}",
                remedy="another x0, or smaller steps",
            ) from error
        line_search = tao.getLineSearch().getType()
        if line_search == MORE_THUENTE:
            if not self.relaxed:
                self._relax(tao, relaxed=True)
            return self._wall(x, gradient)
        if line_search == ARMIJO:
            return math.inf  # it halves the step, and does not look at the gradient
        raise SolveError(
            f'a forward solve failed, from which the line search "{line_search}" cannot come back: '
            f"{error}",
            expected=f'tao_ls_type "{MORE_THUENTE}" or "{ARMIJO}"',
        ) from error

    def _wall(self, x: PETSc.Vec, gradient: PETSc.Vec) -> float:
        """Return a value, and fill ``gradient`` [n], that turn a More-Thuente search back.

        Infinity would end it (PETSc 3.26: the cubic through an infinite value is not a number,
        the step becomes 0 and the search fails).  A steep rise from the last iterate x_k is as
        good: with J_k + r and slope (1 + 6 r/d) d, d = |dJ_k (x - x_k)|, the cubic has its minimum
        halfway, so that the next trial lies at 1/4 to 1/2 of the failed step.  r >= 1e-9 |J_k|
        exceeds the relative 1e-10 by which PETSc lets J rise: the point is never accepted.
        """
        assert self.gradient is not None
        x.copy(gradient)
        gradient.axpy(-1.0, self.x)
        descent = max(abs(dot(gradient, self.gradient)), sys.float_info.min)
        value = self.iterates[-1].value
        rise = max(descent, 1e-9 * abs(value))
        self.gradient.copy(gradient)
        gradient.scale(-1.0 - 6.0 * min(rise / descent, 1e9))
        return value + rise

    def _relax(self, tao: PETSc.TAO, *, relaxed: bool) -> None:
        """Make the line search, even a running one, content with a lower J, or undo that.

        More-Thuente wants J to fall *and* to flatten.  Beside a region without solutions there may
        be no such point, and the search closes in on the edge until it fails.  petsc4py 3.26 has
        only an option for the wanted flatness, which a line search reads whenever it is told to.
        The command line's stays.
        """
        code = {CURVATURE: 1e10} if relaxed else {}
        with scoped_options(defaults={CURVATURE: 0.9}, code=code):
            tao.getLineSearch().setFromOptions()
        self.relaxed = relaxed

    def accept(self, tao: PETSc.TAO) -> None:
        """Record an iterate, report it and decide whether to stop; TAO's monitor."""
        reason: Any = tao.getConvergedReason()
        if reason != _Reason.CONTINUE_ITERATING:
            return  # PETSc 3.26: LMVM and BQNLS show the old iterate again after a failed search
        if self.relaxed:
            self._relax(tao, relaxed=False)
        if self.resuming:
            self.resuming = False
            return
        assert self.trial is not None
        value, gradient = self.trial
        x = tao.getSolution()
        gradient_norm = _projected_norm(x, gradient, self.limits)
        if self.iterates and self._worthless(tao, value, gradient_norm):
            reason = _Reason.DIVERGED_LS_FAILURE
            tao.setConvergedReason(reason)
            return
        self.gradient = gradient
        self.x.axpy(-1.0, x)
        step = norm(self.x)
        x.copy(self.x)
        counts = (self.evaluations, self.failed_solves)
        iterate = Iterate(len(self.iterates), value, gradient_norm, step, *counts)
        self.iterates.append(iterate)
        if self.scope is not None and iterate.iteration == 1:
            self.scope.check_used(final=True)
        if self.report is not None:
            self.report(iterate, self.x)
        reason = self._reason(iterate)
        tao.setConvergedReason(reason)

    def _worthless(self, tao: PETSc.TAO, value: float, gradient_norm: float) -> bool:
        """Say whether the new iterate is one that its line search should not have accepted.

        PETSc 3.26: when two searches in a row fail, BNCG starts the third one from the last trial
        point, or with its value, instead of the last iterate: J rises.  And More-Thuente lets it
        stay or rise by a relative 1e-10, beside failed solves for ever.
        """
        line_search = tao.getLineSearch().getType()
        if line_search != MORE_THUENTE and not (line_search == ARMIJO and self.monotone):
            return False
        last = self.iterates[-1]
        if self.failed_in_search and value >= last.value:
            return gradient_norm > 0.9 * last.gradient_norm
        return value > last.value + 1e-9 * abs(last.value)

    def _reason(self, iterate: Iterate) -> int:
        absolute, by_value, by_first = self.tolerances
        size, value = iterate.gradient_norm, iterate.value
        if size <= absolute:
            return _Reason.CONVERGED_GATOL
        if size <= by_value * abs(value):
            return _Reason.CONVERGED_GRTOL
        if size <= by_first * self.iterates[0].gradient_norm:
            return _Reason.CONVERGED_GTTOL
        if self.value_tolerance > 0.0 and iterate.iteration > 0:
            before = self.iterates[-2].value
            if abs(before - value) <= self.value_tolerance * max(abs(before), abs(value)):
                return _Reason.CONVERGED_USER
        if iterate.iteration >= self.max_iterations:
            return _Reason.DIVERGED_MAXITS
        return _Reason.CONTINUE_ITERATING


def _solve(tao: PETSc.TAO) -> None:
    """Run TAO, and let an exception of a callback out as it was raised.

    petsc4py 3.26 wraps it: a PETSc.Error with code 101 caused by it.
    """
    try:
        tao.solve()
    except PETSc.Error as error:
        original = error.__cause__
        if original is None:
            raise
    else:
        return
    raise original


def _finite(value: float, gradient: PETSc.Vec) -> tuple[float, PETSc.Vec]:
    """Return both, or raise ``SolveError`` on every rank."""
    size = norm(gradient)
    if not (math.isfinite(value) and math.isfinite(size)):
        raise SolveError(f"value {value:g} with a gradient of norm {size:g}")
    return value, gradient


def _projected_norm(x: PETSc.Vec, gradient: PETSc.Vec, limits: Bounds | None) -> float:
    """Return the 2-norm of x - P(x - gradient), P the projection onto the bounds."""
    if limits is None:
        return norm(gradient)
    point = read(x)
    projected = np.clip(point - read(gradient), read(limits[0]), read(limits[1]))
    local = float(np.sum((point - projected) ** 2))
    return math.sqrt(x.comm.tompi4py().allreduce(local))
