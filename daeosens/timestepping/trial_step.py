"""Single steps of TS beside its runs: of any size, from any state, and remembered by nobody."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.methods.step import TakesSteps
from daeosens.petsc._kernels import take_step
from daeosens.petsc.non_finite import note_fault
from daeosens.petsc.options import scoped_options
from daeosens.problem.problem import Problem
from daeosens.timestepping.c_rhs import note_cause, raise_fault
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.ts import make_ts
from daeosens.timestepping.ts_cache import ReusableTS
from daeosens.timestepping.ts_defaults import default_options, set_up


class SingleSteps:
    """Steps that have nothing to do with the run that may be under way.

    Parameters
    ----------
    problem : Problem
        Without regard to its events.
    stepping : Stepping
        Its method is that of the steps; sizes are the caller's.
    ready : ReusableTS
        The TS of the runs, which takes single steps between two of them, and its parameters.
    """

    def __init__(self, problem: Problem, stepping: Stepping, ready: ReusableTS) -> None:
        self._problem = problem
        self._stepping = stepping
        self._ready = ready
        self._spare_ts: PETSc.TS | None = None

    def step(
        self, t: float, h: float, u: PETSc.Vec, out: PETSc.Vec, *, again: bool = False
    ) -> None:
        """Fill ``out`` [n] with the state after one step of size ``h`` from ``u`` [n] at ``t``.

        ``again`` says that the last step began just there.

        Raises
        ------
        SolveError
            The step failed.
        """
        ready = self._ready
        if self._stepping.resolved_method.explicit:
            self._explicit_step.advance(t, h, u, ready.held.p, out, again=again)
        elif ready.hooks.log is None:  # between two runs: nothing of the step is remembered
            _step(ready.ts, t, h, u, out)
        else:
            self._spare_ts = self._spare_ts or self._make_spare(self._problem, t, u)
            _step(self._spare_ts, t, h, u, out)

    def take_again(self, t: float, h: float, u: PETSc.Vec) -> None:
        """Take a step that failed by callbacks in Python: those note what is not finite."""
        out, p = u.duplicate(), self._ready.held.p
        if self._stepping.resolved_method.explicit:
            self._explicit_step.advance(t, h, u, p, out)
            self._problem.rhs(t + h, out, p, u.duplicate())  # as error estimates do
        else:
            problem = replace(self._problem, stencil=None)
            ts = self._make_spare(problem, t, u)
            with suppress(SolveError, PETSc.Error):  # as it did before
                _step(ts, t, h, u, out)
            _try_jacobian(problem, t + h, ts.getSNES().getSolution(), p)
            ts.destroy()
        out.destroy()

    def close(self) -> None:
        """Free the TS that takes steps while the other one is in the middle of a run."""
        if self._spare_ts is not None:
            self._spare_ts.destroy()

    @cached_property
    def _explicit_step(self) -> TakesSteps:
        steps = self._stepping.resolved_method.step_map(self._problem, {})
        assert isinstance(steps, TakesSteps)
        return steps

    def _make_spare(self, problem: Problem, t: float, u: PETSc.Vec) -> PETSc.TS:
        """Return a TS for single implicit steps while the other one is in the middle of a run."""
        stepping = self._stepping
        ts = make_ts(problem, stepping.resolved_method, t, u, self._ready.held, record="states")
        defaults = default_options(problem, stepping, ts, "states")
        with scoped_options(defaults=defaults, code=stepping.options):
            set_up(ts, problem, u, stepping, "states")
        return ts


def _step(ts: PETSc.TS, t: float, h: float, u: PETSc.Vec, out: PETSc.Vec) -> None:
    """Take a step that Newton's method alone judges.

    The step that it is a part of has been accepted.  An error estimate would refuse the part where
    a component is zero at its end, as at the surface of an event, and only the absolute tolerance
    counts.
    """
    solution = ts.getSolution()
    u.copy(solution)
    ts.setStepNumber(0)
    ts.setTime(t)
    ts.setTimeStep(h)
    ts.restartStep()  # what was kept of the step before belongs to another one
    try:
        take_step(ts)
    except PETSc.Error as error:
        note_cause(ts, error)
        if error.__cause__ is None:
            raise_fault(ts)
        raise
    reason: Any = ts.getConvergedReason()
    if reason < 0 or ts.getTime() != t + h:
        raise SolveError(
            f"a step of size {h:.3g} from t = {t:.9g} failed, in search of an event",
            expected="convergence of Newton's method",
            remedy="a smaller dt; a mode for each side, daeosens.hybrid, if the equations jump "
            'there; or options={"snes_monitor": None} to watch it',
        )
    solution.copy(out)


def _try_jacobian(problem: Problem, t: float, u: PETSc.Vec, p: Any) -> None:
    matrix = problem.rhs_u.create(t, u, p)
    problem.rhs_u.fill(t, u, p, matrix)
    ones, out = u.duplicate(), u.duplicate()
    ones.set(1.0)
    matrix.mult(ones, out)
    note_fault(problem.faults, "jacobian", t, out, problem.dm)
    for trial in (matrix, ones, out):
        trial.destroy()
