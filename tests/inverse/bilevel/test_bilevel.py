"""Bi-level estimation: truth found, derivatives exact, every refusal by name."""

from dataclasses import replace

import numpy as np
import pytest
from bilevel_data import NAMES, TIMES, TRUTH, measured, predators, unknowns
from scipy.integrate import solve_ivp
from scipy.interpolate import make_smoothing_spline
from scipy.stats import truncnorm

import daeosens as ds
from daeosens import Experiment, InputError, Parameter, Parameters, UnsupportedError
from daeosens.inverse import Normal, bilevel
from daeosens.inverse.bilevel.formulation import Formulation, bilevel_functional
from daeosens.inverse.bilevel.functional import pulled, ran_away
from daeosens.inverse.bilevel.interpolants import (
    expected_above_zero,
    interpolant,
    smoothing_spline,
)
from daeosens.inverse.bilevel.samples import curve, positive_columns
from daeosens.inverse.likelihood.experiments import tables
from daeosens.petsc import gather


@pytest.fixture(scope="module")
def model():
    return ds.trace(predators, ["prey", "predator"], NAMES)


def test_what_is_linear_is_read_off_the_equations_and_truth_is_found(model):
    result = bilevel(model, measured(model, TIMES), unknowns())
    assert result.linear == ("grow", "eat", "die", "feed")
    assert result.nonlinear == ("half",)
    assert [result.estimate[name] for name in NAMES] == pytest.approx(TRUTH, rel=2e-4)


@pytest.mark.parametrize("kind", ["hermite", "pchip", "akima"])
def test_every_interpolant_converges_with_its_order(model, kind):
    errors = []
    for count in (151, 301):
        data = measured(model, np.linspace(0.0, 15.0, count))
        result = bilevel(model, data, unknowns(), interpolant=kind)
        errors.append(np.abs(np.array([result.estimate[n] for n in NAMES]) - TRUTH).max())
    assert errors[1] < errors[0] / 3.5 < 0.01


def test_what_each_experiment_knows_needs_no_entry_of_all(model):
    feeds = (0.05, 0.3)
    experiments = [
        Experiment(measured(model, TIMES, p=[*TRUTH[:4], feed]), parameters={"feed": feed})
        for feed in feeds
    ]
    entries = {name: entry for name, entry in unknowns().items() if name != "feed"}
    result = bilevel(model, experiments, entries)
    assert [result.estimate[name] for name in NAMES[:4]] == pytest.approx(TRUTH[:4], rel=1e-2)
    assert [rows.p[4] for rows in result.functional.experiments] == list(feeds)
    stepping = ds.Stepping((0.0, 15.0), "rk6vr", rtol=1e-7)
    runs = [replace(experiment, stepping=stepping) for experiment in experiments]
    start = Parameters(entries, [1.0, 0.5])
    fitted = ds.fit(model, runs, start, noise=ds.inverse.Normal(1e-3), start="bilevel")
    assert [fitted.estimate[name] for name in NAMES[:4]] == pytest.approx(TRUTH[:4], rel=1e-5)
    with pytest.raises(InputError, match='parameter "feed" has no value'):
        bilevel(model, [experiments[0], Experiment(experiments[1].data)], entries)


def test_missing_replicated_and_unequal_samples_of_several_experiments(model):
    times = np.sort(np.random.default_rng(3).uniform(0.0, 10.0, 160))
    first, second = measured(model, times), measured(model, TIMES[:90], (0.4, 1.2))
    first["prey"][::5] = np.nan
    first["predator"][3::7] = np.nan
    doubled = {name: np.repeat(values, 2) for name, values in second.items()}
    richer = TRUTH * [1, 1, 1, 1, 3]
    third = measured(model, TIMES, (0.2, 0.2), richer)
    experiments = [
        Experiment(first, parameters={"feed": 0.05}),
        Experiment(doubled, parameters={"feed": 0.05}),
        Experiment(third, parameters={"feed": Parameter(1.0)}, name="fed"),
    ]
    result = bilevel(model, experiments, unknowns())
    assert result.linear == ("grow", "eat", "die", "feed (fed)")
    truth = [*TRUTH[:2], TRUTH[3], 0.15]
    assert [result.estimate[name] for name in result.linear] == pytest.approx(truth, rel=5e-3)
    assert result.estimate["half"] == pytest.approx(0.6, rel=5e-3)


