"""Linear iterations and times of implicit steps on grids, with default settings.

    python scripts/bench/grids.py [--all] [--output results.json] [--document docs/speed.md]
                                  [--ranks 1 2] [--only 1024x1024]

Each equation takes two steps of Crank-Nicolson on ever finer grids, short and long ones, forward,
in the adjoint sweep and in that of a Hessian product.  Iterations are those of one solve, which do
not grow where the preconditioner does its work; 1 is a direct solver.  Peclet numbers of the unit
length are 1000 for advection, 100 for Burgers' equation.  The flow comes in across the lower
edges, of "neumann" ones too.  Small grids take a minute; ``--all`` goes on to a million points in
one dimension, 1024 x 1024 and 128 x 128 x 128: an hour, and as much memory as the table says.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens import Stepping, Terminal, adjoint, hessian_product, solve, trace_stencil
from daeosens.errors import DaeosensError
from daeosens.methods.factored_matrix import FactoredMatrix
from daeosens.problem.grids import Grid

STEPS = 2


@dataclass(frozen=True)
class Row:
    """One line of the table; iterations of a solve, seconds, and what was refused.

    ``gigabytes`` are the most that all ranks had so far.
    """

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
    gigabytes: float
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

Setting = tuple[int, str, tuple[int, ...], float]
"""Number of the equation, boundary, points, step size."""

QUICK: tuple[tuple[int, ...], ...] = ((80, 80), (160, 160), (10_000,), (18, 18, 18))
"""Points of grids that take a minute together; all boundaries are tried on the first."""

LARGE: tuple[tuple[int, ...], ...] = (
    (10_000,),
    (1_000_000,),
    (256, 256),
    (512, 512),
    (1024, 1024),
    (32, 32, 32),
    (64, 64, 64),
    (128, 128, 128),
)

SEVERAL: tuple[tuple[int, ...], ...] = (
    (1_000_000,),
    (256, 256),
    (1024, 1024),
    (64, 64, 64),
    (128, 128, 128),
)
"""Those that several ranks take as well."""

MOST = 200_000
"""Up to how many points all boundaries are tried; "neumann" alone with more."""

FEW = 70_000
"""Up to how many points short steps are tried."""


def settings(ranks: int, *, large: bool) -> list[Setting]:
    """Return what is measured, small grids first."""
    shapes = QUICK if not large else LARGE if ranks == 1 else SEVERAL
    tried: list[Setting] = []
    for shape in shapes:
        points = prod(shape)
        for number, equation in enumerate(EQUATIONS):
            every = points < MOST if large else shape == QUICK[0]
            for boundary in BOUNDARIES if every else ("neumann",):
                steps = equation.steps if points <= FEW and ranks == 1 else equation.steps[-1:]
                tried += [(number, boundary, shape, dt) for dt in steps]
    return sorted(tried, key=lambda setting: prod(setting[2]))


@contextmanager
def counted() -> Generator[list[int]]:
    """Count the iterations of the solves of sweeps."""
    counts: list[int] = []
    solve_with = FactoredMatrix.solve

    def counting(slot: FactoredMatrix, *vecs: PETSc.Vec, transpose: bool) -> None:
        solve_with(slot, *vecs, transpose=transpose)
        counts.append(slot.iterations)

    FactoredMatrix.solve = counting  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        FactoredMatrix.solve = solve_with  # type: ignore[method-assign]


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
    return Row(
        equation=equation.name,
        boundary=boundary,
        points="x".join(map(str, shape)),
        ranks=grid.comm.size,
        dt=dt,
        dt_over_h2=dt / min(grid.spacing) ** 2,
        newton=newton,
        forward=forward,
        sweep=sweep,
        seconds=seconds[0],
        seconds_adjoint=seconds[1],
        seconds_hessian=seconds[2],
        gigabytes=_memory(grid.comm),
        failed=failed,
    )


def _memory(comm: PETSc.Comm) -> float:
    """Return the most gigabytes that the ranks had, together.  Collective."""
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return comm.tompi4py().allreduce(kilobytes) / 1024**2


def heading() -> str:
    """Return the first line of the printed table."""
    return (
        f"{'equation':<24}{'boundary':<10}{'points':<13}{'ranks':>5}{'dt':>8}{'dt/h^2':>10}"
        f"{'newton':>8}{'forward':>9}{'sweep':>7}{'solve, s':>10}{'adjoint':>9}{'Hessian':>9}"
        f"{'GB':>6}"
    )


def line(row: Row) -> str:
    """Return a row of it."""
    return (
        f"{row.equation:<24}{row.boundary:<10}{row.points:<13}{row.ranks:>5}{row.dt:>8g}"
        f"{row.dt_over_h2:>10.1e}{row.newton:>8.1f}{row.forward:>9.1f}{row.sweep:>7.1f}"
        f"{row.seconds:>10.2f}{row.seconds_adjoint:>9.2f}{row.seconds_hessian:>9.2f}"
        f"{row.gigabytes:>6.1f} {row.failed}"
    )


def work(output: Path, numbers: list[int], *, large: bool) -> None:
    """Measure settings on the ranks that call it together."""
    tried = settings(PETSc.COMM_WORLD.size, large=large)
    rows: list[dict[str, Any]] = []
    for equation, boundary, shape, dt in (tried[number] for number in numbers):
        row = measure(EQUATIONS[equation], boundary, shape, dt)
        rows.append(asdict(row))
        if PETSc.COMM_WORLD.rank == 0:
            print(line(row), flush=True)
            output.write_text(json.dumps(rows))
        PETSc.garbage_cleanup(PETSc.COMM_WORLD)


COLUMNS: tuple[tuple[str, int], ...] = (
    ("10000", 1),
    ("1000000", 1),
    ("1000000", 2),
    ("256x256", 1),
    ("512x512", 1),
    ("1024x1024", 1),
    ("256x256", 2),
    ("1024x1024", 2),
    ("32x32x32", 1),
    ("64x64x64", 1),
    ("128x128x128", 1),
    ("64x64x64", 2),
    ("128x128x128", 2),
)
"""Points and ranks of the columns of the documentation's table."""


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of the documentation: iterations in runs / in sweeps."""
    measured = {(row["points"], row["ranks"]) for row in rows}
    columns = [column for column in COLUMNS if column in measured]
    heads = [
        _short(points) + (f", {ranks} ranks" if ranks > 1 else "") for points, ranks in columns
    ]
    lines = [
        f"| equation, boundary | dt | {' | '.join(heads)} |",
        f"|{' --- |' * (len(heads) + 2)}",
    ]
    cells = {
        (row["equation"], row["boundary"], row["dt"], row["points"], row["ranks"]): row
        for row in rows
    }
    for equation in EQUATIONS:
        for boundary in BOUNDARIES:
            for dt in equation.steps:
                here = [
                    cells.get((equation.name, boundary, dt, points, ranks))
                    for points, ranks in columns
                ]
                if any(here):
                    told = " | ".join(map(_cell, here))
                    lines.append(f"| {equation.name}, {boundary} | {dt:g} | {told} |")
    return "\n".join(lines)


def _short(points: str) -> str:
    along = points.split("x")
    count = {"10000": "10⁴", "1000000": "10⁶"}.get(along[0], along[0])
    return count + ("", "²", "³")[len(along) - 1]


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if row["failed"]:
        return "fails"
    return f"{row['forward']:.3g} / {row['sweep']:.3g}"


def write_table(document: Path, rows: list[dict[str, Any]]) -> None:
    """Put the table in the place of the one that a document has."""
    text = document.read_text()
    begin = text.index("| equation, boundary |")
    end = text.index("\n\n", begin)
    document.write_text(text[:begin] + table(rows) + text[end:])


def main() -> None:
    """Print the table and write the numbers."""
    parser = argparse.ArgumentParser(description="Iterations of implicit steps on grids.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, help="no repetitions: iterations do not vary")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--all", action="store_true", help="large grids")
    parser.add_argument("--document", type=Path, help="whose table is written, docs/speed.md")
    parser.add_argument("--only", help="these points, as 1024x1024")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--numbers", type=int, nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work is not None:
        work(arguments.work, arguments.numbers, large=arguments.all)
        return
    print(heading(), flush=True)
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        for ranks in arguments.ranks:
            numbers = [
                number
                for number, setting in enumerate(settings(ranks, large=arguments.all))
                if arguments.only in (None, "x".join(map(str, setting[2])))
            ]
            # large ones each in a process of its own, which gives its memory back
            for part in [[number] for number in numbers] if arguments.all else [numbers]:
                rows += _measured(Path(folder) / "rows.json", part, ranks, large=arguments.all)
                if arguments.output is not None:
                    arguments.output.write_text(json.dumps(rows, indent=1) + "\n")
    if arguments.document is not None:
        write_table(arguments.document, rows)


def _measured(output: Path, numbers: list[int], ranks: int, *, large: bool) -> list[dict[str, Any]]:
    """Return rows that a process, or several, have measured."""
    program = [sys.executable, __file__, "--work", str(output)]
    program += ["--all"] if large else []
    program += ["--numbers", *map(str, numbers)]
    launch = [] if ranks == 1 else ["mpiexec", "-n", str(ranks)]
    # without what MPI has put into this process's own environment, which mpiexec stumbles over
    subprocess.run([*launch, *program], check=True, env=dict(os.environ))
    return json.loads(output.read_text())


if __name__ == "__main__":
    main()
