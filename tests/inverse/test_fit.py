"""``fit`` against linear regression: with log-normal noise a decay is a straight line."""

import math
import sys

import numpy as np
import pytest
from closed_forms import DECAY_STEPPING, decay, decay_control
from mpi4py import MPI
from scipy import optimize, stats

import daeosens as ds
from daeosens.inverse import fit, fit_conclusion, likelihood
from daeosens.inverse.fit_covariance import estimated_uncertainty
from daeosens.inverse.likelihood.measurements import measurements
from daeosens.inverse.likelihood.noise import LogNormal, Normal
from daeosens.inverse.likelihood.noise_levels import EstimatedNoise
from daeosens.io import open_results, read_table
from daeosens.petsc import gather, scatter

TIMES = np.array([0.1, 0.3, 0.5, 0.9, 1.2, 1.7, 2.0])
RATE, AMOUNT, SIGMA = 0.7, 3.0, 0.15
NOISE = SIGMA * np.random.default_rng(21).standard_normal(len(TIMES))
DATA = AMOUNT * np.exp(-RATE * TIMES + NOISE)
DESIGN = np.column_stack([-TIMES, np.ones_like(TIMES)])  # of (rate, log amount)
BEST, SQUARES = (np.asarray(part) for part in np.linalg.lstsq(DESIGN, np.log(DATA))[:2])
INVERSE = np.linalg.inv(DESIGN.T @ DESIGN)
N = len(TIMES)
TIGHT = {"gradient_tolerance": 1e-9}


def fitted(noise=None, control=None, **extra):
    return fit(
        decay(),
        DATA,
        decay_control() if control is None else control,
        DECAY_STEPPING,
        times=TIMES,
        noise=LogNormal() if noise is None else noise,
        **{**TIGHT, **extra},
    )


# ---- closed forms --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("hessian", ["exact", "gauss_newton"])
def test_an_estimated_noise_level_gives_the_textbook_regression(hessian):
    estimate = fitted(hessian=hessian)
    assert estimate.converged
    assert estimate.estimate["rate"] == pytest.approx(BEST[0], abs=1e-9)
    assert estimate.estimate["amount"] == pytest.approx(math.exp(BEST[1]), rel=1e-9)
    variance = SQUARES[0] / (N - 2)
    assert estimate.degrees_of_freedom == pytest.approx(N - 2)
    np.testing.assert_allclose(estimate.sigma, [math.sqrt(variance)], rtol=1e-9)
    np.testing.assert_allclose(estimate.covariance.scaled, variance * INVERSE, rtol=1e-7)
    reach = stats.t.ppf(0.975, N - 2) * np.sqrt(variance * np.diag(INVERSE))
    assert estimate.intervals()["rate"] == pytest.approx((BEST[0] - reach[0], BEST[0] + reach[0]))
    ends = np.exp([BEST[1] - reach[1], BEST[1] + reach[1]])
    assert estimate.intervals()["amount"] == pytest.approx(tuple(ends))
    assert estimate.correlation[0, 1] == pytest.approx(
        INVERSE[0, 1] / math.sqrt(INVERSE[0, 0] * INVERSE[1, 1])
    )
    residuals = (np.log(DATA) - DESIGN @ BEST) / math.sqrt(variance)
    np.testing.assert_allclose(estimate.residuals[:, 0], residuals, rtol=1e-7)
    assert math.isnan(estimate.p_value)
    assert estimate.objective == pytest.approx(N * math.log(math.sqrt(SQUARES[0] / N)) + N / 2)


@pytest.mark.slow
@pytest.mark.parametrize("hessian", ["exact", "gauss_newton"])
@pytest.mark.parametrize("noise", [LogNormal(), LogNormal(SIGMA)])
def test_newton_methods_find_the_same(noise, hessian):
    estimate = fitted(noise, method="bnls", hessian=hessian, starts=1)
    np.testing.assert_allclose(estimate.covariance.x, BEST, atol=1e-8)
    assert estimate.result.iterations <= 7


@pytest.mark.slow
def test_prediction_bands_are_the_textbook_ones():
    estimate = fitted()
    times = np.array([0.0, 1.0, 4.0])  # beyond the data too
    bands = estimate.prediction(times)
    rows = np.column_stack([-times, np.ones(3)])
    variance = SQUARES[0] / (N - 2)
    error = np.sqrt(variance * np.einsum("ki,ij,kj->k", rows, INVERSE, rows))
    quantile = stats.t.ppf(0.975, N - 2)
    np.testing.assert_allclose(bands.value[:, 0], np.exp(rows @ BEST), rtol=1e-8)
    np.testing.assert_allclose(
        bands.confidence[1][:, 0], np.exp(rows @ BEST + quantile * error), rtol=1e-7
    )
    np.testing.assert_allclose(
        bands.prediction[0][:, 0],
        np.exp(rows @ BEST - quantile * np.sqrt(error**2 + variance)),
        rtol=1e-7,
    )


@pytest.mark.slow
def test_profiles_over_the_noise_level_are_students_intervals():
    estimate = fitted()
    profiles = estimate.profile(tolerance=1e-5)
    for name in ("rate", "amount"):
        assert profiles[name].interval == pytest.approx(estimate.intervals()[name], rel=1e-4)
        assert not profiles[name].quadratic_is_poor


