"""Problems on finite elements from one function of a point, and integrals as costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields as of_class
from dataclasses import replace
from typing import Any

from daeosens.costs.objective import Running, Terminal
from daeosens.problem.equations import ODE
from daeosens.problem.grids.finite_elements import FiniteElements
from daeosens.problem.matrices import Products
from daeosens.problem.problem import Problem
from daeosens.tracing.build import build
from daeosens.tracing.decisions import decided_along
from daeosens.tracing.derivatives import of_scalars
from daeosens.tracing.model import FieldWeakForm, WeakForm
from daeosens.tracing.named_parameters import admit_shapes
from daeosens.tracing.weak_form.branches import branches_of
from daeosens.tracing.weak_form.callbacks import Form, Integral
from daeosens.tracing.weak_form.parameters import Fields, Numbers, admit_parameters
from daeosens.tracing.weak_form.point import Point, of_boundary, of_domain, of_scalar
from daeosens.tracing.weak_form.term import Term


def build_weak_form(
    rhs: Callable[..., Any],
    space: FiniteElements,
    parameters: int | Sequence[str] | Mapping[str, Any],
    outflow: Mapping[str, Callable[..., Any]],
    fields: Sequence[str],
    field_space: FiniteElements | None,
) -> WeakForm | FieldWeakForm:
    """Return the problem of ``daeosens.tracing.trace_weak_form``, whose arguments these are."""
    shapes = admit_shapes(parameters)
    known = admit_parameters(space, shapes, fields, field_space)
    terms = [
        _traced(of_domain(rhs), space, known),
        *(_traced(of_boundary(outflow[name]), space, known, name) for name in outflow),
    ]
    form = Form(space, known, terms)
    problem = ODE(
        form.rhs,
        state=space.state,
        parameters=known.template,
        jacobian=form.jacobian,
        jacobian_matrix=form.create_matrix(),
        jacobian_p=Products(form.push_p, form.pull_p) if known.some else None,
        hessian_product=form.hessian_product,
        rhs_t=form.rhs_t,
        hessian_t=form.hessian_t,
        mass=space.mass,
    )
    problem = replace(problem, branches=branches_of(space, known, terms, rhs))
    if all(term.affine for term in terms):
        constant = {
            name: replace(getattr(problem, name), constant=True) for name in ("rhs_u", "residual_u")
        }
        problem = replace(problem, **constant)
    lowered = {part.name: getattr(problem, part.name) for part in of_class(Problem)}

    def integral(density: Callable[..., Any]) -> tuple[Integral, Any]:
        term = _traced(of_scalar(density), space, known)
        return Integral(space, known, term), branches_of(space, known, [term], density)

    def terminal(density: Callable[..., Any]) -> Terminal:
        scalar, branches = integral(density)
        by_t = scalar.value_t
        return Terminal(scalar.value, value_t=by_t, branches=branches, **scalar.derivatives)

    def running(density: Callable[..., Any]) -> Running:
        scalar, branches = integral(density)
        by_t = scalar.value_t
        return Running(scalar.value, density_t=by_t, branches=branches, **scalar.derivatives)

    lowered |= {"space": space, "trace_terminal": terminal, "trace_running": running}
    if isinstance(known, Fields):
        return FieldWeakForm(**lowered, fields=known.layout)
    return WeakForm(**lowered, shapes=shapes)


def _traced(
    density: Callable[..., Any],
    space: FiniteElements,
    known: Numbers | Fields,
    boundary: str = "",
) -> Term:
    """Trace a function of a point, and bind it to the points inside or on a boundary."""
    points = space.boundary(boundary) if boundary else space.inside
    count, d, normals = len(space.fields), space.dimensions, points.normal.shape[1]
    tests = count * (1 + d)
    inputs = tests + len(known.names)
    size = inputs + d + normals + 1

    def at_point(_t: Any, z: Any, p: Any) -> Any:
        by_name = {name: z[tests + k] for k, name in enumerate(known.names)}
        place = z[inputs : inputs + d], z[inputs + d : inputs + d + normals]
        point = Point(z[:tests], count, *place)
        values = density(z[size - 1], point, known.shapes.split(p[:], by_name))
        return [*values, *(0.0 for _ in range(size - len(values)))]

    at_point.__module__ = getattr(density, "__module__", "")
    comm = space.comm.tompi4py()
    model = build(at_point, size, known.shapes.shapes, None, (), None, (), comm)
    assert model.batch is not None
    assert model.graph is not None
    of_fields = known.at(space, boundary)
    sizes = tests, inputs, size
    decide = None
    scalars = of_scalars(model.graph) if model.graph.branches else None
    if scalars is not None:
        # coordinates and time are entries of z that move by themselves
        moving = [scalars.u[:inputs], scalars.p]
        decide = decided_along([*scalars.point.values()], scalars.value, moving)
    affine = bool(model.graph.affine)
    return Term(points, of_fields, model.batch, sizes, affine=affine, decide=decide)
