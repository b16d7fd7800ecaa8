"""Newton's method knows the rounding of its residual and scales; three ways to fail."""

from dataclasses import replace

import numpy as np
import pytest
from fields import ENERGY
from petsc4py import PETSc

import daeosens as ds
from daeosens import ODE, Stepping, Terminal, adjoint, consistent_state, solve, tangent
from daeosens.problem.grids import Grid
from daeosens.tracing.stencil import problem as stencils
from daeosens.verify import duality

SPAN = (0.0, 1.0)
SELF = PETSc.COMM_SELF


def heat(t, u, p):
    return p.k * u.laplacian()


@pytest.mark.slow
@pytest.mark.parametrize("jacobian", ["auto", "products"])
@pytest.mark.parametrize("method", ["cn", "beuler", "esdirk3"])
def test_heat_on_fine_grids_needs_no_options(method, jacobian):
    """The discrete eigenvector decays by the amplification factor of the method, at any spacing."""
    n = 20_000 if jacobian == "auto" else 200
    grid = Grid(((0.0, 1.0),), (n,), "zero", comm=SELF)
    model = ds.trace_stencil(heat, grid, ["k"], jacobian=jacobian)
    u0 = grid.create_vec()
    u0.setArray(np.sin(np.pi * grid.coordinates()[0]))
    dt, k = 0.05, 0.3
    run = solve(model, u0, [k], Stepping((0.0, 0.2), method, dt=dt))
    z = -k * dt * (2.0 / grid.spacing[0] * np.sin(0.5 * np.pi * grid.spacing[0])) ** 2
    factor = {"cn": (1 + z / 2) / (1 - z / 2), "beuler": 1 / (1 - z)}.get(method, np.exp(z))
    value = run.final.dot(u0) / u0.dot(u0)
    assert value == pytest.approx(factor**4, rel=1e-3 if method == "esdirk3" else 1e-8)


def reacting(t, u, p):
    return heat(t, u, p) - (1.0 + t) * u.center**3


@pytest.mark.slow
@pytest.mark.parametrize("rhs", [heat, reacting])
@pytest.mark.parametrize("method", ["cn", "theta:0.7", "beuler", "esdirk3"])
def test_tangents_and_adjoints_on_grids_are_dual(method, rhs):
    """Theta methods at any dt / h^2, 6e6 here: no product has the large rows of diffusion.

    The first stage of ESDIRK has one, f_u du, whose rounding eps 4 k / h^2 |du| the next stage
    takes for a force over a step.
    """
    for n in (40, 20_000):
        grid = Grid(((0.0, 1.0),), (n,), "zero", comm=SELF)
        model = ds.trace_stencil(rhs, grid, ["k"])
        u0 = np.sin(np.pi * grid.coordinates()[0])
        dt, k = 0.05, 0.3
        run = solve(model, u0, [k], Stepping((0.0, 0.2), method, dt=dt))
        rounding = 4.0 * k * dt / grid.spacing[0] ** 2 * np.finfo(float).eps
        bound = 1e-12 + (rounding if method == "esdirk3" else 0.0)
        assert max(duality(run, ENERGY, seed) for seed in range(3)) < bound


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cn", "theta:0.7", "beuler"])
@pytest.mark.parametrize("rhs", [heat, reacting])
def test_rough_starts_are_dual_but_for_the_rounding_of_the_parameters_part(method, rhs):
    """In u0 to 1e-12 at any dt / h^2; F_k is the Laplacian of a rough state, of size 4 |u| / h^2.

    Smooth parts of its rounding eps 4 |u| / h^2, which is white noise, are forces over the step: by
    n^(-1/2) of it in each mode.
    """
    for n in (1000, 20_000, 100_000):
        grid = Grid(((0.0, 1.0),), (n,), "zero", comm=SELF)
        model = ds.trace_stencil(rhs, grid, ["k"])
        rng = np.random.default_rng(5)
        start = np.sin(np.pi * grid.coordinates()[0]) + 0.3 * rng.standard_normal(n)
        dt, k = 0.05, 0.3
        run = solve(model, start, [k], Stepping((0.0, 0.2), method, dt=dt))
        gradient, du = adjoint(run, ENERGY), rng.standard_normal(n)
        last = run.final.array
        along, turned = (tangent(run, *value).final.array for value in ((du,), (None, [1.0])))
        in_u0 = gradient.u0 @ du - last @ along / n
        assert abs(in_u0) < 1e-12 * np.linalg.norm(gradient.u0) * np.linalg.norm(du)
        bound = 1e-12 + 4.0 * k * dt / grid.spacing[0] ** 2 * np.finfo(float).eps / np.sqrt(n)
        in_k = gradient.p[0] - last @ turned / n
        assert abs(in_k) < bound * np.abs(start).max() * np.abs(last).max() / k