@pytest.mark.slow
def test_a_given_noise_level_gives_normal_intervals_and_a_p_value():
    estimate = fitted(LogNormal(SIGMA))
    np.testing.assert_allclose(estimate.covariance.scaled, SIGMA**2 * INVERSE, rtol=1e-7)
    assert estimate.covariance.degrees_of_freedom == math.inf
    chi_square = SQUARES[0] / SIGMA**2
    assert estimate.chi_square == pytest.approx(chi_square)
    assert estimate.objective == pytest.approx(0.5 * chi_square)
    assert estimate.p_value == pytest.approx(stats.chi2.sf(chi_square, N - 2))
    assert f"chi-square {chi_square:.4g} for 5 degrees of freedom" in repr(estimate)


@pytest.mark.slow
def test_levels_that_differ_weigh_the_data():
    levels = SIGMA * (1.0 + np.arange(N))[:, None]
    estimate = fitted(LogNormal(levels))
    weighted = DESIGN / levels
    covariance = np.linalg.inv(weighted.T @ weighted)
    np.testing.assert_allclose(estimate.covariance.scaled, covariance, rtol=1e-7)
    with pytest.raises(ds.InputError, match="the noise level differs between times"):
        estimate.prediction([1.0])
    assert estimate.prediction([1.0], noise=0.1).noise.tolist() == [[0.1]]


@pytest.mark.slow
def test_priors_enter_estimate_covariance_and_effective_parameters():
    prior = ds.Prior([0.9], 0.05, names=["rate"])
    estimate = fitted(LogNormal(SIGMA), priors=[prior])
    weight = np.diag([1 / 0.05**2, 0.0])
    covariance = np.linalg.inv(DESIGN.T @ DESIGN / SIGMA**2 + weight)
    best = covariance @ (DESIGN.T @ np.log(DATA) / SIGMA**2 + weight @ [0.9, 0.0])
    np.testing.assert_allclose(estimate.covariance.x, best, rtol=1e-7)
    np.testing.assert_allclose(estimate.covariance.scaled, covariance, rtol=1e-7)
    effective = np.trace(covariance @ DESIGN.T @ DESIGN) / SIGMA**2
    assert 1 < effective < 2
    assert estimate.degrees_of_freedom == pytest.approx(N - effective)


@pytest.mark.slow
def test_priors_and_an_estimated_level_go_together():
    priors = [
        ds.Prior([0.9], 0.05, names=["rate"]),
        ds.Prior([1.0], 2.0, names=["amount"], scale="log"),
    ]
    estimate = fitted(priors=priors)

    def likelihood(z):
        rest = np.log(DATA) - DESIGN @ z[:2]
        penalty = ((z[0] - 0.9) / 0.05) ** 2 + ((z[1] - 1.0) / 2.0) ** 2
        return N * z[2] + 0.5 * (rest @ rest) * math.exp(-2 * z[2]) + 0.5 * penalty

    joint = optimize.minimize(likelihood, [0.7, 1.0, -2.0], tol=1e-12)
    np.testing.assert_allclose(estimate.covariance.x, joint.x[:2], atol=1e-5)
    assert estimate.objective == pytest.approx(joint.fun, abs=1e-8)
    factor = N / estimate.degrees_of_freedom
    assert estimate.sigma[0] == pytest.approx(math.exp(joint.x[2]) * math.sqrt(factor), rel=1e-5)
    weight = np.diag([1 / 0.05**2, 1 / 4.0])
    approximate = np.linalg.inv(DESIGN.T @ DESIGN / estimate.sigma[0] ** 2 + weight)
    np.testing.assert_allclose(
        np.sqrt(np.diag(estimate.covariance.scaled)), np.sqrt(np.diag(approximate)), rtol=0.2
    )


# ---- two columns with levels of their own --------------------------------------------------------


def two_columns():
    rng = np.random.default_rng(4)
    first = AMOUNT * np.exp(-RATE * TIMES) + 0.02 * rng.standard_normal(N)
    second = 100.0 * AMOUNT * np.exp(-RATE * TIMES) + 10.0 * rng.standard_normal(N)
    return {"time": TIMES, "first": first, "second": second}


def both(t, u, p):
    return np.array([u[0], 100.0 * u[0]])


