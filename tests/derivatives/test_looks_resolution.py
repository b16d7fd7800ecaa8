"""The warning of derivatives that the steps of a run do not resolve."""

import itertools
import warnings

import numpy as np
import pytest

from daeosens import (
    DDE,
    ODE,
    Event,
    LeastSquares,
    Parameter,
    Parameters,
    Reduced,
    Running,
    Stepping,
    Terminal,
    adjoint,
    hessian_product,
    solve,
    trace,
)
from daeosens.derivatives.engines.request import lowered_on
from daeosens.derivatives.looks import products, relative_directions, resolution
from daeosens.derivatives.looks.look import start_held
from daeosens.derivatives.looks.resolution import relative_errors
from daeosens.errors import DiscretizationWarning

LAST = Terminal(lambda t, u, p: u[0])

# p dJ/dp of an earthquake cycle: differences of SciPy's LSODA with rtol = 1e-12
SLIP = np.array([0.010, 0.015, 1e-3, 20.0, 60.0, 1e-9])
SLIPPED = np.array([78.39367, -126.77249, 0.476673, 46.70831, -48.37882, 47.97809])


def fault(t, u, p):
    """Return the rates of log(theta V0 / L) and log(V / V0): ageing law, radiation damping."""
    a, b, length, k, sigma, loading = p
    speed = 1e-6 * np.exp(u[1])
    rate = 1e-6 / length * (np.exp(-u[0]) - np.exp(u[1]))
    return np.stack([rate, (k * (loading - speed) - sigma * b * rate) / (sigma * a + 5.0 * speed)])


def quake(end, method, rtol):
    model = trace(fault, 2, ["a", "b", "L", "k", "sigma", "loading"])
    return solve(model, np.log([500.0, 0.002]), SLIP, Stepping((0.0, end), method, rtol=rtol))


@pytest.mark.parametrize("method", ["esdirk4", "esdirk5", "rk6vr"])
def test_earthquakes_warn_where_the_gradient_is_wrong(method):
    run = quake(1.4e9, method, 1e-6)
    assert run.final.array[0] == pytest.approx(10.3182, abs=1e-3)
    with pytest.warns(DiscretizationWarning, match="derivatives are wrong by about"):
        value = adjoint(run, LAST).p * SLIP
    assert np.max(np.abs(value - SLIPPED)) > 10 * np.max(np.abs(SLIPPED))
    with pytest.warns(DiscretizationWarning):  # again: it does not fall silent
        adjoint(run, LAST)


@pytest.mark.parametrize("method", ["esdirk4", "esdirk5"])
def test_short_steps_late_in_a_run_are_no_stall(method):
    """Hundreds of steps of 1e-4 s at 1e9 s, in an earthquake, were refused as steps that shrink."""
    run = quake(1.4e9, method, 1e-8)
    late = run.step_sizes < 1e-12 * run.times[:-1]
    assert late.sum() > 200
    # SciPy's LSODA with rtol = 1e-12 and Radau with 1e-9, which agree to 1e-8
    assert run.final.array[0] == pytest.approx(10.31824736, rel=3e-8)


def test_errors_of_a_run_are_estimated_once_for_each_cost(monkeypatch):
    """The product with a Hessian after the gradient tells the same of both without another run."""
    estimated = []

    def counted(run, costs, **options):
        estimated.append(costs)
        return relative_errors(run, costs, **options)

    monkeypatch.setattr(resolution, "relative_errors", counted)
    run = quake(1.4e9, "esdirk5", 1e-6)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        adjoint(run, LAST)
        hessian_product(run, LAST, np.ones(2))
        assert len(estimated) == 1
        adjoint(run, Terminal(lambda t, u, p: u[1]))
    assert len(estimated) == 2
    texts = [str(item.message) for item in told]
    first, second, _ = [text for text in texts if "derivatives are wrong by about" in text]
    assert first == second


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", ["esdirk4", "esdirk5", "rk6vr"])
def test_a_run_that_ends_before_the_earthquake_is_silent(method):
    adjoint(quake(5e7, method, 1e-6), LAST)


