"""From plain functions to a model: traced, differentiated, compiled, and put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from daeosens.equations import ODE
from daeosens.errors import InputError
from daeosens.events import Event, EventLike, admit_events
from daeosens.native import Native
from daeosens.objective import Terminal
from daeosens.problem import AUTONOMOUS
from daeosens.tracing import parts
from daeosens.tracing.batch import FactoredBatch
from daeosens.tracing.factors import factored
from daeosens.tracing.model import Model
from daeosens.tracing.named import admit_shapes
from daeosens.tracing.tracer import Tracer, constant_matrix


def build(
    rhs: Callable[..., Any],
    size: int,
    parameters: int | Sequence[str] | Mapping[str, Any],
    mass: Any,
    events: Iterable[EventLike],
    running: Callable[..., Any] | None,
    breakpoints: npt.ArrayLike,
    comm: MPI.Comm,
) -> Model:
    """Return the model of ``daeosens.trace``, whose arguments these are."""
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
        raise InputError(f"size = {size!r}", expected="an integer of at least 1")
    tracer = Tracer(int(size), admit_shapes(parameters), comm)
    named = {f"event{k}": event for k, event in enumerate(admit_events(events))}
    graphs = [tracer.graph(rhs, "rhs", (tracer.size,))]
    for name, event in named.items():
        graphs += parts.event_graphs(tracer, event, name)
    if running is not None:
        graphs.append(tracer.graph(running, "running", ()))
    of_mass = tracer.mass_graph(mass) if callable(mass) else None
    if of_mass is not None and of_mass.ignores("p"):
        mass, of_mass = constant_matrix(of_mass), None
    inside = factored(graphs[0])
    more = () if inside is None else inside.functions
    ready = tracer.compiled([*graphs, *([] if of_mass is None else [of_mass])], more)
    masses: dict[str, Any] = {"mass": mass}
    if of_mass is not None:
        masses = parts.mass_callbacks(tracer, ready)
    problem = ODE(
        ready["rhs"],
        tracer.size,
        tracer.shapes.names,
        jacobian=ready["rhs_u"],
        jacobian_p=parts.by_parameters(tracer, "rhs", ready),
        rhs_t=ready.get("rhs_t", AUTONOMOUS),
        hessian_product=ready["rhs_hessian"],
        hessian_t=ready.get("rhs_hessian_t"),
        **masses,
        breakpoints=breakpoints,
        events=[parts.traced_event(tracer, event, name, ready) for name, event in named.items()],
    )

    if inside is not None and problem.batch is not None and problem.native:
        problem = replace(problem, batch=FactoredBatch(problem.batch, inside, ready))

    def trace_terminal(value: Callable[..., Any]) -> Terminal:
        return parts.terminal("value", tracer.compiled([tracer.graph(value, "value", ())]))

    def trace_event(event: Event) -> Event:
        made = tracer.compiled(parts.event_graphs(tracer, event, "event"))
        return parts.traced_event(tracer, event, "event", made)

    given: dict[str, Any] = {each.name: getattr(problem, each.name) for each in fields(problem)}
    products = {name: ready[f"rhs_{name}"] for name in ("pull", "push")}
    if all(isinstance(each, Native) for each in products.values()):
        given["native"] = {**problem.native, **products}
    return Model(
        **given,
        shapes=tracer.shapes,
        traced_running=None if running is None else parts.running("running", ready),
        trace_terminal=trace_terminal,
        trace_event=trace_event,
    )
