"""Problems on finite elements from one function of a point: traced, differentiated, compiled.

With Phi the values and derivatives of all basis functions at the quadrature points, W the weights
and g the traced function, f(u) = Phi^T W g(Phi u): linear, point by point, linear.  Its derivatives
are those of g between the same matrices.  All points are evaluated in one call.

At a point the unknowns z of g are the values of the fields, their derivatives along x, those along
y, the coordinates, the normal on a boundary, and the time: all that varies but the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields as of_class
from dataclasses import replace
from typing import Any, cast

import numpy as np
from petsc4py import PETSc
from scipy import sparse

from daeosens.costs.objective import Running, Terminal
from daeosens.errors import InputError
from daeosens.petsc.vectors import Array, gather, read, scatter, write
from daeosens.problem.batched.protocol import Batch
from daeosens.problem.equations import ODE
from daeosens.problem.grids.finite_elements import FiniteElements, QuadraturePoints
from daeosens.problem.matrices import Products
from daeosens.problem.problem import Problem
from daeosens.tracing.build import build
from daeosens.tracing.fields import FieldLayout, field_layout
from daeosens.tracing.model import FieldWeakForm, WeakForm
from daeosens.tracing.named_parameters import Shapes, admit_shapes


class Point:
    """What a function of a point sees of the fields: values, derivatives, coordinates, normal.

    Attributes
    ----------
    value : array [F]
        The fields.
    x, normal : array [d]
        Coordinates; on a boundary the unit normal outwards.
    """

    def __init__(self, z: Any, count: int, x: Any, normal: Any) -> None:
        self.value, *self._derivatives = (z[k : k + count] for k in range(0, z.shape[0], count))
        self.x, self.normal = x, normal

    def gradient(self) -> list[Any]:
        """Return the derivatives [F] along x, y, z."""
        return self._derivatives


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
    known = _known(space, shapes, fields, field_space)
    terms = [
        _traced(_of_domain(rhs), space, known),
        *(_traced(_of_boundary(outflow[name]), space, known, name) for name in outflow),
    ]
    form = _Form(space, known, terms)
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
    if all(term.affine for term in terms):
        constant = {
            name: replace(getattr(problem, name), constant=True) for name in ("rhs_u", "residual_u")
        }
        problem = replace(problem, **constant)
    lowered = {part.name: getattr(problem, part.name) for part in of_class(Problem)}

    def integral(density: Callable[..., Any]) -> _Integral:
        return _Integral(space, known, _traced(_of_scalar(density), space, known))

    def terminal(density: Callable[..., Any]) -> Terminal:
        scalar = integral(density)
        return Terminal(
            scalar.value,
            scalar.gradient_u,
            scalar.gradient_p,
            scalar.hessian_product,
            scalar.value_t,
            scalar.hessian_t,
        )

    def running(density: Callable[..., Any]) -> Running:
        scalar = integral(density)
        return Running(
            scalar.value,
            scalar.gradient_u,
            scalar.gradient_p,
            scalar.value_t,
            scalar.hessian_product,
            scalar.hessian_t,
        )

    lowered |= {"space": space, "trace_terminal": terminal, "trace_running": running}
    if isinstance(known, _Fields):
        return FieldWeakForm(**lowered, fields=known.layout)
    return WeakForm(**lowered, shapes=shapes)


class _Numbers:
    """Parameters that are numbers: arrays [m], the same on every rank."""

    names: tuple[str, ...] = ()

    def __init__(self, shapes: Shapes, comm: PETSc.Comm) -> None:
        self.shapes, self._comm = shapes, comm
        self.template: Any = shapes.names

    @property
    def some(self) -> bool:
        """Whether there are parameters."""
        return self.shapes.size > 0

    def at(self, _space: FiniteElements, _boundary: str) -> sparse.csr_array | None:
        """Return values of fields at points from coefficients: there are none."""
        return None

    def split(self, p: Any) -> tuple[Array, Array]:
        """Return numbers [m], and coefficients [., K] of fields."""
        return gather(p) if isinstance(p, PETSc.Vec) else p, np.zeros((0, 0))

    def joined(self, sums: Array, _by_fields: Array, out: PETSc.Vec | None) -> Any:
        """Return derivatives [m] from the rank's sums, or fill a vector with them."""
        total = _summed(self._comm, sums)
        return total if out is None else scatter(total, out)


