"""C functions in the place of callbacks: the same numbers as with NumPy callbacks."""

import ctypes
from dataclasses import replace
from importlib import import_module
from itertools import product

import numpy as np
import pytest
from forms import DIAGONAL
from native_model import (
    U0,
    P,
    compiled_costs,
    compiled_event,
    compiled_ode,
    cost,
    jacobian,
    jacobian_p,
    numpy_costs,
    numpy_ode,
    reset,
    rhs,
    rhs_t,
    when,
)
from scipy import LowLevelCallable

import daeosens as ds
from daeosens.petsc._kernels import call_points
from daeosens.petsc.c_function import admit_native
from daeosens.problem import Native
from daeosens.verify import duality

DOUBLES = ctypes.POINTER(ctypes.c_double)
BY_PETSC = {"snes_max_it": 50}
"""An option, so that PETSc takes the steps of small dense systems too (test_dense.py)."""

METHODS = [
    ds.Stepping(t_span=(0.0, 1.0), dt=0.1, method="rk4"),
    ds.Stepping(t_span=(0.0, 1.0), rtol=1e-7, atol=1e-9, method="5dp"),
    ds.Stepping(t_span=(0.0, 1.0), dt=0.1, method="cn"),
    ds.Stepping(t_span=(0.0, 1.0), dt=0.1, method="beuler"),
    ds.Stepping(t_span=(0.4, 1.4), dt=0.2, method="esdirk4", options=BY_PETSC),
    ds.Stepping(t_span=(0.4, 1.4), rtol=1e-5, atol=1e-7, method="esdirk3", options=BY_PETSC),
]


def derivatives(problem, costs, stepping):
    """Return the last state and all derivatives as one array."""
    trajectory = ds.solve(problem, U0, P, stepping)
    # both by the same operations: sweeps in C have a test below
    gradient = ds.adjoint(trajectory, costs, "vectors" if stepping.options == BY_PETSC else "auto")
    along = ds.tangent(trajectory, du0=[0.3, -0.2], dp=[0.1, 0.5])
    second = ds.hessian_product(trajectory, costs, du0=[0.3, -0.2], dp=[0.1, 0.5])
    numbers = [
        trajectory.states[-1].getArray(),
        [gradient.value],
        gradient.u0,
        gradient.p,
        along.final.getArray(),
        [along.derivative(costs)],
        second.u0,
        second.p,
    ]
    return np.concatenate(numbers)


