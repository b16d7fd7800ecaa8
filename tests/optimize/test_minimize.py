"""Minimisation by TAO against problems with closed-form minima."""

import math
import re
import traceback

import numpy as np
import pytest
import scipy.optimize
from closed import DOMAINS, TARGET, Closed, N, mixed, quadratic, rosenbrock
from leaks import left_behind
from mpi4py import MPI
from petsc4py import PETSc

import daeosens as ds
from daeosens.errors import InputError, OptionError, SolveError
from daeosens.optimize import minimize
from daeosens.optimize.methods import FIRST_ORDER as METHODS
from daeosens.optimize.methods import REASONS, UNBOUNDED
from daeosens.optimize.result import Iterate
from daeosens.optimize.start import limits_of
from daeosens.petsc import gather, scatter

BOUNDED = [name for name in METHODS if name not in UNBOUNDED]


def far_rosenbrock(**extra):
    return Closed(rosenbrock, [-1.2, 1.0], **extra)


# ---- minima --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_rosenbrock_minimum_is_found(method):
    result = minimize(far_rosenbrock(), method=method, gradient_tolerance=1e-10)
    assert result.converged
    assert result.reason == "CONVERGED_GATOL"
    assert result.gradient_norm <= 1e-10
    assert result.value < 1e-18
    np.testing.assert_allclose(result.x.getArray(), 1.0, atol=1e-8)


@pytest.mark.parametrize("method", BOUNDED)
def test_active_set_of_a_quadratic_is_found(method):
    functional = Closed(quadratic, np.zeros(N), bounds=(-1.0, 0.6))
    result = minimize(functional, method=method, gradient_tolerance=1e-12)
    exact = np.clip(TARGET, -1.0, 0.6)
    assert result.converged
    np.testing.assert_allclose(result.x.getArray(), exact, atol=1e-12)
    assert result.value == pytest.approx(quadratic(exact)[0], rel=1e-13)
    active = (TARGET < -1.0) | (TARGET > 0.6)
    np.testing.assert_array_equal(result.x.getArray()[active], exact[active])


@pytest.mark.parametrize("method", BOUNDED)
def test_bounded_rosenbrock_minimum_lies_on_the_bound(method):
    # with x1 <= 1/2: 200 a (a^2 - 1/2) = 1 - a, real root near 0.7
    a = max(np.roots([200.0, 0.0, -99.0, -1.0]).real)
    result = minimize(
        far_rosenbrock(),
        [-1.2, 0.4],
        method=method,
        bounds=(None, [math.inf, 0.5]),
        gradient_tolerance=1e-10,
    )
    assert result.converged
    np.testing.assert_allclose(result.x.getArray(), [a, 0.5], atol=1e-10)


@pytest.mark.parametrize("method", BOUNDED)
def test_fixed_variables_stay(method):
    result = minimize(
        Closed(quadratic, np.zeros(N)),
        method=method,
        bounds=([0.0] + [-3.0] * 6, [0.0] + [3.0] * 6),
    )
    np.testing.assert_allclose(result.x.getArray(), [0.0, *TARGET[1:]], atol=1e-8)


@pytest.mark.parametrize("method", BOUNDED)
def test_start_at_the_constrained_minimum_takes_no_iteration(method):
    exact = np.clip(TARGET, -1.0, 0.6)
    result = minimize(Closed(quadratic, exact), method=method, bounds=(-1.0, 0.6))
    assert (result.iterations, result.evaluations) == (0, 1)
    assert result.converged
    assert result.gradient_norm == 0.0


# ---- history, progress, result -------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_history_agrees_with_the_evaluations(method):
    functional = far_rosenbrock()
    result = minimize(functional, method=method)
    history = result.history
    assert len(history.value) == result.iterations + 1
    assert np.all(np.diff(history.value) < 0.0)
    assert history.evaluations.sum() == result.evaluations == len(functional.points)
    assert history.evaluations.min() >= 1
    assert result.failed_solves == history.failed_solves.sum() == 0
    accepted = [functional.points[i - 1] for i in np.cumsum(history.evaluations)]
    np.testing.assert_array_equal(history.value, [rosenbrock(x)[0] for x in accepted])
    np.testing.assert_allclose(
        history.gradient_norm, [np.linalg.norm(rosenbrock(x)[1]) for x in accepted], rtol=1e-13
    )
    np.testing.assert_allclose(
        history.step[1:], np.linalg.norm(np.diff(accepted, axis=0), axis=1), rtol=1e-12
    )
    assert history.step[0] == 0.0
    np.testing.assert_array_equal(result.x.getArray(), accepted[-1])
    assert result.value == history.value[-1]
    assert result.gradient_norm == history.gradient_norm[-1] <= 1e-8


