"""Derivatives by complex step: exact to rounding, or refused with what to do instead."""

import math

import numpy as np
import pytest
from forms import P0, U0, rhs, rhs_p, rhs_t, rhs_u
from petsc4py import PETSc

from daeosens import ODE, InputError
from daeosens.derivatives import ComplexStep, ignores
from daeosens.guards import guarded

T = 0.3


def step(function, position=1, name="rhs", remedy="jacobian=callback"):
    return ComplexStep(function, position, name, remedy)


@pytest.mark.parametrize(("position", "exact"), [(1, rhs_u), (2, rhs_p)])
def test_jacobians_are_exact_to_rounding(position, exact):
    ours, theirs = step(rhs, position)(T, U0, P0), exact(T, U0, P0)
    assert ours.dtype == float
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=4 * np.finfo(float).eps)


def test_derivative_in_a_number_is_one_column():
    ours = step(rhs, 0)(T, U0, P0)
    assert ours.shape == (3, 1)
    np.testing.assert_allclose(ours[:, 0], rhs_t(T, U0, P0), rtol=0, atol=1e-15)


def test_product_with_a_direction_costs_one_evaluation(rng):
    calls = []

    def counted(t, u, p):
        calls.append(t)
        return rhs(t, u, p)

    product, direction = step(counted), rng.normal(size=3)
    ours = product.along(direction, T, U0, P0)
    np.testing.assert_allclose(ours, rhs_u(T, U0, P0) @ direction, rtol=1e-14)
    calls.clear()  # the first use was compared with a difference
    product.along(direction, T, U0, P0)
    assert len(calls) == 1


def test_scalar_functions_have_one_row():
    gradient = step(lambda t, u, p: u[0] ** 2 * u[1], name="terminal")(T, U0, P0)
    np.testing.assert_allclose(gradient, [[2 * U0[0] * U0[1], U0[0] ** 2, 0.0]], rtol=1e-15)


def test_errors_at_complex_numbers_name_the_callback_once():
    def overflowing(t, u, p):
        if np.iscomplexobj(u):
            raise OverflowError("math range error")
        return u[0]

    for callback in (overflowing, guarded(overflowing, "terminal", PETSc.COMM_SELF)):
        with pytest.raises(OverflowError, match="math range error") as raised:
            step(callback, name="terminal")(T, U0, P0)
        rank = PETSc.COMM_WORLD.rank
        assert raised.value.__notes__ == [f"in callback 'terminal' at t = {T:g} (rank {rank})"]


def test_nothing_to_differentiate_gives_an_empty_matrix():
    empty = step(lambda t, u, p: u, 2)(T, U0, np.empty(0))
    assert empty.shape == (3, 0)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e6, 1e12])
def test_no_scale_is_an_obstacle(scale):
    """Saturation at concentrations far below or above 1, beside a quantity of ordinary size."""

    def saturated(t, u, p):
        return np.array([u[0] / (p + u[0]), u[1] ** 2])

    ours = step(saturated)(T, np.array([scale, 3.0]), scale)
    np.testing.assert_allclose(ours, np.diag([0.25 / scale, 6.0]), rtol=1e-14)
    with pytest.raises(InputError, match="disagrees"):
        step(lambda t, u, p: np.abs(u) / p)(T, np.array([scale]), scale)


def test_a_small_row_is_not_hidden_by_a_large_one():
    with pytest.raises(InputError, match="disagrees"):
        step(lambda t, u, p: np.array([1e6 * u[0], np.abs(u[1])]))(T, np.array([1.0, 1.0]), P0)


ANALYTIC = {
    "where": lambda t, u, p: np.where(u.real > 0, u**2, -u),
    "comparison of real parts": lambda t, u, p: u * (u.real > 0),
    "power": lambda t, u, p: (1 + u) ** 2.5,
    "list": lambda t, u, p: [u[0] * u[1], u[1], u[2]],
    "matrix product": lambda t, u, p: np.outer(u, u) @ u,
    "complex work array": lambda t, u, p: np.array(u, dtype=complex) * 2,
    "not differentiable at a distance": lambda t, u, p: np.where(u.real > 0.7999999, u, u),
}


@pytest.mark.parametrize("function", ANALYTIC.values(), ids=ANALYTIC)
def test_functions_of_complex_numbers_are_trusted(function):
    ours = step(function)(T, U0, P0)
    for j in range(3):
        moved = 1e-6 * np.eye(3)[j]
        above, below = function(T, U0 + moved, P0), function(T, U0 - moved, P0)
        difference = (np.array(above).real - np.array(below).real) / 2e-6
        np.testing.assert_allclose(ours[:, j], difference, rtol=0, atol=1e-8)


def filled(t, u, p):
    out = np.empty(3)
    out[:] = u**2
    return out


