"""Running costs of delay equations: densities added up over steps by the method's own weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Densities, add_curvature, change
from daeosens.derivatives.engines.delays.program import DelayedProgram
from daeosens.derivatives.engines.delays.quantities import Sources, Tangents
from daeosens.derivatives.engines.delays.tangents import stage_tangents
from daeosens.petsc.vectors import Array, read, write

Stage = tuple[int, int, float, float]
"""Numbers of a step and of its stage, the stage's weight, and that times the size of the step."""


class RunningCosts:
    """J = sum_n h_n sum_j b_j r(t_nj, X_nj, p) of several densities r, and its derivatives."""

    def __init__(self, program: DelayedProgram, densities: Sequence[Densities]) -> None:
        self._program, self._densities = program, densities
        problem = program.problem
        self._state, self._p = problem.create_state(), program.p
        self._out = problem.create_state(), problem.create_parameters()

    def _stages(
        self, more: Array | None = None
    ) -> Iterator[tuple[Stage, tuple[float, PETSc.Vec, Array]]]:
        """Yield the stages that count, by the weights or by ``more`` [S], each with where it is."""
        program = self._program
        points = program.points.reshape(program.n_steps, program.n_stages, -1)
        weights = program.steps.tableau.b.tolist()
        counts = np.array(weights) if more is None else np.abs(weights) + np.abs(more)
        passed = {*program.jumps, *program.steps.restarts}
        for n in range(program.n_steps):
            # jumps, and restarts of windows, are steps of no length, over which nothing is added up
            if n in passed:
                continue
            h = float(program.h[n])
            for j, weight in enumerate(weights):
                if counts[j]:
                    write(self._state, points[n, j, 1 : program.n + 1])
                    yield (n, j, weight, h * weight), (float(points[n, j, 0]), self._state, self._p)

    def values(self) -> Array:
        """Return the values [M]."""
        totals = np.zeros(len(self._densities))
        for (_, _, _, share), point in self._stages():
            for row, running in enumerate(self._densities):
                totals[row] += share * sum(w * density.value(*point) for w, density in running)
        return totals

    def error(self) -> tuple[float, float]:
        """Return how far embedded weights take the first cost, and the sum of its parts' sizes."""
        program, b_error = self._program, self._program.steps.tableau.b_error
        error, size = np.zeros(program.n_steps), np.zeros(program.n_steps)
        for (n, j, _, share), point in self._stages(b_error):
            value = sum(w * density.value(*point) for w, density in self._densities[0])
            size[n] += share * value
            if b_error is not None:
                error[n] += float(program.h[n] * b_error[j]) * value
        return float(np.abs(error).sum()), float(np.abs(size).sum())

    def sources(self) -> Sources:
        """Return what the costs add to adjoints."""
        program, count = self._program, len(self._densities)
        sources = _no_sources(program, count)
        by_u, by_p = self._out
        for (n, j, weight, share), point in self._stages():
            for row, running in enumerate(self._densities):
                for vec in self._out:
                    vec.zeroEntries()
                value = slope = 0.0
                for w, density in running:
                    density.add_u(w, *point, by_u)
                    density.add_p(w, *point, by_p)
                    value += w * density.value(*point)
                    slope += w * density.value_t(*point)
                # dJ/dX_nj = h_n b_j r_u at each stage; the rest of dJ goes to the clocks, by which
                # the size h_n and the time t_nj move with delays and events
                sources.stages[n, j, row] += share * read(by_u)
                sources.p[row] += share * read(by_p)
                sources.clock[n, row] += weight * value * program.h_clock[n]
                sources.clock[n, row] += share * slope * program.t_clock[n, j]
        # X depends on the sizes of steps by itself as well
        bent = np.einsum("nsMx,nsx->nM", sources.stages, program.stage_sum)
        sources.clock[...] += bent[..., None] * program.h_clock[:, None]
        return sources

    def derivatives(self, along: Tangents) -> Array:
        """Return the derivatives of the costs along directions [M, D]."""
        program, problem = self._program, self._program.problem
        dx, dt = stage_tangents(program, along), program.t_clock @ along.dclock.T
        dh = program.h_clock @ along.dclock.T
        result = np.zeros((len(self._densities), len(along.dp)))
        du, dp = problem.create_state(), problem.create_parameters()
        for (n, j, weight, share), point in self._stages():
            for k, row in enumerate(along.dp):
                write(du, dx[n, j, :, k])
                write(dp, row)
                for number, running in enumerate(self._densities):
                    for w, density in running:
                        moved = change(density, problem, point, du, dp, float(dt[n, j, k]))
                        value = density.value(*point)
                        result[number, k] += w * (share * moved + weight * dh[n, k] * value)
        return result

    def bent_sources(self, along: Tangents) -> Sources:
        """Return the derivatives of the sources of one cost along directions."""
        program, problem = self._program, self._program.problem
        dx, dt = stage_tangents(program, along), program.t_clock @ along.dclock.T
        dh = program.h_clock @ along.dclock.T
        sources = _no_sources(program, len(along.dp))
        (running,), (by_u, by_p) = self._densities, self._out
        du, dp = problem.create_state(), problem.create_parameters()
        for (n, j, weight, share), point in self._stages():
            slope = sum(w * density.value_t(*point) for w, density in running)
            for k, row in enumerate(along.dp):
                write(du, dx[n, j, :, k])
                write(dp, row)
                for vec in self._out:
                    vec.zeroEntries()
                moved, longer = float(dt[n, j, k]), weight * float(dh[n, k])
                direction, bent, value = (du, row, dp, moved), 0.0, 0.0
                # the product rule of h_n b_j r_u: the change of r_u, and r_u by the change of h_n
                for w, density in running:
                    bent += add_curvature(density, share * w, point, direction, self._out)
                    value += w * change(density, problem, point, du, dp, moved)
                    density.add_u(longer * w, *point, by_u)
                    density.add_p(longer * w, *point, by_p)
                sources.stages[n, j, k] = read(by_u)
                sources.p[k] += read(by_p)
                sources.clock[n, k] += weight * value * program.h_clock[n]
                sources.clock[n, k] += (bent + longer * slope) * program.t_clock[n, j]
        return sources


def _no_sources(program: DelayedProgram, count: int) -> Sources:
    """Return zeros for so many adjoints."""
    n_steps, clocks = program.n_steps, program.steps.clocks
    return Sources(
        np.zeros((n_steps, program.n_stages, count, program.n)),
        np.zeros((n_steps, count, clocks)),
        np.zeros((count, len(program.p))),
    )
