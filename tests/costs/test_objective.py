"""Objectives: what they are worth on a run, and what is refused before it."""

import numpy as np
import pytest
from distributed import averages, averaging, make
from forms import (
    COSTS,
    DATA,
    DECAY,
    FORMS,
    OBSERVATION_TIMES,
    P0,
    SIGMA,
    T_END,
    U0,
    density,
    make_stepping,
    observe,
    terminal,
)
from petsc4py import PETSc

import daeosens as ds
from daeosens.costs import AtEvent
from daeosens.derivatives import evaluate, gauss_newton_product

PROBLEM = FORMS["rhs"].analytic


@pytest.fixture(scope="module")
def run():
    return ds.solve(PROBLEM, U0, P0, make_stepping("rk4"), OBSERVATION_TIMES)


def states(run, times=OBSERVATION_TIMES):
    return [run.u[run.index(t)] for t in times]


# ---- values --------------------------------------------------------------------------------------


def test_terminal_cost_is_that_of_the_final_state(run):
    assert evaluate(run, ds.Terminal(terminal)) == terminal(T_END, run.u[-1], P0)


def test_running_cost_of_a_constant_is_the_length_of_the_span(run):
    assert evaluate(run, ds.Running(lambda t, u, p: 1.0 + 0 * u[0])) == pytest.approx(
        T_END, rel=1e-14
    )


@pytest.mark.parametrize(
    ("method", "order"), [("rk4", 4), ("rk3bs", 3), ("cn", 2), ("midpoint", 2), ("beuler", 1)]
)
def test_running_cost_converges_with_the_order_of_the_method(method, order):
    """The quadrature of int u^2 dt along the exact solution."""
    fine = np.linspace(0.0, 1.0, 20001)
    values = np.array([DECAY.solution(t) for t in fine]) ** 2
    exact = (values[0] + values[-1] + 4 * values[1::2].sum() + 2 * values[2:-1:2].sum()) / 60000
    errors = []
    for dt in (0.1, 0.05) if order > 1 else (0.01, 0.005):
        run = ds.solve(DECAY.problem, DECAY.u0, DECAY.p, ds.Stepping((0.0, 1.0), method, dt=dt))
        errors.append(abs(evaluate(run, ds.Running(lambda t, u, p: u[0] ** 2)) - exact))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.3)


def test_misfit_of_the_observed_quantity_with_its_noise(run):
    residuals = [
        (observe(t, u, P0) - d) / SIGMA
        for t, u, d in zip(OBSERVATION_TIMES, states(run), DATA, strict=True)
    ]
    expected = 0.5 * np.sum(np.square(residuals))
    assert evaluate(run, COSTS["observations"].objective) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("sigma", [0.5, [0.5, 0.4], [[0.5, 0.4], [0.3, 0.2], [0.7, 0.9]]])
def test_noise_levels_for_all_for_each_quantity_or_for_each_number(run, sigma):
    misfit = ds.LeastSquares(OBSERVATION_TIMES, DATA, sigma, observe=[2, 0])
    u = np.array(states(run))[:, [2, 0]]
    expected = 0.5 * (((u - DATA) / np.array(sigma)) ** 2).sum()
    assert evaluate(run, misfit) == pytest.approx(expected, rel=1e-14)


def test_whole_state_and_single_components_can_be_observed(run):
    whole = np.array(states(run)) + 0.1
    misfit = ds.LeastSquares(OBSERVATION_TIMES, whole)
    assert evaluate(run, misfit) == pytest.approx(0.5 * 9 * 0.01, rel=1e-12)
    data_misfit = ds.LeastSquares(OBSERVATION_TIMES, whole[:, 1], observe=[1])
    assert evaluate(run, data_misfit) == pytest.approx(0.5 * 3 * 0.01, rel=1e-12)
    gradient = ds.adjoint(run, ds.LeastSquares([0.0], [whole[0, 1]], observe=[1])).u0
    np.testing.assert_allclose(gradient, [0.0, U0[1] - whole[0, 1], 0.0], rtol=1e-14)


