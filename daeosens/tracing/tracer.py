"""Calling functions with symbols, and what all functions of one model have in common."""

from __future__ import annotations

import inspect
import math
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from scipy import sparse

from daeosens.errors import InputError
from daeosens.problem.callback_guard import INSTEAD_OF_COMPARISON
from daeosens.problem.derivative_arrays import (
    MATHEMATICAL,
    Replacements,
    numpy_of_math,
    put_back,
)
from daeosens.tracing import formulas  # noqa: F401 (fills the tables)  # type: ignore
from daeosens.tracing.casadi import casadi
from daeosens.tracing.derivatives import Generated, Graph, derive
from daeosens.tracing.execution import executable
from daeosens.tracing.interpolants import OF_SYMBOLS
from daeosens.tracing.named_parameters import Shapes
from daeosens.tracing.small_systems import systems_of_entries
from daeosens.tracing.source_location import SymbolLostError, is_theirs, traced_call
from daeosens.tracing.symbols import Symbol, as_symbol

_COMPARISONS = frozenset(
    getattr(casadi, f"OP_{name}") for name in ("LT", "LE", "EQ", "NE", "NOT", "AND", "OR")
)


@dataclass(frozen=True)
class Tracer:
    """Sizes, and the ranks that trace together.

    Attributes
    ----------
    size : int
        Number n of unknowns.
    shapes : Shapes
        The parameters.
    comm : MPI.Comm
        Tracing is collective on it.
    """

    size: int
    shapes: Shapes
    comm: MPI.Comm

    def graph(
        self,
        function: Callable[..., Any],
        name: str,
        shape: tuple[int, ...],
        *,
        of_rate: bool = False,
    ) -> Graph:
        """Call a function (t, u, p), or (t, u, udot, p), with symbols.

        Raises
        ------
        InputError
            It cannot be traced, or returns another shape than ``shape``.
        """
        n, m = self.size, self.shapes.size
        shapes = {"t": (), "u": (n,), **({"udot": (n,)} if of_rate else {}), "p": (m,)}
        inputs = {symbol: casadi.MX.sym(symbol, *sizes) for symbol, sizes in shapes.items()}
        *point, flat = (
            Symbol(inputs[symbol], sizes, constant=True) for symbol, sizes in shapes.items()
        )
        p = self.shapes.split(flat)
        _refuse_other_arguments(function, name, tuple(inputs))
        result = traced_value(function, name, *point, p)
        if result.shape != shape:
            raise InputError(
                f"'{name}' returned shape {result.shape}",
                expected=f"shape {shape}" if shape else "a number",
            )
        if not shape and result.graph.op() in _COMPARISONS:
            raise InputError(
                f"'{name}' returned a comparison, {result.graph}",
                expected="a real number",
                remedy=INSTEAD_OF_COMPARISON,
            )
        return Graph(name, **inputs, value=casadi.densify(result.graph), number=not shape)

    def mass_graph(self, mass: Callable[..., Any]) -> Graph:
        """Trace M(p) as the function M(p) v."""
        shape = (self.size, self.size)

        def product(_t: Any, v: Any, p: Any) -> Any:
            matrix: Any = mass(p)
            matrix = matrix if sparse.issparse(matrix) else as_symbol(matrix)
            if matrix.shape != shape:
                raise InputError(f"mass has shape {matrix.shape}", expected=f"{shape}")
            return matrix @ v

        return self.graph(product, "mass", (self.size,))

    def compiled(
        self, graphs: Iterable[Graph], more: Iterable[Generated] = ()
    ) -> Mapping[str, Any]:
        """Return all derivatives of the graphs, and more functions, as callbacks, by name."""
        functions = list(more)
        for graph in graphs:
            functions += derive(graph).values()
        return self.executable(functions)

    def executable(self, functions: Sequence[Generated]) -> Mapping[str, Any]:
        """Return functions as callbacks, by name."""
        return executable(functions, self.comm)


def traced_value(function: Callable[..., Any], name: str, *point: Any) -> Symbol:
    """Return what a function makes of symbols; where it fills arrays of floats, of symbols.

    Constants in such arrays would be symbols as well, which fewer functions take: therefore only
    where it cannot be done without.
    """

    def called(*values: Any) -> Symbol:
        return as_symbol(function(*values))

    with systems_of_entries(), OF_SYMBOLS:
        try:
            return traced_call(called, name, *point)
        # an array of floats was to be filled with symbols: once more, with arrays that can be
        except SymbolLostError as lost:
            with fillable_arrays(function):
                try:
                    return traced_call(called, name, *point)
                except SymbolLostError:
                    raise lost from None


def _refuse_other_arguments(
    function: Callable[..., Any], name: str, arguments: Sequence[str]
) -> None:
    """Refuse a function that does not take these arguments by position.

    Raises
    ------
    InputError
        Names them, and what takes a function of (t, u, udot, p).
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of functions in C nothing is known
        return

    def takes(count: int) -> bool:
        try:
            signature.bind(*range(count))
        except TypeError:
            return False
        return True

    if takes(len(arguments)):
        return
    of_rate = len(arguments) == 3 and takes(4)
    raise InputError(
        f"'{name}' takes {signature}",
        expected=f"({', '.join(arguments)})",
        remedy="tracing.trace_residual(residual, ...) for F(t, u, u', p) = 0" if of_rate else "",
    )


def constant_matrix(graph: Graph) -> Any:
    """Return the matrix of a linear function of u that depends on nothing else."""
    # linear in u and of nothing else: its Jacobian is numbers
    values = casadi.DM(casadi.evalf(casadi.jacobian(graph.value, graph.u)))
    matrix = np.array(values, dtype=float)
    return sparse.csr_array(matrix) if np.count_nonzero(matrix) < matrix.size / 4 else matrix


_MAKING = ("zeros", "ones", "empty", "full", "eye", "identity")


@contextmanager
def fillable_arrays(function: Callable[..., Any]) -> Generator[None]:
    """Let NumPy make arrays of symbols where the user's function asks for arrays of floats.

    Meanwhile; for calls of ``np.zeros``, ``ones``, ``empty``, ``full``, ``eye`` and ``identity`` in
    this thread, from outside of NumPy, SciPy and this package, also by names that were imported.
    Arrays of other types are NumPy's.  ``math.sin`` of a symbol is NumPy's.
    """
    thread = threading.get_ident()

    def making(original: Callable[..., Any]) -> Callable[..., Any]:
        def make(*arguments: Any, **options: Any) -> Any:
            # what np.empty holds is no number yet, and a symbol's graph would keep it
            result = original(*arguments, **options)
            ours = result.dtype.kind == "f" and result.ndim > 0
            if not ours or threading.get_ident() != thread or not is_theirs(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
                return result
            return as_symbol(np.zeros_like(result) if original is empty else result)

        return make

    def of_symbols(name: str) -> Callable[..., Any]:
        original, of_numpy = getattr(math, name), numpy_of_math(name)

        def call(*arguments: Any) -> Any:
            symbols = any(isinstance(argument, Symbol) for argument in arguments)
            return (of_numpy if symbols else original)(*arguments)

        return call

    empty = np.empty
    replaced = Replacements(
        (np.__dict__, {name: making(getattr(np, name)) for name in _MAKING}),
        (math.__dict__, {name: of_symbols(name) for name in MATHEMATICAL}),
    )
    places = replaced.in_names_of(function)
    replaced.in_libraries()
    try:
        yield
    finally:
        replaced.take_back()
        put_back(places)
