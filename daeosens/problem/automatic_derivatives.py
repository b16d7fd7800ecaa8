"""Missing derivatives of NumPy callbacks: exact to rounding, or refused."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, partial
from types import CodeType
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc
from scipy import sparse

from daeosens.errors import DaeosensError, InputError, UnsupportedError
from daeosens.petsc.vectors import Array
from daeosens.problem.callback_guard import guarded
from daeosens.problem.coloring import FEW_COLORS, IN_VAIN, MANY_COLUMNS, Coloring
from daeosens.problem.derivative_arrays import (
    DerivativeArray,
    DerivativeLostError,
    PointArray,
    Record,
    WaysDifferError,
    evaluate,
    held,
    line_of_error,
    primal,
)
from daeosens.problem.slope_check import (
    Direction,
    contradiction,
    deciding_lines,
    random_direction,
)

Arguments = tuple[Any, ...]

COLUMNS = 256
"""So many columns of a large Jacobian are evaluated at a time: bounds the memory."""

ROUNDING = 1e-13
"""Of a sum, as a part of its largest term."""

AGREES = 1e-8
"""Relative difference that other orders of summation may make between two evaluations."""


def ignores(function: Callable[..., Any], position: int) -> bool:
    """Whether a plain Python function never reads its argument of that number.

    Told from its compiled code, so a derivative is zero for certain, not by accident of a point.
    """
    return inspect.isfunction(function) and _never_names(function.__code__, position)


@cache
def _never_names(code: CodeType, position: int) -> bool:
    if position >= code.co_argcount or _SEES_ALL.intersection(code.co_names):
        return False
    name = code.co_varnames[position]
    # an inner function may read it
    if name in code.co_cellvars:
        return False
    read = (instruction.argval for instruction in dis.get_instructions(code))
    return not any(
        name == target or (isinstance(target, tuple) and name in target) for target in read
    )


_SEES_ALL = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe"})
"""A function with one of these may read its arguments without naming them."""


class Differentiated:
    """A NumPy callback that can be evaluated with arguments which carry derivatives.

    Parameters
    ----------
    function : callable
        ``function(*arguments) -> array`` or a number.
    name : str
        The callback's name in messages.
    remedy : str
        What the user can supply instead.
    second : bool
        Whether second derivatives are wanted.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, remedy: str, *, second: bool = False
    ) -> None:
        self.name = name
        self.remedy = remedy
        self._second = second
        # its own communicator: one that refuses does so on every rank
        self._function = guarded(function, name, PETSc.COMM_SELF)
        self._home = str(getattr(function, "__module__", "") or "").partition(".")[0]
        self._holds = False
        self._uses = 0
        self._next_look = 1

    def __call__(
        self, arguments: Sequence[Any], plain: Sequence[Any], directions: tuple[int, ...]
    ) -> DerivativeArray:
        """Return its value [...] with slopes [..., K].

        Parameters
        ----------
        arguments : sequence
            What the callback gets; arrays that carry derivatives among them.
        plain : sequence
            The same without derivatives.
        directions : tuple of int
            Numbers of directions, the outermost level first.

        Raises
        ------
        InputError
            Something in it has no derivative; names the line and another spelling.
        """
        try:
            result = self._evaluated(arguments, directions)
        except DaeosensError:
            raise
        except Exception as error:
            lost = _lost(error)
            if lost is None:
                self.plain(plain)  # what numbers fail with too is its own error
            raise self._refusal(error, lost) from error
        if type(result) is not DerivativeArray:
            if result.dtype.kind not in "biufc":
                raise InputError(
                    f"callback '{self.name}' returned {result.dtype} values", expected="numbers"
                )
            result = held(np.asarray(result, dtype=float), directions)
        self._uses += 1
        # at uses 1, 8, 64, ...: faults that depend on the point are met, at little cost
        if self._uses == self._next_look:  # ever more rarely
            self._next_look *= 8
            self._compare(result, plain)
            self._look_at_slopes(result, arguments, plain, directions)
        return result

    def _evaluated(self, arguments: Sequence[Any], directions: tuple[int, ...]) -> Any:
        """Evaluate; arrays that do not vary carry slopes of zero where the callback fills copies.

        ``v = u.copy(); v[1] = -p[0] * u[1]`` differentiated in p alone puts a number that varies
        into a copy of a constant array.
        """
        if not self._holds:
            try:
                return evaluate(self._function, arguments, directions, self._home)
            except DaeosensError:
                raise
            except Exception as error:
                # only what dropped a derivative is tried again
                if _lost(error) is None:
                    raise
                try:
                    result = evaluate(
                        self._function, _held(arguments, directions), directions, self._home
                    )
                except Exception:  # noqa: BLE001 (the first error is the one to tell)
                    raise error from None
                self._holds = True
                return result
        return evaluate(self._function, _held(arguments, directions), directions, self._home)

    def at_points(
        self, arguments: Sequence[Any], directions: tuple[int, ...], count: int
    ) -> DerivativeArray | None:
        """Return what the callback makes of ``PointArray`` arguments, at ``count`` points.

        None where points have to be evaluated one after the other.

        Raises
        ------
        WaysDifferError
            They go ways that differ, by which they can be told apart.
        """
        try:
            result = evaluate(self._function, arguments, directions, self._home, count)
        except WaysDifferError:
            raise
        except Exception:  # noqa: BLE001 (it is asked in another way then)
            return None
        return result if type(result) is DerivativeArray else None

    def recorded(self, t: Array, u: Array, p: Array) -> RecordedPoints | None:
        """Return what multiplies rows by f_u and f_p at points (t [K], u [K, n], p [m]).

        None where operations on slopes are not known to a record, or differ between points.
        """
        record, count = Record(), len(t)
        of_u, of_p = record.slopes((u.shape[1], 1)), record.slopes((p.size, 1))
        arguments = (
            PointArray(t.copy()),
            DerivativeArray(PointArray(u.T.copy()), of_u),
            DerivativeArray(PointArray(p[:, None].copy()), of_p),
        )
        try:
            result = evaluate(self._function, arguments, (1,), self._home, count, record)
        except Exception:  # noqa: BLE001 (it is asked in another way then)
            return None
        # numbers that do not vary have no slopes that are recorded
        varies = type(result) is DerivativeArray and result.shape == u.shape[1:]
        return RecordedPoints(record, result.slopes, [of_u, of_p]) if varies else None

    def plain(self, arguments: Sequence[Any]) -> Any:
        """Return what the callback gives without derivatives."""
        return self._function(*[copy(argument) for argument in arguments])

    def _compare(self, result: DerivativeArray, plain: Sequence[Any]) -> None:
        """Refuse a callback that does other things with arrays which carry derivatives."""
        values = primal(result)
        with np.errstate(all="ignore"):
            # the same numbers as without derivatives: a rule that NumPy has changed, or a callback
            # with a memory, is met here
            expected: Any = self.plain(plain)
            if hasattr(expected, "toarray"):
                expected = expected.toarray()
            expected = np.asarray(expected)
            if expected.dtype.kind not in "biufc":
                return  # its own fault, named where it is evaluated
            scale = float(np.abs(expected).max(initial=0.0))
            # terms may cancel, as in a residual: their rounding is that of what they are made of
            largest = max((float(np.abs(x).max(initial=0.0)) for x in plain), default=0.0)
            terms = float(np.abs(primal(result.slopes)).max(initial=0.0)) * largest
            near = expected.shape == values.shape and not np.any(
                np.abs(expected - values) > AGREES * scale + ROUNDING * terms
            )
        if not near:
            raise InputError(
                f"callback '{self.name}' gives {_few(values)} with numbers that carry derivatives, "
                f"and {_few(expected)} without",
                expected="the same: no random numbers, no state kept between calls",
                remedy=self.remedy,
            )

    def _look_at_slopes(
        self,
        result: DerivativeArray,
        arguments: Sequence[Any],
        plain: Sequence[Any],
        directions: tuple[int, ...],
    ) -> None:
        """Refuse a callback whose differences all say another derivative."""
        rng = np.random.default_rng(self._uses)
        # differences of the plain callback along a random direction, against its slopes
        outer = random_direction(arguments, plain, rng)
        if outer is None:
            return

        def values(h: float) -> Array:
            return _flat(self.plain(outer.shifted(plain, h)))

        def first(direction: Direction, h: float) -> Array:
            shifted = [
                DerivativeArray(y, primal(x.slopes).copy()) if type(x) is DerivativeArray else y
                for x, y in zip(arguments, direction.shifted(plain, h), strict=True)
            ]
            evaluated = self._evaluated(shifted, directions[:1])
            return _flat(evaluated.slopes @ outer.weights)

        slopes = primal(result.slopes)
        beside = partial(first, outer)
        self._refuse_contradiction(values, slopes, outer, arguments, directions, beside)
        if len(directions) == 1:
            return
        inner = random_direction([_value(x) for x in arguments], plain, rng)
        if inner is None:
            return
        # second derivatives: differences of slopes, against the slopes of slopes
        mixed = np.tensordot(result.slopes.slopes, outer.weights, ([-2], [0]))
        self._refuse_contradiction(partial(first, inner), mixed, inner, arguments, directions)

    def _refuse_contradiction(
        self,
        values: Callable[[float], Array],
        slopes: Array,
        direction: Direction,
        arguments: Sequence[Any],
        directions: tuple[int, ...],
        beside: Callable[[float], Array] | None = None,
    ) -> None:
        weights = direction.weights
        slopes = slopes.reshape(-1, weights.size)
        try:
            with np.errstate(all="ignore"):
                terms = np.abs(slopes) @ np.abs(weights)
                difference = contradiction(values, slopes @ weights, terms, beside)
        except Exception:  # noqa: BLE001 (what fails beside a point says nothing of the point)
            return
        if difference is None:
            return
        # only now that something is wrong: where it compares or rounds what varies
        lines = deciding_lines(lambda: self._evaluated(arguments, directions))
        where = f"; it decides by numbers that vary {', '.join(lines)}" if lines else ""
        expected = (
            "results computed from numbers that vary, not found by comparing or rounding them, nor "
            "kept from earlier calls"
        )
        remedy = (
            "a step of Newton's method with what was found (x - g(x, p) / g_x(x, p), two for "
            f"second derivatives) carries the derivative; or {self.remedy}"
        )
        if difference.singular:
            where += "; it has a jump or a pole next to this point, as v / |v| has where v is 0"
            remedy = (
                "an event before the run comes there, and equations that go on smoothly beyond it "
                f"(a direction as an unknown of rate 0); or {remedy}"
            )
        raise (UnsupportedError if self._second else InputError)(
            f"callback '{self.name}' changes otherwise than its derivative says: along a direction "
            f"entry {difference.entry} by {difference.difference:.6g}, its derivative "
            f"{difference.derivative:.6g}{where}",
            expected=expected,
            remedy=remedy,
        )

    def _refusal(
        self, error: BaseException, lost: DerivativeLostError | None
    ) -> InputError | UnsupportedError:
        if lost is not None:
            what, line, remedy = f"{lost.what} drops the derivative", lost.line, lost.remedy
        else:
            text = str(error).splitlines()
            what, remedy = f"{type(error).__name__}: {text[0] if text else ''}", ""
            line = line_of_error(error.__traceback__)
        function = _function_of_scipy("scipy.linalg", error)
        ways = (self.remedy, remedy)
        if _function_of_scipy("scipy.interpolate", error) not in ("", "__call__"):
            what = "an interpolant of SciPy is made of values that vary"
            basis = (
                "basis = CubicSpline(knots, np.eye(len(knots))), made once outside, and "
                "basis(x) @ values, since splines are linear in their values"
            )
            ways = (basis, self.remedy)
        if function:  # which calls LAPACK
            what = f"scipy.linalg.{function} takes plain numbers alone"
            other = _IN_NUMPY.get(function)
            ways = (self.remedy, f"np.linalg.{other} in its place" if other else "")
        who = f"callback '{self.name}'"
        message = f"{who} cannot be differentiated"
        if self._second:
            message = f"second derivatives of {who} are needed, and cannot be had"
        return (UnsupportedError if self._second else InputError)(
            f"{message}: {what}{f', {line}' if line else ''}",
            expected="functions of NumPy, math and scipy.special that have a derivative "
            "(docs/callbacks.md)",
            remedy="; or ".join(way for way in ways if way),
        )


