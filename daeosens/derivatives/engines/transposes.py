"""Sweeps back that the linear solver of the steps cannot do, refused before any sweep begins."""

from __future__ import annotations

import numpy as np
from petsc4py import PETSc

from daeosens.methods.linear_solver import linear_solver, refuse_without_transpose
from daeosens.problem.implicit_matrix import SystemMatrix
from daeosens.timestepping.trajectory.trajectory import Trajectory


def refuse_one_way_solver(trajectory: Trajectory) -> None:
    """Refuse an adjoint after a tangent whose linear solver has no transpose.  Collective.

    The sweep back would say so itself, but only after the one forward.  Nothing is done where the
    preconditioner is the library's choice, which has one.

    Raises
    ------
    UnsupportedError
        Names the preconditioner.
    """
    stepping = trajectory.stepping
    chosen = [*stepping.options, *PETSc.Options().getAll()]
    if stepping.resolved_method.explicit or not any("pc_type" in name.lower() for name in chosen):
        return
    first = int(np.argmax(trajectory.step_sizes > 0.0))
    t, h, _, u, *_ = trajectory.step(first)
    problem, p = trajectory.equations(first)
    t, rest = problem.inside(t + h, t, h), problem.create_state()
    system = SystemMatrix(problem.residual_u, problem.residual_udot, t, u, rest, p)
    solver = linear_solver(system.fill(t, u, rest, p, 1.0 / h), stepping.options, dm=problem.dm)
    refuse_without_transpose(solver)
    solver.destroy()
