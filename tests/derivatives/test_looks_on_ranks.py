"""Looks at distributed runs: the same estimates and warnings on 1, 2 and 3 ranks."""

import warnings

import numpy as np
import pytest
from distributed import Model, make, make_cost
from mpi4py import MPI
from petsc4py import PETSc

from daeosens import (
    ODE,
    Event,
    Stepping,
    Terminal,
    adjoint,
    hessian_product,
    solve,
    trace_stencil,
)
from daeosens.costs import EventTime
from daeosens.derivatives.engines.request import lowered_on
from daeosens.derivatives.looks.relative_directions import (
    GROUPS,
    entry_numbers,
    relative_directions,
)
from daeosens.derivatives.looks.resolution import relative_errors
from daeosens.derivatives.tangent_errors import DENSE
from daeosens.errors import DiscretizationWarning
from daeosens.petsc import gather, read
from daeosens.problem.grids import Grid

pytestmark = pytest.mark.mpi

COMMS = {"together": PETSc.COMM_WORLD, "alone": PETSc.COMM_SELF}


def told_by(derive):
    """Return what is told, the same on every rank."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        derive()
    texts = [str(item.message) for item in caught if item.category is DiscretizationWarning]
    assert MPI.COMM_WORLD.allgather(texts) == MPI.COMM_WORLD.size * [texts]
    return texts


@pytest.mark.parametrize(("method", "rtol"), [("esdirk4", 1e-3), ("rk5dp", 1e-4)])
@pytest.mark.parametrize(("style", "field"), [("dmda", False), ("dmda", True), ("vec", False)])
@pytest.mark.parametrize("known", [True, False], ids=["gradients", "tangents"])
def test_estimates_do_not_depend_on_the_number_of_ranks(style, field, method, rtol, known):
    errors = {}
    for name, comm in COMMS.items():
        case = make(comm, style, field=field)
        cost = make_cost(case, squares=known)
        stepping = Stepping((0.0, 0.2), method, rtol=rtol)
        run = solve(case.problem, case.u0, case.p, stepping, cost.times)
        gradient = adjoint(run, cost)
        rows = read(gradient.u0_vec)[np.newaxis], read(gradient.p_vec)[np.newaxis]
        lowered = [lowered_on(run, cost)]
        errors[name] = relative_errors(run, lowered, gradients=rows if known else None)
    ((together, _),), ((alone, _),) = errors["together"], errors["alone"]
    assert 1e-7 < alone < 1e-3
    assert together == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize("shape", [(12,), (6, 4), (3, 4, 5)])
def test_directions_are_the_same_on_a_grid_however_it_is_cut(shape):
    box = tuple((0.0, 1.0) for _ in shape)
    in_order = []
    for comm in COMMS.values():
        grid = Grid(box, shape, "periodic", names=["made", "lost"], comm=comm)
        decay = trace_stencil(
            lambda t, u, p: [-p[0] * u.lost.center, -u.lost.center], grid, ["rate"]
        )
        start, numbers = grid.create_vec(), grid.create_vec()
        start.set(1.0)
        numbers.setArray(entry_numbers(numbers).astype(float))
        order = np.argsort(gather(numbers))
        np.testing.assert_array_equal(gather(numbers)[order], np.arange(2 * np.prod(shape)))
        run = solve(decay, start, [1.0], Stepping((0.0, 0.1), "rk4", dt=0.1))
        pairs, _ = relative_directions(run)
        in_order.append(np.array([gather(du)[order] for du, _ in pairs]))
    assert len(in_order[0]) == 1 + (1 if start.getSize() > DENSE else GROUPS)
    np.testing.assert_array_equal(*in_order)


def square_sum():
    """Return the sum of the squares of all unknowns."""

    def gradient(t, u, p, out):
        u.copy(out)
        out.scale(2.0)

    def hessian(t, u, p, du, dp, out):
        gradient(t, du, p, out)
        return 0.0 * p

    return Terminal(lambda t, u, p: u.dot(u), gradient, "independent", hessian_product=hessian)


def washed_out(comm):
    """Return a run in which a trace that is not there decays, and a sum that it would add to.

    Perturbations of it decay faster than the steps resolve: derivatives in its start blow up.
    """
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (4, 3), names=["trace", "made"], comm=comm)

    def rates(t, u, p):
        return [-p[0] * u.trace.center, 1.0 + u.trace.center + 0.0 * u.made.laplacian()]

    stepping = Stepping((0.0, 15.0), "rk6vr", rtol=1e-8)
    return solve(trace_stencil(rates, grid, ["k"]), grid.create_vec(), [100.0], stepping)


def test_what_is_told_does_not_depend_on_the_number_of_ranks():
    texts = {}
    for name, comm in COMMS.items():
        run, cost = washed_out(comm), square_sum()
        texts[name] = told_by(lambda run=run, cost=cost: adjoint(run, cost))
        run, du = washed_out(comm), run.stored[0].duplicate()
        du.set(1.0)
        texts[name] += told_by(lambda run=run, cost=cost, du=du: hessian_product(run, cost, du))
    assert texts["together"] == texts["alone"]
    parts = [
        "derivatives in the initial states that are zero are wrong by about as much",
        "derivatives in the initial states that are zero are wrong by about as much",
        "entries of a product with the Hessian are wrong by about as much as their size",
    ]
    assert [part in text for part, text in zip(parts, texts["alone"], strict=True)] == [True] * 3


LEVEL = 1e-12
"""Of the mean pressure at the surface, far below the default absolute tolerance."""


def shrinking(comm):
    """Return a run to the surface, of pressures whose roots fall from 1 by p (1 + sin(3 r) / 2)."""
    state = PETSc.Vec().createMPI(5, comm=comm)
    sizes = state.getSizes()
    matrix = PETSc.Mat().createAIJ((sizes, sizes), nnz=1, comm=comm)
    for i in range(*state.getOwnershipRange()):
        matrix.setValue(i, i, 0.0)
    matrix.assemble()

    def root(u):
        return np.sqrt(np.maximum(read(u), 1e-300))

    def speed(r):
        return 1.0 + 0.5 * np.sin(3.0 * r)

    def diagonal(r, u, p, out):
        values = u.duplicate()
        values.setArray(-p[0] * speed(r) / root(u))
        out.setDiagonal(values)
        out.assemble()

    def by_p(r, u, p, out):
        out.getDenseArray()[...] = (-2.0 * speed(r) * root(u))[:, np.newaxis]
        out.assemble()

    surface = Event(
        lambda r, u, p: u.sum() / 5.0 - LEVEL,
        when_u=lambda r, u, p, out: out.set(0.2),
        when_p="independent",
        when_t="autonomous",
        direction=-1,
        terminal=True,
        name="surface",
    )
    problem = ODE(
        lambda r, u, p, out: out.setArray(-2.0 * p[0] * speed(r) * root(u)),
        state=state,
        parameters=["p"],
        jacobian=diagonal,
        jacobian_matrix=matrix,
        jacobian_p=by_p,
        rhs_t=lambda r, u, p, out: out.setArray(-3.0 * p[0] * np.cos(3.0 * r) * root(u)),
        events=[surface],
    )
    state.set(1.0)
    return solve(problem, state, [0.4], Stepping((0.0, 9.0), "rk6vr", rtol=1e-6))


def test_uncertain_events_are_told_on_any_number_of_ranks():
    texts = {
        name: told_by(lambda comm=comm: adjoint(shrinking(comm), EventTime("surface")))
        for name, comm in COMMS.items()
    }
    assert texts["together"] == texts["alone"]
    assert 'by way of event "surface" at t = 2.' in texts["alone"][0]
    assert len(texts["alone"]) == 1


def test_what_callbacks_raise_in_another_run_than_asked_for_is_survived():
    """What all ranks raise: it would end the job in a run that was asked for."""
    case, known, run = make(PETSc.COMM_WORLD, "dmda"), set(), None
    model = Model(case.ring, field=False)

    def rhs(t, u, p, out):
        if run is not None and t not in known:
            raise ValueError("no table there")
        known.add(t)
        model.rhs(t, u, p, out)

    problem = ODE(
        rhs,
        state=case.ring.dm,
        parameters=["a", "r"],
        jacobian=model.jacobian,
        jacobian_p=model.jacobian_p,
        rhs_t=model.rhs_t,
    )
    run = solve(problem, case.u0, case.p, Stepping((0.0, 0.2), "rk5dp", rtol=1e-4))
    (text,) = told_by(lambda: adjoint(run, square_sum()))
    assert "derivatives is not known: the same run by finer steps failed (no table there)" in text
