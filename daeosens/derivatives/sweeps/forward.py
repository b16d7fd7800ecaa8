"""The sweep forward: one loop over smooth windows, and over the events between them.

As the sweep back (``sweep.py``), with directions in the place of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from petsc4py import PETSc

from daeosens.derivatives.engines.arrays.step_blocks import push_columns
from daeosens.derivatives.engines.choice import Sweep
from daeosens.derivatives.engines.compiled.tangent import push_directions
from daeosens.derivatives.engines.delays.program import program_of
from daeosens.derivatives.engines.request import window_of, windows
from daeosens.derivatives.faults import named_faults
from daeosens.methods.events.event_step import HybridStep
from daeosens.methods.step import StepMap
from daeosens.petsc.vectors import Array, finite_vec, read, write
from daeosens.timestepping.trajectory.states import States
from daeosens.timestepping.trajectory.trajectory import Trajectory, steps_of


class ForwardDirection:
    """One direction on its way forward.

    Attributes
    ----------
    du : Vec [n]
        The tangent of the state that the sweep has reached.
    times, parameters : list of float, list of Vec [m]
        Derivatives of the times of these states, and of the parameters there.
    """

    def __init__(
        self,
        trajectory: Trajectory,
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
        last: int,
        *,
        keep: bool,
    ) -> None:
        self._trajectory = trajectory
        self._keep = keep
        self.du, self._dp = du, dp
        self._start = trajectory.problem.create_parameters() if dp is None else dp
        self._vectors = [du.copy()] if keep else []
        # on one rank rows of numbers, since making a vector takes longer than a small step
        self._rows: Array | None = None
        if keep and trajectory.problem.comm.size == 1:
            self._rows = np.empty((last + 1, du.size))
            self._rows[0] = read(du)
        self.times, self.parameters = [0.0], [self._start]

    @property
    def states(self) -> Sequence[PETSc.Vec]:
        """Tangents [n] of all states so far, if they are kept."""
        if self._rows is None:
            return self._vectors
        return States(self._rows[: len(self.times)], self._vectors[0])

    @cached_property
    def steps(self) -> StepMap:
        """The step map of what is between windows."""
        return steps_of(self._trajectory)

    def step(self, number: int) -> None:
        """Carry the direction over one step, or jump."""
        self.steps.tangent(self._trajectory.step(number), self.du, self._dp)
        if self._keep:
            self._note(read(self.du)[np.newaxis])

    def enter(self, number: int) -> PETSc.Vec | None:
        """Return the direction [m] in the parameters, from a step on that others carry it over."""
        if not self._trajectory.crossings:
            return self._dp
        assert isinstance(self.steps, HybridStep)
        return self.steps.pass_forward(number, self._dp)

    def follow(self, rows: Array) -> None:
        """Take the tangents [S, n] of the states of a window; of the last one, if none are kept."""
        write(self.du, rows[-1])
        if self._keep:
            self._note(rows)

    def _note(self, rows: Array) -> None:
        dt, here = 0.0, self._start
        if self._trajectory.crossings:
            assert isinstance(self.steps, HybridStep)
            dt, changed = self.steps.dt, self.steps.dp
            # without events, and before the first one that changes parameters, dp is that of the
            # start
            here = self._start if changed is None or changed is self._dp else changed
        count = len(self.times)
        if self._rows is None:
            self._vectors += [_filled(self._trajectory, row) for row in rows]
        else:
            self._rows[count : count + len(rows)] = rows
        self.times += [dt] * len(rows)
        self.parameters += [here] * len(rows)


def sweep_forward(
    trajectory: Trajectory,
    directions: Sequence[tuple[PETSc.Vec, PETSc.Vec | None]],
    engine: Sweep,
    last: int | None = None,
    *,
    keep: bool = True,
) -> list[ForwardDirection]:
    """Carry directions (du [n], dp [m]) to state number ``last``, by default the final one.

    Collective.  Each ``du`` is overwritten; ``keep`` says whether its tangents of all states are
    kept.  ``engine`` is that of ``choose_sweep``.

    Raises
    ------
    SolveError
        A tangent, or a value on the way to it, is not finite.
    """
    last = trajectory.n_steps if last is None else last
    if trajectory.problem.delays is not None:
        return _along_delays(trajectory, directions, last, keep=keep)
    along = [ForwardDirection(trajectory, *pair, last, keep=keep) for pair in directions]
    # by steps alone: one part that is no window
    parts = [(0, last, False)]
    if engine != "vectors":
        hybrid = along[0].steps if trajectory.crossings else None
        assert hybrid is None or isinstance(hybrid, HybridStep)
        parts = windows(trajectory, hybrid, (), last)
    with named_faults(trajectory, back=False):
        for first, end, smooth in parts:
            blocks = _over_window(trajectory, first, end, along, engine) if smooth else None
            if blocks is None:
                for direction in along:
                    for number in range(first, end):  # these name what is not finite
                        direction.step(number)
                continue
            for rows in blocks:
                for k, direction in enumerate(along):
                    direction.follow(rows[:, k])
        for direction in along:
            finite_vec(direction.du, "the tangent of the final state")
    return along


def _along_delays(
    trajectory: Trajectory,
    directions: Sequence[tuple[PETSc.Vec, PETSc.Vec | None]],
    last: int,
    *,
    keep: bool,
) -> list[ForwardDirection]:
    """Carry directions over a run of a delay equation, as a whole."""
    along = [ForwardDirection(trajectory, *pair, last, keep=keep) for pair in directions]
    tangents = program_of(trajectory).tangents(*direction_arrays(trajectory, directions))
    for k, direction in enumerate(along):
        direction.follow(tangents.du[1 : last + 1, :, k])
        finite_vec(direction.du, "the tangent of the final state")
    return along


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
    return push_columns(window, du, dp, last - first)


def _filled(trajectory: Trajectory, values: Array) -> PETSc.Vec:
    vec = trajectory.problem.create_state()
    write(vec, values)
    return vec
