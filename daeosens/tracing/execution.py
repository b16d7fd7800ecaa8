"""Traced functions as callbacks: in C where there is a compiler, evaluated by CasADi otherwise."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI
from scipy import sparse

from daeosens.errors import InputError, warn
from daeosens.petsc.c_function import LateAddress, Native
from daeosens.petsc.vectors import Array
from daeosens.problem.c_callback import Compiled
from daeosens.tracing.c_source import entry, source
from daeosens.tracing.compilation import CompilerError, load
from daeosens.tracing.derivatives import DATA, Generated

LONG = 3000
"""Derivatives of so many operations are compiled when somebody needs them: it takes a second."""


def executable(functions: Sequence[Generated], comm: MPI.Comm) -> Mapping[str, Any]:
    """Return each function, by its name, as a callback for ODE, costs and events.

    They are C functions; without a compiler Python ones with the same results.  Collective on
    ``comm``; but derivatives that are long are compiled later, by whoever needs them first.
    """
    at_once, *later = _libraries(functions)
    library = compiled_library(source(at_once), comm)
    if library is None:
        return {function.name: _interpreted(function) for function in functions}
    loaded: Callable[[], ctypes.CDLL] = lambda: library  # noqa: E731
    ready = {function.name: _native(function, loaded) for function in at_once}
    # addresses of what is compiled already are numbers; those of later libraries are found when
    # asked for
    ready = {name: replace(native, address=int(native.address)) for name, native in ready.items()}
    for group in later:
        loaded = _loaded(group)
        ready |= {function.name: _native(function, loaded) for function in group}
    return ready


def _libraries(functions: Sequence[Generated]) -> list[list[Generated]]:
    """Return what is compiled together: first what is compiled at once, then what is not."""
    at_once, later = list[Generated](), list[list[Generated]]()
    for order in range(3):
        sized = [
            (part.function.n_instructions(), part) for part in functions if part.order == order
        ]
        if order == 0 or sum(size for size, _ in sized) <= LONG:
            at_once += [part for _, part in sized]
            continue
        # short ones in one library, each long one by itself: who needs one does not wait for others
        together = [part for size, part in sized if size <= LONG // 2]
        later += [together] if together else []
        later += [[part] for size, part in sized if size > LONG // 2]
    return [at_once, *later]


def _loaded(functions: Sequence[Generated]) -> Callable[[], ctypes.CDLL]:
    """Return what compiles some functions, once; of several processes the first one does."""
    return cache(lambda: load(source(functions), MPI.COMM_SELF))


def compiled_library(code: str, comm: MPI.Comm) -> ctypes.CDLL | None:
    """Return the library of a C source; None without a compiler, after one warning.  Collective."""
    try:
        return load(code, comm)
    except CompilerError as error:
        _warn(str(error))
        return None


def with_data(callbacks: Mapping[str, Any], data: Array) -> Mapping[str, Any]:
    """Return callbacks with the numbers that come along: those that take some have no others."""
    numbers = np.ascontiguousarray(data, dtype=float).ravel()

    def bound(callback: Any) -> Any:
        if isinstance(callback, Native):
            kept = callback.keeps, numbers
            return replace(callback, user_data=numbers.ctypes.data, keeps=kept)

        def call(*arguments: Any) -> Any:
            return callback(*arguments, numbers)

        return call

    return {name: bound(callback) for name, callback in callbacks.items()}


def called(callback: Any, *shapes: tuple[int, ...]) -> Callable[..., Any]:
    """Return a callback that fills arrays of these shapes as a Python function."""
    if isinstance(callback, Native):
        return Compiled(callback, "traced", shapes, returns=False)
    return callback


@cache
def _warn(message: str) -> None:
    """Warn once of what is slow."""
    warn(
        f"traced models run without being compiled, some 20 times slower: {message}",
        RuntimeWarning,
    )


def _native(generated: Generated, library: Callable[[], ctypes.CDLL]) -> Native:
    name, reads = generated.name, generated.function

    def find() -> int:
        pointer: Any = getattr(library(), entry(name), None)
        return ctypes.cast(pointer, ctypes.c_void_p).value or 0

    sizes = (reads.numel_in("u"), reads.numel_in("p")) if {"u", "p"} <= {*reads.name_in()} else None
    return Native(
        LateAddress(find),
        keeps=library,
        pattern=generated.pattern,
        sizes=sizes,
        # a graph of matrices has few instructions, and works on about the numbers that it holds
        operations=max(reads.n_instructions(), reads.sz_w()),
    )


def _interpreted(generated: Generated) -> Callable[..., Any]:
    function, pattern = generated.function, generated.pattern
    shape: Any = generated.shape
    sizes = [function.numel_in(k) for k in range(function.n_in() - (generated.held is not None))]
    points = ("t", "u", "p", DATA)
    of_held = [k for k, name in enumerate(function.name_in()) if name in points]

    def call(*arguments: Any) -> Any:
        if [np.size(argument) for argument in arguments] != sizes:
            raise InputError(  # CasADi would repeat a number where it expects several
                f"'{generated.name}' is a traced function of arguments of sizes {sizes}",
                expected=f"sizes {[np.size(argument) for argument in arguments]}",
                remedy="terminal, event or running of the model that is solved",
            )
        inputs = [np.asarray(argument) for argument in arguments]
        if generated.held is not None:
            inputs.append(generated.held.constants(*(inputs[k] for k in of_held)))
        # CasADi's own evaluation: the same graph, operation by operation
        outputs = function.call(inputs)
        arrays = [np.array(output, dtype=float) for output in outputs]
        results: list[Any] = [array[:, 0] for array in arrays]
        if function.name_out()[-1] == "returned":
            results[-1] = float(arrays[-1][0, 0])
        if pattern is not None:
            starts, columns = pattern
            return sparse.csr_array((results[0], columns, starts), shape=shape)
        if len(shape) == 2:
            return arrays[0].T
        return tuple(results) if len(results) > 1 else results[0]

    if not generated.by_rows:
        return call
    row = _interpreted_row(function)
    return lambda *point: np.array([row(*point, unit) for unit in np.eye(shape[0])])


def _interpreted_row(function: Any) -> Callable[..., Any]:
    return lambda *arguments: np.array(function(*arguments), dtype=float)[:, 0]
