"""Values and slopes on the faces of grids, mixed with periodic and zero boundaries."""

import numpy as np
import pytest
from fields import alone, close, own_part, random_field
from petsc4py import PETSc
from scipy.optimize import brentq

import daeosens as ds
from daeosens.functional import FieldParameters
from daeosens.problem.grids import Grid
from daeosens.verify import duality

SELF = PETSc.COMM_SELF
P = np.array([0.7, 0.4])
UNIT = (0.0, 1.0)


def nothing(t, u, p, du, dp, *out):
    out[0].zeroEntries()
    out[0].axpy(1.0 / u.size, du)
    if len(out) > 1:
        out[1].zeroEntries()
        return None
    return np.zeros(len(p))


ENERGY = ds.Terminal(
    lambda t, u, p: 0.5 * u.dot(u) / u.size,
    lambda t, u, p, out: out.axpby(1.0 / u.size, 0.0, u),
    "independent",
    hessian_product=nothing,
)


def curved(t, u, p):
    """Nonlinear in corners and in neighbours two points away, unsymmetric, other in x."""
    a, _ = u.center
    rest = (0,) * (len(u.spacing) - 1)
    corner, far = u[(1, 1, 0)[: len(u.spacing)]], u[(-2, *rest)]
    along = u.laplacian()
    return [
        0.01 * along[0] + p.k * np.exp(-a) * far[1] ** 2 + corner[0] * corner[1] * u.x[0],
        0.02 * along[1] + np.sin(p.r * a) * u.gradient()[0][0] * 0.1,
    ]


def values(t, x, p):
    """The first unknown alone."""
    return [0.5 + 0.1 * p.k * np.sin(t + x[-1]), None]


def slopes(t, u, x, p):
    """The second unknown alone: Robin's condition, and one that is not linear."""
    return [None, -p.r * (u[1] - 0.2 * np.cos(t) * x[0]) - 0.1 * u[0] * u[1]]


FACES = [
    ((23,), "neumann", {"dirichlet": {"x-": values}, "slope": {"x-": slopes, "x+": 0.1}}),
    ((9, 8), "neumann", {"dirichlet": {"x": values, "y+": [1.0, 0.0]}, "slope": {"x-": slopes}}),
    ((11, 8), ("periodic", "neumann"), {"dirichlet": {"y-": values}, "slope": {"y": slopes}}),
    ((11, 8), ("neumann", "periodic"), {"dirichlet": values, "slope": lambda t, u, x, p: -p.r * u}),
    ((11, 8), ("zero", "periodic"), {}),
    ((11, 8), ("zero", "neumann"), {"slope": {"y+": slopes}}),
    ((5, 6, 6), ("periodic", "zero", "neumann"), {"dirichlet": {"z+": values}}),
]


@pytest.mark.mpi
def test_values_beyond_faces_are_those_of_conditions():
    """On a grid periodic along x, with values and slopes of one unknown each along y."""
    grid = Grid((UNIT, UNIT), (11, 8), ("periodic", "neumann"), 2)
    u0 = random_field(grid, 3)
    conditions = {"dirichlet": {"y-": [0.3, None]}, "slope": {"y+": [None, 0.7]}}

    def rhs(t, u, p):
        return [u[1, -2][0], u[-1, 2][1]]

    out = grid.create_vec()
    ds.trace_stencil(rhs, grid, **conditions).rhs(0.0, u0, np.empty(0), out)
    one = alone(grid)
    all_values = one.values(random_field(one, 3))
    h = grid.spacing[1]
    below, above = all_values[1::-1], all_values[:-3:-1]
    far = np.array([h, 3 * h])[:, None]
    first = np.concatenate([0.6 - below[..., 0], all_values[..., 0]])[:-2]
    second = np.concatenate([all_values[..., 1], above[..., 1] + 0.7 * far])[2:]
    expected = np.stack([np.roll(first, -1, 1), np.roll(second, 1, 1)], -1)
    np.testing.assert_allclose(grid.values(out), own_part(grid, expected), rtol=1e-13)


