"""Controls: splines against SciPy's, derivatives, sides, names, and steps that do not matter."""

import numpy as np
import pytest
from scipy.interpolate import BSpline

from daeosens import ODE, InputError, Stepping, Terminal, adjoint, hessian_product, solve, trace
from daeosens.petsc import gather, scatter
from daeosens.problem import PiecewiseConstant, PiecewiseLinear, Spline

KNOTS = np.array([0.0, 0.3, 0.45, 0.8, 1.1])
RANDOM = np.random.default_rng(7)
INSIDE = [*RANDOM.uniform(0.0, 1.1, 20), *KNOTS[:-1]]


@pytest.mark.filterwarnings("ignore:a control is asked for beyond its knots")
@pytest.mark.parametrize("degree", [0, 1, 2, 3, 5])
def test_splines_are_those_of_scipy(degree):
    control = Spline(KNOTS, degree)
    coefficients = RANDOM.normal(size=control.size)
    repeated = np.r_[[0.0] * degree, KNOTS, [1.1] * degree]
    scipy = BSpline(repeated, coefficients, degree)
    assert control.size == 4 + degree
    for t in [*INSIDE, 1.1, -0.05, 1.2]:  # pieces are continued outside
        assert control(t, coefficients) == pytest.approx(float(scipy(t)), rel=1e-12, abs=1e-12)
    matrix = BSpline.design_matrix(np.array(INSIDE), repeated, degree).toarray()
    rows = [control.gradient(t) for t in INSIDE]
    np.testing.assert_allclose(rows, matrix, rtol=0, atol=1e-14)


def test_piecewise_constant_is_continuous_from_the_right_and_at_the_end_from_the_left():
    control = PiecewiseConstant(KNOTS)
    values = [1.0, 2.0, 3.0, 4.0]
    assert [control(t, values) for t in KNOTS] == [*values, 4.0]
    assert control(np.nextafter(0.3, 0.0), values) == 1.0
    assert control.breakpoints == (0.3, 0.45, 0.8)
    assert control.names("v") == ("v0", "v1", "v2", "v3")


@pytest.mark.parametrize("t", [-0.05, 1.2])
def test_beyond_the_knots_warns_unless_it_is_constant_there(t):
    with pytest.warns(UserWarning, match=r"beyond its knots, 0 to 1\.1"):
        PiecewiseLinear(KNOTS)(t, [1.0, 2.0, 3.0, 4.0, 5.0])
    assert PiecewiseConstant(KNOTS)(t, [1.0, 2.0, 3.0, 4.0]) == (1.0 if t < 0.0 else 4.0)
    PiecewiseLinear(KNOTS)(1.1 * (1 + 1e-12), [1.0, 2.0, 3.0, 4.0, 5.0])  # a sum of steps


def test_piecewise_linear_takes_values_at_knots():
    control, values = PiecewiseLinear(KNOTS), RANDOM.normal(size=5)
    np.testing.assert_allclose([control(t, values) for t in KNOTS], values, rtol=1e-15)
    times = np.linspace(0.0, 1.1, 23)
    expected = np.interp(times, KNOTS, values)
    np.testing.assert_allclose([control(t, values) for t in times], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("degree", [0, 1, 3])
def test_several_components_and_derivatives_found_automatically(degree):
    control = Spline(KNOTS, degree, components=2)
    single = Spline(KNOTS, degree)
    coefficients = RANDOM.normal(size=control.size)
    first, second = np.split(coefficients, 2)
    assert control.names("v", "w") == single.names("v") + single.names("w")
    for t in INSIDE:
        value = control(t, coefficients)
        expected = [single(t, first), single(t, second)]
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-14)
        moved = [
            control(t, coefficients + 1e-30j * unit).imag / 1e-30
            for unit in np.eye(len(coefficients))
        ]
        np.testing.assert_allclose(np.transpose(moved), control.gradient(t), rtol=1e-14)
        in_time = control(t + 1e-30j, coefficients).imag / 1e-30
        scipy = BSpline(np.r_[[0.0] * degree, KNOTS, [1.1] * degree], first, degree)
        assert in_time[0] == pytest.approx(
            float(scipy.derivative()(t)) if degree else 0.0, rel=1e-9
        )


