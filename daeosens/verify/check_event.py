"""The derivatives of events: of their functions, of resets, of parameters that they change."""

from __future__ import annotations

import math
from collections.abc import Callable

from daeosens.costs.scalar import Callback
from daeosens.errors import SolveError
from daeosens.methods.events.event_function import RESET, lower_changes, lower_event, lower_reset
from daeosens.problem.event import Event
from daeosens.verify.check_cost import check_callback
from daeosens.verify.check_equations import check_equations
from daeosens.verify.check_point import CheckPoint


def check_event(bench: CheckPoint, event: Event) -> None:
    """Check every derivative of an event that the user has a part in.

    The point need not be one at which it happens.  A function that has no value there gives a row
    that says so.
    """
    problem, t, u, p = bench.problem, bench.t, bench.u, bench.p
    when = lower_event(problem, event).when
    if when is not None and callable(event.when):
        _check_scalar(bench, when)
    reset = lower_reset(problem, event)
    if reset is not None:
        inside = bench.titled(f'event "{event.name}"', reset)
        # A reset is checked like a right-hand side u+ = a(t, u, p) of its own.
        if _has_value(inside, RESET.value, lambda: inside.fill(reset.rhs, t, u, p)):
            check_equations(inside, RESET)
    for _, value in lower_changes(problem, event):
        _check_scalar(bench, value)


def _check_scalar(bench: CheckPoint, scalar: Callback) -> None:
    name = scalar.name(scalar.keywords.value)
    if _has_value(bench, name, lambda: scalar.value(bench.t, bench.u, bench.p)):
        check_callback(bench, scalar)


def _has_value(bench: CheckPoint, name: str, evaluate: Callable[[], object]) -> bool:
    """Whether a function has a value at the point; a row says it if not."""
    try:
        evaluate()
    except SolveError as error:
        bench.add(name, "callback", math.nan, "cannot tell", error.what)
        return False
    return True
