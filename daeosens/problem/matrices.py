"""Partial derivatives as PETSc matrices: dense, sparse, filled by the user, or by products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc
from scipy import sparse

from daeosens.errors import UnsupportedError, keyword
from daeosens.petsc._kernels import put_finite_matrix
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.c_callback import Compiled
from daeosens.problem.callback_guard import check_output, guarded

DENSE_TYPES = ("seqdense", "mpidense")
"""Of PETSc's matrices."""

_MAT: Any = PETSc.Mat  # the stubs of petsc4py 3.26 give enumerations the wrong type


@dataclass(frozen=True)
class Products:
    """A derivative given by its products with vectors instead of its entries (matrix-free).

    Parameters
    ----------
    apply : callable
        NumPy style ``apply(t, u, p, v) -> array``, PETSc style ``apply(t, u, p, v, out)``; for a
        residual ``(t, u, udot, p, v[, out])``.
    apply_transpose : callable
        The same for the transpose.

    Examples
    --------
    >>> decay = Products(lambda t, u, p, v: -p[0] * v, lambda t, u, p, w: -p[0] * w)
    """

    apply: Callable[..., Any]
    apply_transpose: Callable[..., Any]


@dataclass(frozen=True)
class Derivative:
    """How the matrix of one partial derivative is made and filled.

    ``create(*point)`` returns a matrix of the right type, ``fill(*point, out)`` puts the values at
    the point into it; ``assembled`` is false for products, whose matrix can only be applied, or,
    with ``shifts``, take multiples of the identity too; ``constant`` if the values depend on the
    parameters alone.  The point is ``(t, u, p)`` or, for a
    residual, ``(t, u, udot, p)``.  ``one_sided`` unless the values are known to couple an unknown
    to those on opposite sides alike, as diffusion does.  ``on_arrays`` is the callback of a
    NumPy-style derivative, guarded, and ``check(values, *point)`` that makes a dense array of what
    it returns; ``sparse()`` is whether that was a sparse matrix when it was called last.

    Where values at many points are to be had at once, ``at_points(t [K], u [K, n], p [m])`` returns
    them, None in the place of those that have to be asked for by ``fill``, and ``put(values, out)``
    does the rest of it.
    """

    create: Callable[..., PETSc.Mat]
    fill: Callable[..., None]
    assembled: bool = True
    shifts: bool = False
    constant: bool = False
    one_sided: bool = True
    on_arrays: tuple[Callable[..., Any], Callable[..., Array]] | None = None
    sparse: Callable[[], bool] = lambda: False
    at_points: Callable[[Array, Array, Array], list[Any] | None] | None = None
    put: Callable[[Any, PETSc.Mat], None] | None = None

    def fill_known(self, known: Any, point: tuple[Any, ...], out: PETSc.Mat) -> None:
        """Fill ``out`` with values from ``at_points``, or at the point where these are None."""
        if known is None or self.put is None:
            self.fill(*point, out)
        else:
            self.put(known, out)


_SYMMETRIC = "daeosens couples opposite sides alike"
_NATURAL = "daeosens eliminates in the order of the rows"


def note_one_sided(matrix: PETSc.Mat, *, one_sided: bool) -> None:
    """Note with a matrix whether it may couple a point to those on opposite sides differently."""
    if not one_sided:
        matrix.setAttr(_SYMMETRIC, True)


def is_one_sided(matrix: PETSc.Mat) -> bool:
    """Whether a matrix may have advection, as far as is noted with it."""
    return not matrix.getAttr(_SYMMETRIC)


def note_order(matrix: PETSc.Mat) -> None:
    """Note with a matrix in which order its unknowns are eliminated, if not in the usual one.

    PETSc's LU of sparse matrices does not look for pivots, and its usual order, nested dissection,
    may come to the zeros on the diagonal, which constraints without the variables that they give
    have (those of an index above one), before anything was added to them.  Where that is so, and
    not in the order of the rows, differential equations first as a rule, that one is noted.
    """
    if matrix.comm.size > 1 or not str(matrix.getType()).startswith("seqaij"):
        return
    if np.all(read(matrix.getDiagonal())):
        return
    if not _factorises(matrix, "nd") and _factorises(matrix, "natural"):
        matrix.setAttr(_NATURAL, True)