@pytest.mark.slow
def test_stages_of_the_finest_grids_are_found_again():
    """The rounding of J^-1 F is 1e-10 of the state there: adjoints ended in an error."""
    grid = Grid(((0.0, 1.0),), (100_000,), "zero", comm=SELF)
    model = ds.trace_stencil(reacting, grid, ["k"])
    start, gradients = np.sin(np.pi * grid.coordinates()[0]), []
    for kept in ("states", "stages"):
        run = solve(model, start, [0.3], Stepping((0.0, 0.1), "esdirk4", dt=0.05), checkpoint=kept)
        gradients.append(adjoint(run, ENERGY))
    computed, same = gradients
    rounding = 4.0 * 0.3 * 0.05 / grid.spacing[0] ** 2 * np.finfo(float).eps  # of the run
    assert np.abs(computed.u0 - same.u0).max() < rounding * np.abs(same.u0).max()
    assert computed.p == pytest.approx(same.p, rel=rounding)


@pytest.mark.slow
@pytest.mark.parametrize("rhs", [heat, reacting])
def test_derivatives_on_fine_grids_are_those_of_more_digits(rhs):
    """The tangent and the gradient of steps of cn, computed in long double from the same states."""
    n, k, dt = 4000, 0.3, 0.05
    grid = Grid(((0.0, 1.0),), (n,), "zero", comm=SELF)
    model = ds.trace_stencil(rhs, grid, ["k"])
    run = solve(
        model, np.sin(np.pi * grid.coordinates()[0]), [k], Stepping((0.0, 0.1), "cn", dt=dt)
    )
    real = np.longdouble
    side = real(k) / real(grid.spacing[0]) ** 2
    states = [state.array.astype(real) for state in run.states]

    def diagonal(m):
        t = real(run.times[m])
        return -2 * side - (1 + t) * (3 if rhs is reacting else 0) * states[m] ** 2

    def product(m, v):
        out = diagonal(m) * v
        out[1:] += side * v[:-1]
        out[:-1] += side * v[1:]
        return out

    def solved(m, right):
        d, x = 2 / real(dt) - diagonal(m), right.copy()
        for i in range(1, n):
            factor = -side / d[i - 1]
            d[i] += factor * side
            x[i] -= factor * x[i - 1]
        x[-1] /= d[-1]
        for i in range(n - 2, -1, -1):
            x[i] = (x[i] + side * x[i + 1]) / d[i]
        return x

    shift, du = 2 / real(dt), np.random.default_rng(4).standard_normal(n)
    along, lam = du.astype(real), states[-1] / n
    for m in range(run.n_steps):
        along = solved(m + 1, product(m, along) + shift * along)
    for m in reversed(range(run.n_steps)):
        weight = solved(m + 1, lam)
        lam = product(m, weight) + shift * weight
    assert abs(lam @ du / (along @ states[-1] / n) - 1) < 1e-11  # it has the digits
    # what is left is the rounding of the matrix: its diagonal's, beside the shift, on average
    bound = 4.0 * k * dt / grid.spacing[0] ** 2 * np.finfo(float).eps
    gradient, moved = adjoint(run, ENERGY).u0, tangent(run, du).final.array
    assert np.abs(gradient - lam).max() < bound * np.abs(lam).max()
    assert np.abs(moved - along).max() < bound * np.abs(along).max()