@pytest.mark.parametrize("method", BOUNDED)
def test_gradient_norm_is_that_of_the_projected_gradient(method):
    result = minimize(Closed(quadratic, np.zeros(N)), method=method, bounds=(-1.0, 0.6))
    descended = np.clip(-quadratic(np.zeros(N))[1], -1.0, 0.6)
    assert result.history.gradient_norm[0] == pytest.approx(np.linalg.norm(descended), rel=1e-14)


def test_progress_is_one_aligned_line_per_iterate(capsys):
    result = minimize(far_rosenbrock(), progress=True)
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["iter", "value", "gradient", "step", "evals", "failed", "products"]
    assert len(lines) == result.iterations + 1
    assert {len(line) for line in lines} == {len(heading)}
    assert lines[0] == "     0  2.4200000000e+01  2.329e+02  0.000e+00      1       0         0"


def test_progress_callable_sees_each_iterate():
    seen = []
    result = minimize(
        far_rosenbrock(), progress=lambda iterate, x: seen.append((iterate, x.copy()))
    )
    assert [item.iteration for item, _ in seen] == list(range(result.iterations + 1))
    assert [item.value for item, _ in seen] == list(result.history.value)
    assert all(rosenbrock(x.getArray())[0] == item.value for item, x in seen)


def test_silent_by_default(capsys):
    minimize(far_rosenbrock(), progress=False)
    minimize(far_rosenbrock())
    assert capsys.readouterr().out == ""


def test_result_prints_itself():
    result = minimize(far_rosenbrock())
    shape = r"""minimize: converged after 3\d iterations, \S+ s
  reason         gradient norm within gradient_tolerance \(CONVERGED_GATOL\)
  method         lmvm: limited-memory BFGS
  value          2\.420000e\+01 -> \S+
  gradient norm  2\.329e\+02 -> \S+
  evaluations    \d+"""
    assert re.fullmatch(shape, str(result))
    assert result.seconds > 0.0


def test_every_reason_of_tao_has_words():
    codes = {
        value
        for name, value in vars(PETSc.TAO.ConvergedReason).items()
        if name.startswith(("CONVERGED_", "DIVERGED_")) and value != 0
    }
    assert codes == set(REASONS)
    assert all(getattr(PETSc.TAO.ConvergedReason, REASONS[code][0]) == code for code in codes)


# ---- stopping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("most", [0, 1, 5])
def test_max_iterations_is_exact(method, most):
    result = minimize(far_rosenbrock(), method=method, max_iterations=most)
    assert (result.iterations, result.reason) == (most, "DIVERGED_MAXITS")
    assert not result.converged
    assert f"NOT converged after {most} iteration{'s' * (most != 1)}," in str(result)


@pytest.mark.parametrize("method", METHODS)
def test_relative_gradient_tolerance(method):
    result = minimize(far_rosenbrock(), method=method, relative_gradient_tolerance=1e-3)
    norms = result.history.gradient_norm
    assert result.reason == "CONVERGED_GTTOL"
    assert norms[-1] <= 1e-3 * norms[0] < norms[-2]


@pytest.mark.parametrize("method", METHODS)
def test_value_tolerance(method):
    functional = Closed(lambda x: (1.0 + rosenbrock(x)[0], rosenbrock(x)[1]), [-1.2, 1.0])
    result = minimize(functional, method=method, value_tolerance=1e-4, gradient_tolerance=0.0)
    changes = -np.diff(result.history.value) / result.history.value[:-1]
    assert result.reason == "CONVERGED_USER"
    assert changes[-1] <= 1e-4 < changes[:-1].min()


def test_gradient_relative_to_the_value_is_off_unless_asked_for():
    functional = Closed(lambda x: (1e12 + rosenbrock(x)[0], rosenbrock(x)[1]), [-1.2, 1.0])
    assert minimize(functional, max_iterations=2).reason == "DIVERGED_MAXITS"
    result = minimize(functional, options={"tao_grtol": 1e-8})
    assert (result.iterations, result.reason) == (0, "CONVERGED_GRTOL")


def test_wrong_gradient_ends_in_line_search_failure_with_words():
    functional = Closed(lambda x: (rosenbrock(x)[0], -rosenbrock(x)[1]), [-1.2, 1.0])
    result = minimize(functional)
    assert result.reason == "DIVERGED_LS_FAILURE"
    assert "wrong gradient" in str(result)
    np.testing.assert_array_equal(result.x.getArray(), [-1.2, 1.0])


@pytest.mark.parametrize("method", METHODS)
def test_x_is_the_last_iterate_after_a_failed_line_search(method):
    def uphill(x):
        value, gradient = rosenbrock(x)
        return (value, gradient) if len(functional.points) < 8 else (1e3 + value, gradient)

    functional = far_rosenbrock()
    functional.formula = uphill
    result = minimize(functional, method=method)
    assert result.reason == "DIVERGED_LS_FAILURE"
    assert rosenbrock(result.x.getArray())[0] == result.value == result.history.value[-1]
    assert result.evaluations == len(functional.points) > result.history.evaluations.sum()


