"""Series of vectors in HDF5."""

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
