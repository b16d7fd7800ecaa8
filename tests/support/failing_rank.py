"""A program for test_mpi_failure.py: one callback of one rank raises while the others communicate.

``python failing_rank.py callback method error``
"""

import sys
from dataclasses import replace

import numpy as np
from distributed import Model, make, make_cost, make_ring
from petsc4py import PETSc

import daeosens as ds
from daeosens.problem import Products

ERRORS = {"KeyError": KeyError, "SolveError": ds.SolveError, "InputError": ds.InputError}


def main(where: str, method: str, error: str) -> None:
    comm = PETSc.COMM_WORLD
    faulty = comm.rank == comm.size - 1 or error == "SolveError"  # that one on every rank

    def broken(name, function):
        """The function, raising on one rank in the second half of the run."""

        def call(*arguments):
            late = not np.isscalar(arguments[0]) or arguments[0] > 0.1
            if name == where and faulty and late:
                raise ERRORS[error]("no data for this region")
            return function(*arguments)

        return call

    ring = make_ring(comm, dm=True)
    model = Model(ring, False)
    products = where.endswith((".apply", ".apply_transpose"))
    jacobian = broken("jacobian", model.jacobian)
    if products:
        jacobian = Products(
            broken("jacobian.apply", model.apply),
            broken("jacobian.apply_transpose", model.apply_transpose),
        )
    problem = ds.ODE(
        broken("rhs", model.rhs),
        state=ring.dm,
        parameters=["a", "r"],
        jacobian=jacobian,
        jacobian_p=broken("jacobian_p", model.jacobian_p),
        rhs_t=model.rhs_t,
    )
    case = replace(make(comm), problem=problem)
    cost = make_cost(case) + ds.Terminal(
        broken("terminal", lambda t, u, p: u.sum()),
        broken("terminal gradient_u", lambda t, u, p, out: out.set(1.0)),
        lambda t, u, p: np.zeros(2),
    )
    initial = broken("initial_state", lambda p, out: case.u0.copy(out))
    control = ds.Parameters(
        {"a": ds.Parameter(case.p[0]), "r": case.p[1]}, initial, lambda p, w: np.zeros(2)
    )
    stepping = ds.Stepping((0.0, 0.2), method, dt=0.03)
    try:
        run = ds.solve(case.problem, case.u0, case.p, stepping, cost.times)
        ds.tangent(run, *case.direction()).derivative(cost)
        ds.adjoint(run, cost)
        ds.Reduced(problem, cost, stepping, control)
    except ds.SolveError as failed:
        print(f"rank {comm.rank}: {type(failed).__name__}: {failed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
