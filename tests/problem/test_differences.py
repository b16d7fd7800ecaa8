"""Derivatives by differences, asked for by name: accurate, and said to be what they are."""

import ctypes
import math
import warnings

import numpy as np
import pytest
from petsc4py import PETSc
from scipy.integrate import quad

import daeosens as ds
from daeosens.problem.differences import DifferencedJacobian

LIBRARY = ctypes.CDLL(None)
LIBRARY.tanh.restype, LIBRARY.tanh.argtypes = ctypes.c_double, [ctypes.c_double]


def by_c(t, u, p):
    """Saturated growth with a rate that a C library computes."""
    return np.array([p[0] * LIBRARY.tanh(float(u[0])) - p[1] * u[0] * (1.0 + 0.3 * np.sin(t))])


def in_numpy(t, u, p):
    return np.array([p[0] * np.tanh(u[0]) - p[1] * u[0] * (1.0 + 0.3 * np.sin(t))])


def final(t, u, p):
    return u[0] ** 2


METHODS = [
    ds.Stepping((0.0, 2.0), "rk4", dt=0.1),
    ds.Stepping((0.0, 2.0), "cn", dt=0.1),
    ds.Stepping((0.0, 2.0), "esdirk4", rtol=1e-7),
]


@pytest.mark.parametrize("stepping", METHODS, ids=lambda stepping: stepping.method)
def test_gradients_agree_with_automatic_ones(stepping):
    gradients = []
    for ode in (
        ds.ODE(by_c, 1, ["a", "b"], jacobian="differences"),
        ds.ODE(in_numpy, 1, ["a", "b"]),
    ):
        run = ds.solve(ode, [0.4], [1.3, 0.7], stepping)
        gradients.append(ds.adjoint(run, ds.Terminal(final)))
        tangent = ds.tangent(run, [1.0], [0.5, -0.2])
        along = float(gradients[-1].u0[0] + gradients[-1].p @ [0.5, -0.2])
        assert tangent.derivative(ds.Terminal(final)) == pytest.approx(along, rel=1e-12)
    ours, exact = gradients
    np.testing.assert_allclose(ours.u0, exact.u0, rtol=1e-9)
    np.testing.assert_allclose(ours.p, exact.p, rtol=1e-9)


def test_every_result_says_so_and_nothing_warns():
    said = "jacobian, jacobian_p, rhs_t by differences"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ode = ds.ODE(by_c, 1, ["a", "b"], jacobian="differences")
        run = ds.solve(ode, [0.4], [1.3, 0.7], METHODS[0])
        gradient = ds.adjoint(run, ds.Terminal(final))
        tangent = ds.tangent(run, [1.0])
        control = ds.Parameters({"a": 1.3, "b": ds.Parameter(0.7, lower=0.1, upper=3.0)}, [0.4])
        reduced = ds.Reduced(
            ode, ds.Terminal(lambda t, u, p: (u[0] - 0.5) ** 2), METHODS[0], control
        )
        result = ds.minimize(reduced, method="blmvm")
    for value in (ode, run, gradient, tangent, result):
        assert said in repr(value)
    assert gradient.differences == said
    assert (
        ds.adjoint(
            ds.solve(ds.ODE(in_numpy, 1, 2), [0.4], [1.3, 0.7], METHODS[0]), ds.Terminal(final)
        ).differences
        == ""
    )
    assert result.value < 1e-8


@pytest.mark.slow
def test_fits_say_so():
    ode = ds.ODE(by_c, ["x"], ["a", "b"], jacobian="differences")
    rng = np.random.default_rng(1)
    times = np.linspace(0.2, 2.0, 10)
    run = ds.solve(ode, [0.4], [1.3, 0.7], ds.Stepping((0.0, 2.0), "rk4", dt=0.05))
    data = np.array([run.at(t)[0] for t in times]) + 1e-3 * rng.normal(size=10)
    fitted = ds.fit(
        ode,
        {"time": times, "x": data},
        ds.Parameters({"a": ds.Parameter(1.0), "b": 0.7}, [0.4]),
        ds.Stepping((0.0, 2.0), "rk4", dt=0.05),
        hessian="gauss_newton",
    )
    assert fitted.estimate["a"] == pytest.approx(1.3, abs=0.02)
    assert "derivatives: jacobian, jacobian_p, rhs_t by differences" in repr(fitted)


def test_hessians_are_refused_in_words_or_taken_from_the_user():
    ode = ds.ODE(in_numpy, 1, ["a", "b"], jacobian="differences")
    run = ds.solve(ode, [0.4], [1.3, 0.7], METHODS[0])
    with pytest.raises(ds.UnsupportedError, match='derivatives by "differences" cannot be found'):
        ds.hessian_product(run, ds.Terminal(final), dp=[1.0, 0.0])

    def second(t, u, p, w, du, dp):
        x, s = u[0], 1.0 + 0.3 * np.sin(t)
        sech = 1.0 / np.cosh(x) ** 2
        by_u = -2.0 * p[0] * np.tanh(x) * sech * du[0] + sech * dp[0] - s * dp[1]
        return w * by_u, w[0] * np.array([sech, -s]) * du[0]

    value = ds.ODE(in_numpy, 1, ["a", "b"], jacobian="differences", hessian_product=second)
    exact = ds.ODE(in_numpy, 1, ["a", "b"])
    ours, reference = (
        ds.hessian_product(
            ds.solve(value, [0.4], [1.3, 0.7], METHODS[0]), ds.Terminal(final), dp=[1.0, 0.5]
        )
        for value in (value, exact)
    )
    np.testing.assert_allclose(ours.p, reference.p, rtol=1e-8)
    assert "by differences" in repr(ours)
    assert not reference.differences


