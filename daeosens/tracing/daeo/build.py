"""DAEOs as problems: the equations, and what follows their runs, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from daeosens.costs.objective import Terminal
from daeosens.errors import InputError, UnsupportedError, require
from daeosens.petsc.vectors import Array, real_array
from daeosens.problem.event import Event, EventLike, admit_known_events
from daeosens.problem.layout import MOST_NAMED, admit_size
from daeosens.problem.monitor import START
from daeosens.tracing import derivative_set as parts
from daeosens.tracing.casadi import casadi
from daeosens.tracing.daeo import inner as graphs
from daeosens.tracing.daeo.active_set import STATE
from daeosens.tracing.daeo.constrained_search import ConstrainedSearch
from daeosens.tracing.daeo.courses import Layout
from daeosens.tracing.daeo.effort import SearchEffort
from daeosens.tracing.daeo.followed import Follower
from daeosens.tracing.daeo.inner import Inner, scalar, vector
from daeosens.tracing.daeo.intervals import IntervalFunction, interval_function
from daeosens.tracing.daeo.search import Search
from daeosens.tracing.daeo.switch_events import CHANGE, JUMP, Switches
from daeosens.tracing.daeo.tracker import Tracker
from daeosens.tracing.derivatives import Generated
from daeosens.tracing.model import DAEOModel
from daeosens.tracing.named_parameters import admit_shapes
from daeosens.tracing.tracer import Tracer


def build_daeo(
    f: Callable[..., Any],
    h: Callable[..., Any],
    constraints: Callable[..., Any] | None,
    size: tuple[int | Sequence[str], int | Sequence[str]],
    parameters: int | Sequence[str] | Mapping[str, Any],
    box: npt.ArrayLike,
    events: Iterable[EventLike],
    running: Callable[..., Any] | None,
    breakpoints: npt.ArrayLike,
    extension: Callable[..., Any] | None,
    effort: SearchEffort,
    comm: MPI.Comm,
) -> DAEOModel:
    """Return the model of ``daeosens.DAEO``, whose arguments these are."""
    n_x, n_y, names = _admit_sizes(size)
    require(effort, SearchEffort, "effort", "tracing.SearchEffort(boxes=100000)")
    if extension is not None and not callable(extension):
        raise InputError(f"extension = {extension!r}", expected="a function of boxes")
    bounds = _admit_box(box, n_y)
    if constraints is not None and extension is not None:
        raise UnsupportedError(
            "an extension of h beside constraints",
            expected="one of them: the search with constraints takes traced functions",
        )
    # the state is (x, y, number of the active set): y moves by the rate that keeps h_y = 0
    tracer = Tracer(n_x + n_y + 1, admit_shapes(parameters), comm)
    inner = graphs.make_inner(f, h, constraints, n_x, bounds, tracer)
    _refuse_flat(inner, names[n_x:-1] or [f"y[{k}]" for k in range(n_y)], constraints is not None)
    # event functions: h of the lowest minus h of another optimiser, and distances to constraints
    switching = [*graphs.jumps(inner), *graphs.changes(inner)]
    functions = [*graphs.equations(inner), *switching, graphs.followed(inner)]
    if running is not None:
        functions += graphs.scalar(inner, "running", running, tracer)
    named = {f"event{k}": event for k, event in enumerate(admit_own_events(events))}
    for name, event in named.items():
        functions += event_functions(inner, event, name, tracer)
    ready = tracer.executable(functions)
    problem = parts.problem_of_rhs(tracer, ready, names, named, breakpoints, {})

    def trace_terminal(value: Callable[..., Any]) -> Terminal:
        made = tracer.executable(graphs.scalar(inner, "value", value, tracer))
        return parts.terminal("value", made)

    def trace_event(event: Event) -> Event:
        (admitted,) = admit_own_events([event])
        made = tracer.executable(event_functions(inner, admitted, "event", tracer))
        return parts.traced_event(tracer, admitted, "event", made)

    density = None if running is None else parts.running("running", ready)
    attributes: dict[str, Any] = {
        attribute.name: getattr(problem, attribute.name) for attribute in fields(problem)
    }
    switches = Switches(tracer, {event.name: ready[event.name] for event in switching}, inner.n_c)
    follower = Follower(Layout(n_x, n_y, inner.n_c), bounds, ready)
    of_y = names[n_x:-1] or [f"y[{k}]" for k in range(n_y)]

    @cache
    def search() -> Search | ConstrainedSearch:
        # made when the first run asks for it: many a model is only looked at
        of_h = interval_function(h, n_x, n_y, parameters, extension=extension)
        if constraints is None:
            return Search(of_h, bounds)
        limits = [_limit(constraints, k) for k in range(inner.n_c - 2 * n_y)]
        of_g = [interval_function(g, n_x, n_y, parameters) for g in limits]
        return ConstrainedSearch([of_h, *of_g], bounds)

    def values(t: Array, x: Array, y: Array, p: Array) -> Array:
        made = search().functions
        of_h = made if isinstance(made, IntervalFunction) else made[0]
        points = np.concatenate(
            [t[:, None], x, y, np.broadcast_to(p, (len(t), len(p)))], axis=1, dtype=float
        )
        # intervals of no width: the middle of the enclosure is h to rounding
        return of_h.enclose(1, np.stack([points, points], axis=2))[0][:, 0].mean(axis=1)

    # each run has a tracker of its own, the search is shared
    attributes["monitor"] = lambda: Tracker(follower, search(), switches, effort, of_y)
    return DAEOModel(
        **attributes,
        shapes=tracer.shapes,
        traced_running=density,
        trace_terminal=trace_terminal,
        trace_event=trace_event,
        n_x=n_x,
        n_y=n_y,
        box=bounds,
        values=values,
    )


def _refuse_flat(inner: graphs.Inner, names: Sequence[str], constrained: bool) -> None:
    """Refuse an h that some y has no part in: none of their values is lower than others.

    A search would look for it until its budget is used up.  Constraints may determine some of them,
    but not all.
    """
    # columns of h_y that are structurally zero
    columns: Any = inner.h.jac_sparsity(0, 2).get_triplet()[1]  # in y
    for k, name in enumerate(names):
        if k not in columns and not (constrained and columns):
            raise InputError(
                f"h does not depend on {name}: each value of it is as low as any other",
                expected="an h that every y has a part in",
                remedy="h with a term of it, or a smaller size",
            )


def _limit(constraints: Callable[..., Any], k: int) -> Callable[..., Any]:
    """Return one of the constraints as a function."""

    def limit(t: Any, x: Any, y: Any, p: Any) -> Any:
        return constraints(t, x, y, p)[k]

    return limit


def _admit_sizes(size: Any) -> tuple[int, int, tuple[str, ...]]:
    """Return n_x, n_y and the names of all, empty where only numbers were given."""
    if not isinstance(size, (tuple, list)) or len(size) != 2 or isinstance(size[0], str):
        raise InputError(
            f"size = {size!r}",
            expected="numbers of x and of y, or their names",
            remedy='size=(1, 2), or size=(["x"], ["y", "z"])',
        )
    (n_x, of_x), (n_y, of_y) = admit_size(size[0], MOST_NAMED), admit_size(size[1], MOST_NAMED)
    if not (of_x or of_y):
        return n_x, n_y, ()
    of_x, of_y = (
        of_x or tuple(f"x{k}" for k in range(n_x)),
        of_y or tuple(f"y{k}" for k in range(n_y)),
    )
    return n_x, n_y, (*of_x, *of_y, STATE)


def _admit_box(box: npt.ArrayLike, n_y: int) -> Array:
    """Return the box [n_y, 2]."""
    bounds = real_array(box, "box")
    example = ", ".join(["(-1.0, 1.0)"] * n_y)
    if bounds.shape == (2,) and n_y == 1:
        bounds = bounds.reshape(1, 2)
    if bounds.shape != (n_y, 2):
        raise InputError(
            f"box has shape {bounds.shape}",
            expected=f"a lower and an upper bound for each of {n_y} y",
            remedy=f"box=[{example}]",
        )
    for k in range(n_y):
        low, high = float(bounds[k, 0]), float(bounds[k, 1])
        if not -np.inf < low < high < np.inf:
            raise InputError(
                f"box[{k}] = ({low:g}, {high:g})",
                expected="finite bounds, the lower one first: a search has to come to an end",
                remedy=f"box=[{example}]",
            )
    bounds = bounds.copy()
    bounds.setflags(write=False)
    return bounds


def admit_own_events(things: Iterable[EventLike]) -> tuple[Event, ...]:
    """Return what users give as a tuple of ``Event``.

    Raises
    ------
    InputError
        A mode, derivatives, or a name that the events of every DAEO have.
    """
    events = admit_known_events(things, ())
    for event in events:
        parts.refuse_derivatives(event)
        if event.name in (JUMP, CHANGE, START):
            raise InputError(
                f'an event of a DAEO is named "{event.name}"',
                expected=f'another name: at "{START}" y is found, at "{JUMP}" it jumps, and at '
                f'"{CHANGE}" it comes to a bound',
            )
        if event.mode is not None or event.within:
            raise InputError(
                f'event "{event.name}" of a DAEO names a mode',
                expected="one set of equations",
                remedy="changes={name: function} of a parameter that the equations take",
            )
    return events


def event_functions(inner: Inner, event: Event, name: str, tracer: Tracer) -> list[Generated]:
    """Return the functions of an event with all derivatives; ``name`` begins the names of all.

    The reset leaves what the state carries along of y: the tracker finds y afterwards.

    Raises
    ------
    InputError
        One of them cannot be traced.
    """
    functions: list[Generated] = []
    if callable(event.when):
        functions += scalar(inner, f"{name}_when", event.when, tracer)
    if event.reset is not None:

        def whole(x: Any) -> Any:
            # resets change x; y is found anew from there
            return casadi.vertcat(x, inner.u[inner.n_x :])

        functions += vector(inner, f"{name}_reset", event.reset, tracer, whole)
    for k, change in enumerate(event.changes.values()):
        functions += scalar(inner, f"{name}_change{k}", change, tracer)
    return functions
