"""How deep a problem hides its algebraic variables: the index of a DAE, by its structure."""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.methods.dae.structure import Mask, count, probed_rate, wave
from daeosens.petsc.vectors import largest, read, write
from daeosens.problem.problem import Problem


class Index(NamedTuple):
    """How deep algebraic variables are hidden.

    Attributes
    ----------
    value : int
        0 without algebraic equations, 1, 2 or 3 (or more) with them.
    rows : tuple of int
        The algebraic equations that hold no algebraic variable, on all ranks.
    """

    value: int
    rows: tuple[int, ...] = ()


def structural_index(problem: Problem, t: float, u: PETSc.Vec, p: Any) -> Index:
    """Return the index of a DAE, and the equations that make it more than 1.  Collective.

    2 where some equation without u' holds no variable without rate, at the point and near it, as
    the constraint x vx + y vy = 0 of a pendulum, whose force is such a variable; 3 where neither
    does its derivative along the differential equations, as x^2 + y^2 = 1.  What is hidden in other
    ways (constraints that are redundant only together) counts as 1, as does what cannot be told (a
    mass whose null space is not that of single variables).

    Parameters
    ----------
    problem : Problem
        In mass or residual form.
    t, u, p
        Any admissible point.

    Source
    ------
    Hairer, Lubich, Roche, The Numerical Solution of Differential-Algebraic Systems by Runge-Kutta
    Methods, 1989, section 1: with M x' = f(x, z) and 0 = g(x), index 2 where g_x M^-1 f_z is
    regular.
    """
    mass, rate, rows, columns = probed_rate(problem, t, u, p)
    n_rows, n_columns = count(u, rows), count(u, columns)
    if not n_rows:
        return Index(0)
    if n_rows != n_columns or problem.coloring:
        return Index(1)
    direction, change, near = u.duplicate(), u.duplicate(), u.copy()
    write(direction, np.where(columns, wave(u), 0.0))
    write(near, read(u) + 1e-3 * max(1.0, largest(u)) * wave(u))
    matrix = problem.residual_u.create(t, u, rate, p)
    hidden = rows
    for state in (u, near):  # an entry may be zero by chance, as that of y^2 at y = 0
        try:
            problem.residual_u.fill(t, state, rate, p, matrix)
        except SolveError:  # beyond the domain of the callbacks, on every rank
            return Index(1)
        matrix.mult(direction, change)
        hidden = hidden & (read(change) == 0.0)
        if not count(u, hidden):
            return Index(1)
    write(change, np.where(rows, 0.0, read(change)))
    return _index_of(hidden, matrix, mass, change)


def _index_of(hidden: Mask, matrix: PETSc.Mat, mass: PETSc.Mat, change: PETSc.Vec) -> Index:
    """Return the index, given F_u, F_udot and the change of the differential equations' sides."""
    rates, work = _least_squares(mass, change), change.duplicate()
    mass.mult(rates, work)
    work.axpy(-1.0, change)
    lost, whole = largest(work), largest(change)
    # nothing determines the variables, or there are no rates: the rest of the mass is singular
    if whole == 0.0 or lost > 1e-8 * whole:
        return Index(1)
    matrix.mult(rates, work)
    deeper = hidden & (abs(read(work)) <= 1e-10 * largest(work))
    first, _ = change.getOwnershipRange()
    rows = change.comm.tompi4py().allgather((first + np.flatnonzero(hidden)).tolist())
    return Index(3 if count(change, deeper) else 2, tuple(chain.from_iterable(rows)))


def _least_squares(mass: PETSc.Mat, right: PETSc.Vec) -> PETSc.Vec:
    """Return the rates of a singular mass, without rates of variables that have none."""
    solver = PETSc.KSP().create(comm=mass.comm)
    solver.setType(PETSc.KSP.Type.LSQR)
    solver.getPC().setType(PETSc.PC.Type.NONE)
    solver.setTolerances(rtol=1e-13, max_it=500)
    solver.setOperators(mass)
    solution = right.duplicate()
    solver.solve(right, solution)
    solver.destroy()
    return solution
