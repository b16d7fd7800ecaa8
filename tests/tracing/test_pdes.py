"""Well-known equations on grids: closed forms, orders, derivatives, any ranks."""

import json
from pathlib import Path

import numpy as np
import pytest
from fields import ENERGY, own_part, random_field
from petsc4py import PETSc

import daeosens as ds
from daeosens.problem.grids import Grid
from daeosens.tracing import pdes
from daeosens.verify import duality

SELF = PETSc.COMM_SELF
TURN = (0.0, 2.0 * np.pi)
EXACT = {"snes_rtol": 1e-13}
HEAT = json.loads((Path(__file__).parents[1] / "references" / "heat2d.json").read_text())["values"]


def lotka(u, p):
    return [p.a * u[0] - u[0] * u[1], u[0] * u[1] - p.b * u[1]]


ROUND, WALLS = ("periodic", "periodic"), ("periodic", "neumann")
CASES = {
    "heat": (pdes.heat, WALLS, 1, {"dirichlet": {"y-": 1.0}}, [0.3]),
    "gray_scott": (
        lambda grid, **options: pdes.gray_scott(grid, parameters=list(pdes.RATES), **options),
        WALLS,
        2,
        {},
        [0.02, 0.01, 0.3, 0.2],
    ),
    "reaction": (
        lambda grid, **options: pdes.reaction_diffusion(lotka, grid, ["a", "b"], **options),
        WALLS,
        2,
        {},
        [0.1, 0.2, 0.7, 0.4],
    ),
    "advection": (pdes.advection_diffusion, ROUND, 1, {}, [0.1, 0.6, -0.3]),
    "burgers": (pdes.burgers, WALLS, 1, {"dirichlet": {"y": 0.0}}, [0.1]),
    "allen_cahn": (pdes.allen_cahn, WALLS, 1, {}, [0.2]),
    "cahn_hilliard": (pdes.cahn_hilliard, WALLS, 1, {}, [0.1, 0.3]),
    "shallow_water": (pdes.shallow_water, WALLS, 3, {"dirichlet": {"y": [None, None, 0.0]}}, [0.8]),
    "wave": (pdes.wave, WALLS, 2, {"dirichlet": {"y+": [0.0, 0.0]}}, [0.7]),
    "kuramoto": (pdes.kuramoto_sivashinsky, ROUND, 1, {}, [0.1]),
}


def start(grid):
    u = random_field(grid, 3)
    u.shift(1.0)  # depths of water
    u.scale(0.6)
    return u


@pytest.mark.mpi
@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_exact(name):
    make, boundary, dof, options, p = CASES[name]
    grid = Grid((TURN, TURN), (9, 8), boundary, dof)
    model, p, u0 = make(grid, **options), np.array(p), start(grid)
    stepping = ds.Stepping((0.0, 0.1), "rk4", dt=0.02)
    run = ds.solve(model, u0, p, stepping)
    assert duality(run, ENERGY) < 1e-12
    names = model.shapes.names
    control = ds.Parameters(
        {key: ds.Parameter(value) for key, value in zip(names, p, strict=True)}, u0
    )
    orders = ds.taylor(ds.Reduced(model, ENERGY, stepping, control), hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9
    implicit = ds.solve(model, u0, p, ds.Stepping((0.0, 0.1), "cn", dt=0.05, options=EXACT))
    assert duality(implicit, ENERGY) < 1e-12


@pytest.mark.mpi
@pytest.mark.parametrize("name", CASES)
def test_answers_do_not_depend_on_the_number_of_ranks(name):
    make, boundary, dof, options, p = CASES[name]
    answers = []
    for comm in (PETSc.COMM_WORLD, SELF):
        grid = Grid((TURN, TURN), (9, 12), boundary, dof, comm)
        run = ds.solve(
            make(grid, **options), start(grid), p, ds.Stepping((0.0, 0.1), "rk4", dt=0.02)
        )
        gradient = ds.adjoint(run, ENERGY)
        product = ds.hessian_product(run, ENERGY, random_field(grid, 4), np.ones(len(p)))
        vecs = [run.final, gradient.u0_vec, product.u0_vec]
        answers.append(([grid.values(vec).copy() for vec in vecs], [gradient.p, product.p], grid))
    (ours, mine, grid), (theirs, expected, _) = answers
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, own_part(grid, b), rtol=1e-10, atol=1e-13)
    for a, b in zip(mine, expected, strict=True):
        # the squares of what is only carried do not depend on its speed: a sum of 0 is left
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12 * np.abs(b).max())


