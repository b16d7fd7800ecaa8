"""Where steps are taken again from on the way back: binomial checkpoints."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import comb
from typing import NamedTuple, Protocol


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
            mark: swept(mark - first, slots) + repeated_steps(last - mark, slots - 1)
            for mark in near_marks(self.marks, best, first, last)
            if slots > 1 or mark == last - 1
        }
        costs.setdefault(best, swept(steps, slots))
        return min(costs, key=lambda number: (costs[number], number != best))


NEAR = 20
"""So many of the states that a run has left are compared with the best place, on either side."""


def swept(steps: int, slots: int) -> int:
    """Return how many steps a sweep back takes again, with those that lead to the last one."""
    return repeated_steps(steps, slots) + steps - 1


def near_marks(marks: tuple[int, ...], best: int, first: int, last: int) -> list[int]:
    """Return the marks beside a place, between two states."""
    place = bisect_left(marks, best)
    return [n for n in marks[max(place - NEAR, 0) : place + NEAR] if first < n < last]
