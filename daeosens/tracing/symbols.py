"""Arrays of symbols: what the user's function sees in the place of NumPy arrays.

A ``Symbol`` behaves as an array and records what is done with it in a CasADi graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin
from scipy import sparse

from daeosens.tracing.casadi import casadi
from daeosens.tracing.source_location import called_from, untraceable
from daeosens.tracing.storage import flat, pick, stored
from daeosens.tracing.ufuncs import LOGICAL, UFUNCS, of_kinds
from daeosens.tracing.unsupported import ARRAY_FUNCTIONS, REDUCTIONS, Unknown, unknown


class Symbol(Unknown, NDArrayOperatorsMixin):
    """An array whose values are not known yet.

    Assignments to entries and slices do what they do in NumPy: a slice is a view, and what is
    written to either is seen in both.

    Parameters
    ----------
    graph : casadi.MX
        The array as it is stored.
    shape : tuple of int
    constant : bool
        Whether it is an argument, which a function must not write to.
    logical : bool
        Whether the entries are true or false.
    """

    __array_priority__ = 1000.0

    def __init__(
        self,
        graph: Any,
        shape: tuple[int, ...],
        *,
        constant: bool = False,
        logical: bool = False,
    ) -> None:
        self._graph = graph
        self.shape = shape
        self._constant = constant
        self.dtype = np.dtype(bool if logical else float)
        self._source: tuple[Symbol, npt.NDArray[np.intp]] | None = None
        self._version = 0
        self._seen = 0

    @property
    def graph(self) -> Any:
        """The graph's matrix; of a view as its source is now."""
        if self._source is not None:
            source, positions = self._source
            graph = source.graph
            if source._version != self._seen:
                # written to since it was last looked at: the view is picked out of the source again
                self._graph = pick(graph, positions)
                self._seen = source._version
                self._version += 1
        return self._graph

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(np.prod(self.shape, dtype=int))

    @property
    def positions(self) -> npt.NDArray[np.intp]:
        """The number of each entry in row-major order, counted from 1; 0 will stand for zero."""
        return np.arange(1, self.size + 1).reshape(self.shape)

    @property
    def T(self) -> Symbol:  # noqa: N802 (NumPy's name)
        """The transpose."""
        return self.view(self.positions.T)

    def rearranged(self, positions: npt.NDArray[np.intp]) -> Symbol:
        """Return an array of the entries at ``positions``."""
        stored(positions.shape)
        return Symbol(pick(self.graph, positions), positions.shape, logical=self.dtype == bool)

    def view(self, positions: npt.NDArray[np.intp]) -> Symbol:
        """Return the same entries in another place: what is written there is written here."""
        result = self.rearranged(positions)
        result._constant = self._constant
        result._source, result._seen = (self, positions), self._version
        return result

    def __getitem__(self, key: Any) -> Symbol:
        chosen = np.asarray(self._positions_at(key))
        parts = _parts(key)
        basic = all(
            part is None or part is Ellipsis or isinstance(part, (int, np.integer, slice))
            for part in parts
        )
        # as in NumPy: integers and slices give views, arrays of indices and single entries copies
        return self.view(chosen) if basic and chosen.ndim else self.rearranged(chosen)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._constant:
            raise untraceable(
                "the function writes to its argument", "u = u.copy() first, or a new array"
            )
        chosen = np.asarray(self._positions_at(key))
        new = broadcast(as_symbol(value), chosen.shape)
        if self._source is not None:
            source, positions = self._source
            # a write to a view goes to whose memory it is, at the places that the view shows
            source._write(positions.ravel()[chosen - 1], new)
            return
        self._write(chosen, new)

    def _write(self, positions: npt.NDArray[np.intp], value: Any) -> None:
        if self._source is not None:
            source, mine = self._source
            source._write(mine.ravel()[positions - 1], value)
            return
        graph = casadi.MX(flat(self._graph))
        # a graph does not change: the written array is another graph, and the version tells views
        # of it
        graph[(positions.ravel() - 1).tolist()] = flat(value)
        self._graph = casadi.reshape(graph, *stored(self.shape))
        self._version += 1

    def _positions_at(self, key: Any) -> Any:
        parts = _parts(key)
        if any(isinstance(part, Symbol) for part in parts):
            raise untraceable("an index depends on the data", "np.where instead of an index")
        return self.positions[key]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a number")
        return self.shape[0]

    def __iter__(self) -> Iterator[Symbol]:
        return (self[k] for k in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if dtype is not None and np.dtype(dtype) != object:
            self.__float__()
        if not self.shape or called_from("scipy.sparse"):
            # a sparse matrix leaves products to what it cannot take apart
            whole = np.empty((), dtype=object)
            whole[()] = self
            return whole
        entries = np.empty(self.size, dtype=object)
        entries[:] = list(self.flatten())
        return entries.reshape(self.shape)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", None)
        if method == "reduce" and ufunc in REDUCTIONS:
            options.pop("dtype", None)
            return ARRAY_FUNCTIONS[REDUCTIONS[ufunc]](*inputs, **{"axis": 0} | options)
        if method == "outer" and ufunc in UFUNCS:
            first, second = (as_symbol(operand) for operand in inputs)
            return ufunc(first.reshape((*first.shape, 1)), second)
        if ufunc is np.matmul and method == "__call__" and not options:
            result = ARRAY_FUNCTIONS[np.matmul](*inputs)
        elif ufunc in UFUNCS and method == "__call__" and not options:
            result = _calculated(ufunc, inputs)
        else:
            detail = f".{method}" if method != "__call__" else ""
            package = "np." if getattr(np, ufunc.__name__, None) is ufunc else ""
            with_options = f" with {', '.join(options)}" if options else ""
            raise unknown(f"{package}{ufunc.__name__}{detail}{with_options}", ufunc.__name__)
        if out is None or (out[0] is not None and not np.shape(out[0])):
            return result  # numbers are new in Python where arrays are changed
        if not isinstance(out[0], Symbol):
            self.__float__()
        out[0][...] = result
        return out[0]

    @property
    def real(self) -> Symbol:
        """The array itself: all numbers are real here."""
        return self

    def reshape(self, *shape: Any, **options: Any) -> Symbol:
        """Return the same entries in another shape."""
        return self.view(self.positions.reshape(*shape, **options))

    def flatten(self, order: Any = "C") -> Symbol:
        """Return a copy in one dimension."""
        return self.rearranged(self.positions.ravel(order))

    def astype(self, dtype: Any, **_options: Any) -> Symbol:
        """Return a copy: cut off to whole numbers, or true where not zero, if that is the type."""
        match np.dtype(dtype).kind:
            case "b":
                return _calculated(np.not_equal, (self, 0))
            case "i" | "u":
                return _calculated(np.trunc, (self,))
            case "f":
                return Symbol(self.rearranged(self.positions).graph, self.shape)
            case _:
                raise untraceable(f"an array of type {np.dtype(dtype)}", "real numbers")


def _parts(key: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)


def is_sparse(value: Any) -> bool:
    """Whether it is a sparse matrix of SciPy."""
    return bool(sparse.issparse(value))


def as_symbol(value: Any) -> Symbol:
    """Return numbers, arrays of numbers or of symbols, and nested lists of them as one array."""
    if isinstance(value, Symbol):
        return value
    if is_sparse(value):
        return as_symbol(value.toarray())
    if isinstance(value, (list, tuple)):
        several: list[Any] = list(value)
        return _joined([as_symbol(element) for element in several], (len(several),))
    array = np.asarray(value)
    if array.dtype.kind not in "biufO":
        remedy = "real numbers and arrays"
        if array.dtype.kind == "c":
            remedy = "real and imaginary parts in arrays of their own, or ODE, which takes them"
        raise untraceable(f"{value!r} is no array of real numbers", remedy)
    if array.dtype != object:
        values = np.atleast_1d(array.astype(float))
        # CasADi stores by columns, NumPy by rows: arrays are stored transposed
        values = values.T if array.ndim == 2 else values.ravel()
        graph = casadi.MX(casadi.DM(values))
        graph = casadi.reshape(graph, *stored(array.shape))
        return Symbol(graph, array.shape, logical=array.dtype == bool)
    entries: list[Any] = list(array.ravel())
    parts = [as_symbol(entry) if entry is not value else entry for entry in entries]
    if not all(isinstance(part, Symbol) for part in parts):
        raise untraceable(f"{value!r} is no array of numbers", "numbers and arrays of numbers")
    return _joined(parts, array.shape)


def _joined(parts: Sequence[Symbol], outer: tuple[int, ...]) -> Symbol:
    """Return an array of arrays."""
    shapes = {part.shape for part in parts}
    if len(shapes) > 1:
        raise untraceable(f"rows of shapes {sorted(shapes)} in one array", "rows of one shape")
    shape = (*outer, *(shapes.pop() if shapes else ()))
    joined = casadi.vertcat(*(flat(part.graph) for part in parts))
    return Symbol(casadi.reshape(joined, *stored(shape)), shape)


def broadcast(symbol: Symbol, shape: tuple[int, ...]) -> Any:
    """Return the stored form of an array, repeated to a shape by NumPy's rules."""
    graph, (columns, rows) = symbol.graph, stored(shape)
    np.broadcast_shapes(symbol.shape, shape)
    if np.broadcast_shapes(symbol.shape, shape) != shape:
        raise ValueError(f"shape {symbol.shape} does not fit into shape {shape}")
    if graph.shape == (columns, rows):
        return graph
    if len(shape) > 2:
        return pick(graph, np.broadcast_to(symbol.positions, shape))
    if graph.shape[0] != columns:  # a product with ones is one node, whatever the size
        graph = casadi.mtimes(casadi.DM.ones(columns, 1), casadi.densify(graph))
    return graph if graph.shape[1] == rows else casadi.repmat(graph, 1, rows)


def _calculated(ufunc: Any, inputs: Sequence[Any]) -> Symbol:
    """Return what a ufunc gives, of arguments that are true or false too."""
    symbols = [as_symbol(operand) for operand in inputs]
    chosen = of_kinds(ufunc, [symbol.dtype == bool for symbol in symbols])
    if chosen is None:
        raise untraceable(
            f"np.{ufunc.__name__} of {' and '.join(str(symbol.dtype) for symbol in symbols)}",
            "comparisons for &, | and ~; 1.0 * (a > b) for a number",
        )
    result = elementwise(UFUNCS[chosen], *symbols)
    return Symbol(result.graph, result.shape, logical=chosen in LOGICAL)


def elementwise(function: Callable[..., Any], *inputs: Any) -> Symbol:
    """Apply a function of graphs to the entries, broadcast by NumPy's rules."""
    symbols: Sequence[Symbol] = [as_symbol(operand) for operand in inputs]
    shape = np.broadcast_shapes(*(symbol.shape for symbol in symbols))
    graphs = [symbol.graph if not symbol.shape else broadcast(symbol, shape) for symbol in symbols]
    return Symbol(casadi.densify(function(*graphs)), shape)
