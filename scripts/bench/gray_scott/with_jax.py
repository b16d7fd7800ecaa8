"""JAX: reverse mode through the steps, compiled."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.sparse.linalg import bicgstab

from gray_scott import D1, D2, GAMMA, KAPPA, SIDE, parts, spots

jax.config.update("jax_enable_x64", val=True)


def laplacian(z: Any) -> Any:
    """Return L z [points, points]."""
    neighbours = sum(jnp.roll(z, shift, axis) for axis in (0, 1) for shift in (1, -1))
    return (z.shape[0] / SIDE) ** 2 * (neighbours - 4.0 * z)


RATES = (D1, D2, GAMMA, KAPPA)


def rhs(y: Any, p: Any) -> Any:
    """Return f, stacked [2, points, points]; rolling one component at a time is 12 times faster."""
    u, v = y
    d1, d2, gamma, kappa = p
    reaction = u * v * v
    by_u = d1 * laplacian(u) - reaction + gamma * (1.0 - u)
    by_v = d2 * laplacian(v) + reaction - (gamma + kappa) * v
    return jnp.stack([by_u, by_v])


def rk4(y: Any, p: Any, dt: float) -> Any:
    """Return the state after an explicit step."""
    k1 = rhs(y, p)
    k2 = rhs(y + 0.5 * dt * k1, p)
    k3 = rhs(y + 0.5 * dt * k2, p)
    k4 = rhs(y + dt * k3, p)
    return y + dt / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def theta_step(y: Any, p: Any, dt: float, theta: float) -> Any:
    """Return the state after an implicit step, by Newton and BiCGStab."""
    known = y + (1.0 - theta) * dt * rhs(y, p)

    def residual(z: Any) -> Any:
        return z - theta * dt * rhs(z, p) - known

    def unsolved(z: Any) -> Any:
        return jnp.linalg.norm(residual(z)) > 1e-10 * jnp.linalg.norm(residual(y))

    def improve(z: Any) -> Any:
        value, slope = jax.linearize(residual, z)
        return z - bicgstab(slope, value, tol=1e-10)[0]

    return jax.lax.while_loop(unsolved, improve, y)


def theta_ahead(y: Any, p: Any, dt: float, theta: float) -> tuple[Any, Any]:
    """Return the step, and what its adjoint needs."""
    z = theta_step(y, p, dt, theta)
    return z, (y, z, p)


def theta_back(dt: float, theta: float, kept: tuple[Any, Any, Any], w: Any) -> tuple[Any, Any]:
    """Return the transposed derivatives of the step, in its start and the rates, times w."""
    *states, p = kept
    pull_start, pull_end = (jax.vjp(rhs, y, p)[1] for y in states)
    solved = bicgstab(lambda s: s - theta * dt * pull_end(s)[0], w, tol=1e-10)[0]
    of_start, of_p = pull_start((1.0 - theta) * dt * solved)
    more = pull_end(theta * dt * solved)[1]
    return solved + of_start, jax.tree.map(jnp.add, of_p, more)


theta_step.defvjp(theta_ahead, theta_back)


def prepare(setting: dict[str, Any]) -> dict[str, Any]:
    """Return all tasks; the gradient as a whole is compiled as a whole."""
    method, dt = setting["method"], setting["dt"]

    def final(y: Any, p: Any = RATES) -> Any:
        def step(y: Any, _: None) -> tuple[Any, None]:
            if method == "rk4":
                return rk4(y, p, dt), None
            return theta_step(y, p, dt, 0.5 if method == "cn" else 1.0), None

        return jax.lax.scan(step, y, length=setting["steps"])[0]

    start = jnp.moveaxis(jnp.asarray(spots(setting["points"])), 2, 0)
    whole = {
        "forward": jax.jit(final),
        "gradient": jax.jit(jax.grad(lambda y: 0.5 * jnp.sum(final(y) ** 2))),
    }
    kept = jax.jit(lambda y: jax.vjp(final, y))
    pulled = jax.jit(lambda state, pull: pull(state)[0])

    def done(state: Any) -> Any:
        return jnp.moveaxis(state.block_until_ready(), 0, 2)

    split = parts(
        lambda: jax.block_until_ready(kept(start)),
        lambda evaluated: done(evaluated[0]),
        lambda evaluated: done(pulled(*evaluated)),
    )
    both = jax.jit(jax.grad(lambda y, p: 0.5 * jnp.sum(final(y, p) ** 2), argnums=(0, 1)))
    rates = tuple(map(jnp.asarray, RATES))
    return split | {
        **{name: lambda task=task: done(task(start)) for name, task in whole.items()},
        "gradient, rates too": lambda: jax.block_until_ready(both(start, rates))[1],
    }
