"""All derivatives of a traced function, as functions with the arguments of the callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.tracing.casadi import casadi
from daeosens.tracing.matrix_nodes import block_jacobian

SCALARS = 20_000
"""Up to so many operations in all derivatives the graph is expanded into scalars."""

FEW_OPERATIONS = 2000
"""Up to so many operations in f a Jacobian without a rule is expanded, where f is not."""

ENTRIES = 20_000
"""Up to so many entries the derivative in the parameters is a matrix."""

COLORS = 32
"""Up to so many colours a Jacobian of matrix nodes is compressed."""


DATA = "data"
"""The input that is no argument of callbacks."""

HELD = "held"
"""The input of constants that an iteration finds, see ``Held``."""

ITERATIONS = 25
"""So many steps an iteration takes at most."""

CLOSE = 1e-9
"""It ends with a step that is smaller, from the second one on: it converges quadratically."""

_BRANCHES = frozenset(
    getattr(casadi, f"OP_{name}")
    for name in (
        *("LT", "LE", "FABS", "FMIN", "FMAX", "SIGN", "IF_ELSE_ZERO", "FLOOR", "CEIL", "FMOD"),
        *("REMAINDER", "COPYSIGN"),
    )
)

_CORNERS = frozenset(
    getattr(casadi, f"OP_{name}")
    for name in ("SQRT", "HYPOT", "NORM1", "NORM2", "NORMF", "NORMINF", "MMIN", "MMAX")
)
"""What has a corner where its argument is zero, or where two of its entries are equal."""


@dataclass(frozen=True, eq=False)
class Held:
    """Constants in graphs that an iteration finds whenever the graph is to be evaluated.

    Derivatives take them for constants.

    Attributes
    ----------
    name : str
        An identifier.
    symbols : casadi.SX
        What stands for them in graphs [k].
    start : casadi.Function
        (t, u, p) -> the point where the iteration begins; all three take ``data`` after p if the
        graphs do.
    step : casadi.Function
        (t, u, p, point) -> the next point, and how far it is away.
    values : casadi.Function
        (t, u, p, point) -> the constants [k].
    """

    name: str
    symbols: Any
    start: Any
    step: Any
    values: Any

    def constants(self, *inputs: Any) -> Any:
        """Return the constants at numbers (t, u, p), evaluated by CasADi."""
        point = self.start(*inputs)
        for k in range(ITERATIONS):
            point, change = self.step(*inputs, point)
            if k and not float(change) > CLOSE:
                break
        return self.values(*inputs, point)


@dataclass(frozen=True, eq=False)
class Generated:
    """One function to evaluate, with the inputs and outputs of a callback by name.

    Attributes
    ----------
    function : casadi.Function
        Inputs "t", "u", "p", and more by kind; an output called "returned" is a number.  An
        input "data" is bound by ``execution.with_data``; a last one "held" is found first.
    shape : tuple of int
        That of the matrix, or of the first output.
    pattern : (array [rows + 1], array [nnz]) of int32, optional
        Where the output holds the values of a sparse matrix: row starts and columns (CSR).
    by_rows : bool
        Whether the output is only one row of the matrix, the product with a unit vector "w".
    held : Held, optional
        The constants that are found first.
    order : int
        That of the derivatives.
    """

    function: Any
    shape: tuple[int, ...]
    pattern: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]] | None = None
    by_rows: bool = False
    held: Held | None = None
    order: int = 0

    @property
    def name(self) -> str:
        """What the function is called."""
        return str(self.function.name())


@dataclass(frozen=True, eq=False)
class Graph:
    """f(t, u, p) or F(t, u, u', p), a vector [k] or a number, as a graph with its inputs.

    Attributes
    ----------
    name : str
        An identifier, the first part of the names of its derivatives.
    t, u, p, value : casadi.SX or casadi.MX
    number : bool
        Whether it is a number.
    udot : casadi.SX, casadi.MX or None
        The rate u', of a residual.
    held : Held, optional
        Constants in ``value`` that are found by an iteration.
    data : symbols, optional
        Symbols in ``value`` for numbers that a user of the compiled function brings along, one
        function for many of them; derivatives take them for constants.
    """

    name: str
    t: Any
    u: Any
    p: Any
    value: Any
    number: bool
    udot: Any = None
    held: Held | None = None
    data: Any = None

    @property
    def states(self) -> dict[str, Any]:
        """Those arrays [n] that it takes, by name: u, and of a residual its rate."""
        return {"u": self.u} if self.udot is None else {"u": self.u, "udot": self.udot}

    @property
    def point(self) -> dict[str, Any]:
        """All inputs by name, in the order of the callbacks."""
        return {"t": self.t, **self.states, "p": self.p}

    @property
    def constant_in_udot(self) -> bool:
        """Whether a residual is M u' - f(t, u, p) with a constant M."""
        by_udot = casadi.jacobian(self.value, self.udot)
        return not casadi.depends_on(by_udot, casadi.veccat(*self.point.values()))

    @property
    def affine(self) -> bool:
        """Whether it is affine in u, with coefficients that depend on parameters alone."""
        symbols: Any = casadi.SX if self.expanded else casadi.MX
        direction = symbols.sym("direction", *self.u.shape)
        along = casadi.jtimes(self.value, self.u, direction)
        others = [symbol for name, symbol in self.point.items() if name != "p"]
        return not casadi.depends_on(along, casadi.veccat(*others))

    @property
    def expanded(self) -> bool:
        """Whether the nodes are scalars."""
        return isinstance(self.value, casadi.SX)

    @property
    def branches(self) -> bool:
        """Whether a comparison, abs, maximum or the like is in it."""
        return self._has(_BRANCHES)

    @property
    def corners(self) -> bool:
        """Whether it may have kinks: branches, a root or a norm."""
        return self._has(_BRANCHES | _CORNERS)

    def _has(self, operations: frozenset[int]) -> bool:
        graph = casadi.Function("f", list(self.point.values()), [self.value])
        return any(graph.instruction_id(k) in operations for k in range(graph.n_instructions()))

    def ignores(self, argument: str) -> bool:
        """Whether it does not depend on an argument at all."""
        return not casadi.depends_on(self.value, getattr(self, argument))


def derive(graph: Graph) -> dict[str, Generated]:
    """Return all derivatives of a graph of matrix nodes, expanded into scalars where small.

    Also a large graph is expanded if it was written entry by entry: it has no larger nodes.
    """
    scalars, few = _sizes(graph)
    if scalars or few:
        expanded = derived(expand(graph))
        count = sum(generated.function.n_instructions() for generated in expanded.values())
        if scalars or count <= SCALARS:
            return expanded
    return derived(graph)


def of_scalars(graph: Graph) -> Graph | None:
    """Return a graph of scalars, or None where that would be a large one, or needs more inputs."""
    if graph.held is not None or graph.data is not None:
        return None
    if graph.expanded:
        return graph
    return expand(graph) if any(_sizes(graph)) else None


def _sizes(graph: Graph) -> tuple[bool, bool]:
    """Return whether nodes are scalars already, and whether there are few operations."""
    operations, nodes = _operations(graph)
    # expanding makes no more of scalars
    return operations < 2 * nodes, operations <= SCALARS


def _operations(graph: Graph) -> tuple[int, int]:
    """Return the numbers of scalar operations, products counted in full, and of nodes."""
    function = casadi.Function("f", list(graph.point.values()), [graph.value])
    count = 0
    for k in range(function.n_instructions()):
        if function.instruction_id(k) == casadi.OP_OUTPUT:
            continue
        node = function.instruction_MX(k)
        if function.instruction_id(k) == casadi.OP_MTIMES:  # dep(0) is added to the product
            count += node.dep(1).nnz() * node.dep(2).size2()
        else:
            count += node.nnz()
    return count, int(function.n_instructions())


def expand(graph: Graph) -> Graph:
    """Return a graph of matrix nodes as one of scalars."""
    inputs = {name: casadi.SX.sym(name, symbol.shape) for name, symbol in graph.point.items()}
    function = casadi.Function("f", list(graph.point.values()), [graph.value])
    value = casadi.cse(casadi.densify(function(*inputs.values())))
    return Graph(graph.name, **inputs, value=value, number=graph.number)


def derived(graph: Graph) -> dict[str, Generated]:
    """Return all derivatives of a graph as it is."""
    return _of_number(graph) if graph.number else _of_vector(graph)


def _of_vector(graph: Graph) -> dict[str, Generated]:
    """Return the function with everything an ODE, DAE or reset takes, by the endings of names."""
    t, u, p, value, point = graph.t, graph.u, graph.p, graph.value, graph.point
    n, m, k = u.numel(), p.numel(), value.numel()
    variables = {**graph.states, "p": p}
    (w,) = _symbols(graph, w=k)
    along = dict(
        zip(
            (f"d{x}" for x in variables),
            _symbols(graph, **{f"d{x}": symbol.numel() for x, symbol in variables.items()}),
            strict=True,
        )
    )
    dp = along["dp"]
    # f_x^T w for each argument x: reverse mode, one pass for all of them
    pulled = [casadi.jtimes(value, x, w, True) for x in variables.values()]
    by = [f"by_{x}" for x in variables]
    result = {"": _function(graph, "", point, {"out": value}, (k,))}
    if graph.udot is None:  # sweeps in C multiply with f_u and f_p at once
        result["_pull"] = _function(
            graph, "_pull", point | {"w": w}, dict(zip(by, pulled, strict=True)), (n,)
        )
        pushed = casadi.jtimes(value, u, along["du"]) + casadi.jtimes(value, p, dp)
        result["_push"] = _function(graph, "_push", point | along, {"out": pushed}, (k,))
    # (f_x^T w) differentiated along all directions at once: forward over reverse
    second = casadi.forward(pulled, list(variables.values()), [list(along.values())])[0]
    result["_hessian"] = _function(
        graph, "_hessian", point | {"w": w} | along, dict(zip(by, second, strict=True)), (n,)
    )
    for x, state in graph.states.items():
        result[f"_{x}"] = _matrix(graph, f"_{x}", state, square=k == n)
    if _is_matrix(graph):
        result["_p"] = _matrix(graph, "_p", p, square=False)
    else:
        pushed = casadi.jtimes(value, p, dp)
        result["_p_apply"] = _function(graph, "_p_apply", point | {"v": dp}, {"out": pushed}, (k,))
        result["_p_transpose"] = _function(
            graph, "_p_transpose", point | {"w": w}, {"out": pulled[1]}, (m,)
        )
    if not graph.ignores("t"):
        # f_t, and the derivatives of w^T f_t in all arguments and in t
        by_t = casadi.jtimes(value, t, 1.0)
        outputs = {
            f"by_{x}": casadi.jtimes(by_t, symbol, w, True) for x, symbol in variables.items()
        }
        outputs["returned"] = casadi.dot(w, casadi.jtimes(by_t, t, 1.0))
        result["_t"] = _function(graph, "_t", point, {"out": by_t}, (k,))
        result["_hessian_t"] = _function(graph, "_hessian_t", point | {"w": w}, outputs, (n,))
    return result


def _of_number(graph: Graph) -> dict[str, Generated]:
    """Return the function with everything a cost or an event takes, by the endings of names."""
    t, u, p, value = graph.t, graph.u, graph.p, graph.value
    n, m = u.numel(), p.numel()
    du, dp = _symbols(graph, du=n, dp=m)
    point, along = {"t": t, "u": u, "p": p}, {"du": du, "dp": dp}
    # of a number: the gradients themselves, and their change along (du, dp)
    gradients = [casadi.jtimes(value, x, 1.0, True) for x in (u, p)]
    by_u, by_p = casadi.forward(gradients, [u, p], [[du, dp]])[0]
    result = {
        "": _function(graph, "", point, {"returned": value}, ()),
        "_hessian": _function(graph, "_hessian", point | along, {"by_u": by_u, "by_p": by_p}, (n,)),
    }
    for x, gradient in zip("up", gradients, strict=True):
        if not graph.ignores(x):
            result[f"_{x}"] = _function(graph, f"_{x}", point, {"out": gradient}, gradient.shape)
    if not graph.ignores("t"):
        by_t = casadi.jtimes(value, t, 1.0)
        outputs = {x: casadi.jtimes(by_t, point[x[-1]], 1.0, True) for x in ("by_u", "by_p")}
        outputs["returned"] = casadi.jtimes(by_t, t, 1.0)
        result["_t"] = _function(graph, "_t", point, {"returned": by_t}, ())
        result["_hessian_t"] = _function(graph, "_hessian_t", point, outputs, (n,))
    return result


def _symbols(graph: Graph, **sizes: int) -> list[Any]:
    kind = casadi.SX if graph.expanded else casadi.MX
    return [kind.sym(name, size) for name, size in sizes.items()]


def _function(
    graph: Graph, ending: str, inputs: dict[str, Any], outputs: dict[str, Any], shape: Sequence[int]
) -> Generated:
    dense = [casadi.densify(output) for output in outputs.values()]
    if graph.data is not None:
        inputs = {**inputs, DATA: graph.data}
    if graph.held is not None:
        inputs = {**inputs, HELD: graph.held.symbols}
    function = casadi.Function(
        graph.name + ending,
        list(inputs.values()),
        dense,
        list(inputs),
        list(outputs),
        {"cse": True},
    )
    order = 0 if not ending else 2 if "hessian" in ending else 1
    return Generated(function, tuple(shape)[:1], held=graph.held, order=order)


def _is_matrix(graph: Graph) -> bool:
    """Whether f_p is small enough to be a matrix."""
    # many colours mean as many passes over the graph: products with f_p are cheaper than the
    # matrix
    pattern = casadi.jacobian_sparsity(graph.value, graph.p)
    if pattern.nnz() > ENTRIES:
        return False
    return graph.expanded or pattern.uni_coloring().size2() <= COLORS


def _matrix(graph: Graph, ending: str, x: Any, *, square: bool) -> Generated:
    """Return a Jacobian by rows: dense, or the values of a pattern that holds the diagonal."""
    point = graph.point
    pattern = casadi.jacobian_sparsity(graph.value, x)
    many = not graph.expanded and pattern.uni_coloring().size2() > COLORS
    jacobian = block_jacobian(graph.value, x) if many else casadi.jacobian(graph.value, x)
    if jacobian is None:
        if _operations(graph)[0] <= FEW_OPERATIONS:  # a row takes as many as f itself
            scalars = expand(graph)
            variables = scalars.u if x is graph.u else scalars.p
            return _matrix(scalars, ending, variables, square=square)
        (w,) = _symbols(graph, w=graph.value.numel())
        row = {"out": casadi.jtimes(graph.value, x, w, True)}
        function = _function(graph, ending, point | {"w": w}, row, ()).function
        return Generated(function, pattern.shape, by_rows=True, order=1)
    if square:  # an implicit step adds to the diagonal, and F_udot to F_u
        pattern = pattern + casadi.Sparsity.diag(*pattern.shape)
        for state in graph.states.values():
            pattern = pattern + casadi.jacobian_sparsity(graph.value, state)
    entries = pattern.numel()
    # small or well filled ones are dense; transposed, as CasADi stores columns and callbacks rows
    if entries <= 256 or pattern.nnz() > entries / 4:
        outputs = {"out": casadi.densify(jacobian).T}
        function = _function(graph, ending, point, outputs, ()).function
        return Generated(function, pattern.shape, held=graph.held, order=1)
    values = casadi.project(jacobian, pattern).T
    transposed = pattern.T  # CasADi's columns of the transpose are the rows
    rows, columns = (
        np.array(numbers, dtype=np.int32) for numbers in (transposed.colind(), transposed.row())
    )
    outputs = {"out": casadi.vertcat(values.nz[:])}
    function = _function(graph, ending, point, outputs, ()).function
    return Generated(function, pattern.shape, (rows, columns), held=graph.held, order=1)
