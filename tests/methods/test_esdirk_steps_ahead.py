"""Derivatives at the stages of several steps at once: the sweeps by vectors as without."""

import numpy as np
import pytest

import daeosens as ds
from daeosens.methods.esdirk.stage_equations import StageEquations
from daeosens.problem import imex
from daeosens.timestepping import Checkpoints

N = 70


def reaction(t, u, p):
    """A chain with a source that jumps at t = 0.1, and kinks."""
    source = 2.0 if t <= 0.1 else 0.5
    wide = np.concatenate([[source], u, [u[-1]]])
    return p[0] * np.diff(wide, 2) * len(u) ** 2 / 100.0 - p[1] * u * np.maximum(u, 0.2)


START, P = 1.0 + np.sin(np.linspace(0.0, 6.0, N)), np.array([0.7, 1.3])
COST = ds.Terminal(lambda _t, u, p: u @ u + p[0] * u[3])


def runs():
    """Return problems whose steps are swept by vectors."""
    exact = ds.ODE(reaction, N, 2, breakpoints=(0.1,))
    mass = np.diag(np.linspace(1.0, 2.0, N))
    return {
        "adaptive": (exact, ds.Stepping((0.0, 0.3), "esdirk5", rtol=1e-5)),
        "equal steps": (exact, ds.Stepping((0.0, 0.3), "esdirk4", dt=0.01)),
        "mass": (
            ds.ODE(reaction, N, 2, mass=mass, breakpoints=(0.1,)),
            ds.Stepping((0.0, 0.3), "esdirk4", dt=0.01),
        ),
        "stages": (exact, ds.Stepping((0.0, 0.3), "esdirk4", dt=0.01)),
        "thinned": (exact, ds.Stepping((0.0, 0.3), "esdirk4", dt=0.01)),
        "imex": (
            imex(implicit=exact, explicit=ds.ODE(lambda _t, u, p: -p[1] * u**2, N, 2)),
            ds.Stepping((0.0, 0.3), "arkimex4", dt=0.01),
        ),
    }


CHECKPOINTS = {"stages": {"checkpoint": "stages"}, "thinned": {"checkpoint": Checkpoints(6)}}


@pytest.mark.parametrize("name", runs())
@pytest.mark.filterwarnings("ignore::daeosens.errors.DiscretizationWarning")
@pytest.mark.filterwarnings("ignore::daeosens.errors.KinkWarning")
def test_sweeps_are_those_of_one_step_after_the_other(name, monkeypatch, rng):
    problem, stepping = runs()[name]
    run = ds.solve(problem, START, P, stepping, **CHECKPOINTS.get(name, {}))
    du, dp = rng.normal(size=N), rng.normal(size=2)

    def derivatives():
        gradient = ds.adjoint(run, COST, engine="vectors")
        tangent = ds.tangent(run, du, dp, engine="vectors")
        product = ds.hessian_product(run, COST, du, dp, engine="vectors")
        return [gradient.u0, gradient.p, tangent.u[-1], product.u0, product.p]

    ahead = derivatives()
    monkeypatch.setattr(StageEquations, "block", 1)
    for values, expected in zip(ahead, derivatives(), strict=True):
        size = np.abs(expected).max()
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-13 * size)


def test_points_are_evaluated_at_once():
    """Steps of six new stages: few evaluations for each of them."""
    calls = []

    def counted(t, u, p):
        calls.append(np.ndim(t))
        return reaction(t, u, p)

    problem = ds.ODE(counted, N, 2, breakpoints=(0.1,))
    stepping = ds.Stepping((0.0, 0.3), "esdirk4", dt=0.003)
    run = ds.solve(problem, START, P, stepping, checkpoint="stages")
    for _ in range(2):  # which learn the pattern, and are looked at
        ds.adjoint(run, COST, engine="vectors")
    calls.clear()
    ds.adjoint(run, COST, engine="vectors")
    assert len(calls) < run.n_steps


def test_what_a_callback_gave_is_of_one_sweep():
    """A callback that reads what its user changes between two gradients."""
    factor = [1.0]

    def scaled(t, u, p):
        return factor[0] * reaction(t, u, p)

    problem = ds.ODE(scaled, N, 2, breakpoints=(0.1,))
    stepping = ds.Stepping((0.0, 0.3), "esdirk4", dt=0.01)
    ds.adjoint(ds.solve(problem, START, P, stepping), COST, engine="vectors")
    factor[0] = 2.0
    gradient = ds.adjoint(ds.solve(problem, START, P, stepping), COST, engine="vectors")
    fresh = ds.ODE(lambda t, u, p: 2.0 * reaction(t, u, p), N, 2, breakpoints=(0.1,))
    expected = ds.adjoint(ds.solve(fresh, START, P, stepping), COST, engine="vectors")
    np.testing.assert_allclose(gradient.u0, expected.u0, rtol=1e-12)
    np.testing.assert_allclose(gradient.p, expected.p, rtol=1e-12)


def test_gradients_are_those_of_the_runs(rng):
    problem, stepping = runs()["equal steps"]
    run = ds.solve(problem, START, P, stepping)
    gradient = ds.adjoint(run, COST, engine="vectors")
    du, dp = rng.normal(size=N), rng.normal(size=2)
    slope = gradient.u0 @ du + gradient.p @ dp
    remainders = []
    for h in (1e-3, 5e-4, 2.5e-4):
        moved = ds.solve(problem, START + h * du, P + h * dp, stepping)
        value = ds.adjoint(moved, COST, engine="vectors").value
        remainders.append(abs(value - gradient.value - h * slope))
    orders = np.log2(np.divide(remainders[:-1], remainders[1:]))
    np.testing.assert_allclose(orders, 2.0, atol=0.1)
