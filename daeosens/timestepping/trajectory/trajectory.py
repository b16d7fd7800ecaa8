"""The log of accepted steps, which every derivative sweep follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import compress
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, overload
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.cost import At, Instant, Numbered, Point, Start, When
from daeosens.errors import (
    InputError,
    SolveError,
    UnsupportedError,
    is_one_of,
    is_real,
    is_whole,
    require,
)
from daeosens.io.hdf5 import block_of
from daeosens.methods.events.event_step import HybridStep, StepRecord
from daeosens.methods.step import Step, StepMap
from daeosens.petsc.ranks import agree
from daeosens.petsc.unpicklable import Undivided
from daeosens.petsc.vectors import Array, as_float, finite_array, read, write
from daeosens.problem.callback_guard import QUIET, unwrapped
from daeosens.problem.monitor import START
from daeosens.problem.problem import Problem
from daeosens.timestepping.step_times import inside_span
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.crossing import Crossing, table_of
from daeosens.timestepping.trajectory.labelled import labelled
from daeosens.timestepping.trajectory.states import (
    ReadOnlyStates,
    State,
    States,
    read_only,
    refuse_freed,
    rows_of,
    vectors_of,
    view_of,
)
from daeosens.timestepping.trajectory.store import SomeStates

Recording = Literal["states", "first stages", "stages", "memory", "disk"]
"""What a run leaves besides its states: nothing, those stages that take little memory, all that
memory is given to, or PETSc's own trajectory."""

Stages: TypeAlias = "dict[int, list[PETSc.Vec]]"
"""Stage states of a step, by its number."""


def by_step(kept: Stages | Array, states: Sequence[PETSc.Vec]) -> Stages:
    """Return the stages of steps from ``states`` as vectors.

    ``kept`` may be an array [K, s-1, n], those of the first K steps without their first one: what
    small systems leave, for which a vector costs more than a stage.
    """
    # vectors already, as large or distributed systems leave them
    if not isinstance(kept, np.ndarray):
        return kept
    stages: Stages = {}
    for number, (state, rows) in enumerate(zip(states, kept, strict=False)):
        vectors = [state.duplicate() for _ in rows]
        for vector, row in zip(vectors, rows, strict=True):
            write(vector, row)
        # the first stage of these methods is the state itself
        stages[number] = [state, *vectors]
    return stages


def stages_between(kept: Stages | Array, first: int, last: int) -> Stages | Array:
    """Return the stages of the steps from number ``first`` up to ``last``, counted from zero."""
    if isinstance(kept, np.ndarray):
        return kept[first:last]
    return {n - first: kept[n] for n in range(first, last) if n in kept}


STAGE_MEMORY = 2**28
"""Bytes a rank gives, at most, to the stages of a run, and to the adjoints of a sweep's stages."""

LITTLE_MEMORY = 2**23
"""Bytes that nobody is asked for: the stages of 20 000 steps of esdirk5 with eight unknowns."""

NO_STAGES = np.empty((0, 1, 1))
"""Those kept of no steps."""

Side = Literal["before", "after"]

Inside: TypeAlias = "Callable[[Trajectory, Sequence[tuple[int, float]]], list[PETSc.Vec]]"
"""``inside(run, [(n, t), ...])``: the states at times inside of steps, by the steps' numbers."""

FEW, SEEN = 1000, 10.0
"""Of up to so many unknowns a run tells which have stayed below this multiple of atol."""

NOTHING = 5e-32
"""Below this part of the largest unknown, rounding squared, is what is left of tails."""

HIT = 1e-6
"""A time within this part of a step from its end counts as reached."""