# ---- derivatives ---------------------------------------------------------------------------------


def functionals(model):
    table = measured(model, TIMES[:60], noise=0.05)
    table["prey"][7] = np.nan
    data = [Experiment(table)]
    plain = bilevel_functional(model, data, Parameters(unknowns(), None))[0]
    stiff = bilevel_functional(model, data, Parameters(unknowns(), None), Formulation(ridge=0.1))[0]
    weak = bilevel_functional(model, data, Parameters(unknowns(), None), Formulation(form="weak"))[
        0
    ]
    two = {"half": Parameter(1.0, scale="log"), "eat": Parameter(2.0), "grow": Parameter(1.0)}
    several = bilevel_functional(
        model,
        data,
        Parameters(unknowns(**two), None),
        Formulation(linear=["grow", "die", "feed"], ridge=1e-3),
    )[0]
    held = unknowns(feed=Parameter(0.1, upper=0.3), die=Parameter(0.7, lower=0.5))
    bounded = bilevel_functional(
        model,
        data,
        Parameters(held, None),
        Formulation(equalities=[({"grow": 1.0, "eat": -1.0}, -0.3)]),
    )[0]
    assert bounded.at(bounded.start()).inner.active == (0, 1)
    return {
        "plain": plain,
        "ridge": stiff,
        "two": several,
        "weak": weak,
        "constrained": bounded,
        "delayed": delayed_functional(),
    }


def late(t, u, z, p):
    return np.array(
        [p.a * u[0] - p.b * z[0, 0] * z[1, 0] / (p.K + z[0, 0]), p.a * u[0] - p.c * u[1]]
    )


def earlier(t, p):
    return np.array([1.0 + 0.5 * p.swing * np.sin(p.swing * t), 2.5])


def delayed_functional():
    t = np.linspace(0.0, 6.0, 61)
    data = {"t": t, "x": 1.0 + 0.5 * np.sin(t), "y": 1.5 + np.cos(1.3 * t)}
    rhs = ds.trace(
        late,
        ["x", "y"],
        ["a", "b", "c", "K", "tau", "swing"],
        delays=["tau", lambda p: 1.2 + p.tau],
        history=earlier,
    )
    start = {"tau": Parameter(0.7, scale="log"), "K": Parameter(0.8), "swing": Parameter(0.9)}
    start |= {name: Parameter(1.0) for name in "abc"}
    functional = bilevel_functional(rhs, [Experiment(data)], Parameters(start, None))[0]
    assert [*functional.others] == ["K", "tau", "swing"]
    return functional


@pytest.mark.parametrize("kind", ["plain", "ridge", "two", "weak", "constrained", "delayed"])
def test_gradient_and_hessian_of_the_outer_problem_are_exact(model, kind):
    functional = functionals(model)[kind]
    x = functional.start()
    assert min(ds.taylor(functional, x)) > 1.9
    assert min(ds.taylor(functional, x, hessian=True)) > 2.9
    matrix = functional.hessian(x)
    assert matrix == pytest.approx(matrix.T, rel=1e-10, abs=1e-12 * np.abs(matrix).max())


def test_derivatives_with_a_pull_to_the_start_are_exact(model):
    functional = functionals(model)["two"]
    x = gather(functional.start())
    held = pulled(functional, x, 1.0)
    moved = x + 0.3
    point = functional.vector(moved)
    residual = functional.at(x).residual
    level = float(residual @ residual) / (len(residual) - 5)
    extra = 0.5 * level * ((0.3 / np.log(10.0)) ** 2 + (0.3 / 2.0) ** 2)
    assert held.value(point) - functional.value(point) == pytest.approx(extra, rel=1e-9)
    assert min(ds.taylor(held, point)) > 1.9
    assert min(ds.taylor(held, point, hessian=True)) > 2.9


