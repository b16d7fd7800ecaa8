"""What a run and its gradient will cost: counts that hold, times of a clock that calls advance."""

import re
import sys
import time

import numpy as np
import pytest
from distributed import make
from mpi4py import MPI
from petsc4py import PETSc

import daeosens as ds
from daeosens import ODE, InputError, Stepping, adjoint, solve
from daeosens.derivatives import plan
from daeosens.timestepping import Checkpoints

SLOW = 2e-3  # seconds of a call


def test_schedules_fit_and_cost_what_is_promised(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def slow_decay(t, u, p):
        now[0] += SLOW
        return -p[0] * u

    problem = ODE(slow_decay, 4, ["rate"], jacobian=lambda t, u, p: -p[0] * np.eye(4))
    stepping = Stepping((0.0, 1.0), "rk2a", dt=0.01)
    found = plan(problem, np.ones(4), [0.5], stepping, memory=32 * 10)
    assert found.steps == 100
    assert [run.states for run in found.runs] == [10, 5, 2, 1]
    assert all(run.memory <= 320 for run in found.runs)
    assert found.runs[0].repeated == 123
    # two stages a step, and nothing else that takes time
    assert found.forward == pytest.approx(2 * SLOW, rel=0.05)
    for chosen in found.runs[:2]:
        run = solve(problem, np.ones(4), [0.5], stepping, checkpoint=chosen.checkpoint)
        adjoint(run, ds.Terminal(lambda t, u, p: u[0]), "vectors")
        assert run.stored.steps == chosen.repeated
    text = str(found)
    assert text.startswith("100 steps of 0.004 s")
    assert re.search(r"\nCheckpoints\(10\) +320 bytes +1\.23 N +\d", text)


def test_a_disk_costs_what_was_measured(monkeypatch, tmp_path):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def slow_decay(t, u, p):
        now[0] += SLOW
        return -p[0] * u

    def slow(function, seconds):
        def called(self, *args):
            now[0] += seconds
            return function(self, *args)

        return called

    file = sys.modules[plan.__module__].Scratch
    monkeypatch.setattr(file, "store", slow(file.store, SLOW))
    monkeypatch.setattr(file, "load", slow(file.load, SLOW / 2))
    problem = ODE(slow_decay, 4, ["rate"], jacobian=lambda t, u, p: -p[0] * np.eye(4))
    stepping = Stepping((0.0, 1.0), "rk2a", dt=0.01)
    start = problem, np.ones(4), [0.5], stepping
    found = plan(*start, memory=32 * 5, disk=32 * 50, folder=tmp_path)
    best = found.runs[0]
    # a step takes two evaluations; writing as long as one, reading half as long
    expected = Checkpoints(5, 50, tmp_path, write=0.5, read=0.25)
    assert best.checkpoint == expected
    assert best.seconds < found.runs[1].seconds
    name = "Checkpoints(5, disk=50, write=0.5, read=0.25)"
    assert f"\n{name} 160 bytes" in str(found)
    run = solve(*start, checkpoint=best.checkpoint)
    adjoint(run, ds.Terminal(lambda t, u, p: u[0]), "vectors")
    assert run.stored.steps == best.repeated
    assert not [*tmp_path.iterdir()]
    # with room for all states there is nothing to write
    whole = plan(*start, disk=1e6)
    assert all(run.checkpoint == "states" or not run.checkpoint.disk for run in whole.runs)


def test_states_that_fit_are_all_kept():
    problem = ODE(lambda t, u, p: -p[0] * u, 4, ["rate"])
    found = plan(problem, np.ones(4), [0.5], Stepping((0.0, 1.0), "cn", dt=0.03))
    best = found.runs[0]
    assert (found.steps, best.checkpoint, best.states, best.repeated) == (34, "states", 35, 0)
    assert solve(problem, np.ones(4), [0.5], Stepping((0.0, 1.0), "cn", dt=0.03)).n_steps == 34


def test_what_cannot_be_planned_is_refused():
    problem = ODE(lambda t, u, p: -p[0] * u, 4, ["rate"])
    with pytest.raises(InputError, match=r"stepping: rk5dp chooses its steps"):
        plan(problem, np.ones(4), [0.5], Stepping((0.0, 1.0), "rk5dp", rtol=1e-6))
    fixed = Stepping((0.0, 1.0), "rk4", dt=0.1)
    with pytest.raises(InputError, match=r"in a file in /nowhere: No such file"):
        plan(problem, np.ones(4), [0.5], fixed, memory=100, disk=100, folder="/nowhere")
    with pytest.raises(InputError, match=r"memory = 40 bytes a rank, of which a state takes 32"):
        plan(problem, np.ones(4), [0.5], fixed, memory=40)
    with pytest.raises(InputError, match="memory"):
        plan(problem, np.ones(4), [0.5], fixed, memory="much")


@pytest.mark.mpi(min_size=2)
def test_ranks_plan_the_same():
    ring = make(PETSc.COMM_WORLD)
    found = plan(ring.problem, ring.u0, ring.p, Stepping((0.0, 1.0), "rk4", dt=0.1), memory=1000)
    plans = MPI.COMM_WORLD.allgather((found.steps, found.forward, found.back))
    assert len(set(plans)) == 1
    assert isinstance(found.runs[0].checkpoint, (str, Checkpoints))
