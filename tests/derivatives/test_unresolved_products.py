"""Hessian products of adaptive runs that resolve their states alone are told of."""

import re
import warnings

import numpy as np
import pytest

import daeosens as ds
from daeosens.derivatives.divided import divided
from daeosens.derivatives.looks.products import warn_of_unresolved_products
from daeosens.derivatives.looks.seen import Seen
from daeosens.errors import DiscretizationWarning

START = [1.0, 3.0, -2.0, -1.0, 1.0, -1.0, *[0.0] * 6]
MASSES = np.array([3.0, 4.0, 5.0])


def bodies(t, u, p):
    """Three bodies in the plane that start at rest (Burrau)."""
    places = u[:6].reshape(3, 2)
    rates = []
    for i in range(3):
        rate = 0.0 * places[0]
        for j in range(3):
            if j != i:
                away = places[j] - places[i]
                rate = rate + p[j] * away / (away @ away) ** 1.5
        rates.append(rate)
    return np.concatenate([u[6:], *rates])


def product(model, **stepping):
    """Return p times the Hessian of a coordinate in p times a direction, and what was told."""
    run = ds.solve(model, START, MASSES, ds.Stepping((0.0, 3.0), **stepping))
    cost = ds.Terminal(lambda t, u, p: u[0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DiscretizationWarning)
        of_p = ds.hessian_product(run, cost, dp=[1.0, 0.0, 0.0]).p
    return MASSES * of_p, [str(item.message) for item in caught]


def of_products(messages):
    """Return the errors that are told of products with the Hessian."""
    pattern = r"entries of a product with the Hessian are wrong by about ([0-9.]+) %"
    matches = [re.search(pattern, message) for message in messages]
    return [0.01 * float(match.group(1)) for match in matches if match]


def test_products_of_runs_that_resolve_states_alone_are_told():
    """The error that is told is that of the entries, to a factor of three."""
    exact, told = product(ds.trace(bodies, 12, 3), method="rk8vr", rtol=1e-13, atol=1e-15)
    assert not of_products(told)
    rough, told = product(ds.trace(bodies, 12, 3), rtol=1e-8)
    (error,) = of_products(told)
    sizes = np.maximum(np.abs(exact), 0.01 * np.abs(exact).max())
    true = np.max(np.abs(rough - exact) / sizes)
    assert true > 1e-2
    assert true / 3.0 < error < 3.0 * true


def test_products_are_told_where_gradients_are_right():
    """At the jumps of a relaxation oscillation, by steps that are made for first derivatives."""

    def van_der_pol(t, u, p):
        return np.array([u[1], p[0] * (1 - u[0] ** 2) * u[1] - u[0]])

    def second(**stepping):
        model = ds.trace(van_der_pol, 2, ["mu"])
        run = ds.solve(model, [2.0, 0.0], [30.0], ds.Stepping((0.0, 60.0), **stepping))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DiscretizationWarning)
            by_p = ds.hessian_product(run, ds.Terminal(lambda t, u, p: u[0]), dp=[30.0]).p[0]
        return by_p, [str(item.message) for item in caught]

    exact, told = second(method="rk8vr", rtol=1e-13)
    assert not told
    near, told = second(method="rk8vr", rtol=3e-12)
    assert 1e-5 < abs(near / exact - 1.0) < 3e-5
    assert "are wrong by about 0.0037 %" in told[0]  # of the entry in the second initial state
    rough, told = second(method="rk6vr", rtol=1e-6)
    assert abs(rough / exact - 1.0) > 0.1
    assert of_products(told)
    assert len(told) == 1  # nothing of gradients
    # steps that resolve first derivatives do not resolve the second ones, and are looked at too
    better, told = second(method="rk6vr", rtol=1e-6, control="sensitivities")
    assert 0.01 < abs(better / exact - 1.0) < abs(rough / exact - 1.0)
    assert of_products(told)
    assert "the steps follow the first derivatives" in told[0]


def test_what_is_resolved_is_not_told():
    model = ds.ODE(lambda t, u, p: np.array([u[1], -p[0] * np.sin(u[0]) - p[1] * u[1]]), 2, 2)
    run = ds.solve(model, [1.0, 0.0], [1.5, 0.7], ds.Stepping((0.0, 10.0), rtol=1e-6))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.hessian_product(run, ds.Terminal(lambda t, u, p: u[0]), dp=[1.0, 0.5])


