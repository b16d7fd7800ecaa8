"""Count what ranks send and wait for in a step, compare it with a model, and go on to 10 000 ranks.

    python scripts/bench/scaling.py [--ranks 1 2 4 8] [--output results.json]
                                    [--latency 1.5e-6] [--bandwidth 12e9] [--many 10000]

Gray-Scott by RK4 and Crank-Nicolson, runs, adjoints and Hessian products: the same grid on more and
more ranks (strong scaling), and the same part of a grid on each (weak).  All calls of MPI are
counted by a library between the programs and MPI (``mpi_counts.c``): no time is measured but the
processor's on one rank, so more ranks than cores do no harm.  Numbers are the largest of a rank.

The model: a rank exchanges the layer of points around its box with those that have them, as often
in a step on any number of ranks, and waits log2(P) times the latency, there and back, for a
reduction; one that is overlapped is waited for only as far as it takes longer than the work
between.  How often is taken from two ranks; whom to, and how much, from the grid alone.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens import Stepping, Terminal, adjoint, hessian_product, solve
from daeosens.cli.launch import mpi_environment, mpiexec
from daeosens.problem.grids import Grid
from gray_scott import D1, D2, GAMMA, KAPPA, SIDE
from gray_scott.ours import with_rates

HERE = Path(__file__).resolve().parent
POINTS = 32
"""Of the whole grid in each direction (strong scaling), or of a rank's box (weak)."""

COUNTERS = ("messages", "bytes", "reductions", "overlapped", "gathers", "largest")
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "rk4": ("rk4", {}),
    "cn, gmres": ("cn", {}),
    "cn, pgmres": ("cn", {"ksp_type": "pgmres"}),
    "cn, bcgs": ("cn", {"ksp_type": "bcgs"}),
    "cn, ibcgs": ("cn", {"ksp_type": "ibcgs"}),
}
P = (D1, D2, GAMMA, KAPPA)
PHASES = ("run", "adjoint", "hessian product")
STRONG, WEAK = 4096.0**2, 256.0**2
"""Points of a large grid, and of a rank's part of a larger one, that the model goes on with."""

LARGE = 128
"""Points in each direction of a grid on one rank, whose seconds are measured."""


