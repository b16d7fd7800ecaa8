"""Every public callable with arguments that are right, of which odd values take the place.

``python odd_calls.py`` is a worker: lines of standard input are calls, ``[name, {argument: name of
an odd value}, [arguments left out]]``, lines of standard output what came of them.
"""

# ruff: noqa: PLW0108 (calls are functions of their arguments alike)
from __future__ import annotations

import functools
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import skfem
from mpi4py import MPI
from odd_values import ODD, vec
from petsc4py import PETSc

import daeosens as ds
from daeosens.methods import find_method
from daeosens.petsc import gather, read, scatter, write
from daeosens.problem import grids
from daeosens.tracing import pdes

HERE = Path(__file__).parent
SECONDS = float(os.environ.get("ODD_SECONDS", "60"))  # after which a call counts as one that hangs
BYTES = 6 * 2**30  # of address space that a worker may have


@dataclass(frozen=True)
class Call:
    """A call that is right: what is called, with thunks of the arguments it needs and may have."""

    function: Callable[..., Any]
    needed: Mapping[str, Callable[[], Any]]
    optional: Mapping[str, Callable[[], Any]]


CALLS: dict[str, Call] = {}


def call(
    name: str, function: Callable[..., Any], /, **needed: Callable[[], Any]
) -> Callable[..., None]:
    """Enter a call; what is returned takes the arguments that may be left out."""

    def may_have(**optional: Callable[[], Any]) -> None:
        CALLS[name] = Call(function, needed, optional)

    may_have()
    return may_have


def constant(value: Any) -> Callable[[], Any]:
    return lambda: value


# ---- what calls are about ------------------------------------------------------------------------


@functools.cache
def decay() -> Any:
    return ds.ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])


@functools.cache
def pair() -> Any:
    return ds.ODE(
        lambda t, u, p: np.array([u[1], -p[0] * u[0] - p[1] * u[1]]), ["x", "v"], ["a", "b"]
    )


def weights() -> Any:
    return np.diag([1.0, 0.0])


@functools.cache
def algebraic() -> Any:
    return ds.ODE(
        lambda t, u, p: np.array([-p[0] * u[1], u[1] - u[0]]), 2, ["rate"], mass=weights()
    )


STEPS = ds.Stepping((0.0, 1.0), "rk4", dt=0.25)
IMPLICIT = ds.Stepping((0.0, 1.0), "cn", dt=0.25)


def last() -> Any:
    return ds.Terminal(lambda t, u, p: u[0])


@functools.cache
def run() -> Any:
    return ds.solve(decay(), [1.0], [0.5], STEPS, t_eval=[0.5])


@functools.cache
def bouncing() -> Any:
    return ds.ODE(
        lambda t, u, p: np.array([u[1], -p[0]]),
        ["height", "speed"],
        ["gravity"],
        events=[
            ds.Event(
                lambda t, u, p: u[0], lambda t, u, p: u * np.array([1.0, -0.8]), -1, name="bounce"
            )
        ],
    )


@functools.cache
def run_with_events() -> Any:
    return ds.solve(bouncing(), [1.0, 0.0], [9.81], ds.Stepping((0.0, 1.0), "rk4", dt=0.05))


@functools.cache
def implicit_run() -> Any:
    return ds.solve(decay(), [1.0], [0.5], IMPLICIT)


@functools.cache
def direction() -> Any:
    return ds.tangent(run(), [1.0], [0.0])


def rates() -> Any:
    return ds.Parameters({"rate": ds.Parameter(0.5, lower=0.1, upper=2.0)}, initial_state=[1.0])


def misfit() -> Any:
    return ds.LeastSquares([0.5, 1.0], [0.7, 0.5], sigma=0.1)


@functools.cache
def reduced() -> Any:
    return ds.Reduced(decay(), misfit(), STEPS, rates())


DATA = {"time": [0.25, 0.5, 1.0], "mass": [0.9, 0.74, 0.61]}


@functools.cache
def fitted() -> Any:
    return ds.fit(decay(), DATA, rates(), STEPS)


@functools.cache
def estimate() -> Any:
    return ds.inverse.covariance(reduced(), ds.minimize(reduced(), method="bnls").x)


@functools.cache
def traced() -> Any:
    return ds.trace(lambda t, u, p: -p.rate * u, size=1, parameters=["rate"])


@functools.cache
def blocks() -> Any:
    return ds.trace(lambda t, u, p: p.r * u + p.A @ u, 2, {"r": (2,), "A": (2, 2)})


@functools.cache
def grid() -> Any:
    return grids.Grid(((0.0, 1.0), (0.0, 1.0)), (4, 4), "zero", comm=PETSc.COMM_SELF)


@functools.cache
def triangles() -> Any:
    basis = skfem.Basis(skfem.MeshTri().refined(1), skfem.ElementTriP1())
    return grids.FiniteElements(basis, comm=PETSc.COMM_SELF)


@functools.cache
def heat_of_field() -> Any:
    return ds.trace_stencil(
        lambda t, u, p: u.laplacian(p.k) - p.loss * u.center, grid(), ["loss"], fields=["k"]
    )


@functools.cache
def of_field() -> Any:
    unknown = {"loss": ds.Parameter(0.5), "k": ds.Parameter(0.01)}
    control = ds.functional.FieldParameters(unknown, np.ones(16))
    data = ds.LeastSquares([1.0], [grid().create_vec()], 0.1)
    return ds.Reduced(heat_of_field(), data, STEPS, control)


@functools.cache
def periodic() -> Any:
    return grids.Grid(((0.0, 1.0), (0.0, 1.0)), (8, 8), comm=PETSc.COMM_SELF)


@functools.cache
def prior() -> Any:
    return ds.inverse.GaussianPrior(vec([0.5]), weight=4.0)


@functools.cache
def matern() -> Any:
    return ds.inverse.matern(periodic(), periodic().create_vec(), 0.5, 0.3)


@functools.cache
def posterior() -> Any:
    return ds.inverse.laplace(reduced(), [0.5], prior())


@functools.cache
def joint() -> Any:
    rate = ds.Parameter(0.5)
    control = ds.Parameters({"rate": rate}, initial_state=[1.0])
    functional = ds.Reduced(decay(), misfit(), STEPS, control)
    return ds.functional.Joint([functional])


@functools.cache
def wells() -> Any:
    def f(t: Any, x: Any, y: Any, p: Any) -> Any:
        return p.rate * y

    def h(t: Any, x: Any, y: Any, p: Any) -> Any:
        return (1.0 - y[0] ** 2) ** 2 - (x[0] - 0.5) * y[0]

    return f, h


@functools.cache
def culture() -> Any:
    def f(t: Any, x: Any, v: Any, p: Any) -> Any:
        return np.array([v[0] * x[0]])

    def bounds(t: Any, x: Any, p: Any) -> Any:
        return {0: (0.0, p[0] / (1.0 + x[0]))}

    return f, bounds


@functools.cache
def grown() -> Any:
    f, bounds = culture()
    model = ds.tracing.LinearDAEO(f, [[1.0, -1.0]], [1], bounds, (1, 2), ["vmax"])
    return model, ds.solve(model, [0.1], [1.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.25))


def circle_data() -> Any:
    t = np.linspace(0.0, 3.0, 61)
    return {"t": t, "x": np.cos(2.0 * t), "y": -np.sin(2.0 * t)}


@functools.cache
def discovered() -> Any:
    library = ds.inverse.polynomials(["x", "y"], 1)
    return ds.inverse.Discovery(library, threshold=0.01).fit(circle_data())


@functools.cache
def system() -> Any:
    return ds.problem.System(["x", "v"], ["a", "b"])


@functools.cache
def modal() -> Any:
    return ds.hybrid({"on": pair(), "off": pair()}, "on")


@functools.cache
def modal_system() -> Any:
    return ds.problem.System(["x", "v"], ["a", "b"], ["on", "off"])


@functools.cache
def starts() -> Any:
    return ds.inverse.multistart(lambda comm: reduced(), [[0.4], [0.6]], method="bnls")


# ---- what is done with what a call makes ---------------------------------------------------------


def used(problem: Any, start: Any, p: Any, stepping: Any = STEPS) -> Any:
    """Run a problem and differentiate; the numbers."""
    run = ds.solve(problem, start, p, stepping)
    gradient = ds.adjoint(run, last())
    return run.u, gradient.value, gradient.u0, gradient.p


