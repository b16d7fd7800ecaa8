"""Spaces of finite elements over the meshes of scikit-fem, distributed over ranks.

A function and its gradient at all quadrature points are linear in the unknowns: a sparse matrix, of
which the first rows give values and those after them the derivatives along x, y, z.  Weak forms are
sums over the points (``tracing.weak_form``); what is here knows the points, and whose unknowns are
whose.

A rank has the elements of its part of the domain, and the unknowns that no earlier rank's elements
touch.  The mesh itself is the same on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc
from scipy import sparse

from daeosens.errors import InputError, is_whole, name_list, require, suggestion
from daeosens.petsc.ranks import admit_comm
from daeosens.petsc.vectors import Array, created, finite_array, gather, read, write

Integers = npt.NDArray[np.intp]

MOST_FIELDS = 1000
"""A number above is a mistake."""


@dataclass(frozen=True, eq=False)
class QuadraturePoints:
    """The quadrature points Q of a rank's elements E, or of facets of them, and what is there.

    Attributes
    ----------
    dofs : array [E, L]
        The functions that are not zero on an element: columns of ``rows``.
    basis : array [E, Q / E, 1 + d, L]
        These functions and their derivatives at the points of the element.
    rows : sparse [(1 + d) Q, .]
        Values and derivatives at all points from the coefficients of all functions of the rank.
    weights : array [Q]
        Of the quadrature, times the size of the element.
    x, normal : array [Q, d]
        Coordinates, and normals outwards; of points inside there are no normals [Q, 0].
    """

    dofs: Integers
    basis: Array
    rows: sparse.csr_array
    weights: Array
    x: Array
    normal: Array


class FiniteElements:
    """Functions u = sum_i u_i phi_i of a basis of scikit-fem, one or several on the same basis.

    Collective on ``comm``.

    Parameters
    ----------
    basis : skfem.Basis
        On a mesh that is the same on every rank, of an element whose unknowns are values at points
        (``ElementTriP1``, ``ElementTriP2``, ``ElementQuad1``, ``ElementTetP1``, ...).
    fields : int or sequence of str
        How many functions, or their names.
    dirichlet : mapping of str to number, sequence or callable, optional
        Values on boundaries of the mesh, by their names; ``"boundary"`` is all of it.  A number, a
        sequence with one for each field (None: free there), or a function of x [d, .] that returns
        such.
    comm : Comm
        The ranks that share the elements.

    Attributes
    ----------
    state : Vec
        Template of the unknowns, all fields of a point together.

    Raises
    ------
    InputError
        An element with other unknowns than values; an unknown boundary; values of another shape;
        fewer elements than ranks.

    Examples
    --------
    >>> import skfem
    >>> from petsc4py import PETSc
    >>> basis = skfem.Basis(skfem.MeshTri().refined(3), skfem.ElementTriP2())
    >>> space = FiniteElements(basis, dirichlet={"boundary": 0.0}, comm=PETSc.COMM_SELF)
    >>> space.state.getSize()
    225
    >>> bump = space.interpolate(lambda x: x[0] * (1 - x[0]) * x[1] * (1 - x[1]))
    >>> round(bump.max()[1], 4)
    0.0625
    """

    def __init__(
        self,
        basis: Any,
        fields: int | Sequence[str] = 1,
        *,
        dirichlet: Mapping[str, Any] | None = None,
        comm: Any = PETSc.COMM_WORLD,
    ) -> None:
        _require_values(basis)
        ranks = admit_comm(comm)
        petsc_comm: Any = ranks
        self.fields = _field_names(fields)
        self.basis = basis
        self.dimensions = int(basis.mesh.dim())
        elements = basis.mesh.nelements
        if elements < ranks.size:
            raise InputError(
                f"{elements} elements on {ranks.size} ranks",
                expected="an element for each rank at least",
                remedy="mesh.refined(2), or fewer ranks",
            )
        if dirichlet is not None:
            require(dirichlet, Mapping, "dirichlet", 'dirichlet={"boundary": 0.0}')
        self._fixed = self._fixed_values(dirichlet or {})
        free = np.isnan(self._fixed)
        middles = basis.mesh.p[:, basis.mesh.t].mean(axis=1).T
        self._owners = bisected(middles, ranks.size)
        # of a function on the border of two ranks the first one has the unknowns
        owner = np.full(basis.N, ranks.size)
        np.minimum.at(owner, basis.element_dofs, self._owners[None, :])
        order = np.argsort(owner, kind="stable")
        unknowns = np.full(free.shape, -1, dtype=PETSc.IntType)
        ordered = free[order].ravel()
        numbers = np.where(ordered, np.cumsum(ordered) - 1, -1)
        unknowns[order] = numbers.reshape(-1, len(self.fields))
        own = int(free[owner == ranks.rank].sum())
        self._numbers = unknowns
        self.state = PETSc.Vec().createMPI((own, int(free.sum())), comm=petsc_comm)
        self.comm = self.state.comm
        self._elements = np.flatnonzero(self._owners == ranks.rank)
        # functions that are not zero on the rank's elements: what it reads
        self._local = np.unique(basis.element_dofs[:, self._elements])

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of unknowns."""
        return (self.state.getSize(),)

    @property
    def owned_shape(self) -> tuple[int, ...]:
        """The number of unknowns that the rank has, and 1: what a field's values are here."""
        return (self.state.getLocalSize(), 1)

    def create_vec(self) -> PETSc.Vec:
        """Return a new vector of unknowns."""
        return self.state.duplicate()

    @cached_property
    def inside(self) -> QuadraturePoints:
        """The points of the rank's elements."""
        return self._points(self.own_basis)

    def boundary(self, name: str) -> QuadraturePoints:
        """Return the points of a boundary that are on the rank's elements."""
        return self._points(self.facet_basis(name))

    @cached_property
    def mass(self) -> PETSc.Mat:
        """The matrix [n, n] of integrals of phi_i phi_j, for unknowns of the same field."""
        points = self.inside
        values = points.basis[:, :, 0]
        weights = points.weights.reshape(values.shape[:2])
        blocks = np.einsum("eq,eqi,eqj->eij", weights, values, values, optimize=True)
        same = np.eye(len(self.fields))
        matrix = self.create_matrix(points)
        entries = np.einsum("eij,fg->eifjg", blocks, same)
        matrix.setValuesCOO(entries.ravel(), PETSc.InsertMode.INSERT_VALUES)
        return matrix

    def create_matrix(self, *points: QuadraturePoints) -> PETSc.Mat:
        """Return a matrix [n, n] that ``setValuesCOO`` fills with element matrices [E, L, F, L, F].

        Those of the first points come first.
        """
        rows: list[Integers] = []
        columns: list[Integers] = []
        for part in points:
            elements, functions = part.dofs.shape
            size = functions * len(self.fields)
            numbers = self._numbers[self._local[part.dofs]].reshape(elements, size)
            rows.append(np.repeat(numbers, size, axis=1).ravel())
            columns.append(np.tile(numbers, size).ravel())
        matrix = PETSc.Mat().create(comm=self.state.comm)
        sizes: Any = self.state.getSizes()
        matrix.setSizes((sizes, sizes))
        matrix.setType(PETSc.Mat.Type.AIJ)
        # PETSc leaves out entries of rows and columns below zero: fixed values are no unknowns
        places: Any = np.concatenate(rows), np.concatenate(columns)
        matrix.setPreallocationCOO(*places)
        return matrix

    def coefficients(self, u: PETSc.Vec) -> Array:
        """Return the coefficients [., F] that the rank reads, the fixed values among them."""
        values = self._fixed[self._local]
        self._exchange.scatter(u, self._received, mode=PETSc.ScatterMode.FORWARD)
        values[self._read] = read(self._received)
        return values

    def directions(self, v: PETSc.Vec) -> Array:
        """Return the same of a change of the unknowns, in which fixed values do not move."""
        values = np.zeros((len(self._local), len(self.fields)))
        self._exchange.scatter(v, self._received, mode=PETSc.ScatterMode.FORWARD)
        values[self._read] = read(self._received)
        return values

    def add(self, values: Array, out: PETSc.Vec) -> None:
        """Fill ``out`` with the sums over ranks of what belongs to the functions [., F]."""
        write(self._received, values[self._read])
        out.zeroEntries()
        self._exchange.scatter(
            self._received,
            out,
            addv=PETSc.InsertMode.ADD_VALUES,
            mode=PETSc.ScatterMode.REVERSE,
        )

    def interpolate(self, function: Callable[[Array], Any]) -> PETSc.Vec:
        """Return the state [n] of the values of a function of x [d, .] at the element's points.

        Parameters
        ----------
        function : callable
            Returns values [.], or of several fields one such array each.

        Raises
        ------
        InputError
            Values of another shape.
        """
        values = self._at(function, self.basis.doflocs, "function(x)")
        if np.isnan(values).any():
            raise InputError("function(x) gives nan", expected="finite values")
        return self.from_values(values)

    def from_values(self, values: npt.ArrayLike) -> PETSc.Vec:
        """Return the state [n] of coefficients [N, F] in the order of scikit-fem's basis."""
        shape = self._fixed.shape
        array = finite_array(np.reshape(values, shape), "values", shape)
        out = self.state.duplicate()
        first, last = out.getOwnershipRange()
        own = (self._numbers >= first) & (self._numbers < last)
        numbers = self._numbers[own] - first
        ordered = np.empty(last - first)
        ordered[numbers] = array[own]
        write(out, ordered)
        return out

    def values(self, u: PETSc.Vec) -> Array:
        """Return all coefficients [N, F] in the order of scikit-fem's basis, on every rank.

        ``basis.interpolator(values[:, 0])`` evaluates them.  Collective.
        """
        values = self._fixed.copy()
        free = self._numbers >= 0
        values[free] = gather(created(u, "u", "run.final"))[self._numbers[free]]
        return values

    def values_at(self, other: FiniteElements, boundary: str = "") -> sparse.csr_array:
        """Return the values at the quadrature points of another space from what the rank reads.

        Raises
        ------
        InputError
            Another mesh, other ranks, several fields or fixed values.
        """
        if self.basis.mesh is not other.basis.mesh or self.comm.size != other.comm.size:
            raise InputError("fields on another mesh or other ranks", expected="those of the space")
        if len(self.fields) > 1 or not np.isnan(self._fixed).all():
            raise InputError(
                "a space for fields with several functions or fixed values",
                expected="FiniteElements(skfem.Basis(mesh, element))",
            )
        basis = other.facet_basis(boundary) if boundary else other.own_basis
        points = self._points(basis.with_element(self.basis.elem))
        return points.rows[: len(points.weights)]

    @property
    def own_basis(self) -> Any:
        """The basis on the rank's elements."""
        return self.basis.with_elements(self._elements)

    def facet_basis(self, name: str) -> Any:
        """Return the basis on those facets of a boundary that are on the rank's elements."""
        facets = self._facets(name)
        owners = self._owners[self.basis.mesh.f2t[0, facets]]
        return self.basis.boundary(facets[owners == self.comm.rank])

    def _points(self, basis: Any) -> QuadraturePoints:
        """Tabulate a basis on some elements, or on facets."""
        count, (elements, points) = len(basis.basis), basis.dx.shape
        d = self.dimensions
        table = np.empty((elements, points, 1 + d, count))
        for i, (function,) in enumerate(basis.basis):
            table[:, :, 0, i] = np.asarray(function)
            table[:, :, 1:, i] = np.moveaxis(np.asarray(function.grad), 0, -1)
        functions: Integers = basis.element_dofs
        dofs = np.searchsorted(self._local, functions).T
        # rows: all values, then all derivatives along x, then those along y
        ordered = np.moveaxis(table, 2, 0).reshape(-1, count)
        columns: Integers = np.tile(np.repeat(dofs, points, axis=0), (1 + d, 1))
        starts = np.arange(len(ordered) + 1) * count
        rows = sparse.csr_array(
            (ordered.ravel(), columns.ravel(), starts), shape=(len(ordered), len(self._local))
        )
        x = np.moveaxis(np.asarray(basis.global_coordinates()), 0, -1).reshape(-1, d)
        normals = getattr(basis, "normals", None)
        normal = np.zeros((len(x), 0))
        if normals is not None:
            normal = np.moveaxis(np.asarray(normals), 0, -1).reshape(-1, d)
        return QuadraturePoints(dofs, table, rows, basis.dx.ravel(), x, normal)

    @cached_property
    def _read(self) -> npt.NDArray[np.bool_]:
        """Which coefficients [., F] that the rank reads are unknowns."""
        return self._numbers[self._local] >= 0

    @cached_property
    def _received(self) -> PETSc.Vec:
        return PETSc.Vec().createSeq(int(self._read.sum()), comm=PETSc.COMM_SELF)

    @cached_property
    def _exchange(self) -> PETSc.Scatter:
        """From the unknowns of all ranks to those that the rank reads."""
        numbers: Any = self._numbers[self._local][self._read]
        source = PETSc.IS().createGeneral(numbers, comm=PETSc.COMM_SELF)
        target = PETSc.IS().createStride(len(numbers), comm=PETSc.COMM_SELF)
        return PETSc.Scatter().create(self.state, source, self._received, target)

    def _facets(self, name: str) -> Integers:
        mesh = self.basis.mesh
        if name == "boundary":
            return mesh.boundary_facets()
        known: dict[str, Any] = mesh.boundaries or {}
        if name not in known:
            raise InputError(
                f'no boundary "{name}"{suggestion(name, known)}',
                expected=f"one of {', '.join(['boundary', *known])}",
                remedy="mesh.with_boundaries({...: lambda x: x[0] == 0.0})",
            )
        return np.asarray(known[name])

    def _fixed_values(self, dirichlet: Mapping[str, Any]) -> Array:
        """Return the values [N, F] that are given, nan where there are none."""
        fixed = np.full((self.basis.N, len(self.fields)), np.nan)
        for name, value in dirichlet.items():
            dofs = np.unique(self.basis.get_dofs(self._facets(name)).all())
            label = f"dirichlet[{name!r}]"
            values = self._at(value, self.basis.doflocs[:, dofs], label)
            fixed[dofs] = np.where(np.isnan(values), fixed[dofs], values)
        return fixed

    def _at(self, value: Any, x: Array, name: str) -> Array:
        """Return values [K, F] at places x [d, K] of what is a number, a sequence or a function."""
        values = value(x) if callable(value) else value
        count = len(self.fields)
        if count == 1 and not isinstance(values, (list, tuple)):
            values = (values,)
        parts = list(values) if isinstance(values, (list, tuple, np.ndarray)) else []
        shape = (x.shape[1],)
        arrays = [np.asarray(np.nan if part is None else part, dtype=float) for part in parts]
        if len(parts) != count or any(array.shape not in ((), shape) for array in arrays):
            raise InputError(
                f"{name} has {len(parts)} parts of shapes {[array.shape for array in arrays]}",
                expected=f"{count}, each a number or an array {shape}",
            )
        return np.stack([np.broadcast_to(array, shape) for array in arrays], axis=-1)


