"""All derivatives of a function of a grid's points, each gathered at one point.

f at the point s reads u at s + o for some offsets o.  So the transposed product at j sums over
those s = j - o that read j: (f_u^T w)_j = sum_o f_{u_o}(s)^T w_s, where f_{u_o}(s) may read u twice
as far away.  No point writes to another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from daeosens.problem.grids.stencil_matrix import Entry
from daeosens.tracing.casadi import casadi
from daeosens.tracing.decisions import decisions
from daeosens.tracing.stencil.differences import Offset
from daeosens.tracing.stencil.point import PointGraph

FIELDS, ALONG = -1, -2
"""In the place of a vector's number: the parameter fields, and a direction in them."""


@dataclass(frozen=True)
class Read:
    """One number that a function reads: of which vector, which unknown, at which offset.

    Parameter fields are no vectors: their values follow the numbers in "p", those of a direction in
    them the numbers in "dp", field by field with points around the box (``FieldLayout``).
    """

    vector: int
    component: int
    offset: Offset


@dataclass(frozen=True, eq=False)
class PointFunction:
    """What is computed at one point from vectors, with inputs and outputs by name.

    Attributes
    ----------
    name : str
    function : casadi.Function
        Inputs "t", "p", "dp", "x" and "read", the numbers of ``reads``; outputs "out", values at
        the point, and "sums", numbers to be summed over all points.
    reads : tuple of Read
    vectors : int
        How many vectors are given.
    added : bool
        Whether the values may be added to another vector's.
    around : int
        How many points are around the box in parameter fields.
    """

    name: str
    function: Any
    reads: tuple[Read, ...]
    vectors: int
    added: bool = False
    around: int = 0

    @property
    def n_out(self) -> int:
        """How many values there are at each point."""
        return int(self.function.numel_out(0))

    @property
    def n_sums(self) -> int:
        """How many sums over the points there are."""
        return int(self.function.numel_out(1))

    def widths(self, vector: int) -> tuple[int, ...]:
        """Return how far a vector, or fields, are read along each dimension."""
        offsets = [read.offset for read in self.reads if read.vector == vector]
        axes = zip(*offsets, strict=True) if offsets else ()
        return tuple(max(map(abs, along)) for along in axes)


