"""C functions that TS calls itself: for which problems, with which parameters, and their faults."""

import numpy as np
import pytest
from native_model import U0, P, compiled_ode, jacobian, numpy_ode, rhs
from petsc4py import PETSc

from daeosens import SolveError, trace, trace_stencil
from daeosens.methods import find_method
from daeosens.problem.grids import Grid
from daeosens.timestepping.c_rhs import Held, raise_fault, registered_with, runs_in_c
from daeosens.timestepping.ts import make_ts
from tests.petsc.test_c_function import MASS

METHODS = ["rk4", "cn", "midpoint", "esdirk4"]
OTHERS = np.array([1.9, -0.6])
T, U, UDOT, SHIFT = 0.4, np.array([0.7, -1.1]), np.array([0.2, 0.5]), 3.0


def made(problem, method, u0, p):
    """Return a TS and its parameters."""
    held, u = Held(np.asarray(p)), problem.admit_state(u0)
    ts = make_ts(problem, find_method(method), 0.0, u, held, record="states")
    ts.setSolution(u)
    return ts, held


@pytest.mark.parametrize("name", METHODS)
def test_no_python_runs_in_steps_of_c_functions(c, name):
    method, cubes = find_method(name), lambda t, u, p: -p.k * u.center**3
    assert runs_in_c(compiled_ode(c), method)
    assert runs_in_c(compiled_ode(c, mass=MASS), method)
    assert runs_in_c(compiled_ode(c, breakpoints=[0.5]), method)
    grid = Grid(((0.0, 1.0),), (8,), comm=PETSc.COMM_SELF)
    assert runs_in_c(trace_stencil(cubes, grid, ["k"]), method) == (name != "esdirk4")


@pytest.mark.parametrize("name", METHODS)
def test_python_is_asked_wherever_it_has_a_part(c, name):
    method = find_method(name)
    assert not runs_in_c(numpy_ode(), method)
    assert not runs_in_c(compiled_ode(c, mass=lambda p: np.diag([1.0, 1.0 + p[0]])), method)


def test_c_functions_see_the_parameters_that_were_put_in_last(c):
    problem = compiled_ode(c)
    u, udot, out = problem.admit_state(U), problem.admit_state(UDOT), problem.create_state()
    explicit, held = made(problem, "rk4", U0, P)
    implicit, held_too = made(problem, "cn", U0, P)
    matrix = implicit.getIJacobian()[0]
    for p in (np.array(P), OTHERS):
        held.p = held_too.p = p
        explicit.computeRHSFunction(T, u, out)
        np.testing.assert_allclose(out.array, rhs(T, U, p), rtol=1e-15)
        implicit.computeIFunction(T, u, udot, out)
        np.testing.assert_allclose(out.array, UDOT - rhs(T, U, p), rtol=1e-15)
        implicit.computeIJacobian(T, u, udot, SHIFT, matrix)
        expected = SHIFT * np.eye(2) - jacobian(T, U, p)
        np.testing.assert_allclose(matrix[:, :], expected, rtol=1e-15)


def test_what_c_gave_that_is_not_finite_is_raised():
    model = trace(lambda t, u, p: p.a * np.sqrt(u), 1, {"a": ()})
    ts, _ = made(model, "rk4", [1.0], [1.0])
    out = model.create_state()
    ts.computeRHSFunction(0.0, model.admit_state([4.0]), out)
    raise_fault(ts)  # nothing
    assert out.array == [2.0]
    with pytest.raises(PETSc.Error):
        ts.computeRHSFunction(0.25, model.admit_state([-4.0]), out)
    with pytest.raises(SolveError, match=r"'rhs' returned nan in entry \[0\] at t = 0\.25"):
        raise_fault(ts)


def test_a_ts_with_callbacks_in_python_has_no_c_functions(c):
    ts, _ = made(numpy_ode(), "cn", U0, P)
    assert registered_with(ts) is None
    raise_fault(ts)  # nothing
    assert registered_with(made(compiled_ode(c), "cn", U0, P)[0]) is not None
