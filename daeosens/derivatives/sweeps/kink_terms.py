"""What the moving time of a kink contributes to second derivatives.

Where the side of a surface s(t, u, p) = 0 decides, and f is continuous across it, the derivatives
of f jump by a matrix of rank one, [f_u, f_p, f_t] = c (s_u, s_p, s_t).  A direction moves the time
of the kink by -ds / s', s' = s_u f + s_t; so long f is that of the other side, which differs by c s
from the one that a step takes.  A state after the kink has the second derivative

    c ds[v] ds[w] / s'

beside that of the steps.  First derivatives have no such term.

Source
------
The integral of c s over the time between both kinks, to second order in their distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from daeosens.derivatives.engines.request import SecondRows
from daeosens.errors import DaeosensError
from daeosens.petsc.vectors import Array, read
from daeosens.timestepping.trajectory.trajectory import Trajectory

MOST = 64
"""Unknowns up to which derivatives on both sides are compared as dense matrices."""

SHORT, LONGEST = 100.0, 2e-3
"""Part of the longest step, in units of rtol, and at most, that steps across a kink are shorter
than where others end at it."""

LONGER = 10.0
"""A step across a kink may be so many times longer and still tell what jumps: a term is wrong by
about the part of itself that the step is of the longest one."""

RANK_ONE = 1e-3
"""Part of a jump of derivatives that may be of another rank: what they change in a short step."""

BESIDE, THEMSELVES = 8, 100.0
"""Derivatives change by about themselves in the longest of so many steps on either side, and by no
more than so many times as much as that makes in a short one."""

ALONE = 10.0
"""Derivatives that jump change so many times faster than in the steps before and behind."""

ACROSS = 1e-6
"""Rate at which a surface is crossed, at least, relative to its terms."""


@dataclass(frozen=True, eq=False)
class KinkTerm:
    """What second derivatives have from a kink inside of a step.

    Attributes
    ----------
    state : int
        The number of the state behind that step, or before it if that is the last one.
    along : array [n]
        c / s'.
    by_u, by_p : array [n], [m]
        s_u and s_p.
    """

    state: int
    along: Array
    by_u: Array
    by_p: Array

    def added(self, rows: SecondRows, du: Array, dp: Array) -> SecondRows:
        """Return the rows behind the kink as they are before it; tangents [D, n] and [D, m]."""
        moved = (du @ self.by_u + dp @ self.by_p) * (rows.lam @ self.along)
        return rows._replace(
            lam_dot=rows.lam_dot + moved[:, None] * self.by_u,
            mu_dot=rows.mu_dot + moved[:, None] * self.by_p,
        )


def admits_terms(run: Trajectory) -> bool:
    """Return whether what kinks contribute can be had.

    Of runs of u' = f on one rank, without delays, whose steps end at kinks: adaptive ones, and
    those by parts of their steps.  Steps whose times move with an event have none.
    """
    problem = run.problem
    return (
        (run.stepping.adaptive or has_short_steps(run))
        and problem.delays is None
        and problem.monitor is None
        and problem.size <= MOST
        and problem.comm.size == 1
        and not run.thinned
        and run.n_steps > 1
        and all(
            mode.batch is not None and mode.form == "rhs" and not mode.field_parameter
            for mode in problem.modes.values() or (problem,)
        )
    )


def has_short_steps(run: Trajectory) -> bool:
    """Return whether some step is as short as those across kinks."""
    sizes = run.step_sizes[run.step_sizes > 0.0]
    return bool(sizes.min(initial=np.inf) <= LONGER * short_step(run))


def short_step(run: Trajectory) -> float:
    """Return what steps across kinks are shorter than, where others end beside them."""
    rtol, _ = run.stepping.tolerances
    return min(SHORT * rtol, LONGEST) * float(run.step_sizes.max(initial=0.0))


@dataclass(frozen=True, eq=False)
class _Sides:
    """Derivatives of f before and behind a short step, [n, n + m + 1] in the state, p and time.

    ``sizes`` [n + m + 1] are those of what they are derivatives in, ``rates`` [n] those of f: with
    them ranks mean something.  ``f`` [n] is that behind.
    """

    before: Array
    after: Array
    f: Array
    sizes: Array
    rates: Array

    @property
    def jump(self) -> Array:
        """By how much derivatives jump, as parts of the rates."""
        return (self.after - self.before) * self.sizes / self.rates[:, None]


def _sides(run: Trajectory, n: int) -> _Sides | None:
    """Return what is on both sides of step n, None if it is too long or moves with an event."""
    (problem, parameters), h = run.equations(n), float(run.step_sizes[n])
    batch, m = problem.batch, problem.n_parameters
    if not admits_terms(run) or h > LONGER * short_step(run):
        return None
    if run.records and not run.records[n].plain:
        return None
    assert batch is not None
    p, ends = np.asarray(parameters), [n, n + 1]
    start = float(run.times[n])
    t = np.array([problem.inside(end, start, h) for end in run.times[ends].tolist()])
    u = run.u[ends]
    try:
        sides = [batch.jacobian(t, u, p)]
        if m:
            sides.append(np.moveaxis(batch.push_parameters(t, u, p, np.eye(m)), 0, 2))
        by_time = np.zeros((2, problem.size, 1))
        if not problem.autonomous:
            out = problem.create_state()
            for side, k in enumerate(ends):
                problem.rhs_t(float(t[side]), run.stored[k], parameters, out)
                by_time[side, :, 0] = read(out)
        f = batch.rhs(t, u, p)[1]
    except DaeosensError:  # sweeps tell it where they need it
        return None
    before, after = np.concatenate([*sides, by_time], axis=2)
    span = float(np.ptp(run.times))
    sizes = np.concatenate([np.abs(run.u).max(axis=0), np.abs(p), [span]])
    sizes[sizes == 0.0] = 1.0
    rates = np.maximum(np.abs(before * sizes).max(axis=1), np.abs(after * sizes).max(axis=1))
    rates[rates == 0.0] = 1.0
    return _Sides(before, after, f, sizes, rates)


def jump_of_derivatives(run: Trajectory, n: int) -> float:
    """Return by which part of themselves derivatives of f jump in step n; 0 where it is not known.

    And where it is what they change by themselves in so short a step.  Differences of f see no kink
    in a step that is shorter than what rounding leaves of them.
    """
    sides = _sides(run, n)
    if sides is None:
        return 0.0
    size, beside = float(np.abs(sides.jump).max()), slice(max(n - BESIDE, 0), n + BESIDE + 1)
    h, usual = float(run.step_sizes[n]), float(run.step_sizes[beside].max())
    if size <= THEMSELVES * h / usual:
        return 0.0
    # derivatives of max(x, 0)^1.5 change about as fast in the step that follows
    for k in (n - 1, n + 1):
        other = _sides(run, k) if 0 <= k < run.n_steps and run.step_sizes[k] else None
        if other is not None:
            by_itself = float(np.abs(other.jump).max()) * h / float(run.step_sizes[k])
            if size <= ALONE * by_itself:
                return 0.0
    return size


def kink_term(run: Trajectory, n: int) -> KinkTerm | None:
    """Return what a kink inside of step n contributes, or None where that is not to be had."""
    sides = _sides(run, n)
    if sides is None:
        return None
    left, values, right = np.linalg.svd(sides.jump)
    if not values[0] or (values.size > 1 and values[1] > RANK_ONE * values[0]):
        return None
    size = run.problem.size
    slope, by_t = right[0, :-1] / sides.sizes[:-1], right[0, -1] / sides.sizes[-1]
    by_u, by_p = slope[:size], slope[size:]
    terms = np.append(by_u * sides.f, by_t)
    crossed = float(terms.sum())
    if abs(crossed) <= ACROSS * np.abs(terms).sum():
        return None
    # what is observed in the last state is no part yet of the rows there
    state = n + 1 if n + 1 < run.n_steps else n
    return KinkTerm(state, left[:, 0] * sides.rates * (values[0] / crossed), by_u, by_p)


def parts_between(
    parts: Sequence[tuple[int, int, bool]], terms: Sequence[KinkTerm]
) -> list[tuple[int, int, bool]]:
    """Return the parts of a run, in order, each cut at the states behind kinks."""
    states = {term.state for term in terms}
    result: list[tuple[int, int, bool]] = []
    for first, last, smooth in parts:
        marks = [first, *sorted(n for n in states if first < n < last), last]
        result += [(begin, end, smooth) for begin, end in pairwise(marks)]
    return result
