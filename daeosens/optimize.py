"""``minimize``: the minimum of a functional by PETSc TAO, with its history, told in words."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens import least_squares, pounders
from daeosens.arrays import guarded, read
from daeosens.descent import Descent
from daeosens.errors import InputError, OptionError, nearest, together
from daeosens.functional import Functional, HasDenseHessian, HasTypical
from daeosens.iterate import HEADING, Iterate, Progress, Result, history_of
from daeosens.least_squares import GaussNewton, Regularized
from daeosens.newton import (
    HessianOperator,
    Preconditioner,
    Product,
    checked_preconditioner,
    dense_by_products,
    newton_matrix,
    set_preconditioner,
)
from daeosens.optimizers import (
    METHODS,
    NEWTON,
    PRODUCTS,
    REASONS,
    UNBOUNDED,
    bounds_complaints,
    check_abilities,
    listed,
)
from daeosens.options import Options, Scope, scoped_options, validate_names
from daeosens.restart import Keeper, identity_of, load, options_for, resume
from daeosens.starting import (
    Bound,
    Bounds,
    first_bad,
    limits_of,
    point_complaints,
    start_of,
    vector_like,
)
from daeosens.stopping import Stopping

__all__ = ["HEADING", "METHODS", "REASONS", "UNBOUNDED", "Bound", "Iterate", "Result", "minimize"]

_Reason = PETSc.TAO.ConvergedReason

Kind: TypeAlias = Literal["exact", "gauss_newton"]

DEFAULTS: Options = {
    # PETSc 3.26's choice tries five points along the gradient, 100 / |g| away and nearer: each a
    # forward solve, most of them wild.  The length of the first Newton step has the right scale.
    **{f"tao_{family}_init_type": "direction" for family in ("nls", "ntr", "bnk")},
    # changes of J, relative to the first one, that are rounding: PETSc 3.26 has 1e-6 there
    "tao_ntr_epsilon": 4e-11,
}


def minimize(
    functional: Functional,
    x0: PETSc.Vec | npt.ArrayLike | None = None,
    *,
    method: str = "lmvm",
    bounds: tuple[Bound, Bound] | None = None,
    gradient_tolerance: float = 1e-8,
    relative_gradient_tolerance: float = 0.0,
    value_tolerance: float = 0.0,
    scaled_gradient_tolerance: float = 0.0,
    predicted_decrease_tolerance: float = 0.0,
    typical: tuple[PETSc.Vec | npt.ArrayLike, float] | None = None,
    hessian: Kind = "exact",
    preconditioner: Preconditioner = "auto",
    max_iterations: int = 1000,
    restart: str | os.PathLike[str] | None = None,
    options: Options | None = None,
    progress: bool | Progress | None = None,
) -> Result:
    """Minimise a functional by TAO.  Collective on ``functional.comm``.

    Everything that can be wrong with the arguments is reported before the first evaluation.  A
    point where the functional raises ``SolveError`` (or gives a value or gradient that is not
    finite) counts as infinitely bad: the line search comes back from it, and it is counted.  At the
    start it is an error.  Other exceptions of the functional come out as they are.

    Parameters
    ----------
    functional : Functional
        J, its gradient, its start, its bounds.
    x0 : Vec or array_like [n], optional
        Where to begin; not changed.  Default ``functional.start()``.
    method : str
        With the gradient only: "lmvm"; with bounds "blmvm" (large n), "bqnls" or "bncg" (least
        memory).  With products with the Hessian: "nls" (line search), "ntr" (trust region); with
        or without bounds "bnls", "bntr", "bntl" (both).  Least squares, with or without bounds:
        "brgn" (Gauss-Newton), "pounders" (no derivatives, few variables of similar size).
    bounds : (lower, upper), optional
        Each a Vec or array [n], one number, or None.  Default ``functional.bounds()``.
    gradient_tolerance : float
        Stop at ``Iterate.gradient_norm`` <= this (option tao_gatol).
    relative_gradient_tolerance : float
        Stop at this fraction of the first gradient norm (tao_gttol); 0 is off.
    value_tolerance : float
        Stop when J changes by less than this fraction of itself in an iteration; 0 is off.
    scaled_gradient_tolerance : float
        Stop at a relative gradient max_i |g_i| max(|x_i|, t_i) / max(|J|, t_J) <= this, within the
        bounds (see ``Stopping``): no change of units of x or J matters; 0 is off.
    predicted_decrease_tolerance : float
        Newton methods: stop after a full step for which the model promised less than this fraction
        of max(|J|, t_J); 0 is off.
    typical : (Vec or array_like [n], float), optional
        t and t_J, sizes below which x and J no longer matter.  Default ``functional.typical()`` if
        it has that; else |start| and, also where t_J is 0, |J(start)|.
    hessian : {"exact", "gauss_newton"}
        Newton methods: ``functional.hessian_product`` or ``functional.gauss_newton_product``.
    preconditioner : {"auto", "dense", "lmvm", "none"}, Mat or callable
        Newton methods: what approximates the inverse Hessian.  "dense" computes it whole, "auto"
        does so for up to 20 variables and is "none" for more.  A Mat [n, n] by its product, or a
        callable (x, r) -> Vec [n]; symmetric, positive definite, linear in r.
    max_iterations : int
        Stop after so many (tao_max_it).
    restart : path, optional
        An HDF5 file.  Each accepted iterate is saved there, and a later call continues from it; x0
        is then of no account.  ``Result.notes`` says whether exactly so, or what TAO starts anew.
    options : mapping, optional
        PETSc options without the dash: ``{"tao_ls_max_funcs": 50}``.  The command line wins.
    progress : bool or callable, optional
        True: a line per iteration on rank 0.  A callable gets (``Iterate``, x) on every rank;
        x must be copied to be kept.

    Returns
    -------
    Result
        Also when no tolerance was met: see ``Result.converged``.

    Raises
    ------
    InputError
        Unknown method, bounds a method would ignore, a start outside the bounds, NaN, wrong sizes,
        a restart file of another problem.
    UnsupportedError
        The method needs what the functional lacks.
    OptionError
        An option that nothing reads, or a value that TAO refuses.
    SolveError
        J does not exist at the start, or the chosen line search cannot come back from a failure.
    """
    begin = time.perf_counter()
    tolerances = {
        "gradient_tolerance": gradient_tolerance,
        "relative_gradient_tolerance": relative_gradient_tolerance,
        "value_tolerance": value_tolerance,
        "scaled_gradient_tolerance": scaled_gradient_tolerance,
        "predicted_decrease_tolerance": predicted_decrease_tolerance,
    }
    complaints = _argument_complaints(method, tolerances, max_iterations, progress)
    complaints += _newton_complaints(method, hessian, preconditioner, predicted_decrease_tolerance)
    chosen: Options = {} if options is None else options
    validate_names(chosen, "minimize options")
    x = start_of(functional, x0)
    limits = limits_of(functional.bounds() if bounds is None else bounds, x)
    complaints += point_complaints(x, limits, "start()" if x0 is None else "x0")
    if limits is not None and method in METHODS:
        complaints += bounds_complaints(method)
    if complaints:
        raise together(complaints, heading="minimize")
    inverse = checked_preconditioner(preconditioner, x)
    stopping = _scales(Stopping(), functional, typical, x, needed=scaled_gradient_tolerance > 0.0)
    stopping = replace(
        stopping,
        gradient=gradient_tolerance,
        by_first=relative_gradient_tolerance,
        value=value_tolerance,
        scaled_gradient=scaled_gradient_tolerance,
        predicted_decrease=predicted_decrease_tolerance,
        max_iterations=int(max_iterations),
    )
    views = {name: value for name, value in chosen.items() if "view" in name}
    others = {name: value for name, value in chosen.items() if "view" not in name}
    with scoped_options(code=views), scoped_options(code=others) as scope:
        method = _chosen_method(method, limits)
        check_abilities(functional, method, hessian, bounded=limits is not None)
        report = _reporter(progress, functional.comm)
        descent = Descent(functional, method, method, limits, stopping, x.copy(), report)
        try:
            defaults = dict(_prepare(descent, x))
            if restart is not None:
                kind = inverse if isinstance(inverse, str) else "user"
                words = {"hessian": hessian, "preconditioner": kind}
                defaults.update(_continue(descent, x, Path(restart), words, progress is True))
            with scoped_options(defaults=defaults):
                reason = _run(descent, x, scope, stopping, inverse, hessian)
        except BaseException:
            descent.x.destroy()
            raise
        finally:
            x.destroy()
    return _result(descent, reason, time.perf_counter() - begin)


def _prepare(descent: Descent, x: PETSc.Vec) -> Options:
    """Complete a descent by what its method asks for, and return the defaults of its options."""
    if descent.method == "pounders":
        return {pounders.DELTA: pounders.first_step(x, descent.limits)}
    if descent.method != "brgn":
        return DEFAULTS
    descent.algorithm = least_squares.chosen_algorithm()
    plain = descent.functional
    descent.functional = least_squares.regularized(plain)
    options: Options = least_squares.PLAIN if descent.functional is plain else {}
    return {**least_squares.DEFAULTS, **options}


def _continue(
    descent: Descent, x: PETSc.Vec, path: Path, words: Mapping[str, str], tell: bool
) -> Options:
    """Save a descent's iterates to a file, from where that is, and return options for TAO."""
    identity = identity_of(descent.method, x, descent.limits, words)
    saved = load(path, identity, x.comm)
    keeper = Keeper(path, identity, learns=words["preconditioner"] == "lmvm")
    descent.save = keeper.save
    if saved is None:
        return {}
    keeper.active = saved.active
    note = resume(descent, saved, x, path)
    descent.notes.append(note)
    if tell and x.comm.rank == 0:
        sys.stdout.write(f"{note}\n{HEADING}\n")
        sys.stdout.flush()
    return options_for(saved, descent)


