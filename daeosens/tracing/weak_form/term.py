"""A traced function at quadrature points, between coefficients and their derivatives.

At a point the unknowns z of the function are the values of the fields, their derivatives along x,
those along y, parameter fields, the coordinates, the normal on a boundary, and the time: all that
varies but the numbers among the parameters.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from daeosens.petsc.vectors import Array
from daeosens.problem.batched.protocol import Batch
from daeosens.problem.branches import Along, Decided
from daeosens.problem.grids.finite_elements import QuadraturePoints


class Term:
    """A traced function g at quadrature points, times their weights.

    Parameters
    ----------
    points : QuadraturePoints
        Q of them.
    of_fields : sparse [Q, .] or None
        Values of parameter fields at the points from their coefficients.
    batch : Batch
        The function z [Q, Z] -> [Q, Z] with its derivatives.
    sizes : (int, int, int)
        Entries (1 + d) F of z that are fields and their derivatives, those and the parameter
        fields, and Z of them in all.
    affine : bool
        The derivative of the function is the same for every z.
    decide : callable, optional
        What the function compares.
    """

    def __init__(
        self,
        points: QuadraturePoints,
        of_fields: sparse.csr_array | None,
        batch: Batch,
        sizes: tuple[int, int, int],
        *,
        affine: bool,
        decide: Along | None,
    ) -> None:
        self.points, self.affine, self.decide = points, affine, decide
        self._of_fields, self._batch = of_fields, batch
        self._tests, self._inputs, self._size = sizes
        self._weights = points.weights[:, None]
        self._times = np.zeros(len(points.weights))  # not read: the time is an entry of z

    def at(self, t: float, coefficients: Array, of_fields: Array) -> Array:
        """Return z [Q, Z] for coefficients of unknowns [., F] and of parameter fields [., K]."""
        z = self.along(coefficients, of_fields)
        z[:, self._inputs : -1] = np.concatenate([self.points.x, self.points.normal], axis=1)
        z[:, -1] = t
        return z

    def along(self, coefficients: Array | None, of_fields: Array | None) -> Array:
        """Return the change Phi v [Q, Z] of z by that of coefficients v."""
        z = np.zeros((len(self._weights), self._size))
        if coefficients is not None:
            # values of all points come first, then all derivatives along x: side by side at each
            parts = np.split(self.points.rows @ coefficients, self.points.basis.shape[2])
            z[:, : self._tests] = np.hstack(parts)
        if self._of_fields is not None and of_fields is not None:
            z[:, self._tests : self._inputs] = self._of_fields @ of_fields
        return z

    def collected(self, at_points: Array) -> Array:
        """Return Phi^T v [., F] of v [Q, Z]."""
        parts = np.hsplit(at_points[:, : self._tests], self.points.basis.shape[2])
        return self.points.rows.T @ np.vstack(parts)

    def collected_fields(self, at_points: Array) -> Array:
        """Return the same [., K] for the parameter fields."""
        if self._of_fields is None:
            return np.zeros((0, 0))
        return self._of_fields.T @ at_points[:, self._tests : self._inputs]

    def values(self, z: Array, p: Array) -> Array:
        """Return W g [Q, Z]."""
        return self._weights * self._batch.rhs(self._times, z, p)

    def decided(self, z: Array, p: Array) -> Decided:
        """Return what decides [Q, B] in g at the points."""
        assert self.decide is not None
        return self.decide(self._times, z, p)

    def jacobian(self, z: Array, p: Array) -> Array:
        """Return W g_z [Q, Z, Z]."""
        return self._weights[:, None] * self._batch.jacobian(self._times, z, p)

    def element_matrices(self, z: Array, p: Array) -> Array:
        """Return Phi^T W g_z Phi of the elements [E, L, F, L, F]."""
        basis = self.points.basis
        elements, points, rows, functions = basis.shape
        count = self._tests // rows
        slopes = self.jacobian(z, p)[:, : self._tests, : self._tests]
        # g_z Phi at each point, then one product for each element
        by_field = np.moveaxis(slopes.reshape(elements, points, self._tests, rows, count), 4, 2)
        images = (by_field @ basis[:, :, None]).reshape(
            elements, points, count, rows, count, functions
        )
        ordered = np.ascontiguousarray(images.transpose(0, 1, 3, 4, 5, 2))
        tested = basis.reshape(elements, points * rows, functions).swapaxes(1, 2)
        blocks = tested @ ordered.reshape(elements, points * rows, count * functions * count)
        return blocks.reshape(elements, functions, count, functions, count)

    def push_p(self, z: Array, p: Array, dp: Array) -> Array:
        """Return W g_p dp [Q, Z]."""
        return self._weights * self._batch.push_parameters(self._times, z, p, dp[None])[0]

    def pull_p(self, z: Array, p: Array, w: Array) -> Array:
        """Return the sum of g_p^T W w [m] over the points."""
        return self._batch.pull_parameters(self._times, z, p, (self._weights * w)[None])[0]

    def second(self, z: Array, p: Array, w: Array, dz: Array, dp: Array) -> tuple[Array, Array]:
        """Return the derivatives of g_z^T W w [Q, Z] and of the sum of g_p^T W w [m]."""
        weighted = self._weights * w
        by_z, by_p = self._batch.hessian_product(self._times, z, p, weighted, dz[None], dp[None])
        return by_z[0], by_p[0]


def first_entry(z: Array) -> Array:
    """Return the direction [Q, Z] of the first entry: a scalar is the first of g."""
    return _unit(z, 0)


def time_entry(z: Array) -> Array:
    """Return the direction [Q, Z] of time, the last entry."""
    return _unit(z, -1)


def _unit(z: Array, entry: int) -> Array:
    direction = np.zeros_like(z)
    direction[:, entry] = 1.0
    return direction
