"""CasADi and IDAS; Robertson's system with its conservation law as an algebraic equation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stiff.casadi_cvodes import tasks


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return all tasks by IDAS."""
    return tasks(setting, "idas")