def cost_of(objective: Any, trajectory: Any = None) -> Any:
    """Take a cost and all its derivatives."""
    trajectory = run() if trajectory is None else trajectory
    gradient = ds.adjoint(trajectory, objective)
    product = ds.hessian_product(trajectory, objective, dp=[1.0])
    return gradient.value, gradient.u0, gradient.p, product.u0, product.p


def ensemble_numbers(ensemble: Any) -> Any:
    """Members that have failed have NaN."""
    return None if ensemble.failures else (ensemble.states, ensemble.values)


def fit_numbers(fit: Any) -> Any:
    return fit.result.x.getArray().copy(), fit.result.value, fit.sigma


def optimum_numbers(optimum: Any) -> Any:
    return optimum.x.getArray().copy(), optimum.value


# ---- problems ------------------------------------------------------------------------------------

call(
    "ODE",
    lambda **arguments: used(ds.ODE(**arguments), [1.0], [0.5]),
    rhs=lambda: lambda t, u, p: -p[0] * u,
    size=constant(1),
    parameters=lambda: ["rate"],
)(
    state=constant(None),
    jacobian=lambda: lambda t, u, p: np.array([[-p[0]]]),
    jacobian_p=lambda: lambda t, u, p: -u[:, None],
    rhs_t=constant("autonomous"),
    batched=constant(False),
    breakpoints=lambda: [0.5],
    events=constant(()),
)
call(
    "ODE with a mass",
    lambda **arguments: used(ds.ODE(**arguments), [1.0, 1.0], [0.5], IMPLICIT),
    rhs=lambda: lambda t, u, p: np.array([-p[0] * u[1], u[1] - u[0]]),
    size=constant(2),
    parameters=lambda: ["rate"],
    mass=weights,
)(mass_p=constant(None), mass_hessian=constant(None))
call(
    "ODE in second order",
    lambda **arguments: cost_of(
        last(), ds.solve(ds.ODE(size=1, parameters=1, **arguments), [1.0], [0.5], STEPS)
    ),
    rhs=lambda: lambda t, u, p: -p[0] * u,
    hessian_product=lambda: lambda t, u, p, w, du, dp: (-w * dp[0], np.array([-(w @ du)])),
)(hessian_t=lambda: lambda t, u, p, w: (np.zeros(1), np.zeros(1), 0.0))
call(
    "ODE of vectors",
    lambda **arguments: ds.solve(ds.ODE(**arguments), vec([1.0]), [0.5], STEPS).u,
    rhs=lambda: lambda t, u, p, out: (u.copy(out), out.scale(-p[0]))[1],
    state=lambda: vec([0.0]),
    parameters=constant(1),
)(jacobian_matrix=lambda: PETSc.Mat().createDense((1, 1), comm=PETSc.COMM_SELF))
call(
    "DAE",
    lambda **arguments: used(ds.DAE(**arguments), [1.0], [0.5], IMPLICIT),
    residual=lambda: lambda t, u, udot, p: udot + p[0] * u,
    size=constant(1),
    parameters=lambda: ["rate"],
)(
    jacobian=lambda: lambda t, u, udot, p: np.array([[p[0]]]),
    jacobian_udot=lambda: lambda t, u, udot, p: np.eye(1),
    jacobian_p=lambda: lambda t, u, udot, p: u[:, None],
    residual_t=constant("autonomous"),
    linear_in_udot=constant(True),
    breakpoints=lambda: [0.5],
    events=constant(()),
)
call(
    "DDE",
    lambda **arguments: used(ds.DDE(**arguments), [1.0], [0.5]),
    rhs=lambda: lambda t, u, z, p: -p[0] * z[0],
    size=constant(1),
    parameters=lambda: ["rate"],
    delays=lambda: [0.5],
    history=lambda: [1.0],
)()
call(
    "hybrid",
    lambda **arguments: used(ds.hybrid(**arguments), [1.0], [0.5]),
    modes=lambda: {"on": decay(), "off": ds.ODE(lambda t, u, p: p[0] * u, 1, ["rate"])},
    start=constant("on"),
)(events=lambda: [ds.Event(0.5, mode="off")])
call(
    "trace",
    lambda **arguments: used(ds.trace(**arguments), [1.0], [0.5]),
    rhs=lambda: lambda t, u, p: -p[0] * u,
    size=constant(1),
    parameters=lambda: ["rate"],
)(
    mass=constant(None),
    events=constant(()),
    running=lambda: lambda t, u, p: u[0],
    breakpoints=lambda: [0.5],
    delays=constant(()),
    history=constant(None),
    comm=constant(MPI.COMM_WORLD),
)
call(
    "tracing.trace_residual",
    lambda **arguments: used(ds.tracing.trace_residual(**arguments), [1.0], [0.5], IMPLICIT),
    residual=lambda: lambda t, u, udot, p: udot + p[0] * u,
    size=constant(1),
    parameters=lambda: ["rate"],
)(
    events=constant(()),
    running=lambda: lambda t, u, p: u[0],
    breakpoints=lambda: [0.5],
    comm=constant(MPI.COMM_WORLD),
)
call(
    "trace_stencil",
    lambda **arguments: (
        ds.solve(ds.trace_stencil(**arguments), pdes.first_mode(grid()), [0.01], STEPS).u
    ),
    rhs=lambda: lambda t, u, p: p.rate * (u[1, 0] + u[-1, 0] - 2.0 * u[0, 0]),
    grid=grid,
    parameters=lambda: ["rate"],
)(jacobian=constant("auto"), slope=constant(None), fields=constant(()))
call(
    "tracing.trace_weak_form",
    lambda **arguments: (
        ds.solve(
            ds.tracing.trace_weak_form(**arguments), triangles().create_vec(), [0.01], IMPLICIT
        ).u
    ),
    rhs=lambda: lambda t, u, p: (p.rate * u.value, [-slope for slope in u.gradient()]),
    space=triangles,
    parameters=lambda: ["rate"],
)(
    outflow=lambda: {"boundary": lambda t, u, p: u.value},
    fields=constant(()),
    field_space=constant(None),
)
call(
    "grids.FiniteElements",
    lambda **arguments: grids.FiniteElements(**arguments).create_vec(),
    basis=lambda: skfem.Basis(skfem.MeshTri().refined(1), skfem.ElementTriP1()),
)(
    fields=constant(1),
    dirichlet=lambda: {"boundary": 0.0},
    comm=constant(PETSc.COMM_SELF),
)
call(
    "DAEO",
    lambda **arguments: used(
        ds.DAEO(**arguments), [1.0], [1.0], ds.Stepping((0.0, 0.5), "rk4", dt=0.1)
    ),
    f=lambda: wells()[0],
    h=lambda: wells()[1],
    size=constant((1, 1)),
    parameters=lambda: ["rate"],
    box=lambda: [(-2.0, 2.0)],
)(
    constraints=lambda: lambda t, x, y, p: np.array([y[0] - 1.9]),
    events=constant(()),
    running=lambda: lambda t, x, y, p: x[0],
    breakpoints=lambda: [0.2],
    extension=constant(None),
    effort=lambda: ds.tracing.SearchEffort(),
    comm=constant(MPI.COMM_WORLD),
)
call(
    "tracing.SearchEffort",
    lambda **arguments: used(
        ds.DAEO(
            *wells(),
            (1, 1),
            ["rate"],
            box=[(-2.0, 2.0)],
            effort=ds.tracing.SearchEffort(**arguments),
        ),
        [1.0],
        [1.0],
        ds.Stepping((0.0, 0.5), "rk4", dt=0.1),
    ),
)(
    boxes=constant(10000),
    proof=constant(1000),
    proof_per_step=constant(100),
    interval=constant(1.0),
    apart=constant(1e-6),
)
call(
    "tracing.LinearDAEO",
    lambda **arguments: used(ds.tracing.LinearDAEO(**arguments), [0.1], [1.0]),
    f=lambda: culture()[0],
    a=lambda: [[1.0, -1.0]],
    objectives=lambda: [1],
    bounds=lambda: culture()[1],
    size=constant((1, 2)),
    parameters=lambda: ["vmax"],
)(
    lower=constant(0.0),
    upper=constant(10.0),
    b=lambda: [0.0],
    events=constant(()),
    running=lambda: lambda t, x, p: x[0],
    comm=constant(MPI.COMM_WORLD),
)
call("LinearDAEOModel.flows", lambda run: grown()[0].flows(run), run=lambda: grown()[1])
call(
    "Model.terminal",
    lambda value: cost_of(traced().terminal(value), ds.solve(traced(), [1.0], [0.5], STEPS)),
    value=lambda: lambda t, u, p: p.rate * u[0],
)
call(
    "Model.event",
    lambda event: used(
        ds.trace(lambda t, u, p: -p.rate * u, 1, ["rate"], events=[event]), [1.0], [0.5]
    ),
    event=lambda: ds.Event(lambda t, u, p: u[0] - 0.8, lambda t, u, p: 2.0 * u, -1),
)
call(
    "Parametrized.pack",
    lambda **arguments: blocks().pack(**arguments),
    r=lambda: [1.0, 2.0],
    A=lambda: np.eye(2),
)
call(
    "Parametrized.pack of a mapping",
    lambda values: blocks().pack(values),
    values=lambda: {"r": [1.0, 2.0], "A": np.eye(2)},
)
call("Parametrized.unpack", lambda p: blocks().unpack(p).A, p=lambda: np.arange(6.0))
call(
    "FieldModel.pack",
    lambda **arguments: heat_of_field().pack(**arguments).array,
    loss=constant(0.5),
    k=lambda: np.full((4, 4), 0.01),
)
call(
    "FieldModel.pack of a mapping",
    lambda values: heat_of_field().pack(values).array,
    values=lambda: {"loss": 0.5, "k": 0.01},
)
call(
    "FieldModel.unpack",
    lambda p: heat_of_field().unpack(p).k.array,
    p=lambda: heat_of_field().pack(loss=0.5, k=0.01),
)
call(
    "problem.Native",
    lambda **arguments: ds.problem.Native(**arguments) and None,
    address=constant(4096),
)(
    user_data=constant(0),
    pattern=constant(None),
    signature=constant("double"),
    sizes=constant((1, 1)),
)
call(
    "problem.Products",
    lambda **arguments: used(
        ds.ODE(
            lambda t, u, p: -p[0] * u,
            1,
            ["rate"],
            jacobian=ds.problem.Products(**arguments),
            jacobian_p=lambda t, u, p: -u[:, None],
        ),
        [1.0],
        [0.5],
    ),
    apply=lambda: lambda t, u, p, du: -p[0] * du,
    apply_transpose=lambda: lambda t, u, p, w: -p[0] * w,
)
call(
    "consistent_state",
    lambda **arguments: ds.consistent_state(**arguments).array.copy(),
    problem=algebraic,
    u0=lambda: [1.0, 0.0],
    p=lambda: [0.5],
)(t=constant(0.0), options=lambda: {"snes_rtol": 1e-10})
call("Problem.state_indices", lambda states: pair().state_indices(states), states=lambda: ["x"])
call(
    "problem.add_events",
    lambda **a: used(ds.problem.add_events(**a), [1.0], [0.5]),
    problem=decay,
    events=lambda: [ds.Event(0.5, lambda t, u, p: u + 1.0)],
)
call(
    "problem.imex",
    lambda **a: used(ds.problem.imex(**a), [1.0], [0.5]),
    implicit=decay,
    explicit=decay,
)
call("methods.find_method", lambda name: find_method(name).order, name=constant("cn"))
call("petsc.read", lambda vec: read(vec).shape, vec=lambda: vec([1.0]))
call("petsc.gather", lambda vec: gather(vec).shape, vec=lambda: vec([1.0]))
call("petsc.write", write, vec=lambda: vec([0.0]), values=lambda: [1.0])
call(
    "petsc.scatter",
    lambda values, vec: scatter(values, vec) and None,
    values=lambda: [1.0],
    vec=lambda: vec([0.0]),
)
call("Problem.create_state", lambda: pair().create_state() and None)
call("Problem.create_parameters", lambda: pair().create_parameters() and None)
call(
    "Problem.admit_state",
    lambda **arguments: pair().admit_state(**arguments),
    u=lambda: {"x": 1.0, "v": 0.0},
)(name=constant("u0"))
call(
    "Problem.admit_parameters",
    lambda **arguments: pair().admit_parameters(**arguments),
    p=lambda: {"a": 1.0, "b": 0.0},
)(name=constant("p"))
call(
    "Problem.admit_parameter_direction",
    lambda **arguments: pair().admit_parameter_direction(**arguments),
    dp=lambda: {"a": 1.0},
)(name=constant("dp"))

