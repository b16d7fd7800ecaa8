"""Surfaces along a run: on which side of each the state is, and what is known of its value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from petsc4py import PETSc

from daeosens.methods.events.event_function import Switch
from daeosens.problem.event import Event

COARSE = 0.3
"""A parabola whose extremum keeps so far from zero, as a part of its scale, has not crossed it."""

NEAR = 5e-4
"""A parabola tells on which side of the end of a step an extremum lies only where the value there
is larger than this part of the change: nearer to the surface a dip fits between."""

CLOSE = 1e-6
"""A value that is smaller than this part of its change may be zero to rounding."""


@dataclass(eq=False)
class Surface:
    """One implicit event along a run.

    Attributes
    ----------
    event, switch
        The event, and what it was lowered to.
    side : float
        The side on which the state is: 1, -1, or 0 where it rests on the surface.
    value : float
        Of the event function at the last accepted state.
    slope : float
        Of the event function along the run, where the piece began.
    on : bool
        The state is there, at the beginning of a piece, on the surface.
    touching : bool
        It does not leave it at a finite speed.
    towards : float
        The side to which it was crossed when its event happened last; 0 before that.
    earlier : (float, float) or None
        Size of the last step and the value before it; None where the piece begins.
    start_slope, end_slope : float or None
        Of the event function where a step that is looked at begins and ends, where known.
    """

    event: Event
    switch: Switch
    side: float = 0.0
    value: float = 0.0
    slope: float = 0.0
    on: bool = False
    touching: bool = False
    towards: float = 0.0
    earlier: tuple[float, float] | None = None
    start_slope: float | None = None
    end_slope: float | None = None

    def at(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the event function."""
        assert self.switch.when is not None
        return self.switch.when.value(t, u, p)

    @cached_property
    def direction(self) -> int:
        """Of the crossings that count: a time that is a parameter is passed in one only."""
        return 1 if self.event.delay is not None else self.event.direction

    def counts(self, towards: float) -> bool:
        """Whether a crossing towards the side with that sign is an event."""
        return self.direction in (0, towards)

    def far(self, value: float, h: float) -> bool:
        """Whether a step of size ``h`` to ``value`` stays on its side beyond doubt.

        The parabola through this value, the last one, and the one before (or the slope, where the
        piece begins) has to keep its distance.
        """
        side, last = self.side, self.value
        if value * side <= 0.0 or side == 0.0:
            return False
        change = value - last
        # a step that ends on the surface to rounding is looked at closely
        if abs(value) <= CLOSE * abs(change):
            return False
        if self.earlier is None:
            # a parabola through two values and the slope is trusted where the slope foretells the
            # change
            first = h * self.slope
            if abs(change - first) > 0.5 * abs(first):
                return False
            lowest, scale = abs(value), max(abs(last), abs(value))
        else:
            size, before = self.earlier
            # Newton's form on points at -size, 0 and h, with x in units of h: the slope of the
            # parabola at 0; that at 1 is 2 change - first
            ratio, past = size / h, last - before
            first = (change * ratio + past / ratio) / (1.0 + ratio)
            steady = 0.5 * abs(change)
            near = NEAR * abs(change)
            if first * side >= steady and abs(last) > near:  # on its way off, at a steady speed
                return True
            towards = (first - change - change) * side >= steady
            if towards and abs(value) > near:  # on its way towards it, likewise
                return True
            lowest, scale = min(abs(last), abs(value)), max(abs(last), abs(value), abs(before))
        if first * side < 0.0 < (change + change - first) * side:  # a minimum inside
            # the vertex of last + first x + (change - first) x^2
            lowest = min(lowest, (last - 0.25 * first * first / (change - first)) * side)
        return lowest > COARSE * scale

    def start(self, h: float) -> list[tuple[float, float, float | None]]:
        """Return what is known where a step of size ``h`` begins, as points to interpolate."""
        first = 0.0 if self.on else self.value
        if self.earlier is not None:
            size, before = self.earlier
            slope = self.start_slope
            return [(-size / h, before, None), (0.0, first, None if slope is None else h * slope)]
        return [(0.0, first, h * self.slope)]

    def move(self, value: float, h: float) -> None:
        """Go on to the next accepted state, at a step's distance."""
        self.earlier = (h, self.value)
        self.start_slope, self.end_slope = self.end_slope, None
        self.value, self.on = value, False
