"""Runs repeated from their logs."""

import numpy as np
import pytest
from forms import FORMS, OBSERVATION_TIMES, P0, U0, make_stepping

from daeosens import solve
from daeosens.derivatives.engines.tsadjoint import replay


@pytest.mark.parametrize(("name", "method"), [("rhs", "rk5dp"), ("M", "cn"), ("rhs", "midpoint")])
@pytest.mark.parametrize("adaptive", [False, True])
def test_replay_repeats_the_steps_exactly(name, method, adaptive):
    """Rejected steps are not tried again."""
    stepping = make_stepping(method, adaptive=adaptive)
    run = solve(FORMS[name].analytic, U0, P0, stepping, OBSERVATION_TIMES)
    assert run.effort.rejected > 0 or not adaptive
    seen = []
    ts = replay(
        run,
        lambda ts: ts.setMonitor(lambda _ts, n, t, u: seen.append((t, *u.getArray(readonly=True)))),
    )
    assert ts.getStepNumber() == run.n_steps
    assert ts.getStepRejections() == 0
    ts.destroy()
    np.testing.assert_allclose([row[0] for row in seen], run.times, rtol=1e-15)
    np.testing.assert_allclose([row[1:] for row in seen], run.u, rtol=0, atol=1e-13)
