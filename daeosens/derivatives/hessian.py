"""Second-order discrete adjoints: products with the Hessian of a cost, forward over adjoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.cost import Cost, add_curvature, points_by_step
from daeosens.costs.objective import Objective, check_objective
from daeosens.derivatives.adjoint import Gradient, Rows, evaluate_cost, shared
from daeosens.derivatives.engines.array.hessian import (
    FirstOrder,
    block_second_sweep,
    carry_window,
)
from daeosens.derivatives.engines.choice import (
    Sweep,
    choose_sweep,
    refuse_compiled,
    wants_compiled,
)
from daeosens.derivatives.engines.compiled.hessian import (
    NativeFirst,
    carry_piece,
    native_second_sweep,
)
from daeosens.derivatives.engines.compiled.tangent import (
    Direction,
    check_directions,
    no_linear_steps,
)
from daeosens.derivatives.engines.transposes import refuse_one_way_solver
from daeosens.derivatives.kinks import warn_of_kinks
from daeosens.derivatives.preflight import evaluate_at_events
from daeosens.derivatives.solver_error import solver_error
from daeosens.derivatives.tangent import Tangent, admit_direction, tangents
from daeosens.derivatives.windows import window_of, windows
from daeosens.methods.events.event_step import HybridStep
from daeosens.methods.remainders import Remainders, remainders
from daeosens.methods.step import Adjoint, SecondOrder, Weights
from daeosens.methods.step_map import StepMap
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, gather, read, write
from daeosens.problem.callback_guard import QUIET, unwrapped
from daeosens.timestepping.dense_ts import directed_steps
from daeosens.timestepping.trajectory.trajectory import (
    STAGE_MEMORY,
    Trajectory,
    check_trajectory,
    steps_of,
)


@dataclass(frozen=True, eq=False, repr=False)
class HessianProduct(Rows):
    """The Hessian of one cost times one direction.

    Attributes
    ----------
    gradient : Gradient
        Value and gradient, which the sweep gives as well; None for Gauss-Newton.
    u0_vec : Vec [n]
        Rows of the initial state.
    p_vec : Vec [m]
        Rows of the parameters.
    engine : str
        What swept: "compiled", "steps" or "block"; empty for other methods.
    solver_error : float
        As of ``Gradient``.
    shared_p : array [m] or None
        As of ``Gradient``.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, hessian_product, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> product = hessian_product(run, Terminal(lambda t, u, p: u[0]), dp=[1.0])
    >>> product.u0.round(5), product.p.round(5), product.gradient.p.round(5)
    (array([-0.73576]), array([1.47152]), array([-0.73576]))
    """

    gradient: Gradient | None
    u0_vec: PETSc.Vec
    p_vec: PETSc.Vec
    engine: str = ""
    solver_error: float = 0.0
    shared_p: Array | None = None

    def __repr__(self) -> str:
        """Return the sizes; not collective."""
        return f"HessianProduct(u0: [{self.u0_vec.size}], p: [{self.p_vec.size}])"


@dataclass
class Memory:
    """What products with one Hessian have in common: value, gradient, adjoints of all stages.

    One vector for each stage of each step, if they take no more than ``STAGE_MEMORY``; for sweeps
    in blocks the Jacobians as well, if the run fits into one block, and factors for those in C.
    """

    gradient: Gradient | None = None
    weights: Weights | None = None
    block: FirstOrder | None = None
    native: NativeFirst | None = None
    multipliers: dict[int, float] = field(default_factory=dict[int, float])

    @property
    def value(self) -> float | None:
        """The cost, once known."""
        return None if self.gradient is None else self.gradient.value

    def adjoint(self, trajectory: Trajectory) -> Adjoint:
        """Return the adjoint to carry, or the one that is known."""
        problem = trajectory.problem
        if self.gradient is not None and self.weights is not None:
            return Adjoint(
                self.gradient.u0_vec,
                self.gradient.p_vec,
                self.weights,
                self.multipliers,
                known=True,
            )
        size = 8 * trajectory.n_stages * problem.size / problem.comm.size
        weights: Weights | None = {} if size <= STAGE_MEMORY else None
        return Adjoint(problem.create_state(), problem.create_parameters(), weights)

    def complete(self, gradient: Gradient, first: Adjoint) -> None:
        """Remember the outcome of a sweep."""
        self.gradient, self.weights = gradient, first.weights
        self.multipliers = first.multipliers


def hessian_product(
    trajectory: Trajectory,
    objective: Objective,
    du0: npt.ArrayLike | PETSc.Vec | None = None,
    dp: npt.ArrayLike | PETSc.Vec | None = None,
    engine: Sweep = "auto",
) -> HessianProduct:
    """Return the Hessian of a cost in (u0, p) times the direction (du0, dp).

    The second derivative of the steps that were taken, with their sizes held fixed; exact to
    rounding for every method, form and cost.  (PETSc 3.26's own second-order adjoint is wrong for
    most methods and is not used.)  Collective on ``trajectory.problem.comm``.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``; its steps must hit ``objective.times``.
    objective : Objective
        The cost.
    du0 : array or Vec [n], optional
        Direction in the initial state; zero by default.
    dp : array or Vec [m], optional
        Direction in the parameters; zero by default.
    engine : "auto", "steps", "block" or "compiled"
        As for ``adjoint``.

    Returns
    -------
    HessianProduct

    Raises
    ------
    InputError
        An observation time that no step hits; shapes that do not match; an unknown engine.
    UnsupportedError
        Second derivatives that are neither supplied nor to be had; names them.  "block" where it
        cannot be; names the reason.

    Source
    ------
    docs/mathematics.md, section 1: the tangent of the adjoint sweep.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> hessian_product(run, Terminal(lambda t, u, p: u[0]), dp=[1.0]).p.round(5)
    array([1.47152])
    """
    return hessian_products(trajectory, objective, [(du0, dp)], engine=engine)[0]


@QUIET
@unwrapped
def hessian_products(
    trajectory: Trajectory,
    objective: Objective,
    directions: Sequence[Direction],
    memory: Memory | None = None,
    engine: Sweep = "auto",
) -> list[HessianProduct]:
    """Return the Hessian of a cost times several directions (du0, dp), in one sweep.

    They share the evaluations of Jacobians and, for theta methods, one factorisation per step; in
    blocks all of them are carried at once, as products of dense matrices.  Collective.  Parameters,
    errors and source as for ``hessian_product``; ``memory`` keeps what later calls with the same
    trajectory and cost need not compute again.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> unit = [([1.0], None), (None, [1.0])]
    >>> products = hessian_products(run, Terminal(lambda t, u, p: u[0]), unit)
    >>> [each.p.round(5).tolist() for each in products]
    [[-0.73576], [1.47152]]
    """
    check_trajectory(trajectory)
    agree(
        trajectory.problem.comm,
        "hessian_products",
        objective=objective,
        directions=directions,
        engine=engine,
    )
    check_directions(directions)
    check_objective(objective)
    cost = objective.lower(trajectory.problem, float(trajectory.times[-1]))
    memory = Memory() if memory is None else memory
    if memory.gradient is None:  # the first product with this Hessian
        warn_of_kinks(trajectory, cost)
    if engine == "compiled":
        running = "running costs" if cost.densities else ""
        refuse_compiled(running or no_linear_steps(trajectory))
    if wants_compiled(trajectory, engine, len(directions)):
        found = _in_c(trajectory, cost, directions, memory)
        if found is not None:
            return found
    nothing = trajectory.problem.create_parameters
    admitted = [admit_direction(trajectory, *direction) for direction in directions]
    complete = [(du, nothing() if dp is None else dp) for du, dp in admitted]
    run = (trajectory, cost, complete, memory)
    chosen = choose_sweep(trajectory, engine, len(directions))
    if chosen == "block" and not (trajectory.crossings or trajectory.thinned):
        return _in_blocks(*run)
    with remainders() as left:
        return _by_parts(*run, left, chosen)


def _in_c(
    trajectory: Trajectory, cost: Cost, directions: Sequence[Direction], memory: Memory
) -> list[HessianProduct] | None:
    found = native_second_sweep(trajectory, cost, directions, memory.native)
    if found is None:
        return None
    sweep, memory.native = found
    gradient, problem = (memory.native.lam, memory.native.mu), trajectory.problem
    rows = [
        sweep.vectors(k, problem.state, problem.parameter) for k in range(1, 1 + len(directions))
    ]
    return _products(trajectory, cost, memory, gradient, rows, "compiled")


def _in_blocks(
    trajectory: Trajectory,
    cost: Cost,
    directions: Sequence[tuple[PETSc.Vec, PETSc.Vec]],
    memory: Memory,
) -> list[HessianProduct]:
    window = window_of(trajectory, 0, trajectory.n_steps)
    found = block_second_sweep(window, cost, *_rows(directions), memory.block)
    memory.block = found.first
    gradient = _vectors(trajectory, found.lam, found.mu)
    dots = zip(found.lam_dot, found.mu_dot, strict=True)
    rows = [_vectors(trajectory, *each) for each in dots]
    return _products(trajectory, cost, memory, gradient, rows, "block")


def _rows(directions: Sequence[tuple[PETSc.Vec, PETSc.Vec]]) -> tuple[Array, Array]:
    """Return du [D, n] and dp [D, m]."""
    du, dp = zip(*directions, strict=True)
    return np.array([read(vec) for vec in du]), np.array([read(vec) for vec in dp])


def _products(
    trajectory: Trajectory,
    cost: Cost,
    memory: Memory,
    gradient: tuple[PETSc.Vec, PETSc.Vec],
    rows: Sequence[tuple[PETSc.Vec, PETSc.Vec]],
    engine: str,
) -> list[HessianProduct]:
    value = memory.value
    if value is None:
        value = evaluate_cost(trajectory, cost)
    error = solver_error(trajectory, 0.0)  # such sweeps are on one rank
    memory.gradient = known = Gradient(value, *gradient, engine, solver_error=error)
    return [HessianProduct(known, *each, engine, error) for each in rows]


def _vectors(trajectory: Trajectory, by_u0: Array, by_p: Array) -> tuple[PETSc.Vec, PETSc.Vec]:
    """Return the numbers [n] and [m] of a sweep as vectors; those sweeps are serial."""
    problem = trajectory.problem
    vectors = problem.create_state(), problem.create_parameters()
    for vec, values in zip(vectors, (by_u0, by_p), strict=True):
        write(vec, values)
    return vectors


def _by_parts(
    trajectory: Trajectory,
    cost: Cost,
    directions: Sequence[tuple[PETSc.Vec, PETSc.Vec]],
    memory: Memory,
    left: Remainders,
    engine: Sweep,
) -> list[HessianProduct]:
    problem, states = trajectory.problem, trajectory.states
    steps = steps_of(trajectory)
    points = points_by_step(trajectory.index, [cost])
    refuse_one_way_solver(trajectory)
    if trajectory.crossings and memory.gradient is None:
        evaluate_at_events(trajectory, points, cost.densities)
    along = tangents(trajectory, directions, engine)
    parts = _parts(trajectory, steps, cost, engine)
    first = memory.adjoint(trajectory)
    if any(smooth for *_, smooth in parts):  # those keep no adjoints of stages
        first = Adjoint(problem.create_state(), problem.create_parameters())
    dots = [(problem.create_state(), problem.create_parameters()) for _ in directions]
    value = memory.value
    if value is None:
        value = evaluate_cost(trajectory, cost)
    as_seen = _Seen(trajectory)

    def seed(n: int) -> None:
        time = float(trajectory.times[n])
        for seen in points.get(n, ()):
            weight, scalar = seen.weight, seen.scalar
            point = (time, states[n], trajectory.parameters(n))
            if not first.known:
                seen.add(point, (first.lam, first.mu))
                if n in trajectory.moving:
                    steps.add_time(0, seen.slope(point))
            for k, (each, out) in enumerate(zip(along, dots, strict=True), start=1):
                dp_vec = each.parameters[n]
                if n in trajectory.moving:
                    direction = (each.states[n], as_seen(dp_vec), dp_vec, float(each.times[n]))
                    steps.add_time(k, add_curvature(scalar, weight, point, direction, out))
                else:
                    scalar.add_hessian(weight, point, (each.states[n], as_seen(dp_vec)), out)

    seed(trajectory.n_steps)
    for start, end, smooth in reversed(parts):
        if smooth and not first.known:
            inside = {n - start: points[n] for n in points if start < n < end}
            tangent = [(each.states[start], each.parameters[start]) for each in along]
            window = window_of(trajectory, start, end)
            carry = carry_window if engine == "block" else carry_piece
            if carry(window, inside, tangent, (first.lam, first.mu), dots):
                if isinstance(steps, HybridStep):
                    steps.pass_by(start)
                seed(start)
                continue
        for n in range(end, start, -1):
            steps.second_order(
                trajectory.step(n - 1),
                first,
                [_on_step(each, n, as_seen, out) for each, out in zip(along, dots, strict=True)],
                cost.densities,
            )
            seed(n - 1)
    for vec in (vec for each in along for vec in each.states):
        vec.destroy()
    error = solver_error(trajectory, left.total)
    gradient = Gradient(value, first.lam, first.mu, engine, shared(problem, first.mu), error)
    memory.complete(gradient, first)
    return [HessianProduct(gradient, *dot, engine, error, shared(problem, dot[1])) for dot in dots]


def _parts(
    trajectory: Trajectory, steps: StepMap, cost: Cost, engine: Sweep
) -> list[tuple[int, int, bool]]:
    """Return the numbers of the first and the last state of parts, and whether they go at once."""
    events = isinstance(steps, HybridStep)
    if not (events or trajectory.thinned) or cost.densities:
        return [(0, trajectory.n_steps, False)]
    modes = trajectory.problem.modes or {"": trajectory.problem}
    method = trajectory.stepping.resolved_method
    compiled = any(directed_steps(mode, method) is not None for mode in modes.values())
    quick = compiled or engine == "block"
    return [
        (first, last, smooth and quick and last > first + 1)
        for first, last, smooth in windows(
            trajectory, steps if events else None, (), trajectory.n_steps
        )
    ]


class _Seen:
    """Directions in the parameters as callbacks see them; the last one is kept."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._as_field = trajectory.problem.field_parameter
        self._known: dict[int, Any] = {}

    def __call__(self, dp: PETSc.Vec) -> Any:
        if self._as_field:
            return dp
        if dp.handle not in self._known:
            self._known[dp.handle] = gather(dp)
        return self._known[dp.handle]


def _on_step(along: Tangent, n: int, seen: _Seen, out: tuple[PETSc.Vec, PETSc.Vec]) -> SecondOrder:
    """Return a direction on the step that ends in the n-th state."""
    dp, (dt, dt_next) = along.parameters[n - 1], along.times[n - 1 : n + 1].tolist()
    du, du_next = along.states[n - 1], along.states[n]
    return SecondOrder(du, du_next, seen(dp), dp, *out, dt, dt_next - dt)
