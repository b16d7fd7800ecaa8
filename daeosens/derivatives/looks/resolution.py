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

from daeosens.costs.cost import At, Cost, Scalar, Start
from daeosens.derivatives.looks.seen import Seen
from daeosens.derivatives.tangent_errors import accumulated_errors, consistent_directions
from daeosens.errors import DiscretizationWarning, SolveError, warn
from daeosens.petsc.vectors import Array, read, write
from daeosens.timestepping.trajectory.trajectory import Trajectory

WRONG, MANY = 1e-3, 100.0
"""Estimated relative error of a derivative that is told, at least, and in units of rtol."""

LEAST = 0.01
"""Part of the larger one of two derivatives that the other one is taken for, if it is smaller."""


def warn_of_unresolved(trajectory: Trajectory, costs: Sequence[Cost], seen: Seen) -> None:
    """Warn where adaptive steps do not resolve the derivatives of costs.

    Of runs without events on one rank, by methods with embedded weights.
    """
    stepping, problem = trajectory.stepping, trajectory.problem
    method = stepping.resolved_method
    if seen.equations_jump:  # which is told, and shows here as well
        return
    if (
        method.tableau is None
        or problem.delays is not None
        or problem.comm.size > 1
        or trajectory.crossings
        or problem.modes
        or trajectory.thinned
        or not trajectory.n_steps
    ):
        return
    error = max(relative_errors(trajectory, costs), default=0.0)
    if method.explicit:  # that of a method of one order less
        error **= method.order / (method.order - 1)
    rtol, _ = stepping.tolerances
    seen.unresolved = error > max(WRONG, MANY * rtol)
    if seen.unresolved:
        size = f"{100.0 * error:.2g} %" if error < 1.0 else "as much as their size"
        warn(
            f"the steps follow the states, and derivatives are wrong by about {size}: somewhere in "
            "this run they change faster than the states, or are small beside errors of these\n"
            '  try: Stepping(..., control="sensitivities"), or a much smaller rtol with a method '
            "of high order, rk8vr or esdirk6; derivatives.derivative_error tells what is reached",
            DiscretizationWarning,
        )


def relative_errors(trajectory: Trajectory, costs: Sequence[Cost]) -> list[float]:
    """Return the estimated errors of derivatives of costs, relative to the size of their parts.

    Along two directions: relative changes, of random signs, of all initial states, and of all
    parameters.
    """
    problem, start = trajectory.problem, trajectory.u[0]
    signs = np.random.default_rng(0).choice([-1.0, 1.0], problem.size + problem.n_parameters)
    moved, fixed = problem.create_state(), problem.create_state()
    write(moved, signs[: problem.size] * np.abs(start))
    by_p, none = problem.create_parameters(), np.zeros(problem.n_parameters)
    write(by_p, signs[problem.size :] * np.abs(np.asarray(trajectory.p)))
    # algebraic variables follow the others, or the first step would have to bring them there
    try:
        pairs = consistent_directions(trajectory, [(moved, None), (fixed, by_p)])
    except (
        SolveError
    ):  # of index two and more there are none to be had here, but there is a gradient
        return []
    du = np.array([read(by_u) for by_u, _ in pairs])
    dp = np.array([none if by_p is None else read(by_p) for _, by_p in pairs])
    ends = accumulated_errors(trajectory, du, dp)
    return [] if ends is None else [_relative(trajectory, cost, *ends) for cost in costs]


def _relative(trajectory: Trajectory, cost: Cost, tangents: Array, errors: Array) -> float:
    """Return the larger relative error along both directions, of tangents [N+1, D, n].

    Relative to the sum of the absolute values of all terms: where they cancel, at the minimum of a
    misfit, nothing is said.  A derivative that is no hundredth of the other one counts as that.
    """
    missing, whole = np.zeros((2, tangents.shape[1]))
    for number, slope in _slopes(trajectory, cost):
        missing += errors[number] @ slope
        whole += np.abs(tangents[number]) @ np.abs(slope)
    least = LEAST * float(whole.max())
    return float(np.max(np.abs(missing) / np.maximum(whole, least))) if least else 0.0


def _slopes(trajectory: Trajectory, cost: Cost) -> list[tuple[int, Array]]:
    """Return the derivatives [n] of a cost in states, by the number of the state."""
    slopes: list[tuple[int, Array]] = []
    by_u = trajectory.problem.create_state()

    def add(number: int, weight: float, scalar: Scalar) -> None:
        point = float(trajectory.times[number]), trajectory.stored[number], trajectory.p
        by_u.zeroEntries()
        scalar.add_u(weight, *point, by_u)
        slopes.append((number, read(by_u).copy()))

    for when, weight, scalar in cost.points:
        if not isinstance(when, (At, Start)):
            add(trajectory.index(when), weight, scalar)
    if cost.densities:
        sizes = np.concatenate([[0.0], trajectory.step_sizes, [0.0]])
        for number, share in enumerate((0.5 * (sizes[1:] + sizes[:-1])).tolist()):
            for weight, density in cost.densities:
                add(number, share * weight, density)
    return slopes
