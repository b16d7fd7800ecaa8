"""The linearised program of a run of a delay equation: tangents, adjoints and second order.

The discrete program of such a run (``timestepping/delayed_run.py``) is a recurrence over steps with
references to earlier steps, in three kinds of relations.  For step n, stage i and delay l

    X_ni  = U_n + h_n sum_j a_ij K_nj,                  t_ni = t_n + c_i h_n,
    z_nil = U_k + h_k sum_j b_j(s) K_kj,                s = (t_ni - tau_l - t_k) / h_k,  k < n,
            or phi(t_ni - tau_l, p) in the history,
    K_ni  = f(t_ni, X_ni, z_nil, p),                    U_n+1 = U_n + h_n sum_j b_j K_nj,

with times and sizes of steps linear in the delays, and these functions of p.  All derivatives of
f and phi are evaluated at all points at once (``problem/batched``); what depends on delays
explicitly is one array as well.  What is left to the loops over steps is the recurrence.  Rates
here are unknowns with adjoints of their own, since later steps look at them: that is why these
sweeps are no window of another engine, whose steps know states only.

Source
------
docs/delays.md; docs/mathematics.md, section 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from daeosens.petsc.vectors import Array
from daeosens.timestepping.delayed_run import DelayedSteps, time_in_history
from daeosens.timestepping.step_times import span_rounding
from daeosens.timestepping.trajectory.trajectory import Trajectory

_MADE: WeakKeyDictionary[Trajectory, DelayedProgram] = WeakKeyDictionary()


def program_of(trajectory: Trajectory) -> DelayedProgram:
    """Return the linearised program of a run; the same one each time."""
    program = _MADE.get(trajectory)
    if program is None:  # it must not know the run itself, which would live as long as it does
        program = _MADE[trajectory] = DelayedProgram(trajectory)
    return program


@dataclass(frozen=True, eq=False)
class Tangents:
    """Derivatives along D directions.

    Attributes
    ----------
    dp, dtau : array [D, m], [D, d]
        Of parameters and delays.
    du, dk : array [N+1, n, D], [N, S, n, D]
        Of states and rates.
    """

    dp: Array
    dtau: Array
    du: Array
    dk: Array


@dataclass(frozen=True, eq=False)
class Adjoints:
    """M adjoints.

    Attributes
    ----------
    lam : array [N+1, M, n]
        Of the states, with all that comes after them.
    rates : array [N, S, M, n]
        Of f at the stages.
    stages, delayed : array [N, S, M, n], [N, S, d, M, n]
        Of X and z.
    """

    lam: Array
    rates: Array
    stages: Array
    delayed: Array


@dataclass(frozen=True, eq=False)
class Forcing:
    """What derivatives of the relations bring into derivatives of an adjoint along D directions.

    Attributes
    ----------
    first : Adjoints
        The one adjoint.
    dh, dg : array [N, D], [N, S, d, S, D]
        Derivatives of step sizes, and of the weights of rates in z.
    of_f : array [N, S, D, 1+n+dn]
        Those of f_y^T l, without l's own.
    """

    first: Adjoints
    dh: Array
    dg: Array
    of_f: Array


class DelayedProgram:
    """The derivatives of all relations of a run, at the run."""

    def __init__(self, trajectory: Trajectory) -> None:
        steps: DelayedSteps = trajectory.report
        self.steps = steps
        assert trajectory.problem.delays is not None
        self.delays = trajectory.problem.delays
        self.p = np.asarray(trajectory.p, dtype=float)
        self.u = trajectory.u
        self.n = self.u.shape[1]
        self.n_steps, self.n_stages = steps.rates.shape[:2]
        self.d = len(steps.tau)
        tableau, h = steps.tableau, trajectory.step_sizes
        self.h = h
        t = trajectory.times[:-1, None] + h[:, None] * tableau.c  # [N, S]
        self.t_tau = steps.time_slopes[:-1, None] + tableau.c[:, None] * steps.size_slopes[:, None]
        delayed = t[:, :, None] - steps.tau  # [N, S, d]
        problem, starts = trajectory.problem, trajectory.times
        self.delayed_tau = self.t_tau[:, :, None] - np.eye(self.d)  # [N, S, d, d]
        self.inside = steps.looked >= 0
        k = np.where(self.inside, steps.looked, 0)
        self.k = k
        sizes = np.where(self.inside, h[k], 1.0)
        s = np.where(self.inside, (delayed - trajectory.times[k]) / sizes, 0.0)
        self.sizes, self.s = sizes, s
        self.h_tau = steps.size_slopes
        # h_k s moves by what the delayed time does, less what its step does
        self.s_tau = (
            self.delayed_tau - steps.time_slopes[k] - s[..., None] * self.h_tau[k]
        ) / sizes[..., None]
        self.b0, self.b1 = tableau.at(s), tableau.at(s, 1)  # [N, S, d, S]
        self.b0[~self.inside] = 0.0
        self.b1[~self.inside] = 0.0
        self.g = self.b0 * sizes[..., None]
        self.stage_sum = np.einsum("ij,njx->nix", tableau.a, steps.rates)  # [N, S, n]
        self.step_sum = np.einsum("j,njx->nx", tableau.b, steps.rates)
        x = self.u[:-1, None] + h[:, None, None] * self.stage_sum
        z = self.u[k] + (self.g[..., None, :] @ steps.rates[k])[..., 0, :]
        past = np.argwhere(~self.inside)
        self.past = tuple(past.T)
        self.past_times = delayed[self.past]
        if problem.breakpoints:  # f and the history as the steps have seen them
            rounding = span_rounding(trajectory.stepping.t_span)
            for row, (n, _, delay) in enumerate(past.tolist()):
                begin, size = float(starts[n] - steps.tau[delay]), float(h[n])
                time = float(self.past_times[row])
                self.past_times[row] = time_in_history(problem, time, begin, size, rounding)
            t = np.array(
                [
                    [problem.inside(time, float(starts[n]), float(h[n])) for time in row]
                    for n, row in enumerate(t.tolist())
                ]
            )
        for place, time in zip(map(tuple, past), self.past_times.tolist(), strict=True):
            z[place] = self.delays.history(time, self.p)
        points = np.concatenate(
            [t[..., None], x, z.reshape(self.n_steps, self.n_stages, -1)], axis=2
        )
        self.points = points.reshape(self.n_steps * self.n_stages, -1)
        self.no_times = np.zeros(len(self.points))

    # ---- first derivatives

    @cached_property
    def _jacobian(self) -> Array:
        n = self.n
        rows = self.delays.rates.jacobian(self.no_times, self.points, self.p)[:, 1 : n + 1]
        return rows.reshape(self.n_steps, self.n_stages, n, -1)

    @property
    def f_t(self) -> Array:
        """f_t [N, S, n]."""
        return self._jacobian[..., 0]

    @cached_property
    def f_u(self) -> Array:
        """f_u [N, S, n, n]."""
        return np.ascontiguousarray(self._jacobian[..., 1 : self.n + 1])

    @cached_property
    def f_z(self) -> Array:
        """f_z [N, S, n, d, n]."""
        return self._jacobian[..., self.n + 1 :].reshape(
            self.n_steps, self.n_stages, self.n, self.d, self.n
        )

    @cached_property
    def _history_points(self) -> Array:
        points = np.zeros((len(self.past_times), self.n))
        points[:, 0] = self.past_times
        return points

    @cached_property
    def phi_t(self) -> Array:
        """phi_t [H, n] at the delayed times in the history."""
        points = self._history_points
        if not len(points):
            return np.zeros((0, self.n))
        return self.delays.past.jacobian(np.zeros(len(points)), points, self.p)[:, :, 0]

    @cached_property
    def z_tau(self) -> Array:
        """What z depends on the delays by itself [N, S, d, n, d]."""
        rates = self.steps.rates[self.k]  # [N, S, d, S, n]
        slope = (self.b1[..., None, :] @ rates)[..., 0, :] * self.sizes[..., None]
        size = (self.b0[..., None, :] @ rates)[..., 0, :]
        z_tau = slope[..., None] * self.s_tau[..., None, :]
        z_tau += size[..., None] * self.h_tau[self.k][..., None, :]
        z_tau[self.past] = self.phi_t[..., None] * self.delayed_tau[self.past][:, None, :]
        return z_tau

    @cached_property
    def f_tau(self) -> Array:
        """What f depends on the delays by times, step sizes and delayed times [N, S, n, d]."""
        f_tau = self.f_t[..., None] * self.t_tau[:, :, None]
        f_tau += self.f_u @ (self.stage_sum[..., None] * self.h_tau[:, None, None])
        return f_tau + np.einsum("nsxly,nslyt->nsxt", self.f_z, self.z_tau)

    @cached_property
    def tau_p(self) -> Array:
        """Derivatives of the delays in the parameters [d, m]."""
        tau = self.steps.tau[None]
        weights = np.eye(self.d)[:, None]
        return self.delays.lags.pull_parameters(np.zeros(1), tau, self.p, weights)

    # ---- tangents

    def tangents(self, du0: Array, dp: Array, restarts: Array | None = None) -> Tangents:
        """Return the derivatives along directions [D, n], [D, m], and of restarts [W, D, n]."""
        n_steps, n_stages, n, n_along = self.n_steps, self.n_stages, self.n, len(dp)
        dtau = dp @ self.tau_p.T
        # many directions of restarts leave parameters as they are
        moves = np.flatnonzero(dp.any(axis=1))
        forced = self._forced(dp[moves], dtau[moves])
        step_tau = (self.step_sum[..., None] * self.h_tau[:, None]) @ dtau.T  # [N, n, D]
        a, b = self.steps.tableau.a, self.steps.tableau.b
        du, dk = np.zeros((n_steps + 1, n, n_along)), np.zeros((n_steps, n_stages, n, n_along))
        du[0] = du0.T
        looks = self.inside.any(axis=(1, 2))
        numbers = {step: k for k, step in enumerate(self.steps.restarts)}
        for step in range(n_steps):
            if step in numbers:
                if restarts is not None:
                    du[step + 1] = restarts[numbers[step]].T
                continue
            rates = np.zeros((n_stages, n, n_along))
            rates[..., moves] = forced[step]
            if looks[step]:
                seen = self.inside[step]
                dz = np.zeros((n_stages, self.d, n, n_along))
                dz[seen] = self._combined(step, seen, du, dk)
                rates += np.einsum("sxly,slyD->sxD", self.f_z[step], dz)
            h, f_u, now, here = self.h[step], self.f_u[step], dk[step], du[step]
            for i in range(n_stages):
                dx = here + np.tensordot(h * a[i, :i], now[:i], 1) if i else here
                now[i] = rates[i] + f_u[i] @ dx
            du[step + 1] = here + np.tensordot(h * b, now, 1) + step_tau[step]
        return Tangents(dp, dtau, du, dk)

    def _forced(self, dp: Array, dtau: Array) -> Array:
        """Return what parameters and delays do to the rates by themselves [N, S, n, D]."""
        n_steps, n_stages, n, n_along = self.n_steps, self.n_stages, self.n, len(dp)
        forced = self.f_tau @ dtau.T
        if n_along:
            pushed = self.delays.rates.push_parameters(self.no_times, self.points, self.p, dp)
            forced += (
                pushed[:, :, 1 : n + 1].reshape(n_along, n_steps, n_stages, n).transpose(1, 2, 3, 0)
            )
        if len(self.past_times) and n_along:
            times = np.zeros(len(self.past_times))
            pushed = self.delays.past.push_parameters(times, self._history_points, self.p, dp)
            steps, stages, delays = self.past
            moved = np.einsum("Hxy,DHy->HxD", self.f_z[steps, stages, :, delays], pushed)
            np.add.at(forced, (steps, stages), moved)
        return forced

    def _combined(self, step: int, seen: Any, du: Array, dk: Array) -> Array:
        """Return sums of tangents of one state and its step's rates [L, n, D], where z looks."""
        k, g = self.k[step][seen], self.g[step][seen]
        return du[k] + np.einsum("Lj,LjxD->LxD", g, dk[k])

    # ---- adjoints

    def adjoints(
        self,
        seeds: Array,
        forcing: Forcing | None = None,
    ) -> Adjoints:
        """Carry what is observed at the states, seeds [N+1, M, n], back to the first one.

        With ``forcing`` these are derivatives of one adjoint along directions.
        """
        n_steps, n_stages, n, d, n_rows = (
            self.n_steps,
            self.n_stages,
            self.n,
            self.d,
            seeds.shape[1],
        )
        lam = seeds.copy()
        arriving = np.zeros(
            (n_steps, n_stages, n_rows, n)
        )  # at the rates, from steps that look at them
        rates, stages = (
            np.zeros((n_steps, n_stages, n_rows, n)),
            np.zeros((n_steps, n_stages, n_rows, n)),
        )
        delayed = np.zeros((n_steps, n_stages, d, n_rows, n))
        a, b = self.steps.tableau.a, self.steps.tableau.b
        for step in range(n_steps - 1, -1, -1):
            if step in self.steps.restarts:  # nothing before it has a part in what comes after
                continue
            h, f_u, f_z, after = self.h[step], self.f_u[step], self.f_z[step], lam[step + 1]
            k_bar = arriving[step] + (h * b)[:, None, None] * after
            if forcing is not None:
                k_bar += b[:, None, None] * (
                    forcing.dh[step][:, None] * forcing.first.lam[step + 1]
                )
            here = after.copy()
            for i in range(n_stages - 1, -1, -1):
                x_bar = k_bar[i] @ f_u[i]
                if forcing is not None:
                    x_bar += forcing.of_f[step, i, :, 1 : n + 1]
                here += x_bar
                stages[step, i] = x_bar
                if i:
                    k_bar[:i] += (h * a[i, :i])[:, None, None] * x_bar
                    if forcing is not None:
                        moved = forcing.dh[step][:, None] * forcing.first.stages[step, i]
                        k_bar[:i] += a[i, :i, None, None] * moved
            rates[step] = k_bar
            z_bar = np.einsum("sMx,sxly->slMy", k_bar, f_z)
            if forcing is not None:
                of_z = forcing.of_f[step, :, :, n + 1 :].reshape(n_stages, n_rows, d, n)
                z_bar += of_z.transpose(0, 2, 1, 3)
            delayed[step] = z_bar
            seen = self.inside[step]
            if seen.any():
                k, flat = self.k[step][seen], z_bar[seen]  # [L], [L, M, n]
                np.add.at(lam, k, flat)
                shares = self.g[step][seen][:, :, None, None] * flat[:, None]
                if forcing is not None:
                    before = forcing.first.delayed[step][seen][:, None]  # [L, 1, 1, n]
                    shares = shares + forcing.dg[step][seen][..., None] * before
                np.add.at(arriving, k, shares)
            lam[step] += here
        return Adjoints(lam, rates, stages, delayed)

    def forcing(self, first: Adjoints, along: Tangents, of_f: Array) -> Forcing:
        """Return what enters derivatives of an adjoint; ``of_f`` [D, N, S, 1+n+dn]."""
        dh, dg = self.h_tau @ along.dtau.T, self._moved(along.dtau)
        return Forcing(first, dh, dg, of_f.transpose(1, 2, 0, 3))

    def _moved(self, dtau: Array) -> Array:
        """Return the derivatives of the weights of rates in z [N, S, d, S, D]."""
        ds = self.s_tau @ dtau.T  # [N, S, d, D]
        moved = (self.b1 * self.sizes[..., None])[..., None] * ds[..., None, :]
        return moved + self.b0[..., None] * (self.h_tau[self.k] @ dtau.T)[..., None, :]

    def parameters(self, adjoints: Adjoints) -> tuple[Array, Array]:
        """Return the derivatives in the delays [M, d] and, through f and phi, in p [M, m]."""
        by_tau = np.einsum("nsMx,nsxt->Mt", adjoints.rates, self.f_tau)
        by_tau += np.einsum("nMx,nx,nt->Mt", adjoints.lam[1:], self.step_sum, self.h_tau)
        return by_tau, self._pulled(adjoints)

    def _pulled(self, adjoints: Adjoints) -> Array:
        n_rows = adjoints.lam.shape[1]
        weights = np.zeros((n_rows, *self.points.shape))
        weights[:, :, 1 : self.n + 1] = adjoints.rates.reshape(-1, n_rows, self.n).swapaxes(0, 1)
        rates = self.delays.rates
        by_p = rates.pull_parameters(self.no_times, self.points, self.p, weights)
        if len(self.past_times):
            weights = adjoints.delayed[self.past].swapaxes(0, 1)
            times = np.zeros(len(self.past_times))
            by_p = by_p + self.delays.past.pull_parameters(
                times, self._history_points, self.p, weights
            )
        return by_p

    # ---- second order

    def curvature(self, first: Adjoints, along: Tangents) -> tuple[Array, Array]:
        """Return the derivatives of f_y^T l [D, N, S, 1+n+dn] and, summed up, of f_p^T l [D, m]."""
        n_along, n = len(along.dp), self.n
        weights = np.zeros(self.points.shape)
        weights[:, 1 : n + 1] = first.rates.reshape(-1, n)
        a = self.steps.tableau.a
        dy = np.zeros((self.n_steps, self.n_stages, 1 + n + self.d * n, n_along))
        dy[:, :, 0] = self.t_tau @ along.dtau.T
        dx = np.einsum("ij,njxD->nixD", a, along.dk) * self.h[:, None, None, None]
        dx += self.stage_sum[..., None] * (self.h_tau @ along.dtau.T)[:, None, None]
        dy[:, :, 1 : n + 1] = along.du[:-1, None] + dx
        dy[:, :, n + 1 :] = self._delayed_tangents(along).reshape(
            self.n_steps, self.n_stages, -1, n_along
        )
        dy = np.ascontiguousarray(dy.reshape(len(self.points), -1, n_along).transpose(2, 0, 1))
        by_y, by_p = self.delays.rates.hessian_product(
            self.no_times, self.points, self.p, weights, dy, along.dp
        )
        return by_y.reshape(n_along, self.n_steps, self.n_stages, -1), by_p

    def _delayed_tangents(self, along: Tangents) -> Array:
        """Return the derivatives of z [N, S, d, n, D]."""
        dz = self.z_tau @ along.dtau.T
        dz += np.where(self.inside[..., None, None], along.du[self.k], 0.0)
        dz += np.einsum("nslj,nsljxD->nslxD", self.g, along.dk[self.k])
        if len(self.past_times) and along.dp.any():
            times = np.zeros(len(self.past_times))
            pushed = self.delays.past.push_parameters(times, self._history_points, self.p, along.dp)
            dz[self.past] += pushed.transpose(1, 2, 0)
        return dz

    def second(
        self, first: Adjoints, dots: Adjoints, along: Tangents, of_f: tuple[Array, Array]
    ) -> tuple[Array, Array]:
        """Return the derivatives of ``parameters(first)`` along directions, [D, d] and [D, m]."""
        curved, by_p = of_f
        by_p = by_p + self._pulled(dots)
        lam, lam_dot = first.lam[1:, 0], dots.lam[1:]
        rates_dot, x_bar, z_bar = dots.rates, first.stages[:, :, 0], first.delayed[:, :, :, 0]
        # f_t l
        slopes = np.einsum("nsDx,nsx->nsD", rates_dot, self.f_t) + curved[..., 0].transpose(1, 2, 0)
        by_tau = np.einsum("nsD,nst->Dt", slopes, self.t_tau)
        # X and U by the sizes of steps
        a, b = self.steps.tableau.a, self.steps.tableau.b
        sums = np.einsum("nsDx,nsx->nD", dots.stages, self.stage_sum)
        sums += np.einsum("nix,ij,njxD->nD", x_bar, a, along.dk, optimize=True)
        sums += np.einsum("nDx,nx->nD", lam_dot, self.step_sum)
        sums += np.einsum("nx,j,njxD->nD", lam, b, along.dk, optimize=True)
        by_tau += np.einsum("nD,nt->Dt", sums, self.h_tau)
        # z
        by_tau += np.einsum("nslDx,nslxt->Dt", dots.delayed, self.z_tau)
        ds = self.s_tau @ along.dtau.T  # [N, S, d, D]
        b2 = self.steps.tableau.at(self.s, 2)
        b2[~self.inside] = 0.0
        rates = self.steps.rates[self.k]
        dk = along.dk[self.k]  # [N, S, d, S, n, D]
        bent = np.einsum("nslx,nslj,nsljx->nsl", z_bar, b2, rates, optimize=True)
        slope = bent[..., None] * ds
        slope += np.einsum("nslx,nslj,nsljxD->nslD", z_bar, self.b1, dk, optimize=True)
        slope *= self.sizes[..., None]
        size = np.einsum("nslx,nslj,nsljxD->nslD", z_bar, self.b0, dk, optimize=True)
        inside = self.inside[..., None]
        by_tau += np.einsum("nslD,nslt->Dt", np.where(inside, slope, 0.0), self.s_tau)
        by_tau += np.einsum("nslD,nslt->Dt", np.where(inside, size, 0.0), self.h_tau[self.k])
        if len(self.past_times):
            by_tau_past, by_p_past = self._history_curvature(z_bar[self.past], along)
            by_tau, by_p = by_tau + by_tau_past, by_p + by_p_past
        return by_tau, by_p

    def _history_curvature(self, weights: Array, along: Tangents) -> tuple[Array, Array]:
        """Return the derivatives of phi_t^T w, by the delays, and of phi_p^T w; w [H, n]."""
        moved = self.delayed_tau[self.past]  # [H, d]
        dy = np.zeros((len(along.dp), *self._history_points.shape))
        dy[:, :, 0] = along.dtau @ moved.T
        times = np.zeros(len(self.past_times))
        by_y, by_p = self.delays.past.hessian_product(
            times, self._history_points, self.p, weights, dy, along.dp
        )
        return by_y[:, :, 0] @ moved, by_p

    def pull_delays(self, by_tau: Array) -> Array:
        """Return rows [M, d] of derivatives in the delays as such in p [M, m]."""
        return by_tau @ self.tau_p

    def bend_delays(self, by_tau: Array, along: Tangents) -> Array:
        """Return the derivative of tau_p^T by_tau [D, m] along directions; by_tau [d] fixed."""
        tau = self.steps.tau[None]
        nothing = np.zeros((len(along.dp), *tau.shape))
        _, by_p = self.delays.lags.hessian_product(
            np.zeros(1), tau, self.p, by_tau[None], nothing, along.dp
        )
        return by_p
