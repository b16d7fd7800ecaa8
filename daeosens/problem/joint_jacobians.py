"""Jacobians of one callback in several arguments, which are asked for at the same points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from daeosens.petsc.vectors import Array
from daeosens.problem.automatic_derivatives import AutomaticJacobian, Differentiated
from daeosens.problem.derivative_arrays import DerivativeArray

FEW_COLUMNS = 64
"""Up to so many columns, of all Jacobians together, one evaluation takes little longer than of one.

It is the calls that take the time then, not what they do to slopes.
"""

KEPT = 3
"""Points whose Jacobians are kept: both ends of a step, and one of an event beside it."""

LARGEST = 2**17
"""Entries of a Jacobian that is kept."""

Point = list[Any]


class JointJacobians:
    """Jacobians of ``function`` in some of its arguments, at the last few points kept.

    An equation F(t, u, u', p) = 0 is linearised in u, u' and p at both ends of each step, and all
    three are asked for several times there, each by who needs it.  Nothing is kept beyond the next
    evaluation of the function itself (``emptied_by``).

    Parameters
    ----------
    function : callable
        ``function(*arguments) -> array [n]``.
    name : str
        The callback's name in messages.
    remedies : mapping of int to str
        For the numbers of the arguments, what the user can supply in the place of each Jacobian.

    Examples
    --------
    >>> import numpy as np
    >>> joint = JointJacobians(lambda x, y: x * y, "f", {0: "by_x=", 1: "by_y="})
    >>> point = np.array([2.0]), np.array([3.0])
    >>> joint.of(0)(*point), joint.of(1)(*point)
    (array([[3.]]), array([[2.]]))
    """

    def __init__(
        self, function: Callable[..., Any], name: str, remedies: Mapping[int, str]
    ) -> None:
        self._alone = {
            position: AutomaticJacobian(function, position, name, remedy)
            for position, remedy in remedies.items()
        }
        self._evaluate = Differentiated(function, name, "; ".join(remedies.values()))
        self._together = len(remedies) > 1
        self._asked: list[int] = []
        self._seeds: dict[int, tuple[slice, Array]] = {}
        self._kept: list[tuple[Point, dict[int, Array]]] = []

    def of(self, position: int) -> Callable[..., Array]:
        """Return the Jacobian in the argument of that number, as a callback."""
        return partial(self._at, position)

    def emptied_by(self, function: Callable[..., None]) -> Callable[..., None]:
        """Return what evaluates the equation itself, and keeps nothing from before that.

        Each run does, and sweeps do not: what a callback reads beside its arguments may have
        changed since the last run.
        """

        def evaluate(*arguments: Any) -> None:
            self._kept = []
            function(*arguments)

        return evaluate

    def _at(self, position: int, *arguments: Any) -> Array:
        point = [x.tobytes() if type(x) is np.ndarray else x for x in arguments]
        for other, parts in self._kept:
            if other == point:
                known = parts
                break
        else:
            known = {}
            self._kept = [*self._kept[1 - KEPT :], (point, known)]
        if position in known:
            return known[position]
        if position not in self._asked:  # runs need no derivatives by parameters
            self._asked.append(position)
            self._seeds = _seeds({k: np.size(arguments[k]) for k in self._asked})
        tried = self._together and bool(self._seeds)
        parts = self._all(arguments) if tried else {}
        # by u' there may be slopes where those by u are infinite, and 0 times these is no number
        known |= {k: matrix for k, matrix in parts.items() if np.isfinite(matrix).all()}
        if position in known:
            return known[position]
        matrix = self._alone[position](*arguments)
        # where this one fails too, it is the point that has none
        self._together &= bool(parts) or not tried
        if matrix.size <= LARGEST:
            known[position] = matrix
        return matrix

    def _all(self, arguments: tuple[Any, ...]) -> dict[int, Array]:
        """Return the Jacobians by the numbers of their arguments; none where they cannot be had.

        What fails is asked for alone then: the error of a Jacobian is for those who need it.
        """
        varying, count = list(arguments), 0
        for k, (_, seeds) in self._seeds.items():
            value = np.array(arguments[k], dtype=float)[()]
            varying[k] = DerivativeArray(value, (seeds if value.shape else seeds[0]).copy())
            count = seeds.shape[1]
        try:
            slopes = self._evaluate(varying, arguments, (count,)).slopes.reshape(-1, count)
        except Exception:  # noqa: BLE001 (asked for alone it is told)
            return {}
        return {k: slopes[:, columns] for k, (columns, _) in self._seeds.items()}


def _seeds(sizes: Mapping[int, int]) -> dict[int, tuple[slice, Array]]:
    """Return the columns of each argument, and its slopes [size, K] along all; none if many."""
    ends = np.cumsum([0, *sizes.values()]).tolist()
    if ends[-1] > FEW_COLUMNS:
        return {}
    columns = [slice(start, end) for start, end in pairwise(ends)]
    rows = np.eye(ends[-1])
    return {k: (part, rows[part]) for k, part in zip(sizes, columns, strict=True)}
