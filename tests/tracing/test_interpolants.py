"""SciPy's interpolants in traced functions: values and slopes, inside, outside and at knots."""

import numpy as np
import pytest
from scipy import interpolate

import daeosens as ds
from daeosens.errors import NotFiniteError

KNOTS = np.array([0.0, 0.7, 1.3, 2.0, 3.1, 4.0])
VALUES = np.random.default_rng(0).normal(size=KNOTS.size)
AGAIN = np.append(VALUES[:-1], VALUES[0])

INTERPOLANTS = {
    "cubic": interpolate.CubicSpline(KNOTS, VALUES),
    "periodic": interpolate.CubicSpline(KNOTS, AGAIN, bc_type="periodic"),
    "pchip": interpolate.PchipInterpolator(KNOTS, VALUES),
    "akima": interpolate.Akima1DInterpolator(KNOTS, VALUES),
    "periodic spline": interpolate.make_interp_spline(KNOTS, AGAIN, bc_type="periodic"),
    "degree 1": interpolate.make_interp_spline(KNOTS, VALUES, k=1),
    # of smooth values: those of the others make terms of 1000, which lose three digits
    "degree 5": interpolate.make_interp_spline(KNOTS, np.cos(KNOTS), k=5),
    "smooth": interpolate.make_smoothing_spline(KNOTS, VALUES),
    "univariate": interpolate.UnivariateSpline(KNOTS, VALUES, s=0.1),
    "univariate, constant": interpolate.UnivariateSpline(KNOTS, VALUES, s=0, ext=3),
    "univariate, zero": interpolate.InterpolatedUnivariateSpline(KNOTS, VALUES, ext="zeros"),
    "univariate, an error": interpolate.UnivariateSpline(KNOTS, VALUES, s=0, ext="raise"),
    "lines": interpolate.interp1d(KNOTS, VALUES),
    "lines that go on": interpolate.interp1d(KNOTS, VALUES, fill_value="extrapolate"),
    "lines and numbers": interpolate.interp1d(
        KNOTS, VALUES, bounds_error=False, fill_value=(1.0, 2.0)
    ),
}


OUTSIDE_IS_AN_ERROR = ("akima", "univariate, an error", "lines")