def test_quadrature_and_its_transpose_are_dual(model):
    rows = functionals(model)["plain"].experiments[0]
    rng = np.random.default_rng(1)
    rate, weights = rng.standard_normal((2, len(rows.samples.nodes))), rng.standard_normal(119)
    there = float(weights @ rows.samples.rows_of(rate))
    assert there == pytest.approx(np.sum(rows.samples.node_weights_of(weights) * rate), rel=1e-12)


def test_delays_are_found_from_far_away():
    truth = {"a": 0.8, "b": 0.5, "tau": 1.3}
    t = np.linspace(0.0, 12.0, 121)
    # by steps from one breaking point to the next, at order 8 with dense output
    pieces, start = [lambda s: np.array([1.0])], [1.0]
    times, values = [], []
    for k in range(10):
        before = pieces[-1]
        slope = lambda s, u, before=before: truth["a"] - truth["b"] * u * before(s - 1.3)  # noqa: E731
        run = solve_ivp(
            slope,
            (1.3 * k, 1.3 * (k + 1)),
            start,
            "DOP853",
            dense_output=True,
            rtol=1e-12,
            atol=1e-12,
        )
        pieces.append(run.sol)
        inside = t[(t >= 1.3 * k) & (t < 1.3 * (k + 1))]
        times += list(inside)
        values += list(run.sol(inside)[0])
        start = run.y[:, -1]
    late = lambda t, u, z, p: p.a - p.b * u * z[0]  # noqa: E731
    rhs = ds.trace(late, 1, [*truth], delays=["tau"], history=[1.0])
    start = {
        "a": Parameter(1.0),
        "b": Parameter(1.0),
        "tau": Parameter(0.4, lower=0.1, upper=5.0, scale="log"),
    }
    result = bilevel(rhs, {"t": times, "u": values}, start, starts=4)
    for name, value in truth.items():
        assert result.estimate[name] == pytest.approx(value, rel=5e-3)


def test_interpolants_give_derivatives_and_average_replicates():
    t = np.repeat(np.linspace(0.0, 2.0, 41), 2)
    noise = np.tile([0.1, -0.1], 41)
    for kind in ("cubic", "hermite", "pchip", "akima", "smooth", "gaussian"):
        psi = interpolant(t, np.sin(t) + noise, kind)
        assert psi(np.array([1.01]), 1) == pytest.approx(np.cos(1.01), abs=5e-3)


def test_smoothing_splines_minimise_generalised_cross_validation_in_any_unit_of_time():
    """The smoother as a dense matrix, by SciPy's spline of each unit vector."""
    rng = np.random.default_rng(1)
    t = np.sort(rng.uniform(0.0, 5.0, 25))
    noisy, counts = np.sin(t) + 0.1 * rng.standard_normal(25), rng.integers(1, 4, 25)

    def score(curve, smoother):
        free = 25.0 - np.trace(np.array([smoother(unit)(t) for unit in np.eye(25)]).T)
        return np.sum(counts * (noisy - curve(t)) ** 2) / free**2

    scores, curves = [], []
    for smoothing in np.geomspace(1e-5, 1e2, 141):

        def smoother(values, smoothing=smoothing):
            return make_smoothing_spline(t, values, w=counts.astype(float), lam=smoothing)

        curves.append(smoother(noisy))
        scores.append(score(curves[-1], smoother))
    # the lowest minimum is near the measurements, where the criterion is misled; it is no better
    assert np.argmin(scores) < 30
    best, fine = 40 + int(np.argmin(scores[40:])), np.linspace(t[0], t[-1], 300)
    assert 60 < best < 120
    mine = smoothing_spline(t, noisy, counts)
    neighbours = [curves[k](fine) for k in (best - 1, best + 1)]
    apart = np.abs(neighbours[1] - neighbours[0]).max()
    assert max(np.abs(mine(fine) - near).max() for near in neighbours) < apart
    for unit in (1e-9, 1e6):  # of the first SciPy's own search fails
        scaled = smoothing_spline(unit * t, noisy, counts)
        assert scaled(unit * fine) == pytest.approx(mine(fine), abs=1e-5)


