"""Theta steps on grids carried back without Python: the numbers of the step map in Python."""

from dataclasses import replace

import numpy as np
import pytest
from fields import close, random_field
from interrupted import part_done

from daeosens import LeastSquares, SolveError, Stepping, Terminal, adjoint, solve, trace_stencil
from daeosens.adjoint import steps_sweep
from daeosens.grids import Grid
from daeosens.native_sweep import native_sweep
from daeosens.trajectory import steps_of

UNIT = (0.0, 1.0)
P = np.array([0.7, 0.4])
STEPPINGS = [
    Stepping((0.2, 0.8), "cn", dt=0.1),
    Stepping((0.2, 0.8), "beuler", dt=0.1),
    Stepping((0.2, 0.8), "theta:0.7", dt=0.1),
    Stepping((0.2, 0.8), "cn", rtol=1e-4),
]


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
    return grid, trace_stencil(moving, grid, ["k", "r"], **more)


def final_energy():
    return Terminal(lambda t, u, p: 0.5 * u.dot(u), lambda t, u, p, out: u.copy(out), "independent")


def lowered(run, costs):
    return [each.lower(run.problem, run.times[-1]) for each in costs]


@pytest.mark.mpi
@pytest.mark.parametrize("stepping", STEPPINGS, ids=lambda each: f"{each.method}-{each.adaptive}")
@pytest.mark.parametrize("shape", [(23, 11), (9, 7, 5)])
def test_numbers_are_those_of_the_step_map(shape, stepping):
    grid, model = make(shape, "zero" if len(shape) == 3 else "periodic")
    run = solve(model, random_field(grid, 3), P, stepping)
    costs = lowered(run, [final_energy(), (-0.5) * final_energy()])
    native = native_sweep(run, costs)
    assert native is not None
    for mine, other in zip(native[:2], steps_sweep(run, costs, steps_of(run)), strict=True):
        for vec, same in zip(mine, other, strict=True):
            assert vec.norm() > 0.0
            assert close(vec, same) < 1e-13


def test_states_on_the_way_are_seen():
    grid, model = make((8, 6))
    run = solve(model, random_field(grid, 3), P, STEPPINGS[0], t_eval=[0.5])
    data = [random_field(grid, seed) for seed in range(3)]
    costs = lowered(run, [LeastSquares((0.2, 0.5, 0.8), data, sigma=0.3)])
    (lam,), (mu,), _ = native_sweep(run, costs)
    (same,), (also,) = steps_sweep(run, costs, steps_of(run))
    assert close(lam, same) < 1e-13
    assert close(mu, also) < 1e-13


@pytest.mark.parametrize(
    ("method", "jacobian"), [("midpoint", "products"), ("cn", "assembled"), ("esdirk3", "products")]
)
def test_other_steps_are_left_to_the_step_map(method, jacobian):
    grid, model = make((8, 6), jacobian=jacobian)
    run = solve(model, random_field(grid, 3), P, Stepping((0.2, 0.4), method, dt=0.1))
    assert native_sweep(run, lowered(run, [final_energy()])) is None
    assert adjoint(run, final_energy()).u0_vec.norm() > 0.0


def test_a_solver_that_fails_is_named():
    grid, model = make((8, 6))
    stepping = replace(STEPPINGS[0], options={"ksp_max_it": 1})
    run = replace(solve(model, random_field(grid, 3), P, STEPPINGS[0]), stepping=stepping)
    costs = lowered(run, [final_energy()])
    assert native_sweep(run, costs) is None
    with pytest.raises(SolveError, match="the linear solver of the sweep stopped: reason -3"):
        adjoint(run, final_energy())


@pytest.mark.parametrize("method", ["cn", "beuler", "rk4"])
def test_sweeps_can_be_interrupted_and_taken_again(method):
    grid, model = make((32, 32))
    stepping = Stepping((0.2, 0.8), method, dt=0.002)
    run = solve(model, random_field(grid, 3), P, stepping, checkpoint="stages")
    assert native_sweep(run, lowered(run, [final_energy()])) is not None
    before = adjoint(run, final_energy())
    assert part_done(lambda: adjoint(run, final_energy())) < 0.5
    after = adjoint(run, final_energy())
    np.testing.assert_array_equal(after.u0, before.u0)
    np.testing.assert_array_equal(after.p, before.p)
