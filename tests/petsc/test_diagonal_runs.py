"""Sparse matrices in runs along the diagonals."""

import numpy as np
import pytest

from daeosens.petsc.diagonal_runs import diagonal_runs


def dense(result, values, shapes):
    """The matrices of each block, those of v and of f, put together from runs."""
    blocks = [[np.zeros(shape) for shape in computed] for computed in shapes]
    for b, matrices in enumerate(blocks):
        for of_f, row, column, length, first in result.runs[
            result.blocks[b] : result.blocks[b + 1]
        ]:
            along = np.arange(length)
            matrices[of_f][row + along, column + along] += values[first + along]
    return blocks


@pytest.mark.parametrize("density", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("inner", "starts"), [(0, [0]), (4, [0]), (3, [0, 2, 5])])
def test_runs_hold_every_entry_once(density, inner, starts, rng):
    matrix = rng.normal(size=(7, 9)) * (rng.uniform(size=(7, 9)) < density)
    rows, columns = np.nonzero(matrix)
    order, diagonals = diagonal_runs(rows, columns, inner, starts)
    ends = [*starts[1:], 9]
    widths = [end - start for start, end in zip(starts, ends, strict=True)]
    blocks = dense(
        diagonals, matrix[rows, columns][order], [((inner, k), (7 - inner, k)) for k in widths]
    )
    for (of_v, of_f), start, end in zip(blocks, starts, ends, strict=True):
        assert (np.vstack([of_v, of_f]) == matrix[:, start:end]).all()


def test_a_band_has_one_run_for_each_diagonal():
    rows, columns = np.nonzero(np.tri(50, k=1) - np.tri(50, k=-3))
    _, diagonals = diagonal_runs(rows, columns)
    assert diagonals.runs[:, 3].tolist() == [48, 49, 50, 49]
