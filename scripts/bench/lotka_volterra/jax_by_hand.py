"""JAX, by hand: diffrax's forward steps, and the adjoint of all their stages in blocks.

The stages of all steps are computed again at once, the recurrence back is one scan that carries the
seeds of all outputs, and what the stages add to d / dA is one matrix product after it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

from lotka_volterra import T, interactions, rates, seeds, start, tasks
from lotka_volterra.diffrax_dopri5 import Parts

jax.config.update("jax_enable_x64", val=True)


@cache
def compiled(method: Any, most: int) -> Callable[..., Any]:
    """Return the derivatives as a function of A, r, x(0), the seeds and the tolerance."""
    tableau = method.tableau
    s = len(tableau.b_sol)
    inner, outer = np.zeros((s, s)), np.asarray(tableau.b_sol)
    for i, row in enumerate(tableau.a_lower):
        inner[i + 1, : i + 1] = row
    if not outer[-1]:  # the first stage of the next step
        s, inner, outer = s - 1, inner[:-1, :-1], outer[:-1]

    @jax.jit
    def derivatives(a: Any, r: Any, x0: Any, outputs: Any, tolerance: Any) -> Any:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda _t, x, _p: x * (r + a @ x)),
            method,
            0.0,
            T,
            None,
            x0,
            stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
            saveat=diffrax.SaveAt(t0=True, steps=True),
            max_steps=most,
        )
        times = jnp.minimum(solution.ts, T)  # rows beyond the last step are infinite
        sizes = jnp.diff(times)
        k = jnp.where(jnp.isfinite(solution.ys[:-1]), solution.ys[:-1], 0.0)
        stages, slopes = [k], []
        for i in range(s):
            slopes.append(stages[i] * (r + stages[i] @ a.T))
            if i + 1 < s:
                added = sum(inner[i + 1, j] * slopes[j] for j in range(i + 1))
                stages.append(k + sizes[:, None] * added)
        points = jnp.stack(stages, axis=1)
        growth = r + points @ a.T

        def back(carried: Any, step: Any) -> Any:
            h, x, g = step
            pulled: list[Any] = [None] * s
            moved: list[Any] = [None] * s
            for i in range(s - 1, -1, -1):
                weight = outer[i] * carried
                for j in range(i + 1, s):
                    if inner[j, i]:
                        weight = weight + inner[j, i] * pulled[j]
                weight = h * weight
                moved[i] = weight * x[i]
                pulled[i] = g[i] * weight + moved[i] @ a
            return carried + sum(pulled), jnp.stack(moved)

        _, moved = jax.lax.scan(back, outputs, (sizes, points, growth), reverse=True)
        steps, _, m, n = moved.shape
        by_a = moved.reshape(steps * s, m * n).T @ points.reshape(steps * s, n)
        return moved.sum(axis=(0, 1)), by_a.reshape(m, n, n), solution.stats["num_steps"]

    return derivatives


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return all tasks; arrays are as long as a first run tried steps."""
    n, tolerance = setting["N"], setting["tolerance"]
    method = diffrax.Tsit5() if tolerance > 1e-7 else diffrax.Dopri8()
    a, r, x0 = (jnp.asarray(values) for values in (interactions(n), rates(n), start(n)))
    trial = compiled(method, 4096)(a, r, x0, jnp.asarray(seeds("scalar", n)), tolerance)
    derivatives = partial(compiled(method, int(trial[2]) + 1), a, r, x0)

    def task(name: str) -> Any:
        by_r, by_a, _ = jax.block_until_ready(derivatives(jnp.asarray(seeds(name, n)), tolerance))
        return Parts(by_r[0], by_a[0]) if name == "scalar" else Parts(by_r, by_a)

    return {name: (lambda name=name: task(name)) for name in tasks(n)}
