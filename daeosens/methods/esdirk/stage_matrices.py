"""The matrices of the implicit stages of a step, with room for their factors."""

from __future__ import annotations

from daeosens.costs.cost import Point
from daeosens.methods.factored_matrix import FactoredMatrix, MakeSolver
from daeosens.problem.implicit_matrix import SystemMatrix
from daeosens.problem.problem import Problem


class StageMatrices:
    """M/(h gamma) - f_u at the stages of one step after the other.

    Parameters
    ----------
    problem : Problem
        M u' = f(t, u, p) with a constant M.
    gamma : float
        The diagonal of the coefficients.
    make_solver : callable
        Makes the linear solver of a matrix.
    """

    def __init__(self, problem: Problem, gamma: float, make_solver: MakeSolver) -> None:
        self._problem, self._gamma, self._make_solver = problem, gamma, make_solver
        self._zero = problem.create_state()
        self._slots: list[FactoredMatrix] = []

    def at(self, number: int, point: Point, h: float) -> FactoredMatrix:
        """Return the matrix at a point, in the room with this number, or the next one."""
        problem, (t, u, p) = self._problem, point
        if problem.residual_u.constant:
            number = 0  # all stages have one matrix
        if number == len(self._slots):
            system = SystemMatrix(problem.residual_u, problem.residual_udot, t, u, self._zero, p)
            self._slots.append(FactoredMatrix(system, self._make_solver))
        self._slots[number].fill(t, u, self._zero, p, 1.0 / (h * self._gamma))
        return self._slots[number]
