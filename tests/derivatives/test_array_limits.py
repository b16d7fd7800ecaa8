"""Limits of memory divide blocks and rows; the numbers stay the same."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import daeosens as ds
from daeosens.derivatives.engines.arrays import adjoint, step_blocks
from tests.problem.test_batched_compiled import MODELS, near


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("module", "limit", "method", "dt"),
    [
        (step_blocks, "BLOCK_MEMORY", "rk4", 0.02),  # blocks that are flushed add up
        (adjoint, "CACHED", "rk5dp", 0.05),  # rows that are carried in parts
    ],
    ids=["blocks", "rows"],
)
def test_limits_of_blocks_change_nothing(name, rng, monkeypatch, module, limit, method, dt):
    function, n, shapes, _ = MODELS[name]
    model = ds.trace(function, n, shapes)
    u, p = rng.uniform(0.3, 1.0, n), rng.normal(size=model.n_parameters) / n
    run = ds.solve(model, u, p, ds.Stepping((0.0, 0.2), method, dt=dt))
    whole = ds.sensitivities(run, engine="arrays")
    monkeypatch.setattr(module, limit, 1)
    again = ds.sensitivities(run, engine="arrays")
    assert near(again.u0, whole.u0)
    assert near(again.p, whole.p)


WIDE = 150


@pytest.fixture(scope="module")
def wide():
    """A model of so many unknowns that few rows go together."""
    return ds.trace(lambda _t, u, p: u * (p.r + p.A @ u), WIDE, {"r": (WIDE,), "A": (WIDE, WIDE)})


def wide_run(model, rng):
    a = rng.normal(size=(WIDE, WIDE)) / WIDE - np.eye(WIDE)
    p = model.pack(r=np.full(WIDE, 0.1), A=a)
    return ds.solve(model, np.full(WIDE, 0.1), p, ds.Stepping((0.0, 4.0), "rk4", dt=0.04))


@pytest.mark.parametrize("memory", [2**27, 2**25])
def test_a_full_matrix_is_dual_to_a_tangent(wide, rng, monkeypatch, memory):
    run = wide_run(wide, rng)
    threads = max(library["num_threads"] for library in threadpool_info())
    room = memory * threads  # each thread has work of its own in it
    monkeypatch.setattr(step_blocks, "BLOCK_MEMORY", room)
    ours = ds.sensitivities(run, engine="arrays")
    du0, dp = rng.normal(size=WIDE) * run.u[0], rng.normal(size=run.p.size)
    along = ds.tangent(run, du0, dp).final.array
    assert abs(ours.u0 @ du0 + ours.p @ dp - along).max() < 1e-12 * abs(along).max()
