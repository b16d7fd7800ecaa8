"""A C program on PETSc TSAdjoint: model.c."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from c_library import build, check, pointer
from lotka_volterra import T, parameters, start

LIBRARY = build(Path(__file__).with_name("model.c"))
NUMBER = ctypes.c_double


class Program:
    """The program for a number of costs: made once, run many times."""

    def __init__(self, n: int, tolerance: float, costs: int) -> None:
        self._arrays = parameters(n), start(n)
        self._shape = costs, len(self._arrays[0])
        p, x0 = (pointer(array) for array in self._arrays)
        made = ctypes.c_void_p()
        limits = NUMBER(T), NUMBER(tolerance)
        check(LIBRARY.create(n, p, x0, *limits, costs, ctypes.byref(made)))
        self._made = made
        weakref.finalize(self, LIBRARY.destroy, made)

    def gradients(self, weights: Any) -> Any:
        """Return the gradients in p [costs, m] of costs with gradients ``weights`` in x(T)."""
        out = np.empty(self._shape)
        check(LIBRARY.gradients(self._made, pointer(weights), pointer(out)))
        return out


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks."""
    n, tolerance = setting["N"], setting["tolerance"]
    rows, row = Program(n, tolerance, n), Program(n, tolerance, 1)
    every, total = np.eye(n), np.ones((1, n))
    return {"full": lambda: rows.gradients(every), "scalar": lambda: row.gradients(total)[0]}
