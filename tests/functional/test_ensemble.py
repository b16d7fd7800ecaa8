"""Ensembles: each member as if solved alone, on any number of ranks; failures are kept apart."""

from functools import partial

import numpy as np
import pytest
from distributed import make

from daeosens import ODE, Event, InputError, LeastSquares, Stepping, Terminal, adjoint, solve
from daeosens.costs import EventTime
from daeosens.functional import solve_batch

STEPPING = Stepping((0.0, 2.0), "rk5dp", dt=0.1, rtol=1e-8, atol=1e-8)
POPULATIONS = ODE(
    lambda _t, u, p: np.array([p[0] * u[0] - u[0] * u[1], u[0] * u[1] - p[1] * u[1]]),
    2,
    ["growth", "death"],
)
COST = Terminal(lambda _t, u, p: u[0] * u[1] + p[0]) + LeastSquares([0.5, 1.5], np.ones((2, 2)))


@pytest.fixture
def members(rng):
    return rng.uniform(0.5, 1.5, (5, 2)), rng.uniform(0.5, 1.5, (5, 2))


@pytest.mark.mpi
def test_each_member_is_as_if_solved_alone(comm, members):
    starts, sets = members
    batch = solve_batch(POPULATIONS, starts, sets, STEPPING, COST, [0.5, 1.5], comm=comm)
    assert batch.times.tolist() == [0.5, 1.5, 2.0]
    assert batch.states.shape == (5, 3, 2)
    assert not batch.failures
    for k, (u0, p) in enumerate(zip(starts, sets, strict=True)):
        alone = solve(POPULATIONS, u0, p, STEPPING, [0.5, 1.5])
        gradient = adjoint(alone, COST)
        assert batch.values[k] == gradient.value
        assert batch.gradients_u0[k].tolist() == gradient.u0.tolist()
        assert batch.gradients_p[k].tolist() == gradient.p.tolist()
        for number, time in enumerate(batch.times):
            assert batch.states[k, number].tolist() == alone.at(time).getArray().tolist()


def test_one_start_or_one_set_serves_all(members):
    starts, sets = members
    of_sets = solve_batch(POPULATIONS, starts[0], sets, STEPPING, COST, [0.5, 1.5])
    of_starts = solve_batch(POPULATIONS, starts, sets[0], STEPPING, COST, [0.5, 1.5])
    single = solve_batch(POPULATIONS, starts[0], sets[0], STEPPING, COST, [0.5, 1.5])
    assert of_sets.values.shape == of_starts.values.shape == (5,)
    assert single.values.shape == (1,)
    assert of_sets.values[0] == of_starts.values[0] == single.values[0]


def test_values_alone_and_no_objective(members):
    starts, sets = members
    every = solve_batch(POPULATIONS, starts, sets, STEPPING, COST, [0.5, 1.5])
    values = solve_batch(POPULATIONS, starts, sets, STEPPING, COST, [0.5, 1.5], gradients=False)
    states = solve_batch(POPULATIONS, starts, sets, STEPPING)
    assert values.values.tolist() == every.values.tolist()
    assert values.gradients_u0.shape == values.gradients_p.shape == (0, 2)
    assert states.values.shape == (0,)
    assert states.times.tolist() == [2.0]
    assert np.abs(states.states[:, 0] - every.states[:, -1]).max() < 1e-7


@pytest.mark.mpi
def test_a_member_that_fails_does_not_stop_the_others(comm):
    blow_up = ODE(lambda _t, u, p: p[0] * u**2, 1, ["rate"])
    cost = Terminal(lambda _t, u, _p: u[0])
    stepping = Stepping((0.0, 2.0), "rk4", dt=0.01)
    batch = solve_batch(blow_up, [1.0], [[0.1], [2.0], [0.2]], stepping, cost, comm=comm)
    assert list(batch.failures) == [1]
    assert "returned inf" in batch.failures[1]
    assert np.isnan(batch.values).tolist() == [False, True, False]
    assert np.isnan(batch.gradients_p[1]).all()
    assert np.isnan(batch.states[1]).all()
    assert batch.values[0] == pytest.approx(1.0 / (1.0 - 0.2), rel=1e-8)
    assert batch.gradients_p[2, 0] == pytest.approx(2.0 / (1.0 - 0.4) ** 2, rel=1e-8)
    assert repr(batch) == "Ensemble(3 members, 1 times, n = 1, 1 failed)"


@pytest.mark.mpi
def test_members_have_their_own_events(comm):
    landing = Event(lambda _t, u, _p: u[0], direction=-1, terminal=True, name="landing")
    fall = ODE(lambda _t, u, p: np.array([u[1], -p[0] + 0.0 * u[0]]), 2, ["g"], events=[landing])
    heights, stepping = np.array([1.0, 2.0, 30.0]), Stepping((0.0, 1.0), "rk4", dt=0.05)
    starts = np.column_stack([heights, np.zeros(3)])
    batch = solve_batch(fall, starts, [10.0], stepping, EventTime("landing"), [0.3], comm=comm)
    assert batch.values[:2] == pytest.approx(np.sqrt(0.2 * heights[:2]), rel=1e-13)
    exact = 0.5 * np.sqrt(0.2 / heights[:2])
    assert batch.gradients_u0[:2, 0] == pytest.approx(exact, rel=1e-12)
    assert list(batch.failures) == [2]  # it does not land
    early = solve_batch(fall, starts, [10.0], stepping, t_eval=[0.3], comm=comm)
    assert np.isnan(early.states[:2, 1]).all()
    assert early.states[:, 0, 0] == pytest.approx(heights - 0.45, rel=1e-13)


