"""Sweeps of C functions: the numbers of the sweep by steps in Python."""

import ctypes
from dataclasses import replace

import forms
import frozen
import numpy as np
import pytest
from native_model import U0, P, compiled_costs, compiled_ode, cost
from support.sweeps import in_c

import daeosens as ds
from daeosens.derivatives.adjoint import evaluate_cost
from daeosens.derivatives.engines.limits import FEW_ROWS as FEW

SPAN = (0.0, 2.0)
STEPPINGS = [
    ds.Stepping(SPAN, "rk1fe", dt=0.1),
    ds.Stepping(SPAN, "rk4", dt=0.1),
    ds.Stepping(SPAN, "rk3bs", dt=0.1),
    ds.Stepping(SPAN, "rk8vr", dt=0.25),
    ds.Stepping(SPAN, "rk5dp", rtol=1e-7, atol=1e-9),
    ds.Stepping(SPAN, "beuler", dt=0.1),
    ds.Stepping(SPAN, "cn", dt=0.1),
    ds.Stepping(SPAN, "theta:0.7", dt=0.1),
    ds.Stepping(SPAN, "midpoint", dt=0.1),
    ds.Stepping(SPAN, "cn", rtol=1e-5, atol=1e-6),
]
DOUBLES = ctypes.POINTER(ctypes.c_double)
TIMES = (0.0, 0.35, 1.0, 2.0)


@pytest.fixture(scope="module")
def traced():
    """Return the oscillator of native_model with products of its derivatives."""
    return ds.trace(
        lambda t, u, p: [u[1], p[0] * (1.0 - u[0] * u[0]) * u[1] - u[0] + p[1] * t],
        2,
        2,
        running=lambda t, u, p: np.exp(-t) * u[0] ** 2 * p[1] + u[1],
    )


def integrals(problem, c):
    """Return costs with compiled densities, some of them with points."""
    of_oscillator = compiled_costs(c)
    running = getattr(problem, "running", None)
    return [
        observed() + 2.0 * (running or of_oscillator),
        ds.Terminal(cost) if running is None else running + (-0.5) * of_oscillator,
    ]


def observed():
    """Return the cost of observations at several times, the first and last ones among them."""
    return ds.LeastSquares(TIMES, [[0.5, 0.1 * k] for k in range(4)], sigma=0.3)


