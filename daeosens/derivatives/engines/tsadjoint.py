"""PETSc's own discrete adjoint (TSAdjoint), refused where PETSc 3.26 is known to be wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from petsc4py import PETSc

from daeosens.costs.cost import Cost, Scalar, points_by_step
from daeosens.errors import UnsupportedError
from daeosens.methods.linear_solver import refuse_without_transpose
from daeosens.petsc.vectors import write
from daeosens.problem.matrices import dense
from daeosens.problem.problem import Problem
from daeosens.timestepping.recompute import replay
from daeosens.timestepping.trajectory.trajectory import Trajectory, stages_between


def sweep(trajectory: Trajectory, costs: Sequence[Cost]) -> tuple[list[PETSc.Vec], list[PETSc.Vec]]:
    """Sweep back with TSAdjoint; return lam_0 and mu for each cost.

    A recorded trajectory is used up (PETSc's memory trajectory can be read once only, and no TS can
    change its number of costs); without one, and for running costs, the run is repeated from the
    log.

    Raises
    ------
    UnsupportedError
        PETSc's result would be wrong.
    """
    problem = trajectory.problem
    refuse_wrong_combinations(trajectory)
    lam = [problem.create_state() for _ in costs]
    mu = [problem.create_parameters() for _ in costs]
    points = points_by_step(trajectory.index, costs)
    end = trajectory.n_steps
    for crossing in reversed(trajectory.crossings):
        _sweep_smooth(trajectory, (crossing.step + 1, end), costs, points, lam, mu)
        record = trajectory.records[crossing.step]
        assert record.jump is not None
        jump = trajectory.step(crossing.step)._replace(p=record.p)
        record.jump.adjoint(jump, lam, mu)
        end = crossing.step
    _sweep_smooth(trajectory, (0, end), costs, points, lam, mu)
    return lam, mu


def _sweep_smooth(
    trajectory: Trajectory,
    span: tuple[int, int],
    costs: Sequence[Cost],
    points: Mapping[int, Sequence[tuple[int, float, Scalar]]],
    lam: list[PETSc.Vec],
    mu: list[PETSc.Vec],
) -> None:
    """Sweep back from the second state of ``span`` to the first, between which is no jump."""
    first, last = span
    problem, p = trajectory.problem, trajectory.parameters(first)

    def prepare(ts: PETSc.TS) -> None:
        ts.setCostGradients(lam, mu if problem.n_parameters else None)
        if any(cost.densities for cost in costs):
            _attach_quadrature(ts, problem, p, costs)

    ts: PETSc.TS | None = None
    # TS wants to know running costs before it is set up: then a recorded run is of no use.
    if trajectory.recording and not any(cost.densities for cost in costs):
        ts = trajectory.recording.pop()
        prepare(ts)
    elif last > first:
        ts = replay(_piece(trajectory, first, last), prepare)
    if ts is not None and not trajectory.stepping.resolved_method.explicit:
        refuse_without_transpose(ts.getSNES().getKSP())
    position = last
    for step in sorted({*(n for n in points if first <= n <= last), first}, reverse=True):
        if step < position and ts is not None:  # TSAdjointSetSteps(0) would mean all steps
            ts.adjointSetSteps(position - step)
            ts.adjointSolve()
            position = step
        time, state = float(trajectory.times[step]), trajectory.states[step]
        for k, weight, scalar in points.get(step, ()):
            scalar.add_u(weight, time, state, p, lam[k])
            scalar.add_p(weight, time, state, p, mu[k])
    if ts is not None:
        ts.destroy()


def _piece(trajectory: Trajectory, first: int, last: int) -> Trajectory:
    """Return the smooth part of a trajectory between two of its states."""
    if not trajectory.records:
        return trajectory
    problem, p, stepping = trajectory.problem, trajectory.parameters(first), trajectory.stepping
    if problem.modes:
        problem = problem.modes[trajectory.records[first].mode]
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
        states=trajectory.states[first : last + 1],
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
                remedy='adjoint(..., engine="steps")',
            )
    remedy = 'adjoint(..., engine="steps")'
    if method.esdirk:
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
    if not problem.constant_mass and not method.endpoint and method.theta < 1.0:
        raise UnsupportedError(
            f'engine = "tsadjoint" with parameters in the mass matrix and "{method.name}"',
            expected='"cn", "beuler" or "theta:<value>"',
            remedy=remedy,
        )


def _attach_quadrature(ts: PETSc.TS, problem: Problem, p: Any, costs: Sequence[Cost]) -> None:
    """Give TS the running costs: values and transposed derivatives, for every sweep step.

    Callbacks fill the first matrix only: TSTHETA of PETSc 3.26 passes NULL for the second.
    """
    n_costs = len(costs)
    quadrature = ts.createQuadratureTS(False)
    gradient_u, gradient_p = problem.create_state(), problem.create_parameters()

    def values(_ts: PETSc.TS, t: float, u: PETSc.Vec, out: PETSc.Vec) -> None:
        write(
            out,
            [sum(w * density.value(t, u, p) for w, density in cost.densities) for cost in costs],
        )

    def columns_u(
        _ts: PETSc.TS, t: float, u: PETSc.Vec, matrix: PETSc.Mat, _preconditioner: PETSc.Mat
    ) -> None:
        for k, cost in enumerate(costs):
            gradient_u.zeroEntries()
            for weight, density in cost.densities:
                density.add_u(weight, t, u, p, gradient_u)
            matrix.getDenseArray()[:, k] = gradient_u.getArray(readonly=True)
        matrix.assemble()

    def columns_p(_ts: PETSc.TS, t: float, u: PETSc.Vec, matrix: PETSc.Mat) -> None:
        for k, cost in enumerate(costs):
            gradient_p.zeroEntries()
            for weight, density in cost.densities:
                density.add_p(weight, t, u, p, gradient_p)
            matrix.getDenseArray()[:, k] = gradient_p.getArray(readonly=True)
        matrix.assemble()

    count = PETSc.Vec().create(comm=problem.comm)
    count.setSizes(n_costs)
    count.setType(PETSc.Vec.Type.STANDARD)
    quadrature.setRHSFunction(values, PETSc.Vec().createSeq(n_costs))
    matrix_u = dense(problem.state, count)
    quadrature.setRHSJacobian(columns_u, matrix_u, matrix_u)
    if problem.n_parameters:
        quadrature.setRHSJacobianP(columns_p, dense(problem.parameter, count))
