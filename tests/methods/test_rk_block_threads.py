"""Threads that wait for work without the interpreter."""

import multiprocessing
import os

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from daeosens import SolveError, Stepping, sensitivities, solve, trace
from daeosens.methods.block_steps import Block
from daeosens.methods.rk import block as block_rk
from daeosens.methods.rk.tableau import tableau

N = 60
MATRIX = np.random.default_rng(3).normal(0.0, 0.5 / N**0.5, (N, N)) - np.eye(N)


@pytest.fixture(scope="module")
def run():
    model = trace(lambda t, x, p: x * (p.r + p.A @ x), N, {"r": (N,), "A": (N, N)})
    p = model.pack(r=np.full(N, 0.1), A=MATRIX)
    return solve(model, np.full(N, 0.1), p, Stepping((0.0, 10.0), "rk5bs", rtol=1e-7, atol=1e-7))


@pytest.fixture
def came(monkeypatch):
    """How many threads came to each of the sweeps."""
    values, carry = [], block_rk.carry_together

    def noted(*value):
        values.append(carry(*value))
        return values[-1]

    monkeypatch.setattr(block_rk, "carry_together", noted)
    return values


def matrix(run, threads):
    with threadpool_limits(threads, user_api="blas"):
        return sensitivities(run, engine="arrays").p


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_rows_are_carried_whoever_comes(threads, run, came):
    alone = matrix(run, 1)
    for _ in range(50):
        # another number of rows at once is another order of sums in BLAS
        assert abs(matrix(run, threads) - alone).max() < 1e-13 * abs(alone).max()
    assert came[0] == 1
    assert set(came[1:]) <= set(range(1, threads + 1))


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core")
def test_threads_come(run, came):
    for _ in range(1000):
        matrix(run, 2)
        if 2 in came:
            return
    pytest.fail("no thread was awake in time")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system tells no cores")
def test_the_cores_of_the_caller_stay_what_they_were(run):
    before = os.sched_getaffinity(0)
    matrix(run, 2)
    assert os.sched_getaffinity(0) == before
    os.sched_setaffinity(0, {min(before)})  # the only core: threads keep to theirs, or share it
    try:
        matrix(run, 2)
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # from Python 3.12 on
def test_a_fork_has_threads_of_its_own(run):
    expected = matrix(run, 2)
    context = multiprocessing.get_context("fork")
    out = context.SimpleQueue()
    child = context.Process(target=lambda: out.put(sensitivities(run, engine="arrays").p))
    child.start()
    value = out.get()
    child.join(60)
    assert child.exitcode == 0
    assert abs(value - expected).max() < 1e-13 * abs(expected).max()


@pytest.mark.parametrize("function", [lambda t, u, p: np.stack([p.a * u[1], t * u[0]])])
def test_values_that_are_not_finite_are_named(function):
    model = trace(function, 2, {"a": ()})
    t, u = np.zeros(2), np.full((2, 2), 0.5)
    u[1, 1] = np.inf
    steps = block_rk.BlockRungeKutta(model.batch, tableau("4"), None)
    with pytest.raises(SolveError, match=r"callback 'rhs' returned (inf|nan) in entry"):
        steps.points(Block(0, t, t + 0.1, u[[0, 1, 1]], np.ones(1)))


def test_stages_of_few_steps_are_those_of_many(run):
    """Up to a number of steps they are filled in C, beyond it from Python."""
    steps, count = block_rk.BlockRungeKutta(run.problem.batch, tableau("4"), None), run.n_steps
    many = -(-(block_rk.FEW_STEPS + 1) // count)
    times, sizes, u = run.times[:count], run.step_sizes, run.u[:count]
    few = steps.points(Block(0, times, sizes, run.u, run.p))
    repeated = [np.concatenate([part] * many) for part in (times, sizes, u)]
    again = Block(0, *repeated[:2], np.concatenate([repeated[2], u[:1]]), run.p)
    np.testing.assert_allclose(steps.points(again).u[: len(few.u)], few.u, rtol=1e-13)
