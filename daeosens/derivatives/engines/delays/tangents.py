"""Tangents of a run of a delay equation: the linearised program forward."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from daeosens.derivatives.engines.delays.program import DelayedProgram
from daeosens.derivatives.engines.delays.quantities import Tangents
from daeosens.petsc.vectors import Array, read, write

Numbers: TypeAlias = npt.NDArray[np.intp]


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
    reached = _reached(program, du0, dp, restarts)
    along, moving = reached[0], np.searchsorted(reached[0], moves)
    for step in range(n_steps):
        if step in numbers:
            if restarts is not None:
                du[step + 1] = restarts[numbers[step]].T
            along = reached[numbers[step] + 1]
            moving = np.searchsorted(along, moves)
            continue
        if step in program.jumps:
            du[step + 1] = _jumped(program, step, du[step], dp, dclock)
            continue
        here = du[step][:, along]
        rates = np.zeros((n_stages, *here.shape))
        rates[..., moving] = forced[step]
        if told:
            rates += program.f_clock[step][..., told] @ dclock[:, told].T
        if looks[step]:
            dz = _delayed(program, step, along, du, dk)
            rates += program.f_z[step].reshape(n_stages, n, -1) @ dz
        h, f_u = program.h[step], program.f_u[step]
        now = np.empty_like(rates)
        # rows of numbers: with these the sums over stages are products of matrices
        rows, start = now.reshape(n_stages, -1), here.ravel()
        for i in range(n_stages):
            dx = start + (h * a[i, :i]) @ rows[:i] if i else start
            now[i] = rates[i] + f_u[i] @ dx.reshape(here.shape)
        longer = np.multiply.outer(program.step_sum[step], dclock[along] @ program.h_clock[step])
        end = here + ((h * b) @ rows).reshape(here.shape) + longer
        if step in program.steps.located:
            event = program.located[step]
            # g stays zero: 0 = g_u . dU + g_p . dp + (g_t + g_u . U_t) dt
            dt = -(event.by_u @ end + event.by_p @ dp.T) / event.slope
            dclock[:, event.clock] = dt
            now += event.rates[..., None] * dt
            end += np.multiply.outer(event.end, dt)
            told.append(event.clock)
        du[step + 1][:, along], dk[step][..., along] = end, now
    return Tangents(dp, dclock, du, dk)


def _reached(
    program: DelayedProgram, du0: Array, dp: Array, restarts: Array | None
) -> list[Numbers]:
    """Return which directions a run moves along between restarts: numbers [D'] for each part.

    That of a restart enters there, and what comes after the next one sees it by delayed states
    alone.
    """
    steps, whole = program.steps, np.arange(len(dp))
    if restarts is None or program.jumps or steps.located:  # clocks of events carry directions on
        return [whole] * (len(steps.restarts) + 1)
    ends = [*steps.restarts, program.n_steps]
    looked: Numbers = steps.looked
    parts = np.searchsorted(np.array(steps.restarts, dtype=int), looked)
    moved = np.zeros((len(ends), len(dp)), dtype=bool)
    first = 0
    for part, end in enumerate(ends):
        begun = restarts[part - 1] if part else du0
        seen: Numbers = np.unique(parts[first:end][program.inside[first:end]])
        # of a part that looks at itself nothing else comes
        moved[part] = dp.any(axis=1) | begun.any(axis=1) | moved[seen].any(axis=0)
        first = end
    return [np.flatnonzero(row) for row in moved]


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


def _delayed(program: DelayedProgram, step: int, along: Numbers, du: Array, dk: Array) -> Array:
    """Return the tangents [S, d n, D'] of what the stages of a step see of steps before."""
    looked, inside = program.k[step], program.inside[step]
    n, n_stages, n_along = program.n, program.n_stages, len(along)
    dz = np.zeros((n_stages, program.d, n, n_along))
    for k in set(looked[inside].tolist()):
        seen = inside & (looked == k)
        rates = dk[k].take(along, axis=2).reshape(n_stages, -1)
        sums = (program.g[step][seen] @ rates).reshape(-1, n, n_along)
        dz[seen] = du[k][:, along] + sums
    return dz.reshape(n_stages, -1, n_along)


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
