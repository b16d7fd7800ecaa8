"""Discrete adjoints: the gradient of costs by one sweep back over the accepted steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import QUIET, Array, gather, unwrapped
from daeosens.cost import Cost, points_by_step
from daeosens.errors import InputError
from daeosens.objective import Objective
from daeosens.steps import StepMap
from daeosens.trajectory import Trajectory, steps_of
from daeosens.tsadjoint import sweep as tsadjoint_sweep

Engine = Literal["steps", "tsadjoint"]


@dataclass(frozen=True, eq=False, repr=False)
class Gradient:
    """Value and gradient of one cost.

    Attributes
    ----------
    value : float
        The cost.
    u0_vec : Vec [n]
        Derivative with respect to the initial state.
    p_vec : Vec [m]
        Derivative with respect to the parameters.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, adjoint, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> gradient = adjoint(run, Terminal(lambda t, u, p: u[0]))
    >>> gradient.u0.round(5), gradient.p.round(5)
    (array([0.36788]), array([-0.73576]))
    """

    value: float
    u0_vec: PETSc.Vec
    p_vec: PETSc.Vec

    def __repr__(self) -> str:
        """Return the value and the sizes; not collective."""
        sizes = f"u0: [{self.u0_vec.size}], p: [{self.p_vec.size}]"
        return f"Gradient(value={self.value:.9g}, {sizes})"

    @property
    def u0(self) -> Array:
        """Derivative with respect to the initial state, gathered [n].  Collective."""
        return gather(self.u0_vec)

    @property
    def p(self) -> Array:
        """Derivative with respect to the parameters, gathered [m].  Collective."""
        return gather(self.p_vec)


@overload
def adjoint(trajectory: Trajectory, objective: Objective, engine: Engine = "steps") -> Gradient: ...
@overload
def adjoint(
    trajectory: Trajectory, objective: Sequence[Objective], engine: Engine = "steps"
) -> list[Gradient]: ...
@QUIET
@unwrapped
def adjoint(
    trajectory: Trajectory,
    objective: Objective | Sequence[Objective],
    engine: Engine = "steps",
) -> Gradient | list[Gradient]:
    """Return the gradient of one or several costs by the discrete adjoint.

    The derivative is that of the steps that were taken, with their sizes held fixed; it is exact to
    rounding for the state that was computed.  Collective on ``trajectory.problem.comm``.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``; its steps must hit ``objective.times``.
    objective : Objective or sequence of Objective
        Several costs share the evaluations of Jacobians.
    engine : "steps" or "tsadjoint"
        "steps": this package's step linearisations, for every method and form.  "tsadjoint":
        PETSc's TSAdjoint, refused where PETSc 3.26 is known to be wrong; uses what
        ``solve(..., checkpoint="memory" or "disk")`` recorded, or repeats the run.

    Returns
    -------
    Gradient or list of Gradient

    Raises
    ------
    InputError
        An observation time that no step hits; shapes that do not match.
    UnsupportedError
        The engine cannot be exact here; names the alternative.

    Source
    ------
    docs/mathematics.md, sections 1 and 2; Zhang, Constantinescu, Smith, SIAM J. Sci. Comput. 44(1),
    2022 (TSAdjoint).

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> adjoint(run, Terminal(lambda t, u, p: u[0])).p.round(6)
    array([-0.735759])
    """
    several = not hasattr(objective, "lower")
    objectives: Sequence[Objective] = objective if several else (objective,)  # type: ignore[assignment]
    check_engine(engine)
    if not objectives:
        raise InputError("no objective given", expected="at least one")
    problem = trajectory.problem
    final_time = float(trajectory.times[-1])
    costs = [one.lower(problem, final_time) for one in objectives]
    steps = steps_of(trajectory)
    if engine == "tsadjoint":
        values = [evaluate_cost(trajectory, cost, steps) for cost in costs]
        lam, mu = tsadjoint_sweep(trajectory, costs)
    else:
        values, lam, mu = steps_sweep(trajectory, costs, steps)
    gradients = [
        Gradient(value, lam_k, mu_k) for value, lam_k, mu_k in zip(values, lam, mu, strict=True)
    ]
    return gradients if several else gradients[0]


def check_engine(engine: str) -> None:
    """Refuse an unknown engine.

    Raises
    ------
    InputError
        Names the known ones.
    """
    if engine not in ("steps", "tsadjoint"):
        raise InputError(f"engine = {engine!r}", expected='"steps" or "tsadjoint"')


@QUIET
@unwrapped
def evaluate(trajectory: Trajectory, objective: Objective) -> float:
    """Return the value of a cost on a trajectory; collective.

    Raises
    ------
    InputError
        An observation time that no step hits.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> round(evaluate(run, Terminal(lambda t, u, p: u[0] ** 2)), 6)
    0.135335
    """
    problem = trajectory.problem
    cost = objective.lower(problem, float(trajectory.times[-1]))
    steps = steps_of(trajectory)
    return evaluate_cost(trajectory, cost, steps)


def evaluate_cost(trajectory: Trajectory, cost: Cost, steps: StepMap) -> float:
    """Return the value of a lowered cost."""
    p, states = trajectory.p, trajectory.states
    value = 0.0
    for time, weight, scalar in cost.points:
        n = trajectory.index(time)
        point = (float(trajectory.times[n]), states[n], trajectory.parameters(n))
        value += weight * scalar.value(*point)
    if cost.densities:
        pairs = zip(trajectory.times[:-1], trajectory.step_sizes, strict=True)
        for n, (t, h) in enumerate(pairs):
            value += steps.quadrature(
                float(t), float(h), states[n], states[n + 1], p, cost.densities
            )
    return float(value)


def steps_sweep(
    trajectory: Trajectory, costs: Sequence[Cost], steps: StepMap
) -> tuple[list[float], list[PETSc.Vec], list[PETSc.Vec]]:
    """Sweep back with the step linearisations; return values, lam_0 and mu for each cost."""
    problem, p, states = trajectory.problem, trajectory.p, trajectory.states
    lam = [problem.create_state() for _ in costs]
    mu = [problem.create_parameters() for _ in costs]
    values = np.array([evaluate_cost(trajectory, cost, steps) for cost in costs])
    points = points_by_step(trajectory.index, costs)
    densities = [cost.densities for cost in costs]
    for n in range(trajectory.n_steps, -1, -1):
        for k, weight, scalar in points.get(n, ()):
            point = (float(trajectory.times[n]), states[n], trajectory.parameters(n))
            scalar.add_u(weight, *point, lam[k])
            scalar.add_p(weight, *point, mu[k])
            if n in trajectory.moving:
                steps.add_time(k, weight * scalar.value_t(*point))
        if n:
            t, h = float(trajectory.times[n - 1]), float(trajectory.step_sizes[n - 1])
            steps.adjoint(t, h, states[n - 1], states[n], p, lam, mu, densities)
    return values.tolist(), lam, mu
