"""Forward runs: the steps, their order, the times they hit, and how they fail."""

import frozen
import numpy as np
import pytest
from forms import (
    DECAY,
    DT,
    FORMS,
    METHODS,
    NO_ESTIMATE,
    OBSERVATION_TIMES,
    P0,
    RUNS,
    T_END,
    U0,
    make_stepping,
    rhs,
)
from petsc4py import PETSc
from scipy import sparse
from scipy.integrate import solve_ivp

from daeosens import ODE, Event, InputError, LeastSquares, SolveError, Stepping, adjoint, solve
from daeosens.errors import OptionError, SingularMatrixError
from daeosens.methods import find_method
from daeosens.problem import Products

SPAN = (0.0, 1.0)


def decay(method, **keywords):
    stepping = Stepping(SPAN, method, **{"dt": 0.1, **keywords})
    return solve(DECAY.problem, DECAY.u0, DECAY.p, stepping)


# ---- the steps -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "method", "adaptive"), RUNS)
def test_run_takes_the_steps_of_the_method(name, method, adaptive):
    stepping = make_stepping(method, adaptive=adaptive)
    run = solve(FORMS[name].automatic, U0, P0, stepping, OBSERVATION_TIMES)
    states, _ = frozen.run(FORMS[name], method, run.times, run.step_sizes, U0, P0)
    np.testing.assert_allclose(run.u, states, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(run.times[:-1] + run.step_sizes, run.times[1:])
    assert (run.times[0], run.times[-1]) == (0.0, T_END)
    if not adaptive:
        assert run.step_sizes.max() <= DT * (1 + 1e-12)


def reference(name):
    """The solution at the end of the span, by an explicit method of order 8 for the same u'."""
    if name == "M singular":  # u_2 eliminated

        def rate(t, y):
            third = P0[0] * P0[1] * y[0] * np.exp(-t) - P0[2] * y[1] ** 3
            return rhs(t, np.array([*y, third]), P0)[:2]

        start = U0[:2]
    else:
        form = FORMS[name]

        def rate(t, u):
            point = (t, u, np.zeros(3), P0)
            return np.linalg.solve(form.residual_udot(*point), -form.residual(*point))

        start = U0
    return solve_ivp(rate, SPAN, start, method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]


def observed_order(name, method, exact):
    """The order seen between two step sizes, chosen so that rounding does not show."""
    coarse = {5: 0.0625, 6: 0.125, 7: 0.5, 8: 0.5}.get(find_method(method).order, 0.05)
    if method == "esdirk6":
        coarse = 0.25
    errors = []
    for dt in (coarse, coarse / 2):
        run = solve(FORMS[name].analytic, U0, P0, Stepping(SPAN, method, dt=dt))
        errors.append(abs(run.u[-1][: len(exact)] - exact).max())
    return np.log2(errors[0] / errors[1])


@pytest.mark.parametrize("name", FORMS)
def test_orders_of_convergence(name):
    exact = reference(name)
    for method in FORMS[name].methods:
        order = find_method(method).order
        seen = observed_order(name, method, exact)
        assert seen > order - 0.3, method
        assert seen < order + 0.5 or order >= 5, method


@pytest.mark.parametrize("method", [name for name in METHODS if name not in NO_ESTIMATE])
def test_adaptive_error_follows_the_tolerance(method):
    """The error per step is controlled: methods of first order gain only its square root.

    Theta methods estimate from three states, and PETSc 3.26 accepts the first step unseen, so it
    has to be small.
    """
    errors = []
    for tolerance in (1e-3, 1e-6):
        run = decay(method, dt=1e-4, rtol=tolerance, atol=tolerance)
        errors.append(abs(run.u[-1, 0] - DECAY.solution(1.0)))
    if find_method(method).order == 1:
        assert errors[1] < errors[0] / 25  # the square root of 1000 is 32
    else:
        assert errors[0] < 2e-3
        assert errors[1] < 2e-6


def test_rejected_steps_are_counted_and_not_in_the_log():
    run = decay("rk3bs", dt=1.0, rtol=1e-8, atol=1e-8)
    assert run.effort.rejected > 0
    assert run.effort.steps == run.n_steps == len(run.states) - 1
    assert run.step_sizes[0] < 0.5


def test_effort_counts_newton_and_linear_iterations():
    explicit, implicit = decay("rk4").effort, decay("cn").effort
    assert explicit.newton_iterations == explicit.linear_iterations == 0
    assert implicit.newton_iterations >= implicit.steps
    assert implicit.linear_iterations == implicit.newton_iterations  # LU: one each


def test_max_step_bounds_adaptive_steps():
    run = decay("rk5dp", rtol=1e-3, dt=None, max_step=0.05)
    assert run.step_sizes.max() <= 0.05 * (1 + 1e-12)
    assert decay("rk5dp", rtol=1e-3, dt=None).step_sizes.max() > 0.05


# ---- times that are hit --------------------------------------------------------------------------

TIMES = {
    "inside": [0.3, 0.55],
    "first only": [0.0],
    "first within a millionth of a step": [1e-9],
    "first and inside": [0.0, 0.5],
    "end": [1.0],
    "both ends": [0.0, 1.0],
    "close together": [0.3, 0.3 + 1e-5],
    "just before the end": [1.0 - 1e-5],
    "every step": list(np.linspace(0.0, 1.0, 11)),
    "many": list(np.linspace(0.013, 0.987, 40)),
}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
@pytest.mark.parametrize(
    ("method", "keywords"),
    [("rk4", {}), ("cn", {}), ("rk3bs", {"rtol": 1e-4}), ("beuler", {"rtol": 1e-3, "atol": 1e-3})],
)
def test_steps_end_exactly_at_the_wanted_times(method, keywords, times):
    stepping = Stepping(SPAN, method, dt=0.1, **keywords)
    run = solve(DECAY.problem, DECAY.u0, DECAY.p, stepping, times)
    assert run.times[-1] == 1.0
    for t in times:
        assert t == 1e-9 or t in run.times
        np.testing.assert_array_equal(run.at(t).array, run.states[run.index(t)].array)
    if not keywords:
        assert run.n_steps <= 10 + len(times)


@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_an_early_time_does_not_shorten_the_steps_after_it(method):
    """PETSc 3.26 would go on with steps of 1e-3."""
    stepping = Stepping(SPAN, method, dt=0.1)
    run = solve(DECAY.problem, DECAY.u0, DECAY.p, stepping, [1e-3, 0.5])
    expected = [1e-3, 0.1, 0.1, 0.1, 0.0995, 0.0995]  # then on to the end
    np.testing.assert_allclose(run.step_sizes[:6], expected, rtol=0, atol=1e-15)
    assert run.n_steps == 11


@pytest.mark.parametrize(("method", "tolerance"), [("rk3bs", 1e-5), ("cn", 1e-3)])
def test_a_run_can_be_repeated_by_wanting_its_times(method, tolerance):
    """Fixed steps as long as the span, cut at every time of an adaptive run."""
    run = decay(method, rtol=tolerance, atol=tolerance)
    stepping = Stepping(SPAN, method, dt=1.0)
    again = solve(DECAY.problem, DECAY.u0, DECAY.p, stepping, run.times)
    np.testing.assert_array_equal(again.times, run.times)
    np.testing.assert_allclose(again.u, run.u, rtol=0, atol=1e-12)


def test_steps_asked_for_by_an_option_are_left_to_petsc():
    """As by -ts_adapt_type on the command line."""
    run = decay("rk5dp", dt=1e-3, options={"ts_adapt_type": "basic"})
    assert run.step_sizes.max() > 0.01


def test_run_without_wanted_times_takes_the_steps_of_dt():
    np.testing.assert_allclose(decay("rk4").times, np.linspace(0, 1, 11), rtol=0, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "error"), [("esdirk6", 1e-8), ("cn", 1e-4)])
