"""Estimated discretisation errors of values, gradients and Hessian products against true ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
import pytest
from distributed import make, make_cost
from petsc4py import PETSc
from scipy.integrate import solve_ivp

import daeosens as ds
from daeosens.derivatives.divided import divided
from daeosens.derivatives.step_placement.branch_passages import Inside


@dataclass(frozen=True)
class Flow:
    """A component of the solution at the end, which has no closed form."""

    rhs: Callable[..., Any]
    end: float
    component: int
    method: str


Exact = Callable[[Any, Any], Any] | Flow
"""``exact(u0, p)``: the cost of the exact solution, as CasADi differentiates it; or a flow."""


@dataclass(frozen=True)
class Case:
    """A problem with a known answer: its run, its cost, and what is exact."""

    problem: ds.problem.Problem
    u0: list[float]
    p: list[float]
    stepping: ds.Stepping
    objective: Any
    exact: Exact
    t_eval: tuple[float, ...] = ()


def final(component: int) -> ds.Terminal:
    return ds.Terminal(lambda t, u, p: u[component])


def logistic_rk4() -> Case:
    """Closed form, fixed explicit steps."""
    model = ds.trace(lambda t, u, p: p[0] * u * (1.0 - u / p[1]), 1, ["rate", "capacity"])

    def exact(u0: Any, p: Any) -> Any:
        grown = ca.exp(3 * p[0])
        return p[1] * u0[0] * grown / (p[1] + u0[0] * (grown - 1))

    stepping = ds.Stepping((0.0, 3.0), "rk4", dt=0.1)
    return Case(model, [0.1], [1.3, 2.0], stepping, final(0), exact)


def forced_oscillator_rk3bs() -> Case:
    """Closed form, adaptive explicit steps of equations that depend on the time."""
    model = ds.trace(
        lambda t, u, p: np.stack([u[1], -4.0 * u[0] + p[0] * np.cos(p[1] * t)]),
        2,
        ["force", "frequency"],
    )

    def exact(u0: Any, p: Any) -> Any:
        forced = p[0] / (4 - p[1] ** 2)
        return (u0[0] - forced) * ca.cos(10) + u0[1] / 2 * ca.sin(10) + forced * ca.cos(5 * p[1])

    stepping = ds.Stepping((0.0, 5.0), "rk3bs", rtol=1e-6)
    return Case(model, [1.0, 0.5], [0.7, 1.2], stepping, final(0), exact)


def relaxation_beuler() -> Case:
    """Prothero and Robinson: stiff, first order, observations in NumPy callbacks."""
    times = [0.25, 0.5, 1.0]
    problem = ds.ODE(
        lambda t, u, p: -p[0] * (u - np.cos(t)) - np.sin(t),
        size=1,
        parameters=["rate"],
        jacobian=lambda t, u, p: np.array([[-p[0]]]),
        jacobian_p=lambda t, u, p: np.array([[np.cos(t) - u[0]]]),
    )

    def exact(u0: Any, p: Any) -> Any:
        states = [ca.cos(t) + (u0[0] - 1) * ca.exp(-p[0] * t) for t in times]
        return sum((state - 0.4) ** 2 for state in states) / 2

    stepping = ds.Stepping((0.0, 1.0), "beuler", dt=0.002)
    misfit = ds.LeastSquares(times, [0.4, 0.4, 0.4])
    return Case(problem, [1.5], [10.0], stepping, misfit, exact, tuple(times))


def heat_cn() -> Case:
    """The heat equation on a grid, two modes of it: closed form of the semi-discrete equations."""
    n = 31
    h = 1.0 / (n + 1)
    x = h * np.arange(1, n + 1)
    modes = [np.sqrt(2 * h) * np.sin(k * np.pi * x) for k in (1, 3)]
    eigenvalues = [4 / h**2 * np.sin(k * np.pi * h / 2) ** 2 for k in (1, 3)]
    second = (np.diag(np.ones(n - 1), 1) - 2 * np.eye(n) + np.diag(np.ones(n - 1), -1)) / h**2
    model = ds.trace(lambda t, u, p: p[0] * (second @ u), n, ["diffusivity"])
    start = modes[0] + 0.5 * modes[1]

    def exact(u0: Any, p: Any) -> Any:
        parts = [ca.dot(mode, u0) for mode in modes]
        decays = [ca.exp(-p[0] * value / 10) for value in eigenvalues]
        weights = [float(mode.sum()) for mode in modes]
        return sum(w * a * d for w, a, d in zip(weights, parts, decays, strict=True))

    # the modes that are not there have no part in the cost
    weights = sum(float(mode.sum()) * mode for mode in modes)
    cost = ds.Terminal(lambda t, u, p: np.dot(weights, u))
    return Case(model, start.tolist(), [1.0], ds.Stepping((0.0, 0.1), "cn", dt=0.0025), cost, exact)


def bernoulli_dae_esdirk3() -> Case:
    """A DAE of index one, adaptive: x' = -a x + y, 0 = y - b x^2."""
    model = ds.trace(
        lambda t, u, p: np.stack([-p[0] * u[0] + u[1], u[1] - p[1] * u[0] ** 2]),
        2,
        ["a", "b"],
        mass=np.diag([1.0, 0.0]),
    )

    def exact(u0: Any, p: Any) -> Any:
        return 1 / (p[1] / p[0] + (1 / u0[0] - p[1] / p[0]) * ca.exp(2 * p[0]))

    stepping = ds.Stepping((0.0, 2.0), "esdirk3", rtol=1e-5)
    return Case(model, [1.0, 0.5], [1.0, 0.5], stepping, final(0), exact)


