"""Discrete adjoints: the gradient of costs by one sweep back over the accepted steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, overload

from petsc4py import PETSc

from daeosens.costs.cost import Cost, value_at_points
from daeosens.costs.objective import Objective, is_objective, require_objective
from daeosens.derivatives.engines.choice import Engine, check_engine, wants_compiled
from daeosens.derivatives.engines.delays.program import program_of
from daeosens.derivatives.engines.delays.running import RunningCosts
from daeosens.derivatives.engines.request import lowered_on, matrices_of, noting_values, of_costs
from daeosens.derivatives.kinks_of_costs import by_parts
from daeosens.derivatives.looks.look import look, solver_error
from daeosens.derivatives.sweeps.backward import sweep_back, swept_in_c
from daeosens.errors import InputError, is_iterable
from daeosens.methods.remainders import Remainders
from daeosens.petsc.ranks import agree
from daeosens.petsc.unpicklable import Unpicklable
from daeosens.petsc.vectors import Array, gather, read
from daeosens.problem.callback_guard import QUIET, unwrapped
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory, check_trajectory, steps_of


class Rows(Unpicklable):
    """Derivatives in the initial state and the parameters, as arrays.  Reading them is local."""

    _in_its_place: ClassVar[str] = "its arrays: u0, p"

    u0_vec: PETSc.Vec
    p_vec: PETSc.Vec
    shared_p: Array | None
    engine: str
    why: str
    differences: str

    def _sizes_and_origin(self) -> str:
        """Return the sizes, and what they were made by and of."""
        swept = f"; {self.engine}: {self.why}" if self.why else ""
        told = f"; {self.differences}" if self.differences else ""
        return f"u0: [{self.u0_vec.size}], p: [{self.p_vec.size}]{swept}{told}"

    @property
    def u0(self) -> Array:
        """Those in the initial state [n_local]: the rank's own, as of ``run.u``; all of one rank.

        Not collective; ``gather`` has all of them.
        """
        return read(self.u0_vec).copy()

    @property
    def p(self) -> Array:
        """Those in the parameters [m], on every rank; of a distributed field its own [m_local].

        Not collective.
        """
        return (read(self.p_vec) if self.shared_p is None else self.shared_p).copy()

    def gather(self) -> tuple[Array, Array]:
        """Return those in the initial state [n] and the parameters [m] of all ranks.  Collective.

        Examples
        --------
        >>> from daeosens import ODE, Stepping, Terminal, adjoint, solve
        >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
        >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
        >>> by_u0, by_p = adjoint(run, Terminal(lambda t, u, p: u[0])).gather()
        >>> by_u0.round(5), by_p.round(5)
        (array([0.36788]), array([-0.73576]))
        """
        agree(self.u0_vec.comm, f"{type(self).__name__}.gather")
        return gather(self.u0_vec), gather(self.p_vec)


def shared(problem: Problem, by_p: PETSc.Vec) -> Array | None:
    """Return derivatives in a few parameters on every rank; None where each has all, or a field.

    Collective.
    """
    return gather(by_p) if problem.comm.size > 1 and not problem.field_parameter else None


@dataclass(eq=False, repr=False)
class Gradient(Rows):
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
        What swept: "compiled", "vectors", "arrays" or "tsadjoint"; empty for other methods.
    why : str
        Why that engine: asked for, or the measured limit, or what others cannot; as printed.
    shared_p : array [m] or None
        What every rank has of ``p_vec``; None of a distributed field, and on one rank.
    solver_error : float
        Estimate of the error that Newton's method and linear solvers left, relative to the size of
        the derivatives: their remainders, added up over the steps.  A ``SolverErrorWarning`` tells
        of more than 1e-5.
    differences : str
        Which derivatives of the equations it was made of were differences; empty if none was.

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
    differences: str = ""
    why: str = ""

    def __repr__(self) -> str:
        """Return the value, the sizes, and what swept; not collective."""
        return f"Gradient(value={self.value:.9g}, {self._sizes_and_origin()})"


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
    engine : "auto", "vectors", "arrays", "compiled" or "tsadjoint"
        "vectors": this package's step linearisations, one step after the other on PETSc's vectors,
        for every method and form.  "arrays": the same for many steps and all costs at once, on one
        processor.  "compiled": the same in C.  "auto": the quickest of these.
        "tsadjoint": PETSc's TSAdjoint, refused where PETSc 3.26 is known to be wrong; uses what
        ``solve(..., petsc_trajectory="memory" or "disk")`` recorded, or repeats the run.

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
    listed: Any = objective
    several = not is_objective(objective) and is_iterable(objective)
    objectives: tuple[Any, ...] = tuple(listed) if several else (listed,)
    # the sweep is collective: a rank that was asked for something else would wait for ever
    agree(trajectory.problem.comm, "adjoint", objective=objectives, engine=engine)
    check_engine(engine)
    if not objectives:
        raise InputError("no objective given", expected="at least one")
    for cost in objectives:
        require_objective(cost)
    problem = trajectory.problem
    # one row lam [n], mu [m] for each cost; all of them go back over the same linearised steps
    plain = [lowered_on(trajectory, objective) for objective in objectives]
    costs = [by_parts(trajectory, cost) for cost in plain]
    # linear solvers leave a remainder in each transposed solve: added up over the sweep, these
    # estimate the relative error of the derivatives
    with Remainders() as left:
        request = of_costs(trajectory, costs)
        noted: list[dict[int, float]] = []
        if trajectory.thinned and not request.continuous:
            request, noted = noting_values(trajectory, costs)
        sweep = sweep_back(trajectory, request, engine)
        values = sweep.values()
        if values is None and noted:
            # in the order of ``value_at_points``, from the end: the same digits
            values = [sum((terms[k] for k in sorted(terms)[::-1]), 0.0) for terms in noted]
        if values is None:
            # sweeps in C come by the values on their way back
            values = [evaluate_cost(trajectory, cost) for cost in costs]
    error = solver_error(trajectory, left.total)
    # at the start lam is dJ/du0 and mu is dJ/dp (docs/mathematics.md, section 1)
    lam, mu = sweep.rows()
    # what no sweep sees: kinks between two states, steps that are too long for derivatives
    look(trajectory, plain, gradients=lambda: matrices_of((lam, mu)))
    gradients = [
        Gradient(
            value,
            by_u0,
            by_p,
            sweep.name,
            shared(problem, by_p),
            error,
            problem.differences,
            sweep.why,
        )
        for value, by_u0, by_p in zip(values, lam, mu, strict=True)
    ]
    return gradients if several else gradients[0]


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
    agree(trajectory.problem.comm, "evaluate", objective=objective)
    require_objective(objective)
    cost = by_parts(trajectory, lowered_on(trajectory, objective))
    # terms at single states need no steps
    if not cost.densities:
        return value_at_points(cost, trajectory.point)
    if wants_compiled(trajectory, "auto", 1):
        # the whole sweep is sooner done in C than a sum here
        sweep = swept_in_c(trajectory, of_costs(trajectory, [cost]))
        if not isinstance(sweep, str):
            return sweep.values()[0]
    return evaluate_cost(trajectory, cost)


def evaluate_cost(trajectory: Trajectory, cost: Cost) -> float:
    """Return the value of a lowered cost; running ones are added up by the step map."""
    value = value_at_points(cost, trajectory.point)
    if cost.densities and trajectory.problem.delays is not None:
        value += RunningCosts(program_of(trajectory), [cost.densities]).values()[0]
    elif cost.densities:
        steps = steps_of(trajectory)
        for n in range(trajectory.n_steps):
            # the method's own quadrature of each step: the adjoint is the derivative of this very
            # sum
            value += steps.quadrature(trajectory.step(n), cost.densities)
    return float(value)
