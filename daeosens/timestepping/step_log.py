"""The log of one smooth run while TS runs: accepted steps, and where steps have to end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.petsc._kernels import Steps, stages
from daeosens.petsc.vectors import Array, is_finite, read
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.states import States
from daeosens.timestepping.trajectory.stay import DROPPED, Stay
from daeosens.timestepping.trajectory.trajectory import Stages

Watch: TypeAlias = "Callable[[float, PETSc.Vec, float, PETSc.Vec], bool]"
"""``watch(t, u, t_next, u_next)`` after each accepted step: whether the run is to end there."""

TakeAgain: TypeAlias = "Callable[[float, float, PETSc.Vec], None]"
"""``take_again(t, h, u)``: a failed step again, by callbacks that note what is not finite."""

STALL, PATIENCE = 1e-14, 100
"""So many steps in a row below such a part of the time that has passed lead nowhere.

Fifty times the rounding of times: an earthquake of a second, after thirty years, has hundreds of
steps of 1e-13."""

NO_BREAKPOINTS = np.empty(0)

FLAT = 1000
"""Up to how many unknowns a vector for each state and stage costs more than they do."""


class StepLog:
    """Collects accepted steps, sets the size of the next one, and asks whether to stop.

    PETSc's evaluation times are not used: PETSc 3.26 cannot be rid of them again, keeps a step size
    for them from one run to the next, and stores a state for each.

    Parameters
    ----------
    problem : Problem
        What is run.
    start : Vec [n]
        The first state; kept as it is, not copied.
    ends : sequence of float
        Increasing times that steps have to end at; the last one ends the run.
    dt : float or None
        Size of fixed steps; None where an error estimate chooses.
    restarts : bool
        Whether the method keeps a rate that is worthless behind a breakpoint.
    stage_memory : int
        Bytes a rank that copies of the stages of the first steps may take.
    watch : callable, optional
        See ``Watch``.
    take_again : callable, optional
        See ``TakeAgain``; for functions in C that note nothing.
    prescribed : sequence of float
        Sizes of the steps of a run that is taken again.
    stay : Stay, optional
        Which states stay; all if it is not given.
    offset : int
        Number of the first state, by which those that stay are known.
    """

    def __init__(
        self,
        problem: Problem,
        start: PETSc.Vec,
        ends: Sequence[float],
        dt: float | None,
        *,
        restarts: bool,
        stage_memory: int,
        watch: Watch | None = None,
        take_again: TakeAgain | None = None,
        prescribed: Sequence[float] = (),
        stay: Stay | None = None,
        offset: int = 0,
    ) -> None:
        self._problem = problem
        self._ends = ends
        breakpoints = NO_BREAKPOINTS
        if restarts and problem.breakpoints:
            breakpoints = np.array(problem.breakpoints, dtype=float)
        self._steps = Steps(ends, dt, STALL, PATIENCE, breakpoints, prescribed)
        self._keep_stages, self._stage_memory = stage_memory > 0, stage_memory
        self._watch = watch
        self._take_again = take_again
        self._stages: list[list[PETSc.Vec]] = []
        self._flat_stages: Array | None = None
        self._states: list[PETSc.Vec] = [start]
        self._logged: States | None = None
        self._flat = problem.comm.size == 1 and problem.size <= FLAT and problem.stencil is None
        # whether ``after_step`` notes states as numbers; who watches sees vectors, and runs with
        # events keep these
        self._rows = self._flat and stay is None and watch is None
        self.stopped = False
        self._stay, self._offset = stay, offset
        if stay is not None:
            stay.watch(self._states, offset, set())

    def before_step(self, ts: PETSc.TS) -> None:
        """Cut the step that TS is about to take where it would pass one of the ends."""
        t, proposed = ts.getTime(), ts.getTimeStep()
        h = self._steps.choose(t, proposed)
        if h != proposed:
            ts.setTimeStep(h)
        if self._steps.stalled:
            raise self._shrunk(t)
        # what is not finite in a trial that was refused is no fault of the run; while steps shrink
        # it is kept, to be named when they have stalled
        if self._problem.faults and not self._steps.stalling:
            self._problem.faults.clear()  # of trials before
        if self._steps.enters_piece(t, h):
            ts.restartStep()  # the last rate of the step before belongs to the other side

    def after_step(self, ts: PETSc.TS, step: int, t: float, u: PETSc.Vec) -> None:
        """Note a state; the first one is there already."""
        if self._watch is None or not step:  # otherwise ``consider_stopping`` has looked at it
            self._check_progress(ts, t)
            self._check_finite(step, t, u)
        self._steps.note(t)
        if self._rows:
            self._note_flat(ts, step, u)
            return
        if not step:
            return
        self._states.append(u.copy())
        if self._stay is not None:
            self._stay.note(self._states, self._offset)
        if self._keep_stages:
            vectors = stages(ts)[1:]  # the first one is the state before the step
            # the first steps keep their stages as far as memory goes; sweeps compute the others
            # again
            if (len(self._stages) + 1) * len(vectors) <= self._room_for_stages():
                self._stages.append([self._states[-2], *(stage.copy() for stage in vectors)])

    def _note_flat(self, ts: PETSc.TS, step: int, u: PETSc.Vec) -> None:
        """Note a state and its stages as numbers: vectors take some 2000 bytes each."""
        self._steps.note_state(u)
        if self._keep_stages and step:
            self._steps.note_stages(ts, self._room_for_stages())

    @property
    def states(self) -> Sequence[PETSc.Vec]:
        """The states up to now [n]; copies of them while they are noted as numbers."""
        if self._logged is not None:
            return self._logged
        if self._rows:
            return States(self._steps.flat_states(self._problem.size), self._states[0], of_run=True)
        return self._states

    def finish(self) -> None:
        """Take over what ``after_step`` has logged as numbers."""
        if not self._rows:
            return
        size = self._problem.size
        if self._keep_stages:
            self._flat_stages = self._steps.flat_stages(size)
        self._logged = States(self._steps.take_flat_states(size), self._states[0], of_run=True)

    def consider_stopping(self, ts: PETSc.TS) -> None:
        """End the run if it was asked for (PETSc 3.26: a monitor's reason is forgotten)."""
        assert self._watch is not None
        t, u = ts.getTime(), ts.getSolution()
        if not is_finite(u):
            raise self._not_finite(len(self.states), t)
        self._check_progress(ts, t)
        reason: Any = ts.getConvergedReason()
        if reason < 0:  # a failed step comes by too
            return
        if self._watch(self.last_time, self._states[-1], t, u):
            self.stopped = True
            reasons = PETSc.TS.ConvergedReason
            ts.setConvergedReason(reasons.CONVERGED_USER)  # type: ignore[arg-type]

    def attach(self, ts: PETSc.TS, on_first_step: Callable[[], None]) -> None:
        """Let TS log without Python, in place of ``before_step`` and ``after_step``.

        See ``Steps.attach``.
        """
        room = self._room_for_stages() if self._keep_stages else 0
        self._rows = False
        stay = self._stay
        if stay is None:
            self._steps.attach(ts, on_first_step, room, self._flat)
            return
        most = 0 if stay.numbers is not None else stay.most
        self._steps.attach(ts, on_first_step, 0, self._flat, most, stay.numbers)

    @property
    def failed(self) -> bool:
        """Whether steps that TS logged led nowhere, or to a state that is not finite."""
        return self._steps.shrunk is not None or self._steps.not_finite is not None

    def detach(self, ts: PETSc.TS) -> None:
        """Take over what TS has logged since ``attach``.

        Raises
        ------
        SolveError
            As ``before_step`` and ``after_step``.
        """
        steps = self._steps
        steps.detach(ts)
        size = self._problem.size
        if self._stay is not None:
            self._take_thinned()
        elif self._flat:
            self._logged = States(steps.take_flat_states(size), self._states[0], of_run=True)
        else:
            self._states += steps.take_states()
        if self._keep_stages and self._flat:
            self._flat_stages = steps.flat_stages(size)
        elif self._keep_stages:
            later = steps.take_stages()
            pairs = zip(self._states, later, strict=False)
            self._stages = [[first, *rest] for first, rest in pairs]
        if steps.error is not None:
            raise steps.error
        if steps.shrunk is not None:
            raise self._shrunk(steps.shrunk)
        if steps.not_finite is not None:
            t, step = steps.not_finite
            raise self._not_finite(step, t)

    def _take_thinned(self) -> None:
        """Take the states over that stayed, each at its place."""
        steps, numbers = self._steps, self._steps.numbers().tolist()
        start = self._states[0]
        vecs = steps.take_states()
        if self._flat:
            rows = States(steps.take_flat_states(self._problem.size), start)
            vecs = [rows[k] for k in range(1, len(rows))]
        self._states += [DROPPED] * (numbers[-1] if numbers else 0)
        for number, vec in zip(numbers, vecs, strict=False):
            self._states[number] = vec

    def _room_for_stages(self) -> int:
        """Return how many stages are kept; the same on every rank."""
        return self._stage_memory * self._problem.comm.size // (8 * self._problem.size)

    def stages(self) -> Stages | Array:
        """Return what was kept, by number; of the first steps only if memory did not suffice."""
        if self._flat_stages is not None and self._flat_stages.size:
            return self._flat_stages
        if not self._stages:
            return {}
        return dict(enumerate(self._stages))

    @property
    def asks(self) -> bool:
        """Whether states go to a file on the way, or it is asked of each where it stays."""
        stay = self._stay
        return stay is not None and (stay.scratch is not None or stay.place is not None)

    @property
    def begun(self) -> bool:
        """Whether TS has come as far as its first step."""
        return self._steps.last_time is not None

    @property
    def last_time(self) -> float:
        """Time of the last state."""
        assert self._steps.last_time is not None
        return self._steps.last_time

    @property
    def last_size(self) -> float:
        """Size of the last step that was tried."""
        return self._steps.last_size

    def times(self) -> Array:
        """Return the times [N+1]."""
        return self._steps.times()

    def step_sizes(self) -> Array:
        """Return the sizes [N]: h with t + h the next time, that tried or else the difference."""
        return self._steps.sizes()

    def fault(self) -> str:
        """Return what callbacks on any rank gave that is not finite, for a message.  Collective."""
        if self._take_again is not None and self.begun:
            self._take_again(self.last_time, self._steps.last_size, self.states[-1])
        mine = self._problem.faults[0] if self._problem.faults else ""
        messages = [text for text in self._problem.comm.tompi4py().allgather(mine) if text]
        return f": {messages[0]}" if messages else ""

    def _check_progress(self, ts: PETSc.TS, t: float) -> None:
        if t != self._steps.last_time:
            return
        reason: Any = ts.getConvergedReason()
        if reason >= 0:  # a failed step comes by too
            raise self._shrunk(t)

    def _check_finite(self, step: int, t: float, u: PETSc.Vec) -> None:
        if is_finite(u):
            return
        raise self._not_finite(step, t)

    def _not_finite(self, step: int, t: float) -> SolveError:
        return SolveError(
            f"the state is not finite at t = {t:.9g} (step {step}){self.fault()}",
            expected=f"a finite state up to t = {self._ends[-1]:g}",
            remedy="a smaller dt, or an implicit method (cn, beuler) if the problem is stiff",
        )

    def _become_negative(self) -> str:
        """Return numbers of unknowns that have become negative, for a message.  Collective."""
        # of concentrations and the like: a root or a power of a negative number is the usual cause
        first, last = read(self.states[0]), read(self.states[-1])
        begin, _ = self.states[0].getOwnershipRange()
        own = (begin + np.flatnonzero((first >= 0.0) & (last < 0.0)))[:6].tolist()
        every = [k for part in self._problem.comm.tompi4py().allgather(own) for k in part]
        return ", ".join(map(str, every[:6])) + (", ..." if len(every) > 5 else "")

    def _shrunk(self, t: float) -> SolveError:
        """Return what is wrong where steps become smaller and smaller."""
        tried = self._steps.last_size
        h = tried if self._steps.stalled else min(tried, math.ulp(t))  # too small to change t
        reason = self.fault() or ": the estimated error does not fall with them"
        negative, remedy = self._become_negative(), ""
        if negative:
            reason += f"; unknowns {negative} began at or above zero and are below it now"
            remedy = (
                "equations that keep them there, np.maximum(u, 0.0) in powers, roots and "
                "coefficients of diffusion, which have no smooth solution beyond a front where "
                "they vanish; "
            )
        return SolveError(
            f"steps have shrunk to {h:.3g} at t = {t:.9g}{reason}",
            expected="an error that steps can control, a solution that does not blow up, or leave "
            "the domain of the equations, before the end",
            remedy=f"{remedy}larger rtol and atol, breakpoints where the equations jump, a lower "
            "level of an event that ends a growth without bound, or, with algebraic variables, a "
            "start from consistent_state, and of constraints with an index above one the "
            "derivatives in time",
        )
