"""Jumps: what happens at one instant between two steps, as maps u+ = a(t, u-, p).

A sweep takes a jump as a step of size 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Scalar, add_curvature, change
from daeosens.methods.step import Adjoint, SecondOrder, Step
from daeosens.petsc.vectors import Array, dot, gather, scatter
from daeosens.problem.problem import Problem


class Jump(Protocol):
    """A map (t, u, p) -> (u+, p+) and its derivatives.

    A jump is a step of size 0.  Directions and adjoints are overwritten.
    """

    def apply(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> Any:
        """Fill ``out`` [n] with the state after the jump; return the parameters after it."""
        ...

    def tangent(
        self, step: Step, du: PETSc.Vec, dp: PETSc.Vec | None, dt: float
    ) -> PETSc.Vec | None:
        """Overwrite ``du`` [n] by the direction after the jump; return that in the parameters."""
        ...

    def adjoint(self, step: Step, lam: Sequence[PETSc.Vec], mu: Sequence[PETSc.Vec]) -> list[float]:
        """Overwrite ``lam`` [n] and ``mu`` [m] by those before; return the adjoints of t."""
        ...

    def second_order(
        self, step: Step, first: Adjoint, directions: Sequence[SecondOrder]
    ) -> list[float]:
        """Carry one adjoint, unless it is known, and its derivatives along directions back.

        Returns the adjoint of t (0 if known) and its derivative for each direction.
        """
        ...


class Reset:
    """The jump of an event: the state from its reset, some parameters from functions.

    Parameters
    ----------
    problem : Problem
        For layouts.
    reset : Problem or None
        Its right-hand side is the map of states; None for the identity.
    changes : sequence of (int, Scalar)
        Numbers of parameters and their values afterwards, as functions of (t, u, p) before.
    """

    def __init__(
        self, problem: Problem, reset: Problem | None, changes: Sequence[tuple[int, Scalar]] = ()
    ) -> None:
        self._problem = problem
        self._reset = reset
        self._changes = tuple(changes)
        self._matrix_u: PETSc.Mat | None = None
        self._matrix_p: PETSc.Mat | None = None

    def apply(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> Any:
        """Fill ``out`` [n] with the state after the jump; return the parameters after it."""
        if self._reset is None:
            u.copy(out)
        else:
            self._reset.rhs(t, u, p, out)
        if not self._changes:
            return p
        after = np.array(p)
        for k, value in self._changes:
            after[k] = value.value(t, u, p)
        after.flags.writeable = False
        return after

    def tangent(
        self, step: Step, du: PETSc.Vec, dp: PETSc.Vec | None, dt: float
    ) -> PETSc.Vec | None:
        """Overwrite ``du`` [n] by the direction after the jump; return that in the parameters."""
        t, _, u, _, p, _ = step
        # before du is overwritten: new parameters depend on the state before the jump
        after = self._changed_direction((t, u, p), du, dp, dt) if self._changes else dp
        reset = self._reset
        if reset is None:
            return after
        matrix, matrix_p = self._fill(t, u, p)
        # du+ = a_u du- + a_p dp + a_t dtau
        before = du.copy()
        matrix.mult(before, du)
        if dp is not None and matrix_p is not None:
            matrix_p.multAdd(dp, du, du)
        if dt:
            reset.rhs_t(t, u, p, before)
            du.axpy(dt, before)
        before.destroy()
        return after

    def adjoint(self, step: Step, lam: Sequence[PETSc.Vec], mu: Sequence[PETSc.Vec]) -> list[float]:
        """Overwrite ``lam`` [n] and ``mu`` [m] by those before; return the adjoints of t."""
        t, _, u, _, p, _ = step
        # A parameter that changes gets a new value b(t, u-, p-): its old one has no effect but
        # through a and b. So its entry of mu weighs b, and starts from zero before the jump.
        weights = [self._take_changed(mu_k) for mu_k in mu]
        omega = self._pull_back(t, u, p, lam, mu)
        for k, w in enumerate(weights):
            for weight, (_, value) in zip(w, self._changes, strict=True):
                # after the state: lam was overwritten by a_u^T lam+ just now
                value.add_u(weight, t, u, p, lam[k])
                value.add_p(weight, t, u, p, mu[k])
                omega[k] += weight * value.value_t(t, u, p)
        return omega

    def second_order(
        self, step: Step, first: Adjoint, directions: Sequence[SecondOrder]
    ) -> list[float]:
        """Carry one adjoint, unless it is known, and its derivatives along directions back."""
        if self._reset is None and not self._changes:
            return [0.0] * (1 + len(directions))
        t, _, u, _, p, _ = step
        # Second derivatives want the adjoints after the jump, which the sweep overwrites.
        known = first.kept(step)
        if known is not None:
            w, mu_after = known
        else:
            w, mu_after = first.lam.copy(), first.mu.copy()
            first.keep(step, w)
            first.keep(step, mu_after)
        omega = [0.0] if first.known else self.adjoint(step, [first.lam], [first.mu])
        lams, mus = (
            [direction.lam_dot for direction in directions],
            [direction.mu_dot for direction in directions],
        )
        # The jump transposed is linear: derivatives of adjoints go through as adjoints do.
        omega += self.adjoint(step, lams, mus)
        for k, direction in enumerate(directions, start=1):
            omega[k] += self._bend((t, u, p), w, mu_after, direction)
        return omega

    def _bend(
        self,
        point: tuple[float, PETSc.Vec, Any],
        w: PETSc.Vec,
        mu_after: PETSc.Vec,
        along: SecondOrder,
    ) -> float:
        """Add the second derivatives of w^T a and mu^T b along a direction; return that in t."""
        problem, reset = self._problem, self._reset
        by_u, by_p = problem.create_state(), problem.create_parameters()
        omega = 0.0
        if reset is not None:
            reset.rhs_hessian(point, w, (along.du, along.dp), (by_u, by_p))
            along.lam_dot.axpy(1.0, by_u)
            along.mu_dot.axpy(1.0, by_p)
            by_t = reset.rhs_time_hessian(point, w, (by_u, by_p))
            along.lam_dot.axpy(along.dt, by_u)
            along.mu_dot.axpy(along.dt, by_p)
            # the row of t in the second derivatives; the column went to lam_dot and mu_dot
            omega += dot(by_u, along.du) + dot(by_p, along.dp_vec) + by_t * along.dt
        for weight, (_, value) in zip(self._of_changes(mu_after), self._changes, strict=True):
            direction = (along.du, along.dp, along.dp_vec, along.dt)
            omega += add_curvature(value, weight, point, direction, (along.lam_dot, along.mu_dot))
        by_u.destroy()
        by_p.destroy()
        return omega

    def _fill(self, t: float, u: PETSc.Vec, p: Any) -> tuple[PETSc.Mat, PETSc.Mat | None]:
        reset = self._reset
        assert reset is not None
        if self._matrix_u is None:
            self._matrix_u = reset.rhs_u.create(t, u, p)
            self._matrix_p = reset.rhs_p.create(t, u, p) if reset.n_parameters else None
        reset.rhs_u.fill(t, u, p, self._matrix_u)
        if self._matrix_p is not None:
            reset.rhs_p.fill(t, u, p, self._matrix_p)
        return self._matrix_u, self._matrix_p

    def _pull_back(
        self,
        t: float,
        u: PETSc.Vec,
        p: Any,
        lam: Sequence[PETSc.Vec],
        mu: Sequence[PETSc.Vec],
    ) -> list[float]:
        """Carry adjoints back over the map of states; return those of the time."""
        reset = self._reset
        if reset is None:
            return [0.0] * len(lam)
        matrix, matrix_p = self._fill(t, u, p)
        work = reset.create_state()
        reset.rhs_t(t, u, p, work)
        # a_t . lam+, with lam as it is after the event
        omega = [dot(work, lam_k) for lam_k in lam]
        for lam_k, mu_k in zip(lam, mu, strict=True):
            lam_k.copy(work)
            matrix.multTranspose(work, lam_k)
            if matrix_p is not None:
                matrix_p.multTransposeAdd(work, mu_k, mu_k)
        work.destroy()
        return omega

    def _of_changes(self, mu: PETSc.Vec) -> Array:
        """Return the entries of mu [m] that belong to parameters that change."""
        if not self._changes:
            return np.zeros(0)
        return gather(mu)[[k for k, _ in self._changes]]

    def _take_changed(self, mu: PETSc.Vec) -> Array:
        """Return the entries of parameters that change, and set them to zero."""
        weights = self._of_changes(mu)
        if self._changes:
            values = gather(mu)
            values[[k for k, _ in self._changes]] = 0.0
            scatter(values, mu)
        return weights

    def _changed_direction(
        self,
        point: tuple[float, PETSc.Vec, Any],
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
        dt: float,
    ) -> PETSc.Vec:
        """Return the direction in the parameters [m] after the jump."""
        after = self._problem.create_parameters()
        values = np.zeros(after.size) if dp is None else gather(dp)
        for k, value in self._changes:
            # dp of a parameter that changes is that of its new value
            values[k] = change(value, self._problem, point, du, dp, dt)
        return scatter(values, after)
