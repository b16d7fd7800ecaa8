"""What is said of runs that TS did not finish: why, where, and what to try."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import (
    ChatterError,
    DaeosensError,
    NewtonError,
    NotFiniteError,
    SingularMatrixError,
    SolveError,
    StiffError,
)
from daeosens.methods.linear_solver import linear_fault, reason_name, singular
from daeosens.methods.registry import find_method
from daeosens.petsc._kernels import DENSE
from daeosens.petsc.options import refused_value
from daeosens.petsc.step_rejection import trials
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.problem import Problem
from daeosens.problem.slope_check import deciding_lines
from daeosens.timestepping.step_log import StepLog
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.stiffness import REACH, fastest_decay
from daeosens.timestepping.trajectory.stay import DROPPED
from daeosens.timestepping.trial_step import SingleSteps
from daeosens.timestepping.ts_cache import cannot_set_up

SHORTER = (0.25, 0.0625, 0.015625)
"""Parts of a step whose Newton iteration failed, which are tried for the message."""

ZERO_PIVOT = 71
"""PETSc's error code of dense matrices without factors."""

LAST, CHATTER = 16, 6
"""So many steps at the end are looked at, and so many with a jump ahead tell chatter."""

HALVINGS = 40
"""Of a step, until a jump is known from a slope."""

JUMP = 1e-2
"""Part of the rates that f jumps by."""

NOT_FINITE = 72
"""PETSc's error code of norms that are not."""


