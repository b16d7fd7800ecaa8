"""Single steps beside a run."""

import numpy as np
import pytest
from petsc4py import PETSc

from daeosens import ODE, Event, SolveError, Stepping, solve


def test_step_in_search_of_an_event_that_fails_is_named():
    """The equations have no values inside a step whose ends are sound."""

    def rhs(t, u, p, out):
        out.set(np.nan if 0.301 < t < 0.3999 else -1.0)

    event = Event(lambda t, u, p: u.sum() - 0.5, name="level")
    problem = ODE(
        rhs,
        state=PETSc.Vec().createSeq(1),
        events=[event],
        jacobian=lambda t, u, p, out: out.zeroEntries() or out.assemble(),
    )
    with pytest.raises(
        SolveError, match=r"a step of size 0\.05 from t = 0\.3 failed, in search of"
    ):
        solve(problem, [0.85], None, Stepping((0.0, 1.0), "beuler", dt=0.1))
