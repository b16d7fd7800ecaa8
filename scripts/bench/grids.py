"""Linear iterations and times of implicit steps on grids, with default settings.

    python scripts/bench/grids.py [--output results.json] [--repeat 1] [--ranks 1 2] [--quick]

Each equation takes two steps of Crank-Nicolson on ever finer grids, short and long ones, forward,
in the adjoint sweep and in that of a Hessian product.  Iterations are those of one solve, which do
not grow where the preconditioner does its work; 1 is a direct solver.  Peclet numbers of the unit
length are 1000 for advection, 100 for Burgers' equation.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens import Stepping, Terminal, adjoint, hessian_product, solve, trace_stencil
from daeosens.errors import DaeosensError
from daeosens.methods.factored_matrix import Slot
from daeosens.problem.grids import Grid

STEPS = 2


@dataclass(frozen=True)
class Row:
    """One line of the table; iterations of a solve, seconds, and what was refused."""

    equation: str
    boundary: str
    points: str
    ranks: int
    dt: float
    dt_over_h2: float
    newton: float
    forward: float
    sweep: float
    seconds: float
    seconds_adjoint: float
    seconds_hessian: float
    failed: str = ""


@dataclass(frozen=True)
class Equation:
    """A right-hand side at a point, its parameter k, and the step sizes that are tried."""

    name: str
    rhs: Callable[..., Any]
    k: float
    dof: int = 1
    steps: tuple[float, ...] = (1e-3, 1.0)


def upwind(u: Any) -> Any:
    """Return the sum of upwind differences, for a flow along all axes."""
    total: Any = 0.0
    for axis, h in enumerate(u.spacing):
        back = tuple(-int(k == axis) for k in range(len(u.spacing)))
        total = total + (u.center - u[back]) / h
    return total


def gray_scott(_t: Any, u: Any, p: Any) -> Any:
    """Return f of two species."""
    a, b = u.center
    of_a, of_b = u.laplacian()
    growth = a * b * b
    return [p.k * of_a - growth + 0.024 * (1 - a), 0.5 * p.k * of_b + growth - 0.084 * b]


def fitzhugh_nagumo(_t: Any, u: Any, p: Any) -> Any:
    """Return f of a fast variable that diffuses and a slow one that does not."""
    v, w = u.center
    return [p.k * u.laplacian()[0] + v - v**3 / 3 - w, 0.08 * (v + 0.7 - 0.8 * w)]


EQUATIONS = (
    Equation("heat", lambda _t, u, p: p.k * u.laplacian(), 0.1),
    Equation("upwind advection", lambda _t, u, p: p.k * u.laplacian() - upwind(u), 1e-3),
    Equation("central advection", lambda _t, u, p: p.k * u.laplacian() - sum(u.gradient()), 1e-3),
    Equation("Allen-Cahn", lambda _t, u, p: p.k * u.laplacian() + u.center - u.center**3, 0.01),
    Equation("Gray-Scott", gray_scott, 0.01, dof=2),
    Equation("FitzHugh-Nagumo", fitzhugh_nagumo, 0.01, dof=2),
    Equation(
        "Burgers",
        lambda _t, u, p: p.k * u.laplacian() - u.center * sum(u.gradient()),
        0.01,
        steps=(1e-3, 0.1),
    ),
)

BOUNDARIES = ("periodic", "zero", "neumann")

EVERY: dict[int, int] = {1: 100_000, 2: 256, 3: 32}
"""Points along each dimension in which all equations are solved."""

LARGER: dict[str, dict[int, tuple[int, ...]]] = {
    "heat": {1: (1000, 1_000_000), 2: (512, 1024), 3: (64, 128)},
    "central advection": {1: (1000, 1_000_000), 2: (128, 512)},
    "Allen-Cahn": {1: (1_000_000,), 2: (512,), 3: (64,)},
    "Gray-Scott": {2: (512,)},
    "Burgers": {2: (512,)},
}
"""Others, by the long step alone where they have more points."""

QUICK: dict[int, int] = {1: 100, 2: 80, 3: 18}


@contextmanager
def counted() -> Generator[list[int]]:
    """Count the iterations of the solves of sweeps."""
    counts: list[int] = []
    solve_with = Slot.solve

    def counting(slot: Slot, *vecs: PETSc.Vec, transpose: bool) -> None:
        solve_with(slot, *vecs, transpose=transpose)
        counts.append(slot.iterations)

    Slot.solve = counting  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        Slot.solve = solve_with  # type: ignore[method-assign]


def energy() -> Terminal:
    """Return the mean square of the last state."""
    return Terminal(
        lambda _t, u, _p: 0.5 * u.dot(u) / u.size,
        lambda _t, u, _p, out: out.axpby(1.0 / u.size, 0.0, u),
        "independent",
        hessian_product=lambda _t, u, _p, du, _dp, out: (
            out.axpby(1.0 / u.size, 0.0, du),
            np.zeros(1),
        )[1],
    )


def measure(equation: Equation, boundary: Any, shape: tuple[int, ...], dt: float) -> Row:
    """Return the row of one equation, grid and step size.  Collective."""
    grid = Grid(((0.0, 1.0),) * len(shape), shape, boundary, dof=equation.dof)
    model = trace_stencil(equation.rhs, grid, ["k"])
    u0 = grid.create_vec()
    wave = np.prod([np.sin(2 * np.pi * x) for x in grid.coordinates()], axis=0)
    for component in range(equation.dof):
        grid.writable(u0)[..., component] = 0.5 + 0.4 * wave
    stepping = Stepping((0.0, STEPS * dt), "cn", dt=dt)
    newton = forward = sweep = float("nan")
    seconds, failed = [float("nan")] * 3, ""
    clock = time.perf_counter()
    try:
        run = solve(model, u0, [equation.k], stepping)
        seconds[0] = time.perf_counter() - clock
        newton = run.effort.newton_iterations / run.n_steps
        forward = run.effort.linear_iterations / run.effort.newton_iterations
        with counted() as counts:
            clock = time.perf_counter()
            adjoint(run, energy())
            seconds[1] = time.perf_counter() - clock
            clock = time.perf_counter()
            hessian_product(run, energy(), u0, [1.0])
            seconds[2] = time.perf_counter() - clock
        sweep = float(np.mean(counts))
    except DaeosensError as error:
        failed = f"{type(error).__name__}: {error.in_one_line()}"
    points = "x".join(map(str, shape))
    of_steps = dt / min(grid.spacing) ** 2
    ranks = grid.comm.size
    return Row(
        equation.name,
        boundary,
        points,
        ranks,
        dt,
        of_steps,
        newton,
        forward,
        sweep,
        *seconds,
        failed,
    )


def settings(*, quick: bool) -> list[tuple[int, str, tuple[int, ...], float]]:
    """Return what is measured: number of the equation, boundary, shape, step size.

    All boundaries in two dimensions; several ranks take the long steps of those alone.
    """
    several = PETSc.COMM_WORLD.size > 1
    found: list[tuple[int, str, tuple[int, ...], float]] = []
    for number, equation in enumerate(EQUATIONS):
        for dimensions, points in (QUICK if quick else EVERY).items():
            if several and dimensions != 2 and not quick:
                continue
            shape = (points,) * dimensions
            steps = equation.steps[-1:] if several else equation.steps
            for boundary in BOUNDARIES if dimensions == 2 else ("zero",):
                found += [(number, boundary, shape, dt) for dt in steps]
            if quick or several:
                continue
            for more in LARGER.get(equation.name, {}).get(dimensions, ()):
                found.append((number, "zero", (more,) * dimensions, equation.steps[-1]))
    return sorted(found, key=lambda each: np.prod([float(n) for n in each[2]]))


def work(output: Path, *, quick: bool) -> None:
    """Measure everything on the ranks that call it together, and print as rows come."""
    rows: list[Row] = []
    for number, boundary, shape, dt in settings(quick=quick):
        row = measure(EQUATIONS[number], boundary, shape, dt)
        rows.append(row)
        PETSc.garbage_cleanup(PETSc.COMM_WORLD)
        if PETSc.COMM_WORLD.rank == 0:
            print(
                f"{row.equation:<24}{row.boundary:<10}{row.points:<13}{row.ranks:>5}{row.dt:>8g}"
                f"{row.dt_over_h2:>10.1e}{row.newton:>8.1f}{row.forward:>9.1f}{row.sweep:>7.1f}"
                f"{row.seconds:>10.2f}{row.seconds_adjoint:>9.2f}{row.seconds_hessian:>9.2f} "
                f"{row.failed}",
                flush=True,
            )
            output.write_text(json.dumps([asdict(each) for each in rows], indent=1) + "\n")


def main() -> None:
    """Print the table and write the numbers."""
    parser = argparse.ArgumentParser(description="Iterations of implicit steps on grids.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument(
        "--repeat", type=int, default=1, help="no repetitions: iterations do not vary"
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--quick", action="store_true", help="tiny grids")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work is not None:
        work(arguments.work, quick=arguments.quick)
        return
    print(
        f"{'equation':<24}{'boundary':<10}{'points':<13}{'ranks':>5}{'dt':>8}{'dt/h^2':>10}"
        f"{'newton':>8}{'forward':>9}{'sweep':>7}{'solve, s':>10}{'adjoint':>9}{'Hessian':>9}",
        flush=True,
    )
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        for ranks in arguments.ranks:
            part = Path(folder) / f"{ranks}.json"
            program = [sys.executable, __file__, "--work", str(part)]
            program += ["--quick"] if arguments.quick else []
            launch = [] if ranks == 1 else ["mpiexec", "-n", str(ranks)]
            subprocess.run([*launch, *program], check=True)
            rows += json.loads(part.read_text())
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