def ring(n, dof=1):
    return Grid((TURN,), (n,), "periodic", dof, SELF)


def final(model, u0, p, end=1.0):
    return ds.solve(
        model, u0, p, ds.Stepping((0.0, end), "esdirk5", rtol=1e-11, atol=1e-13)
    ).final.array


def eigenvalue(grid, k=1):
    """Return that of minus the second difference, for cos(k x)."""
    return (2.0 / grid.spacing[0] * np.sin(0.5 * k * grid.spacing[0])) ** 2


def test_linear_equations_have_the_closed_forms_of_their_differences():
    grid = ring(24)
    (x,) = grid.coordinates()
    h, lam = grid.spacing[0], eigenvalue(grid)
    ends = final(pdes.heat(grid), np.cos(x), [0.3])
    np.testing.assert_allclose(ends, np.cos(x) * np.exp(-0.3 * lam), atol=1e-9)
    model = pdes.reaction_diffusion(lambda u, p: [p.r * u[0]], grid, ["r"])
    ends = final(model, np.cos(x), [0.3, 0.4])
    np.testing.assert_allclose(ends, np.cos(x) * np.exp(0.4 - 0.3 * lam), atol=1e-9)
    ends = final(pdes.advection_diffusion(grid), np.cos(x), [0.3, 0.7])
    moved = 0.7 * np.sin(h) / h
    np.testing.assert_allclose(ends, np.cos(x - moved) * np.exp(-0.3 * lam), atol=1e-9)
    two = ring(24, 2)
    u0 = np.stack([np.cos(x), 0.0 * x], -1).ravel()
    ends = final(pdes.wave(two), u0, [0.7]).reshape(-1, 2)
    turned = 0.7 * np.sqrt(lam)
    expected = np.stack([np.cos(x) * np.cos(turned), -turned * np.cos(x) * np.sin(turned)], -1)
    np.testing.assert_allclose(ends, expected, atol=1e-8)


def test_small_waves_grow_as_linear_theory_says():
    grid = ring(24)
    (x,) = grid.coordinates()
    lam, small = eigenvalue(grid), 1e-4 * np.cos(x)
    ends = final(pdes.cahn_hilliard(grid), small, [0.5, 0.3])
    np.testing.assert_allclose(ends, small * np.exp(0.5 * lam * (1 - 0.09 * lam)), atol=1e-11)
    ends = final(pdes.allen_cahn(grid), small, [0.3])
    np.testing.assert_allclose(ends, small * np.exp(1.0 - 0.09 * lam), atol=1e-10)
    ends = final(pdes.kuramoto_sivashinsky(grid), small, [0.5])
    np.testing.assert_allclose(ends, small * np.exp(lam - 0.5 * lam**2), atol=1e-8)


def test_a_wave_of_burgers_equation_converges_in_second_order():
    """Closed form: u = c - a tanh(a (x - c t) / (2 k)), between walls with its values."""
    k, a, c = 0.1, 0.5, 0.3

    def exact(t, x):
        return c - a * np.tanh(a * (x - c * t) / (2.0 * k))

    errors = []
    for n in (40, 80, 160):
        grid = Grid(((-2.0, 2.0),), (n,), "neumann", 1, SELF)
        model = pdes.burgers(grid, dirichlet={"x": lambda t, x, p: exact(t, x[0])})
        (x,) = grid.coordinates()
        errors.append(np.abs(final(model, exact(0.0, x), [k]) - exact(1.0, x)).max())
    assert (np.log2(np.divide(errors[:-1], errors[1:])) > 1.9).all()


