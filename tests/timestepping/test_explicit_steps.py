"""Explicit steps on plain numbers: those of TSRK, to the last digit."""

import numpy as np
import pytest

import daeosens as ds
from daeosens import SolveError, Stepping
from daeosens.timestepping import ts as petsc_ts
from daeosens.timestepping.ts import FEW
from daeosens.timestepping.ts_cache import IDLE_TS

EXPLICIT = "daeosens-explicit"
"""The type of TS that small models have."""

SPAN = (0.0, 6.0)
STEPPINGS = [
    Stepping(SPAN, "rk1fe", dt=0.02),
    Stepping(SPAN, "rk4", dt=0.11),
    Stepping(SPAN, "rk8vr", dt=0.1),
    Stepping(SPAN, "rk2a", rtol=1e-3, atol=1e-3),
    Stepping(SPAN, "rk3bs", rtol=1e-5, atol=1e-6),
    Stepping(SPAN, "rk5f", rtol=1e-6, atol=1e-6),
    Stepping(SPAN, "rk5dp", rtol=1e-6, atol=1e-6, dt=2.0),
]
U0, P = [2.0, 0.0], [5.0, 0.3]


@pytest.fixture(scope="module")
def oscillator():
    return ds.trace(
        lambda t, u, p: [u[1], p[0] * (1.0 - u[0] * u[0]) * u[1] - u[0] + p[1] * np.sin(t)], 2, 2
    )


def kinds(model):
    """Return the types of the TS that its runs have left."""
    return [item.ts.getType() for item in IDLE_TS.of(model)]


@pytest.mark.parametrize("t_eval", [(), (0.7, 3.0)])
@pytest.mark.parametrize("stepping", STEPPINGS, ids=lambda item: item.method)
def test_the_steps_of_tsrk(oscillator, stepping, t_eval, monkeypatch):
    runs = []
    for few, kind in ((FEW, EXPLICIT), (0, "rk")):
        monkeypatch.setattr(petsc_ts, "FEW", few)
        IDLE_TS.of(oscillator).clear()
        run = ds.solve(oscillator, U0, P, stepping, t_eval=t_eval, checkpoint="stages")
        assert kinds(oscillator) == [kind]
        runs.append(run)
    IDLE_TS.of(oscillator).clear()
    ours, petsc = runs
    assert ours.effort == petsc.effort
    np.testing.assert_array_equal(ours.times, petsc.times)
    np.testing.assert_array_equal(ours.u, petsc.u)
    for key, other in zip(ours.stages, petsc.stages, strict=True):
        for stage, expected in zip(ours.stages[key], petsc.stages[other], strict=True):
            np.testing.assert_array_equal(stage.array, expected.array)


@pytest.mark.parametrize("tolerance", [1e-1, 1e-3])
@pytest.mark.parametrize("method", ["rk2a", "rk3bs", "rk5f", "rk5dp", "rk8vr"])
def test_the_steps_of_tsrk_after_trials_outside_the_domain(method, tolerance, monkeypatch):
    models = {
        (1.0, 0.2): (lambda t, u, p: [-np.sqrt(u[0]), u[0] - u[1]], 1.9),
        (1.5, 3.0): (
            lambda t, u, p: [1.0 + u[0] ** 2 * u[1] - 4.0 * u[0], 3.0 * u[0] - u[0] ** 2 * u[1]],
            10.0,
        ),
    }
    for start, (rhs, end) in models.items():
        model = ds.trace(rhs, 2, 0)
        runs = []
        for few in (FEW, 0):
            monkeypatch.setattr(petsc_ts, "FEW", few)
            IDLE_TS.of(model).clear()
            stepping = Stepping((0.0, end), method, rtol=tolerance, atol=tolerance, dt=0.5)
            runs.append(ds.solve(model, start, None, stepping))
        ours, petsc = runs
        assert ours.effort == petsc.effort
        assert ours.effort.rejected
        # the sizes of TSRK's trials after those are no differences of two times, as ours are
        np.testing.assert_allclose(ours.times, petsc.times, rtol=1e-11)
        np.testing.assert_allclose(ours.u, petsc.u, rtol=1e-11)


