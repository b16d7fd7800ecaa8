"""What is made of the time alone, as formulas: where they change sides, bend, and may have peaks.

Between the wraps of a remainder, the extrema of a sine and the knots of a table they are monotone:
evaluated there they say when something changes that the ends of steps do not see.
"""

# what users' callbacks do with their time is known at run time only
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, cast

import numpy as np
from scipy.special import erf, erfc, expit

from daeosens.petsc.vectors import Array

MOST_CHANGES = 100_000
"""Changes of one comparison, at most, that are looked for."""

FLAT = 4.0
"""Powers, at most, that are no narrow peaks."""

PIECES = 256
"""Pieces of the span in which what is compared is monotone, unless it is known where it turns."""

BESIDE = 1e-9
"""Part of a piece that its values are taken inside of it."""


@dataclass(frozen=True, eq=False)
class Formula:
    """What is made of the time alone: a function of operands, or the time itself without one."""

    function: Callable[..., Any] | None = None
    operands: tuple[Formula | Array, ...] = ()

    def __post_init__(self) -> None:
        """Find what tells formulas apart: operands have theirs by now, however long the chain."""
        _ = self.key, self.bends

    @cached_property
    def parts(self) -> tuple[Formula, ...]:
        """All that it is made of, once each, operands first, and itself at the end.

        An iteration uses its last number several times: the ways through it are far too many.
        """
        ordered: list[Formula] = []
        entered: set[int] = set()
        waiting: list[tuple[Formula, bool]] = [(self, False)]
        while waiting:
            formula, complete = waiting.pop()
            if complete:
                ordered.append(formula)
            elif id(formula) not in entered:
                entered.add(id(formula))
                waiting.append((formula, True))
                waiting += [(x, False) for x in formula.operands[::-1] if isinstance(x, Formula)]
        return tuple(ordered)

    def at(self, t: Array) -> Array:
        """Return the values [B, K] at times [K]; B is 1 unless arrays are among the operands."""
        values: dict[int, Array] = {}
        for part in self.parts:
            operands = (values[id(x)] if isinstance(x, Formula) else x for x in part.operands)
            values[id(part)] = t[None, :] if part.function is None else part.function(*operands)
        return values[id(self)]

    def entries(self) -> list[Formula]:
        """Return the formulas of all entries."""
        count = len(self.at(np.zeros(1)))
        return [self.entry(number) for number in range(count)] if count > 1 else [self]

    def entry(self, number: int) -> Formula:
        """Return the formula of one entry."""
        entries: dict[int, Formula] = {}

        def of(x: Formula | Array) -> Formula | Array:
            if isinstance(x, Formula):
                return entries[id(x)]
            return x if len(x) == 1 else x[number : number + 1]

        for part in self.parts:
            entries[id(part)] = Formula(part.function, tuple(of(x) for x in part.operands))
        return entries[id(self)]

    @cached_property
    def key(self) -> bytes:
        """What two formulas have in common that are the same."""
        function = self.function
        name = function.key if isinstance(function, Lookup) else getattr(function, "__name__", None)
        operands = [x.key if isinstance(x, Formula) else x.tobytes() for x in self.operands]
        return blake2b(repr((name, operands)).encode(), digest_size=16).digest()

    @cached_property
    def bends(self) -> bool:
        """Whether it may have narrow peaks: sums, products and low powers of others have none."""
        if any(isinstance(x, Formula) and x.bends for x in self.operands):
            return True
        if self.function is np.power:
            exponent = self.operands[1]
            return isinstance(exponent, Formula) or bool(np.any((exponent < 0) | (exponent > FLAT)))
        if self.function in (np.divide, np.reciprocal):
            return isinstance(self.operands[-1], Formula)
        return isinstance(self.function, Lookup) or self.function in _BENT

    def turns(self) -> Iterator[Switch]:
        """Yield where it may jump, turn or be steepest, the innermost first."""
        for part in self.parts:
            if isinstance(part.function, Lookup):
                yield from part.function.turns(cast("Formula", part.operands[0]))
            rule = _TURNS.get(cast("Any", part.function))
            if rule is not None:
                yield rule(*part.operands)


