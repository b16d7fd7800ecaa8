"""Fluxes through faces, functions of points put into each other, stretched grids."""

import numpy as np
import pytest
from fields import ENERGY, close, own_part, random_field
from petsc4py import PETSc

import daeosens as ds
from daeosens.problem.grids import Grid
from daeosens.verify import duality

SELF = PETSc.COMM_SELF
UNIT = (0.0, 1.0)


def upwind(u, p):
    """Carry from where it comes: the speed changes its sign at x = 0.5."""
    v = p.v * np.cos(np.pi * u.x[0])
    return np.where(v > 0.0, u.left, u.right) * v


def rusanov(u, p):
    return 0.25 * (u.left**2 + u.right**2) - 0.5 * p.v * (u.right - u.left)


def weno(u, p):
    before, behind = u.weno()
    return 0.25 * (before**2 + behind**2) - 0.5 * p.v * (behind - before)


def stretched(n):
    return (np.expm1(np.linspace(0.0, 1.5, n + 1))) / np.expm1(1.5)


def make(flux, box=UNIT, boundary="periodic", n=24, comm=None):
    grid = Grid((box,), (n,), boundary, 1, comm or PETSc.COMM_WORLD)
    return grid, ds.trace_stencil(lambda t, u, p: -u.divergence(flux), grid, ["v"])


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("flux", "box", "boundary"),
    [
        (upwind, UNIT, "periodic"),
        (rusanov, UNIT, "periodic"),
        (weno, UNIT, "periodic"),
        (rusanov, stretched(24), "periodic"),
        (lambda u, p: -p.v * u.mean**2 * u.gradient, stretched(24), "neumann"),
    ],
)
def test_sums_are_kept_to_rounding(flux, box, boundary):
    grid, model = make(flux, box, boundary)
    u0, dt = random_field(grid, 3), 0.0005 if box is not UNIT else 0.01
    run = ds.solve(model, u0, [0.7], ds.Stepping((0.0, 20 * dt), "rk4", dt=dt))
    volumes = grid.create_vec()
    grid.writable(volumes)[..., 0] = grid.volumes()
    assert close(run.final, u0) > 1e-3
    assert run.final.dot(volumes) == pytest.approx(u0.dot(volumes), rel=1e-13)
    gradient = ds.adjoint(
        run,
        ds.Terminal(
            lambda t, u, p: u.dot(volumes),
            lambda t, u, p, out: volumes.copy(out),
            "independent",
        ),
    )
    assert close(gradient.u0_vec, volumes) < 1e-12
    assert abs(gradient.p[0]) < 1e-12


