"""The diagonally implicit Runge-Kutta methods as a family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from petsc4py import PETSc

from daeosens.errors import UnsupportedError
from daeosens.methods.block_steps import Block
from daeosens.methods.dae.structure import null_projection
from daeosens.methods.esdirk.block import BlockDirk
from daeosens.methods.esdirk.stages import FEW_ITERATIONS, STAGE_DEFAULTS, StageSolver
from daeosens.methods.esdirk.step import DirkStep
from daeosens.methods.esdirk.tableau import TABLEAUX, Esdirk
from daeosens.methods.linear_solver import block_solver, linear_solver
from daeosens.methods.method import WITHOUT_MASS, Method
from daeosens.methods.rk.block import Inside
from daeosens.methods.rk.step import RungeKuttaStep
from daeosens.methods.rk.tableau import HEUN
from daeosens.methods.step import ErrorMap, Kept, QuadratureError, Step, StepMap
from daeosens.methods.zero_step import InstantStep, StepCurvature
from daeosens.petsc._kernels import ESDIRK, EsdirkSteps
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.problem import Problem


@dataclass(frozen=True)
class EsdirkMethod(Method):
    """A method of the coefficients in ``tableau``; PETSc's TSDIRK is not used."""

    stagewise: ClassVar[bool] = True
    tsadjoint: ClassVar[bool] = False
    defaults: ClassVar[Mapping[str, Any]] = STAGE_DEFAULTS
    adaptive_defaults: ClassVar[Mapping[str, Any]] = FEW_ITERATIONS

    def share_of_tolerance(self, problem: Problem) -> float:
        """Return 1 with algebraic equations: there estimates are of lower order, steps short."""
        if null_projection(problem, partial(block_solver, options={})) is not None:
            return 1.0
        return super().share_of_tolerance(problem)

    @property
    def tableau(self) -> Esdirk:
        """The coefficients."""
        return TABLEAUX[self.name]

    def takes(self, problem: Problem) -> bool:
        """Return whether the equations are M u' = f(t, u, p) with a constant M."""
        return problem.form != "residual" and problem.constant_mass

    def refusal(self, problem: Problem) -> UnsupportedError:
        """Name the form that these steps take, and the methods that take M(p) or F."""
        form, able = "residual form", '"cn", "beuler", "midpoint" or "theta:<value>"'
        remedy = (
            f"{able}; a mass C(u) becomes constant with further unknowns q, 0 = q - Q(u), such "
        )
        remedy += "as charges"
        if problem.form == "mass":
            form, remedy = "the form M(p) u' = f", f"{WITHOUT_MASS}; or {able}"
        return UnsupportedError(
            f'method = "{self.name}" for a problem in {form}',
            expected="u' = f(t, u, p), or M u' = f(t, u, p) with a constant M",
            remedy=remedy,
        )

    def no_blocks(self, problem: Problem) -> str:
        """Stages with a mass have no blocks: rates are of its rows, and may be algebraic."""
        return self.in_blocks or ("a mass by an ESDIRK method" if problem.form != "rhs" else "")

    def set_type(self, ts: PETSc.TS, problem: Problem) -> EsdirkSteps:
        """Make a TS of our own type.

        Raises
        ------
        UnsupportedError
            A singular mass of which it cannot be told what equations are algebraic.
        """
        scheme, mass = self.tableau, None
        problem, _ = self.stepped(problem)
        ts.setType(ESDIRK)
        if problem.residual_udot is not None:
            mass = problem.residual_udot.create(0.0, problem.state, problem.state, None)
        # rows of a singular mass, M u' = f, that hold as algebraic equations at each stage
        null = null_projection(problem, partial(block_solver, options={}))
        tableau = scheme.a, scheme.c, scheme.embedded
        steps = EsdirkSteps(tableau, scheme.order, mass, null, scheme.additive)
        steps.attach(ts)
        if problem.residual_u.constant:  # f has one Jacobian at all times and states
            ts.compose("daeosens affine", problem.create_state())
        return steps

    def type_of(self, ts: PETSc.TS) -> str:
        """Return the name of the method that a TS has; there are no options of this type."""
        return self.name if ts.getType() == ESDIRK else super().type_of(ts)

    def step_map(
        self, problem: Problem, options: Mapping[str, Any], kept: Kept | None = None
    ) -> DirkStep:
        """Return the map that a step is."""
        self.refuse(problem)
        implicit, explicit = self.stepped(problem)
        make_solver = partial(linear_solver, options=options, dm=problem.dm)
        stages = StageSolver(implicit, self.tableau, options, kept, explicit)
        return DirkStep(implicit, self.tableau, make_solver, stages, explicit)

    def block_steps(self, problem: Problem, inside: Inside | None, mass: Array | None) -> BlockDirk:
        """Return the steps of u' = f linearised in blocks."""
        del mass
        solver = StageSolver(problem, self.tableau, {})

        def find(block: Block) -> Array:
            stages = solver.of_steps(block.times, block.sizes, block.states[:-1], block.p)
            if stages is not None:
                return stages
            return np.array(
                [self._stages_again(problem, solver, block, k) for k in range(len(block.sizes))]
            )

        return BlockDirk(self.tableau, inside, find)

    @staticmethod
    def _stages_again(problem: Problem, solver: StageSolver, block: Block, k: int) -> Array:
        """Return the stages [s, n] of a step, by Newton's method on vectors."""
        ends = problem.create_state(), problem.create_state()
        for vec, state in zip(ends, block.states[k : k + 2], strict=True):
            write(vec, state)
        step = Step(float(block.times[k]), float(block.sizes[k]), *ends, block.p, block.first + k)
        return np.array([read(state) for state in solver.find(step)])

    def instant_map(self, problem: Problem, options: Mapping[str, Any]) -> StepMap:
        """Return a step of size 0: of order three at least, it is the solution's to order two."""
        # For h -> 0 all methods of order two agree in first and second derivatives in h.
        if problem.form == "rhs":
            return RungeKuttaStep(problem, HEUN)
        return InstantStep(problem, StepCurvature(1.0, 0.0), 0.5, options)

    def quadrature_error(
        self, problem: Problem, options: Mapping[str, Any], kept: Kept | None = None
    ) -> QuadratureError:
        """Return what the embedded weights differ by."""
        return self.step_map(problem, options, kept).quadrature_error

    def error_map(self, problem: Problem, options: Mapping[str, Any]) -> ErrorMap:
        """Return the tangents of what the embedded weights differ by."""
        return self.step_map(problem, options).error


DIAGONALLY_IMPLICIT = tuple(EsdirkMethod(name, scheme.order) for name, scheme in TABLEAUX.items())
"""The methods of this family."""
