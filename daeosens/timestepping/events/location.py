"""Where inside a step an event function is zero: to rounding, by as few steps as possible."""

from __future__ import annotations

import math

from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.timestepping.events.detection import ROUNDING, EventBracket, EventDetector

NEIGHBOURS = 1e-5
"""Points nearer than this part of a step give no better interpolation, only rounding."""

STALLED = 1e-7
"""Within this part of a step a value that no longer falls is noise."""

ATTEMPTS = 200

LATE = 0.05
"""A function that leaves zero smoothly where a step begins is no zero any more at this part."""

JUMP = 1e-6
"""What is left of an event function, as a part of its values around, where it is zero."""


def located(
    detector: EventDetector, t: float, h: float, u: PETSc.Vec, u_next: PETSc.Vec
) -> list[tuple[float, PETSc.Vec, EventBracket]]:
    """Return the sizes of steps that end at the crossings seen in one, in order, and their ends.

    Raises
    ------
    SolveError
        An event function jumps over zero, or is zero for a time.
    """
    ends: list[tuple[float, PETSc.Vec, EventBracket]] = []
    for bracketed in detector.hits:
        if bracketed.low < bracketed.high:  # a sign change inside the step: find its root
            ends.append((*locate(detector, bracketed, t, h, u), bracketed))
        elif bracketed.low:  # low = high = 1: the step ends on the surface as it is
            ends.append((h, u_next, bracketed))
        else:  # low = high = 0: the state leaves a surface on which it rested
            if bracketed.size < math.inf:
                _refuse_late_start(detector, bracketed, t, h, u)
            ends.append((0.0, u.copy(), bracketed))
    return sorted(ends, key=lambda end: end[0])


def locate(
    detector: EventDetector, bracketed: EventBracket, t: float, h: float, u: PETSc.Vec
) -> tuple[float, PETSc.Vec]:
    """Return the size of the step from ``u`` at ``t`` that ends on the surface, and its end.

    Newton's method with the slope of an interpolation that each new point improves; a bracket keeps
    it in its bounds.  Where the step begins on the surface that zero is divided out.
    """
    surface, resolution = bracketed.surface, 2.0 * ROUNDING * max(abs(t), h) / h
    on = surface.on and bracketed.low == 0.0
    curve = bracketed.curve.deflated() if on else bracketed.curve
    low, high, side = bracketed.low, bracketed.high, bracketed.side
    state, spare, p = u.duplicate(), u.duplicate(), detector.runner.p
    # the unknown is x = (size of the step) / h: each value of g takes a step of size x h from u, so
    # that the root is one of the discrete solution, of which derivatives are taken, not of a fit
    x = curve.root(low, high)
    if not low < x < high:
        x = 0.5 * (low + high)
    best: tuple[float, float, float] | None = None  # |value|, part of the step, value of g
    last_value, slow, halved = math.inf, 0, False
    for _ in range(ATTEMPTS):
        try:
            detector.runner.step(t, x * h, u, state, again=best is not None)
        except SolveError:
            # where the equations jump, or end, beside the surface: back towards the best point
            if best is None:
                raise
            if abs(x - best[1]) <= resolution:
                break
            low, high = (low, x) if x > best[1] else (x, high)
            x, halved = 0.5 * (x + best[1]), True
            continue
        sample = surface.at(t + x * h, state, p)
        # a step that starts on the surface has the root x = 0, which is divided out: g / x
        value = sample / x if on else sample
        slope = curve.at(x)[1]
        # Newton's change; a slope of the wrong sign gives one that is too long, and bisection below
        change = -value / slope if slope * side < 0.0 else 2.0 * (high - low)
        # the middle of the bracket tells nothing of how near the last point was to its rounding
        stalled = not halved and abs(value) > 0.5 * last_value
        last_value = abs(value)
        # the best point is kept, with its state in ``spare``: the last one need not be the best
        if best is None or abs(value) < best[0]:
            best = (abs(value), x, sample)
            state, spare = spare, state
        # done: an exact zero, a change below the rounding of the time, or values that are rounding
        if sample == 0.0 or abs(change) <= resolution or (stalled and abs(change) < STALLED):
            break
        if value * side > 0.0:  # still the sign of the start of the bracket
            low = x
        else:
            high = x
        if high - low <= resolution:
            break
        # points too near to each other would spoil the divided differences of the interpolation
        if curve.nearest(x) >= NEIGHBOURS:
            curve = curve.add(x, value)
        # from one side Newton's method leaves the bracket wide: values tell whether it converges
        slow = slow + 1 if stalled else 0
        following = x + change
        # bisection where Newton's method leaves the bracket, or values hardly shrink any more
        halved = slow > 3 or not low < following < high
        if halved:
            following, slow = 0.5 * (low + high), 0
        x = following
    assert best is not None
    size, value = best[1] * h, best[2]
    # a value that stays large at the root: the function jumps over zero, as bisection will tell
    if abs(value) > JUMP * bracketed.size:
        x, value = _bisected(detector, bracketed, t, h, u, spare)
        size = x * h
    surface.value = value
    state.destroy()
    return size, spare