def lorenz(t, u, p):
    return np.array([p[0] * (u[1] - u[0]), u[0] * (p[1] - u[2]) - u[1], u[0] * u[1] - p[2] * u[2]])


@pytest.mark.slow
def test_growth_of_a_chaotic_run_is_told():
    """Its last state is that of another orbit by now, and derivatives are off by their size."""
    run = solve(
        ODE(lorenz, 3, ["s", "r", "b"]),
        [1.0, 2.0, 3.0],
        [10.0, 28.0, 8.0 / 3.0],
        Stepping((0.0, 30.0), "rk6vr", rtol=1e-8),
    )
    with pytest.warns(DiscretizationWarning, match="derivatives are wrong by about") as told:
        assert np.max(np.abs(adjoint(run, LAST).u0)) > 1e5
    assert "of high order, rk8vr or esdirk6;" in str(told[0].message)


def van_der_pol(t, u, p):
    return np.array([u[1], p[0] * (1 - u[0] ** 2) * u[1] - u[0]])


RELAXATION = 1.7422921308181065  # p du/dp: Radau IIA of order 9 with variational equations


@pytest.mark.slow
@pytest.mark.parametrize("make", [ODE, trace], ids=["NumPy", "compiled"])
def test_jumps_of_relaxation_oscillations_warn(make):
    """The state is right to 1e-8, its derivative in mu wrong by 0.03 %."""
    problem = make(van_der_pol, 2, ["mu"])
    run = solve(problem, [2.0, 0.0], [100.0], Stepping((0.0, 200.0), "esdirk4", rtol=1e-7))
    with pytest.warns(DiscretizationWarning, match="derivatives are wrong by about 0.06"):
        value = 100.0 * adjoint(run, LAST).p[0]
    assert 1e-4 < abs(value / RELAXATION - 1.0) < 1e-3
    finer = Stepping((0.0, 200.0), "esdirk4", rtol=1e-7, control="sensitivities")
    with warnings.catch_warnings(action="error", category=DiscretizationWarning):
        value = 100.0 * adjoint(solve(problem, [2.0, 0.0], [100.0], finer), LAST).p[0]
    assert value == pytest.approx(RELAXATION, rel=1e-4)


def damped(t, u, p):
    return np.array([-p[0] * u[0] * u[1], u[0] - u[1] ** 2])


FAST = [1.0, 0.5, 0.2]  # of which the last one decays


def with_mass(t, u, p):
    return np.concatenate([damped(t, u[:2], p), [u[0] - 30.0 * u[2]]])


COSTS = [
    LAST,
    Running(lambda t, u, p: u[0] ** 2 * p[0]),
    LeastSquares([0.0, 0.5, 1.0], [[1.0], [0.2], [0.1]], observe=[0]),
    2.0 * LAST - Running(lambda t, u, p: u[1]),
]
MASS = np.array([[1.0, 0.1, 0.0], [0.1, 1.0, 0.0], [0.0, 0.0, 0.2]])
SETTINGS = [
    (ODE(damped, 2, ["k"]), "rk6vr"),
    (trace(damped, 2, ["k"]), "rk5dp"),
    (ODE(damped, 2, ["k"]), "esdirk4"),
    (trace(damped, 2, ["k"]), "esdirk5"),
    (ODE(with_mass, 3, ["k"], mass=MASS), "esdirk4"),
    (trace(with_mass, 3, ["k"], mass=MASS), "esdirk4"),
]


@pytest.mark.parametrize("cost", COSTS, ids=["end", "running", "data", "both"])
@pytest.mark.parametrize(("problem", "method"), SETTINGS)
def test_estimates_are_those_of_the_errors(problem, method, cost):
    """Estimates are of the errors of gradients along both directions, from above, and not far."""
    times = getattr(cost, "times", None)
    start = FAST[: problem.size]

    def gradient(method, rtol):
        run = solve(problem, start, [0.8], Stepping((0.0, 1.0), method, rtol=rtol), times)
        return run, adjoint(run, cost)

    run, sensitivity = gradient(method, 1e-5)
    _, truth = gradient("esdirk6" if problem.form == "mass" else "rk8vr", 1e-12)
    by_x = np.concatenate([sensitivity.u0 * start, sensitivity.p * 0.8])
    error = np.abs(by_x - np.concatenate([truth.u0 * start, truth.p * 0.8])).max()
    estimate, _ = relative_errors(run, [cost.lower(problem, 1.0)])[0]
    assert 1e-9 < estimate < 1e-2
    assert error < 3.0 * estimate * np.abs(by_x).max()


