"""Steps of a run as surfaces see them: where a piece begins, and which surface a step crosses."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from petsc4py import PETSc

from daeosens.errors import NotFiniteError, SolveError
from daeosens.methods.dae.structure import wave
from daeosens.petsc._kernels import Interpolant, interpolate
from daeosens.petsc.vectors import read
from daeosens.problem.breakpoints import LARGEST_MARGIN, margin_beside
from daeosens.problem.problem import Problem
from daeosens.timestepping.events.event_surface import CLOSE, Surface
from daeosens.timestepping.runner import Runner

ROUNDING = sys.float_info.epsilon

SOON = 1e-6
"""Part of a step after which the change of an event function is taken for its slope, if there is
no f."""

RESOLVED = 1e3
"""Units of rounding of the time that it is to be, at least."""

SHARE = 1e-3
"""Part of a step over which the slope along u' = f is taken, by a central difference."""

DOUBT = 0.1
"""An interpolated extremum this near to zero, as a part of its scale, is looked at by a step."""

LOOKS = 4
"""So many steps, at most, are taken to look inside one step for a second crossing."""


class EventBracket(NamedTuple):
    """A crossing that counts inside a step: between two parts of it, with a guess of the curve.

    ``side`` is the sign at ``low``; ``low`` = ``high`` = 1 where the step ends on the surface, 0
    where it leaves it after a rest.  ``size`` is the larger one of the values at ``low`` and
    ``high``, infinite where they are not known.
    """

    surface: Surface
    low: float
    high: float
    side: float
    curve: Interpolant
    size: float = math.inf


