"""What of a state is observed: unknowns by name or number, or functions with their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError, SolveError, refuse_uncallable
from daeosens.petsc.vectors import Array
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.automatic_hessian import AutomaticHessian
from daeosens.problem.callback_guard import check_output, guarded
from daeosens.problem.derivative_arrays import as_array, primal
from daeosens.problem.problem import Problem

Observation: TypeAlias = tuple[
    Callable[..., Any],
    Callable[..., Any],
    Callable[..., Any] | None,
    AutomaticHessian | None,
]
"""observe, observe_u, observe_p and second derivatives; None where they are zero."""


Rows: TypeAlias = "npt.NDArray[np.intp] | None"
"""Which entries were observed at a time; None where all of them were."""


def observed_indices(
    problem: Problem, observe: Any, size: int | None = None
) -> npt.NDArray[np.intp]:
    """Return the numbers of the unknowns that are observed, given by number or name; None is all.

    Raises
    ------
    InputError
        Neither names nor numbers, or there is none of that name or number.
    """
    n = problem.size
    if observe is None:
        return np.arange(n)
    try:
        array = np.atleast_1d(np.asarray(observe))
    except ValueError:  # lists of several lengths, or one that holds itself
        array = np.empty(0, dtype=object)
    if array.ndim > 1 or array.dtype.kind not in "iuU":
        shape = "[q]" if size is None else f"[{size}]"
        expected = f"indices from 0 to {n - 1}, or a function (t, u, p) -> array {shape}"
        raise InputError(
            f"observe = {observe!r}",
            expected=f"names of unknowns, {expected}" if problem.state_names else expected,
        )
    known = [isinstance(component, str) or 0 <= component < n for component in array.tolist()]
    if not all(known):
        raise InputError(f"observe = {array.tolist()}", expected=f"indices from 0 to {n - 1}")
    return np.array(problem.state_indices(array.tolist()), dtype=int)


def paired_unknowns(
    problem: Problem, observe: Any, columns: Sequence[str], size: int | None = None
) -> npt.NDArray[np.intp]:
    """Return the number of the unknown that each column of data belongs to.

    Columns that all have names of unknowns go by these, in whatever order ``observe`` has them;
    others go by position, as columns without names do.

    Raises
    ------
    InputError
        As for ``observed_indices``; columns of other unknowns than those observed; a column that
        by position would go to another unknown than the one in its name.
    """
    known = problem.state_names
    # Names decide before positions wherever all of them are known.
    if known and columns and observe is None and {*columns} <= {*known}:
        return observed_indices(problem, list(columns), size)
    indices = observed_indices(problem, observe, size)
    if not known or not columns:
        return indices
    observed = [known[int(index)] for index in indices]
    if {*columns} <= {*known}:
        if sorted(columns) != sorted(observed):
            raise InputError(
                f"data has columns {', '.join(columns)}, but {', '.join(observed)} are observed",
                expected="the same names",
                remedy=f"observe={list(columns)}, or columns={observed}",
            )
        return observed_indices(problem, list(columns), size)
    for column, name in zip(columns, observed, strict=False):
        meant = _unknown_in(column, known)
        if meant and meant != name:
            raise InputError(
                f'column "{column}" would be compared with the unknown "{name}": columns without '
                f"the exact names of unknowns go by position, to {', '.join(observed)}",
                expected=f"columns named {', '.join(observed)}, or in this order",
                remedy="observe=[...], the unknown of each column",
            )
    return indices


def _unknown_in(column: str, known: Sequence[str]) -> str:
    """Return the unknown that a column's name begins with, as in "X [g/L]"; "" if there is none."""
    # As written first; without regard to case only where that finds nothing.
    for fold in (str, str.casefold):
        whole = fold(column)
        begun = [
            name
            for name in known
            if whole.startswith(fold(name)) and not whole[len(fold(name)) :][:1].isalnum()
        ]
        if begun:
            return max(begun, key=len)
    return ""


def lower_observe(
    problem: Problem,
    observe: Callable[..., Any],
    observe_u: Callable[..., Any] | None,
    observe_p: Callable[..., Any] | None,
    size: int,
    rows: Rows = None,
    scale: Literal["linear", "log"] = "linear",
) -> Observation:
    """Return a NumPy-style observation [q], or some rows of it, checked, and its derivatives."""
    refuse_uncallable(observe_u=observe_u, observe_p=observe_p)
    call = guarded(observe, "observe", problem.comm)
    if rows is not None:
        call = _chosen(call, "observe", rows, (size,))
        observe_u = observe_u and _chosen(observe_u, "observe_u", rows, (size, problem.size))
        observe_p = observe_p and _chosen(
            observe_p, "observe_p", rows, (size, problem.n_parameters)
        )
        size = rows.size
    if scale == "log":
        call, observe_u, observe_p = _logarithms(call, observe_u, observe_p)

    def checked(t: float, u: Array, p: Any) -> Any:
        return check_output(call(t, u, p), "observe", (size,), t, differentiated=True)

    remedy = "observe_u=, observe_p=callbacks"
    curvature = AutomaticHessian(call, {1: observe_u, 2: observe_p}, "observe", "Gauss-Newton")
    return (
        checked,
        observe_u or AutomaticJacobian(checked, 1, "observe", remedy),
        observe_p or AutomaticJacobian(checked, 2, "observe", remedy),
        curvature,
    )


def _logarithms(
    observe: Callable[..., Any],
    observe_u: Callable[..., Any] | None,
    observe_p: Callable[..., Any] | None,
) -> tuple[Callable[..., Any], Callable[..., Any] | None, Callable[..., Any] | None]:
    """Return the logarithm of an observation, and the Jacobians of that."""

    def positive(t: float, u: Array, p: Any) -> Any:
        values = as_array(observe(t, u, p))
        numbers = np.asarray(primal(values))
        if numbers.size and (numbers <= 0).any():
            raise SolveError(
                f"what is observed is {float(numbers.min()):g} at t = {float(primal(t)):g}, with "
                "log-normal noise",
                expected="a model that stays positive where it is observed",
                remedy="another starting point, bounds on the parameters, or normal noise",
            )
        return values

    def logarithm(t: float, u: Array, p: Any) -> Any:
        return np.log(positive(t, u, p))

    def divided(jacobian: Callable[..., Any] | None) -> Callable[..., Any] | None:
        if jacobian is None:
            return None

        def call(t: float, u: Array, p: Any) -> Any:
            # (log y)_x = y_x / y, row by row.
            return np.asarray(jacobian(t, u, p)) / positive(t, u, p)[:, None]

        return call

    return logarithm, divided(observe_u), divided(observe_p)


def _chosen(
    function: Callable[..., Any],
    name: str,
    rows: npt.NDArray[np.intp],
    shape: tuple[int, ...],
) -> Callable[..., Any]:
    """Return some rows of what a callback returns; the others may hold anything, NaN too."""

    def call(t: float, u: Array, p: Any) -> Any:
        values = function(t, u, p)
        with suppress(ValueError):  # lists that are no array
            array = as_array(values)
            if array.shape == shape:
                return array[rows]
        return check_output(values, name, shape, t, differentiated=True)

    return call
