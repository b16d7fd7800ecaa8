"""method="auto": what is chosen, that runs say so, and that derivatives are those of the run."""

import re

import numpy as np
import pytest

import daeosens as ds
from daeosens.petsc import gather
from daeosens.timestepping.method_choice import is_stiff


def relaxed(make=ds.ODE):
    """Decay at a rate p[0] towards cos(t)."""
    return make(lambda t, u, p: -p[0] * (u - np.cos(t)), 1, ["rate"])


def stepping(end=10.0, rtol=1e-6, **more):
    return ds.Stepping((0.0, end), "auto", rtol=rtol, **more)


# of the fast decay the derivative, 1e-5 of the state, is wrong by 0.6 %
unresolved = pytest.mark.filterwarnings("ignore::daeosens.errors.DiscretizationWarning")


@unresolved
@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize(
    ("rate", "method", "told"),
    [(2.0, "rk6vr", "auto: not stiff"), (1e5, "esdirk5", "auto: stiff at the start, .* in 1e-05")],
)
def test_the_jacobian_at_the_start_chooses(make, rate, method, told):
    run = ds.solve(relaxed(make), [0.0], [rate], stepping())
    assert run.stepping.method == method
    assert re.search(f"steps of {method} \\({told}", repr(run))
    named = ds.solve(relaxed(make), [0.0], [rate], ds.Stepping((0.0, 10.0), method, rtol=1e-6))
    np.testing.assert_array_equal(run.times, named.times)
    final = ds.Terminal(lambda t, u, p: u[0])
    np.testing.assert_array_equal(ds.adjoint(run, final).p, ds.adjoint(named, final).p)


def test_equations_that_become_stiff_are_run_again():
    """U' = -exp(2 t) (u - 1): slow at the start, a rate of 5e8 at the end."""
    problem = ds.ODE(lambda t, u, p: -p[0] * np.exp(2 * t) * (u - 1), 1, ["rate"])
    run = ds.solve(problem, [0.0], [1.0], stepping())
    assert run.stepping.method == "esdirk5"
    assert "stiff after t =" in repr(run)
    assert run.effort.steps < 500
    assert run.final[0] == pytest.approx(1.0, abs=1e-8)


def test_runs_by_any_method_tell_whether_stability_would_hold_explicit_steps():
    """A decay of 1e5, and one of 1e3 at which explicit steps end up: the same of both."""
    for rate, method, stiff in (
        (1e5, "esdirk5", True),
        (2.0, "esdirk5", False),
        (2.0, "rk8vr", False),
        (1e3, "rk8vr", True),
        (1e3, "cn", True),
    ):
        problem = relaxed()
        run = ds.solve(problem, [0.0], [rate], ds.Stepping((0.0, 10.0), method, rtol=1e-3))
        assert is_stiff(run, 25) == stiff, (rate, method)


def test_long_runs_that_are_not_stiff_stay_explicit():
    """An oscillator over 300 periods: more steps than a look is worth."""
    problem = ds.ODE(lambda t, u, p: np.array([u[1], -p[0] * u[0]]), 2, ["k"])
    run = ds.solve(problem, [1.0, 0.0], [1.0], stepping(2000.0, 1e-8))
    assert run.stepping.method == "rk6vr"
    assert run.effort.steps > 2000


@pytest.mark.slow
def test_other_forms_leave_no_choice():
    mass = ds.ODE(
        lambda t, u, p: np.array([-p[0] * u[0], u[1] - u[0]]), 2, ["k"], mass=np.diag([1.0, 0.0])
    )
    assert ds.solve(mass, [1.0, 1.0], [0.5], stepping()).stepping.method == "esdirk5"
    residual = ds.DAE(lambda t, u, udot, p: udot + p[0] * u, 1, ["k"])
    assert ds.solve(residual, [1.0], [0.5], stepping()).stepping.method == "cn"


@unresolved
@pytest.mark.parametrize(("rate", "method"), [(2.0, "rk6vr"), (1e5, "esdirk5")])
def test_derivatives_are_those_of_the_run(rate, method):
    """Of both orders those of the method by its name, whose tests are elsewhere; and dual."""
    misfit = ds.LeastSquares([2.0, 9.0], [0.1, 0.3], 0.1)
    control = ds.Parameters({"rate": ds.Parameter(rate, scale="log")}, [0.3])
    functionals = [
        ds.Reduced(relaxed(), misfit, ds.Stepping((0.0, 10.0), name, rtol=1e-6), control)
        for name in ("auto", method)
    ]
    x = functionals[0].start()
    for name in ("value", "hessian"):
        here, there = (getattr(functional, name)(x) for functional in functionals)
        np.testing.assert_array_equal(here, there)
    run = functionals[0].trajectory(x)
    assert run.stepping.method == method
    along = ds.tangent(run, [0.3], [1.0]).derivative(misfit)
    gradient = ds.adjoint(run, misfit)
    assert along == pytest.approx(0.3 * gradient.u0[0] + gradient.p[0], rel=1e-12)


