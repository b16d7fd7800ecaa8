"""``minimize``: the minimum of a functional by PETSc TAO, with its history, told in words."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import is_one_of, require, together
from daeosens.functional.functional import (
    Functional,
    HasDenseGaussNewton,
    HasRefined,
    HasTolerance,
    functional_error,
    require_functional,
)
from daeosens.io.files import is_path
from daeosens.optimize.arguments import argument_complaints, is_zero, newton_complaints, scales_of
from daeosens.optimize.constrained.constraints import Constraint
from daeosens.optimize.constrained.kkt import KktProgress, kkt_reporter
from daeosens.optimize.constrained.minimize import check_constrained_method, minimize_constrained
from daeosens.optimize.constrained.result import CONSTRAINED_METHODS, ConstrainedResult
from daeosens.optimize.evaluations import Evaluations
from daeosens.optimize.interruption import INTERRUPTED, interruptible, keep_what_is_there
from daeosens.optimize.methods import (
    METHODS,
    REASONS,
    UNBOUNDED,
    bounds_complaints,
    check_abilities,
    first_order_method,
)
from daeosens.optimize.progress_bar import Bar, bar_on_terminal
from daeosens.optimize.restart import RecordedFunctional, identity_of
from daeosens.optimize.result import HEADING, Iterate, Progress, Result, history_of
from daeosens.optimize.start import Bound, GivenBounds, limits_of, point_complaints, start_of
from daeosens.optimize.stopping import GRADIENT, STUCK, Stopping
from daeosens.optimize.tao.newton import FEW, FEW_WHOLE, Preconditioner, checked_preconditioner
from daeosens.optimize.tao.run import TaoRun
from daeosens.optimize.tao.setup import Kind, chosen_method, prepare, run_tao
from daeosens.petsc.options import Options, scoped_options, validate_names
from daeosens.petsc.ranks import agree
from daeosens.problem.callback_guard import guarded
from daeosens.problem.problem import Problem

__all__ = ["HEADING", "METHODS", "REASONS", "UNBOUNDED", "Bound", "Iterate", "Result", "minimize"]

_Reason = PETSc.TAO.ConvergedReason

HARDLY_SMALLER = 1e-3
"""Part of the first gradient norm above which the last one is told to have met a tolerance only."""


@overload
def minimize(
    functional: Functional,
    x0: PETSc.Vec | npt.ArrayLike | None = None,
    *,
    method: str | None = None,
    bounds: GivenBounds = None,
    constraints: None = None,
    gradient_tolerance: float = GRADIENT,
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
    discretization: bool = False,
) -> Result: ...
@overload
def minimize(
    functional: Functional,
    x0: PETSc.Vec | npt.ArrayLike | None = None,
    *,
    method: str,
    bounds: GivenBounds = None,
    constraints: Constraint | Sequence[Constraint],
    gradient_tolerance: float = GRADIENT,
    constraint_tolerance: float = 1e-8,
    max_iterations: int = 1000,
    options: Options | None = None,
    progress: bool | KktProgress | None = None,
) -> ConstrainedResult: ...
def minimize(
    functional: Functional,
    x0: PETSc.Vec | npt.ArrayLike | None = None,
    *,
    method: str | None = None,
    bounds: GivenBounds = None,
    constraints: Constraint | Sequence[Constraint] | None = None,
    gradient_tolerance: float = GRADIENT,
    relative_gradient_tolerance: float = 0.0,
    value_tolerance: float = 0.0,
    constraint_tolerance: float = 1e-8,
    scaled_gradient_tolerance: float = 0.0,
    predicted_decrease_tolerance: float = 0.0,
    typical: tuple[PETSc.Vec | npt.ArrayLike, float] | None = None,
    hessian: Kind = "exact",
    preconditioner: Preconditioner = "auto",
    max_iterations: int = 1000,
    restart: str | os.PathLike[str] | None = None,
    options: Options | None = None,
    progress: bool | Any | None = None,
    discretization: bool = False,
) -> Result | ConstrainedResult:
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
    method : str, optional
        With the gradient only: "lmvm", the default; with bounds "bqnls", the default there, "blmvm"
        (large n) or "bncg" (least memory).  With products with the Hessian: "nls" (line search),
        "ntr" (trust region); with or without bounds "bnls", "bntr", "bntl" (both).  Least squares,
        with or without bounds: "brgn" (Gauss-Newton).
        With constraints: "almm" (first derivatives), "ipopt" (second derivatives, dense).
    bounds : (lower, upper), optional
        Each a Vec or array [n], one number, or None; or as SciPy takes them: a list of pairs (low,
        high), or ``scipy.optimize.Bounds``.  Default ``functional.bounds()``.
    constraints : Constraint or sequence of Constraint, optional
        What else the minimum has to satisfy; see ``minimize_constrained`` for tolerances, which are
        relative then, and the result.
    gradient_tolerance : float
        Stop at ``Iterate.gradient_norm`` <= this (option tao_gatol).  Unless it is below 1e-8, also
        where that is below a millionth of the largest one and in ten iterations it has not halved,
        nor J fallen beyond its rounding, or the search is stuck and has less than that to gain.
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
        does so for up to 10 variables (100 by Gauss-Newton of
        a ``Reduced`` or ``Joint``) and is "none" for more.  A Mat [n, n] by its product, or a
        callable (x, r) -> Vec [n]; symmetric, positive definite, linear in r.
    constraint_tolerance : float
        Largest violation, in the constraints' scales.
    max_iterations : int
        Stop after so many (tao_max_it).
    restart : path, optional
        A file.  What the functional returns is saved there, each rank's part in a file beside it,
        and a later call, on any number of ranks, continues with the same iterates; x0 is then of no
        account.
    options : mapping, optional
        PETSc options without the dash: ``{"tao_ls_max_funcs": 50}``.  The command line wins.
    progress : bool or callable, optional
        By default one line on stderr, if that is a terminal, on the first rank; False: nothing.
        True: a line per iteration on rank 0.  A callable gets (``Iterate``, x) on every rank;
        x must be copied to be kept.
    discretization : bool
        Estimate the discretisation error of J and its gradient at the result, by one more run, with
        divided steps: ``Result.discretization``.  It takes twice the memory of a run, so it has to
        be asked for.

    Returns
    -------
    Result or, with constraints, ConstrainedResult
        Also when no tolerance was met: see ``Result.converged``; and after Ctrl-C, with the last
        iterate and the reason "INTERRUPTED" (on several ranks before the next evaluation).

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

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> misfit = LeastSquares([1.0, 2.0], [0.6, 0.36])
    >>> control = Parameters({"rate": Parameter(0.3)}, initial_state=[1.0])
    >>> result = minimize(Reduced(decay, misfit, Stepping((0.0, 2.0), "rk4", dt=0.1), control))
    >>> print(f"{result.converged}, rate {result.x[0]:.3f}")
    True, rate 0.511
    """
    require_functional(functional)
    # With other arguments on one rank the others might wait for ever in a collective call.
    if options is not None:
        require(options, Mapping, "minimize options", 'options={"tao_max_funcs": 100}')
    require(discretization, bool, "discretization", "discretization=True")
    agree(
        functional.comm,
        "minimize",
        x0=x0,
        method=method,
        bounds=bounds,
        constraints=constraints,
        gradient_tolerance=gradient_tolerance,
        relative_gradient_tolerance=relative_gradient_tolerance,
        value_tolerance=value_tolerance,
        constraint_tolerance=constraint_tolerance,
        scaled_gradient_tolerance=scaled_gradient_tolerance,
        predicted_decrease_tolerance=predicted_decrease_tolerance,
        typical=typical,
        hessian=hessian,
        preconditioner=preconditioner,
        max_iterations=max_iterations,
        restart=restart is not None,
        options=options or {},
        discretization=discretization,
    )
    # Constraints go another way, on which these arguments have no meaning: they are refused there
    # instead of being ignored.
    if constraints is not None or is_one_of(method, *CONSTRAINED_METHODS):
        unused = {
            "relative_gradient_tolerance": not is_zero(relative_gradient_tolerance),
            "value_tolerance": not is_zero(value_tolerance),
            "scaled_gradient_tolerance": not is_zero(scaled_gradient_tolerance),
            "predicted_decrease_tolerance": not is_zero(predicted_decrease_tolerance),
            "typical": typical is not None,
            "hessian": not is_one_of(hessian, "exact"),
            "preconditioner": not is_one_of(preconditioner, "auto"),
            "restart": restart is not None,
            "discretization": discretization,
        }
        tolerances = {
            "gradient_tolerance": gradient_tolerance,
            "constraint_tolerance": constraint_tolerance,
        }
        return _with_constraints(
            functional,
            x0,
            "lmvm" if method is None else method,
            bounds,
            constraints,
            tolerances,
            max_iterations,
            options,
            progress,
            [name for name in unused if unused[name]],
        )
    begin = time.perf_counter()
    tolerances = {
        "gradient_tolerance": gradient_tolerance,
        "relative_gradient_tolerance": relative_gradient_tolerance,
        "value_tolerance": value_tolerance,
        "scaled_gradient_tolerance": scaled_gradient_tolerance,
        "predicted_decrease_tolerance": predicted_decrease_tolerance,
    }
    x = start_of(functional, x0)
    limits = limits_of(functional.bounds() if bounds is None else bounds, x)
    method = first_order_method(bounded=limits is not None) if method is None else method
    # All complaints together, so that one call tells everything that is wrong.
    complaints = argument_complaints(method, tolerances, max_iterations, progress)
    complaints += newton_complaints(method, hessian, preconditioner, predicted_decrease_tolerance)
    if restart is not None and not is_path(restart):
        complaints.append(f"restart = {restart!r}; expected: the path of a file")
    if discretization and not isinstance(functional, HasRefined):
        complaints.append(
            f"discretization=True for {type(functional).__name__}; expected: Reduced or Joint"
        )
    chosen: Options = {} if options is None else options
    validate_names(chosen, "minimize options")
    complaints += point_complaints(x, limits, "start()" if x0 is None else "x0")
    if limits is not None and is_one_of(method, *METHODS):
        complaints += bounds_complaints(method)
    if complaints:
        raise together(complaints, heading="minimize")
    whole = hessian == "gauss_newton" and isinstance(functional, HasDenseGaussNewton)
    inverse = checked_preconditioner(preconditioner, x, FEW_WHOLE if whole else FEW)
    stopping = scales_of(Stopping(), functional, typical, x, needed=scaled_gradient_tolerance > 0.0)
    stopping = replace(
        stopping,
        gradient=gradient_tolerance,
        by_first=relative_gradient_tolerance,
        value=value_tolerance,
        scaled_gradient=scaled_gradient_tolerance,
        predicted_decrease=predicted_decrease_tolerance,
        max_iterations=int(max_iterations),
        noise=functional.tolerance if isinstance(functional, HasTolerance) else 0.0,
    )
    # TAO reads its views only when it has solved, after the check that all options have been
    # read: they are in a scope of their own.
    views = {name: value for name, value in chosen.items() if "view" in name}
    others = {name: value for name, value in chosen.items() if "view" not in name}
    with scoped_options(code=views), scoped_options(code=others) as scope:
        method = chosen_method(method, limits)
        check_abilities(functional, method, hessian, bounded=limits is not None)
        report = _reporter(progress, functional.comm)
        words = {
            "hessian": hessian,
            "preconditioner": inverse if isinstance(inverse, str) else "user",
        }
        identity = identity_of(method, x, limits, words)
        record = _recorded(functional, restart, identity, x, tell=progress is True)
        evaluations = Evaluations(record or functional)
        # With a copy of x: TAO moves one of them, the other stays at the last accepted iterate.
        descent = TaoRun(evaluations, method, method, limits, stopping, x.copy(), report, record)
        try:
            defaults = dict(prepare(descent))
            with scoped_options(defaults=defaults), interruptible(functional.comm) as stop:
                evaluations.interruption = stop
                reason = _until_interrupted(
                    descent, partial(run_tao, descent, x, scope, inverse, hessian)
                )
        except BaseException:
            # Only after an error: the vector is what a result returns.
            descent.x.destroy()
            raise
        finally:
            x.destroy()
            # Later runs of the same functional are no trials.
            evaluations.limit_steps(limited=False)
            if isinstance(report, Bar):
                report.close()
    result = _result(descent, reason, time.perf_counter() - begin)
    if not discretization:
        return result
    assert isinstance(functional, HasRefined)
    return replace(result, discretization=functional_error(functional, result.x))


