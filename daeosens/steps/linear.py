"""The linear solver of implicit steps: the same choice for the forward run and for the sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from petsc4py import PETSc

from daeosens._petsc import has_transpose, take_passes
from daeosens.errors import UnsupportedError
from daeosens.options import scoped_options

PREFIXES = ("ksp_", "pc_", "sub_", "mg_", "fieldsplit_", "mat_")
"""Beginnings of the option names that concern a linear solver."""

WHOLE = frozenset({"fieldsplit", "mg", "composite", "shell", "bddc", "patch"})
"""Preconditioners that are set up for the unknowns of the whole system."""

PRODUCTS = frozenset({"python", "shell", "submatrix"})
"""Types of matrices that can only be applied."""

DIRECT = frozenset({"lu", "cholesky", "qr", "svd"})
"""Preconditioners that solve the system."""

MULTIGRID: Mapping[str, Any] = {"pc_mg_galerkin": "both", "mg_levels_pc_type": "jacobi"}
"""Coarse matrices are products of the fine one; SOR has no transpose in PETSc 3.26."""

MULTILEVEL = frozenset({"mg", "gamg", "hmg", "ml"})
"""Preconditioners with a solver on each level."""

FEW = 500
"""Up to how many unknowns a block of the system is factorised as a dense matrix on one rank."""


def linear_defaults(
    matrix: PETSc.Mat, options: Mapping[str, Any], prefix: str = ""
) -> dict[str, Any]:
    """Return the library's choice of linear solver for a matrix, beside the user's options.

    One rank and a matrix with entries: LU, exact to rounding; GMRES where another preconditioner is
    asked for, and Jacobi's smoother for multigrid.  Several ranks: GMRES with block Jacobi and
    incomplete LU (PETSc from PyPI has no parallel LU).  Products only: GMRES alone.  The tolerance
    is tight because it bounds the error of gradients.
    """
    if matrix.getType() in PRODUCTS:
        return {"ksp_type": "gmres", "pc_type": "none", "ksp_rtol": 1e-12}
    chosen = PETSc.Options(prefix).getString("pc_type", options.get("pc_type", "lu"))
    if matrix.comm.size == 1 and chosen in DIRECT:
        return {"ksp_type": "preonly", "pc_type": "lu"}
    iterative: dict[str, Any] = {"ksp_type": "gmres", "ksp_rtol": 1e-12, "ksp_max_it": 10000}
    return {**iterative, **MULTIGRID} if chosen == "mg" else iterative


def coarsen_points(solver: PETSc.KSP, dm: PETSc.DM | None) -> None:
    """Let multigrid (PCMG) interpolate between the points of a DM; it never fills its matrices.

    Without a DM, and for other preconditioners, nothing is done.
    """
    if dm is not None and solver.getPC().getType() == PETSc.PC.Type.MG:
        solver.setDM(dm.clone())
        every: Any = PETSc.KSP.DMActive.ALL
        solver.setDMActive(every, False)


def linear_solver(
    matrix: PETSc.Mat, options: Mapping[str, Any], dm: PETSc.DM | None = None
) -> PETSc.KSP:
    """Return the solver of a matrix for a sweep, with the user's options; ``dm`` for multigrid.

    Collective on the matrix's communicator.
    """
    solver = PETSc.KSP().create(comm=matrix.comm)
    solver.setOperators(matrix)
    chosen = {key: value for key, value in options.items() if key.startswith(PREFIXES)}
    with scoped_options(defaults=linear_defaults(matrix, chosen), code=chosen):
        solver.setFromOptions()
        take_passes(solver, matrix)
        coarsen_points(solver, dm)
        solver.setUp()
    return solver


def block_solver(matrix: PETSc.Mat, options: Mapping[str, Any]) -> PETSc.KSP:
    """Return the solver of a square block of the system.

    A block has unknowns of its own, so what is set up for those of the whole system does not
    concern it, and options of the command line reach it with the prefix ``block_`` only.  Small
    ones on one rank are factorised with pivoting, as the order of rows and columns need not make
    a diagonal; the user's options hold for the others.  Collective.
    """
    chosen = {key: value for key, value in options.items() if key.startswith(("ksp_", "pc_"))}
    if chosen.get("pc_type") in WHOLE:
        chosen = {}
    if matrix.getType() != PETSc.Mat.Type.SUBMATRIX:
        if matrix.comm.size > 1:
            diagonal = matrix.getDiagonal()
            diagonal.abs()
            least: Any = diagonal.min()
            if least[1] == 0.0:  # incomplete LU would fail, and on some ranks only
                chosen = {"pc_type": "none"}
        elif matrix.getSize()[0] <= FEW:
            matrix, chosen = matrix.convert(PETSc.Mat.Type.DENSE), {}
    solver = PETSc.KSP().create(comm=matrix.comm)
    solver.setOperators(matrix)
    solver.setOptionsPrefix("block_")
    defaults = linear_defaults(matrix, chosen, "block_")
    with scoped_options(defaults=defaults, code=chosen, prefix="block_"):
        solver.setFromOptions()
        solver.setUp()
    return solver


def refuse_without_transpose(solver: PETSc.KSP) -> None:
    """Refuse a preconditioner, or one inside it, that PETSc 3.26 cannot apply transposed.

    Trying would end in an error that PETSc does not recover from.

    Parameters
    ----------
    solver : KSP
        Set up, as only then it has what is inside.

    Raises
    ------
    UnsupportedError
        Names it.
    """
    preconditioner = solver.getPC()
    if not has_transpose(preconditioner):
        raise UnsupportedError(
            f'an adjoint with pc_type "{preconditioner.getType()}"',
            expected="preconditioners, and smoothers of multigrid, that PETSc can apply transposed",
            remedy='options={"pc_type": "lu"} ("ilu", "jacobi", "asm", "gamg"); smoothers: '
            '{"mg_levels_pc_type": "jacobi"}',
        )
    for inner in _solvers_inside(preconditioner):
        refuse_without_transpose(inner)


def _solvers_inside(preconditioner: PETSc.PC) -> list[PETSc.KSP]:
    """Return the solvers of levels, blocks, fields and parts."""
    kind = preconditioner.getType()
    if kind in MULTILEVEL:
        return [preconditioner.getMGSmoother(k) for k in range(preconditioner.getMGLevels())]
    inside: Mapping[str, Any] = {
        "bjacobi": preconditioner.getBJacobiSubKSP,
        "asm": preconditioner.getASMSubKSP,
        "fieldsplit": preconditioner.getFieldSplitSubKSP,
        "ksp": lambda: [preconditioner.getKSP()],
    }
    return list(inside[kind]()) if kind in inside else []