class _Fields:
    """Parameters that are fields and numbers: one distributed vector."""

    def __init__(self, layout: FieldLayout, space: FiniteElements) -> None:
        self.layout, self._space = layout, space
        self.shapes, self.names = layout.shapes, layout.names
        self.template: Any = layout.create()
        self._field = space.create_vec()

    some = True

    def at(self, space: FiniteElements, boundary: str) -> sparse.csr_array:
        """Return the matrix from coefficients to values at the points of a space."""
        return self._space.values_at(space, boundary)

    def split(self, p: PETSc.Vec) -> tuple[Array, Array]:
        """Return numbers [m], and the coefficients [., K] that the rank reads."""
        columns: list[Array] = []
        for name in self.names:
            write(self._field, read(p)[self.layout.parts[name]])
            columns.append(self._space.coefficients(self._field))
        return self.layout.numbers(p), np.hstack(columns)

    def joined(self, sums: Array, by_fields: Array, out: PETSc.Vec) -> None:
        """Fill a vector with derivatives from the rank's sums [m] and what is at points [., K]."""
        total = _summed(self.layout.grid.comm, sums)
        own = np.empty((self.layout.points, len(self.names)))
        for k in range(len(self.names)):
            self._space.add(by_fields[:, k : k + 1], self._field)
            own[:, k] = read(self._field)
        self.layout.fill(total, own, out)


def _known(
    space: FiniteElements, shapes: Shapes, fields: Sequence[str], field_space: FiniteElements | None
) -> _Numbers | _Fields:
    if not len(fields):
        return _Numbers(shapes, space.comm)
    own = field_space
    if own is None:
        own = FiniteElements(space.basis, comm=space.comm)
    return _Fields(field_layout(own, shapes, fields), own)


def _traced(
    density: Callable[..., Any],
    space: FiniteElements,
    known: _Numbers | _Fields,
    boundary: str = "",
) -> _Term:
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
    return _Term(points, of_fields, model.batch, sizes, affine=bool(model.graph.affine))


def _of_domain(rhs: Callable[..., Any]) -> Callable[..., Any]:
    """Return source and flux of ``rhs`` in the order of the test functions."""

    def density(t: Any, u: Point, p: Any) -> list[Any]:
        source, flux = _two_parts(rhs(t, u, p))
        count, directions = len(u.value), len(u.gradient())
        if np.ndim(flux) == 0:
            flux = [flux] * directions
        if len(flux) != directions:
            raise InputError(
                f"rhs returns {len(flux)} fluxes", expected=f"{directions}, one for each direction"
            )
        parts = [_entries(source, count, "source"), *(_entries(q, count, "flux") for q in flux)]
        return [entry for part in parts for entry in part]

    return density