@pytest.mark.parametrize("pattern", [False, True])
@pytest.mark.parametrize("stepping", METHODS, ids=lambda item: item.method)
def test_compiled_callbacks_give_the_numbers_of_numpy_ones(c, stepping, pattern):
    expected = derivatives(numpy_ode(), numpy_costs(), stepping)
    computed = derivatives(compiled_ode(c, pattern=pattern), compiled_costs(c), stepping)
    np.testing.assert_allclose(computed, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("method", DIAGONAL)
def test_esdirk_steps_in_c_give_the_numbers_of_numpy_ones(c, method):
    """PETSc ends Newton's method at 1e-11 of the first residual, unless told otherwise."""
    span, dt = (0.4, 1.4), 0.2
    exact = ds.Stepping(span, method, dt=dt, options={"snes_rtol": 1e-13})
    expected = derivatives(numpy_ode(), numpy_costs(), exact)
    computed = derivatives(compiled_ode(c), compiled_costs(c), ds.Stepping(span, method, dt=dt))
    np.testing.assert_allclose(computed, expected, rtol=1e-13)


@pytest.mark.parametrize("stepping", METHODS[2:4], ids=lambda item: item.method)
def test_a_compiled_residual_gives_the_numbers_of_a_numpy_one(c, stepping):
    expected = derivatives(
        ds.DAE(
            lambda t, u, udot, p: udot - rhs(t, u, p),
            2,
            2,
            jacobian=lambda t, u, udot, p: -jacobian(t, u, p),
            jacobian_p=lambda t, u, udot, p: -jacobian_p(t, u, p),
            linear_in_udot=True,
        ),
        numpy_costs(),
        stepping,
    )
    problem = ds.DAE(
        c.residual,
        2,
        2,
        jacobian=c.residual_u,
        jacobian_udot=c.residual_udot,
        jacobian_p=c.residual_p,
        hessian_product=c.residual_hessian,
        linear_in_udot=True,
    )
    computed = derivatives(problem, compiled_costs(c), stepping)
    np.testing.assert_allclose(computed, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("stepping", METHODS, ids=lambda item: item.method)
def test_compiled_events_give_the_numbers_of_numpy_ones(c, stepping):
    event = ds.Event(when, reset, direction=-1)
    longer = ds.Stepping(
        t_span=(0.0, 2.5),
        dt=stepping.dt,
        rtol=stepping.rtol,
        atol=stepping.atol,
        method=stepping.method,
        options=stepping.options,
    )
    expected = derivatives(numpy_ode(events=[event]), numpy_costs(), longer)
    problem = compiled_ode(c, events=[compiled_event(c)])
    assert len(ds.solve(problem, U0, P, longer).crossings) == 1
    computed = derivatives(problem, compiled_costs(c), longer)
    np.testing.assert_allclose(computed, expected, rtol=1e-13, atol=1e-13)


def test_check_confirms_compiled_derivatives(c):
    problem = compiled_ode(c, pattern=True, events=[compiled_event(c)])
    assert problem.sources["jacobian"] == "compiled"
    assert set(problem.native) == {
        "rhs",
        "jacobian",
        "jacobian_p",
        "rhs_t",
        "hessian_product",
        "hessian_t",
    }
    verdicts = ds.check(problem, U0, P, objective=compiled_costs(c))
    assert verdicts.wrong == ()
    rows = {row.name: row for row in verdicts.rows}
    for name in ("jacobian", "hessian_product du", "hessian_t dp", "terminal hessian_product du"):
        assert (rows[name].verdict, rows[name].source) == ("right", "compiled")


def test_second_derivatives_come_from_python_first_ones_beside_a_compiled_function(c):
    mixed = ds.ODE(c.rhs, 2, 2, jacobian=jacobian, jacobian_p=jacobian_p, rhs_t=rhs_t)
    stepping = METHODS[0]
    expected = derivatives(numpy_ode(), numpy_costs(), stepping)
    computed = derivatives(mixed, numpy_costs(), stepping)
    np.testing.assert_allclose(computed, expected, rtol=1e-14, atol=1e-14)


def forbidden(*_arguments):
    raise AssertionError("Python in a step")


MASS = np.array([[2.0, 0.5], [0.0, 1.0]])


@pytest.mark.parametrize("pattern", [False, True])
@pytest.mark.parametrize(
    ("method", "mass"),
    [*product(["rk4", "5dp"], [None]), *product(["beuler", "cn", "midpoint"], [None, MASS])],
)
def test_no_python_evaluates_the_equations_in_a_step(c, method, mass, pattern):
    stepping = ds.Stepping(t_span=(0.0, 1.0), dt=0.1, method=method)
    problem = compiled_ode(c, mass=mass, pattern=pattern)
    expected = ds.solve(numpy_ode(mass=mass), U0, P, stepping)
    if mass is None and method in ("rk4", "5dp"):
        problem = replace(problem, rhs_function=forbidden)
    run = ds.solve(problem, U0, P, stepping)
    np.testing.assert_array_equal(run.u, expected.u)
    remainder = expected.effort.remainder  # of linear solves, whose sums are ordered otherwise
    assert run.effort.remainder == pytest.approx(remainder, rel=1e-9)
    assert run.effort._replace(remainder=remainder) == expected.effort


@pytest.mark.parametrize("mass", [None, MASS], ids=["identity", "mass"])
@pytest.mark.parametrize("method", ["cn", "beuler", "esdirk3", "esdirk6"])
@pytest.mark.parametrize("compiled", [True, False])
def test_petsc_may_difference_the_products_of_newtons_matrix(c, compiled, method, mass):
    """Derivatives are none of differences; ESDIRK methods begin with the rate, and find stages."""
    problem = compiled_ode(c, mass=mass) if compiled else numpy_ode(mass=mass)
    newton = {"snes_rtol": 1e-11, "ksp_type": "gmres", "ksp_rtol": 1e-9}
    values = []
    for more in ({}, {"snes_mf_operator": None}):
        stepping = ds.Stepping((0.0, 1.0), method, dt=0.15, options=newton | more)
        run = ds.solve(problem, U0, P, stepping)
        gradient = ds.adjoint(run, ds.Terminal(cost), "vectors")
        assert duality(run, ds.Terminal(cost)) < 1e-12
        values.append(np.concatenate([run.u.ravel(), gradient.u0, gradient.p]))
    np.testing.assert_allclose(values[1], values[0], rtol=1e-9)


def test_parameters_that_an_event_changes_reach_the_c_function(c):
    event = ds.Event(0.5, changes={"p0": lambda t, u, p: p[0] + 1.0})
    for stepping in METHODS:
        run = ds.solve(compiled_ode(c, events=[event]), U0, P, stepping)
        expected = ds.solve(numpy_ode(events=[event]), U0, P, stepping)
        np.testing.assert_allclose(run.u, expected.u, rtol=1e-14)


def test_c_functions_see_breakpoints_from_the_inside_of_steps(c):
    for stepping in METHODS:
        run = ds.solve(compiled_ode(c, breakpoints=[0.55]), U0, P, stepping)
        expected = ds.solve(numpy_ode(breakpoints=[0.55]), U0, P, stepping)
        np.testing.assert_allclose(run.u, expected.u, rtol=1e-14)


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("missing", "stepping"), [("jacobian", METHODS[2]), ("jacobian_p", None)])
def test_missing_derivatives_of_a_compiled_function_are_named(c, missing, stepping):
    values = {"jacobian": c.jacobian, "jacobian_p": c.jacobian_p}
    del values[missing]
    problem = ds.ODE(c.rhs, 2, 2, **values)
    assert problem.sources[missing] == ""
    with pytest.raises(ds.UnsupportedError, match=f"'{missing}' is needed and was not supplied"):
        ds.adjoint(ds.solve(problem, U0, P, stepping or METHODS[0]), ds.Terminal(cost))


def test_missing_derivatives_of_compiled_costs_and_second_ones_are_named(c):
    trajectory = ds.solve(compiled_ode(c), U0, P, METHODS[0])
    with pytest.raises(ds.UnsupportedError, match="'terminal gradient_u' is needed"):
        ds.adjoint(trajectory, ds.Terminal(c.cost))
    costs = ds.Terminal(c.cost, gradient_u=c.cost_u, gradient_p=c.cost_p)
    with pytest.raises(ds.UnsupportedError, match="'terminal hessian_product' is needed"):
        ds.hessian_product(trajectory, costs, dp=[1.0, 0.0])
    problem = ds.ODE(c.rhs, 2, 2, jacobian=c.jacobian, jacobian_p=c.jacobian_p)
    with pytest.raises(ds.UnsupportedError, match="'hessian_product' is needed"):
        ds.hessian_product(ds.solve(problem, U0, P, METHODS[0]), ds.Terminal(cost), dp=[1.0, 0.0])


@pytest.mark.parametrize("method", ["rk4", "beuler"])
def test_values_that_are_not_finite_are_named_with_entry_and_time(c, method):
    problem = ds.ODE(c.failing, 2, 2, jacobian=c.jacobian, jacobian_p=c.jacobian_p)
    with pytest.raises(ds.SolveError, match=r"'rhs' returned nan in entry \[1\] at t = 0\.6 "):
        ds.solve(problem, U0, P, ds.Stepping(t_span=(0.0, 1.0), dt=0.1, method=method))


def test_a_jacobian_that_is_not_finite_is_named_with_entry_and_time(c):
    problem = ds.ODE(c.rhs, 2, 2, jacobian=c.failing_jacobian)
    with pytest.raises(
        ds.SolveError, match=r"'jacobian' returned nan in entry \[1, 0\] at t = 0\.6 "
    ):
        ds.solve(problem, U0, P, METHODS[3])


def test_a_compiled_function_needs_a_problem_of_numpy_style(c):
    state = numpy_ode().state
    with pytest.raises(ds.InputError, match="rhs is a C function"):
        ds.ODE(c.rhs, state=state, parameters=2)
    with pytest.raises(ds.InputError, match="mass is a C function"):
        ds.ODE(c.rhs, 2, 2, mass=c.jacobian)


@pytest.mark.parametrize(
    ("starts", "columns", "message"),
    [
        ([0, 1], [0], "row starts"),
        ([0, 1, 2], [0, 2], r"columns \[0 2\]"),
        ([0, 2, 2], [1, 1], "entries twice"),
    ],
)
def test_patterns_that_cannot_be_are_refused(c, starts, columns, message):
    value = Native(admit_native(c.jacobian).address, pattern=(np.array(starts), np.array(columns)))
    with pytest.raises(ds.InputError, match=message):
        ds.ODE(c.rhs, 2, 2, jacobian=value)


# ---- who names C functions how -------------------------------------------------------------------


def decays(native, rate):
    """Whether u' = -rate u is what is stepped."""
    problem = ds.ODE(native, 1, rhs_t="autonomous")
    trajectory = ds.solve(problem, [1.0], None, METHODS[0])
    z = -0.1 * rate
    factor = 1.0 + z + z**2 / 2 + z**3 / 6 + z**4 / 24
    return trajectory.states[-1].getArray()[0] == pytest.approx(factor**10, rel=1e-14)


def test_user_data_are_passed(c):
    rate = ctypes.c_double(0.5)
    native = Native(admit_native(c.decay).address, ctypes.addressof(rate), keeps=(c, rate))
    assert decays(native, 0.5)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_double, DOUBLES, DOUBLES, DOUBLES, ctypes.c_void_p)
    function = kind(("decay", c))
    callback = LowLevelCallable(function, ctypes.cast(ctypes.pointer(rate), ctypes.c_void_p))
    assert admit_native(callback).user_data == ctypes.addressof(rate)
    assert decays(callback, 0.5)


