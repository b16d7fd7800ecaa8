"""Error estimates of tangents: those of the steps' own methods, differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.derivatives.directions import admit_direction
from daeosens.derivatives.engines.arrays.step_blocks import dense_mass, kept_stages
from daeosens.derivatives.engines.choice import choose_sweep
from daeosens.derivatives.engines.compiled.tangent import Direction, admit_rows, push_directions
from daeosens.derivatives.sweeps.forward import ForwardDirection, sweep_forward
from daeosens.methods.esdirk.step import ALMOST_NONE
from daeosens.methods.events.consistent_reset import consistent_map
from daeosens.methods.step import ErrorMap, Step
from daeosens.petsc._kernels import LinearSteps
from daeosens.petsc.vectors import Array, norm, read
from daeosens.timestepping.dense_ts import error_steps
from daeosens.timestepping.trajectory.states import rows_of
from daeosens.timestepping.trajectory.trajectory import NO_STAGES, Trajectory

Start: TypeAlias = "tuple[PETSc.Vec, PETSc.Vec | None]"
"""A direction (du [n], dp [m]) of a start and parameters; None is zero."""

DENSE = 64
"""Up to how many unknowns matrices of single steps are dense arrays."""

_solve: Callable[..., Any] = np.linalg.solve

AT_ONCE = 2**24
"""So many numbers, at most, are in the Jacobians that are evaluated at once."""


def consistent_directions(run: Trajectory, directions: Sequence[Start]) -> list[Start]:
    """Return directions whose algebraic variables follow the others, at the start of a run.

    Others would be errors from the first step on, which some methods never forget.  What then is
    nothing, the direction of an algebraic variable, is left out.  Collective.
    """
    problem = run.problem.modes.get(run.first_mode, run.problem)
    t, u = float(run.times[0]), run.stored[0]
    follow = consistent_map(problem, t, u, run.p, run.stepping.options)
    if follow is None:
        return list(directions)
    following: list[Start] = []
    for du, dp in directions:
        # Directions of algebraic variables are replaced by what the equations make of those of
        # the others: g_u du + g_p dp = 0.
        moved = du.copy()
        follow.tangent(Step(t, 0.0, u, u, run.p), moved, dp, 0.0)
        if dp is not None or norm(moved) > 0.0:
            following.append((moved, dp))
    return following


def tangents_and_errors(run: Trajectory, directions: Sequence[Direction]) -> tuple[Array, Array]:
    """Return tangents [N+1, D, n_local] and the estimates of their errors in each step [N, D, ...].

    Of Runge-Kutta methods the estimate is the derivative of the embedded one, of theta methods that
    of the three states that TS looks at; it is zero at events, and in steps without an estimate.
    Collective.

    Source
    ------
    docs/mathematics.md, section 6.
    """
    method, problem = run.stepping.resolved_method, run.problem
    if method.tableau is not None:
        # without events the parameters and the equations are the same all along the run
        plain = problem.comm.size == 1 and not (run.crossings or problem.modes)
        if plain and not problem.field_parameter:
            rows = admit_rows(problem, directions)
            errors = _in_c(run, *rows) or _in_arrays(run, *rows)
            if errors is not None:
                return errors
    along = swept(run, directions)
    values = _rows(along)
    if method.tableau is not None:
        return values, _by_steps(run, along, [dp is not None for _, dp in directions], values)
    moved = np.array([direction.times for direction in along]).T
    return values, _from_three_states(run, values, moved)


def tangents(run: Trajectory, directions: Sequence[Direction]) -> Array:
    """Return tangents [N+1, D, n_local].  Collective."""
    return _rows(swept(run, directions))


def swept(run: Trajectory, directions: Sequence[Direction]) -> list[ForwardDirection]:
    """Return the directions, carried along a run.  Collective."""
    admitted = [admit_direction(run.problem, *direction) for direction in directions]
    return sweep_forward(run, admitted, choose_sweep(run, "auto", len(admitted)).engine)


def _rows(along: Sequence[ForwardDirection]) -> Array:
    return np.array([rows_of(direction.states) for direction in along]).swapaxes(0, 1)


def _in_c(run: Trajectory, du: Array, dp: Array) -> tuple[Array, Array] | None:
    """Return both without Python in the equations, or None where it has a part in them."""
    steps = error_steps(run.problem, run.stepping.resolved_method)
    values = None if steps is None else push_directions(run, du, dp)
    if steps is None or values is None:
        return None
    times, sizes, states, _ = run.arrays
    errors, pair = np.empty_like(values[1:]), np.empty((2, *du.shape))
    for n in range(run.n_steps):
        ends, step = slice(n, n + 2), slice(n, n + 1)
        at = times[ends], sizes[step], states[ends], NO_STAGES
        pair[0] = values[n]
        if not LinearSteps(steps, run.p, *at, keep=False).push(1, dp, pair):
            return None
        # A step of the tableau b - b_embedded ends at du + d(error).
        errors[n] = pair[1] - pair[0]
    return values, errors


def _in_arrays(run: Trajectory, du: Array, dp: Array) -> tuple[Array, Array] | None:
    """Return both by dense matrices of all stages, or None: many unknowns, or no such matrices."""
    problem, method = run.problem, run.stepping.resolved_method
    batch, n = problem.batch, problem.size
    if batch is None or n > DENSE or problem.form == "residual":
        return None
    scheme = method.tableau
    assert scheme is not None
    assert scheme.b_embedded is not None
    a, b, c, b_embedded = scheme.a, scheme.b, scheme.c, scheme.b_embedded
    s, several = len(c), max(1, AT_ONCE // (len(c) * n * n))
    mass = np.eye(n) if problem.form == "rhs" else dense_mass(problem)
    assert mass is not None
    # 1 for rows of M that have entries: an explicit stage has a rate in these only
    differential: Array = (mass != 0.0).any(axis=1).astype(float)[:, None]
    values, errors = np.empty((run.n_steps + 1, *du.shape)), np.empty((run.n_steps, *du.shape))
    values[0] = du
    by_p = dp.any(axis=1)
    for first in range(0, run.n_steps, several):
        end = min(first + several, run.n_steps)
        points = _stages(run, first, end)
        if points is None:
            return None
        t, u = points
        matrices = batch.jacobian(t.ravel(), u.reshape(-1, n), run.p).reshape(end - first, s, n, n)
        sources = np.zeros((len(dp), end - first, s, n))
        if by_p.any():
            pushed = batch.push_parameters(t.ravel(), u.reshape(-1, n), run.p, dp[by_p])
            sources[by_p] = pushed.reshape(-1, end - first, s, n)
        for k, h in enumerate(run.step_sizes[first:end].tolist()):
            before, rates = values[first + k].T, np.empty((s, n, len(du)))  # [n, D]
            stage: Array = before
            for i in range(s):
                matrix, source, scale = matrices[k, i], sources[:, k, i].T, h * float(a[i, i])
                earlier = h * np.tensordot(a[i, :i], rates[:i], 1)
                if scale:
                    right = mass @ before + earlier + scale * source
                    stage = _solve(mass - scale * matrix, right)
                    # from the equation of the stage, M (dU_i - du) = earlier + h a_ii dk_i
                    rates[i] = (mass @ (stage - before) - earlier) / scale
                else:
                    stage = before + earlier
                    rates[i] = (matrix @ stage + source) * differential
            if method.explicit:
                values[first + k + 1] = (before + h * np.tensordot(b, rates, 1)).T
            else:  # the last stage is the end
                values[first + k + 1] = stage.T
            error: Array = h * np.tensordot(b - b_embedded, rates, 1)
            if problem.form != "rhs":
                # M may be singular: a little of f_u lets the error satisfy the algebraic
                # equations.
                short = ALMOST_NONE * h * float(a[-1, -1])
                error = _solve(mass - short * matrices[k, -1], error)
            errors[first + k] = error.T
    return values, errors


def _stages(run: Trajectory, first: int, end: int) -> tuple[Array, Array] | None:
    """Return the times [S, s] and states [S, s, n] of the stages of some steps, if they are there.

    Those of ESDIRK steps are if the run has kept them.
    """
    problem, method = run.problem, run.stepping.resolved_method
    scheme = method.tableau
    assert scheme is not None
    a, c = scheme.a, scheme.c
    starts, sizes = run.times[first:end, None], run.step_sizes[first:end, None]
    t = starts + c * sizes
    if problem.breakpoints:
        for row, start, h in zip(t, starts[:, 0].tolist(), sizes[:, 0].tolist(), strict=True):
            row[:] = [problem.inside(time, start, h) for time in row.tolist()]
    if not method.explicit:
        kept = kept_stages(run, len(c), first, end)
        return None if kept is None else (t, kept)
    assert problem.batch is not None
    states = run.u[first:end]
    u, rates = np.empty((len(states), len(c), problem.size)), np.empty((len(c), *states.shape))
    for i in range(len(c)):
        # all steps at once: their starts are known
        u[:, i] = states + sizes * np.tensordot(a[i, :i], rates[:i], 1)
        rates[i] = problem.batch.rhs(t[:, i].copy(), u[:, i].copy(), run.p)
    return t, u


def _by_steps(
    run: Trajectory,
    along: Sequence[ForwardDirection],
    with_p: Sequence[bool],
    values: Array,
) -> Array:
    """Return the errors by the maps of single steps, through events too."""
    problem, method = run.problem, run.stepping.resolved_method
    maps: dict[str, ErrorMap] = {}
    errors = np.zeros((run.n_steps, *values.shape[1:]))
    for n in range(run.n_steps):
        step, mode = run.step(n), "" if run.crossings else run.first_mode
        if run.crossings:
            record = run.records[step.number]
            # a jump is no step: it is a map, with no error of discretisation
            if record.jump is not None:
                continue
            step, mode = step._replace(p=record.p), record.mode
        if not step.h:
            continue
        if mode not in maps:
            equations = problem.modes.get(mode, problem)
            maps[mode] = method.error_map(equations, run.stepping.options)
        for d, (direction, moves) in enumerate(zip(along, with_p, strict=True)):
            du, dp = direction.states[n].copy(), direction.parameters[n]
            maps[mode](step, du, dp if moves or run.crossings else None)
            errors[n, d] = read(du)
            du.destroy()
    return errors


def _from_three_states(run: Trajectory, values: Array, moved: Array) -> Array:
    """Return the estimates of theta methods: half the second difference, for equal steps.

    There is none where the three states do not move in time alike (``moved`` [N+1, D]), as after
    events.
    """
    errors, sizes = np.zeros_like(values[1:]), run.step_sizes.tolist()
    anew = {n for crossing in run.crossings for n in (crossing.step, crossing.step + 1)}
    for n in range(1, run.n_steps):
        if n in anew or not (sizes[n] and sizes[n - 1]):
            continue
        a = 1.0 + sizes[n - 1] / sizes[n]
        curvature = values[n] / (a - 1.0) - values[n + 1] / a - values[n - 1] / (a * (a - 1.0))
        # States that move in time are not samples of one smooth curve in t at fixed times.
        alike = np.ptp(moved[n - 1 : n + 2], axis=0) == 0.0
        errors[n] = np.where(alike[:, None], curvature, 0.0)
    return errors
