"""The states of a run: as C has logged them, and as its user may look at them."""

from __future__ import annotations

from collections import deque
from collections.abc import MutableMapping, Sequence
from typing import Any, overload
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.petsc._kernels import lock_onto
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, read, write

ROOM = 64
"""References to vectors that nobody holds any more, besides as many as are held."""

_LATEST: deque[PETSc.Vec] = deque(maxlen=1024)
"""States of runs that were made vectors last, held for the next sweep of the same run."""


class States(Sequence[PETSc.Vec]):
    """Rows [N+1, n] as vectors, which are made where they are asked for.

    For small serial systems, for which making a vector takes longer than a step.

    Parameters
    ----------
    rows : array [N+1, n]
        The states.
    first : Vec [n]
        The first one, which is there already.
    of_run : bool
        Whether they are those of a run, over which sweeps go more than once.

    Examples
    --------
    >>> first = PETSc.Vec().createWithArray([1.0, 2.0], comm=PETSc.COMM_SELF)
    >>> states = States(np.array([[1.0, 2.0], [3.0, 4.0]]), first)
    >>> states[-1].array, states[0] is first, len(states)
    (array([3., 4.]), True, 2)
    """

    def __init__(self, rows: Array, first: PETSc.Vec, *, of_run: bool = False) -> None:
        self.rows = rows
        self._first = first
        self._of_run = of_run
        # as long as somebody holds them: a vector takes as much memory as some 250 numbers; plain
        # references, of which the dead are dropped now and then, since sweeps make one at each step
        self._made: dict[int, ReferenceType[PETSc.Vec]] = {}
        self._room = ROOM

    def __len__(self) -> int:
        """Return N+1."""
        return len(self.rows)

    @overload
    def __getitem__(self, number: int) -> PETSc.Vec: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[PETSc.Vec]: ...
    def __getitem__(self, number: int | slice) -> PETSc.Vec | Sequence[PETSc.Vec]:
        """Return a vector [n], the same as long as somebody holds it."""
        if number == 0:  # asked for in each sweep
            return self._first
        if isinstance(number, slice):
            return [self[k] for k in range(len(self.rows))[number]]
        # sweeps ask for a state several times at each step, by its number from the start
        reference = self._made.get(number)
        vec = None if reference is None else reference()
        if vec is None:
            places = range(len(self.rows))[number]
            if places != number:  # counted from the end
                return self[places]
            # PETSc does not look at what it duplicates: a freed vector ends the process.
            refuse_freed(self._first)
            vec = self._first.duplicate()
            write(vec, self.rows[places])
            self._made[places] = ref(vec)
            if self._of_run:
                _LATEST.append(vec)
            if len(self._made) > self._room:
                self._made = {k: made for k, made in self._made.items() if made() is not None}
                self._room = 2 * len(self._made) + ROOM
        return vec

    @property
    def made(self) -> list[PETSc.Vec]:
        """The vectors that somebody holds."""
        vectors = [made() for made in self._made.values()]
        return [self._first, *(vec for vec in vectors if vec is not None)]


def states_between(states: Sequence[PETSc.Vec], first: int, last: int) -> Sequence[PETSc.Vec]:
    """Return the states from number ``first`` to ``last``, without vectors that nobody asked for.

    Examples
    --------
    >>> first = PETSc.Vec().createWithArray([1.0], comm=PETSc.COMM_SELF)
    >>> window = states_between(States(np.arange(4.0)[:, None], first), 1, 3)
    >>> window.rows.ravel(), window.made[0].array
    (array([1., 2., 3.]), array([1.]))
    """
    if isinstance(states, States):
        # rows are shared; only the first one is a vector already
        return States(states.rows[first : last + 1], states[first])
    return states[first : last + 1]


def rows_of(states: Sequence[PETSc.Vec]) -> Array:
    """Return states as an array [N+1, n_local], which is not to be changed."""
    if isinstance(states, States):
        return states.rows
    return np.array([read(state) for state in states])


def vectors_of(states: Sequence[PETSc.Vec]) -> Sequence[PETSc.Vec]:
    """Return those states that are vectors already, to be freed."""
    vectors: Sequence[PETSc.Vec] = getattr(states, "made", states)
    return vectors


