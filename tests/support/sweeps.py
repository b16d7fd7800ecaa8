"""Sweeps back by one engine or the other, whatever would be chosen."""

from __future__ import annotations

from collections.abc import Sequence

from petsc4py import PETSc

from daeosens.costs.cost import Cost
from daeosens.derivatives.engines.request import of_costs
from daeosens.derivatives.engines.vectors.adjoint import VectorSweep
from daeosens.derivatives.sweeps.backward import swept_in_c
from daeosens.timestepping.trajectory.trajectory import Trajectory


def by_vectors(run: Trajectory, costs: Sequence[Cost]) -> tuple[list[PETSc.Vec], list[PETSc.Vec]]:
    """Return the adjoints lam_0 [n] and mu [m] of lowered costs by the step maps."""
    sweep = VectorSweep(run, of_costs(run, costs))
    sweep.observe(run.n_steps)
    sweep.back(0, run.n_steps)
    return sweep.rows()


def in_c(
    run: Trajectory, costs: Sequence[Cost]
) -> tuple[list[PETSc.Vec], list[PETSc.Vec], list[float]] | None:
    """Return the adjoints and values of lowered costs by the sweep in C, or None."""
    sweep = swept_in_c(run, of_costs(run, costs))
    return None if sweep is None else (*sweep.rows(), sweep.values())
