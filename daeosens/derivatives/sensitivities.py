"""The full derivative matrices of a state, by tangents or adjoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast, overload

import numpy as np

from daeosens.costs.cost import Densities
from daeosens.derivatives.engines.array.adjoint import sweep_rows
from daeosens.derivatives.engines.array.tangent import push_columns
from daeosens.derivatives.engines.choice import Sweep, choose_sweep
from daeosens.derivatives.engines.compiled.adjoint import (
    native_rows,
    refuse_compiled,
    wants_native_sweep,
)
from daeosens.derivatives.engines.compiled.tangent import no_linear_steps, push_directions
from daeosens.derivatives.faults import named_faults
from daeosens.derivatives.kinks import warn_of_jumps
from daeosens.derivatives.tangent import march
from daeosens.errors import InputError
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, finite_vec, read, write
from daeosens.problem.callback_guard import QUIET, unwrapped
from daeosens.timestepping.trajectory.trajectory import Trajectory, check_trajectory, steps_of


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
        What swept: "compiled", "steps" or "block"; empty for other methods.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, sensitivities, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> found = sensitivities(solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1)))
    >>> found.p.round(5), found.sweep
    (array([[-0.73576]]), 'adjoint')
    """

    u0: Array | None
    p: Array | None
    sweep: str
    engine: str = ""


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
    engine : "auto", "steps", "block" or "compiled"
        As for ``adjoint``.

    Returns
    -------
    Sensitivities, or a list of them for a sequence of times

    Raises
    ------
    InputError
        A time that no step hits, or an unknown engine or matrix.
    UnsupportedError
        "block" where it cannot be; names the reason.
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
    warn_of_jumps(trajectory)
    wanted = tuple(with_respect_to)
    agree(
        trajectory.problem.comm,
        "sensitivities",
        t=t,
        with_respect_to=sorted(map(str, wanted)),
        engine=engine,
    )
    if not wanted or any(name not in ("u0", "p") for name in wanted):
        raise InputError(f"with_respect_to = {with_respect_to!r}", expected='"u0", "p" or both')
    if isinstance(t, (list, tuple, np.ndarray)) and np.ndim(t) == 1:
        numbers = [trajectory.index(time) for time in t]
        return [_matrices_at(trajectory, last, wanted, engine) for last in numbers]
    last = trajectory.n_steps if t is None else trajectory.index(cast("float", t))
    return _matrices_at(trajectory, last, wanted, engine)


def _matrices_at(
    trajectory: Trajectory, last: int, wanted: Sequence[str], engine: Sweep
) -> Sensitivities:
    """Return the matrices of state number ``last``."""
    problem = trajectory.problem
    n, m = problem.size, problem.n_parameters
    columns = n * ("u0" in wanted) + m * ("p" in wanted)
    sweep = "adjoint" if n < columns and problem.comm.size == 1 else "tangent"
    found = None
    if sweep == "tangent" and wants_native_sweep(trajectory, engine, columns):
        found = _columns_in_c(trajectory, last, wanted)
    if found is None and engine != "block":
        found = native_rows(trajectory, last)
        sweep = "adjoint" if found else sweep
    if found is None and engine == "compiled":
        refuse_compiled(no_linear_steps(trajectory) or f"rows of {n} unknowns")
    chosen = (
        "compiled" if found else choose_sweep(trajectory, engine, first_adjoints=sweep == "adjoint")
    )
    by_u0 = by_p = None
    if found:
        by_u0, by_p = found
    elif sweep == "adjoint" and chosen == "block":
        by_u0 = np.eye(n)
        by_p = sweep_rows(trajectory, by_u0, last)
    elif sweep == "adjoint":
        by_u0, by_p = _rows(trajectory, last)
    elif chosen == "block":
        by_u0, by_p = _columns_at_once(trajectory, last, wanted)
    else:
        by_u0 = _columns(trajectory, last, "u0") if "u0" in wanted else None
        by_p = _columns(trajectory, last, "p") if "p" in wanted else None
    return Sensitivities(
        by_u0 if "u0" in wanted else None, by_p if "p" in wanted else None, sweep, chosen
    )


def _columns_in_c(
    trajectory: Trajectory, last: int, wanted: Sequence[str]
) -> tuple[Array, Array] | None:
    du, dp = _units(trajectory, wanted)
    along = push_directions(trajectory, du, dp, last)
    return None if along is None else _matrices(trajectory, along[-1], wanted)


def _columns_at_once(
    trajectory: Trajectory, last: int, wanted: Sequence[str]
) -> tuple[Array, Array]:
    columns, directions = _units(trajectory, wanted)
    for states in push_columns(trajectory, columns, directions, last):
        columns = states[-1]
    return _matrices(trajectory, columns, wanted)


def _units(trajectory: Trajectory, wanted: Sequence[str]) -> tuple[Array, Array]:
    """Return the directions du [D, n] and dp [D, m] of all columns that are wanted."""
    n, m = trajectory.problem.size, trajectory.problem.n_parameters
    of_states, of_parameters = n if "u0" in wanted else 0, m if "p" in wanted else 0
    du, dp = np.zeros((of_states + of_parameters, n)), np.zeros((of_states + of_parameters, m))
    du[:of_states] = np.eye(of_states, n)
    dp[of_states:] = np.eye(of_parameters, m)
    return du, dp


def _matrices(trajectory: Trajectory, columns: Array, wanted: Sequence[str]) -> tuple[Array, Array]:
    """Return the matrices by u0 and by p, of no columns if they are not wanted."""
    count = trajectory.problem.size if "u0" in wanted else 0
    return columns[:count].T.copy(), columns[count:].T.copy()


def _columns(trajectory: Trajectory, last: int, name: str) -> Array:
    problem = trajectory.problem
    steps = steps_of(trajectory)
    unit = problem.create_state() if name == "u0" else problem.create_parameters()
    result = np.empty((problem.state.local_size, unit.size))
    for j in range(unit.size):
        unit.zeroEntries()
        unit.setValue(j, 1.0)
        unit.assemble()
        du = unit.copy() if name == "u0" else problem.create_state()
        dp = None if name == "u0" else unit
        with named_faults(trajectory, back=False):
            for _ in march(trajectory, steps, du, dp, (), last):
                pass
            result[:, j] = read(finite_vec(du, f"the derivative in {name}"))
        du.destroy()
    return result


def _rows(trajectory: Trajectory, last: int) -> tuple[Array, Array]:
    problem, steps = trajectory.problem, steps_of(trajectory)
    lam = [problem.create_state() for _ in range(problem.size)]
    mu = [problem.create_parameters() for _ in lam]
    for unit, row in zip(np.eye(problem.size), lam, strict=True):
        write(row, unit)
    nothing: list[Densities] = [()] * len(lam)
    with named_faults(trajectory, back=True):
        for n in reversed(range(last)):
            steps.adjoint(trajectory.step(n), lam, mu, nothing)
        by_u0, by_p = (
            np.array([read(finite_vec(row, f"the derivative in {name}")) for row in rows])
            for name, rows in (("u0", lam), ("p", mu))
        )
    return by_u0, by_p