def pole(x):
    """Return log |x - 1|, whose line searches fail near the minimum, and its gradient."""
    away = x - 1.0
    return math.log(max(np.linalg.norm(away), 1e-300)), away / max(away @ away, 1e-300)


@pytest.mark.mpi
@pytest.mark.parametrize("comm", [PETSc.COMM_SELF, PETSc.COMM_WORLD])
@pytest.mark.parametrize("start", [0.3, 0.5, 3.0])
def test_the_lowest_point_of_a_failed_line_search_is_kept(start, comm):
    functional = Closed(pole, [start] * 3, comm=comm)
    result = minimize(functional, max_iterations=50)
    seen = [pole(point)[0] for point in functional.points]
    assert result.value == min(seen) < pole(functional.start_values)[0] - 5.0
    assert pole(gather(result.x))[0] == result.value == result.history.value[-1]
    assert (np.diff(result.history.value) < 0.0).all()


def test_the_point_that_is_kept_lies_within_its_bounds():
    functional = Closed(pole, [0.3, 0.3], bounds=([0.0, 0.0], [0.9, 2.0]))
    result = minimize(functional, method="bqnls")
    assert gather(result.x)[0] <= 0.9
    assert result.value <= pole(np.array([0.9, 0.99]))[0]


# ---- options -------------------------------------------------------------------------------------


def test_options_override_arguments():
    result = minimize(far_rosenbrock(), options={"tao_max_it": 3, "tao_type": "bqnls"})
    assert (result.method, result.iterations) == ("bqnls", 3)


@pytest.mark.parametrize("method", METHODS)
def test_line_search_options_reach_tao(method):
    default = minimize(far_rosenbrock(), method=method)
    result = minimize(far_rosenbrock(), method=method, options={"tao_ls_type": "armijo"})
    assert result.evaluations != default.evaluations


def test_evaluation_limit():
    result = minimize(far_rosenbrock(), options={"tao_max_funcs": 10})
    assert result.reason == "DIVERGED_MAXFCN"


def test_option_nobody_reads_is_an_error():
    functional = far_rosenbrock()
    with pytest.raises(OptionError, match="tao_gatoll"):
        minimize(functional, options={"tao_gatoll": 1e-3})
    assert functional.points == []


def test_option_for_something_else_is_an_error_after_one_iteration_at_most():
    functional = far_rosenbrock()
    with pytest.raises(OptionError, match="ts_dt = 1"):
        minimize(functional, options={"ts_dt": 1})
    assert functional.points == []
    with pytest.raises(OptionError, match="mat_lmvm_hist_size = 3"):
        minimize(functional, options={"mat_lmvm_hist_size": 3})
    assert len(functional.points) < 10
    right = minimize(functional, options={"tao_lmvm_mat_lmvm_hist_size": 3})
    assert right.converged
    assert right.evaluations != minimize(functional).evaluations


@pytest.mark.parametrize("name", ["tao_type", "tao_ls_type", "tao_lmvm_mat_lmvm_J0_pc_type"])
def test_option_value_that_petsc_refuses(name):
    functional = far_rosenbrock()
    with pytest.raises(OptionError, match=rf"{name.lower()} = nonsense: Unable to find"):
        minimize(functional, options={name: "nonsense"})
    assert functional.points == []
    assert minimize(functional).converged


def test_views_are_printed(capfd):
    minimize(far_rosenbrock(), options={"tao_view": None, "tao_converged_reason": None})
    out = capfd.readouterr().out
    assert "Tao Object" in out
    assert "CONVERGED_GATOL" in out


def test_nonmonotone_search_may_go_uphill():
    options = {"tao_ls_type": "armijo", "tao_ls_armijo_memory_size": 5}
    result = minimize(far_rosenbrock(), method="bqnls", options=options)
    assert result.converged
    assert np.diff(result.history.value).max() > 0.0


def test_option_cannot_smuggle_in_another_type():
    functional = far_rosenbrock()
    with pytest.raises(InputError, match="unknown method 'cg'"):
        minimize(functional, options={"tao_type": "cg"})
    with pytest.raises(InputError, match='method "lmvm" ignores bounds'):
        minimize(functional, method="blmvm", bounds=(-2, 2), options={"tao_type": "lmvm"})
    assert functional.points == []


# ---- failed solves -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_failed_solves_are_survived(method, domain):
    functional = far_rosenbrock(domain=domain)
    result = minimize(functional, method=method)
    failed = sum(not domain(point) for point in functional.points)
    assert result.converged
    np.testing.assert_allclose(result.x.getArray(), 1.0, atol=1e-6)
    assert result.failed_solves == failed
    assert result.history.failed_solves.sum() <= failed
    assert (f"{failed} of them failed solves" in str(result)) == (failed > 0)
    assert domain(result.x.getArray())


