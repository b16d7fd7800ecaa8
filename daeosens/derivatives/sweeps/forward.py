"""The sweep forward: one loop over smooth windows, and over the events between them.

As the sweep back (``sweep.py``), with directions in the place of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.derivatives.engines.arrays.step_blocks import PushedBlock, push_columns
from daeosens.derivatives.engines.choice import Sweep
from daeosens.derivatives.engines.compiled.tangent import TANGENT, push_directions
from daeosens.derivatives.engines.delays.program import program_of
from daeosens.derivatives.engines.delays.tangents import push_forward
from daeosens.derivatives.engines.request import window_of, windows
from daeosens.derivatives.faults import named_faults
from daeosens.methods.events.event_step import HybridStep
from daeosens.methods.step import SharedMap, Step, StepMap, announced
from daeosens.petsc.vectors import Array, finite_vec, read, write
from daeosens.problem.derivative_arrays import many_evaluations
from daeosens.timestepping.trajectory.states import States
from daeosens.timestepping.trajectory.store import OneOf, SomeStates
from daeosens.timestepping.trajectory.trajectory import Trajectory, steps_of

MANY = 1000
"""Unknowns up to which factors of all stages of a step are kept for several directions."""


PushedWindows: TypeAlias = "dict[tuple[int, int], list[PushedBlock]]"
"""What windows were linearised by, by the numbers of their first and last states."""


class ForwardDirection:
    """One direction on its way forward.

    Parameters
    ----------
    trajectory : Trajectory
        The run.
    du, dp : Vec [n], Vec [m] or None
        The direction; ``du`` is overwritten.
    kept : range, or set of int
        Of which states tangents are kept, by number: a range is of all up to the last one.

    Attributes
    ----------
    du : Vec [n]
        The tangent of the state that the sweep has reached.
    noted : dict of int to Vec [n]
        Tangents that are kept, by number of the state; those of a range on one rank are not here.
    times, parameters : list of float, list of Vec [m]
        Derivatives of the times of the states so far, and of the parameters there.
    """

    def __init__(
        self,
        trajectory: Trajectory,
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
        kept: range | frozenset[int],
    ) -> None:
        self._trajectory = trajectory
        self._kept = kept
        self.du, self._dp = du, dp
        self._start = trajectory.problem.create_parameters() if dp is None else dp
        self.noted = {0: du.copy()} if 0 in kept else {}
        # on one rank rows of numbers, since making a vector takes longer than a small step
        self._rows: Array | None = None
        if isinstance(kept, range) and kept and trajectory.problem.comm.size == 1:
            self._rows = np.empty((len(kept), du.size))
            self._rows[0] = read(du)
        self._states: Sequence[PETSc.Vec] | None = None
        self.times, self.parameters = [0.0], [self._start]

    @property
    def states(self) -> Sequence[PETSc.Vec]:
        """Tangents [n] of all states so far, or of those that are kept."""
        if self._states is not None:
            return self._states
        if self._rows is None:
            return list(self.noted.values())
        return States(self._rows[: len(self.times)], self.noted[0])

    @states.setter
    def states(self, states: Sequence[PETSc.Vec]) -> None:
        self._states = states
        self.noted.clear()

    @cached_property
    def steps(self) -> StepMap:
        """The step map of what is between windows."""
        return steps_of(self._trajectory)

    def step(self, step: Step) -> None:
        """Carry the direction over one step, or jump."""
        self.steps.tangent(step, self.du, self._dp)
        self._note(read(self.du)[np.newaxis])

    def enter(self, number: int) -> PETSc.Vec | None:
        """Return the direction [m] in the parameters, from a step on that others carry it over."""
        if not self._trajectory.crossings:
            return self._dp
        assert isinstance(self.steps, HybridStep)
        return self.steps.pass_forward(number, self._dp)

    def follow(self, rows: Array) -> None:
        """Take the tangents [S, n] of the states of a window."""
        write(self.du, rows[-1])
        self._note(rows)

    def again(self, number: int, du: PETSc.Vec, kept: frozenset[int]) -> ForwardDirection:
        """Return this direction at a state that it has passed, where its tangent is ``du`` [n]."""
        direction = ForwardDirection(self._trajectory, du.copy(), self._dp, kept)
        direction._start = self._start
        direction.times = self.times[: number + 1]
        direction.parameters = self.parameters[: number + 1]
        if self._trajectory.crossings:
            assert isinstance(direction.steps, HybridStep)
            direction.steps.go_on(self.times[number], self.parameters[number])
        return direction

    def _note(self, rows: Array) -> None:
        dt, here = 0.0, self._start
        if self._trajectory.crossings and self._trajectory.problem.delays is None:
            assert isinstance(self.steps, HybridStep)
            dt, changed = self.steps.dt, self.steps.dp
            # without events, and before the first one that changes parameters, dp is that of the
            # start
            here = self._start if changed is None or changed is self._dp else changed
        first = len(self.times)
        if self._rows is not None:
            self._rows[first : first + len(rows)] = rows
        else:
            for number, row in enumerate(rows, first):
                if number in self._kept:
                    self.noted[number] = _filled(self._trajectory, row)
        self.times += [dt] * len(rows)
        self.parameters += [here] * len(rows)


def sweep_forward(
    trajectory: Trajectory,
    directions: Sequence[tuple[PETSc.Vec, PETSc.Vec | None]],
    engine: Sweep,
    last: int | None = None,
    *,
    keep: bool | frozenset[int] = True,
    pushed: PushedWindows | None = None,
) -> list[ForwardDirection]:
    """Carry directions (du [n], dp [m]) to state number ``last``, by default the final one.

    Collective.  Each ``du`` is overwritten; ``keep`` says whether its tangents of all states are
    kept, or those of which: of a run that has only some of its states, those of as many, by
    vectors.  ``engine`` is that of ``choose_sweep``.  ``pushed`` gets what windows swept on arrays
    were linearised by, by the numbers of their first and last states.

    Raises
    ------
    SolveError
        A tangent, or a value on the way to it, is not finite.
    """
    last = trajectory.n_steps if last is None else last
    if keep is True and trajectory.thinned and engine == "vectors" and last == trajectory.n_steps:
        return _along_some_states(trajectory, directions)
    kept = keep if isinstance(keep, frozenset) else range(last + 1 if keep else 0)
    along = [ForwardDirection(trajectory, *pair, kept) for pair in directions]
    if engine == "vectors":
        _share_steps(trajectory, along)
    with named_faults(trajectory, back=False):
        if trajectory.problem.delays is not None:
            program = program_of(trajectory)
            tangents = push_forward(program, *direction_arrays(trajectory, directions))
            for k, direction in enumerate(along):
                direction.follow(tangents.du[1 : last + 1, :, k])
                if trajectory.crossings:
                    # the times of states that events move, and that delays move with them
                    moved = program.steps.time_slopes @ tangents.dclock[k]
                    direction.times = moved[: last + 1].tolist()
        else:
            _carry(trajectory, along, engine, 0, last, pushed)
        for direction in along:
            finite_vec(direction.du, TANGENT)
    return along


def _share_steps(trajectory: Trajectory, along: Sequence[ForwardDirection]) -> None:
    """Let directions go by one step map, if it keeps the linearised step for the next of them."""
    problem = trajectory.problem
    # maps of steps through events know the direction; of many unknowns the factors of one stage
    # take as much memory as there may be
    if len(along) < 2 or trajectory.crossings or problem.size > MANY or problem.delays is not None:
        return
    steps = along[0].steps
    if isinstance(steps, SharedMap):
        steps.share()
        for direction in along[1:]:
            direction.steps = steps


def _along_some_states(
    trajectory: Trajectory, directions: Sequence[tuple[PETSc.Vec, PETSc.Vec | None]]
) -> list[ForwardDirection]:
    """Carry directions over a run that takes states again: so are their tangents, along with them.

    The same schedule says which are kept.  Whoever goes back asks for the tangents of a window
    before its states: they are on the way of the former, and are not taken again twice.
    """
    states = trajectory.stored
    assert isinstance(states, SomeStates)
    stays = frozenset(states.stays)
    along = [ForwardDirection(trajectory, *pair, stays) for pair in directions]
    with named_faults(trajectory, back=False):
        _carry(trajectory, along, "vectors", 0, trajectory.n_steps)
        for direction in along:
            finite_vec(direction.du, TANGENT)

    def replay(
        first: int, tangents: tuple[PETSc.Vec, ...], numbers: Sequence[int], _: Collection[int]
    ) -> list[tuple[PETSc.Vec, ...]]:
        kept = frozenset(numbers)
        pairs = zip(along, tangents, strict=True)
        again = [direction.again(first, du, kept) for direction, du in pairs]
        _carry(trajectory, again, "vectors", first, numbers[-1])
        return [tuple(direction.noted[number] for direction in again) for number in numbers]

    left = {number: tuple(direction.noted[number] for direction in along) for number in stays}
    store = states.alike(left, replay)
    for k, direction in enumerate(along):
        direction.states = OneOf(store, k)
    return along


def _carry(
    trajectory: Trajectory,
    along: Sequence[ForwardDirection],
    engine: Sweep,
    first: int,
    last: int,
    pushed: PushedWindows | None = None,
) -> None:
    """Carry directions from one state to another."""
    if engine == "vectors":
        parts = [(first, last, False)]  # by steps alone
    else:
        hybrid = along[0].steps if trajectory.crossings else None
        assert hybrid is None or isinstance(hybrid, HybridStep)
        parts = windows(trajectory, hybrid, (), last)
    for start, end, smooth in parts:
        blocks = _over_window(trajectory, start, end, along, engine, pushed) if smooth else None
        if blocks is None:
            numbers, thinned = range(start, end), trajectory.thinned
            with many_evaluations():
                for step in announced(along[0].steps, numbers, trajectory.step, thinned=thinned):
                    for direction in along:  # these name what is not finite
                        direction.step(step)
            continue
        for rows in blocks:
            for k, direction in enumerate(along):
                direction.follow(rows[:, k])


def direction_arrays(
    trajectory: Trajectory, directions: Sequence[tuple[PETSc.Vec, PETSc.Vec | None]]
) -> tuple[Array, Array]:
    """Return directions as arrays [D, n] and [D, m]."""
    du = np.array([read(by_u) for by_u, _ in directions])
    dp = np.zeros((len(directions), trajectory.problem.n_parameters))
    for row, (_, by_p) in zip(dp, directions, strict=True):
        if by_p is not None:
            row[:] = read(by_p)
    return du, dp


def _over_window(
    trajectory: Trajectory,
    first: int,
    last: int,
    along: Sequence[ForwardDirection],
    engine: Sweep,
    pushed: PushedWindows | None,
) -> Iterable[Array] | None:
    """Return the tangents of the states after the first one of a window, or None.

    Block by block, [S, D, n].
    """
    if trajectory.crossings and last == first + 1:
        return None  # a step by itself is as quick
    window = window_of(trajectory, first, last)
    # events may have changed dp since the start
    here = [(direction.du, direction.enter(first)) for direction in along]
    du, dp = direction_arrays(trajectory, here)
    if engine == "compiled":
        rows = push_directions(window, du, dp)
        return None if rows is None else [rows[1:]]
    blocks = None if pushed is None else pushed.setdefault((first, last), [])
    return push_columns(window, du, dp, last - first, blocks)


def _filled(trajectory: Trajectory, values: Array) -> PETSc.Vec:
    vec = trajectory.problem.create_state()
    write(vec, values)
    return vec
