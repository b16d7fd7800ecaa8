"""Kinks and jumps of costs: told where derivatives lack a term, exact with an event there."""

import time
import warnings

import numpy as np
import pytest

import daeosens as ds
from daeosens.costs import AtEvent, EventTime
from daeosens.errors import KinkWarning

# long steps on purpose: that they are too long for the integral is told as well
pytestmark = pytest.mark.filterwarnings("ignore::daeosens.errors.DiscretizationWarning")

RATE, LEVEL, END = 0.8, 0.5, 3.0
CROSSED = np.log(1.0 / LEVEL) / RATE
"""u = u0 exp(-rate t) passes the level, from u0 = 1."""
MADE = {"size": 1, "parameters": ["rate"]}
LONG = ds.Stepping((0.0, END), "rk6vr", rtol=1e-9)
SHORT = ds.Stepping((0.0, END), "rk4", dt=0.01)
PASSING = ds.Event(lambda t, u, p: u[0] - LEVEL, name="passing")


def decay(t, u, p):
    return -p[0] * u


def made(make=ds.ODE, **more):
    return make(decay, **MADE, **more)


def run_of(problem, stepping=LONG, start=1.0):
    return ds.solve(problem, [start], [RATE], stepping)


def anew(density):
    """Return a function that no look has counted yet."""

    def call(t, u, p):
        return density(t, u, p)

    return call


def until(t):
    """Return the integral of u from 0 to t."""
    return (1.0 - np.exp(-RATE * t)) / RATE


def distance(t, u, p):
    return np.abs(u[0] - LEVEL)


def distance_by_if(t, u, p):
    return u[0] - LEVEL if u[0] > LEVEL else LEVEL - u[0]


def distance_by_maximum(t, u, p):
    return np.maximum(u[0] - LEVEL, LEVEL - u[0])


def distance_by_table(t, u, p):
    return np.interp(u[0], [-1.0, LEVEL, 2.0], [1.0 + LEVEL, 0.0, 2.0 - LEVEL])


DISTANCE = (
    LEVEL * (END - CROSSED) + until(CROSSED) - LEVEL * CROSSED - (until(END) - until(CROSSED))
)
SLOPE = 2 * until(CROSSED) - until(END)
BEND = 2 * LEVEL / RATE
"""Derivatives of int |u - level| dt in u0."""
DISTANCES = [distance, distance_by_if, distance_by_maximum, distance_by_table]


@pytest.mark.slow
@pytest.mark.parametrize("density", DISTANCES)
def test_a_kink_of_a_running_cost_is_told_to_hessians(density):
    run = run_of(made(), SHORT)
    with pytest.warns(KinkWarning, match=r"running cost has a kink .* near t = 0\.866(.|\n)*event"):
        lacking = ds.hessian_product(run, ds.Running(density), [1.0], [0.0]).u0[0]
    assert abs(lacking - BEND) > 0.5 * BEND


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("density", DISTANCES)
def test_an_event_on_the_kink_of_a_running_cost_makes_all_exact(density, make):
    run, cost = run_of(made(make, events=[PASSING])), ds.Running(density)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient, product = ds.adjoint(run, cost), ds.hessian_product(run, cost, [1.0], [0.0])
    assert gradient.value == pytest.approx(DISTANCE, rel=1e-6)
    assert gradient.u0[0] == pytest.approx(SLOPE, rel=1e-5)
    assert product.u0[0] == pytest.approx(BEND, rel=1e-5)


@pytest.mark.slow
def test_gradients_over_long_steps_are_told_how_much_a_kink_may_cost():
    """Where in its step the kink is decides: the worst of several is what is told."""
    run, told, lost = run_of(made(), ds.Stepping((0.0, END), "rk6vr", dt=0.3)), [], []
    for level in np.linspace(0.3, 0.7, 9):
        cost = ds.Running(lambda t, u, p, level=level: np.abs(u[0] - level))
        with pytest.warns(KinkWarning, match=r"its gradient may be off by \S+ %") as warned:
            slope = ds.adjoint(run, cost).u0[0]
        text = next(str(item.message) for item in warned if item.category is KinkWarning)
        told.append(float(text.split("off by ")[1].split(" %")[0]) / 100)
        exact = 2 * until(np.log(1 / level) / RATE) - until(END)
        lost.append(abs(slope - exact) / until(END))  # beside the integral without signs
    assert max(lost) > 0.01
    assert 0.5 < max(told) / max(lost) < 12


def test_gradients_over_short_steps_are_right_and_not_told():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slope = ds.adjoint(run_of(made(), SHORT), ds.Running(anew(distance))).u0[0]
    assert slope == pytest.approx(SLOPE, abs=0.003)


def above(t, u, p):
    return 1.0 if u[0] > LEVEL else 0.0


def above_by_where(t, u, p):
    return np.where(u[0] > LEVEL, 1.0, 0.0)


def above_by_heaviside(t, u, p):
    return np.heaviside(u[0] - LEVEL, 0.5)


def above_what_is_a_parameter(t, u, p):
    return np.where(u[0] > LEVEL * p[0] / RATE, 1.0, 0.0)


