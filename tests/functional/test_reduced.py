"""Reduced functionals: value, gradient and derivative of a cost in optimisation variables."""

import math
from dataclasses import replace

import numpy as np
import pytest
from forms import (
    CELLS,
    COSTS,
    DECAY,
    FORMS,
    NAMES,
    P0,
    U0,
    initial_state,
    make_stepping,
)

import daeosens as ds
from daeosens.functional import InitialState
from daeosens.functional.functional import Functional
from daeosens.functional.runs import most_steps
from daeosens.petsc import read

SUM = COSTS["sum"].objective
CONTROLS = {
    "p": ds.Parameters(
        {"a": ds.Parameter(P0[0], scale="log"), "b": P0[1], "c": ds.Parameter(P0[2])}, U0
    ),
    "u0": InitialState(U0, P0),
    "u0(p)": ds.Parameters(
        {name: ds.Parameter(value) for name, value in zip(NAMES, P0, strict=True)}, initial_state
    ),
}


def falls(t, u, p):
    return u[0] - 0.1


def functional(control="p", method="rk4", **keywords):
    problem = FORMS["rhs"].analytic
    return ds.Reduced(problem, SUM, make_stepping(method), CONTROLS[control], **keywords)


def orders(reduced, x, dx):
    """Orders of the Taylor remainder without and with the gradient."""
    value, gradient = reduced.value_and_gradient(x)
    zero, values = [], []
    for eps in (4e-4, 2e-4, 1e-4):
        moved = x.copy()
        moved.axpy(eps, dx)
        change = reduced.value(moved) - value
        zero.append(abs(change))
        values.append(abs(change - eps * gradient.dot(dx)))
    return [np.log2(np.array(r[:-1]) / r[1:]).min() for r in (zero, values)]


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("method", ["rk4", "cn", "beuler"])
@pytest.mark.parametrize("engine", ["vectors", "arrays", "tsadjoint"])
def test_taylor_remainders_are_of_first_and_second_order(control, method, engine, rng):
    reduced = functional(control, method, engine=engine)
    x, dx = reduced.start(), reduced.start()
    dx.setArray(rng.normal(size=x.size))
    zero, value = orders(reduced, x, dx)
    assert zero == pytest.approx(1.0, abs=0.1)
    assert value > 1.9


@pytest.mark.parametrize(("name", "method"), CELLS, ids=map(" ".join, CELLS))
def test_gradient_is_dual_to_the_derivative(name, method, rng):
    for control in CONTROLS.values():
        reduced = ds.Reduced(FORMS[name].analytic, SUM, make_stepping(method), control)
        x, dx = reduced.start(), reduced.start()
        dx.setArray(rng.normal(size=x.size))
        parts = read(reduced.gradient(x)) * read(dx)
        assert abs(reduced.derivative(x, dx) - parts.sum()) < 1e-12 * abs(parts).sum()


def test_it_is_a_functional():
    reduced: Functional = functional()
    x = reduced.start()
    assert reduced.comm == x.comm
    assert reduced.bounds() is None
    value, gradient = reduced.value_and_gradient(x)
    assert reduced.value(x) == value
    np.testing.assert_array_equal(read(reduced.gradient(x)), read(gradient))


def test_value_and_gradient_are_those_of_the_run():
    reduced = functional("u0", "cn")
    run = ds.solve(FORMS["rhs"].analytic, U0, P0, make_stepping("cn"), SUM.times)
    expected = ds.adjoint(run, SUM)
    value, gradient = reduced.value_and_gradient(reduced.start())
    assert value == expected.value
    np.testing.assert_array_equal(read(gradient), expected.u0)


def test_what_is_returned_belongs_to_the_caller():
    reduced = functional()
    x = reduced.start()
    value, gradient = reduced.value_and_gradient(x)
    before = read(gradient).copy()
    gradient.set(7.0)
    x.set(0.3)
    reduced.gradient(x)
    assert reduced.value(reduced.start()) == value
    np.testing.assert_array_equal(read(reduced.gradient(reduced.start())), before)


