"""What is known beforehand of fields and numbers: joint Gaussian priors, and penalties."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
from petsc4py import PETSc

from daeosens.errors import (
    InputError,
    NotFiniteError,
    real_number,
    refuse_uncallable,
    require,
    together,
)
from daeosens.functional.field_parameters import FieldParameters
from daeosens.functional.reduced import Reduced
from daeosens.inverse.uncertainty.gaussian_prior import GaussianPrior
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, finite_array, read, write
from daeosens.problem.callback_guard import on_every_rank
from daeosens.problem.grids import Grid
from daeosens.problem.grids.structured import require_uniform
from daeosens.tracing import trace_stencil


def joint_prior(
    functional: Reduced, priors: Mapping[str, Any], options: Mapping[str, Any] | None = None
) -> GaussianPrior:
    """Return one prior of all that is free in ``FieldParameters``.  Collective.

    In the scale that is moved: of logarithms where these are.

    Parameters
    ----------
    functional : Reduced
        With ``FieldParameters`` as its control.
    priors : mapping of str to GaussianPrior or (mean, sigma)
        Of each free field a prior on its grid, as ``matern`` makes it, on that of ``meshes`` where
        it has one; of each free number, or block of numbers, mean and standard deviation.
    options : mapping, optional
        As for ``GaussianPrior``.

    Returns
    -------
    GaussianPrior

    Raises
    ------
    InputError
        Names that are missing or unknown; a prior on another grid; numbers that are none.

    Examples
    --------
    >>> import daeosens as ds
    >>> from daeosens.functional import FieldParameters
    >>> from daeosens.inverse import joint_prior, matern
    >>> line = Grid(((0.0, 1.0),), (4,), "neumann", comm=PETSc.COMM_SELF)
    >>> def rhs(t, u, p):
    ...     return u.laplacian(p.k) - p.loss * u.center
    >>> heat = ds.trace_stencil(rhs, line, ["loss"], fields=["k"])
    >>> values = {"loss": ds.Parameter(0.2), "k": ds.Parameter(1.0, scale="log")}
    >>> control = FieldParameters(values, [1.0, 0.0, 0.0, 0.0])
    >>> heated = ds.LeastSquares([1.0], [line.create_vec()], sigma=0.1)
    >>> functional = ds.Reduced(heat, heated, ds.Stepping((0.0, 1.0), "cn", dt=0.1), control)
    >>> smooth = matern(line, line.create_vec(), sigma=0.5, length=0.5)
    >>> prior = joint_prior(functional, {"loss": (0.3, 0.1), "k": smooth})
    >>> prior.mean.array
    array([0.3, 0. , 0. , 0. , 0. ])
    """
    parts = _parts(functional)
    require(priors, Mapping, "priors", 'joint_prior(functional, {"k": matern(...)})')
    agree(functional.comm, "joint_prior", names=list(priors))
    complaints = [f'"{name}" is free and has no prior' for name in parts if name not in priors]
    complaints += [
        f'there is no free parameter "{name}"; expected: {", ".join(parts)}'
        for name in priors
        if name not in parts
    ]
    for name, (_, grid) in parts.items():
        if grid is not None and name in priors and not isinstance(priors[name], GaussianPrior):
            complaints.append(
                f'the prior of "{name}" is {type(priors[name]).__name__}; '
                "expected: a GaussianPrior on its grid, as matern(grid, mean, sigma, length)"
            )
    if complaints:
        raise together(complaints, heading="priors")
    mean = functional.start()
    start, _ = mean.getOwnershipRange()
    own: Any = mean.getArray()
    # A of 1/2 |A (x - mean)|^2, block by block: 1/sigma of numbers, the root of the precision of
    # fields
    rows: list[Any] = []
    columns: list[Any] = []
    values: list[Array] = []
    for name, (at, grid) in parts.items():
        if grid is None:
            with on_every_rank(functional.comm):
                middle, spread = _numbers(priors[name], name, at.stop - at.start)
            own[at] = middle
            places = _numbered(start + at.start, start + at.stop)
            entries: Any = places, places, 1.0 / spread
        else:
            own[at] = _mean(priors[name], name, grid)
            entries = _root(priors[name], start + at.start)
        for part, several in zip((rows, columns, values), entries, strict=True):
            part.append(several)
    operator: Any = PETSc.Mat().create(comm=functional.comm)
    operator.setSizes((mean.getSizes(), mean.getSizes()))
    operator.setType(PETSc.Mat.Type.AIJ)
    indices = [np.concatenate(part).astype(PETSc.IntType) for part in (rows, columns)]
    operator.setPreallocationCOO(*indices)
    operator.setValuesCOO(np.concatenate(values))
    known = None
    if all(_knows(priors[name]) for name, (_, grid) in parts.items() if grid is not None):
        known = partial(_variances, priors, parts, mean.getLocalSize())
    return GaussianPrior(
        mean, operator, options={} if options is None else options, variances=known
    )


def _knows(prior: GaussianPrior) -> bool:
    """Whether variances take no solves."""
    return prior.operator is None or prior.variances is not None


def _variances(priors: Mapping[str, Any], parts: Mapping[str, Any], size: int) -> Array:
    """Return the rank's own variances of all blocks."""
    result = np.empty(size)
    for name, (at, grid) in parts.items():
        if grid is None:
            result[at] = _numbers(priors[name], name, at.stop - at.start)[1] ** 2
        else:
            result[at] = read(priors[name].variance())
    return result


