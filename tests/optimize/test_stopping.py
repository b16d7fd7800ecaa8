"""Stopping rules: the same for all methods, and those free of scale."""

import math

import numpy as np
import pytest
from closed import TARGET, Closed, Curved, N, Residual, mixed, mixed_hessian, quadratic
from mpi4py import MPI
from petsc4py import PETSc

from daeosens import ODE, Parameter, Parameters, Reduced, Running, Stepping
from daeosens.errors import InputError
from daeosens.optimize import minimize
from daeosens.optimize.methods import FIRST_ORDER, NEWTON, UNBOUNDED
from daeosens.optimize.result import Iterate
from daeosens.optimize.stopping import Stopping, free_norm, projected_norm
from daeosens.petsc import gather, scatter
from daeosens.problem import PiecewiseConstant

SCALES = 10.0 ** np.arange(-4, N - 4)
START = np.linspace(0.5, 1.5, N)
STIFFNESS = np.geomspace(1.0, 1e3, N)


def in_units(of_x, of_value, *, comm=PETSc.COMM_SELF, **extra):
    """``mixed`` of x / of_x, times of_value."""

    def formula(x):
        value, gradient = mixed(x / of_x)
        return of_value * (1.0 + value), of_value * gradient / of_x

    def hessian(x):
        return of_value * mixed_hessian(x / of_x) / np.outer(of_x, of_x)

    return Curved(formula, START * of_x, hessian=hessian, comm=comm, **extra)


def by_hand(functional, x, sizes, size_of_value, limits=(-np.inf, np.inf)):
    value, gradient = functional.formula(x)
    scale = np.maximum(np.abs(x), sizes)
    moved = x - gradient * scale**2 / max(abs(value), size_of_value)
    return np.max(np.abs(x - np.clip(moved, *limits)) / scale)


@pytest.mark.mpi
@pytest.mark.parametrize("method", [*FIRST_ORDER, *NEWTON])
def test_scaled_gradient_stops_at_the_first_iterate_that_meets_it(method):
    functional = in_units(np.ones(N), 1.0, comm=PETSc.COMM_WORLD)
    points = []
    result = minimize(
        functional,
        method=method,
        gradient_tolerance=0.0,
        scaled_gradient_tolerance=1e-5,
        typical=(0.5, 3.0),
        progress=lambda iterate, x: points.append(gather(x)),
    )
    assert result.reason == "CONVERGED_SCALED_GRADIENT"
    assert result.message == "relative gradient within scaled_gradient_tolerance"
    measured = np.array([by_hand(functional, x, 0.5, 3.0) for x in points])
    assert measured[-1] <= 1e-5 < measured[:-1].min()


@pytest.mark.parametrize("method", ["lmvm", "bqnls", "nls", "bntr"])
@pytest.mark.parametrize("of_value", [1e-8, 1e8])
def test_result_does_not_depend_on_units_of_the_value(method, of_value):
    extra = {"method": method, "gradient_tolerance": 0.0, "scaled_gradient_tolerance": 1e-6}
    plain = minimize(in_units(np.ones(N), 1.0), **extra)
    scaled = minimize(in_units(np.ones(N), of_value), **extra)
    assert plain.reason == scaled.reason == "CONVERGED_SCALED_GRADIENT"
    np.testing.assert_allclose(scaled.x.getArray(), plain.x.getArray(), atol=1e-5)
    if method in NEWTON:
        assert scaled.iterations == plain.iterations
        np.testing.assert_allclose(scaled.history.value, of_value * plain.history.value, rtol=1e-7)


@pytest.mark.parametrize("method", ["nls", "bnls"])
@pytest.mark.parametrize("units", [SCALES, 1.0 / SCALES], ids=["rising", "falling"])
def test_newton_with_direct_solves_does_not_depend_on_any_units(method, units):
    extra = {"method": method, "gradient_tolerance": 0.0, "scaled_gradient_tolerance": 1e-4}
    plain = minimize(in_units(np.ones(N), 1.0), **extra)
    scaled = minimize(in_units(units, 1e6), **extra)
    assert plain.reason == scaled.reason == "CONVERGED_SCALED_GRADIENT"
    assert scaled.iterations == plain.iterations
    np.testing.assert_allclose(scaled.x.getArray() / units, plain.x.getArray(), rtol=1e-7)
    np.testing.assert_allclose(scaled.history.value, 1e6 * plain.history.value, rtol=1e-6)


