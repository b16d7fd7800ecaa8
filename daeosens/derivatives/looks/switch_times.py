"""Times at which what equations compare with t changes sides."""

from __future__ import annotations

import numpy as np

from daeosens.derivatives.looks.branch_changes import point_on_chord, rate_in
from daeosens.petsc.vectors import Array
from daeosens.problem.branches import Branches
from daeosens.problem.clock import Switch, changes
from daeosens.timestepping.delayed_run import delayed_states
from daeosens.timestepping.trajectory.trajectory import Trajectory

SAMPLES = 16
"""States of a run at which a callback with an ``if`` is asked what it compares."""


def switch_times(run: Trajectory, *, fixed: bool = False) -> Array:
    """Return the times [S] inside the span at which what a callback compares with t changes.

    All of them, or those, ``fixed``, that no parameter moves.
    """
    problem = run.problem
    # states of a run that keeps some would be taken again; on a grid there are very many
    known = problem.branches_known and problem.stencil is None and problem.comm.size == 1
    if not known or not run.n_steps or run.thinned:
        return np.empty(0)
    delays = problem.delays
    asked = [mode.branches for mode in (problem, *problem.modes.values())]
    if delays is not None:
        asked = [delays.branches]
    noted: dict[object, Switch] = {}
    for branches in asked:
        if not isinstance(branches, Branches) or not branches.compares_times:
            continue
        samples = SAMPLES if branches.forks else 1
        for n in np.unique(np.linspace(0, run.n_steps - 1, samples).astype(int)).tolist():
            _, t, u = point_on_chord(run, n, 0.0)
            rate = rate_in(run, n, t) if problem.form == "residual" else None
            if delays is not None:
                u = np.concatenate([u, delayed_states(run, n, t)])
            noted |= branches.switches(t, u, np.asarray(run.parameters(n)), rate, fixed=fixed)
    if not noted:
        return np.empty(0)
    return changes(list(noted.values()), float(run.times[0]), float(run.times[-1]))
