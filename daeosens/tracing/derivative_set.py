"""Compiled functions put together: equations, costs and events with all their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.costs.objective import Running, Terminal
from daeosens.errors import InputError
from daeosens.petsc.c_function import Native
from daeosens.petsc.vectors import Array
from daeosens.problem.branches import Branches
from daeosens.problem.equations import ODE
from daeosens.problem.event import Event
from daeosens.problem.matrices import Products
from daeosens.problem.problem import AUTONOMOUS, INDEPENDENT, Problem
from daeosens.tracing.derivatives import Graph
from daeosens.tracing.execution import called
from daeosens.tracing.tracer import Tracer

_OF_WHEN = ("when_u", "when_p", "when_t", "when_hessian", "when_hessian_t")
_OF_RESET = ("reset_u", "reset_p", "reset_t", "reset_hessian", "reset_hessian_t")


def terminal(name: str, ready: Mapping[str, Any], branches: Branches | None = None) -> Terminal:
    """Return a terminal cost, or the value of a parameter that changes."""
    by_t = ready.get(f"{name}_t", AUTONOMOUS)
    return Terminal(ready[name], value_t=by_t, branches=branches, **_derivatives(name, ready))


def running(name: str, ready: Mapping[str, Any], branches: Branches | None = None) -> Running:
    """Return a running cost."""
    by_t = ready.get(f"{name}_t", AUTONOMOUS)
    return Running(ready[name], density_t=by_t, branches=branches, **_derivatives(name, ready))


def _derivatives(name: str, ready: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "gradient_u": ready.get(f"{name}_u", INDEPENDENT),
        "gradient_p": ready.get(f"{name}_p", INDEPENDENT),
        "hessian_product": ready[f"{name}_hessian"],
        "hessian_t": ready.get(f"{name}_hessian_t", INDEPENDENT),
    }


def by_parameters(tracer: Tracer, name: str, ready: Mapping[str, Any]) -> Any:
    """Return the derivative of a function [n] in the parameters: a matrix, or its products."""
    if f"{name}_p" in ready:
        return ready[f"{name}_p"]
    return Products(
        called(ready[f"{name}_p_apply"], (tracer.size,)),
        called(ready[f"{name}_p_transpose"], (tracer.shapes.size,)),
    )


def problem_of_rhs(
    tracer: Tracer,
    ready: Mapping[str, Any],
    state_names: Sequence[str],
    events: Mapping[str, Event],
    breakpoints: npt.ArrayLike,
    masses: Mapping[str, Any],
) -> Problem:
    """Return M u' = f(t, u, p) of the functions ``rhs...``, with events of the names of theirs."""
    problem = ODE(
        ready["rhs"],
        state_names or tracer.size,
        tracer.shapes.names,
        jacobian=ready["rhs_u"],
        jacobian_p=by_parameters(tracer, "rhs", ready),
        rhs_t=ready.get("rhs_t", AUTONOMOUS),
        hessian_product=ready["rhs_hessian"],
        hessian_t=ready.get("rhs_hessian_t"),
        **masses,
        breakpoints=breakpoints,
        events=[traced_event(tracer, event, name, ready) for name, event in events.items()],
    )
    products = {name: ready[f"rhs_{name}"] for name in ("pull", "push")}
    # sweeps in C take products f_u^T w, f_p^T w and f_u v from these in the place of matrices
    if all(isinstance(product, Native) for product in products.values()):
        return replace(problem, native={**problem.native, **products})
    return problem


def mass_callbacks(tracer: Tracer, ready: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """Return M(p) and its derivatives, from those of M(p) v."""
    n, m = tracer.size, tracer.shapes.size
    matrix, by_p = called(ready["mass_u"], (n, n)), called(ready["mass_p"], (n, m))
    hessian = called(ready["mass_hessian"], (n,), (m,))
    zero = np.zeros(n)

    def second(v: Array, p: Array, w: Array, dv: Array, dp: Array) -> Any:
        return hessian(0.0, v, p, w, dv, dp)

    return {
        "mass": lambda p: matrix(0.0, zero, p),
        "mass_p": lambda p, v: by_p(0.0, v, p),
        "mass_hessian": second,
    }


def refuse_derivatives(event: Event) -> None:
    """Refuse an event with derivatives, which would not be used.

    Raises
    ------
    InputError
        Names them.
    """
    supplied = [name for name in (*_OF_WHEN, *_OF_RESET) if getattr(event, name) is not None]
    if supplied:
        raise InputError(
            f'event "{event.name}" of a traced model has {", ".join(supplied)}',
            expected="functions only: their derivatives are found",
            remedy="add_events(model, [event]) for events with callbacks of (t, u, p)",
        )


def event_graphs(tracer: Tracer, event: Event, name: str) -> list[Graph]:
    """Trace the functions of an event; ``name`` begins the names of all.

    Raises
    ------
    InputError
        One cannot be traced, or derivatives are given.
    """
    refuse_derivatives(event)
    graphs: list[Graph] = []
    if callable(event.when):
        graphs.append(tracer.graph(event.when, f"{name}_when", ()))
    if event.reset is not None:
        graphs.append(tracer.graph(event.reset, f"{name}_reset", (tracer.size,)))
    for k, change in enumerate(event.changes.values()):
        graphs.append(tracer.graph(change, f"{name}_change{k}", ()))
    return graphs


def surface(name: str, ready: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an event that are its function and the derivatives of that."""
    when = terminal(name, ready)
    return {
        "when": when.value,
        "when_u": when.gradient_u,
        "when_p": when.gradient_p,
        "when_t": when.value_t,
        "when_hessian": when.hessian_product,
        "when_hessian_t": when.hessian_t,
    }


def traced_event(tracer: Tracer, event: Event, name: str, ready: Mapping[str, Any]) -> Event:
    """Return the event with its functions replaced by the compiled ones."""
    parts: dict[str, Any] = {
        "changes": {
            parameter: terminal(f"{name}_change{k}", ready)
            for k, parameter in enumerate(event.changes)
        }
    }
    if callable(event.when):
        parts |= surface(f"{name}_when", ready)
    if event.reset is not None:
        reset = f"{name}_reset"
        parts |= {
            "reset": ready[reset],
            "reset_u": ready[f"{reset}_u"],
            "reset_p": by_parameters(tracer, reset, ready),
            "reset_t": ready.get(f"{reset}_t", AUTONOMOUS),
            "reset_hessian": ready[f"{reset}_hessian"],
            "reset_hessian_t": ready.get(f"{reset}_hessian_t"),
        }
    if callable(event.mode):
        mode = event.mode
        # called with numbers, not traced: it returns a name
        parts["mode"] = lambda t, u, p: mode(t, u, tracer.shapes.split(p))
    return replace(event, **parts)
