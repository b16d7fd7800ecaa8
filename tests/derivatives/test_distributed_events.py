"""Second derivatives through the events of a distributed problem: the same on 1, 2 and 3 ranks."""

import dataclasses

import numpy as np
import pytest
from distributed_events import NAMES, OBSERVED, P0, make_cost, make_thermostat
from petsc4py import PETSc

import daeosens as ds
from daeosens.derivatives.hessian import hessian_sweep
from daeosens.functional import FieldParameter
from daeosens.petsc import gather
from daeosens.problem import add_events
from daeosens.verify import duality

pytestmark = pytest.mark.mpi

DIRECT = {"ksp_type": "preonly", "pc_type": "redundant", "snes_rtol": 1e-13}
CASES = [
    ("rk4", False, {}),
    ("rk4", True, {}),
    ("cn", False, DIRECT),
    ("cn", True, {"snes_rtol": 1e-13}),  # GMRES on several ranks
    ("midpoint", False, DIRECT),
]
each_case = pytest.mark.parametrize(
    ("method", "field", "options"),
    CASES,
    ids=[f"{m} {'field' if f else 'numbers'} {o.get('ksp_type', '')}" for m, f, o in CASES],
)


def stepping_of(method, options):
    """Steps of which two or more lie between two switches."""
    return ds.Stepping((0.0, 2.05), method, dt=0.05 if method == "rk4" else 0.08, options=options)


def answers_of(comm, method, field, options):
    room, problem, u0, p = make_thermostat(comm, field=field)
    cost = make_cost(room)
    run = ds.solve(problem, u0, p, stepping_of(method, options), OBSERVED)
    directions = []
    for k in (1, 2):
        du0 = room.vec(0.1 * np.cos(k + 5 * room.x))
        dp = room.vec(0.2 * np.sin(2 * k + 7 * room.x)) if field else np.cos(k + np.arange(5)) * P0
        directions.append((du0, dp))
    products = hessian_sweep(run, cost, directions)
    rows = [np.concatenate(product.gather()) for product in products]
    gradient = ds.adjoint(run, cost)
    flat = [np.concatenate([gather(du), gather(dp) if field else dp]) for du, dp in directions]
    parts = np.concatenate([rows[0] * flat[1], -rows[1] * flat[0]])
    assert abs(parts.sum()) < 1e-12 * abs(parts).sum()
    assert duality(run, cost) < 1e-12
    return run, gradient, np.array(rows)


def difference(ours, reference):
    return abs(ours - reference).max() / abs(reference).max()


@pytest.mark.slow
@each_case
def test_hessians_through_switches_do_not_depend_on_the_number_of_ranks(method, field, options):
    (run, gradient, rows), (alone, expected, expected_rows) = (
        answers_of(comm, method, field, options) for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF)
    )
    names = [crossing.name for crossing in run.crossings]
    assert names == [crossing.name for crossing in alone.crossings]
    assert names == ["hot", "cold", "hot", "window", "cold", "hot", "cold"]
    np.testing.assert_allclose(run.times, alone.times, rtol=1e-10)
    assert gradient.value == pytest.approx(expected.value, rel=1e-10)
    for ours, reference in zip(gradient.gather(), expected.gather(), strict=True):
        assert difference(ours, reference) < 1e-8
    assert difference(rows, expected_rows) < 1e-8
    if not field:  # the heater has lost power three times
        np.testing.assert_allclose(run.crossings[-1].p, alone.crossings[-1].p, rtol=1e-10)
        assert run.crossings[-1].p[0] < 0.97**3 * P0[0] + 0.15


@pytest.mark.slow
@pytest.mark.parametrize(("method", "field"), [("rk4", False), ("cn", True)])
def test_taylor_of_third_order_on_all_ranks(method, field):
    room, problem, u0, p = make_thermostat(PETSc.COMM_WORLD, field=field)
    control = FieldParameter(p, u0)
    if not field:
        entries = {name: ds.Parameter(value) for name, value in zip(NAMES, P0, strict=True)}
        control = ds.Parameters(entries, u0)
    stepping = stepping_of(method, {} if method == "rk4" else DIRECT)
    functional = ds.Reduced(problem, make_cost(room), stepping, control)
    functional.check_second_order()
    orders = ds.taylor(functional, epsilons=[4e-3 * 0.5**k for k in range(4)], hessian=True)
    assert orders.order > 1.9, orders
    assert orders.hessian_order > 2.9, orders