@pytest.mark.parametrize("method", NEWTON)
@pytest.mark.parametrize("inverse", ["dense", "none"])
@pytest.mark.parametrize("unit", [1e-8, 1e8])
def test_newton_does_not_depend_on_one_unit_of_all_variables(method, inverse, unit):
    def run(size):
        units = np.full(N, size)
        extra = {"method": method, "preconditioner": inverse, "gradient_tolerance": 0.0}
        if method not in UNBOUNDED:
            extra["bounds"] = (0.2 * units, np.where(np.arange(N) % 3 == 1, 0.9, 2.0) * units)
        start = np.minimum(START, 0.85) * units
        return minimize(in_units(units, 1.0), start, scaled_gradient_tolerance=1e-7, **extra)

    plain, scaled = run(1.0), run(unit)
    assert plain.reason == scaled.reason == "CONVERGED_SCALED_GRADIENT"
    assert scaled.iterations == plain.iterations
    np.testing.assert_allclose(scaled.x.getArray() / unit, plain.x.getArray(), rtol=1e-9)


def test_measure_is_free_of_units_and_respects_bounds():
    rng = np.random.default_rng(5)
    x, gradient, sizes = rng.normal(size=(3, N))
    lower, upper = x - np.abs(rng.normal(size=N)), x + 0.01
    units, of_value = SCALES, 1e-7

    def measure(u, f):
        def vec(values):
            return PETSc.Vec().createWithArray(np.array(values), comm=PETSc.COMM_SELF)

        rule = Stopping(scaled_gradient=1.0, typical_x=vec(u * np.abs(sizes)), typical_value=f)
        limits = (vec(u * lower), vec(u * upper))
        size = rule.size_of(0.3 * f, 0.0)
        point, slope = vec(u * x), vec(f * gradient / u)
        return rule.scaled_norm(point, slope, None, size), rule.scaled_norm(
            point, slope, limits, size
        )

    free, bounded = measure(np.ones(N), 1.0)
    assert free == pytest.approx(np.max(np.abs(gradient) * np.maximum(np.abs(x), np.abs(sizes))))
    assert bounded < free
    np.testing.assert_allclose(measure(units, of_value), (free, bounded), rtol=1e-12)


@pytest.mark.parametrize("method", [name for name in NEWTON if name not in UNBOUNDED])
def test_scaled_gradient_is_projected(method):
    functional = Curved(quadratic, np.full(N, 0.1), bounds=(-1.0, 0.6))
    result = minimize(
        functional, method=method, gradient_tolerance=0.0, scaled_gradient_tolerance=1e-12
    )
    assert result.reason == "CONVERGED_SCALED_GRADIENT"
    np.testing.assert_allclose(result.x.getArray(), np.clip(TARGET, -1.0, 0.6), atol=1e-12)


@pytest.mark.parametrize("method", NEWTON)
@pytest.mark.parametrize("inverse", ["dense", "none"])
def test_predicted_decrease_stops_where_little_is_left(method, inverse):
    functional = in_units(np.ones(N), 1.0)
    result = minimize(
        functional,
        method=method,
        preconditioner=inverse,
        gradient_tolerance=0.0,
        predicted_decrease_tolerance=1e-6,
    )
    assert result.reason == "CONVERGED_PREDICTED_DECREASE"
    assert "model promised" in str(result)
    decrease = -np.diff(result.history.value)
    assert decrease[-1] < 5e-6 * result.value
    assert result.value - 1.0 < 1e-9


