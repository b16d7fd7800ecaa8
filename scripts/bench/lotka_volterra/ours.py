"""daeosens: rk5bs, discrete adjoint, a traced model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import daeosens as ds
from lotka_volterra import LARGE, T, interactions, rates, start


def ours(n: int) -> tuple[ds.tracing.Model, Any]:
    """Return the model and its parameters."""
    model = ds.trace(lambda _t, x, p: x * (p.r + p.A @ x), n, {"r": (n,), "A": (n, n)})
    return model, model.pack(r=rates(n), A=interactions(n))


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return all tasks."""
    n, tolerance = setting["N"], setting["tolerance"]
    model, p = ours(n)
    x0 = start(n)
    stepping = ds.Stepping((0.0, T), "rk5bs", rtol=tolerance, atol=tolerance)
    total = model.terminal(lambda _t, x, _p: x.sum())

    def run() -> ds.timestepping.Trajectory:
        # a stage of few unknowns takes longer to keep than to compute
        return ds.solve(model, x0, p, stepping, checkpoint="stages" if n > 12 else "states")

    scalar = {"scalar": lambda: ds.adjoint(run(), total).p}
    if n < LARGE:
        return {"full": lambda: ds.sensitivities(run(), with_respect_to=("p",)).p, **scalar}
    ten = [model.terminal(lambda _t, x, _p, i=i: x[i]) for i in range(10)]
    return {"ten": lambda: [row.p for row in ds.adjoint(run(), ten)], **scalar}