def test_the_mean_of_a_gaussian_process_is_that_of_the_conditional_distribution():
    """With the covariance and the noise that were used, by a dense solve; derivatives too."""
    rng = np.random.default_rng(3)
    t = np.sort(rng.uniform(0.0, 8.0, 60))
    noisy = 2.0 + np.sin(t) + 0.1 * rng.standard_normal(60)
    psi = interpolant(t, noisy, "gaussian")
    fine = np.linspace(0.5, 7.5, 701)
    assert np.abs(psi(fine) - 2.0 - np.sin(fine)).max() < 0.12
    assert np.abs(psi(fine, 1) - np.cos(fine)).max() < 0.3
    # the noise is found: what is left at the data is as large as it was
    assert np.std(noisy - psi(t)) == pytest.approx(0.1, rel=0.25)
    step = 1e-4
    for nu in (0, 1):
        slope = (psi(fine + step, nu) - psi(fine - step, nu)) / (2.0 * step)
        np.testing.assert_allclose(slope, psi(fine, nu + 1), rtol=0.0, atol=2e-6)
    # far from all data nothing is known but the mean
    assert psi(np.array([1e3]))[0] == pytest.approx(2.0, abs=0.6)
    # of exact data it goes through them
    exact = interpolant(t, np.sin(t), "gaussian")
    assert np.abs(exact(t) - np.sin(t)).max() < 1e-5
    # measurements that are repeated weigh as they would one by one
    twice = interpolant(
        np.repeat(t, 2), np.repeat(noisy, 2) + np.tile([1e-9, -1e-9], 60), "gaussian"
    )
    once = interpolant(t, noisy, "gaussian")
    assert np.abs(twice(fine) - once(fine)).max() < 0.1


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_gaussian_process_is_as_good_a_curve_for_estimates(model, noise):
    data = measured(model, TIMES, noise=noise)
    result = bilevel(model, data, unknowns(), interpolant="gaussian")
    allowed = 0.05 if noise else 1e-3
    assert [result.estimate[name] for name in NAMES] == pytest.approx(TRUTH, rel=allowed)


def test_integrals_that_begin_anew_have_a_state_in_each_block(model):
    data = measured(model, TIMES)
    whole, blocks = (
        bilevel_functional(
            model, [Experiment(data)], Parameters(unknowns(), None), Formulation(block=block)
        )[0]
        for block in (0, 15)
    )
    assert whole.experiments[0].samples.constants.shape == (302, 2)
    assert blocks.experiments[0].samples.constants.shape == (302, 20)
    # what jumps between two blocks is no residual
    unit = blocks.experiments[0].samples.residuals_of(
        np.concatenate([np.arange(151) >= 75, np.zeros(151)]).astype(float)
    )
    assert np.abs(unit).max() < 1e-14
    result = bilevel(model, data, unknowns(), block=15)
    assert [result.estimate[name] for name in NAMES] == pytest.approx(TRUTH, rel=5e-4)


def test_curves_of_what_is_not_negative_are_not_negative_either():
    t = np.linspace(0.0, 10.0, 101)
    spikes = 1e-4 + np.exp(-100.0 * (t - 5.0) ** 2)
    assert interpolant(t, spikes, "cubic")(np.linspace(0, 10, 1001)).min() < 0.0
    fine = np.linspace(0.0, 10.0, 1001)
    psi = curve(t, spikes, "cubic", positive=True)
    assert psi(fine).min() == pytest.approx(1e-4)
    assert np.abs(psi(t) - spikes).max() < 1e-12
    noisy = spikes + 0.02 * np.random.default_rng(0).standard_normal(101)
    assert noisy.min() < 0.0 < curve(t, noisy, "smooth", positive=True)(fine).min()
    assert curve(t, np.sin(t), "cubic", positive=False)(fine).min() < -0.99


