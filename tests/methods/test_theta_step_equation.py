"""The equation of a theta step: where it is linearised, and which matrices are filled again."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from forms import COSTS, FORMS, NAMES, OBSERVATION_TIMES, P0, U0, make_stepping

from daeosens import DAE, adjoint, solve
from daeosens.methods.linear_solver import linear_solver
from daeosens.methods.step import Step
from daeosens.methods.theta.step_equation import ThetaEquation
from daeosens.petsc import write
from daeosens.problem import Products

T, H = 0.4, 0.25
NEXT = U0 + np.array([0.1, -0.2, 0.3])
FORMULAS = [(0.5, True), (0.7, True), (1.0, True), (0.5, False), (1.0, False)]


def vec(problem, values):
    new = problem.create_state()
    write(new, values)
    return new


def equation_of(theta, endpoint, name="rhs"):
    problem = FORMS[name].analytic
    make_solver = partial(linear_solver, options={})
    step = Step(T, H, vec(problem, U0), vec(problem, NEXT), P0)
    return ThetaEquation(problem, theta, make_solver, endpoint=endpoint), step


@pytest.mark.parametrize(("theta", "endpoint"), FORMULAS)
def test_ends_satisfy_the_formulas_of_the_method(theta, endpoint):
    equation, step = equation_of(theta, endpoint)
    shift, (end, start) = equation.ends(step)
    assert shift == pytest.approx(1.0 / (theta * H), rel=1e-15)
    assert (start[0], start[1].handle) == (T, step.u.handle)
    assert not start[2].array.any()
    rate = (NEXT - U0) / (theta * H if endpoint else H)
    at = NEXT if endpoint else U0 + theta * (NEXT - U0)
    assert end[0] == pytest.approx(T + (H if endpoint else theta * H), rel=1e-15)
    np.testing.assert_allclose(end[1].array, at, rtol=1e-14)
    np.testing.assert_allclose(end[2].array, rate, rtol=1e-14)


@pytest.mark.parametrize(("theta", "endpoint"), FORMULAS)
def test_costs_are_weighted_as_the_equation(theta, endpoint):
    """Weights sum to one and have the method's first moment; none is evaluated for nothing."""
    equation, step = equation_of(theta, endpoint)
    points = equation.quadrature_points(step)
    assert len(points) == (2 if endpoint and theta < 1.0 else 1)
    assert sum(weight for weight, _, _ in points) == pytest.approx(1.0, rel=1e-15)
    assert sum(weight * (time - T) for weight, time, _ in points) == pytest.approx(theta * H)
    moment = sum(weight * state.array for weight, _, state in points)
    np.testing.assert_allclose(moment, U0 + theta * (NEXT - U0), rtol=1e-14)


@pytest.mark.parametrize("name", ["rhs", "M", "M(p)", "F"])
def test_matrix_of_the_end_serves_the_next_start_where_it_can(name):
    """With the shift that is asked for; F(t, u, u', p) has another rate there."""
    form = FORMS[name]
    equation, step = equation_of(0.5, True, name)
    shift, (end, start) = equation.ends(step)
    slot = equation.slot(*end, shift)
    assert (equation.slot(*end, 0.0) is slot) == (name in ("rhs", "M"))
    for (t, u, udot, p), factor in ((end, shift), (start, 0.0), (end, -2.0 * shift)):
        matrix = equation.slot(t, u, udot, p, factor).matrix
        point = (t, u.array, udot.array, p)
        expected = form.residual_u(*point) + factor * form.residual_udot(*point)
        np.testing.assert_allclose(matrix[:, :], expected, rtol=1e-13, atol=1e-13)


def test_products_give_the_derivatives_that_matrices_give_where_the_mass_changes():
    """The rate of the step is at both its ends, and so is F_udot in the matrix."""
    form, cost = FORMS["F"], COSTS["sum"].objective

    def products(matrix):
        return Products(lambda *x: matrix(*x[:-1]) @ x[-1], lambda *x: matrix(*x[:-1]).T @ x[-1])

    parts = products(form.residual_u), products(form.residual_udot)
    by_products = DAE(
        form.residual,
        3,
        NAMES,
        jacobian=parts[0],
        jacobian_udot=parts[1],
        jacobian_p=form.residual_p,
    )
    values = []
    for problem in (form.analytic, by_products):
        run = solve(problem, U0, P0, make_stepping("cn"), OBSERVATION_TIMES)
        gradient = adjoint(run, cost)
        values.append(np.concatenate([run.u[-1], gradient.u0, gradient.p]))
    np.testing.assert_allclose(values[1], values[0], rtol=1e-11)


def test_a_vector_at_the_address_of_a_freed_one_is_another_state():
    """As the states of a jump are, at one time, where vectors are made when they are asked for."""
    equation, _ = equation_of(0.5, endpoint=True)
    problem = FORMS["rhs"].analytic
    rate = problem.create_state()
    before = vec(problem, U0)
    equation.slot(T, before, rate, P0, 8.0)
    del before
    others = [vec(problem, NEXT) for _ in range(20)]
    expected, direction, product = problem.create_state(), vec(problem, U0), problem.create_state()
    equation_of(0.5, endpoint=True)[0].slot(T, others[0], rate, P0, 8.0).matrix.mult(
        direction, expected
    )
    for other in others:
        equation.slot(T, other, rate, P0, 8.0).matrix.mult(direction, product)
        np.testing.assert_array_equal(product.array, expected.array)


@pytest.mark.parametrize("name", ["rhs", "M", "M(p)", "F"])
def test_derivative_in_parameters_at_the_end_serves_the_next_start_where_it_can(name):
    """Of f(t, u, p), at the same time, state and parameters; others depend on the rate."""
    form, calls = FORMS[name], []
    derivative = form.analytic.residual_p

    def fill(*point_and_out):
        calls.append(point_and_out)
        derivative.fill(*point_and_out)

    problem = replace(form.analytic, residual_p=replace(derivative, fill=fill))
    equation = ThetaEquation(problem, 0.5, partial(linear_solver, options={}), endpoint=True)
    step = Step(T, H, vec(problem, U0), vec(problem, NEXT), P0)
    _, (end, start) = equation.ends(step)
    other = (*end[:3], 2.0 * P0)
    later = (end[0] + 0.1, *end[1:])
    weights, mu = vec(problem, [1.0, -2.0, 0.5]), problem.create_parameters()
    for point, fills in ((end, 1), (end, 1), (start, 2), (other, 3), (later, 4), (later, 4)):
        mu.zeroEntries()
        equation.add_parameter_part(-1.0, point, [weights], [mu])
        t, u, udot, p = point
        expected = form.residual_p(t, u.array, udot.array, p).T @ weights.array
        np.testing.assert_allclose(mu.array, expected, rtol=1e-13, atol=1e-13)
        if name == "rhs":
            assert len(calls) == fills
    assert len(calls) == (4 if name == "rhs" else 6)
