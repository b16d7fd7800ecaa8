"""PETSc's own adjoint: what it needs, and what is refused because it would be wrong.

That it agrees with the steps engine for every form, method and cost is shown in test_adjoint.py.
"""

import numpy as np
import pytest
from forms import COSTS, DECAY, FORMS, OBSERVATION_TIMES, P0, U0, make_stepping
from petsc4py import PETSc

import daeosens as ds
from daeosens.derivatives.engines import tsadjoint
from daeosens.derivatives.engines.tsadjoint import refuse_wrong_combinations


def run_of(name, method, **keywords):
    stepping = make_stepping(method)
    return ds.solve(FORMS[name].analytic, U0, P0, stepping, OBSERVATION_TIMES, **keywords)


@pytest.mark.parametrize("method", ["cn", "beuler", "theta:0.7", "midpoint"])
def test_residuals_whose_mass_may_depend_on_the_state_are_refused(method):
    message = (
        r'engine = "tsadjoint" for F\(t, u, u\', p\) = 0 whose F_udot may depend on u(.|\n)*'
        r"linear_in_udot=True\) says so\n  try: adjoint\(..., engine=\"vectors\"\)"
    )
    with pytest.raises(ds.UnsupportedError, match=message):
        ds.adjoint(run_of("F", method), COSTS["terminal"].objective, "tsadjoint")


def test_parameters_in_the_mass_are_refused_for_the_midpoint_rule_only():
    message = (
        r'parameters in the mass matrix and "midpoint"\n  expected: "cn", "beuler"(.|\n)*"vectors"'
    )
    with pytest.raises(ds.UnsupportedError, match=message):
        ds.adjoint(run_of("M(p)", "midpoint"), COSTS["terminal"].objective, "tsadjoint")
    for method in ("cn", "beuler", "theta:0.7", "theta:1"):
        refuse_wrong_combinations(run_of("M(p)", method))


def test_refusal_is_justified():
    """Without it PETSc 3.26 would return gradients that are wrong by more than a per cent."""
    for name, method in (("F", "cn"), ("M(p)", "midpoint")):
        run = run_of(name, method)
        lam, mu = [run.problem.create_state()], [run.problem.create_parameters()]
        ts = tsadjoint.replay(run, lambda ts, lam=lam, mu=mu: ts.setCostGradients(lam, mu))
        ((_, _, scalar),) = COSTS["terminal"].objective.lower(run.problem, 0.97).points
        scalar.add_u(1.0, 0.97, run.final, P0, lam[0])
        scalar.add_p(1.0, 0.97, run.final, P0, mu[0])
        ts.adjointSolve()
        exact = ds.adjoint(run, COSTS["terminal"].objective)
        error = abs(mu[0].getArray() - exact.p).max() / abs(exact.p).max()
        ts.destroy()
        assert error > 1e-3, (name, method)


def test_observations_of_several_costs_at_the_same_and_at_different_times():
    """Each pause of the sweep adds to the costs it concerns."""
    times = ([0.3, 0.55], [0.55, 0.97], [0.0, 0.3])
    costs = [ds.LeastSquares(t, [[0.1 * k], [0.2]], observe=[k]) for k, t in enumerate(times)]
    costs.append(ds.Terminal(lambda t, u, p: u[0]) + 2.0 * costs[0])
    for name, method in (("rhs", "rk4"), ("M", "cn")):
        run = run_of(name, method, petsc_trajectory="memory")
        ours = ds.adjoint(run, costs)
        theirs = ds.adjoint(run, costs, "tsadjoint")
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(b.u0, a.u0, rtol=0, atol=1e-13)
            np.testing.assert_allclose(b.p, a.p, rtol=0, atol=1e-13)


def test_a_step_between_two_observations_that_is_none():
    """An observation at every step and at the first time: TSAdjointSetSteps(0) would mean all."""
    stepping = ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
    run = ds.solve(DECAY.problem, DECAY.u0, DECAY.p, stepping, [0.5])
    cost = ds.LeastSquares(run.times, np.zeros(len(run.times)))
    np.testing.assert_allclose(
        ds.adjoint(run, cost, "tsadjoint").p, ds.adjoint(run, cost).p, rtol=1e-13
    )


