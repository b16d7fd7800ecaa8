"""Functions of intervals: enclosures of a traced h, its gradient and its Hessian in y."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError, is_iterable
from daeosens.petsc.vectors import Array, real_array
from daeosens.tracing.casadi import casadi
from daeosens.tracing.daeo.tape import BROKEN, EMPTY, UNDEFINED, Tape, make_tape
from daeosens.tracing.named_parameters import Shapes, admit_shapes
from daeosens.tracing.symbols import Symbol
from daeosens.tracing.tracer import traced_value

Extension = Callable[[Array, Array, Array, Array], tuple[npt.ArrayLike, ...]]
"""``(t [B, 2], x [B, n_x, 2], y [B, n_y, 2], p [B, n_p, 2]) -> h, h_y, h_yy``, enclosures."""


@dataclass(frozen=True)
class Enclosure:
    """What h, h_y and h_yy are over boxes.

    Attributes
    ----------
    value : array [B, 2]
        Wherever h is defined in the box it lies between these.
    gradient : array [B, n_y, 2]
        The same of the gradient; at kinks its values on all sides are between.
    hessian : array [B, n_y, n_y, 2]
        The same of the Hessian.
    defined, continuous : array of bool [B]
        Whether h is proven to be, everywhere in the box.
    """

    value: Array
    gradient: Array
    hessian: Array
    defined: npt.NDArray[np.bool_]
    continuous: npt.NDArray[np.bool_]


class Along(NamedTuple):
    """A path of x: a point (t, x [n_x]) of it, and intervals [n_x, 2] of x' along all of it."""

    t: float
    x: Array
    rates: Array