@pytest.mark.slow
def test_affine_equations_take_one_newton_iteration():
    grid = Grid(((0.0, 1.0),), (300,), "zero", comm=SELF)
    model = ds.trace_stencil(heat, grid, ["k"])
    run = solve(model, np.ones(300), [0.2], Stepping(SPAN, "cn", dt=0.1))
    assert run.effort.newton_iterations == run.n_steps


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cn", "beuler", "esdirk3"])
def test_affine_equations_are_factorised_once_for_equal_steps(method, monkeypatch):
    """Sweeps have one matrix for the solves, and one to multiply with."""
    grid = Grid(((0.0, 1.0),), (30,), "zero", comm=SELF)
    filled = []
    fill = stencils.fill_stencil_matrix

    def counting(values, out):
        filled.append(out)
        fill(values, out)

    monkeypatch.setattr(stencils, "fill_stencil_matrix", counting)

    def counts(rhs):
        values = []
        model = ds.trace_stencil(rhs, grid, ["k"])
        filled.clear()
        run = solve(model, np.ones(30), [0.2], Stepping(SPAN, method, dt=0.125))
        values.append(len(filled))
        filled.clear()
        gradient = adjoint(run, ENERGY)
        values.append(len(filled))
        assert duality(run, ENERGY) < 1e-12
        return values, gradient

    few, gradient = counts(lambda t, u, p: heat(t, u, p) + u.x[0] + t)
    many, same = counts(lambda t, u, p: heat(t, u, p) + u.x[0] + t + 1e-30 * u.center**2)
    assert few[0] <= 2
    assert few[1] <= 2
    assert min(many) >= 8
    np.testing.assert_allclose(gradient.u0, same.u0, rtol=1e-12)
    np.testing.assert_allclose(gradient.p, same.p, rtol=1e-12)
    (moving, _), _ = counts(lambda t, u, p: (1.0 + t) * heat(t, u, p)), None
    assert min(moving) >= 8


@pytest.mark.parametrize("method", ["cn", "beuler", "esdirk4"])
def test_small_unknowns_beside_large_ones_are_as_accurate(method):
    """Equations in units that differ by 1e24 give the same numbers as in like units."""

    def reaction(t, u, p):
        a, b = u
        return np.array([-p[0] * a**2, p[0] * a**2 - b**3])

    scales = np.array([1e12, 1e-12])

    def scaled(t, u, p):
        return scales * reaction(t, u / scales, p)

    stepping = Stepping(SPAN, method, dt=0.1)
    plain = solve(ODE(reaction, 2, ["k"]), [1.0, 0.5], [2.0], stepping)
    apart = solve(ODE(scaled, 2, ["k"]), scales * [1.0, 0.5], [2.0], stepping)
    np.testing.assert_allclose(apart.final.array / scales, plain.final.array, rtol=1e-11)
    outputs = [Terminal(lambda t, u, p, s=s: u[1] / s) for s in (1.0, scales[1])]
    gradients = [adjoint(run, j).p for run, j in zip((plain, apart), outputs, strict=True)]
    np.testing.assert_allclose(*gradients, rtol=1e-10)


def test_a_state_at_rest_is_no_failure():
    """Nothing but rounding is left of the residual from the start."""
    rates = ODE(lambda t, u, p: np.array([1e9 * (p[0] - u[0] ** 2), u[0] - p[0] * u[1]]), 2, ["a"])
    start = [np.sqrt(2.0), np.sqrt(0.5)]
    run = solve(rates, start, [2.0], Stepping(SPAN, "cn", dt=0.25))
    np.testing.assert_allclose(run.final.array, start, rtol=1e-15)


def test_what_newtons_method_leaves_is_told():
    """A loose tolerance leaves an error of about the estimate; the default one next to none."""
    cubic = ODE(lambda t, u, p: -(u**3), 1)
    exact = solve(cubic, [2.0], [], Stepping((0.0, 0.5), "beuler", dt=0.5))
    loose = {"snes_rtol": 1e-2}
    rough = solve(cubic, [2.0], [], Stepping((0.0, 0.5), "beuler", dt=0.5, options=loose))
    error = abs(rough.final.array[0] / exact.final.array[0] - 1.0)
    assert 0.1 * error < rough.effort.remainder < 100.0 * error
    assert exact.effort.remainder < 1e-10
    assert solve(cubic, [2.0], [], Stepping((0.0, 0.5), "rk4", dt=0.1)).effort.remainder == 0.0