OF_POINTS = [LAST, Terminal(lambda t, u, p: p[0] ** 2 * u[0] * u[1]), COSTS[2]]


@pytest.mark.parametrize("cost", OF_POINTS, ids=["end", "of p", "data"])
@pytest.mark.parametrize(("problem", "method"), SETTINGS)
def test_estimates_by_gradients_are_those_by_tangents(problem, method, cost):
    times, start = getattr(cost, "times", None), FAST[: problem.size]
    run = solve(problem, start, [0.8], Stepping((0.0, 1.0), method, rtol=1e-5), times)
    gradient, lowered = adjoint(run, cost), [lowered_on(run, cost)]
    (by_tangents,) = relative_errors(run, lowered)
    known = gradient.u0[None], gradient.p[None]
    (by_gradients,) = relative_errors(run, lowered, gradients=known)
    assert by_gradients == pytest.approx(by_tangents, rel=1e-6, abs=1e-12)


def test_a_look_at_a_gradient_takes_about_as_long_as_a_few():
    calls = [0]

    def lorenz_96(t, u, p):
        calls[0] += 1
        return (np.roll(u, -1) - np.roll(u, 2)) * np.roll(u, 1) - p[0] * u + p[1]

    def counted(model):
        run = solve(model, start, [1.0, 8.0], Stepping((0.0, 1.0), "rk6vr", rtol=1e-6))
        before = calls[0]
        adjoint(run, LAST)
        return calls[0] - before

    start = 8.0 + np.cos(np.arange(20.0))
    model = ODE(lorenz_96, 20, ["damping", "forcing"])
    looked, alone = counted(model), counted(model)
    assert alone < looked < 6 * alone


@pytest.mark.slow
@pytest.mark.parametrize("make", [ODE, trace], ids=["NumPy", "compiled"])
@pytest.mark.parametrize(("rate", "rtol"), [(1e4, 1e-6), (1e5, 1e-6), (1e6, 1e-8)])
def test_derivatives_that_are_small_beside_the_state_warn(make, rate, rtol):
    """U' = -k (u - cos(t)): du/dk is sin(t)/k^2, of which errors of 1e-7 in u leave little."""
    problem = make(lambda t, u, p: -p[0] * (u - np.cos(t)), 1, ["k"])
    run = solve(problem, [0.0], [rate], Stepping((0.0, 10.0), "esdirk5", rtol=rtol))
    with pytest.warns(DiscretizationWarning, match="small beside errors"):
        gradient = adjoint(run, LAST).p[0]
    square, sine, cosine = 1.0 + rate**2, np.sin(10.0), np.cos(10.0)
    slope = (2.0 * rate * cosine + sine) / square
    exact = slope - (rate * cosine + sine) * 2.0 * rate**2 / square**2
    estimate, _ = relative_errors(run, [LAST.lower(problem, 10.0)])[0]
    assert abs(gradient / exact - 1.0) == pytest.approx(estimate, rel=0.5)


def test_a_jump_in_the_equations_is_told_by_itself():
    problem = ODE(lambda t, u, p: -p[0] * u + (u > 0.5), 1, ["k"])
    run = solve(problem, [1.0], [2.5], Stepping((0.0, 2.0), "rk6vr", rtol=1e-6))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        adjoint(run, LAST)
    assert not [warning for warning in told if warning.category is DiscretizationWarning]


def test_looks_become_rarer_and_go_on_while_they_find_something():
    """At the 1st and the 8th of a problem, but at every one after one that has warned."""
    problem = trace(van_der_pol, 2, ["mu"])

    def told(end):
        run = solve(problem, [2.0, 0.0], [100.0], Stepping((0.0, end), "esdirk4", rtol=1e-7))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            adjoint(run, LAST)
        return any(warning.category is DiscretizationWarning for warning in caught)

    assert [told(1.0)] + [told(200.0) for _ in range(9)] == [False] * 7 + [True] * 3
    assert not told(1.0)
    assert not told(200.0)


