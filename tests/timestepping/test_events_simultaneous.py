"""Events at one instant: both orders agree, or the run is refused."""

import numpy as np
import pytest

from daeosens import ODE, Event, SolveError, Stepping, Terminal, adjoint, hybrid, solve, tangent
from daeosens.verify import duality
from tests.derivatives.test_event_hessians import close, exact_hessian, hessian
from tests.problem.test_event import flight


def fall(t, u, p):
    return np.array([u[1], -p[0] + 0 * u[0], u[3], -p[0] + 0 * u[0]])


def bounces(k):
    """Ball number k comes back with its own restitution."""

    def reset(t, u, p):
        factors = np.ones(4, dtype=p.dtype)
        factors[2 * k + 1] = -p[1 + k]
        return u * factors

    def reset_u(t, u, p):
        return np.diag([-p[1 + k] if j == 2 * k + 1 else 1.0 for j in range(4)])

    def reset_p(t, u, p):
        matrix = np.zeros((4, 3))
        matrix[2 * k + 1, 1 + k] = -u[2 * k + 1]
        return matrix

    def reset_hessian(t, u, p, w, du, dp):
        by_u, by_p = np.zeros(4), np.zeros(3)
        by_u[2 * k + 1] = -w[2 * k + 1] * dp[1 + k]
        by_p[1 + k] = -w[2 * k + 1] * du[2 * k + 1]
        return by_u, by_p

    return Event(
        lambda t, u, p: u[2 * k],
        reset,
        direction=-1,
        name=f"ball {k}",
        reset_u=reset_u,
        reset_p=reset_p,
        reset_t="autonomous",
        reset_hessian=reset_hessian,
    )


BALLS = ODE(fall, 4, ["gravity", "first", "second"], events=[bounces(0), bounces(1)])
START, P = np.array([5.0, -0.1, 5.0, -0.1]), np.array([10.0, 0.8, 0.6])
COST = Terminal(lambda t, u, p: u[0] * u[1] + 0.3 * u[2] ** 2 * u[3])


def closed(x):
    """The cost at T = 1.9 after one bounce of each ball; x = (u0, p) may be complex."""
    a, b, _ = flight(np.array([x[0], x[1], x[4], x[5]]), 1.9)
    c, d, _ = flight(np.array([x[2], x[3], x[4], x[6]]), 1.9)
    return a * b + 0.3 * c**2 * d


@pytest.mark.parametrize("method", ["rk2a", "rk4", "rk5dp", "cn", "midpoint"])
def test_two_balls_that_hit_the_floor_together(method):
    """They have nothing to do with each other: derivatives are those of each alone."""
    trajectory = solve(BALLS, START, P, Stepping((0.0, 1.9), method, dt=0.4))
    assert [crossing.name for crossing in trajectory.crossings] == ["ball 0", "ball 1"]
    assert trajectory.crossings[0].t == trajectory.crossings[1].t
    point = np.concatenate([START, P])
    expected = np.array([closed(point + 1e-30j * unit).imag / 1e-30 for unit in np.eye(7)])
    gradient = adjoint(trajectory, COST)
    ours = np.concatenate([gradient.u0, gradient.p])
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-10 * abs(expected).max())
    assert duality(trajectory, COST) < 1e-12
    close(hessian(trajectory, COST), exact_hessian(closed, point), 1e-8)


def test_the_order_of_the_list_does_not_matter():
    other = ODE(fall, 4, ["gravity", "first", "second"], events=[bounces(1), bounces(0)])
    stepping = Stepping((0.0, 1.9), "rk4", dt=0.4)
    du0, dp = [0.3, -0.2, 0.5, 0.1], [0.2, 0.1, -0.3]
    values, two = (
        tangent(solve(problem, START, P, stepping), du0, dp).final.array
        for problem in (BALLS, other)
    )
    np.testing.assert_allclose(values, two, rtol=1e-12)


def test_resets_that_do_not_commute_are_refused():
    """Doubling and adding: the states differ."""
    first = Event(lambda t, u, p: u[0], lambda t, u, p: np.array([0 * u[0], 2 * u[1]]), name="a")
    second = Event(
        lambda t, u, p: u[0] ** 3 + u[0], lambda t, u, p: u + np.array([0.0, 1.0]), name="b"
    )
    problem = ODE(lambda t, u, p: np.array([-1.0 + 0 * u[0], 0 * u[1]]), 2, events=[first, second])
    with pytest.raises(SolveError, match=r'"a" and "b" at one instant.*the states differ'):
        solve(problem, [0.55, 1.0], None, Stepping((0.0, 1.0), "rk4", dt=0.1))


def test_modes_that_depend_on_the_order_are_refused():
    modes = {name: ODE(lambda t, u, p: -1.0 + 0 * u, 1) for name in ("x", "y", "z")}
    events = [
        Event(lambda t, u, p: u[0], mode="y", within=["x"], name="a"),
        Event(lambda t, u, p: 2 * u[0], mode="z", name="b"),
    ]
    with pytest.raises(SolveError, match=r'"a" and "b" at one instant.*lead to the modes'):
        solve(hybrid(modes, "x", events), [0.55], None, Stepping((0.0, 1.0), "rk4", dt=0.1))


