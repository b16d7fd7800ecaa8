"""What solvers left in the steps: an estimate of the error of derivatives, and a warning."""

from __future__ import annotations

from petsc4py import PETSc

from daeosens.errors import SolverErrorWarning, warn
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
    if linear == trajectory.effort.remainder == 0.0:  # nothing was solved, or nothing was left
        return 0.0
    chosen = _chosen(trajectory)
    # in adaptive runs, with the library's own limits, that of unknowns far below atol: rounding
    seen = chosen or not trajectory.stepping.adaptive
    affine = trajectory.problem.residual_u.constant
    newton = trajectory.effort.remainder if seen and not affine else 0.0
    total = newton + linear
    if linear > MATTERS:
        _warn(trajectory, total, "the linear solver", 'options without "ksp_rtol"')
    elif total > MATTERS and chosen:
        remedy = 'options without "snes_type", "snes_rtol", "snes_stol", "snes_max_it"'
        _warn(trajectory, total, "Newton's method", remedy)
    return total


def _chosen(trajectory: Trajectory) -> bool:
    """Whether the user has said when Newton's method ends.

    By itself it goes on to the rounding, of which the sum over all steps and the least known of all
    unknowns is far too much: as a bound it is worth knowing, as a warning it is not.
    """
    options = (*trajectory.stepping.options, *PETSc.Options().getAll())
    return any(name.lower().lstrip("-").startswith("snes_") for name in options)


def _warn(trajectory: Trajectory, error: float, cause: str, remedy: str) -> None:
    warn(
        f"derivatives may be wrong by {error:.0e} of their size, which is what {cause} left in "
        f"the {trajectory.n_steps} steps\n  try: {remedy}",
        SolverErrorWarning,
    )
