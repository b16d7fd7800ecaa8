"""How fast the equations decay and oscillate, beside how large steps are."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import DaeosensError
from daeosens.methods.method import Method
from daeosens.petsc._kernels import finite_numbers, projected, skew_norm
from daeosens.petsc.vectors import Array, gather, read, scatter
from daeosens.problem.problem import Problem

DENSE = 500
"""Up to how many unknowns eigenvalues are computed."""

WHOLE = 40
"""Up to how many unknowns all eigenvalues take less time than outer ones: of 128 5 ms, and 0.2."""

KRYLOV = 12
"""Steps of Arnoldi's method: of a chain of 200 masses they find the fastest mode to 1 %."""

ROUNDING = 1e-12
"""A residual of Arnoldi's method, as a part of the matrix, that is none."""

CANCELS = 0.1
"""Part of a vector that is left where it is orthogonal to others but for some rounding."""

REACH = 2.0
"""Explicit steps with |h lambda| above it are held small by stability: all TSRK types end near 3.

PETSc's types 3bs to 8vr leave their region of stability on the negative axis between 2.5 and 5.
"""

LASTS = math.log(2.0) / (2.0 * math.pi)
"""Decay of an oscillation that has half of itself left after a period, as a part of its rate."""


def resolving_step(method: Method, tolerance: float) -> float:
    """Return the size of an explicit step, in the time 1 / |lambda| of a mode, that resolves it.

    What the method leaves of the mode in that time is then the tolerance.
    """
    return float((tolerance * math.factorial(method.order + 1)) ** (1.0 / method.order))


def fastest_oscillation(
    problem: Problem, t: float, u: PETSc.Vec, p: Any, least: float = 0.0
) -> float:
    """Return the largest Im(lambda) of eigenvalues of f_u whose oscillations last; 0 if none does.

    0 too where norms tell that there is none above ``least``, and where it cannot be told, as by
    ``modes``.
    """
    matrix = _linearised(problem, t, u, p)
    if matrix is None:
        return 0.0
    # bounds of eigenvalues take a fraction of the time of eigenvalues
    if skew_norm(matrix) < least:
        return 0.0
    reduced = _outer(matrix)
    if _largest_imaginary(reduced) < least:
        return 0.0
    rates = np.linalg.eigvals(reduced)
    lasting = rates[-rates.real <= LASTS * np.abs(rates.imag)]
    return float(np.abs(lasting.imag).max(initial=0.0))


def _largest_imaginary(matrix: Array) -> float:
    """Return what imaginary parts of eigenvalues are at most.

    That is the norm of the skew-symmetric part (Bendixson, Hirsch).  Its singular values come in
    pairs, whose eighth powers add up to the squared Frobenius norm of its fourth power.
    """
    skew = 0.5 * (matrix - matrix.T)
    square = skew @ skew
    fourth = (square @ square).ravel()
    return float((0.5 * fourth.dot(fourth)) ** 0.125)


def _outer(matrix: Array) -> Array:
    """Return a matrix that has outer eigenvalues, nearly; a small one itself."""
    if len(matrix) <= WHOLE:
        return matrix
    return projected(matrix, _start(len(matrix)), KRYLOV, ROUNDING)


@lru_cache(maxsize=8)
def _start(size: int) -> Array:
    """Return a vector of length one without structure, the same each time."""
    start = np.random.default_rng(0).standard_normal(size)
    return np.asarray(start / np.linalg.norm(start))


def fastest_decay(problem: Problem, t: float, u: PETSc.Vec, p: Any) -> float:
    """Return the largest rate -Re(lambda) of decay, lambda an eigenvalue of f_u; 0 if none decays.

    0 too where it cannot be told, as by ``modes``.
    """
    return float((-modes(problem, t, u, p).real).max(initial=0.0))


def outermost_decay(problem: Problem, t: float, u: PETSc.Vec, p: Any, least: float) -> float:
    """Return about the largest rate of decay; 0 where norms tell that there is none of ``least``.

    0 too where it cannot be told, as by ``modes``.
    """
    matrix = _linearised(problem, t, u, p)
    # rates of decay are at most the norm of the symmetric part (Bendixson, Hirsch)
    if matrix is None or 0.5 * np.abs(matrix + matrix.T).sum(axis=1).max() < least:
        return 0.0
    rates = np.linalg.eigvals(_outer(matrix))
    return float((-rates.real).max(initial=0.0))


def modes(problem: Problem, t: float, u: PETSc.Vec, p: Any) -> npt.NDArray[np.complex128]:
    """Return the eigenvalues of f_u.

    None of them where they cannot be told: other forms, large or distributed problems, no Jacobian.
    """
    matrix = _linearised(problem, t, u, p)
    return (np.empty(0) if matrix is None else np.linalg.eigvals(matrix)).astype(complex)


def _linearised(problem: Problem, t: float, u: PETSc.Vec, p: Any) -> Array | None:
    """Return f_u [n, n], if it can be told."""
    if problem.form != "rhs" or problem.size > DENSE or problem.comm.size > 1:
        return None
    try:
        matrix = _jacobian(problem, t, u, p)
    except DaeosensError:
        return None
    return matrix if finite_numbers(matrix) else None


def _jacobian(problem: Problem, t: float, u: PETSc.Vec, p: Any) -> Array:
    """Return f_u [n, n]."""
    if problem.batch is not None:
        return problem.batch.jacobian(np.array([t]), read(u)[np.newaxis], np.asarray(p))[0]
    matrix = problem.rhs_u.create(t, u, p)
    problem.rhs_u.fill(t, u, p, matrix)
    unit, column = problem.create_state(), problem.create_state()
    columns: list[Array] = []
    identity = np.eye(problem.size)
    for k in range(problem.size):
        matrix.mult(scatter(identity[k], unit), column)
        columns.append(gather(column))
    matrix.destroy()
    return np.column_stack(columns)
