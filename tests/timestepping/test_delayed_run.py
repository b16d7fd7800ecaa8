"""Runs of delay equations against closed forms and 30 digits."""

from math import factorial

import numpy as np
import pytest

from daeosens import DDE, InputError, Stepping, solve, trace
from daeosens.errors import NotFiniteError, SolveError
from daeosens.methods import METHODS

ORDERS = {name: method.order for name, method in METHODS.items() if method.explicit}


def delayed_decay(t, u, z, p):
    return -p[0] * z[0]


def exact(t):
    """Return the solution of u' = -u(t - 1) from 1: a polynomial on each piece."""
    return sum((-1) ** k * (t - k + 1) ** k / factorial(k) for k in range(int(t) + 2))


@pytest.mark.parametrize("method", ["rk5ts", "rk5dp", "rk6vr", "rk7vr", "rk8vr"])
def test_polynomials_of_low_degree_are_exact(method):
    problem = DDE(delayed_decay, 1, ["rate"], delays=1.0, history=[1.0])
    run = solve(problem, [1.0], [1.0], Stepping((0.0, 4.3), method, dt=0.3))
    times = np.array([0.5, 1.0, 1.77, 2.0, 3.3, 4.3])
    np.testing.assert_allclose(run(times).ravel(), [exact(t) for t in times], atol=3e-14)
    assert {1.0, 2.0, 3.0, 4.0} <= set(run.times.tolist())
    assert run.step_sizes.max() <= 0.3


def growth(t, u, z, p):
    """Return the rate of sin(t) and exp(-t / 2) by what they were."""
    return np.array(
        [
            np.cos(t) + p[0] * (u[0] * z[0, 1] - np.sin(t) * np.exp(-0.5 * (t - 0.7))),
            -0.5 * np.exp(-0.35) * z[0, 1] + z[1, 0] * u[1] - np.sin(t - 1.3) * np.exp(-0.5 * t),
        ]
    )


def before(t, p):
    return np.array([np.sin(t), np.exp(-0.5 * t)])


@pytest.mark.parametrize("method", ORDERS)
def test_the_order_is_that_of_the_method_at_steps_and_between(method):
    """A smooth solution; orders at states and between them."""
    problem, order = DDE(growth, 2, ["a"], delays=[0.7, 1.3], history=before), ORDERS[method]
    parts = {1: (60, 120), 2: (30, 60), 3: (20, 40), 6: (4, 8), 7: (2, 4), 8: (1, 2)}.get(
        order, (6, 12)
    )
    times = np.linspace(0.05, 2.75, 28)
    truth = np.array([before(t, None) for t in times])
    errors = []
    for count in parts:
        # commensurable with the delays, so that all steps are equal
        stepping = Stepping((0.0, 2.8), method, dt=0.7 / count)
        errors.append(np.abs(solve(problem, [0.0, 1.0], [0.5], stepping)(times) - truth).max())
    assert np.log2(errors[0] / errors[1]) > order - 0.5


def epidemic(t, x, z, p):
    infection = x[0] * z[0, 1]
    return np.array(
        [
            -p[0] * infection + p[1] * z[1, 1],
            p[2] * infection - p[3] * x[1],
            p[4] * x[1] - p[5] * z[1, 1],
        ]
    )


def mackey_glass(t, x, z, p):
    return p[0] * z[0] / (1.0 + z[0] ** p[2]) - p[1] * x


# tests/references/delay_equations.py
EPIDEMIC_AT_40 = [
    1.30296952790825894901574213369,
    9.27829119598839786151203609586,
    16.7795061261331364419706088735,
]
MACKEY_GLASS_AT_20 = 1.20261775006613785267562751592


@pytest.mark.parametrize(
    ("method", "sizes", "error"),
    [
        ("rk4", {"dt": 0.05}, 3e-5),
        ("rk5ts", {"rtol": 1e-9}, 1e-7),
        ("rk8vr", {"dt": 0.125}, 1e-11),
    ],
)
def test_an_epidemic_with_two_delays(method, sizes, error):
    start = [5.0, 0.1, 1.0]
    problem = DDE(epidemic, 3, 6, delays=[1.0, 10.0], history=start)
    rates = np.arange(1, 7) / 10
    run = solve(problem, start, rates, Stepping((0.0, 40.0), method, **sizes))
    assert np.abs(run.u[-1] - EPIDEMIC_AT_40).max() < error


@pytest.mark.parametrize(
    ("method", "sizes", "error"), [("rk6vr", {"rtol": 1e-10}, 1e-8), ("rk8vr", {"dt": 0.1}, 1e-9)]
)
def test_mackey_and_glass(method, sizes, error):
    problem = DDE(mackey_glass, 1, ["a", "b", "n", "tau"], delays="tau", history=[0.5])
    run = solve(problem, [0.5], [2.0, 1.0, 7.0, 2.0], Stepping((0.0, 20.0), method, **sizes))
    assert abs(run.u[-1, 0] - MACKEY_GLASS_AT_20) < error


def test_orders_against_digits():
    problem = DDE(mackey_glass, 1, 4, delays=lambda p: p[3], history=[0.5])
    for method, parts in (("rk4", (10, 20)), ("rk5ts", (10, 20)), ("rk6vr", (5, 10))):
        errors = [
            abs(
                solve(
                    problem, [0.5], [2.0, 1.0, 7.0, 2.0], Stepping((0.0, 20.0), method, dt=2.0 / n)
                ).u[-1, 0]
                - MACKEY_GLASS_AT_20
            )
            for n in parts
        ]
        assert np.log2(errors[0] / errors[1]) > ORDERS[method] - 0.5


