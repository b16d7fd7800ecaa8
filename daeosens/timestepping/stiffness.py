"""How fast the equations decay beside how large steps are: what makes explicit methods slow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import DaeosensError
from daeosens.petsc.vectors import Array, gather, scatter
from daeosens.problem.problem import Problem

DENSE = 500
"""Up to how many unknowns eigenvalues are computed."""

REACH = 2.0
"""Explicit steps with |h lambda| above it are held small by stability: all TSRK types end near 3.

PETSc's types 3bs to 8vr leave their region of stability on the negative axis between 2.5 and 5.
"""


def fastest_decay(problem: Problem, t: float, u: PETSc.Vec, p: Any) -> float:
    """Return the largest rate -Re(lambda) of decay, lambda an eigenvalue of f_u; 0 if none decays.

    0 too where it cannot be told, as by ``modes``.
    """
    return float((-modes(problem, t, u, p).real).max(initial=0.0))


def modes(problem: Problem, t: float, u: PETSc.Vec, p: Any) -> npt.NDArray[np.complex128]:
    """Return the eigenvalues of f_u.

    None of them where they cannot be told: other forms, large or distributed problems, no Jacobian.
    """
    unknown = np.empty(0, dtype=complex)
    if problem.form != "rhs" or problem.size > DENSE or problem.comm.size > 1:
        return unknown
    try:
        matrix = _jacobian(problem, t, u, p)
    except DaeosensError:
        return unknown
    return np.linalg.eigvals(matrix).astype(complex) if np.isfinite(matrix).all() else unknown


def _jacobian(problem: Problem, t: float, u: PETSc.Vec, p: Any) -> Array:
    """Return f_u [n, n]."""
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
