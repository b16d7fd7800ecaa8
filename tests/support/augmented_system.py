"""Several states side by side as one, for equations that are integrated together with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc
from scipy import sparse

from daeosens import ODE, Stepping
from daeosens.errors import UnsupportedError
from daeosens.petsc import read, write
from daeosens.petsc.vectors import Array
from daeosens.problem import Problem, Products
from daeosens.problem.matrices import Derivative

Indices: TypeAlias = npt.NDArray[np.int64]


class Augmented:
    """The layout of vectors side by side: each rank has its own rows of all of them.

    Parameters
    ----------
    parts : sequence of Vec
        Templates, on one communicator, on which making the layout is collective.
    """

    def __init__(self, parts: Sequence[PETSc.Vec]) -> None:
        self.parts = tuple(parts)
        self._ends: list[int] = np.cumsum([0, *(part.local_size for part in parts)]).tolist()
        ranks = self.parts[0].comm.tompi4py()
        self._all_ends = np.array(ranks.allgather(self._ends), dtype=np.int64)

    def create(self) -> PETSc.Vec:
        """Return a new vector of zeros.  Collective."""
        whole = PETSc.Vec().create(comm=self.parts[0].comm)
        sizes: Any = (self._ends[-1], None)
        whole.setSizes(sizes)
        whole.setType(PETSc.Vec.Type.STANDARD)
        return whole

    def split(self, whole: PETSc.Vec) -> list[Array]:
        """Return the local values of each part, to be read only."""
        return self._cut(read(whole))

    def opened(self, whole: PETSc.Vec) -> list[Array]:
        """Return the local values of each part, to be overwritten."""
        values: Any = whole.getArray()
        return self._cut(values)

    def _cut(self, values: Array) -> list[Array]:
        return [values[a:b] for a, b in zip(self._ends[:-1], self._ends[1:], strict=True)]

    def join(self, vecs: Sequence[PETSc.Vec]) -> PETSc.Vec:
        """Return a new vector made of the given parts."""
        whole = self.create()
        write(whole, np.concatenate([read(vec) for vec in vecs]))
        return whole

    def columns(self, part: int, columns: Indices) -> Indices:
        """Return where columns of one part are in the whole."""
        offsets = self._all_ends
        whole_starts = np.concatenate([[0], np.cumsum(offsets[:, -1])])[:-1]
        starts = np.concatenate([[0], np.cumsum(offsets[:, part + 1] - offsets[:, part])])
        owner = np.searchsorted(starts, columns, side="right") - 1
        return whole_starts[owner] + offsets[owner, part] + columns - starts[owner]


@dataclass(frozen=True, eq=False)
class Block:
    """A diagonal block: ``factor`` times a matrix or its transpose; no matrix is zero."""

    matrix: PETSc.Mat | None
    factor: float = 1.0
    transpose: bool = False

    def add(self, x: PETSc.Vec, out: PETSc.Vec, *, transpose: bool) -> None:
        """Fill ``out`` with the product of the block, or of its transpose."""
        if self.matrix is None:
            out.zeroEntries()
            return
        flipped = self.transpose != transpose
        (self.matrix.multTranspose if flipped else self.matrix.mult)(x, out)
        out.scale(self.factor)


Blocks: TypeAlias = "Callable[[float, PETSc.Vec], Sequence[Block]]"


class Filled:
    """A derivative at fixed parameters with the matrix that it is put into."""

    def __init__(self, derivative: Derivative, t: float, u: PETSc.Vec, p: Any) -> None:
        self._derivative, self._p = derivative, p
        self._matrix = derivative.create(t, u, p)

    def at(self, t: float, u: PETSc.Vec) -> PETSc.Mat:
        """Return the matrix at (t, u); the next call overwrites it."""
        self._derivative.fill(t, u, self._p, self._matrix)
        return self._matrix


def block_diagonal(
    augmented: Augmented, blocks: Blocks, whole: PETSc.Vec, *, assembled: bool
) -> tuple[Callable[..., None] | Products, PETSc.Mat | None]:
    """Return the block diagonal part of a Jacobian, for Newton's iteration.

    What is left out couples later parts to earlier ones, so the iteration converges one part after
    the other.  Collective.

    Parameters
    ----------
    augmented : Augmented
        Layout.
    blocks : callable
        ``blocks(t, whole)``: one for each part.
    whole : Vec
        A point, for the pattern.
    assembled : bool
        Whether the blocks have entries; otherwise the result is given by products.

    Returns
    -------
    jacobian, jacobian_matrix
        As for ``ODE`` in PETSc style.
    """
    if not assembled:
        return _products(augmented, blocks), None
    pattern = _rows(augmented, blocks(0.0, whole))
    pattern.data[:] = 1.0
    start = whole.getOwnershipRange()[0]
    n_local = pattern.shape[0]
    own = np.arange(n_local, dtype=np.int64)
    diagonal: Any = (np.ones(n_local), (own, start + own))
    pattern = (pattern + sparse.csr_array(diagonal, shape=pattern.shape)).tocsr()
    pattern.sort_indices()
    sizes: Any = (whole.getSizes(), whole.getSizes())
    csr: Any = (*_integers(pattern), np.zeros(pattern.nnz))
    template = PETSc.Mat().createAIJ(sizes, csr=csr, comm=whole.comm)
    # zeros of a dense block may come to life later
    template.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)  # type: ignore[arg-type]

    def jacobian(t: float, u: PETSc.Vec, _p: Any, out: PETSc.Mat) -> None:
        rows = _rows(augmented, blocks(t, u))
        out.zeroEntries()
        out.setValuesCSR(*_integers(rows), rows.data)
        out.assemble()

    return jacobian, template


def augmented_equations(
    problem: Problem,
    rhs: Callable[..., None],
    blocks: Blocks,
    augmented: Augmented,
    whole: PETSc.Vec,
    stepping: Stepping,
) -> Problem:
    """Return u' = rhs for the whole, with a Newton matrix if the method wants one.  Collective."""
    if stepping.resolved_method.explicit:
        return ODE(rhs, state=whole, breakpoints=problem.breakpoints)
    assembled = problem.rhs_u.assembled
    jacobian, template = block_diagonal(augmented, blocks, whole, assembled=assembled)
    return ODE(
        rhs,
        state=whole,
        jacobian=jacobian,
        jacobian_matrix=template,
        breakpoints=problem.breakpoints,
    )


