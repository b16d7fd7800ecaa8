"""The explicit Runge-Kutta methods as a family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from petsc4py import PETSc

from daeosens.errors import UnsupportedError
from daeosens.methods.error_estimates import FEW_REJECTED
from daeosens.methods.method import WITHOUT_MASS, Inside, Method
from daeosens.methods.rk.block import BlockRungeKutta
from daeosens.methods.rk.step import RungeKuttaStep
from daeosens.methods.rk.tableau import Tableau, tableau
from daeosens.methods.step import ErrorMap, Kept, QuadratureError, Step
from daeosens.petsc._kernels import end_at_last_stage
from daeosens.petsc.vectors import Array
from daeosens.problem.problem import Problem


@dataclass(frozen=True)
class ExplicitMethod(Method):
    """A type of PETSc's TSRK.

    Attributes
    ----------
    kind : str
        Its name there.
    estimated : bool
        Has an embedded error estimate.
    """

    kind: str
    estimated: bool

    explicit: ClassVar[bool] = True
    adaptive_defaults: ClassVar[Mapping[str, Any]] = FEW_REJECTED

    @property
    def adaptive(self) -> bool:
        """Whether there are embedded weights."""
        return self.estimated

    @property
    def tableau(self) -> Tableau:
        """PETSc's coefficients."""
        return tableau(self.kind)

    @property
    def chain(self) -> tuple[Array, Array, Array] | None:
        """What passes over vectors read, if each stage reads the rate of the one before only."""
        # a last stage with no weight is that of the next step: nothing of it comes back
        of_step = self.tableau.of_step
        return of_step.of_passes if of_step.chained else None

    def takes(self, problem: Problem) -> bool:
        """Return whether the equations are u' = f(t, u, p)."""
        return problem.form == "rhs"

    def refusal(self, problem: Problem) -> UnsupportedError:
        """Name the methods that take a mass, or F."""
        able = '"cn", "beuler", "midpoint" or "theta:<value>"'
        if problem.form == "mass":
            able = f'"esdirk4", {able}' if problem.constant_mass else f"{WITHOUT_MASS}; or {able}"
        return UnsupportedError(
            f'method = "{self.name}" for a problem in {problem.form} form',
            expected="u' = f(t, u, p) without a mass matrix",
            remedy=able,
        )

    def set_type(self, ts: PETSc.TS, problem: Problem) -> None:
        """Make a TS of the type "rk"."""
        del problem
        ts.setType(PETSc.TS.Type.RK)
        ts.setRKType(self.kind)
        end_at_last_stage(ts)

    def step_map(
        self, problem: Problem, options: Mapping[str, Any], kept: Kept | None = None
    ) -> RungeKuttaStep:
        """Return the map that a step is."""
        del options
        self.refuse(problem)
        return RungeKuttaStep(problem, self.tableau, kept)

    def instant_map(self, problem: Problem, options: Mapping[str, Any]) -> RungeKuttaStep:
        """Return the same: a step of size 0 is one."""
        return self.step_map(problem, options)

    def quadrature_error(
        self, problem: Problem, options: Mapping[str, Any], kept: Kept | None = None
    ) -> QuadratureError:
        """Return what the embedded weights differ by."""
        del options
        return RungeKuttaStep(problem, self.tableau.of_error, kept).quadrature

    def error_map(self, problem: Problem, options: Mapping[str, Any]) -> ErrorMap:
        """Return the tangents of what the embedded weights differ by."""
        del options
        moved = RungeKuttaStep(problem, self.tableau.of_error)

        def error(step: Step, du: PETSc.Vec, dp: PETSc.Vec | None) -> None:
            # The tableau b - b_embedded takes u to u + the error; what it starts from goes off
            # again.
            before = du.copy()
            moved.tangent(step, du, dp)
            du.axpy(-1.0, before)
            before.destroy()

        return error

    def block_steps(
        self, problem: Problem, inside: Inside | None, mass: Array | None
    ) -> BlockRungeKutta:
        """Return the steps linearised in blocks."""
        del mass
        assert problem.batch is not None
        return BlockRungeKutta(problem.batch, self.tableau.of_step, inside, problem.breakpoints)


EXPLICIT = tuple(
    ExplicitMethod(f"rk{kind}", order, kind, estimated)
    for kind, order, estimated in (
        ("1fe", 1, False),
        ("2a", 2, True),
        ("2b", 2, False),
        ("3", 3, False),
        ("3bs", 3, True),
        ("4", 4, False),
        ("5f", 5, True),
        ("5dp", 5, True),
        ("5bs", 5, True),
        ("5ts", 5, True),
        ("6vr", 6, True),
        ("7vr", 7, True),
        ("8vr", 8, True),
    )
)
"""The methods of this family."""
