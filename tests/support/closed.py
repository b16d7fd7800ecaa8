"""Functionals in closed form, on any number of ranks."""

import numpy as np
from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.petsc import gather, scatter

DOMAINS = {
    "half plane": lambda x: x[0] > -1.25 and x[0] < 1.05,
    "disc": lambda x: np.hypot(*x) < 1.6,
    "narrow box": lambda x: np.all(np.abs(x) < 1.21),
    "outside a disc": lambda x: np.hypot(x[0] + 0.2, x[1] - 0.75) > 0.3,
}
"""Where solves succeed, about the way of Rosenbrock's function."""


class Closed:
    """A functional from a formula on the whole of x, distributed over ``comm``."""

    def __init__(self, formula, start, *, bounds=None, domain=None, comm=PETSc.COMM_SELF):
        self.comm, self.formula, self.bounds_given, self.domain = comm, formula, bounds, domain
        self.start_values = np.asarray(start, dtype=float)
        self.points = []

    def vector(self, values):
        vec = PETSc.Vec().createMPI(len(self.start_values), comm=self.comm)
        return scatter(np.broadcast_to(values, vec.getSize()), vec)

    def start(self):
        return self.vector(self.start_values)

    def bounds(self):
        return None if self.bounds_given is None else tuple(map(self.vector, self.bounds_given))

    def value(self, x):
        return self.value_and_gradient(x)[0]

    def gradient(self, x):
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x):
        point = gather(x)
        self.points.append(point)
        if self.domain is not None and not self.domain(point):
            raise SolveError(f"no solution at {point[0]:.2f}")
        value, gradient = self.formula(point)
        return float(value), self.vector(gradient)


def rosenbrock(x, weight=100.0):
    """Chained, minimum 0 at (1, ..., 1)."""
    a, b = x[:-1], x[1:]
    gradient = np.zeros_like(x)
    gradient[:-1] = -4.0 * weight * a * (b - a * a) - 2.0 * (1.0 - a)
    gradient[1:] += 2.0 * weight * (b - a * a)
    return np.sum(weight * (b - a * a) ** 2 + (1.0 - a) ** 2), gradient


N = 7
WEIGHTS = 1.0 + np.arange(N) ** 2
TARGET = np.linspace(-1.5, 1.5, N)


def quadratic(x):
    """Diagonal, minimum 0 at TARGET; within bounds at TARGET clipped."""
    return 0.5 * np.sum(WEIGHTS * (x - TARGET) ** 2), WEIGHTS * (x - TARGET)


def mixed(x):
    """A coupled quadratic plus a Rosenbrock chain: not separable, minimum 0 at (1, ..., 1)."""
    value, gradient = rosenbrock(x, weight=10.0)
    sums = np.cumsum(x) - np.arange(1, len(x) + 1)
    return value + 0.5 * np.sum(sums**2), gradient + np.cumsum(sums[::-1])[::-1]


# ---- second order --------------------------------------------------------------------------------


def rosenbrock_hessian(x, weight=100.0):
    a, b = x[:-1], x[1:]
    diagonal = np.zeros_like(x)
    diagonal[:-1] = 4.0 * weight * (3.0 * a * a - b) + 2.0
    diagonal[1:] += 2.0 * weight
    beside = -4.0 * weight * a
    return np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)


def mixed_hessian(x):
    ones = np.tril(np.ones((len(x), len(x))))
    return rosenbrock_hessian(x, weight=10.0) + ones.T @ ones


HESSIANS = {
    rosenbrock: rosenbrock_hessian,
    mixed: mixed_hessian,
    quadratic: lambda x: np.diag(WEIGHTS),
}


class Curved(Closed):
    """With products with the Hessian, counted."""

    def __init__(self, formula, start, *, hessian=None, **extra):
        super().__init__(formula, start, **extra)
        self.curvature = HESSIANS[formula] if hessian is None else hessian
        self.n_products = 0

    def hessian_product(self, x, dx):
        self.n_products += 1
        return self.vector(self.curvature(gather(x)) @ gather(dx))


class Residual(Closed):
    """J = |r|^2 / 2 of a formula that returns r [q] and its Jacobian [q, n]."""

    residual_sweep = "tangent"

    def __init__(self, formula, start, **extra):
        def squares(x):
            r, jacobian = formula(x)
            return 0.5 * r @ r, jacobian.T @ r

        super().__init__(squares, start, **extra)
        self.pieces = formula
        self.residuals, self.jacobians = [], []

    def _at(self, x):
        point = gather(x)
        if self.domain is not None and not self.domain(point):
            raise SolveError(f"no solution at {point[0]:.2f}")
        return self.pieces(point)

    def residual(self, x):
        self.residuals.append(gather(x))
        values = self._at(x)[0]
        return scatter(values, PETSc.Vec().createMPI(len(values), comm=self.comm))

    def residual_jacobian(self, x):
        self.jacobians.append(gather(x))
        values = self._at(x)[1]
        rows = PETSc.Vec().createMPI(len(values), comm=self.comm)
        mat = PETSc.Mat().createDense((rows.getSizes(), x.getSizes()), comm=self.comm)
        first, last = rows.getOwnershipRange()
        mat.getDenseArray()[...] = values[first:last]
        mat.assemble()
        return mat

    def gauss_newton_product(self, x, dx):
        jacobian = self._at(x)[1]
        return self.vector(jacobian.T @ (jacobian @ gather(dx)))
