"""Second-order discrete adjoints: products with the Hessian of a cost, forward over adjoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from petsc4py import PETSc

from daeosens.costs.objective import Objective, require_objective
from daeosens.derivatives.adjoint import Gradient, Rows, evaluate_cost, shared
from daeosens.derivatives.directions import Rows as Directions
from daeosens.derivatives.directions import Vector, admit_direction, pairs_of
from daeosens.derivatives.engines.choice import (
    Sweep,
    choose_sweep,
)
from daeosens.derivatives.engines.compiled.tangent import (
    Direction,
    check_directions,
)
from daeosens.derivatives.engines.request import lowered_on
from daeosens.derivatives.faults import named_faults
from daeosens.derivatives.kinks_of_costs import by_parts
from daeosens.derivatives.looks.look import look, look_at_products, solver_error
from daeosens.derivatives.sweeps.kink_terms import KinkTerm
from daeosens.derivatives.sweeps.second_order import FirstOrderMemory, SecondOrderSweep
from daeosens.methods.remainders import Remainders
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, finite_vec, one_norm
from daeosens.problem.callback_guard import QUIET, unwrapped
from daeosens.problem.problem import PossiblyNamed
from daeosens.timestepping.trajectory.trajectory import (
    Trajectory,
    check_trajectory,
)


@dataclass(eq=False, repr=False)
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
        What swept: "compiled", "vectors" or "arrays"; empty for other methods.
    why : str
        As of ``Gradient``.
    solver_error : float
        As of ``Gradient``.
    shared_p : array [m] or None
        As of ``Gradient``.
    differences : str
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
    differences: str = ""
    why: str = ""

    def __repr__(self) -> str:
        """Return the sizes, and what swept; not collective."""
        return f"HessianProduct({self._sizes_and_origin()})"


@dataclass
class Memory:
    """What products with one Hessian have in common: the value, and the adjoints of all stages.

    As well as what kinks of the equations contribute.
    """

    value: float | None = None
    kinks: Sequence[KinkTerm] = ()
    first: FirstOrderMemory = field(default_factory=FirstOrderMemory)


@overload
def hessian_product(  # pyright: ignore[reportOverlappingOverload]
    trajectory: Trajectory,
    objective: Objective,
    du0: Directions,
    dp: Directions | None = None,
    engine: Sweep = "auto",
) -> list[HessianProduct]: ...
@overload
def hessian_product(  # pyright: ignore[reportOverlappingOverload]
    trajectory: Trajectory,
    objective: Objective,
    du0: None = None,
    *,
    dp: Directions,
    engine: Sweep = "auto",
) -> list[HessianProduct]: ...
@overload
def hessian_product(
    trajectory: Trajectory,
    objective: Objective,
    du0: Vector | None = None,
    dp: PossiblyNamed = None,
    engine: Sweep = "auto",
) -> HessianProduct: ...
def hessian_product(
    trajectory: Trajectory,
    objective: Objective,
    du0: Any = None,
    dp: Any = None,
    engine: Sweep = "auto",
) -> HessianProduct | list[HessianProduct]:
    """Return the Hessian of a cost in (u0, p) times one direction (du0, dp), or times several.

    The second derivative of the steps that were taken, with their sizes held fixed; exact to
    rounding for every method, form and cost.  Where adaptive steps of u' = f end at kinks, what the
    moving times of these contribute is added.  (PETSc 3.26's own second-order adjoint is wrong for
    most methods and is not used.)  Collective on ``trajectory.problem.comm``.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``; its steps must hit ``objective.times``.
    objective : Objective
        The cost.
    du0 : array [n] or Vec; array [D, n] or sequence of Vec, optional
        Direction in the initial state, or D of them as rows; zero by default.
    dp : array [m], Vec or mapping; array [D, m] or sequence of Vec, optional
        Direction in the parameters, or as many as rows; zero by default.
    engine : "auto", "vectors", "arrays" or "compiled"
        As for ``adjoint``.

    Returns
    -------
    HessianProduct or list of HessianProduct
        A list where rows are given.  These share the evaluations of Jacobians and, for theta
        methods, one factorisation per step; in blocks all of them are carried at once, as products
        of dense matrices.

    Raises
    ------
    InputError
        An observation time that no step hits; shapes that do not match; an unknown engine.
    SolveError
        The product, or a value on the way to it, is not finite.
    UnsupportedError
        Second derivatives that are neither supplied nor to be had; names them.  "arrays" where it
        cannot be; names the reason.

    Source
    ------
    docs/mathematics.md, section 1: the tangent of the adjoint sweep.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> end = Terminal(lambda t, u, p: u[0])
    >>> hessian_product(run, end, dp=[1.0]).p.round(5)
    array([1.47152])
    >>> rows = hessian_product(run, end, du0=[[1.0], [0.0]], dp=[[0.0], [1.0]])
    >>> [product.p.round(5).tolist() for product in rows]
    [[-0.73576], [1.47152]]
    """
    directions, several = pairs_of(du0, dp)
    products = hessian_sweep(trajectory, objective, directions, engine=engine)
    return products if several else products[0]


@QUIET
@unwrapped
def hessian_sweep(
    trajectory: Trajectory,
    objective: Objective,
    directions: Sequence[Direction],
    memory: Memory | None = None,
    engine: Sweep = "auto",
) -> list[HessianProduct]:
    """Return the products with pairs (du0, dp), None in the place of one that is zero.

    Collective.  Result and errors as for ``hessian_product``; ``memory`` keeps what later calls
    with the same trajectory and cost need not compute again.
    """
    check_trajectory(trajectory)
    agree(
        trajectory.problem.comm,
        "hessian_product",
        objective=objective,
        directions=directions,
        engine=engine,
    )
    check_directions(directions)
    require_objective(objective)
    plain = lowered_on(trajectory, objective)
    cost = by_parts(trajectory, plain)
    memory = Memory() if memory is None else memory
    first = memory.value is None  # product with this Hessian
    if memory.value is None:
        # kinks of derivatives spoil products too; the value is the same for all directions
        memory.kinks = look(trajectory, [plain], second=True)
        memory.value = evaluate_cost(trajectory, cost)
    problem = trajectory.problem
    chosen, why = choose_sweep(trajectory, engine, len(directions), running=bool(cost.densities))
    admitted = [admit_direction(problem, *direction) for direction in directions]
    # p stands in every step's second derivatives: no direction in it is a direction of zeros
    complete = [(du, problem.create_parameters() if dp is None else dp) for du, dp in admitted]
    with Remainders() as left:
        # forward over reverse: tangents du_n of all states first, then one sweep back that carries
        # lam, mu and their derivatives lam_dot, mu_dot along each direction; at the start these are
        # H (du0, dp)
        sweep = SecondOrderSweep(trajectory, cost, complete, chosen, memory.first, memory.kinks)
        (lam, mu), *dots = sweep.vectors()
    # callbacks that fill PETSc's objects, functions of a grid's points: nobody looks at what they
    # return
    with named_faults(trajectory, back=True):
        rows = [((lam, mu), "gradient"), *((dot, "product with the Hessian") for dot in dots)]
        for row, kind in rows:
            for name, vec in zip(("u0", "p"), row, strict=True):
                finite_vec(vec, f"the {kind} in {name}")
    error = solver_error(trajectory, left.total)
    told = problem.differences
    # lam and mu are the gradient, which comes for nothing
    gradient = Gradient(memory.value, lam, mu, chosen, shared(problem, mu), error, told, why)
    products = [
        HessianProduct(gradient, *dot, chosen, error, shared(problem, dot[1]), told, why)
        for dot in dots
    ]
    if first:
        # compares these products with those along a run of other steps: second derivatives may need
        # shorter ones than states do
        look_at_products(
            trajectory,
            objective,
            lambda: [
                (product.u0, product.p, _change(gradient, *direction))
                for product, direction in zip(products, complete, strict=True)
            ],
            lambda run: [
                (product.u0, product.p, 0.0)
                for product in hessian_sweep(run, objective, directions, engine=engine)
            ],
        )
    return products


def _change(gradient: Gradient, du: PETSc.Vec, dp: PETSc.Vec) -> float:
    """Return what a cost changes along a direction, all parts with the same sign.  Collective."""
    total = 0.0
    for by, along in ((gradient.u0_vec, du), (gradient.p_vec, dp)):
        parts = by.copy()
        parts.pointwiseMult(by, along)
        total += one_norm(parts)
    return total