@dataclass(frozen=True, eq=False)
class RunFailures:
    """The errors of runs by one TS.

    Attributes
    ----------
    problem, stepping : Problem, Stepping
        What is run.
    ts : TS
        Which has stopped: asked for its reasons.
    single_steps : SingleSteps
        For steps that are tried for the message.
    """

    problem: Problem
    stepping: Stepping
    ts: PETSc.TS
    single_steps: SingleSteps

    def ended(self, log: StepLog, steps: int, p: Any, *, at_start: bool) -> SolveError:
        """Return the error of a run that ended early.  Collective.

        Parameters
        ----------
        log : StepLog
            Its steps.
        steps : int
            How many of ``max_steps`` are taken, those before this piece of the run included.
        p : array or Vec
            The parameters that hold.
        at_start : bool
            Whether there is no step yet.
        """
        reason: Any = self.ts.getConvergedReason()
        fault = self._told(log) if reason < 0 else ""  # else trials were survived
        stopped = (
            f"TS stopped at t = {log.last_time:.9g} after {steps} steps "
            f"({reason_name(PETSc.TS.ConvergedReason, reason)}){fault}"
        )
        if reason == PETSc.TS.ConvergedReason.DIVERGED_NONLINEAR_SOLVE and not fault:
            return self._unsolved(log, stopped)
        many = steps >= self.stepping.max_steps
        expected = f"t = {self.stepping.t_span[1]:g}"
        if not many:
            return SolveError(
                stopped, expected=expected, remedy=self._other_start(at_start=at_start)
            )
        jump = self._chatter(log, p)
        if jump:
            error = ChatterError(
                f"{stopped}: {jump}",
                expected=expected,
                remedy="a function that is continuous there, or modes with daeosens.hybrid, and an "
                "event that changes its sign there: the state is driven back to the jump from both "
                "sides, by any method",
            )
            pace = float(np.mean(log.step_sizes()[-LAST:]))
            error.ahead = (self.stepping.t_span[1] - log.last_time) / pace if pace else np.inf
            return error
        told, stiff = self._stiffness(log, p)
        if stiff:
            error = StiffError(f"{stopped}{told}", expected=expected, remedy=self._more_steps())
            error.time = log.last_time
            return error
        return SolveError(f"{stopped}{told}", expected=expected, remedy=self._more_steps())

    def _unsolved(self, log: StepLog, stopped: str) -> SolveError:
        """Return the error of a step whose equations were not solved, after trying what may help.

        Collective.
        """
        ts = self.ts
        told = ""
        if ts.getType() != DENSE:
            snes: Any = ts.getSNES()
            reasons: Any = PETSc.SNES.ConvergedReason
            if snes.getConvergedReason() == reasons.DIVERGED_LINEAR_SOLVE:
                fault = linear_fault(snes.getKSP(), stopped)
                alone = isinstance(fault, SingularMatrixError)
                return self._singular(stopped) if alone else fault
            why = reason_name(reasons, snes.getConvergedReason())
            told = (
                f" after {snes.getIterationNumber()} iterations ({why}), "
                f"residual {snes.getFunctionNorm():.3g}"
            )
        h, out = log.last_size, log.states[-1].duplicate()
        remedy = 'consistent starting values; options={"snes_monitor": None} shows the residual; '
        remedy += f"steps down to {h * SHORTER[-1]:.3g} fail too"
        # the failed step is tried with shorter ones, so that the message can say a dt which works
        for part in SHORTER:
            try:
                self.single_steps.step(log.last_time, part * h, log.states[-1], out)
            except (SolveError, PETSc.Error):
                continue
            remedy = f"dt={part * h:.3g}, or rtol: a step of that size is solved from there"
            break
        out.destroy()
        return NewtonError(
            f"{stopped}: Newton's method failed{told} in a step of {h:.3g}",
            expected="convergence of Newton's method",
            remedy=remedy,
        )

    def _chatter(self, log: StepLog, p: Any) -> str:
        """Return that the last steps had a jump of f ahead, and where; or nothing."""
        problem, branches = self.problem, self.problem.branches
        states, times = log.states[-LAST - 1 : -1], log.times()[-LAST - 1 :]
        known = problem.form == "rhs" and problem.delays is None and problem.comm.size == 1
        if branches is None or not known or DROPPED in states or not isinstance(p, np.ndarray):
            return ""
        state, out = problem.create_state(), problem.create_state()

        def rate(t: float, u: Array) -> Array:
            write(state, u)
            try:
                problem.rhs(t, state, p, out)
            except NotFiniteError:  # 0 / 0 of a direction, on the jump itself
                return np.full(u.size, np.nan)
            return read(out).copy()

        # accepted states stay on one side: what lies ahead of them, in the length of a step, is
        # on the other
        jumps = 0
        for t, h, vec in zip(times.tolist(), np.diff(times).tolist(), states, strict=False):
            u = read(vec).copy()
            f = rate(t, u)
            side = np.sign(branches(t, u, p).values)
            # where nothing decides, a direction v / |v| may jump all the same: the rates tell
            told = not np.array_equal(side, np.sign(branches(t + h, u + h * f, p).values))
            low, high = 0.0, 1.0
            before, after = f, rate(t + h, u + h * f)
            whole = 0.0 if told else 0.5 * np.abs(after - before).max()
            for _ in range(HALVINGS):
                middle = 0.5 * (low + high)
                point = t + middle * h, u + middle * h * f
                between = rate(*point)
                if told:
                    same = np.array_equal(side, np.sign(branches(*point, p).values))
                else:
                    same = not np.abs(after - between).max() <= np.abs(between - before).max()
                if same:
                    low, before = middle, between
                else:
                    high, after = middle, between
            # most of the difference: rounding of stiff terms leaves little of theirs
            least = max(JUMP * np.abs(before).max(), whole)
            jumps += not np.abs(after - before).max() <= least
        # behind an event there may be fewer: then all of them, two at least
        if jumps < min(CHATTER, max(len(states), 2)):
            return ""
        last = float(times[-1]), read(log.states[-1]).copy()
        # traced functions decide in C, where there are no lines: those of the time are from Python
        lines = deciding_lines(lambda: branches(*last, p, in_time=True))
        where = f", {', '.join(lines)}" if lines else ""
        return f"the equations jump where the state is{where}: it crosses the jump again and again"

    def _stiffness(self, log: StepLog, p: Any) -> tuple[str, bool]:
        """Return whether stability has held the last step small, in words and as a fact."""
        if not (self.stepping.adaptive and self.stepping.resolved_method.explicit):
            return "", False
        sizes = log.step_sizes()
        if not sizes.size:
            return "", False
        h = float(sizes[-1])
        decay = fastest_decay(self.problem, log.last_time, log.states[-1], p)
        # stability allows explicit steps of about REACH times of decay: this one was shorter by
        # itself
        if h * decay < REACH:
            return f"; the last step was {h:.3g}", False
        told = f"steps of {h:.3g} beside a time of decay of {1.0 / decay:.3g}"
        return f": the equations are stiff, with {told}", True

    def _more_steps(self) -> str:
        more = f"max_steps > {self.stepping.max_steps}"
        explicit = self.stepping.adaptive and self.stepping.resolved_method.explicit
        return f'method="esdirk5", which takes large steps, or {more}' if explicit else more

    def _other_start(self, *, at_start: bool) -> str:
        """Return what to try where steps failed, for a message."""
        if at_start and self.problem.form != "rhs":
            return (
                "a start from consistent_state(problem, u0, p), or guesses of the algebraic "
                "variables that are nearer to it: no step is small enough for these"
            )
        return 'a smaller dt, or options={"ts_monitor": None} to watch the steps'

    def _told(self, log: StepLog) -> str:
        """Return what was not finite, and the steps that were tried, for a message.  Collective."""
        return f"{log.fault()}{trials(self.ts)}"

    def _singular(self, stopped: str) -> SingularMatrixError:
        """Return the error of a singular matrix, with a method that has none if there is one."""
        problem, method = self.problem, self.stepping.resolved_method
        fault = singular(stopped)
        stiff = find_method("esdirk5")
        if problem.form != "mass" or method.tableau is not None or not stiff.takes(problem):
            return fault
        better = f'method="{stiff.name}", which knows the null space of a singular mass, or '
        return type(fault)(str(fault).replace("  try: ", f"  try: {better}", 1))

    def of_petsc(self, error: PETSc.Error, log: StepLog) -> DaeosensError:
        """Return what an error of PETSc means: bad input before a step, then a failed solve."""
        if not log.begun:
            return cannot_set_up(error)
        refused = refused_value(error)  # what PETSc reads as late as in the first solve
        if refused is not None:
            return refused
        code: int = getattr(error, "ierr", 0)
        # norms are collective, as this is
        if code == ZERO_PIVOT:
            return self._singular(f"TS stopped at t = {log.last_time:.9g}")
        fault = self._told(log) if code == NOT_FINITE else ""
        return SolveError(
            f"TS failed after t = {log.last_time:.9g}: {str(error).splitlines()[-1]}{fault}",
            expected=f"t = {self.stepping.t_span[1]:g}",
            remedy='options={"ts_monitor": None, "snes_monitor": None} to watch it',
        )
