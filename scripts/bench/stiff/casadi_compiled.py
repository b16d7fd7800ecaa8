"""CasADi and CVODES as an expert sets them: right-hand sides compiled by gcc, and no correction.

The correction of second order (of forward sensitivities) has to be asked not to be there.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

from stiff.casadi_cvodes import tasks

# CasADi leaves what it compiles in the folder of the process, which is this contestant's own
os.chdir(tempfile.mkdtemp())

COMPILED = {
    "jit": True,
    "compiler": "shell",
    "jit_options": {"compiler": "gcc", "flags": ["-O3", "-march=native"], "verbose": False},
    "second_order_correction": False,
}


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return all tasks by CVODES."""
    return tasks(setting, "cvodes", COMPILED)