def test_a_fast_start_of_a_long_run(method, error):
    """Seventeen decades of time: hundreds of steps far below the rounding of the last time."""
    rate, times = 1e13, np.array([1e-13, 2e-13, 1e-9, 1e4])
    problem = ODE(lambda t, u, p: np.array([-p[0] * u[0], p[0] * u[0] - 1e-3 * u[1]]), 2, ["k"])
    stepping = Stepping((0.0, 1e4), method, dt=1e-15, rtol=1e-8 if error < 1e-6 else 1e-3)
    run = solve(problem, [1.0, 0.0], [rate], stepping, times)
    values = np.array([run.at(t).array for t in times])
    np.testing.assert_allclose(values[:, 0], np.exp(-rate * times), atol=error)
    np.testing.assert_allclose(values[2:, 1], np.exp(-1e-3 * times[2:]), rtol=10 * error, atol=1e-3)
    cost = LeastSquares(times[:2], [0.3, 0.1], observe=[0])
    run = solve(problem, [1.0, 0.0], [rate], stepping, cost.times)
    decay = np.exp(-rate * times[:2])
    exact = (decay - [0.3, 0.1]) @ (-times[:2] * decay)
    assert adjoint(run, cost).p[0] == pytest.approx(exact, rel=30 * error)


@pytest.mark.parametrize("dt", [0.2, None])
@pytest.mark.parametrize("events", [(), (Event(lambda t, u, p: u[0] - 0.1),)])
def test_steps_that_shrink_to_nothing_are_an_error(events, dt):
    """Algebraic variables that jump where no breakpoint says so."""

    def jumping(t, u, p):
        return np.array([u[1] - u[0], u[1] - (1.0 if t < 0.5 else 2.0) - 0.1 * u[0]])

    problem = ODE(jumping, 2, ["a"], mass=np.diag([1.0, 0.0]), events=events)
    stepping = Stepping(SPAN, "cn", dt=dt, rtol=1e-3, atol=1e-3)
    with pytest.raises(SolveError, match=r"(?s)steps have shrunk to .*start from consistent_state"):
        solve(problem, [1.0, 1.1], [0.2], stepping)


