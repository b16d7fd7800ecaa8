"""Functions of a grid's points: equal to callbacks, all derivatives, any dimension, any ranks."""

import platform

import numpy as np
import pytest
from fields import alone, close, own_part, random_field
from grid_callbacks import gray_scott
from petsc4py import PETSc

import daeosens as ds
from daeosens.problem.grids import Grid
from daeosens.tracing.pdes import RATES, spots
from daeosens.verify import duality

SELF = PETSc.COMM_SELF
BOUNDARIES = ["periodic", "zero"]
UNIT = (0.0, 1.0)
NAMES = list(RATES)
VALUES = np.array(list(RATES.values()))
METHODS = ["rk4", "3bs", "cn", "beuler", "midpoint"]


def reaction(t, u, p):
    """Gray-Scott."""
    a, b = u.center
    of_a, of_b = u.laplacian()
    growth = a * b * b
    by_a = p.D1 * of_a - growth + p.gamma * (1.0 - a)
    return [by_a, p.D2 * of_b + growth - (p.gamma + p.kappa) * b]


def curved(t, u, p):
    """Nonlinear in neighbours two points away at the corners too, in t, in x and in parameters."""
    a, b = u.center
    corner, far = u[(1,) * len(u.spacing)], u[(-2, *(0,) * (len(u.spacing) - 1))]
    flux = np.exp(-a) * far[1] ** 2 + p.k[0] * corner[0] * corner[1] / a
    along = u.gradient()[0]
    return [
        np.cos(t) * flux + p.k[1] ** 2 * u.x.sum() * along[1] * b,
        np.sin(p.rate * a * t) + along[0] * far[0] + 0.1 * u.laplacian()[1],
    ]


CURVED = {"rate": (), "k": (2,)}
POINT = np.array([0.7, 1.3, -0.4])


def box(dimensions, boundary="periodic", comm=None):
    shape = (11, 7, 6)[:dimensions]
    return Grid((UNIT,) * dimensions, shape, boundary, dof=2, comm=comm or PETSc.COMM_WORLD)


def energy(m):
    return ds.Terminal(
        lambda t, u, p: 0.5 * u.dot(u),
        lambda t, u, p, out: u.copy(out),
        "independent",
        hessian_product=lambda t, u, p, du, dp, out: (du.copy(out), np.zeros(m))[1],
    )


# ---- the same as callbacks -----------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_functions_equal_those_of_gray_scott(boundary):
    grid = Grid(((0.0, 2.5), (0.0, 2.5)), (13, 11), boundary, dof=2)
    ours = ds.trace_stencil(reaction, grid, NAMES)
    theirs = gray_scott(grid)
    u, w, du = (random_field(grid, seed) for seed in range(3))
    results = []
    for problem in (ours, theirs):
        outs = [grid.create_vec() for _ in range(5)]
        of_p = [problem.create_parameters() for _ in range(3)]
        problem.rhs(0.0, u, VALUES, outs[0])
        by_u = problem.rhs_u.create(0.0, u, VALUES)
        problem.rhs_u.fill(0.0, u, VALUES, by_u)
        by_u.mult(du, outs[1])
        by_u.multTranspose(w, outs[2])
        by_p = problem.rhs_p.create(0.0, u, VALUES)
        problem.rhs_p.fill(0.0, u, VALUES, by_p)
        by_p.multTranspose(w, of_p[0])
        of_p[1].set(0.3)
        by_p.mult(of_p[1], outs[3])
        point, direction = (0.0, u, VALUES), (du, np.array([0.1, -0.2, 0.3, 0.4]))
        problem.rhs_hessian(point, w, direction, (outs[4], of_p[2]))
        results.append([*outs, of_p[0], of_p[2]])
    for mine, other in zip(*results, strict=True):
        assert close(mine, other) < 1e-14


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("method", METHODS)
def test_gradients_equal_those_of_gray_scott(method, boundary):
    grid = Grid(((0.0, 2.5), (0.0, 2.5)), (13, 11), boundary, dof=2)
    problems = [
        ds.trace_stencil(reaction, grid, NAMES),
        gray_scott(grid),
    ]
    values = []
    for problem in problems:
        run = ds.solve(problem, spots(grid), VALUES, ds.Stepping((0.0, 2.0), method, dt=0.5))
        gradient = ds.adjoint(run, energy(4))
        curvature = ds.hessian_product(run, energy(4), random_field(grid, 4), np.full(4, 1e-3))
        vecs = [run.final, gradient.u0_vec, gradient.p_vec, curvature.u0_vec, curvature.p_vec]
        values.append(vecs)
    for mine, other in zip(*values, strict=True):
        assert close(mine, other) < 1e-11