def _run(
    descent: Descent,
    x: PETSc.Vec,
    scope: Scope,
    stopping: Stopping,
    inverse: str | Product,
    hessian: Kind,
) -> int:
    """Make a TAO, run it from x, and return its reason to stop."""
    alone = descent.method == "pounders"
    tao = PETSc.TAO().create(PETSc.COMM_SELF if alone else x.comm)
    matrix: PETSc.Mat | None = None
    try:
        tao.setType(descent.method)
        tao.setTolerances(stopping.gradient, 0.0, stopping.by_first)
        # TAO 3.26 gives up after 4000 evaluations with some types, without being asked to
        tao.setMaximumFunctionEvaluations(PETSc.UNLIMITED)
        if alone:
            _read_options(tao)
            descent.stopping = _tolerances_of(tao, stopping)
            return pounders.run(tao, descent, x, scope)
        tao.setSolution(x)
        if descent.limits is not None:
            tao.setVariableBounds(descent.limits)
        solver = tao
        curvature: GaussNewton | None = None
        if descent.method == "brgn":
            solver = tao.getBRGNSubsolver()
            solver.setType(descent.algorithm)
            functional: Any = descent.functional
            curvature = GaussNewton(getattr(functional, "functional", functional))
        if descent.algorithm in NEWTON and not isinstance(descent.functional, Regularized):
            dense = inverse == "dense"
            descent.stopping = stopping = replace(stopping, patience=5)
            descent.hessian = (
                _operator(descent.functional, hessian, dense=dense)
                if curvature is None
                else least_squares.operator_of(curvature, dense=dense)
            )
            if descent.iterates:
                descent.hessian.count = descent.iterates[-1].hessian_products
            matrix = newton_matrix(descent.hessian, x)
            set_preconditioner(solver, inverse, descent.hessian)
        elif curvature is not None:
            if isinstance(inverse, str):
                solver.getKSP().getPC().setType("lmvm" if inverse == "lmvm" else "none")
            else:
                raise InputError(
                    "preconditioner: not with a regularisation of BRGN",
                    expected='"auto", "none" or "lmvm"',
                )
        _read_options(tao)
        descent.stopping = _tolerances_of(tao, stopping)
        scope.check_used()
        if curvature is not None and matrix is None:
            least_squares.give_residual(tao, descent, x, curvature)
        elif curvature is not None and matrix is not None:
            least_squares.give_nothing(tao, matrix, x)
        if solver is not tao:
            tao.setUp()  # which gives the subsolver callbacks of its own
        descent.attach(solver)
        if matrix is not None:
            solver.setHessian(descent.move_hessian, matrix)
        tao.setUp()
        scope.check_used()
        reason = descent.run(tao, x, scope)
        if curvature is not None:
            sweep = getattr(curvature.functional, "residual_sweep", "a sweep of its own")
            descent.notes.append(f"{curvature.count} residual Jacobians by {sweep}")
        return reason
    finally:
        tao.destroy()
        if matrix is not None:
            matrix.destroy()