ABOVE = [above, above_by_where, above_by_heaviside, above_what_is_a_parameter]


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("stepping", [LONG, SHORT])
@pytest.mark.parametrize("density", ABOVE)
def test_gradients_of_a_running_cost_that_jumps_are_told(density, stepping, make):
    cost = ds.Running(anew(density))
    with pytest.warns(KinkWarning, match=r"the running cost jumps near t = 0\.8"):
        assert ds.adjoint(run_of(made(make), stepping), cost).u0[0] == 0.0  # and not 1.25


@pytest.mark.slow
def test_a_jump_at_an_event_that_changes_nothing_is_told_too():
    """Steps end there, and have the cost of either side by chance."""
    run = run_of(made(events=[PASSING]), SHORT)
    with pytest.warns(
        KinkWarning, match=r"the running cost jumps at t = 0\.866.*where a step ends"
    ):
        slope = ds.adjoint(run, ds.Running(anew(above))).u0[0]
    assert abs(slope - 1 / RATE) > 0.1


def test_the_remedies_of_a_jump_are_exact():
    run = run_of(made(events=[PASSING]))
    assert ds.adjoint(run, EventTime("passing")).u0[0] == pytest.approx(1 / RATE, rel=1e-6)

    def counting(rate):
        return ds.ODE(lambda t, u, p: np.array([-p[0] * u[0], rate]), size=2, parameters=["rate"])

    modes = {"above": counting(1.0), "below": counting(0.0)}
    change = ds.Event(lambda t, u, p: u[0] - LEVEL, name="passing", mode="below")
    run = ds.solve(ds.hybrid(modes, start="above", events=[change]), [1.0, 0.0], [RATE], LONG)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[1]))
    assert gradient.value == pytest.approx(CROSSED, rel=1e-6)
    assert gradient.u0[0] == pytest.approx(1 / RATE, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("stepping", [LONG, SHORT])
def test_a_jump_in_time_is_told_and_breakpoints_make_it_exact(stepping):
    def early(t, u, p):
        return u[0] if t < 0.7 else 0.0

    with pytest.warns(
        KinkWarning, match=r"running cost jumps (near|at) t = 0\.7(.|\n)*breakpoints"
    ):
        off = ds.adjoint(run_of(made(), stepping), ds.Running(anew(early))).value
    assert abs(off - until(0.7)) > 5e-4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = run_of(made(breakpoints=[0.7]), stepping)
        gradient = ds.adjoint(run, ds.Running(anew(early)))
    assert gradient.value == pytest.approx(until(0.7), rel=1e-7)
    assert gradient.u0[0] == pytest.approx(until(0.7), rel=1e-7)


def test_traced_costs_are_told_too():
    problem = ds.trace(decay, **MADE, running=distance)
    with pytest.warns(KinkWarning, match="running cost has a kink"):
        ds.hessian_product(run_of(problem, SHORT), problem.running, [1.0], [0.0])
    cost = problem.terminal(lambda t, u, p: np.abs(u[0]))
    with pytest.warns(KinkWarning, match="a cost at t = 3 is evaluated exactly"):
        ds.adjoint(run_of(problem, start=0.0), cost)


# -- costs at points


def test_a_misfit_on_its_kink_is_told():
    """|u - data| at a start that is the data: the gradient is that of one side."""
    problem = made(ds.ODE)
    run = ds.solve(problem, [0.0], [RATE], LONG)
    cost = ds.Terminal(lambda t, u, p: np.abs(u[0]))
    with pytest.warns(
        KinkWarning, match=r"evaluated exactly where .* gradient is that of one side"
    ):
        ds.adjoint(run, cost)


def test_hessians_of_a_penalty_on_its_threshold_are_told_and_gradients_are_not():
    run = ds.solve(made(), [0.0], [RATE], LONG)
    cost = ds.Terminal(lambda t, u, p: np.maximum(u[0], 0.0) ** 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ds.adjoint(run, cost).u0[0] == 0.0
    with pytest.warns(KinkWarning, match="second derivatives are those of one side"):
        ds.hessian_product(run, cost, [1.0], [0.0])


def test_observations_and_costs_at_events_on_a_kink_are_told():
    run = ds.solve(made(), [0.0], [RATE], LONG, [1.0])
    observed = ds.LeastSquares(
        [1.0], [[1.0]], 1.0, observe=lambda t, u, p: np.array([np.abs(u[0])])
    )
    with pytest.warns(KinkWarning, match="a cost at t = 1 is evaluated exactly"):
        ds.adjoint(run, observed)
    run = run_of(made(events=[ds.Event(lambda t, u, p: t - 1.0, name="clock")]))
    cost = AtEvent(lambda t, u, p: np.abs(p[0] - RATE) * u[0], "clock")
    with pytest.warns(KinkWarning, match="a cost at t = 1 is evaluated exactly"):
        ds.adjoint(run, cost)


# -- no false alarms


SMOOTH = [
    lambda t, u, p: u[0] ** 2 + p[0],
    lambda t, u, p: np.abs(u[0]) ** 3,
    lambda t, u, p: np.maximum(u[0] - LEVEL, 0.0) ** 2,  # its slope is continuous
    lambda t, u, p: np.maximum(u[0] - LEVEL, 0.0) ** 3 + u[0],
    lambda t, u, p: np.where(u[0] > LEVEL, (u[0] - LEVEL) ** 2, -((u[0] - LEVEL) ** 2)),
    lambda t, u, p: np.abs(u[0] + 1.0),  # never crossed
    lambda t, u, p: np.clip(u[0], -2.0, 2.0),
    lambda t, u, p: np.sqrt(u[0] ** 2 + 1e-2),
    lambda t, u, p: np.sin(40 * t) * u[0],
    lambda t, u, p: np.linalg.norm(u - LEVEL) ** 2,
    lambda t, u, p: u[0] if t > -1.0 else 0.0,
    lambda t, u, p: np.log(u[0]) if u[0] > 0 else -1e9,
    lambda t, u, p: np.tanh(20 * (u[0] - LEVEL)),
]


@pytest.mark.slow
@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("number", range(len(SMOOTH)))
def test_costs_that_are_smooth_enough_are_not_told(number, make):
    run = run_of(made(make), SHORT)
    for cost in (ds.Running(SMOOTH[number]), ds.Terminal(SMOOTH[number])):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ds.adjoint(run, cost)
            ds.hessian_product(run, cost, [1.0], [0.0])


@pytest.mark.slow
@pytest.mark.parametrize("start", [0.0, 1.0, -1.0, 1e-8, 1e8])
def test_points_beside_a_kink_are_not_told(start):
    run = run_of(made(), SHORT, start)
    cost = ds.Terminal(lambda t, u, p: np.abs(u[0] - 0.3) + np.maximum(u[0], -0.1) ** 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.adjoint(run, cost)
        ds.hessian_product(run, cost, [1.0], [0.0])


@pytest.mark.slow
def test_looks_at_costs_become_rarer_and_cost_nothing_to_speak_of():
    cost, told = ds.Running(anew(above)), []
    problem = made()
    for k in range(1, 20):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ds.adjoint(run_of(problem), cost)
        told += [k] * any(item.category is KinkWarning for item in caught)
    assert told == [1, 8]
    calls = 0

    def counted(t, u, p):
        nonlocal calls
        calls += 1
        return u[0] ** 2

    run, smooth = run_of(problem, SHORT), ds.Running(counted)
    ds.adjoint(run, smooth)
    first, calls = calls, 0
    ds.adjoint(run, smooth)
    # one evaluation tells that there is nothing to be watched, and a few are for the differences
    # that the first derivatives are compared with
    assert first <= calls + 20


@pytest.mark.slow
def test_a_look_at_a_kink_takes_less_time_than_three_gradients():
    run = run_of(made(), SHORT)
    spent = []
    for _ in range(3):
        cost = ds.Running(anew(distance))
        for look in range(2):
            begin = time.process_time()
            ds.adjoint(run, cost)
            spent.append((look, time.process_time() - begin))
    first, later = (min(seconds for look, seconds in spent if look == k) for k in (0, 1))
    assert first < 4 * later


def set_point(t):
    return np.where(t < 20.0, 1.0, 2.0)


def controlled(t, u, p):
    """A mass by a spring that follows its set point by control in three parts."""
    error = set_point(t) - u[0]
    force = p[0] * error + p[1] * u[2] - p[2] * u[1]
    return np.stack([u[1], force - 0.5 * u[1] - u[0], error])


@pytest.mark.filterwarnings("error::daeosens.errors.KinkWarning")
@pytest.mark.parametrize(("method", "rtol"), [("rk6vr", 1e-6), ("esdirk5", 1e-8)])
def test_a_jump_that_the_equations_have_at_the_same_time_is_no_news(method, rtol):
    """Steps are short there, and it stays there: value and gradient are right without a word."""
    gains = [2.0, 0.8, 0.5]
    cost = ds.Running(lambda t, u, p: (set_point(t) - u[0]) ** 2)
    gradients = []
    for known, (steps, accuracy) in (((), (method, rtol)), ([20.0], ("rk8vr", 1e-12))):
        problem = ds.ODE(controlled, 3, ["kp", "ki", "kd"], breakpoints=known)
        run = ds.solve(problem, np.zeros(3), gains, ds.Stepping((0.0, 40.0), steps, rtol=accuracy))
        gradients.append(ds.adjoint(run, cost))
    told, exact = gradients
    assert told.value == pytest.approx(exact.value, rel=100 * rtol)
    np.testing.assert_allclose(told.p, exact.p, rtol=1000 * rtol)


def test_a_jump_of_the_cost_that_moves_is_told_where_the_equations_jump_too():
    problem = ds.ODE(controlled, 3, ["kp", "ki", "switched"])
    cost = ds.Running(lambda t, u, p: np.where(t < p[2], 1.0, 2.0) - u[0])
    run = ds.solve(
        problem, np.zeros(3), [2.0, 0.8, 20.0], ds.Stepping((0.0, 40.0), "rk6vr", rtol=1e-6)
    )
    with pytest.warns(KinkWarning, match="the running cost jumps near t = 20"):
        ds.adjoint(run, cost)