# ---- what is passed on ---------------------------------------------------------------------------


def test_petsc_options_reach_the_solvers(capfd):
    decay("cn", options={"snes_monitor": None, "ksp_type": "gmres", "pc_type": "none"})
    assert "0 SNES Function norm" in capfd.readouterr().out


def test_option_that_nothing_reads_is_an_error_before_the_second_step():
    with pytest.raises(OptionError, match=r"tao_gatol = 1e-05 \(code\)"):
        decay("rk4", options={"tao_gatol": 1e-5})


def test_arguments_are_not_changed_and_copied():
    u0, p = DECAY.u0.copy(), DECAY.p.copy()
    run = solve(DECAY.problem, u0, p, Stepping(SPAN, "rk4", dt=0.1))
    u0[:], p[:] = 7.0, 7.0
    assert run.u[0] == DECAY.u0
    np.testing.assert_array_equal(run.p, DECAY.p)


def test_sparse_jacobians_give_the_same_run():
    """Dense and sparse, with and without the diagonal in the pattern."""

    def coupled(t, u, p):
        return np.array([p[0] * u[1], -p[0] * u[0]])

    def jacobian(t, u, p):
        return np.array([[0.0, p[0]], [-p[0], 0.0]])

    stepping = Stepping(SPAN, "cn", dt=0.1)
    dense = solve(ODE(coupled, 2, 1, jacobian=jacobian), [1.0, 0.0], [2.0], stepping)
    for kind in (sparse.csr_array, sparse.coo_matrix, sparse.csc_array):
        problem = ODE(coupled, 2, 1, jacobian=lambda *point, kind=kind: kind(jacobian(*point)))
        np.testing.assert_allclose(
            solve(problem, [1.0, 0.0], [2.0], stepping).u, dense.u, rtol=0, atol=1e-14
        )
    products = Products(
        lambda t, u, p, v: jacobian(t, u, p) @ v, lambda t, u, p, w: jacobian(t, u, p).T @ w
    )
    free = solve(ODE(coupled, 2, 1, jacobian=products), [1.0, 0.0], [2.0], stepping)
    np.testing.assert_allclose(free.u, dense.u, rtol=0, atol=1e-11)


# ---- failures ------------------------------------------------------------------------------------


def test_explosion_is_a_solve_error_that_says_where():
    """The solution of u' = u^2 from 1 reaches infinity at t = 1."""
    problem = ODE(lambda t, u, p: u**2, 1)
    with pytest.raises(SolveError, match=r"'rhs' returned inf in entry \[0\] at t = 1\.[0-9]+"):
        solve(problem, [1.0], None, Stepping((0.0, 3.0), "rk4", dt=0.1))
    with pytest.raises(SolveError, match=r"TS stopped at t = 0\.8 after 8 steps \(DIVERGED_NONLIN"):
        solve(problem, [1.0], None, Stepping((0.0, 3.0), "cn", dt=0.1))


