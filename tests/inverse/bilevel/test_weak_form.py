"""The weak form: what test functions are, truth found, noise, missing and repeated samples."""

import numpy as np
import pytest
from bilevel_data import NAMES, TIMES, TRUTH, measured, predators, unknowns
from scipy.integrate import quad

import daeosens as ds
from daeosens import Experiment, Parameter, Parameters
from daeosens.inverse import Discovery, bilevel, polynomials
from daeosens.inverse.bilevel.formulation import Formulation, bilevel_functional
from daeosens.inverse.bilevel.weak_form import radius, weak_operator


@pytest.fixture(scope="module")
def model():
    return ds.trace(predators, ["prey", "predator"], NAMES)


def test_residuals_are_integrals_of_test_functions_times_the_equation():
    t = np.linspace(0.0, 6.0, 121)
    x, rate = np.sin(t), lambda s: 0.7 * np.cos(s)  # of an equation that does not hold
    reach = radius(t, x)
    weights = weak_operator(t, x)
    centers = t[(t >= t[0] + reach) & (t <= t[-1] - reach)]
    assert len(weights) == len(centers) > 50

    def psi(s):
        return np.exp(9.0 - 9.0 / max(1.0 - s**2, 1e-300))

    rows = weights @ (0.7 * np.sin(t) - x)
    exact = [
        quad(lambda s, c=c: psi((s - c) / reach) * (rate(s) - np.cos(s)), c - reach, c + reach)[0]
        for c in centers
    ]
    # rows are of length one: all by the same factor
    assert rows / np.linalg.norm(rows) == pytest.approx(exact / np.linalg.norm(exact), abs=1e-9)


def test_constants_leave_whatever_the_times():
    t = np.sort(np.append(np.random.default_rng(0).uniform(0.0, 5.0, 60), [1.0, 1.0, 2.0]))
    weights = weak_operator(t, np.cos(t))
    assert np.abs(weights @ np.ones(63)).max() < 1e-14
    assert np.linalg.norm(weights, axis=1) == pytest.approx(np.ones(len(weights)))


def test_noise_makes_test_functions_no_wider_than_the_data_are_smooth():
    t = np.linspace(0.0, 20.0, 401)
    noise = 0.05 * np.random.default_rng(0).standard_normal(401)
    radii = [radius(t, np.sin(k * t) + noise) for k in (2.0, 4.0, 8.0)]
    assert radii[0] > 1.5 * radii[1] > 2.0 * radii[2] > 0.5


def test_truth_is_found_from_exact_data(model):
    result = bilevel(model, measured(model, TIMES), unknowns(), form="weak")
    assert [result.estimate[name] for name in NAMES] == pytest.approx(TRUTH, rel=2e-4)


def test_missing_and_repeated_samples_at_any_times(model):
    keep = np.sort(np.random.default_rng(1).choice(151, 120, replace=False))
    data = {name: values[keep] for name, values in measured(model, TIMES).items()}
    data = {name: np.append(values, values[50]) for name, values in data.items()}
    data["prey"][[3, 40, 41]] = np.nan
    result = bilevel(model, data, unknowns(), form="weak")
    assert [result.estimate[name] for name in NAMES] == pytest.approx(TRUTH, rel=2e-2)


def test_the_transpose_of_the_operator_is_dual(model):
    data = [Experiment(measured(model, TIMES[:60]))]
    entries = Parameters(unknowns(), None)
    functional = bilevel_functional(model, data, entries, Formulation(form="weak"))[0]
    samples = functional.experiments[0].samples
    rng = np.random.default_rng(0)
    rates = rng.standard_normal((2, len(samples.nodes)))
    residuals = rng.standard_normal(len(samples.residual_states))
    forward = residuals @ samples.residuals_of(samples.rows_of(rates))
    back = np.sum(rates * samples.node_weights_of(samples.rows_of_residuals(residuals)))
    assert forward == pytest.approx(back, rel=1e-12)


def test_fitzhugh_nagumo_with_noise_is_no_worse_than_by_integrals():
    def rhs(t, u, p):
        return np.array([p.c * (u[0] - u[0] ** 3 / 3.0 + u[1]), -(p.d * u[0] - p.a + p.b * u[1])])

    spikes = ds.trace(rhs, ["V", "R"], ["c", "d", "a", "b"])
    truth, t = np.array([3.0, 1.0 / 3.0, 0.2 / 3.0, 0.2 / 3.0]), np.linspace(0.0, 25.0, 251)
    stepping = ds.Stepping((0.0, 25.0), "rk6vr", rtol=1e-9)
    exact = ds.solve(spikes, [0.0, 0.1], truth, stepping, t).at(t)
    errors = {"integral": [], "weak": []}
    for seed in range(5):
        noise = np.random.default_rng(seed).standard_normal(exact.shape)
        noisy = exact + 0.05 * exact.std(axis=0) * noise
        data = {"t": t, "V": noisy[:, 0], "R": noisy[:, 1]}
        start = {name: Parameter(1.0) for name in "cdab"}
        for form, values in errors.items():
            result = bilevel(spikes, data, start, form=form, interpolant="smooth")
            values.append(np.linalg.norm([result.estimate[n] for n in "cdab"] - truth))
    assert np.median(errors["weak"]) < np.median(errors["integral"]) < 0.2


def test_discovery_takes_the_weak_form():
    t = np.linspace(0.0, 10.0, 201)
    data = {"t": t, "x": np.cos(2.0 * t), "y": -np.sin(2.0 * t)}
    library = polynomials(["x", "y"])
    for form in ("integral", "weak"):
        found = Discovery(library, threshold=0.01, form=form).fit(data)
        assert found.equations == ("x' = 2 y", "y' = -2 x")
