"""Second derivatives of NumPy callbacks, by complex step through first derivatives or jets."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from daeosens.arrays import Array
from daeosens.derivatives import STEP, differences
from daeosens.errors import UnsupportedError
from daeosens.jets import slopes_of, variables
from daeosens.matrices import Products

First = Callable[..., Any] | Products | None
"""A first derivative as the user gave it."""

Arguments = tuple[Any, ...]

ONE_BY_ONE = 16
"""Up to how many components of an argument are moved one at a time at the first use."""


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


def in_time(
    function: Callable[..., Any], first: Mapping[int, Any], name: str, remedy: str
) -> HessianByComplexStep:
    """Return second derivatives of ``function(t, ...)`` with the time, as an array [1], among them.

    ``first`` may hold words for derivatives that are no callbacks.
    """

    def seen(call: Callable[..., Any]) -> Callable[..., Any]:
        def at(t: Any, *rest: Any) -> Any:
            return call(t[0], *rest)

        return at

    known: dict[int, Any] = {}
    for position, each in first.items():
        if isinstance(each, Products):
            known[position] = Products(seen(each.apply), seen(each.apply_transpose))
        else:
            known[position] = seen(each) if callable(each) else None
    if known[0] is not None:
        by_t = known[0]
        known[0] = lambda *point: np.reshape(by_t(*point), (-1, 1))
    return HessianByComplexStep(seen(function), known, name, remedy)


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
    """Say whether some difference agrees, or proves nothing because it is not finite."""

    def value(eps: float) -> Array:
        return product(_moved(point, direction, eps))

    for difference, size, eps in differences(value):
        with np.errstate(invalid="ignore"):
            noise = 1e-13 * (size + terms) / eps
            limit = 1e-3 * (np.abs(exact) + np.abs(difference)) + noise
            if not (np.abs(difference - exact) > limit).any():
                return True
    return False