def test_state_that_leaves_the_numbers_in_a_step_is_a_solve_error():
    problem = ODE(lambda t, u, p: np.array([1e308]), 1)
    message = (
        r"the state is not finite at t = [0-9.]+ \(step [0-9]+\)\n  expected: a finite .* t = 9"
    )
    with pytest.raises(SolveError, match=message):
        solve(problem, [1.0], None, Stepping((0.0, 9.0), "rk1fe", dt=1.0))


def test_too_few_steps_is_a_solve_error_with_the_remedy():
    message = r"t = 0\.3 after 3 steps \(CONVERGED_ITS\)\n  expected: t = 1\n  try: max_steps > 3"
    with pytest.raises(SolveError, match=message):
        decay("rk4", max_steps=3)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"ksp_type": "nothing"}, "ksp_type = nothing: Unable to find requested KSP type nothing"),
        ({"pc_type": "bjacobi", "sub_pc_type": "no"}, "sub_pc_type = no: Unable to find requested"),
    ],
)
def test_value_of_an_option_that_petsc_refuses_is_named(options, named):
    """Also one that is read as late as in the first solve."""
    with pytest.raises(OptionError, match=f"PETSc option {named}"):
        decay("cn", options=options)


def test_singular_iteration_matrix_is_a_solve_error():
    """M = 0 and f_u = 0: nothing determines u."""
    problem = ODE(lambda t, u, p: 0 * u + 1.0, 1, mass=[[0.0]])
    stepping = Stepping(SPAN, "beuler", dt=0.1)
    with pytest.raises(
        SingularMatrixError, match=r"t = 0: the matrix is singular(.|\n)*expected: equations"
    ):
        solve(problem, [1.0], None, stepping)


@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_exception_of_a_callback_comes_out_as_it_was_raised(method):
    """Not as an error of PETSc, nor as a failed solve, with the name, the time and the rank."""

    def faulty(t, u, p):
        if t > 0.5:
            raise KeyError("growth")
        return -u

    problem = ODE(faulty, 1, jacobian=lambda t, u, p: -np.eye(1))
    with pytest.raises(KeyError, match="growth") as raised:
        solve(problem, [1.0], None, Stepping(SPAN, method, dt=0.1))
    (note,) = raised.value.__notes__
    assert note.startswith("in callback 'rhs' at t = 0.")
    assert "(rank 0), in faulty, line " in note
    assert note.endswith('test_solve.py: `raise KeyError("growth")`')


def test_callback_may_say_that_the_solution_does_not_exist():
    def limited(t, u, p):
        if u[0] > 2.0:
            raise SolveError("no model beyond u = 2")
        return u

    with pytest.raises(SolveError, match="no model beyond u = 2"):
        solve(ODE(limited, 1), [1.0], None, Stepping(SPAN, "rk4", dt=0.1))


def test_callbacks_cannot_change_their_arguments():
    for problem in (
        ODE(lambda t, u, p: np.negative(u, out=u), 1, 1),
        ODE(lambda t, u, p: np.negative(p, out=p), 1, 1),
    ):
        with pytest.raises(InputError, match="is read-only, and callback"):
            solve(problem, [1.0], [1.0], Stepping(SPAN, "rk4", dt=0.1))


@pytest.mark.parametrize(
    ("u0", "p", "message"),
    [
        ([1.0, 2.0], [0.6, 1.5], r"u0 has shape \(2,\)\n  expected: shape \(1,\)"),
        ([np.nan], [0.6, 1.5], r"u0 is nan at index \[0\]"),
        (["a"], [0.6, 1.5], r"u0 is not an array of real numbers"),
        ([1j], [0.6, 1.5], r"u0 has complex numbers"),
        ([1.0], [0.6], r"p has shape \(1,\)\n  expected: shape \(2,\)"),
        ([1.0], None, r"p has shape \(0,\)\n  expected: shape \(2,\)"),
        ([1.0], [0.6, np.inf], r"p is inf at index \[1\]"),
    ],
)
def test_wrong_starting_values_are_named(u0, p, message):
    with pytest.raises(InputError, match=message):
        solve(DECAY.problem, u0, p, Stepping(SPAN, "rk4", dt=0.1))


