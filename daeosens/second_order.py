"""Second-order discrete adjoints: products with the Hessian of a cost, forward over adjoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy.typing as npt
from petsc4py import PETSc

from daeosens.adjoint import Gradient, evaluate_cost
from daeosens.arrays import QUIET, Array, gather, unwrapped
from daeosens.cost import Cost, Squares, When, add_curvature, points_by_step
from daeosens.errors import InputError, UnsupportedError
from daeosens.objective import Objective
from daeosens.steps import Adjoint, SecondOrder
from daeosens.tangent import Tangent, parameter_direction, tangent
from daeosens.trajectory import STAGE_MEMORY, Trajectory, steps_of

Direction: TypeAlias = "tuple[npt.ArrayLike | PETSc.Vec | None, npt.ArrayLike | PETSc.Vec | None]"
"""(du0 [n], dp [m]); None is zero."""

Weights: TypeAlias = "dict[tuple[int, float], list[PETSc.Vec]]"
"""Adjoints of stages by (handle of the state before the step, step size)."""


@dataclass(frozen=True, eq=False, repr=False)
class HessianProduct:
    """The Hessian of one cost times one direction.

    Attributes
    ----------
    gradient : Gradient
        Value and gradient, which the sweep gives as well; None for Gauss-Newton.
    u0_vec : Vec [n]
        Rows of the initial state.
    p_vec : Vec [m]
        Rows of the parameters.

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

    def __repr__(self) -> str:
        """Return the sizes; not collective."""
        return f"HessianProduct(u0: [{self.u0_vec.size}], p: [{self.p_vec.size}])"

    @property
    def u0(self) -> Array:
        """Rows of the initial state, gathered [n].  Collective."""
        return gather(self.u0_vec)

    @property
    def p(self) -> Array:
        """Rows of the parameters, gathered [m].  Collective."""
        return gather(self.p_vec)


@dataclass
class Memory:
    """What products with one Hessian have in common: value, gradient, adjoints of all stages.

    One vector for each stage of each step, if they take no more than ``STAGE_MEMORY``.
    """

    gradient: Gradient | None = None
    weights: Weights | None = None
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

    Returns
    -------
    HessianProduct

    Raises
    ------
    InputError
        An observation time that no step hits; shapes that do not match.
    UnsupportedError
        Second derivatives that are neither supplied nor to be had; names them.

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
    return hessian_products(trajectory, objective, [(du0, dp)])[0]


