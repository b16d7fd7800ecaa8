"""Lowered costs: values and partial derivatives of scalars on PETSc vectors."""

from dataclasses import replace

import numpy as np
import pytest
from distributed import make
from forms import (
    ANALYTIC_COST,
    COSTS,
    FORMS,
    NAMES,
    P0,
    T_END,
    U0,
    density,
    density_p,
    density_t,
    density_u,
    rhs,
    terminal,
    terminal_p,
    terminal_u,
)
from petsc4py import PETSc

import daeosens as ds
from daeosens.costs import AtEvent
from daeosens.costs.cost import change
from daeosens.costs.scalar import in_c
from daeosens.petsc import read, write
from daeosens.problem import INDEPENDENT

T = 0.4
PROBLEM = FORMS["rhs"].analytic


def vec(values, create=PROBLEM.create_state):
    new = create()
    write(new, values)
    return new


def partials(scalar, t=T):
    """Value and derivatives of a scalar at (t, U0, P0)."""
    by_u, by_p = PROBLEM.create_state(), PROBLEM.create_parameters()
    scalar.add_u(1.0, t, vec(U0), P0, by_u)
    scalar.add_p(1.0, t, vec(U0), P0, by_p)
    return (
        scalar.value(t, vec(U0), P0),
        read(by_u).copy(),
        read(by_p).copy(),
        scalar.value_t(t, vec(U0), P0),
    )


def test_partial_derivatives_are_the_users_with_and_without_them():
    exact = [f(T, U0, P0) for f in (density, density_u, density_p, density_t)]
    for running in (ds.Running(density), ds.Running(density, density_u, density_p, density_t)):
        ((weight, scalar),) = running.lower(PROBLEM, T_END).densities
        assert weight == 1.0
        for ours, theirs in zip(partials(scalar), exact, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-14)


def test_terminal_cost_is_a_point_at_the_final_time():
    for number in (ds.Terminal(terminal), ds.Terminal(terminal, terminal_u, terminal_p)):
        cost = number.lower(PROBLEM, T_END)
        ((time, weight, scalar),) = cost.points
        assert (time, weight, cost.densities) == (T_END, 1.0, ())
        value, by_u, by_p, by_t = partials(scalar)
        assert (value, by_t) == (terminal(T, U0, P0), 0.0)
        np.testing.assert_allclose(by_u, terminal_u(T, U0, P0), rtol=1e-14)
        np.testing.assert_allclose(by_p, terminal_p(T, U0, P0), rtol=1e-14)


def test_derivatives_are_added_with_their_weight():
    ((_, _, scalar),) = COSTS["terminal"].objective.lower(PROBLEM, T_END).points
    out, by_p = vec([1.0, 2.0, 3.0]), vec([4.0, 5.0, 6.0], PROBLEM.create_parameters)
    scalar.add_u(-2.0, T, vec(U0), P0, out)
    scalar.add_p(-2.0, T, vec(U0), P0, by_p)
    np.testing.assert_allclose(read(out), [1, 2, 3] - 2 * terminal_u(T, U0, P0), rtol=1e-14)
    np.testing.assert_allclose(read(by_p), [4, 5, 6] - 2 * terminal_p(T, U0, P0), rtol=1e-14)


def test_cost_that_does_not_depend_on_an_argument_says_so():
    cost = ds.Running(density, INDEPENDENT, INDEPENDENT, "autonomous").lower(PROBLEM, T_END)
    value, by_u, by_p, by_t = partials(cost.densities[0][1])
    assert value == density(T, U0, P0)
    assert not by_u.any()
    assert not by_p.any()
    assert by_t == 0.0


def test_directional_derivative_is_the_sum_of_the_partial_ones(rng):
    du, dp, dt = rng.normal(size=3), rng.normal(size=3), 0.7
    point = (T, vec(U0), P0)
    for _, scalar in ANALYTIC_COST.lower(PROBLEM, T_END).densities:
        _, by_u, by_p, by_t = partials(scalar)
        directions = (vec(du), vec(dp, PROBLEM.create_parameters))
        ours = change(scalar, PROBLEM, point, *directions, dt)
        assert ours == pytest.approx(by_u @ du + by_p @ dp + by_t * dt, rel=1e-13)
        assert change(scalar, PROBLEM, point, directions[0], None) == pytest.approx(
            by_u @ du, rel=1e-13
        )


