"""TAO's almm: minima under constraints by a sequence of problems with bounds only."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.optimize.constrained.kkt import SearchRecord, StandardForm
from daeosens.optimize.constrained.lagrangian import Point
from daeosens.optimize.failed_solve_barrier import ARMIJO, MORE_THUENTE, steepness
from daeosens.petsc.options import Options, Scope
from daeosens.petsc.vectors import Array, gather, read, write
from daeosens.problem.callback_guard import unwrapped

_Reason = PETSc.TAO.ConvergedReason

DEFAULTS: Options = {
    f"tao_almm_subsolver_tao_{name}_mat_lmvm_hist_size": 20 for name in ("bqnls", "blmvm")
}
"""The penalty makes subproblems ill-conditioned; PETSc's own 5 pairs take thrice as long."""

BLOCKED = 3
"""Outer iterations that failed solves keep on the spot after which to stop."""

STAYS = 1e-3
"""Change of x, relative to max(1, |x|), that is none."""

NOT_FINITE, OUT_OF_RANGE = 83, 63
"""PETSc's error codes for values that its types and line searches cannot go on with."""

PENALTY = 10.0
"""The largest that TAO begins with; ``WEIGHT`` makes it 100 for the scaled problem."""

WEIGHT = 10.0
"""By how much J is divided, beyond its scale: subproblems are bounded below more often."""

INNER = 0.1
"""How much smaller than the violation the gradient of a subproblem has to be."""

VAIN = 3
"""Inner iterations in a row that change nothing: rounding hides the rest of the gradient.  TAO's
own subsolvers go on to their last iteration, each time with a line search."""


class _Rows:
    """The Jacobian of constraints [m, k] for TAO: a Python matrix whose rows are gradients.

    PETSc 3.26: almm turns the sign by MatScale after each evaluation.  Then it multiplies the
    transpose by the multipliers the minimum of the subproblem leads to, which are kept here:
    petsc4py has no other access, and TaoALMMGetMultipliers gives zeros where there are equalities
    and inequalities.
    """

    def __init__(self) -> None:
        self.block: Array | None = None
        self.sign = 1.0
        self.multipliers = np.zeros(0)

    def fill(self, block: Array) -> None:
        """Take new rows [m, k_local]."""
        self.block = block
        self.sign = 1.0

    def scale(self, _mat: PETSc.Mat, factor: float) -> None:
        """Multiply by a number."""
        self.sign *= factor

    def mult(self, mat: PETSc.Mat, x: PETSc.Vec, y: PETSc.Vec) -> None:
        """Return the product with x [k] in y [m]."""
        assert self.block is not None
        total = mat.comm.tompi4py().allreduce(self.block @ read(x))
        write(y, self.sign * total[slice(*y.getOwnershipRange())])

    def multTranspose(self, _mat: PETSc.Mat, y: PETSc.Vec, x: PETSc.Vec) -> None:  # noqa: N802
        """Return the product of the transpose with y [m] in x [k]."""
        assert self.block is not None
        self.multipliers = gather(y)
        write(x, self.sign * (self.multipliers @ self.block))


@dataclass(frozen=True, eq=False)
class _Accepted:
    """An inner iterate: its point, and value and gradient [k_local] of the subproblem there."""

    point: Point
    value: float
    gradient: Array


