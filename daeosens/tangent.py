"""Tangent-linear sweeps: directional derivatives and the full sensitivity matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.arrays import QUIET, Array, finite_array, read, scatter, unwrapped, write
from daeosens.block_adjoint import sweep_rows
from daeosens.cost import Densities, change
from daeosens.engines import choose_engine
from daeosens.errors import InputError
from daeosens.objective import Objective
from daeosens.steps import StepMap
from daeosens.trajectory import Trajectory, steps_of


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
            for _, running in _march(trajectory, steps, du, self.dp, cost.densities):
                result += running
        return result


@QUIET
@unwrapped
def tangent(
    trajectory: Trajectory,
    du0: npt.ArrayLike | PETSc.Vec | None = None,
    dp: npt.ArrayLike | PETSc.Vec | None = None,
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
    dp : array or Vec [m], optional
        Direction in the parameters; zero by default.

    Returns
    -------
    Tangent

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> tangent(run, dp=[1.0]).u[-1].round(6)
    array([-0.735759])
    """
    problem = trajectory.problem
    du = problem.create_state() if du0 is None else problem.admit_state(du0, "du0")
    direction = None if dp is None else parameter_direction(trajectory, dp)
    start = problem.create_parameters() if direction is None else direction
    states, times, parameters = [du.copy()], [0.0], [start]
    steps = steps_of(trajectory)
    for state, _ in _march(trajectory, steps, du, direction, ()):
        states.append(state.copy())
        times.append(steps.dt)
        changed = steps.dp
        parameters.append(start if changed is None or changed is direction else changed)
    return Tangent(trajectory, tuple(states), direction, np.array(times), tuple(parameters))


def parameter_direction(trajectory: Trajectory, dp: npt.ArrayLike | PETSc.Vec) -> PETSc.Vec:
    """Return the user's parameter direction as a vector [m], checked."""
    problem = trajectory.problem
    if isinstance(dp, PETSc.Vec):
        if dp.getSizes() != problem.parameter.getSizes():
            raise InputError(
                f"dp has (local, global) sizes {dp.getSizes()}",
                expected=f"{problem.parameter.getSizes()}",
            )
        return dp
    if problem.field_parameter:
        raise InputError(f"dp is {type(dp).__name__}", expected="a Vec: the parameter is a field")
    values = finite_array(dp, "dp", (problem.n_parameters,))
    return scatter(values, problem.create_parameters())


@dataclass(frozen=True, eq=False)
class Sensitivities:
    """Full derivative matrices of the state at one time.

    Attributes
    ----------
    u0 : array [n_local, n] or None
        d u(t) / d u(0); the rank's own rows.
    p : array [n_local, m] or None
        d u(t) / d p; the rank's own rows.
    sweep : str
        "tangent" (one column at a time) or "adjoint" (all rows in one sweep).
    engine : str
        What swept: "steps" or "block"; empty for other methods.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, sensitivities, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> found = sensitivities(solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1)))
    >>> found.p.round(5), found.sweep
    (array([[-0.73576]]), 'adjoint')
    """

    u0: Array | None
    p: Array | None
    sweep: str
    engine: str = ""


@QUIET
@unwrapped
def sensitivities(
    trajectory: Trajectory,
    t: float | None = None,
    with_respect_to: Sequence[str] = ("u0", "p"),
    engine: Literal["auto", "steps", "block"] = "auto",
) -> Sensitivities:
    """Return the full matrices d u(t) / d u(0) and d u(t) / d p.

    By tangents or adjoints, whichever are fewer; the same numbers to rounding.  Adjoints are swept
    in blocks where that is faster (``adjoint``).  Collective.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``.
    t : float, optional
        A step time; the final one by default.
    with_respect_to : sequence of "u0", "p"
        Which matrices are wanted.
    engine : "auto", "steps" or "block"
        "block": always by adjoints in blocks.

    Returns
    -------
    Sensitivities

    Raises
    ------
    InputError
        A time that no step hits, or an unknown engine or matrix.
    UnsupportedError
        "block" where it cannot be; names the reason.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> sensitivities(run).u0.round(6)
    array([[0.367879]])
    """
    wanted = tuple(with_respect_to)
    if not wanted or any(name not in ("u0", "p") for name in wanted):
        raise InputError(f"with_respect_to = {with_respect_to!r}", expected='"u0", "p" or both')
    if engine not in ("auto", "steps", "block"):
        raise InputError(f"engine = {engine!r}", expected='"auto", "steps" or "block"')
    problem = trajectory.problem
    last = trajectory.n_steps if t is None else trajectory.index(t)
    n, m = problem.size, problem.n_parameters
    columns = n * ("u0" in wanted) + m * ("p" in wanted)
    sweep, chosen = "adjoint", choose_engine(trajectory, engine)
    if engine == "block" or (chosen == "block" and n < columns):
        by_u0 = np.eye(n)
        by_p = sweep_rows(trajectory, by_u0, last)
    elif problem.comm.size == 1 and n < columns:
        by_u0, by_p = _rows(trajectory, last)
    else:
        sweep, chosen = "tangent", "steps"
        by_u0 = _columns(trajectory, last, "u0") if "u0" in wanted else None
        by_p = _columns(trajectory, last, "p") if "p" in wanted else None
    return Sensitivities(
        by_u0 if "u0" in wanted else None, by_p if "p" in wanted else None, sweep, chosen
    )


def _columns(trajectory: Trajectory, last: int, name: str) -> Array:
    problem = trajectory.problem
    steps = steps_of(trajectory)
    unit = problem.create_state() if name == "u0" else problem.create_parameters()
    result = np.empty((problem.state.local_size, unit.size))
    for j in range(unit.size):
        unit.zeroEntries()
        unit.setValue(j, 1.0)
        unit.assemble()
        du = unit.copy() if name == "u0" else problem.create_state()
        dp = None if name == "u0" else unit
        for _ in _march(trajectory, steps, du, dp, (), last):
            pass
        result[:, j] = read(du)
        du.destroy()
    return result


def _rows(trajectory: Trajectory, last: int) -> tuple[Array, Array]:
    problem, states = trajectory.problem, trajectory.states
    steps = steps_of(trajectory)
    lam = [problem.create_state() for _ in range(problem.size)]
    mu = [problem.create_parameters() for _ in lam]
    for unit, row in zip(np.eye(problem.size), lam, strict=True):
        write(row, unit)
    nothing: list[Densities] = [()] * len(lam)
    for n in reversed(range(last)):
        t, h = float(trajectory.times[n]), float(trajectory.step_sizes[n])
        steps.adjoint(t, h, states[n], states[n + 1], trajectory.p, lam, mu, nothing)
    return np.array([read(row) for row in lam]), np.array([read(row) for row in mu])


def _march(
    trajectory: Trajectory,
    steps: StepMap,
    du: PETSc.Vec,
    dp: PETSc.Vec | None,
    densities: Densities,
    last: int | None = None,
) -> Iterator[tuple[PETSc.Vec, float]]:
    """Carry ``du`` forward in place; yield it and the running change after each step."""
    states, p = trajectory.states, trajectory.p
    for n in range(trajectory.n_steps if last is None else last):
        t, h = float(trajectory.times[n]), float(trajectory.step_sizes[n])
        running = steps.tangent(t, h, states[n], states[n + 1], p, du, dp, densities=densities)
        yield du, running