@pytest.mark.parametrize("case", [case for case in COSTS.values() if case.name != "prior"])
def test_point_costs_found_automatically_agree_with_differences(case, rng):
    """Observations with parameters in the observed quantity."""
    cost = case.objective.lower(PROBLEM, T_END)
    for _, _, scalar in cost.points:
        _, by_u, by_p, _ = partials(scalar)
        for argument, gradient in ((0, by_u), (1, by_p)):
            direction = rng.normal(size=3)

            def value(eps, argument=argument, direction=direction, scalar=scalar):
                u = U0 + eps * direction * (argument == 0)
                p = P0 + eps * direction * (argument == 1)
                return scalar.value(T, vec(u), p)

            difference = (value(1e-5) - value(-1e-5)) / 2e-5
            assert gradient @ direction == pytest.approx(difference, rel=1e-8, abs=1e-9)


def test_what_is_pinned_in_time_does_not_depend_on_it():
    """Observations in arrays and in vectors, and priors of numbers and of fields."""
    case = make(PETSc.COMM_SELF, field=True)
    costs = [
        (COSTS["observations"].objective, PROBLEM, (vec(U0), P0)),
        (COSTS["prior"].objective, PROBLEM, (vec(U0), P0)),
        (ds.LeastSquares([0.1], [case.u0]), case.problem, (case.u0, case.p)),
        (ds.Prior(case.p), case.problem, (case.u0, case.p)),
    ]
    for objective, problem, point in costs:
        for _, _, scalar in objective.lower(problem, T_END).points:
            assert scalar.value_t(T, *point) == 0.0


def test_prior_does_not_depend_on_the_state_nor_a_linear_observation_on_the_parameters():
    case = make(PETSc.COMM_SELF, field=True)
    for objective, name in (
        (ds.Prior(case.p), "add_u"),
        (ds.LeastSquares([0.1], [case.u0]), "add_p"),
    ):
        ((_, _, scalar),) = objective.lower(case.problem, T_END).points
        out = case.problem.create_state()
        getattr(scalar, name)(1.0, T, case.u0, case.p, out)
        assert out.norm() == 0.0


def test_second_derivatives_of_a_cost_are_in_c_with_its_gradients():
    model = ds.trace(lambda t, u, p: p.a * u, 2, {"a": ()})
    costs = model.terminal(lambda t, u, p: u[0] ** 2), ds.Terminal(lambda t, u, p: u[0])
    traced, by_hand = (cost.lower(model, 1.0).points[0][-1] for cost in costs)
    by_u, by_p, product = in_c(traced, 1, 4)
    assert by_u[0]
    assert product[0]
    assert by_p == (0, 0)  # it ignores p
    assert in_c(by_hand, 1, 4) is None
    value, *gradients = in_c(traced, 0, 3)
    assert value[0]
    assert gradients == [by_u, by_p]
    assert in_c(by_hand, 0, 3) is None


# ---- wrong callbacks -----------------------------------------------------------------------------

WRONG = {
    "value [1]": (
        ds.Terminal(lambda t, u, p: u[:1]),
        "value",
        r"cost 'terminal' returned shape \(1,\)",
    ),
    "value None": (
        ds.Terminal(lambda t, u, p: None),
        "value",
        r"cost 'terminal' returned NoneType",
    ),
    "value complex": (ds.Terminal(lambda t, u, p: 1j), "value", r"'terminal' returned complex128"),
    "gradient_u": (
        ds.Terminal(terminal, lambda t, u, p: u[:2]),
        "add_u",
        r"callback 'terminal gradient_u' returned shape \(2,\) at t = 0\.4 .*\n.*: shape \(3,\)",
    ),
    "gradient_p": (
        ds.Terminal(terminal, terminal_u, lambda t, u, p: 1.0),
        "add_p",
        r"callback 'terminal gradient_p' returned shape \(\) at t = 0\.4 .*\n  expected: .*\(3,\)",
    ),
    "float": (
        ds.Terminal(lambda t, u, p: float(u[0])),
        "add_u",
        r"'terminal' cannot be differentiated(.|\n)*try: gradient_u=callback",
    ),
    "float of p": (
        ds.Terminal(lambda t, u, p: float(p[0])),
        "add_p",
        r"'terminal' cannot be differentiated(.|\n)*try: gradient_p=callback",
    ),
}