class Lookup:
    """A table or an interpolant, which turns at its knots [K] alone, and perhaps comes again.

    Two of them with the same ``key`` are the same.  Straight lines between knots are ``bent``
    there.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        knots: Array,
        key: object,
        period: float | None = None,
        *,
        bent: bool = True,
    ) -> None:
        self.function, self.key, self.period, self.bent = function, key, period, bent
        self.knots = np.unique(knots if period is None else knots % period)

    def __call__(self, x: Any) -> Any:
        """Return its values."""
        return self.function(x)

    def turns(self, x: Formula) -> Iterator[Switch]:
        """Yield where it turns as a function of a formula."""
        if self.period is not None:
            x = Formula(np.remainder, (x, np.full((1, 1), float(self.period))))
            yield from x.turns()
        yield Switch(x, self.knots)

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same key."""
        return isinstance(other, Lookup) and self.key == other.key

    def __hash__(self) -> int:
        """Return a number that tells keys apart."""
        return hash(self.key)


@dataclass(frozen=True, eq=False)
class Switch:
    """What changes where a formula passes one of its levels, or any whole number without them."""

    formula: Formula
    levels: Array | None = field(default_factory=lambda: np.zeros(1))

    @property
    def key(self) -> tuple[Any, ...]:
        """What two of them have in common that are the same."""
        return (self.formula.key, None if self.levels is None else self.levels.tobytes())

    def below(self, value: Array) -> Array:
        """Return the number of levels that values are above of."""
        if self.levels is None:
            return np.floor(value)
        return np.searchsorted(self.levels, value, side="right").astype(float)

    def level(self, number: Array) -> Array:
        """Return the levels of these numbers, counted as by ``below``."""
        return number if self.levels is None else self.levels[number.astype(int) - 1]


def _ratio(x: Any, y: Any) -> Switch:
    return Switch(Formula(np.divide, (x, y)), None)


def _half_waves(shift: float) -> Callable[..., Switch]:
    scaled, moved = np.full((1, 1), 1.0 / math.pi), np.full((1, 1), shift)

    def rule(x: Any) -> Switch:
        return Switch(Formula(np.add, (Formula(np.multiply, (x, scaled)), moved)), None)

    return rule


_TURNS: dict[Callable[..., Any], Callable[..., Switch]] = {
    np.remainder: _ratio,
    np.fmod: _ratio,
    np.floor_divide: _ratio,
    np.sin: _half_waves(0.5),
    np.cos: _half_waves(0.0),
    np.tan: _half_waves(0.5),
    np.floor: lambda x: Switch(x, None),
    np.ceil: lambda x: Switch(x, None),
    np.trunc: lambda x: Switch(x, None),
    np.rint: lambda x: Switch(Formula(np.add, (x, np.full((1, 1), 0.5))), None),
    np.absolute: Switch,
    np.square: Switch,
    np.power: lambda x, y: Switch(x if isinstance(x, Formula) else y),
    np.maximum: lambda x, y: Switch(Formula(np.subtract, (x, y))),
    np.minimum: lambda x, y: Switch(Formula(np.subtract, (x, y))),
    np.sign: Switch,
    np.heaviside: lambda x, _: Switch(x),
    # monotone, and steepest there, or where they begin to grow
    np.exp: Switch,
    np.exp2: Switch,
    np.expm1: Switch,
    np.tanh: Switch,
    np.arctan: Switch,
    expit: Switch,
    erf: Switch,
    erfc: Switch,
    np.cosh: Switch,
}
COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal)
_DECIDE = (
    np.floor,
    np.ceil,
    np.trunc,
    np.rint,
    np.floor_divide,
    np.absolute,
    np.sign,
    np.heaviside,
)
_CHOOSE = (np.maximum, np.minimum, np.fmax, np.fmin)
_LINEAR = (np.add, np.subtract, np.multiply, np.divide, np.negative, np.positive)
_BENT = (np.exp, np.exp2, np.expm1, np.tanh, np.arctan, np.cosh, expit, erf, erfc)


