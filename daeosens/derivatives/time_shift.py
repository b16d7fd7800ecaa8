"""A test of gradients by a shift of time, which shows where steps do not resolve derivatives.

Of u' = f(u) the states phi_s(u0) lead to the same solution, seen a time s later.  So the derivative
lam of a cost in the initial state satisfies

    lam . f(u_0) = sum_k (c_k)_u . f(u_k) + g(u_N) - g(u_0)

with point costs c_k and a running cost g.  Steps that were taken keep that to their accuracy.
Where perturbations grow fast and die out again, as in an earthquake, a small part of what has grown
remains in products of steps, and may be larger than the derivative by any factor, while the states
are right.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import At, Cost, Start
from daeosens.errors import DiscretizationWarning
from daeosens.petsc.vectors import dot, read
from daeosens.timestepping.trajectory.trajectory import Trajectory

WRONG = 0.01
"""Relative error of a gradient in the initial state that is told, at least; and ten times rtol.

What is known of the error is a lower bound, most often a tenth of it.
"""


def warn_of_growth(trajectory: Trajectory, costs: Sequence[Cost], lam: Sequence[PETSc.Vec]) -> None:
    """Warn where gradients of an autonomous problem contradict a shift of time.

    It looks at adaptive runs without events on one rank, at the first of a problem, then ever more
    rarely unless it has warned: a look costs one rate for each time of the cost.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``.
    costs : sequence of Cost
        Lowered.
    lam : sequence of Vec [n]
        Their derivatives in the initial state.
    """
    stepping, problem = trajectory.stepping, trajectory.problem
    if not stepping.adaptive:  # other steps are what the user wants derivatives of
        return
    counts = problem.probed
    count = counts["looks at time shifts"] = counts.get("looks at time shifts", 0) + 1
    due = not count & (count - 1) and count.bit_length() % 3 == 1  # 1, 8, 64, ...
    if not due and not counts.get("gradients contradict time shifts"):
        return
    if counts.get("equations jump"):  # which is told, and contradicts a shift as well
        return
    if (
        problem.form != "rhs"
        or problem.comm.size > 1
        or not problem.autonomous
        or trajectory.crossings
        or problem.breakpoints
        or trajectory.thinned
        or not trajectory.n_steps
    ):
        return
    rtol, _ = stepping.tolerances
    errors = [shift_error(trajectory, *pair) for pair in zip(costs, lam, strict=True)]
    wrong = counts["gradients contradict time shifts"] = max(errors) > max(WRONG, 10.0 * rtol)
    if wrong:
        warnings.warn(
            "perturbations grow fast in this run and die out again, and the steps do not resolve "
            "that: derivatives in the initial state are wrong by "
            f"{min(100.0 * max(errors), 100.0):.0f} % of their size at least, those in the "
            "parameters probably as well, even where the states are right\n"
            "  try: a much smaller rtol (1e-10) and a method of high order, rk8vr or esdirk6, or a "
            "shorter time span; derivative_error tells what is reached",
            DiscretizationWarning,
            stacklevel=4,
        )


def shift_error(trajectory: Trajectory, cost: Cost, by_u0: PETSc.Vec) -> float:
    """Return a lower bound of the relative error of a gradient in the initial state.

    Errors of lam_i are measured by the size that the unknown has in the run; 0 where a cost is at
    an event, or changes with time, and nothing can be said.
    """
    problem = trajectory.problem
    rate, by_u = problem.create_state(), problem.create_state()
    expected = 0.0
    for when, weight, scalar in cost.points:
        if isinstance(when, Start):  # of the parameters alone
            continue
        if isinstance(when, At):
            return 0.0
        t, u, p = trajectory.point(when)
        problem.rhs(t, u, p, rate)
        by_u.zeroEntries()
        scalar.add_u(weight, t, u, p, by_u)
        expected += dot(by_u, rate)
    last = trajectory.n_steps
    ends = [(float(trajectory.times[n]), trajectory.states[n]) for n in (0, last)]
    p = trajectory.parameters(0)
    for weight, scalar in cost.densities:
        if any(scalar.value_t(t, u, p) for t, u in ends):
            return 0.0
        first, final = (scalar.value(t, u, p) for t, u in ends)
        expected += weight * (final - first)
    problem.rhs(*ends[0], p, rate)
    slopes, rates = read(by_u0), np.abs(read(rate))
    sample = {0, last // 4, last // 2, 3 * last // 4, last}
    sizes = np.max([np.abs(read(trajectory.states[n])) for n in sample], axis=0)
    moving = rates > 0.0
    whole = float(np.abs(slopes) @ sizes)
    if not whole or not moving.any() or not sizes[moving].all():
        return 0.0
    missing = abs(dot(by_u0, rate) - expected)
    return missing / (whole * float(np.sum(rates[moving] / sizes[moving])))