# ---- runs ----------------------------------------------------------------------------------------

call(
    "Stepping",
    lambda **arguments: used(decay(), [1.0], [0.5], ds.Stepping(**arguments)),
    t_span=constant((0.0, 1.0)),
    dt=constant(0.25),
)(
    method=constant("rk4"),
    options=lambda: {"snes_rtol": 1e-10},
    t_eval=lambda: [0.5],
    cut=constant(True),
    max_steps=constant(100),
)
call(
    "Stepping, adaptive",
    lambda **arguments: used(decay(), [1.0], [0.5], ds.Stepping(**arguments)),
    t_span=constant((0.0, 1.0)),
    rtol=constant(1e-3),
)(
    method=constant("rk3bs"),
    dt=constant(0.1),
    atol=constant(1e-6),
    max_step=constant(0.5),
    max_steps=constant(1000),
    control=constant("sensitivities"),
)
call(
    "solve",
    lambda **arguments: ds.solve(**arguments).u,
    problem=decay,
    u0=lambda: [1.0],
    p=lambda: [0.5],
    stepping=constant(STEPS),
)(
    t_eval=lambda: [0.5],
    checkpoint=lambda: ds.timestepping.Checkpoints(2),
    petsc_trajectory=constant(None),
)
call(
    "timestepping.Checkpoints",
    lambda memory: (
        ds.adjoint(
            ds.solve(decay(), [1.0], [0.5], STEPS, checkpoint=ds.timestepping.Checkpoints(memory)),
            last(),
        ).p
    ),
    memory=constant(2),
)
call(
    "timestepping.save_run",
    lambda **a: ds.timestepping.save_run(**a),
    run=lambda: ds.solve(decay(), [1.0], [0.5], STEPS),
    path=constant("run.h5"),
)


def load_run(**arguments: Any) -> Any:
    ds.timestepping.save_run(ds.solve(decay(), [1.0], [0.5], STEPS), "run.h5")
    return ds.timestepping.load_run(**arguments).u


call("timestepping.load_run", load_run, path=constant("run.h5"))(problem=decay)
call(
    "optimize.save_result",
    lambda **a: ds.optimize.save_result(**a),
    result=lambda: ds.minimize(reduced(), max_iterations=1),
    path=constant("result.h5"),
)


def load_result(**arguments: Any) -> Any:
    ds.optimize.save_result(ds.minimize(reduced(), max_iterations=1), "result.h5")
    return ds.optimize.load_result(**arguments).x.array


call("optimize.load_result", load_result, path=constant("result.h5"))(functional=reduced)
call("Trajectory.at", lambda **arguments: run().at(**arguments), t=constant(0.5))(
    side=constant("before")
)
call(
    "Trajectory.at with events",
    lambda **arguments: run_with_events().at(**arguments),
    t=constant(0.5),
)(side=constant("before"))
call("Trajectory.call", lambda **arguments: run()(**arguments), t=constant(0.3))(
    side=constant("before")
)
call(
    "Trajectory.call with events",
    lambda **arguments: run_with_events()(**arguments),
    t=constant(0.3),
)(side=constant("before"))
call("Trajectory.index", lambda **arguments: run().index(**arguments), t=constant(0.5))(
    side=constant("before")
)
call("Trajectory.parameters", lambda n: run().parameters(n), n=constant(1))
call("Trajectory.point", lambda t: run().point(t) and None, t=constant(0.5))
call("Trajectory.point_at", lambda n: run().point_at(n) and None, n=constant(1))
call("Trajectory.step", lambda n: run().step(n) and None, n=constant(1))
call("Trajectory.destroy", lambda: ds.solve(decay(), [1.0], [0.5], STEPS).destroy())
call(
    "functional.solve_batch",
    lambda **arguments: ensemble_numbers(ds.functional.solve_batch(**arguments)),
    problem=decay,
    u0=lambda: [1.0],
    p=lambda: [[0.5], [1.0]],
    stepping=constant(STEPS),
)(objective=last, t_eval=lambda: [0.5], gradients=constant(True), comm=constant(MPI.COMM_SELF))
call(
    "problem.PiecewiseConstant",
    lambda **arguments: ds.problem.PiecewiseConstant(**arguments)(0.5, np.ones(2)),
    breaks=lambda: [0.0, 0.5, 1.0],
)(components=constant(1))
call(
    "problem.PiecewiseLinear",
    lambda **arguments: ds.problem.PiecewiseLinear(**arguments)(0.5, np.ones(2)),
    knots=lambda: [0.0, 1.0],
)(components=constant(1))
call(
    "problem.Spline",
    lambda **arguments: ds.problem.Spline(**arguments)(0.5, np.ones(3)),
    knots=lambda: [0.0, 1.0, 2.0],
    degree=constant(1),
)(components=constant(1))
call(
    "Spline.call",
    lambda **arguments: ds.problem.Spline([0.0, 1.0, 2.0], 1)(**arguments),
    t=constant(0.5),
    coefficients=lambda: [1.0, 2.0, 3.0],
)
call(
    "Spline.gradient", lambda t: ds.problem.Spline([0.0, 1.0, 2.0], 1).gradient(t), t=constant(0.5)
)
call(
    "Spline.names",
    lambda first: ds.problem.Spline([0.0, 1.0, 2.0], 1).names(first),
    first=constant("heat"),
)

