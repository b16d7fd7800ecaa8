"""Cost of one Hessian product, as a multiple of a first-order adjoint and a tangent.

    python scripts/bench/second_order.py [--output results.json] [--repeat 7] [--full]

The three sweeps are timed in turn, on the same run, by steps; the table has the medians and their
ratios.  Bounds that users may expect: 2.5 for explicit methods, 1.5 for implicit ones with direct
solves.

With --full it compares engines instead: the whole Hessian of |x(10)|^2 / 2 in the 2 n starting
values and rates of generalised Lotka-Volterra, by steps and in blocks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens import ODE, Stepping, Terminal, adjoint, solve, tangent
from daeosens.derivatives.hessian import hessian_sweep
from daeosens.problem import Products
from daeosens.problem.grids import Grid
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory
from daeosens.tracing.pdes import gray_scott, spots


@dataclass(frozen=True)
class Row:
    """One line of the table; times in milliseconds."""

    case: str
    method: str
    adjoint: float
    tangent: float
    hessian: float
    four_directions: float

    @property
    def ratio(self) -> float:
        """A Hessian product over an adjoint and a tangent."""
        return self.hessian / (self.adjoint + self.tangent)

    @property
    def ratio_of_four(self) -> float:
        """One of four directions at once over an adjoint and a tangent."""
        return self.four_directions / 4 / (self.adjoint + self.tangent)


def lorenz() -> tuple[Problem, Any, Any]:
    """Return three states, three parameters, all derivatives given."""

    def rhs(_t: float, u: Any, p: Any) -> Any:
        x, y, z = u
        return np.array([p[0] * (y - x), x * (p[1] - z) - y, x * y - p[2] * z])

    def jacobian(_t: float, u: Any, p: Any) -> Any:
        x, y, z = u
        return np.array([[-p[0], p[0], 0.0], [p[1] - z, -1.0, -x], [y, x, -p[2]]])

    def jacobian_p(_t: float, u: Any, _p: Any) -> Any:
        x, y, z = u
        return np.array([[y - x, 0.0, 0.0], [0.0, x, 0.0], [0.0, 0.0, -z]])

    def hessian(_t: float, _u: Any, _p: Any, w: Any, du: Any, dp: Any) -> Any:
        a, b, c = w
        by_u = [
            -dp[0] * a + (dp[1] - du[2]) * b + du[1] * c,
            dp[0] * a + du[0] * c,
            -du[0] * b - dp[2] * c,
        ]
        return np.array(by_u), np.array([(du[1] - du[0]) * a, du[0] * b, -du[2] * c])

    problem = ODE(
        rhs,
        3,
        ["sigma", "rho", "beta"],
        jacobian=jacobian,
        jacobian_p=jacobian_p,
        hessian_product=hessian,
    )
    return problem, np.array([1.0, 1.0, 1.0]), np.array([10.0, 28.0, 8 / 3])


def spots_on(points: int, jacobian: str) -> tuple[Problem, Any, Any]:
    """Return Gray-Scott with two of its rates as parameters."""
    box = ((0.0, 2.5), (0.0, 2.5))
    grid = Grid(box, (points, points), dof=2, comm=PETSc.COMM_SELF)
    problem = gray_scott(grid, parameters=("gamma", "kappa"), jacobian=jacobian)
    return problem, spots(grid), np.array([0.024, 0.06])


def half_square(problem: Problem) -> Terminal:
    """Return |u|^2 / 2 at the end, with all derivatives."""
    if problem.style == "numpy":
        return Terminal(
            lambda _t, u, _p: 0.5 * u @ u,
            lambda _t, u, _p: u,
            "independent",
            lambda _t, _u, _p, du, dp: (du, 0 * dp),
        )

    def hessian(_t: float, _u: Any, _p: Any, du: Any, dp: Any, out: Any) -> Any:
        du.copy(out)
        return 0 * dp

    return Terminal(
        lambda _t, u, _p: 0.5 * u.dot(u),
        lambda _t, u, _p, out: u.copy(out),
        "independent",
        hessian,
    )


CASES: list[tuple[str, Callable[[], tuple[Problem, Any, Any]], str, float, int]] = [
    *(("Lorenz, n = 3", lorenz, method, 0.01, 100) for method in ("rk4", "rk5dp", "rk8vr")),
    *(("Lorenz, n = 3", lorenz, method, 0.01, 100) for method in ("beuler", "cn", "midpoint")),
    *(
        ("Gray-Scott 64 x 64, products", lambda: spots_on(64, "products"), method, 0.5, 10)
        for method in ("rk4", "rk5dp")
    ),
    *(
        ("Gray-Scott 64 x 64, assembled", lambda: spots_on(64, "assembled"), method, 0.5, 10)
        for method in ("rk4", "rk5dp")
    ),
    *(
        ("Gray-Scott 64 x 64, LU", lambda: spots_on(64, "assembled"), method, 0.5, 6)
        for method in ("beuler", "cn", "midpoint")
    ),
]


def measure(
    case: str, made: tuple[Problem, Any, Any], method: str, dt: float, steps: int, repeat: int
) -> Row:
    """Time the sweeps in turn."""
    problem, u0, p = made
    run: Trajectory = solve(problem, u0, p, Stepping((0.0, steps * dt), method, dt=dt))
    cost = half_square(problem)
    directions = []
    for k in range(4):
        du = run.states[0].duplicate()
        du.getArray()[...] = np.cos(k + np.arange(problem.size))
        directions.append((du, 0.01 * np.cos(k + np.arange(problem.n_parameters))))
    sweeps: list[Callable[[], object]] = [
        lambda: adjoint(run, cost, "vectors"),
        lambda: tangent(run, *directions[0], "vectors"),
        lambda: hessian_sweep(run, cost, directions[:1], engine="vectors"),
        lambda: hessian_sweep(run, cost, directions, engine="vectors"),
    ]
    times: list[list[float]] = [[] for _ in sweeps]
    for _ in range(repeat + 1):
        for sweep, log in zip(sweeps, times, strict=True):
            begin = time.perf_counter()
            sweep()
            log.append(1e3 * (time.perf_counter() - begin))
    return Row(case, method, *(statistics.median(log[1:]) for log in times))


@dataclass(frozen=True)
class FullHessian:
    """The whole Hessian by both engines; processor times in milliseconds."""

    n: int
    method: str
    steps_of_the_run: int
    steps: float
    block: float
    difference: float


def lotka_volterra(n: int) -> Problem:
    """Return x_i' = x_i (r_i + sum_j A_ij x_j), parameters r; callbacks take many points."""
    a = np.random.default_rng(n).normal(0.0, 0.5 / np.sqrt(n), (n, n))
    np.fill_diagonal(a, -1.0)

    def jacobian(_t: Any, u: Any, p: Any) -> Any:
        matrix = u[..., :, None] * a
        matrix[..., range(n), range(n)] += p + u @ a.T
        return matrix

    def hessian(_t: Any, _u: Any, _p: Any, w: Any, du: Any, dp: Any) -> Any:
        by_p = w * du
        return w * (dp + du @ a.T) + by_p @ a, by_p.reshape(-1, n).sum(0)

    def pull(_t: Any, u: Any, _p: Any, w: Any) -> Any:
        return (w * u).sum(-2) if u.ndim > 1 else w * u

    return ODE(
        lambda _t, u, p: u * (p + u @ a.T),
        n,
        n,
        jacobian=jacobian,
        jacobian_p=Products(lambda _t, u, _p, v: u * v, pull),
        hessian_product=hessian,
        batched=True,
    )


