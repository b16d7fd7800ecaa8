"""The map that makes states consistent, and its derivatives."""

import numpy as np
import pytest

from daeosens.methods.events.consistent_reset import consistent_map
from daeosens.methods.step import Step
from daeosens.petsc import scatter
from tests.timestepping.test_consistent_start import DIFFERENCE, POINT, SCRAMBLED, follow


@pytest.mark.parametrize("form", SCRAMBLED)
def test_map_and_its_transpose_are_differentiated_in_state_parameters_and_time(form, rng):
    problem = SCRAMBLED[form]
    t, u, p = POINT
    state, after = problem.admit_state(u), problem.create_state()
    consistent = consistent_map(problem, t, state, p, {})
    consistent.apply(t, state, p, after)
    du, dp, dt, w = rng.normal(size=3), rng.normal(size=2), 0.7, rng.normal(size=3)
    dp_vec, along = scatter(dp, problem.create_parameters()), problem.admit_state(du)
    jump = Step(t, 0.0, state, after, p)
    consistent.tangent(jump, along, dp_vec, dt)
    h = 1e-3
    samples = [follow(problem, t + e * dt, u + e * du, p + e * dp) for e in h * DIFFERENCE[0]]
    expected = DIFFERENCE[1] @ samples / h
    np.testing.assert_allclose(along.array, expected, rtol=1e-10)
    lam, mu = problem.admit_state(w), problem.create_parameters()
    (omega,) = consistent.adjoint(jump, [lam], [mu])
    backward = np.array([lam.array @ du, mu.array @ dp, omega * dt])
    assert along.array @ w == pytest.approx(backward.sum(), rel=0, abs=1e-14 * abs(backward).sum())