# ---- costs ---------------------------------------------------------------------------------------

DERIVATIVES = {
    "gradient_u": lambda: lambda t, u, p: np.ones(1),
    "gradient_p": constant("independent"),
    "hessian_product": lambda: lambda t, u, p, du, dp: (np.zeros(1), np.zeros(1)),
}
call(
    "Terminal",
    lambda **arguments: cost_of(ds.Terminal(**arguments)),
    value=lambda: lambda t, u, p: u[0],
)(**DERIVATIVES, value_t=constant("autonomous"))
call(
    "Running",
    lambda **arguments: cost_of(ds.Running(**arguments)),
    density=lambda: lambda t, u, p: u[0],
)(**DERIVATIVES, density_t=constant("autonomous"))
call(
    "LeastSquares",
    lambda **arguments: cost_of(ds.LeastSquares(**arguments)),
    times=lambda: [0.5, 1.0],
    data=lambda: [0.7, 0.5],
)(
    sigma=constant(0.1),
    observe=lambda: lambda t, u, p: u,
    observe_u=lambda: lambda t, u, p: np.eye(1),
    observe_p=lambda: lambda t, u, p: np.zeros((1, 1)),
    side=constant("before"),
    scale=constant("linear"),
)
call("Prior", lambda **arguments: cost_of(ds.Prior(**arguments)), mean=lambda: [0.5])(
    sigma=constant(0.1), names=lambda: ["rate"], scale=constant("log")
)
call(
    "costs.AtEvent",
    lambda **arguments: cost_of(ds.costs.AtEvent(**arguments), run_with_events()),
    value=lambda: lambda t, u, p: u[1],
    event=constant("bounce"),
)(
    number=constant(0),
    side=constant("after"),
    gradient_u=lambda: lambda t, u, p: np.array([0.0, 1.0]),
    gradient_p=constant("independent"),
    value_t=constant("autonomous"),
)
call(
    "costs.EventTime",
    lambda **arguments: cost_of(ds.costs.EventTime(**arguments), run_with_events()),
    event=constant("bounce"),
)(number=constant(0))
call(
    "costs.EventData",
    lambda **arguments: cost_of(ds.costs.EventData(**arguments), run_with_events()),
    event=constant("bounce"),
    data=lambda: [0.45],
)(
    sigma=constant(0.1),
    observe=lambda: lambda t, u, p: np.array([t]),
    numbers=lambda: [0],
    side=constant("before"),
    observe_t=lambda: lambda t, u, p: np.ones(1),
    observe_u=lambda: lambda t, u, p: np.zeros((1, 2)),
    observe_p=lambda: lambda t, u, p: np.zeros((1, 1)),
)
call("derivatives.evaluate", ds.derivatives.evaluate, trajectory=run, objective=last)

# ---- derivatives ---------------------------------------------------------------------------------


def first(gradient: Any) -> Any:
    every = gradient if isinstance(gradient, list) else [gradient]
    return [(entry.value, entry.u0, entry.p) for entry in every]


def second(product: Any) -> Any:
    every = product if isinstance(product, list) else [product]
    return [(entry.u0, entry.p) for entry in every]


def states(tangent: Any) -> Any:
    every = tangent if isinstance(tangent, list) else [tangent]
    return [[state.getArray().copy() for state in entry.states] for entry in every]


def matrices(products: Any) -> Any:
    every = products if isinstance(products, list) else [products]
    return [(entry.u0, entry.p) for entry in every]


for kind, trajectory in (
    ("", run),
    (" with events", run_with_events),
    (", implicit", implicit_run),
):
    unknowns = 2 if "events" in kind else 1
    dp, du0 = (lambda: [1.0]), functools.partial(np.ones, unknowns)
    call(
        f"adjoint{kind}", lambda **a: first(ds.adjoint(**a)), trajectory=trajectory, objective=last
    )(engine=constant("vectors"))
    call(f"tangent{kind}", lambda **a: states(ds.tangent(**a)), trajectory=trajectory, dp=dp)(
        du0=du0, engine=constant("vectors")
    )
    call(
        f"sensitivities{kind}", lambda **a: matrices(ds.sensitivities(**a)), trajectory=trajectory
    )(t=constant(1.0), with_respect_to=lambda: ["u0"], engine=constant("vectors"))
    call(
        f"hessian_product{kind}",
        lambda **a: second(ds.hessian_product(**a)),
        trajectory=trajectory,
        objective=last,
        dp=dp,
    )(du0=du0, engine=constant("vectors"))
    call(
        f"verify.duality{kind}",
        lambda **a: ds.verify.duality(**a),
        trajectory=trajectory,
        objective=last,
    )(seed=constant(1))
call(
    "derivatives.at_fixed_times",
    lambda tangent: ds.derivatives.at_fixed_times(tangent),
    tangent=direction,
)
call("Tangent.at", lambda t: direction().at(t), t=constant(0.5))
call("Tangent.moved", lambda n: direction().moved(n), n=constant(1))
call("Tangent.derivative", lambda objective: direction().derivative(objective), objective=last)
call(
    "derivatives.derivative_error",
    lambda **a: ds.derivatives.derivative_error(**a).relative,
    trajectory=run,
    objective=last,
)(du0=lambda: [1.0], dp=lambda: [1.0], engine=constant("vectors"))
call(
    "derivatives.plan",
    lambda **a: ds.derivatives.plan(**a) and None,
    problem=decay,
    u0=lambda: [1.0],
    p=lambda: [0.5],
    stepping=constant(STEPS),
)(memory=constant(1e6))
call(
    "derivatives.gauss_newton_product",
    lambda **a: second(ds.derivatives.gauss_newton_product(**a)),
    trajectory=run,
    objective=misfit,
    dp=lambda: [1.0],
)(du0=lambda: [1.0], engine=constant("vectors"))

# ---- events --------------------------------------------------------------------------------------

