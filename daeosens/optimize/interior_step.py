"""A damped Newton step for TAO's pdipm: factored with the right inertia, shortened where need be.

PETSc 3.26's pdipm takes every Newton step as far as slacks and multipliers stay positive, and
corrects the inertia only with MUMPS.  Both are done here, in what PETSc takes for a preconditioner.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc
from scipy.linalg import lapack

from daeosens.arrays import Array, read, write
from daeosens.errors import SolveError

FIRST_SHIFT, LARGEST_SHIFT, DUAL_SHIFT = 1e-4, 1e20, 1e-8
TO_BOUNDARY = 0.9999
"""PETSc 3.26's fraction of the way to the first slack or multiplier that would vanish."""

ARMIJO, HALVINGS = 1e-4, 30
"""Share of the predicted decrease that has to be met; how often a step is halved at most."""

PROGRESS = 0.9
"""A residual this much below the least one so far is accepted whatever the merit function says."""


class KktFactor:
    """A direct solver for the symmetric KKT matrix of [x; lam_e; lam_i; z].

    It is pivoted (LAPACK sytrf) and scaled, and the Hessian's diagonal is raised until there are as
    many negative eigenvalues as constraints, so that the step descends.

    Parameters
    ----------
    n_variables, n_equalities, n_inequalities : int
        Numbers of x, lam_e and lam_i; there is a slack z for each lam_i.

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

    def factor(self, matrix: Array) -> None:
        """Factor the matrix, shifted if need be.

        Raises
        ------
        SolveError
            No shift helps.
        """
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
            if self.shift == 0.0:
                self.shift = self._last_shift / 3.0 or FIRST_SHIFT
            elif zero and dual == 0.0:  # constraints that depend on each other
                dual, self.shift = DUAL_SHIFT, 0.0
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

    def solve(self, b: Array) -> Array:
        """Return the solution for a right-hand side."""
        assert self._factor is not None
        factor, pivots = self._factor
        solution, _info = lapack.dsytrs(factor, pivots, self._scale * b, lower=1)
        return self._scale * solution.ravel()


def inertia(factor: Array, pivots: npt.NDArray[np.int32]) -> tuple[int, int, int]:
    """Count positive, negative and zero eigenvalues, given LAPACK's lower dsytrf.

    Examples
    --------
    >>> factor, pivots, _ = lapack.dsytrf(np.array([[0.0, 1.0], [1.0, 0.0]]), lower=1)
    >>> inertia(factor, pivots)
    (1, 1, 0)
    """
    diagonal = np.diag(factor)
    tiny = 1e-2 * sys.float_info.epsilon * np.abs(diagonal).max(initial=0.0)
    single = pivots > 0  # a 2 x 2 block, marked by two equal negative pivots, is indefinite
    pairs = int(np.count_nonzero(~single)) // 2
    values = diagonal[single]
    zero = int(np.count_nonzero(np.abs(values) <= tiny))
    positive = int(np.count_nonzero(values > tiny))
    return positive + pairs, len(values) - positive - zero + pairs, zero


@dataclass(frozen=True, eq=False)
class Barrier:
    """The scaled problem at one x: J, gradient [n], ce, ci and their Jacobians.

    Attributes
    ----------
    value : float
    gradient : array [n]
    equalities, inequalities : array [m_e], [m_i]
    equality_rows, inequality_rows : array [m_e, n], [m_i, n]
    """

    value: float
    gradient: Array
    equalities: Array
    inequalities: Array
    equality_rows: Array
    inequality_rows: Array


@dataclass(frozen=True, eq=False)
class _State:
    """All unknowns of pdipm, with the problem at x; a step of ``share`` led there."""

    x: Array
    lam_e: Array
    lam_i: Array
    z: Array
    mu: float
    barrier: Barrier
    cuts: tuple[int, ...]
    share: float = 1.0

    def merit(self, penalty: float) -> float:
        """Return J - mu sum log z + penalty (|ce|_1 + |ci - z|_1)."""
        logs = float(np.log(self.z).sum())
        return self.barrier.value - self.mu * logs + penalty * self.violation()

    def violation(self) -> float:
        """Return |ce|_1 + |ci - z|_1."""
        here = self.barrier
        return float(np.abs(here.equalities).sum() + np.abs(here.inequalities - self.z).sum())

    def residual(self) -> float:
        """Return the norm of the KKT residual, without barrier."""
        here = self.barrier
        slope = here.gradient + self.lam_e @ here.equality_rows - self.lam_i @ here.inequality_rows
        parts = (slope, here.equalities, here.inequalities - self.z, self.lam_i * self.z)
        return float(np.linalg.norm(np.concatenate(parts)))


class DampedStep:
    """PETSc's preconditioner of type "python" that hands pdipm its steps.

    A Newton step [dx; dlam_e; dlam_i; dz] is halved until l1 merit function or residual fall
    enough, and the forward solve succeeds.

    Parameters
    ----------
    factor : KktFactor
        Solves for the step.
    multipliers : callable
        ``() -> (lam_e, lam_i)`` of TAO.
    here : callable
        ``() -> (x, Barrier)`` at TAO's point.
    at : callable
        ``x -> Barrier``; may raise ``SolveError``, on every rank.
    agree : callable
        ``bool -> bool``, the answer of rank 0.

    Source
    ------
    Nocedal and Wright, Numerical Optimization, 2006, sections 15.6, 18.3 and 19.4.
    """

    def __init__(
        self,
        factor: KktFactor,
        multipliers: Callable[[], tuple[Array, Array]],
        here: Callable[[], tuple[Array, Barrier]],
        at: Callable[[Array], Barrier],
        agree: Callable[[bool], bool],
    ) -> None:
        self._factor = factor
        self._multipliers = multipliers
        self._here = here
        self._at = at
        self._agree = agree
        self._matrix = np.zeros((0, 0))
        self._penalty = 0.0
        self._least = np.inf

    def setUp(self, pc: PETSc.PC) -> None:
        """Factor."""
        self._matrix = _dense(pc.getOperators()[1])
        self._factor.factor(self._matrix)

    def apply(self, _pc: PETSc.PC, b: PETSc.Vec, y: PETSc.Vec) -> None:
        """Return in y the step that PETSc subtracts, given the KKT residual b."""
        write(y, self._damped(read(b)))

    def _damped(self, right: Array) -> Array:
        """Return the Newton step, corrected or shortened if need be."""
        now = self._state(right)
        full = self._factor.solve(right)
        decrease = self._predicted(now, full)
        accepted = now.merit(self._penalty) + 1e-13 * abs(now.merit(self._penalty))
        self._least = min(self._least, now.residual())
        step, failure = full, None
        for halving in range(HALVINGS):
            try:
                new = self._moved(now, step)
            except SolveError as error:
                failure = error
            else:
                failure = None
                if self._good(new, accepted - ARMIJO * new.share * 0.5**halving * decrease):
                    return step
                if halving == 0:  # the constraints curve away: Maratos' effect
                    second = self._factor.solve(_second_order(right, now, new))
                    try:
                        if self._good(self._moved(now, second), accepted - ARMIJO * decrease):
                            return second
                    except SolveError:
                        pass
            step = 0.5 * step if halving else 0.5 * _to_boundary(now.z, full[now.cuts[2] :]) * full
        if failure is not None:
            raise failure
        return full  # neither measure has sense near rounding; the search stops if all stays

    def _good(self, new: _State, enough: float) -> bool:
        """Say whether a trial is accepted, on every rank alike."""
        better = new.merit(self._penalty) <= enough
        return self._agree(better or new.residual() <= PROGRESS * self._least)

    def _state(self, right: Array) -> _State:
        """Return all of TAO's unknowns, of which petsc4py has but x and the multipliers."""
        x, barrier = self._here()
        lam_e, lam_i = self._multipliers()
        cuts = tuple(np.cumsum([len(x), len(lam_e), len(lam_i)]).tolist())
        z = lam_i / np.diag(self._matrix)[cuts[2] :]
        mu = float(((lam_i - right[cuts[2] :]) * z)[0])
        return _State(x, lam_e, lam_i, z, mu, barrier, cuts)

    def _moved(self, now: _State, step: Array) -> _State:
        """Return where PETSc gets to with a step."""
        dx, dlam_e, dlam_i, dz = np.split(step, now.cuts)
        primal, dual = _to_boundary(now.z, dz), _to_boundary(now.lam_i, dlam_i)
        x = now.x - primal * dx
        return _State(
            x,
            now.lam_e - dual * dlam_e,
            now.lam_i - dual * dlam_i,
            now.z - primal * dz,
            now.mu,
            self._at(x),
            now.cuts,
            primal,
        )

    def _predicted(self, now: _State, full: Array) -> float:
        """Return the decrease of the merit function to first order; raise its penalty if need be.

        A step is subtracted, so its slope has the opposite sign.
        """
        dx, _, _, dz = np.split(full, now.cuts)
        n, last = now.cuts[0], now.cuts[2]
        slope = -float(now.barrier.gradient @ dx - now.mu * np.sum(dz / now.z))
        curved = dx @ self._matrix[:n, :n] @ dx + self._factor.shift * (dx @ dx)
        curvature = float(curved + dz**2 @ np.diag(self._matrix)[last:])
        violation = now.violation()
        if violation > 0.0:
            needed = (slope + 0.5 * max(curvature, 0.0)) / (0.9 * violation)
            if needed > self._penalty:
                self._penalty = 1.5 * needed
        return max(-slope + self._penalty * violation, 0.0)


def _second_order(right: Array, now: _State, new: _State) -> Array:
    """Return a residual whose step also takes back the violation that a step has left."""
    corrected = right.copy()
    n, m, last = now.cuts
    corrected[n:m] = new.share * right[n:m] + new.barrier.equalities
    corrected[m:last] = new.share * right[m:last] + new.z - new.barrier.inequalities
    return corrected


def _to_boundary(values: Array, step: Array) -> float:
    """Return how much of a step to subtract so that values stay positive."""
    shorter = values - step < 0.0
    return float(min(1.0, (TO_BOUNDARY * values[shorter] / step[shorter]).min(initial=1.0)))


def _dense(mat: PETSc.Mat) -> Array:
    converted = mat.convert(PETSc.Mat.Type.SEQDENSE, PETSc.Mat())
    try:
        values: Any = converted.getDenseArray()
        return np.array(values, dtype=float, order="F")
    finally:
        converted.destroy()
