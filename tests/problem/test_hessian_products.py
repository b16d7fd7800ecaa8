"""Products with second derivatives, from every source, against closed forms."""

import forms
import numpy as np
import pytest
from scipy import sparse

from daeosens import ODE, InputError, UnsupportedError
from daeosens.petsc import scatter
from daeosens.problem import Products
from daeosens.problem.automatic_hessian import AutomaticHessian, in_time

RNG = np.random.default_rng(5)
T, W, DU, DP, UDOT, DUDOT = 0.3, *RNG.normal(size=(5, 3))
EXACT = np.concatenate(forms.rhs_hessian(T, forms.U0, forms.P0, W, DU, DP))


def vec(problem, values):
    return scatter(values, problem.create_state())


def of_rhs(problem):
    """Return both products of the problem's rhs at the point of forms."""
    out = (problem.create_state(), problem.create_parameters())
    point = (T, vec(problem, forms.U0), forms.P0)
    problem.rhs_hessian(point, vec(problem, W), (vec(problem, DU), DP), out)
    return np.concatenate([item.getArray() for item in out])


def of_residual(problem):
    out = (problem.create_state(), problem.create_state(), problem.create_parameters())
    point = (T, vec(problem, forms.U0), vec(problem, UDOT), forms.P0)
    direction = (vec(problem, DU), vec(problem, DUDOT), DP)
    problem.residual_hessian(point, vec(problem, W), direction, out)
    return np.concatenate([item.getArray() for item in out])


def filled_in_place(t, u, p):
    matrix = np.zeros((3, 3))
    matrix[...] = forms.rhs_u(t, u, p)
    return matrix


def only_floats(t, u, p):
    """A Jacobian that drops derivatives."""
    return forms.rhs_u(t, np.array([float(x) for x in u]), p)


SOURCES = {
    "callback": {"hessian_product": forms.rhs_hessian},
    "both Jacobians": {"jacobian": forms.rhs_u, "jacobian_p": forms.rhs_p},
    "one Jacobian": {"jacobian": forms.rhs_u},
    "the other": {"jacobian_p": forms.rhs_p},
    "none": {},
    "sparse": {"jacobian": lambda t, u, p: sparse.csr_array(forms.rhs_u(t, u, p))},
    "products": {
        "jacobian": Products(
            lambda t, u, p, v: forms.rhs_u(t, u, p) @ v,
            lambda t, u, p, w: forms.rhs_u(t, u, p).T @ w,
        )
    },
    "coloring": {"jacobian": "coloring"},
    "filled in place": {"jacobian": filled_in_place},
    "only floats": {"jacobian": only_floats},
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_closed_form(source):
    problem = ODE(forms.rhs, 3, forms.NAMES, **SOURCES[source])
    for _ in range(2):  # at the first use values are compared
        np.testing.assert_allclose(of_rhs(problem), EXACT, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", ["M(p)", "F", "F linear", "M"])
def test_residual_forms(name):
    form = forms.FORMS[name]
    ours, value = of_residual(form.automatic), of_residual(form.analytic)
    np.testing.assert_allclose(ours, value, rtol=1e-13, atol=1e-14)
    assert abs(value[3:6]).max() > 0.1 or name in ("M", "F linear")


def test_mass_products_without_their_jacobian():
    problem = ODE(forms.rhs, 3, forms.NAMES, mass=forms.mass)
    np.testing.assert_allclose(
        of_residual(problem), of_residual(forms.FORMS["M(p)"].analytic), rtol=1e-13, atol=1e-14
    )


def test_without_parameters():
    def value(t, u, p):
        return forms.rhs(t, u, forms.P0)

    exact = forms.rhs_hessian(T, forms.U0, forms.P0, W, DU, np.zeros(3))[0]
    problem = ODE(value, 3)
    out = (problem.create_state(), problem.create_parameters())
    point = (T, vec(problem, forms.U0), np.empty(0))
    problem.rhs_hessian(point, vec(problem, W), (vec(problem, DU), np.empty(0)), out)
    np.testing.assert_allclose(out[0].getArray(), exact, rtol=1e-13)


def test_callbacks_that_cannot_are_refused_with_the_missing_product():
    def rhs(t, u, p):
        return np.array([float(x) for x in u]) * p

    problem = ODE(rhs, 3, forms.NAMES, jacobian=only_floats)
    message = (
        r"(?s)second derivatives of callback 'rhs'.*float\(\).*line \d+ of"
        r".*try: hessian_product=callback"
    )
    with pytest.raises(UnsupportedError, match=message):
        of_rhs(problem)


def test_first_derivatives_may_be_lists():
    product = AutomaticHessian(lambda x: [x[0] ** 3], {0: lambda x: [[3 * x[0] ** 2]]}, "f", "")
    assert product((np.array([2.0]),), np.ones(1), {0: np.ones(1)})[0] == pytest.approx([12.0])


@pytest.mark.parametrize(("t", "factor"), [(np.nextafter(0.5, 0.0), 2.0), (0.5, -3.0)])
def test_derivatives_in_time_are_those_of_the_side_of_a_breakpoint(t, factor):
    def rhs(t, u, p):
        return np.array([(2.0 if t < 0.5 else -3.0) * t**2 * p[0] * u[0]])

    product = in_time(rhs, {0: None, 1: None, 2: None}, "rhs", "")
    result = product((t, np.array([1.5]), np.array([0.7])), np.ones(1), {0: np.ones(1)})
    expected = [2 * 0.7 * 1.5, 2 * t * 0.7, 2 * t * 1.5]
    ours = [result[position][0] for position in (0, 1, 2)]
    np.testing.assert_allclose(ours, factor * np.array(expected), rtol=1e-14)


def test_sparse_matrices_are_factors_as_others():
    matrix = sparse.csr_array(np.array([[-2.0, 1.0], [1.0, -2.0]]))

    def rhs(t, u, p):
        return p[0] * (matrix @ u)

    point, w, along = (0.0, np.ones(2), np.ones(1)), np.ones(2), {1: np.ones(2), 2: np.ones(1)}
    by_jacobians = {1: lambda t, u, p: p[0] * matrix, 2: lambda t, u, p: (matrix @ u)[:, None]}
    for first in ({1: None, 2: None}, by_jacobians):
        result = AutomaticHessian(rhs, first, "rhs", "")(point, w, along)
        np.testing.assert_allclose(result[1], [-1.0, -1.0])
        np.testing.assert_allclose(result[2], [-2.0])


def test_petsc_style_needs_the_callback():
    def rhs(t, u, p, out):
        u.copy(out)

    template = forms.FORMS["rhs"].analytic.create_state()
    problem = ODE(rhs, state=template, parameters=forms.NAMES)
    with pytest.raises(UnsupportedError, match=r"(?s)'hessian_product' is needed.*gauss_newton"):
        of_rhs(problem)


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (lambda t, u, p, w, du, dp: np.zeros(3), "returned ndarray"),
        (lambda t, u, p, w, du, dp: (1, 2, 3), "returned 3 values"),
        (lambda t, u, p, w, du, dp: (np.zeros(2), np.zeros(3)), r"shape \(2,\)"),
        (lambda t, u, p, w, du, dp: (np.zeros(3), np.zeros((3, 3))), r"shape \(3, 3\)"),
    ],
)
def test_wrong_results_are_named(callback, message):
    problem = ODE(forms.rhs, 3, forms.NAMES, hessian_product=callback)
    with pytest.raises(InputError, match=message):
        of_rhs(problem)