@pytest.mark.slow
@pytest.mark.parametrize("prior", [None, (-3.0, 0.5)])
def test_each_column_has_its_own_level(prior):
    data = two_columns()
    fitted = fit(
        decay(),
        data,
        decay_control(),
        DECAY_STEPPING,
        observe=both,
        noise=Normal(each_column=True, prior=prior),
        **TIGHT,
    )

    def likelihood(z):
        curve = math.exp(z[1]) * np.exp(-z[0] * TIMES)
        rest = [data["first"] - curve, data["second"] - 100.0 * curve]
        total = sum(
            N * s + 0.5 * (r @ r) * math.exp(-2 * s) for r, s in zip(rest, z[2:], strict=True)
        )
        if prior is not None:
            total += 0.5 * sum(((s - prior[0]) / prior[1]) ** 2 for s in z[2:])
        return total

    start = [RATE, math.log(AMOUNT), math.log(0.02), math.log(10.0)]
    joint = optimize.minimize(likelihood, start, method="Nelder-Mead", tol=1e-12)
    joint = optimize.minimize(likelihood, joint.x, tol=1e-12)
    np.testing.assert_allclose(fitted.covariance.x, joint.x[:2], atol=1e-6)
    levels = fitted.functional.column_levels(fitted.result.x)
    np.testing.assert_allclose(levels, np.exp(joint.x[2:]), rtol=1e-4)
    assert fitted.objective == pytest.approx(joint.fun, abs=1e-8)
    # the covariance is the block of the joint one, for the corrected level
    hessian = np.array(
        [
            [
                _second_difference(likelihood, joint.x, i, j, 2e-4 if max(i, j) > 1 else 1e-4)
                for j in range(4)
            ]
            for i in range(4)
        ]
    )
    block = np.linalg.inv(hessian)[:2, :2] * 2 * N / (2 * N - 2)
    np.testing.assert_allclose(fitted.covariance.scaled, block, rtol=2e-3)
    assert "(first)" in repr(fitted)
    assert "(second)" in repr(fitted)


def _second_difference(function, x, i, j, h):
    def at(a, b):
        moved = np.array(x, dtype=float)
        moved[i] += a * h
        moved[j] += b * h
        return function(moved)

    return (at(1, 1) - at(1, -1) - at(-1, 1) + at(-1, -1)) / (4 * h * h)


@pytest.mark.slow
@pytest.mark.parametrize("item", [False, True])
@pytest.mark.parametrize("level_prior", [None, (0.0, 0.3)])
def test_derivatives_of_the_likelihood_are_exact(item, level_prior):
    data = measurements(two_columns())
    misfit = ds.LeastSquares(data.times, data.values, 1.0, both)
    functional = EstimatedNoise(
        [ds.Reduced(decay(), misfit, DECAY_STEPPING, decay_control(0.4, 2.0))],
        priors=[ds.Prior([0.5], 0.3, names=["rate"])],
        each_column=item,
        level_prior=level_prior,
    )
    assert min(ds.taylor(functional)) > 1.95
    x = functional.start()
    value, gradient = functional.value_and_gradient(x)
    runs = functional.count.forward
    assert functional.value(x) == pytest.approx(value, rel=1e-13)
    np.testing.assert_array_equal(gather(functional.gradient(x)), gather(gradient))
    hessian = functional.hessian(x)
    assert functional.count.forward == runs  # the run at x serves the Hessian as well
    point = gather(x)
    for j, unit in enumerate(np.eye(2)):
        ends = [
            gather(functional.gradient(scatter(point + s * 1e-5 * unit, x.duplicate())))
            for s in (1, -1)
        ]
        np.testing.assert_allclose(hessian[:, j], (ends[0] - ends[1]) / 2e-5, rtol=1e-6)
        direction = scatter(unit, x.duplicate())
        np.testing.assert_allclose(
            gather(functional.hessian_product(x, direction)), hessian[:, j], rtol=1e-10
        )
    assert functional.count.forward > 0


def test_a_likelihood_with_unknown_noise_is_repeated_by_the_steps_of_its_run():
    """By other steps at each point remainders sink no further than the tolerance."""
    data = measurements(two_columns())
    misfit = ds.LeastSquares(data.times, data.values, 1.0, both)
    adaptive = ds.Stepping(DECAY_STEPPING.t_span, "rk3bs", rtol=1e-3)
    functional = EstimatedNoise([ds.Reduced(decay(), misfit, adaptive, decay_control(0.4, 2.0))])
    x = functional.start()
    again = functional.repeated(x)
    assert again is not None
    assert again.value(x) == pytest.approx(functional.value(x), rel=1e-12)
    assert not again.experiments[0].stepping.adaptive
    assert min(ds.taylor(functional)) > 1.95


@pytest.mark.slow
@pytest.mark.parametrize(
    "watch",
    [
        {"observe": [0]},
        {"observe": lambda t, u, p: 2.0 * u},
        {
            "observe": lambda t, u, p: 2.0 * u,
            "observe_u": lambda t, u, p: np.array([[2.0]]),
            "observe_p": lambda t, u, p: np.zeros((1, 2)),
        },
    ],
)
def test_observations_are_taken_into_the_scale_of_the_noise(watch):
    factor = 2.0 if callable(watch["observe"]) else 1.0
    fitted = fit(
        decay(),
        factor * DATA,
        decay_control(),
        DECAY_STEPPING,
        times=TIMES,
        noise=LogNormal(SIGMA),
        **TIGHT,
        **watch,
    )
    np.testing.assert_allclose(fitted.covariance.scaled, SIGMA**2 * INVERSE, rtol=1e-6)
    bands = fitted.prediction([1.0])
    assert bands.value[0, 0] == pytest.approx(factor * math.exp(BEST[1] - BEST[0]))