def refilled_tank_cn() -> Case:
    """An implicit event: what decays is refilled where it falls to a level, twice."""
    refill = ds.Event(
        lambda t, u, p: u[0] - p[1], lambda t, u, p: u + p[2], direction=-1, name="refill"
    )
    model = ds.trace(lambda t, u, p: -p[0] * u, 1, ["rate", "level", "amount"], events=[refill])

    def exact(u0: Any, p: Any) -> Any:
        return ((p[1] + p[2]) / p[1]) ** 2 * u0[0] * ca.exp(-2 * p[0])

    stepping = ds.Stepping((0.0, 2.0), "cn", dt=0.05)
    return Case(model, [1.0], [0.8, 0.5, 0.3], stepping, final(0), exact)


def switched_decay_rk5dp() -> Case:
    """A running cost and an event at a given time, adaptive explicit steps."""
    dose = ds.Event(0.7, lambda t, u, p: u + p[1], name="dose")
    model = ds.trace(lambda t, u, p: -p[0] * u, 1, ["rate", "dose"], events=[dose])

    def exact(u0: Any, p: Any) -> Any:
        q = 0.7
        before = (1 - ca.exp(-2 * p[0] * q)) / (2 * p[0]) * u0[0] ** 2
        state = u0[0] * ca.exp(-p[0] * q) + p[1]
        return before + state**2 * (1 - ca.exp(-2 * p[0] * (2 - q))) / (2 * p[0])

    stepping = ds.Stepping((0.0, 2.0), "rk5dp", rtol=1e-5)
    return Case(model, [1.0], [1.1, 0.6], stepping, ds.Running(lambda t, u, p: u[0] ** 2), exact)


def lotka_volterra_rk6vr() -> Case:
    """Not stiff, adaptive explicit steps, no closed form."""

    def rhs(t: Any, u: Any, p: Any) -> Any:
        return [p[0] * u[0] - p[1] * u[0] * u[1], p[2] * u[0] * u[1] - u[1]]

    model = ds.trace(
        lambda t, u, p: np.stack(rhs(t, u, p)), 2, ["growth", "predation", "conversion"]
    )
    stepping = ds.Stepping((0.0, 8.0), "rk6vr", rtol=1e-5)
    return Case(model, [1.0, 1.5], [1.1, 0.8, 0.6], stepping, final(0), Flow(rhs, 8.0, 0, "DOP853"))


def robertson_esdirk4() -> Case:
    """Stiff chemistry, adaptive implicit steps."""

    def rhs(t: Any, u: Any, p: Any) -> Any:
        slow, fast, back = p[0] * u[0], p[1] * u[1] ** 2, p[2] * u[1] * u[2]
        return [back - slow, slow - back - fast, fast]

    model = ds.trace(lambda t, u, p: np.stack(rhs(t, u, p)), 3, ["slow", "fast", "back"])
    stepping = ds.Stepping((0.0, 40.0), "esdirk4", rtol=1e-5, atol=1e-9)
    return Case(
        model, [1.0, 0.0, 0.0], [0.04, 3e7, 1e4], stepping, final(2), Flow(rhs, 40.0, 2, "Radau")
    )