class Effort(NamedTuple):
    """What a run cost: accepted and rejected steps, Newton and linear iterations.

    ``remainder`` is the error, relative to the size of an unknown, that Newton's method may have
    left in the steps: its last change times the part of the residual that was left by it, the
    largest one of each step, summed over the steps.  0 where nothing is solved, or until rounding
    decides.
    """

    steps: int
    rejected: int
    newton_iterations: int
    linear_iterations: int
    remainder: float = 0.0

    def __add__(self, other: Effort) -> Effort:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return what two runs cost."""
        return Effort(
            self.steps + other.steps,
            self.rejected + other.rejected,
            self.newton_iterations + other.newton_iterations,
            self.linear_iterations + other.linear_iterations,
            self.remainder + other.remainder,
        )


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Trajectory(Undivided):
    """The log of accepted steps, which every derivative sweep follows.

    Attributes
    ----------
    times : array [N+1]
        Times of the states [time unit].
    step_sizes : array [N]
        Sizes of the accepted steps.
    stored : sequence of Vec [n]
        The N+1 states, as sweeps take them; ``states`` are the same for reading.
    p : array or Vec [m]
        Parameters of the run, at its start.
    crossings : tuple of Crossing
        The events, in order; each is a step of size 0.
    records : sequence of StepRecord
        What each step was, by its number; empty without events.
    kept : mapping or array
        Stage states of Runge-Kutta steps, where they were kept, as the run left them (``by_step``).
    report : object or None
        What the problem's monitor knows of the run: of a DAEO the optimisers, ``Branches``.  Of a
        delay equation ``DelayedSteps``.
    inside : callable or None
        See ``Inside``.
    n_steps : int
        Number N of steps in the log: those that ``print`` tells, and one of size 0 an event.
    thinned : bool
        Whether some states are taken again where they are asked for.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1), t_eval=[0.75])
    >>> run.at(0.75).array.round(5), run.u.shape
    (array([0.68729]), (22, 1))
    >>> run(0.7721).array.round(5)  # between two steps
    array([0.67974])
    >>> run
    Trajectory from t = 0 to 2: 21 steps of rk4 (0 rejected), h = 0.075 ... 0.1
    """

    _in_its_place: ClassVar[str] = (
        "timestepping.save_run(run, path) and load_run, or arrays: run.t, run.u"
    )

    problem: Problem
    p: Any
    stepping: Stepping
    times: Array
    step_sizes: Array
    stored: Sequence[PETSc.Vec]
    effort: Effort
    record: Recording
    kept: Stages | Array
    crossings: tuple[Crossing, ...]
    records: Sequence[StepRecord]
    recording: list[PETSc.TS]
    report: Any
    inside: Inside | None
    n_steps: int = field(init=False)
    thinned: bool = field(init=False)

    def __init__(
        self,
        problem: Problem,
        p: Any,
        stepping: Stepping,
        times: Array,
        step_sizes: Array,
        stored: Sequence[PETSc.Vec],
        effort: Effort,
        record: Recording = "states",
        kept: Stages | Array | None = None,
        *,
        crossings: tuple[Crossing, ...] = (),
        records: Sequence[StepRecord] = (),
        recording: list[PETSc.TS] | None = None,
        report: Any = None,
        inside: Inside | None = None,
    ) -> None:
        # made with each run: the constructor of a frozen dataclass takes a tenth of a short one
        vars(self).update(
            problem=problem,
            p=p,
            stepping=stepping,
            times=times,
            step_sizes=step_sizes,
            stored=stored,
            effort=effort,
            record=record,
            kept={} if kept is None else kept,
            crossings=crossings,
            records=records,
            recording=[] if recording is None else recording,
            report=report,
            inside=inside,
            n_steps=len(step_sizes),
            # ``isinstance`` of a Sequence takes three times as long
            thinned=type(stored) is SomeStates,
        )

    @property
    def n_stages(self) -> int:
        """Number of stages of all steps together."""
        return self.n_steps * self.stepping.resolved_method.n_stages

    @property
    def final(self) -> PETSc.Vec:
        """State [n] at the last time; can be read only (``copy`` is the caller's own).

        Collective where it is looked at first.
        """
        return self._view(self.n_steps)

    @property
    def states(self) -> Sequence[State]:
        """The N+1 states [n]; they can be read only (``copy`` is the caller's own).

        Each is collective where it is looked at first.
        """
        return ReadOnlyStates(self.stored, None if self.thinned else self._views)

    def _view(self, n: int) -> State:
        """Return state number n for reading: the same vector each time."""
        view = self._views.get(n)
        if view is None:
            view = self._views[n] = view_of(self.stored[n])
        return view

    @cached_property
    def _views(self) -> MutableMapping[int, State]:
        # Those of numbers last as long as somebody holds them.  Ranks together cannot drop theirs
        # by that: Python may free them on one rank earlier than on another.
        return WeakValueDictionary() if isinstance(self.stored, States) else {}

    @cached_property
    def stages(self) -> Stages:
        """Stage states of Runge-Kutta steps, where they were kept: sweeps need not find them."""
        return by_step(self.kept, self.stored)

    @cached_property
    def refined(self) -> dict[int, Callable[[StepMap], StepMap]]:
        """What makes, of the maps of steps that move with events, those with better running costs.

        By the numbers of steps; filled by those who locate kinks of costs.
        """
        return {}

    @cached_property
    def arrays(self) -> tuple[Array, Array, Array, Array]:
        """Times, sizes, states and the stages kept [K, s-1, n], as sweeps in C take them."""
        kept = self.kept if isinstance(self.kept, np.ndarray) else NO_STAGES
        return self.times, self.step_sizes, rows_of(self.stored), kept

    @cached_property
    def u(self) -> Array:
        """States as an array [N+1, n_local]: the rank's own rows of a distributed problem.

        It can be read only: ``180 / np.pi * run.u`` is the caller's own, as is ``run.u.copy()``.
        """
        refuse_freed(self.stored[0])
        return read_only(rows_of(self.stored))

    @cached_property
    def moving(self) -> frozenset[int]:
        """Numbers of the states whose times are those of implicit events."""
        moving: set[int] = set()
        for crossing in self.crossings:
            n = crossing.step
            # one that follows an implicit event at the same instant moves with it
            # ``ends_at`` is the event function whose root the step before ends at
            if n in moving or (n and self.records[n - 1].ends_at is not None):
                moving |= {n, n + 1}
        return frozenset(moving)

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """Numbers of the first and the last state of each piece of a run without events."""
        if not self.crossings:  # asked for after each run
            return [(0, self.n_steps)] if self.times.item(-1) > self.times.item(0) else []
        at = [crossing.step for crossing in self.crossings]
        ends = zip([0, *(n + 1 for n in at)], [*at, self.n_steps], strict=True)
        return [pair for pair in ends if self.times[pair[1]] > self.times[pair[0]]]

    def point(self, t: When) -> Point:
        """Return (t, u, p) at a step time or event, as scalars of costs take them."""
        return self.point_at(self.index(t))

    def point_at(self, n: int) -> Point:
        """Return (t, u, p) at state number n."""
        n = self._counted(n, len(self.times))
        return self.times.item(n), self.stored[n], self.parameters(n)

    def step(self, n: int) -> Step:
        """Return step number n as sweeps take it: the one from the n-th state to the next."""
        n = self._counted(n, self.n_steps)
        t, h = self.times.item(n), self.step_sizes.item(n)
        return Step(t, h, self.stored[n], self.stored[n + 1], self.p, n)

    def _counted(self, n: int, count: int) -> int:
        """Return the number of one of so many, negative ones counted from the end."""
        if type(n) is int and 0 <= n < count:  # as in sweeps, at each step
            return n
        if not (is_whole(n) and -count <= n < count):
            raise InputError(f"n = {n!r}", expected=f"a number from 0 to {count - 1}")
        return int(n) % count

    def index(self, t: When, side: Side | None = None) -> int:
        """Return the number of the step time that equals ``t``, or of the state at an event.

        Where an event happens at ``t`` the side says which state is meant; at the final time it is
        the one after it, unless said otherwise, and at the first time the one before an event that
        moves with the parameters.

        Raises
        ------
        InputError
            No step ended there: the nearest times and the remedy are named.  An event happens there
            and no side is given.
        SolveError
            The event did not happen so often.  One happens just at ``t``, but moves with the
            parameters, and no side is given, or none that steps ended at.
        """
        if isinstance(t, float) and side is None and not self.crossings:
            # without events times increase strictly, so that a binary search finds the only
            # candidate; fits ask for thousands
            k = int(self.times.searchsorted(t))
            if k <= self.n_steps and self.times.item(k) == t:
                return k
        if isinstance(t, Start):
            return 0
        if isinstance(t, Numbered):
            return t.number
        if isinstance(t, Instant):
            t, side = t.t, t.side
        if isinstance(t, At):
            steps = [crossing.step for crossing in self.crossings if crossing.name == t.event]
            if not -len(steps) <= t.number < len(steps):
                raise SolveError(
                    f'event "{t.event}" happened {len(steps)} times, number {t.number} is wanted',
                    expected="so many events that it exists (the first one is number 0)",
                    remedy="a longer run, or another start",
                )
            return steps[t.number] + t.after
        if not is_real(t) or not math.isfinite(as_float(t)):
            raise InputError(f"t = {t!r}", expected="a time")
        if side is not None and not is_one_of(side, "before", "after"):
            raise InputError(f"side = {side!r}", expected='"before" or "after"')
        t = as_float(t)
        # with events two states share a time, and rounding may have moved t: the nearest is judged
        # by how far it is from its step's end
        k = int(np.argmin(np.abs(self.times - t)))
        step = self.step_sizes[min(max(k - 1, 0), self.n_steps - 1)]
        if abs(self.times[k] - t) > 1e-14 * abs(t) + HIT * step:
            raise InputError(
                f"t = {t:.9g} is not a step time (the nearest is {self.times[k]:.9g})",
                expected="a time that a step ended at",
                remedy="solve(..., t_eval=[...]) with this time, or t_eval=objective.times",
            )
        there = [crossing for crossing in self.crossings if abs(crossing.t - t) <= self._rounding]
        return self._at_events(there, t, side) if there else k

    @property
    def _rounding(self) -> float:
        """Times that differ by less are one."""
        return 1e-14 * max(abs(self.times[0]), abs(self.times[-1]))

    def _at_events(self, there: Sequence[Crossing], t: float, side: Side | None) -> int:
        """Return the number of the state before or after the events that happen at ``t``."""
        names = " and ".join(f'"{crossing.name}"' for crossing in there)
        moves = any(crossing.step in self.moving for crossing in there)
        if side is None and all(crossing.name == START for crossing in there):
            side = "after"  # before it the state was not complete
        if side is None and (t >= self.times[-1] or (moves and t <= self.times[0])):
            return self.n_steps if t >= self.times[-1] else 0
        if side is None and not moves:
            raise InputError(
                f"t = {t:.9g} is the time of event {names}, where the state jumps",
                expected='side="before" or side="after"',
                remedy="LeastSquares(..., side=...), or at(t, side=...)",
            )
        # several events at one instant are steps of size 0 in a row: before the first, after the
        # last
        n = there[0].step if side == "before" else there[-1].step + 1
        if moves and side is not None:  # the state beside, at the time that does not move
            n += -1 if side == "before" else 1
            within = 0 <= n <= self.n_steps and n not in self.moving
            if within and abs(self.times[n] - t) <= self._rounding:
                return n
        if moves:
            unmet = "" if side is None else f', and no step ends {side} it: side="{side}"'
            raise SolveError(
                f"t = {t:.9g} is the time of event {names}, which moves with the parameters{unmet}",
                expected="a state of which one can say whether the event has happened",
                remedy='LeastSquares(..., side="before") or "after", with the time in t_eval and '
                'no "midpoint" with a mass; AtEvent or EventData for what happens at the event',
            )
        return n

    @overload
    def at(self, t: When, side: Side | None = None) -> PETSc.Vec: ...
    @overload
    def at(self, t: Sequence[float] | npt.NDArray[Any], side: Side | None = None) -> Array: ...
    def at(
        self, t: When | Sequence[float] | npt.NDArray[Any], side: Side | None = None
    ) -> PETSc.Vec | Array:
        """Return the state [n] at a step time, or the states at several as an array [K, n_local].

        A state can be read only; its ``copy()`` is the caller's own, as is the array.  Collective
        where a state is looked at first.

        Raises
        ------
        InputError, SolveError
            As for ``index``.
        """
        if isinstance(t, (list, tuple)) or (isinstance(t, np.ndarray) and t.ndim == 1):
            numbers = [self.index(time, side) for time in t]
            return np.array([read(self.stored[n]) for n in numbers]).reshape(
                len(numbers), self.problem.state.local_size
            )
        return self._view(self.index(t, side))  # pyright: ignore[reportArgumentType]

    @overload
    def __call__(self, t: float, side: Side = "after") -> PETSc.Vec: ...
    @overload
    def __call__(self, t: Sequence[float] | npt.NDArray[Any], side: Side = "after") -> Array: ...
    @QUIET
    @unwrapped
    def __call__(
        self, t: float | Sequence[float] | npt.NDArray[Any], side: Side = "after"
    ) -> PETSc.Vec | Array:
        """Return the state [n] at any time of the run, or at several as an array [K, n_local].

        Between the ends of steps that is one more step of the method, from the end before: of the
        method's order, for every method.  Each such time costs a step.  Collective.

        Parameters
        ----------
        t : float, or array_like [K]
            Times in any order, not before the start of the run or after its end.
        side : "before" or "after"
            Which state is meant at the time of an event.

        Raises
        ------
        InputError
            A time outside of the run; another side.
        SolveError
            Newton's method failed.

        Examples
        --------
        >>> from daeosens import ODE, Stepping, solve
        >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
        >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.5))
        >>> run([0.0, 0.3, 1.9]).round(4).ravel()
        array([1.    , 0.8607, 0.3868])
        """
        if not is_one_of(side, "before", "after"):
            raise InputError(f"side = {side!r}", expected='"before" or "after"')
        times = finite_array(t, "t")
        agree(self.problem.comm, "run(t)", t=times, side=side)
        if times.ndim > 1:
            raise InputError(f"t has shape {times.shape}", expected="a time, or shape (K,)")
        span = (float(self.times[0]), float(self.times[-1]))
        # as ``t_eval``: what rounding alone tells from an end of the run is that end
        inside = inside_span(span, np.atleast_1d(times), "t =").tolist()
        numbers = [self._number(time, side) for time in inside]
        on_steps = [self.times[n] == time for n, time in zip(numbers, inside, strict=True)]
        # only times inside of steps cost an evaluation, and all of these are asked for together
        between = list(compress(zip(numbers, inside, strict=True), np.logical_not(on_steps)))
        assert self.inside is not None
        others = iter(self.inside(self, between))
        states = [
            self._view(n) if there else view_of(next(others))
            for n, there in zip(numbers, on_steps, strict=True)
        ]
        if not times.ndim:
            return states[0]
        rows = [read(state) for state in states]
        return np.array(rows).reshape(len(rows), self.problem.state.local_size)

    def _number(self, t: float, side: Side) -> int:
        """Return the number of the state at a time, or of the last one before it."""
        if side == "before":  # steps of size 0 are jumps
            # states at one time are in a row: the leftmost is that before all events there
            n = int(np.searchsorted(self.times, t, side="left"))
            if self.times[n] == t:
                return n
        return int(np.searchsorted(self.times, t, side="right")) - 1

    @property
    def first_mode(self) -> str:
        """The mode in which the run began; empty where there is one only."""
        if self.crossings and self.crossings[0].step == 0:
            return self.crossings[0].mode_before
        mode = self.records[0].mode if self.records else self.problem.mode
        assert isinstance(mode, str)  # a function of the state only in runs with records
        return mode

    def parameters(self, n: int) -> Any:
        """Return the parameters [m] at the n-th state: events may have changed them."""
        n = self._counted(n, len(self.times))
        if not self.crossings:
            return self.p
        # each event notes the parameters that hold after it: the last one before state n counts
        changed = [crossing.p for crossing in self.crossings if crossing.step < n]
        return changed[-1] if changed else self.p

    def equations(self, n: int) -> tuple[Problem, Any]:
        """Return the equations of the mode in which step number n was taken, and its parameters."""
        if not self.records:
            return self.problem.modes.get(self.first_mode, self.problem), self.p
        record = self.records[n]
        return self.problem.modes.get(record.mode, self.problem), record.p

    def to_xarray(self) -> Any:
        """Return the states as an ``xarray.Dataset``; of a distributed problem the rank's own part.

        Unknowns with names are variables of time, other states one variable "u" of time and number
        of the unknown, or of z, y, x and component on a grid.  Numbers among the parameters are
        attributes.  For NetCDF: ``run.to_xarray().to_netcdf("run.nc", engine="h5netcdf")``.

        Returns
        -------
        xarray.Dataset

        Raises
        ------
        DaeosensError
            xarray is not installed.

        Examples
        --------
        >>> from daeosens import ODE, Stepping, solve
        >>> decay = ODE(lambda t, u, p: -p[0] * u, size=["mass"], parameters=["rate"])
        >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.5))
        >>> run.to_xarray()["mass"].sel(time=1.5).item() == run.at(1.5).array.item()
        True
        """
        problem = self.problem
        names = problem.parameter_names
        numbers = zip(names, self.p, strict=True) if names else ()
        return labelled(
            self.times,
            rows_of(self.stored),
            block_of(problem.state),
            problem.state_names,
            {name: float(value) for name, value in numbers},
            str(self).splitlines()[0],
        )

    def destroy(self) -> None:
        """Free this rank's part of the vectors now; otherwise done when the object is dropped.

        Not collective in that nobody waits; the run is of no use any more, on any rank.
        """
        made: Stages = vars(self).get("stages", {})
        views: MutableMapping[int, State] = vars(self).get("_views", {})
        stages = made if isinstance(self.kept, np.ndarray) else self.kept
        for vec in (
            *views.values(),
            *vectors_of(self.stored),  # a state that no one has asked for has no vector
            *(vec for kept in stages.values() for vec in kept),
        ):
            vec.destroy()
        stages.clear()
        vars(self).pop("u", None)
        while self.recording:
            self.recording.pop().destroy()

    def __repr__(self) -> str:
        """Return what was run, with a table of its events; not collective."""
        first, last = self.times[0], self.times[-1]
        sizes = self.step_sizes[self.step_sizes > 0.0]
        told = f"auto: {self.stepping.choice}; " if self.stepping.choice else ""
        return (
            f"Trajectory from t = {first:g} to {last:g}: {self.effort.steps} steps of "
            f"{self.stepping.method} ({told}{self.effort.rejected} rejected), "
            f"h = {sizes.min():.3g} ... {sizes.max():.3g}"
            + self._kept_states()
            + (f"; {self.problem.differences}" if self.problem.differences else "")
            + (f"\n{table_of(self.crossings, self.problem)}" if self.crossings else "")
            + "".join(f"\n{line}" for line in (*self._outside(), *self._uncontrolled()))
        )

    def _kept_states(self) -> str:
        """Return how many states are in memory, if not all of them are."""
        if not isinstance(self.stored, SomeStates) or len(self.stored.made) == len(self.stored):
            return ""
        return f"; keeps {len(self.stored.made)} of {len(self.stored)} states"

    def _uncontrolled(self) -> Iterator[str]:
        """Yield which unknowns the error control has not seen."""
        unseen = unseen_unknowns(self)
        if unseen is not None:
            level = SEEN * self.stepping.tolerances[1]
            yield (
                f"not seen by the error control: unknowns {unseen[0]} stay below {SEEN:g} atol "
                f"= {level:.3g}; try: atol={unseen[1]:.0e}"
            )

    def _outside(self) -> Iterator[str]:
        """Yield what to know of events at times that are parameters, but not of the span."""
        names, (first, last) = self.problem.parameter_names, self.stepping.t_span
        happened = {crossing.name for crossing in self.crossings}
        for event in self.problem.events:
            if event.delay is not None and event.name not in happened:
                begin, name = event.delay
                t = begin + float(self.p[names.index(name)])
                if not first <= t <= last:
                    told = f"{begin:g} + {name}" if begin else name
                    yield (
                        f'event "{event.name}" did not happen: {told} = {t:g} lies outside '
                        f"[{first:g}, {last:g}], and nothing depends on it"
                    )


def steps_of(trajectory: Trajectory) -> StepMap:
    """Return the step map that took a trajectory's steps, with work space for one sweep.

    Raises
    ------
    UnsupportedError
        Steps of a delay equation, which depend on more than the state before them.
    """
    if trajectory.problem.delays is not None:
        raise UnsupportedError(
            "single steps of a delay equation, which look at earlier ones",
            expected="sweeps over its whole run: adjoint, tangent, hessian_product",
        )
    method, options = trajectory.stepping.resolved_method, trajectory.stepping.options
    problem = trajectory.problem
    modes = problem.modes or {"": problem}
    # each mode has its own equations, so its own linearised steps
    maps = {name: method.step_map(mode, options, trajectory.stages) for name, mode in modes.items()}
    if not trajectory.crossings:
        return maps[trajectory.first_mode]
    # maps of steps of size 0, differentiated in that size: made for modes in which events meet
    at_once = cache(lambda name: method.instant_map(modes[name], options))
    speeds, refined = partial(speeds_of, trajectory), trajectory.refined
    return HybridStep(problem, trajectory.records, maps, at_once, speeds, refined)


def speeds_of(trajectory: Trajectory) -> Array:
    """Return the largest |u| of the states in memory over the span [n], of this rank's unknowns.

    Parts of these speeds tell what is slow, in any units.
    """
    stored, (first, last) = trajectory.stored, trajectory.stepping.t_span
    if isinstance(stored, States):
        return np.abs(stored.rows).max(axis=0) / (last - first)
    peaks = np.zeros(stored[0].getLocalSize())
    for state in vectors_of(stored):
        np.maximum(peaks, np.abs(read(state)), out=peaks)
    return peaks / (last - first)


def check_trajectory(trajectory: object) -> None:
    """Refuse what is no run, a problem for instance, and a run of which the states are gone.

    Raises
    ------
    InputError
        Names its type; it has been freed.
    """
    if not isinstance(trajectory, Trajectory):
        expected = "solve(problem, u0, p, stepping), which makes it"
        require(trajectory, Trajectory, "trajectory", expected)
    elif not trajectory.stored[0].handle:
        refuse_freed(trajectory.stored[0])


def unseen_unknowns(run: Trajectory) -> tuple[str, float] | None:
    """Return which unknowns the error control has not seen, and an ``atol`` by which it would.

    None where there are none, and of many unknowns or on several processors.
    """
    if not run.stepping.adaptive or run.problem.comm.size > 1 or run.problem.size > FEW:
        return None
    # errors are measured beside atol + rtol |u|: of an unknown much below atol nothing is
    # controlled
    peaks, (_, atol) = np.abs(run.u).max(axis=0), run.stepping.tolerances
    small = np.flatnonzero((peaks > NOTHING * peaks.max()) & (peaks < SEEN * atol))
    if not small.size:
        return None
    names = run.problem.state_names or range(run.problem.size)
    listed = ", ".join(str(names[k]) for k in small[:6])
    return listed + (", ..." if small.size > 6 else ""), 1e-3 * float(peaks[small].min())