call(
    "Event",
    lambda **arguments: used(
        ds.ODE(lambda t, u, p: -p[0] * u, 1, ["rate"], events=[ds.Event(**arguments)]), [1.0], [0.5]
    ),
    when=lambda: lambda t, u, p: u[0] - 0.8,
)(
    reset=lambda: lambda t, u, p: u + 1.0,
    direction=constant(-1),
    terminal=constant(False),
    mode=constant(None),
    within=constant(()),
    name=constant("event"),
    when_u=lambda: lambda t, u, p: np.ones(1),
    when_p=constant("independent"),
    when_t=constant("autonomous"),
    reset_u=lambda: lambda t, u, p: np.eye(1),
    reset_p=lambda: lambda t, u, p: np.zeros((1, 1)),
    reset_t=constant("autonomous"),
    changes=lambda: {"rate": lambda t, u, p: 1.0},
    twice=constant("refuse"),
    late=constant("refuse"),
)
call(
    "Event at a time",
    lambda **arguments: used(
        ds.ODE(lambda t, u, p: -p[0] * u, 1, ["rate"], events=[ds.Event(**arguments)]), [1.0], [0.5]
    ),
    when=constant(0.3),
)(
    reset=lambda: lambda t, u, p: u + 1.0,
    changes=lambda: {"rate": lambda t, u, p: 1.0},
    terminal=constant(False),
    late=constant("ignore"),
)
call("Event.active", lambda mode: ds.Event(0.5, within=["on"]).active(mode), mode=constant("on"))
call(
    "problem.NamedEvent",
    lambda **arguments: used(
        ds.problem.with_events(pair(), [ds.problem.NamedEvent(**arguments)]), [1.0, 0.0], [1.0, 0.1]
    ),
    kind=constant("impulse"),
    options=lambda: {"at": 0.5, "add": {"v": 1.0}},
)
call(
    "problem.System",
    lambda **arguments: ds.problem.System(**arguments) and None,
    unknowns=lambda: ["x", "v"],
)(
    parameters=lambda: ["a", "b"],
    modes=lambda: ["on", "off"],
    style=constant("numpy"),
    field_parameter=constant(False),
)
call("System.index", lambda unknown: system().index(unknown), unknown=constant("x"))
call("System.name", lambda index: system().name(index), index=constant(0))
call("System.quantity", lambda value: system().quantity(value) and None, value=constant("a"))
call("System.check_mode", lambda mode: modal_system().check_mode(mode), mode=constant("on"))
call(
    "problem.events_named",
    lambda **a: ds.problem.events_named(**a) and None,
    entries=lambda: [{"kind": "impulse", "at": 0.5, "add": {"v": 1.0}}],
    system=system,
)
call(
    "problem.with_events",
    lambda **a: used(ds.problem.with_events(**a), [1.0, 0.0], [1.0, 0.1]),
    problem=pair,
    entries=lambda: [{"kind": "impulse", "at": 0.5, "add": {"v": 1.0}}],
)(system=system)
call(
    "problem.saturated",
    lambda **a: used(ds.problem.saturated(**a), [1.0, 0.0], [1.0, 0.1]),
    problem=pair,
    component=constant("x"),
    lower=constant(-2.0),
)(upper=constant(2.0), system=system)
call(
    "problem.Doses",
    lambda **a: used(ds.problem.with_doses(decay(), ds.problem.Doses(**a)), [0.0], [0.5]),
    table=lambda: {"time": [0.0, 0.5], "amount": [1.0, 2.0]},
)(bioavailability=constant(0.5), lag=constant(0.1))
for column, value in (
    ("time", lambda: [0.0, 0.5]),
    ("amount", lambda: [1.0, 2.0]),
    ("duration", lambda: [0.0, 0.2]),
    ("compartment", lambda: [0, 0]),
):
    call(
        f"problem.Doses of {column}",
        lambda name=column, **a: used(
            ds.problem.with_doses(
                decay(), ds.problem.Doses({"time": [0.0, 0.5], "amount": [1.0, 2.0], **a})
            ),
            [0.0],
            [0.5],
        ),
        **{column: value},
    )
call(
    "problem.with_doses",
    lambda **a: used(ds.problem.with_doses(**a), [0.0], [0.5]),
    problem=decay,
    doses=lambda: {"time": [0.0, 0.5], "amount": [1.0, 2.0]},
)
KINDS: dict[str, dict[str, Callable[[], Any]]] = {
    "impact": {
        "position": constant("x"),
        "speed": constant("v"),
        "floor": constant(0.0),
        "restitution": constant(0.8),
        "side": constant("above"),
        "name": constant("hit"),
    },
    "impulse": {"at": constant(0.5), "add": lambda: {"v": 1.0}, "multiply": lambda: {"x": 2.0}},
    "fault": {
        "start": constant(0.2),
        "end": constant(0.4),
        "mode": constant("off"),
        "cleared": constant("on"),
    },
    "hysteresis": {
        "component": constant("x"),
        "upper": constant(1.0),
        "lower": constant(-1.0),
        "above": constant("on"),
        "below": constant("off"),
    },
    "threshold": {
        "component": constant("x"),
        "level": constant(0.5),
        "direction": constant("falling"),
        "multiply": lambda: {"v": 0.5},
        "name": constant("threshold"),
    },
    "saturation": {"component": constant("x"), "lower": constant(-1.0), "upper": constant(1.0)},
}
for kind, options in KINDS.items():
    call(
        f"event_kinds.{kind}",
        lambda kind=kind, **a: (
            ds.problem.with_events(
                modal() if kind in ("fault", "hysteresis") else pair(), [{"kind": kind, **a}]
            )
            and None
        ),
        **options,
    )

# ---- optimisation --------------------------------------------------------------------------------

call(
    "Parameter",
    lambda **a: ds.Reduced(
        decay(), misfit(), STEPS, ds.Parameters({"rate": ds.Parameter(**a)}, initial_state=[1.0])
    ).value([0.5]),
    value=constant(0.5),
)(free=constant(True), lower=constant(0.0), upper=constant(2.0), scale=constant("linear"))
call(
    "Parameters",
    lambda **a: ds.Reduced(decay(), misfit(), STEPS, ds.Parameters(**a)).value([0.5]),
    values=lambda: {"rate": ds.Parameter(0.5)},
    initial_state=lambda: [1.0],
)(
    initial_state_p=constant(None),
    initial_state_hessian=constant(None),
    consistent=constant(False),
    stepping=constant(None),
    own=constant(None),
)
call(
    "Parameters of a start",
    lambda **a: ds.Reduced(
        decay(), misfit(), STEPS, ds.Parameters({"rate": ds.Parameter(0.5)}, **a)
    ).gradient([0.5]),
    initial_state=lambda: lambda p: np.array([1.0 + p[0]]),
)(initial_state_p=lambda: lambda p: np.ones((1, 1)))
call(
    "Parameters.values_at", lambda **a: rates().values_at(**a), problem=decay, x=lambda: vec([0.5])
)
call("Parameters.estimates_at", lambda x: rates().estimates_at(x), x=lambda: vec([0.5]))
call("Parameters.entry_of", lambda name: rates().entry_of(name), name=constant("rate"))
call(
    "functional.InitialState",
    lambda **a: ds.Reduced(decay(), misfit(), STEPS, ds.functional.InitialState(**a)).gradient(
        [1.0]
    ),
    start_value=lambda: [1.0],
    p=lambda: [0.5],
)(lower=constant(0.0), upper=constant(2.0), consistent=constant(False), stepping=constant(None))
call(
    "functional.FieldParameters",
    lambda **a: ds.functional.FieldParameters(**a).start(heat_of_field()).array,
    values=lambda: {"loss": ds.Parameter(0.5), "k": ds.Parameter(0.01, lower=0.0)},
    initial_state=lambda: np.ones(16),
)(meshes=lambda: {"k": grids.Grid(grid().box, (3, 3), "zero", comm=PETSc.COMM_SELF)})
call(
    "functional.FieldParameter",
    lambda **a: ds.functional.FieldParameter(**a).start(
        ds.ODE(lambda t, u, p: -p * u, 1, vec([0.5]))
    ),
    start_value=lambda: vec([0.5]),
    initial_state=lambda: [1.0],
)(lower=constant(0.0), upper=constant(2.0))
call(
    "functional.Joint",
    lambda experiments: ds.functional.Joint(experiments).value([0.5]),
    experiments=lambda: [reduced()],
)
call(
    "Reduced",
    lambda **a: ds.Reduced(**a).gradient([0.5]),
    problem=decay,
    objective=misfit,
    stepping=constant(STEPS),
    control=rates,
)(engine=constant("vectors"), checkpoint=constant("auto"))
for name, functional in (("Reduced", reduced), ("Joint", joint)):
    for method in (
        "value",
        "gradient",
        "value_and_gradient",
        "gauss_newton_matrix",
        "hessian",
        "residual",
        "residual_jacobian",
        "point",
    ):
        call(
            f"{name}.{method}",
            lambda x, of=functional, method=method: getattr(of(), method)(x),
            x=lambda: [0.5],
        )
    for method in ("derivative", "hessian_product", "gauss_newton_product"):
        call(
            f"{name}.{method}",
            lambda x, dx, of=functional, method=method: getattr(of(), method)(x, dx),
            x=lambda: [0.5],
            dx=lambda: [1.0],
        )
