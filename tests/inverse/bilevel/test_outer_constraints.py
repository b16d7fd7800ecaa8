"""Constraints of the outer problem: derivatives exact, the optimum that SciPy finds, refusals."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from bilevel_data import NAMES, TIMES, measured, predators, unknowns
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize

import daeosens as ds
from daeosens import Constraint, Experiment, InputError, Parameter, Parameters, SolveError
from daeosens.inverse import bilevel
from daeosens.inverse.bilevel.formulation import Formulation, bilevel_functional
from daeosens.inverse.bilevel.outer_constraints import Followed
from daeosens.petsc import gather


@pytest.fixture(scope="module")
def model():
    return ds.trace(predators, ["prey", "predator"], NAMES)


@pytest.fixture(scope="module")
def data(model):
    return measured(model, TIMES[:60], noise=0.03)


@pytest.mark.parametrize(
    ("extra", "formulation"),
    [
        ({}, Formulation()),
        ({"eat": Parameter(2.0)}, Formulation(linear=["grow", "die", "feed"], ridge=0.1)),
        (
            {"feed": Parameter(0.01, upper=0.02)},
            Formulation(equalities=[({"grow": 1.0, "eat": -1.0}, -0.3)]),
        ),
    ],
    ids=["plain", "ridge", "active"],
)
def test_parameters_that_follow_have_exact_derivatives(model, data, extra, formulation):
    entries = Parameters(unknowns(1.0, **extra), None)
    functional = bilevel_functional(model, [Experiment(data)], entries, formulation)[0]
    followed = Followed(functional, tuple(NAMES), {})
    x = gather(functional.start())
    direction = np.linspace(0.5, 1.0, len(x))
    slope = followed.jacobian(x) @ direction
    assert np.abs(slope).max() > 0.01
    rests = [
        np.abs(followed.values(x + h * direction) - followed.values(x) - h * slope).max()
        for h in (1e-2, 5e-3, 2.5e-3)
    ]
    assert np.log2(np.array(rests[:-1]) / rests[1:]) == pytest.approx([2.0, 2.0], abs=0.05)


def independent(data, phi):
    """Linear parameters and value at (half, eat), from SciPy's splines and least squares."""
    half, eat = phi
    t, prey, predator = data["time"], data["prey"], data["predator"]
    nodes, weights = np.polynomial.legendre.leggauss(3)
    steps = np.diff(t)
    at = t[:-1, None] + 0.5 * steps[:, None] * (nodes + 1.0)
    u, v = CubicSpline(t, prey)(at), CubicSpline(t, predator)(at)
    eaten = eat * u * v / (half + u)

    def integral(rates):
        return np.append(0.0, np.cumsum(0.5 * steps * (rates @ weights)))

    zero, one = np.zeros_like(u), np.ones_like(t)
    columns = [u * (1.0 - 0.3 * u), zero], [zero, -v], [zero, zero + 1.0]
    matrix = np.array(
        [
            np.concatenate([integral(a) / prey.std(), integral(b) / predator.std()])
            for a, b in columns
        ]
    )
    starts = np.array([np.append(one, 0.0 * one), np.append(0.0 * one, one)])
    target = np.concatenate(
        [(prey + integral(eaten)) / prey.std(), (predator - integral(0.8 * eaten)) / predator.std()]
    )
    p, *_ = np.linalg.lstsq(np.vstack([matrix, starts]).T, target)
    rest = np.vstack([matrix, starts]).T @ p - target
    return p[:3], 0.5 * rest @ rest


def test_the_optimum_under_constraints_is_that_of_scipy(model, data):
    entries = unknowns(1.0, eat=Parameter(2.0))
    both = Constraint(
        lambda p: [p[0] * p[1] ** 2, p[2] + p[0]],
        [2.9, -np.inf],
        [np.inf, 1.73],
        name="both",
        parameters=["grow", "eat", "half"],
    )
    result = bilevel(
        model, data, entries, linear=["grow", "die", "feed"], constraints=both, starts=2
    )

    def margins(phi):
        half, eat = phi
        (grow, _, _), _ = independent(data, phi)
        return np.array([grow * eat**2 - 2.9, 1.73 - half - grow])

    other = minimize(
        lambda phi: independent(data, phi)[1],
        [0.6, 1.5],
        method="SLSQP",
        constraints={"type": "ineq", "fun": margins},
        options={"ftol": 1e-14},
    )
    free = bilevel(model, data, entries, linear=["grow", "die", "feed"])
    assert result.value > free.value + 1e-4
    assert result.value == pytest.approx(other.fun, rel=1e-7)
    assert [result.estimate["half"], result.estimate["eat"]] == pytest.approx(other.x, rel=1e-4)
    words, values = result.constraints["both"]
    assert values[0] == pytest.approx(2.9, abs=1e-6)
    assert values[1] <= 1.73 + 1e-6
    assert f"constraint {words}: " in repr(result)


