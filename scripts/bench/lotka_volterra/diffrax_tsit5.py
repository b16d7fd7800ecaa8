"""diffrax by Tsit5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diffrax

from lotka_volterra.diffrax_dopri5 import tasks


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks by Tsit5."""
    return tasks(diffrax.Tsit5(), setting)
