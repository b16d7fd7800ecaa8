"""Arrays that a function makes with ``np.zeros(n)`` and its like, and fills with symbols."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from daeosens.tracing.source_location import is_theirs
from daeosens.tracing.symbols import as_symbol

_MAKING = ("zeros", "ones", "empty", "full")


@contextmanager
def fillable_arrays() -> Generator[None]:
    """Let NumPy make arrays of symbols where the user's function asks for arrays of floats.

    Meanwhile; for calls of ``np.zeros``, ``ones``, ``empty`` and ``full`` in this thread, from
    outside of NumPy, SciPy and this package.  Arrays of other types and of more than two dimensions
    are NumPy's.
    """
    thread = threading.get_ident()
    originals = {name: getattr(np, name) for name in _MAKING}

    def making(original: Callable[..., Any]) -> Callable[..., Any]:
        def make(*arguments: Any, **options: Any) -> Any:
            # what np.empty holds is no number yet, and a symbol's graph would keep it
            result = original(*arguments, **options)
            ours = result.dtype.kind == "f" and 0 < result.ndim < 3
            if not ours or threading.get_ident() != thread or not is_theirs(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
                return result
            return as_symbol(np.zeros_like(result) if original is originals["empty"] else result)

        return make

    namespace: dict[str, Any] = np.__dict__
    namespace.update({name: making(original) for name, original in originals.items()})
    try:
        yield
    finally:
        namespace.update(originals)
