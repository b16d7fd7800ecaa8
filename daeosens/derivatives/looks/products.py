"""Whether adaptive steps, which follow the states, resolve a Hessian product as well.

Second derivatives satisfy equations of their own, in which perturbations of perturbations grow:
steps that resolve states and first derivatives may leave them wrong by several per cent.  They have
no embedded error estimate, so the run is taken once more with each step divided.

Source
------
docs/mathematics.md, section 6; Richardson's extrapolation of the steps that were taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Cost
from daeosens.costs.objective import Objective
from daeosens.derivatives.divided import divided, falling_order, richardson
from daeosens.derivatives.looks.relative_directions import largest_sizes
from daeosens.derivatives.looks.resolution import LEAST, WRONG, smaller_rtol, told_above
from daeosens.derivatives.looks.seen import Seen, unseen_run, warn_of_no_look
from daeosens.derivatives.step_placement.kink_cuts import cut_at_kinks
from daeosens.errors import DiscretizationWarning, warn
from daeosens.petsc.vectors import Array, maxima, read
from daeosens.problem.callback_guard import unwrapped
from daeosens.timestepping.c_rhs import repeats_python
from daeosens.timestepping.consistency_check import known_algebraic_rows
from daeosens.timestepping.delayed_run import run_delayed
from daeosens.timestepping.events.event_loop import run_of
from daeosens.timestepping.stepping import Stepping, pinned_times
from daeosens.timestepping.trajectory.trajectory import Recording, Trajectory

LARGE = 500
"""So many unknowns, or more, are too many for a look that takes as long as a few products."""

Products = Sequence[tuple[Array, Array, float]]
"""The parts of each product in the initial state [n_local] and the parameters: of numbers [m],
which every rank has, or of a field [m_local]; and what the cost changes along the direction."""


def moves_first_order_steps(trajectory: Trajectory, costs: Sequence[Cost]) -> bool:
    """Return whether sizes of steps of a method of order one depend on what is differentiated."""
    del costs
    first_order = trajectory.stepping.resolved_method.order == 1
    return first_order and any(record.ends_at is not None for record in trajectory.records)


def warn_of_first_order_steps(trajectory: Trajectory, costs: Sequence[Cost], seen: Seen) -> None:
    """Warn that second derivatives through the time of an event do not converge.

    A step of order one has another second derivative in its size than the solution, however small
    it is: backward Euler's is twice as large for u' = a u, and explicit Euler has none.
    """
    del costs, seen
    ends = (record.ends_at for record in trajectory.records)
    name = next(switch.name for switch in ends if switch is not None)
    warn(
        f'second derivatives through the time of event "{name}" do not converge by '
        f'"{trajectory.stepping.resolved_method.name}", a method of order one: those of a step in '
        "its size are not the solution's, however small the step is\n"
        '  try: a method of higher order, "cn" or "esdirk4"',
        DiscretizationWarning,
        trajectory.problem.comm,
    )


def concerns_products(trajectory: Trajectory, seen: Seen) -> bool:
    """Return whether a run may not resolve second derivatives, and could be taken again quickly.

    Steps that are controlled by sensitivities may leave them wrong as well.
    Where products lack what a kink contributes, that is told (``kinks``), and shows here as well.
    """
    problem = trajectory.problem
    # a direction that leaves the algebraic equations at the start alternates from step to step, by
    # theta methods below 1: a product's parts in u0 and p hang on the number of steps, and only
    # their sum along a consistent direction is the solution's
    alternates = known_algebraic_rows(problem) is not None
    return (
        trajectory.stepping.adaptive
        and not trajectory.stepping.shares  # of the divided run of a delay equation
        and not (alternates and trajectory.stepping.resolved_method.carried)
        and trajectory.stepping.cut
        and problem.size < LARGE
        and not (trajectory.thinned or seen.kink_terms is None or seen.equations_jump)
    )


def warn_of_unresolved_products(
    trajectory: Trajectory,
    objective: Objective,
    products: Products,
    again: Callable[[Trajectory], Products],
    seen: Seen,
) -> None:
    """Warn where products with a Hessian change much when all steps are divided.

    ``again`` returns them along another run.
    """
    most = told_above(trajectory)
    # entries of a start that algebraic equations hold are no derivatives of what can be run
    if known_algebraic_rows(trajectory.problem) is not None:
        most = max(most, WRONG)
    error, kinks = None, seen.kink_terms
    with unseen_run() as failures:
        error = _error(trajectory, objective, products, again, seen)
    seen.kink_terms = kinks
    if failures:
        warn_of_no_look("products with the Hessian", failures, trajectory.problem.comm)
        return
    if error is None or error > most:
        # Rounding may spoil second derivatives at single points (x / (exp(x) - 1) close to x = 0),
        # of the parts as well: steps that are resolved differ from one of two finer runs at most.
        with unseen_run():
            other = _error(trajectory, objective, products, again, seen, finer=True)
            error = other if error is None else error if other is None else min(error, other)
        seen.kink_terms = kinks
    if error is None:
        return
    seen.products_unresolved = error > most
    if seen.products_unresolved:
        size = f"{100.0 * error:.2g} %" if error < 1.0 else "as much as their size"
        followed = "states" if trajectory.stepping.control == "states" else "first derivatives"
        warn(
            f"the steps follow the {followed}, and entries of a product with the "
            f"Hessian are wrong by about {size}: second derivatives change faster than these\n"
            f"  try: {smaller_rtol(trajectory)}; "
            "derivatives.derivative_error(run, objective, du0, dp) tells what is reached",
            DiscretizationWarning,
            trajectory.problem.comm,
        )


@unwrapped
def _again(trajectory: Trajectory, objective: Objective, steps: Stepping) -> Trajectory:
    """Return the run with other steps, which end at its own kinks.

    Raises
    ------
    SolveError
        Steps that are taken as they are fail.
    """
    problem, start = trajectory.problem, trajectory.stored[0].copy()
    run = run_of(problem) if problem.delays is None else run_delayed
    keeps = repeats_python(problem, steps.resolved_method)
    record: Recording = "stages" if keeps else "states"

    def take(start: PETSc.Vec, times: Array) -> Trajectory:
        pinned = pinned_times(steps, times, problem.breakpoints)
        return run(problem, start, trajectory.p, steps, pinned, record)

    times = np.asarray(objective.times, dtype=float)
    if problem.delays is not None:
        return take(start, times)
    rtol, _ = trajectory.stepping.tolerances
    return cut_at_kinks(take(start, times), times, take, rtol)


def _error(
    trajectory: Trajectory,
    objective: Objective,
    products: Products,
    again: Callable[[Trajectory], Products],
    seen: Seen,
    *,
    finer: bool = False,
) -> float | None:
    """Return the largest error of an entry that products along finer steps tell, relative to it.

    Of small ones relative to a part of the largest, or of what the product is the derivative of:
    what the cost changes along the direction.  A product that is zero has no size of its own.
    None where what kinks contribute is missing in one of both runs.  Collective.
    """
    steps, parts = divided(trajectory, finer=finer)
    factor = richardson(falling_order(trajectory), parts)
    kinks = seen.kink_terms
    better = again(_again(trajectory, objective, steps))
    if seen.kink_terms != kinks:
        return None
    # changes of a cost for relative changes of what it depends on: those have one unit; of unknowns
    # that start at 0 relative to what they become
    first = np.abs(read(trajectory.stored[0]))
    sizes = np.where(first > 0.0, first, largest_sizes(trajectory))
    p: Any = trajectory.p
    sizes = np.concatenate([sizes, np.abs(read(p) if trajectory.problem.field_parameter else p)])
    error, comm = 0.0, trajectory.problem.comm
    for (*product, change), (*other, _) in zip(products, better, strict=True):
        finest = np.concatenate(other)
        # a product that has grown out of all numbers is as wrong as can be; no maximum keeps NaN
        scaled = np.nan_to_num(np.abs(finest) * sizes, nan=np.inf, posinf=np.inf)
        missing = factor * np.abs(np.concatenate(product) - finest) * sizes
        most = max(float(maxima(np.array([scaled.max(initial=0.0)]), comm)[0]), change)
        if most > 0.0:
            parts = missing / np.maximum(scaled, LEAST * most)
            error = max(error, float(np.nan_to_num(parts, nan=np.inf).max(initial=0.0)))
    return float(maxima(np.array([error]), comm)[0])
