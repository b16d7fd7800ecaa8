"""Time integration by PETSc TS."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import Array
from daeosens.errors import (
    DaeosensError,
    InputError,
    SolveError,
)
from daeosens.faults import note_fault
from daeosens.frozen import quickly_made
from daeosens.options import scoped_options
from daeosens.petsc_ts import (
    Held,
    default_options,
    make_ts,
    raise_fault,
    search_lines,
    set_up,
    tiny_step,
)
from daeosens.prepared import Prepared, cannot_set_up, leave_ts, prepared_ts, taken_ts
from daeosens.problem import Problem
from daeosens.refusals import refuse_unsound_steps
from daeosens.step_log import StepLog, Watch
from daeosens.stepping import Stepping
from daeosens.steps import RungeKuttaStep, tableau
from daeosens.trajectory import Checkpoint, Effort, Stages, Trajectory

_TS: Any = PETSc.TS  # the stubs of petsc4py 3.26 give enumerations the wrong type

NOT_FINITE = 72
"""PETSc's error code of norms that are not."""


@quickly_made
@dataclass(frozen=True, eq=False)
class Run:
    """What TS gave: the log of one smooth run."""

    times: Array
    sizes: Array
    states: Sequence[PETSc.Vec]
    kept: Stages | Array
    effort: Effort
    recording: list[PETSc.TS]


def integrate(
    problem: Problem,
    state: PETSc.Vec,
    p: Any,
    stepping: Stepping,
    pinned: Array,
    checkpoint: Checkpoint,
) -> Run:
    """Run TS from ``state`` [n], which becomes the first one of the log, over ``stepping.t_span``.

    Parameters
    ----------
    problem : Problem
        Without regard to its events.
    state : Vec [n]
        The start.
    p : array or Vec [m]
        Parameters as callbacks see them.
    stepping : Stepping
        Method and step sizes.
    pinned : array [K]
        Times inside that steps hit.
    checkpoint : str
        As for ``solve``.

    Raises
    ------
    InputError, SolveError
        As ``solve``.
    """
    ready = taken_ts(problem, p, stepping, checkpoint)
    if ready is None:
        with prepared_ts(problem, state, p, stepping, checkpoint, keep=True) as ready:
            runner = Runner(problem, stepping, checkpoint, ready)
            return runner.run(state, stepping.t_span, pinned.tolist())
    try:
        runner = Runner(problem, stepping, checkpoint, ready)
        run = runner.run(state, stepping.t_span, pinned.tolist())
    except BaseException:
        ready.ts.destroy()
        raise
    leave_ts(problem, ready)
    return run


