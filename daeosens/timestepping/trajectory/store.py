"""Some states of a run in memory, and the steps between them taken again where asked for.

What a sweep forward carries along them, the tangents of several directions, is kept by the same
schedule.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
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
        self._held: dict[int, S] = {}
        self._filed: dict[int, S | Filed] = {}
        self._places: list[int] = []  # the numbers of those in the file, increasing
        self._listed: Sequence[int] = ()  # what is to be there, by the last way
        self._on_disk: frozenset[int] = frozenset()
        self._scratch, self._swept = scratch, swept
        self._first = self._last = -1
        self._window: list[S] = []
        self._end: tuple[int, S] | None = None
        self._passed: tuple[int, S] | None = None  # the first of the last window, on a way back
        self.replays = self.steps = 0
        if left:
            first, last, filed, held = self._way(count - 2)
            self._other_places(filed)
            for number in left.keys() - kept.keys():
                if number in held:
                    self._held[number] = in_memory(left[number])
                elif number in self._on_disk:
                    self._file(number, left[number])
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

    def _file(self, number: int, state: S | Filed) -> None:
        """Keep a state on the way to a window in the file; in memory where there is none."""
        if self._scratch is None:
            state = in_memory(state)
        elif isinstance(state, PETSc.Vec):
            state = cast("S | Filed", self._scratch.store(state))
        if number not in self._filed:
            insort(self._places, number)
        self._filed[number] = state

    def _enter(self, number: int) -> None:
        """Make the window of a state the one in memory."""
        first, last, filed, held = self._way(number)
        if self._window and first < self._first:
            # tangents that go back with the states are taken again up to here before them
            self._passed = (self._first, self._window[0])
        # what is known besides the states in the file that stay there: these may be many, and are
        # the same from window to window
        known: dict[int, S | Filed] = self._other_places(filed)
        known |= self._held
        for state in (self._end, self._passed):
            if state is not None:
                known[state[0]] = state[1]
        known |= dict(enumerate(self._window, self._first))
        self._end = self._known_end(known, last)
        # the nearest known state before the window: steps are taken again from there
        kept = self._numbers[bisect_right(self._numbers, number) - 1]
        there = bisect_right(self._places, first)
        start = max((place for place in known if place <= first), default=-1)
        if there and self._places[there - 1] > start:
            start = self._places[there - 1]
        if start > kept:
            u = in_memory(known[start] if start in known else self._filed[start])
        else:
            start, u = kept, self._kept[kept]
        known[start] = u  # read once
        self._held = {}
        on_disk, staying = self._on_disk, {*held}
        for place in staying:
            if place in known or place in self._filed:
                state = known[place] if place in known else self._filed[place]
                self._held[place] = in_memory(state)
        for place in on_disk.intersection(known).difference(staying, self._filed):
            self._file(place, known[place])
        places = range(first, last)
        window = {place: in_memory(known[place]) for place in places if place in known}
        for place in places:
            if place not in window and place in self._filed:
                window[place] = in_memory(self._filed[place])
        known, self._window = {}, []  # free what is not on the way before anything is made
        if isinstance(u, PETSc.Vec) and u.comm.size > 1:
            PETSc.garbage_cleanup(u.comm)  # petsc4py delays the destruction of parallel objects
        # checkpoints on the way, and the states of the window
        begin, end = bisect_right(filed, start), bisect_left(filed, first)
        wanted = {*range(max(first, start + 1), last)}.difference(window)
        wanted.update(filed[begin:end], (place for place in held if start < place < first))
        if wanted:
            numbers = sorted(wanted)
            to_file = on_disk.intersection(numbers).difference(staying)
            for place, state in zip(numbers, self._taken(start, u, numbers, to_file), strict=True):
                if place >= first:
                    window[place] = in_memory(state)
                if place in staying:
                    self._held[place] = window.get(place, in_memory(state))
                elif place in to_file:
                    self._file(place, window.get(place, state))
        self._window = [window[place] for place in places]
        self._first, self._last = first, last
        self.replays += 1
        if first == self._numbers[0] and self._swept is not None:
            self._swept()

    def _other_places(self, filed: Sequence[int]) -> dict[int, S | Filed]:
        """Let other states be in the file than before; return those that are not to be there."""
        if filed is self._listed:
            return {}
        self._listed, self._on_disk = filed, frozenset(filed)
        others = {number: self._filed.pop(number) for number in {*self._filed} - self._on_disk}
        self._places = sorted(self._filed)
        return others

    def _known_end(self, known: Mapping[int, S | Filed], last: int) -> tuple[int, S] | None:
        """Return the state that a window ends with, if it is there."""
        state = known[last] if last in known else self._filed.get(last)
        return None if state is None else (last, in_memory(state))

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
        filed = [state for state in self._filed.values() if not isinstance(state, Filed)]
        there = [*self._kept.values(), *self._held.values(), *filed, *self._window]
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