def refuse_jump_from_rest(
    detector: EventDetector, bracketed: EventBracket, t: float, h: float, u: PETSc.Vec
) -> float:
    """Return the part of a step up to which an event function is zero, unless it jumps there.

    Raises
    ------
    SolveError
        It does.
    """
    state = u.duplicate()
    x, _ = _bisected(detector, bracketed, t, h, u, state)
    state.destroy()
    return x


def _refuse_late_start(
    detector: EventDetector, bracketed: EventBracket, t: float, h: float, u: PETSc.Vec
) -> None:
    """Refuse an event function that is zero until it leaves in the middle of a step.

    Raises
    ------
    SolveError
        It does, by a jump or gradually: no time inside a step is a zero of it.
    """
    x = refuse_jump_from_rest(detector, bracketed, t, h, u)
    if x > LATE:
        raise SolveError(
            f'event "{bracketed.surface.event.name}" has no zero: its function is zero until '
            f"t = {t + x * h:.9g}",
            expected="a function that passes through zero",
            remedy="what is compared with zero, in the place of its part above or below zero; of "
            "a state that rests there, a mode in which it does, daeosens.hybrid, and an event of "
            "what sets it in motion",
        )


def _bisected(
    detector: EventDetector,
    bracketed: EventBracket,
    t: float,
    h: float,
    u: PETSc.Vec,
    state: PETSc.Vec,
) -> tuple[float, float]:
    """Return the part of a step at which a sign changes, to rounding, and the value just there.

    ``state`` becomes the state.  Where ``bracketed`` leaves zero after a rest, that is the part at
    which it does.

    Raises
    ------
    SolveError
        The values on both sides differ: the event function jumps, or has a pole, or the equations
        jump there, and with them the ends of steps.
    """
    surface, p = bracketed.surface, detector.runner.p
    noise, rests = detector.noise(surface, t, u, surface.value), bracketed.low == bracketed.high

    def value_at(x: float) -> float:
        if x:
            detector.runner.step(t, x * h, u, state)
        else:
            u.copy(state)
        return surface.at(t + x * h, state, p)

    low, high = (0.0, 1.0) if rests else (bracketed.low, bracketed.high)
    resolution = 2.0 * ROUNDING * max(abs(t), h) / h
    while high - low > resolution and low < (x := 0.5 * (low + high)) < high:
        value = value_at(x)
        before = abs(value) <= noise if rests else value * bracketed.side > 0.0
        low, high = (x, high) if before else (low, x)
    first, before_jump = value_at(low), state.copy()
    last = value_at(high)
    # a function that passes smoothly changes by so much between two times next to each other
    passing = max(JUMP, 4.0 * resolution) * bracketed.size
    if abs(last - first) > passing + 10.0 * noise:
        before_jump.axpby(0.5, 0.5, state)
        middle = surface.at(t + high * h, before_jump, p)
        # between states that are apart a function which does not jump takes the values between
        if abs(middle - 0.5 * (first + last)) < 0.25 * abs(last - first):
            raise SolveError(
                f'event "{surface.event.name}" is where the equations jump: steps that end at '
                f"t = {t + high * h:.9g} have stages on both sides, and take its function from "
                f"{first:.3g} to {last:.3g} past zero",
                expected="equations that are smooth up to the event and behind it",
                remedy="a mode for each side, daeosens.hybrid, and an event that changes the mode, "
                "Event(..., mode=...); where the state is driven back from both sides, as friction "
                "does with what it has stopped, a mode in which it rests",
            )
        raise SolveError(
            f'event "{surface.event.name}" has no zero: its function jumps from {first:.3g} to '
            f"{last:.3g} at t = {t + high * h:.9g}",
            expected="a function that passes through zero",
            remedy="the difference a - b for an event at a = b, not its sign or a comparison; what "
            "happens at a time that is known is an event there, Event(time, ...)",
        )
    before_jump.destroy()
    return high, last
