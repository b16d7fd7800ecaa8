"""Well-known partial differential equations on grids, each a few lines over ``trace_stencil``.

In come a ``Grid`` and what ``trace_stencil`` takes besides (``dirichlet``, ``slope``, ...); out
comes a model whose parameters have the names in the first line of each function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from daeosens.errors import InputError
from daeosens.problem.grids import Grid
from daeosens.tracing import trace_stencil
from daeosens.tracing.model import Parametrized
from daeosens.tracing.named_parameters import admit_shapes


def heat(grid: Grid, **options: Any) -> Parametrized:
    """Return u' = k div grad u; k."""
    return _model(lambda _t, u, p: p.k * u.laplacian(), grid, ["k"], options)


def reaction_diffusion(
    reaction: Callable[[Any, Any], Any],
    grid: Grid,
    parameters: int | Sequence[str] | Mapping[str, Any] = (),
    **options: Any,
) -> Parametrized:
    """u_i' = k_i div grad u_i + reaction(u, p)_i; k [dof], and those of the reaction.

    Parameters
    ----------
    reaction : callable
        Of the unknowns [dof] at a point, and the parameters.
    grid : Grid
    parameters : mapping of str to shape, or sequence of str
        Of the reaction.
    options
        As of ``trace_stencil``.
    """
    shapes = {"k": (grid.dof,), **admit_shapes(parameters).shapes}

    def rhs(_t: Any, u: Any, p: Any) -> Any:
        return p.k * u.laplacian() + np.stack(list(reaction(u.center, p)))

    return _model(rhs, grid, shapes, options)


def advection_diffusion(grid: Grid, **options: Any) -> Parametrized:
    """Return u' = div(k grad u - v u), central; k, v [dimensions]."""
    shapes = {"k": (), "v": (len(grid.shape),)}

    def flux(u: Any, p: Any) -> Any:
        return p.v[u.axis] * u.mean - p.k * u.gradient

    return _model(lambda _t, u, _p: -u.divergence(flux), grid, shapes, options)


def burgers(grid: Grid, **options: Any) -> Parametrized:
    """Return u' = -(u^2 / 2)_x + k div grad u, the flux that keeps sums of squares but for k; k."""

    def flux(u: Any, p: Any) -> Any:
        a, b = u.left, u.right
        carried = (a * a + a * b + b * b) / 6.0 if u.axis == 0 else 0.0
        return carried - p.k * u.gradient

    return _model(lambda _t, u, _p: -u.divergence(flux), grid, ["k"], options)


def allen_cahn(grid: Grid, **options: Any) -> Parametrized:
    """Return u' = eps^2 div grad u + u - u^3; eps."""

    def rhs(_t: Any, u: Any, p: Any) -> Any:
        return p.eps**2 * u.laplacian() + u.center - u.center**3

    return _model(rhs, grid, ["eps"], options)


def cahn_hilliard(grid: Grid, **options: Any) -> Parametrized:
    """Return u' = k div grad (u^3 - u - eps^2 div grad u); k, eps."""

    def potential(u: Any, p: Any) -> Any:
        return u.center**3 - u.center - p.eps**2 * u.laplacian()

    return _model(lambda _t, u, p: p.k * u.map(potential).laplacian(), grid, ["k", "eps"], options)


def shallow_water(grid: Grid, **options: Any) -> Parametrized:
    """Return h' = -div(h v), (h v)' = -div(h v v + g h^2 / 2); g; unknowns h, h v_x, h v_y.

    Rusanov's flux with a smooth bound of the speeds: of first order.  At walls:
    ``dirichlet={"x": [None, 0.0, None]}``.
    """
    _require_unknowns(grid, 1 + len(grid.shape), "shallow_water")

    def flow(q: Any, axis: int, g: Any) -> tuple[Any, Any]:
        v = q[1 + axis] / q[0]
        pressure = np.stack(
            [0.5 * g * q[0] ** 2 if k == 1 + axis else 0.0 * v for k in range(grid.dof)]
        )
        return v * q + pressure, v * v + g * q[0]

    def flux(u: Any, p: Any) -> Any:
        before, behind = u.left, u.right
        (left, a), (right, b) = flow(before, u.axis, p.g), flow(behind, u.axis, p.g)
        # (|v| + c)^2 <= 2 (v^2 + c^2), on each side
        return 0.5 * (left + right) - 0.5 * np.sqrt(2.0 * (a + b)) * (behind - before)

    return _model(lambda _t, u, _p: -u.divergence(flux), grid, ["g"], options)


def wave(grid: Grid, **options: Any) -> Parametrized:
    """Return u' = v, v' = c^2 div grad u; c; unknowns u, v."""
    _require_unknowns(grid, 2, "wave")

    def rhs(_t: Any, u: Any, p: Any) -> Any:
        return [u.center[1], p.c**2 * u.laplacian()[0]]

    return _model(rhs, grid, ["c"], options)


def kuramoto_sivashinsky(grid: Grid, **options: Any) -> Parametrized:
    """Return u' = -|grad u|^2 / 2 - div grad u - k (div grad)^2 u; k."""

    def rhs(_t: Any, u: Any, p: Any) -> Any:
        curvature = u.map(lambda u, _p: u.laplacian())
        slopes = sum(slope**2 for slope in u.gradient())
        return -0.5 * slopes - curvature.center - p.k * curvature.laplacian()

    return _model(rhs, grid, ["k"], options)


def _model(rhs: Any, grid: Grid, parameters: Any, options: Mapping[str, Any]) -> Parametrized:
    traced = cast("Callable[..., Parametrized]", trace_stencil)
    return traced(rhs, grid, parameters, **options)


def _require_unknowns(grid: Grid, count: int, name: str) -> None:
    if grid.dof != count:
        raise InputError(
            f"{name} on a grid with dof = {grid.dof}", expected=f"{count} unknowns a point"
        )