call("Reduced.trajectory", lambda x: reduced().trajectory(x).u, x=lambda: [0.5])
call(
    "Reduced.hessian_products",
    lambda **a: reduced().hessian_products(**a),
    x=lambda: [0.5],
    directions=lambda: [[1.0], [2.0]],
)
call(
    "Reduced.tangents",
    lambda **a: states(reduced().tangents(**a)),
    x=lambda: [0.5],
    directions=lambda: [[1.0], [2.0]],
)
call(
    "minimize",
    lambda **a: optimum_numbers(ds.minimize(**a)),
    functional=reduced,
    method=constant("blmvm"),
)(
    x0=lambda: [0.4],
    bounds=lambda: ([0.1], [2.0]),
    gradient_tolerance=constant(1e-6),
    relative_gradient_tolerance=constant(1e-6),
    value_tolerance=constant(0.0),
    scaled_gradient_tolerance=constant(0.0),
    predicted_decrease_tolerance=constant(0.0),
    typical=lambda: ([1.0], 1.0),
    hessian=constant("exact"),
    preconditioner=constant("auto"),
    max_iterations=constant(20),
    restart=constant("restart.h5"),
    options=lambda: {"tao_max_funcs": 100},
    progress=constant(False),
    discretization=constant(False),
)
call(
    "minimize under constraints",
    lambda **a: optimum_numbers(ds.minimize(reduced(), **a)),
    constraints=lambda: ds.Constraint(lambda x: x[0], upper=0.6),
    method=constant("almm"),
)(constraint_tolerance=constant(1e-6), max_iterations=constant(50), x0=lambda: [0.4])
call(
    "Constraint",
    lambda **a: optimum_numbers(
        ds.minimize(
            ds.Reduced(decay(), misfit(), STEPS, ds.Parameters({"rate": ds.Parameter(0.5)}, [1.0])),
            constraints=ds.Constraint(**a),
            method="almm",
            max_iterations=20,
        )
    ),
    what=lambda: lambda x: x[0],
    upper=constant(0.6),
)(
    lower=constant(0.0),
    equals=constant(None),
    name=constant("low"),
    parameters=constant(None),
    jacobian=constant(None),
    hessian=constant(None),
    scale=constant(1.0),
)
call(
    "optimize.scipy_functions",
    lambda functional: ds.optimize.scipy_functions(functional) and None,
    functional=reduced,
)
for member in ("fun", "jac"):
    call(
        f"scipy_functions.{member}",
        lambda x, member=member: getattr(ds.optimize.scipy_functions(reduced()), member)(x),
        x=lambda: np.array([0.5]),
    )
call(
    "scipy_functions.hessp",
    lambda x, v: ds.optimize.scipy_functions(reduced()).hessp(x, v),
    x=lambda: np.array([0.5]),
    v=lambda: np.array([1.0]),
)

# ---- inverse problems ----------------------------------------------------------------------------

OBSERVED: dict[str, Callable[[], Any]] = {
    "times": constant("time"),
    "columns": lambda: ["mass"],
    "observe": lambda: [0],
    "side": constant(None),
    "doses": constant(None),
    "noise": lambda: ds.inverse.Normal(0.1),
    "priors": lambda: ds.Prior([0.5]),
}
call(
    "fit",
    lambda **a: fit_numbers(ds.fit(**a)),
    problem=decay,
    data=lambda: dict(DATA),
    parameters=rates,
    stepping=constant(STEPS),
)(
    **OBSERVED,
    observe_u=constant(None),
    observe_p=constant(None),
    hessian=constant("exact"),
    method=constant("bnls"),
    gradient_tolerance=constant(1e-6),
    max_iterations=constant(20),
    options=lambda: {"tao_max_funcs": 100},
    start=constant("given"),
    windows=constant(None),
    starts=constant(1),
    seed=constant(0),
    comm=constant(MPI.COMM_SELF),
    folder=constant("fit"),
    progress=constant(False),
)
for column, value in (("time", lambda: [0.25, 0.5, 1.0]), ("mass", lambda: [0.9, 0.74, 0.61])):
    call(
        f"fit of {column}",
        lambda **a: fit_numbers(
            ds.fit(
                decay(), {"time": [0.25, 0.5, 1.0], "mass": [0.9, 0.74, 0.61], **a}, rates(), STEPS
            )
        ),
        **{column: value},
    )
call(
    "Experiment",
    lambda **a: fit_numbers(ds.fit(decay(), [ds.Experiment(**a)], rates())),
    data=lambda: dict(DATA),
    stepping=constant(STEPS),
)(
    initial_state=lambda: [1.0],
    parameters=lambda: {"rate": ds.Parameter(0.4)},
    times=constant("time"),
    name=constant("first"),
    doses=constant(None),
)
call(
    "inverse.likelihood",
    lambda **a: ds.inverse.likelihood(**a).value([0.5, 0.1][:1]),
    problem=decay,
    data=lambda: dict(DATA),
    parameters=rates,
    stepping=constant(STEPS),
)(**OBSERVED)
call(
    "inverse.save_fit",
    lambda **a: ds.inverse.save_fit(**a),
    fitted=fitted,
    path=constant("fit.h5"),
)


def load_fit(**arguments: Any) -> Any:
    ds.inverse.save_fit(fitted(), "fit.h5")
    return fit_numbers(ds.inverse.load_fit(**arguments))


call("inverse.load_fit", load_fit, path=constant("fit.h5"))()
call(
    "inverse.load_fit with its model",
    load_fit,
    path=constant("fit.h5"),
    problem=decay,
    data=lambda: dict(DATA),
    parameters=rates,
    stepping=constant(STEPS),
)(**{name: value for name, value in OBSERVED.items() if name != "noise"} | {"priors": constant(())})
for kind in ("Normal", "LogNormal"):
    call(
        f"inverse.{kind}",
        lambda kind=kind, **a: fit_numbers(
            ds.fit(decay(), DATA, rates(), STEPS, noise=getattr(ds.inverse, kind)(**a))
        ),
    )(sigma=constant(0.1), each_column=constant(False), prior=constant(None))
call("Fit.intervals", lambda **a: fitted().intervals(**a) and None)(level=constant(0.9))
call("Fit.prediction", lambda **a: fitted().prediction(**a).value, times=lambda: [0.5, 1.5])(
    output=lambda: lambda t, u, p: u,
    noise=constant(0.1),
    level=constant(0.9),
    experiment=constant(0),
    side=constant(None),
)
call("Fit.profile", lambda **a: fitted().profile(**a) and None)(
    names=lambda: ["rate"],
    level=constant(0.9),
    points=constant(2),
    reach=constant(2.0),
    tolerance=constant(0.01),
    method=constant("bnls"),
)
call(
    "inverse.covariance",
    lambda **a: ds.inverse.covariance(**a).x,
    functional=reduced,
    x=lambda: [0.55],
)(
    hessian=constant("gauss_newton"),
    variance=constant(1.0),
    degrees_of_freedom=constant(5.0),
    tolerance=constant(1e-10),
)
call("Covariance.error", lambda name: estimate().error(name), name=constant("rate"))
call("Covariance.quantile", lambda **a: estimate().quantile(**a))(level=constant(0.9))
call("Covariance.intervals", lambda **a: estimate().intervals(**a) and None)(level=constant(0.9))
call(
    "inverse.identifiability",
    lambda **a: ds.inverse.identifiability(**a) and None,
    hessian=lambda: [[2.0, 1.0], [1.0, 2.0]],
    names=lambda: ["a", "b"],
)(scales=lambda: ["linear", "log"], tolerance=constant(1e-8))
call(
    "inverse.predict",
    lambda **a: ds.inverse.predict(**a).value,
    model=reduced,
    estimate=estimate,
    times=lambda: [0.5],
)(
    observe=lambda: [0],
    observe_u=constant(None),
    observe_p=constant(None),
    noise=constant(0.1),
    scale=constant("linear"),
    level=constant(0.9),
    side=constant(None),
)
call(
    "inverse.profile",
    lambda **a: ds.inverse.profile(**a) and None,
    functional=reduced,
    estimate=estimate,
)(
    names=lambda: ["rate"],
    level=constant(0.9),
    threshold=constant(1.0),
    points=constant(2),
    reach=constant(2.0),
    tolerance=constant(0.01),
    method=constant("bnls"),
    max_iterations=constant(20),
)
call(
    "inverse.multistart",
    lambda **a: ds.inverse.multistart(**a).best.x,
    build=lambda: lambda comm: reduced(),
    starts=lambda: [[0.4], [0.6]],
    method=constant("bnls"),
)(
    comm=constant(MPI.COMM_SELF),
    ranks_per_start=constant(1),
    folder=constant("starts"),
    bounds=constant((0.1, 2.0)),
    hessian=constant("exact"),
    gradient_tolerance=constant(1e-6),
    relative_gradient_tolerance=constant(0.0),
    value_tolerance=constant(0.0),
    max_iterations=constant(20),
    options=lambda: {"tao_max_funcs": 100},
)
call("Multistart.n_at_best", lambda **a: starts().n_at_best(**a))(tolerance=constant(0.1))
call(
    "inverse.starting_points",
    lambda **a: ds.inverse.starting_points(**a),
    functional=reduced,
    count=constant(3),
)(
    names=lambda: ["rate"],
    normal=lambda: {0: (0.5, 0.1)},
    sampling=constant("sobol"),
    seed=constant(1),
)
call(
    "inverse.joint_prior",
    lambda **a: ds.inverse.joint_prior(**a).mean.array,
    functional=lambda: of_field(),
    priors=lambda: {"loss": (0.5, 0.1), "k": ds.inverse.GaussianPrior(vec([0.0] * 16))},
)(options=lambda: {"ksp_type": "cg"})
call(
    "inverse.FieldPenalty",
    lambda **a: ds.inverse.FieldPenalty(**a).value(of_field().start()),
    functional=lambda: of_field(),
    name=constant("k"),
    density=lambda: lambda q: q.center[0] ** 2,
)(weight=constant(2.0))
call(
    "inverse.total_variation",
    lambda **a: ds.inverse.total_variation(**a).value(of_field().start()),
    functional=lambda: of_field(),
    name=constant("k"),
    smoothing=constant(0.1),
)(weight=constant(2.0))
call(
    "inverse.matern",
    lambda **a: ds.inverse.matern(**a).sample(1),
    grid=periodic,
    mean=lambda: periodic().create_vec(),
    sigma=constant(0.5),
    length=constant(0.3),
)
call(
    "inverse.GaussianPrior",
    lambda **a: ds.inverse.GaussianPrior(**a).trace(),
    mean=lambda: vec([0.5, 1.0]),
)(operator=constant(None), weight=constant(4.0), options=lambda: {"ksp_rtol": 1e-8})
for method in ("apply", "solve", "root", "root_solve"):
    call(
        f"GaussianPrior.{method}",
        lambda v, method=method: getattr(prior(), method)(v),
        v=lambda: vec([1.0]),
    )
