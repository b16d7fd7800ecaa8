"""The point at which callbacks are checked, and the judgement of each one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.arrays import Array, dot, gather, read, scatter, write
from daeosens.differences import (
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
from daeosens.errors import DaeosensError, InputError, UnsupportedError
from daeosens.problem import Problem

Verdict = Literal["right", "wrong", "cannot tell", "not supplied"]
Function: TypeAlias = "Callable[[PETSc.Vec], Array]"
Words: TypeAlias = "Callable[[int, int, float, float], str]"

LEVELS = 12
"""Halvings of the step in u, udot and p."""

TIME_LEVELS = 20
"""Halvings of the step in t, whose scale is not known."""


@dataclass(frozen=True)
class CheckedCallback:
    """What was found about one callback.

    Attributes
    ----------
    name : str
        As in the call that supplied it: "jacobian_p", "terminal gradient_u".
    source : str
        "callback", "products", "complex step", "autonomous", "independent", "library" or empty.
    error : float
        Relative error; NaN if there is nothing to compare.
    verdict : str
        "right", "wrong", "cannot tell" (the callback that it differentiates is too rough for
        differences) or "not supplied".
    detail : str
        The worst entry in words, or why the callback failed.
    """

    name: str
    source: str
    error: float
    verdict: Verdict
    detail: str = ""


@dataclass(frozen=True)
class Check:
    """The result of ``check``: one row for each callback; prints itself as a table."""

    rows: tuple[CheckedCallback, ...]
    tolerance: float

    @property
    def wrong(self) -> tuple[str, ...]:
        """Names of the callbacks that are wrong."""
        return tuple(row.name for row in self.rows if row.verdict == "wrong")

    @property
    def unclear(self) -> tuple[str, ...]:
        """Names of the callbacks that differences cannot judge at this point."""
        return tuple(row.name for row in self.rows if row.verdict == "cannot tell")

    @property
    def ok(self) -> bool:
        """Whether no callback was found to be wrong."""
        return not self.wrong

    @property
    def passed(self) -> bool:
        """The same as ``ok``, under the name that a driver's report has."""
        return self.ok

    def __getitem__(self, name: str) -> CheckedCallback:
        """Return the row of a callback."""
        return {row.name: row for row in self.rows}[name]

    def raise_if_wrong(self) -> None:
        """Raise an error that names the wrong callbacks, if there are any.

        Raises
        ------
        InputError
            Some callback is not the derivative of what it should differentiate.
        """
        if self.ok:
            return
        lines = [f"{row.name} ({row.detail})" for row in self.rows if row.verdict == "wrong"]
        raise InputError(
            "wrong callbacks: " + ", ".join(lines),
            expected=f"derivatives within {self.tolerance:g} of differences",
            remedy="mend these; in NumPy style they can be left out (exact by complex step)",
        )

    def __str__(self) -> str:
        width = max([len(row.name) for row in self.rows], default=0) + 2
        lines = [f"{'callback':{width}}{'by':15}{'relative error':17}verdict"]
        for row in self.rows:
            error = "-" if math.isnan(row.error) else f"{row.error:.1e}"
            verdict = "WRONG" if row.verdict == "wrong" else row.verdict
            detail = f"  {row.detail}" if row.detail else ""
            lines.append(f"{row.name:{width}}{row.source or '-':15}{error:17}{verdict}{detail}")
        return "\n".join(lines)


