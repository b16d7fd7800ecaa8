"""The error that solvers leave in derivatives is estimated, and told where it matters."""

import warnings

import numpy as np
import pytest
from fields import ENERGY
from petsc4py import PETSc

import daeosens as ds
from daeosens.errors import SolverErrorWarning
from daeosens.problem.grids import Grid
from daeosens.verify import duality

SELF = PETSc.COMM_SELF


def allen_cahn(t, u, p):
    return p.k * u.laplacian() - u.center**3 + u.center


def burgers(t, u, p):
    return p.k * u.laplacian() - u.center * sum(u.gradient())


def wave(grid):
    return 2.0 * np.prod([np.sin(np.pi * x) for x in grid.coordinates()], axis=0).ravel()


def taken(rhs, shape, method, options):
    grid = Grid(((0.0, 1.0),) * len(shape), shape, "zero", comm=SELF)
    model = ds.trace_stencil(rhs, grid, ["k"])
    stepping = ds.Stepping((0.0, 0.5), method, dt=0.1, options=options)
    return ds.solve(model, wave(grid), [0.05], stepping)


LOOSE = [{"snes_rtol": 1e-2}, {"snes_rtol": 1e-4}, {"snes_rtol": 1e-6}]


@pytest.mark.slow
@pytest.mark.parametrize("rhs", [allen_cahn, burgers])
@pytest.mark.parametrize("method", ["cn", "beuler", "esdirk3"])
@pytest.mark.parametrize(
    ("shape", "more"), [((200,), []), ((75, 70), [{"ksp_rtol": 1e-7}, {"ksp_rtol": 1e-9}])]
)
def test_estimates_are_as_large_as_errors(rhs, method, shape, more):
    exact = ds.adjoint(taken(rhs, shape, method, {"snes_rtol": 1e-14}), ENERGY)
    assert exact.solver_error < 1e-10
    for options in LOOSE + more:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            gradient = ds.adjoint(taken(rhs, shape, method, options), ENERGY)
        error = np.linalg.norm(gradient.u0 - exact.u0) / np.linalg.norm(exact.u0)
        error = max(error, np.abs(gradient.p / exact.p - 1.0).max())
        assert error < 20.0 * gradient.solver_error
        assert gradient.solver_error < 200.0 * max(error, 1e-10)
        names = [item.category for item in told]
        assert names == [SolverErrorWarning] * (gradient.solver_error > 1e-5)


@pytest.mark.slow
def test_every_derivative_tells():
    run = taken(allen_cahn, (100,), "cn", {"snes_rtol": 1e-2})
    du = np.ones(100)
    match = r"wrong by \de-0\d of their size, which is what Newton's method left(.|\n)*snes_rtol"
    for derivative in (
        lambda: ds.adjoint(run, ENERGY),
        lambda: ds.tangent(run, du),
        lambda: ds.hessian_product(run, ENERGY, du, [0.1]),
    ):
        with pytest.warns(SolverErrorWarning, match=match):
            slope = derivative()
        assert slope.solver_error == pytest.approx(run.effort.remainder, rel=1e-6)
    with pytest.warns(SolverErrorWarning, match=match):
        ds.sensitivities(run, [0.5], with_respect_to=["p"])
    reduced = ds.Reduced(
        run.problem, ENERGY, run.stepping, ds.Parameters({"k": ds.Parameter(0.05)}, run.states[0])
    )
    with pytest.warns(SolverErrorWarning, match=match):
        reduced.gradient(reduced.start())
    small = ds.ODE(lambda t, u, p: -p[0] * u**3, 1, ["k"])
    rough = ds.Stepping((0.0, 1.0), "beuler", dt=0.5, options={"snes_rtol": 1e-1})
    with pytest.warns(SolverErrorWarning):
        ds.adjoint(ds.solve(small, [2.0], [1.0], rough), ds.Terminal(lambda t, u, p: u[0]))


@pytest.mark.slow
def test_affine_equations_leave_no_error_of_newton():
    run = taken(lambda t, u, p: p.k * u.laplacian(), (5000,), "cn", {})
    assert run.effort.remainder > 0.0
    assert ds.adjoint(run, ENERGY).solver_error == 0.0  # by LU


