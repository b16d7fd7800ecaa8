"""Sparse Jacobians of functions of a grid's points: equal to products, with preconditioners."""

import numpy as np
import pytest
from fields import close, random_field
from petsc4py import PETSc

import daeosens as ds
from daeosens.derivatives import gauss_newton_product
from daeosens.functional import InitialState
from daeosens.problem.grids import Grid
from daeosens.tracing.pdes import spots
from daeosens.verify import duality
from tests.tracing.test_stencil_problem import (
    CURVED,
    NAMES,
    POINT,
    VALUES,
    curved,
    energy,
    reaction,
)

SELF = PETSc.COMM_SELF
BOX = ((0.0, 2.5), (0.0, 2.5))
BOUNDARIES = ["periodic", "zero"]


def models(rhs, grid, parameters):
    return [
        ds.trace_stencil(rhs, grid, parameters, jacobian=kind) for kind in ("assembled", "products")
    ]


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_the_matrix_multiplies_as_the_products_do(dimensions, boundary):
    grid = Grid(((0.0, 1.0),) * dimensions, (26, 17, 14)[:dimensions], boundary, dof=2)
    u, w, v = (random_field(grid, seed) for seed in range(3))
    values = []
    for model in models(curved, grid, CURVED):
        matrix = model.rhs_u.create(0.4, u, POINT)
        for state in (w, u):  # filled anew
            model.rhs_u.fill(0.4, state, POINT, matrix)
        matrix.scale(-0.3)
        matrix.shift(2.0)
        outs = [grid.create_vec(), grid.create_vec()]
        matrix.mult(v, outs[0])
        matrix.multTranspose(w, outs[1])
        values.append(outs)
    for assembled, products in zip(*values, strict=True):
        assert close(assembled, products) < 1e-14


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_entries_of_a_small_grid_are_differences(boundary):
    """Periodic, both neighbours two points away are the same one."""
    grid = Grid(((0.0, 1.0),), (4,), boundary, dof=2, comm=SELF)

    def rhs(t, u, p):
        a, b = u.center
        return [a * u[2][1] + u[-2][0] ** 2, np.sin(b * u[1][0]) + p.k * u[-5][0]]

    model = ds.trace_stencil(rhs, grid, ["k"], jacobian="assembled")
    u, eps = random_field(grid, 3), 1e-6
    matrix = model.rhs_u.create(0.0, u, [0.7])
    model.rhs_u.fill(0.0, u, np.array([0.7]), matrix)
    columns = []
    for k in range(8):
        outs = [grid.create_vec(), grid.create_vec()]
        for sign, out in zip((1.0, -1.0), outs, strict=True):
            moved = u.copy()
            moved.getArray()[k] += sign * eps
            model.rhs(0.0, moved, np.array([0.7]), out)
        columns.append((outs[0].array - outs[1].array) / (2 * eps))
    entries = matrix.convert("dense").getDenseArray()
    np.testing.assert_allclose(entries, np.transpose(columns), atol=1e-9)


SOLVERS = {
    "default": {},
    "ilu": {"ksp_type": "gmres", "pc_type": "bjacobi", "sub_pc_type": "ilu", "ksp_rtol": 1e-13},
    "gamg": {"ksp_type": "gmres", "pc_type": "gamg", "ksp_rtol": 1e-13},
}


@pytest.mark.mpi
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("method", ["cn", "beuler"])
def test_runs_and_sweeps_are_those_of_products(method, solver):
    grid = Grid(BOX, (16, 15), dof=2)
    values = []
    for model, options in zip(
        models(reaction, grid, NAMES), (SOLVERS[solver], {"ksp_rtol": 1e-13}), strict=True
    ):
        stepping = ds.Stepping((0.0, 2.0), method, dt=0.5, options=options)
        run = ds.solve(model, spots(grid), VALUES, stepping)
        gradient = ds.adjoint(run, energy(4))
        curvature = ds.hessian_product(run, energy(4), random_field(grid, 4), np.full(4, 1e-3))
        vecs = [gradient.u0_vec, gradient.p_vec, curvature.u0_vec, curvature.p_vec]
        values.append([run.final, *vecs])
        assert duality(run, energy(4)) < 1e-12
    for assembled, products in zip(*values, strict=True):
        assert close(assembled, products) < 1e-10


