"""Densities of costs as the sweeps in C take them."""

import numpy as np

import daeosens as ds
from daeosens import Running, Terminal
from daeosens.derivatives.engines.compiled.adjoint import running_costs


def lowered(model, *objectives):
    return [objective.lower(model, 1.0) for objective in objectives]


def densities(model, *objectives):
    return [cost.densities for cost in lowered(model, *objectives)]


def test_each_cost_has_its_densities_with_their_weights():
    model = ds.trace(lambda t, u, p: p.a * u, 3, {"a": ()}, running=lambda t, u, p: u[0] * t)
    end = Terminal(lambda t, u, p: u[0])
    both = end + 2.0 * model.running + 3.0 * model.running
    first, weights, functions, values, room = running_costs(
        model, densities(model, end, both, model.running)
    )
    assert first.tolist() == [0, 0, 2, 3]
    assert weights.tolist() == [2.0, 3.0, 1.0]
    assert functions.shape == (3, 6)
    assert functions[:, [0, 2]].all()
    assert not functions[:, [1, 3, 4, 5]].any()  # no user data, and the density ignores p
    assert values.tolist() == [0.0, 0.0, 0.0]
    assert room.size == 3


def test_a_density_in_python_is_left_to_python():
    model = ds.trace(lambda t, u, p: p.a * u, 1, {"a": ()}, running=lambda t, u, p: u[0] * p.a)
    assert running_costs(model, densities(model, Running(lambda t, u, p: u[0]))) is None
    half = Running(model.running.density, gradient_u=lambda t, u, p: np.array([p[0]]))
    assert running_costs(model, densities(model, model.running + half)) is None
    prior = Running(lambda t, u, p: p[0] ** 2)
    assert running_costs(model, densities(model, prior)) is None
