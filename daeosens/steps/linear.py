"""The linear solver of implicit steps: the same choice for the forward run and for the sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from petsc4py import PETSc

from daeosens.options import scoped_options

PREFIXES = ("ksp_", "pc_", "sub_", "mg_", "fieldsplit_", "mat_")
"""Beginnings of the option names that concern a linear solver."""


def linear_defaults(matrix: PETSc.Mat) -> dict[str, Any]:
    """Return the library's choice of linear solver for a matrix.

    One rank and a matrix with entries: LU, exact to rounding.  Several ranks: GMRES with block
    Jacobi and incomplete LU (PETSc from PyPI has no parallel LU).  Products only: GMRES alone.
    The tolerance is tight because it bounds the error of gradients.
    """
    if matrix.getType() == PETSc.Mat.Type.PYTHON:
        return {"ksp_type": "gmres", "pc_type": "none", "ksp_rtol": 1e-12}
    if matrix.comm.size == 1:
        return {"ksp_type": "preonly", "pc_type": "lu"}
    return {"ksp_type": "gmres", "ksp_rtol": 1e-12, "ksp_max_it": 10000}


def linear_solver(matrix: PETSc.Mat, options: Mapping[str, Any]) -> PETSc.KSP:
    """Return the solver of a matrix for a sweep, with the user's options.

    Collective on the matrix's communicator.
    """
    solver = PETSc.KSP().create(comm=matrix.comm)
    solver.setOperators(matrix)
    chosen = {key: value for key, value in options.items() if key.startswith(PREFIXES)}
    with scoped_options(defaults=linear_defaults(matrix), code=chosen):
        solver.setFromOptions()
        solver.setUp()
    return solver
