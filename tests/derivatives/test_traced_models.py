"""Derivatives of traced models, in C where they can be: every method, cost and engine."""

from dataclasses import replace
from functools import cache

import frozen
import numpy as np
import pytest
from forms import (
    COSTS,
    DIAGONAL,
    FORMS,
    MASS,
    NAMES,
    NO_ESTIMATE,
    OBSERVATION_TIMES,
    P0,
    RUNS,
    SINGULAR,
    U0,
    density,
    make_stepping,
    rhs,
)

from daeosens import Terminal, adjoint, hessian_product, sensitivities, solve, tangent, trace
from daeosens.methods import find_method

MASSES = {"rhs": None, "M": MASS, "M singular": SINGULAR}
CASES = [
    (name, method, adaptive, checkpoint)
    for name, method, adaptive in RUNS
    for checkpoint in ("states", "stages")
    if name in MASSES
    and (checkpoint == "states" or (name == "rhs" and (adaptive or method in NO_ESTIMATE)))
]
KINDS = ("terminal", "running", "observations", "sum")
CURVED = ("terminal", "sum")


@cache
def traced(name):
    return trace(rhs, 3, NAMES, mass=MASSES[name], running=density)


def stepping_of(name, method, *, adaptive):
    """Newton's method to rounding: by options, which steps in C need not, and would not take."""
    stepping = make_stepping(method, adaptive=adaptive)
    return replace(stepping, options={}) if name == "rhs" and method in DIAGONAL else stepping


def objectives(model):
    """The costs of ``forms`` with the density that was traced."""
    plain = {name: COSTS[name].objective for name in KINDS}
    parts = plain["terminal"] + 0.7 * model.running + plain["observations"]
    return plain | {"running": model.running, "sum": parts + COSTS["prior"].objective}


def engines(name, method):
    by_steps = find_method(method).stagewise and name != "rhs"
    return ("auto", "vectors") if by_steps else ("auto", "vectors", "arrays")


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * max(abs(theirs).max(), 0.1))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method", "adaptive", "checkpoint"), CASES)
def test_derivatives_are_those_of_independent_programs(name, method, adaptive, checkpoint, rng):
    """Of first order by complex step, of second order by NumPy callbacks on the same steps."""
    stepping = stepping_of(name, method, adaptive=adaptive)
    run = solve(traced(name), U0, P0, stepping, OBSERVATION_TIMES, checkpoint=checkpoint)
    costs = objectives(run.problem)
    log = (run.times, run.step_sizes)
    point = (FORMS[name], method, log, [COSTS[kind] for kind in KINDS], U0, P0)
    exact, values = np.hstack(frozen.gradients(*point)), frozen.values(*point)
    in_numpy = replace(run, problem=FORMS[name].analytic)
    du, dp = rng.normal(size=3), rng.normal(size=3)
    expected = tangent(in_numpy, du, dp, "vectors").u
    curved = {kind: hessian_product(in_numpy, COSTS[kind].objective, du, dp) for kind in CURVED}
    for engine in engines(name, method):
        sensitivity = adjoint(run, [costs[kind] for kind in KINDS], engine)
        moved = tangent(run, du, dp, engine)
        close(moved.u, expected)
        for k, (kind, gradient) in enumerate(zip(KINDS, sensitivity, strict=True)):
            close(np.append(gradient.u0, gradient.p), exact[k])
            assert gradient.value == pytest.approx(values[k], rel=1e-12)
            forth = moved.derivative(costs[kind])
            assert abs(forth - gradient.u0 @ du - gradient.p @ dp) < 1e-12 * max(abs(forth), 1.0)
        for kind, theirs in curved.items():
            ours = hessian_product(run, costs[kind], du, dp, engine)
            close(np.append(ours.u0, ours.p), np.append(theirs.u0, theirs.p))


def everything(run):
    """What derivatives a trajectory gives."""
    end = Terminal(lambda t, u, p: u[0] ** 2 * p[2] + u[1] * u[2])
    total = end + run.problem.running
    gradient, product = adjoint(run, total), hessian_product(run, end, [1.0, 2.0, 0.0], P0)
    by = sensitivities(run)
    parts = gradient.u0, gradient.p, product.u0, product.p, by.u0, by.p, run.u
    return np.concatenate([np.ravel(part) for part in parts])


METHODS = ["rk4", "rk5dp", "rk8vr", "cn", "esdirk4"]


@pytest.mark.parametrize("checkpoint", ["states", "stages"])
@pytest.mark.parametrize("method", METHODS)
def test_a_trajectory_stays_what_it_is(method, checkpoint):
    """Whatever is solved after it, by the same TS, and whatever becomes of the user's arrays."""
    model, stepping = traced("rhs"), stepping_of("rhs", method, adaptive=method != "rk4")
    u0, p = np.zeros((3, 2)), P0.copy()
    u0[:, 1] = U0
    run = solve(model, u0[:, 1], p, stepping, checkpoint=checkpoint)
    expected = everything(run)
    u0[:], p[:] = 7.0, 9.0
    later = [solve(model, k * U0, P0, stepping, checkpoint=checkpoint) for k in (0.5, 1.0, 1.5)]
    np.testing.assert_array_equal(everything(later[1]), expected)
    np.testing.assert_array_equal(everything(run), expected)
    del later
    np.testing.assert_array_equal(everything(run), expected)


@pytest.mark.parametrize("method", ["rk1fe", *METHODS])
def test_stages_of_the_first_steps_only(method):
    model, stepping = traced("rhs"), stepping_of("rhs", method, adaptive=False)
    expected = everything(solve(model, U0, P0, stepping))
    run = solve(model, U0, P0, stepping, checkpoint="stages")
    run = replace(run, kept=run.kept[:3] if isinstance(run.kept, np.ndarray) else {})
    assert len(run.kept) < run.n_steps
    close(everything(run), expected)
