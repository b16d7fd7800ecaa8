"""Values that are not finite are named: function, place, time and rank."""

import numpy as np
import pytest
from petsc4py import PETSc

import daeosens as ds
from daeosens.problem import add_events
from daeosens.problem.grids import Grid

UNIT = (0.0, 1.0)
STEPPINGS = {
    "passes": ds.Stepping(UNIT, "rk4", dt=0.1),
    "adaptive": ds.Stepping(UNIT, "3bs", rtol=1e-6),
    "endpoint": ds.Stepping(UNIT, "cn", dt=0.1),
    "one stage": ds.Stepping(UNIT, "beuler", dt=0.1),
    "adaptive, implicit": ds.Stepping(UNIT, "cn", rtol=1e-3),
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


def run(rhs, stepping, a=0.5, events=(), jacobian="products"):
    grid = Grid((UNIT, UNIT), (8, 8), dof=2)
    model = add_events(ds.trace_stencil(rhs, grid, ["rate"], jacobian=jacobian), events)
    start = grid.create_vec()
    grid.writable(start)[...] = a, 0.5
    return ds.solve(model, start, [1.0], stepping)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("name", STEPPINGS)
def test_a_compiled_point_is_named_on_every_rank(name):
    message = r"callback 'rhs' gave nan for unknown 1 of point \[4, 6\] at t = 0\.(5[5-9]|6)"
    with pytest.raises(ds.SolveError, match=message):
        run(emptied, STEPPINGS[name])


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_a_compiled_point_is_named_in_runs_with_events(method):
    never = ds.Event(lambda t, u, p: u.norm() + 1.0, direction=-1, name="never")
    with pytest.raises(ds.SolveError, match=r"'rhs' gave nan for unknown 1 of point \[4, 6\]"):
        run(emptied, ds.Stepping(UNIT, method, dt=0.1), events=[never])


@pytest.mark.slow
@pytest.mark.mpi
def test_derivatives_of_a_compiled_point_are_named():
    message = (
        r"callback 'jacobian' gave inf for unknown 1 of point \[0, 0\] at t = 0\.25 \(rank 0\)"
    )
    with pytest.raises(ds.SolveError, match=message):
        run(flattened, ds.Stepping(UNIT, "beuler", dt=0.25), a=0.0)


def put_zero(vec):
    """Put 0 for the first unknown of the point [4, 6]."""
    dm = vec.getDM()
    (x, y), (width, height) = dm.getCorners()
    if x <= 4 < x + width and y <= 6 < y + height:
        vec.getArray().reshape(height, width, 2)[6 - y, 4 - x, 0] = 0.0


@pytest.mark.mpi
@pytest.mark.parametrize("jacobian", ["products", "assembled"])
@pytest.mark.parametrize("method", ["rk4", "3bs", "cn", "beuler", "midpoint"])
def test_sweeps_name_derivatives_that_are_not_finite(method, jacobian):
    swept = run(flattened, ds.Stepping(UNIT, method, dt=0.25), jacobian=jacobian)
    first = 1 if method == "midpoint" else 2  # its stage is 0 where both ends of a step are
    for state in swept.stored[first:3]:
        put_zero(state)
    energy = ds.Terminal(lambda t, u, p: u.dot(u), lambda t, u, p, out: u.copy(out), "independent")
    place = r"callback 'jacobian' gave inf for unknown 1 of point \[4, 6\] at t = {} \(rank \d\)"
    with pytest.raises(ds.SolveError, match=place.format(r"0\.5")):
        ds.adjoint(swept, energy, "vectors")
    with pytest.raises(ds.SolveError, match=place.format(0.25 * first)):
        ds.tangent(swept, dp=[1.0])
    if swept.problem.comm.size == 1:
        with pytest.raises(ds.SolveError, match=place.format(0.25 * first)):
            ds.sensitivities(swept, with_respect_to=["p"])


@pytest.mark.slow
@pytest.mark.mpi
def test_derivatives_in_parameters_are_named():
    grid = Grid((UNIT,), (9,), "zero", dof=1)
    model = ds.trace_stencil(lambda t, u, p: np.sqrt(p[0]) * u.center, grid, 1)
    start = grid.create_vec()
    start.set(1.0)
    swept = ds.solve(model, start, [0.0], ds.Stepping(UNIT, "rk4", dt=0.25))
    with pytest.raises(ds.SolveError, match=r"'jacobian_p' gave inf for unknown 0 of point \[0\]"):
        ds.tangent(swept, dp=[1.0])


def test_callbacks_are_named_where_the_error_estimate_is_what_fails():
    def rhs(t, u, p, out):
        out.set(np.nan if t > 0.3 else 1.0)

    state = PETSc.Vec().createSeq(3)
    problem = ds.ODE(rhs, state=state, jacobian=lambda t, u, p, out: out.zeroEntries())
    with pytest.raises(
        ds.SolveError, match=r"callback 'rhs' gave nan in local entry 0 at t = 0\.3"
    ):
        ds.solve(problem, state, None, ds.Stepping(UNIT, "3bs", rtol=1e-6))
