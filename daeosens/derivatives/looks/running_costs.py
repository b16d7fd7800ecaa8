"""Running costs that vary faster than the steps, whose sizes the states alone have chosen."""

from __future__ import annotations

from collections.abc import Sequence

from daeosens.costs.cost import Cost
from daeosens.derivatives.engines.delays.program import program_of
from daeosens.derivatives.engines.delays.running import RunningCosts
from daeosens.derivatives.kinks_of_costs import parts_of
from daeosens.derivatives.looks.seen import Seen
from daeosens.errors import DiscretizationWarning, warn
from daeosens.methods.method import Method
from daeosens.timestepping.trajectory.trajectory import Trajectory, steps_of

MANY = 100
"""Multiples of rtol that the estimated error of a running cost may be, as a part of its size."""


def warn_of_running_costs(trajectory: Trajectory, costs: Sequence[Cost], _seen: Seen) -> None:
    """Warn where the running costs of adaptive steps are less accurate than these.

    The step control sees the state.  The quadrature of a running cost is that of the method, and
    the embedded one beside it tells its error.  Collective.
    """
    rtol, _ = trajectory.stepping.tolerances
    for cost in costs:
        if not cost.densities:
            continue
        error = estimate(trajectory, cost)
        if error > MANY * rtol:
            warn(
                "a running cost varies faster than the steps, which follow the states: it is "
                f"wrong by about {error:.1g} of its size, with rtol = {rtol:g}, and its gradient "
                "by as much or more\n"
                "  try: max_step=, t_eval=, or an unknown whose rate it is, with a Terminal cost",
                DiscretizationWarning,
                trajectory.problem.comm,
            )
            return


def estimate(trajectory: Trajectory, cost: Cost) -> float:
    """Return the estimated error of running costs, as a part of their absolute values.

    That of an embedded method, of one order less, is brought to the order of the method.
    """
    stepping, problem = trajectory.stepping, trajectory.problem
    densities, parts = cost.densities, parts_of(trajectory, cost)
    if problem.delays is not None:
        error, size = RunningCosts(program_of(trajectory), [densities]).error()
        return _of_order(stepping.resolved_method, error, size)
    modes = problem.modes or {"": problem}
    method, options = stepping.resolved_method, stepping.options
    errors = {
        name: method.quadrature_error(mode, options, trajectory.stages)
        for name, mode in modes.items()
    }
    steps, first = steps_of(trajectory), trajectory.first_mode
    error = size = 0.0
    for n in range(trajectory.n_steps):
        step = trajectory.step(n)
        # an event is a step of no length
        if not step.h:
            continue
        mode = trajectory.records[n].mode if trajectory.records else first
        # parameters that events changed hold in their steps
        step = step._replace(p=trajectory.parameters(n))
        # the same stages with the embedded weights: their difference is what is not known of the
        # integral
        rest = densities
        if n in parts:
            made = parts[n]
            rest = [entry for entry in densities if entry not in made.densities]
            error += sum(abs(errors[mode](part, made.densities)) for part in made.parts)
        error += abs(errors[mode](step, rest)) if rest else 0.0
        size += abs(steps.quadrature(step, densities))
    return _of_order(method, error, size)


def _of_order(method: Method, error: float, size: float) -> float:
    """Return an error of embedded weights as that of the method's own, a part of the size."""
    if not size:
        return 0.0
    # the difference is O(h^lower), the integral O(h^order): brought from one to the other
    lower = method.order - (method.tableau is not None)  # of embedded weights
    return (error / size) ** (method.order / lower)
