"""A program for test_alone.py: rank 0 of two makes one public call after the other, alone.

``mpiexec -n 2 python alone.py [NAME ...]``.  Collective calls have to end, within their time, in an
error that names them; the others return.  Rank 1 stays away from all of them.
"""

from __future__ import annotations

import faulthandler
import inspect
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from distributed import make, make_cost
from mpi4py import MPI
from petsc4py import PETSc
from public_names import underlying

import daeosens as ds
from daeosens import derivatives, inverse, optimize, petsc, tracing, verify
from daeosens import io as ds_io
from daeosens import problem as problems
from daeosens.petsc import ranks
from daeosens.problem.grids import Grid

BOUND = 8.0
"""Seconds after which a call counts as one that waits for ever."""

TIMES = (0.06, 0.13)


@dataclass(frozen=True)
class Calls:
    """What rank 0 calls, by the name under which users know it.

    Attributes
    ----------
    collective, local : mapping of str to callable
        Those for which ranks wait for each other, and those for which they do not.
    objects : mapping of str to object
        Distributed ones, by the names of their classes, whose methods and properties are tried too.
    untried : list of str
        Methods of these with arguments that nobody has thought of.
    """

    collective: dict[str, Callable[[], object]]
    local: dict[str, Callable[[], object]]
    objects: dict[str, Any]
    untried: list[str] = field(default_factory=list)


CALLBACKS = re.compile(r"(rhs|residual)(_t|(_time)?_hessian)?|add_udot_product|read_by_points")
"""Of ``Problem``: what the user has written, or is derived of it; it may communicate at will."""


