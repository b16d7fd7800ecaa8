"""Stages of explicit steps: computed again, or those that the run kept, and their transposes."""

import numpy as np
import pytest
from forms import FORMS, P0, U0, rhs, rhs_p, rhs_u

from daeosens import Stepping, Terminal, adjoint, solve, trace_stencil
from daeosens.methods.rk.stages import ExplicitStages, pull_back, weigh
from daeosens.methods.rk.tableau import tableau
from daeosens.methods.step import Step
from daeosens.petsc import write
from daeosens.problem.grids import Grid
from daeosens.timestepping import Checkpoints

PROBLEM = FORMS["rhs"].analytic
T, H = 0.4, 0.15


def vec(values, create=PROBLEM.create_state):
    new = create()
    write(new, values)
    return new


def formulas(kind):
    """Return states and rates by the formulas."""
    table, states, rates = tableau(kind).of_step, [], []
    for row, c in zip(table.a, table.c, strict=True):
        states.append(U0 + H * sum((a * rate for a, rate in zip(row, rates, strict=False)), 0 * U0))
        rates.append(rhs(T + c * H, states[-1], P0))
    return states, rates


@pytest.mark.parametrize("kind", ["1fe", "3bs", "4", "5dp", "8vr"])
def test_stages_are_those_of_the_formulas(kind):
    stages = ExplicitStages(PROBLEM, tableau(kind).of_step, {})
    u = vec(U0)
    stages.recompute(Step(T, H, u, u, P0))
    for ours, expected in ((stages.states, 0), (stages.rates, 1)):
        for item, values in zip(ours, formulas(kind)[expected], strict=True):
            np.testing.assert_allclose(item.array, values, rtol=1e-13, atol=1e-14)


def test_kept_stages_are_taken_as_they_are_and_their_rates_where_they_are_wanted():
    u, kept = vec(U0), [vec(U0 + k) for k in range(4)]
    stages = ExplicitStages(PROBLEM, tableau("4").of_step, {0: kept})
    step = Step(T, H, u, u, P0)
    stages.recompute(step)
    assert [state.handle for state in stages.states] == [state.handle for state in kept]
    assert not any(rate.array.any() for rate in stages.rates)
    stages.recompute(step, rates=True)
    for k, (rate, c) in enumerate(zip(stages.rates, tableau("4").of_step.c, strict=True)):
        np.testing.assert_array_equal(rate.array, rhs(T + c * H, U0 + k, P0))
    stages.recompute(step._replace(number=1))  # another one, of which none were kept
    assert stages.states[0].handle != kept[0].handle


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["rk2a", "rk4"])
def test_stages_of_grids_are_found_in_the_passes_of_the_run(method):
    """To the last bit: a sweep that finds them is the same as one that has them from the run."""
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (12, 10), dof=2)

    def reaction(t, u, p):
        a, b = u.center
        of_a, of_b = u.laplacian()
        rate = a * b * b * (1.0 + 0.1 * t)
        return [p.d * of_a - rate, 0.5 * p.d * of_b + rate - p.k * b]

    problem = trace_stencil(reaction, grid, ["d", "k"])
    first, last = grid.create_vec().getOwnershipRange()
    u0 = grid.create_vec()
    u0.setArray(np.random.default_rng(4).uniform(0.2, 1.0, 240)[first:last])
    cost = Terminal(lambda t, u, p: 0.5 * u.dot(u), lambda t, u, p, out: u.copy(out), "independent")
    start = problem, u0, [2e-3, 0.06], Stepping((0.0, 1.0), method, dt=0.05)
    runs = [solve(*start, checkpoint=kept) for kept in ("stages", "states", Checkpoints(3))]
    assert len(runs[0].kept) == runs[0].n_steps
    table = start[3].resolved_method.tableau.of_step
    found = ExplicitStages(problem, table, {}, passes=True)
    for number in range(runs[0].n_steps):
        found.recompute(runs[1].step(number))
        for ours, kept in zip(found.states, runs[0].stages[number], strict=True):
            np.testing.assert_array_equal(ours.array, kept.array)
    kept, *others = (adjoint(run, cost, "vectors") for run in runs)
    for gradient in others:
        np.testing.assert_array_equal(gradient.u0_vec.array, kept.u0_vec.array)
        np.testing.assert_array_equal(gradient.p, kept.p)


def test_weights_and_transposes(rng):
    table = tableau("5dp").of_step
    lam, adjoints = rng.standard_normal(3), rng.standard_normal((len(table.b), 3))
    weight, adjoint, mu = vec(0 * U0), vec(0 * U0), vec(P0, PROBLEM.create_parameters)
    for i in range(len(table.b)):
        weigh(table, i, vec(lam), [vec(computed) for computed in adjoints], weight)
        expected = table.b[i] * lam + table.a[:, i] @ adjoints
        np.testing.assert_allclose(weight.array, expected, rtol=1e-13, atol=1e-15)
    point = (T, vec(U0), P0)
    matrices = [value.create(*point) for value in (PROBLEM.rhs_u, PROBLEM.rhs_p)]
    for derivative, matrix in zip((PROBLEM.rhs_u, PROBLEM.rhs_p), matrices, strict=True):
        derivative.fill(*point, matrix)
    work = PROBLEM.create_parameters()
    pull_back(H, tuple(matrices), vec(lam), adjoint, mu, work)
    np.testing.assert_allclose(adjoint.array, H * rhs_u(T, U0, P0).T @ lam, rtol=1e-13)
    np.testing.assert_allclose(mu.array, P0 + H * rhs_p(T, U0, P0).T @ lam, rtol=1e-13)
