"""JAX with some of the states, from which the others are computed again: equinox's loop."""

from __future__ import annotations

from typing import Any

import equinox.internal as equinox
import jax
import jax.numpy as jnp

from gray_scott import spots
from gray_scott.with_jax import RATES, rk4


def prepare(setting: dict[str, Any]) -> dict[str, Any]:
    """Return the gradient, compiled as a whole."""
    steps, dt = setting["steps"], setting["dt"]

    def cost(y: Any) -> Any:
        def step(y: Any, _: None) -> tuple[Any, None]:
            return rk4(y, RATES, dt), None

        kept = min(setting["states"], steps)
        final, _ = equinox.scan(step, y, None, length=steps, kind="checkpointed", checkpoints=kept)
        return 0.5 * jnp.sum(final**2)

    gradient = jax.jit(jax.grad(cost))
    start = jnp.moveaxis(jnp.asarray(spots(setting["points"])), 2, 0)
    return {
        "gradient": lambda: jnp.moveaxis(gradient(start).block_until_ready(), 0, 2),
    }