def test_predicted_decrease_serves_gauss_newton_too():
    functional = Residual(
        lambda x: (
            np.append(x**3 - 8.0, 1.0),
            np.diag(3.0 * x**2).repeat([1] * (N - 1) + [2], axis=0)
            * np.append(np.ones(N), 0.0)[:, None],
        ),
        START,
    )
    result = minimize(
        functional, method="brgn", gradient_tolerance=0.0, predicted_decrease_tolerance=1e-8
    )
    assert result.reason == "CONVERGED_PREDICTED_DECREASE"
    np.testing.assert_allclose(result.x.getArray(), 2.0, rtol=1e-6)


# ---- typical sizes -------------------------------------------------------------------------------


def test_typical_sizes_come_from_argument_functional_or_start():
    functional = in_units(np.ones(N), 1.0)
    extra = {"gradient_tolerance": 0.0, "scaled_gradient_tolerance": 1e-3}
    by_start = minimize(functional, **extra)
    value = functional.formula(START)[0]
    said = minimize(functional, typical=(START, value), **extra)
    np.testing.assert_array_equal(by_start.history.value, said.history.value)
    functional.typical = lambda: (functional.vector(1e3), 1e-3)
    by_functional = minimize(functional, **extra)
    assert by_functional.iterations > by_start.iterations
    again = minimize(functional, typical=(functional.vector(1e3), 1e-3), **extra)
    assert again.iterations == by_functional.iterations