def test_stages_that_are_kept_change_nothing():
    grid = Grid(((0.0, 2.5), (0.0, 2.5)), (16, 16), dof=2, comm=SELF)
    model = ds.trace_stencil(reaction, grid, NAMES)
    stepping = ds.Stepping((0.0, 2.0), "rk4", dt=0.5)
    gradients = [
        ds.adjoint(ds.solve(model, spots(grid), VALUES, stepping, checkpoint=kept), energy(4))
        for kept in ("states", "stages")
    ]
    np.testing.assert_array_equal(gradients[0].u0, gradients[1].u0)
    np.testing.assert_array_equal(gradients[0].p, gradients[1].p)


@pytest.mark.mpi
@pytest.mark.parametrize("kept", ["states", "stages"])
@pytest.mark.parametrize("method", ["rk4", "2a", "3bs"])
def test_steps_in_passes_are_those_of_runge_kutta(method, kept):
    """PETSc's own steps keep a trajectory of their own."""
    grid = Grid(((0.0, 2.5), (0.0, 2.5)), (13, 11), dof=2)
    model = ds.trace_stencil(reaction, grid, NAMES)
    stepping = ds.Stepping((0.0, 2.2), method, dt=0.5)
    run = ds.solve(model, spots(grid), VALUES, stepping, t_eval=[0.7], checkpoint=kept)
    theirs = ds.solve(model, spots(grid), VALUES, stepping, t_eval=[0.7], petsc_trajectory="memory")
    np.testing.assert_array_equal(run.times, theirs.times)
    for mine, other in zip(run.states, theirs.states, strict=True):
        assert close(mine, other) < 1e-14
    gradients = [ds.adjoint(run, energy(4)), ds.adjoint(theirs, energy(4), engine="tsadjoint")]
    assert close(gradients[0].u0_vec, gradients[1].u0_vec) < 1e-13
    assert close(gradients[0].p_vec, gradients[1].p_vec) < 1e-11


@pytest.mark.mpi
@pytest.mark.parametrize("solver", ["gmres", "bcgs"])
@pytest.mark.parametrize("method", ["cn", "beuler", "esdirk3"])
@pytest.mark.parametrize("jacobian", ["products", "assembled"])
def test_petsc_may_difference_the_products_of_newtons_matrix(jacobian, method, solver):
    grid = Grid(((0.0, 2.5), (0.0, 2.5)), (13, 11), dof=2)
    model = ds.trace_stencil(reaction, grid, NAMES, jacobian=jacobian)
    newton = {"snes_rtol": 1e-9, "ksp_type": solver, "ksp_rtol": 1e-14}
    runs = [
        ds.solve(
            model, spots(grid), VALUES, ds.Stepping((0.0, 2.0), method, dt=0.7, options=options)
        )
        for options in (newton, newton | {"snes_mf_operator": None})
    ]
    assert close(runs[1].final, runs[0].final) < 1e-9
    assert duality(runs[1], energy(4)) < 1e-12


