"""C functions as NumPy-style callbacks, and their direct way into PETSc's vectors and matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc
from scipy import sparse
from scipy.sparse.linalg import splu

from daeosens.errors import InputError
from daeosens.petsc._kernels import call_into, call_number, fill_matrix
from daeosens.petsc.c_function import Native, admit_native, check_signature
from daeosens.petsc.vectors import Array, finite_array, read
from daeosens.problem.callback_guard import check_output

Role = Literal["vector", "by_u", "by_p", "number", "slope_u", "slope_p", "hessian", "hessian_t"]
"""What a callback computes: an array [n], Jacobians [n, n] and [n, m], a number, gradients [n] and
[m], products with second derivatives, and second derivatives with the time among them."""

SMALL_DENSE, LARGEST_DENSE = 64, 2000
"""Unknowns between which sparse Jacobians whose factors fill up are factorised as dense ones."""

DENSE_RATE = 10.0
"""So many times as fast as PETSc's sparse LU is LAPACK's, an operation each (1 and 10 GFlop/s)."""

_MAT: Any = PETSc.Mat  # the stubs of petsc4py 3.26 give enumerations the wrong type


class Compiled:
    """A C function that is called like a NumPy-style callback: ``(t, *arrays) -> arrays``.

    Parameters
    ----------
    native : Native
        The C function.
    name : str
        What the user calls it.
    shapes : tuple of shapes
        Of the arrays that it fills.
    returns : bool
        Whether it returns a number, which comes last.

    Attributes
    ----------
    shapes : tuple of shapes
        As given.
    scratch : array
        Room for the values of a matrix, as the function fills them.
    """

    def __init__(
        self, native: Native, name: str, shapes: tuple[tuple[int, ...], ...], *, returns: bool
    ) -> None:
        self.native = native
        self.shapes = shapes
        self._returns = returns
        shape: tuple[int, ...] = shapes[0] if shapes else ()
        self._pattern = None if native.pattern is None else _Pattern(native, name, shape)
        self.scratch = np.empty(shape)
        if self._pattern is not None:
            self.scratch = np.empty(self._pattern.columns.size)

    @cached_property
    def _where(self) -> tuple[int, int]:
        return self.native.where

    def __call__(self, t: float, *arrays: Any) -> Any:
        """Return what the function fills and returns, in new arrays; a tuple if several.

        Raises
        ------
        TypeError
            Complex numbers, or whatever is differentiated with: a C function takes none.
        """
        inputs = tuple(_plain(array) for array in arrays)
        if self._pattern is not None:
            values = np.empty(self._pattern.columns.size)
            call_into(*self._where, t, inputs, (values,))
            return self._pattern.matrix(values)
        outputs = tuple(np.empty(shape) for shape in self.shapes)
        if not self._returns:
            call_into(*self._where, t, inputs, outputs)
            (first, *others) = outputs
            return outputs if others else first
        number = call_number(*self._where, t, inputs, outputs)
        return (*outputs, number) if outputs else number

    def number(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return what a function that fills nothing returns, without a copy."""
        return call_number(*self._where, t, (u, _plain(p)), ())

    def fill(self, name: str, t: float, inputs: tuple[Any, ...], out: PETSc.Vec) -> None:
        """Fill ``out`` [n] without a copy.

        Raises
        ------
        SolveError
            Some value is not finite: the solution has left the domain of the callback.
        """
        if not call_into(*self._where, t, inputs, (out,)):
            check_output(read(out), name, self.shapes[0], t)

    def fill_all(
        self, name: str, t: float, inputs: tuple[Any, ...], outs: tuple[PETSc.Vec, ...]
    ) -> None:
        """Fill several vectors, as ``fill``; arrays among the inputs may be of any layout."""
        plain = tuple(value if isinstance(value, PETSc.Vec) else _plain(value) for value in inputs)
        if not call_into(*self._where, t, plain, outs):
            for out, shape in zip(outs, self.shapes, strict=True):
                check_output(read(out), name, shape, t)

    @property
    def places(self) -> npt.NDArray[np.int32] | None:
        """Where in the values of a sparse matrix each entry belongs; None if it is dense."""
        return None if self._pattern is None else self._pattern.places

    def create(self, rows: PETSc.Vec) -> PETSc.Mat | None:
        """Make a sparse matrix of the pattern, whose diagonal is there too; None if it is dense."""
        return None if self._pattern is None else self._pattern.create(rows.comm)

    def fill_matrix(self, name: str, t: float, inputs: tuple[Any, ...], matrix: PETSc.Mat) -> None:
        """Fill a matrix like the one that was made for it.

        Raises
        ------
        SolveError
            Some value is not finite.
        """
        if not fill_matrix(*self._where, t, inputs, self.scratch, self.places, matrix):
            check_output(self.scratch, name, self.scratch.shape, t)


