"""Grids, stencils and the heat equation: exact modes, orders, the same on any number of ranks."""

import json
from pathlib import Path

import numpy as np
import pytest
from fields import alone, close, own_part, random_field
from petsc4py import PETSc

from daeosens import InputError, Stepping, Terminal, adjoint, check, solve
from daeosens.problem.grids import (
    NEIGHBOURS,
    FivePoint,
    Grid,
    fill_stencil_matrix,
    first_mode,
    heat,
    laplacian_weights,
    stencil_matrix,
)
from daeosens.verify import duality

BOX = ((-1.0, 1.0), (0.5, 2.0))
UNIT = ((0.0, 1.0), (0.0, 1.0))
SELF = PETSc.COMM_SELF
BOUNDARIES = ["periodic", "zero"]
REFERENCE = json.loads((Path(__file__).parents[1] / "references" / "heat2d.json").read_text())[
    "values"
]
CASES = {"Np30_interior": 30, "Np30_with_boundary": 28}


# ---- grid ----------------------------------------------------------------------------------------


def test_periodic_grid_stops_one_spacing_before_the_end():
    grid = Grid(BOX, (8, 5), comm=SELF)
    x, y = grid.coordinates()
    assert grid.spacing == (0.25, 0.3)
    assert grid.origin == (-1.0, 0.5)
    np.testing.assert_allclose(x[0], np.arange(-1.0, 1.0, 0.25), rtol=1e-15)
    np.testing.assert_allclose(y[:, 3], [0.5, 0.8, 1.1, 1.4, 1.7], rtol=1e-15)


def test_zero_boundary_leaves_the_points_inside():
    grid = Grid(BOX, (7, 4), "zero", comm=SELF)
    x, y = grid.coordinates()
    assert grid.spacing == (0.25, 0.3)
    np.testing.assert_allclose((x[0, 0], x[0, -1]), (-0.75, 0.75), rtol=1e-15)
    np.testing.assert_allclose((y[0, 0], y[-1, 0]), (0.8, 1.7), rtol=1e-15)


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_coordinates_do_not_depend_on_the_ranks(boundary):
    grid = Grid(BOX, (13, 9), boundary)
    for mine, whole in zip(grid.coordinates(), alone(grid).coordinates(), strict=True):
        np.testing.assert_array_equal(mine, own_part(grid, whole))


def test_bad_grid_is_reported_all_at_once():
    with pytest.raises(InputError) as caught:
        Grid(((0.0, 0.0), (0.0, 1.0)), (2, 8), "periodical", 0, SELF)
    message = str(caught.value)
    assert "4 problems" in message
    for words in ("box = ((0.0, 0.0)", "shape = (2, 8)", 'try: "periodic"', "dof = 0"):
        assert words in message


@pytest.mark.parametrize("shape", [8, (8,), (8.0, 8.0), None, ("a", 8), (8, 8, 8)])
def test_shape_of_another_dimension_or_type_is_named(shape):
    with pytest.raises(InputError) as caught:
        Grid(((0.0, 1.0), (0.0, 1.0)), shape, comm=SELF)
    assert f"shape = {shape!r}; expected: 2 integers of at least 3" in str(caught.value)


@pytest.mark.parametrize("box", ["ab", ((0.0, 1.0), 2.0), (0.0, 1.0), None])
def test_box_that_is_none_is_named(box):
    with pytest.raises(InputError) as caught:
        Grid(box, (8, 8), comm=SELF)
    assert f"box = {box!r}; expected: ((x first, x last)" in str(caught.value)


@pytest.mark.slow
def test_more_ranks_than_the_grid_can_be_cut_for_is_an_error_on_all(run_mpi):
    code = f"from daeosens.problem.grids import Grid; Grid({UNIT}, (3, 3))"
    done = run_mpi(5, ["-c", code])
    assert done.returncode != 0
    assert "a grid of shape (3, 3) cannot be cut for 5 ranks" in done.stderr


# ---- stencil -------------------------------------------------------------------------------------


