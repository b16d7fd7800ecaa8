"""Right-hand sides as functions of their parameters, evaluated at many given states at once.

Where the states are known, as interpolants of measurements, f(t, u, p) is a function of p alone:
linear in some parameters, not in others.  Which is read off the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from daeosens.errors import InputError, name_list, nearest
from daeosens.petsc.vectors import Array
from daeosens.tracing.casadi import casadi
from daeosens.tracing.derivatives import Graph, expand
from daeosens.tracing.named_parameters import admit_shapes
from daeosens.tracing.tracer import Tracer

Indices = npt.NDArray[np.intp]


DelayedParts: TypeAlias = tuple[Graph, Graph, Graph]
"""(0, f, 0) of a point y = (t, u, z), the delays, and the history, as they were traced."""


@dataclass(frozen=True, eq=False, repr=False)
class DelayedGraphs:
    """What is delayed, as graphs.

    Attributes
    ----------
    count : int
        Number d of delays.
    lags : casadi.Function
        The delays [d] of p.
    past : casadi.Function
        The history [n] of (t, p).
    """

    count: int
    lags: Any
    past: Any


@dataclass(frozen=True, eq=False, repr=False)
class SeparableRhs:
    """f(t, u, z, p) [r] with u(t) and delayed states z = u(t - tau) given, a function of p [m].

    Attributes
    ----------
    names : tuple of str [m]
        The parameters.
    n : int
        Number of unknowns.
    rates : casadi.Function
        f [r] of (t, u [n], z [n d], p): rates of all unknowns, r = n, or others.
    delayed : DelayedGraphs, optional
        Delays and history, where there are any.
    """

    names: tuple[str, ...]
    n: int
    rates: Any
    delayed: DelayedGraphs | None = None

    @cached_property
    def symbols(self) -> dict[str, Any]:
        """The inputs: t, u, the z [n d] with two derivatives, where they are history, and p.

        ``held`` is the p at which z was taken, ``first`` the time until which history holds.
        """
        d = 0 if self.delayed is None else self.delayed.count
        sizes = {"t": 1, "u": self.n}
        sizes |= {f"z{k}": self.n * d for k in range(3)}
        sizes |= {"before": d, "first": 1, "held": len(self.names), "p": len(self.names)}
        return {name: casadi.SX.sym(name, size) for name, size in sizes.items()}

    @cached_property
    def value(self) -> Any:
        """F as a graph of ``symbols``.

        u(t - tau) is its Taylor polynomial around the delay at which it was taken, so that two
        derivatives in the delay are exact; before the run it is the history itself.
        """
        symbols = self.symbols
        t, p, first = symbols["t"], symbols["p"], symbols["first"]
        late: list[Any] = []
        if self.delayed is not None:
            tau, held = self.delayed.lags(p), self.delayed.lags(symbols["held"])
            for k in range(self.delayed.count):
                # z is known at the delay where it was taken; u(t - tau) of a delay a little
                # longer is its Taylor polynomial in -(tau - held).
                longer, before = tau[k] - held[k], symbols["before"][k]
                z0, z1, z2 = (symbols[f"z{j}"][k * self.n : (k + 1) * self.n] for j in range(3))
                seen = z0 - z1 * longer + 0.5 * z2 * longer**2
                # behind the run the history is asked for where it ends, never after that
                past = self.delayed.past(first + before * (t - tau[k] - first), p)
                late.append(before * past + (1.0 - before) * seen)
        value = self.rates(t, symbols["u"], casadi.vertcat(casadi.SX(0, 1), *late), p)
        return casadi.densify(value)

    @cached_property
    def used(self) -> npt.NDArray[np.bool_]:
        """Which parameters f depends on [m]."""
        columns = casadi.jacobian(self.value, self.symbols["p"]).sparsity().get_triplet()[1]
        return np.isin(np.arange(len(self.names)), columns)

    @cached_property
    def coupling(self) -> npt.NDArray[np.bool_]:
        """Whether df/dp_i depends on p_j [m, m]."""
        p = self.symbols["p"]
        by_p = casadi.jacobian(self.value, p)
        columns = np.array(by_p.sparsity().get_triplet()[1], dtype=int)
        result = np.zeros((len(self.names),) * 2, dtype=bool)
        if columns.size:
            # which entries of df/dp depend on which parameters: f is linear in p_i and p_j
            # together if none of their second derivatives is there
            entries = casadi.jacobian(_entries(by_p), p).sparsity()
            rows, seconds = (np.array(triplet, dtype=int) for triplet in entries.get_triplet())
            result[columns[rows], seconds] = True
        return result | result.T

    def linear(self, free: Sequence[str], declared: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return a largest set of free parameters in which f is linear, all together.

        A parameter is none of them if f is not linear in it.  Of two that are multiplied the one
        goes that is in more such products; of equals the later one.

        Raises
        ------
        InputError
            f is not linear in those that were declared; names two of them.
        """
        place = {name: k for k, name in enumerate(self.names)}
        coupled = self.coupling
        if declared is not None:
            declared = name_list(declared, "linear")
            for name in declared:
                if name not in free:
                    raise InputError(
                        f'linear names "{name}"',
                        expected=f"free parameters: {', '.join(free)}",
                        remedy=nearest(name, free),
                    )
            for i, name in enumerate(declared):
                for other in declared[: i + 1]:
                    if coupled[place[name], place[other]]:
                        pair = f'"{name}"' if name == other else f'"{other}" and "{name}" together'
                        declared_so = "was" if name == other else "were"
                        raise InputError(
                            f"the right-hand side is not linear in {pair}, "
                            f"which {declared_so} declared so",
                            expected="df/dp that depends on none of the linear parameters",
                            remedy="linear=None: they are found from the traced function",
                        )
            return tuple(declared)
        chosen = [k for k in map(place.__getitem__, free) if self.used[k] and not coupled[k, k]]
        while chosen:
            # greedy: the one in most products goes, until no two that are left are multiplied
            counts = coupled[np.ix_(chosen, chosen)].sum(axis=1)
            if not counts.any():
                break
            del chosen[len(chosen) - 1 - int(np.argmax(counts[::-1]))]
        return tuple(self.names[k] for k in chosen)

    @cached_property
    def _made(self) -> dict[Any, PointValues]:
        return {}

    def at_points(self, linear: Sequence[int], others: Sequence[int], count: int) -> PointValues:
        """Return f and its derivatives in some parameters, as functions of ``count`` points."""
        # many experiments have as many points
        key = (tuple(linear), tuple(others), count)
        if key not in self._made:
            self._made[key] = PointValues(self, *key)
        return self._made[key]