class StencilDerivatives:
    """The functions that a problem needs, from f at a point.

    Parameters
    ----------
    graph : PointGraph
        f.
    spacing : sequence of float
        Distance of neighbouring points.
    box : sequence of (float, float)
        First and last coordinate along each dimension.
    periodic : sequence of bool
        Along each dimension; otherwise there are no points beyond the edge, and w is zero there.
    """

    def __init__(
        self,
        graph: PointGraph,
        spacing: Sequence[float],
        box: Sequence[tuple[float, float]],
        *,
        periodic: Sequence[bool],
    ) -> None:
        self._graph = graph
        self._spacing = spacing
        self._box = box
        self._periodic = periodic
        self._vectors: list[dict[Offset, Any]] = [dict(graph.u)]
        self._fields: dict[int, dict[Offset, Any]] = {FIELDS: dict(graph.fields), ALONG: {}}

    def functions(self) -> list[PointFunction]:
        """Return f, its products and second-order products."""
        graph = self._graph
        f, has_fields = graph.value, self._has_fields
        result = [self._function("rhs", f, added=True)]
        result.append(self._function("push", self._along(f, 1), vectors=2, added=True))
        # f_u^T w as terms, so that its derivatives along a direction (second order) are those of
        # the terms
        terms = self._pulled(f, w=1)
        pulled = _total(terms)
        result.append(self._function("pull", pulled, vectors=2, added=True))
        by_p = casadi.jtimes(f, graph.p, self._symbol(1, self._centre), True)
        # f_q^T w, of fields q
        of_fields = self._pulled(f, w=1, fields=True) if has_fields else []
        if graph.p.numel() or has_fields:
            if not has_fields:
                sums = self._at_neighbours(by_p)
                result.append(self._function("pull_all", pulled, sums, vectors=2, added=True))
            values = _total(of_fields) if has_fields else None
            result.append(self._function("pull_p", values, by_p, vectors=2))
            result.append(self._function("push_p", self._along_p(f)))
        # (f_u^T w) differentiated along (du, dp): vector 2 is du, w stays as it is
        bent = [(weight, self._change(value)) for weight, value in terms]
        result.append(self._function("hessian", _total(bent), self._change(by_p), vectors=3))
        if has_fields:
            bent = [(weight, self._change(value)) for weight, value in of_fields]
            result.append(self._function("hessian_fields", _total(bent), vectors=3))
        if not self.autonomous:
            result += self._in_time(f)
        return result

    def jacobian(self) -> tuple[PointFunction, list[Entry]]:
        """Return the entries of f_u in the rows of a point, its diagonal among them, and places."""
        graph = self._graph
        entries: list[Entry] = []
        values: list[Any] = []
        for offset in dict.fromkeys([self._centre, *graph.u]):
            block = casadi.jacobian(graph.value, self._symbol(0, offset))
            for row, column in np.ndindex(*block.shape):
                # an implicit step adds to the diagonal
                if block.has_nz(row, column) or (row == column and offset == self._centre):
                    entries.append((row, column, offset))
                    values.append(block[row, column])
        return self._function("jacobian", casadi.vertcat(*values)), entries

    def has_none_of(self, row: int, columns: Sequence[int]) -> bool:
        """Whether a row of f contains none of some unknowns, anywhere around the point."""
        value = self._graph.value[row]
        symbols = [
            self._symbol(0, offset)[column] for offset in self._graph.u for column in columns
        ]
        return not casadi.depends_on(value, casadi.vertcat(*symbols))

    def branches(self) -> tuple[PointFunction, list[bool], list[bool]] | None:
        """Return what decides at a point, and which of it as a whole number; None if nothing.

        And which of it moves: depends on more than the time and the place.
        """
        graph = self._graph
        symbols = [graph.t, graph.p, graph.x, *graph.u.values(), *graph.fields.values()]
        decided = decisions(symbols, graph.value)
        if not decided:
            return None
        values = casadi.vertcat(*(value for value, _ in decided))
        moving = casadi.veccat(graph.p, *graph.u.values(), *graph.fields.values())
        moves = [casadi.depends_on(value, moving) for value, _ in decided]
        return self._function("branches", values), [whole for _, whole in decided], moves

    def one_sided(self, entries: Sequence[Entry]) -> bool:
        """Whether an unknown depends on itself on opposite sides in different ways: advection."""
        value = self._graph.value
        for row, column, offset in entries:
            back = tuple(-step for step in offset)
            if row != column or offset <= back or back not in self._graph.u:
                continue
            here, there = (
                casadi.jacobian(value[row], self._symbol(0, neighbour)[row])
                for neighbour in (offset, back)
            )
            alike = casadi.simplify(here - there).is_zero()
            # diffusion by a field: what one point takes from the other, that one takes from it
            if not alike and not self._equal(here, self._shifted(there, offset)):
                return True
        return False

    def _equal(self, first: Any, second: Any) -> bool:
        """Whether two expressions of a point have the same values, at one far from all edges."""
        difference = casadi.vertcat(first - second, first)
        symbols = casadi.symvar(difference)
        graph = self._graph
        middle = [0.5 * (start + end) for start, end in self._box]
        at = {x.element_hash(): m for x, m in zip(casadi.vertsplit(graph.x), middle, strict=True)}
        drawn = np.random.default_rng(0)
        numbers = [at.get(symbol.element_hash(), drawn.uniform(0.5, 1.5)) for symbol in symbols]
        change, size = casadi.Function("at", symbols, [difference])(*numbers).full().ravel()
        return bool(abs(change) <= 1e-12 * abs(size))

    @property
    def linear(self) -> bool:
        """Whether f_u depends on parameters and coordinates alone: f is affine in u."""
        graph = self._graph
        unknowns = casadi.vertcat(*graph.u.values())
        jacobian = casadi.jacobian(graph.value, unknowns)
        return not casadi.depends_on(jacobian, casadi.vertcat(graph.t, unknowns))

    @property
    def autonomous(self) -> bool:
        """Whether f does not depend on t."""
        return not casadi.depends_on(self._graph.value, self._graph.t)

    @cached_property
    def _dp(self) -> Any:
        return casadi.SX.sym("dp", self._graph.p.numel())

    @property
    def _has_fields(self) -> bool:
        """Whether f reads fields that are parameters."""
        return self._graph.parameter_fields > 0 and len(self._graph.fields) > 0

    @property
    def _centre(self) -> Offset:
        return (0,) * len(self._spacing)

    def _symbol(self, vector: int, offset: Offset) -> Any:
        """Return the unknowns [dof] of a vector at an offset; vector 0 is u."""
        while len(self._vectors) <= vector:
            self._vectors.append({})
        known = self._vectors[vector]
        if offset not in known:
            known[offset] = casadi.SX.sym(f"v{vector}_{len(known)}", self._graph.value.numel())
        return known[offset]

    def _along(self, value: Any, vector: int) -> Any:
        """Return the derivative of what reads u along the direction that is a vector."""
        self._symbol(0, self._centre)
        offsets = list(self._vectors[0])
        inputs = casadi.vertcat(*(self._symbol(0, offset) for offset in offsets))
        along = casadi.vertcat(*(self._symbol(vector, offset) for offset in offsets))
        return casadi.jtimes(value, inputs, along)

    def _along_p(self, value: Any) -> Any:
        """Return the derivative of what reads parameters along dp, numbers and fields."""
        result = casadi.jtimes(value, self._graph.p, self._dp)
        if self._has_fields:
            read, count = self._fields[FIELDS], self._graph.parameter_fields
            inputs = casadi.vertcat(*(values[:count] for values in read.values()))
            along = casadi.vertcat(*(self._field(ALONG, offset) for offset in read))
            result = result + casadi.jtimes(value, inputs, along)
        return result

    def _field(self, which: int, offset: Offset) -> Any:
        """Return the fields, or a direction in them, at an offset."""
        known = self._fields[which]
        if offset not in known:
            count = self._graph.parameter_fields
            if which == FIELDS:  # what is known is read like them
                count = next(iter(self._graph.fields.values())).numel()
            known[offset] = casadi.SX.sym(f"q{-which}_{len(known)}", count)
        return known[offset]

    def _change(self, value: Any) -> Any:
        """Return the derivative of what reads u and p along vector 2 and dp."""
        return self._along(value, 2) + self._along_p(value)

    def _pulled(self, f: Any, w: int, *, fields: bool = False) -> list[tuple[Any, Any]]:
        """Return what adds up to f_u^T w at the centre, or f_q^T w, as ``_total`` takes it."""
        graph = self._graph
        terms: list[tuple[Any, Any]] = []
        for offset, unknowns in (graph.fields if fields else graph.u).items():
            # The point that reads u(j) at the offset o is s = j - o: f_u at s, and w at s.
            back = tuple(-step for step in offset)
            by = unknowns[: graph.parameter_fields] if fields else unknowns
            jacobian = self._shifted(casadi.jacobian(f, by), back)
            weight = self._symbol(w, back)
            known = casadi.vertcat(
                graph.x, *self._vectors[0].values(), *self._fields[FIELDS].values()
            )
            # Where s lies beyond an edge w is 0, but f_u there may be infinite, and 0 times
            # infinity no number: such terms are left out by the weight.
            closed = any(o and not wraps for o, wraps in zip(offset, self._periodic, strict=True))
            beyond = closed and casadi.depends_on(jacobian, known)
            if closed and any(self._periodic):
                # the loops go around along all dimensions where they do along one
                weight = weight * self._inside(back)
            for row in range(weight.numel()):
                term = weight[row] * jacobian[row, :].T
                terms.append((weight[row] if beyond else None, term))
        return terms

    def _inside(self, offset: Offset) -> Any:
        """Return 1 if there is a point at an offset, 0 beyond an edge that is not periodic."""
        inside: Any = 1.0
        for k, h in enumerate(self._spacing):
            if offset[k] and not self._periodic[k]:
                x, (first, last) = self._graph.x[k] + offset[k] * h, self._box[k]
                inside = inside * (x > first + 0.25 * h) * (x < last - 0.25 * h)
        return inside

    def _at_neighbours(self, by_p: Any) -> Any:
        """Return f_p^T w [m] so that its sum over all points is the same, with fewer reads.

        What is linear in u around a point, as p L u, is summed where the neighbour is: there the
        transposed product reads the same w, and u at the point alone.  Beyond the edge both are 0.
        """
        graph, centre = self._graph, self._centre
        here, weight = self._symbol(0, centre), self._symbol(1, centre)
        points = casadi.vertcat(graph.x, *self._vectors[0].values(), *self._fields[FIELDS].values())
        for offset, unknowns in graph.u.items():
            slopes = casadi.jacobian(by_p, unknowns)
            # only where the slope is w times a constant of the grid may it be read at another
            # point
            if not any(offset) or casadi.depends_on(slopes, points):
                continue
            back = self._symbol(1, tuple(-step for step in offset))
            # sum_s w(s) c u(s + o) = sum_j w(j - o) c u(j)
            moved = casadi.mtimes(casadi.substitute(slopes, weight, back), here)
            by_p = casadi.substitute(by_p, unknowns, casadi.SX.zeros(*unknowns.shape)) + moved
        return by_p

    def _shifted(self, value: Any, offset: Offset) -> Any:
        """Return what is read at another point."""
        graph = self._graph
        if not any(offset):
            return value
        moved = [self._symbol(0, _sum(place, offset)) for place in graph.u]
        moved += [self._field(FIELDS, _sum(place, offset)) for place in graph.fields]
        inputs = [graph.t, graph.p, graph.x, *graph.u.values(), *graph.fields.values()]
        function = casadi.Function("moved", inputs, [value])
        return function(graph.t, graph.p, self._coordinates(offset), *moved)

    def _coordinates(self, offset: Offset) -> Any:
        """Return those of a point at an offset: on the other side of a periodic box beyond it."""
        moved: list[Any] = []
        for k, h in enumerate(self._spacing):
            x, (first, last) = self._graph.x[k] + offset[k] * h, self._box[k]
            if self._periodic[k] and offset[k]:
                length = last - first
                # half a spacing of room, for rounding of coordinates
                x += casadi.if_else(x < first - 0.5 * h, length, 0.0)
                x -= casadi.if_else(x > last - 0.5 * h, length, 0.0)
            moved.append(x)
        return casadi.vertcat(*moved)

    def _in_time(self, f: Any) -> list[PointFunction]:
        graph = self._graph
        # f_t, and the derivatives of w^T f_t in u (pulled like f), p and t (sums)
        by_t = casadi.jtimes(f, graph.t, 1.0)
        weight = self._symbol(1, self._centre)
        sums = casadi.vertcat(
            casadi.jtimes(by_t, graph.p, weight, True),
            casadi.dot(weight, casadi.jtimes(by_t, graph.t, 1.0)),
        )
        result = [
            self._function("rhs_t", by_t),
            self._function("hessian_t", _total(self._pulled(by_t, w=1)), sums, vectors=2),
        ]
        if self._has_fields:
            of_fields = _total(self._pulled(by_t, w=1, fields=True))
            result.append(self._function("hessian_t_fields", of_fields, vectors=2))
        return result

    def _function(
        self, name: str, out: Any, sums: Any = None, *, vectors: int = 1, added: bool = False
    ) -> PointFunction:
        outputs = [
            casadi.SX(0, 1) if output is None else casadi.densify(output) for output in (out, sums)
        ]
        used = {symbol.element_hash() for symbol in casadi.symvar(casadi.vertcat(*outputs))}
        reads: list[Read] = []
        symbols: list[Any] = []
        read = [*enumerate(self._vectors[:vectors]), *self._fields.items()]
        for vector, by_offset in read:
            for offset, unknowns in by_offset.items():
                for component in range(unknowns.numel()):
                    if unknowns[component].element_hash() in used:
                        reads.append(Read(vector, component, offset))
                        symbols.append(unknowns[component])
        graph = self._graph
        function = casadi.Function(
            name,
            [graph.t, graph.p, self._dp, graph.x, casadi.vertcat(casadi.SX(0, 1), *symbols)],
            outputs,
            ["t", "p", "dp", "x", "read"],
            ["out", "sums"],
            {"cse": True},
        )
        return PointFunction(name, function, tuple(reads), vectors, added)


def _sum(first: Offset, second: Offset) -> Offset:
    return tuple(a + b for a, b in zip(first, second, strict=True))


def _total(terms: Sequence[tuple[Any, Any]]) -> Any:
    """Return the sum of terms, each with a weight or None.

    A weight is 0 where there is no point beyond the edge; derivatives need not be finite there.
    """
    return sum(
        term if weight is None else casadi.if_else(weight != 0.0, term, 0.0)
        for weight, term in terms
    )
