"""CasADi and CVODES: forward sensitivities of all parameters in one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np

from lotka_volterra import start
from lotka_volterra.casadi_cvodes import final_state


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return the full matrix."""
    n = setting["N"]
    final, r = final_state(setting)
    rates = start(n)[1]
    pushed = ca.Function("pushed", [r], [ca.jtimes(final, r, ca.DM.eye(n))])
    return {"full": lambda: np.asarray(pushed(rates))}
