"""Sweeps in blocks: the numbers of the sweep by steps, for every method, form and cost."""

import itertools
from functools import cache

import batched
import numpy as np
import pytest
from forms import (
    ALL_OBJECTIVES,
    ANALYTIC_COST,
    COSTS,
    DIAGONAL,
    FORMS,
    OBSERVATION_TIMES,
    P0,
    RUNS,
    U0,
    make_stepping,
)

import daeosens as ds
from daeosens.derivatives.engines.arrays import adjoint as block_adjoint
from daeosens.derivatives.engines.arrays.step_blocks import block_steps, bytes_of_a_step

BLOCK_RUNS = [
    run for run in RUNS if run[0] in batched.MASSES and (run[1] not in DIAGONAL or run[0] == "rhs")
]
each_run = pytest.mark.parametrize(
    ("name", "method", "adaptive"),
    BLOCK_RUNS,
    ids=[f"{name} {method} {'adaptive' if ad else 'fixed'}" for name, method, ad in BLOCK_RUNS],
)


def trajectory(problem, method, adaptive=False, checkpoint="states"):
    stepping = make_stepping(method, adaptive=adaptive)
    return ds.solve(problem, U0, P0, stepping, OBSERVATION_TIMES, checkpoint=checkpoint)


@cache
def by_steps(name, method, adaptive):
    run = trajectory(FORMS[name].analytic, method, adaptive)
    return ds.adjoint(run, ALL_OBJECTIVES, "vectors")


def difference(ours, reference):
    """The largest difference, relative to the largest component."""
    return abs(ours - reference).max() / max(abs(reference).max(), 1e-3)


def assert_equal(gradients, references):
    for ours, reference in zip(gradients, references, strict=True):
        assert ours.engine == "arrays"
        assert ours.value == reference.value
        assert difference(ours.u0, reference.u0) < 1e-13
        assert difference(ours.p, reference.p) < 1e-13


# ---- the numbers of the sweep by steps -----------------------------------------------------------


@each_run
def test_blocks_give_the_gradients_of_the_sweep_by_steps(name, method, adaptive):
    run = trajectory(FORMS[name].analytic, method, adaptive)
    assert_equal(ds.adjoint(run, ALL_OBJECTIVES, "arrays"), by_steps(name, method, adaptive))


@pytest.mark.parametrize("value", batched.GIVEN)
@each_run
def test_batched_callbacks_give_the_same(name, method, adaptive, value):
    problem = batched.batched_problem(name, value)
    run = trajectory(problem, method, adaptive)
    assert_equal(ds.adjoint(run, ALL_OBJECTIVES), ds.adjoint(run, ALL_OBJECTIVES, "vectors"))


@pytest.mark.parametrize("method", ["rk3bs", "rk5dp", "rk8vr"])
@pytest.mark.parametrize("adaptive", [False, True])
def test_stages_that_were_kept_are_used(method, adaptive):
    calls = []

    def rhs(t, u, p):
        calls.append(t)
        return batched.rhs(t, u, p)

    problem = ds.ODE(rhs, 3, 3, jacobian=batched.rhs_u, jacobian_p=batched.rhs_p)
    run = trajectory(problem, method, adaptive, checkpoint="stages")
    points = [case.objective for case in COSTS.values() if "running" not in case.name]
    ds.adjoint(run, points[:1], "arrays")  # which looks for branches, and at errors
    calls.clear()
    gradients = ds.adjoint(run, points[:1], "arrays")
    assert not calls
    assert_equal(gradients, ds.adjoint(run, points[:1], "vectors"))


@pytest.mark.parametrize("method", ["rk4", "rk5dp", "beuler", "cn", "midpoint"])
def test_equations_that_jump_are_seen_from_the_inside_of_each_step(method):
    def rhs(t, u, p):
        return np.where(t < 0.5, -p[0] * u, p[1] * u**2)

    problem = ds.ODE(rhs, 1, 2, breakpoints=[0.5])
    run = ds.solve(problem, [0.7], [0.4, 1.1], ds.Stepping((0.0, 1.0), method, dt=0.1))
    cost = ds.Terminal(lambda t, u, p: u[0] ** 2) + ds.Running(lambda t, u, p: u[0] * (t < 0.5))
    assert_equal([ds.adjoint(run, cost, "arrays")], [ds.adjoint(run, cost, "vectors")])


@pytest.mark.parametrize("method", ["rk4", "rk5dp", "cn", "midpoint"])
def test_autonomous_problems_without_parameters(method):
    run = ds.solve(ds.ODE(lambda t, u, p: -(u**3), 2), [1.0, 0.5], None, make_stepping(method))
    cost = ds.Terminal(lambda t, u, p: u[0] * u[1])
    ours, reference = ds.adjoint(run, cost, "arrays"), ds.adjoint(run, cost, "vectors")
    assert ours.p.shape == (0,)
    assert difference(ours.u0, reference.u0) < 1e-13


