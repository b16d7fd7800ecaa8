"""The Gray-Scott reaction-diffusion system: spots that grow and divide.

u_t = D1 L u - u v^2 + gamma (1 - u),   v_t = D2 L v + u v^2 - (gamma + kappa) v,
L the five-point Laplacian.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError, is_one_of, name_list, real_number, suggestion, together
from daeosens.petsc.vectors import Array
from daeosens.problem.equations import ODE
from daeosens.problem.grids.stencil_matrix import Entry, fill_stencil_matrix, stencil_matrix
from daeosens.problem.grids.structured import (
    NEIGHBOURS,
    FivePoint,
    Grid,
    laplacian_weights,
    require_grid,
)
from daeosens.problem.matrices import Products
from daeosens.problem.problem import AUTONOMOUS, Problem

RATES: Mapping[str, float] = MappingProxyType(
    {"D1": 8e-5, "D2": 4e-5, "gamma": 0.024, "kappa": 0.06}
)
"""Diffusivities [length^2 / time], feed rate and removal rate [1 / time] of spots that divide."""

U, V = 0, 1
_DIFFUSION: tuple[Entry, ...] = tuple((c, c, offset) for c in (U, V) for offset in NEIGHBOURS)
_REACTION: tuple[Entry, ...] = tuple((row, column, (0, 0)) for row in (U, V) for column in (U, V))


def gray_scott(
    grid: Grid,
    D1: float = RATES["D1"],  # noqa: N803 (the field's letter)
    D2: float = RATES["D2"],  # noqa: N803
    gamma: float = RATES["gamma"],
    kappa: float = RATES["kappa"],
    *,
    parameters: Sequence[str] = (),
    jacobian: str = "assembled",
) -> Problem:
    """Describe the Gray-Scott system on a grid.

    Parameters
    ----------
    grid : Grid
        With two unknowns a point, u and v.
    D1, D2, gamma, kappa : float
        The rates that stay fixed.
    parameters : sequence of str
        Names of the rates that are parameters instead, given to ``solve`` as p.  Without them
        derivatives in the initial state cost less.
    jacobian : "assembled" or "products"
        A sparse matrix, or its products with vectors only.

    Returns
    -------
    Problem
        Collective on ``grid.comm``.

    Raises
    ------
    InputError
        Another dof, unknown names or words.

    Source
    ------
    Hundsdorfer, Verwer, Numerical Solution of Time-Dependent Advection-Diffusion-Reaction
    Equations, Springer 2003, page 21; with periodic boundaries also PETSc's tutorial ts/ex5.

    Examples
    --------
    >>> grid = Grid(((0.0, 2.5), (0.0, 2.5)), (16, 16), dof=2, comm=PETSc.COMM_SELF)
    >>> gray_scott(grid, parameters=["gamma", "kappa"]).parameter_names
    ('gamma', 'kappa')
    """
    require_grid(grid)
    parameters = name_list(parameters, "parameters")
    complaints = [
        f'unknown parameter "{name}"; expected: {", ".join(RATES)}{suggestion(name, RATES)}'
        for name in parameters
        if name not in RATES
    ]
    if grid.dof != 2:
        complaints.append(f"a grid with dof = {grid.dof}; expected: dof = 2, for u and v")
    if not is_one_of(jacobian, "assembled", "products"):
        complaints.append(f'jacobian = {jacobian!r}; expected: "assembled" or "products"')
    if complaints:
        raise together(complaints, heading="gray_scott")
    rates = {
        name: real_number(value, name)
        for name, value in zip(RATES, (D1, D2, gamma, kappa), strict=True)
    }
    terms = _Terms(grid, rates, tuple(parameters))
    assembled = jacobian == "assembled"
    return ODE(
        terms.rhs,
        state=grid.dm,
        parameters=tuple(parameters),
        jacobian=terms.jacobian if assembled else Products(terms.apply, terms.apply_transpose),
        jacobian_matrix=stencil_matrix(grid, _DIFFUSION + _REACTION) if assembled else None,
        jacobian_p=terms.jacobian_p,
        hessian_product=terms.hessian_product,
        rhs_t=AUTONOMOUS,
    )


def spots(grid: Grid, waves: float = 4.0) -> PETSc.Vec:
    """Return an initial state [n] with spots in the middle of the box (0, 2.5) x (0, 2.5).

    v = sin^2(waves pi x) sin^2(waves pi y) / 4 where 1 <= x, y <= 1.5, else 0; u = 1 - 2 v.

    Parameters
    ----------
    grid : Grid
        Where.
    waves : float
        4: the four spots of PETSc's tutorial; 2: one broad spot in their place.
    """
    require_grid(grid)
    if grid.dof != 2 or len(grid.shape) != 2:
        raise InputError(f"{grid}", expected="a rectangle with dof = 2, for u and v")
    waves = real_number(waves, "waves", least=-1e6, most=1e6)
    x, y = grid.coordinates()
    v = 0.25 * np.sin(waves * np.pi * x) ** 2 * np.sin(waves * np.pi * y) ** 2
    v[(x < 1.0) | (x > 1.5) | (y < 1.0) | (y > 1.5)] = 0.0
    state = grid.create_vec()
    values = grid.writable(state)
    values[:, :, U] = 1.0 - 2.0 * v
    values[:, :, V] = v
    return state


class _Terms:
    """The callbacks: f, f_u as a matrix and as products, f_p."""

    def __init__(self, grid: Grid, rates: Mapping[str, float], names: tuple[str, ...]) -> None:
        self._grid = grid
        self._stencil = FivePoint(grid)
        self._rates = [rates[name] for name in RATES]
        self._names = names
        self._positions = [list(RATES).index(name) for name in names]
        ny, nx, dof = grid.owned_shape
        # weights of the stencil, one row [nx, dof] of the grid each: broadcast at full speed
        self._along_x, self._along_y, self._centre = (np.empty((nx, dof)) for _ in range(3))
        self._planes = np.empty((len(_DIFFUSION) + len(_REACTION), ny, nx))
        self._work, self._more = np.empty((ny, nx)), np.empty((ny, nx))
        self._in_weights: tuple[float, ...] = ()
        self._in_planes: tuple[float, ...] = ()

    def rhs(self, _t: float, u: PETSc.Vec, p: Array, out: PETSc.Vec) -> None:
        gamma = self._set_weights(p)[2]
        # U' = D1 Lap U - U V^2 + gamma (1 - U), V' = D2 Lap V + U V^2 - (gamma + kappa) V
        f = self._grid.writable(out)
        ghosted = self._linear_part(u, f)
        v = ghosted[1:-1, 1:-1, V]
        reaction = np.multiply(v, v, out=self._work)
        reaction *= ghosted[1:-1, 1:-1, U]
        f[:, :, V] += reaction
        # the feed gamma (1 - U): its constant goes along with the reaction, its decay with the
        # stencil
        reaction -= gamma
        f[:, :, U] -= reaction

    def jacobian(self, _t: float, u: PETSc.Vec, p: Array, out: PETSc.Mat) -> None:
        rates = self._set_weights(p)
        planes = self._planes
        # diffusion is the same at all points of a row: its planes change with the rates alone
        if self._in_planes != rates:
            along_x, along_y = laplacian_weights(self._grid)
            for k, (component, _, (by_x, _)) in enumerate(_DIFFUSION):
                planes[k] = rates[component] * (along_x if by_x else along_y)
            self._in_planes = rates
        uu, uv, vu, vv = planes[len(_DIFFUSION) :]
        # planes of (v's equation by u, by v); those of u's equation are the negative, plus its own
        # decay
        self._reaction_slopes(u, vu, vv)
        np.subtract(self._centre[0, U], vu, out=uu)
        np.negative(vv, out=uv)
        vv += self._centre[0, V]
        fill_stencil_matrix(planes, out)

    def apply(self, _t: float, u: PETSc.Vec, p: Array, v: PETSc.Vec, out: PETSc.Vec) -> None:
        """Fill ``out`` with f_u v."""
        self._set_weights(p)
        product, direction = self._grid.writable(out), self._grid.values(v)
        self._linear_part(v, product)
        by_u, by_v = self._work, self._more
        self._reaction_slopes(u, by_u, by_v)
        # u v^2 along the direction: v^2 dU + 2 u v dV leaves U's equation and enters V's
        by_u *= direction[:, :, U]
        by_v *= direction[:, :, V]
        by_u += by_v
        product[:, :, U] -= by_u
        product[:, :, V] += by_u

    def apply_transpose(
        self, _t: float, u: PETSc.Vec, p: Array, w: PETSc.Vec, out: PETSc.Vec
    ) -> None:
        """Fill ``out`` with f_u^T w; the stencil is symmetric."""
        self._set_weights(p)
        product, weight = self._grid.writable(out), self._grid.values(w)
        self._linear_part(w, product)
        by_u, by_v = self._work, self._more
        self._reaction_slopes(u, by_u, by_v)
        # the reaction leaves U's equation and enters V's: both rows of f_u^T w have w_V - w_U
        difference = weight[:, :, V] - weight[:, :, U]
        by_u *= difference
        by_v *= difference
        product[:, :, U] += by_u
        product[:, :, V] += by_v

    def jacobian_p(self, _t: float, u: PETSc.Vec, _p: Array, out: PETSc.Mat) -> None:
        shape = self._grid.owned_shape
        ghosted = self._stencil.ghosted(u)
        inside = ghosted[1:-1, 1:-1]
        laplacian = np.empty(shape) if {"D1", "D2"} & set(self._names) else None
        if laplacian is not None:
            self._stencil.laplacian(ghosted, laplacian)
        columns: Any = out.getDenseArray()
        for k, name in enumerate(self._names):
            column = columns[:, k].reshape(shape)
            column[:, :, U] = 0.0
            if name == "gamma":
                np.subtract(1.0, inside[:, :, U], out=column[:, :, U])
            if laplacian is None or name in ("gamma", "kappa"):
                # V decays by gamma + kappa: the same column for both
                np.negative(inside[:, :, V], out=column[:, :, V])
            else:
                component = U if name == "D1" else V
                column[:, :, V] = 0.0
                column[:, :, component] = laplacian[:, :, component]

    def hessian_product(
        self,
        _t: float,
        u: PETSc.Vec,
        _p: Array,
        w: PETSc.Vec,
        du: PETSc.Vec,
        dp: Array,
        out: PETSc.Vec,
    ) -> Array:
        """Fill ``out`` with the derivative of f_u^T w along (du, dp), return that of f_p^T w."""
        state, weight, change = (self._grid.values(vec) for vec in (u, w, du))
        product = self._grid.writable(out)
        difference, bend = self._work, self._more
        np.subtract(weight[:, :, V], weight[:, :, U], out=difference)
        # d(v^2, 2 u v)/d(u, v): v^2 along du is 2 v dv, and 2 u v along (du, dv) is 2 (v du + u dv)
        difference *= 2.0
        np.multiply(state[:, :, V], change[:, :, U], out=bend)
        bend += state[:, :, U] * change[:, :, V]
        np.multiply(difference, bend, out=product[:, :, V])
        np.multiply(state[:, :, V], change[:, :, V], out=bend)
        np.multiply(difference, bend, out=product[:, :, U])
        if not self._names:
            return dp
        return self._add_rates(w, du, dp, product)

    def _add_rates(self, w: PETSc.Vec, du: PETSc.Vec, dp: Array, product: Array) -> Array:
        """Add to ``product`` what changes of the rates give; return the rows of the rates."""
        weight, change = self._grid.values(w), self._grid.values(du)
        laplacian, other = np.empty(weight.shape), np.empty(weight.shape)
        if {"D1", "D2"} & set(self._names):
            self._stencil.laplacian(self._stencil.ghosted(w), laplacian)
            self._stencil.laplacian(self._stencil.ghosted(du), other)
        # f is linear in the rates, so the mixed derivative is the term itself: D's along its
        # Laplacian, which is symmetric, decays along minus the component
        rows = np.zeros(len(self._names))
        for k, name in enumerate(self._names):
            if name in ("D1", "D2"):
                component = U if name == "D1" else V
                product[:, :, component] += dp[k] * laplacian[:, :, component]
                rows[k] = (weight[:, :, component] * other[:, :, component]).sum()
                continue
            for component in (U, V) if name == "gamma" else (V,):
                product[:, :, component] -= dp[k] * weight[:, :, component]
                rows[k] -= (weight[:, :, component] * change[:, :, component]).sum()
        return w.comm.tompi4py().allreduce(rows)

    def _reaction_slopes(self, u: PETSc.Vec, by_u: Array, by_v: Array) -> None:
        """Fill the derivatives of u v^2 in u and in v, [ny, nx]."""
        state = self._grid.values(u)
        np.multiply(state[:, :, V], state[:, :, V], out=by_u)
        np.multiply(state[:, :, U], state[:, :, V], out=by_v)
        by_v *= 2.0

    def _linear_part(self, u: PETSc.Vec, out: Array) -> Array:
        """Fill ``out`` [ny, nx, 2] with diffusion and decay; return the ghosted values."""
        ghosted = self._stencil.ghosted(u)
        self._stencil.apply(ghosted, self._along_x, self._along_y, self._centre, out)
        return ghosted

    def _set_weights(self, p: Array) -> tuple[float, ...]:
        """Bring the weights up to date; return all rates in the order of ``RATES``."""
        rates = list(self._rates)
        for position, value in zip(self._positions, p.tolist(), strict=True):
            rates[position] = value
        current = tuple(rates)
        # weights of the stencil depend on the rates alone, which a run does not change
        if current != self._in_weights:
            d1, d2, gamma, kappa = current
            along_x, along_y = laplacian_weights(self._grid)
            for component, diffusivity, decay in ((U, d1, gamma), (V, d2, gamma + kappa)):
                self._along_x[:, component] = diffusivity * along_x
                self._along_y[:, component] = diffusivity * along_y
                self._centre[:, component] = -2.0 * diffusivity * (along_x + along_y) - decay
            self._in_weights = current
        return current