def _operator(functional: Functional, hessian: Kind, *, dense: bool) -> HessianOperator:
    """Return what TAO multiplies with."""
    product: Product = getattr(functional, PRODUCTS[hessian])
    if not dense:
        return HessianOperator(product)
    if hessian == "exact" and isinstance(functional, HasDenseHessian):
        return HessianOperator(product, functional.hessian)
    return HessianOperator(product, partial(dense_by_products, product))


def _tolerances_of(tao: PETSc.TAO, stopping: Stopping) -> Stopping:
    """Return the rules with what TAO's options have made of them."""
    absolute, by_value, by_first = tao.getTolerances()
    most = stopping.max_iterations
    if PETSc.Options().hasName("tao_max_it"):
        most = tao.getMaximumIterations()
    return replace(
        stopping, gradient=absolute, by_value=by_value, by_first=by_first, max_iterations=most
    )


def _scales(
    stopping: Stopping,
    functional: Functional,
    typical: tuple[PETSc.Vec | npt.ArrayLike, float] | None,
    x: PETSc.Vec,
    *,
    needed: bool,
) -> Stopping:
    """Return the rules with typical sizes of x and J."""
    given: Any = typical
    if given is None and isinstance(functional, HasTypical):
        given = functional.typical()
    if given is None:
        sizes, of_value, name = x.copy(), 0.0, "start (x has no other typical size)"
        sizes.abs()
    else:
        if not (isinstance(given, tuple) and len(cast("tuple[Any, ...]", given)) == 2):
            raise InputError(f"typical = {given!r}", expected="(sizes of x [n], size of J)")
        of_x, of_value = cast("tuple[Any, Any]", given)
        sizes, name = vector_like(of_x, x, "typical x"), "typical x"
        number = isinstance(of_value, (int, float, np.number)) and not isinstance(of_value, bool)
        if not (number and math.isfinite(of_value) and of_value >= 0.0):
            raise InputError(f"typical J = {of_value!r}", expected="a finite number >= 0")
    if needed:
        values = read(sizes)
        bad = first_bad(x, ~((values > 0.0) & np.isfinite(values)), values)
        if bad is not None:
            raise InputError(
                f"{name} is {bad[1]:g} at index {bad[0]}",
                expected="positive numbers, which scaled_gradient_tolerance divides by",
                remedy="typical=(sizes of x, size of J)",
            )
    return replace(stopping, typical_x=sizes, typical_value=float(of_value))