@dataclass(frozen=True)
class IntervalFunction:
    """h(t, x, y, p) on intervals, rounded outwards.

    Made by ``interval_function``.

    Attributes
    ----------
    n_x, n_y : int
        Sizes of x and y.
    shapes : Shapes
        The parameters.
    low, high : Tape or None
        (h, h_y) and (h_y, lower triangle of h_yy by rows) of (t, x, y, p).
    along : Tape or None
        The derivative of (h, h_y) in a direction, of (t, x, y, p, direction [1 + n_x]).
    extension : callable or None
        Instead of both, the user's own.
    """

    n_x: int
    n_y: int
    shapes: Shapes
    low: Tape | None
    high: Tape | None
    along: Tape | None
    extension: Extension | None = None

    @property
    def n_inputs(self) -> int:
        """How many numbers t, x, y and p are."""
        return 1 + self.n_x + self.n_y + self.shapes.size

    def __call__(
        self, t: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike, p: npt.ArrayLike = ()
    ) -> Enclosure:
        """Enclose h, h_y and h_yy.

        Parameters
        ----------
        t, x, p : array_like
            Intervals [2], [n_x, 2], [n_p, 2], or numbers [], [n_x], [n_p].
        y : array_like [B, n_y, 2]
            Boxes.

        Raises
        ------
        InputError
            Another shape.
        """
        boxes = np.asarray(y, dtype=float)
        if boxes.ndim != 3 or boxes.shape[1:] != (self.n_y, 2):
            raise InputError(f"y has the shape {boxes.shape}", expected=f"(B, {self.n_y}, 2)")
        rows = np.empty((len(boxes), self.n_inputs, 2))
        rows[:] = self.inputs(t, x, p)
        rows[:, 1 + self.n_x : 1 + self.n_x + self.n_y] = boxes
        # h and h_y from one tape, h_y and h_yy from another: most boxes need the first only.
        (low, low_flags), (high, _) = self.enclose(1, rows), self.enclose(2, rows)
        n = self.n_y
        hessian = np.empty((len(boxes), n, n, 2))
        i, j = np.tril_indices(n)
        # by symmetry: the tape has the lower triangle
        hessian[:, i, j] = hessian[:, j, i] = high[:, n:]
        return Enclosure(
            low[:, 0],
            low[:, 1:],
            hessian,
            # EMPTY: h is defined nowhere in the box; UNDEFINED: not everywhere. BROKEN: it may
            # jump.
            (low_flags[:, 0] & (UNDEFINED | EMPTY)) == 0,
            (low_flags[:, 0] & (UNDEFINED | EMPTY | BROKEN)) == 0,
        )

    def inputs(self, t: npt.ArrayLike, x: npt.ArrayLike, p: npt.ArrayLike) -> Array:
        """Return t, x, (y) and p as intervals [n_inputs, 2], side by side.

        Raises
        ------
        InputError
            Another shape, or an end that is not finite or lies above the other one.
        """
        rows = np.zeros((self.n_inputs, 2))
        n_x, size = self.n_x, self.shapes.size
        _fill(rows[:1], t, "t", ())
        _fill(rows[1 : 1 + n_x], x, "x", (n_x,))
        if size:
            _fill(rows[-size:], p, "p", (size,))
        elif np.size(p):
            raise InputError(f"p has the shape {np.shape(p)}", expected="no parameters")
        if not (np.isfinite(rows).all() and (rows[:, 0] <= rows[:, 1]).all()):
            raise InputError(
                f"t = {t}, x = {x}, p = {p}", expected="finite numbers, lower ends first"
            )
        return rows

    def enclose(self, level: int, boxes: Array) -> tuple[Array, npt.NDArray[np.uint8]]:
        """Return (h, h_y), or at level 2 (h_y, lower triangle of h_yy), and flags.

        Parameters
        ----------
        level : int
            1 or 2.
        boxes : array [B, n_inputs, 2]
            Of t, x, y and p.
        """
        tape = self.low if level == 1 else self.high
        if tape is not None:
            return tape(boxes)
        return self._extended(level, boxes)

    def _extended(self, level: int, boxes: Array) -> tuple[Array, npt.NDArray[np.uint8]]:
        """Enclose by the user's extension; NaN stands for what is not defined."""
        assert self.extension is not None
        n_x, n = self.n_x, self.n_y
        y_to = 1 + n_x + n
        result: Any = self.extension(
            boxes[:, 0], boxes[:, 1 : 1 + n_x], boxes[:, 1 + n_x : y_to], boxes[:, y_to:]
        )
        count = len(boxes)
        expected = ((count, 2), (count, n, 2), (count, n, n, 2))
        parts: list[Any] = list(result) if is_iterable(result) else [result]
        arrays = [real_array(part, "a part of what extension returned") for part in parts]
        if [array.shape for array in arrays] != [*expected]:
            raise InputError(
                f"extension returned the shapes {[array.shape for array in arrays]}",
                expected=f"h, h_y and h_yy of the shapes {[*expected]}",
            )
        value, gradient, hessian = arrays
        if level == 1:
            columns = np.concatenate([value[:, None], gradient], axis=1)
        else:
            i, j = np.tril_indices(n)
            columns = np.concatenate([gradient, hessian[:, i, j]], axis=1)
        # NaN is how an extension says that h is not defined
        unknown = np.any(np.isnan(columns), axis=2)
        if np.any(columns[..., 0] > columns[..., 1]):
            raise InputError(
                "extension returned an interval whose lower end is above its upper one"
            )
        flags = np.where(unknown, UNDEFINED | EMPTY, 0).astype(np.uint8)
        return np.where(unknown[..., None], 0.0, columns), flags


