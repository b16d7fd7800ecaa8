"""The problem of ``forms`` and generalised Lotka-Volterra, by callbacks that take many points."""

import forms
import numpy as np

from daeosens import ODE
from daeosens.derivatives.residual_jacobian import residual, residual_adjoint
from daeosens.problem import Products


def rhs(t, u, p):
    x, y, z = np.moveaxis(u, -1, 0)
    rates = [
        -p[0] * x + p[1] * y * z + p[2] * np.sin(2 * t),
        x**2 * p[1] - p[2] * y * np.cos(z) + p[0] ** 2 * z,
        -z + p[0] * p[1] * x * np.exp(-t) - p[2] * y**3,
    ]
    return np.stack(rates, axis=-1)


def matrix(entries):
    """An array [..., rows, columns] of entries that are numbers or have leading axes."""
    rows = [np.stack(np.broadcast_arrays(*row), axis=-1) for row in entries]
    return np.stack(np.broadcast_arrays(*rows), axis=-2)


def rhs_u(t, u, p):
    x, y, z = np.moveaxis(u, -1, 0)
    return matrix(
        [
            [-p[0], p[1] * z, p[1] * y],
            [2 * x * p[1], -p[2] * np.cos(z), p[2] * y * np.sin(z) + p[0] ** 2],
            [p[0] * p[1] * np.exp(-t), -3 * p[2] * y**2, -1.0],
        ]
    )


def rhs_p(t, u, p):
    x, y, z = np.moveaxis(u, -1, 0)
    decay = np.exp(-t)
    return matrix(
        [
            [-x, y * z, np.sin(2 * t)],
            [2 * p[0] * z, x**2, -y * np.cos(z)],
            [p[1] * x * decay, p[0] * x * decay, -(y**3)],
        ]
    )


def apply_p(t, u, p, v):
    return rhs_p(t, u, p) @ v


def pull_p(t, u, p, w):
    """Sum over the points where there are several."""
    return np.einsum("...i,...ij->...j" if u.ndim == 1 else "...ki,kij->...j", w, rhs_p(t, u, p))


def hessian(t, u, p, w, du, dp):
    """The products of ``forms.rhs_hessian``, those in the parameters summed over the points."""
    with_points = [np.moveaxis(value, -1, 0) for value in (u, w, du)]
    by_u, by_p = forms.rhs_hessian(t, with_points[0], p, with_points[1], with_points[2], dp)
    by_p = np.stack(np.broadcast_arrays(*by_p), axis=-1)
    return np.moveaxis(by_u, 0, -1), by_p.reshape(-1, 3).sum(axis=0)


GIVEN = {
    "automatic": {},
    "matrices": {"jacobian": rhs_u, "jacobian_p": rhs_p},
    "products": {"jacobian": rhs_u, "jacobian_p": Products(apply_p, pull_p)},
    "second derivatives": {"jacobian": rhs_u, "jacobian_p": rhs_p, "hessian_product": hessian},
}
"""What is supplied beside the right-hand side."""

MASSES = {"rhs": None, "M": forms.MASS, "M singular": forms.SINGULAR}


def batched_problem(form, value):
    return ODE(rhs, 3, forms.NAMES, mass=MASSES[form], batched=True, **GIVEN[value])


def lotka_volterra(n, batched=True):
    """x_i' = x_i (r_i + sum_j A_ij x_j), with the parameters r and A."""

    def growth(u, p):
        return p[:n] + u @ p[n:].reshape(n, n).T

    def jacobian(t, u, p):
        matrix = u[..., :, None] * p[n:].reshape(n, n)
        matrix[..., range(n), range(n)] += growth(u, p)
        return matrix

    def pull(t, u, p, w):
        x, wx = np.atleast_2d(u), np.atleast_2d(w * u)
        by_a = wx.swapaxes(-1, -2) @ x
        return np.concatenate([wx.sum(-2), by_a.reshape(*by_a.shape[:-2], n * n)], axis=-1)

    by_p = Products(lambda t, u, p, v: u * growth(u, v), pull)
    return ODE(
        lambda t, u, p: u * growth(u, p),
        n,
        n + n * n,
        jacobian=jacobian,
        jacobian_p=by_p,
        batched=batched,
    )


def lotka_volterra_parameters(n):
    a = np.random.default_rng(n).normal(0.0, 0.5 / np.sqrt(n), (n, n))
    np.fill_diagonal(a, -1.0)
    return np.concatenate([np.full(n, 0.1), a.ravel()])


def residual_rows(run, objective, engine):
    """The Jacobian of the residuals in (u0, p), row by row."""
    weights = list(np.eye(residual(run, objective).size))
    rows = residual_adjoint(run, objective, weights, engine)
    return np.array([np.concatenate([lam.array, mu.array]) for lam, mu in rows])
