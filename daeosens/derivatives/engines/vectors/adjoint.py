"""Sweeps back on PETSc vectors, one step after the other: for every method, form, event and rank.

The reference of the other engines, and what carries their rows over events.
"""

from __future__ import annotations

from functools import cached_property

from daeosens.derivatives.engines.request import AdjointRequest, Rows, matrices_of, new_rows
from daeosens.methods.step import StepMap, announced
from daeosens.petsc.vectors import Array
from daeosens.problem.derivative_arrays import many_evaluations
from daeosens.timestepping.trajectory.trajectory import Trajectory, steps_of


class VectorSweep:
    """M adjoint rows as vectors, carried back by the step maps of the methods.

    Parameters
    ----------
    trajectory : Trajectory
        The steps.
    request : AdjointRequest
        What is carried.

    Attributes
    ----------
    lam, mu : list of Vec [n], list of Vec [m]
        The rows at the state that the sweep has reached.
    """

    name, why = "vectors", ""

    def __init__(self, trajectory: Trajectory, request: AdjointRequest) -> None:
        self._trajectory = trajectory
        self._request = request
        self.lam, self.mu = new_rows(trajectory, request)

    @property
    def steps(self) -> StepMap:
        """The step map, with its work space."""
        return self._steps

    @cached_property
    def _steps(self) -> StepMap:
        return steps_of(self._trajectory)

    def observe(self, number: int) -> None:
        """Add what is observed at a state."""
        run = self._trajectory
        for seen in self._request.observed.get(number, ()):
            point = (float(run.times[number]), run.stored[number], run.parameters(number))
            # lam jumps by the gradient of what is observed; between observations it is continuous
            seen.add(point, (self.lam[seen.row], self.mu[seen.row]))
            if number in run.moving:
                # the time of this state moves with an event before it: dJ/dt of what is seen goes
                # to omega
                self.steps.add_time(seen.row, seen.slope(point))

    def back(self, first: int, last: int) -> None:
        """Carry the rows from state number ``last`` to ``first``, events among the steps or not."""
        run, densities = self._trajectory, self._request.densities
        numbers = range(last - 1, first - 1, -1)
        with many_evaluations():
            for step in announced(self.steps, numbers, run.step, thinned=run.thinned):
                self.steps.adjoint(step, self.lam, self.mu, densities)
                self.observe(step.number)

    def between(self, number: int) -> None:
        """Carry the rows over one step, or jump, and observe its start."""
        self.back(number, number + 1)

    def values(self) -> None:
        """Return nothing: the values of costs are no part of the sweep."""

    def rows(self) -> Rows:
        """Return the rows."""
        return self.lam, self.mu

    def matrices(self) -> tuple[Array, Array]:
        """Return the rows as arrays [M, n_local] and [M, m_local]."""
        return matrices_of(self.rows())
