"""The stationarity that is reported of a point."""

import numpy as np

from daeosens.optimize.constrained.optimality import _projected


def test_slopes_that_are_small_beside_x_count():
    x, slope = np.array([1e10, 1.0, 4.5]), np.array([1e-7, 2.0, -1.0])
    limits = np.zeros(3), np.array([np.inf, 5.0, 5.0])
    assert _projected(x, slope, limits).tolist() == [1e-7, 1.0, -0.5]
    assert _projected(x, slope, None) is slope