def laplacian(grid, vec):
    stencil, out = FivePoint(grid), vec.duplicate()
    stencil.laplacian(stencil.ghosted(vec), grid.writable(out))
    return out


def wave(grid):
    """Return an eigenvector of the periodic Laplacian, and its eigenvalue."""
    (west, east), (south, north) = grid.box
    x, y = grid.coordinates()
    phase = 2 * np.pi * (2 * (x - west) / (east - west) + (y - south) / (north - south))
    vec = grid.create_vec()
    grid.writable(vec)[...] = np.sin(phase)[:, :, None]
    eigenvalue = sum(
        -4 * weight * np.sin(np.pi * k / n) ** 2
        for weight, k, n in zip(laplacian_weights(grid), (2, 1), grid.shape, strict=True)
    )
    return vec, eigenvalue


@pytest.mark.mpi
def test_first_mode_is_an_eigenvector():
    grid = Grid(BOX, (12, 7), "zero")
    mode = first_mode(grid)
    expected = sum(
        -4 * weight * np.sin(0.5 * np.pi / (n + 1)) ** 2
        for weight, n in zip(laplacian_weights(grid), grid.shape, strict=True)
    )
    assert close(laplacian(grid, mode), mode * expected) < 1e-13


@pytest.mark.mpi
@pytest.mark.parametrize("dof", [1, 3])
def test_wave_is_an_eigenvector_of_the_periodic_laplacian(dof):
    grid = Grid(BOX, (12, 7), dof=dof)
    vec, eigenvalue = wave(grid)
    assert close(laplacian(grid, vec), vec * eigenvalue) < 1e-13


def test_laplacian_has_order_two():
    exact = -(np.pi**2) * (1 / 2.0**2 + 1 / 1.5**2)
    errors = []
    for n in (8, 16, 32):
        grid = Grid(BOX, (n - 1, n - 1), "zero", comm=SELF)
        mode = first_mode(grid)
        errors.append(close(laplacian(grid, mode), mode * exact))
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    np.testing.assert_allclose(orders, 2.0, atol=0.02)


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("dof", [1, 2])
def test_laplacian_is_bitwise_the_same_on_any_number_of_ranks(boundary, dof):
    grid = Grid(BOX, (11, 8), boundary, dof)
    whole = alone(grid)
    mine = grid.values(laplacian(grid, random_field(grid, 1)))
    everything = whole.values(laplacian(whole, random_field(whole, 1)))
    np.testing.assert_array_equal(mine, own_part(grid, everything))


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_stencil_matrix_is_the_stencil(boundary):
    grid = Grid(BOX, (9, 8), boundary, dof=2)
    along_x, along_y = laplacian_weights(grid)
    entries = [(c, c, offset) for c in (0, 1) for offset in ((0, 0), *NEIGHBOURS)]
    weights = [-2 * (along_x + along_y), along_x, along_x, along_y, along_y]
    matrix = stencil_matrix(grid, entries).duplicate()  # duplicates keep the pattern
    ny, nx, _ = grid.owned_shape
    fill_stencil_matrix(np.repeat(np.array(weights * 2), ny * nx), matrix)
    u = random_field(grid, 3)
    expected = laplacian(grid, u)
    assert close(matrix * u, expected) < 1e-14
    product = u.duplicate()
    matrix.multTranspose(u, product)
    assert close(product, expected) < 1e-14


@pytest.mark.mpi
def test_components_couple_where_the_entries_say():
    grid = Grid(BOX, (6, 5), dof=2)
    matrix = stencil_matrix(grid, [(0, 1, (0, 0)), (1, 0, (1, 0)), (1, 0, (1, 0))])
    ny, nx, _ = grid.owned_shape
    fill_stencil_matrix(np.repeat([2.0, 1.0, 3.0], ny * nx), matrix)
    u = random_field(grid, 4)
    values, ghosted = grid.values(matrix * u), FivePoint(grid).ghosted(u)
    np.testing.assert_allclose(values[:, :, 0], 2 * ghosted[1:-1, 1:-1, 1], rtol=1e-15)
    np.testing.assert_allclose(values[:, :, 1], 4 * ghosted[1:-1, 2:, 0], rtol=1e-15)


