"""Slopes that are recorded and transposed: rows times the Jacobian that directions give."""

from typing import Any

import numpy as np
import pytest

import daeosens as ds
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.derivative_arrays import DerivativeArray, PointArray, Record, evaluate
from tests.problem.test_derivative_arrays import ARRAYS, POINT

TRANSPOSED = (
    *("filled", "swapped", "in place", "added at", "added at places of zeros", "copied", "eye"),
    *("grid", "list", "nested lists", "matrix", "outer", "det", "matrix_power", "norm along"),
    *(
        "einsum",
        "einsum, implicit",
        "tensordot",
        "kron",
        "cross",
        "roll",
        "interp of values",
        "interp",
    ),
    *("cumulative", "trapezoid", "diff", "vectorize", "select", "objects", "hstack", "stack"),
    *("block", "insert", "triangles", "diagonals", "clip", "powers", "out", "statistics", "prod"),
    *("meshgrid", "mod", "apply_along_axis", "linspace", "built-ins", "fancy", "repeat"),
    *("broadcast", "logaddexp", "copysign", "polynomial", "bincount", "hypot of math", "tolist"),
    *("int", "vander", "convolve", "convolve inside", "pad by zeros, widths in a list"),
    *("sum of some", "mean of some", "variance of rows", "average of rows"),
    *("product of some", "product of rows", "trapezoid over x"),
    *("trapezoid over rows", "ediff1d with ends", "outer of ufuncs", "dot of numbers"),
    *("dot of three axes", "tensordot of matrices", "cross along", "det of one and two"),
    *("norms of rows", "norm of columns", "roll all", "roll both"),
    *("columns first", "concatenate all", "meshgrid by rows", "pad by reflection"),
    *("sums in turn", "diff of two"),
)
NOT_FINITE = "without nan"
"""A factor that is not finite spoils rows of which nothing comes through it: 0 * nan."""
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
@pytest.mark.parametrize("name", sorted(ARRAYS.keys() - {*TRANSPOSED, NOT_FINITE}))
def test_what_is_not_known_is_no_record(name: str):
    """Whoever asks for products takes directions then."""
    with pytest.raises(Exception, match=r"recorded|np\.|point|len\(\)|attribute"):
        recorded(name)


def test_rows_that_are_not_finite_are_products_with_directions(rng: np.random.Generator):
    """Slopes of log(u) where ``np.where`` takes another branch do not spoil a gradient."""
    record, result, slopes = recorded(NOT_FINITE)
    (rows,) = record.pull(0, result.slopes, np.ones((1, *result.shape)), [slopes])
    assert np.isnan(rows[0]).tolist() == [False, True, False]
    n = 64
    couplings = 0.1 * rng.normal(size=(n, n)) / np.sqrt(n)

    def rhs(_t: float, u: Any, p: Any) -> Any:
        return -p[0] * np.where(u > 0.0, u * np.log(u), 0.0) + couplings @ u - 1.0

    model = ds.ODE(rhs, n, 1)
    cost = ds.Terminal(lambda _t, u, _p: u @ u)

    def run(p: float) -> Any:
        return ds.solve(
            model, np.linspace(0.5, 3.0, n), [p], ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
        )

    assert run(0.3).u[-1].min() < 0.0 < run(0.3).u[0].min()
    gradient = ds.adjoint(run(0.3), cost)
    assert gradient.engine == "arrays"
    by_vectors = ds.adjoint(run(0.3), cost, "vectors")
    np.testing.assert_allclose(gradient.u0, by_vectors.u0, rtol=1e-12, atol=1e-13)
    values = [float(run(0.3 + h).u[-1] @ run(0.3 + h).u[-1]) for h in (-1e-5, 1e-5)]
    assert gradient.p[0] == pytest.approx((values[1] - values[0]) / 2e-5, rel=1e-7)
