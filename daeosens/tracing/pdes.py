"""Well-known partial differential equations on grids, each a few lines over ``trace_stencil``.

In come a ``Grid`` and what ``trace_stencil`` takes besides (``dirichlet``, ``slope``, ...); out
comes a model whose parameters have the names in the first line of each function.  ``first_mode``
and ``spots`` are initial states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import product
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError, name_list, real_number, suggestion, together
from daeosens.petsc.vectors import read
from daeosens.problem.grids import Grid
from daeosens.problem.grids.structured import require_grid, require_uniform
from daeosens.tracing import trace_stencil
from daeosens.tracing.model import Parametrized
from daeosens.tracing.named_parameters import admit_shapes

RATES: Mapping[str, float] = MappingProxyType(
    {"D1": 8e-5, "D2": 4e-5, "gamma": 0.024, "kappa": 0.06}
)
"""Of Gray and Scott's spots that divide: diffusivities [length^2 / time], feed rate and removal
rate [1 / time]."""


def heat(grid: Grid, **options: Any) -> Parametrized:
    """Return u' = k div grad u; k, a value at each point by ``fields=["k"]``.

    Examples
    --------
    >>> grid = Grid(((0.0, 1.0), (0.0, 1.0)), (10, 10), "zero", comm=PETSc.COMM_SELF)
    >>> heat(grid).parameter_names
    ('k',)
    """
    numbers = [] if "fields" in options else ["k"]
    return _model(lambda _t, u, p: p.k * u.laplacian(), grid, numbers, options)


def first_mode(grid: Grid) -> PETSc.Vec:
    """Return sin(pi x') sin(pi y') [n], x' and y' running from 0 to 1 over the box.

    For the zero boundary an eigenvector of div grad to the value
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


def gray_scott(
    grid: Grid,
    D1: float = RATES["D1"],  # noqa: N803 (the field's letter)
    D2: float = RATES["D2"],  # noqa: N803
    gamma: float = RATES["gamma"],
    kappa: float = RATES["kappa"],
    *,
    parameters: Sequence[str] = (),
    **options: Any,
) -> Parametrized:
    """Return the reaction-diffusion system of Gray and Scott, of spots that grow and divide.

    u' = D1 div grad u - u v^2 + gamma (1 - u), v' = D2 div grad v + u v^2 - (gamma + kappa) v

    Parameters
    ----------
    grid : Grid
        With two unknowns a point, u and v.
    D1, D2, gamma, kappa : float
        The rates that stay fixed.
    parameters : sequence of str
        Names of the rates that are parameters instead, given to ``solve`` as p.  Without them
        derivatives in the initial state cost less.
    options
        As of ``trace_stencil``.

    Raises
    ------
    InputError
        Another dof, or unknown names.

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
    free = name_list(parameters, "parameters")
    complaints = [
        f'unknown parameter "{name}"; expected: {", ".join(RATES)}{suggestion(name, RATES)}'
        for name in free
        if name not in RATES
    ]
    if grid.dof != 2:
        complaints.append(f"a grid with dof = {grid.dof}; expected: dof = 2, for u and v")
    if complaints:
        raise together(complaints, heading="gray_scott")
    fixed = {
        name: real_number(value, name)
        for name, value in zip(RATES, (D1, D2, gamma, kappa), strict=True)
    }

    def rhs(_t: Any, u: Any, p: Any) -> Any:
        by_u, by_v, feed, removal = (
            getattr(p, name) if name in free else value for name, value in fixed.items()
        )
        a, b = u.center
        of_a, of_b = u.laplacian()
        reaction = a * b * b
        of_u = by_u * of_a - reaction + feed * (1.0 - a)
        return [of_u, by_v * of_b + reaction - (feed + removal) * b]

    return _model(rhs, grid, list(free), options)


def spots(grid: Grid, waves: float = 4.0) -> PETSc.Vec:
    """Return an initial state [n] of ``gray_scott``, spots in the middle of (0, 2.5) x (0, 2.5).

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
    values[:, :, 0] = 1.0 - 2.0 * v
    values[:, :, 1] = v
    return state


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


