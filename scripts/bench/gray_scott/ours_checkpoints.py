"""daeosens with some of the states, from which the others are computed again."""

from __future__ import annotations

from typing import Any

from daeosens.timestepping import Checkpoints
from gray_scott.ours import tasks


def prepare(setting: dict[str, Any]) -> dict[str, Any]:
    """Return all tasks, with as many states kept as the setting says."""
    few = setting["states"] <= setting["steps"]
    return tasks(setting, {"checkpoint": Checkpoints(setting["states"]) if few else "auto"})
