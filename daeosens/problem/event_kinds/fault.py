"""A mode that begins and ends at given times."""

from __future__ import annotations

from typing import Annotated

from daeosens.errors import InputError
from daeosens.problem.event import Event
from daeosens.problem.event_kinds.options import Mode, Number
from daeosens.problem.event_kinds.state_names import System


def fault(
    system: System,
    *,
    start: Annotated[Number, "time"],
    end: Annotated[Number, "time"],
    mode: Annotated[Mode, "between"] = "fault",
    cleared: Annotated[Mode, "afterwards"] = "normal",
    within: Annotated[tuple[Mode, ...], "where it can begin"] = (),
    name: str = "",
) -> tuple[Event, Event]:
    """Enter a mode at one time and leave it at another.

    The events are called like the modes they lead to, after ``name`` and a space if one is given.

    Parameters
    ----------
    system : System
        Names.
    start, end : float or str
        Times: numbers, or parameters, with respect to which can be differentiated.
    mode, cleared : str
        The modes between and afterwards.
    within : sequence of str
        The modes in which it can begin; in all where empty.
    name : str
        Of the pair.

    Returns
    -------
    tuple of two Event

    Raises
    ------
    InputError
        Names that there are not, an end that does not come after the start, one mode twice.

    Examples
    --------
    >>> grid = System(["angle", "speed"], modes=["normal", "fault"])
    >>> [(event.when, event.mode) for event in fault(grid, start=0.1, end=0.2)]
    [(0.1, 'fault'), (0.2, 'normal')]
    """
    for mode_name in (mode, cleared, *within):
        system.check_mode(mode_name)
    for time in (start, end):
        system.quantity(time)
    if mode == cleared:
        raise InputError(f'mode and cleared are both "{mode}"', expected="two modes")
    if not isinstance(start, str) and not isinstance(end, str) and end <= start:
        raise InputError(f"end = {end:g} is not after start = {start:g}")
    if start == end:
        raise InputError(f'start and end are both "{start}"', expected="two times")
    return (
        Event(start, mode=mode, within=within, name=f"{name} {mode}".strip()),
        Event(end, mode=cleared, within=(mode,), name=f"{name} {cleared}".strip()),
    )
