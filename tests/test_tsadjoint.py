"""PETSc's own adjoint: what it needs, and what is refused because it would be wrong.

That it agrees with the steps engine for every form, method and cost is shown in test_adjoint.py.
"""

import numpy as np
import pytest
from petsc4py import PETSc
from zoo import COSTS, DECAY, FORMS, OBSERVATION_TIMES, P0, U0, make_stepping

from daeosens import (
    LeastSquares,
    Running,
    Stepping,
    Terminal,
    UnsupportedError,
    adjoint,
    solve,
)
from daeosens.integrate import replay
from daeosens.tsadjoint import refuse_wrong_combinations


def run_of(name, method, *, adaptive=False, **keywords):
    stepping = make_stepping(method, adaptive=adaptive)
    return solve(FORMS[name].analytic, U0, P0, stepping, OBSERVATION_TIMES, **keywords)


@pytest.mark.parametrize("method", ["cn", "beuler", "theta:0.7", "midpoint"])
def test_residuals_whose_mass_may_depend_on_the_state_are_refused(method):
    message = (
        r'engine = "tsadjoint" for F\(t, u, u\', p\) = 0 whose F_udot may depend on u(.|\n)*'
        r"linear_in_udot=True\) says so\n  try: adjoint\(..., engine=\"steps\"\)"
    )
    with pytest.raises(UnsupportedError, match=message):
        adjoint(run_of("F", method), COSTS["terminal"].objective, "tsadjoint")


def test_parameters_in_the_mass_are_refused_for_the_midpoint_rule_only():
    message = (
        r'parameters in the mass matrix and "midpoint"\n  expected: "cn", "beuler"(.|\n)*"steps"'
    )
    with pytest.raises(UnsupportedError, match=message):
        adjoint(run_of("M(p)", "midpoint"), COSTS["terminal"].objective, "tsadjoint")
    for method in ("cn", "beuler", "theta:0.7", "theta:1"):
        refuse_wrong_combinations(run_of("M(p)", method))


def test_refusal_is_justified():
    """Without it PETSc 3.26 would return gradients that are wrong by more than a per cent."""
    for name, method in (("F", "cn"), ("M(p)", "midpoint")):
        run = run_of(name, method)
        lam, mu = [run.problem.create_state()], [run.problem.create_parameters()]
        ts = replay(run, lambda ts, lam=lam, mu=mu: ts.setCostGradients(lam, mu))
        ((_, _, scalar),) = COSTS["terminal"].objective.lower(run.problem, 0.97).points
        scalar.add_u(1.0, 0.97, run.final, P0, lam[0])
        scalar.add_p(1.0, 0.97, run.final, P0, mu[0])
        ts.adjointSolve()
        exact = adjoint(run, COSTS["terminal"].objective)
        error = abs(mu[0].getArray() - exact.p).max() / abs(exact.p).max()
        ts.destroy()
        assert error > 1e-3, (name, method)


@pytest.mark.parametrize(("name", "method"), [("rhs", "rk5dp"), ("M", "cn"), ("rhs", "midpoint")])
@pytest.mark.parametrize("adaptive", [False, True])
def test_replay_repeats_the_steps_exactly(name, method, adaptive):
    """Rejected steps are not tried again."""
    run = run_of(name, method, adaptive=adaptive)
    assert run.effort.rejected > 0 or not adaptive
    seen = []
    ts = replay(
        run,
        lambda ts: ts.setMonitor(lambda _ts, n, t, u: seen.append((t, *u.getArray(readonly=True)))),
    )
    assert ts.getStepNumber() == run.n_steps
    assert ts.getStepRejections() == 0
    ts.destroy()
    np.testing.assert_allclose([row[0] for row in seen], run.times, rtol=1e-15)
    np.testing.assert_allclose([row[1:] for row in seen], run.u, rtol=0, atol=1e-13)


def test_observations_of_several_costs_at_the_same_and_at_different_times():
    """Each pause of the sweep adds to the costs it concerns."""
    times = ([0.3, 0.55], [0.55, 0.97], [0.0, 0.3])
    costs = [LeastSquares(t, [[0.1 * k], [0.2]], observe=[k]) for k, t in enumerate(times)]
    costs.append(Terminal(lambda t, u, p: u[0]) + 2.0 * costs[0])
    for name, method in (("rhs", "rk4"), ("M", "cn")):
        run = run_of(name, method, checkpoint="memory")
        ours = adjoint(run, costs)
        theirs = adjoint(run, costs, "tsadjoint")
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(b.u0, a.u0, rtol=0, atol=1e-13)
            np.testing.assert_allclose(b.p, a.p, rtol=0, atol=1e-13)


def test_a_step_between_two_observations_that_is_none():
    """An observation at every step and at the first time: TSAdjointSetSteps(0) would mean all."""
    stepping = Stepping((0.0, 1.0), "rk4", dt=0.1)
    run = solve(DECAY.problem, DECAY.u0, DECAY.p, stepping, [0.5])
    cost = LeastSquares(run.times, np.zeros(len(run.times)))
    np.testing.assert_allclose(adjoint(run, cost, "tsadjoint").p, adjoint(run, cost).p, rtol=1e-13)


@pytest.mark.parametrize("method", ["rk4", "cn", "beuler", "midpoint"])
def test_running_costs_of_which_only_some_have_a_density(method):
    run = run_of("rhs", method)
    costs = [
        COSTS["running"].objective,
        COSTS["terminal"].objective,
        Running(lambda t, u, p: p[0] ** 2) + Running(lambda t, u, p: u[1] * t),
    ]
    for a, b in zip(adjoint(run, costs), adjoint(run, costs, "tsadjoint"), strict=True):
        np.testing.assert_allclose(b.u0, a.u0, rtol=0, atol=1e-13)
        np.testing.assert_allclose(b.p, a.p, rtol=0, atol=1e-13)


def test_exceptions_of_callbacks_come_out_as_they_were_raised():
    calls = []

    def faulty(t, u, p):
        calls.append(t)
        if len(calls) > 3:
            raise KeyError("growth")
        return np.array([1.0, 0.0, 0.0])

    cost = Running(lambda t, u, p: u[0], faulty)
    with pytest.raises(KeyError, match="growth"):
        adjoint(run_of("rhs", "cn"), cost, "tsadjoint")


def test_options_are_left_as_they_were(petsc_options_left_as_they_were):
    before = PETSc.Options().getAll()
    run = run_of("rhs", "cn", checkpoint="disk")
    adjoint(run, COSTS["terminal"].objective, "tsadjoint")
    assert PETSc.Options().getAll() == before
