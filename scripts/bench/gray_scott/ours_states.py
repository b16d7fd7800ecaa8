"""daeosens, which computes the stages again in the sweep."""

from __future__ import annotations

from typing import Any

from gray_scott.ours import tasks


def prepare(setting: dict[str, Any]) -> dict[str, Any]:
    """Return all tasks, with the states kept."""
    return tasks(setting, {"checkpoint": "states"})
