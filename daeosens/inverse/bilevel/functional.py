"""The outer problem: a functional of the nonlinear parameters alone.

For each value phi of these the linear ones solve the inner problem, and J(phi) = L(phi, p(phi)).
The gradient is L_phi (envelope theorem).  Gauss-Newton uses Kaufman's form of the Jacobian of the
residual, (I - A A^+) r_phi: what is left out of Golub and Pereyra's, A^+T (A_phi)^T r, is second
order in the residual, and needs mixed derivatives in each iteration.  The exact Hessian
L_phiphi - L_phip Z (Z^T L_pp Z)^-1 Z^T L_pphi, Z the directions that active constraints leave, is
there as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.functional.parameter import Parameter
from daeosens.inverse.bilevel.inner import InnerSolution, LinearConstraints, solve_inner
from daeosens.inverse.bilevel.samples import Samples
from daeosens.petsc.vectors import Array, gather, scatter
from daeosens.problem.delays import Delays
from daeosens.problem.matrices import dense


@dataclass(frozen=True, eq=False)
class ExperimentRows:
    """Rows of one experiment: its samples, and the right-hand side with its parameters.

    Attributes
    ----------
    samples : Samples
    values : PointValues
        The right-hand side at the nodes.
    p : array [m]
        Its parameters, with those that are estimated at any value.
    linear, others : array of int
        Which of all linear (nonlinear) parameters its own are, in the order of ``values``.
    delays : Delays or None
        What is delayed.
    """

    samples: Samples
    values: Any
    p: Array
    linear: npt.NDArray[np.intp]
    others: npt.NDArray[np.intp]
    delays: Delays | None

    @cached_property
    def target(self) -> Array:
        """Measurements as residuals see them."""
        return self.samples.residuals_of(self.samples.target)

    @cached_property
    def _fixed_points(self) -> Any:
        samples = self.samples
        empty = np.zeros((0, len(samples.nodes)))
        late, first = [empty] * 4, np.array([samples.first])
        return self.values.prepared([samples.nodes[None, :], samples.states, *late, first])

    def points(self, p: Array) -> Any:
        """Return the nodes with their states, delayed ones too."""
        if self.delays is None:
            return self._fixed_points
        samples = self.samples
        # delayed states are read from the curves; before the first sample history holds
        late, before = zip(*map(samples.late, self.delays.values(p).tolist()), strict=True)
        stacked, first = np.concatenate(late, axis=1), np.array([samples.first])
        behind = np.array(before, dtype=float)
        parts = [samples.nodes[None, :], samples.states, *stacked, behind, first]
        return self.values.prepared(parts)


@dataclass(frozen=True, eq=False)
class Point:
    """What is known at one phi.

    Attributes
    ----------
    inner : InnerSolution
    residual : array [R]
    matrix : array [R, m]
        A: the residual's derivative in the linear parameters.
    by_others : array [R, k]
        That in x.
    parts : list of (p, points)
        Of each experiment.
    """

    inner: InnerSolution
    residual: Array
    matrix: Array
    by_others: Array
    parts: list[tuple[Array, Any]]

    @cached_property
    def kaufman(self) -> Array:
        """Kaufman's Jacobian of the residual [R, k]."""
        # (I - A (A^T A)^-1 A^T) r_phi, within the directions that active constraints leave free
        followed = self.inner.newton(self.matrix.T @ self.by_others)
        return self.by_others - self.matrix @ followed

    @cached_property
    def gauss_newton(self) -> Array:
        """The square of Kaufman's Jacobian [k, k]: one for all products in a trust region."""
        return self.kaufman.T @ self.kaufman


@dataclass(frozen=True, eq=False)
class Pull:
    """A normal law of x in the unit of the residuals: rows ``weights * (x - centre)``.

    Attributes
    ----------
    centre : array [k]
    weights : array [k]
        The level of the residuals over the standard deviation of x; zero where nothing is known.
    """

    centre: Array
    weights: Array


