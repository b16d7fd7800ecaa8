"""Covariances against closed forms; what has none is refused with the combination named."""

import math

import numpy as np
import pytest
from closed import Residual
from closed_forms import Formula, quadratic
from petsc4py import PETSc
from scipy import stats

from daeosens import InputError, Parameter, Parameters, UnsupportedError
from daeosens.inverse.identifiability import identifiability
from daeosens.inverse.uncertainty.covariance import covariance, covariance_from_hessian
from daeosens.inverse.uncertainty.hessian_at_estimate import curvature

NAMES = ("growth", "loss", "share")


def spd(rng, size=3):
    factor = rng.standard_normal((size, size))
    return factor @ factor.T + 0.5 * np.eye(size)


def control(*scales):
    names = NAMES[: len(scales)]
    values = {name: Parameter(1.0, scale=s) for name, s in zip(names, scales, strict=True)}
    return Parameters(values, initial_state=[1.0])


# ---- closed forms --------------------------------------------------------------------------------


@pytest.mark.mpi
def test_linear_regression_has_the_textbook_covariance(rng):
    design = rng.standard_normal((40, 3))
    truth = np.array([1.0, -2.0, 0.5])
    data = design @ truth + 0.3 * rng.standard_normal(40)
    best, squares, *_ = np.linalg.lstsq(design, data)
    functional = Residual(lambda x: (design @ x - data, design), best, comm=PETSc.COMM_WORLD)
    variance = squares[0] / 37
    uncertainty = covariance(
        functional,
        functional.start(),
        hessian="gauss_newton",
        variance=variance,
        degrees_of_freedom=37,
    )
    exact = variance * np.linalg.inv(design.T @ design)
    np.testing.assert_allclose(uncertainty.matrix, exact, rtol=1e-10)
    errors = np.sqrt(np.diag(exact))
    np.testing.assert_allclose(
        uncertainty.correlation, exact / np.outer(errors, errors), rtol=1e-10, atol=1e-14
    )
    reach = stats.t.ppf(0.975, 37) * errors
    intervals = uncertainty.intervals()
    np.testing.assert_allclose(intervals.lower, best - reach, rtol=1e-10)
    np.testing.assert_allclose(intervals.upper, best + reach, rtol=1e-10)
    assert uncertainty.distance < 1e-10


@pytest.mark.mpi
@pytest.mark.parametrize("able", ["hessian", "hessian_product", "gauss_newton_product"])
def test_every_way_to_the_hessian_gives_the_same(able, rng):
    matrix = spd(rng)
    full = quadratic(matrix, [1.0, 2.0, 3.0], comm=PETSc.COMM_WORLD)

    class Only:
        comm, start, bounds = full.comm, full.start, full.bounds
        gradient = full.gradient

    source = {"gauss_newton_product": "hessian_product"}.get(able, able)
    only = Only()
    setattr(only, able, getattr(full, source))
    kind = "gauss_newton" if able.startswith("gauss") else "exact"
    np.testing.assert_allclose(curvature(only, full.start(), kind), matrix, rtol=1e-14)
    uncertainty = covariance(only, full.start(), hessian=kind)
    np.testing.assert_allclose(uncertainty.matrix, np.linalg.inv(matrix), rtol=1e-12)


def test_the_known_variance_of_one_number():
    covariance = covariance_from_hessian([[4.0]], [3.0], ["rate"])
    assert covariance.error("rate") == 0.5
    z = 1.959963984540054
    assert covariance.intervals()["rate"] == pytest.approx((3.0 - z / 2, 3.0 + z / 2), rel=1e-14)
    assert covariance.intervals(0.5)["rate"][1] == pytest.approx(3.0 + 0.5 * 0.6744897501960817)


def test_logarithms_have_log_normal_intervals_and_delta_errors():
    matrix = np.array([[25.0, 5.0], [5.0, 4.0]])
    x = [math.log(2.0), 3.0]
    uncertainty = covariance(
        quadratic(matrix, x, control=control("log", "linear")),
        quadratic(matrix, x).start(),
    )
    inverse = np.linalg.inv(matrix)
    np.testing.assert_allclose(uncertainty.estimate, [2.0, 3.0])
    np.testing.assert_allclose(uncertainty.matrix, inverse * [[4.0, 2.0], [2.0, 1.0]], rtol=1e-13)
    low, high = uncertainty.intervals()["growth"]
    spread = uncertainty.quantile() * math.sqrt(inverse[0, 0])
    assert low == pytest.approx(2.0 * math.exp(-spread))
    assert high == pytest.approx(2.0 * math.exp(spread))
    assert low > 0
    # the correlation is the one of (log growth, loss)
    assert uncertainty.correlation[0, 1] == pytest.approx(-5.0 / 10.0)


