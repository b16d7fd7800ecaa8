"""TS that are set up for a problem and a stepping, made anew or left behind by an earlier run."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.petsc._kernels import add_monitor
from daeosens.petsc.options import Scope, nothing_for_ts, refused_value, scoped_options
from daeosens.problem.problem import Problem, ProblemCache
from daeosens.timestepping.c_rhs import Held, registered_with, runs_in_c
from daeosens.timestepping.step_log import StepLog
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.trajectory import Recording
from daeosens.timestepping.ts import make_ts
from daeosens.timestepping.ts_defaults import default_options, set_up

IDLE = 4
"""How many TS a problem keeps for its next runs, at most."""

SMALL, SMALL_GRID = 1000, 200_000
"""Up to how many unknowns it does: the runs of larger ones take far longer than the making.

A step on a grid takes some nanoseconds for each unknown.
"""


class Hooks:
    """What TS calls.  It knows neither TS nor Runner: TS would hold itself, and never be freed.

    Attributes
    ----------
    log : StepLog or None
        Of the run under way, where Python notes its steps.
    listening : bool
        Whether TS calls ``after_step``: once asked to, it does so in all later runs, of other
        runners too.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope: Scope | None = scope
        self.log: StepLog | None = None
        self.listening = False

    def before_step(self, ts: PETSc.TS) -> None:
        """Let the log choose the size of the step."""
        assert self.log is not None
        self.log.before_step(ts)

    def after_step(self, ts: PETSc.TS, step: int, t: float, u: PETSc.Vec) -> None:
        """Let the log note the step."""
        if self.log is None:  # a run that is logged in C
            return
        if step == 1:
            self.after_first_step()
        self.log.after_step(ts, step, t, u)

    def consider_stopping(self, ts: PETSc.TS) -> None:
        """Let the log end a run that is watched."""
        assert self.log is not None
        self.log.consider_stopping(ts)

    def after_first_step(self) -> None:
        """Refuse options that nothing has read by now."""
        if self._scope is not None:
            self._scope.check_used(final=True)
            self._scope = None


@dataclass(frozen=True, eq=False)
class ReusableTS:
    """A TS that is set up, with what its runs change and need again.

    Attributes
    ----------
    stepping : Stepping
        What it was set up for.
    ts : TS
    held : Held
        Its parameters.
    hooks : Hooks
        What it calls.
    in_c : bool
        Whether it runs, and logs its steps, without Python.
    first_step : float
        Size of the first step after PETSc's options [time unit].
    fixed_size : float or None
        Size of steps that no error estimate chooses; None if one does.
    max_time, max_steps : float, int
        Its limits after PETSc's options.
    """

    stepping: Stepping
    ts: PETSc.TS
    held: Held
    hooks: Hooks
    in_c: bool
    first_step: float
    fixed_size: float | None
    max_time: float
    max_steps: int


@contextmanager
def prepared_ts(
    problem: Problem,
    u: PETSc.Vec,
    p: Any,
    stepping: Stepping,
    record: Recording,
    *,
    keep: bool = False,
    large: bool = False,
) -> Generator[ReusableTS]:
    """Set up a TS for runs of a problem; its PETSc options are there for the extent of the block.

    Parameters
    ----------
    problem, p, stepping, record
        As for ``smooth_run``.
    u : Vec [n]
        A state near which derivatives can be evaluated.
    keep : bool
        The TS is left to the next run (``acquire_ts``): of small problems without Python in their
        steps, and as long as there are no options that it could read.  A run that fails leaves
        nothing.
    large : bool
        Large problems leave theirs too.

    Raises
    ------
    InputError, UnsupportedError
        What PETSc cannot step, options that nothing reads.
    """
    # options set a TS up: one that has read some cannot be lent to a run with others
    plain = not stepping.options and nothing_for_ts()
    keep = keep and plain and _can_be_kept(problem, stepping, record, large=large)
    held = Held(p)
    ts = make_ts(
        problem,
        stepping.resolved_method,
        stepping.t_span[0],
        u,
        held,
        record=record,
        plain=plain,
    )
    defaults = default_options(problem, stepping, ts, record)
    try:
        with scoped_options(defaults=defaults, code=stepping.options) as scope:
            ready = _prepared((problem, u), stepping, record, ts, held, scope)
            yield ready
    except BaseException:
        ts.destroy()
        raise
    if keep:
        # the block above has ended without an error: what failed inside a step may be locked
        release_ts(problem, ready)
    elif record not in ("memory", "disk"):  # a trajectory keeps those
        ready.ts.destroy()


IDLE_TS: ProblemCache[list[ReusableTS]] = ProblemCache(list)
"""What runs have left for the next ones."""


