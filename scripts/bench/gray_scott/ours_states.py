"""daeosens, which computes the stages again in the sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gray_scott.ours import tasks


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks, with the states kept."""
    return tasks(setting, "states")