def test_badly_scaled_units_do_not_look_unidentifiable(rng):
    matrix = spd(rng)
    units = np.array([1e-9, 1.0, 1e8])
    covariance = covariance_from_hessian(matrix * np.outer(units, units), np.zeros(3), NAMES)
    np.testing.assert_allclose(
        covariance.matrix, np.linalg.inv(matrix) / np.outer(units, units), rtol=1e-9
    )


def test_distance_to_the_minimum_is_in_standard_errors():
    functional = quadratic([[4.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    uncertainty = covariance(functional, functional.vector([0.5, 0.0]))
    assert uncertainty.distance == pytest.approx(1.0)  # a standard error is 1/2
    assert "NOT at a minimum: it lies 1 standard errors away" in repr(uncertainty)


# ---- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_a_parameter_on_its_bound_is_held_there(side, rng):
    matrix = spd(rng)
    bounds = ([-9, 2, -9], 9) if side == "lower" else (-9, [9, 2, 9])
    functional = quadratic(
        matrix, [1.0, 2.0, 3.0], bounds=bounds, control=control("linear", "linear", "log")
    )
    uncertainty = covariance(functional, functional.start())
    assert uncertainty.on_bound == ("loss",)
    others = [0, 2]
    np.testing.assert_allclose(
        uncertainty.scaled[np.ix_(others, others)],
        np.linalg.inv(matrix[np.ix_(others, others)]),
        rtol=1e-12,
    )
    assert not uncertainty.scaled[1].any()
    assert np.isnan(uncertainty.intervals()["loss"]).all()
    assert np.isnan(uncertainty.correlation[1]).all()
    assert "on its bound, held there" in repr(uncertainty)


def test_a_small_parameter_is_not_on_a_bound_of_zero():
    functional = quadratic([[1e24]], [1e-11], bounds=(0.0, 1.0))
    assert not covariance(functional, functional.start()).on_bound


def test_all_parameters_on_bounds_leave_nothing():
    functional = quadratic([[1.0]], [0.0], bounds=(0.0, 1.0))
    uncertainty = covariance(functional, functional.start())
    assert uncertainty.on_bound == ("x[0]",)
    assert uncertainty.scaled.tolist() == [[0.0]]


# ---- refusals ------------------------------------------------------------------------------------


def test_an_indefinite_hessian_names_the_direction():
    saddle = np.array([[1.0, -2.0], [-2.0, 1.0]])  # falls along (1, 1)
    functional = quadratic(saddle, [0.0, 0.0], control=control("log", "linear"))
    with pytest.raises(UnsupportedError, match=r"indefinite.*0\.71 log\(growth\) \+ 0\.71 loss"):
        covariance(functional, functional.start())


def test_a_product_of_two_parameters_cannot_be_told_apart():
    factors = [1.0, -1.0, 0.0]
    matrix = np.diag([0.0, 0.0, 3.0]) + np.outer(np.abs(factors), np.abs(factors))
    with pytest.raises(UnsupportedError) as caught:
        covariance_from_hessian(matrix, np.zeros(3), NAMES, ["log", "log", "linear"])
    assert "the data do not determine growth, loss: " in str(caught.value)
    assert "0.71 log(growth) - 0.71 log(loss)" in str(caught.value)
    assert "share" not in str(caught.value)


def test_a_parameter_without_influence_is_named_alone():
    matrix = np.diag([2.0, 0.0, 1.0])
    with pytest.raises(UnsupportedError, match=r"do not determine loss: .* along loss\n"):
        covariance_from_hessian(matrix, np.zeros(3), NAMES)


def test_a_logarithm_known_to_rounding_is_not_known():
    matrix = np.diag([2.0, 1e-20, -1e-20])
    with pytest.raises(UnsupportedError, match=r"do not determine (loss, share|share, loss)"):
        covariance_from_hessian(matrix, np.zeros(3), NAMES, ["linear", "log", "log"])


def test_two_flat_combinations_are_both_named():
    report = identifiability(np.ones((3, 3)), NAMES)
    assert len(report.unidentifiable) == 2
    assert not report.falling
    np.testing.assert_allclose(report.curvatures, [0.0, 0.0, 3.0], atol=1e-14)
    assert repr(report).count("\n") == 3


def test_a_flat_valley_that_bends_down_is_no_saddle():
    """Away from the minimum by a gradient tolerance, the valley of a * b has a small slope."""
    matrix = np.array([[1.0, 1.0 + 1e-9], [1.0 + 1e-9, 1.0]])
    with pytest.raises(UnsupportedError, match="the data do not determine growth, loss"):
        covariance_from_hessian(matrix, [0.0, 0.0], NAMES[:2])
    matrix[0, 1] = matrix[1, 0] = 1.0 + 1e-6
    with pytest.raises(UnsupportedError, match="the Hessian is indefinite"):
        covariance_from_hessian(matrix, [0.0, 0.0], NAMES[:2])


def test_an_array_will_do_for_the_estimate():
    functional = quadratic([[4.0]], [2.0])
    assert covariance(functional, [2.0]).standard_errors == pytest.approx([0.5])
    with pytest.raises(InputError, match=r"x has shape \(2,\)"):
        covariance(functional, [2.0, 1.0])


def test_nearly_flat_is_judged_by_the_tolerance():
    matrix = np.array([[1.0, 1.0 - 1e-8], [1.0 - 1e-8, 1.0]])
    covariance = covariance_from_hessian(matrix, [0.0, 0.0], NAMES[:2])
    assert covariance.error("growth") == pytest.approx(math.sqrt(0.5e8), rel=1e-6)
    with pytest.raises(UnsupportedError, match="growth, loss"):
        covariance_from_hessian(matrix, [0.0, 0.0], NAMES[:2], tolerance=1e-7)


def test_a_hessian_that_is_not_there_is_named():
    class Plain:
        comm = PETSc.COMM_SELF
        bounds = staticmethod(lambda: None)

    functional = quadratic([[1.0]], [0.0])
    with pytest.raises(UnsupportedError, match='"exact" for a functional without hessian_product'):
        curvature(Plain(), functional.start())
    with pytest.raises(UnsupportedError, match="without gauss_newton_product"):
        curvature(functional, functional.start(), "gauss_newton")
    with pytest.raises(InputError, match="hessian = 'newton'"):
        curvature(functional, functional.start(), "newton")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variance": 0.0}, "variance = 0"),
        ({"variance": math.nan}, "variance = nan"),
        ({"degrees_of_freedom": 0.0}, "degrees_of_freedom = 0"),
    ],
)
def test_bad_numbers_are_refused(change, message):
    functional = quadratic([[1.0]], [0.0])
    with pytest.raises(InputError, match=message):
        covariance(functional, functional.start(), **change)


def test_bad_questions_are_refused():
    covariance = covariance_from_hessian([[1.0]], [0.0], ["growth"])
    with pytest.raises(InputError, match=r'no parameter "grwth"(.|\n)*try: "growth"'):
        covariance.error("grwth")
    with pytest.raises(InputError, match=r"level = 95"):
        covariance.intervals(95.0)
    with pytest.raises(InputError, match="the Hessian is nan at index"):
        covariance_from_hessian([[math.nan]], [0.0], ["growth"])


# ---- words ---------------------------------------------------------------------------------------


def test_the_table_shows_what_is_known():
    covariance = covariance_from_hessian(
        np.diag([100.0, 4.0]), [0.0, 5.0], NAMES[:2], ["log", "linear"], degrees_of_freedom=10
    )
    lines = repr(covariance).splitlines()
    assert lines[1].split() == ["growth", "1", "0.1", "[0.80026,", "1.2496]", "(log)"]
    assert lines[2].split() == ["loss", "5", "0.5", "[3.8859,", "6.1141]"]
    assert lines[3] == "exact Hessian, Student's t, 10 degrees of freedom"
    assert repr(covariance.intervals(0.9)).splitlines()[0].endswith("90 % interval")


def test_hessian_of_a_formula_is_symmetrised():
    lopsided = Formula(
        lambda x: 0.0, lambda x: x, lambda x: np.array([[2.0, 1.0], [0.0, 2.0]]), [0, 0]
    )
    assert curvature(lopsided, lopsided.start())[0, 1] == 0.5
