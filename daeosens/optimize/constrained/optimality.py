"""How far a point is from a constrained minimum, in numbers that do not depend on units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daeosens.optimize.constrained.lagrangian import Lagrangian, Point
from daeosens.petsc.vectors import Array


@dataclass(frozen=True)
class Optimality:
    """How far a point with its multipliers is from a constrained minimum.

    Parameters
    ----------
    gradient_norm : float
        2-norm of x - P(x - dL/dx), L the Lagrangian, P the projection onto the bounds.
    stationarity : float
        The same with dL/dx relative to the largest of |dJ/dx|, |dJ/dx| at the start and
        |sum_j v_j dc_j/dx|.
    violation : float
        Largest distance of an output from its bounds, in the constraint's scale.
    complementarity : float
        Largest multiplier times distance from the bound it belongs to, relative to the same forces
        times max(1, |x0|).
    """

    gradient_norm: float
    stationarity: float
    violation: float
    complementarity: float


def scales(law: Lagrangian, point: Point) -> tuple[float, Array]:
    """Return the scale of J, and of the components [m], from the gradients at the start.

    A zero gradient says nothing; one so small that linearised feasibility lies more than
    1000 max(1, |x0|) away says too little.
    """
    # One reduction for |dJ/dx| and all |dc_j/dx|: rows 0 and 1 ... m of [1 + m, k_local].
    squares = np.vstack([point.gradient[None], point.jacobian]) ** 2
    norms = np.sqrt(law.comm.allreduce(squares.sum(axis=1)))
    size = law.size(point.x)
    # Positive where a component is outside of its bounds, by how much.
    distance = np.maximum(law.lower - point.outputs, point.outputs - law.upper)
    chosen = np.maximum(norms[1:] * size, 1e-3 * np.maximum(distance, 0.0))
    chosen = np.where(chosen > 0.0, chosen, 1.0)
    chosen = np.where(np.isnan(law.given_scale), chosen, law.given_scale)
    return float(norms[0] * size) or 1.0, chosen


def optimality(
    law: Lagrangian,
    point: Point,
    multipliers: Array,
    limits: tuple[Array, Array] | None,
    reference: tuple[float, float, Array],
) -> Optimality:
    """Measure a point.

    Parameters
    ----------
    law : Lagrangian
        What was evaluated.
    point : Point
        There.
    multipliers : array [m]
        v.
    limits : (array, array) or None
        Bounds of x [k_local].
    reference : (float, float, array [m])
        |dJ/dx| and max(1, |x|) at the start, scales of the components.
    """
    # At a minimum dJ/dx = -sum_j v_j dc_j/dx, so that both forces are equally large: the sum is
    # judged relative to the larger of them. |dJ/dx| of the start is a floor for problems whose
    # minimum is free, where both vanish.
    force, size, scale = reference
    pull = multipliers @ point.jacobian
    slope = point.gradient + pull
    sums = np.array([point.gradient @ point.gradient, pull @ pull])
    forces = max(force, *np.sqrt(law.comm.allreduce(sums)).tolist()) or 1.0
    norms = np.array(
        [float(np.sum(_projected(point.x, slope / by, limits) ** 2)) for by in (1.0, forces)]
    )
    norms = np.sqrt(law.comm.allreduce(norms))
    above, below = point.outputs - law.upper, law.lower - point.outputs
    violation = np.maximum(np.maximum(above, below), 0.0) / scale
    # The sign of v_j tells which bound pushes; an equality has no slack whatever its sign, and an
    # infinite bound has a v_j of 0, whose product would be NaN.
    slack: Array = np.where(multipliers > 0.0, np.abs(above), np.abs(below))
    slack[law.equality | (multipliers == 0.0)] = 0.0
    products: Array = np.abs(multipliers) * slack
    return Optimality(
        float(norms[0]),
        float(norms[1]),
        float(violation.max()),
        float(products.max() / (forces * size)),
    )


def _projected(x: Array, slope: Array, limits: tuple[Array, Array] | None) -> Array:
    """Return x - P(x - slope)."""
    if limits is None:
        return slope
    # Not by x - slope, in which a slope small beside x would be lost.
    return np.clip(slope, x - limits[1], x - limits[0])
