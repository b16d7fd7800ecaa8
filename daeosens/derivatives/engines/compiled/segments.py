"""Adjoint sweeps in C through events: smooth pieces in C, what is between by steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Cost, points_by_step, value_at_points
from daeosens.derivatives.engines.compiled.adjoint import carrier
from daeosens.derivatives.segments import pieces
from daeosens.methods.events.event_step import HybridStep, Record
from daeosens.petsc.vectors import largest
from daeosens.timestepping.trajectory.trajectory import Trajectory, steps_of

Carry = Callable[..., bool]


def sweep_pieces_in_c(
    trajectory: Trajectory, costs: Sequence[Cost]
) -> tuple[list[PETSc.Vec], list[PETSc.Vec], list[float]] | None:
    """Return the adjoints lam_0 [n] and mu [m] and the value of each cost, or None.

    As ``native_sweep``, for runs through events and costs without densities, if the functions of
    all modes are in C.  Pieces are those of ``sweep_points``.
    """
    problem, times, states = trajectory.problem, trajectory.times, trajectory.states
    densities = [cost.densities for cost in costs]
    if any(densities) or not _all_in_c(trajectory, len(costs)):
        return None
    steps = steps_of(trajectory)
    assert isinstance(steps, HybridStep)
    lam = [problem.create_state() for _ in costs]
    mu = [problem.create_parameters() for _ in costs]
    points = points_by_step(trajectory.index, costs)
    known: dict[tuple[str, int], Carry | None] = {}

    def seed(number: int) -> None:
        for k, weight, scalar in points.get(number, ()):
            point = (float(times[number]), states[number], trajectory.parameters(number))
            scalar.add_u(weight, *point, lam[k])
            scalar.add_p(weight, *point, mu[k])
            if number in trajectory.moving:
                steps.add_time(k, weight * scalar.value_t(*point))

    def carry_of(record: Record) -> Carry | None:
        key = (record.mode, id(record.p))
        if key not in known:
            equations = problem.modes.get(record.mode, problem)
            known[key] = carrier(trajectory, equations, record.p, len(costs))
        return known[key]

    seed(trajectory.n_steps)
    for first, last, smooth in reversed(list(pieces(trajectory, steps, densities))):
        if not smooth:
            steps.adjoint(trajectory.step(first), lam, mu, densities)
            seed(first)
            continue
        steps.pass_by(first)
        carry = carry_of(trajectory.records[first])
        if carry is None:
            return None
        end = last
        for number in sorted({first, *(k for k in points if first < k < last)}, reverse=True):
            if not carry(number, end, lam, mu, None):
                return None
            end = number
            seed(number)
    finite = all(np.isfinite(largest(vec)) for vec in (*lam, *mu))
    if not finite:
        return None
    return lam, mu, [value_at_points(cost, trajectory.point) for cost in costs]


def _all_in_c(trajectory: Trajectory, rows: int) -> bool:
    """Whether smooth steps of all modes can be carried back in C; no grids."""
    problem = trajectory.problem
    return all(
        each.stencil is None and carrier(trajectory, each, trajectory.p, rows) is not None
        for each in (problem.modes or {"": problem}).values()
    )
