"""Steps that resolve derivatives: layers, algebraic equations, events, ranks, and refusals."""

import numpy as np
import pytest
from distributed import make, make_cost
from petsc4py import PETSc

import daeosens as ds
from daeosens.derivatives.step_placement.step_control import chosen_directions, error_ratios
from tests.derivatives.test_discretization_error import truth, van_der_pol_esdirk5


@pytest.mark.slow
@pytest.mark.parametrize("control", ["sensitivities", [1]])
def test_derivatives_through_a_layer_that_the_state_does_not_see_are_resolved(control):
    case = van_der_pol_esdirk5()
    direction = np.array([0.0, 1.0, 0.0])
    _, gradient, product = truth(case, direction)
    errors = {}
    for chosen in ("states", control):
        stepping = ds.Stepping((0.0, 500.0), "esdirk5", rtol=1e-8, control=chosen)
        run = ds.solve(case.problem, case.u0, case.p, stepping)
        hessian_vector = ds.hessian_product(run, case.objective, direction[:2])
        pairs = (hessian_vector.gradient.u0[1], gradient[1]), (hessian_vector.u0[1], product[1])
        errors[str(chosen)] = [abs(ours / exact - 1.0) for ours, exact in pairs]
    assert errors["states"][0] > 5e-7
    assert errors["states"][1] > 1e-2
    assert max(errors[str(control)]) < 2e-6


def oscillator(**more):
    return ds.trace(
        lambda t, u, p: np.stack([u[1], p[1] * (1.0 - u[0] ** 2) * u[1] - p[0] * u[0]]),
        2,
        ["stiffness", "mu"],
        **more,
    )


@pytest.mark.parametrize("method", ["rk3bs", "rk5dp", "rk6vr", "esdirk3", "esdirk5", "cn"])
def test_no_step_is_left_in_which_a_tangent_errs_by_more_than_the_tolerance(method):
    stepping = ds.Stepping((0.0, 6.0), method, rtol=1e-4, control="sensitivities")
    model, start = oscillator(), ([2.0, 0.0], [1.0, 20.0])
    run = ds.solve(model, *start, stepping)
    units = chosen_directions(model, "sensitivities")
    assert error_ratios(run, units, 1e-4).max() <= 2.0
    plain = ds.solve(model, *start, ds.Stepping((0.0, 6.0), method, rtol=1e-4))
    assert error_ratios(plain, units, 1e-4).max() > 2.2


def test_the_unit_of_a_parameter_does_not_matter():
    def in_unit(unit):
        model = ds.trace(lambda t, u, p: -unit * p[0] * u * u, 1, ["rate"])
        stepping = ds.Stepping((0.0, 3.0), "rk5dp", rtol=1e-6, control=["rate"])
        return ds.solve(model, [1.0], [2.0 / unit], stepping).times

    np.testing.assert_allclose(in_unit(1.0), in_unit(1e6), rtol=1e-6)


@pytest.mark.parametrize("method", ["rk5dp", "esdirk4", "cn"])
def test_derivatives_are_those_of_the_accepted_steps(method):
    model, cost = oscillator(), ds.LeastSquares([2.0, 4.0], [[1.0, 0.0], [0.5, 0.1]])
    stepping = ds.Stepping((0.0, 4.0), method, rtol=1e-4, control="sensitivities")
    run = ds.solve(model, [2.0, 0.0], [1.0, 1.5], stepping, cost.times)
    product = ds.hessian_product(run, cost, [0.1, 0.2], [0.3, -0.1])
    along = ds.tangent(run, [0.1, 0.2], [0.3, -0.1]).derivative(cost)
    gradient = product.gradient
    forward = gradient.u0 @ [0.1, 0.2] + gradient.p @ [0.3, -0.1]
    assert along == pytest.approx(forward, rel=1e-11)
    fixed = ds.Stepping((0.0, 4.0), method, dt=float(run.step_sizes.max()), t_eval=run.times[1:-1])
    control = ds.Parameters({"stiffness": 1.0, "mu": ds.Parameter(1.5)}, [2.0, 0.0])
    reduced = ds.Reduced(model, cost, fixed, control)
    assert reduced.trajectory(reduced.start()).n_steps == run.n_steps
    np.testing.assert_allclose(reduced.gradient(reduced.start())[:], gradient.p[1:], rtol=1e-8)
    taylor = ds.taylor(reduced, seed=1, hessian=True)
    assert taylor.order > 1.9
    assert taylor.hessian_order > 2.9


