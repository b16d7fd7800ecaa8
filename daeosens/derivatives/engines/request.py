"""What a sweep back is to carry, what it sees on its way, and the windows that it goes over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Cost, Densities, Observation, Scalar
from daeosens.costs.objective import Objective
from daeosens.derivatives.observations_inside import observed_inside
from daeosens.methods.events.event_step import HybridStep
from daeosens.petsc.vectors import Array, read, write
from daeosens.timestepping.trajectory.states import States, states_between
from daeosens.timestepping.trajectory.store import SomeStates
from daeosens.timestepping.trajectory.trajectory import (
    LITTLE_MEMORY,
    Trajectory,
    stages_between,
)

Observed: TypeAlias = "Mapping[int, Sequence[Observation]]"
"""Observations by the number of the state."""


@dataclass(eq=False)
class AdjointRequest:
    """M adjoint rows, from state number ``last`` to the first one.

    Attributes
    ----------
    rows : int
        Number M.
    last : int
        The state where the sweep begins.
    observed : mapping of int to sequence of Observation
        What adds to the rows at single states.
    densities : sequence of sequences of (float, Scalar)
        Running costs of each row, with their weights; not with ``start``.
    start : array [M, n] or None
        The rows at ``last``, before anything is observed there; zero by default.
    """

    rows: int
    last: int
    observed: Observed
    densities: Sequence[Densities]
    start: Array | None = None

    @property
    def continuous(self) -> bool:
        """Whether there are running costs."""
        return any(self.densities)

    def looks_between(self, first: int, last: int) -> bool:
        """Whether something is observed from state number ``first`` on, before ``last``."""
        return any(first <= number < last for number in self.observed)


def lowered_on(trajectory: Trajectory, objective: Objective) -> Cost:
    """Return a cost on PETSc vectors; with ``Stepping(cut=False)`` at times inside of steps too."""
    cost = objective.lower(trajectory.problem, float(trajectory.times[-1]))
    # steps ended at the times of costs, so states are observed; otherwise what is observed is a
    # step of its own from the state before
    if trajectory.stepping.cut or not cost.points:
        return cost
    return observed_inside(trajectory, cost)


def of_costs(trajectory: Trajectory, costs: Sequence[Cost]) -> AdjointRequest:
    """Return what is to be swept for the gradients of costs.

    Raises
    ------
    InputError, SolveError
        A time that no step hits, an event that did not happen: ``Trajectory.index``.
    """
    observed = points_by_step(trajectory, costs)
    densities = [cost.densities for cost in costs]
    return AdjointRequest(len(costs), trajectory.n_steps, observed, densities)


def points_by_step(trajectory: Trajectory, costs: Sequence[Cost]) -> dict[int, list[Observation]]:
    """Sort the point costs by the number of the state that they look at."""
    points: dict[int, list[Observation]] = {}
    for row, cost in enumerate(costs):
        for time, weight, scalar in cost.points:
            # Sweeps go by steps: what is to be added to lam when they pass a state.
            number = trajectory.index(time)
            points.setdefault(number, []).append(Observation(row, weight, scalar))
    return points


@dataclass(frozen=True, eq=False)
class _Noting:
    """A scalar whose weighted value is noted where a sweep takes its gradient."""

    scalar: Scalar
    values: dict[int, float]
    number: int

    @property
    def sees_parameters(self) -> bool:
        """Whether its gradient in p may be other than zero."""
        return bool(getattr(self.scalar, "sees_parameters", True))

    def value(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the value."""
        return self.scalar.value(t, u, p)

    def value_t(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the partial derivative in t."""
        return self.scalar.value_t(t, u, p)

    def add_u(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add the gradient in u, and note the value."""
        self.values[self.number] = weight * self.scalar.value(t, u, p)
        self.scalar.add_u(weight, t, u, p, out)

    def add_p(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add the gradient in p."""
        self.scalar.add_p(weight, t, u, p, out)


def noting_values(
    trajectory: Trajectory, costs: Sequence[Cost]
) -> tuple[AdjointRequest, list[dict[int, float]]]:
    """Return what is to be swept for gradients and values of costs, and where the latter are noted.

    A sweep over a run that takes its states again has them once: to go back for values before it
    would take as many steps again.  Values are those of points, by their numbers.
    """
    values: list[dict[int, float]] = [{} for _ in costs]
    observed: dict[int, list[Observation]] = {}
    for row, cost in enumerate(costs):
        for number, (time, weight, scalar) in enumerate(cost.points):
            seen = _Noting(scalar, values[row], number)
            points = observed.setdefault(trajectory.index(time), [])
            points.append(Observation(row, weight, seen))
    return replace(of_costs(trajectory, costs), observed=observed), values


class SweepError(Exception):
    """A sweep has come upon what it cannot name; another engine will come upon it as well."""


Rows: TypeAlias = "tuple[list[PETSc.Vec], list[PETSc.Vec]]"
"""The adjoints lam [n] and mu [m] of each row."""


def new_rows(trajectory: Trajectory, request: AdjointRequest) -> Rows:
    """Return the rows at the state where a sweep begins."""
    problem, count = trajectory.problem, range(request.rows)
    lam = [problem.create_state() for _ in count]
    # rows of ``sensitivities`` and residuals begin with unit vectors, gradients with nothing
    if request.start is not None:
        for vec, row in zip(lam, request.start, strict=True):
            write(vec, row)
    return lam, [problem.create_parameters() for _ in count]


def matrices_of(rows: Rows) -> tuple[Array, Array]:
    """Return rows as arrays [M, n_local] and [M, m_local]."""
    lam, mu = (np.array([read(row) for row in part]) for part in rows)
    return lam, mu


class SecondRows(NamedTuple):
    """One adjoint and its derivatives along D directions, as arrays.

    Attributes
    ----------
    lam, mu : array [n], [m]
        The adjoint.
    lam_dot, mu_dot : array [D, n], [D, m]
        Its derivatives.
    """

    lam: Array
    mu: Array
    lam_dot: Array
    mu_dot: Array


def no_rows(du: Array, dp: Array) -> SecondRows:
    """Return the rows where a sweep begins, zero, for directions [D, n] and [D, m]."""
    return SecondRows(
        np.zeros(du.shape[1]), np.zeros(dp.shape[1]), np.zeros(du.shape), np.zeros(dp.shape)
    )


def window_of(trajectory: Trajectory, first: int, last: int) -> Trajectory:
    """Return smooth steps in one mode as a run of their own."""
    several = trajectory.crossings or trajectory.problem.modes
    if not several and (first, last) == (0, trajectory.n_steps):
        return trajectory
    problem, p = trajectory.equations(first)
    stored = states_between(trajectory.stored, first, last)
    # the rows of small runs are read from their vectors once, and not for each of many windows
    little = 8 * problem.size * (trajectory.n_steps + 1) <= LITTLE_MEMORY
    if little and not trajectory.thinned and not isinstance(stored, States):
        stored = States(trajectory.u[first : last + 1], stored[0])
    return replace(
        trajectory,
        problem=problem,
        p=p,
        times=trajectory.times[first : last + 1],
        step_sizes=trajectory.step_sizes[first:last],
        stored=stored,
        kept=stages_between(trajectory.kept, first, last),
        crossings=(),
        records=(),
    )


def windows(
    trajectory: Trajectory,
    steps: HybridStep | None,
    densities: Sequence[Densities],
    last: int,
) -> list[tuple[int, int, bool]]:
    """Return the parts of a run up to state number ``last``, in order: (first, last, smooth).

    The smooth ones are as long as the states that are in memory at one time, and ``steps`` those of
    a run with events; the others are single steps.
    """
    parts = [(0, last, True)] if steps is None else smooth_parts(trajectory, steps, densities, last)
    if not trajectory.thinned:
        return list(parts)
    states = trajectory.stored
    assert isinstance(states, SomeStates)
    return [
        (start, end, smooth)
        for first, behind, smooth in parts
        for start, end in (states.windows(first, behind) if smooth else [(first, behind)])
    ]


def smooth_parts(
    trajectory: Trajectory,
    steps: HybridStep,
    densities: Sequence[Densities],
    end: int,
) -> Iterator[tuple[int, int, bool]]:
    """Yield the numbers of the first and the last state of smooth pieces, and of single steps."""
    first, previous = 0, None
    for k, h in enumerate(trajectory.step_sizes[:end].tolist()):
        # A record stands for consecutive steps of one mode with the same parameters; it changes
        # at events, and is None for a step that a window cannot take.
        record = steps.smooth(k, h, densities)
        if record is not previous and previous is not None:
            yield first, k, True
        if record is None:
            yield k, k + 1, False
        elif record is not previous:
            first = k
        previous = record
    if previous is not None:
        yield first, end, True
