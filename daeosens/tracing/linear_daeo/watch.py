"""What follows runs of DAEOs with linear inner problems: distances of flows to their bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.errors import SolveError
from daeosens.petsc.vectors import Array
from daeosens.problem.event import Event
from daeosens.problem.monitor import Suspect
from daeosens.tracing.linear_daeo.bases import BEYOND, BOUNDS, Bases, Mode
from daeosens.tracing.linear_daeo.programme import ROUNDING

CHANGE = "basis"
"""Name of the event at which the basis changes."""

NOISE = 1e-14
"""Rounding of distances, relative to what they are made of."""

SAME = 1e-8
"""Distances whose values differ by this part of the largest are proportional."""

DOUBT = 0.5
"""A distance may differ from its cubic interpolation by this part of what that differs from a
straight line."""


@dataclass(eq=False)
class BasisChanges:
    """The bases of a run.

    Attributes
    ----------
    changes : list of (float, str, str)
        From when on, the name of the basis, and why it came.
    """

    changes: list[tuple[float, str, str]] = field(default_factory=list[tuple[float, str, str]])

    def __len__(self) -> int:
        return len(self.changes)

    def __str__(self) -> str:
        """Return a table."""
        rows = [("t", "basis", ""), *((f"{t:.9g}", name, why) for t, name, why in self.changes)]
        widths = [max(len(row[k]) for row in rows) for k in range(2)]
        return "\n".join(
            f"{t:<{widths[0]}}  {name:<{widths[1]}}  {why}".rstrip() for t, name, why in rows
        )


class Watcher:
    """Follows the distances of all basic flows to their bounds along one run.

    Parameters
    ----------
    bases : Bases
    event_parts : callable
        Makes the arguments of an ``Event`` from compiled functions "distance" with data.

    Attributes
    ----------
    report : BasisChanges
    """

    names: Sequence[str] = (CHANGE,)
    at_once = False

    def __init__(self, bases: Bases, event_parts: Callable[[Any], dict[str, Any]]) -> None:
        self._bases, self._event_parts = bases, event_parts
        self.report = BasisChanges()
        self._mode: Mode | None = None
        self._new = True
        self.reached = np.nan

    def explained(self, t: float, u: Array, p: Array, h: float) -> SolveError | None:
        """Return nothing: of steps that fail it does not know why."""

    def ends(self, t: float, u: Array) -> None:
        """Take note of the state before an event: flows follow from that after it."""

    def begins(self, t: float, u: Array, p: Array, mode: str) -> Event | None:
        """Take note of where a piece begins; return a change of the basis at this time, if any."""
        bases, self.reached = self._bases, t
        current = bases[mode]
        bases.check_kept(current, t, u, p)
        # an event may have moved bounds: the dual simplex method goes from the old basis to the
        # new one
        settled = bases.settled(current, t, u, p)
        if settled is not current:
            return Event(t, mode=settled.name, name=CHANGE)
        if self._mode is not current:
            bases.check_unique(current, t, u, p)
            self.report.changes.append((t, mode, self._reason(mode)))
        self._mode, self._new = current, True
        return None

    def _reason(self, mode: str) -> str:
        """Return in words why a mode follows the last one."""
        return "" if self._mode is None else self._mode.reasons.get(mode, "an event")

    def look(
        self, times: Array, states: Array, p: Array
    ) -> Iterator[tuple[int, Sequence[Suspect]]]:
        """Look at steps; yield those in which flows may come to their bounds."""
        mode = self._mode
        assert mode is not None
        z, rates = self._bases.motion(mode, times, states, p)
        # one pass over all steps and flows at once; only the few in doubt are looked at one by one
        doubtful, distances, slopes = self._doubts(mode, times, z, rates)
        fresh = [k for k in np.flatnonzero(doubtful.any(axis=0)).tolist() if k not in mode.events]
        if fresh:
            for k in fresh:
                # making its event may widen a bound (``_event``): distances are looked at again
                mode.events[k] = self._event(mode, k)
            doubtful, distances, slopes = self._doubts(mode, times, z, rates)
        self._new = False
        noise = NOISE * (np.abs(z) @ np.abs(mode.rows).T)
        for n in np.flatnonzero(doubtful.any(axis=1)).tolist():
            self.reached = float(times[n])
            # a flow that has rested at its bound, and would leave it, leaves the basis first
            falls = (np.abs(distances[n]) <= noise[n]) & (distances[n + 1] < -noise[n + 1])
            rested = np.flatnonzero(falls & (slopes[n] * (times[n + 1] - times[n]) <= noise[n]))
            if rested.size:
                yield n, [Suspect(mode.events[int(rested[0])], (0.0, 0.0), (0.0, 0.0))]
            yield (
                n,
                [
                    Suspect(mode.events[k], (float(distances[n, k]), float(slopes[n, k])))
                    for k in _apart(doubtful[n], distances[n : n + 2], slopes[n : n + 2])
                ],
            )
            self._check_within(mode, float(times[n + 1]), distances[n + 1])

    def _check_within(self, mode: Mode, t: float, distances: Array) -> None:
        """Refuse flows beyond their bounds where the run goes on."""
        k = int(np.argmin(distances))
        if distances[k] < -10.0 * BEYOND:
            number, bound = mode.basis.places[mode.basis.watched[k]]
            raise SolveError(
                f"{self._bases.programme.name(number)} is beyond its {BOUNDS.get(bound, '')} bound "
                f"at t = {t:.9g}, and no step was seen to cross it",
                expected="bounds that are smooth along steps",
                remedy="smaller steps, or an event where a bound has a kink",
            )

    def _doubts(
        self, mode: Mode, times: Array, z: Array, rates: Array
    ) -> tuple[npt.NDArray[np.bool_], Array, Array]:
        """Return [N, W] whether distances may fall to zero in steps, these [N+1, W], and slopes."""
        distances, slopes = z @ mode.rows.T, rates @ mode.rows.T
        if self._new:  # where the piece begins some flows leave their bounds
            size = ROUNDING * (np.abs(mode.rows) @ np.abs(z[0]))
            distances[0, np.abs(distances[0]) <= size] = 0.0
        # The control points of the Bezier form of the cubic through values and slopes at both
        # ends: the cubic lies in their convex hull, so where that is positive no flow comes to its
        # bound
        h = np.diff(times)[:, None]
        first, last = distances[:-1], distances[1:]
        left, right = first + h * slopes[:-1] / 3.0, last - h * slopes[1:] / 3.0
        # how far the hull's inner points are from the straight line: what the cubic may be wrong
        # by
        bend = np.maximum(
            np.abs(left - (2.0 * first + last) / 3.0), np.abs(right - (first + 2.0 * last) / 3.0)
        )
        lowest = np.minimum(np.minimum(left, right), last)
        # a flow that rests at its bound, as where nothing is left to take up, is within it: be it
        # where a step ends, or where it begins and the flow is within bounds at its end
        noise = NOISE * (np.abs(z) @ np.abs(mode.rows).T)
        before = (np.abs(first) <= noise[:-1]) & (np.abs(h * slopes[:-1]) <= noise[:-1])
        after = (np.abs(last) <= noise[1:]) & (np.abs(h * slopes[1:]) <= noise[1:])
        rests = after | (before & (last >= 0.0))
        return (lowest - DOUBT * bend < 0.0) & ~rests, distances, slopes

    def _event(self, mode: Mode, k: int) -> Event:
        """Return the event that a flow comes to its bound."""
        bases = self._bases
        number, bound = mode.basis.places[mode.basis.watched[k]]
        if mode.basis.after(number, bound) is None:
            # no other basis follows here: the bound is given this width before the programme is
            # infeasible
            mode.rows[k, 0] += BEYOND
        parts = self._event_parts(bases.bound(mode.rows[k]))

        def following(t: float, u: Array, p: Array) -> str:
            bases.check_met(mode, mode.rows[k], t, u, p)
            name = bases.settled(mode, t, u, p, (number, bound)).name
            why = f"{bases.programme.name(number)} at its {BOUNDS.get(bound, '')} bound"
            mode.reasons[name] = why
            return name

        return Event(direction=-1, name=CHANGE, mode=following, **parts)


def _apart(doubtful: npt.NDArray[np.bool_], distances: Array, slopes: Array) -> list[int]:
    """Return numbers of distances in doubt, one of those that are proportional over the step.

    They fall to zero together; where the next piece begins the others leave the basis as well.
    """
    chosen = np.flatnonzero(doubtful)
    values = np.concatenate([distances[:, chosen], slopes[:, chosen]])
    with np.errstate(invalid="ignore", divide="ignore"):
        # divided by its largest value, each curve has a shape that does not depend on its unit
        shapes = values / np.abs(values).max(axis=0)
    first: list[int] = []
    for k in range(len(chosen)):
        if not any(np.abs(shapes[:, k] - shapes[:, j]).max() < SAME for j in first):
            first.append(k)
    return chosen[first].tolist()
