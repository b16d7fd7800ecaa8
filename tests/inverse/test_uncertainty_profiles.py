"""Profile likelihoods against closed forms."""

import itertools
import math

import numpy as np
import pytest
from closed_forms import Formula, quadratic
from petsc4py import PETSc
from scipy import optimize, stats

from daeosens import InputError, Parameter, Parameters
from daeosens.inverse.uncertainty.covariance import covariance, covariance_from_hessian
from daeosens.inverse.uncertainty.profiles import profile

Z = 1.959963984540054
HEIGHT = Z**2 / 2
MATRIX = np.array([[4.0, 1.0, 0.5], [1.0, 2.0, -0.7], [0.5, -0.7, 3.0]])
MINIMUM = np.array([1.0, -2.0, 0.5])


def profiled(functional, *names, **extra):
    estimate = covariance(functional, functional.start())
    return profile(functional, estimate, names or None, **extra)


# ---- closed forms --------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("bounds", [None, (-50.0, 50.0)])
def test_profile_of_a_quadratic_is_the_normal_interval(bounds):
    functional = quadratic(MATRIX, MINIMUM, bounds=bounds, comm=PETSc.COMM_WORLD)
    profile = profiled(functional)
    inverse = np.linalg.inv(MATRIX)
    for i, entry in enumerate(profile.entries):
        error = math.sqrt(inverse[i, i])
        assert entry.status == ("crossed", "crossed")
        np.testing.assert_allclose(
            entry.ends, MINIMUM[i] + Z * error * np.array([-1, 1]), rtol=1e-3
        )
        np.testing.assert_allclose(
            entry.rise, 0.5 * ((entry.x - MINIMUM[i]) / error) ** 2, atol=1e-6
        )
        path = MINIMUM + np.outer(entry.x - MINIMUM[i], inverse[i] / inverse[i, i])
        np.testing.assert_allclose(entry.path, path, atol=1e-3)
        assert entry.mismatch < 1e-3
        assert not entry.quadratic_is_poor
    assert "quadratic good" in repr(profile)


@pytest.mark.parametrize("bounds", [None, (-1e5, 1e5)])
def test_whitening_makes_a_quadratic_cheap(bounds):
    scales = [1e4, 1, 1e-3]
    functional = quadratic(MATRIX * np.outer(scales, scales), MINIMUM, bounds=bounds)
    entry = profiled(functional, "x[0]").entries[0]
    # the extrapolated path is exact: hardly more than one evaluation a point
    assert len(functional.points) <= 2 + 2 * len(entry.x)


N, MEAN, SQUARES = 8, 3.0, 5.0


def normal_sample():
    """-log likelihood of (mu, log sigma) of a normal sample, at its minimum."""

    def squares(mu):
        return SQUARES + N * (mu - MEAN) ** 2

    def gradient(x):
        weight = math.exp(-2 * x[1])
        return np.array([N * (x[0] - MEAN) * weight, N - squares(x[0]) * weight])

    def hessian(x):
        weight = math.exp(-2 * x[1])
        mixed = -2 * N * (x[0] - MEAN) * weight
        return np.array([[N * weight, mixed], [mixed, 2 * squares(x[0]) * weight]])

    control = Parameters(
        {"mean": Parameter(1.0), "sigma": Parameter(1.0, scale="log")}, initial_state=[1.0]
    )
    return Formula(
        lambda x: N * x[1] + 0.5 * squares(x[0]) * math.exp(-2 * x[1]),
        gradient,
        hessian,
        [MEAN, 0.5 * math.log(SQUARES / N)],
        control=control,
    )


