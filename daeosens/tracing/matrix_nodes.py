"""Jacobians of graphs of matrix nodes, as matrix nodes: f = tanh(A u) has diag(1 - f^2) A.

CasADi takes one product with a vector for each colour of a Jacobian; of a dense one that is one
for each column.  Here the chain rule is applied to whole matrices, which costs as much as the
matrices have entries, and code only for the nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from daeosens.tracing.casadi import casadi

Rule = Callable[[Any, list[Any]], Any]


def block_jacobian(value: Any, x: Any) -> Any:
    """Return d value / d x [k, n] for vectors, or None where a node has no rule.

    Examples
    --------
    >>> u, A = casadi.MX.sym("u", 30), casadi.MX.sym("A", 30, 30)
    >>> block_jacobian(casadi.tanh(A @ u), u).shape
    (30, 30)
    """
    known: dict[int, Any] = {x.__hash__(): casadi.DM.eye(x.numel())}
    for node in ordered(value):
        if node.__hash__() in known:
            continue
        inputs = [node.dep(k) for k in range(node.n_dep())]
        parts = [known[symbol.__hash__()] for symbol in inputs]
        if all(part is None for part in parts):
            known[node.__hash__()] = None
            continue
        rule = _RULES.get(node.op(), _elementwise if node.n_dep() <= 2 else _none)
        result = rule(node, parts)
        if result is None:
            return None
        known[node.__hash__()] = result
    jacobian = known[value.__hash__()]
    return casadi.MX(value.numel(), x.numel()) if jacobian is None else casadi.MX(jacobian)


def ordered(value: Any) -> list[Any]:
    """Return all nodes, each after those that it depends on."""
    order: list[Any] = []
    seen: set[int] = set()
    stack = [(value, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node.__hash__() not in seen:
            seen.add(node.__hash__())
            stack.append((node, True))
            stack += [(node.dep(k), False) for k in range(node.n_dep())]
    return order


def _none(_node: Any, _parts: list[Any]) -> None:
    return None


def _elementwise(node: Any, parts: list[Any]) -> Any:
    """Scale the rows by the partial derivatives of a function of entries."""
    inputs = [node.dep(k) for k in range(node.n_dep())]
    symbols = [casadi.MX.sym(f"x{k}", operand.shape) for k, operand in enumerate(inputs)]
    try:
        make = casadi.MX.unary if len(symbols) == 1 else casadi.MX.binary
        result = make(node.op(), *symbols)
    except RuntimeError:  # no function of entries
        return None
    if result.shape != node.shape:
        return None
    total: Any = None
    for symbol, part in zip(symbols, parts, strict=True):
        if part is None:
            continue
        slope = casadi.jtimes(result, symbol, casadi.DM.ones(*symbol.shape))
        slope = casadi.vec(casadi.densify(casadi.graph_substitute(slope, symbols, inputs)))
        if part.shape[0] == 1 and slope.numel() > 1:  # a number, repeated
            scaled = casadi.mtimes(slope, casadi.densify(part))
        else:
            scaled = _scaled(slope, part)
        total = scaled if total is None else _sum(total, scaled)
    return total


def _sum(first: Any, second: Any) -> Any:
    """Add matrices; constants, as the identity, only where they have entries.

    CasADi would write all zeros around them into the code.
    """
    first, second = casadi.MX(first), casadi.MX(second)
    if first.is_constant():
        first, second = second, first
    if first.is_constant() or not second.is_constant() or not first.is_dense():
        return first + second
    rows, columns = second.sparsity().get_triplet()
    places = [row + column * first.shape[0] for row, column in zip(rows, columns, strict=True)]
    first = casadi.MX(first)
    first[places] = first[places] + second.to_DM().nonzeros()
    return first


def _scaled(slope: Any, part: Any) -> Any:
    if slope.is_constant() and slope.is_one():
        return part
    if part.nnz() < part.numel() // 4:  # as the identity
        return casadi.mtimes(casadi.diag(slope), part)
    return casadi.repmat(slope, 1, part.shape[1]) * part


def _product(node: Any, parts: list[Any]) -> Any:
    """Differentiate z + x y, where one factor does not change."""
    start, left, right = parts
    x, y = node.dep(1), node.dep(2)
    # both factors change: no rule here, CasADi's own Jacobian has to do
    if left is not None and right is not None:
        return None
    if left is not None:  # vec(X y) = (y^T kron I) vec(X)
        moved = casadi.mtimes(_beside(_known(y).T, x.shape[0], last=True), left)
    else:
        moved = casadi.mtimes(_beside(_known(x), y.shape[1], last=False), right)
    return moved if start is None else _sum(moved, start)


def _known(matrix: Any) -> Any:
    """Return a constant by its entries, without zeros; another matrix as it is."""
    return casadi.sparsify(matrix.to_DM()) if matrix.is_constant() else matrix


def _beside(matrix: Any, count: int, *, last: bool) -> Any:
    """Return the Kronecker product with the identity, which comes first or last."""
    if count == 1:
        return matrix
    identity = casadi.DM.eye(count)
    return casadi.kron(matrix, identity) if last else casadi.kron(identity, matrix)


def _dot(node: Any, parts: list[Any]) -> Any:
    factors = [casadi.vec(casadi.densify(node.dep(k))) for k in (1, 0)]
    return sum(
        casadi.mtimes(factor.T, part)
        for factor, part in zip(factors, parts, strict=True)
        if part is not None
    )


def _same(node: Any, parts: list[Any]) -> Any:
    return parts[0] if 1 in node.shape else None


def _chosen(node: Any, parts: list[Any]) -> Any:
    mapping = [int(k) for k in casadi.DM(node.mapping()).nonzeros()]
    return casadi.MX(parts[0])[mapping, :] if len(mapping) == node.numel() else None


def _stacked(node: Any, parts: list[Any]) -> Any:
    columns = next(part.shape[1] for part in parts if part is not None)
    return casadi.vertcat(
        *(
            casadi.MX(node.dep(k).numel(), columns) if part is None else part
            for k, part in enumerate(parts)
        )
    )


def _repeated(node: Any, parts: list[Any]) -> Any:
    return casadi.vertcat(*[parts[0]] * (node.numel() // node.dep(0).numel()))


def _folded(node: Any, parts: list[Any]) -> Any:
    """Differentiate the sum of the blocks side by side, which follow each other as rows."""
    return sum(casadi.vertsplit(casadi.MX(parts[0]), node.numel()))


_RULES: dict[int, Rule] = {
    casadi.OP_MTIMES: _product,
    casadi.OP_DOT: _dot,
    casadi.OP_RESHAPE: lambda _node, parts: parts[0],
    casadi.OP_TRANSPOSE: _same,
    casadi.OP_GETNONZEROS: _chosen,
    casadi.OP_HORZREPMAT: _repeated,
    casadi.OP_HORZREPSUM: _folded,
    casadi.OP_VERTCAT: _stacked,
}