def interval_function(
    h: Callable[..., Any],
    n_x: int,
    n_y: int,
    n_p: int | Sequence[str] | Mapping[str, Any] = 0,
    *,
    extension: Extension | None = None,
) -> IntervalFunction:
    """Trace h(t, x, y, p) and make enclosures over boxes of it, its gradient and Hessian in y.

    Parameters
    ----------
    h : callable
        ``h(t, x, y, p) -> number`` of a number, arrays [n_x] and [n_y], and the parameters as in
        ``trace``.
    n_x, n_y : int
        Sizes of x and y.
    n_p : int, sequence of str or mapping of str to shape, optional
        The parameters, as ``trace`` takes them.
    extension : callable, optional
        For an h that cannot be traced: your own enclosures, ``extension(t, x, y, p) -> h, h_y,
        h_yy`` of boxes t [B, 2], x [B, n_x, 2], y [B, n_y, 2], p [B, n_p, 2], of the shapes
        [B, 2], [B, n_y, 2] and [B, n_y, n_y, 2].  They have to enclose all values in the box and be
        rounded outwards; h and h_y are taken to be continuous.  NaN where h is not defined.

    Returns
    -------
    IntervalFunction
        To be called with boxes, and for ``Search``.

    Raises
    ------
    InputError
        h cannot be traced, does not return a number, or has an operation without an interval
        extension.

    Examples
    --------
    >>> from daeosens.tracing.daeo.intervals import interval_function
    >>> h = interval_function(lambda t, x, y, p: (x[0] - y[0]) ** 2, n_x=1, n_y=1)
    >>> h(0.0, [1.0], [[[2.0, 3.0]], [[0.0, 4.0]]]).value
    array([[1., 4.],
           [0., 9.]])
    """
    shapes = admit_shapes(n_p)
    for name, size, least in (("n_x", n_x, 0), ("n_y", n_y, 1)):
        if not isinstance(size, (int, np.integer)) or size < least:
            raise InputError(f"{name} = {size!r}", expected=f"a whole number from {least}")
    if extension is not None:
        return IntervalFunction(n_x, n_y, shapes, None, None, None, extension)
    inputs, low, high = _graphs(h, n_x, n_y, shapes)
    direction = casadi.SX.sym("direction", 1 + n_x)
    both = casadi.vertcat(*low)
    # The derivative of (h, h_y) along (t', x') shows that optimisers only move along a path of x,
    # where intervals of x alone are too wide.
    along = sum(
        casadi.jtimes(both, graph, part)
        for graph, part in zip(
            inputs[:2], casadi.vertsplit(direction, [0, 1, 1 + n_x]), strict=True
        )
    )
    varying = [
        k
        for graph, is_y in zip(inputs, (False, False, True, False), strict=True)
        for k in [is_y] * graph.numel()
    ]
    of_low, of_high = (make_tape(inputs, outputs, varying) for outputs in (low, high))
    of_along = make_tape(
        [*inputs, direction], [casadi.densify(along)], [*varying, *[False] * (1 + n_x)]
    )
    return IntervalFunction(n_x, n_y, shapes, of_low, of_high, of_along)


def _graphs(
    h: Callable[..., Any], n_x: int, n_y: int, shapes: Shapes
) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the inputs, (h, h_y), and (h_y, lower triangle of h_yy) as graphs of scalars."""
    sizes = {"t": (), "x": (n_x,), "y": (n_y,), "p": (shapes.size,)}
    inputs = [casadi.MX.sym(name, *size) for name, size in sizes.items()]
    t, x, y, flat = (
        Symbol(graph, size, constant=True)
        for graph, size in zip(inputs, sizes.values(), strict=True)
    )
    value = traced_value(h, "h", t, x, y, shapes.split(flat))
    if value.shape != ():
        raise InputError(f"'h' returned shape {value.shape}", expected="a number")
    function = casadi.Function("h", inputs, [casadi.densify(value.graph)])
    try:
        # Tapes are of scalar operations, so matrix operations are expanded into these.
        expanded = function.expand()
    except RuntimeError as error:
        raise InputError(
            f"'h' cannot be expanded into scalars: {str(error).splitlines()[-1]}",
            remedy="extension=..., your own interval extension of h and its derivatives",
        ) from error
    scalars = [casadi.SX.sym(name, *size) for name, size in sizes.items()]
    graph = expanded(*scalars)
    # symbolic derivatives of the scalar graph: each is enclosed as a function of its own
    gradient = casadi.densify(casadi.gradient(graph, scalars[2]))
    hessian = casadi.densify(casadi.jacobian(gradient, scalars[2]))
    lower = [hessian[i, j] for i in range(n_y) for j in range(i + 1)]
    return scalars, [graph, gradient], [gradient, *lower]


def _fill(rows: Array, values: npt.ArrayLike, name: str, shape: tuple[int, ...]) -> None:
    """Fill lower and upper ends [size, 2] with intervals, or with numbers."""
    array = np.asarray(values, dtype=float)
    if array.shape == shape:
        rows[...] = array.reshape(-1, 1)
    elif array.shape == (*shape, 2):
        rows[...] = array
    else:
        intervals = (*shape, 2)
        raise InputError(
            f"{name} has the shape {array.shape}", expected=f"{shape}, or {intervals} of intervals"
        )
