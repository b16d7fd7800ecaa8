"""States that C has logged as numbers."""

import gc

import numpy as np
import pytest

import daeosens as ds
from daeosens import Stepping, solve
from daeosens.states import States, rows_of
from daeosens.trajectory import Trajectory

STEPPING = Stepping((0.0, 1.0), "rk4", dt=0.25)


@pytest.fixture(scope="module")
def model() -> ds.Model:
    return ds.trace(lambda _t, u, p: [u[1], -p.stiffness * u[0]], 2, {"stiffness": ()})


@pytest.fixture
def run(model: ds.Model) -> Trajectory:
    return solve(model, [1.0, 0.5], [2.0], STEPPING)


def test_runs_of_compiled_models_keep_numbers(run: Trajectory) -> None:
    assert isinstance(run.states, States)
    np.testing.assert_array_equal(rows_of(run.states), run.u)
    for state, row in zip(run.states, run.u, strict=True):
        np.testing.assert_array_equal(state.array, row)


def test_vectors_are_made_once(run: Trajectory) -> None:
    states = run.states
    assert [states[k] is states[k - 5] for k in range(5)] == [True] * 5
    assert [vec is states[k] for k, vec in enumerate(states)] == [True] * 5
    assert [vec is states[k] for k, vec in zip((1, 2), states[1:3], strict=True)] == [True] * 2
    assert len(states[1:]) == len(states) - 1 == run.n_steps
    with pytest.raises(IndexError):
        states[5]


def test_only_vectors_that_are_there_are_freed(model: ds.Model) -> None:
    run = solve(model, [1.0, 0.5], [2.0], STEPPING)
    assert isinstance(run.states, States)
    first, final = run.states[0], run.final
    run.destroy()
    assert run.states.made == [first, final]
    assert not any(vec.handle for vec in run.states.made)


def test_what_a_user_changes_is_a_copy(run: Trajectory) -> None:
    run.u[...] = 0.0
    assert run.final.array.any()


def test_vectors_outlive_their_run(model: ds.Model) -> None:
    run = solve(model, [1.0, 0.5], [2.0], STEPPING)
    final, expected = run.final, run.u[-1]
    del run
    gc.collect()
    np.testing.assert_array_equal(final.array, expected)


def test_callbacks_in_python_give_the_same_run(run: Trajectory) -> None:
    problem = ds.ODE(lambda _t, u, p: np.array([u[1], -p[0] * u[0]]), 2, 1)
    other = solve(problem, [1.0, 0.5], [2.0], STEPPING)
    assert not isinstance(other.states, States)
    np.testing.assert_array_equal(rows_of(other.states), run.u)
    np.testing.assert_array_equal(other.times, run.times)
    np.testing.assert_array_equal(other.step_sizes, run.step_sizes)
