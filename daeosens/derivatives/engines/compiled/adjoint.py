"""Adjoint sweeps of C functions: no Python between the states that costs look at."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Densities
from daeosens.costs.scalar import in_c
from daeosens.derivatives.engines.arrays.step_blocks import dense_mass
from daeosens.derivatives.engines.limits import FEW_ROWS, TINY
from daeosens.derivatives.engines.request import (
    AdjointRequest,
    Rows,
    SweepError,
    matrices_of,
    new_rows,
    window_of,
)
from daeosens.methods.grid_steps import GridStepAdjoint
from daeosens.methods.method import Method
from daeosens.methods.step import StepMap
from daeosens.petsc._kernels import DenseSteps, add_point
from daeosens.petsc.threads import one_blas_thread
from daeosens.petsc.vectors import Array, is_finite
from daeosens.problem.problem import Problem, ProblemCache
from daeosens.timestepping.dense_ts import dense_steps
from daeosens.timestepping.trajectory.trajectory import Trajectory, steps_of
from daeosens.tracing.batched_model import FactoredBatch

if TYPE_CHECKING:
    from daeosens.petsc._kernels.sweeps.point_costs import RunningCosts


Pull: TypeAlias = Callable[[int, int, PETSc.Vec, PETSc.Vec], bool]
"""Carries lam and mu back from the state of the second number to that of the first."""


Carry: TypeAlias = Callable[..., bool]
"""Carries all rows back by (first, last, lam, mu, running costs)."""


UNDIVIDED = 9216, 2**18
"""Below so many multiplications OpenBLAS leaves a product with a vector, and with a matrix, to one
thread: to say so takes longer than the product."""


_CARRIERS: ProblemCache[dict[str, Callable[..., bool] | None]] = ProblemCache(dict)
"""What carries few rows back over steps of the method of a name, or None."""


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


def carrier(trajectory: Trajectory, problem: Problem, p: Any, rows: int) -> Carry | None:
    """Return what carries rows back, or None.

    Over smooth steps of the trajectory that were taken with these equations and parameters.
    """
    if problem.modes:
        return None
    method = trajectory.stepping.resolved_method
    if method.stagewise:
        dense = dense_steps(problem, method, p)
        if dense is None or not dense.transposes:
            return None
        # stages of small dense systems: all rows of a step share its factors
        return partial(dense.carry_back, *trajectory.arrays)
    if problem.stencil is not None:
        passes = problem is trajectory.problem and not (
            problem.breakpoints or problem.field_parameter
        )
        return _in_passes(trajectory, method) if passes else None
    carriers = _CARRIERS.of(problem)
    if method.name not in carriers:
        carriers[method.name] = _few_rows(problem, method)
    carry = carriers[method.name]
    return None if rows > FEW_ROWS or carry is None else partial(carry, p, *trajectory.arrays)


def _few_rows(problem: Problem, method: Method) -> Callable[..., bool] | None:
    """Return what carries few rows back over steps of a method, or None."""
    batch, breakpoints = _factored(problem, method), np.array(problem.breakpoints, dtype=float)
    functions, stages = _functions(problem, method), method.recurrence
    if stages is None or (batch is None and not functions):
        return None
    coefficients = stages.a, stages.b, stages.c, stages.b
    # the parameters of a run are filled in at each sweep (``hold``)
    mass, p = dense_mass(problem), np.zeros(problem.n_parameters)
    if batch is not None:
        # products by factors: only f itself is called as a whole
        functions = {"rhs": problem.native["rhs"].where}
    arguments = problem.size, coefficients, method.order, functions, None, breakpoints, p, mass
    if batch is not None:
        return partial(_carry_factors, batch, DenseSteps(*arguments), len(stages.b))
    make = partial(DenseSteps, *arguments)
    return partial(_carry_steps, make, [make()])


def _carry_steps(
    make: Callable[[], DenseSteps], kept: list[DenseSteps], p: Array, *run_and_rows: Any
) -> bool:
    """Carry rows back with the parameters of a run; the steps are those of many runs."""
    kept[0].hold(p)
    if kept[0].carry_back(*run_and_rows):
        return True
    kept[0] = make()  # steps remember what was not finite
    return False


def _carry_factors(
    batch: FactoredBatch,
    whole: DenseSteps,
    n_stages: int,
    p: Array,
    times: Array,
    sizes: Array,
    states: Array,
    stages: Array,
    first: int,
    last: int,
    *rows: Any,
) -> bool:
    """Carry few rows back; OpenBLAS would divide products that take less time than its threads."""
    by_vector, by_matrix = UNDIVIDED
    points = (last - first) * n_stages
    whole.hold(p)
    # Only products that OpenBLAS would divide are worth the calls that keep it from that.
    divided = batch.largest >= by_vector or batch.largest * points > by_matrix
    with one_blas_thread() if divided else nullcontext():
        run = times, sizes, states, stages, first, last
        return batch.steps.carry_back(whole, *run, *rows)


def _factored(problem: Problem, method: Method) -> FactoredBatch | None:
    """Return a model of large matrices by its factors; None where whole functions are quicker."""
    batch = problem.batch
    if not isinstance(batch, FactoredBatch) or "rhs" not in problem.native:
        return None
    return batch if method.explicit and problem.size > TINY else None


def _in_passes(trajectory: Trajectory, method: Method) -> Callable[..., bool] | None:
    """Return what carries rows back over steps of a grid by passes over its vectors, or None."""
    of_method = _of_stages if method.explicit else _of_ends
    pull = of_method(trajectory, method)
    if pull is None:
        return None

    def carry(
        first: int,
        last: int,
        lam: Sequence[PETSc.Vec],
        mu: Sequence[PETSc.Vec],
        running: RunningCosts | None,
    ) -> bool:
        if running is not None:
            return False
        pairs = zip(lam, mu, strict=True)
        finite = all(pull(first, last, lam_k, mu_k) for lam_k, mu_k in pairs)
        return finite and all(is_finite(vec) for vec in (*lam, *mu))

    return carry


def _of_stages(trajectory: Trajectory, method: Method) -> Pull | None:
    """Return the passes of explicit steps whose stages were kept, or None."""
    kept = trajectory.stages
    if len(kept) < trajectory.n_steps:
        return None
    if not method.chain:
        return None
    passes = GridStepAdjoint(trajectory.problem, *method.chain)
    times, sizes = trajectory.times.tolist(), trajectory.step_sizes.tolist()
    stages = [kept[n] for n in range(trajectory.n_steps)]

    def pull(first: int, last: int, lam: PETSc.Vec, mu: PETSc.Vec) -> bool:
        part = slice(first, last)
        passes.pull(times[part], sizes[part], stages[part], trajectory.p, lam, mu)
        return True

    return pull


def _of_ends(trajectory: Trajectory, method: Method) -> Pull | None:
    """Return the passes of theta steps, or None."""
    passes = method.grid_passes(trajectory.problem, trajectory.stepping.options)
    if passes is None:
        return None
    times, sizes = trajectory.times.tolist(), trajectory.step_sizes.tolist()

    def pull(first: int, last: int, lam: PETSc.Vec, mu: PETSc.Vec) -> bool:
        part, states = slice(first, last), trajectory.stored[first : last + 1]
        return passes.pull(times[part], sizes[part], states, trajectory.p, lam, mu)

    return pull


def _functions(problem: Problem, method: Method) -> dict[str, tuple[int, int]]:
    """Return addresses and user data of what the sweep calls; nothing if one is not in C."""
    native = problem.native
    needed = set(method.functions)
    if "pull" in native:
        # f_u^T w and f_p^T w in one product, so neither matrix is needed explicitly
        needed.add("pull")
    else:
        needed |= {"jacobian", "jacobian_p"} if problem.n_parameters else {"jacobian"}
    functions = {name: native[name] for name in needed if name in native}
    patterns = any(function.pattern is not None for function in functions.values())
    if len(functions) < len(needed) or patterns or method.stagewise or not problem.constant_mass:
        return {}
    return {name: function.where for name, function in functions.items()}
