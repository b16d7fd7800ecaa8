"""Events that accumulate: infinitely many in a finite time, or one that stops on its surface."""

from __future__ import annotations

from collections.abc import Sequence

from daeosens.errors import SolveError
from daeosens.timestepping.events.event_surface import Surface
from daeosens.timestepping.trajectory.crossing import Crossing

SHARE = 0.1
"""So many of the steps end at events, at least, where these use them up."""

CROWD, MOMENT = 30, 1e-8
"""So many events within such a part of the span are an accumulation."""

SLOW = 1e-3
"""What leaves a surface after less than this part of the span has not rested there."""


def refuse_crowd(crossings: Sequence[Crossing], span: float) -> None:
    """Refuse events that follow each other ever faster; ``span`` is the length of the run.

    Raises
    ------
    SolveError
        The last ``CROWD`` events happened within ``MOMENT`` of the span.
    """
    if len(crossings) >= CROWD and crossings[-1].t - crossings[-CROWD].t <= MOMENT * span:
        raise _accumulation(crossings, "they follow each other ever faster")


def refuse_chatter(crossings: Sequence[Crossing], taken: int, most: int) -> None:
    """Refuse a run whose events use up its steps: a relay that switches to and fro.

    Raises
    ------
    SolveError
        All of the ``most`` steps are taken, and many of them ended at events.
    """
    # a run that has used up its steps, and not by events, has other errors
    if taken < most or len(crossings) < max(CROWD, SHARE * taken):
        return
    recent = crossings[-CROWD:]
    names = " and ".join(f'"{name}"' for name in sorted({crossing.name for crossing in recent}))
    first, last = recent[0].t, recent[-1].t
    raise SolveError(
        f"{len(crossings)} events in {taken} steps up to t = {last:.9g}, the last {CROWD} of them, "
        f"{names}, within {last - first:.3g}: they follow each other without end",
        expected=f"the end of the run in max_steps = {most}",
        remedy="hysteresis, levels further apart for switching on and off; a mode in which the "
        f"state stays on the surface between them; or max_steps > {most}, if all are meant",
    )


def refuse_passing(fired: Sequence[Surface], crossings: Sequence[Crossing]) -> None:
    """Refuse a reset that leaves the state on its surface, from where it goes on through it.

    One that leaves it at a finite speed is meant so: a threshold that does something else.

    Raises
    ------
    SolveError
        Names the event.
    """
    for surface in fired:
        stays = surface.on and surface.touching and surface.event.reset is not None
        if stays and surface.side == surface.towards != 0.0:
            raise passing(surface, crossings)


def refuse_slow_passing(
    fired: Sequence[Surface], left: Surface, rest: float, crossings: Sequence[Crossing]
) -> None:
    """Refuse what ``refuse_passing`` does where the first looks, of tiny steps, saw nothing move.

    ``left`` is a surface that was zero to rounding for a time, ``rest`` of the span.

    Raises
    ------
    SolveError
        Names the event.
    """
    stays = left in fired and left.event.reset is not None
    if stays and left.side == left.towards and rest <= SLOW:
        raise passing(left, crossings)


def passing(surface: Surface, crossings: Sequence[Crossing]) -> SolveError:
    """Return the error of a reset that leaves the state on its surface, and it goes on."""
    why = f'"{surface.event.name}" stops the state on its surface, and it goes on through it'
    return _accumulation(crossings, why)


def _accumulation(crossings: Sequence[Crossing], why: str) -> SolveError:
    recent = crossings[-CROWD:]
    last = recent[-1].t
    return SolveError(
        f"events accumulate: {len(recent)} within {last - recent[0].t:.3g} before "
        f"t = {last:.9g} ({why})",
        expected="finitely many events",
        remedy="an event that ends the motion (terminal=True, or a reset to rest)",
    )