def order_of(matrix: PETSc.Mat) -> str | None:
    """Return PETSc's name of the order that ``note_order`` has noted with a matrix, if any."""
    return "natural" if matrix.getAttr(_NATURAL) else None


def _factorises(matrix: PETSc.Mat, order: str) -> bool:
    """Return whether LU comes to the end of a matrix of one rank without pivots of zero."""
    solver = PETSc.PC().create(comm=matrix.comm)
    try:
        solver.setType(PETSc.PC.Type.LU)
        solver.setFactorOrdering(order)
        solver.setOperators(matrix)
        solver.setUp()
        reason: Any = solver.getFailedReason()
    except PETSc.Error:
        return False
    finally:
        solver.destroy()
    return reason == PETSc.PC.FailedReason.NOERROR


class ProductsMatrix:
    """Context of a shell matrix: the products at the point set last, times a factor."""

    def __init__(self, apply: Callable[..., None], apply_transpose: Callable[..., None]) -> None:
        self._apply = apply
        self._apply_transpose = apply_transpose
        self.point: tuple[Any, ...] = ()
        self.factor = 1.0

    def mult(self, _matrix: PETSc.Mat, x: PETSc.Vec, out: PETSc.Vec) -> None:
        """Fill ``out`` with factor A x."""
        self._apply(*self.point, x, out)
        out.scale(self.factor)

    def multTranspose(self, _matrix: PETSc.Mat, x: PETSc.Vec, out: PETSc.Vec) -> None:  # noqa: N802
        """Fill ``out`` with factor A^T x."""
        self._apply_transpose(*self.point, x, out)
        out.scale(self.factor)

    def scale(self, _matrix: PETSc.Mat, factor: float) -> None:
        """Multiply the factor."""
        self.factor *= factor


def shell(rows: PETSc.Vec, columns: PETSc.Vec, context: object) -> PETSc.Mat:
    """Make a shell matrix whose products are the methods of ``context``."""
    sizes: Any = [rows.getSizes(), columns.getSizes()]
    matrix = PETSc.Mat().createPython(sizes, context, comm=rows.comm)
    matrix.setUp()
    return matrix


def dense(rows: PETSc.Vec, columns: PETSc.Vec) -> PETSc.Mat:
    """Make a dense matrix of zeros distributed like ``rows``."""
    sizes: Any = [rows.getSizes(), columns.getSizes()]
    matrix = PETSc.Mat().createDense(sizes, comm=rows.comm)
    matrix.setUp()
    matrix.zeroEntries()
    matrix.assemble()
    return matrix