def test_what_is_not_negative_is_told_by_all_experiments(model):
    rng = np.random.default_rng(0)
    t = np.linspace(0.0, 10.0, 101)
    large, small = np.exp(-0.3 * t), 1e-3 * np.exp(-0.3 * t)
    noisy = [x + 0.02 * rng.standard_normal(101) for x in (large, small)]
    listed = [Experiment({"time": t, "prey": x, "predator": large}) for x in noisy]
    both, _ = tables(listed, None)
    assert positive_columns(both).tolist() == [True, True]
    # alone, what is smaller than its noise might have any sign
    assert positive_columns(both[1:]).tolist() == [False, True]
    decay = ds.trace(lambda t, u, p: -p.rate * u**p.order, 1, ["rate", "order"])
    data = [Experiment({"time": t, "u": x}) for x in noisy]
    # a root of what was measured below zero
    result = bilevel(decay, data, {"rate": Parameter(1.0), "order": Parameter(1.3, scale="log")})
    assert np.isfinite(result.value)


def test_a_curve_is_what_is_expected_of_something_positive():
    t = np.linspace(-0.4, 0.4, 81)
    psi = expected_above_zero(interpolant(t, t**3 - 0.1 * t, "cubic"), 0.02)
    inside = np.array([-0.35, -0.1, 0.0, 0.2, 0.33])
    mean = inside**3 - 0.1 * inside
    assert psi(inside) == pytest.approx(truncnorm.mean(-mean / 0.02, np.inf, mean, 0.02), rel=1e-6)
    for nu in (0, 1):
        for eps in (1e-4, 5e-5):
            slope = (psi(inside + eps, nu) - psi(inside - eps, nu)) / (2.0 * eps)
            assert slope == pytest.approx(psi(inside, nu + 1), rel=1e-4, abs=1e-6)
    assert psi(np.array([-0.4]))[0] > 0.0


def test_a_parameter_that_would_run_away_stays_near_its_start():
    """Concentrations far below the Michaelis constant, with noise: only v / K is known."""
    model = ds.trace(lambda t, u, p: -p.v * u / (p.K + u), 1, ["v", "K"])
    t = np.linspace(0.0, 3.0, 31)
    data = {"t": t, "u": np.exp(-t) + 0.03 * np.random.default_rng(0).standard_normal(31)}
    start = {"v": Parameter(1.0), "K": Parameter(2.0, scale="log")}
    result = bilevel(model, data, start, starts=3)
    assert not ran_away(result.functional, result.x, 1.0)
    assert 2e-1 < result.estimate["K"] < 2e3
    assert result.estimate["v"] / result.estimate["K"] == pytest.approx(1.0, rel=0.1)


def test_a_parameter_that_the_data_tell_is_found_however_far_from_its_start():
    model = ds.trace(lambda t, u, p: -p.v * u / (p.K + u), 1, ["v", "K"])
    t = np.linspace(0.0, 6.0, 61)
    stepping = ds.Stepping((0.0, 6.0), "rk6vr", rtol=1e-9)
    run = ds.solve(model, [10.0], [3.0, 4.0], stepping, t)
    data = {"t": t, "u": run.at(t)[:, 0] + 0.1 * np.random.default_rng(0).standard_normal(61)}
    near, far = (
        bilevel(model, data, {"v": Parameter(1.0), "K": Parameter(K, scale="log")}).estimate["K"]
        for K in (4.0, 1e-3)
    )
    assert far == pytest.approx(near, rel=1e-4)