@pytest.mark.mpi
@pytest.mark.parametrize("flux", [rusanov, weno])
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_derivatives_of_fluxes_are_exact(flux, method):
    grid, model = make(flux)
    options = {} if method == "rk4" else {"snes_rtol": 1e-13}
    stepping = ds.Stepping((0.0, 0.1), method, dt=0.01, options=options)
    u0 = random_field(grid, 3)
    assert duality(ds.solve(model, u0, [0.7], stepping), ENERGY) < 1e-12
    control = ds.Parameters({"v": ds.Parameter(0.7)}, u0)
    orders = ds.taylor(ds.Reduced(model, ENERGY, stepping, control), hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9


def test_weno_carries_a_wave_in_fifth_order():
    errors = []
    for n in (20, 40, 80):
        _, model = make(lambda u, p: p.v * u.weno()[0], n=n, comm=SELF)
        edges = np.linspace(0.0, 1.0, n + 1) - 0.5 / n
        mean = -np.diff(np.cos(2 * np.pi * edges)) * n / (2 * np.pi)
        run = ds.solve(model, mean, [1.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.05 / n))
        errors.append(np.abs(run.final.array - mean).max())
    assert (np.log2(np.divide(errors[:-1], errors[1:])) > 4.7).all()


@pytest.mark.mpi
@pytest.mark.parametrize("box", [UNIT, stretched(11)])
def test_fluxes_of_fields_are_those_of_the_laplacian(box):
    grid = Grid((box, UNIT), (11, 8), ("neumann", "periodic"))
    x, y = grid.coordinates()
    k = 0.05 * (1.0 + x * np.sin(2 * np.pi * y))
    found = []
    for rhs in (
        lambda t, u, p: u.laplacian(p.k),
        lambda t, u, p: u.divergence(lambda u, p: 0.5 * (p.k.left + p.k.right) * u.gradient),
        lambda t, u, p: u.map(lambda u, p: u.laplacian(p.k)).center,
    ):
        model = ds.trace_stencil(rhs, grid, fields=["k"])
        p, stepping = model.pack(k=k), ds.Stepping((0.0, 0.02), "rk4", dt=0.002)
        run = ds.solve(model, random_field(grid, 3), p, stepping)
        gradient = ds.adjoint(run, ENERGY)
        found.append((run.final, gradient.u0_vec, gradient.p_vec))
    for other in found[1:]:
        assert max(close(a, b) for a, b in zip(other, found[0], strict=True)) < 1e-12


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", ["periodic", "neumann"])
def test_functions_of_points_see_what_is_around_each(boundary):
    """The unknowns, a field and the coordinates, as NumPy has them with all points at hand."""
    grid = Grid((UNIT,), (12,), boundary)
    model = ds.trace_stencil(
        lambda t, u, p: u.map(lambda u, p: p.a * p.k * u.center * u.x[0]).laplacian(),
        grid,
        ["a"],
        fields=["k"],
    )
    u, out = random_field(grid, 3), grid.create_vec()
    k = 1.0 + grid.coordinates()[0] ** 2
    model.rhs(0.0, u, model.pack(a=0.7, k=k), out)
    one = Grid((UNIT,), (12,), boundary, comm=SELF)
    (x,) = one.coordinates()
    value = 0.7 * (1.0 + x**2) * x * one.values(random_field(one, 3))[..., 0]
    padded = np.pad(value, 1, mode="wrap" if boundary == "periodic" else "symmetric")
    expected = (padded[2:] + padded[:-2] - 2.0 * value) / one.spacing[0] ** 2
    np.testing.assert_allclose(
        grid.values(out)[..., 0], own_part(grid, expected), rtol=1e-10, atol=1e-10
    )


def conduct(t, u, p):
    return p.k * u.laplacian() - 0.3 * u.gradient()[0] - u.center**3


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_derivatives_on_stretched_grids_are_exact_on_any_ranks(method):
    answers = []
    for comm in (PETSc.COMM_WORLD, SELF):
        grid = Grid((UNIT, lambda s: s + 0.1 * s**2), (8, 9), ("periodic", "neumann"), comm=comm)
        wall = {"y-": lambda t, x, p: p.wall * x[0]}
        model = ds.trace_stencil(conduct, grid, ["k", "wall"], dirichlet=wall)
        options = {} if method == "rk4" else {"snes_rtol": 1e-13, "ksp_rtol": 1e-12}
        stepping = ds.Stepping((0.0, 0.02), method, dt=0.002, options=options)
        u0, p = random_field(grid, 3), np.array([0.3, 0.8])
        run = ds.solve(model, u0, p, stepping)
        assert duality(run, ENERGY) < 1e-12
        control = ds.Parameters({"k": ds.Parameter(0.3), "wall": ds.Parameter(0.8)}, u0)
        orders = ds.taylor(ds.Reduced(model, ENERGY, stepping, control), hessian=True)
        assert orders.order > 1.9
        assert orders.hessian_order > 2.9
        product = ds.hessian_product(run, ENERGY, random_field(grid, 4), np.ones(2))
        answers.append((grid.values(product.u0_vec).copy(), product.p, grid))
    (ours, mine, grid), (theirs, expected, _) = answers
    np.testing.assert_allclose(ours, own_part(grid, theirs), rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(mine, expected, rtol=1e-8)


def test_stretched_grids_converge_in_second_order():
    """Closed form: u = cos(pi x) exp(-k pi^2 t), without flux through the edges."""
    errors = []
    for n in (20, 40, 80):
        grid = Grid((stretched(n),), (n,), "neumann", comm=SELF)
        model = ds.trace_stencil(lambda t, u, p: p.k * u.laplacian(), grid, ["k"])
        (x,) = grid.coordinates()
        shape = np.cos(np.pi * x)
        run = ds.solve(model, shape, [0.1], ds.Stepping((0.0, 1.0), "esdirk5", rtol=1e-10))
        errors.append(np.abs(run.final.array - shape * np.exp(-0.1 * np.pi**2)).max())
    assert (np.log2(np.divide(errors[:-1], errors[1:])) > 1.9).all()


def test_what_does_not_go_on_stretched_grids_is_refused():
    with pytest.raises(ds.InputError, match=r"box\[0\] has 9 edges(.|\n)*expected: 10"):
        Grid((stretched(8),), (9,), "neumann", comm=SELF)
    with pytest.raises(ds.InputError, match=r"box = "):
        Grid(((0.0, 0.5, 0.4, 1.0),), (3,), "neumann", comm=SELF)
    with pytest.raises(ds.InputError, match="across a stretched dimension"):
        make(weno, stretched(9), n=9, comm=SELF)


@pytest.mark.parametrize(
    "rhs",
    [
        lambda t, u, p: u.map(lambda v, q: p.k * v.center).laplacian(),
        lambda t, u, p: u.map(lambda v, q: p.k[1] * v.center).laplacian(),
        lambda t, u, p: u.divergence(lambda v, q: p.k * v.gradient),
    ],
    ids=["map", "beside", "flux"],
)
def test_fields_of_an_outer_function_are_refused(rhs):
    """They would be those at its point, not at that of the function inside."""
    line = Grid(((0.0, 1.0),), (8,), "neumann", comm=PETSc.COMM_SELF)
    with pytest.raises(ds.InputError, match='reads the field "k" of that one'):
        ds.trace_stencil(rhs, line, fields=["k"])
