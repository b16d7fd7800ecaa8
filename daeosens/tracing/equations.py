"""Models of ordinary, implicit and delay equations; what is taken apart of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy.typing as npt
from mpi4py import MPI

from daeosens.errors import InputError, UnsupportedError
from daeosens.petsc.ranks import agree
from daeosens.problem.delay_equations import Delay, History
from daeosens.problem.event import EventLike
from daeosens.tracing.model import (
    Model,
)
from daeosens.tracing.needed import in_order, needed


def trace(
    rhs: Callable[..., Any],
    size: int | Sequence[str],
    parameters: int | Sequence[str] | Mapping[str, Any] = (),
    *,
    mass: Any = None,
    events: Iterable[EventLike] = (),
    running: Callable[..., Any] | None = None,
    breakpoints: npt.ArrayLike = (),
    delays: Delay | Sequence[Delay] = (),
    history: History | None = None,
    comm: MPI.Comm = MPI.COMM_WORLD,
) -> Model:
    """Make M u' = f(t, u, p) of plain functions, with all derivatives, compiled.

    Each function is called once with symbols in the place of arrays (docs/tracing.md lists what
    they can do).  From the graph come the Jacobians, sparse ones by colouring, their products, and
    second derivatives, all as C, compiled by the system's compiler and kept in a cache.  Small
    models are expanded into scalars; large ones keep products of matrices, and the derivative in
    many parameters is never a matrix.  Without a compiler the graphs are interpreted, after one
    warning.  Collective on ``comm``: the first rank compiles, the others wait.

    Parameters
    ----------
    rhs : callable
        ``rhs(t, u, p) -> array [n]`` of a number, an array [n], and the parameters: ``p.A`` or
        ``p["A"]``, an array of its shape; ``p[0]`` is the first number of all.
    size : int or sequence of str
        How many unknowns, or their names, as for ``ODE``.
    parameters : mapping of str to shape, int or sequence of str
        Shape (), (n,) or (n, m) of each, side by side in the vector [m] by rows; or as for ``ODE``.
    mass : array, sparse matrix or callable, optional
        M [n, n], or a function ``mass(p)`` that is traced.
    events : sequence of Event, optional
        Their functions ``when``, ``reset`` and ``changes`` are traced; without derivatives.
    running : callable, optional
        ``(t, u, p) -> number``, a density that is traced: the cost ``model.running``.
    breakpoints : array_like [K], optional
        As for ``ODE``.
    delays, history : optional
        As for ``DDE``: then ``rhs(t, u, z, p)``, and functions of delays and history are NumPy
        functions that see parameters by name as well.  Without a mass.
    comm : MPI.Comm, optional
        The ranks that call this together; ``MPI.COMM_SELF`` for one that calls it alone.

    Returns
    -------
    Model
        A ``Problem``, with ``running``, ``terminal(function)``, ``event(event)``, ``pack(...)``.

    Raises
    ------
    InputError
        CasADi is not installed; a function cannot be traced (its line and the remedy are named)
        or returns another shape.

    Source
    ------
    Andersson, Gillis, Horn, Rawlings, Diehl, Mathematical Programming Computation 11, 2019.

    Examples
    --------
    >>> import numpy as np
    >>> import daeosens as ds
    >>> def grow(t, u, p):
    ...     return u * (p.rate + p.A @ u)
    >>> model = ds.trace(grow, size=2, parameters={"rate": (2,), "A": (2, 2)})
    >>> p = model.pack(rate=[1.0, -1.0], A=[[0.0, -1.0], [1.0, 0.0]])
    >>> trajectory = ds.solve(model, [1.0, 0.5], p, ds.Stepping((0.0, 1.0), "rk4", dt=0.01))
    >>> gradient = ds.adjoint(trajectory, model.terminal(lambda t, u, p: u.sum()))
    >>> np.round(model.unpack(gradient.p).rate, 6)
    array([1.804891, 0.154527])
    """
    agree(
        comm,
        "trace",
        size=size,
        parameters=in_order(parameters),
        mass=mass,
        events=events,
        running=running,
        breakpoints=breakpoints,
    )
    build = needed("build").build
    if history is not None or not _is_empty(delays):
        _refuse_beside_delays(mass, history)
        build_delayed = needed("build").build_delayed
        delayed: Model = build_delayed(
            rhs, size, parameters, delays, history, breakpoints, events, running, comm
        )
        return delayed
    model: Model = build(rhs, size, parameters, mass, events, running, breakpoints, comm)
    return model


def trace_residual(
    residual: Callable[..., Any],
    size: int | Sequence[str],
    parameters: int | Sequence[str] | Mapping[str, Any] = (),
    *,
    events: Iterable[EventLike] = (),
    running: Callable[..., Any] | None = None,
    breakpoints: npt.ArrayLike = (),
    comm: MPI.Comm = MPI.COMM_WORLD,
) -> Model:
    """Make F(t, u, u', p) = 0, of index at most one, of plain functions; all derivatives compiled.

    As ``trace``, for equations that cannot be written M(p) u' = f(t, u, p), or are not at hand in
    that form.  Whether F = M u' - f with a constant M, so that PETSc's own adjoint can be used, is
    read off the graph.  Collective on ``comm``.

    Parameters
    ----------
    residual : callable
        ``residual(t, u, udot, p) -> array [n]``, with the parameters as for ``trace``.
    size : int
        Number n of unknowns.
    parameters, events, running, breakpoints, comm
        As for ``trace``.

    Returns
    -------
    Model
        As of ``trace``; for the methods of a ``DAE``: "cn", "beuler", "theta:<value>", "midpoint".

    Raises
    ------
    InputError
        As ``trace``.

    Examples
    --------
    >>> import numpy as np
    >>> import daeosens as ds
    >>> def residual(t, u, udot, p):
    ...     return np.array([udot[0] * (1.0 + u[1] ** 2) + p.rate * u[0], u[1] - u[0] * u[0]])
    >>> model = ds.tracing.trace_residual(residual, size=2, parameters=["rate"])
    >>> stepping = ds.Stepping((0.0, 1.0), "midpoint", dt=0.01)
    >>> trajectory = ds.solve(model, [1.0, 1.0], {"rate": 0.5}, stepping)
    >>> ds.adjoint(trajectory, model.terminal(lambda t, u, p: u[0])).p.round(4)  # exact: -0.5682
    array([-0.5682])
    """
    agree(
        comm,
        "trace_residual",
        size=size,
        parameters=in_order(parameters),
        events=events,
        running=running,
        breakpoints=breakpoints,
    )
    build = needed("build").build_residual
    model: Model = build(residual, size, parameters, events, running, breakpoints, comm)
    return model


def separate(model: Any) -> Any:
    """Return a right-hand side as a function of its parameters where the states are given.

    Parameters
    ----------
    model : Model
        What ``trace`` made, with delays or without.

    Returns
    -------
    SeparableRhs

    Raises
    ------
    InputError
        A model that was not traced, or is a DAE; a history that cannot be traced.
    """
    module = needed("separable")
    delays = getattr(model, "delays", None) is not None
    if getattr(model, "trace_delayed", None) is not None:
        return module.separable_delayed(model.trace_delayed(), model.parameter_names)
    if getattr(model, "graph", None) is None:
        arguments = "rhs, size, parameters" + ", delays=..., history=..." * delays
        raise InputError(
            f"the model is {type(model).__name__} without a traced right-hand side",
            expected=f"u' = f(t, u{', z' * delays}, p) that was traced",
            remedy=f"daeosens.trace({arguments})",
        )
    if model.parts is not None:
        raise InputError(
            "the model has two parts",
            expected="u' = f(t, u, p), traced as a whole",
            remedy="daeosens.trace of the sum",
        )
    if model.form != "rhs":
        raise InputError(
            "the model has a mass matrix",
            expected="u' = f(t, u, p)",
            remedy="the differential equations alone, without the algebraic unknowns",
        )
    return module.separable(model.graph, model.parameter_names)


def separate_rates(
    rates: Callable[..., Any], size: int, parameters: Sequence[str], count: int
) -> Any:
    """Return a function of its parameters where the states are given, as ``separate`` does.

    Without a model, whose derivatives would be compiled.

    Parameters
    ----------
    rates : callable
        ``rates(t, u, p)`` [count], NumPy style; u [size].
    size, parameters, count
        Numbers of unknowns and of rates, and the names of the parameters.

    Returns
    -------
    SeparableRhs
    """
    return needed("separable").separable_rates(rates, size, parameters, count)


def _refuse_beside_delays(mass: object, history: object) -> None:
    """Refuse what a traced delay equation cannot have.

    Raises
    ------
    InputError, UnsupportedError
        No history; a mass.
    """
    if history is None:
        raise InputError("delays without history", expected="history(t, p) or an array [n]")
    if mass is not None:
        raise UnsupportedError("mass beside delays", expected="u' = f(t, u, z, p)")


def _is_empty(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and not value