def test_a_ridge_is_beside_columns_that_cancel():
    """Mackey and Glass: production and loss are each far larger than their sum."""

    def mackey_glass(t, u, z, p):
        return p.beta * z[0] / (1.0 + z[0] ** p.n) - p.gamma * u

    truth = {"beta": 2.0, "gamma": 1.0, "n": 9.65, "tau": 2.0}
    model = ds.trace(mackey_glass, 1, [*truth], delays="tau", history=lambda t, p: [0.5])
    t = np.linspace(0.0, 30.0, 151)
    run = ds.solve(model, [0.5], truth, ds.Stepping((0.0, 30.0), "rk5ts", rtol=1e-7), t)
    start = {
        name: Parameter(value, scale="log" if name in ("n", "tau") else "linear")
        for name, value in truth.items()
    }
    for ridge, least, most in ((1e-6, 0.97, 0.995), (0.05, 0.0, 0.1)):
        result = bilevel(model, {"t": t, "u": run.at(t)[:, 0]}, start, ridge=ridge)
        functional = result.functional
        assert result.value < functional.value(functional.start())  # that of the truth
        for name in ("beta", "gamma"):
            assert least < result.estimate[name] / truth[name] < most


# ---- refusals ------------------------------------------------------------------------------------


def test_a_combination_that_the_data_do_not_determine_is_named():
    model = ds.trace(lambda t, u, p: -(p.a + 2.0 * p.b) * u + p.c, 1, ["a", "b", "c"])
    t = np.linspace(0.0, 1.0, 21)
    data, start = {"t": t, "u": np.exp(-t)}, {name: Parameter(1.0) for name in "abc"}
    with pytest.raises(InputError, match=r"do not determine 0\.71 . - 0\.71 ."):
        bilevel(model, data, start)
    assert bilevel(model, data, start, ridge=1e-8).estimate["c"] == pytest.approx(0.0, abs=1e-5)
    with pytest.raises(InputError, match=r"do not determine (a nor b|b nor a) \("):
        bilevel(model, {"t": t, "u": 0.0 * t}, {name: Parameter(1.0) for name in "abc"})
    growing = ds.trace(lambda t, u, p: p.a * u, 1, ["a", "b"])
    result = bilevel(growing, data, {name: Parameter(1.0) for name in "ab"})
    assert "not in the right-hand side, so as given: b" in repr(result)


def test_bounds_that_hold_by_themselves_are_told():
    straight = ds.trace(lambda t, u, p: np.array([p.a + p.b * t]), 1, ["a", "b"])
    t = np.linspace(0.0, 2.0, 21)
    start = {"a": Parameter(1.0, upper=5.0), "b": Parameter(1.0, lower=0.0)}
    result = bilevel(straight, {"t": t, "u": 3.0 * t}, start)
    assert result.active == result.degenerate == ("b >= 0",)
    assert "one-sided derivatives: b >= 0" in repr(result)
    result = bilevel(straight, {"t": t, "u": 3.0 * t - 0.1 * t**2}, start)
    assert result.active == ("b >= 0",)
    assert not result.degenerate