def test_the_likelihood_stands_alone():
    functional = likelihood(
        decay(), DATA, decay_control(), DECAY_STEPPING, times=TIMES, noise=LogNormal()
    )
    assert min(ds.taylor(functional)) > 1.9
    assert isinstance(functional, EstimatedNoise)
    known = likelihood(decay(), DATA, decay_control(), DECAY_STEPPING, times=TIMES, noise=Normal(1))
    assert not isinstance(known, EstimatedNoise)
    assert isinstance(
        likelihood(decay(), DATA, decay_control(), DECAY_STEPPING, times=TIMES), EstimatedNoise
    )


# ---- what cannot be told -------------------------------------------------------------------------


def two_rates():
    problem = ds.ODE(lambda t, u, p: -(p[0] + p[1]) * u, size=1, parameters=["burning", "leaking"])
    control = ds.Parameters(
        {"burning": ds.Parameter(0.4), "leaking": ds.Parameter(0.4)}, initial_state=[AMOUNT]
    )
    return problem, control


@pytest.mark.slow
def test_rates_that_only_act_together_are_named_and_the_estimate_is_kept():
    problem, control = two_rates()
    fitted = fit(problem, DATA, control, DECAY_STEPPING, times=TIMES, noise=LogNormal(SIGMA))
    assert fitted.estimate["burning"] + fitted.estimate["leaking"] == pytest.approx(
        TIMES @ (math.log(AMOUNT) - np.log(DATA)) / (TIMES @ TIMES), rel=1e-6
    )
    with pytest.raises(ds.UnsupportedError, match=r"0\.71 burning - 0\.71 leaking"):
        _ = fitted.covariance
    for ask in (fitted.intervals, fitted.profile, lambda: fitted.prediction([1.0])):
        with pytest.raises(ds.UnsupportedError, match="the data do not determine burning, leaking"):
            ask()
    assert "the data do not determine burning, leaking" in repr(fitted)
    assert fitted.degrees_of_freedom == N - 2


@pytest.mark.slow
def test_a_prior_makes_them_known():
    problem, control = two_rates()
    prior = ds.Prior([0.2], 0.05, names=["leaking"])
    fitted = fit(
        problem, DATA, control, DECAY_STEPPING, times=TIMES, noise=LogNormal(SIGMA), priors=prior
    )
    assert fitted.covariance.error("leaking") == pytest.approx(0.05, rel=1e-6)


@pytest.mark.slow
def test_data_without_noise_leave_no_level_to_estimate():
    exact = AMOUNT * np.exp(-RATE * TIMES)
    fitted = fit(
        decay(), exact, decay_control(RATE, AMOUNT), DECAY_STEPPING, times=TIMES, noise=LogNormal()
    )
    with pytest.raises(ds.UnsupportedError, match="the model meets the data exactly"):
        _ = fitted.covariance


@pytest.mark.slow
def test_a_parameter_on_its_bound_is_held_there():
    control = decay_control(0.5, 2.0, lower=0.0, upper=0.6)
    estimate = fitted(LogNormal(SIGMA), control)
    assert estimate.estimate["rate"] == 0.6
    assert estimate.covariance.on_bound == ("rate",)
    assert estimate.covariance.scaled[1, 1] == pytest.approx(SIGMA**2 / N)
    assert estimate.degrees_of_freedom == pytest.approx(N - 1)
    assert "rate             0.6          -   on its bound, held there" in repr(estimate)


@pytest.mark.slow
def test_an_output_of_the_model_has_its_own_band():
    estimate = fitted(LogNormal(SIGMA))
    half_life = estimate.prediction([0.0], lambda t, u, p: np.array([np.log(2.0) / p[0]]))
    assert half_life.value[0, 0] == pytest.approx(math.log(2.0) / BEST[0])
    error = math.log(2.0) / BEST[0] ** 2 * estimate.covariance.error("rate")
    assert half_life.standard_error[0, 0] == pytest.approx(error)
    assert not half_life.noise.any()


# ---- several starts ------------------------------------------------------------------------------


def oscillator():
    """Return x'' = -w^2 x: the misfit has many minima in the frequency w."""
    problem = ds.ODE(
        lambda t, u, p: np.array([u[1], -p[0] * p[0] * u[0]]),
        size=2,
        parameters=["frequency"],
        jacobian=lambda t, u, p: np.array([[0.0, 1.0], [-p[0] * p[0], 0.0]]),
        jacobian_p=lambda t, u, p: np.array([[0.0], [-2.0 * p[0] * u[0]]]),
    )
    times = np.linspace(0.6, 6.0, 10)
    rng = np.random.default_rng(3)
    data = np.cos(2.0 * times) + 0.05 * rng.standard_normal(10)
    control = ds.Parameters(
        {"frequency": ds.Parameter(0.7, lower=0.5, upper=4.0)}, initial_state=[1.0, 0.0]
    )
    return problem, data, control, ds.Stepping((0.0, 6.0), "rk4", dt=0.15), times