def _until_interrupted(descent: TaoRun, run: Callable[[], int]) -> int:
    """Return TAO's reason to stop, or that of Ctrl-C after the first iterate."""
    try:
        return run()
    except KeyboardInterrupt:
        # Before the start is evaluated there is nothing to return.
        if not descent.iterates:
            raise
        keep_what_is_there()
        descent.why = INTERRUPTED
        return _Reason.DIVERGED_USER
    finally:
        if descent.record is not None:
            descent.record.close()


def _with_constraints(
    functional: Functional,
    x0: PETSc.Vec | npt.ArrayLike | None,
    method: str,
    bounds: GivenBounds,
    constraints: Constraint | Sequence[Constraint] | None,
    tolerances: Mapping[str, float],
    max_iterations: int,
    options: Options | None,
    progress: bool | Any | None,
    unused: Sequence[str],
) -> ConstrainedResult:
    """Check the arguments and minimise under constraints."""
    complaints = argument_complaints("lmvm", tolerances, max_iterations, progress)
    complaints += check_constrained_method(method, constraints, METHODS)
    complaints += [f"{name} does nothing with constraints" for name in unused]
    x = start_of(functional, x0)
    limits = limits_of(functional.bounds() if bounds is None else bounds, x)
    complaints += point_complaints(x, limits, "start()" if x0 is None else "x0")
    if complaints:
        raise together(complaints, heading="minimize")
    return minimize_constrained(
        functional,
        constraints,
        x,
        method=method,
        limits=limits,
        max_iterations=max_iterations,
        options=options,
        report=kkt_reporter(progress, functional.comm),
        **tolerances,
    )