@pytest.mark.mpi
@pytest.mark.parametrize(("shape", "boundary", "conditions"), FACES)
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_derivatives_are_exact(method, shape, boundary, conditions):
    grid = Grid((UNIT,) * len(shape), shape, boundary, 2)
    model = ds.trace_stencil(curved, grid, ["k", "r"], **conditions)
    u0 = random_field(grid, 3)
    options = {} if method == "rk4" else {"snes_rtol": 1e-13}
    stepping = ds.Stepping((0.0, 0.2), method, dt=0.02, options=options)
    run = ds.solve(model, u0, P, stepping)
    assert duality(run, ENERGY) < 1e-12
    control = ds.Parameters({"k": ds.Parameter(P[0]), "r": ds.Parameter(P[1])}, u0)
    orders = ds.taylor(ds.Reduced(model, ENERGY, stepping, control), hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9


@pytest.mark.mpi
@pytest.mark.parametrize(("shape", "boundary", "conditions"), FACES)
@pytest.mark.parametrize("jacobian", ["auto", "products", "assembled"])
def test_answers_do_not_depend_on_the_number_of_ranks(jacobian, shape, boundary, conditions):
    answers = []
    for comm in (PETSc.COMM_WORLD, SELF):
        grid = Grid((UNIT,) * len(shape), shape, boundary, 2, comm)
        model = ds.trace_stencil(curved, grid, ["k", "r"], jacobian=jacobian, **conditions)
        u0, du = random_field(grid, 3), random_field(grid, 4)
        method = "rk4" if jacobian == "auto" else "cn"
        options = {} if method == "rk4" else {"snes_rtol": 1e-12, "ksp_rtol": 1e-12}
        stepping = ds.Stepping((0.0, 0.2), method, dt=0.02, options=options)
        run = ds.solve(model, u0, P, stepping)
        gradient = ds.adjoint(run, ENERGY)
        product = ds.hessian_product(run, ENERGY, du, np.array([0.3, -0.2]))
        vecs = [run.final, gradient.u0_vec, product.u0_vec]
        answers.append(([grid.values(vec).copy() for vec in vecs], gradient.p, product.p, grid))
    (ours, *mine, grid), (theirs, *expected, _) = answers
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, own_part(grid, b), rtol=1e-8, atol=1e-10)
    for a, b in zip(mine, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8)


@pytest.mark.parametrize(("shape", "boundary", "conditions"), FACES)
def test_matrices_are_those_of_products(shape, boundary, conditions):
    grid = Grid((UNIT,) * len(shape), shape, boundary, 2, SELF)
    u, v = random_field(grid, 3), random_field(grid, 4)
    stepping = ds.Stepping((0.0, 0.1), "cn", dt=0.05, options={"snes_rtol": 1e-13})
    runs = [
        ds.solve(
            ds.trace_stencil(curved, grid, ["k", "r"], jacobian=kind, **conditions), u, P, stepping
        )
        for kind in ("assembled", "products")
    ]
    assert close(runs[0].final, runs[1].final) < 1e-9
    gradients = [ds.adjoint(run, ENERGY).u0_vec for run in runs]
    assert close(*gradients) < 1e-7
    assert v.norm() > 0.0


def test_a_wall_at_a_given_temperature_and_one_that_cools_converge_in_second_order():
    """Closed form: u = 1 + sin(w x) exp(-k w^2 t), with u = 1 at 0, u_x = -b (u - 1) at 1."""
    k, b = 0.1, 2.0
    w = brentq(lambda w: w * np.cos(w) + b * np.sin(w), np.pi / 2 + 1e-9, np.pi)
    errors, gradients = [], []
    for n in (20, 40, 80):
        grid = Grid((UNIT,), (n,), "neumann", 1, SELF)
        model = ds.trace_stencil(
            lambda t, u, p: p.k * u.laplacian(),
            grid,
            ["k", "b", "wall"],
            dirichlet={"x-": lambda t, x, p: p.wall},
            slope={"x+": lambda t, u, x, p: -p.b * (u - 1.0)},
        )
        shape = np.sin(w * grid.coordinates()[0])
        run = ds.solve(
            model, 1.0 + shape, [k, b, 1.0], ds.Stepping((0.0, 1.0), "esdirk5", rtol=1e-10)
        )
        errors.append(np.abs(run.final.array - 1.0 - shape * np.exp(-k * w * w)).max())
        gradients.append(ds.adjoint(run, ENERGY).p)
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert (orders > 1.9).all()
    first, second = gradients[0] - gradients[1], gradients[1] - gradients[2]
    assert (np.log2(first / second) > 1.8).all()


