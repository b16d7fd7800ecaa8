"""How far derivatives are from those of the exact solution: a run with divided steps beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.objective import Objective, require_objective
from daeosens.derivatives.adjoint import Gradient, adjoint, shared
from daeosens.derivatives.directions import refuse_rows
from daeosens.derivatives.divided import (
    chosen_at_kinks,
    difference,
    divided,
    falling_order,
    richardson,
    tightened,
)
from daeosens.derivatives.engines.choice import Sweep
from daeosens.derivatives.hessian import HessianProduct, hessian_product
from daeosens.derivatives.solve import solve
from daeosens.derivatives.step_placement.kink_cuts import cut_at_kinks
from daeosens.petsc.vectors import Array, norm
from daeosens.timestepping.trajectory.trajectory import Trajectory, check_trajectory


@dataclass(frozen=True, eq=False, repr=False)
class ErrorEstimate:
    """Estimated discretisation errors: what was computed minus what is exact.

    Attributes
    ----------
    computed : Gradient
        Value and gradient of the run.
    gradient : Gradient
        Their errors: what was computed minus this is the better number.
    product : HessianProduct or None
        The error of the Hessian product, where a direction was given.
    relative : mapping of str to float
        Norms of the errors over those of the better numbers: "value", "u0", "p" and, where a
        direction was given, "product".

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "cn", dt=0.1))
    >>> error = derivative_error(run, Terminal(lambda t, u, p: u[0]))
    >>> float((error.computed.p - error.p)[0].round(6))  # -2 / e
    -0.735759
    """

    computed: Gradient
    gradient: Gradient
    product: HessianProduct | None
    relative: dict[str, float]

    @property
    def value(self) -> float:
        """Error of the value."""
        return self.gradient.value

    @property
    def u0(self) -> Array:
        """Error of the derivative in the initial state [n_local]; not collective."""
        return self.gradient.u0

    @property
    def p(self) -> Array:
        """Error of the derivative in the parameters, as of ``Gradient``; not collective."""
        return self.gradient.p

    def __repr__(self) -> str:
        """Return the relative errors; not collective."""
        told = ", ".join(f"{name} {size:.2g}" for name, size in self.relative.items())
        return f"ErrorEstimate (relative): {told}"


def derivative_error(
    trajectory: Trajectory,
    objective: Objective,
    du0: npt.ArrayLike | PETSc.Vec | None = None,
    dp: npt.ArrayLike | PETSc.Vec | None = None,
    engine: Sweep = "auto",
) -> ErrorEstimate:
    """Estimate the discretisation error of a cost, its gradient and a Hessian product.

    Derivatives are exact for the steps that were taken, and differ from those of the solution by an
    error of the method's order q, whose constants are those of the variational equations: it may be
    far larger than that of the value.  The run is repeated with every step halved, and the
    difference, times 1 / (1 - 2^-q), is the estimate; of adaptive runs of equations that may have
    kinks, and of delay equations, with thirds of every step; of adaptive runs of delay equations
    that may have kinks, with a smaller tolerance and steps of half the size or less.  It costs
    twice what run and derivatives have cost, or three times.  It knows discretisation alone:
    rounding, and what Newton's method and linear solvers have left, are not in it.  Collective on
    ``trajectory.problem.comm``.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``.
    objective : Objective
        The cost.
    du0, dp : array or Vec [n], [m], optional
        A direction, for the error of the Hessian product too.
    engine : "auto", "vectors" or "arrays"
        As for ``adjoint``.

    Returns
    -------
    ErrorEstimate

    Raises
    ------
    InputError
        An observation time that no step hits; shapes that do not match.
    SolveError
        The run with divided steps failed, or its events are not those of the run.

    Source
    ------
    docs/mathematics.md, section 6; Richardson's extrapolation of the steps that were taken.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> derivative_error(run, Terminal(lambda t, u, p: u[0]))
    ErrorEstimate (relative): value 5.4e-08, u0 5.4e-08, p 2.2e-07
    """
    check_trajectory(trajectory)
    require_objective(objective)
    for name, rows in (("du0", du0), ("dp", dp)):
        refuse_rows(rows, name)
    # each step divided, at the same ends: both runs have the same error expansion, step by step
    problem, (stepping, parts) = trajectory.problem, divided(trajectory)
    times = np.asarray(objective.times, dtype=float)
    # of delay equations such steps cross the kinks of better states
    kinks = problem.delays is not None and chosen_at_kinks(trajectory)
    finer_steps = tightened(trajectory, times) if kinks else None
    if finer_steps is not None:
        (stepping, times), parts = finer_steps, 2

    def take(start: PETSc.Vec, times: Array) -> Trajectory:
        record = "stages" if trajectory.record == "stages" else "states"
        return solve(problem, start, trajectory.p, stepping, times, record)

    finer = take(trajectory.stored[0], times)
    if trajectory.stepping.adaptive and problem.delays is None:
        # better states meet kinks at times of their own
        rtol, _ = trajectory.stepping.tolerances
        finer = cut_at_kinks(finer, times, take, rtol)
    # Errors are C h^q and 2^-q of that (3^-q of thirds): the difference of both runs is (1 - 2^-q)
    # of the first one.
    factor = richardson(falling_order(trajectory), parts)
    product = None
    relative: dict[str, float] = {}
    if du0 is None and dp is None:
        computed, better = (adjoint(run, objective, engine) for run in (trajectory, finer))
    else:
        products = [hessian_product(run, objective, du0, dp, engine) for run in (trajectory, finer)]
        computed, better = (of_run.gradient for of_run in products)
        assert computed is not None
        assert better is not None
        by_p = difference(products[0].p_vec, products[1].p_vec, factor)
        product = HessianProduct(
            None,
            difference(products[0].u0_vec, products[1].u0_vec, factor),
            by_p,
            products[1].engine,
            shared_p=shared(trajectory.problem, by_p),
            why=products[1].why,
        )
        # both parts together, as a product may have none of its own in one of them
        relative["product"] = _ratio(
            np.hypot(norm(product.u0_vec), norm(product.p_vec)),
            np.hypot(norm(products[1].u0_vec), norm(products[1].p_vec)),
        )
    by_p = difference(computed.p_vec, better.p_vec, factor)
    error = Gradient(
        factor * (computed.value - better.value),
        difference(computed.u0_vec, better.u0_vec, factor),
        by_p,
        better.engine,
        shared_p=shared(trajectory.problem, by_p),
        why=better.why,
    )
    finer.destroy()
    relative = {
        "value": _ratio(abs(error.value), abs(better.value)),
        "u0": _ratio(norm(error.u0_vec), norm(better.u0_vec)),
        "p": _ratio(norm(error.p_vec), norm(better.p_vec)),
        **relative,
    }
    return ErrorEstimate(computed, error, product, relative)


def _ratio(error: float, size: float) -> float:
    return float(error / size) if size else float(error > 0.0 and np.inf)