def _recorded(
    functional: Functional,
    restart: str | os.PathLike[str] | None,
    identity: Mapping[str, str],
    x: PETSc.Vec,
    *,
    tell: bool,
) -> RecordedFunctional | None:
    """Return a functional with a restart file, whose start x [n] becomes, if one is asked for."""
    if restart is None:
        return None
    record = RecordedFunctional(functional, Path(restart), identity, x)
    if tell and record.iterates and x.comm.rank == 0:
        sys.stdout.write(f"{record.notes[0]}\n{HEADING}\n")
        sys.stdout.flush()
    return record


def _reporter(progress: bool | Progress | None, comm: PETSc.Comm) -> Progress | None:
    if callable(progress):
        return guarded(progress, "progress", comm)
    if progress is None:
        return bar_on_terminal("minimize")
    if not progress or comm.rank > 0:
        return None

    def write(iterate: Iterate, _x: PETSc.Vec) -> None:
        heading = f"{HEADING}\n" if iterate.iteration == 0 else ""
        sys.stdout.write(f"{heading}{iterate}\n")
        sys.stdout.flush()

    return write


def _result(descent: TaoRun, reason: int, seconds: float) -> Result:
    """Sum up."""
    last = descent.iterates[-1]
    evaluations = descent.evaluations
    if evaluations.failed:
        descent.notes.append(f"the last failed solve: {evaluations.failure}")
    problem = getattr(evaluations.functional, "problem", None)
    if isinstance(problem, Problem) and problem.differences:
        descent.notes.append(f"derivatives: {problem.differences}")
    if descent.record is not None:
        descent.notes[:0] = descent.record.notes
    # Our own rules stop TAO with a reason for users, whose words are ours.
    name, message = descent.why or REASONS[reason]
    first = descent.iterates[0].gradient_norm
    if name == "CONVERGED_GATOL" and last.gradient_norm > HARDLY_SMALLER * first:
        part = f"{last.gradient_norm / first:.2g} of its first norm {first:.2g}"
        descent.notes.append(
            f"the gradient fell to {part}: gradient_tolerance is absolute; where the cost is in "
            "small units and x no minimum yet, a smaller one, or relative_gradient_tolerance=1e-6"
        )
    if reason == _Reason.DIVERGED_LS_FAILURE and descent.failed_in_search:
        message = "the line search found no lower value before solves failed"
    elif name in STUCK and not descent.unbounded:
        settled = descent.stopping.converged_to_rounding(descent.iterates, descent.slopes)
        name, message = settled or (name, message)
    return Result(
        x=descent.x,
        value=last.value,
        gradient_norm=last.gradient_norm,
        method=descent.method,
        reason=name,
        message=message,
        iterations=last.iteration,
        evaluations=descent.evaluations.count,
        failed_solves=descent.evaluations.failed,
        restarts=descent.restarts,
        seconds=seconds,
        history=history_of(descent.iterates),
        hessian_products=0 if descent.hessian is None else descent.hessian.count,
        notes=tuple(descent.notes),
    )
