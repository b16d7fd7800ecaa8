"""A body that hits a floor and is thrown back."""

from __future__ import annotations

from typing import Annotated, Literal

from daeosens.errors import InputError
from daeosens.problem.event import Event
from daeosens.problem.event_kinds.affine import affine, surface
from daeosens.problem.event_kinds.options import Component, Mode, Number, chosen
from daeosens.problem.event_kinds.state_names import System

SIDES = {"above": -1, "below": 1}


def impact(
    system: System,
    *,
    position: Annotated[Component, "of the body, across the floor"],
    speed: Annotated[Component, "its rate of change"],
    floor: Number = 0.0,
    restitution: Annotated[Number, "part of the speed that is left"] = 1.0,
    side: Annotated[Literal["above", "below"], "where the body moves"] = "above",
    terminal: bool = False,
    mode: Mode | None = None,
    within: tuple[Mode, ...] = (),
    name: str = "impact",
) -> Event:
    """Throw a body back where it hits a floor: v -> -restitution v.

    Parameters
    ----------
    system : System
        Names.
    position, speed : str or int
        The unknowns x and v.
    floor, restitution : float or str
        Numbers or parameters; a restitution of at least 0.
    side : "above" or "below"
        Where the body moves: above a floor, or below a ceiling.
    terminal, mode, within, name
        As for ``Event``.

    Returns
    -------
    Event

    Raises
    ------
    InputError
        Names that there are not, one unknown as position and speed, a negative restitution.

    Examples
    --------
    >>> ball = System(["height", "speed"], ["restitution"])
    >>> bounce = impact(ball, position="height", speed="speed", restitution="restitution")
    >>> bounce.reset(0.0, [0.0, -3.0], [0.5])
    array([0. , 1.5])
    """
    x, v = system.index(position), system.index(speed)
    if x == v:
        raise InputError(f"position and speed are both {system.name(x)}", expected="two unknowns")
    if not isinstance(restitution, str) and restitution < 0.0:
        raise InputError(f"restitution = {restitution:g}", expected="a number of at least 0")
    return Event(
        **surface(system, x, system.quantity(floor)),
        **affine(system, {v: system.quantity(restitution) * -1.0}, {}),
        direction=chosen("side", side, SIDES),
        terminal=terminal,
        mode=mode,
        within=within,
        name=name,
    )
