"""TAO's pdipm: minima under constraints by Newton's method on the barrier problem."""

from __future__ import annotations

from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens._petsc import multipliers
from daeosens.arrays import Array, gather, read, scatter, write
from daeosens.errors import SolveError
from daeosens.guards import unwrapped
from daeosens.optimize.interior_step import Barrier, DampedStep, KktFactor
from daeosens.optimize.kkt import Search, StandardForm
from daeosens.optimize.lagrangian import Point
from daeosens.options import Options, Scope

_Reason = PETSc.TAO.ConvergedReason

DEFAULTS: Options = {
    "ksp_type": "preonly",
    "pc_type": "python",
    "snes_atol": 0.0,
    "snes_rtol": 0.0,
    "snes_stol": 0.0,
    "snes_divergence_tolerance": 1e300,
    "snes_max_it": 100000,
    "snes_max_funcs": -1,
}
"""Newton's stopping rules are off: the search has its own."""

PUSH = 1e-2
"""How far inside its bounds x begins, relative to max(1, |bound|), at most of the interval."""


class InteriorPoint:
    """The callbacks of a TAO of type "pdipm", which every rank runs alone on all of x [k].

    PETSc 3.26's pdipm leaves out rows on ranks without constraints and mistakes upper bounds for
    lower ones: so it gets all rows on each rank, and bounds as inequalities.  Evaluations are those
    of rank 0, and so are decisions, so that ranks stay together.

    Parameters
    ----------
    search : Search
        The record.
    form : StandardForm
        TAO's form of the problem, bounds excepted.
    x : Vec [k]
        The start.
    """

    def __init__(self, search: Search, form: StandardForm, x: PETSc.Vec) -> None:
        self.search = search
        self.form = form
        self.comm = x.comm.tompi4py()
        self._vec = x.duplicate()
        self.start = gather(x)
        self._bounds = _BoundRows(search.limits, self.comm, self.start)
        self._settled = False
        self._current = self.start
        self._point: tuple[Array, Point, Array, Array] | None = None
        n_equalities = len(form.equality) + len(self._bounds.fixed)
        # PETSc 3.26: without inequalities the set-up asks for one column too many
        self._idle = not (len(form.inequality) or len(self._bounds.index))
        n_inequalities = len(form.inequality) + len(self._bounds.index) + self._idle
        self._counts = (n_equalities, n_inequalities)
        self._owned: list[Any] = []
        self._calls = 0
        try:
            self._at(self.start)
        except SolveError as error:
            raise SolveError(
                f"J or a constraint cannot be evaluated at the start moved inside its bounds: "
                f"{error}",
                remedy="another x0, or wider bounds",
            ) from error

    def attach(self, tao: PETSc.TAO) -> None:
        """Become the callbacks of ``tao``, on PETSc.COMM_SELF."""
        k = len(self.start)
        tao.setObjectiveGradient(self._value)
        hessian = self._matrix(k)
        tao.setHessian(self._hessian, hessian, hessian)
        n_equalities, n_inequalities = self._counts
        if n_equalities:
            mat = self._matrix(n_equalities)
            tao.setEqualityConstraints(self._equalities, self._vector(n_equalities))
            tao.setJacobianEquality(self._equality_rows, mat, mat)
        if n_inequalities:
            mat = self._matrix(n_inequalities)
            tao.setInequalityConstraints(self._inequalities, self._vector(n_inequalities))
            tao.setJacobianInequality(self._inequality_rows, mat, mat)
        free = self._vector(k), self._vector(k)
        free[0].set(-np.inf)
        free[1].set(np.inf)
        tao.setVariableBounds(free)
        tao.setConvergenceTest(self._converged)
        pc = tao.getKSP().getPC()
        pc.setType(PETSc.PC.Type.PYTHON)
        factor = KktFactor(len(self.start), *self._counts)
        agree = self.comm.bcast
        pc.setPythonContext(
            DampedStep(factor, lambda: self._duals(tao), self._here, self._barrier, agree)
        )

    def run(self, tao: PETSc.TAO, scope: Scope) -> int:
        """Run TAO and return its reason to stop."""
        self._settled = True
        self._calls = 0
        try:
            unwrapped(tao.solve)()
        except SolveError as error:
            if not self.search.iterates:
                raise
            self.search.message = f"no step leads on: {error}"
            return _Reason.DIVERGED_USER
        scope.check_used(final=True)
        reason: Any = tao.getConvergedReason()
        return reason

    def start_vector(self) -> PETSc.Vec:
        """Return where TAO begins, on this rank alone."""
        return scatter(self.start, self._vector(len(self.start)))

    def destroy(self) -> None:
        """Free the vectors and matrices now."""
        while self._owned:
            self._owned.pop().destroy()
        self._vec.destroy()

    def _vector(self, size: int) -> PETSc.Vec:
        vec = PETSc.Vec().createSeq(size, comm=PETSc.COMM_SELF)
        self._owned.append(vec)
        return vec

    def _matrix(self, rows: int) -> PETSc.Mat:
        mat = PETSc.Mat().createDense((rows, len(self.start)), comm=PETSc.COMM_SELF)
        mat.setUp()
        mat.assemble()
        self._owned.append(mat)
        return mat

    def _at(self, x: Array) -> tuple[Array, Point, Array, Array]:
        """Return x, the point, and its whole gradient [k] and Jacobian [m, k]."""
        # PETSc 3.26: the set-up evaluates at 0, where nothing need exist
        here = x if self._settled else self.start
        here = self.comm.bcast(here)
        if self._point is not None and np.array_equal(self._point[0], here):
            return self._point
        point = self.search.evaluate(scatter(here, self._vec))
        parts = self.comm.allgather((point.gradient, point.jacobian))
        gradient = np.concatenate([part for part, _ in parts])
        jacobian = np.hstack([part for _, part in parts])
        self._point = here, point, gradient, jacobian
        return self._point

    def _barrier(self, x: Array) -> Barrier:
        """Return TAO's problem at x."""
        form, bounds, idle = self.form, self._bounds, int(self._idle)
        here, point, gradient, jacobian = self._at(x)
        outputs = point.outputs
        k = len(here)
        unequal = [form.inequalities(outputs), bounds.inequalities(here), np.ones(idle)]
        rows = [form.inequality_rows(jacobian), bounds.inequality_rows(), np.zeros((idle, k))]
        return Barrier(
            point.value / form.value_scale,
            gradient / form.value_scale,
            np.append(form.equalities(outputs), bounds.equalities(here)),
            np.concatenate(unequal),
            np.vstack([form.equality_rows(jacobian), bounds.equality_rows()]),
            np.vstack(rows),
        )

    def _here(self) -> tuple[Array, Barrier]:
        """Return TAO's point."""
        x = self._current
        return x, self._barrier(x)

    def _value(self, _tao: PETSc.TAO, x: PETSc.Vec, gradient: PETSc.Vec) -> float:
        self._calls += 1
        if self._calls > 10:  # PETSc 3.26 would try the same step for ever
            raise SolveError("the residual of the KKT conditions is not finite")
        now = self._barrier(read(x).copy())
        write(gradient, now.gradient)
        return now.value

    def _equalities(self, _tao: PETSc.TAO, x: PETSc.Vec, out: PETSc.Vec) -> None:
        write(out, self._barrier(read(x).copy()).equalities)

    def _inequalities(self, _tao: PETSc.TAO, x: PETSc.Vec, out: PETSc.Vec) -> None:
        write(out, self._barrier(read(x).copy()).inequalities)

    def _equality_rows(self, _tao: PETSc.TAO, x: PETSc.Vec, mat: PETSc.Mat, _p: PETSc.Mat) -> None:
        _fill(mat, self._barrier(read(x).copy()).equality_rows)

    def _inequality_rows(
        self, _tao: PETSc.TAO, x: PETSc.Vec, mat: PETSc.Mat, _p: PETSc.Mat
    ) -> None:
        _fill(mat, self._barrier(read(x).copy()).inequality_rows)

    def _hessian(self, tao: PETSc.TAO, x: PETSc.Vec, mat: PETSc.Mat, _p: PETSc.Mat) -> None:
        """Fill in the Hessian of J / value_scale + lam_e ce - lam_i ci."""
        if not self._settled:
            return  # its pattern is full
        self._current = read(x).copy()
        here = self._at(self._current)[0]
        v = self.comm.bcast(self._v(tao))
        lagrangian = self.search.lagrangian
        hessian = lagrangian.hessian(scatter(here, self._vec), v)
        if not np.isfinite(hessian).all():
            raise SolveError("the Hessian is not finite")
        _fill(mat, self.comm.bcast(hessian) / self.form.value_scale)

    def _duals(self, tao: PETSc.TAO) -> tuple[Array, Array]:
        """Return TAO's multipliers of equalities and of inequalities."""
        given = [gather(vec) for vec in multipliers(tao)]
        lam_e = given.pop(0) if self._counts[0] else np.zeros(0)
        return lam_e, given.pop(0)

    def _v(self, tao: PETSc.TAO) -> Array:
        """Return the multipliers of the constraints [m]."""
        lam_e, lam_i = self._duals(tao)
        size, form = len(self.search.lagrangian.labels), self.form
        return form.multipliers(size, lam_e[: len(form.equality)], lam_i[: len(form.inequality)])

    def _converged(self, tao: PETSc.TAO) -> Any:
        """Record an iterate and decide, instead of TAO."""
        self._calls = 0
        point = self._at(read(tao.getSolution()).copy())[1]
        reason = self.search.accept(point, self.comm.bcast(self._v(tao)))
        return self.comm.bcast(int(self.search.agreed(tao, reason)))


