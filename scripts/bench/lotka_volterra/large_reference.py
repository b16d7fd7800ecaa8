"""Steps by Dormand and Prince's 8(5,3) at a tolerance of 1e-13, and their exact derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lotka_volterra import numpy_by_hand


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return all tasks."""
    return numpy_by_hand.prepare(setting | {"tolerance": 1e-13})
