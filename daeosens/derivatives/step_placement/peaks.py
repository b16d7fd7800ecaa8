"""Narrow peaks in time that the stages of a step have missed: smooth ones, and those of tables.

``np.exp(-((t - 10) / 0.1) ** 2)`` is nothing to a step from 9 to 30 whose stages lie beside it, nor
is a row of a table that is read by ``np.interp``.  What the callback makes of the time alone is
known, and so are the times at which that turns.  Around these it is integrated over the steps, and
compared with what the method's weights make of its values at the stages.  What follows a
comparison, ``max(t - 10, 0)``, holds until the next one changes: so steps are taken apart there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from daeosens.derivatives.branches.branch_changes import Piecewise, equations_of, point_on_chord
from daeosens.derivatives.branches.switch_times import times_of_change
from daeosens.errors import DaeosensError
from daeosens.petsc.vectors import Array
from daeosens.problem.clock import Noted
from daeosens.problem.time_formulas import Formula, outlines
from daeosens.timestepping.trajectory.trajectory import Trajectory

MOST = 20_000
"""Places, at most, at which one formula turns and is looked at."""

LEVELS, POINTS = 30, 300_000
"""Halvings of a step towards a place at which it turns; fewer where these were more points."""

MISSED = 0.1
"""Part of what a peak has beyond straight lines between stages that counts as missed."""

SEEN = 0.7
"""A stage that is nearer to the top of a peak, as a part of its height, has seen it."""

FORMULAS, LOOKS = 300, 2000
"""Formulas, at most, that are looked at, and peaks at which the callback is asked."""

ROUNDING = 1e-12
"""Part of times, and of values, that is but rounding."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(3)


class Peak(NamedTuple):
    """A time near the top of a peak, the state, and what [n] a step lacks of it, or of M u."""

    time: float
    state: Array
    missed: Array


def peaks_missed(run: Trajectory, noted: Noted, cuts: Array) -> Iterator[Peak]:
    """Yield the peaks that the stages of steps have missed.

    Of what callbacks make of the time, compared with which it changes at the times ``cuts`` [C].
    """
    formulas = outlines(noted.formulas)
    function = equations_of(run) if formulas else None
    if function is None or len(formulas) > FORMULAS:
        return
    steps = _Steps.of(run, cuts if cuts.size <= MOST else np.empty(0))
    looks = 0
    for formula in formulas:
        places = times_of_change(run, list(formula.turns()))
        if not 0 < places.size + steps.cuts.size <= MOST:
            continue
        for entry in formula.entries():
            for n, top, beside, area, height, fall in steps.missed(entry, places):
                looks += 1
                if looks > LOOKS:
                    return
                start, h = float(run.times[n]), float(run.step_sizes[n])
                u = point_on_chord(run, n, (top - start) / h)[2]
                after = int(np.clip(np.searchsorted(steps.stages, top), 1, len(steps.stages) - 1))
                first, last = steps.stages[after - 1 : after + 1].tolist()
                part = (top - first) / (last - first)
                # at one state, so that nothing but the time makes a difference
                values = values_at(function, n, (top, beside, first, last), u)
                if values is None:
                    continue
                here, there, before, behind = values
                # by how much it rises above the stages beside it, and falls from there
                risen = np.abs(here - (1.0 - part) * before - part * behind)
                fallen = np.abs(here - there)
                missed = np.minimum(min(area / height, h) * risen, min(area / fall, h) * fallen)
                yield Peak(top, u, missed)


def values_at(function: Piecewise, n: int, times: Sequence[float], u: Array) -> list[Array] | None:
    """Return a function at times in step n, at one state.

    None where it fails at one of them, which nobody has asked for: steps that come there tell it.
    """
    try:
        return [function.value(n, t, u) for t in times]
    except DaeosensError:
        return None