def compare_engines(n: int, method: str, repeat: int) -> FullHessian:
    """Time the whole Hessian by both engines in turn."""
    problem = lotka_volterra(n)
    stepping = Stepping((0.0, 10.0), method, dt=0.1, rtol=1e-7, atol=1e-7)
    if method == "cn":
        stepping = Stepping((0.0, 10.0), method, dt=0.25)
    run = solve(problem, np.full(n, 0.1), np.full(n, 0.1), stepping)
    cost = half_square(problem)
    units = [(row, None) for row in np.eye(n)] + [(None, row) for row in np.eye(n)]
    times: dict[str, list[float]] = {"vectors": [], "arrays": []}
    hessians: dict[str, Any] = {}
    for _ in range(repeat):
        for engine, log in times.items():
            begin = time.process_time()
            products = hessian_sweep(run, cost, units, engine=engine)  # type: ignore[arg-type]
            log.append(1e3 * (time.process_time() - begin))
            hessians[engine] = np.array([np.append(product.u0, product.p) for product in products])
    steps, block = (statistics.median(log) for log in times.values())
    difference = (
        abs(hessians["arrays"] - hessians["vectors"]).max() / abs(hessians["vectors"]).max()
    )
    return FullHessian(n, method, run.n_steps, steps, block, float(difference))


def print_engines(repeat: int) -> list[FullHessian]:
    """Print the table of both engines."""
    print(
        f"{'n':>5}{'method':>8}{'taken':>7}{'vectors':>10}{'arrays':>9}{'ratio':>7}{'difference':>12}"
    )
    rows: list[FullHessian] = []
    for n in (10, 55, 100):
        for method in ("rk5dp", "cn"):
            row = compare_engines(n, method, repeat)
            rows.append(row)
            print(
                f"{n:>5}{method:>8}{row.steps_of_the_run:>7}{row.steps:>10.1f}{row.block:>9.1f}"
                f"{row.steps / row.block:>7.0f}{row.difference:>12.1e}",
                flush=True,
            )
    return rows


def main() -> None:
    """Print the table and write the numbers."""
    parser = argparse.ArgumentParser(description="Cost of one Hessian product.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--full", action="store_true", help="the whole Hessian by both engines")
    arguments = parser.parse_args()
    if arguments.full:
        compared = print_engines(arguments.repeat)
        if arguments.output is not None:
            numbers = [asdict(row) for row in compared]
            arguments.output.write_text(json.dumps(numbers, indent=1) + "\n")
        return
    print(
        f"{'case':<31}{'method':<10}{'adjoint':>9}{'tangent':>9}{'Hessian':>9}{'ratio':>7}"
        f"{'4 at once, each':>17}"
    )
    rows: list[Row] = []
    for case, make, method, dt, steps in CASES:
        row = measure(case, make(), method, dt, steps, arguments.repeat)
        rows.append(row)
        print(
            f"{row.case:<31}{row.method:<10}{row.adjoint:>9.2f}{row.tangent:>9.2f}"
            f"{row.hessian:>9.2f}{row.ratio:>7.2f}{row.ratio_of_four:>17.2f}",
            flush=True,
        )
    if arguments.output is not None:
        numbers = [
            {**asdict(row), "ratio": row.ratio, "ratio_of_four": row.ratio_of_four} for row in rows
        ]
        arguments.output.write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
