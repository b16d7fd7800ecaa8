"""Tangent-linear sweeps: derivatives of every state along directions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.cost import Densities, change
from daeosens.costs.objective import Objective, check_objective
from daeosens.derivatives.engines.choice import (
    Sweep,
    choose_sweep,
)
from daeosens.derivatives.engines.compiled.tangent import (
    Direction,
    check_directions,
)
from daeosens.derivatives.kinks import warn_of_jumps
from daeosens.derivatives.solver_error import solver_error
from daeosens.derivatives.start_check import warn_of_start
from daeosens.derivatives.sweeps.forward import sweep_forward
from daeosens.errors import InputError
from daeosens.methods.remainders import remainders
from daeosens.methods.step import StepMap
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, read
from daeosens.problem.callback_guard import QUIET, unwrapped
from daeosens.problem.problem import PossiblyNamed
from daeosens.timestepping.trajectory.trajectory import Trajectory, check_trajectory, steps_of


@dataclass(frozen=True, eq=False, repr=False)
class Tangent:
    """The derivative of a trajectory along one direction.

    Attributes
    ----------
    trajectory : Trajectory
        What was differentiated.
    states : sequence of Vec [n]
        Derivative of each of the N+1 states.
    dp : Vec [m] or None
        Direction in the parameters.
    times : array [N+1]
        Derivative of the times of the states: zero but at, and shortly after, events.
    parameters : sequence of Vec [m]
        Derivative of the parameters at each of the states: ``dp`` until an event changes them.
    engine : str
        What swept: "compiled", "steps" or "block".
    solver_error : float
        As of ``Gradient``, at the end of the run.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, solve, tangent
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> along = tangent(solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1)), [1.0])
    >>> along.u.shape, round(along.derivative(Terminal(lambda t, u, p: u[0])), 5)
    ((21, 1), 0.36788)
    """

    trajectory: Trajectory
    states: Sequence[PETSc.Vec]
    dp: PETSc.Vec | None
    times: Array
    parameters: Sequence[PETSc.Vec]
    engine: str = "steps"
    solver_error: float = 0.0

    def __repr__(self) -> str:
        """Return what was differentiated."""
        return f"Tangent of {self.trajectory}"

    @property
    def final(self) -> PETSc.Vec:
        """Derivative of the final state [n]."""
        return self.states[-1]

    @cached_property
    def u(self) -> Array:
        """Derivatives as an array [N+1, n_local]."""
        return np.array([read(state) for state in self.states])

    def at(self, t: float) -> PETSc.Vec:
        """Return the derivative [n] of the state at a step time."""
        return self.states[self.trajectory.index(t)]

    def moved(self, n: int) -> float:
        """Return the derivative of the time of an implicit event at state n; else 0: pinned."""
        return float(self.times[n]) if n in self.trajectory.moving else 0.0

    @QUIET
    @unwrapped
    def derivative(self, objective: Objective) -> float:
        """Return the directional derivative of a cost.  Collective."""
        check_objective(objective)
        trajectory = self.trajectory
        problem = trajectory.problem
        cost = objective.lower(problem, float(trajectory.times[-1]))
        result = 0.0
        for time, weight, scalar in cost.points:
            n = trajectory.index(time)
            point = (float(trajectory.times[n]), trajectory.states[n], trajectory.parameters(n))
            along = (self.states[n], self.parameters[n], self.moved(n))
            result += weight * change(scalar, problem, point, *along)
        if cost.densities:
            steps = steps_of(trajectory)
            du = self.states[0].copy()
            for _, running in march(trajectory, steps, du, self.dp, cost.densities):
                result += running
        return result


def tangent(
    trajectory: Trajectory,
    du0: npt.ArrayLike | PETSc.Vec | None = None,
    dp: PossiblyNamed = None,
    engine: Sweep = "auto",
) -> Tangent:
    """Return the derivative of every state along the direction (du0, dp).

    The discrete tangent of the steps that were taken, the exact transpose of ``adjoint`` for every
    method.  (TSForward of PETSc 3.26 is wrong for Runge-Kutta methods with unequal steps or
    explicit time dependence, and is not used.)  Collective on ``trajectory.problem.comm``.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``.
    du0 : array or Vec [n], optional
        Direction in the initial state; zero by default.
    dp : array or Vec [m], or mapping, optional
        Direction in the parameters; zero by default, as are those that are not named in a mapping.
    engine : "auto", "steps", "block" or "compiled"
        As for ``adjoint``.

    Returns
    -------
    Tangent

    Raises
    ------
    InputError
        No direction, shapes that do not match, or an unknown engine.
    UnsupportedError
        "block" where it cannot be; names the reason.
    SolveError
        The tangent, or a value on the way to it, is not finite.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> tangent(run, dp=[1.0]).u[-1].round(6)
    array([-0.735759])
    """
    return tangents(trajectory, [(du0, dp)], engine)[0]


@QUIET
@unwrapped
def tangents(
    trajectory: Trajectory,
    directions: Sequence[Direction] | None = None,
    engine: Sweep = "auto",
    *,
    du0: npt.ArrayLike | Sequence[PETSc.Vec] | PETSc.Vec | None = None,
    dp: PossiblyNamed | Sequence[PETSc.Vec] = None,
) -> list[Tangent]:
    """Return the derivatives along several directions (du0, dp); in blocks they share a sweep.

    Collective on ``trajectory.problem.comm``.

    Parameters
    ----------
    trajectory, engine
        As for ``tangent``, as are errors.
    directions : sequence of (du0, dp)
        Pairs, None in the place of one that is zero.
    du0, dp : array [D, n], array [D, m], or sequences of Vec, optional
        In place of pairs: the directions as rows, or one direction as for ``tangent``.

    Returns
    -------
    list of Tangent
        One for each direction.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> [each.u[-1].round(5) for each in tangents(run, [([1.0], None), (None, [1.0])])]
    [array([0.36788]), array([-0.73576])]
    >>> tangents(run, dp=np.eye(1))[0].u[-1].round(5)
    array([-0.73576])
    """
    check_trajectory(trajectory)
    warn_of_jumps(trajectory)
    warn_of_start(trajectory)
    if directions is None:
        directions = _pairs(du0, dp)
    elif du0 is not None or dp is not None:
        raise InputError(
            "directions together with du0 or dp",
            expected="pairs (du0, dp), or the rows of each",
            remedy="tangents(run, [(du0, dp), ...]) or tangents(run, du0=rows, dp=rows)",
        )
    agree(trajectory.problem.comm, "tangents", directions=directions, engine=engine)
    check_directions(directions)
    admitted = [admit_direction(trajectory, *direction) for direction in directions]
    chosen = choose_sweep(trajectory, engine, len(directions))
    with remainders() as left:
        along = sweep_forward(trajectory, admitted, chosen)
    error = solver_error(trajectory, left.total)
    return [
        Tangent(
            trajectory,
            tuple(carried.states),
            dp,
            np.array(carried.times),
            tuple(carried.parameters),
            chosen,
            solver_error=error,
        )
        for carried, (_, dp) in zip(along, admitted, strict=True)
    ]


def _pairs(du0: Any, dp: Any) -> list[Direction]:
    """Return directions that are given as rows of each as pairs."""
    by_u, by_p = _rows_of(du0), _rows_of(dp)
    if by_u and by_p and len(by_u) != len(by_p):
        raise InputError(
            f"du0 has {len(by_u)} rows, dp has {len(by_p)}", expected="as many of each"
        )
    count = len(by_u or by_p)
    return list(zip(by_u or [None] * count, by_p or [None] * count, strict=True))


def _rows_of(given: Any) -> list[Any]:
    """Return the rows of what may be one direction; nothing of None."""
    if given is None:
        return []
    if isinstance(given, (PETSc.Vec, Mapping)):
        return [given]
    if isinstance(given, (list, tuple)) and isinstance(cast("list[Any]", given)[0], PETSc.Vec):
        return list(cast("list[Any]", given))
    return [given] if np.ndim(given) < 2 else list(given)


def admit_direction(
    trajectory: Trajectory,
    du0: npt.ArrayLike | PETSc.Vec | None,
    dp: PossiblyNamed,
) -> tuple[PETSc.Vec, PETSc.Vec | None]:
    """Return the user's direction as vectors [n] and [m]: copies, checked."""
    problem = trajectory.problem
    du = problem.create_state() if du0 is None else problem.admit_state(du0, "du0")
    return du, None if dp is None else parameter_direction(trajectory, dp)


def parameter_direction(trajectory: Trajectory, dp: PossiblyNamed) -> PETSc.Vec:
    """Return the user's parameter direction as a vector [m]: a copy, checked."""
    return trajectory.problem.admit_parameter_direction(dp)


def march(
    trajectory: Trajectory,
    steps: StepMap,
    du: PETSc.Vec,
    dp: PETSc.Vec | None,
    densities: Densities,
    last: int | None = None,
) -> Iterator[tuple[PETSc.Vec, float]]:
    """Carry ``du`` forward in place; yield it and the running change after each step."""
    for n in range(trajectory.n_steps if last is None else last):
        yield du, steps.tangent(trajectory.step(n), du, dp, densities=densities)
