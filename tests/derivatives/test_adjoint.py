"""Discrete adjoints, against independent programs, tangents and exact solutions."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import frozen
import numpy as np
import pytest
from forms import (
    ALL_OBJECTIVES,
    ANALYTIC_COST,
    COSTS,
    DECAY,
    FORMS,
    NAMES,
    OBSERVATION_TIMES,
    P0,
    RUNS,
    U0,
    initial_state,
    initial_state_p,
    make_stepping,
)

import daeosens as ds
from daeosens.derivatives import evaluate
from daeosens.derivatives.engines.request import points_by_step

CASES = list(COSTS.values())
FOLLOWING = ds.Parameters(
    {name: ds.Parameter(value, scale="log") for name, value in zip(NAMES, P0, strict=True)},
    initial_state=initial_state,
)
"""u0 is a function of the parameters, which are moved by their logarithms."""


@cache
def trajectory(name, method, adaptive):
    stepping = make_stepping(method, adaptive=adaptive)
    return ds.solve(FORMS[name].analytic, U0, P0, stepping, OBSERVATION_TIMES)


@cache
def steps_gradients(name, method, adaptive):
    return ds.adjoint(trajectory(name, method, adaptive), ALL_OBJECTIVES)


IDS = [f"{name} {method} {'adaptive' if ad else 'fixed'}" for name, method, ad in RUNS]
each_run = pytest.mark.parametrize(("name", "method", "adaptive"), RUNS, ids=IDS)


def difference(ours, reference):
    """The largest difference, relative to the largest component."""
    return abs(ours - reference).max() / max(abs(reference).max(), 1e-3)


# ---- against independent references --------------------------------------------------------------


@each_run
def test_gradient_is_that_of_an_independent_program(name, method, adaptive):
    """Value, u0 and p of every cost; the last step is cut, adaptive runs reject steps."""
    run = trajectory(name, method, adaptive)
    point = (FORMS[name], method, (run.times, run.step_sizes), CASES, U0, P0)
    values = frozen.values(*point)
    by_u0, by_p = frozen.gradients(*point)
    for k, gradient in enumerate(steps_gradients(name, method, adaptive)):
        assert abs(gradient.value - values[k]) < 1e-12 * abs(values[k])
        assert difference(gradient.u0, by_u0[k]) < 1e-12, CASES[k].name
        assert difference(gradient.p, by_p[k]) < 1e-12, CASES[k].name


@each_run
def test_gradient_is_dual_to_the_tangent(name, method, adaptive, rng):
    run = trajectory(name, method, adaptive)
    for du0, dp in (
        (rng.normal(size=3), None),
        (None, rng.normal(size=3)),
        rng.normal(size=(2, 3)),
    ):
        moved = ds.tangent(run, du0, dp)
        for case, gradient in zip(CASES, steps_gradients(name, method, adaptive), strict=True):
            parts = np.concatenate(
                [
                    np.zeros(3) if du0 is None else gradient.u0 * du0,
                    np.zeros(3) if dp is None else gradient.p * dp,
                ]
            )
            forward = moved.derivative(case.objective)
            assert abs(forward - parts.sum()) <= 1e-12 * max(abs(parts).sum(), 1e-3), case.name


# ---- several costs, checkpoints, repetition ------------------------------------------------------

ONE_OF_EACH = [
    ("rhs", "rk4"),
    ("rhs", "rk5dp"),
    ("M(p)", "cn"),
    ("M singular", "beuler"),
    ("F", "cn"),
]


@pytest.mark.parametrize(("name", "method"), ONE_OF_EACH)
def test_several_costs_at_once_are_the_same_as_one_by_one(name, method):
    run = trajectory(name, method, False)
    for case, together in zip(CASES, steps_gradients(name, method, False), strict=True):
        alone = ds.adjoint(run, case.objective)
        assert alone.value == together.value
        assert difference(alone.u0, together.u0) < 1e-14
        assert difference(alone.p, together.p) < 1e-14


@pytest.mark.parametrize("kept", ["memory", "disk"])
@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize(
    ("name", "method"), [("rhs", "rk5dp"), ("M(p)", "cn"), ("M", "midpoint"), ("rhs", "beuler")]
)
def test_recorded_runs_give_the_same_gradients_as_often_as_asked(name, method, adaptive, kept):
    """The recording serves the first sweep; running costs and later sweeps repeat the run."""
    stepping = make_stepping(method, adaptive=adaptive)
    problem = FORMS[name].analytic
    run = ds.solve(problem, U0, P0, stepping, OBSERVATION_TIMES, petsc_trajectory=kept)
    plain = trajectory(name, method, adaptive)
    np.testing.assert_array_equal(run.u, plain.u)
    assert len(run.recording) == 1
    expected = dict(zip(COSTS, steps_gradients(name, method, adaptive), strict=True))
    for cost in ("sum", "observations", "terminal", "observations"):
        gradient = ds.adjoint(run, COSTS[cost].objective, engine="tsadjoint")
        assert len(run.recording) == (cost == "sum")  # a running cost cannot use the recording
        assert difference(gradient.u0, expected[cost].u0) < 1e-12
        assert difference(gradient.p, expected[cost].p) < 1e-12
        again = ds.adjoint(run, COSTS[cost].objective)
        np.testing.assert_array_equal(again.u0, ds.adjoint(plain, COSTS[cost].objective).u0)


def test_recording_on_disk_is_removed_with_the_trajectory(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stepping = make_stepping("rk4")
    run = ds.solve(DECAY.problem, DECAY.u0, DECAY.p, stepping, petsc_trajectory="disk")
    (folder,) = Path(tmp_path).iterdir()
    assert len(list(folder.glob("*.bin"))) == run.n_steps + 1
    ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]), engine="tsadjoint")
    assert list(Path(tmp_path).iterdir()) == []


def test_analytic_derivatives_and_complex_step_agree():
    for name, method in ONE_OF_EACH:
        form = FORMS[name]
        run = ds.solve(form.automatic, U0, P0, make_stepping(method), OBSERVATION_TIMES)
        ours = ds.adjoint(run, COSTS["sum"].objective)
        analytic = ds.adjoint(trajectory(name, method, False), ANALYTIC_COST)
        assert difference(ours.u0, analytic.u0) < 1e-13
        assert difference(ours.p, analytic.p) < 1e-13


def test_weights_of_a_sum_are_those_of_its_gradient():
    run = trajectory("rhs", "rk4", False)
    terminal, running = COSTS["terminal"].objective, COSTS["running"].objective
    both = ds.adjoint(run, 2.0 * terminal + running * 0.5 + 3.0 * (terminal + running))
    parts = ds.adjoint(run, [terminal, running])
    assert both.value == pytest.approx(5.0 * parts[0].value + 3.5 * parts[1].value, rel=1e-14)
    np.testing.assert_allclose(both.p, 5.0 * parts[0].p + 3.5 * parts[1].p, rtol=1e-13)


@pytest.mark.parametrize("engine", ["vectors", "arrays", "tsadjoint"])
@pytest.mark.parametrize("method", ["rk4", "cn", "beuler", "midpoint"])
def test_problem_without_parameters(method, engine):
    pendulum = ds.ODE(lambda t, u, p: np.array([u[1], -np.sin(u[0])]), 2)
    run = ds.solve(pendulum, [0.4, 0.1], None, ds.Stepping((0.0, 1.0), method, dt=0.1))
    cost = ds.Terminal(lambda t, u, p: u[0] * u[1]) + ds.Running(lambda t, u, p: u[0] ** 2)
    gradient = ds.adjoint(run, cost, engine)
    forward = ds.tangent(run, [0.3, -0.2]).derivative(cost)
    assert gradient.p.shape == (0,)
    assert gradient.u0 @ [0.3, -0.2] == pytest.approx(forward, rel=1e-12)


@pytest.mark.parametrize("engine", ["vectors", "arrays", "tsadjoint"])
def test_observations_at_the_first_time_and_at_every_step(engine):
    """The first time needs no step; there the gradient is the observation's own."""
    times = np.linspace(0.0, 1.0, 11)
    data = np.array([DECAY.solution(t) + 0.1 for t in times])
    stepping = ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
    every = ds.LeastSquares(times, data)
    first = ds.LeastSquares(times[:1], data[:1], sigma=0.5)
    run = ds.solve(DECAY.problem, DECAY.u0, DECAY.p, stepping, times)
    assert run.n_steps == 10
    gradients = ds.adjoint(run, [every, first], engine)
    np.testing.assert_allclose(gradients[1].u0, [-0.1 / 0.25], rtol=1e-12)
    np.testing.assert_array_equal(gradients[1].p, [0.0, 0.0])
    # residuals are -0.1 up to the error of the method: the gradient sums the exact sensitivities
    exact = -0.1 * np.sum([DECAY.by_p(t) for t in times], axis=0)
    np.testing.assert_allclose(gradients[0].p, exact, rtol=1e-5)


