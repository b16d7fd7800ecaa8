"""Steps that end where a branch of the equations changes sides: derivatives pass kinks there.

A step that straddles a kink takes the derivative of f on one side of it at some of its stages, on
the other side at the others, by the weights of the stages and not by the times spent there.  What
its error estimate accepts, an error of h^2 [f_u] u' in the state, is one of h [f_u] v in a tangent
v.  A step that ends at the kink has none of it: f is continuous, so the time of the kink does not
enter, and where the end misses it by d only d [f_u] v is left.

Source
------
Gear, Osterby, ACM TOMS 10(1), 1984, and Enright, Jackson, Norsett, Thomsen, Applied Mathematics and
Computation 27(4), 1988, who locate discontinuities as here to save rejected steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daeosens.derivatives.step_placement.branch_passages import equations_with_kinks, state_at
from daeosens.derivatives.step_placement.kinks_inside import Kink, kinks_inside, usual_step
from daeosens.derivatives.step_placement.pulses import Take
from daeosens.errors import SolveError
from daeosens.petsc.vectors import Array
from daeosens.problem.branches import Branches
from daeosens.problem.problem import Problem
from daeosens.timestepping.delayed_cuts import echoes
from daeosens.timestepping.trajectory.trajectory import Trajectory

ROUNDS = 8
"""Runs, at most, until steps end at the kinks: cuts change the steps after them."""

SETTLED = 3
"""Rounds after which short steps across kinks become longer: those before them move it further."""

NEGLIGIBLE, CUT = 1.0, 100.0
"""Parts of derivatives, in units of rtol, that kinks may cost before and after steps are cut."""

AIM = 30.0
"""The part, in the same unit, that half of the short step across a kink is made for.

It has to be as long as the time of the kink changes with the steps before it; of its error, that of
a kink about in its middle, a tenth is left.
"""

AHEAD = (1 / 32, 1 / 1024)
"""Parts of usual steps before a kink at which steps end.

Stages at the end of a step are off by more than the short step across the kink is long, and may lie
on its other side: of a step as short as the last one before it they do not.
"""

SOONER = 10.0
"""The same so near to it that only second derivatives of max(x, 0)^1.5 feel what is missed."""

FARTHER = 2.5
"""Where slopes of derivatives have no bound steps end ever so many times farther from a kink."""

PLACES = 16
"""So many states of a run are looked at where branches may be there at some times only."""

LARGE = 500
"""So many unknowns may have kinks at so many times that no step ends at all of them."""


def cut_at_kinks(
    run: Trajectory, pinned: Array, take: Take, rtol: float | None = None
) -> Trajectory:
    """Return a run whose steps end where branches change sides, the one given if they need not.

    Parameters
    ----------
    run : Trajectory
        A run whose steps hit ``pinned`` [K].
    take : callable
        See ``Take``.
    rtol : float, optional
        In the place of the tolerance of the run.
    """
    if not may_have_kinks(run):
        return run
    rtol = run.stepping.tolerances[0] if rtol is None else rtol
    cuts: list[_Cut] = []
    for number in range(ROUNDS):
        wider = 3.0 ** max(number - SETTLED, 0)
        near = [cut.times for cut in cuts]
        kinks = kinks_inside(run, (wider * CUT if number else NEGLIGIBLE) * rtol, near)
        if not kinks:
            break
        cuts = _replaced(cuts, [_cut(run, kink, wider * rtol) for kink in kinks])
        times = np.union1d(pinned, np.concatenate([cut.times for cut in cuts]))
        if run.problem.delays is not None:
            times = np.union1d(times, echoes(run, [cut.middle for cut in cuts]))
        first, last = run.stepping.t_span
        times = times[(first < times) & (times < last)]
        try:
            again = take(run.stored[0].copy(), times)
        except SolveError:
            break  # the steps that were taken at first are as good as they were
        run.destroy()
        run = again
    return run


def may_have_kinks(run: Trajectory) -> bool:
    """Return whether a run may have kinks that can be found in less time than it takes itself."""
    problem = run.problem
    if (
        not problem.branches_known
        or run.inside is None
        or not run.n_steps
        or problem.comm.size > 1
        or problem.style == "petsc"  # branches of many points, one of which changes at any time
        or problem.size > LARGE
    ):
        return False
    # functions without branches have none where the run begins, ends, or other equations begin
    steps = {0, *(crossing.step + 1 for crossing in run.crossings)}
    if not run.thinned:  # the state before the last one would be taken again
        steps.add(run.n_steps - 1)
    steps |= set(np.searchsorted(run.times, problem.breakpoints).tolist())
    function = equations_with_kinks(run)
    points = [(n, state_at(run, n, 0.0)) for n in sorted(steps) if n < run.n_steps]
    points.append((run.n_steps - 1, state_at(run, run.n_steps - 1, 1.0)))
    if not run.thinned and any(_forks(mode) for mode in (problem, *problem.modes.values())):
        between = np.unique(np.linspace(0, run.n_steps - 1, PLACES).astype(int))
        points += [(n, state_at(run, n, 0.0)) for n in between.tolist()]
    return any(function.decide(n, *point).values.size for n, point in points)


def _forks(problem: Problem) -> bool:
    """Return whether the callback of a problem may go another way at some times only."""
    of = problem.branches if problem.delays is None else problem.delays.branches
    return isinstance(of, Branches) and of.forks


@dataclass(frozen=True, eq=False)
class _Cut:
    """Where steps end around a kink: a short step has ``middle`` for its middle.

    Attributes
    ----------
    times : array [K]
    middle : float
    reach : float
        A kink that is found so near to ``middle`` afterwards is the same one.
    """

    times: Array
    middle: float
    reach: float


def _replaced(old: Sequence[_Cut], new: Sequence[_Cut]) -> list[_Cut]:
    """Return the cuts at kinks; new ones in the place of those for the same kink before."""
    kept = list(old)
    for cut in new:
        distances = [abs(other.middle - cut.middle) for other in kept]
        nearest = int(np.argmin(distances)) if kept else 0
        if kept and distances[nearest] <= kept[nearest].reach:
            del kept[nearest]
    return [*kept, *new]


def _cut(run: Trajectory, kink: Kink, rtol: float) -> _Cut:
    """Return the times that steps hit around a kink: shortly before it, and on both sides.

    Farther and farther from it as well on sides where slopes of derivatives have no bound: what a
    step misses of these grows with its size.
    """
    n, t = kink.step, kink.time
    usual = usual_step(run, n)
    part = AIM * rtol * min(1.0, 1.0 / (kink.rate * usual))
    near = usual * part ** (1.0 / kink.power)
    near = min(max(near, 1e-12 * abs(t)), 0.5 * AHEAD[-1] * usual)
    times = [t - part * usual for part in AHEAD]
    times += [t - near, t + near]
    distance = FARTHER * near
    while kink.sides and distance < usual:
        times += [t + side * distance for side in kink.sides]
        distance *= FARTHER if distance > part * usual else SOONER
    return _Cut(np.unique(times), t, near + AHEAD[-1] * usual)
