"""The equations of the stages of IMEX steps, linearised: tangents, and weights of adjoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from petsc4py import PETSc

from daeosens.costs.cost import Point
from daeosens.methods.esdirk.stage_matrices import StageMatrices
from daeosens.methods.factored_matrix import FactoredMatrix, MakeSolver
from daeosens.methods.imex.stages import ImexStages
from daeosens.methods.imex.tableau import Additive
from daeosens.methods.rk.time_and_size import StageTangent
from daeosens.methods.step import Step
from daeosens.problem.matrices import PointMatrix
from daeosens.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class PartMatrices:
    """f_u [n, n] and f_p [n, m] of one of the parts, at one point after the other."""

    part: Problem
    by_u: PointMatrix
    by_p: PointMatrix

    @classmethod
    def of(cls, part: Problem) -> PartMatrices:
        """Make room for those of a part."""
        return cls(part, PointMatrix(part.rhs_u), PointMatrix(part.rhs_p))

    def at(self, point: Point, *, by_u: bool = True) -> tuple[PETSc.Mat | None, PETSc.Mat | None]:
        """Return f_u, or None if it is not wanted, and f_p, or None without parameters."""
        by_p = self.by_p.at(*point) if self.part.n_parameters else None
        return self.by_u.at(*point) if by_u else None, by_p


class ImexEquations:
    """The stages of one step after the other.

    With nu_i the adjoint of the equation of stage i, y_i = sum_{l>i} a_li nu_l and
    v_i = d_i lam + sum_{l>i} e_li nu_l the weight of h g_i, that of h f_i, w_i = gamma nu_i + y_i,
    solves

        (1 - h gamma f_u)^T w_i = y_i + gamma (lam [last stage] + h g_u^T v_i + h b_i r_u),

    but at the first stage, where w_1 = y_1; before the step lam is the sum of all nu_i.

    Parameters
    ----------
    problem : Problem
        u' = f + g.
    scheme : Additive
        Coefficients.
    make_solver : callable
        Makes the linear solver of a matrix.
    stages : ImexStages
        Finds the stages of a step.
    """

    def __init__(
        self, problem: Problem, scheme: Additive, make_solver: MakeSolver, stages: ImexStages
    ) -> None:
        assert problem.parts is not None
        self._problem = problem
        self.implicit, self.explicit = problem.parts
        self._scheme = scheme
        self.slot = StageMatrices(self.implicit, scheme.gamma, make_solver).at
        self._stages = stages
        create = problem.create_state
        self._right, self._later, self._work = create(), create(), create()
        self._by_p = problem.create_parameters()
        self.of_implicit = PartMatrices.of(self.implicit)
        self.of_explicit = PartMatrices.of(self.explicit)
        self._rates: list[tuple[PETSc.Vec, PETSc.Vec]] = []
        self._adjoints: list[list[PETSc.Vec]] = []

    def points(self, step: Step) -> list[Point]:
        """Return where the equations are evaluated, with times as callbacks see them."""
        t, h, _, _, p, _ = step
        states = self._stages.find(step)
        times = [self._problem.inside(t + c * h, t, h) for c in self._scheme.c.tolist()]
        return [(time, state, p) for time, state in zip(times, states, strict=True)]

    def rates(self, points: Sequence[Point]) -> list[tuple[PETSc.Vec, PETSc.Vec]]:
        """Return f and g at the points of a step."""
        create = self._problem.create_state
        if not self._rates:
            self._rates = [(create(), create()) for _ in points]
        for point, (of_implicit, of_explicit) in zip(points, self._rates, strict=True):
            self.implicit.rhs(*point, of_implicit)
            self.explicit.rhs(*point, of_explicit)
        return self._rates

    def slots(self, points: Sequence[Point], h: float) -> list[FactoredMatrix | None]:
        """Return the matrices of all stages, with room for their factors: None at the first."""
        return [None, *(self.slot(i, point, h) for i, point in enumerate(points[1:]))]

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
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
        step: tuple[float, float],
        rates: Sequence[tuple[PETSc.Vec, PETSc.Vec]],
    ) -> list[tuple[StageTangent, StageTangent]]:
        """Return the derivatives of the stages along a direction, with the rates of f and of g.

        ``du`` is the tangent before the step, ``step`` those of t and h; ``rates`` are needed for
        the latter.  Without ``slots`` one is filled at each stage in turn.
        """
        scheme, gamma, right = self._scheme, self._scheme.gamma, self._right
        dt, dh = step
        stages: list[tuple[StageTangent, StageTangent]] = []
        for i, point in enumerate(points):
            d_time = dt + float(scheme.c[i]) * dh
            # dU_i = known + h gamma df_i + dh gamma f_i
            known = self._later
            du.copy(known)
            for k, a in enumerate((scheme.a, scheme.a_explicit)):
                known.maxpy((h * a[i, :i]).tolist(), [pair[k].rate for pair in stages])
                if dh:
                    known.maxpy((dh * a[i, :i]).tolist(), [pair[k] for pair in rates[:i]])
            state, of_implicit, of_explicit = (du.duplicate() for _ in range(3))
            if i == 0:
                known.copy(state)
                self._change(self.of_implicit, point, state, dp, d_time, of_implicit)
            else:
                self._partials(self.of_implicit, point, dp, d_time, right)
                right.axpy(1.0 / (h * gamma), known)
                if dh:
                    right.axpy(dh / h, rates[i][0])
                slot = self.slot(0, point, h) if slots is None else slots[i]
                assert slot is not None
                slot.solve(right, state, transpose=False)
                # from the equation of the stage, without a product with f_u
                of_implicit.waxpy(-1.0, known, state)
                of_implicit.scale(1.0 / (h * gamma))
                if dh:
                    of_implicit.axpy(-dh / h, rates[i][0])
            if scheme.reads[i]:
                self._change(self.of_explicit, point, state, dp, d_time, of_explicit)
            else:
                of_explicit.zeroEntries()
            both = of_implicit, of_explicit
            stages.append(tuple(StageTangent(state, rate, d_time) for rate in both))  # type: ignore[arg-type]
        return stages

    def complete(
        self,
        h: float,
        stages: Sequence[tuple[StageTangent, StageTangent]],
        dh: float,
        rates: Sequence[tuple[PETSc.Vec, PETSc.Vec]],
        out: PETSc.Vec,
    ) -> None:
        """Fill ``out`` [n] with the tangent after the step, from those of the stages."""
        end = self._scheme.end
        stages[-1][0].state.copy(out)
        if end.any():
            out.maxpy((h * end).tolist(), [of_explicit.rate for _, of_explicit in stages])
            if dh:
                out.maxpy((dh * end).tolist(), [of_explicit for _, of_explicit in rates])

    def weigh_explicit(
        self, i: int, lam: PETSc.Vec, adjoints: list[PETSc.Vec], out: PETSc.Vec
    ) -> None:
        """Fill ``out`` with v_i."""
        scheme = self._scheme
        lam.copy(out)
        out.scale(float(scheme.end[i]))
        if i + 1 < len(scheme.c):
            out.maxpy(scheme.a_explicit[i + 1 :, i].tolist(), adjoints[i + 1 :])

    def weigh_implicit(
        self,
        i: int,
        h: float,
        slot: FactoredMatrix | None,
        source: PETSc.Vec,
        lam: PETSc.Vec,
        adjoints: list[PETSc.Vec],
        out: PETSc.Vec,
    ) -> None:
        """Fill ``out`` with w_i and, but at the first stage, ``adjoints[i]`` with nu_i.

        ``source`` [n] is h g_u^T v_i + h b_i r_u, and overwritten at implicit stages.
        """
        a, gamma, later = self._scheme.a, self._scheme.gamma, self._later
        later.zeroEntries()
        if i + 1 < len(a):
            later.maxpy(a[i + 1 :, i].tolist(), adjoints[i + 1 :])
        else:
            # the last stage is the state after the step, but for rates of g
            source.axpy(1.0, lam)
        if slot is None:
            later.copy(out)
            return
        source.scale(gamma)
        source.axpy(1.0, later)
        source.scale(1.0 / (h * gamma))
        slot.solve(source, out, transpose=True)
        # w_i = gamma nu_i + y_i, solved for nu_i
        adjoints[i].waxpy(-1.0, later, out)
        adjoints[i].scale(1.0 / gamma)

    def pull_back(
        self,
        h: float,
        slopes: tuple[PETSc.Mat | None, PETSc.Mat | None],
        weight: PETSc.Vec,
        by_u: PETSc.Vec | None,
        mu: PETSc.Vec,
    ) -> None:
        """Add h f_u^T w to ``by_u`` [n], if f_u is given, and h f_p^T w to ``mu`` [m]."""
        matrix_u, matrix_p = slopes
        if matrix_u is not None and by_u is not None:
            matrix_u.multTranspose(weight, self._work)
            by_u.axpy(h, self._work)
        if matrix_p is not None:
            matrix_p.multTranspose(weight, self._by_p)
            mu.axpy(h, self._by_p)

    def start(self, source: PETSc.Vec, lam: PETSc.Vec, adjoints: list[PETSc.Vec]) -> None:
        """Fill ``lam`` as it is before the step: the sum of all nu_i, the first one ``source``."""
        source.copy(lam)
        lam.maxpy([1.0] * (len(adjoints) - 1), adjoints[1:])

    def _change(
        self,
        matrices: PartMatrices,
        point: Point,
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
        dt: float,
        out: PETSc.Vec,
    ) -> None:
        """Fill ``out`` with f_u du + f_p dp + f_t dt."""
        self._partials(matrices, point, dp, dt, out)
        matrices.by_u.at(*point).mult(du, self._work)
        out.axpy(1.0, self._work)

    def _partials(
        self,
        matrices: PartMatrices,
        point: Point,
        dp: PETSc.Vec | None,
        dt: float,
        out: PETSc.Vec,
    ) -> None:
        """Fill ``out`` with f_p dp + f_t dt."""
        out.zeroEntries()
        if dp is not None and matrices.part.n_parameters:
            matrices.by_p.at(*point).mult(dp, out)
        if dt:
            matrices.part.rhs_t(*point, self._work)
            out.axpy(dt, self._work)


def destroy(stages: Sequence[tuple[StageTangent, StageTangent]]) -> None:
    """Free the vectors of the stages now."""
    for of_implicit, of_explicit in stages:
        of_implicit.destroy()
        of_explicit.rate.destroy()  # both have one state