def test_what_cannot_be_done_is_refused_by_name(model):
    data, start = measured(model, TIMES[:40]), unknowns()
    with pytest.raises(InputError, match='not linear in "half", which was declared'):
        bilevel(model, data, start, linear=["half"])
    with pytest.raises(InputError, match='linear names "grwo"'):
        bilevel(model, data, start, linear=["grwo"])
    product = ds.trace(lambda t, u, p: p.a * p.b * u, 1, ["a", "b"])
    with pytest.raises(InputError, match='not linear in "a" and "b" together'):
        bilevel(
            product,
            {"t": [0, 1, 2], "u": [1, 2, 4]},
            {"a": Parameter(1.0), "b": Parameter(1.0)},
            linear=["a", "b"],
        )
    with pytest.raises(InputError, match="nothing was measured of unknown 1"):
        bilevel(model, {"time": TIMES, "prey": np.ones(151)}, start)
    with pytest.raises(InputError, match="Problem without a traced right-hand side"):
        bilevel(ds.ODE(predators, 2, NAMES), data, start)
    with pytest.raises(InputError, match="2 times at which all unknowns lie"):
        bilevel(model, {name: values[:2] for name, values in data.items()}, start)
    with pytest.raises(InputError, match="6 measurements for 5 parameters"):
        bilevel(model, {name: values[:3] for name, values in data.items()}, start)
    with pytest.raises(InputError, match="interpolant = 'linear'"):
        bilevel(model, data, start, interpolant="linear")
    with pytest.raises(InputError, match="block = 2"):
        bilevel(model, data, start, block=2)
    with pytest.raises(InputError, match=r"inequalities\[0\] has no weights"):
        bilevel(model, data, start, inequalities=[({}, 1.0)])
    with pytest.raises(InputError, match='names "half"') as caught:
        bilevel(model, data, start, inequalities=[({"half": 1.0}, 1.0)])
    assert "constraints=" in str(caught.value)
    with pytest.raises(InputError, match="form = 'strong'"):
        bilevel(model, data, start, form="strong")
    with pytest.raises(InputError, match='block = 5 with form="weak"'):
        bilevel(model, data, start, block=5, form="weak")
    with pytest.raises(InputError, match="4 test functions for 5 parameters"):
        bilevel(model, {name: values[:4] for name, values in data.items()}, start, form="weak")
    with pytest.raises(InputError, match="nodes = 9"):
        bilevel(model, data, start, nodes=9)
    few = {name: values[:4] for name, values in data.items()}
    with pytest.raises(InputError, match='column "prey" has measurements at 4 times'):
        bilevel(model, few, start, interpolant="smooth")
    with pytest.raises(InputError, match='parameter "feed" has no value'):
        bilevel(model, data, {name: Parameter(1.0) for name in NAMES[:4]})
    with pytest.raises(InputError, match="no parameter is free"):
        bilevel(model, data, dict.fromkeys(NAMES, 1.0))
    with pytest.raises(InputError, match="die <= 1; 1 die >= 2"):
        bilevel(
            model, data, unknowns(die=Parameter(1.0, upper=1.0)), inequalities=[({"die": 1.0}, 2.0)]
        )
    dose = [
        Experiment(
            data,
            ds.Stepping((0.0, 4.0), dt=0.1),
            doses={"time": [1.0], "amount": [1.0], "compartment": ["prey"]},
        )
    ]
    with pytest.raises(UnsupportedError, match=r"experiments\[0\] has doses"):
        bilevel(model, dose, start)
    with pytest.raises(InputError, match=r"experiments\[1\] is dict"):
        bilevel(model, [Experiment(data), data], start)


def test_models_with_events_and_mass_matrices_are_refused(model):
    event = ds.Event(lambda t, u, p: u[0] - 2.0, reset=lambda t, u, p: 0.5 * u)
    bouncing = ds.trace(predators, 2, NAMES, events=[event])
    data = measured(model, TIMES[:40])
    with pytest.raises(UnsupportedError, match="a model with events"):
        bilevel(bouncing, data, unknowns())
    heavy = ds.trace(predators, 2, NAMES, mass=np.diag([2.0, 1.0]))
    with pytest.raises(InputError, match="the model has a mass matrix"):
        bilevel(heavy, data, unknowns())


def test_delay_equations_that_bilevel_cannot_take_are_refused():
    late = lambda t, u, z, p: -p.a * z[0]  # noqa: E731
    rhs = ds.trace(late, 1, ["a", "tau"], delays="tau", history=[1.0])
    t = np.linspace(1.0, 3.0, 21)
    data = {"t": t, "u": np.exp(-t)}
    start = {"a": Parameter(1.0), "tau": Parameter(-0.5)}
    for free in (True, False):
        negative = start | {"tau": Parameter(-0.5, free=free)}
        with pytest.raises(InputError, match=r'at the start: delay "tau" = -0\.5'):
            bilevel(rhs, data, negative)
    with pytest.raises(InputError, match=r'delay "tau" begins at 2.5, but data end 2 after'):
        bilevel(rhs, data, start | {"tau": Parameter(2.5)})
    numpy_style = ds.DDE(late, 1, ["a", "tau"], delays="tau", history=[1.0])
    with pytest.raises(InputError, match="Problem without a traced right-hand side") as caught:
        bilevel(numpy_style, data, start)
    assert "delays=..., history=..." in str(caught.value)
    table = lambda t, p: np.array([np.interp(float(t), [0.0, 1.0], [1.0, 2.0])])  # noqa: E731
    looked_up = ds.trace(late, 1, ["a", "tau"], delays="tau", history=table)
    with pytest.raises(InputError, match="history"):
        bilevel(looked_up, data, start)
    with pytest.raises(InputError, match="model is function"):
        bilevel(late, data, start)


