"""Linear systems of inner problems as graphs: changes of optimisers and of multipliers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from daeosens.tracing.casadi import casadi

TINY = 1e-200
"""Pivots that are zero are so large where a step is to lead down."""


@dataclass(frozen=True, eq=False)
class Kkt:
    """Linear systems of h + l g among free variables, with g active where ``active`` says so.

        [H  G^T] [change of y   ]     [by y]
        [G   0 ] [multipliers l ] = - [of g]

    H + G^T R G in the place of H changes nothing but the multipliers, and is positive definite at
    minimisers, if the numbers R are large: no exchanges of rows are needed.

    Attributes
    ----------
    point : list of casadi.SX
        (t, x, y, p).
    active, free : casadi.SX
        Constraints [m] and variables [n_y], 1 or 0.
    gradient : casadi.SX
        h_y [n_y].
    multipliers : casadi.SX
        l [m], the least squares solution of h_y + l g_y = 0.
    lagrangian : casadi.SX
        h + l g, with the symbols ``symbols`` for l.
    """

    point: list[Any]
    active: Any
    free: Any
    gradient: Any
    multipliers: Any
    lagrangian: Any
    symbols: Any
    rows: Any
    penalty: Any
    matrix: Any

    @classmethod
    def make(cls, point: list[Any], value: Any, limits: Any, active: Any, free: Any) -> Kkt:
        """Return the systems of h and g [m]."""
        y, m = point[2], limits.numel()
        gradient, symbols = casadi.gradient(value, y), casadi.SX.sym("l", m)
        # rows of constraints that are not active, and columns of variables at bounds, are zero
        rows = casadi.diag(active) @ casadi.jacobian(limits, y) @ casadi.diag(free)
        # ones on the diagonal where a row is zero keep the system regular, with the answer 0
        idle = casadi.diag(1.0 - active)
        multipliers = solve_symmetric(rows @ rows.T + idle, -rows @ gradient)[0]
        multipliers = casadi.densify(multipliers)  # where no constraint depends on y
        lagrangian = value + casadi.dot(symbols, limits)
        curvature = casadi.substitute(
            casadi.jacobian(casadi.gradient(lagrangian, y), y), symbols, multipliers
        )
        curvature = curvature * (free @ free.T)
        # R larger than the curvature, per square of the constraint's gradient
        size = 1.0 + sum(casadi.fabs(curvature[k]) for k in range(curvature.numel()))
        penalty = [10.0 * size / (1.0 - active[k] + casadi.sumsqr(rows[k, :])) for k in range(m)]
        held = casadi.diag(casadi.vertcat(*penalty)) if m else casadi.SX(0, 0)
        matrix = curvature + casadi.diag(1.0 - free) + rows.T @ held @ rows
        return cls(
            point, active, free, gradient, multipliers, lagrangian, symbols, rows, held, matrix
        )

    @property
    def stationary(self) -> Any:
        """h_y + l g_y: minus the multipliers of bounds."""
        y = self.point[2]
        return self._with_multipliers(casadi.gradient(self.lagrangian, y))

    def by(self, theta: Any) -> Any:
        """Return the derivative of that in t or x, with the multipliers as they are."""
        gradient = casadi.gradient(self.lagrangian, self.point[2])
        return self._with_multipliers(casadi.jacobian(gradient, theta))

    def value_by(self, theta: Any) -> Any:
        """Return the derivative of the least value in t or x."""
        return self._with_multipliers(casadi.jacobian(self.lagrangian, theta))

    def solve(self, by_y: Any, of_g: Any, *, downhill: bool = False) -> tuple[Any, Any]:
        """Return the change of y [n_y, k] and the pivots.

        ``downhill`` is as for ``solve_symmetric``.
        """
        of_g = casadi.diag(self.active) @ of_g
        # The penalty stands on both sides: G^T R (G dy + g) = 0 at the solution.
        right = -casadi.diag(self.free) @ by_y - self.rows.T @ self.penalty @ of_g
        # solved along with it: K^-1 G^T, of which the Schur complement is made
        right = casadi.horzcat(right, self.rows.T)
        whole, pivots = solve_symmetric(self.matrix, right, downhill=downhill)
        k, m = by_y.shape[1], self.active.numel()
        change, spread = whole[:, :k], whole[:, k:]
        if not m:
            return change, pivots
        # With d for the change so far, d - K^-1 G^T l is to satisfy G (d - K^-1 G^T l) = -g.
        schur = self.rows @ spread + casadi.diag(1.0 - self.active)
        multipliers, more = solve_symmetric(schur, of_g + self.rows @ change)
        return change - spread @ multipliers, casadi.vertcat(pivots, more)

    def _with_multipliers(self, graph: Any) -> Any:
        return casadi.substitute(graph, self.symbols, self.multipliers)


def solve_symmetric(matrix: Any, right: Any, *, downhill: bool = False) -> tuple[Any, Any]:
    """Return the solution [n, k] of a symmetric system as a graph, and its n pivots.

    Without exchanges: h_yy is positive definite where it matters, and the pivots tell.  Where it
    is not, ``downhill`` takes pivots without their signs, so that steps of Newton's method lead
    down, not up to a saddle (Gill and Murray, Math. Programming 7, 1974).
    """
    n = matrix.shape[0]
    if not n:
        return right, casadi.SX(0, 1)
    lower: Any = casadi.SX.eye(n)
    pivots: list[Any] = []
    used: list[Any] = []
    for j in range(n):
        # L D L^T: the pivots D are positive if and only if the matrix is positive definite
        pivots.append(matrix[j, j] - sum(lower[j, k] ** 2 * used[k] for k in range(j)))
        used.append(casadi.fmax(casadi.fabs(pivots[j]), TINY) if downhill else pivots[j])
        for i in range(j + 1, n):
            inner = sum(lower[i, k] * lower[j, k] * used[k] for k in range(j))
            lower[i, j] = (matrix[i, j] - inner) / used[j]
    rows: list[Any] = [right[i, :] for i in range(n)]
    for i in range(n):
        for k in range(i):
            rows[i] = rows[i] - lower[i, k] * rows[k]
    rows = [row / pivot for row, pivot in zip(rows, used, strict=True)]
    # back: L^T x = D^-1 z
    for i in reversed(range(n)):
        for k in range(i + 1, n):
            rows[i] = rows[i] - lower[k, i] * rows[k]
    return casadi.vertcat(*rows), casadi.vertcat(*pivots)