def van_der_pol_esdirk5() -> Case:
    """A start on the slow manifold: derivatives pass through a layer that the run does not see."""

    def rhs(t: Any, u: Any, p: Any) -> Any:
        return [u[1], p[0] * (1.0 - u[0] ** 2) * u[1] - u[0]]

    model = ds.trace(lambda t, u, p: np.stack(rhs(t, u, p)), 2, ["mu"])
    stepping = ds.Stepping((0.0, 500.0), "esdirk5", rtol=1e-8)
    start = [2.0, 1e-3 * (-2 / 3 + 10 / 81 * 1e-6 - 292 / 2187 * 1e-12)]
    return Case(model, start, [1000.0], stepping, final(0), Flow(rhs, 500.0, 0, "Radau"))


CASES = [
    logistic_rk4,
    forced_oscillator_rk3bs,
    relaxation_beuler,
    heat_cn,
    bernoulli_dae_esdirk3,
    refilled_tank_cn,
    switched_decay_rk5dp,
    lotka_volterra_rk6vr,
    robertson_esdirk4,
    van_der_pol_esdirk5,
]


def truth(case: Case, direction: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Return value, gradient and Hessian product in (u0, p) of the exact solution."""
    n, at = len(case.u0), np.array([*case.u0, *case.p])
    x = ca.SX.sym("x", at.size)
    if isinstance(case.exact, Flow):
        return flow(case.exact, at, n, direction)
    value = ca.SX(case.exact(x[:n], x[n:]))
    gradient = ca.gradient(value, x)
    product = ca.jtimes(gradient, x, ca.DM(direction))
    function = ca.Function("truth", [x], [value, gradient, product])(at)
    return float(function[0]), np.array(function[1]).ravel(), np.array(function[2]).ravel()


def flow(case: Flow, at: np.ndarray, n: int, direction: np.ndarray) -> Any:
    """Solve the variational equations of both orders by SciPy, to 1e-10.

    They are those of the relative changes of all but the zeros of (u0, p), and smaller numbers.
    """
    scales = np.where(np.abs(at) > 1e-2, np.abs(at), 1.0)
    x, t = ca.SX.sym("x", at.size), ca.SX.sym("t")
    u, along, both = (ca.SX.sym("u", n), ca.SX.sym("s", n, at.size), ca.SX.sym("w", n, at.size + 1))
    rate = ca.vertcat(*case.rhs(t, u, x[n:]))
    by_x = ca.jacobian(rate, u) @ along + ca.jacobian(rate, x) @ ca.diag(ca.DM(scales))
    first, rates = ca.veccat(u, along), ca.veccat(rate, by_x)
    bent = ca.jtimes(rates, first, ca.vec(both)) + ca.jtimes(rates, x, ca.DM(direction))
    state, whole = ca.veccat(first, both), ca.veccat(rates, bent)
    f = ca.Function("f", [state, x], [whole])
    jacobian = ca.Function("j", [state, x], [ca.jacobian(whole, state)])
    start = [
        *at[:n],
        *np.hstack([np.diag(scales[:n]), np.zeros((n, at.size - n))]).ravel("F"),
        *direction[:n],
        *np.zeros(n * at.size),
    ]
    optimisers = solve_ivp(
        lambda t, z: np.array(f(z, at)).ravel(),
        (0.0, case.end),
        start,
        case.method,
        rtol=1e-7 if case.method == "Radau" else 1e-10,
        atol=1e-17,  # with which it is more accurate than that
        **({"jac": lambda t, z: np.array(jacobian(z, at))} if case.method == "Radau" else {}),
    ).y[:, -1]
    gradient = optimisers[n : n * (1 + at.size)].reshape(at.size, n)[:, case.component]
    product = optimisers[n * (2 + at.size) :].reshape(at.size, n)[:, case.component]
    return optimisers[case.component], gradient / scales, product / scales


def within_a_factor(estimated: Any, actual: Any, factor: float = 3.0) -> None:
    ratio = np.linalg.norm(estimated) / np.linalg.norm(actual)
    assert 1.0 / factor < ratio < factor


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_errors_of_value_gradient_and_hessian_product_are_estimated_within_a_factor_of_three(
    make: Callable[[], Case],
) -> None:
    case = make()
    u0, p = np.array(case.u0), np.array(case.p)
    direction = np.concatenate([0.3 * u0, 0.2 * p])
    value, gradient, product = truth(case, direction)
    run = ds.solve(case.problem, u0, p, case.stepping, case.t_eval)
    error = ds.derivatives.derivative_error(run, case.objective, 0.3 * u0, 0.2 * p)
    computed = ds.hessian_product(run, case.objective, 0.3 * u0, 0.2 * p)
    n = np.arange(len(u0))
    free = np.concatenate([n if case.problem.form == "rhs" else n[:1], len(u0) + np.arange(len(p))])
    assert error.product is not None
    assert computed.gradient is not None
    within_a_factor(error.value, computed.gradient.value - value)
    for estimated, number, exact in (
        (error.gradient, computed.gradient, gradient),
        (error.product, computed, product),
    ):
        part = free[np.abs(exact[free]) > 0.0]
        scales = 1.0 / exact[part]
        actual = (np.concatenate([number.u0, number.p]) - exact)[part]
        within_a_factor(scales * np.concatenate([estimated.u0, estimated.p])[part], scales * actual)


def test_halved_steps_are_the_halves_of_the_steps_and_hit_what_they_hit() -> None:
    problem = ds.ODE(lambda t, u, p: -u, size=1, breakpoints=[0.37])
    run = ds.solve(problem, [1.0], None, ds.Stepping((0.0, 1.0), "rk3bs", rtol=1e-4), [0.2, 0.9])
    stepping, parts = divided(run)
    finer = ds.solve(problem, [1.0], None, stepping, [0.2, 0.9])
    assert parts == 2
    assert finer.n_steps == 2 * run.n_steps
    np.testing.assert_allclose(finer.times[::2], run.times, rtol=1e-14)
    np.testing.assert_allclose(finer.step_sizes[::2], 0.5 * run.step_sizes, rtol=1e-12)
    assert {0.2, 0.37, 0.9} <= set(finer.times.tolist())


def test_a_run_that_an_event_ends_is_halved_up_to_there() -> None:
    empty = ds.Event(lambda t, u, p: u[0] - 0.5, terminal=True, name="half")
    problem = ds.ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"], events=[empty])
    run = ds.solve(problem, [1.0], [1.0], ds.Stepping((0.0, 100.0), "cn", dt=0.1))
    error = ds.derivatives.derivative_error(run, ds.costs.EventTime("half"))
    actual = error.computed.value - np.log(2.0), error.computed.p[0] + np.log(2.0)
    np.testing.assert_allclose([error.value, error.p[0]], actual, rtol=0.1)


def test_errors_without_a_direction_have_no_product() -> None:
    case = logistic_rk4()
    error = ds.derivatives.derivative_error(
        ds.solve(case.problem, case.u0, case.p, case.stepping), case.objective
    )
    assert error.product is None
    assert list(error.relative) == ["value", "u0", "p"]
    assert "value 7.5e-07" in repr(error)


def late_saturation() -> ds.problem.Problem:
    """From 0 the last state is gain delay + 1/2: there is a kink at delay + 1 / gain."""
    return ds.DDE(
        lambda t, u, z, p: p[0] * np.maximum(1.0 - z[0], 0.0),
        1,
        ["gain", "delay"],
        delays=["delay"],
        history=[0.0],
    )


def saturation() -> ds.problem.Problem:
    """The last state is gain / (2 speed): there is a kink at 1 / speed."""
    return ds.ODE(
        lambda t, u, p: np.array([p[0] * np.maximum(1.0 - u[1], 0.0), p[1]]), 2, ["gain", "speed"]
    )


@pytest.mark.parametrize("moved", [0.0, 1e-15, -1e-15])
@pytest.mark.parametrize(
    ("make", "start", "exact"),
    [
        (late_saturation, [0.0], [0.9, 1.7]),
        (saturation, [0.0, 0.0], [0.5 / 0.9, -0.5 * 1.7 / 0.81]),
    ],
)
def test_errors_do_not_hang_on_the_rounding_of_the_times_of_kinks(
    make: Callable[[], ds.problem.Problem],
    start: list[float],
    exact: list[float],
    moved: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Halves of the last step around a kink ended on it: estimates of 3e-6 or 1e-4, as it fell."""
    located = Inside.located

    def beside(inside: Inside, n: int, *place: Any) -> Any:
        part, *others = located(inside, n, *place)
        return part + moved / float(inside.run.step_sizes[n]), *others

    monkeypatch.setattr(Inside, "located", beside)
    stepping = ds.Stepping((0.0, 4.0), "rk5ts", rtol=1e-6)
    run = ds.solve(make(), start, [1.7, 0.9], stepping)
    error = ds.derivatives.derivative_error(run, final(0))
    assert np.linalg.norm(error.p) < 3.0 * np.linalg.norm(error.computed.p - exact)
    assert divided(run)[1] == 3


@pytest.mark.parametrize("finer", [False, True])
@pytest.mark.parametrize(
    ("make", "start", "kink"),
    [(late_saturation, [0.0], 0.9 + 1.0 / 1.7), (saturation, [0.0, 0.0], 1.0 / 0.9)],
)
def test_kinks_stay_in_the_middle_of_divided_steps(
    make: Callable[[], ds.problem.Problem], start: list[float], kink: float, finer: bool
) -> None:
    run = ds.solve(make(), start, [1.7, 0.9], ds.Stepping((0.0, 4.0), "rk5ts", rtol=1e-6))
    stepping, parts = divided(run, finer=finer)
    again = ds.solve(make(), start, [1.7, 0.9], stepping)
    assert again.n_steps == parts * run.n_steps
    n = int(np.searchsorted(again.times, kink)) - 1
    assert 0.3 < (kink - again.times[n]) / again.step_sizes[n] < 0.7


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["rk4", "cn", "esdirk4"])
def test_errors_do_not_depend_on_the_number_of_ranks(method: str) -> None:
    ours, alone = (error_on(comm, method) for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF))
    computed = alone.computed.value
    np.testing.assert_allclose(ours.value, alone.value, atol=1e-10 * computed, rtol=0.0)
    np.testing.assert_allclose(ours.p, alone.p, atol=1e-10 * computed, rtol=0.0)
    assert abs(alone.value) > 1e-8 * computed