@pytest.mark.slow
@pytest.mark.mpi
def test_multistart_finds_the_frequency_on_any_number_of_ranks(comm, shared_tmp_path):
    problem, data, control, stepping, times = oscillator()

    def run(ranks, **extra):
        return fit(
            problem,
            data,
            control,
            stepping,
            times=times,
            observe=[0],
            starts=5,
            gradient_tolerance=1e-3,
            comm=ranks,
            **extra,
        )

    alone = fit(problem, data, control, stepping, times=times, observe=[0])
    trajectory = run(comm, folder=shared_tmp_path)
    assert trajectory.estimate["frequency"] == pytest.approx(2.0, abs=0.02)
    assert alone.objective > trajectory.objective + 5
    assert trajectory.sigma[0] < 0.1 < alone.sigma[0]
    serial = run(MPI.COMM_SELF)
    assert [attempt.value for attempt in serial.starts.attempts] == [
        attempt.value for attempt in trajectory.starts.attempts
    ]
    comm.Barrier()
    again = run(comm, folder=shared_tmp_path)
    assert again.starts.resumed == 5
    assert again.objective == trajectory.objective
    assert "5 starts" in repr(again)
    assert alone.iterations == alone.result.iterations
    assert trajectory.starts.best.iterations > 0
    assert trajectory.iterations == trajectory.starts.best.iterations + trajectory.result.iterations


@pytest.mark.slow
def test_starts_spread_over_priors_of_either_scale():
    control = ds.Parameters(
        {
            "rate": ds.Parameter(0.5),
            "amount": ds.Parameter(2.0, scale="log"),
        },
        initial_state=lambda p: p[1:2],
    )
    for first, second in (
        (ds.Prior([0.7], 0.2, names=["rate"]), ds.Prior([3.0], 1.0, names=["amount"])),
        (
            ds.Prior([-0.3], 0.3, names=["rate"], scale="log"),
            ds.Prior([1.0, 1.0], 0.5, scale="log"),
        ),
    ):
        estimate = fitted(
            LogNormal(SIGMA), control, priors=[first, second], starts=5, gradient_tolerance=1e-2
        )
        points = np.array([attempt.start for attempt in estimate.starts.attempts])
        assert points.shape == (5, 2)
        assert 0.1 < points[:, 0].min() < points[:, 0].max() < 6.0
        assert -1.0 < points[:, 1].min() < points[:, 1].max() < 3.0
    with pytest.raises(ds.InputError, match='"rate" lies in'):
        fitted(LogNormal(SIGMA), control, starts=3)


# ---- data ----------------------------------------------------------------------------------------


def test_data_come_from_files_tables_mappings_and_arrays(tmp_path):
    path = tmp_path / "decay.csv"
    lines = ["mass,time", *(f"{y!r},{t!r}" for y, t in zip(DATA, TIMES, strict=True))]
    path.write_text("\n".join(lines).replace("np.float64(", "").replace(")", "") + "\n")
    kinds = [
        (path, {"times": "time"}),
        (str(path), {"times": "time", "columns": ["mass"]}),
        (read_table(path), {"times": "time"}),
        ({"time": TIMES, "mass": DATA}, {}),
        ({"mass": DATA}, {"times": TIMES}),
        (DATA, {"times": TIMES, "columns": ["mass"]}),
    ]
    for data, extra in kinds:
        table = measurements(data, extra.get("times"), extra.get("columns"))
        np.testing.assert_array_equal(table.times, TIMES)
        np.testing.assert_array_equal(table.values[:, 0], DATA)
        assert table.names == ("mass",)
    assert measurements(DATA, TIMES).names == ("data[0]",)


@pytest.mark.parametrize(
    ("data", "extra", "message"),
    [
        ("nowhere.csv", {}, r"nowhere\.csv: no such file"),
        ({}, {}, "data has no columns"),
        ({"time": [1.0]}, {}, "no column of data beside the times"),
        ({"time": [1.0], "mass": [1.0]}, {"times": "tme"}, r'no column "tme"(.|\n)*try: "time"'),
        ({"time": [1.0], "mass": [1.0]}, {"columns": ["mas"]}, 'no column "mas".*try: "mass"'),
        ({"time": [1.0], "mass": [1.0]}, {"columns": ["b"]}, 'no column "b"; .*of time, mass$'),
        ({"time": [1.0, 2.0], "mass": [1.0]}, {}, r'column "mass" has shape \(1,\)'),
        (
            {"time": [1.0, 2.0], "mass": [math.nan] * 2, "size": [1.0, 2.0]},
            {},
            'column "mass" has no measurements: all 2 are missing',
        ),
        ({"time": [1.0], "mass": [math.inf]}, {}, r'column "mass" is inf at index \[0\]'),
        ({"time": [math.nan], "mass": [1.0]}, {}, r'times \(column "time"\) is nan'),
        ([1.0], {}, "data is an array without times"),
        ([1.0], {"times": [1.0, 2.0]}, r"times have shape \(2,\)"),
        ([1.0], {"times": [1.0], "columns": ["a", "b"]}, "2 names for 1 columns"),
    ],
)
def test_bad_data_are_refused(data, extra, message):
    with pytest.raises(ds.InputError, match=message):
        measurements(data, extra.get("times"), extra.get("columns"))