@pytest.mark.parametrize("name", ["lu", "ilu", "gamg"])
def test_the_name_of_a_preconditioner_is_enough(name):
    """One that does not solve the system is iterated with."""
    grid = Grid(BOX, (16, 15), dof=2, comm=SELF)
    model = ds.trace_stencil(reaction, grid, NAMES, jacobian="assembled")
    rates = dict.fromkeys(NAMES, ds.Parameter(0.0))
    stepping = ds.Stepping((0.0, 1.0), "cn", dt=0.25, options={"pc_type": name})
    reduced = ds.Reduced(model, energy(4), stepping, ds.Parameters(rates, random_field(grid, 7)))
    orders = ds.taylor(reduced, np.array([0.01, 0.02, 0.5, 0.8]), hessian=True)
    assert orders.order > 1.95
    assert orders.hessian_order > 2.9


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["rk4", "3bs", "esdirk3"])
def test_other_methods_take_the_matrix_too(method):
    grid = Grid(BOX, (13, 11), dof=2)
    stepping = ds.Stepping((0.0, 2.0), method, dt=0.5)
    gradients = [
        ds.adjoint(ds.solve(model, spots(grid), VALUES, stepping), energy(4))
        for model in models(reaction, grid, NAMES)
    ]
    assert close(gradients[0].u0_vec, gradients[1].u0_vec) < 1e-10
    assert close(gradients[0].p_vec, gradients[1].p_vec) < 1e-10


def test_a_preconditioner_saves_iterations():
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (48, 48), "zero", comm=SELF)
    effort = {}
    for jacobian, name in (("products", "none"), ("assembled", "ilu"), ("assembled", "gamg")):
        model = ds.trace_stencil(lambda t, u, p: u.laplacian(), grid, jacobian=jacobian)
        options = {"ksp_type": "gmres", "pc_type": name, "ksp_rtol": 1e-10}
        stepping = ds.Stepping((0.0, 0.1), "beuler", dt=0.05, options=options)
        effort[name] = ds.solve(model, random_field(grid, 1), [], stepping).effort.linear_iterations
    assert effort["none"] > 2 * effort["ilu"] > 4 * effort["gamg"]


def test_other_words_are_refused():
    grid = Grid(BOX, (8, 8), dof=2, comm=SELF)
    with pytest.raises(ds.InputError, match=r"jacobian = 'dense'\n.*\"auto\", \"assembled\" or"):
        ds.trace_stencil(reaction, grid, NAMES, jacobian="dense")


RIGHT = {"ksp_pc_side": "right", "ksp_rtol": 1e-14}


