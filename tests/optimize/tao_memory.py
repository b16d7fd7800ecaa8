"""Every TAO method that ``minimize`` offers, under valgrind: whether it leaves its arrays.

``python tests/optimize/tao_memory.py`` runs each method, in a process of its own, on all problems
below, counts what valgrind's memcheck sees, and writes it into docs/petsc.md; it takes an hour or
less on one core.  ``python tests/optimize/tao_memory.py METHOD`` is one of those processes, without
valgrind.

PETSc takes some of its arrays from one block of memory, between which memcheck does not see, unless
it is told not to (``-malloc_coalesce 0``, as here).  ``pounders``, which is not offered, is the
control: without a limit of evaluations it is known to write beyond its arrays, and memcheck has to
see that.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from petsc4py import PETSc

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "petsc.md"
HEADING = "## TAO under valgrind"
sys.path.insert(0, str(HERE.parent / "support"))

from closed import Residual  # noqa: E402

import daeosens as ds  # noqa: E402
from daeosens.optimize.methods import METHODS, NEWTON, UNBOUNDED  # noqa: E402

CONTROL = "pounders"
"""What is known to write beyond its arrays, and is not offered."""

FAULTS = {
    "reads": r"Invalid read of size",
    "writes": r"Invalid write of size",
    "frees": r"Invalid free|Mismatched free|Source and destination overlap",
    "undefined": r"uninitialised|Jump to the invalid",
}
"""Messages of memcheck by what they tell."""


# ---- residuals, of which the numbers are those of Moré, Garbow and Hillstrom (ACM TOMS 7, 1981)


def _rosenbrock(x):  # 1, 21
    return np.concatenate([10.0 * (x[1:] - x[:-1] ** 2), 1.0 - x[:-1]])


def _freudenstein_roth(x):  # 2
    a, b = x
    return np.array([a - 13 + ((5 - b) * b - 2) * b, a - 29 + ((b + 1) * b - 14) * b])


def _badly_scaled(x):  # 3
    return np.array([1e4 * x[0] * x[1] - 1, np.exp(-x[0]) + np.exp(-x[1]) - 1.0001])


def _beale(x):  # 5
    return np.array([1.5, 2.25, 2.625]) - x[0] * (1 - x[1] ** np.arange(1, 4))


def _jennrich_sampson(x):  # 6
    i = np.arange(1, 11)
    return 2 + 2 * i - (np.exp(i * x[0]) + np.exp(i * x[1]))


def _helical_valley(x):  # 7, where x_1 > 0
    angle = np.arctan(x[1] / x[0]) / (2 * np.pi)
    return np.array([10 * (x[2] - 10 * angle), 10 * (np.sqrt(x[0] ** 2 + x[1] ** 2) - 1), x[2]])


def _bard(x):  # 8
    y = np.array([14, 18, 22, 25, 29, 32, 35, 39, 37, 58, 73, 96, 134, 210, 439]) / 100
    u = np.arange(1, 16)
    v = 16 - u
    return y - (x[0] + u / (v * x[1] + np.minimum(u, v) * x[2]))


def _box(x):  # 12
    t = 0.1 * np.arange(1, 11)
    return np.exp(-t * x[0]) - np.exp(-t * x[1]) - x[2] * (np.exp(-t) - np.exp(-10 * t))


def _powell_singular(x):  # 13
    a, b, c, d = x
    return np.array([a + 10 * b, 5**0.5 * (c - d), (b - 2 * c) ** 2, 10**0.5 * (a - d) ** 2])


def _wood(x):  # 14
    a, b, c, d = x
    root = 10**0.5
    return np.array(
        [
            10 * (b - a**2),
            1 - a,
            90**0.5 * (d - c**2),
            1 - c,
            root * (b + d - 2),
            (b - d) / root,
        ]
    )


def _kowalik_osborne(x):  # 15
    y = np.array([1957, 1947, 1735, 1600, 844, 627, 456, 342, 323, 235, 246]) / 1e4
    u = np.array([4, 2, 1, 0.5, 0.25, 1 / 6, 0.125, 0.1, 1 / 12, 1 / 14, 0.0625])
    return y - x[0] * (u**2 + u * x[1]) / (u**2 + u * x[2] + x[3])


def _brown_dennis(x):  # 16
    t = np.arange(1, 21) / 5
    return (x[0] + t * x[1] - np.exp(t)) ** 2 + (x[2] + x[3] * np.sin(t) - np.cos(t)) ** 2


def _broyden(x):  # 30
    below, above = np.concatenate([[0.0], x[:-1]]), np.concatenate([x[1:], [0.0]])
    return (3 - 2 * x) * x - below - 2 * above + 1


def _hock_schittkowski_25(x):
    i = np.arange(1, 100)
    u = 25 + (-50 * np.log(0.01 * i)) ** (2 / 3)
    return np.exp(-((u - x[1]) ** x[2]) / x[0]) - 0.01 * i


def _well(x):
    return np.array([x[0] ** 2 - 2.0])


class Squares(Residual):
    """Closed-form residuals, with Jacobians by complex steps and Hessians by differences."""

    def __init__(self, residual: Callable[..., Any], start: Any, **extra: Any) -> None:
        def pieces(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            ways = 1e-30j * np.eye(len(x))
            jacobian = np.array([residual(x + way).imag / 1e-30 for way in ways]).T
            return residual(x), jacobian

        super().__init__(pieces, start, **extra)

    def hessian_product(self, x: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        """Return a difference of gradients: memory is tried here, not digits."""
        size = 1e-6 * (1.0 + x.norm()) / (dx.norm() or 1.0)
        above, below = self.gradient(x + size * dx), self.gradient(x - size * dx)
        return (above - below) * (0.5 / size)


def _fit(unknown: int, bounds: bool) -> Any:
    """Fit rates, or rates and start, of prey and predators to their own solution."""
    names = ["birth", "catch", "growth", "death"]
    problem = ds.ODE(
        lambda t, u, p: np.array(
            [p[0] * u[0] - p[1] * u[0] * u[1], p[2] * u[0] * u[1] - p[3] * u[1]]
        ),
        size=2,
        parameters=names,
    )
    stepping = ds.Stepping((0.0, 4.0), "rk4", dt=0.2)
    times, truth = [1.0, 2.0, 3.0, 4.0], np.array([1.0, 0.5, 0.4, 0.8])
    run = ds.solve(problem, [1.5, 0.8], truth, stepping, times)
    data = run.at(times)
    limits = {"lower": 0.1, "upper": 0.95} if bounds else {}
    guess = {name: ds.Parameter(0.7, **limits) for name in names[:unknown]}
    known = dict(zip(names[unknown:], truth[unknown:].tolist(), strict=True))
    parameters = ds.Parameters({**guess, **known}, initial_state=[1.5, 0.8])
    return ds.Reduced(problem, ds.LeastSquares(times, data, sigma=0.1), stepping, parameters)


def problems() -> list[Callable[[bool], Any]]:
    """Return what makes each problem, with bounds or without."""

    def closed(residual: Callable[..., Any], start: Any, lower: Any, upper: Any) -> Any:
        def make(bounded: bool) -> Any:
            if bounded:
                return Squares(residual, np.clip(start, lower, upper), bounds=(lower, upper))
            return Squares(residual, start)

        return make

    return [
        closed(_rosenbrock, [-1.2, 1.0], -1.5, 0.8),
        closed(_rosenbrock, [-1.2, 1.0, 0.5, -0.5, 1.2, 0.1], -1.5, 1.2),
        closed(_freudenstein_roth, [0.5, -2.0], -10.0, 20.0),
        closed(_badly_scaled, [0.0, 1.0], 0.0, 9.0),
        closed(_beale, [1.0, 1.0], 0.6, 4.0),
        closed(_jennrich_sampson, [0.3, 0.4], 0.26, 0.4),
        closed(_helical_valley, [2.0, 1.0, 0.5], 0.5, 3.0),
        closed(_bard, [1.0, 1.0, 1.0], 0.1, 2.0),
        closed(_box, [0.0, 10.0, 20.0], [0.0, 5.0, 0.0], [2.0, 9.5, 20.0]),
        closed(_powell_singular, [3.0, -1.0, 0.0, 1.0], [0.1, -20.0, -1.0, -1.0], 100.0),
        closed(_wood, [-3.0, -1.0, -3.0, -1.0], -10.0, 10.0),  # Hock, Schittkowski 38
        closed(_kowalik_osborne, [0.25, 0.39, 0.415, 0.39], 0.0, 0.42),
        closed(_brown_dennis, [25.0, 5.0, -5.0, -1.0], -20.0, 25.0),
        closed(_broyden, [-1.0] * 12, -1.0, -0.5),
        closed(_hock_schittkowski_25, [60.0, 20.0, 1.4], [0.1, 0.0, 0.0], [100.0, 25.6, 5.0]),
        closed(_well, [2.5], -3.0, 3.0),
        closed(_rosenbrock, [-2.0, 1.0], [-100.0, -1.5], 100.0),  # Hock, Schittkowski 1
        closed(_rosenbrock, [0.5, 1.5], [-0.5, 1.5], [0.5, 2.0]),  # all are active at the start
        partial(_fit, 1),
        partial(_fit, 4),
    ]


def descend(method: str) -> None:
    """Run a method on all problems; what bounds mean to it with them too."""
    for number, make in enumerate(problems()):
        for bounded in (False, True)[: 2 - (method in UNBOUNDED)]:
            kinds = ("exact", "gauss_newton") if method in NEWTON else ("exact",)
            for hessian in kinds:
                result = ds.minimize(
                    make(bounded), method=method, hessian=hessian, max_iterations=12
                )
                print(number, bounded, hessian, result.reason, flush=True)


def _descend_by_control() -> None:
    """Run POUNDERS without a limit of evaluations, straight from petsc4py.

    It keeps all points in arrays of ``max_funcs + 100``, and no limit is -3 (PETSc 3.26): the 98th
    evaluation of these 108 lies outside.
    """
    x = PETSc.Vec().createWithArray(np.array([25.0, 5.0, -5.0, -1.0]), comm=PETSc.COMM_SELF)
    out = PETSc.Vec().createSeq(20, comm=PETSc.COMM_SELF)
    tao = PETSc.TAO().create(PETSc.COMM_SELF)
    tao.setType(CONTROL)
    tao.setResidual(lambda _, x, f: f.setArray(_brown_dennis(x.array)), out)
    tao.setMaximumFunctionEvaluations(PETSc.UNLIMITED)
    tao.setTolerances(gatol=1e-14, grtol=0.0)
    tao.solve(x)
    print(tao.getIterationNumber(), flush=True)


def seen_by_valgrind(method: str, seconds: float) -> Counter[str]:
    """Run a method in a process under valgrind; return how often it saw what."""
    environment = {
        **os.environ,
        "PETSC_OPTIONS": "-malloc_coalesce 0",
        "PYTHONMALLOC": "malloc",  # which memcheck watches, where Python's own pools are one block
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        known = sorted(Path("/usr").glob("share/openmpi*/openmpi-valgrind.supp"))
        command = [
            *("valgrind", "--error-limit=no", "--num-callers=40", f"--log-file={log}"),
            *(f"--suppressions={path}" for path in known),
            *(sys.executable, str(Path(__file__)), method),
        ]
        done = subprocess.run(
            command,
            env=environment,
            cwd=ROOT,
            timeout=seconds,
            text=True,
            capture_output=True,
            check=False,
        )
        text = log.read_text(errors="replace")
    counts: Counter[str] = Counter({"code": done.returncode, "runs": done.stdout.count("\n")})
    for block in re.split(r"\n==\d+== \n", text):
        # what belongs to libraries alone, without PETSc, is theirs: loaders, NumPy at import
        if "petsc" in block.lower() or "tao" in block.lower():
            counts.update({name: len(re.findall(by, block)) for name, by in FAULTS.items()})
    return counts


def page_with(text: str, rows: list[str]) -> str:
    """Return docs/petsc.md with the table in place of the one before."""
    before, _, after = text.partition(f"{HEADING}\n")
    rest = after.partition("\n## ")
    following = f"\n## {rest[2]}" if rest[1] else ""
    asked = ["valgrind", "--version"]
    version = subprocess.run(asked, text=True, capture_output=True, check=True).stdout
    day = dt.datetime.now(dt.UTC).date()
    told = (
        f"`python tests/optimize/tao_memory.py` on {day}, PETSc "
        f"{'.'.join(map(str, PETSc.Sys.getVersion()))}, {version.strip()}: every method that\n"
        f"`minimize` offers on the {len(problems())} problems of that file, with bounds where the "
        "method knows them and with both\nHessians where it takes one.  Distinct errors of "
        "memcheck with a function of PETSc in their stack;\n"
        f"`{CONTROL}` without a limit of evaluations is the control: it is known to write beyond "
        "its arrays.\nPETSc runs with `-malloc_coalesce 0`, so that memcheck sees each array by "
        "itself.\n\n"
    )
    return f"{before.rstrip()}\n\n{HEADING}\n\n{told}" + "\n".join(rows) + "\n" + following


def main() -> None:
    """Try all methods, and write the page."""
    if len(sys.argv) > 1:
        if sys.argv[1] == CONTROL:
            _descend_by_control()
        else:
            descend(sys.argv[1])
        return
    rows = [
        "| method | descents | invalid reads | invalid writes | other invalid | undefined values |",
        "|---|---|---|---|---|---|",
    ]
    for method in (CONTROL, *METHODS):  # without the first the others prove nothing
        counts = seen_by_valgrind(method, 3600.0)
        if method != CONTROL and counts["code"]:
            raise SystemExit(f"{method} ended with code {counts['code']}")
        if method == CONTROL and not counts["writes"]:
            raise SystemExit(
                f"nothing is seen of {method}: zeros of the others would prove nothing"
            )
        named = f"{method}, not offered" if method == CONTROL else method
        numbers = [counts[name] for name in ("runs", *FAULTS)]
        rows.append(f"| {named} | {' | '.join(map(str, numbers))} |")
        print(rows[-1], flush=True)
    PAGE.write_text(page_with(PAGE.read_text(), rows))


if __name__ == "__main__":
    main()