BAD = {
    "zero start": ({"x0": np.arange(N) - 2.0}, r"start \(x has no other.*is 0 at index 2"),
    "negative": ({"typical": (-1.0, 1.0)}, "typical x is -1 at index 0"),
    "nan": ({"typical": ([np.nan] * N, 1.0)}, "typical x is nan at index 0"),
    "no pair": ({"typical": 3.0}, r"typical = 3\.0"),
    "value": ({"typical": (1.0, -1.0)}, r"typical J = -1\.0"),
    "shape": ({"typical": (np.ones(3), 1.0)}, r"typical x has shape \(3,\)"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_typical_sizes_are_named_before_the_first_evaluation(arguments, message):
    functional = in_units(np.ones(N), 1.0)
    with pytest.raises(InputError, match=message):
        minimize(functional, scaled_gradient_tolerance=1e-3, **arguments)
    assert functional.points == []


def test_start_at_zero_needs_no_typical_size_without_the_rule():
    assert minimize(Closed(quadratic, np.zeros(N))).converged


# ---- rules by themselves -------------------------------------------------------------------------


def iterates(*pairs):
    return [Iterate(i, value, size, 1.0, i + 1, 0) for i, (value, size) in enumerate(pairs)]


def reason_of(rule, *pairs, scaled=math.nan, predicted=math.nan):
    return rule.reason(iterates(*pairs), scaled, predicted)


def test_rules_that_are_off_or_unknown_do_not_stop():
    go_on = (PETSc.TAO.ConvergedReason.CONTINUE_ITERATING, None)
    assert reason_of(Stopping(), (1.0, 1.0), (1.0, 1.0), scaled=0.0, predicted=0.0) == go_on
    rule = Stopping(scaled_gradient=1e-3, predicted_decrease=1e-3, value=1e-3)
    assert reason_of(rule, (1.0, 1.0)) == go_on


def test_stagnation_is_neither_a_lower_value_nor_a_smaller_gradient():
    rule = Stopping(patience=3)
    still = [(1.0, 1e-9)] * 5
    assert reason_of(rule, *still)[1][0] == "DIVERGED_STAGNATION"
    assert reason_of(rule, *still[:3])[1] is None
    assert reason_of(rule, *still[:4], (1.0, 4e-10))[1] is None
    assert reason_of(rule, *still[:4], (1.0 - 1e-12, 1e-9))[1] is None


def test_searches_that_stay_where_they_are_end():
    still = [Iterate(k, 1.0, 1e-3, 0.0, 7 * k, 0) for k in range(5)]
    moved = [Iterate(4, 1.0, 1e-3, 1e-16, 30, 0)]
    assert Stopping().reason(still, math.nan, math.nan)[1][0] == "DIVERGED_UNMOVED"
    assert Stopping().reason(still[:3], math.nan, math.nan)[1] is None
    assert Stopping().reason(still[:4] + moved, math.nan, math.nan)[1] is None


def test_what_only_rounds_has_converged():
    """Ten iterations without a lower value or half the gradient norm, which has become small."""
    rule, begin, flat = Stopping(rounding=True), [(2.0, 1e3)], [(1.0, 1e-5)] * 11
    assert reason_of(rule, *begin, *flat)[1][0] == "CONVERGED_ROUNDING"
    assert reason_of(Stopping(), *begin, *flat)[1] is None
    assert reason_of(rule, *begin, *flat[:9])[1] is None
    assert reason_of(rule, *begin, *flat[:10], (1.0 - 1e-13, 1e-5))[1] is None
    assert reason_of(rule, *begin, *flat[:10], (1.0, 4e-6))[1] is None
    assert reason_of(rule, (2.0, 1.0), *flat)[1] is None


def test_a_stuck_search_has_converged_where_its_gradient_promises_rounding():
    """From 11 at a gradient of 1e3 on it gained 10: at 1e-5 what is left is 1e-15."""
    pairs = [(11.0, 1e3), (1.001, 10.0), (1.0, 1e-5)]
    slopes = [slope for _, slope in pairs]
    rule = Stopping(rounding=True)
    assert rule.converged_to_rounding(iterates(*pairs), slopes)[0] == "CONVERGED_ROUNDING"
    assert Stopping().converged_to_rounding(iterates(*pairs), slopes) is None
    still_open = [
        [(11.0, 1e3), (1.0, 1e-4)],  # 1e-13 is left
        [(11.0, 1e3), (1.001, 1.0), (1.0, 1e-5)],  # 1e-13 by the curvature of the later part
        [(1.0 + 1e-12, 1.0), (1.0, 1e-5)],  # hardly moved: a wrong gradient promises anything
        [(1.0, 1.0)],
    ]
    for pairs in still_open:
        slopes = [slope for _, slope in pairs]
        assert rule.converged_to_rounding(iterates(*pairs), slopes) is None


def searching(value, size, steps):
    """Return iterates after a first one, with values that fall, by the lengths of their steps."""
    first = Iterate(0, 2.0, 10.0, 0.0, 1, 0)
    falls = 1e-9 * np.arange(len(steps))
    rows = zip(value - falls, steps, strict=True)
    return [first, *(Iterate(k, v, size, s, k, 0) for k, (v, s) in enumerate(rows, start=1))]


def test_a_search_in_the_noise_of_runs_ends():
    """Steps shrink, J falls by less than the tolerance of its runs, its gradient does not."""
    rule, shrinking = Stopping(noise=1e-6), 0.5 ** np.arange(7)
    why = rule.reason(searching(-1.0, 5.0, shrinking), math.nan, math.nan)[1]
    assert why[0] == "DIVERGED_STAGNATION"
    assert "less than the tolerance of its runs" in why[1]
    goes_on = [
        (Stopping(), searching(-1.0, 5.0, shrinking)),  # steps that are fixed
        (Stopping(noise=1e-9), searching(-1.0, 5.0, shrinking)),
        (rule, searching(-1.0, 5.0, shrinking[:6])),
        (rule, searching(-1.0, 5.0, np.ones(7))),
        (rule, [*searching(-1.0, 5.0, shrinking[:6]), Iterate(7, -1.0, 2.0, 1e-3, 7, 0)]),
    ]
    for other, iterates_ in goes_on:
        assert other.reason(iterates_, math.nan, math.nan)[1] is None


def noisy(x):
    """A value of 100 whose last digits say nothing, as those of sums over a run."""
    moved = x - TARGET
    noise = 1e-12 * np.sin(1e9 * moved.sum())
    value = 100.0 + 0.5 * float(STIFFNESS @ moved**2) + 0.1 * float(np.sum(moved**4)) + noise
    return value, STIFFNESS * moved + 0.4 * moved**3 + 1e-6 * np.cos(1e9 * moved)


def test_a_search_that_only_rounds_ends():
    result = minimize(Closed(noisy, START))
    assert result.reason == "CONVERGED_ROUNDING"
    assert result.converged
    assert result.evaluations < 100
    # the noise of the gradient is 1e-6, and a norm that is not halved any more ends the search
    np.testing.assert_allclose(gather(result.x), TARGET, atol=2e-6)


def vaccination():
    """Return the cost of an epidemic by the rates of vaccination in eight weeks."""
    rate = PiecewiseConstant(np.linspace(0.0, 56.0, 9))

    def rates(t, u, p):
        new, given = p[0] * u[0] * u[1], rate(t, p[2:]) * u[0]
        return np.array([-new - given, new - p[1] * u[1]])

    names = rate.names("v")
    problem = ODE(rates, 2, ["beta", "gamma", *names], breakpoints=rate.breakpoints)
    cost = Running(lambda t, u, p: 10.0 * u[1] + 30.0 * rate(t, p[2:]) ** 2)
    entries = {name: Parameter(0.01, lower=0.0, upper=0.02) for name in names}
    control = Parameters({"beta": 0.35, "gamma": 0.15, **entries}, [0.95, 0.02])
    return Reduced(problem, cost, Stepping((0.0, 56.0), rtol=1e-8), control)


def test_a_search_within_narrow_bounds_that_only_rounds_has_converged():
    """Their width cuts the first gradient norms: the last one does not look small beside them."""
    functional = vaccination()
    result = minimize(functional)
    # by the last digit of J, which hangs on the processor, or by a gradient that met its tolerance
    assert result.reason in {"CONVERGED_ROUNDING", "CONVERGED_GATOL"}
    # SciPy's L-BFGS-B, of runs by DOP853 at 1e-12
    optimum = [0.02, 0.02, 0.02, 0.02, 0.02, 0.0172228, 0.0044907, 0.0004964]
    np.testing.assert_allclose(gather(result.x), optimum, atol=1e-7)


@pytest.mark.parametrize("method", ["lmvm", "bqnls", "blmvm", "bncg", "nls"])
def test_a_search_along_a_wrong_gradient_has_not_converged(method):
    def wrong(x):
        value, gradient = noisy(x)
        return value, gradient + 1e-2

    result = minimize(Curved(wrong, START, hessian=lambda x: np.diag(STIFFNESS)), method=method)
    assert not result.converged


@pytest.mark.parametrize("asked", [{"gradient_tolerance": 1e-9}, {"options": {"tao_gatol": 1e-9}}])
def test_who_asks_for_a_smaller_gradient_is_not_told_of_rounding(asked):
    assert minimize(Closed(noisy, START), **asked).reason != "CONVERGED_ROUNDING"


@pytest.mark.mpi
def test_the_free_gradient_leaves_out_what_bounds_hold():
    functional = Closed(quadratic, START, comm=PETSc.COMM_WORLD)
    x = functional.vector([0.0, 0.0, 1.0, 1.0, 0.5, 0.0, 1.0])
    gradient = functional.vector([1.0, -1.0, -2.0, 2.0, 5.0, 0.0, 1.0])
    limits = functional.vector(0.0), functional.vector(1.0)
    # not cut by the width of the bounds, as the projected one is
    assert free_norm(x, gradient, limits) == pytest.approx(math.sqrt(31.0), rel=1e-14)
    assert free_norm(x, gradient, None) == pytest.approx(6.0, rel=1e-14)
    assert projected_norm(x, gradient, limits) == pytest.approx(math.sqrt(3.25), rel=1e-14)


@pytest.mark.mpi
def test_measure_is_the_same_on_every_rank(comm):
    vec = scatter(START, PETSc.Vec().createMPI(N, comm=PETSc.COMM_WORLD))
    rule = Stopping(scaled_gradient=1.0, typical_x=vec, typical_value=2.0)
    measures = comm.allgather(rule.scaled_norm(vec, vec, None, 2.0))
    assert measures == [pytest.approx(0.5 * START.max() ** 2)] * MPI.COMM_WORLD.size