def diffusing(t, u, p):
    a, b = u.center
    of_a, of_b = u.laplacian()
    return [of_a - a * b * b + p.k * (1.0 - a), 0.5 * of_b + a * b * b + 0.1 * u[1, 0][0]]


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["cn", "beuler", "midpoint", "esdirk3"])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_multigrid_takes_as_many_iterations_on_any_grid(boundary, method):
    effort = []
    for levels, n in ((2, 16), (3, 32)):
        shape = (n, n) if boundary == "periodic" else (n + 1, n + 1)
        grid = Grid(((0.0, 1.0),) * 2, shape, boundary, dof=2)
        model = ds.trace_stencil(diffusing, grid, ["k"], jacobian="assembled")
        u0, p = random_field(grid, 3), np.array([0.3])
        stepping = ds.Stepping(
            (0.0, 0.15), method, dt=0.05, options=RIGHT | {"pc_type": "mg", "pc_mg_levels": levels}
        )
        run = ds.solve(model, u0, p, stepping)
        effort.append(run.effort.linear_iterations / run.effort.newton_iterations)
        assert duality(run, energy(1)) < 1e-12
    assert max(effort) < (9 if grid.comm.size == 1 else 14)  # smoothed by blocks on several ranks
    # on two levels the coarse one is solved exactly
    assert effort[1] < effort[0] + 2.0
    plain = ds.solve(model, u0, p, ds.Stepping((0.0, 0.15), method, dt=0.05))
    assert close(run.final, plain.final) < 1e-9
    for mine, other in zip(
        *((item.u0_vec, item.p_vec) for item in (ds.adjoint(k, energy(1)) for k in (run, plain))),
        strict=True,
    ):
        assert close(mine, other) < 1e-9
    if method != "esdirk3":
        repeated, again = ds.adjoint(run, energy(1), "tsadjoint"), ds.adjoint(run, energy(1))
        assert close(repeated.u0_vec, again.u0_vec) < 1e-10
        assert close(repeated.p_vec, again.p_vec) < 1e-10


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("method", ["cn", "esdirk3"])
def test_remainders_by_multigrid_are_of_third_order(method, dimensions):
    """Observed on the way, with a last step that is cut, and with and without parameters."""
    grid = Grid(((0.0, 1.0),) * dimensions, (9,) * dimensions, "zero", dof=2, comm=SELF)
    data = [random_field(grid, seed) for seed in (5, 6)]
    misfit = ds.LeastSquares((0.04, 0.07), data, sigma=0.3)
    options = RIGHT | {"pc_type": "mg", "pc_mg_levels": 2, "snes_rtol": 1e-13}
    stepping = ds.Stepping((0.0, 0.07), method, dt=0.02, options=options)

    def reacting(t, u, p):
        a, b = u.center
        along = u.laplacian()
        more = p.k * (1.0 - a) if len(p) else 0.3
        return [0.1 * along[0] - a * b * b * np.cos(t) + more, 0.05 * along[1] + a * b * b]

    u0 = random_field(grid, 3)
    rate = ds.Parameters({"k": ds.Parameter(0.3)}, u0)
    for names, control in ((["k"], rate), ([], InitialState(u0, []))):
        model = ds.trace_stencil(reacting, grid, names, jacobian="assembled")
        reduced = ds.Reduced(model, misfit, stepping, control)
        assert duality(reduced.trajectory(reduced.start()), misfit) < 1e-12
        orders = ds.taylor(reduced, hessian=True)
        assert orders.order > 1.9
        assert orders.hessian_order > 2.9


NO_TRANSPOSE = {
    "sor": {"pc_type": "sor"},
    "smoother": {"pc_type": "mg", "pc_mg_levels": 2, "mg_levels_pc_type": "sor"},
    "algebraic smoother": {"pc_type": "gamg", "mg_levels_pc_type": "sor"},
    "block": {"pc_type": "bjacobi", "sub_pc_type": "sor"},
    "subdomain": {"pc_type": "asm", "sub_pc_type": "sor"},
    "inner solver": {"pc_type": "ksp", "ksp_pc_type": "sor"},
    "part": {"pc_type": "composite", "pc_composite_pcs": "jacobi,sor"},
    "by projections": {"pc_type": "kaczmarz"},
}


@pytest.mark.mpi
@pytest.mark.parametrize("name", NO_TRANSPOSE)
@pytest.mark.parametrize("method", ["cn", "esdirk3"])
def test_adjoints_are_refused_where_the_preconditioner_has_no_transpose(method, name):
    """PETSc would not recover from trying.  Runs and tangents need none."""
    grid = Grid(BOX, (16, 16), dof=2)
    model = ds.trace_stencil(reaction, grid, NAMES, jacobian="assembled")
    u0, dp, options = spots(grid), np.full(4, 0.1), {"ksp_type": "gmres", "ksp_rtol": 1e-13}
    chosen, plain = (
        ds.solve(model, u0, VALUES, ds.Stepping((0.0, 1.0), method, dt=0.3, options=value))
        for value in (options | NO_TRANSPOSE[name], options)
    )
    assert close(ds.tangent(chosen, dp=dp).final, ds.tangent(plain, dp=dp).final) < 1e-9
    match = (
        r'an adjoint with pc_type "(sor|kaczmarz|composite)"\n.*\n  try: options=\{"pc_type": "lu"'
    )
    with pytest.raises(ds.UnsupportedError, match=match):
        ds.adjoint(chosen, energy(4))
    misfit = ds.LeastSquares([1.0], [plain.final], sigma=0.3)
    with pytest.raises(ds.UnsupportedError, match=match):
        ds.hessian_product(chosen, energy(4), u0)
    with pytest.raises(ds.UnsupportedError, match=match):
        gauss_newton_product(chosen, misfit, u0)
    if method == "cn":
        with pytest.raises(ds.UnsupportedError, match=match):
            ds.adjoint(chosen, energy(4), "tsadjoint")
    assert duality(plain, energy(4)) < 1e-12