def shape(ranks: int, *, weak: bool) -> tuple[int, int]:
    """Return the points of the grid."""
    if not weak:
        return POINTS, POINTS
    across = 2 ** (int(math.log2(ranks)) // 2)
    return POINTS * across, POINTS * (ranks // across)


def halo(points: tuple[int, int], parts: tuple[int, int]) -> tuple[int, int]:
    """Return to how many others, and how many bytes, the first rank of a grid sends its edges."""
    box = [n // k for n, k in zip(points, parts, strict=True)]
    others, count = set[tuple[int, int]](), 0
    for x in (-1, 0, 1):
        for y in (-1, 0, 1):
            other = (x % parts[0], y % parts[1])
            if other != (0, 0):
                others.add(other)
                count += (box[0] if x == 0 else 1) * (box[1] if y == 0 else 1)
    return len(others), 16 * count


# ---- on ranks


class Study:
    """A grid on all ranks, and what its steps take."""

    def __init__(self, points: tuple[int, int]) -> None:
        self.points = points
        self.grid = Grid(tuple((0.0, SIDE * n / POINTS) for n in points), points, dof=2)
        self.problem = with_rates(self.grid)
        self.start = self.grid.create_vec()
        self.start.getArray()[...] = 0.5 + 0.05 * np.sin(np.arange(self.start.getLocalSize()))
        self.cost = Terminal(
            lambda _t, u, _p: 0.5 * u.dot(u),
            lambda _t, u, _p, out: u.copy(out),
            "independent",
            lambda _t, _u, _p, du, _dp, out: (du.copy(out), np.zeros(len(P)))[1],
        )
        self._comm = PETSc.COMM_WORLD.tompi4py()
        self._library = ctypes.CDLL(os.environ["LD_PRELOAD"])

    def _counted(self, action: Callable[[], Any]) -> tuple[Any, Any]:
        numbers = (ctypes.c_longlong * len(COUNTERS))()
        self._comm.Barrier()
        self._library.mpi_counts_clear()
        begin = time.process_time()
        value = action()
        seconds = time.process_time() - begin
        self._library.mpi_counts_read(numbers)
        return value, np.array([*numbers, seconds], dtype=float)

    def phases(self, steps: int, method: str, options: dict[str, Any]) -> tuple[Any, list[Any]]:
        """Return the rank's part of a gradient, and what run, adjoint and Hessian product take."""
        stepping = Stepping((0.0, float(steps)), method, dt=1.0, options=options)
        run, forward = self._counted(
            lambda: solve(self.problem, self.start, P, stepping, checkpoint="states")
        )
        gradient, back = self._counted(lambda: adjoint(run, self.cost))
        _, second = self._counted(lambda: hessian_product(run, self.cost, self.start, P))
        return np.append(np.ravel(gradient.u0), gradient.p), [forward, back, second]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield what a step takes, of the rank that has most."""
        reference: dict[str, Any] = {}
        for name, (method, options) in METHODS.items():
            # what is made once, and what is found out in the first step, is not counted
            self.phases(2, method, options)
            _, few = self.phases(2, method, options)
            gradient, more = self.phases(4, method, options)
            known = reference.setdefault(method, gradient)
            deviation = float(np.abs(gradient - known).max() / np.abs(known).max())
            for phase, short, long in zip(PHASES, few, more, strict=True):
                numbers = (long - short) / 2.0
                # of differences of seconds nothing is left on a busy machine
                numbers[-1] = long[-1] / 4.0
                numbers[COUNTERS.index("largest")] = long[COUNTERS.index("largest")]
                numbers = np.max(self._comm.allgather(numbers), axis=0)
                yield {
                    "method": name,
                    "phase": phase,
                    "ranks": self._comm.size,
                    "points": self.points,
                    "parts": tuple(self.grid.dm.getProcSizes()),
                    "deviation": self._comm.allreduce(deviation, max),
                    **dict(zip((*COUNTERS, "seconds"), numbers.tolist(), strict=True)),
                }


def count() -> Iterator[dict[str, Any]]:
    """Yield what the steps of all settings take on these ranks."""
    ranks = PETSc.COMM_WORLD.size
    if ranks == 1:  # counts nothing, and tells the work of a point
        yield from ({"scaling": "", **row} for row in Study((LARGE, LARGE)).rows())
        return
    for scaling in ("strong", "weak"):
        study = Study(shape(ranks, weak=scaling == "weak"))
        yield from ({"scaling": scaling, **row} for row in study.rows())


# ---- the model


@dataclass(frozen=True)
class Model:
    """What a step takes on any number of ranks.

    Attributes
    ----------
    two : mapping
        What it takes on two.
    work : float
        Seconds of a point.
    latency, bandwidth : float
    """

    two: dict[str, Any]
    work: float
    latency: float
    bandwidth: float

    def fill(self, row: dict[str, Any], points: float, others: int, size: float) -> dict[str, Any]:
        """Return a row with messages, bytes and efficiency for so many points of a rank."""
        exchanges = self.two["messages"] / halo(self.two["points"], self.two["parts"])[0]
        wait = 2.0 * math.log2(row["ranks"]) * self.latency
        work = self.work * points
        sent = exchanges * (others * self.latency + size / self.bandwidth)
        hidden = max(0.0, self.two["overlapped"] * wait - work - sent)
        waited = (self.two["reductions"] + self.two["gathers"]) * wait + hidden
        return row | {
            "model_messages": exchanges * others,
            "model_bytes": exchanges * size,
            "efficiency": work / (work + sent + waited),
            "of_reductions": waited / (work + sent + waited),
        }


def modelled(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return rows with the model beside what was counted, and those of many ranks behind them."""
    ones = {(row["method"], row["phase"]): row for row in rows if row["ranks"] == 1}
    twos = {(row["scaling"], row["method"], row["phase"]): row for row in rows if row["ranks"] == 2}
    filled: list[dict[str, Any]] = []
    far: list[dict[str, Any]] = []
    for row in rows:
        if row["ranks"] == 1:
            continue
        one = ones[row["method"], row["phase"]]
        work = max(one["seconds"], 1e-9) / math.prod(one["points"])
        two = twos[row["scaling"], row["method"], row["phase"]]
        model = Model(two, work, arguments.latency, arguments.bandwidth)
        others, size = halo(row["points"], row["parts"])
        filled.append(model.fill(row, math.prod(row["points"]) / row["ranks"], others, size))
        if row is two:
            points = WEAK if row["scaling"] == "weak" else STRONG / arguments.many
            unknown = dict.fromkeys(("deviation", "points", "parts", "seconds", *COUNTERS))
            kept = {name: row[name] for name in ("reductions", "overlapped", "gathers")}
            many = row | unknown | kept | {"ranks": arguments.many}
            far.append(model.fill(many, points, 8, 16.0 * (4.0 * math.sqrt(points) + 4.0)))
    return [*filled, *far]


HEAD = (
    *("scaling", "method", "phase", "ranks", "messages", "model_messages", "bytes", "model_bytes"),
    *("reductions", "overlapped", "gathers", "largest", "efficiency", "of_reductions"),
)


def line(row: dict[str, Any]) -> str:
    """Return a row of the table."""
    texts = [
        "" if row[name] is None else row[name] if isinstance(row[name], str) else f"{row[name]:.4g}"
        for name in HEAD
    ]
    return " | ".join(texts)


def main() -> None:
    """Print the table and write the numbers."""
    parser = argparse.ArgumentParser(description="Messages, bytes and reductions of a step.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, help="no repetitions: counts do not vary")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--latency", type=float, default=1.5e-6, help="of a message [s]")
    parser.add_argument("--bandwidth", type=float, default=12e9, help="of a rank [bytes/s]")
    parser.add_argument("--many", type=int, default=10_000, help="ranks to go on to")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work is not None:
        rows = list(count())
        if PETSc.COMM_WORLD.rank == 0:
            arguments.work.write_text(json.dumps(rows))
        return
    rows = []
    with TemporaryDirectory() as folder:
        library, work = Path(folder) / "libmpi_counts.so", Path(folder) / "rows.json"
        source = str(HERE / "mpi_counts.c")
        subprocess.run(["mpicc", "-shared", "-fPIC", "-O2", source, "-o", library], check=True)
        for ranks in sorted({1, 2, *arguments.ranks}):
            # on the ranks alone: the launcher is a program of MPI's as well
            program = ["env", f"LD_PRELOAD={library}", sys.executable, __file__, "--work", work]
            environment = mpi_environment(ranks)
            subprocess.run([*mpiexec(ranks), *program], check=True, env=environment)
            rows += json.loads(work.read_text())
    rows = modelled(rows, arguments)
    print(" | ".join(HEAD))
    for row in rows:
        print(line(row))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
