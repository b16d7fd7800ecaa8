"""The linear solver of implicit steps: the same choice for the forward run and for the sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from petsc4py import PETSc

from daeosens.errors import LinearSolverError, SingularMatrixError, SolveError, UnsupportedError
from daeosens.petsc._kernels import (
    has_transpose,
    levels_in_use,
    smooth_short_steps,
    take_passes,
    upwind_levels,
)
from daeosens.petsc.options import scoped_options
from daeosens.problem.grids.multigrid import depth, interpolations
from daeosens.problem.matrices import is_one_sided, order_of

PREFIXES = ("ksp_", "pc_", "sub_", "mg_", "fieldsplit_", "mat_")
"""Beginnings of the option names that concern a linear solver."""

WHOLE = frozenset({"fieldsplit", "mg", "composite", "shell", "bddc", "patch"})
"""Preconditioners that are set up for the unknowns of the whole system."""

PRODUCTS = frozenset({"python", "shell", "submatrix"})
"""Types of matrices that can only be applied."""

DIRECT = frozenset({"lu", "cholesky", "qr", "svd"})
"""Preconditioners that solve the system."""

MULTIGRID: Mapping[str, Any] = {
    "pc_mg_galerkin": "pmat",
    "ksp_gmres_restart": 100,
    "mg_levels_ksp_type": "richardson",
    "mg_levels_ksp_max_it": 1,
    "mg_levels_pc_type": "bjacobi",
}
"""Coarse matrices are products of the fine one.  Incomplete LU smooths advection too, where bounds
of real eigenvalues mislead Chebyshev's method, and has a transpose; SOR has none in PETSc 3.26."""

UPWINDED = "external"
"""PETSc's name of coarse matrices that are made by the library: products with more diffusion."""

DIRECT_LIMIT = 5000
"""Up to how many unknowns systems on grids of two or three dimensions are factorised."""

MULTILEVEL = frozenset({"mg", "gamg", "hmg", "ml"})
"""Preconditioners with a solver on each level."""

IN_SWEEPS = 1e-11
"""The relative tolerance of iterative solvers in sweeps, whose solutions are corrected once more:
what they leave in each step adds up, and no residual of the next step takes it away, as in runs."""

LOOSE = 1e-6
"""The largest relative tolerance of iterative solvers that derivatives are taken with."""

FAITHFUL = 1e-6
"""Up to which relative error a direct solver counts as one that helps."""

ZERO_PIVOT = 71
"""PETSc's number of the error of a matrix that has no factors."""

FEW = 500
"""Up to how many unknowns a block of the system is factorised as a dense matrix on one rank."""


def linear_defaults(
    matrix: PETSc.Mat, options: Mapping[str, Any], dm: PETSc.DM | None = None, prefix: str = ""
) -> dict[str, Any]:
    """Return the library's choice of linear solver for a matrix, beside the user's options.

    On a grid (``dm``), with a matrix that has entries: LU in one dimension and for few unknowns, by
    every rank for itself where there are several; else GMRES with geometric multigrid, or algebraic
    one where ranks have too few points.  Without a grid: LU on one rank; on several GMRES with
    block Jacobi and incomplete LU (PETSc from PyPI has no parallel LU).  Products only: GMRES
    alone.  The tolerance is tight because it bounds the error of gradients.
    """
    if matrix.getType() in PRODUCTS:
        return {"ksp_type": "gmres", "pc_type": "none", "ksp_rtol": 1e-12}
    usual = _preconditioner(matrix, dm)
    chosen = PETSc.Options(prefix).getString("pc_type", options.get("pc_type", usual))
    # one factorisation solves to rounding: no iterations around it
    if (matrix.comm.size == 1 and chosen in DIRECT) or chosen == usual == "redundant":
        # who has other solvers in mind for larger grids can keep the options
        iterates = isinstance(dm, PETSc.DMDA) and any(key.startswith("ksp_") for key in options)
        kind = usual if chosen == usual else "lu"
        direct = {"ksp_type": "gmres" if iterates else "preonly", "pc_type": kind}
        order = order_of(matrix)
        return direct if order is None else direct | {"pc_factor_mat_ordering_type": order}
    iterative: dict[str, Any] = {"ksp_type": "gmres", "ksp_rtol": 1e-12, "ksp_max_it": 10000}
    if usual not in DIRECT:
        iterative["pc_type"] = usual
    if chosen != "mg":
        return iterative
    if not isinstance(dm, PETSc.DMDA):
        return {**iterative, **MULTIGRID}
    if not _has_rows(matrix):
        raise UnsupportedError(
            f'pc_type = "mg" for a matrix of type "{matrix.getType()}"',
            expected="matrices of type aij, from which PETSc makes those of coarser grids",
            remedy='dm.setMatType("aij"), or another pc_type, such as "bjacobi"',
        )
    levels: dict[str, Any] = {"pc_mg_levels": depth(dm)}
    if is_one_sided(matrix):
        levels["pc_mg_galerkin"] = UPWINDED
    return {**iterative, **MULTIGRID, **levels}