@pytest.mark.slow
def test_derivatives_with_loose_linear_solvers_are_refused():
    grid = Grid(((0.0, 1.0),) * 2, (8, 8), "zero", comm=SELF)
    model = ds.trace_stencil(heat, grid, ["k"])
    options = {"ksp_type": "gmres", "pc_type": "jacobi", "ksp_rtol": 1e-3}
    u0 = np.ones(64)
    run = solve(model, u0, [0.2], Stepping(SPAN, "cn", dt=0.5, options=options))
    for derivative in (
        lambda: adjoint(run, ENERGY),
        lambda: adjoint(run, ENERGY, engine="tsadjoint"),
        lambda: tangent(run, np.ones(64)),
        lambda: ds.sensitivities(run, [1.0]),
    ):
        with pytest.raises(ds.UnsupportedError, match=r"derivatives with ksp_rtol = 0.001"):
            derivative()
    value = ds.Reduced(model, ENERGY, run.stepping, ds.Parameters({"k": ds.Parameter(0.2)}, u0))
    with pytest.raises(ds.UnsupportedError, match=r"derivatives with ksp_rtol = 0.001"):
        value.gradient(value.start())


def test_newtons_failure_names_a_step_that_is_solved():
    steep = ODE(lambda t, u, p: u**2 + 1.0, 1)  # no solution of a step longer than 1 / 2
    with pytest.raises(
        ds.errors.NewtonError, match=r"Newton's method failed(.|\n)*try: dt=0\.2"
    ) as error:
        solve(steep, [0.0], [], Stepping((0.0, 1.6), "beuler", dt=0.8))
    assert "a step of that size is solved" in str(error.value)
    solve(steep, [0.0], [], Stepping((0.0, 0.4), "beuler", dt=0.2))


@pytest.mark.slow
def test_a_failed_linear_solver_names_one_that_solves():
    grid = Grid(((0.0, 1.0),) * 2, (20, 20), "zero", comm=SELF)
    model = ds.trace_stencil(heat, grid, ["k"])
    few = {"ksp_type": "gmres", "pc_type": "jacobi", "ksp_max_it": 3}
    u0 = np.random.default_rng(1).random(400)
    with pytest.raises(
        ds.errors.LinearSolverError, match=r"gmres with pc_type jacobi .*MAX_IT"
    ) as error:
        solve(model, u0, [1.0], Stepping(SPAN, "cn", dt=0.5, options=few))
    assert 'lu"}, which solves this system' in str(error.value)
    lu = {"ksp_type": "preonly", "pc_type": "lu"}
    solve(model, u0, [1.0], Stepping(SPAN, "cn", dt=0.5, options=lu))
    products = ds.trace_stencil(heat, grid, ["k"], jacobian="products")
    with pytest.raises(ds.errors.LinearSolverError, match=r'try: .*jacobian="auto"'):
        solve(products, u0, [1.0], Stepping(SPAN, "cn", dt=0.5, options={"ksp_max_it": 3}))


def test_a_singular_matrix_is_named():
    growth = ODE(lambda t, u, p: p[0] * u, 1, ["k"])
    with pytest.raises(
        ds.errors.SingularMatrixError, match=r"the matrix is singular(.|\n)*another dt"
    ):
        solve(growth, [1.0], [2.0], Stepping(SPAN, "beuler", dt=0.5))
    solve(growth, [1.0], [2.0], Stepping(SPAN, "beuler", dt=0.25))


def bound(t, u, p):
    """A rate, and an algebraic equation that is nonlinear in its variable."""
    return np.array(
        [-u[0] + np.cos(3 * t) + 0.3 * u[1], u[0] ** 2 + 0.1 * t * u[0] - u[1] - p[0] * u[1] ** 3]
    )


BOUND = ODE(bound, 2, ["a"], mass=np.diag([1.0, 0.0]))


