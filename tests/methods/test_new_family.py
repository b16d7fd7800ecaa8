"""A family of methods that is nothing but a ``Method`` and a ``StepMap``: all else follows.

The page for contributors says so.  Euler's method by PETSc's type of that name, of which no other
module knows anything, is the example.
"""

import numpy as np
import pytest
from euler_family import Euler

import daeosens as ds
from daeosens.methods.registry import METHODS
from daeosens.verify import duality


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """The one line of the registry."""
    monkeypatch.setitem(METHODS, "euler", Euler("euler", 1))


def rhs(t, u, p):
    return np.array([u[1], -p[0] * np.sin(u[0]) + p[1] * np.cos(t)])


BOUNCE = ds.Event(
    lambda t, u, p: u[0] - 0.1, lambda t, u, p: u * np.array([1.0, 0.8]), direction=-1, name="half"
)
U0, P = [1.0, 0.0], [2.0, 0.4]
COST = ds.Terminal(lambda t, u, p: u[0] ** 2 + u[1] * p[0])


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("events", [(), (BOUNCE,)], ids=["smooth", "event"])
def test_runs_and_derivatives_are_those_of_the_first_explicit_runge_kutta_method(make, events):
    model = make(rhs, 2, ["a", "b"], events=list(events))
    ours, theirs = (
        ds.solve(model, U0, P, ds.Stepping((0.0, 2.0), method, dt=0.05))
        for method in ("euler", "rk1fe")
    )
    assert len(ours.crossings) == len(events)
    np.testing.assert_allclose(ours.u, theirs.u, rtol=1e-12)
    gradients = [ds.adjoint(run, COST) for run in (ours, theirs)]
    assert gradients[0].engine == "vectors"
    np.testing.assert_allclose(gradients[0].u0, gradients[1].u0, rtol=1e-11)
    np.testing.assert_allclose(gradients[0].p, gradients[1].p, rtol=1e-11)
    assert duality(ours, COST) < 1e-12
    if not events:
        products = [
            ds.hessian_product(run, COST, [0.3, -0.2], [0.5, 0.7]) for run in (ours, theirs)
        ]
        np.testing.assert_allclose(products[0].u0, products[1].u0, rtol=1e-11)
        np.testing.assert_allclose(products[0].p, products[1].p, rtol=1e-11)


def test_running_costs_are_sums_over_steps():
    model = ds.ODE(rhs, 2, ["a", "b"])
    run = ds.solve(model, U0, P, ds.Stepping((0.0, 2.0), "euler", dt=0.05))
    cost = ds.Running(lambda t, u, p: u[0] ** 2 + p[1] * t)
    sums = (run.step_sizes * (run.u[:-1, 0] ** 2 + P[1] * run.times[:-1])).sum()
    gradient = ds.adjoint(run, cost)
    assert gradient.value == pytest.approx(sums, rel=1e-14)
    assert duality(run, cost) < 1e-12


def test_what_it_does_not_take_is_refused_in_its_words():
    heavy = ds.ODE(rhs, 2, ["a", "b"], mass=np.diag([1.0, 2.0]))
    with pytest.raises(ds.UnsupportedError, match="Euler's method for a problem in mass form"):
        ds.solve(heavy, U0, P, ds.Stepping((0.0, 2.0), "euler", dt=0.05))
