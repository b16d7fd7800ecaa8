"""Stages of ESDIRK steps: where the equations hold, their tangents, and the weights of adjoints."""

from functools import partial

import numpy as np
import pytest
from forms import DIAGONAL, FORMS, MASS, P0, SINGULAR, TIGHT, U0, rhs, rhs_p, rhs_u

from daeosens import Stepping, consistent_state, solve
from daeosens.methods.esdirk.stage_equations import StageEquations
from daeosens.methods.esdirk.stages import StageSolver
from daeosens.methods.esdirk.tableau import TABLEAUX
from daeosens.methods.linear_solver import linear_solver
from daeosens.petsc import read, write

T, H = 0.4, 0.15
MASSES = {"rhs": np.eye(3), "M": MASS, "M singular": SINGULAR}
each_form = pytest.mark.parametrize("name", MASSES)
each_method = pytest.mark.parametrize("method", DIAGONAL)


def vec(problem, values):
    new = problem.create_state()
    write(new, values)
    return new


def equations_of(name, method):
    """Return the equations of one step, the points of its stages, the scheme and M."""
    problem, scheme = FORMS[name].analytic, TABLEAUX[method]
    make_solver = partial(linear_solver, options={"ksp_rtol": 1e-13})
    equations = StageEquations(problem, scheme, make_solver, StageSolver(problem, scheme, {}, None))
    u0 = consistent_state(problem, U0, P0, t=T)
    run = solve(problem, u0, P0, Stepping((T, T + H), method, dt=H, options=TIGHT))
    return equations, equations.points(run.step(0)), scheme, MASSES[name]


def kept_rows(mass):
    """Return the projection P on the rows of M that are not zero."""
    return np.diag(np.any(mass != 0.0, axis=1).astype(float))


@each_method
@each_form
def test_points_satisfy_the_equations_of_the_stages(name, method):
    equations, points, scheme, mass = equations_of(name, method)
    np.testing.assert_allclose([t for t, _, _ in points], T + scheme.c * H, rtol=1e-15)
    states = np.array([read(state) for _, state, _ in points])
    slopes = np.array([rhs(t, u, P0) for (t, _, _), u in zip(points, states, strict=True)])
    rates = slopes @ kept_rows(mass)
    values = [read(rate) for (rate,) in equations.rates(points)]
    np.testing.assert_allclose(values, rates, rtol=1e-13, atol=1e-14)
    for i in range(1, len(points)):
        added = H * (scheme.a[i, :i] @ rates[:i] + scheme.gamma * slopes[i])
        np.testing.assert_allclose(mass @ (states[i] - states[0]), added, rtol=0, atol=1e-12)


@each_method
@each_form
def test_tangents_satisfy_the_linearised_equations(name, method, rng):
    """Along the state and the parameters at once; the last one, once known, is not solved for."""
    equations, points, scheme, mass = equations_of(name, method)
    problem, rows = FORMS[name].analytic, kept_rows(mass)
    du, dp = rng.standard_normal(3), rng.standard_normal(3)
    dp_vec = problem.create_parameters()
    write(dp_vec, dp)

    def tangent_sweep(slots, du_next=None):
        ends = (vec(problem, du), du_next)
        stages = equations.tangents(H, points, slots, ends, dp_vec, (0.0, 0.0), ())
        return [stage for (stage,) in stages]

    tangent = tangent_sweep(None)
    states = [read(stage.state).copy() for stage in tangent]
    slopes = np.array(
        [
            rhs_u(t, read(u), P0) @ d_state + rhs_p(t, read(u), P0) @ dp
            for (t, u, _), d_state in zip(points, states, strict=True)
        ]
    )
    for i in range(1, len(points)):
        added = H * (scheme.a[i, :i] @ (slopes[:i] @ rows) + scheme.gamma * slopes[i])
        np.testing.assert_allclose(mass @ (states[i] - du), added, rtol=0, atol=1e-12)
    without_last = [*equations.slots(points, H)[:-1], None]
    again = tangent_sweep(without_last, tangent[-1].state)
    np.testing.assert_array_equal(read(again[-1].state), states[-1])
    np.testing.assert_allclose(read(again[-1].rate), read(tangent[-1].rate), rtol=0, atol=1e-12)


@each_method
@each_form
def test_weights_solve_the_transposed_equations(name, method, rng):
    equations, points, scheme, mass = equations_of(name, method)
    problem, rows, gamma = FORMS[name].analytic, kept_rows(mass), scheme.gamma
    lam, (adjoints,) = rng.standard_normal(3), equations.adjoints(1)
    right, weight = problem.create_state(), problem.create_state()
    out = vec(problem, lam), problem.create_parameters()
    for i in reversed(range(1, len(points))):
        running = rng.standard_normal(3)
        write(right, running)
        slot = equations.slot(0, i, points[i], H)
        slopes = equations.slopes(i, points[i])
        before = read(out[1]).copy()
        equations.carry(i, H, points[i], slot, slopes, right, out, adjoints, [weight])
        t, u, _ = points[i]
        assert read(out[0]).tolist() == lam.tolist()
        by_p = H * rhs_p(t, read(u), P0).T @ read(weight)
        np.testing.assert_allclose(read(out[1]) - before, by_p, rtol=1e-12, atol=1e-14)
        solved = np.array([read(adjoint) for adjoint in adjoints[i + 1 :]]).reshape(-1, 3)
        later = rows @ (scheme.a[i + 1 :, i] @ solved)
        last = lam if i == len(points) - 1 else 0.0
        matrix = mass - H * gamma * rhs_u(t, read(u), P0)
        expected = mass.T @ later + gamma * (last + running)
        np.testing.assert_allclose(matrix.T @ read(weight), expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            gamma * read(adjoints[i]), read(weight) - later, rtol=0, atol=1e-13
        )


def test_what_the_first_stage_leaves_is_the_adjoint_before_the_step(rng):
    equations, points, scheme, mass = equations_of("M", "esdirk3")
    problem, (t, u, _) = FORMS["M"].analytic, points[0]
    running = rng.standard_normal(3)
    (adjoints,) = equations.adjoints(1)
    for adjoint in adjoints:
        write(adjoint, rng.standard_normal(3))
    lam, mu = vec(problem, np.ones(3)), problem.create_parameters()
    weight = problem.create_state()
    values = equations.slopes(0, points[0]), vec(problem, running), (lam, mu), adjoints, [weight]
    equations.carry(0, H, points[0], None, *values)
    later = np.array([read(adjoint) for adjoint in adjoints[1:]])
    w = scheme.a[1:, 0] @ later
    np.testing.assert_allclose(read(weight), w, rtol=1e-13)
    by_p = H * rhs_p(t, read(u), P0).T @ w
    np.testing.assert_allclose(read(mu), by_p, rtol=1e-13, atol=1e-15)
    expected = H * rhs_u(t, read(u), P0).T @ w + running + mass.T @ later.sum(axis=0)
    np.testing.assert_allclose(read(lam), expected, rtol=1e-12)
