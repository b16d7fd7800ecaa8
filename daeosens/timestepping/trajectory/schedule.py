"""Which states of a run are kept, and where steps are taken again from: checkpoints."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import lru_cache
from math import comb, inf
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import InputError, is_real, is_whole
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
    write, read : float
        What it costs to write a state to the disk and to read one, in steps of the run; ``plan``
        measures both.  Where they are given, steps, writing and reading together cost as little as
        can be, by ``Hierarchical``; by default the steps alone are as few as can be.

    Raises
    ------
    InputError
        No state at all; costs of a disk without states there, or with one state in memory only.

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
    write: float = 0.0
    read: float = 0.0

    def __post_init__(self) -> None:
        """Refuse numbers that leave no state, and costs of nothing."""
        for name, least in (("memory", 1), ("disk", 0)):
            number: object = getattr(self, name)
            if not (is_whole(number) and least <= number <= MOST):
                raise InputError(f"{name} = {number!r}", expected=f"a number of states >= {least}")
        if not isinstance(self.folder, (str, Path, type(None))):
            raise InputError(f"folder = {self.folder!r}", expected="a path, or None")
        for name in ("write", "read"):
            cost: object = getattr(self, name)
            if not (is_real(cost) and 0.0 <= cost < inf):
                raise InputError(f"{name} = {cost!r}", expected="a number of steps >= 0")
            if cost and not (self.disk and self.memory > 1):
                raise InputError(
                    f"{name} = {cost:g} with memory = {self.memory}, disk = {self.disk}",
                    expected="at least two states in memory and one on disk",
                    remedy=f"memory=2, disk=1 or more, or no {name}",
                )

    def schedule(self, marks: tuple[int, ...] = (), end: int = -1) -> Schedule:
        """Return which states are kept, for a run of ``end`` steps that has left ``marks``."""
        if self.write or self.read:
            costs = float(self.write), float(self.read)
            return Hierarchical(self.memory, self.disk, *costs, marks, end)
        return Binomial(self.slots, self.memory, marks, end)

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


class Way(NamedTuple):
    """What is kept on the way to a window, besides the state that the way begins at.

    ``first`` and ``last`` are the numbers of the states at the ends of the window, whose states are
    in memory at one time; ``filed`` and ``held``, increasing, those of states on disk, and of
    states in memory behind them.
    """

    first: int
    last: int
    filed: list[int]
    held: list[int]


class Schedule(Protocol):
    """Where the steps between two states are split, until a part is in memory as a whole."""

    def way(self, first: int, last: int, number: int) -> Way:
        """Return the way from the state ``first`` to the window of the step ``number``.

        The steps up to ``last`` are swept back, those behind the window before.
        """
        ...


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

    def way(self, first: int, last: int, number: int) -> Way:
        """Return the way to the window of a step."""
        path: list[int] = []
        while (middle := self._split(first, last, len(path))) < last:
            if number < middle:
                last = middle
            else:
                first = middle
                path.append(middle)
        disk = self.slots - self.memory  # those that are needed last
        return Way(first, last, path[:disk], path[disk:])

    def _split(self, first: int, last: int, depth: int) -> int:
        """Return the number of the state that is kept between two; ``last`` if all are.

        ``depth`` states are kept already, besides that before the steps.
        """
        steps, slots = last - first, self.slots - depth
        # all states between fit into memory: the sweep goes over them as they are
        if steps <= min(max(slots, 0), self.memory) + 1:
            return last
        best = first + advance(steps, slots)
        if last != self.end or not self.marks:
            return best
        # the marks are there: nothing is taken again to come to them, nor to those behind them
        costs = {
            mark: _swept(mark - first, slots) + repeated_steps(last - mark, slots - 1)
            for mark in _near(self.marks, best, first, last)
            if slots > 1 or mark == last - 1
        }
        costs.setdefault(best, _swept(steps, slots))
        return min(costs, key=lambda number: (costs[number], number != best))


NEAR = 20
"""So many of the states that a run has left are compared with the best place, on either side."""


def _swept(steps: int, slots: int) -> int:
    """Return how many steps a sweep back takes again, with those that lead to the last one."""
    return repeated_steps(steps, slots) + steps - 1


def _near(marks: tuple[int, ...], best: int, first: int, last: int) -> list[int]:
    """Return the marks beside a place, between two states."""
    place = bisect_left(marks, best)
    return [n for n in marks[max(place - NEAR, 0) : place + NEAR] if first < n < last]


# ---- checkpoints on a disk that costs time


LARGEST_TABLE = 2**20
"""Parts whose costs are found for ``Hierarchical``, at most: two seconds."""

WIDTH = 32
"""A part is cut at most so many blocks away from where a part that is one shorter is: tests find no
place farther away that is better."""


@dataclass(frozen=True, eq=False)
class Hierarchical:
    """H-Revolve: checkpoints in memory and on a disk whose writing and reading cost time.

    Steps, writing and reading cost as little together as can be.  States on disk cut the run into
    parts; each part is swept back with binomial checkpoints in memory, among them its own first
    state, which is read once.  The state that the run begins at is in memory all the time.

    Of many steps (16 000; 2000 with 500 states on disk) these lie at multiples of some steps.

    Parameters
    ----------
    memory, disk : int
        Number of states >= 2 in memory, that before the steps included, and on disk.
    write, read : float
        What it costs to write and to read a state, in steps.
    marks, end
        As for ``Binomial``.

    Source
    ------
    Herrmann, Pallez, ACM Transactions on Mathematical Software 46(2), 2020, with two levels, the
    first of which costs nothing.

    Examples
    --------
    >>> cheap, dear = (Hierarchical(4, 30, cost, cost) for cost in (0.1, 5.0))
    >>> cheap.cost(100), dear.cost(100)
    (Cost(repeated=65, writes=30, reads=30), Cost(repeated=145, writes=7, reads=7))
    """

    memory: int
    disk: int
    write: float
    read: float
    marks: tuple[int, ...] = ()
    end: int = -1

    def way(self, first: int, last: int, number: int) -> Way:
        """Return the way to the window of a step."""
        table = _table(last - first, self.memory, self.disk, self.write, self.read)
        filed: list[int] = []
        # where the part begins: in memory all the time, in hand, or on disk
        begins: Begin = "kept"
        while middle := self._split(table, begins, first, last, self.disk - len(filed)):
            if begins == "reached":
                filed.append(first)
                begins = "filed"
            if number < middle:
                last = middle
            else:
                first, begins = middle, "reached"
        if begins == "filed":
            filed.pop()  # read, and in memory from now on
        slots = self.memory if begins == "kept" else self.memory - 1
        inside = Binomial(slots, slots, self.marks, self.end).way(first, last, number)
        held = inside.held if begins == "kept" else [first, *inside.held]
        return Way(inside.first, inside.last, filed, held)

    def _split(self, table: Table, begins: Begin, first: int, last: int, disk: int) -> int:
        """Return the number of the state where a part is cut; 0 if it is swept in memory."""
        disk += begins == "filed"
        best = first + table.cut(begins, last - first, disk)
        if best == first:
            return 0
        if last != self.end or not self.marks:
            return best
        # as in ``Binomial``
        costs = {
            mark: table.swept("kept" if begins == "kept" else "filed", mark - first, disk)
            + table.swept("reached", last - mark, disk - (begins != "kept"))
            - (last - mark - 1)
            for mark in _near(self.marks, best, first, last)
        }
        costs.setdefault(best, table.swept(begins, last - first, disk))
        # rounding must not tell two equal costs apart
        return min(costs, key=lambda number: (round(costs[number], 6), number != best))

    def cost(self, steps: int) -> Cost:
        """Return what one sweep back over so many steps costs besides the run itself."""
        table = _table(steps, self.memory, self.disk, self.write, self.read)
        taken = writes = reads = 0
        parts: list[tuple[Begin, int, int]] = [("kept", steps, self.disk)]
        while parts:
            begins, steps_of_part, disk = parts.pop()
            cut = table.cut(begins, steps_of_part, disk)
            if not cut:
                slots = self.memory if begins == "kept" else self.memory - 1
                taken += _swept(steps_of_part, slots)
                continue
            taken += cut
            writes += begins == "reached"
            reads += begins != "kept"
            parts.append(("reached", steps_of_part - cut, disk - (begins != "kept")))
            parts.append(("kept" if begins == "kept" else "filed", cut, disk))
        return Cost(taken - (steps - 1), writes, reads)


class Cost(NamedTuple):
    """Steps taken again, and states written and read, by one sweep back."""

    repeated: int
    writes: int
    reads: int


Begin = Literal["kept", "reached", "filed"]
"""Where the state is that a part of the steps begins at: always in memory; in hand, and neither on
disk nor kept so far; on disk, of which it has just been read."""


@dataclass(frozen=True)
class Table:
    """Costs of sweeps back over parts of 1, 2, ... blocks of steps.

    Parameters
    ----------
    block : int
        Steps of a block.
    costs : mapping of Begin to array [L+1, disk+1]
        The least costs [steps], by the number of blocks and of states that there is room for on
        disk.
    cuts : mapping of Begin to array [L+1, disk+1]
        After how many blocks the steps are cut; 0 where they are swept in memory.
    """

    block: int
    costs: dict[Begin, npt.NDArray[np.float64]]
    cuts: dict[Begin, npt.NDArray[np.int32]]

    def cut(self, begins: Begin, steps: int, disk: int) -> int:
        """Return after how many steps a part is cut; 0 if it is swept in memory."""
        cuts = self.cuts[begins]
        return self.block * int(cuts[-(-steps // self.block), min(disk, cuts.shape[1] - 1)])

    def swept(self, begins: Begin, steps: int, disk: int) -> float:
        """Return what the sweep over a part costs [steps], the run itself included."""
        costs = self.costs[begins]
        return float(costs[-(-steps // self.block), min(disk, costs.shape[1] - 1)])


@lru_cache(maxsize=2)  # up to 38 MB each
def _table(steps: int, memory: int, disk: int, write: float, read: float) -> Table:
    """Return the least costs of all parts of a run: the recursion of Herrmann and Pallez (2020)."""
    block, count = 1, steps
    # the loop over rows takes as long as that over 64 places on disk
    while count * max(min(disk, count), 64) > LARGEST_TABLE:
        block += 1
        count = -(-steps // block)
    disk = min(disk, count)
    costs: dict[Begin, npt.NDArray[np.float64]] = {}
    cuts: dict[Begin, npt.NDArray[np.int32]] = {}
    for begins in _BEGINS:
        # without a state on disk: binomial checkpoints in memory
        slots = memory if begins == "kept" else memory - 1
        inside = [0.0, *(float(_swept(k * block, slots)) for k in range(1, count + 1))]
        costs[begins] = np.repeat(np.array(inside)[:, None], disk + 1, axis=1)
        cuts[begins] = np.zeros((count + 1, disk + 1), dtype=np.int32)
    kept, reached, filed = (costs[begins] for begins in _BEGINS)
    room = np.arange(1, disk + 1)
    around = np.arange(-WIDTH, WIDTH + 1)[:, None]
    cut_of_kept = cut_of_filed = np.ones(disk, dtype=np.int32)
    for length in range(2, count + 1):
        # [place, room]: to the place, the part behind it, and back to the part before it
        places = (cut_of_kept + around).clip(1, length - 1)
        options = block * places + reached[length - places, room] + kept[places, room]
        cut_of_kept = _take(options, places, kept[length], cuts["kept"][length])
        # the state that the part begins at takes one of the places on disk
        places = (cut_of_filed + around).clip(1, length - 1)
        options = block * places + reached[length - places, room - 1] + filed[places, room] + read
        cut_of_filed = _take(options, places, filed[length], cuts["filed"][length])
        _take(options + write, places, reached[length], cuts["reached"][length])
    return Table(block, costs, cuts)


def _take(
    options: npt.NDArray[np.float64],
    places: npt.NDArray[np.int32],
    costs: npt.NDArray[np.float64],
    cuts: npt.NDArray[np.int32],
) -> npt.NDArray[np.int32]:
    """Note the best options where they are better; return where they cut."""
    best = options.argmin(axis=0)[None]
    least = np.take_along_axis(options, best, axis=0)[0]
    chosen = np.take_along_axis(places, best, axis=0)[0]
    better = 1 + np.flatnonzero(least < costs[1:])
    costs[better], cuts[better] = least[better - 1], chosen[better - 1]
    return chosen


_BEGINS: tuple[Begin, ...] = ("kept", "reached", "filed")


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
        How many stay in memory beside such a file, the last ones, if numbers are not given.
    filed : collection of int
        Numbers of those in the file, if they are.
    place : callable, optional
        Where a state stays that is asked for by its number; in the place of numbers.
    """

    most: int
    numbers: npt.NDArray[np.int64] | None = None
    scratch: Scratch | None = None
    memory: int = 0
    filed: Collection[int] = ()
    place: Callable[[int], Literal["", "memory", "disk"]] | None = None
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
        if self.place is not None:
            return bool(self.place(number))
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
            if self.place is None and self.numbers is None:
                self._file_earlier(self.scratch, states, place)
            elif self._goes_to_file(offset + place):
                self._file(self.scratch, states, place)
        self.count(offset + len(states) - 1)

    def _goes_to_file(self, number: int) -> bool:
        """Return whether it is known of a state that its place is in the file."""
        return number in self.filed if self.place is None else self.place(number) == "disk"

    def _file_earlier(self, scratch: Scratch, states: list[Any], place: int) -> None:
        """Note one more state in memory, and store the earliest where they are too many."""
        # sweeps back want the last ones first
        self._in_memory.append((states, place))
        while len(self._in_memory) > self.memory:
            self._file(scratch, *self._in_memory.pop(0))

    def _file(self, scratch: Scratch, states: list[Any], place: int) -> None:
        """Store a state, if it is not one that is always in memory."""
        fixed = any(place in fixed for watched, _, fixed in self._lists if watched is states)
        if isinstance(states[place], PETSc.Vec) and not fixed:
            states[place] = scratch.store(states[place])

    def count(self, number: int) -> None:
        """Keep fewer of the states in all lists, if those up to a number are too many."""
        known = self.numbers is not None or self.place is not None
        if known or number // self.stride < self.most:
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