@dataclass(frozen=True, eq=False, repr=False)
class PointValues:
    """f at Q points: the values, and derivatives in parameters.

    Points are given as ``(t [1, Q], u [n, Q], z, dz/dt, d2z/dt2 [n d, Q], before [d, Q], first)``:
    ``before`` is 1 where a delay reaches behind ``first``, and 0 elsewhere.

    Attributes
    ----------
    rhs : SeparableRhs
    linear, others : tuple of int
        Parameters in which f is linear, and others.
    count : int
        Q.
    """

    rhs: SeparableRhs
    linear: tuple[int, ...]
    others: tuple[int, ...]
    count: int

    def _derivative(self, places: Sequence[int]) -> Any:
        return casadi.jacobian(self.rhs.value, self.rhs.symbols["p"])[:, list(places)]

    @cached_property
    def pattern_linear(self) -> tuple[Indices, Indices]:
        """Rows and columns of the entries of ``theta``."""
        return _pattern(self._derivative(self.linear))

    @cached_property
    def pattern_others(self) -> tuple[Indices, Indices]:
        """Rows and columns of the entries of ``by_others``."""
        return _pattern(self._derivative(self.others))

    @cached_property
    def _theta(self) -> Any:
        return self._mapped("theta", [self.rhs.value, _entries(self._derivative(self.linear))])

    @cached_property
    def _others(self) -> Any:
        return self._mapped("others", [self.rhs.value, _entries(self._derivative(self.others))])

    @cached_property
    def _second(self) -> tuple[Called, tuple[Indices, Indices], tuple[int, int]]:
        """The function, and rows, columns and shape of the matrix whose entries it returns."""
        symbols, w = self.rhs.symbols, casadi.SX.sym("w", self.rhs.value.numel())
        # w^T df/dp, and its Jacobian: second derivatives of w . f without those of each component
        by_p = casadi.jtimes(self.rhs.value, symbols["p"], w, True)
        whole = casadi.jacobian(by_p, symbols["p"])
        rows, columns = [*self.linear, *self.others], [*self.others]
        block = whole[rows, columns] if columns else casadi.SX(len(rows), 0)
        inputs = [*symbols.values(), w]
        # most parameters never meet: the sum over points is of entries
        function = casadi.Function("second", inputs, [_entries(block)])
        called = Called(function.map("second_sum", "serial", self.count, _shared(symbols), [0]))
        return called, _pattern(block), block.shape

    def _mapped(self, name: str, outputs: list[Any]) -> Called:
        symbols = self.rhs.symbols
        function = casadi.Function(name, list(symbols.values()), outputs)
        return Called(function.map(f"{name}_all", "serial", self.count, _shared(symbols), []))

    def theta(self, points: Any, p: Array) -> tuple[Array, Array]:
        """Return f [r, Q] and the entries of df/dp_linear [entries, Q]."""
        value, entries = self._theta(*points, p, p)
        return value, entries

    def by_others(self, points: Any, p: Array) -> tuple[Array, Array]:
        """Return f [r, Q] and the entries of df/dp_others [entries, Q]."""
        value, entries = self._others(*points, p, p)
        return value, entries

    def second(self, points: Any, p: Array, w: Array) -> Array:
        """Return the sum over all points of d2(w . f)/dp d others, linear rows first."""
        function, pattern, shape = self._second
        matrix = np.zeros(shape)
        matrix[pattern] = function(*points, p, p, columnwise(w))[0][:, 0]
        return matrix

    @staticmethod
    def prepared(points: Sequence[Array]) -> list[Array]:
        """Return points as the functions take them."""
        return [columnwise(array) for array in points]