def test_gradients_of_index_two_are_had_by_fixed_steps():
    """A pendulum by its constraint of speeds, of which adaptive steps are refused."""

    def by_constraint(t, u, p):
        x, y, vx, vy, tension = u
        return np.array([vx, vy, -tension * x, -tension * y - p[0], x * vx + y * vy])

    mass, start = np.diag([1.0, 1.0, 1.0, 1.0, 0.0]), [0.6, -0.8, 0.0, 0.0, 0.8 * 9.81]
    pendulum = trace(by_constraint, 5, ["g"], mass=mass)
    run = solve(pendulum, start, [9.81], Stepping((0.0, 0.2), "esdirk5", dt=0.01))
    gradient = adjoint(run, LAST)
    angle = trace(lambda t, u, p: np.array([u[1], -p[0] * np.sin(u[0])]), 2, ["g"])
    fine = Stepping((0.0, 0.2), "rk8vr", rtol=1e-12)
    exact = adjoint(
        solve(angle, [np.arcsin(0.6), 0.0], [9.81], fine), Terminal(lambda t, u, p: np.sin(u[0]))
    )
    assert gradient.value == pytest.approx(exact.value, rel=1e-6)
    assert gradient.p[0] == pytest.approx(exact.p[0], rel=1e-5)


def reactor(t, u, p):
    """Return the rates of power and precursors: one group, negative feedback at a slow rise."""
    reactivity = 0.002 * np.sin(0.3 * t) - 0.001 * (u[0] - 1.0)
    made = 0.0065 / p[0] * 1e-2
    return np.array([(reactivity - 0.0065) / p[0] * u[0] + made * u[1], 0.65 * u[0] - 0.5 * u[1]])


def washed_out(t, u, p):
    """Return the rates of a trace that is not there, and of what it would make."""
    return np.array([-p[0] * u[0], 1.0 + u[0]])


@pytest.mark.parametrize("make", [ODE, trace])
def test_a_state_that_stays_zero_warns_where_its_derivative_blows_up(make):
    """Nothing tells the steps that perturbations of it decay a hundred times in each of them."""
    longer = Stepping((0.0, 15.0), "rk6vr", rtol=1e-8)  # than a rest that is divided
    run = solve(make(washed_out, 2, ["k"]), [0.0, 0.0], [100.0], longer)
    made = Terminal(lambda t, u, p: u[1])
    told = "derivatives in the initial states that are zero are wrong by about as much as their"
    with pytest.warns(DiscretizationWarning, match=told):
        assert abs(adjoint(run, made).u0[0]) > 1e20  # 0.01 is right
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stepping = Stepping((0.0, 3.0), "esdirk5", rtol=1e-8, control="sensitivities")
        run = solve(make(washed_out, 2, ["k"]), [0.0, 0.0], [100.0], stepping)
        assert adjoint(run, made).u0[0] == pytest.approx(0.01, rel=1e-6)