def without(points, *, radius=0.02):
    """A domain that lacks a ball around each second point."""
    holes = points[1:8:3]
    return lambda x: all(np.linalg.norm(x - hole) > radius for hole in holes)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("search", ["more-thuente", "armijo"])
def test_failure_of_the_first_trial_is_survived(method, search):
    options = {"tao_ls_type": search}
    undisturbed = far_rosenbrock()
    minimize(undisturbed, method=method, options=options, gradient_tolerance=1e-6)
    functional = far_rosenbrock(domain=without(undisturbed.points))
    result = minimize(functional, method=method, options=options, gradient_tolerance=1e-6)
    assert result.failed_solves > 0
    assert result.history.failed_solves[1] > 0
    assert result.converged
    np.testing.assert_allclose(result.x.getArray(), 1.0, atol=1e-5)


@pytest.mark.parametrize("method", BOUNDED)
def test_failed_solves_with_bounds(method):
    functional = Closed(quadratic, np.zeros(N), domain=lambda x: np.all(np.abs(x) < 1.1))
    result = minimize(functional, method=method, bounds=(-5.0, 1.0))
    assert not result.converged or result.failed_solves > 0
    inside = Closed(quadratic, np.zeros(N), domain=lambda x: x[0] > -1.6)
    result = minimize(inside, method=method, bounds=(-5.0, 1.0), gradient_tolerance=1e-10)
    assert result.converged
    np.testing.assert_allclose(result.x.getArray(), np.minimum(TARGET, 1.0), atol=1e-9)


@pytest.mark.parametrize("number", [{}, {"tao_ls_gtol": 0.5}])
def test_line_search_is_as_strict_as_before_after_a_failed_solve(number):
    def recorded(x):
        value, gradient = rosenbrock(x)
        slopes.append((x, gradient))
        return value, gradient

    slopes = []
    functional = Closed(recorded, [-1.2, 1.0], domain=lambda x: np.hypot(*x) < 1.6)
    whole = {"tao_ls_stepinit": 1.0}  # the gradient as it is, which leaves the domain
    result = minimize(functional, options={**whole, **number})
    assert result.failed_solves > 0
    ends = np.cumsum(result.history.evaluations - result.history.failed_solves) - 1
    accepted = [slopes[end] for end in ends]
    for k in np.flatnonzero(result.history.failed_solves[1:] == 0):
        (before, first), (after, last) = accepted[k : k + 2]
        direction = after - before
        assert abs(last @ direction) <= number.get("tao_ls_gtol", 0.9) * abs(first @ direction)


def cliff(x):
    """Falls ever more steeply to the wall x0 = 1, minimum in x1."""
    return -np.exp(x[0]) + x[1] ** 2, np.array([-np.exp(x[0]), 2.0 * x[1]])


@pytest.mark.parametrize("method", METHODS)
def test_wall_is_approached_where_the_functional_falls_towards_it(method):
    functional = Closed(cliff, [0.0, 1.0], domain=lambda x: x[0] < 1.0)
    result = minimize(functional, method=method)
    assert (f", restarts: {result.restarts}" in str(result)) == (result.restarts > 0)
    assert result.evaluations < 1000
    assert result.value < -2.5
    assert result.x.getArray()[0] < 1.0
    assert not result.converged
    assert np.all(np.diff(result.history.value) < 0.0)
    assert result.evaluations == len(functional.points)
    assert "before solves failed" in result.message


def test_line_search_that_cannot_come_back_says_so():
    functional = Closed(cliff, [0.0, 1.0], domain=lambda x: x[0] < 1.0)
    with pytest.raises(SolveError, match='line search "unit" cannot come back: no solution at'):
        minimize(functional, options={"tao_ls_type": "unit"})


@pytest.mark.parametrize("method", METHODS)
def test_wall_far_below_rounding_of_the_value_is_never_accepted(method):
    def shifted(x):
        return 1e9 + np.sum(np.cosh(x)), np.sinh(x)

    functional = Closed(shifted, [4.0, 3.0], domain=lambda x: np.all(x > -1e-3))
    result = minimize(functional, method=method, gradient_tolerance=1e-4)
    assert np.all(result.x.getArray() > -1e-3)
    assert result.failed_solves > 0
    assert result.value == shifted(result.x.getArray())[0]


def test_value_that_is_not_finite_is_a_failed_solve():
    def logarithm(x):
        with np.errstate(invalid="ignore"):
            return np.sum(x - np.log(x)), 1.0 - 1.0 / x

    result = minimize(Closed(logarithm, [5.0, 0.3]))
    np.testing.assert_allclose(result.x.getArray(), 1.0, atol=1e-8)
    assert result.failed_solves > 0


def test_failure_at_the_start_is_an_error():
    functional = far_rosenbrock(domain=lambda x: False)
    with pytest.raises(SolveError, match=r"at the start: no solution at -1\.20") as caught:
        minimize(functional)
    assert "no solution" in str(caught.value.__cause__)
    with pytest.raises(SolveError, match="at the start: value nan with a gradient of norm"):
        minimize(Closed(lambda x: (math.nan, x), [1.0]))