class Runner:
    """A TS that takes any number of smooth runs of one problem, one after the other.

    Made by ``made_runner``.  A run remembers nothing of the one before: steps, rates of methods
    whose last stage is the next step's first, and error estimates start anew.
    """

    def __init__(
        self, problem: Problem, stepping: Stepping, checkpoint: Checkpoint, ready: Prepared
    ) -> None:
        self._problem = problem
        self._stepping = stepping
        self._checkpoint: Checkpoint = checkpoint
        self._ready = ready
        self._ts = ready.ts
        self._solution = ready.ts.getSolution()
        self._spare_ts: PETSc.TS | None = None
        self._listening = self._watched = False
        self.first_step = ready.first_step

    def run(
        self,
        start: PETSc.Vec,
        span: tuple[float, float],
        pinned: Sequence[float],
        first_step: float | None = None,
        watch: Watch | None = None,
        *,
        taken: int = 0,
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

        Raises
        ------
        InputError, SolveError
            As ``solve``.
        """
        refuse_unsound_steps(self._problem, self._stepping, span, start, self.p)
        ts, first, method = self._ts, span[0], self._stepping.resolved_method
        log = StepLog(
            self._problem,
            start,
            [*(time for time in pinned if first < time < span[1]), span[1]],
            self._ready.fixed_size,
            restarts=method.explicit or method.esdirk,
            keep_stages=self._checkpoint == "stages" and (method.explicit or method.esdirk),
            watch=watch,
            take_again=self._take_again if self._unwatched else None,
        )
        start.copy(self._solution)
        ts.setStepNumber(0)
        ts.setTime(first)
        ts.setMaxTime(min(span[1], self._ready.max_time))
        ts.setMaxSteps(self._ready.max_steps - taken)
        ts.setTimeStep(self.first_step if first_step is None else first_step)
        if self._watched != (watch is not None):
            self._watched = watch is not None
            ts.setPostStep(self._ready.hooks.consider_stopping if self._watched else None)
        try:
            self._solve(log, in_c=self._ready.in_c and watch is None)
        except PETSc.Error as error:
            if error.__cause__ is not None:  # a callback's exception: ``unwrapped`` takes it out
                raise
            raise_fault(ts)
            raise _failure(error, self._stepping, log) from error
        if not log.stopped:
            self._check_finished(log, span, taken)
        effort = Effort(
            ts.getStepNumber(),
            ts.getStepRejections(),
            ts.getSNESIterations(),
            ts.getKSPIterations(),
        )
        recording = [ts] if self._checkpoint in ("memory", "disk") else []
        return Run(log.times(), log.step_sizes(), log.states, log.stages(), effort, recording)

    def _solve(self, log: StepLog, *, in_c: bool) -> None:
        """Let a log see the steps that TS takes, without Python if it can be."""
        ts, hooks = self._ts, self._ready.hooks
        if not in_c:
            if not self._listening:
                ts.setMonitor(hooks.after_step)
                self._listening = True
            ts.setPreStep(hooks.before_step)
            hooks.log = log
            ts.solve(self._solution)
            hooks.log = None
            return
        log.attach(ts, hooks.after_first_step, search_lines, self._ready.tiny)
        try:
            ts.solve(self._solution)
        finally:
            log.detach(ts)

    def step(self, t: float, h: float, u: PETSc.Vec, out: PETSc.Vec) -> None:
        """Fill ``out`` [n] with the state after one step of size ``h`` from ``u`` [n] at ``t``.

        It has nothing to do with the run that may be under way.

        Raises
        ------
        SolveError
            The step failed.
        """
        if self._stepping.resolved_method.explicit:
            self._explicit_step.advance(t, h, u, self.p, out)
        elif self._ready.hooks.log is None:  # between two runs: nothing of the step is remembered
            _single_step(self._ts, t, h, u, out, self._ready.tiny)
        else:
            self._spare_ts = self._spare_ts or self._make_spare(self._problem, t, u)
            _single_step(self._spare_ts, t, h, u, out, self._ready.tiny)

    def close(self) -> None:
        """Free the TS for single steps."""
        if self._spare_ts is not None:
            self._spare_ts.destroy()

    @property
    def p(self) -> Any:
        """Parameters as callbacks see them; other ones hold from the next step on."""
        return self._ready.held.p

    @p.setter
    def p(self, values: Any) -> None:
        self._ready.held.p = values

    @cached_property
    def _explicit_step(self) -> RungeKuttaStep:
        return RungeKuttaStep(self._problem, tableau(self._stepping.resolved_method.runge_kutta))

    @property
    def _unwatched(self) -> bool:
        """Whether TS calls functions of a grid's points, which do not look at what they give."""
        return self._ready.in_c and self._problem.stencil is not None

    def _take_again(self, t: float, h: float, u: PETSc.Vec) -> None:
        """Take a step that failed by callbacks in Python: those note what is not finite."""
        out = u.duplicate()
        if self._stepping.resolved_method.explicit:
            self._explicit_step.advance(t, h, u, self.p, out)
            self._problem.rhs(t + h, out, self.p, u.duplicate())  # as error estimates do
        else:
            problem = replace(self._problem, stencil=None)
            ts = self._make_spare(problem, t, u)
            with suppress(SolveError, PETSc.Error):  # as it did before
                _single_step(ts, t, h, u, out, self._ready.tiny)
            _try_jacobian(problem, t + h, ts.getSNES().getSolution(), self.p)
            ts.destroy()
        out.destroy()

    def _make_spare(self, problem: Problem, t: float, u: PETSc.Vec) -> PETSc.TS:
        """Return a TS for single implicit steps while the other one is in the middle of a run."""
        stepping = self._stepping
        ts = make_ts(problem, stepping.resolved_method, t, u, self._ready.held, record="states")
        defaults = default_options(problem, stepping, ts, "states")
        with scoped_options(defaults=defaults, code=stepping.options):
            set_up(ts, u, stepping, "states")
        return ts

    def _check_finished(self, log: StepLog, span: tuple[float, float], taken: int) -> None:
        ts = self._ts
        reason: Any = ts.getConvergedReason()
        end = span[1]
        if reason > 0 and abs(log.last_time - end) <= 1e-9 * (end - self._stepping.t_span[0]):
            return
        steps = taken + ts.getStepNumber()
        names = {
            value: name for name, value in vars(PETSc.TS.ConvergedReason).items() if name.isupper()
        }
        raise SolveError(
            f"TS stopped at t = {log.last_time:.9g} after {steps} steps "
            f"({names.get(reason, reason)}){log.fault()}",
            expected=f"t = {self._stepping.t_span[1]:g}",
            remedy=f"max_steps > {self._stepping.max_steps}"
            if steps >= self._stepping.max_steps
            else 'a smaller dt, or options={"snes_monitor": None} to watch the Newton residual',
        )


@contextmanager
def made_runner(
    problem: Problem,
    u: PETSc.Vec,
    p: Any,
    stepping: Stepping,
    checkpoint: Checkpoint = "states",
) -> Generator[Runner]:
    """Make a TS for runs of a problem; its PETSc options are there for the extent of the block.

    Parameters
    ----------
    problem, p, stepping, checkpoint
        As for ``integrate``.
    u : Vec [n]
        A state near which derivatives can be evaluated.

    Raises
    ------
    InputError, UnsupportedError
        What PETSc cannot step, options that nothing reads.
    """
    with prepared_ts(problem, u, p, stepping, checkpoint) as ready:
        runner = Runner(problem, stepping, checkpoint, ready)
        try:
            yield runner
        finally:
            runner.close()


def _single_step(
    ts: PETSc.TS, t: float, h: float, u: PETSc.Vec, out: PETSc.Vec, tiny: float
) -> None:
    if tiny:
        search_lines(ts, wanted=h >= tiny)
    solution = ts.getSolution()
    u.copy(solution)
    ts.setStepNumber(0)
    ts.setTime(t)
    ts.setTimeStep(h)
    ts.restartStep()  # without an error estimate: the size is the caller's
    try:
        ts.step()
    except PETSc.Error:
        raise_fault(ts)
        raise
    reason: Any = ts.getConvergedReason()
    if reason < 0 or ts.getTime() != t + h:
        raise SolveError(
            f"a step of size {h:.3g} from t = {t:.9g} failed, in search of an event",
            expected="convergence of Newton's method",
            remedy='a smaller dt, or options={"snes_monitor": None} to watch it',
        )
    solution.copy(out)


def _try_jacobian(problem: Problem, t: float, u: PETSc.Vec, p: Any) -> None:
    matrix = problem.rhs_u.create(t, u, p)
    problem.rhs_u.fill(t, u, p, matrix)
    ones, out = u.duplicate(), u.duplicate()
    ones.set(1.0)
    matrix.mult(ones, out)
    note_fault(problem.faults, "jacobian", t, out, problem.dm)
    for each in (matrix, ones, out):
        each.destroy()


def agree(problem: Problem, stepping: Stepping, p: Any, pinned: Array) -> None:
    """Raise on every rank if the ranks want different runs, which would wait for each other."""
    if problem.comm.size == 1:
        return
    numbers = p.tobytes() if isinstance(p, np.ndarray) else b""
    mine = (repr(stepping), numbers, repr(problem.breakpoints), pinned.tobytes())
    every = problem.comm.tompi4py().allgather(mine)
    names = ("stepping", "p", "breakpoints", "t_eval")
    different = [name for k, name in enumerate(names) if len({each[k] for each in every}) > 1]
    if different:
        raise InputError(
            f"{' and '.join(different)} differ between the ranks",
            expected="the same on every rank of the problem's communicator",
        )


def replay(trajectory: Trajectory, prepare: Callable[[PETSc.TS], None]) -> PETSc.TS:
    """Repeat a run step by step with PETSc's own trajectory switched on, and return its TS.

    The accepted steps are taken from the log, never decided again.  ``prepare`` is called on the TS
    before it is set up.
    """
    checkpoint = "disk" if trajectory.checkpoint == "disk" else "memory"
    problem, stepping = trajectory.problem, trajectory.stepping
    sizes = trajectory.step_sizes
    state = trajectory.states[0].copy()
    beyond = 2 * stepping.t_span[1] - stepping.t_span[0] + 1.0  # never reached: the steps decide
    ts = make_ts(
        problem,
        stepping.resolved_method,
        stepping.t_span[0],
        state,
        Held(trajectory.p),
        record=checkpoint,
    )
    ts.setTime(stepping.t_span[0])
    ts.setTimeStep(float(sizes[0]))

    tiny = 0.0

    def before_step(ts: PETSc.TS) -> None:
        h = float(sizes[ts.getStepNumber()])
        ts.setTimeStep(h)
        if tiny:
            search_lines(ts, wanted=h >= tiny)

    ts.setPreStep(before_step)
    prepare(ts)
    defaults = default_options(problem, stepping, ts, checkpoint) | {"ts_adapt_type": "none"}
    with scoped_options(defaults=defaults, code=stepping.options):
        ts.setFromOptions()
        ts.setMaxSteps(len(sizes))
        ts.setMaxTime(beyond)
        ts.setExactFinalTime(_TS.ExactFinalTime.STEPOVER)
        tiny = tiny_step(ts, stepping, float(sizes.max()))
        ts.solve(state)
    return ts


def _failure(error: PETSc.Error, stepping: Stepping, log: StepLog) -> DaeosensError:
    """Return what an error of PETSc means: bad input before the first step, then a failed solve."""
    if not log.begun:
        return cannot_set_up(error)
    code: int = getattr(error, "ierr", 0)
    fault = log.fault() if code == NOT_FINITE else ""  # norms are collective, as this is
    return SolveError(
        f"TS failed after t = {log.last_time:.9g}: {str(error).splitlines()[-1]}{fault}",
        expected=f"t = {stepping.t_span[1]:g}",
        remedy='options={"ts_monitor": None, "snes_monitor": None} to watch it',
    )
