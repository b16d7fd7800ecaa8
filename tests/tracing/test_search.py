"""Global search: all minimisers, on the surface of the box too, proven or plainly not."""

import numpy as np
import pytest

from daeosens.tracing.daeo.intervals import interval_function
from daeosens.tracing.daeo.search import Search


def waves(t, x, y, p):
    return (x[0] - y[0]) ** 2 + np.sin(5 * y[0])


def make(h, box, n_x=0, n_p=0):
    return Search(interval_function(h, n_x, len(box), n_p), box)


def test_all_minimisers_of_a_function_of_one_variable():
    minimizers = make(waves, [[-20, 20]], n_x=1).find(0.0, [1.0])
    known = [-1.3306699, -0.212854226, 0.946738999, 2.10734064, 3.23458679]
    assert minimizers.points[:, 0] == pytest.approx(known, abs=6e-9)
    assert minimizers.best == 2
    assert minimizers.complete
    # stationary to rounding, and enclosed as tightly
    y = minimizers.points[:, 0]
    assert np.abs(-2 * (1 - y) + 5 * np.cos(5 * y)).max() < 1e-13
    assert (minimizers.enclosures[..., 1] - minimizers.enclosures[..., 0]).max() < 1e-14
    assert minimizers.boxes < 200


def test_unchanged_is_shown_near_by_and_not_where_a_minimiser_vanishes():
    search = make(waves, [[-20, 20]], n_x=1)
    minimizers = search.find(0.0, [1.0])
    assert search.unchanged([0.0, 1.0], [[0.99, 1.01]], (), minimizers)
    assert not search.unchanged([0.0, 1.0], [[0.0, 3.0]], (), minimizers)
