"""Events along runs of delay equations: where they happen, and what is delayed sees of them."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import daeosens as ds
from daeosens import DDE, Event, Stepping, solve
from daeosens.errors import InputError, KinkWarning, SolveError, UnsupportedError

STEPS = [("rk4", {"dt": 0.1}), ("rk5ts", {"rtol": 1e-8}), ("rk8vr", {"rtol": 1e-10})]
KICK = Event(
    lambda t, u, p: u[0] - p[0],
    lambda t, u, p: u + p[1],
    direction=-1,
    name="kick",
)


def late(events, rhs=lambda t, u, z, p: -z[0], parameters=("level", "kick", "tau")):
    """Return u' = -u(t - tau) from 1, with events."""
    return DDE(rhs, 1, parameters, delays=["tau"], history=[1.0], events=events)


def kicked(level, kick, t):
    """Return the time of the first kick at a falling level, and the state at 1 < t < 2.

    A kick of 2 or more is the only one until then.
    """
    first = 1.0 - level

    def of_start(a, b):  # the integral of -(1 - (s - 1))
        return 0.5 * (b * b - a * a) - 2.0 * (b - a)

    u = level + kick - (1.0 - first)
    if t < 1.0 + first:
        return first, u + of_start(1.0, t)
    since = t - 1.0 - first
    return first, u + of_start(1.0, 1.0 + first) - (level + kick) * since + 0.5 * since**2


@pytest.mark.parametrize(("method", "sizes"), STEPS)
def test_a_kick_comes_back_after_the_delay(method, sizes):
    """Polynomials, which all of these methods have exactly: the jump is at an end of steps."""
    run = solve(late([KICK]), [1.0], [0.3, 2.0, 1.0], Stepping((0.0, 1.9), method, **sizes))
    (crossing,) = run.crossings
    assert abs(crossing.t - 0.7) < 1e-15
    for t in (1.2, 1.65, 1.71, 1.85, 1.9):
        assert abs(run(t).array[0] - kicked(0.3, 2.0, t)[1]) < 1e-13
    assert np.abs(run.times - 1.7).min() < 1e-15
    assert abs(run(crossing.t, "before").array[0] - 0.3) < 1e-14
    assert abs(run(crossing.t).array[0] - 2.3) < 1e-14


def rates(t, u, z):
    return np.array([-1.2 * z[0] + 0.3 * np.sin(t) * u[1], 0.4 * z[1] - u[1] ** 2])


def by_scipy(tau, level, dose, end):
    """Return times of kicks and the state at the end, piece by piece."""
    start = np.array([1.0, 0.8])
    pieces = [(-10.0, 0.0, lambda t: start)]

    def delayed(t, side):
        return next(f for a, b, f in reversed(pieces) if a <= t + side)(t)

    def falls(t, u):
        return u[0] - level

    falls.direction, falls.terminal = -1.0, True
    t, u, kicks, jumps = 0.0, start, [], {0.0, dose}
    while t < end:
        ends = sorted({k + m * tau for k in jumps for m in range(7)} | {end})
        stop = next(x for x in ends if x > t + 1e-12)

        def f(x, y, stop=stop, t=t):
            return rates(x, y, delayed(x - tau, 1e-12 if x < 0.5 * (t + stop) else -1e-12))

        piece = solve_ivp(
            f, (t, stop), u, "DOP853", rtol=1e-12, atol=1e-13, dense_output=True, events=falls
        )
        pieces.append((t, piece.t[-1], piece.sol))
        t, u = piece.t[-1], piece.y[:, -1].copy()
        if piece.status == 1:
            u += np.array([0.5, 0.1])
            kicks.append(t)
            jumps.add(t)
        elif t == dose:
            u = u * [1.1, 0.9]
    return kicks, u


def test_against_scipy_by_the_method_of_steps():
    events = [
        Event(
            lambda t, u, p: u[0] - p[1],
            lambda t, u, p: u + np.array([0.5, 0.1]),
            direction=-1,
            name="kick",
        ),
        Event("dose", lambda t, u, p: u * np.array([1.1, 0.9]), name="dose"),
    ]
    problem = DDE(
        lambda t, u, z, p: rates(t, u, z[0]),
        2,
        ["tau", "level", "dose"],
        delays="tau",
        history=[1.0, 0.8],
        events=events,
    )
    kicks, end = by_scipy(0.83, 0.31, 1.45, 3.0)
    stepping = Stepping((0.0, 3.0), "rk8vr", rtol=1e-11)
    run = solve(problem, [1.0, 0.8], [0.83, 0.31, 1.45], stepping)
    found = [crossing.t for crossing in run.crossings if crossing.name == "kick"]
    assert len(kicks) > 2
    np.testing.assert_allclose(found, kicks, atol=1e-9)
    np.testing.assert_allclose(run.u[-1], end, atol=1e-9)


