"""TS for problems: their types, what they evaluate, and what they are not made for."""

import numpy as np
import pytest
from forms import FORMS, P0, U0
from native_model import U0 as START
from native_model import P, compiled_ode
from petsc4py import PETSc

from daeosens import ODE, InputError, Stepping, UnsupportedError, solve
from daeosens.methods import find_method
from daeosens.problem import COLORING
from daeosens.timestepping.c_rhs import Held
from daeosens.timestepping.ts import make_ts

SPAN = (0.0, 1.0)
POINT = (0.3, np.array([0.7, -0.2, 0.4]), np.array([0.1, 0.5, -0.3]))
SHIFT = 2.5


def made(problem, method, u0, p, **keywords):
    """Return a TS with its state."""
    held, u = Held(np.asarray(p)), problem.admit_state(u0)
    ts = make_ts(problem, find_method(method), 0.0, u, held, record="states", **keywords)
    ts.setSolution(u)
    return ts


@pytest.mark.parametrize(
    ("method", "plain", "kind"),
    [
        ("rk4", True, "daeosens-explicit"),
        ("rk4", False, "rk"),
        ("esdirk4", True, "dense"),
        ("esdirk4", False, "esdirk"),
        ("cn", True, "cn"),
        ("beuler", True, "beuler"),
        ("midpoint", True, "theta"),
        ("theta:0.7", True, "theta"),
    ],
)
def test_solvers_are_left_out_where_no_option_can_reach_them(c, method, plain, kind):
    assert made(compiled_ode(c), method, START, P, plain=plain).getType() == kind


@pytest.mark.parametrize(
    ("method", "theta", "endpoint"),
    [("cn", 0.5, True), ("beuler", 1.0, False), ("midpoint", 0.5, False), ("theta:0.7", 0.7, True)],
)
def test_theta_methods_have_their_parameters(method, theta, endpoint):
    ts = made(FORMS["rhs"].analytic, method, U0, P0)
    assert (ts.getTheta(), ts.getThetaEndpoint()) == (theta, endpoint)


@pytest.mark.parametrize("name", FORMS)
def test_ts_evaluates_the_residual_and_its_shifted_jacobian(name):
    form, (t, u, udot) = FORMS[name], POINT
    problem = form.analytic
    ts = made(problem, "midpoint", U0, P0)
    matrix, out = ts.getIJacobian()[0], problem.create_state()
    states = problem.admit_state(u), problem.admit_state(udot)
    ts.computeIFunction(t, *states, out)
    np.testing.assert_allclose(out.array, form.residual(t, u, udot, P0), rtol=1e-14, atol=1e-15)
    ts.computeIJacobian(t, *states, SHIFT, matrix)
    expected = form.residual_u(t, u, udot, P0) + SHIFT * form.residual_udot(t, u, udot, P0)
    np.testing.assert_allclose(matrix[:, :], expected, rtol=1e-14, atol=1e-15)


def test_ts_evaluates_a_mean_where_the_mass_changes():
    """Of F at both ends of the step with its rate; PETSc asks for F at the start before."""
    form, (t, u, udot), theta, h = FORMS["F"], POINT, 0.7, 0.25
    problem = form.analytic
    ts = made(problem, f"theta:{theta}", U0, P0)
    matrix, out = ts.getIJacobian()[0], problem.create_state()
    start, end, rate = (problem.admit_state(values) for values in (U0, u, udot))
    ts.setTime(t)
    ts.computeIFunction(t, start, problem.create_state(), out)
    assert not out.array.any()
    after, before = (t + h, u, theta * udot, P0), (t, U0, theta * udot, P0)
    ts.computeIFunction(t + h, end, rate, out)
    rest = (1 - theta) / theta
    mean = form.residual(*after) + rest * form.residual(*before)
    np.testing.assert_allclose(out.array, mean, rtol=1e-14, atol=1e-15)
    ts.computeIJacobian(t + h, end, rate, 1 / (theta * h), matrix)
    by_rate = form.residual_udot(*after) + rest * form.residual_udot(*before)
    expected = form.residual_u(*after) + by_rate / h
    np.testing.assert_allclose(matrix[:, :], expected, rtol=1e-14, atol=1e-15)


def test_explicit_ts_evaluates_the_right_hand_side():
    form, (t, u, _) = FORMS["rhs"], POINT
    out = form.analytic.create_state()
    made(form.analytic, "rk4", U0, P0).computeRHSFunction(t, form.analytic.admit_state(u), out)
    np.testing.assert_array_equal(out.array, -form.residual(t, u, np.zeros(3), P0))


def test_coloured_jacobian_runs_forward_on_a_dm():
    """By name only; PETSc differences the right-hand side with the pattern of the DM."""

    def stretch(t, u, p, out):
        out.array = -p[0] * u.getArray(readonly=True) ** 2

    dm = PETSc.DMDA().create([4], dof=1, stencil_width=1, comm=PETSc.COMM_SELF)
    problem = ODE(stretch, state=dm, parameters=1, jacobian=COLORING)
    u0 = problem.create_state()
    u0.set(1.0)
    run = solve(problem, u0, [0.5], Stepping(SPAN, "cn", dt=0.01))
    np.testing.assert_allclose(run.u[-1], 1 / 1.5, rtol=1e-5)


@pytest.mark.parametrize(("name", "form"), [("M", "mass"), ("M(p)", "mass"), ("F", "residual")])
def test_explicit_methods_are_refused_for_other_forms(name, form):
    message = rf'method = "rk4" for a problem in {form} form(.|\n)*try: .*"cn", "beuler"'
    with pytest.raises(UnsupportedError, match=message):
        solve(FORMS[name].analytic, U0, P0, Stepping(SPAN, "rk4", dt=0.1))


def test_colouring_needs_a_dm_and_has_no_recording():
    vec = PETSc.Vec().createSeq(2, comm=PETSc.COMM_SELF)
    stepping = Stepping(SPAN, "cn", dt=0.1)

    def idle(t, u, p, out):
        out.zeroEntries()

    problem = ODE(idle, state=vec, jacobian=COLORING)
    with pytest.raises(InputError, match=r'"coloring" without a DM\n  expected: state=DMDA'):
        solve(problem, vec, None, stepping)
    dm = PETSc.DMDA().create([2], dof=1, stencil_width=1, comm=PETSc.COMM_SELF)
    problem = ODE(idle, state=dm, jacobian=COLORING)
    with pytest.raises(UnsupportedError, match=r'trajectory with jacobian = "coloring"'):
        solve(problem, dm.createGlobalVec(), None, stepping, petsc_trajectory="memory")
