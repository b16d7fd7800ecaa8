"""Second-order sweeps on PETSc vectors, one step after the other.

The reference of the other engines, and what carries their rows over events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from petsc4py import PETSc

from daeosens.costs.cost import Densities, add_curvature
from daeosens.derivatives.engines.request import Observed
from daeosens.methods.step import Adjoint, SecondOrder, StepMap, announced
from daeosens.petsc.vectors import gather
from daeosens.problem.derivative_arrays import many_evaluations
from daeosens.timestepping.trajectory.trajectory import Trajectory, steps_of


class TangentStates(NamedTuple):
    """The tangent of a run along one direction.

    Attributes
    ----------
    states : sequence of Vec [n]
        Derivatives of the states.
    times : sequence of float
        Derivatives of their times.
    parameters : sequence of Vec [m]
        Derivatives of the parameters there.
    """

    states: Sequence[PETSc.Vec]
    times: Sequence[float]
    parameters: Sequence[PETSc.Vec]


class VectorSecondOrder:
    """One adjoint and its derivatives along D directions, carried back by the step maps.

    Parameters
    ----------
    trajectory : Trajectory
        The steps.
    observed, densities
        Of the cost: see ``AdjointRequest``.
    tangents : callable
        Returns the tangents of the run, when they are needed first.
    first : Adjoint
        The adjoint at the state that the sweep has reached.
    dots : sequence of (Vec [n], Vec [m])
        Its derivatives.
    """

    def __init__(
        self,
        trajectory: Trajectory,
        observed: Observed,
        densities: Densities,
        tangents: Callable[[], Sequence[TangentStates]],
        first: Adjoint,
        dots: Sequence[tuple[PETSc.Vec, PETSc.Vec]],
    ) -> None:
        self._trajectory = trajectory
        self._observed, self._densities = observed, densities
        self._make_tangents = tangents
        self._gathered: dict[int, Any] = {}
        self.first, self.dots = first, dots

    @cached_property
    def steps(self) -> StepMap:
        """The step map, with its work space."""
        return steps_of(self._trajectory)

    @cached_property
    def tangents(self) -> Sequence[TangentStates]:
        """The tangents along the directions."""
        return self._make_tangents()

    def observe(self, number: int) -> None:
        """Add what the cost says about a state, and the second derivatives of that."""
        run, first = self._trajectory, self.first
        for seen in self._observed.get(number, ()):
            point = (float(run.times[number]), run.stored[number], run.parameters(number))
            # At events the time of the state depends on state and parameters; psi_t then counts.
            moves = number in run.moving
            if not first.known:
                seen.add(point, (first.lam, first.mu))
                if moves:
                    self.steps.add_time(0, seen.slope(point))
            pairs = zip(self.tangents, self.dots, strict=True)
            for k, (tangent, out) in enumerate(pairs, start=1):
                du, dp = tangent.states[number], tangent.parameters[number]
                if moves:
                    along = (du, self._as_seen(dp), dp, tangent.times[number])
                    # row of t in psi's second derivatives: it goes to the derivative of omega
                    slope = add_curvature(seen.scalar, seen.weight, point, along, out)
                    self.steps.add_time(k, slope)
                else:
                    seen.scalar.add_hessian(seen.weight, point, (du, self._as_seen(dp)), out)

    def back(self, first: int, last: int) -> None:
        """Carry all from state number ``last`` to ``first``, events among the steps or not."""
        numbers = range(last - 1, first - 1, -1)
        run = self._trajectory
        steps = announced(self.steps, numbers, run.step, thinned=run.thinned)
        with many_evaluations():
            for number in numbers:
                # tangents first: where states are taken again, theirs are on the way to the step's
                pairs = zip(self.tangents, self.dots, strict=True)
                along = [self._on_step(tangent, number, out) for tangent, out in pairs]
                self.steps.second_order(next(steps), self.first, along, self._densities)
                self.observe(number)

    def _on_step(
        self, tangent: TangentStates, number: int, out: tuple[PETSc.Vec, PETSc.Vec]
    ) -> SecondOrder:
        """Return a direction on the step from a state."""
        states, times, dp = tangent.states, tangent.times, tangent.parameters[number]
        # dh is the difference of dt at both ends, zero for steps at fixed times
        dt, dh = times[number], times[number + 1] - times[number]
        return SecondOrder(states[number], states[number + 1], self._as_seen(dp), dp, *out, dt, dh)

    def _as_seen(self, dp: PETSc.Vec) -> Any:
        """Return a direction in the parameters as callbacks see it."""
        if self._trajectory.problem.field_parameter:
            return dp
        # on several ranks a gather is a message to all: once for each direction
        if dp.handle not in self._gathered:
            self._gathered[dp.handle] = gather(dp)
        return self._gathered[dp.handle]