@QUIET
@unwrapped
def hessian_products(
    trajectory: Trajectory,
    objective: Objective,
    directions: Sequence[Direction],
    memory: Memory | None = None,
) -> list[HessianProduct]:
    """Return the Hessian of a cost times several directions (du0, dp), in one sweep.

    They share the evaluations of Jacobians and, for theta methods, one factorisation per step.
    Parameters, errors and source as for ``hessian_product``; ``memory`` keeps what later calls with
    the same trajectory and cost need not compute again.

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
    if not directions:
        raise InputError("no direction given", expected="at least one (du0, dp)")
    problem, states = trajectory.problem, trajectory.states
    cost = objective.lower(problem, float(trajectory.times[-1]))
    steps = steps_of(trajectory)
    points = points_by_step(trajectory.index, [cost])
    tangents = [tangent(trajectory, du0, _direction(trajectory, dp)) for du0, dp in directions]
    memory = Memory() if memory is None else memory
    first = memory.adjoint(trajectory)
    dots = [(problem.create_state(), problem.create_parameters()) for _ in directions]
    value = memory.value
    if value is None:
        value = evaluate_cost(trajectory, cost, steps)
    seen = _Seen(trajectory)
    for n in range(trajectory.n_steps, -1, -1):
        time = float(trajectory.times[n])
        for _, weight, scalar in points.get(n, ()):
            point = (time, states[n], trajectory.parameters(n))
            if not first.known:
                scalar.add_u(weight, *point, first.lam)
                scalar.add_p(weight, *point, first.mu)
                if n in trajectory.moving:
                    steps.add_time(0, weight * scalar.value_t(*point))
            for k, (along, out) in enumerate(zip(tangents, dots, strict=True), start=1):
                dp_vec = along.parameters[n]
                if n in trajectory.moving:
                    direction = (along.states[n], seen(dp_vec), dp_vec, float(along.times[n]))
                    steps.add_time(k, add_curvature(scalar, weight, point, direction, out))
                else:
                    scalar.add_hessian(weight, point, (along.states[n], seen(dp_vec)), out)
        if n:
            t, h = float(trajectory.times[n - 1]), float(trajectory.step_sizes[n - 1])
            steps.second_order(
                *(t, h, states[n - 1], states[n], trajectory.p, first),
                [_on_step(each, n, seen, out) for each, out in zip(tangents, dots, strict=True)],
                cost.densities,
            )
    for vec in (vec for each in tangents for vec in each.states):
        vec.destroy()
    gradient = Gradient(value, first.lam, first.mu)
    memory.complete(gradient, first)
    return [HessianProduct(gradient, *dot) for dot in dots]


@QUIET
@unwrapped
def gauss_newton_product(
    trajectory: Trajectory,
    objective: Objective,
    du0: npt.ArrayLike | PETSc.Vec | None = None,
    dp: npt.ArrayLike | PETSc.Vec | None = None,
) -> HessianProduct:
    """Return J^T J (du0, dp) for a sum of squares 1/2 |r|^2, J the Jacobian of r.

    One tangent and one adjoint; no second derivatives are needed.  Collective.

    Parameters
    ----------
    trajectory, du0, dp
        As for ``hessian_product``.
    objective : Objective
        ``LeastSquares``, ``EventData``, ``Prior`` and sums of them.

    Returns
    -------
    HessianProduct
        Without the gradient.

    Raises
    ------
    UnsupportedError
        A term that is no sum of squares.

    Source
    ------
    Nocedal and Wright, Numerical Optimization, 2006, equation 10.23.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> gauss_newton_product(run, LeastSquares([2.0], [0.4]), dp=[1.0]).p.round(5)
    array([0.54134])
    """
    problem, states = trajectory.problem, trajectory.states
    cost = objective.lower(problem, float(trajectory.times[-1]))
    squares = squares_by_step(trajectory, cost)
    steps = steps_of(trajectory)
    along = tangent(trajectory, du0, _direction(trajectory, dp))
    seen = _Seen(trajectory)
    lam, mu = problem.create_state(), problem.create_parameters()
    for n in range(trajectory.n_steps, -1, -1):
        for weight, scalar in squares.get(n, ()):
            point = (float(trajectory.times[n]), states[n], trajectory.parameters(n))
            direction = (along.states[n], seen(along.parameters[n]))
            change = scalar.residual_tangent(point, direction, along.moved(n))
            scalar.add_residual_adjoint(weight, point, change, (lam, mu))
            if n in trajectory.moving:
                steps.add_time(0, weight * scalar.time_adjoint(point, change))
        if n:
            t, h = float(trajectory.times[n - 1]), float(trajectory.step_sizes[n - 1])
            steps.adjoint(t, h, states[n - 1], states[n], trajectory.p, [lam], [mu], [()])
    for vec in along.states:
        vec.destroy()
    return HessianProduct(None, lam, mu)


def squares_by_step(trajectory: Trajectory, cost: Cost) -> dict[int, list[tuple[float, Squares]]]:
    """Sort a cost that is a sum of squares by steps: {step: [(weight, scalar)]}.

    Raises
    ------
    UnsupportedError
        A term that is no sum of squares, or has a negative weight.
    """
    result: dict[int, list[tuple[float, Squares]]] = {}
    for time, weight, scalar in squares_of(cost):
        result.setdefault(trajectory.index(time), []).append((weight, scalar))
    return result


def squares_of(cost: Cost) -> list[tuple[When, float, Squares]]:
    """Return the terms of a cost that is a sum of squares.

    Raises
    ------
    UnsupportedError
        A term that is no sum of squares, or has a negative weight.
    """
    result: list[tuple[When, float, Squares]] = []
    for time, weight, scalar in cost.points:
        if not isinstance(scalar, Squares) or weight < 0:
            raise _no_square("a Terminal cost" if weight >= 0 else "a negative weight")
        result.append((time, weight, scalar))
    if cost.densities:
        raise _no_square("a Running cost")
    return result


def _no_square(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what} in a sum of squares",
        expected="LeastSquares, EventData, Prior and sums of them with weights >= 0",
        remedy="the exact Hessian instead of Gauss-Newton",
    )


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


def _direction(trajectory: Trajectory, dp: npt.ArrayLike | PETSc.Vec | None) -> PETSc.Vec:
    """Return a direction in the parameters as a vector [m]; None is zero."""
    if dp is None:
        return trajectory.problem.create_parameters()
    return parameter_direction(trajectory, dp)
