"""Runs: PETSc's TS takes the steps, events are located, and the log of steps is kept.

In come a problem, an initial state, parameters and a ``Stepping``; out comes a ``Trajectory``, all
that derivatives need.  ``ts`` makes PETSc's TS and gives it the equations, ``ts_defaults`` options,
times and tolerances; ``events`` is the event loop, ``trajectory`` what a run remembers.  Which
states stay is decided in ``thinning``, where the steps between them are taken again.

Read first: ``stepping``, ``runner`` (one smooth piece), ``events/event_loop``.
"""

from daeosens.timestepping.saved_runs import load_run, save_run
from daeosens.timestepping.trajectory.checkpoints import Checkpoints
from daeosens.timestepping.trajectory.trajectory import Trajectory

__all__ = ["Checkpoints", "Trajectory", "load_run", "save_run"]
