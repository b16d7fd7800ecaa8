"""How many modules of the package a call of ``adjoint`` goes through, which, and how long it takes.

A module counts where one of its functions runs between the beginning and the end of
``adjoint(run, cost)``, as Python's own profiler sees it (``sys.setprofile``); the C of the kernels
is not seen.  The first call for a problem prepares, and looks at the run; the second one on the
same run shows what every call goes through: they are counted apart.

    python scripts/bench/modules_crossed.py             a table of the numbers
    python scripts/bench/modules_crossed.py --modules   the modules as well
    python scripts/bench/modules_crossed.py --times     microseconds of processor time of a call
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import numpy as np

import daeosens as ds

PACKAGE = str(Path(ds.__file__).parent) + "/"
MATRIX = np.array([[-0.3, 1.0, 0.0], [-1.0, -0.3, 0.2], [0.0, 0.1, -0.5]])
KEPT = np.array([1.0, -0.8])
DERIVATIVES = ("analytic", "automatic", "traced")
METHODS = {"smooth": ("rk4", "cn"), "event": ("rk4",)}


def crossed(call: Callable[[], object]) -> Counter[str]:
    """Return how often functions of each module of the package were called."""
    calls: Counter[str] = Counter()

    def see(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            calls[frame.f_code.co_filename] += 1

    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
    inside = {file: count for file, count in calls.items() if file.startswith(PACKAGE)}
    return Counter({file[len(PACKAGE) : -3]: count for file, count in inside.items()})


def smooth(derivatives: str) -> tuple[ds.problem.Problem, list[float], list[float]]:
    """Return three linear equations, u' = p[0] A u, a start and parameters."""

    def rhs(_t: float, u: np.ndarray, p: np.ndarray) -> np.ndarray:
        return p[0] * (MATRIX @ u)

    start, names = ([1.0, 0.5, 0.2], [0.7]), ["scale"]
    if derivatives == "traced":
        return ds.trace(rhs, size=3, parameters=names), *start
    supplied = {
        "jacobian": lambda _t, _u, p: p[0] * MATRIX,
        "jacobian_p": lambda _t, u, _p: (MATRIX @ u)[:, None],
    }
    own = supplied if derivatives == "analytic" else {}
    return ds.ODE(rhs, size=3, parameters=names, **own), *start


def ball(derivatives: str) -> tuple[ds.problem.Problem, list[float], list[float]]:
    """Return a ball that falls and bounces, a start and parameters."""

    def rhs(_t: float, u: np.ndarray, p: np.ndarray) -> np.ndarray:
        return np.array([u[1], -p[0] + 0 * u[0]])

    supplied, own = {}, {}
    if derivatives == "analytic":
        supplied = {
            "when_u": lambda _t, _u, _p: np.array([1.0, 0.0]),
            "when_p": "independent",
            "when_t": "autonomous",
            "reset_u": lambda _t, _u, _p: np.diag(KEPT),
            "reset_p": lambda _t, _u, _p: np.zeros((2, 1)),
            "reset_t": "autonomous",
        }
        own = {
            "jacobian": lambda _t, _u, _p: np.array([[0.0, 1.0], [0.0, 0.0]]),
            "jacobian_p": lambda _t, _u, _p: np.array([[0.0], [-1.0]]),
            "rhs_t": "autonomous",
        }
    bounce = ds.Event(
        lambda _t, u, _p: u[0],
        reset=lambda _t, u, _p: u * KEPT,
        direction=-1,
        name="bounce",
        **supplied,
    )
    make = ds.trace if derivatives == "traced" else ds.ODE
    problem = make(rhs, size=2, parameters=["gravity"], events=[bounce], **own)
    return problem, [1.0, 0.0], [9.81]


def cost(problem: ds.problem.Problem, derivatives: str) -> ds.Terminal:
    """Return u[0]^2 at the end."""

    def square(_t: float, u: np.ndarray, _p: np.ndarray) -> float:
        return u[0] ** 2

    if derivatives == "traced":
        return problem.terminal(square)
    if derivatives == "automatic":
        return ds.Terminal(square)
    return ds.Terminal(
        square,
        gradient_u=lambda _t, u, _p: np.array([2.0 * u[0]] + [0.0] * (len(u) - 1)),
        gradient_p="independent",
    )


def microseconds(call: Callable[[], object], rounds: int = 7, calls: int = 200) -> float:
    """Return the least processor time of a call over some rounds of many calls."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(calls):
            call()
        best = min(best, (time.process_time() - begin) / calls)
    return 1e6 * best


def main() -> None:
    """Print a table, and the modules if they are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modules", action="store_true", help="print the modules as well")
    parser.add_argument("--times", action="store_true", help="print microseconds of a call as well")
    arguments = parser.parse_args()
    print(f"{'run':8}{'method':8}{'derivatives':13}{'engine':10}{'first':>6}{'second':>8}")
    for run_name, make in (("smooth", smooth), ("event", ball)):
        for method in METHODS[run_name]:
            for derivatives in DERIVATIVES:
                problem, u0, p = make(derivatives)
                objective = cost(problem, derivatives)
                run = ds.solve(problem, u0, p, ds.Stepping((0.0, 1.0), method, dt=0.05))
                gradient = partial(ds.adjoint, run, objective)
                calls = [crossed(gradient) for _ in range(2)]
                engine = gradient().engine
                numbers = f"{len(calls[0]):6}{len(calls[1]):8}"
                if arguments.times:
                    numbers += f"{microseconds(gradient):10.1f} us"
                print(f"{run_name:8}{method:8}{derivatives:13}{engine:10}{numbers}")
                if arguments.modules:
                    for module in sorted(calls[0]):
                        print(f"    {calls[0][module]:6}{calls[1][module]:6}  {module}")


if __name__ == "__main__":
    main()