class AugmentedLagrangian:
    """The callbacks of a TAO of type "almm".

    Parameters
    ----------
    search : SearchRecord
        The record.
    form : StandardForm
        TAO's form of the problem.
    x : Vec [k]
        Where TAO begins and moves.
    """

    def __init__(self, search: SearchRecord, form: StandardForm, x: PETSc.Vec) -> None:
        self.search = search
        # Dividing J by more makes the same penalty heavier: WEIGHT times the one TAO begins with.
        self.form = replace(form, value_scale=WEIGHT * form.value_scale)
        self.x = x
        self._good: Point | None = None
        self._accepted: _Accepted | None = None
        self._failed: SolveError | None = None
        self._last_failure: SolveError | None = None
        self._blocked = 0
        self._rows = (_Rows(), _Rows())
        self._owned: list[Any] = []
        self._inner_tolerance = 0.0
        self._inner: tuple[float, float] | None = None  # value and gradient of the last iterate
        self._vain = 0
        self._target = 0.0
        self._shift = 0.0

    def attach(self, tao: PETSc.TAO) -> None:
        """Become the callbacks of ``tao``."""
        form, comm = self.form, self.x.comm
        tao.setObjectiveGradient(self._value)
        sizes = (len(form.equality), len(form.inequality))
        vecs = [self._vector(size, comm) for size in sizes]
        mats = [
            self._matrix(size, rows, comm) for size, rows in zip(sizes, self._rows, strict=True)
        ]
        if sizes[0]:
            tao.setEqualityConstraints(self._equalities, vecs[0])
            tao.setJacobianEquality(self._equality_rows, mats[0], mats[0])
        if sizes[1]:
            tao.setInequalityConstraints(self._inequalities, vecs[1])
            tao.setJacobianInequality(self._inequality_rows, mats[1], mats[1])
        self._shift = self._penalty_shift()
        tao.setConvergenceTest(self._converged)
        # PHR's subproblems would all be solved to the final tolerance
        assert self.search.reference is not None
        # gradient_tolerance is relative to |dJ/dx| at the start; TAO sees gradients divided by
        # value_scale.
        force = self.search.reference[0] or 1.0
        self._target = 0.3 * self.search.gradient_tolerance * force / self.form.value_scale
        self._inner_tolerance = max(self._target, INNER)
        tao.getALMMSubsolver().setConvergenceTest(self._inner_converged)

    def _penalty_shift(self) -> float:
        """Return the constant to add to J that makes TAO begin with the penalty PENALTY.

        PETSc 3.26 begins with 2 |J| / |violation|^2, at most 10 and at least 1e-6, though the zero
        of J means nothing.
        """
        point = self.search.evaluate(self.x)
        # Of inequalities ci >= 0 only those that are violated count, as in PETSc.
        below = np.minimum(self.form.inequalities(point.outputs), 0.0)
        violated = np.append(self.form.equalities(point.outputs), below)
        wanted = 0.5 * PENALTY * float(violated @ violated)
        return wanted - point.value / self.form.value_scale if wanted else 0.0

    def run(self, tao: PETSc.TAO, scope: Scope) -> int:
        """Run TAO and return its reason to stop."""
        try:
            unwrapped(tao.solve)()
        except PETSc.Error as error:
            code: Any = getattr(error, "ierr", 0)
            # Only an unbounded subproblem is a result; whatever else PETSc raises is an error,
            # and so is this before there is an iterate to return.
            if code not in (NOT_FINITE, OUT_OF_RANGE) or not self.search.iterates:
                raise
            self.search.message = (
                "a subproblem has no minimum: its value or gradient grows beyond all numbers "
                f"(bounds on x, or a start nearer to the constraints, may help: {_last(error)})"
            )
            return _Reason.DIVERGED_USER
        scope.check_used(final=True)
        reason: Any = tao.getConvergedReason()
        return reason

    def destroy(self) -> None:
        """Free the vectors and matrices now."""
        while self._owned:
            self._owned.pop().destroy()

    def _vector(self, size: int, comm: PETSc.Comm) -> PETSc.Vec:
        """Return a vector whose entries all live on rank 0."""
        vec = PETSc.Vec().createMPI((size if comm.rank == 0 else 0, size), comm=comm)
        self._owned.append(vec)
        return vec

    def _matrix(self, size: int, rows: _Rows, comm: PETSc.Comm) -> PETSc.Mat:
        shape: Any = ((size if comm.rank == 0 else 0, size), self.x.getSizes())
        mat = PETSc.Mat().createPython(shape, rows, comm=comm)
        mat.setUp()
        self._owned.append(mat)
        return mat

    def _value(self, tao: PETSc.TAO, x: PETSc.Vec, gradient: PETSc.Vec) -> float:
        """Return the scaled J, for TAO; at a failed solve what turns a line search back."""
        try:
            self._good = self.search.evaluate(x)
            self._failed = None
        except SolveError as error:
            self._failed = self._last_failure = error
            return self._turn_back(tao, x, gradient)
        write(gradient, self._good.gradient / self.form.value_scale)
        return self._good.value / self.form.value_scale + self._shift

    def _turn_back(self, tao: PETSc.TAO, x: PETSc.Vec, gradient: PETSc.Vec) -> float:
        """Return a value, and fill ``gradient`` [k], that are worse than at the last iterate.

        Constraints are given the values they have there and no gradients, so that what is added to
        J here is what is added to the subproblem's value.  For the wall see ``steepness``.
        """
        search = tao.getALMMSubsolver().getLineSearch().getType()
        if self._accepted is None or search not in (MORE_THUENTE, ARMIJO):
            raise SolveError(
                f'a forward solve failed, from which the line search "{search}" cannot come back: '
                f"{self._failed}",
                expected=f'tao_almm_subsolver_tao_ls_type "{MORE_THUENTE}" or "{ARMIJO}"',
            ) from self._failed
        last = self._accepted
        step = read(x) - last.point.x
        slope = float(self.search.lagrangian.comm.allreduce(float(step @ last.gradient)))
        rise, factor = steepness(slope, last.value)
        # The slope is that of the whole subproblem, penalty and multipliers included, which
        # _slopes then must not add again: it is 0 at a failed solve.
        write(gradient, factor * last.gradient)
        if search == ARMIJO:
            return math.inf  # it halves the step, and does not look at the gradient
        return last.point.value / self.form.value_scale + self._shift + rise

    def _known(self) -> Point:
        """Return the point that ``_value``, which TAO asks for first, has left."""
        if self._failed is not None and self._accepted is not None:
            return self._accepted.point
        assert self._good is not None
        return self._good

    def _slopes(self) -> Array:
        """Return dc/dx [m, k_local] there, zero at a failed solve."""
        jacobian = self._known().jacobian
        return jacobian if self._failed is None else np.zeros_like(jacobian)

    def _equalities(self, _tao: PETSc.TAO, _x: PETSc.Vec, out: PETSc.Vec) -> None:
        self._fill(out, self.form.equalities(self._known().outputs))

    def _inequalities(self, _tao: PETSc.TAO, _x: PETSc.Vec, out: PETSc.Vec) -> None:
        self._fill(out, self.form.inequalities(self._known().outputs))

    def _equality_rows(self, _tao: PETSc.TAO, _x: PETSc.Vec, mat: PETSc.Mat, _p: PETSc.Mat) -> None:
        self._rows[0].fill(self.form.equality_rows(self._slopes()))
        mat.assemble()

    def _inequality_rows(
        self, _tao: PETSc.TAO, _x: PETSc.Vec, mat: PETSc.Mat, _p: PETSc.Mat
    ) -> None:
        self._rows[1].fill(self.form.inequality_rows(self._slopes()))
        mat.assemble()

    @staticmethod
    def _fill(out: PETSc.Vec, values: Array) -> None:
        write(out, values[slice(*out.getOwnershipRange())])

    def _converged(self, tao: PETSc.TAO) -> Any:
        """Record an outer iterate and decide, instead of TAO."""
        if self._failed is not None:
            self.search.message = f"the subproblem ended at a failed solve: {self._failed}"
            return _Reason.DIVERGED_USER
        # The multipliers that the minimum of a subproblem leads to belong to its point: together
        # they are the iterate whose residuals decide.
        point = self._known()
        failed = self.search.iterates[-1].failed_solves if self.search.iterates else 0
        reason = self.search.accept(point, self._multipliers())
        last = self.search.iterates[-1]
        stays = last.step <= STAYS * self.search.lagrangian.size(point.x)
        # Both at once: an outer iteration whose searches met failed solves and that hardly moved.
        # Failed solves alone are survived, small steps alone may be convergence.
        self._blocked = self._blocked + 1 if last.failed_solves > failed and stays else 0
        if self._blocked >= BLOCKED and reason == _Reason.CONTINUE_ITERATING:
            self.search.message = f"no step leads on: {self._last_failure}"
            return _Reason.DIVERGED_USER
        how = self.search.iterates[-1].optimality
        # Subproblems are solved as well as the constraints are met, and never less well than the
        # one before.
        self._inner_tolerance = max(self._target, min(self._inner_tolerance, INNER * how.violation))
        return self.search.agreed(tao, reason)

    def _multipliers(self) -> Array:
        size = len(self.search.lagrangian.labels)
        return self.form.multipliers(size, *(rows.multipliers for rows in self._rows))

    def _inner_converged(self, sub: PETSc.TAO) -> Any:
        """End a subproblem once the violation, not its gradient, is far from the tolerance.

        Or where nothing moves any more.
        """
        status: Any = sub.getSolutionStatus()
        its, value, residual, _cnorm, _step, reason = status
        self._remember(sub, value)
        # Equal to the last digit: the line search has returned the point it began at.
        same = its > 0 and self._failed is None and self._inner == (value, residual)
        self._inner, self._vain = (value, residual), self._vain + 1 if same else 0
        if reason > 0:
            return _Reason.CONVERGED_GATOL
        if reason < 0:
            return reason
        if residual <= self._inner_tolerance:
            return _Reason.CONVERGED_GATOL
        return _Reason.CONVERGED_STEPTOL if self._vain == VAIN else _Reason.CONTINUE_ITERATING

    def _remember(self, sub: PETSc.TAO, value: float) -> None:
        """Keep an inner iterate, unless it is an old one shown again after a vain search."""
        point = self._known()
        first, last = self.x.getOwnershipRange()
        own = PETSc.IS().createStride(last - first, first, comm=self.x.comm)
        unknowns = sub.getSolution()  # x and the slacks, distributed in another way
        here: Any = unknowns.getSubVector(own)
        mine = self._failed is None and np.array_equal(read(here), point.x)
        unknowns.restoreSubVector(own, here)
        own.destroy()
        if not self.search.lagrangian.comm.allreduce(mine, MPI.LAND):
            return
        form, (equal, unequal) = self.form, self._rows
        # The gradient of the augmented Lagrangian by the multipliers that TAO has just multiplied
        # the rows with; see StandardForm.multipliers for the signs.
        slope = point.gradient / form.value_scale
        if len(form.equality):
            slope = slope + equal.multipliers @ form.equality_rows(point.jacobian)
        if len(form.inequality):
            slope = slope - unequal.multipliers @ form.inequality_rows(point.jacobian)
        self._accepted = _Accepted(point, value, slope)


def _last(error: PETSc.Error) -> str:
    """Return the last line of PETSc's message."""
    return str(error).splitlines()[-1].partition("] ")[2]
