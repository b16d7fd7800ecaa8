"""Linear programmes solved by HiGHS, objective after objective."""

from __future__ import annotations

from typing import Any

import numpy as np

from daeosens.errors import SolveError, UnsupportedError
from daeosens.petsc.vectors import Array
from daeosens.tracing.linear_daeo.programme import (
    BASIC,
    FREE,
    LOWER,
    ROUNDING,
    UPPER,
    Programme,
    Sides,
)

TOLERANCE = 1e-10
"""The smallest that HiGHS takes."""


class Solver:
    """HiGHS with a programme, for bounds that change: each solve begins with the last basis.

    Parameters
    ----------
    programme : Programme

    Attributes
    ----------
    objectives : int or None
        Only so many of them.
    values : array [n]
        The flows of the last solution.

    Raises
    ------
    UnsupportedError
        HiGHS is not there.
    """

    def __init__(self, programme: Programme) -> None:
        try:
            import highspy  # noqa: PLC0415 (an extra, of this only)
        except ImportError as error:
            raise UnsupportedError(
                f"linear programmes need HiGHS: {error}",
                expected="the package highspy",
                remedy="pip install --no-build-isolation 'daeosens[flux]'",
            ) from error
        self.programme = programme
        self.objectives: int | None = None
        self.values = np.empty(0)
        matrix = programme.matrix
        m, n = matrix.shape[0], len(programme.flows)
        columns = matrix[:, :n]
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = n, m
        lp.col_cost_ = np.zeros(n)
        lp.col_lower_, lp.col_upper_ = np.zeros(n), np.zeros(n)
        # A v = b as rows with two equal bounds
        lp.row_lower_ = lp.row_upper_ = programme.low[n:, 0].copy()
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = columns.indptr
        lp.a_matrix_.index_ = columns.indices
        lp.a_matrix_.value_ = columns.data
        # what Highs derives from, which does not print a banner when it is made
        self._highs: Any = highspy.Highs.__bases__[0]()
        options = {
            "output_flag": False,
            "presolve": "off",
            "solver": "simplex",
            "threads": 1,
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
        }
        for name, value in options.items():
            self._highs.setOptionValue(name, value)
        self._highs.passModel(lp)
        self._status, self._basis = highspy.HighsModelStatus, highspy.HighsBasisStatus
        self._all = np.arange(n, dtype=np.int32)

    def solve(self, low: Array, high: Array, place: str) -> Sides:
        """Return an optimal basis for bounds [n] of the flows.

        Each objective is maximised among the optima of those before: what has a reduced cost stays
        at its bound.

        Parameters
        ----------
        low, high : array [n]
            Bounds.
        place : str
            Where, for messages.

        Raises
        ------
        SolveError
            The programme is infeasible, or unbounded.
        """
        programme, highs = self.programme, self._highs
        n = len(low)
        crossed = np.flatnonzero(low > high)
        if crossed.size:
            k = int(crossed[0])
            raise SolveError(
                f"the linear programme is infeasible {place}: the bounds of {programme.name(k)} "
                f"are {low[k]:.9g} and {high[k]:.9g}",
                expected="lower bounds that are not above the upper ones",
                remedy="bounds that do not cross in any state the run can come to",
            )
        left, right, values = low.copy(), high.copy(), low
        for rank, costs in enumerate(programme.costs[: self.objectives]):
            highs.changeColsBounds(n, self._all, left, right)
            highs.changeColsCost(n, self._all, costs[:n].copy())
            # where the optima of earlier objectives are, the last basis is feasible: stay with it
            highs.setOptionValue("simplex_strategy", 4 if rank else 1)
            highs.run()
            status = highs.getModelStatus()
            if status != self._status.kOptimal:
                raise self._failure(rank, status, place)
            solution = highs.getSolution()
            values, duals = np.array(solution.col_value), np.array(solution.col_dual)
            # lexicographic: a flow with a reduced cost cannot move without loss, so it is fixed for
            # the next objective; the others are free to serve that
            held = np.abs(duals) > ROUNDING * max(1.0, float(np.abs(costs).max()))
            left[held] = right[held] = values[held]
        self.values = values
        basis = highs.getBasis()
        sides = np.full(len(programme.low), LOWER, dtype=np.int8)
        # the run follows the basis, not the values: which variables are basic, and at which bound
        # others are
        sides[:n][np.abs(values - high) < np.abs(values - low)] = UPPER
        sides[:n][np.isinf(low) & np.isinf(high)] = FREE
        every = [*basis.col_status, *basis.row_status]
        sides[[status == self._basis.kBasic for status in every]] = BASIC
        return sides

    def _failure(self, rank: int, status: Any, place: str) -> SolveError:
        kinds = self._status
        text = self._highs.modelStatusToString(status)
        if status == kinds.kInfeasible or (status == kinds.kUnboundedOrInfeasible and not rank):
            return SolveError(
                f"the linear programme is infeasible {place}",
                expected="flows that satisfy A v = b within all bounds",
                remedy="wider bounds: a demand, such as maintenance, that the uptakes can meet",
            )
        return SolveError(
            f"the linear programme is unbounded or fails {place}: objective {rank}, HiGHS says "
            f"{text!r}",
            expected="objectives that the bounds limit",
            remedy="finite bounds of the flows that the objective counts",
        )
