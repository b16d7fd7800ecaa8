"""Right-hand sides as functions of their parameters, evaluated at many given states at once.

Where the states are known, as interpolants of measurements, f(t, u, p) is a function of p alone:
linear in some parameters, not in others.  Which is read off the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from daeosens.errors import InputError, nearest
from daeosens.petsc.vectors import Array
from daeosens.tracing.casadi import casadi
from daeosens.tracing.derivatives import Graph, expand
from daeosens.tracing.named_parameters import Shapes
from daeosens.tracing.tracer import Tracer

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False, repr=False)
class SeparableRhs:
    """f(t, u, z, p) [n] with u(t) and delayed states z = u(t - tau) given, a function of p [m].

    Attributes
    ----------
    names : tuple of str [m]
        The parameters.
    n : int
        Number of unknowns.
    delays : tuple of int [d]
        Which parameters are the delays.
    graph : Graph
        f as scalars; its ``u`` is u, and behind it the z of each delay [n (1 + d)].
    """

    names: tuple[str, ...]
    n: int
    delays: tuple[int, ...]
    graph: Graph

    @cached_property
    def symbols(self) -> dict[str, Any]:
        """The inputs: t, u, the z [n d] with two derivatives, the p they were taken at, and p."""
        sizes = {"t": 1, "u": self.n}
        sizes |= {f"z{k}": self.n * len(self.delays) for k in range(3)}
        sizes |= {"held": len(self.names), "p": len(self.names)}
        return {name: casadi.SX.sym(name, size) for name, size in sizes.items()}

    @cached_property
    def value(self) -> Any:
        """F as a graph of ``symbols``.

        u(t - tau) is its Taylor polynomial around the delay at which it was taken, so that two
        derivatives in the delay are exact.
        """
        symbols = self.symbols
        late: list[Any] = []
        for k, place in enumerate(self.delays):
            longer = symbols["p"][place] - symbols["held"][place]
            z0, z1, z2 = (symbols[f"z{j}"][k * self.n : (k + 1) * self.n] for j in range(3))
            late.append(z0 - z1 * longer + 0.5 * z2 * longer**2)
        graph = self.graph
        f = casadi.Function("f", [graph.t, graph.u, graph.p], [graph.value])
        return casadi.densify(f(symbols["t"], casadi.vertcat(symbols["u"], *late), symbols["p"]))

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
                        raise InputError(
                            f"the right-hand side is not linear in {pair}, which were declared so",
                            expected="df/dp that depends on none of the linear parameters",
                            remedy="linear=None: they are found from the traced function",
                        )
            return tuple(declared)
        chosen = [k for k in map(place.__getitem__, free) if self.used[k] and not coupled[k, k]]
        while chosen:
            counts = coupled[np.ix_(chosen, chosen)].sum(axis=1)
            if not counts.any():
                break
            del chosen[len(chosen) - 1 - int(np.argmax(counts[::-1]))]
        return tuple(self.names[k] for k in chosen)

    def at_points(self, linear: Sequence[int], others: Sequence[int], count: int) -> PointValues:
        """Return f and its derivatives in some parameters, as functions of ``count`` points."""
        return PointValues(self, tuple(linear), tuple(others), count)


@dataclass(frozen=True, eq=False, repr=False)
class PointValues:
    """f at Q points: the values, and derivatives in parameters.

    Points are given as ``(t [1, Q], u [n, Q], z, dz/dt, d2z/dt2 [n d, Q])``.

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
    def _second(self) -> Any:
        symbols, w = self.rhs.symbols, casadi.SX.sym("w", self.rhs.n)
        by_p = casadi.jtimes(self.rhs.value, symbols["p"], w, True)
        whole = casadi.jacobian(by_p, symbols["p"])
        rows, columns = [*self.linear, *self.others], [*self.others]
        block = casadi.densify(whole[rows, columns]) if columns else casadi.SX(len(rows), 0)
        inputs = [*symbols.values(), w]
        function = casadi.Function("second", inputs, [block])
        names = [*symbols]
        kept = [names.index("held"), names.index("p")]
        return function.map("second_sum", "serial", self.count, kept, [0])

    def _mapped(self, name: str, outputs: list[Any]) -> Any:
        symbols = self.rhs.symbols
        function = casadi.Function(name, list(symbols.values()), outputs)
        names = [*symbols]
        kept = [names.index("held"), names.index("p")]
        return function.map(f"{name}_all", "serial", self.count, kept, [])

    def theta(self, points: Any, p: Array) -> tuple[Array, Array]:
        """Return f [n, Q] and the entries of df/dp_linear [entries, Q]."""
        value, entries = self._theta(*points, p, p)
        return value.full(), entries.full()

    def by_others(self, points: Any, p: Array) -> tuple[Array, Array]:
        """Return f [n, Q] and the entries of df/dp_others [entries, Q]."""
        value, entries = self._others(*points, p, p)
        return value.full(), entries.full()

    def second(self, points: Any, p: Array, w: Array) -> Array:
        """Return the sum over all points of d2(w . f)/dp d others, linear rows first."""
        return self._second(*points, p, p, w).full()

    @staticmethod
    def prepared(points: Sequence[Array]) -> Any:
        """Return points as the functions take them fastest."""
        return [casadi.DM(array) for array in points]


def separable(graph: Graph, names: tuple[str, ...]) -> SeparableRhs:
    """Return the right-hand side of a traced model."""
    small = graph if graph.expanded else expand(graph)
    return SeparableRhs(names, int(graph.u.numel()), (), small)


def separable_delayed(
    rhs: Callable[..., Any], size: int, shapes: Shapes, delays: Sequence[str]
) -> SeparableRhs:
    """Trace ``rhs(t, u, z, p)``, in which z [d, n] holds u(t - tau) for each delay."""
    count = len(delays)
    places = [shapes.names.index(name) for name in delays]
    tracer = Tracer(size * (1 + count), shapes, MPI.COMM_SELF)

    def whole(t: Any, states: Any, p: Any) -> Any:
        return rhs(t, states[:size], states[size:].reshape(count, size), p)

    graph = expand(tracer.graph(whole, "rhs", (size,)))
    return SeparableRhs(shapes.names, size, tuple(places), graph)


def _pattern(matrix: Any) -> tuple[Indices, Indices]:
    rows, columns = matrix.sparsity().get_triplet()
    return np.array(rows, dtype=np.intp), np.array(columns, dtype=np.intp)


def _entries(matrix: Any) -> Any:
    """Return the entries of a sparse matrix as a dense column, in the order of its pattern."""
    entries = matrix.nonzeros()
    return casadi.vertcat(*entries) if entries else casadi.SX(0, 1)