@pytest.mark.parametrize("kept", ["states", "stages"])
def test_runs_change_nothing_of_earlier_ones(kept):
    """TS hands its vectors over, and is used again."""
    grid = Grid(((0.0, 2.5), (0.0, 2.5)), (9, 8), dof=2, comm=SELF)
    model = ds.trace_stencil(reaction, grid, NAMES)
    start = spots(grid)
    start.shift(0.1)

    def run(end, scale=1.0):
        stepping = ds.Stepping((0.0, end), "rk4", dt=0.5)
        return ds.solve(model, scale * start, VALUES, stepping, checkpoint=kept)

    first = run(2.0)
    known = first.u.copy()
    gradient = ds.adjoint(first, energy(4)).u0
    for end, scale in ((2.0, 0.5), (2.0, 1.5), (0.5, 1.0), (1.0, 1.0)):
        np.testing.assert_array_equal(run(end, scale).u[0], scale * start.getArray())
    for scale, step in ((1e5, 1), (100.0, 2), (5.0, 3)):
        with pytest.raises(ds.SolveError, match=rf"not finite at t = {step / 2:g} \(step {step}\)"):
            run(2.0, scale)
    np.testing.assert_array_equal(first.u, known)
    np.testing.assert_array_equal(ds.adjoint(first, energy(4)).u0, gradient)
    np.testing.assert_array_equal(run(2.0).u, known)


@pytest.mark.mpi
@pytest.mark.parametrize("end", [12.5, 40.0])
@pytest.mark.parametrize("step", [1, 2, 15, 16, 17, 18, 24])
def test_the_first_state_that_is_not_finite_is_told(comm, end, step):
    """Not all of them are looked at: later ones are not finite either."""
    model = ds.trace_stencil(
        lambda t, u, p: p.k * u.center + u.laplacian(), box(1, comm=comm), ["k"]
    )
    u = model.create_state()
    growth = 1 + 50 + 50**2 / 2 + 50**3 / 6 + 50**4 / 24  # of u' = 50 u in a step of RK4
    u.set(np.finfo(float).max / growth ** (step - 0.5))
    stepping = ds.Stepping((0.0, end), "rk4", dt=0.5)
    with pytest.raises(ds.SolveError, match=rf"at t = {step / 2:g} \(step {step}\)"):
        ds.solve(model, u, [100.0], stepping)


def far_reaching(t, u, p):
    """Nonlinear in neighbours two points away along the slowest dimension."""
    a, b = u.center
    before = (0,) * (len(u.spacing) - 1)
    aside = u[-1, -1] if len(u.spacing) == 2 else u[(1, *before)]
    far = 1e-7 * u.laplacian()[1]
    return [a * u[*before, 2][1] - p.k * a, aside[0] * b - np.sin(b) * np.cos(t) + far]


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(
    ("shape", "at_once"),
    [
        ((7,), True),
        ((300, 450), True),
        ((261, 127), True),  # large: rows by segments, the last one shorter, past the caches
        ((40001,), True),
        ((35, 7, 141), True),
        ((5, 9), True),
        ((6, 8), True),
        ((5, 7), False),  # what each stage begins with reaches to where it ends
        ((45000, 3), False),
        ((4, 3, 9), True),
        ((4, 5, 7), False),
    ],
)
def test_stages_at_once_are_those_of_runge_kutta(shape, at_once, boundary):
    """PETSc's own steps and TSAdjoint go from stage to stage."""
    grid = Grid((UNIT,) * len(shape), shape, boundary, dof=2, comm=SELF)
    model, p = ds.trace_stencil(far_reaching, grid, ["k"]), [0.7]
    assert model.stencil.chains == at_once
    start = random_field(grid, 3)
    for method in ("rk4", "2a"):
        stepping = ds.Stepping((0.0, 0.01), method, dt=0.004)  # the last step is cut
        theirs = ds.solve(model, start, p, stepping, petsc_trajectory="memory")
        expected = ds.adjoint(theirs, energy(1), engine="tsadjoint")
        for kept in ("states", "stages"):
            run = ds.solve(model, start, p, stepping, checkpoint=kept)
            assert close(run.final, theirs.final) < 1e-14
            gradient = ds.adjoint(run, energy(1))
            assert close(gradient.u0_vec, expected.u0_vec) < 1e-13
            assert close(gradient.p_vec, expected.p_vec) < 1e-12
            assert duality(run, energy(1)) < 1e-12