def test_the_search_under_constraints_ends_at_the_tolerance_that_is_asked_for(model, data):
    limit = Constraint(lambda p: p[0], upper=1.1, parameters=["eat"], name="eat")
    entries = unknowns(1.0, eat=Parameter(2.0))
    linear = ["grow", "die", "feed"]
    found = {
        tolerance: bilevel(
            model,
            data,
            entries,
            linear=linear,
            constraints=limit,
            gradient_tolerance=tolerance,
        )
        for tolerance in (0.1, 1e-12)
    }
    ended = {tolerance: result.starts.best for tolerance, result in found.items()}
    assert ended[0.1].iterations < ended[1e-12].iterations
    assert ended[0.1].gradient_norm > 10.0 * ended[1e-12].gradient_norm
    assert found[0.1].value == pytest.approx(found[1e-12].value, rel=0.1)


def test_ctrl_c_leaves_the_starts_that_were_minimised_under_constraints(model, data, monkeypatch):
    module = sys.modules[bilevel.__module__]
    asked = []

    def interrupted(build, points, **settings):
        asked.append(len(points))
        attempts = minimized(build, points, **settings)
        return replace(attempts, attempts=attempts.attempts[1:2], interrupted=True)

    def first(build, points, **settings):
        monkeypatch.setattr(module, "multistart", interrupted)
        return minimized(build, points, **settings)

    minimized = module.multistart
    monkeypatch.setattr(module, "multistart", first)
    limit = Constraint(lambda p: p[0], upper=1.1, parameters=["eat"], name="eat")
    result = bilevel(model, data, unknowns(1.0), constraints=limit, starts=3)
    assert asked == [3]
    assert [attempt.index for attempt in result.starts.attempts] == [1]
    assert result.starts.interrupted
    assert result.estimate["eat"] == pytest.approx(1.1, rel=1e-6)


def test_starts_far_from_where_constraints_hold_lead_to_the_same_minimum():
    """Of FitzHugh and Nagumo's equations: steps without a trust region do not come back."""

    def nerve(t, u, p):
        v, w = u
        return np.array([p.c * (v - v**3 / 3.0 + w), -(v - p.a + p.b * w) / p.c])

    model, t = ds.trace(nerve, ["v", "w"], ["a", "b", "c"]), np.linspace(0.0, 20.0, 101)
    run = ds.solve(
        model, [-1.0, 1.0], [0.2, 0.2, 3.0], ds.Stepping((0.0, 20.0), "rk6vr", rtol=1e-8), t
    )
    noise = 0.05 * np.random.default_rng(0).standard_normal((101, 2))
    data = {"t": t, "v": (run.at(t) + noise)[:, 0], "w": (run.at(t) + noise)[:, 1]}
    limit = {"lower": 2.0, "parameters": ["a", "c"], "name": "product"}
    results = [
        bilevel(
            model,
            data,
            {name: Parameter(x, scale="log") for name, x in zip("abc", first, strict=True)},
            linear=[],
            constraints=Constraint(lambda p: p[0] * p[1], **limit),
        )
        for first in ([0.2, 0.2, 3.0], [2.0, 0.1, 0.3])
    ]
    assert results[1].value == pytest.approx(results[0].value, rel=1e-6)
    assert results[1].estimate["a"] == pytest.approx(results[0].estimate["a"], rel=1e-3)
    assert results[1].constraints["product"][1] == pytest.approx(2.0, rel=1e-7)


def test_jacobians_of_constraints_are_taken(model, data):
    entries = unknowns(1.0)
    known = {"parameters": ["eat", "half"], "lower": 1.2, "name": "product"}
    automatic = Constraint(lambda p: p[0] * p[1], **known)
    by_hand = Constraint(lambda p: p[0] * p[1], jacobian=lambda p: [p[1], p[0]], **known)
    one, other = (bilevel(model, data, entries, constraints=c) for c in (automatic, by_hand))
    assert one.estimate == pytest.approx(other.estimate, rel=1e-9)
    assert one.estimate["eat"] * one.estimate["half"] == pytest.approx(1.2, rel=1e-7)


def test_constraints_that_cannot_be_taken_are_refused_by_name(model, data):
    entries = unknowns(1.0)

    def refused(match, constraint, error=InputError, parameters=entries):
        with pytest.raises(error, match=match):
            bilevel(model, data, parameters, constraints=constraint)

    def limit(**extra):
        return Constraint(lambda p: p[0], upper=-1.0, name="limit", **extra)

    refused('constraint "limit" names parameter "hlaf"', limit(parameters=["hlaf"]))
    refused('constraint "limit" names no parameters', limit())
    refused(r"constraints\[0\] is a str", ["half"])
    refused(
        'constraint "limit" has hessian=',
        limit(parameters=["half"], hessian=lambda p, v: np.zeros((1, 1))),
    )
    refused(
        r'jacobian of constraint "limit" has shape \(1, 2\)',
        limit(parameters=["half"], jacobian=lambda p: [1.0, 2.0]),
    )
    refused('"limit" = .* stays .* away from its bound', limit(parameters=["half"]), SolveError)
    known = entries | {"half": Parameter(0.6, free=False)}
    refused("but all free parameters are linear", limit(parameters=["eat"]), parameters=known)
    known = entries | {"eat": Parameter(1.6, free=False)}
    refused(
        "on parameters that are not estimated: eat", limit(parameters=["eat"]), parameters=known
    )
