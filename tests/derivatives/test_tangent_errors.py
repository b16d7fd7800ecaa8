"""Error estimates of tangents: linear problems in closed form, and the same by every way."""

import numpy as np
import pytest

import daeosens as ds
from daeosens.derivatives import tangent_errors
from daeosens.derivatives.tangent_errors import tangents_and_errors
from daeosens.methods import METHODS, find_method

EMBEDDED = [name for name, entry in METHODS.items() if entry.adaptive and entry.tableau is not None]


def pendulum(*, compiled):
    def rhs(t, u, p):
        return np.stack([u[1], -p[0] * np.sin(u[0]) + p[1] * np.cos(t)])

    if compiled:
        return ds.trace(rhs, 2, ["stiffness", "force"])
    return ds.ODE(rhs, 2, ["stiffness", "force"])


DIRECTIONS = [([1.0, 0.0], None), (None, [1.0, 0.0]), ([0.3, -0.2], [0.5, 0.7])]


@pytest.mark.parametrize("method", EMBEDDED)
def test_every_way_gives_the_same(method, monkeypatch):
    stepping = ds.Stepping((0.0, 2.0), method, dt=0.4)  # the same ones for all
    numbers = []
    for compiled in (True, False):
        run = ds.solve(pendulum(compiled=compiled), [1.0, 0.2], [2.0, 0.4], stepping, (), "stages")
        numbers.append(tangents_and_errors(run, DIRECTIONS))
    monkeypatch.setattr(tangent_errors, "DENSE", 0)
    numbers.append(tangents_and_errors(run, DIRECTIONS))  # by the maps of single steps
    largest = abs(numbers[0][1]).max()
    for values, errors in numbers[1:]:
        np.testing.assert_allclose(values, numbers[0][0], rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(errors, numbers[0][1], rtol=0.0, atol=1e-5 * largest + 1e-14)


@pytest.mark.parametrize("method", EMBEDDED)
@pytest.mark.parametrize("arrays", [True, False])
@pytest.mark.parametrize("mass", [1.0, 3.0])
def test_of_a_linear_equation_the_estimate_is_the_difference_of_both_stability_functions(
    method, arrays, mass, monkeypatch
):
    explicit = find_method(method).explicit
    if explicit and mass != 1.0:
        pytest.skip("no explicit steps with a mass")
    if not arrays:
        monkeypatch.setattr(tangent_errors, "DENSE", 0)
    matrix = None if mass == 1.0 else np.array([[mass]])
    decay = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["rate"], mass=matrix)
    stepping = ds.Stepping((0.0, 1.0), method, dt=0.3, t_eval=[0.2, 0.5])
    run = ds.solve(decay, [1.0], [2.0], stepping, (), "stages")
    values, errors = tangents_and_errors(run, [([1.0], None)])
    scheme = find_method(method).tableau
    a, b, b_embedded = scheme.a, scheme.b, scheme.b_embedded
    for h, before, error in zip(run.step_sizes, values[:-1, 0, 0], errors[:, 0, 0], strict=True):
        z = -2.0 * h / mass
        rates = np.linalg.solve(np.eye(len(b)) - z * a, np.ones(len(b)))
        expected = z * (b - b_embedded) @ rates * before
        assert error == pytest.approx(expected, rel=1e-5, abs=1e-15)


def test_algebraic_variables_follow_the_others_in_the_estimate():
    dae = ds.ODE(
        lambda t, u, p: np.array([-p[0] * u[0] + u[1], u[1] - 3.0 * u[0]]),
        2,
        ["rate"],
        mass=np.diag([1.0, 0.0]),
    )
    run = ds.solve(dae, [1.0, 3.0], [4.0], ds.Stepping((0.0, 1.0), "esdirk4", rtol=1e-4))
    _, errors = tangents_and_errors(run, [([1.0, 3.0], None)])
    np.testing.assert_allclose(errors[:, 0, 1], 3.0 * errors[:, 0, 0], rtol=1e-5)


def test_of_theta_methods_it_is_half_the_second_difference():
    decay = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["rate"])
    run = ds.solve(decay, [1.0], [2.0], ds.Stepping((0.0, 1.0), "cn", dt=0.1))
    values, errors = tangents_and_errors(run, [([1.0], None)])
    np.testing.assert_allclose(errors[0], 0.0)
    np.testing.assert_allclose(errors[1:], -0.5 * np.diff(values, 2, axis=0), rtol=1e-12)


@pytest.mark.parametrize("method", ["rk5dp", "esdirk4", "cn"])
def test_events_have_no_error_of_their_own(method):
    refill = ds.Event(lambda t, u, p: u[0] - 0.5, lambda t, u, p: u + 0.3, direction=-1, name="a")
    tank = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["rate"], events=[refill])
    run = ds.solve(tank, [1.0], [1.0], ds.Stepping((0.0, 1.0), method, rtol=1e-5))
    _, errors = tangents_and_errors(run, [(None, [1.0])])
    assert len(run.crossings) == 1
    assert abs(errors[run.crossings[0].step]).max() == 0.0
    assert 0.0 < abs(errors).max() < 1e-3
