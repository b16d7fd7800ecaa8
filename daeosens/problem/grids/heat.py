"""The heat equation on a structured grid, with one diffusivity or a field of them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError, is_one_of
from daeosens.petsc.vectors import Array
from daeosens.problem.equations import ODE
from daeosens.problem.grids.stencil_matrix import fill_stencil_matrix, stencil_matrix
from daeosens.problem.grids.structured import (
    NEIGHBOURS,
    FivePoint,
    Grid,
    laplacian_weights,
    require_grid,
)
from daeosens.problem.matrices import Products
from daeosens.problem.problem import AUTONOMOUS, Problem

Diffusivity = Literal["number", "field"]


def heat(
    grid: Grid, *, diffusivity: Diffusivity = "number", jacobian: str = "assembled"
) -> Problem:
    """Describe u_t = a L u, L the five-point Laplacian.

    Parameters
    ----------
    grid : Grid
        With one unknown a point.
    diffusivity : "number" or "field"
        a is the one parameter "alpha", or a distributed parameter a(x) with one value a point, a
        vector of ``grid.create_vec()``: u_t = diag(a) L u [length^2 / time].
    jacobian : "assembled" or "products"
        A sparse matrix, or its products with vectors only.

    Returns
    -------
    Problem
        Collective on ``grid.comm``.

    Raises
    ------
    InputError
        Several unknowns a point, or an unknown word.

    Examples
    --------
    >>> grid = Grid(((0.0, 1.0), (0.0, 1.0)), (10, 10), "zero", comm=PETSc.COMM_SELF)
    >>> heat(grid).parameter_names
    ('alpha',)
    """
    require_grid(grid)
    if grid.dof != 1:
        raise InputError(f"a grid with dof = {grid.dof}", expected="dof = 1 for the heat equation")
    if not is_one_of(diffusivity, "number", "field"):
        raise InputError(f"diffusivity = {diffusivity!r}", expected='"number" or "field"')
    if not is_one_of(jacobian, "assembled", "products"):
        raise InputError(f"jacobian = {jacobian!r}", expected='"assembled" or "products"')
    terms = _Field(grid) if diffusivity == "field" else _Number(grid)
    assembled = jacobian == "assembled"
    return ODE(
        terms.rhs,
        state=grid.dm,
        parameters=terms.parameters,
        jacobian=terms.jacobian if assembled else Products(terms.apply, terms.apply_transpose),
        jacobian_matrix=stencil_matrix(grid, _ENTRIES) if assembled else None,
        jacobian_p=terms.jacobian_p,
        hessian_product=terms.hessian_product,
        rhs_t=AUTONOMOUS,
    )


def first_mode(grid: Grid) -> PETSc.Vec:
    """Return sin(pi x') sin(pi y') [n], x' and y' running from 0 to 1 over the box.

    For the zero boundary an eigenvector of L to the value
    -(4/hx^2) sin^2(pi hx'/2) - (4/hy^2) sin^2(pi hy'/2).
    """
    require_grid(grid)
    if len(grid.box) != 2:
        raise InputError(f"{grid}", expected="a rectangle")
    (west, east), (south, north) = grid.ends
    x, y = grid.coordinates()
    shape = np.sin(np.pi * (x - west) / (east - west))
    shape *= np.sin(np.pi * (y - south) / (north - south))
    vec = grid.create_vec()
    grid.writable(vec)[...] = shape[:, :, None]
    return vec


_ENTRIES = ((0, 0, (0, 0)), *((0, 0, offset) for offset in NEIGHBOURS))


class _Number:
    """u_t = alpha L u."""

    parameters = ("alpha",)

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._stencil = FivePoint(grid)
        self._weights = _weights(grid)

    def rhs(self, _t: float, u: PETSc.Vec, p: Array, out: PETSc.Vec) -> None:
        self._laplacian(u, out)
        out.scale(p[0])

    def jacobian(self, _t: float, _u: PETSc.Vec, p: Array, out: PETSc.Mat) -> None:
        ny, nx, _ = self._grid.owned_shape
        fill_stencil_matrix(np.repeat(p[0] * self._weights, ny * nx), out)

    def apply(self, t: float, _u: PETSc.Vec, p: Array, v: PETSc.Vec, out: PETSc.Vec) -> None:
        self.rhs(t, v, p, out)

    # L is symmetric on a grid of equal spacings with these boundaries
    apply_transpose = apply

    def jacobian_p(self, _t: float, u: PETSc.Vec, _p: Array, out: PETSc.Mat) -> None:
        ghosted = self._stencil.ghosted(u)
        columns: Any = out.getDenseArray()
        column = columns[:, 0].reshape(self._grid.owned_shape)
        self._stencil.laplacian(ghosted, column)

    def hessian_product(
        self,
        _t: float,
        _u: PETSc.Vec,
        _p: Array,
        w: PETSc.Vec,
        du: PETSc.Vec,
        dp: Array,
        out: PETSc.Vec,
    ) -> Array:
        self._laplacian(du, out)
        # f = alpha L u is bilinear: w^T f_up = w^T L du, and f_uu is zero
        slope: Any = w.dot(out)
        self._laplacian(w, out)
        out.scale(dp[0])
        return np.array([slope])

    def _laplacian(self, u: PETSc.Vec, out: PETSc.Vec) -> None:
        self._stencil.laplacian(self._stencil.ghosted(u), self._grid.writable(out))


class _Field:
    """u_t = diag(a) L u."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._stencil = FivePoint(grid)
        self._weights = _weights(grid)
        self._work = grid.create_vec()
        self.parameters = grid.create_vec()
        self.jacobian_p = Products(self._scaled_by_laplacian, self._scaled_by_laplacian)

    def rhs(self, _t: float, u: PETSc.Vec, a: PETSc.Vec, out: PETSc.Vec) -> None:
        self._laplacian(u, out)
        out.pointwiseMult(a, out)

    def jacobian(self, _t: float, _u: PETSc.Vec, a: PETSc.Vec, out: PETSc.Mat) -> None:
        fill_stencil_matrix(np.outer(self._weights, self._grid.values(a)), out)

    def apply(self, t: float, _u: PETSc.Vec, a: PETSc.Vec, v: PETSc.Vec, out: PETSc.Vec) -> None:
        self.rhs(t, v, a, out)

    def apply_transpose(
        self, _t: float, _u: PETSc.Vec, a: PETSc.Vec, w: PETSc.Vec, out: PETSc.Vec
    ) -> None:
        # (diag(a) L)^T w = L (a w)
        self._work.pointwiseMult(a, w)
        self._laplacian(self._work, out)

    def hessian_product(
        self,
        _t: float,
        _u: PETSc.Vec,
        _a: PETSc.Vec,
        w: PETSc.Vec,
        du: PETSc.Vec,
        da: PETSc.Vec,
        out_u: PETSc.Vec,
        out_a: PETSc.Vec,
    ) -> None:
        # the derivatives of f_u^T w = L (a w) along da, and of f_a^T w = w L u along du
        self._work.pointwiseMult(da, w)
        self._laplacian(self._work, out_u)
        self._laplacian(du, out_a)
        out_a.pointwiseMult(w, out_a)

    def _scaled_by_laplacian(
        self, _t: float, u: PETSc.Vec, _a: PETSc.Vec, v: PETSc.Vec, out: PETSc.Vec
    ) -> None:
        """Fill ``out`` with diag(L u) v: f_p is diagonal."""
        self._laplacian(u, out)
        out.pointwiseMult(v, out)

    def _laplacian(self, u: PETSc.Vec, out: PETSc.Vec) -> None:
        self._stencil.laplacian(self._stencil.ghosted(u), self._grid.writable(out))


def _weights(grid: Grid) -> Array:
    """Return the weights of L in the order of ``_ENTRIES`` [5]."""
    along_x, along_y = laplacian_weights(grid)
    return np.array([-2.0 * (along_x + along_y), along_x, along_x, along_y, along_y])
