"""Bounds and outer eigenvalues of dense matrices."""

import numpy as np
import pytest

from daeosens.petsc._kernels import projected, skew_norm


@pytest.mark.parametrize("size", [1, 15, 16, 17, 50])
def test_the_skew_norm_is_that_of_the_whole_matrix(size, rng):
    matrix = rng.normal(size=(size, size))
    expected = 0.5 * np.abs(matrix - matrix.T).sum(axis=1).max()
    assert skew_norm(matrix) == pytest.approx(expected, 1e-14)


def test_the_projection_is_that_onto_an_orthonormal_krylov_space(rng):
    matrix, start = rng.normal(size=(60, 60)), np.eye(60)[0]
    krylov = np.column_stack([np.linalg.matrix_power(matrix, k) @ start for k in range(6)])
    basis, _ = np.linalg.qr(krylov)
    values = np.linalg.eigvals(projected(matrix, start, 6, 1e-12))
    expected = np.linalg.eigvals(basis.T @ matrix @ basis)
    np.testing.assert_allclose(np.sort_complex(values), np.sort_complex(expected), rtol=1e-8)


def test_where_the_space_is_invariant_its_eigenvalues_are_exact():
    matrix = np.kron(np.eye(30), [[-0.1, 3.0], [-3.0, -0.1]])
    start = np.full(60, 60.0**-0.5)
    values = np.linalg.eigvals(projected(matrix, start, 12, 1e-12))
    np.testing.assert_allclose(np.sort_complex(values), [-0.1 - 3.0j, -0.1 + 3.0j], rtol=1e-13)
    assert projected(np.zeros((50, 50)), np.eye(50)[0], 12, 1e-12).tolist() == [[0.0]]
