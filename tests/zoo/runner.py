"""Run a case as a first-time user would, and compare with the truth."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc

import daeosens as ds
from daeosens.problem.grids import Grid
from zoo import TRUTH
from zoo.case import Case
from zoo.fits import FitCase

REFUSALS = (ds.UnsupportedError, ds.InputError)
WRONG = 0.05  # relative; discretisation of a run with these tolerances explains less


@dataclass(frozen=True)
class Outcome:
    """What came of a case in one style."""

    verdict: str
    """"right", "inaccurate", "wrong", "warned", "refused", "failed"."""
    errors: tuple[float, ...] | None
    """Of value, gradient and Hessian product, relative to their sizes; of a fit those of
    estimates beside their standard errors, and of these."""
    seconds: float  # of the processor
    message: str = ""


def make_problem(case: Case, style: str) -> Any:
    """Return the problem as ds.ODE, ds.DAE or ds.trace makes it."""
    names = list(case.p)
    keywords: dict[str, Any] = {}
    if case.events:
        keywords["events"] = [ds.Event(**event) for event in case.events]
    if len(case.breakpoints):
        keywords["breakpoints"] = case.breakpoints
    if style == "stencil":
        at_a_point, shape = case.stencil
        return ds.trace_stencil(at_a_point, Grid(**shape, comm=PETSc.COMM_SELF), names)
    if case.residual is not None:
        return ds.DAE(case.residual, size=len(case.u0), parameters=names, **keywords)
    if case.mass is not None:
        keywords["mass"] = case.mass
    make = ds.ODE if style == "numpy" else ds.trace
    if case.modes:
        events = keywords.pop("events")
        modes = {
            name: make(rhs, size=len(case.u0), parameters=names, **keywords)
            for name, rhs in case.modes.items()
        }
        if style == "traced":
            events = [modes[case.start].event(event) for event in events]
        return ds.hybrid(modes, start=case.start, events=events)
    return make(case.rhs, size=len(case.u0), parameters=names, **keywords)


def mean_square() -> ds.Terminal:
    """Return the mean of the squares of all unknowns, for PETSc's vectors."""

    def gradient(t, u, p, out):
        u.copy(out)
        out.scale(2 / u.size)

    def hessian(t, u, p, du, dp, out):
        gradient(t, du, p, out)
        return 0 * p

    return ds.Terminal(
        lambda t, u, p: u.dot(u) / u.size, gradient, "independent", hessian_product=hessian
    )


def make_objective(case: Case, style: str) -> Any:
    """Return the sum of the costs of a case."""
    if style == "stencil":
        return mean_square()
    terms: list[Any] = []
    if case.terminal is not None:
        terms.append(ds.Terminal(case.terminal))
    if case.running is not None:
        terms.append(ds.Running(case.running))
    if case.observed is not None:
        times, indices, data, sigma = case.observed
        terms.append(ds.LeastSquares(times, data, sigma, observe=list(indices)))
    if case.event_time is not None:
        terms.append(ds.costs.EventTime(*case.event_time))
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def make_stepping(case: Case, **more: Any) -> ds.Stepping:
    """Return the method and tolerances of a case, everything else by default."""
    chosen = {"dt": case.dt, "rtol": case.rtol, "atol": case.atol}
    by_name = {name: value for name, value in chosen.items() if value is not None}
    return ds.Stepping(case.span, case.method, **by_name, **more)