def _preconditioner(matrix: PETSc.Mat, dm: PETSc.DM | None) -> str:
    """Return PETSc's name of the usual one for a matrix with entries."""
    # "redundant": every rank factorises the whole matrix, as PETSc from PyPI has no parallel LU
    several = matrix.comm.size > 1
    if not isinstance(dm, PETSc.DMDA):
        return "bjacobi" if several else "lu"
    if dm.getDim() == 1 or matrix.getSize()[0] <= DIRECT_LIMIT:
        return "redundant" if several else "lu"
    if not _has_rows(matrix):
        return "bjacobi"
    # geometric coarsening where ranks have enough points on each level
    return "mg" if depth(dm) > 1 else "gamg"


def _has_rows(matrix: PETSc.Mat) -> bool:
    """Whether a matrix has compressed rows, as those of coarser grids are products of."""
    return bool(matrix.getType().startswith(("seqaij", "mpiaij")))


def coarsen_points(solver: PETSc.KSP, dm: PETSc.DM | None) -> None:
    """Let multigrid (PCMG) interpolate between the points of a DMDA.  Collective.

    Without one, and for other preconditioners, nothing is done.
    """
    preconditioner = solver.getPC()
    if not isinstance(dm, PETSc.DMDA) or preconditioner.getType() != PETSc.PC.Type.MG:
        return
    between = interpolations(dm, preconditioner.getMGLevels())
    for level, matrix in enumerate(between, start=1):
        preconditioner.setMGInterpolation(level, matrix)
    if PETSc.Options().getString("pc_mg_galerkin", "") == UPWINDED:
        upwind_levels(preconditioner, dm.getDof())
    smooth_short_steps(preconditioner)


def linear_solver(
    matrix: PETSc.Mat,
    options: Mapping[str, Any],
    dm: PETSc.DM | None = None,
) -> PETSc.KSP:
    """Return the solver of a matrix for a sweep, with the user's options; ``dm`` for multigrid.

    Collective on the matrix's communicator.
    """
    solver = PETSc.KSP().create(comm=matrix.comm)
    solver.setOperators(matrix)
    chosen = {key: value for key, value in options.items() if key.startswith(PREFIXES)}
    defaults = linear_defaults(matrix, chosen, dm)
    if "ksp_rtol" in defaults:
        # errors of linear systems go into derivatives as they are: no Newton step follows that
        # would correct them
        defaults["ksp_rtol"] = IN_SWEEPS
    with scoped_options(defaults=defaults, code=chosen):
        solver.setFromOptions()
        take_passes(solver, matrix)
        coarsen_points(solver, dm)
        try:
            solver.setUp()
        except PETSc.Error as error:
            if getattr(error, "ierr", 0) == ZERO_PIVOT:
                raise singular("the matrix of a step has no factors") from error
            raise
    refuse_loose(solver)
    return solver


def refuse_loose(solver: PETSc.KSP) -> None:
    """Refuse derivatives by an iterative solver that ends early.

    Raises
    ------
    UnsupportedError
        Names its tolerance.
    """
    tolerances: Any = solver.getTolerances()
    if tolerances[0] > LOOSE and solver.getType() != PETSc.KSP.Type.PREONLY:
        raise UnsupportedError(
            f"derivatives with ksp_rtol = {tolerances[0]:g}",
            expected=f"at most {LOOSE:g}: errors of linear systems are errors of derivatives",
            remedy='options={"ksp_rtol": 1e-10}; runs without derivatives may have larger ones',
        )