@pytest.mark.whole
@pytest.mark.parametrize("name", INTERPOLANTS)
def test_traced_interpolants_have_their_values_and_slopes(name):
    known = INTERPOLANTS[name]
    model = ds.trace(lambda t, u, p: [known(t) * u[0], known(u[1])], 2, ["a"])
    inside = name in OUTSIDE_IS_AN_ERROR
    places = [0.0, 0.3, 0.7, 2.5, 4.0] if inside else [-0.5, 0.0, 0.3, 0.7, 2.5, 4.0, 4.6]
    t, u = np.array(places), np.column_stack([np.full(len(places), 2.0), places])
    values = model.batch.rhs(t, u, np.zeros(1))
    expected = [float(known(place)) for place in places]
    np.testing.assert_allclose(values[:, 0], 2.0 * np.array(expected), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(values[:, 1], expected, rtol=1e-13, atol=1e-14)
    between = [k for k, place in enumerate(places) if place not in KNOTS]
    step = 1e-6
    slopes = [(known(places[k] + step) - known(places[k] - step)) / (2 * step) for k in between]
    jacobians = model.batch.jacobian(t, u, np.zeros(1))[between]
    np.testing.assert_allclose(jacobians[:, 1, 1], slopes, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", OUTSIDE_IS_AN_ERROR)
def test_outside_of_its_knots_an_interpolant_is_nan_where_scipy_raises(name):
    known = INTERPOLANTS[name]
    model = ds.trace(lambda t, u, p: [known(t) - p[0] * u[0]], 1, ["a"])
    stepping = ds.Stepping((3.0, 5.0), "rk4", dt=0.1)
    with pytest.raises(NotFiniteError, match="nan in entry"):
        ds.solve(model, [1.0], [0.3], stepping)


def test_derivatives_of_interpolants_are_traced_too():
    known = INTERPOLANTS["cubic"]
    model = ds.trace(lambda t, u, p: [known(t, 1), known(t, nu=2)], 2, ["a"])
    values = model.batch.rhs(np.array([1.1]), np.zeros((1, 2)), np.zeros(1))
    np.testing.assert_allclose(values[0], [known(1.1, 1), known(1.1, 2)], rtol=1e-12)


def test_symbols_are_known_to_interpolants_while_one_traces_only():
    before = interpolate.CubicSpline.__call__
    ds.trace(lambda t, u, p: [INTERPOLANTS["cubic"](t)], 1, ["a"])
    assert interpolate.CubicSpline.__call__ is before


@pytest.mark.parametrize(
    ("known", "what"),
    [
        (interpolate.interp1d(KNOTS, VALUES, kind="previous"), "interp1d, kind = 'previous'"),
        (interpolate.BarycentricInterpolator(KNOTS, VALUES), "BarycentricInterpolator"),
        (interpolate.CubicSpline(KNOTS, np.ones((6, 2, 2))), "an interpolant of a table"),
    ],
)
def test_others_are_refused_with_those_that_can_be_traced(known, what):
    with pytest.raises(ds.InputError, match=what) as refused:
        ds.trace(lambda t, u, p: [known(t) * u[0]], 1, ["a"])
    assert "try: " in str(refused.value)


def test_steps_and_gradients_are_those_of_the_same_model_in_numpy():
    known = INTERPOLANTS["pchip"]

    def rhs(t, u, p):
        return np.array([-p[0] * u[0] * known(t) ** 2 + known(4.0 * u[0])])

    last = ds.Terminal(lambda t, u, p: u[0])
    results = []
    for model in (ds.ODE(rhs, 1, ["rate"]), ds.trace(rhs, 1, ["rate"])):
        run = ds.solve(model, [0.5], [0.8], ds.Stepping((0.0, 3.5), "rk6vr", rtol=1e-9))
        gradient = ds.adjoint(run, last)
        results.append([run.u[-1, 0], gradient.p[0], gradient.u0[0]])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-8)


BASES = {
    "cubic": interpolate.CubicSpline(KNOTS, np.eye(KNOTS.size)),
    "degree 3": interpolate.make_interp_spline(KNOTS, np.eye(KNOTS.size)),
    "degree 1": interpolate.make_interp_spline(KNOTS, np.eye(KNOTS.size), k=1),
}


@pytest.mark.parametrize("name", BASES)
def test_splines_of_values_that_are_parameters_are_products_with_a_basis(name):
    """Where layers have the speeds p: values, slopes and derivatives in p, against SciPy's."""
    basis, size = BASES[name], KNOTS.size

    def carried(t, u, p):
        return np.stack(
            [basis(u[0]) @ p[:size], (basis(u) @ p[:size])[1] * u[0], basis(u[1], 1) @ p[:size]]
        )

    model = ds.trace(carried, 3, size)
    u = np.array([[0.3, 2.5, 1.0], [-0.4, 4.3, 1.0], [1.7, 0.9, 0.0]])
    values = model.batch.rhs(np.zeros(3), u, VALUES)
    np.testing.assert_allclose(values[:, 0], basis(u[:, 0]) @ VALUES, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(
        values[:, 1], basis(u[:, 1]) @ VALUES * u[:, 0], rtol=1e-12, atol=1e-13
    )
    np.testing.assert_allclose(values[:, 2], basis(u[:, 1], 1) @ VALUES, rtol=1e-12, atol=1e-13)
    # the same callback by values, with derivatives from arrays that carry them
    known = ds.ODE(carried, 3, size)
    stepping, final = ds.Stepping((0.0, 0.2), "rk4", dt=0.02), [0.3, 0.9, 0.1]
    gradients = []
    for problem in (model, known):
        run = ds.solve(problem, final, VALUES, stepping)
        gradients.append(ds.adjoint(run, ds.Terminal(lambda t, u, p: u.sum())))
    np.testing.assert_allclose(gradients[0].p, gradients[1].p, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(gradients[0].u0, gradients[1].u0, rtol=1e-11, atol=1e-13)
    step = 1e-6 * np.eye(size)[2]
    ends = [ds.solve(known, final, VALUES + s * step, stepping).u[-1].sum() for s in (1, -1)]
    assert gradients[0].p[2] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize(
    "kind", [interpolate.CubicSpline, interpolate.make_interp_spline, interpolate.PchipInterpolator]
)
def test_interpolants_of_values_that_vary_are_refused_with_the_basis(make, kind):
    def carried(t, u, p):
        return np.array([kind(KNOTS, p[:6])(u[0])])

    def gradient():
        run = ds.solve(make(carried, 1, 6), [0.3], VALUES, ds.Stepping((0.0, 0.2), "rk4", dt=0.02))
        return ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))

    with pytest.raises(ds.InputError, match=r"(?s)an interpolant (.*)np.eye\(len\(knots\)\)"):
        gradient()