def test_where_products_were_unresolved_later_runs_are_looked_at_too():
    model = ds.trace(bodies, 12, 3)
    for _ in range(3):  # the first is, the 8th would be
        assert of_products(product(model, rtol=1e-8)[1])
    product(model, method="rk8vr", rtol=1e-13, atol=1e-15)
    assert not of_products(product(model, rtol=1e-8)[1])


def test_unknowns_that_start_at_zero_count():
    """By their relative change products are 0; relative to what they become they are not."""
    to_one, end = ds.ODE(lambda t, u, p: 1.0 - u**2, 1), 3.0
    cost = ds.Terminal(lambda t, u, p: u[0])
    run = ds.solve(to_one, [0.0], None, ds.Stepping((0.0, end), "rk3bs", rtol=3e-4))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DiscretizationWarning)
        by_u0 = ds.hessian_product(run, cost, du0=[1.0]).u0[0]
    exact = -2.0 * np.tanh(end) / np.cosh(end) ** 2  # of tanh(end + artanh(u0))
    (told,) = of_products([str(item.message) for item in caught])
    assert abs(by_u0 / exact - 1.0) > 0.01
    assert abs(by_u0 / exact - 1.0) == pytest.approx(told, rel=0.1)


def test_one_spoiled_run_of_two_finer_ones_is_no_alarm():
    """Rounding may spoil second derivatives at a stage of the halves: x / (exp(x) - 1) beside 0."""
    model = ds.trace(lambda t, u, p: -p[0] * u, 1, ["rate"])
    run = ds.solve(model, [1.0], [1.0], ds.Stepping((0.0, 1.0), "rk6vr", rtol=1e-8))
    cost, seen = ds.Terminal(lambda t, u, p: u[0]), Seen()
    resolved = (np.array([0.0]), np.array([np.exp(-1.0)]), 0.0)
    spoiled = (np.array([0.0]), np.array([0.7]), 0.0)
    for finer, alarm in (([spoiled, resolved], False), ([spoiled, spoiled], True)):
        answers, counts = iter(finer), []

        def again(trajectory, answers=answers, counts=counts):
            counts.append(trajectory.n_steps)
            return [next(answers)]

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DiscretizationWarning)
            warn_of_unresolved_products(run, cost, [resolved], again, seen)
        assert bool(caught) == seen.products_unresolved == alarm
        assert counts == [2 * run.n_steps, 4 * run.n_steps]


def test_starts_that_steps_carry_along_are_no_alarm():
    """A product in u0 alone, of an algebraic variable, alternates with the number of steps."""
    model = ds.DAE(
        lambda t, u, udot, p: [udot[0] + p[0] * u[0], u[1] ** 2 - p[1] * u[0]],
        size=2,
        parameters=["rate", "scale"],
    )
    start = ds.consistent_state(model, [1.0, 1.0], [0.4, 2.0])
    control = ds.Parameters(
        {"rate": ds.Parameter(0.4), "scale": ds.Parameter(2.0)}, start, consistent=True
    )
    stepping = ds.Stepping((0.0, 1.5), rtol=1e-6)
    functional = ds.Reduced(model, ds.Terminal(lambda t, u, p: u[1]), stepping, control)
    x = functional.start()
    dx = x.duplicate()
    dx.setArray([1.0, -0.5])
    with warnings.catch_warnings():
        warnings.simplefilter("error", DiscretizationWarning)
        result = functional.hessian_product(x, dx).getArray()
    # the square root of scale exp(-rate T)
    value = np.sqrt(2.0 * np.exp(-0.6))
    hessian = value * np.array([[0.75**2, -0.75 / 4.0], [-0.75 / 4.0, -1.0 / 16.0]])
    assert np.allclose(result, hessian @ [1.0, -0.5], rtol=1e-4)


def test_a_norm_whose_components_change_sign_hides_no_error_of_products():
    """An orbit of eccentricity 0.9 (DETEST D5), where no slope jumps."""

    def orbit(t, u, p):
        return np.concatenate([u[2:], -p[0] * u[:2] / np.linalg.norm(u[:2]) ** 3])

    start = np.array([0.1, 0.0, 0.0, np.sqrt(19.0)])
    told = []
    for model in (ds.ODE(orbit, 4, ["mass"]), ds.trace(orbit, 4, ["mass"])):
        run = ds.solve(model, start, [1.0], ds.Stepping((0.0, 20.0), "rk8vr", rtol=1e-8))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DiscretizationWarning)
            ds.hessian_product(run, ds.Terminal(lambda t, u, p: u[0]), start, [1.0])
        told.append(of_products([str(item.message) for item in caught]))
    ((numpy,), (traced,)) = told
    assert numpy == pytest.approx(traced, rel=0.05)
    assert 1e-3 < traced < 0.1


