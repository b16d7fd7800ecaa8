"""diffrax by Dopri8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diffrax

from lotka_volterra.diffrax_dopri5 import tasks


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks by Dopri8."""
    return tasks(diffrax.Dopri8(), setting)
