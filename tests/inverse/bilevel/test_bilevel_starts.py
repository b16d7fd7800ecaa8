"""Where a fit begins at a bi-level estimate."""

import numpy as np
import pytest
from bilevel_data import NAMES, TIMES, TRUTH, measured, predators, unknowns

import daeosens as ds
from daeosens import Parameter, Parameters
from daeosens.inverse import bilevel
from daeosens.inverse.bilevel.bilevel_starts import _positive


@pytest.fixture(scope="module")
def model():
    return ds.trace(predators, ["prey", "predator"], NAMES)


def test_a_rate_that_is_estimated_as_zero_begins_at_its_standard_deviation(model):
    without = TRUTH * [1.0, 1.0, 1.0, 1.0, 0.0]
    data = measured(model, TIMES[::3], p=without, noise=0.02, seed=2)
    start = Parameters(unknowns(feed=Parameter(1.0, scale="log")), [1.0, 0.5])
    result = bilevel(model, data, start)
    assert result.estimate["feed"] == 0.0
    at = result.functional.at(result.x)
    values = _positive(start, result.linear, at)
    deviation = np.sqrt(float(at.residual @ at.residual) / (len(at.residual) - 5))
    column = result.linear.index("feed")
    assert values["feed"] == pytest.approx(deviation / np.linalg.norm(at.matrix[:, column]))
    assert {name: values[name] for name in ("grow", "eat", "die")} == {
        name: result.estimate[name] for name in ("grow", "eat", "die")
    }
