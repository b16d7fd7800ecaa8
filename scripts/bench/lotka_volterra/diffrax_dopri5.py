"""diffrax: Dopri5 or Tsit5, reverse mode through the recorded steps, compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import diffrax
import jax
import jax.numpy as jnp

from lotka_volterra import T, interactions, start

jax.config.update("jax_enable_x64", val=True)


@cache
def compiled(solver: Any, n: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return both tasks as functions of r and the tolerance, for a solver."""
    a = jnp.asarray(interactions(n))
    x0 = jnp.asarray(start(n)[0])
    term = diffrax.ODETerm(lambda _t, x, r: x * (r + a @ x))

    def final(r: Any, tolerance: Any) -> Any:
        found = diffrax.diffeqsolve(
            term,
            solver,
            0.0,
            T,
            None,
            x0,
            args=r,
            stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
            adjoint=diffrax.RecursiveCheckpointAdjoint(),
            max_steps=4096,
        )
        return found.ys[0]

    return (
        jax.jit(jax.jacrev(final)),
        jax.jit(jax.grad(lambda r, tolerance: final(r, tolerance).sum())),
    )


def tasks(solver: Any, setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks for a solver."""
    n, tolerance = setting["N"], setting["tolerance"]
    rates = jnp.asarray(start(n)[1])
    full, scalar = compiled(solver, n)
    return {
        "full": lambda: full(rates, tolerance).block_until_ready(),
        "scalar": lambda: scalar(rates, tolerance).block_until_ready(),
    }


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks by Dopri5."""
    return tasks(diffrax.Dopri5(), setting)