class Called:
    """A function of CasADi, called with arrays: its own matrices are lists of numbers on the way.

    Examples
    --------
    >>> x = casadi.SX.sym("x", 2)
    >>> Called(casadi.Function("f", [x], [casadi.densify(x * x[0])]))(np.array([2.0, 3.0]))[0]
    array([[4.],
           [6.]])
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._shapes = [function.size_out(k) for k in range(function.n_out())]
        self._buffer, self._call = function.buffer()

    def __call__(self, *inputs: Array) -> list[Array]:
        """Return arrays [rows, columns]; inputs are columns one after another, contiguous."""
        # as CasADi has them: columns one after another
        results = [np.zeros((columns, rows)) for rows, columns in self._shapes]
        for k, array in enumerate(inputs):
            self._buffer.set_arg(k, array.data)
        for k, array in enumerate(results):
            self._buffer.set_res(k, array.data)
        self._call()
        return [array.T for array in results]


def columnwise(array: Array) -> Array:
    """Return an array [rows, columns], or [rows], as its columns one after another."""
    return np.ascontiguousarray(array.T, dtype=float)


def separable_rates(
    rates: Callable[..., Any], size: int, parameters: Sequence[str], count: int
) -> SeparableRhs:
    """Return rates [r] of (t, u [n], p) that are traced for this alone, without a model in C."""
    tracer = Tracer(size, admit_shapes(list(parameters)), MPI.COMM_SELF)
    return separable(tracer.graph(rates, "rates", (count,)), tracer.shapes.names)


def separable(graph: Graph, names: tuple[str, ...]) -> SeparableRhs:
    """Return the right-hand side of a traced model."""
    small = graph if graph.expanded else expand(graph)
    z = casadi.SX.sym("z", 0)
    rates = casadi.Function("f", [small.t, small.u, z, small.p], [small.value])
    return SeparableRhs(names, int(small.u.numel()), rates)


def separable_delayed(graphs: DelayedParts, names: tuple[str, ...]) -> SeparableRhs:
    """Return the right-hand side of a traced delay equation."""
    f, lags, past = (graph if graph.expanded else expand(graph) for graph in graphs)
    n, d = int(past.value.numel()), int(lags.value.numel())
    t, u, z = casadi.SX.sym("t"), casadi.SX.sym("u", n), casadi.SX.sym("z", n * d)
    p = casadi.SX.sym("p", len(names))
    whole = casadi.Function("f", [f.u, f.p], [f.value])
    rates = whole(casadi.vertcat(t, u, z), p)[1 : n + 1]
    delayed = DelayedGraphs(
        d,
        casadi.Function("lags", [lags.p], [lags.value]),
        casadi.Function("past", [past.t, past.p], [past.value]),
    )
    return SeparableRhs(names, n, casadi.Function("rates", [t, u, z, p], [rates]), delayed)


def _shared(symbols: dict[str, Any]) -> list[int]:
    """Return the numbers of those inputs that are the same at all points."""
    return [k for k, name in enumerate(symbols) if name in ("first", "held", "p")]


def _pattern(matrix: Any) -> tuple[Indices, Indices]:
    rows, columns = matrix.sparsity().get_triplet()
    return np.array(rows, dtype=np.intp), np.array(columns, dtype=np.intp)


def _entries(matrix: Any) -> Any:
    """Return the entries of a sparse matrix as a dense column, in the order of its pattern."""
    entries = matrix.nonzeros()
    return casadi.vertcat(*entries) if entries else casadi.SX(0, 1)
