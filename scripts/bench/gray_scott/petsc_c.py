"""A C program on PETSc TSAdjoint: model.c."""

from __future__ import annotations

import ctypes
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from c_library import build, check, pointer
from gray_scott import spots

LIBRARY = build(Path(__file__).with_name("model.c"))
NUMBER = ctypes.c_double
THETA = {"rk4": 0.0, "cn": 0.5, "beuler": 1.0}


class Program:
    """The program: made once, run many times."""

    def __init__(self, points: int, method: str, dt: float, steps: int) -> None:
        self._start = spots(points)
        made = ctypes.c_void_p()
        theta = NUMBER(THETA[method])
        start = pointer(self._start)
        check(LIBRARY.create(points, start, theta, NUMBER(dt), steps, ctypes.byref(made)))
        self._made = made
        self._kept = False
        weakref.finalize(self, LIBRARY.destroy, made)

    def run(self, task: str) -> Any:
        """Return what one of the program's functions gives [points, points, 2]."""
        out = np.empty_like(self._start)
        check(getattr(LIBRARY, task)(self._made, pointer(out)))
        self._kept = task == "forward_sweep"
        return out

    def forget(self) -> None:
        """Sweep back if that was not done: PETSc 3.26 has no room for a second trajectory."""
        if self._kept:
            self.run("adjoint_sweep")

    def gradient(self) -> Any:
        """Return the gradient [points, points, 2], by both sweeps."""
        self.run("forward_sweep")
        return self.run("adjoint_sweep")

    def gradient_in_rates(self) -> Any:
        """Return the gradient in the rates [4], by both sweeps."""
        self.run("forward_sweep")
        out = np.empty(4)
        check(LIBRARY.adjoint_sweep_rates(self._made, pointer(out)))
        self._kept = False
        return out

    def ahead(self) -> None:
        """Do what comes before an adjoint sweep."""
        self.forget()
        self.run("forward_sweep")


def prepare(setting: dict[str, Any]) -> dict[str, Any]:
    """Return all tasks."""
    size = [setting[name] for name in ("points", "method", "dt", "steps")]
    program = Program(*size)

    @cache
    def with_rates() -> Program:
        # a program of its own: TSAdjoint makes room for gradients in parameters at its first sweep
        return Program(*size)

    return {
        "forward": (program.forget, lambda _: program.run("forward")),
        "gradient": (program.forget, lambda _: program.gradient()),
        "gradient, rates too": (program.forget, lambda _: with_rates().gradient_in_rates()),
        "forward sweep": (program.forget, lambda _: program.run("forward_sweep")),
        "adjoint sweep": (program.ahead, lambda _: program.run("adjoint_sweep")),
    }