for method in ("value", "squared_distance", "gradient"):
    call(
        f"GaussianPrior.{method}",
        lambda x, method=method: getattr(prior(), method)(x),
        x=lambda: vec([1.0]),
    )
call("GaussianPrior.sample", lambda seed: matern().sample(seed), seed=constant(1))
call("GaussianPrior.variance", lambda **a: matern().variance(**a))(
    samples=constant(2), seed=constant(1)
)
call(
    "inverse.Regularized",
    lambda **a: ds.inverse.Regularized(**a).value(vec([0.5])),
    misfit=reduced,
    prior=prior,
)
for method in ("value", "gradient", "value_and_gradient"):
    call(
        f"Regularized.{method}",
        lambda x, method=method: getattr(ds.inverse.Regularized(reduced(), prior()), method)(x),
        x=lambda: vec([0.5]),
    )
call(
    "inverse.laplace",
    lambda **a: ds.inverse.laplace(**a).variance(),
    misfit=reduced,
    x=lambda: [0.5],
    prior=prior,
)(
    rank=constant(1),
    hessian=constant("exact"),
    cutoff=constant(0.1),
    oversampling=constant(5),
    seed=constant(1),
)
call(
    "Posterior.covariance_product",
    lambda v: posterior().covariance_product(v),
    v=lambda: vec([1.0]),
)
call("Posterior.shape", lambda noise: posterior().shape(noise), noise=lambda: vec([1.0]))
call("Posterior.sample", lambda seed: posterior().sample(seed), seed=constant(1))
call("Posterior.variance", lambda **a: posterior().variance(**a))(
    prior_variance=lambda: vec([0.25])
)
call("Posterior.trace", lambda **a: posterior().trace(**a))(prior_trace=constant(0.25))

# ---- estimation without a good guess -------------------------------------------------------------

call(
    "inverse.bilevel",
    lambda **a: ds.inverse.bilevel(**a).estimate,
    model=traced,
    data=lambda: {"t": np.linspace(0.0, 2.0, 21), "u": np.exp(-0.5 * np.linspace(0.0, 2.0, 21))},
    parameters=lambda: {"rate": ds.Parameter(1.0)},
)(
    times=constant("t"),
    columns=lambda: ["u"],
    observe=constant(None),
    linear=lambda: ["rate"],
    interpolant=constant("cubic"),
    nodes=constant(3),
    block=constant(0),
    sigma=constant(0.1),
    ridge=constant(0.0),
    equalities=constant(()),
    inequalities=constant(()),
    starts=constant(1),
    decades=constant(1.0),
    seed=constant(0),
    gradient_tolerance=constant(1e-8),
    max_iterations=constant(20),
    comm=constant(MPI.COMM_SELF),
)
call(
    "inverse.Term",
    lambda **a: (
        ds.inverse.Discovery(
            [ds.inverse.Term(**a), *ds.inverse.polynomials(["x", "y"], 1)], threshold=0.01
        )
        .fit(circle_data())
        .estimate
    ),
    name=constant("x y"),
    value=lambda: lambda t, u, p: u[0] * u[1],
)
call(
    "inverse.polynomials",
    lambda **a: ds.inverse.polynomials(**a) and None,
    unknowns=lambda: ["x", "y"],
)(degree=constant(2))


class Library:
    """Has the interface of PySINDy's."""

    def fit(self, states: Any) -> Any:
        return self

    def transform(self, states: Any) -> Any:
        return np.asarray(states)

    def get_feature_names(self, names: Any) -> Any:
        return list(names)


call(
    "inverse.feature_library",
    lambda **a: ds.inverse.feature_library(**a) and None,
    library=Library,
    unknowns=lambda: ["x", "y"],
    states=lambda: np.ones((3, 2)),
)
call(
    "inverse.Discovery",
    lambda **a: ds.inverse.Discovery(**a).fit(circle_data()).estimate,
    library=lambda: ds.inverse.polynomials(["x", "y"], 1),
)(
    stoichiometry=constant(None),
    parameters=constant({}),
    threshold=constant(0.01),
    criterion=constant("aic"),
    equalities=constant(()),
    inequalities=constant(()),
    ridge=constant(1e-12),
    interpolant=constant("cubic"),
    block=constant(0),
    sigma=constant(None),
    starts=constant(1),
)
call(
    "Discovery.fit",
    lambda **a: (
        ds.inverse.Discovery(ds.inverse.polynomials(["x", "y"], 1), threshold=0.01)
        .fit(**a)
        .estimate
    ),
    data=circle_data,
)(columns=lambda: ["x", "y"])
call(
    "Discovery.ensemble",
    lambda **a: (
        ds.inverse.Discovery(ds.inverse.polynomials(["x", "y"], 1), threshold=0.01)
        .ensemble(**a)
        .inclusion
    ),
    data=circle_data,
)(
    columns=lambda: ["x", "y"],
    members=constant(2),
    part=constant(0.7),
    votes=constant(0.5),
    seed=constant(0),
)
call("Discovered.predict", lambda **a: discovered().predict(**a), states=lambda: np.ones((3, 2)))(
    times=lambda: np.arange(3.0)
)
call(
    "Discovered.score",
    lambda **a: discovered().score(**a),
    states=lambda: np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]),
    rates=lambda: np.eye(3)[:, :2],
)(times=lambda: np.arange(3.0))
call(
    "Discovered.parameters",
    lambda initial_state: discovered().parameters(initial_state) and None,
    initial_state=lambda: [1.0, 0.0],
)

# ---- checks --------------------------------------------------------------------------------------

call("check", lambda **a: ds.check(**a) and None, problem=decay, u0=lambda: [1.0], p=lambda: [0.5])(
    t=constant(0.0),
    udot=constant(None),
    objective=last,
    control=rates,
    seed=constant(1),
    tolerance=constant(1e-5),
)
call("taylor", lambda **a: ds.taylor(**a).remainders, functional=reduced)(
    x=lambda: [0.5],
    direction=lambda: [1.0],
    epsilons=lambda: [1e-2, 1e-3],
    seed=constant(1),
    hessian=constant(True),
)

# ---- grids, files, figures -----------------------------------------------------------------------

call(
    "grids.Grid",
    lambda **a: grids.Grid(**a).create_vec(),
    box=lambda: ((0.0, 1.0), (0.0, 1.0)),
    shape=constant((4, 4)),
)(boundary=constant("zero"), dof=constant(1), comm=constant(PETSc.COMM_SELF))
call(
    "pdes.heat",
    lambda **a: ds.solve(pdes.heat(**a), pdes.first_mode(grid()), [0.01], STEPS).u,
    grid=grid,
)
call("pdes.first_mode", lambda grid: pdes.first_mode(grid), grid=grid)


@functools.cache
def two_fields() -> Any:
    return grids.Grid(((0.0, 2.0), (0.0, 2.0)), (8, 8), dof=2, comm=PETSc.COMM_SELF)


