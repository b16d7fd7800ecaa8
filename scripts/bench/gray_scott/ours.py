"""daeosens: a function of a grid's point, traced and compiled."""

from __future__ import annotations

from typing import Any

from petsc4py import PETSc

from daeosens import Stepping, Terminal, adjoint, solve, trace_stencil
from daeosens.derivatives.engines.choice import Engine
from daeosens.problem import Problem
from daeosens.problem.grids import Grid
from daeosens.timestepping.trajectory.trajectory import Trajectory
from gray_scott import D1, D2, GAMMA, KAPPA, SIDE, parts, spots

# a product costs less than what GMRES does with all vectors before
KRYLOV = {"ksp_type": "bcgs", "pc_type": "none", "ksp_rtol": 1e-10, "snes_rtol": 1e-10}


def reaction(_t: Any, u: Any, _p: Any) -> Any:
    """Return f at a point."""
    a, b = u.center
    of_a, of_b = u.laplacian()
    growth = a * b * b
    return [D1 * of_a - growth + GAMMA * (1.0 - a), D2 * of_b + growth - (GAMMA + KAPPA) * b]


def ours(grid: Grid) -> Problem:
    """Describe the equations.  Extend here: other ways of giving them are further contestants."""
    return trace_stencil(reaction, grid, jacobian="products")


def with_rates(grid: Grid) -> Problem:
    """Describe the equations with the four rates as parameters."""

    def rates(_t: Any, u: Any, p: Any) -> Any:
        a, b = u.center
        of_a, of_b = u.laplacian()
        growth = a * b * b
        return [
            p.d1 * of_a - growth + p.gamma * (1.0 - a),
            p.d2 * of_b + growth - (p.gamma + p.kappa) * b,
        ]

    return trace_stencil(rates, grid, ["d1", "d2", "gamma", "kappa"], jacobian="products")


def tasks(setting: dict[str, Any], keep: dict[str, Any], engine: Engine = "auto") -> dict[str, Any]:
    """Return all tasks; ``keep`` are arguments of the run's ``solve``, ``engine`` sweeps."""
    points, method, dt = setting["points"], setting["method"], setting["dt"]
    box = ((0.0, SIDE), (0.0, SIDE))
    grid = Grid(box, (points, points), dof=2, comm=PETSc.COMM_SELF)
    problem = ours(grid)
    start = grid.create_vec()
    start.getArray()[...] = spots(points).ravel()
    options = {} if method == "rk4" else KRYLOV
    stepping = Stepping((0.0, setting["steps"] * dt), method, dt=dt, options=options)
    cost = Terminal(
        lambda _t, u, _p: 0.5 * u.dot(u), lambda _t, u, _p, out: u.copy(out), "independent"
    )
    shape = (points, points, 2)

    def run() -> Trajectory:
        return solve(problem, start, None, stepping, **keep)

    def forward() -> Any:
        return final(solve(problem, start, None, stepping, checkpoint="states"))

    def final(trajectory: Trajectory) -> Any:
        return trajectory.final.getArray().reshape(shape)

    def back(trajectory: Trajectory) -> Any:
        return adjoint(trajectory, cost, engine).u0_vec.getArray().reshape(shape)

    unknown = with_rates(grid)

    def gradient_in_rates() -> Any:
        trajectory = solve(unknown, start, (D1, D2, GAMMA, KAPPA), stepping, **keep)
        return adjoint(trajectory, cost, engine).p

    return {
        "forward": forward,
        **parts(run, final, back),
        "gradient, rates too": gradient_in_rates,
    }


def prepare(setting: dict[str, Any]) -> dict[str, Any]:
    """Return all tasks, with the stages kept."""
    return tasks(setting, {"checkpoint": "stages"})
