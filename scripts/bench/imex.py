"""IMEX steps against fully implicit ones: advection, diffusion and reaction on a periodic grid.

    python scripts/bench/imex.py [--output results.json] [--repeat 5] [--points 32 64] [--steps 8]

The Brusselator with diffusion and a wind that turns, on a unit square over (0, 1/16).  IMEX methods
solve for the diffusion and take wind and reaction explicitly, the others solve for all.  Steps are
those that follow the wind, a fixed number of them for all methods; errors are relative, of the
state at the end, against that of rk8vr with twelve times as many steps.  Counted are evaluations of
rates on the grid (a part counts as one), Jacobians filled, iterations of GMRES, and PETSc's
floating-point operations, of vectors, matrices and factors, in a run and in a gradient.  Systems of
few points are factorised, as the library does by itself; those of more points are solved by GMRES
with incomplete LU, which these short steps need less time with than with multigrid, of both kinds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from petsc4py import PETSc

import daeosens as ds
from daeosens.problem import Problem, imex
from daeosens.problem.grids import Grid
from daeosens.problem.matrices import Derivative

NAMES = ["diffusivity", "wind", "feed", "decay"]
P = np.array([0.02, 1.0, 1.0, 3.0])
END = 0.0625
PAIRS = (("arkimex3", "kencarp3"), ("arkimex4", "esdirk4"))
"""Methods of one order: IMEX, fully implicit."""

SOLVERS = {"LU": {}, "ILU": {"pc_type": "bjacobi", "sub_pc_type": "ilu"}}
FEW = 40
"""Up to how many points a side systems are factorised."""


@dataclass(frozen=True)
class Row:
    """One line of the table; times in milliseconds, millions of operations."""

    points: int
    solver: str
    method: str
    steps: int
    courant: float
    error: float
    rates: int
    jacobians: int
    iterations: int
    megaflops: float
    gradient_megaflops: float
    forward: float
    gradient: float


def diffusion(_t: Any, u: Any, p: Any) -> Any:
    """Return the implicit part at a point."""
    return p.diffusivity * u.laplacian()


def wind_and_reaction(t: Any, u: Any, p: Any) -> Any:
    """Return the explicit part: second-order upwind differences, and the Brusselator."""
    x, y = u.center
    # the wind turns, but comes from the south-west at all times
    along, across = 1.0 + 0.3 * np.sin(4.0 * t), 0.7 + 0.3 * np.cos(4.0 * t)
    (hx, hy), speed = u.spacing, p.wind
    by_x = [(3.0 * u[0, 0][k] - 4.0 * u[-1, 0][k] + u[-2, 0][k]) / (2.0 * hx) for k in (0, 1)]
    by_y = [(3.0 * u[0, 0][k] - 4.0 * u[0, -1][k] + u[0, -2][k]) / (2.0 * hy) for k in (0, 1)]
    made = x**2 * y
    return [
        -speed * (along * by_x[0] + across * by_y[0]) + p.feed + made - (p.decay + 1.0) * x,
        -speed * (along * by_x[1] + across * by_y[1]) + p.decay * x - made,
    ]


def whole(t: Any, u: Any, p: Any) -> Any:
    """Return the sum."""
    spread, rest = diffusion(t, u, p), wind_and_reaction(t, u, p)
    return [spread[0] + rest[0], spread[1] + rest[1]]


class Counter:
    """Counts evaluations of rates and Jacobians of a problem."""

    def __init__(self) -> None:
        self.rates = self.jacobians = 0

    def counted(self, problem: Problem) -> Problem:
        """Return the problem with functions that count."""
        rates, slope = problem.rhs_function, problem.residual_u
        assert rates is not None

        def rhs(*arguments: Any) -> None:
            self.rates += 1
            rates(*arguments)

        def fill(*arguments: Any) -> None:
            self.jacobians += 1
            slope.fill(*arguments)

        counting: Derivative = replace(slope, fill=fill)
        return replace(problem, rhs_function=rhs, residual_u=counting)


def models(points: int) -> tuple[Grid, Problem, tuple[Problem, Problem]]:
    """Return the grid, all in one problem, and the two parts."""
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (points, points), "periodic", dof=2, comm=PETSc.COMM_SELF)
    made = [ds.trace_stencil(rhs, grid, NAMES) for rhs in (whole, diffusion, wind_and_reaction)]
    return grid, made[0], (made[1], made[2])


def initial_state(grid: Grid) -> PETSc.Vec:
    """Return two waves around the steady state."""
    x, y = grid.coordinates()
    u0 = grid.create_vec()
    start = grid.writable(u0)
    start[..., 0] = 1.0 + 0.5 * np.sin(2.0 * np.pi * x) * np.cos(4.0 * np.pi * y)
    start[..., 1] = 3.0 + 0.5 * np.cos(4.0 * np.pi * x)
    return u0


def least(call: Callable[[], Any], repeat: int) -> float:
    """Return the least milliseconds of processor time."""
    times: list[float] = []
    for _ in range(repeat):
        begin = time.process_time()
        call()
        times.append(1e3 * (time.process_time() - begin))
    return min(times)


def measure(points: int, numbers: list[int], repeat: int) -> list[Row]:
    """Run all methods with all numbers of steps."""
    grid, together, (implicit, explicit) = models(points)
    u0 = initial_state(grid)
    half = 0.5
    cost = ds.Terminal(
        lambda _t, u, _p: half * u.dot(u), lambda _t, u, _p, out: u.copy(out), "independent"
    )
    solver = "LU" if points <= FEW else "ILU"
    apart = imex(implicit=implicit, explicit=explicit)

    def final(problem: Problem, method: str, steps: int) -> Any:
        options: dict[str, Any] = {} if method.startswith("rk") else SOLVERS[solver]
        stepping = ds.Stepping((0.0, END), method, dt=END / steps, options=options)
        return ds.solve(problem, u0, P, stepping)

    exact = final(together, "rk8vr", 12 * max(numbers)).final.copy()
    rows: list[Row] = []
    for pair in PAIRS:
        for method in pair:
            split = method == pair[0]
            problem = apart if split else together
            for steps in numbers:
                counter = Counter()
                watched = (
                    imex(implicit=counter.counted(implicit), explicit=counter.counted(explicit))
                    if split
                    else counter.counted(together)
                )
                run = final(watched, method, steps)
                off: Any = exact.copy()
                off.axpy(-1.0, run.final)
                error = off.norm() / exact.norm()
                flops = [PETSc.Log.getFlops()]
                taken = final(problem, method, steps)
                flops.append(PETSc.Log.getFlops())
                ds.adjoint(taken, cost)
                flops.append(PETSc.Log.getFlops())
                forward, gradient = np.diff(np.array(flops) / 1e6).tolist()
                row = Row(
                    points,
                    solver,
                    method,
                    steps,
                    2.0 * END / steps * points,
                    float(error),
                    counter.rates,
                    counter.jacobians,
                    run.effort.linear_iterations,
                    forward,
                    gradient,
                    least(lambda p=problem, m=method, s=steps: final(p, m, s), repeat),
                    least(lambda run=taken: ds.adjoint(run, cost), repeat),
                )
                rows.append(row)
                print(
                    f"{row.points:>6}{row.solver:>5}{row.method:>9}{row.steps:>6}{row.courant:>8.2f}{row.error:>10.1e}"
                    f"{row.rates:>8}{row.jacobians:>8}{row.iterations:>8}{row.megaflops:>10.0f}{row.gradient_megaflops:>10.0f}"
                    f"{row.forward:>10.0f}{row.gradient:>10.0f}",
                    flush=True,
                )
    return rows


def main() -> None:
    """Print the table and write the numbers."""
    parser = argparse.ArgumentParser(description="IMEX and fully implicit steps.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--points", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--steps", type=int, nargs="+", default=[8])
    arguments = parser.parse_args()
    print(
        f"{'':>6}{'':>5}{'method':>9}{'steps':>6}{'courant':>8}{'error':>10}"
        f"{'rates':>8}{'slopes':>8}{'linear':>8}{'Mflop':>10}{'gradient':>10}{'forward':>10}{'gradient':>10}"
    )
    rows = [
        row
        for points in arguments.points
        for row in measure(points, arguments.steps, arguments.repeat)
    ]
    if arguments.output is not None:
        arguments.output.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
