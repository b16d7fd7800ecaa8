"""What a stage has worked out about a problem and needs again, for as long as the problem lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from daeosens.problem.problem import Problem

Value = TypeVar("Value")


class ProblemCache(Generic[Value]):
    """One value for each problem, made when it is asked for first.

    The module that defines the cache owns it; nobody else writes to it.  A value dies with its
    problem, and a changed copy of a problem (``dataclasses.replace``) starts without.

    Parameters
    ----------
    make : callable
        Returns the value of a problem that has none yet: an empty list or dict, usually.
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make

    def of(self, problem: Problem) -> Value:
        """Return the value of a problem."""
        if self not in problem.cached:
            problem.cached[self] = self._make()
        return cast("Value", problem.cached[self])