class State(PETSc.Vec):
    """A vector that prints its numbers; that of a run can be read, and not written.

    It shares the numbers of the run's log, without a copy: PETSc refuses to write through it, and
    its arrays are read-only.  Vectors that are made of it (``copy``, ``duplicate``, sums) are the
    caller's own.

    Attributes
    ----------
    locked : bool
        Whether it can be read only.

    Examples
    --------
    >>> state = PETSc.Vec().createWithArray([1.0, 2.0], comm=PETSc.COMM_SELF)
    >>> view = view_of(state)
    >>> view
    State([1., 2.])
    >>> view.array.flags.writeable, view.copy().array.flags.writeable
    (False, True)
    """

    locked = False

    def __repr__(self) -> str:
        """Return the numbers; of a distributed state the sizes.  Not collective."""
        if not self.handle:
            return "State(destroyed)"
        if self.comm.size == 1:
            return f"State({np.array2string(read(self), separator=', ', threshold=100)})"
        first, end = self.getOwnershipRange()
        return f"State({self.size} unknowns on {self.comm.size} ranks; here {first} ... {end - 1})"

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The local numbers as NumPy takes them: ``np.asarray(state)``, a plot of it."""
        return self.getArray().__array_interface__

    def getArray(self, readonly: bool = False) -> npt.NDArray[Any]:  # noqa: N802
        """Return the local numbers [n_local], which cannot be written while they are a run's."""
        values: npt.NDArray[Any] = super().getArray(readonly=readonly or self.locked)
        return values

    @property
    def array(self) -> npt.NDArray[Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The local numbers [n_local], which cannot be written while they are a run's."""
        return self.getArray()

    @array.setter
    def array(self, values: npt.ArrayLike) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        if self.locked:
            raise InputError(
                "a state of a run is to be overwritten, which its derivatives are computed from",
                expected="a vector of your own",
                remedy="state.copy(), of which the array can be written",
            )
        super().getArray()[...] = values


def refuse_freed(state: PETSc.Vec) -> None:
    """Refuse a state of a run that is no more: PETSc would crash.

    Raises
    ------
    InputError
        It has been freed.
    """
    if not state.handle:
        raise InputError(
            "the states of this run have been freed",
            expected="a run that is still there (Reduced frees the last one where x has moved)",
            remedy="copies of what is needed later, or another solve",
        )


def view_of(state: PETSc.Vec) -> State:
    """Return a vector [n] that shares the numbers of a state, and cannot be written.  Collective.

    PETSc's lock is that of the view: sweeps and callbacks have the state itself.

    Raises
    ------
    InputError
        The state has been freed.
    """
    refuse_freed(state)
    agree(state.comm, "a state of a run (run.states, run.at, run.final)")
    view = State()
    # PETSc's lock counts references of the view alone: sweeps write to work vectors as before
    lock_onto(view, state)
    view.locked = True
    return view


class ReadOnlyStates(Sequence[State]):
    """States as their user may look at them.

    Parameters
    ----------
    states : sequence of Vec [n]
        Those of the log.
    views : mapping of int to State, optional
        Where views are kept; without, each is made anew, for states that are not kept either.

    Examples
    --------
    >>> state = PETSc.Vec().createWithArray([1.0], comm=PETSc.COMM_SELF)
    >>> states = ReadOnlyStates([state, state], {})
    >>> states[-1] is states[1], len(states), states[0].array.flags.writeable
    (True, 2, False)
    """

    def __init__(
        self, states: Sequence[PETSc.Vec], views: MutableMapping[int, State] | None
    ) -> None:
        self._states, self._views = states, views

    def __len__(self) -> int:
        """Return N+1."""
        return len(self._states)

    @overload
    def __getitem__(self, number: int) -> State: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[State]: ...
    def __getitem__(self, number: int | slice) -> State | Sequence[State]:
        """Return the same view of a state [n] each time, where views are kept; or several."""
        places = range(len(self._states))[number]
        if isinstance(places, range):
            return [self[k] for k in places]
        view = None if self._views is None else self._views.get(places)
        if view is None:
            view = view_of(self._states[places])
            if self._views is not None:
                self._views[places] = view
        return view


def read_only(values: Array) -> Array:
    """Return a view of an array that cannot be written."""
    view = values.view()
    view.setflags(write=False)
    return view
