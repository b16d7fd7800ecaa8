"""Small systems of linear equations whose matrices are symbols: masses of arms and pendulums."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from daeosens.tracing.source_location import untraceable
from daeosens.tracing.symbols import as_symbol
from daeosens.tracing.unsupported import ARRAY_FUNCTIONS

LARGEST = 7
"""As many as the joints of an arm; larger graphs, with two derivatives, take long to compile."""


def _solve(a: Any, b: Any) -> Any:
    """Return the solution of a x = b [n] or [n, m], without pivots, which would be branches.

    The columns are made orthogonal from left to right, b as the last one: as stable as Householder
    triangularisation, and smooth in all entries.

    Source
    ------
    Bjorck, Solving linear least squares problems by Gram-Schmidt orthogonalization, BIT 7 (1967).
    """
    if isinstance(a, np.ndarray) and a.dtype != object:  # numbers: of any size
        return np.linalg.inv(a) @ b
    matrix, right = as_symbol(a), as_symbol(b)
    n = _size(matrix, "solve")
    if right.ndim not in (1, 2) or right.shape[0] != n:
        raise ValueError(f"np.linalg.solve of shapes {matrix.shape} and {right.shape}")
    sides = [right] if right.ndim == 1 else [right[:, k] for k in range(right.shape[1])]
    # modified Gram-Schmidt, A = Q R with columns of Q that are not scaled; right-hand sides are
    # further columns
    columns: list[Any] = [*(matrix[:, k] for k in range(n)), *sides]
    shares: list[list[Any]] = []
    for k in range(n):
        column = columns[k]
        # row k of R: what later columns have of this one
        square = column @ column
        shares.append([column @ other / square for other in columns[k + 1 :]])
        for j, share in enumerate(shares[k], k + 1):
            columns[j] = columns[j] - share * column
    solutions: list[Any] = []
    for side in range(len(sides)):
        x: list[Any] = [0.0] * n
        for k in reversed(range(n)):
            # of the shares of column k those of later columns come first, then those of the sides
            known = sum((shares[k][j - k - 1] * x[j] for j in range(k + 1, n)), 0.0)
            x[k] = shares[k][n - k - 1 + side] - known
        solutions.append(np.stack(x))
    return solutions[0] if right.ndim == 1 else np.stack(solutions, axis=1)


def _inv(a: Any) -> Any:
    """Return the inverse."""
    return _solve(a, np.eye(_size(as_symbol(a), "inv")))


def _size(matrix: Any, name: str) -> int:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"np.linalg.{name} of an array of shape {matrix.shape}")
    if matrix.shape[0] > LARGEST:
        raise untraceable(
            f"np.linalg.{name} of {matrix.shape[0]} unknowns, more than {LARGEST}",
            "inverses of constants, made outside; a singular mass, to solve in each step",
        )
    return int(matrix.shape[0])


_FUNCTIONS: dict[Any, Callable[..., Any]] = {np.linalg.solve: _solve, np.linalg.inv: _inv}
ARRAY_FUNCTIONS.update(_FUNCTIONS)


@contextmanager
def systems_of_entries() -> Generator[None]:
    """Let ``np.linalg.solve`` and ``inv`` take what ``np.array`` makes of symbols.

    NumPy asks arrays of symbols what to do, but not arrays of objects, of which each is a symbol.
    Meanwhile, in this thread.
    """
    thread = threading.get_ident()

    def taking(original: Any) -> Callable[..., Any]:
        def take(*arguments: Any, **options: Any) -> Any:
            objects = any(type(x) is np.ndarray and x.dtype == object for x in arguments)
            ours = objects and threading.get_ident() == thread
            return (_FUNCTIONS[original] if ours else original)(*arguments, **options)

        return take

    namespace: dict[str, Any] = np.linalg.__dict__
    originals = {function.__name__: function for function in _FUNCTIONS}
    namespace.update({name: taking(original) for name, original in originals.items()})
    try:
        yield
    finally:
        namespace.update(originals)