def test_algebraic_equations_and_their_variables():
    dae = ds.trace(
        lambda t, u, p: np.stack([-p[0] * u[0] + u[1], u[1] - p[1] * u[0] ** 2]),
        2,
        ["a", "b"],
        mass=np.diag([1.0, 0.0]),
    )
    final = ds.Terminal(lambda t, u, p: u[0])
    for method, rtol in (("esdirk4", 1e-6), ("cn", 1e-4)):
        stepping = ds.Stepping((0.0, 2.0), method, rtol=rtol, control="sensitivities")
        run = ds.solve(dae, [1.0, 0.5], [1.0, 0.5], stepping)
        assert run.n_steps < 1000
        assert ds.derivatives.derivative_error(run, final).relative["p"] < 2 * rtol


@pytest.mark.parametrize("method", ["rk5dp", "esdirk4", "cn"])
def test_events_breakpoints_and_observations_are_hit_and_resolved(method):
    refill = ds.Event(lambda t, u, p: u[0] - p[1], lambda t, u, p: u + 0.3, direction=-1, name="a")
    tank = ds.trace(
        lambda t, u, p: -p[0] * u, 1, ["rate", "level"], events=[refill], breakpoints=[1.7]
    )
    stepping = ds.Stepping((0.0, 2.0), method, rtol=1e-5, control="sensitivities")
    run = ds.solve(tank, [1.0], [0.8, 0.5], stepping, [0.3])
    assert len(run.crossings) == 2
    assert run.at(0.3).size == run.at(1.7).size == 1
    exact = (0.5 + 0.3) ** 2 / 0.5**2 * np.exp(-1.6)
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))
    np.testing.assert_allclose(gradient.u0, [exact], rtol=1e-4)
    np.testing.assert_allclose(gradient.p[0], -2.0 * exact, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("method", ["rk5dp", "esdirk4", "cn"])
def test_steps_do_not_depend_on_the_number_of_ranks(method):
    ours, alone = (run_on(comm, method) for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF))
    np.testing.assert_allclose(ours.times, alone.times, rtol=1e-5)
    assert ours.n_steps > 10


def run_on(comm, method):
    case = make(comm)
    control = [*case.problem.parameter_names, 0, 5]
    stepping = ds.Stepping((0.0, 0.2), method, rtol=1e-3, atol=1e-3, control=control)
    return ds.solve(case.problem, case.u0, case.p, stepping, make_cost(case).times)


def test_what_cannot_be_controlled_is_refused():
    model = oscillator()

    def run(control, problem=model, **more):
        stepping = ds.Stepping((0.0, 1.0), "rk5dp", rtol=1e-3, control=control)
        return ds.solve(problem, np.ones(problem.size), np.ones(2), stepping, **more)

    with pytest.raises(ds.InputError, match=r'no parameter "stifness"[\s\S]*"stiffness"'):
        run(["stifness"])
    with pytest.raises(ds.InputError, match=r"no state 2\n  expected: 0 to 1"):
        run([2])
    large = ds.ODE(lambda t, u, p: -u, 200, ["a", "b"])
    with pytest.raises(ds.InputError, match="2 parameters and 200 initial states"):
        run("sensitivities", large)
    with pytest.raises(ds.UnsupportedError, match='petsc_trajectory = "memory" with control'):
        run("sensitivities", petsc_trajectory="memory")
    with pytest.raises(ds.InputError, match="without rtol or atol"):
        ds.Stepping((0.0, 1.0), "rk4", dt=0.1, control="sensitivities")
    for wrong in ("derivatives", [], [True], [0.5]):
        with pytest.raises(ds.InputError, match="control = "):
            ds.Stepping((0.0, 1.0), "rk5dp", rtol=1e-3, control=wrong)


def test_tangents_that_no_step_resolves_are_an_error():
    model = ds.ODE(lambda t, u, p: p[0] * np.sign(np.sin(40.0 * t)) * u, 1, ["rate"])
    stepping = ds.Stepping((0.0, 1.0), "rk3bs", rtol=1e-9, atol=1.0, max_steps=300, control=[0])
    with pytest.raises(ds.SolveError, match="tangents are not resolved from t = "):
        ds.solve(model, [1.0], [1.0], stepping)


def test_states_are_controlled_by_name_or_number():
    problem = ds.ODE(lambda t, u, p: np.array([-p[0] * u[0], u[0]]), ["drug", "sum"], ["rate"])
    runs = [
        ds.solve(
            problem, [1.0, 0.0], [3.0], ds.Stepping((0.0, 3.0), "rk5dp", rtol=1e-6, control=control)
        )
        for control in (["rate", "drug"], ["rate", 0])
    ]
    np.testing.assert_array_equal(runs[0].times, runs[1].times)
    wrong = ds.Stepping((0.0, 3.0), "rk5dp", rtol=1e-6, control=["drugs"])
    with pytest.raises(ds.InputError, match=r'no parameter "drugs"(.|\n)*rate, drug, sum'):
        ds.solve(problem, [1.0, 0.0], [3.0], wrong)
