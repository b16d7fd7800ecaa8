"""Some states of a run in memory, and the steps between them taken again where asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias, overload

from petsc4py import PETSc

from daeosens.timestepping.trajectory.schedule import Schedule, Whole
from daeosens.timestepping.trajectory.scratch import Filed, Scratch

Replay: TypeAlias = "Callable[[int, int, PETSc.Vec, Sequence[int]], Sequence[PETSc.Vec | Filed]]"
"""``replay(first, last, u, numbers)``: the states of a log with these numbers, increasing and after
``first``, whose state is ``u``; ``last`` is the largest of them."""


def in_memory(state: PETSc.Vec | Filed) -> PETSc.Vec:
    """Return a state [n] that may be in a file; collective there."""
    return state if isinstance(state, PETSc.Vec) else state.load()


class SomeStates(Sequence[PETSc.Vec]):
    """The states of a run, of which some are kept, and a window of the others at a time.

    Between two states that are kept always, a schedule says where the next one is kept, and so on
    up to windows, whose states are in memory together.  Sweeps go from window to window, back or
    forward; whoever asks for states here and there pays for the way to each.

    Parameters
    ----------
    kept : mapping of int to Vec [n]
        The states that are kept always, by number; the first and the last one, and those beside
        jumps among them.
    count : int
        Number N+1 of all states.
    replay : callable
        See ``Replay``.
    schedule : Schedule
        What is kept between them; by default all are in memory at one time.
    left : mapping of int to Vec [n]
        States that the run has left; those that the schedule keeps at first stay.
    scratch : Scratch, optional
        A file for those on the way to a window.
    filed : int
        How many of these are in it: the first ones, which are needed last.

    Attributes
    ----------
    replays, steps : int
        How many windows, and how many steps, have been taken again.

    Examples
    --------
    >>> vecs = [PETSc.Vec().createWithArray([float(k)], comm=PETSc.COMM_SELF) for k in range(5)]
    >>> kept = {0: vecs[0], 3: vecs[3], 4: vecs[4]}
    >>> states = SomeStates(kept, 5, lambda first, last, u, numbers: [vecs[k] for k in numbers])
    >>> [float(state.array[0]) for state in states], states.windows(1, 5), states.steps
    ([0.0, 1.0, 2.0, 3.0, 4.0], [(1, 3), (3, 4)], 2)
    """

    def __init__(
        self,
        kept: Mapping[int, PETSc.Vec],
        count: int,
        replay: Replay,
        schedule: Schedule | None = None,
        left: Mapping[int, PETSc.Vec | Filed] | None = None,
        scratch: Scratch | None = None,
        filed: int = 0,
    ) -> None:
        self._kept = kept
        self._numbers = sorted(kept)
        self._count = count
        self._replay = replay
        self._schedule = Whole() if schedule is None else schedule
        # those between two that are kept always: on the way to the window, by number
        self._held: dict[int, PETSc.Vec | Filed] = {}
        self._scratch, self._filed = scratch, filed if scratch is not None else 0
        self._first = self._last = -1
        self._window: list[PETSc.Vec] = []
        self._end: tuple[int, PETSc.Vec] | None = None
        self.replays = self.steps = 0
        if left:
            first, last, path = self._place(count - 2)
            for depth, number in enumerate(path):
                if number in left:
                    self._hold(number, depth, left[number])
            if all(number in left for number in range(first, last)):
                self._first, self._last = first, last
                self._window = [in_memory(left[number]) for number in range(first, last)]

    def __len__(self) -> int:
        """Return N+1."""
        return self._count

    @overload
    def __getitem__(self, number: int) -> PETSc.Vec: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[PETSc.Vec]: ...
    def __getitem__(self, number: int | slice) -> PETSc.Vec | Sequence[PETSc.Vec]:
        """Return a state [n], or several; a window is taken again where they are not kept."""
        place = range(self._count)[number]
        if isinstance(place, range):
            return [self[k] for k in place]
        kept = self._kept.get(place)
        if kept is not None:
            return kept
        if self._end is not None and self._end[0] == place:
            return self._end[1]
        if place == self._last and self._window:  # a sweep over the window needs its end as well
            u = in_memory(self._taken(place - 1, self._window[-1], [place])[0])
            self._end = (place, u)
            return u
        if not self._first <= place < self._last:
            self._enter(place)
        return self._window[place - self._first]

    def _place(self, number: int) -> tuple[int, int, list[int]]:
        """Return first and last state of the window of a state, and what is kept on the way."""
        # between the two states beside it that are always kept
        after = bisect_right(self._numbers, number)
        first, last = self._numbers[after - 1], self._numbers[after]
        path: list[int] = []
        while True:
            # the schedule puts a checkpoint at middle, or says that all up to last fit in memory
            middle = self._schedule.split(first, last, len(path))
            if middle == last:
                return first, last, path
            if number < middle:
                last = middle
            else:
                first = middle
                path.append(middle)

    def _hold(self, number: int, depth: int, state: PETSc.Vec | Filed) -> None:
        """Keep a state on the way to a window, in the file or in memory."""
        if depth < self._filed and self._scratch is not None and isinstance(state, PETSc.Vec):
            state = self._scratch.store(state)
        elif depth >= self._filed:
            state = in_memory(state)
        self._held[number] = state

    def _enter(self, number: int) -> None:
        """Make the window of a state the one in memory."""
        first, last, path = self._place(number)
        known: dict[int, PETSc.Vec | Filed] = dict(self._held)
        if self._end is not None:
            known[self._end[0]] = self._end[1]
        known |= dict(enumerate(self._window, self._first))
        self._end = (last, in_memory(known[last])) if last in known else None
        # the nearest known state before the window: steps are taken again from there
        on_way = {place for place in known if place <= first}
        start = max(on_way, default=-1)
        kept = self._numbers[bisect_right(self._numbers, number) - 1]
        start, u = (start, in_memory(known[start])) if start > kept else (kept, self._kept[kept])
        self._held = {}
        depths = {place: depth for depth, place in enumerate(path)}
        for place, depth in depths.items():
            if place in known:
                self._hold(
                    place, depth, u if place == start and depth >= self._filed else known[place]
                )
        window = {place: in_memory(known[place]) for place in range(first, last) if place in known}
        known, self._window = {}, []  # free what is not on the way before anything is made
        if start == first:
            window[first] = u
        # checkpoints on the way first, then the states of the window
        wanted = [place for place in path if place > start]
        wanted += [place for place in range(max(first, start) + 1, last) if place not in window]
        if wanted:
            taken = self._taken(start, u, wanted)
            for place, state in zip(wanted, taken, strict=True):
                if place >= first:
                    window[place] = in_memory(state)
                if place <= first:
                    self._hold(place, depths[place], window.get(place, state))
        self._window = [window[place] for place in range(first, last)]
        self._first, self._last = first, last
        self.replays += 1

    def _taken(self, first: int, u: PETSc.Vec, wanted: list[int]) -> Sequence[PETSc.Vec | Filed]:
        """Return states with the numbers wanted, all after ``first``, whose state is ``u`` [n]."""
        self.steps += wanted[-1] - first
        return self._replay(first, wanted[-1], u, wanted)

    def windows(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the parts of the steps between two states that are in memory at one time."""
        end, ends = min(last, self._count - 1), [first]
        while ends[-1] < end:
            ends.append(min(self._place(ends[-1])[1], end))
        return list(pairwise(ends))

    @property
    def made(self) -> list[PETSc.Vec]:
        """The vectors that are there, each once."""
        held = [state for state in self._held.values() if isinstance(state, PETSc.Vec)]
        there = [*self._kept.values(), *held, *self._window]
        if self._end is not None:
            there.append(self._end[1])
        return list({id(vec): vec for vec in there}.values())