def test_vector_as_initial_state_is_checked():
    stepping = Stepping(SPAN, "rk4", dt=0.1)
    vec = PETSc.Vec().createSeq(1, comm=PETSc.COMM_SELF)
    vec.set(DECAY.u0[0])
    np.testing.assert_array_equal(solve(DECAY.problem, vec, DECAY.p, stepping).u, decay("rk4").u)
    vec.set(np.nan)
    with pytest.raises(InputError, match="u0 contains values that are not finite"):
        solve(DECAY.problem, vec, DECAY.p, stepping)
    longer = PETSc.Vec().createSeq(2, comm=PETSc.COMM_SELF)
    message = r"u0 has \(local, global\) sizes \(2, 2\)\n  expected: \(1, 1\)"
    with pytest.raises(InputError, match=message):
        solve(DECAY.problem, longer, DECAY.p, stepping)


def test_a_function_in_place_of_a_problem_is_named():
    with pytest.raises(InputError, match="problem is function\n  expected: a Problem\n  try: ODE"):
        solve(lambda t, u, p: u, [1.0], [], Stepping((0.0, 1.0), "rk4", dt=0.1))


def test_parameters_of_another_number_are_named():
    with pytest.raises(InputError, match=r"p has shape \(1,\)\n  expected: shape \(2,\): p0, p1"):
        solve(ODE(lambda t, u, p: u, 1, 2), [1.0], [1.0], Stepping((0.0, 1.0), "rk4", dt=0.1))


def test_a_span_in_place_of_a_stepping_is_named():
    with pytest.raises(InputError, match="stepping is tuple\n  expected: a Stepping\n  try: Stepp"):
        solve(DECAY.problem, DECAY.u0, DECAY.p, (0.0, 1.0))


def test_parameters_are_taken_by_name_in_any_order():
    problem = ODE(lambda t, u, p: -p[0] * u + p[1], size=1, parameters=["rate", "feed"])
    stepping = Stepping(SPAN, "rk4", dt=0.1)
    by_name = solve(problem, [1.0], {"feed": 0.2, "rate": 1.5}, stepping)
    np.testing.assert_array_equal(by_name.u, solve(problem, [1.0], [1.5, 0.2], stepping).u)
    with pytest.raises(InputError, match="feed"):
        solve(problem, [1.0], {"rate": 1.0}, stepping)


def test_unknown_checkpoint_names_the_known_ones():
    message = r"checkpoint = 'ram'\n  expected: \"auto\", \"states\", \"stages\", .*Checkpoints"
    start = DECAY.problem, DECAY.u0, DECAY.p, Stepping(SPAN, "rk4", dt=0.1)
    with pytest.raises(InputError, match=message):
        solve(*start, checkpoint="ram")
    with pytest.raises(InputError, match=r'checkpoint = \'disk\'(.|\n)*petsc_trajectory="disk"'):
        solve(*start, checkpoint="disk")
    with pytest.raises(InputError, match="petsc_trajectory = 'ram'"):
        solve(*start, petsc_trajectory="ram")
    with pytest.raises(InputError, match=r'"stages" with petsc_trajectory = "disk"'):
        solve(*start, checkpoint="stages", petsc_trajectory="disk")


def test_wanted_time_outside_the_span_is_refused_before_the_first_step():
    with pytest.raises(InputError, match=r"time 1\.5 lies outside the time span"):
        solve(DECAY.problem, DECAY.u0, DECAY.p, Stepping(SPAN, "rk4", dt=0.1), [1.5])


def test_linear_solver_that_does_not_converge_is_a_solve_error():
    problem = FORMS["M"].analytic
    options = {"ksp_type": "richardson", "pc_type": "none", "ksp_max_it": 2}
    with pytest.raises(SolveError, match=r"TS stopped at t = 0 after 0 steps \(DIVERGED_NONLINEAR"):
        solve(problem, U0, P0, Stepping(SPAN, "cn", dt=0.1, options=options))
