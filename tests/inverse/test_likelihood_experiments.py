"""Fits of several experiments: the regression of all data, and one experiment in parts."""

import math

import numpy as np
import pytest
from closed_forms import DECAY_STEPPING, decay, decay_control
from scipy import stats

import daeosens as ds
from daeosens.inverse import LogNormal, Normal, likelihood
from daeosens.petsc import gather

# ---- straight lines: u' = slope feed from a level of its own, seen with a common offset ----------

SIGMA = 0.1
LINES = (
    (1.0, 0.5, np.array([0.5, 1.0, 2.0])),
    (-2.0, 0.0, np.array([0.25, 1.5])),
    (0.5, 1.0, np.array([1.0, 3.0, 4.0])),
)
RNG = np.random.default_rng(8)
SEEN = [
    level + 0.8 * feed * t + 0.3 + SIGMA * RNG.standard_normal(len(t)) for feed, level, t in LINES
]
DESIGN = np.vstack([np.column_stack([feed * t, np.ones_like(t)]) for feed, _, t in LINES])
RIGHT = np.concatenate([seen - level for seen, (_, level, _) in zip(SEEN, LINES, strict=True)])
BEST, SQUARES = np.linalg.lstsq(DESIGN, RIGHT)[:2]
INVERSE = np.linalg.inv(DESIGN.T @ DESIGN)
N = len(RIGHT)


def line():
    return ds.ODE(
        lambda t, u, p: np.array([p[0] * p[2]]), size=1, parameters=["slope", "offset", "feed"]
    )


def unknown(**extra):
    values = {
        "slope": ds.Parameter(0.1, **extra),
        "offset": ds.Parameter(0.0, **extra),
        "feed": 0.0,
    }
    return ds.Parameters(values, [0.0])


def experiments():
    return [
        ds.Experiment(
            {"time": times, "length": seen},
            ds.Stepping((0.0, times[-1]), "rk4", dt=0.25),
            [level] if level else None,
            {"feed": feed},
        )
        for (feed, level, times), seen in zip(LINES, SEEN, strict=True)
    ]


def offset(t, u, p):
    return u + p[1]


def fitted(noise=None, parameters=None, **extra):
    return ds.fit(
        line(),
        experiments(),
        unknown() if parameters is None else parameters,
        observe=offset,
        noise=noise,
        **{"gradient_tolerance": 1e-9, **extra},
    )


