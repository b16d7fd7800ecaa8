"""The stages of IMEX steps: those that the run kept, or found again.

U_i = u_n + h sum_{j<=i} a_ij f_j + h sum_{j<i} e_ij g_j,  u_{n+1} = U_s + h sum_j d_j g_j
(docs/mathematics.md, section 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from petsc4py import PETSc

from daeosens.methods.esdirk.stages import StageNewton
from daeosens.methods.imex.tableau import Additive
from daeosens.methods.step import Kept, Step
from daeosens.problem.problem import Problem


class ImexStages:
    """The states at the stages of steps of u' = f + g.

    Parameters
    ----------
    problem : Problem
        With two parts.
    scheme : Additive
        Coefficients.
    options : mapping
        PETSc's, of Newton's method and its linear solver.
    kept : mapping, optional
        Stages by the number of the step.
    """

    def __init__(
        self, problem: Problem, scheme: Additive, options: Mapping[str, Any], kept: Kept | None
    ) -> None:
        assert problem.parts is not None
        self._problem = problem
        self._implicit, self._explicit = problem.parts
        self._scheme = scheme
        self._kept: Kept = {} if kept is None else kept
        self._newton = StageNewton(self._implicit, options)
        self._own: list[PETSc.Vec] = []
        self._sides: list[PETSc.Vec] = []
        self._rates: list[PETSc.Vec] = []

    def find(self, step: Step) -> list[PETSc.Vec]:
        """Return the states at the stages of a step, the first one that before it.

        Raises
        ------
        SolveError
            Newton's method fails, although it did not in the run.
        """
        t, h, u, _, p, number = step
        kept = self._kept.get(number)
        if kept is not None:
            return [u, *kept[1:]]
        scheme, problem = self._scheme, self._problem
        if not self._own:
            for vectors in (self._own, self._sides, self._rates):
                vectors += [problem.create_state() for _ in scheme.c[1:]]
        states, gamma, equation = [u], scheme.gamma, self._newton.equation
        equation.current = False
        for i, state in enumerate(self._own, start=1):
            before, time = states[-1], problem.inside(t + float(scheme.c[i - 1]) * h, t, h)
            # f_1 is evaluated; the others follow from the equations of their stages
            if i == 1:
                self._implicit.rhs(time, before, p, self._sides[0])
            else:
                equation.fill_side(before, self._sides[i - 1])
            if scheme.reads[i - 1]:
                self._explicit.rhs(time, before, p, self._rates[i - 1])
            # the stage before is the first guess, as in the run: the same iterations, the same
            # digits
            before.copy(state)
            time = problem.inside(t + float(scheme.c[i]) * h, t, h)
            equation.pose(time, 1.0 / (gamma * h), u, p)
            equation.known_rates.maxpy((scheme.a[i, :i] / gamma).tolist(), self._sides[:i])
            of_explicit = (scheme.a_explicit[i, :i] / gamma).tolist()
            equation.known_rates.maxpy(of_explicit, self._rates[:i])
            self._newton.solve(state)
            states.append(state)
        return states
