"""diffrax: Kvaerno5; Tsit5 or Dopri8 where not stiff.  Reverse mode through the recorded steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import optimistix

from stiff import SYSTEMS, System, direction, second_order

jax.config.update("jax_enable_x64", val=True)


FEW = 30
"""Parameters for which forward mode is the faster one."""
REVERSE, FORWARD = diffrax.RecursiveCheckpointAdjoint(), diffrax.ForwardMode()


def rates(system: System, u: Any, p: Any) -> Any:
    """Return the right-hand side [n] as operations on arrays."""
    if system.tables is None:
        return jnp.stack(system.rhs(u, p))
    left, right, backward, net = system.tables
    one_more = jnp.append(u, 1.0)
    speeds = one_more[left].prod(axis=1) - backward * one_more[right].prod(axis=1)
    return net @ (p * speeds)


@cache
def compiled(name: str, *, tight: bool, expert: bool = False) -> tuple[Callable[..., Any], ...]:
    """Return all tasks as functions of p and the tolerance.

    ``expert``: Newton's method with one matrix a step until the controller's tolerances are met,
    where the default changes to smaller steps soon, and forward mode for few parameters.
    """
    system = SYSTEMS[name]
    start, scaled = jnp.array(system.start), jnp.array(system.parameters)
    explicit = diffrax.Dopri8() if tight else diffrax.Tsit5()
    newton = diffrax.with_stepsize_controller_tols(optimistix.Chord)() if expert else None
    implicit = diffrax.Kvaerno5(root_finder=newton) if newton else diffrax.Kvaerno5()
    solver = implicit if system.stiff else explicit
    few = expert and len(system.parameters) <= FEW
    term = diffrax.ODETerm(lambda _t, u, p: rates(system, u, p))

    def final(factors: Any, tolerance: Any, derivatives: Any = REVERSE) -> Any:
        controller = diffrax.PIDController(rtol=tolerance, atol=tolerance * system.scale)
        solution = diffrax.diffeqsolve(
            term,
            solver,
            0.0,
            system.end,
            1e-6 * system.end,
            start,
            args=scaled * factors,
            stepsize_controller=controller,
            adjoint=derivatives,
            max_steps=2**16,
        )
        return solution.ys[0]

    def first(factors: Any, tolerance: Any) -> Any:
        return final(factors, tolerance)[0]

    def along(factors: Any, tolerance: Any) -> Any:
        # forward twice: reverse over forward takes several times as long, for 25 parameters too
        moved = jnp.array(direction(system))
        return jax.jvp(lambda q: final(q, tolerance, FORWARD)[0], (factors,), (moved,))[1]

    if few:
        full = jax.jacfwd(lambda q, tolerance: final(q, tolerance, FORWARD))
        scalar = jax.jacfwd(lambda q, tolerance: final(q, tolerance, FORWARD)[0])
    else:
        full, scalar = jax.jacrev(final), jax.grad(first)
    return jax.jit(full), jax.jit(scalar), jax.jit(jax.jacfwd(along))


def tasks(setting: dict[str, Any], *, expert: bool = False) -> dict[str, Callable[[], Any]]:
    """Return all tasks."""
    system, tolerance = SYSTEMS[setting["problem"]], setting["tolerance"]
    full, scalar, hessian = compiled(
        setting["problem"], tight=not system.stiff and tolerance < 1e-7, expert=expert
    )
    factors = jnp.ones(len(system.parameters))
    timed = {
        "full": lambda: full(factors, tolerance).block_until_ready(),
        "scalar": lambda: scalar(factors, tolerance).block_until_ready(),
    }
    if second_order(system):
        timed["hessian"] = lambda: hessian(factors, tolerance).block_until_ready()
    return timed


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return all tasks with diffrax's defaults."""
    return tasks(setting)