@pytest.mark.parametrize("method", ["rk4", "cn", "beuler", "midpoint"])
def test_running_costs_of_which_only_some_have_a_density(method):
    run = run_of("rhs", method)
    costs = [
        COSTS["running"].objective,
        COSTS["terminal"].objective,
        ds.Running(lambda t, u, p: p[0] ** 2) + ds.Running(lambda t, u, p: u[1] * t),
    ]
    for a, b in zip(ds.adjoint(run, costs), ds.adjoint(run, costs, "tsadjoint"), strict=True):
        np.testing.assert_allclose(b.u0, a.u0, rtol=0, atol=1e-13)
        np.testing.assert_allclose(b.p, a.p, rtol=0, atol=1e-13)


def test_exceptions_of_callbacks_come_out_as_they_were_raised():
    calls = []

    def faulty(t, u, p):
        calls.append(t)
        if len(calls) > 3:
            raise KeyError("growth")
        return np.array([1.0, 0.0, 0.0])

    cost = ds.Running(lambda t, u, p: u[0], faulty)
    with pytest.raises(KeyError, match="growth"):
        ds.adjoint(run_of("rhs", "cn"), cost, "tsadjoint")


def test_options_are_left_as_they_were(petsc_options_left_as_they_were):
    before = PETSc.Options().getAll()
    run = run_of("rhs", "cn", petsc_trajectory="disk")
    ds.adjoint(run, COSTS["terminal"].objective, "tsadjoint")
    assert PETSc.Options().getAll() == before


# ---- events at given times: smooth pieces by PETSc, jumps by ourselves ---------------------------


def drive(t, u, p):
    force = p[0] * np.sin(3 * t) - 0.2 * u[1] * (1 + u[0] ** 2)
    return np.array([u[1], -p[1] * np.sin(u[0]) + force])


def free(t, u, p):
    return np.array([u[1] * p[0], -p[1] * u[0] ** 3])


def with_events(mass):
    names = ["drive", "stiffness"]
    modes = {name: ds.ODE(f, 2, names, mass=mass) for name, f in (("a", drive), ("b", free))}
    events = [
        ds.Event(0.55, lambda t, u, p: u * (1 + 0.1 * p[1]) + 0.05 * t * p[0], mode="b"),
        ds.Event(1.3, changes={"drive": lambda t, u, p: 1.2 * p[0] + 0.1 * u[0] * t}),
        ds.Event(1.3, lambda t, u, p: u - 0.1 * u**2, mode="a"),
    ]
    return ds.hybrid(modes, "a", events)


@pytest.mark.parametrize(
    ("mass", "method"),
    [
        *((None, method) for method in ("rk2a", "rk4", "rk5dp", "cn", "midpoint")),
        *((np.array([[1.3, 0.2], [0.1, 0.9]]), method) for method in ("cn", "midpoint", "beuler")),
    ],
)
def test_runs_with_events_at_given_times_agree_with_our_own_steps(mass, method):
    problem = with_events(mass)
    tight = {} if method.startswith("rk") else {"snes_rtol": 1e-14, "snes_stol": 1e-15}
    points = ds.Terminal(lambda t, u, p: u[0] ** 2 * p[0]) + ds.LeastSquares(
        [0.4, 2.0], np.ones((2, 2))
    )
    running = ds.Running(lambda t, u, p: u[0] ** 2 * p[0] + t * u[1] * p[1])
    stepping = ds.Stepping((0.0, 3.0), method, dt=0.17, options=tight)
    run = ds.solve(problem, [-0.6, 0.8], [1.1, 2.0], stepping, points.times)
    assert len(run.crossings) == 3
    for objective in (points, points + 0.3 * running):
        ours, petsc = ds.adjoint(run, objective), ds.adjoint(run, objective, "tsadjoint")
        np.testing.assert_allclose(petsc.u0, ours.u0, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(petsc.p, ours.p, rtol=1e-12, atol=1e-12)
        assert petsc.value == ours.value


def test_events_whose_times_move_are_refused():
    event = ds.Event(lambda t, u, p: u[0] - 0.5, lambda t, u, p: 2 * u, name="half")
    problem = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["rate"], events=[event])
    run = ds.solve(problem, [1.0], [1.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    with pytest.raises(ds.UnsupportedError, match=r'the implicit event "half" at t = 0\.693147'):
        ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]), "tsadjoint")
