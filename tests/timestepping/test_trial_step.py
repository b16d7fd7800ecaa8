"""Single steps beside a run."""

import numpy as np
import pytest
from forms import DIAGONAL
from petsc4py import PETSc
from scipy.integrate import solve_ivp

from daeosens import ODE, Event, SolveError, Stepping, solve, trace
from daeosens.costs import EventTime
from daeosens.verify import duality


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


DRAG, BOUNCE = 0.3, 0.8


def falling(t, u, p):
    return np.array([u[1], -9.81 - p[0] * u[1]])


def ball(make, mass):
    bounce = Event(
        lambda t, u, p: u[0],
        lambda t, u, p: np.array([0.0 * u[0], -p[1] * u[1]]),
        direction=-1,
        name="bounce",
    )
    value = {} if mass is None else {"mass": mass}
    return make(falling, 2, ["drag", "bounce"], events=[bounce], **value)


@pytest.mark.parametrize("mass", [None, np.eye(2)], ids=["rhs", "M"])
@pytest.mark.parametrize("make", [ODE, trace])
@pytest.mark.parametrize("method", DIAGONAL)
def test_steps_to_an_event_are_not_refused_where_a_component_is_zero(method, make, mass):
    """Where the ball touches the ground its height is 0, and relative tolerances mean nothing."""
    first = solve_ivp(
        falling,
        (0.0, 2.0),
        [2.0, 0.0],
        args=([DRAG],),
        rtol=1e-11,
        atol=1e-13,
        events=[lambda t, u, p: u[0]],
    ).t_events[0][0]
    for rtol in (1e-4, 1e-6, 1e-8):
        stepping = Stepping((0.0, 2.0), method, rtol=rtol)
        run = solve(ball(make, mass), [2.0, 0.0], [DRAG, BOUNCE], stepping)
        assert len(run.crossings) == 2
        assert abs(run.crossings[0].t - first) < 10 * rtol
        assert abs(run.crossings[0].before.array[0]) < 1e-13
        assert duality(run, EventTime("bounce", 1)) < 1e-12
