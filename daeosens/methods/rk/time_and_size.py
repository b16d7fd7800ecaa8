"""Adjoints of the start t and the size h of a Runge-Kutta step, and their derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from petsc4py import PETSc

from daeosens.costs.cost import Densities, Point, change
from daeosens.methods.step import SecondOrder
from daeosens.petsc.vectors import dot
from daeosens.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class StageTangent:
    """Derivatives of a stage along a direction: of its state [n], its rate [n] and its time."""

    state: PETSc.Vec
    rate: PETSc.Vec
    dt: float

    def destroy(self) -> None:
        """Free the vectors now."""
        self.state.destroy()
        self.rate.destroy()


class StageTimeAndSize:
    """The adjoints by_t = sum s_i and by_h = sum (c_i s_i + k_i.w_i + b_i r_i), differentiated.

    s_i = h (f_t.w_i + b_i r_t) is the adjoint of the time of stage i, w_i its weight, k_i = f its
    rate and r the running cost.  Number 0 of ``slopes`` are by_t and by_h themselves.
    """

    def __init__(
        self, problem: Problem, p: Any, h: float, densities: Densities, n_directions: int
    ) -> None:
        self._problem = problem
        self._p = p
        self._h = h
        self._densities = densities
        self.slopes = [(0.0, 0.0)] * (1 + n_directions)
        self._rate_t = problem.create_state()
        self._by_u, self._by_p = problem.create_state(), problem.create_parameters()
        self._work_u, self._work_p = problem.create_state(), problem.create_parameters()

    def read(self, point: Point, b: float, c: float, weight: PETSc.Vec, rate: PETSc.Vec) -> None:
        """Go to a stage: evaluate what all directions have in common."""
        self._point, self._b, self._c, self._weight, self._rate = point, b, c, weight, rate
        self._problem.rhs_t(*point, self._rate_t)
        self._by_t = self._problem.rhs_time_hessian(point, weight, (self._by_u, self._by_p))

    def add_first(self) -> None:
        """Add the stage's part of by_t and by_h."""
        h, b, point = self._h, self._b, self._point
        # slope is s_i; rest is what h as a factor of the rates adds.
        slope, rest = h * dot(self._rate_t, self._weight), dot(self._rate, self._weight)
        for factor, density in self._densities:
            slope += factor * h * b * density.value_t(*point)
            rest += factor * b * density.value(*point)
        self._add(0, slope, rest)

    def turn(self, k: int, weight_dot: PETSc.Vec) -> None:
        """Add what the derivative of the weight along direction number k changes."""
        # s_i and k_i.w_i are linear in w_i: the same with w_dot_i
        self._add(k, self._h * dot(self._rate_t, weight_dot), dot(self._rate, weight_dot))

    def bend(
        self,
        k: int,
        along: SecondOrder,
        stage: StageTangent,
        slopes: tuple[PETSc.Mat, PETSc.Mat | None],
        out: tuple[PETSc.Vec, PETSc.Vec],
    ) -> None:
        """Add the rest of the stage's part of the derivatives along direction number k.

        ``out`` [n], [m] gets what the times change in the adjoints of the stage and of p.
        """
        h, b, point, dh, dt = self._h, self._b, self._point, along.dh, stage.dt
        # d(h f_t.w) = dh f_t.w + h (w^T f_t)' along the direction; the column holds f_tu, f_tp,
        # f_tt.
        slope = dh * dot(self._rate_t, self._weight)
        slope += h * self._column(1.0, stage, along, (self._by_u, self._by_p), self._by_t, out)
        rest = dot(stage.rate, self._weight)
        if dh:
            matrix_u, matrix_p = slopes
            # l_i = h f_u^T w_i, so dh adds dh f_u^T w_i to its derivative; likewise for mu.
            matrix_u.multTranspose(self._weight, self._work_u)
            out[0].axpy(dh, self._work_u)
            if matrix_p is not None:
                matrix_p.multTranspose(self._weight, self._work_p)
                out[1].axpy(dh, self._work_p)
        for factor, density in self._densities:
            work = (self._work_u, self._work_p)
            by_t = density.time_hessian(point, work)
            slope += factor * b * h * self._column(factor * b, stage, along, work, by_t, out)
            slope += factor * b * dh * density.value_t(*point)
            dp = along.dp_vec
            rest += factor * b * change(density, self._problem, point, stage.state, dp, dt)
            if dh:
                density.add_u(factor * b * dh, *point, out[0])
                density.add_p(factor * b * dh, *point, out[1])
        self._add(k, slope, rest)

    def _column(
        self,
        factor: float,
        stage: StageTangent,
        along: SecondOrder,
        column: tuple[PETSc.Vec, PETSc.Vec],
        by_t: float,
        out: tuple[PETSc.Vec, PETSc.Vec],
    ) -> float:
        """Add the column of the time in a Hessian to ``out``; return its product with all."""
        # second derivatives are symmetric: the same column serves the row of u and that of t
        out[0].axpy(factor * self._h * stage.dt, column[0])
        out[1].axpy(factor * self._h * stage.dt, column[1])
        product = dot(column[0], stage.state) + by_t * stage.dt
        return product + (dot(column[1], along.dp_vec) if column[1].size else 0.0)

    def _add(self, k: int, slope: float, rest: float) -> None:
        by_t, by_h = self.slopes[k]
        # the stage moves c_i times as far as the end if h changes
        self.slopes[k] = (by_t + slope, by_h + self._c * slope + rest)
