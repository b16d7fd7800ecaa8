"""Which look is taken at a run, and when: the one place where cost and cadence are decided.

Runs of one problem resemble each other: a look at the first of them says most of what there is to
say.  Later ones are looked at ever more rarely, the 8th, the 64th, ..., so that the cost of all
looks together stays small beside that of the derivatives.  What solvers left in the steps is added
up by every sweep, and told each time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from petsc4py import PETSc

from daeosens.costs.cost import Cost
from daeosens.costs.objective import Objective
from daeosens.derivatives.cadence import is_due, is_power_of_two
from daeosens.derivatives.looks.cost_kinks import warn_of_cost_kinks
from daeosens.derivatives.looks.events import warn_of_uncertain_events
from daeosens.derivatives.looks.kinks import warn_of_jumps, warn_of_kinks
from daeosens.derivatives.looks.orders import meets_end, warn_of_orders
from daeosens.derivatives.looks.products import (
    Products,
    concerns_products,
    moves_first_order_steps,
    warn_of_first_order_steps,
    warn_of_unresolved_products,
)
from daeosens.derivatives.looks.resolution import warn_of_unresolved
from daeosens.derivatives.looks.running_costs import warn_of_running_costs
from daeosens.derivatives.looks.seen import Seen
from daeosens.derivatives.looks.start import warn_of_start
from daeosens.derivatives.sweeps.kink_terms import KinkTerm
from daeosens.errors import SolverErrorWarning, warn
from daeosens.petsc.vectors import Array
from daeosens.problem.problem import Problem, ProblemCache
from daeosens.timestepping.trajectory.trajectory import Trajectory

_SEEN = ProblemCache(Seen)

LEFT_BY_SOLVERS = 1e-5
"""Estimates above this part of a derivative are told."""

_USES_OF_FUNCTIONS: WeakKeyDictionary[object, list[int]] = WeakKeyDictionary()
"""How often gradients were taken of costs of a function: lists of one number, which are changed."""


@dataclass(frozen=True, eq=False)  # a key of ``seen.uses``, which is asked at every derivative
class _Look:
    """A look at the runs of a problem.

    Attributes
    ----------
    take : callable
        ``take(trajectory, costs, seen)`` warns of what it sees, and notes it in ``seen``.
    concerns : callable
        Whether a run could have what it looks for.  Asked at every derivative, so it is quick.
    again : callable
        ``again(seen, use)``: whether a use that is not the 1st, 8th, 64th, ... is worth a look too.
    """

    take: Callable[[Trajectory, Sequence[Cost], Seen], None]
    concerns: Callable[[Trajectory, Sequence[Cost]], bool]
    again: Callable[[Seen, int], bool] = lambda _seen, _use: False


# an evaluation of the equations at each state; where branches change sides, later runs may meet
# others: the 2nd, the 4th, ... are looked at as well
_JUMPS = _Look(
    warn_of_jumps,
    lambda trajectory, _costs: trajectory.problem.branches_known,
    lambda seen, use: seen.branches_change and is_power_of_two(use),
)

# the stages of all steps
_RUNNING_COSTS = _Look(
    warn_of_running_costs,
    lambda trajectory, costs: (
        trajectory.stepping.adaptive and any(cost.densities for cost in costs)
    ),
)

# as long as some gradients; where derivatives were wrong, every later run too
_RESOLUTION = _Look(
    warn_of_unresolved,
    lambda trajectory, costs: (
        bool(costs) and trajectory.stepping.adaptive and trajectory.stepping.control == "states"
    ),
    lambda seen, _use: seen.unresolved,
)

# two rates and derivatives of the function at each event; where these tell it, one more run
_EVENTS = _Look(
    warn_of_uncertain_events,
    lambda trajectory, _costs: (
        bool(trajectory.crossings)
        and trajectory.stepping.adaptive
        and not trajectory.thinned
        and trajectory.problem.delays is None
        and not trajectory.problem.field_parameter
    ),
)

# some rates and jumps, only where times of a delay equation meet
_ORDERS, _ORDERS_OF_SECOND = (
    _Look(
        lambda trajectory, costs, _seen, second=second: warn_of_orders(
            trajectory, costs, second=second
        ),
        lambda trajectory, _costs: (
            trajectory.problem.delays is not None
            and (not trajectory.step_sizes.all() or meets_end(trajectory))
        ),
        lambda _seen, _use: True,
    )
    for second in (False, True)
)

# one derivative of the equations in p
_START = _Look(
    warn_of_start,
    lambda trajectory, _costs: (
        trajectory.problem.form != "rhs" and trajectory.stepping.resolved_method.carried > 0.0
    ),
)

# nothing but a look at the records of steps
_FIRST_ORDER = _Look(warn_of_first_order_steps, moves_first_order_steps)


def look(
    trajectory: Trajectory,
    costs: Sequence[Cost] = (),
    *,
    second: bool = False,
    gradients: Callable[[], tuple[Array, Array]] | None = None,
) -> Sequence[KinkTerm]:
    """Look at a run whose derivatives are taken, if it is time to, and warn of what is seen.

    Return what kinks contribute to second derivatives.  Collective.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``.
    costs : sequence of Cost
        Lowered costs that are differentiated; none for tangents.
    second : bool
        Whether second derivatives are taken; then kinks are looked for at each call.
    gradients : callable, optional
        Returns those of the costs in the start [M, n] and in the parameters [M, m], if they are
        known.
    """
    seen, kinks = _SEEN.of(trajectory.problem), list[KinkTerm]()
    if second:
        kinks, told = warn_of_kinks(trajectory, seen)
        seen.kink_terms = None if told else len(kinks)
        if not told:
            warn_of_cost_kinks(trajectory, costs, seen, second=True)
        looks = (_EVENTS, _RESOLUTION, _ORDERS_OF_SECOND, _START, _FIRST_ORDER)
    else:
        looks = (_JUMPS, _RUNNING_COSTS, _EVENTS, _RESOLUTION, _ORDERS, _START)
    seen.gradients = gradients
    try:
        for item in looks:
            if item.concerns(trajectory, costs):
                seen.uses[item] = use = seen.uses.get(item, 0) + 1
                if is_due(use) or item.again(seen, use):
                    item.take(trajectory, costs, seen)
    finally:
        seen.gradients = None  # which would keep a sweep alive
    if costs and not second:
        _look_at_costs(trajectory, costs, seen)
    return kinks


def look_at_products(
    trajectory: Trajectory,
    objective: Objective,
    products: Callable[[], Products],
    again: Callable[[Trajectory], Products],
) -> None:
    """Look at the first products with a Hessian, if it is time to, and warn of what is seen.

    As long as three of them.  ``products`` returns them, ``again`` those along another run.
    """
    seen = _SEEN.of(trajectory.problem)
    if concerns_products(trajectory, seen):
        seen.uses[look_at_products] = use = seen.uses.get(look_at_products, 0) + 1
        if is_due(use) or seen.products_unresolved:
            warn_of_unresolved_products(trajectory, objective, products(), again, seen)


def note_that_start_follows(problem: Problem) -> None:
    """Note that the start's own derivative in the parameters is added to gradients."""
    _SEEN.of(problem).start_follows = True


