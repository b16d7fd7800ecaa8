"""A functional with one variable held, in variables in which it is well scaled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.functional.functional import Functional, HasTrials
from daeosens.inverse.uncertainty.covariance import Covariance
from daeosens.optimize import minimize
from daeosens.petsc.vectors import Array, gather, scatter

T = TypeVar("T")


class ConditionalFunctional:
    """J over all variables but one: x_others = center + T z.

    T T^T is the covariance of the others for a fixed one, so that the Hessian in z is about the
    identity and first-order methods take few iterations.  Where minima lie on bounds T is diagonal:
    boxes stay boxes.  Elsewhere bounds only end where J is defined.

    Parameters
    ----------
    functional : Functional
        J of x [k].
    estimate : Covariance
        Of its minimum.
    index : int
        The variable that is held.
    limits : (array [k], array [k]) or None
        Bounds.
    """

    def __init__(
        self,
        functional: Functional,
        estimate: Covariance,
        index: int,
        limits: tuple[Array, Array] | None,
    ) -> None:
        self.comm = functional.comm
        self._functional = functional
        self._template = functional.start()
        self.index = index
        self._limits = limits
        self._others = [j for j in range(len(estimate.x)) if j != index]
        self.origin = float(estimate.x[index])
        self.center = estimate.x[self._others]
        joint = estimate.scaled
        own = float(joint[index, index])
        across = joint[self._others, index]
        # The path of the others along the ridge of the quadratic model: d others / d x_i = C_oi /
        # C_ii.
        self.slope = across / own if own > 0 else np.zeros_like(across)
        # Covariance of the others for x_i held: C_oo - C_oi C_io / C_ii.
        inner = joint[np.ix_(self._others, self._others)] - np.outer(self.slope, across)
        self._transforms = {
            boxed: _transform(inner, self.center, diagonal=boxed) for boxed in (False, True)
        }
        # what has no variance is on a bound
        self.on_bounds = limits is not None and not (np.diag(inner) > 0).all()
        self.held = self.origin
        self._start: Array = np.zeros(len(self._others))

    @property
    def _transform(self) -> Array:
        return self._transforms[self.on_bounds]

    @property
    def bounded(self) -> bool:
        """Whether there are bounds."""
        return self._limits is not None

    def limit_steps(self, *, limited: bool) -> None:
        """Limit the steps of later runs, or not: ``Reduced.limit_steps``."""
        if isinstance(self._functional, HasTrials):
            self._functional.limit_steps(limited=limited)

    def limit(self, sign: float) -> float:
        """Return the bound of the held variable to one side."""
        if self._limits is None:
            return sign * math.inf
        return float(self._limits[0 if sign < 0 else 1][self.index])

    def place(self, value: float, others: Array) -> None:
        """Hold the variable at ``value`` and start from ``others`` [k-1], put within bounds."""
        self.held = value
        if self._limits is not None:
            low, high = (side[self._others] for side in self._limits)
            others = np.clip(others, low, high)
        # z of the point others = center + T z.
        self._start = np.asarray(np.linalg.solve(self._transform, others - self.center), float)

    def point(self, z: Array) -> Array:
        """Return x [k]."""
        return np.insert(self.center + self._transform @ z, self.index, self.held)

    def start(self) -> PETSc.Vec:
        """Return z [k-1] of the last ``place``, within bounds."""
        bounds = self._bounds()
        z = self._start if bounds is None else np.clip(self._start, *bounds)
        return self._vector(z)

    def bounds(self) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return the bounds of z."""
        bounds = self._bounds()
        return None if bounds is None else (self._vector(bounds[0]), self._vector(bounds[1]))

    def value(self, x: PETSc.Vec) -> float:
        """Return J."""
        return self._at(x, self._functional.value)

    def gradient(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return dJ/dz."""
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x: PETSc.Vec) -> tuple[float, PETSc.Vec]:
        """Return J and dJ/dz."""
        value, gradient = self._at(x, self._functional.value_and_gradient)
        # dJ/dz = T^T dJ/dx_others.
        slope = gather(gradient)[self._others] @ self._transform
        gradient.destroy()
        return value, self._vector(slope)

    def value_at(self, value: float) -> float:
        """Return J where there are no other variables."""
        self.held = value
        return self._evaluate(np.array([value]), self._functional.value)

    def _at(self, z: PETSc.Vec, call: Callable[[PETSc.Vec], T]) -> T:
        return self._evaluate(self.point(gather(z)), call)

    def _evaluate(self, point: Array, call: Callable[[PETSc.Vec], T]) -> T:
        if self._limits is not None and not self.on_bounds:
            low, high = self._limits
            if (point < low).any() or (point > high).any():
                raise SolveError("outside the bounds")  # the line search comes back
        x = scatter(point, self._template.duplicate())
        result = call(x)
        x.destroy()
        return result

    def _bounds(self) -> tuple[Array, Array] | None:
        if self._limits is None or not self.on_bounds:
            return None
        sizes = np.diag(self._transform)
        low, high = ((side[self._others] - self.center) / sizes for side in self._limits)
        return low, high

    def _vector(self, values: Array) -> PETSc.Vec:
        vec = PETSc.Vec().create(comm=self.comm)
        vec.setSizes(len(self._others))
        vec.setType(PETSc.Vec.Type.STANDARD)
        return scatter(values, vec)


def _transform(inner: Array, center: Array, *, diagonal: bool) -> Array:
    """Return T [k-1, k-1] for the covariance of the others; theirs on bounds is guessed."""
    # A parameter held on a bound has no covariance, but may leave the bound along the profile: it
    # needs some scale.
    spread = np.diag(inner)
    guess = 0.1 * np.maximum(np.abs(center), 1e-3)
    sizes = np.sqrt(np.where(spread > 0, spread, guess**2))
    if diagonal:
        return np.diag(sizes)
    # inner = D E E^T D with D the standard deviations and E = V sqrt(eigenvalues); scaled first,
    # so that units do not spoil the eigenvalues.
    eigenvalues, vectors = np.linalg.eigh(inner / np.outer(sizes, sizes))
    return sizes[:, None] * vectors * np.sqrt(np.maximum(eigenvalues, 1e-14))


def reoptimize(
    cut: ConditionalFunctional,
    value: float,
    others: Array,
    *,
    method: str | None,
    gradient_tolerance: float,
    max_iterations: int,
) -> tuple[float, Array] | str:
    """Return min J with the variable held at ``value``, and the others there, or why not."""
    if not others.size:
        try:
            return cut.value_at(value), others
        except SolveError as error:
            return _failure(error)

    def minimum() -> tuple[float, Array] | str:
        try:
            cut.place(value, others)
            result = minimize(
                cut,
                method=method,
                gradient_tolerance=gradient_tolerance,
                max_iterations=max_iterations,
            )
        except SolveError as error:
            return _failure(error)
        best = np.delete(cut.point(gather(result.x)), cut.index)
        result.x.destroy()
        # a line search that ends at rounding level has found what it can
        if not result.converged and result.gradient_norm > 100.0 * gradient_tolerance:
            return f"no minimum over the others: {result.message}"
        return result.value, best

    optimum = minimum()
    if isinstance(optimum, str) and cut.bounded and not cut.on_bounds:
        cut.on_bounds = True  # from here on: the path does not leave bounds soon
        optimum = minimum()
    return optimum


def _failure(error: SolveError) -> str:
    return f"the solve failed: {str(error).splitlines()[0]}"
