"""Second derivatives of the relations of a run of a delay equation, times an adjoint."""

from __future__ import annotations

import numpy as np

from daeosens.derivatives.engines.delays.program import DelayedProgram
from daeosens.derivatives.engines.delays.quantities import Adjoints, Forcing, Tangents
from daeosens.derivatives.engines.delays.tangents import delayed_tangents, stage_tangents
from daeosens.petsc.vectors import Array


def forcing_along(program: DelayedProgram, first: Adjoints, along: Tangents) -> Forcing:
    """Return what enters derivatives of an adjoint along directions."""
    dh, dg = program.h_clock @ along.dclock.T, _moved(program, along.dclock)
    of_f, by_p = _curvature(program, first, along)
    of_history = np.zeros((len(along.dp), len(program.past_times)))
    if len(program.past_times):
        of_history, by_history = _history_curvature(
            program, first.delayed[:, :, :, 0][program.past], along
        )
        by_p = by_p + by_history
    return Forcing(first, along, dh, dg, of_f.transpose(1, 2, 0, 3), of_history, by_p)


def _moved(program: DelayedProgram, dclock: Array) -> Array:
    """Return the derivatives of the weights of rates in z [N, S, d, S, D]."""
    ds = program.s_clock @ dclock.T  # [N, S, d, D]
    moved = (program.b1 * program.sizes[..., None])[..., None] * ds[..., None, :]
    return moved + program.b0[..., None] * (program.h_clock[program.k] @ dclock.T)[..., None, :]


def _curvature(program: DelayedProgram, first: Adjoints, along: Tangents) -> tuple[Array, Array]:
    """Return the derivatives of f_y^T l [D, N, S, 1+n+dn] and, summed up, of f_p^T l [D, m]."""
    n_along, n = len(along.dp), program.n
    weights = np.zeros(program.points.shape)
    weights[:, 1 : n + 1] = first.rates.reshape(-1, n)
    dy = np.zeros((program.n_steps, program.n_stages, 1 + n + program.d * n, n_along))
    dy[:, :, 0] = program.t_clock @ along.dclock.T
    dy[:, :, 1 : n + 1] = stage_tangents(program, along)
    dy[:, :, n + 1 :] = delayed_tangents(program, along).reshape(
        program.n_steps, program.n_stages, -1, n_along
    )
    dy = np.ascontiguousarray(dy.reshape(len(program.points), -1, n_along).transpose(2, 0, 1))
    by_y, by_p = program.delays.rates.hessian_product(
        program.no_times, program.points, program.p, weights, dy, along.dp
    )
    return by_y.reshape(n_along, program.n_steps, program.n_stages, -1), by_p


def _history_curvature(
    program: DelayedProgram, weights: Array, along: Tangents
) -> tuple[Array, Array]:
    """Return the derivatives of phi_t^T w [D, H], and of phi_p^T w; w [H, n]."""
    moved = program.delayed_clock[program.past]  # [H, c]
    dy = np.zeros((len(along.dp), *program.history_points.shape))
    dy[:, :, 0] = along.dclock @ moved.T
    times = np.zeros(len(program.past_times))
    by_y, by_p = program.delays.past.hessian_product(
        times, program.history_points, program.p, weights, dy, along.dp
    )
    return by_y[:, :, 0], by_p


def bend_by_clocks(
    program: DelayedProgram, steps: slice, dots: Adjoints, forcing: Forcing
) -> Array:
    """Return the derivatives along directions of an adjoint in the clocks [D, c], by some steps."""
    first, along = forcing.first, forcing.along
    lam, lam_dot = first.lam[1:][steps, 0], dots.lam[1:][steps]
    rates_dot, x_bar = dots.rates[steps], first.stages[steps, :, 0]
    z_bar, h_clock = first.delayed[steps, :, :, 0], program.h_clock[steps]
    dk_own, k = along.dk[steps], program.k[steps]
    # f_t l
    slopes = np.einsum("nsDx,nsx->nsD", rates_dot, program.f_t[steps]) + forcing.of_f[steps][..., 0]
    by_clock = np.einsum("nsD,nst->Dt", slopes, program.t_clock[steps])
    # X and U by the sizes of steps
    a, b = program.steps.tableau.a, program.steps.tableau.b
    sums = np.einsum("nsDx,nsx->nD", dots.stages[steps], program.stage_sum[steps])
    sums += np.einsum("nix,ij,njxD->nD", x_bar, a, dk_own, optimize=True)
    sums += np.einsum("nDx,nx->nD", lam_dot, program.step_sum[steps])
    sums += np.einsum("nx,j,njxD->nD", lam, b, dk_own, optimize=True)
    by_clock += np.einsum("nD,nt->Dt", sums, h_clock)
    # z
    by_clock += np.einsum("nslDx,nslxt->Dt", dots.delayed[steps], program.z_clock[steps])
    s_clock, sizes = program.s_clock[steps], program.sizes[steps][..., None]
    ds = s_clock @ along.dclock.T  # [N, S, d, D]
    b2 = program.steps.tableau.at(program.s[steps], 2)
    inside = program.inside[steps]
    b2[~inside] = 0.0
    rates = program.steps.rates[k]
    dk = along.dk[k]  # [N, S, d, S, n, D]
    bent = np.einsum("nslx,nslj,nsljx->nsl", z_bar, b2, rates, optimize=True)
    instants = program.at_instants[steps]
    if instants.any():
        bends = (
            program.steps.tableau.at(np.array(0.0), 2) @ program.steps.tableau.c
        ) * program.u_tt
        bent[instants] = np.einsum("Lx,Lx->L", z_bar[instants], bends[k[instants]])
    slope = bent[..., None] * ds
    slope += np.einsum("nslx,nslj,nsljxD->nslD", z_bar, program.b1[steps], dk, optimize=True)
    slope *= sizes
    size = np.einsum("nslx,nslj,nsljxD->nslD", z_bar, program.b0[steps], dk, optimize=True)
    inside = inside[..., None]
    by_clock += np.einsum("nslD,nslt->Dt", np.where(inside, slope, 0.0), s_clock)
    by_clock += np.einsum("nslD,nslt->Dt", np.where(inside, size, 0.0), program.h_clock[k])
    first_past, last_past = np.searchsorted(program.past[0], [steps.start, steps.stop])
    rows = tuple(numbers[first_past:last_past] for numbers in program.past)
    by_clock += forcing.of_history[:, first_past:last_past] @ program.delayed_clock[rows]
    return by_clock


def bend_delays(program: DelayedProgram, by_tau: Array, along: Tangents) -> Array:
    """Return the derivative of tau_p^T by_tau [D, m] along directions; by_tau [d] fixed."""
    tau = program.steps.tau[None]
    nothing = np.zeros((len(along.dp), *tau.shape))
    _, by_p = program.delays.lags.hessian_product(
        np.zeros(1), tau, program.p, by_tau[None], nothing, along.dp
    )
    return by_p
