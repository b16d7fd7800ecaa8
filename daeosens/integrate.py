"""Time integration by PETSc TS; the only maker of TS."""

from __future__ import annotations

import math
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens._petsc import stages
from daeosens.arrays import Array, largest
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
from daeosens.stepping import Stepping, next_step
from daeosens.steps.linear import linear_defaults
from daeosens.trajectory import HIT, STAGE_MEMORY, Checkpoint, Effort, Stages, Trajectory

NEWTON_DEFAULTS: Mapping[str, Any] = {"snes_rtol": 1e-11, "snes_stol": 1e-14, "snes_max_it": 50}
"""Tight, because the derivative of a step is that of the converged step."""

Stop: TypeAlias = "Callable[[float, PETSc.Vec], bool]"

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
    stop: Stop | None = None,
) -> Run:
    """Run TS from ``state`` [n], which is overwritten, over ``stepping.t_span``.

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
    stop : callable, optional
        ``stop(t, u) -> bool`` after each accepted step: whether to end the run there.

    Raises
    ------
    InputError, SolveError
        As ``solve``.
    """
    method = stepping.resolved_method
    refuse_unsound_steps(problem, stepping, state, p)
    log = _Log(problem, stepping, pinned, keep_stages=checkpoint == "stages" and method.explicit)
    log.stop = stop
    ts = _make_ts(problem, method, stepping.t_span[0], state, p, record=checkpoint)
    _set_times(ts, stepping, pinned)
    ts.setPreStep(log.before_step)
    ts.setMonitor(log.after_step)
    if stop is not None:
        ts.setPostStep(log.consider_stopping)
    defaults = _defaults(problem, stepping, ts, checkpoint)
    try:
        with scoped_options(defaults=defaults, code=stepping.options) as scope:
            log.scope = scope
            if stepping.adaptive:
                rtol = 1e-6 if stepping.rtol is None else stepping.rtol
                atol = 1e-9 if stepping.atol is None else stepping.atol
                ts.setTolerances(rtol=rtol, atol=atol)
            ts.setFromOptions()
            refuse_other_method(ts, method)
            log.step_size = _fixed_step_size(ts, stepping)
            ts.setSolution(state)
            ts.setUp()
            scope.check_used()
            ts.solve(state)
    except DaeosensError:
        ts.destroy()
        raise
    except PETSc.Error as error:
        ts.destroy()
        if error.__cause__ is not None:  # a callback's exception: ``unwrapped`` takes it out
            raise
        raise _failure(error, stepping, log) from error
    if not log.stopped:
        _check_finished(ts, stepping, log)
    effort = Effort(
        ts.getStepNumber(),
        ts.getStepRejections(),
        ts.getSNESIterations(),
        ts.getKSPIterations(),
    )
    recording: list[PETSc.TS] = []
    if checkpoint in ("states", "stages"):
        ts.destroy()
    else:
        recording.append(ts)
    return Run(log.times, log.step_sizes(), log.states, log.stages(), effort, recording)


def _set_times(ts: PETSc.TS, stepping: Stepping, pinned: Array) -> None:
    ts.setTime(stepping.t_span[0])
    ts.setMaxTime(stepping.t_span[1])
    ts.setTimeStep(stepping.first_step)
    ts.setMaxSteps(stepping.max_steps)
    ts.setExactFinalTime(_TS.ExactFinalTime.MATCHSTEP)
    # PETSc 3.26 reads beyond the list if all its times are reached before the first step.
    ahead = pinned[pinned > stepping.t_span[0] + HIT * stepping.first_step]
    if ahead.size:
        ts.setEvaluationTimes(ahead.tolist())


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


def _fixed_step_size(ts: PETSc.TS, stepping: Stepping) -> float | None:
    """Return the size of steps that no error estimate chooses; None if one does."""
    kind = PETSc.Options().getString("ts_adapt_type", "none")
    return ts.getTimeStep() if kind == "none" and not stepping.adaptive else None


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