def test_derivatives_in_a_start_that_is_held_are_not_spoken_of():
    """They are of what is not fixed, and of the same run where nobody says that it is."""
    longer = Stepping((0.0, 15.0), "rk6vr", rtol=1e-8)
    model, made = ODE(washed_out, 2, ["k"]), Terminal(lambda t, u, p: u[1] + p[0] * u[1])
    start = [0.0, 0.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", DiscretizationWarning)
        held = Reduced(model, made, longer, Parameters({"k": Parameter(100.0)}, start))
        held.value_and_gradient([100.0])
        held.hessian([100.0])
    model = ODE(washed_out, 2, ["k"])
    with start_held(model, held=True):
        pass
    run = solve(model, start, [100.0], longer)
    with pytest.warns(DiscretizationWarning):  # the held one has left its mark nowhere
        adjoint(run, made)


def test_where_stability_holds_steps_small_the_remedy_is_a_method_without_that_limit():
    """Precursors of a reactor: the prompt mode is slaved, and its tangent grows from nothing."""
    problem, power = ODE(reactor, 2, ["generation"]), Terminal(lambda t, u, p: u[0])

    def slope(method, rtol=1e-6):
        run = solve(problem, [1.0, 1.3], [5e-5], Stepping((0.0, 20.0), method, rtol=rtol))
        return run, adjoint(run, power).p[0]

    remedies = r'try: method="esdirk5", as stability holds .* of high order, esdirk6;'
    with pytest.warns(DiscretizationWarning, match=remedies):
        _, unstable = slope("rk6vr")
    with warnings.catch_warnings(action="error", category=DiscretizationWarning):
        run, chosen = slope("auto")  # which sees it
        _, exact = slope("esdirk6", 1e-10)
    assert run.stepping.choice.startswith("stability would hold")
    assert abs(unstable / exact - 1.0) > 1e-3
    assert chosen == pytest.approx(exact, rel=1e-3)


def test_large_runs_are_looked_at_along_fewer_directions_and_in_memory_that_is_there(monkeypatch):
    problem, power = ODE(reactor, 2, ["generation"]), Terminal(lambda t, u, p: u[0])
    run = solve(problem, [1.0, 1.3], [5e-5], Stepping((0.0, 20.0), "rk6vr", rtol=1e-6))
    pairs, _ = relative_directions.relative_directions(run)
    monkeypatch.setattr(resolution, "MANY_UNKNOWNS", 1)
    monkeypatch.setattr(relative_directions, "MANY_UNKNOWNS", 1)
    fewer, _ = relative_directions.relative_directions(run)
    assert (len(pairs), len(fewer)) == (3, 2)
    with pytest.warns(DiscretizationWarning):
        adjoint(run, power)
    monkeypatch.setattr(resolution, "free_memory", lambda comm: 1000)
    problem = ODE(reactor, 2, ["generation"])
    with warnings.catch_warnings(action="error", category=DiscretizationWarning):
        adjoint(solve(problem, [1.0, 1.3], [5e-5], run.stepping), power)


def test_a_run_that_stability_holds_stays_where_an_implicit_one_fails():
    """At the end there is no Jacobian, which explicit steps do not ask for."""

    def jacobian(t, u, p):
        prompt = (0.002 * np.sin(0.3 * t) - 0.001 * (2.0 * u[0] - 1.0) - 0.0065) / p[0]
        values = np.array([[prompt, 0.0065 / p[0] * 1e-2], [0.65, -0.5]])
        return values if t < 19.0 else np.full((2, 2), np.nan)

    problem = ODE(reactor, 2, ["generation"], jacobian=jacobian)
    chosen, explicit = (
        solve(problem, [1.0, 1.3], [5e-5], Stepping((0.0, 20.0), method, rtol=1e-6))
        for method in ("auto", "rk6vr")
    )
    assert chosen.stepping.resolved_method.name == "rk6vr"
    np.testing.assert_array_equal(chosen.u, explicit.u)


@pytest.mark.filterwarnings("error::daeosens.errors.DiscretizationWarning")
def test_a_state_from_zero_whose_derivative_is_resolved_is_silent():
    run = solve(ODE(washed_out, 2, ["k"]), [0.0, 0.0], [1.0], Stepping((0.0, 3.0), rtol=1e-8))
    gradient = adjoint(run, Terminal(lambda t, u, p: u[1])).u0
    assert gradient[0] == pytest.approx(1.0 - np.exp(-3.0), rel=1e-3)  # what is told


def test_directions_are_single_parts_where_these_are_few_and_groups_of_them_elsewhere():
    model = ODE(lambda t, u, p: -p.sum() * u, 9, 20)
    start = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.0])
    run = solve(model, start, np.arange(20.0), Stepping((0.0, 0.01), "rk4", dt=0.01))
    pairs, relative = relative_directions.relative_directions(run)
    by_u = np.array([du.array for du, dp in pairs if dp is None])
    by_p = np.array([dp.array for _, dp in pairs if dp is not None])
    assert (len(by_p), len(by_u), relative) == (6, 6 + 2, 6 + 6)
    for groups, sizes in ((by_p, np.arange(20.0)), (by_u, np.where(start, start, 7.0))):
        assert ((groups != 0.0).sum(axis=0) == (sizes > 0.0)).all()  # each part in one of them
        shares = np.abs(groups).sum(axis=0)[sizes > 0.0] / sizes[sizes > 0.0]
        assert (shares >= 0.5).all()
        assert (shares <= 1.0).all()
        assert (np.sign(groups) < 0.0).any()
        assert (np.sign(groups) > 0.0).any()


