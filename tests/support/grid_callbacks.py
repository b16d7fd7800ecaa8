"""Gray-Scott in callbacks on whole arrays: a reference for functions of points that are traced."""

from __future__ import annotations

import numpy as np

from daeosens import ODE
from daeosens.petsc import read
from daeosens.problem.matrices import Products

U, V = 0, 1


def laplacian(grid, vec):
    """Return the five-point Laplacian [ny, nx, dof] at the rank's own points.  Collective."""
    local = grid.dm.createLocalVec()
    local.zeroEntries()  # what lies beyond a "zero" edge is never written
    grid.dm.globalToLocal(vec, local)
    ny, nx, dof = grid.owned_shape
    u = read(local).reshape(ny + 2, nx + 2, dof)
    hx, hy = grid.spacing
    centre = u[1:-1, 1:-1]
    # opposite neighbours are added first, so that a mirrored state has a mirrored result
    along_x = (u[1:-1, :-2] + u[1:-1, 2:] - 2 * centre) / hx**2
    return along_x + (u[:-2, 1:-1] + u[2:, 1:-1] - 2 * centre) / hy**2


def gray_scott(grid):
    """Return the problem, whose parameters are D1, D2, gamma and kappa."""

    def linear(vec, p, out):
        """Return ``out`` with diffusion and decay; both are symmetric."""
        d1, d2, gamma, kappa = p
        values, out = grid.values(vec), grid.writable(out)
        out[...] = laplacian(grid, vec) * [d1, d2] - values * [gamma, gamma + kappa]
        return out

    def slopes(vec):
        """Return the derivatives of u v^2 in u and in v."""
        u, v = np.moveaxis(grid.values(vec), 2, 0)
        return v**2, 2 * u * v

    def rhs(t, u, p, out):
        f = linear(u, p, out)
        a, b = np.moveaxis(grid.values(u), 2, 0)
        f[..., U] += p[2] - a * b**2
        f[..., V] += a * b**2

    def apply(t, u, p, v, out):
        product, change = linear(v, p, out), grid.values(v)
        by_u, by_v = slopes(u)
        reaction = by_u * change[..., U] + by_v * change[..., V]
        product[..., U] -= reaction
        product[..., V] += reaction

    def apply_transpose(t, u, p, w, out):
        product, weight = linear(w, p, out), grid.values(w)
        by_u, by_v = slopes(u)
        difference = weight[..., V] - weight[..., U]
        product[..., U] += by_u * difference
        product[..., V] += by_v * difference

    def columns(u):
        """Return f_p [ny, nx, 2, 4], but for the feed: f is linear in the rates."""
        values, bend = grid.values(u), laplacian(grid, u)
        f_p = np.zeros((*values.shape, 4))
        f_p[..., U, 0], f_p[..., V, 1] = bend[..., U], bend[..., V]
        f_p[..., 2] = -values
        f_p[..., V, 3] = -values[..., V]
        return f_p

    def jacobian_p(t, u, p, out):
        f_p = columns(u)
        f_p[..., U, 2] += 1.0
        out.getDenseArray()[...] = f_p.reshape(-1, 4)

    def hessian_product(t, u, p, w, du, dp, out):
        weight, change = grid.values(w), grid.values(du)
        a, b = np.moveaxis(grid.values(u), 2, 0)
        product = linear(w, dp, out)
        difference = 2 * (weight[..., V] - weight[..., U])
        product[..., U] += difference * b * change[..., V]
        product[..., V] += difference * (b * change[..., U] + a * change[..., V])
        rows = (columns(du) * weight[..., None]).sum(axis=(0, 1, 2))
        return w.comm.tompi4py().allreduce(rows)

    return ODE(
        rhs,
        state=grid.dm,
        parameters=["D1", "D2", "gamma", "kappa"],
        jacobian=Products(apply, apply_transpose),
        jacobian_p=jacobian_p,
        hessian_product=hessian_product,
        rhs_t="autonomous",
    )
