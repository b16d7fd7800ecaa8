"""Costs at times inside of steps: seen at the end of one more step, from the state before.

``run(t)`` is a step of the method from the state before t, so a scalar of it is a scalar of that
state: its value, gradients and second derivatives go through the derivatives of the one step.  All
engines take it as they take any scalar, and what they give is exact for the program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Cost, Direction, Instant, Point, Scalar, Squares, When
from daeosens.methods.step import Adjoint, SecondOrder, Step, StepMap
from daeosens.petsc.vectors import Array, scatter
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory, steps_of


def observed_inside(trajectory: Trajectory, cost: Cost) -> Cost:
    """Return a lowered cost whose scalars at times inside of steps are those of states."""
    numbers = [_step_around(trajectory, when) for when, _, _ in cost.points]
    places = [
        (n, _time(when)) for n, (when, _, _) in zip(numbers, cost.points, strict=True) if n >= 0
    ]
    assert trajectory.inside is not None
    # one step from the state before to each time: all of them in one go
    states = iter(trajectory.inside(trajectory, places))
    steps = steps_of(trajectory)
    points: list[tuple[When, float, Scalar]] = []
    for n, (when, weight, scalar) in zip(numbers, cost.points, strict=True):
        if n < 0:
            points.append((when, weight, scalar))
            continue
        begin, t = float(trajectory.times[n]), _time(when)
        # a number of none of the run's steps, whose stages may have been kept
        step = Step(begin, t - begin, trajectory.stored[n], next(states), trajectory.p, -1)
        part = PartOfStep(trajectory.problem, steps, step)
        if isinstance(scalar, Squares):
            # From here on it is a cost at the state before, which steps hit.
            points.append((begin, weight, SquaresInside(part, scalar)))
        else:
            points.append((begin, weight, ScalarInside(part, scalar)))
    return replace(cost, points=tuple(points))


def _time(when: Any) -> float:
    return float(when.t if isinstance(when, Instant) else when)


def _step_around(trajectory: Trajectory, when: When) -> int:
    """Return the number of the step that a time lies inside of; -1 where it is the end of one."""
    if not isinstance(when, (float, Instant)):
        return -1
    t, times = _time(when), trajectory.times
    k = int(np.searchsorted(times, t))
    # what rounding alone tells from the end of a step is that end
    near = [j for j in (k - 1, k) if 0 <= j < len(times)]
    if any(abs(times[j] - t) <= 1e-14 * abs(t) for j in near) or not 0 < k < len(times):
        return -1
    return k - 1


@dataclass(frozen=True, eq=False)
class PartOfStep:
    """A step from a state of the run to a time inside of a step, and its derivatives."""

    problem: Problem
    steps: StepMap
    step: Step

    @property
    def end(self) -> Point:
        """Return (t, u, p) there."""
        return self.step.t + self.step.h, self.step.u_next, self.step.p

    def vector(self, dp: Any) -> PETSc.Vec:
        """Return a direction [m] in the parameters as a vector."""
        return dp if self.problem.field_parameter else scatter(dp, self.problem.create_parameters())

    def push(self, direction: Direction) -> PETSc.Vec:
        """Return the tangent [n] at the end."""
        du, dp = direction
        du = du.copy()
        self.steps.tangent(self.step, du, self.vector(dp) if self.problem.n_parameters else None)
        return du

    def pull(self, lam: PETSc.Vec, mu: PETSc.Vec) -> None:
        """Overwrite lam [n] at the end with that at the state before; add to mu [m]."""
        self.steps.adjoint(self.step, [lam], [mu], [()])

    def rows(self) -> tuple[PETSc.Vec, PETSc.Vec]:
        """Return new rows of zeros."""
        return self.problem.create_state(), self.problem.create_parameters()


@dataclass(frozen=True, eq=False)
class ScalarInside:
    """A scalar at the end of a part of a step, as one of the state before."""

    part: PartOfStep
    scalar: Scalar

    def value(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the value."""
        del t, u, p
        return self.scalar.value(*self.part.end)

    def _gradient(self, weight: float) -> tuple[PETSc.Vec, PETSc.Vec]:
        # gradient at the end, then one transposed step to the state before
        lam, mu = self.part.rows()
        self.scalar.add_u(weight, *self.part.end, lam)
        self.scalar.add_p(weight, *self.part.end, mu)
        self.part.pull(lam, mu)
        return lam, mu

    def add_u(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` times the gradient in u."""
        del t, u, p
        out.axpy(1.0, self._gradient(weight)[0])

    def add_p(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` times the gradient in p."""
        del t, u, p
        out.axpy(1.0, self._gradient(weight)[1])

    def value_t(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return 0: the time does not move."""
        del t, u, p
        return 0.0

    def add_hessian(
        self,
        weight: float,
        point: Point,
        direction: Direction,
        out: tuple[PETSc.Vec, PETSc.Vec],
    ) -> None:
        """Add ``weight`` times the derivative of the gradient along a direction."""
        del point
        part, (du, dp) = self.part, direction
        after, (lam, mu), dots = part.push(direction), part.rows(), part.rows()
        self.scalar.add_u(weight, *part.end, lam)
        self.scalar.add_p(weight, *part.end, mu)
        # psi_uu at the end along the tangent there; the second order of the step then carries
        # these back and adds lam^T Phi_uu.
        self.scalar.add_hessian(weight, part.end, (after, dp), dots)
        along = SecondOrder(du, after, dp, part.vector(dp), *dots)
        part.steps.second_order(part.step, Adjoint(lam, mu), [along], ())
        for vec, dot in zip(out, dots, strict=True):
            vec.axpy(1.0, dot)

    def time_hessian(self, point: Point, out: tuple[PETSc.Vec, PETSc.Vec]) -> float:
        """Leave ``out`` zero, and return 0: the time does not move."""
        del point
        for vec in out:
            vec.zeroEntries()
        return 0.0


@dataclass(frozen=True, eq=False)
class SquaresInside(ScalarInside):
    """The same of a sum of squares."""

    scalar: Squares

    def residual(self, point: Point) -> Array:
        """Return r, the rank's own rows [q_local]."""
        del point
        return self.scalar.residual(self.part.end)

    def residual_tangent(self, point: Point, direction: Direction, dt: float = 0.0) -> Array:
        """Return the derivative of r along a direction [q_local]."""
        del point, dt
        after = (self.part.push(direction), direction[1])
        return self.scalar.residual_tangent(self.part.end, after)

    def add_residual_adjoint(
        self, weight: float, point: Point, w: Array, out: tuple[PETSc.Vec, PETSc.Vec]
    ) -> None:
        """Add ``weight`` times the products r_u^T w and r_p^T w."""
        del point
        lam, mu = self.part.rows()
        self.scalar.add_residual_adjoint(weight, self.part.end, w, (lam, mu))
        self.part.pull(lam, mu)
        out[0].axpy(1.0, lam)
        out[1].axpy(1.0, mu)

    def time_adjoint(self, point: Point, w: Array) -> float:
        """Return 0: the time does not move."""
        del point, w
        return 0.0