# ---- matrices of all derivatives -----------------------------------------------------------------


@each_run
def test_sensitivities_in_one_sweep_are_those_by_steps(name, method, adaptive):
    run = trajectory(FORMS[name].analytic, method, adaptive)
    block, steps = ds.sensitivities(run), ds.sensitivities(run, engine="vectors")
    assert (block.sweep, block.engine, steps.engine) == ("adjoint", "arrays", "vectors")
    assert difference(block.u0, steps.u0) < 1e-13
    assert difference(block.p, steps.p) < 1e-13


def test_sensitivities_at_an_earlier_time_and_of_one_kind():
    run = trajectory(batched.batched_problem("rhs", "products"), "rk5dp", adaptive=True)
    early = ds.sensitivities(run, t=OBSERVATION_TIMES[0], engine="arrays")
    reference = ds.sensitivities(run, t=OBSERVATION_TIMES[0], engine="vectors")
    assert difference(early.p, reference.p) < 1e-13
    by_u0 = ds.sensitivities(run, with_respect_to=["u0"], engine="arrays")
    assert by_u0.p is None
    assert difference(by_u0.u0, ds.sensitivities(run, engine="vectors").u0) < 1e-13


@pytest.mark.parametrize("method", ["rk5dp", "cn", "midpoint"])
def test_all_outputs_of_lotka_volterra_in_one_sweep(method):
    """The sensitivities of n = 12 species to n^2 + n parameters, against the sweep by steps."""
    n = 12
    run = ds.solve(
        batched.lotka_volterra(n),
        np.full(n, 0.1),
        batched.lotka_volterra_parameters(n),
        ds.Stepping((0.0, 10.0), method, dt=0.2, rtol=1e-5, atol=1e-5),
    )
    block, steps = ds.sensitivities(run), ds.sensitivities(run, engine="vectors")
    assert block.p.shape == (n, n * n + n)
    assert difference(block.p, steps.p) < 1e-13
    assert difference(block.u0, steps.u0) < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize("steps_at_once", [5, 1000])
