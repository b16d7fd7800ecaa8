"""Evidence that derivatives are right: Taylor remainders, duality, and each callback on its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.adjoint import adjoint
from daeosens.arrays import Array, dot, finite_array, scatter
from daeosens.callbacks import Check, CheckedCallback, check
from daeosens.differences import move, random_direction
from daeosens.errors import InputError
from daeosens.functional import Functional
from daeosens.objective import Objective
from daeosens.tangent import tangent
from daeosens.trajectory import Trajectory

EPSILONS = tuple(1e-3 * 0.25**k for k in range(6))
"""Step sizes of a Taylor test by default, relative to the size of each component."""

SECOND_ORDER = 1.9
"""What the order of the remainder with the gradient has to reach."""

_SAFETY = 50.0
"""A remainder below so many times the noise of J says nothing about an order."""


@dataclass(frozen=True, eq=False)
class Taylor:
    """The result of ``taylor``; prints itself as a table.

    Iterating gives the credible observed orders of the remainder with the gradient, so that a test
    reads ``assert min(taylor(functional)) > 1.9``.

    Attributes
    ----------
    value, derivative : float
        J(x) and dJ.d.
    epsilons : array [K]
        Decreasing step sizes.
    remainders : array [2, K]
        |J(x + eps d) - J(x)|, and the same minus eps dJ.d.
    noise : float
        Estimated rounding of J.
    """

    value: float
    derivative: float
    epsilons: Array
    remainders: Array
    noise: float

    @property
    def orders(self) -> Array:
        """Observed orders [2, K-1]; NaN where a remainder of the pair is dominated by noise."""
        credible = self.remainders > _SAFETY * self.noise
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = np.log2(self.remainders[:, :-1] / self.remainders[:, 1:])
        slopes = slopes / np.log2(self.epsilons[:-1] / self.epsilons[1:])
        return np.where(credible[:, :-1] & credible[:, 1:], slopes, np.nan)

    @property
    def order(self) -> float:
        """Smallest credible order of the remainder with the gradient: 2 if the gradient is right.

        Infinite where the whole remainder is noise, while the change of J is not (J is linear along
        the direction, as far as can be seen); NaN where nothing can be seen.
        """
        orders = self.orders[1]
        if np.isfinite(orders).any():
            return float(np.nanmin(orders))
        largest_change, largest_remainder = self.remainders[:, 0]
        if largest_remainder <= 1e-4 * largest_change or largest_remainder == 0.0:
            return np.inf
        return np.nan

    @property
    def passed(self) -> bool:
        """Whether the remainder with the gradient falls with second order."""
        return self.order > SECOND_ORDER

    def __iter__(self) -> Iterator[float]:
        """Iterate over the credible orders of the remainder with the gradient; at least one."""
        orders = self.orders[1]
        orders = orders[np.isfinite(orders)]
        return iter(orders.tolist() if orders.size else [self.order])

    def __str__(self) -> str:
        lines = [f"Taylor test: J = {self.value:.9g}, dJ.d = {self.derivative:.9g}"]
        lines.append("eps        |J(x+eps d)-J|  order   |... - eps dJ.d|  order")
        orders = np.column_stack([np.full(2, np.nan), self.orders])
        for k, eps in enumerate(self.epsilons):
            zero, one = (_words(order) for order in orders[:, k])
            change, remainder = self.remainders[:, k]
            lines.append(f"{eps:<11.3e}{change:<16.6e}{zero:8}{remainder:<18.6e}{one}".rstrip())
        verdict = "right" if self.passed else "WRONG"
        if np.isnan(self.order):
            verdict = "cannot be judged: the remainder is noise"
        lines.append(
            f"order {self.order:.3f}, rounding of J {self.noise:.1e}: the gradient {_is(verdict)}"
        )
        return "\n".join(lines)


def taylor(
    functional: Functional,
    x: PETSc.Vec | None = None,
    direction: PETSc.Vec | None = None,
    epsilons: npt.ArrayLike | None = None,
    seed: int = 0,
) -> Taylor:
    """Test a gradient: J(x + eps d) - J(x) - eps dJ.d has to fall with order 2.

    Remainders that are dominated by the rounding of J are left out; that rounding is estimated from
    a difference table of five values very close together.  With adaptive steps J itself jumps by
    about their tolerance, and the remainder stalls there: take fixed steps.  Collective.

    Parameters
    ----------
    functional : Functional
        ``Reduced``, or anything with ``start``, ``value`` and ``value_and_gradient``.
    x : Vec [n], optional
        The point; ``functional.start()`` by default.
    direction : Vec [n], optional
        The direction d; random by default, in proportion to each component of x, and the same on
        any number of ranks.
    epsilons : array_like [K], optional
        Decreasing step sizes, K > 1; 1e-3 and five quarterings by default.
    seed : int
        Of the random direction.

    Returns
    -------
    Taylor

    Raises
    ------
    InputError
        Step sizes that are not positive and decreasing.
    SolveError
        J does not exist at one of the points.

    Source
    ------
    docs/mathematics.md, section 4; the estimate of the rounding: Moré and Wild, SIAM J. Sci.
    Comput. 33(3), 2011.
    """
    steps = finite_array(EPSILONS if epsilons is None else epsilons, "epsilons")
    if steps.ndim != 1 or steps.size < 2 or (steps <= 0).any() or (np.diff(steps) >= 0).any():
        raise InputError(
            f"epsilons = {steps.tolist()}", expected="two or more decreasing positive numbers"
        )
    x = functional.start() if x is None else x
    direction = random_direction(x, seed) if direction is None else direction
    value, gradient = functional.value_and_gradient(x)
    derivative = dot(gradient, direction)

    def along(eps: float) -> float:
        moved = move(x, direction, eps)
        result = functional.value(moved)
        moved.destroy()
        return result

    changes = np.array([along(float(eps)) for eps in steps]) - value
    remainders = np.abs([changes, changes - steps * derivative])
    noise = _noise([value, *(along(1e-6 * float(steps[-1]) * k) for k in range(1, 5))])
    return Taylor(value, derivative, steps, remainders, noise)


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
    problem = trajectory.problem
    gradient = adjoint(trajectory, objective)
    du0 = random_direction(trajectory.states[0], seed)
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
            deviations.append(float(np.sqrt((table**2).mean() / comb(2 * k, k))))
    return max(*deviations, float(np.finfo(float).eps * np.abs(values).max()))


def _words(order: float) -> str:
    return "-" if np.isnan(order) else f"{order:.3f}"


def _is(verdict: str) -> str:
    return verdict if verdict.startswith("cannot") else f"is {verdict}"


__all__ = ["Check", "CheckedCallback", "Taylor", "check", "duality", "taylor"]