def test_misfit_keeps_its_numbers_when_the_caller_changes_his(run):
    values = [np.array(OBSERVATION_TIMES), np.array(DATA), np.full(2, 0.3), np.array([2, 0])]
    misfit = ds.LeastSquares(*values[:3], observe=values[3])
    expected = evaluate(run, ds.LeastSquares(OBSERVATION_TIMES, DATA, 0.3, observe=[2, 0]))
    for item in values:
        item[:] = 1
    assert evaluate(run, misfit) == expected


def test_sums_and_multiples_of_sums(run):
    a, b = ds.Terminal(terminal), ds.Running(density)
    value_a, value_b = evaluate(run, a), evaluate(run, b)
    both = 2.0 * (a + 3.0 * b) + b * 0.5 + ds.Prior(P0)
    assert evaluate(run, both) == pytest.approx(2 * value_a + 6.5 * value_b, rel=1e-14)
    assert evaluate(run, -1.0 * a + a) == pytest.approx(0.0, abs=1e-15)
    assert evaluate(run, a - 2.0 * b) == pytest.approx(value_a - 2 * value_b, rel=1e-14)
    assert evaluate(run, -both) == -evaluate(run, both)
    assert evaluate(run, -ds.Prior(P0) - a) == pytest.approx(-value_a, rel=1e-14)
    for wrong in ("2", a):
        with pytest.raises(TypeError):
            a * wrong


@pytest.mark.parametrize("objective", [ds.Terminal(3.0), ds.Running("x"), AtEvent(None, "bounce")])
def test_what_is_no_function_is_named(objective):
    bounce = ds.Event(lambda t, u, p: u[0], name="bounce")
    problem = ds.ODE(lambda t, u, p: -u, 1, events=[bounce])
    with pytest.raises(ds.InputError, match=r"= .*\n  expected: a function \(t, u, p\) -> float"):
        objective.lower(problem, T_END)


def test_times_are_those_of_all_terms_sorted_and_once():
    first, second = ds.LeastSquares([0.5, 1.0], [0, 0]), ds.LeastSquares([0.25, 0.5], [0, 0])
    assert (first + ds.Terminal(terminal) + second).times == (0.25, 0.5, 1.0)
    for objective in (
        ds.Terminal(terminal),
        ds.Running(density),
        ds.Prior(0.0),
        ds.Terminal(terminal) * 2.0,
    ):
        assert objective.times == ()


# ---- distributed observations --------------------------------------------------------------------


@pytest.mark.mpi
def test_misfit_of_vectors_and_of_a_linear_observation():
    case = make(PETSc.COMM_WORLD)
    run = ds.solve(case.problem, case.u0, case.p, ds.Stepping((0.0, 0.1), "rk4", dt=0.02))
    shifted = run.final.copy()
    shifted.shift(0.2)
    whole = ds.LeastSquares([0.1], [shifted], sigma=0.5)
    assert evaluate(run, whole) == pytest.approx(0.5 * 24 * 0.16, rel=1e-12)
    observed = averages(case.ring, shifted)
    partial = ds.LeastSquares([0.1], [observed], sigma=0.5, observe=averaging(case.ring))
    assert evaluate(run, partial) == pytest.approx(0.5 * 12 * 0.16, rel=1e-12)


@pytest.mark.mpi
def test_what_a_distributed_problem_cannot_observe_is_refused():
    case = make(PETSc.COMM_WORLD)
    with pytest.raises(
        ds.UnsupportedError, match=r"arrays for a PETSc-style problem\n  expected: data as"
    ):
        ds.LeastSquares([0.1], [[0.0]], observe=[0]).lower(case.problem, 0.1)
    misfit = ds.LeastSquares([0.1], [case.u0], observe=lambda t, u, p: u)
    with pytest.raises(ds.UnsupportedError, match=r"not a Mat\n(.|\n)*try: arrays as data"):
        misfit.lower(case.problem, 0.1)
    with pytest.raises(ds.InputError, match=r"data\[0\] has size 24\n  expected: 12"):
        ds.LeastSquares([0.1], [case.u0], observe=averaging(case.ring)).lower(case.problem, 0.1)
    short = averages(case.ring, case.u0)
    with pytest.raises(ds.InputError, match=r"data\[1\] has size 12\n  expected: 24"):
        ds.LeastSquares([0.1, 0.2], [case.u0, short]).lower(case.problem, 0.1)


