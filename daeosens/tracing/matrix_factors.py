"""A right-hand side taken apart: f(t, u, p, y) with y_a = A_a v_a(t, u, p, y), A_a dense matrices.

What is between the products with large matrices has derivatives with few entries.  So derivatives
for many rows at many points are products with the matrices A_a, which all points share, and the
derivative in the entries of A_a is never formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.petsc.diagonal_runs import Runs, diagonal_runs
from daeosens.petsc.vectors import Array
from daeosens.tracing.casadi import casadi
from daeosens.tracing.derivatives import Generated, Graph
from daeosens.tracing.matrix_nodes import ordered

FEW = 64
"""Up to so many entries a constant matrix is no factor."""

FILL = 32
"""So many entries the derivatives between the products may have for each of their variables."""


@dataclass(frozen=True, eq=False)
class Factor:
    """A matrix A [rows, columns] that multiplies a vector v.

    Attributes
    ----------
    rows, columns : int
    start : int or None
        The place of its first entry among the parameters, if these are the entries.
    transposed : bool
        Its columns follow one another, not its rows.
    constant : array or None
        The entries otherwise, by rows.
    """

    rows: int
    columns: int
    start: int | None = None
    transposed: bool = False
    constant: Array | None = None

    def matrix(self, p: Array) -> Array:
        """Return the entries as they are stored, [rows, columns] or [columns, rows]."""
        if self.constant is not None:
            return self.constant
        assert self.start is not None
        shape = (self.columns, self.rows) if self.transposed else (self.rows, self.columns)
        return p[self.start : self.start + self.rows * self.columns].reshape(shape)


@dataclass(frozen=True, eq=False)
class Factored:
    """A right-hand side with its factors and the functions between them.

    Attributes
    ----------
    factors : sequence of Factor
        In an order in which v of each depends on earlier products only.
    functions : sequence of Generated
        v of each factor, then f, each of (t, u, p, y), and last the values of their derivatives in
        u, y and p: "by_u", "by_y", "by_p".
    by_u, by_y, by_p : Runs
        Where these values belong: in rows of all v, one after the other, and f.
    used : array of int
        The parameters that ``by_p`` counts as its columns.
    only_u : bool
        There is one factor, and its v is u.
    """

    factors: Sequence[Factor]
    functions: Sequence[Generated]
    by_u: Runs
    by_y: Runs
    by_p: Runs
    used: npt.NDArray[np.intp]
    only_u: bool

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return int(self.functions[-1].function.numel_in("u"))

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """Numbers of entries of all v and of all y."""
        return sum(factor.columns for factor in self.factors), sum(
            factor.rows for factor in self.factors
        )

    @cached_property
    def entries(self) -> tuple[int, int, int]:
        """Numbers of values of the derivatives in u, y and p."""
        function = self.functions[-1].function
        u, y, p = (int(function.numel_out(k)) for k in range(3))
        return u, y, p

    @cached_property
    def table(self) -> npt.NDArray[np.int32]:
        """One row for each factor: start in v, rows, columns, transposed, first and last run."""
        starts = np.cumsum([0, *(factor.columns for factor in self.factors)])
        blocks = self.by_y.blocks
        rows = [
            (starts[a], factor.rows, factor.columns, factor.transposed, blocks[a], blocks[a + 1])
            for a, factor in enumerate(self.factors)
        ]
        return np.array(rows, dtype=np.int32)

    @cached_property
    def n_parameters(self) -> int:
        """Number of parameters."""
        return int(self.functions[-1].function.numel_in("p"))

    @cached_property
    def starts(self) -> npt.NDArray[np.intp]:
        """The place of each factor's first entry among the parameters; -1 of constant ones."""
        return np.array([-1 if factor.start is None else factor.start for factor in self.factors])

    @cached_property
    def disjoint(self) -> bool:
        """Whether no parameter is an entry of two factors."""
        return all(end <= start for (_, end), (start, _) in pairwise(self._spans))

    @cached_property
    def outside(self) -> npt.NDArray[np.intp]:
        """From which parameter to which one none is an entry of a single factor [., 2]."""
        spans = self._spans if self.disjoint else []
        edges = np.array([0, *chain.from_iterable(spans), self.n_parameters]).reshape(-1, 2)
        return edges[edges[:, 0] < edges[:, 1]]

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        """Where the entries of factors begin and end among the parameters."""
        return sorted(
            (factor.start, factor.start + factor.rows * factor.columns)
            for factor in self.factors
            if factor.start is not None
        )


def factored(graph: Graph) -> Factored | None:
    """Return a right-hand side taken apart, or None where that leads nowhere.

    Examples
    --------
    >>> t, u, p = casadi.MX.sym("t"), casadi.MX.sym("u", 3), casadi.MX.sym("p", 9)
    >>> A = casadi.reshape(p, 3, 3).T
    >>> product = factored(Graph("rhs", t, u, p, value=u * (A @ u), number=False))
    >>> product.factors
    [Factor(rows=3, columns=3, start=0, transposed=False, constant=None)]
    """
    products = [product for node in ordered(graph.value) if (product := _product(node, graph.p))]
    if not products:
        return None
    factors = [factor for _, factor, _ in products]
    # every product A v in the graph is replaced by a symbol: what is left is cheap and sparse
    y = casadi.MX.sym("y", sum(factor.rows for factor in factors))
    parts = casadi.vertsplit(y, np.cumsum([0, *(factor.rows for factor in factors)]).tolist())
    values = casadi.graph_substitute(
        [*(casadi.vec(v) for _, _, v in products), graph.value],
        [node for node, _, _ in products],
        [casadi.reshape(y, *node.shape) for y, (node, _, _) in zip(parts, products, strict=True)],
    )
    return _between(graph, factors, y, values)