def test_gradient_converges_to_that_of_the_exact_solution_with_the_order_of_the_method():
    cost = ds.Terminal(lambda t, u, p: u[0])
    for method, order in (("rk1fe", 1), ("rk3bs", 3), ("rk4", 4), ("cn", 2), ("beuler", 1)):
        errors = []
        for dt in (0.1, 0.05):
            run = ds.solve(DECAY.problem, DECAY.u0, DECAY.p, ds.Stepping((0.0, 1.0), method, dt=dt))
            errors.append(abs(ds.adjoint(run, cost).p - DECAY.by_p(1.0)).max())
        assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15), method


# ---- refusals ------------------------------------------------------------------------------------


def test_unknown_engine_is_named_with_the_known_ones():
    run = trajectory("rhs", "rk4", False)
    with pytest.raises(
        ds.InputError, match=r'engine = .step.\n  expected: "auto", "vectors", "arrays", "compiled"'
    ):
        ds.adjoint(run, COSTS["terminal"].objective, engine="step")


def test_no_objective_is_an_error():
    with pytest.raises(ds.InputError, match=r"no objective given\n  expected: at least one"):
        ds.adjoint(trajectory("rhs", "rk4", False), [])


@pytest.mark.parametrize(
    "use",
    [
        ds.adjoint,
        evaluate,
        lambda run, _: ds.sensitivities(run),
        lambda run, _: ds.tangent(run, U0),
    ],
)
def test_a_problem_is_no_trajectory(use):
    message = r"trajectory is Problem\n  expected: a Trajectory\n  try: solve\(problem, u0"
    with pytest.raises(ds.InputError, match=message):
        use(FORMS["rhs"].analytic, ds.Terminal(lambda t, u, p: u[0]))


