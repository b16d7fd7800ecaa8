"""The reduced functional: optimisation variables in, value and gradient out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from petsc4py import PETSc

from daeosens.adjoint import Engine, adjoint, check_engine, evaluate
from daeosens.arrays import QUIET, largest
from daeosens.errors import InputError, SolveError
from daeosens.forward import solve
from daeosens.objective import Objective
from daeosens.parameters import Control
from daeosens.problem import Problem
from daeosens.stepping import Stepping
from daeosens.tangent import tangent
from daeosens.trajectory import Trajectory


@dataclass
class Count:
    """How often a reduced functional has run."""

    forward: int = 0
    adjoint: int = 0
    tangent: int = 0


class Reduced:
    """x -> J(u(x), p(x)) with the gradient by the discrete adjoint.

    What can be checked is checked here, before the first run.  Collective on ``problem.comm``.

    Parameters
    ----------
    problem : Problem
        The dynamics.
    objective : Objective
        The cost; its observation times are hit by steps.
    stepping : Stepping
        Method and step sizes.
    control : Parameters, InitialState or FieldParameter
        What x means.
    engine : "steps" or "tsadjoint"
        Which adjoint.

    Raises
    ------
    InputError
        Names, sizes or times that do not fit together.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> misfit = LeastSquares([1.0, 2.0], [0.6, 0.4])
    >>> stepping = Stepping((0.0, 2.0), "rk4", dt=0.1)
    >>> control = Parameters({"rate": Parameter(0.3)}, initial_state=[1.0])
    >>> functional = Reduced(decay, misfit, stepping, control)
    >>> value, gradient = functional.value_and_gradient(functional.start())
    """

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        stepping: Stepping,
        control: Control,
        *,
        engine: Engine = "steps",
    ) -> None:
        self.problem = problem
        self.objective = objective
        self.stepping = stepping
        self.control = control
        self.engine: Engine = engine
        self.count = Count()
        check_engine(engine)
        first, last = stepping.t_span
        outside = [time for time in objective.times if not first <= time <= last]
        if outside:
            raise InputError(
                f"observation time {outside[0]:g} lies outside the time span",
                expected=f"times in [{first:g}, {last:g}]",
                remedy="a longer t_span, or fewer observations",
            )
        control.check(problem)
        objective.lower(problem, last)
        self._check_start(first)
        self._cached: tuple[PETSc.Vec, Trajectory] | None = None

    @QUIET
    def _check_start(self, t: float) -> None:
        """Refuse a start at which the equations have no value: later it would be a failed solve."""
        problem = self.problem
        u0, p = self.control.unpack(problem, self.start())
        state, parameters = problem.admit_state(u0), problem.admit_parameters(p)
        zero, out = problem.create_state(), problem.create_state()
        try:
            problem.residual(t, state, zero, parameters, out)
        except SolveError as error:
            raise InputError(f"at the start: {error}") from error
        if not math.isfinite(largest(out)):
            name = "rhs" if problem.rhs_function is not None else "residual"
            raise InputError(
                f"at the start: callback '{name}' gives values that are not finite at t = {t:.9g}",
                expected="finite values",
                remedy="another starting point",
            )

    @property
    def comm(self) -> PETSc.Comm:
        """The communicator of x and of every method."""
        return self.problem.comm

    def start(self) -> PETSc.Vec:
        """Return a new vector with the control's starting point."""
        return self.control.start(self.problem)

    def bounds(self) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return the bounds of x, or None."""
        return self.control.bounds(self.problem)

    def trajectory(self, x: PETSc.Vec) -> Trajectory:
        """Return the run at x; the last one is kept.

        Raises
        ------
        SolveError
            The run failed, the same on every rank.
        """
        if self._cached is not None:
            point, cached = self._cached
            if point.equal(x):
                return cached
            self._cached = None
            cached.destroy()
        u0, p = self.control.unpack(self.problem, x)
        checkpoint = "states" if self.engine == "steps" else "memory"
        self.count.forward += 1
        run = solve(self.problem, u0, p, self.stepping, self.objective.times, checkpoint=checkpoint)
        self._cached = (x.copy(), run)
        return run

    def value(self, x: PETSc.Vec) -> float:
        """Return J(x)."""
        return evaluate(self.trajectory(x), self.objective)

    def gradient(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return the gradient of J at x as a new vector."""
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x: PETSc.Vec) -> tuple[float, PETSc.Vec]:
        """Return J(x) and its gradient as a new vector."""
        result = adjoint(self.trajectory(x), self.objective, self.engine)
        self.count.adjoint += 1
        return result.value, self.control.pull_back(self.problem, x, result)

    def derivative(self, x: PETSc.Vec, dx: PETSc.Vec) -> float:
        """Return the directional derivative of J at x by the tangent-linear sweep."""
        du0, dp = self.control.push_forward(self.problem, x, dx)
        self.count.tangent += 1
        return tangent(self.trajectory(x), du0, dp).derivative(self.objective)
