"""Minima under constraints by TAO's augmented Lagrangian or by IPOPT."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from petsc4py import PETSc

from daeosens.errors import InputError, UnsupportedError, is_one_of, suggestion
from daeosens.functional.functional import Functional
from daeosens.optimize.constrained.augmented_lagrangian import DEFAULTS, AugmentedLagrangian
from daeosens.optimize.constrained.ipopt import Ipopt, check_casadi
from daeosens.optimize.constrained.kkt import KktProgress, SearchRecord, StandardForm
from daeosens.optimize.constrained.lagrangian import Lagrangian
from daeosens.optimize.constrained.result import (
    CONSTRAINED_METHODS,
    ConstrainedResult,
    constrained_result,
)
from daeosens.optimize.start import Bounds
from daeosens.petsc.options import Options, scoped_options, validate_names
from daeosens.petsc.vectors import read

PREFIXES = ("tao_almm_subsolver_",)
LARGEST_DENSE = 2000
"""Rows of the dense KKT matrix beyond which "ipopt" is refused."""


def check_constrained_method(
    method: str, constraints: object, others: Iterable[str] = ()
) -> list[str]:
    """Return what is wrong with a method where there are, or are no, constraints.

    ``others`` are the methods that take none.
    """
    if constraints is None and is_one_of(method, *CONSTRAINED_METHODS):
        return [f'method "{method}" needs constraints=; without: "lmvm", or "blmvm" with bounds']
    if constraints is not None and not is_one_of(method, *CONSTRAINED_METHODS):
        able = ", ".join(f'"{name}"' for name in CONSTRAINED_METHODS)
        if is_one_of(method, *others):
            return [f'method "{method}" takes no constraints; try: {able}']
        near = suggestion(str(method), CONSTRAINED_METHODS)
        return [f"unknown method {method!r}; with constraints: {able}{near}"]
    return []


def minimize_constrained(
    functional: Functional,
    constraints: object,
    x: PETSc.Vec,
    *,
    method: str = "almm",
    limits: Bounds | None = None,
    gradient_tolerance: float = 1e-8,
    constraint_tolerance: float = 1e-8,
    max_iterations: int = 1000,
    options: Options | None = None,
    report: KktProgress | None = None,
) -> ConstrainedResult:
    """Minimise a functional under constraints; ``minimize`` checks the other arguments.

    Collective on ``functional.comm``.  J and the constraints are divided by the norms of their
    gradients at the start, so that the result does not depend on their units.  "almm" wants
    unknowns that are of the size of 1 (``Parameter(..., scale="log")``, or other units of x): of
    the size of 1e7 it does not converge, where "ipopt" does.  A failed solve at a trial point
    shortens the step.

    Parameters
    ----------
    functional : Functional
        J.
    constraints : Constraint or sequence of Constraint
        What the minimum has to satisfy.
    x : Vec [k]
        The start, within its bounds; not changed.  It need not satisfy the constraints.
    method : "almm" or "ipopt"
        First derivatives only and any k; or few iterations with the Hessian of the Lagrangian,
        dense, the same on every rank.
    limits : (Vec, Vec), optional
        Bounds of x.
    gradient_tolerance : float
        Largest stationarity and complementarity, see ``Optimality``.
    constraint_tolerance : float
        Largest violation, in the constraints' scales.
    max_iterations : int
        Outer iterations of "almm", Newton steps of "ipopt".
    options : mapping, optional
        PETSc options without the dash; of "ipopt" IPOPT's options by their names.
    report : callable, optional
        Gets (``KktIterate``, x) on every rank.

    Returns
    -------
    ConstrainedResult
        Also when the tolerances were not met.

    Raises
    ------
    InputError
        Constraints that do not fit the functional.
    UnsupportedError
        "ipopt" where second derivatives are missing, or for too many unknowns.
    OptionError
        An option that nothing reads, or that TAO or IPOPT refuses.
    SolveError
        J or a constraint does not exist at the start.

    Source
    ------
    Nocedal and Wright, Numerical Optimization, 2006, chapters 17 and 19.

    Examples
    --------
    >>> from daeosens import ODE, Parameter, Parameters, Reduced, Running, Stepping, Terminal
    >>> from daeosens.optimize.constrained.constraints import Constraint
    >>> pull = ODE(lambda t, u, p: p[0] - u, size=1, parameters=["force"])
    >>> effort = Running(lambda t, u, p: p[0] ** 2)
    >>> control = Parameters({"force": Parameter(0.0)}, initial_state=[0.0])
    >>> functional = Reduced(pull, effort, Stepping((0.0, 1.0), "rk4", dt=0.1), control)
    >>> target = Constraint(Terminal(lambda t, u, p: u[0]), lower=1.0, name="position")
    >>> result = minimize_constrained(functional, target, functional.start())
    >>> result.converged, round(result.value, 4), result.multipliers["position"].round(3)
    (True, 2.5027, array([-5.005]))
    """
    begin = time.perf_counter()
    chosen: Options = {} if options is None else options
    if method == "ipopt":
        check_casadi()
    else:
        validate_names(chosen, "minimize options", prefixes=PREFIXES)
    lagrangian = Lagrangian(functional, constraints, x)
    if method == "ipopt":
        _check_dense(lagrangian, limits)
        lagrangian.check_second_order()
    local = None if limits is None else (read(limits[0]).copy(), read(limits[1]).copy())
    search = SearchRecord(
        lagrangian, local, gradient_tolerance, constraint_tolerance, int(max_iterations), report
    )
    form = search.begin(x)
    if method == "ipopt":
        reason = Ipopt(search, x, chosen).run()
    else:
        reason = _run(search, form, x, chosen, limits)
    return constrained_result(search, method, reason, time.perf_counter() - begin)


def _check_dense(lagrangian: Lagrangian, limits: Bounds | None) -> None:
    # Unknowns, their two bounds each, and the constraints.
    rows = lagrangian.x.getSize() * (1 if limits is None else 3) + len(lagrangian.labels)
    if rows > LARGEST_DENSE:
        raise UnsupportedError(
            f"ipopt with about {rows} rows in its dense KKT matrix",
            expected=f"at most {LARGEST_DENSE}",
            remedy='method="almm"',
        )


def _run(
    search: SearchRecord,
    form: StandardForm,
    start: PETSc.Vec,
    chosen: Options,
    limits: Bounds | None,
) -> int:
    """Set TAO's augmented Lagrangian up, run it and return its reason to stop."""
    x: PETSc.Vec = start.copy()
    wiring = AugmentedLagrangian(search, form, x)
    tao = PETSc.TAO().create(x.comm)
    try:
        tao.setType("almm")
        # TAO's own rules are off; SearchRecord decides, with residuals that do not depend on
        # units.
        tao.setTolerances(0.0, 0.0, 0.0)
        tao.setConstraintTolerances(0.0, 0.0)
        tao.setMaximumFunctionEvaluations(PETSc.UNLIMITED)
        tao.setSolution(x)
        if limits is not None:
            tao.setVariableBounds(limits)
        views = {name: value for name, value in chosen.items() if "view" in name}
        others = {name: value for name, value in chosen.items() if "view" not in name}
        with scoped_options(code=views), scoped_options(code=others) as scope:
            with scoped_options(defaults=DEFAULTS):  # not for the solvers of forward runs
                _read_options(tao)
                if PETSc.Options().hasName("tao_max_it"):
                    search.max_iterations = tao.getMaximumIterations()
                # Read above from the option, if there is one; the record counts from here.
                tao.setMaximumIterations(PETSc.UNLIMITED)
                wiring.attach(tao)
                tao.setUp()
            scope.check_used()
            return wiring.run(tao, scope)
    finally:
        tao.destroy()
        wiring.destroy()
        x.destroy()


def _read_options(tao: PETSc.TAO) -> None:
    tao.setFromOptions()
    if tao.getType() != "almm":
        raise InputError(
            f'option tao_type = {tao.getType()} with method "almm" and constraints',
            expected="the method as an argument",
        )
    form: Any = tao.getALMMType()
    if form != PETSc.TAO.ALMMType.PHR:
        raise InputError(
            "option tao_almm_type = classic",
            expected='"phr"',
            remedy="the multipliers of the other form cannot be had from petsc4py 3.26",
        )