class FieldPenalty:
    """The sum over a grid's points of a density of a free field, to be added by ``Regularized``.

    In the scale that is moved: of the logarithm where that is.  All that it gives is collective.

    Parameters
    ----------
    functional : Reduced
        With ``FieldParameters`` as its control.
    name : str
        Of the field.
    density : callable
        ``density(q) -> number``, traced: ``q.center[0]`` is the value at the point, the rest as the
        unknowns of ``trace_stencil`` on a grid without flux through its edges, unless it is
        periodic.
    weight : float
        Of the sum, each density times the volume of a cell.

    Raises
    ------
    InputError
        No free field of that name; a weight that is not positive; a density that cannot be traced.

    Examples
    --------
    ``total_variation`` is one; another keeps values near one of two materials:

    >>> def wells(q):
    ...     return (q.center[0] ** 2 - 1.0) ** 2
    """

    def __init__(
        self,
        functional: Reduced,
        name: str,
        density: Callable[[Any], Any],
        weight: float = 1.0,
    ) -> None:
        parts = _parts(functional)
        refuse_uncallable(density=density)
        require(name, str, "name", 'FieldPenalty(functional, "k", density)')
        agree(functional.comm, "FieldPenalty", name=name, weight=weight)
        fields = [field for field, (_, grid) in parts.items() if isinstance(grid, Grid)]
        if name not in fields:
            raise InputError(
                f"there is no free field {name!r} on a grid",
                expected=", ".join(fields) or "a free field of a model of trace_stencil",
            )
        self._name = name
        self._at, grid = parts[name]
        assert isinstance(grid, Grid)
        weight = real_number(weight, "weight", least=0.0, inside=True)
        self._weight = weight * math.prod(grid.spacing)
        self.comm, self._like = functional.comm, functional.start()
        # The gradient of sum f is f_u^T 1: what functions of points have anyway.
        self._model = trace_stencil(
            lambda _t, u, _p: density(u), _natural(grid), jacobian="products"
        )

    def value(self, x: PETSc.Vec) -> float:
        """Return the sum."""
        agree(self.comm, "FieldPenalty.value")
        out = self._ones.duplicate()
        self._model.rhs(0.0, self._field(x), np.empty(0), out)
        total: Any = out.sum()
        if not math.isfinite(total):
            raise NotFiniteError(
                f'the penalty of "{self._name}" is {total}', expected="a density that is finite"
            )
        return self._weight * float(total)

    def gradient(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return its gradient as a new vector."""
        agree(self.comm, "FieldPenalty.gradient")
        field = self._field(x)
        matrix, out = self._model.rhs_u.create(0.0, field, np.empty(0)), field.duplicate()
        self._model.rhs_u.fill(0.0, field, np.empty(0), matrix)
        matrix.multTranspose(self._ones, out)
        return self._spread(out)

    def hessian_product(self, x: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        """Return the product of its Hessian with a direction as a new vector."""
        agree(self.comm, "FieldPenalty.hessian_product")
        field, none = self._field(x), np.empty(0)
        out, of_p = field.duplicate(), self._model.create_parameters()
        # weights of one: the second derivatives of all points' densities, added up
        self._model.rhs_hessian(
            (0.0, field, none), self._ones, (self._field(dx), none), (out, of_p)
        )
        return self._spread(out)

    @cached_property
    def _ones(self) -> PETSc.Vec:
        ones = self._model.create_state()
        ones.set(1.0)
        return ones

    def _field(self, x: PETSc.Vec) -> PETSc.Vec:
        field = self._model.create_state()
        write(field, read(x)[self._at])
        return field

    def _spread(self, field: PETSc.Vec) -> PETSc.Vec:
        result = self._like.duplicate()
        result.zeroEntries()
        array: Any = result.getArray()
        array[self._at] = self._weight * read(field)
        return result


def total_variation(
    functional: Reduced, name: str, *, smoothing: float, weight: float = 1.0
) -> FieldPenalty:
    """Return a penalty that keeps jumps: the integral of sqrt(|grad q|^2 + smoothing^2).

    Of a free field q in the scale that is moved, by differences with the next points.  Collective.

    Parameters
    ----------
    functional : Reduced
        With ``FieldParameters`` as its control.
    name : str
        Of the field.
    smoothing : float
        A slope that counts as none: far below those of jumps over a spacing, and not below
        rounding.
    weight : float
        Of the integral.

    Returns
    -------
    FieldPenalty

    Raises
    ------
    InputError
        As ``FieldPenalty``; a smoothing that is not positive.

    Examples
    --------
    >>> import daeosens as ds
    >>> from daeosens.functional import FieldParameters
    >>> from daeosens.inverse import Regularized, total_variation
    >>> line = Grid(((0.0, 1.0),), (4,), "neumann", comm=PETSc.COMM_SELF)
    >>> heat = ds.trace_stencil(lambda t, u, p: u.laplacian(p.k), line, fields=["k"])
    >>> values = {"k": ds.Parameter(np.array([1.0, 1.0, 3.0, 3.0]))}
    >>> control = FieldParameters(values, [1.0, 0.0, 0.0, 0.0])
    >>> data = ds.LeastSquares([1.0], [line.create_vec()], sigma=0.1)
    >>> functional = ds.Reduced(heat, data, ds.Stepping((0.0, 1.0), "cn", dt=0.1), control)
    >>> jumps = total_variation(functional, "k", smoothing=1e-6)
    >>> print(f"{jumps.value(functional.start()):.4f}")
    2.0000
    """
    _parts(functional)
    smoothing = real_number(smoothing, "smoothing", least=0.0, inside=True)
    agree(functional.comm, "total_variation", smoothing=smoothing)

    def density(q: Any) -> Any:
        total: Any = smoothing**2
        for axis, h in enumerate(q.spacing):
            # differences to the next point: central ones do not see a field that alternates
            next_one = tuple(1 if k == axis else 0 for k in range(len(q.spacing)))
            total = total + ((q[next_one][0] - q.center[0]) / h) ** 2
        return np.sqrt(total)

    return FieldPenalty(functional, name, density, weight)


def _parts(functional: Reduced) -> dict[str, tuple[slice, Grid | None]]:
    """Return where the free blocks of a functional's x are.  Collective."""
    require(
        functional, Reduced, "functional", "Reduced(model, cost, stepping, FieldParameters(...))"
    )
    control: Any = functional.control
    require(control, FieldParameters, "the control", "FieldParameters({...}, initial_state)")
    parts: dict[str, tuple[slice, Grid | None]] = control.parts(functional.problem)
    return parts


def _natural(grid: Grid) -> Grid:
    """Return a grid of the same points, through whose edges nothing flows if it has any."""
    require_uniform(grid, "a penalty of a field")
    periodic = [kind == "periodic" for kind in grid.boundaries]
    # without a periodic edge points are the middles of cells, half a spacing inside
    box = tuple(
        (first, first + n * h) if wraps else (first - 0.5 * h, first + (n - 0.5) * h)
        for first, h, n, wraps in zip(grid.origin, grid.spacing, grid.shape, periodic, strict=True)
    )
    kinds: Any = ["periodic" if wraps else "neumann" for wraps in periodic]
    return Grid(box, grid.shape, kinds, 1, grid.comm)


def _numbers(values: Any, name: str, count: int) -> tuple[Array, Array]:
    """Return means and standard deviations of the rank's own numbers of a block."""
    pair: list[Any] = list(values) if isinstance(values, (tuple, list)) else []
    if len(pair) != 2:
        raise InputError(f'the prior of "{name}" is {values!r}', expected="(mean, sigma)")
    result: list[Array] = []
    for word, several in zip(("mean", "sigma"), pair, strict=True):
        array = finite_array(several, f'prior {word} of "{name}"').ravel()
        # ranks without numbers have none of a block either
        if array.size != 1 and count and array.size != count:
            raise InputError(
                f'prior {word} of "{name}" has {array.size} values', expected=f"one, or {count}"
            )
        result.append(np.broadcast_to(array if count or array.size == 1 else array[:0], (count,)))
    if (finite_array(pair[1], "sigma") <= 0.0).any():
        raise InputError(f'prior sigma of "{name}" = {pair[1]!r}', expected="sigma > 0")
    return result[0], result[1]


def _mean(prior: GaussianPrior, name: str, grid: Grid) -> Array:
    mean, like = prior.mean, grid.create_vec()
    with on_every_rank(grid.comm):
        if mean.getSizes() != like.getSizes():
            raise InputError(
                f'the prior of "{name}" has size {mean.getSize()}',
                expected=f"{like.getSize()}, as its grid of shape {grid.shape}",
            )
    return read(mean)


def _numbered(first: int, end: int) -> Any:
    return np.arange(first, end)


def _root(prior: GaussianPrior, first: int) -> tuple[Any, Any, Array]:
    """Return rows, columns and values of sqrt(weight) A, where the rank's own part begins so."""
    root = math.sqrt(prior.weight)
    size = prior.mean.getLocalSize()
    if prior.operator is None:
        places = _numbered(first, first + size)
        return places, places, np.full(size, root)
    pointers, numbers, values = cast("Any", prior.operator.getValuesCSR())
    # columns are numbered rank by rank, here as in x
    ranges = np.array(prior.operator.getOwnershipRanges())
    starts = np.array(prior.mean.comm.tompi4py().allgather(first))
    owners = cast("Any", np.searchsorted(ranges, numbers, side="right")) - 1
    rows = np.repeat(np.arange(first, first + size), np.diff(pointers))
    return rows, starts[owners] + numbers - ranges[owners], root * values
