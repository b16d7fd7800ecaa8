"""Functions of a grid's points without a compiler: equal to the compiled ones everywhere."""

import warnings
from unittest.mock import patch

import numpy as np
import pytest
from fields import close, random_field
from petsc4py import PETSc

from daeosens import SolveError, Stepping, adjoint, hessian_product, solve, trace, trace_stencil
from daeosens.problem.grids import Grid
from daeosens.tracing import execution
from daeosens.tracing.compilation import CompilerError
from daeosens.tracing.pdes import spots
from daeosens.tracing.stencil import interpreted as stencil_interpreted
from daeosens.verify import duality
from tests.tracing.test_stencil_problem import (
    CURVED,
    NAMES,
    POINT,
    VALUES,
    box,
    curved,
    energy,
    far_reaching,
    reaction,
)

SELF = PETSc.COMM_SELF


def pair(rhs, grid, parameters, **options):
    """Return a compiled model and an interpreted one."""
    compiled = trace_stencil(rhs, grid, parameters, **options)
    missing = patch.object(execution, "load", side_effect=CompilerError("there is no C compiler"))
    with missing, patch.object(execution, "_warn"):
        return compiled, trace_stencil(rhs, grid, parameters, **options)


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", ["periodic", "zero"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_every_function_is_the_compiled_one(dimensions, boundary):
    """On several ranks each part is as wide as the points that are read."""
    shape = (26, 17, 14)[:dimensions]
    grid = Grid(((0.0, 1.0),) * dimensions, shape, boundary, dof=2)
    u, w, du = (random_field(grid, seed) for seed in range(3))
    values = []
    for model in pair(curved, grid, CURVED):
        outs = [grid.create_vec() for _ in range(7)]
        of_p = [model.create_parameters() for _ in range(4)]
        model.rhs(0.4, u, POINT, outs[0])
        model.rhs_t(0.4, u, POINT, outs[1])
        by_u, by_p = (value.create(0.4, u, POINT) for value in (model.rhs_u, model.rhs_p))
        model.rhs_u.fill(0.4, u, POINT, by_u)
        model.rhs_p.fill(0.4, u, POINT, by_p)
        by_u.mult(du, outs[2])
        by_u.multTranspose(w, outs[3])
        of_p[0].set(0.3)
        by_p.mult(of_p[0], outs[4])
        by_p.multTranspose(w, of_p[1])
        model.rhs_hessian((0.4, u, POINT), w, (du, POINT), (outs[5], of_p[2]))
        twice = model.rhs_time_hessian((0.4, u, POINT), w, (outs[6], of_p[3]))
        values.append(([*outs, *of_p], twice))
    (compiled, in_time), (interpreted, in_time_too) = values
    assert in_time == pytest.approx(in_time_too, rel=1e-12)
    for mine, other in zip(interpreted, compiled, strict=True):
        assert close(mine, other) < 1e-13


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["rk4", "3bs", "cn"])
def test_runs_and_sweeps_are_the_compiled_ones(method):
    grid = Grid(((0.0, 2.5), (0.0, 2.5)), (13, 11), dof=2)
    values = []
    for model in pair(reaction, grid, NAMES):
        run = solve(model, spots(grid), VALUES, Stepping((0.0, 2.0), method, dt=0.5))
        gradient = adjoint(run, energy(4))
        curvature = hessian_product(run, energy(4), random_field(grid, 4), np.full(4, 1e-3))
        vecs = [gradient.u0_vec, gradient.p_vec, curvature.u0_vec, curvature.p_vec]
        values.append([run.final, *vecs])
        if method == "rk4":
            assert duality(run, energy(4)) < 1e-12
    for compiled, interpreted in zip(*values, strict=True):
        assert close(interpreted, compiled) < 1e-11


@pytest.mark.parametrize("boundary", ["periodic", "zero"])
def test_stages_of_large_grids_follow_each_other_by_rows(boundary):
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (300, 450), boundary, dof=2, comm=SELF)
    values = []
    for model in pair(far_reaching, grid, ["k"]):
        run = solve(model, random_field(grid, 3), [0.7], Stepping((0.0, 0.1), "rk4", dt=0.1))
        gradient = adjoint(run, energy(1))
        values.append([run.final, gradient.u0_vec, gradient.p_vec])
    for compiled, interpreted in zip(*values, strict=True):
        assert close(interpreted, compiled) < 1e-13


def test_the_assembled_matrix_is_the_compiled_one():
    grid = box(2, comm=SELF)
    u, v = random_field(grid, 0), random_field(grid, 1)
    values = []
    for model in pair(curved, grid, CURVED, jacobian="assembled"):
        matrix = model.rhs_u.create(0.4, u, POINT)
        model.rhs_u.fill(0.4, u, POINT, matrix)
        values.append(matrix * v)
    assert close(*values) < 1e-14


def test_a_model_without_parameters():
    grid = box(1, comm=SELF)
    values = []
    for model in pair(lambda t, u, p: -(u.center**3), grid, ()):
        run = solve(model, random_field(grid, 3), [], Stepping((0.0, 0.2), "rk4", dt=0.1))
        values.append(adjoint(run, energy(0)).u0_vec)
    assert close(*values) < 1e-14


def test_one_warning_for_all_that_is_traced(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    execution._warn.cache_clear()
    grid = box(2, comm=SELF)
    with pytest.warns(RuntimeWarning, match=r"without being compiled(.|\n)*try: a C compiler"):
        trace_stencil(reaction, grid, NAMES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace_stencil(reaction, grid, NAMES)
        trace(lambda t, u, p: -p[0] * u, 2, 1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_python_raises_in_a_function_ends_the_run():
    """C cannot be told of it, and goes on with what is not finite."""
    _, model = pair(reaction, Grid(((0.0, 1.0),) * 2, (8, 8), dof=2, comm=SELF), NAMES)
    failing = patch.object(stencil_interpreted._Evaluation, "_values", side_effect=MemoryError)
    stepping = Stepping((0.0, 1.0), "rk4", dt=0.5)
    with failing, pytest.raises(SolveError, match=r"not finite at t = 0\.5"):
        solve(model, model.create_state(), VALUES, stepping)
