"""One named number that an optimiser may move: start, bounds and scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Parameter:
    """One named number.

    Parameters
    ----------
    value : float
        Starting value.
    free : bool
        Whether the optimiser moves it.
    lower, upper : float
        Bounds, in the parameter's own unit.
    scale : "linear" or "log"
        The optimiser moves the value or its logarithm.

    Examples
    --------
    >>> Parameter(0.5, lower=0.0, upper=2.0)
    Parameter(value=0.5, free=True, lower=0.0, upper=2.0, scale='linear')
    """

    value: float
    free: bool = True
    lower: float = -math.inf
    upper: float = math.inf
    scale: Literal["linear", "log"] = "linear"

    def complaints(self, name: str) -> list[str]:
        """Return all that is wrong, one line each."""
        found: list[str] = []
        if not isinstance(self.value, Real) or not math.isfinite(self.value):
            return [f'parameter "{name}": value = {self.value!r}; expected: a finite number']
        for word, bound in (("lower", self.lower), ("upper", self.upper)):
            if not isinstance(bound, Real):
                return [f'parameter "{name}": {word} = {bound!r}; expected: a number']
        if not isinstance(self.free, (bool, np.bool_)):
            expected = "expected: True or False; try: lower=..., upper=... for bounds"
            return [f'parameter "{name}": free = {self.free!r}; {expected}']
        if math.isnan(self.lower) or math.isnan(self.upper) or self.lower > self.upper:
            found.append(
                f'parameter "{name}": bounds [{self.lower:g}, {self.upper:g}]; '
                "expected: lower <= upper"
            )
        elif not self.lower <= self.value <= self.upper:
            found.append(
                f'parameter "{name}": value = {self.value:g} outside its bounds '
                f"[{self.lower:g}, {self.upper:g}]; try: a start between them"
            )
        if self.scale not in ("linear", "log"):
            found.append(f'parameter "{name}": scale = {self.scale!r}; expected: "linear" or "log"')
        if self.scale == "log" and self.value <= 0:
            found.append(
                f'parameter "{name}": value = {self.value:g} on a log scale; expected: value > 0; '
                'try: a positive start, or scale="linear"'
            )
        return found

    def scaled(self, value: float) -> float:
        """Return a value as the optimiser sees it; -inf where a log scale has none."""
        if self.scale == "linear":
            return value
        return math.log(value) if value > 0 else -math.inf