@pytest.mark.filterwarnings("error", "ignore:.*and derivatives are wrong")
@pytest.mark.parametrize("make", [ds.DDE, ds.trace], ids=["NumPy", "compiled"])
def test_products_of_delay_equations_are_looked_at_as_others(make):
    """Mackey and Glass: the entry of the delay is wrong by 1e-3, and so it is told."""
    p = np.array([0.2, 0.1, 10.0, 17.0])
    direction = p * [0.1257, -0.1321, 0.6404, 0.1049]
    model = make(
        lambda t, u, z, p: p[0] * z[0] / (1.0 + z[0] ** p[2]) - p[1] * u,
        1,
        ["make", "lose", "power", "delay"],
        delays="delay",
        history=[1.2],
    )
    cost = ds.Terminal(lambda t, u, p: u[0])

    def product(method, rtol):
        run = ds.solve(model, [1.2], p, ds.Stepping((0.0, 100.0), method, rtol=rtol))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DiscretizationWarning)
            result = p * ds.hessian_product(run, cost, dp=direction).p
        return result, of_products([str(item.message) for item in caught])

    exact, told = product("rk8vr", 1e-12)
    assert not told
    for _ in range(6):
        rough, _ = product("rk5ts", 1e-6)
    _, (error,) = product("rk5ts", 1e-6)
    sizes = np.maximum(np.abs(exact), 0.01 * np.abs(exact).max())
    true = np.max(np.abs(rough - exact) / sizes)
    assert true > 5e-4
    assert true / 3.0 < error < 3.0 * true


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", ["rk8vr", "esdirk5"])
def test_products_of_a_run_that_an_explosion_ends_are_looked_at(method):
    """The divided run went on from its last steps by the longest one, far into the explosion."""
    p = np.array([2e9, 2.2e4, 1600.0, 0.5])
    cost = ds.costs.EventTime("ignition", 0)

    def burn(t, u, p):
        rate = p[0] * u[0] * np.exp(-p[1] / u[1])
        return np.array([-rate, p[2] * rate - p[3] * (u[1] - 900.0)])

    def product(method, rtol):
        hot = ds.Event(lambda t, u, p: u[1] - 1500.0, name="ignition", terminal=True)
        model = ds.trace(burn, 2, 4, events=[hot])
        run = ds.solve(model, [1.0, 1000.0], p, ds.Stepping((0.0, 10.0), method, rtol=rtol))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = p * ds.hessian_product(run, cost, dp=p).p
        with warnings.catch_warnings(action="ignore"):
            estimate = ds.derivatives.derivative_error(run, cost, dp=p).product
        assert estimate is not None
        return result, of_products([str(item.message) for item in caught]), p * estimate.p

    exact, told, _ = product("rk8vr", 1e-12)
    assert not told
    rough, (error,), estimate = product(method, 1e-8)
    true = np.abs(rough - exact)
    np.testing.assert_allclose(np.abs(estimate), true, rtol=0.5)
    relative = np.max(true / np.maximum(np.abs(exact), 0.01 * np.abs(exact).max()))
    assert relative > 5e-5
    assert relative / 2.0 < error < 2.0 * relative


def weir_and_stop(t, u, p):
    """Return the rates of an oscillator with a weir and a stop."""
    flow = np.maximum(u[0] - p[1], 0.0) ** 2.5
    stop = np.maximum(-u[1] - p[2], 0.0)
    return np.array([u[1] - 0.4 * flow, -p[0] * u[0] + 0.8 * stop - 0.3 * flow])


def told_of_weir(make, method, rtol, **events):
    """Return the product of a weir and a stop in (u0, p), and what was told."""
    model = make(weir_and_stop, 2, 3, **events)
    run = ds.solve(model, [0.9, 0.4], [1.2, 0.3, 0.5], ds.Stepping((0.0, 6.0), method, rtol=rtol))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        product = ds.hessian_product(
            run, ds.Terminal(lambda t, u, p: u[0] + 0.5 * u[1] ** 2), [0.3, -0.2], [0.5, 0.4, -0.6]
        )
    return np.concatenate([product.u0, product.p]), [str(item.message) for item in caught]


