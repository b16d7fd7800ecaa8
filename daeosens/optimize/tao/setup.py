"""From a descent to a running TAO: type, callbacks, Hessian, options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, TypeAlias

from petsc4py import PETSc

from daeosens.errors import together
from daeosens.functional.functional import HasDenseGaussNewton, HasDenseHessian
from daeosens.optimize.arguments import argument_complaints
from daeosens.optimize.methods import METHODS, NEWTON, PRODUCTS, bounds_complaints
from daeosens.optimize.start import Bounds
from daeosens.optimize.stopping import GRADIENT
from daeosens.optimize.tao import gauss_newton as least_squares
from daeosens.optimize.tao.gauss_newton import BRGNRegularized, GaussNewton
from daeosens.optimize.tao.newton import (
    HessianOperator,
    Product,
    dense_by_products,
    newton_matrix,
    set_preconditioner,
)
from daeosens.optimize.tao.run import TaoRun
from daeosens.petsc.options import Options, Scope
from daeosens.petsc.vectors import Array

Kind: TypeAlias = Literal["exact", "gauss_newton"]

DEFAULTS: Options = {
    # PETSc 3.26's choice tries five points along the gradient, 100 / |g| away and nearer: each a
    # forward solve, most of them wild.  The length of the first Newton step has the right scale.
    **{f"tao_{family}_init_type": "direction" for family in ("nls", "ntr", "bnk")},
    # changes of J, relative to the first one, that are rounding: PETSc 3.26 has 1e-6 there
    "tao_ntr_epsilon": 4e-11,
    # PETSc 3.26 has 1e10 there, in the unit of x: numbers of cells would take a million steps
    **{f"tao_{family}_max_radius": 1e100 for family in ("ntr", "bnk")},
    # PETSc 3.26 takes a variable within 1e-3 of its bound for active and, with all of them active,
    # may end in a segmentation fault (BNTR, BNTL): only what lies on its bound is
    "tao_bnk_as_tol": 0.0,
}


PATIENCE = 5
"""Newton iterations in which neither value nor gradient norm falls, before giving up."""


def prepare(descent: TaoRun) -> Options:
    """Complete a descent by what its method asks for, and return the defaults of its options."""
    if descent.method != "brgn":
        return DEFAULTS
    descent.algorithm = least_squares.chosen_algorithm()
    plain = descent.evaluations.functional
    descent.evaluations.functional = least_squares.regularized(plain)
    options: Options = least_squares.PLAIN if descent.evaluations.functional is plain else {}
    return {**least_squares.DEFAULTS, **options}


def run_tao(
    descent: TaoRun, x: PETSc.Vec, scope: Scope, inverse: str | Product, hessian: Kind
) -> int:
    """Make a TAO for a descent, run it from x [n], and return its reason to stop.

    Parameters
    ----------
    descent : TaoRun
        Completed here: rules that options have changed, Hessian, notes.
    x : Vec [n]
        The start; overwritten.
    scope : Scope
        The open scope of the user's options, all of which must be read.
    inverse : str or callable
        Preconditioner, as ``checked_preconditioner`` returns it.
    hessian : {"exact", "gauss_newton"}
        Which Hessian.

    Raises
    ------
    InputError, OptionError, SolveError
        As ``minimize``.
    """
    tao = PETSc.TAO().create(x.comm)
    matrix: PETSc.Mat | None = None
    try:
        _set_rules(tao, descent)
        tao.setSolution(x)
        if descent.limits is not None:
            tao.setVariableBounds(descent.limits)
        solver, curvature = _solver(tao, descent)
        descent.hessian = _operator(descent, hessian, curvature, dense=inverse == "dense")
        if descent.hessian is not None:
            matrix = newton_matrix(descent.hessian, x)
            set_preconditioner(solver, inverse, descent.hessian)
        elif curvature is not None:
            least_squares.set_preconditioner(solver, inverse)
        _read_options(tao, descent)
        scope.check_used()
        if curvature is not None:
            if matrix is None:
                least_squares.give_residual(tao, descent, x, curvature)
            else:
                least_squares.give_nothing(tao, matrix, x)
            tao.setUp()  # which gives the subsolver callbacks of its own
        descent.attach(solver)
        if matrix is not None:
            solver.setHessian(descent.move_hessian, matrix)
        tao.setUp()
        scope.check_used()
        reason = descent.run(tao, x, scope)
        if curvature is not None:
            descent.notes.append(curvature.note())
        return reason
    finally:
        tao.destroy()
        if matrix is not None:
            matrix.destroy()


def _set_rules(tao: PETSc.TAO, descent: TaoRun) -> None:
    """Set type and tolerances, so that an option for them is told from their default."""
    tao.setType(descent.method)
    tao.setTolerances(descent.stopping.gradient, 0.0, descent.stopping.by_first)
    # TAO 3.26 gives up after 4000 evaluations with some types, without being asked to
    tao.setMaximumFunctionEvaluations(PETSc.UNLIMITED)


def _solver(tao: PETSc.TAO, descent: TaoRun) -> tuple[PETSc.TAO, GaussNewton | None]:
    """Return the TAO that minimises, and what computes residual Jacobians for it."""
    if descent.method != "brgn":
        return tao, None
    solver = tao.getBRGNSubsolver()
    solver.setType(descent.algorithm)
    return solver, GaussNewton(least_squares.plain(descent.evaluations.functional))


def _operator(
    descent: TaoRun, hessian: Kind, curvature: GaussNewton | None, *, dense: bool
) -> HessianOperator | None:
    """Return what TAO multiplies with, or None where it has no use for that or its own."""
    functional = descent.evaluations.functional
    if descent.algorithm not in NEWTON or isinstance(functional, BRGNRegularized):
        return None
    descent.stopping = replace(descent.stopping, patience=PATIENCE)
    whole: Callable[[PETSc.Vec], Array] | None = None
    if curvature is not None:
        product, whole = curvature.product, curvature.whole
    else:
        product = getattr(functional, PRODUCTS[hessian])
        if hessian == "exact" and isinstance(functional, HasDenseHessian):
            whole = functional.hessian
        elif hessian == "gauss_newton" and isinstance(functional, HasDenseGaussNewton):
            whole = functional.gauss_newton_matrix
        else:
            whole = partial(dense_by_products, product)
    # Only R^T R is singular where data feel nothing; steps of the exact Hessian are as well left.
    damped = curvature is not None or hessian == "gauss_newton"
    return HessianOperator(product, whole if dense else None, damped=damped)


def chosen_method(method: str, limits: Bounds | None) -> str:
    """Return the method, which an option may have changed, if it is one of ours."""
    name = PETSc.Options().getString("tao_type", method)
    if name not in METHODS:
        PETSc.TAO().create(PETSc.COMM_SELF).setType(name)  # nonsense is told by TAO
    complaints = argument_complaints(name, {}, 0, None)
    if not complaints and limits is not None:
        complaints = bounds_complaints(name)
    if complaints:
        raise together(complaints, heading="option tao_type")
    return name


def _read_options(tao: PETSc.TAO, descent: TaoRun) -> None:
    """Let TAO read its options, and put what they say of stopping into the descent's rules."""
    tao.setFromOptions()
    absolute, by_value, by_first = tao.getTolerances()
    most = descent.stopping.max_iterations
    if PETSc.Options().hasName("tao_max_it"):
        most = tao.getMaximumIterations()
    descent.stopping = replace(
        descent.stopping,
        gradient=absolute,
        by_value=by_value,
        by_first=by_first,
        max_iterations=most,
        rounding=absolute >= GRADIENT,
    )
