"""The IMEX methods as a family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from petsc4py import PETSc

from daeosens.errors import UnsupportedError
from daeosens.methods.esdirk.method import tell_affine
from daeosens.methods.esdirk.stages import FEW_ITERATIONS, STAGE_DEFAULTS
from daeosens.methods.imex.stages import ImexStages
from daeosens.methods.imex.step import ImexStep
from daeosens.methods.imex.tableau import TABLEAUX, Additive
from daeosens.methods.linear_solver import linear_solver
from daeosens.methods.method import Method
from daeosens.methods.rk.step import RungeKuttaStep
from daeosens.methods.rk.tableau import HEUN
from daeosens.methods.step import ErrorMap, Kept, QuadratureError
from daeosens.petsc._kernels import ESDIRK, EsdirkSteps
from daeosens.problem.problem import Problem


@dataclass(frozen=True)
class ImexMethod(Method):
    """A method of the coefficients in ``tableau``; PETSc's TSARKIMEX is not used."""

    tsadjoint: ClassVar[bool] = False
    in_blocks: ClassVar[str] = "an IMEX method"
    defaults: ClassVar[Mapping[str, Any]] = STAGE_DEFAULTS
    adaptive_defaults: ClassVar[Mapping[str, Any]] = FEW_ITERATIONS

    @property
    def adaptive(self) -> bool:
        """Whether there are embedded weights."""
        return self.tableau.b_embedded is not None

    @property
    def tableau(self) -> Additive:
        """The coefficients."""
        return TABLEAUX[self.name]

    def takes(self, problem: Problem) -> bool:
        """Return whether the equations have two parts."""
        return problem.parts is not None

    def refusal(self, problem: Problem) -> UnsupportedError:
        """Say how a problem gets two parts."""
        form = {"rhs": "without an explicit part"}.get(problem.form, f"in {problem.form} form")
        return UnsupportedError(
            f'method = "{self.name}" for a problem {form}',
            expected="u' = f(t, u, p) + g(t, u, p), stepped implicitly for f and explicitly for g",
            remedy="imex(implicit=ODE(f, ...), explicit=ODE(g, ...)), or a method for one part: "
            '"esdirk4", "cn"',
        )

    def stepped(self, problem: Problem) -> tuple[Problem, Problem | None]:
        """Return the implicit and the explicit part."""
        assert problem.parts is not None
        implicit, explicit = (
            replace(part, breakpoints=problem.breakpoints) for part in problem.parts
        )
        return implicit, explicit

    def set_type(self, ts: PETSc.TS, problem: Problem) -> EsdirkSteps:
        """Make a TS of our own type."""
        scheme, (implicit, _) = self.tableau, self.stepped(problem)
        ts.setType(ESDIRK)
        of_stages, of_rates = scheme.embedded or (None, 0.0 * scheme.c)
        additive = scheme.a_explicit, scheme.end, of_rates
        steps = EsdirkSteps((scheme.a, scheme.c, of_stages), scheme.order, None, None, additive)
        steps.attach(ts)
        tell_affine(ts, implicit)
        return steps

    def type_of(self, ts: PETSc.TS) -> str:
        """Return the name of the method that a TS has; there are no options of this type."""
        return self.name if ts.getType() == ESDIRK else super().type_of(ts)

    def step_map(
        self, problem: Problem, options: Mapping[str, Any], kept: Kept | None = None
    ) -> ImexStep:
        """Return the map that a step is."""
        self.refuse(problem)
        make_solver = partial(linear_solver, options=options, dm=problem.dm)
        stages = ImexStages(problem, self.tableau, options, kept)
        return ImexStep(problem, self.tableau, make_solver, stages)

    def instant_map(self, problem: Problem, options: Mapping[str, Any]) -> RungeKuttaStep:
        """Return a step of size 0: to order two in its size it is that of any method."""
        del options
        return RungeKuttaStep(problem, HEUN)

    def quadrature_error(
        self, problem: Problem, options: Mapping[str, Any], kept: Kept | None = None
    ) -> QuadratureError:
        """Return what the embedded weights differ by."""
        return self.step_map(problem, options, kept).quadrature_error

    def error_map(self, problem: Problem, options: Mapping[str, Any]) -> ErrorMap:
        """Return the tangents of what the embedded weights differ by."""
        return self.step_map(problem, options).error


IMEX = tuple(ImexMethod(name, scheme.order) for name, scheme in TABLEAUX.items())
"""The methods of this family."""