def bisected(places: Array, parts: int) -> Integers:
    """Return the part [K] of each place [K, d]: halves along the longest side, and so on.

    Recursive coordinate bisection (Berger and Bokhari, 1987): parts of the same size, whatever
    their number.

    Examples
    --------
    >>> bisected(np.array([[0.0], [3.0], [1.0], [2.0]]), 2)
    array([0, 1, 0, 1])
    """
    result = np.zeros(len(places), dtype=int)
    if parts > 1:
        few = parts // 2
        longest = int(np.argmax(np.ptp(places, axis=0)))
        order = np.argsort(places[:, longest], kind="stable")
        first, second = np.split(order, [len(places) * few // parts])
        result[first] = bisected(places[first], few)
        result[second] = few + bisected(places[second], parts - few)
    return result


def _require_values(basis: Any) -> None:
    """Refuse what is no basis, and elements with slopes or vectors as unknowns."""
    element, functions = getattr(basis, "elem", None), getattr(basis, "basis", None)
    if element is None or functions is None:
        raise InputError(
            f"basis = {basis!r}",
            expected="a basis of scikit-fem",
            remedy="skfem.Basis(skfem.MeshTri().refined(4), skfem.ElementTriP1())",
        )
    if set(element.dofnames) != {"u"} or np.ndim(functions[0][0]) != 2:
        raise InputError(
            f"basis of {type(element).__name__}",
            expected="an element whose unknowns are values at points",
            remedy='ElementTriP2(), with fields=("u", "v") for vectors',
        )


def _field_names(fields: int | Sequence[str]) -> tuple[str, ...]:
    if is_whole(fields):
        if not 1 <= fields <= MOST_FIELDS:
            raise InputError(f"fields = {fields}", expected=f"1 to {MOST_FIELDS} fields")
        return ("u",) if fields == 1 else tuple(f"u{k}" for k in range(fields))
    names = name_list(fields, "fields")
    if not names:
        raise InputError("fields names none", expected="one field at least")
    return names
