"""TAO's POUNDERS: least squares by models of the residual, without derivatives."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError, SolveError, UnsupportedError
from daeosens.functional.functional import HasResidual
from daeosens.optimize.evaluations import Trial
from daeosens.optimize.result import Iterate
from daeosens.optimize.start import Bounds
from daeosens.optimize.stopping import projected_norm
from daeosens.optimize.tao.gauss_newton import residual_at_start
from daeosens.optimize.tao.run import Descent
from daeosens.petsc.options import Scope
from daeosens.petsc.vectors import Array, gather, norm, read, scatter, write
from daeosens.problem.callback_guard import unwrapped

DELTA = "tao_pounders_delta"

_Reason = PETSc.TAO.ConvergedReason


class Models:
    """POUNDERS' callbacks and what they must remember.

    PETSc 3.26: on several ranks POUNDERS reads beyond the local part of its vectors.  So each rank
    runs it alone, on all of x and r, in step with the others: only the residual is distributed.
    """

    def __init__(self, descent: Descent, functional: HasResidual, start: PETSc.Vec) -> None:
        self.descent = descent
        self.functional = functional
        self.vector: PETSc.Vec = start.copy()
        self.largest: Array | None = None
        self.known: tuple[Array, Array] | None = None

    def residual(self, _tao: PETSc.TAO, x: PETSc.Vec, values: PETSc.Vec) -> None:
        """Fill ``values`` [q] with r(x), for TAO.

        PETSc 3.26 ends with an error where r is not finite.  At a failed solve r is shown as twice
        the largest one so far: bad enough to be left, not so bad as to spoil the model.
        """
        point = read(x).copy()
        if self.known is not None and np.array_equal(self.known[0], point):
            write(values, self.known[1])
            return
        self.descent.evaluations.begin()
        try:
            result = gather(self.functional.residual(scatter(point, self.vector)))
            if not np.isfinite(result).all():
                raise SolveError("a residual that is not finite")  # noqa: TRY301 (one way to fail)
        except SolveError:
            assert self.largest is not None  # the start has been evaluated
            self.descent.evaluations.failed += 1
            write(values, 2.0 * self.largest)
            return
        if self.largest is None or result @ result > self.largest @ self.largest:
            self.largest = result
        write(values, result)

    def accept(self, tao: PETSc.TAO) -> None:
        """Record a better point and decide whether to stop; TAO's monitor.

        PETSc 3.26: its value is |r|^2, its gradient the model's of J times the radius, its gradient
        norm that times the radius again.
        """
        descent = self.descent
        squares: Any
        reason: Any
        _, squares, shown, _, _, reason = tao.getSolutionStatus()
        if reason != _Reason.CONTINUE_ITERATING:
            return
        slope = read(tao.getGradient()[0])
        size = float(np.linalg.norm(slope))
        radius = shown / size if size > 0.0 else 1.0
        gradient = scatter(slope / radius, self.vector.duplicate())
        point = scatter(read(tao.getSolution()), self.vector.duplicate())
        gradient_norm = projected_norm(point, gradient, descent.limits)
        iterates = descent.iterates
        better = not iterates or not point.equal(descent.x)
        descent.evaluations.accepted = Trial(point, 0.5 * squares, gradient)
        if better:
            descent.x.axpy(-1.0, point)
            step = norm(descent.x) if iterates else 0.0
            point.copy(descent.x)
            counts = (descent.evaluations.count, descent.evaluations.failed)
            iterates.append(Iterate(len(iterates), 0.5 * squares, gradient_norm, step, *counts))
            descent.tell(tao)
        else:
            iterates[-1] = replace(iterates[-1], gradient_norm=gradient_norm)
        descent.decide(tao, math.nan)


def run(tao: PETSc.TAO, descent: Descent, x: PETSc.Vec, scope: Scope) -> int:
    """Run POUNDERS (a TAO of one rank) from x [n] and return its reason to stop.

    Raises
    ------
    SolveError
        No residual at the start.
    """
    scope.check_used()
    descent.scope = scope
    functional: Any = descent.evaluations.functional
    models = Models(descent, functional, x)
    start = gather(residual_at_start(functional, x))
    descent.evaluations.begin()
    models.largest, models.known = start, (gather(x), start)
    if descent.iterates:
        descent.check_continued(0.5 * float(start @ start))
    tao.setSolution(_alone(x))
    if descent.limits is not None:
        tao.setVariableBounds((_alone(descent.limits[0]), _alone(descent.limits[1])))
    tao.setResidual(models.residual, PETSc.Vec().createSeq(len(start), comm=PETSc.COMM_SELF))
    tao.setMonitor(models.accept)
    tao.setTolerances(0.0, 0.0, 0.0)
    tao.setMaximumIterations(PETSc.UNLIMITED)
    unwrapped(tao.solve)()
    reason: Any = tao.getConvergedReason()
    return reason


def _alone(vec: PETSc.Vec) -> PETSc.Vec:
    values: Any = gather(vec)
    return PETSc.Vec().createWithArray(values, comm=PETSc.COMM_SELF)


def first_step(x: PETSc.Vec, limits: Bounds | None) -> float:
    """Return the radius to begin with: a tenth of the largest |x_i|, and room for it above x.

    Raises
    ------
    UnsupportedError
        One variable alone.
    InputError
        No room above the start.
    """
    point = gather(x)
    if len(point) == 1:  # PETSc 3.26: it then writes beyond its arrays, and ends in a crash or not
        raise UnsupportedError(
            'method "pounders" with one variable',
            expected="two or more",
            remedy='method "brgn", or "lmvm"',
        )
    radius = 0.1 * float(np.abs(point).max(initial=0.0)) or 0.1
    if limits is None:
        return radius
    room = gather(limits[1]) - point
    index = int(np.argmin(room))
    if room[index] <= 0.0:
        raise InputError(
            f"the start lies on its upper bound {point[index]:g} at index {index}",
            expected='room above the start, where "pounders" takes its first steps',
            remedy='another x0, or "brgn"; a restart file that ended there cannot be continued',
        )
    return min(radius, 0.5 * float(room[index]))
