"""The log of accepted steps."""

import math
import re

import numpy as np
import pytest
from forms import DECAY

from daeosens import ODE, Event, InputError, Stepping, solve, trace


@pytest.fixture
def run():
    stepping = Stepping((0.0, 1.0), "rk4", dt=0.1)
    return solve(DECAY.problem, DECAY.u0, DECAY.p, stepping, [0.25])


def test_states_are_found_by_their_times(run):
    assert run.index(0.25) == 3
    assert run.at(0.25).array == run.states[3].array
    assert run.index(0.0) == 0
    assert run.final is run.at(1.0)
    assert run.u.shape == (run.n_steps + 1, 1)
    assert run.u[3, 0] == run.at(0.25).getArray()[0]
    assert run.u is run.u


def test_a_time_within_a_millionth_of_a_step_is_the_same_time(run):
    """As PETSc takes it."""
    assert run.index(0.25 + 4e-8) == 3
    assert run.index(1.0 - 4e-8) == run.n_steps


@pytest.mark.parametrize(("t", "near"), [(0.26, "0.25"), (0.2501, "0.25"), (2, "1"), (-1, "0")])
def test_a_time_that_is_no_step_time_is_an_error_that_names_the_nearest(run, t, near):
    message = (
        rf"t = {t} is not a step time \(the nearest is {near}\)\n  expected: a time that a step"
    )
    with pytest.raises(InputError, match=message) as raised:
        run.at(t)
    assert "try: solve(..., t_eval=[...]) with this time" in str(raised.value)


def test_states_at_several_times_are_rows(run):
    for times in ([0.25, 1.0], (0.25, 1.0), np.array([0.25, 1.0])):
        np.testing.assert_array_equal(run.at(times), run.u[[3, -1]])
    assert run.at([]).shape == (0, 1)
    with pytest.raises(InputError, match=r"t = 0.26 is not a step time"):
        run.at([0.25, 0.26])


@pytest.mark.parametrize(
    ("t", "named"), [("end", "'end'"), ([[0.25, 0.5]], "[0.25, 0.5]"), (math.nan, "nan")]
)
def test_what_is_no_time_is_named(run, t, named):
    with pytest.raises(InputError, match=f"t = {re.escape(named)}\n  expected: a time"):
        run.at(t)


def test_it_prints_what_matters(run):
    text = str(run)
    assert text.startswith("Trajectory from t = 0 to 1: 11 steps of rk4 (0 rejected), h = 0.0")
    assert text.endswith("... 0.1")


def test_destroy_frees_the_vectors(run):
    run.destroy()
    assert all(state.handle == 0 for state in run.stored.made)
    looks = (lambda: run.states[1], lambda: run.final, lambda: run(0.123), lambda: run.u)
    for look in looks:
        with pytest.raises(InputError, match="the states of this run have been freed"):
            look()


def test_states_that_were_not_looked_at_before_are_an_error_after_destroy():
    model = trace(lambda t, u, p: -p[0] * u, 1, 1)
    run = solve(model, [1.0], [0.5], Stepping((0.0, 1.0), "rk4", dt=0.1))
    run.destroy()
    for look in (lambda: run.states[3], lambda: run.stored[3], lambda: run.final):
        with pytest.raises(InputError, match="the states of this run have been freed"):
            look()


def test_destroy_frees_stages_that_were_made_of_numbers():
    model = trace(lambda t, u, p: -p[0] * u, 1, 1)
    run = solve(model, [1.0], [0.5], Stepping((0.0, 1.0), "rk4", dt=0.1), checkpoint="stages")
    assert isinstance(run.kept, np.ndarray)
    stages = [vec for vecs in run.stages.values() for vec in vecs]
    assert len(stages) == 40
    run.destroy()
    assert all(vec.handle == 0 for vec in stages)


def test_destroy_frees_the_recording():
    stepping = Stepping((0.0, 1.0), "rk4", dt=0.1)
    run = solve(DECAY.problem, DECAY.u0, DECAY.p, stepping, petsc_trajectory="memory")
    assert len(run.recording) == 1
    run.destroy()
    assert run.recording == []


def test_states_are_those_of_the_exact_solution_to_the_order_of_the_method(run):
    exact = [DECAY.solution(t) for t in run.times]
    np.testing.assert_allclose(run.u[:, 0], exact, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("lag", "outside"), [(-0.5, True), (7.0, True), (0.0, False), (4.0, False)]
)
def test_an_event_at_a_parameter_outside_the_span_is_told_of(lag, outside):
    """It is no error, since optimisers may come by."""
    dose = Event("lag", lambda t, u, p: u + 2.0, name="dose")
    problem = ODE(lambda t, u, p: -u, 1, ["lag"], events=[dose])
    run = solve(problem, [1.0], [lag], Stepping((0.0, 4.0), "rk4", dt=0.1))
    told = f'event "dose" did not happen: lag = {lag:g} lies outside [0, 4]'
    assert (told in str(run)) == outside
    assert (not run.crossings) == outside
