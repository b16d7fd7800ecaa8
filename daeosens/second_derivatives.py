"""Products with second derivatives: the callback's own, or by complex step of first derivatives.

The Hessian of w^T f along a direction d is the derivative of the products f_x^T w along d, for all
arguments x at once.  All second-order sweeps see is a ``VecFunction`` that fills one vector for
each argument.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import Array, check_output, guarded, read, scatter, write
from daeosens.derivatives import STEP
from daeosens.errors import InputError, UnsupportedError
from daeosens.jets import slopes_of, variables
from daeosens.lowering import Frame
from daeosens.matrices import Products
from daeosens.problem import VecFunction

First = Callable[..., Any] | Products | None
"""A first derivative as the user gave it."""

Arguments = tuple[Any, ...]

ONE_BY_ONE = 16
"""Up to how many components of an argument are moved one at a time at the first use."""


def lower_hessian(
    frame: Frame,
    function: Callable[..., Any],
    first: Mapping[int, Any],
    given: Callable[..., Any] | None,
    name: str,
    keyword: str,
) -> VecFunction:
    """Lower the products of the Hessian of w^T f, f a callback of either style, with a direction.

    Parameters
    ----------
    frame : Frame
        Style and layouts.
    function : callable
        NumPy style f.
    first : mapping of int to callable, Products, str or None
        Positions of the arguments x, in order and the parameters last, with the first derivatives.
    given : callable or None
        The user's own ``(*point, w, *directions) -> (array, ...)``; PETSc style see ``ODE``.
    name, keyword : str
        What f and ``given`` are called.

    Returns
    -------
    callable
        ``(*point, w, *directions, *outs)``: fills one vector for each argument x.
    """
    positions = tuple(first)
    sizes = [frame.state.size] * (len(positions) - 1) + [frame.parameter.size]
    if given is not None:
        call = guarded(given, keyword, frame.state.comm)
        if frame.style == "petsc":
            return _petsc_hessian(call, keyword, frame)
    elif frame.style == "petsc":
        return _refusing(keyword)
    else:
        known = {k: None if isinstance(each, str) else each for k, each in first.items()}
        product = HessianByComplexStep(
            guarded(function, name, frame.state.comm), known, name, f"{keyword}=callback"
        )

        def call(*arguments: Any) -> tuple[Array, ...]:
            point, w, directions = _split(arguments, len(positions))
            result = product(point, w, dict(zip(positions, directions, strict=True)))
            return tuple(result[position] for position in positions)

    def fill(*arguments: Any) -> None:
        inputs, outs = arguments[: -len(positions)], arguments[-len(positions) :]
        t = inputs[0] if isinstance(inputs[0], float) else 0.0
        values: Any = call(*[read(a) if isinstance(a, PETSc.Vec) else a for a in inputs])
        if not isinstance(values, tuple) or len(values) != len(positions):  # type: ignore[arg-type]
            raise InputError(
                f"callback '{keyword}' returned {_described(values)}",
                expected=f"a tuple of {len(positions)} arrays, one for each argument of '{name}'",
            )
        results = cast("tuple[Any, ...]", values)
        for value, size, out in zip(results, sizes, outs, strict=True):
            if size:
                write(out, check_output(value, keyword, (size,), t))

    return fill


def lower_mass_hessian(
    frame: Frame,
    mass: Callable[..., Any],
    mass_p: Callable[..., Any] | None,
    given: Callable[..., Any] | None,
) -> VecFunction:
    """Lower the products of the Hessian of w^T M(p) v, at the point (v, p), along (dv, dp)."""

    def product(v: Any, p: Any) -> Any:
        return mass(p) @ v

    def by_v(_v: Any, p: Any) -> Any:
        return mass(p)

    def by_p(v: Any, p: Any) -> Any:
        assert mass_p is not None
        return mass_p(p, v)

    first = {0: by_v, 1: None if mass_p is None else by_p}
    return lower_hessian(frame, product, first, given, "mass", "mass_hessian")


def residual_hessian(rhs_hessian: VecFunction, mass_hessian: VecFunction | None) -> VecFunction:
    """Return the Hessian products of w^T (M u' - f), given those of w^T f and w^T M(p) v."""

    def fill(
        t: float,
        u: PETSc.Vec,
        udot: PETSc.Vec,
        p: Any,
        w: PETSc.Vec,
        du: PETSc.Vec,
        dudot: PETSc.Vec,
        dp: Any,
        out_u: PETSc.Vec,
        out_udot: PETSc.Vec,
        out_p: PETSc.Vec,
    ) -> None:
        rhs_hessian(t, u, p, w, du, dp, out_u, out_p)
        out_u.scale(-1.0)
        if mass_hessian is None:
            out_p.scale(-1.0)
            out_udot.zeroEntries()
            return
        by_p = out_p.copy()
        mass_hessian(udot, p, w, dudot, dp, out_udot, out_p)
        out_p.axpy(-1.0, by_p)
        by_p.destroy()

    return fill


def _split(arguments: tuple[Any, ...], count: int) -> tuple[tuple[Any, ...], Any, tuple[Any, ...]]:
    return arguments[: -count - 1], arguments[-count - 1], arguments[-count:]


def _described(values: Any) -> str:
    if isinstance(values, tuple):
        return f"{len(values)} values"  # type: ignore[arg-type]
    return type(values).__name__


def _petsc_hessian(call: Callable[..., Any], keyword: str, frame: Frame) -> VecFunction:
    if frame.field_parameter:
        return call
    m = frame.parameter.size

    def fill(*arguments: Any) -> None:
        *rest, out = arguments
        values = call(*rest)
        if m:
            scatter(check_output(values, keyword, (m,), arguments[0]), out)

    return fill


def _refusing(keyword: str) -> VecFunction:
    def refuse(*_arguments: Any) -> None:
        raise UnsupportedError(
            f"'{keyword}' is needed and was not supplied",
            expected=f"{keyword}=callback: second derivatives of PETSc-style callbacks "
            "cannot be found by complex step",
            remedy="a method that needs gradients only, or Gauss-Newton for least squares",
        )

    return refuse


class HessianByComplexStep:
    """w^T f_xy d for a NumPy callback, from its first derivatives or from the callback itself.

    A first derivative that the user supplied is evaluated at ``point + i 1e-40 d``.  Where it is
    missing, or cannot take complex numbers, the callback is evaluated with ``Jet`` numbers whose
    values lie there.  Both are exact to rounding.  The first use is compared with differences, in
    all rows and along all arguments: ``np.abs`` takes complex numbers and loses the derivative.

    Parameters
    ----------
    function : callable
        ``function(*arguments) -> array [q]`` or a number.
    first : mapping of int to callable, Products or None
        For each argument of interest its position and its first derivative [q, size].
    name, remedy : str
        The callback's name in messages, and what the user can supply instead.

    Source
    ------
    Complex step: Squire and Trapp, SIAM Review 40(1), 1998.  With forward-mode numbers on top:
    Lantoine, Russell, Dargent, ACM Trans. Math. Software 38(3), 2012, for the same idea with
    multicomplex numbers.

    Examples
    --------
    >>> import numpy as np
    >>> product = HessianByComplexStep(lambda x: np.array([x[0] ** 3]), {0: None}, "f", "")
    >>> product((np.array([2.0]),), np.array([1.0]), {0: np.array([1.0])})[0]
    array([12.])
    """

    def __init__(
        self,
        function: Callable[..., Any],
        first: Mapping[int, First],
        name: str,
        remedy: str,
    ) -> None:
        self._function = function
        self._first = dict(first)
        self._name = name
        self._remedy = remedy
        self._trusted: set[int] = set()
        self._jets_trusted = False
        self._reasons: list[str] = []

    def __call__(
        self, point: Arguments, w: Array, direction: Mapping[int, Array]
    ) -> dict[int, Array]:
        """Return for each argument the derivative of f_x^T w along ``direction`` [size].

        Raises
        ------
        UnsupportedError
            Neither the derivatives nor the callback can take what is needed; names the remedy.
        """
        moved = _moved(point, direction, 1j * STEP)
        result: dict[int, Array] = {}
        for position, first in list(self._first.items()):
            if first is None:
                continue
            try:
                result[position] = self._stepped(position, first, moved, point, w)
            except (TypeError, np.exceptions.ComplexWarning) as error:
                self._reasons.append(f"its derivative cannot take complex numbers ({error})")
                self._first[position] = None
        missing = [position for position, first in self._first.items() if first is None]
        if missing:
            result |= self._by_jets(moved, missing, w, point)
        return result

    def _stepped(
        self,
        position: int,
        first: Callable[..., Any] | Products,
        moved: Arguments,
        point: Arguments,
        w: Array,
    ) -> Array:
        if position not in self._trusted:
            self._compare_steps(first, point, w)
            self._trusted.add(position)
        return np.imag(_transposed(first, moved, w)) / STEP

    def _compare_steps(
        self, first: Callable[..., Any] | Products, point: Arguments, w: Array
    ) -> None:
        """Refuse a first derivative whose complex steps differences do not confirm."""
        rows = _rows(w)

        def products(at: Arguments) -> Any:
            return _transposed(first, at, rows)

        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            for along in _probes(point, self._first):
                exact = np.imag(products(_moved(point, along, 1j * STEP))) / STEP
                if not _confirmed(products, point, along, exact):
                    raise TypeError("its complex step disagrees with a central difference")

    def _by_jets(
        self, moved: Arguments, positions: Sequence[int], w: Array, point: Arguments
    ) -> dict[int, Array]:
        ends = np.cumsum([len(moved[position]) for position in positions])
        try:
            if not self._jets_trusted:
                self._compare_jets(positions, w, point)
                self._jets_trusted = True
            products: Array = np.imag(self._weighted_slopes(moved, positions, w)) / STEP
        except (TypeError, AttributeError, ValueError, np.exceptions.ComplexWarning) as error:
            raise self._refusal(str(error).splitlines()[0]) from error
        return dict(zip(positions, np.split(products, ends[:-1]), strict=True))

    def _weighted_slopes(self, point: Arguments, positions: Sequence[int], w: Array) -> Any:
        """Return f_x^T w for the arguments at ``positions``, one after the other."""
        starts = np.cumsum([0, *(len(point[position]) for position in positions)]).tolist()
        arguments = list(point)
        for position, start in zip(positions, starts, strict=False):
            arguments[position] = variables(point[position], start, starts[-1])
        return w @ slopes_of(self._function(*arguments), starts[-1])

    def _compare_jets(self, positions: Sequence[int], w: Array, point: Arguments) -> None:
        """Refuse slopes, or their complex steps, that differences do not confirm."""
        rows = _rows(w)

        def value(at: Arguments) -> Array:
            return np.atleast_1d(rows @ np.atleast_1d(self._function(*at)))

        def slopes(at: Arguments) -> Array:
            return np.real(self._weighted_slopes(at, positions, rows))

        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            first = slopes(point)
            # terms may cancel in a residual: their rounding is that of what they are made of
            terms = float(np.abs(first) @ np.abs(np.concatenate([point[k] for k in positions])))
            for along in _probes(point, self._first):
                moved = _moved(point, along, 1j * STEP)
                exact = np.imag(self._weighted_slopes(moved, positions, rows)) / STEP
                own = np.concatenate([along.get(k, np.zeros(len(point[k]))) for k in positions])
                change = np.atleast_1d(first @ own)
                right = not own.any() or _confirmed(value, point, along, change, terms)
                if not (right and _confirmed(slopes, point, along, exact)):
                    raise TypeError(
                        "its forward-mode derivative disagrees with a central difference"
                    )

    def _refusal(self, reason: str) -> UnsupportedError:
        reasons = "; ".join([*dict.fromkeys(self._reasons), f"nor can it: {reason}"])
        return UnsupportedError(
            f"second derivatives of callback '{self._name}' are needed, and cannot be had: "
            f"{reasons if self._reasons else reason}",
            expected="first derivatives that take complex numbers, or a callback of analytic "
            "operations only (no abs, float(), math.*, arrays of floats filled in place, nor SciPy "
            "matrices times the arguments)",
            remedy=self._remedy,
        )


def _transposed(first: Callable[..., Any] | Products, point: Arguments, w: Array) -> Any:
    if isinstance(first, Products):
        return np.asarray(first.apply_transpose(*point, w))
    given: Any = first(*point)
    matrix: Any = given if hasattr(given, "T") else np.asarray(given)
    return matrix.T @ w


def _moved(point: Arguments, direction: Mapping[int, Array], length: complex) -> Arguments:
    return tuple(
        argument + length * direction[k] if k in direction else argument
        for k, argument in enumerate(point)
    )


def _rows(w: Array) -> Array:
    """Return weights that leave out no row: those of the first use may be zero."""
    return np.cos(1.0 + np.arange(len(w)))


def _probes(point: Arguments, positions: Iterable[int]) -> Iterator[dict[int, Array]]:
    """Yield directions that leave out no component, by parts of themselves.

    The direction of the first use may be zero where a later one is not.  Components are moved one
    at a time, so that none hides behind others, or together where there are many.
    """
    for k in positions:
        x = np.asarray(point[k], dtype=float)
        size = float(np.abs(x).max(initial=0.0))
        sizes = np.where(x == 0.0, min(size or 1.0, 1.0), np.abs(x))
        if x.size <= ONE_BY_ONE:
            yield from ({k: row} for row in np.diag(sizes))
        else:
            yield {k: sizes * np.cos(1.0 + np.arange(x.size))}


def _confirmed(
    product: Callable[[Arguments], Any],
    point: Arguments,
    direction: Mapping[int, Array],
    exact: Array,
    terms: float = 0.0,
) -> bool:
    """Say whether some central difference agrees, or proves nothing because it is not finite."""
    for eps in (6e-6, 1e-7):
        above, below = (product(_moved(point, direction, sign * eps)) for sign in (1.0, -1.0))
        with np.errstate(invalid="ignore"):
            difference = (above - below) / (2 * eps)
            noise = 1e-13 * (np.abs(above).max(initial=0.0) + terms) / eps
            limit = 1e-3 * (np.abs(exact) + np.abs(difference)) + noise
            if not (np.abs(difference - exact) > limit).any():
                return True
    return False
