"""Events as sweeps see them: on PETSc vectors, with all their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from daeosens.cost import INDEPENDENT, Callback, Derivatives, Keywords, Scalar
from daeosens.equations import ODE
from daeosens.errors import InputError, UnsupportedError, nearest
from daeosens.events import Event
from daeosens.problem import Problem
from daeosens.steps.jumps import Reset

WHEN = Keywords("when_u", "when_p", "when_t", "when_hessian", "when_hessian_t")


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
    if isinstance(event.when, str):
        when = _at_parameter(problem, event.name, event.when)
    elif not event.explicit:
        call: Any = event.when
        given = Derivatives(
            event.when_u, event.when_p, event.when_t, event.when_hessian, event.when_hessian_t
        )
        when = Callback(problem, f'when of event "{event.name}"', call, given, WHEN)
    changes = [
        (_parameter_number(problem, event.name, name), _value(problem, event.name, name, value))
        for name, value in event.changes.items()
    ]
    return Switch(event.name, when, Reset(problem, _reset(problem, event), changes), bool(changes))


def _reset(problem: Problem, event: Event) -> Problem | None:
    """Return the reset as the right-hand side of a problem: a map of states with derivatives."""
    if event.reset is None:
        return None
    numbers: Any = problem.parameter_names
    parameters: Any = problem.parameter if problem.field_parameter else numbers
    state: Any = {"size": problem.size}
    if problem.style == "petsc":
        state = {"state": problem.state if problem.dm is None else problem.dm}
    return ODE(
        event.reset,
        parameters=parameters,
        jacobian=event.reset_u,
        jacobian_p=event.reset_p,
        rhs_t=event.reset_t,
        hessian_product=event.reset_hessian,
        hessian_t=event.reset_hessian_t,
        **state,
    )


def _at_parameter(problem: Problem, event: str, name: str) -> Callback:
    """Return t - p_k: the event happens at the time that is the parameter of this name."""
    k = _parameter_number(problem, event, name)
    unit = np.zeros(problem.n_parameters)
    unit[k] = -1.0
    given = Derivatives(
        INDEPENDENT,
        lambda _t, _u, _p: unit,
        lambda _t, _u, _p: 1.0,
        _nothing(problem),
        INDEPENDENT,
    )
    return Callback(problem, f'when of event "{event}"', lambda t, _u, p: t - p[k], given, WHEN)


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


def _value(problem: Problem, event: str, name: str, value: Any) -> Scalar:
    """Return the value of a parameter after an event as a scalar of (t, u, p)."""
    title = f'event "{event}": changes["{name}"]'
    given = Derivatives()
    if not callable(value):
        keywords = ("gradient_u", "gradient_p", "value_t", "hessian_product", "hessian_t")
        if not callable(getattr(value, "value", None)):
            raise InputError(
                f"{title} = {value!r}", expected="a function (t, u, p) -> float, or a Terminal"
            )
        given = Derivatives(*(getattr(value, keyword, None) for keyword in keywords))
        value = value.value
    return Callback(problem, title, value, given)


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
