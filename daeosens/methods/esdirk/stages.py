"""The stages of diagonally implicit steps: those that the run kept, or found again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.methods.dae.structure import null_projection
from daeosens.methods.esdirk.callback_steps import callback_steps
from daeosens.methods.esdirk.tableau import Esdirk
from daeosens.methods.linear_solver import (
    MULTILEVEL,
    PREFIXES,
    block_solver,
    coarsen_points,
    linear_defaults,
)
from daeosens.methods.method import NEWTON_DEFAULTS
from daeosens.methods.step import Kept, Step
from daeosens.petsc._kernels import DenseSteps, take_point
from daeosens.petsc.options import scoped_options
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.implicit_matrix import SystemMatrix
from daeosens.problem.problem import Problem

STAGE_DEFAULTS: Mapping[str, Any] = {
    **NEWTON_DEFAULTS,
    "snes_linesearch_type": "basic",
    "snes_rtol": 1e-12,
}
"""Whole Newton steps for the stages: searching for a smaller residual creeps along stiff modes.

With a Jacobian that is kept the last residual is no square of the one before it.
"""

FEW_ITERATIONS: Mapping[str, Any] = {"snes_max_it": 10}
"""A trial step fails too where the Newton iterations of a stage are more."""

SLOW, PATIENCE = 0.1, 5
"""A step keeps its first Jacobian while residuals fall by this factor in each iteration of a stage,
and for so many of them, as the run does.

