"""Equations with an optimisation problem inside."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy.typing as npt
from mpi4py import MPI

from daeosens.petsc.ranks import agree
from daeosens.problem.event import EventLike
from daeosens.tracing.daeo.effort import SearchEffort
from daeosens.tracing.model import (
    DAEOModel,
    LinearDAEOModel,
)
from daeosens.tracing.needed import in_order, needed


def DAEO(  # noqa: N802 (a noun, like ODE)
    f: Callable[..., Any],
    h: Callable[..., Any],
    size: tuple[int | Sequence[str], int | Sequence[str]],
    parameters: int | Sequence[str] | Mapping[str, Any] = (),
    *,
    box: npt.ArrayLike,
    constraints: Callable[..., Any] | None = None,
    events: Iterable[EventLike] = (),
    running: Callable[..., Any] | None = None,
    breakpoints: npt.ArrayLike = (),
    extension: Callable[..., Any] | None = None,
    effort: SearchEffort | None = None,
    comm: MPI.Comm = MPI.COMM_WORLD,
) -> DAEOModel:
    """Describe x' = f(t, x, y, p), where y minimises h(t, x, y, p) over a box.

    Each function is called once with symbols, as those of ``trace``.  The unknowns are u = (x, y,
    active set): y follows a local optimiser by dy/dt = -h_yy^-1 (h_yx x' + h_yt) among those
    variables that no bound of the box holds (the event "active set" changes which they are, and
    the last unknown is their number, see ``DAEOModel``), and wherever f or a cost
    needs the optimiser it is found from y by Newton's method to rounding.  So every method of an
    ``ODE`` can be used, explicit or implicit, and keeps its order.  What follows a run knows all
    local optimisers; where another one becomes the lowest, y jumps to it (the event "jump").  A run
    begins at the global optimiser: the start is x alone.  Collective on ``comm``.

    Parameters
    ----------
    f : callable
        ``f(t, x, y, p) -> array [n_x]``, with the parameters as for ``trace``.
    h : callable
        ``h(t, x, y, p) -> number``, twice differentiable in y.
    size : (int or sequence of str, int or sequence of str)
        How many x and y, or their names.
    parameters : mapping of str to shape, int or sequence of str
        As for ``trace``.
    box : array_like [n_y, 2]
        Lower and upper bound of each y.
    constraints : callable, optional
        ``(t, x, y, p) -> array [m]``, values that y keeps from being above 0, twice differentiable;
        2 n_y + m at most 50.
    events : sequence of Event
        As for ``trace``, but their functions take (t, x, y, p), and a reset returns x alone.  Where
        one changes x or parameters, the global optimiser is searched for again.
    running : callable, optional
        ``(t, x, y, p) -> number``, the density of the cost ``model.running``.
    breakpoints : array_like [K], optional
        As for ``ODE``.
    extension : callable, optional
        Your own enclosures of h and its derivatives in y over boxes, in the place of those that are
        made from h: ``extension`` of ``tracing.daeo.intervals.interval_function``.  Not with
        ``constraints``.
    effort : SearchEffort, optional
        How much is searched and proven along a run, where that is not to be found by itself.
    comm : MPI.Comm, optional
        As for ``trace``.

    Returns
    -------
    DAEOModel
        A ``Problem``.  ``terminal(function)`` makes costs of functions (t, x, y, p).

    Raises
    ------
    InputError
        As ``trace``; a box that is none.

    Source
    ------
    docs/daeo.md.

    Examples
    --------
    >>> import numpy as np
    >>> import daeosens as ds
    >>> def f(t, x, y, p):
    ...     return -(p.rate + y) * x
    >>> def h(t, x, y, p):
    ...     return (1.0 - y[0] ** 2) ** 2 - (x[0] - 0.5) * np.sin(0.5 * np.pi * y[0])
    >>> model = ds.DAEO(f, h, size=(1, 1), parameters=["rate"], box=[(-6.0, 6.0)])
    >>> run = ds.solve(model, [1.0], [2.0], ds.Stepping((0.0, 1.0), "rk6vr", rtol=1e-10))
    >>> float(run.u[-1, 0].round(9))
    0.231749526
    >>> ds.adjoint(run, ds.costs.EventTime("jump")).p.round(6)
    array([-0.077016])
    """
    agree(
        comm,
        "DAEO",
        size=size,
        parameters=in_order(parameters),
        box=box,
        constraints=constraints,
        running=running,
        breakpoints=breakpoints,
        effort=effort,
    )
    build = needed("daeo.build").build_daeo
    model: DAEOModel = build(
        f,
        h,
        constraints,
        size,
        parameters,
        box,
        events,
        running,
        breakpoints,
        extension,
        SearchEffort() if effort is None else effort,
        comm,
    )
    return model


def LinearDAEO(  # noqa: N802 (a noun, like ODE)
    f: Callable[..., Any],
    a: Any,
    objectives: Sequence[Any],
    bounds: Callable[..., Any],
    size: tuple[int | Sequence[str], int | Sequence[str]],
    parameters: int | Sequence[str] | Mapping[str, Any] = (),
    *,
    lower: npt.ArrayLike = 0.0,
    upper: npt.ArrayLike = math.inf,
    b: npt.ArrayLike | None = None,
    events: Iterable[EventLike] = (),
    running: Callable[..., Any] | None = None,
    comm: MPI.Comm = MPI.COMM_WORLD,
) -> LinearDAEOModel:
    """Describe x' = f(t, x, v, p), where v solves a linear programme with bounds that move.

    ``maximise c_1 . v, then c_2 . v, ...; A v = b, lower <= v <= upper``, such as dynamic flux
    balance: v are the fluxes of a metabolism, A its stoichiometric matrix, and uptakes are limited
    by what is in the medium.  While one basis is optimal, flows are affine in the bounds: f is an
    ordinary function, compiled, and no programme is solved.  Each basis is a mode of the problem;
    it changes by the event "basis", where a flow comes to a bound, located like any other, and a
    step of the dual simplex method gives the next one.  So methods keep their order, and all
    derivatives go through the changes.  HiGHS finds the first basis, and that after an event that
    changes the state.  Collective on ``comm``.

    Parameters
    ----------
    f : callable
        ``f(t, x, v, p) -> array [n_x]``, with the flows as ``v.name``, ``v["name"]`` or ``v[k]``,
        and the parameters as for ``trace``.
    a : array_like or sparse matrix [m, n_v]
        A.  Rows may depend on each other.
    objectives : sequence
        What is maximised, the most important first, each among the optima of those before: a flow,
        ``{flow: weight}``, or weights [n_v].  They have to leave no choice of the flows in f.
    bounds : callable
        ``bounds(t, x, p) -> {flow: (lower, upper)}``, of those flows whose bounds depend on
        something.  They have to be continuous along the run but for ``events``; a state that ends
        at zero may end a little below: ``np.maximum(x[0], 0.0)``.
    size : (int or sequence of str, int or sequence of str)
        How many states and flows, or their names.
    parameters : mapping of str to shape, int or sequence of str
        As for ``trace``.
    lower, upper : float or array_like [n_v], optional
        Bounds of the other flows; may be infinite.
    b : array_like [m], optional
        Zero by default.
    events : sequence of Event
        As for ``trace``.  Where one changes the state, the basis after it is found anew.
    running : callable, optional
        ``(t, x, p) -> number``, the density of the cost ``model.running``.
    comm : MPI.Comm, optional
        As for ``trace``.

    Returns
    -------
    LinearDAEOModel
        A ``Problem``.  ``model.flows(run)`` are all flows along a run, ``run.report`` tells of the
        bases.

    Raises
    ------
    InputError
        As ``trace``; arguments that do not fit together.
    UnsupportedError
        HiGHS is not there.

    Notes
    -----
    ``solve`` raises a ``SolveError`` where the programme is infeasible or unbounded, with the time,
    the flow and its bound, and where flows in f are not unique; ``error.run`` is the run up to
    there.  A bound that no flows can keep may be passed by 1e-7.

    Source
    ------
    docs/flux_balance.md; Gal, Postoptimal Analyses, Parametric Programming, and Related Topics,
    1995; Hoeffner, Harwood, Barton, A reliable simulator for dynamic flux balance analysis,
    Biotechnology and Bioengineering 110, 2013.

    Examples
    --------
    >>> import numpy as np
    >>> import daeosens as ds
    >>> def f(t, x, v, p):
    ...     return x[0] * np.array([v.grow, -v.uptake])
    >>> def bounds(t, x, p):
    ...     return {"uptake": (0.0, p.vmax * x[1] / (1.0 + x[1])), "air": (0.0, 1.0 / (1.0 + x[0]))}
    >>> model = ds.tracing.LinearDAEO(
    ...     f,
    ...     [[1, 0, -1, -1, 0, -1], [0, 1, -1, 0, 0, 0], [0, 0, 4, 1, -1, -2]],
    ...     ["grow"],
    ...     bounds,
    ...     size=(["cells", "sugar"], ["uptake", "air", "respire", "ferment", "heat", "grow"]),
    ...     parameters=["vmax"],
    ... )
    >>> run = ds.solve(model, [0.1, 5.0], [2.0], ds.Stepping((0.0, 8.0), "rk6vr", rtol=1e-10))
    >>> [round(crossing.t, 6) for crossing in run.crossings]
    [2.001288, 3.390752]
    >>> cells = model.terminal(lambda t, x, p: x[0])
    >>> ds.adjoint(run, cells).p.round(6)
    array([-0.378345])
    """
    agree(
        comm,
        "LinearDAEO",
        a=a,
        b=b,
        objectives=objectives,
        size=size,
        parameters=in_order(parameters),
        lower=lower,
        upper=upper,
        running=running,
    )
    build = needed("linear_daeo.build").build_linear_daeo
    model: LinearDAEOModel = build(
        f, a, objectives, lower, upper, bounds, size, parameters, b, events, running, comm
    )
    return model