def _two_parts(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(cast("tuple[Any, ...]", result)) != 2:
        raise InputError(
            f"rhs returns {type(cast('object', result)).__name__}",
            expected="source, flux",
            remedy="return 0.0, [-p.rate * slope for slope in u.gradient()]",
        )
    return cast("tuple[Any, Any]", result)


def _of_boundary(outflow: Callable[..., Any]) -> Callable[..., Any]:
    """Return what flows out, taken from the equation of each field."""

    def density(t: Any, u: Point, p: Any) -> list[Any]:
        return [-entry for entry in _entries(outflow(t, u, p), len(u.value), "outflow")]

    return density


def _of_scalar(value: Callable[..., Any]) -> Callable[..., Any]:
    def density(t: Any, u: Point, p: Any) -> list[Any]:
        return [value(t, u, p)]

    return density


def _entries(values: Any, count: int, name: str) -> list[Any]:
    """Return a number for each field of an array, a sequence or one number."""
    entries = [values] * count if np.ndim(values) == 0 else list(values)
    if len(entries) != count:
        raise InputError(
            f"{name} has {len(entries)} entries", expected=f"{count}, as many as fields"
        )
    return entries


class _Term:
    """A traced function g at quadrature points, times their weights.

    Parameters
    ----------
    points : QuadraturePoints
        Q of them.
    of_fields : sparse [Q, .] or None
        Values of parameter fields at the points from their coefficients.
    batch : Batch
        The function z [Q, Z] -> [Q, Z] with its derivatives.
    sizes : (int, int, int)
        Entries (1 + d) F of z that are fields and their derivatives, those and the parameter
        fields, and Z of them in all.
    affine : bool
        The derivative of the function is the same for every z.
    """

    def __init__(
        self,
        points: QuadraturePoints,
        of_fields: sparse.csr_array | None,
        batch: Batch,
        sizes: tuple[int, int, int],
        *,
        affine: bool,
    ) -> None:
        self.points, self.affine = points, affine
        self._of_fields, self._batch = of_fields, batch
        self._tests, self._inputs, self._size = sizes
        self._weights = points.weights[:, None]
        self._times = np.zeros(len(points.weights))  # not read: the time is an entry of z

    def at(self, t: float, coefficients: Array, of_fields: Array) -> Array:
        """Return z [Q, Z] for coefficients of unknowns [., F] and of parameter fields [., K]."""
        z = self.along(coefficients, of_fields)
        z[:, self._inputs : -1] = np.concatenate([self.points.x, self.points.normal], axis=1)
        z[:, -1] = t
        return z

    def along(self, coefficients: Array | None, of_fields: Array | None) -> Array:
        """Return the change Phi v [Q, Z] of z by that of coefficients v."""
        z = np.zeros((len(self._weights), self._size))
        if coefficients is not None:
            # values of all points come first, then all derivatives along x: side by side at each
            parts = np.split(self.points.rows @ coefficients, self.points.basis.shape[2])
            z[:, : self._tests] = np.hstack(parts)
        if self._of_fields is not None and of_fields is not None:
            z[:, self._tests : self._inputs] = self._of_fields @ of_fields
        return z

    def collected(self, at_points: Array) -> Array:
        """Return Phi^T v [., F] of v [Q, Z]."""
        parts = np.hsplit(at_points[:, : self._tests], self.points.basis.shape[2])
        return self.points.rows.T @ np.vstack(parts)

    def collected_fields(self, at_points: Array) -> Array:
        """Return the same [., K] for the parameter fields."""
        if self._of_fields is None:
            return np.zeros((0, 0))
        return self._of_fields.T @ at_points[:, self._tests : self._inputs]

    def values(self, z: Array, p: Array) -> Array:
        """Return W g [Q, Z]."""
        return self._weights * self._batch.rhs(self._times, z, p)

    def jacobian(self, z: Array, p: Array) -> Array:
        """Return W g_z [Q, Z, Z]."""
        return self._weights[:, None] * self._batch.jacobian(self._times, z, p)

    def element_matrices(self, z: Array, p: Array) -> Array:
        """Return Phi^T W g_z Phi of the elements [E, L, F, L, F]."""
        basis = self.points.basis
        elements, points, rows, functions = basis.shape
        count = self._tests // rows
        slopes = self.jacobian(z, p)[:, : self._tests, : self._tests]
        # g_z Phi at each point, then one product for each element
        by_field = np.moveaxis(slopes.reshape(elements, points, self._tests, rows, count), 4, 2)
        images = (by_field @ basis[:, :, None]).reshape(
            elements, points, count, rows, count, functions
        )
        ordered = np.ascontiguousarray(images.transpose(0, 1, 3, 4, 5, 2))
        tested = basis.reshape(elements, points * rows, functions).swapaxes(1, 2)
        blocks = tested @ ordered.reshape(elements, points * rows, count * functions * count)
        return blocks.reshape(elements, functions, count, functions, count)

    def push_p(self, z: Array, p: Array, dp: Array) -> Array:
        """Return W g_p dp [Q, Z]."""
        return self._weights * self._batch.push_parameters(self._times, z, p, dp[None])[0]

    def pull_p(self, z: Array, p: Array, w: Array) -> Array:
        """Return the sum of g_p^T W w [m] over the points."""
        return self._batch.pull_parameters(self._times, z, p, (self._weights * w)[None])[0]

    def second(self, z: Array, p: Array, w: Array, dz: Array, dp: Array) -> tuple[Array, Array]:
        """Return the derivatives of g_z^T W w [Q, Z] and of the sum of g_p^T W w [m]."""
        weighted = self._weights * w
        by_z, by_p = self._batch.hessian_product(self._times, z, p, weighted, dz[None], dp[None])
        return by_z[0], by_p[0]


def _first(z: Array) -> Array:
    """Return the direction [Q, Z] of the first entry: a scalar is the first of g."""
    return _unit(z, 0)


def _later(z: Array) -> Array:
    """Return the direction [Q, Z] of time, the last entry."""
    return _unit(z, -1)


def _unit(z: Array, entry: int) -> Array:
    direction = np.zeros_like(z)
    direction[:, entry] = 1.0
    return direction


class _Form:
    """The right-hand side as callbacks of PETSc style: sums of terms."""

    def __init__(
        self, space: FiniteElements, known: _Numbers | _Fields, terms: Sequence[_Term]
    ) -> None:
        self._space, self._known, self._terms = space, known, terms

    def create_matrix(self) -> PETSc.Mat:
        """Return a matrix for ``jacobian``."""
        return self._space.create_matrix(*(term.points for term in self._terms))

    def rhs(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        self._collect(t, u, p, out, lambda term, z, numbers: term.values(z, numbers))

    def jacobian(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Mat) -> None:
        numbers, of_fields = self._known.split(p)
        at = self._space.coefficients(u)
        blocks = [
            term.element_matrices(term.at(t, at, of_fields), numbers).ravel()
            for term in self._terms
        ]
        entries: Any = np.concatenate(blocks)
        out.setValuesCOO(entries, PETSc.InsertMode.INSERT_VALUES)

    def push_p(self, t: float, u: PETSc.Vec, p: Any, dp: PETSc.Vec, out: PETSc.Vec) -> None:
        along, of_fields = self._known.split(dp)

        def change(term: _Term, z: Array, numbers: Array) -> Array:
            by_numbers = term.push_p(z, numbers, along)
            if not of_fields.size:
                return by_numbers
            dz = term.along(None, of_fields)
            return by_numbers + (term.jacobian(z, numbers) @ dz[:, :, None])[:, :, 0]

        self._collect(t, u, p, out, change)

    def pull_p(self, t: float, u: PETSc.Vec, p: Any, w: PETSc.Vec, out: PETSc.Vec) -> None:
        numbers, of_fields = self._known.split(p)
        at, weights = self._space.coefficients(u), self._space.directions(w)
        sums, by_fields = np.zeros(len(numbers)), np.zeros_like(of_fields)
        for term in self._terms:
            z, along = term.at(t, at, of_fields), term.along(weights, None)
            sums += term.pull_p(z, numbers, along)
            if by_fields.size:
                slopes = (along[:, None] @ term.jacobian(z, numbers))[:, 0]
                by_fields += term.collected_fields(slopes)
        self._known.joined(sums, by_fields, out)

    def rhs_t(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        self._collect(t, u, p, out, lambda term, z, numbers: term.jacobian(z, numbers)[:, :, -1])

    def hessian_product(
        self,
        t: float,
        u: PETSc.Vec,
        p: Any,
        w: PETSc.Vec,
        du: PETSc.Vec,
        dp: Any,
        *out: PETSc.Vec,
    ) -> Any:
        numbers, of_fields = self._known.split(dp)
        along = self._space.directions(du)
        by_p, _ = self._second(
            t, u, p, w, lambda term, _z: term.along(along, of_fields), numbers, out
        )
        return by_p

    def hessian_t(self, t: float, u: PETSc.Vec, p: Any, w: PETSc.Vec, *out: PETSc.Vec) -> Any:
        by_p, by_t = self._second(t, u, p, w, lambda _term, z: _later(z), None, out)
        return by_t if len(out) > 1 else (by_p, by_t)

    def _collect(
        self,
        t: float,
        u: PETSc.Vec,
        p: Any,
        out: PETSc.Vec,
        values: Callable[[_Term, Array, Array], Array],
    ) -> None:
        """Fill ``out`` with Phi^T of values [Q, Z] at the points of all terms."""
        numbers, of_fields = self._known.split(p)
        at = self._space.coefficients(u)
        parts = [
            term.collected(values(term, term.at(t, at, of_fields), numbers)) for term in self._terms
        ]
        self._space.add(np.sum(parts, axis=0), out)

    def _second(
        self,
        t: float,
        u: PETSc.Vec,
        p: Any,
        w: PETSc.Vec,
        along: Callable[[_Term, Array], Array],
        dp: Array | None,
        out: tuple[PETSc.Vec, ...],
    ) -> tuple[Any, float]:
        """Fill ``out`` with the derivative of f_u^T w, and return those of w^T f_p and w^T f_t."""
        numbers, of_fields = self._known.split(p)
        at, weights = self._space.coefficients(u), self._space.directions(w)
        changes = np.zeros(len(numbers)) if dp is None else dp
        return _joined_second(
            self._space,
            self._known,
            [
                (term, z, term.along(weights, None), along(term, z))
                for term in self._terms
                for z in [term.at(t, at, of_fields)]
            ],
            (numbers, changes),
            out,
        )


def _joined_second(
    space: FiniteElements,
    known: _Numbers | _Fields,
    terms: Sequence[tuple[_Term, Array, Array, Array]],
    numbers: tuple[Array, Array],
    out: tuple[PETSc.Vec, ...],
) -> tuple[Any, float]:
    """Add up second derivatives of terms at z, with weights and along dz; numbers are p and dp."""
    p, dp = numbers
    by_u: Any = 0.0
    by_fields: Any = 0.0
    sums = np.zeros(len(p) + 1)
    for term, z, weights, dz in terms:
        by_z, by_p = term.second(z, p, weights, dz, dp)
        by_u = by_u + term.collected(by_z)
        by_fields = by_fields + term.collected_fields(by_z)
        sums += np.append(by_p, by_z[:, -1].sum())
    space.add(by_u, out[0])
    by_t = float(_summed(space.comm, sums[-1]))
    return known.joined(sums[:-1], by_fields, out[1] if len(out) > 1 else None), by_t  # type: ignore[arg-type]


class _Integral:
    """A scalar over the domain as callbacks of PETSc style."""

    def __init__(self, space: FiniteElements, known: _Numbers | _Fields, term: _Term) -> None:
        self._space, self._known, self._term = space, known, term

    def value(self, t: float, u: PETSc.Vec, p: Any) -> float:
        z, numbers = self._at(t, u, p)
        return float(_summed(self._space.comm, self._term.values(z, numbers)[:, 0].sum()))

    def gradient_u(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        slopes = self._term.jacobian(*self._at(t, u, p))[:, 0]
        self._space.add(self._term.collected(slopes), out)

    def gradient_p(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec | None = None) -> Any:
        z, numbers = self._at(t, u, p)
        sums = self._term.pull_p(z, numbers, _first(z))
        by_fields = self._term.collected_fields(self._term.jacobian(z, numbers)[:, 0])
        return self._known.joined(sums, by_fields, out)  # type: ignore[arg-type]

    def value_t(self, t: float, u: PETSc.Vec, p: Any) -> float:
        slopes = self._term.jacobian(*self._at(t, u, p))[:, 0, -1]
        return float(_summed(self._space.comm, slopes.sum()))

    def hessian_product(
        self, t: float, u: PETSc.Vec, p: Any, du: PETSc.Vec, dp: Any, *out: PETSc.Vec
    ) -> Any:
        changes, of_fields = self._known.split(dp)
        along = self._term.along(self._space.directions(du), of_fields)
        return self._second(t, u, p, along, changes, out)[0]

    def hessian_t(self, t: float, u: PETSc.Vec, p: Any, *out: PETSc.Vec) -> Any:
        z, numbers = self._at(t, u, p)
        by_p, by_t = self._second(t, u, p, _later(z), np.zeros(len(numbers)), out)
        return by_t if len(out) > 1 else (by_p, by_t)

    def _at(self, t: float, u: PETSc.Vec, p: Any) -> tuple[Array, Array]:
        """Return z [Q, Z] and the numbers among the parameters."""
        numbers, of_fields = self._known.split(p)
        return self._term.at(t, self._space.coefficients(u), of_fields), numbers

    def _second(
        self, t: float, u: PETSc.Vec, p: Any, dz: Array, dp: Array, out: tuple[PETSc.Vec, ...]
    ) -> tuple[Any, float]:
        z, numbers = self._at(t, u, p)
        terms = [(self._term, z, _first(z), dz)]
        return _joined_second(self._space, self._known, terms, (numbers, dp), out)


def _summed(comm: PETSc.Comm, values: Any) -> Any:
    """Return the sum over the ranks."""
    return values if comm.size == 1 else comm.tompi4py().allreduce(values)