REFUSED = {
    "abs": (lambda t, u, p: np.abs(u), "disagrees with a central difference"),
    "real": (lambda t, u, p: u.real**2, "disagrees with a central difference"),
    "conjugate": (lambda t, u, p: np.conj(u) * u[0], "disagrees with a central difference"),
    "vdot": (lambda t, u, p: np.vdot(u, u) * u, "disagrees with a central difference"),
    "norm": (lambda t, u, p: u * np.linalg.norm(u), "disagrees with a central difference"),
    "math.sin": (lambda t, u, p: [math.sin(u[0])], "discards the imaginary part|must be real"),
    "float": (lambda t, u, p: [float(u[0]), 0.0, 0.0], "discards the imaginary part|not 'complex'"),
    "array of floats filled in place": (filled, "discards the imaginary part"),
    "astype": (lambda t, u, p: u.astype(float), "discards the imaginary part"),
    "comparison": (lambda t, u, p: [u[0].item() > 0, 0.0, 0.0] and [u[0].item() < 1.0], "complex"),
    "rounding": (lambda t, u, p: np.floor(u), "floor"),
}


@pytest.mark.parametrize(("function", "reason"), REFUSED.values(), ids=REFUSED)
def test_functions_that_lose_the_derivative_are_refused(function, reason):
    with pytest.raises(InputError, match="callback 'rhs' cannot take complex numbers") as raised:
        step(function)(T, U0, P0)
    text = str(raised.value)
    assert "expected: operations that are analytic (no abs" in text
    assert text.endswith("try: jacobian=callback")
    assert any(part in text for part in reason.split("|"))


def test_what_real_numbers_fail_with_too_is_told_as_it_is():
    with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given"):
        step(lambda t, u: u)(T, U0, P0)


def test_a_refusal_concerns_the_argument_it_is_about():
    """Non-analytic in u, analytic in p."""
    function = lambda t, u, p: np.abs(u) * p  # noqa: E731
    np.testing.assert_allclose(step(function, 2)(T, U0, P0), np.diag(np.abs(U0)))
    with pytest.raises(InputError, match="disagrees"):
        step(function, 1)(T, U0, P0)


def test_exceptions_of_the_function_itself_are_not_hidden():
    def faulty(t, u, p):
        raise KeyError("growth")

    with pytest.raises(KeyError, match="growth"):
        step(faulty)(T, U0, P0)


def test_a_kink_nearby_is_no_reason_to_refuse():
    """The central difference crosses it; a smaller one does not."""
    x = np.array([1e-6])
    function = lambda t, u, p: np.where(u.real > 0, 3.0 * u, -5.0 * u)  # noqa: E731
    np.testing.assert_array_equal(step(function)(T, x, P0), [[3.0]])


@pytest.mark.parametrize(("t", "slope"), [(np.nextafter(0.5, 0.0), 2.0), (0.5, -3.0)])
def test_a_jump_at_the_point_itself_is_no_reason_to_refuse(t, slope):
    """At a breakpoint of the equations differences from one side agree."""
    function = lambda t, u, p: [2.0 * t + u[0] if t.real < 0.5 else 7.0 - 3.0 * t]  # noqa: E731
    assert step(function, 0)(t, U0, P0)[0, 0] == slope


def test_function_that_does_not_exist_on_one_side_is_not_compared():
    """The difference is NaN, which proves nothing."""
    function = lambda t, u, p: np.sqrt(u)  # noqa: E731
    with np.errstate(invalid="ignore"):
        ours = step(function)(T, np.array([1e-9]), P0)
    np.testing.assert_allclose(ours, [[0.5 / np.sqrt(1e-9)]], rtol=1e-12)


# ---- arguments that are never read ---------------------------------------------------------------


class Model:
    def rate(self, t, u):
        return u


def keeps_it(t, u):
    return [t for _ in u]


def overwrites_it(t, u):
    t = 1.0
    return t * u


def sees_all(t, u):
    return locals()["t"] * u


def any_number(*point):
    return point[0]


@pytest.mark.parametrize(
    ("function", "known"),
    [
        (lambda t, u: u, True),
        (lambda t, u: u if u[0] > 0 else -u, True),
        (lambda t, u, *, scale=2.0: scale * u, True),
        (lambda t, u: t + u, False),
        (keeps_it, False),
        (overwrites_it, False),
        (sees_all, False),
        (any_number, False),
        (Model().rate, False),
        (np.add, False),
    ],
)
def test_only_what_a_function_never_names_is_known_to_be_ignored(function, known):
    assert ignores(function, 0) is known


def test_derivatives_in_arguments_that_are_never_read_are_not_evaluated():
    calls = []

    def rhs(_t, u, _p):
        calls.append(1)
        return -u

    problem = ODE(rhs, 1, ["unused"])
    u, out = problem.create_state(), problem.create_state()
    out.set(3.0)
    problem.rhs_t(0.0, u, np.ones(1), out)
    slope = problem.rhs_p.create(0.0, u, np.ones(1))
    problem.rhs_p.fill(0.0, u, np.ones(1), slope)
    assert problem.autonomous
    assert problem.sources["rhs_t"] == "autonomous"
    assert not calls
    assert out[0] == 0.0
    assert slope[0, 0] == 0.0
