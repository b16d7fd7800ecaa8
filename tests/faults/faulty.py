"""A program in which something goes wrong on one rank.

``python faulty.py CONFIG [--output DIR]`` is a driver,
``python faulty.py plain STYLE PLACE FAULT`` a script without one.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc

import daeosens as ds
from daeosens.cli import drive
from daeosens.io import Results
from daeosens.problem import Products

RANK, RANKS = PETSc.COMM_WORLD.rank, PETSc.COMM_WORLD.size


def send(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(1.0)  # a signal that is handled comes here


def throw(error: BaseException) -> None:
    raise error


def fill_memory() -> None:
    """Ask for more than a limit of the system allows, as after ``ulimit -v``."""
    resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))
    np.ones(2**31)


FAULTS: dict[str, Callable[[], object]] = {
    "none": lambda: None,
    "exit": lambda: sys.exit(3),
    "interrupt": lambda: throw(KeyboardInterrupt()),
    "memory": lambda: throw(MemoryError("lost on one rank")),
    "limit of memory": fill_memory,
    "value": lambda: throw(ValueError("lost on one rank")),
    "solve": lambda: throw(ds.SolveError("lost on one rank")),
    "sleep": lambda: time.sleep(1000.0),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "SIGKILL": lambda: send(signal.SIGKILL),
    "SIGTERM": lambda: send(signal.SIGTERM),
    "SIGINT": lambda: send(signal.SIGINT),
}


@dataclass(frozen=True)
class Config:
    style: str = "petsc"
    place: str = "nowhere"
    fault: str = "none"
    calls: int = 40  # so many pass before
    file_size: int = -1  # bytes that a file may have from then on
    pause: float = 0.0
    numbers: int = 1000  # length of a dataset


class Trouble:
    """Lets the last rank fail in one place, after so many calls."""

    def __init__(self, place: str, fault: str, calls: int) -> None:
        self.place, self.fault, self.left = place, fault, calls

    def at(self, place: str) -> None:
        if place != self.place or RANK != RANKS - 1:
            return
        self.left -= 1
        if self.left == 0:
            FAULTS[self.fault]()


def reduced(style: str, trouble: Trouble) -> ds.Reduced:
    """Fit decay and growth of 6 unknowns; distributed ("petsc"), or a copy on each rank."""

    def noisy(place: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            trouble.at(place)
            return function(*arguments)

        return call

    stepping = ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
    names = {"decay": ds.Parameter(1.0), "growth": ds.Parameter(0.1)}
    if style == "numpy":
        problem = ds.ODE(
            noisy("rhs", lambda t, u, p: -p[0] * u + p[1]),
            6,
            list(names),
            jacobian=noisy("jacobian", lambda t, u, p: -p[0] * np.eye(6)),
            jacobian_p=noisy("jacobian_p", lambda t, u, p: np.column_stack([-u, np.ones(6)])),
        )
        cost = ds.Terminal(
            noisy("cost", lambda t, u, p: float(((u - 0.6) ** 2).sum())),
            noisy("cost gradient", lambda t, u, p: 2.0 * (u - 0.6)),
        )
        return ds.Reduced(problem, cost, stepping, ds.Parameters(names, np.ones(6)))
    state = PETSc.Vec().createMPI(6, comm=PETSc.COMM_WORLD)
    state.set(1.0)

    def rhs(t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        u.norm()  # the other ranks wait here
        u.copy(out)
        out.scale(-p[0])
        out.shift(p[1])

    def apply(t: float, u: PETSc.Vec, p: Any, du: PETSc.Vec, out: PETSc.Vec) -> None:
        du.norm()
        du.copy(out)
        out.scale(-p[0])

    def by_p(t: float, u: PETSc.Vec, p: Any, out: PETSc.Mat) -> None:
        u.norm()
        columns = np.column_stack([-u.getArray(readonly=True), np.ones(u.getLocalSize())])
        out.getDenseArray()[...] = columns
        out.assemble()

    def value(t: float, u: PETSc.Vec, p: Any) -> float:
        other = u.copy()
        other.shift(-0.6)
        return float(other.norm() ** 2)

    def slope(t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        u.copy(out)
        out.shift(-0.6)
        out.scale(2.0)
        out.norm()

    problem = ds.ODE(
        noisy("rhs", rhs),
        state=state,
        parameters=list(names),
        jacobian=Products(noisy("jacobian", apply), noisy("jacobian", apply)),
        jacobian_p=noisy("jacobian_p", by_p),
    )
    cost = ds.Terminal(noisy("cost", value), noisy("cost gradient", slope), "independent")
    return ds.Reduced(problem, cost, stepping, ds.Parameters(names, state))


def work(style: str, trouble: Trouble, pause: float = 0.0) -> Any:
    """Minimise, with trouble on the way."""

    def progress(_iterate: Any, _x: PETSc.Vec) -> None:
        trouble.at("progress")
        time.sleep(pause)

    optimum = ds.minimize(reduced(style, trouble), method="lmvm", progress=progress)
    for _ in range(50):
        trouble.at("outside")
    everything = PETSc.Vec().createMPI(6, comm=PETSc.COMM_WORLD)
    everything.sum()  # the other ranks wait here
    return optimum


def study(config: Config, results: Results) -> bool:
    """Minimise and write."""
    results.say("begin")
    optimum = work(config.style, Trouble(config.place, config.fault, config.calls), config.pause)
    results.record("value", optimum.value)
    if config.file_size >= 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (config.file_size, config.file_size))
    vec = PETSc.Vec().createMPI(config.numbers, comm=PETSc.COMM_WORLD)
    for number in range(5):
        results.write(f"field{number}", vec)
        results.write(f"array{number}", np.arange(float(config.numbers)))
        results.say(f"written {number}")
        time.sleep(config.pause)
    return bool(optimum.converged)


if __name__ == "__main__":
    if sys.argv[1] == "plain":
        style, place, fault = sys.argv[2:]
        calls = 2 if place in ("progress", "cost", "cost gradient", "outside") else 40
        print(work(style, Trouble(place, fault, calls)).converged)
    else:
        sys.exit(drive(__doc__, Config, study))
