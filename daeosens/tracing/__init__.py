"""Models from plain functions: traced once, differentiated, compiled (the extra ``trace``).

In come functions of NumPy, out comes a ``Model``: a ``Problem`` whose functions and derivatives
are C.  A function is called once with symbols (``symbols``, ``ufuncs``), CasADi differentiates the
graph (``derivatives``), ``c_source`` writes C, ``compilation`` makes a library of it.  ``stencil``
does this for grids, ``weak_form`` for finite elements, ``daeo`` and ``linear_daeo`` for equations
with an optimisation problem inside.

Read first: ``build`` (how these follow each other), ``tracer``, ``derivatives``.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

import numpy.typing as npt
from mpi4py import MPI

from daeosens.errors import InputError, UnsupportedError, name_list, refuse_uncallable, require
from daeosens.petsc.ranks import agree
from daeosens.problem.delay_equations import Delay, History
from daeosens.problem.event import EventLike
from daeosens.problem.grids import FiniteElements, Grid
from daeosens.tracing.daeo.effort import SearchEffort
from daeosens.tracing.model import (
    DAEOModel,
    FieldModel,
    FieldWeakForm,
    LinearDAEOModel,
    Model,
    Parametrized,
    WeakForm,
)


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
        parameters=_in_order(parameters),
        mass=mass,
        events=events,
        running=running,
        breakpoints=breakpoints,
    )
    build = _needed("build").build
    if history is not None or not _is_empty(delays):
        refuse_beside_delays(mass, history)
        build_delayed = _needed("build").build_delayed
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
        parameters=_in_order(parameters),
        events=events,
        running=running,
        breakpoints=breakpoints,
    )
    build = _needed("build").build_residual
    model: Model = build(residual, size, parameters, events, running, breakpoints, comm)
    return model


@overload
def trace_stencil(
    rhs: Callable[..., Any],
    grid: Grid,
    parameters: int | Sequence[str] | Mapping[str, Any] = (),
    *,
    jacobian: str = "auto",
    dirichlet: Any = None,
    slope: Any = None,
    algebraic: Sequence[str | int] = (),
) -> Parametrized: ...
@overload
def trace_stencil(
    rhs: Callable[..., Any],
    grid: Grid,
    parameters: int | Sequence[str] | Mapping[str, Any] = (),
    *,
    fields: Sequence[str],
    jacobian: str = "auto",
    dirichlet: Any = None,
    slope: Any = None,
    algebraic: Sequence[str | int] = (),
) -> FieldModel: ...
def trace_stencil(
    rhs: Callable[..., Any],
    grid: Grid,
    parameters: int | Sequence[str] | Mapping[str, Any] = (),
    *,
    fields: Sequence[str] = (),
    jacobian: str = "auto",
    dirichlet: Any = None,
    slope: Any = None,
    algebraic: Sequence[str | int] = (),
) -> Parametrized | FieldModel:
    """Make u' = f, or M u' = f, on a grid of one function of a point and its neighbours, compiled.

    The function is called once with symbols (docs/tracing.md).  From it come f, products with f_u
    and its transpose, derivatives in parameters and time, and second derivatives, as loops in C
    over the points that a rank has.  They read vectors of the grid's DM, exchange the values at
    the borders of ranks, and are called by TS, linear solvers and sweeps without Python.  Without a
    compiler CasADi evaluates them, after one warning.  Collective on the grid's ranks.

    Parameters
    ----------
    rhs : callable
        ``rhs(t, u, p) -> array [dof]``, f at a point.  ``u.center`` is [dof] the unknowns there,
        ``u[dx, dy]`` at the point so many points away (one number for each dimension),
        ``u.laplacian()`` the sum of second differences [dof], ``u.gradient()`` central differences
        [dof] along each dimension, ``u.x`` the coordinates, ``u.spacing`` the distances.  Where the
        grid has names of unknowns, each is there by itself: ``u.name.laplacian()``.
    grid : Grid
        Points, unknowns at each, boundary and ranks.
    parameters : mapping of str to shape, int or sequence of str
        As for ``trace``.
    fields : sequence of str, optional
        Parameters with a value at each point.  ``p.name`` is that at the point, ``p.name[dx, dy]``
        at those around it, also ``.gradient()`` and ``.laplacian()``; beyond an edge it is that of
        the image inside.  ``u.laplacian(p.name)`` is div(name grad u), conservative.
    jacobian : "auto", "assembled" or "products"
        f_u as a sparse matrix, which preconditioners need, for the systems of implicit steps, or
        by its products with vectors; "auto": products where nothing is solved.
    dirichlet : mapping of str to number, sequence or callable, optional
        Values on faces of the boundary "neumann": ``{"x-": 1.0, "y": lambda t, x, p: p.level}``.
        A face is "x-" where x begins, "x+" where it ends, "x" both.  A sequence has a part for
        each unknown (None: not given), a mapping parts by name, and so may a function return.
        Without faces: for all of them.
    slope : mapping of str to number, sequence or callable, optional
        Derivatives of u outwards across such faces, in the same way, ``slope(t, u, x, p)`` of the
        values [dof] and coordinates of a place there: 0 where nothing is given,
        ``-p.loss * (u - p.outside)`` for instance is Robin's condition.
    algebraic : sequence of str or int, optional
        Unknowns, by name or number, without derivative in time: their rows of f are 0.  They have
        to be determined by these rows (index 1), and runs take an implicit method;
        ``consistent_state`` finds them at the start.

    Returns
    -------
    Parametrized or FieldModel
        A ``Problem``, with ``pack`` and ``unpack``; with fields all parameters are one vector.

    Raises
    ------
    InputError
        CasADi is not installed; the function cannot be traced or returns another shape; the grid
        is cut into parts that are too narrow; another word for ``jacobian``; faces that are not
        there, or with a value and a slope.

    Examples
    --------
    >>> import daeosens as ds
    >>> from daeosens.problem.grids import Grid, first_mode
    >>> from petsc4py import PETSc
    >>> def rhs(t, u, p):
    ...     return p.rate * u.laplacian() - u.center**3
    >>> grid = Grid(((0.0, 1.0), (0.0, 1.0)), (9, 9), "zero", comm=PETSc.COMM_SELF)
    >>> model = ds.trace_stencil(rhs, grid, ["rate"])
    >>> run = ds.solve(model, first_mode(grid), [0.1], ds.Stepping((0.0, 0.1), "rk4", dt=0.01))
    >>> total = ds.Terminal(
    ...     lambda t, u, p: u.sum(), lambda t, u, p, out: out.set(1.0), "independent"
    ... )
    >>> ds.adjoint(run, total).p.round(4)
    array([-60.4057])
    """
    require(grid, Grid, "grid", "Grid(((0.0, 1.0), (0.0, 1.0)), (64, 64))")
    agree(
        grid.comm,
        "trace_stencil",
        parameters=_in_order(parameters),
        fields=fields,
        jacobian=jacobian,
        algebraic=algebraic,
    )
    build = _needed("stencil.problem").build_stencil
    model: Parametrized | FieldModel = build(
        rhs,
        grid,
        parameters,
        jacobian,
        fields,
        dirichlet=dirichlet,
        slope=slope,
        algebraic=algebraic,
    )
    return model


def trace_weak_form(
    rhs: Callable[..., Any],
    space: FiniteElements,
    parameters: int | Sequence[str] | Mapping[str, Any] = (),
    *,
    outflow: Mapping[str, Callable[..., Any]] | None = None,
    fields: Sequence[str] = (),
    field_space: FiniteElements | None = None,
) -> WeakForm | FieldWeakForm:
    """Make u' = source - div flux on finite elements of one function of a point, compiled.

    For all test functions v: integral of u' v = integral of (source v + flux . grad v), less the
    integral of what flows out times v along the boundary.  The function is called once with
    symbols; from it come the right-hand side, its Jacobian as a sparse matrix, derivatives in
    parameters and time, and second derivatives, at all quadrature points in one call.  Collective
    on the ranks of the space.

    Parameters
    ----------
    rhs : callable
        ``rhs(t, u, p) -> source, flux`` at a point, with ``u.value`` [F] the fields,
        ``u.gradient()`` their derivatives [F] along x, y, z, and ``u.x`` the coordinates [d].
        ``source`` is a number or [F], ``flux`` a number (0) or [F] along x, y, z each.
    space : FiniteElements
        The functions, their mesh and its ranks; where they have fixed values, there is no equation.
    parameters : mapping of str to shape, int or sequence of str
        As for ``trace``.
    outflow : mapping of str to callable, optional
        ``outflow(t, u, p)``, a number or [F], what flows out through a boundary of that name per
        length or area; u there has ``u.normal`` [d] too.  Without it nothing does.
    fields : sequence of str, optional
        Parameters that vary over the domain: ``p.name`` is the value at the point.
    field_space : FiniteElements, optional
        Their functions: of one field, without fixed values, on the same mesh; by default those of
        the basis of ``space``.

    Returns
    -------
    WeakForm or FieldWeakForm
        A ``Problem`` with ``pack`` and ``unpack``, and with ``terminal(density)`` and
        ``running(density)``, integrals over the domain as costs.  With fields the second, whose
        control is ``functional.FieldParameters``.

    Raises
    ------
    InputError
        CasADi is not installed; a function cannot be traced or returns another shape; an unknown
        boundary.

    Examples
    --------
    >>> import numpy as np
    >>> import skfem
    >>> import daeosens as ds
    >>> from daeosens.problem.grids import FiniteElements
    >>> from daeosens.tracing import trace_weak_form
    >>> from petsc4py import PETSc
    >>> basis = skfem.Basis(skfem.MeshTri().refined(3), skfem.ElementTriP2())
    >>> space = FiniteElements(basis, dirichlet={"boundary": 0.0}, comm=PETSc.COMM_SELF)
    >>> def heat(t, u, p):
    ...     return 0.0, [-p.rate * slope for slope in u.gradient()]
    >>> model = trace_weak_form(heat, space, ["rate"])
    >>> start = space.interpolate(lambda x: np.sin(np.pi * x[0]) * np.sin(np.pi * x[1]))
    >>> run = ds.solve(model, start, [0.1], ds.Stepping((0.0, 0.5), "cn", dt=0.05))
    >>> energy = model.terminal(lambda t, u, p: u.value[0] ** 2)
    >>> ds.adjoint(run, energy).p.round(3)
    array([-0.686])
    """
    require(space, FiniteElements, "space", "FiniteElements(skfem.Basis(mesh, element))")
    if outflow is not None:
        require(outflow, Mapping, "outflow", 'outflow={"boundary": lambda t, u, p: p.h * u.value}')
    flows = dict(outflow or {})
    refuse_uncallable(rhs=rhs, **{f"outflow[{name!r}]": call for name, call in flows.items()})
    names = name_list(fields, "fields")
    if field_space is not None:
        require(field_space, FiniteElements, "field_space", "FiniteElements(basis)")
    agree(
        space.comm,
        "trace_weak_form",
        parameters=_in_order(parameters),
        outflow=list(flows),
        fields=names,
    )
    build = _needed("weak_form.problem").build_weak_form
    model: WeakForm | FieldWeakForm = build(rhs, space, parameters, flows, names, field_space)
    return model


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
        parameters=_in_order(parameters),
        box=box,
        constraints=constraints,
        running=running,
        breakpoints=breakpoints,
        effort=effort,
    )
    build = _needed("daeo.build").build_daeo
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
        parameters=_in_order(parameters),
        lower=lower,
        upper=upper,
        running=running,
    )
    build = _needed("linear_daeo.build").build_linear_daeo
    model: LinearDAEOModel = build(
        f, a, objectives, lower, upper, bounds, size, parameters, b, events, running, comm
    )
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
    module = _needed("separable")
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
    return _needed("separable").separable_rates(rates, size, parameters, count)


def refuse_beside_delays(mass: object, history: object) -> None:
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


def _in_order(parameters: int | Sequence[str] | Mapping[str, Any]) -> object:
    """Return what ranks have to agree on: the order of names is that of the vector [m]."""
    return list(parameters.items()) if isinstance(parameters, Mapping) else parameters


def _needed(module: str) -> Any:
    """Import a module of tracing: the rest of the package neither needs CasADi nor waits for it."""
    try:
        for needed in ("casadi", "filelock", "platformdirs"):
            importlib.import_module(needed)
    except ImportError as error:
        raise InputError(
            f"tracing needs {error.name}, which is not installed",
            remedy='pip install --no-build-isolation "daeosens[trace]", or pip install casadi '
            "filelock platformdirs",
        ) from error
    return importlib.import_module(f"daeosens.tracing.{module}")


__all__ = [
    "DAEO",
    "DAEOModel",
    "FieldModel",
    "FieldWeakForm",
    "LinearDAEO",
    "LinearDAEOModel",
    "Model",
    "Parametrized",
    "SearchEffort",
    "WeakForm",
    "trace",
    "trace_residual",
    "trace_stencil",
    "trace_weak_form",
]