def _argument_complaints(
    method: object, tolerances: Mapping[str, object], max_iterations: object, progress: object
) -> list[str]:
    complaints: list[str] = []
    if method not in METHODS:
        near = nearest(str(method), METHODS)
        complaints.append(
            f"unknown method {method!r}; expected: {listed(METHODS)}"
            + (f"; try: {near}" if near else "")
        )
    for name, value in tolerances.items():
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float, np.number))
            or not (math.isfinite(value) and value >= 0.0)
        ):
            complaints.append(f"{name} = {value!r}; expected: a finite number >= 0")
    if (
        isinstance(max_iterations, bool)
        or not isinstance(max_iterations, (int, np.integer))
        or max_iterations < 0
    ):
        complaints.append(f"max_iterations = {max_iterations!r}; expected: an integer >= 0")
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        complaints.append(f"progress = {progress!r}; expected: None, True or a callable")
    return complaints


def _newton_complaints(
    method: object, hessian: object, preconditioner: object, predicted: object
) -> list[str]:
    complaints: list[str] = []
    if hessian not in PRODUCTS:
        complaints.append(f"hessian = {hessian!r}; expected: {listed(PRODUCTS)}")
    if method not in METHODS:
        return complaints
    solvers = (*NEWTON, "brgn")
    for name, is_default, users in (
        ("hessian", hessian == "exact", NEWTON),
        ("preconditioner", isinstance(preconditioner, str) and preconditioner == "auto", solvers),
        ("predicted_decrease_tolerance", predicted == 0.0, solvers),
    ):
        if not is_default and method not in users:
            complaints.append(f'{name}: not used by method "{method}", but by {listed(users)}')
    return complaints


