"""The log of steps in Python and in C: the same steps, states and errors."""

import numpy as np
import pytest
from native_model import U0, P, compiled_ode, numpy_costs, numpy_ode

from daeosens import ODE, Event, SolveError, Stepping, adjoint, solve
from daeosens.methods import find_method
from daeosens.timestepping import runner, step_log
from tests.petsc.test_c_function import MASS

EXPLICIT = ["1fe", "2a", "3", "3bs", "4", "rk4", "5f", "5dp", "5bs", "6vr", "7vr", "8vr"]
IMPLICIT = ["beuler", "cn", "midpoint", "theta:0.7"]
ADAPTIVE = [name for name in EXPLICIT + IMPLICIT if find_method(name).adaptive]
T_EVAL = [0.1234, 0.5, 0.5001, 0.77]


def same(result, expected):
    """Compare two runs bit for bit."""
    np.testing.assert_array_equal(result.times, expected.times)
    np.testing.assert_array_equal(result.step_sizes, expected.step_sizes)
    np.testing.assert_array_equal(result.u, expected.u)
    assert result.effort == expected.effort


@pytest.fixture
def no_python(monkeypatch):
    """Forbid the log in Python."""

    def forbidden(*_arguments):
        raise AssertionError("Python in a step")

    def use(run):
        with monkeypatch.context() as patch:
            patch.setattr(step_log.StepLog, "before_step", forbidden)
            patch.setattr(step_log.StepLog, "after_step", forbidden)
            return run()

    return use


@pytest.mark.parametrize("t_eval", [(), T_EVAL], ids=["free", "observed"])
@pytest.mark.parametrize("method", EXPLICIT + IMPLICIT)
def test_fixed_steps_are_the_same(c, no_python, method, t_eval):
    stepping = Stepping((0.0, 1.0), method, dt=0.03)
    refusal = no_python(lambda: solve(compiled_ode(c), U0, P, stepping, t_eval))
    same(refusal, solve(numpy_ode(), U0, P, stepping, t_eval))


@pytest.mark.parametrize("t_eval", [(), T_EVAL], ids=["free", "observed"])
@pytest.mark.parametrize("method", ADAPTIVE)
def test_adaptive_steps_are_the_same(c, no_python, method, t_eval):
    stepping = Stepping((0.0, 3.0), method, rtol=1e-5, atol=1e-7, dt=0.5)
    refusal = no_python(lambda: solve(compiled_ode(c), U0, P, stepping, t_eval))
    same(refusal, solve(numpy_ode(), U0, P, stepping, t_eval))


def test_steps_with_a_mass_matrix_are_the_same(c, no_python):
    stepping = Stepping((0.0, 3.0), "beuler", rtol=1e-4, atol=1e-6)
    refusal = no_python(lambda: solve(compiled_ode(c, mass=MASS), U0, P, stepping, T_EVAL))
    same(refusal, solve(numpy_ode(mass=MASS), U0, P, stepping, T_EVAL))


@pytest.mark.parametrize("steps", [1000, 7])
def test_stages_are_the_same_as_far_as_memory_goes(c, no_python, monkeypatch, steps):
    # the first of four stages is the state before the step
    monkeypatch.setitem(runner.STAGES, "stages", 8 * 2 * 3 * steps)
    stepping = Stepping((0.0, 1.0), "rk4", dt=0.05)
    refusal = no_python(lambda: solve(compiled_ode(c), U0, P, stepping, checkpoint="stages"))
    expected = solve(numpy_ode(), U0, P, stepping, checkpoint="stages")
    assert len(refusal.stages) == len(expected.stages) == min(20, steps)
    for kept, others in zip(refusal.stages.values(), expected.stages.values(), strict=True):
        for stage, other in zip(kept, others, strict=True):
            np.testing.assert_array_equal(stage.getArray(), other.getArray())
    gradient, other = adjoint(refusal, numpy_costs()), adjoint(expected, numpy_costs())
    np.testing.assert_array_equal(gradient.p, other.p)


def messages(problems, stepping, u0=U0):
    """Return what the runs of two problems say when they fail."""
    texts = []
    for problem in problems:
        with pytest.raises(SolveError) as caught:
            solve(problem, u0, P, stepping)
        texts.append(str(caught.value))
    return texts


def test_too_many_steps_are_told_alike(c):
    text, expected = messages(
        [compiled_ode(c), numpy_ode()], Stepping((0.0, 1.0), "rk4", dt=0.01, max_steps=50)
    )
    assert text == expected
    assert "after 50 steps" in text


def test_states_that_are_not_finite_are_told_alike(c):
    """The right-hand side is finite still where the new state is not."""
    large = [1.0e308, 1.0e308]
    problems = [
        ODE(c.growth, 2, 2),
        ODE(lambda t, u, p: np.array([0.9 * u[0], 0.9 * u[1]]), 2, 2),
    ]
    text, expected = messages(problems, Stepping((0.0, 9.0), "1fe", dt=1.0), large)
    assert text == expected
    assert "the state is not finite at t = 1 (step 1)" in text


def test_shrinking_steps_are_told_alike(c):
    problems = [
        ODE(c.blow_up, 2, 2),
        ODE(lambda t, u, p: np.array([u[0] * u[0], 0.0]), 2, 2),
    ]
    stepping = Stepping((0.0, 2.0), "5dp", rtol=1e-8, atol=1e-8)
    text, expected = messages(problems, stepping, [1.0, 0.0])
    assert text == expected


def test_a_run_with_events_is_logged_in_python_and_one_without_after_it_in_c(c):
    event = Event(lambda t, u, p: u[0] - 1.0, direction=-1)
    stepping = Stepping((0.0, 2.0), "rk4", dt=0.1)
    run = solve(compiled_ode(c, events=[event]), U0, P, stepping)
    expected = solve(numpy_ode(events=[event]), U0, P, stepping)
    assert len(run.crossings) == 1
    np.testing.assert_allclose(run.u, expected.u, rtol=1e-14)


def test_options_that_nothing_reads_are_refused_after_the_first_step(c):
    stepping = Stepping((0.0, 1.0), "rk4", dt=0.1, options={"mat_view": None})
    texts = []
    for problem in (compiled_ode(c), numpy_ode()):
        with pytest.raises(Exception, match="nothing reads") as caught:
            solve(problem, U0, P, stepping)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
