"""Where a run of a delay equation is cut, and the clocks that move the cuts.

Clocks are the delays, and the times of events that move.  Times of cuts are linear in them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from daeosens.petsc.vectors import Array
from daeosens.timestepping.step_times import span_rounding
from daeosens.timestepping.trajectory.trajectory import Trajectory

ECHOES = 3
"""Sums of so many delays, at most, after which steps end at what kinks inside of the run make."""


class Cut(NamedTuple):
    """A time at which a run is cut.

    Attributes
    ----------
    time : float
    slope : array [c]
        Its derivatives in the clocks.
    event : int
        Number of the event at a known time that happens there; -1 where none does.
    """

    time: float
    slope: Array
    event: int = -1


class Clocks:
    """The clocks of a run so far, the delays first, and the order of cuts that they give.

    Cuts at one time are in the order that they have if each clock is a little later: a delay by
    less than the next one, an event at a parameter by more than any sum of delays.
    """

    def __init__(self, delays: int, order: int) -> None:
        # the base of numbers whose digits say how often each delay is in a sum
        base = order + 1.0
        self._later = base ** np.arange(delays)
        self._longest = base**delays

    def __len__(self) -> int:
        return len(self._later)

    def add_parameter(self, number: int) -> int:
        """Return the number of the clock of an event at a parameter.

        Those of one parameter move together; ``number`` counts the parameters.
        """
        self._later = np.append(self._later, self._longest * (1.0 + number))
        return len(self) - 1

    def add_between(self, before: Array | None, after: Array | None) -> int:
        """Return the number of the clock of an event between two cuts at its time, if there are.

        They are given by their slopes.
        """
        first, last = (None if slope is None else self.rank(slope) for slope in (before, after))
        if first is None:
            first = 0.0 if last is None else last - 1.0
        last = first + 1.0 if last is None else last
        self._later = np.append(self._later, 0.5 * (first + last))
        return len(self) - 1

    def rank(self, slope: Array) -> float:
        """Return where a cut is among those at one time, by its slope in the clocks so far."""
        return float(slope @ self._later[: len(slope)])

    def rank_before(self, rank: float, delay: int) -> float:
        """Return the rank of what a cut of some rank sees by a delay."""
        return rank - float(self._later[delay])

    def in_order(self, cuts: Sequence[Cut], rounding: float) -> list[Cut]:
        """Return cuts in order; all of those that are the same up to rounding are at one time.

        With pieces of length 0 between them, and in the order of small changes of the clocks.
        After events that move a time that does not comes once more: the state there is seen before
        the event and after it.
        """
        by_time = sorted(cuts, key=lambda cut: cut.time)
        times = np.array([cut.time for cut in by_time])
        ordered: list[Cut] = []
        # groups of one time
        begins = np.flatnonzero(np.diff(times, prepend=-np.inf) > rounding)
        for k, end in itertools.pairwise([*begins.tolist(), len(times)]):
            if end - k == 1:
                ordered += by_time[k:end]
                continue
            group = sorted(
                by_time[k:end],
                key=lambda cut: (self.rank(cut.slope), cut.event >= 0, cut.event),
            )
            still = [cut for cut in group if not cut.slope.any() and cut.event < 0]
            fixed = [cut.time for cut in group if not cut.slope.any()]
            time = fixed[0] if fixed else by_time[k].time
            if any(cut.event >= 0 and cut.slope.any() for cut in group):
                group += still[:1]
            ordered += [cut._replace(time=time) for cut in [*still[:1], *group[len(still) :]]]
        return ordered


def kinks_after(cut: Cut, tau: Array, order: int, last: float, rounding: float) -> list[Cut]:
    """Return where a kink, or a jump of the state, comes back after delays.

    A kink comes back after each, one order smoother.  Beyond the order of the method steps do not
    feel it.  The sums move with the delays: d time / d tau_l is how often tau_l is in the sum.
    """
    cuts: list[Cut] = []
    for multiples in _sums(len(tau), order, tau, last - cut.time - rounding):
        slope = cut.slope.copy()
        slope[: len(tau)] += multiples
        cuts.append(Cut(cut.time + float(np.dot(multiples, tau)), slope))
    return cuts


def widened(slope: Array, width: int) -> Array:
    """Return slopes in the clocks that there were in as many as there are now."""
    return slope if len(slope) == width else np.pad(slope, (0, width - len(slope)))


def echoes(run: Trajectory, kinks: Sequence[float]) -> Array:
    """Return the times at which kinks of the rates come back after delays, smoother each time.

    Rates are continuous at a kink, so that nothing is lost where these times stay as delays move.
    """
    tau, last = run.report.tau, float(run.times[-1])
    rounding, order = span_rounding(run.stepping.t_span), run.stepping.resolved_method.order
    times = [
        kink + np.dot(multiples, tau)
        for kink in kinks
        for multiples in _sums(len(tau), min(order, ECHOES), tau, last - kink - rounding)
    ]
    return np.unique(np.array(times, dtype=float))


def _sums(count: int, order: int, tau: Array, length: float) -> Iterator[tuple[int, ...]]:
    """Yield how often each delay enters the sums of up to ``order`` of them within the run."""
    for level in range(1, order + 1):
        for chosen in itertools.combinations_with_replacement(range(count), level):
            multiples = tuple(chosen.count(number) for number in range(count))
            if float(np.dot(multiples, tau)) < length:
                yield multiples