def block_solver(matrix: PETSc.Mat, options: Mapping[str, Any]) -> PETSc.KSP:
    """Return the solver of a square block of the system.

    A block has unknowns of its own, so what is set up for those of the whole system does not
    concern it, and options of the command line reach it with the prefix ``block_`` only.  Small
    ones on one rank are factorised with pivoting, as the order of rows and columns need not make
    a diagonal; the user's options hold for the others.  Collective.
    """
    chosen = {key: value for key, value in options.items() if key.startswith(("ksp_", "pc_"))}
    # these need the whole system's fields, grids or parts
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
    defaults = linear_defaults(matrix, chosen, prefix="block_")
    with scoped_options(defaults=defaults, code=chosen, prefix="block_"):
        solver.setFromOptions()
        solver.setUp()
    return solver


def linear_fault(solver: PETSc.KSP, what: str) -> SolveError:
    """Return the error of a solver that has failed, with what solves the system.  Collective.

    Parameters
    ----------
    solver : KSP
        As it stopped.
    what : str
        What it solved, for the message.
    """
    reasons: Any = PETSc.KSP.ConvergedReason
    reason: Any = solver.getConvergedReason()
    matrix: Any = solver.getOperators()[0]
    if reason == reasons.DIVERGED_PCSETUP_FAILED and solver.getType() == PETSc.KSP.Type.PREONLY:
        return singular(what)
    kind = solver.getPC().getType()
    stopped = (
        f"{what}: {solver.getType()} with pc_type {kind} stopped after "
        f"{solver.getIterationNumber()} iterations ({reason_name(reasons, reason)}), "
        f"residual {solver.getResidualNorm():.3g}"
    )
    direct = "lu" if matrix.comm.size == 1 else "redundant"
    if matrix.getType() in PRODUCTS:
        remedy = 'a matrix with entries: jacobian="auto" for trace_stencil, else a sparse jacobian'
    elif _solves(direct, matrix):
        remedy = (
            f'options={{"ksp_type": "preonly", "pc_type": "{direct}"}}, which solves this system'
        )
    else:
        remedy = f"a smaller dt: {direct} does not solve this system either"
    return LinearSolverError(stopped, expected="convergence to ksp_rtol", remedy=remedy)


def reason_name(reasons: Any, value: Any) -> str:
    """Return PETSc's name of why a solver stopped, one of an enumeration of reasons."""
    named = (name for name in dir(reasons) if name.isupper() and getattr(reasons, name) == value)
    return next(named, str(value))


def singular(what: str) -> SingularMatrixError:
    """Return the error of a matrix that has no factors."""
    return SingularMatrixError(
        f"{what}: the matrix is singular",
        expected="equations that determine each unknown, together with M u'",
        remedy="another dt, since M - theta h f_u may be singular for one size of the step alone; "
        "else look for an unknown that no equation contains, or an equation that is there twice",
    )


def _solves(kind: str, matrix: PETSc.Mat) -> bool:
    """Whether a direct solver finds a known solution.  Collective."""
    solver = PETSc.KSP().create(comm=matrix.comm)
    vecs: Any = matrix.createVecs()
    known, right = vecs
    # a system with a known solution, to tell whether a direct solver would help
    known.set(1.0)
    matrix.mult(known, right)
    solution = known.duplicate()
    try:
        solver.setOperators(matrix)
        solver.setType(PETSc.KSP.Type.PREONLY)
        solver.getPC().setType(kind)
        solver.solve(right, solution)
        reason: Any = solver.getConvergedReason()
        solution.axpy(-1.0, known)
        return bool(reason > 0 and solution.norm() < FAITHFUL * known.norm())
    except PETSc.Error:
        return False
    finally:
        solver.destroy()


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
        levels = preconditioner.getMGLevels()
        lowest = levels - levels_in_use(preconditioner)
        return [preconditioner.getMGSmoother(k) for k in range(lowest, levels)]
    inside: Mapping[str, Any] = {
        "bjacobi": preconditioner.getBJacobiSubKSP,
        "asm": preconditioner.getASMSubKSP,
        "fieldsplit": preconditioner.getFieldSplitSubKSP,
        "ksp": lambda: [preconditioner.getKSP()],
    }
    return list(inside[kind]()) if kind in inside else []