def microgrid(t, u, p):
    """Return the rates of two sources with droop that feed a load of given power over a cable."""
    i1, i2, v, v_load, i_load = u
    power = p[3] * (1.0 + 0.3 * np.tanh((t - 0.05) / 0.004))
    by_source = [(p[0] - 0.2 * i1 - v) / p[4], (p[1] - 0.3 * i2 - v) / (2.0 * p[4])]
    bus = (i1 + i2 - i_load) / 2e-3
    return np.stack([*by_source, bus, v - p[2] * i_load - v_load, v_load * i_load - power])


# p dJ/dp: differences of SciPy's DOP853 with rtol = 3e-14, the load solved for
CURRENT = np.array([262.66912408, 174.0616579, -31.25000057, -32.75796838, 1.76486771])


@pytest.mark.parametrize("rtol", [1e-6, 1e-8])
def test_errors_of_a_small_part_are_told(rtol):
    """The derivative in an inductance is no hundredth of others, and off by 3300 to 3600 rtol."""
    p = np.array([400.0, 398.0, 0.4, 20e3, 1e-3])
    names, start = ["V1", "V2", "R", "P", "L"], [20.0, 25.0, 390.0, 385.0, 50.0]
    model = ODE(microgrid, 5, names, mass=np.diag([1.0, 1.0, 1.0, 0.0, 0.0]))
    values = {name: Parameter(value) for name, value in zip(names, p, strict=True)}
    reduced = Reduced(
        model,
        Terminal(lambda t, u, p: u[3] + 0.1 * u[4]),
        Stepping((0.0, 0.1), rtol=rtol),
        Parameters(values, start, consistent=True),
    )
    with pytest.warns(DiscretizationWarning, match="derivatives are wrong by about") as told:
        gradient = p * reduced.gradient(reduced.start())
    error = np.abs(gradient - CURRENT) / np.maximum(np.abs(CURRENT), 0.01 * CURRENT.max())
    assert np.argmax(error) == 4
    assert error[4] > 3000 * rtol
    estimate = 0.01 * float(str(told[0].message).partition("about ")[2].partition(" %")[0])
    assert error[4] / 3.0 < estimate < 3.0 * error[4]
    assert "of high order, esdirk5;" in str(told[0].message)  # of a DAE esdirk6 takes many more


@pytest.mark.filterwarnings("error::daeosens.errors.DiscretizationWarning")
def test_a_symmetry_of_the_parameters_is_no_error():
    """Charge, capacity and current by equal parts leave the voltage as it is, up to rounding."""
    charge = ODE(lambda t, u, p: p[0] * np.sin(9.0 * t) / p[1] - u, 1, ["current", "capacity"])
    run = solve(charge, [0.0], [2.0, 3.0], Stepping((0.0, 3.0), "rk6vr", rtol=1e-8))
    adjoint(run, LAST)


def test_errors_that_cancel_along_a_direction_do_not_along_all():
    """Four equal decays, whose errors are equal, with all signs in the cost."""
    problem = ODE(lambda _t, u, p: -p * u, size=4, parameters=4)
    run = solve(problem, np.ones(4), np.ones(4), Stepping((0.0, 2.0), "rk5dp", rtol=1e-4))
    estimates = []
    for signs in itertools.product([1.0, -1.0], repeat=4):
        cost = Terminal(lambda _t, u, _p, signs=signs: np.array(signs) @ u)
        ((error, _),) = relative_errors(run, [lowered_on(run, cost)])
        estimates.append(error)
    # along a single random direction it is 0.2
    assert min(estimates) > 0.35 * max(estimates)


