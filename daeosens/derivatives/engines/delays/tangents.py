"""Tangents of a run of a delay equation: the linearised program forward."""

from __future__ import annotations

from typing import Any

import numpy as np

from daeosens.derivatives.engines.delays.program import DelayedProgram
from daeosens.derivatives.engines.delays.quantities import Tangents
from daeosens.petsc.vectors import Array, read, write


def push_forward(
    program: DelayedProgram, du0: Array, dp: Array, restarts: Array | None = None
) -> Tangents:
    """Return the derivatives along directions [D, n], [D, m], and of restarts [W, D, n]."""
    n_steps, n_stages, n, n_along = program.n_steps, program.n_stages, program.n, len(dp)
    dclock = dp @ program.clock_p.T  # but for those of events at states, which the steps tell
    # many directions of restarts leave parameters as they are
    moves = np.flatnonzero(dp.any(axis=1))
    forced = _forced(program, dp[moves], dclock[moves])
    told: list[int] = []
    a, b = program.steps.tableau.a, program.steps.tableau.b
    du, dk = np.zeros((n_steps + 1, n, n_along)), np.zeros((n_steps, n_stages, n, n_along))
    du[0] = du0.T
    looks = program.inside.any(axis=(1, 2))
    numbers = {step: k for k, step in enumerate(program.steps.restarts)}
    for step in range(n_steps):
        if step in numbers:
            if restarts is not None:
                du[step + 1] = restarts[numbers[step]].T
            continue
        if step in program.jumps:
            du[step + 1] = _jumped(program, step, du[step], dp, dclock)
            continue
        rates = np.zeros((n_stages, n, n_along))
        rates[..., moves] = forced[step]
        if told:
            rates += program.f_clock[step][..., told] @ dclock[:, told].T
        if looks[step]:
            seen = program.inside[step]
            dz = np.zeros((n_stages, program.d, n, n_along))
            dz[seen] = _combined(program, step, seen, du, dk)
            rates += np.einsum("sxly,slyD->sxD", program.f_z[step], dz)
        h, f_u, now, here = program.h[step], program.f_u[step], dk[step], du[step]
        for i in range(n_stages):
            dx = here + np.tensordot(h * a[i, :i], now[:i], 1) if i else here
            now[i] = rates[i] + f_u[i] @ dx
        longer = np.multiply.outer(program.step_sum[step], dclock @ program.h_clock[step])
        du[step + 1] = here + np.tensordot(h * b, now, 1) + longer
        if step in program.steps.located:
            event = program.located[step]
            # g stays zero: 0 = g_u . dU + g_p . dp + (g_t + g_u . U_t) dt
            dt = -(event.by_u @ du[step + 1] + event.by_p @ dp.T) / event.slope
            dclock[:, event.clock] = dt
            now += event.rates[..., None] * dt
            du[step + 1] += np.multiply.outer(event.end, dt)
            told.append(event.clock)
    return Tangents(dp, dclock, du, dk)


def _jumped(program: DelayedProgram, number: int, du: Array, dp: Array, dclock: Array) -> Array:
    """Return the tangents [n, D] after a jump."""
    (jump, step), after = program.jumps[number], np.empty_like(du)
    problem, dt = program.problem, dclock @ program.steps.time_slopes[number]
    by_u, by_p = problem.create_state(), problem.create_parameters()
    for k in range(len(dp)):
        write(by_u, du[:, k])
        write(by_p, dp[k])
        jump.tangent(step, by_u, by_p, float(dt[k]))
        after[:, k] = read(by_u)
    return after


def _forced(program: DelayedProgram, dp: Array, dclock: Array) -> Array:
    """Return what parameters and delays do to the rates by themselves [N, S, n, D]."""
    n_steps, n_stages, n, n_along = program.n_steps, program.n_stages, program.n, len(dp)
    forced = program.f_clock @ dclock.T
    if n_along:
        pushed = program.delays.rates.push_parameters(
            program.no_times, program.points, program.p, dp
        )
        forced += (
            pushed[:, :, 1 : n + 1].reshape(n_along, n_steps, n_stages, n).transpose(1, 2, 3, 0)
        )
    if len(program.past_times) and n_along:
        times = np.zeros(len(program.past_times))
        pushed = program.delays.past.push_parameters(times, program.history_points, program.p, dp)
        steps, stages, delays = program.past
        moved = np.einsum("Hxy,DHy->HxD", program.f_z[steps, stages, :, delays], pushed)
        np.add.at(forced, (steps, stages), moved)
    return forced


def _combined(program: DelayedProgram, step: int, seen: Any, du: Array, dk: Array) -> Array:
    """Return sums of tangents of one state and its step's rates [L, n, D], where z looks."""
    k, g = program.k[step][seen], program.g[step][seen]
    return du[k] + np.einsum("Lj,LjxD->LxD", g, dk[k])


def stage_tangents(program: DelayedProgram, along: Tangents) -> Array:
    """Return the derivatives of X [N, S, n, D]."""
    sums = np.einsum("ij,njxD->nixD", program.steps.tableau.a, along.dk)
    dx = sums * program.h[:, None, None, None]
    dx += program.stage_sum[..., None] * (program.h_clock @ along.dclock.T)[:, None, None]
    return along.du[:-1, None] + dx


def delayed_tangents(program: DelayedProgram, along: Tangents) -> Array:
    """Return the derivatives of z [N, S, d, n, D]."""
    dz = program.z_clock @ along.dclock.T
    dz += np.where(program.inside[..., None, None], along.du[program.k], 0.0)
    dz += np.einsum("nslj,nsljxD->nslxD", program.g, along.dk[program.k])
    if len(program.past_times) and along.dp.any():
        times = np.zeros(len(program.past_times))
        pushed = program.delays.past.push_parameters(
            times, program.history_points, program.p, along.dp
        )
        dz[program.past] += pushed.transpose(1, 2, 0)
    return dz
