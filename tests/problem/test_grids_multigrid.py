"""Multigrid on grids: interpolation between levels, and iterations that do not grow."""

import numpy as np
import pytest
from fields import ENERGY, close, random_field
from petsc4py import PETSc
from step_matrices import upwind

import daeosens as ds
from daeosens.problem.grids import Grid
from daeosens.problem.grids.multigrid import Points, depth, interpolations
from daeosens.verify import duality

BOUNDARIES = ["periodic", "zero"]


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("shape", [(33,), (20,), (21, 18), (12, 13, 14)])
def test_linear_functions_are_interpolated_exactly(shape, boundary):
    """In each unknown on its own; periodic ones where they do not jump."""
    grid = Grid(((0.0, 1.0),) * len(shape), shape, boundary, dof=2)
    coarse = Points.of(grid.dm).coarse()
    assert coarse is not None
    (matrix,) = interpolations(grid.dm, 2)
    sides = [np.linspace(0.0, 1.0, n) for n in shape]
    kept = [
        np.arange(0, n, 2) if boundary == "periodic" else np.unique([*range(0, n, 2), n - 1])
        for n in shape
    ]
    assert coarse.shape == tuple(len(item) for item in kept)
    right, left = matrix.createVecs()
    first, last = right.getOwnershipRange()
    indices = np.indices(coarse.shape).reshape(len(shape), -1)
    total = sum(side[keep][index] for side, keep, index in zip(sides, kept, indices, strict=True))
    where = coarse.numbers(*indices)
    for number, value in zip(where, total, strict=True):
        for component, factor in enumerate((1.0, -3.0)):
            if first <= 2 * number + component < last:
                right.setValue(2 * number + component, factor * value)
    right.assemble()
    matrix.mult(right, left)
    index = np.indices(shape).reshape(len(shape), -1)
    exact = sum(side[item] for side, item in zip(sides, index, strict=True))
    inside = np.all(index < np.array(shape)[:, None] - 1, axis=0) | (boundary == "zero")
    numbers = Points.of(grid.dm).numbers(*index)
    begin, end = left.getOwnershipRange()
    for number, value, inner in zip(numbers, exact, inside, strict=True):
        if inner and begin <= 2 * number < end:
            array = left.getArray()[2 * number - begin : 2 * number - begin + 2]
            np.testing.assert_allclose(array, [value, -3.0 * value], atol=1e-13)


def test_numbers_of_points_are_those_of_petsc():
    points = Points(((2, 3), (1, 2), (2, 1)), (False, False, True))
    assert points.shape == (5, 3, 3)
    numbers = points.numbers(*np.meshgrid(range(5), range(3), range(3), indexing="ij"))
    assert sorted(numbers.ravel()) == list(range(45))
    assert [numbers[0, 0, 0], numbers[2, 0, 0], numbers[0, 1, 0], numbers[1, 0, 1]] == [0, 4, 10, 3]


def test_more_levels_than_there_are_points_for_are_refused():
    grid = Grid(((0.0, 1.0),) * 2, (9, 9), "zero", comm=PETSc.COMM_SELF)
    assert depth(grid.dm) == 1
    with pytest.raises(ds.InputError, match=r"pc_mg_levels = 5 .*\n.*at most 2"):
        interpolations(grid.dm, 5)


def diffusing(t, u, p):
    return p.k * u.laplacian() - u.center**3


def fluxes(t, u, p):
    """No flux through the edges: differences across them count for nothing."""
    flow = 0.0
    for axis, (x, h) in enumerate(zip(u.x, u.spacing, strict=True)):
        offset = [0, 0]
        offset[axis] = 1
        back = tuple(-item for item in offset)
        more = np.where(x < 1.0 - 1.5 * h, u[tuple(offset)] - u.center, 0.0)
        less = np.where(x > 1.5 * h, u[back] - u.center, 0.0)
        flow = flow + (more + less) / h**2
    return p.k * flow - u.center**3


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("boundary", "rhs"), [("periodic", diffusing), ("zero", diffusing), ("zero", fluxes)]
)
def test_iterations_grow_neither_with_the_grid_nor_with_the_step(boundary, rhs):
    effort = []
    for n in (80, 161):
        grid = Grid(((0.0, 1.0),) * 2, (n, n), boundary)
        model = ds.trace_stencil(rhs, grid, ["k"])
        for dt in (4e-3, 1.0):  # shorter ones are smoothed alone
            run = ds.solve(model, random_field(grid, 3), [0.3], ds.Stepping((0.0, dt), "cn", dt=dt))
            effort.append(run.effort.linear_iterations / run.effort.newton_iterations)
            assert duality(run, ENERGY) < 1e-12
    assert max(effort) < 10


@pytest.mark.slow
@pytest.mark.mpi
def test_defaults_agree_with_other_solvers():
    """Redundant factors on several ranks, multigrid, and GMRES with products."""
    for shape in ((60,), (12, 11), (75, 70)):
        grid = Grid(((0.0, 1.0),) * len(shape), shape, "zero")
        values = []
        for jacobian in ("auto", "products"):
            tight = {"ksp_rtol": 1e-13, "ksp_gmres_restart": 200}
            options = tight if jacobian == "products" else {}
            model = ds.trace_stencil(diffusing, grid, ["k"], jacobian=jacobian)
            stepping = ds.Stepping((0.0, 0.02), "cn", dt=0.01, options=options)
            run = ds.solve(model, random_field(grid, 3), [0.3], stepping)
            gradient = ds.adjoint(run, ENERGY)
            values.append([run.final, gradient.u0_vec, gradient.p_vec])
        for default, other in zip(*values, strict=True):
            assert close(default, other) < 1e-9


