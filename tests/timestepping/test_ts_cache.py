"""TS that an earlier run has left: the same numbers as from a new one, and nothing stale."""

import ctypes
import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
from native_model import U0, P, compiled_ode, numpy_ode
from petsc4py import PETSc

from daeosens import ODE, SolveError, Stepping, Terminal, adjoint, solve
from daeosens.errors import OptionError
from daeosens.timestepping import Checkpoints, ts_cache
from daeosens.timestepping.ts_cache import IDLE, IDLE_TS

FIXED = Stepping((0.0, 1.0), "rk4", dt=0.1)
METHODS = [
    FIXED,
    Stepping((0.0, 1.0), "5dp", rtol=1e-7, atol=1e-9),
    Stepping((0.0, 1.0), "cn", dt=0.1),
    Stepping((0.0, 1.0), "cn", rtol=1e-5, atol=1e-7),
    Stepping((0.0, 1.0), "beuler", rtol=1e-4, atol=1e-6),
    Stepping((0.0, 1.0), "esdirk4", dt=0.1),
    Stepping((0.0, 1.0), "esdirk5", rtol=1e-5, atol=1e-7),
]
RUNS = [(U0, P, ()), ([0.3, -2.0], [3.0, 0.1], (0.33, 0.5)), (U0, P, ())]
DOUBLES = ctypes.POINTER(ctypes.c_double)
Rate = ctypes.CFUNCTYPE(None, ctypes.c_double, DOUBLES, DOUBLES, DOUBLES, ctypes.c_void_p)


def record(run):
    """Return all numbers of a run."""
    effort = (run.effort.steps, run.effort.rejected, run.effort.newton_iterations)
    return run.times.tobytes(), run.step_sizes.tobytes(), run.u.tobytes(), effort


@pytest.fixture
def options():
    """Return PETSc's database, emptied of what was put there."""
    database = PETSc.Options()
    before = set(database.getAll())
    yield database
    for name in set(database.getAll()) - before:
        database.delValue(name)


@pytest.mark.parametrize("pattern", [False, True])
@pytest.mark.parametrize("stepping", METHODS, ids=lambda item: f"{item.method}-{item.adaptive}")
def test_a_run_depends_on_nothing_of_the_one_before(c, stepping, pattern):
    expected = [
        record(solve(compiled_ode(c, pattern=pattern), u0, p, stepping, t_eval))
        for u0, p, t_eval in RUNS
    ]
    problem = compiled_ode(c, pattern=pattern)
    values, used = [], set()
    for u0, p, t_eval in RUNS:
        values.append(record(solve(problem, u0, p, stepping, t_eval)))
        used.add(IDLE_TS.of(problem)[0].ts.handle)
    assert values == expected
    assert len(used) == len(IDLE_TS.of(problem)) == 1


def test_equal_steppings_share_a_ts_and_others_do_not(c):
    problem = compiled_ode(c)
    for stepping in (FIXED, replace(FIXED), *METHODS[1:3]):
        solve(problem, U0, P, stepping)
    assert [item.stepping.method for item in IDLE_TS.of(problem)] == ["rk4", "5dp", "cn"]


def test_a_problem_keeps_a_few_only_the_last_ones(c):
    problem = compiled_ode(c)
    steppings = [replace(FIXED, dt=0.1 / k) for k in range(1, 2 * IDLE)]
    for stepping in (*steppings, *steppings[-IDLE:]):
        solve(problem, U0, P, stepping)
    assert [item.stepping for item in IDLE_TS.of(problem)] == steppings[-IDLE:]


def test_options_given_in_between_hold(c, options):
    problem = compiled_ode(c)
    expected = record(solve(problem, U0, P, FIXED))
    options["ts_max_steps"] = 3
    with pytest.raises(SolveError, match="after 3 steps"):
        solve(problem, U0, P, FIXED)
    options.delValue("ts_max_steps")
    assert record(solve(problem, U0, P, FIXED)) == expected
    cut = replace(METHODS[1], options={"ts_adapt_dt_max": 0.01})
    assert solve(problem, U0, P, cut).n_steps >= 100
    assert solve(problem, U0, P, METHODS[1]).n_steps < 30
    assert [item.stepping.method for item in IDLE_TS.of(problem)] == ["rk4", "5dp"]


def test_options_are_read_in_every_run(c):
    problem = compiled_ode(c)
    watched = replace(FIXED, options={"ts_max_step_rejections": 7})
    for _ in range(2):
        solve(problem, U0, P, watched)
    assert IDLE_TS.of(problem) == []
    with pytest.raises(OptionError, match="ts_theta_initial"):
        solve(problem, U0, P, replace(FIXED, options={"ts_theta_initial_guess_extrapolate": True}))