# ---- heat equation -------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("diffusivity", ["number", "field"])
@pytest.mark.parametrize("jacobian", ["assembled", "products"])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_derivatives_of_heat_are_right(boundary, jacobian, diffusivity):
    grid = Grid(BOX, (9, 8), boundary)
    problem = heat(grid, diffusivity=diffusivity, jacobian=jacobian)
    p = random_field(grid, 5) if diffusivity == "field" else [0.7]
    report = check(problem, random_field(grid, 6), p)
    assert report.passed, str(report)


@pytest.mark.mpi
@pytest.mark.parametrize("diffusivity", ["number", "field"])
@pytest.mark.parametrize("jacobian", ["assembled", "products"])
@pytest.mark.parametrize("method", ["rk4", "cn", "beuler"])
def test_adjoint_of_heat_is_the_transpose_of_its_tangent(method, jacobian, diffusivity):
    grid = Grid(UNIT, (8, 7), "zero")
    problem = heat(grid, diffusivity=diffusivity, jacobian=jacobian)
    p = random_field(grid, 5) if diffusivity == "field" else [0.7]
    options = {} if method == "rk4" else {"ksp_type": "gmres", "ksp_rtol": 1e-13}
    run = solve(
        problem, random_field(grid, 6), p, Stepping((0.0, 0.02), method, dt=2e-3, options=options)
    )
    assert duality(run, energy()) < 1e-11


def energy():
    """Return the sum of u^2 at the end."""
    return Terminal(
        lambda t, u, p: u.dot(u),
        lambda t, u, p, out: out.waxpy(1.0, u, u),
        "independent",
    )


@pytest.mark.mpi
@pytest.mark.parametrize("case", CASES)
def test_sensitivity_to_the_diffusivity_is_the_closed_form(case):
    reference = REFERENCE[case]
    grid = Grid(UNIT, (CASES[case], CASES[case]), "zero")
    run = solve(heat(grid), first_mode(grid), [1.0], Stepping((0.0, 0.01), "rk4", dt=1e-4))
    gradient = adjoint(run, energy())
    assert gradient.value == pytest.approx(float(reference["psi_sum_u2"]), rel=1e-9)
    assert gradient.p[0] == pytest.approx(float(reference["dpsi_dalpha"]), rel=1e-9)


@pytest.mark.mpi
@pytest.mark.parametrize("jacobian", ["assembled", "products"])
@pytest.mark.parametrize("case", CASES)
def test_gradient_in_a_field_of_diffusivities_is_the_closed_form(case, jacobian):
    reference = REFERENCE[case]
    grid = Grid(UNIT, (CASES[case], CASES[case]), "zero")
    ones = grid.create_vec()
    ones.set(1.0)
    problem = heat(grid, diffusivity="field", jacobian=jacobian)
    u0 = first_mode(grid)
    run = solve(problem, u0, ones, Stepping((0.0, 0.01), "rk4", dt=1e-4))
    lam, t = reference["lam"], 0.01
    expected = u0.copy()
    expected.pointwiseMult(u0, u0)
    expected.scale(-2 * float(lam) * t * np.exp(-2 * float(lam) * t))
    assert close(adjoint(run, energy()).p_vec, expected) < 1e-9
    if grid.comm.size == 1:
        j, i = reference["probe_index"]
        probe = grid.values(expected)[j, i, 0]
        assert probe == pytest.approx(float(reference["field_gradient_probe"]), rel=1e-13)


def test_heat_refuses_what_it_cannot_be():
    grid = Grid(UNIT, (4, 4), "zero", comm=SELF)
    with pytest.raises(InputError, match="dof = 2"):
        heat(Grid(UNIT, (4, 4), dof=2, comm=SELF))
    with pytest.raises(InputError, match="diffusivity = 'none'"):
        heat(grid, diffusivity="none")
    with pytest.raises(InputError, match="jacobian = 'dense'"):
        heat(grid, jacobian="dense")