@pytest.mark.slow
@pytest.mark.parametrize("hessian", ["exact", "gauss_newton"])
def test_an_unknown_level_gives_the_regression_of_all_data(hessian):
    estimate = fitted(hessian=hessian)
    assert estimate.converged
    variance = SQUARES[0] / (N - 2)
    assert estimate.estimate == pytest.approx(
        {"slope": BEST[0], "offset": BEST[1], "feed": 0.0}, rel=1e-7
    )
    assert estimate.degrees_of_freedom == pytest.approx(N - 2)
    np.testing.assert_allclose(estimate.sigma, [math.sqrt(variance)], rtol=1e-8)
    np.testing.assert_allclose(estimate.covariance.matrix, variance * INVERSE, rtol=1e-6)
    rest = (RIGHT - DESIGN @ BEST) / math.sqrt(variance)
    np.testing.assert_allclose(estimate.residuals[:, 0], rest, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(estimate.data.times, np.concatenate([t for *_, t in LINES]))
    assert f"fit: {N} observations in 3 experiments, 2 parameters, converged" in repr(estimate)
    reach = stats.t.ppf(0.975, N - 2) * math.sqrt(variance * INVERSE[0, 0])
    ends = (BEST[0] - reach, BEST[0] + reach)
    assert estimate.intervals()["slope"] == pytest.approx(ends, rel=1e-6)
    profiles = estimate.profile(["slope"], tolerance=1e-5)
    assert profiles["slope"].interval == pytest.approx(ends, rel=1e-4)


@pytest.mark.slow
def test_each_experiment_is_predicted_with_its_own_start_and_feed():
    estimate = fitted()
    variance = SQUARES[0] / (N - 2)
    times = np.array([0.5, 6.0])  # beyond the data too
    for k, (feed, level, _) in enumerate(LINES):
        bands = estimate.prediction(times, experiment=k)
        rows = np.column_stack([feed * times, np.ones(2)])
        np.testing.assert_allclose(bands.value[:, 0], level + rows @ BEST, rtol=1e-7)
        error = np.sqrt(variance * np.einsum("ki,ij,kj->k", rows, INVERSE, rows))
        np.testing.assert_allclose(bands.standard_error[:, 0], error, rtol=1e-6)
        state = estimate.prediction(times, lambda t, u, p: u, experiment=k)
        np.testing.assert_allclose(state.value[:, 0], level + feed * BEST[0] * times, rtol=1e-7)
    with pytest.raises(
        ds.InputError, match=r"experiment = 3\n  expected: an integer of at least 0 and at most 2"
    ):
        estimate.prediction(times, experiment=3)


@pytest.mark.parametrize("kind", ["number", "each time"])
def test_given_levels_weigh_the_rows_of_all_experiments(kind):
    levels = np.full(N, 0.2) if kind == "number" else 0.1 + 0.02 * np.arange(N)
    prior = ds.Prior([0.7], 0.05, names=["slope"])
    estimate = fitted(Normal(0.2 if kind == "number" else levels[:, None]), priors=prior)
    design = np.vstack([DESIGN / levels[:, None], [1.0 / 0.05, 0.0]])
    right = np.append(RIGHT / levels, 0.7 / 0.05)
    best = np.linalg.lstsq(design, right)[0]
    np.testing.assert_allclose(estimate.covariance.x, best, rtol=1e-7)
    np.testing.assert_allclose(
        estimate.covariance.matrix, np.linalg.inv(design.T @ design), rtol=1e-7
    )
    rest = (RIGHT - DESIGN @ best) / levels
    assert estimate.chi_square == pytest.approx(rest @ rest, rel=1e-6)
    degrees = N - 2 + estimate.covariance.matrix[0, 0] / 0.05**2
    assert estimate.p_value == pytest.approx(stats.chi2.sf(rest @ rest, degrees), rel=1e-6)


@pytest.mark.slow
@pytest.mark.mpi
def test_many_starts_on_any_number_of_ranks(comm):
    estimate = fitted(parameters=unknown(lower=-3.0, upper=3.0), starts=4, comm=comm)
    assert estimate.starts is not None
    np.testing.assert_allclose(estimate.covariance.x, BEST, atol=1e-6)


# ---- one experiment in parts ---------------------------------------------------------------------

TIMES = np.array([0.1, 0.3, 0.5, 0.9, 1.2, 1.7, 2.0])
AMOUNTS = 3.0 * np.exp(-0.7 * TIMES[:, None] + [0.0, math.log(2.0)])
AMOUNTS *= np.exp(np.random.default_rng(2).standard_normal((7, 2)) * [0.1, 0.3])
AMOUNTS[2, 0] = AMOUNTS[5, 1] = np.nan


def twice(t, u, p):
    return np.array([u[0], 2.0 * u[0]])


def in_parts():
    """Every other time in either; the initial state is a function of the parameters."""
    return [
        ds.Experiment(AMOUNTS[first::2], DECAY_STEPPING, times=TIMES[first::2]) for first in (0, 1)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("level_prior", [None, (-1.0, 0.5)])
@pytest.mark.parametrize("item", [False, True])
def test_an_experiment_in_parts_is_the_same_fit(item, level_prior):
    noise = LogNormal(each_column=item, prior=level_prior)
    options = {
        "observe": twice,
        "noise": noise,
        "priors": ds.Prior([0.6], 0.2, names=["rate"]),
        "gradient_tolerance": 1e-9,
    }
    parts = ds.fit(decay(), in_parts(), decay_control(), **options)
    whole = ds.fit(decay(), AMOUNTS, decay_control(), DECAY_STEPPING, times=TIMES, **options)
    assert parts.objective == pytest.approx(whole.objective, rel=1e-9)
    np.testing.assert_allclose(parts.covariance.x, whole.covariance.x, rtol=1e-7)
    np.testing.assert_allclose(parts.covariance.scaled, whole.covariance.scaled, rtol=1e-6)
    np.testing.assert_allclose(parts.sigma, whole.sigma, rtol=1e-7)
    assert parts.degrees_of_freedom == pytest.approx(whole.degrees_of_freedom, rel=1e-7)
    order = np.concatenate([np.arange(7)[0::2], np.arange(7)[1::2]])
    np.testing.assert_allclose(parts.residuals, whole.residuals[order], rtol=1e-5, atol=1e-7)
    functional = likelihood(
        decay(), in_parts(), decay_control(), **{k: options[k] for k in ("observe", "noise")}
    )
    x = functional.start()
    assert min(ds.taylor(functional, x)) > 1.9
    assert min(ds.taylor(functional, x, hessian=True)) > 2.9
    dx = x.duplicate()
    dx.setArray([0.3, -0.8])
    product = gather(functional.hessian_product(x, dx))
    np.testing.assert_allclose(product, functional.hessian(x) @ [0.3, -0.8], rtol=1e-9)


@pytest.mark.slow
def test_nearly_exact_data_go_with_experiments():
    curve = np.exp(-0.5 * TIMES) * (1.0 + 1e-9 * np.cos(9.0 * TIMES))
    stepping = ds.Stepping((0.0, 2.0), "rk4", dt=0.1)
    parts = [ds.Experiment(curve[first::2], stepping, times=TIMES[first::2]) for first in (0, 1)]
    fitted = ds.fit(decay(), parts, decay_control(), hessian="gauss_newton")
    assert fitted.converged
    assert fitted.estimate["rate"] == pytest.approx(0.5, abs=1e-5)


def test_blocks_and_starts_of_a_traced_model_differ_between_experiments():
    model = ds.trace(lambda t, u, p: p.A @ u + p.feed, 2, parameters={"A": (2, 2), "feed": (2,)})
    truth = np.array([[-0.8, 0.2], [0.3, -0.5]])
    feeds, starts = ([0.0, 0.0], [1.0, 0.0]), ([0.4, 0.1], [0.0, 0.5])
    stepping = ds.Stepping((0.0, 2.0), "rk4", dt=0.05)
    times = np.linspace(0.2, 2.0, 10)
    wide = ds.Parameters({"A": ds.Parameter(truth), "feed": [0.0, 0.0]}, [0.0, 0.0])
    measured = []
    for k, (feed, start) in enumerate(zip(feeds, starts, strict=True)):
        value = ds.Experiment(np.zeros((10, 2)), stepping, start, {"feed": feed}, times)
        functional = likelihood(model, [value], wide, noise=Normal(1.0))
        exact = -gather(functional.experiments[0].residual(functional.start())).reshape(10, 2)
        noise = 0.002 * np.random.default_rng(k).standard_normal((10, 2))
        measured.append(ds.Experiment(noise - exact, stepping, start, {"feed": feed}, times))
    rates = ds.Parameters({"A": ds.Parameter(0.5 * truth), "feed": [0.0, 0.0]}, [0.0, 0.0])
    fitted = ds.fit(model, measured, rates)
    estimate = model.unpack(np.array(list(fitted.estimate.values()))).A
    np.testing.assert_allclose(estimate, truth, atol=0.02)
    errors = (fitted.covariance.estimate - truth.ravel()) / np.sqrt(
        np.diag(fitted.covariance.matrix)
    )
    assert np.abs(errors).max() < 4.0


# ---- what does not go together -------------------------------------------------------------------


def experiment(**change):
    values = {"time": [0.5, 1.0, 1.5], "length": [1.0, 2.0, 3.0]}
    options = {"data": values, "stepping": ds.Stepping((0.0, 2.0), "rk4", dt=0.5), **change}
    return ds.Experiment(**options)


@pytest.mark.parametrize(
    ("make", "extra", "message"),
    [
        (
            lambda: [
                experiment(name="a", parameters={"feed": ds.Parameter(1.0)}),
                experiment(name="a", parameters={"feed": ds.Parameter(2.0)}),
            ],
            {},
            r'experiments\[1\]: parameters\["feed"\] = (.|\n)*another experiment of the name "a"',
        ),
        (
            lambda: [experiment(parameters={"fed": 1.0})],
            {},
            r'\[0\]: parameters\["fed"\] is not one of the problem(.|\n)*"feed"',
        ),
        (
            lambda: [experiment(), experiment(data={"time": [1.0], "mass": [1.0]})],
            {},
            r"experiments\[1\] has the columns mass(.|\n)*length, as experiments\[0\]",
        ),
        (
            lambda: [experiment(), experiment(data={"time": [0.5, 1.0], "length": [1.0, np.inf]})],
            {},
            r'experiments\[1\]: column "length" is inf at index \[1\]',
        ),
        (lambda: [experiment(), {"time": [1.0]}], {}, r"experiments\[1\] is dict"),
        (lambda: [experiment()], {"stepping": DECAY_STEPPING}, "stepping= beside experiments"),
        (lambda: [experiment()], {"times": "time"}, "times= beside experiments"),
        (lambda: experiment(stepping=0.1), {}, "stepping is float"),
        (lambda: experiment(parameters=[1.0]), {}, "parameters is list"),
        (lambda: {"time": [1.0], "length": [1.0]}, {}, "stepping is NoneType"),
        (
            lambda: [experiment(), experiment()],
            {"noise": Normal(np.ones((5, 1)))},
            r"sigma has shape \(5, 1\)(.|\n)*\(6, 1\)",
        ),
        (
            lambda: [experiment(data={"time": [1.0], "length": [1.0]})] * 2,
            {},
            "2 observations for 2 free parameters and a noise level",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(make, extra, message):
    with pytest.raises(ds.InputError, match=message):
        ds.fit(line(), make(), unknown(), observe=offset, **extra)


@pytest.mark.mpi(min_size=2)
def test_experiments_that_differ_between_ranks_are_refused(comm):
    parts = [experiment(), experiment(parameters={"feed": 0.1 * comm.rank})]
    with pytest.raises(ds.InputError, match=r"experiments.*feed"):
        ds.fit(line(), parts, unknown(), observe=offset, comm=comm)
