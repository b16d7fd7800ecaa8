"""Interpolants of SciPy in callbacks: derivatives of both orders, and what is refused."""

import numpy as np
import pytest
from scipy.interpolate import (
    Akima1DInterpolator,
    CubicSpline,
    InterpolatedUnivariateSpline,
    PchipInterpolator,
    interp1d,
    make_interp_spline,
)

from daeosens import ODE, InputError, Stepping, Terminal, adjoint, hessian_product, solve

X = np.linspace(-1.1, 3.0, 9)
SPLINES = [
    CubicSpline(X, np.sin(X)),
    PchipInterpolator(X, np.sin(X)),
    Akima1DInterpolator(X, np.sin(X)),
    make_interp_spline(X, np.sin(X)),
    InterpolatedUnivariateSpline(X, np.sin(X)),
    CubicSpline(X, np.stack([np.sin(X), np.cos(X)], axis=1)),
]
NAMES = ["cubic", "monotone", "Akima", "B", "univariate", "two at once"]
COST = Terminal(lambda t, u, p: u[0] ** 2 + u[1])


def swing(spline):
    def rhs(t, u, p):
        force = np.sum(spline(u[0]))
        return np.array([u[1], -p[0] * force - np.sum(spline(0.1 * u + p[0])[0])])

    return ODE(rhs, 2, ["stiffness"])


@pytest.mark.filterwarnings("ignore::daeosens.errors.KinkWarning")
@pytest.mark.parametrize("spline", SPLINES, ids=NAMES)
def test_derivatives_of_both_orders_are_those_of_differences(spline):
    problem, steps = swing(spline), Stepping((0.0, 1.0), "rk4", dt=0.05)
    x, along = np.array([1.0, 0.2, 1.3]), np.array([1.0, 0.5, 0.2])

    def gradient(distance):
        *u0, p = x + distance * along
        gradient = adjoint(solve(problem, u0, [p], steps), COST)
        return gradient.value, np.append(gradient.u0, gradient.p)

    product = hessian_product(solve(problem, x[:2], x[2:], steps), COST, along[:2], along[2:])
    (above, ahead), (below, behind) = gradient(1e-6), gradient(-1e-6)
    exact = np.append(product.gradient.u0, product.gradient.p)
    assert (above - below) / 2e-6 == pytest.approx(exact @ along, rel=1e-7)
    bend = np.append(product.u0, product.p)
    np.testing.assert_allclose((ahead - behind) / 2e-6, bend, atol=1e-7 * np.abs(bend).max())
    assert CubicSpline(X, X)(2.0) == pytest.approx(2.0)  # SciPy's own again


def test_interpolants_without_derivatives_are_named_with_those_that_have_them():
    problem = swing(interp1d(X, np.sin(X)))
    run = solve(problem, [1.0, 0.2], [1.3], Stepping((0.0, 1.0), "rk4", dt=0.1))
    with pytest.raises(InputError, match=r"interpolate.interp1d(.|\n)*CubicSpline or Pchip"):
        adjoint(run, COST)
