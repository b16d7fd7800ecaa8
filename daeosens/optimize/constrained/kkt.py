"""The search for a Karush-Kuhn-Tucker point: its iterates, its stopping rules, TAO's form of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.optimize.constrained.lagrangian import Lagrangian, Point
from daeosens.optimize.constrained.optimality import Optimality, optimality, scales
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.callback_guard import guarded

_Reason = PETSc.TAO.ConvergedReason

PATIENCE = 25
"""Iterations without a better point after which a search has stalled."""


@dataclass(frozen=True)
class KktIterate:
    """One iterate of a constrained search; number 0 is the start.

    Parameters
    ----------
    iteration : int
        Its number.
    value : float
        J.
    optimality : Optimality
        Gradient of the Lagrangian, violation, complementarity.
    step : float
        2-norm of the change of x since the iterate before.
    evaluations, failed_solves : int
        Evaluations of J and constraints so far, and how many of them failed.
    """

    iteration: int
    value: float
    optimality: Optimality
    step: float
    evaluations: int
    failed_solves: int

    def __str__(self) -> str:
        """Return the progress line, to stand under ``KKT_HEADING``."""
        how = self.optimality
        return (
            f"{self.iteration:6d} {self.value: .10e}  {how.stationarity:.3e}  {how.violation:.3e}  "
            f"{how.complementarity:.3e}  {self.step:.3e} {self.evaluations:6d} "
            f"{self.failed_solves:7d}"
        )


KKT_HEADING = "  iter             value   gradient   violated  slackness       step  evals  failed"

KktProgress: TypeAlias = Callable[[KktIterate, PETSc.Vec], object]


@dataclass(frozen=True, eq=False)
class StandardForm:
    """TAO's form: J / value_scale with ce(x) = 0, ci(x) >= 0, made of scaled components.

    Row i of ci is sign_i (c_j - bound_i) / scale_i with j = inequality_i; both sides of an
    interval are rows of their own (PETSc 3.26: almm takes no double-sided ones).
    """

    value_scale: float
    equality: npt.NDArray[np.int64]
    target: Array
    equality_scale: Array
    inequality: npt.NDArray[np.int64]
    sign: Array
    bound: Array
    inequality_scale: Array

    def equalities(self, outputs: Array) -> Array:
        """Return ce."""
        return (outputs[self.equality] - self.target) / self.equality_scale

    def inequalities(self, outputs: Array) -> Array:
        """Return ci."""
        return self.sign * (outputs[self.inequality] - self.bound) / self.inequality_scale

    def equality_rows(self, jacobian: Array) -> Array:
        """Return dce/dx, given dc/dx [m, any]."""
        return jacobian[self.equality] / self.equality_scale[:, None]

    def inequality_rows(self, jacobian: Array) -> Array:
        """Return dci/dx, given dc/dx [m, any]."""
        return jacobian[self.inequality] * (self.sign / self.inequality_scale)[:, None]

    def multipliers(self, size: int, lam_e: Array, lam_i: Array) -> Array:
        """Return v [m], given those of L = J / value_scale + lam_e ce - lam_i ci."""
        # J_x / s_0 + lam_e dce/dx - lam_i dci/dx = 0 is multiplied by s_0, so that v stands
        # beside J itself. The minus turns TAO's lam_i >= 0 for ci >= 0 into v < 0 at a lower
        # bound (sign = 1) and v > 0 at an upper one (sign = -1). Both sides of an interval add to
        # the same v_j; at most one of them is active.
        v = np.zeros(size)
        np.add.at(v, self.equality, self.value_scale * lam_e / self.equality_scale)
        rows = -self.value_scale * lam_i * self.sign / self.inequality_scale
        np.add.at(v, self.inequality, rows)
        return v


def standard_form(lagrangian: Lagrangian, value_scale: float, scale: Array) -> StandardForm:
    """Return TAO's form of a problem, given the scales of J and of the components [m]."""
    equal = np.flatnonzero(lagrangian.equality)
    # An infinite bound gives no row.
    below = np.flatnonzero(~lagrangian.equality & (lagrangian.lower > -math.inf))
    above = np.flatnonzero(~lagrangian.equality & (lagrangian.upper < math.inf))
    rows = np.concatenate([below, above])
    return StandardForm(
        value_scale,
        equal,
        lagrangian.lower[equal],
        scale[equal],
        rows,
        np.concatenate([np.ones(len(below)), -np.ones(len(above))]),
        np.concatenate([lagrangian.lower[below], lagrangian.upper[above]]),
        scale[rows],
    )


