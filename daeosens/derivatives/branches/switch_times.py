"""What equations make of the time alone, and the times at which what they compare changes sides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daeosens.derivatives.branches.branch_changes import point_on_chord, rate_in
from daeosens.petsc.vectors import Array
from daeosens.problem.branches import Branches
from daeosens.problem.clock import Noted
from daeosens.problem.problem import Problem, ProblemCache
from daeosens.problem.time_formulas import Switch, changes
from daeosens.timestepping.delayed_steps import delayed_states
from daeosens.timestepping.trajectory.trajectory import Trajectory

SAMPLES = 16
"""States of a run at which a callback with an ``if`` is asked what it compares."""

MANY = 100
"""Stretches of time, at most, between comparisons, in each of which it is asked once more."""

MOST_KNOWN = 100
"""Sets of switches, at most, whose times are kept from run to run."""

_KNOWN: ProblemCache[dict[object, Array]] = ProblemCache(dict)


def switch_times(run: Trajectory, *, fixed: bool = False) -> Array:
    """Return the times [S] inside the span at which what a callback compares with t changes.

    All of them, or those, ``fixed``, that no parameter moves.
    """
    return times_of_change(run, made_of_time(run, fixed=fixed).switches)


def times_of_change(run: Trajectory, switches: Sequence[Switch]) -> Array:
    """Return the times [S] inside the span of a run at which one of the switches changes."""
    return changes_inside(run.problem, (float(run.times[0]), float(run.times[-1])), switches)


def changes_inside(
    problem: Problem, span: tuple[float, float], switches: Sequence[Switch]
) -> Array:
    """Return the times [S] inside a span at which one of the switches of a problem changes."""
    if not switches:
        return np.empty(0)
    known = _KNOWN.of(problem)
    key = (*span, *(switch.key for switch in switches))
    if key not in known:
        if len(known) >= MOST_KNOWN:  # parameters move them in every run
            known.clear()
        known[key] = changes(switches, *span)
    return known[key]


def made_of_time(run: Trajectory, *, fixed: bool = False) -> Noted:
    """Return what the callbacks of a run make of the time alone, and compare, each once."""
    problem = run.problem
    # states of a run that keeps some would be taken again; on a grid there are very many
    known = problem.branches_known and problem.stencil is None and problem.comm.size == 1
    if not known or not run.n_steps or run.thinned:
        return Noted()
    delays = problem.delays
    asked = [mode.branches for mode in (problem, *problem.modes.values())]
    if delays is not None:
        asked = [delays.branches]
    parts: list[Noted] = []

    def ask(branches: Branches, t: float) -> None:
        n = int(np.clip(np.searchsorted(run.times, t, side="right") - 1, 0, run.n_steps - 1))
        size = float(run.step_sizes[n])
        _, t, u = point_on_chord(run, n, (t - float(run.times[n])) / size if size else 0.0)
        rate = rate_in(run, n, t) if problem.form == "residual" else None
        if delays is not None:
            u = np.concatenate([u, delayed_states(run, n, t)])
        parts.append(branches.of_time(t, u, np.asarray(run.parameters(n)), rate, fixed=fixed))

    for branches in asked:
        if not isinstance(branches, Branches) or not branches.follows_time:
            continue
        samples = SAMPLES if branches.forks else 1
        for n in np.unique(np.linspace(0, run.n_steps - 1, samples).astype(int)).tolist():
            ask(branches, float(run.times[n]))
        switches = [switch for part in parts for switch in part.switches]
        if branches.forks and switches:
            # behind each comparison other things may be made of the time
            first, last = float(run.times[0]), float(run.times[-1])
            cuts = np.concatenate([[first], times_of_change(run, switches), [last]])
            if cuts.size <= MANY:
                for t in (0.5 * (cuts[1:] + cuts[:-1])).tolist():
                    ask(branches, t)
    return Noted(
        list({switch.key: switch for part in parts for switch in part.switches}.values()),
        list({formula.key: formula for part in parts for formula in part.formulas}.values()),
    )