def test_a_functional_keeps_its_method():
    """Values of two methods differ by the error of the steps, which minimisers would see."""
    misfit = ds.LeastSquares([2.0, 9.0], [0.1, 0.3], 0.1)
    control = ds.Parameters({"rate": ds.Parameter(2.0, scale="log")}, [0.3])
    functional = ds.Reduced(relaxed(), misfit, stepping(), control)
    functional.value([np.log(2.0)])
    assert functional.stepping.method == "rk6vr"
    functional.limit_steps(limited=True)
    with pytest.raises(ds.SolveError, match=r"the equations are stiff(.|\n)*esdirk5"):
        functional.value([np.log(1e6)])
    assert functional.trajectory([np.log(3.0)]).stepping.choice == "not stiff"


def test_minimisations_that_lead_into_stiffness_go_on_implicitly():
    """From a rate of 5 to one of 2000, where the best runs take thousands of explicit steps."""
    times = np.array([0.0005, 0.001, 0.002, 10.0])
    data = ds.solve(
        relaxed(), [0.0], [2000.0], ds.Stepping((0.0, 10.0), "esdirk5", rtol=1e-9), times
    )
    misfit = ds.LeastSquares(times, [[data.at(t)[0]] for t in times], 0.01)
    control = ds.Parameters({"rate": ds.Parameter(5.0, scale="log")}, [0.0])
    functional = ds.Reduced(relaxed(), misfit, stepping(10.0), control)
    result = ds.minimize(functional, method="bntr", hessian="gauss_newton", gradient_tolerance=1e-3)
    assert result.converged
    assert np.exp(gather(result.x)[0]) == pytest.approx(2000.0, rel=1e-3)
    assert functional.stepping.method == "esdirk5"
    assert functional.stepping.choice == "stiff along the best run"
    assert functional.trajectory(result.x).effort.steps < 1000


def test_fixed_steps_are_refused():
    with pytest.raises(ds.InputError, match=r'method = "auto" with fixed steps(.|\n)*rtol'):
        ds.Stepping((0.0, 1.0), "auto", dt=0.1)
    assert ds.Stepping((0.0, 1.0), "auto", rtol=1e-6) == ds.Stepping((0.0, 1.0), "auto", rtol=1e-6)


def test_a_fit_says_what_it_has_chosen():
    control = ds.Parameters({"rate": ds.Parameter(3e4, scale="log")}, [0.0])
    data = {"t": [1e-5, 3e-5, 10.0], "u": [0.63, 0.95, -0.839]}
    fitted = ds.fit(relaxed(), data, control, stepping())
    assert fitted.converged
    assert fitted.estimate["rate"] == pytest.approx(1e5, rel=0.05)
    assert "steps: esdirk5 (auto: stiff at the start, where something decays in 3" in repr(fitted)


def test_runs_by_equal_choices_share_their_steps_and_others_do_not() -> None:
    stepping = ds.Stepping((0.0, 1.0), rtol=1e-6)
    slow, fast = (
        ds.solve(ds.ODE(lambda t, u, p: -p[0] * u, 1, 1), [1.0], [rate], stepping)
        for rate in (1.0, 1e6)
    )
    again = ds.solve(slow.problem, [2.0], [1.5], stepping)
    assert again.stepping is slow.stepping
    assert (slow.stepping.method, fast.stepping.method) == ("rk6vr", "esdirk5")
    faster = ds.solve(fast.problem, [1.0], [3e6], stepping)
    assert fast.stepping.choice != faster.stepping.choice
    assert "1e-06" in fast.stepping.choice
    assert stepping.method == "auto"


def test_runs_that_keep_trajectories_of_petsc_stay_explicit():
    """Stability holds their steps small, but the adjoint of PETSc has no others."""

    def cooling(t, u, p):
        return 900.0 * p[0] * (np.concatenate([u[1:], [0.0]]) - 2.0 * u + np.append(0.0, u[:-1]))

    problem, start = ds.ODE(cooling, 30, ["conductivity"]), np.ones(30)
    stepping, cost = (
        ds.Stepping((0.0, 0.4), "auto", rtol=1e-5),
        ds.Terminal(lambda t, u, p: u.sum()),
    )
    assert ds.solve(problem, start, [1.0], stepping).stepping.method == "esdirk5"
    run = ds.solve(problem, start, [1.0], stepping, petsc_trajectory="memory")
    assert run.stepping.method == "rk6vr"
    theirs, ours = (ds.adjoint(run, cost, engine=engine) for engine in ("tsadjoint", "vectors"))
    np.testing.assert_allclose(theirs.p, ours.p, rtol=1e-12)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_a_mass_with_parameters_is_for_the_method_that_takes_it(make):
    """Of m u' = -u from 1: ESDIRK methods have no M(p), and adaptive steps name no method."""
    problem = make(lambda t, u, p: -u, 1, ["m"], mass=lambda p: np.array([[p[0]]]))
    run = ds.solve(problem, [1.0], [2.0], ds.Stepping((0.0, 1.0), rtol=1e-6))
    assert run.stepping.method == "cn"
    assert "steps of cn (auto: M(p) u' = f" in repr(run)
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))
    assert gradient.value == pytest.approx(np.exp(-0.5), rel=1e-5)
    assert gradient.p[0] == pytest.approx(0.25 * np.exp(-0.5), rel=1e-4)