class _BoundRows:
    """Bounds of x as rows of the constraints, scaled so that the barrier keeps x inside.

    pdipm's slacks begin at 1; rows that are 1 at the start stay equal to their slacks, which never
    vanish, because both change linearly along a step.
    """

    def __init__(self, limits: tuple[Array, Array] | None, comm: Any, start: Array) -> None:
        k = len(start)
        lower, upper = np.full(k, -np.inf), np.full(k, np.inf)
        if limits is not None:
            parts = comm.allgather(limits)
            lower = np.concatenate([low for low, _ in parts])
            upper = np.concatenate([high for _, high in parts])
        equal = lower == upper
        self.fixed = np.flatnonzero(equal)
        self._target = lower[self.fixed]
        below = np.flatnonzero(~equal & np.isfinite(lower))
        above = np.flatnonzero(~equal & np.isfinite(upper))
        self.index = np.concatenate([below, above])
        self._sign = np.concatenate([np.ones(len(below)), -np.ones(len(above))])
        self._bound = np.concatenate([lower[below], upper[above]])
        start[:] = _inside(start, lower, upper)
        self._scale = np.abs(start[self.index] - self._bound)
        self._size = k

    def equalities(self, x: Array) -> Array:
        return x[self.fixed] - self._target

    def inequalities(self, x: Array) -> Array:
        return self._sign * (x[self.index] - self._bound) / self._scale

    def equality_rows(self) -> Array:
        return np.eye(self._size)[self.fixed]

    def inequality_rows(self) -> Array:
        return np.eye(self._size)[self.index] * (self._sign / self._scale)[:, None]


def _inside(x: Array, lower: Array, upper: Array) -> Array:
    """Return x moved off its bounds: by PUSH max(1, |bound|), or PUSH of the interval if less."""
    width = PUSH * (upper - lower)
    with np.errstate(invalid="ignore"):
        low = lower + np.minimum(PUSH * np.maximum(1.0, np.abs(lower)), width)
        high = upper - np.minimum(PUSH * np.maximum(1.0, np.abs(upper)), width)
    low, high = np.where(np.isnan(low), lower, low), np.where(np.isnan(high), upper, high)
    return np.where(lower == upper, lower, np.clip(x, low, high))


def _fill(mat: PETSc.Mat, values: Array) -> None:
    mat.getDenseArray()[...] = values
    mat.assemble()
