"""Vectors whose memory is used again."""

import numpy as np
import pytest
from petsc4py import PETSc

from daeosens import trace_stencil
from daeosens.petsc._kernels import pool_memory, vec_to_fill
from daeosens.problem.grids import Grid


def pooled(comm=PETSc.COMM_WORLD):
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (9, 7), dof=2, comm=comm)
    vec = grid.create_vec()
    pool_memory(vec)
    return vec


def address(vec):
    return vec.getArray(readonly=True).ctypes.data


@pytest.mark.mpi
def test_memory_is_used_again_and_by_one_vector_at_a_time():
    vec = pooled()
    first, second = vec.duplicate(), vec.duplicate().duplicate()
    places = {address(first), address(second)}
    assert len(places) == 2
    assert address(vec) not in places
    assert all(place % 64 == 0 for place in places)
    first.destroy()
    second.destroy()
    assert {address(item) for item in [vec.duplicate() for _ in range(2)]} == places


def test_blocks_lie_apart():
    vec = pooled(PETSc.COMM_SELF)
    vecs = [vec.duplicate() for _ in range(40)]
    places = sorted(map(address, vecs))
    assert min(np.diff(places)) >= 8 * vec.size
    for computed in vecs:
        computed.destroy()
    assert sorted(address(item) for item in [vec.duplicate() for _ in places]) == places


@pytest.mark.slow
def test_vectors_of_solvers_use_memory_again():
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (9, 7), dof=2, comm=PETSc.COMM_SELF)
    model = trace_stencil(lambda t, u, p: u.laplacian(), grid)
    matrix = model.rhs_u.create(0.0, model.create_state(), np.zeros(0))
    places = []
    for _ in range(2):
        ksp = PETSc.KSP().create(comm=PETSc.COMM_SELF)
        ksp.setOperators(matrix)
        vecs = ksp.getWorkVecs(right=3)
        places.append({address(vec) for vec in vecs})
        for vec in vecs:
            vec.destroy()
    assert len(places[0]) == 3
    assert len(places[0] | places[1]) <= 4  # one more is made to duplicate it


@pytest.mark.mpi
def test_duplicates_are_vectors_of_the_same_layout():
    vec = pooled()
    copy = vec.duplicate()
    assert copy.getSizes() == vec.getSizes()
    assert copy.getType() == vec.getType()
    assert copy.getBlockSize() == vec.getBlockSize()
    assert copy.getDM().handle == vec.getDM().handle
    copy.set(2.0)
    vec.set(1.0)
    vec.axpy(3.0, copy)
    assert vec.sum() == 7.0 * vec.size


def test_values_outlive_the_first_vector():
    vec = pooled(PETSc.COMM_SELF)
    vec.set(3.0)
    array = vec.copy().getArray()
    vec.destroy()
    np.testing.assert_array_equal(array, 3.0)


def test_memory_that_is_used_again_is_zero():
    vec = pooled(PETSc.COMM_SELF)
    first = vec.duplicate()
    first.set(np.nan)
    first.destroy()
    assert vec.duplicate().norm() == 0.0


def test_viewing_keeps_the_order_of_the_grid(tmp_path):
    vec = pooled(PETSc.COMM_SELF)
    vec.setArray(np.arange(float(vec.size)))
    for name, value in (("first", vec), ("copy", vec.copy())):
        viewer = PETSc.Viewer().createBinary(str(tmp_path / name), "w", comm=PETSc.COMM_SELF)
        value.view(viewer)
        viewer.destroy()
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "first").read_bytes()


@pytest.mark.mpi
@pytest.mark.parametrize("comm", [PETSc.COMM_SELF, PETSc.COMM_WORLD])
def test_vectors_wait_for_their_next_use_on_one_rank_only(comm):
    """Others might not do the same, and all have to make vectors together."""
    vec = pooled(comm)
    first = vec_to_fill(vec)
    handle, place = first.handle, address(first)
    first.set(np.nan)
    waiting = vec.getDM().refcount
    del first
    PETSc.garbage_cleanup(comm)
    assert vec.getDM().refcount == waiting - (comm.size > 1)
    again = vec.duplicate()
    assert again.norm() == 0.0
    if comm.size == 1:
        assert (again.handle, address(again)) == (handle, place)


@pytest.mark.parametrize(
    "change",
    [
        lambda vec: vec.setName("u"),
        lambda vec: vec.setOptionsPrefix("u_"),
        lambda vec: vec.setAttr("of", "a user"),
    ],
)
def test_changed_vectors_do_not_come_back(change):
    vec = pooled(PETSc.COMM_SELF)
    other = vec_to_fill(vec)  # takes the handle that is freed first
    changed = vec_to_fill(vec)
    change(changed)
    del changed
    vector = vec_to_fill(vec)
    del other
    assert vector.getName() != "u"
    assert vector.getOptionsPrefix() is None
    assert vector.getAttr("of") is None
    vector.set(1.0)


def test_vectors_that_are_held_elsewhere_do_not_come_back():
    vec = pooled(PETSc.COMM_SELF)
    first = vec_to_fill(vec)
    nest = PETSc.Vec().createNest([first], comm=PETSc.COMM_SELF)
    first.set(3.0)
    del first
    vec_to_fill(vec).set(5.0)
    assert nest.max()[1] == 3.0


def test_waiting_vectors_go_with_the_first_one():
    vec = pooled(PETSc.COMM_SELF)
    dm = vec.getDM()
    before = dm.refcount
    waiting = [vec_to_fill(vec) for _ in range(3)]
    late = vec_to_fill(vec)
    del waiting
    assert dm.refcount > before
    vec.destroy()
    late.set(2.0)
    assert dm.refcount == before  # less the first one, more the last one
    del late
    assert dm.refcount == before - 1
