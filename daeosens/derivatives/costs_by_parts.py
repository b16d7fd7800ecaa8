"""Running costs of a step whose density has a kink inside: by parts that end there.

The quadrature of a step is for smooth functions.  A kink in a density costs the integral alone and
not the states, so the steps stay what they are: from the state before, parts of the step are taken
that end shortly before the kink and on both sides of it, and what they make of the integral is put
in the place of what the step as a whole makes of it.  The difference is a scalar of the state
before, whose derivatives go through those of the parts.  All engines take it as they take any
scalar, and what they give is exact for the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from petsc4py import PETSc

from daeosens.costs.cost import Densities, Direction, Point, Scalar
from daeosens.methods.step import Adjoint, FixedTimes, SecondOrder, Step, StepMap
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
    by_u, by_p, by_t : Vec [n], Vec [m], float
        The jump of the gradient.
    along : float
        That of the derivative along the run; 0 where the kink is touched and not crossed, so that
        nothing is known of second derivatives.
    """

    part: int
    scalar: Scalar
    by_u: PETSc.Vec
    by_p: PETSc.Vec
    by_t: float
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
    def gradient(self) -> tuple[PETSc.Vec, PETSc.Vec]:
        """The gradient in u [n] and p [m] of the state before the step."""
        by_u, by_p, _ = self.differentiated(times=False)
        return by_u, by_p

    def differentiated(self, *, times: bool) -> tuple[PETSc.Vec, PETSc.Vec, tuple[float, float]]:
        """Return the gradient in u [n] and p [m], and derivatives in the step's time and size.

        The latter are zeros without ``times``.
        """
        of_step, of_parts = self.steps
        lam, mu = self._rows()
        slopes = of_step.adjoint(self.whole, [lam], [mu], [self.densities], times=times)
        by_t, by_h = (-slope for slope in slopes[0]) if times else (0.0, 0.0)
        by_u, by_p = self._rows()
        shares = list(self.shares())
        for part, (begin, size) in reversed(list(zip(self.parts, shares, strict=True))):
            slopes = of_parts.adjoint(part, [by_u], [by_p], [self.densities], times=times)
            if times:
                by_t += slopes[0][0]
                by_h += begin * slopes[0][0] + size * slopes[0][1]
        by_u.axpy(-1.0, lam)
        by_p.axpy(-1.0, mu)
        return by_u, by_p, (by_t, by_h)

    def shares(self) -> Iterator[tuple[float, float]]:
        """Yield where each part begins, and how long it is, in steps."""
        for part in self.parts:
            yield (part.t - self.whole.t) / self.whole.h, part.h / self.whole.h

    def tangent(self, du: PETSc.Vec, dp: PETSc.Vec | None, dt: float, dh: float) -> float:
        """Return the derivative along a direction, of the step's time and size as well."""
        of_step, of_parts = self.steps
        result = -of_step.tangent(self.whole, du.copy(), dp, dt, dh, self.densities)
        along = du.copy()
        for part, (begin, size) in zip(self.parts, self.shares(), strict=True):
            moved = dt + begin * dh, size * dh
            result += of_parts.tangent(part, along, dp, *moved, self.densities)
        return result

    def add_u(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` times the gradient in u."""
        del t, u, p
        out.axpy(weight, self.gradient[0])

    def add_p(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` times the gradient in p."""
        del t, u, p
        out.axpy(weight, self.gradient[1])

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
        du, dp = direction
        by_p = dp if self.problem.field_parameter else scatter(dp, self.problem.create_parameters())
        *dots, _ = self.curvature((du, dp, by_p), (0.0, 0.0), times=False)
        for vec, row in zip(out, dots, strict=True):
            vec.axpy(weight, row)

    def curvature(
        self,
        direction: tuple[PETSc.Vec, Any, PETSc.Vec],
        moved: tuple[float, float],
        *,
        times: bool,
    ) -> tuple[PETSc.Vec, PETSc.Vec, tuple[float, float]]:
        """Return the derivative of ``differentiated`` along a direction.

        Parameters
        ----------
        direction : (Vec [n], array or Vec [m], Vec [m])
            In the state, in the parameters as callbacks see them, and the latter as a vector.
        moved : (float, float)
            Of the step's time and size.
        times : bool
            Whether derivatives in these are wanted.
        """
        of_step, of_parts = self.steps
        by_u, by_p, slopes = self._dots(
            of_step, [self.whole], [(0.0, 1.0)], direction, moved, times=times
        )
        result = self._dots(
            of_parts, self.parts, list(self.shares()), direction, moved, times=times, across=True
        )
        result[0].axpy(-1.0, by_u)
        result[1].axpy(-1.0, by_p)
        return (*result[:2], (result[2][0] - slopes[0], result[2][1] - slopes[1]))

    def _dots(
        self,
        steps: StepMap,
        parts: Sequence[Step],
        shares: Sequence[tuple[float, float]],
        direction: tuple[PETSc.Vec, Any, PETSc.Vec],
        moved: tuple[float, float],
        *,
        times: bool,
        across: bool = False,
    ) -> tuple[PETSc.Vec, PETSc.Vec, tuple[float, float]]:
        """Return the derivative of what ``differentiated`` has of a sum over steps."""
        du, dp, by_p = direction
        pushed, (dt, dh) = by_p if self.problem.n_parameters else None, moved
        ways = [(dt + begin * dh, size * dh) for begin, size in shares]
        tangents = [du]
        for part, way in zip(parts, ways, strict=True):
            tangents.append(tangents[-1].copy())
            steps.tangent(part, tangents[-1], pushed, *way)
        (lam, mu), dots = self._rows(), self._rows()
        by_t = by_h = 0.0
        for number in reversed(range(len(parts))):
            before, after = tangents[number], tangents[number + 1]
            begin, size = shares[number]
            along = SecondOrder(before, after, dp, by_p, *dots, *ways[number])
            slopes = steps.second_order(
                parts[number], Adjoint(lam, mu), [along], self.densities, times=times
            )
            if times:
                by_t += slopes[1][0]
                by_h += begin * slopes[1][0] + size * slopes[1][1]
            for crossing in self.crossings if across else ():
                if crossing.part == number and crossing.along:
                    change = dot(crossing.by_u, before) + crossing.by_t * ways[number][0]
                    if pushed is not None:
                        change += dot(crossing.by_p, by_p)
                    change /= crossing.along
                    dots[0].axpy(change, crossing.by_u)
                    dots[1].axpy(change, crossing.by_p)
                    by_t += change * crossing.by_t
                    by_h += begin * change * crossing.by_t
        return (*dots, (by_t, by_h))

    def time_hessian(self, point: Point, out: tuple[PETSc.Vec, PETSc.Vec]) -> float:
        """Leave ``out`` zero, and return 0: the time does not move."""
        del point
        for vec in out:
            vec.zeroEntries()
        return 0.0

    def _rows(self) -> tuple[PETSc.Vec, PETSc.Vec]:
        return self.problem.create_state(), self.problem.create_parameters()


@dataclass(frozen=True, eq=False)
class MapByParts(FixedTimes):
    """The map of a step that moves with an event, with the costs of some densities by parts.

    Attributes
    ----------
    steps : StepMap
        The map itself.
    made : mapping
        What is by parts, by the densities of a cost.
    """

    steps: StepMap
    made: Mapping[tuple[Any, ...], CostByParts]

    def quadrature(self, step: Step, densities: Densities) -> float:
        """Return the step's part of the running costs."""
        value, made = self.steps.quadrature(step, densities), self.made.get(tuple(densities))
        return value if made is None else value + made.value(step.t, step.u, step.p)

    def tangent(
        self,
        step: Step,
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
        dt: float = 0.0,
        dh: float = 0.0,
        densities: Densities = (),
    ) -> float:
        """Overwrite ``du`` [n] before the step with the one after it."""
        made = self.made.get(tuple(densities))
        running = 0.0 if made is None else made.tangent(du, dp, dt, dh)
        return running + self.steps.tangent(step, du, dp, dt, dh, densities)

    def adjoint(
        self,
        step: Step,
        lam: Sequence[PETSc.Vec],
        mu: Sequence[PETSc.Vec],
        densities: Sequence[Densities],
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Carry the adjoints of several costs back over the step."""
        slopes = self.steps.adjoint(step, lam, mu, densities, times=times)
        for k, of_row in enumerate(densities):
            made = self.made.get(tuple(of_row))
            if made is not None:
                by_u, by_p, (by_t, by_h) = made.differentiated(times=times)
                lam[k].axpy(1.0, by_u)
                mu[k].axpy(1.0, by_p)
                if times:
                    slopes[k] = slopes[k][0] + by_t, slopes[k][1] + by_h
        return slopes

    def second_order(
        self,
        step: Step,
        first: Adjoint,
        directions: Sequence[SecondOrder],
        densities: Densities,
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Carry one adjoint and its derivatives along several directions back over the step."""
        slopes = self.steps.second_order(step, first, directions, densities, times=times)
        made = self.made.get(tuple(densities))
        if made is None:
            return slopes
        moved = [(0.0, 0.0)] * (1 + len(directions))
        if not first.known:
            by_u, by_p, moved[0] = made.differentiated(times=times)
            first.lam.axpy(1.0, by_u)
            first.mu.axpy(1.0, by_p)
        for k, way in enumerate(directions, start=1):
            along = way.du, way.dp, way.dp_vec
            by_u, by_p, moved[k] = made.curvature(along, (way.dt, way.dh), times=times)
            way.lam_dot.axpy(1.0, by_u)
            way.mu_dot.axpy(1.0, by_p)
        return [(t + dt, h + dh) for (t, h), (dt, dh) in zip(slopes, moved, strict=False)]
