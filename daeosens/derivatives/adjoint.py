"""Discrete adjoints: the gradient of costs by one sweep back over the accepted steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import overload

from petsc4py import PETSc

from daeosens.costs.cost import Cost, points_by_step, value_at_points
from daeosens.costs.objective import Objective, check_objective
from daeosens.derivatives.engines.array.segments import block_sweep
from daeosens.derivatives.engines.choice import Engine, check_engine, choose_engine
from daeosens.derivatives.engines.compiled.adjoint import (
    native_sweep,
    not_compiled,
    refuse_compiled,
    wants_native_sweep,
)
from daeosens.derivatives.engines.compiled.segments import sweep_pieces_in_c
from daeosens.derivatives.engines.tsadjoint import sweep as tsadjoint_sweep
from daeosens.derivatives.faults import named_faults
from daeosens.derivatives.kinks import warn_of_jumps
from daeosens.derivatives.solver_error import solver_error
from daeosens.errors import InputError
from daeosens.methods.remainders import remainders
from daeosens.methods.step_map import StepMap
from daeosens.petsc.fast_dataclass import quickly_made
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, finite_vec, gather, write
from daeosens.problem.callback_guard import QUIET, unwrapped
from daeosens.timestepping.trajectory.trajectory import Trajectory, check_trajectory, steps_of


@quickly_made
@dataclass(frozen=True, eq=False, repr=False)
class Gradient:
    """Value and gradient of one cost.

    Attributes
    ----------
    value : float
        The cost.
    u0_vec : Vec [n]
        Derivative with respect to the initial state.
    p_vec : Vec [m]
        Derivative with respect to the parameters.
    engine : str
        What swept: "compiled", "steps", "block" or "tsadjoint"; empty for other methods.
    shared_p : array [m] or None
        What every rank has of ``p_vec``; None where it would have to be gathered.
    solver_error : float
        Estimate of the error that Newton's method and linear solvers left, relative to the size of
        the derivatives: their remainders, added up over the steps.  A ``SolverErrorWarning`` tells
        of more than 1e-5.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, adjoint, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> gradient = adjoint(run, Terminal(lambda t, u, p: u[0]))
    >>> gradient.u0.round(5), gradient.p.round(5)
    (array([0.36788]), array([-0.73576]))
    """

    value: float
    u0_vec: PETSc.Vec
    p_vec: PETSc.Vec
    engine: str = ""
    shared_p: Array | None = field(default=None, repr=False)
    solver_error: float = 0.0

    def __repr__(self) -> str:
        """Return the value and the sizes; not collective."""
        sizes = f"u0: [{self.u0_vec.size}], p: [{self.p_vec.size}]"
        return f"Gradient(value={self.value:.9g}, {sizes})"

    @property
    def u0(self) -> Array:
        """Derivative with respect to the initial state, gathered [n].  Collective."""
        return gather(self.u0_vec)

    @property
    def p(self) -> Array:
        """Derivative with respect to the parameters [m].

        Of ``adjoint`` every rank has all of them, and may read them alone; those of a distributed
        field, and of other functions, are gathered: collective then.
        """
        return gather(self.p_vec) if self.shared_p is None else self.shared_p.copy()


@overload
def adjoint(trajectory: Trajectory, objective: Objective, engine: Engine = "auto") -> Gradient: ...
@overload
def adjoint(
    trajectory: Trajectory, objective: Sequence[Objective], engine: Engine = "auto"
) -> list[Gradient]: ...
@QUIET
@unwrapped
def adjoint(
    trajectory: Trajectory,
    objective: Objective | Sequence[Objective],
    engine: Engine = "auto",
) -> Gradient | list[Gradient]:
    """Return the gradient of one or several costs by the discrete adjoint.

    The derivative is that of the steps that were taken, with their sizes held fixed; it is exact to
    rounding for the state that was computed.  Collective on ``trajectory.problem.comm``.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``; its steps must hit ``objective.times``.
    objective : Objective or sequence of Objective
        Several costs share the evaluations of Jacobians.
    engine : "auto", "steps", "block", "compiled" or "tsadjoint"
        "steps": this package's step linearisations, for every method and form, in C where all
        functions are.  "compiled": those in C, or an error.  "block": the same for many steps and
        all costs at once, on one processor.  "auto": the quickest of these.
        "tsadjoint": PETSc's TSAdjoint, refused where PETSc 3.26 is known to be wrong; uses what
        ``solve(..., checkpoint="memory" or "disk")`` recorded, or repeats the run.

    Returns
    -------
    Gradient or list of Gradient

    Raises
    ------
    InputError
        An observation time that no step hits; shapes that do not match.
    UnsupportedError
        The engine cannot be exact here; names the alternative.
    SolveError
        The gradient, or a value on the way to it, is not finite.

    Source
    ------
    docs/mathematics.md, sections 1 and 2; Zhang, Constantinescu, Smith, SIAM J. Sci. Comput. 44(1),
    2022 (TSAdjoint).

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> adjoint(run, Terminal(lambda t, u, p: u[0])).p.round(6)
    array([-0.735759])
    """
    check_trajectory(trajectory)
    several = isinstance(objective, Iterable)
    objectives = tuple(objective) if several else (objective,)
    agree(trajectory.problem.comm, "adjoint", objective=objectives, engine=engine)
    check_engine(engine)
    if not objectives:
        raise InputError("no objective given", expected="at least one")
    for one in objectives:
        check_objective(one)
    problem = trajectory.problem
    final_time = float(trajectory.times[-1])
    costs = [one.lower(problem, final_time) for one in objectives]
    if engine == "compiled":
        refuse_compiled(not_compiled(trajectory, costs))
    with remainders() as left:
        found = _swept_in_c(trajectory, costs, engine)
        chosen = "compiled" if found else choose_engine(trajectory, engine)
        if found:
            values, lam, mu = found
        else:
            steps = _steps_if_needed(trajectory, costs, chosen)
            values = [evaluate_cost(trajectory, cost, steps) for cost in costs]
            lam, mu = _sweep(trajectory, costs, chosen, steps)
    error = solver_error(trajectory, left.total)
    warn_of_jumps(trajectory, costs)
    shares = problem.comm.size > 1 and not problem.field_parameter  # a few numbers, here together
    gradients = [
        Gradient(value, by_u0, by_p, chosen, gather(by_p) if shares else None, error)
        for value, by_u0, by_p in zip(values, lam, mu, strict=True)
    ]
    return gradients if several else gradients[0]


def _swept_in_c(
    trajectory: Trajectory, costs: Sequence[Cost], engine: str
) -> tuple[list[float], list[PETSc.Vec], list[PETSc.Vec]] | None:
    """Return the values, lam_0 and mu of the costs; None if not all of it is in C."""
    if not wants_native_sweep(trajectory, engine, len(costs)):
        return None
    found = (sweep_pieces_in_c if trajectory.crossings else native_sweep)(trajectory, costs)
    if found is None:
        return None
    lam, mu, values = found
    return values, lam, mu


def _steps_if_needed(
    trajectory: Trajectory, costs: Sequence[Cost], engine: Engine
) -> StepMap | None:
    """Return the step map for a sweep by steps, and for running costs."""
    needed = engine == "steps" or any(cost.densities for cost in costs)
    return steps_of(trajectory) if needed else None


def _sweep(
    trajectory: Trajectory, costs: Sequence[Cost], engine: Engine, steps: StepMap | None
) -> tuple[list[PETSc.Vec], list[PETSc.Vec]]:
    """Return lam_0 and mu for each cost."""
    if engine == "block":
        problem = trajectory.problem
        by_u0, by_p = block_sweep(trajectory, costs)
        lam = [_vec(row, problem.create_state()) for row in by_u0]
        return lam, [_vec(row, problem.create_parameters()) for row in by_p]
    with named_faults(trajectory, back=True):
        if engine == "tsadjoint":
            lam, mu = tsadjoint_sweep(trajectory, costs)
        else:
            assert steps is not None
            lam, mu = steps_sweep(trajectory, costs, steps)
        for name, vecs in (("u0", lam), ("p", mu)):
            for vec in vecs:
                finite_vec(vec, f"the gradient in {name}")
    return lam, mu


def _vec(values: Array, out: PETSc.Vec) -> PETSc.Vec:
    write(out, values)
    return out


@QUIET
@unwrapped
def evaluate(trajectory: Trajectory, objective: Objective) -> float:
    """Return the value of a cost on a trajectory; collective.

    Raises
    ------
    InputError
        An observation time that no step hits.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> round(evaluate(run, Terminal(lambda t, u, p: u[0] ** 2)), 6)
    0.135335
    """
    check_trajectory(trajectory)
    check_objective(objective)
    problem = trajectory.problem
    cost = objective.lower(problem, float(trajectory.times[-1]))
    if not cost.densities:
        return value_at_points(cost, trajectory.point)
    found = _swept_in_c(
        trajectory, [cost], "auto"
    )  # the whole sweep is sooner done than a sum here
    return found[0][0] if found else evaluate_cost(trajectory, cost, steps_of(trajectory))


def evaluate_cost(trajectory: Trajectory, cost: Cost, steps: StepMap | None) -> float:
    """Return the value of a lowered cost; only running costs need the step map."""
    value = value_at_points(cost, trajectory.point)
    if cost.densities:
        assert steps is not None
        for n in range(trajectory.n_steps):
            value += steps.quadrature(trajectory.step(n), cost.densities)
    return float(value)


def steps_sweep(
    trajectory: Trajectory, costs: Sequence[Cost], steps: StepMap
) -> tuple[list[PETSc.Vec], list[PETSc.Vec]]:
    """Sweep back with the step linearisations; return lam_0 and mu for each cost."""
    problem, states = trajectory.problem, trajectory.states
    lam = [problem.create_state() for _ in costs]
    mu = [problem.create_parameters() for _ in costs]
    points = points_by_step(trajectory.index, costs)
    densities = [cost.densities for cost in costs]
    for n in range(trajectory.n_steps, -1, -1):
        for k, weight, scalar in points.get(n, ()):
            point = (float(trajectory.times[n]), states[n], trajectory.parameters(n))
            scalar.add_u(weight, *point, lam[k])
            scalar.add_p(weight, *point, mu[k])
            if n in trajectory.moving:
                steps.add_time(k, weight * scalar.value_t(*point))
        if n:
            steps.adjoint(trajectory.step(n - 1), lam, mu, densities)
    return lam, mu