# ---- exceptions ----------------------------------------------------------------------------------


class PrivateError(Exception):
    pass


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("when", [1, 2, 6])
def test_exceptions_come_out_as_raised(method, when):
    def faulty_formula(x):
        if len(functional.points) == when:
            raise PrivateError(when)
        return rosenbrock(x)

    functional = far_rosenbrock()
    functional.formula = faulty_formula
    with pytest.raises(PrivateError) as caught:
        minimize(functional, method=method)
    assert caught.value.args == (when,)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "faulty_formula"
    assert "PETSc.Error" not in "".join(traceback.format_exception(caught.value))
    functional.formula = rosenbrock
    assert minimize(functional, method=method).converged


def test_exception_of_progress_comes_out_as_raised():
    def stop(iterate, x):
        raise PrivateError(iterate.iteration)

    with pytest.raises(PrivateError, match="0"):
        minimize(far_rosenbrock(), progress=stop)


def test_errors_of_petsc_itself_come_out():
    functional = far_rosenbrock()
    functional.vector = lambda values: PETSc.Vec().createWithArray(
        np.append(values, 0.0) if len(functional.points) == 2 else np.array(values, dtype=float),
        comm=PETSc.COMM_SELF,
    )
    with pytest.raises(PETSc.Error):
        minimize(functional)
    with pytest.raises(OptionError, match="tao_view = nonsense: Unsupported viewer nonsense"):
        minimize(far_rosenbrock(), options={"tao_view": "nonsense"})


def test_bounds_choose_a_method_that_keeps_them():
    limits = None, ([-2.0, -2.0], [0.5, 2.0])
    free, bounded = (minimize(far_rosenbrock(), bounds=bounds) for bounds in limits)
    assert (free.method, bounded.method) == ("lmvm", "bqnls")
    assert np.allclose(free.x, 1.0)
    # the valley y = x^2 meets x <= 0.5
    assert np.allclose(bounded.x, [0.5, 0.25])
    assert bounded.converged


# ---- bad input -----------------------------------------------------------------------------------