def derivatives(case: Case, style: str, **more: Any) -> tuple[float, np.ndarray, np.ndarray]:
    """Return value, gradient and Hessian product of a case along its directions."""
    n = len(case.u0)
    problem, objective, stepping = (
        make_problem(case, style),
        make_objective(case, style),
        make_stepping(case, **more),
    )
    p = np.array(list(case.p.values()), dtype=float)
    v = case.hessian_direction
    if case.consistent:
        values = {name: ds.Parameter(value) for name, value in case.p.items()}
        control = ds.Parameters(values, initial_state=case.u0, consistent=True)
        reduced = ds.Reduced(problem, objective, stepping, control)
        x = reduced.start()
        dx = x.duplicate()
        dx.setArray(v[n:])
        value, gradient = reduced.value_and_gradient(x)
        product = reduced.hessian_product(x, dx)
        by_x = np.concatenate([np.zeros(n), gradient.getArray()])
        along = np.concatenate([np.zeros(n), product.getArray()])
    else:
        times = () if case.observed is None else case.observed[0]
        u0, du0 = np.array(case.u0, dtype=float), v[:n]
        if style == "stencil":
            u0, du0 = (
                PETSc.Vec().createWithArray(a.copy(), comm=PETSc.COMM_SELF) for a in (u0, du0)
            )
        run = ds.solve(problem, u0, p, stepping, times)
        sensitivity = ds.adjoint(run, objective)
        value = sensitivity.value
        product = ds.hessian_product(run, objective, du0, v[n:])
        by_x = np.concatenate([np.asarray(sensitivity.u0), sensitivity.p])
        along = np.concatenate([np.asarray(product.u0), product.p])
    directions = case.directions
    return value, directions @ by_x, directions @ along


def distance(ours: Any, truth: Any) -> float:
    """Return the largest error, relative to its entry or to a hundredth of the largest one."""
    ours, truth = np.atleast_1d(ours), np.atleast_1d(truth)
    floor = 0.01 * abs(truth).max()
    return float((abs(ours - truth) / np.maximum(abs(truth), floor or 1.0)).max())


def fit(case: FitCase, style: str) -> tuple[np.ndarray, np.ndarray]:
    """Return estimates and standard errors of ds.fit with all defaults."""
    make = ds.ODE if style == "numpy" else ds.trace
    problem = make(case.rhs, size=len(case.u0), parameters=list(case.guess))
    guess = {name: ds.Parameter(value, scale=case.scale) for name, value in case.guess.items()}
    parameters = ds.Parameters(guess, initial_state=case.u0)
    stepping = ds.Stepping(case.span, case.method, rtol=case.rtol)
    fitted = ds.fit(problem, case.data, parameters, stepping, observe=list(case.observe))
    estimate = np.array([fitted.estimate[name] for name in case.guess])
    return estimate, np.array([fitted.covariance.error(name) for name in case.guess])


def measure(case: Case | FitCase, style: str) -> tuple[float, ...]:
    """Return the errors of what a case asks for."""
    truth = TRUTH[case.name]
    if isinstance(case, FitCase):
        estimate, errors = fit(case, style)
        sizes = np.array(truth["standard_error"])
        return (
            float((abs(estimate - truth["estimate"]) / sizes).max()),
            float(abs(errors / sizes - 1).max()),
        )
    value, gradient, hessian = derivatives(case, style)
    return (
        distance(value, truth["value"]),
        distance(gradient, truth["gradient"]),
        distance(hessian, truth["hessian"]),
    )


def run(case: Case | FitCase, style: str) -> Outcome:
    """Run a case and judge it."""
    begin = time.process_time()
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            errors = measure(case, style)
    except Exception as error:  # noqa: BLE001 - whatever a user would see
        message = f"{type(error).__name__}: {error}"
        # a higher index than one is found by solving for a consistent start
        plain = isinstance(error, REFUSALS) or "expected: index" in message
        verdict = "refused" if plain else "failed"
        return Outcome(verdict, None, time.process_time() - begin, message)
    seconds = time.process_time() - begin
    if all(error <= limit for error, limit in zip(errors, case.tolerances, strict=True)):
        return Outcome("right", errors, seconds)
    if seen:
        return Outcome("warned", errors, seconds, str(seen[0].message))
    return Outcome("inaccurate" if max(errors) < WRONG else "wrong", errors, seconds)