# ---- bad input is found before the first solve ---------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Normal(0.0), "noise level = 0"),
        (lambda: Normal([0.1, -0.2]), r"noise level = -0\.2"),
        (lambda: LogNormal(math.inf), r"noise level = inf(.|\n)*try: NaN in the data"),
        (lambda: LogNormal([0.1, math.nan]), r"noise level = nan(.|\n)*try: NaN in the data"),
        (lambda: LogNormal("guessed"), 'noise level = "guessed"'),
        (lambda: Normal(0.1, each_column=True), "a given noise level with a prior or each_column"),
        (lambda: Normal(prior=(0.0, 0.0)), r"the noise level's prior \(0, 0\)"),
    ],
)
def test_bad_noise_levels_are_refused(make, message):
    with pytest.raises(ds.InputError, match=message):
        make()


def never(t, u, p):
    raise AssertionError("solved")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"data": DATA[:2], "times": TIMES[:2]},
            ds.InputError,
            "2 observations for 2 free parameters and a noise level",
        ),
        (
            {"data": DATA[:1], "times": TIMES[:1], "noise": Normal(0.1)},
            ds.InputError,
            "1 observations for 2 free parameters",
        ),
        (
            {"data": -DATA, "noise": LogNormal()},
            ds.InputError,
            r'"data\[0\]" is -\S+ at t = 0\.1, with log-normal',
        ),
        ({"noise": Normal([0.1, 0.2])}, ds.InputError, r"sigma has shape \(2,\)"),
        (
            {"priors": [ds.Prior([1.0], 1.0, names=["rat"])]},
            ds.InputError,
            'prior names parameter "rat"',
        ),
        ({"times": TIMES + 1.0}, ds.InputError, r"observation time 2\.2 lies outside"),
        ({"hessian": "newton"}, ds.InputError, "hessian = 'newton'"),
        ({"method": "lmvn"}, ds.InputError, r"unknown method 'lmvn'(.|\n)*\"lmvm\""),
        (
            {"parameters": decay_control(lower=0.0), "method": "lmvm"},
            ds.InputError,
            "ignores bounds",
        ),
        ({"parameters": {"rate": 1.0}}, ds.InputError, "parameters is dict"),
        (
            {"parameters": ds.Parameters({"rate": ds.Parameter(1.0)}, [1.0])},
            ds.InputError,
            '"amount" has no value',
        ),
        ({"starts": 0}, ds.InputError, "starts = 0"),
        ({"priors": [1.0]}, ds.InputError, r"priors\[0\] is float"),
        (
            {
                "parameters": ds.Parameters({"rate": ds.Parameter(-1.0), "amount": 1.0}, [1.0]),
                "priors": [ds.Prior([0.0], names=["rate"], scale="log")],
            },
            ds.InputError,
            'parameter "rate": value = -1 with a log-normal prior',
        ),
    ],
)
def test_bad_input_is_refused(change, error, message):
    arguments = {
        "data": DATA,
        "parameters": decay_control(),
        "stepping": DECAY_STEPPING,
        "times": TIMES,
        **change,
    }
    with pytest.raises(error, match=message):
        fit(decay(), **arguments)


@pytest.mark.mpi(min_size=2)
def test_what_is_wrong_on_one_rank_will_end_the_job(comm):
    """Importing daeosens on several ranks sees to that."""
    with pytest.raises(ds.InputError, match="with log-normal"):
        fit(
            decay(),
            -DATA,
            decay_control(),
            DECAY_STEPPING,
            times=TIMES,
            comm=comm,
            noise=LogNormal(),
        )
    assert sys.excepthook.ends_the_job


def decay_that_fails(fails):
    """Return a decay whose equation has no value after a while where ``fails(p)``."""

    def rhs(t, u, p):
        return u * np.nan if t > 0.05 and fails(p) else -p[0] * u

    return ds.ODE(
        rhs,
        1,
        ["rate", "amount"],
        jacobian=lambda t, u, p: np.array([[-p[0]]]),
        jacobian_p=lambda t, u, p: np.array([[-u[0], 0.0]]),
    )


def fitted_together(comm, fails, **extra):
    rates = {
        "rate": ds.Parameter(1.5, lower=0.05, upper=6.0),
        "amount": ds.Parameter(2.0, lower=0.1, upper=9.0),
    }
    return fit(
        decay_that_fails(fails),
        DATA,
        ds.Parameters(rates, initial_state=lambda p: p[1:2]),
        DECAY_STEPPING,
        times=TIMES,
        noise=Normal(0.2),
        hessian="gauss_newton",
        comm=comm,
        **extra,
    )


@pytest.mark.mpi(min_size=2)
def test_a_model_that_fails_on_one_rank_is_an_error_on_all_with_what_came_of_starts(comm):
    with pytest.raises(
        ds.SolveError, match=r"cannot be evaluated at the start(.|\n)*rank 1"
    ) as caught:
        fitted_together(comm, lambda p: comm.rank == 1, starts=5)
    assert ("on rank 1 of" in str(caught.value)) == (comm.rank != 1)
    attempts = caught.value.starts.attempts
    assert [attempt.index for attempt in attempts] == [0, 1, 2, 3, 4]
    failed = [not math.isfinite(attempt.value) for attempt in attempts]
    assert failed == [k % comm.size == 1 for k in range(5)]
    alone = fitted_together(None, lambda p: False)
    assert caught.value.starts.best.value == pytest.approx(alone.result.value, rel=1e-9)


