"""Running costs of a step whose density has a kink inside: by parts that end there.

The quadrature of a step is for smooth functions.  A kink in a density costs the integral alone and
not the states, so the steps stay what they are: from the state before, parts of the step are taken
that end shortly before the kink and on both sides of it, and what they make of the integral is put
in the place of what the step as a whole makes of it.  The difference is a scalar of the state
before, whose derivatives go through those of the parts.  All engines take it as they take any
scalar, and what they give is exact for the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from petsc4py import PETSc

from daeosens.costs.cost import Densities, Direction, Point, Scalar
from daeosens.methods.step import Adjoint, SecondOrder, Step, StepMap
from daeosens.petsc.vectors import dot, scatter
from daeosens.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class Crossing:
    """What the moving time of a kink adds to second derivatives of a running cost.

    Across s(t, u, p) = 0 the gradient of a density jumps by (q_u, q_p) = c (s_u, s_p), and its
    derivative along the run by c s'.  With d its jump along a direction, the integral has the
    second derivative d d / (c s') beside those of the parts.

    Attributes
    ----------
    part : int
        The number of the part that goes across the kink.
    scalar : Scalar
        The density.
    by_u, by_p : Vec [n], Vec [m]
        The jump of the gradient.
    along : float
        That of the derivative along the run; 0 where the kink is touched and not crossed, so that
        nothing is known of second derivatives.
    """

    part: int
    scalar: Scalar
    by_u: PETSc.Vec
    by_p: PETSc.Vec
    along: float


@dataclass(frozen=True, eq=False)
class CostByParts:
    """Running costs of a step by its parts, less those by the whole step, as a scalar.

    Attributes
    ----------
    problem : Problem
        The equations of the step.
    steps : (StepMap, StepMap)
        What takes the step as a whole, and its parts.
    whole : Step
        The step; the state before it is that of the scalar.
    parts : sequence of Step
        One after the other.
    densities : sequence of (float, Scalar)
        Running costs with their weights.
    cross : callable
        Returns what the moving times of the kinks contribute.
    """

    problem: Problem
    steps: tuple[StepMap, StepMap]
    whole: Step
    parts: Sequence[Step]
    densities: Densities
    cross: Callable[[], Sequence[Crossing]]

    @cached_property
    def crossings(self) -> Sequence[Crossing]:
        """What the moving times of the kinks contribute to second derivatives."""
        return self.cross()

    def value(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the value."""
        del t, u, p
        of_step, of_parts = self.steps
        value = -of_step.quadrature(self.whole, self.densities)
        return value + sum(of_parts.quadrature(part, self.densities) for part in self.parts)

    @cached_property
    def _gradient(self) -> tuple[PETSc.Vec, PETSc.Vec]:
        of_step, of_parts = self.steps
        lam, mu = self._rows()
        of_step.adjoint(self.whole, [lam], [mu], [self.densities])
        by_u, by_p = self._rows()
        for part in reversed(self.parts):
            of_parts.adjoint(part, [by_u], [by_p], [self.densities])
        by_u.axpy(-1.0, lam)
        by_p.axpy(-1.0, mu)
        return by_u, by_p

    def add_u(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` times the gradient in u."""
        del t, u, p
        out.axpy(weight, self._gradient[0])

    def add_p(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` times the gradient in p."""
        del t, u, p
        out.axpy(weight, self._gradient[1])

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
        of_step, of_parts = self.steps
        for steps, parts, sign, crossings in (
            (of_step, [self.whole], -1.0, ()),
            (of_parts, self.parts, 1.0, self.crossings),
        ):
            for vec, dot_of in zip(
                out, self._dots(steps, parts, direction, crossings), strict=True
            ):
                vec.axpy(sign * weight, dot_of)

    def _dots(
        self,
        steps: StepMap,
        parts: Sequence[Step],
        direction: Direction,
        crossings: Sequence[Crossing],
    ) -> tuple[PETSc.Vec, PETSc.Vec]:
        """Return the derivative of the gradient of a sum over steps along a direction."""
        du, dp = direction
        by_p = dp if self.problem.field_parameter else scatter(dp, self.problem.create_parameters())
        pushed = by_p if self.problem.n_parameters else None

        def push(before: PETSc.Vec, part: Step) -> PETSc.Vec:
            after = before.copy()
            steps.tangent(part, after, pushed)
            return after

        tangents = list(accumulate(parts, push, initial=du))
        lam, mu = self._rows()
        dots = self._rows()
        for number in reversed(range(len(parts))):
            before, after = tangents[number], tangents[number + 1]
            along = SecondOrder(before, after, dp, by_p, *dots)
            steps.second_order(parts[number], Adjoint(lam, mu), [along], self.densities)
            for crossing in crossings:
                if crossing.part == number and crossing.along:
                    moved = dot(crossing.by_u, before)
                    if pushed is not None:
                        moved += dot(crossing.by_p, by_p)
                    dots[0].axpy(moved / crossing.along, crossing.by_u)
                    dots[1].axpy(moved / crossing.along, crossing.by_p)
        return dots

    def time_hessian(self, point: Point, out: tuple[PETSc.Vec, PETSc.Vec]) -> float:
        """Leave ``out`` zero, and return 0: the time does not move."""
        del point
        for vec in out:
            vec.zeroEntries()
        return 0.0

    def _rows(self) -> tuple[PETSc.Vec, PETSc.Vec]:
        return self.problem.create_state(), self.problem.create_parameters()
