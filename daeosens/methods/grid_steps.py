"""Steps on grids carried back in C: explicit ones by passes over vectors, theta steps by solves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.methods.factored_matrix import MakeSolver
from daeosens.methods.linear_solver import refuse_without_transpose
from daeosens.methods.remainders import add_remainder
from daeosens.petsc._kernels import pull_theta_steps, vec_to_fill
from daeosens.petsc.vectors import Array, scatter, summed
from daeosens.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class GridStepAdjoint:
    """The transposed steps of a method whose stages each read the rate of the one before only.

    Attributes
    ----------
    problem : Problem
        With the functions of a grid's points.
    below, b, c : array [s]
        Of the tableau; ``below`` is a_{i,i-1}, and first 0.
    """

    problem: Problem
    below: Array
    b: Array
    c: Array

    @cached_property
    def _work(self) -> list[PETSc.Vec]:
        if self.problem.stencil is not None and self.problem.stencil.chains:
            return []
        return [vec_to_fill(self.problem.state) for _ in self.b[1:]]

    def pull(
        self,
        times: Sequence[float],
        sizes: Sequence[float],
        stages: Sequence[Sequence[PETSc.Vec]],
        p: Any,
        lam: PETSc.Vec,
        mu: PETSc.Vec,
    ) -> None:
        """Carry an adjoint back over steps.

        Parameters
        ----------
        times, sizes : sequence of float
            Their starts and sizes.
        stages : sequence of sequences of s Vec [n]
            The stages of each.
        p : array [m]
            Parameters.
        lam, mu : Vec [n], Vec [m]
            Adjoints of the state (overwritten) and of the parameters (added to).
        """
        stencil = self.problem.stencil
        assert stencil is not None
        sums = np.zeros(self.problem.n_parameters)
        tableau = (self.below, self.b, self.c)
        read = self.problem.read_by_points(p)
        stencil.pull_steps(times, sizes, read, stages, lam, self._work, *tableau, sums)
        _add_sums(self.problem, sums, mu)


@dataclass(frozen=True, eq=False)
class ThetaGridStepAdjoint:
    """The transposed steps of a theta method that are linearised at the states they end with.

    Attributes
    ----------
    problem : Problem
        With the functions of a grid's points, and products of their derivatives.
    theta : float
        Weight of the end of the step.
    endpoint : bool
        Endpoint form; otherwise theta is 1.
    make_solver : callable
        Makes the linear solver of a matrix.
    """

    problem: Problem
    theta: float
    endpoint: bool
    make_solver: MakeSolver

    @cached_property
    def _work(self) -> PETSc.Vec:
        return self.problem.create_state()

    @cached_property
    def _solver(self) -> PETSc.KSP:
        point = (0.0, self._work, self._work, None)  # the matrix of products is the same for all
        solver = self.make_solver(self.problem.residual_u.create(*point))
        refuse_without_transpose(solver)
        return solver

    def pull(
        self,
        times: Sequence[float],
        sizes: Sequence[float],
        states: Sequence[PETSc.Vec],
        p: Any,
        lam: PETSc.Vec,
        mu: PETSc.Vec,
    ) -> bool:
        """Carry an adjoint back over steps; return whether the linear solver converged.

        Parameters
        ----------
        times, sizes : sequence of float
            Their starts and sizes.
        states : sequence of Vec [n]
            Those before each step, and the last one.
        p : array [m]
            Parameters.
        lam, mu : Vec [n], Vec [m]
            Adjoints of the state (overwritten) and of the parameters (added to).
        """
        sums = np.zeros(self.problem.n_parameters)
        method = (self.theta, self.endpoint)
        read = self.problem.read_by_points(p)
        if not pull_theta_steps(
            self._solver, times, sizes, states, read, *method, lam, self._work, sums
        ):
            return False
        tolerances: Any = self._solver.getTolerances()
        add_remainder(len(sizes) * tolerances[0])  # at most: nobody looks at each solve
        _add_sums(self.problem, sums, mu)
        return True


def _add_sums(problem: Problem, sums: Array, mu: PETSc.Vec) -> None:
    """Add the sums over each rank's points to the adjoint of the parameters."""
    if sums.size:
        mu.axpy(1.0, scatter(summed(sums, mu.comm), problem.create_parameters()))
