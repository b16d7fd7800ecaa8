"""Time integration by PETSc TS; the only maker of TS."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import Array
from daeosens.errors import (
    DaeosensError,
    InputError,
    SolveError,
    UnsupportedError,
)
from daeosens.matrices import SystemMatrix
from daeosens.methods import Method
from daeosens.options import Scope, scoped_options
from daeosens.problem import Problem
from daeosens.refusals import refuse_other_method, refuse_unsound_steps
from daeosens.step_log import StepLog, Watch, fault
from daeosens.stepping import Stepping
from daeosens.steps import RungeKuttaStep, tableau
from daeosens.steps.linear import linear_defaults
from daeosens.trajectory import Checkpoint, Effort, Stages, Trajectory

NEWTON_DEFAULTS: Mapping[str, Any] = {"snes_rtol": 1e-11, "snes_stol": 1e-14, "snes_max_it": 50}
"""Tight, because the derivative of a step is that of the converged step."""

_TS: Any = PETSc.TS  # the stubs of petsc4py 3.26 give enumerations the wrong type


@dataclass(frozen=True, eq=False)
class Run:
    """What TS gave: the log of one smooth run."""

    times: list[float]
    sizes: list[float]
    states: list[PETSc.Vec]
    stages: Stages
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
    with made_runner(problem, state, p, stepping, checkpoint) as runner:
        return runner.run(state, stepping.t_span, pinned.tolist())


class Runner:
    """A TS that takes any number of smooth runs of one problem, one after the other.

    Made by ``made_runner``.  A run remembers nothing of the one before: steps, rates of methods
    whose last stage is the next step's first, and error estimates start anew.
    """

    def __init__(
        self,
        problem: Problem,
        p: Any,
        stepping: Stepping,
        checkpoint: Checkpoint,
        ts: PETSc.TS,
        scope: Scope,
    ) -> None:
        self._problem = problem
        self._p = p
        self._stepping = stepping
        self._checkpoint: Checkpoint = checkpoint
        self._ts = ts
        self._solution = ts.getSolution()
        self._spare_ts: PETSc.TS | None = None
        self._hooks = _Hooks(scope)
        self.first_step = ts.getTimeStep()  # after PETSc's options
        self._max_time, self._max_steps = ts.getMaxTime(), ts.getMaxSteps()
        ts.setPreStep(self._hooks.before_step)
        ts.setMonitor(self._hooks.after_step)

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
        ts, first = self._ts, span[0]
        log = StepLog(
            self._problem,
            start,
            [*(time for time in pinned if first < time < span[1]), span[1]],
            self._fixed_size,
            restarts=self._stepping.resolved_method.explicit,
            keep_stages=self._checkpoint == "stages" and self._stepping.resolved_method.explicit,
            watch=watch,
        )
        self._hooks.log = log
        start.copy(self._solution)
        ts.setStepNumber(0)
        ts.setTime(first)
        ts.setMaxTime(min(span[1], self._max_time))
        ts.setMaxSteps(self._max_steps - taken)
        ts.setTimeStep(self.first_step if first_step is None else first_step)
        ts.setPostStep(None if watch is None else log.consider_stopping)
        try:
            ts.solve(self._solution)
        except PETSc.Error as error:
            if error.__cause__ is not None:  # a callback's exception: ``unwrapped`` takes it out
                raise
            raise _failure(error, self._stepping, log) from error
        self._hooks.log = None
        ts.setPostStep(None)
        if not log.stopped:
            self._check_finished(log, span, taken)
        effort = Effort(
            ts.getStepNumber(),
            ts.getStepRejections(),
            ts.getSNESIterations(),
            ts.getKSPIterations(),
        )
        recording = [ts] if self._checkpoint in ("memory", "disk") else []
        return Run(log.times, log.step_sizes(), log.states, log.stages(), effort, recording)

    def step(self, t: float, h: float, u: PETSc.Vec, out: PETSc.Vec) -> None:
        """Fill ``out`` [n] with the state after one step of size ``h`` from ``u`` [n] at ``t``.

        It has nothing to do with the run that may be under way.

        Raises
        ------
        SolveError
            The step failed.
        """
        if self._stepping.resolved_method.explicit:
            self._explicit_step.advance(t, h, u, self._p, out)
        elif self._hooks.log is None:  # between two runs: nothing of the step is remembered
            _single_step(self._ts, t, h, u, out)
        else:
            self._spare_ts = self._spare_ts or self._make_spare(t, u)
            _single_step(self._spare_ts, t, h, u, out)

    def close(self) -> None:
        """Free what no trajectory keeps."""
        if self._spare_ts is not None:
            self._spare_ts.destroy()
        if self._checkpoint not in ("memory", "disk"):
            self._ts.destroy()

    @cached_property
    def _explicit_step(self) -> RungeKuttaStep:
        return RungeKuttaStep(self._problem, tableau(self._stepping.resolved_method.runge_kutta))

    def _make_spare(self, t: float, u: PETSc.Vec) -> PETSc.TS:
        """Return a TS for single implicit steps while the other one is in the middle of a run."""
        problem, stepping = self._problem, self._stepping
        ts = _make_ts(problem, stepping.resolved_method, t, u, self._p, record="states")
        defaults = _defaults(problem, stepping, ts, "states")
        with scoped_options(defaults=defaults, code=stepping.options):
            _set_up(ts, u, stepping)
        return ts

    @property
    def _fixed_size(self) -> float | None:
        """Size of steps that no error estimate chooses; None if one does."""
        kind = PETSc.Options().getString("ts_adapt_type", "none")
        fixed = kind == "none" and not self._stepping.adaptive
        return self.first_step if fixed else None

    def _check_finished(self, log: StepLog, span: tuple[float, float], taken: int) -> None:
        ts = self._ts
        reason: Any = ts.getConvergedReason()
        end = span[1]
        if reason > 0 and abs(log.times[-1] - end) <= 1e-9 * (end - self._stepping.t_span[0]):
            return
        steps = taken + ts.getStepNumber()
        names = {
            value: name for name, value in vars(PETSc.TS.ConvergedReason).items() if name.isupper()
        }
        raise SolveError(
            f"TS stopped at t = {log.times[-1]:.9g} after {steps} steps "
            f"({names.get(reason, reason)}){fault(self._problem)}",
            expected=f"t = {self._stepping.t_span[1]:g}",
            remedy=f"max_steps > {self._stepping.max_steps}"
            if steps >= self._stepping.max_steps
            else 'a smaller dt, or options={"snes_monitor": None} to watch the Newton residual',
        )


class _Hooks:
    """What TS calls.  It knows neither TS nor Runner: TS would hold itself, and never be freed."""

    def __init__(self, scope: Scope) -> None:
        self._scope: Scope | None = scope
        self.log: StepLog | None = None

    def before_step(self, ts: PETSc.TS) -> None:
        assert self.log is not None
        self.log.before_step(ts)

    def after_step(self, ts: PETSc.TS, step: int, t: float, u: PETSc.Vec) -> None:
        assert self.log is not None
        if step == 1 and self._scope is not None:
            self._scope.check_used(final=True)
            self._scope = None
        self.log.after_step(ts, step, t, u)


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
    refuse_unsound_steps(problem, stepping, u, p)
    method = stepping.resolved_method
    ts = _make_ts(problem, method, stepping.t_span[0], u, p, record=checkpoint)
    runner: Runner | None = None
    try:
        with scoped_options(
            defaults=_defaults(problem, stepping, ts, checkpoint), code=stepping.options
        ) as scope:
            try:
                _set_up(ts, u, stepping)
            except PETSc.Error as error:
                if error.__cause__ is not None:
                    raise
                raise _failure(error, stepping, None) from error
            scope.check_used()
            runner = Runner(problem, p, stepping, checkpoint, ts, scope)
            yield runner
    except BaseException:
        ts.destroy()
        raise
    finally:
        if runner is not None:
            runner.close()


def _set_up(ts: PETSc.TS, u: PETSc.Vec, stepping: Stepping) -> None:
    ts.setTime(stepping.t_span[0])
    ts.setMaxTime(stepping.t_span[1])
    ts.setTimeStep(stepping.first_step)
    ts.setMaxSteps(stepping.max_steps)
    ts.setExactFinalTime(_TS.ExactFinalTime.MATCHSTEP)
    if stepping.adaptive:
        rtol = 1e-6 if stepping.rtol is None else stepping.rtol
        atol = 1e-9 if stepping.atol is None else stepping.atol
        ts.setTolerances(rtol=rtol, atol=atol)
    ts.setFromOptions()
    refuse_other_method(ts, stepping.resolved_method)
    ts.setSolution(u.copy())
    ts.setUp()


def _single_step(ts: PETSc.TS, t: float, h: float, u: PETSc.Vec, out: PETSc.Vec) -> None:
    solution = ts.getSolution()
    u.copy(solution)
    ts.setStepNumber(0)
    ts.setTime(t)
    ts.setTimeStep(h)
    ts.restartStep()  # without an error estimate: the size is the caller's
    ts.step()
    reason: Any = ts.getConvergedReason()
    if reason < 0 or ts.getTime() != t + h:
        raise SolveError(
            f"a step of size {h:.3g} from t = {t:.9g} failed, in search of an event",
            expected="convergence of Newton's method",
            remedy='a smaller dt, or options={"snes_monitor": None} to watch it',
        )
    solution.copy(out)


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
    ts = _make_ts(
        problem,
        stepping.resolved_method,
        stepping.t_span[0],
        state,
        trajectory.p,
        record=checkpoint,
    )
    ts.setTime(stepping.t_span[0])
    ts.setTimeStep(float(sizes[0]))

    def before_step(ts: PETSc.TS) -> None:
        ts.setTimeStep(float(sizes[ts.getStepNumber()]))

    ts.setPreStep(before_step)
    prepare(ts)
    defaults = _defaults(problem, stepping, ts, checkpoint) | {"ts_adapt_type": "none"}
    with scoped_options(defaults=defaults, code=stepping.options):
        ts.setFromOptions()
        ts.setMaxSteps(len(sizes))
        ts.setMaxTime(beyond)
        ts.setExactFinalTime(_TS.ExactFinalTime.STEPOVER)
        ts.solve(state)
    return ts


def _make_ts(
    problem: Problem,
    method: Method,
    t: float,
    u: PETSc.Vec,
    p: Any,
    *,
    record: Checkpoint,
) -> PETSc.TS:
    if method.explicit and problem.form != "rhs":
        raise UnsupportedError(
            f'method = "{method.name}" for a problem in {problem.form} form',
            expected="u' = f(t, u, p) without a mass matrix",
            remedy='"cn", "beuler", "midpoint" or "theta:<value>"',
        )
    ts = PETSc.TS().create(comm=problem.comm)
    ts.setProblemType(_TS.ProblemType.NONLINEAR)
    ts.setErrorIfStepFails(False)
    work = problem.create_state()

    def inside(ts: PETSc.TS, t: float) -> float:
        return problem.inside(t, ts.getTime(), ts.getTimeStep()) if problem.breakpoints else t

    if method.explicit:
        ts.setType(PETSc.TS.Type.RK)
        ts.setRKType(method.runge_kutta)
        ts.setRHSFunction(lambda ts, t, u, out: problem.rhs(inside(ts, t), u, p, out), work)
        if record in ("memory", "disk"):
            _set_rhs_derivatives(ts, problem, t, u, p)
        return ts
    ts.setType(PETSc.TS.Type.THETA)
    ts.setTheta(method.theta)
    ts.setThetaEndpoint(method.endpoint)
    if method.name in ("cn", "beuler"):
        ts.setType(method.name)
    ts.setIFunction(
        lambda ts, t, u, udot, out: problem.residual(inside(ts, t), u, udot, p, out), work
    )
    if problem.coloring:
        _set_coloring(ts, problem, record)
        return ts
    udot = problem.create_state()
    problem.residual(t, u, udot, p, work)  # wrong callbacks are named before their derivatives are
    system = SystemMatrix(problem.residual_u, problem.residual_udot, t, u, udot, p)

    def jacobian(
        ts: PETSc.TS,
        t: float,
        u: PETSc.Vec,
        udot: PETSc.Vec,
        shift: float,
        _matrix: PETSc.Mat,
        _preconditioner: PETSc.Mat,
    ) -> None:
        system.fill(inside(ts, t), u, udot, p, shift)

    ts.setIJacobian(jacobian, system.matrix, system.matrix)
    if record in ("memory", "disk") and problem.n_parameters:
        matrix_p = problem.residual_p.create(t, u, udot, p)

        def jacobian_p(
            _ts: PETSc.TS,
            t: float,
            u: PETSc.Vec,
            udot: PETSc.Vec,
            _shift: float,
            matrix: PETSc.Mat,
        ) -> None:
            problem.residual_p.fill(t, u, udot, p, matrix)

        ts.setIJacobianP(jacobian_p, matrix_p)
    return ts


def _set_rhs_derivatives(ts: PETSc.TS, problem: Problem, t: float, u: PETSc.Vec, p: Any) -> None:
    matrix_u = problem.rhs_u.create(t, u, p)

    def jacobian(
        _ts: PETSc.TS, t: float, u: PETSc.Vec, matrix: PETSc.Mat, _preconditioner: PETSc.Mat
    ) -> None:
        problem.rhs_u.fill(t, u, p, matrix)

    ts.setRHSJacobian(jacobian, matrix_u, matrix_u)
    if problem.n_parameters:
        matrix_p = problem.rhs_p.create(t, u, p)

        def jacobian_p(_ts: PETSc.TS, t: float, u: PETSc.Vec, matrix: PETSc.Mat) -> None:
            problem.rhs_p.fill(t, u, p, matrix)

        ts.setRHSJacobianP(jacobian_p, matrix_p)


def _set_coloring(ts: PETSc.TS, problem: Problem, record: Checkpoint) -> None:
    if problem.dm is None:
        raise InputError(
            'jacobian = "coloring" without a DM',
            expected="state=DMDA, whose stencil gives the sparsity pattern",
            remedy="jacobian=callback or Products",
        )
    if record in ("memory", "disk"):
        raise UnsupportedError(
            'PETSc\'s trajectory with jacobian = "coloring"',
            expected="an analytic jacobian: a coloured difference has no exact transpose",
            remedy="jacobian=callback or Products",
        )
    ts.setDM(problem.dm.clone())


def _defaults(
    problem: Problem, stepping: Stepping, ts: PETSc.TS, checkpoint: Checkpoint
) -> dict[str, Any]:
    defaults: dict[str, Any] = {"ts_adapt_type": "basic" if stepping.adaptive else "none"}
    if stepping.max_step is not None:
        defaults["ts_adapt_dt_max"] = stepping.max_step
    if not stepping.resolved_method.explicit:
        defaults |= NEWTON_DEFAULTS
        if problem.coloring:
            defaults["snes_fd_color"] = None
        else:
            defaults |= linear_defaults(ts.getIJacobian()[0])
    if checkpoint in ("memory", "disk"):
        ts.setSaveTrajectory()
        defaults["ts_trajectory_type"] = "memory" if checkpoint == "memory" else "basic"
        if checkpoint == "disk":
            defaults["ts_trajectory_dirname"] = _shared_folder(problem.comm)
            # PETSc 3.26 writes options beside each state, and reads them back into the database.
            defaults["viewer_binary_skip_info"] = None
    return defaults


def _shared_folder(comm: PETSc.Comm) -> str:
    """Name a temporary folder, which PETSc makes and removes with the trajectory.  Collective.

    It must not exist yet: PETSc 3.26 takes an existing folder for one in use.
    """
    name = f"daeosens-{uuid.uuid4().hex}" if comm.rank == 0 else ""
    return str(Path(tempfile.gettempdir()) / comm.tompi4py().bcast(name))


def _failure(error: PETSc.Error, stepping: Stepping, log: StepLog | None) -> DaeosensError:
    """Return what an error of PETSc means: bad input before the first step, then a failed solve."""
    reason = str(error).splitlines()[-1]
    if log is None or not log.times:
        return InputError(
            f"PETSc cannot be set up: {reason}",
            expected="values of PETSc options, and folders, that it can use",
        )
    return SolveError(
        f"TS failed after t = {log.times[-1]:.9g}: {reason}",
        expected=f"t = {stepping.t_span[1]:g}",
        remedy='options={"ts_monitor": None, "snes_monitor": None} to watch it',
    )