@pytest.mark.parametrize("method", ["cn", "beuler", "esdirk3"])
def test_one_iteration_of_what_is_not_affine_is_told(method):
    """``ksponly`` of NumPy callbacks and traced models: PETSc does not look at what it leaves."""

    def reaction(t, u, p):
        return np.array([-p[0] * u[0] ** 2 + u[1], -u[1]])

    def decay(t, u, p):
        return np.array([-p[0] * u[0] + u[1], -u[1]])

    output, once = ds.Terminal(lambda t, u, p: u[0] ** 2), {"snes_type": "ksponly"}
    for make in (ds.ODE, ds.trace):
        affine = ds.solve(
            make(decay, 2, 1), [1.0, 0.5], [1.0], ds.Stepping((0.0, 1.0), method, dt=0.1)
        )
        again = ds.Stepping((0.0, 1.0), method, dt=0.1, options=once)
        same = ds.solve(make(decay, 2, 1), [1.0, 0.5], [1.0], again)
        assert ds.adjoint(same, output).solver_error < 1e-13
        np.testing.assert_allclose(
            ds.adjoint(same, output).u0, ds.adjoint(affine, output).u0, rtol=1e-13
        )
        model = make(reaction, 2, 1)
        exact = ds.adjoint(
            ds.solve(model, [1.0, 0.5], [1.0], ds.Stepping((0.0, 1.0), method, dt=0.1)), output
        )
        run = ds.solve(model, [1.0, 0.5], [1.0], again)
        with pytest.warns(SolverErrorWarning, match="snes_type"):
            gradient = ds.adjoint(run, output)
        error = np.abs(np.append(gradient.u0 / exact.u0, gradient.p / exact.p) - 1.0).max()
        assert 1e-5 < error < 20.0 * gradient.solver_error < 400.0 * error


def from_an_edge(options):
    """Return a run of central differences over cells of Peclet number 4 from an edge."""
    grid = Grid(((0.0, 1.0),) * 2, (256, 256), "neumann", comm=SELF)
    model = ds.trace_stencil(burgers, grid, ["k"])
    x, y = grid.coordinates()
    start = 0.5 + np.exp(-50.0 * ((x - 0.5) ** 2 + (y - 0.5) ** 2)).ravel()
    stepping = ds.Stepping((0.0, 0.2), "cn", dt=0.1, options=options)
    return ds.solve(model, start, [1e-3], stepping)


@pytest.mark.slow
@pytest.mark.filterwarnings("error::daeosens.errors.SolverErrorWarning")
def test_coarse_grids_are_upwinded():
    """Products for coarse grids made adjoints and tangents differ by 1e-5 here, without a word."""
    run, direct = (from_an_edge(options) for options in ({}, {"pc_type": "lu"}))
    assert duality(run, ENERGY) < 1e-12
    assert run.effort.linear_iterations < 15 * run.effort.newton_iterations
    gradient, exact = ds.adjoint(run, ENERGY), ds.adjoint(direct, ENERGY)
    assert gradient.solver_error < 1e-10
    assert np.linalg.norm(gradient.u0 - exact.u0) < 1e-11 * np.linalg.norm(exact.u0)
    np.testing.assert_allclose(gradient.p, exact.p, rtol=1e-11)


@pytest.mark.slow
def test_preconditioners_that_hide_an_error_are_told():
    """GMRES judges by the preconditioned residual, which may be small where nothing is solved.

    With a tolerance of the user's own solutions are not corrected.
    """
    run = from_an_edge({"pc_mg_galerkin": "pmat", "ksp_rtol": 1e-10})
    with pytest.warns(SolverErrorWarning, match="the linear solver left"):
        gradient = ds.adjoint(run, ENERGY)
    with pytest.warns(SolverErrorWarning):
        mismatch = duality(run, ENERGY)
    assert 1e-8 < mismatch < 20.0 * gradient.solver_error


def robertson(t, u, p):
    """Return the rates of Robertson's reactions."""
    slow, fast = p[0] * u[0], p[2] * u[1] ** 2
    back = p[1] * u[1] * u[2]
    return np.array([back - slow, slow - back - fast, fast])


@pytest.mark.slow
@pytest.mark.filterwarnings("error::daeosens.errors.SolverErrorWarning")
@pytest.mark.parametrize("end", [1.0, 1e3])
def test_unknowns_that_grow_from_nothing_are_no_error(end):
    """A gradient that is right to 1e-4 warned of 1e-2; truth: differences of finer runs."""
    problem, rates = ds.ODE(robertson, 3, ["a", "b", "c"]), np.array([0.04, 1e4, 3e7])
    start, cost = [1.0, 0.0, 0.0], ds.Terminal(lambda t, u, p: u[2])
    fine = ds.Stepping((0.0, end), "esdirk5", rtol=1e-10)

    def value(a):
        return ds.solve(problem, start, [a, *rates[1:]], fine).final.array[2]

    truth = (value(0.04 * (1 + 1e-4)) - value(0.04 * (1 - 1e-4))) / (2e-4 * 0.04)
    run = ds.solve(problem, start, rates, ds.Stepping((0.0, end), "esdirk5", rtol=1e-6))
    assert ds.adjoint(run, cost).p[0] == pytest.approx(truth, rel=1e-4)
