"""Steps that resolve derivatives: the error estimates of tangents have a say in the step sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.derivatives.tangent_errors import Start, consistent_directions, tangents_and_errors
from daeosens.errors import InputError, SolveError, suggestion
from daeosens.petsc.vectors import Array
from daeosens.problem.problem import Problem
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.states import rows_of
from daeosens.timestepping.trajectory.trajectory import Trajectory

MANY = 100
"""So many directions, at most, are all of them."""

ROUNDS = 40
"""Runs, at most, until the steps resolve the tangents."""

ACCEPTED, TARGET = 2.0, 0.3
"""The errors, as parts of the tolerance, up to which runs are accepted, that new steps aim at."""

MOST = 50
"""Parts that a step is divided into at once, at most."""

SMALL = 1e-3
"""Part of the largest value of a component of a tangent that counts at its zeros,"""

ROUNDING = 2e-13
"""and that of all components, each relative to its state, below which there is but rounding."""


def resolved(
    problem: Problem, stepping: Stepping, pinned: Array, take: Callable[[Array], Trajectory]
) -> Trajectory:
    """Return a run whose steps satisfy the tolerance for the tangents of the chosen directions.

    The steps are chosen by the error estimate of the state.  Where that of a tangent is more than
    the tolerance afterwards, the run is repeated with more times that steps hit, until no step has
    more than twice the tolerance.
    The run then is one of its own, from its start to its end, and nothing of those before is left.

    Parameters
    ----------
    problem : Problem
        What runs.
    stepping : Stepping
        With adaptive steps and the choice of tangents, ``control``.
    pinned : array [K]
        Times that steps hit anyway.
    take : callable
        ``take(times)``: a run whose steps hit these times too.

    Raises
    ------
    InputError
        A parameter or an initial state that there is not; too many of them.
    SolveError
        The error estimates do not fall with the steps.
    """
    directions, limit = chosen_directions(problem, stepping.control), stepping.max_steps
    rtol = 1e-6 if stepping.rtol is None else stepping.rtol
    method = stepping.resolved_method
    # The estimate of theta methods is a second difference, O(h^2), whatever their order.
    order = 2 if method.tableau is None else method.order
    added, before = np.empty(0), (0, math.inf)
    first, rounds = stepping.t_span[0], 0
    for rounds in range(1, ROUNDS + 1):
        run = take(np.union1d(pinned, added))
        if rounds == 1:
            # once: the start is the same in all runs
            directions = consistent_directions(run, directions)
        errors = error_ratios(run, directions, rtol)
        coarse = errors > 1.0
        if errors.max(initial=0.0) <= ACCEPTED:
            return run
        first, now = float(run.times[int(np.argmax(coarse))]), int(coarse.sum())
        typical = float(np.median(errors[coarse]))
        added = _refined(run, errors, coarse, order, added, pinned)
        run.destroy()
        # Errors that do not fall, in ever more steps, are no smooth error but a jump or a kink.
        growing = rounds > 2 and now > 2 * before[0] and typical > 0.5 * before[1]
        if growing or added.size >= limit:
            break
        before = now, typical
    raise SolveError(
        f"tangents are not resolved from t = {first:.9g} on after {rounds} runs with ever more "
        f"steps, {added.size} at last",
        expected="estimated errors of tangents that fall with the step sizes",
        remedy="a larger rtol, or breakpoints and events where the equations jump or have a kink",
    )


def chosen_directions(problem: Problem, control: str | Sequence[str | int]) -> list[Start]:
    """Return unit vectors in the parameters and initial states whose tangents are controlled.

    Raises
    ------
    InputError
        A name or number that there is not; too many of them.

    Examples
    --------
    >>> from daeosens import ODE
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate", "other"])
    >>> len(chosen_directions(decay, "sensitivities")), len(chosen_directions(decay, ["rate", 0]))
    (3, 2)
    """
    names = list(problem.parameter_names)
    wanted: Sequence[str | int]
    if isinstance(control, str):
        count = problem.n_parameters + problem.size
        if problem.field_parameter or count > MANY:
            raise InputError(
                f'control = "sensitivities" in {problem.n_parameters} parameters and '
                f"{problem.size} initial states",
                expected=f"at most {MANY} in all, and parameters that are no field",
                remedy='control=["rate", 0], those that matter: names of parameters, numbers of '
                "states",
            )
        wanted = [*names, *range(problem.size)]
    else:
        # a parameter where both have the name
        numbers = {name: k for k, name in enumerate(problem.state_names) if name not in names}
        wanted = [
            numbers.get(entry, entry) if isinstance(entry, str) else entry for entry in control
        ]
    unknown = [entry for entry in wanted if isinstance(entry, str) and entry not in names]
    if unknown:
        known = [*names, *problem.state_names]
        raise InputError(
            f'control: there is no parameter "{unknown[0]}"',
            expected=f"one of {', '.join(known)}, or the number of a state"
            if known
            else "numbers of states: parameters are fields",
            remedy=suggestion(unknown[0], known).removeprefix("; try: "),
        )
    outside = [
        entry for entry in wanted if not isinstance(entry, str) and not 0 <= entry < problem.size
    ]
    if outside:
        raise InputError(
            f"control: there is no state {outside[0]}", expected=f"0 to {problem.size - 1}"
        )
    return [
        (problem.create_state(), _unit(problem.create_parameters(), names.index(entry)))
        if isinstance(entry, str)
        else (_unit(problem.create_state(), entry), None)
        for entry in wanted
    ]


def _unit(vec: PETSc.Vec, number: int) -> PETSc.Vec:
    first, last = vec.getOwnershipRange()
    if first <= number < last:
        vec.getArray()[number - first] = 1.0
    return vec


def error_ratios(run: Trajectory, directions: Sequence[Start], rtol: float) -> Array:
    """Return the largest estimated error of a tangent in each step [N], as a part of the tolerance.

    The tolerance is rtol times the tangent, by components, with a small part of its largest
    value at its zeros: no unit of a parameter matters, and there is no absolute tolerance.
    Collective.
    """
    values, errors = tangents_and_errors(run, directions)
    comm = run.problem.comm.tompi4py()
    sizes = np.abs(values)
    peaks, state_peaks = sizes.max(axis=0), np.abs(rows_of(run.stored)).max(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # tangents relative to their states, so that unknowns of different units compare
        relative = np.where(state_peaks > 0.0, peaks / state_peaks, 0.0)
    largest = relative.max(axis=1, initial=0.0)
    comm.Allreduce(MPI.IN_PLACE, largest, MPI.MAX)
    # At its zeros a tangent has no size of its own: a part of its peak stands for it.
    floor = SMALL * rtol * peaks + ROUNDING * largest[:, None] * state_peaks
    weights = rtol * np.maximum(sizes[:-1], sizes[1:]) + floor
    parts = np.divide(errors, weights, out=np.zeros_like(errors), where=weights > 0.0)
    squares = np.ascontiguousarray((parts**2).sum(axis=2))
    comm.Allreduce(MPI.IN_PLACE, squares, MPI.SUM)
    # root mean square over components, as TS measures errors; the worst direction counts
    ratios: Array = np.sqrt(squares.max(axis=1) / run.problem.size)
    return np.where(np.isfinite(ratios), ratios, np.inf)


def _refined(
    run: Trajectory,
    errors: Array,
    coarse: npt.NDArray[np.bool_],
    order: int,
    added: Array,
    pinned: Array,
) -> Array:
    """Return the times [K] to be hit, beside those that are hit anyway, in the next run.

    Successive steps that are too long are replaced by others whose sizes change with the estimates.
    """
    times, sizes = run.times, run.step_sizes
    # The error falls with h^order: h becomes h (TARGET / error)^(1/order), so the step is cut
    # into the reciprocal of that, never into less than one.
    parts = np.clip((np.maximum(errors, TARGET) / TARGET) ** (1.0 / order), 1.0, MOST)
    kept, new = added, list[Array]()
    events = {crossing.step for crossing in run.crossings}
    n = 0
    while n < run.n_steps:
        if not coarse[n]:
            n += 1
            continue
        first = n
        while n < run.n_steps and coarse[n] and (n == first or n not in events):
            n += 1
        # way(t) counts parts up to t. Equal distances in it are steps of the new sizes, and sizes
        # change smoothly from one old step to the next.
        way = np.concatenate([[0.0], np.cumsum(parts[first:n])])
        count = max(math.ceil(way[-1]), n - first + 1)
        marks = np.linspace(0.0, float(way[-1]), count + 1)[1:-1]
        new.append(np.interp(marks, way, times[first : n + 1]))
        begin, end = times[first], times[n]
        # marks of earlier rounds within these steps give way to the new ones
        kept = kept[(kept <= begin) | (kept >= end)]
    wanted = np.unique(np.concatenate([kept, *new]))
    # none so near to a time that is hit anyway that a tiny step would be left
    near = partial(_is_near, sizes=sizes, times=times)
    return wanted[~near(wanted, np.concatenate([pinned, [times[0], times[-1]]]))]


def _is_near(wanted: Array, others: Array, *, times: Array, sizes: Array) -> npt.NDArray[np.bool_]:
    """Return which times have another one beside them, by a small part of the step there."""
    local: Any = sizes[np.clip(np.searchsorted(times, wanted) - 1, 0, sizes.size - 1)] / MOST
    ordered = np.unique(others)
    later = np.minimum(np.searchsorted(ordered, wanted), ordered.size - 1)
    before = np.maximum(later - 1, 0)
    distance = np.minimum(np.abs(ordered[later] - wanted), np.abs(wanted - ordered[before]))
    return distance < 0.01 * local
