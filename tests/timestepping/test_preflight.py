"""Steps that PETSc takes wrongly are refused before the first one."""

from contextlib import contextmanager

import numpy as np
import pytest
from forms import COSTS, FORMS, P0, U0
from petsc4py import PETSc

from daeosens import DAE, ODE, Stepping, UnsupportedError, adjoint, solve
from daeosens.errors import OptionError, SingularMatrixError

SPAN = (0.0, 1.0)
SINGULAR = np.diag([1.0, 0.0])


def f(t, u, p):
    return np.array([-u[0] * p[0] + u[1], u[1] - u[0] ** 2])


ALGEBRAIC = {
    "M": ODE(f, 2, 1, mass=SINGULAR),
    "M(p)": ODE(f, 2, 1, mass=lambda p: SINGULAR * p[0]),
    "F": DAE(lambda t, u, udot, p: SINGULAR @ udot - f(t, u, p), 2, 1),
    "F linear": DAE(lambda t, u, udot, p: SINGULAR @ udot - f(t, u, p), 2, 1, linear_in_udot=True),
}


@pytest.mark.parametrize("form", ALGEBRAIC)
def test_midpoint_with_error_control_is_refused_for_algebraic_variables(form):
    problem, u0 = ALGEBRAIC[form], [0.5, 0.25]
    message = r'adaptive "midpoint" .* rows of zeros(.|\n)*try: "cn", "beuler" or .* fixed steps'
    with pytest.raises(UnsupportedError, match=message):
        solve(problem, u0, [1.0], Stepping(SPAN, "midpoint", rtol=1e-3))
    # what the message recommends works
    fixed = solve(problem, u0, [1.0], Stepping(SPAN, "midpoint", dt=0.05))
    for method in ("cn", "beuler", "theta:0.7"):
        stepping = Stepping(SPAN, method, dt=0.05, rtol=1e-3, atol=1e-3)
        adaptive = solve(problem, u0, [1.0], stepping)
        np.testing.assert_allclose(adaptive.u[-1, 0], fixed.u[-1, 0], rtol=0.02)


@pytest.mark.parametrize("form", ["rhs", "M", "M(p)", "F"])
def test_midpoint_with_error_control_runs_without_algebraic_variables(form):
    stepping = Stepping(SPAN, "midpoint", dt=0.1, rtol=1e-2, atol=1e-2)
    assert solve(FORMS[form].analytic, U0, P0, stepping).times[-1] == 1.0


NOT_CONSTANT = {
    "M(u)": (lambda t, u, rate, p: (1 + u**2) * rate + p[0] * u, 0.52769739696257),
    "M(t)": (lambda t, u, rate, p: (1 + t) ** 2 * rate + p[0] * u, np.exp(-0.5)),
    "not linear in u'": (lambda t, u, rate, p: rate**3 - p[0] * u**3, np.e),
}
"""F(t, u, u', p) with u(0) = 1, and u(1) for p = 1: log u + u^2/2 = -1/2 is the first."""


@pytest.mark.parametrize(
    ("method", "order"), [("cn", 2), ("theta:0.7", 1), ("midpoint", 2), ("beuler", 1)]
)
@pytest.mark.parametrize("name", NOT_CONSTANT)
def test_methods_have_their_order_where_the_mass_changes(name, method, order):
    """PETSc's TSTHETA alone would be of first order, or converge to something else (3.26)."""
    residual, exact = NOT_CONSTANT[name]
    problem, errors = DAE(residual, 1, 1), []
    for dt in (0.02, 0.01):
        run = solve(problem, [1.0], [1.0], Stepping(SPAN, method, dt=dt))
        errors.append(abs(run.u[-1, 0] - exact))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.03)
    assert errors[1] < {1: 0.02, 2: 1e-4}[order]