def test_a_signature_that_differs_is_refused(c):
    kind = ctypes.CFUNCTYPE(None, ctypes.c_double, DOUBLES, DOUBLES, ctypes.c_void_p)
    with pytest.raises(
        ds.InputError, match=r"rhs is a C function of signature .*\n.*double \*, void"
    ):
        ds.ODE(LowLevelCallable(kind(("decay", c))), 1)


@pytest.mark.slow
def test_signatures_are_known_by_all_who_make_c_functions():
    numba, cffi = import_module("numba"), import_module("cffi")
    double, doubles = numba.types.double, numba.types.CPointer(numba.types.double)
    ours = numba.types.void(double, doubles, doubles, doubles)
    another = numba.types.void(doubles, doubles, doubles)
    assert ds.ODE(numba.cfunc(ours)(lambda t, u, p, out: None), 1).size == 1
    refused = [
        numba.cfunc(another)(lambda u, p, out: None),
        ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, DOUBLES)(lambda _t, _u: 0.0),
        cffi.FFI().callback("double(double, double *, double *)", lambda _t, _u, _p: 0.0),
    ]
    for function in refused:
        with pytest.raises(
            ds.InputError, match=r"rhs is a C function of signature '(void|double) \("
        ):
            ds.ODE(function, 1)


def test_functions_that_take_no_user_data_need_not(c):
    kind = ctypes.CFUNCTYPE(None, ctypes.c_double, DOUBLES, DOUBLES, DOUBLES)

    def halves(_t, u, _p, out):
        out[0] = -0.5 * u[0]

    assert decays(kind(halves), 0.5)
    assert decays(LowLevelCallable(kind(halves)), 0.5)