def _value(x: Any) -> Any:
    return x.value if type(x) is DerivativeArray else x


def _flat(values: Any) -> Array:
    return np.asarray(values.toarray() if hasattr(values, "toarray") else values, float).reshape(-1)


def _few(values: Any) -> str:
    return np.array2string(np.asarray(values).ravel()[:4], precision=6)


def _held(arguments: Sequence[Any], directions: tuple[int, ...]) -> list[Any]:
    """Return arguments with slopes of zero where they are arrays without."""
    return [held(x.copy(), directions) if isinstance(x, np.ndarray) else x for x in arguments]


_SAME = ("cholesky", "det", "eigh", "eigvalsh", "inv", "norm", "pinv", "solve", "svd")
_FACTORS = ("cho_factor", "cho_solve", "lu_factor", "lu_solve", "solve_triangular")
_IN_NUMPY = {**{name: name for name in _SAME}, **dict.fromkeys(_FACTORS, "solve")}
"""What np.linalg has in the place of functions of scipy.linalg, with derivatives."""


def _function_of_scipy(package: str, error: BaseException) -> str:
    """Return the function of a package, called by the user, that an exception came out of."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(package):
            return trace.tb_frame.f_code.co_name
        trace = trace.tb_next
    return ""


def _lost(error: BaseException | None) -> DerivativeLostError | None:
    """Return what an exception goes back to: NumPy puts others in its place."""
    seen = 0
    while error is not None and seen < 20:
        if isinstance(error, DerivativeLostError):
            return error
        error = error.__cause__ or error.__context__
        seen += 1
    return None


@dataclass(frozen=True, eq=False)
class RecordedPoints:
    """A right-hand side as it was evaluated at some points, to be transposed at each of them.

    Attributes
    ----------
    record : Record
        What was done to slopes.
    result : RecordedSlopes
        Those of f.
    arguments : list
        Those of u and p.
    """

    record: Record
    result: Any
    arguments: list[Any]

    def pull(self, point: int, w: Array) -> tuple[Array, Array]:
        """Return w f_u [M, n] and w f_p [M, m] at a point for rows w [M, n]."""
        by_u, by_p = self.record.pull(point, self.result, w, self.arguments)
        return by_u, by_p


class AutomaticJacobian:
    """Jacobian of ``function`` in the argument number ``position``, all columns in one evaluation.

    Parameters
    ----------
    function : callable
        ``function(*arguments) -> array [n]`` or a number.
    position : int
        Which argument is varied; a number or an array [m].
    name : str
        The callback's name in messages.
    remedy : str
        What the user can supply instead.
    colored : bool
        Large square Jacobians with few entries are found by colors of their columns, as a SciPy
        array (CSR).

    Attributes
    ----------
    evaluate : Differentiated
        The callback.
    position : int
    coloring : Coloring or None
        Of the columns, once they are known to be few.
    at_all : bool
        Whether it may be evaluated at many points at once, as far as is known.

    Source
    ------
    Griewank and Walther, Evaluating Derivatives, SIAM 2008, section 3.1.

    Examples
    --------
    >>> import numpy as np
    >>> jacobian = AutomaticJacobian(lambda x: np.array([x[0] * abs(x[1])]), 0, "f", "jacobian=")
    >>> jacobian(np.array([2.0, -3.0]))
    array([[ 3., -2.]])
    """

    def __init__(
        self,
        function: Callable[..., Any],
        position: int,
        name: str,
        remedy: str,
        *,
        colored: bool = False,
    ) -> None:
        self.evaluate = Differentiated(function, name, remedy)
        self.position = position
        self._may_be_colored = colored
        self.coloring: Coloring | None = None
        self.at_all = True
        self._in_vain = 0

    def __call__(self, *arguments: Any) -> Any:
        """Return the Jacobian [n, m] at the arguments; [n, 1] for a scalar argument.

        Raises
        ------
        InputError
            The callback cannot be differentiated.
        """
        return self._evaluated_by(arguments, Coloring.matrix)

    def whole(self, *arguments: Any) -> Array:
        """Return the same as an array, of few entries too."""
        jacobian: Any = self._evaluated_by(arguments, Coloring.array)
        if type(jacobian) is not np.ndarray:
            jacobian = jacobian.toarray()
        return jacobian  # type: ignore[no-any-return]

    def _evaluated_by(self, arguments: Arguments, by_colors: Callable[..., Any]) -> Any:
        size = np.size(arguments[self.position])
        if not size:
            return np.empty((np.size(self.evaluate.plain(arguments)), 0))
        # Curtis, Powell and Reid: columns that share no row are one direction together
        if self.colored(size):
            return self._by_colors(arguments, by_colors)
        return self.products(arguments, np.eye(size))

    def colored(self, size: int) -> bool:
        """Return whether so many columns are found by their colors, as far as is known."""
        return self._may_be_colored and size >= MANY_COLUMNS

    def _by_colors(self, arguments: Arguments, by_colors: Callable[..., Any]) -> Any:
        u = np.asarray(arguments[self.position], dtype=float)
        coloring = self.coloring
        if coloring is not None:
            # sums of columns that share no row tell all entries; None where one seems to be
            # missing
            jacobian = by_colors(coloring, self.products(arguments, coloring.seeds(u)), u)
            if jacobian is not None:
                return jacobian
        matrix = self._by_columns(arguments)
        if matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix.data).all():
            return matrix.toarray()
        pattern = matrix != 0
        if coloring is None:
            # entries that happen to be zero at this point are there at another one
            pattern = pattern + self._beside(arguments, u)
        else:
            pattern = pattern + coloring.pattern
            self._in_vain += pattern.nnz == coloring.pattern.nnz
        if coloring is None or pattern.nnz > coloring.pattern.nnz:
            coloring = Coloring(pattern)
        # colours save too little, or were wrong too often: columns from now on
        if coloring.count > u.size // FEW_COLORS or self._in_vain == IN_VAIN:
            self._may_be_colored = False
            return matrix.toarray()
        self.coloring = coloring
        return matrix

    def _by_columns(self, arguments: Arguments) -> Any:
        """Return the Jacobian (CSR) from some columns at a time."""
        size = np.size(arguments[self.position])
        parts = [
            sparse.csr_array(self.products(arguments, np.eye(size, min(COLUMNS, size - k), -k)))
            for k in range(0, size, COLUMNS)
        ]
        return sparse.hstack(parts, format="csr")

    def _beside(self, arguments: Arguments, u: Array) -> Any:
        """Return the pattern of the Jacobian beside a point, where less is zero by accident."""
        rng = np.random.default_rng(u.size)
        moved = list(arguments)
        size = float(np.abs(u).max()) or 1.0
        moved[self.position] = u + rng.uniform(0.01, 0.1, u.size) * (np.abs(u) + 0.1 * size)
        try:
            return self._by_columns(tuple(moved)) != 0
        except Exception:  # noqa: BLE001 (what fails beside a point says nothing of the point)
            return sparse.csr_array((u.size, u.size), dtype=bool)

    def along(self, direction: npt.ArrayLike, *arguments: Any) -> Array:
        """Return the Jacobian times ``direction`` [m]."""
        return self.products(arguments, np.asarray(direction, dtype=float).reshape(-1, 1))[:, 0]

    def products(self, arguments: Arguments, seeds: Array) -> Array:
        """Return the Jacobian times ``seeds`` [m, K]."""
        varying = list(arguments)
        varying[self.position] = seeded(arguments[self.position], seeds)
        count = seeds.shape[1]
        slopes = self.evaluate(varying, arguments, (count,)).slopes
        return slopes.reshape(-1, count)


def seeded(argument: Any, seeds: Array) -> DerivativeArray:
    """Return an argument, a number or an array [m], with slopes [m, K]."""
    value = np.array(argument, dtype=float)[()]
    return DerivativeArray(value, seeds if value.shape else seeds[0])
