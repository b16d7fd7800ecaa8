"""An event at the last time of a run, whose time is a parameter: all sweeps say the same."""

import numpy as np
import pytest

from daeosens import adjoint, sensitivities, tangent
from daeosens.derivatives.residual_jacobian import residual, residual_tangent
from daeosens.petsc import read
from tests.timestepping.test_events_event_loop import ALONG, MEASURED, dosed


def test_all_sweeps_agree_on_an_event_at_the_last_time():
    run = dosed("named", "rk4", 4.0, MEASURED.times)
    steps, block = (adjoint(run, MEASURED, engine=engine) for engine in ("vectors", "arrays"))
    np.testing.assert_allclose(block.p, steps.p, rtol=1e-12)
    along = tangent(run, ALONG[:1], ALONG[1:])
    assert along.times[-1] == 0.0
    assert along.times[run.crossings[0].step] == 1.0
    rows = residual_tangent(along, MEASURED)
    weights = residual(run, MEASURED)
    expected = read(weights) @ rows
    assert steps.u0 @ ALONG[:1] + steps.p @ ALONG[1:] == pytest.approx(expected, rel=1e-12)
    matrices = sensitivities(run)
    np.testing.assert_allclose(along.u[-1], matrices.u0 @ ALONG[:1] + matrices.p @ ALONG[1:])
