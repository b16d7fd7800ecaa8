"""Kinks in u' of F(t, u, u', p) = 0 where parameters are in the start and the last step is cut."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from daeosens import DAE, Parameter, Parameters, Reduced, Stepping, Terminal, taylor
from daeosens.tracing import trace_residual

P, END = np.array([1.3, 0.4]), 2.0
LAST = Terminal(lambda t, u, p: u[0] + 0.5 * u[0] ** 2)


def forced(t, u, rate, p):
    """Drag that pulls in one direction, whichever the rate has."""
    return np.stack([rate[0] + p[1] * np.abs(rate[0]) + u[0] - p[0] * np.cos(2.0 * t)])


def autonomous(t, u, rate, p):
    """A body that slides back and forth: added mass while it gains speed."""
    drag = p[1] * np.maximum(rate[1], 0.0)
    return np.stack([rate[0] - u[1], rate[1] + drag + p[0] * 4.0 * u[0] + 0.2 * u[1]])


def started(p):
    return np.array([0.3 * p[0] + p[1] ** 2])


def released(p):
    return np.array([0.5 + 0.2 * p[1], -0.3 * p[0]])


def explicit(residual, p):
    """The cost by SciPy, which begins anew where a rate changes its sign."""
    if residual is forced:
        start = started(p)

        def pull(t, u):
            return p[0] * np.cos(2.0 * t) - u[0]

        def rate(t, u, side):
            return [pull(t, u) / (1.0 + side * p[1])]

    else:
        start = released(p)

        def pull(t, u):
            return -p[0] * 4.0 * u[0] - 0.2 * u[1]

        def rate(t, u, side):
            return [u[1], pull(t, u) / (1.0 + (p[1] if side > 0.0 else 0.0))]

    pull.terminal = True
    t, u = 0.0, start
    side = np.sign(pull(t, u))
    while t < END:
        pull.direction = -side
        taken = solve_ivp(
            lambda t, u, side=side: rate(t, u, side),
            (t, END),
            u,
            "DOP853",
            rtol=1e-12,
            atol=1e-13,
            events=pull,
        )
        t, u, side = taken.t[-1], taken.y[:, -1], -side
    return float(u[0] + 0.5 * u[0] ** 2)


def reduced(make, residual, stepping):
    size, start = (1, started) if residual is forced else (2, released)
    names = ["push", "drag"]
    free = {name: Parameter(value) for name, value in zip(names, P, strict=True)}
    problem = make(residual, size, names)
    return Reduced(problem, LAST, stepping, Parameters(free, initial_state=start))


@pytest.mark.slow
@pytest.mark.parametrize("make", [DAE, trace_residual])
@pytest.mark.parametrize("residual", [forced, autonomous])
def test_gradients_with_parameters_in_the_start(make, residual):
    functional = reduced(make, residual, Stepping((0.0, END), "cn", rtol=1e-5))
    value, gradient = functional.value_and_gradient(functional.start())
    slopes = []
    for k in (0, 1):
        of = []
        for h in (2e-3, 1e-3):
            step = h * np.eye(2)[k]
            of.append((explicit(residual, P + step) - explicit(residual, P - step)) / (2 * h))
        slopes.append((4 * of[1] - of[0]) / 3)
    assert value == pytest.approx(explicit(residual, P), rel=1e-4)
    np.testing.assert_allclose(gradient.getArray(readonly=True), slopes, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cn", "beuler", "theta:0.6", "midpoint"])
@pytest.mark.parametrize("make", [DAE, trace_residual])
@pytest.mark.parametrize("residual", [forced, autonomous])
@pytest.mark.filterwarnings("ignore::daeosens.errors.KinkWarning")
def test_taylor_orders_with_a_last_step_that_is_cut_short(make, residual, method):
    functional = reduced(make, residual, Stepping((0.0, END), method, dt=0.015))
    run = functional.trajectory(functional.start())
    assert run.step_sizes[-1] < 0.9 * run.step_sizes[0]
    assert taylor(functional, epsilons=1e-4 / 4.0 ** np.arange(5)).passed
    assert taylor(functional, epsilons=1e-3 / 2.0 ** np.arange(5), hessian=True).passed