def test_the_last_run_is_kept_and_counted():
    reduced = functional()
    x = reduced.start()
    reduced.value(x)
    reduced.gradient(x.copy())
    reduced.derivative(x, x)
    assert (reduced.count.forward, reduced.count.adjoint, reduced.count.tangent) == (1, 1, 1)
    first = reduced.trajectory(x)
    x.shift(0.01)
    second = reduced.trajectory(x)
    assert second is not first
    assert not any(state.handle for state in first.stored.made)  # freed
    assert reduced.count.forward == 2


def test_bounds_are_those_of_the_control():
    control = ds.Parameters({"a": ds.Parameter(0.7, lower=0.0), "b": 1.0, "c": 1.0}, U0)
    reduced = ds.Reduced(FORMS["rhs"].analytic, SUM, make_stepping("rk4"), control)
    lower, upper = reduced.bounds()
    assert read(lower).tolist() == [0.0]
    assert read(upper).tolist() == [np.inf]


def test_failed_solve_is_a_solve_error_and_the_next_point_works():
    explosion = ds.ODE(lambda t, u, p: p[0] * u**2, 1, ["rate"])
    control = ds.Parameters({"rate": ds.Parameter(0.1)}, [1.0])
    stepping = ds.Stepping((0.0, 2.0), "rk4", dt=0.1)
    reduced = ds.Reduced(explosion, ds.Terminal(lambda t, u, p: u[0]), stepping, control)
    x = reduced.start()
    value = reduced.value(x)
    wild = x.copy()
    wild.set(50.0)
    for act in (reduced.value, reduced.gradient, reduced.value_and_gradient):
        with pytest.raises(ds.SolveError, match=r"not finite|returned inf|returned nan"):
            act(wild)
    assert reduced.value(x) == value


# ---- what is found before the first run ----------------------------------------------------------


def described(**changes):
    values = {
        "problem": DECAY.problem,
        "objective": ds.LeastSquares([0.5], [0.4]),
        "stepping": ds.Stepping((0.0, 1.0), "rk4", dt=0.1),
        "control": ds.Parameters({"a": ds.Parameter(0.6), "b": 1.5}, DECAY.u0),
    }
    return ds.Reduced(**{**values, **changes})


def test_a_description_that_fits_is_accepted_without_a_run():
    assert described().count.forward == 0


@pytest.mark.parametrize("method", ["rk4", "cn", "esdirk3"])
def test_observations_at_the_end_up_to_rounding_are_at_the_end(method):
    """arange(0.1, 0.31, 0.1) ends with 0.1 * 3, which is more than 0.3."""
    times, data = np.arange(0.1, 0.31, 0.1), [0.9, 0.8, 0.7]
    assert times[-1] > 0.3
    stepping = ds.Stepping((0.0, 0.3), method, dt=0.1)
    description = described(objective=ds.LeastSquares(times, data), stepping=stepping)
    exact = described(objective=ds.LeastSquares([0.1, 0.2, 0.3], data), stepping=stepping)
    assert description.trajectory([0.6]).n_steps == 3
    assert description.value([0.6]) == pytest.approx(exact.value([0.6]), rel=1e-14)
    np.testing.assert_allclose(
        description.gradient([0.6]).array, exact.gradient([0.6]).array, rtol=1e-13
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"objective": ds.LeastSquares([0.5, 1.5], [0.4, 0.1])},
            r"observation time 1\.5 lies outside the time span\n  expected: times in \[0, 1\]",
        ),
        (
            {"objective": ds.LeastSquares([-0.5], [0.4]) + ds.Terminal(lambda t, u, p: u[0])},
            r"observation time -0\.5 lies outside(.|\n)*try: a longer t_span, or fewer",
        ),
        (
            {"objective": ds.LeastSquares([0.5], [[0.4, 0.1]])},
            r"data has 2 columns but 1 components are observed",
        ),
        ({"objective": ds.Prior(0.0, names=["A"])}, r'prior names parameter "A"'),
        (
            {"control": ds.Parameters({"a": ds.Parameter(0.6)}, DECAY.u0)},
            r'parameter "b" has no value; expected: an entry for it',
        ),
        (
            {"control": ds.Parameters({"a": ds.Parameter(0.6), "b": 1.0}, [1.0, 2.0])},
            r"initial_state has",
        ),
        (
            {"control": {"a": 0.6}},
            r"control is dict\n  expected: Parameters, Initial",
        ),
        ({"stepping": (0.0, 1.0)}, r"stepping is tuple\n  expected: a Stepping"),
        ({"problem": np.sin}, r"problem is ufunc\n  expected: a Problem"),
        ({"objective": "misfit"}, r"the objective is str\n  expected: Terminal"),
        (
            {"problem": replace(DECAY.problem, events=(ds.Event(falls, when_hessian_t=3),))},
            r"event \"event\" when_hessian_t = 3\n  expected: a callback",
        ),
        (
            {"problem": replace(DECAY.problem, events=(ds.Event(falls, changes={"A": falls}),))},
            r"event \"event\" names an unknown parameter \"A\"",
        ),
    ],
)
def test_what_does_not_fit_together_is_found_before_the_first_run(changes, message):
    with pytest.raises(ds.InputError, match=message):
        described(**changes)