@pytest.mark.parametrize(
    ("u0", "p", "message"),
    [
        ([[1.0, 2.0, 3.0]], [1.0, 1.0], r"u0 has shape \(1, 3\)\n  expected: \[2\], or \[B, 2\]"),
        ([1.0, 2.0], [1.0], r"p has shape \(1,\)\n  expected: \[2\], or \[B, 2\]"),
        (np.ones((2, 2)), np.ones((3, 2)), r"2 u0 for 3 members\n  expected: as many initial"),
        ([["a", "b"]], [1.0, 1.0], "u0 is not an array of real numbers"),
        ([[1.0, 2.0], [1.0, np.nan]], [1.0, 1.0], r"u0 is nan at index \[1, 1\]"),
    ],
)
def test_shapes_that_do_not_fit_are_named(u0, p, message):
    with pytest.raises(InputError, match=message):
        solve_batch(POPULATIONS, u0, p, STEPPING)
    with pytest.raises(InputError, match="stepping is str"):
        solve_batch(POPULATIONS, [1.0, 2.0], [1.0, 1.0], "rk4")


@pytest.mark.mpi(min_size=2)
def test_a_distributed_problem_is_refused(comm):
    case = make(comm)
    with pytest.raises(InputError, match=f"distributed over {comm.size} ranks"):
        solve_batch(case.problem, [1.0], case.p, STEPPING)


def test_costs_that_are_none_are_named():
    decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    cost = Terminal(lambda t, u, p: u[0])
    with pytest.raises(InputError, match="the objective is list"):
        solve_batch(decay, [1.0], [1.0], Stepping((0.0, 1.0), "rk4", dt=0.5), [cost, cost])


def test_parameters_by_name_have_one_value_or_one_for_each_member():
    growth = [0.5, 0.6, 0.7]
    batch = solve_batch(
        POPULATIONS, [1.0, 1.0], {"death": 0.4, "growth": growth}, STEPPING, COST, [0.5, 1.5]
    )
    expected = solve_batch(
        POPULATIONS, [1.0, 1.0], [[item, 0.4] for item in growth], STEPPING, COST, [0.5, 1.5]
    )
    np.testing.assert_array_equal(batch.values, expected.values)
    np.testing.assert_array_equal(batch.gradients_p, expected.gradients_p)
    with pytest.raises(InputError, match=r"different numbers of members \(growth: 3, death: 2\)"):
        solve_batch(POPULATIONS, [1.0, 1.0], {"growth": growth, "death": [0.4, 0.5]}, STEPPING)


# ---- members in a folder -------------------------------------------------------------------------


@pytest.mark.mpi
def test_members_that_are_done_are_taken_from_the_folder(comm, shared_tmp_path, members):
    starts, sets = members
    sets = sets.copy()
    sets[3, 0] = 1e8  # which fails
    stepping = Stepping((0.0, 2.0), "rk5dp", dt=0.1, rtol=1e-8, atol=1e-8, max_steps=200)
    batch = partial(solve_batch, POPULATIONS, starts, sets, stepping, COST, [0.5, 1.5], comm=comm)
    alone = batch()
    assert [*alone.failures] == [3]
    folder = shared_tmp_path / "members"
    for _ in range(2):
        shared = batch(folder=folder)
        assert shared.failures == alone.failures
        for name in ("times", "states", "values", "gradients_u0", "gradients_p"):
            np.testing.assert_array_equal(getattr(shared, name), getattr(alone, name))
        times = [path.stat().st_mtime_ns for path in sorted(folder.glob("*.npz"))]
        assert len(times) == 5
        comm.Barrier()
        if comm.rank == 0:
            (folder / "members_001.npz").unlink()
        comm.Barrier()
    batch(folder=folder)
    again = [path.stat().st_mtime_ns for path in sorted(folder.glob("*.npz"))]
    assert [a == b for a, b in zip(again, times, strict=True)] == [True, False, True, True, True]


@pytest.mark.mpi
def test_members_of_another_ensemble_are_refused_on_every_rank(comm, shared_tmp_path, members):
    starts, sets = members
    batch = partial(solve_batch, POPULATIONS, stepping=STEPPING, comm=comm, folder=shared_tmp_path)
    batch(starts, sets, objective=COST, t_eval=[0.5, 1.5])
    with pytest.raises(
        InputError, match="the ensemble is of another problem; other members or settings"
    ):
        batch(starts + 0.1, sets, objective=COST, t_eval=[0.5, 1.5])
    with pytest.raises(
        InputError, match="the ensemble is of another problem; other members or settings"
    ):
        batch(starts, sets, objective=COST, t_eval=[0.5, 1.5], gradients=False)
    with pytest.raises(InputError, match="of another problem; member 0"):
        batch(starts, sets, objective=COST + COST, t_eval=[0.5, 1.5])
    if comm.rank == 0:
        (shared_tmp_path / "members_000.npz").write_bytes(b"none")
    comm.Barrier()
    with pytest.raises(InputError, match=r"members_000\.npz: no members of an ensemble"):
        batch(starts, sets, objective=COST, t_eval=[0.5, 1.5])


def test_many_members_are_in_few_files(tmp_path):
    sets = np.linspace(0.5, 1.5, 600)[:, None]
    decay = ODE(lambda _t, u, p: -p[0] * u, 1, ["rate"])
    batch = partial(solve_batch, decay, [1.0], sets, Stepping((0.0, 1.0), "rk4", dt=0.5))
    assert np.array_equal(batch(folder=tmp_path).states, batch().states)
    assert len([*tmp_path.glob("*.npz")]) == 256
