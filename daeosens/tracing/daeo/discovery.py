"""Optimisers that are not known yet: proof that there are none, or else searches along a run."""

from __future__ import annotations

import numpy as np

from daeosens.errors import InputError, SolveError
from daeosens.petsc.vectors import Array
from daeosens.tracing.daeo.active_set import number_of
from daeosens.tracing.daeo.branches import Branches
from daeosens.tracing.daeo.constrained_search import ConstrainedSearch
from daeosens.tracing.daeo.courses import Optimisers, Path
from daeosens.tracing.daeo.effort import SearchEffort
from daeosens.tracing.daeo.followed import Follower
from daeosens.tracing.daeo.intervals import Along, IntervalFunction
from daeosens.tracing.daeo.minimizers import Minimizers
from daeosens.tracing.daeo.piece import Emerged, Piece
from daeosens.tracing.daeo.room import Room
from daeosens.tracing.daeo.search import Search

SHORT = 2.0**-8
"""A shorter part of a step is searched at its end, if nothing can be proven of it."""


class Discovery:
    """Finds the optimisers that emerge along one run.

    Parameters
    ----------
    follower : Follower
        Follows single optimisers.
    search : Search
        Finds all of them.
    effort : SearchEffort
        How much is searched and proven.
    report : Branches
        Takes note of what was searched and proven.

    Attributes
    ----------
    same : float
        Points that are nearer are one optimiser.
    reached : float
        Up to when all of them are known.
    """

    def __init__(
        self,
        follower: Follower,
        search: Search | ConstrainedSearch,
        effort: SearchEffort,
        report: Branches,
    ) -> None:
        self._follower, self._search, self._report = follower, search, report
        self._effort = effort
        self.same = effort.apart * follower.size
        self._known: Minimizers | None = None
        self._searched, self.reached = np.nan, -np.inf
        self._reach_of_proof = 0  # steps over which the last proof went
        self._time_of_proof = np.inf  # time, where it was less than one
        self._left = effort.proof  # boxes that may be looked at for proof
        self._room: Room | None = None  # that constraints leave

    def certify(self, piece: Piece, limit: int) -> tuple[int, list[Emerged]]:
        """Return up to which point all optimisers are known, and those that emerged before it.

        Over the steps to it no other one is there: that is proven, or else they are searched for.
        """
        at = 0
        while at < limit:
            due = self._due(piece, at, limit)
            if self._left <= 0:
                end = self._nothing_new_until(piece, at, due)
            else:
                end = self._proven_until(piece, at, due)
            if end == at:
                end, emerged = at + 1, self._search_inside(piece, at)
                if emerged:
                    return end, emerged
            # steps earn boxes for proofs, up to what there was at the beginning
            more = self._effort.proof_per_step * (end - at)
            self._left = min(self._left + more, self._effort.proof)
            at = end
            self.reached = float(piece.times[at])
            if self._late(self.reached):
                known = piece.optimisers[piece.there(at), at].y
                new = self.search(self.reached, piece.x[at], piece.p, known)
                if new is not None:
                    path = piece.path(at - 1)
                    return at, [
                        self._life(path, optimiser, 1.0, piece.p) for optimiser in _singly(new)
                    ]
        return limit, []

    def _due(self, piece: Piece, at: int, limit: int) -> int:
        """Return the first point after ``at`` where there is to be a search in any case."""
        if not self._effort.interval < np.inf:
            return limit
        return at + 1 + int(np.argmax([*map(self._late, piece.times[at + 1 : limit]), True]))

    def _late(self, t: float) -> bool:
        """Whether there is to be a search at a time, proven or not."""
        rounding = 1e-9 * self._effort.interval
        return t > self._searched and t - self._searched >= self._effort.interval - rounding

    def _proven_until(self, piece: Piece, at: int, limit: int) -> int:
        """Return up to which point it is proven that the optimisers only move."""
        # twice as far as the last proof went, and by halves from there: proofs cost the more, the
        # wider x is
        length = min(limit - at, 2 * self._reach_of_proof or limit)
        while not self._proven(piece, at, at + length):
            # a proof starts from a search at the very point
            if self._searched != piece.times[at]:
                self.search(float(piece.times[at]), piece.x[at], piece.p)
            elif self._left > 0:
                length //= 2
            else:
                return self._nothing_new_until(piece, at, limit)
        self._reach_of_proof = max(length, 1)
        return at + length

    def _nothing_new_until(self, piece: Piece, at: int, limit: int) -> int:
        """Return a point at which a search finds those that were followed, and no others.

        It is what is done of steps without a proof where that would cost too much.
        """
        times, x, p = piece.times, piece.x, piece.p
        # where one vanishes, jumps or changes its active set is a step to look into
        end = min(
            limit, piece.first_doubt, int(piece.reached[piece.reached >= at].min(initial=limit))
        )
        while end > at and not self._proven(piece, at, end):
            known = piece.optimisers[piece.there(end), end].y
            if self.search(float(times[end]), x[end], p, known) is None:
                self._report.unproven.append((float(times[at]), float(times[end])))
                break
            self.search(float(times[at]), x[at], p)
            end = at + (end - at) // 2
        return end

    def _proven(self, piece: Piece, start: int, end: int) -> bool:
        """Whether it is proven that the optimisers of the last search only move."""
        if ((piece.reached >= start) & (piece.reached < end)).any():
            return False
        return start == end or self._only_move(piece.hull(start, end), piece.p)

    def _only_move(self, hull: tuple[Array, Array, Along | None], p: Array) -> bool:
        assert self._known is not None
        if not self._effort.proof:
            return False
        t, x, along = hull
        proven = self._search.unchanged(t, x, p, self._known, along)
        self._left -= self._search.boxes
        self._report.proof_boxes += self._search.boxes
        return proven

    def _search_inside(self, piece: Piece, n: int) -> list[Emerged]:
        """Return the optimisers that emerge within a step, which is proven or searched by parts."""
        path, emerged = piece.path(n), list[Emerged]()
        known, last = piece.optimisers[piece.there(n), n], 0.0
        done, part = 0.0, min(0.5, 1.5 * self._time_of_proof / path.length)
        while done < 1.0:
            part = min(max(part, SHORT), 1.0 - done)
            if self._only_move(path.hull(done, done + part), piece.p):
                self._time_of_proof = part * path.length
                done, part = done + part, 1.5 * part
            # half as long; SHORT parts are not halved
            elif self._searched == path.time(done) and part > SHORT and self._left > 0:
                part *= 0.5
            else:
                if self._searched == path.time(done):
                    part = part if self._left > 0 else 1.0 - done
                    self._report.unproven.append((path.time(done), path.time(done + part)))
                    done += part
                # those that are known are brought to the point of the search, to be told from new
                # ones
                known, last = self._followed(path, known, (last, done), piece.p), done
                new = self.search(path.time(done), path.place(done), piece.p, known.y)
                if new is not None:
                    emerged += [
                        self._life(path, optimiser, done, piece.p) for optimiser in _singly(new)
                    ]
                    known = known.joined(new)
        return emerged

    def _followed(
        self, path: Path, start: Optimisers, way: tuple[float, float], p: Array
    ) -> Optimisers:
        """Return those of some optimisers that reach another part of a step, there."""
        parts = way if way[1] > way[0] else way[:1]
        times = np.array([path.time(part) for part in parts])
        places = np.array([path.place(part) for part in parts])
        courses = self._follower.along(times, places, start, p)
        return courses.optimisers[courses.reached >= len(parts) - 1, -1]

    def _life(self, path: Path, optimiser: Optimisers, part: float, p: Array) -> Emerged:
        """Return what becomes of an optimiser that is found inside a step."""
        # back to where it emerged within the step, and on to where it vanishes or the step ends
        _, born, first = self._follower.onward(path, optimiser, p, part, 0.0)
        _, died, last = self._follower.onward(path, optimiser, p, part, 1.0)
        return Emerged(born, first, part, optimiser, np.inf if died == 1.0 else died, last)

    def changes(self, t: float) -> None:
        """Take note of a time at which an active set changes: all has to be searched for later."""
        self._searched = t

    def remark(self, y: Array) -> str:
        """Return why an optimiser of the last search is not proven; nothing if it is."""
        known = self._known
        assert known is not None
        for point, remark in zip(known.points, known.remarks, strict=True):
            if float(np.abs(point - y).max()) <= self.same:
                return remark
        return ""

    def _minimizers(self, t: float, x: Array, p: Array) -> Minimizers:
        """Search for all optimisers; what is wrong with h after the start ends the run."""
        try:
            return self._searched_for(t, x, p)
        except InputError as error:
            if not self._report.searches:
                raise
            raise SolveError(*error.args) from error

    def _searched_for(self, t: float, x: Array, p: Array) -> Minimizers:
        search, budget = self._search, self._effort.boxes
        if not isinstance(search, ConstrainedSearch):
            if not self._report.searches:
                refuse_flat(search.functions, search.box, t, x, p)
            return search.find(t, x, p, "all", budget=budget)
        at = search.enclosures(t, x, p)
        if self._room is not None:
            self._room.check(t, x, at)
        minimizers = search.find(t, x, p, budget=budget, before=self._known)
        self._room = self._room or Room(at)
        return minimizers

    def search(self, t: float, x: Array, p: Array, known: Array | None = None) -> Optimisers | None:
        """Search for all optimisers; return those that are not among the known [K, n_y]."""
        self._known = minimizers = self._minimizers(t, x, p)
        self._searched, self._left = t, self._left - self._search.boxes
        self._report.searches.append(t)
        self._report.search_boxes += self._search.boxes
        if not minimizers.complete:
            self._report.incomplete.append(t)
        places = np.column_stack(
            [minimizers.points, number_of(minimizers.active, self._follower.layout.n_y)]
        )
        if known is not None:
            apart = np.abs(minimizers.points[:, None] - known[None]).max(axis=2)
            places = places[apart.min(axis=1, initial=np.inf) > self.same]
        if not len(places):
            return None
        converged = self._follower.near(np.array(t), x, places, p)
        return converged[self._follower.sound(converged)]


