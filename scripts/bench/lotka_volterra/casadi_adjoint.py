"""CasADi and CVODES: the adjoint, of all outputs in one run back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np

from lotka_volterra import parameters
from lotka_volterra.casadi_cvodes import final_state


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks."""
    n = setting["N"]
    final, p = final_state(setting)
    values = parameters(n)

    def pulled(count: int) -> Any:
        seeds = ca.MX.sym("seeds", n, count)
        return ca.Function("pulled", [p, seeds], [ca.jtimes(final, p, seeds, True)])

    single, every = pulled(1), pulled(n)
    return {
        "full": lambda: np.asarray(every(values, np.eye(n))).T,
        "scalar": lambda: np.asarray(single(values, np.ones(n))).ravel(),
    }
