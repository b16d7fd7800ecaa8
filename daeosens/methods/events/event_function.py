"""Events as sweeps see them: on PETSc vectors, with all their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.costs.scalar import Callback
from daeosens.costs.scalar_derivatives import Derivatives, Keywords
from daeosens.errors import InputError, UnsupportedError, nearest
from daeosens.methods.events.reset import Reset
from daeosens.petsc.c_function import admit_native
from daeosens.problem.c_callback import Role, Roles
from daeosens.problem.event import Event
from daeosens.problem.hessian_products import lower_hessian, lower_time_hessian
from daeosens.problem.layout import CallbackLayout
from daeosens.problem.lowering import (
    Lowering,
    known_in_time,
    parameter_derivative,
    sources,
    state_derivative,
)
from daeosens.problem.matrices import dense, refused
from daeosens.problem.problem import INDEPENDENT, Problem, ProblemCache

WHEN = Keywords("callback", "when", "when_u", "when_p", "when_t", "when_hessian", "when_hessian_t")
RESET = Keywords(
    "callback", "reset", "reset_u", "reset_p", "reset_t", "reset_hessian", "reset_hessian_t"
)
CHANGE = Keywords("callback")

_RESET_ROLES: dict[str, Role] = {
    "value": "vector",
    "u": "by_u",
    "p": "by_p",
    "t": "vector",
    "hessian": "hessian",
    "hessian_t": "hessian_t",
}


@dataclass(frozen=True, eq=False)
class Switch:
    """One event, lowered: the function whose zero is sought (None at a given time), and the jump.

    ``changes`` says whether it changes parameters.
    """

    name: str
    when: Callback | None
    jump: Reset
    changes: bool = False


def lower_event(problem: Problem, event: Event) -> Switch:
    """Return an event on PETSc vectors.

    Raises
    ------
    InputError, UnsupportedError
        Derivatives that are none, or cannot be had; unknown parameters.
    """
    when: Callback | None = None
    if event.delay is not None:
        # An event at a time that is a parameter is an implicit one with g = t - begin - p_k: then
        # its time has a derivative as that of any other.
        when = _at_parameter(problem, event.name, *event.delay)
    elif not event.explicit:
        call: Any = event.when
        derivatives = Derivatives(
            event.when_u, event.when_p, event.when_t, event.when_hessian, event.when_hessian_t
        )
        when = Callback(problem, _title(event.name), call, derivatives, WHEN)
    changes = lower_changes(problem, event)
    jump = Reset(problem, lower_reset(problem, event), changes)
    return Switch(event.name, when, jump, bool(changes))


_SWITCHES: ProblemCache[list[Switch]] = ProblemCache(list)


def lower_events(problem: Problem) -> Sequence[Switch]:
    """Return the events of a problem on PETSc vectors: the same ones for all its runs.

    Complex steps, compared with differences at their first use, are not compared again.

    Raises
    ------
    InputError, UnsupportedError
        As ``lower_event``.
    """
    switches = _SWITCHES.of(problem)
    # A list that is filled once, so that events and their checked derivatives are shared by runs.
    if not switches:
        switches.extend([lower_event(problem, event) for event in problem.events])
    return switches


def lower_reset(problem: Problem, event: Event) -> Problem | None:
    """Return the reset as the right-hand side of a problem: a map of states with derivatives.

    Its ``sources`` go by the keywords of ``Event``, as messages do.
    """
    if event.reset is None:
        return None

    def template() -> PETSc.Mat:
        # a_u of a reset couples any components; on a grid it has the pattern of the grid
        return dense(problem.state, problem.state) if problem.dm is None else problem.dm.createMat()

    frame = CallbackLayout(
        problem.style,
        problem.state,
        problem.parameter,
        problem.parameter_names,
        problem.field_parameter,
        problem.dm,
        template,
        problem.faults,
    )
    named = {key: f"{_title(event.name)} {keyword}" for key, keyword in vars(RESET).items()}
    roles = Roles(problem.size, problem.n_parameters, numpy=problem.style == "numpy")
    derivatives = {
        key: roles.admit(role, getattr(event, getattr(RESET, key)), named[key])
        for key, role in _RESET_ROLES.items()
    }
    call, by_u, by_p, hessian, hessian_t = (
        derivatives[key] for key in ("value", "u", "p", "hessian", "hessian_t")
    )
    by_t = known_in_time(call, derivatives["t"])
    lower = Lowering(frame, named["value"], 3)
    first = {1: by_u, 2: by_p}
    # A map of states is no equation in u': whoever asks for F by mistake is told.
    never = refused(named["value"], "the state afterwards: it has no rate")
    return Problem(
        form="rhs",
        rhs_function=lower.function(call),
        residual_function=None,
        rhs_u=state_derivative(lower, call, by_u, named["u"], 1),
        rhs_p=parameter_derivative(lower, call, by_p, named["p"]),
        rhs_t_function=lower.time_derivative(call, by_t, named["t"]),
        residual_u=never,
        residual_udot=None,
        residual_p=never,
        residual_t_function=never.fill,
        rhs_hessian_function=lower_hessian(
            frame, call, first, hessian, named["value"], named["hessian"]
        ),
        residual_hessian_function=never.fill,
        rhs_time_hessian_function=lower_time_hessian(
            frame,
            call,
            {0: by_t, **first},
            hessian_t,
            named["value"],
            named["hessian_t"],
        ),
        sources=sources(
            frame,
            call,
            reset_u=by_u,
            reset_p=by_p,
            reset_t=by_t,
            reset_hessian=hessian,
            reset_hessian_t=hessian_t,
        ),
        **frame.fields(),
    )


def lower_changes(problem: Problem, event: Event) -> list[tuple[int, Callback]]:
    """Return the numbers of the parameters that change and their values after the event.

    Raises
    ------
    InputError, UnsupportedError
        Unknown parameters, values that are no functions.
    """
    return [
        (_parameter_number(problem, event.name, name), _value(problem, event.name, name, value))
        for name, value in event.changes.items()
    ]


def _at_parameter(problem: Problem, event: str, begin: float, name: str) -> Callback:
    """Return t - begin - p_k: the event happens so much later as the parameter of this name."""
    k = _parameter_number(problem, event, name)
    unit = np.zeros(problem.n_parameters)
    # g_p = -1 in p_k, g_t = 1 and g_u = 0: so d = 1 and dtau = dp_k.
    unit[k] = -1.0
    derivatives = Derivatives(
        INDEPENDENT,
        lambda _t, _u, _p: unit,
        lambda _t, _u, _p: 1.0,
        _nothing(problem),
        INDEPENDENT,
    )
    return Callback(problem, _title(event), lambda t, _u, p: t - begin - p[k], derivatives, WHEN)


def _nothing(problem: Problem) -> Callable[..., Any]:
    """Return second derivatives that are zero, in the style of the problem."""
    by_p = np.zeros(problem.n_parameters)
    if problem.style == "numpy":
        by_u = np.zeros(problem.size)
        return lambda *_point: (by_u, by_p)

    def fill(*arguments: Any) -> Any:
        arguments[-1].zeroEntries()
        return by_p

    return fill


def _title(event: str) -> str:
    return f'event "{event}"'


def _value(problem: Problem, event: str, name: str, value: Any) -> Callback:
    """Return the value of a parameter after an event as a scalar of (t, u, p)."""
    title = f'{_title(event)} changes["{name}"]'
    derivatives = Derivatives()
    if not callable(value) and admit_native(value) is None:
        keywords = ("gradient_u", "gradient_p", "value_t", "hessian_product", "hessian_t")
        # A Terminal brings derivatives of its own; a plain function gets them as any callback
        # does.
        function = getattr(value, "value", None)
        if not callable(function) and admit_native(function) is None:
            raise InputError(
                f"{title} = {value!r}", expected="a function (t, u, p) -> float, or a Terminal"
            )
        derivatives = Derivatives(*(getattr(value, keyword, None) for keyword in keywords))
        value = function
    return Callback(problem, title, value, derivatives, CHANGE)


def _parameter_number(problem: Problem, event: str, name: str) -> int:
    if problem.field_parameter:
        raise UnsupportedError(
            f'event "{event}" names the parameter "{name}" of a problem whose parameter is a field',
            expected="parameters that are numbers",
        )
    names = problem.parameter_names
    if name not in names:
        raise InputError(
            f'event "{event}" names an unknown parameter "{name}"',
            expected=", ".join(names) or "a problem with parameters",
            remedy=nearest(name, names),
        )
    return names.index(name)
