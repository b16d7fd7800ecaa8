"""Slopes that are recorded and transposed: rows times the Jacobian that directions give."""

from typing import Any

import numpy as np
import pytest

from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.derivative_arrays import DerivativeArray, PointArray, Record, evaluate
from tests.problem.test_derivative_arrays import ARRAYS, POINT

TRANSPOSED = (
    *("filled", "swapped", "in place", "added at", "added at places of zeros", "copied", "eye"),
    *("grid", "list", "nested lists", "matrix", "outer", "det", "matrix_power", "norm along"),
    *("einsum", "einsum, implicit", "tensordot", "kron", "cross", "roll", "interp of values"),
    *("cumulative", "trapezoid", "diff", "vectorize", "select", "objects", "hstack", "stack"),
    *("block", "insert", "triangles", "diagonals", "clip", "powers", "out", "statistics", "prod"),
    *("meshgrid", "mod", "apply_along_axis", "linspace", "built-ins", "fancy", "repeat"),
    *("broadcast", "logaddexp", "copysign", "polynomial", "bincount", "hypot of math", "tolist"),
    *("int", "vander"),
)
POINTS = np.array([POINT, POINT + 0.01, POINT - 0.02])


def recorded(name: str) -> tuple[Record, Any, Any]:
    """Return a record of a function at all points, its result, and the slopes of its argument."""
    record = Record()
    slopes = record.slopes((POINT.size, 1))
    u = DerivativeArray(PointArray(POINTS.T.copy()), slopes)
    result = evaluate(ARRAYS[name], [u], (1,), "", len(POINTS), record)
    return record, result, slopes


@pytest.mark.whole  # each function has a rule of its own
@pytest.mark.parametrize("name", TRANSPOSED)
def test_rows_times_the_jacobian(name: str, rng: np.random.Generator):
    record, result, slopes = recorded(name)
    jacobian = AutomaticJacobian(ARRAYS[name], 0, "f", "")
    w = rng.normal(size=(2, *result.shape))
    for k, point in enumerate(POINTS):
        (rows,) = record.pull(k, result.slopes, w, [slopes])
        expected = w.reshape(2, -1) @ np.asarray(jacobian(point)).reshape(-1, POINT.size)
        np.testing.assert_allclose(rows, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


@pytest.mark.whole
@pytest.mark.parametrize("name", sorted(ARRAYS.keys() - {*TRANSPOSED}))
def test_what_is_not_known_is_no_record(name: str):
    """Whoever asks for products takes directions then."""
    with pytest.raises(Exception, match=r"recorded|np\.|point|len\(\)|attribute"):
        recorded(name)
