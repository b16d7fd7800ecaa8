"""Checkpoints on disk: the same bits, little memory, and errors in the place of wrong states."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from distributed import make, make_cost
from petsc4py import PETSc

import daeosens as ds
from daeosens import ODE, InputError, SolveError, Stepping, Terminal, adjoint, solve
from daeosens.timestepping import Checkpoints
from daeosens.timestepping.trajectory.schedule import repeated_steps
from daeosens.timestepping.trajectory.scratch import Scratch


def pendulum(events=()):
    return ODE(
        lambda t, u, p: np.array([u[1], -p[0] * np.sin(u[0])]), 2, ["k"], events=list(events)
    )


LAST = Terminal(lambda t, u, p: u[0])


def gradients(problem, stepping, checkpoint):
    run = solve(problem, [1.0, 0.0], [1.3], stepping, checkpoint=checkpoint)
    gradient = adjoint(run, LAST, "vectors")
    return run, (*gradient.u0, *gradient.p)


@pytest.mark.parametrize("method", ["rk4", "cn"])
@pytest.mark.parametrize(("memory", "disk"), [(1, 3), (5, 10), (2, 20), (3, 1000)])
def test_steps_and_bits_are_those_of_so_many_checkpoints_in_memory(method, memory, disk):
    stepping = Stepping((0.0, 1.0), method, dt=0.01)
    run, ours = gradients(pendulum(), stepping, Checkpoints(memory, disk=disk))
    assert run.stored.steps == repeated_steps(100, min(memory + disk, 100))
    assert len(run.stored.made) <= memory + 3
    assert ours == gradients(pendulum(), stepping, "states")[1]


@pytest.mark.parametrize("checkpoint", [Checkpoints(3, disk=9), Checkpoints(1, disk=40)])
def test_adaptive_steps_through_events_have_the_same_bits(checkpoint):
    turn = ds.Event(lambda t, u, p: u[0], reset=lambda t, u, p: u * [1.0, 0.9], name="turn")
    stepping = Stepping((0.0, 9.0), "rk5dp", rtol=1e-7, atol=1e-10)
    run, ours = gradients(pendulum([turn]), stepping, checkpoint)
    assert len(run.crossings) == 3
    assert run.stored.steps > 0
    assert ours == gradients(pendulum([turn]), stepping, "states")[1]


def test_compiled_models_take_parts_again_and_again():
    """Parts of one run share a TS, which Python and C log in turn."""
    model = ds.trace(lambda t, u, p: np.array([u[1], -p[0] * np.sin(u[0])]), 2, ["k"])
    stepping = Stepping((0.0, 9.0), "rk5dp", rtol=1e-7, atol=1e-10)
    reference = gradients(model, stepping, "states")[1]
    for _ in range(3):
        assert gradients(model, stepping, Checkpoints(2, disk=4))[1] == reference


def test_states_are_written_where_they_are_asked_for_and_leave_nothing(tmp_path):
    scratch = Scratch(str(tmp_path), 4, PETSc.Vec().createSeq(1000, comm=PETSc.COMM_SELF))
    states = []
    for number in range(4):
        state = scratch.like.duplicate()
        state.set(float(number))
        states.append(scratch.store(state))
    assert scratch.store(scratch.like) is scratch.like  # no room
    assert [state.load().array[999] for state in states] == [0.0, 1.0, 2.0, 3.0]
    del state
    states[1:3] = []
    assert not isinstance(scratch.store(scratch.like), PETSc.Vec)  # places are used again
    assert list(tmp_path.iterdir()) == []  # it has no name: nothing is left by a kill


def test_what_is_not_what_was_written_is_an_error(tmp_path):
    scratch = Scratch(str(tmp_path), 2, PETSc.Vec().createSeq(1000, comm=PETSc.COMM_SELF))
    filed = scratch.store(scratch.like)
    filed.load()
    entries = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    ours = [
        entry for entry in entries if entry.is_symlink() and str(tmp_path) in str(entry.readlink())
    ]
    descriptor = int(ours[0].name)
    os.pwrite(descriptor, b"\x01", 8000 + 1500)  # the last place is taken first
    with pytest.raises(SolveError, match="a checkpoint on disk is not what was written there"):
        filed.load()
    os.ftruncate(descriptor, 100)
    with pytest.raises(SolveError, match="a checkpoint on disk is not what was written there"):
        filed.load()


def test_a_folder_that_is_not_there_is_refused():
    with pytest.raises(InputError, match=r"a file in /nowhere: No such file or directory"):
        gradients(
            pendulum(),
            Stepping((0.0, 1.0), "rk4", dt=0.1),
            Checkpoints(2, disk=3, folder="/nowhere"),
        )
    with pytest.raises(InputError, match=r"disk = -1"):
        Checkpoints(2, disk=-1)
    with pytest.raises(InputError, match=r"folder = 3"):
        Checkpoints(2, disk=1, folder=3)


def small_disk(folder):
    """Mount a disk of 1 MB, where one may."""
    if shutil.which("mount") is None or os.geteuid() != 0:
        return False
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_full_disk_is_known_before_the_first_step(tmp_path):
    calls = []
    many = ODE(lambda t, u, p: (calls.append(t), -p[0] * u)[1], 10_000, ["k"])
    # More than any disk has; where one may mount one, a small disk that is full is tried too.
    disks = [(2**44 // 80_000, str(tmp_path))]
    mounted = small_disk(tmp_path)
    if mounted:
        disks.append((20, str(tmp_path)))
    try:
        for disk, folder in disks:
            kept = Checkpoints(2, disk=disk, folder=folder)
            with pytest.raises(InputError, match=r"states of 80000 bytes a rank in a file in .*: "):
                solve(
                    many, np.ones(10_000), [0.5], Stepping((0.0, 1.0), "rk4", dt=0.01), None, kept
                )
        assert set(calls) <= {0.0}  # what is asked about the knots of controls
        assert len(calls) <= 2 * len(disks)
        if mounted:  # and what fits there runs
            kept = Checkpoints(2, disk=5, folder=str(tmp_path))
            start = many, np.ones(10_000), [0.5], Stepping((0.0, 1.0), "rk4", dt=0.05)
            assert solve(*start, checkpoint=kept).n_steps == 20
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.mark.mpi
@pytest.mark.parametrize("style", ["dmda", "vec"])
def test_on_several_ranks(style):
    case = make(PETSc.COMM_WORLD, style)
    stepping = Stepping((0.0, 0.4), "cn", dt=0.01)
    runs = [
        solve(case.problem, case.u0, case.p, stepping, [0.06, 0.13], kept)
        for kept in (Checkpoints(2, disk=6), "states")
    ]
    ours, reference = (adjoint(run, make_cost(case), "vectors") for run in runs)
    assert runs[0].stored.steps > 0
    assert ours.value == reference.value
    np.testing.assert_array_equal(ours.u0, reference.u0)
    np.testing.assert_array_equal(ours.p, reference.p)


PEAK = """
import resource
import numpy as np
import daeosens as ds
from daeosens.timestepping import Checkpoints

SIZE = 200_000  # 1.6 MB a state
product = lambda t, u, p, v: -p[0] * v
decay = ds.ODE(
    lambda t, u, p: -p[0] * u,
    SIZE,
    ["rate"],
    jacobian=ds.problem.Products(product, product),
    jacobian_p=lambda t, u, p: -u[:, None],
)
mean = ds.Terminal(lambda t, u, p: u.mean(), lambda t, u, p: np.full(SIZE, 1.0 / SIZE))
stepping = ds.Stepping((0.0, 1.0), "rk2a", dt=0.01)
ds.adjoint(ds.solve(decay, np.ones(SIZE), [0.5], stepping, checkpoint=Checkpoints(5)), mean)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run = ds.solve(decay, np.ones(SIZE), [0.5], stepping, checkpoint=Checkpoints(5, disk=95))
gradient = ds.adjoint(run, mean)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, run.stored.steps)
print(float(gradient.p[0]))
"""


@pytest.mark.slow
def test_states_on_disk_take_no_memory():
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    kilobytes, again, slope = map(float, done.stdout.split())
    assert kilobytes < 8_000  # one waits to be written; a hundred would be 160 000
    assert again == 0.0
    assert slope == pytest.approx(-np.exp(-0.5), rel=2e-5)
