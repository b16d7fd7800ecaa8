"""A time that notes what a callback makes of it and compares it with.

``t % 24 < 0.5`` and ``np.sin(t) > 0.99`` say nothing at the ends of a step that is longer than the
pulse, nor does ``np.exp(-((t - 10) / 0.1) ** 2)``.  But these are made of the time alone, of few
operations: noted at one call, they are evaluated at all times without the callback
(``time_formulas``).
"""

# what users' callbacks do with their time is known at run time only
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from daeosens.petsc.vectors import Array
from daeosens.problem.time_formulas import COMPARISONS, Formula, Lookup, Switch, decided

MOST_ENTRIES = 100
"""Entries, at most, of an array of times whose comparisons are noted."""

MOST_FORMULAS = 2000
"""Operations, at most, that are noted at a call."""


@dataclass(frozen=True)
class Knots:
    """Where a control with so many coefficients passes its knots."""

    passed: Switch
    coefficients: int


@dataclass(frozen=True)
class Noted:
    """What a callback has made of the time alone: what it compares, numbers, and controls."""

    switches: list[Switch] = field(default_factory=list["Switch"])
    formulas: list[Formula] = field(default_factory=list[Formula])
    knots: list[Knots] = field(default_factory=list["Knots"])


class _Noting:
    """What a number and an array made of the time have in common."""

    formula: Formula | None
    noted: Noted

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [_plain(x) for x in inputs]
        options = {name: _plain(x) for name, x in options.items()}
        result = getattr(ufunc, method)(*plain, **options)
        operands = tuple(_operand(x) for x in inputs)
        unknown = any(x is None for x in operands)
        if method != "__call__" or options or ufunc.nout != 1 or unknown:
            return result
        known = cast("tuple[Formula | Array, ...]", operands)
        self._note(ufunc, known)
        if np.asarray(result).dtype.kind != "f":
            return result
        return self._made(result, Formula(ufunc, known))

    def _made(self, result: Any, formula: Formula) -> Any:
        if len(self.noted.formulas) >= MOST_FORMULAS:
            return result
        self.noted.formulas.append(formula)
        if np.ndim(result) == 0:
            return Clock(result, formula, self.noted)
        return _clocks(result, formula, self.noted)

    def looked_up(self, table: Lookup) -> Any:
        """Return what a table has for it."""
        x = _plain(self)
        result = table(x)
        if self.formula is None or np.shape(result) != np.shape(x):
            return result
        return self._made(result, Formula(table, (self.formula,)))

    def _note(self, ufunc: np.ufunc, operands: tuple[Any, ...]) -> None:
        switch = decided(ufunc, operands)
        if switch is not None:
            self.noted.switches.append(switch)

    def __array_function__(
        self, function: Callable[..., Any], _types: Any, arguments: Any, options: Any
    ) -> Any:
        if function is np.clip and len(arguments) == 3 and not options:
            # two choices, of which each is followed as any other
            return np.minimum(np.maximum(arguments[0], arguments[1]), arguments[2])
        places = {np.digitize: (0, 1), np.searchsorted: (1, 0)}.get(function)
        if places is not None and len(arguments) > 1:
            x, edges = (arguments[k] for k in places)
            if isinstance(x, _Noting) and x.formula is not None:
                # the number of the bin is constant between edges, and jumps at each of them
                levels = np.sort(np.asarray(edges, dtype=float))
                self.noted.switches.append(Switch(x.formula, levels))
        if function is np.interp and len(arguments) > 2 and isinstance(arguments[0], _Noting):
            return arguments[0].looked_up(_table(*arguments[1:], **options))
        plain = {name: _plain(x) for name, x in options.items()}
        return function(*(_plain(x) for x in arguments), **plain)


class Clock(_Noting, float):
    """A time, or a number that is made of it alone.

    Examples
    --------
    >>> noted = Noted()
    >>> bool(np.sin(Clock(1.0, Formula(), noted)) > 0.99)
    False
    >>> from daeosens.problem.time_formulas import changes
    >>> changes(noted.switches, 0.0, 5.0).round(4)
    array([1.4293, 1.7123])
    """

    def __new__(cls, value: float, formula: Formula, noted: Noted) -> Clock:
        """Make one of a number."""
        made = float.__new__(cls, value)
        made.formula, made.noted = formula, noted
        return made

    def _whole(self, ufunc: np.ufunc) -> int:
        self._note(ufunc, (self.formula,))
        return int(ufunc(float(self)))

    def __int__(self) -> int:
        return self._whole(np.trunc)

    def __trunc__(self) -> int:
        return self._whole(np.trunc)

    def __floor__(self) -> int:
        return self._whole(np.floor)

    def __ceil__(self) -> int:
        return self._whole(np.ceil)

    def __round__(self, ndigits: Any = None) -> Any:
        return round(float(self), ndigits) if ndigits else self._whole(np.rint)

    def __neg__(self) -> Any:
        return np.negative(self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return np.absolute(self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other


class _Clocks(_Noting, np.ndarray):
    """An array that is made of the time alone."""

    formula = None


def _clocks(value: Any, formula: Formula, noted: Noted) -> Any:
    made = np.asarray(value).view(_Clocks)
    if made.ndim == 1 and made.size <= MOST_ENTRIES:
        made.formula, made.noted = formula, noted
        return made
    return value


def _table(xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Lookup:
    """Return ``np.interp`` in a table of numbers."""
    knots, values = np.asarray(xp, dtype=float), np.asarray(fp, dtype=float)

    def function(x: Any) -> Any:
        return np.interp(x, knots, values, left, right, period)

    key = (knots.tobytes(), values.tobytes(), left, right, period)
    return Lookup(function, knots, key, period)


def _plain(x: Any) -> Any:
    if isinstance(x, Clock):
        return float(x)
    if isinstance(x, _Clocks):
        return x.view(np.ndarray)
    if isinstance(x, (list, tuple)):
        return type(x)(_plain(entry) for entry in x)
    return x


def _operand(x: Any) -> Formula | Array | None:
    """Return what an operand is, numbers as columns [B, 1]; None for what is not followed."""
    if isinstance(x, _Noting):
        return getattr(x, "formula", None)
    values = np.asarray(x)
    few = values.ndim < 2 and values.size <= MOST_ENTRIES and values.dtype.kind in "biuf"
    return values.reshape(-1, 1).astype(float) if few else None


def _forward(ufunc: np.ufunc, *, reflected: bool) -> Callable[..., Any]:
    def operation(self: Any, other: Any) -> Any:
        if isinstance(other, complex):
            return NotImplemented
        result = ufunc(other, self) if reflected else ufunc(self, other)
        # as of numbers, whose ~ is another one than NumPy's
        plain = isinstance(result, np.bool_) and isinstance(other, (int, float))
        return bool(result) if plain else result

    return operation


_OPERATORS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
}
for _name, _ufunc in _OPERATORS.items():
    setattr(Clock, f"__{_name}__", _forward(_ufunc, reflected=False))
    setattr(Clock, f"__r{_name}__", _forward(_ufunc, reflected=True))
for _name, _ufunc in zip(("lt", "le", "gt", "ge"), COMPARISONS, strict=False):
    setattr(Clock, f"__{_name}__", _forward(_ufunc, reflected=False))
