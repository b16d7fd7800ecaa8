"""Stages of explicit Runge-Kutta steps: kept by the run or computed again, and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from petsc4py import PETSc

from daeosens.methods.rk.tableau import Tableau
from daeosens.methods.step import Kept, Step
from daeosens.petsc._kernels import vec_to_fill
from daeosens.problem.problem import Problem


class ExplicitStages:
    """The states and rates at the stages of one step after the other.

    Parameters
    ----------
    problem : Problem
        u' = f(t, u, p).
    tableau : Tableau
        Coefficients of the steps.
    kept : mapping
        Stage states that the run has kept.
    passes : bool
        Whether stages may be found in passes over the points of a grid, as the run does: of a
        chained tableau, by compiled functions of the points.

    Attributes
    ----------
    states : sequence of Vec [n]
        Of the step that was asked for last.
    """

    def __init__(
        self, problem: Problem, tableau: Tableau, kept: Kept, *, passes: bool = False
    ) -> None:
        self._problem, self._in_passes = problem, passes
        self._tableau = tableau
        self._kept = kept
        self.states: Sequence[PETSc.Vec] = ()

    @cached_property
    def _own(self) -> list[PETSc.Vec]:
        return [self._problem.create_state() for _ in self._tableau.b]

    @cached_property
    def _passed(self) -> list[PETSc.Vec]:
        return [vec_to_fill(self._problem.state) for _ in self._tableau.b[1:]]

    @cached_property
    def rates(self) -> list[PETSc.Vec]:
        """Rates [s] of [n]."""
        return [self._problem.create_state() for _ in self._tableau.b]

    @cached_property
    def _rows(self) -> list[tuple[list[float], list[PETSc.Vec]]]:
        """What is added up for each stage: weights, and the rates that they belong to."""
        rows = self._tableau.numbers[0]
        return [(weights, [self.rates[j] for j in numbers]) for numbers, weights in rows]

    def time(self, i: int, t: float, h: float) -> float:
        """Return the time of stage number i, as callbacks see it."""
        return self._problem.inside(t + self._tableau.numbers[2][i] * h, t, h)

    def recompute(self, step: Step, *, rates: bool = False) -> None:
        """Make the stages available: kept ones if there are any, else computed again.

        Rates of kept stages are evaluated only where they are wanted.
        """
        t, h, u, _, p, number = step
        tableau = self._tableau
        kept = self._kept.get(number)
        if kept is not None:
            # The run keeps all stages; a last one that only serves the next step has no weight
            # here.
            self.states = kept[: len(tableau.b)]
            if rates:
                for i, (stage, rate) in enumerate(zip(self.states, self.rates, strict=True)):
                    self._problem.rhs(self.time(i, t, h), stage, p, rate)
            return
        if self._in_passes and not rates:
            self._pass(t, h, u, p)
        else:
            self.advance(t, h, u, p)

    def _pass(self, t: float, h: float, u: PETSc.Vec, p: Any) -> None:
        """Compute the stages, each in one pass that evaluates f and adds it up; no rate is kept."""
        stencil, read = self._problem.stencil, self._problem.read_by_points(p)
        assert stencil is not None
        below, _, c = self._tableau.of_passes
        stages = [u]
        for i, stage in enumerate(self._passed, start=1):
            time = t + float(c[i - 1]) * h
            stencil.apply("rhs", time, read, (stages[-1],), stage, h * float(below[i]), u)
            stages.append(stage)
        self.states = stages

    def advance(self, t: float, h: float, u: PETSc.Vec, p: Any, first: int = 0) -> None:
        """Compute the stages and their rates, from number ``first`` on."""
        self.states = stages = self._own
        rates = self.rates
        for i, (weights, earlier) in enumerate(self._rows[first:], first):
            stage = stages[i]
            if len(weights) == 1:
                # one pass over the vectors instead of two: most stages of RK4 and of its like
                stage.waxpy(h * weights[0], earlier[0], u)
            else:
                u.copy(stage)
                if i:
                    stage.maxpy([h * weight for weight in weights], earlier)
            self._problem.rhs(self.time(i, t, h), stage, p, rates[i])


def weigh(
    tableau: Tableau, i: int, lam: PETSc.Vec, adjoints: list[PETSc.Vec], out: PETSc.Vec
) -> None:
    """Fill ``out`` with w_i = b_i lam + sum_{j>i} a_ji l_j."""
    # no division by b_i, which may be zero: b_i and a_ji are factors here
    lam.copy(out)
    out.scale(tableau.b[i])
    if i + 1 < len(tableau.b):
        # Column i of a: the rate k_i has gone into the stages j > i.
        out.maxpy(tableau.a[i + 1 :, i].tolist(), adjoints[i + 1 :])


def pull_back(
    factor: float,
    slopes: tuple[PETSc.Mat, PETSc.Mat | None],
    weight: PETSc.Vec,
    adjoint: PETSc.Vec,
    mu: PETSc.Vec,
    work: PETSc.Vec,
) -> None:
    """Fill ``adjoint`` [n] with factor f_u^T w, and add factor f_p^T w to ``mu`` [m].

    ``work`` is one more vector [m].
    """
    matrix_u, matrix_p = slopes
    matrix_u.multTranspose(weight, adjoint)
    adjoint.scale(factor)
    if matrix_p is not None:
        matrix_p.multTranspose(weight, work)
        mu.axpy(factor, work)