def decided(ufunc: np.ufunc, operands: tuple[Any, ...]) -> Switch | None:
    """Return what decides in a function of formulas and numbers, a comparison say; None: nothing.

    Its operands are as those of a ``Formula``.
    """
    if ufunc in COMPARISONS or ufunc in _CHOOSE:
        return Switch(Formula(np.subtract, operands))
    return _TURNS[ufunc](*operands) if ufunc in _DECIDE else None


def outlines(formulas: Sequence[Formula]) -> list[Formula]:
    """Return the formulas that may have narrow peaks, without sums and products of other ones.

    But for those that are part of none: a sum of two steps is a peak.
    """
    known = {formula.key: formula for formula in formulas if formula.bends}
    parts = {x.key for f in known.values() for x in f.operands if isinstance(x, Formula)}
    return [f for key, f in known.items() if f.function not in _LINEAR or key not in parts]


def bends(formulas: Sequence[Formula]) -> list[Switch]:
    """Return where tables of straight lines, and what is cut off or taken without sign, bend."""
    places: dict[tuple[Any, ...], Switch] = {}
    for formula in formulas:
        function = formula.function
        if isinstance(function, Lookup) and function.bent:
            switches = function.turns(cast("Formula", formula.operands[0]))
        elif function in (np.maximum, np.minimum, np.absolute):
            switches = [_TURNS[function](*formula.operands)]
        else:
            continue
        places |= {switch.key: switch for switch in switches}
    return list(places.values())


def changes(switches: Sequence[Switch], start: float, end: float) -> Array:
    """Return the times [S] in a span at which one of the switches changes.

    Nothing of those that change more often than anybody would want to know.
    """
    grid = np.linspace(start, end, PIECES + 1)
    known: dict[tuple[Any, ...], Array] = {}

    def of(switch: Switch) -> Array:
        key = switch.key
        if key not in known:
            turns = [of(turn) for turn in switch.formula.turns()]
            known[key] = _passages(switch, np.unique(np.concatenate([grid, *turns])))
        return known[key]

    with np.errstate(all="ignore"):
        times = [
            of(Switch(entry, switch.levels))
            for switch in switches
            for entry in switch.formula.entries()
        ]
    inside = np.unique(np.concatenate([np.empty(0), *times]))
    return inside[(inside > start) & (inside < end)]


def _passages(switch: Switch, cuts: Array) -> Array:
    """Return the times at which a formula passes levels; between cuts [C] it is monotone."""
    room = BESIDE * np.diff(cuts)
    low, high = cuts[:-1] + room, cuts[1:] - room

    def value(t: Array) -> Array:
        return np.broadcast_to(switch.formula.at(t), (1, len(t)))[0]

    first, last = value(low), value(high)
    begin, end = switch.below(first), switch.below(last)
    at_cuts = cuts[1:-1][end[:-1] != begin[1:]]
    passed = np.abs(end - begin)
    if not passed.sum() <= MOST_CHANGES:  # NaN neither
        return np.empty(0)
    counts = passed.astype(int)
    of = np.repeat(np.arange(len(counts)), counts)
    rank = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    number = np.minimum(begin, end)[of] + 1.0 + rank
    level = switch.level(number)
    x, y, rising = low[of], high[of], last[of] > first[of]
    # most of what is compared grows evenly
    guess = x + (level - first[of]) / (last[of] - first[of]) * (y - x)
    straight = np.abs(value(guess) - level) <= 1e-12 * (np.abs(level) + np.abs(last - first)[of])
    if not straight.all():
        for _ in range(60):
            middle = 0.5 * (x + y)
            behind = (value(middle) > level) == rising
            x, y = np.where(behind, x, middle), np.where(behind, middle, y)
        guess = np.where(straight, guess, 0.5 * (x + y))
    return np.concatenate([at_cuts, guess])
