"""Sweeps in C through events: the numbers of the sweep by steps in Python."""

from dataclasses import replace

import numpy as np
import pytest
from support.sweeps import in_c

import daeosens as ds
from daeosens.derivatives.engines.compiled import adjoint as compiled_adjoint
from daeosens.derivatives.engines.compiled import hessian as second_order

OBSERVED = [0.31, 1.7]
STEPPINGS = [
    ds.Stepping((0.0, 3.0), "rk4", dt=0.05),
    ds.Stepping((0.0, 3.0), "rk5dp", dt=0.05, rtol=1e-8, atol=1e-8),
    ds.Stepping((0.0, 3.0), "cn", dt=0.05),
    ds.Stepping((0.0, 3.0), "midpoint", dt=0.05),
    ds.Stepping((0.0, 3.0), "esdirk4", dt=0.05),
]
U0, P = np.array([1.0, 0.0]), np.array([9.81, 0.8, 0.1])
COST = ds.Terminal(lambda t, u, p: u[0] * u[1] + p[2] ** 2) + ds.LeastSquares(
    OBSERVED, [[0.1, 0.2], [0.3, -0.5]]
)


def ball(autonomous=True):
    """A ball with drag that bounces with the restitution p[1], which grows each time."""
    bounce = ds.Event(
        lambda t, u, p: u[0],
        lambda t, u, p: [0.0 * u[0], -p[1] * u[1]],
        direction=-1,
        changes={"restitution": lambda t, u, p: 1.05 * p[1]},
        name="bounce",
    )
    return ds.trace(
        lambda t, u, p: [u[1], -p[0] - p[2] * (1.0 if autonomous else np.cos(t)) * u[1]],
        2,
        ["gravity", "restitution", "drag"],
        events=[bounce],
        running=lambda t, u, p: u[0] ** 2,
    )


def thermostat():
    """A heater, whose power is p[0], that is off above p[1] and on below p[2]."""
    hot = ds.Event(lambda t, u, p: u[0] - p[1], direction=1, mode="off", name="hot")
    cold = ds.Event(lambda t, u, p: u[0] - p[2], direction=-1, mode="on", name="cold")

    def mode(on):
        names = ["power", "high", "low"]
        return ds.trace(lambda t, u, p: [on * p[0] - u[0], u[0] - 0.3 * u[1]], 2, names)

    return ds.hybrid({"on": mode(1.0), "off": mode(0.0)}, "on", [hot, cold])


MODELS = {
    "ball": (ball(), U0, P),
    "ball whose drag depends on the time": (ball(autonomous=False), U0, P),
    "thermostat": (thermostat(), np.array([0.5, 0.1]), np.array([1.3, 0.8, 0.6])),
}