def test_a_start_that_jumps_from_the_history():
    """U' = -u(t - 1) with u = 0 before and 1 at the start: u(t) = 1 until 1, then 2 - t."""
    problem = DDE(delayed_decay, 1, ["rate"], delays=1.0, history=[0.0])
    run = solve(problem, [1.0], [1.0], Stepping((0.0, 2.0), "rk5ts", dt=0.4))
    np.testing.assert_allclose(
        run([0.0, 0.9, 1.0, 1.5, 2.0]).ravel(), [1.0, 1.0, 1.0, 0.5, 0.0], atol=1e-14
    )


def test_a_delay_longer_than_the_run_is_a_known_function():
    def rhs(t, u, z, p):
        return z[0] - u

    problem = DDE(rhs, 1, delays=5.0, history=lambda t, p: np.array([t + 5.0]))
    run = solve(problem, [0.0], None, Stepping((0.0, 2.0), "rk8vr", dt=0.25))
    assert run.n_steps == 8
    np.testing.assert_allclose(run.u[-1, 0], 1.0 + np.exp(-2.0), rtol=1e-12)


def test_steps_are_no_longer_than_the_smallest_delay_and_hit_times():
    problem = DDE(delayed_decay, 1, ["rate"], delays=[0.3], history=[1.0])
    run = solve(problem, [1.0], [1.0], Stepping((0.0, 2.0), "rk4", dt=1.0), t_eval=[0.5, 1.7])
    assert run.step_sizes.max() <= 0.3 + 1e-15
    assert {0.5, 1.7} <= set(run.times.tolist())
    adaptive = solve(problem, [1.0], [1.0], Stepping((0.0, 2.0), "rk5ts", rtol=1e-3))
    assert adaptive.step_sizes.max() <= 0.3
    short = solve(problem, [1.0], [1.0], Stepping((0.0, 2.0), "rk5ts", rtol=1e-3, max_step=0.05))
    assert short.step_sizes.max() <= 0.05 + 1e-15


def test_times_that_are_breaking_points_as_well():
    """Steps of size 0 are between them; the run is the same."""
    problem = DDE(delayed_decay, 1, ["rate"], delays=1.0, history=[1.0])
    run = solve(problem, [1.0], [1.0], Stepping((0.0, 3.0), "rk5ts", dt=0.5), [1.0, 2.0])
    assert (run.step_sizes == 0.0).sum() == 2
    np.testing.assert_allclose(
        [run.at(t).array[0] for t in (1.0, 2.0, 3.0)], [0.0, -0.5, -1 / 6], atol=1e-14
    )


def test_a_solution_that_leaves_the_domain():
    def rhs(t, u, z, p):
        return u**2 * (1.0 + 0.0 * z[0])

    problem = DDE(rhs, 1, delays=0.5, history=[1.0])
    with pytest.raises(SolveError, match=r"not finite at t = |shrank to "):
        solve(problem, [1.0], None, Stepping((0.0, 2.0), "rk5ts", rtol=1e-6))
    with pytest.raises(NotFiniteError, match=r"not finite|callback 'rhs' returned"):
        solve(problem, [1.0], None, Stepping((0.0, 4.0), "rk4", dt=0.25))


def test_times_outside_of_the_run():
    problem = DDE(delayed_decay, 1, ["rate"], delays=1.0, history=[1.0])
    run = solve(problem, [1.0], [1.0], Stepping((0.0, 1.0), "auto", rtol=1e-6))
    assert run.stepping.method == "rk5ts"
    with pytest.raises(InputError, match=r"t = 1\.5 lies outside the time span"):
        run(1.5)


def test_stages_in_c_are_those_of_numpy():
    """Looked back over steps of many sizes, from a history that changes, and with a breakpoint."""

    def rhs(t, u, z, p):
        return [
            np.cos(t) + p[0] * (u[0] * z[0, 1] - np.sin(t)),
            z[1, 0] * u[1] - np.where(t < 1.1, 0.5, 0.2) * z[0, 1],
        ]

    known = {"delays": [0.7, 1.3], "history": before, "breakpoints": [1.1]}
    plain = DDE(lambda t, u, z, p: np.array(rhs(t, u, z, p)), 2, ["a"], **known)
    traced = trace(lambda t, u, z, p: np.array(rhs(t, u, z, p)), 2, ["a"], **known)
    assert traced.delays.rates.rhs_in_c is not None
    stepping = Stepping((0.0, 4.0), "rk6vr", dt=0.05)
    runs = [solve(model, [0.0, 1.0], [0.5], stepping) for model in (plain, traced)]
    np.testing.assert_array_equal(runs[0].times, runs[1].times)
    np.testing.assert_allclose(runs[0].u, runs[1].u, rtol=1e-13)


def test_rates_in_c_that_are_not_finite_name_their_time():
    model = trace(lambda t, u, z, p: -z[0] / np.sqrt(1.0 - t), 1, delays=0.5, history=[1.0])
    with pytest.raises(NotFiniteError, match=r"rhs. returned .inf in entry .1. at t = 1 "):
        solve(model, [1.0], None, Stepping((0.0, 2.0), "rk4", dt=0.1))