def test_derivatives_that_depend_on_the_order_are_refused():
    """A comes before B on one side: there the state passes B's surface at twice the speed.

    u' = (-1, -s), s = 1 before A and 2 after; A where u0 = 0, and B, which adds u1 + u0 to the
    third component, where u1 = 0.  At the instant all resets do nothing, and both orders agree.
    """
    modes = {
        name: ODE(lambda t, u, p, s=s: np.array([-1.0 + 0 * u[0], -s + 0 * u[0], 0 * u[0]]), 3)
        for name, s in (("slow", 1.0), ("fast", 2.0))
    }
    events = [
        Event(lambda t, u, p: u[0], mode="fast", within=["slow"], name="a"),
        Event(
            lambda t, u, p: u[1],
            lambda t, u, p: np.array([u[0], u[1], u[2] + np.where(u[0] < 0, 5.0, 1.0) * u[0]]),
            direction=-1,
            name="b",
            reset_u=lambda t, u, p: np.array(
                [[1.0, 0, 0], [0, 1, 0], [5.0 if u[0] < 0 else 1.0, 0, 1]]
            ),
            reset_t="autonomous",
        ),
    ]
    problem = hybrid(modes, "slow", events)
    ok = solve(problem, [0.55, 0.56, 0.0], None, Stepping((0.0, 1.0), "rk4", dt=0.1))
    assert [crossing.name for crossing in ok.crossings] == ["a", "b"]
    with pytest.raises(SolveError, match=r'"a" and "b" at one instant.*derivatives differ'):
        solve(problem, [0.55, 0.55, 0.0], None, Stepping((0.0, 1.0), "rk4", dt=0.1))


def test_two_balls_with_masses_hit_the_floor_together():
    """The same equations in units of force."""
    masses = np.diag([1.0, 2.0, 1.0, 3.0])
    problem = ODE(
        lambda t, u, p: masses @ fall(t, u, p),
        4,
        ["gravity", "first", "second"],
        mass=masses,
        events=[bounces(0), bounces(1)],
    )
    for method in ("cn", "midpoint"):
        runs = [
            solve(value, START, P, Stepping((0.0, 1.9), method, dt=0.4))
            for value in (problem, BALLS)
        ]
        assert runs[0].crossings[0].t == runs[0].crossings[1].t
        gradient, expected = (adjoint(run, COST) for run in runs)
        np.testing.assert_allclose(gradient.u0, expected.u0, rtol=1e-9)
        np.testing.assert_allclose(gradient.p, expected.p, rtol=1e-9)
        assert duality(runs[0], COST) < 1e-12
        close(hessian(runs[0], COST), hessian(runs[1], COST), 1e-9)


def test_orders_that_matter_with_a_mass_matrix_are_refused():
    first = Event(lambda t, u, p: u[0], lambda t, u, p: np.array([0 * u[0], 2 * u[1]]), name="a")
    second = Event(
        lambda t, u, p: u[0] ** 3 + u[0], lambda t, u, p: u + np.array([0.0, 1.0]), name="b"
    )
    problem = ODE(
        lambda t, u, p: np.array([-2.0 + 0 * u[0], 0 * u[1]]),
        2,
        mass=2.0 * np.eye(2),
        events=[first, second],
    )
    with pytest.raises(SolveError, match=r'"b" and "a" at one instant.*the states differ'):
        solve(problem, [0.55, 1.0], None, Stepping((0.0, 1.0), "cn", dt=0.1))


def doses(first, second):
    """Return a decay with two events at times that are parameters."""
    events = [Event("one", first, name="one"), Event("two", second, name="two")]
    return ODE(lambda t, u, p: -p[0] * u * (1 + t), 1, ["rate", "one", "two"], events=events)


@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_two_doses_that_commute_may_be_given_at_the_start(method):
    """As anywhere else; derivatives are the limit of those of doses a moment later."""
    problem = doses(lambda t, u, p: u + 2.0, lambda t, u, p: u + 0.7)
    stepping, cost = Stepping((0.0, 2.0), method, dt=0.1), Terminal(lambda t, u, p: u[0] ** 2)
    run = solve(problem, [1.0], [0.5, 0.0, 0.0], stepping)
    assert [(crossing.name, crossing.t) for crossing in run.crossings] == [
        ("one", 0.0),
        ("two", 0.0),
    ]
    assert run.at(0.0, "before").array[0] == 1.0
    near = solve(problem, [1.0], [0.5, 1e-7, 2e-7], stepping)
    assert duality(run, cost) < 1e-12
    np.testing.assert_allclose(adjoint(near, cost).p, adjoint(run, cost).p, rtol=1e-6)
    np.testing.assert_allclose(hessian(near, cost), hessian(run, cost), rtol=1e-5)


def test_two_doses_at_the_start_whose_order_matters_are_a_failed_evaluation():
    problem = doses(lambda t, u, p: u + 2.0, lambda t, u, p: 3.0 * u)
    for at in (0.0, 1.0):
        with pytest.raises(SolveError, match=f'"one" and "two" at one instant, t = {at:g}'):
            solve(problem, [1.0], [0.5, at, at], Stepping((0.0, 2.0), "rk4", dt=0.1))