def from_numpy(
    derivative: Callable[..., Any] | Products, name: str, rows: PETSc.Vec, columns: PETSc.Vec
) -> Derivative:
    """Lower a NumPy-style derivative: a callback for a dense or sparse matrix, or products.

    Whether the matrix is dense or sparse is seen at the first evaluation.
    """
    if isinstance(derivative, Products):
        return _numpy_products(derivative, name, rows, columns)
    if isinstance(derivative, Compiled):
        return _from_compiled(derivative, name, rows, columns)
    call = guarded(derivative, name, rows.comm)
    # the same without the detour over a sparse array
    whole = call
    if isinstance(derivative, AutomaticJacobian):
        whole = guarded(derivative.whole, name, rows.comm)
    shape = (rows.size, columns.size)
    is_known_sparse = False

    def has_few_entries() -> bool:
        return is_known_sparse or (
            isinstance(derivative, AutomaticJacobian) and derivative.coloring is not None
        )

    def check(values: Any, t: object) -> Any:
        nonlocal is_known_sparse
        is_known_sparse = is_sparse(values)
        if not is_known_sparse:
            return check_output(values, name, shape, t)
        if values.shape != shape:
            check_output(np.empty(values.shape), name, shape, t)
        check_output(values.data, name, values.data.shape, t)
        return values.tocsr()

    def check_dense(values: Any, t: float, *_point: Any) -> Array:
        return (
            check(values, t).toarray()
            if is_sparse(values)
            else check_output(values, name, shape, t)
        )

    def evaluate(point: tuple[Any, ...]) -> Any:
        return check(call(*_plain(point)), point[0])

    def create(*point: Any) -> PETSc.Mat:
        values: Any = evaluate(point)
        if not is_sparse(values):
            return dense(rows, columns)
        # the entries of the first point are the pattern: explicit zeros of the user stay in it
        pattern: Any = abs(values)
        if shape[0] == shape[1]:  # the diagonal, so that a shift finds its place
            pattern = (pattern + sparse.eye_array(shape[0])).tocsr()
        pattern.sort_indices()
        csr: Any = (
            pattern.indptr.astype(PETSc.IntType),
            pattern.indices.astype(PETSc.IntType),
            np.zeros(pattern.nnz),
        )
        matrix = PETSc.Mat().createAIJ(shape, csr=csr, comm=rows.comm)
        matrix.setOption(_MAT.Option.NEW_NONZERO_ALLOCATION_ERR, False)
        return matrix

    def fill(*point_and_out: Any) -> None:
        nonlocal is_known_sparse
        *point, out = point_and_out
        values = call(*_plain(point))
        # small dense ones, at every stage of every step, in one pass in C
        if put_finite_matrix(out, values):
            is_known_sparse = False
            return
        put(check(values, point[0]), out)

    def put(values: Any, out: PETSc.Mat) -> None:
        has_pattern = is_sparse(values)
        if not has_pattern and out.getType() not in DENSE_TYPES:
            # it was sparse where the matrix was made
            values, has_pattern = sparse.csr_array(values), True
        if has_pattern:
            out.zeroEntries()
            out.setValuesCSR(
                values.indptr.astype(PETSc.IntType),
                values.indices.astype(PETSc.IntType),
                values.data,
            )
        else:
            out.getDenseArray()[...] = values
        out.assemble()

    return Derivative(create, fill, on_arrays=(whole, check_dense), sparse=has_few_entries, put=put)


def _from_compiled(
    derivative: Compiled, name: str, rows: PETSc.Vec, columns: PETSc.Vec
) -> Derivative:
    def fill(*point_and_out: Any) -> None:
        t, *arrays, out = point_and_out
        derivative.fill_matrix(name, t, tuple(arrays), out)

    return Derivative(lambda *_point: derivative.create(rows) or dense(rows, columns), fill)


def from_petsc(
    derivative: Callable[..., Any] | Products,
    name: str,
    rows: PETSc.Vec,
    columns: PETSc.Vec,
    template: Callable[[], PETSc.Mat],
) -> Derivative:
    """Lower a PETSc-style derivative: a callback that fills a matrix like the template."""
    if isinstance(derivative, Products):
        return _petsc_products(derivative, name, rows, columns)
    call = guarded(derivative, name, rows.comm)

    def fill(*point_and_out: Any) -> None:
        call(*point_and_out)
        out = point_and_out[-1]
        if not out.isAssembled():
            out.assemble()

    return Derivative(lambda *_point: template(), fill)


def refused(name: str, remedy: str) -> Derivative:
    """Return a derivative that nobody supplied: using it is an error that names it."""

    def refuse(*_arguments: Any) -> Any:
        raise UnsupportedError(
            f"'{name}' is needed and was not supplied",
            expected=f"{keyword(name)}=callback, or Products(apply, apply_transpose)",
            remedy=remedy,
        )

    return Derivative(refuse, refuse)