@dataclass(frozen=True, eq=False)
class BilevelFunctional:
    """X -> J: a ``Functional`` of the nonlinear parameters in their scales.

    Attributes
    ----------
    experiments : tuple of ExperimentRows
    linear : mapping of str to Parameter
        The linear parameters, in the order of p.
    others : mapping of str to Parameter
        The nonlinear ones, in the order of x.
    constraints : LinearConstraints
        On p.
    ridge : float
        Adds ridge/2 |D p|^2, D the lengths of the columns of the inner problem at the start.
    pull : Pull or None
        Adds rows that draw x towards a point.
    """

    experiments: tuple[ExperimentRows, ...]
    linear: dict[str, Parameter]
    others: dict[str, Parameter]
    constraints: LinearConstraints
    ridge: float = 0.0
    pull: Pull | None = None
    _cached: dict[bytes, Point] = field(default_factory=dict[bytes, Point], repr=False)

    @property
    def comm(self) -> PETSc.Comm:
        """Every rank has all of it."""
        return PETSc.COMM_SELF

    def vector(self, values: npt.ArrayLike) -> PETSc.Vec:
        """Return x [k] as a vector."""
        vec = PETSc.Vec().createSeq(len(self.others), comm=self.comm)
        return scatter(values, vec)

    @cached_property
    def _logs(self) -> npt.NDArray[np.bool_]:
        return np.array(
            [parameter.scale == "log" for parameter in self.others.values()], dtype=bool
        )

    def start(self) -> PETSc.Vec:
        """Return the starting values of the nonlinear parameters, scaled [k]."""
        return self.vector(
            [parameter.scaled(parameter.value) for parameter in self.others.values()]
        )

    def bounds(self) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return their bounds, scaled, or None."""
        lower = [parameter.scaled(parameter.lower) for parameter in self.others.values()]
        upper = [parameter.scaled(parameter.upper) for parameter in self.others.values()]
        if not np.isfinite([lower, upper]).any():
            return None
        return self.vector(lower), self.vector(upper)

    def typical(self) -> tuple[PETSc.Vec, float]:
        """Return sizes of x below which nothing matters, and that of J without a model."""
        sizes = [
            1.0 if parameter.scale == "log" else abs(parameter.value)
            for parameter in self.others.values()
        ]
        rows = sum(len(experiment.target) for experiment in self.experiments)
        return self.vector(sizes), 0.5 * rows  # rows are of the size of one: in units of the spread

    def unscaled(self, x: PETSc.Vec | npt.ArrayLike) -> Array:
        """Return the nonlinear parameters [k] in their own units."""
        point = gather(x) if isinstance(x, PETSc.Vec) else np.asarray(x, dtype=float)
        return np.where(
            self._logs, np.exp(np.where(self._logs, np.minimum(point, 300.0), 0.0)), point
        )

    def slopes(self, x: PETSc.Vec | npt.ArrayLike) -> Array:
        """Return the derivatives of the nonlinear parameters [k], each in its entry of x."""
        return np.where(self._logs, self.unscaled(x), 1.0)

    def at(self, x: PETSc.Vec | npt.ArrayLike) -> Point:
        """Return the solution of the inner problem at x, the residual and its derivatives.

        Raises
        ------
        SolveError
            The right-hand side is not finite at the data, a delay leaves them, and so on.
        """
        point = gather(x) if isinstance(x, PETSc.Vec) else np.asarray(x, dtype=float)
        key = point.tobytes()
        if key not in self._cached:
            if len(self._cached) > 3:  # a trial point, and the one that is gone back to
                del self._cached[next(iter(self._cached))]
            self._cached[key] = self._solved(point)
        return self._cached[key]

    @cached_property
    def _ridge(self) -> Array | None:
        """Weights of the linear parameters in a penalty [m]."""
        if self.ridge == 0.0:
            return None
        # lengths at x would be part of what is differentiated
        matrix = self._rows(self.unscaled(self.start()))[0]
        lengths = np.linalg.norm(matrix, axis=0)
        return np.sqrt(self.ridge) * np.where(lengths > 0.0, lengths, 1.0)

    def _rows(self, phi: Array) -> tuple[Array, Array, list[tuple[Array, Any]]]:
        """Return matrix [R, m] and data [R] of the inner problem, and p and points of each part."""
        m = len(self.linear)
        matrices: list[Array] = []
        rests: list[Array] = []
        parts: list[tuple[Array, Any]] = []
        for experiment in self.experiments:
            p = experiment.p.copy()
            # f is a + B p in the linear parameters: with zeros a is left, and B comes as its
            # derivative
            p[list(experiment.values.linear)] = 0.0
            p[list(experiment.values.others)] = phi[experiment.others]
            points = experiment.points(p)
            value, entries = experiment.values.theta(points, p)
            whole = np.isfinite(value).all() and np.isfinite(entries).all()
            if experiment.delays is not None and not whole:
                raise SolveError(
                    "the right-hand side is not finite at states that were measured, or at the "
                    "history that delays reach",
                    remedy="bounds that make delays shorter, or history defined further back",
                )
            pattern, samples = experiment.values.pattern_linear, experiment.samples
            rows = samples.matrix_of(entries, pattern, experiment.linear, m)
            # the unknown initial state leaves matrix and data alike
            whole = samples.residuals_of(np.column_stack([rows, samples.rows_of(value)]))
            matrices.append(whole[:, :m])
            rests.append(experiment.target - whole[:, m])
            parts.append((p, points))
        return np.concatenate(matrices), np.concatenate(rests), parts

    def _solved(self, x: Array) -> Point:
        phi, m, slopes = self.unscaled(x), len(self.linear), self.slopes(x)
        matrix, rest, parts = self._rows(phi)
        inner = solve_inner(matrix, rest, self.constraints, self._ridge)
        by_others = np.zeros((len(rest), len(phi)))
        row = 0
        for experiment, (p, points) in zip(self.experiments, parts, strict=True):
            # r_phi at the inner solution; by the envelope theorem dJ/dphi = r_phi^T r
            p[list(experiment.values.linear)] = inner.p[experiment.linear]
            count = len(experiment.target)
            if len(phi):
                entries = experiment.values.by_others(points, p)[1]
                pattern, samples = experiment.values.pattern_others, experiment.samples
                rows = samples.matrix_of(entries, pattern, experiment.others, len(phi))
                # of logarithms the derivative is phi times that in phi
                by_others[row : row + count] = samples.residuals_of(rows) * slopes
            row += count
        if not np.isfinite(by_others).all():
            raise SolveError("the derivative of the right-hand side is not finite at the data")
        residual = matrix @ inner.p - rest
        if self.pull is not None:
            residual = np.concatenate([residual, self.pull.weights * (x - self.pull.centre)])
            matrix = np.vstack([matrix, np.zeros((len(x), m))])
            by_others = np.vstack([by_others, np.diag(self.pull.weights)])
        return Point(inner, residual, matrix, by_others, parts)

    def value(self, x: PETSc.Vec) -> float:
        """Return J(x)."""
        at = self.at(x)
        bent = 0.0 if self._ridge is None else float(np.sum((self._ridge * at.inner.p) ** 2))
        return 0.5 * (float(at.residual @ at.residual) + bent)

    def gradient(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return dJ/dx [k]."""
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x: PETSc.Vec) -> tuple[float, PETSc.Vec]:
        """Return J(x) and dJ/dx [k]."""
        at = self.at(x)
        return self.value(x), self.vector(at.by_others.T @ at.residual)

    def residual(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return r(x)."""
        values: Any = self.at(x).residual.copy()
        return PETSc.Vec().createWithArray(values, comm=self.comm)

    def gauss_newton_matrix(self, x: PETSc.Vec) -> Array:
        """Return the square of Kaufman's Jacobian [k, k]."""
        return self.at(x).gauss_newton

    def gauss_newton_product(self, x: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        """Return its product with dx."""
        return self.vector(self.gauss_newton_matrix(x) @ gather(dx))

    def residual_jacobian(self, x: PETSc.Vec) -> PETSc.Mat:
        """Return Kaufman's Jacobian as a matrix: J^T r is the exact gradient."""
        jacobian = dense(self.residual(x), self.vector(np.zeros(len(self.others))))
        jacobian.getDenseArray()[...] = self.at(x).kaufman
        jacobian.assemble()
        return jacobian

    @cached_property
    def residual_sweep(self) -> str:
        """What gives the Jacobian."""
        return "variable projection"

    def _mixed(self, x: PETSc.Vec) -> tuple[Array, Array]:
        """Return L_pphi [m, k] and L_phiphi [k, k]."""
        at, slopes = self.at(x), self.slopes(x)
        m, k = len(self.linear), len(slopes)
        by_both, by_others = np.zeros((m, k)), np.zeros((k, k))
        row = 0
        for experiment, (p, points) in zip(self.experiments, at.parts, strict=True):
            count = len(experiment.target)
            samples = experiment.samples
            own = samples.rows_of_residuals(at.residual[row : row + count])
            weights = samples.node_weights_of(own)
            block = experiment.values.second(points, p, weights)
            n_linear = len(experiment.linear)
            np.add.at(by_both, np.ix_(experiment.linear, experiment.others), block[:n_linear])
            np.add.at(by_others, np.ix_(experiment.others, experiment.others), block[n_linear:])
            row += count
        by_others = slopes[:, None] * by_others * slopes
        slope = at.by_others[:row].T @ at.residual[:row]  # a pull is linear in x
        # d^2/dx^2 of a function of exp(x): its own curvature, and its slope once more
        by_others += np.diag(np.where(self._logs, slope, 0.0))
        by_both = by_both * slopes + at.matrix.T @ at.by_others
        return by_both, by_others + at.by_others.T @ at.by_others

    def hessian(self, x: PETSc.Vec) -> Array:
        """Return the exact Hessian of J [k, k], for the active set at x.

        Where a second derivative is not finite, that of Gauss-Newton.
        """
        by_both, by_others = self._mixed(x)
        # large powers overflow in second derivatives before they do in first ones
        if not (np.isfinite(by_both).all() and np.isfinite(by_others).all()):
            return self.gauss_newton_matrix(x)
        # Schur complement: p follows phi so that L_p stays zero along the free directions
        return by_others - by_both.T @ self.at(x).inner.newton(by_both)

    def linear_jacobian(self, x: PETSc.Vec) -> Array:
        """Return dp/dx [m, k]: how the linear parameters follow x, for the active set there."""
        return -self.at(x).inner.newton(self._mixed(x)[0])

    def hessian_product(self, x: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        """Return H(x) dx."""
        return self.vector(self.hessian(x) @ gather(dx))


def spread_starts(functional: BilevelFunctional, count: int, decades: float, seed: int) -> Array:
    """Return starts [count, k], the first the usual one.

    Where a parameter has two finite bounds, between them; otherwise within a factor of
    ``10**decades`` of its start on a log scale, and within so many times its start on a linear one.
    Latin hypercubes: each parameter's range is met evenly.
    """
    start = gather(functional.start())
    bounds = functional.bounds()
    lower = np.full(len(start), -np.inf) if bounds is None else gather(bounds[0])
    upper = np.full(len(start), np.inf) if bounds is None else gather(bounds[1])
    width = widths(functional, decades)
    low = np.where(np.isfinite(upper - lower), lower, np.maximum(start - width, lower))
    high = np.where(np.isfinite(upper - lower), upper, np.minimum(start + width, upper))
    # Latin hypercubes: each parameter's range is met evenly, however few the starts
    qmc = scipy.stats.qmc  # imported here: it takes longer than all the rest of SciPy together
    cube = qmc.LatinHypercube(len(start), rng=np.random.default_rng(seed))
    share = cube.random(count - 1) if count > 1 else np.zeros((0, len(start)))
    return np.vstack([start, low + share * (high - low)])


def widths(functional: BilevelFunctional, decades: float) -> Array:
    """Return how far starts without bounds lie from the usual one [k], in x."""
    return np.array(
        [
            decades * np.log(10.0) if parameter.scale == "log" else max(abs(parameter.value), 1.0)
            for parameter in functional.others.values()
        ]
    )


FAR = 3.0
"""So many standard deviations from its start a parameter has run away."""


LOST = 0.5
"""What the data leave of the standard deviation of a normal law that they do not narrow."""


def ran_away(functional: BilevelFunctional, x: Array, decades: float) -> bool:
    """Whether a parameter has left the range of starts for where the data do not tell it.

    What they determine far from its start is where they have led.
    """
    width = widths(functional, decades)
    far = np.abs(x - gather(functional.start())) > FAR * width
    if not far.any():
        return False
    at = functional.at(x)
    # the inverse of the variance, with a normal law as wide as the starts lie apart: one without
    # data, in its units
    level = max(_level(functional, at), np.finfo(float).tiny)
    told = np.eye(len(x)) + width[:, None] * at.gauss_newton * width / level
    return bool((far & (np.diag(np.linalg.pinv(told, hermitian=True)) > LOST**2)).any())


def _level(functional: BilevelFunctional, at: Point) -> float:
    """Return the variance of a row, as residuals have it."""
    degrees = len(at.residual) - len(functional.linear) - at.by_others.shape[1]
    return float(at.residual @ at.residual) / max(degrees, 1)


def pulled(functional: BilevelFunctional, x: Array, decades: float) -> BilevelFunctional:
    """Return the functional with a normal law of what has no bounds, about the usual start.

    Its standard deviation is that distance up to which starts lie, ``decades`` powers of ten.  The
    noise level of a row is what residuals at x have.  So what the data tell is hardly changed, and
    a parameter on which nothing depends any more, a Michaelis constant above all concentrations for
    instance, stays where a later stage can find it.
    """
    weights = np.sqrt(_level(functional, functional.at(x))) / widths(functional, decades)
    bounds = functional.bounds()
    if bounds is not None:
        weights[np.isfinite(gather(bounds[1]) - gather(bounds[0]))] = 0.0
    return replace(functional, pull=Pull(gather(functional.start()), weights), _cached={})
