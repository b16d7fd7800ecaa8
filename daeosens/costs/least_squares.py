"""Costs that are sums of squares: the misfit to observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.cost import Cost, Instant
from daeosens.costs.missing_data import (
    REMEDY,
    measured_array,
    refuse_no_logarithm,
    refuse_unobserved,
)
from daeosens.costs.objective import after_zero, minus, multiple, negative, plus
from daeosens.costs.sum_of_squares import ArrayResidual, SumOfSquares, VectorResidual
from daeosens.errors import InputError, SolveError, UnsupportedError
from daeosens.petsc.vectors import Array, finite_array, keep_unshared, read, real_array
from daeosens.problem.automatic_derivatives import (
    AutomaticHessian,
    AutomaticJacobian,
)
from daeosens.problem.branches import Branches
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


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """1/2 sum_k | (s(observe(t_k, u(t_k), p)) - s(data_k)) / sigma |^2, s the identity or log.

    Parameters
    ----------
    times : array_like [K]
        Observation times, in order, inside the time span (both ends allowed) [time unit]; a time
        may stand several times, for replicates.
    data : array_like [K, q], data frame, or sequence of Vec
        Measurements; [K] is taken as [K, 1].  Columns of a data frame with the names of unknowns go
        by these, others by position.  NaN where nothing was observed: such entries count
        for nothing.  Vectors where the whole distributed state, or the product with a Mat, is
        observed; these are not copied, so they must not change later.
    sigma : float or array_like [q] or [K, q]
        Noise level, in the data's unit (of the logarithm if ``scale="log"``): positive and finite,
        of any size where nothing was observed.
    observe : None, str or int or sequence of them, callable or Mat
        None: the whole state.  Names or numbers of unknowns.  NumPy style
        ``(t, u, p) -> array [q]``.  A Mat [q, n] for linear observation of a distributed state.
    observe_u, observe_p : callable, optional
        Jacobians [q, n], [q, m] of a callable ``observe``; automatic where missing.
    side : "before" or "after", optional
        Which state is observed where an event happens at an observation time.
    scale : "linear" or "log"
        Whether the misfit is that of the numbers or of their logarithms, as of log-normal noise.
        What is not observed may be zero then; where the model is not positive at a number that was
        observed the run counts as failed.

    Raises
    ------
    InputError
        Shapes that do not match (both named), infinite data, a column without any, times that
        decrease, sigma <= 0 or infinite, another side or scale, data <= 0 on a log scale.

    Examples
    --------
    >>> misfit = LeastSquares([0.5, 1.0], [[0.6], [0.4]], sigma=0.1, observe=[0])
    >>> misfit.times
    (0.5, 1.0)
    >>> both = LeastSquares([0.5, 1.0], [[0.6, 0.1], [np.nan, 0.3]])  # the first one once only
    """

    times: Any
    data: Any
    sigma: npt.ArrayLike = 1.0
    observe: Any = None
    observe_u: Callable[..., Any] | None = None
    observe_p: Callable[..., Any] | None = None
    side: Literal["before", "after"] | None = None
    scale: Literal["linear", "log"] = "linear"
    vectors: bool = field(init=False)
    columns: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = getattr(self.data, "column_names", getattr(self.data, "columns", ()))
        named = all(isinstance(name, str) for name in names)
        # Numbers as column names, as of a plain array in a data frame, name no unknown.
        object.__setattr__(self, "columns", tuple(names) if named else ())
        if self.side not in (None, "before", "after"):
            raise InputError(f"side = {self.side!r}", expected='"before" or "after"')
        if self.scale not in ("linear", "log"):
            raise InputError(f"scale = {self.scale!r}", expected='"linear" or "log"')
        times = finite_array(self.times, "observation times")
        if times.ndim != 1 or times.size == 0:
            raise InputError(f"observation times have shape {times.shape}", expected="shape (K,)")
        # Equal times are replicates: several scalars at one state.
        if (np.diff(times) < 0).any():
            k = int(np.argmax(np.diff(times) < 0))
            raise InputError(
                f"observation times decrease: {times[k]:g} is followed by {times[k + 1]:g} "
                f"at index {k + 1}",
                expected="times in order",
                remedy="sort times and data together: order = np.argsort(times, kind='stable')",
            )
        # Data that are distributed vectors go another way: neither converted nor copied.
        vectors = isinstance(self.data, (list, tuple)) and _any_vec(self.data)
        object.__setattr__(self, "times", tuple(times.tolist()))
        object.__setattr__(self, "vectors", vectors)
        keep_unshared(self, "observe")
        rows = len(self.data) if hasattr(self.data, "__len__") else 0
        if rows != times.size:
            raise InputError(
                f"{times.size} observation times but {rows} rows of data",
                expected="as many rows as times",
            )
        shape = (times.size,)
        if not vectors:
            data = measured_array(self.data, "data")
            data = data[:, None] if data.ndim == 1 else data
            if data.ndim != 2:
                raise InputError(f"data has shape {data.shape}", expected="shape (K, q)")
            shape = data.shape
            refuse_unobserved(data, [f"column {j} of data" for j in range(shape[1])])
            if self.scale == "log":
                refuse_no_logarithm(data, times, [f"data[:, {j}]" for j in range(shape[1])])
            object.__setattr__(self, "data", data)
        sigma = real_array(self.sigma, "sigma")
        bad = sigma[~((sigma > 0) & (sigma < np.inf))]
        if bad.size:
            infinite = not np.isfinite(bad[0])
            raise InputError(
                f"sigma = {bad[0]:g}",
                expected="a finite sigma > 0" if infinite else "sigma > 0",
                remedy=REMEDY if infinite else "",
            )
        if vectors and self.scale == "log":
            raise UnsupportedError(
                'scale="log" of data given as vectors',
                expected='scale="linear"',
                remedy="unknowns that are logarithms themselves",
            )
        if vectors and sigma.ndim:
            raise InputError(f"sigma has shape {sigma.shape}", expected="one number for vectors")
        try:
            object.__setattr__(self, "sigma", np.broadcast_to(sigma, shape))
        except ValueError as error:
            raise InputError(
                f"sigma has shape {sigma.shape}",
                expected=f"a number, or shape {shape[1:]} or {shape}",
            ) from error

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Return one scalar for each observation time."""
        sigma: Any = self.sigma
        if self.vectors:
            matrix = self.observe if isinstance(self.observe, PETSc.Mat) else None
            if self.observe is not None and matrix is None:
                raise UnsupportedError(
                    "data given as vectors with an observe that is not a Mat",
                    expected="observe=None or a Mat [q, n]",
                    remedy="arrays as data for observe callbacks and indices",
                )
            for k, row in enumerate(self.data):
                expected = problem.state.size if matrix is None else matrix.getSize()[0]
                if row.size != expected:
                    raise InputError(f"data[{k}] has size {row.size}", expected=str(expected))
            residuals: list[Any] = [
                VectorResidual(row, float(s), matrix, rows)
                for row, s, rows in zip(self.data, sigma, self._vector_rows, strict=True)
            ]
        else:
            sizes = (problem.size, problem.n_parameters)
            # Times with the same gaps share one observation and its derivatives: mostly there are
            # few patterns.
            patterns, kinds = self._patterns
            observations = [self._observation(problem, rows) for rows in patterns]
            residuals = []
            for row, s, kind in zip(self.scaled_data, sigma, kinds, strict=True):
                chosen: Any = ... if patterns[kind] is None else patterns[kind]
                residuals.append(ArrayResidual(*sizes, *observations[kind], row[chosen], s[chosen]))
        branches = Branches(self.observe) if callable(self.observe) else None
        moments = [time if self.side is None else Instant(time, self.side) for time in self.times]
        pairs = zip(moments, residuals, strict=True)
        # A time without any number gives no scalar, though steps still hit it: runs with and
        # without a measurement are the same.
        observed = [True] * len(moments) if self.vectors else (~np.isnan(self.data)).any(axis=1)
        return Cost(
            points=tuple(
                (time, 1.0, SumOfSquares(residual, problem.comm, branches=branches))
                for (time, residual), any_number in zip(pairs, observed, strict=True)
                if any_number
            )
        )

    @cached_property
    def scaled_data(self) -> Array:
        """The data [K, q] in the scale of the misfit."""
        return np.log(self.data) if self.scale == "log" else self.data

    @cached_property
    def _patterns(self) -> tuple[list[Rows], list[int]]:
        """Which entries were observed together, and which of these patterns each time has."""
        missing = np.isnan(self.data)
        if not missing.any():
            return [None], [0] * len(missing)
        # kinds[k] is the pattern of time k.
        patterns, kinds = np.unique(missing, axis=0, return_inverse=True)
        rows: list[Rows] = [
            np.flatnonzero(~pattern) if pattern.any() else None for pattern in patterns
        ]
        return rows, kinds.ravel().tolist()

    @cached_property
    def _vector_rows(self) -> list[Rows]:
        """Which of the rank's entries of each vector were observed.  Collective at first."""
        comm = self.data[0].comm.tompi4py()
        values = [read(row) for row in self.data]
        # NaN on one rank means that entry; only all ranks together know whether a vector is
        # empty.
        counts = [(np.isnan(own).sum(), np.isinf(own).sum(), own.size) for own in values]
        for k, (missing, infinite, size) in enumerate(comm.allreduce(np.array(counts))):
            if infinite:
                raise InputError(f"data[{k}] is infinite", expected="finite numbers", remedy=REMEDY)
            if missing == size:
                raise InputError(
                    f"no measurements at t = {self.times[k]:g}: data[{k}] is NaN everywhere",
                    expected="at least one number",
                    remedy="data without this vector",
                )
        missing = [np.isnan(own) for own in values]
        return [np.flatnonzero(~gaps) if gaps.any() else None for gaps in missing]

    def _observation(self, problem: Problem, rows: Rows) -> Observation:
        """Return observe, its Jacobians in u and p, and its second derivatives: some rows."""
        if problem.comm.size > 1 or problem.style == "petsc":
            raise UnsupportedError(
                "data given as arrays for a PETSc-style problem",
                expected="data as a sequence of Vec, and observe=None or a Mat [q, n]",
            )
        n, q = problem.size, self.data.shape[1]
        if callable(self.observe):
            observe = (self.observe, self.observe_u, self.observe_p)
            return lower_observe(problem, *observe, q, rows, self.scale)
        indices = paired_unknowns(problem, self.observe, self.columns, q)
        if indices.shape != (q,):
            raise InputError(
                f"data has {q} columns but {indices.size} components are observed",
                expected="one column for each observed component",
                remedy="observe=[indices] for a partial observation",
            )
        # selection u = u[indices]: the constant Jacobian [q, n] of an observation of unknowns.
        indices = indices if rows is None else indices[rows]
        selection = np.zeros((indices.size, n))
        selection[np.arange(indices.size), indices] = 1.0

        def select(_t: float, u: Array, _p: Any) -> Array:
            return u[indices]

        def select_u(_t: float, _u: Array, _p: Any) -> Array:
            return selection

        if self.scale == "log":
            # The logarithm bends, so that second derivatives are needed, though the observation
            # itself is linear.
            nothing = np.zeros((indices.size, problem.n_parameters))

            def select_p(_t: float, _u: Array, _p: Any) -> Array:
                return nothing

            callbacks = (select, select_u, select_p)
            return lower_observe(problem, *callbacks, indices.size, None, self.scale)
        return select, select_u, None, None

    __add__ = plus
    __radd__ = after_zero
    __sub__ = minus
    __neg__ = negative
    __mul__ = __rmul__ = multiple


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
    array = np.atleast_1d(np.asarray(observe))
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


def _any_vec(rows: Sequence[Any]) -> bool:
    return any(isinstance(row, PETSc.Vec) for row in rows)
