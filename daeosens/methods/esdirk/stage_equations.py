"""The equations of the stages of diagonally implicit Runge-Kutta steps of M u' = f + g, linearised.

M U_i = M u_n + h sum_{j<=i} a_ij f_j + h sum_{j<i} e_ij g_j,  u_{n+1} = U_s + h sum_j d_j g_j
(docs/mathematics.md, section 1), without g in ESDIRK steps, and with M = 1 where there is g.  In
algebraic equations the f_j of earlier stages do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Point
from daeosens.methods.esdirk.stages import StageSolver
from daeosens.methods.esdirk.tableau import Esdirk
from daeosens.methods.factored_matrix import FactoredMatrix, MakeSolver
from daeosens.methods.rk.time_and_size import StageTangent
from daeosens.methods.step import Step
from daeosens.petsc.vectors import Array, read
from daeosens.problem.implicit_matrix import SystemMatrix
from daeosens.problem.matrices import PointMatrix
from daeosens.problem.problem import Problem

Slopes = list[tuple[PETSc.Mat | None, PETSc.Mat | None]]
"""f_u [n, n] and f_p [n, m] of each part at a stage; None where they are not needed."""

Known: TypeAlias = "tuple[Any, Any]"
"""Values of f_u and f_p at a point that were evaluated beforehand; None where they were not."""

AHEAD = 128
"""Points of some steps at which derivatives are evaluated at once."""

COLUMNS, ROOM = 16, 2**24
"""Bytes that these may take, about, where Jacobians have so many entries in a row."""


@dataclass(eq=False)
class _Part:
    """f of one of the parts, f_u [n, n] and f_p [n, m] at one stage after the other.

    ``known`` has their values at the stages of the step, where these were evaluated beforehand.
    """

    equations: Problem
    by_u: PointMatrix
    by_p: PointMatrix
    known: Sequence[Known] = ()

    @property
    def looks_ahead(self) -> bool:
        """Whether derivatives may be known at many points at once."""
        return self.by_u.looks_ahead or self.by_p.looks_ahead

    @classmethod
    def of(cls, part: Problem) -> _Part:
        """Make room for the matrices of a part."""
        return cls(part, PointMatrix(part.rhs_u), PointMatrix(part.rhs_p))

    def known_u(self, i: int) -> Any:
        """Return what is known of f_u at stage ``i``."""
        return self.known[i][0] if self.known else None

    def u_at(self, i: int, point: Point) -> PETSc.Mat:
        """Return f_u at stage ``i``."""
        return self.by_u.at(*point, known=self.known_u(i))

    def p_at(self, i: int, point: Point) -> PETSc.Mat | None:
        """Return f_p at stage ``i``, or None without parameters."""
        if not self.equations.n_parameters:
            return None
        return self.by_p.at(*point, known=self.known[i][1] if self.known else None)

    def at_points(self, t: Array, u: Array, p: Array) -> list[Known]:
        """Return what is known of f_u and f_p at K points beforehand."""
        nothing = [None] * len(t)
        by_u = self.by_u.at_points(t, u, p)
        by_p = self.by_p.at_points(t, u, p) if self.equations.n_parameters else None
        return list(zip(by_u or nothing, by_p or nothing, strict=True))


class StageMatrices:
    """M/(h gamma) - f_u at the stages of one step after the other.

    Parameters
    ----------
    problem : Problem
        M u' = f(t, u, p) with a constant M.
    gamma : float
        The diagonal of the coefficients.
    make_solver : callable
        Makes the linear solver of a matrix.
    """

    def __init__(self, problem: Problem, gamma: float, make_solver: MakeSolver) -> None:
        self._problem, self._gamma, self._make_solver = problem, gamma, make_solver
        self._zero = problem.create_state()
        self._slots: list[FactoredMatrix] = []

    def at(self, number: int, point: Point, h: float, known: Any = None) -> FactoredMatrix:
        """Return the matrix at a point, in the room with this number, or the next one."""
        problem, (t, u, p) = self._problem, point
        if problem.residual_u.constant:
            number = 0  # all stages have one matrix
        if number == len(self._slots):
            system = SystemMatrix(problem.residual_u, problem.residual_udot, t, u, self._zero, p)
            self._slots.append(FactoredMatrix(system, self._make_solver))
        self._slots[number].fill(t, u, self._zero, p, 1.0 / (h * self._gamma), known=known)
        return self._slots[number]


class StageEquations:
    """The stages of one step after the other: tangents, and weights of adjoints.

    With nu_i the adjoint of the equation of stage i, P what leaves out the parts of sides in
    algebraic equations (rows of M that are zero, or sums of rows), y_i = P^T sum_{l>i} a_li nu_l
    and v_i = d_i lam + sum_{l>i} e_li nu_l the weight of h g_i, that of h f_i,
    w_i = gamma nu_i + y_i, solves

        (M - h gamma f_u)^T w_i = M^T y_i + gamma (lam [last stage] + h g_u^T v_i + h b_i r_u),

    the only equation there is for each implicit stage; w_1 = y_1, and before the step lam is
    M^T sum_{i>1} nu_i + h f_u^T w_1 + h g_u^T v_1 + h b_1 r_u.

    Parameters
    ----------
    problem : Problem
        M u' = f(t, u, p) with a constant M.
    scheme : Esdirk
        Coefficients.
    make_solver : callable
        Makes the linear solver of a matrix.
    stages : StageSolver
        Finds the stages of a step.
    explicit : Problem, optional
        u' = g(t, u, p), stepped explicitly beside it.

    Attributes
    ----------
    shared : bool
        Whether one direction after the other is carried over each step: stages and factors of its
        matrices are kept then until the next one.
    """

    def __init__(
        self,
        problem: Problem,
        scheme: Esdirk,
        make_solver: MakeSolver,
        stages: StageSolver,
        explicit: Problem | None = None,
    ) -> None:
        self._problem = problem
        self._scheme, self._gamma = scheme, scheme.gamma
        # of each part and stage: what reads the rates before it, and what reads its own
        numbers = range(len(scheme.c))
        self._rows = [[a[i, :i].tolist() for i in numbers] for a in scheme.coefficients]
        self._columns = [[a[i + 1 :, i].tolist() for i in numbers] for a in scheme.coefficients]
        self._c = scheme.c.tolist()
        self._end = [0.0] * len(scheme.c) if scheme.end is None else scheme.end.tolist()
        self.parts = (problem,) if explicit is None else (problem, explicit)
        self._matrices = StageMatrices(problem, scheme.gamma, make_solver)
        self._stages = stages
        create = problem.create_state
        self._zero, self._right, self._later = create(), create(), create()
        self._work, self._by_p = create(), problem.create_parameters()
        self._parts = [_Part.of(part) for part in self.parts]
        self._rates: list[tuple[PETSc.Vec, ...]] = []
        self._adjoints: list[list[PETSc.Vec]] = []
        self.shared = False
        self._at: tuple[Step, list[Point]] | None = None
        self._filled: dict[int, FactoredMatrix] = {}
        self._ahead: dict[int, tuple[Step, list[Point], list[list[Known]]]] = {}

    @property
    def block(self) -> int:
        """How many steps are to be announced at a time; 1 if nothing is gained by it."""
        if self._problem.comm.size > 1 or not any(part.looks_ahead for part in self._parts):
            return 1
        stages = len(self._c)
        room = ROOM // (8 * self._problem.size * COLUMNS * stages)
        return max(1, min(AHEAD // stages, room))

    def ahead(self, steps: Sequence[Step]) -> None:
        """Evaluate derivatives at the stages of steps that follow, at once where that can be."""
        self._ahead.clear()
        if len(steps) < 2 or not all(step.p is steps[0].p for step in steps):
            return
        points: list[list[Point]] = []
        for step in steps:
            stages = self._stages.find(step)
            states = [state.copy() if self._stages.owns(state) else state for state in stages]
            points.append(self._points_of(step, states))
        every = [point for of_step in points for point in of_step]
        t = np.array([time for time, _, _ in every])
        u, p = np.array([read(state) for _, state, _ in every]), steps[0].p
        of_parts = [
            part.at_points(t, u, read(p) if isinstance(p, PETSc.Vec) else p) for part in self._parts
        ]
        count = len(self._c)
        for k, (step, of_step) in enumerate(zip(steps, points, strict=True)):
            known = [values[k * count : (k + 1) * count] for values in of_parts]
            self._ahead[step.number] = step, of_step, known

    def points(self, step: Step) -> list[Point]:
        """Return where the equations are evaluated, with times as callbacks see them."""
        if self.shared and self._at is not None and self._at[0] is step:
            return self._at[1]
        # taken out: what callbacks give is kept for this sweep alone
        announced, points, known = self._ahead.pop(step.number, (None, [], []))
        if announced is not step:
            points, known = self._points_of(step, self._stages.find(step)), [() for _ in self.parts]
        for part, values in zip(self._parts, known, strict=True):
            part.known = values
        self._at = (step, points) if self.shared else None
        self._filled.clear()
        return points

    def _points_of(self, step: Step, states: Sequence[PETSc.Vec]) -> list[Point]:
        t, h, _, _, p, _ = step
        times = [self._problem.inside(t + c * h, t, h) for c in self._c]
        return [(time, state, p) for time, state in zip(times, states, strict=True)]

    def slot(self, room: int, i: int, point: Point, h: float) -> FactoredMatrix:
        """Return the matrix of stage ``i``, in the room with this number, or the next one."""
        return self._matrices.at(room, point, h, self._parts[0].known_u(i))

    def rates(self, points: Sequence[Point]) -> list[tuple[PETSc.Vec, ...]]:
        """Return f, without that of rows of zeros of M, and g at the points of a step."""
        if not self._rates:
            self._rates = [tuple(part.create_state() for part in self.parts) for _ in points]
        for point, rates in zip(points, self._rates, strict=True):
            for part, rate in zip(self.parts, rates, strict=True):
                part.rhs(*point, rate)
            self._stages.mask(rates[0])
        return self._rates

    def slots(self, points: Sequence[Point], h: float) -> list[FactoredMatrix | None]:
        """Return the matrices of all stages, with room for their factors: None at the first."""
        return [None, *(self.slot(i, i + 1, point, h) for i, point in enumerate(points[1:]))]

    def slopes(self, i: int, point: Point, *, times: bool = False) -> Slopes:
        """Return the derivatives of f and g at stage ``i``, with ``times`` those of all in u.

        At implicit stages f_u is in the matrix.
        """
        implicit, *explicit = self._parts
        read = times or self._scheme.reads[i]
        return [
            (implicit.u_at(i, point) if times or not i else None, implicit.p_at(i, point)),
            *(
                (part.u_at(i, point), part.p_at(i, point)) if read else (None, None)
                for part in explicit
            ),
        ]

    def adjoints(self, count: int) -> list[list[PETSc.Vec]]:
        """Return room for the nu_i of ``count`` adjoints."""
        while len(self._adjoints) < count:
            self._adjoints.append([self._problem.create_state() for _ in self._scheme.c])
        return self._adjoints[:count]

    def tangents(
        self,
        h: float,
        points: Sequence[Point],
        slots: Sequence[FactoredMatrix | None] | None,
        ends: tuple[PETSc.Vec, PETSc.Vec | None],
        dp: PETSc.Vec | None,
        step: tuple[float, float],
        rates: Sequence[tuple[PETSc.Vec, ...]],
    ) -> list[tuple[StageTangent, ...]]:
        """Return the derivatives of the stages along a direction, with the rates of each part.

        ``ends`` are the tangents before the step and, if it is known, after it; ``step`` those of
        t and h; ``rates`` are needed for the latter.  Without ``slots`` one is filled at each stage
        in turn.
        """
        scheme, gamma, right = self._scheme, self._gamma, self._right
        (du, du_next), (dt, dh) = ends, step
        last = du_next if scheme.end is None else None
        implicit, *explicit = self._parts
        stages: list[tuple[StageTangent, ...]] = []
        for i, point in enumerate(points):
            # With the tangent after the step known, the last stage needs no solve: it is that
            # tangent.
            known = last if i == len(points) - 1 else None
            state = (du if known is None else known).copy()
            d_time = dt + self._c[i] * dh
            rate = du.duplicate()
            if i == 0:
                # the explicit stage: its state is the start, so its rate is just evaluated
                self._change(implicit, i, point, du, dp, d_time, rate)
                self._stages.mask(rate)
            else:
                # M dU_i = M du + h sum_{j<i} (a_ij df_j + e_ij dg_j) + h gamma df_i, and
                # df_i = f_u dU_i + f_p dp + f_t dt
                earlier = self._later
                earlier.zeroEntries()
                for k, rows in enumerate(self._rows):
                    earlier.maxpy([h * a for a in rows[i]], [stage[k].rate for stage in stages])
                    if dh:
                        earlier.maxpy([dh * a for a in rows[i]], [pair[k] for pair in rates[:i]])
                if known is None:
                    earlier.copy(right)
                    self._add_partials(implicit, i, h * gamma, point, dp, d_time, right)
                    if dh:
                        right.axpy(dh * gamma, rates[i][0])
                    self._add_mass(1.0, point, du, right)
                    right.scale(1.0 / (h * gamma))
                    slot = self._slot_of(i, point, h) if slots is None else slots[i]
                    assert slot is not None
                    slot.solve(right, state, transpose=False)
                # df_i follows from the equation of the stage, without a product with f_u.
                self._work.waxpy(-1.0, du, state)
                rate.zeroEntries()
                self._add_mass(1.0 / (h * gamma), point, self._work, rate)
                rate.axpy(-1.0 / (h * gamma), earlier)
                if dh:
                    rate.axpy(-dh / h, rates[i][0])
            of_parts = [rate]
            for part in explicit:
                of_parts.append(du.duplicate())
                if scheme.reads[i]:
                    self._change(part, i, point, state, dp, d_time, of_parts[-1])
                else:
                    of_parts[-1].zeroEntries()
            stages.append(tuple(StageTangent(state, rate, d_time) for rate in of_parts))
        return stages

    def _slot_of(self, i: int, point: Point, h: float) -> FactoredMatrix:
        """Return the matrix of stage ``i``, with its factors if another direction had them made."""
        if not self.shared:
            return self.slot(0, i, point, h)
        if i not in self._filled:
            self._filled[i] = self.slot(i - 1, i, point, h)
        return self._filled[i]

    def complete(
        self,
        h: float,
        stages: Sequence[tuple[StageTangent, ...]],
        dh: float,
        rates: Sequence[tuple[PETSc.Vec, ...]],
        out: PETSc.Vec,
    ) -> None:
        """Fill ``out`` [n] with the tangent after the step, from those of the stages."""
        end = self._scheme.end
        stages[-1][0].state.copy(out)
        if end is not None:
            out.maxpy((h * end).tolist(), [stage[1].rate for stage in stages])
            if dh:
                out.maxpy((dh * end).tolist(), [pair[1] for pair in rates])

    def carry(
        self,
        i: int,
        h: float,
        point: Point,
        slot: FactoredMatrix | None,
        slopes: Slopes,
        source: PETSc.Vec,
        out: tuple[PETSc.Vec, PETSc.Vec],
        adjoints: list[PETSc.Vec],
        weights: Sequence[PETSc.Vec],
    ) -> None:
        """Carry an adjoint back over stage ``i``, after those that come later.

        Parameters
        ----------
        i, h, point : int, float, Point
            The stage, the size of the step and where the equations are evaluated.
        slot : FactoredMatrix or None
            The matrix of the stage; None for the first one, which has no equation.
        slopes : list of (Mat, Mat)
            From ``slopes``.
        source : Vec [n]
            h b_i r_u, overwritten.
        out : (Vec [n], Vec [m])
            lam, overwritten at the first stage by that before the step, and mu, added to.
        adjoints : list of Vec [n]
            All nu_i; this one is filled.
        weights : sequence of Vec [n]
            Filled with w_i and, where there is g, v_i.
        """
        lam, mu = out
        if len(weights) > 1:
            self._weigh_explicit(i, lam, adjoints, weights[1])
            self._pull_back(h, slopes[1], weights[1], source, mu)
        self._weigh(i, h, point, slot, source, lam, adjoints, weights[0])
        matrix_u, matrix_p = slopes[0]
        self._pull_back(h, (None if i else matrix_u, matrix_p), weights[0], source, mu)
        if not i:
            # M U_i = M u_n + ... for all implicit stages
            self._later.zeroEntries()
            self._later.maxpy([1.0] * (len(adjoints) - 1), adjoints[1:])
            source.copy(lam)
            self._add_mass(1.0, point, self._later, lam, transpose=True)

    def _weigh_explicit(
        self, i: int, lam: PETSc.Vec, adjoints: list[PETSc.Vec], out: PETSc.Vec
    ) -> None:
        """Fill ``out`` with v_i."""
        lam.copy(out)
        out.scale(self._end[i])
        later = adjoints[i + 1 :]
        if later:
            out.maxpy(self._columns[1][i], later)

    def _weigh(
        self,
        i: int,
        h: float,
        point: Point,
        slot: FactoredMatrix | None,
        source: PETSc.Vec,
        lam: PETSc.Vec,
        adjoints: list[PETSc.Vec],
        out: PETSc.Vec,
    ) -> None:
        """Fill ``out`` with w_i and, but at the first stage, ``adjoints[i]`` with nu_i.

        ``source`` [n] is h g_u^T v_i + h b_i r_u, and overwritten at implicit stages.
        """
        gamma, later = self._gamma, self._later
        later.zeroEntries()
        of_later = adjoints[i + 1 :]
        if of_later:
            later.maxpy(self._columns[0][i], of_later)
            # P^T: in algebraic equations earlier rates do not count, so no adjoint flows back
            # there
            self._stages.mask(later, transpose=True)
        else:
            # the last stage is the state after the step, but for rates of g
            source.axpy(1.0, lam)
        if slot is None:
            later.copy(out)
            return
        source.scale(gamma)
        self._add_mass(1.0, point, later, source, transpose=True)
        source.scale(1.0 / (h * gamma))
        slot.solve(source, out, transpose=True)
        # w_i = gamma nu_i + y_i, solved for nu_i
        adjoints[i].waxpy(-1.0, later, out)
        adjoints[i].scale(1.0 / gamma)

    def _pull_back(
        self,
        h: float,
        slopes: tuple[PETSc.Mat | None, PETSc.Mat | None],
        weight: PETSc.Vec,
        by_u: PETSc.Vec,
        mu: PETSc.Vec,
    ) -> None:
        """Add h f_u^T w to ``by_u`` [n], if f_u is given, and h f_p^T w to ``mu`` [m]."""
        matrix_u, matrix_p = slopes
        if matrix_u is not None:
            matrix_u.multTranspose(weight, self._work)
            by_u.axpy(h, self._work)
        if matrix_p is not None:
            matrix_p.multTranspose(weight, self._by_p)
            mu.axpy(h, self._by_p)

    def _add_mass(
        self, factor: float, point: Point, v: PETSc.Vec, out: PETSc.Vec, *, transpose: bool = False
    ) -> None:
        t, u, p = point
        self._problem.add_udot_product(factor, t, u, self._zero, p, v, out, transpose=transpose)

    def _change(
        self,
        part: _Part,
        i: int,
        point: Point,
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
        dt: float,
        out: PETSc.Vec,
    ) -> None:
        """Fill ``out`` with f_u du + f_p dp + f_t dt, at stage ``i``."""
        part.u_at(i, point).mult(du, out)
        self._add_partials(part, i, 1.0, point, dp, dt, out)

    def _add_partials(
        self,
        part: _Part,
        i: int,
        factor: float,
        point: Point,
        dp: PETSc.Vec | None,
        dt: float,
        out: PETSc.Vec,
    ) -> None:
        """Add factor (f_p dp + f_t dt), at stage ``i``."""
        if dp is not None and (by_p := part.p_at(i, point)) is not None:
            by_p.mult(dp, self._work)
            out.axpy(factor, self._work)
        if dt:
            part.equations.rhs_t(*point, self._work)
            out.axpy(factor * dt, self._work)


def destroy(stages: Sequence[tuple[StageTangent, ...]]) -> None:
    """Free the vectors of the stages now; the parts of a stage have one state."""
    for tangent in chain.from_iterable(stages):
        tangent.destroy()