BAD = {
    "method": ({"method": "lbfgs"}, r"unknown method 'lbfgs'; expected: \"lmvm\", .*\"brgn\""),
    "misspelt": ({"method": "bqnsl"}, 'try: "bqnls"'),
    "ignored bounds": (
        {"method": "lmvm", "bounds": (-2, 2)},
        'method "lmvm" ignores bounds, .*try: "blmvm", "bqnls", "bncg"',
    ),
    "outside": (
        {"method": "blmvm", "bounds": (-1, 1)},
        r"start\(\) = -1\.2 at index 0 lies outside its bounds \[-1, 1\]",
    ),
    "x0 outside": (
        {"x0": [0.0, 2.5], "method": "blmvm", "bounds": (-1, [1, 2])},
        r"x0 = 2\.5 at index 1 lies outside its bounds \[-1, 2\]",
    ),
    "nan": ({"x0": [1.0, np.nan]}, "x0 is nan at index 1"),
    "inf": ({"x0": [np.inf, 1.0]}, "x0 is inf at index 0"),
    "crossed bounds": ({"method": "bncg", "bounds": (1, [3, 0])}, r"bounds \[1, 0\] at index 1"),
    "nan bound": ({"method": "bncg", "bounds": ([-9, np.nan], 3)}, r"bounds \[nan, 3\] at index 1"),
    "shape": ({"x0": [1.0, 2.0, 3.0]}, r"x0 has shape \(3,\)(.|\n)*shape \(2,\)"),
    "bound shape": (
        {"method": "bncg", "bounds": (None, np.ones((2, 2)))},
        r"the upper bound has shape \(2, 2\)",
    ),
    "words": ({"x0": ["a", "b"]}, "x0 is not an array of real numbers"),
    "bounds": ({"method": "bncg", "bounds": 3.0}, r"bounds = 3\.0(.|\n)*\(lower, upper\)"),
    "tolerance": ({"gradient_tolerance": -1.0}, "gradient_tolerance = -1.0; expected: a finite"),
    "nan tolerance": ({"value_tolerance": np.nan}, "value_tolerance = nan; expected: a finite"),
    "bool": ({"relative_gradient_tolerance": True}, "relative_gradient_tolerance = True"),
    "iterations": ({"max_iterations": 1.5}, "max_iterations = 1.5; expected: an integer"),
    "progress": ({"progress": 3}, "progress = 3; expected"),
    "restart": ({"restart": 3}, "restart = 3; expected: the path of a file"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_named_before_the_first_evaluation(arguments, message):
    functional = far_rosenbrock()
    with pytest.raises(InputError, match=message):
        minimize(functional, **arguments)
    assert functional.points == []


def test_a_function_is_no_functional():
    with pytest.raises(InputError, match=r"functional is function\n  expected: Reduced"):
        minimize(lambda x: x @ x, [1.0])


@pytest.mark.parametrize("method", ["start", "value_and_gradient"])
def test_a_functional_that_returns_numpy_arrays_is_named(method):
    functional = far_rosenbrock()
    array = np.zeros(2)
    setattr(functional, method, lambda *_: array if method == "start" else (1.0, array))
    with pytest.raises(InputError, match=rf"Closed.{method}\(\) returned ndarray"):
        minimize(functional)


def test_vector_of_another_size_is_refused():
    with pytest.raises(InputError, match=r"x0 has size 3(.|\n)*size 2"):
        minimize(far_rosenbrock(), PETSc.Vec().createSeq(3, comm=PETSc.COMM_SELF))


def test_all_complaints_come_together():
    with pytest.raises(InputError) as caught:
        minimize(far_rosenbrock(), [math.nan, 1.0], method="bqnl", max_iterations=-1)
    assert "3 problems" in str(caught.value)


def test_bounds_of_the_functional_count_unless_infinite():
    with pytest.raises(InputError, match="ignores bounds"):
        minimize(far_rosenbrock(bounds=(-2.0, np.inf)), method="lmvm")
    assert minimize(far_rosenbrock(bounds=(-np.inf, np.inf)), method="lmvm").converged
    bounded = far_rosenbrock(bounds=(-2.0, 2.0))
    assert minimize(bounded, method="lmvm", bounds=(None, None)).converged


def test_arguments_are_not_changed():
    functional = far_rosenbrock()
    x0 = functional.vector([-1.2, 1.0])
    lower, upper = functional.vector(-1.5), functional.vector(0.9)
    state = [vec.stateGet() for vec in (x0, lower, upper)]
    with pytest.raises(InputError, match="outside"):
        minimize(functional, x0, method="bqnls", bounds=(lower, upper))
    upper.set(1.5)
    state = [vec.stateGet() for vec in (x0, lower, upper)]
    result = minimize(functional, x0, method="bqnls", bounds=(lower, upper))
    assert [vec.stateGet() for vec in (x0, lower, upper)] == state
    again = minimize(functional, result.x, method="bqnls", bounds=(lower, upper))
    assert again.iterations == 0


# ---- several ranks -------------------------------------------------------------------------------


def coupled(x):
    """A tridiagonal quadratic without the separability of ``quadratic``."""
    matrix = 3.0 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1)
    return 0.5 * x @ matrix @ x - TARGET @ x, matrix @ x - TARGET


def assert_same(spread, alone):
    assert spread.converged
    assert alone.converged
    np.testing.assert_allclose(gather(spread.x), alone.x.getArray(), rtol=0, atol=1e-9)
    n = min(len(spread.history.value), len(alone.history.value), 15)
    assert n > 5
    np.testing.assert_allclose(spread.history.value[:n], alone.history.value[:n], rtol=1e-8)
    np.testing.assert_array_equal(spread.history.evaluations[:n], alone.history.evaluations[:n])
    numbers = (spread.iterations, spread.evaluations, spread.value, spread.gradient_norm)
    assert len(set(MPI.COMM_WORLD.allgather(numbers))) == 1


@pytest.mark.mpi
@pytest.mark.parametrize("method", METHODS)
def test_same_history_on_any_number_of_ranks(method):
    start = np.linspace(-0.5, 0.8, N)
    extra = {"method": method, "gradient_tolerance": 1e-10}
    spread = minimize(Closed(mixed, start, comm=PETSc.COMM_WORLD), **extra)
    assert_same(spread, minimize(Closed(mixed, start), **extra))
    np.testing.assert_allclose(gather(spread.x), 1.0, atol=1e-8)


@pytest.mark.mpi
@pytest.mark.parametrize("method", BOUNDED)
def test_same_active_set_on_any_number_of_ranks(method):
    extra = {"method": method, "gradient_tolerance": 1e-10, "bounds": (-0.4, 0.3)}
    start = 0.25 * np.cos(np.arange(N))
    spread = minimize(Closed(coupled, start, comm=PETSc.COMM_WORLD), **extra)
    assert_same(spread, minimize(Closed(coupled, start), **extra))
    # the signs of the gradient certify the minimum: the functional is convex
    x, gradient = gather(spread.x), coupled(gather(spread.x))[1]
    assert np.all(gradient[x == -0.4] > 0.1)
    assert np.all(gradient[x == 0.3] < -0.1)
    inside = (x > -0.4) & (x < 0.3)
    assert np.abs(gradient[inside]).max() < 1e-10
    assert 0 < inside.sum() < N


@pytest.mark.mpi
@pytest.mark.parametrize("method", METHODS)
def test_failed_solves_on_any_number_of_ranks(method):
    start = np.linspace(-0.5, 0.8, N)
    undisturbed = Closed(mixed, start)
    minimize(undisturbed, method=method)
    domain = without(undisturbed.points)
    extra = {"method": method, "gradient_tolerance": 1e-10}
    spread = minimize(Closed(mixed, start, comm=PETSc.COMM_WORLD, domain=domain), **extra)
    assert_same(spread, minimize(Closed(mixed, start, domain=domain), **extra))
    assert spread.failed_solves > 0
    np.testing.assert_allclose(gather(spread.x), 1.0, atol=1e-8)


@pytest.mark.mpi
def test_bad_input_is_an_error_on_every_rank():
    functional = Closed(quadratic, np.zeros(N), comm=PETSc.COMM_WORLD)
    messages = []
    bad = functional.vector(np.where(np.arange(N) == N - 1, np.nan, 0.0))
    for arguments in (
        {"x0": bad},
        {"x0": [7.0] * N, "method": "blmvm", "bounds": (-1.0, [9.0] * (N - 1) + [6.5])},
        {"method": "newton"},
    ):
        with pytest.raises(InputError) as caught:
            minimize(functional, **arguments)
        messages.append(str(caught.value))
    assert f"x0 is nan at index {N - 1}" in messages[0]
    assert f"x0 = 7 at index {N - 1} lies outside its bounds [-1, 6.5]" in messages[1]
    assert len(set(MPI.COMM_WORLD.allgather(tuple(messages)))) == 1
    assert functional.points == []


@pytest.mark.mpi
def test_progress_is_written_by_rank_0_only(capfd):
    functional = Closed(mixed, np.zeros(N), comm=PETSc.COMM_WORLD)
    minimize(functional, progress=True)
    assert bool(capfd.readouterr().out) == (MPI.COMM_WORLD.rank == 0)


@pytest.mark.mpi(min_size=2)
def test_layouts_that_differ_are_named():
    functional = Closed(quadratic, np.zeros(N), comm=PETSc.COMM_WORLD)
    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    other = PETSc.Vec().createMPI((N - size + 1 if rank == 0 else 1, N), comm=PETSc.COMM_WORLD)
    expected = list(MPI.COMM_WORLD.allgather(functional.start().getLocalSize()))
    with pytest.raises(InputError, match="x0 is distributed as") as caught:
        minimize(functional, other)
    assert str(expected) in str(caught.value)


@pytest.mark.mpi(min_size=2)
def test_vector_of_another_communicator_is_refused():
    functional = Closed(quadratic, np.zeros(N), comm=PETSc.COMM_WORLD)
    with pytest.raises(InputError, match="x0 lives on 1 ranks"):
        minimize(functional, PETSc.Vec().createSeq(N, comm=PETSc.COMM_SELF))


# ---- memory --------------------------------------------------------------------------------------

LEAK = """
from tests.optimize.test_minimize import *
for method in METHODS:
    result = minimize(far_rosenbrock(domain=DOMAINS["disc"]), method=method)
    result.x.destroy()
    try:
        minimize(far_rosenbrock(), method=method, progress=lambda iterate, x: 1 / 0)
    except ZeroDivisionError:
        pass
del result
"""


@pytest.mark.slow
def test_no_petsc_object_is_left_behind():
    assert left_behind(LEAK) == []


def test_iterate_prints_its_line():
    assert str(Iterate(12, -1.5, 1e-3, 0.25, 20, 1)) == (
        "    12 -1.5000000000e+00  1.000e-03  2.500e-01     20       1         0"
    )


@pytest.mark.parametrize("method", ["lmvm", "blmvm", "bncg", "bqnls"])
def test_functional_without_a_minimum_ends_with_a_result(method):
    """PETSc 3.26 raises from inside its line search; what was reached is not lost."""

    class Falling:
        comm = PETSc.COMM_SELF

        def start(self):
            return PETSc.Vec().createWithArray([1.0, 0.5], comm=self.comm)

        def bounds(self):
            return None

        def value_and_gradient(self, x):
            gradient, values = x.duplicate(), x.getArray(readonly=True)
            gradient.setArray(-3 * values**2)
            return float(-(values**3).sum()), gradient

    result = minimize(Falling(), method=method)
    assert not result.converged
    assert result.reason == "DIVERGED_LS_FAILURE"
    assert "fall without end" in result.message
    assert result.value == -1.125


@pytest.mark.parametrize(
    "bounds",
    [
        [(-1.0, 0.6)] * N,
        tuple([(-1.0, 0.6)] * N),
        np.array([(-1.0, 0.6)] * N),
        scipy.optimize.Bounds(-1.0, 0.6),
        scipy.optimize.Bounds([-1.0] * N, [0.6] * N),
    ],
)
def test_bounds_are_taken_as_scipy_takes_them(bounds):
    result = minimize(
        Closed(quadratic, np.zeros(N)), method="blmvm", bounds=bounds, gradient_tolerance=1e-12
    )
    np.testing.assert_allclose(result.x.getArray(), np.clip(TARGET, -1.0, 0.6), atol=1e-12)


def test_pairs_with_none_have_no_bound_there():
    pair = scatter([0.0, 0.0], PETSc.Vec().createSeq(2))
    for bounds in ([(None, 1.0), (2.0, None)], ((None, 1.0), (2.0, None))):
        limits = limits_of(bounds, pair)
        assert limits is not None
        assert [side.array.tolist() for side in limits] == [[-np.inf, 2.0], [1.0, np.inf]]
    sides = limits_of(([0.0, 1.0], [2.0, 3.0]), pair)
    assert sides is not None
    assert [side.array.tolist() for side in sides] == [[0.0, 1.0], [2.0, 3.0]]


def test_two_pairs_that_could_be_lower_and_upper_are_refused():
    pair = scatter([0.0, 0.0], PETSc.Vec().createSeq(2))
    with pytest.raises(
        InputError, match=r"could be \(lower, upper\) or two pairs(.|\n)*list of pairs"
    ):
        limits_of(((0.0, 1.0), (0.0, 2.0)), pair)


def network(seed):
    """A neural ODE of 1802 parameters, u' = W2 tanh(W1 u^3 + b1) + b2, fitted to a spiral."""
    hidden, rng = 360, np.random.default_rng(seed)
    model = ds.trace(
        lambda t, u, p: p.W2 @ np.tanh(p.W1 @ u**3 + p.b1) + p.b2,
        2,
        {"W1": (hidden, 2), "b1": (hidden,), "W2": (2, hidden), "b2": (2,)},
    )
    stepping = ds.Stepping((0.0, 1.5), "rk4", dt=0.05)
    spiral = ds.trace(lambda t, u, p: np.array([[-0.1, 2.0], [-2.0, -0.1]]) @ u**3, 2)
    times = np.arange(1, 31) * 0.05
    data = ds.solve(spiral, [2.0, 0.0], None, ds.Stepping((0.0, 1.5), "rk4", dt=0.005), times)
    start = {
        "W1": ds.Parameter(0.1 * rng.normal(size=(hidden, 2))),
        "b1": ds.Parameter(np.zeros(hidden)),
        "W2": ds.Parameter(0.1 * rng.normal(size=(2, hidden))),
        "b2": ds.Parameter(np.zeros(2)),
    }
    control = ds.Parameters(start, initial_state=[2.0, 0.0])
    return ds.Reduced(model, ds.LeastSquares(times, data.at(times)), stepping, control)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_lmvm_fits_a_neural_ode_as_well_as_scipy(seed):
    """Its first step used to be the whole gradient, into weights where tanh is saturated."""
    functional = network(seed)
    assert functional.start().size == 1802
    ours = minimize(functional, method="lmvm", max_iterations=60)
    fun, jac, _, x0, _ = ds.optimize.scipy_functions(functional)
    theirs = scipy.optimize.minimize(fun, x0, jac=jac, method="L-BFGS-B", options={"maxiter": 60})
    assert ours.iterations == 60
    assert ours.value < 10.0 * theirs.fun
    assert ours.value < 0.05 * ours.history.value[0]
    assert ours.evaluations < 1.5 * theirs.nfev


def test_the_first_step_of_lmvm_does_not_depend_on_the_units():
    def steep(x):
        return 0.5e6 * float((x - 1.0) @ (x - 1.0)) + 1e6, 1e6 * (x - 1.0)

    result = minimize(Closed(steep, np.zeros(3)), method="lmvm", max_iterations=1)
    assert result.history.evaluations.tolist() == [1, 1]
    chosen = {"tao_ls_stepinit": 1e-6}  # the user's own is taken
    again = minimize(Closed(steep, np.zeros(3)), method="lmvm", max_iterations=1, options=chosen)
    np.testing.assert_allclose(again.x.array, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "told"), [(1.0, False), (1e-9, True)])
def test_a_cost_in_small_units_is_told_to_have_met_an_absolute_tolerance(scale, told):
    """At 1e-9 the gradient at the start, far from the minimum log(2), is below the tolerance."""
    decay = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["k"])
    cost = ds.Terminal(lambda t, u, p: scale * (u[0] - 0.5) ** 2)
    control = ds.Parameters({"k": ds.Parameter(3.0)}, [1.0])
    functional = ds.Reduced(decay, cost, ds.Stepping((0.0, 1.0), "rk4", dt=0.05), control)
    result = minimize(functional)
    assert any("gradient_tolerance is absolute" in note for note in result.notes) == told
    assert (abs(result.x.array[0] - np.log(2.0)) < 1e-4) != told
    scaled = minimize(functional, gradient_tolerance=0.0, relative_gradient_tolerance=1e-6)
    assert scaled.x.array[0] == pytest.approx(np.log(2.0), abs=1e-4)
