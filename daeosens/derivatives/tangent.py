"""Tangent-linear sweeps: derivatives of every state along directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, overload

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import change
from daeosens.costs.objective import Objective, require_objective
from daeosens.derivatives.directions import Rows, Vector, admit_direction, pairs_of
from daeosens.derivatives.engines.choice import (
    Sweep,
    choose_sweep,
)
from daeosens.derivatives.engines.compiled.tangent import (
    Direction,
    admit_rows,
    check_directions,
    push_directions,
)
from daeosens.derivatives.engines.delays.program import program_of
from daeosens.derivatives.engines.delays.running import RunningCosts
from daeosens.derivatives.engines.delays.tangents import push_forward
from daeosens.derivatives.engines.request import lowered_on
from daeosens.derivatives.kinks_of_costs import by_parts
from daeosens.derivatives.looks.look import look, solver_error
from daeosens.derivatives.sweeps.forward import sweep_forward
from daeosens.errors import whole_number
from daeosens.methods.remainders import Remainders
from daeosens.petsc.ranks import agree
from daeosens.petsc.unpicklable import Undivided
from daeosens.petsc.vectors import Array, read
from daeosens.problem.callback_guard import QUIET, unwrapped
from daeosens.problem.problem import PossiblyNamed
from daeosens.timestepping.trajectory.states import rows_of
from daeosens.timestepping.trajectory.trajectory import Trajectory, check_trajectory, steps_of


@dataclass(eq=False, repr=False)
class Tangent(Undivided):
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
        What swept: "compiled", "vectors" or "arrays".
    solver_error : float
        As of ``Gradient``, at the end of the run.
    why : str
        As of ``Gradient``.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, solve, tangent
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> along = tangent(solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1)), [1.0])
    >>> along.u.shape, round(along.derivative(Terminal(lambda t, u, p: u[0])), 5)
    ((21, 1), 0.36788)
    """

    _in_its_place: ClassVar[str] = "its arrays"

    trajectory: Trajectory
    states: Sequence[PETSc.Vec]
    dp: PETSc.Vec | None
    times: Array
    parameters: Sequence[PETSc.Vec]
    engine: str = "vectors"
    solver_error: float = 0.0
    why: str = ""

    def __repr__(self) -> str:
        """Return what was differentiated, and by what."""
        swept = f" ({self.engine}: {self.why})" if self.why else ""
        return f"Tangent of {self.trajectory}{swept}"

    @property
    def final(self) -> PETSc.Vec:
        """Derivative of the final state [n]."""
        return self.states[-1]

    @cached_property
    def u(self) -> Array:
        """Derivatives as an array [N+1, n_local]."""
        return np.array(rows_of(self.states))

    def at(self, t: float) -> PETSc.Vec:
        """Return the derivative [n] of the state at a step time."""
        return self.states[self.trajectory.index(t)]

    def moved(self, n: int) -> float:
        """Return the derivative of the time of an implicit event at state n; else 0: pinned."""
        n = whole_number(n, "n", most=len(self.times) - 1)
        return float(self.times[n]) if n in self.trajectory.moving else 0.0

    @QUIET
    @unwrapped
    def derivative(self, objective: Objective) -> float:
        """Return the directional derivative of a cost.  Collective."""
        require_objective(objective)
        trajectory = self.trajectory
        problem = trajectory.problem
        agree(problem.comm, "Tangent.derivative", objective=objective)
        cost = by_parts(trajectory, lowered_on(trajectory, objective))
        result = 0.0
        # dJ = g_u du + g_p dp + g_t dt, the last one where a state's time is that of an implicit
        # event
        for time, weight, scalar in cost.points:
            n = trajectory.index(time)
            point = (float(trajectory.times[n]), trajectory.stored[n], trajectory.parameters(n))
            # events may have changed the parameters: dp at this state, not the one at the start
            along = (self.states[n], self.parameters[n], self.moved(n))
            result += weight * change(scalar, problem, point, *along)
        if cost.densities and problem.delays is not None:
            program = program_of(trajectory)
            dp = np.zeros(problem.n_parameters) if self.dp is None else read(self.dp)
            along = push_forward(program, read(self.states[0])[None], dp[None])
            result += RunningCosts(program, [cost.densities]).derivatives(along)[0, 0]
        elif cost.densities:
            steps = steps_of(trajectory)
            # a running cost is a sum over stages, whose tangents no one has kept: the steps are
            # taken again
            du = self.states[0].copy()
            for n in range(trajectory.n_steps):
                step = trajectory.step(n)
                result += steps.tangent(step, du, self.dp, densities=cost.densities)
        return result