def test_times_of_events_are_differentiated():
    event = ds.Event(lambda t, u, p: u[0] - 0.6, lambda t, u, p: 0.5 * u)
    runs = [
        ds.solve(
            ds.ODE(rhs, 1, ["a", "b"], events=[event], jacobian=jacobian),
            [0.4],
            [1.3, 0.7],
            ds.Stepping((0.0, 2.0), "rk4", dt=0.05),
        )
        for rhs, jacobian in ((by_c, "differences"), (in_numpy, None))
    ]
    assert len(runs[0].crossings) == len(runs[1].crossings) >= 1
    ours, exact = (ds.adjoint(run, ds.Terminal(final)) for run in runs)
    np.testing.assert_allclose(ours.p, exact.p, rtol=1e-8)


def test_parameters_alone():
    def rhs(t, u, p):
        return -quad(lambda x: math.exp(-float(p[0]) * x * x), 0.0, 1.0)[0] * u

    ode = ds.ODE(rhs, 1, ["k"], jacobian_p="differences")
    assert ode.sources["jacobian"] == "automatic"
    run = ds.solve(ode, [1.0], [0.8], ds.Stepping((0.0, 1.0), "rk4", dt=0.01))
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))
    rate = -quad(lambda x: x * x * math.exp(-0.8 * x * x), 0.0, 1.0)[0]
    assert gradient.p[0] == pytest.approx(-rate * run.final[0], rel=1e-8)
    assert repr(gradient).endswith("jacobian_p by differences)")


def test_implicit_equations():
    def by_library(t, u, udot, p):
        return np.array([udot[0] + p[0] * LIBRARY.tanh(float(u[0])), u[1] - u[0] ** 2])

    def plain(t, u, udot, p):
        return np.array([udot[0] + p[0] * np.tanh(u[0]), u[1] - u[0] ** 2])

    stepping = ds.Stepping((0.0, 1.0), "beuler", dt=0.1)
    ours, exact = (
        ds.adjoint(ds.solve(dae, [1.0, 1.0], [0.9], stepping), ds.Terminal(lambda t, u, p: u[1]))
        for dae in (
            ds.DAE(by_library, 2, ["k"], jacobian="differences"),
            ds.DAE(plain, 2, ["k"]),
        )
    )
    np.testing.assert_allclose(ours.p, exact.p, rtol=1e-9)
    assert "jacobian_udot" in ours.differences


def test_other_words_and_petsc_style_are_refused():
    with pytest.raises(ds.InputError, match='"differences"'):
        ds.ODE(in_numpy, 1, 2, jacobian="difference")

    def fill(t, u, p, out):
        u.copy(out)

    state = PETSc.Vec().createSeq(2, comm=PETSc.COMM_SELF)
    with pytest.raises(ds.InputError, match="PETSc style"):
        ds.ODE(fill, state=state, jacobian="differences")


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_steps_are_those_of_the_variables(scale):
    def function(x):
        return np.array([np.exp(x[0] / scale), x[1] * x[2] ** 2])

    x = scale * np.array([0.7, 1e-6, 30.0])
    exact = np.array(
        [[np.exp(0.7) / scale, 0.0, 0.0], [0.0, x[2] ** 2, 2.0 * x[1] * x[2]]],
    )
    np.testing.assert_allclose(DifferencedJacobian(function, 0)(x), exact, rtol=2e-9, atol=0.0)


def test_one_sided_where_the_function_ends():
    jacobian = DifferencedJacobian(lambda x: x**1.5, 0)(np.array([0.0, 4.0]))
    np.testing.assert_allclose(jacobian, [[0.0, 0.0], [0.0, 3.0]], atol=5e-3)
    from_above = DifferencedJacobian(lambda x: np.sqrt(x - 1.0) * (x - 1.0) ** 1.5, 0)
    np.testing.assert_allclose(from_above(np.array([1.0])), [[0.0]], atol=1e-9)


def test_callbacks_may_fill_the_same_array_and_change_their_arguments():
    work = np.zeros(2)

    def rhs(t, u, p):
        work[:] = u * p[0]
        u[:] = 0.0
        return work

    u = np.array([1.0, 2.0])
    np.testing.assert_allclose(
        DifferencedJacobian(rhs, 1)(0.0, u, np.array([3.0])), 3.0 * np.eye(2), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_array_equal(u, [1.0, 2.0])
