"""Gradients and Hessian products of costs over runs of delay equations, by the linearised run."""

from __future__ import annotations

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Densities, add_curvature
from daeosens.derivatives.engines.delays.adjoints import (
    bend_parameters,
    pull_back,
    pull_parameters,
)
from daeosens.derivatives.engines.delays.program import program_of
from daeosens.derivatives.engines.delays.running import RunningCosts
from daeosens.derivatives.engines.delays.second_order import forcing_along
from daeosens.derivatives.engines.delays.tangents import push_forward
from daeosens.derivatives.engines.limits import DELAYS
from daeosens.derivatives.engines.request import AdjointRequest, Observed, Rows
from daeosens.petsc.vectors import Array, finite_vec, read, write
from daeosens.timestepping.trajectory.trajectory import Trajectory


def second_over_delays(
    trajectory: Trajectory, observed: Observed, densities: Densities, du0: Array, dp: Array
) -> list[tuple[PETSc.Vec, PETSc.Vec]]:
    """Return the gradient (u0 [n], p [m]) of a cost, and its Hessian along D directions.

    Parameters
    ----------
    trajectory : Trajectory
    observed : mapping
        What the cost observes.
    densities : sequence of (float, Scalar)
        Its running costs with their weights.
    du0, dp : array [D, n], [D, m]
        The directions.
    """
    program, problem = program_of(trajectory), trajectory.problem
    # The run is one program: an adjoint at a step reaches earlier steps through delayed states,
    # so it is swept as a whole and not window by window.
    along = push_forward(program, du0, dp)
    count = len(dp)
    seeds, dots = (
        np.zeros((program.n_steps + 1, 1, program.n)),
        np.zeros((program.n_steps + 1, count, program.n)),
    )
    times, times_dot = np.zeros(seeds.shape[:2]), np.zeros(dots.shape[:2])
    result = [(problem.create_state(), problem.create_parameters()) for _ in range(count + 1)]
    by_u, du, dp_vec = problem.create_state(), problem.create_state(), problem.create_parameters()
    for number, observations in observed.items():
        point, moves = trajectory.point_at(number), number in trajectory.moving
        dt = along.dclock @ program.steps.time_slopes[number]
        for seen in observations:
            by_u.zeroEntries()
            seen.add(point, (by_u, result[0][1]))
            seeds[number, 0] += read(by_u)
            if moves:  # with an event
                times[number, 0] += seen.slope(point)
            for k in range(count):
                by_u.zeroEntries()
                write(du, along.du[number, :, k])
                out = by_u, result[1 + k][1]
                # psi_uu du + psi_up dp seeds the derivatives of the adjoints, as psi_u seeds them
                if moves:
                    write(dp_vec, dp[k])
                    direction = (du, dp[k], dp_vec, float(dt[k]))
                    times_dot[number, k] += add_curvature(
                        seen.scalar, seen.weight, point, direction, out
                    )
                else:
                    seen.scalar.add_hessian(seen.weight, point, (du, dp[k]), out)
                dots[number, k] += read(by_u)
    sources = bent = None
    if densities:
        running = RunningCosts(program, [densities])
        sources, bent = running.sources(), running.bent_sources(along)
    first = pull_back(program, seeds, times, sources=sources)
    # Second order: the same recurrence, with the curvature of f and of the interpolation as
    # sources.
    forcing = forcing_along(program, first, along)
    second = pull_back(program, dots, times_dot, forcing, bent)
    rows = [pull_parameters(program, first)[0], *bend_parameters(program, first, second, forcing)]
    for (state, parameters), lam, row in zip(
        result, [first.lam[0, 0], *second.lam[0]], rows, strict=True
    ):
        write(state, lam)
        write(parameters, read(parameters) + row)
        finite_vec(state, "the derivatives in u0")
        finite_vec(parameters, "the derivatives in p")
    return result


class DelayedSweep:
    """The sweep back over a run of a delay equation."""

    name, why = "arrays", DELAYS

    def __init__(self, trajectory: Trajectory, request: AdjointRequest) -> None:
        self._trajectory = trajectory
        program, problem = program_of(trajectory), trajectory.problem
        self._lam = [problem.create_state() for _ in range(request.rows)]
        self._mu = [problem.create_parameters() for _ in range(request.rows)]
        seeds = np.zeros((program.n_steps + 1, request.rows, program.n))
        if request.start is not None:
            seeds[request.last] = request.start
        by_u, times = problem.create_state(), np.zeros(seeds.shape[:2])
        for number, observations in request.observed.items():
            point = trajectory.point_at(number)
            for seen in observations:
                by_u.zeroEntries()
                seen.add(point, (by_u, self._mu[seen.row]))
                seeds[number, seen.row] += read(by_u)
                if number in trajectory.moving:  # with an event
                    times[number, seen.row] += seen.slope(point)
        sources = None
        if request.continuous:
            sources = RunningCosts(program, request.densities).sources()
        adjoints = pull_back(program, seeds, times, sources=sources)
        for vec, row in zip(self._lam, adjoints.lam[0], strict=True):
            write(vec, row)
        for vec, row in zip(self._mu, pull_parameters(program, adjoints), strict=True):
            write(vec, read(vec) + row)
        for name, rows in (("u0", self._lam), ("p", self._mu)):
            for row in rows:
                finite_vec(row, f"the gradient in {name}")

    def values(self) -> None:
        """Return nothing: the values of costs are no part of the sweep."""

    def rows(self) -> Rows:
        """Return the rows as vectors."""
        return self._lam, self._mu

    def matrices(self) -> tuple[Array, Array]:
        """Return the rows as arrays [M, n] and [M, m]."""
        lam, mu = (np.array([read(row) for row in rows]) for rows in self.rows())
        return lam, mu