def calls(comm: Any) -> Calls:
    """Return what rank 0 calls; made by both ranks."""
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
    spread = make(comm, field=True)
    field_functional = ds.Reduced(
        spread.problem,
        make_cost(spread, squares=True),
        stepping,
        _field_control(spread),
    )
    m = field_functional.start()
    mean = m.copy()
    operator = _operator(mean)
    prior = inverse.GaussianPrior(mean, operator, 1.0)
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
    place = ds.functional.InitialState(u0, p)
    joint = ds.functional.Joint([functional, functional])
    regularized = inverse.Regularized(field_functional, prior)
    model = ds.trace(lambda t, u, p: -p.rate * u, 1, {"rate": ()})
    costed = ds.trace(lambda t, u, p: -u, 1, [], running=lambda t, u, p: u[0])
    table = {"time": [0.5, 1.0], "u": [0.6, 0.4]}
    fitted = ds.fit(decay, table, rate, line)
    wells = (lambda t, x, y, p: -p.rate * x + y, lambda t, x, y, p: (y[0] - x[0]) ** 2)
    culture = (lambda t, x, v, p: v[:1] * x, lambda t, x, p: [(0.0, p.vmax), (0.0, 1.0)])
    flows = ([[1.0, -1.0]], [1], culture[1], (1, 2), ["vmax"])
    folder = world.bcast(tempfile.mkdtemp() if world.rank == 0 else None)
    results = ds_io.open_results(folder, world)
    own = PETSc.Vec().createWithArray([0.5], comm=PETSc.COMM_SELF)
    starts = inverse.multistart(lambda _: small, [[1.0], [1.5]], comm=world, method="blmvm")
    file = f"{folder}/run.h5"
    minimum = ds.minimize(functional, max_iterations=1)
    kept = f"{folder}/fit-{world.rank}.h5"
    inverse.save_fit(fitted, kept)
    collective: dict[str, Callable[[], object]] = {
        "solve": lambda: ds.solve(problem, u0, p, stepping, TIMES),
        "save_run": lambda: ds.timestepping.save_run(run, file),
        "load_run": lambda: ds.timestepping.load_run(file, problem),
        "save_result": lambda: ds.optimize.save_result(minimum, f"{folder}/result.h5"),
        "load_result": lambda: ds.optimize.load_result(f"{folder}/result.h5", functional),
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
        "Reduced.point": lambda: functional.point(x),
        "Joint.point": lambda: joint.point(x),
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
        "joint_prior": lambda: inverse.joint_prior(unknown_field, {"k": prior}),
        "total_variation": lambda: inverse.total_variation(unknown_field, "k", smoothing=0.1),
        "FieldPenalty": lambda: inverse.FieldPenalty(unknown_field, "k", lambda q: q.center[0]),
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
        "multistart": lambda: inverse.multistart(
            lambda _: small, starts=[[1.0], [1.5]], comm=world
        ),
        "starting_points": lambda: inverse.starting_points(bounded, 2),
        "Trajectory.final": lambda: run.final,
        "Trajectory.at": lambda: run.at(0.06),
        "fit": lambda: ds.fit(decay, table, rate, line, comm=world),
        "bilevel": lambda: inverse.bilevel(model, table, {"rate": ds.Parameter(1.0)}, comm=world),
        "trace": lambda: ds.trace(lambda t, u, p: -p.rate * u, 1, {"rate": ()}),
        "trace_residual": lambda: tracing.trace_residual(lambda t, u, v, p: v + u, 1, []),
        "DAEO": lambda: ds.DAEO(*wells, (1, 1), ["rate"], box=[(-2.0, 2.0)]),
        "LinearDAEO": lambda: tracing.LinearDAEO(culture[0], *flows),
        "Model.terminal": lambda: model.terminal(lambda t, u, p: u[0]),
        "Model.event": lambda: model.event(ds.Event(lambda t, u, p: u[0] - 0.5)),
        "plan": lambda: derivatives.plan(problem, u0, p, stepping),
        "gather": lambda: petsc.gather(u0),
        "Regularized.value": lambda: regularized.value(m),
        "GaussianPrior": lambda: inverse.GaussianPrior(mean, operator, 1.0),
        "Joint.value": lambda: joint.value(x),
        "Parameters.values_at": lambda: control.values_at(problem, x),
        "Fit.record": lambda: fitted.record(results),
        "Results.write": lambda: results.write("u", u0),
        "Results.read": lambda: results.read("u", u0),
        "Results.array": lambda: results.array("u"),
        "Parameters.estimates_at": lambda: control.estimates_at(x),
        "imex": lambda: problems.imex(implicit=problem, explicit=problem),
        "ODE": lambda: ds.ODE(lambda t, u, p, out: u.copy(out), state=u0),
        "DAE": lambda: ds.DAE(lambda t, u, v, p, out: u.copy(out), state=u0),
    }
    local: dict[str, Callable[[], object]] = {
        "load_fit": lambda: inverse.load_fit(kept, decay, table, rate, line),
        "hybrid": lambda: ds.hybrid({"on": problem, "off": problem}, "on"),
        "Regularized": lambda: inverse.Regularized(field_functional, prior),
        "Joint": lambda: ds.functional.Joint([functional, functional]),
        "add_events": lambda: problems.add_events(problem, [ds.Event(0.1)]),
        "with_events": lambda: problems.with_events(problem, []),
        "with_doses": lambda: problems.with_doses(decay, problems.Doses([(0.5, 1.0, 0.0, 0)])),
        "saturated": lambda: problems.saturated(decay, 0, lower=0.0, upper=1.0),
        "read": lambda: petsc.read(u0),
        "write": lambda: petsc.write(u0, petsc.read(u0).copy()),
        "scatter": lambda: petsc.scatter(np.ones(u0.size), u0.duplicate()),
        "likelihood": lambda: inverse.likelihood(decay, table, rate, line),
        "identifiability": lambda: inverse.identifiability(np.eye(2), ["a", "r"]),
        "Model.running": lambda: costed.running,
        "Model.pack": lambda: model.pack(rate=0.5),
        "Trajectory.destroy": ds.solve(problem, u0, p, stepping).destroy,
    }
    of_field = ds.trace_stencil(lambda t, u, p: u.laplacian(p.k), grid, fields=["k"])
    q = of_field.pack(k=1.0)
    fields = ds.functional.FieldParameters({"k": ds.Parameter(1.0)}, grid.create_vec())
    measured = ds.LeastSquares([stepping.t_span[1]], [grid.create_vec()], 0.1)
    unknown_field = ds.Reduced(of_field, measured, stepping, fields)
    penalty = inverse.total_variation(unknown_field, "k", smoothing=0.1)
    objects = {
        "Problem": problem,
        "Model": model,
        "Trajectory": run,
        "Gradient": gradient,
        "HessianProduct": product,
        "Tangent": tangent,
        "Sensitivities": ds.sensitivities(run),
        "ErrorEstimate": derivatives.derivative_error(run, cost),
        "Reduced": functional,
        "Joint": joint,
        "Parameters": control,
        "InitialState": place,
        "FieldParameter": field_functional.control,
        "FieldModel": of_field,
        "FieldParameters": fields,
        "FieldPenalty": penalty,
        "LeastSquares": squares,
        "Result": ds.minimize(functional, max_iterations=1),
        "Taylor": ds.taylor(functional),
        "Covariance": estimate,
        "GaussianPrior": prior,
        "Posterior": posterior,
        "Regularized": regularized,
        "Fit": fitted,
        "Multistart": starts,
    }
    usual = {
        "problem": problem,
        "x": x,
        "dx": dx,
        "directions": [dx],
        "u": u0,
        "p": p,
        "dp": dp,
        "objectives": [squares],
        "objective": cost,
        "stepping": stepping,
        "gradient": gradient,
        "product": product,
        "t": 0.06,
        "time": 0.06,
        "h": 0.05,
        "n": 1,
        "final_time": 0.2,
        "limited": True,
        "name": "a",
        "states": [0],
        "times": [0.5],
        "value": lambda t, u, p: u[0],
        "event": ds.Event(lambda t, u, p: u[0] - 0.5),
    }
    on_fields = {"problem": spread.problem, "x": m, "dx": m, "v": m, "noise": m, "seed": 1}
    special = {
        **dict.fromkeys(("FieldParameter", "GaussianPrior", "Posterior", "Regularized"), on_fields),
        "FieldModel": {"p": q, "name": "p"},
        "FieldParameters": {"problem": of_field, "x": q, "dx": q},
        "FieldPenalty": {"x": q, "dx": q},
        "InitialState": {"x": u0, "dx": du},
        "Fit": {"x": own, "dx": own, "directions": [own]},
        "Model": {"p": np.array([0.5]), "name": "p"},
    }
    made = Calls(collective, local, objects)
    for name, member in members(objects).items():
        owner, _, key = name.partition(".")
        if name in collective or name in local:
            continue
        if not inspect.isfunction(member):
            local[name] = partial(getattr, objects[owner], key)
            continue
        arguments = list(inspect.signature(member).parameters.values())[1:]
        needed = [
            argument.name
            for argument in arguments
            if argument.default is argument.empty
            and argument.kind not in (argument.VAR_KEYWORD, argument.VAR_POSITIONAL)
        ]
        known = {**usual, **special.get(owner, {})}
        if set(needed) <= set(known):
            arguments = {argument: known[argument] for argument in needed}
            local[name] = partial(getattr(objects[owner], key), **arguments)
        else:
            made.untried.append(name)
    return made


