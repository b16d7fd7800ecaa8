"""Whether the steps of a run, which follow the states, resolve the derivatives as well.

Tangents satisfy du/dt = f_u du + f_p dp.  Each step makes an error in them, of which the method's
embedded weights give an estimate as they do of the state's; carried on by the tangents of the later
steps, the errors add up to that of a derivative of a cost.  Where perturbations grow fast and die
out again, as at the jumps of relaxation oscillations and in earthquakes, they do so in steps that
are short enough for the state, and the derivatives may be wrong by any factor.

Source
------
docs/mathematics.md, section 6.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Cost, Scalar, Start
from daeosens.derivatives.halved import halved
from daeosens.derivatives.looks.branch_changes import equations_of
from daeosens.derivatives.looks.seen import Seen
from daeosens.derivatives.sweeps.forward import direction_arrays
from daeosens.derivatives.tangent_errors import (
    accumulated_errors,
    consistent_directions,
    tangents,
)
from daeosens.errors import DiscretizationWarning, KinkWarning, SolveError, warn
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.problem import Problem
from daeosens.problem.slope_check import deciding_lines
from daeosens.timestepping.consistency_check import known_algebraic_rows
from daeosens.timestepping.delayed_run import run_delayed
from daeosens.timestepping.events.event_loop import run_of
from daeosens.timestepping.method_choice import STIFF, held_by_stability
from daeosens.timestepping.stepping import pinned_times
from daeosens.timestepping.trajectory.trajectory import Trajectory, unseen_unknowns

WRONG, MANY = 1e-3, 100.0
"""Estimated relative error of a derivative that is told, at least, and in units of rtol."""

SMALL, EXPECTED = 1e-5, 1000.0
"""Such an error that is told at tight tolerances, at least, and in units of rtol."""

KINK = 1000.0
"""Errors by kinks that are told, at least, in units of rtol."""

HELD = 25
"""Explicit steps held small by stability, at least, where another method is the remedy."""

SAMPLES = 3
"""So many random directions of each kind: along one of them errors of entries may cancel."""

MANY_EVENTS = 100
"""More events at times of their own are passed in longer than all other steps of a look take."""

LEAST = 0.01
"""Part of the larger one of two derivatives that the other one is taken for, if it is smaller."""


def told_above(trajectory: Trajectory) -> float:
    """Return the estimated relative error of a derivative that is told of."""
    rtol, _ = trajectory.stepping.tolerances
    loose = max(WRONG, MANY * rtol)
    # parts in a start that algebraic equations hold are no derivatives of what can be run
    if known_algebraic_rows(trajectory.problem) is not None:
        return loose
    return min(loose, max(SMALL, EXPECTED * rtol))


def warn_of_unresolved(trajectory: Trajectory, costs: Sequence[Cost], seen: Seen) -> None:
    """Warn where adaptive steps do not resolve the derivatives of costs.

    Of runs on one rank, by methods with embedded weights; by others only where steps go across
    kinks.
    """
    stepping, problem = trajectory.stepping, trajectory.problem
    method = stepping.resolved_method
    if seen.equations_jump or seen.events_uncertain:  # which is told, and shows here as well
        return
    if problem.comm.size > 1 or trajectory.thinned or not trajectory.n_steps:
        return
    if len(trajectory.moving) > 2 * MANY_EVENTS:
        return
    if seen.kink_left is not None and _warn_of_kink(trajectory, costs, seen.kink_left):
        return
    if method.tableau is None or problem.delays is not None:  # no estimates of errors in tangents
        return
    errors = relative_errors(trajectory, costs, start_held=seen.start_held)
    # that of a method of one order less
    power = method.order / (method.order - 1) if method.explicit else 1.0
    by_parts = max((error for error, _ in errors), default=0.0) ** power
    from_zero = max((error for _, error in errors), default=0.0) ** power
    limit = told_above(trajectory)
    error = by_parts if by_parts > limit else from_zero
    seen.unresolved = error > limit
    if seen.unresolved:
        which = "" if by_parts > limit else " in the initial states that are zero"
        size = f"{100.0 * error:.2g} %" if error < 1.0 else "as much as their size"
        # between errors that the state shows, modes that have decayed grow from rounding
        unstable = held_by_stability(trajectory, HELD) > 0
        first = f'method="{STIFF}", as stability holds most steps small; ' if unstable else ""
        unseen = unseen_unknowns(trajectory)
        if unseen is not None:
            first += f"atol={unseen[1]:.0e}, since unknowns {unseen[0]} are not seen beside atol; "
        warn(
            f"the steps follow the states, and derivatives{which} are wrong by about {size}: "
            "somewhere in this run they change faster than the states, or are small beside errors "
            "of these\n"
            f'  try: {first}Stepping(..., control="sensitivities"), or a much smaller rtol with a '
            "method of high order, rk8vr or esdirk6; derivatives.derivative_error tells what is "
            "reached",
            DiscretizationWarning,
        )


def relative_errors(
    trajectory: Trajectory, costs: Sequence[Cost], *, start_held: bool = False
) -> list[tuple[float, float]]:
    """Return the estimated errors of derivatives of costs, relative to the size of their parts.

    Of each cost those of parameters and of initial states that are not zero, and of the others.

    Along some directions of three kinds: changes, of random signs and sizes, of all initial states
    that are not zero and of all parameters by parts of themselves, and of the initial states that
    are zero by parts of what these states become: one that decays from zero stays there, and steps
    may be longer than what perturbations of it allow.  Of parameters alone if the start is held.
    """
    directions = relative_directions(trajectory, start_held=start_held)
    ends = None if directions is None else accumulated_errors(trajectory, *directions[:2])
    if directions is None or ends is None:
        return []
    return [_relative(trajectory, cost, *ends, directions[2]) for cost in costs]


def relative_directions(
    trajectory: Trajectory, *, start_held: bool = False
) -> tuple[Array, Array, int] | None:
    """Return the directions of ``relative_errors``, and how many are not of states from zero."""
    problem, start = trajectory.problem, trajectory.u[0]
    rng, count = np.random.default_rng(0), problem.size + problem.n_parameters
    sizes = np.abs(trajectory.u).max(axis=0)
    typical = float(sizes.max()) or 1.0
    from_zero = np.where(start == 0.0, np.where(sizes > 0.0, sizes, typical), 0.0)
    by_size = np.concatenate([np.abs(start), np.abs(np.asarray(trajectory.p))])
    changes: list[tuple[PETSc.Vec, PETSc.Vec | None]] = []
    raised: list[tuple[PETSc.Vec, PETSc.Vec | None]] = []
    # single steps through events take one direction after the other
    for _ in range(1 if trajectory.moving else SAMPLES):
        # of different sizes: where a model has a symmetry, equal parts may change nothing at all
        parts = rng.choice([-1.0, 1.0], count) * rng.uniform(0.5, 1.0, count)
        moved, fixed, by_p = (
            problem.create_state(),
            problem.create_state(),
            problem.create_parameters(),
        )
        write(moved, (parts * by_size)[: problem.size])
        write(by_p, (parts * by_size)[problem.size :])
        changes.append((fixed, by_p))
        if start_held:
            continue
        changes.append((moved, None))
        if from_zero.any():
            zero = problem.create_state()
            write(zero, parts[: problem.size] * from_zero)
            raised.append((zero, None))
    # algebraic variables follow the others, or the first step would have to bring them there
    try:
        pairs = consistent_directions(trajectory, changes)
        relative = len(pairs)
        pairs += consistent_directions(trajectory, raised)
    except SolveError:  # of index two and more there are none here, but there is a gradient
        return None
    return *direction_arrays(trajectory, pairs), relative


def _warn_of_kink(trajectory: Trajectory, costs: Sequence[Cost], time: float) -> bool:
    """Warn if a kink inside of a step, where no step ends, costs derivatives; return whether.

    By the run with halved steps: estimates of steps' errors are for smooth equations.
    """
    directions, problem = relative_directions(trajectory), trajectory.problem
    points = [point for cost in costs for point, *_ in cost.points]
    times = [point for point in points if isinstance(point, float)]
    if directions is None or len(times) < len(points):
        return False
    du, dp, relative = directions
    finer = halved(trajectory)
    try:
        start = trajectory.stored[0].copy()
        pinned = pinned_times(finer, sorted(set(times)), problem.breakpoints)
        taken = run_of(problem) if problem.delays is None else run_delayed
        other = taken(problem, start, trajectory.p, finer, pinned, "stages")
    except SolveError:
        return False
    pairs = [(moved, _vector(problem, by_p)) for moved, by_p in zip(du, dp, strict=True)]
    both = [tangents(run, pairs) for run in (trajectory, other)]
    error = 0.0
    for cost in costs:
        terms = [
            np.array([values[number] @ slope[:-1] for number, slope in _slopes(run, cost)])
            for run, values in zip((trajectory, other), both, strict=True)
        ]
        if not terms[0].size:
            continue
        whole = np.abs(terms[1]).sum(axis=0)[:relative]
        missing = np.abs((terms[0] - terms[1]).sum(axis=0))[:relative]
        if whole.max(initial=0.0) > 0.0:
            error = max(error, float(missing.max() / whole.max()))
    rtol, _ = trajectory.stepping.tolerances
    if error <= KINK * rtol:
        return False
    n = min(max(int(np.searchsorted(trajectory.times, time)) - 1, 0), trajectory.n_steps - 1)
    function, (t, u, _) = equations_of(trajectory), trajectory.point_at(n)
    lines = [] if function is None else deciding_lines(lambda: function.decide(n, t, read(u)))
    known = "breakpoints= for a time that is known, a smaller rtol, or a function that is smooth"
    if problem.delays is None:
        event = "events=[daeosens.Event(lambda t, u, p: <what changes its sign>)]"
        known = f"an event there, {event}, {known}"
    warn(
        f"a step goes across a kink of the equations near t = {time:.6g}"
        + (f", {', '.join(lines)}" if lines else "")
        + f": derivatives are wrong by about {error:.1g} of their size, by kinks like this one\n"
        f"  try: {known} there",
        KinkWarning,
    )
    return True


def _vector(problem: Problem, dp: Array) -> Array | PETSc.Vec:
    """Return a direction of parameters as it is taken where they are a field."""
    if not problem.field_parameter:
        return dp
    vec = problem.create_parameters()
    write(vec, dp)
    return vec


def _relative(
    trajectory: Trajectory, cost: Cost, tangents: Array, errors: Array, relative: int
) -> tuple[float, float]:
    """Return the largest relative errors along both kinds of directions, of tangents [N+1, D, n+1].

    Relative to the sum of the absolute values of all terms: where they cancel, at the minimum of a
    misfit, nothing is said.  A derivative that is no hundredth of the other one counts as that.
    Directions after the first ``relative`` ones are of states from zero, which nobody knows the
    size of: large as they are, they leave the others what these are.
    """
    missing, whole = np.zeros((2, tangents.shape[1]))
    for number, slope in _slopes(trajectory, cost):
        missing += errors[number] @ slope
        whole += np.abs(tangents[number]) @ np.abs(slope)
    least = LEAST * float(whole[:relative].max(initial=0.0))
    whole = np.maximum(whole, least)
    part = np.abs(missing) / np.where(whole > 0.0, whole, np.inf)
    return float(part[:relative].max(initial=0.0)), float(part[relative:].max(initial=0.0))


def _slopes(trajectory: Trajectory, cost: Cost) -> list[tuple[int, Array]]:
    """Return the derivatives [n+1] of a cost in states and times, by the number of the state."""
    slopes: list[tuple[int, Array]] = []
    by_u = trajectory.problem.create_state()

    def add(number: int, weight: float, scalar: Scalar) -> None:
        _, p = trajectory.equations(min(number, trajectory.n_steps - 1))
        point = float(trajectory.times[number]), trajectory.stored[number], p
        by_u.zeroEntries()
        scalar.add_u(weight, *point, by_u)
        by_t = weight * scalar.value_t(*point) if trajectory.moving else 0.0
        slopes.append((number, np.append(read(by_u), by_t)))

    for when, weight, scalar in cost.points:
        if not isinstance(when, Start):
            add(trajectory.index(when), weight, scalar)
    if cost.densities:
        sizes = np.concatenate([[0.0], trajectory.step_sizes, [0.0]])
        for number, share in enumerate((0.5 * (sizes[1:] + sizes[:-1])).tolist()):
            for weight, density in cost.densities:
                add(number, share * weight, density)
    return slopes