@pytest.mark.slow
@pytest.mark.parametrize(("method", "options"), [("rk4", {}), ("cn", DIRECT)])
def test_an_event_that_moves_may_be_the_last_moment(method, options):
    """The window opens just at the end: derivatives are the limit of those shortly before."""
    values = {}
    for comm, early in ((PETSc.COMM_WORLD, 0.0), (PETSc.COMM_SELF, 0.0), (PETSc.COMM_WORLD, 1e-9)):
        room, problem, u0, _ = make_thermostat(comm, field=False)
        p = [*P0[:4], 2.05 - early]
        run = ds.solve(problem, u0, p, stepping_of(method, options), OBSERVED)
        assert run.crossings[-1].name == "window"
        cost = make_cost(room)
        assert duality(run, cost) < 1e-12
        along = [(room.vec(0.1 * np.cos(1 + 5 * room.x)), np.cos(1 + np.arange(5)))]
        rows = [ds.adjoint(run, cost), *hessian_sweep(run, cost, along)]
        values[comm is PETSc.COMM_SELF, early] = [np.concatenate(row.gather()) for row in rows]
    here, alone, near = values.values()
    for k in (0, 1):
        assert difference(here[k], alone[k]) < 1e-8
        assert difference(near[k], here[k]) < 1e-6


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize(("method", "options"), [("rk4", {}), ("cn", DIRECT)])
def test_observations_beside_an_event_that_moves(method, options, side):
    """The window opens at an observation: the same numbers on all ranks, dual and symmetric."""
    values = []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        room, problem, u0, _ = make_thermostat(comm, field=False)
        data = [room.vec(1.0 + 0.1 * np.sin(2 * np.pi * room.x + t)) for t in OBSERVED]
        cost = ds.LeastSquares(OBSERVED, data, sigma=0.5, side=side)
        run = ds.solve(problem, u0, [*P0[:4], OBSERVED[0]], stepping_of(method, options), OBSERVED)
        (opened,) = (crossing.t for crossing in run.crossings if crossing.name == "window")
        assert opened == OBSERVED[0]
        seen, other = (run.at(OBSERVED[0], value) for value in (side, "before"))
        assert (largest_difference(seen, other) > 0.01) == (side == "after")
        assert duality(run, cost) < 1e-12
        along = [(room.vec(0.1 * np.cos(1 + 5 * room.x)), np.cos(1 + np.arange(5)))]
        rows = [ds.adjoint(run, cost), *hessian_sweep(run, cost, along)]
        values.append([gather(seen), *(np.concatenate(row.gather()) for row in rows)])
    for here, alone in zip(*values, strict=True):
        assert difference(here, alone) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize(("method", "options"), [("rk4", {}), ("cn", DIRECT)])
def test_events_that_commute_may_happen_together_at_the_start(method, options):
    """Two windows open at the first moment: the limit of those a moment later."""
    values = {}
    for comm, late in ((PETSc.COMM_WORLD, 0.0), (PETSc.COMM_SELF, 0.0), (PETSc.COMM_WORLD, 1e-9)):
        room, problem, u0, _ = make_thermostat(comm, field=False)
        (window,) = (event for event in problem.events if event.name == "window")
        problem = add_events(problem, [dataclasses.replace(window, name="another")])
        run = ds.solve(problem, u0, [*P0[:4], late], stepping_of(method, options), OBSERVED)
        assert [(crossing.name, crossing.t) for crossing in run.crossings[:2]] == [
            ("window", late),
            ("another", late),
        ]
        cost = make_cost(room)
        assert duality(run, cost) < 1e-12
        gradient = ds.adjoint(run, cost)
        values[comm is PETSc.COMM_SELF, late] = np.concatenate(gradient.gather())
    here, alone, near = values.values()
    assert difference(here, alone) < 1e-8
    assert difference(near, here) < 1e-6


def largest_difference(item, other):
    change = item.copy()
    change.axpy(-1.0, other)
    return change.norm(PETSc.NormType.NORM_INFINITY)
