"""A program for test_alone.py: rank 0 of two enters one public collective after the other, alone.

``mpiexec -n 2 python alone.py [NAME ...]``; each has to end, within its time, in an error that
names the call.  Rank 1 stays away from all of them.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from distributed import make, make_cost
from mpi4py import MPI
from petsc4py import PETSc

import daeosens as ds
from daeosens import derivatives, inverse, optimize, verify
from daeosens.petsc import ranks
from daeosens.problem.grids import Grid

BOUND = 8.0
"""Seconds after which a call counts as one that waits for ever."""

TIMES = (0.06, 0.13)


def table(comm: Any) -> dict[str, Callable[[], object]]:
    """Return what rank 0 calls, by the name under which users know it; made by both ranks."""
    case = make(comm)
    problem, u0, p = case.problem, case.u0, case.p
    squares, cost = make_cost(case, squares=True), make_cost(case)
    stepping = ds.Stepping((0.0, 0.2), "cn", dt=0.05)
    run = ds.solve(problem, u0, p, stepping, TIMES)
    du, dp = case.direction()
    gradient = ds.adjoint(run, cost)
    product = ds.hessian_product(run, cost, du, dp)
    tangent = ds.tangent(run, du, dp)
    bounds = {name: ds.Parameter(value) for name, value in zip("ar", p.tolist(), strict=True)}
    control = ds.Parameters(bounds, initial_state=u0)
    functional = ds.Reduced(problem, squares, stepping, control)
    x = functional.start()
    functional.value_and_gradient(x)
    dx = x.duplicate()
    dx.set(0.1)
    estimate = inverse.covariance(functional, x)
    field = make(comm, field=True)
    field_functional = ds.Reduced(
        field.problem,
        make_cost(field, squares=True),
        stepping,
        _field_control(field),
    )
    m = field_functional.start()
    mean = m.copy()
    prior = inverse.GaussianPrior(mean, _operator(mean), 1.0)
    posterior = inverse.laplace(field_functional, m, prior, rank=2, oversampling=2)
    values, gradients, *_ = optimize.scipy_functions(functional)
    world = MPI.COMM_WORLD
    decay = ds.ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    line = ds.Stepping((0.0, 1.0), "rk4", dt=0.5)
    data = ds.LeastSquares([1.0], [[0.4]], sigma=0.1)
    rate = ds.Parameters({"rate": ds.Parameter(1.0, lower=0.1, upper=3.0)}, initial_state=[1.0])
    small = ds.Reduced(decay, data, line, rate)
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (8, 8), comm=comm)
    plane = grid.create_vec()
    limits = {name: ds.Parameter(1.0, lower=0.5, upper=2.0) for name in "ar"}
    bounded = ds.Reduced(problem, squares, stepping, ds.Parameters(limits, initial_state=u0))
    return {
        "solve": lambda: ds.solve(problem, u0, p, stepping, TIMES),
        "run(t)": lambda: run(0.07),
        "Trajectory.states": lambda: run.states[1],
        "adjoint": lambda: ds.adjoint(run, cost),
        "tangent": lambda: ds.tangent(run, du, dp),
        "hessian_product": lambda: ds.hessian_product(run, cost, du, dp),
        "gauss_newton_product": lambda: derivatives.gauss_newton_product(run, squares, du, dp),
        "sensitivities": lambda: ds.sensitivities(run),
        "evaluate": lambda: derivatives.evaluate(run, cost),
        "derivative_error": lambda: derivatives.derivative_error(run, cost),
        "at_fixed_times": lambda: derivatives.at_fixed_times(tangent),
        "Gradient.gather": gradient.gather,
        "HessianProduct.gather": product.gather,
        "Tangent.derivative": lambda: tangent.derivative(cost),
        "check": lambda: ds.check(problem, u0, p),
        "duality": lambda: verify.duality(run, cost),
        "taylor": lambda: ds.taylor(functional),
        "consistent_state": lambda: ds.consistent_state(problem, u0, p),
        "Problem.admit_parameters": lambda: problem.admit_parameters(p),
        "Reduced": lambda: ds.Reduced(problem, squares, stepping, control),
        "Reduced.trajectory": lambda: functional.trajectory(x),
        "Reduced.value": lambda: functional.value(x),
        "Reduced.gradient": lambda: functional.gradient(x),
        "Reduced.value_and_gradient": lambda: functional.value_and_gradient(x),
        "Reduced.derivative": lambda: functional.derivative(x, dx),
        "Reduced.hessian_product": lambda: functional.hessian_product(x, dx),
        "Reduced.hessian_products": lambda: functional.hessian_products(x, [dx]),
        "Reduced.gauss_newton_product": lambda: functional.gauss_newton_product(x, dx),
        "Reduced.gauss_newton_matrix": lambda: functional.gauss_newton_matrix(x),
        "Reduced.hessian": lambda: functional.hessian(x),
        "Reduced.residual_sweep": lambda: functional.residual_sweep,
        "Reduced.check_second_order": functional.check_second_order,
        "Reduced.residual": lambda: functional.residual(x),
        "Reduced.residual_jacobian": lambda: functional.residual_jacobian(x),
        "Reduced.tangents": lambda: functional.tangents(x, [dx]),
        "Reduced.start": functional.start,
        "Reduced.bounds": functional.bounds,
        "Reduced.refined": lambda: functional.refined(x),
        "Parameters.check": lambda: control.check(problem),
        "minimize": lambda: ds.minimize(functional, max_iterations=1),
        "scipy_functions": lambda: optimize.scipy_functions(functional),
        "scipy_functions: value": lambda: values(np.array(p)),
        "scipy_functions: gradient": lambda: gradients(np.array(p)),
        "covariance": lambda: inverse.covariance(functional, x),
        "profile": lambda: inverse.profile(functional, estimate),
        "predict": lambda: inverse.predict(functional, estimate, [0.1]),
        "laplace": lambda: inverse.laplace(field_functional, m, prior, rank=1),
        "matern": lambda: inverse.matern(grid, plane, 1.0, 0.5),
        "trace_stencil": lambda: ds.trace_stencil(lambda t, x, u, p: -u.here, grid),
        "GaussianPrior.apply": lambda: prior.apply(m),
        "GaussianPrior.solve": lambda: prior.solve(m),
        "GaussianPrior.root": lambda: prior.root(m),
        "GaussianPrior.root_solve": lambda: prior.root_solve(m),
        "GaussianPrior.value": lambda: prior.value(m),
        "GaussianPrior.squared_distance": lambda: prior.squared_distance(m),
        "GaussianPrior.gradient": lambda: prior.gradient(m),
        "GaussianPrior.sample": lambda: prior.sample(1),
        "GaussianPrior.variance": prior.variance,
        "GaussianPrior.trace": prior.trace,
        "Posterior.covariance_product": lambda: posterior.covariance_product(m),
        "Posterior.variance": posterior.variance,
        "Posterior.sample": lambda: posterior.sample(1),
        "Posterior.shape": lambda: posterior.shape(m),
        "Posterior.trace": posterior.trace,
        "Posterior.information_gain": posterior.information_gain,
        "solve_batch": lambda: ds.functional.solve_batch(decay, [1.0], [[1.0]], line, comm=world),
        "multistart": lambda: inverse.multistart(small, starts=2, comm=world),
        "starting_points": lambda: inverse.starting_points(bounded, 2),
    }


def _field_control(field: Any) -> Any:
    return ds.functional.FieldParameter(field.p, initial_state=field.u0)


def _operator(mean: PETSc.Vec) -> PETSc.Mat:
    sizes = mean.getSizes()
    matrix = PETSc.Mat().createAIJ((sizes, sizes), nnz=3, comm=mean.comm)
    first, last = mean.getOwnershipRange()
    for row in range(first, last):
        for column, value in ((row - 1, -1.0), (row, 3.0), (row + 1, -1.0)):
            if 0 <= column < sizes[1]:
                matrix.setValue(row, column, value)
    matrix.assemble()
    return matrix


class _EndedError(Exception):
    """What would have ended the job."""


def main(names: list[str]) -> None:
    calls = table(PETSc.COMM_WORLD)
    names = names or list(calls)
    MPI.COMM_WORLD.Barrier()
    if MPI.COMM_WORLD.rank:
        time.sleep(BOUND * len(names) + 60.0)
        return
    os.environ["DAEOSENS_PATIENCE"] = "0.1"
    ranks._missing = partial(ranks._missing, seconds=0.1)

    def found(error: BaseException) -> None:
        raise _EndedError(str(error)) from error

    ranks.abort = found
    for name in names:
        print(f"enters {name}", flush=True)
        faulthandler.dump_traceback_later(BOUND, exit=True)
        try:
            calls[name]()
            told = "ended"
        except _EndedError as error:
            told = f"found: {error}"
        except Exception as error:  # noqa: BLE001 (whatever it is, the test tells it)
            told = f"raised {type(error).__name__}: {error}"
        faulthandler.cancel_dump_traceback_later()
        print(f"{name} -> {told.splitlines()[0]}", flush=True)
    sys.stdout.flush()
    MPI.COMM_WORLD.Abort(0)


if __name__ == "__main__":
    main(sys.argv[1:])