@pytest.mark.mpi(min_size=2)
def test_a_model_that_has_no_value_at_the_start_of_one_rank_is_an_error_on_all(comm):
    nowhere = ds.ODE(lambda t, u, p: u * (math.nan if comm.rank == 1 else -p[0]), 1, ["rate"])
    rate = ds.Parameters({"rate": ds.Parameter(1.0, lower=0.1, upper=3.0)}, [3.0])
    with pytest.raises(ds.InputError, match=r"at the start: callback 'rhs' returned nan"):
        fit(nowhere, DATA, rate, DECAY_STEPPING, times=TIMES, starts=2, comm=comm)


@pytest.mark.mpi(min_size=2)
def test_trials_that_fail_on_one_rank_are_survived_as_on_one(comm):
    alone = fitted_together(None, lambda p: False)
    starts = fitted_together(comm, lambda p: comm.rank == 1 and p[0] > 1.5 + 1e-6, starts=3)
    np.testing.assert_allclose(starts.covariance.x, alone.covariance.x, rtol=1e-6)
    # a wall beside the way down: rank 1 alone ends there, far above the minimum
    least = alone.estimate["rate"] - 1e-3
    walled = fitted_together(comm, lambda p: comm.rank == 1 and p[0] < least)
    assert (walled.result.failed_solves > 0) == (comm.rank == 1)
    np.testing.assert_allclose(walled.covariance.x, alone.covariance.x, rtol=1e-6)
    assert walled.result.converged


@pytest.mark.mpi(min_size=2)
def test_models_that_differ_between_ranks_are_refused(comm):
    bent = ds.ODE(lambda t, u, p: -p[0] * u * (1.0 + comm.rank * u), 1, ["rate"])
    rate = ds.Parameters({"rate": ds.Parameter(1.0, lower=0.1, upper=3.0)}, [3.0])
    with pytest.raises(ds.InputError, match="the same model on every rank"):
        fit(bent, DATA, rate, DECAY_STEPPING, times=TIMES, noise=Normal(0.2), comm=comm)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", [ValueError, ds.SolveError])
def test_what_fails_at_the_estimate_on_one_rank_is_raised_on_all(comm, kind, monkeypatch):
    def at_the_estimate(*arguments):
        if comm.rank == 1:
            raise kind("no memory")
        return estimated_uncertainty(*arguments)

    monkeypatch.setattr(fit_conclusion, "estimated_uncertainty", at_the_estimate)
    told = kind if comm.rank == 1 else ds.DaeosensError
    with pytest.raises(told, match="no memory") as caught:
        fitted_together(comm, lambda p: False, starts=2)
    if kind is ds.SolveError:
        assert len(caught.value.starts.attempts) == 2


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"value": -1.0, "scale": "log"}, "value = -1 on a log scale"),
        ({"value": 3.0, "upper": 1.0}, r"value = 3 outside its bounds \[-inf, 1\]"),
    ],
)
def test_bad_starts_are_refused(entry, message):
    with pytest.raises(ds.InputError, match=message):
        decay_control_of(ds.Parameter(**entry))


def decay_control_of(rate):
    return ds.Parameters(
        {"rate": rate, "amount": ds.Parameter(1.0)}, initial_state=lambda p: p[1:2]
    )


def test_missing_second_derivatives_are_named_before_the_first_solve():
    problem = ds.ODE(
        lambda t, u, p: -float(p[0]) * u,
        size=1,
        parameters=["rate", "amount"],
        jacobian=lambda t, u, p: np.array([[-float(p[0])]]),
        jacobian_p=lambda t, u, p: np.array([[-float(u[0]), 0.0]]),
    )
    arguments = (DATA, decay_control(), DECAY_STEPPING)
    with pytest.raises(
        ds.UnsupportedError, match="second derivatives of callback 'rhs' are needed"
    ):
        fit(problem, *arguments, times=TIMES, noise=LogNormal(SIGMA))
    fitted = fit(
        problem, *arguments, times=TIMES, noise=LogNormal(SIGMA), hessian="gauss_newton", **TIGHT
    )
    np.testing.assert_allclose(fitted.covariance.scaled, SIGMA**2 * INVERSE, rtol=1e-6)


def test_a_model_that_does_not_stay_positive_is_told_with_log_normal_noise():
    problem = ds.ODE(lambda t, u, p: -p[0] + 0 * u, size=1, parameters=["rate", "amount"])
    with pytest.raises(
        ds.SolveError, match=r"what is observed is -0\.4 at t = 0\.5, with log-normal"
    ):
        fit(problem, DATA, decay_control(4.8, 2.0), DECAY_STEPPING, times=TIMES, noise=LogNormal())


def test_fields_are_referred_to_laplace():
    from distributed import make  # noqa: PLC0415

    case = make(MPI.COMM_SELF)
    with pytest.raises(ds.UnsupportedError, match=r"fit for a PETSc-style problem(.|\n)*laplace"):
        fit(case.problem, DATA, decay_control(), DECAY_STEPPING, times=TIMES)


@pytest.mark.slow
def test_an_implicit_problem_is_fitted_too():
    problem = ds.DAE(lambda t, u, udot, p: udot + p[0] * u, size=1, parameters=["rate", "amount"])
    fitted = fit(
        problem,
        DATA,
        decay_control(),
        ds.Stepping((0.0, 2.0), "midpoint", dt=0.005),
        times=TIMES,
        noise=LogNormal(SIGMA),
    )
    assert fitted.estimate["rate"] == pytest.approx(BEST[0], abs=1e-4)


