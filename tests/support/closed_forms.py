"""Functionals with closed-form statistics: a quadratic on any number of ranks, formulas, decays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens import ODE, Parameter, Parameters, Stepping
from daeosens.errors import SolveError
from daeosens.petsc import gather, scatter
from daeosens.problem import Problem


class Formula:
    """J, dJ, H from formulas on the whole of x [k], which is distributed over ``comm``."""

    def __init__(
        self,
        value: Callable[[np.ndarray], float],
        gradient: Callable[[np.ndarray], np.ndarray],
        hessian: Callable[[np.ndarray], np.ndarray],
        start: Sequence[float],
        *,
        bounds: Any = None,
        domain: Callable[[np.ndarray], bool] | None = None,
        control: Any = None,
        comm: Any = PETSc.COMM_SELF,
    ) -> None:
        self.comm, self._bounds, self._domain = comm, bounds, domain
        self._value, self._gradient, self._hessian = value, gradient, hessian
        self._start = np.asarray(start, dtype=float)
        self.calls = 0
        if control is not None:
            self.control = control

    def vector(self, values: Any) -> PETSc.Vec:
        vec = PETSc.Vec().createMPI(len(self._start), comm=self.comm)
        return scatter(np.broadcast_to(values, vec.getSize()), vec)

    def start(self) -> PETSc.Vec:
        return self.vector(self._start)

    def bounds(self):
        return None if self._bounds is None else tuple(map(self.vector, self._bounds))

    def value(self, x):
        return self.value_and_gradient(x)[0]

    def gradient(self, x):
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x):
        self.calls += 1
        point = gather(x)
        if self._domain is not None and not self._domain(point):
            raise SolveError(f"no solution at {point[0]:.3f}")
        return float(self._value(point)), self.vector(self._gradient(point))

    def hessian(self, x):
        return self._hessian(gather(x))

    def hessian_product(self, x, dx):
        return self.vector(self.hessian(x) @ gather(dx))


def quadratic(matrix, minimum, **extra) -> Formula:
    """J = 1/2 (x - minimum)^T matrix (x - minimum), started at its minimum."""
    matrix, minimum = np.asarray(matrix, dtype=float), np.asarray(minimum, dtype=float)
    return Formula(
        lambda x: 0.5 * (x - minimum) @ matrix @ (x - minimum),
        lambda x: matrix @ (x - minimum),
        lambda x: matrix,
        minimum,
        **extra,
    )


def cubic(error=0.0, noise=lambda: 0.0, **extra) -> Formula:
    """J = sum x_i^3 + x_0 x_1 of three numbers; gradient off by ``error`` in each entry."""
    return Formula(
        lambda x: (x**3).sum() + x[0] * x[1] + noise(),
        lambda x: 3 * x**2 + np.array([x[1], x[0], 0.0]) + error,
        lambda x: np.diag(6 * x) + np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]),
        [0.7, -0.4, 1.3],
        **extra,
    )


class LeastSquaresFormula:
    """J = 1/2 |r(x)|^2 from residual and Jacobian formulas; the Jacobian rows are distributed."""

    def __init__(self, residual, jacobian, start, comm=PETSc.COMM_SELF) -> None:
        self.comm, self._residual, self._jacobian = comm, residual, jacobian
        self._start = np.asarray(start, dtype=float)

    def vector(self, values):
        vec = PETSc.Vec().createMPI(len(self._start), comm=self.comm)
        return scatter(values, vec)

    def start(self):
        return self.vector(self._start)

    def bounds(self):
        return None

    def value(self, x):
        return self.value_and_gradient(x)[0]

    def gradient(self, x):
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x):
        point = gather(x)
        residual = self._residual(point)
        return 0.5 * float(residual @ residual), self.vector(self._jacobian(point).T @ residual)

    def residual_jacobian(self, x):
        values = self._jacobian(gather(x))
        matrix = PETSc.Mat().createDense(values.shape, comm=self.comm)
        matrix.setUp()
        start, end = matrix.getOwnershipRange()
        matrix.getDenseArray()[...] = values[start:end]
        matrix.assemble()
        return matrix


# ---- u' = -rate u, u(0) = amount: straight lines in the logarithm --------------------------------


def decay() -> Problem:
    return ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate", "amount"])


def decay_control(rate=0.5, amount=2.0, **extra) -> Parameters:
    return Parameters(
        {"rate": Parameter(rate, **extra), "amount": Parameter(amount, scale="log")},
        initial_state=lambda p: p[1:2],
    )


DECAY_STEPPING = Stepping((0.0, 2.0), "rk8vr", dt=0.1)
