"""Costs that are sums of squares: the misfit to observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

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
from daeosens.costs.objective import Addable
from daeosens.costs.observation import (
    Observation,
    Rows,
    lower_observe,
    paired_unknowns,
)
from daeosens.costs.sum_of_squares import ArrayResidual, SumOfSquares, VectorResidual
from daeosens.errors import InputError, UnsupportedError, is_iterable, is_one_of, refuse_uncallable
from daeosens.petsc.vectors import Array, finite_array, keep_unshared, read, real_array
from daeosens.problem.branches import Branches
from daeosens.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class LeastSquares(Addable):
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
        listed = getattr(self.data, "column_names", getattr(self.data, "columns", ()))
        names = listed if is_iterable(listed) else ()
        named = all(isinstance(name, str) for name in names)
        # Numbers as column names, as of a plain array in a data frame, name no unknown.
        object.__setattr__(self, "columns", tuple(names) if named else ())
        if self.side is not None and not is_one_of(self.side, "before", "after"):
            raise InputError(f"side = {self.side!r}", expected='"before" or "after"')
        if not is_one_of(self.scale, "linear", "log"):
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
        refuse_uncallable(observe_u=self.observe_u, observe_p=self.observe_p)
        try:
            rows = len(self.data)
        except TypeError:  # a number, an array without axes, a sparse matrix
            rows = 0
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


def _any_vec(rows: Sequence[Any]) -> bool:
    return any(isinstance(row, PETSc.Vec) for row in rows)
