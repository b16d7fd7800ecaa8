"""PETSc's own discrete adjoint (TSAdjoint), refused where PETSc 3.26 is known to be wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from petsc4py import PETSc

from daeosens.costs.cost import Densities
from daeosens.derivatives.engines.request import AdjointRequest
from daeosens.derivatives.engines.vectors.adjoint import VectorSweep
from daeosens.errors import UnsupportedError
from daeosens.methods.linear_solver import coarsen_points, refuse_loose, refuse_without_transpose
from daeosens.methods.step import StepMap
from daeosens.petsc._kernels import know_rounding
from daeosens.petsc.options import scoped_options
from daeosens.petsc.vectors import write
from daeosens.problem.matrices import dense
from daeosens.problem.problem import Problem
from daeosens.timestepping.c_rhs import Held
from daeosens.timestepping.trajectory.trajectory import Trajectory, stages_between
from daeosens.timestepping.ts import make_ts
from daeosens.timestepping.ts_defaults import default_options


class TSAdjointSweep:
    """M adjoint rows, carried back by PETSc between the jumps of a run.

    A recorded trajectory is used up (PETSc's memory trajectory can be read once only, and no TS can
    change its number of costs); without one, and for running costs, the run is repeated from the
    log.

    Parameters
    ----------
    trajectory : Trajectory
        The steps, of a run whose events are at given times.
    request : AdjointRequest
        The rows.

    Raises
    ------
    UnsupportedError
        PETSc's result would be wrong.
    """

    name, why = "tsadjoint", ""

    def __init__(self, trajectory: Trajectory, request: AdjointRequest) -> None:
        refuse_wrong_combinations(trajectory)
        self._trajectory = trajectory
        self._request = request
        self._vectors = VectorSweep(trajectory, request)
        self.observe = self._vectors.observe
        self.between = self._vectors.between
        self.values = self._vectors.values
        self.rows = self._vectors.rows
        self.matrices = self._vectors.matrices

    @property
    def steps(self) -> StepMap:
        """The step map of the jumps."""
        return self._vectors.steps

    def back(self, first: int, last: int) -> None:
        """Carry the rows from state number ``last`` to ``first``, between which is no jump."""
        run, request, (lam, mu) = self._trajectory, self._request, self.rows()
        problem, p = run.problem, run.parameters(first)

        def prepare(ts: PETSc.TS) -> None:
            ts.setCostGradients(lam, mu if problem.n_parameters else None)
            if request.continuous:
                _attach_quadrature(ts, problem, p, request.densities)

        ts: PETSc.TS | None = None
        # TS wants to know running costs before it is set up: then a recorded run is of no use.
        if run.recording and not request.continuous:
            # used up: PETSc's memory trajectory can be read once
            ts = run.recording.pop()
            prepare(ts)
        elif last > first:
            ts = replay(_piece(run, first, last), prepare)
        if ts is not None and not run.stepping.resolved_method.explicit:
            solver = ts.getSNES().getKSP()
            refuse_without_transpose(solver)
            refuse_loose(solver)
        position = last
        # TSAdjoint goes from one observed state to the one before; lam and mu are ours, so what
        # is observed is added between.
        for number in sorted({*(n for n in request.observed if first <= n < last), first})[::-1]:
            if number < position and ts is not None:  # TSAdjointSetSteps(0) would mean all steps
                ts.adjointSetSteps(position - number)
                ts.adjointSolve()
                position = number
            if number < last:
                self.observe(number)
        if ts is not None:
            ts.destroy()


def jumps_apart(trajectory: Trajectory) -> list[tuple[int, int, bool]]:
    """Return the numbers of the first and last state of what is between jumps, and of the jumps."""
    parts: list[tuple[int, int, bool]] = []
    first = 0
    for crossing in trajectory.crossings:
        parts += [(first, crossing.step, True), (crossing.step, crossing.step + 1, False)]
        first = crossing.step + 1
    parts.append((first, trajectory.n_steps, True))
    return [part for part in parts if part[0] < part[1]]


def _piece(trajectory: Trajectory, first: int, last: int) -> Trajectory:
    """Return the smooth part of a trajectory between two of its states."""
    if not trajectory.records:
        return trajectory
    (problem, p), stepping = trajectory.equations(first), trajectory.stepping
    times = trajectory.times[first : last + 1]
    span = (float(times[0]), float(times[-1]))
    dt = None if stepping.dt is None else min(stepping.dt, span[1] - span[0])
    return replace(
        trajectory,
        problem=replace(problem, events=(), modes={}),
        p=p,
        stepping=replace(stepping, t_span=span, dt=dt),
        times=times,
        step_sizes=trajectory.step_sizes[first:last],
        stored=trajectory.stored[first : last + 1],
        kept=stages_between(trajectory.kept, first, last),
        crossings=(),
        records=(),
    )


def refuse_wrong_combinations(trajectory: Trajectory) -> None:
    """Raise where TSAdjoint of PETSc 3.26 gives wrong gradients without saying so.

    Raises
    ------
    UnsupportedError
        Implicit events, ESDIRK methods, breakpoints, a rate-dependent Jacobian (stale rate in
        TSAdjointStep_Theta), or parameters in the mass matrix with a one-stage method (the memory
        trajectory does not restore the state).
    """
    problem, method = trajectory.problem, trajectory.stepping.resolved_method
    for crossing in trajectory.crossings:
        if trajectory.records[crossing.step - 1].ends_at is not None:
            raise UnsupportedError(
                f'engine = "tsadjoint" for a run with the implicit event "{crossing.name}" '
                f"at t = {crossing.t:.9g}",
                expected="events at given times: TSAdjoint has no derivative in the size of a step",
                remedy='adjoint(..., engine="vectors")',
            )
    remedy = 'adjoint(..., engine="vectors")'
    if not method.tsadjoint:
        raise UnsupportedError(
            f'engine = "tsadjoint" with "{method.name}"',
            expected="Runge-Kutta types of TSRK, or theta methods",
            remedy=remedy,
        )
    if problem.breakpoints:
        raise UnsupportedError(
            'engine = "tsadjoint" for a problem with breakpoints',
            expected="equations without jumps: the sweep back does not say which step it is in",
            remedy=remedy,
        )
    if problem.udot_nonlinear:
        raise UnsupportedError(
            "engine = \"tsadjoint\" for F(t, u, u', p) = 0 whose F_udot may depend on u or u'",
            expected="M u' = f with a constant M; DAE(..., linear_in_udot=True) says so",
            remedy=remedy,
        )
    if not problem.constant_mass and not method.holds_at_end:
        raise UnsupportedError(
            f'engine = "tsadjoint" with parameters in the mass matrix and "{method.name}"',
            expected='"cn", "beuler" or "theta:<value>"',
            remedy=remedy,
        )


def _attach_quadrature(ts: PETSc.TS, problem: Problem, p: Any, rows: Sequence[Densities]) -> None:
    """Give TS the running costs: values and transposed derivatives, for every sweep step.

    Callbacks fill the first matrix only: TSTHETA of PETSc 3.26 passes NULL for the second.
    """
    quadrature = ts.createQuadratureTS(False)
    gradient_u, gradient_p = problem.create_state(), problem.create_parameters()

    def values(_ts: PETSc.TS, t: float, u: PETSc.Vec, out: PETSc.Vec) -> None:
        write(
            out,
            [sum(w * density.value(t, u, p) for w, density in row) for row in rows],
        )

    def columns_u(
        _ts: PETSc.TS, t: float, u: PETSc.Vec, matrix: PETSc.Mat, _preconditioner: PETSc.Mat
    ) -> None:
        for k, row in enumerate(rows):
            # the matrices are transposed: column k is the gradient of running cost k
            gradient_u.zeroEntries()
            for weight, density in row:
                density.add_u(weight, t, u, p, gradient_u)
            matrix.getDenseArray()[:, k] = gradient_u.getArray(readonly=True)
        matrix.assemble()

    def columns_p(_ts: PETSc.TS, t: float, u: PETSc.Vec, matrix: PETSc.Mat) -> None:
        for k, row in enumerate(rows):
            gradient_p.zeroEntries()
            for weight, density in row:
                density.add_p(weight, t, u, p, gradient_p)
            matrix.getDenseArray()[:, k] = gradient_p.getArray(readonly=True)
        matrix.assemble()

    # TS has one quadrature equation for each row of costs
    count = PETSc.Vec().create(comm=problem.comm)
    count.setSizes(len(rows))
    count.setType(PETSc.Vec.Type.STANDARD)
    quadrature.setRHSFunction(values, PETSc.Vec().createSeq(len(rows)))
    matrix_u = dense(problem.state, count)
    quadrature.setRHSJacobian(columns_u, matrix_u, matrix_u)
    if problem.n_parameters:
        quadrature.setRHSJacobianP(columns_p, dense(problem.parameter, count))


_TS: Any = PETSc.TS  # the stubs of petsc4py 3.26 give enumerations the wrong type


def replay(trajectory: Trajectory, prepare: Callable[[PETSc.TS], None]) -> PETSc.TS:
    """Repeat a run step by step with PETSc's own trajectory switched on, and return its TS.

    The accepted steps are taken from the log, never decided again.  ``prepare`` is called on the TS
    before it is set up.
    """
    record = "disk" if trajectory.record == "disk" else "memory"
    problem, stepping = trajectory.problem, trajectory.stepping
    sizes = trajectory.step_sizes
    state = trajectory.stored[0].copy()
    beyond = 2 * stepping.t_span[1] - stepping.t_span[0] + 1.0  # never reached: the steps decide
    ts = make_ts(
        problem,
        stepping.resolved_method,
        stepping.t_span[0],
        state,
        Held(trajectory.p),
        record=record,
    )
    ts.setTime(stepping.t_span[0])
    ts.setTimeStep(float(sizes[0]))

    def before_step(ts: PETSc.TS) -> None:
        ts.setTimeStep(float(sizes[ts.getStepNumber()]))

    ts.setPreStep(before_step)
    prepare(ts)
    defaults = default_options(problem, stepping, ts, record) | {"ts_adapt_type": "none"}
    with scoped_options(defaults=defaults, code=stepping.options):
        ts.setFromOptions()
        ts.setMaxSteps(len(sizes))
        ts.setMaxTime(beyond)
        ts.setExactFinalTime(_TS.ExactFinalTime.STEPOVER)
        ts.setSolution(state)
        ts.setUp()
        if not stepping.resolved_method.explicit:
            know_rounding(ts.getSNES())
            coarsen_points(ts.getSNES().getKSP(), problem.dm)
        ts.solve(state)
    return ts