def test_slabs_that_caches_do_not_hold_go_from_stage_to_stage():
    grid = Grid((UNIT,) * 3, (200, 200, 9), dof=2, comm=SELF)
    assert not ds.trace_stencil(reaction, grid, NAMES).stencil.chains


# ---- derivatives of any function -----------------------------------------------------------------


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_products_equal_differences(dimensions, boundary):
    grid = box(dimensions, boundary, SELF)
    model = ds.trace_stencil(curved, grid, CURVED)
    u, w, du = (random_field(grid, seed) for seed in range(3))
    dp = model.create_parameters()
    dp.setArray(np.array([0.2, -0.5, 0.3]))
    t, eps = 0.4, 1e-6

    def rhs(t, shift):
        out, moved = grid.create_vec(), u.copy()
        moved.axpy(shift, du)
        model.rhs(t, moved, POINT + shift * dp.array, out)
        return out

    difference = (rhs(t, eps) - rhs(t, -eps)) * (0.5 / eps)
    by_u, by_p = model.rhs_u.create(t, u, POINT), model.rhs_p.create(t, u, POINT)
    model.rhs_u.fill(t, u, POINT, by_u)
    model.rhs_p.fill(t, u, POINT, by_p)
    product = by_u * du + by_p * dp
    assert close(product, difference) < 1e-8
    pulled, pulled_p = grid.create_vec(), model.create_parameters()
    by_u.multTranspose(w, pulled)
    by_p.multTranspose(w, pulled_p)
    assert pulled.dot(du) + pulled_p.dot(dp) == pytest.approx(product.dot(w), rel=1e-13)
    in_time = grid.create_vec()
    model.rhs_t(t, u, POINT, in_time)
    assert close(in_time, (rhs(t + eps, 0.0) - rhs(t - eps, 0.0)) * (0.5 / eps)) < 1e-8


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_second_products_equal_differences(dimensions, boundary):
    grid = box(dimensions, boundary, SELF)
    model = ds.trace_stencil(curved, grid, CURVED)
    u, w, du = (random_field(grid, seed) for seed in range(3))
    dp, t, eps = np.array([0.2, -0.5, 0.3]), 0.4, 1e-6

    def pulled(t, shift):
        moved, p = u + shift * du, POINT + shift * dp
        outs = grid.create_vec(), model.create_parameters()
        for part, out in zip((model.rhs_u, model.rhs_p), outs, strict=True):
            matrix = part.create(t, moved, p)
            part.fill(t, moved, p, matrix)
            matrix.multTranspose(w, out)
        return outs

    out = grid.create_vec(), model.create_parameters()
    model.rhs_hessian((t, u, POINT), w, (du, dp), out)
    for mine, after, before in zip(out, pulled(t, eps), pulled(t, -eps), strict=True):
        assert close(mine, (after - before) * (0.5 / eps)) < 1e-8
    twice = model.rhs_time_hessian((t, u, POINT), w, out)
    for mine, after, before in zip(out, pulled(t + eps, 0), pulled(t - eps, 0), strict=True):
        assert close(mine, (after - before) * (0.5 / eps)) < 1e-8
    slopes = [grid.create_vec(), grid.create_vec()]
    for slope, time in zip(slopes, (t + eps, t - eps), strict=True):
        model.rhs_t(time, u, POINT, slope)
    assert twice == pytest.approx((slopes[0] - slopes[1]).dot(w) * 0.5 / eps, rel=1e-7)


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("dimensions", [2, 3])
def test_ranks_change_nothing(dimensions, boundary):
    shape = (16, 17, 14)[:dimensions]
    grid = Grid((UNIT,) * dimensions, shape, boundary, dof=2)
    values = []
    for value in (grid, alone(grid)):
        model = ds.trace_stencil(curved, value, CURVED)
        u, w, du = (random_field(value, seed) for seed in range(3))
        outs = [value.create_vec() for _ in range(4)]
        of_p = model.create_parameters()
        model.rhs(0.4, u, POINT, outs[0])
        matrix = model.rhs_u.create(0.4, u, POINT)
        model.rhs_u.fill(0.4, u, POINT, matrix)
        matrix.mult(du, outs[1])
        matrix.multTranspose(w, outs[2])
        model.rhs_hessian((0.4, u, POINT), w, (du, POINT), (outs[3], of_p))
        values.append([value.values(out) for out in outs])
        parameters = of_p.comm.tompi4py().allgather(of_p.array.copy())
        values[-1].append(np.concatenate(parameters))
    for mine, whole in zip(*values, strict=True):
        expected = whole if mine.ndim == 1 else own_part(grid, whole)
        np.testing.assert_allclose(mine, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("method", METHODS)
def test_adjoint_is_transpose_of_tangent(method, boundary):
    grid = box(2, boundary, SELF)
    model = ds.trace_stencil(reaction, grid, NAMES)
    options = {} if method in ("rk4", "3bs") else {"ksp_rtol": 1e-14}
    stepping = ds.Stepping((0.0, 1.0), method, dt=0.25, options=options)
    run = ds.solve(model, random_field(grid, 7), VALUES, stepping)
    assert duality(run, energy(4)) < 1e-12
    du, dp = random_field(grid, 8), np.full(4, 1e-3)
    gradient = ds.adjoint(run, energy(4))
    along = ds.tangent(run, du, dp).final.dot(run.final)
    assert gradient.u0_vec.dot(du) + gradient.p @ dp == pytest.approx(along, rel=1e-12)


@pytest.mark.parametrize("method", ["rk4", "cn", "beuler"])
def test_taylor_orders(method):
    grid = box(2, comm=SELF)
    model = ds.trace_stencil(reaction, grid, NAMES)
    stepping = ds.Stepping((0.0, 1.0), method, dt=0.25)
    rates = dict.fromkeys(NAMES, ds.Parameter(0.0))
    reduced = ds.Reduced(model, energy(4), stepping, ds.Parameters(rates, random_field(grid, 7)))
    orders = ds.taylor(reduced, np.array([0.01, 0.02, 0.5, 0.8]), hessian=True)
    assert orders.order > 1.95
    assert orders.hessian_order > 2.9


# ---- errors --------------------------------------------------------------------------------------


def test_wrong_functions_are_named():
    grid = box(2, comm=SELF)
    with pytest.raises(ds.InputError, match=r"'rhs' returned shape \(3,\)"):
        ds.trace_stencil(lambda t, u, p: [1.0, 2.0, 3.0], grid)
    with pytest.raises(ds.InputError, match=r"u\[1\].*\n.*2 integers"):
        ds.trace_stencil(lambda t, u, p: u[1], grid)
    with pytest.raises(ds.InputError, match=r"branch depends on the data"):
        ds.trace_stencil(lambda t, u, p: u.center if u.center[0] > 0 else u[1, 0], grid)


@pytest.mark.mpi
@pytest.mark.parametrize("checkpoint", ["states", "stages"])
def test_matrices_are_found_by_the_shorter_sweep(checkpoint):
    """Four columns of parameters, not as many rows as there are unknowns."""
    model = ds.trace_stencil(reaction, box(1), NAMES)
    stepping = ds.Stepping((0.0, 0.3), "rk4", dt=0.1)
    run = ds.solve(model, random_field(box(1), 1), VALUES, stepping, checkpoint=checkpoint)
    rows = ds.sensitivities(run, with_respect_to=["p"])
    assert rows.sweep == "tangent"
    for unit, column in zip(np.eye(4), rows.p.T, strict=True):
        np.testing.assert_allclose(column, ds.tangent(run, dp=unit).u[-1], rtol=0, atol=1e-14)


@pytest.mark.mpi
@pytest.mark.parametrize("checkpoint", ["states", "stages"])
@pytest.mark.parametrize("method", ["rk4", "3bs"])
def test_derivatives_that_are_not_finite_are_refused(method, checkpoint):
    """The root has none at 0, where this solution stays."""
    grid = Grid((UNIT,), (9,), "zero", dof=1)
    model = ds.trace_stencil(
        lambda t, u, p: p[0] * np.sqrt(u.center) + 0.0 * u.laplacian(), grid, 1
    )
    start = grid.create_vec()
    run = ds.solve(
        model, start, [1.0], ds.Stepping((0.0, 0.5), method, dt=0.1), checkpoint=checkpoint
    )
    for engine in ("auto", "vectors"):
        with pytest.raises(ds.SolveError, match="the gradient in u0 is not finite"):
            ds.adjoint(run, energy(1), engine)
    with pytest.raises(ds.SolveError, match="the tangent of the final state is not finite"):
        ds.tangent(run, dp=[1.0])
    for wanted in ("u0", "p"):
        with pytest.raises(ds.SolveError, match="the tangent of the final state is not finite"):
            ds.sensitivities(run, with_respect_to=[wanted])


def test_a_shape_in_the_place_of_a_grid_is_named():
    with pytest.raises(ds.InputError, match="grid is tuple\n  expected: a Grid\n  try: Grid"):
        ds.trace_stencil(lambda t, u, p: u.laplacian(), (8, 8))


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_sums_over_points_do_not_depend_on_where_neighbours_are_counted(boundary):
    """Of laws that are linear in neighbours, and of laws that are not."""

    def law(t, u, p):
        a, b = u.center
        of_a, of_b = u.laplacian()
        corner, far = u[1, -1], u[-2, 0]
        return [p.d * (of_a + corner[1]) + p.k * a * b**2, p.d * p.k * far[0] - p.k * a * of_b]

    grid = Grid(((0.0, 1.0), (0.0, 2.0)), (7, 6), boundary, dof=2, comm=SELF)
    problem = ds.trace_stencil(law, grid, ["d", "k"])
    rng = np.random.default_rng(3)
    u, w, out = (grid.create_vec() for _ in range(3))
    u.array, w.array = rng.normal(size=u.size), rng.normal(size=u.size)
    p = np.array([0.3, -0.7])
    both = problem.stencil.apply("pull_all", 0.1, p, (u, w), out, sums=2)
    np.testing.assert_allclose(
        both, problem.stencil.apply("pull_p", 0.1, p, (u, w), sums=2), rtol=1e-12
    )


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="a mode of x86")
def test_what_is_left_of_decayed_fields_counts_as_zero_in_loops_alone():
    """Numbers below 1e-308 take a processor ten times as long."""
    grid = Grid((UNIT, UNIT), (8, 8), "periodic", comm=SELF)
    model = ds.trace_stencil(lambda t, u, p: p.k * u.center, grid, ["k"])
    u, out = grid.create_vec(), grid.create_vec()
    u.set(1e-310)
    model.rhs(0.0, u, np.array([0.5]), out)
    assert out.norm(PETSc.NormType.INFINITY) == 0.0
    u.set(1e-300)
    model.rhs(0.0, u, np.array([0.5]), out)
    np.testing.assert_array_equal(out.array, 5e-301)
    assert 0.5 * float(np.float64(1e-310)) > 0.0  # as before, outside


def test_a_field_that_dies_out_has_its_gradient():
    grid = Grid((UNIT,), (8,), "periodic", comm=SELF)
    model = ds.trace_stencil(lambda t, u, p: -p.k * u.center, grid, ["k"])
    u0 = grid.create_vec()
    u0.set(1.0)
    total = ds.Terminal(lambda t, u, p: u.sum(), lambda t, u, p, out: out.set(1.0), "independent")
    for end in (600.0, 1200.0):  # to 1e-261 and 1e-521
        run = ds.solve(model, u0, [1.0], ds.Stepping((0.0, end), "rk4", dt=0.1))
        exact = -8.0 * end * np.exp(-end)
        assert ds.adjoint(run, total).p[0] == pytest.approx(exact, rel=1e-3, abs=1e-300)
