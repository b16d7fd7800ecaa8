"""CasADi and CVODES: forward sensitivities of all parameters in one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np

from lotka_volterra import parameters
from lotka_volterra.casadi_cvodes import final_state

LARGEST = 10


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return the full matrix."""
    n = setting["N"]
    if n > LARGEST:
        raise NotImplementedError(f"{n + n * n} forward sensitivities at once take minutes")
    final, p = final_state(setting)
    values = parameters(n)
    pushed = ca.Function("pushed", [p], [ca.jtimes(final, p, ca.DM.eye(len(values)))])
    return {"full": lambda: np.asarray(pushed(values))}
