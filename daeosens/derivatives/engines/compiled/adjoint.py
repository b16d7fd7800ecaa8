"""Adjoint sweeps of C functions: no Python between the states that costs look at."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.costs.compiled import first_order, running_costs
from daeosens.costs.cost import Cost, Scalar, points_by_step
from daeosens.derivatives.engines.array.step_blocks import dense_mass
from daeosens.derivatives.engines.limits import FEW_ROWS, FEW_UNKNOWNS, TINY
from daeosens.errors import UnsupportedError
from daeosens.methods.method import Method
from daeosens.methods.step_map import Passes, tableau, theta_passes
from daeosens.petsc._kernels import add_point, carry_back
from daeosens.petsc.threads import one_blas_thread
from daeosens.petsc.vectors import Array, is_finite, read, write
from daeosens.problem.problem import Problem
from daeosens.timestepping.dense_ts import dense_steps
from daeosens.timestepping.trajectory.trajectory import Trajectory
from daeosens.tracing.batched_model import FactoredBatch

if TYPE_CHECKING:
    from daeosens.petsc._kernels.sweeps.sweeps import RunningCosts, Tableau

Pull: TypeAlias = Callable[[int, int, PETSc.Vec, PETSc.Vec], bool]
"""Carries lam and mu back from the state of the second number to that of the first."""

UNDIVIDED = 9216, 2**18
"""Below so many multiplications OpenBLAS leaves a product with a vector, and with a matrix, to one
thread: to say so takes longer than the product."""


def wants_native_sweep(trajectory: Trajectory, engine: str, rows: int) -> bool:
    """Whether a sweep in C is to be tried: asked for, or the quickest where it can be.

    ``rows`` is the number of adjoints, or directions, that are to be carried.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> wants_native_sweep(run, "steps", 1), wants_native_sweep(run, "block", 1)
    (True, False)
    """
    if engine != "auto":
        return engine in ("steps", "compiled")
    problem, method = trajectory.problem, trajectory.stepping.resolved_method
    blocks = problem.batch is not None and problem.batch.at_once and not method.esdirk
    return not blocks or problem.size <= FEW_UNKNOWNS or rows <= FEW_ROWS


def refuse_compiled(reason: str) -> None:
    """Refuse ``engine = "compiled"``, if there is a reason.

    Raises
    ------
    UnsupportedError
        With the reason.
    """
    if reason:
        raise UnsupportedError(
            f'engine = "compiled" for {reason}',
            expected="equations and costs in C, as those of trace(f, ...)",
            remedy='engine="steps"',
        )


def not_compiled(trajectory: Trajectory, costs: Sequence[Cost]) -> str:
    """Return why adjoints of a run cannot be carried back in C; empty if they can."""
    problem, method, rows = trajectory.problem, trajectory.stepping.resolved_method, len(costs)
    densities = any(cost.densities for cost in costs)
    if densities and (trajectory.crossings or running_costs(problem, costs) is None):
        return "running costs that are not in C, or through events"
    equations = (problem.modes or {"": problem}).values()
    if all(carrier(trajectory, each, trajectory.p, rows) is not None for each in equations):
        return "a run through events on a grid" if trajectory.crossings and problem.stencil else ""
    if rows > FEW_ROWS and not method.esdirk:
        return f"{rows} costs: {FEW_ROWS} are carried one beside the other"
    names = {"rhs", "jacobian"} - {name for each in equations for name in each.native}
    if names and problem.stencil is None:
        return f"{' and '.join(sorted(names))} not in C"
    return f"steps of {method.name} of these equations"


def native_sweep(
    trajectory: Trajectory, costs: Sequence[Cost]
) -> tuple[list[PETSc.Vec], list[PETSc.Vec], list[float]] | None:
    """Return the adjoints lam_0 [n] and mu [m] and the value of each cost, or None.

    The numbers of the sweep by steps.  For runs without events of a problem whose
    functions are in C: f and its derivatives, or the products of traced models, those with large
    matrices for many points at once; densities are in C too.  Few costs for explicit and theta
    steps; on grids, without densities, explicit steps whose stages were kept, and theta steps by
    products; ESDIRK steps of small dense systems.  Values that are not finite, linear solvers that
    fail, and stages that are not found again give None too: the sweep in Python comes upon them as
    well, and names the function.

    Source
    ------
    docs/mathematics.md, section 1.
    """
    problem, p = trajectory.problem, trajectory.p
    if trajectory.crossings:
        return None
    equations = problem.modes[trajectory.first_mode] if problem.modes else problem
    carry = carrier(trajectory, equations, p, len(costs))
    continuous = any(cost.densities for cost in costs)
    running = running_costs(problem, costs) if continuous else None
    if carry is None or (continuous and running is None):
        return None
    lam = [problem.create_state() for _ in costs]
    mu = [problem.create_parameters() for _ in costs]
    points = points_by_step(trajectory.index, costs)
    values = [0.0] * len(costs)
    last = trajectory.n_steps
    for number in sorted({0, *points}, reverse=True):
        if number < last and not carry(number, last, lam, mu, running):
            return None
        last = number
        for k, weight, scalar in points.get(number, ()):
            value = _add_at(trajectory, number, weight, scalar, lam[k], mu[k])
            if value is None:
                return None
            values[k] += value
    if running is None:
        return lam, mu, values
    values = [value + integral for value, integral in zip(values, running[3].tolist(), strict=True)]
    return (lam, mu, values) if all(map(math.isfinite, values)) else None


def _add_at(
    trajectory: Trajectory,
    number: int,
    weight: float,
    scalar: Scalar,
    lam: PETSc.Vec,
    mu: PETSc.Vec,
) -> float | None:
    """Add the gradients of a cost of one state; return its value, or None as ``native_sweep``."""
    functions = first_order(scalar)
    if functions is not None and trajectory.problem.stencil is None:
        times, _, states, _ = trajectory.arrays
        return add_point(functions, weight, trajectory.p, times, states, number, lam, mu)
    point = float(trajectory.times[number]), trajectory.states[number], trajectory.p
    scalar.add_u(weight, *point, lam)
    scalar.add_p(weight, *point, mu)
    return weight * scalar.value(*point)


def native_rows(trajectory: Trajectory, last: int) -> tuple[Array, Array] | None:
    """Return d u / d u(0) [n, n] and d u / d p [n, m] of the state number ``last``, or None.

    As ``native_sweep``, with all rows at once, which are too many for grids.
    """
    problem = trajectory.problem
    if trajectory.crossings or problem.stencil is not None:
        return None
    carry = carrier(trajectory, problem, trajectory.p, problem.size)
    if carry is None:
        return None
    lam = [problem.create_state() for _ in range(problem.size)]
    mu = [problem.create_parameters() for _ in lam]
    for unit, row in zip(np.eye(problem.size), lam, strict=True):
        write(row, unit)
    if not carry(0, last, lam, mu, None):
        return None
    return np.array([read(row) for row in lam]), np.array([read(row) for row in mu])


def carrier(
    trajectory: Trajectory, problem: Problem, p: Any, rows: int
) -> Callable[..., bool] | None:
    """Return what carries rows back by (first, last, lam, mu, running costs), or None.

    Over smooth steps of the trajectory that were taken with these equations and parameters.
    """
    if problem.modes:
        return None
    method = trajectory.stepping.resolved_method
    if method.esdirk:
        dense = dense_steps(problem, method, p)
        if dense is None or not dense.transposes:
            return None
        return partial(dense.carry_back, *trajectory.arrays)
    if problem.stencil is not None:
        passes = problem is trajectory.problem and not problem.breakpoints
        return _in_passes(trajectory, method) if passes else None
    if method.name not in problem.sweeps:
        problem.sweeps[method.name] = _few_rows(problem, method)
    carry = problem.sweeps[method.name]
    return None if rows > FEW_ROWS or carry is None else partial(carry, p, *trajectory.arrays)


def _few_rows(problem: Problem, method: Method) -> Callable[..., bool] | None:
    """Return what carries few rows back over steps of a method, or None."""
    batch, breakpoints = _factored(problem, method), np.array(problem.breakpoints, dtype=float)
    if batch is not None:
        return partial(_carry_factors, batch, _contiguous(method.runge_kutta), breakpoints)
    functions = _functions(problem, method)
    if not functions:
        return None
    return partial(carry_back, functions, _coefficients(problem, method), breakpoints)


def _carry_factors(
    batch: FactoredBatch,
    method: Tableau,
    breakpoints: Array,
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
    points = (last - first) * len(method[1])
    divided = batch.largest >= by_vector or batch.largest * points > by_matrix
    with one_blas_thread() if divided else nullcontext():
        run = p, times, sizes, states, stages, first, last
        return batch.steps.carry_back(method, breakpoints, *run, *rows)


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
        found = all(pull(first, last, lam_k, mu_k) for lam_k, mu_k in pairs)
        return found and all(is_finite(vec) for vec in (*lam, *mu))

    return carry


def _of_stages(trajectory: Trajectory, method: Method) -> Pull | None:
    """Return the passes of explicit steps whose stages were kept, or None."""
    kept = trajectory.stages
    if len(kept) < trajectory.n_steps:
        return None
    of_step = tableau(method.runge_kutta).of_step
    if not of_step.chained:
        return None
    passes = Passes(trajectory.problem, *of_step.of_passes)
    times, sizes = trajectory.times.tolist(), trajectory.step_sizes.tolist()
    stages = [kept[n] for n in range(trajectory.n_steps)]

    def pull(first: int, last: int, lam: PETSc.Vec, mu: PETSc.Vec) -> bool:
        part = slice(first, last)
        passes.pull(times[part], sizes[part], stages[part], trajectory.p, lam, mu)
        return True

    return pull


def _of_ends(trajectory: Trajectory, method: Method) -> Pull | None:
    """Return the passes of theta steps, or None."""
    passes = theta_passes(trajectory.problem, method, trajectory.stepping.options)
    if passes is None:
        return None
    times, sizes = trajectory.times.tolist(), trajectory.step_sizes.tolist()

    def pull(first: int, last: int, lam: PETSc.Vec, mu: PETSc.Vec) -> bool:
        part, states = slice(first, last), trajectory.states[first : last + 1]
        return passes.pull(times[part], sizes[part], states, trajectory.p, lam, mu)

    return pull


def _functions(problem: Problem, method: Method) -> dict[str, tuple[int, int]]:
    """Return addresses and user data of what the sweep calls; nothing if one is not in C."""
    native = problem.native
    needed = {"rhs"} if method.explicit else {"rhs", "jacobian"}
    if "pull" in native:
        needed.add("pull")
    else:
        needed |= {"jacobian", "jacobian_p"} if problem.n_parameters else {"jacobian"}
    found = {name: native[name] for name in needed if name in native}
    patterns = any(each.pattern is not None for each in found.values())
    if len(found) < len(needed) or patterns or method.esdirk or not problem.constant_mass:
        return {}
    return {name: (each.address, each.user_data) for name, each in found.items()}


def _coefficients(
    problem: Problem, method: Method
) -> tuple[Array, Array, Array] | tuple[float, bool, Array | None]:
    """Return what ``carry_back`` wants to know of a method."""
    if not method.explicit:
        return method.theta, method.endpoint, dense_mass(problem)
    return _contiguous(method.runge_kutta)


@cache
def _contiguous(runge_kutta: str) -> tuple[Array, Array, Array]:
    """Return a, b and c without last stages that have no weight: their adjoints are zero."""
    of_step = tableau(runge_kutta).of_step
    s = int(np.flatnonzero(of_step.b)[-1]) + 1
    a, b, c = of_step.a[:s, :s], of_step.b[:s], of_step.c[:s]
    return np.ascontiguousarray(a), np.ascontiguousarray(b), np.ascontiguousarray(c)