def test_the_profile_over_an_unknown_noise_level_is_students_interval():
    quantile = stats.t.ppf(0.975, N - 1)
    threshold = N / 2 * math.log(1 + quantile**2 / (N - 1))
    entry = profiled(normal_sample(), "mean", threshold=threshold)["mean"]
    reach = quantile * math.sqrt(SQUARES / (N - 1) / N)
    np.testing.assert_allclose(entry.interval, (MEAN - reach, MEAN + reach), rtol=1e-3)
    exact = N / 2 * np.log(1 + N * (entry.x - MEAN) ** 2 / SQUARES)
    np.testing.assert_allclose(entry.rise, exact, atol=1e-6)


def test_the_noise_level_itself_has_a_lopsided_interval():
    entry = profiled(normal_sample(), "sigma", tolerance=1e-5)["sigma"]
    # J(s) - J(s*) = N (d + (exp(-2 d) - 1) / 2) with d = s - s*
    ends = [
        optimize.brentq(lambda d: N * (d + (math.exp(-2 * d) - 1) / 2) - HEIGHT, *bracket)
        for bracket in ((-5, 0), (0, 5))
    ]
    best = math.sqrt(SQUARES / N)
    np.testing.assert_allclose(entry.interval, best * np.exp(ends), rtol=1e-5)
    assert entry.quadratic_is_poor
    assert entry.mismatch == pytest.approx(ends[1] * math.sqrt(2 * N) / Z - 1, rel=1e-3)
    assert "quadratic approximation POOR" in repr(entry)
    assert entry.scale == "log"
    np.testing.assert_allclose(entry.values, np.exp(entry.x))
    assert entry.quadratic_interval[0] == pytest.approx(best * math.exp(-Z / math.sqrt(2 * N)))
    reach = best * Z / math.sqrt(2 * N)
    assert entry.symmetric_interval == pytest.approx((best - reach, best + reach))
    assert entry.symmetric_mismatch == pytest.approx(best * (math.exp(ends[1]) - 1) / reach - 1)


def test_points_are_spread_evenly_in_the_root_of_the_rise():
    entry = profiled(normal_sample(), "mean", points=10, tolerance=0.5)["mean"]
    roots = np.sqrt(2 * entry.rise[entry.x >= MEAN])
    gaps = np.diff(roots[roots < Z])
    assert len(gaps) >= 8
    assert gaps.max() < 2 * gaps.min()


# ---- ends that are not there ---------------------------------------------------------------------


def saturating(height, **extra):
    """J = height (1 - exp(-x))^2 / 2: never above height / 2 on the right."""
    return Formula(
        lambda x: 0.5 * height * (1 - math.exp(-x[0])) ** 2,
        lambda x: np.array([height * (1 - math.exp(-x[0])) * math.exp(-x[0])]),
        lambda x: np.array([[height * math.exp(-x[0]) * (2 * math.exp(-x[0]) - 1)]]),
        [0.0],
        **extra,
    )


def test_an_open_end_is_told():
    entry = profiled(saturating(3.0)).entries[0]
    assert entry.status == ("crossed", "open")
    assert entry.ends[1] == math.inf
    assert entry.ends[0] == pytest.approx(-math.log(1 + Z / math.sqrt(3.0)), rel=2e-3)
    assert entry.mismatch == math.inf
    assert "not bounded above)" in repr(entry)


def test_an_open_end_below_on_a_log_scale_is_zero():
    left = Formula(
        lambda x: 1.5 * (1 - math.exp(x[0])) ** 2,
        lambda x: np.array([-3.0 * (1 - math.exp(x[0])) * math.exp(x[0])]),
        lambda x: np.array([[3.0]]),
        [0.0],
        control=Parameters({"rate": Parameter(1.0, scale="log")}, initial_state=[1.0]),
    )
    entry = profiled(left)["rate"]
    assert entry.interval[0] == 0.0
    assert "(not bounded below, " in repr(entry)


def test_a_bound_ends_the_interval():
    functional = quadratic(MATRIX, MINIMUM, bounds=([-9, -2.5, -9], [9, -1.9, 9]))
    entry = profiled(functional, "x[1]").entries[0]
    assert entry.status == ("bound", "bound")
    assert entry.ends == (-2.5, -1.9)
    assert not entry.quadratic_is_poor


