"""Equations that jump in time: every step sees them from its inside.

The oracle knows nothing of sides: on each piece the force is one parameter, and the equations are
smooth.  Pieces are put together one after the other.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import frozen
import numpy as np
import pytest
from continuous_adjoint import continuous_adjoint
from continuous_tangent import continuous_forward
from forms import EXPLICIT, IMPLICIT, METHODS, NO_ESTIMATE, TIGHT
from scipy.integrate import solve_ivp
from support.sweeps import in_c

from daeosens import (
    DAE,
    ODE,
    InputError,
    LeastSquares,
    Parameter,
    Parameters,
    Reduced,
    Running,
    Stepping,
    Terminal,
    UnsupportedError,
    adjoint,
    hessian_product,
    sensitivities,
    solve,
    tangent,
    taylor,
    trace,
)
from daeosens.derivatives import evaluate
from daeosens.methods import find_method
from daeosens.problem import PiecewiseConstant
from daeosens.problem.breakpoints import admit_breakpoints
from daeosens.verify import duality

# the running costs are part of what is proved, whatever the steps for the states make of them
pytestmark = pytest.mark.filterwarnings("ignore:a running cost varies faster")


SPAN = (0.0, 1.0)
BREAKS = (0.3, 0.55, 0.8)
ENDS = (0.0, *BREAKS, 1.0)
FORCE = np.array([1.0, -2.0, 0.5, 3.0])
U0 = np.array([0.4, -0.1])
NAMES = ("first", "second", "third", "fourth")
MASS = np.array([[2.0, 0.3], [-0.1, 1.5]])
OBSERVED = (0.3, 0.7)
DATA = np.array([[0.2, 0.1], [0.0, 0.3]])


def piece(t):
    return int(np.searchsorted(BREAKS, np.real(t), side="right"))


def rate(t, u, force):
    swing = -0.5 * np.sin(u[0]) * (1 + u[1] ** 2)
    return np.array([u[1] + 0.3 * np.sin(3 * t), swing + force * (1 + 0.2 * u[0])])


def rate_u(t, u, force):
    return np.array(
        [
            [0.0, 1.0],
            [-0.5 * np.cos(u[0]) * (1 + u[1] ** 2) + 0.2 * force, -np.sin(u[0]) * u[1]],
        ]
    )


def density(t, u, force):
    return u[0] ** 2 * force + 0.1 * t * force**3 + u[1]


def rhs(t, u, p):
    return rate(t, u, p[piece(t)])


FORMS = {
    "rhs": (ODE(rhs, 2, NAMES, breakpoints=BREAKS), np.eye(2)),
    "M": (ODE(rhs, 2, NAMES, mass=MASS, breakpoints=BREAKS), MASS),
    "F": (
        DAE(lambda t, u, udot, p: MASS @ udot - rhs(t, u, p), 2, NAMES, breakpoints=BREAKS),
        MASS,
    ),
}
CASES = [("rhs", method) for method in METHODS] + [
    (name, method) for name in ("M", "F") for method in IMPLICIT
]
RUNS = [
    (name, method, adaptive)
    for name, method in CASES
    for adaptive in (False, True)
    if not adaptive or method not in NO_ESTIMATE
]
COST = (
    Terminal(lambda t, u, p: u[0] ** 2 + u[1] * p[3])
    + Running(lambda t, u, p: density(t, u, p[piece(t)]))
    + LeastSquares(OBSERVED, DATA)
)


@cache
def run(name, method, adaptive=False, dt=0.06):
    options = {} if find_method(method).explicit else TIGHT
    tolerance = {1: 1e-3, 2: 1e-3, 3: 1e-5}.get(find_method(method).order, 1e-7)
    control = {"rtol": tolerance, "atol": tolerance} if adaptive else {}
    stepping = Stepping(SPAN, method, dt=0.3 if adaptive else dt, options=options, **control)
    return solve(FORMS[name][0], U0, FORCE, stepping, OBSERVED)


def smooth(mass, k):
    """Return the equations of the k-th piece, smooth at all times."""
    return SimpleNamespace(
        residual=lambda t, u, udot, p: mass @ udot - rate(t, u, p[k]),
        residual_u=lambda t, u, udot, p: -rate_u(t, u, p[k]),
        residual_udot=lambda t, u, udot, p: mass,
    )


def oracle(name, method, log, u0, p):
    """Return the states and the cost of the given steps, each with the equations of its piece."""
    mass = FORMS[name][1]
    states, cost = [u0], 0.0
    for t, h in zip(*log, strict=False):
        k = piece(t + h / 2)
        step = frozen.step(smooth(mass, k), method, t, h, states[-1], p)
        cost += h * sum(share * density(time, u, p[k]) for share, time, u in step.nodes)
        states.append(step.end)
    for t, data in zip(OBSERVED, DATA, strict=True):
        n = int(np.argmin(abs(log[0] - t)))
        cost += 0.5 * ((states[n] - data) ** 2).sum()
    return states, cost + states[-1][0] ** 2 + states[-1][1] * p[3]


def reference(u0=U0, force=FORCE):
    """Return the solution at the end, one piece after the other."""
    u = u0
    for k in range(4):
        piece_of_time = (ENDS[k], ENDS[k + 1])
        arguments = {"args": (force[k],), "method": "DOP853", "rtol": 1e-13, "atol": 1e-14}
        u = solve_ivp(rate, piece_of_time, u, **arguments).y[:, -1]
    return u


# ---- the steps -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "method", "adaptive"), RUNS)
def test_steps_values_and_gradients_are_those_of_smooth_pieces_put_together(name, method, adaptive):
    log = run(name, method, adaptive)
    steps = (log.times, log.step_sizes)
    states, cost = oracle(name, method, steps, U0, FORCE)
    np.testing.assert_allclose(log.u, states, rtol=0, atol=1e-12)
    assert evaluate(log, COST) == pytest.approx(cost, rel=1e-12)
    gradient = adjoint(log, COST)
    moves = 1j * frozen.STEP * np.eye(6)
    exact = [
        oracle(name, method, steps, U0 + d[:2], FORCE + d[2:])[1].imag / frozen.STEP for d in moves
    ]
    np.testing.assert_allclose([*gradient.u0, *gradient.p], exact, rtol=0, atol=2e-12)
    assert duality(log, COST) < 1e-12


@pytest.mark.parametrize(("name", "method", "adaptive"), RUNS)
def test_steps_end_at_each_breakpoint(name, method, adaptive):
    times = run(name, method, adaptive).times
    assert {*BREAKS, *OBSERVED} <= set(times.tolist())
    assert (np.diff(times) > 1e-9).all()


@pytest.mark.parametrize("method", METHODS)
def test_jumps_cost_no_order(method):
    order, exact = find_method(method).order, reference()
    errors = []
    coarse = (
        0.3 if order > 6 or method == "esdirk6" else 0.05
    )  # one, or many equal steps on each piece
    for dt in (coarse, coarse / 2):
        log = solve(FORMS["rhs"][0], U0, FORCE, Stepping(SPAN, method, dt=dt))
        errors.append(abs(log.u[-1] - exact).max())
    assert np.log2(errors[0] / errors[1]) > order - (0.25 if order < 7 else 0.5)
    if method in ("rk4", "cn"):  # without breakpoints the jumps are lost, to first order
        blind = solve(ODE(rhs, 2, NAMES), U0, FORCE, Stepping(SPAN, method, dt=0.025))
        assert abs(blind.u[-1] - exact).max() > 100 * errors[1]


@pytest.mark.parametrize("method", [name for name in METHODS if name not in NO_ESTIMATE])
def test_adaptive_error_follows_the_tolerance_across_jumps(method):
    exact = reference()
    for tolerance in (1e-4, 1e-6):
        stepping = Stepping(SPAN, method, rtol=tolerance, atol=tolerance)
        log = solve(FORMS["rhs"][0], U0, FORCE, stepping)
        order_one = find_method(method).order == 1  # its error is the root of the tolerance
        assert abs(log.u[-1] - exact).max() < (0.5 * tolerance**0.5 if order_one else 3 * tolerance)
        assert log.effort.rejected < 12


@pytest.mark.parametrize(
    ("method", "stages"), [("rk3bs", 3), ("rk5dp", 6), ("rk5bs", 7), ("rk6vr", 8)]
)
def test_last_rate_of_a_step_is_not_reused_across_a_breakpoint(method, stages):
    """First-same-as-last methods save an evaluation a step, but not the one after a jump."""
    calls = []

    def counted(t, u, p):
        calls.append(t)
        return rhs(t, u, p)

    stepping = Stepping(SPAN, method, dt=0.05)
    for breakpoints, evaluations in ((BREAKS, 4), ((), 1)):
        calls.clear()
        log = solve(ODE(counted, 2, NAMES, breakpoints=breakpoints), U0, FORCE, stepping)
        looks = 3  # whether it divides by what varies, and twice what it makes of the time
        assert len(calls) == stages * log.n_steps + evaluations + looks


@pytest.mark.parametrize("method", ["rk4", "rk5dp", "cn"])
@pytest.mark.parametrize("first", [0.0, 1900.1, -1e-3])
def test_first_step_larger_than_a_piece_ends_with_it(method, first):
    """Pieces of thirds, sevenths and hundreds of a year: nothing is hit by luck."""
    breakpoints = first + np.array([1 / 3, 3 / 7, 0.43, 2 / 3])
    seen = []

    def recorded(t, u, p):
        seen.append(float(t))
        return -u

    problem = ODE(recorded, 1, jacobian=lambda t, u, p: [[-1.0]], breakpoints=breakpoints)
    for stepping in (
        Stepping((first, first + 1.0), method, dt=1.0),
        Stepping((first, first + 1.0), method, dt=0.07),
    ):
        log = solve(problem, [1.0], None, stepping)
        assert np.abs(breakpoints[:, None] - log.times).min(axis=1).max() <= 4.5e-13
        assert log.n_steps == (5 if stepping.dt == 1.0 else 5 + 2 + 1 + 4 + 5)
        assert not set(seen) & {np.nextafter(b, np.inf) for b in breakpoints}


def test_both_sides_of_a_breakpoint_are_seen_by_the_steps_that_end_there():
    seen = []

    def recorded(t, u, p):
        seen.append(float(t))
        return -u

    problem = ODE(recorded, 1, jacobian=lambda t, u, p: [[-1.0]], breakpoints=[0.5])
    solve(problem, [1.0], None, Stepping(SPAN, "cn", dt=0.5))
    before, after = 0.5 - 5e-13, 0.5 + 5e-13
    assert {0.0, before, after, 1.0} == set(seen)
    assert seen.index(before) < seen.index(after)


def test_end_of_the_span_is_seen_from_the_inside_too():
    seen = []

    def recorded(t, u, p):
        seen.append(float(t))
        return -u

    problem = ODE(recorded, 1, jacobian=lambda t, u, p: [[-1.0]], breakpoints=[0.0, 1.0, 2.0])
    run = solve(problem, [1.0], None, Stepping(SPAN, "beuler", dt=0.5))
    assert max(seen) == 1.0 - 1e-12 * 0.5
    assert run.times.tolist() == [0.0, 0.5, 1.0]


def test_a_step_that_misses_a_breakpoint_by_rounding_sees_its_own_piece():
    problem = ODE(lambda t, u, p: -u, 1, breakpoints=BREAKS)
    before, after = float(np.nextafter(0.3, 0.0)), float(np.nextafter(0.3, 1.0))
    assert problem.inside(before, before, 0.1) == 0.3 + 1e-12 * before
    assert problem.inside(after, 0.2, after - 0.2) == 0.3 - 1e-12 * 0.2
    assert problem.inside(0.4, 0.35, 0.1) == 0.4
    assert ODE(lambda t, u, p: -u, 1).inside(0.3, 0.2, 0.1) == 0.3


def test_margins_at_a_breakpoint_are_small_beside_a_step_and_more_than_rounding():
    late = ODE(lambda t, u, p: -u, 1, breakpoints=[0.0, 2.4e6])
    assert late.inside(0.0, 0.0, 1e-3) == 1e-15
    assert late.inside(2.4e6, 2.4e6, 1e-3) - 2.4e6 == pytest.approx(4.26e-9, rel=0.15)
    assert late.inside(2.4e6, 2.4e6, 1e-1) - 2.4e6 == pytest.approx(1e-7, rel=0.01)
    assert late.inside(2.4e6, 2.4e6, 1e3) - 2.4e6 == pytest.approx(2.4e-6, rel=0.001)
    assert 2.4e6 - late.inside(2.4e6, 2.3e6, 1e5) == pytest.approx(2.3e-6, rel=0.001)


def stairs(breaks):
    """Return f that is k times the parameter behind the k-th of the times."""
    return lambda t, u, p: np.array([p[0] * np.searchsorted(breaks, np.real(t), side="right")])


@pytest.mark.slow
@pytest.mark.parametrize("dt", [0.1, 0.07])
@pytest.mark.parametrize("method", METHODS)
def test_callbacks_may_know_breakpoints_by_numbers_that_rounding_made_others(method, dt):
    literal = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    lists = (literal, np.arange(0.1, 0.95, 0.1), np.cumsum(np.full(9, 0.1)), literal * (1 + 2e-13))
    for known, breaks in zip(lists, (*lists[1:], literal), strict=True):
        climb = stairs(known)
        problem = ODE(climb, 1, ["height"], breakpoints=breaks)
        cost = Terminal(lambda t, u, p: u[0]) + Running(lambda *point, f=climb: f(*point)[0])
        log = solve(problem, [0.0], [1.0], Stepping(SPAN, method, dt=dt), [0.3, 0.1 * 7])
        assert evaluate(log, cost) == pytest.approx(9.0, rel=0, abs=1e-11)
        assert adjoint(log, cost).p[0] == pytest.approx(9.0, rel=0, abs=1e-11)
        assert duality(log, cost) < 1e-12


def test_jump_known_by_another_number_than_the_breakpoint():
    """The values of the right-hand sides 10 [t >= 0.3] and 10 [t >= 0.1 * 3] are both 7."""
    for known, value in ((0.3, 0.1 * 3), (0.1 * 3, 0.3)):
        problem = ODE(
            lambda t, u, p, at=known: np.array([10.0 * (t >= at)]), 1, breakpoints=[value]
        )
        for span in (SPAN, (0.3, 1.0), (0.1 * 3, 1.0)):
            log = solve(problem, [0.0], None, Stepping(span, "rk4", dt=0.1))
            assert log.u[-1, 0] == pytest.approx(7.0, rel=0, abs=1e-11)
            assert np.diff(log.times).min() > 0.09
        before = solve(problem, [0.0], None, Stepping((0.0, known), "rk4", dt=0.1))
        assert before.u[-1, 0] == 0.0
        assert before.n_steps == 3


def test_control_whose_knots_are_known_by_other_numbers():
    """A control on cumulative times, with the breakpoints as literals, and the other way round."""
    control = PiecewiseConstant(np.cumsum([0.0, *[0.1] * 10]))
    literal = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    problem = ODE(
        lambda t, u, p: np.array([control(t, p)]), 1, control.names("v"), breakpoints=literal
    )
    cost = Terminal(lambda t, u, p: u[0])
    for method in ("rk4", "cn", "esdirk4"):
        log = solve(problem, [0.0], np.arange(10.0), Stepping(SPAN, method, dt=0.1))
        assert log.u[-1, 0] == pytest.approx(4.5, rel=0, abs=1e-11)
        np.testing.assert_allclose(adjoint(log, cost).p, np.full(10, 0.1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shift", [0.0, 5e-17, -5e-17])
def test_observation_at_a_breakpoint_to_rounding_makes_one_step(shift):
    log = solve(FORMS["rhs"][0], U0, FORCE, Stepping(SPAN, "rk4", dt=0.1), [0.3 + shift])
    assert np.diff(log.times).min() > 0.02
    assert log.index(0.3 + shift) == log.index(0.3)


# ---- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*EXPLICIT, *IMPLICIT])
def test_taylor_tests_along_forces(method):
    control = Parameters(
        {name: Parameter(value) for name, value in zip(NAMES, FORCE, strict=True)},
        initial_state=lambda p: np.array([0.4 + 0.1 * p[0], -0.1]),
    )
    options = {} if find_method(method).explicit else TIGHT
    stepping = Stepping(SPAN, method, dt=0.1, options=options)
    orders = taylor(Reduced(FORMS["rhs"][0], COST, stepping, control), hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9


@pytest.mark.parametrize(
    ("name", "method"), [("rhs", "rk5dp"), ("rhs", "cn"), ("M", "cn"), ("F", "midpoint")]
)
def test_hessians_are_the_derivatives_of_gradients(name, method):
    trajectory = run(name, method)
    du0, dp = np.array([0.3, -0.8]), np.array([0.5, 0.2, -0.7, 0.4])
    h = 1e-4

    def gradient(eps):
        problem, stepping = trajectory.problem, trajectory.stepping
        again = solve(problem, U0 + eps * du0, FORCE + eps * dp, stepping, COST.times)
        gradient = adjoint(again, COST)
        return np.concatenate([gradient.u0, gradient.p])

    expected = (8 * (gradient(h) - gradient(-h)) - gradient(2 * h) + gradient(-2 * h)) / (12 * h)
    product = hessian_product(trajectory, COST, du0, dp)
    ours = np.concatenate([product.u0, product.p])
    assert abs(ours - expected).max() < 1e-9 * abs(expected).max()


FORCED = PiecewiseConstant(ENDS)
TRACED = {
    name: trace(
        lambda t, u, p: rate(t, u, FORCED(t, p)),
        2,
        list(NAMES),
        mass=mass,
        running=lambda t, u, p: density(t, u, FORCED(t, p)),
        breakpoints=BREAKS,
    )
    for name, mass in (("rhs", None), ("M", MASS))
}
COMPILED = [
    ("rhs", "rk4", False),
    ("rhs", "rk5dp", True),
    ("rhs", "esdirk5", True),
    ("rhs", "cn", True),
    ("M", "cn", False),
    ("M", "midpoint", False),
    ("M", "beuler", False),
]


@pytest.mark.parametrize(("name", "method", "adaptive"), COMPILED)
def test_compiled_runs_and_sweeps_see_what_callbacks_see(name, method, adaptive):
    model, expected = TRACED[name], run(name, method, adaptive)
    trajectory = solve(model, U0, FORCE, expected.stepping, OBSERVED)
    np.testing.assert_allclose(trajectory.times, expected.times, rtol=1e-12)
    np.testing.assert_allclose(trajectory.u, expected.u, rtol=1e-11)
    tail = Terminal(lambda t, u, p: u[0] ** 2 + u[1] * p[3]) + LeastSquares(OBSERVED, DATA)
    compiled = model.running + tail
    assert in_c(trajectory, [compiled.lower(model, 1.0)]) is not None
    of_callbacks = Running(lambda t, u, p: density(t, u, p[piece(t)])) + tail
    gradients = adjoint(trajectory, compiled), adjoint(expected, of_callbacks, "vectors")
    for of_run in (lambda g: g.value, lambda g: g.u0, lambda g: g.p):
        np.testing.assert_allclose(*map(of_run, gradients), rtol=1e-10)


@pytest.mark.parametrize("method", ["rk5dp", "esdirk5"])
def test_compiled_tangents_and_second_order_see_what_callbacks_see(method):
    model, expected = TRACED["rhs"], run("rhs", method, adaptive=True)
    trajectory = solve(model, U0, FORCE, expected.stepping, OBSERVED)
    assert tangent(trajectory, [1.0, -0.5]).engine == "compiled"
    tail = Terminal(lambda t, u, p: u[0] ** 2 + u[1] * p[3]) + LeastSquares(OBSERVED, DATA)
    along = [1.0, -0.5], [0.3, -1.0, 0.7, 0.2]
    pair = [hessian_product(value, tail, *along) for value in (trajectory, expected)]
    np.testing.assert_allclose(pair[0].u0, pair[1].u0, rtol=1e-9)
    np.testing.assert_allclose(pair[0].p, pair[1].p, rtol=1e-9)
    columns = [sensitivities(value).p for value in (trajectory, expected)]
    np.testing.assert_allclose(*columns, rtol=1e-10, atol=1e-12)


def test_forward_sensitivities_by_the_variational_equations_see_the_breakpoints():
    stepping = Stepping(SPAN, "rk5dp", dt=0.05)
    tangent = continuous_forward(FORMS["rhs"][0], U0, FORCE, stepping)
    log = solve(FORMS["rhs"][0], U0, FORCE, stepping)
    gradient = adjoint(log, Terminal(lambda t, u, p: u[0]))
    np.testing.assert_allclose(tangent.sensitivities().p[0], gradient.p, rtol=0, atol=1e-12)


# ---- given times ---------------------------------------------------------------------------------


def test_breakpoints_are_numbers():
    assert admit_breakpoints(np.array([1, 2])) == (1.0, 2.0)
    assert admit_breakpoints(()) == ()


def test_breakpoints_that_differ_by_rounding_are_one():
    assert admit_breakpoints([0.3, 0.1 * 3, 0.5]) == (0.3, 0.5)
    assert admit_breakpoints([-0.1 * 3, -0.3, 0.0, 1e-20]) == (-0.1 * 3, 0.0, 1e-20)
    assert admit_breakpoints([0.3, 0.3 + 1e-15]) == (0.3, 0.3 + 1e-15)


@pytest.mark.parametrize(
    ("breakpoints", "message"),
    [
        ([0.5, 0.5], "not increasing: 0.5 is followed by 0.5"),
        ([0.5, 0.2], "not increasing: 0.5 is followed by 0.2"),
        ([0.1 * 3, 0.3], r"not increasing: 0\.30000000000000004 is followed by 0\.3"),
        ([0.5, np.nan], "breakpoints"),
        ([[0.5]], r"shape \(1, 1\)"),
    ],
)
def test_wrong_breakpoints_are_refused(breakpoints, message):
    with pytest.raises(InputError, match=message):
        ODE(rhs, 2, NAMES, breakpoints=breakpoints)
    with pytest.raises(InputError, match=message):
        DAE(lambda t, u, udot, p: udot, 2, NAMES, breakpoints=breakpoints)


# ---- refusals ------------------------------------------------------------------------------------


def test_petscs_adjoint_is_refused():
    with pytest.raises(UnsupportedError, match=r'"tsadjoint" for a problem with breakpoints') as no:
        adjoint(run("rhs", "rk4"), COST, engine="tsadjoint")
    assert 'engine="vectors"' in str(no.value)


def test_continuous_adjoint_is_refused():
    with pytest.raises(UnsupportedError, match="continuous_adjoint for a problem with breakpoints"):
        continuous_adjoint(FORMS["rhs"][0], U0, FORCE, Stepping(SPAN, "rk4", dt=0.1), COST)


def with_algebraic(jump):
    """Return x' = y, 0 = y - g(t) whose g jumps at 0.5 by ``jump``; x' jumps in any case."""

    def rhs(t, u, p):
        after = np.real(t) >= 0.5
        return np.array([u[1] + after, 1.0 + jump * after + t - u[1]])

    return ODE(rhs, 2, mass=np.diag([1.0, 0.0]), breakpoints=[0.5])


@pytest.mark.parametrize("method", ["cn", "theta:0.7", "midpoint"])
def test_jumping_algebraic_equations_are_refused_where_their_error_stays(method):
    stepping = Stepping(SPAN, method, dt=0.1)
    with pytest.raises(UnsupportedError, match=r"equations that jump at the breakpoint 0\.5") as no:
        solve(with_algebraic(0.2), [0.0, 1.0], None, stepping)
    assert '"beuler"' in str(no.value)

    def swinging(t, u, p):
        return np.array([u[1], np.sin(3e4 * t) - u[1]])

    swing = ODE(swinging, 2, mass=np.diag([1.0, 0.0]), breakpoints=[0.5])
    assert solve(swing, [0.0, 0.0], None, stepping).n_steps == 10  # no jump, if steep
    log = solve(with_algebraic(0.0), [0.0, 1.0], None, stepping)
    exact = 2.0 + (0.02 if method == "theta:0.7" else 0.0)  # (theta - 1/2) dt y'
    assert log.u[-1, 0] == pytest.approx(exact, rel=1e-12)


@pytest.mark.slow
def test_jumping_algebraic_equations_by_backward_euler():
    for stepping in (Stepping(SPAN, "beuler", dt=1e-3), Stepping(SPAN, "beuler", rtol=1e-6)):
        log = solve(with_algebraic(0.2), [0.0, 1.0], None, stepping)
        np.testing.assert_allclose(log.u[-1], [2.1, 2.2], rtol=0, atol=1e-3)
