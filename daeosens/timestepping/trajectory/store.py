"""Some states of a run in memory, and the steps between them taken again where asked for.

What a sweep forward carries along them, the tangents of several directions, is kept by the same
schedule.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Generic, TypeAlias, TypeVar, cast, overload

from petsc4py import PETSc

from daeosens.timestepping.trajectory.schedule import Schedule, Way
from daeosens.timestepping.trajectory.scratch import Filed, Scratch

S = TypeVar("S")
T = TypeVar("T")

Replay: TypeAlias = "Callable[[int, S, Sequence[int], Collection[int]], Sequence[S | Filed]]"
"""``replay(first, u, numbers, filed)``: the states of a log with these numbers, increasing and
after ``first``, whose state is ``u``; those of ``filed`` are for a file."""


def in_memory(state: S | Filed) -> S:
    """Return a state [n] that may be in a file; collective there."""
    return cast("S", state.load()) if isinstance(state, Filed) else state


class SomeStates(Sequence[S], Generic[S]):
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
        What is kept between them.
    left : mapping of int to Vec [n]
        States that the run has left; those that the schedule keeps at first stay.
    scratch : Scratch, optional
        A file for those that the schedule wants there.
    swept : callable, optional
        Called where a way back has come to the first window: no more steps are taken again.

    Attributes
    ----------
    replays, steps : int
        How many windows, and how many steps, have been taken again.
    writes, reads : int
        How many states have been written to the file, by the run too, and read from it.

    Examples
    --------
    >>> from daeosens.timestepping import Checkpoints
    >>> vecs = [PETSc.Vec().createWithArray([float(k)], comm=PETSc.COMM_SELF) for k in range(5)]
    >>> kept = {0: vecs[0], 3: vecs[3], 4: vecs[4]}
    >>> schedule = Checkpoints(8).schedule()
    >>> replay = lambda first, u, numbers, filed: [vecs[k] for k in numbers]
    >>> states = SomeStates(kept, 5, replay, schedule, {})
    >>> [float(state.array[0]) for state in states], states.windows(1, 5), states.steps
    ([0.0, 1.0, 2.0, 3.0, 4.0], [(1, 3), (3, 4)], 2)
    """

    def __init__(
        self,
        kept: Mapping[int, S],
        count: int,
        replay: Replay[S],
        schedule: Schedule,
        left: Mapping[int, S | Filed],
        scratch: Scratch | None = None,
        swept: Callable[[], None] | None = None,
    ) -> None:
        self._kept = kept
        self._numbers = sorted(kept)
        self._count = count
        self._replay = replay
        self._schedule = schedule
        # those between two that are kept always: on the way to the window, by number
        self._held: dict[int, S | Filed] = {}
        self._scratch, self._swept = scratch, swept
        self._first = self._last = -1
        self._window: list[S] = []
        self._end: tuple[int, S] | None = None
        self._passed: tuple[int, S] | None = None  # the first of the last window, on a way back
        self.replays = self.steps = 0
        if left:
            first, last, filed, held = self._way(count - 2)
            on_disk = {*filed}.difference(held)
            for number in (*on_disk, *held):
                if number in left and number not in kept:
                    self._hold(number, left[number], on_disk)
            if all(number in left for number in range(first, last)):
                self._first, self._last = first, last
                self._window = [in_memory(left[number]) for number in range(first, last)]

    def __len__(self) -> int:
        """Return N+1."""
        return self._count

    @overload
    def __getitem__(self, number: int) -> S: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[S]: ...
    def __getitem__(self, number: int | slice) -> S | Sequence[S]:
        """Return a state [n], or several; a window is taken again where they are not kept."""
        place = range(self._count)[number]
        if isinstance(place, range):
            return [self[k] for k in place]
        kept = self._kept.get(place)
        if kept is not None:
            return kept
        for beside in (self._end, self._passed):
            if beside is not None and beside[0] == place:
                return beside[1]
        if place == self._last and self._window:  # a sweep over the window needs its end as well
            u = in_memory(self._taken(place - 1, self._window[-1], [place])[0])
            self._end = (place, u)
            return u
        if not self._first <= place < self._last:
            self._enter(place)
        return self._window[place - self._first]

    def _way(self, number: int) -> Way:
        """Return the way to the window of a state, from the one before it that is always kept."""
        after = bisect_right(self._numbers, number)
        return self._schedule.way(self._numbers[after - 1], self._numbers[after], number)

    def _hold(self, number: int, state: S | Filed, filed: Collection[int]) -> None:
        """Keep a state on the way to a window, in the file or in memory."""
        if self._scratch is None or number not in filed:
            state = in_memory(state)
        elif isinstance(state, PETSc.Vec):
            state = cast("S | Filed", self._scratch.store(state))
        self._held[number] = state

    def _enter(self, number: int) -> None:
        """Make the window of a state the one in memory."""
        first, last, filed, held = self._way(number)
        on_disk = {*filed}.difference(
            held
        )  # a state may have been read into memory, and stay there
        path = on_disk.union(held)
        known: dict[int, S | Filed] = dict(self._held)
        if self._window and first < self._first:
            # tangents that go back with the states are taken again up to here before them
            self._passed = (self._first, self._window[0])
        for state in (self._end, self._passed):
            if state is not None:
                known[state[0]] = state[1]
        known |= dict(enumerate(self._window, self._first))
        self._end = (last, in_memory(known[last])) if last in known else None
        # the nearest known state before the window: steps are taken again from there
        on_way = {place for place in known if place <= first}
        start = max(on_way, default=-1)
        kept = self._numbers[bisect_right(self._numbers, number) - 1]
        start, u = (start, in_memory(known[start])) if start > kept else (kept, self._kept[kept])
        before, self._held = self._held, {}
        if start in known and start not in on_disk:
            known[start] = u  # read once
        for place in path.intersection(known):
            # what is in the file already is not written again
            state = before.get(place, known[place]) if place in on_disk else known[place]
            self._hold(place, state, on_disk)
        del before
        known[start] = u
        window = {place: in_memory(known[place]) for place in range(first, last) if place in known}
        known, self._window = {}, []  # free what is not on the way before anything is made
        if isinstance(u, PETSc.Vec) and u.comm.size > 1:
            PETSc.garbage_cleanup(u.comm)  # petsc4py delays the destruction of parallel objects
        # checkpoints on the way, and the states of the window
        missing = {*range(max(first, start + 1), last)}.difference(window)
        wanted = sorted(missing.union(place for place in path if start < place < first))
        if wanted:
            taken = self._taken(start, u, wanted, on_disk)
            for place, state in zip(wanted, taken, strict=True):
                if place >= first:
                    window[place] = in_memory(state)
                if place in path:
                    self._hold(place, window.get(place, state), on_disk)
        self._window = [window[place] for place in range(first, last)]
        self._first, self._last = first, last
        self.replays += 1
        if first == self._numbers[0] and self._swept is not None:
            self._swept()

    def _taken(
        self, first: int, u: S, wanted: list[int], filed: Collection[int] = ()
    ) -> Sequence[S | Filed]:
        """Return states with the numbers wanted, all after ``first``, whose state is ``u`` [n]."""
        self.steps += wanted[-1] - first
        return self._replay(first, u, wanted, filed)

    def windows(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the parts of the steps between two states that are in memory at one time."""
        end, ends = min(last, self._count - 1), [first]
        while ends[-1] < end:
            ends.append(min(self._way(ends[-1]).last, end))
        return list(pairwise(ends))

    @property
    def writes(self) -> int:
        """How many states have been written."""
        return 0 if self._scratch is None else self._scratch.writes

    @property
    def reads(self) -> int:
        """How many states have been read."""
        return 0 if self._scratch is None else self._scratch.reads

    @property
    def stays(self) -> list[int]:
        """The numbers of what is to stay at first, for a sweep back from the last state."""
        first, last, filed, held = self._way(self._count - 2)
        return sorted({*self._numbers, *filed, *held, *range(first, last)})

    def alike(self, left: Mapping[int, T], replay: Replay[T]) -> SomeStates[T]:
        """Return a store of something else at each state, by the same schedule; in memory."""
        kept = {number: left[number] for number in self._numbers}
        return SomeStates(kept, self._count, replay, self._schedule, left)

    @property
    def made(self) -> list[S]:
        """The vectors that are there, each once."""
        held = [state for state in self._held.values() if not isinstance(state, Filed)]
        there = [*self._kept.values(), *held, *self._window]
        there += [beside[1] for beside in (self._end, self._passed) if beside is not None]
        return list({id(vec): vec for vec in there}.values())


class OneOf(Sequence[PETSc.Vec]):
    """The vectors with one number of the tuples of a store.

    Parameters
    ----------
    store : SomeStates of tuples of Vec [n]
        Tangents along several directions, at each state.
    number : int
        Which of them.
    """

    def __init__(self, store: SomeStates[tuple[PETSc.Vec, ...]], number: int) -> None:
        self._store, self._number = store, number

    def __len__(self) -> int:
        """Return N+1."""
        return len(self._store)

    @overload
    def __getitem__(self, number: int) -> PETSc.Vec: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[PETSc.Vec]: ...
    def __getitem__(self, number: int | slice) -> PETSc.Vec | Sequence[PETSc.Vec]:
        """Return a vector [n], or several; collective where steps are taken again."""
        places = range(len(self))[number]
        if isinstance(places, range):
            return [self[place] for place in places]
        return self._store[places][self._number]

    @property
    def made(self) -> list[PETSc.Vec]:
        """The vectors that are there."""
        return [vectors[self._number] for vectors in self._store.made]
