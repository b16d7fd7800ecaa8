"""Checkpoints in memory and on a disk whose writing and reading cost time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from daeosens.timestepping.trajectory.schedule import Binomial, Way, near_marks, swept

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
            for mark in near_marks(self.marks, best, first, last)
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
                taken += swept(steps_of_part, slots)
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
        inside = [0.0, *(float(swept(k * block, slots)) for k in range(1, count + 1))]
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
