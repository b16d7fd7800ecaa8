"""One named number, or a block of them, that an optimiser may move: start, bounds and scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from daeosens.errors import InputError, SolveError, is_one_of, is_real
from daeosens.petsc.vectors import as_float
from daeosens.tracing.named_parameters import Shapes

MOST_EXPONENT = 700.0
"""exp(700) is near the largest float."""


def exponential(logarithm: float, name: str) -> float:
    """Return the parameter whose logarithm an optimiser moves.

    Raises
    ------
    SolveError
        It is too large.  A run at the largest float would be one for all that lies beyond, with a
        gradient that is not zero: an optimiser is to come back instead.
    """
    if logarithm > MOST_EXPONENT:
        raise SolveError(
            f'"{name}" = exp({logarithm:.6g})',
            expected=f"at most exp({MOST_EXPONENT:g})",
            remedy="bounds for it, or a start from which it does not grow without end",
        )
    return math.exp(logarithm)


@dataclass(frozen=True)
class Parameter:
    """One named number, or a block of them.

    Parameters
    ----------
    value : float or array_like
        Starting value; an array for a vector or matrix of parameters of a traced model.
    free : bool or array_like
        Whether the optimiser moves it; an array says so for each entry of a block.
    lower, upper : float or array_like
        Bounds, in the parameter's own unit; likewise.  None is no bound, as for SciPy.
    scale : "linear" or "log"
        The optimiser moves the value or its logarithm.

    Examples
    --------
    >>> Parameter(0.5, lower=0.0, upper=2.0)
    Parameter(value=0.5, free=True, lower=0.0, upper=2.0, scale='linear')
    """

    value: Any
    free: Any = True
    lower: Any = -math.inf
    upper: Any = math.inf
    scale: Literal["linear", "log"] = "linear"

    def __post_init__(self) -> None:
        """Take None for no bound."""
        for name, none in (("lower", -math.inf), ("upper", math.inf)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, none)

    def entries(self, name: str) -> dict[str, Parameter]:
        """Return a parameter for each number by its name: "A[0,1]" for one of a block "A".

        Raises
        ------
        InputError
            Shapes that do not go together.
        """
        parts = (self.value, self.free, self.lower, self.upper)
        try:
            fields = [np.array(values, dtype=object) for values in parts]
        except ValueError as error:  # nested without end
            raise InputError(
                f'parameter "{name}": {error}', expected="numbers, or arrays"
            ) from error
        if not any(values.ndim for values in fields):
            return {name: self}
        try:
            blocks = np.broadcast_arrays(*fields)
        except (ValueError, RuntimeError) as error:  # one of them is nested deeper than axes go
            shapes = ", ".join(str(values.shape) for values in fields)
            raise InputError(
                f'parameter "{name}": value, free, lower, upper have shapes {shapes}',
                expected="one shape, or numbers",
            ) from error
        # Value, freedom and bounds of each entry by the rules of broadcasting: one bound serves a
        # whole matrix.
        names = Shapes({name: blocks[0].shape}).names
        numbers = zip(*(block.ravel().tolist() for block in blocks), strict=True)
        return {
            label: Parameter(value, free, lower, upper, self.scale)
            for label, (value, free, lower, upper) in zip(names, numbers, strict=True)
        }

    def complaints(self, name: str) -> list[str]:
        """Return all that is wrong, one line each."""
        complaints: list[str] = []
        if not is_real(self.value) or not math.isfinite(as_float(self.value)):
            return [f'parameter "{name}": value = {self.value!r}; expected: a finite number']
        for word, bound in (("lower", self.lower), ("upper", self.upper)):
            if not is_real(bound):
                return [f'parameter "{name}": {word} = {bound!r}; expected: a number']
            if math.isinf(as_float(bound)) and bound not in (-math.inf, math.inf):
                return [
                    f'parameter "{name}": {word} = {bound!r} is larger than any float; try: inf'
                ]
        if not isinstance(self.free, (bool, np.bool_)):
            expected = "expected: True or False; try: lower=..., upper=... for bounds"
            return [f'parameter "{name}": free = {self.free!r}; {expected}']
        if math.isnan(self.lower) or math.isnan(self.upper) or self.lower > self.upper:
            complaints.append(
                f'parameter "{name}": bounds [{self.lower:g}, {self.upper:g}]; '
                "expected: lower <= upper"
            )
        elif not self.lower <= self.value <= self.upper:
            complaints.append(
                f'parameter "{name}": value = {self.value:g} outside its bounds '
                f"[{self.lower:g}, {self.upper:g}]; try: a start between them"
            )
        if not is_one_of(self.scale, "linear", "log"):
            complaints.append(
                f'parameter "{name}": scale = {self.scale!r}; expected: "linear" or "log"'
            )
        elif self.scale == "log" and self.value <= 0:
            complaints.append(
                f'parameter "{name}": value = {self.value:g} on a log scale; expected: value > 0; '
                'try: a positive start, or scale="linear"'
            )
        return complaints

    def scaled(self, value: float) -> float:
        """Return a value as the optimiser sees it; -inf where a log scale has none."""
        if self.scale == "linear":
            return value
        return math.log(value) if value > 0 else -math.inf


def entries_of(name: str, value: Any) -> dict[str, Parameter]:
    """Return a parameter for each number that a name stands for; plain numbers are fixed."""
    if isinstance(value, Parameter):
        return value.entries(name)
    if not isinstance(value, (list, tuple, np.ndarray)):
        return {name: Parameter(value, free=False)}
    block = np.array(value, dtype=object)
    names = Shapes({name: block.shape}).names
    return {
        label: entry if isinstance(entry, Parameter) else Parameter(entry, free=False)
        for label, entry in zip(names, block.ravel().tolist(), strict=True)
    }
