"""The IMEX methods as a family."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from daeosens.errors import UnsupportedError
from daeosens.methods.esdirk.method import EsdirkMethod
from daeosens.methods.esdirk.tableau import Esdirk
from daeosens.methods.imex.tableau import TABLEAUX
from daeosens.problem.problem import Problem


@dataclass(frozen=True)
class ImexMethod(EsdirkMethod):
    """A method of the coefficients in ``tableau``; PETSc's TSARKIMEX is not used."""

    in_blocks: ClassVar[str] = "an IMEX method"

    @property
    def adaptive(self) -> bool:
        """Whether there are embedded weights."""
        return self.tableau.b_embedded is not None

    @property
    def tableau(self) -> Esdirk:
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


IMEX = tuple(ImexMethod(name, scheme.order) for name, scheme in TABLEAUX.items())
"""The methods of this family."""
