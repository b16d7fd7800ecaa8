"""Whether derivatives in parameters hold a start fixed that other parameters do not admit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daeosens.costs.cost import Cost
from daeosens.derivatives.looks.seen import Seen
from daeosens.errors import StartWarning, warn
from daeosens.petsc.vectors import read, write
from daeosens.timestepping.consistency_check import known_algebraic_rows
from daeosens.timestepping.trajectory.trajectory import Trajectory


def warn_of_start(trajectory: Trajectory, _costs: Sequence[Cost], seen: Seen) -> None:
    """Warn where algebraic equations at the start depend on parameters, and steps carry that.

    A start that satisfies them at p does not at p + dp; of that a theta method below 1 makes errors
    of size 1 in the algebraic variables of all later states, and ``.p`` is the derivative of a
    program that nobody may run.  Collective.
    """
    problem = trajectory.problem.modes.get(trajectory.first_mode, trajectory.problem)
    algebraic = known_algebraic_rows(problem)
    if algebraic is None or not problem.n_parameters or seen.start_follows:
        return
    point = float(trajectory.times[0]), trajectory.stored[0], problem.create_state(), trajectory.p
    along, change = problem.create_parameters(), problem.create_state()
    write(along, np.random.default_rng(0).uniform(0.5, 1.0, along.getLocalSize()))
    matrix = problem.residual_p.create(*point)
    problem.residual_p.fill(*point, matrix)
    matrix.mult(along, change)
    moved = bool(np.any(algebraic.of(change) != 0.0)) and bool(read(change).size)
    if problem.comm.tompi4py().allreduce(moved, max):
        name = trajectory.stepping.method
        warn(
            "derivatives in the parameters hold the start fixed, which satisfies the algebraic "
            f'equations at these parameters only; "{name}" carries its error to the last step\n'
            "  try: Reduced with Parameters(..., consistent=True), or add .u0 @ du0/dp; "
            '"beuler" forgets it, "esdirk5" after its first step',
            StartWarning,
            problem.comm,
        )