def test_others_stay_within_their_bounds():
    functional = quadratic(MATRIX, MINIMUM, bounds=(-9.0, [9.0, -1.95, 9.0]))
    entry = profiled(functional, "x[0]").entries[0]
    assert entry.path[:, 1].max() <= -1.95
    # to the left x[1] wants to rise, meets its bound, and J rises faster from there on
    assert -entry.ends[0] + MINIMUM[0] < entry.ends[1] - MINIMUM[0]


@pytest.mark.parametrize("condition", [1e2, 1e6])
def test_minima_on_bounds_of_others_are_those_of_all_ways_to_hold_them(condition):
    """Close dependence of the others, bounds that are met on the way, and a parameter on one."""
    axes = np.linalg.qr(np.random.default_rng(5).standard_normal((3, 3)))[0]
    spread = axes @ np.diag(np.geomspace(1.0, 1.0 / condition, 3)) @ axes.T
    errors, matrix = np.sqrt(np.diag(spread)), np.linalg.inv(spread)
    low, high = MINIMUM - errors * [5.0, 0.7, 0.0], MINIMUM + errors * [5.0, 0.3, 1.5]

    def held(i, value):
        """Return the least J with each of the others free, or on one of its bounds."""
        values = []
        for sides in itertools.product((None, low, high), repeat=2):
            x, free = MINIMUM.copy(), []
            x[i] = value
            for j, side in zip([j for j in range(3) if j != i], sides, strict=True):
                if side is None:
                    free.append(j)
                else:
                    x[j] = side[j]
            fixed = [j for j in range(3) if j not in free]
            moved = matrix[np.ix_(free, fixed)] @ (x - MINIMUM)[fixed]
            x[free] = MINIMUM[free] - np.linalg.solve(matrix[np.ix_(free, free)], moved)
            if ((low - 1e-12 <= x) & (x <= high + 1e-12)).all():
                values.append(0.5 * (x - MINIMUM) @ matrix @ (x - MINIMUM))
        return min(values)

    functional = quadratic(matrix, MINIMUM, bounds=(low, high))
    for i, entry in enumerate(profiled(functional).entries):
        expected = [held(i, x) for x in entry.x]
        np.testing.assert_allclose(entry.rise, expected, atol=1e-3 * HEIGHT)
        assert "failed" not in entry.status


@pytest.mark.parametrize("bounds", [None, ([-6.0, -3.0], [6.0, 3.0]), ([-6.0, -0.9], [6.0, 1.05])])
def test_profiles_stay_in_the_valley_of_the_estimate(bounds):
    """J has two valleys in the other variable: the path leads along one, with bounds or without."""

    def value(x):
        return 5.0 * (x[1] ** 2 - 1.0) ** 2 + 0.5 * (x[0] - x[1]) ** 2

    def gradient(x):
        apart = x[0] - x[1]
        return np.array([apart, 20.0 * x[1] * (x[1] ** 2 - 1.0) - apart])

    def hessian(x):
        return np.array([[1.0, -1.0], [-1.0, 20.0 * (3.0 * x[1] ** 2 - 1.0) + 1.0]])

    functional = Formula(value, gradient, hessian, [1.0, 1.0], bounds=bounds)
    entry = profiled(functional, "x[0]").entries[0]
    assert entry.status == ("crossed", "crossed")
    most = 3.0 if bounds is None else bounds[1][1]
    for x, rise, point in zip(entry.x, entry.rise, entry.path, strict=True):
        valley = optimize.minimize_scalar(
            lambda y, x=x: value([x, y]), bounds=(0.6, most), method="bounded"
        )
        assert point[1] > 0.6
        assert rise == pytest.approx(valley.fun, abs=1e-3 * HEIGHT)