@pytest.mark.parametrize("start", [0.5, 0.8641])
@pytest.mark.parametrize("method", ["beuler", "cn", "midpoint", "theta:0.7"])
def test_tiny_steps_of_differential_algebraic_equations(method, start):
    """The rounding of u' = (u1 - u0)/h hides from a line search what algebraic equations gain."""
    grid = np.arange(0.05, 0.95, 0.1)
    wanted = np.sort(np.concatenate([grid, grid + 3e-6, grid + 3.4e-6]))
    stepping = Stepping(SPAN, method, dt=0.1)
    first = [1.0, start]
    if method != "beuler":  # the others carry a wrong start along, and refuse it
        first = consistent_state(BOUND, first, [0.2])
    run = solve(BOUND, first, [0.2], stepping, wanted)
    assert run.step_sizes.min() < 1e-6
    coarse = solve(BOUND, first, [0.2], stepping, grid)
    if method == "beuler":
        np.testing.assert_allclose(run.final.array, coarse.final.array, rtol=1e-4)
        gaps = [bound(t, u, [0.2])[1] for t, u in zip(run.times[1:], run.u[1:], strict=True)]
        assert np.abs(gaps).max() < 1e-10
    cost = Terminal(lambda t, u, p: u[0] * u[1])
    recorded = adjoint(run, cost, engine="tsadjoint").p
    np.testing.assert_allclose(recorded, adjoint(run, cost).p, rtol=1e-7)


@pytest.mark.parametrize("method", ["beuler", "cn"])
def test_tiny_first_steps_of_differential_algebraic_equations(method):
    start = consistent_state(BOUND, [1.0, 0.5], [0.2])
    run = solve(BOUND, start, [0.2], Stepping(SPAN, method, rtol=1e-3, atol=1e-3))
    assert run.step_sizes[0] == pytest.approx(1e-6)


def diffusion(t, u, p):
    around = np.concatenate([[0.0], u, [0.0]])
    return p[0] * 1e4 * (around[2:] - 2.0 * u + around[:-2]) + np.sin(t)


@pytest.mark.slow
@pytest.mark.parametrize("mass", [None, np.linspace(1.0, 2.0, 100)])
@pytest.mark.parametrize("method", ["cn", "beuler", "esdirk3"])
def test_affine_traced_models_are_factorised_once_for_equal_steps(method, mass):
    """Those that are affine in u alone, not in time; parameters between runs are seen."""
    weights = {} if mass is None else {"mass": np.diag(mass)}

    def counted(rhs):
        model, filled = ds.trace(rhs, 100, ["k"], **weights), []

        def fill(*arguments):
            filled.append(arguments[0])
            model.residual_u.fill(*arguments)

        return replace(model, residual_u=replace(model.residual_u, fill=fill)), filled

    def taken(rhs, k=0.2):
        model, filled = counted(rhs)
        run = solve(model, np.ones(100), [k], Stepping(SPAN, method, dt=0.0625))
        first = len(filled)
        gradient = adjoint(run, Terminal(lambda t, u, p: u @ u))
        assert duality(run, Terminal(lambda t, u, p: u @ u)) < 1e-12
        return gradient, first, len(filled) - first, model

    gradient, in_run, _, model = taken(diffusion)
    same, _, in_sweep, _ = taken(lambda t, u, p: diffusion(t, u, p) - 1e-30 * u**2)
    assert model.residual_u.constant
    assert in_run <= 4
    assert in_sweep >= 16
    np.testing.assert_allclose(gradient.u0, same.u0, rtol=1e-11)
    np.testing.assert_allclose(gradient.p, same.p, rtol=1e-11)
    _, _, _, moving = taken(lambda t, u, p: diffusion(t, u, (1.0 + t) * p))
    assert not moving.residual_u.constant
    again = solve(model, np.ones(100), [0.7], Stepping(SPAN, method, dt=0.0625))
    alone = solve(
        ds.trace(diffusion, 100, ["k"], **weights),
        np.ones(100),
        [0.7],
        Stepping(SPAN, method, dt=0.0625),
    )
    np.testing.assert_allclose(again.final.array, alone.final.array, rtol=1e-13)
