"""A functional as the three functions that ``scipy.optimize.minimize`` takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import SolveError, UnsupportedError
from daeosens.functional.functional import Functional, HasHessian
from daeosens.optimize.failed_solve_barrier import steepness
from daeosens.optimize.start import limits_of, start_of
from daeosens.petsc.vectors import Array, finite_array, gather, scatter


class ScipyFunctions(NamedTuple):
    """What ``scipy_functions`` returns.

    Parameters
    ----------
    fun : callable
        x [n] -> J(x); where a solve fails, more than the lowest J so far.
    jac : callable
        x [n] -> dJ/dx [n]; where a solve fails, a slope that turns a line search back.
    hessp : callable
        (x [n], dx [n]) -> H(x) dx [n].
    x0 : ndarray [n]
        ``functional.start()``.
    bounds : list of (lower, upper) or None
        ``functional.bounds()``.
    """

    fun: Callable[[npt.ArrayLike], float]
    jac: Callable[[npt.ArrayLike], Array]
    hessp: Callable[[npt.ArrayLike, npt.ArrayLike], Array]
    x0: Array
    bounds: list[tuple[float, float]] | None


class _Shared:
    """The last x, with what has been computed there, and the best x so far."""

    def __init__(self, functional: Functional) -> None:
        self.functional = functional
        self.start = start_of(functional, None)
        self.point: Array | None = None
        self.x: PETSc.Vec | None = None
        self.value: float | None = None
        self.gradient: Array | None = None
        self.failed = False
        self.best: tuple[Array, float, Array] | None = None
        self.values = (math.inf, -math.inf)  # the lowest and the highest so far

    def move(self, x: npt.ArrayLike) -> PETSc.Vec:
        """Return x as a vector; forget the results of another x."""
        values = finite_array(x, "x", (self.start.getSize(),))
        if self.x is None or self.point is None or not np.array_equal(values, self.point):
            self.point = values
            self.x = scatter(values, self.start.duplicate())
            # The results belong to the old x.
            self.value = self.gradient = None
            self.failed = False
        return self.x

    def fun(self, x: npt.ArrayLike) -> float:
        """Return J(x), or something worse than the best J."""
        vec = self.move(x)
        if self.value is None and not self.failed:
            try:
                self.value = _finite(self.functional.value(vec))
                self.note(self.value)
            except SolveError as error:
                self.fail(error)
        return self.wall()[0] if self.value is None else self.value

    def jac(self, x: npt.ArrayLike) -> Array:
        """Return dJ/dx, or something that points back to the best x."""
        vec = self.move(x)
        if self.gradient is None and not self.failed:
            try:
                value, gradient = self.functional.value_and_gradient(vec)
                # All of the gradient on every rank: SciPy runs the same steps everywhere.
                self.value, self.gradient = _finite(value), gather(gradient)
                _finite(float(np.linalg.norm(self.gradient)))
                self.note(self.value)
            except SolveError as error:
                self.value = self.gradient = None
                self.fail(error)
            else:
                assert self.point is not None
                # Walls stand beside the lowest point whose gradient is known.
                if self.best is None or self.value <= self.best[1]:
                    self.best = (self.point, self.value, self.gradient)
        return self.wall()[1] if self.gradient is None else self.gradient.copy()

    def note(self, value: float) -> None:
        """Remember how low and how high values are."""
        self.values = (min(self.values[0], value), max(self.values[1], value))

    def fail(self, error: SolveError) -> None:
        """Remember that there is no J at this x; at the start that is an error."""
        self.failed = True
        if not math.isfinite(self.values[0]):
            raise SolveError(
                f"the functional cannot be evaluated at the start: {error}",
                remedy="another x0, or smaller steps",
            ) from error

    def wall(self) -> tuple[float, Array]:
        """Return a value and a slope beside the best x that turn any line search back.

        As in ``minimize``: SciPy 1.17's L-BFGS-B gives up at an infinite value or a NaN.
        """
        assert self.point is not None
        if self.best is None:  # methods without gradients compare: all other points are better
            low, high = self.values
            return 2.0 * high - low + 1e-9 * abs(high), 0.0 * self.point
        # along the straight line from the best point: a slope uphill, so that any line search
        # turns back
        point, value, gradient = self.best
        rise, factor = steepness(float(gradient @ (self.point - point)), value)
        return value + rise, factor * gradient

    def hessp(self, x: npt.ArrayLike, dx: npt.ArrayLike) -> Array:
        """Return H(x) dx."""
        if not isinstance(self.functional, HasHessian):
            raise UnsupportedError(
                f"hessp needs hessian_product, which {type(self.functional).__name__} lacks",
                expected="a functional with hessian_product",
                remedy="a method that takes fun and jac only: L-BFGS-B",
            )
        vec = self.move(x)
        values = finite_array(dx, "dx", (self.start.getSize(),))
        direction = scatter(values, self.start.duplicate())
        return gather(self.functional.hessian_product(vec, direction))


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise SolveError(f"value or gradient norm {value:g}")
    return value


def scipy_functions(functional: Functional) -> ScipyFunctions:
    """Return a functional as ``fun, jac, hessp`` (and ``x0, bounds``) for ``scipy.optimize``.

    What is computed at one x is shared: ``Reduced`` runs forward once for all three.  On several
    ranks x is the same array on every rank, and each of them must call ``scipy.optimize.minimize``
    with the same arguments: it then takes the same way everywhere.  Collective.

    Parameters
    ----------
    functional : Functional
        J; ``hessp`` works if it has ``hessian_product``.

    Returns
    -------
    ScipyFunctions
        A named tuple.

    Examples
    --------
    >>> from scipy.optimize import minimize
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> misfit = LeastSquares([1.0, 2.0], [0.6, 0.36])
    >>> control = Parameters({"rate": Parameter(0.3)}, initial_state=[1.0])
    >>> functional = Reduced(decay, misfit, Stepping((0.0, 2.0), "rk4", dt=0.1), control)
    >>> fun, jac, hessp, x0, bounds = scipy_functions(functional)
    >>> result = minimize(fun, x0, jac=jac, method="L-BFGS-B")
    >>> print(f"{result.x[0]:.3f}")
    0.511
    """
    shared = _Shared(functional)
    bounds: list[tuple[float, float]] | None = None
    limits = limits_of(functional.bounds(), shared.start)
    if limits is not None:
        lower, upper = (gather(side).tolist() for side in limits)
        bounds = list(zip(lower, upper, strict=True))
    return ScipyFunctions(shared.fun, shared.jac, shared.hessp, gather(shared.start), bounds)
