"""Lowered events: messages name the event and the keyword that was given."""

import forms
import numpy as np
import pytest
from petsc4py import PETSc

from daeosens import ODE, Event, InputError, SolveError, Terminal, UnsupportedError
from daeosens.methods.events.event_function import (
    lower_changes,
    lower_event,
    lower_events,
    lower_reset,
)
from daeosens.petsc import write
from daeosens.problem import Products, add_events

T = 0.3
PROBLEM = ODE(forms.rhs, 3, forms.NAMES)


def vec(values, create=PROBLEM.create_state):
    new = create()
    write(new, values)
    return new


U, W = vec(forms.U0), vec(np.ones(3))
POINT = (T, U, forms.P0)
DIRECTION = (vec(np.ones(3)), np.ones(3))
OUT = (PROBLEM.create_state(), PROBLEM.create_parameters())
OF_SCALAR = {
    "u": lambda s: s.add_u(1.0, *POINT, OUT[0]),
    "p": lambda s: s.add_p(1.0, *POINT, OUT[1]),
    "t": lambda s: s.value_t(*POINT),
    "hessian": lambda s: s.add_hessian(1.0, POINT, DIRECTION, OUT),
    "hessian_t": lambda s: s.time_hessian(POINT, OUT),
}


def filled(derivative):
    derivative.fill(*POINT, derivative.create(*POINT))


OF_MAP = {
    "u": lambda m: filled(m.rhs_u),
    "p": lambda m: filled(m.rhs_p),
    "t": lambda m: m.rhs_t(*POINT, OUT[0]),
    "hessian": lambda m: m.rhs_hessian(POINT, W, DIRECTION, OUT),
    "hessian_t": lambda m: m.rhs_time_hessian(POINT, W, OUT),
}
TERMINAL = {"u": "gradient_u", "p": "gradient_p", "t": "value_t"}
TERMINAL |= {"hessian": "hessian_product", "hessian_t": "hessian_t"}
CALLBACKS = {
    **{f"when_{part}": ("when", part) for part in OF_SCALAR},
    **{f"reset_{part}": ("reset", part) for part in OF_MAP},
    **{f'changes["b"] {name}': ("changes", part) for part, name in TERMINAL.items()},
}


def use(problem, where, part, when=lambda t, u, p: t * u[0] * p[0], reset=forms.rhs, **replaced):
    """Lower an event of which one derivative is given, and use that one."""
    keyword = TERMINAL[part] if where == "changes" else f"{where}_{part}"
    value = {keyword: replaced["supplied"]} if replaced else {}
    if where == "changes":
        event = Event(0.5, name="kick", changes={"b": Terminal(when, **value)})
        ((_, scalar),) = lower_changes(problem, event)
        OF_SCALAR[part](scalar)
    elif where == "reset":
        OF_MAP[part](lower_reset(problem, Event(0.5, reset, name="kick", **value)))
    else:
        OF_SCALAR[part](lower_event(problem, Event(when, name="kick", **value)).when)


@pytest.mark.parametrize("name", CALLBACKS)
def test_what_a_derivative_returns_is_told_by_event_and_keyword(name):
    with pytest.raises(InputError) as raised:
        use(PROBLEM, *CALLBACKS[name], supplied=lambda *arguments: np.zeros(7))
    message = str(raised.value)
    assert message.startswith(f"callback 'event \"kick\" {name}' returned ")
    assert (
        "shape (7,)" in message or "ndarray\n  expected: a tuple (array [n], array [m]" in message
    )


def dropping(t, u, p):
    return float(t * u[0] * p[0])


def dropping_map(t, u, p):
    return np.array([float(x) for x in t * u * p])


@pytest.mark.parametrize("name", CALLBACKS)
def test_what_drops_derivatives_names_what_to_supply(name):
    where, part = CALLBACKS[name]
    with pytest.raises((InputError, UnsupportedError)) as raised:
        use(PROBLEM, where, part, dropping, dropping_map)
    function = 'changes["b"]' if where == "changes" else where
    assert f"callback 'event \"kick\" {function}'" in str(raised.value)
    assert f"try: {name.split()[-1]}=callback" in str(raised.value)


@pytest.mark.parametrize("name", CALLBACKS)
def test_petsc_style_derivatives_that_are_missing_are_named(name):
    problem = ODE(forms.rhs, state=U, parameters=forms.NAMES)
    with pytest.raises(UnsupportedError) as raised:
        use(problem, *CALLBACKS[name])
    keyword = name.split()[-1]
    assert str(raised.value).startswith(
        f"'event \"kick\" {name}' is needed and was not supplied\n  expected: {keyword}=callback"
    )


