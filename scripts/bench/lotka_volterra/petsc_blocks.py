"""A C program on PETSc's steps with the derivatives by hand, in blocks: blocks.c."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from c_library import build, check, pointer
from lotka_volterra import T, parameters, seeds, start, tasks

LIBRARY = build(Path(__file__).with_name("blocks.c"))
NUMBER = ctypes.c_double


def program(task: str, n: int, tolerance: float) -> Callable[[], Any]:
    """Return a task, whose program is made once and run many times."""
    weights, arrays = seeds(task, n), (parameters(n), start(n))
    p, x0 = (pointer(array) for array in arrays)
    made = ctypes.c_void_p()
    limits = NUMBER(T), NUMBER(tolerance)
    check(LIBRARY.create_blocks(n, p, x0, *limits, len(weights), ctypes.byref(made)))

    def gradients() -> Any:
        out = np.empty((len(weights), len(arrays[0])))
        check(LIBRARY.block_gradients(made, pointer(weights), pointer(out)))
        return out[0] if task == "scalar" else out

    weakref.finalize(gradients, LIBRARY.destroy_blocks, made)
    return gradients


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return all tasks."""
    n, tolerance = setting["N"], setting["tolerance"]
    return {task: program(task, n, tolerance) for task in tasks(n)}
