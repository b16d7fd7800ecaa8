"""Gaussian priors for fields, matrix-free: independent values, or smooth by an elliptic operator.

The covariance is the inverse of R = weight A^2 with a symmetric positive definite matrix A: the
square makes the root explicit, so that samples cost one solve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from petsc4py import PETSc
from scipy.special import ndtri

from daeosens.errors import (
    InputError,
    SolveError,
    real_number,
    refuse_uncallable,
    require,
    whole_number,
)
from daeosens.methods.linear_solver import linear_solver
from daeosens.optimize.start import vector_like
from daeosens.petsc.options import validate_names
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import (
    Array,
    created,
    dot,
    keep_unshared,
    read,
    refuse_not_finite,
    write,
)
from daeosens.problem.grids.stencil_matrix import Entry, fill_stencil_matrix, stencil_matrix
from daeosens.problem.grids.structured import Grid, require_uniform
from daeosens.verify.extrapolated_differences import random_numbers, unit

MOST_MODES = 4096
"""Along a dimension, whose modes at all points are in memory where variances are asked for."""

MOST_SAMPLES = 1_000_000
"""Relative errors of estimated variances are a thousandth then."""


@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """Normal with a mean and the precision R = weight A^2.

    Parameters
    ----------
    mean : Vec [n]
        Expected field, of which a copy is kept (collective).
    operator : Mat [n, n], optional
        A, symmetric positive definite; the identity by default.
    weight : float
        1 / sigma^2 for independent values.
    options : mapping
        PETSc options of the solver for A: ``{"ksp_type": "cg", "pc_type": "gamg"}``.  By default LU
        on one rank, GMRES to 1e-12 on several.
    variances : callable, optional
        Gives a rank's own pointwise variances, where they are known without solves, as those of
        ``matern`` are.

    Raises
    ------
    InputError
        A weight that is not positive, or an operator of another size.

    Examples
    --------
    >>> from petsc4py import PETSc
    >>> mean = PETSc.Vec().createSeq(3, comm=PETSc.COMM_SELF)
    >>> prior = GaussianPrior(mean, weight=4.0)
    >>> prior.trace()
    0.75
    """

    mean: PETSc.Vec
    operator: PETSc.Mat | None = None
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    variances: Callable[[], Array] | None = None

    def __post_init__(self) -> None:
        mean = created(self.mean, "prior mean", "functional.start(), or grid.create_vec()")
        agree(mean.comm, "GaussianPrior", operator=self.operator, weight=self.weight)
        refuse_not_finite(self.mean, "prior mean")
        weight = real_number(
            self.weight, "prior weight", least=0.0, inside=True, remedy="1 / sigma^2"
        )
        object.__setattr__(self, "weight", weight)
        if self.operator is not None:
            require(self.operator, PETSc.Mat, "prior operator", "a symmetric Mat")
        if self.variances is not None:
            refuse_uncallable(variances=self.variances)
        require(self.options, Mapping, "options", 'options={"ksp_type": "cg"}')
        validate_names(self.options, "options")
        if self.operator is not None and self.operator.getSize() != (self.mean.size,) * 2:
            raise InputError(
                f"prior operator has size {self.operator.getSize()}",
                expected=f"{(self.mean.size,) * 2}, as the mean",
            )
        keep_unshared(self, "mean")

    @cached_property
    def _solver(self) -> PETSc.KSP:
        assert self.operator is not None
        return linear_solver(self.operator, self.options)

    def apply(self, v: PETSc.Vec) -> PETSc.Vec:
        """Return R v as a new vector.  Collective."""
        agree(self.mean.comm, "GaussianPrior.apply")
        return self._product(self._product(v), math.sqrt(self.weight))

    def solve(self, v: PETSc.Vec) -> PETSc.Vec:
        """Return R^-1 v, the covariance times v, as a new vector.  Collective."""
        agree(self.mean.comm, "GaussianPrior.solve")
        return self.root_solve(self.root_solve(v))

    def root(self, v: PETSc.Vec) -> PETSc.Vec:
        """Return sqrt(weight) A v as a new vector.  Collective."""
        agree(self.mean.comm, "GaussianPrior.root")
        return self._product(v)

    def root_solve(self, v: PETSc.Vec) -> PETSc.Vec:
        """Return A^-1 v / sqrt(weight), which turns white noise into the prior's.  Collective.

        Raises
        ------
        SolveError
            The linear solver did not converge.
        """
        agree(self.mean.comm, "GaussianPrior.root_solve")
        out = self._point(v, "v").copy()
        if self.operator is not None:
            v = self._point(v, "v")
            self._solver.solve(v, out)
            reason: Any = self._solver.getConvergedReason()
            if reason < 0:
                raise SolveError(
                    f"the prior's solver stopped without a solution (reason {reason})",
                    expected="a symmetric positive definite operator",
                    remedy='options={"ksp_type": "cg", "pc_type": "gamg"}',
                )
        out.scale(1.0 / math.sqrt(self.weight))
        return out

    def value(self, x: PETSc.Vec) -> float:
        """Return 1/2 (x - mean)^T R (x - mean).  Collective."""
        return 0.5 * self.squared_distance(x)

    def squared_distance(self, x: PETSc.Vec) -> float:
        """Return (x - mean)^T R (x - mean).  Collective."""
        agree(self.mean.comm, "GaussianPrior.squared_distance")
        image = self.root(self._from_mean(x))
        return dot(image, image)

    def gradient(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return R (x - mean) as a new vector.  Collective."""
        agree(self.mean.comm, "GaussianPrior.gradient")
        return self.apply(self._from_mean(x))

    def sample(self, seed: int) -> PETSc.Vec:
        """Return a sample, the same on any number of ranks.  Collective."""
        agree(self.mean.comm, "GaussianPrior.sample", seed=seed)
        out = self.root_solve(white_noise(self.mean, seed))
        out.axpy(1.0, self.mean)
        return out

    def variance(self, samples: int | None = None, seed: int = 0) -> PETSc.Vec:
        """Return the pointwise variance [n] as a new vector.  Collective.

        Parameters
        ----------
        samples : int, optional
            Estimate it from so many samples, with a relative error of about sqrt(2 / samples).
            By default exactly: known of ``matern``, else by one solve for each of the n points.
        seed : int
            Of the samples.
        """
        if samples is not None:
            samples = whole_number(samples, "samples", least=1, most=MOST_SAMPLES)
        seed = whole_number(seed, "seed")
        agree(self.mean.comm, "variance", samples=samples, seed=seed)
        out = self.mean.duplicate()
        if self.operator is None:
            out.set(1.0 / self.weight)
            return out
        if samples is None and self.variances is not None:
            write(out, self.variances())
            return out
        out.zeroEntries()
        total = np.zeros(out.getLocalSize())
        if samples is None:
            for j in range(out.getSize()):
                # var_j = e_j^T R^-1 e_j = |R^-1/2 e_j|^2: one solve instead of two.
                column = self.root_solve(unit(out, j))
                square = dot(column, column)  # A is symmetric
                start, end = out.getOwnershipRange()
                if start <= j < end:
                    total[j - start] = square
                column.destroy()
        else:
            for j in range(samples):
                noise = self.root_solve(white_noise(self.mean, seed + j))
                total += read(noise) ** 2 / samples
                noise.destroy()
        write(out, total)
        return out

    def trace(self) -> float:
        """Return the sum of the pointwise variances.  Collective."""
        total: Any = self.variance().sum()
        return float(total)

    def _point(self, values: PETSc.Vec, name: str) -> PETSc.Vec:
        """Return a vector laid out as the mean, checked."""
        return refuse_not_finite(vector_like(values, self.mean, name), name)

    def _from_mean(self, x: PETSc.Vec) -> PETSc.Vec:
        difference = self._point(x, "x").copy()
        difference.axpy(-1.0, self.mean)
        return difference

    def _product(self, v: PETSc.Vec, factor: float | None = None) -> PETSc.Vec:
        v = self._point(v, "v")
        out = v.copy()
        if self.operator is not None:
            self.operator.mult(v, out)
        out.scale(math.sqrt(self.weight) if factor is None else factor)
        return out


