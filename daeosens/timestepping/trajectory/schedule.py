"""Which states of a run are kept, and where steps are taken again from: checkpoints."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from math import comb
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import InputError, is_whole
from daeosens.petsc.vectors import MOST
from daeosens.timestepping.trajectory.scratch import Scratch

DROPPED: Any = None
"""Stands in a list of states where one was that is not kept."""


@dataclass(frozen=True)
class Checkpoints:
    """Keep some states of a run; derivatives take the steps between them again.

    A sweep back from the last state to the first takes a run of N steps again in the least possible
    number of steps, that of binomial checkpoints, by ``repeated_steps``.  Results are bit for bit
    those of a run that keeps all, as long as linear systems are solved directly.

    Parameters
    ----------
    memory : int
        How many states are in memory at most, the first one among them.  Besides: three that a
        sweep works with, the last one among them, and three at each event.
    disk : int
        How many more are in a file, one of each rank, written behind the computation: those that
        are needed last and least often.
    folder : str or Path, optional
        Where that file lies, best on a disk of the machine itself; the system's folder for
        temporary files by default.  It has no name, and is gone with the run.

    Raises
    ------
    InputError
        No state at all.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, adjoint, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> stepping = Stepping((0.0, 2.0), "rk4", dt=0.02)
    >>> run = solve(decay, [1.0], [0.5], stepping, checkpoint=Checkpoints(10))
    >>> float(adjoint(run, Terminal(lambda t, u, p: u[0])).p[0].round(6)), run.stored.steps
    (-0.735759, 123)
    >>> repeated_steps(100, 10)
    123
    """

    memory: int
    disk: int = 0
    folder: str | Path | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that leave no state."""
        for name, least in (("memory", 1), ("disk", 0)):
            number: object = getattr(self, name)
            if not (is_whole(number) and least <= number <= MOST):
                raise InputError(f"{name} = {number!r}", expected=f"a number of states >= {least}")
        if not isinstance(self.folder, (str, Path, type(None))):
            raise InputError(f"folder = {self.folder!r}", expected="a path, or None")

    @property
    def slots(self) -> int:
        """How many states are kept at one time."""
        return self.memory + self.disk


# ---- binomial checkpoints


def _rounds(steps: int, slots: int) -> int:
    """Return how often a step is taken at most in the best schedule, the run itself included."""
    rounds = 1
    while comb(slots + rounds, slots) < steps:
        rounds += 1
    return rounds


def repeated_steps(steps: int, memory: int) -> int:
    """Return how many steps one sweep back takes again, if so many states are in memory.

    Parameters
    ----------
    steps : int
        Number N >= 1 of steps of the run.
    memory : int
        Number s >= 1 of states.

    Source
    ------
    Griewank, Walther, ACM Transactions on Mathematical Software 26(1), 2000, equation (2), less the
    N - 1 steps of the run itself.

    Examples
    --------
    >>> repeated_steps(100, 100), repeated_steps(100, 10), repeated_steps(10**5, 50)
    (0, 123, 275197)
    """
    if not memory and steps == 1:  # the state before it is enough
        return 0
    # with r rounds and s states at most C(s + r, s) steps can be swept, none taken more than r
    # times (equation (2))
    rounds = _rounds(steps, memory)
    return rounds * steps - comb(memory + rounds, rounds - 1) - (steps - 1)


def advance(steps: int, slots: int) -> int:
    """Return after how many of the steps the next state is kept.

    Parameters
    ----------
    steps : int
        Number of steps >= 2 that are to be swept back.
    slots : int
        Number of states >= 1 that may be kept, that before the steps included.

    Source
    ------
    Griewank, Walther (2000), figure 4: the largest number that is optimal.

    Examples
    --------
    >>> advance(10, 1), advance(10, 3), advance(4, 3)
    (9, 4, 1)
    """
    if slots == 1:
        return steps - 1
    rounds = _rounds(steps, slots)
    behind = steps - comb(slots + rounds - 2, slots - 1)
    return max(1, min(comb(slots + rounds - 1, slots), behind))


class Schedule(Protocol):
    """Where the steps between two states are split, until a part is in memory as a whole."""

    def split(self, first: int, last: int, depth: int) -> int:
        """Return the number of the state that is kept between two; ``last`` if all are.

        ``depth`` states are kept already, besides that before the steps.
        """
        ...


@dataclass(frozen=True)
class Whole:
    """Nothing is split: all states between two kept ones are in memory at one time."""

    def split(self, first: int, last: int, depth: int) -> int:
        """Return ``last``."""
        return last


