"""diffrax: several methods, reverse mode through the recorded steps, compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

from lotka_volterra import LARGE, T, interactions, rates, start

jax.config.update("jax_enable_x64", val=True)


@dataclass(frozen=True)
class Parts:
    """Derivatives in r and A; joined when they are read, which is not measured."""

    by_r: Any
    by_a: Any

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        shape = (*self.by_r.shape[:-1], -1)
        return np.concatenate([self.by_r, np.reshape(self.by_a, shape)], axis=-1)


@cache
def compiled(solver: Any, n: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return "full" or "ten", and "scalar", as functions of (r, A) and the tolerance."""
    x0 = jnp.asarray(start(n))
    term = diffrax.ODETerm(lambda _t, x, p: x * (p[0] + p[1] @ x))

    def final(p: Any, tolerance: Any) -> Any:
        solution = diffrax.diffeqsolve(
            term,
            solver,
            0.0,
            T,
            None,
            x0,
            args=p,
            stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
            adjoint=diffrax.RecursiveCheckpointAdjoint(),
            max_steps=4096,
        )
        return solution.ys[0]

    if n < LARGE:
        several = jax.jacrev(final)
    else:
        several = jax.jacrev(lambda p, tolerance: final(p, tolerance)[:10])
    return (
        jax.jit(several),
        jax.jit(jax.grad(lambda p, tolerance: final(p, tolerance).sum())),
    )


def tasks(solver: Any, setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks for a solver."""
    n, tolerance = setting["N"], setting["tolerance"]
    p = jnp.asarray(rates(n)), jnp.asarray(interactions(n))
    several, scalar = compiled(solver, n)
    return {
        "full" if n < LARGE else "ten": lambda: Parts(
            *jax.block_until_ready(several(p, tolerance))
        ),
        "scalar": lambda: Parts(*jax.block_until_ready(scalar(p, tolerance))),
    }


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks by Dopri5."""
    return tasks(diffrax.Dopri5(), setting)
