"""Grids and their matrices: coordinates, neighbours, the same on any number of ranks."""

import numpy as np
import pytest
from fields import alone, close, own_part, random_field
from grid_callbacks import laplacian
from petsc4py import PETSc

from daeosens import InputError
from daeosens.problem.grids import Grid, fill_stencil_matrix, stencil_matrix

BOX = ((-1.0, 1.0), (0.5, 2.0))
UNIT = ((0.0, 1.0), (0.0, 1.0))
SELF = PETSc.COMM_SELF
BOUNDARIES = ["periodic", "zero"]


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


@pytest.mark.parametrize(
    "box", ["ab", ((0.0, 1.0), 2.0), (0.0, 1.0), None, PETSc.Vec().createSeq(2, comm=SELF)]
)
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


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_stencil_matrix_is_the_stencil(boundary):
    grid = Grid(BOX, (9, 8), boundary, dof=2)
    along_x, along_y = 1 / np.square(grid.spacing)
    around = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)]
    entries = [(c, c, offset) for c in (0, 1) for offset in around]
    weights = [-2 * (along_x + along_y), along_x, along_x, along_y, along_y]
    matrix = stencil_matrix(grid, entries).duplicate()  # duplicates keep the pattern
    ny, nx, _ = grid.owned_shape
    fill_stencil_matrix(np.repeat(np.array(weights * 2), ny * nx), matrix)
    u = random_field(grid, 3)
    expected = u.duplicate()
    grid.writable(expected)[...] = laplacian(grid, u)
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
    values, whole = grid.values(matrix * u), alone(grid)
    east = own_part(grid, np.roll(whole.values(random_field(whole, 4)), -1, axis=1))
    np.testing.assert_allclose(values[:, :, 0], 2 * grid.values(u)[:, :, 1], rtol=1e-15)
    np.testing.assert_allclose(values[:, :, 1], 4 * east[:, :, 0], rtol=1e-15)