# ---- wrong descriptions --------------------------------------------------------------------------

VECTOR = PETSc.Vec().createSeq(3, comm=PETSc.COMM_SELF)
WRONG = {
    "unsorted": (
        lambda: ds.LeastSquares([0.5, 0.2], [1, 2]),
        r"times decrease: 0\.5 is followed by 0\.2 at index 1(.|\n)*try: sort times and",
    ),
    "no times": (lambda: ds.LeastSquares([], []), r"observation times have shape \(0,\)"),
    "times [1, 2]": (
        lambda: ds.LeastSquares([[1, 2]], [1]),
        r"times have shape \(1, 2\)\n  expected",
    ),
    "NaN time": (
        lambda: ds.LeastSquares([0.1, np.nan], [1, 2]),
        r"observation times is nan at index",
    ),
    "rows": (
        lambda: ds.LeastSquares([0.1, 0.2], [1, 2, 3]),
        r"2 observation times but 3 rows of data\n  expected: as many rows",
    ),
    "infinite": (
        lambda: ds.LeastSquares([0.1, 0.2], [[1, 2], [3, np.inf]]),
        r"data is inf at index \[1, 1\]\n  expected: finite numbers",
    ),
    "number": (lambda: ds.LeastSquares([0.1], 3.0), r"1 observation times but 0 rows of data"),
    "cube": (
        lambda: ds.LeastSquares([0.1], [[[1.0]]]),
        r"data has shape \(1, 1, 1\)\n  expected: shape",
    ),
    "words": (lambda: ds.LeastSquares([0.1], ["high"]), r"data is not an array of real numbers"),
    "sigma 0": (
        lambda: ds.LeastSquares([0.1], [1], sigma=0.0),
        r"sigma = 0\n  expected: sigma > 0",
    ),
    "sigma < 0": (lambda: ds.LeastSquares([0.1], [1], sigma=[-2.0]), r"sigma = -2\n  expected"),
    "sigma shape": (
        lambda: ds.LeastSquares([0.1, 0.2], [[1, 2], [3, 4]], sigma=[1, 2, 3]),
        r"sigma has shape \(3,\)\n  expected: a number, or shape \(2,\) or \(2, 2\)",
    ),
    "sigma of vectors": (
        lambda: ds.LeastSquares([0.1], [VECTOR], sigma=[1.0, 2.0]),
        r"sigma has shape \(2,\)\n  expected: one number for vectors",
    ),
    "columns": (
        lambda: ds.LeastSquares([0.1], [[1, 2]]).lower(PROBLEM, 1.0),
        r"data has 2 columns but 3 components are observed(.|\n)*try: observe=\[indices\]",
    ),
    "index": (
        lambda: ds.LeastSquares([0.1], [[1, 2]], observe=[0, 3]).lower(PROBLEM, 1.0),
        r"observe = \[0, 3\]\n  expected: indices from 0 to 2",
    ),
    "negative": (
        lambda: ds.LeastSquares([0.1], [[1]], observe=[-1]).lower(PROBLEM, 1.0),
        r"observe = \[-1\]\n  expected: indices from 0 to 2",
    ),
    "no index": (
        lambda: ds.LeastSquares([0.1], [[1]], observe=[0.5]).lower(PROBLEM, 1.0),
        r"observe = \[0\.5\]\n  expected: indices",
    ),
}


@pytest.mark.parametrize(("describe", "message"), WRONG.values(), ids=WRONG)
def test_wrong_descriptions_are_named(describe, message):
    with pytest.raises(ds.InputError, match=message):
        describe()


