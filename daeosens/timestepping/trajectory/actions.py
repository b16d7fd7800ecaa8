"""Schedules of the library checkpoint_schedules: what their actions keep, at each step back."""

from __future__ import annotations

import copy
import sys
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeGuard
from zlib import crc32

from daeosens.errors import InputError
from daeosens.timestepping.trajectory.schedule import Way

LIBRARY = "checkpoint_schedules"


class CheckpointSchedule(Protocol):
    """What ``checkpoint_schedules.CheckpointSchedule`` has: actions, and how far they are."""

    @property
    def n(self) -> int:
        """The state that the run has come to."""
        ...

    @property
    def r(self) -> int:
        """How many steps have been swept back."""
        ...

    @property
    def max_n(self) -> int | None:
        """The number of steps, where it is known."""
        ...

    def finalize(self, n: int) -> None:
        """Tell the number of steps."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Return the actions."""
        ...


def is_schedule(value: object) -> TypeGuard[CheckpointSchedule]:
    """Return whether something is a schedule of checkpoint_schedules.

    Examples
    --------
    >>> from checkpoint_schedules import TwoLevelCheckpointSchedule
    >>> is_schedule(TwoLevelCheckpointSchedule(10, 3)), is_schedule("states")
    (True, False)
    """
    library = sys.modules.get(LIBRARY)  # who has a schedule has imported it
    return library is not None and isinstance(value, library.CheckpointSchedule)


def refuse_used(schedule: CheckpointSchedule) -> None:
    """Refuse a schedule of which some actions have been taken already.

    Raises
    ------
    InputError
        Names it.
    """
    if schedule.n or schedule.r:
        raise InputError(
            f"checkpoint = {name_of(schedule)} that has come to step {schedule.n} already",
            expected="a schedule of which no action has been taken: each run takes its own copy",
            remedy=f"a new {type(schedule).__name__}",
        )


def name_of(schedule: CheckpointSchedule) -> str:
    """Return a schedule's name, with its number of steps where it has one."""
    steps = "" if schedule.max_n is None else f" of {schedule.max_n} steps"
    return f"{type(schedule).__name__}{steps}"


Place: TypeAlias = Literal["", "memory", "disk"]
"""Where a state is kept: nowhere, in memory, or on disk."""


class WayForward:
    """Where a schedule keeps states while the number of steps is not known yet.

    Parameters
    ----------
    schedule : CheckpointSchedule
        Without a number of steps.

    Examples
    --------
    >>> from checkpoint_schedules import TwoLevelCheckpointSchedule
    >>> place = WayForward(TwoLevelCheckpointSchedule(10, 3)).place
    >>> place(20), place(21)
    ('disk', '')
    """

    def __init__(self, schedule: CheckpointSchedule) -> None:
        self._library: Any = sys.modules[LIBRARY]
        self._actions = iter(copy.deepcopy(schedule))
        self._reached = 0
        self._begins: list[int] = []
        self._parts: list[tuple[int, Place]] = []

    def place(self, number: int) -> Place:
        """Return where the state with a number is kept."""
        while self._reached <= number:
            action: Any = next(self._actions, None)  # of one that is for fewer steps
            if not isinstance(action, self._library.Forward):
                raise _invalid(action, "no step forward while the run goes on")
            self._reached = action.n1
            if action.write_ics or action.write_adj_deps:
                on_disk = action.storage is self._library.StorageType.DISK
                self._begins.append(action.n0)
                end = action.n1 if action.write_adj_deps else action.n0 + 1
                self._parts.append((end, "disk" if on_disk else "memory"))
        part = bisect_right(self._begins, number) - 1
        if part < 0 or number >= self._parts[part][0]:
            return ""
        return self._parts[part][1]


class _Written:
    """States that an action has written: their numbers, where, and the last action that reads."""

    def __init__(self, numbers: range, *, on_disk: bool) -> None:
        self.numbers, self.on_disk, self.last = numbers, on_disk, -1


class _Event(NamedTuple):
    """What an action does to what is kept, or the steps that it sweeps back."""

    kind: Literal["write", "read", "drop", "back"]
    what: _Written
    first: int = 0
    last: int = 0


Chain: TypeAlias = "tuple[int, Chain] | None"
"""Numbers of states, the one that was written last first; chains share their ends."""


class _At(NamedTuple):
    """What is kept when a step is swept back, and the steps that are so together."""

    disk: Chain
    memory: Chain
    first: int
    last: int


