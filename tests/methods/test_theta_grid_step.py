"""Theta steps on grids carried back without Python: the numbers of the step map in Python."""

from dataclasses import replace
from types import SimpleNamespace

import forms
import frozen
import numpy as np
import pytest
from fields import close, random_field
from interrupted import part_done
from petsc4py import PETSc
from support.sweeps import in_c

import daeosens as ds
from daeosens.functional import InitialState
from daeosens.problem.grids import Grid
from daeosens.verify import duality

UNIT = (0.0, 1.0)
P = np.array([0.7, 0.4])
OBSERVED = (0.2, 0.45, 0.83)
STEPPINGS = [
    ds.Stepping((0.2, 0.83), "cn", dt=0.1),
    ds.Stepping((0.2, 0.83), "beuler", dt=0.1),
    ds.Stepping((0.2, 0.83), "theta:0.7", dt=0.1),
    ds.Stepping((0.2, 0.83), "cn", rtol=1e-4),
]

EXACT = {"ksp_rtol": 1e-14, "snes_rtol": 1e-13}
"""What linear solvers leave enters the sums of the two in different ways."""


def moving(t, u, p):
    """Nonlinear in neighbours, unsymmetric, and other in t and x."""
    a, b = u.center
    near = u[(1, *(0,) * (len(u.spacing) - 1))]
    along = u.laplacian()
    return [
        p.k * np.sin(t) * a * near[1] + 1e-3 * along[0],
        np.cos(a * b) - p.r**2 * u.x.sum() * b + 2e-3 * along[1],
    ]


def make(shape, boundary="periodic", **more):
    grid = Grid((UNIT,) * len(shape), shape, boundary, dof=2)
    return grid, ds.trace_stencil(moving, grid, ["k", "r"], **{"jacobian": "products", **more})


def final_energy():
    return ds.Terminal(
        lambda t, u, p: 0.5 * u.dot(u), lambda t, u, p, out: u.copy(out), "independent"
    )


def lowered(run, costs):
    return [cost.lower(run.problem, run.times[-1]) for cost in costs]


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("stepping", STEPPINGS, ids=lambda item: f"{item.method}-{item.adaptive}")
@pytest.mark.parametrize("shape", [(23, 11), (9, 7, 5)])
def test_numbers_are_those_of_the_step_map(shape, stepping):
    grid, model = make(shape, "zero" if len(shape) == 3 else "periodic")
    exact = replace(stepping, options=EXACT)
    run = ds.solve(model, random_field(grid, 3), P, exact)
    costs = [final_energy(), (-0.5) * final_energy()]
    swept = (ds.adjoint(run, costs, engine) for engine in ("compiled", "vectors"))
    for ours, expected in zip(*swept, strict=True):
        for vec, same in ((ours.u0_vec, expected.u0_vec), (ours.p_vec, expected.p_vec)):
            assert vec.norm() > 0.0
            assert close(vec, same) < 3e-13  # of some ten solves to 1e-14


def misfit(grid):
    return ds.LeastSquares(OBSERVED, [random_field(grid, seed) for seed in range(3)], sigma=0.3)


@pytest.mark.slow
@pytest.mark.mpi
def test_states_on_the_way_are_seen():
    grid, model = make((8, 6))
    exact = replace(STEPPINGS[0], options=EXACT)
    run = ds.solve(model, random_field(grid, 3), P, exact, t_eval=[0.45])
    ours, expected = (ds.adjoint(run, misfit(grid), engine) for engine in ("compiled", "vectors"))
    assert close(ours.u0_vec, expected.u0_vec) < 1e-13
    assert close(ours.p_vec, expected.p_vec) < 1e-13


@pytest.mark.mpi
@pytest.mark.parametrize("stepping", STEPPINGS, ids=lambda item: f"{item.method}-{item.adaptive}")
@pytest.mark.parametrize("start", ["parameters", "state"])
def test_remainders_are_of_second_order_and_adjoints_dual_to_tangents(start, stepping):
    """Of parameters that the initial state follows too, and of the initial state."""
    grid, model = make((11, 7))
    field = random_field(grid, 3)
    exact = replace(stepping, options=EXACT)

    def begin(p, out):
        field.copy(out)
        out.scale(1.0 + p[0] ** 2)

    def begin_p(p, w):
        return np.array([2.0 * p[0] * field.dot(w), 0.0])

    control = ds.Parameters({"k": ds.Parameter(P[0]), "r": ds.Parameter(P[1])}, begin, begin_p)
    if start == "state":
        control = InitialState(field, P)
    reduced = ds.Reduced(model, misfit(grid), exact, control)
    run = reduced.trajectory(reduced.start())
    assert in_c(run, lowered(run, [misfit(grid)])) is not None
    assert duality(run, misfit(grid)) < 1e-12
    if not stepping.adaptive:  # other steps would be chosen
        assert min(ds.taylor(reduced)) > 1.9


