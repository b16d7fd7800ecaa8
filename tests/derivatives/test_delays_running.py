"""Running costs of delay equations: by the method's own weights, and exact derivatives of these."""

import warnings

import numpy as np
import pytest

import daeosens as ds
from daeosens.derivatives import evaluate
from daeosens.errors import DiscretizationWarning
from daeosens.verify import duality

NAMES = ["rate", "level", "tau"]
X = np.array([1.0, 1.2, 0.31, 0.837])  # u0 and p


def density(t, u, p):
    return u[0] ** 2 * np.cos(t) + p[0] * t


def rhs(t, u, z, p):
    return np.array([-p[0] * z[0, 0] * (1.0 + 0.1 * np.sin(t)), density(t, u, p)])


KICK = ds.Event(
    lambda t, u, p: u[0] - p[1],
    lambda t, u, p: u + np.array([1.0, 0.0]) * (0.5 + p[1]),
    direction=-1,
    name="kick",
)
COST = ds.Running(density) + ds.Terminal(lambda t, u, p: u[0] * p[1])
AS_UNKNOWN = ds.Terminal(lambda t, u, p: u[1] + u[0] * p[1])


def make(events=(KICK,)):
    """Return an equation of which the second unknown is the integral of the density."""
    return ds.DDE(rhs, 2, NAMES, delays="tau", history=[1.0, 0.0], events=events)


@pytest.mark.parametrize("events", [(), (KICK,)])
@pytest.mark.parametrize(
    ("method", "sizes"), [("rk4", {"dt": 0.1}), ("rk5ts", {"rtol": 1e-5}), ("rk8vr", {"dt": 0.3})]
)
def test_values_and_derivatives_are_those_of_an_unknown_more(events, method, sizes):
    """Its state is the sum of the density by the weights of the same steps."""
    run = ds.solve(make(events), [X[0], 0.0], X[1:], ds.Stepping((0.0, 3.0), method, **sizes))
    assert len(run.crossings) == 3 * len(events)
    ours, theirs = ds.adjoint(run, [COST, AS_UNKNOWN])
    assert abs(ours.value - theirs.value) < 1e-13
    assert abs(evaluate(run, COST) - theirs.value) < 1e-13
    np.testing.assert_allclose(ours.p, theirs.p, rtol=1e-12)
    np.testing.assert_allclose(ours.u0[0], theirs.u0[0], rtol=1e-12)
    du, dp = np.array([0.3, 0.0]), np.array([0.2, -0.4, 0.5])
    along = ds.tangent(run, du, dp)
    assert abs(along.derivative(COST) - ours.u0 @ du - ours.p @ dp) < 1e-12
    products = [ds.hessian_product(run, cost, du, dp) for cost in (COST, AS_UNKNOWN)]
    np.testing.assert_allclose(products[0].p, products[1].p, rtol=1e-11)
    np.testing.assert_allclose(products[0].u0[0], products[1].u0[0], rtol=1e-11)
    assert duality(run, COST) < 1e-12


def test_a_traced_density():
    model = ds.trace(
        lambda t, u, z, p: np.array([-p.rate * z[0, 0] * (1.0 + 0.1 * np.sin(t))]),
        1,
        NAMES,
        delays="tau",
        history=[1.0],
        running=lambda t, u, p: u[0] ** 2 * np.cos(t) + p.rate * t,
    )
    stepping = ds.Stepping((0.0, 3.0), "rk5ts", dt=0.1)
    plain = ds.DDE(lambda *point: rhs(*point)[:1], 1, NAMES, delays="tau", history=[1.0])
    rows = [
        ds.adjoint(ds.solve(problem, [1.0], X[1:], stepping), cost)
        for problem, cost in ((model, model.running), (plain, ds.Running(density)))
    ]
    assert abs(rows[0].value - rows[1].value) < 1e-13
    np.testing.assert_allclose(rows[0].p, rows[1].p, rtol=1e-12)


@pytest.mark.slow
def test_taylor_orders():
    problem = ds.DDE(lambda *point: rhs(*point)[:1], 1, NAMES, delays="tau", history=[1.0])
    control = ds.Parameters(
        {name: ds.Parameter(value) for name, value in zip(NAMES, X[1:], strict=True)}, [1.0]
    )
    functional = ds.Reduced(problem, COST, ds.Stepping((0.0, 3.0), "rk5ts", dt=0.1), control)
    assert 1.95 < min(ds.taylor(functional)) < 2.1
    assert 2.9 < min(ds.taylor(functional, hessian=True)) < 3.1


def test_a_closed_form():
    """The integral of 1 - t + (t - tau)^2 / 2 from tau on, with u' = -u(t - tau) from 1."""
    problem = ds.DDE(lambda t, u, z, p: -z[0], 1, ["tau"], delays="tau", history=[1.0])
    run = ds.solve(problem, [1.0], [0.8], ds.Stepping((0.0, 1.5), "rk4", dt=0.1))
    gradient = ds.adjoint(run, ds.Running(lambda t, u, p: u[0]))
    assert abs(gradient.value - (1.5 - 1.125 + 0.7**3 / 6.0)) < 1e-13
    assert abs(gradient.p[0] + 0.7**2 / 2.0) < 1e-12
    product = ds.hessian_product(run, ds.Running(lambda t, u, p: u[0]), [0.0], [1.0])
    assert abs(product.p[0] - 0.7) < 1e-11


def test_densities_that_vary_faster_than_steps_are_told():
    problem = ds.DDE(lambda t, u, z, p: -z[0], 1, ["tau"], delays="tau", history=[1.0])
    run = ds.solve(problem, [1.0], [0.8], ds.Stepping((0.0, 3.0), "rk5ts", rtol=1e-6))
    with pytest.warns(DiscretizationWarning, match="varies faster than the steps"):
        ds.adjoint(run, ds.Running(lambda t, u, p: np.sin(40.0 * t) ** 2 * u[0]))


@pytest.mark.parametrize("sizes", [{"dt": 0.01}, {"rtol": 1e-8, "max_step": 0.05}])
def test_kinks_of_the_density_in_time_are_told_and_breakpoints_are_the_remedy(sizes):
    """Steps move with the delay, past the kinks: what each makes of one is no derivative."""

    def late(t, u, z, p):
        return -p[0] * z[0]

    kinks = [np.pi / 3.0 * k for k in (1, 2, 3)]
    cost = ds.Running(lambda t, u, p: abs(np.sin(3.0 * t)) * u[0] ** 2)
    stepping = ds.Stepping((0.0, 4.0), "rk5ts", **sizes)
    for breakpoints in ([], kinks):
        model = ds.DDE(
            late, 1, ["a", "tau"], delays=["tau"], history=[1.0], breakpoints=breakpoints
        )
        for _ in range(2):  # every time
            run = ds.solve(model, [1.0], [0.7, 0.63], stepping)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                gradient = ds.adjoint(run, cost).p
            told = ["which steps may pass that move" in str(w.message) for w in caught]
            assert any(told) != bool(breakpoints)
    # SciPy's DOP853 by the method of steps, central differences of 1e-5
    assert gradient == pytest.approx([-0.551541, -0.075253], rel=1e-3)
