"""Values that are not finite are named: function, place, time and rank."""

import numpy as np
import pytest
from petsc4py import PETSc

from daeosens import ODE, Event, SolveError, Stepping, solve, trace_stencil
from daeosens.equations import add_events
from daeosens.grids import Grid

UNIT = (0.0, 1.0)
STEPPINGS = {
    "passes": Stepping(UNIT, "rk4", dt=0.1),
    "adaptive": Stepping(UNIT, "3bs", rtol=1e-6),
    "endpoint": Stepping(UNIT, "cn", dt=0.1),
    "one stage": Stepping(UNIT, "beuler", dt=0.1),
    "adaptive, implicit": Stepping(UNIT, "cn", rtol=1e-3),
}


def emptied(t, u, p):
    """At one point of the grid the root is the first without a value."""
    a, b = u.center
    x, y = u.x
    from_point = (x - 0.5) ** 2 + (y - 0.75) ** 2
    return [-p.rate * a + 1e-3 * u.laplacian()[0], np.sqrt(0.55 + 10.0 * from_point - t) - b]


def flattened(t, u, p):
    """The root has no derivative at 0, where a stays."""
    a, b = u.center
    return [-p.rate * a, np.sqrt(a) - b + u.laplacian()[1]]


def run(rhs, stepping, a=0.5, events=()):
    grid = Grid((UNIT, UNIT), (8, 8), dof=2)
    model = add_events(trace_stencil(rhs, grid, ["rate"]), events)
    start = grid.create_vec()
    grid.writable(start)[...] = a, 0.5
    return solve(model, start, [1.0], stepping)


@pytest.mark.mpi
@pytest.mark.parametrize("name", STEPPINGS)
def test_a_compiled_point_is_named_on_every_rank(name):
    message = r"callback 'rhs' gave nan for unknown 1 of point \[4, 6\] at t = 0\.(5[5-9]|6)"
    with pytest.raises(SolveError, match=message):
        run(emptied, STEPPINGS[name])


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_a_compiled_point_is_named_in_runs_with_events(method):
    never = Event(lambda t, u, p: u.norm() + 1.0, direction=-1, name="never")
    with pytest.raises(SolveError, match=r"'rhs' gave nan for unknown 1 of point \[4, 6\]"):
        run(emptied, Stepping(UNIT, method, dt=0.1), events=[never])


@pytest.mark.mpi
def test_derivatives_of_a_compiled_point_are_named():
    message = (
        r"callback 'jacobian' gave inf for unknown 1 of point \[0, 0\] at t = 0\.25 \(rank 0\)"
    )
    with pytest.raises(SolveError, match=message):
        run(flattened, Stepping(UNIT, "beuler", dt=0.25), a=0.0)


def test_callbacks_are_named_where_the_error_estimate_is_what_fails():
    def rhs(t, u, p, out):
        out.set(np.nan if t > 0.3 else 1.0)

    state = PETSc.Vec().createSeq(3)
    problem = ODE(rhs, state=state, jacobian=lambda t, u, p, out: out.zeroEntries())
    with pytest.raises(SolveError, match=r"callback 'rhs' gave nan in local entry 0 at t = 0\.5"):
        solve(problem, state, None, Stepping(UNIT, "3bs", rtol=1e-6))
