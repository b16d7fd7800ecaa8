"""Forward sensitivities by variational equations: closed forms, and the discrete ones."""

import numpy as np
import pytest
from continuous import PRODUCTS, RINGS, Ring, orders, stepping
from continuous_tangent import continuous_forward
from forms import DECAY, FORMS, P0, U0, initial_state_p

from daeosens import ODE, InputError, Stepping, UnsupportedError, sensitivities, solve
from daeosens.petsc import read

PROBLEM = FORMS["rhs"].analytic
BOTH = ("p", "u0")


@pytest.mark.parametrize(("method", "order"), [("rk4", 4), ("cn", 2), ("beuler", 1)])
def test_forward_sensitivities_converge_to_the_closed_form(method, order):
    end, errors = 2.0, []
    for dt in (0.1, 0.05, 0.025):
        tangent = continuous_forward(
            DECAY.problem, DECAY.u0, DECAY.p, stepping(method, dt, end), with_respect_to=BOTH
        )
        errors.append(
            abs(tangent.p[0] - DECAY.by_p(end)).max() + abs(tangent.u0 - DECAY.by_u0(end))
        )
    np.testing.assert_allclose(orders(errors).ravel(), order, atol=0.1)


@pytest.mark.parametrize("method", ["rk1fe", "rk5dp", "beuler", "cn", "theta:0.7", "midpoint"])
@pytest.mark.parametrize("problem", [PROBLEM, PRODUCTS], ids=["matrix", "products"])
def test_with_fixed_steps_forward_sensitivities_are_the_discrete_ones(method, problem):
    """Methods commute with differentiation; so the block diagonal Newton matrix converges too."""
    steps = stepping(method, 0.1)
    tangent = continuous_forward(problem, U0, P0, steps, with_respect_to=BOTH)
    expected = sensitivities(solve(PROBLEM, U0, P0, steps))
    np.testing.assert_allclose(tangent.p, expected.p, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(tangent.u0, expected.u0, rtol=1e-8, atol=1e-10)
    assert tangent.sensitivities().sweep == "continuous forward"


def test_forward_sensitivities_have_their_own_error_control():
    """The sensitivities need smaller steps than the state alone."""
    steps = Stepping((0.0, 2.0), "rk5dp", rtol=1e-8, atol=1e-8)
    tangent = continuous_forward(DECAY.problem, DECAY.u0, DECAY.p, steps)
    alone = solve(DECAY.problem, DECAY.u0, DECAY.p, steps)
    assert len(tangent.times) > len(alone.times)
    np.testing.assert_allclose(tangent.p[0], DECAY.by_p(2.0), rtol=1e-7)


def test_forward_sensitivities_at_other_times():
    tangent = continuous_forward(
        DECAY.problem, DECAY.u0, DECAY.p, stepping("rk4", 0.01, 2.0), t_eval=[0.505]
    )
    np.testing.assert_allclose(tangent.sensitivities(0.505).p[0], DECAY.by_p(0.505), rtol=1e-8)
    assert read(tangent.state(0.505))[0] == pytest.approx(DECAY.solution(0.505), rel=1e-8)
    assert read(tangent.state())[0] == pytest.approx(DECAY.solution(2.0), rel=1e-8)
    assert tangent.sensitivities().u0 is None
    only_u0 = continuous_forward(
        DECAY.problem, DECAY.u0, DECAY.p, stepping("rk4", 0.01, 2.0), with_respect_to=["u0"]
    )
    assert only_u0.sensitivities().p is None


def test_initial_state_that_follows_the_parameters():
    tangent = continuous_forward(
        PROBLEM, U0, P0, stepping("rk4", 0.1), initial_p=initial_state_p(P0)
    )
    exact = sensitivities(solve(PROBLEM, U0, P0, stepping("rk4", 0.1)))
    np.testing.assert_allclose(tangent.p, exact.p + exact.u0 @ initial_state_p(P0), rtol=1e-12)


def test_forward_sensitivities_refuse_bad_input():
    steps = stepping("cn", 0.1)
    with pytest.raises(InputError, match=r"with_respect_to = \['q'\]"):
        continuous_forward(PROBLEM, U0, P0, steps, with_respect_to=["q"])
    with pytest.raises(InputError, match=r"initial_p has shape \(3,\)\n  expected: \(3, 3\)"):
        continuous_forward(PROBLEM, U0, P0, steps, initial_p=np.zeros(3))


@pytest.mark.parametrize("name", ["M", "F"])
def test_other_forms_are_refused_with_the_alternative(name):
    problem, steps = FORMS[name].analytic, stepping("cn", 0.1)
    with pytest.raises(UnsupportedError, match=f"{problem.form} form(.|\n)*try: tangent"):
        continuous_forward(problem, U0, P0, steps)


def test_problem_without_parameters():
    problem = ODE(lambda t, u, p: -(u**2), 1)
    tangent = continuous_forward(
        problem, [1.0], None, stepping("rk4", 0.01, 1.0), with_respect_to=["u0"]
    )
    np.testing.assert_allclose(tangent.u0, 0.25, rtol=1e-8)  # u(1) = u0 / (1 + u0)


@pytest.mark.mpi
@pytest.mark.parametrize("options", RINGS, ids=str)
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_distributed_forward_sensitivities(options, method):
    ring = Ring(**options)
    steps = stepping(method, 0.05, 0.5)
    tangent = continuous_forward(ring.problem, ring.u0, ring.p, steps, with_respect_to=BOTH)
    exact = sensitivities(solve(ring.problem, ring.u0, ring.p, steps))
    np.testing.assert_allclose(tangent.p, exact.p, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(tangent.u0, exact.u0, rtol=1e-8, atol=1e-9)


@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["dense", "baij"])
def test_other_kinds_of_matrices_are_understood(kind):
    ring = Ring(kind=kind)
    steps = stepping("cn", 0.05, 0.5)
    tangent = continuous_forward(ring.problem, ring.u0, ring.p, steps)
    expected = continuous_forward(Ring().problem, ring.u0, ring.p, steps)
    np.testing.assert_allclose(tangent.p, expected.p, rtol=1e-9)
