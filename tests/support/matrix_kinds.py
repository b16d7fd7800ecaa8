"""A derivative t p A in several forms, points to fill it at, and what a matrix multiplies by."""

import numpy as np
from petsc4py import PETSc

from daeosens.petsc import read, write
from daeosens.problem import Products

A = np.array([[2.0, 1.0, 0.0], [0.5, -1.0, 3.0], [0.0, 0.2, 1.0]])
M = np.array([[1.0, 0.0, 0.3], [0.0, 2.0, 0.0], [0.1, 0.0, 0.0]])
SELF = PETSc.COMM_SELF


def vec(values):
    new = PETSc.Vec().createSeq(len(values), comm=SELF)
    write(new, values)
    return new


ROWS = vec(np.zeros(3))
POINT = (0.5, vec([1.0, 2.0, 3.0]), np.array([2.0]))
RESIDUAL_POINT = (POINT[0], POINT[1], vec([0.1, 0.2, 0.3]), POINT[2])


def entries(matrix):
    """The matrix as an array, by its products."""
    columns, rows = matrix.createVecs()
    result = np.empty((rows.size, columns.size))
    for j, unit in enumerate(np.eye(columns.size)):
        write(columns, unit)
        matrix.mult(columns, rows)
        result[:, j] = read(rows)
    return result


def transposed_entries(matrix):
    """The matrix as an array, by its transposed products."""
    return entries(PETSc.Mat().createTranspose(matrix)).T


def scaled(matrix):
    """A derivative that depends on the point: t p A."""
    return lambda t, u, p: t * p[0] * matrix


PRODUCTS = Products(lambda t, u, p, v: t * p[0] * A @ v, lambda t, u, p, w: t * p[0] * A.T @ w)