@dataclass(frozen=True, eq=False)
class Binomial:
    """Binomial checkpoints, from states that the run has left at its end where it has.

    Parameters
    ----------
    slots : int
        Number of states, that before the steps included.
    memory : int
        How many of them are in memory: more are not there as a whole at one time.
    marks : sequence of int
        Numbers of the states that the run has left, increasing.
    end : int
        Number of the last state of the run.
    """

    slots: int
    memory: int
    marks: tuple[int, ...] = ()
    end: int = -1

    def split(self, first: int, last: int, depth: int) -> int:
        """Return the number of the state that is kept between two; ``last`` if all are."""
        steps, slots = last - first, self.slots - depth
        # all states between fit into memory: the sweep goes over them as they are
        if steps <= min(max(slots, 0), self.memory) + 1:
            return last
        best = first + advance(steps, slots)
        if last != self.end or not self.marks:
            return best
        # the marks are there: nothing is taken again to come to them, nor to those behind them
        place = bisect_left(self.marks, best)
        near = [mark for mark in self.marks[max(place - NEAR, 0) : place + NEAR] if mark > first]
        costs = {
            mark: _swept(mark - first, slots) + repeated_steps(last - mark, slots - 1)
            for mark in near
            if mark < last and (slots > 1 or mark == last - 1)
        }
        costs.setdefault(best, _swept(steps, slots))
        return min(costs, key=lambda number: (costs[number], number != best))


NEAR = 20
"""So many of the states that a run has left are compared with the best place, on either side."""


def _swept(steps: int, slots: int) -> int:
    """Return how many steps a sweep back takes again, with those that lead to the last one."""
    return repeated_steps(steps, slots) + steps - 1


# ---- while a run goes on


@dataclass(eq=False)
class Stay:
    """Which states stay while a run goes on.

    Those with given numbers, where it is known how many steps there will be.  Otherwise each k-th
    of them; k doubles when there are too many.  What stays is as good as the best choice up to k
    steps: ``Binomial`` keeps those that it needs.

    Parameters
    ----------
    most : int
        How many may stay at one time.
    numbers : array [K], optional
        Numbers of those that stay, increasing.
    scratch : Scratch, optional
        A file for those for which there is no room in memory.
    memory : int
        How many stay in memory beside such a file: the last ones.
    """

    most: int
    numbers: npt.NDArray[np.int64] | None = None
    scratch: Scratch | None = None
    memory: int = 0
    stride: int = 1
    _known: frozenset[int] = frozenset()
    _in_memory: list[tuple[list[Any], int]] = field(default_factory=list[tuple[list[Any], int]])
    _lists: list[tuple[list[Any], int, set[int]]] = field(
        default_factory=list[tuple[list[Any], int, set[int]]]
    )

    def __post_init__(self) -> None:
        """Make numbers quick to find."""
        if self.numbers is not None:
            self._known = frozenset(self.numbers.tolist())

    def stays(self, number: int) -> bool:
        """Return whether a state stays."""
        return number in self._known if self.numbers is not None else not number % self.stride

    def watch(self, states: list[Any], offset: int, fixed: set[int]) -> None:
        """Thin a list as well when there are too many; ``fixed`` places in it stay always."""
        self._lists.append((states, offset, fixed))

    def forget(self, states: object) -> None:
        """Thin a list no longer."""
        self._lists = [watched for watched in self._lists if watched[0] is not states]

    def note(self, states: list[Any], offset: int) -> None:
        """Drop what need not stay of a list that has grown by one; its last two states stay."""
        place = len(states) - 3
        if place > 0 and not self.stays(offset + place):
            states[place] = DROPPED
        elif place > 0 and self.scratch is not None:
            self._file_earlier(self.scratch, states, place)
        self.count(offset + len(states) - 1)

    def _file_earlier(self, scratch: Scratch, states: list[Any], place: int) -> None:
        """Note one more state in memory, and store the earliest where they are too many."""
        # sweeps back want the last ones first
        self._in_memory.append((states, place))
        while len(self._in_memory) > self.memory:
            earlier, there = self._in_memory.pop(0)
            fixed = any(there in fixed for watched, _, fixed in self._lists if watched is earlier)
            if isinstance(earlier[there], PETSc.Vec) and not fixed:
                earlier[there] = scratch.store(earlier[there])

    def count(self, number: int) -> None:
        """Keep fewer of the states in all lists, if those up to a number are too many."""
        if self.numbers is not None or number // self.stride < self.most:
            return
        while number // self.stride >= self.most:
            self.stride *= 2
        for states, offset, fixed in self._lists:
            self.thin(states, offset, fixed, 1)

    def thin(self, states: list[Any], offset: int, fixed: set[int], begin: int) -> None:
        """Drop what need not stay of a list from a place on; its last two states stay."""
        for place in range(begin, len(states) - 2):
            if not self.stays(offset + place) and place not in fixed:
                states[place] = DROPPED