def matern(grid: Grid, mean: PETSc.Vec, sigma: float, length: float) -> GaussianPrior:
    """Return a prior of smooth fields on a grid: (kappa^2 - Laplacian) field = white noise.

    The Matern covariance with smoothness 3/2, 1 and 1/2 in one, two and three dimensions.
    ``sigma`` and ``length`` hold far from the boundary; on a "zero" boundary the field is 0, on a
    "neumann" one it has no slope across it.  Collective.

    Parameters
    ----------
    grid : Grid
        Every unknown of a point gets a field of its own.
    mean : Vec [n]
        From ``grid.create_vec()``.
    sigma : float
        Standard deviation of the values.
    length : float
        Distance at which the correlation has fallen to about 0.14, in two dimensions [unit of the
        coordinates].

    Raises
    ------
    InputError
        Numbers that are not positive.

    Source
    ------
    Lindgren, Rue and Lindstroem, J. R. Stat. Soc. B 73(4), 2011.

    Examples
    --------
    >>> from daeosens.problem.grids import Grid
    >>> grid = Grid(((0.0, 1.0), (0.0, 1.0)), (8, 8))
    >>> prior = matern(grid, grid.create_vec(), sigma=0.5, length=0.3)
    >>> sample = prior.sample(seed=1)
    >>> sample.size
    64
    """
    require(grid, Grid, "grid", "Grid(((0.0, 1.0), (0.0, 1.0)), (64, 64))")
    agree(grid.comm, "matern", sigma=sigma, length=length)
    sigma = real_number(sigma, "prior sigma", least=0.0, inside=True)
    length = real_number(length, "prior length", least=0.0, inside=True)
    vector_like(mean, grid.create_vec(), "mean")
    # White noise has variance 1 / (cell) in a cell, and (kappa^2 - Laplacian)^-1 makes of it fields
    # of variance Gamma(nu) / (Gamma(2) (4 pi)^(d/2) kappa^(2 nu)): A^-2 / weight is to have sigma^2
    # on its diagonal.
    dimensions = len(grid.shape)
    smoothness = 2.0 - 0.5 * dimensions
    with np.errstate(all="ignore"):
        squared = float(8.0 * smoothness / np.float64(length) ** 2)  # kappa^2
        variance = math.gamma(smoothness) / (4.0 * np.pi) ** (0.5 * dimensions)
        cell = math.prod(grid.spacing)
        weight = float(cell * variance / np.float64(squared) ** smoothness / np.float64(sigma) ** 2)
    if not (0.0 < weight < math.inf and 0.0 < squared < math.inf):
        raise InputError(
            f"prior sigma = {sigma:g}, length = {length:g}",
            expected="numbers whose squares are neither 0 nor infinite",
        )
    known = None
    if max(grid.shape) <= MOST_MODES:
        known = partial(_variances, grid, squared, weight)
    return GaussianPrior(mean, _elliptic(grid, squared), weight, variances=known)