def falling(t, u, p):
    return np.stack([u[1], -p[0] - p[1] * u[1] * np.abs(u[1])])


def thrown_back(t, u, p):
    return np.stack([0.0 * u[0], -p[2] * u[1]])


GROUND = Event(lambda t, u, p: u[0], thrown_back, direction=-1)
DOSE = Event(0.4, lambda t, u, p: np.stack([u[0], u[1] + p[2]]))
LIGHTER = Event(0.4, changes={"drag": lambda t, u, p: 0.5 * p[1] + 0.1 * u[0]})
PASSAGES = {"ground": [GROUND], "dose": [DOSE], "drag": [LIGHTER, GROUND]}


@pytest.mark.parametrize("passages", PASSAGES)
@pytest.mark.parametrize(("make", "method"), [(ODE, "rk5dp"), (trace, "rk6vr"), (trace, "esdirk4")])
def test_estimates_go_through_events(passages, make, method):
    """Of a ball: from above, and not far, as those of runs without events."""
    problem = make(falling, 2, ["g", "drag", "bounce"], events=PASSAGES[passages])
    start, p = np.array([1.0, 0.5]), np.array([9.81, 0.3, 0.8])
    cost = Terminal(lambda t, u, p: u[0] + 0.3 * u[1])

    def gradient(method, rtol):
        run = solve(problem, start, p, Stepping((0.0, 0.9), method, rtol=rtol))
        sensitivity = adjoint(run, cost)
        return run, np.concatenate([sensitivity.u0 * start, sensitivity.p * p])

    run, computed = gradient(method, 1e-4)
    _, exact = gradient("rk8vr", 1e-12)
    estimate, _ = relative_errors(run, [lowered_on(run, cost)])[0]
    error = np.abs(computed - exact).max() / np.abs(exact).max()
    assert 1e-8 < error < 3.0 * estimate < 1.0
    assert estimate < 100.0 * error


@pytest.mark.parametrize("make", [ODE, trace])
def test_derivatives_that_blow_up_after_an_event_are_told(make):
    """What the event leaves at zero decays a hundred times in each step of the other unknown."""

    def emptied(t, u, p):
        return np.stack([0.0 * u[0], u[1]])

    def washed_out_later(t, u, p):
        return np.stack([-p[0] * u[0], 1.0 + u[0] + 1e-3 * np.sin(u[1])])

    problem = make(washed_out_later, 2, ["k"], events=[Event(0.5, emptied)])
    run = solve(problem, [0.1, 0.0], [300.0], Stepping((0.0, 15.0), "rk6vr", rtol=1e-8))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gradient = adjoint(run, Terminal(lambda t, u, p: u[1])).u0
    right = abs(gradient[0] * 300.0 - 1.0) < 1e-3
    assert right or any("derivatives" in str(warning.message) for warning in told)


def test_second_derivatives_through_events_are_told():
    """As of a run without them, by halved steps: a relaxation oscillation with a push."""
    push = Event(50.0, lambda t, u, p: np.stack([u[0] + 1e-3 * p[0], u[1]]))
    problem = trace(van_der_pol, 2, ["mu"], events=[push])
    run = solve(problem, [2.0, 0.0], [100.0], Stepping((0.0, 200.0), "esdirk4", rtol=1e-7))
    with pytest.warns(DiscretizationWarning) as told:
        hessian_product(run, LAST, dp=[1.0])
    assert any("entries of a product with the Hessian" in str(item.message) for item in told)
    assert any("derivatives are wrong by about" in str(item.message) for item in told)
    # explicit steps would be ten times as many
    assert all("of high order, esdirk6;" in str(item.message) for item in told)


def junction(t, u, p):
    """Return the rates of phase and voltage of a Josephson junction under alternating current."""
    current = p[0] + p[1] * np.sin(p[2] * t)
    return np.stack([u[1], current - p[3] * u[1] - np.sin(u[0])])


