"""Tangent sweeps of C functions: steps that are linearised once, without Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.methods.step import StepMap
from daeosens.petsc._kernels import LinearSteps
from daeosens.petsc.vectors import Array, finite_array, finite_vec, read, write
from daeosens.problem.problem import PossiblyNamed, Problem
from daeosens.timestepping.dense_ts import directed_steps
from daeosens.timestepping.trajectory.trajectory import STAGE_MEMORY, Trajectory, steps_of

Direction: TypeAlias = "tuple[npt.ArrayLike | PETSc.Vec | None, PossiblyNamed]"
"""(du0 [n], dp [m]); None is zero, as are the parameters that a dp by name does not name."""

TANGENT = "the tangent of the final state"
"""What is not finite where some value on the way is not, as that stays."""


def linear_steps(trajectory: Trajectory, *, keep: bool) -> LinearSteps | None:
    """Return the steps of a run, to be linearised in C; None where they cannot be.

    For u' = f(t, u, p) of few unknowns on one processor, whose products are C functions (traced
    models), by explicit Runge-Kutta and ESDIRK methods, without events.  ``keep`` asks for stages
    and factors to be kept, which is done if memory suffices.
    """
    if trajectory.crossings or trajectory.problem.modes or trajectory.thinned:
        return None
    steps = directed_steps(trajectory.problem, trajectory.stepping.resolved_method)
    if steps is None:
        return None
    n = trajectory.problem.size
    explicit = trajectory.stepping.resolved_method.explicit
    # An explicit stage keeps its state [n], an implicit one its factors [n, n] besides.
    fits = fitting(trajectory, n * (1 if explicit else n + 2)) > 1
    return LinearSteps(steps, trajectory.p, *trajectory.arrays, keep=keep and fits)


def check_directions(directions: Sequence[Direction]) -> None:
    """Refuse what are no directions, or a direction that was forgotten: its result would be zero.

    Raises
    ------
    InputError
        None at all, no pair, or a pair of nothing.
    """
    if not isinstance(directions, (Sequence, np.ndarray)) or not len(directions):
        fault = f"directions is {type(directions).__name__}"
        if isinstance(directions, Sequence):
            fault = "no direction given"
        raise InputError(fault, expected="at least one (du0, dp)")
    for k, pair in enumerate(directions):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(
                f"direction {k} is {type(pair).__name__}",
                expected="a pair (du0, dp), None in the place of one that is zero",
                remedy="[(row, None) for row in rows]",
            )
        if pair[0] is None and pair[1] is None:
            raise InputError(
                "neither du0 nor dp was given",
                expected="a direction in the initial state [n], in the parameters [m], or both",
                remedy="du0=array or dp=array; sensitivities(trajectory) for all at once",
            )


def admit_rows(problem: Problem, directions: Sequence[Direction]) -> tuple[Array, Array]:
    """Return the user's directions, checked, as arrays [D, n] and [D, m]; for serial problems.

    Raises
    ------
    InputError
        Shapes that do not match, or values that are not finite.
    """
    count = len(directions)
    rows = np.zeros((count, problem.size)), np.zeros((count, problem.n_parameters))
    for k, (du, dp) in enumerate(directions):
        if isinstance(du, PETSc.Vec):
            rows[0][k] = read(problem.admit_state(du, "du0"))
        elif du is not None:
            rows[0][k] = finite_array(du, "du0", (problem.size,))
        if dp is not None:
            rows[1][k] = read(problem.admit_parameter_direction(dp))
    return rows


def fitting(trajectory: Trajectory, count: int) -> int:
    """Return for how many steps ``count`` numbers a stage are kept: for all of them, or for one."""
    bytes_needed = 8 * count * trajectory.n_stages
    return trajectory.n_steps if bytes_needed <= STAGE_MEMORY else 1


def push_directions(
    trajectory: Trajectory, du: Array, dp: Array, last: int | None = None
) -> Array | None:
    """Return the tangents of the states up to number ``last`` along D directions, or None.

    The numbers of the sweep by steps, to rounding.  A step that C cannot take, or that leads to
    what is not finite, is taken in Python, which names the function.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``.
    du, dp : array [D, n], [D, m]
        The directions.
    last : int, optional
        The final state by default.

    Returns
    -------
    array [last+1, D, n] or None

    Raises
    ------
    SolveError
        A tangent, or a value on the way to it, is not finite.

    Source
    ------
    docs/mathematics.md, section 1.
    """
    # stages are not kept: a sweep forward needs each of them once
    steps = linear_steps(trajectory, keep=False)
    if steps is None:
        return None
    last = trajectory.n_steps if last is None else last
    along = np.empty((last + 1, *du.shape))
    along[0] = du
    reached = steps.push(last, dp, along)
    by_steps = steps_of(trajectory) if reached < last else None
    while by_steps is not None and reached < last:
        _push_by_step(by_steps, trajectory, reached, dp, along)
        reached = steps.push(last, dp, along, reached + 1)
    return along


def _push_by_step(
    steps: StepMap, trajectory: Trajectory, number: int, dp: Array, along: Array
) -> None:
    """Fill the tangents [D, n] after one step, in Python."""
    problem, step = trajectory.problem, trajectory.step(number)
    du, by_p = problem.create_state(), problem.create_parameters()
    for k, row in enumerate(dp):
        write(du, along[number, k])
        write(by_p, row)
        steps.tangent(step, du, by_p)
        along[number + 1, k] = read(finite_vec(du, TANGENT))