# ---- words ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_summary_says_it_all():
    lines = repr(fitted()).splitlines()
    assert lines[0] == "fit: 7 observations, 2 parameters, converged"
    assert lines[1].startswith("parameter   estimate  std error   95 % interval")
    assert lines[2].startswith("rate")
    assert "Student's t, 5 degrees of freedom" in lines[4]
    assert lines[5].startswith("noise: log-normal, sigma estimated: 0.1")


@pytest.mark.slow
def test_a_fit_that_stopped_early_says_so():
    estimate = fitted(LogNormal(SIGMA), max_iterations=1, method="lmvm")
    assert not estimate.converged
    assert "NOT converged (max_iterations reached)" in repr(estimate)
    assert "NOT at a minimum" in repr(estimate)


@pytest.mark.slow
def test_names_and_data_in_the_wrong_place_are_named():
    with pytest.raises(ds.InputError, match="data is Parameters without times"):
        fit(decay(), decay_control(), DATA, DECAY_STEPPING)
    with pytest.raises(ds.InputError, match='profile names = "rate", a string'):
        fitted().profile("rate")


def test_results_of_a_driver_keep_the_estimate(tmp_path):
    table = {"time": TIMES, "mass": DATA}
    fitted = fit(decay(), table, decay_control(), DECAY_STEPPING, noise=LogNormal())
    results = open_results(tmp_path / "run", MPI.COMM_SELF)
    fitted.record(results)
    assert results.facts["parameters"] == fitted.estimate
    errors = results.facts["standard_errors"]
    assert list(errors) == list(fitted.covariance.names)
    np.testing.assert_allclose([*errors.values()], fitted.covariance.standard_errors, rtol=1e-15)
    assert results.facts["value"] == fitted.objective
    np.testing.assert_array_equal(results.array("covariance"), fitted.covariance.matrix)
    np.testing.assert_array_equal(results.array("residuals"), fitted.residuals)


def test_the_distance_to_a_minimum_is_in_standard_errors_of_the_corrected_noise():
    """A line through four points, its noise estimated: of N / 2 log RSS all is in closed form."""
    times, data = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.1, 1.9, 3.2, 3.9])
    model = ds.trace(lambda t, u, p: [p.slope + 0.0 * u[0]], size=1, parameters=["slope", "offset"])
    control = ds.Parameters(
        {"slope": ds.Parameter(0.97), "offset": ds.Parameter(0.03)},
        initial_state=lambda p: np.array([p[1]]),
    )
    stepping = ds.Stepping((0.0, 4.0), "rk4", dt=0.5)
    estimate = fit(
        model,
        data,
        control,
        stepping,
        times=times,
        gradient_tolerance=1e9,
        method="lmvm",
        progress=False,
    )
    best = gather(estimate.result.x)
    design = np.column_stack([times, np.ones(4)])
    rest = design @ best - data
    square = rest @ rest
    gradient = 4.0 * design.T @ rest / square
    hessian = 4.0 * design.T @ design / square - 0.5 * np.outer(gradient, gradient)
    distance = np.sqrt(gradient @ np.linalg.solve(hessian, gradient) * (4 - 2) / 4)
    assert estimate.uncertainty.distance == pytest.approx(distance, rel=1e-6)
    assert distance > 1e-2


def test_a_misfit_beyond_noise_is_laid_to_the_model_or_to_sigma():
    """Data with an offset that a decay does not have, and a saddle with such residuals."""
    times = np.linspace(0.25, 5.0, 20)
    stepping = ds.Stepping((0.0, 5.0), "rk4", dt=0.05)
    control = ds.Parameters({"rate": ds.Parameter(1.0)}, initial_state=[1.0])
    model = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["rate"])
    data = np.exp(-0.5 * times) + 0.3

    def printed(sigma, model=model, control=control, data=data, **settings):
        how = {"times": times, "noise": Normal(sigma), "progress": False, **settings}
        estimate = fit(model, data, control, stepping, **how)
        return estimate, repr(estimate)

    misfit, lines = printed(0.01)
    assert misfit.converged
    assert misfit.p_value < 1e-100
    assert "; more than noise is left: the model lacks something, or sigma is too small" in lines
    assert "more than noise" not in printed(0.5)[1]
    assert "more than noise" not in printed(0.01, max_iterations=1)[1]

    # u' = -(1/5 + p^2) u from p = 0, where J has no gradient and falls to both sides
    even = ds.ODE(lambda t, u, p: -(0.2 + p[0] ** 2) * u, 1, ["root"])
    still = ds.Parameters({"root": ds.Parameter(0.0)}, initial_state=[1.0])
    for sigma, first in ((0.01, "a model of what the residuals show"), (1.0, "minimize further")):
        saddle, lines = printed(sigma, even, still, np.exp(-0.5 * times))
        assert (saddle.p_value < 1e-3) == (sigma < 0.1)
        assert "the Hessian is indefinite" in lines
        assert f"try: {first}" in lines