@pytest.mark.parametrize(("objective", "use", "message"), WRONG.values(), ids=WRONG)
def test_wrong_callbacks_are_named(objective, use, message):
    ((_, _, scalar),) = objective.lower(PROBLEM, T_END).points
    arguments = (T, vec(U0), P0)
    if use != "value":
        out = PROBLEM.create_state() if use == "add_u" else PROBLEM.create_parameters()
        arguments = (1.0, *arguments, out)
    with pytest.raises(ds.InputError, match=message):
        getattr(scalar, use)(*arguments)


def test_cost_that_is_not_finite_is_a_failed_solve():
    ((_, _, scalar),) = ds.Terminal(lambda t, u, p: np.nan).lower(PROBLEM, T_END).points
    with pytest.raises(
        ds.SolveError, match=r"cost 'terminal' returned nan in entry \[\] at t = 0\.4"
    ):
        scalar.value(T, vec(U0), P0)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (
            ds.Terminal(terminal, "none"),
            r"terminal gradient_u = 'none'\n  expected: a callback or \"ind",
        ),
        (
            ds.Terminal(terminal, None, 3.0),
            r"terminal gradient_p = 3\.0\n  expected: a callback or",
        ),
        (
            ds.Running(density, density_t="no"),
            r"running density_t = 'no'\n  expected: a callback or",
        ),
    ],
)
def test_what_is_no_callback_is_named(objective, message):
    with pytest.raises(ds.InputError, match=message):
        objective.lower(PROBLEM, T_END)


def test_petsc_style_costs_have_to_supply_their_gradients():
    case = make(PETSc.COMM_SELF)
    value = lambda t, u, p: t * u.sum() + p[0]  # noqa: E731
    ((_, _, scalar),) = ds.Terminal(value).lower(case.problem, 1.0).points
    ((_, running),) = ds.Running(value).lower(case.problem, 1.0).densities
    out, by_p = case.problem.create_state(), case.problem.create_parameters()
    for use, name, keyword in (
        (lambda: scalar.add_u(1.0, T, case.u0, case.p, out), "terminal gradient_u", "gradient_u"),
        (lambda: scalar.add_p(1.0, T, case.u0, case.p, by_p), "terminal gradient_p", "gradient_p"),
        (lambda: running.value_t(T, case.u0, case.p), "running density_t", "density_t"),
    ):
        message = (
            rf"'{name}' is needed and was not supplied\n  expected: {keyword}=callback, or \"(i|a)"
        )
        with pytest.raises(ds.UnsupportedError, match=message):
            use()


# ---- keywords ------------------------------------------------------------------------------------