@dataclass(eq=False)
class EventDetector:
    """Watches the event functions of a mode along each step and brackets their sign changes.

    Attributes
    ----------
    problem, runner
        The equations of the mode, and what takes their steps.
    surfaces : sequence of Surface
        Those that can be crossed in the mode.
    adaptive : bool
        Whether steps may be tried again with another size.
    checked : bool
        Whether the first step of a run has an error estimate.
    hits : list of EventBracket
        Crossings in the last step.
    left : list of (EventBracket, float, float, Vec [n])
        Functions that were zero for a time and no longer are, with time, size and start of the
        step in which they left; no crossings, since the state has come from neither side.
    fault : NotFiniteError or None
        What an event function gave where the last step ended: not to be accepted as it is.
    end : float
        Where the piece ends, unless a crossing comes before: the time of an event that is known, or
        the last one.
    """

    problem: Problem
    runner: Runner
    surfaces: Sequence[Surface]
    adaptive: bool
    checked: bool
    hits: list[EventBracket] = field(default_factory=list[EventBracket])
    left: list[tuple[EventBracket, float, float, PETSc.Vec]] = field(
        default_factory=list[tuple[EventBracket, float, float, PETSc.Vec]]
    )
    fault: NotFiniteError | None = None
    end: float = math.inf

    def __post_init__(self) -> None:
        create = self.problem.create_state
        self._rate, self._changed, self._around = create(), create(), (create(), create())
        self._factors = 1.0 + 1e-6 * wave(self._rate)
        self._around_of: tuple[float, int, float] | None = None

    # ---- where a piece begins --------------------------------------------------------------------

    def settle(self, t: float, u: PETSc.Vec, fired: Sequence[Surface]) -> list[Surface]:
        """Find the sides just after ``t``; return the surfaces that are crossed there and then.

        Those are surfaces with a direction on which the state begins and moves that way.  The one
        that has just fired is not among them.
        """
        entered: list[Surface] = []
        self._around_of = None
        for surface in self.surfaces:
            happened = surface in fired
            self._settle(surface, t, u, abs(surface.value) if happened else 0.0, known=not fired)
            if not surface.on:
                continue
            # a reset may leave the rounding of a speed, by which the state would pass
            passes = happened and surface.event.reset is not None
            moves = surface.side == (surface.towards if passes else surface.direction) != 0
            if moves and (passes or not happened):
                # what began where the rate is zero, to rounding, has not moved any way yet
                if not surface.touching and self._hardly_moves(surface, t, u):
                    surface.touching, surface.slope = True, 0.0
                    noise = self.noise(surface, t, u, surface.value)
                    surface.side = self._touching_side(surface, t, u, noise)
                if not happened and surface.side == surface.direction:
                    entered.append(surface)
        return entered

    def change(self, surface: Surface) -> float:
        """Return how far the event function goes in a step from where the piece begins."""
        return abs(surface.slope) * self.runner.short_step

    def rate_of(self, surface: Surface, t: float, u: PETSc.Vec) -> float:
        """Return dg/dt along the run from a state."""
        self.forget()
        return self._slope(surface, t, u, surface.at(t, u, self.runner.p))

    def _settle(
        self, surface: Surface, t: float, u: PETSc.Vec, residual: float, *, known: bool
    ) -> None:
        first_step = self.runner.short_step
        value, ahead = surface.at(t, u, self.runner.p), 0
        if known:
            value, ahead = self._from_inside(surface, t, u, value, 1)
        slope = self._slope(surface, t, u, value, ahead=ahead)
        noise = self.noise(surface, t, u, value)
        # the time itself is rounded: within that rounding the value moves by so much
        late = 4.0 * ROUNDING * max(abs(t), first_step) * abs(slope)
        surface.value, surface.slope, surface.earlier = value, slope, None
        surface.start_slope = surface.end_slope = None
        surface.on = abs(value) <= max(noise + late, 4.0 * residual)
        span = (SHARE if self.problem.form == "rhs" else SOON) * first_step
        surface.touching = surface.on and abs(slope) * span <= 4.0 * noise
        if not surface.on:
            surface.side = math.copysign(1.0, value)
        elif not surface.touching:
            # on the surface the slope says to which side the state goes, as its value is rounding
            surface.side = math.copysign(1.0, slope)
        else:
            surface.side = self._touching_side(surface, t, u, noise)

    def _hardly_moves(self, surface: Surface, t: float, u: PETSc.Vec) -> bool:
        """Whether the slope on a surface is what the rounding of the time makes of zero.

        As where a limit is left when the rate changes its sign: that time is known to rounding, and
        the slope by as much as it changes meanwhile.
        """
        h = _told_apart(t, SHARE * self.runner.short_step)
        state = u.duplicate()
        self.runner.step(t, h, u, state)
        value = surface.at(t + h, state, self.runner.p)
        bent = abs(value - surface.value - h * surface.slope)
        late = 16.0 * ROUNDING * max(abs(t), self.runner.short_step)
        return abs(surface.slope) <= late * 2.0 * bent / h**2

    def _touching_side(self, surface: Surface, t: float, u: PETSc.Vec, noise: float) -> float:
        """Return the side to which the state leaves a surface that it touches."""
        state = u.duplicate()
        # the value grows with the square of the time, or slower: a longer look where the first
        # tells nothing
        for part in (1e-3, 1e-1):
            h = part * self.runner.short_step
            self.runner.step(t, h, u, state)
            value = surface.at(t + h, state, self.runner.p)
            if abs(value) > noise:
                return math.copysign(1.0, value)
        return -float(surface.direction)  # at rest: on the side from which it can be crossed

    def _from_inside(
        self, surface: Surface, t: float, u: PETSc.Vec, value: float, ahead: int
    ) -> tuple[float, int]:
        """Return the event function at an end of a piece as the piece sees it, and where to look.

        At a time that is known, of a clock, the function itself may jump: a saw tooth,
        ``t % period``.  Rounding then decides which side it takes at that time, so the value is
        that of a moment inside the piece, and ``ahead`` (1 where the piece begins, -1 where it
        ends) is returned; 0 where the function does not jump.
        """
        h, p = self.runner.short_step, self.runner.p
        # the least distance in time that rounding does not take away
        moment = ahead * margin_beside(max(abs(t), h), h)
        inside = surface.at(t + moment, u, p)
        if inside == value:
            return value, 0
        # what a smooth function changes by over the same time is no jump
        change = abs(surface.at(t + 2.0 * moment, u, p) - inside)
        jumps = abs(inside - value) > 100.0 * change + self.noise(surface, t, u, value)
        return (inside, ahead) if jumps else (value, 0)

    def noise(self, surface: Surface, t: float, u: PETSc.Vec, value: float) -> float:
        """Return what rounding may make of the event function, from a change of all components."""
        np.multiply(read(u), self._factors, out=self._changed.getArray())
        changed = surface.at(t, self._changed, self.runner.p)
        return 8.0 * ROUNDING * (abs(changed - value) / 1e-6 + abs(value))

    def _slope(
        self,
        surface: Surface,
        t: float,
        u: PETSc.Vec,
        value: float,
        step: float = 0.0,
        ahead: int = 0,
    ) -> float:
        """Return dg/dt along the run at ``t``, which ends a step of that size where there is one.

        With u' = f where there is an f, else by a real step; from one side where g jumps.
        """
        around, p, first_step = self._around, self.runner.p, self.runner.short_step
        known = self._around_of == (t, u.handle, step)
        self._around_of = (t, u.handle, step)
        # F(t, u, u') = 0 has no f: a short step of the method stands in for it
        if self.problem.form != "rhs":
            # of times since 1970 a longer one: the time itself is rounded
            least = min(RESOLVED * ROUNDING * abs(t), SHARE * first_step)
            soon = _told_apart(t, max(SOON * first_step, least))
            if not known:
                self.runner.step(t, soon, u, around[0])
            return (surface.at(t + soon, around[0], p) - value) / soon
        # Along (1, f): a central difference of g alone, which costs two calls of it and no step.
        part = SHARE * first_step
        if not known:
            problem, rate = self.problem, self._rate
            problem.rhs(problem.inside(t, t - step, step), u, p, rate)
            around[0].waxpy(part, rate, u)
            around[1].waxpy(-part, rate, u)
        if ahead:
            beside = surface.at(t + ahead * part, around[0 if ahead > 0 else 1], p)
            return ahead * (beside - value) / part
        above, below = surface.at(t + part, around[0], p), surface.at(t - part, around[1], p)
        return (above - below) / (2.0 * part)

    # ---- along a piece ---------------------------------------------------------------------------

    def watch(self, t: float, u: PETSc.Vec, t_next: float, u_next: PETSc.Vec) -> bool:
        """Look at a step; return whether a crossing that counts lies inside, or a fault."""
        try:
            self._look(t, u, t_next, u_next)
        except NotFiniteError as error:
            if not self.adaptive:
                raise
            self.fault = error
        return bool(self.hits) or self.fault is not None

    def _look(self, t: float, u: PETSc.Vec, t_next: float, u_next: PETSc.Vec) -> None:
        """Note the crossings that count in a step."""
        h, p = t_next - t, self.runner.p
        self._around_of = None
        left, size = abs(t_next - self.end), max(abs(t_next), h)
        # the margin itself is asked for at the few steps for which it may be large enough
        ends = left <= LARGEST_MARGIN * size and left <= margin_beside(size, h)
        for surface in self.surfaces:
            value, ahead = surface.at(t_next, u_next, p), 0
            if ends:
                value, ahead = self._from_inside(surface, t_next, u_next, value, -1)
            # nearly all surfaces of nearly all steps end here: one value, no further call
            if surface.far(value, h):
                surface.move(value, h)
                continue
            if surface.side == 0.0:
                surface.side = math.copysign(1.0, value) if value else 0.0
                if value:
                    curve = interpolate([*surface.start(h), (1.0, value, None)])
                    bracketed = EventBracket(surface, 0.0, 0.0, surface.side, curve, abs(value))
                    self.left.append((bracketed, t, h, u))
                surface.move(value, h)
                continue
            bracketed = self.examine(surface, t, u, t_next, u_next, value, ahead)
            if bracketed is not None:
                self.hits.append(bracketed)
            else:
                surface.move(value, h)

    def forget(self) -> None:
        """Forget the states around one, which may have changed."""
        self._around_of = None

    def examine(
        self,
        surface: Surface,
        t: float,
        u: PETSc.Vec,
        t_next: float,
        u_next: PETSc.Vec,
        value: float,
        ahead: int = 0,
    ) -> EventBracket | None:
        """Return the first crossing that counts in a step; ``ahead`` as of ``_from_inside``."""
        h, side = t_next - t, surface.side
        slope: float | None = None
        if self.problem.form == "rhs":
            slope = self._slope(surface, t_next, u_next, value, h, ahead)
            surface.end_slope = slope  # where the next step begins, unless the piece ends here
        # in x = (t - start) / h: the last value, the ones before or the slope, this value and its
        # slope
        curve = interpolate([*surface.start(h), (1.0, value, slope and h * slope)])
        if abs(value) <= CLOSE * abs(value - surface.value) and self._ends_on(
            surface, t_next, u_next, value
        ):
            if self._rests(surface, t, u):
                return None  # it has been on the surface all along: nothing is crossed
            if surface.counts(-side):
                surface.value = value
                return EventBracket(surface, 1.0, 1.0, side, curve)
            # a direction that does not count: the next step starts on the side it moves to
            surface.side = math.copysign(1.0, self._slope(surface, t_next, u_next, value, h))
            return None
        # the state rested on the surface and is now on its other side: it left, and crossed nothing
        if value * side < 0.0 and surface.counts(-side) and self._rests(surface, t, u):
            return EventBracket(surface, 0.0, 0.0, side, curve, abs(value))
        # two crossings inside one step leave the sign at its end as it was: where the interpolated
        # function comes near zero, shorter steps from the same state tell its value there
        looked, curve = self._look_inside(surface, t, h, u, value, curve)
        crossed: list[EventBracket] = []
        low, sign, before = 0.0, side, abs(surface.value)
        for x, sample in [*sorted(looked), (1.0, value)]:
            if sample * sign <= 0.0:  # every sign change between neighbouring points is a bracket
                crossed.append(EventBracket(surface, low, x, sign, curve, max(before, abs(sample))))
                sign = -sign
            low, before = x, abs(sample)
        surface.side = sign
        if len(crossed) > 1 and surface.event.twice == "refuse":
            raise SolveError(
                f'event "{surface.event.name}" is crossed {len(crossed)} times within the step '
                f"from t = {t:.9g} to {t_next:.9g}",
                expected="at most one crossing in a step",
                remedy='smaller steps, or Event(..., twice="resolve")',
            )
        return next((bracketed for bracketed in crossed if surface.counts(-bracketed.side)), None)

    def _rests(self, surface: Surface, t: float, u: PETSc.Vec) -> bool:
        """Whether the state has not left the surface, on which the piece began, before ``t``."""
        value = surface.value
        return surface.touching and abs(value) <= self.noise(surface, t, u, value)

    def _ends_on(self, surface: Surface, t: float, u: PETSc.Vec, value: float) -> bool:
        """Whether a step ends on the surface, to rounding."""
        if value == 0.0:
            return True
        noise = self.noise(surface, t, u, value)
        late = 4.0 * ROUNDING * max(abs(t), self.runner.short_step)
        return abs(value) <= noise + late * abs(self._slope(surface, t, u, value))

    def _look_inside(
        self,
        surface: Surface,
        t: float,
        h: float,
        u: PETSc.Vec,
        value: float,
        curve: Interpolant,
    ) -> tuple[list[tuple[float, float]], Interpolant]:
        """Return the event function where interpolation makes one suspect further crossings.

        Without slopes (there is no f) a step that does not end on the other side is halved first.
        """
        looked: list[tuple[float, float]] = []
        state: PETSc.Vec | None = None
        while len(looked) < LOOKS:
            x = _suspect(curve, surface.side, value, [x for x, _ in looked])
            if not x and not looked and value * surface.side > 0.0 and self.problem.form != "rhs":
                x = 0.5
            if not x:
                break
            state = state or u.duplicate()
            self.runner.step(t, x * h, u, state, again=bool(looked))
            sample = surface.at(t + x * h, state, self.runner.p)
            looked.append((x, sample))
            curve = curve.add(x, sample)
        return looked, curve


