"""One experiment as linear algebra sees it: interpolants, nodes, and integrals as an operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError, is_whole
from daeosens.inverse.bilevel.interpolants import (
    Interpolant,
    Kind,
    above_zero,
    expected_above_zero,
    interpolant,
    never_negative,
    noise_level,
)
from daeosens.inverse.bilevel.weak_form import weak_operator
from daeosens.inverse.likelihood.measurements import Measurements
from daeosens.petsc.vectors import MOST, Array, finite_array


@dataclass(frozen=True, eq=False)
class Samples:
    """Measurements of all unknowns in one experiment, and what residuals are of.

    Residuals are of the unknowns themselves, or of r combinations of them (``combined``).

    The residual of unknown i at its k-th time is ``w_i (int f_i dt - X_i)``, the integral from the
    first time.  The state there is unknown and enters linearly, so that rows are known up to a
    constant for each unknown: ``functional`` takes that out.  With ``block`` there is a constant
    for every so many times, as if integrals began anew: what the curve misses in one block, a
    spike for instance, does no harm to those after it.

    In the weak form the rows of each unknown are then tested: ``tests`` makes of them the integrals
    of test functions times ``f_i - x_i'``, in which no constant is left.

    Attributes
    ----------
    names : tuple of str [r]
        What residuals are of: the columns.
    breaks : array [K]
        All times of measurements that lie between the first and last of every column.
    places : tuple of arrays
        Which of these are the times of each of them; replicates repeat.
    values : tuple of arrays
        What was measured there.
    weights : array [r]
        One over the noise level of each, or over its spread.
    psi : tuple of Interpolant [n]
    nodes, node_weights : array [Q]
        Gauss points of all intervals and their weights.
    block : int
        Times for which integrals go on; as many as there are if it is 0.
    first : float
        Until when history holds, of delay equations.
    tests : tuple of arrays
        What the weak form makes of the rows of each; empty for the integral form.
    """

    names: tuple[str, ...]
    breaks: Array
    places: tuple[npt.NDArray[np.intp], ...]
    values: tuple[Array, ...]
    weights: Array
    psi: tuple[Interpolant, ...]
    nodes: Array
    node_weights: Array
    block: int
    first: float
    tests: tuple[Array, ...] = ()

    @cached_property
    def states(self) -> Array:
        """Interpolated states [n, Q] at the nodes."""
        return np.array([psi(self.nodes) for psi in self.psi])

    @cached_property
    def row_states(self) -> npt.NDArray[np.intp]:
        """Which of what residuals are of each row belongs to [R]."""
        counts = [len(places) for places in self.places]
        return np.repeat(np.arange(len(counts)), counts)

    @cached_property
    def row_weights(self) -> Array:
        """Weight of each row [R]."""
        return self.weights[self.row_states]

    @cached_property
    def target(self) -> Array:
        """Weighted measurements [R]."""
        return np.concatenate(self.values) * self.row_weights

    @cached_property
    def constants(self) -> Array:
        """What a constant of each unknown in each block is in the rows [R, n blocks]."""
        blocks = max(len(self.breaks) // self.block, 1) if self.block else 1
        numbers = np.concatenate(self.places) // max(self.block, 1)
        # the last block is longer rather than one of few times
        labels = self.row_states * blocks + np.minimum(numbers, blocks - 1)
        count = len(self.names) * blocks
        columns: Array = self.row_weights[:, None] * (labels[:, None] == np.arange(count))
        return columns[:, np.any(columns, axis=0)]

    @cached_property
    def _explained(self) -> Array:
        """An orthonormal basis of what unknown states do to the rows [R, n blocks]."""
        basis: Array = np.linalg.qr(self.constants)[0]
        return basis

    def residuals_of(self, rows: Array) -> Array:
        """Return rows [R] or [R, c] as residuals [r] or [r, c].

        Without what unknown states explain, or tested.
        """
        if not self.tests:
            return rows - self._explained @ (self._explained.T @ rows)
        ends = np.cumsum([len(places) for places in self.places])[:-1]
        parts = zip(self.tests, np.split(rows, ends), strict=True)
        return np.concatenate([test @ part for test, part in parts])

    def rows_of_residuals(self, residuals: Array) -> Array:
        """Return the transpose of ``residuals_of``, of residuals that it has returned."""
        if not self.tests:
            return residuals  # a projection is symmetric
        ends = np.cumsum([len(test) for test in self.tests])[:-1]
        parts = zip(self.tests, np.split(residuals, ends), strict=True)
        return np.concatenate([test.T @ part for test, part in parts])

    @cached_property
    def residual_states(self) -> npt.NDArray[np.intp]:
        """Which of what residuals are of each residual belongs to [r]."""
        if not self.tests:
            return self.row_states
        return np.repeat(np.arange(len(self.tests)), [len(test) for test in self.tests])

    @property
    def freedom(self) -> int:
        """How many residuals unknown states leave."""
        return len(self.residual_states) - (0 if self.tests else self.constants.shape[1])

    def cumulated(self, values: Array) -> Array:
        """Return integrals [..., K] from the first time to each, of values [..., Q] at nodes."""
        count = len(self.breaks) - 1
        # Gauss points of each interval are in a row; integrals up to a time are sums over intervals
        *axes, nodes = values.shape  # no rows, perhaps
        inside = (values * self.node_weights).reshape(*axes, count, nodes // count).sum(axis=-1)
        result = np.zeros((*values.shape[:-1], count + 1))
        np.cumsum(inside, axis=-1, out=result[..., 1:])
        return result

    def rows_of(self, values: Array) -> Array:
        """Return the weighted integrals [R] of rates [r, Q]."""
        integrals = self.cumulated(values)
        rows = [integrals[i, places] for i, places in enumerate(self.places)]
        return np.concatenate(rows) * self.row_weights

    def matrix_of(
        self, entries: Array, pattern: tuple[Any, Any], columns: npt.NDArray[np.intp], size: int
    ) -> Array:
        """Return the weighted integrals [R, size] of a sparse matrix of rates.

        Parameters
        ----------
        entries : array [nnz, Q]
        pattern : arrays [nnz]
            The row (unknown) and column of each.
        columns : array of int
            Where each column goes; several may go to one.
        size : int
        """
        integrals = self.cumulated(entries)
        starts = np.cumsum([0, *(len(places) for places in self.places)])
        result = np.zeros((starts[-1], size))
        for values, i, j in zip(integrals, *pattern, strict=True):
            # entry (i, j) of f_p, integrated, is what parameter j does to the rows of unknown i
            result[starts[i] : starts[i + 1], columns[j]] += values[self.places[i]]
        return result * self.row_weights[:, None]

    def node_weights_of(self, rows: Array) -> Array:
        """Return the transpose of ``rows_of``: weights [r, Q] of rates for weights [R] of rows."""
        at_breaks = np.zeros((len(self.names), len(self.breaks)))
        np.add.at(
            at_breaks,
            (self.row_states, np.concatenate(self.places)),
            rows * self.row_weights,
        )
        # the transpose of a running sum is one from the end: a node counts in all rows after it
        later = np.cumsum(at_breaks[:, ::-1], axis=1)[:, ::-1][:, 1:]
        per_interval = len(self.nodes) // (len(self.breaks) - 1)
        return np.repeat(later, per_interval, axis=1) * self.node_weights

    def late(self, delay: float) -> tuple[Array, npt.NDArray[np.bool_]]:
        """Return the states at the nodes minus a delay, with two derivatives [3, n, Q].

        And where they are history instead, of which nothing is said here [Q].
        """
        times = self.nodes - delay
        before = times < self.first
        # what is history is evaluated by its own function; a number is put there that does no harm
        inside = np.maximum(times, self.first)
        return np.array([[psi(inside, nu) for psi in self.psi] for nu in range(3)]), before


def combined(samples: Samples, combinations: Array, names: Sequence[str]) -> Samples:
    """Return the samples whose residuals are of combinations [r, n] of the unknowns.

    All unknowns of a combination have to be measured at the same times; their noise is taken for
    independent.
    """
    parts = [np.flatnonzero(row).tolist() for row in combinations]
    values = [
        sum(row[i] * samples.values[i] for i in part)
        for row, part in zip(combinations, parts, strict=True)
    ]
    levels = np.sqrt(combinations**2 @ samples.weights**-2.0)
    places = tuple(samples.places[part[0]] for part in parts)
    tests = tuple(samples.tests[part[0]] for part in parts) if samples.tests else ()
    return replace(
        samples,
        names=tuple(names),
        places=places,
        values=tuple(values),
        weights=1.0 / levels,
        tests=tests,
    )


def positive_columns(measured: Sequence[Measurements]) -> npt.NDArray[np.bool_]:
    """Return which columns [q] look like those of quantities that are not negative.

    By all experiments together: in one of them such a quantity may be no larger than its noise.
    """
    columns: list[bool] = []
    for j in range(len(measured[0].names)):
        seen = [data.observed[:, j] for data in measured]
        values = [data.values[rows, j] for data, rows in zip(measured, seen, strict=True)]
        levels = [
            noise_level(data.times[rows], own)
            for data, rows, own in zip(measured, seen, values, strict=True)
            if len(own)
        ]
        columns.append(
            bool(levels) and never_negative(np.concatenate(values), float(np.median(levels)))
        )
    return np.array(columns, dtype=bool)


def curve(
    times: Array, values: Array, kind: Kind, name: str = "", *, positive: bool
) -> Interpolant:
    """Return measurements as a curve, which is not negative where they are ``positive``.

    Other arguments and errors as for ``interpolant``.
    """
    psi = interpolant(times, values, kind, name)
    # concentrations and counts: a right-hand side with a root or a pole at 0 is not evaluated below
    level = noise_level(times, values)
    if float(np.std(values)) == 0.0 or not positive:
        return psi
    smallest = float(values.min())
    exact = level == 0.0 or smallest > level
    return above_zero(psi, smallest) if exact else expected_above_zero(psi, level)


def samples_of(
    data: Measurements,
    unknowns: npt.NDArray[np.intp],
    n: int,
    kind: Kind,
    nodes: int,
    sigma: npt.ArrayLike | None = None,
    block: int = 0,
    begins: float | None = None,
    label: str = "",
    positive: npt.NDArray[np.bool_] | None = None,
    *,
    weak: bool = False,
) -> Samples:
    """Return measurements with their interpolants and quadrature.

    Parameters
    ----------
    data : Measurements
    unknowns : array [q] of int
        Which unknown each column is.
    n : int
        Number of unknowns.
    kind : str
        Of interpolant.
    nodes : int
        Gauss points in each interval between neighbouring times.
    sigma : float or array_like [q], optional
        Noise levels; the spread of each column otherwise.
    block : int
        As of ``Samples``.
    begins : float, optional
        Where the run begins, before which history holds; the first time otherwise.
    label : str
        Begins messages.
    positive : array [q] of bool, optional
        Which columns are not negative; by default those that look so by themselves.
    weak : bool
        Whether to test the rows.

    Raises
    ------
    InputError
        An unknown without a column; too few times.
    """
    if sorted(unknowns.tolist()) != list(range(n)) or len(data.names) != n:
        missing = sorted({*range(n)} - {*unknowns.tolist()})
        raise InputError(
            f"{label}{len(data.names)} column{'s' * (len(data.names) > 1)} of data for {n} unknowns"
            + (f"; nothing was measured of unknown {missing[0]}" if missing else ""),
            expected="one column for each unknown: the right-hand side is evaluated at the data",
            remedy="fit(...), or fit(..., windows=...), which integrate what was not measured",
        )
    if not (is_whole(block) and (block == 0 or 3 <= block <= MOST)):
        raise InputError(f"block = {block!r}", expected="3 or more times, or 0 for all of them")
    if not (is_whole(nodes) and 1 <= nodes <= 8):
        raise InputError(f"nodes = {nodes!r}", expected="1 to 8 Gauss points in an interval")
    column = np.argsort(unknowns)
    seen = data.observed[:, column]
    values = data.values[:, column]
    order: list[int] = column.tolist()
    names = tuple(data.names[j] for j in order)
    # all unknowns have to lie within their measurements: curves are not continued
    first = max(float(data.times[seen[:, i]].min()) for i in range(n))
    last = min(float(data.times[seen[:, i]].max()) for i in range(n))
    within = (data.times >= first) & (data.times <= last)
    breaks = np.unique(data.times[within])
    if len(breaks) < 3:
        raise InputError(
            f"{label}{len(breaks)} time{'s' * (len(breaks) != 1)} at which all unknowns lie within "
            "their measurements",
            expected="at least 3",
            remedy="more samples",
        )
    above = positive_columns([data]) if positive is None else positive
    psi = tuple(
        curve(
            data.times[seen[:, i]],
            values[seen[:, i], i],
            kind,
            names[i],
            positive=bool(above[order[i]]),
        )
        for i in range(n)
    )
    kept = [seen[:, i] & within for i in range(n)]
    if sigma is None:
        spread = np.array([np.std(values[seen[:, i], i]) for i in range(n)])
        size = np.array([np.abs(values[seen[:, i], i]).max() for i in range(n)])
        # without a noise level each column counts in units of its own spread
        levels = np.where(spread > 1e-12 * size, spread, np.where(size > 0.0, size, 1.0))
    else:
        noise_levels = finite_array(sigma, "sigma")
        if noise_levels.shape not in ((), (n,)) or (noise_levels <= 0.0).any():
            raise InputError(f"sigma = {sigma!r}", expected=f"a number > 0, or {n} of them")
        levels = np.broadcast_to(noise_levels, (n,))[column]
    points, weights = np.polynomial.legendre.leggauss(nodes)
    lengths = np.diff(breaks)
    # Gauss points of [-1, 1], moved to each interval between neighbouring times: curves have kinks
    # of higher derivatives at measurements alone
    at = breaks[:-1, None] + 0.5 * lengths[:, None] * (points + 1.0)
    measured = tuple(values[kept[i], i] for i in range(n))
    tests = tuple(weak_operator(data.times[kept[i]], measured[i]) for i in range(n)) if weak else ()
    return Samples(
        names,
        breaks,
        tuple(np.searchsorted(breaks, data.times[kept[i]]) for i in range(n)),
        measured,
        1.0 / levels,
        psi,
        at.ravel(),
        (0.5 * lengths[:, None] * weights).ravel(),
        int(block),
        first if begins is None else min(begins, first),
        tests,
    )
