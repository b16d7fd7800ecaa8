"""Directions and sizes that differences are taken with."""

import numpy as np
import pytest
from petsc4py import PETSc

from daeosens.petsc import gather, read, write
from daeosens.verify.extrapolated_differences import random_direction, random_numbers, typical_sizes


def test_typical_sizes():
    x = PETSc.Vec().createWithArray([3.0, -4.0, 0.0, 1e-20], comm=PETSc.COMM_SELF)
    np.testing.assert_allclose(read(typical_sizes(x)), [3.0, 4.0, 1.0, 1e-6])
    x.zeroEntries()
    np.testing.assert_allclose(read(typical_sizes(x)), 1.0)
    write(x, [3e-5, 0.0, 4e-5, 0.0])
    np.testing.assert_allclose(read(typical_sizes(x)), [3e-5, 2.5e-5, 4e-5, 2.5e-5])


@pytest.mark.mpi
def test_random_numbers_do_not_depend_on_the_ranks():
    x = PETSc.Vec().createMPI(37, comm=PETSc.COMM_WORLD)
    alone = PETSc.Vec().createSeq(37, comm=PETSc.COMM_SELF)
    x.set(2.0)
    alone.set(2.0)
    np.testing.assert_array_equal(gather(random_numbers(x, 5)), read(random_numbers(alone, 5)))
    np.testing.assert_array_equal(gather(random_direction(x, 5)), read(random_direction(alone, 5)))
    assert len(set(gather(random_numbers(x, 5)))) == 37


@pytest.mark.mpi
def test_random_numbers_on_a_grid_follow_its_points():
    """Their sum with weights of the points, which a partition cannot change."""
    results = []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        grid = PETSc.DMDA().create([9, 8], dof=2, stencil_width=1, comm=comm)
        numbers, weights = random_numbers(grid.createGlobalVec(), 3), grid.createGlobalVec()
        (x0, x1), (y0, y1) = grid.getRanges()
        j, i, k = np.meshgrid(np.arange(y0, y1), np.arange(x0, x1), [0, 1], indexing="ij")
        write(weights, np.sin(1.0 + i + 10 * j + 100 * k).ravel())
        results.append(numbers.dot(weights))
    assert results[0] == pytest.approx(results[1], rel=1e-13)
