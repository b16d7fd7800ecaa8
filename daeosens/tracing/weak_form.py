"""Problems on finite elements from one function of a point: traced, differentiated, compiled.

With Phi the values and derivatives of all basis functions at the quadrature points, W the weights
and g the traced function, f(u) = Phi^T W g(Phi u): linear, point by point, linear.  Its derivatives
are those of g between the same matrices.  All points are evaluated in one call.

At a point the unknowns z of g are the values of the fields, their derivatives along x, those along
y, the coordinates, the normal on a boundary, and the time: all that varies but the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast

import numpy as np
from petsc4py import PETSc

from daeosens.costs.objective import Running, Terminal
from daeosens.errors import InputError
from daeosens.petsc.vectors import Array, gather, scatter
from daeosens.problem.batched.protocol import Batch
from daeosens.problem.equations import ODE
from daeosens.problem.grids.finite_elements import FiniteElements, QuadraturePoints
from daeosens.problem.matrices import Products
from daeosens.problem.problem import Problem
from daeosens.tracing.build import build
from daeosens.tracing.model import WeakForm
from daeosens.tracing.named_parameters import admit_shapes


class Point:
    """What a function of a point sees of the fields: values, derivatives, coordinates, normal.

    Attributes
    ----------
    value : array [F]
        The fields.
    x, normal : array [d]
        Coordinates; on a boundary the unit normal outwards.
    """

    def __init__(self, z: Any, sizes: tuple[int, int], normals: int) -> None:
        count, d = sizes
        self.value = z[:count]
        self._derivatives = [z[count * (1 + k) : count * (2 + k)] for k in range(d)]
        rest = count * (1 + d)
        self.x = z[rest : rest + d]
        self.normal = z[rest + d : rest + d + normals]

    def gradient(self) -> list[Any]:
        """Return the derivatives [F] along x, y, z."""
        return self._derivatives


def build_weak_form(
    rhs: Callable[..., Any],
    space: FiniteElements,
    parameters: int | Sequence[str] | Mapping[str, Any],
    outflow: Mapping[str, Callable[..., Any]],
) -> WeakForm:
    """Return the problem of ``daeosens.trace_weak_form``, whose arguments these are."""
    shapes = admit_shapes(parameters)
    sides = {name: space.boundary(name) for name in outflow}
    terms = [
        _traced(_of_domain(rhs), space, space.inside, parameters),
        *(_traced(_of_boundary(outflow[name]), space, sides[name], parameters) for name in sides),
    ]
    form = _Form(space, terms)
    problem = ODE(
        form.rhs,
        state=space.state,
        parameters=shapes.names,
        jacobian=form.jacobian,
        jacobian_matrix=form.create_matrix(),
        jacobian_p=Products(form.push_p, form.pull_p) if shapes.size else None,
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
    lowered = {part.name: getattr(problem, part.name) for part in fields(Problem)}

    def integral(density: Callable[..., Any]) -> _Integral:
        return _Integral(space, _traced(_of_scalar(density), space, space.inside, parameters))

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

    return WeakForm(
        **lowered, shapes=shapes, space=space, trace_terminal=terminal, trace_running=running
    )


def _traced(
    density: Callable[..., Any],
    space: FiniteElements,
    points: QuadraturePoints,
    parameters: int | Sequence[str] | Mapping[str, Any],
) -> _Term:
    """Trace a function of a point, and bind it to points."""
    count, d, normals = len(space.fields), space.dimensions, points.normal.shape[1]
    size = count * (1 + d) + d + normals + 1
    tests = count * (1 + d)

    def at_point(_t: Any, z: Any, p: Any) -> Any:
        values = density(z[size - 1], Point(z, (count, d), normals), p)
        return [*values, *(0.0 for _ in range(size - len(values)))]

    at_point.__module__ = getattr(density, "__module__", "")
    model = build(at_point, size, parameters, None, (), None, (), space.comm)
    assert model.batch is not None
    assert model.graph is not None
    return _Term(points, model.batch, tests, size, affine=bool(model.graph.affine))


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
    batch : Batch
        The function z [Q, Z] -> [Q, Z] with its derivatives.
    tests, size : int
        Entries (1 + d) F of z that are fields and their derivatives, and Z of them in all.
    affine : bool
        The derivative of the function is the same for every z.
    """

    def __init__(
        self, points: QuadraturePoints, batch: Batch, tests: int, size: int, *, affine: bool
    ) -> None:
        self.points, self.affine = points, affine
        self._batch, self._tests, self._size = batch, tests, size
        self._weights = points.weights[:, None]
        self._times = np.zeros(len(points.weights))  # not read: the time is an entry of z

    def at(self, t: float, coefficients: Array) -> Array:
        """Return z [Q, Z] for coefficients [., F] of the fields."""
        z = self.along(coefficients)
        z[:, self._tests : -1] = np.concatenate([self.points.x, self.points.normal], axis=1)
        z[:, -1] = t
        return z

    def along(self, coefficients: Array) -> Array:
        """Return the change Phi v [Q, Z] of z by that of the coefficients v [., F]."""
        z = np.zeros((len(self._weights), self._size))
        # values of all points come first, then all derivatives along x: side by side at each point
        parts = np.split(self.points.rows @ coefficients, self.points.basis.shape[2])
        z[:, : self._tests] = np.hstack(parts)
        return z

    def collected(self, at_points: Array) -> Array:
        """Return Phi^T v [., F] of v [Q, Z]."""
        parts = np.hsplit(at_points[:, : self._tests], self.points.basis.shape[2])
        return self.points.rows.T @ np.vstack(parts)

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

    def __init__(self, space: FiniteElements, terms: Sequence[_Term]) -> None:
        self._space, self._terms = space, terms

    def create_matrix(self) -> PETSc.Mat:
        """Return a matrix for ``jacobian``."""
        return self._space.create_matrix(*(term.points for term in self._terms))

    def rhs(self, t: float, u: PETSc.Vec, p: Array, out: PETSc.Vec) -> None:
        self._collect(t, u, out, lambda term, z: term.values(z, p))

    def jacobian(self, t: float, u: PETSc.Vec, p: Array, out: PETSc.Mat) -> None:
        at = self._space.coefficients(u)
        blocks = [term.element_matrices(term.at(t, at), p).ravel() for term in self._terms]
        entries: Any = np.concatenate(blocks)
        out.setValuesCOO(entries, PETSc.InsertMode.INSERT_VALUES)

    def push_p(self, t: float, u: PETSc.Vec, p: Array, dp: PETSc.Vec, out: PETSc.Vec) -> None:
        along = gather(dp)
        self._collect(t, u, out, lambda term, z: term.push_p(z, p, along))

    def pull_p(self, t: float, u: PETSc.Vec, p: Array, w: PETSc.Vec, out: PETSc.Vec) -> None:
        at, weights = self._space.coefficients(u), self._space.directions(w)
        sums = [term.pull_p(term.at(t, at), p, term.along(weights)) for term in self._terms]
        scatter(_summed(self._space, np.sum(sums, axis=0)), out)

    def rhs_t(self, t: float, u: PETSc.Vec, p: Array, out: PETSc.Vec) -> None:
        self._collect(t, u, out, lambda term, z: term.jacobian(z, p)[:, :, -1])

    def hessian_product(
        self,
        t: float,
        u: PETSc.Vec,
        p: Array,
        w: PETSc.Vec,
        du: PETSc.Vec,
        dp: Array,
        out: PETSc.Vec,
    ) -> Array:
        along = self._space.directions(du)
        return self._second(t, u, p, w, lambda term, _z: term.along(along), dp, out)[0]

    def hessian_t(
        self, t: float, u: PETSc.Vec, p: Array, w: PETSc.Vec, out: PETSc.Vec
    ) -> tuple[Array, float]:
        return self._second(t, u, p, w, lambda _term, z: _later(z), 0.0 * p, out)

    def _collect(
        self, t: float, u: PETSc.Vec, out: PETSc.Vec, values: Callable[[_Term, Array], Array]
    ) -> None:
        """Fill ``out`` with Phi^T of values [Q, Z] at the points of all terms."""
        at = self._space.coefficients(u)
        parts = [term.collected(values(term, term.at(t, at))) for term in self._terms]
        self._space.add(np.sum(parts, axis=0), out)

    def _second(
        self,
        t: float,
        u: PETSc.Vec,
        p: Array,
        w: PETSc.Vec,
        along: Callable[[_Term, Array], Array],
        dp: Array,
        out: PETSc.Vec,
    ) -> tuple[Array, float]:
        """Fill ``out`` with the derivative of f_u^T w, and return those of w^T f_p and w^T f_t."""
        at, weights = self._space.coefficients(u), self._space.directions(w)
        by_u, sums = np.zeros_like(at), np.zeros(len(p) + 1)
        for term in self._terms:
            z = term.at(t, at)
            by_z, by_p = term.second(z, p, term.along(weights), along(term, z), dp)
            by_u += term.collected(by_z)
            sums += np.append(by_p, by_z[:, -1].sum())
        self._space.add(by_u, out)
        sums = _summed(self._space, sums)
        return sums[:-1], float(sums[-1])


