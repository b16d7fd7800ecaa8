"""A program for test_mpi_failure.py: a function of an event raises on one rank.

``python failing_event.py {when,reset} RANK``
"""

import sys

import numpy as np
from petsc4py import PETSc

from daeosens import ODE, Event, Stepping, solve

WHERE, RANK = sys.argv[1], int(sys.argv[2])


def main() -> None:
    left = {"when": 5, "reset": 1}  # so many calls

    def trouble(place: str) -> None:
        left[place] -= 1
        if place == WHERE and left[place] == 0 and state.comm.rank == RANK:
            raise MemoryError("lost on one rank")

    def rhs(t, u, p, out):
        u.norm()  # the other ranks wait here
        out.setArray(-p[0] * u.getArray(readonly=True))

    def when(t, u, p):
        trouble("when")
        return u.sum() / u.size - 0.5

    def reset(t, u, p, out):
        trouble("reset")
        out.setArray(1.1 * u.getArray(readonly=True))

    state = PETSc.Vec().createMPI(6, comm=PETSc.COMM_WORLD)
    state.set(1.0)
    problem = ODE(rhs, state=state, parameters=["rate"], events=[Event(when, reset, -1)])
    run = solve(problem, state, np.ones(1), Stepping((0.0, 1.0), "rk4", dt=0.1))
    print(len(run.times))


if __name__ == "__main__":
    main()
