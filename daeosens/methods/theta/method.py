"""The theta methods as a family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Densities
from daeosens.errors import InputError, UnsupportedError
from daeosens.methods.grid_steps import ThetaGridStepAdjoint
from daeosens.methods.linear_solver import linear_solver
from daeosens.methods.method import NEWTON_DEFAULTS, Inside, Method
from daeosens.methods.rk.step import RungeKuttaStep
from daeosens.methods.rk.tableau import Tableau
from daeosens.methods.step import Kept, QuadratureError, Step, StepMap
from daeosens.methods.theta.block import BlockTheta
from daeosens.methods.theta.step import ThetaStep
from daeosens.methods.theta.step_equation import takes_both_rates
from daeosens.methods.zero_step import InstantStep, StepCurvature
from daeosens.petsc.vectors import Array
from daeosens.problem.problem import Problem


@dataclass(frozen=True)
class ThetaMethod(Method):
    """PETSc's TSTHETA.

    Attributes
    ----------
    theta : float
        Weight of the end of the step, in (0, 1].
    endpoint : bool
        The rate is averaged over both ends (Crank-Nicolson), not taken inside.
    """

    theta: float
    endpoint: bool

    defaults: ClassVar[Mapping[str, Any]] = NEWTON_DEFAULTS

    @property
    def carried(self) -> float:
        """(1 - theta)/theta."""
        return (1.0 - self.theta) / self.theta

    @property
    def holds_at_end(self) -> bool:
        """The one-stage form has its equations inside the step."""
        return self.endpoint or self.theta == 1.0

    def takes(self, problem: Problem) -> bool:
        """Return True: all forms."""
        del problem
        return True

    def refusal(self, problem: Problem) -> UnsupportedError:
        """Never asked: all forms are taken."""
        raise NotImplementedError(problem.form)

    def averaged(self, problem: Problem) -> float:
        """Return theta where the mean over both ends takes the rate of the step in both."""
        both = takes_both_rates(problem, self.theta, endpoint=self.endpoint)
        return self.theta if both else 0.0

    def set_type(self, ts: PETSc.TS, problem: Problem) -> None:
        """Make a TS of the type "theta", or of that of its own name."""
        del problem
        ts.setType(PETSc.TS.Type.THETA)
        ts.setTheta(self.theta)
        ts.setThetaEndpoint(self.endpoint)
        # These two types of PETSc are theta methods with fixed coefficients. The type is set
        # last, so that a TS says the name that the user chose.
        if self.name in ("cn", "beuler"):
            ts.setType(self.name)

    def type_of(self, ts: PETSc.TS) -> str:
        """Return the name of the method that a TS has, perhaps by options."""
        # Options may have made another TS of it, or the same type with another theta.
        if ts.getType() != PETSc.TS.Type.THETA:
            return super().type_of(ts)
        same = (ts.getTheta(), ts.getThetaEndpoint()) == (self.theta, self.endpoint)
        return self.name if same else super().type_of(ts)

    def step_map(
        self, problem: Problem, options: Mapping[str, Any], kept: Kept | None = None
    ) -> ThetaStep:
        """Return the map that a step is."""
        del kept
        make_solver = partial(linear_solver, options=options, dm=problem.dm)
        return ThetaStep(problem, self.theta, make_solver, endpoint=self.endpoint)

    def instant_map(self, problem: Problem, options: Mapping[str, Any]) -> StepMap:
        """Return a step of size 0.

        For u' = f an explicit one whose stages are those that theta has for h -> 0: in endpoint
        form the start and its Euler step, else the Euler step to t + theta h.  In other forms the
        endpoint form leads to x + h x' + theta h^2 x'' and to y that satisfies its equations there,
        the one-stage form to (stage - u)/theta.
        """
        theta = self.theta
        if problem.form != "rhs":
            bends = (
                StepCurvature(1.0, 2.0 * theta - 1.0)
                if self.endpoint
                else StepCurvature(theta, theta)
            )
            return InstantStep(problem, bends, theta, options)
        # The Euler step stands for the implicit stage: it differs by O(h^2) in the stage and by
        # O(h^3) after the step, which first and second derivatives at h = 0 do not see.
        a = 1.0 if self.endpoint else theta
        b = [1.0 - theta, theta] if self.endpoint else [0.0, 1.0]
        euler = Tableau(np.array([[0.0, 0.0], [a, 0.0]]), np.array(b), np.array([0.0, a]))
        return RungeKuttaStep(problem, euler)

    def quadrature_error(
        self, problem: Problem, options: Mapping[str, Any], kept: Kept | None = None
    ) -> QuadratureError:
        """Return the difference from Simpson's rule, with the state halfway on the chord."""
        del options, kept
        middle = problem.create_state()

        def by_simpson(step: Step, densities: Densities) -> float:
            t, h, u, u_next, p, _ = step
            # The chord misses the solution halfway by O(h^2), as does the rule itself, so the
            # difference shows how large the error is, but is no correction of it.
            middle.waxpy(1.0, u, u_next)
            middle.scale(0.5)
            ends = (1.0 - self.theta, t, u), (self.theta, t + h, u_next)
            total = 0.0
            for weight, density in densities:
                own = sum(part * density.value(time, state, p) for part, time, state in ends)
                third = density.value(t, u, p) + density.value(t + h, u_next, p)
                third = (third + 4.0 * density.value(t + 0.5 * h, middle, p)) / 6.0
                total += weight * h * (own - third)
            return total

        return by_simpson

    def block_steps(
        self, problem: Problem, inside: Inside | None, mass: Array | None
    ) -> BlockTheta:
        """Return the steps linearised in blocks."""
        del problem
        return BlockTheta(mass, self.theta, inside, endpoint=self.endpoint)

    def grid_passes(
        self, problem: Problem, options: Mapping[str, Any]
    ) -> ThetaGridStepAdjoint | None:
        """Return the transposed steps on a grid; None where Python has a part in them."""
        # Passes in C multiply with the stencil. They linearise at the end of the step, where the
        # states of the run are; a stage inside the step is not one of these.
        python = problem.stencil is None or problem.field_parameter
        if python or problem.residual_u.assembled or not self.holds_at_end:
            return None
        make_solver = partial(linear_solver, options=options)
        return ThetaGridStepAdjoint(problem, self.theta, self.endpoint, make_solver)

    @property
    def recurrence(self) -> Tableau:
        """The coefficients of an explicit stage at the start and one at the end, or one within."""
        theta = self.theta
        # The rate at the stage counts in full: b = 1 and a = c = theta.
        if not self.endpoint:
            return Tableau(np.array([[theta]]), np.ones(1), np.array([theta]))
        # The second row of a is b itself: the last stage is the solution.
        b = np.array([1.0 - theta, theta])
        return Tableau(np.array([[0.0, 0.0], b]), b, np.array([0.0, 1.0]))


THETA = (
    ThetaMethod("beuler", 1, theta=1.0, endpoint=False),
    ThetaMethod("cn", 2, theta=0.5, endpoint=True),
    ThetaMethod("midpoint", 2, theta=0.5, endpoint=False),
)
"""The methods of this family that have names."""


def named_theta(name: str) -> ThetaMethod:
    """Return the endpoint method of a name such as "theta:0.7".

    Raises
    ------
    InputError
        Theta outside (0, 1].
    """
    try:
        theta = float(name.removeprefix("theta:"))
    except ValueError:
        # text that is no number is refused like a number out of range
        theta = -1.0
    if not 0.0 < theta <= 1.0:
        raise InputError(
            f'method = "{name}"', expected="theta in (0, 1]", remedy='"theta:0.5" or "cn"'
        )
    # Only theta = 1/2 is symmetric in time, which cancels the error of order one.
    return ThetaMethod(name, 2 if theta == 0.5 else 1, theta=theta, endpoint=True)