def _between(graph: Graph, factors: list[Factor], y: Any, values: list[Any]) -> Factored | None:
    """Expand what is between the products into scalars, and differentiate it."""
    inputs = [graph.t, graph.u, graph.p, y]
    symbols = [casadi.SX.sym(name, x.shape) for name, x in zip("tupy", inputs, strict=True)]
    try:
        whole = casadi.Function("between", inputs, values).expand()
    except RuntimeError:  # a node that has no scalars
        return None
    values = [casadi.densify(value) for value in whole.call(symbols)]
    stacked = casadi.vertcat(*values)
    # if what is between the products is dense itself, nothing is gained by taking it apart
    limit = FILL * (stacked.numel() + graph.u.numel())
    if whole.n_instructions() > limit:
        return None
    _, u, p, y = symbols
    # parameters outside of the matrices, such as biases and rates: few, and differentiated as usual
    used = np.array(casadi.DM(casadi.which_depends(stacked, p, 1, False)), dtype=bool).ravel()
    jacobians = [casadi.jacobian(stacked, x) for x in (u, y, p[np.flatnonzero(used).tolist()])]
    if sum(jacobian.nnz() for jacobian in jacobians) > limit:
        return None
    runs: list[Runs] = []
    slopes: list[Any] = []
    inner = stacked.numel() - graph.u.numel()
    blocks = np.cumsum([0, *(factor.rows for factor in factors)])
    for jacobian, starts in zip(jacobians, ([0], blocks, [0]), strict=True):
        rows, columns = (
            np.array(numbers, dtype=int) for numbers in jacobian.sparsity().get_triplet()
        )
        # entries along diagonals next to each other, so that loops over them have no index
        order, run = diagonal_runs(rows, columns, inner, starts)
        runs.append(run)
        slopes.append(casadi.SX(casadi.vertcat(*(jacobian.nz[int(k)] for k in order))))
    names = [*(f"{graph.name}_v{k}" for k in range(len(factors))), f"{graph.name}_of_y"]
    functions = [
        _function(name, symbols, {"out": value}) for name, value in zip(names, values, strict=True)
    ]
    outputs: dict[str, Any] = dict(zip(("by_u", "by_y", "by_p"), slopes, strict=True))
    functions.append(_function(f"{graph.name}_slopes", symbols, outputs))
    by_u, by_y, by_p = runs
    only_u = len(factors) == 1 and values[0].shape == u.shape and casadi.is_equal(values[0], u)
    return Factored(factors, functions, by_u, by_y, by_p, np.flatnonzero(used), only_u)


def _function(name: str, symbols: list[Any], outputs: dict[str, Any]) -> Generated:
    function = casadi.Function(
        name, symbols, list(outputs.values()), list("tupy"), list(outputs), {"cse": True}
    )
    return Generated(function, (next(iter(outputs.values())).numel(),))


def _product(node: Any, p: Any) -> tuple[Any, Factor, Any] | None:
    """Return a product of a matrix and a vector as (node, matrix, vector)."""
    if node.op() == casadi.OP_DOT:
        # a dot product is a matrix of one row times a vector, either way round
        pairs = [(node.dep(0).T, node.dep(1)), (node.dep(1).T, node.dep(0))]
    elif node.op() == casadi.OP_MTIMES and node.dep(0).is_zero():
        left, right = node.dep(1), node.dep(2)
        pairs = [(left, right), (right.T, left.T)]
    else:
        return None
    for matrix, vector in pairs:
        if vector.shape[1] == 1 and (factor := _factor(matrix, p)):
            return node, factor, vector
    return None


def _factor(matrix: Any, p: Any) -> Factor | None:
    """Return a constant, or parameters in their order, as a factor; None if it is neither."""
    rows, columns = matrix.shape
    if not matrix.is_dense() or any(x.__hash__() != p.__hash__() for x in casadi.symvar(matrix)):
        return None
    entries = casadi.Function("entries", [p], [matrix])
    # With p = 0, 1, 2, ... an entry that is a parameter shows its number.
    numbers = np.arange(p.numel(), dtype=float)
    values, other = (np.array(entries(at), dtype=float) for at in (numbers, np.cos(numbers)))
    if matrix.is_constant() or np.array_equal(values, other):
        return Factor(rows, columns, constant=values) if values.size > FEW else None
    for transposed in (False, True):
        stored = values.T if transposed else values
        places = stored[0, 0] + np.arange(values.size)
        # equal at other parameters too: entries are parameters, not functions of them
        if np.array_equal(stored.ravel(), places) and np.array_equal(other, np.cos(values)):
            return Factor(rows, columns, int(places[0]), transposed)
    return None