@dataclass(frozen=True)
class Roles:
    """How the C functions of a problem look.

    Parameters
    ----------
    n, m : int
        Numbers of unknowns and parameters.
    states : int
        Arrays [n] before the parameters: u, or u and its rate.
    weighted : bool
        Whether second derivatives are those of a weighted sum: ``w`` [n] comes after the point.
    numpy : bool
        Whether the problem is of NumPy style; others take no C functions.
    """

    n: int
    m: int
    states: int = 1
    weighted: bool = True
    numpy: bool = True

    def admit(self, role: Role, callback: Any, name: str) -> Any:
        """Return a C function as a NumPy-style callback; anything else as it is.

        Raises
        ------
        InputError
            A C function for a problem of PETSc style, or one of another signature or other sizes.
        """
        native = admit_native(callback)
        if native is None:
            return callback
        if not self.numpy:
            raise InputError(
                f"{name} is a C function",
                expected="a Python callback: the problem is given by PETSc vectors",
                remedy="size=n in place of state=",
            )
        if native.sizes not in (None, (self.n, self.m)):
            unknowns, parameters = native.sizes
            raise InputError(
                f"{name} is a C function of {unknowns} unknowns and {parameters} parameters",
                expected=f"{self.n} unknowns and {self.m} parameters, as the problem has",
                remedy="terminal, event or running of the model that is solved",
            )
        point, shapes = self.states + 1, self._shapes(role)
        returns = role in ("number", "hessian_t")
        inputs = point
        if role in ("hessian", "hessian_t"):
            inputs += self.weighted + (point if role == "hessian" else 0)
        check_signature(native, name, inputs + len(shapes), returns=returns)
        return Compiled(native, name, shapes, returns=returns)

    def _shapes(self, role: Role) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the arrays that a function fills."""
        match role:
            case "number":
                return ()
            case "vector" | "slope_u":
                return ((self.n,),)
            case "slope_p":
                return ((self.m,),)
            case "by_u":
                return ((self.n, self.n),)
            case "by_p":
                return ((self.n, self.m),)
            case "hessian" | "hessian_t":
                return ((self.n,),) * self.states + ((self.m,),)


@lru_cache(maxsize=64)
def fills(size: int, starts: bytes, columns: bytes) -> bool:
    """Whether a pattern [n, n] is quicker factorised as a dense matrix: its factors fill up.

    Parameters
    ----------
    size : int
    starts, columns : bytes
        Of its rows (CSR), as int64.

    Examples
    --------
    >>> n = 200
    >>> ends = np.arange(n + 1).tobytes(), np.arange(n).tobytes()
    >>> fills(n, *ends)
    False
    """
    if not SMALL_DENSE < size <= LARGEST_DENSE:
        return False
    where = np.frombuffer(columns, np.int64), np.frombuffer(starts, np.int64)
    # a matrix of that pattern, diagonally dominant: what its factors fill is what every one of it
    # does
    values = np.random.default_rng(0).uniform(0.5, 1.0, where[0].size)
    matrix = sparse.csr_array((values, *where), shape=(size, size))
    regular = sparse.csc_array(matrix + size * sparse.eye_array(size))
    factors: Any = splu(regular)
    below, right = np.diff(factors.L.indptr), np.bincount(factors.U.indices, minlength=size)
    # multiplications of sparse factors, each slower than one of LAPACK's, beside n^3/3 of a dense
    # one
    return bool(DENSE_RATE * (below * right).sum() > size**3 / 3.0)


class _Pattern:
    """A pattern of a sparse matrix (CSR), and where its entries are among those of a Mat."""

    def __init__(self, native: Native, name: str, shape: tuple[int, ...]) -> None:
        starts, columns = _checked_pattern(native, name, shape)
        self.shape: tuple[int, int] = (shape[0], shape[1])
        self.starts, self.columns = starts, columns
        rows = np.repeat(np.arange(shape[0]), np.diff(starts))
        # one number for each entry, in the order of rows: sorted, it says where an entry is in the
        # Mat
        keys = rows * shape[1] + columns
        every = np.unique(keys)
        if every.size < keys.size:
            raise InputError(f"the pattern of {name} has entries twice", expected="each entry once")
        square = shape[0] == shape[1]
        self.fills = square and fills(shape[0], starts.tobytes(), columns.tobytes())
        if self.fills:  # dense, by columns
            self.places = (columns * shape[0] + rows).astype(np.int32)
            return
        if shape[0] == shape[1]:  # the diagonal, so that a shift finds its place
            every = np.union1d(keys, np.arange(shape[0]) * (shape[1] + 1))
        self.places = np.searchsorted(every, keys).astype(np.int32)
        self._all_columns = every % shape[1]
        self._all_starts = np.searchsorted(every, np.arange(shape[0] + 1) * shape[1])

    def create(self, comm: PETSc.Comm) -> PETSc.Mat:
        if self.fills:
            filled = PETSc.Mat().createDense(self.shape, comm=comm)
            filled.setUp()
            return filled
        csr: Any = (
            self._all_starts.astype(PETSc.IntType),
            self._all_columns.astype(PETSc.IntType),
            np.zeros(self._all_columns.size),
        )
        matrix = PETSc.Mat().createAIJ(self.shape, csr=csr, comm=comm)
        matrix.setOption(_MAT.Option.NEW_NONZERO_ALLOCATION_ERR, False)
        return matrix

    def matrix(self, values: Array) -> Any:
        return sparse.csr_array((values, self.columns, self.starts), shape=self.shape)


def _checked_pattern(
    native: Native, name: str, shape: tuple[int, ...]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    if len(shape) != 2:
        raise InputError(f"{name} has a pattern", expected="none: it is no matrix")
    assert native.pattern is not None
    starts, columns = (
        finite_array(part, f"the pattern of {name}").astype(np.int64) for part in native.pattern
    )
    if starts.shape != (shape[0] + 1,) or starts[0] != 0 or (np.diff(starts) < 0).any():
        raise InputError(
            f"the pattern of {name} has the row starts {starts}",
            expected=f"{shape[0] + 1} numbers that do not decrease, the first one 0",
        )
    if columns.shape != (starts[-1],) or ((columns < 0) | (columns >= shape[1])).any():
        raise InputError(
            f"the pattern of {name} has the columns {columns}",
            expected=f"{starts[-1]} numbers from 0 to {shape[1] - 1}",
        )
    return starts, columns


def _plain(values: Any) -> Array:
    if type(values) is np.ndarray and values.dtype == np.float64 and values.flags.c_contiguous:
        return values
    array = np.ascontiguousarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError("a C function takes real numbers only")
    return array.astype(float, copy=False)
