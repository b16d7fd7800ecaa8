"""The matrix of a partial derivative at one point after the other."""

from __future__ import annotations

from typing import Any

from petsc4py import PETSc

from daeosens.problem.matrices import Derivative


class PointMatrix:
    """One matrix, made at the first point where it is wanted, and filled at each.

    Parameters
    ----------
    derivative : Derivative
        Says how.
    """

    def __init__(self, derivative: Derivative) -> None:
        self._derivative = derivative
        self._matrix: PETSc.Mat | None = None

    def at(self, *point: Any) -> PETSc.Mat:
        """Return it with the values at a point."""
        if self._matrix is None:
            self._matrix = self._derivative.create(*point)
        self._derivative.fill(*point, self._matrix)
        return self._matrix