def error_on(comm: PETSc.Comm, method: str) -> ds.derivatives.ErrorEstimate:
    case = make(comm)
    cost = make_cost(case)
    stepping = ds.Stepping((0.0, 0.2), method, dt=0.03)
    return ds.derivatives.derivative_error(
        ds.solve(case.problem, case.u0, case.p, stepping, cost.times), cost
    )


def pressed(t: float, u: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return the rates of an oscillator that is driven, with a stop it meets six times."""
    push = np.maximum(u[0] - p[2] * np.cos(0.3 * t), 0.0)
    return np.array([u[1] - 0.3 * p[0] * push, -p[0] * u[0] - p[1] * push * (1.0 + u[1])])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("rtol", [1e-6, 1e-8])
def test_products_along_parts_of_steps_have_the_terms_of_kinks_too(make: Any, rtol: float) -> None:
    """They had none: the error was said to be 28 %, with the warning that they lack these."""
    meets = ds.Event(lambda t, u, p: u[0] - p[2] * np.cos(0.3 * t))
    start, rates, direction = [1.0, 0.3], [1.1, 0.7, 0.4], ([0.2, -0.5], [0.3, 0.6, -0.4])
    cost = ds.Terminal(lambda t, u, p: u[0] ** 2 + p[0] * u[1])

    def product(problem: ds.problem.Problem, rtol: float) -> tuple[ds.timestepping.Trajectory, Any]:
        stepping = ds.Stepping((0.0, 6.0), "rk8vr", rtol=rtol)
        run = ds.solve(problem, start, rates, stepping)
        along = ds.hessian_product(run, cost, *direction)
        return run, np.concatenate([along.u0, along.p])

    run, computed = product(make(pressed, 2, 3), rtol)
    _, exact = product(make(pressed, 2, 3, events=[meets]), 1e-12)
    error = np.linalg.norm(computed - exact) / np.linalg.norm(exact)
    estimate = ds.derivatives.derivative_error(run, cost, *direction)
    assert 0.3 < estimate.relative["product"] / error < 3.0


def test_a_run_that_an_event_ends_where_it_begins_has_no_error():
    """The cost is p0**4 + (p0 - u0) / p1, from a start on the mark p0; its steps have no length."""
    full = ds.Event(
        lambda t, u, p: u[0] - p[0], lambda t, u, p: u * p[0], direction=1, terminal=True
    )
    tank = ds.ODE(lambda t, u, p: p[1] + 0.0 * u, 1, ["mark", "inflow"], events=[full])
    cost = ds.Terminal(lambda t, u, p: u[0] ** 2 + t)
    for size in ({"rtol": 1e-6}, {"dt": 0.1}):
        run = ds.solve(tank, [2.0], [2.0, 1.5], ds.Stepping((0.0, 1.0), "rk5dp", **size))
        product = ds.hessian_product(run, cost, dp=[1.0, 0.0])  # looked at, with divided steps
        np.testing.assert_allclose(product.p, [48.0, -1.0 / 1.5**2], rtol=1e-12)
        estimate = ds.derivatives.derivative_error(run, cost, [1.0], [0.0, 0.0])
        assert set(estimate.relative.values()) == {0.0}
