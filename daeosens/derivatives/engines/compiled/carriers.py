"""What carries few adjoint rows back over smooth steps in C: by stages, by factors, by passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.derivatives.engines.arrays.step_blocks import dense_mass
from daeosens.derivatives.engines.limits import FEW_ROWS, TINY
from daeosens.methods.grid_steps import GridStepAdjoint
from daeosens.methods.method import Method
from daeosens.petsc._kernels import DenseSteps
from daeosens.petsc.threads import one_blas_thread
from daeosens.petsc.vectors import Array, is_finite
from daeosens.problem.problem import Problem, ProblemCache
from daeosens.timestepping.dense_ts import dense_steps
from daeosens.timestepping.trajectory.trajectory import Trajectory
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
