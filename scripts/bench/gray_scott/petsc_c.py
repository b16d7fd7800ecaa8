"""A C program on PETSc TSAdjoint: model.c."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
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
        weakref.finalize(self, LIBRARY.destroy, made)

    def run(self, task: str) -> Any:
        """Return what a task gives [points, points, 2]."""
        out = np.empty_like(self._start)
        check(getattr(LIBRARY, task)(self._made, pointer(out)))
        return out


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks."""
    program = Program(*(setting[name] for name in ("points", "method", "dt", "steps")))
    return {name: lambda name=name: program.run(name) for name in ("forward", "gradient")}