def _singly(optimisers: Optimisers) -> list[Optimisers]:
    """Return each of some optimisers [K]."""
    return [optimisers[k] for k in range(len(optimisers.values))]


CELLS = 512
"""Into so many parts, at most, the box is divided: they are enclosed in a part of a millisecond."""

MOST = 4
"""Of more y than this a grid of so few cells says little."""


def refuse_flat(function: IntervalFunction, box: Array, t: float, x: Array, p: Array) -> None:
    """Refuse an h that is constant in a cell of a grid over the box, at a start.

    All points there would be minimisers, and a search divides them until its budget is used up.

    Raises
    ------
    InputError
        Names the cell.
    """
    n_y = len(box)
    if n_y > MOST or function.low is None:
        return
    each_way = int(CELLS ** (1.0 / n_y) + 1e-9)
    edges: Array = np.linspace(box[:, 0], box[:, 1], each_way + 1)
    places = np.indices((each_way,) * n_y).reshape(n_y, -1).T
    columns = np.arange(n_y)
    cells = np.stack([edges[places, columns], edges[places + 1, columns]], axis=2)
    inputs = function.inputs(t, x, p)
    rows = np.empty((len(cells), *inputs.shape))
    rows[:] = inputs
    start = 1 + function.n_x
    rows[:, start : start + n_y] = cells
    values, flags = function.enclose(1, rows)
    # enclosed by 0 alone, which is proof: a gradient that only vanishes somewhere has a width
    flat = (flags == 0).all(axis=1) & (values[:, 1:] == 0.0).all(axis=(1, 2))
    if flat.any():
        cell = cells[int(np.argmax(flat))]
        between = ", ".join(f"[{low:.6g}, {high:.6g}]" for low, high in cell)
        raise InputError(
            f"h is constant for y in {between} at t = {t:.9g}, x = {x}: each y there is as low as "
            "those beside it",
            expected="an h that has single minimisers",
            remedy="h with a small term that decides, 1e-6 * y[0] ** 2, or a smaller box",
        )