def vorticity(grid: Grid, **options: Any) -> Parametrized:
    """Return w' = -v . grad w + k div grad w, 0 = div grad psi + w, v = (psi_y, -psi_x); k.

    Incompressible flow in two dimensions: vorticity w, and stream function psi as an algebraic
    unknown, which ``consistent_state`` finds at the start.  Carried by Arakawa's differences, which
    keep the sums of w, w^2 and w psi but for k.  On the faces of a "neumann" grid w and psi are 0,
    walls that the fluid slides along, unless ``dirichlet`` or ``slope`` has something else; psi is
    0 at the first point of a periodic grid, where the mean of w has to be 0.
    """
    _require_unknowns(grid, 2, "vorticity")
    if len(grid.shape) != 2:
        raise InputError(f"vorticity on a grid of shape {grid.shape}", expected="two dimensions")
    require_uniform(grid, "vorticity")
    closed = set(grid.boundaries) == {"periodic"}
    if "neumann" in grid.boundaries and not {"dirichlet", "slope"} & options.keys():
        options["dirichlet"] = 0.0

    def rhs(_t: Any, u: Any, p: Any) -> Any:
        bend = u.laplacian()
        balance = bend[1] + u.center[0]
        if closed:  # psi is known but for a constant
            first: Any = 1.0
            for x, start, h in zip(u.x, grid.origin, u.spacing, strict=True):
                first = first * np.where(abs(x - start) < 0.5 * h, 1.0, 0.0)
            balance = balance - first * u.center[1] / (u.spacing[0] * u.spacing[1])
        return [p.k * bend[0] - _carried(u), balance]

    model = _model(rhs, grid, ["k"], {**options, "algebraic": [1]})
    if not closed:
        return model
    return _Closed(**{part.name: getattr(model, part.name) for part in fields(model)})


def _carried(u: Any) -> Any:
    """Return v . grad w in the nine-point form of Arakawa (J. Comput. Phys. 1, 1966)."""
    w, psi = ({at: u[at][k] for at in product((-1, 0, 1), repeat=2)} for k in (0, 1))

    def across(a: Any, first: Any, second: Any) -> Any:
        return a[first] - a[second]

    total: Any = across(psi, (0, 1), (0, -1)) * across(w, (1, 0), (-1, 0))
    total = total - across(psi, (1, 0), (-1, 0)) * across(w, (0, 1), (0, -1))
    for a, b, sign in ((psi, w, 1.0), (w, psi, -1.0)):
        for side in (-1, 1):
            along_x = b[side, 1] - b[side, -1]
            along_y = b[1, side] - b[-1, side]
            total = total + sign * side * (a[0, side] * along_y - a[side, 0] * along_x)
    return total / (12.0 * u.spacing[0] * u.spacing[1])


class _Closed(Parametrized):
    """Flow in a periodic box, around which there is no circulation."""

    def admit_state(self, u: Any, name: str = "u0") -> PETSc.Vec:
        """Return a copy of a state, checked."""
        state = super().admit_state(u, name)
        if name in ("du0", "udot"):  # no states, but directions
            return state
        w = read(state)[::2]
        total, size = state.comm.tompi4py().allreduce(np.array([w.sum(), abs(w).sum()]))
        if abs(total) > 1e-6 * size:
            raise InputError(
                f"the vorticity of {name} has the mean {2 * total / self.size:g} in a periodic box",
                expected="a mean of 0, as of every velocity that is periodic",
                remedy="the vorticity without its mean",
            )
        return state


def _model(rhs: Any, grid: Grid, parameters: Any, options: Mapping[str, Any]) -> Parametrized:
    traced = cast("Callable[..., Parametrized]", trace_stencil)
    return traced(rhs, grid, parameters, **options)


def _require_unknowns(grid: Grid, count: int, name: str) -> None:
    if grid.dof != count:
        raise InputError(
            f"{name} on a grid with dof = {grid.dof}", expected=f"{count} unknowns a point"
        )
