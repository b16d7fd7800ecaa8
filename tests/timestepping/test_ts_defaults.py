"""TS set up for runs: options, times and tolerances."""

from pathlib import Path

import numpy as np
import pytest
from forms import DECAY
from native_model import U0 as START
from native_model import P, compiled_ode
from petsc4py import PETSc

from daeosens import ODE, InputError, Stepping, Terminal, adjoint, solve, trace
from daeosens.timestepping.c_rhs import Held
from daeosens.timestepping.ts import make_ts
from daeosens.timestepping.ts_cache import prepared_ts
from daeosens.timestepping.ts_defaults import (
    ANY_SIZE,
    GROWTH,
    LARGEST_ERROR,
    SMALLER_STEPS,
    default_options,
)

SPAN = (0.5, 2.0)
TOLERANCES = {"rtol": 1e-4, "atol": 1e-5}
FIRST, MIDDLE = (Terminal(lambda t, u, p, k=k: u[k]) for k in (0, 1))


def options(
    stepping, checkpoint="states", problem=DECAY.problem, u0=DECAY.u0, p=DECAY.p, plain=True
):
    method, held, u = stepping.resolved_method, Held(np.asarray(p)), problem.admit_state(u0)
    ts = make_ts(
        problem, method, SPAN[0], u, held, record="states", plain=plain and not stepping.options
    )
    return default_options(problem, stepping, ts, checkpoint)


def test_fixed_explicit_steps_need_one_option():
    assert options(Stepping(SPAN, "rk4", dt=0.1)) == {"ts_adapt_type": "none"}


def test_adaptive_steps_are_bounded_where_asked():
    chosen = options(Stepping(SPAN, "rk5dp", max_step=0.2, **TOLERANCES))
    bounds = {"ts_adapt_type": "basic", "ts_adapt_dt_max": 0.2, "ts_adapt_safety": 0.8}
    assert chosen == {**bounds, **SMALLER_STEPS, **GROWTH, **ANY_SIZE, **LARGEST_ERROR}


@pytest.mark.parametrize("unit", [1e-30, 1e-21, 1e24])
@pytest.mark.parametrize("style", [ODE, trace])
@pytest.mark.parametrize("method", ["rk6vr", "rk5dp", "esdirk5", "cn"])
def test_steps_do_not_depend_on_the_unit_of_time(method, style, unit):
    """Of PETSc's own, 1e-20 is taken whatever its error is, and none is longer than 1e20."""

    def turned(unit):
        model = style(lambda t, u, p: p[0] * np.stack([u[1], -u[0]]), 2, ["frequency"])
        last = model.terminal(lambda t, u, p: u[0]) if style is trace else FIRST
        run = solve(model, [1.0, 0.0], [5.0 / unit], Stepping((0.0, unit), method, rtol=1e-5))
        return run.n_steps, run.u[-1], adjoint(run, last).p / unit

    steps, state, by_frequency = turned(1.0)
    in_another_unit = turned(unit)
    assert in_another_unit[0] == steps
    assert np.allclose(in_another_unit[1], state, rtol=0.0, atol=1e-9)
    assert np.allclose(in_another_unit[2], by_frequency, rtol=0.0, atol=1e-9)
    assert abs(state[0] - np.cos(5.0)) < 1e-3


@pytest.mark.parametrize("rate", [1e25, 1e70])
@pytest.mark.parametrize("style", [ODE, trace])
@pytest.mark.parametrize("method", ["esdirk3", "esdirk4", "esdirk5", "esdirk6"])
def test_what_happens_within_the_smallest_times_loses_nothing(method, style, rate):
    """A to B at any rate, and then B to C: as it may be at trials of a fit."""
    model = style(
        lambda t, u, p: np.stack([-p[0] * u[0], p[0] * u[0] - p[1] * u[1], p[1] * u[1]]), 3, 2
    )
    middle = model.terminal(lambda t, u, p: u[1]) if style is trace else MIDDLE
    run = solve(model, [1.0, 0.0, 0.0], [rate, 0.02], Stepping((0.0, 5.0), method, rtol=1e-6))
    assert np.allclose(run.u[-1], [0.0, np.exp(-0.1), 1.0 - np.exp(-0.1)], rtol=0.0, atol=1e-6)
    gradient = adjoint(run, middle)
    assert np.allclose(gradient.p * [rate, 1.0], [0.0, -5.0 * np.exp(-0.1)], rtol=0.0, atol=1e-5)
    assert np.allclose(gradient.u0, [np.exp(-0.1), np.exp(-0.1), 0.0], rtol=0.0, atol=1e-6)


