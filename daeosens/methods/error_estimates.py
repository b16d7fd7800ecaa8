"""How far error estimates are relied on: margins of the next step, and parts of the tolerances."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

FEW_REJECTED: Mapping[str, Any] = MappingProxyType({"ts_adapt_safety": 0.8})
"""Explicit steps are 0.8 times as long as their estimates allow, not PETSc's 0.9.

Estimates grow with a power of the step, the order, and change from one step to the next by more
than 0.9 leaves: a sixth of the steps were rejected.  With 0.8 half as many are, so that there are
as many evaluations, and errors are two thirds.  Steps that solve equations reject few with either.
"""

ERROR_BESIDE_ESTIMATE: Mapping[str, float] = MappingProxyType(
    {
        "rk6vr": 0.184,
        "rk8vr": 0.357,
        "esdirk3": 0.330,
        "esdirk4": 0.696,
        "esdirk5": 0.982,
        "esdirk6": 0.142,
        "kencarp3": 4.17,
    }
)
"""The principal error coefficients of a method, of order p + 1, beside those of its estimate, of
order p: norms over all rooted trees.

Runs with the same tolerances have errors in about these proportions, since a step is as long as
makes the estimate the tolerance.  Methods that are not here keep their tolerances: explicit ones of
lower order, which are those of other packages, would take up to twice the evaluations that users
know, and errors of IMEX methods are without no larger than those of ``rk6vr``.
"""

WANTED: Mapping[bool, float] = MappingProxyType({True: 0.184, False: 0.1})
"""What that should be, of explicit methods and others: what it is of ``rk6vr``, the method to begin
with, and with its steps, shorter by 0.8 beside 0.9, to the power of its order."""

LEAST_SHARE = 0.1
"""How far tolerances are made smaller: of third order a tenth of the error is twice the steps."""


def share_of_tolerance(name: str, explicit: bool) -> float:
    """Return the part of the tolerances that estimates of a method are compared with."""
    wanted = WANTED[explicit]
    return min(1.0, max(LEAST_SHARE, wanted / ERROR_BESIDE_ESTIMATE.get(name, wanted)))
