"""What solvers left in the steps: an estimate of the error of derivatives, and a warning."""

from __future__ import annotations

import warnings

from daeosens.errors import SolverErrorWarning
from daeosens.timestepping.trajectory.trajectory import Trajectory

MATTERS = 1e-5
"""Estimates above this part of a derivative are told."""


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
    stepping = trajectory.stepping
    # with the library's own limits that of unknowns which are far below atol, in rounding
    seen = not stepping.adaptive or any(name.startswith("snes_") for name in stepping.options)
    affine = trajectory.problem.residual_u.constant
    newton = trajectory.effort.remainder if seen and not affine else 0.0
    total = newton + linear
    if total > MATTERS:
        cause, remedy = (
            "Newton's method",
            (
                'options without "snes_type", "snes_rtol", "snes_stol"; where there are none it is '
                "rounding, which grows with dt times the largest rate: a smaller dt"
            ),
        )
        if linear > newton:
            cause, remedy = "the linear solver", 'options without "ksp_rtol"'
        warnings.warn(
            f"derivatives may be wrong by {total:.0e} of their size, which is what {cause} left in "
            f"the {trajectory.n_steps} steps\n  try: {remedy}",
            SolverErrorWarning,
            stacklevel=3,
        )
    return total
