"""diffrax's Kvaerno5 as an expert sets it: ``optimistix.Chord`` at the controller's tolerances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stiff.diffrax_kvaerno5 import tasks


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return all tasks."""
    return tasks(setting, expert=True)