def test_rejected_steps_are_among_them(oscillator):
    run = ds.solve(oscillator, U0, P, STEPPINGS[-1])
    assert run.effort.rejected > 0


def test_a_run_remembers_nothing_of_the_one_before(oscillator):
    stepping = STEPPINGS[-1]
    IDLE_TS.of(oscillator).clear()
    first = ds.solve(oscillator, U0, P, stepping)
    ds.solve(oscillator, [0.5, -1.0], [2.0, 0.0], stepping)
    assert kinds(oscillator) == [EXPLICIT]
    np.testing.assert_array_equal(ds.solve(oscillator, U0, P, stepping).u, first.u)


def test_adjoint_tangent_and_differences_agree(oscillator):
    run = ds.solve(oscillator, U0, P, STEPPINGS[-1], t_eval=[1.0, 2.5])
    cost = ds.LeastSquares([1.0, 2.5, 6.0], [[0.5, 0.1]] * 3, sigma=0.3)
    gradient = ds.adjoint(run, cost)
    du, dp = np.array([0.3, -0.8]), np.array([0.5, 0.2])
    expected = ds.tangent(run, du, dp).derivative(cost)
    assert gradient.u0 @ du + gradient.p @ dp == pytest.approx(expected, rel=1e-12)
    fixed = Stepping(SPAN, "rk5dp", dt=0.05)
    total = oscillator.terminal(lambda t, u, p: u[0] ** 2 + u[1] * p[0])
    gradient = ds.adjoint(ds.solve(oscillator, U0, P, fixed), total)

    def value(h):
        return ds.derivatives.evaluate(ds.solve(oscillator, U0 + h * du, P + h * dp, fixed), total)

    slope = gradient.u0 @ du + gradient.p @ dp
    rest = [abs(value(h) - value(0.0) - h * slope) for h in (1e-3, 5e-4, 2.5e-4)]
    assert np.min(np.log2(np.divide(rest[:-1], rest[1:]))) > 1.9


def test_values_that_are_not_finite_are_named():
    model = ds.trace(lambda t, u, p: -p.a * np.sqrt(u - t), 1, {"a": ()})
    with pytest.raises(SolveError, match="'rhs' returned nan in entry"):
        ds.solve(model, [1.0], [1.0], Stepping((0.0, 2.0), "rk4", dt=0.1))
    assert IDLE_TS.of(model) == []


def test_events_see_the_same_steps():
    ball = ds.trace(
        lambda t, u, p: [u[1], -p.g],
        2,
        {"g": (), "e": ()},
        events=[
            ds.Event(lambda t, u, p: u[0], lambda t, u, p: [0.0 * u[0], -p.e * u[1]], direction=-1)
        ],
    )
    run = ds.solve(ball, [1.0, 0.0], [9.81, 0.8], Stepping((0.0, 1.0), "rk5dp", dt=0.05))
    assert run.crossings[0].t == pytest.approx(np.sqrt(2.0 / 9.81), rel=1e-12)


def test_options_are_read_by_tsrk(oscillator):
    stepping = Stepping(SPAN, "rk4", dt=0.1, options={"ts_rk_type": "4"})
    assert ds.solve(oscillator, U0, P, stepping).n_steps == 60


def test_the_type_alone_is_an_error(oscillator):
    ds.solve(oscillator, U0, P, STEPPINGS[1])  # PETSc knows the type from now on
    alone = Stepping(SPAN, "rk4", dt=0.11, options={"ts_type": EXPLICIT})
    with pytest.raises(ds.InputError, match="ExplicitStepsSet comes first"):
        ds.solve(oscillator, U0, P, alone)