@pytest.mark.parametrize("make", [ODE, trace])
@pytest.mark.parametrize("rtol", [1e-6, 1e-8])
def test_where_states_part_their_derivatives_are_along_another_solution(make, rtol):
    """Each step follows its tangents well; the solution that they are along is not that one."""
    p, start = np.array([0.3, 1.2, 0.6, 0.3]), np.array([0.1, 0.2])
    voltage = Terminal(lambda t, u, p: u[1])

    def gradient(method, rtol):
        run = solve(make(junction, 2, 4), start, p, Stepping((0.0, 60.0), method, rtol=rtol))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DiscretizationWarning)
            sensitivity = adjoint(run, voltage)
        return run, np.concatenate([sensitivity.u0 * start, sensitivity.p * p])

    _, exact = gradient("rk8vr", 1e-13)
    run, computed = gradient("rk6vr", rtol)
    error = np.abs(computed - exact).max() / np.abs(exact).max()
    assert error > 5000 * rtol
    estimate, _ = relative_errors(run, [lowered_on(run, voltage)])[0]
    assert estimate == pytest.approx(error, rel=0.2)
    with pytest.warns(DiscretizationWarning, match="derivatives are wrong by about"):
        adjoint(solve(make(junction, 2, 4), start, p, run.stepping), voltage)


@pytest.mark.parametrize("second", [False, True])
def test_a_look_at_another_run_may_fail_in_any_way(second, monkeypatch):
    """Callbacks that raise errors of their own where the user's run has not been."""

    class TableError(Exception):
        pass

    def rhs(t, u, p):
        if looking and t > 1.0:
            raise TableError
        return np.array([u[1], p[0] * (1.0 - u[0] ** 2) * u[1] - u[0]])

    looking, failed = False, []
    run = solve(ODE(rhs, 2, 1), [2.0, 0.1], [3.0], Stepping((0.0, 8.0), "rk6vr", rtol=1e-7))
    module, name = (products, "_again") if second else (resolution, "_finer_run")
    other_run = getattr(module, name)

    def tried(*arguments):
        nonlocal looking
        looking = True
        try:
            return other_run(*arguments)
        except TableError:
            failed.append(True)
            raise
        finally:
            looking = False

    monkeypatch.setattr(module, name, tried)
    # nobody knows then, which is told
    with pytest.warns(
        DiscretizationWarning, match=r"not known: .* finer steps failed \(TableError"
    ):
        result = hessian_product(run, LAST, dp=[1.0]) if second else adjoint(run, LAST)
    assert failed
    assert np.isfinite(result.p).all()


BLOOD = np.array([0.2, 0.1, 10.0, 17.0])  # of Mackey and Glass, chaotic

# p dJ/dp at t = 300: differences of SciPy's DOP853, one delay after the other, with rtol = 1e-12
BLOOD_CELLS = np.array([3.537308, -9.997274, -7.533888, 10.601950])


def blood(t, u, z, p):
    return p[0] * z[0] / (1.0 + z[0] ** p[2]) - p[1] * u


@pytest.mark.parametrize("make", [DDE, trace], ids=["NumPy", "compiled"])
def test_delay_equations_are_looked_at_as_others(make):
    """Derivatives that steps do not resolve are told, with an error that is theirs."""
    model = make(blood, 1, ["make", "lose", "power", "delay"], delays="delay", history=[1.2])

    def gradient(method, rtol):
        run = solve(model, [1.2], BLOOD, Stepping((0.0, 300.0), method, rtol=rtol))
        return run, BLOOD * adjoint(run, LAST).p

    _, fine = gradient("rk8vr", 1e-11)
    assert fine == pytest.approx(BLOOD_CELLS, rel=1e-6)
    for _ in range(6):  # the first gradient was looked at, and the 8th is
        run, rough = gradient("rk5ts", 1e-5)
    with pytest.warns(DiscretizationWarning, match="derivatives are wrong by about"):
        adjoint(run, LAST)
    error = np.abs(rough - BLOOD_CELLS).max() / np.abs(BLOOD_CELLS).max()
    estimate, _ = relative_errors(run, [lowered_on(run, LAST)])[0]
    assert 1e-3 < error < estimate < 10.0 * error
