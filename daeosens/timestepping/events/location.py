"""Where inside a step an event function is zero: to rounding, by as few steps as possible."""

from __future__ import annotations

import math

from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.timestepping.events.detection import ROUNDING, Flow, Hit

NEIGHBOURS = 1e-5
"""Points nearer than this part of a step give no better interpolation, only rounding."""

STALLED = 1e-7
"""Within this part of a step a value that no longer falls is noise."""

ATTEMPTS = 200


def locate(flow: Flow, hit: Hit, t: float, h: float, u: PETSc.Vec) -> tuple[float, PETSc.Vec]:
    """Return the size of the step from ``u`` at ``t`` that ends on the surface, and its end.

    Newton's method with the slope of an interpolation that each new point improves; a bracket keeps
    it in its bounds.  Where the step begins on the surface that zero is divided out.
    """
    surface, resolution = hit.surface, 2.0 * ROUNDING * max(abs(t), h) / h
    on = surface.on and hit.low == 0.0
    curve = hit.curve.deflated() if on else hit.curve
    low, high, side = hit.low, hit.high, hit.side
    state, spare, p = u.duplicate(), u.duplicate(), flow.runner.p
    x = curve.root(low, high)
    if not low < x < high:
        x = 0.5 * (low + high)
    best: tuple[float, float, float] | None = None  # |value|, part of the step, value of g
    last_value, slow, halved = math.inf, 0, False
    for _ in range(ATTEMPTS):
        try:
            flow.runner.step(t, x * h, u, state, again=best is not None)
        except SolveError:
            # where the equations jump, or end, beside the surface: back towards the best point
            if best is None:
                raise
            if abs(x - best[1]) <= resolution:
                break
            low, high = (low, x) if x > best[1] else (x, high)
            x, halved = 0.5 * (x + best[1]), True
            continue
        found = surface.at(t + x * h, state, p)
        value = found / x if on else found
        slope = curve.at(x)[1]
        change = -value / slope if slope * side < 0.0 else 2.0 * (high - low)
        # the middle of the bracket tells nothing of how near the last point was to its rounding
        stalled = not halved and abs(value) > 0.5 * last_value
        last_value = abs(value)
        if best is None or abs(value) < best[0]:
            best = (abs(value), x, found)
            state, spare = spare, state
        if found == 0.0 or abs(change) <= resolution or (stalled and abs(change) < STALLED):
            break
        if value * side > 0.0:
            low = x
        else:
            high = x
        if high - low <= resolution:
            break
        if curve.nearest(x) >= NEIGHBOURS:
            curve = curve.add(x, value)
        # from one side Newton's method leaves the bracket wide: values tell whether it converges
        slow = slow + 1 if stalled else 0
        following = x + change
        halved = slow > 3 or not low < following < high
        if halved:
            following, slow = 0.5 * (low + high), 0
        x = following
    assert best is not None
    surface.value = best[2]
    state.destroy()
    return best[1] * h, spare