def refuse_other_forms(problem: Problem, what: str, instead: str) -> None:
    """Raise unless the problem is u' = f(t, u, p).

    Raises
    ------
    UnsupportedError
        Names what to use instead.
    """
    if not problem.smooth:
        raise UnsupportedError(
            f"{what} for a problem with events", expected="a smooth problem", remedy=instead
        )
    if problem.form != "rhs":
        raise UnsupportedError(
            f"{what} for a problem in {problem.form} form",
            expected="u' = f(t, u, p) without a mass matrix",
            remedy=instead,
        )


def _products(augmented: Augmented, blocks: Blocks) -> Products:
    def apply(t: float, u: PETSc.Vec, v: PETSc.Vec, out: PETSc.Vec, *, transpose: bool) -> None:
        inputs, outputs = augmented.split(v), augmented.opened(out)
        for template, block, values, result in zip(
            augmented.parts, blocks(t, u), inputs, outputs, strict=True
        ):
            x, product = template.duplicate(), template.duplicate()
            write(x, values)
            block.add(x, product, transpose=transpose)
            result[...] = read(product)
            x.destroy()
            product.destroy()

    return Products(
        lambda t, u, _p, v, out: apply(t, u, v, out, transpose=False),
        lambda t, u, _p, v, out: apply(t, u, v, out, transpose=True),
    )


def _rows(augmented: Augmented, blocks: Sequence[Block]) -> Any:
    """Return the local rows of the block diagonal matrix, with the whole's columns."""
    total = int(sum(part.size for part in augmented.parts))
    rows: list[Any] = []
    for k, (part, block) in enumerate(zip(augmented.parts, blocks, strict=True)):
        shape = (part.local_size, total)
        if block.matrix is None:
            rows.append(sparse.csr_array(shape))
            continue
        matrix = block.matrix
        if block.transpose:
            matrix = matrix.transpose(PETSc.Mat())
        starts, columns, values = _local_csr(matrix)
        inside = augmented.columns(k, columns)
        rows.append(sparse.csr_array((block.factor * values, inside, starts), shape=shape))
    return sparse.vstack(rows, format="csr")


def _local_csr(matrix: PETSc.Mat) -> tuple[Any, Any, Any]:
    kind: Any = matrix.getType()
    if "dense" in kind:
        values: Any = matrix.getDenseArray(readonly=True)
        n_local, n = values.shape
        starts = n * np.arange(n_local + 1, dtype=np.int64)
        columns = np.tile(np.arange(n, dtype=np.int64), n_local)
        return starts, columns, values.ravel()
    if kind not in ("seqaij", "mpiaij"):
        matrix = matrix.convert(PETSc.Mat.Type.AIJ, PETSc.Mat())
    return matrix.getValuesCSR()


def _integers(rows: Any) -> tuple[Any, Any]:
    return rows.indptr.astype(PETSc.IntType), rows.indices.astype(PETSc.IntType)