def test_history_need_not_be_defined_beyond_the_delays():
    late = lambda t, u, z, p: -p.a * z[0]  # noqa: E731
    past = lambda t, p: np.array([1.0 + np.log(1.5 + t)])  # noqa: E731
    model = ds.trace(late, 1, ["a", "tau"], delays="tau", history=past)
    t, stepping = np.linspace(0.0, 3.0, 61), ds.Stepping((0.0, 3.0), "rk5ts", rtol=1e-9)
    start = [1.0 + np.log(1.5)]
    data = {"t": t, "u": ds.solve(model, start, [0.8, 0.7], stepping, t).at(t)[:, 0]}
    result = bilevel(model, data, {"a": Parameter(1.0), "tau": Parameter(0.4)})
    assert [*result.estimate.values()] == pytest.approx([0.8, 0.7], rel=1e-3)
    undefined = pytest.raises(ds.SolveError, match="or at the history that delays reach")
    with undefined, np.errstate(all="ignore"):
        bilevel(model, data, {"a": Parameter(1.0), "tau": Parameter(2.5, free=False)})


def test_history_holds_until_the_run_begins():
    """The first measurement is later: what a delay reaches in between is no history."""
    late = lambda t, u, z, p: -p.a * z[0]  # noqa: E731
    model = ds.trace(late, 1, ["a", "tau"], delays="tau", history=[1.0])
    stepping = ds.Stepping((0.0, 4.0), "rk5ts", rtol=1e-9)
    t = np.linspace(0.5, 4.0, 70)  # none when the start comes back
    data = {"t": t, "u": ds.solve(model, [1.0], [1.0, 1.0], stepping, t).at(t)[:, 0]}
    start = {"a": Parameter(3.0), "tau": Parameter(0.6, scale="log")}
    result = bilevel(model, [Experiment(data, stepping)], start, interpolant="akima")
    assert [*result.estimate.values()] == pytest.approx([1.0, 1.0], rel=1e-5)
    fitted = ds.fit(
        model, data, Parameters(start, [1.0]), stepping, noise=Normal(1e-3), start="bilevel"
    )
    assert [*fitted.estimate.values()] == pytest.approx([1.0, 1.0], rel=1e-5)
    assert fitted.preparation.stages == ()


RATES = ("k1", "k2", "k3", "k4", "k5", "k6")
DELAYS = ("latency", "immunity")


def epidemic(t, x, z, p):
    infections = x[0] * z[0, 1]
    return np.array(
        [
            -p.k1 * infections + p.k2 * z[1, 1],
            p.k3 * infections - p.k4 * x[1],
            p.k5 * x[1] - p.k6 * z[1, 1],
        ]
    )


@pytest.mark.slow
def test_both_delays_of_an_epidemic_are_found_from_starts_anywhere():
    """Kermack and McKendrick: wide starts from which a single attempt runs away."""
    first, truth = np.array([5.0, 0.1, 1.0]), [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0, 10.0]
    names = [*RATES, *DELAYS]
    model = ds.trace(epidemic, 3, names, delays=DELAYS, history=first)
    t = np.linspace(0.4, 40.0, 100)
    stepping = ds.Stepping((0.0, 40.0), "rk5ts", rtol=1e-8)
    states = np.vstack([first, ds.solve(model, first, truth, stepping, t).at(t)])
    data = {"t": np.concatenate([[0.0], t]), **dict(zip("abc", states.T, strict=True))}
    start = {name: Parameter(1.0, scale="log") for name in RATES}
    start |= {"latency": Parameter(0.5, scale="log"), "immunity": Parameter(0.2, scale="log")}
    result = bilevel(model, data, start, starts=12)
    assert result.nonlinear == DELAYS
    assert [result.estimate[name] for name in names] == pytest.approx(truth, rel=5e-3)