def test_moving_walls_converge_in_second_order():
    """Closed form: u = sin(x - t) of u_t = -u_x + k (u_xx + u), walls that move."""
    errors = []
    for n in (20, 40, 80):
        grid = Grid((UNIT, UNIT), (n, 4), ("neumann", "periodic"), 1, SELF)
        model = ds.trace_stencil(
            lambda t, u, p: p.k * (u.laplacian() + u.center) - u.gradient()[0],
            grid,
            ["k"],
            dirichlet={"x": lambda t, x, p: np.sin(x[0] - t)},
        )
        x = grid.coordinates()[0]
        run = ds.solve(
            model, np.sin(x).ravel(), [0.05], ds.Stepping((0.0, 1.0), "esdirk4", dt=0.05)
        )
        errors.append(np.abs(grid.values(run.final)[..., 0] - np.sin(x - 1.0)).max())
    assert (np.log2(np.divide(errors[:-1], errors[1:])) > 1.8).all()


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", [("periodic", "neumann"), ("zero", "periodic")])
def test_parameter_fields_and_faces(boundary):
    """Fields beside numbers on a grid that is open along one dimension only."""
    grid = Grid((UNIT, UNIT), (11, 8), boundary, 1)
    conditions = {"dirichlet": {"y-": lambda t, x, p: p.wall}} if "neumann" in boundary else {}
    model = ds.trace_stencil(
        lambda t, u, p: u.laplacian(p.k) - p.wall * u.center**3,
        grid,
        ["wall"],
        fields=["k"],
        **conditions,
    )
    x, y = grid.coordinates()
    stepping = ds.Stepping((0.0, 0.5), "cn", dt=0.1, options={"snes_rtol": 1e-13})
    k = 0.05 * (1.0 + 0.3 * np.sin(2 * np.pi * x) * y)
    control = FieldParameters(
        {"wall": ds.Parameter(0.6), "k": ds.Parameter(k)}, random_field(grid, 3)
    )
    run = ds.solve(model, random_field(grid, 3), model.pack(wall=0.6, k=k), stepping)
    assert duality(run, ENERGY) < 1e-12
    orders = ds.taylor(ds.Reduced(model, ENERGY, stepping, control), hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", [("periodic", "neumann"), ("zero", "periodic")])
def test_multigrid_takes_few_iterations(boundary):
    grid = Grid((UNIT, UNIT), (96, 96), boundary)
    conditions = {"dirichlet": {"y": 1.0}} if "neumann" in boundary else {}
    model = ds.trace_stencil(
        lambda t, u, p: p.k * u.laplacian() - u.center**3, grid, ["k"], **conditions
    )
    run = ds.solve(model, random_field(grid, 3), [0.3], ds.Stepping((0.0, 1.0), "cn", dt=0.5))
    assert run.effort.linear_iterations / run.effort.newton_iterations < 11
    assert duality(run, ENERGY) < 1e-12


def test_what_does_not_hold_together_is_refused():
    grid = Grid((UNIT, UNIT), (9, 8), ("periodic", "neumann"), 2, SELF)

    def rhs(t, u, p):
        return u.laplacian()

    with pytest.raises(ds.InputError, match=r"dirichlet has 'x-'(.|\n)*\"y\", \"y-\", \"y\+\""):
        ds.trace_stencil(rhs, grid, dirichlet={"x-": 0.0})
    with pytest.raises(ds.InputError, match=r'unknown 1 has a value and a slope on the face "y-"'):
        ds.trace_stencil(rhs, grid, dirichlet={"y-": 1.0}, slope={"y": [None, 0.5]})
    with pytest.raises(ds.InputError, match=r"'dirichlet\[\"y\"\]' returned shape \(3,\)"):
        ds.trace_stencil(rhs, grid, dirichlet={"y": [1.0, 2.0, 3.0]})
    with pytest.raises(ds.InputError, match=r"dirichlet = 'warm'"):
        ds.trace_stencil(rhs, grid, dirichlet="warm")
    with pytest.raises(ds.InputError, match=r"boundary = \('periodic', 'wall'\)"):
        Grid((UNIT, UNIT), (9, 8), ("periodic", "wall"))
    with pytest.raises(ds.InputError, match=r"boundary = .*or 2 of them"):
        Grid((UNIT, UNIT), (9, 8), ("periodic",))
    with pytest.raises(ds.InputError, match=r"there is no parameter 'lid'"):
        ds.trace_stencil(rhs, grid, ["lip"], dirichlet={"y+": lambda t, x, p: p.lid})