call(
    "pdes.gray_scott",
    lambda **a: ds.solve(pdes.gray_scott(**a), pdes.spots(two_fields()), [], STEPS).u,
    grid=two_fields,
)(
    D1=constant(8e-5),
    D2=constant(4e-5),
    gamma=constant(0.024),
    kappa=constant(0.06),
    parameters=constant(()),
)
call("pdes.spots", lambda **a: pdes.spots(**a), grid=two_fields)(waves=constant(4.0))
call(
    "grids.stencil_matrix",
    lambda **a: grids.stencil_matrix(**a) and None,
    grid=grid,
    entries=lambda: [(0, 0, (0, 0)), (0, 0, (1, 0))],
)(by_points=constant(False))
call("io.read_table", lambda path: ds.io.read_table(path).names, path=constant("table.csv"))
call("Table.column", lambda name: ds.io.read_table("table.csv").column(name), name=constant("time"))
call("Table.select", lambda name: ds.io.read_table("table.csv").select(name), name=constant("time"))
call(
    "io.open_results",
    lambda **a: ds.io.open_results(**a) and None,
    folder=constant("results"),
    comm=constant(MPI.COMM_SELF),
)(config_text=constant(""), run=constant(None), restart=constant(False))


def results() -> Any:
    return ds.io.open_results("results", MPI.COMM_SELF)


call("Results.path", lambda name: results().path(name), name=constant("a.png"))
call("Results.restart", lambda name: results().restart(name), name=constant("fit"))
call("Results.restart_folder", lambda name: results().restart_folder(name), name=constant("fit"))
call("Results.log", lambda text: results().log(text), text=constant("begin"))
call(
    "Results.record",
    lambda name, value: results().record(name, value),
    name=constant("value"),
    value=constant(1.0),
)
call(
    "Results.write",
    lambda name, values: results().write(name, values),
    name=constant("state"),
    values=lambda: np.ones(2),
)


def once(action: Any) -> None:
    results().once(action)  # what it returns is its user's


call("Results.once", once, action=lambda: lambda: 1.0)


def written() -> Any:
    folder = results()
    folder.write("state", np.ones(2))
    return folder


call("Results.array", lambda name: written().array(name), name=constant("state"))
call(
    "Results.read",
    lambda name, out: written().read(name, out),
    name=constant("state"),
    out=lambda: vec([0.0, 0.0]),
)
call(
    "io.Snapshot",
    lambda **a: ds.io.write_xdmf(
        "a.xdmf", "a.h5", ds.io.UniformGrid((0.1, 0.1)), [ds.io.Snapshot(**a)]
    ),
    time=constant(0.5),
    fields=lambda: {"u": "state"},
)
call(
    "io.UniformGrid",
    lambda **a: ds.io.write_xdmf(
        "a.xdmf", "a.h5", ds.io.UniformGrid(**a), [ds.io.Snapshot(0.5, {"u": "state"})]
    ),
    spacing=constant((0.1, 0.1)),
)(origin=constant((0.0, 0.0)))
call(
    "io.write_xdmf",
    lambda **a: ds.io.write_xdmf(**a),
    path=constant("a.xdmf"),
    hdf5=constant("a.h5"),
    grid=lambda: ds.io.UniformGrid((0.1, 0.1)),
    snapshots=lambda: [
        ds.io.Snapshot(0.5, {"u": "state"})
    ],  # a.h5 has no run, whose states these are
)(components=constant(()))
call("io.between", lambda **a: ds.io.between(**a) and None)(least=constant(0.0), most=constant(1.0))
call("io.length", lambda **a: ds.io.length(**a) and None, least=constant(1))

# what the package makes and users only look at
MADE_FOR_USERS = frozenset(
    {
        "derivatives.ErrorEstimate",
        "derivatives.Gradient",
        "derivatives.Plan",
        "derivatives.HessianProduct",
        "derivatives.Sensitivities",
        "derivatives.Tangent",
        "functional.Ensemble",
        "inverse.Bilevel",
        "inverse.Covariance",
        "inverse.Discovered",
        "inverse.Discretization",
        "inverse.Fit",
        "inverse.Multistart",
        "inverse.Posterior",
        "inverse.Prediction",
        "inverse.Profile",
        "inverse.Profiles",
        "inverse.SavedFit",
        "inverse.Selected",
        "optimize.ConstrainedResult",
        "optimize.Result",
        "problem.Problem",
        "timestepping.Trajectory",
        "tracing.DAEOModel",
        "tracing.FieldModel",
        "tracing.FieldWeakForm",
        "tracing.LinearDAEOModel",
        "tracing.Model",
        "tracing.Parametrized",
        "tracing.WeakForm",
        "verify.Taylor",
        "errors.DiscretizationWarning",
    }
)


# ---- one call ------------------------------------------------------------------------------------


def has_nan(values: Any) -> bool:
    """Whether there is a NaN among numbers, arrays and vectors."""
    if isinstance(values, PETSc.Vec):
        return bool(np.isnan(values.getArray(readonly=True)).any())
    if isinstance(values, PETSc.Mat):
        return False
    if isinstance(values, Mapping):
        return any(map(has_nan, values.values()))
    if isinstance(values, (tuple, list)):
        return any(map(has_nan, values))
    if isinstance(values, (np.ndarray, float, np.floating)):
        array = np.asarray(values)
        return array.dtype.kind in "fc" and bool(np.isnan(array).any())
    return False


def is_users_own(error: BaseException) -> bool:
    """Whether it comes from a function that the user gave, called by the package."""
    notes: list[str] = getattr(error, "__notes__", [])
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/daeosens/" in frame.filename]
    callers = ("call", "<lambda>", "_built")
    if any(note.startswith("in callback") for note in notes) and ours[-1].name in callers:
        return True  # of a function without lines in Python
    inside = False
    for frame in frames:
        file = Path(frame.filename)
        if "daeosens" in file.parts and "tests" not in file.parts:
            inside = True
        elif inside and file.parent == HERE:
            return True
    # another number of arguments than there are
    return isinstance(error, TypeError) and bool(re.search(r"takes .*argument", str(error)))


def attempt(name: str, odd: Mapping[str, str], left_out: list[str]) -> tuple[str, str]:
    """Do a call: "fine", "refused", "the user's", "NaN", "warning" or "raw", and what was said."""
    entry = CALLS[name]
    arguments = {
        argument: thunk
        for argument, thunk in (*entry.needed.items(), *entry.optional.items())
        if argument not in left_out
    } | {argument: ODD[value] for argument, value in odd.items()}
    values = {argument: thunk() for argument, thunk in arguments.items()}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            value = entry.function(**values)
        except ds.DaeosensError as error:
            return "refused", str(error)
        except BaseException as error:  # noqa: BLE001 (what is looked for)
            text = "".join(traceback.format_exception(error))
            return ("the user's" if is_users_own(error) else "raw"), text
    for warning in told:
        kind = warning.category
        if kind is not UserWarning and not kind.__module__.startswith("daeosens"):
            return "warning", f"{kind.__name__}: {warning.message} ({warning.filename})"
    return ("NaN", repr(value)[:500]) if has_nan(value) else ("fine", "")


def work() -> None:
    """Serve calls until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    answers = os.fdopen(os.dup(1), "w")  # what is printed on the way goes elsewhere
    os.dup2(2, 1)
    with h5py.File("a.h5", "w") as file:
        file["state"] = np.ones((2, 2))
    Path("table.csv").write_text("time,mass\n0.5,1.0\n1.0,0.5\n")
    for line in sys.stdin:
        outcome = attempt(*json.loads(line))
        answers.write(json.dumps(outcome) + "\n")
        answers.flush()


class Worker:
    """A process that does calls; a new one after one that hung or ended."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="daeosens-odd-"))
        self.process: subprocess.Popen[str] | None = None

    def attempt(self, name: str, odd: Mapping[str, str], left_out: list[str]) -> tuple[str, str]:
        """Do a call in the other process: as ``attempt``, or "hang" or "crash"."""
        if self.process is None or self.process.poll() is not None:
            with (self.folder / "errors").open("w") as errors:
                self.process = subprocess.Popen(
                    [sys.executable, "-X", "faulthandler", str(Path(__file__))],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    cwd=self.folder,
                )
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([name, odd, left_out]) + "\n")
        process.stdin.flush()
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        line = process.stdout.readline()
        hung = not timer.is_alive()
        timer.cancel()
        if line:
            kind, text = json.loads(line)
            return kind, text
        process.communicate()
        told = (self.folder / "errors").read_text(errors="replace")
        return ("hang" if hung else "crash"), told[-3000:]

    def close(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    work()
