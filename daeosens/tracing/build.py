"""From plain functions to a model: traced, differentiated, compiled, and put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from daeosens.costs.objective import Terminal
from daeosens.petsc.vectors import Array
from daeosens.problem.branches import Branches, Decided
from daeosens.problem.callback_guard import check_output
from daeosens.problem.delay_equations import (
    Delay,
    History,
    admit_delays,
    admit_history,
    delayed,
    equations_of_delays,
    listed_delays,
    refuse_signature,
)
from daeosens.problem.equations import DAE
from daeosens.problem.event import Event, EventLike, admit_events
from daeosens.problem.layout import MOST_NAMED, admit_size
from daeosens.problem.problem import AUTONOMOUS, Problem
from daeosens.tracing import derivative_set as parts
from daeosens.tracing.batched_model import FactoredBatch
from daeosens.tracing.decisions import decided_along
from daeosens.tracing.derivatives import Graph, of_scalars
from daeosens.tracing.matrix_factors import factored
from daeosens.tracing.model import Model
from daeosens.tracing.named_parameters import admit_shapes
from daeosens.tracing.tracer import Tracer, constant_matrix


def build(
    rhs: Callable[..., Any],
    size: int | Sequence[str],
    parameters: int | Sequence[str] | Mapping[str, Any],
    mass: Any,
    events: Iterable[EventLike],
    running: Callable[..., Any] | None,
    breakpoints: npt.ArrayLike,
    comm: MPI.Comm,
) -> Model:
    """Return the model of ``daeosens.trace``, whose arguments these are."""
    count, state_names = admit_size(size, MOST_NAMED)
    tracer = Tracer(count, admit_shapes(parameters), comm)
    named = _named(events)
    # all functions of a model are compiled together, in one library: one call of the compiler
    graphs = [tracer.graph(rhs, "rhs", (tracer.size,)), *_beside(tracer, named, running)]
    of_mass = tracer.mass_graph(mass) if callable(mass) else None
    # M that is not of p is a matrix of numbers: no derivatives of it, and one factorisation
    if of_mass is not None and of_mass.ignores("p"):
        mass, of_mass = constant_matrix(of_mass), None
    # products with large dense matrices inside of f, the weights of a network: f is taken apart at
    # them, since f_p in their entries is never needed as a matrix
    inside = factored(graphs[0])
    more = () if inside is None else inside.functions
    ready = tracer.compiled([*graphs, *([] if of_mass is None else [of_mass])], more)
    masses: dict[str, Any] = {"mass": mass}
    if of_mass is not None:
        masses = parts.mass_callbacks(tracer, ready)
    problem = parts.problem_of_rhs(tracer, ready, state_names, named, breakpoints, masses)
    if inside is not None and problem.batch is not None and problem.native:
        problem = replace(problem, batch=FactoredBatch(problem.batch, inside, ready))
    # f_u is the same everywhere: implicit steps of one size share a factorisation
    if graphs[0].affine:
        constant = {
            name: replace(getattr(problem, name), constant=True) for name in ("rhs_u", "residual_u")
        }
        problem = replace(problem, **constant)
    # where f decides, or follows the time, runs can be looked at for kinks and peaks: the function
    # itself is kept for that
    if graphs[0].branches or not graphs[0].ignores("t"):
        along = _decides_nothing
        if graphs[0].branches:
            scalars = of_scalars(graphs[0])
            known = scalars is not None
            along = decided_along([*scalars.point.values()], scalars.value) if known else None
        problem = replace(problem, branches=Branches(rhs, tracer.shapes.split, along))
    return replace(_model(tracer, problem, running, ready), graph=graphs[0])


def _decides_nothing(t: Array, _u: Array, _p: Array) -> Decided:
    """Return what decides in a function without branches."""
    none = np.zeros(0, dtype=bool)
    return np.empty((len(t), 0)), none, none


def build_residual(
    residual: Callable[..., Any],
    size: int | Sequence[str],
    parameters: int | Sequence[str] | Mapping[str, Any],
    events: Iterable[EventLike],
    running: Callable[..., Any] | None,
    breakpoints: npt.ArrayLike,
    comm: MPI.Comm,
) -> Model:
    """Return the model of ``daeosens.tracing.trace_residual``, whose arguments these are."""
    count, state_names = admit_size(size, MOST_NAMED)
    tracer = Tracer(count, admit_shapes(parameters), comm)
    named = _named(events)
    of_residual = tracer.graph(residual, "residual", (tracer.size,), of_rate=True)
    ready = tracer.compiled([of_residual, *_beside(tracer, named, running)])
    problem = DAE(
        ready["residual"],
        state_names or tracer.size,
        tracer.shapes.names,
        jacobian=ready["residual_u"],
        jacobian_udot=ready["residual_udot"],
        jacobian_p=parts.by_parameters(tracer, "residual", ready),
        residual_t=ready.get("residual_t", AUTONOMOUS),
        hessian_product=ready["residual_hessian"],
        hessian_t=ready.get("residual_hessian_t"),
        # F_udot that is constant lets steps treat F as M u' - f
        linear_in_udot=of_residual.constant_in_udot,
        breakpoints=breakpoints,
        events=[parts.traced_event(tracer, event, name, ready) for name, event in named.items()],
    )
    if of_residual.branches or not of_residual.ignores("t"):
        along = None if of_residual.branches else _decides_nothing
        problem = replace(problem, branches=Branches(residual, tracer.shapes.split, along))
    return _model(tracer, problem, running, ready)


def build_delayed(
    rhs: Callable[..., Any],
    size: int | Sequence[str],
    parameters: int | Sequence[str] | Mapping[str, Any],
    delays: Delay | Sequence[Delay],
    history: History,
    breakpoints: npt.ArrayLike,
    events: Iterable[EventLike],
    running: Callable[..., Any] | None,
    comm: MPI.Comm,
) -> Model:
    """Return the model of ``daeosens.trace`` with delays."""
    n, state_names = admit_size(size, MOST_NAMED)
    refuse_signature(rhs)
    tracer = Tracer(n, admit_shapes(parameters), comm)
    specifications = admit_delays(delays, tracer.shapes.names)
    d, points = len(specifications), n * (1 + len(specifications)) + 1

    # f(t, u, v_1, ..., v_d) of delayed states v is traced as a function of y = (t, u, v): its
    # Jacobian in y then has f_t, f_u and f_v as columns
    def function(_time: Any, y: Any, p: Any) -> Any:
        values = rhs(y[0], y[1 : n + 1], y[n + 1 :].reshape(d, n), p)
        return np.concatenate([np.zeros(1), values, np.zeros(d * n)])

    rates = build(function, points, parameters, None, (), None, (), comm)
    # rates of an ordinary model in y, evaluated at many points: delayed steps ask for these alone
    batch = rates.batch
    assert batch is not None

    def rate(y: Array, p: Array) -> Array:
        return check_output(batch.rhs(y[:1], y[None], p)[0, 1 : n + 1], "rhs", (n,), float(y[0]))

    def at_point(t: Any, v: Any, p: Any) -> Any:
        return rhs(t, v[:n], v[n:].reshape(d, n), p)

    at_point.__module__ = getattr(rhs, "__module__", "")
    branches = Branches(at_point, tracer.shapes.split)
    named = _named(events)
    graphs = _beside(tracer, named, running)
    made: dict[str, Any] = dict(tracer.compiled(graphs)) if graphs else {}
    traced = [parts.traced_event(tracer, event, name, made) for name, event in named.items()]
    equations = equations_of_delays(state_names or n, tracer.shapes.names, breakpoints, traced)
    past, view = admit_history(history, n), tracer.shapes.split
    problem = delayed(equations, batch, rate, specifications, past, view, branches)

    def lags(_t: Any, _u: Any, p: Any) -> Any:
        return np.array(
            [
                # once more as symbols, for derivatives of what ``separate`` takes apart
                raw(p) if callable(raw) else value(p) if callable(value) else value
                for raw, (_, value) in zip(listed_delays(delays), specifications, strict=True)
            ]
        )

    def trace_delayed() -> Any:
        def before(t: Any, _u: Any, p: Any) -> Any:
            return past(t, p)

        return (
            rates.graph,
            tracer.graph(lags, "delays", (d,)),
            tracer.graph(before, "history", (n,)),
        )

    return replace(_model(tracer, problem, running, made), trace_delayed=trace_delayed)


def _named(events: Iterable[EventLike]) -> dict[str, Event]:
    """Return the events, by what the names of their functions begin with."""
    return {f"event{k}": event for k, event in enumerate(admit_events(events))}


def _beside(
    tracer: Tracer, events: Mapping[str, Event], running: Callable[..., Any] | None
) -> list[Graph]:
    """Trace what belongs to a model beside its equations."""
    graphs = [
        graph for name, event in events.items() for graph in parts.event_graphs(tracer, event, name)
    ]
    return graphs if running is None else [*graphs, tracer.graph(running, "running", ())]


def _model(
    tracer: Tracer,
    problem: Problem,
    running: Callable[..., Any] | None,
    ready: Mapping[str, Any],
) -> Model:
    """Return a problem as a model, for which more can be traced."""

    def trace_terminal(value: Callable[..., Any]) -> Terminal:
        graph = tracer.graph(value, "value", ())
        # a cost without a corner needs no looks for kinks
        branches = Branches(value, tracer.shapes.split) if graph.corners else None
        return parts.terminal("value", tracer.compiled([graph]), branches)

    def trace_event(event: Event) -> Event:
        made = tracer.compiled(parts.event_graphs(tracer, event, "event"))
        return parts.traced_event(tracer, event, "event", made)

    density = None
    if running is not None:
        density = parts.running("running", ready, Branches(running, tracer.shapes.split))
    attributes: dict[str, Any] = {
        field.name: getattr(problem, field.name) for field in fields(problem)
    }
    return Model(
        **attributes,
        shapes=tracer.shapes,
        traced_running=density,
        trace_terminal=trace_terminal,
        trace_event=trace_event,
    )
