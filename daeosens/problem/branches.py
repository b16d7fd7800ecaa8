"""What decides how a callback goes on: comparisons, abs and maximum, places in tables, rounding."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from daeosens.petsc.vectors import Array
from daeosens.problem.clock import Clock, Noted
from daeosens.problem.derivative_arrays import (
    DerivativeArray,
    PointArray,
    branches,
    call_at,
    denominators,
)
from daeosens.problem.time_formulas import Formula

Decided: TypeAlias = "tuple[Array, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]"
"""Values [K, B] at K points, which [B] are whole numbers and which move, as of ``Decisions``."""

Along: TypeAlias = "Callable[[Array, Array, Array], Decided]"
"""``along(t, u, p)``: what decides at times t [K] and states u [K, n]."""


FEW_POINTS, TOGETHER = 16, 512
"""Fewer points are as quick one after the other, and more are evaluated in parts: as derivatives
are (``batched/pointwise``)."""

PLAIN = frozenset({"builtins", "cmath", "daeosens", "functools", "math", "numpy", "scipy"})
"""Packages whose functions do not choose by an argument what is done, or say so themselves."""

SAME = 1e-10
"""Part of the largest value by which one from many points may be rounded."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """What decides at a point, in the order met.

    Attributes
    ----------
    values : array [B]
        Differences whose signs decide, or whole numbers that do themselves.
    whole : array [B] of bool
        Which are the latter.
    moves : array [B] of bool, optional
        Which vary with the state or the parameters, and not with time alone; None: all.
    kinds : array [B] of int, optional
        Equal numbers for what is compared at the points of a domain alike.
    """

    values: Array
    whole: npt.NDArray[np.bool_]
    moves: npt.NDArray[np.bool_] | None = None
    kinds: npt.NDArray[np.intp] | None = None

    @classmethod
    def none(cls) -> Decisions:
        """Return those of a function without branches."""
        return cls(np.empty(0), np.empty(0, dtype=bool))


def joined(parts: Sequence[Decisions]) -> Decisions:
    """Return what decides in several functions, one after the other."""
    moves = [np.ones(p.values.size, bool) if p.moves is None else p.moves for p in parts]
    kinds = [np.arange(p.values.size) if p.kinds is None else p.kinds for p in parts]
    firsts = np.cumsum([0, *(part.max(initial=-1) + 1 for part in kinds)])
    return Decisions(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.whole for part in parts]),
        np.concatenate(moves),
        np.concatenate([first + part for first, part in zip(firsts, kinds, strict=False)]),
    )


@dataclass(frozen=True, eq=False)
class DecisionTable(Sequence[Decisions]):
    """The same that decides at each of K points: ``values`` [K, B], the others as of ``Decisions``.

    A sequence of what decides at each of them.
    """

    values: Array
    whole: npt.NDArray[np.bool_]
    moves: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, number: int) -> Decisions: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Decisions]: ...
    def __getitem__(self, number: int | slice) -> Decisions | Sequence[Decisions]:
        if isinstance(number, slice):
            return DecisionTable(self.values[number], self.whole, self.moves)
        return Decisions(self.values[number], self.whole, self.moves)


class Branches:
    """What decides in a callback f(t, u, p), or F(t, u, u', p), at a point.

    Parameters
    ----------
    function : callable
        The callback.
    split : callable
        Makes its last argument of the vector p [m].
    along : callable, optional
        See ``Along``: what knows all that decides in f without calling it.

    Examples
    --------
    >>> import numpy as np
    >>> decide = Branches(lambda t, u, p: np.abs(u[0] - 1.0) + np.floor(u[0] / 2.0))
    >>> decide(0.0, np.array([3.0]), np.empty(0)).values
    array([2., 1.])
    """

    def __init__(
        self,
        function: Callable[..., Any],
        split: Callable[[Any], Any] = lambda p: p,
        along: Along | None = None,
    ) -> None:
        self.function, self._split, self._along = function, split, along
        self._home = str(getattr(function, "__module__", "") or "").partition(".")[0]
        self._at_points = True
        self._divides: bool | None = None
        self._follows_time = True
        self._uses = 0
        self._constant: Noted | None = None

    def __call__(
        self, t: float, u: Array, p: Array, rate: Array | None = None, *, in_time: bool = False
    ) -> Decisions:
        """Return what decides at (t, u, p), with u' = ``rate`` for F; by t alone if ``in_time``."""
        if self._along is not None and rate is None and not in_time:
            values, whole, moves = self._along(np.array([t]), u[None, :], p)
            return Decisions(values[0], whole, moves)
        return self._noted(t, u, p, rate, in_time)

    def _noted(self, t: float, u: Array, p: Array, rate: Array | None, in_time: bool) -> Decisions:
        """Return what one call of the function decides."""
        states = [
            DerivativeArray(vector.copy(), np.ones((len(vector), 1)))
            for vector in (u, rate)
            if vector is not None
        ]
        parameters = DerivativeArray(p.copy(), np.ones((len(p), 1)))
        time: Any = DerivativeArray(np.array(t), np.ones(1)) if in_time else t
        arguments = (time, *states, self._split(parameters))
        try:
            return Decisions(*branches(self.function, arguments, self._home))
        except Exception:  # noqa: BLE001 (what it cannot take has told nothing)
            return Decisions.none()

    @cached_property
    def forks(self) -> bool:
        """Whether some way through the callback may be taken at some times only: ``if 1 < t < 2``.

        By its code, and that of the functions it names; what is no function of Python may.
        """
        return self._along is None and _forks(self.function)

    def along(self, t: Array, u: Array, p: Array, *, in_time: bool = False) -> Sequence[Decisions]:
        """Return what decides at times t [K] and states u [K, n].

        As a ``DecisionTable`` where it is found for all of them at once.
        """
        if self._along is not None and not in_time:
            return DecisionTable(*self._along(t, u, p))
        if len(t) >= FEW_POINTS and self._at_points:
            decisions = self._of_points(t, u, p, in_time)
            self._at_points = decisions is not None
            if decisions is not None:
                return decisions
        return [self(*point, p, in_time=in_time) for point in zip(t.tolist(), u, strict=True)]

    @property
    def follows_time(self) -> bool:
        """Whether f may make anything of the time alone that jumps or bends, as far as is known."""
        return self._follows_time

    def of_time(
        self, t: float, u: Array, p: Array, rate: Array | None = None, *, fixed: bool = False
    ) -> Noted:
        """Return what f makes of the time alone at (t, u, p), and compares.

        If ``fixed``, without what parameters have a part in.
        """
        if self._constant is not None:
            return self._constant
        noted = self._of_time(t, u, p, rate, fixed)
        if self._along is not None and not fixed:
            # what was traced is the same at any time
            constant = self._of_time(t, u, p, rate, fixed=True)
            if _sizes(constant) == _sizes(noted):
                self._constant = constant
        return noted

    def _of_time(self, t: float, u: Array, p: Array, rate: Array | None, fixed: bool) -> Noted:
        noted = (Noted(), Noted())
        for moves, of_call in enumerate(noted):
            state = _elsewhere(u) if moves else u
            parameters = _elsewhere(p) if moves and fixed else p
            states = [vector.copy() for vector in (state, rate) if vector is not None]
            for vector in states:
                vector.flags.writeable = False  # as states of a run are
            arguments = (*states, self._split(parameters.copy()))
            try:
                call_at(self.function, Clock(t, Formula(), of_call), arguments)
            except Exception:  # noqa: BLE001 (the equations tell it themselves)
                return Noted()
        here, there = noted
        seen = here.switches or here.knots or any(formula.bends for formula in here.formulas)
        if not (self.forks or seen):
            self._follows_time = False
        # what is made with the state is another one elsewhere
        switches, formulas = (
            {item.key for item in part} for part in (there.switches, there.formulas)
        )
        knots = {item.passed.key for item in there.knots}
        return Noted(
            [switch for switch in here.switches if switch.key in switches],
            [formula for formula in here.formulas if formula.key in formulas],
            [item for item in here.knots if item.passed.key in knots],
        )

    def divides(self, t: float, u: Array, p: Array) -> bool:
        """Whether f divides by what varies; found where it is asked for first."""
        if self._divides is None:
            by = self.denominators(np.array([t]), u[None], p)
            self._divides = by is not None and by.size > 0
        return self._divides

    def denominators(self, t: Array, u: Array, p: Array) -> Array | None:
        """Return what f divides by [K, D] at times t [K] and states u [K, n].

        Of what varies, with time as well; None where points are evaluated one after the other.
        """
        parts: list[Array] = []
        for first in range(0, len(t), TOGETHER):
            part = slice(first, first + TOGETHER)
            arguments, count = self._arguments(t[part], u[part], p, True), len(t[part])
            try:
                parts.append(denominators(self.function, arguments, self._home, count))
            except Exception:  # noqa: BLE001 (the equations tell it themselves)
                return None
        alike = len({part.shape[1] for part in parts}) == 1
        return np.concatenate(parts) if alike else None

    def _arguments(self, t: Array, u: Array, p: Array, in_time: bool) -> tuple[Any, ...]:
        """Return the arguments of f at all points at once; time varies with them or does not."""
        (count, n), m = u.shape, p.size
        time: Any = PointArray(t.copy())
        if in_time:
            time = DerivativeArray(time, PointArray(np.ones((1, count))))
        # slopes have room for numbers of all points, should the callback put some there
        of_u, of_p = PointArray(np.ones((n, 1, count))), PointArray(np.ones((m, 1, 1)))
        states = DerivativeArray(PointArray(u.T.copy()), of_u)
        parameters = DerivativeArray(PointArray(p[:, None].copy()), of_p)
        return time, states, self._split(parameters)

    def _of_points(self, t: Array, u: Array, p: Array, in_time: bool) -> DecisionTable | None:
        """Return what decides, from few evaluations; None where points go ways that differ."""
        parts: list[tuple[Array, npt.NDArray[np.bool_]]] = []
        for first in range(0, len(t), TOGETHER):
            part = slice(first, first + TOGETHER)
            arguments, count = self._arguments(t[part], u[part], p, in_time), len(t[part])
            try:
                parts.append(branches(self.function, arguments, self._home, count))
            except Exception:  # noqa: BLE001 (it is asked in another way then)
                return None
        whole = parts[0][1]
        if not all(np.array_equal(other, whole) for _, other in parts):
            return None
        decisions = DecisionTable(np.concatenate([values for values, _ in parts]), whole)
        self._uses += 1
        if self._uses & (self._uses - 1):  # ever more rarely
            return decisions
        # what keeps numbers from call to call would differ from single points
        for k in (0, len(t) // 2, len(t) - 1):
            many, single = decisions[k], self(float(t[k]), u[k], p, in_time=in_time)
            if not np.array_equal(many.whole, single.whole):
                return None
            limit = SAME * np.abs(single.values).max(initial=0.0)
            if not (np.abs(many.values - single.values) <= limit).all():
                return None
        return decisions


def _elsewhere(x: Array) -> Array:
    """Return numbers that are all others, and not far."""
    return x + 1e-3 * (np.abs(x) + (np.abs(x).max(initial=0.0) or 1.0))


def _forks(function: object) -> bool:
    """Return whether a function, or one of the user's that it names, may have an ``if``."""
    waiting, seen = [function], set[CodeType]()
    while waiting:
        known = waiting.pop()
        if not isinstance(known, FunctionType):
            return True
        for code in _codes(known.__code__):
            if code in seen:
                continue
            seen.add(code)
            # Python's own take one of their arguments, and leave the others
            if {"max", "min"} & set(code.co_names) - set(known.__globals__):
                return True
            if any(
                "JUMP" in step.opname and "IF" in step.opname for step in dis.get_instructions(code)
            ):
                return True
            named: list[object] = [known.__globals__.get(name) for name in code.co_names]
            named += inspect.getclosurevars(known).nonlocals.values()
            waiting += [thing for thing in named if _may_fork(thing)]
    return False


def _may_fork(thing: object) -> bool:
    """Return whether what a function names is the user's, and more than a number."""
    if isinstance(thing, ModuleType):
        home = thing.__name__
    elif isinstance(thing, FunctionType):
        home = str(thing.__module__ or "")
    else:
        home = type(thing).__module__ if callable(thing) and not isinstance(thing, type) else ""
    return bool(home) and home.partition(".")[0] not in PLAIN


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of those that it defines."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _sizes(noted: Noted) -> tuple[int, ...]:
    return len(noted.switches), len(noted.formulas), len(noted.knots)