@pytest.mark.parametrize("name", NOT_CONSTANT)
def test_adaptive_steps_there_keep_the_tolerance(name):
    residual, exact = NOT_CONSTANT[name]
    run = solve(DAE(residual, 1, 1), [1.0], [1.0], Stepping(SPAN, "cn", rtol=1e-6))
    assert run.u[-1, 0] == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_residuals_linear_in_the_rate_are_stepped_at_any_scale(scale):
    problem = DAE(lambda t, u, udot, p: (1 + (u / scale) ** 2) * udot - p[0] * u + scale * t, 1, 1)
    for method in ("cn", "theta:0.7"):
        assert solve(problem, [scale], [1.0], Stepping(SPAN, method, dt=0.1)).n_steps == 10


OPTIONS = [
    ("rk3bs", {"ts_rk_type": "4"}, "rk4"),
    ("rk3bs", {"ts_type": "beuler"}, "beuler"),
    ("cn", {"ts_type": "rk"}, "rk3bs"),
    ("cn", {"ts_type": "theta"}, r"theta \(one-stage, 0\.5\)"),
    ("theta:0.7", {"ts_theta_theta": 0.6}, r"theta \(endpoint, 0\.6\)"),
    ("midpoint", {"ts_theta_endpoint": True}, r"theta \(endpoint, 0\.5\)"),
    ("theta:0.5", {"ts_theta_endpoint": False}, r"theta \(one-stage, 0\.5\)"),
]


@contextmanager
def command_line(options):
    """Put options where those of the command line are."""
    database = PETSc.Options()
    for name, value in options.items():
        database.setValue(name, value)
    yield
    for name in options:
        database.delValue(name)


@pytest.mark.parametrize(("method", "options", "result"), OPTIONS)
def test_options_that_change_the_method_are_refused(method, options, result):
    """In the code and on the command line: the sweeps would follow Stepping, and be wrong."""
    problem = FORMS["rhs"].analytic
    message = (
        rf'choose the method "{result}" where Stepping has "{method}"(.|\n)*try: Stepping\(meth'
    )
    with pytest.raises(OptionError, match=message):
        solve(problem, U0, P0, Stepping(SPAN, method, dt=0.1, options=options))
    with command_line(options), pytest.raises(OptionError, match=message):
        solve(problem, U0, P0, Stepping(SPAN, method, dt=0.1))


@pytest.mark.parametrize(
    "options", [{"ts_type": "rk", "ts_rk_type": "4"}, {"ts_max_steps": 50}, {"ts_time_step": 0.05}]
)
@pytest.mark.parametrize("engine", ["vectors", "tsadjoint"])
def test_options_that_do_not_are_obeyed(options, engine):
    """Also by the engine that repeats the run."""
    problem, cost = FORMS["rhs"].analytic, COSTS["terminal"].objective
    with command_line(options):
        run = solve(problem, U0, P0, Stepping(SPAN, "rk4", dt=0.1))
        ours = adjoint(run, cost, engine)
    assert run.n_steps == (20 if "ts_time_step" in options else 10)
    plain = solve(problem, U0, P0, Stepping(SPAN, "rk4", dt=SPAN[1] / run.n_steps))
    np.testing.assert_allclose(ours.p, adjoint(plain, cost).p, rtol=1e-12)


@pytest.mark.parametrize("method", ["cn", "beuler", "midpoint", "theta:0.6", "esdirk4"])
def test_a_run_at_rest_that_nothing_determines_is_refused(method):
    """Of 0 u' = 0 Newton's method has nothing to solve, and so never sees the matrix."""
    nothing = ODE(lambda t, u, p: 0.0 * u, 1, 0, mass=[[0.0]])
    with pytest.raises(SingularMatrixError, match="the matrix of a step has no factors"):
        solve(nothing, [1.0], [], Stepping(SPAN, method, dt=0.25))
    same = ODE(lambda t, u, p: np.array([u[0] - u[1], u[0] - u[1]]), 2, 0, mass=np.zeros((2, 2)))
    with pytest.raises(SingularMatrixError, match="the matrix is singular"):
        solve(same, [1.0, 1.0], [], Stepping(SPAN, method, dt=0.25))
    # an equilibrium of sound equations is no error
    sound = ODE(f, 2, 1, mass=SINGULAR)
    assert (solve(sound, [0.0, 0.0], [1.0], Stepping(SPAN, method, dt=0.25)).u == 0.0).all()
