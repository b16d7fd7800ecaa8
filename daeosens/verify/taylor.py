"""Evidence that derivatives are right: Taylor remainders, duality, and each callback on its own."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.objective import Objective, require_objective
from daeosens.derivatives.adjoint import adjoint
from daeosens.derivatives.tangent import tangent
from daeosens.errors import InputError, require, whole_number
from daeosens.functional.functional import Functional, HasRepeated, require_functional
from daeosens.optimize.start import vector_like
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import dot, finite_array, scatter
from daeosens.timestepping.trajectory.trajectory import Trajectory, check_trajectory
from daeosens.verify.check import Check, CheckedCallback, check
from daeosens.verify.extrapolated_differences import move, random_direction
from daeosens.verify.table import NOISY, Taylor

EPSILONS = tuple(1e-3 * 0.25**k for k in range(12))
"""Step sizes of a Taylor test by default, relative to the size of each component: those down to
where two remainders one after the other are noise."""

HESSIAN_EPSILONS = tuple(8e-3 * 0.5**k for k in range(20))
"""The same where the Hessian is tested: its remainder sinks into the rounding early."""


def taylor(
    functional: Functional,
    x: PETSc.Vec | npt.ArrayLike | None = None,
    direction: PETSc.Vec | npt.ArrayLike | None = None,
    epsilons: npt.ArrayLike | None = None,
    seed: int = 0,
    *,
    hessian: bool = False,
) -> Taylor:
    """Test a gradient: J(x + eps d) - J(x) - eps dJ.d has to fall with order 2.

    And a Hessian: the same minus eps^2/2 d.H d has to fall with order 3.

    Remainders that are dominated by the rounding of J are left out; that rounding is estimated from
    a difference table of five values very close together, and before a derivative is called wrong,
    what Newton's iterations leave from seven values less close.  Derivatives are those of the steps
    that were taken at x, so with adaptive steps the other values of a ``Reduced`` are computed by
    the same steps.  (Left to choose its steps anew, J would differ by about their tolerance, and
    jump.)  After an event at a time of its own adaptive steps are chosen anew all the same:
    remainders of that size are called what they are, and fixed steps are what to take.  Collective.

    Parameters
    ----------
    functional : Functional
        ``Reduced``, or anything with ``start``, ``value``, ``value_and_gradient`` and, for the
        Hessian, ``hessian_product``.
    x : Vec or array [n], optional
        The point; ``functional.start()`` by default.
    direction : Vec or array [n], optional
        The direction d; random by default, in proportion to each component of x, and the same on
        any number of ranks.
    epsilons : array_like [K], optional
        Decreasing step sizes, K > 1.  By default those of ``EPSILONS``, or ``HESSIAN_EPSILONS``,
        down to where the remainder is noise.
    seed : int
        Of the random direction.
    hessian : bool
        Test the Hessian too.

    Returns
    -------
    Taylor

    Raises
    ------
    InputError
        Step sizes that are not positive and decreasing; arrays of the wrong shape; a Hessian that
        the functional lacks.
    SolveError
        J does not exist at one of the points.

    Source
    ------
    docs/mathematics.md, section 5; the estimate of the rounding: Moré and Wild, SIAM J. Sci.
    Comput. 33(3), 2011.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> control = Parameters({"rate": Parameter(0.3)}, initial_state=[1.0])
    >>> misfit = LeastSquares([1.0, 2.0], [0.6, 0.4])
    >>> functional = Reduced(decay, misfit, Stepping((0.0, 2.0), "rk4", dt=0.1), control)
    >>> min(taylor(functional)) > 1.9, min(taylor(functional, hessian=True)) > 2.9
    (True, True)
    """
    require_functional(functional)
    seed = whole_number(seed, "seed")
    require(hessian, bool, "hessian", "hessian=True")
    agree(functional.comm, "taylor", epsilons=epsilons, seed=seed, hessian=hessian)
    default = HESSIAN_EPSILONS if hessian else EPSILONS
    steps = finite_array(default if epsilons is None else epsilons, "epsilons")
    if steps.ndim != 1 or steps.size < 2 or (steps <= 0).any() or (np.diff(steps) >= 0).any():
        raise InputError(
            f"epsilons = {steps.tolist()}", expected="two or more decreasing positive numbers"
        )
    start = functional.start()
    x = start if x is None else vector_like(x, start, "x")
    if direction is None:
        direction = random_direction(x, seed)
    else:
        direction = vector_like(direction, start, "direction")
    value, gradient = functional.value_and_gradient(x)
    derivative = dot(gradient, direction)
    curvature = np.nan
    if hessian:
        curvature = dot(_hessian_product(functional)(x, direction), direction)

    # With the steps of x held, J(x + eps d) is the smooth function that the derivatives belong
    # to.
    neighbours = functional.repeated(x) if isinstance(functional, HasRepeated) else functional
    jumps = neighbours is None
    neighbours = neighbours or functional

    def along(eps: float) -> float:
        moved = move(x, direction, eps)
        result = neighbours.value(moved)
        moved.destroy()
        return result

    # So close that the function is a straight line to rounding: what is left of its differences
    # is noise.
    spacing = 1e-6 * float(steps[:6][-1])
    noise = _noise([value, *(along(spacing * k) for k in range(1, 5))])
    noise = max(noise, _rounding(x, gradient))
    columns: list[list[float]] = []
    for eps in map(float, steps):
        # Remainders of order 1, 2 and, with the Hessian, 3.
        change = along(eps) - value
        rest = change - eps * derivative
        columns.append([change, rest, rest - 0.5 * eps**2 * curvature][: 3 if hessian else 2])
        # Two in a row, as one may be small by chance where the remainder changes its sign.
        sunk = [abs(column[-1]) <= NOISY * noise for column in columns[-2:]]
        if epsilons is None and sunk == [True, True]:
            break
    remainders = np.abs(np.transpose(columns))
    test = Taylor(value, derivative, steps[: len(columns)], remainders, noise, curvature, jumps)
    if test.passed:
        return test
    # Before a derivative is called wrong: iterations that start at the solution of x, and may stop
    # at once where it is close, leave up to their tolerance, which values closer still do not show.
    return replace(test, noise=max(noise, _noise_of_iterations(along, value)))


def duality(trajectory: Trajectory, objective: Objective, seed: int = 0) -> float:
    """Return the relative mismatch of lam_0.du0 + mu.dp (adjoint) and dJ (tangent).

    Along a random direction that is the same on any number of ranks; rounding level (1e-12) if
    adjoint and tangent are transposes of each other.  It says nothing about callbacks that are
    wrong in both: that is what ``check`` and ``taylor`` are for.  Collective.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``; its steps must hit ``objective.times``.
    objective : Objective
        A cost.
    seed : int
        Of the random directions.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> duality(run, Terminal(lambda t, u, p: u[0])) < 1e-14
    True
    """
    check_trajectory(trajectory)
    problem = trajectory.problem
    seed = whole_number(seed, "seed")
    agree(problem.comm, "duality", seed=seed)
    require_objective(objective)
    gradient = adjoint(trajectory, objective)
    du0 = random_direction(trajectory.stored[0], seed)
    # (lam_0, du0) + (mu, dp) = dJ, in which a factor, a sign or a missing term would show.
    parts = [dot(gradient.u0_vec, du0)]
    dp = None
    if problem.n_parameters:
        p = trajectory.p
        values = p if problem.field_parameter else scatter(p, problem.create_parameters())
        dp = random_direction(values, seed + 1)
        parts.append(dot(gradient.p_vec, dp))
    expected = tangent(trajectory, du0, dp).derivative(objective)
    mismatch = abs(sum(parts) - expected)
    size = max(abs(expected), *(abs(part) for part in parts))
    return mismatch / size if mismatch else 0.0


def _noise(values: list[float]) -> float:
    """Estimate the standard deviation of the rounding of closely spaced values.

    The k-th differences of a smooth function vanish with the spacing, those of noise have the
    variance (2k)!/(k!)^2.
    """
    table = np.array(values)
    deviations: list[float] = []
    for k in range(1, len(values)):
        table = np.diff(table)
        if k > 1:  # first differences still see the slope
            norm = math.hypot(*table.tolist())  # squares may be too large for floats
            deviations.append(norm / math.sqrt(table.size * math.comb(2 * k, k)))
    return max(*deviations, sys.float_info.epsilon * float(np.abs(values).max()))


def _noise_of_iterations(along: Callable[[float], float], value: float) -> float:
    """Estimate what iterations leave in values, by how far those are from cubic polynomials.

    Divided differences of order 4 over 0 and four steps, in proportion to their weights, are of
    the size of the noise; what they see of a smooth function falls with the fourth power of eps.
    """
    steps = np.array([0.0, *(1e-9 * 4.0**k for k in range(6))])
    values = np.array([value, *(along(eps) for eps in steps[1:])])
    deviations: list[float] = []
    for k in range(1, len(steps) - 3):
        window = [0, *range(k, k + 4)]
        gaps = steps[window, None] - steps[None, window]
        np.fill_diagonal(gaps, 1.0)
        weights = 1.0 / np.prod(gaps, axis=1)
        deviations.append(abs(weights @ (values[window] - value)) / float(np.linalg.norm(weights)))
    return max(deviations)


def _rounding(x: PETSc.Vec, gradient: PETSc.Vec) -> float:
    """Return what the rounding of the components of x changes in J: few values may not show it."""
    products = x.duplicate()
    products.pointwiseMult(gradient, x)
    size = math.sqrt(dot(products, products))
    products.destroy()
    return sys.float_info.epsilon / 2 * size


def _hessian_product(functional: Functional) -> Callable[[PETSc.Vec, PETSc.Vec], PETSc.Vec]:
    product = getattr(functional, "hessian_product", None)
    if product is None:
        raise InputError(
            f"hessian=True for a {type(functional).__name__} without hessian_product",
            expected="a functional with hessian_product(x, dx) -> Vec, such as Reduced",
        )
    return product


__all__ = ["Check", "CheckedCallback", "Taylor", "check", "duality", "taylor"]
