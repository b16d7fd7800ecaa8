"""Some states of a run in memory, and the steps between them taken again where asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias, overload

from petsc4py import PETSc

Replay: TypeAlias = "Callable[[int, int, PETSc.Vec], Sequence[PETSc.Vec]]"
"""``replay(first, last, u)``: the states first ... last of a log, of which ``u`` is the first."""


class SomeStates(Sequence[PETSc.Vec]):
    """The states of a run, of which some are kept, and a window of the others at a time.

    A window is what lies between two kept states.  Sweeps go from window to window, so that each is
    taken again once; whoever asks for states here and there pays for a window each time.

    Parameters
    ----------
    kept : mapping of int to Vec [n]
        The states that are kept, by number; the first one and those beside jumps among them.
    count : int
        Number N+1 of all states.
    replay : callable
        See ``Replay``.

    Examples
    --------
    >>> vecs = [PETSc.Vec().createWithArray([float(k)], comm=PETSc.COMM_SELF) for k in range(5)]
    >>> kept = {0: vecs[0], 3: vecs[3]}
    >>> states = SomeStates(kept, 5, lambda first, last, u: vecs[first : last + 1])
    >>> [float(state.array[0]) for state in states], states.windows(1, 5)
    ([0.0, 1.0, 2.0, 3.0, 4.0], [(1, 3), (3, 4)])
    """

    def __init__(self, kept: dict[int, PETSc.Vec], count: int, replay: Replay) -> None:
        self._kept = kept
        self._numbers = sorted(kept)
        self._count = count
        self._replay = replay
        self._first = -1
        self._window: Sequence[PETSc.Vec] = ()
        self.replays = 0

    def __len__(self) -> int:
        """Return N+1."""
        return self._count

    @overload
    def __getitem__(self, number: int) -> PETSc.Vec: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[PETSc.Vec]: ...
    def __getitem__(self, number: int | slice) -> PETSc.Vec | Sequence[PETSc.Vec]:
        """Return a state [n], or several; a window is taken again where they are not kept."""
        places = range(self._count)[number]
        if isinstance(places, range):
            return [self[k] for k in places]
        kept = self._kept.get(places)
        if kept is not None:
            return kept
        first = self._numbers[bisect_right(self._numbers, places) - 1]
        if first != self._first:
            self._window = ()  # free the one before first
            self._window = self._replay(first, self._end(first), self._kept[first])
            self._first = first
            self.replays += 1
        return self._window[places - first]

    def _end(self, first: int) -> int:
        """Return the last state that is taken again from a kept one: that before the next."""
        following = bisect_right(self._numbers, first)
        return (self._numbers[following] if following < len(self._numbers) else self._count) - 1

    def windows(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the parts of the steps between two states that are in memory at one time."""
        inside = [number for number in self._numbers if first < number < last]
        ends = [first, *inside, min(last, self._count - 1)]
        return list(pairwise(ends))

    @property
    def made(self) -> list[PETSc.Vec]:
        """The vectors that are there."""
        return [*self._kept.values(), *(self._window[1:] if len(self._window) else ())]