def test_fronts_stand_to_second_order():
    """Closed form: tanh(x / (sqrt(2) eps)) is at rest in Allen-Cahn's and Cahn-Hilliard's."""
    for make, p in ((pdes.allen_cahn, [0.3]), (pdes.cahn_hilliard, [0.5, 0.3])):
        errors = []
        for n in (80, 160):
            grid = Grid(((-4.0, 4.0),), (n,), "neumann", 1, SELF)
            front = np.tanh(grid.coordinates()[0] / (np.sqrt(2.0) * 0.3))
            errors.append(np.abs(final(make(grid), front, p, 0.5) - front).max())
        assert (np.log2(np.divide(errors[:-1], errors[1:])) > 1.9).all()


def test_the_mean_of_kuramoto_sivashinsky_falls_by_its_slopes():
    grid = ring(64)
    (x,) = grid.coordinates()
    out, u0 = grid.create_vec(), grid.create_vec()
    grid.writable(u0)[..., 0] = np.cos(x) + 0.3 * np.sin(2 * x)
    pdes.kuramoto_sivashinsky(grid).rhs(0.0, u0, np.array([0.2]), out)
    slopes = -np.sin(x) + 0.6 * np.cos(2 * x)
    assert out.sum() / 64 == pytest.approx(-0.5 * np.mean(slopes**2), rel=0.02)


def test_shallow_waves_converge_and_keep_their_water():
    """Closed form: h = 1 + a cos(x - c t) for small a, c^2 = g."""
    g, a, errors = 0.8, 1e-7, []
    c = np.sqrt(g)
    for n in (100, 200, 400):
        grid = ring(n, 2)
        (x,) = grid.coordinates()
        u0 = np.stack([1.0 + a * np.cos(x), a * c * np.cos(x)], -1)
        stepping = ds.Stepping((0.0, 0.5), "rk4", dt=1.0 / n)
        ends = ds.solve(pdes.shallow_water(grid), u0.ravel(), [g], stepping).final.array.reshape(
            -1, 2
        )
        errors.append(np.abs(ends[:, 0] - 1.0 - a * np.cos(x - 0.5 * c)).max() / a)
        assert ends[:, 0].sum() == pytest.approx(n, rel=1e-13)
    assert (np.log2(np.divide(errors[:-1], errors[1:])) > 0.95).all()


# ---- incompressible flow, whose stream function is an algebraic unknown --------------------------


def flow(boundary, n, comm=None):
    """Return grid, model and the vorticity of a vortex, of one rank or all."""
    length = 2.0 * np.pi if boundary == "periodic" else np.pi
    shape = (n, n + 2)
    grid = Grid(((0.0, length), (0.0, length)), shape, boundary, 2, comm or PETSc.COMM_WORLD)
    x, y = grid.coordinates()
    return grid, pdes.vorticity(grid), 2.0 * np.sin(x) * np.sin(y)