def _reporter(progress: bool | Progress | None, comm: PETSc.Comm) -> Progress | None:
    if callable(progress):
        return guarded(progress, "progress", comm)
    if not progress or comm.rank > 0:
        return None

    def write(iterate: Iterate, _x: PETSc.Vec) -> None:
        heading = f"{HEADING}\n" if iterate.iteration == 0 else ""
        sys.stdout.write(f"{heading}{iterate}\n")
        sys.stdout.flush()

    return write


def _chosen_method(method: str, limits: Bounds | None) -> str:
    """Return the method, which an option may have changed, if it is one of ours."""
    name = PETSc.Options().getString("tao_type", method)
    if name not in METHODS:
        with _refusals():
            PETSc.TAO().create(PETSc.COMM_SELF).setType(name)  # nonsense is told by TAO
    complaints = _argument_complaints(name, {}, 0, None)
    if not complaints and limits is not None:
        complaints = bounds_complaints(name)
    if complaints:
        raise together(complaints, heading="option tao_type")
    return name


@contextmanager
def _refusals() -> Generator[None]:
    """Turn what PETSc says about an option's value into an OptionError."""
    try:
        yield
    except PETSc.Error as error:
        cause = str(error).splitlines()[-1].partition("] ")[2]
        raise OptionError(f"TAO refuses an option: {cause}") from error


def _read_options(tao: PETSc.TAO) -> None:
    """Let TAO read its options."""
    with _refusals():
        tao.setFromOptions()


def _result(descent: Descent, reason: int, seconds: float) -> Result:
    """Sum up."""
    last = descent.iterates[-1]
    name, message = descent.why or REASONS[reason]
    if reason == _Reason.DIVERGED_LS_FAILURE and descent.failed_in_search:
        message = "the line search found no lower value before solves failed"
    return Result(
        x=descent.x,
        value=last.value,
        gradient_norm=last.gradient_norm,
        method=descent.method,
        reason=name,
        message=message,
        iterations=last.iteration,
        evaluations=descent.evaluations,
        failed_solves=descent.failed_solves,
        restarts=descent.restarts,
        seconds=seconds,
        history=history_of(descent.iterates),
        hessian_products=0 if descent.hessian is None else descent.hessian.count,
        notes=tuple(descent.notes),
    )