def test_a_parameter_on_its_bound_is_followed_inwards():
    functional = quadratic(MATRIX, MINIMUM, bounds=([1.5, -9, -9], 9.0))
    matrix = MATRIX[1:, 1:]
    others = MINIMUM[1:] - np.linalg.solve(matrix, MATRIX[1:, 0] * 0.5)
    functional.start_values = np.array([1.5, *others])
    entry = profiled(functional, "x[0]").entries[0]
    assert entry.status == ("bound", "crossed")
    error = math.sqrt(np.linalg.inv(MATRIX)[0, 0])
    exact = MINIMUM[0] + error * math.sqrt(Z**2 + (0.5 / error) ** 2)
    assert entry.ends[0] == 1.5
    assert entry.ends[1] == pytest.approx(exact, rel=2e-3)


def test_failed_solves_end_a_branch_with_a_note():
    functional = quadratic(MATRIX, MINIMUM, domain=lambda x: x[0] < 1.5)
    entry = profiled(functional, "x[0]").entries[0]
    assert entry.status == ("crossed", "failed")
    assert math.isnan(entry.ends[1])
    assert entry.x.max() > 1.3
    assert "the solve failed" in entry.notes[0]
    assert "unknown)" in repr(entry)


@pytest.mark.parametrize(
    ("beyond", "slope", "why"),
    [
        (lambda y: y, lambda y: 1.0, "fall without end"),  # no lower bound
        (lambda y: (y - 3) ** 4, lambda y: 4 * (y - 3) ** 3, "max_iterations reached"),
    ],
)
def test_no_minimum_over_the_others_ends_a_branch_with_a_note(beyond, slope, why):
    functional = Formula(
        lambda x: 0.5 * x[0] ** 2 + (0.5 * x[1] ** 2 if x[0] < 1 else beyond(x[1])),
        lambda x: np.array([x[0], x[1] if x[0] < 1 else slope(x[1])]),
        lambda x: np.eye(2),
        [0.0, 0.0],
    )
    entry = profiled(functional, "x[0]", max_iterations=2).entries[0]
    assert entry.status == ("crossed", "failed")
    assert "no minimum over the others: " in entry.notes[0]
    assert why in entry.notes[0]
    assert 0.9 < entry.x.max() < 1.0


def test_a_lower_minimum_on_the_way_is_told():
    wells = Formula(
        lambda x: (x[0] ** 2 - 1) ** 2 + 0.3 * x[0],
        lambda x: np.array([4 * x[0] * (x[0] ** 2 - 1) + 0.3]),
        lambda x: np.array([[12 * x[0] ** 2 - 4]]),
        [0.9601],
    )
    entry = profiled(wells).entries[0]
    assert "the estimate is not the minimum" in entry.notes[0]
    assert entry.rise.min() < -0.1


# ---- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "change", "message"),
    [
        (["x[9]"], {}, r'"x\[9\]" is not a free parameter; expected: one of .*; try: "x\['),
        (None, {"points": 0}, "points = 0"),
        (None, {"reach": 1.0}, "reach = 1"),
        (None, {"tolerance": 0.0}, "tolerance = 0"),
        (None, {"threshold": -1.0}, "threshold = -1"),
        (None, {"level": 2.0}, "level = 2"),
    ],
)
def test_bad_arguments_are_refused_before_any_evaluation(names, change, message):
    functional = quadratic(MATRIX, MINIMUM)
    estimate = covariance_from_hessian(MATRIX, MINIMUM, ["x[0]", "x[1]", "x[2]"])
    with pytest.raises(InputError, match=message):
        profile(functional, estimate, names, **change)
    assert functional.points == []


def test_profiles_are_found_by_name():
    profile = profiled(quadratic(MATRIX, MINIMUM), "x[1]")
    assert profile["x[1]"].name == "x[1]"
    with pytest.raises(InputError, match=r'no profile of "x\[2\]"'):
        profile["x[2]"]
