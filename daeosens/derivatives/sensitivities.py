"""The full derivative matrices of a state, by tangents or adjoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast, overload

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Densities
from daeosens.derivatives.engines.choice import (
    SWEEPS,
    Sweep,
    check_engine,
    choose_sweep,
    wants_compiled,
)
from daeosens.derivatives.engines.compiled.tangent import push_directions
from daeosens.derivatives.engines.request import AdjointRequest
from daeosens.derivatives.looks.look import look, solver_error
from daeosens.derivatives.sweeps.backward import SweptBack, sweep_back, swept_in_c
from daeosens.derivatives.sweeps.forward import sweep_forward
from daeosens.errors import InputError, name_list
from daeosens.methods.remainders import Remainders
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, read
from daeosens.problem.callback_guard import QUIET, unwrapped
from daeosens.timestepping.trajectory.trajectory import Trajectory, check_trajectory

ROWS_IN_C = "rows that are carried in C, where columns are not"


@dataclass(frozen=True, eq=False)
class Sensitivities:
    """Full derivative matrices of the state at one time.

    Attributes
    ----------
    u0 : array [n_local, n] or None
        d u(t) / d u(0); the rank's own rows.
    p : array [n_local, m] or None
        d u(t) / d p; the rank's own rows.
    sweep : str
        "tangent" (by columns) or "adjoint" (by rows).
    engine : str
        What swept: "compiled", "vectors" or "arrays"; empty for other methods.
    why : str
        As of ``Gradient``.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, sensitivities, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> rows = sensitivities(solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1)))
    >>> rows.p.round(5), rows.sweep
    (array([[-0.73576]]), 'adjoint')
    """

    u0: Array | None
    p: Array | None
    sweep: str
    engine: str = ""
    why: str = ""


@overload
def sensitivities(
    trajectory: Trajectory,
    t: float | None = None,
    with_respect_to: Sequence[str] = ("u0", "p"),
    engine: Sweep = "auto",
) -> Sensitivities: ...
@overload
def sensitivities(
    trajectory: Trajectory,
    t: Sequence[float] | Array,
    with_respect_to: Sequence[str] = ("u0", "p"),
    engine: Sweep = "auto",
) -> list[Sensitivities]: ...
@QUIET
@unwrapped
def sensitivities(
    trajectory: Trajectory,
    t: float | Sequence[float] | Array | None = None,
    with_respect_to: Sequence[str] = ("u0", "p"),
    engine: Sweep = "auto",
) -> Sensitivities | list[Sensitivities]:
    """Return the full matrices d u(t) / d u(0) and d u(t) / d p.

    By tangents or adjoints, whichever are fewer; the same numbers to rounding.  In blocks where
    that is faster (``adjoint``): then all of them share one sweep.  Collective.

    d u(t) / d p holds u(0) fixed: a start that has to satisfy algebraic equations does not at other
    p (``Reduced`` with ``Parameters(..., consistent=True)`` lets it follow).

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``.
    t : float or sequence of float, optional
        A step time, or several; the final one by default.
    with_respect_to : sequence of "u0", "p"
        Which matrices are wanted.
    engine : "auto", "vectors", "arrays" or "compiled"
        As for ``adjoint``.

    Returns
    -------
    Sensitivities, or a list of them for a sequence of times

    Raises
    ------
    InputError
        A time that no step hits, or an unknown engine or matrix.
    UnsupportedError
        "arrays" where it cannot be; names the reason.
    SolveError
        The matrices, or values on the way to them, are not finite.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> sensitivities(run).u0.round(6)
    array([[0.367879]])
    """
    check_trajectory(trajectory)
    look(trajectory)
    wanted = name_list(with_respect_to, "with_respect_to")
    agree(
        trajectory.problem.comm,
        "sensitivities",
        t=t,
        with_respect_to=sorted(map(str, wanted)),
        engine=engine,
    )
    check_engine(engine, SWEEPS)
    if not wanted or any(name not in ("u0", "p") for name in wanted):
        raise InputError(f"with_respect_to = {with_respect_to!r}", expected='"u0", "p" or both')
    several = isinstance(t, (list, tuple)) or (isinstance(t, np.ndarray) and t.ndim == 1)
    times = list(cast("Sequence[float]", t)) if several else [cast("float | None", t)]
    numbers = [trajectory.n_steps if time is None else trajectory.index(time) for time in times]
    with Remainders() as left:
        matrices = [_matrices_at(trajectory, last, wanted, engine) for last in numbers]
    problem = trajectory.problem
    columns = problem.size * ("u0" in wanted) + problem.n_parameters * ("p" in wanted)
    solves = max(
        1, min(problem.size, columns) * len(matrices)
    )  # each with a share of the remainders
    solver_error(trajectory, left.total / solves)
    return matrices if several else matrices[0]


def _matrices_at(
    trajectory: Trajectory, last: int, wanted: Sequence[str], engine: Sweep
) -> Sensitivities:
    """Return the matrices of state number ``last``."""
    problem = trajectory.problem
    n, m = problem.size, problem.n_parameters
    columns = n * ("u0" in wanted) + m * ("p" in wanted)
    # rows [n] or columns, the fewer; on several ranks each wants its own rows, which tangents give
    sweep = "adjoint" if n < columns and problem.comm.size == 1 else "tangent"
    matrices, by = None, "compiled"
    why = wants_compiled(trajectory, engine, columns) if sweep == "tangent" else ""
    if why:
        matrices = _columns_in_c(trajectory, last, wanted)
    # rows that are carried in C beat columns on vectors, even where they are more
    if matrices is None:
        swept = _rows(trajectory, last, engine, sweep)
        if swept is not None:
            by, why, matrices = swept.name, swept.why or ROWS_IN_C, swept.matrices()
            sweep = "adjoint"
    if matrices is None:
        by, why = choose_sweep(trajectory, engine, columns)
        matrices = _columns(trajectory, last, wanted, by)
    by_u0, by_p = matrices
    return Sensitivities(
        by_u0 if "u0" in wanted else None, by_p if "p" in wanted else None, sweep, by, why
    )


def _rows(trajectory: Trajectory, last: int, engine: Sweep, sweep: str) -> SweptBack | None:
    """Return the rows of both matrices where they are wanted, or else where they are in C."""
    n = trajectory.problem.size
    if sweep == "tangent" and (engine == "arrays" or trajectory.problem.comm.size > 1):
        return None
    nothing: list[Densities] = [()] * n
    # The rows of the identity, carried back, are the rows of du(t)/du0 and du(t)/dp.
    request = AdjointRequest(n, last, {}, nothing, np.eye(n))
    if sweep == "tangent":
        delayed = trajectory.problem.delays is not None
        swept = "" if delayed else swept_in_c(trajectory, request)
        return None if isinstance(swept, str) else swept
    return sweep_back(trajectory, request, engine)


def _columns_in_c(
    trajectory: Trajectory, last: int, wanted: Sequence[str]
) -> tuple[Array, Array] | None:
    """Return both matrices of a run without events: directions as vectors take longer than C."""
    n, m = trajectory.problem.size, trajectory.problem.n_parameters
    of_states, of_parameters = n if "u0" in wanted else 0, m if "p" in wanted else 0
    du, dp = np.zeros((of_states + of_parameters, n)), np.zeros((of_states + of_parameters, m))
    # unit vectors of u0 first, then of p
    du[:of_states] = np.eye(of_states, n)
    dp[of_states:] = np.eye(of_parameters, m)
    along = push_directions(trajectory, du, dp, last)
    return None if along is None else _matrices(along[-1].T, of_states)


def _matrices(columns: Array, count: int) -> tuple[Array, Array]:
    """Return the matrices by u0, the first columns, and by p; of none if they are not wanted."""
    return columns[:, :count].copy(), columns[:, count:].copy()


def _columns(
    trajectory: Trajectory, last: int, wanted: Sequence[str], engine: Sweep
) -> tuple[Array, Array]:
    """Return both matrices by tangents, whatever is between the steps."""
    problem = trajectory.problem
    count = problem.size if "u0" in wanted else 0
    directions: list[tuple[PETSc.Vec, PETSc.Vec | None]] = [
        (unit, None) for unit in _units(problem.create_state, count)
    ]
    if "p" in wanted:
        units = _units(problem.create_parameters, problem.n_parameters)
        directions += [(problem.create_state(), unit) for unit in units]
    along = sweep_forward(trajectory, directions, engine, last, keep=False)
    columns = np.array([read(direction.du) for direction in along]).T
    return _matrices(columns, count)


def _units(create: Callable[[], PETSc.Vec], count: int) -> Iterator[PETSc.Vec]:
    for j in range(count):
        unit = create()
        unit.setValue(j, 1.0)  # every rank says the same
        unit.assemble()
        yield unit