@dataclass
class SearchRecord:
    """The record of a search, and when it ends.

    Parameters
    ----------
    lagrangian : Lagrangian
        What is evaluated.
    limits : (array, array) or None
        Bounds of x [k_local].
    gradient_tolerance, constraint_tolerance : float
        For stationarity and complementarity; for violation.
    max_iterations : int
        Where to stop.
    report : callable or None
        Gets each iterate.
    """

    lagrangian: Lagrangian
    limits: tuple[Array, Array] | None
    gradient_tolerance: float
    constraint_tolerance: float
    max_iterations: int
    report: KktProgress | None
    evaluations: int = 0
    failed_solves: int = 0
    iterates: list[KktIterate] = field(default_factory=list[KktIterate])
    best: int = 0
    x: Array | None = None
    multipliers: Array | None = None
    outputs: Array | None = None
    message: str = ""
    reference: tuple[float, float, Array] | None = None
    _previous: Array | None = None
    _last: Point | None = None

    def evaluate(self, x: PETSc.Vec) -> Point:
        """Return the point, counting evaluations; the last one is free.

        Raises
        ------
        SolveError
            J or a constraint does not exist there.
        """
        if self._last is None or not self.lagrangian.same(self._last, x):
            self.evaluations += 1
            try:
                self._last = self.lagrangian.evaluate(x)
            except SolveError:
                self.failed_solves += 1
                raise
        return self._last

    def accept(self, point: Point, multipliers: Array) -> int:
        """Record an iterate with its multipliers [m], report it, and return TAO's reason."""
        assert self.reference is not None
        how = optimality(self.lagrangian, point, multipliers, self.limits, self.reference)
        before = point.x if self._previous is None else self._previous
        step = self.lagrangian.length(point.x - before)
        self._previous = point.x
        counts = (self.evaluations, self.failed_solves)
        iterate = KktIterate(len(self.iterates), point.value, how, step, *counts)
        self.iterates.append(iterate)
        # The result is the best iterate, not the last: penalties make residuals rise on the way,
        # and a search that ends by patience ends at a worse one.
        if iterate.iteration == 0 or self._merit(iterate) < self._merit(self.iterates[self.best]):
            self.best = iterate.iteration
            self.x = point.x.copy()
            self.multipliers, self.outputs = multipliers, point.outputs
        if self.report is not None:
            # A copy for each report: what the user does to it must not move the search.
            vec = self.lagrangian.x.duplicate()
            write(vec, point.x)
            try:
                self.report(iterate, vec)
            finally:
                vec.destroy()
        return self._reason(iterate)

    def _merit(self, iterate: KktIterate) -> float:
        """Return how many times the worst residual exceeds its tolerance."""
        how = iterate.optimality
        # A tolerance of 0 means never; 1e-16 keeps the quotient finite, so that iterates can
        # still be compared.
        gradient = max(self.gradient_tolerance, 1e-16)
        worst = max(
            how.stationarity / gradient,
            how.complementarity / gradient,
            how.violation / max(self.constraint_tolerance, 1e-16),
        )
        return worst if math.isfinite(worst) else math.inf

    def _reason(self, iterate: KktIterate) -> int:
        if self._merit(iterate) <= 1.0:
            self.message = (
                "stationary and complementary within gradient_tolerance, "
                "feasible within constraint_tolerance"
            )
            return _Reason.CONVERGED_GATOL
        if iterate.iteration >= self.max_iterations:
            self.message = "max_iterations reached"
            return _Reason.DIVERGED_MAXITS
        if iterate.iteration - self.best >= PATIENCE:
            self.message = f"no better point in {PATIENCE} iterations: {self.worst()}"
            return _Reason.DIVERGED_LS_FAILURE
        return _Reason.CONTINUE_ITERATING

    def agreed(self, tao: PETSc.TAO, reason: int) -> int:
        """Return a reason, or TAO's own: the option tao_max_funcs is the only one left to it."""
        own: Any = tao.getConvergedReason()
        if reason == _Reason.CONTINUE_ITERATING and own == _Reason.DIVERGED_MAXFCN:
            self.message = "more than tao_max_funcs evaluations"
            return _Reason.DIVERGED_MAXFCN
        return reason

    def worst(self) -> str:
        """Say what keeps the best point from being optimal."""
        how = self.iterates[self.best].optimality
        if how.violation > self.constraint_tolerance:
            assert self.outputs is not None
            assert self.reference is not None
            law = self.lagrangian
            away = np.maximum(law.lower - self.outputs, self.outputs - law.upper)
            j = int(np.argmax(away / self.reference[2]))
            return (
                f'"{law.labels[j]}" = {self.outputs[j]:.9g} stays {away[j]:.3g} away from its '
                "bound (infeasible, or only locally so: try another start)"
            )
        return (
            f"stationarity {how.stationarity:.3g}, complementarity {how.complementarity:.3g} "
            "(rounding reached, a wrong gradient, or dependent constraints)"
        )

    def begin(self, x: PETSc.Vec) -> StandardForm:
        """Evaluate the start and return TAO's form of the problem.

        Raises
        ------
        SolveError
            J or a constraint does not exist at the start.
        """
        try:
            point = self.evaluate(x)
        except SolveError as error:
            raise SolveError(
                f"the functional or a constraint cannot be evaluated at the start: {error}",
                remedy="another x0, or smaller steps",
            ) from error
        # Scales and forces are those of the start for the whole search: tolerances that moved
        # with the iterate could be met by moving them.
        value_scale, scale = scales(self.lagrangian, point)
        size = self.lagrangian.size(read(x))
        self.reference = (self.lagrangian.length(point.gradient), size, scale)
        return standard_form(self.lagrangian, value_scale, scale)


def kkt_reporter(progress: bool | KktProgress | None, comm: PETSc.Comm) -> KktProgress | None:
    """Return what gets each iterate: nothing, a line on rank 0, or the user's callable."""
    if callable(progress):
        return guarded(progress, "progress", comm)
    if not progress:
        return None

    # on every rank: a vector made for a report on one alone would put PETSc's tags out of step
    def show(iterate: KktIterate, _x: PETSc.Vec) -> None:
        if comm.rank > 0:
            return
        heading = f"{KKT_HEADING}\n" if iterate.iteration == 0 else ""
        sys.stdout.write(f"{heading}{iterate}\n")
        sys.stdout.flush()

    return show
