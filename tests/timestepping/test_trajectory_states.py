"""States that C has logged as numbers."""

import gc

import numpy as np
import pytest
from petsc4py import PETSc

import daeosens as ds
from daeosens import Stepping, solve
from daeosens.timestepping.trajectory.states import States, rows_of
from daeosens.timestepping.trajectory.trajectory import Trajectory

STEPPING = Stepping((0.0, 1.0), "rk4", dt=0.25)


@pytest.fixture(scope="module")
def model() -> ds.tracing.Model:
    return ds.trace(lambda _t, u, p: [u[1], -p.stiffness * u[0]], 2, {"stiffness": ()})


@pytest.fixture
def run(model: ds.tracing.Model) -> Trajectory:
    return solve(model, [1.0, 0.5], [2.0], STEPPING)


def test_runs_of_compiled_models_keep_numbers(run: Trajectory) -> None:
    assert isinstance(run.stored, States)
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


def test_only_vectors_that_are_there_are_freed(model: ds.tracing.Model) -> None:
    run = solve(model, [1.0, 0.5], [2.0], STEPPING)
    assert isinstance(run.stored, States)
    first, final, held = run.states[0], run.states[-1], run.stored[-1]
    assert run.states[-1] is final
    assert run.stored[-1] is held
    run.stored[1]
    run.destroy()
    # the second and the fourth state were never asked for
    assert [id(vec) for vec in run.stored.made[:2]] == [id(run.stored[0]), id(held)]
    assert len(run.stored.made) == 3
    assert not any(vec.handle for vec in (first, final, *run.stored.made))


def test_sweeps_find_vectors_again_that_the_one_before_has_made(model: ds.tracing.Model) -> None:
    run = solve(model, [1.0, 0.5], [2.0], STEPPING)
    assert isinstance(run.stored, States)
    ds.adjoint(run, model.terminal(lambda _t, u, _p: u[0]), "vectors")
    made = [id(vec) for vec in run.stored.made]
    assert len(made) == run.n_steps + 1
    ds.adjoint(run, model.terminal(lambda _t, u, _p: u[1]), "vectors")
    assert [id(vec) for vec in run.stored.made] == made


def test_only_the_latest_vectors_of_all_runs_are_held(model: ds.tracing.Model) -> None:
    long, short = (
        solve(model, [1.0, 0.5], [2.0], ds.Stepping((0.0, 1.0), "rk4", dt=1.0 / steps))
        for steps in (3000, 3)
    )
    assert isinstance(long.stored, States)
    assert isinstance(short.stored, States)
    for k in range(1, 4):
        short.stored[k]
    for k in range(1, 3001):
        long.stored[k]
    assert len(short.stored.made) == 1
    assert len(long.stored.made) <= 1100


def in_python(_model: ds.tracing.Model) -> Trajectory:
    problem = ds.ODE(lambda _t, u, p: np.array([u[1], -p[0] * u[0]]), 2, 1)
    return solve(problem, [1.0, 0.5], [2.0], STEPPING)


def compiled(model: ds.tracing.Model) -> Trajectory:
    return solve(model, [1.0, 0.5], [2.0], STEPPING)


def through_an_event(_model: ds.tracing.Model) -> Trajectory:
    kick = ds.Event(lambda t, u, p: u[0] - 1.05, lambda t, u, p: u * [1.0, -1.0])
    problem = ds.ODE(lambda _t, u, p: np.array([u[1], -p[0] * u[0]]), 2, 1, events=[kick])
    return solve(problem, [1.0, 0.5], [2.0], STEPPING)


WRITES = {
    "u": lambda run: np.multiply(run.u, 2.0, out=run.u),
    "final.array": lambda run: np.multiply(run.final.array, 2.0, out=run.final.array),
    "at.array": lambda run: np.multiply(run.at(0.5).array, 2.0, out=run.at(0.5).array),
    "getArray": lambda run: run.final.getArray().fill(2.0),
    "asarray": lambda run: np.asarray(run.final).fill(2.0),
    "times": lambda run: np.multiply(run.times, 1e3, out=run.times),
    "step_sizes": lambda run: run.step_sizes.fill(1.0),
    "scale": lambda run: run.final.scale(2.0),
    "setArray": lambda run: run.at(0.5).setArray([1.0, 1.0]),
    "axpy": lambda run: run.final.axpy(1.0, run.at(0.5)),
    "target of a copy": lambda run: run.at(0.5).copy(run.final),
    "zeroEntries": lambda run: run.final.zeroEntries(),
    "array =": lambda run: setattr(run.final, "array", 0.0),
}


@pytest.mark.parametrize("made", [in_python, compiled, through_an_event])
@pytest.mark.parametrize("way", WRITES)
def test_no_user_writes_into_the_log(made, way: str, model: ds.tracing.Model) -> None:
    run, cost = made(model), ds.Terminal(lambda t, u, p: u[0] * u[1])
    before = ds.adjoint(made(model), cost)
    refused = (ValueError, ds.InputError, PETSc.Error)
    with pytest.raises(refused, match=r"read-only|overwritten|error code 73"):
        WRITES[way](run)
    after = ds.adjoint(run, cost)
    np.testing.assert_array_equal([*after.u0, *after.p], [*before.u0, *before.p])


def test_a_vector_made_of_a_state_is_the_users_own(run: Trajectory) -> None:
    own = [run.final.copy(), run.final + run.at(0.5), 2.0 * run.final, run.final.duplicate()]
    for vec in own:
        vec.array[...] = 7.0
        vec.scale(2.0)
        vec.array = 3.0
    assert [vec.array.tolist() for vec in own] == [[3.0, 3.0]] * 4
    np.testing.assert_array_equal(run.final.array, run.u[-1])
    assert np.asarray(run.final) == pytest.approx(run.u[-1], abs=0.0)


def test_a_view_is_no_copy(run: Trajectory) -> None:
    assert np.shares_memory(run.final.array, run.states[-1].array)
    assert isinstance(run.stored, States)
    assert np.shares_memory(run.u, run.stored.rows)


def test_vectors_outlive_their_run(model: ds.tracing.Model) -> None:
    run = solve(model, [1.0, 0.5], [2.0], STEPPING)
    final, expected = run.final, run.u[-1]
    del run
    gc.collect()
    np.testing.assert_array_equal(final.array, expected)


def test_callbacks_in_python_give_the_same_run(run: Trajectory) -> None:
    problem = ds.ODE(lambda _t, u, p: np.array([u[1], -p[0] * u[0]]), 2, 1)
    other = solve(problem, [1.0, 0.5], [2.0], STEPPING)
    assert isinstance(other.stored, States)
    np.testing.assert_array_equal(rows_of(other.states), run.u)
    np.testing.assert_array_equal(other.times, run.times)
    np.testing.assert_array_equal(other.step_sizes, run.step_sizes)


def test_states_cannot_be_written() -> None:
    """A write into the log made the next gradient wrong, and nothing said so."""
    decay = ds.ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    with pytest.raises(ValueError, match="read-only"):
        run.states[3].array[:] = 2.0
    with pytest.raises(ds.InputError, match="a state of a run is to be overwritten"):
        run.states[-1].array = 2.0
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0])).p
    assert gradient[0] == pytest.approx(-2.0 * np.exp(-1.0), rel=1e-5)
    assert [state.array[0] for state in run.states[:2]] == run.u[:2, 0].tolist()
