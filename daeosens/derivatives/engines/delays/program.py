"""The linearised program of a run of a delay equation: its relations and their derivatives.

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

from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from daeosens.derivatives.engines.delays.quantities import Located
from daeosens.methods.events.event_step import refuse_grazing
from daeosens.petsc.vectors import Array, read
from daeosens.timestepping.delayed_steps import DelayedSteps, time_in_history
from daeosens.timestepping.step_times import span_rounding
from daeosens.timestepping.trajectory.trajectory import Trajectory, speeds_of

_MADE: WeakKeyDictionary[Trajectory, DelayedProgram] = WeakKeyDictionary()


def program_of(trajectory: Trajectory) -> DelayedProgram:
    """Return the linearised program of a run; the same one each time."""
    program = _MADE.get(trajectory)
    if program is None:  # it must not know the run itself, which would live as long as it does
        program = _MADE[trajectory] = DelayedProgram(trajectory)
    return program


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
        self._speeds = speeds_of(trajectory)
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
    def history_points(self) -> Array:
        """Where the history is looked at, as points [H, n] of a function of t alone."""
        points = np.zeros((len(self.past_times), self.n))
        points[:, 0] = self.past_times
        return points

    @cached_property
    def phi_t(self) -> Array:
        """phi_t [H, n] at the delayed times in the history."""
        points = self.history_points
        if not len(points):
            return np.zeros((0, self.n))
        return self.delays.past.jacobian(np.zeros(len(points)), points, self.p)[:, :, 0]

    @cached_property
    def z_t(self) -> Array:
        """Derivatives of z in the delayed times [N, S, d, n]."""
        z_t = (self.b1[..., None, :] @ self.steps.rates[self.k])[..., 0, :]
        z_t[self.past] = self.phi_t
        return z_t

    @cached_property
    def z_clock(self) -> Array:
        """What z depends on the clocks by itself [N, S, d, n, c]."""
        size = (self.b0[..., None, :] @ self.steps.rates[self.k])[..., 0, :]
        slope = self.z_t * self.sizes[..., None]
        z_clock = slope[..., None] * self.s_clock[..., None, :]
        z_clock += size[..., None] * self.h_clock[self.k][..., None, :]
        z_clock[self.past] = self.phi_t[..., None] * self.delayed_clock[self.past][:, None, :]
        return z_clock

    @cached_property
    def u_tt(self) -> Array:
        """Derivatives of the rates in time where steps begin [N, n]."""
        u_tt = self.f_t[:, 0] + np.einsum("nxy,ny->nx", self.f_u[:, 0], self.steps.rates[:, 0])
        return u_tt + np.einsum("nxly,nly->nx", self.f_z[:, 0], self.z_t[:, 0])

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
        distance = abs(switch.when.value(t, before, p)) if h else 0.0
        terms = abs(by_t) + float(np.abs(event.by_u) @ np.abs(end))
        refuse_grazing(
            switch.name,
            event.point[0],
            h,
            (event.slope, terms),
            distance,
            lambda: float(np.abs(event.by_u) @ self._speeds),
        )
        return event
