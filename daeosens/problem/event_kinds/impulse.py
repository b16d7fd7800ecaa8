"""Changes of the state at given times."""

from __future__ import annotations

from typing import Annotated

from daeosens.errors import InputError
from daeosens.problem.event import Event
from daeosens.problem.event_kinds.affine import affine
from daeosens.problem.event_kinds.options import Changes, Mode, Number, quantities
from daeosens.problem.event_kinds.state_names import System


def impulse(
    system: System,
    *,
    at: Annotated[Number | tuple[Number, ...], "time or times; parameters are differentiated"],
    multiply: Changes | None = None,
    add: Changes | None = None,
    within: tuple[Mode, ...] = (),
    name: str = "impulse",
) -> tuple[Event, ...]:
    """Multiply unknowns, and add to them, at given times.

    Parameters
    ----------
    system : System
        Names.
    at : float, str, or a sequence of them
        The times: numbers, or parameters, with respect to which can be differentiated.
    multiply, add : mapping
        Factors and summands of unknowns; numbers or parameters.  Factors come first.
    within, name
        As for ``Event``.

    Returns
    -------
    tuple of Event
        One for each time.

    Raises
    ------
    InputError
        Names that there are not, no time, nothing that changes.

    Examples
    --------
    >>> blood = System(["drug"], ["dose"])
    >>> doses = impulse(blood, at=(8.0, 16.0, 24.0), add={"drug": "dose"})
    >>> len(doses), doses[1].when, doses[1].reset(16.0, [1.0], [2.0])
    (3, 16.0, array([3.]))
    """
    times = tuple(at) if isinstance(at, (tuple, list)) else (at,)
    changes = affine(system, quantities(system, multiply), quantities(system, add))
    if not times:
        raise InputError("at = ()", expected="at least one time")
    if not changes:
        raise InputError("nothing changes", expected="multiply or add, with an unknown in it")
    for time in times:
        system.quantity(time)
    return tuple(Event(time, **changes, within=within, name=name) for time in times)