def test_unknown_engine_is_named():
    with pytest.raises(
        ds.InputError,
        match=r"engine = 'petsc'\n  expected: \"auto\", \"vectors\", \"arrays\", \"compiled\"",
    ):
        functional(engine="petsc")


def test_engine_that_would_be_wrong_is_refused():
    reduced = ds.Reduced(
        FORMS["F"].analytic, SUM, make_stepping("cn"), CONTROLS["p"], engine="tsadjoint"
    )
    with pytest.raises(ds.UnsupportedError, match=r'try: adjoint\(..., engine="vectors"\)'):
        reduced.gradient(reduced.start())


def test_equations_without_a_value_at_the_start_are_bad_input():
    problem = ds.ODE(lambda t, u, p: np.log(p[0]) * u, 1, ["k"])
    control = ds.Parameters({"k": ds.Parameter(-1.0)}, initial_state=[1.0])
    stepping = ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
    message = r"at the start: callback 'rhs' returned nan in entry \[0\] at t = 0"
    with pytest.raises(ds.InputError, match=message):
        ds.Reduced(problem, ds.Terminal(lambda t, u, p: u[0]), stepping, control)


def test_runs_of_a_search_may_become_longer_but_not_without_end():
    """Each best run sets the limit of the next ones: tenfold, and twofold where they are long."""
    assert [most_steps(steps) for steps in (0, 20, 150)] == [1000, 1000, 2048]
    assert most_steps(1500) == most_steps(5000) == 16_384
    assert most_steps(26_000) == 65_536
    limits = [20]
    while limits[-1] < 1_000_000:
        limits.append(most_steps(limits[-1]))
    assert limits[:5] == [20, 1000, 16_384, 32_768, 65_536]


@pytest.mark.parametrize(("held", "limit"), [(True, 16_384), (False, 32_768)])
def test_the_limit_grows_with_what_accuracy_asks_for_and_not_with_stiffness(held, limit):
    """Steps that stability holds small say nothing of the data: ten thousand are free."""

    def f(t, u, p):
        return np.array([u[1], -(p[0] ** 2) * u[0], -p[1] * (u[2] - np.cos(t))])

    problem = ds.trace(f, size=3, parameters=["frequency", "rate"])
    names = ("rate", "frequency") if held else ("frequency", "rate")
    entries = {names[0]: ds.Parameter(0.5, scale="log"), names[1]: 0.5}
    stepping = ds.Stepping((0.0, 10.0), "rk5dp", rtol=1e-6)
    functional = ds.Reduced(
        problem,
        ds.Terminal(lambda t, u, p: u[0]),
        stepping,
        ds.Parameters(entries, [1.0, 0.0, 1.0]),
    )
    counts = [functional.trajectory([math.log(value)]).n_steps for value in (1.0, 60.0, 600.0)]
    per_unit = (counts[2] - counts[1]) / 540.0
    for steps in (50, 900, 9000):
        functional.value([math.log(steps / per_unit)])
        functional.limit_steps(limited=True)
    assert functional.trajectory([math.log(9000 / per_unit)]).n_steps == pytest.approx(
        9000, rel=0.15
    )
    with pytest.raises(ds.SolveError, match=f"after {limit} steps"):
        functional.value([math.log(50_000 / per_unit)])
    functional.limit_steps(limited=False)
    assert functional.trajectory([math.log(50_000 / per_unit)]).n_steps > limit
