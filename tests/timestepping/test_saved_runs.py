"""Runs in files: states and derivatives of a loaded run are those of the run that was saved."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import event_support
import h5py
import numpy as np
import pytest
from distributed import make, make_cost
from petsc4py import PETSc

import daeosens as ds
from daeosens.errors import DaeosensError
from daeosens.timestepping import Checkpoints, load_run, save_run


def oscillator(t, u, p):
    return np.array([u[1], p[0] * (1.0 - u[0] ** 2) * u[1] - u[0] + p[1] * np.sin(t)])


def same(ours, reference):
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(reference))


def close(ours, reference):
    np.testing.assert_allclose(ours, reference, rtol=1e-12, atol=1e-13)


def compare(again, run, costs, *, second=True):
    """The bits of the log, of states between steps and of derivatives."""
    for name in ("times", "step_sizes", "u"):
        same(getattr(again, name), getattr(run, name))
    assert str(again) == str(run)
    assert again.effort == run.effort
    first, last = run.times[[0, -1]]
    between = np.linspace(first, last, 5)
    same(again(between), run(between))
    n, m = run.problem.size, run.problem.n_parameters
    directions = np.linspace(0.3, 1.0, n), np.linspace(-1.0, 0.4, m)
    # sums of arrays may be rounded by where they lie in memory
    for engine, equal in (("vectors", same), ("auto", close)):
        ours, reference = ds.adjoint(again, costs, engine), ds.adjoint(run, costs, engine)
        for one, other in zip(ours, reference, strict=True):
            equal(one.value, other.value)
            equal(one.u0, other.u0)
            equal(one.p, other.p)
        equal(ds.tangent(again, *directions, engine).u, ds.tangent(run, *directions, engine).u)
        if second:
            products = [
                ds.hessian_product(each, costs[0], *directions, engine=engine)
                for each in (again, run)
            ]
            equal(products[0].u0, products[1].u0)
            equal(products[0].p, products[1].p)


@pytest.mark.filterwarnings("ignore:a running cost varies faster")
@pytest.mark.parametrize("checkpoint", ["auto", "stages", Checkpoints(6)])
@pytest.mark.parametrize("style", ["numpy", "traced"])
@pytest.mark.parametrize(
    ("method", "sizes"),
    [
        *[(method, {"dt": 0.1}) for method in ("rk4", "esdirk5", "cn", "midpoint")],
        *[(method, {"rtol": 1e-5}) for method in ("auto", "rk8vr", "esdirk3", "beuler")],
    ],
)
def test_smooth_runs(method, sizes, style, checkpoint, tmp_path):
    make_problem = ds.ODE if style == "numpy" else ds.trace
    problem = make_problem(oscillator, 2, ["mu", "drive"])
    times = [0.33, 1.1]
    stepping = ds.Stepping((0.0, 2.0), method, **sizes)
    run = ds.solve(problem, [1.0, 0.2], [0.8, 0.3], stepping, times, checkpoint=checkpoint)
    save_run(run, tmp_path / "run.h5")
    again = load_run(tmp_path / "run.h5", problem)
    costs = [
        ds.LeastSquares(times, [[0.9, 0.1], [0.2, -0.4]])
        + ds.Terminal(lambda t, u, p: u[0] * p[0]),
        ds.Running(lambda t, u, p: u[0] ** 2),
    ]
    if isinstance(checkpoint, Checkpoints):  # sums are those of other windows
        same(again.u, run.u)
        ours, reference = (ds.adjoint(each, costs, "vectors") for each in (again, run))
        same([one.p for one in ours], [one.p for one in reference])
    else:
        compare(again, run, costs)


@pytest.mark.parametrize("cell", event_support.design()[::3], ids=str)
def test_derivatives_through_events(cell, tmp_path):
    problem, _ = event_support.hybrid_of(cell)
    objective, _ = event_support.cost_of(cell)
    control, x, _ = event_support.control_of(cell)
    run = ds.Reduced(problem, objective, event_support.stepping_of(cell), control).trajectory(x)
    save_run(run, tmp_path / "run.h5")
    again = load_run(tmp_path / "run.h5", problem)
    assert [str(event) for event in again.crossings] == [str(event) for event in run.crossings]
    compare(again, run, [objective], second=False)
    states = load_run(tmp_path / "run.h5")
    same(states.u, run.u)
    same(states.at(run.times[1]).array, run.at(run.times[1]).array)


# ---- without its problem, with another one -------------------------------------------------------

DECAY = ds.ODE(lambda t, u, p: -p[0] * u, size=["mass"], parameters=["rate"])


@pytest.fixture
def saved(tmp_path) -> Path:
    save_run(
        ds.solve(DECAY, [1.0], [0.5], ds.Stepping((0.0, 2.0), "rk4", dt=0.1)), tmp_path / "run.h5"
    )
    return tmp_path / "run.h5"


def test_without_its_problem_there_are_states_only(saved):
    run = load_run(saved)
    assert run.at(1.0).array.round(4).tolist() == [0.6065]
    assert run.problem.state_names == ("mass",)
    for ask in (
        lambda: run(0.123),
        lambda: ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0])),
        lambda: ds.tangent(run, None, [1.0]),
    ):
        with pytest.raises(ds.InputError, match=r"has the states of a run, and not its equations"):
            ask()


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (ds.ODE(lambda t, u, p: -p[0] * u**2, size=["mass"], parameters=["rate"]), "elsewhere"),
        (ds.ODE(lambda t, u, p: -p[0] * u, size=["mass"], parameters=["speed"]), "parameters"),
        (ds.ODE(lambda t, u, p: -p[0] * u, size=["a", "b"], parameters=["rate"]), "shape"),
        (ds.ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"]), "unknowns"),
    ],
)
def test_another_problem_is_refused(problem, why, saved):
    with pytest.raises(ds.InputError, match=f"of another problem.*{why}"):
        load_run(saved, problem)


def test_events_of_another_problem_are_refused(tmp_path):
    def bouncing(loss, floor=0.0):
        return ds.ODE(
            lambda t, u, p: np.array([u[1], -p[0]]),
            2,
            ["gravity"],
            events=[
                ds.Event(
                    lambda t, u, p: u[0] - floor,
                    reset=lambda t, u, p: np.array([u[0], -loss * u[1]]),
                    direction=-1,
                    name="bounce",
                )
            ],
        )

    run = ds.solve(bouncing(0.8), [1.0, 0.0], [9.81], ds.Stepping((0.0, 1.0), "rk4", dt=0.05))
    save_run(run, tmp_path / "run.h5")
    load_run(tmp_path / "run.h5", bouncing(0.8))
    with pytest.raises(ds.InputError, match='event "bounce" leads elsewhere'):
        load_run(tmp_path / "run.h5", bouncing(0.7))
    with pytest.raises(ds.InputError, match=r'event "bounce" is not at t = 0\.45.*is 0\.1'):
        load_run(tmp_path / "run.h5", bouncing(0.8, floor=0.1))


def test_what_a_file_does_not_keep_is_refused(tmp_path):
    delayed = ds.DDE(
        lambda t, u, late, p: -p[0] * late[0], 1, ["rate"], delays=[0.5], history=lambda t, p: [1.0]
    )
    run = ds.solve(delayed, [1.0], [0.5], ds.Stepping((0.0, 2.0), "rk4", dt=0.1))
    save_run(run, tmp_path / "run.h5")
    with pytest.raises(ds.UnsupportedError, match="delays"):
        load_run(tmp_path / "run.h5", delayed)
    same(load_run(tmp_path / "run.h5").u, run.u)


# ---- files that are damaged, or of another version -----------------------------------------------


def test_damaged_files_are_refused(saved, rng):
    whole = saved.read_bytes()
    reference = load_run(saved, DECAY)
    for place in rng.integers(0, 8 * len(whole), 150):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << (place % 8)
        saved.write_bytes(damaged)
        try:
            run = load_run(saved, DECAY)
        except ds.InputError as error:
            assert "run.h5" in str(error)  # noqa: PT017
        else:  # in a part of the file that nothing uses
            same(run.u, reference.u)
            same(run.times, reference.times)
            same(run.p, reference.p)
    saved.write_bytes(whole[:-100])
    with pytest.raises(ds.InputError, match=r"run\.h5"):
        load_run(saved)


def test_file_of_another_version_names_it(saved):
    with h5py.File(saved, "r+") as file:
        told = bytes(file["run"][()]).replace(b"daeosens run 1", b"daeosens run 7")
        del file["run"]
        file["run"] = np.frombuffer(told.replace(b'"daeosens": "', b'"daeosens": "9.'), np.uint8)
    with pytest.raises(ds.InputError, match=r'its format is "daeosens run 7", of daeosens 9\.'):
        load_run(saved)


@pytest.mark.parametrize("path", ["missing.h5", "results.h5"])
def test_file_that_is_none(tmp_path, path):
    with h5py.File(tmp_path / "results.h5", "w") as file:
        file["x"] = [1.0]
    with pytest.raises(ds.InputError, match=path):
        load_run(tmp_path / path)
    with pytest.raises(ds.InputError, match="there is no folder"):
        save_run(
            ds.solve(DECAY, [1.0], [0.5], ds.Stepping((0.0, 2.0), dt=0.5)), tmp_path / "no" / "run"
        )


def test_full_disk_leaves_the_earlier_file(saved, monkeypatch):
    before = saved.read_bytes()

    def no_room(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = ds.solve(DECAY, [1.0], [0.7], ds.Stepping((0.0, 2.0), "rk4", dt=0.1))
    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(DaeosensError, match=r"cannot be written \(No space left"):
        save_run(run, saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["run.h5"]


# ---- on several ranks ----------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("field", [False, True])
@pytest.mark.parametrize("style", ["dmda", "vec"])
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_any_number_of_ranks_loads(method, style, field, comm, shared_tmp_path):
    """Each rank has written its part; all ranks read it, and each rank alone."""
    path = shared_tmp_path / "run.h5"
    case = make(PETSc.COMM_WORLD, style, field=field)
    stepping = ds.Stepping((0.0, 0.2), method, dt=0.02)
    run = ds.solve(case.problem, case.u0, case.p, stepping, [0.06, 0.13])
    save_run(run, path)
    save_run(run, path)  # replaces
    files = sorted(each.name for each in path.parent.glob("run*"))
    assert len(files) == (1 if comm.size == 1 else 1 + comm.size)
    again = load_run(path, case.problem)
    same(again.u, run.u)
    ours, reference = (ds.adjoint(each, make_cost(case)) for each in (again, run))
    assert ours.value == reference.value
    same(ours.u0, reference.u0)
    same(ours.p, reference.p)
    alone = make(PETSc.COMM_SELF, style, field=field)
    own = load_run(path, alone.problem)
    start, end = case.problem.state.getOwnershipRange()
    same(own.u[:, start:end], run.u)
    serial = ds.adjoint(own, make_cost(alone))
    np.testing.assert_allclose(serial.value, reference.value, rtol=1e-10)
    np.testing.assert_allclose(serial.u0[start:end], reference.u0, rtol=1e-8, atol=1e-10)
    same(load_run(path).u.reshape(own.u.shape), own.u)
    # what one rank has written, all read
    other = shared_tmp_path / "alone.h5"
    if comm.rank == 0:
        save_run(own, other)
    comm.Barrier()
    same(load_run(other, case.problem).u, run.u)


@pytest.mark.mpi(min_size=2)
def test_missing_part_of_a_rank_is_told_on_all(comm, shared_tmp_path):
    path = shared_tmp_path / "run.h5"
    case = make(PETSc.COMM_WORLD, "vec")
    save_run(ds.solve(case.problem, case.u0, case.p, ds.Stepping((0.0, 0.1), "rk4", dt=0.02)), path)
    if comm.rank == 0:
        next(path.parent.glob("run.*.rank0001.h5")).unlink()
    comm.Barrier()
    with pytest.raises(ds.InputError, match="rank0001"):
        load_run(path, case.problem)


@pytest.mark.mpi(min_size=2)
def test_rank_without_room_does_not_leave_the_others(comm, shared_tmp_path, monkeypatch):
    path = shared_tmp_path / "run.h5"
    case = make(PETSc.COMM_WORLD, "vec")
    run = ds.solve(
        case.problem,
        case.u0,
        case.p,
        ds.Stepping((0.0, 0.1), "rk4", dt=0.01),
        checkpoint=Checkpoints(3),  # states that all ranks take again together
    )
    if comm.rank == 1:

        def no_room(*_arguments):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(DaeosensError, match=r"cannot be written \(No space left"):
        save_run(run, path)
    comm.Barrier()
    assert not list(path.parent.iterdir())


def test_replacing_keeps_what_a_loaded_run_has(saved):
    run = load_run(saved, DECAY)
    save_run(replace(run), saved)
    same(load_run(saved, DECAY).u, run.u)
