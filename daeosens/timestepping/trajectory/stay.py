"""Which states stay while a run goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.timestepping.trajectory.scratch import Scratch

DROPPED: Any = None
"""Stands in a list of states where one was that is not kept."""


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
