"""Time integration by PETSc TS: ``Stepping``, ``solve``, ``Trajectory``; the only maker of TS."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.arrays import Array, finite_array, largest, read
from daeosens.errors import (
    DaeosensError,
    InputError,
    SolveError,
    UnsupportedError,
    together,
)
from daeosens.matrices import SystemMatrix
from daeosens.methods import Method, find_method
from daeosens.options import OptionScope, scoped_options, validate_names
from daeosens.problem import Problem
from daeosens.steps.linear import linear_defaults

Checkpoint = Literal["states", "memory", "disk"]

NEWTON_DEFAULTS: Mapping[str, Any] = {"snes_rtol": 1e-11, "snes_stol": 1e-14, "snes_max_it": 50}
"""Tight, because the derivative of a step is that of the converged step."""

_TS: Any = PETSc.TS  # the stubs of petsc4py 3.26 give enumerations the wrong type

HIT = 1e-6
"""PETSc 3.26 takes a time within 1e-6 of a step from its end as reached."""


@dataclass(frozen=True)
class Stepping:
    """How to step: method, step sizes, tolerances, PETSc options.

    Parameters
    ----------
    t_span : (float, float)
        First and last time [time unit].
    method : str
        "rk1fe", "rk2a", "rk2b", "rk3", "rk3bs", "rk4", "rk5f", "rk5dp", "rk5bs", "rk6vr", "rk7vr",
        "rk8vr" (PETSc's TSRK types, also without "rk"), "beuler", "cn", "theta:<value>" or
        "midpoint".
    dt : float
        Step size, or the first one if steps are adaptive (default then: a thousandth of the span).
    rtol, atol : float, optional
        Either makes the steps adaptive; the other one defaults to 1e-6 and 1e-9.
    max_step : float, optional
        Largest adaptive step.
    max_steps : int
        More accepted steps than this are an error.
    options : mapping
        PETSc options without the leading dash: ``{"snes_monitor": None}``.  The command line wins.

    Raises
    ------
    InputError
        All that is wrong, at once.

    Examples
    --------
    >>> Stepping((0.0, 1.0), "rk4", dt=0.1).adaptive
    False
    """

    t_span: tuple[float, float]
    method: str = "cn"
    dt: float | None = None
    rtol: float | None = None
    atol: float | None = None
    max_step: float | None = None
    max_steps: int = 1_000_000
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        complaints: list[str] = []
        try:
            method = find_method(self.method)
            if self.adaptive and not method.adaptive:
                complaints.append(
                    f'method = "{self.method}" has no error estimate, so rtol and atol mean '
                    'nothing; try: dt alone, or "rk3bs", "rk5dp", "cn"'
                )
        except InputError as error:
            complaints.append(str(error).replace("\n ", ";"))
        complaints += _span_complaints(self)
        for name in ("rtol", "atol", "max_step"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and value > 0):
                complaints.append(f"{name} = {value!r}; expected: a positive number")
        if self.max_step is not None and not self.adaptive:
            complaints.append(
                f"max_step = {self.max_step!r} without rtol or atol; expected: adaptive steps; "
                "try: dt"
            )
        if isinstance(self.max_steps, bool) or not isinstance(self.max_steps, int):
            complaints.append(f"max_steps = {self.max_steps!r}; expected: an integer")
        elif self.max_steps < 1:
            complaints.append(f"max_steps = {self.max_steps}; expected: at least 1")
        try:
            validate_names(self.options, "Stepping options")
        except InputError as error:
            complaints.append(str(error).replace("\n ", ";"))
        if complaints:
            raise together(complaints, heading="Stepping")

    @property
    def adaptive(self) -> bool:
        """Whether an error estimate chooses the steps."""
        return self.rtol is not None or self.atol is not None

    @property
    def resolved_method(self) -> Method:
        """What the name of the method stands for."""
        return find_method(self.method)

    @property
    def first_step(self) -> float:
        """Size of the first step that is tried."""
        first, last = self.t_span
        step = 1e-3 * (last - first) if self.dt is None else self.dt
        return step if self.max_step is None else min(step, self.max_step)


@dataclass(frozen=True)
class Effort:
    """What a run cost: accepted and rejected steps, Newton and linear iterations."""

    steps: int
    rejected: int
    newton_iterations: int
    linear_iterations: int


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The log of accepted steps, which every derivative sweep follows.

    Attributes
    ----------
    times : array [N+1]
        Times of the states [time unit].
    step_sizes : array [N]
        Sizes of the accepted steps.
    states : sequence of Vec [n]
        The N+1 states.
    p : array or Vec [m]
        Parameters of the run.
    """

    problem: Problem
    p: Any
    stepping: Stepping
    times: Array
    step_sizes: Array
    states: Sequence[PETSc.Vec]
    effort: Effort
    checkpoint: Checkpoint = "states"
    recording: list[PETSc.TS] = field(default_factory=list[PETSc.TS], repr=False)

    @property
    def n_steps(self) -> int:
        """Number N of accepted steps."""
        return len(self.step_sizes)

    @property
    def final(self) -> PETSc.Vec:
        """State [n] at the last time; not to be changed."""
        return self.states[-1]

    @cached_property
    def u(self) -> Array:
        """States as an array [N+1, n_local]: the rank's own rows of a distributed problem."""
        return np.array([read(state) for state in self.states])

    def index(self, t: float) -> int:
        """Return the number of the step time that equals ``t``.

        Raises
        ------
        InputError
            No step ended there: the nearest times and the remedy are named.
        """
        k = int(np.argmin(np.abs(self.times - t)))
        nearest_step = self.step_sizes[min(max(k - 1, 0), self.n_steps - 1)]
        if abs(self.times[k] - t) > HIT * nearest_step + 1e-14 * abs(t):
            raise InputError(
                f"t = {t:.9g} is not a step time (the nearest is {self.times[k]:.9g})",
                expected="a time that a step ended at",
                remedy="solve(..., t_eval=[...]) with this time, or t_eval=objective.times",
            )
        return k

    def at(self, t: float) -> PETSc.Vec:
        """Return the state [n] at a step time; not to be changed."""
        return self.states[self.index(t)]

    def destroy(self) -> None:
        """Free the vectors now.  Collective; otherwise done when the object is dropped."""
        for state in self.states:
            state.destroy()
        while self.recording:
            self.recording.pop().destroy()

    def __str__(self) -> str:
        first, last = self.times[0], self.times[-1]
        return (
            f"Trajectory from t = {first:g} to {last:g}: {self.effort.steps} steps of "
            f"{self.stepping.method} ({self.effort.rejected} rejected), "
            f"h = {self.step_sizes.min():.3g} ... {self.step_sizes.max():.3g}"
        )


def solve(
    problem: Problem,
    u0: npt.ArrayLike | PETSc.Vec,
    p: npt.ArrayLike | PETSc.Vec | None,
    stepping: Stepping,
    t_eval: npt.ArrayLike = (),
    checkpoint: Checkpoint = "states",
) -> Trajectory:
    """Integrate a problem in time and keep the log of its accepted steps.

    Collective on ``problem.comm``.

    Parameters
    ----------
    problem : Problem
        From ``ODE`` or ``DAE``.
    u0 : array or Vec [n]
        Initial state; for a DAE it has to satisfy the algebraic equations.
    p : array or Vec [m]
        Parameters.
    stepping : Stepping
        Method and step sizes.
    t_eval : array_like [K]
        Increasing times inside the span that steps must hit exactly.
    checkpoint : {"states", "memory", "disk"}
        What is kept: every state (for the "steps" engine); with "memory" or "disk" also PETSc's own
        trajectory with its stages (for ``adjoint(..., engine="tsadjoint")``).

    Returns
    -------
    Trajectory

    Raises
    ------
    InputError
        Anything that does not fit together, before the first step.
    SolveError
        TS stopped early, or the state is no longer finite; the same on every rank.

    Examples
    --------
    >>> from daeosens import ODE
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> float(run.u[-1, 0].round(6))
    0.36788
    """
    if problem.comm.size > 1:
        PETSc.garbage_cleanup(problem.comm)  # petsc4py delays the destruction of parallel objects
    if checkpoint not in ("states", "memory", "disk"):
        raise InputError(f"checkpoint = {checkpoint!r}", expected='"states", "memory" or "disk"')
    _refuse_shrinking_steps(problem, stepping)
    state = problem.admit_state(u0)
    parameters = problem.admit_parameters(p)
    pinned = _pinned_times(stepping, t_eval)
    method = stepping.resolved_method
    log = _Log(problem, stepping)
    ts = _make_ts(problem, method, stepping.t_span[0], state, parameters, record=checkpoint)
    ts.setTime(stepping.t_span[0])
    ts.setMaxTime(stepping.t_span[1])
    ts.setTimeStep(stepping.first_step)
    ts.setMaxSteps(stepping.max_steps)
    ts.setExactFinalTime(_TS.ExactFinalTime.MATCHSTEP)
    if pinned.size:
        ts.setEvaluationTimes(pinned.tolist())
    ts.setPreStep(log.before_step)
    ts.setMonitor(log.after_step)
    defaults = _defaults(problem, stepping, ts, checkpoint)
    try:
        with scoped_options(defaults=defaults, code=stepping.options) as scope:
            log.scope = scope
            ts.setFromOptions()
            if stepping.adaptive:
                rtol = 1e-6 if stepping.rtol is None else stepping.rtol
                atol = 1e-9 if stepping.atol is None else stepping.atol
                ts.setTolerances(rtol=rtol, atol=atol)
            ts.setSolution(state)
            ts.setUp()
            scope.check_used()
            ts.solve(state)
    except DaeosensError:
        ts.destroy()
        raise
    except PETSc.Error as error:
        ts.destroy()
        raise SolveError(
            f"TS failed after t = {log.last_time:.9g}: {str(error).splitlines()[-1]}",
            expected=f"t = {stepping.t_span[1]:g}",
            remedy='options={"ts_monitor": None, "snes_monitor": None} to watch it',
        ) from error
    _check_finished(ts, stepping, log)
    effort = Effort(
        ts.getStepNumber(),
        ts.getStepRejections(),
        ts.getSNESIterations(),
        ts.getKSPIterations(),
    )
    recording: list[PETSc.TS] = []
    if checkpoint == "states":
        ts.destroy()
    else:
        recording.append(ts)
    return Trajectory(
        problem,
        parameters,
        stepping,
        np.array(log.times),
        np.array(log.step_sizes()),
        tuple(log.states),
        effort,
        checkpoint,
        recording,
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
    ts = _make_ts(
        problem,
        stepping.resolved_method,
        stepping.t_span[0],
        state,
        trajectory.p,
        record=checkpoint,
    )
    ts.setTime(stepping.t_span[0])
    ts.setMaxTime(2 * stepping.t_span[1] - stepping.t_span[0] + 1.0)
    ts.setTimeStep(float(sizes[0]))
    ts.setMaxSteps(len(sizes))
    ts.setExactFinalTime(_TS.ExactFinalTime.STEPOVER)

    def before_step(ts: PETSc.TS) -> None:
        ts.setTimeStep(float(sizes[ts.getStepNumber()]))

    ts.setPreStep(before_step)
    prepare(ts)
    defaults = _defaults(problem, stepping, ts, checkpoint) | {"ts_adapt_type": "none"}
    with scoped_options(defaults=defaults, code=stepping.options):
        ts.setFromOptions()
        ts.solve(state)
    return ts


class _Log:
    """Collects accepted steps while TS runs."""

    def __init__(self, problem: Problem, stepping: Stepping) -> None:
        self._problem = problem
        self._end = stepping.t_span[1]
        self.times: list[float] = []
        self.states: list[PETSc.Vec] = []
        self.scope: OptionScope | None = None
        self._attempted: list[float] = []

    @property
    def last_time(self) -> float:
        return self.times[-1] if self.times else math.nan

    def before_step(self, ts: PETSc.TS) -> None:
        self._attempted.append(ts.getTimeStep())

    def after_step(self, _ts: PETSc.TS, step: int, t: float, u: PETSc.Vec) -> None:
        if step == 1 and self.scope is not None:
            self.scope.check_used(final=True)
        if not math.isfinite(largest(u)):
            raise SolveError(
                f"the state is not finite at t = {t:.9g} (step {step})",
                expected=f"a finite state up to t = {self._end:g}",
                remedy="a smaller dt, or an implicit method (cn, beuler) if the problem is stiff",
            )
        self.times.append(t)
        self.states.append(u.copy())

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
    if method.explicit:
        ts.setType(PETSc.TS.Type.RK)
        ts.setRKType(method.runge_kutta)
        ts.setRHSFunction(lambda _ts, t, u, out: problem.rhs(t, u, p, out), work)
        if record != "states":
            _set_rhs_derivatives(ts, problem, t, u, p)
        return ts
    ts.setType(PETSc.TS.Type.THETA)
    ts.setTheta(method.theta)
    ts.setThetaEndpoint(method.endpoint)
    if method.name in ("cn", "beuler"):
        ts.setType(method.name)
    ts.setIFunction(lambda _ts, t, u, udot, out: problem.residual(t, u, udot, p, out), work)
    if problem.coloring:
        _set_coloring(ts, problem, record)
        return ts
    udot = problem.create_state()
    system = SystemMatrix(problem.residual_u, problem.residual_udot, t, u, udot, p)

    def jacobian(
        _ts: PETSc.TS,
        t: float,
        u: PETSc.Vec,
        udot: PETSc.Vec,
        shift: float,
        _matrix: PETSc.Mat,
        _preconditioner: PETSc.Mat,
    ) -> None:
        system.fill(t, u, udot, p, shift)

    ts.setIJacobian(jacobian, system.matrix, system.matrix)
    if record != "states" and problem.n_parameters:
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


def _refuse_shrinking_steps(problem: Problem, stepping: Stepping) -> None:
    """Refuse the midpoint rule with error control for algebraic variables.

    They oscillate undamped, so the error estimate does not fall with the step size and PETSc 3.26
    shrinks the step until it divides by zero.
    """
    if problem.algebraic and stepping.adaptive and stepping.resolved_method.name == "midpoint":
        raise UnsupportedError(
            'adaptive "midpoint" for a mass matrix with rows of zeros',
            expected="steps whose algebraic variables are damped",
            remedy='"cn", "beuler" or "theta:<value>", or fixed steps',
        )


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
    if record != "states":
        raise UnsupportedError(
            'PETSc\'s trajectory with jacobian = "coloring"', expected="an analytic jacobian"
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
    if checkpoint != "states":
        ts.setSaveTrajectory()
        defaults["ts_trajectory_type"] = "memory" if checkpoint == "memory" else "basic"
        if checkpoint == "disk":
            defaults["ts_trajectory_dirname"] = _shared_folder(problem.comm)
    return defaults


def _shared_folder(comm: PETSc.Comm) -> str:
    """Make a temporary folder on rank 0; PETSc removes it with the trajectory."""
    made = tempfile.mkdtemp(prefix="daeosens-") if comm.rank == 0 else ""
    return comm.tompi4py().bcast(made)


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
        f"TS stopped at t = {log.last_time:.9g} after {steps} steps ({names.get(reason, reason)})",
        expected=f"t = {end:g}",
        remedy=f"max_steps > {stepping.max_steps}"
        if steps >= stepping.max_steps
        else 'a smaller dt, or options={"snes_monitor": None} to watch the Newton residual',
    )


def _pinned_times(stepping: Stepping, t_eval: npt.ArrayLike) -> Array:
    times = finite_array(t_eval, "t_eval")
    if times.ndim != 1:
        raise InputError(f"t_eval has shape {times.shape}", expected="shape (K,)")
    first, last = stepping.t_span
    if (np.diff(times) <= 0).any():
        k = int(np.argmax(np.diff(times) <= 0))
        raise InputError(
            f"t_eval is not increasing: {times[k]:g} is followed by {times[k + 1]:g}",
            expected="strictly increasing times",
        )
    outside = times[(times < first) | (times > last)]
    if outside.size:
        raise InputError(
            f"t_eval or observation time {outside[0]:g} lies outside the time span",
            expected=f"times in [{first:g}, {last:g}]",
            remedy="a longer t_span, or fewer times",
        )
    return times


def _span_complaints(stepping: Stepping) -> list[str]:
    span: Any = stepping.t_span
    if not (isinstance(span, (tuple, list)) and len(span) == 2 and all(map(_is_number, span))):
        return [f"t_span = {span!r}; expected: two finite numbers"]
    first, last = float(span[0]), float(span[1])
    complaints: list[str] = []
    if not first < last:
        complaints.append(
            f"t_span = ({first:g}, {last:g}) is reversed or empty; expected: first < last"
        )
    dt: Any = stepping.dt
    if dt is None:
        if not stepping.adaptive:
            complaints.append("dt is missing; expected: dt, or rtol and atol for adaptive steps")
    elif not (_is_number(dt) and dt > 0):
        complaints.append(f"dt = {dt!r}; expected: a positive number")
    elif first < last and dt > (last - first) * (1 + 1e-12):
        complaints.append(
            f"dt = {dt:g} is larger than the span {last - first:g}; expected: dt <= span"
        )
    return complaints


def _is_number(value: Any) -> bool:
    kinds = (int, float, np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(float(value))