def test_a_relay_with_a_delay_by_an_unknown_that_switches():
    """The solution of x' = -sign(x(t - tau)) is a triangle of period 4 tau."""
    switch = Event(lambda t, u, p: u[0], lambda t, u, p: u * np.array([1.0, -1.0]), name="switch")
    problem = DDE(
        lambda t, u, z, p: np.array([-z[0, 1], 0.0 * u[0]]),
        ["x", "sign"],
        ["tau"],
        delays="tau",
        history=[0.5, 1.0],
        events=[switch],
    )
    run = solve(problem, [0.5, 1.0], [0.6], Stepping((0.0, 5.0), "rk5ts", rtol=1e-6))
    times = [crossing.t for crossing in run.crossings]
    np.testing.assert_allclose(times, 0.5 + 1.2 * np.arange(4), atol=1e-13)
    peaks = [run(0.5 + 1.2 * k + 0.6).array[0] for k in range(3)]
    np.testing.assert_allclose(peaks, [-0.6, 0.6, -0.6], atol=1e-13)


def test_an_event_that_ends_the_run():
    end = Event(lambda t, u, p: u[0] - p[0], direction=-1, terminal=True, name="end")
    run = solve(late([end]), [1.0], [0.3, 0.0, 1.0], Stepping((0.0, 3.0), "rk4", dt=0.5))
    assert abs(run.times[-1] - 0.7) < 1e-15
    assert run.crossings[-1].name == "end"


def test_known_times_at_the_ends_of_a_run_and_at_observations():
    doses = [Event(t, lambda t, u, p: u + 1.0, name=f"dose {t:g}") for t in (0.0, 1.0, 3.0)]
    stepping = Stepping((0.0, 3.0), "rk4", dt=0.1)
    run = solve(late(doses), [1.0], [0.3, 0.5, 1.0], stepping, [1.0])
    assert [crossing.t for crossing in run.crossings] == [0.0, 1.0, 3.0]
    np.testing.assert_allclose(
        [run.at(1.0, side).array[0] for side in ("before", "after")], [1.0, 2.0], atol=1e-14
    )
    with pytest.raises(InputError, match="side="):
        run.at(1.0)
    assert run.u[-1, 0] - run.u[-2, 0] == pytest.approx(1.0)


def test_a_start_on_the_surface_and_an_event_at_a_breaking_point():
    stepping = Stepping((0.0, 1.2), "rk4", dt=0.1)
    run = solve(late([KICK]), [1.0], [1.0, 0.5, 1.0], stepping)
    np.testing.assert_allclose([crossing.t for crossing in run.crossings[:2]], [0.0, 0.5])
    run = solve(late([KICK]), [1.0], [0.0, 1.0, 1.0], stepping)
    assert [round(crossing.t, 12) for crossing in run.crossings] == [1.0]


def test_a_time_that_is_a_parameter_outside_of_the_span():
    dose = Event("when", lambda t, u, p: u + 1.0, name="dose")
    problem = late([dose], parameters=["when", "kick", "tau"])
    run = solve(problem, [1.0], [7.0, 0.0, 1.0], Stepping((0.0, 3.0), "rk4", dt=0.1))
    assert "did not happen" in str(run)
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))
    assert gradient.p[0] == 0.0


def test_a_traced_equation_gives_the_same():
    def model(events):
        return ds.trace(
            lambda t, u, z, p: -p.rate * z[0],
            1,
            ["level", "kick", "tau", "rate"],
            delays="tau",
            history=[1.0],
            events=events,
        )

    traced = model(
        [
            Event(
                lambda t, u, p: u[0] - p.level,
                lambda t, u, p: u + p.kick,
                direction=-1,
                name="kick",
            )
        ]
    )
    plain = late([KICK], lambda t, u, z, p: -p[3] * z[0], ["level", "kick", "tau", "rate"])
    p, stepping = [0.3, 0.5, 1.03, 1.1], Stepping((0.0, 3.0), "rk5ts", rtol=1e-7)
    runs = [solve(problem, [1.0], p, stepping) for problem in (traced, plain)]
    np.testing.assert_allclose(runs[0].u, runs[1].u, atol=1e-13)
    cost = ds.Terminal(lambda t, u, p: u[0] ** 2)
    rows = [ds.hessian_product(run, cost, [1.0], [1.0, 1.0, 1.0, 1.0]).p for run in runs]
    np.testing.assert_allclose(*rows, rtol=1e-11)