@pytest.mark.parametrize("stepping", STEPPINGS, ids=lambda item: item.method)
@pytest.mark.parametrize("name", MODELS)
def test_same_numbers_as_in_python(name, stepping, monkeypatch):
    problem, u0, p = MODELS[name]
    run = ds.solve(problem, u0, p, stepping, OBSERVED)
    assert len(run.crossings) > 2
    carried = []
    value = compiled_adjoint.carrier

    def counted(*arguments):
        carry = value(*arguments)

        def carry_and_count(first, last, *more):
            carried.append(last - first)
            return carry(first, last, *more)

        return carry_and_count

    monkeypatch.setattr(compiled_adjoint, "carrier", counted)
    costs = [COST, ds.Terminal(lambda t, u, p: t * u[0])]
    sensitivity = ds.adjoint(run, costs)
    smooth = run.records
    timed = sum(item.timed or item.jump is not None or item.ends_at is not None for item in smooth)
    assert sum(carried) >= run.n_steps - timed > 0
    if name != "ball whose drag depends on the time":
        assert sum(carried) >= run.n_steps - 3 * len(run.crossings)
    for gradient, expected in zip(sensitivity, ds.adjoint(run, costs, "vectors"), strict=True):
        assert gradient.engine == "compiled"
        np.testing.assert_allclose(gradient.u0, expected.u0, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(gradient.p, expected.p, rtol=1e-12, atol=1e-13)


def without_products(problem):
    """Return equations whose steps cannot be linearised in C."""
    kept = {name: entry for name, entry in problem.native.items() if name != "push"}
    modes = {name: without_products(mode) for name, mode in problem.modes.items()}
    return replace(problem, native=kept, modes=modes)


@pytest.mark.parametrize("method", ["rk4", "rk5dp", "esdirk4"])
@pytest.mark.parametrize("name", MODELS)
def test_tangents_and_second_order_between_events_are_those_of_steps(name, method, monkeypatch):
    problem, u0, p = MODELS[name]
    stepping = replace(STEPPINGS[0], method=method)
    done = []
    value = second_order.carry_second

    def counted(window, *arguments):
        result = value(window, *arguments)
        done.append(0 if result is None else window.n_steps)
        return result

    monkeypatch.setattr(second_order, "carry_second", counted)
    runs = [
        ds.solve(value, u0, p, stepping, OBSERVED) for value in (problem, without_products(problem))
    ]
    du, dp = np.array([0.3, -0.8]), np.array([0.5, 0.2, -0.1])
    ours, theirs = (ds.tangent(run, du, dp) for run in runs)
    np.testing.assert_allclose(ours.u, theirs.u, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(ours.times, theirs.times, rtol=1e-11, atol=1e-12)
    product = ds.hessian_product(runs[0], COST, du, dp)
    assert sum(done) > len(runs[0].crossings)
    done.clear()
    expected = ds.hessian_product(runs[1], COST, du, dp)
    assert not any(done)
    for of in (lambda x: x.u0, lambda x: x.p, lambda x: x.gradient.u0, lambda x: x.gradient.p):
        np.testing.assert_allclose(of(product), of(expected), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("stepping", STEPPINGS, ids=lambda item: item.method)
@pytest.mark.parametrize("name", MODELS)
def test_adjoint_and_tangent_agree(name, stepping):
    problem, u0, p = MODELS[name]
    run = ds.solve(problem, u0, p, stepping, OBSERVED)
    gradient = ds.adjoint(run, COST)
    du, dp = np.array([0.3, -0.8]), np.array([0.5, 0.2, -0.1])
    expected = ds.tangent(run, du, dp).derivative(COST)
    assert gradient.u0 @ du + gradient.p @ dp == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["ball", "thermostat"])
def test_gradient_has_taylor_order_two(name):
    problem, u0, p = MODELS[name]
    names = problem.parameter_names
    control = ds.Parameters(
        {item: ds.Parameter(value) for item, value in zip(names, p, strict=True)}, initial_state=u0
    )
    reduced = ds.Reduced(problem, COST, STEPPINGS[0], control)
    value, gradient = reduced.value_and_gradient(p)
    dx = np.array([0.4, -0.03, 0.02])
    sizes = [2e-3 / 2**k for k in range(4)]
    rest = [abs(reduced.value(p + h * dx) - value - h * float(gradient.array @ dx)) for h in sizes]
    assert np.min(np.log2(np.divide(rest[:-1], rest[1:]))) > 1.9


@pytest.mark.parametrize("stepping", STEPPINGS, ids=lambda item: item.method)
def test_gradients_are_those_of_the_closed_form(stepping):
    """A ball without drag, which all these methods follow exactly, after its first bounce."""
    bounce = ds.Event(
        lambda t, u, p: u[0], lambda t, u, p: [0.0 * u[0], -p[1] * u[1]], direction=-1, name="b"
    )
    model = ds.trace(lambda t, u, p: [u[1], -p[0]], 2, ["gravity", "restitution"], events=[bounce])

    def height(z, v, g, r, t=1.9):
        fast = np.sqrt(v * v + 2.0 * g * z)
        after = t - (v + fast) / g
        return r * fast * after - 0.5 * g * after**2

    point = np.array([5.0, -0.1, 10.0, 0.8])
    chosen = replace(stepping, t_span=(0.0, 1.9), dt=0.03)
    run = ds.solve(model, point[:2], point[2:], chosen)
    cost = ds.Terminal(lambda t, u, p: u[0])
    assert in_c(run, [cost.lower(model, 1.9)]) is not None
    gradient = ds.adjoint(run, cost)
    expected = [height(*(point + step)).imag / 1e-30 for step in 1e-30j * np.eye(4)]
    assert expected[0] == pytest.approx(0.83782811, abs=1e-8)
    assert gradient.value == pytest.approx(height(*point), rel=1e-9)
    np.testing.assert_allclose([*gradient.u0, *gradient.p], expected, rtol=1e-9)


def test_one_unknown_without_parameters():
    """Of u' = -u, which begins anew with 3 u as it falls to 1/2: du/du0 = 3 exp(-t)."""
    half = ds.Event(lambda t, u, p: u[0] - 0.5, lambda t, u, p: 3.0 * u, direction=-1, name="half")
    model = ds.trace(lambda t, u, p: -u, 1, events=[half])
    run = ds.solve(model, [0.8], None, ds.Stepping((0.0, 1.0), "rk8vr", dt=0.03))
    cost = ds.Terminal(lambda t, u, p: u[0])
    assert in_c(run, [cost.lower(model, 1.0)]) is not None
    gradient = ds.adjoint(run, cost)
    assert gradient.u0[0] == pytest.approx(3.0 * np.exp(-1.0), rel=1e-11)
    assert gradient.p.size == 0


@pytest.mark.parametrize("stepping", STEPPINGS[:3], ids=lambda item: item.method)
def test_remainders_are_of_second_order_where_the_start_follows_the_parameters(stepping):
    problem, u0, p = MODELS["ball"]
    control = ds.Parameters(
        dict(zip(problem.parameter_names, map(ds.Parameter, p.tolist()), strict=True)),
        lambda p: [u0[0] * p[1] / 0.8, 0.1 * np.sin(p[2])],
    )
    fixed = ds.Stepping(stepping.t_span, stepping.method, dt=stepping.dt)
    reduced = ds.Reduced(problem, COST, fixed, control)
    assert min(ds.taylor(reduced, p, direction=[0.4, -0.03, 0.02])) > 1.9


def test_modes_without_an_event_are_swept_in_c():
    problem, u0, p = MODELS["thermostat"]
    run = ds.solve(problem, u0, p, ds.Stepping((0.0, 0.1), "rk4", dt=0.05))
    assert not run.crossings
    cost = ds.Terminal(lambda t, u, p: u[0] * p[0])
    gradient, expected = (ds.adjoint(run, cost, engine) for engine in ("compiled", "vectors"))
    np.testing.assert_allclose(gradient.u0, expected.u0, rtol=1e-14)
    np.testing.assert_allclose(gradient.p, expected.p, rtol=1e-14)


def test_other_sweeps_serve_running_costs_and_python():
    problem, u0, p = MODELS["ball"]
    in_numpy = ds.ODE(
        lambda t, u, p: np.array([u[1], -p[0] + 0.0 * u[0]]),
        2,
        problem.parameter_names,
        events=problem.events,
    )
    cases = [
        (ds.solve(problem, u0, p, STEPPINGS[0]), problem.running),
        (ds.solve(problem, u0, p, STEPPINGS[0]), ds.Running(lambda t, u, p: u[0])),
        (ds.solve(in_numpy, u0, p, STEPPINGS[0]), ds.Terminal(lambda t, u, p: u[0])),
    ]
    for run, cost in cases:
        lowered = [cost.lower(run.problem, run.times[-1])]
        assert in_c(run, lowered) is None
        assert ds.adjoint(run, cost).engine == "arrays"


def test_values_that_are_not_finite_are_named():
    """The slope is infinite where the run begins; C leaves it to Python to say so."""
    half = ds.Event(lambda t, u, p: u[0] - 0.5, direction=1, name="half")
    model = ds.trace(lambda t, u, p: [1.0 + np.sqrt(u[0]) * p[0]], 1, ["rate"], events=[half])
    run = ds.solve(model, [0.0], [1.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    assert run.crossings
    with pytest.raises(ds.SolveError, match=r"not finite|returned"):
        ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]), "vectors")