def test_options_of_an_optimiser_do_not_matter(c, options):
    problem = compiled_ode(c)
    options["tao_max_it"] = 3
    solve(problem, U0, P, FIXED)
    assert len(IDLE_TS.of(problem)) == 1


def test_a_failed_run_leaves_nothing(c):
    problem = compiled_ode(c)
    expected = record(solve(problem, U0, P, METHODS[2]))
    for _ in range(2):
        with pytest.raises(SolveError):
            solve(problem, [1e200, 1e200], P, METHODS[2])
        assert IDLE_TS.of(problem) == []
    assert record(solve(problem, U0, P, METHODS[2])) == expected


def test_a_run_inside_a_run_has_a_ts_of_its_own():
    inside, inner = [], []

    @Rate
    def rate(t, u, p, out, _data):
        if t > 0.5 and not inside:
            inside.append(True)
            inner.append(record(solve(problem, [2.0], [0.3], FIXED)))
        out[0] = -p[0] * u[0]

    problem = ODE(rate, 1, 1, jacobian=lambda t, u, p: [[-p[0]]])
    outer = []
    for _ in range(4):
        outer.append(record(solve(problem, [1.0], [0.7], FIXED)))
        inside.clear()
    inside.append(True)
    assert outer == 4 * [record(solve(problem, [1.0], [0.7], FIXED))]
    assert inner == 4 * [record(solve(problem, [2.0], [0.3], FIXED))]
    assert len(IDLE_TS.of(problem)) == 2  # of the first run, and of the one inside the second


@pytest.mark.slow
def test_a_dropped_problem_takes_its_ts_along(c):
    gc.collect()
    problem = compiled_ode(c)
    for stepping in METHODS:
        solve(problem, U0, P, stepping)
    kept = [weakref.ref(value) for value in (problem, *IDLE_TS.of(problem))]
    references = [item.ts.refcount for item in IDLE_TS.of(problem)]
    assert references == [1] * len(references)
    del problem
    gc.collect()
    assert [item() for item in kept] == [None] * len(kept)


def test_a_changed_copy_starts_anew(c):
    problem = compiled_ode(c)
    solve(problem, U0, P, FIXED)

    @Rate
    def half(_t, u, _p, out, _data):
        out[0], out[1] = 0.5 * u[0], 0.5 * u[1]

    changed = replace(problem, native={**problem.native, "rhs": ODE(half, 2, 2).native["rhs"]})
    assert IDLE_TS.of(changed) == []
    states = solve(changed, U0, P, FIXED).u[-1]
    np.testing.assert_allclose(states, np.exp(0.5) * np.array(U0), rtol=1e-6)


def test_problems_in_python_and_recordings_keep_none(c):
    problem = numpy_ode()
    solve(problem, U0, P, FIXED)
    assert IDLE_TS.of(problem) == []
    recorded = compiled_ode(c)
    solve(recorded, U0, P, FIXED, petsc_trajectory="memory").destroy()
    assert IDLE_TS.of(recorded) == []


@pytest.mark.mpi
def test_ranks_may_run_and_drop_their_own_problems(c):
    rank = PETSc.COMM_WORLD.rank
    expected = record(solve(compiled_ode(c), U0, P, FIXED))
    problem = compiled_ode(c)
    for stepping in METHODS[: 1 + rank]:
        solve(problem, U0, P, stepping)
    assert record(solve(problem, U0, P, FIXED)) == expected
    del problem
    assert PETSc.COMM_WORLD.tompi4py().allgather(expected) == [expected] * PETSc.COMM_WORLD.size


@pytest.mark.parametrize("method", ["rk4", "5dp"])
def test_parts_of_a_large_run_share_a_ts_until_the_sweep_is_back(c, monkeypatch, method):
    problem = compiled_ode(c)
    last = Terminal(lambda t, u, p: u[0])
    stepping = replace(FIXED, method=method, dt=0.01)
    expected = adjoint(solve(problem, U0, P, stepping), last, "vectors")
    monkeypatch.setattr(ts_cache, "SMALL", 0)  # as if the problem were large
    IDLE_TS.of(problem).clear()
    made, make = [], ts_cache.make_ts
    monkeypatch.setattr(ts_cache, "make_ts", lambda *a, **b: made.append(make(*a, **b)) or made[-1])
    run = solve(problem, U0, P, stepping, checkpoint=Checkpoints(5))
    assert len(made) == 1
    gradient = adjoint(run, last, "vectors")
    assert run.stored.replays > 10
    assert len(made) == 2
    assert IDLE_TS.of(problem) == []
    np.testing.assert_array_equal(gradient.p, expected.p)
    np.testing.assert_array_equal(gradient.u0, expected.u0)
    run.states[50]  # a sweep that does not come to the first state
    assert len(IDLE_TS.of(problem)) == 1
    del run, gradient
    gc.collect()
    assert IDLE_TS.of(problem) == []