class _Integral:
    """A scalar over the domain as callbacks of PETSc style."""

    def __init__(self, space: FiniteElements, term: _Term) -> None:
        self._space, self._term = space, term

    def value(self, t: float, u: PETSc.Vec, p: Array) -> float:
        z = self._at(t, u)
        return float(_summed(self._space, self._term.values(z, p)[:, 0].sum()))

    def gradient_u(self, t: float, u: PETSc.Vec, p: Array, out: PETSc.Vec) -> None:
        slopes = self._term.jacobian(self._at(t, u), p)[:, 0]
        self._space.add(self._term.collected(slopes), out)

    def gradient_p(self, t: float, u: PETSc.Vec, p: Array) -> Array:
        z = self._at(t, u)
        return _summed(self._space, self._term.pull_p(z, p, _first(z)))

    def value_t(self, t: float, u: PETSc.Vec, p: Array) -> float:
        slopes = self._term.jacobian(self._at(t, u), p)[:, 0, -1]
        return float(_summed(self._space, slopes.sum()))

    def hessian_product(
        self, t: float, u: PETSc.Vec, p: Array, du: PETSc.Vec, dp: Array, out: PETSc.Vec
    ) -> Array:
        along = self._term.along(self._space.directions(du))
        return self._second(t, u, p, along, dp, out)[0]

    def hessian_t(self, t: float, u: PETSc.Vec, p: Array, out: PETSc.Vec) -> tuple[Array, float]:
        return self._second(t, u, p, _later(self._at(t, u)), 0.0 * p, out)

    def _at(self, t: float, u: PETSc.Vec) -> Array:
        return self._term.at(t, self._space.coefficients(u))

    def _second(
        self, t: float, u: PETSc.Vec, p: Array, dz: Array, dp: Array, out: PETSc.Vec
    ) -> tuple[Array, float]:
        z = self._at(t, u)
        by_z, by_p = self._term.second(z, p, _first(z), dz, dp)
        self._space.add(self._term.collected(by_z), out)
        sums = _summed(self._space, np.append(by_p, by_z[:, -1].sum()))
        return sums[:-1], float(sums[-1])


def _summed(space: FiniteElements, values: Any) -> Any:
    """Return the sum over the ranks."""
    return values if space.comm.size == 1 else space.comm.allreduce(values)