def test_threads_share_the_rows_and_change_nothing(steps_at_once, monkeypatch):
    """Two matrices and parameters outside of them; more rows than are carried together."""
    n = 40
    model = ds.trace(
        lambda t, x, p: x * (np.cos(t) * p.r + p.A @ x) + np.tanh(p.B @ x),
        n,
        {"r": (n,), "A": (n, n), "B": (n, n)},
    )
    random = np.random.default_rng(7)
    matrices = random.normal(0.0, 0.5 / n**0.5, (2, n, n)) - np.eye(n)
    p = model.pack(r=np.full(n, 0.1), A=matrices[0], B=matrices[1])
    run = ds.solve(
        model, np.full(n, 0.1), p, ds.Stepping((0.0, 5.0), "rk5dp", rtol=1e-6, atol=1e-6)
    )
    monkeypatch.setattr(block_adjoint, "WORTH", 0)
    monkeypatch.setattr(block_adjoint, "FEWEST", 3)
    steps, taken, values = type(block_steps(run)), [], {}
    carry = steps.carry_together

    def noted(self, pulls, block, sums, at_once, fresh):
        taken.append((-(-len(sums[0]) // at_once), len(pulls)))
        carry(self, pulls, block, sums, at_once, fresh)

    monkeypatch.setattr(steps, "carry_together", noted)
    for threads in (1, 2, 3):
        monkeypatch.setattr(block_adjoint, "thread_count", lambda count=threads: count)
        rows = 2 * threads * run.problem.batch.rows_at_once
        memory = steps_at_once * bytes_of_a_step(run, block_steps(run), min(rows, 2 * n)) + 1
        monkeypatch.setattr("daeosens.derivatives.engines.arrays.step_blocks.BLOCK_MEMORY", memory)
        taken.clear()
        values[threads] = ds.sensitivities(run, engine="arrays")
        assert len(taken) == -(-run.n_steps // steps_at_once)
        assert all(workers == threads <= parts for parts, workers in taken)
    by_steps = ds.sensitivities(run, engine="vectors")
    du0, dp = random.normal(size=n), random.normal(size=p.size)
    along = ds.tangent(run, du0, dp).u[-1]
    for value in values.values():
        assert difference(value.p, by_steps.p) < 1e-13
        assert difference(value.u0, by_steps.u0) < 1e-13
        assert difference(value.u0 @ du0 + value.p @ dp, along) < 1e-12


# ---- independent evidence ------------------------------------------------------------------------


@pytest.mark.parametrize("value", batched.GIVEN)
@pytest.mark.parametrize(
    ("name", "method"),
    [
        *itertools.product(["rhs"], ["rk3bs", "rk4", "rk5dp", "cn", "midpoint", "theta:0.7"]),
        *itertools.product(["M", "M singular"], ["beuler", "cn", "midpoint"]),
    ],
)
def test_block_adjoint_is_the_transpose_of_the_tangent(name, method, value, rng):
    run = trajectory(batched.batched_problem(name, value), method)
    gradient = ds.adjoint(run, ANALYTIC_COST, "arrays")
    du0, dp = rng.normal(size=(2, 3))
    along = ds.tangent(run, du0, dp).derivative(ANALYTIC_COST)
    assert abs(gradient.u0 @ du0 + gradient.p @ dp - along) < 1e-12 * abs(along)


@pytest.mark.parametrize("method", ["rk4", "rk5dp", "beuler", "cn", "midpoint"])
def test_taylor_remainders_are_of_second_order(method, rng):
    problem = batched.batched_problem("rhs", "products")
    stepping = make_stepping(method)
    du0, dp = rng.normal(size=(2, 3))

    def run(eps):
        return ds.solve(problem, U0 + eps * du0, P0 + eps * dp, stepping, OBSERVATION_TIMES)

    first = ds.adjoint(run(0.0), ANALYTIC_COST, "arrays")
    slope = first.u0 @ du0 + first.p @ dp
    sizes = 1e-2 / 2.0 ** np.arange(4)
    remainders = [
        abs(ds.adjoint(run(eps), ANALYTIC_COST).value - first.value - eps * slope) for eps in sizes
    ]
    assert np.log2(np.divide(remainders[:-1], remainders[1:])).min() > 1.9


# ---- memory --------------------------------------------------------------------------------------


class Counting:
    """A batch that notes how many points it sees."""

    at_once = True
    rows_at_once = None
    rhs_in_c = None

    def __init__(self, batch):
        self.batch, self.rhs, self.seen = batch, batch.rhs, []

    def jacobian(self, t, u, p):
        return self.batch.jacobian(t, u, p)

    def pull_parameters(self, t, u, p, w):
        self.seen.append(w.shape)
        return self.batch.pull_parameters(t, u, p, w)

    def linearize(self, t, u, p, rows):
        self.seen.append((rows, *u.shape))
        return self.batch.linearize(t, u, p, rows)


@pytest.mark.parametrize("method", ["rk4", "rk5dp", "cn", "midpoint", "beuler"])
@pytest.mark.parametrize("steps_at_once", [1, 3, 7, 1000])
def test_memory_is_bounded_by_flushing(method, steps_at_once, monkeypatch):
    problem = batched.batched_problem("rhs", "matrices")
    counting = Counting(problem.batch)
    object.__setattr__(problem, "batch", counting)
    run = trajectory(problem, method)
    value = block_steps(run).points_per_step
    memory = steps_at_once * bytes_of_a_step(run, block_steps(run), 2 * len(ALL_OBJECTIVES)) + 1
    monkeypatch.setattr("daeosens.derivatives.engines.arrays.step_blocks.BLOCK_MEMORY", memory)
    gradients = ds.adjoint(run, ALL_OBJECTIVES, "arrays")
    assert len(counting.seen) == -(-run.n_steps // steps_at_once)
    shared = 1 if method == "cn" else 0  # neighbouring steps share a point
    assert max(shape[1] for shape in counting.seen) <= value * steps_at_once + shared
    assert_equal(gradients, ds.adjoint(run, ALL_OBJECTIVES, "vectors"))


# ---- failures ------------------------------------------------------------------------------------


def test_a_singular_step_is_named():
    """(1 - h p) v = v_0 in the step: the matrix of the sweep is singular for h p = 1."""
    problem = ds.ODE(lambda t, u, p: p[0] * u, 1, 1)
    run = ds.solve(problem, [1.0], [0.5], ds.Stepping((0.0, 0.5), "beuler", dt=0.25))
    object.__setattr__(run, "p", np.array([4.0]))
    cost = ds.Terminal(lambda t, u, p: u[0])
    match = r"the matrix of the step from t = 0 is singular\n  expected: a regular"
    with pytest.raises(ds.SolveError, match=match):
        ds.adjoint(run, cost, "arrays")


def test_an_observation_time_that_no_step_hits_is_an_error():
    run = trajectory(batched.batched_problem("rhs", "matrices"), "rk4")
    with pytest.raises(ds.InputError, match=r"t = 0.123 is not a step time"):
        ds.adjoint(run, ds.LeastSquares([0.123], [[0.0, 0.0, 0.0]]), "arrays")