@contextmanager
def start_held(problem: Problem, *, held: bool) -> Generator[None]:
    """Take derivatives of which those in the start are not asked for, if it is held.

    Looks say nothing of these then.
    """
    seen = _SEEN.of(problem)
    before, seen.start_held = seen.start_held, held
    try:
        yield
    finally:
        seen.start_held = before


def _look_at_costs(trajectory: Trajectory, costs: Sequence[Cost], seen: Seen) -> None:
    """Look for kinks of the costs whose functions were not looked at for some time.

    An evaluation at each state of a running cost, one at each point of others.
    """
    if trajectory.problem.comm.size > 1:
        return
    due: dict[int, bool] = {}
    # kinks that such steps pass spoil gradients whatever their sizes: each run is looked at
    moves = trajectory.problem.delays is not None
    # the gradient of a small traced model takes 30 microseconds: no copies where no look is due
    for cost in costs:
        for part in (cost.points, cost.densities):
            for entry in part:
                branches = getattr(entry[-1], "branches", None)
                if branches is not None and id(branches.function) not in due:
                    due[id(branches.function)] = _is_cost_due(branches.function) or moves
    if any(due.values()):

        def is_due_now(scalar: Any) -> bool:
            branches = getattr(scalar, "branches", None)
            return branches is not None and due[id(branches.function)]

        left = [
            Cost(
                tuple(entry for entry in cost.points if is_due_now(entry[-1])),
                tuple(entry for entry in cost.densities if is_due_now(entry[-1])),
            )
            for cost in costs
        ]
        warn_of_cost_kinks(trajectory, left, seen, second=False)


def _is_cost_due(function: object) -> bool:
    """Count a gradient of a cost of a function, and return whether it is looked at."""
    try:
        uses = _USES_OF_FUNCTIONS.get(function)
        if uses is None:
            uses = _USES_OF_FUNCTIONS[function] = [0]
    except TypeError:  # what cannot be referred to weakly
        return True
    uses[0] += 1
    return is_due(uses[0])


def solver_error(trajectory: Trajectory, linear: float) -> float:
    """Return an estimate of the relative error that solvers left; warn of a large one.

    Of first order: an error of a state changes the matrix of its step by about as large a part,
    unless the equations are affine in u, and errors of steps add up.

    Parameters
    ----------
    trajectory : Trajectory
        What is differentiated.
    linear : float
        What the linear solves of the sweep left, added up.
    """
    if linear == trajectory.effort.remainder == 0.0:  # nothing was solved, or nothing was left
        return 0.0
    chosen = _ends_newton(trajectory)
    # in adaptive runs, with the library's own limits, that of unknowns far below atol: rounding
    seen = chosen or not trajectory.stepping.adaptive
    affine = trajectory.problem.residual_u.constant
    newton = trajectory.effort.remainder if seen and not affine else 0.0
    total = newton + linear
    if linear > LEFT_BY_SOLVERS:
        _warn_of_solver(trajectory, total, "the linear solver", 'options without "ksp_rtol"')
    elif total > LEFT_BY_SOLVERS and chosen:
        remedy = 'options without "snes_type", "snes_rtol", "snes_stol", "snes_max_it"'
        _warn_of_solver(trajectory, total, "Newton's method", remedy)
    return total


def _ends_newton(trajectory: Trajectory) -> bool:
    """Whether the user has said when Newton's method ends.

    By itself it goes on to the rounding, of which the sum over all steps and the least known of all
    unknowns is far too much: as a bound it is worth knowing, as a warning it is not.
    """
    options = (*trajectory.stepping.options, *PETSc.Options().getAll())
    return any(name.lower().lstrip("-").startswith("snes_") for name in options)


def _warn_of_solver(trajectory: Trajectory, error: float, cause: str, remedy: str) -> None:
    warn(
        f"derivatives may be wrong by {error:.0e} of their size, which is what {cause} left in "
        f"the {trajectory.n_steps} steps\n  try: {remedy}",
        SolverErrorWarning,
        trajectory.problem.comm,
    )
