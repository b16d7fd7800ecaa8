"""What follows a run of a DAEO: all local optimisers, and the jumps between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from daeosens.errors import ComplementarityError, SolveError
from daeosens.petsc.vectors import Array
from daeosens.problem.event import Event
from daeosens.problem.monitor import START, Suspect
from daeosens.tracing.daeo.active_set import constraint, members
from daeosens.tracing.daeo.branches import Branch, Branches, Change, Jump
from daeosens.tracing.daeo.changing import changes
from daeosens.tracing.daeo.constrained_search import ConstrainedSearch
from daeosens.tracing.daeo.courses import Optimisers, Path, Turn
from daeosens.tracing.daeo.discovery import Discovery
from daeosens.tracing.daeo.effort import SearchEffort
from daeosens.tracing.daeo.followed import Follower
from daeosens.tracing.daeo.margins import first_dip
from daeosens.tracing.daeo.minimizers import BOUND_UNDECIDED, DEGENERATE
from daeosens.tracing.daeo.piece import Bracket, Emerged, Piece
from daeosens.tracing.daeo.search import Search
from daeosens.tracing.daeo.switch_events import CHANGE, JUMP, Switches

LATE = 1e-6
"""A jump may be late by this part of the step that ends there."""

FEWEST = 4
"""So many steps, at least, are looked at together."""

NEARBY = 1e-6
"""Where an optimiser vanishes within this part of the run, that is why steps shrink there."""

TIE = 1e-9
"""Values that differ by less, relative to how large they are, may be equal."""


class Tracker:
    """Follows all local optimisers along one run.

    Parameters
    ----------
    follower : Follower
        Follows single optimisers.
    search : Search
        Finds all of them.
    switches : Switches
        Makes the events.
    effort : SearchEffort
        How much is searched and proven.
    names : sequence of str
        Those of y.

    Attributes
    ----------
    report : Branches
        What users may want to know.
    """

    names: Sequence[str] = (JUMP, CHANGE, START)
    at_once = True

    def __init__(
        self,
        follower: Follower,
        search: Search | ConstrainedSearch,
        switches: Switches,
        effort: SearchEffort,
        names: Sequence[str],
    ) -> None:
        self._n_x = follower.layout.n_x
        self._follower = follower
        self._switches = switches
        self.report = Branches(names)
        self._discovery = Discovery(follower, search, effort, self.report)
        # bounds of h alone say nothing where constraints hold y
        self._functions = search.functions if isinstance(search, Search) else None
        self._window = FEWEST
        self._alive: list[int] = []
        self._t, self._x, self._p = np.nan, np.empty(0), np.empty(0)
        self._at = follower.none
        self._turned: tuple[float, list[int]] = (np.nan, [])
        self._left_at: tuple[float, Array] | None = None

    # ---- where a piece begins --------------------------------------------------------------------

    def ends(self, t: float, u: Array) -> None:
        """Take note of the state just before an event: the first, if several are at one instant."""
        if self._left_at is None:
            self._left_at = t, u.copy()

    @property
    def reached(self) -> float:
        """Up to when all is known."""
        return self._t

    def explained(self, t: float, u: Array, p: Array, h: float) -> SolveError | None:
        """Return that the lowest optimiser vanishes within a step that cannot be taken, if so."""
        if t != self._t:
            return None
        rate, lowest = self._follower.rates(np.array([t]), u[None], p)[0], self._at_lowest
        if not np.isfinite(rate).all():
            return SolveError(
                f"f is not finite at t = {t:.9g}, x = {self._x}, y = {lowest.y}: {rate}",
                expected="f that is defined at every global minimiser that a run comes to",
                remedy="another f, a smaller box, or an event that ends the run before",
            )
        # where steps have shrunk before its end that may be many of them away
        far = max(h, NEARBY * (t - self.report.active[0][0]))
        for length in h * 100.0 ** np.arange(8):
            if length > far:
                break
            path = Path(np.array([t, t + length]), np.stack([self._x, self._x + length * rate]))
            part, end = self._follower.with_care(path, lowest, p, valid=self._follower.sound)
            if part < 1.0:
                change, _ = self._follower.with_care(path, lowest, p)
                if change < part:
                    return _beyond(path.time(change), path.time(part), t)
                return _vanishes(end.y, path.time(part))
        return None

    @property
    def _at_lowest(self) -> Optimisers:
        """How the branch is that the run is on."""
        return self._at[self._place(self._lowest)]

    def begins(self, t: float, u: Array, p: Array, mode: str) -> Event | None:
        """Take note of where a smooth piece begins; return the event that sets y.

        That happens at the start, and where an event has changed x or parameters.
        """
        x = u[: self._n_x].copy()
        left, self._left_at = self._left_at, None
        if not self._alive or t < self._t:
            return self._begin(t, x, u, p)
        x_left = x if left is None else left[1][: self._n_x]
        if not (np.array_equal(x_left, x) and np.array_equal(p, self._p)):
            if t > self._t:
                self._reach(t, x_left)
            return self._begin(t, x, u, p)
        # y and the active set that the state carries say on which branch the run is
        before, place = self._lowest, u[self._n_x :]
        if t == self._t and np.array_equal(x, self._x):
            if place[-1] != self._at.active[self._place(before)]:
                self._change(u)
            return None
        h = t - self._t
        self._reach(t, x)
        if before not in self._alive:
            return self._begin(t, x, u, p)
        carried = self._at[self._place(before)]
        if left is not None:
            self._check_place(t, x, left[1][self._n_x :], carried.y)
        same = np.abs(carried.y - place[:-1]).max() <= self._discovery.same
        if same and place[-1] != carried.active:
            self._change(u)
            return None
        new = self._discovery.search(t, x, p, self._at.y)
        if new is not None:
            self._add(new)
        # the branch nearest to the y that the jump has set
        here = self._alive[int(np.argmin(np.abs(self._at.y - place[:-1]).max(axis=1)))]
        if here != before:
            if left is not None:
                self._check_equal(t, left[1], (before, here), h)
            self.report.active.append((t, here))
            self.report.jumps.append(Jump(t, before, here))
        self._check_lowest(t, u, before)
        return None

    def _begin(self, t: float, x: Array, u: Array, p: Array) -> Event | None:
        """Search for all optimisers, and take the lowest one."""
        for branch in self._alive:
            self.report.branches[branch].died = t
        self._alive, self._t, self._x, self._p = [], t, x, np.array(p)
        self._at = self._follower.none
        new = self._discovery.search(t, x, self._p)
        if new is None:
            raise SolveError(
                f"h has no minimiser inside the box at t = {t:.9g}",
                expected="an optimiser at which h_yy is positive definite",
                remedy="another box, or another start",
            )
        self._add(new)
        lowest = int(np.argmin(self._at.value))
        self._refuse_tie(t, lowest)
        self._refuse_at_bound(t, lowest)
        self._refuse_degenerate(t, lowest)
        self.report.active.append((t, self._alive[lowest]))
        if np.array_equal(u[self._n_x :], self._at.place[lowest]):
            return None
        return self._switches.start(t, self._at.place[lowest])

    def _refuse_tie(self, t: float, lowest: int) -> None:
        values = self._at.value
        # equal up to rounding of h: neither is the global one
        close = np.abs(values - values[lowest]) <= TIE * np.abs(values).max()
        close[lowest] = False
        if close.any():
            other = self._at.y[int(np.argmax(close))]
            raise SolveError(
                f"two optimisers are lowest at t = {t:.9g}: y = {self._at.y[lowest]} and {other}",
                expected="one global optimiser at the start, and after an event",
                remedy="another start, or a term in h that decides",
            )

    def _refuse_degenerate(self, t: float, lowest: int) -> None:
        """Refuse a start at which h_yy is singular: y would have no derivatives."""
        y = self._at.y[lowest]
        if self._discovery.remark(y) == DEGENERATE:
            raise SolveError(
                f"the global minimiser y = {y} at t = {t:.9g} is degenerate: {DEGENERATE}",
                expected="a positive definite h_yy, so that y has derivatives",
                remedy="another start, or an h that is strictly convex at its minimisers",
            )

    def _refuse_at_bound(self, t: float, lowest: int) -> None:
        """Refuse a start at which a bound is neither active nor inactive."""
        y = self._at.y[lowest]
        if self._discovery.remark(y) == BOUND_UNDECIDED:
            raise ComplementarityError(
                f"strict complementarity is lost at the start, t = {t:.9g}: y = {y} is at a bound "
                f"or constraint, and no multiplier holds it there ({BOUND_UNDECIDED})",
                expected="bounds and constraints that are active or inactive, not both",
                remedy="another start: one from which the run comes to the bound, or leaves it",
            )

    def _reach(self, t: float, x: Array) -> None:
        """Follow the optimisers to where an event has happened."""
        times, places = np.array([self._t, t]), np.array([self._x, x])
        held = self._place(self._lowest)
        self._accept(Piece(self._follower, self._at, times, places, self._p, held=held), 1)

    def _change(self, u: Array) -> None:
        """Take note of another active set of the lowest optimiser."""
        k, t, place = self._place(self._lowest), self._t, u[self._n_x :]
        changed = members(int(place[-1]) ^ int(self._at.active[k]))
        after = self._follower.near(np.array(t), self._x, place, self._p)
        self._at.values[k] = after.values
        rate = self._follower.rates(np.array([t]), u[None], self._p)[0]
        slopes = after.distance_slope(rate)
        # in the place of one that leaves, with a multiplier that is not zero
        taken = [c for c in changed if c in members(place[-1])] if len(changed) > 1 else []
        for c in changed:
            active = c in members(place[-1])
            told = constraint(c, self.report.names)
            self.report.changes.append(Change(t, self._lowest, told, active))
            if not (slopes[c] > 0.0 or c in taken):
                raise ComplementarityError(
                    f"strict complementarity is lost at t = {t:.9g}: {told} would change from "
                    f"{'inactive to active' if active else 'active to inactive'} and back at once",
                    expected="a multiplier, or a distance, that grows after the change",
                    remedy="another start, or other parameters",
                )
        self._turned = t, [c for c in changed if c not in taken]
        self._discovery.changes(t)

    def _check_lowest(self, t: float, u: Array, before: int) -> None:
        """Refuse a jump to what is not the lowest, or that leads back at once."""
        here, values = self._place(self._lowest), self._at.value
        # those that are lower by more than rounding; the one that was left is as low
        lower = values < values[here] - TIE * np.abs(values).max()
        if before in self._alive:
            lower[self._place(before)] = False
        if lower.any():
            third = self._alive[int(np.argmin(values))]
            raise SolveError(
                f"a third optimiser is lower where another one becomes the lowest, t = {t:.9g}: "
                f"branch {third}, beside {before} and {self._lowest}",
                expected="one jump at a time",
                remedy="smaller steps; other parameters or initial states",
            )
        if before == self._lowest or before not in self._alive:
            return
        rate = self._follower.rates(np.array([t]), u[None], self._p)[0]
        # Filippov: if the new branch rises against the old one along its own f, the run would
        # jump back at once.
        slopes = self._at.slope(np.broadcast_to(rate, (len(values), self._n_x)))
        if slopes[here] >= slopes[self._place(before)]:
            raise SolveError(
                f"the optimiser slides along a switching surface from t = {t:.9g} on, or only "
                f"touches it: branch {before} becomes the lowest again at once after branch "
                f"{self._lowest}",
                expected="a jump after which the new optimiser stays the lowest",
                remedy="f that moves away from the surface on both sides: the sliding motion is no "
                "solution of this DAEO",
            )

    @property
    def _lowest(self) -> int:
        """Number of the branch that the run is on."""
        return self.report.active[-1][1]

    def _place(self, branch: int) -> int:
        return self._alive.index(branch)

    # ---- along a piece ---------------------------------------------------------------------------

    def look(
        self, times: Array, states: Array, p: Array
    ) -> Iterator[tuple[int, Sequence[Suspect]]]:
        """Yield the steps in which another optimiser may become the lowest."""
        start, last = 0, len(times) - 1
        x = np.ascontiguousarray(states[:, : self._n_x])
        rates = self._follower.rates(times, states, p)
        while start < last:
            t, window = float(times[start]), slice(start, min(start + self._window, last) + 1)
            lowest = int(self._place(self._lowest))  # a number to type checkers too
            piece = Piece(
                self._follower, self._at, times[window], x[window], p, rates[window], lowest
            )
            piece.compare(lowest, self._left(t), self._turned[1] if self._turned[0] == t else [])
            count = window.stop - 1 - start
            # up to the first step in which values at its ends leave a doubt
            limit = min(piece.first_doubt + 1, count)
            if self._functions is not None:
                limit = first_dip(self._functions, piece, limit)
            try:
                end, emerged = self._discovery.certify(piece, limit)
            except SolveError:
                self._accept(piece, int(np.searchsorted(piece.times, self._discovery.reached)))
                raise
            suspects = [
                *changes(piece, end - 1, self._follower, self._switches, self.report.names),
                *self._suspects(piece, end - 1),
                *self._born_lower(piece, end - 1, emerged),
            ]
            self._check_carried(piece, states[start:], end - 1)
            if suspects:
                self._accept(piece, end - 1)
                yield start + end - 1, suspects
            self._check_carried(piece, states[start:], end)
            self._accept(piece, end)
            self._add_emerged(piece, end - 1, emerged)
            start += end
            # windows grow where nothing happens, and shrink where something did
            self._window = 2 * self._window if end == count else max(FEWEST, self._window // 2)

    def _left(self, t: float) -> int | None:
        """Return the number of the optimiser that was left by a jump at a time, or None."""
        jumps = self.report.jumps
        if not jumps or jumps[-1].t != t or jumps[-1].before not in self._alive:
            return None
        return self._place(jumps[-1].before)

    def _suspects(self, piece: Piece, n: int) -> list[Suspect]:
        """Return the jumps that may happen within a step to optimisers that were there before."""
        suspects: list[Suspect] = []
        for k in np.flatnonzero(piece.doubt[:, n]).tolist():
            start = float(piece.ahead[k, n]), float(piece.slopes[k, n])
            if (k, n) in piece.brackets:
                suspects.append(self._within(piece, n, piece.brackets[k, n], start))
            else:
                event = self._switches.jump(piece.optimisers.place[k, n + 1])
                suspects.append(Suspect(event, start))
        return suspects

    def _born_lower(self, piece: Piece, n: int, emerged: Sequence[Emerged]) -> list[Suspect]:
        """Return the jumps to optimisers that emerge in a step and become the lowest there."""
        suspects: list[Suspect] = []
        path = piece.path(n)
        for optimiser in emerged:
            known = piece.inside(piece.active, n, optimiser.born)
            near = np.abs(known.y - optimiser.first.y).max() <= self._discovery.same
            if near or n + optimiser.born >= piece.reached[piece.active]:
                continue  # they come from where the lowest one vanishes, or later
            if piece.ahead_of(n, optimiser.born, optimiser.first) >= 0.0:
                raise SolveError(
                    f"an optimiser y = {optimiser.first.y} emerges at "
                    f"t = {path.time(optimiser.born):.9g}, "
                    "and it is lower than the one that is followed",
                    expected="optimisers that emerge above the lowest one",
                    remedy="smaller steps; a start at which the search is complete",
                )
            last = min(optimiser.died, 1.0, float(piece.reached[piece.active]) - n)
            if last <= optimiser.born:
                continue
            bracket = piece.first_lower(n, optimiser.born, last, (optimiser.part, optimiser.seen))
            if bracket is not None:
                suspects.append(self._within(piece, n, bracket, (-1.0, 1.0)))
        return suspects

    def _within(
        self, piece: Piece, n: int, bracket: Bracket, start: tuple[float, float]
    ) -> Suspect:
        """Return a jump between two parts of a step."""
        event, parts = self._jump_near(piece, n, bracket.end), (bracket.first, bracket.last)
        return Suspect(event, start, parts, bracket.ahead)

    def _jump_near(self, piece: Piece, n: int, end: Optimisers) -> Event:
        """Return the jump to an optimiser that is not there throughout a step."""
        within, follower = piece.distance(n, end.y), self._follower

        def exists(t: float, u: Array, p: Array) -> bool:
            there = follower.near(np.array(t), u[: self._n_x], end.place, p)
            return bool(follower.sound(there)) and float(np.abs(there.y - end.y).max()) <= within

        return self._switches.jump(end.place, exists)

    def _add(self, new: Optimisers, born: float | None = None) -> None:
        """Follow more optimisers from where the run is."""
        for k in range(len(new.values)):
            number = len(self.report.branches)
            since = self._t if born is None else born
            part = _part(np.array([self._t]), new[k : k + 1])
            self.report.branches.append(Branch(number, since, parts=[part]))
            self._alive.append(number)
        self._at = self._at.joined(new)

    def _add_emerged(self, piece: Piece, n: int, emerged: Sequence[Emerged]) -> None:
        """Follow the optimisers that have emerged in a step, and note those that are gone again."""
        path = piece.path(n)
        for optimiser in emerged:
            born, branches = path.time(optimiser.born), self.report.branches
            points = [
                (optimiser.born, optimiser.first),
                (optimiser.part, optimiser.seen),
                (optimiser.died, optimiser.last),
            ]
            points = [point for point in points if point[0] < 1.0]
            times = np.array([path.time(part) for part, _ in points])
            part = _part(times, self._at.of([o.values for _, o in points]))
            if optimiser.died == np.inf:
                self._add(optimiser.last[None], born)
                branches[-1].parts.insert(0, part)
            else:
                branches.append(Branch(len(branches), born, path.time(optimiser.died), [part]))

    # ---- what has happened -----------------------------------------------------------------------

    def _check_carried(self, piece: Piece, states: Array, end: int) -> None:
        """Refuse steps up to a point in which the active optimiser vanishes, or is lost."""
        done = int(np.searchsorted(piece.times, self._t))
        if end <= done:
            return
        if piece.reached[piece.active] < end:
            whole = int(piece.reached[piece.active])
            self._accept(piece, whole)
            gone = piece.when_gone(piece.active)
            raise _vanishes(piece.optimisers.y[piece.active, whole], gone)
        new = slice(done + 1, end + 1)
        x, place = states[new, : self._n_x], states[new, self._n_x :]
        carried = self._follower.near(piece.times[new], x, place, self._p)
        followed = piece.optimisers.y[piece.active, new]
        apart = np.abs(carried.y - followed).max(axis=1)
        if not (apart <= self._discovery.same).all():
            n = int(np.argmin(apart <= self._discovery.same))
            self._accept(piece, done + n)
            raise _lost(float(piece.times[done + 1 + n]), place[n], carried.y[n], followed[n])

    def _check_equal(self, t: float, u: Array, both: tuple[int, int], h: float) -> None:
        """Refuse a jump at a time at which the values are not equal: the state had lost y."""
        old, new = (self._at[self._place(branch)] for branch in both)
        rate = self._follower.rates(np.array([t]), u[None], self._p)[0]
        gap, slope = float(new.value - old.value), float(new.slope(rate) - old.slope(rate))
        if abs(gap) > LATE * h * abs(slope) + TIE * abs(float(new.value)):
            raise _lost(t, u[self._n_x :], new.y, old.y)

    def _check_place(self, t: float, x: Array, place: Array, followed: Array) -> None:
        """Refuse a step that ends at an event, and has lost the optimiser."""
        carried = self._follower.near(np.array(t), x, place, self._p)
        if not np.abs(carried.y - followed).max() <= self._discovery.same:
            raise _lost(t, place, carried.y, followed)

    def _accept(self, piece: Piece, n: int) -> None:
        """Note that the run has come as far as point number n of a piece."""
        done = int(np.searchsorted(piece.times, self._t))
        if n <= done:
            return
        for k, number in enumerate(self._alive):
            branch, count = self.report.branches[number], int(min(piece.reached[k], n)) - done
            if count > 0:
                last = done + 1 + count
                part = _part(piece.times[done + 1 : last], piece.optimisers[k, done + 1 : last])
                branch.parts.append(part)
            if piece.reached[k] < n:
                branch.died = piece.when_gone(k)
                branch.parts.append(_part(np.array([branch.died]), piece.ends[k : k + 1]))
        for (k, step), turns in piece.changes.items():
            if done <= step < n:
                self._note(self._alive[k], piece.path(step), turns)
        stays = piece.reached >= n
        self._alive = [k for k, stay in zip(self._alive, stays, strict=True) if stay]
        self._t, self._x = float(piece.times[n]), piece.x[n].copy()
        self._at = piece.optimisers[stays, n]

    def _note(self, number: int, path: Path, changes: Sequence[Turn]) -> None:
        """Take note of other active sets of an optimiser that the run is not on."""
        for turn in changes:
            before, after = int(turn.before.active), int(turn.after.active)
            told = constraint(members(before ^ after)[0], self.report.names)
            change = Change(path.time(turn.part), number, told, after > before)
            self.report.changes.append(change)


def _vanishes(y: Array, t: float) -> SolveError:
    return SolveError(
        f"the global optimiser y = {y} vanishes at t = {t:.9g}, before another one is lower: "
        "h_yy is singular there, or the constraints leave no place for it",
        expected="an optimiser with a positive definite h_yy until another one is lower",
        remedy="smaller steps; an event that ends the run before; an h without this fold",
    )


def _beyond(change: float, gone: float, t: float) -> SolveError:
    return SolveError(
        f"the active set changes at t = {change:.9g}, inside of a step that cannot be taken: at "
        f"its end there is no optimiser with the active set of before, which vanishes at "
        f"t = {gone:.9g}",
        expected="steps that end between such times, or a method that can take them",
        remedy=f"dt={0.5 * (gone - t):.3g}, rtol for adaptive steps, or esdirk4",
    )


def _lost(t: float, place: Array, near: Array, followed: Array) -> SolveError:
    return SolveError(
        f"the step to t = {t:.9g} has lost the optimiser: it ends at y = {place[:-1]}, near "
        f"{near}, not {followed}",
        expected="steps over which optimisers move less than they are apart",
        remedy="smaller steps",
    )


def _part(times: Array, course: Optimisers) -> tuple[Array, Array, Array, Array]:
    """Return what users see of an optimiser at some times."""
    return times, course.y.copy(), course.value.copy(), course.active.copy()