Hairer and Wanner, Solving Ordinary Differential Equations II, 1996, section IV.8.
"""

ROUNDING = 1e-8
"""Changes below this part of the state that do not shrink any more are rounding, as in the run:
those of an exact Jacobian would be squares of the ones before.  Fine grids have 1e-10 of it."""


class StageSolver:
    """The states at the stages of steps of M u' = f, M constant, and of u' = f + g.

    Stage i solves M U_i = M u + h sum_j a_ij f_j + h sum_j e_ij g_j.  What f_1 has in algebraic
    equations, sums of rows that M has not, is left out: they ask for it to be zero at each later
    stage alone.

    Parameters
    ----------
    problem : Problem
        In the form u' = f or M u' = f.
    scheme : Esdirk
        Coefficients.
    options : mapping
        PETSc's, of Newton's method and its linear solver.
    kept : mapping, optional
        Stages by the number of the step.
    explicit : Problem, optional
        u' = g(t, u, p), stepped explicitly beside it.
    """

    def __init__(
        self,
        problem: Problem,
        scheme: Esdirk,
        options: Mapping[str, Any],
        kept: Kept | None = None,
        explicit: Problem | None = None,
    ) -> None:
        self._problem, self._explicit = problem, explicit
        self._scheme = scheme
        self._options = options
        self._kept: Kept = {} if kept is None else kept
        self._newton = StageNewton(problem, options)
        self._own: list[PETSc.Vec] = []
        self._sides: list[PETSc.Vec] = []
        self._rates: list[PETSc.Vec] = []
        self._steps: DenseSteps | None = None
        if not options and explicit is None:
            # those that the run has taken them by
            self._steps = callback_steps(problem, scheme, np.zeros(problem.n_parameters))

    def find(self, step: Step) -> list[PETSc.Vec]:
        """Return the states at the stages of a step.

        The first one is that before the step, the last one of ESDIRK steps that after it.

        Raises
        ------
        SolveError
            Newton's method fails, although it did not in the run.
        """
        t, h, u, u_next, p, number = step
        kept, scheme, problem = self._kept.get(number), self._scheme, self._problem
        # the last stage is the end of the step, unless rates of g come to it
        last = [u_next] if scheme.end is None else []
        count = len(scheme.c) - len(last)
        if kept is not None:
            return [u, *kept[1:count], *last]
        if not self._own:
            self._own = [problem.create_state() for _ in range(1, count)]
        if self._steps is not None:
            stages = self.of_steps(np.array([t]), np.array([h]), read(u)[None], p)
            if stages is not None:
                for state, stage in zip(self._own, stages[0, 1:], strict=False):
                    write(state, stage)
                return [u, *self._own, *last]
        if not self._sides:
            self._sides = [problem.create_state() for _ in self._own]
            self._rates = [problem.create_state() for _ in self._own if self._explicit is not None]
        states, gamma, equation = [u], scheme.gamma, self._newton.equation
        equation.current = False
        for i, state in enumerate(self._own, start=1):
            before, side = states[-1], self._sides[i - 1]
            time = problem.inside(t + float(scheme.c[i - 1]) * h, t, h)
            # f_1 is evaluated; the other sides follow from the equations of their stages
            if i == 1:
                problem.rhs(time, before, p, side)
                self.mask(side)
            else:
                equation.fill_side(before, side)
            if self._explicit is not None and scheme.reads[i - 1]:
                self._explicit.rhs(time, before, p, self._rates[i - 1])
            # the stage before is the first guess, as in the run: the same iterations, the same
            # digits
            before.copy(state)
            time = problem.inside(t + float(scheme.c[i]) * h, t, h)
            equation.pose(time, 1.0 / (gamma * h), u, p)
            for a, rates in zip(scheme.coefficients, (self._sides, self._rates), strict=False):
                equation.known_rates.maxpy((a[i, :i] / gamma).tolist(), rates[:i])
            self._newton.solve(state)
            states.append(state)
        return [*states, *last]

    def owns(self, state: PETSc.Vec) -> bool:
        """Whether a stage is overwritten by that of the next step."""
        return any(state is own for own in self._own)

    def of_steps(self, times: Array, sizes: Array, starts: Array, p: Any) -> Array | None:
        """Return the stages [S, s, n] of steps as the run has found them; None if it did otherwise.

        Parameters
        ----------
        times, sizes : array [S]
            Of the steps.
        starts : array [S, n]
            States before them.
        p : array [m]
            Parameters.
        """
        if self._steps is None:
            return None
        stages = np.empty((len(times), len(self._scheme.c), starts.shape[1]))
        stages[:, 0] = starts
        self._steps.hold(p)
        solved = self._steps.fill_stages(times, sizes, stages)
        python = self._steps.python
        exception = None if python is None else python.take_exception()
        if exception is not None:
            raise exception
        return stages if solved else None

    def mask(self, side: PETSc.Vec, *, transpose: bool = False) -> None:
        """Leave out what the side of equations [n], or an adjoint, has in algebraic ones."""
        if self._null is not None:
            null, work = self._null
            (null.multTranspose if transpose else null.mult)(side, work)
            side.axpy(-1.0, work)

    @cached_property
    def _null(self) -> tuple[PETSc.Mat, PETSc.Vec] | None:
        null = null_projection(self._problem, partial(block_solver, options=self._options))
        return None if null is None else (null, self._problem.create_state())


class StageNewton:
    """Newton's method for one stage after the other, as TS has found them.

    Parameters
    ----------
    problem : Problem
        In the form u' = f or M u' = f.
    options : mapping
        PETSc's, of Newton's method and its linear solver.

    Attributes
    ----------
    equation : StageEquation
        Of the stage that is solved for.
    """

    def __init__(self, problem: Problem, options: Mapping[str, Any]) -> None:
        self._problem = problem
        self._options = options
        keeps = not any(key.startswith("snes_") for key in options)  # else as the user says
        self.equation = StageEquation(problem, keeps=keeps)
        self._snes: PETSc.SNES | None = None

    def solve(self, state: PETSc.Vec) -> None:
        """Replace the guess ``state`` [n] by the solution, as TS does.

        Raises
        ------
        SolveError
            Newton's method fails, although it did not in the run.
        """
        if self._snes is None:
            self._snes = self._make_solver(state)
        snes = self._snes
        snes.solve(None, state)
        reason: Any = snes.getConvergedReason()
        if reason < 0:
            raise SolveError(
                f"the stage at t = {self.equation.time:.9g} was not found again: "
                f"reason {reason} after {snes.getIterationNumber()} Newton iterations",
                expected="convergence, as in the run",
                remedy='solve(..., checkpoint="stages"), which keeps all stages',
            )
        if snes.getIterationNumber() > 1 and not self.equation.fresh:
            # the last change is no square of the one before: once more, as the run does
            residual, work = snes.getFunction()[0], state.duplicate()
            solver = snes.getKSP()
            solver.solve(residual, work)
            converged: Any = solver.getConvergedReason()
            if converged > 0:
                state.axpy(-1.0, work)
            work.destroy()

    def _make_solver(self, state: PETSc.Vec) -> PETSc.SNES:
        equation = self.equation
        matrix = equation.make_matrix(state)
        snes = PETSc.SNES().create(comm=self._problem.comm)
        snes.setFunction(equation.residual, self._problem.create_state())
        snes.setJacobian(equation.jacobian, matrix, matrix)
        prefixes = ("snes_", *PREFIXES)
        chosen = {key: value for key, value in self._options.items() if key.startswith(prefixes)}
        defaults = {
            **STAGE_DEFAULTS,
            "snes_rtol": 0.0,
            **linear_defaults(matrix, chosen, self._problem.dm),
        }
        with scoped_options(defaults=defaults, code=chosen):
            snes.setFromOptions()
            solver = snes.getKSP()
            if solver.getPC().getType() in MULTILEVEL:  # solvers of levels read options in set-up
                equation.jacobian(snes, state, matrix, matrix)
                solver.setOperators(matrix)
                coarsen_points(solver, self._problem.dm)
                solver.setUp()
        snes.setConvergenceTest(_UntilRounding(equation))
        return snes


class _UntilRounding:
    """Newton's method ends where rounding is all that is left, or where the user said.

    What is linearised about a stage errs as the stage does.  The residual cannot tell when to end:
    in stiff systems its rounding is large, and some have a large one in their first guess.
    """

    def __init__(self, equation: StageEquation) -> None:
        self._equation = equation
        self._first = self._last = 0.0

    def __call__(self, snes: PETSc.SNES, iteration: int, norms: tuple[float, float, float]) -> Any:
        """Return why the iteration ends, a ``ConvergedReason``; None where it does not."""
        size, change, residual = norms
        reasons: Any = PETSc.SNES.ConvergedReason
        if not math.isfinite(residual):
            return reasons.DIVERGED_FNORM_NAN
        if iteration == 0:
            self._first = residual
        rtol, atol, stol, _ = snes.getTolerances()
        if residual <= max(atol, rtol * self._first):
            return reasons.CONVERGED_FNORM_RELATIVE
        if iteration == 0:
            return None
        # Changes shrink by this factor; as a geometric series the ones to come add up to change *
        # rate / (1 - rate) (Hairer and Wanner II, section IV.8).
        rate = change / self._last if iteration > 1 else 1.0
        if iteration == 1 and self._equation.affine and self._first > 0.0:
            rate = residual / self._first  # all that is left is what the linear solver has left
        self._last = change
        following = change * rate / (1.0 - rate) if rate < 1.0 else math.inf
        # where a Jacobian was kept, changes may be slow for another reason than rounding
        stalls = rate >= 0.5 and change <= ROUNDING * size and self._equation.fresh
        if stalls or min(change, following) <= stol * size:
            return reasons.CONVERGED_SNORM_RELATIVE
        return None


class StageEquation:
    """s M (U - u) - f(U) - known rates = 0.

    It does not know its solver, which would hold itself.
    """

    def __init__(self, problem: Problem, *, keeps: bool = True) -> None:
        self._problem, self._keeps = problem, keeps
        self.known_rates = problem.create_state()
        self._udot, self._zero = problem.create_state(), problem.create_state()
        self.time, self._shift, self._u, self.p = 0.0, 1.0, self._zero, None
        self._system: SystemMatrix | None = None
        self._norm, self.current, self.fresh = 0.0, False, True
        self.affine = problem.residual_u.constant

    def pose(self, time: float, shift: float, u: PETSc.Vec, p: Any) -> None:
        """Take another stage, with no known rates."""
        self.time, self._shift, self._u, self.p = time, shift, u, p
        self.known_rates.zeroEntries()

    def make_matrix(self, state: PETSc.Vec) -> PETSc.Mat:
        """Return the matrix that ``jacobian`` fills."""
        problem, point = self._problem, (self.time, state, self._zero, self.p)
        self._system = SystemMatrix(problem.residual_u, problem.residual_udot, *point)
        return self._system.matrix

    def fill_side(self, state: PETSc.Vec, out: PETSc.Vec) -> None:
        """Fill ``out`` [n] with f at the solution, s M (U - u) - known rates.

        It damps what is left of Newton's iteration, which f would amplify.
        """
        self._udot.waxpy(-1.0, self._u, state)
        out.waxpy(-1.0, self.known_rates, self._zero)
        self._problem.add_udot_product(
            self._shift, self.time, state, self._zero, self.p, self._udot, out
        )

    def residual(self, _snes: PETSc.SNES, state: PETSc.Vec, out: PETSc.Vec) -> None:
        """Fill ``out`` [n]."""
        self._udot.waxpy(-1.0, self._u, state)
        self._udot.scale(self._shift)
        self._problem.residual(self.time, state, self._udot, self.p, out)
        out.axpy(-1.0, self.known_rates)

    def jacobian(
        self, snes: PETSc.SNES, state: PETSc.Vec, matrix: PETSc.Mat, _preconditioner: PETSc.Mat
    ) -> None:
        """Fill s M - f_u; keep that of the step's first stage while residuals fall quickly."""
        assert self._system is not None
        before, self._norm = self._norm, float(snes.getFunctionNorm())
        iteration = snes.getIterationNumber()
        slow = iteration >= PATIENCE or (iteration > 0 and not self._norm <= SLOW * before)
        # products that PETSc differences belong to the point of the iteration
        differenced = matrix != self._system.matrix
        kept = self._keeps and self.current and not slow and not differenced
        # equations that are affine in u have one matrix at all states
        self.fresh = not kept or self.affine
        if kept:
            return
        self.current = True
        self._system.fill(self.time, state, self._zero, self.p, self._shift)
        if matrix != self._system.matrix:
            take_point(matrix)