def members(objects: dict[str, Any]) -> dict[str, Any]:
    """Return methods and properties of objects, each once: of the first class that has it."""
    found: dict[str, Any] = {}
    for owner, thing in objects.items():
        for kind in type(thing).__mro__:
            own = vars(kind).items() if kind.__module__.startswith("daeosens") else ()
            for key, member in own:
                if key.startswith("_") or underlying(member) is None or CALLBACKS.fullmatch(key):
                    continue
                if not any(member is other for other in found.values()):
                    found.setdefault(f"{owner}.{key}", member)
    return found


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
    made = calls(PETSc.COMM_WORLD)
    tried = {**made.collective, **made.local}
    names = names or list(tried)
    MPI.COMM_WORLD.Barrier()
    if MPI.COMM_WORLD.rank:
        time.sleep(BOUND * len(names) + 60.0)
        return
    os.environ["DAEOSENS_PATIENCE"] = "0.02"
    ranks._missing = partial(ranks._missing, seconds=0.02)

    def found(error: BaseException) -> None:
        raise _EndedError(str(error)) from error

    ranks.abort = found
    for kind in ("collective", "local", "untried"):
        print(f"{kind}: {' | '.join(getattr(made, kind))}")
    for name in names:
        print(f"enters {name}", flush=True)
        faulthandler.dump_traceback_later(BOUND, exit=True)
        try:
            tried[name]()
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