@pytest.mark.parametrize("objective", [sum, [sum]])
def test_a_bare_function_is_no_objective(objective):
    message = r"the objective is builtin_\w+\n  expected: Terminal.*\n  try: Terminal\(function\)"
    with pytest.raises(ds.InputError, match=message):
        ds.adjoint(trajectory("rhs", "rk4", False), objective)
    if callable(objective):
        control = ds.Parameters({"p0": ds.Parameter(1.0)}, initial_state=U0)
        with pytest.raises(ds.InputError, match=message):
            ds.Reduced(
                FORMS["rhs"].analytic, objective, make_stepping("rk4", adaptive=False), control
            )


@pytest.mark.parametrize("engine", ["vectors", "arrays", "tsadjoint"])
def test_observation_time_that_no_step_hits_is_named_with_the_remedy(engine):
    run = ds.solve(DECAY.problem, DECAY.u0, DECAY.p, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    missed = ds.LeastSquares([0.25], [0.0])
    message = r"t = 0\.25 is not a step time \(the nearest is 0\.2\)(.|\n)*t_eval=objective\.times"
    for act in (lambda: ds.adjoint(run, missed, engine), lambda: evaluate(run, missed)):
        with pytest.raises(ds.InputError, match=message):
            act()


def test_adjoint_needs_the_derivatives_that_were_not_supplied():
    """A prior names a parameter; the message says which names there are."""
    run = ds.solve(DECAY.problem, DECAY.u0, DECAY.p, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    with pytest.raises(
        ds.InputError, match=r'prior names parameter "aa"\n  expected: a, b\n  try: "a"'
    ):
        ds.adjoint(run, ds.Prior([0.0], names=["aa"]))


def test_initial_state_jacobian_found_automatically_is_the_analytic_one(rng):
    value = ds.Parameters(FOLLOWING.values, initial_state, initial_state_p)
    problem = FORMS["rhs"].analytic
    gradient = steps_gradients("rhs", "rk4", False)[-1]
    x = value.start(problem)
    ours = FOLLOWING.pull_back(problem, x, gradient).getArray()
    theirs = value.pull_back(problem, x, gradient).getArray()
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-14)


@pytest.mark.parametrize("engine", ["auto", "arrays", "vectors"])
def test_a_gradient_that_is_not_finite_is_an_error_with_every_engine(engine):
    """Steps far too large for a state that is zero: the run is right, its derivative overflows."""
    model = ds.trace(lambda t, u, p: np.array([-p.k * u[0], u[0] - u[1]]), 2, ["k"])
    run = ds.solve(model, [0.0, 1.0], [1000.0], ds.Stepping((0.0, 10.0), "rk4", dt=0.1))
    cost = model.terminal(lambda t, u, p: u[1])
    with pytest.raises(ds.SolveError, match="the gradient in u0 is not finite"):
        ds.adjoint(run, cost, engine)


def test_points_are_sorted_by_the_step_they_belong_to():
    first = SimpleNamespace(points=((0.5, 1.0, "a"), (1.0, 2.0, "b")))
    second = SimpleNamespace(points=((0.5, 3.0, "c"),))
    assert points_by_step(SimpleNamespace(index=lambda t: int(10 * t)), [first, second]) == {
        5: [(0, 1.0, "a", None), (1, 3.0, "c", None)],
        10: [(0, 2.0, "b", None)],
    }
