"""Consistent starts of problems with algebraic equations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import InputError, real_number, require
from daeosens.methods.events.consistent_reset import consistent_map
from daeosens.petsc.options import Options, validate_names
from daeosens.petsc.ranks import agree
from daeosens.problem.callback_guard import QUIET, unwrapped
from daeosens.problem.derivative_arrays import DerivativeArray, as_array
from daeosens.problem.problem import PossiblyNamed, Problem
from daeosens.timestepping.trajectory.states import State


@QUIET
@unwrapped
def consistent_state(
    problem: Problem,
    u0: npt.ArrayLike | PETSc.Vec,
    p: PossiblyNamed,
    t: float = 0.0,
    options: Options | None = None,
) -> State:
    """Solve for the algebraic variables of a start.

    Methods that average over a step ("cn", "theta:<value>", "midpoint") would carry the error of an
    inconsistent start along as an undamped or slowly damped oscillation; they refuse it.  For a
    start that follows parameters: ``Parameters(..., consistent=True)``.  Collective on
    ``problem.comm``.

    Parameters
    ----------
    problem : Problem
        Of index one at most: the algebraic equations are the rows without u', the algebraic
        variables the columns of F_udot that are zero.
    u0 : array or Vec [n]
        The differential variables, which are kept, and guesses of the algebraic ones.
    p : array or Vec [m], or mapping
        Parameters, as for ``solve``.
    t : float
        Time of the start.
    options : mapping, optional
        PETSc options of the linear solver, as those of ``Stepping``.

    Returns
    -------
    State [n]
        The start, a vector that prints its numbers; u0 where there are no algebraic variables.
        The derivatives of sweeps in u0 are those in its differential variables only if the
        algebraic ones follow them: that part of a chain rule is the caller's, or that of
        ``Parameters(..., consistent=True)``.

    Raises
    ------
    InputError
        Numbers that carry derivatives: inside an ``initial_state``,
        ``Parameters(..., consistent=True)`` serves.
    SolveError
        No solution near the guess, or an index above one.
    UnsupportedError
        F_udot is singular in another way than by rows and columns of zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from daeosens import ODE
    >>> circuit = ODE(
    ...     lambda t, u, p: np.array([u[1], u[0] + p[0] * u[1] + u[1] ** 3]),
    ...     size=2,
    ...     parameters=["resistance"],
    ...     mass=np.diag([1.0, 0.0]),
    ... )
    >>> consistent_state(circuit, [-3.0, 0.0], [2.0])
    State([-3.,  1.])
    """
    require(problem, Problem, "problem", "ODE(f, size, parameters), or trace(f, ...) compiled")
    options = {} if options is None else options
    require(options, Mapping, "options", 'options={"snes_rtol": 1e-10}')
    agree(problem.comm, "consistent_state", t=t, options=options)
    validate_names(options, "options")
    t = real_number(t, "t")
    if any(map(_carries_derivatives, (u0, p))):
        raise InputError(
            "consistent_state is called with numbers that carry derivatives, in an initial_state",
            expected="plain numbers",
            remedy="Parameters(..., initial_state=u0, consistent=True), which solves for the "
            "algebraic variables at each p and differentiates them",
        )
    state, parameters = problem.admit_state(u0), problem.admit_parameters(p)
    agree(problem.comm, "consistent_state", p=parameters)
    # None: every unknown has its rate, and there is nothing to solve
    maps = consistent_map(problem, t, state, parameters, options or {})
    if maps is None:
        return _printing(state)
    after = problem.create_state()
    maps.apply(t, state, parameters, after)
    return _printing(after)


def _printing(vec: PETSc.Vec) -> State:
    state = State()
    vec.copy(state)
    return state


def _carries_derivatives(values: object) -> bool:
    if not isinstance(values, (list, tuple, np.ndarray, DerivativeArray)):
        return False
    try:
        return type(as_array(values)) is DerivativeArray
    except (ValueError, OverflowError, RecursionError):  # told by those who admit numbers
        return False