class Bench:
    """The point (t, u, udot, p) at which callbacks are checked, and the rows found so far.

    Everything is collective on ``problem.comm``.

    Attributes
    ----------
    p, p_vec : array or Vec [m], and Vec [m]
        The parameters as callbacks see them, and as a vector in any case.
    t_vec : Vec [1]
        The time as a vector, on every rank.
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
        self.t = float(t)
        self.u = problem.admit_state(u)
        self.p = problem.admit_parameters(p)
        self.p_vec = self.p
        if not problem.field_parameter:
            self.p_vec = scatter(self.p, problem.create_parameters())
        if udot is None:
            self.udot = random_direction(self.u, seed + 1000)
        else:
            self.udot = problem.admit_state(udot, "udot")
        self.t_vec = PETSc.Vec().createSeq(1, comm=PETSc.COMM_SELF)
        write(self.t_vec, [self.t])
        self.rows: list[CheckedCallback] = []
        self._seed = seed
        self._tolerance = tolerance
        self._first_row = int(problem.state.getOwnershipRange()[0])

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

        moves = directions(x, self._seed)
        return moves, [difference(along(one), self.comm, levels) for one in moves]

    def judge(
        self,
        name: str,
        source: str,
        expected: Sequence[Difference],
        given: Callable[[], Array],
        describe: Words,
    ) -> None:
        """Add a row for the derivatives ``given()`` [rows, K]; what they raise is a verdict too."""
        names = [row.name for row in self.rows]
        if name in names:  # the second terminal cost, for instance
            name = next(f"{name} {k}" for k in range(2, 10000) if f"{name} {k}" not in names)
        try:
            found = compare(given(), expected, self._tolerance, self.comm, describe)
            row = CheckedCallback(name, source, found.error, _verdict(found), found.where)
        except (DaeosensError, PETSc.Error) as error:
            row = _failure(name, source, error)
        self.rows.append(row)

    def judge_matrix(
        self,
        name: str,
        source: str,
        moves: Sequence[PETSc.Vec],
        expected: Sequence[Difference],
        given: Callable[[], Array],
    ) -> None:
        """Add a row for products [n_local, K] with the directions."""
        self.judge(name, source, expected, given, entries(moves, self._first_row))

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
        sizes = [weight.copy() for weight in weights]
        for size in sizes:
            size.abs()

        def products(vectors: Sequence[PETSc.Vec], values: Array) -> Array:
            vec = self.problem.create_state()
            write(vec, values)
            return np.array([dot(vector, vec) for vector in vectors])

        scalars = [
            Difference(
                products(weights, one.values),
                products(sizes, one.error),
                products(sizes, one.rounding),
            )
            for one in expected
        ]

        def given() -> Array:
            rows: list[list[float]] = []
            for weight in weights:
                out = moves[0].duplicate()
                product(weight, out)
                rows.append([dot(out, move) for move in moves])
            return np.array(rows)

        self.judge(name, source, scalars, given, _describe_products)

    def _weights(self, expected: Sequence[Difference]) -> list[PETSc.Vec]:
        """Return vectors [n] to test a transpose with: every component, or random ones.

        Random ones are balanced, so that no row of the matrix drowns the others.
        """
        like = self.problem.state
        if like.size <= FEW:
            return [unit(like, i) for i in range(like.size)]
        rows = np.max([np.nan_to_num(np.abs(one.values)) for one in expected], axis=0)
        overall = max(self.comm.tompi4py().allgather(float(rows.max(initial=0.0))))
        weights = [random_numbers(like, self._seed + 100 + k) for k in range(RANDOM)]
        for weight in weights:
            write(weight, read(weight) / (rows + 1e-8 * overall + np.finfo(float).tiny))
        return weights


def entries(moves: Sequence[PETSc.Vec], first_row: int = 0) -> Words:
    """Describe entries of a matrix, of which this rank has the rows from ``first_row`` on."""
    sizes = _unit_sizes(moves)

    def describe(row: int, column: int, given: float, expected: float) -> str:
        row += first_row
        if sizes is None:
            return f"row {row}: {given:.6g} instead of {expected:.6g} (random direction)"
        given, expected = given / sizes[column], expected / sizes[column]
        return f"entry [{row}, {column}] is {given:.6g} instead of {expected:.6g}"

    return describe


def components(moves: Sequence[PETSc.Vec]) -> Words:
    """Describe components of a gradient."""
    sizes = _unit_sizes(moves)

    def describe(_row: int, column: int, given: float, expected: float) -> str:
        if sizes is None:
            return f"{given:.6g} instead of {expected:.6g} (random direction)"
        given, expected = given / sizes[column], expected / sizes[column]
        return f"component {column} is {given:.6g} instead of {expected:.6g}"

    return describe


def number(x: PETSc.Vec) -> float:
    """Return the one value of ``t_vec``, moved."""
    return float(read(x)[0])


def _describe_products(_row: int, _column: int, given: float, expected: float) -> str:
    return f"(A^T w, v) = {given:.6g} but (w, A v) = {expected:.6g}"


def _unit_sizes(moves: Sequence[PETSc.Vec]) -> list[float] | None:
    if moves[0].size > FEW:
        return None
    return [float(np.sum(gather(move))) for move in moves]


def _failure(name: str, source: str, error: BaseException) -> CheckedCallback:
    """Return the row of a callback that raised; what it raised inside PETSc is PETSc's cause."""
    cause = error.__cause__ if isinstance(error, PETSc.Error) else error
    if not isinstance(cause, DaeosensError):
        raise error
    if isinstance(cause, UnsupportedError):
        return CheckedCallback(name, "", math.nan, "not supplied")
    return CheckedCallback(name, source, math.inf, "wrong", str(cause).splitlines()[0])


def _verdict(found: Comparison) -> Verdict:
    if found.wrong:
        return "wrong"
    return "cannot tell" if found.unclear else "right"
