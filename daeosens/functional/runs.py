"""The runs of a functional: which steps they take, what they keep, and that one serves all at x."""

from __future__ import annotations

import math
from dataclasses import dataclass

from petsc4py import PETSc

from daeosens.derivatives.engines.choice import Engine
from daeosens.derivatives.solve import Checkpoint, solve
from daeosens.functional.parameters import Control
from daeosens.problem.problem import Problem
from daeosens.timestepping.c_rhs import runs_in_c
from daeosens.timestepping.method_choice import (
    AUTO,
    HELD,
    adopted,
    held_by_stability,
    made_stiff,
    replaced,
)
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.thinning import fitting
from daeosens.timestepping.trajectory.trajectory import Trajectory

TRIAL_STEPS, TRIAL_FACTOR = 1000, 10
"""Trial points may take so many adaptive steps, or so many times those of the best run if more."""

MANY, LONGER = 10_000, 2
"""Beyond so many steps it is so many times those of the best run: where a search leads to equations
that are ever stiffer, or to delays that are ever shorter, each accepted run would take ten times as
long as the one before it.  Where stability holds the steps of the best run small, it is so many
times those of the shortest run: they say how stiff the equations are, not what the data ask for."""

CHEAP = 12
"""Up to how many unknowns stages of steps in C are sooner computed again than kept."""


def most_steps(steps: int) -> int:
    """Return how many adaptive steps a trial may take, by those of the best run."""
    most = max(min(TRIAL_FACTOR * steps, MANY), LONGER * steps, 1)
    # by powers of two, so that few different ones are asked for
    return max(TRIAL_STEPS, 2 ** math.ceil(math.log2(most)))


@dataclass
class Count:
    """How often a reduced functional has run."""

    forward: int = 0
    adjoint: int = 0
    tangent: int = 0
    second_order: int = 0


class Runs:
    """The runs at points x, of which the last one is kept.

    Parameters
    ----------
    problem : Problem
        The dynamics.
    stepping : Stepping
        Method and step sizes.
    control : Control
        What x means.
    times : tuple of float
        What steps hit.
    engine : str
        What sweeps back: PETSc's own adjoint needs its own record of a run.
    checkpoint : "auto", "states", "stages", Checkpoints or a schedule
        What is kept of a run.
    count : Count
        Where runs are counted.

    Attributes
    ----------
    stepping : Stepping
        As given; of a method that is chosen, that of the first run.
    """

    def __init__(
        self,
        problem: Problem,
        stepping: Stepping,
        control: Control,
        times: tuple[float, ...],
        engine: Engine,
        checkpoint: Checkpoint,
        count: Count,
    ) -> None:
        self.stepping = stepping
        self._problem, self._control, self._times = problem, control, times
        self._by_petsc = engine == "tsadjoint"
        self._asked: Checkpoint = checkpoint
        self._count = count
        self._chooses = stepping.method == AUTO
        self._trial_stepping = stepping
        self._shortest = 0
        self._kept: tuple[PETSc.Vec, Trajectory] | None = None

    def at(self, x: PETSc.Vec) -> Trajectory:
        """Return the run at x [k].  Collective.

        Raises
        ------
        SolveError
            The run failed, the same on every rank.
        """
        if self._kept is not None:
            point, run = self._kept
            # Optimisers ask for value, gradient and products at the same x: one run serves all.
            if point.equal(x):
                return run
            self._forget()
        problem = self._problem
        u0, p = self._control.unpack(problem, x)
        self._count.forward += 1
        # PETSc's own trajectory has no jumps: smooth pieces are repeated
        recorded = "memory" if self._by_petsc and problem.smooth else None
        run = solve(problem, u0, p, self._trial_stepping, self._times, self._checkpoint, recorded)
        self._kept = (x.copy(), run)
        if self.stepping.method == AUTO:  # one method for all x: the values of two differ
            self.stepping = self._trial_stepping = adopted(self.stepping, run.stepping)
        return run

    def limit_steps(self, *, limited: bool) -> None:
        """Give later runs no more steps than a multiple of those of the last one, or all again."""
        # The best run so far shows how stiff the equations are where the search is going: the
        # method is changed before further trials, not within one.
        if limited and self._chooses and self._kept and held_by_stability(self._kept[1], HELD):
            self.stepping = made_stiff(self.stepping)
            self._forget()
        self._trial_stepping = self.stepping
        if not limited:
            self._shortest = 0
        if not limited or not self.stepping.adaptive or self._kept is None:
            return
        run = self._kept[1]
        steps = run.effort.steps
        self._shortest = min(self._shortest or steps, steps)
        most, least = (
            most_steps(steps),
            most_steps(max(self._shortest, MANY // TRIAL_FACTOR)),
        )
        if most > least and held_by_stability(run, HELD):
            most = least
        if most < self.stepping.max_steps:
            self._trial_stepping = replaced(self.stepping, max_steps=most)

    @property
    def _checkpoint(self) -> Checkpoint:
        """What runs keep."""
        problem = self._problem
        if self._asked != "auto":
            return self._asked
        if self._by_petsc:
            return "states"
        few = None
        if self.stepping.control == "states" and problem.delays is None:
            few = fitting(problem, self.stepping, self._times)
        if few is not None:
            return few
        # Stages are what a sweep needs again; without them each step back repeats a step forward.
        cheap = problem.size <= CHEAP and runs_in_c(problem, self.stepping.resolved_method)
        return "states" if cheap else "stages"

    def _forget(self) -> None:
        """Drop the kept run."""
        if self._kept is not None:
            self._kept[1].destroy()
            self._kept = None
