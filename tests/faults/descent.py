"""A minimisation that saves each iterate, and says so: ``python descent.py FILE``."""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from petsc4py import PETSc

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import closed

from daeosens.optimize import Result, minimize


def descend(comm: PETSc.Comm, path: str | None, pause: float = 0.0) -> Result:
    """Go down a valley by L-BFGS."""

    def valley(x: np.ndarray) -> tuple[float, np.ndarray]:
        time.sleep(pause)
        return closed.rosenbrock(x, weight=10.0)

    def say(iterate: Any, _x: PETSc.Vec) -> None:
        if comm.rank == 0:
            print("accepted", iterate.iteration, flush=True)

    return minimize(
        closed.Closed(valley, np.full(6, 0.5), comm=comm),
        method="lmvm",
        restart=path,
        gradient_tolerance=1e-6,
        progress=say if path else False,
    )


if __name__ == "__main__":
    found = descend(PETSc.COMM_WORLD, sys.argv[1], pause=0.005)
