"""The point at which callbacks are checked, and the judgement of each one."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import DaeosensError, UnsupportedError
from daeosens.petsc.vectors import Array, dot, finite_array, gather, read, scatter, write
from daeosens.problem.c_callback import Compiled
from daeosens.problem.callback_guard import check_output
from daeosens.problem.problem import AUTONOMOUS, INDEPENDENT, Problem
from daeosens.verify.deviations import Words, components, entries, transposes
from daeosens.verify.extrapolated_differences import (
    FEW,
    RANDOM,
    Comparison,
    Difference,
    compare,
    difference,
    directions,
    move,
    random_direction,
    random_numbers,
    unit,
)
from daeosens.verify.table import CheckedCallback, Verdict

Function: TypeAlias = "Callable[[PETSc.Vec], Array]"

LEVELS = 12
"""Halvings of the step in u, udot and p."""

TIME_LEVELS = 20
"""Halvings of the step in t, whose scale is not known."""


class CheckPoint:
    """The point (t, u, udot, p) at which callbacks are checked, and the rows found so far.

    Everything is collective on ``problem.comm``.

    Attributes
    ----------
    p, p_vec : array or Vec [m], and Vec [m]
        The parameters as callbacks see them, and as a vector in any case.
    t_vec : Vec [1]
        The time as a vector, on every rank.
    title : str
        Before the names of all rows: of which event or mode the callbacks are.
    """

    def __init__(
        self,
        problem: Problem,
        t: float,
        u: npt.ArrayLike | PETSc.Vec,
        p: npt.ArrayLike | PETSc.Vec | None,
        udot: npt.ArrayLike | PETSc.Vec | None,
        *,
        seed: int,
        tolerance: float,
    ) -> None:
        self.problem = problem
        self.comm = problem.comm
        self.t = float(finite_array(t, "t", ()))
        self.u = problem.admit_state(u)
        self.p = problem.admit_parameters(p)
        self.p_vec = self.p
        if not problem.field_parameter:
            self.p_vec = scatter(self.p, problem.create_parameters())
        if udot is None:
            # Any rate will do: derivatives of F are compared where F itself need not be zero.
            self.udot = random_direction(self.u, seed + 1000)
        else:
            self.udot = problem.admit_state(udot, "udot")
        self.t_vec = PETSc.Vec().createSeq(1, comm=PETSc.COMM_SELF)
        write(self.t_vec, [self.t])
        self.rows: list[CheckedCallback] = []
        self.title = ""
        self._seed = seed
        self._tolerance = tolerance
        self._first_row = int(problem.state.getOwnershipRange()[0])

    def titled(self, title: str, problem: Problem | None = None) -> CheckPoint:
        """Return the same bench for callbacks of an event or a mode, which adds to the same rows.

        ``problem`` has the same layouts.
        """
        other = copy(self)
        other.title = title
        other.problem = self.problem if problem is None else problem
        return other

    def source(self, name: str) -> str:
        """Say where a derivative of the equations comes from."""
        return self.problem.sources.get(name, "")

    def origin(self, supplied: Any) -> str:
        """Say the same of a derivative of a cost, an event, an observation or an initial state."""
        if supplied is None:
            return "automatic" if self.problem.style == "numpy" else ""
        if isinstance(supplied, Compiled):
            return "compiled"
        return supplied if supplied in (INDEPENDENT, AUTONOMOUS) else "callback"

    def see_p(self, x: PETSc.Vec) -> Any:
        """Return the parameters x [m] as callbacks see them."""
        return x if self.problem.field_parameter else gather(x)

    def fill(self, function: Callable[..., None], *point: Any) -> Array:
        """Return the local values [n_local] that ``function(*point, out)`` puts into ``out``."""
        out = self.problem.create_state()
        function(*point, out)
        values = read(out).copy()
        out.destroy()
        return values

    def products(self, matrix: PETSc.Mat, moves: Sequence[PETSc.Vec]) -> Array:
        """Return the local rows of the products [n_local, K] with K vectors."""
        return np.column_stack([self.fill(matrix.mult, move) for move in moves])

    def expected(
        self, x: PETSc.Vec, function: Function, levels: int = LEVELS
    ) -> tuple[list[PETSc.Vec], list[Difference]]:
        """Return the directions to move x along, and the derivatives along them by differences."""
        function(x)  # what is wrong at the point itself is the user's to hear

        def along(direction: PETSc.Vec) -> Callable[[float], Array]:
            def sample(h: float) -> Array:
                moved = move(x, direction, h)
                values = function(moved)
                moved.destroy()
                return values

            return sample

        # Few components are moved one by one, so that a wrong entry can be named; many along
        # random directions, in which no entry hides.
        moves = directions(x, self._seed)
        return moves, [difference(along(move), self.comm, levels) for move in moves]

    def judge(
        self,
        name: str,
        source: str,
        expected: Sequence[Difference],
        callback: Callable[[], Array],
        describe: Words,
    ) -> None:
        """Add a row for ``callback()``, derivatives [rows, K]; what they raise is a verdict too."""
        try:
            comparison = compare(callback(), expected, self._tolerance, self.comm, describe)
        except (DaeosensError, PETSc.Error) as error:
            cause = _cause(error)
            # A derivative that nobody gave is no wrong one.
            if isinstance(cause, UnsupportedError):
                self.add(name, "", math.nan, "not supplied")
            else:
                self.add(name, source, math.inf, "wrong", str(cause).splitlines()[0])
            return
        self.add(name, source, comparison.error, _verdict(comparison), comparison.where)

    def add(self, name: str, source: str, error: float, verdict: Verdict, detail: str = "") -> None:
        """Add a row; a number tells the second terminal cost, for instance, from the first."""
        name = f"{self.title} {name}" if self.title else name
        names = {row.name for row in self.rows}
        if name in names:
            name = next(f"{name} {k}" for k in range(2, 10000) if f"{name} {k}" not in names)
        self.rows.append(CheckedCallback(name, source, error, verdict, detail))

    def judge_along(
        self,
        name: str,
        source: str,
        x: PETSc.Vec,
        function: Function,
        callback: Callable[[PETSc.Vec], Array],
        levels: int = LEVELS,
    ) -> None:
        """Add a row for the derivatives ``callback(move)`` of ``function``, made of callbacks.

        Where those fail nothing can be said about the derivative.
        """
        try:
            moves, expected = self.expected(x, function, levels)
        except (DaeosensError, PETSc.Error) as error:
            self.add(name, source, math.nan, "cannot tell", str(_cause(error)).splitlines()[0])
            return

        def columns() -> Array:
            return np.column_stack([callback(move) for move in moves])

        self.judge(name, source, expected, columns, components(moves))

    def judge_jacobian(
        self,
        name: str,
        source: str,
        jacobian: Callable[..., Any],
        point: Sequence[Any],
        x: PETSc.Vec,
        function: Function,
    ) -> None:
        """Add a row for a NumPy-style Jacobian that is not one of the problem's own."""
        moves, expected = self.expected(x, function)

        def callback() -> Array:
            shape = (expected[0].values.size, x.size)
            matrix = check_output(jacobian(*point), name, shape, self.t)
            return np.column_stack([matrix @ gather(move) for move in moves])

        self.judge(name, source, expected, callback, entries(moves))

    def judge_matrix(
        self,
        name: str,
        source: str,
        moves: Sequence[PETSc.Vec],
        expected: Sequence[Difference],
        callback: Callable[[], Array],
    ) -> None:
        """Add a row for products [n_local, K] with the directions."""
        self.judge(name, source, expected, callback, entries(moves, self._first_row))

    def judge_transpose(
        self,
        name: str,
        source: str,
        moves: Sequence[PETSc.Vec],
        expected: Sequence[Difference],
        product: Callable[[PETSc.Vec, PETSc.Vec], None],
    ) -> None:
        """Compare (A^T w, v) with (w, A v), where A v is known from differences.

        ``product(w, out)`` fills ``out`` with A^T w.
        """
        weights = self._weights(expected)
        # Errors of differences add up in absolute value in the products.
        sizes = [weight.copy() for weight in weights]
        for size in sizes:
            size.abs()

        def products(vectors: Sequence[PETSc.Vec], values: Array) -> Array:
            vec = self.problem.create_state()
            write(vec, values)
            return np.array([dot(vector, vec) for vector in vectors])

        scalars = [
            Difference(
                products(weights, difference.values),
                products(sizes, difference.error),
                products(sizes, difference.rounding),
            )
            for difference in expected
        ]

        def callback() -> Array:
            rows: list[list[float]] = []
            for weight in weights:
                out = moves[0].duplicate()
                product(weight, out)
                # Row k holds (A^T w_k, v_j), to be compared with (w_k, A v_j).
                rows.append([dot(out, move) for move in moves])
            return np.array(rows)

        self.judge(name, source, scalars, callback, transposes)

    def _weights(self, expected: Sequence[Difference]) -> list[PETSc.Vec]:
        """Return vectors [n] to test a transpose with: every component, or random ones.

        Random ones are balanced, so that no row of the matrix drowns the others.
        """
        like = self.problem.state
        if like.size <= FEW:
            return [unit(like, i) for i in range(like.size)]
        rows = np.max([np.nan_to_num(np.abs(difference.values)) for difference in expected], axis=0)
        overall = max(self.comm.tompi4py().allgather(float(rows.max(initial=0.0))))
        weights = [random_numbers(like, self._seed + 100 + k) for k in range(RANDOM)]
        for weight in weights:
            write(weight, read(weight) / (rows + 1e-8 * overall + sys.float_info.min))
        return weights


def number(x: PETSc.Vec) -> float:
    """Return the one value of ``t_vec``, moved."""
    return float(read(x)[0])


def _cause(error: BaseException) -> BaseException:
    """Return what went wrong in a callback: what it raised inside PETSc is PETSc's cause."""
    # PETSc hides what a callback raised behind its own error; anything that is not ours goes
    # through.
    cause = error.__cause__ if isinstance(error, PETSc.Error) else error
    if not isinstance(cause, DaeosensError):
        raise error
    return cause


def _verdict(comparison: Comparison) -> Verdict:
    if comparison.wrong:
        return "wrong"
    return "cannot tell" if comparison.unclear else "right"
