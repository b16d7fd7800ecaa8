"""Two modes, between which an unknown switches at an upper and a lower level."""

from __future__ import annotations

from typing import Annotated

from daeosens.errors import InputError
from daeosens.problem.event import Event
from daeosens.problem.event_kinds.affine import surface
from daeosens.problem.event_kinds.options import Component, Mode, Number
from daeosens.problem.event_kinds.state_names import System


def hysteresis(
    system: System,
    *,
    component: Annotated[Component, "what is watched"],
    upper: Number,
    lower: Number,
    above: Annotated[Mode, "entered where it rises to the upper level"],
    below: Annotated[Mode, "entered where it falls to the lower level"],
    name: str = "",
) -> tuple[Event, Event]:
    """Switch to one mode where an unknown rises to a level, back where it falls to a lower one.

    The events are called like the modes they lead to, after ``name`` and a space if one is given.

    Parameters
    ----------
    system : System
        Names.
    component : str or int
        What is watched.
    upper, lower : float or str
        The levels: numbers or parameters.
    above, below : str
        The modes that begin there.
    name : str
        Of the pair.

    Returns
    -------
    tuple of two Event

    Raises
    ------
    InputError
        Names that there are not, levels the wrong way round, one mode twice.

    Examples
    --------
    >>> room = System(["temperature"], ["target"], modes=["heating", "idle"])
    >>> hot, cold = hysteresis(
    ...     room, component=0, upper=21.0, lower="target", above="idle", below="heating"
    ... )
    >>> hot.name, hot.within, cold.when(0.0, [20.0], [18.5])
    ('idle', ('heating',), 1.5)
    """
    index = system.index(component)
    for mode in (above, below):
        system.check_mode(mode)
    if above == below:
        raise InputError(f'above and below are both "{above}"', expected="two modes")
    if not isinstance(upper, str) and not isinstance(lower, str) and upper <= lower:
        raise InputError(f"upper = {upper:g} is not above lower = {lower:g}")
    if upper == lower:
        raise InputError(f'upper and lower are both "{upper}"', expected="two levels")
    return (
        Event(
            **surface(system, index, system.quantity(upper)),
            direction=1,
            mode=above,
            within=(below,),
            name=f"{name} {above}".strip(),
        ),
        Event(
            **surface(system, index, system.quantity(lower)),
            direction=-1,
            mode=below,
            within=(above,),
            name=f"{name} {below}".strip(),
        ),
    )
