"""Oscillations that the state does not show: perturbations are made of all modes."""

import numpy as np
import pytest
from scipy.linalg import expm

import daeosens as ds

COUNT, FINAL, RTOL = 12, 20.0, 1e-8
STIFFNESS = 2.0 * np.eye(COUNT) - np.eye(COUNT, k=1) - np.eye(COUNT, k=-1)
LONGEST_WAVE = np.sin(np.pi * np.arange(1, COUNT + 1) / (COUNT + 1))
START = np.concatenate([LONGEST_WAVE, np.zeros(COUNT)])


def chain(t, u, p):
    """Masses between springs."""
    x, v = u[:COUNT], u[COUNT:]
    return np.concatenate([v, -p[0] * (STIFFNESS @ x)])


# along random changes of all starting values the look expects five times the error of any entry
@pytest.mark.filterwarnings("ignore:the steps follow the states")
@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("method", ["rk5dp", "rk6vr", "rk8vr"])
def test_a_long_wave_has_derivatives_along_short_ones(make, method):
    model = make(chain, 2 * COUNT, ["stiffness"])
    run = ds.solve(model, START, [4.0], ds.Stepping((0.0, FINAL), method, rtol=RTOL))
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[3]))
    zero = np.zeros_like(STIFFNESS)
    matrix = np.block([[zero, np.eye(COUNT)], [-4.0 * STIFFNESS, zero]])
    exact = expm(FINAL * matrix)[3]
    # with the steps that the wave alone needs, 6e-4
    assert np.abs(gradient.u0 - exact).max() < 100 * RTOL * np.abs(exact).max()


def kepler(t, u, p):
    r = np.sqrt(u[0] ** 2 + u[1] ** 2)
    return np.array([u[2], u[3], -p[0] * u[0] / r**3, -p[0] * u[1] / r**3])


@pytest.mark.parametrize(
    ("rhs", "start"),
    [
        # fast for a short time only, in which steps are short
        pytest.param(kepler, [0.2, 0.0, 0.0, 3.0], id="an orbit from its nearest point"),
        # the state oscillates itself
        pytest.param(lambda t, u, p: np.stack([u[1], -p[0] * u[0]]), [1.0, 0.0], id="a spring"),
        # it dies out within a period
        pytest.param(
            lambda t, u, p: np.stack([-3.0 * u[0] + 9.0 * u[1], -9.0 * u[0] - 3.0 * u[1], p[0]]),
            [1e-9, 0.0, 1.0],
            id="an oscillation that is damped",
        ),
    ],
)
def test_steps_of_others_are_left(rhs, start):
    model = ds.ODE(rhs, len(start), 1)
    run = ds.solve(model, start, [1.0], ds.Stepping((0.0, 6.0), "rk6vr", rtol=RTOL))
    assert run.stepping.max_step is None


def test_runs_that_may_take_few_steps_are_left():
    model = ds.ODE(chain, 2 * COUNT, 1)
    stepping = ds.Stepping((0.0, FINAL), "rk6vr", rtol=RTOL, max_steps=150)
    run = ds.solve(model, START, [4.0], stepping)
    assert run.n_steps <= 150


def test_the_method_that_is_chosen_takes_as_many_steps_as_one_that_is_asked_for():
    """More than those after which it asks whether the equations are stiff."""
    model = ds.trace(chain, 2 * COUNT, ["stiffness"])
    cost = ds.Terminal(lambda t, u, p: u[3])
    asked, chosen = (
        ds.solve(model, START, [4.0], ds.Stepping((0.0, 160.0), method, rtol=RTOL))
        for method in ("rk6vr", "auto")
    )
    assert chosen.n_steps == asked.n_steps > 2000
    np.testing.assert_array_equal(ds.adjoint(chosen, cost).u0, ds.adjoint(asked, cost).u0)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_so_has_a_wave_whose_springs_become_softer(make):
    """Each piece between events is looked at: the closed form is a product of exponentials."""
    softer = ds.Event(5.0, changes={"stiffness": lambda t, u, p: 0.25 * p[0]})
    model = make(chain, 2 * COUNT, ["stiffness"], events=[softer])
    run = ds.solve(model, START, [4.0], ds.Stepping((0.0, FINAL), "rk6vr", rtol=RTOL))
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[3]))
    zero, one = np.zeros_like(STIFFNESS), np.eye(COUNT)
    hard, soft = (np.block([[zero, one], [-k * STIFFNESS, zero]]) for k in (4.0, 1.0))
    exact = (expm((FINAL - 5.0) * soft) @ expm(5.0 * hard))[3]
    assert np.abs(gradient.u0 - exact).max() < 100 * RTOL * np.abs(exact).max()