@overload
def tangent(  # pyright: ignore[reportOverlappingOverload]
    trajectory: Trajectory,
    du0: Rows,
    dp: Rows | None = None,
    engine: Sweep = "auto",
) -> list[Tangent]: ...
@overload
def tangent(  # pyright: ignore[reportOverlappingOverload]
    trajectory: Trajectory,
    du0: None = None,
    *,
    dp: Rows,
    engine: Sweep = "auto",
) -> list[Tangent]: ...
@overload
def tangent(
    trajectory: Trajectory,
    du0: Vector | None = None,
    dp: PossiblyNamed = None,
    engine: Sweep = "auto",
) -> Tangent: ...
def tangent(
    trajectory: Trajectory, du0: Any = None, dp: Any = None, engine: Sweep = "auto"
) -> Tangent | list[Tangent]:
    """Return the derivative of every state along one direction (du0, dp), or along several.

    The discrete tangent of the steps that were taken, the exact transpose of ``adjoint`` for every
    method.  (TSForward of PETSc 3.26 is wrong for Runge-Kutta methods with unequal steps or
    explicit time dependence, and is not used.)  Collective on ``trajectory.problem.comm``.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``.
    du0 : array [n] or Vec; array [D, n] or sequence of Vec, optional
        Direction in the initial state, or D of them as rows; zero by default.
    dp : array [m], Vec or mapping; array [D, m] or sequence of Vec, optional
        Direction in the parameters, or as many as rows; zero by default, as are those that are not
        named in a mapping.
    engine : "auto", "vectors", "arrays" or "compiled"
        As for ``adjoint``.

    Returns
    -------
    Tangent or list of Tangent
        A list where rows are given; these share a sweep, and the evaluations of Jacobians.

    Raises
    ------
    InputError
        No direction, shapes that do not match, or an unknown engine.
    UnsupportedError
        "arrays" where it cannot be; names the reason.
    SolveError
        The tangent, or a value on the way to it, is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> tangent(run, dp=[1.0]).u[-1].round(6)
    array([-0.735759])
    >>> both = tangent(run, du0=[[1.0], [0.0]], dp=[[0.0], [1.0]])
    >>> np.array([along.u[-1] for along in both]).round(5).tolist()
    [[0.36788], [-0.73576]]
    """
    directions, several = pairs_of(du0, dp)
    along = tangent_sweep(trajectory, directions, engine)
    return along if several else along[0]


@QUIET
@unwrapped
def tangent_sweep(
    trajectory: Trajectory, directions: Sequence[Direction], engine: Sweep = "auto"
) -> list[Tangent]:
    """Return the tangents along pairs (du0, dp), None in the place of one that is zero.

    Collective.  Result and errors as for ``tangent``.
    """
    check_trajectory(trajectory)
    # no cost is known yet, so only the equations are looked at
    look(trajectory)
    agree(trajectory.problem.comm, "tangent", directions=directions, engine=engine)
    check_directions(directions)
    admitted = [admit_direction(trajectory.problem, *direction) for direction in directions]
    # the engine for all directions: each Jacobian serves all of them
    chosen, why = choose_sweep(trajectory, engine, len(directions))
    with Remainders() as left:
        along = sweep_forward(trajectory, admitted, chosen)
    error = solver_error(trajectory, left.total)
    return [
        Tangent(
            trajectory,
            carried.states,
            dp,
            np.array(carried.times),
            tuple(carried.parameters),
            chosen,
            solver_error=error,
            why=why,
        )
        for carried, (_, dp) in zip(along, admitted, strict=True)
    ]


@QUIET
@unwrapped
def tangent_rows(
    trajectory: Trajectory, directions: Sequence[Direction], engine: Sweep = "auto"
) -> tuple[Array, Array] | None:
    """Return the tangents of all states [N+1, D, n] in one piece, and each dp [D, m].

    None where they are not carried in C, without events: then ``tangent_sweep`` is for them.  A
    short run has more directions than steps, and a vector for each state of each direction would
    take most of the time.
    """
    check_trajectory(trajectory)
    check_directions(directions)
    if choose_sweep(trajectory, engine, len(directions)).engine != "compiled":
        return None
    look(trajectory)
    du, dp = admit_rows(trajectory.problem, directions)
    rows = push_directions(trajectory, du, dp)
    return None if rows is None else (rows, dp)
