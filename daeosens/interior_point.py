"""TAO's pdipm: minima under constraints by Newton's method on the barrier problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg.lapack as lapack
from petsc4py import PETSc

from daeosens._petsc import multipliers
from daeosens.arrays import Array, gather, read, scatter, write
from daeosens.errors import SolveError
from daeosens.kkt import Search, StandardForm, unwrapped_solve
from daeosens.lagrangian import Point
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

FIRST_SHIFT, LARGEST_SHIFT = 1e-4, 1e20
PUSH = 1e-2
"""How far inside its bounds x begins, relative to max(1, |bound|), at most of the interval."""


class KktFactor:
    """A direct solver for TAO's KKT matrix, as PETSc's preconditioner of type "python".

    PETSc 3.26 corrects the inertia only with MUMPS' Cholesky, and its own LU does not pivot.  This
    one pivots (LAPACK sytrf) and adds to the Hessian's diagonal until there are as many negative
    eigenvalues as constraints, so that the step descends.

    Parameters
    ----------
    n_variables, n_constraints : int
        Numbers of x and of constraints, whose slacks are further variables.

    Source
    ------
    Waechter and Biegler, Math. Program. 106, 2006, section 3.1.
    """

    def __init__(self, n_variables: int, n_equalities: int, n_inequalities: int) -> None:
        self.n_variables = n_variables
        self.positive = n_variables + n_inequalities
        self.negative = n_equalities + n_inequalities
        self.shift = 0.0
        self._last_shift = 0.0
        self._factor: tuple[Array, npt.NDArray[np.int32]] | None = None
        self._scale = np.ones(0)

    def setUp(self, pc: PETSc.PC) -> None:  # noqa: N802
        """Factor the matrix, shifted if need be."""
        matrix = _dense(pc.getOperators()[1])
        self.shift = 0.0
        dual = 0.0
        while True:
            shifted = matrix.copy()
            diagonal = np.arange(self.n_variables)
            shifted[diagonal, diagonal] += self.shift
            rows = np.arange(self.n_variables, self.n_variables + self.negative)
            shifted[rows, rows] -= dual
            size = np.sqrt(np.abs(shifted).max(axis=1))
            self._scale = 1.0 / np.where(size > 0.0, size, 1.0)
            shifted *= self._scale[:, None] * self._scale  # which leaves the signs as they are
            factor, pivots, _info = lapack.dsytrf(shifted, lower=1)
            positive, negative, zero = inertia(factor, pivots)
            if (positive, negative) == (self.positive, self.negative):
                break
            if zero and dual == 0.0:
                dual = 1e-8
            elif self.shift == 0.0:
                self.shift = max(FIRST_SHIFT * 1e-4, self._last_shift / 3.0) if (
                    self._last_shift
                ) else FIRST_SHIFT
            else:
                self.shift *= 8.0 if self._last_shift else 100.0
            if self.shift > LARGEST_SHIFT or not np.isfinite(factor).all():
                raise SolveError(
                    "the KKT matrix cannot be factored: constraints that depend on each other",
                    remedy='another start, or method="almm"',
                )
        if self.shift:
            self._last_shift = self.shift
        self._factor = factor, pivots

    def apply(self, _pc: PETSc.PC, b: PETSc.Vec, x: PETSc.Vec) -> None:
        """Solve."""
        assert self._factor is not None
        factor, pivots = self._factor
        solution, _info = lapack.dsytrs(factor, pivots, self._scale * read(b), lower=1)
        write(x, self._scale * solution.ravel())


def inertia(factor: Array, pivots: npt.NDArray[np.int32]) -> tuple[int, int, int]:
    """Count positive, negative and zero eigenvalues, given LAPACK's lower dsytrf.

    Examples
    --------
    >>> factor, pivots, _ = lapack.dsytrf(np.array([[0.0, 1.0], [1.0, 0.0]]), lower=1)
    >>> inertia(factor, pivots)
    (1, 1, 0)
    """
    diagonal = np.diag(factor)
    tiny = 1e-2 * np.finfo(float).eps * np.abs(diagonal).max(initial=0.0)
    single = pivots > 0  # a 2 x 2 block, marked by two equal negative pivots, is indefinite
    pairs = int(np.count_nonzero(~single)) // 2
    values = diagonal[single]
    zero = int(np.count_nonzero(np.abs(values) <= tiny))
    positive = int(np.count_nonzero(values > tiny))
    return positive + pairs, len(values) - positive - zero + pairs, zero


def _dense(mat: PETSc.Mat) -> Array:
    converted = mat.convert(PETSc.Mat.Type.SEQDENSE, PETSc.Mat())
    try:
        return np.array(converted.getDenseArray(), order="F")
    finally:
        converted.destroy()


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
        self._point: tuple[Array, Point, Array, Array] | None = None
        n_equalities = len(form.equality) + len(self._bounds.fixed)
        # PETSc 3.26: without inequalities the set-up asks for one column too many
        self._idle = not (len(form.inequality) or len(self._bounds.index))
        n_inequalities = len(form.inequality) + len(self._bounds.index) + self._idle
        self._counts = (n_equalities, n_inequalities)
        self.factor = KktFactor(len(self.start), *self._counts)
        self._owned: list[Any] = []
        self._multipliers: tuple[Array, Array] | None = None

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
        pc.setPythonContext(self.factor)

    def run(self, tao: PETSc.TAO, scope: Scope) -> int:
        """Run TAO and return its reason to stop."""
        self._settled = True
        try:
            unwrapped_solve(tao)
        except SolveError as error:
            if not self.search.iterates:
                raise
            self.search.message = (
                f"{error}\n  pdipm cannot shorten its steps; method=\"almm\" can"
            )
            return _Reason.DIVERGED_USER
        scope.check_used(final=True)
        reason: Any = tao.getConvergedReason()
        return reason

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

    def _at(self, x: PETSc.Vec) -> tuple[Array, Point, Array, Array]:
        """Return x, the point, and its whole gradient [k] and Jacobian [m, k]."""
        # PETSc 3.26: the set-up evaluates at 0, where nothing need exist
        here = read(x).copy() if self._settled else self.start
        here = self.comm.bcast(here)
        if self._point is not None and np.array_equal(self._point[0], here):
            return self._point
        point = self.search.evaluate(scatter(here, self._vec))
        parts = self.comm.allgather((point.gradient, point.jacobian))
        gradient = np.concatenate([part for part, _ in parts])
        jacobian = np.hstack([part for _, part in parts])
        self._point = here, point, gradient, jacobian
        return self._point

    def _value(self, _tao: PETSc.TAO, x: PETSc.Vec, gradient: PETSc.Vec) -> float:
        _, point, slope, _ = self._at(x)
        write(gradient, slope / self.form.value_scale)
        return point.value / self.form.value_scale

    def _equalities(self, _tao: PETSc.TAO, x: PETSc.Vec, out: PETSc.Vec) -> None:
        here, point, _, _ = self._at(x)
        write(out, np.append(self.form.equalities(point.outputs), self._bounds.equalities(here)))

    def _inequalities(self, _tao: PETSc.TAO, x: PETSc.Vec, out: PETSc.Vec) -> None:
        here, point, _, _ = self._at(x)
        rows = [self.form.inequalities(point.outputs), self._bounds.inequalities(here)]
        write(out, np.concatenate([*rows, np.ones(int(self._idle))]))

    def _equality_rows(self, _tao: PETSc.TAO, x: PETSc.Vec, mat: PETSc.Mat, _p: PETSc.Mat) -> None:
        jacobian = self._at(x)[3]
        _fill(mat, np.vstack([self.form.equality_rows(jacobian), self._bounds.equality_rows()]))

    def _inequality_rows(
        self, _tao: PETSc.TAO, x: PETSc.Vec, mat: PETSc.Mat, _p: PETSc.Mat
    ) -> None:
        jacobian = self._at(x)[3]
        rows = [self.form.inequality_rows(jacobian), self._bounds.inequality_rows()]
        _fill(mat, np.vstack([*rows, np.zeros((int(self._idle), jacobian.shape[1]))]))

    def _hessian(self, tao: PETSc.TAO, x: PETSc.Vec, mat: PETSc.Mat, _p: PETSc.Mat) -> None:
        """Fill in the Hessian of J / value_scale + lam_e ce - lam_i ci."""
        if not self._settled:
            return  # its pattern is full
        here = self._at(x)[0]
        v = self.comm.bcast(self._v(tao))
        lagrangian = self.search.lagrangian
        hessian = lagrangian.hessian(scatter(here, self._vec), v)
        if not np.isfinite(hessian).all():
            raise SolveError("the Hessian is not finite")
        _fill(mat, self.comm.bcast(hessian) / self.form.value_scale)

    def _v(self, tao: PETSc.TAO) -> Array:
        """Return the multipliers of the constraints [m]."""
        given = [gather(vec) for vec in multipliers(tao)]
        lam_e = given.pop(0) if self._counts[0] else np.zeros(0)
        lam_i = given.pop(0) if self._counts[1] else np.zeros(0)
        size = len(self.search.lagrangian.labels)
        form = self.form
        return form.multipliers(size, lam_e[: len(form.equality)], lam_i[: len(form.inequality)])

    def _converged(self, tao: PETSc.TAO) -> int:
        """Record an iterate and decide, instead of TAO."""
        point = self._at(tao.getSolution())[1]
        reason = self.search.accept(point, self.comm.bcast(self._v(tao)))
        return self.comm.bcast(int(reason))


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