def test_what_is_no_c_function_is_none():
    assert admit_native(rhs) is None
    assert admit_native(3) is None
    with pytest.raises(ds.InputError, match="the address of a C function is 0"):
        Native(0)


def test_numba_functions_are_admitted():
    numba = pytest.importorskip("numba")
    doubles = numba.types.CPointer(numba.types.double)

    @numba.cfunc(numba.types.void(numba.types.double, doubles, doubles, doubles))
    def halves(_t, u, _p, out):
        out[0] = -0.5 * u[0]

    assert decays(halves, 0.5)
    assert decays(LowLevelCallable(halves.ctypes), 0.5)


def test_cffi_functions_are_admitted():
    cffi = pytest.importorskip("cffi")
    ffi = cffi.FFI()

    @ffi.callback("void (double, double *, double *, double *, void *)")
    def halves(_t, u, _p, out, _data):
        out[0] = -0.5 * u[0]

    assert decays(halves, 0.5)
    assert admit_native(ffi.new("double *")) is None


def test_points_with_more_numbers_than_petscint_counts(tmp_path):
    n = 2**30 + 4
    u = np.memmap(tmp_path / "u", mode="w+", shape=(2, n), dtype=float)  # a file of holes
    u[:, 0] = 3.0, 4.0

    @ctypes.CFUNCTYPE(None, ctypes.c_double, *[DOUBLES] * 3, ctypes.c_void_p)
    def first(_t, u, _p, out, _data):
        out[0] = u[0]

    out = np.empty((2, 1))
    address = ctypes.cast(first, ctypes.c_void_p).value
    assert call_points(address, 0, np.zeros(2), (u, np.zeros(1)), (out,))
    np.testing.assert_array_equal(out, [[3.0], [4.0]])