def whirls(boundary, comm=None):
    grid, model, vortex = flow(boundary, 8, comm)
    u0, (x, y) = grid.create_vec(), grid.coordinates()
    grid.writable(u0)[..., 0] = vortex + 0.5 * np.sin(2.0 * x) * np.sin(y)
    return grid, model, ds.consistent_state(model, u0, [0.1])


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", ["periodic", "neumann"])
def test_derivatives_of_flows_are_exact(boundary):
    _, model, u0 = whirls(boundary)
    for method in ("cn", "esdirk3", "beuler"):
        run = ds.solve(model, u0, [0.1], ds.Stepping((0.0, 0.2), method, dt=0.05, options=EXACT))
        assert duality(run, ENERGY) < 1e-12
    stepping = ds.Stepping((0.0, 0.2), "cn", dt=0.1, options=EXACT)
    control = ds.Parameters({"k": ds.Parameter(0.1)}, u0, consistent=True)
    orders = ds.taylor(ds.Reduced(model, ENERGY, stepping, control), hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", ["periodic", "neumann"])
def test_flows_do_not_depend_on_the_number_of_ranks(boundary):
    answers = []
    for comm in (PETSc.COMM_WORLD, SELF):
        grid, model, u0 = whirls(boundary, comm)
        run = ds.solve(model, u0, [0.1], ds.Stepping((0.0, 0.2), "cn", dt=0.1, options=EXACT))
        gradient = ds.adjoint(run, ENERGY)
        vecs = [grid.values(vec).copy() for vec in (u0, run.final, gradient.u0_vec)]
        answers.append((grid, vecs, gradient.p))
    (grid, ours, mine), (_, theirs, expected) = answers
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, own_part(grid, b), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(mine, expected, rtol=1e-9)


@pytest.mark.parametrize("boundary", ["periodic", "neumann"])
def test_vortices_of_taylor_and_green_decay_as_the_closed_form_says(boundary):
    """Closed form: w = 2 psi = 2 sin x sin y exp(-2 k t), in a periodic box and between walls."""
    k, errors = 0.3, []
    for n in (8, 16, 32):
        grid, model, vortex = flow(boundary, n, SELF)
        u0 = grid.create_vec()
        grid.writable(u0)[..., 0] = vortex
        run = ds.solve(
            model,
            ds.consistent_state(model, u0, [k]),
            [k],
            ds.Stepping((0.0, 1.0), "esdirk4", dt=0.25),
        )
        w, psi = np.moveaxis(grid.values(run.final), -1, 0)
        expected = vortex * np.exp(-2.0 * k)
        # psi is known but for a constant in a periodic box, where it is 0 at the first point
        level = psi[0, 0] - 0.5 * expected[0, 0] if boundary == "periodic" else 0.0
        errors.append([abs(w - expected).max(), abs(psi - level - 0.5 * expected).max()])
    assert (np.log2(np.divide(errors[:-1], errors[1:])) > 1.8).all()


def test_flows_carry_vorticity_in_second_order():
    """Closed form: waves of one length, in any directions, decay together."""
    errors = []
    for n in (24, 48):
        grid = Grid((TURN, TURN), (n, n), "periodic", 2, SELF)
        model, (x, y), u0 = pdes.vorticity(grid), grid.coordinates(), grid.create_vec()
        waves = np.cos(2.0 * x + y) + np.sin(x - 2.0 * y)
        grid.writable(u0)[..., 0] = waves
        run = ds.solve(
            model,
            ds.consistent_state(model, u0, [0.01]),
            [0.01],
            ds.Stepping((0.0, 1.0), "esdirk4", dt=0.25),
        )
        ends = grid.values(run.final)[..., 0]
        errors.append(abs(ends - waves * np.exp(-0.05)).max())
    assert np.log2(errors[0] / errors[1]) > 1.8


def test_flows_keep_vorticity_its_square_and_energy():
    grid, model, _ = flow("periodic", 9, SELF)
    u, out = random_field(grid, 5), grid.create_vec()
    model.rhs(0.0, u, np.array([0.0]), out)
    rate, (w, psi) = grid.values(out)[..., 0], np.moveaxis(grid.values(u), -1, 0)
    for kept in (1.0, w, psi):
        assert abs((kept * rate).sum()) < 1e-12 * abs(kept * rate).sum()


def test_what_is_no_flow_is_refused():
    with pytest.raises(ds.InputError, match=r"wave on a grid with dof = 1(.|\n)*2 unknowns"):
        pdes.wave(ring(9))
    with pytest.raises(ds.InputError, match=r"shape \(9,\)(.|\n)*two dimensions"):
        pdes.vorticity(ring(9, 2))
    grid, model, vortex = flow("periodic", 8, SELF)
    u0 = grid.create_vec()
    grid.writable(u0)[..., 0] = vortex + 0.1
    with pytest.raises(ds.InputError, match=r"vorticity of u0 has the mean 0\.1"):
        ds.solve(model, u0, [0.1], ds.Stepping((0.0, 0.2), "cn", dt=0.1))
    stretched = Grid((TURN, lambda s: s + s**2), (8, 8), "neumann", 2, SELF)
    with pytest.raises(ds.InputError, match="vorticity on a stretched grid"):
        pdes.vorticity(stretched)


# ---- heat by a number and by a field -------------------------------------------------------------


SQUARES = ds.Terminal(
    lambda t, u, p: u.dot(u), lambda t, u, p, out: out.waxpy(1.0, u, u), "independent"
)


def fine(case):
    points = {"Np30_interior": 30, "Np30_with_boundary": 28}[case]
    return Grid(((0.0, 1.0), (0.0, 1.0)), (points, points), "zero")


@pytest.mark.mpi
@pytest.mark.parametrize("case", HEAT)
def test_sensitivity_to_the_diffusivity_is_the_closed_form(case):
    grid, reference = fine(case), HEAT[case]
    steps = ds.Stepping((0.0, 0.01), "rk4", dt=1e-4)
    gradient = ds.adjoint(ds.solve(pdes.heat(grid), pdes.first_mode(grid), [1.0], steps), SQUARES)
    assert gradient.value == pytest.approx(float(reference["psi_sum_u2"]), rel=1e-9)
    assert gradient.p[0] == pytest.approx(float(reference["dpsi_dalpha"]), rel=1e-9)


@pytest.mark.mpi
@pytest.mark.parametrize("case", HEAT)
def test_gradient_in_a_field_of_diffusivities_is_the_closed_form(case):
    grid, reference = fine(case), HEAT[case]
    model, u0 = pdes.heat(grid, fields=["k"]), pdes.first_mode(grid)
    run = ds.solve(model, u0, model.pack(k=1.0), ds.Stepping((0.0, 0.01), "rk4", dt=1e-4))
    gradient = model.unpack(ds.adjoint(run, SQUARES).p_vec).k
    lam, t = float(reference["lam"]), 0.01
    expected = u0.copy()
    expected.pointwiseMult(u0, u0)
    expected.scale(-2 * lam * t * np.exp(-2 * lam * t))
    assert (gradient - expected).norm() < 1e-9 * expected.norm()
    if grid.comm.size == 1:
        j, i = reference["probe_index"]
        probe = grid.values(expected)[j, i, 0]
        assert probe == pytest.approx(float(reference["field_gradient_probe"]), rel=1e-13)


# ---- Gray-Scott ----------------------------------------------------------------------------------


@pytest.mark.mpi
def test_parameters_take_the_place_of_fixed_rates():
    grid, strong = Grid((TURN, TURN), (8, 8), dof=2), [0.02, 0.01, 0.3, 0.2]
    state, fixed, value = random_field(grid, 3), grid.create_vec(), grid.create_vec()
    none = np.array([])
    pdes.gray_scott(grid, *strong).rhs(0.0, state, none, fixed)
    names = ["kappa", "D1", "gamma", "D2"]
    varied = pdes.gray_scott(grid, parameters=names)
    varied.rhs(0.0, state, np.array([0.2, 0.02, 0.3, 0.01]), value)
    assert (value - fixed).norm() < 1e-14 * fixed.norm()
    pdes.gray_scott(grid).rhs(0.0, state, none, value)
    assert (value - fixed).norm() > 0.1 * fixed.norm()


@pytest.mark.mpi
def test_spots_are_four_or_one():
    grid = Grid(((0.0, 2.5), (0.0, 2.5)), (40, 40), dof=2)
    state = pdes.spots(grid)
    u, v = np.moveaxis(grid.values(state), 2, 0)
    np.testing.assert_array_equal(u, 1.0 - 2.0 * v)
    x, y = grid.coordinates()
    inside = (x >= 1.0) & (x <= 1.5) & (y >= 1.0) & (y <= 1.5)
    assert not v[~inside].any()
    np.testing.assert_allclose(
        v[inside], (0.5 * np.sin(4 * np.pi * x) * np.sin(4 * np.pi * y))[inside] ** 2
    )
    for waves in (4.0, 2.0):
        v_sum = pdes.spots(grid, waves).strideNorm(1, PETSc.NormType.NORM_1)
        assert v_sum * np.prod(grid.spacing) == pytest.approx(1 / 64, rel=1e-12)  # the integral


def test_bad_arguments_of_gray_scott_are_reported_all_at_once():
    grid = Grid((TURN, TURN), (8, 8), comm=SELF)
    with pytest.raises(ds.InputError) as caught:
        pdes.gray_scott(grid, parameters=["gama"])
    message = str(caught.value)
    assert "2 problems" in message
    assert 'unknown parameter "gama"; expected: D1, D2, gamma, kappa; try: "gamma"' in message
    assert "dof = 1" in message
    with pytest.raises(ds.InputError, match="kappa = nan"):
        pdes.gray_scott(Grid((TURN, TURN), (8, 8), dof=2, comm=SELF), kappa=np.nan)
