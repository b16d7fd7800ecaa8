"""Adjoints of the start t and the size h of a theta step: their derivatives along directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from petsc4py import PETSc

from daeosens.costs.cost import Densities, change
from daeosens.methods.step import SecondOrder
from daeosens.petsc.vectors import dot
from daeosens.problem.problem import Problem

Point: TypeAlias = "tuple[float, PETSc.Vec, PETSc.Vec, Any]"
"""(t, u, udot, p)."""


@dataclass(frozen=True, eq=False)
class EndTangent:
    """Work space for one direction: derivatives of the end state, of its rate, of nu, and more.

    ``start_u`` and ``start_p`` are second derivatives of nu^T F at the start.
    """

    end: PETSc.Vec
    udot: PETSc.Vec
    nu_dot: PETSc.Vec
    by_udot: PETSc.Vec
    start_u: PETSc.Vec
    start_p: PETSc.Vec


class ThetaTimeAndSize:
    """The derivatives of the adjoints of t and h along directions.

    The adjoints are by_t = -nu.(F_t + rest F_t(start)) + h (share r_t + (1 - share) r_t(start)),
    by_h = reach (h share r_t - nu.F_t) + nu.D udot / h + share r + (1 - share) r(start)

    with F and the running cost r at the end, where the time is t + reach h, and D by the rate.

    Parameters
    ----------
    problem : Problem
        What is stepped.
    scheme : (float, float, float, float)
        h, rest, share and reach.
    densities : sequence of (float, Scalar)
        Running costs with their weights.
    ends : sequence of Point
        Where F is evaluated: at the end and, unless rest is 0, at the start.
    nu : Vec [n]
        The adjoint of the step's equation.
    carry : callable
        ``carry(v, out)`` adds D v to ``out`` [n].
    n_directions : int
        How many there are.
    """

    def __init__(
        self,
        problem: Problem,
        scheme: tuple[float, float, float, float],
        densities: Densities,
        ends: Sequence[Point],
        nu: PETSc.Vec,
        carry: Callable[[PETSc.Vec, PETSc.Vec], None],
        n_directions: int,
    ) -> None:
        self._problem = problem
        self._h, self._rest, self._share, self._reach = scheme
        self._densities = densities
        self._end, self._start = ends[0], ends[-1]
        self._nu, self._carry = nu, carry
        self._slopes = [(0.0, 0.0)] * n_directions
        create = problem.create_state
        self._work_u, self._work_p = create(), problem.create_parameters()
        self._columns = [(create(), create(), problem.create_parameters()) for _ in ends]
        self._by_t = [
            problem.residual_time_hessian(point, nu, column)
            for point, column in zip(ends, self._columns, strict=True)
        ]
        self._partials = [create() for _ in ends]
        for point, partial in zip(ends, self._partials, strict=True):
            problem.residual_t(*point, partial)
        self._carried = create()  # D udot
        carry(self._end[2], self._carried)

    def bend_end(
        self,
        k: int,
        sensitivity: SecondOrder,
        along: EndTangent,
        by: tuple[PETSc.Vec, PETSc.Vec],
        out: tuple[PETSc.Vec, PETSc.Vec],
    ) -> None:
        """Add what the times change at the end.

        ``by`` [n], [m] are the second derivatives of nu^T F, ``out`` the adjoints of end and p.
        """
        dt = sensitivity.dt + self._reach * sensitivity.dh
        # The columns are the derivatives of nu^T F_t by u, u' and p: mixed seconds with the time.
        column_u, column_udot, column_p = self._columns[0]
        by[0].axpy(dt, column_u)
        along.by_udot.axpy(dt, column_udot)
        by[1].axpy(dt, column_p)
        slope = dot(column_u, along.end) + dot(column_udot, along.udot) + self._by_t[0] * dt
        slope += _dot(column_p, sensitivity.dp_vec)
        # by_t has -nu.F_t, by_h the same times reach.
        self._add(k, -slope, -self._reach * slope)
        self._quadrature(k, self._share, self._end, self._reach, (along.end, sensitivity, dt), out)

    def bend_start_rate(self, sensitivity: SecondOrder, by_udot: PETSc.Vec) -> None:
        """Add what the time changes in the second derivatives [n] by the rate at the start."""
        by_udot.axpy(sensitivity.dt, self._columns[1][1])

    def bend_start(
        self,
        k: int,
        sensitivity: SecondOrder,
        rate: PETSc.Vec,
        by: tuple[PETSc.Vec, PETSc.Vec],
        out: tuple[PETSc.Vec, PETSc.Vec],
    ) -> None:
        """Add what the times change at the start, as ``bend_end`` does at the end.

        ``rate`` [n] is the derivative of the rate there.
        """
        column_u, column_udot, column_p = self._columns[1]
        by[0].axpy(sensitivity.dt, column_u)
        by[1].axpy(sensitivity.dt, column_p)
        slope = (
            dot(column_u, sensitivity.du) + dot(column_udot, rate) + self._by_t[1] * sensitivity.dt
        )
        slope += _dot(column_p, sensitivity.dp_vec)
        # the start does not move with h, so by_h has no part of it
        self._add(k, -self._rest * slope, 0.0)
        self._quadrature(
            k,
            1.0 - self._share,
            self._start,
            0.0,
            (sensitivity.du, sensitivity, sensitivity.dt),
            out,
        )

    def slopes(self, k: int, sensitivity: SecondOrder, along: EndTangent) -> tuple[float, float]:
        """Return the derivatives along direction number k, after all solves."""
        h, udot = self._h, self._end[2]
        # The product rule for -nu.F_t: so far nu was fixed, here it changes and F_t is fixed.
        at_end, *at_start = (dot(partial, along.nu_dot) for partial in self._partials)
        self._add(k, -at_end - self._rest * sum(at_start), -self._reach * at_end)
        self._work_u.zeroEntries()
        self._carry(along.udot, self._work_u)
        # The same for nu.D u'/h, in which nu, u', D (by a mass that depends on u, p) and h
        # change.
        carried = dot(self._carried, along.nu_dot) + dot(self._work_u, self._nu)
        if self._problem.curved_mass:
            carried += dot(along.by_udot, udot)
        self._add(k, 0.0, (carried - sensitivity.dh / h * dot(self._carried, self._nu)) / h)
        return self._slopes[k]

    def _quadrature(
        self,
        k: int,
        share: float,
        at: Point,
        reach: float,
        direction: tuple[PETSc.Vec, SecondOrder, float],
        out: tuple[PETSc.Vec, PETSc.Vec],
    ) -> None:
        """Add the times' part of the second derivatives of h share r; of its slopes too."""
        t, u, _, p = at
        point = (t, u, p)
        du, sensitivity, dt = direction
        h, dh = self._h, sensitivity.dh
        for factor, density in self._densities:
            weight = factor * share
            by_t = density.time_hessian(point, (self._work_u, self._work_p))
            out[0].axpy(weight * h * dt, self._work_u)
            out[1].axpy(weight * h * dt, self._work_p)
            slope = dot(self._work_u, du) + _dot(self._work_p, sensitivity.dp_vec) + by_t * dt
            slope = weight * (h * slope + (dh and dh * density.value_t(*point)))
            moved = weight * change(density, self._problem, point, du, sensitivity.dp_vec, dt)
            self._add(k, slope, reach * slope + moved)
            if dh:
                density.add_u(weight * dh, *point, out[0])
                density.add_p(weight * dh, *point, out[1])

    def _add(self, k: int, by_t: float, by_h: float) -> None:
        self._slopes[k] = (self._slopes[k][0] + by_t, self._slopes[k][1] + by_h)


def _dot(x: PETSc.Vec, y: PETSc.Vec) -> float:
    return dot(x, y) if x.size else 0.0
