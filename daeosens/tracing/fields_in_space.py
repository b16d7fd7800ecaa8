"""Models on grids and on finite elements, each of one function of a point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from daeosens.errors import name_list, refuse_uncallable, require
from daeosens.petsc.ranks import agree
from daeosens.problem.grids import FiniteElements, Grid
from daeosens.tracing.model import (
    FieldModel,
    FieldWeakForm,
    Parametrized,
    WeakForm,
)
from daeosens.tracing.needed import in_order, needed


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
    >>> from daeosens.problem.grids import Grid
    >>> from daeosens.tracing.pdes import first_mode
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
        parameters=in_order(parameters),
        fields=fields,
        jacobian=jacobian,
        algebraic=algebraic,
    )
    build = needed("stencil.problem").build_stencil
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
        parameters=in_order(parameters),
        outflow=list(flows),
        fields=names,
    )
    build = needed("weak_form.problem").build_weak_form
    model: WeakForm | FieldWeakForm = build(rhs, space, parameters, flows, names, field_space)
    return model
