"""Graphs of scalars whose intervals are tight: patterns that are one function are put together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_COMMUTE = frozenset({"ADD", "MUL", "FMIN", "FMAX", "MINIMUM", "MAXIMUM", "EQ", "NE"})


# where infinite constants are compared or chosen, as np.isnan and np.where do
_TAKE_INFINITY = frozenset(
    {"INPUT", "CONST", "LT", "LE", "EQ", "NE", "FMIN", "FMAX", "MINIMUM", "MAXIMUM"}
    | {"IF_ELSE_ZERO", "SELECT"}
)


Node = tuple[Any, ...]
"""An operation and the numbers of its arguments; ``("INPUT", k)``; ``("CONST", low, high)``."""


class Nodes:
    """A graph, every node once."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.numbers: dict[Node, int] = {}

    def put(self, *node: Any) -> int:
        """Return the number of a node, which is added if it is new."""
        # a + b and b + a are one node, so that equal parts are found to be equal
        if node[0] in _COMMUTE and node[1] > node[2]:
            node = (node[0], node[2], node[1])
        if node[0] not in _TAKE_INFINITY and any(self.infinite(place) for place in node[1:]):
            return self.constant(math.nan)  # whether it is a number depends on the rest
        if node not in self.numbers:
            self.numbers[node] = len(self.nodes)
            self.nodes.append(node)
        return self.numbers[node]

    def constant(self, value: float) -> int:
        """Return the number of a constant, an interval of no width."""
        largest = float(np.finfo(float).max)
        if np.isnan(value):
            return self.put("CONST", "nan", "nan")
        # inf is the interval [largest, inf]: arithmetic on ends alone would make NaN of inf - inf
        return self.put("CONST", min(value, largest), max(value, -largest))

    def infinite(self, number: int) -> bool:
        """Whether a node is the constant inf or -inf."""
        node = self.nodes[number]
        return node[0] == "CONST" and node[1] != node[2]

    def value(self, number: int) -> float | None:
        """Return the value of a constant, None of anything else."""
        node = self.nodes[number]
        return node[1] if node[0] == "CONST" and node[1] == node[2] != "nan" else None

    def operation(self, name: str, *places: int) -> int:
        """Add an operation, or what is the same and tighter."""
        simpler = {
            "ADD": self._chosen,
            "MUL": self._product,
            "SQ": self._square,
            "POW": self._raised,
            "IF_ELSE_ZERO": self._root,
        }
        result = simpler[name](*places) if name in simpler else None
        return self.put(name, *places) if result is None else result

    def _square(self, x: int) -> int | None:
        base, exponent = self._as_power(x)
        # (x^k)^2 is one power: [-1, 2]^4 is [0, 16], a product of intervals would begin below 0
        return None if exponent == 1 else self._power(base, 2 * exponent)

    def _raised(self, x: int, y: int) -> int | None:
        exponent = self.value(y)
        if exponent is None:
            return None
        # whole powers are defined for negative bases, others are not
        whole = exponent == round(exponent)
        return self._power(x, int(exponent)) if whole else self.put("POW_REAL", x, y)

    def _as_power(self, number: int) -> tuple[int, int]:
        node = self.nodes[number]
        if node[0] == "SQ":
            return node[1], 2
        if node[0] == "POW_WHOLE":
            return node[1], int(self.nodes[node[2]][1])
        return number, 1

    def _power(self, base: int, exponent: int) -> int:
        if exponent in (1, 2):
            return base if exponent == 1 else self.put("SQ", base)
        return self.put("POW_WHOLE", base, self.constant(float(exponent)))

    def _product(self, x: int, y: int) -> int | None:
        (base, m), (other, n) = self._as_power(x), self._as_power(y)
        # x * x^-1 is not defined at 0, as x^0 is
        return self._power(base, m + n) if base == other and m > 0 and n > 0 else None

    def _chosen(self, x: int, y: int) -> int | None:
        """Put c x + not(c) y, one of them 0, together."""
        # np.where is traced to this sum; as one, its range is the hull of x and y, not their sum
        for first, second in ((self.nodes[x], self.nodes[y]), (self.nodes[y], self.nodes[x])):
            if first[0] == second[0] == "IF_ELSE_ZERO":
                condition, chosen, other = first[1], first[2], second[2]
                if self.nodes[second[1]] == ("NOT", condition):
                    return self._where(condition, chosen, other)
        return None

    def _where(self, condition: int, chosen: int, other: int) -> int:
        """Put a choice: some are maxima, minima or sizes, which are continuous."""
        node = self.nodes[condition]
        continuous = self._continuous(node, chosen, other)
        return self.put("SELECT", condition, chosen, other) if continuous is None else continuous

    def _continuous(self, condition: Node, chosen: int, other: int) -> int | None:
        if condition[0] not in ("LT", "LE"):
            return None
        less, more = int(condition[1]), int(condition[2])
        extremum = self._extremum(less, more, chosen, other)
        if extremum is None and self.constant(0.0) in (less, more):
            return self._size(less, more, chosen, other)
        return extremum

    def finish(self) -> None:
        """Make choices between something and 0 maxima and minima, where they are some."""
        zero = self.constant(0.0)
        for number, node in enumerate(list(self.nodes)):
            if node[0] == "IF_ELSE_ZERO":
                condition, chosen, other = self.nodes[int(node[1])], int(node[2]), zero
                if condition[0] == "NOT":
                    condition, chosen, other = self.nodes[int(condition[1])], zero, chosen
                better = self._continuous(condition, chosen, other)
                if better is not None:
                    self.nodes[number] = self.nodes[better]

    def _extremum(self, less: int, more: int, chosen: int, other: int) -> int | None:
        if {chosen, other} == {less, more}:
            # a < b ? b : a is a maximum, which is continuous: no box has to be split at a = b
            return self._larger(less, more) if chosen == more else self._smaller(less, more)
        # NaN is handed on by a third choice: x < y ? y : (y <= x ? x : x + y)
        handed = self.nodes[other]
        opposite = self.numbers.get(("LE", more, less))
        chooses = handed[0] in ("SELECT", "IF_ELSE_ZERO") and handed[1:3] == (opposite, less)
        return self._larger(less, more) if chosen == more and chooses else None

    def _larger(self, x: int, y: int) -> int:
        negative = self.numbers.get(("NEG", x)) == y or self.numbers.get(("NEG", y)) == x
        return self.put("FABS", x) if negative else self.put("MAXIMUM", x, y)

    def _smaller(self, x: int, y: int) -> int:
        largest = self._larger(x, y)
        size = self.nodes[largest][0] == "FABS"
        return self.put("NEG", largest) if size else self.put("MINIMUM", x, y)

    def _size(self, less: int, more: int, chosen: int, other: int) -> int | None:
        """Put x < 0 ? -x : x and the like, -|x| too."""
        zero = self.constant(0.0)
        x = more if less == zero else less
        if {chosen, other} != {x, self.numbers.get(("NEG", x))}:
            return None
        size = self.put("FABS", x)
        return size if (chosen == x) == (less == zero) else self.put("NEG", size)

    def _root(self, condition: int, chosen: int) -> int | None:
        """Put x == 0 ? 0 : sqrt(x == 0 ? 1 : x) together: the root, guarded for derivatives."""
        test, root = self.nodes[condition], self.nodes[chosen]
        if test[0] != "NOT" or root[0] != "SQRT" or self.nodes[root[1]][0] != "SELECT":
            return None
        chosen_by = self.nodes[int(root[1])]
        # the guard keeps 1/(2 sqrt(x)) finite at 0; intervals need no guard, and a choice would be
        # wide
        guard, value, x = int(chosen_by[1]), int(chosen_by[2]), int(chosen_by[3])
        zero = self.constant(0.0)
        same = guard == test[1] and self.nodes[guard] == ("EQ", min(zero, x), max(zero, x))
        return self.put("SQRT", x) if same and self.value(value) == 1.0 else None
