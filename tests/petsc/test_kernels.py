"""The compiled extension: tableaus satisfy their order conditions, stages are those of the step."""

import numpy as np
import pytest
from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.petsc._kernels import Registered, rk_tableau, stages

# type, order, first same as last, error estimate
RK_TYPES = [
    ("1fe", 1, False, False),
    ("2a", 2, False, True),
    ("2b", 2, False, False),
    ("3", 3, False, False),
    ("3bs", 3, True, True),
    ("4", 4, False, False),
    ("5f", 5, False, True),
    ("5dp", 5, True, True),
    ("5bs", 5, True, True),
    ("6vr", 6, True, True),
    ("7vr", 7, False, True),
    ("8vr", 8, False, True),
]
DT = 0.1


@pytest.fixture
def make_ts(comm):
    """TS of a Runge-Kutta type for u_i' = -i u_i + t, n = 5 over all ranks, u(0) = 1."""
    made = []

    def make(rk_type):
        ts = PETSc.TS().create(comm)
        u = PETSc.Vec().createMPI(5, comm=comm)
        first, last = u.getOwnershipRange()
        rate = np.arange(first, last) + 1.0

        def rhs(ts, t, u, out):
            out.array = t - rate * u.array_r

        u.set(1.0)
        ts.setType("rk")
        ts.setRKType(rk_type)
        ts.setRHSFunction(rhs, u.duplicate())
        ts.setSolution(u)
        ts.setTimeStep(DT)
        ts.setMaxTime(10 * DT)
        ts.setUp()
        made.append(ts)
        return ts, u, rhs

    yield make
    for ts in made:
        ts.destroy()


@pytest.mark.parametrize(("rk_type", "order", "fsal", "estimate"), RK_TYPES)
def test_tableau_satisfies_its_order_conditions(make_ts, rk_type, order, fsal, estimate):
    ts, _, _ = make_ts(rk_type)
    a, b, c, b_embedded, found_order, found_fsal = rk_tableau(ts)
    assert (found_order, found_fsal, b_embedded is not None) == (order, fsal, estimate)
    assert np.array_equal(a, np.tril(a, -1))
    assert np.abs(a.sum(axis=1) - c).max() < 1e-14
    for power in range(1, order + 1):
        assert b @ c ** (power - 1) == pytest.approx(1 / power, abs=1e-13)
    if fsal:
        assert np.array_equal(a[-1], b)
        assert c[-1] == pytest.approx(1, abs=1e-15)
    if estimate:
        assert b_embedded.sum() == pytest.approx(1, abs=1e-13)


def test_tableau_is_a_copy(make_ts):
    ts, _, _ = make_ts("4")
    rk_tableau(ts)[1][:] = 0
    assert rk_tableau(ts)[1].sum() == pytest.approx(1)


@pytest.mark.mpi
@pytest.mark.parametrize("rk_type", [row[0] for row in RK_TYPES])
def test_stages_are_those_of_the_step(make_ts, rk_type):
    ts, u, rhs = make_ts(rk_type)
    a, b, c, *_ = rk_tableau(ts)
    start = u.copy()
    ts.step()
    dt = ts.getTime()
    slopes = []
    for row, abscissa, stage in zip(a, c, stages(ts), strict=True):
        expected = start.copy()
        expected.maxpy(dt * row[: len(slopes)], slopes)
        expected.axpy(-1.0, stage)
        assert expected.norm() < 1e-15
        slopes.append(stage.duplicate())
        rhs(ts, dt * abscissa, stage, slopes[-1])
    start.maxpy(dt * b, slopes)
    start.axpy(-1.0, ts.getSolution())
    assert start.norm() < 1e-15


def test_stages_are_views_that_the_next_step_overwrites(make_ts):
    ts, _, _ = make_ts("4")
    ts.step()
    view = stages(ts)[1]
    before = view.copy()
    ts.step()
    assert view.handle == stages(ts)[1].handle
    assert not view.equal(before)


def test_stages_outlive_the_solver(make_ts):
    ts, _, _ = make_ts("4")
    ts.step()
    kept = stages(ts)
    values = [stage.array.copy() for stage in kept]
    ts.destroy()
    assert all(np.array_equal(stage.array, old) for stage, old in zip(kept, values, strict=True))


def test_no_stages_before_set_up():
    ts = PETSc.TS().create(PETSc.COMM_SELF)
    ts.setType("rk")
    assert stages(ts) == []


def test_a_type_that_is_not_rk_is_refused_by_name():
    ts = PETSc.TS().create(PETSc.COMM_SELF)
    ts.setType("beuler")
    with pytest.raises(InputError, match="of type 'beuler'"):
        rk_tableau(ts)


COLLECTED = """
import faulthandler, gc
from mpi4py import MPI
from petsc4py import PETSc
import daeosens.petsc._kernels

class Cycle:
    def __init__(self, vec):
        self.own, self.vec = self, vec

faulthandler.dump_traceback_later(20, exit=True)
comms = [MPI.{name}.Dup() for _ in range(60)]
gc.disable()
for count, comm in enumerate(comms):  # the collector comes by at each of the first allocations
    vec = PETSc.Vec().createMPI(1, comm=MPI.{name})
    vec.comm.tompi4py().allgather(0)
    Cycle(vec)
    del vec
    gc.set_threshold(gc.get_count()[0] + count // 3)
    gc.enable()
    comm.allgather(0)
    gc.disable()
    gc.collect()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["COMM_SELF", "COMM_WORLD"])
def test_garbage_collected_inside_mpi4py_frees_no_communicator(run_mpi, tmp_path, name):
    """Else mpi4py 4.1 waits for its own lock."""
    script = tmp_path / "collected.py"
    script.write_text(COLLECTED.format(name=name), encoding="utf-8")
    done = run_mpi(1, [script])
    assert done.returncode == 0, done.stderr


def test_no_more_parameters_are_held_than_there_were():
    registered = Registered(2, (1, 0), np.zeros(3), np.zeros(0))  # nothing calls the function
    registered.hold(np.array([1, 2, 3]))  # integers are numbers too
    with pytest.raises(ValueError, match="4 parameters where there were 3"):
        registered.hold(np.zeros(4))
