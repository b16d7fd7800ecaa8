"""Steps end at kinks: derivatives are as right as those of smooth equations."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import daeosens as ds
from daeosens.derivatives import derivative_error
from daeosens.derivatives.step_placement.kinks_inside import kinks_inside
from daeosens.tracing import trace_residual

TABLE = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0]), np.array([0.5, 0.45, 0.2, 0.25, 0.4, 0.35])

WEIR = [2.0, 0.8, 1.2, 1.3]


def _valve(t: Any, u: Any, p: Any) -> Any:
    return np.stack([p[0] * np.sin(t) + 0.3 - p[1] * np.maximum(0.0, u[0] - p[2])])


def _saturation(_t: Any, u: Any, p: Any) -> Any:
    force = np.clip(-p[0] * u[0] - p[1] * u[1], -1.0, 1.0)
    return np.stack([u[1], force - p[2] * u[1]])


def _table(_t: Any, u: Any, p: Any) -> Any:
    return np.stack([u[1], -p[0] * u[1] * np.interp(np.abs(u[1]), *TABLE) - p[1] * u[0]])


def _branch(t: Any, u: Any, p: Any) -> Any:
    inflow = p[0] - p[2] * (u[0] - p[1]) if u[0] > p[1] else p[0]
    return np.stack([inflow * (1.0 + np.sin(2.0 * t)) - 0.2 * u[0]])


def _heart(t: Any, u: Any, p: Any) -> Any:
    inside = p[2] * (1.0 + 0.8 * np.sin(6.0 * t)) * u[0]
    into = np.maximum(p[3] - inside, 0.0) / p[0]
    out = np.maximum(inside - u[1], 0.0) / p[1]
    return np.stack([into - out, out - 0.5 * u[1]])


def _quadratic_drag(_t: Any, u: Any, p: Any) -> Any:
    drag = p[1] * np.abs(u[1]) * u[1]
    return np.stack([u[1], -p[0] * u[0] - drag - 0.1 * np.abs(u[0])])


def _open_for_some_time(t: Any, u: Any, p: Any) -> Any:
    # there is no branch where the run begins and ends
    rate = p[0] * np.sin(t) - 0.5 * u[0]
    if 1.0 < t < 4.0:
        rate = rate - 3.0 * np.sin(np.pi * (t - 1.0) / 3.0) * np.maximum(u[0] - p[1], 0.0)
    return np.stack([rate])


def _ramp(t: Any, u: Any, p: Any) -> Any:
    return np.stack([-p[0] * u[0] + np.maximum(t - p[1], 0.0) * u[0] * 0.5])


# equations, start, parameters, end, number of the unknown, and its derivatives: differences of
# order four of an independent program (SciPy's DOP853, rtol 3e-14, restarted at each kink)
PROBLEMS: dict[
    str, tuple[Callable[..., Any], list[float], list[float], float, int, list[float]]
] = {
    "valve": (
        *(_valve, [0.0], [1.0, 2.0, 0.5], 6.0, 0),
        [1.69729621e-03, -1.80287819, -9.79035041e-02, 9.98302704e-01],
    ),
    "saturation": (
        *(_saturation, [2.0, 0.0], [4.0, 2.0, 0.1], 6.0, 0),
        [0.04719739, 0.03986763, -0.00301818, -0.01672396, -0.07114437],
    ),
    "table": (
        *(_table, [2.0, 0.0], [1.0, 2.0], 5.0, 0),
        [0.27536434, 0.21651266, -0.3589516, -1.04359971],
    ),
    "branch": (
        *(_branch, [0.3], [1.0, 2.0, 1.5], 8.0, 0),
        [6.65605182e-06, 6.04123501e-01, 9.06152754e-01, -2.69538958e-01],
    ),
    "heart": (
        *(_heart, [1.0, 0.8], [0.2, 0.1, 1.5, 1.0], 6.0, 1),
        [0.01838002, 0.01804709, -2.93601354, 0.07666403, -0.19329449, 1.35634054],
    ),
    "quadratic drag": (
        *(_quadratic_drag, [1.0, 0.0], [4.0, 0.3], 8.0, 0),
        [-0.11451839, -0.03366728, 0.13954874, 0.71965937],
    ),
    "open for some time": (
        *(_open_for_some_time, [0.0], [1.0, 0.5], 6.0, 0),
        [4.63725068e-04, -1.05166429, 0.203809990],
    ),
    "ramp": (
        *(_ramp, [2.0], [1.0, 1.3], 4.0, 0),
        [0.11332449, -0.9065959, -0.30597612],
    ),
}


TRACED = [name for name in PROBLEMS if name not in ("branch", "open for some time")]


def _problem(name: str, style: str) -> Any:
    rhs, start, p, *_ = PROBLEMS[name]
    if style == "traced":
        return ds.trace(rhs, len(start), len(p))
    return ds.ODE(rhs, size=len(start), parameters=len(p))


def _last(name: str) -> ds.Terminal:
    number = PROBLEMS[name][4]
    return ds.Terminal(lambda _t, u, _p: u[number])


@pytest.mark.parametrize(
    ("name", "style", "method"),
    [
        *((name, "NumPy", "auto") for name in PROBLEMS),
        *((name, "traced", "rk8vr") for name in TRACED),
        *((name, "traced", "esdirk5") for name in TRACED),
    ],
)
def test_derivatives_through_kinks_are_those_of_the_solution(
    name: str, style: str, method: str
) -> None:
    _, start, p, end, _, truth = PROBLEMS[name]
    run = ds.solve(_problem(name, style), start, p, ds.Stepping((0.0, end), method, rtol=1e-8))
    gradient = ds.adjoint(run, _last(name))
    computed = np.concatenate([gradient.u0, gradient.p])
    # without cuts it is 1e-5 to 4e-3
    assert np.abs(computed - truth).max() < 6e-7 * np.abs(truth).max()


def test_derivatives_are_those_of_the_steps() -> None:
    _, start, p, end, *_ = PROBLEMS["saturation"]
    run = ds.solve(_problem("saturation", "NumPy"), start, p, ds.Stepping((0.0, end), rtol=1e-8))
    gradient = ds.adjoint(run, _last("saturation"))
    du, dp = np.array([0.3, -1.0]), np.array([1.0, 0.5, -0.2])
    moved = ds.tangent(run, du0=du, dp=dp).derivative(_last("saturation"))
    assert np.isclose(gradient.u0 @ du + gradient.p @ dp, moved, rtol=1e-12, atol=0.0)


def test_fewer_steps_are_refused() -> None:
    _, start, p, end, *_ = PROBLEMS["heart"]
    run = ds.solve(_problem("heart", "traced"), start, p, ds.Stepping((0.0, end), rtol=1e-8))
    # without cuts 262 are, and 477 taken
    assert run.effort.rejected < 60
    assert run.effort.steps < 380


def test_steps_that_nothing_is_found_in_stay_as_they_are() -> None:
    # |u| for u > 0: a branch that never changes sides
    stepping = ds.Stepping((0.0, 2.0), rtol=1e-8)
    plain = ds.ODE(lambda _t, u, p: -p[0] * u, size=1, parameters=1)
    with_abs = ds.ODE(lambda _t, u, p: -p[0] * np.abs(u), size=1, parameters=1)
    runs = [ds.solve(problem, [1.0], [0.7], stepping) for problem in (plain, with_abs)]
    assert np.array_equal(runs[0].times, runs[1].times)


def test_a_kink_that_costs_nothing_is_left() -> None:
    # max(u, 0)^4 has no jump of its derivatives that steps resolve
    rhs = lambda t, u, p: np.cos(t) + p[0] * np.maximum(u, 0.0) ** 4 - u  # noqa: E731
    problem = ds.ODE(rhs, size=1, parameters=1)
    run = ds.solve(problem, [0.5], [0.3], ds.Stepping((0.0, 7.0), rtol=1e-6))
    assert not kinks_inside(run, 1e-6)
    assert run.step_sizes.min() > 1e-3


def test_steps_do_not_end_at_jumps() -> None:
    # the derivative of a jump has a term that no step contains, which is told
    problem = ds.ODE(
        lambda _t, u, p: np.array([p[0] if u[0] < 1.0 else 2.0 * p[0]]), size=1, parameters=1
    )
    run = ds.solve(problem, [0.0], [1.0], ds.Stepping((0.0, 1.7), rtol=1e-6))
    assert not kinks_inside(run, 1e-6)
    with pytest.warns(ds.errors.KinkWarning, match="the equations jump near t = (1|0.9999)"):
        ds.adjoint(run, ds.Terminal(lambda _t, u, _p: u[0]))


def _weir(t: Any, u: Any, p: Any) -> Any:
    flow = p[0] * np.maximum(u[0] - p[1], 0.0) ** 1.5
    return np.stack(
        [p[2] * (0.6 + np.sin(p[3] * t)) - flow - 0.2 * u[0], (flow / p[0] - u[1]) / 0.7]
    )


@pytest.mark.filterwarnings("ignore:the equations have no bounded second derivative")
@pytest.mark.filterwarnings("ignore:the steps follow the states")
@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize(("rtol", "second"), [(1e-6, 2e-4), (1e-8, 2e-5)])
def test_slopes_of_derivatives_without_bound(
    make: Callable[..., Any], rtol: float, second: float
) -> None:
    # the level passes the crest twice up and once down
    run = ds.solve(make(_weir, 2, 4), [0.1, 0.0], WEIR, ds.Stepping((0.0, 6.0), rtol=rtol))
    cost = ds.Terminal(lambda _t, u, _p: u[0] + u[1])
    gradient = ds.adjoint(run, cost)
    # differences of an extrapolation method in 64 bits of mantissa that locates the kinks
    truth = [1.24917867e-3, 1.89441825e-4, -0.227095105, 0.704359751, 0.912282722, 3.82940506]
    computed = np.concatenate([gradient.u0, gradient.p])
    # steps that end at the crest alone, or nowhere, leave 10 to 100 times as much
    assert np.abs(computed - truth).max() < 10.0 * rtol * np.abs(truth).max()
    product = ds.hessian_product(run, cost, dp=[1.0, -0.5, 0.3, 0.2])
    truth = [-3.5700e-3, 0.0, -0.28780233, 0.31949790, 0.11779674, -5.7397626]
    computed = np.concatenate([product.u0, product.p])
    assert np.abs(computed - truth).max() < second * np.abs(truth).max()
    directions = np.random.default_rng(3).standard_normal((2, 6))
    products = [ds.hessian_product(run, cost, along[:2], along[2:]) for along in directions]
    sums = [
        np.concatenate([product.u0, product.p]) @ other
        for product, other in zip(products, directions[::-1], strict=True)
    ]
    assert sums[0] == pytest.approx(sums[1], rel=1e-10)


def _filling(_t: Any, u: Any, p: Any) -> Any:
    return np.stack([p[0] * u[0] ** 0, p[1] * np.maximum(u[0] - p[2], 0.0) ** 2.5])


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize(("method", "rtol"), [("rk8vr", 1e-6), ("rk5dp", 1e-8), ("esdirk5", 1e-8)])
def test_slopes_of_slopes_without_bound(make: Callable[..., Any], method: str, rtol: float) -> None:
    """Products were wrong by 1e-3 at 1e-6: of p1 x^3.5 / (3.5 p0), x = u0 + p0 T - p2."""
    u0, (rate, factor, crest), end = 0.1, (0.7, 1.3, 0.9), 3.0
    run = ds.solve(
        make(_filling, 2, 3),
        [u0, 0.0],
        [rate, factor, crest],
        ds.Stepping((0.0, 3.0), method, rtol=rtol),
    )
    cost = ds.Terminal(lambda t, u, p: u[1])
    product = ds.hessian_product(run, cost, [1.0, 0.0], [0.0, 0.0, 0.0])
    x = u0 + rate * end - crest
    by_x = factor * 2.5 * x**1.5 / rate
    exact = [by_x, 0.0, end * by_x - factor * x**2.5 / rate**2, x**2.5 / rate, -by_x]
    found = np.concatenate([product.u0, product.p])
    assert np.abs(found - exact).max() < 30.0 * rtol * by_x


def test_kinks_between_bounces() -> None:
    ball = ds.ODE(
        lambda _t, u, p: np.array(
            [u[1], -9.81 - p[0] * np.abs(u[1]) * u[1] - p[1] * np.maximum(u[0] - 0.5, 0.0)]
        ),
        size=2,
        parameters=3,
        events=[
            ds.Event(
                lambda _t, u, _p: u[0],
                reset=lambda _t, u, p: np.array([u[0], -p[2] * u[1]]),
                direction=-1,
            )
        ],
    )
    run = ds.solve(ball, [1.0, 0.0], [0.1, 20.0, 0.9], ds.Stepping((0.0, 1.7), rtol=1e-8))
    gradient = ds.adjoint(run, ds.Terminal(lambda _t, u, _p: u[0]))
    # differences of runs with rtol 1e-12
    truth = np.array([0.66466467, 0.16199012, -1.0537068, -0.02394849, 1.67790875])
    computed = np.concatenate([gradient.u0, gradient.p])
    assert len(run.crossings) == 2
    assert np.abs(computed - truth).max() < 1e-6 * np.abs(truth).max()


def test_checkpoints_take_the_same_steps_again() -> None:
    _, start, p, end, *_ = PROBLEMS["valve"]
    problem, stepping = _problem("valve", "NumPy"), ds.Stepping((0.0, end), rtol=1e-8)
    whole = ds.solve(problem, start, p, stepping)
    few = ds.solve(problem, start, p, stepping, checkpoint=ds.timestepping.Checkpoints(5))
    assert np.array_equal(whole.times, few.times)
    gradients = [ds.adjoint(run, _last("valve")) for run in (whole, few)]
    assert np.allclose(gradients[0].p, gradients[1].p, rtol=1e-13, atol=0.0)


def test_equations_without_branches_are_asked_twice() -> None:
    calls = 0

    def decay(_t: Any, u: Any, p: Any) -> Any:
        nonlocal calls
        calls += type(u) is not np.ndarray
        return -p[0] * u

    problem = ds.ODE(decay, size=1, parameters=1)
    stepping = ds.Stepping((0.0, 2.0), "rk6vr", rtol=1e-8)
    ds.solve(problem, [1.0], [0.7], stepping)
    before = calls
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.solve(problem, [1.0], [0.7], stepping)
    # besides the Jacobian that the first step is chosen by
    assert calls - before == 3


def test_what_changes_sides_and_back_in_one_step_is_found() -> None:
    # u' = p max(sin(t) - 0.9999, 0): the step over t = pi / 2 sees no side of it at its ends
    def rhs(t: Any, u: Any, p: Any) -> Any:
        return np.stack([u[1], -u[0], p[0] * np.maximum(u[0] - p[1], 0.0)])

    problem = ds.ODE(rhs, size=3, parameters=2)
    start, p = [0.0, 1.0, 0.0], [1.0, 0.9999]
    run = ds.solve(problem, start, p, ds.Stepping((0.0, 3.0), rtol=1e-6, max_step=0.25))
    gradient = ds.adjoint(run, ds.Terminal(lambda _t, u, _p: u[2]))
    # the time above the level, 2 arccos(p_1), and the integral
    above = 2.0 * np.arccos(p[1])
    assert np.isclose(gradient.p[1], -above, rtol=1e-3)
    assert np.isclose(gradient.p[0], 2.0 * np.sin(0.5 * above) - p[1] * above, rtol=1e-3)


def _tide(t: Any, u: Any, p: Any) -> Any:
    d = p[1] * np.sin(t) - u[0]
    return np.stack([p[0] * np.sqrt(np.abs(d)) * np.sign(d)])


def test_derivatives_without_bound_at_a_kink_are_told() -> None:
    stepping = ds.Stepping((0.0, 7.0), "rk6vr", rtol=1e-8)
    run = ds.solve(ds.ODE(_tide, size=1, parameters=2), [0.3], [1.0, 1.0], stepping)
    assert not kinks_inside(run, 1e-8)
    assert run.step_sizes.min() > 1e-7
    with pytest.warns(
        ds.errors.KinkWarning,
        match=r"near t = 5\.22.*in _tide, line .*np\.sqrt.*wrong by about (0\.000[1-9]|[2-9]e-05)",
    ):
        gradient = ds.adjoint(run, ds.Terminal(lambda _t, u, _p: u[0]))
    # differences of runs with rtol 1e-11
    error = np.abs(gradient.p - [0.5519158, -0.18105824]).max()
    assert 2e-5 < error < 2e-4


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_warning_where_steps_end_at_kinks(name: str) -> None:
    _, start, p, end, *_ = PROBLEMS[name]
    run = ds.solve(_problem(name, "NumPy"), start, p, ds.Stepping((0.0, end), rtol=1e-8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.adjoint(run, _last(name))


@pytest.mark.slow
@pytest.mark.parametrize("rtol", [1e-2, 1e-3, 1e-4])
def test_kinks_of_tables_are_found_by_loose_tolerances(rtol: float) -> None:
    _, start, p, end, _, truth = PROBLEMS["table"]
    run = ds.solve(_problem("table", "NumPy"), start, p, ds.Stepping((0.0, end), rtol=rtol))
    gradient = ds.adjoint(run, _last("table"))
    computed = np.concatenate([gradient.u0, gradient.p])
    assert np.abs(computed - truth).max() < 2.0 * rtol * np.abs(truth).max()


@pytest.mark.parametrize("method", ["auto", "esdirk5", "cn"])
def test_kinks_in_time_that_steps_pass_with_the_time_of_an_event(method: str) -> None:
    # u' = 1 + |sin 2t| - u, from u = p at t = p on: d/dp of u(T)
    def rhs(t: Any, u: Any, _p: Any) -> Any:
        return 1.0 + np.abs(np.sin(2.0 * t)) - u

    event = ds.Event((0.0, "when"), reset=lambda _t, _u, p: p)
    problem = ds.ODE(rhs, 1, ["when"], events=[event])
    when, end, rtol = 0.4, 2.5, 1e-4 if method == "cn" else 1e-6
    run = ds.solve(problem, [0.0], [when], ds.Stepping((0.0, end), method, rtol=rtol))
    gradient = ds.adjoint(run, ds.Terminal(lambda _t, u, _p: u[0]))
    truth = np.exp(when - end) * (1.0 - (1.0 + np.sin(2.0 * when) - when))
    assert gradient.p == pytest.approx(truth, rel=20.0 * rtol)


@pytest.mark.slow
@pytest.mark.parametrize("rtol", [1e-6, 1e-8])
def test_errors_are_estimated_by_a_run_whose_steps_end_at_its_own_kinks(rtol: float) -> None:
    # without cuts of the finer run the estimate was 1e-2
    _, start, p, end, _, truth = PROBLEMS["table"]
    run = ds.solve(_problem("table", "NumPy"), start, p, ds.Stepping((0.0, end), rtol=rtol))
    error = derivative_error(run, _last("table"))
    exact = np.linalg.norm(error.computed.p - truth[2:]) / np.linalg.norm(truth[2:])
    assert error.relative["p"] < 3.0 * exact + 20.0 * rtol


def _rising_and_falling(t: Any, u: Any, rate: Any, p: Any) -> Any:
    return np.stack([rate[0] + p[1] * np.abs(rate[0]) + u[0] - p[0] * np.cos(t)])


def _with_algebraic_unknown(t: Any, u: Any, rate: Any, p: Any) -> Any:
    drag = p[1] * np.maximum(rate[0], 0.3 * rate[0])
    return np.stack([rate[0] + drag + u[1] - p[0] * np.cos(t), u[1] - u[0]])


def _branch_of_rate(t: Any, u: Any, rate: Any, p: Any) -> Any:
    drag = p[1] * rate[0] if rate[0] > 0.0 else -p[1] * rate[0]
    return np.array([rate[0] + drag + u[0] - p[0] * np.cos(t)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "residual", "truth"),
    [
        (ds.DAE, _rising_and_falling, [0.00232174204, -0.485884221, -0.442712652]),
        (ds.DAE, _branch_of_rate, [0.00232174204, -0.485884221, -0.442712652]),
        (trace_residual, _rising_and_falling, [0.00232174204, -0.485884221, -0.442712652]),
        (ds.DAE, _with_algebraic_unknown, [0.0167193883, -0.408614566, -0.144952118]),
    ],
)
def test_kinks_in_rates_of_implicit_equations(
    make: Callable[..., Any], residual: Callable[..., Any], truth: list[float]
) -> None:
    """Numbers are differences of an explicit program, restarted where the rate changes its sign."""
    start = [0.2, 0.2] if residual is _with_algebraic_unknown else [0.2]
    problem = make(residual, len(start), 2)
    run = ds.solve(problem, start, [1.3, 0.4], ds.Stepping((0.0, 5.0), "cn", rtol=1e-5))
    gradient = ds.adjoint(run, ds.Terminal(lambda _t, u, _p: u[0]))
    computed = np.concatenate([gradient.u0[:1], gradient.p])
    # without cuts it is 8e-6 to 3e-4
    assert np.abs(computed - truth).max() < 2e-6
    moved = ds.tangent(run, du0=np.eye(len(start))[0], dp=[0.3, -1.0])
    along = gradient.u0[0] + gradient.p @ [0.3, -1.0]
    derivative = moved.derivative(ds.Terminal(lambda _t, u, _p: u[0]))
    assert np.isclose(along, derivative, rtol=1e-12, atol=0.0)


@pytest.mark.slow
def test_derivatives_of_fixed_steps_beside_kinks_in_rates() -> None:
    problem = ds.DAE(_rising_and_falling, 1, ["force", "drag"])
    stepping = ds.Stepping((0.0, 5.0), "cn", dt=0.1)
    last = ds.Terminal(lambda _t, u, _p: u[0])
    control = ds.Parameters({"force": ds.Parameter(1.3), "drag": ds.Parameter(0.4)}, [0.2])
    assert ds.taylor(ds.Reduced(problem, last, stepping, control)).passed
    run = ds.solve(problem, [0.2], [1.3, 0.4], stepping)
    with pytest.warns(ds.errors.KinkWarning, match=r"have a kink near t = 1\.0"):
        ds.hessian_product(run, last, dp=[1.0, 0.0])


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_a_guard_of_unknowns_that_start_at_zero_costs_no_run(make: Callable[..., Any]) -> None:
    # the run begins on the kink, and goes on to the side whose derivative it has there
    def chain(_t: Any, u: Any, p: Any) -> Any:
        a, b = np.maximum(u, 0.0)
        return np.stack([-p[0] * a, p[0] * a - p[1] * b**2])

    problem = make(chain, 2, 2)
    run = ds.solve(problem, [1.0, 0.0], [1.0, 3.0], ds.Stepping((0.0, 2.0), rtol=1e-6))
    assert not kinks_inside(run, 1e-6)
    assert np.diff(run.times).min() > 1e-6


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_the_edge_of_a_domain_is_no_kink(make: Callable[..., Any]) -> None:
    """A state that leaves 0 has no other side: u^0.55 is not finite there."""

    def cure(t: Any, u: Any, p: Any) -> Any:
        heated = np.interp(t, [0.0, 10.0], [1.0, 2.0])  # bends where the run begins
        return np.stack([heated * (p[0] + p[1] * u[0] ** p[2]) * (1.0 - u[0])])

    model = make(cure, 1, ["a", "b", "m"])
    p, steps = [1e-3, 0.05, 0.55], ds.Stepping((0.0, 20.0), rtol=1e-8)
    from_zero, beside = (ds.solve(model, [start], p, steps) for start in (0.0, 1e-12))
    assert from_zero.u[-1, 0] == pytest.approx(beside.u[-1, 0], rel=1e-6)
    with pytest.raises(ds.errors.NotFiniteError, match="a start at 1e-12"):
        ds.adjoint(from_zero, ds.Terminal(lambda t, u, p: u[0]))
    assert np.isfinite(ds.adjoint(beside, ds.Terminal(lambda t, u, p: u[0])).p).all()


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_start_on_a_kink_whose_other_side_is_not_entered(side: float) -> None:
    # np.maximum has the derivative of its upper side at zero
    problem = ds.ODE(
        lambda _t, u, p: np.array([side + p[0] * np.maximum(u[0], 0.0)]), size=1, parameters=1
    )
    stepping = ds.Stepping((0.0, 1.0), "rk6vr", dt=0.5, rtol=1e-6)
    run = ds.solve(problem, [0.0], [0.8], stepping)
    gradient = ds.adjoint(run, ds.Terminal(lambda _t, u, _p: u[0]))
    # u' = 1 + p u above zero, u' = -1 below it
    truth = np.exp(0.8) if side > 0.0 else 1.0
    assert abs(gradient.u0[0] - truth) < 3e-6


@pytest.mark.parametrize("more", [0, 66])
def test_rounding_of_terms_that_cancel_hides_no_kink(more: int) -> None:
    # w is 3 x but for rounding, so z stays where it is
    def rhs(_t: Any, u: Any, p: Any) -> Any:
        x, _, _, w = u[:4]
        rates = np.array([1.0, np.maximum(x - p[0], 0.0), 1e6 * (w - 3.0 * x), 3.0])
        return np.concatenate([rates, -u[4:]])

    problem = ds.ODE(rhs, 4 + more, ["level"])
    start = np.concatenate([[0.1, 0.0, 0.0, 0.3], np.ones(more)])
    run = ds.solve(problem, start, [0.37], ds.Stepping((0.0, 1.0), "rk6vr", rtol=1e-8))
    gradient = ds.adjoint(run, ds.Terminal(lambda _t, u, _p: u[1]))
    assert abs(gradient.value - 0.5 * 0.73**2) < 1e-12
    assert abs(gradient.p[0] + 0.73) < 1e-8  # it was 2e-6


@pytest.mark.parametrize("rtol", [1e-8, 1e-10])
def test_an_american_option_by_a_penalty(rtol: float) -> None:
    # The boundary of exercise passes ten points, at each of which the penalty has a kink.  The
    # numbers are exact but for differences of order four: exponentials of matrices between the
    # kinks, whose times are roots.
    x = np.linspace(-1.5, 1.5, 81)
    h, asset, inner = x[1] - x[0], 100.0 * np.exp(x), np.arange(1, 80)

    def rhs(_t: Any, v: Any, p: Any) -> Any:
        out = -p[1] * v + 200.0 * np.maximum(p[2] - asset - v, 0.0)
        second = (v[inner + 1] - 2.0 * v[inner] + v[inner - 1]) / h**2
        first = (v[inner + 1] - v[inner - 1]) / (2.0 * h)
        out[inner] += 0.5 * p[0] ** 2 * second + (p[1] - p[3] - 0.5 * p[0] ** 2) * first
        return out

    p = {"volatility": 0.3, "interest": 0.05, "strike": 97.0, "dividend": 0.02}
    control = ds.Parameters(
        {name: ds.Parameter(value) for name, value in p.items()},
        initial_state=lambda p: np.maximum(p[2] - asset, 0.0),
    )
    functional = ds.Reduced(
        ds.ODE(rhs, 81, list(p)),
        ds.Terminal(lambda _t, v, _p: v[40]),
        ds.Stepping((0.0, 1.0), "rk6vr", rtol=rtol),
        control,
    )
    value, gradient = functional.value_and_gradient(functional.start())
    truth = [11.144705477, -1.7563693423, 47.370262738, 0.58206653885]
    assert abs(value - 8.96347018900267) < 1e-9
    relative = gradient.getArray() * np.array(list(p.values()))
    assert np.allclose(relative, truth, rtol=30.0 * rtol, atol=0.0)
