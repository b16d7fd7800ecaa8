"""Sweeps back in C of costs as they are lowered."""

from __future__ import annotations

from collections.abc import Sequence

from petsc4py import PETSc

from daeosens.costs.cost import Cost
from daeosens.derivatives.engines.request import of_costs
from daeosens.derivatives.sweeps.backward import swept_in_c
from daeosens.timestepping import Trajectory


def in_c(
    run: Trajectory, costs: Sequence[Cost]
) -> tuple[list[PETSc.Vec], list[PETSc.Vec], list[float]] | None:
    """Return the adjoints and values of lowered costs by the sweep in C, or None."""
    sweep = swept_in_c(run, of_costs(run, costs))
    return None if isinstance(sweep, str) else (*sweep.rows(), sweep.values())
