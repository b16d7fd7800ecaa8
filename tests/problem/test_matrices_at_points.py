"""One matrix for all points of a sweep."""

import numpy as np
import pytest
from matrix_kinds import PRODUCTS, ROWS, A, entries, scaled, vec
from scipy import sparse

from daeosens.problem.matrices import PointMatrix, from_numpy


@pytest.mark.parametrize(
    "value", [scaled(A), scaled(sparse.csr_array(A)), PRODUCTS], ids=["dense", "sparse", "products"]
)
def test_one_matrix_has_the_values_of_the_last_point(value):
    made = []
    derivative = PointMatrix(from_numpy(value, "jacobian", ROWS, ROWS))
    for t, p in ((0.5, 2.0), (-1.0, 3.0), (0.5, 2.0)):
        made.append(derivative.at(t, vec(np.zeros(3)), np.array([p])))
        np.testing.assert_allclose(entries(made[-1]), t * p * A, rtol=1e-15)
    assert all(item is made[0] for item in made)


def test_no_matrix_is_made_before_the_first_point():
    def refuse(*_point):
        raise AssertionError

    derivative = PointMatrix(from_numpy(refuse, "jacobian", ROWS, ROWS))
    with pytest.raises(AssertionError):
        derivative.at(0.0, ROWS, np.ones(1))