class Followed:
    """The actions of a schedule for a run, as the ways that a store of states takes.

    What an action writes as restart data is the state that it begins with; what it writes for the
    adjoint are the states before its steps, from which sweeps find stages again.  The first state
    is in memory all the time.  What no later action reads is dropped then, if the schedule is good
    for one sweep only.

    Parameters
    ----------
    schedule : CheckpointSchedule
        Of which no action has been taken; it is left as it is.
    steps : int
        Number N of steps.

    Attributes
    ----------
    memory, disk : int
        How many states there are at most besides the first one.
    checksum : int
        Of the actions.

    Raises
    ------
    InputError
        The actions do not lead through an adjoint.

    Examples
    --------
    >>> from checkpoint_schedules import MultistageCheckpointSchedule
    >>> followed = Followed(MultistageCheckpointSchedule(100, 4, 6), 100)
    >>> followed.memory, followed.disk, followed.way(0, 100, 99).last
    (4, 5, 100)
    """

    def __init__(self, schedule: CheckpointSchedule, steps: int) -> None:
        events, self.checksum, several = _events(schedule, steps)
        ways: list[_At | None] = [None] * steps
        chains: dict[bool, Chain] = {True: None, False: None}
        counts, most = {True: 0, False: 0}, {True: 0, False: 0}
        kept: set[_Written] = set()

        def drop(what: _Written) -> None:
            if what in kept:
                kept.remove(what)
                for number in what.numbers:
                    chains[what.on_disk] = _without(chains[what.on_disk], number)
                counts[what.on_disk] -= len(what.numbers)

        for number, event in enumerate(events):
            what = event.what
            if event.kind == "write" and (several or what.last >= 0):
                kept.add(what)
                for k in what.numbers:
                    chains[what.on_disk] = k, chains[what.on_disk]
                counts[what.on_disk] += len(what.numbers)
                most[what.on_disk] = max(most[what.on_disk], counts[what.on_disk])
            elif event.kind == "back":
                at = _At(chains[True], chains[False], event.first, event.last)
                ways[event.first : event.last] = [at] * (event.last - event.first)
            elif event.kind == "drop" or (number == what.last and not several):
                drop(what)
        if None in ways:
            raise InputError(
                f"{name_of(schedule)}: step {ways.index(None)} is not swept back",
                expected="a schedule for a run and an adjoint over all of its steps",
            )
        self._ways = ways
        self.memory, self.disk = most[False], most[True]
        self._unrolled: dict[int, tuple[Chain, list[int]]] = {}

    def way(self, first: int, last: int, number: int) -> Way:
        """Return the way to the window of a step."""
        at = self._ways[number]
        assert at is not None
        filed, held = self._numbers(0, at.disk), self._numbers(1, at.memory)
        if at.first < first:  # an event among steps that are in memory together
            held = [*held, *range(at.first, first)]
        return Way(max(at.first, first), min(at.last, last), filed, held)

    def _numbers(self, place: int, chain: Chain) -> list[int]:
        """Return the numbers in a chain, increasing; the same list as long as it is the same."""
        known = self._unrolled.get(place)
        if known is None or known[0] is not chain:
            numbers: list[int] = []
            left = chain
            while left is not None:
                number, left = left
                numbers.append(number)
            known = self._unrolled[place] = chain, sorted(numbers)
        return known[1]


def _without(chain: Chain, number: int) -> Chain:
    """Return a chain without one of its numbers."""
    above: list[int] = []
    while chain is not None and chain[0] != number:
        above.append(chain[0])
        chain = chain[1]
    assert chain is not None
    chain = chain[1]
    for k in reversed(above):
        chain = k, chain
    return chain


@lru_cache(maxsize=4)  # fits take many runs by the same schedule
def follow(schedule: CheckpointSchedule, steps: int) -> Followed:
    """Return the ways of a schedule for a run of so many steps: ``Followed``."""
    return Followed(schedule, steps)


def _events(schedule: CheckpointSchedule, steps: int) -> tuple[list[_Event], int, bool]:
    """Return what actions do, their checksum, and whether they are good for another sweep."""
    library: Any = sys.modules[LIBRARY]
    places = library.StorageType
    actions: Any = copy.deepcopy(schedule)
    written: dict[tuple[int, Any], _Written] = {}
    events: list[_Event] = []
    nothing = _Written(range(0), on_disk=False)
    checksum = idle = 0

    def write(numbers: range, place: Any, key: int) -> None:
        if place in (places.RAM, places.DISK):
            # the first state is there in any case
            what = _Written(numbers[numbers.start == 0 :], on_disk=place is places.DISK)
            written[key, place] = what
            events.append(_Event("write", what))

    with warnings.catch_warnings():
        # mixed schedules tell that numba is missing: they take longer, and that is all
        warnings.simplefilter("ignore", RuntimeWarning)
        for action in actions:
            checksum = crc32(repr((type(action).__name__, action.args)).encode(), checksum)
            # between two steps back a schedule goes to each step at most, and moves what it has
            idle = 0 if isinstance(action, library.Reverse) else idle + 1
            if idle > 4 * steps + 100:
                raise _invalid(action, f"{idle} actions without a step back or an end")
            if isinstance(action, library.Forward):
                end = min(action.n1, steps)
                if action.write_adj_deps:
                    write(range(action.n0, end), action.storage, action.n0)
                elif action.write_ics:
                    write(range(action.n0, action.n0 + 1), action.storage, action.n0)
                if end == steps and actions.max_n is None:
                    actions.finalize(steps)
            elif isinstance(action, (library.Copy, library.Move)):
                what = written.get((action.n, action.from_storage))
                if what is None:
                    raise _invalid(action, "nothing has been written there")
                what.last = len(events)
                events.append(_Event("read", what))
                if isinstance(action, library.Move):
                    del written[action.n, action.from_storage]
                    events.append(_Event("drop", what))
                write(what.numbers, action.to_storage, action.n)
            elif isinstance(action, library.Reverse):
                events.append(_Event("back", nothing, action.n0, action.n1))
            elif isinstance(action, library.EndReverse):
                break
    return events, checksum, not actions.is_exhausted


def _invalid(action: object, told: str) -> InputError:
    """Return why an action of a schedule cannot be taken."""
    return InputError(f"checkpoint: {action}: {told}", expected="a schedule that can be followed")
