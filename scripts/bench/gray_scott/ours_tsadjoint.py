"""daeosens with PETSc's own adjoint, whose trajectory keeps the states and stages."""

from __future__ import annotations

from typing import Any

from gray_scott.ours import tasks


def prepare(setting: dict[str, Any]) -> dict[str, Any]:
    """Return all tasks, with the sweep by TSAdjoint."""
    return tasks(setting, {"petsc_trajectory": "memory"}, "tsadjoint")