def test_the_points_of_a_grid_satisfy_the_tolerance_in_the_mean():
    grid = PETSc.DMDA().create((8,), dof=1, stencil_width=1, comm=PETSc.COMM_SELF)
    problem = ODE(lambda t, u, p, out: out.zeroEntries(), state=grid)
    chosen = options(
        Stepping(SPAN, "rk5dp", **TOLERANCES), problem=problem, u0=grid.createGlobalVec(), p=()
    )
    assert not chosen.keys() & LARGEST_ERROR.keys()
    assert chosen.items() >= GROWTH.items()


@pytest.mark.parametrize("method", ["cn", "midpoint", "esdirk4"])
def test_stages_are_solved_far_below_the_error_of_steps(method):
    chosen = options(Stepping(SPAN, method, dt=0.1))
    assert chosen["snes_rtol"] <= 1e-11
    assert chosen["snes_max_it"] == 50
    assert chosen["snes_linesearch_type"] == ("basic" if method == "esdirk4" else "rounding")


@pytest.mark.parametrize(("method", "iterations"), [("esdirk4", 10), ("cn", 50)])
def test_adaptive_stages_that_do_not_converge_are_tried_with_smaller_steps(method, iterations):
    chosen = options(Stepping(SPAN, method, **TOLERANCES), plain=False)
    assert chosen.items() >= SMALLER_STEPS.items()
    assert chosen["snes_max_it"] == iterations
    assert not options(Stepping(SPAN, method, dt=0.1)).keys() & SMALLER_STEPS.keys()


def test_steps_in_c_have_no_linear_solver_to_choose(c):
    stepping = Stepping(SPAN, "esdirk4", dt=0.1)
    in_c = options(stepping, problem=compiled_ode(c), u0=START, p=P)
    assert not [name for name in in_c if name.startswith(("ksp", "pc"))]
    assert [name for name in options(stepping, plain=False) if name.startswith(("ksp", "pc"))]


@pytest.mark.parametrize("adaptive", [False, True])
def test_ts_has_the_times_sizes_and_tolerances_of_the_stepping(adaptive):
    problem = DECAY.problem
    stepping = Stepping(SPAN, "cn", dt=0.3, max_steps=7, **(TOLERANCES if adaptive else {}))
    with prepared_ts(problem, problem.admit_state(DECAY.u0), DECAY.p, stepping, "states") as ready:
        ts = ready.ts
        assert (ts.getTime(), ts.getMaxTime(), ts.getTimeStep(), ts.getMaxSteps()) == (
            *SPAN,
            0.3,
            7,
        )
        if adaptive:
            assert ts.getTolerances() == (TOLERANCES["rtol"], TOLERANCES["atol"])
        np.testing.assert_array_equal(ts.getSolution().array, DECAY.u0)


# ---- PETSc's trajectory --------------------------------------------------------------------------


def test_each_recording_on_disk_has_a_folder_of_its_own():
    stepping = Stepping(SPAN, "rk4", dt=0.1)
    values = [options(stepping, "disk")["ts_trajectory_dirname"] for _ in range(2)]
    assert len(set(values)) == 2
    assert not any(Path(folder).exists() for folder in values)  # PETSc would refuse them


@pytest.mark.mpi
def test_ranks_share_the_folder(comm):
    state = PETSc.Vec().createMPI((1, PETSc.DECIDE), comm=comm)
    problem = ODE(lambda t, u, p, out: out.zeroEntries(), state=state)
    computed = options(Stepping(SPAN, "rk4", dt=0.1), "disk", problem, state, ())
    folders = comm.allgather(computed["ts_trajectory_dirname"])
    assert folders == [folders[0]] * comm.size


def test_disk_checkpoint_into_a_folder_that_cannot_be_made_is_an_error(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    with pytest.raises(InputError, match=r"PETSc cannot be set up: .*/proc/nowhere"):
        solve(
            DECAY.problem, DECAY.u0, DECAY.p, Stepping(SPAN, "rk4", dt=0.1), petsc_trajectory="disk"
        )