def carried(t, u, p):
    """Central differences over cells of Peclet numbers 10 and 6."""
    return p.k * u.laplacian() - sum(u.gradient())


def steepening(t, u, p):
    return p.k * u.laplacian() - u.center * sum(u.gradient())


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("rhs", "k", "dt"), [(upwind, 1e-3, 1.0), (carried, 5e-3, 1.0), (steepening, 1e-3, 0.1)]
)
@pytest.mark.parametrize("shape", [(96, 90), (160, 165), (20, 18, 19)])
def test_flow_across_an_edge_without_slope_is_solved(shape, rhs, k, dt):
    """Products for coarse grids grow there: GMRES did not converge, or to something else."""
    grid = Grid(((0.0, 1.0),) * len(shape), shape, "neumann")
    model = ds.trace_stencil(rhs, grid, ["k"])
    u0 = grid.create_vec()
    wave = np.prod([np.sin(np.pi * x) for x in grid.coordinates()], axis=0)
    grid.writable(u0)[..., 0] = 0.5 + wave**4
    run = ds.solve(model, u0, [k], ds.Stepping((0.0, 2.0 * dt), "cn", dt=dt))
    assert run.effort.linear_iterations < 45 * run.effort.newton_iterations
    assert duality(run, ENERGY) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cn", "beuler", "esdirk3"])
@pytest.mark.parametrize(("rhs", "dt"), [(carried, 1.0), (steepening, 0.1)])
def test_rough_errors_of_states_do_not_reach_derivatives(rhs, dt, method):
    """Those of one solve to 1e-12 were 6e-8 of dJ/dk, and 5e-7 of the Hessian, without a word.

    F_k is the Laplacian of the state, which has rounding of 4 / h^2 of it: 1e-10 here.
    """
    grid = Grid(((0.0, 1.0),) * 2, (96, 90), "neumann", comm=PETSc.COMM_SELF)
    model = ds.trace_stencil(rhs, grid, ["k"])
    u0 = grid.create_vec()
    wave = np.prod([np.sin(2.0 * np.pi * x) for x in grid.coordinates()], axis=0)
    grid.writable(u0)[..., 0] = 0.5 + 0.4 * wave
    values = []
    for options in ({}, {"pc_type": "lu", "ksp_type": "preonly"}):
        run = ds.solve(
            model, u0, [1e-3], ds.Stepping((0.0, 2.0 * dt), method, dt=dt, options=options)
        )
        gradient = ds.adjoint(run, ENERGY)
        product = ds.hessian_product(run, ENERGY, u0, [1.0])
        values.append([gradient.u0, product.u0, gradient.p, product.p])
    # the factors of the reference leave 1.4e-9 of second derivatives on some processors
    for mine, other, bound in zip(*values, (1e-9, 5e-9, 1e-9, 5e-9), strict=True):
        assert np.linalg.norm(mine - other) < bound * np.linalg.norm(other)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("method", ["cn", "esdirk3"])
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("rhs", [carried, steepening])
def test_central_advection_is_preconditioned_by_upwind(rhs, boundary, method):
    """Over many cells in a step; without, GMRES does not converge at all."""
    effort, values = [], []
    for n in (96, 160):
        grid = Grid(((0.0, 1.0),) * 2, (n, n), boundary)
        model = ds.trace_stencil(rhs, grid, ["k"])
        u0 = grid.create_vec()
        wave = np.prod([np.sin(np.pi * x) for x in grid.coordinates()], axis=0)
        grid.writable(u0)[..., 0] = 0.5 + wave**4
        for dt in (0.01, 0.1, 1.0) if rhs is carried else (0.01, 0.1):
            run = ds.solve(model, u0, [1e-3], ds.Stepping((0.0, dt), method, dt=dt))
            effort.append(run.effort.linear_iterations / run.effort.newton_iterations)
            assert duality(run, ENERGY) < 1e-12
        if n == 96 and grid.comm.size == 1:
            for options in ({}, {"pc_type": "lu", "ksp_type": "preonly"}):
                run = ds.solve(
                    model, u0, [1e-3], ds.Stepping((0.0, 0.2), method, dt=0.1, options=options)
                )
                gradient = ds.adjoint(run, ENERGY)
                values.append([run.final, gradient.u0_vec, gradient.p_vec])
    assert max(effort) < (45 if grid.comm.size == 1 else 60)
    half = len(effort) // 2
    assert max(effort[half:]) < 1.2 * max(effort[:half])
    for mine, other in zip(*values, strict=True) if values else ():
        assert close(mine, other) < 1e-9


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_preconditioners_without_levels_take_the_matrix_itself(boundary):
    """Factors of an upwinded matrix would solve another system."""
    grid = Grid(((0.0, 1.0),) * 2, (75, 70), boundary)
    model = ds.trace_stencil(carried, grid, ["k"])
    kinds = ["bjacobi", "gamg"] if grid.comm.size > 1 else ["lu", "ilu", "gamg"]
    values = []
    for kind in kinds:
        options = {"pc_type": kind, "ksp_rtol": 1e-13}
        stepping = ds.Stepping((0.0, 0.02), "cn", dt=0.01, options=options)
        run = ds.solve(model, random_field(grid, 3), [1e-3], stepping)
        gradient = ds.adjoint(run, ENERGY)
        values.append([run.final, gradient.u0_vec, gradient.p_vec])
    for other in values[1:]:
        for item, two in zip(values[0], other, strict=True):
            assert close(item, two) < 1e-9
