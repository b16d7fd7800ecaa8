"""Theta steps on grids, carried back without Python where compiled points are linearised."""

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
from daeosens.petsc._kernels import pull_theta_steps
from daeosens.petsc.vectors import scatter
from daeosens.problem.problem import Problem


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
        if not pull_theta_steps(
            self._solver, times, sizes, states, p, *method, lam, self._work, sums
        ):
            return False
        tolerances: Any = self._solver.getTolerances()
        add_remainder(len(sizes) * tolerances[0])  # at most: nobody looks at each solve
        if sums.size:
            if mu.comm.size > 1:
                sums = mu.comm.tompi4py().allreduce(sums)
            mu.axpy(1.0, scatter(sums, self.problem.create_parameters()))
        return True
