"""Time integration by PETSc TS."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from petsc4py import PETSc

from daeosens.methods.linear_solver import linear_solver
from daeosens.petsc._kernels import DENSE, take_remainder
from daeosens.petsc.vectors import Array
from daeosens.problem.implicit_matrix import SystemMatrix
from daeosens.problem.problem import Problem
from daeosens.timestepping.c_rhs import compiled_fault, note_cause, raise_fault
from daeosens.timestepping.first_step import judged, starting
from daeosens.timestepping.preflight import refuse_unsound_steps
from daeosens.timestepping.run_failures import RunFailures
from daeosens.timestepping.step_log import StepLog, Watch
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.stay import Stay
from daeosens.timestepping.trajectory.trajectory import (
    LITTLE_MEMORY,
    STAGE_MEMORY,
    Effort,
    Recording,
    Stages,
    stages_between,
)
from daeosens.timestepping.trial_step import SingleSteps
from daeosens.timestepping.ts_cache import (
    LentTS,
    ReusableTS,
    prepared_ts,
)
from daeosens.timestepping.ts_defaults import estimates_below

STAGES: Mapping[Recording, int] = {"first stages": LITTLE_MEMORY, "stages": STAGE_MEMORY}
"""Bytes a rank that stages of a run may take."""


class Run(NamedTuple):
    """What TS gave: the log of one smooth run."""

    times: Array
    sizes: Array
    states: Sequence[PETSc.Vec]
    kept: Stages | Array
    effort: Effort
    recording: list[PETSc.TS]

    def first_steps(self, count: int) -> Run:
        """Return the run of the first steps alone; the others count as rejected."""
        rejected = self.effort.rejected + len(self.sizes) - count
        return self._replace(
            times=self.times[: count + 1],
            sizes=self.sizes[:count],
            states=self.states[: count + 1],
            kept=stages_between(self.kept, 0, count),
            effort=self.effort._replace(steps=count, rejected=rejected),
        )


def refuse_undetermined(problem: Problem, stepping: Stepping, run: Run, p: Any) -> None:
    """Refuse a run at rest whose steps have a singular matrix, as those of 0 u' = 0.  Collective.

    Where u' = 0 solves the equations to the last digit Newton's method makes no iteration, and
    nobody has looked at the matrix.

    Raises
    ------
    SingularMatrixError
        No unique solution.
    """
    if (
        problem.form == "rhs"
        or problem.coloring
        or run.effort.newton_iterations
        or not run.sizes.size
    ):
        return
    t, u, rest = float(run.times[0]), run.states[0], problem.create_state()
    t = problem.inside(t, t, float(run.sizes[0]))
    # the matrix of an implicit step is F_u + s F_udot with a shift s of about 1/h; its
    # factorisation says whether it is singular
    system = SystemMatrix(problem.residual_u, problem.residual_udot, t, u, rest, p)
    matrix = system.fill(t, u, rest, p, 1.0 / float(run.sizes[0]))
    linear_solver(matrix, stepping.options, dm=problem.dm).destroy()


@contextmanager
def repeating(problem: Problem, p: Any, stepping: Stepping, state: PETSc.Vec) -> Generator[Runner]:
    """Provide a runner for steps of prescribed sizes; ``state`` [n] is one of the run."""
    with taking_part(problem, p, prescribed(stepping), state) as runner:
        yield runner


def prescribed(stepping: Stepping) -> Stepping:
    """Return how steps of a run are taken again: one for all parts, whose sizes are prescribed."""
    first, last = stepping.t_span
    return replace(
        stepping,
        dt=last - first,
        rtol=None,
        atol=None,
        max_step=None,
        control="states",
        t_eval=(),
    )


@contextmanager
def taking_part(
    problem: Problem, p: Any, stepping: Stepping, state: PETSc.Vec, *, more: bool = False
) -> Generator[Runner]:
    """Provide a runner for a part of a run, by the ``prescribed`` stepping of all parts.

    If ``more`` follow, its TS waits for them even where the problem is large: ``drop_idle`` ends
    that.
    """
    with LentTS(problem, state, p, stepping, "states", large=more) as ready:
        yield Runner(problem, stepping, "states", ready)


class Runner:
    """A TS that takes any number of smooth runs of one problem, one after the other.

    Made by ``made_runner``.  A run remembers nothing of the one before: steps, rates of methods
    whose last stage is the next step's first, and error estimates start anew.
    """

    def __init__(
        self, problem: Problem, stepping: Stepping, record: Recording, ready: ReusableTS
    ) -> None:
        self._problem = problem
        self._stepping = stepping
        self._record: Recording = record
        self._ready = ready
        self._ts = ready.ts
        self._watched = False
        self.first_step = ready.first_step
        # a tableau: the method has an error estimate for its first step, and a last rate to forget
        self._staged = stepping.resolved_method.tableau is not None

    @cached_property
    def short_step(self) -> float:
        """A step over which event functions are taken for linear."""
        return self.first_step if self._first_step_is_given else self._stepping.short_step

    @property
    def _first_step_is_given(self) -> bool:
        """Whether PETSc's options have said the first step."""
        return self.first_step != self._stepping.first_step

    @cached_property
    def _single_steps(self) -> SingleSteps:
        return SingleSteps(self._problem, self._stepping, self._ready)

    @property
    def _failures(self) -> RunFailures:
        return RunFailures(self._problem, self._stepping, self._ts, self._single_steps)

    def run(
        self,
        start: PETSc.Vec,
        span: tuple[float, float],
        pinned: Sequence[float],
        first_step: float | None = None,
        watch: Watch | None = None,
        *,
        taken: int = 0,
        most: int | None = None,
        stay: Stay | None = None,
        offset: int = 0,
    ) -> Run:
        """Run from ``start`` [n], which becomes the first state of the log, over ``span``.

        Parameters
        ----------
        start : Vec [n]
            The start; not changed.
        span : (float, float)
            First and last time.
        pinned : sequence of float
            Increasing times that steps hit.
        first_step : float, optional
            Size of the first step, or of the first one tried.
        watch : callable, optional
            ``watch(t, u, t_next, u_next) -> bool`` after each step: whether to end the run there.
        taken : int
            Steps taken before, of the ``max_steps`` of the Stepping.
        most : int, optional
            So many steps are enough, wherever they end.
        stay : Stay, optional
            Which states stay; all if it is not given.
        offset : int
            Number of the first state, by which those that stay are known.

        Raises
        ------
        InputError, SolveError
            As ``solve``.
        """
        problem, stepping, ready, ts = self._problem, self._stepping, self._ready, self._ts
        refuse_unsound_steps(problem, stepping, span, start, self.p)
        first, last = span
        stops = [time for time in pinned if first < time < last]
        stops.append(last)
        # functions of a grid's points in C do not look at what they give
        unwatched = ready.in_c and problem.stencil is not None
        log = StepLog(
            problem,
            start,
            stops,
            ready.fixed_size,
            restarts=self._staged,
            stage_memory=STAGES.get(self._record, 0) if self._staged else 0,
            watch=watch,
            take_again=self._single_steps.take_again if unwatched else None,
            stay=stay,
            offset=offset,
        )
        # PETSc's options may end a run earlier
        ts.setMaxTime(min(last, ready.max_time))
        # ``max_steps`` is that of the whole run, whose earlier pieces have used some
        left = ready.max_steps - taken
        ts.setMaxSteps(left if most is None else min(left, most))
        size = self._first_step(first, start, stops[0]) if first_step is None else first_step
        # Theta methods estimate errors from three states: nothing judges the first step but two
        # halves of it.
        trusting = not self._staged and ready.fixed_size is None
        if trusting and size > stepping.least_first_step:
            size = self._judged(first, start, min(size, stops[0] - first))
        self._start(log, start, first, size, watched=watch is not None)
        # ended by ``most``: no failure, though the end of the span has not been reached
        enough = most is not None and most < left and ts.getStepNumber() == most
        reason: Any = ts.getConvergedReason()
        if not (log.stopped or (enough and reason > 0)):
            self._check_finished(log, span, taken)
        effort = Effort(
            ts.getStepNumber(),
            ts.getStepRejections(),
            ts.getSNESIterations(),
            ts.getKSPIterations(),
            self._remainder(),
        )
        recording = [ts] if self._record in ("memory", "disk") else []
        if stay is not None:
            stay.forget(log.states)
        return Run(log.times(), log.step_sizes(), log.states, log.stages(), effort, recording)

    def _remainder(self) -> float:
        """Return what Newton's method has left since the last call, and forget it."""
        if self._stepping.resolved_method.explicit or self._ts.getType() == DENSE:
            return 0.0
        return take_remainder(self._ts.getSNES())

    def _first_step(self, t: float, u: PETSc.Vec, end: float) -> float:
        """Return the size of the first step to try from ``u`` [n] at ``t``; steps hit ``end``."""
        stepping, least, fixed = self._stepping, self.first_step, self._ready.fixed_size
        # it is chosen here only where neither the user nor PETSc's options have said one
        known = stepping.dt is not None or fixed is not None or self._first_step_is_given
        if known or not self._staged or self._problem.form != "rhs":
            return least
        # the first step must not pass the first time that steps hit
        bounds = least, max(least, min(stepping.longest_first_step, end - t))
        order = stepping.resolved_method.order
        return starting(
            self._problem, (t, u, self.p), bounds, order, *estimates_below(stepping, self._problem)
        )

    def _judged(self, t: float, u: PETSc.Vec, size: float) -> float:
        """Return the first step, or a shorter one whose error is within the tolerances."""
        stepping = self._stepping
        return judged(
            self._single_steps.step,
            (t, u),
            size,
            stepping.least_first_step,
            stepping.resolved_method.order,
            *estimates_below(stepping, self._problem),
        )

    def again(
        self, start: PETSc.Vec, times: Array, sizes: Array, stay: Stay | None = None
    ) -> Sequence[PETSc.Vec]:
        """Take the steps of a log once more; return their states, of which ``start`` is the first.

        The same numbers, since steps remember nothing of those before: the rate that the first
        stage takes over from the last one is that of the same state.

        Parameters
        ----------
        start : Vec [n]
            The state at the first time.
        times, sizes : array [K+1], [K]
            Times and sizes of the steps.
        stay : Stay, optional
            Which of the states are wanted; all if it is not given.
        """
        ts = self._ts
        prescribed = sizes.tolist()
        log = StepLog(
            self._problem,
            start,
            [float(times[-1])],
            None,
            restarts=self._staged,
            stage_memory=0,
            prescribed=prescribed,
            stay=stay,
        )
        ts.setMaxTime(2.0 * float(times[-1]) - float(times[0]) + 1.0)  # the sizes decide
        ts.setMaxSteps(len(prescribed))
        self._start(log, start, float(times[0]), prescribed[0], watched=False)
        return log.states

    def _start(
        self, log: StepLog, start: PETSc.Vec, t: float, size: float, *, watched: bool
    ) -> None:
        """Let TS run from a state at ``t`` with a first step of that size."""
        ts = self._ts
        start.copy(ts.getSolution())
        ts.setStepNumber(0)
        ts.setTime(t)
        ts.setTimeStep(size)
        if self._watched != watched:
            self._watched = watched
            ts.setPostStep(self._ready.hooks.consider_stopping if watched else None)
        self._remainder()  # of steps in search of an event, where an unknown is about zero
        try:
            # only Python writes states to files, and asks schedules of others
            in_c = self._ready.in_c and not watched and not log.asks
            self._solve(log, in_c=in_c)
        except PETSc.Error as error:
            note_cause(ts, error)
            if error.__cause__ is not None:  # a callback's exception: ``unwrapped`` takes it out
                raise
            raise_fault(ts)
            raise self._failures.of_petsc(error, log) from error

    def _solve(self, log: StepLog, *, in_c: bool) -> None:
        """Let a log see the steps that TS takes, without Python if it can be."""
        ts, hooks = self._ts, self._ready.hooks
        solution = ts.getSolution()
        if not in_c:
            if not hooks.listening:
                ts.setMonitor(hooks.after_step)
                hooks.listening = True
            ts.setPreStep(hooks.before_step)
            hooks.log = log
            try:
                ts.solve(solution)
            finally:
                log.finish()
            hooks.log = None
            return
        log.attach(ts, hooks.after_first_step)
        try:
            ts.solve(solution)
        except PETSc.Error:
            self._note_fault()
            raise
        finally:
            if log.failed:
                self._note_fault()
            log.detach(ts)

    def _note_fault(self) -> None:
        """Note what C functions gave that is not finite with what callbacks in Python did."""
        error = compiled_fault(self._ts)
        if error is not None:
            self._problem.faults[:] = [error.what]

    def step(
        self, t: float, h: float, u: PETSc.Vec, out: PETSc.Vec, *, again: bool = False
    ) -> None:
        """Take a step that has nothing to do with the run under way: ``SingleSteps.step``."""
        self._single_steps.step(t, h, u, out, again=again)

    def close(self) -> None:
        """Free the TS for single steps."""
        self._single_steps.close()

    @property
    def p(self) -> Any:
        """Parameters as callbacks see them; other ones hold from the next step on."""
        return self._ready.held.p

    @p.setter
    def p(self, values: Any) -> None:
        self._ready.held.p = values

    def _check_finished(self, log: StepLog, span: tuple[float, float], taken: int) -> None:
        reason: Any = self._ts.getConvergedReason()
        end = span[1]
        if reason > 0 and abs(log.last_time - end) <= 1e-9 * (end - self._stepping.t_span[0]):
            return
        self._note_fault()
        at_start = log.last_time == span[0]
        raise self._failures.ended(log, taken + self._ts.getStepNumber(), self.p, at_start=at_start)


@contextmanager
def made_runner(
    problem: Problem,
    u: PETSc.Vec,
    p: Any,
    stepping: Stepping,
    record: Recording = "states",
) -> Generator[Runner]:
    """Make a TS for runs of a problem; its PETSc options are there for the extent of the block.

    Parameters
    ----------
    problem, p, stepping, record
        As for ``smooth_run``.
    u : Vec [n]
        A state near which derivatives can be evaluated.

    Raises
    ------
    InputError, UnsupportedError
        What PETSc cannot step, options that nothing reads.
    """
    with prepared_ts(problem, u, p, stepping, record) as ready:
        runner = Runner(problem, stepping, record, ready)
        try:
            yield runner
        finally:
            runner.close()
