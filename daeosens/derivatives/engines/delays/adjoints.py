"""Adjoints of a run of a delay equation, and their derivatives: the linearised program back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import add_curvature
from daeosens.derivatives.engines.delays.program import DelayedProgram
from daeosens.derivatives.engines.delays.quantities import (
    Adjoints,
    Forcing,
    Located,
    Sources,
    Tangents,
    Terms,
)
from daeosens.derivatives.engines.delays.second_order import bend_by_clocks, bend_delays
from daeosens.methods.step import Adjoint, SecondOrder
from daeosens.petsc.vectors import Array, read, write


def pull_back(
    program: DelayedProgram,
    seeds: Array,
    times: Array | None = None,
    forcing: Forcing | None = None,
    sources: Sources | None = None,
) -> Adjoints:
    """Carry what is observed at the states, seeds [N+1, M, n], back to the first one.

    ``times`` [N+1, M] are the derivatives of what is observed in the times of states that move,
    ``sources`` come from running costs.  With ``forcing`` these are derivatives of one adjoint
    along directions.
    """
    terms = forcing, sources
    n_steps, n_stages, n, n_rows = program.n_steps, program.n_stages, program.n, seeds.shape[1]
    shape = (n_steps, n_stages, n_rows, n)
    # at the rates, from steps that look at them
    arriving = np.zeros(shape)
    result = Adjoints(
        seeds.copy(),
        np.zeros(shape),
        np.zeros(shape),
        np.zeros((n_steps, n_stages, program.d, n_rows, n)),
        np.zeros((n_rows, program.steps.clocks)),
        np.zeros((n_rows, len(program.p))) if sources is None else sources.p.copy(),
        {},
    )
    lam, clock = result.lam, result.clock
    done = n_steps  # of the steps from here on the clocks know
    for step in range(n_steps - 1, -1, -1):
        if times is not None:
            clock += np.multiply.outer(times[step + 1], program.steps.time_slopes[step + 1])
        if step in program.steps.restarts:  # nothing before it has a part in what comes after
            continue
        if step in program.jumps:
            _jump_back(program, step, result, forcing)
            continue
        if step in program.steps.located:
            clock += _by_clocks(program, slice(step + 1, done), result, terms)
            done = step + 1
            _end_at(program, step, result, arriving[step], terms)
        here, z_bar = _step_back(program, step, result, arriving[step], terms)
        seen = program.inside[step]
        if seen.any():
            k, flat = program.k[step][seen], z_bar[seen]  # [L], [L, M, n]
            np.add.at(lam, k, flat)
            shares = program.g[step][seen][:, :, None, None] * flat[:, None]
            if forcing is not None:
                before = forcing.first.delayed[step][seen][:, None]  # [L, 1, 1, n]
                shares = shares + forcing.dg[step][seen][..., None] * before
            np.add.at(arriving, k, shares)
        lam[step] += here
    clock += _by_clocks(program, slice(0, done), result, terms)
    return result


def _step_back(
    program: DelayedProgram, step: int, result: Adjoints, arriving: Array, terms: Terms
) -> tuple[Array, Array]:
    """Carry adjoints back over a step; return those of its start and of z."""
    forcing, sources = terms
    n_stages, n, d = program.n_stages, program.n, program.d
    a, b = program.steps.tableau.a, program.steps.tableau.b
    after, stages = result.lam[step + 1], result.stages[step]
    h, f_u, f_z = program.h[step], program.f_u[step], program.f_z[step]
    k_bar = arriving + (h * b)[:, None, None] * after
    if forcing is not None:
        k_bar += b[:, None, None] * (forcing.dh[step][:, None] * forcing.first.lam[step + 1])
    here = after.copy()
    for i in range(n_stages - 1, -1, -1):
        x_bar = k_bar[i] @ f_u[i]
        if forcing is not None:
            x_bar += forcing.of_f[step, i, :, 1 : n + 1]
        if sources is not None:
            x_bar += sources.stages[step, i]
        here += x_bar
        stages[i] = x_bar
        if i:
            k_bar[:i] += (h * a[i, :i])[:, None, None] * x_bar
            if forcing is not None:
                moved = forcing.dh[step][:, None] * forcing.first.stages[step, i]
                k_bar[:i] += a[i, :i, None, None] * moved
    z_bar = np.einsum("sMx,sxly->slMy", k_bar, f_z)
    if forcing is not None:
        of_z = forcing.of_f[step, :, :, n + 1 :].reshape(n_stages, len(after), d, n)
        z_bar += of_z.transpose(0, 2, 1, 3)
    result.rates[step], result.delayed[step] = k_bar, z_bar
    return here, z_bar


def _end_at(
    program: DelayedProgram, step: int, result: Adjoints, arriving: Array, terms: Terms
) -> None:
    """Take from the adjoint of the state at an event so much of g_u that its time drops out."""
    event, (forcing, _) = program.located[step], terms
    if forcing is not None:
        _bend_surface(program, step, event, result, forcing)
    _step_back(program, step, result, arriving, terms)
    own = _by_clocks(program, slice(step, step + 1), result, terms)
    beta = (result.clock + own)[:, event.clock] / event.slope
    result.multipliers[step] = beta
    result.lam[step + 1] -= np.multiply.outer(beta, event.by_u)
    result.p[...] -= np.multiply.outer(beta, event.by_p)
    result.clock[:, event.clock] -= beta * event.by_t


def _bend_surface(
    program: DelayedProgram, step: int, event: Located, result: Adjoints, forcing: Forcing
) -> None:
    """Add the second derivatives of g along the directions, times its multiplier."""
    problem, along, number = program.problem, forcing.along, step + 1
    beta = float(forcing.first.multipliers[step][0])
    du, dp = problem.create_state(), problem.create_parameters()
    out = problem.create_state(), problem.create_parameters()
    for k, row in enumerate(along.dp):
        write(du, along.du[number, :, k])
        write(dp, row)
        for vec in out:
            vec.zeroEntries()
        direction = (du, row, dp, float(along.dclock[k, event.clock]))
        result.clock[k, event.clock] += add_curvature(
            event.when, -beta, event.point, direction, out
        )
        result.lam[number, k] += read(out[0])
        result.p[k] += read(out[1])


def _jump_back(
    program: DelayedProgram, number: int, result: Adjoints, forcing: Forcing | None
) -> None:
    """Carry adjoints back over a jump."""
    problem, rows = program.problem, range(len(result.p))
    jump, step = program.jumps[number]
    lam, mu = (
        [problem.create_state() for _ in rows],
        [problem.create_parameters() for _ in rows],
    )
    for vec, row in zip(lam, result.lam[number + 1], strict=True):
        write(vec, row)
    if forcing is None:
        omega = jump.adjoint(step, lam, mu)
    else:
        first = Adjoint(problem.create_state(), problem.create_parameters())
        write(first.lam, forcing.first.lam[number + 1, 0])
        _, *omega = jump.second_order(
            step, first, _directions(program, number, forcing.along, lam, mu)
        )
    result.clock[...] += np.multiply.outer(omega, program.steps.time_slopes[number])
    result.lam[number] += [read(vec) for vec in lam]
    result.p[...] += [read(vec) for vec in mu]


def _directions(
    program: DelayedProgram,
    number: int,
    along: Tangents,
    lam_dot: Sequence[PETSc.Vec],
    mu_dot: Sequence[PETSc.Vec],
) -> list[SecondOrder]:
    """Return directions on a jump."""
    problem, directions = program.problem, list[SecondOrder]()
    dt = along.dclock @ program.steps.time_slopes[number]
    for k, out in enumerate(zip(lam_dot, mu_dot, strict=True)):
        du, after, dp = (
            problem.create_state(),
            problem.create_state(),
            problem.create_parameters(),
        )
        write(du, along.du[number, :, k])
        write(after, along.du[number + 1, :, k])
        write(dp, along.dp[k])
        directions.append(SecondOrder(du, after, along.dp[k], dp, *out, float(dt[k])))
    return directions


def _by_clocks(program: DelayedProgram, steps: slice, result: Adjoints, terms: Terms) -> Array:
    """Return the derivatives in the clocks [M, c] of some steps, as such."""
    forcing, sources = terms
    own = 0.0 if sources is None else sources.clock[steps].sum(axis=0)
    if forcing is not None:
        return own + bend_by_clocks(program, steps, result, forcing)
    by_clock = np.einsum("nsMx,nsxt->Mt", result.rates[steps], program.f_clock[steps])
    after = result.lam[1:][steps]
    by_clock += np.einsum("nMx,nx,nt->Mt", after, program.step_sum[steps], program.h_clock[steps])
    return own + by_clock


def pull_parameters(program: DelayedProgram, adjoints: Adjoints) -> Array:
    """Return the derivatives in the parameters [M, m], clocks included."""
    return _pulled(program, adjoints) + adjoints.p + adjoints.clock @ program.clock_p


def _pulled(program: DelayedProgram, adjoints: Adjoints) -> Array:
    n_rows = adjoints.lam.shape[1]
    weights = np.zeros((n_rows, *program.points.shape))
    weights[:, :, 1 : program.n + 1] = adjoints.rates.reshape(-1, n_rows, program.n).swapaxes(0, 1)
    rates = program.delays.rates
    by_p = rates.pull_parameters(program.no_times, program.points, program.p, weights)
    if len(program.past_times):
        weights = adjoints.delayed[program.past].swapaxes(0, 1)
        times = np.zeros(len(program.past_times))
        by_p = by_p + program.delays.past.pull_parameters(
            times, program.history_points, program.p, weights
        )
    return by_p


def bend_parameters(
    program: DelayedProgram, first: Adjoints, dots: Adjoints, forcing: Forcing
) -> Array:
    """Return the derivatives of ``pull_parameters(program, first)`` along directions [D, m]."""
    by_p = forcing.by_p + _pulled(program, dots) + dots.p + dots.clock @ program.clock_p
    return by_p + bend_delays(program, first.clock[0, : program.d], forcing.along)
