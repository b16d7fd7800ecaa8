"""Adjoint sweeps of C functions: no Python between the states that costs look at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from daeosens.costs.cost import Densities
from daeosens.costs.scalar import in_c
from daeosens.derivatives.engines.compiled.carriers import Carry, carrier
from daeosens.derivatives.engines.limits import FEW_ROWS
from daeosens.derivatives.engines.request import (
    AdjointRequest,
    Rows,
    SweepError,
    matrices_of,
    new_rows,
    window_of,
)
from daeosens.methods.step import StepMap
from daeosens.petsc._kernels import add_point
from daeosens.petsc.vectors import Array, is_finite
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory, steps_of

if TYPE_CHECKING:
    from daeosens.petsc._kernels.sweeps.point_costs import RunningCosts


class CompiledSweep:
    """Few adjoint rows, carried back in C from one state that is looked at to the next.

    The numbers of ``VectorSweep``, for problems whose functions are in C: f and its derivatives, or
    the products of traced models, those with large matrices for many points at once; densities are
    in C too.  Few rows for explicit and theta steps; on grids, without densities, explicit steps
    whose stages were kept, and theta steps by products; ESDIRK steps of small dense systems.  What
    is between the windows of a run through events goes by vectors.

    Parameters
    ----------
    trajectory : Trajectory
        The steps.
    request : AdjointRequest
        The rows.
    carry : callable or None
        Of a smooth run; of one through events it is looked up for each mode.
    running : tuple or None
        The densities, as functions in C.

    Raises
    ------
    SweepError
        While it sweeps: values that are not finite, linear solvers that fail, stages that are not
        found again.  Vectors come upon them as well, and name the function.

    Source
    ------
    docs/mathematics.md, section 1.
    """

    name, why = "compiled", ""

    def __init__(
        self,
        trajectory: Trajectory,
        request: AdjointRequest,
        carry: Carry | None,
        running: RunningCosts | None,
    ) -> None:
        self._trajectory = trajectory
        self._request = request
        self._lam, self._mu = new_rows(trajectory, request)
        self._carry, self._running = carry, running
        self._of_modes: dict[tuple[str, int], Carry | None] = {}
        self._values = [0.0] * request.rows

    @property
    def steps(self) -> StepMap:
        """The step map of what is between the windows."""
        return self._steps

    @cached_property
    def _steps(self) -> StepMap:
        return steps_of(self._trajectory)

    def observe(self, number: int) -> None:
        """Add what is observed at a state, and its value."""
        run, observations = self._trajectory, self._request.observed.get(number, ())
        # Point costs in C read the arrays of the whole run by number of the state. Where states
        # are recomputed, parameters change, or vectors belong to a grid, the general way is
        # taken.
        direct = not (run.crossings or run.thinned) and run.problem.stencil is None
        for seen in observations:
            row, weight, scalar, residual_weights = seen
            functions: Any = in_c(scalar, 0, 3) if direct and residual_weights is None else None
            if functions is not None:
                times, _, states, _ = run.arrays
                point = run.p, times, states, number
                value = add_point(functions, weight, *point, self._lam[row], self._mu[row])
                if value is None:
                    raise SweepError
            else:
                point = (float(run.times[number]), run.stored[number], run.parameters(number))
                seen.add(point, (self._lam[row], self._mu[row]))
                # Rows of a Jacobian (weights of residuals) are no costs and have no value.
                value = weight * scalar.value(*point) if residual_weights is None else 0.0
                # the time of a state at an event depends on state and parameters: dJ/dt goes to
                # omega
                if number in run.moving:
                    self.steps.add_time(row, seen.slope(point))
            self._values[row] += value

    def back(self, first: int, last: int) -> None:
        """Carry the rows over a window, from state number ``last`` to ``first``."""
        # A window of a thinned run has states of its own, numbered from its first one.
        offset, carry = 0, self._carry
        if self._trajectory.thinned:
            offset, carry = first, self._of_window(first, last)
        elif carry is None:
            carry = self._of_mode(first)
        rows, observed = (self._lam, self._mu, self._running), self._request.observed
        # From one observed state back to the one before it: lam is continuous between them and
        # jumps at each by what is observed.
        for number in sorted(observed, reverse=True):
            if first < number < last:
                if not carry(number - offset, last - offset, *rows):
                    raise SweepError
                self.observe(number)
                last = number
        if first < last and not carry(first - offset, last - offset, *rows):
            raise SweepError
        if first in observed:
            self.observe(first)

    def _of_mode(self, first: int) -> Carry:
        """Return what carries rows over the steps of the mode, and with the parameters, there."""
        run = self._trajectory
        record = run.records[first]
        # Parameters may change at events; the array of a record lives as long as the run.
        key = (record.mode, id(record.p))
        if key not in self._of_modes:
            equations = run.problem.modes.get(record.mode, run.problem)
            self._of_modes[key] = carrier(run, equations, record.p, self._request.rows)
        carry = self._of_modes[key]
        if carry is None:
            raise SweepError
        return carry

    def _of_window(self, first: int, last: int) -> Carry:
        """Return what carries rows over a window by itself, whose states are not those of all."""
        window = window_of(self._trajectory, first, last)
        carry = carrier(window, window.problem, window.p, self._request.rows)
        if carry is None:
            raise SweepError
        return carry

    def between(self, number: int) -> None:
        """Carry the rows over one step, or jump, that is in no window."""
        step = self._trajectory.step(number)
        self.steps.adjoint(step, self._lam, self._mu, self._request.densities)
        self.observe(number)

    def values(self) -> list[float]:
        """Return the values of the costs, which were come by."""
        return self._values

    def rows(self) -> Rows:
        """Return the rows as vectors."""
        return self._lam, self._mu

    def close(self) -> None:
        """Add the running costs to the values, and look at what the sweep has come to.

        Raises
        ------
        SweepError
            A value is not finite or, after events, a row: the sweeps in C look at their own.
        """
        if self._running is not None:
            pairs = zip(self._values, self._running[3].tolist(), strict=True)
            self._values = [a + b for a, b in pairs]
        finite = all(map(math.isfinite, self._values))
        if finite and self._trajectory.crossings:
            finite = all(is_finite(vec) for vec in chain(self._lam, self._mu))
        if not finite:
            raise SweepError

    def matrices(self) -> tuple[Array, Array]:
        """Return the rows as arrays [M, n] and [M, m]."""
        return matrices_of(self.rows())


def open_sweep(trajectory: Trajectory, request: AdjointRequest) -> CompiledSweep | str:
    """Return the sweep in C, or in words why there is none."""
    problem, rows, running = trajectory.problem, request.rows, None
    if request.continuous:
        running = running_costs(problem, request.densities)
        if trajectory.crossings or running is None:
            return "running costs that are not in C, or through events"
    if problem.stencil is not None and (trajectory.crossings or request.start is not None):
        return "a run through events on a grid" if trajectory.crossings else "rows on a grid"
    asked = trajectory  # whether there is one; windows have their own, and states of their own
    if trajectory.thinned:
        asked = replace(trajectory, stored=[trajectory.stored[trajectory.n_steps]])
    if not trajectory.crossings:
        equations = problem.modes[trajectory.first_mode] if problem.modes else problem
        carry = carrier(asked, equations, trajectory.p, rows)
        if carry is None:
            return _not_in_c(trajectory, [equations], rows)
        return CompiledSweep(trajectory, request, carry, running)
    equations = list((problem.modes or {"": problem}).values())
    if any(carrier(asked, mode, trajectory.p, rows) is None for mode in equations):
        return _not_in_c(trajectory, equations, rows)
    return CompiledSweep(trajectory, request, None, running)


def running_costs(problem: Problem, rows: Sequence[Densities]) -> RunningCosts | None:
    """Return the densities of each row: where they start, weights, functions, values, and room.

    None if one of them, or a gradient, is no C function.  A function is its address and that of its
    user data, both 0 for a gradient that is zero; the values [rows] are to be added to.
    """
    densities = [weighted for row in rows for weighted in row]
    functions = [in_c(density, 0, 3) for _, density in densities]
    if None in functions:
        return None
    return (
        np.cumsum([0, *(len(row) for row in rows)]),
        np.array([weight for weight, _ in densities]),
        np.array(functions, dtype=np.uintp).reshape(-1, 6),
        np.zeros(len(rows)),
        np.empty(max(problem.size, problem.n_parameters)),
    )


def _not_in_c(trajectory: Trajectory, equations: Sequence[Problem], rows: int) -> str:
    """Return why rows cannot be carried over steps of these equations in C."""
    method = trajectory.stepping.resolved_method
    if rows > FEW_ROWS and not method.stagewise:
        return f"{rows} rows: {FEW_ROWS} are carried one beside the other"
    names = {"rhs", "jacobian"} - {name for mode in equations for name in mode.native}
    if names and trajectory.problem.stencil is None:
        return f"{' and '.join(sorted(names))} not in C"
    where = "of these equations" if trajectory.problem.stencil is None else "on a grid"
    return f"steps of {method.name} {where}"
