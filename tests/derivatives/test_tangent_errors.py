"""Error estimates of tangents: linear problems in closed form, and the same by every way."""

from dataclasses import replace

import numpy as np
import pytest

import daeosens as ds
from daeosens.derivatives.tangent_errors import DENSE, tangents_and_errors
from daeosens.methods import METHODS, find_method
from daeosens.problem import imex

EMBEDDED = [
    name
    for name, entry in METHODS.items()
    if entry.adaptive and entry.tableau is not None and not entry.in_blocks
]
"""Those that step u' = f: IMEX methods want two parts."""


MANY = DENSE // 2 + 1


def pendulums(count, *, compiled=False):
    """Return equal pendulums; of ``MANY`` steps have matrices that are not dense."""

    def rhs(t, u, p):
        angles, rates = u[:count], u[count:]
        return np.concatenate([rates, -p[0] * np.sin(angles) + p[1] * np.cos(t)])

    make = ds.trace if compiled else ds.ODE
    return make(rhs, 2 * count, ["stiffness", "force"])


DIRECTIONS = [([1.0, 0.0], None), (None, [1.0, 0.0]), ([0.3, -0.2], [0.5, 0.7])]


@pytest.mark.parametrize("method", EMBEDDED)
def test_every_way_gives_the_same(method):
    stepping = ds.Stepping((0.0, 2.0), method, dt=0.4)  # the same ones for all
    numbers = []
    for count, compiled in ((1, True), (1, False), (MANY, False)):
        model, start = pendulums(count, compiled=compiled), np.repeat([1.0, 0.2], count)
        run = ds.solve(model, start, [2.0, 0.4], stepping, (), "stages")
        along = [(None if du is None else np.repeat(du, count), dp) for du, dp in DIRECTIONS]
        # of many ones by the maps of single steps; the first of them
        numbers.append([part[..., ::count] for part in tangents_and_errors(run, along)])
    largest = abs(numbers[0][1]).max()
    for values, errors in numbers[1:]:
        np.testing.assert_allclose(values, numbers[0][0], rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(errors, numbers[0][1], rtol=0.0, atol=1e-5 * largest + 1e-14)


@pytest.mark.parametrize("arrays", [True, False])
@pytest.mark.parametrize(
    ("method", "mass"),
    [(method, 1.0) for method in EMBEDDED]
    + [(method, 3.0) for method in EMBEDDED if not find_method(method).explicit],
)
def test_of_a_linear_equation_the_estimate_is_the_difference_of_both_stability_functions(
    method, arrays, mass
):
    n = 1 if arrays else DENSE + 1  # more go by the maps of single steps
    matrix = None if mass == 1.0 else mass * np.eye(n)
    decay = ds.ODE(lambda t, u, p: -p[0] * u, n, ["rate"], mass=matrix)
    stepping = ds.Stepping((0.0, 1.0), method, dt=0.3, t_eval=[0.2, 0.5])
    run = ds.solve(decay, np.ones(n), [2.0], stepping, (), "stages")
    values, errors = tangents_and_errors(run, [(np.ones(n), None)])
    scheme = find_method(method).tableau
    a, b, b_embedded = scheme.a, scheme.b, scheme.b_embedded
    for h, before, error in zip(run.step_sizes, values[:-1, 0, 0], errors[:, 0, 0], strict=True):
        z = -2.0 * h / mass
        rates = np.linalg.solve(np.eye(len(b)) - z * a, np.ones(len(b)))
        expected = z * (b - b_embedded) @ rates * before
        assert error == pytest.approx(expected, rel=1e-5, abs=1e-15)


IMEX = [name for name, entry in METHODS.items() if entry.adaptive and entry.in_blocks]
TWO_PARTS = imex(
    implicit=ds.ODE(lambda t, u, p: -p[0] * u, 1, ["decay", "growth"]),
    explicit=ds.ODE(lambda t, u, p: p[1] * u, 1, ["decay", "growth"]),
)


def stability(scheme, weights, z):
    """z_f w_f.U + z_g w_g.U, with U the stages of u' = f + g from u = 1."""
    rates = np.linalg.solve(
        np.eye(len(scheme.c)) - z[0] * scheme.a - z[1] * scheme.a_explicit, np.ones(len(scheme.c))
    )
    return sum(part * weight @ rates for part, weight in zip(z, weights, strict=True))


@pytest.mark.parametrize("method", IMEX)
def test_of_two_linear_parts_it_is_the_difference_of_both_stability_functions(method):
    scheme = find_method(method).tableau
    weights = [b - scheme.b_embedded for b in scheme.weights]
    run = ds.solve(TWO_PARTS, [1.0], [5.0, 0.7], ds.Stepping((0.0, 1.0), method, dt=0.3))
    values, errors = tangents_and_errors(run, [([1.0], None)])
    for n, h in enumerate(run.step_sizes):
        z = -5.0 * h, 0.7 * h
        expected = stability(scheme, weights, z) * values[n, 0, 0]
        assert errors[n, 0, 0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("method", [*IMEX, "esdirk4"])
def test_what_it_tells_of_a_fast_mode_is_the_pair_of_the_method(method):
    """Published pairs estimate a fifth of the error at h decay = 3, that of the state as well."""
    scheme = find_method(method).tableau
    if scheme.a_explicit is None:
        scheme = replace(scheme, a_explicit=scheme.a, b_explicit=scheme.b)
    z = -3.0, 0.02
    told = stability(scheme, [b - scheme.b_embedded for b in scheme.weights], z)
    error = 1.0 + stability(scheme, scheme.weights, z) - np.exp(sum(z))
    assert 0.1 < abs(told / error) < 0.3


@pytest.mark.parametrize("method", IMEX)
def test_steps_for_sensitivities_of_two_parts_keep_the_tolerance(method):
    def implicit(t, u, p):
        return np.array([-p[0] * u[0] + u[1], -p[0] * u[1] ** 3])

    def explicit(t, u, p):
        return np.array([p[1] * np.sin(u[1]) * u[0], np.cos(t) * u[0]])

    parts = [ds.ODE(f, 2, ["fast", "slow"]) for f in (implicit, explicit)]
    problem, rtol, p = imex(implicit=parts[0], explicit=parts[1]), 1e-5, np.array([20.0, 0.7])
    steppings = [
        ds.Stepping((0.0, 3.0), method, rtol=rtol, atol=rtol, control="sensitivities"),
        ds.Stepping((0.0, 3.0), "rk8vr", rtol=1e-11, atol=1e-12),
    ]
    runs = [ds.solve(problem, [1.0, 0.5], p, stepping) for stepping in steppings]
    for du, dp in [([1.0, 0.0], None), (None, [1.0, 0.0]), (None, [0.0, 1.0])]:
        ours, reference = (ds.tangent(run, du, dp).u[-1] for run in runs)
        np.testing.assert_allclose(ours, reference, rtol=0.0, atol=rtol)


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