@pytest.mark.slow
@pytest.mark.parametrize("method", ["beuler", "cn", "theta:0.7"])
def test_gradients_are_those_of_an_independent_program(method):
    grid = Grid((UNIT,), (6,), "periodic", comm=PETSc.COMM_SELF)
    width = grid.spacing[0]

    def on_grid(t, u, p):
        return p.k * np.sin(t) * u.center * u[1] + p.r**2 * u.laplacian()

    def rhs(t, u, p):
        around = np.roll(u, -1) - 2.0 * u + np.roll(u, 1)
        return p[0] * np.sin(t) * u * np.roll(u, -1) + p[1] ** 2 * around / width**2

    def rhs_u(t, u, p):
        unit, after = np.eye(6), np.roll(np.eye(6), 1, axis=1)
        product = np.diag(np.roll(u, -1)) + np.diag(u) @ after
        return p[0] * np.sin(t) * product + p[1] ** 2 * (after + after.T - 2.0 * unit) / width**2

    form = SimpleNamespace(
        residual=lambda t, u, udot, p: udot - rhs(t, u, p),
        residual_u=lambda t, u, udot, p: -rhs_u(t, u, p),
        residual_udot=lambda t, u, udot, p: np.eye(6),
    )
    model = ds.trace_stencil(on_grid, grid, ["k", "r"], jacobian="products")
    u0 = random_field(grid, 3)
    options = {"ksp_rtol": 1e-14, "snes_rtol": 1e-14, "snes_stol": 1e-15}
    run = ds.solve(model, u0, P, ds.Stepping((0.2, 0.83), method, dt=0.1, options=options), [0.45])
    gradient = ds.adjoint(run, misfit(grid))
    data = [random_field(grid, seed).array for seed in range(3)]
    observed = {
        t: lambda t, u, p, d=d: 0.5 * (((u - d) / 0.3) ** 2).sum()
        for t, d in zip(OBSERVED, data, strict=True)
    }
    case = forms.CostCase("misfit", misfit(grid), observed=observed)
    log = (run.times, run.step_sizes)
    by_u0, by_p = frozen.gradients(form, method, log, [case], u0.array.copy(), P)
    np.testing.assert_allclose(gradient.u0, by_u0[0], rtol=0.0, atol=1e-12 * abs(by_u0).max())
    np.testing.assert_allclose(gradient.p, by_p[0], rtol=0.0, atol=1e-12 * abs(by_p).max())


@pytest.mark.parametrize("method", ["beuler", "cn", "theta:0.7"])
def test_one_unknown_at_a_point_without_parameters(method):
    """Of u' = -cos(t) u: each step multiplies u by a number."""
    grid = Grid((UNIT,), (3,), "zero", comm=PETSc.COMM_SELF)
    model = ds.trace_stencil(lambda t, u, p: -np.cos(t) * u.center, grid, jacobian="products")
    start = grid.create_vec()
    start.set(0.7)
    run = ds.solve(model, start, None, ds.Stepping((0.2, 0.83), method, dt=0.1))
    cost = ds.Terminal(lambda t, u, p: u.sum(), lambda t, u, p, out: out.set(1.0), "independent")
    assert in_c(run, lowered(run, [cost])) is not None
    theta = run.stepping.resolved_method.theta
    t, h = run.times, run.step_sizes
    factors = 1.0 - (1.0 - theta) * h * np.cos(t[:-1]), 1.0 + theta * h * np.cos(t[1:])
    gradient = ds.adjoint(run, cost)
    assert gradient.u0 == pytest.approx(np.prod(factors[0] / factors[1]), rel=1e-13)
    assert gradient.p.size == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "jacobian"), [("midpoint", "products"), ("cn", "assembled"), ("esdirk3", "products")]
)
def test_other_steps_are_left_to_the_step_map(method, jacobian):
    grid, model = make((8, 6), jacobian=jacobian)
    run = ds.solve(model, random_field(grid, 3), P, ds.Stepping((0.2, 0.4), method, dt=0.1))
    assert in_c(run, lowered(run, [final_energy()])) is None
    assert ds.adjoint(run, final_energy()).u0_vec.norm() > 0.0


def test_a_solver_that_fails_is_named():
    grid, model = make((8, 6))
    stepping = replace(STEPPINGS[0], options={"ksp_max_it": 1})
    run = replace(ds.solve(model, random_field(grid, 3), P, STEPPINGS[0]), stepping=stepping)
    costs = lowered(run, [final_energy()])
    assert in_c(run, costs) is None
    with pytest.raises(ds.SolveError, match=r"the linear system of a sweep: gmres .*MAX_IT"):
        ds.adjoint(run, final_energy())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cn", "beuler", "rk4"])
def test_sweeps_can_be_interrupted_and_taken_again(method):
    grid, model = make((32, 32))
    stepping = ds.Stepping((0.2, 0.8), method, dt=0.002)
    run = ds.solve(model, random_field(grid, 3), P, stepping, checkpoint="stages")
    assert in_c(run, lowered(run, [final_energy()])) is not None
    before = ds.adjoint(run, final_energy())
    assert part_done(lambda: ds.adjoint(run, final_energy())) < 0.5
    after = ds.adjoint(run, final_energy())
    np.testing.assert_array_equal(after.u0, before.u0)
    np.testing.assert_array_equal(after.p, before.p)