@pytest.mark.parametrize("checkpoint", ["states", "stages"])
@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("stepping", STEPPINGS, ids=lambda item: f"{item.method}-{item.adaptive}")
def test_same_numbers_as_in_python(c, traced, stepping, products, checkpoint):
    problem = traced if products else compiled_ode(c)
    run = ds.solve(problem, U0, P, stepping, t_eval=TIMES, checkpoint=checkpoint)
    costs = [observed(), ds.Terminal(cost)]
    sensitivity = ds.adjoint(run, costs)
    for gradient, expected in zip(sensitivity, ds.adjoint(run, costs, "vectors"), strict=True):
        assert gradient.engine == "compiled"
        # rounding is that of the largest entry
        for ours, theirs in ((gradient.u0, expected.u0), (gradient.p, expected.p)):
            assert abs(ours - theirs).max() <= 1e-14 * max(1.0, abs(theirs).max())


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("stepping", STEPPINGS, ids=lambda item: f"{item.method}-{item.adaptive}")
def test_integrals_are_those_of_python(c, traced, stepping, products):
    problem = traced if products else compiled_ode(c)
    run = ds.solve(problem, U0, P, stepping, t_eval=TIMES)
    costs = integrals(problem, c)
    sensitivity = ds.adjoint(run, costs)
    reference = ds.adjoint(run, costs, "vectors")
    for item, gradient, expected in zip(costs, sensitivity, reference, strict=True):
        assert gradient.engine == "compiled"
        value = evaluate_cost(run, item.lower(problem, run.times[-1]))
        assert gradient.value == pytest.approx(value, rel=1e-13)
        assert ds.derivatives.evaluate(run, item) == gradient.value
        np.testing.assert_allclose(gradient.u0, expected.u0, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(gradient.p, expected.p, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("method", ["beuler", "cn", "midpoint"])
@pytest.mark.parametrize("mass", [[[2.0, 1.0], [0.5, 3.0]], [[2.0, 1.0], [0.0, 0.0]]])
def test_same_numbers_with_a_mass_matrix(c, mass, method):
    problem = compiled_ode(c, mass=mass)
    start = U0 if mass[1][1] else [3.0, 3.0 / (P[0] * (1.0 - 3.0**2))]  # 0 = f_1
    run = ds.solve(problem, start, P, ds.Stepping(SPAN, method, dt=0.1), t_eval=TIMES)
    gradient, expected = (ds.adjoint(run, observed(), engine) for engine in ("compiled", "vectors"))
    np.testing.assert_allclose(gradient.u0, expected.u0, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(gradient.p, expected.p, rtol=1e-13, atol=1e-13)


@pytest.fixture(scope="module")
def three_states():
    return ds.trace(forms.rhs, 3, list(forms.NAMES), running=forms.density)


@pytest.mark.parametrize(
    ("method", "adaptive"), [item[1:] for item in forms.RUNS if item[0] == "rhs"]
)
def test_gradients_are_those_of_an_independent_program(three_states, method, adaptive):
    """Non-autonomous, with observations on the way, integrals, and a last step that is cut."""
    stepping = forms.make_stepping(method, adaptive=adaptive)
    if method in forms.DIAGONAL:  # in C, to rounding without options
        stepping = replace(stepping, options={})
    run = ds.solve(three_states, forms.U0, forms.P0, stepping, forms.OBSERVATION_TIMES)
    cases = [forms.COSTS[name] for name in ("observations", "running")]
    costs = [cases[0].objective, three_states.running]
    lowered = [cost.lower(run.problem, run.times[-1]) for cost in costs]
    assert in_c(run, lowered) is not None
    log = (run.times, run.step_sizes)
    expected = frozen.gradients(forms.FORMS["rhs"], method, log, cases, forms.U0, forms.P0)
    for gradient, by_u0, by_p in zip(ds.adjoint(run, costs), *expected, strict=True):
        assert gradient.engine == "compiled"
        size = max(abs(by_u0).max(), abs(by_p).max())
        np.testing.assert_allclose(gradient.u0, by_u0, rtol=0.0, atol=1e-12 * size)
        np.testing.assert_allclose(gradient.p, by_p, rtol=0.0, atol=1e-12 * size)


@pytest.mark.parametrize("stepping", STEPPINGS[4:], ids=lambda item: item.method)
def test_adjoint_and_tangent_agree(traced, stepping):
    run = ds.solve(traced, U0, P, stepping, t_eval=TIMES)
    total = observed() + traced.running
    gradient = ds.adjoint(run, total)
    du, dp = np.array([0.3, -0.8]), np.array([0.5, 0.2])
    expected = ds.tangent(run, du, dp).derivative(total)
    assert gradient.u0 @ du + gradient.p @ dp == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("stepping", [STEPPINGS[1], STEPPINGS[6]], ids=lambda item: item.method)
def test_gradient_has_taylor_order_two(traced, stepping):
    names = traced.parameter_names
    control = ds.Parameters(
        {name: ds.Parameter(value) for name, value in zip(names, P, strict=True)}, initial_state=U0
    )
    reduced = ds.Reduced(traced, observed() + traced.running, stepping, control)
    value, gradient = reduced.value_and_gradient(P)
    dx = np.array([0.4, -0.3])
    sizes = [0.1 / 2**k for k in range(4)]
    rest = [abs(reduced.value(P + h * dx) - value - h * float(gradient.array @ dx)) for h in sizes]
    assert np.min(np.log2(np.divide(rest[:-1], rest[1:]))) > 1.9


def test_a_problem_without_parameters(c):
    @ctypes.CFUNCTYPE(None, ctypes.c_double, DOUBLES, DOUBLES, DOUBLES, ctypes.c_void_p)
    def rate(_t, u, _p, out, _data):
        out[0] = -2.0 * u[0]

    @ctypes.CFUNCTYPE(None, ctypes.c_double, DOUBLES, DOUBLES, DOUBLES, ctypes.c_void_p)
    def slope(_t, _u, _p, out, _data):
        out[0] = -2.0

    problem = ds.ODE(rate, 1, 0, jacobian=slope, rhs_t="autonomous")
    run = ds.solve(problem, [1.0], None, ds.Stepping((0.0, 1.0), "rk1fe", dt=0.1))
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: 3.0 * u[0]))
    assert gradient.u0[0] == pytest.approx(3.0 * 0.8**10, rel=1e-14)
    assert gradient.p.size == 0


def points_in_c(model):
    """Return costs of the last state, compiled as a whole, in part and not at all."""
    compiled = model.terminal(lambda t, u, p: t * u[0] * u[1] + p[0] * u[1] ** 2)
    other = model.terminal(lambda t, u, p: u[0])  # ignores p
    return [compiled, other, 2.0 * compiled + observed() + (-3.0) * other, ds.Terminal(cost)]


def test_costs_of_a_state_are_called_by_address(traced, monkeypatch):
    costs = points_in_c(traced)
    run = ds.solve(traced, U0, P, STEPPINGS[1], t_eval=TIMES)  # nobody looks at steps of fixed size
    for point_cost in costs[:3]:
        expected = ds.adjoint(run, point_cost, "vectors")
        gradient = ds.adjoint(run, point_cost)
        assert gradient.value == pytest.approx(ds.derivatives.evaluate(run, point_cost), rel=1e-15)
        np.testing.assert_allclose(gradient.u0, expected.u0, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(gradient.p, expected.p, rtol=1e-13, atol=1e-13)
    for scalar in (scalar for _, _, scalar in costs[0].lower(traced, run.times[-1]).points):
        monkeypatch.setattr(scalar, "add_u", None)
        monkeypatch.setattr(scalar, "value", None)
    assert ds.adjoint(run, costs[0]).engine == "compiled"


def test_what_changes_between_gradients_is_seen(traced):
    first, second, *_ = points_in_c(traced)
    stepping = STEPPINGS[4]
    other = ds.Stepping(SPAN, "rk5dp", rtol=1e-5, atol=1e-6)
    # in turn, so that whatever a problem keeps belongs to something else each time
    cases = [
        (objective, u0, p, value)
        for objective in (first, second)
        for u0 in (U0, [0.3, -0.7])
        for p in (P, [0.2, 0.9])
        for value in (stepping, other)
    ]
    for objective, u0, p, item in cases + cases[::-1]:
        run = ds.solve(traced, u0, p, item)
        fresh = ds.solve(replace(traced), u0, p, item)
        expected = ds.adjoint(fresh, objective, "vectors")
        gradient = ds.adjoint(run, objective)
        assert gradient.value == ds.derivatives.evaluate(fresh, objective)
        np.testing.assert_allclose(gradient.u0, expected.u0, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(gradient.p, expected.p, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda t, u, p: np.log(u[0] - 5.0), r"'terminal' returned nan"),
        (lambda t, u, p: np.sqrt((t - 2.0) * u[0]), r"'terminal gradient_u' returned"),
    ],
)
def test_costs_of_a_state_that_are_not_finite_are_named(traced, function, named):
    run = ds.solve(traced, U0, P, STEPPINGS[1])
    with pytest.raises(ds.SolveError, match=named):
        ds.adjoint(run, traced.terminal(function))


def test_slopes_that_are_not_finite_are_named(c):
    @ctypes.CFUNCTYPE(None, ctypes.c_double, DOUBLES, DOUBLES, DOUBLES, ctypes.c_void_p)
    def jacobian(t, _u, _p, out, _data):
        for k in range(4):
            out[k] = np.nan if t > 1.0 else 1.0

    problem = compiled_ode(c)
    broken = ds.ODE(c.rhs, 2, 2, jacobian=jacobian, jacobian_p=c.jacobian_p, rhs_t=c.rhs_t)
    run = ds.solve(broken, U0, P, STEPPINGS[1])
    for engine in ("auto", "vectors"):
        with pytest.raises(
            ds.SolveError, match=r"callback 'jacobian' returned nan in entry \[0, 0\]"
        ):
            ds.adjoint(run, observed_end(), engine)
    assert ds.adjoint(ds.solve(problem, U0, P, STEPPINGS[1]), observed_end()).engine == "compiled"


def test_after_a_slope_that_was_not_finite_sweeps_are_in_c_again():
    @ctypes.CFUNCTYPE(None, ctypes.c_double, DOUBLES, DOUBLES, DOUBLES, ctypes.c_void_p)
    def rate(_t, u, p, out, _data):
        out[0] = -p[0] * u[0]

    @ctypes.CFUNCTYPE(None, ctypes.c_double, DOUBLES, DOUBLES, DOUBLES, ctypes.c_void_p)
    def by_u(_t, _u, p, out, _data):
        out[0] = -p[0] if p[0] > 0.0 else np.nan

    @ctypes.CFUNCTYPE(None, ctypes.c_double, DOUBLES, DOUBLES, DOUBLES, ctypes.c_void_p)
    def by_p(_t, u, _p, out, _data):
        out[0] = -u[0]

    problem = ds.ODE(rate, 1, 1, jacobian=by_u, jacobian_p=by_p, rhs_t="autonomous")
    cost, stepping = ds.Terminal(lambda t, u, p: u[0]), ds.Stepping((0.0, 1.0), "rk1fe", dt=0.1)
    with pytest.raises(ds.SolveError, match="'jacobian' returned nan"):
        ds.adjoint(ds.solve(problem, [1.0], [-1.0], stepping), cost)
    gradient = ds.adjoint(ds.solve(problem, [1.0], [1.0], stepping), cost)
    assert gradient.engine == "compiled"
    assert gradient.u0[0] == pytest.approx(0.9**10, rel=1e-14)
    assert gradient.p[0] == pytest.approx(-(0.9**9), rel=1e-14)


def test_densities_that_are_not_finite_are_named():
    model = ds.trace(lambda t, u, p: -p.a * u, 1, {"a": ()}, running=lambda t, u, p: np.log(u[0]))
    run = ds.solve(model, [-1.0], [1.0], STEPPINGS[1])
    with pytest.raises(ds.SolveError, match=r"'running' returned nan"):
        ds.adjoint(run, model.running)


def observed_end():
    """Return a cost of the final state."""
    return ds.Terminal(cost, lambda t, u, p: np.array([u[0] + t, p[1] * u[1]]))


def test_other_sweeps_serve_what_it_does_not(c, traced):
    explicit = STEPPINGS[1]
    several = [ds.Terminal(cost)] * (FEW + 1)
    cases = [
        (ds.solve(traced, U0, P, explicit), [ds.Running(lambda t, u, p: u[0] * p[1])]),
        (ds.solve(traced, U0, P, explicit), several),
        (ds.solve(compiled_ode(c, pattern=True), U0, P, explicit), [ds.Terminal(cost)]),
        (ds.solve(replace(traced, native={}), U0, P, explicit), [ds.Terminal(cost)]),
    ]
    for run, costs in cases:
        lowered = [cost.lower(run.problem, run.times[-1]) for cost in costs]
        assert in_c(run, lowered) is None
        expected = ds.adjoint(run, costs, "vectors")
        for gradient, other in zip(ds.adjoint(run, costs), expected, strict=True):
            np.testing.assert_allclose(gradient.u0, other.u0, rtol=1e-12)


@pytest.mark.parametrize("method", ["rk3bs", "rk4", "rk8vr", "esdirk4"])
@pytest.mark.parametrize("size", [3, 30])
def test_stages_that_are_found_again_are_those_of_the_run(method, size):
    """To the last digit, where no stage takes the rate over from the step before."""
    model = ds.trace(
        lambda t, u, p: p.A @ (u * np.cos(u)) - p.k * u, size, {"A": (size, size), "k": ()}
    )
    a = np.cos(np.arange(size**2)).reshape(size, size) / size
    p, start = model.pack(A=a, k=0.5), np.linspace(0.2, 1.0, size)
    cost, stepping = model.terminal(lambda t, u, p: u @ u), ds.Stepping((0.0, 1.0), method, dt=0.1)
    again, kept = (
        ds.adjoint(ds.solve(model, start, p, stepping, checkpoint=checkpoint), cost)
        for checkpoint in ("states", "stages")
    )
    assert again.engine == kept.engine == "compiled"
    assert np.array_equal(again.u0, kept.u0)
    assert np.array_equal(again.p, kept.p)
