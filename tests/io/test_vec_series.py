"""Series of vectors in HDF5."""

import os

import numpy as np
import pytest
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.io import vec_series
from daeosens.io.hdf5 import block_of


def test_vectors_of_ranks_without_rows(tmp_path):
    """A rank may have no rows at all."""
    vec = PETSc.Vec().createMPI(0, comm=PETSc.COMM_SELF)
    block = block_of(vec)
    series = {"empty": vec_series.Series([vec, vec], 2, block)}
    vec_series.write_series(tmp_path / "a.h5", MPI.COMM_SELF, series, {})
    read = vec_series.read_series(tmp_path / "a.h5", "empty", MPI.COMM_SELF, block, vec.duplicate)
    assert len(read) == 2


@pytest.mark.parametrize(
    ("sizes", "count"),
    [((1,), 1), ((1, 1, 1), 3), ((1,), 60_000), ((300, 7), 900), ((40_000,), 30)],
)
def test_room_is_taken_for_all_of_a_file_and_little_more(tmp_path, monkeypatch, sizes, count):
    """HDF5 may crash where there is none in the middle of a file."""
    taken, finish = [], vec_series._RoomTaken.finish

    def noted(file):
        taken.append((os.fstat(file.fileno()).st_size, file._end))
        finish(file)

    monkeypatch.setattr(vec_series._RoomTaken, "finish", noted)
    vecs = [PETSc.Vec().createSeq(size, comm=PETSc.COMM_SELF) for size in sizes]
    series = {
        f"series {k}": vec_series.Series([vec] * count, count, block_of(vec))
        for k, vec in enumerate(vecs)
    }
    small = {"times": np.arange(1.0 + count), "none": np.empty(0), "run": np.zeros(1800, np.uint8)}
    vec_series.write_series(tmp_path / "a.h5", MPI.COMM_SELF, series, small)
    ((room, used),) = taken
    assert used <= room <= used + 2**15 + 16 * len(sizes) * count