def _variances(grid: Grid, squared: float, weight: float) -> Array:
    """Return the rank's own diagonal of (kappa^2 - Laplacian)^-2 / weight.

    The eigenvectors are products of those along each dimension: their squares, times the inverse
    squares of the sums of eigenvalues, are added up dimension by dimension.
    """
    corner, sizes = grid.dm.getCorners()
    along = [_modes(grid, axis) for axis in range(len(grid.shape))]
    total: Any = squared
    for axis, (values, _) in enumerate(along):
        total = total + values.reshape([-1 if k == axis else 1 for k in range(len(along))])
    result: Array = total**-2.0 / weight
    for first, count, (_, squares) in zip(corner, sizes, along, strict=True):
        # sums over the modes of the first dimension, whose points become the last one
        result = np.tensordot(result, squares[first : first + count], axes=(0, 1))
    # points along x, y, z, as vectors have them: the slowest one first, all unknowns of a point
    return np.repeat(result.transpose().ravel(), grid.dof)


def _modes(grid: Grid, axis: int) -> tuple[Array, Array]:
    """Return eigenvalues [n] of minus the second difference, and squares of modes [points, n]."""
    n, h, kind = grid.shape[axis], grid.spacing[axis], grid.boundaries[axis]
    points, modes = np.arange(n)[:, None], np.arange(n)
    if kind == "periodic":
        # sine and cosine of a pair together
        angles, squares = 2.0 * np.pi * modes / n, np.full((n, n), 1.0 / n)
    elif kind == "neumann":
        angles = np.pi * modes / n
        squares = 2.0 / n * np.cos(angles * (points + 0.5)) ** 2
        squares[:, 0] = 1.0 / n
    else:
        angles = np.pi * (modes + 1) / (n + 1)
        squares = 2.0 / (n + 1) * np.sin(angles * (points + 1)) ** 2
    return (2.0 / h * np.sin(0.5 * angles)) ** 2, squares


def _elliptic(grid: Grid, squared: float) -> PETSc.Mat:
    """Return kappa^2 - Laplacian for each unknown of a point."""
    require_uniform(grid, "a prior of this kind")
    points = grid.owned_shape[:-1]
    corner, sizes = grid.dm.getCorners()
    centre = np.full(points, squared)
    entries: list[Entry] = []
    values: list[Array] = []
    for axis, h in enumerate(grid.spacing):
        number = np.arange(corner[axis], corner[axis] + sizes[axis])
        for side in (-1, 1):
            inside = (number + side >= 0) & (number + side < grid.shape[axis])
            # nothing flows through a "neumann" edge; beyond a "zero" one stands a field of 0
            flows = inside | (grid.boundaries[axis] != "neumann")
            along = [-1 if k == axis else 1 for k in reversed(range(len(points)))]
            weights = np.broadcast_to((flows / h**2).reshape(along), points)
            centre += weights
            offset = tuple(side if k == axis else 0 for k in range(len(points)))
            entries += [(component, component, offset) for component in range(grid.dof)]
            values += [-weights] * grid.dof
    none = (0,) * len(points)
    entries += [(component, component, none) for component in range(grid.dof)]
    values += [centre] * grid.dof
    operator = stencil_matrix(grid, entries)
    fill_stencil_matrix(np.stack(values), operator)
    return operator


def white_noise(like: PETSc.Vec, seed: int) -> PETSc.Vec:
    """Return independent standard normal numbers in a new vector laid out as ``like``.

    The same numbers on any number of ranks.  Collective.
    """
    out = random_numbers(like, whole_number(seed, "seed"))
    # Uniform in (-1, 1) to uniform in (0, 1), without the ends, at which the normal quantile is
    # infinite.
    share = np.clip(0.5 * (read(out) + 1.0), 2.0**-54, 1.0 - 2.0**-53)
    write(out, ndtri(share))
    return out
