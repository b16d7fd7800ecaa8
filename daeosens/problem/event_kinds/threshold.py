"""An unknown that passes a level."""

from __future__ import annotations

from typing import Annotated, Literal

from daeosens.problem.event import Event
from daeosens.problem.event_kinds.affine import affine, surface
from daeosens.problem.event_kinds.options import (
    Changes,
    Component,
    Mode,
    Number,
    chosen,
    quantities,
)
from daeosens.problem.event_kinds.state_names import System

DIRECTIONS = {"rising": 1, "falling": -1, "either": 0}


def threshold(
    system: System,
    *,
    component: Annotated[Component, "what passes the level"],
    level: Number,
    direction: Literal["rising", "falling", "either"] = "either",
    multiply: Changes | None = None,
    add: Changes | None = None,
    terminal: bool = False,
    mode: Mode | None = None,
    within: tuple[Mode, ...] = (),
    name: str = "threshold",
) -> Event:
    """Let something happen where an unknown passes a level.

    Parameters
    ----------
    system : System
        Names.
    component, level : str or int, float or str
        The unknown, and the level: a number or a parameter.
    direction : "rising", "falling" or "either"
        How it has to pass.
    multiply, add : mapping, optional
        Changes of unknowns there: factors first, then summands; numbers or parameters.
    terminal, mode, within, name
        As for ``Event``.

    Returns
    -------
    Event

    Raises
    ------
    InputError
        Names that there are not.

    Examples
    --------
    >>> tank = System(["volume"], ["limit", "dose"])
    >>> refill = threshold(tank, component="volume", level="limit", add={"volume": "dose"})
    >>> refill.reset(0.0, [1.0], [1.0, 4.0])
    array([5.])
    """
    return Event(
        **surface(system, system.index(component), system.quantity(level)),
        **affine(system, quantities(system, multiply), quantities(system, add)),
        direction=chosen("direction", direction, DIRECTIONS),
        terminal=terminal,
        mode=mode,
        within=within,
        name=name,
    )
