"""Whether the steps of a run, which follow the states, resolve the derivatives as well.

Tangents satisfy du/dt = f_u du + f_p dp.  Where perturbations grow fast and die out again, as at
the jumps of relaxation oscillations and in earthquakes, they do so in steps that are short enough
for the state, and the derivatives may be wrong by any factor.  So they may where errors of the
states grow: derivatives are then those along another solution.  The same run with shorter steps,
and its tangents, tell both.

Source
------
docs/mathematics.md, section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.costs.cost import Cost, Scalar, Start
from daeosens.derivatives.branches.branch_changes import equations_of
from daeosens.derivatives.directions import admit_direction
from daeosens.derivatives.divided import chosen_at_kinks, divided, richardson, tightened
from daeosens.derivatives.engines.choice import choose_sweep
from daeosens.derivatives.looks.relative_directions import MANY_UNKNOWNS, relative_directions
from daeosens.derivatives.looks.seen import Seen, unseen_run, warn_of_no_look
from daeosens.derivatives.solve import solve
from daeosens.derivatives.sweeps.forward import sweep_forward
from daeosens.derivatives.tangent_errors import DENSE
from daeosens.derivatives.tangent_errors import Start as Moved
from daeosens.errors import DiscretizationWarning, KinkWarning, warn
from daeosens.methods import find_method
from daeosens.methods.dae.structure import null_projection
from daeosens.methods.linear_solver import block_solver
from daeosens.petsc.free_memory import free_memory
from daeosens.petsc.vectors import Array, maxima, read, summed
from daeosens.problem.callback_guard import unwrapped
from daeosens.problem.problem import Problem
from daeosens.problem.slope_check import deciding_lines
from daeosens.timestepping.c_rhs import repeats_python
from daeosens.timestepping.delayed_run import run_delayed
from daeosens.timestepping.dense_ts import directed_steps
from daeosens.timestepping.events.event_loop import run_of
from daeosens.timestepping.method_choice import (
    STIFF,
    held_by_stability,
    is_stiff,
)
from daeosens.timestepping.stepping import pinned_times
from daeosens.timestepping.trajectory.states import States
from daeosens.timestepping.trajectory.trajectory import Trajectory, unseen_unknowns

WRONG, MANY = 1e-3, 100.0
"""Estimated relative error of a derivative that is told, at least, and in units of rtol."""

SMALL, EXPECTED = 1e-5, 1000.0
"""Such an error that is told at tight tolerances, at least, and in units of rtol."""

KINK = 1000.0
"""Errors by kinks that are told, at least, in units of rtol."""

HELD = 25
"""Explicit steps held small by stability, at least, where another method is the remedy."""

SHARE = 0.25
"""The part of the memory that is free which tangents of a look may take."""

MANY_EVENTS = 100
"""More events at times of their own are passed in longer than all other steps of a look take."""

IMPLICIT = 1.5
"""The error of an implicit run as a multiple of its difference from one with half the steps: of
errors of stiff components, which fall with the order of the stages, a third is left."""

LEAST = 0.01
"""Part of the larger one of two derivatives that the other one is taken for, if it is smaller."""


Slopes: TypeAlias = "Sequence[tuple[int, Array]]"
"""Derivatives [n_local+1] of a cost in states and their times, with the numbers of the states."""

Numbers: TypeAlias = "Sequence[int] | npt.NDArray[np.int_]"


class _Estimated(NamedTuple):
    """Errors of the derivatives of some costs along a run.

    Attributes
    ----------
    costs : sequence of Cost
    start_held : bool
        Whether derivatives in the start were left out.
    errors : list of (float, float)
        From ``relative_errors``.
    """

    costs: Sequence[Cost]
    start_held: bool
    errors: list[tuple[float, float]]

    def holds(self, costs: Sequence[Cost], *, start_held: bool) -> bool:
        """Return whether they are those of these costs, by the same functions."""
        if self.start_held != start_held:
            return False
        return [_parts(cost) for cost in self.costs] == [_parts(cost) for cost in costs]


def _parts(cost: Cost) -> tuple[object, ...]:
    return (
        [(when, weight, id(scalar)) for when, weight, scalar in cost.points],
        [(weight, id(density)) for weight, density in cost.densities],
    )


_ESTIMATED: WeakKeyDictionary[Trajectory, _Estimated] = WeakKeyDictionary()
"""Of runs that somebody holds, those that were looked at last."""


def told_above(trajectory: Trajectory) -> float:
    """Return the estimated relative error of a derivative that is told of."""
    rtol, _ = trajectory.stepping.tolerances
    return min(max(WRONG, MANY * rtol), max(SMALL, EXPECTED * rtol))


def smaller_rtol(trajectory: Trajectory) -> str:
    """Return the remedy of a smaller tolerance, with methods of high order that fit the equations.

    Where stability would hold explicit steps small, none of these is named.  Collective.
    """
    problem, explicit = trajectory.problem, ("rk8vr",)
    names = explicit if problem.delays is not None else (*explicit, "esdirk6")
    names = [name for name in names if find_method(name).takes(problem)]
    if "esdirk6" in names and _has_algebraic(problem):
        # its estimates of algebraic variables are of order 3: steps of about rtol^(1/3)
        names[names.index("esdirk6")] = "esdirk5"
    if len(names) > 1 and is_stiff(trajectory, HELD):
        names = [name for name in names if name not in explicit]
    by = f" with a method of high order, {' or '.join(names)}" if names else ""
    return f"a much smaller rtol{by}"


def _has_algebraic(problem: Problem) -> bool:
    return null_projection(problem, partial(block_solver, options={})) is not None


def warn_of_unresolved(trajectory: Trajectory, costs: Sequence[Cost], seen: Seen) -> None:
    """Warn where adaptive steps do not resolve the derivatives of costs.

    Of runs by methods with embedded weights; by others only where steps go across kinks.
    Collective.
    """
    stepping, problem = trajectory.stepping, trajectory.problem
    if seen.equations_jump or seen.events_uncertain:  # which is told, and shows here as well
        return
    if trajectory.thinned or not trajectory.n_steps:
        return
    # a delay equation's divided run keeps its tolerances
    asked = stepping.resolved_method.tableau is not None and not stepping.shares
    if not (asked or seen.kink_left is not None) or not _is_quick(trajectory):
        return
    held, known = seen.start_held, _ESTIMATED.get(trajectory)
    # a product with the Hessian after the gradient: the same run, and the same errors
    holds = known is not None and known.holds(costs, start_held=held)
    if known is None or not problem.comm.tompi4py().allreduce(holds, MPI.LAND):
        gradients = None if seen.gradients is None else seen.gradients()
        errors = None
        with unseen_run() as failures:
            errors = relative_errors(trajectory, costs, start_held=held, gradients=gradients)
        if errors is None:
            warn_of_no_look("derivatives", failures, problem.comm)
            return
        known = _ESTIMATED[trajectory] = _Estimated(costs, held, errors)
    errors = known.errors
    by_parts = max((error for error, _ in errors), default=0.0)
    from_zero = max((error for _, error in errors), default=0.0)
    rtol, _ = stepping.tolerances
    if seen.kink_left is not None and by_parts > KINK * rtol:
        _warn_of_kink(trajectory, seen.kink_left, by_parts)
        return
    if not asked:
        return
    limit = told_above(trajectory)
    error = by_parts if by_parts > limit else from_zero
    seen.unresolved = error > limit
    if seen.unresolved:
        which = "" if by_parts > limit else " in the initial states that are zero"
        size = f"{100.0 * error:.2g} %" if error < 1.0 else "as much as their size"
        # between errors that the state shows, modes that have decayed grow from rounding; delay
        # equations are for explicit methods alone
        unstable = problem.delays is None and held_by_stability(trajectory, HELD) > 0
        first = f'method="{STIFF}", as stability holds most steps small; ' if unstable else ""
        unseen = unseen_unknowns(trajectory)
        if unseen is not None:
            first += f"atol={unseen[1]:.0e}, since unknowns {unseen[0]} are not seen beside atol; "
        controlled = 'Stepping(..., control="sensitivities"), or ' if problem.delays is None else ""
        warn(
            f"the steps follow the states, and derivatives{which} are wrong by about {size}: "
            "somewhere in this run they change faster than the states, or are small beside errors "
            "of these\n"
            f"  try: {first}{controlled}{smaller_rtol(trajectory)}; "
            "derivatives.derivative_error tells what is reached",
            DiscretizationWarning,
            problem.comm,
        )


def _is_quick(trajectory: Trajectory) -> bool:
    """Return whether a look takes about as long as some gradients, and memory that is there."""
    problem, method = trajectory.problem, trajectory.stepping.resolved_method
    # tangents of many unknowns, step by step in NumPy
    slow = method.explicit and problem.size > DENSE and directed_steps(problem, method) is None
    if slow or len(trajectory.moving) > 2 * MANY_EVENTS:
        return False
    if problem.size <= MANY_UNKNOWNS:
        return True
    # a finer run has twice the steps, and its tangents along three directions are there twice
    own = -(-problem.size // problem.comm.size)
    numbers = 3 * (1 + 2 * 3) * (trajectory.n_steps + 1) * own
    return 8 * numbers <= SHARE * free_memory(problem.comm.tompi4py())


def relative_errors(
    trajectory: Trajectory,
    costs: Sequence[Cost],
    *,
    start_held: bool = False,
    gradients: tuple[Array, Array] | None = None,
) -> list[tuple[float, float]] | None:
    """Return the estimated errors of derivatives of costs, relative to the size of their parts.

    Of each cost those of parameters and of initial states that are not zero, and of the others.
    None where the run with finer steps has other events; running costs are not looked at where
    events move.

    Along random directions (``relative_directions``): a state that decays from zero stays there,
    and steps may be longer than what perturbations of it allow.  Collective.

    Parameters
    ----------
    trajectory, costs
        The run, and lowered costs.
    start_held : bool
        Whether derivatives in the start are not asked for.
    gradients : (array [M, n_local], array [M, m_local]) or None
        Those of the costs in the start and in the parameters, if they are known: a product with
        them is as much as tangents of the run.
    """
    directions = relative_directions(trajectory, start_held=start_held)
    if directions is None:
        return []
    pairs, relative = directions
    if (
        trajectory.moving
    ):  # states between events are at times that move, in one run and not another
        costs = [replace(cost, densities=()) for cost in costs]
    comm = trajectory.problem.comm
    finer, parts = _finer_run(trajectory, costs)
    try:
        numbers = _same_states(trajectory, finer)
        if numbers is None:
            return None
        if finer.thinned:
            return []
        slopes = [_slopes(trajectory, cost) for cost in costs]
        # running costs are sums over states here, and integrals there; events may change p
        if gradients is None or trajectory.crossings or any(cost.densities for cost in costs):
            coarse = _tangents(trajectory, pairs, slopes, range(trajectory.n_steps + 1))
            changes = [
                _terms(of_cost, moved, comm)[0].sum(axis=0)
                for of_cost, moved in zip(slopes, coarse, strict=True)
            ]
        else:
            du = np.array([read(by_u) for by_u, _ in pairs])
            nothing = np.zeros(gradients[1].shape[1])
            dp = np.array([nothing if by_p is None else read(by_p) for _, by_p in pairs])
            explicit = [_by_parameters(trajectory, cost) for cost in costs]
            changes = [
                summed(du @ lam + dp @ (mu - own), comm)
                for lam, mu, own in zip(*gradients, explicit, strict=True)
            ]
        fine = _tangents(finer, pairs, slopes, numbers)
        method = trajectory.stepping.resolved_method
        factor = richardson(method.order, parts) if method.explicit else IMPLICIT
        errors = [
            _relative(factor, change, *_terms(of_cost, moved, comm), relative)
            for change, of_cost, moved in zip(changes, slopes, fine, strict=True)
        ]
        # to the last bit the same on all ranks, which go the same way
        return [
            (float(parts), float(zero)) for parts, zero in maxima(np.reshape(errors, (-1, 2)), comm)
        ]
    finally:
        finer.destroy()


@unwrapped
def _finer_run(trajectory: Trajectory, costs: Sequence[Cost]) -> tuple[Trajectory, int]:
    """Return the run by steps of at most half the size, which end where those of the run do.

    And how many parts of a step they are, at least.  Adaptive ones, by a smaller tolerance, since
    kinks and events of better states are elsewhere.
    """
    problem, stepping = trajectory.problem, trajectory.stepping
    points = {when for cost in costs for when, *_ in cost.points if isinstance(when, float)}
    # parts of the steps of a delay equation move as these do, with breaking points
    apart = problem.delays is not None and not chosen_at_kinks(trajectory)
    finer = None if apart else tightened(trajectory, sorted(points))
    if finer is None:
        take = run_of(problem) if problem.delays is None else run_delayed
        steps, parts = divided(trajectory)
        start = trajectory.stored[0].copy()
        pinned = pinned_times(steps, sorted(points), problem.breakpoints)
        return take(problem, start, trajectory.p, steps, pinned, "states"), parts
    (steps, times), start = finer, trajectory.stored[0]
    keeps = problem.size <= MANY_UNKNOWNS and repeats_python(problem, stepping.resolved_method)
    checkpoint: Literal["auto", "stages"] = "stages" if keeps else "auto"
    return solve(problem, start, trajectory.p, steps, times, checkpoint), 2


def _same_states(trajectory: Trajectory, finer: Trajectory) -> npt.NDArray[np.int_] | None:
    """Return the numbers [N+1] of the states of a run in the finer one.

    None where its events are others.
    """
    names = [[crossing.name for crossing in run.crossings] for run in (trajectory, finer)]
    if names[0] != names[1]:
        return None
    last = np.searchsorted(finer.times, trajectory.times, side="right") - 1
    first = np.searchsorted(finer.times, trajectory.times, side="left")
    numbers = np.minimum(first, last)  # the nearest before, where there is none at that time
    for mine, other in zip(trajectory.crossings, finer.crossings, strict=True):
        numbers[mine.step : mine.step + 2] = other.step, other.step + 1
    numbers[-1] = finer.n_steps
    return np.maximum(numbers, 0)


def _tangents(
    run: Trajectory, pairs: Sequence[Moved], slopes: Sequence[Slopes], numbers: Numbers
) -> list[Array]:
    """Return for each cost the tangents [S, D, n_local+1] of the states, and times, it looks at.

    ``numbers`` are those of the states in this run.  Collective.
    """
    admitted = [admit_direction(run.problem, *direction) for direction in pairs]
    engine = choose_sweep(run, "auto").engine
    looked_at = [[int(numbers[number]) for number, _ in of_cost] for of_cost in slopes]
    # vectors of some states; rows of all are sooner written than picked
    every = run.problem.comm.size == 1
    kept = sorted({number for of_cost in looked_at for number in of_cost})
    along = sweep_forward(run, admitted, engine, keep=every or frozenset(kept))
    size = run.problem.state.getLocalSize()
    tangents = [np.empty((len(of_cost), len(along), size + 1)) for of_cost in looked_at]
    for k, direction in enumerate(along):
        states = direction.states
        places = {number: n for n, number in enumerate(range(len(states)) if every else kept)}
        for moved, of_cost in zip(tangents, looked_at, strict=True):
            if isinstance(states, States):
                moved[:, k, :-1] = states.rows[of_cost]
            else:
                for row, number in zip(moved, of_cost, strict=True):
                    row[k, :-1] = read(states[places[number]])
            moved[:, k, -1] = np.take(direction.times, of_cost)
    return tangents


def _warn_of_kink(trajectory: Trajectory, time: float, error: float) -> None:
    """Warn of what a kink inside a step, where no step ends, costs derivatives."""
    problem = trajectory.problem
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
        problem.comm,
    )


def _terms(slopes: Slopes, moved: Array, comm: PETSc.Comm) -> tuple[Array, Array]:
    """Return what each slope makes of tangents [S, D, ...], and the same of absolute values.

    Both [S, D].  Collective.
    """
    terms = [states @ slope for states, (_, slope) in zip(moved, slopes, strict=True)]
    sizes = [np.abs(s) @ np.abs(slope) for s, (_, slope) in zip(moved, slopes, strict=True)]
    both = summed(np.reshape([*terms, *sizes], (2, len(slopes), moved.shape[1])), comm)
    return both[0], both[1]


def _relative(
    factor: float, coarse: Array, terms: Array, sizes: Array, relative: int
) -> tuple[float, float]:
    """Return the largest relative errors along both kinds of directions, by two runs' tangents.

    ``coarse`` [D] are changes of the cost along the run, ``terms`` [S, D] those along the finer
    one, which add up; the error is ``factor`` times their difference.

    Relative to the sum of the absolute values of all terms: where they cancel, at the minimum of a
    misfit, nothing is said.  A derivative that is no hundredth of the other one counts as that.
    Directions after the first ``relative`` ones are of states from zero, which nobody knows the
    size of: large as they are, they leave the others what these are.
    """
    # by the slopes of the one run: those of a misfit without noise are errors of the states
    whole = sizes.sum(axis=0)
    missing = factor * np.abs(coarse - terms.sum(axis=0))
    least = LEAST * float(whole[:relative].max(initial=0.0))
    whole = np.maximum(whole, least)
    part = missing / np.where(whole > 0.0, whole, np.inf)
    return float(part[:relative].max(initial=0.0)), float(part[relative:].max(initial=0.0))


def _slopes(trajectory: Trajectory, cost: Cost) -> list[tuple[int, Array]]:
    """Return the derivatives [n_local+1] of a cost in states and times, by the state's number.

    Running costs are sums over the states of the run.
    """
    slopes: list[tuple[int, Array]] = []
    by_u, first = trajectory.problem.create_state(), trajectory.problem.comm.rank == 0

    def add(number: int, weight: float, scalar: Scalar) -> None:
        _, p = trajectory.equations(min(number, trajectory.n_steps - 1))
        point = float(trajectory.times[number]), trajectory.stored[number], p
        by_u.zeroEntries()
        scalar.add_u(weight, *point, by_u)
        by_t = weight * scalar.value_t(*point) if trajectory.moving else 0.0
        # all ranks have the derivative in the time, and one adds it up
        slopes.append((number, np.append(read(by_u), by_t if first else 0.0)))

    for when, weight, scalar in cost.points:
        if not isinstance(when, Start):
            add(trajectory.index(when), weight, scalar)
    if cost.densities:
        sizes = np.concatenate([[0.0], trajectory.step_sizes, [0.0]])
        shares = 0.5 * (sizes[1:] + sizes[:-1])
        for number, share in enumerate(shares.tolist()):
            for weight, density in cost.densities:
                add(number, share * weight, density)
    return slopes


def _by_parameters(trajectory: Trajectory, cost: Cost) -> Array:
    """Return the derivative [m_local] of a cost in the parameters that it reads itself."""
    by_p = trajectory.problem.create_parameters()
    for when, weight, scalar in cost.points:
        number = 0 if isinstance(when, Start) else trajectory.index(when)
        _, p = trajectory.equations(min(number, trajectory.n_steps - 1))
        point = float(trajectory.times[number]), trajectory.stored[number], p
        scalar.add_p(weight, *point, by_p)
    return read(by_p)