def release_ts(problem: Problem, ready: ReusableTS) -> None:
    """Leave a TS to the next runs of a problem."""
    waiting = IDLE_TS.of(problem)
    waiting.append(ready)
    if len(waiting) > IDLE:
        waiting.pop(0).ts.destroy()  # the one that has been idle longest


def acquire_ts(
    problem: Problem, p: Any, stepping: Stepping, record: Recording
) -> ReusableTS | None:
    """Take a TS that a run with an equal stepping has left, or None.

    Nobody else has it until it is left again: a run inside another one gets a TS of its own.
    """
    waiting = IDLE_TS.of(problem)
    if record in ("memory", "disk") or not waiting or not nothing_for_ts():
        return None
    # the same object in nearly all calls, and the last one: comparing fields takes longer
    last = len(waiting) - 1
    same = last if waiting[last].stepping is stepping else None
    if same is None:
        equal = (k for k, ready in enumerate(waiting) if ready.stepping == stepping)
        same = next(equal, None)
    if same is None:
        return None
    ready = waiting.pop(same)
    ready.held.p = p
    return ready


def drop_idle(problem: Problem, stepping: Stepping) -> None:
    """Free what runs of a large problem with a stepping have left; there are no more of them."""
    waiting = IDLE_TS.of(problem)
    for ready in [item for item in waiting if item.stepping is stepping]:
        if not _is_small(problem):
            waiting.remove(ready)
            ready.ts.destroy()


class LentTS:
    """A TS that an earlier run has left, or a new one, for the extent of a block.

    It is left to the next run afterwards.  Parameters and errors as of ``prepared_ts``.
    """

    def __init__(
        self,
        problem: Problem,
        u: PETSc.Vec,
        p: Any,
        stepping: Stepping,
        record: Recording,
        *,
        large: bool = False,
    ) -> None:
        self._problem = problem
        ready = acquire_ts(problem, p, stepping, record)
        self._ready = ready
        # that of a new one; runs of small models take less time than a block of a generator
        self._new = (
            prepared_ts(problem, u, p, stepping, record, keep=True, large=large)
            if ready is None
            else None
        )

    def __enter__(self) -> ReusableTS:
        """Provide it."""
        if self._ready is None:
            assert self._new is not None
            self._ready = self._new.__enter__()
        return self._ready

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        """Leave it to the next run, unless this one has failed."""
        assert self._ready is not None
        if self._new is not None:
            self._new.__exit__(kind, error, traceback)
        elif kind is None:
            release_ts(self._problem, self._ready)
        else:
            self._ready.ts.destroy()


def _is_small(problem: Problem) -> bool:
    """Whether making a TS takes a part of a run that shows."""
    return problem.size <= (SMALL if problem.stencil is None else SMALL_GRID)


def _can_be_kept(
    problem: Problem, stepping: Stepping, record: Recording, *, large: bool = False
) -> bool:
    """Whether a TS depends on nothing but the problem and the stepping, and holds neither.

    A TS with Python callbacks holds the problem that would hold it: both would live for ever.
    """
    return (
        record not in ("memory", "disk")
        and (large or _is_small(problem))
        and problem.comm.size == 1
        # matrices of products hold more than C functions
        and (problem.stencil is None or stepping.resolved_method.explicit)
        and runs_in_c(problem, stepping.resolved_method)
    )


def _prepared(
    start: tuple[Problem, PETSc.Vec],
    stepping: Stepping,
    record: Recording,
    ts: PETSc.TS,
    held: Held,
    scope: Scope,
) -> ReusableTS:
    """Set up a TS inside the scope of its options."""
    try:
        set_up(ts, *start, stepping, record)
    except PETSc.Error as error:
        if error.__cause__ is not None:  # a callback's exception: ``unwrapped`` takes it out
            raise
        raise cannot_set_up(error) from error
    scope.check_used()
    first_step = ts.getTimeStep()
    fixed = not stepping.adaptive and PETSc.Options().getString("ts_adapt_type", "none") == "none"
    in_c = registered_with(ts) is not None
    if in_c:
        add_monitor(ts)
    return ReusableTS(
        stepping,
        ts,
        held,
        Hooks(scope),
        in_c,
        first_step,
        first_step if fixed else None,
        ts.getMaxTime(),
        ts.getMaxSteps(),
    )


def cannot_set_up(error: PETSc.Error) -> InputError:
    """Return what an error of PETSc before the first step means."""
    return refused_value(error) or InputError(
        f"PETSc cannot be set up: {str(error).splitlines()[-1]}",
        expected="values of PETSc options, and folders, that it can use",
    )