def test_doses_by_a_table():
    problem = DDE(
        lambda t, u, z, p: p[0] * z[0] - u,
        ["drug"],
        ["back", "lag"],
        delays=[0.7],
        history=[0.0],
    )
    table = {"time": [0.0, 1.0, 9.0], "amount": [2.0, 1.0, 1.0]}
    treated = ds.problem.with_doses(problem, ds.problem.Doses(table, lag="lag"))
    run = solve(treated, [0.0], [0.3, 0.25], Stepping((0.0, 3.0), "rk5ts", rtol=1e-8))
    assert [crossing.t for crossing in run.crossings] == [0.25, 1.25]
    # until 0.25 + 0.7 nothing has come back
    assert abs(run(0.8).array[0] - 2.0 * np.exp(-0.55)) < 1e-7


def test_infusions_at_known_times():
    """Closed forms until the drug has come back twice: superposition of two constant rates."""
    problem = DDE(
        lambda t, u, z, p: p[0] * z[0], ["drug"], ["back", "lag"], delays=[0.7], history=[0.0]
    )
    table = {"time": [0.3, 0.5], "amount": [2.0, 0.6], "duration": [0.4, 0.3]}
    treated = ds.problem.with_doses(problem, table)
    run = solve(treated, [0.0], [0.3, 0.25], Stepping((0.0, 1.9), "rk5ts", rtol=1e-6))
    assert [crossing.t for crossing in run.crossings] == pytest.approx([0.3, 0.5, 0.7, 0.8])

    def given(t, power):
        """The integrals of so many folds of both rates up to a time."""
        parts = [(5.0, 0.3), (-5.0, 0.7), (2.0, 0.5), (-2.0, 0.8)]
        factorial = [1.0, 1.0, 2.0, 6.0][power]
        return sum(rate * max(t - begin, 0.0) ** power / factorial for rate, begin in parts)

    for t in (0.4, 0.6, 0.75, 1.05, 1.3, 1.75, 1.9):
        exact = given(t, 1) + 0.3 * given(t - 0.7, 2) + 0.09 * given(t - 1.4, 3)
        assert abs(run(t).array[0] - exact) < 1e-12
    with pytest.raises(InputError, match="lies outside the time span"):
        solve(treated, [0.0], [0.3, 0.25], Stepping((0.4, 1.9), "rk5ts", rtol=1e-6))
    with pytest.raises(UnsupportedError, match="infusions into a delay equation with a lag"):
        ds.problem.with_doses(problem, ds.problem.Doses(table, lag="lag"))


def test_what_is_refused():
    stepping = Stepping((0.0, 3.0), "rk4", dt=0.1)
    with pytest.raises(UnsupportedError, match=r"changes = .*\n.*\n.*unknown more of rate 0"):
        late([Event(1.0, changes={"kick": lambda t, u, p: 1.0})])
    with pytest.raises(InputError, match="lies outside the time span"):
        solve(late([Event(7.0)]), [1.0], [0.3, 0.5, 1.0], stepping)
    two = [
        Event(lambda t, u, p: u[0] - 0.3, name="a"),
        Event(lambda t, u, p: 2.0 * u[0] - 0.6, name="b"),
    ]
    with pytest.raises(SolveError, match='"a" and "b" at one instant'):
        solve(late(two), [1.0], [0.3, 0.5, 1.0], stepping)
    meet = [two[0], Event(0.7, name="b")]
    with pytest.raises(SolveError, match='"a" and "b" at one instant') as caught:
        solve(late(meet), [1.0], [0.3, 0.5, 1.0], stepping)
    assert caught.value.run.times[-1] == pytest.approx(0.7)
    ever = Event(lambda t, u, p: u[0] - 0.3, lambda t, u, p: u + 1e-12, direction=-1)
    with pytest.raises(SolveError, match="events accumulate"):
        solve(late([ever]), [1.0], [0.3, 0.5, 1.0], stepping)


def test_equations_that_jump_on_the_surface_are_told():
    rest = Event(lambda t, u, p: u[0] - 0.3, name="rest")
    problem = late([rest], lambda t, u, z, p: np.where(u > 0.3, -1.0, -2.0) * z[0])
    with pytest.warns(KinkWarning, match='event "rest": the equations themselves jump'):
        solve(problem, [1.0], [0.0, 0.0, 1.0], Stepping((0.0, 3.0), "rk4", dt=0.13))