def _told_apart(t: float, h: float) -> float:
    """Return by how much ``t + h`` differs from ``t`` as they are rounded, or h if by nothing."""
    return (t + h) - t or h


def _suspect(curve: Interpolant, side: float, value: float, looked: Sequence[float]) -> float:
    """Return the extremum of a curve over [0, 1] at which it may be on an unexpected side, or 0.

    Without a crossing that is the other side; where the ends differ in sign, an extremum on the
    other side matters if one on the first side follows.
    """
    extrema = [(x, side * curve.at(x)[0]) for x in curve.extrema()]
    if not extrema:
        return 0.0
    # values this near to zero may be on the other side, as the interpolation has an error; each
    # look inside the step makes that smaller
    doubt = (
        DOUBT
        * 0.1 ** len(looked)
        * max(abs(value), *(abs(extremum) for _, extremum in extrema), abs(curve.at(0.0)[0]))
    )
    if side * value > 0.0:
        wanted = [x for x, extremum in extrema if extremum < doubt]
    else:
        wanted = list[float]()
        for k, (x, extremum) in enumerate(extrema):
            after = [(y, later) for y, later in extrema[k + 1 :] if later > -doubt]
            if extremum < doubt and after:
                wanted += [x, after[0][0]]
    return next((x for x in wanted if all(abs(x - y) > 1e-5 for y in looked)), 0.0)