@pytest.mark.parametrize("make", [ds.ODE, ds.trace], ids=["NumPy", "traced"])
@pytest.mark.parametrize(("method", "rtol"), [("rk8vr", 1e-6), ("rk5dp", 1e-6), ("rk8vr", 1e-10)])
def test_products_across_kinks_that_have_their_terms_are_looked_at(make, method, rtol):
    """They were left out; events at both places tell what is exact."""
    meets = [ds.Event(lambda t, u, p: u[0] - p[1]), ds.Event(lambda t, u, p: -u[1] - p[2])]
    exact, _ = told_of_weir(ds.trace, "rk8vr", 1e-13, events=meets)
    rough, messages = told_of_weir(make, method, rtol)
    sizes = np.array([0.9, 0.4, 1.2, 0.3, 0.5])
    scaled = sizes * np.abs(exact)
    error = np.max(sizes * np.abs(rough - exact) / np.maximum(scaled, 0.01 * scaled.max()))
    print("ERR", method, rtol, error, messages)
    if not messages:
        assert error < 3.0 * min(max(1e-3, 100.0 * rtol), max(1e-5, 1000.0 * rtol))
        return
    (told,) = of_products(messages)
    assert error / 3.0 < told < 3.0 * error


def of_degree_one(t, u, p):
    """Return rates that grow with the size of the state: its unit is free."""
    push = np.maximum(u[0] - p[2] * u[2], 0.0)
    return np.array(
        [u[1] - 0.3 * p[0] * push, -p[0] * u[0] - p[1] * np.abs(u[1]), 0.1 * u[0] - 0.2 * u[2]]
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", ["rk8vr", "esdirk5"])
@pytest.mark.parametrize("rtol", [1e-6, 1e-9])
def test_products_that_are_zero_are_no_alarm(method, rtol):
    """Of a state of degree one in the start H u0 = 0, whose error has no size to compare with."""
    start, cost = [1.0, 0.3, 0.5], ds.Terminal(lambda t, u, p: u[0])
    model = ds.trace(of_degree_one, 3, 3)
    run = ds.solve(model, start, [1.1, 0.4, 0.6], ds.Stepping((0.0, 7.0), method, rtol=rtol))
    assert len(run.times) > 10
    product = ds.hessian_product(run, cost, start)
    sizes = np.abs(product.gradient.u0) * start
    assert np.max(np.abs(product.u0) * start) < 100.0 * rtol * sizes.max()


def test_finer_runs_find_an_event_just_before_friction_turns_about():
    """Of a bowling ball that slides, and rolls from a speed of 0.02 of its lowest point on.

    Friction turns 3 ms later, where a step of fixed size that is tried to its end leaves the
    function of the event with its sign.
    """

    def slides(t, u, p):
        slip = u[2:4] - 0.108 * u[4:6]
        dry = np.clip(u[0] - 11.5, 0.0, 1.0)
        force = -9.81 * (p[0] + (p[1] - p[0]) * dry) * slip / np.sqrt(slip[0] ** 2 + slip[1] ** 2)
        return np.concatenate([u[2:4], force, -2.5 * force / 0.108])

    def rolls(t, u, p):
        return np.concatenate([u[2:4], 0.0 * u[2:]])

    grips = ds.Event(
        lambda t, u, p: u[2] - 0.108 * u[4] - 0.02,
        direction=-1,
        within=["slides"],
        mode="rolls",
        name="grips",
    )
    modes = {"slides": ds.ODE(slides, 6, 2), "rolls": ds.ODE(rolls, 6, 2)}
    ball = ds.hybrid(modes, start="slides", events=[grips])
    start = [0.0, 0.1, 8.0, -0.15, 5.0, 9.0]
    run = ds.solve(ball, start, [0.04, 0.2], ds.Stepping((0.0, 2.5284), rtol=1e-7))
    (crossing,) = run.crossings
    for finer in (False, True):
        stepping, _ = divided(run, finer=finer)
        ends = np.array(stepping.t_eval)
        before, after = ends[ends < crossing.t].max(), ends[ends > crossing.t].min()
        assert after - crossing.t < 0.1 * (crossing.t - before)
        (again,) = ds.solve(ball, start, [0.04, 0.2], stepping).crossings
        assert abs(again.t - crossing.t) < 1e-6
