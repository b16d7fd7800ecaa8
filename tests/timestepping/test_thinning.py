"""Runs that keep some of their states: the same bits of every derivative."""

import event_support
import numpy as np
import pytest
from distributed import make, make_cost
from petsc4py import PETSc

import daeosens as ds
from daeosens.timestepping import Checkpoints

METHODS = ["rk2a", "rk4", "rk5dp", "rk8vr", "esdirk3", "esdirk5", "cn", "beuler", "midpoint"]


def same(ours, reference):
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(reference))


def close(ours, reference):
    np.testing.assert_allclose(ours, reference, rtol=1e-12, atol=1e-13)


def compare(run, few, costs, *, second=True):
    """The bits of states, gradients, tangents and products with Hessians."""
    same(few.u, run.u)
    for engine, equal in (("vectors", same), ("auto", close)):  # arrays add up window by window
        for ours, reference in zip(
            ds.adjoint(few, costs, engine), ds.adjoint(run, costs, engine), strict=True
        ):
            equal(ours.value, reference.value)
            equal(ours.u0, reference.u0)
            equal(ours.p, reference.p)
    rng = np.random.default_rng(3)
    n, m = run.problem.size, run.problem.n_parameters
    pairs = [(rng.standard_normal(n), rng.standard_normal(m)) for _ in range(2)]
    rows = [np.array(part) for part in zip(*pairs, strict=True)]
    for ours, reference in zip(
        ds.tangent(few, *rows, "vectors"), ds.tangent(run, *rows, "vectors"), strict=True
    ):
        same(ours.u, reference.u)
        same(ours.times, reference.times)
    if not second:
        return
    products = (
        ds.hessian_product(value, costs[0], *rows, engine="vectors") for value in (few, run)
    )
    for ours, reference in zip(*products, strict=True):
        same(ours.u0, reference.u0)
        same(ours.p, reference.p)


def oscillator(t, u, p):
    return np.array([u[1], p[0] * (1.0 - u[0] ** 2) * u[1] - u[0] + p[1] * np.sin(t)])


@pytest.mark.filterwarnings("ignore:a running cost varies faster")
@pytest.mark.parametrize("style", ["numpy", "traced"])
@pytest.mark.parametrize(
    ("method", "sizes"),
    [(method, {"dt": 0.05}) for method in METHODS]
    + [(method, {"rtol": 1e-5}) for method in METHODS if method not in ("rk4", "midpoint")],
)
def test_derivatives_of_smooth_runs(method, sizes, style):
    problem = ds.ODE(oscillator, 2, ["mu", "drive"])
    if style == "traced":
        problem = ds.trace(oscillator, 2, ["mu", "drive"])
    times = [0.33, 1.1]
    start = problem, [1.0, 0.2], [0.8, 0.3], ds.Stepping((0.0, 2.0), method, **sizes), times
    run, few = ds.solve(*start), ds.solve(*start, checkpoint=Checkpoints(6))
    costs = [
        ds.LeastSquares(times, [[0.9, 0.1], [0.2, -0.4]])
        + ds.Terminal(lambda t, u, p: u[0] * p[0]),
        ds.Running(lambda t, u, p: u[0] ** 2),
    ]
    assert len(few.stored.made) <= 6 + 3
    compare(run, few, costs)
    close(ds.sensitivities(few).p, ds.sensitivities(run).p)


FEW = {
    "1": Checkpoints(1),
    "4": Checkpoints(4),
    "30": Checkpoints(30),
    "disk": Checkpoints(2, 4, write=0.4, read=0.3),
}


@pytest.mark.parametrize("checkpoints", FEW.values(), ids=FEW)
@pytest.mark.parametrize(
    "cell", [*event_support.design()[::5], *event_support.design()[1::5]], ids=str
)
def test_checkpoints_of_runs_through_events(cell, checkpoints):
    problem, _ = event_support.hybrid_of(cell)
    objective, _ = event_support.cost_of(cell)
    control, x, _ = event_support.control_of(cell)
    setting = problem, objective, event_support.stepping_of(cell), control
    run = ds.Reduced(*setting, checkpoint="states").trajectory(x)
    few = ds.Reduced(*setting, checkpoint=checkpoints).trajectory(x)
    assert len(few.stored.made) <= checkpoints.memory + 3 + 3 * len(few.crossings) + 2
    compare(run, few, [objective])


@pytest.mark.parametrize("sizes", [{"dt": 0.05}, {"rtol": 1e-5}], ids=str)
def test_second_order_and_gauss_newton_with_a_disk_that_costs_time(sizes):
    times = [0.33, 1.1]
    setting = (
        ds.ODE(oscillator, 2, ["mu", "drive"]),
        ds.LeastSquares(times, [[0.9, 0.1], [0.2, -0.4]]),
        ds.Stepping((0.0, 2.0), "esdirk4", **sizes),
        ds.Parameters({"mu": ds.Parameter(0.8), "drive": ds.Parameter(0.3)}, [1.0, 0.2]),
    )
    found = []
    for checkpoint in ("states", FEW["disk"]):
        functional = ds.Reduced(*setting, checkpoint=checkpoint)
        x = functional.start()
        dx = x.duplicate()
        dx.array[:] = [1.0, -0.5]
        products = functional.hessian_product(x, dx), functional.gauss_newton_product(x, dx)
        found.append([functional.gradient(x).array, *(vec.array for vec in products)])
    for ours, reference in zip(*found, strict=True):
        close(ours, reference)


DISTRIBUTED = [
    ("dmda", "rhs", "rk5dp"),
    ("dmda", "rhs", "cn"),
    ("dense", "rhs", "rk5dp"),
    ("dmda", "M", "esdirk4"),
    ("dmda", "F", "beuler"),
]


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(("style", "form", "method"), DISTRIBUTED)
def test_derivatives_of_distributed_runs(style, form, method):
    case = make(PETSc.COMM_WORLD, style, form=form)
    adaptive = {"rtol": 1e-3, "atol": 1e-3} if method != "beuler" else {}
    iterative = method != "rk5dp" and PETSc.COMM_WORLD.size > 1
    options = {"ksp_type": "gmres", "ksp_rtol": 1e-13} if iterative else {}
    stepping = ds.Stepping((0.0, 0.2), method, dt=0.01, **adaptive, options=options)
    cost = make_cost(case)
    run = ds.solve(case.problem, case.u0, case.p, stepping, cost.times)
    start = case.problem, case.u0, case.p, stepping, cost.times
    for checkpoints in (Checkpoints(2), Checkpoints(6), FEW["disk"]):
        few = ds.solve(*start, checkpoint=checkpoints)
        assert len(few.stored.made) <= checkpoints.memory + 3
        compare_distributed(run, few, cost, case)


def compare_distributed(run, few, cost, case):
    for ours, reference in zip(few.states, run.states, strict=True):
        same(ours.array, reference.array)
    ours, reference = (ds.adjoint(value, cost, "vectors") for value in (few, run))
    assert ours.value == reference.value
    same(ours.u0_vec.array, reference.u0_vec.array)
    same(ours.p_vec.array, reference.p_vec.array)
    product, expected = (
        ds.hessian_product(value, cost, case.u0, engine="vectors") for value in (few, run)
    )
    same(product.u0_vec.array, expected.u0_vec.array)