@pytest.mark.parametrize("basis", [PiecewiseConstant, PiecewiseLinear, Spline])
def test_a_control_does_not_depend_on_the_steps(basis):
    """For u' = v^2 u the integral of v^2 is known: its error falls with the order of the method."""
    control = basis(np.linspace(0.0, 1.0, 5))
    coefficients = 1.0 + 0.3 * np.sin(np.arange(control.size))
    problem = ODE(
        lambda t, u, p: control(t, p) ** 2 * u,
        size=1,
        parameters=control.names("v"),
        breakpoints=control.breakpoints,
    )
    numbers = []
    for dt in (0.25, 0.125):
        run = solve(problem, [0.5], coefficients, Stepping((0.0, 1.0), "rk8vr", dt=dt))
        numbers.append(adjoint(run, Terminal(lambda t, u, p: u[0])))
    nodes, weights = np.polynomial.legendre.leggauss(8)
    times = (np.arange(4)[:, None] + (nodes + 1) / 2).ravel() / 4
    shares = np.tile(weights, 4) / 8
    values = np.array([control(t, coefficients) for t in times])
    exact = 0.5 * np.exp(shares @ values**2)
    slopes = exact * 2 * (shares * values) @ np.array([control.gradient(t) for t in times])
    coarse, fine = ([abs(g.value / exact - 1), *abs(g.p / slopes - 1)] for g in numbers)
    assert max(coarse) < 1e-4
    assert max(fine) < max(coarse) / 100


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Spline([0.0, 0.0, 1.0]), "not increasing: 0 is followed by 0"),
        (lambda: Spline([1.0]), r"knots have shape \(1,\)"),
        (lambda: Spline([[0.0, 1.0]]), r"knots have shape \(1, 2\)"),
        (lambda: Spline([0.0, np.inf]), "knots"),
        (lambda: Spline([0.0, 1.0], degree=-1), "degree = -1"),
        (lambda: Spline([0.0, 1.0], degree=True), "degree = True"),
        (lambda: PiecewiseConstant([0.0, 1.0], components=0), "components = 0"),
        (lambda: PiecewiseConstant([0.0, 1.0]).names("v", "w"), "2 names for 1 components"),
        (lambda: PiecewiseLinear([0.0, 1.0])(0.5, [1.0]), r"coefficients have shape \(1,\)"),
    ],
)
def test_wrong_controls_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.filterwarnings("ignore:a control is asked for beyond its knots")
@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("knots", [KNOTS, KNOTS[[0, -1]]])
def test_traced_controls_give_the_same_numbers_and_derivatives(knots, degree, components):
    control = Spline(knots, degree, components)

    def rhs(t, u, p):
        speed = control(t, p) if components == 1 else control(t, p) @ np.array([1.0, -0.5])
        return np.array([speed * u[0], speed * speed - np.sin(u[1])])

    names = control.names(*"vw"[:components])
    plain = ODE(rhs, size=2, parameters=names, breakpoints=control.breakpoints)
    traced = trace(rhs, size=2, parameters=names, breakpoints=control.breakpoints)
    p, u = RANDOM.normal(size=control.size), np.array([0.7, 0.2])
    state, rate = scatter(u, traced.create_state()), traced.create_state()
    for t in [*INSIDE, 1.1, -0.05, 1.2, *np.nextafter(KNOTS, -1.0)]:
        traced.rhs(t, state, p, rate)
        np.testing.assert_allclose(gather(rate), rhs(t, u, p), rtol=1e-12, atol=1e-14)
    cost = Terminal(lambda t, u, p: u[0] * u[1])
    stepping = Stepping((0.0, 1.1), "rk4", dt=0.1)
    values = []
    for problem in (plain, traced):
        run = solve(problem, u, p, stepping)
        gradient = adjoint(run, cost)
        second = hessian_product(run, cost, dp=np.cos(np.arange(control.size)))
        values.append(np.r_[gradient.value, gradient.u0, gradient.p, second.p])
    np.testing.assert_allclose(values[1], values[0], rtol=1e-11, atol=1e-12)


def test_a_traced_control_refuses_coefficients_of_another_number():
    control = PiecewiseConstant(KNOTS)
    with pytest.raises(InputError, match=r"coefficients have shape \(3,\)"):
        trace(lambda t, u, p: np.array([control(t, p)]), size=1, parameters=3)


@pytest.mark.parametrize("t", [1.0 + 0j, "now", None])
def test_times_that_are_none_are_refused(t):
    with pytest.raises(InputError, match=r"t = .*\n  expected: a time, one finite number"):
        PiecewiseLinear([0.0, 1.0, 2.0]).gradient(t)
