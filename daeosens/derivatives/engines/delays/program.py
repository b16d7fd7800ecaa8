"""The linearised program of a run of a delay equation: tangents, adjoints and second order.

The discrete program of such a run (``timestepping/delayed_run.py``) is a recurrence over steps with
references to earlier steps, in three kinds of relations.  For step n, stage i and delay l

    X_ni  = U_n + h_n sum_j a_ij K_nj,                  t_ni = t_n + c_i h_n,
    z_nil = U_k + h_k sum_j b_j(s) K_kj,                s = (t_ni - tau_l - t_k) / h_k,  k < n,
            or phi(t_ni - tau_l, p) in the history,
    K_ni  = f(t_ni, X_ni, z_nil, p),                    U_n+1 = U_n + h_n sum_j b_j K_nj,

with times and sizes of steps linear in the clocks: the delays, and the times of events that move.
These are functions of p, but for times of events at states, each the root of g(t_n, U_n, p) where a
step ends; at events U_n+1 = r(t_n, U_n, p) is a step of size 0.  All derivatives of f and phi are
evaluated at all points at once (``problem/batched``); what depends on clocks explicitly is one
array as well.  What is left to the loops over steps is the recurrence.  Rates
here are unknowns with adjoints of their own, since later steps look at them: that is why these
sweeps are no window of another engine, whose steps know states only.

Source
------
docs/delays.md; docs/mathematics.md, section 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import add_curvature
from daeosens.costs.scalar import Callback
from daeosens.methods.events.event_step import refuse_grazing
from daeosens.methods.step import Adjoint, SecondOrder
from daeosens.petsc.vectors import Array, read, write
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
    dp, dclock : array [D, m], [D, c]
        Of parameters and clocks.
    du, dk : array [N+1, n, D], [N, S, n, D]
        Of states and rates.
    """

    dp: Array
    dclock: Array
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
    clock, p : array [M, c], [M, m]
        Of the clocks, and of what events see of the parameters.
    multipliers : dict of int to array [M]
        Of the functions of events at states, by the step that ends there.
    """

    lam: Array
    rates: Array
    stages: Array
    delayed: Array
    clock: Array
    p: Array
    multipliers: dict[int, Array]


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
    of_history : array [D, H]
        Those of phi_t^T zbar, likewise.
    by_p : array [D, m]
        Those of f_p^T l and phi_p^T zbar, summed up, likewise.
    """

    first: Adjoints
    along: Tangents
    dh: Array
    dg: Array
    of_f: Array
    of_history: Array
    by_p: Array


@dataclass(frozen=True, eq=False)
class Sources:
    """What running costs add to M adjoints, or to the derivatives of one.

    Attributes
    ----------
    stages : array [N, S, M, n]
        To those of X.
    clock : array [N, M, c]
        To those of the clocks, by each step.
    p : array [M, m]
        To those of the parameters.
    """

    stages: Array
    clock: Array
    p: Array

    @classmethod
    def none(cls, program: DelayedProgram, count: int) -> Sources:
        """Return zeros for so many adjoints."""
        n_steps, clocks = program.n_steps, program.steps.clocks
        return cls(
            np.zeros((n_steps, program.n_stages, count, program.n)),
            np.zeros((n_steps, count, clocks)),
            np.zeros((count, len(program.p))),
        )


@dataclass(frozen=True, eq=False)
class Located:
    """An event at a state where a step ends, g(t, U, p) = 0: the time solves that.

    Attributes
    ----------
    clock : int
        The number of its time.
    when : Callback
        g.
    point : (float, Vec, array)
        Where it is zero.
    by_u, by_p : array [n], [m]
        Its gradients there.
    by_t : float
        Its partial derivative in t.
    rates, end : array [S, n], [n]
        How the stages and the end of the step move with its time.
    """

    clock: int
    when: Callback
    point: tuple[float, PETSc.Vec, Array]
    by_u: Array
    by_p: Array
    by_t: float
    rates: Array
    end: Array

    @property
    def slope(self) -> float:
        """The derivative of g in the time, along the program."""
        return float(self.by_t + self.by_u @ self.end)