def constant(matrix: PETSc.Mat) -> Derivative:
    """Return the derivative whose matrix never changes."""
    return Derivative(lambda *_point: matrix, lambda *_point: None, constant=True)


def negative(derivative: Derivative) -> Derivative:
    """Return the derivative with the opposite sign, for a residual M u' - f; drops ``udot``."""

    def fill(t: float, u: PETSc.Vec, _udot: PETSc.Vec, p: Any, out: PETSc.Mat) -> None:
        derivative.fill(t, u, p, out)
        out.scale(-1.0)

    def put(known: Any, out: PETSc.Mat) -> None:
        assert derivative.put is not None
        derivative.put(known, out)
        out.scale(-1.0)

    return Derivative(
        lambda t, u, _udot, p: derivative.create(t, u, p),
        fill,
        derivative.assembled,
        derivative.shifts,
        derivative.constant,
        derivative.one_sided,
        put=None if derivative.put is None else put,
    )


def is_sparse(values: Any) -> bool:
    """Whether values are a SciPy sparse matrix or array."""
    # asked for at every stage: arrays tell themselves sooner than SciPy does
    return type(values) is not np.ndarray and bool(sparse.issparse(values))


def _plain(arguments: Sequence[Any]) -> list[Any]:
    """Return arguments with arrays in the place of vectors."""
    return [read(x) if isinstance(x, PETSc.Vec) else x for x in arguments]


def _numpy_products(
    products: Products, name: str, rows: PETSc.Vec, columns: PETSc.Vec
) -> Derivative:
    def lower(product: Callable[..., Any], label: str, result: PETSc.Vec) -> Callable[..., None]:
        call = guarded(product, label, rows.comm)

        def apply(*arguments: Any) -> None:
            *inputs, out = arguments
            values = call(*_plain(inputs))
            write(out, check_output(values, label, (result.size,), inputs[0]))

        return apply

    forward = lower(products.apply, f"{name}.apply", rows)
    backward = lower(products.apply_transpose, f"{name}.apply_transpose", columns)
    return _shell_derivative(forward, backward, rows, columns)


def _petsc_products(
    products: Products, name: str, rows: PETSc.Vec, columns: PETSc.Vec
) -> Derivative:
    forward = guarded(products.apply, f"{name}.apply", rows.comm)
    backward = guarded(products.apply_transpose, f"{name}.apply_transpose", rows.comm)
    return _shell_derivative(forward, backward, rows, columns)


def _shell_derivative(
    forward: Callable[..., None],
    backward: Callable[..., None],
    rows: PETSc.Vec,
    columns: PETSc.Vec,
) -> Derivative:
    def create(*_point: Any) -> PETSc.Mat:
        return shell(rows, columns, ProductsMatrix(forward, backward))

    def fill(*point_and_out: Any) -> None:
        *point, out = point_and_out
        context = out.getPythonContext()
        context.point = tuple(point)
        # a product with the point's own derivative; PETSc scales what it was given before
        context.factor = 1.0
        out.stateIncrease()

    return Derivative(create, fill, assembled=False)


class PointMatrix:
    """One matrix, made at the first point where it is wanted, and filled at each.

    Parameters
    ----------
    derivative : Derivative
        Says how.
    """

    def __init__(self, derivative: Derivative) -> None:
        self._derivative = derivative
        self._matrix: PETSc.Mat | None = None

    def at(self, *point: Any, known: Any = None) -> PETSc.Mat:
        """Return it with the values at a point, or with these if they are known."""
        if self._matrix is None:
            self._matrix = self._derivative.create(*point)
        self._derivative.fill_known(known, point, self._matrix)
        return self._matrix

    @property
    def looks_ahead(self) -> bool:
        """Whether values at many points may be had at once."""
        return self._derivative.at_points is not None

    def at_points(self, t: Array, u: Array, p: Array) -> list[Any] | None:
        """Return what is known beforehand at K points [K], [K, n], if anything."""
        evaluate = self._derivative.at_points
        return None if evaluate is None else evaluate(t, u, p)