class _Steps(NamedTuple):
    """The steps of a run, and the times [C] at which what is compared with t changes."""

    run: Trajectory
    cuts: Array
    nodes: Array
    """Of the method, in [0, 1]."""
    weights: Array
    places: Array
    """The nodes and both ends, each once."""
    stages: Array
    """Times of all of these, in order."""

    @classmethod
    def of(cls, run: Trajectory, cuts: Array) -> _Steps:
        tableau = run.stepping.resolved_method.tableau
        nodes, weights = np.array([0.0, 1.0]), np.array([0.5, 0.5])
        if tableau is not None:
            nodes, weights = np.asarray(tableau.c), np.asarray(tableau.b)
        places = np.unique(np.round([0.0, *nodes, 1.0], 9))  # of some two are 1
        stages = np.unique(run.times[:-1, None] + places * run.step_sizes[:, None])
        return cls(run, cuts, nodes, weights, places, stages)

    def missed(
        self, formula: Formula, turns: Array
    ) -> Iterator[tuple[int, float, float, float, float, float]]:
        """Yield what steps lack of a formula's peaks: step, times of top and side, and sizes.

        These are the area that is missing, and by how much the top is above a straight line between
        stages, and above the side.
        """
        times, sizes = self.run.times, self.run.step_sizes
        nodes, half = self._around(np.union1d(turns, self.cuts))
        middle = nodes[:, 1]
        n, stretch = self._step(middle), np.searchsorted(self.cuts, middle)
        with np.errstate(all="ignore"):
            values = np.nan_to_num(_values(formula, nodes))
            at_stages = np.nan_to_num(_values(formula, self.stages))
            by_stage = times[:-1, None] + self.nodes * sizes[:, None]
            part = sizes[:, None] * self.weights * np.nan_to_num(_values(formula, by_stage))
        # straight lines between the stages of the same stretch, and zero in other ones
        after = np.clip(np.searchsorted(self.stages, middle), 1, len(self.stages) - 1)
        line = np.zeros_like(nodes)
        width = self.stages[after] - self.stages[after - 1]
        along = (nodes - self.stages[after - 1, None]) / width[:, None]
        for k, share in ((after - 1, 1.0 - along), (after, along)):
            same = self._stretch(self.stages[k]) == stretch
            line += share * np.where(same, at_stages[k], 0.0)[:, None]
        beyond = values - line
        # a piece is a part of a step in one stretch
        pieces, of = np.unique(n * (self.cuts.size + 1.0) + stretch, return_inverse=True)
        exact = np.bincount(of, half * (values @ WEIGHTS))
        size = np.bincount(of, half * (np.abs(beyond) @ WEIGHTS))
        keys = np.arange(len(sizes))[:, None] * (self.cuts.size + 1.0) + self._stretch(by_stage)
        at = np.clip(np.searchsorted(pieces, keys), 0, len(pieces) - 1)
        here = pieces[at] == keys
        by_method = np.bincount(at[here], part[here], len(pieces))
        missed = exact - by_method
        rounding = ROUNDING * np.bincount(of, half * (np.abs(values) @ WEIGHTS))
        bad = np.flatnonzero((np.abs(missed) > MISSED * size) & (size > rounding))
        order = np.argsort(of, kind="stable")
        ends = np.searchsorted(of[order], np.arange(len(pieces) + 1))
        for piece in bad.tolist():
            mine = order[ends[piece] : ends[piece + 1]]
            peak, above, at_nodes = values[mine], beyond[mine], nodes[mine]
            row, column = np.unravel_index(np.argmax(np.abs(above)), above.shape)
            top, height = float(at_nodes[row, column]), float(abs(above[row, column]))
            falls = np.abs(peak - peak[row, column])
            fallen = falls >= 0.5 * falls.max()
            beside = np.argmin(np.where(fallen, np.abs(at_nodes - top), np.inf))
            fall, area = float(falls.flat[beside]), float(abs(missed[piece]))
            if not (fall and height):
                continue
            # with a stage near its top, the error estimate has seen what there is to see
            step = int(n[mine[0]])
            where = times[step] + self.places * sizes[step]
            known = np.nan_to_num(_values(formula, where))
            near = (np.abs(where - top) < area / height) & (
                self._stretch(where) == stretch[mine[0]]
            )
            if not np.any(np.abs(known - peak[row, column])[near] < SEEN * height):
                yield step, top, float(at_nodes.flat[beside]), area, height, fall

    def _around(self, places: Array) -> tuple[Array, Array]:
        """Return nodes [K, 3] of intervals that become short towards places, and their halves."""
        times, sizes = self.run.times, self.run.step_sizes
        steps = self._step(places)
        levels = int(np.clip(POINTS // places.size, 4, LEVELS))
        away = sizes[steps, None] * 0.5 ** np.arange(levels)
        points = np.concatenate([places[:, None] - away, places[:, None] + away], axis=1)
        points = points[(times[steps, None] < points) & (points < times[steps + 1, None])]
        held = np.unique(steps)
        inside = np.isin(self._step(self.stages), held) | np.isin(self.stages, times[held + 1])
        ends = np.unique(np.concatenate([points, places, self.stages[inside]]))
        middle, half = 0.5 * (ends[1:] + ends[:-1]), 0.5 * np.diff(ends)
        kept = np.isin(self._step(middle), held)
        middle, half = middle[kept], half[kept]
        return middle[:, None] + half[:, None] * NODES, half

    def _stretch(self, t: Array) -> npt.NDArray[np.intp]:
        """Return the numbers of the stretches that stages are in; on a cut of the one behind it."""
        room = ROUNDING * float(np.max(np.abs(self.run.times[[0, -1]])))
        return np.searchsorted(self.cuts - room, t, side="right")

    def _step(self, t: Array) -> npt.NDArray[np.intp]:
        """Return the numbers of the steps that times are in."""
        n = np.searchsorted(self.run.times, t, side="right") - 1
        return np.clip(n, 0, len(self.run.step_sizes) - 1)


def _values(formula: Formula, t: Array) -> Array:
    return np.broadcast_to(formula.at(t.ravel()), (1, t.size)).reshape(t.shape)
