"""Grids with slopes across their edges: values, convergence, derivatives, any ranks."""

import numpy as np
import pytest
from fields import ENERGY, close, random_field
from petsc4py import PETSc
from scipy.optimize import brentq

import daeosens as ds
from daeosens.problem.grids import Grid
from daeosens.verify import duality

SELF = PETSc.COMM_SELF
SHAPES = [(23,), (13, 9), (9, 8, 7)]
P = np.array([0.7, 0.4])


def box(shape, dof=2, comm=None):
    return Grid(((0.0, 1.0),) * len(shape), shape, "neumann", dof, comm or PETSc.COMM_WORLD)


def curved(t, u, p):
    """Nonlinear in corners and in neighbours two points away, unsymmetric, other in x."""
    a, _ = u.center
    rest = (0,) * (len(u.spacing) - 1)
    corner, far = u[(1,) * len(u.spacing)], u[(-2, *rest)]
    along = u.laplacian()
    return [
        0.01 * along[0] + p.k * np.exp(-a) * far[1] ** 2 + corner[0] * corner[1] * u.x[0],
        0.02 * along[1] + np.sin(p.r * a) * u.gradient()[0][0] * 0.1,
    ]


def field(grid):
    """A field that is the same on any ranks, as an array of all points and as a vector."""
    axes = np.meshgrid(*(np.arange(n) for n in reversed(grid.shape)), indexing="ij")
    numbers = sum((7 * k + 3) * axis for k, axis in enumerate(axes))
    everywhere = np.stack([1.0 + 0.5 * np.sin(numbers), 1.0 + 0.5 * np.cos(2.0 * numbers)], -1)
    corner, sizes = grid.dm.getCorners()
    part = tuple(
        slice(first, first + n) for first, n in zip(reversed(corner), reversed(sizes), strict=True)
    )
    vec = grid.create_vec()
    grid.writable(vec)[...] = everywhere[part]
    return everywhere, vec, part


