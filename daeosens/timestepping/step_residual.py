"""F(t, u, u', p) as a TS is to see it in its steps."""

from __future__ import annotations

from typing import Any

from petsc4py import PETSc

from daeosens.methods.method import Method
from daeosens.problem.implicit_matrix import SystemMatrix
from daeosens.problem.problem import Problem


class StepResidual:
    """F, or in steps that average over their ends the mean of F at both of them.

    PETSc's TSTHETA, in the endpoint form, adds (1 - theta)/theta F(t, u0, 0, p) to F at the end
    with the rate (u1 - u0)/(theta h), which is of first order where F_udot changes with t or u, and
    converges to something else where F is not linear in u'.  There the former is zero for TSTHETA,
    and each residual adds (1 - theta)/theta F(t, u0, k, p) to F at the end, with the rate
    k = (u1 - u0)/h in both.

    Parameters
    ----------
    problem : Problem
        With F.
    method : Method
        Of the steps.

    Source
    ------
    docs/mathematics.md, section 1.
    """

    def __init__(self, problem: Problem, method: Method) -> None:
        self._problem = problem
        theta = method.averaged(problem)
        self._averages = bool(theta)
        if self._averages:
            create = problem.create_state
            # theta F(end) + (1 - theta) F(start) = 0, divided by theta
            self._theta, self._rest = theta, (1.0 - theta) / theta
            self._start, self._rate, self._work = create(), create(), create()
            self._time = 0.0

    def evaluate(
        self, t: float, u: PETSc.Vec, udot: PETSc.Vec, p: Any, out: PETSc.Vec, *, begins: bool
    ) -> None:
        """Fill ``out`` [n]; ``begins`` says that TSTHETA asks for F at the start of a step."""
        problem = self._problem
        if not self._averages:
            problem.residual(t, u, udot, p, out)
        elif begins:
            problem.residual(t, u, udot, p, out)  # what is not finite there ends the run
            # TSTHETA adds its own multiple of this: of zero nothing comes
            out.zeroEntries()
            u.copy(self._start)
            self._time = t
        else:
            self._see(udot)
            problem.residual(t, u, self._rate, p, out)
            problem.residual(self._time, self._start, self._rate, p, self._work)
            out.axpy(self._rest, self._work)

    def fill(
        self,
        system: SystemMatrix,
        t: float,
        u: PETSc.Vec,
        udot: PETSc.Vec,
        p: Any,
        shift: float,
    ) -> None:
        """Fill the matrix of its derivative in u, where u' has the derivative ``shift``."""
        if not self._averages:
            system.fill(t, u, udot, p, shift)
            return
        self._see(udot)
        # TSTHETA's rate is (u1 - u0)/(theta h); that of the step is theta times it, and so its
        # derivative
        shift *= self._theta
        at_start = self._time, self._start, self._rate, p
        system.fill(t, u, self._rate, p, shift, (self._rest * shift, at_start))

    def _see(self, udot: PETSc.Vec) -> None:
        udot.copy(self._rate)
        self._rate.scale(self._theta)