def test_python_sums_objectives():
    run = ds.solve(
        ds.ODE(lambda t, u, p: -p[0] * u, 1, 1),
        [2.0],
        [0.5],
        ds.Stepping((0.0, 1.0), "rk4", dt=0.1),
    )
    parts = [
        ds.LeastSquares([0.5, 1.0], [1.0, 1.0]),
        ds.Terminal(lambda t, u, p: u[0] ** 2),
        ds.Running(lambda t, u, p: p[0] * u[0]),
        ds.Prior(0.1),
    ]
    parts += [2.0 * parts[0], parts[1] + parts[2]]
    for whole in (sum(parts), sum(reversed(parts))):
        assert ds.adjoint(run, whole).value == pytest.approx(
            sum(ds.adjoint(run, part).value for part in parts)
        )
    with pytest.raises(TypeError):
        1 + parts[0]


@pytest.mark.parametrize("weight", [np.nan, np.inf])
def test_weights_are_finite(weight):
    with pytest.raises(
        ds.InputError, match=f"an objective times {weight}\n  expected: a finite weight"
    ):
        weight * ds.LeastSquares([0.1], [1.0])


@pytest.mark.parametrize(
    ("thing", "named"), [("cost", "str"), (ds.Terminal, "the class Terminal"), (3, "int")]
)
def test_what_is_no_objective_is_named(run, thing, named):
    """Words have a method "lower", and so has the class."""
    message = f"the objective is {named}\n  expected: Terminal, Running"
    for call in (
        lambda: ds.adjoint(run, thing),
        lambda: evaluate(run, thing),
        lambda: ds.hessian_product(run, thing, dp=np.ones(3)),
        lambda: gauss_newton_product(run, thing, dp=np.ones(3)),
        lambda: ds.tangent(run, dp=np.ones(3)).derivative(thing),
    ):
        with pytest.raises(ds.InputError, match=message):
            call()


@pytest.mark.parametrize("keyword", ["gradient_u", "gradient_p", "value_t", "hessian_t"])
def test_derivatives_of_costs_that_are_arrays_are_named(run, keyword):
    cost = ds.Terminal(lambda t, u, p: u[0], **{keyword: np.zeros(3)})
    with pytest.raises(
        ds.InputError, match=rf"terminal {keyword} = array(.|\n)*expected: a callback"
    ):
        ds.adjoint(run, cost)


def test_observe_of_the_wrong_size_is_named(run):
    misfit = ds.LeastSquares(OBSERVATION_TIMES, DATA, observe=lambda t, u, p: u)
    with pytest.raises(
        ds.InputError, match=r"callback 'observe' returned shape \(3,\)(.|\n)*\(2,\)"
    ):
        evaluate(run, misfit)
    for name in ("observe_u", "observe_p"):
        misfit = ds.LeastSquares(
            OBSERVATION_TIMES, DATA, observe=observe, **{name: lambda t, u, p: np.eye(2)}
        )
        message = rf"callback '{name}' returned shape \(2, 2\) at t = (.|\n)*shape \(2, 3\)"
        with pytest.raises(ds.InputError, match=message):
            ds.adjoint(run, misfit)


def test_observe_that_drops_derivatives_names_what_to_supply(run):
    misfit = ds.LeastSquares(
        OBSERVATION_TIMES, DATA, observe=lambda t, u, p: np.array([float(u[0]), u[1]])
    )
    evaluate(run, misfit)
    message = r"'observe' cannot be differentiated(.|\n)*try: observe_u=, observe_p=callbacks"
    with pytest.raises(ds.InputError, match=message):
        ds.adjoint(run, misfit)


def test_name_of_an_event_in_the_place_of_the_function_is_named():
    with pytest.raises(
        ds.InputError, match=r'event is function\n.*\n  try: AtEvent\(function, "name'
    ):
        AtEvent("bounce", lambda t, u, p: u[0])