class _Log:
    """Collects accepted steps while TS runs, and keeps the size of fixed ones."""

    def __init__(
        self, problem: Problem, stepping: Stepping, pinned: Array, *, keep_stages: bool
    ) -> None:
        self.problem = problem
        self._keep_stages = keep_stages
        self._stages: list[list[PETSc.Vec]] = []
        self._start, self._end = stepping.t_span
        self._explicit = stepping.resolved_method.explicit
        self._ends = [*pinned.tolist(), self._end]
        self.step_size: float | None = None
        self.times: list[float] = []
        self.states: list[PETSc.Vec] = []
        self.scope: Scope | None = None
        self.stop: Stop | None = None
        self.stopped = False
        self._attempted: list[float] = []
        self._piece = problem.piece(self._start, 0.0)

    @property
    def last_time(self) -> float:
        return self.times[-1] if self.times else self._start

    def before_step(self, ts: PETSc.TS) -> None:
        if self._attempted and self.step_size is not None:
            ts.setTimeStep(next_step(ts.getTime(), self.step_size, self._ends))
        t, h = ts.getTime(), ts.getTimeStep()
        piece = self.problem.piece(t, h)
        if piece != self._piece and self._explicit:
            ts.restartStep()  # the last rate of the step before belongs to the other side
        self._piece = piece
        self._attempted.append(h)

    def after_step(self, ts: PETSc.TS, step: int, t: float, u: PETSc.Vec) -> None:
        if step == 1 and self.scope is not None:
            self.scope.check_used(final=True)
        if not math.isfinite(largest(u)):
            raise SolveError(
                f"the state is not finite at t = {t:.9g} (step {step}){_fault(self.problem)}",
                expected=f"a finite state up to t = {self._end:g}",
                remedy="a smaller dt, or an implicit method (cn, beuler) if the problem is stiff",
            )
        self.times.append(t)
        self.states.append(u.copy())
        if self._keep_stages and step:
            given = stages(ts)
            size = 8 * len(given) * self.problem.size / self.problem.comm.size
            if (len(self._stages) + 1) * size <= STAGE_MEMORY:  # the same on every rank
                self._stages.append([stage.copy() for stage in given])

    def consider_stopping(self, ts: PETSc.TS) -> None:
        """End the run if it was asked for (PETSc 3.26: a monitor's reason is forgotten)."""
        assert self.stop is not None
        if self.stop(ts.getTime(), ts.getSolution()):
            self.stopped = True
            ts.setConvergedReason(_TS.ConvergedReason.CONVERGED_USER)

    def stages(self) -> Stages:
        """Return what was kept, by step; the first ones only if memory did not suffice."""
        keys = zip(self.states, self.step_sizes(), strict=False)
        return {
            (state.handle, h): kept for (state, h), kept in zip(keys, self._stages, strict=False)
        }

    def step_sizes(self) -> list[float]:
        """Return h with t + h the next time: the size tried, or else the difference."""
        return [
            h if t + h == following else following - t
            for h, t, following in zip(
                self._attempted, self.times[:-1], self.times[1:], strict=False
            )
        ]


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


def _fault(problem: Problem) -> str:
    """Return what callbacks on any rank gave that is not finite, for a message.  Collective."""
    mine = problem.faults[0] if problem.faults else ""
    found = [text for text in problem.comm.tompi4py().allgather(mine) if text]
    return f": {found[0]}" if found else ""


def _failure(error: PETSc.Error, stepping: Stepping, log: _Log) -> DaeosensError:
    """Return what an error of PETSc means: bad input before the first step, then a failed solve."""
    reason = str(error).splitlines()[-1]
    if not log.times:
        return InputError(
            f"PETSc cannot be set up: {reason}",
            expected="values of PETSc options, and folders, that it can use",
        )
    return SolveError(
        f"TS failed after t = {log.times[-1]:.9g}: {reason}",
        expected=f"t = {stepping.t_span[1]:g}",
        remedy='options={"ts_monitor": None, "snes_monitor": None} to watch it',
    )


def _check_finished(ts: PETSc.TS, stepping: Stepping, log: _Log) -> None:
    reason: Any = ts.getConvergedReason()
    end = stepping.t_span[1]
    span = end - stepping.t_span[0]
    if reason > 0 and abs(log.last_time - end) <= 1e-9 * span:
        return
    steps = ts.getStepNumber()
    names = {
        value: name for name, value in vars(PETSc.TS.ConvergedReason).items() if name.isupper()
    }
    ts.destroy()
    raise SolveError(
        f"TS stopped at t = {log.last_time:.9g} after {steps} steps ({names.get(reason, reason)})"
        f"{_fault(log.problem)}",
        expected=f"t = {end:g}",
        remedy=f"max_steps > {stepping.max_steps}"
        if steps >= stepping.max_steps
        else 'a smaller dt, or options={"snes_monitor": None} to watch the Newton residual',
    )
