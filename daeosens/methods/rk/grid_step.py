"""Runge-Kutta steps on grids, carried back by one pass over the vectors for each stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.petsc._kernels import vec_to_fill
from daeosens.petsc.vectors import Array, scatter
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
        stencil.pull_steps(times, sizes, p, stages, lam, self._work, *tableau, sums)
        if sums.size:
            if mu.comm.size > 1:
                sums = mu.comm.tompi4py().allreduce(sums)
            mu.axpy(1.0, scatter(sums, self.problem.create_parameters()))