@pytest.mark.mpi
@pytest.mark.parametrize("shape", SHAPES)
def test_points_beyond_the_edge_are_images(shape):
    grid = box(shape)
    everywhere, vec, part = field(grid)
    dimensions = len(shape)
    padded = np.pad(everywhere, [*((2, 2),) * dimensions, (0, 0)], mode="symmetric")

    def at(*offset):
        first = [2 + item for item in reversed(offset)]
        places = [slice(k, k + n) for k, n in zip(first, reversed(shape), strict=True)]
        return padded[tuple(places)]

    rest = (0,) * (dimensions - 1)
    a = at(0, *rest)[..., 0]
    corner, far = at(*(1,) * dimensions), at(-2, *rest)
    h = grid.spacing
    along = 0.0
    for axis in range(dimensions):
        ahead = tuple(int(k == axis) for k in range(dimensions))
        back = tuple(-item for item in ahead)
        along = along + (at(*ahead) + at(*back) - 2.0 * at(0, *rest)) / h[axis] ** 2
    x = (np.arange(shape[0]) + 0.5) * h[0]
    slope = (at(1, *rest) - at(-1, *rest))[..., 0] / (2.0 * h[0])
    expected = np.stack(
        [
            0.01 * along[..., 0]
            + P[0] * np.exp(-a) * far[..., 1] ** 2
            + corner[..., 0] * corner[..., 1] * x,
            0.02 * along[..., 1] + np.sin(P[1] * a) * slope * 0.1,
        ],
        -1,
    )
    out = grid.create_vec()
    ds.trace_stencil(curved, grid, ["k", "r"]).rhs(0.3, vec, P, out)
    np.testing.assert_allclose(grid.values(out), expected[part], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(grid.coordinates()[0].ravel()[: shape[0]][:2], x[part[-1]][:2])


def robin(t, u, x, p):
    return -p.r * (u - 1.0 - 0.1 * np.sin(t) * x[0]) - 0.1 * u**2


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("shape", "slope"), [((23,), None), ((23,), robin), ((13, 9), robin), ((9, 8, 7), None)]
)
@pytest.mark.parametrize("method", ["rk4", "cn", "esdirk3"])
def test_derivatives_are_exact(method, shape, slope):
    grid = box(shape)
    model = ds.trace_stencil(curved, grid, ["k", "r"], slope=slope)
    _, u0, _ = field(grid)
    options = {} if method == "rk4" else {"snes_rtol": 1e-13}
    stepping = ds.Stepping((0.0, 0.3), method, dt=0.03, options=options)
    run = ds.solve(model, u0, P, stepping)
    assert duality(run, ENERGY) < 1e-12
    control = ds.Parameters({"k": ds.Parameter(P[0]), "r": ds.Parameter(P[1])}, u0)
    orders = ds.taylor(ds.Reduced(model, ENERGY, stepping, control), hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9
    if slope is not None:
        assert abs(ds.adjoint(run, ENERGY).p[1]) > 1e-5


@pytest.mark.mpi
def test_sums_are_kept_without_slopes():
    """Diffusion alone moves nothing across the edges."""
    for shape in SHAPES:
        grid = box(shape)
        model = ds.trace_stencil(lambda t, u, p: p[0] * u.laplacian(), grid, 1)
        u0 = random_field(grid, 3)
        run = ds.solve(model, u0, [0.3], ds.Stepping((0.0, 0.2), "cn", dt=0.05))
        assert run.final.sum() == pytest.approx(u0.sum(), rel=1e-12)
        total = ds.Terminal(
            lambda t, u, p: u.sum(), lambda t, u, p, out: out.set(1.0), "independent"
        )
        gradient = ds.adjoint(run, total)
        ones = gradient.u0_vec.duplicate()
        ones.set(1.0)
        assert close(gradient.u0_vec, ones) < 1e-12
        assert abs(gradient.p_vec.sum()) < 1e-11 * u0.norm()


def test_cosines_are_eigenvectors():
    grid = box((40,), 1, SELF)
    model = ds.trace_stencil(lambda t, u, p: p.k * u.laplacian(), grid, ["k"])
    wave = np.cos(np.pi * grid.coordinates()[0])
    run = ds.solve(model, wave, [0.1], ds.Stepping((0.0, 1.0), "cn", dt=0.1))
    z = -0.01 * (2.0 / grid.spacing[0] * np.sin(0.5 * np.pi * grid.spacing[0])) ** 2
    np.testing.assert_allclose(
        run.final.array, wave * ((1 + z / 2) / (1 - z / 2)) ** 10, atol=1e-12
    )


def test_robins_condition_converges_in_second_order():
    """With u_x = -b (u - 1) outwards, 1 + cos(w (x - 1/2)) exp(-k w^2 t), w tan(w/2) = b."""
    k, b = 0.1, 2.0
    w = brentq(lambda w: w * np.tan(0.5 * w) - b, 1e-3, np.pi - 1e-3)
    errors, slopes = [], []
    for n in (20, 40, 80):
        grid = box((n,), 1, SELF)
        model = ds.trace_stencil(
            lambda t, u, p: p.k * u.laplacian(),
            grid,
            ["k", "b"],
            slope=lambda t, u, x, p: -p.b * (u - 1.0),
        )
        shape = np.cos(w * (grid.coordinates()[0] - 0.5))
        run = ds.solve(model, 1.0 + shape, [k, b], ds.Stepping((0.0, 1.0), "esdirk5", rtol=1e-10))
        errors.append(np.abs(run.final.array - 1.0 - shape * np.exp(-k * w * w)).max())
        slopes.append(ds.adjoint(run, ENERGY).p[0])
    assert np.log2(errors[0] / errors[1]) > 1.9
    assert np.log2(errors[1] / errors[2]) > 1.9
    assert np.log2((slopes[0] - slopes[1]) / (slopes[1] - slopes[2])) > 1.9


@pytest.mark.mpi
def test_multigrid_takes_few_iterations():
    effort = []
    for n in (80, 161):
        grid = box((n, n), 1)
        for slope in (None, lambda t, u, x, p: -2.0 * (u - x[0])):
            model = ds.trace_stencil(
                lambda t, u, p: p.k * u.laplacian() - u.center**3, grid, ["k"], slope=slope
            )
            for dt in (1e-3, 1.0):
                run = ds.solve(
                    model, random_field(grid, 3), [0.3], ds.Stepping((0.0, dt), "cn", dt=dt)
                )
                effort.append(run.effort.linear_iterations / run.effort.newton_iterations)
                assert duality(run, ENERGY) < 1e-12
    assert max(effort) < 11


def test_what_does_not_go_with_slopes_is_refused():
    grid = box((9, 8), 1, SELF)
    other = Grid(((0.0, 1.0),), (9,), "zero", comm=SELF)
    with pytest.raises(ds.InputError, match=r"slope with boundary = \"zero\"(.|\n)*neumann"):
        ds.trace_stencil(lambda t, u, p: u.laplacian(), other, slope=lambda t, u, x, p: u)
    with pytest.raises(ds.InputError, match=r"u\[0, 5\] on a grid of shape \(9, 8\)"):
        ds.trace_stencil(lambda t, u, p: u[0, 5], grid)
    with pytest.raises(ds.InputError, match=r"'slope' returned shape \(2,\)"):
        ds.trace_stencil(lambda t, u, p: u.laplacian(), grid, slope=lambda t, u, x, p: x)