@pytest.mark.parametrize("part", ["t", "hessian_t"])
@pytest.mark.parametrize("where", ["when", "reset", "changes"])
def test_missing_derivatives_in_time_name_the_word_that_would_do(where, part):
    problem = ODE(forms.rhs, state=U, parameters=forms.NAMES)
    keyword = {"when": "when_t", "reset": "reset_t", "changes": "value_t"}[where]
    alternative = '"autonomous"' if part == "t" else f'{keyword}="autonomous"'
    with pytest.raises(UnsupportedError, match=f"or {alternative}|or {keyword}={alternative}"):
        use(problem, where, part)


@pytest.mark.parametrize("name", CALLBACKS)
def test_words_that_are_none_are_named(name):
    with pytest.raises(InputError) as raised:
        use(PROBLEM, *CALLBACKS[name], supplied="none")
    assert f"event \"kick\" {name} = 'none'" in str(raised.value)


def test_values_are_told_by_event_and_keyword():
    event = Event(
        lambda t, u, p: u[:1],
        lambda t, u, p: u[:2],
        name="kick",
        changes={"b": lambda t, u, p: np.nan},
    )
    with pytest.raises(InputError, match=r"callback 'event \"kick\" when' returned shape \(1,\)"):
        lower_event(PROBLEM, event).when.value(*POINT)
    with pytest.raises(InputError, match=r"callback 'event \"kick\" reset' returned shape \(2,\)"):
        lower_reset(PROBLEM, event).rhs(*POINT, OUT[0])
    ((number, value),) = lower_changes(PROBLEM, event)
    assert number == 1
    message = r"callback 'event \"kick\" changes\[\"b\"\]' returned nan"
    with pytest.raises(SolveError, match=message):
        value.value(*POINT)


def test_exceptions_carry_event_and_keyword():
    event = Event(lambda t, u, p: 1 / 0, lambda t, u, p: u[9], name="kick")
    with pytest.raises(ZeroDivisionError) as raised:
        lower_event(PROBLEM, event).when.value(*POINT)
    (note,) = raised.value.__notes__
    assert note.startswith("in callback 'event \"kick\" when' at t = 0.3 (rank 0), in <lambda>")
    assert note.endswith(", at `1 / 0`")
    with pytest.raises(IndexError) as raised:
        lower_reset(PROBLEM, event).rhs(*POINT, OUT[0])
    (note,) = raised.value.__notes__
    assert note.startswith("in callback 'event \"kick\" reset' at t = 0.3 (rank 0), in <lambda>")
    assert note.endswith(", at `u[9]`")


def test_products_of_a_reset_go_by_its_keyword():
    half = Products(lambda t, u, p, v: v[:2], lambda t, u, p, w: w)
    reset = lower_reset(PROBLEM, Event(0.5, forms.rhs, name="kick", reset_u=half))
    assert reset.sources["reset_u"] == "products"
    matrix = reset.rhs_u.create(*POINT)
    reset.rhs_u.fill(*POINT, matrix)
    with pytest.raises(PETSc.Error) as raised:
        matrix.mult(U, OUT[0])
    assert "callback 'event \"kick\" reset_u.apply' returned" in str(raised.value.__cause__)


def test_a_state_that_is_not_finite_is_noted_with_the_reset():
    """PETSc style: the run that fails afterwards can say where it began."""

    def reset(t, u, p, out):
        out.set(np.nan)

    problem = ODE(forms.rhs, state=U, parameters=forms.NAMES)
    lower_reset(problem, Event(0.5, reset, name="kick")).rhs(*POINT, OUT[0])
    assert "callback 'event \"kick\" reset' gave nan in local entry 0" in problem.faults[0]


def test_runs_of_one_problem_share_its_lowered_events():
    """Only the first gradient looks whether values are the same with and without derivatives."""
    calls = 0

    def when(t, u, p):
        nonlocal calls
        calls += 1
        return u[0] - p[0]

    problem = ODE(lambda t, u, p: np.ones(1), 1, ["level"], events=[Event(when)])
    first, second = (lower_events(problem)[0].when for _ in range(2))
    point, out = (0.0, problem.admit_state([1.0]), np.ones(1)), problem.create_state()
    counts = []
    for scalar in (first, second):
        scalar.add_u(1.0, *point, out)
        counts.append(calls)
    assert out.array == 2.0
    assert counts[1] - counts[0] == 1 < counts[0]
    more = add_events(problem, [Event(0.5)])
    assert len(lower_events(more)) == 2 > len(lower_events(problem))