Terms: TypeAlias = "tuple[Forcing | None, Sources | None]"
"""What enters a sweep back besides what is observed at states."""


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
        self.problem, records = trajectory.problem, trajectory.records
        self.jumps = {
            n: (record.jump, trajectory.step(n))
            for n, record in enumerate(records)
            if record.jump is not None
        }
        self._before_events = {n: (records[n].ends_at, trajectory.step(n)) for n in steps.located}
        tableau, h = steps.tableau, trajectory.step_sizes
        self.h = h
        t = trajectory.times[:-1, None] + h[:, None] * tableau.c  # [N, S]
        self.t_clock = (
            steps.time_slopes[:-1, None] + tableau.c[:, None] * steps.size_slopes[:, None]
        )
        delayed = t[:, :, None] - steps.tau  # [N, S, d]
        problem, starts = trajectory.problem, trajectory.times
        self.delayed_clock = self.t_clock[:, :, None] - np.eye(self.d, steps.clocks)  # [N, S, d, c]
        self.inside = steps.looked >= 0
        k = np.where(self.inside, steps.looked, 0)
        self.k = k
        # a step of size 0, from one cut to the next one at that time, is seen from its begin: what
        # its size or the time in it change has the derivatives u' and u'' there
        looks_into = self.inside & (h[k] > 0.0)
        sizes = np.where(looks_into, h[k], 1.0)
        s = np.where(looks_into, (delayed - trajectory.times[k]) / sizes, 0.0)
        self.at_instants = self.inside & ~looks_into
        self.sizes, self.s = sizes, s
        self.h_clock = steps.size_slopes
        # h_k s moves by what the delayed time does, less what its step does
        self.s_clock = (
            self.delayed_clock - steps.time_slopes[k] - s[..., None] * self.h_clock[k]
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
            for row, (n, stage, delay) in enumerate(past.tolist()):
                begin, size = float(starts[n] - steps.tau[delay]), float(h[n])
                time, k = float(self.past_times[row]), int(steps.looked[n, stage, delay])
                self.past_times[row] = time_in_history(problem, time, begin, size, rounding, k)
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
    def z_clock(self) -> Array:
        """What z depends on the clocks by itself [N, S, d, n, c]."""
        rates = self.steps.rates[self.k]  # [N, S, d, S, n]
        slope = (self.b1[..., None, :] @ rates)[..., 0, :] * self.sizes[..., None]
        size = (self.b0[..., None, :] @ rates)[..., 0, :]
        z_clock = slope[..., None] * self.s_clock[..., None, :]
        z_clock += size[..., None] * self.h_clock[self.k][..., None, :]
        z_clock[self.past] = self.phi_t[..., None] * self.delayed_clock[self.past][:, None, :]
        return z_clock

    @cached_property
    def u_tt(self) -> Array:
        """Derivatives of the rates in time where steps begin [N, n]."""
        u_t = self.steps.rates[:, 0]
        rates = self.steps.rates[self.k[:, 0]]  # [N, d, S, n]
        z_t = np.einsum("nlj,nljx->nlx", self.b1[:, 0], rates)
        past = self.past[1] == 0
        z_t[self.past[0][past], self.past[2][past]] = self.phi_t[past]
        u_tt = self.f_t[:, 0] + np.einsum("nxy,ny->nx", self.f_u[:, 0], u_t)
        return u_tt + np.einsum("nxly,nly->nx", self.f_z[:, 0], z_t)

    @cached_property
    def f_clock(self) -> Array:
        """What f depends on the clocks by times, step sizes and delayed times [N, S, n, c]."""
        f_clock = self.f_t[..., None] * self.t_clock[:, :, None]
        f_clock += self.f_u @ (self.stage_sum[..., None] * self.h_clock[:, None, None])
        return f_clock + np.einsum("nsxly,nslyt->nsxt", self.f_z, self.z_clock)

    @cached_property
    def tau_p(self) -> Array:
        """Derivatives of the delays in the parameters [d, m]."""
        tau = self.steps.tau[None]
        weights = np.eye(self.d)[:, None]
        return self.delays.lags.pull_parameters(np.zeros(1), tau, self.p, weights)

    @cached_property
    def clock_p(self) -> Array:
        """Derivatives of the clocks in the parameters [c, m]; 0 of those of events at states."""
        clock_p = np.zeros((self.steps.clocks, len(self.p)))
        clock_p[: self.d] = self.tau_p
        for clock, k in self.steps.moving.items():
            clock_p[clock, k] = 1.0
        return clock_p

    @cached_property
    def located(self) -> dict[int, Located]:
        """The events at states, by the number of the step that ends there."""
        return {step: self._located(step, clock) for step, clock in self.steps.located.items()}

    def _located(self, step: int, clock: int) -> Located:
        """Return an event at a state.

        Raises
        ------
        GrazingError
            The state only touches the surface.
        """
        problem, (switch, (t, h, before, end_state, p, _)) = self.problem, self._before_events[step]
        assert switch is not None
        assert switch.when is not None
        rates, a = self.f_clock[step, :, :, clock].copy(), self.steps.tableau.a
        for i in range(self.n_stages):
            rates[i] += self.f_u[step, i] @ (h * (a[i, :i] @ rates[:i]))
        end = h * (self.steps.tableau.b @ rates) + self.step_sum[step] * self.h_clock[step, clock]
        by_u, by_p = problem.create_state(), problem.create_parameters()
        point = (t + h, end_state, p)
        switch.when.add_u(1.0, *point, by_u)
        switch.when.add_p(1.0, *point, by_p)
        by_t = switch.when.value_t(*point)
        event = Located(
            clock, switch.when, point, read(by_u).copy(), read(by_p).copy(), by_t, rates, end
        )
        distance = abs(switch.when.value(t, before, p)) if h else -1.0
        speed = float(np.linalg.norm(event.by_u) * np.linalg.norm(end))
        refuse_grazing(switch.name, event.point[0], h, (event.slope, speed), distance)
        return event

    # ---- tangents

    def tangents(self, du0: Array, dp: Array, restarts: Array | None = None) -> Tangents:
        """Return the derivatives along directions [D, n], [D, m], and of restarts [W, D, n]."""
        n_steps, n_stages, n, n_along = self.n_steps, self.n_stages, self.n, len(dp)
        dclock = dp @ self.clock_p.T  # but for those of events at states, which the steps tell
        # many directions of restarts leave parameters as they are
        moves = np.flatnonzero(dp.any(axis=1))
        forced = self._forced(dp[moves], dclock[moves])
        told: list[int] = []
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
            if step in self.jumps:
                du[step + 1] = self._jumped(step, du[step], dp, dclock)
                continue
            rates = np.zeros((n_stages, n, n_along))
            rates[..., moves] = forced[step]
            if told:
                rates += self.f_clock[step][..., told] @ dclock[:, told].T
            if looks[step]:
                seen = self.inside[step]
                dz = np.zeros((n_stages, self.d, n, n_along))
                dz[seen] = self._combined(step, seen, du, dk)
                rates += np.einsum("sxly,slyD->sxD", self.f_z[step], dz)
            h, f_u, now, here = self.h[step], self.f_u[step], dk[step], du[step]
            for i in range(n_stages):
                dx = here + np.tensordot(h * a[i, :i], now[:i], 1) if i else here
                now[i] = rates[i] + f_u[i] @ dx
            longer = np.multiply.outer(self.step_sum[step], dclock @ self.h_clock[step])
            du[step + 1] = here + np.tensordot(h * b, now, 1) + longer
            if step in self.steps.located:
                event = self.located[step]
                # g stays zero: 0 = g_u . dU + g_p . dp + (g_t + g_u . U_t) dt
                dt = -(event.by_u @ du[step + 1] + event.by_p @ dp.T) / event.slope
                dclock[:, event.clock] = dt
                now += event.rates[..., None] * dt
                du[step + 1] += np.multiply.outer(event.end, dt)
                told.append(event.clock)
        return Tangents(dp, dclock, du, dk)

    def _jumped(self, number: int, du: Array, dp: Array, dclock: Array) -> Array:
        """Return the tangents [n, D] after a jump."""
        (jump, step), after = self.jumps[number], np.empty_like(du)
        problem, dt = self.problem, dclock @ self.steps.time_slopes[number]
        by_u, by_p = problem.create_state(), problem.create_parameters()
        for k in range(len(dp)):
            write(by_u, du[:, k])
            write(by_p, dp[k])
            jump.tangent(step, by_u, by_p, float(dt[k]))
            after[:, k] = read(by_u)
        return after

    def _forced(self, dp: Array, dclock: Array) -> Array:
        """Return what parameters and delays do to the rates by themselves [N, S, n, D]."""
        n_steps, n_stages, n, n_along = self.n_steps, self.n_stages, self.n, len(dp)
        forced = self.f_clock @ dclock.T
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
        n_steps, n_stages, n, n_rows = self.n_steps, self.n_stages, self.n, seeds.shape[1]
        shape = (n_steps, n_stages, n_rows, n)
        # at the rates, from steps that look at them
        arriving = np.zeros(shape)
        result = Adjoints(
            seeds.copy(),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros((n_steps, n_stages, self.d, n_rows, n)),
            np.zeros((n_rows, self.steps.clocks)),
            np.zeros((n_rows, len(self.p))) if sources is None else sources.p.copy(),
            {},
        )
        lam, clock = result.lam, result.clock
        done = n_steps  # of the steps from here on the clocks know
        for step in range(n_steps - 1, -1, -1):
            if times is not None:
                clock += np.multiply.outer(times[step + 1], self.steps.time_slopes[step + 1])
            if step in self.steps.restarts:  # nothing before it has a part in what comes after
                continue
            if step in self.jumps:
                self._jump_back(step, result, forcing)
                continue
            if step in self.steps.located:
                clock += self._by_clocks(slice(step + 1, done), result, terms)
                done = step + 1
                self._end_at(step, result, arriving[step], terms)
            here, z_bar = self._step_back(step, result, arriving[step], terms)
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
        clock += self._by_clocks(slice(0, done), result, terms)
        return result

    def _step_back(
        self, step: int, result: Adjoints, arriving: Array, terms: Terms
    ) -> tuple[Array, Array]:
        """Carry adjoints back over a step; return those of its start and of z."""
        forcing, sources = terms
        n_stages, n, d = self.n_stages, self.n, self.d
        a, b = self.steps.tableau.a, self.steps.tableau.b
        after, stages = result.lam[step + 1], result.stages[step]
        h, f_u, f_z = self.h[step], self.f_u[step], self.f_z[step]
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

    def _end_at(self, step: int, result: Adjoints, arriving: Array, terms: Terms) -> None:
        """Take from the adjoint of the state at an event so much of g_u that its time drops out."""
        event, (forcing, _) = self.located[step], terms
        if forcing is not None:
            self._bend_surface(step, event, result, forcing)
        self._step_back(step, result, arriving, terms)
        own = self._by_clocks(slice(step, step + 1), result, terms)
        beta = (result.clock + own)[:, event.clock] / event.slope
        result.multipliers[step] = beta
        result.lam[step + 1] -= np.multiply.outer(beta, event.by_u)
        result.p[...] -= np.multiply.outer(beta, event.by_p)
        result.clock[:, event.clock] -= beta * event.by_t

    def _bend_surface(self, step: int, event: Located, result: Adjoints, forcing: Forcing) -> None:
        """Add the second derivatives of g along the directions, times its multiplier."""
        problem, along, number = self.problem, forcing.along, step + 1
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

    def _jump_back(self, number: int, result: Adjoints, forcing: Forcing | None) -> None:
        """Carry adjoints back over a jump."""
        problem, rows = self.problem, range(len(result.p))
        jump, step = self.jumps[number]
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
                step, first, self._directions(number, forcing.along, lam, mu)
            )
        result.clock[...] += np.multiply.outer(omega, self.steps.time_slopes[number])
        result.lam[number] += [read(vec) for vec in lam]
        result.p[...] += [read(vec) for vec in mu]

    def _directions(
        self,
        number: int,
        along: Tangents,
        lam_dot: Sequence[PETSc.Vec],
        mu_dot: Sequence[PETSc.Vec],
    ) -> list[SecondOrder]:
        """Return directions on a jump."""
        problem, directions = self.problem, list[SecondOrder]()
        dt = along.dclock @ self.steps.time_slopes[number]
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

    def _by_clocks(self, steps: slice, result: Adjoints, terms: Terms) -> Array:
        """Return the derivatives in the clocks [M, c] of some steps, as such."""
        forcing, sources = terms
        own = 0.0 if sources is None else sources.clock[steps].sum(axis=0)
        if forcing is not None:
            return own + self._bent_by_clocks(steps, result, forcing)
        by_clock = np.einsum("nsMx,nsxt->Mt", result.rates[steps], self.f_clock[steps])
        after = result.lam[1:][steps]
        by_clock += np.einsum("nMx,nx,nt->Mt", after, self.step_sum[steps], self.h_clock[steps])
        return own + by_clock

    def forcing(self, first: Adjoints, along: Tangents) -> Forcing:
        """Return what enters derivatives of an adjoint along directions."""
        dh, dg = self.h_clock @ along.dclock.T, self._moved(along.dclock)
        of_f, by_p = self._curvature(first, along)
        of_history = np.zeros((len(along.dp), len(self.past_times)))
        if len(self.past_times):
            of_history, by_history = self._history_curvature(
                first.delayed[:, :, :, 0][self.past], along
            )
            by_p = by_p + by_history
        return Forcing(first, along, dh, dg, of_f.transpose(1, 2, 0, 3), of_history, by_p)

    def _moved(self, dclock: Array) -> Array:
        """Return the derivatives of the weights of rates in z [N, S, d, S, D]."""
        ds = self.s_clock @ dclock.T  # [N, S, d, D]
        moved = (self.b1 * self.sizes[..., None])[..., None] * ds[..., None, :]
        return moved + self.b0[..., None] * (self.h_clock[self.k] @ dclock.T)[..., None, :]

    def parameters(self, adjoints: Adjoints) -> Array:
        """Return the derivatives in the parameters [M, m], clocks included."""
        return self._pulled(adjoints) + adjoints.p + adjoints.clock @ self.clock_p

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

    def _curvature(self, first: Adjoints, along: Tangents) -> tuple[Array, Array]:
        """Return the derivatives of f_y^T l [D, N, S, 1+n+dn] and, summed up, of f_p^T l [D, m]."""
        n_along, n = len(along.dp), self.n
        weights = np.zeros(self.points.shape)
        weights[:, 1 : n + 1] = first.rates.reshape(-1, n)
        dy = np.zeros((self.n_steps, self.n_stages, 1 + n + self.d * n, n_along))
        dy[:, :, 0] = self.t_clock @ along.dclock.T
        dy[:, :, 1 : n + 1] = self.stage_tangents(along)
        dy[:, :, n + 1 :] = self._delayed_tangents(along).reshape(
            self.n_steps, self.n_stages, -1, n_along
        )
        dy = np.ascontiguousarray(dy.reshape(len(self.points), -1, n_along).transpose(2, 0, 1))
        by_y, by_p = self.delays.rates.hessian_product(
            self.no_times, self.points, self.p, weights, dy, along.dp
        )
        return by_y.reshape(n_along, self.n_steps, self.n_stages, -1), by_p

    def stage_tangents(self, along: Tangents) -> Array:
        """Return the derivatives of X [N, S, n, D]."""
        sums = np.einsum("ij,njxD->nixD", self.steps.tableau.a, along.dk)
        dx = sums * self.h[:, None, None, None]
        dx += self.stage_sum[..., None] * (self.h_clock @ along.dclock.T)[:, None, None]
        return along.du[:-1, None] + dx

    def _delayed_tangents(self, along: Tangents) -> Array:
        """Return the derivatives of z [N, S, d, n, D]."""
        dz = self.z_clock @ along.dclock.T
        dz += np.where(self.inside[..., None, None], along.du[self.k], 0.0)
        dz += np.einsum("nslj,nsljxD->nslxD", self.g, along.dk[self.k])
        if len(self.past_times) and along.dp.any():
            times = np.zeros(len(self.past_times))
            pushed = self.delays.past.push_parameters(times, self._history_points, self.p, along.dp)
            dz[self.past] += pushed.transpose(1, 2, 0)
        return dz

    def _bent_by_clocks(self, steps: slice, dots: Adjoints, forcing: Forcing) -> Array:
        """Return the derivatives of ``_by_clocks`` of one adjoint along directions [D, c]."""
        first, along = forcing.first, forcing.along
        lam, lam_dot = first.lam[1:][steps, 0], dots.lam[1:][steps]
        rates_dot, x_bar = dots.rates[steps], first.stages[steps, :, 0]
        z_bar, h_clock = first.delayed[steps, :, :, 0], self.h_clock[steps]
        dk_own, k = along.dk[steps], self.k[steps]
        # f_t l
        slopes = (
            np.einsum("nsDx,nsx->nsD", rates_dot, self.f_t[steps]) + forcing.of_f[steps][..., 0]
        )
        by_clock = np.einsum("nsD,nst->Dt", slopes, self.t_clock[steps])
        # X and U by the sizes of steps
        a, b = self.steps.tableau.a, self.steps.tableau.b
        sums = np.einsum("nsDx,nsx->nD", dots.stages[steps], self.stage_sum[steps])
        sums += np.einsum("nix,ij,njxD->nD", x_bar, a, dk_own, optimize=True)
        sums += np.einsum("nDx,nx->nD", lam_dot, self.step_sum[steps])
        sums += np.einsum("nx,j,njxD->nD", lam, b, dk_own, optimize=True)
        by_clock += np.einsum("nD,nt->Dt", sums, h_clock)
        # z
        by_clock += np.einsum("nslDx,nslxt->Dt", dots.delayed[steps], self.z_clock[steps])
        s_clock, sizes = self.s_clock[steps], self.sizes[steps][..., None]
        ds = s_clock @ along.dclock.T  # [N, S, d, D]
        b2 = self.steps.tableau.at(self.s[steps], 2)
        inside = self.inside[steps]
        b2[~inside] = 0.0
        rates = self.steps.rates[k]
        dk = along.dk[k]  # [N, S, d, S, n, D]
        bent = np.einsum("nslx,nslj,nsljx->nsl", z_bar, b2, rates, optimize=True)
        instants = self.at_instants[steps]
        if instants.any():
            bends = (self.steps.tableau.at(np.array(0.0), 2) @ self.steps.tableau.c) * self.u_tt
            bent[instants] = np.einsum("Lx,Lx->L", z_bar[instants], bends[k[instants]])
        slope = bent[..., None] * ds
        slope += np.einsum("nslx,nslj,nsljxD->nslD", z_bar, self.b1[steps], dk, optimize=True)
        slope *= sizes
        size = np.einsum("nslx,nslj,nsljxD->nslD", z_bar, self.b0[steps], dk, optimize=True)
        inside = inside[..., None]
        by_clock += np.einsum("nslD,nslt->Dt", np.where(inside, slope, 0.0), s_clock)
        by_clock += np.einsum("nslD,nslt->Dt", np.where(inside, size, 0.0), self.h_clock[k])
        first_past, last_past = np.searchsorted(self.past[0], [steps.start, steps.stop])
        rows = tuple(numbers[first_past:last_past] for numbers in self.past)
        by_clock += forcing.of_history[:, first_past:last_past] @ self.delayed_clock[rows]
        return by_clock

    def _history_curvature(self, weights: Array, along: Tangents) -> tuple[Array, Array]:
        """Return the derivatives of phi_t^T w [D, H], and of phi_p^T w; w [H, n]."""
        moved = self.delayed_clock[self.past]  # [H, c]
        dy = np.zeros((len(along.dp), *self._history_points.shape))
        dy[:, :, 0] = along.dclock @ moved.T
        times = np.zeros(len(self.past_times))
        by_y, by_p = self.delays.past.hessian_product(
            times, self._history_points, self.p, weights, dy, along.dp
        )
        return by_y[:, :, 0], by_p

    def second_parameters(self, first: Adjoints, dots: Adjoints, forcing: Forcing) -> Array:
        """Return the derivatives of ``parameters(first)`` along directions [D, m]."""
        by_p = forcing.by_p + self._pulled(dots) + dots.p + dots.clock @ self.clock_p
        return by_p + self._bent_delays(first.clock[0, : self.d], forcing.along)

    def _bent_delays(self, by_tau: Array, along: Tangents) -> Array:
        """Return the derivative of tau_p^T by_tau [D, m] along directions; by_tau [d] fixed."""
        tau = self.steps.tau[None]
        nothing = np.zeros((len(along.dp), *tau.shape))
        _, by_p = self.delays.lags.hessian_product(
            np.zeros(1), tau, self.p, by_tau[None], nothing, along.dp
        )
        return by_p