KINK = ds.Event(lambda t, u, p: u[0] - 0.1, name="kink")
EVENTFUL = ds.ODE(rhs, 3, NAMES, events=[KINK])
KINDS = {
    "terminal": (ds.Terminal, "value", "value_t"),
    'at event "kink"': (
        lambda value, **number: AtEvent(value, "kink", **number),
        "value",
        "value_t",
    ),
    "running": (ds.Running, "density", "density_t"),
}
POINT = (T, vec(U0), P0)
DIRECTION = (vec(np.ones(3)), np.ones(3))
USES = {
    "gradient_u": lambda s, out: s.add_u(1.0, *POINT, out[0]),
    "gradient_p": lambda s, out: s.add_p(1.0, *POINT, out[1]),
    "time": lambda s, out: s.value_t(*POINT),
    "hessian_product": lambda s, out: s.add_hessian(1.0, POINT, DIRECTION, out),
    "hessian_t": lambda s, out: s.time_hessian(POINT, out),
}
RETURNED = {
    "gradient_u": (np.zeros(2), r"shape \(2,\) at t = 0\.4 .*\n  expected: shape \(3,\)"),
    "gradient_p": (np.zeros(4), r"shape \(4,\) at t = 0\.4 .*\n  expected: shape \(3,\)"),
    "time": (np.zeros(1), r"shape \(1,\) at t = 0\.4 .*\n  expected: shape \(\)"),
    "hessian_product": (np.zeros(3), r"ndarray\n  expected: a tuple \(array \[n\], array \[m\]\)"),
    "hessian_t": (
        (np.zeros(3), np.zeros(3)),
        r"2 values\n  expected: a tuple \(array \[n\], array \[m\], number\)",
    ),
}


def scalar_of(title, problem=EVENTFUL, value=density, **by_name):
    """Return the lowered scalar of one kind of cost; "time" stands for its derivative in t."""
    kind, _, in_time = KINDS[title]
    by_name = {in_time if name == "time" else name: entry for name, entry in by_name.items()}
    cost = kind(value, **by_name).lower(problem, T_END)
    return (*cost.points, *cost.densities)[0][-1]


@pytest.mark.parametrize("title", KINDS)
@pytest.mark.parametrize("use", USES)
def test_what_a_callback_returns_is_told_by_its_keyword(title, use):
    values, message = RETURNED[use]
    keyword = KINDS[title][2] if use == "time" else use
    scalar = scalar_of(title, **{use: lambda *arguments: values})
    out = (EVENTFUL.create_state(), EVENTFUL.create_parameters())
    with pytest.raises(ds.InputError, match=f"callback '{title} {keyword}' returned {message}"):
        USES[use](scalar, out)


@pytest.mark.parametrize("title", KINDS)
@pytest.mark.parametrize("use", USES)
def test_what_drops_derivatives_names_what_to_supply(title, use):
    keyword = KINDS[title][2] if use == "time" else use
    scalar = scalar_of(title, value=lambda t, u, p: float(t * u[0] * p[0]))
    out = (EVENTFUL.create_state(), EVENTFUL.create_parameters())
    with pytest.raises((ds.InputError, ds.UnsupportedError)) as raised:
        USES[use](scalar, out)
    assert f"callback '{title}'" in str(raised.value)
    assert f"try: {keyword}=callback" in str(raised.value)


@pytest.mark.parametrize("title", KINDS)
@pytest.mark.parametrize("use", USES)
def test_petsc_style_derivatives_that_are_missing_go_by_their_keyword(title, use):
    case = make(PETSc.COMM_SELF)
    problem = replace(case.problem, events=(KINK,))
    keyword = KINDS[title][2] if use == "time" else use
    scalar = scalar_of(title, problem, lambda t, u, p: t * u.sum() + p[0])
    out = (problem.create_state(), problem.create_parameters())
    message = rf"'{title} {keyword}' is needed and was not supplied\n  expected: {keyword}=callback"
    if keyword.startswith("hessian"):
        message += rf"(.|\n)*  try: {keyword}=\.\.\., or a method that needs gradients only"
    with pytest.raises(ds.UnsupportedError, match=message):
        USES[use](scalar, out)


@pytest.mark.parametrize("title", KINDS)
@pytest.mark.parametrize(
    ("use", "word"),
    [
        ("gradient_u", "independent"),
        ("gradient_p", "independent"),
        ("time", "autonomous"),
        ("hessian_t", "independent"),
    ],
)
def test_words_that_are_none_go_by_their_keyword(title, use, word):
    keyword = KINDS[title][2] if use == "time" else use
    message = rf"{title} {keyword} = 'none'\n  expected: a callback or \"{word}\""
    with pytest.raises(ds.InputError, match=message):
        scalar_of(title, **{use: "none"})
