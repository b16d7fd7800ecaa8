# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Outer eigenvalues of dense matrices, nearly; signatures and types in arnoldi.pyi."""

import numpy as np

from libc.math cimport fabs, sqrt
from scipy.linalg.cython_blas cimport dgemv, dnrm2

cdef enum:
    TILE = 16  # rows and columns of a part of a matrix that stays in the cache with its transpose

cdef double CANCELS = 0.1
"""Part of a vector that is left where it is orthogonal to others but for some rounding."""


def skew_norm(const double[:, ::1] matrix):
    """Return the largest sum of sizes in a row of the skew-symmetric part of a matrix [n, n]."""
    cdef int n = matrix.shape[0], i, j, low, left
    cdef double size
    cdef double[::1] sums = np.zeros(n)
    with nogil:
        for low from 0 <= low < n by TILE:
            for left from 0 <= left <= low by TILE:
                for i in range(low, min(low + TILE, n)):
                    for j in range(left, min(left + TILE, i)):
                        size = fabs(matrix[i, j] - matrix[j, i])
                        sums[i] += size
                        sums[j] += size
    return 0.5 * np.asarray(sums).max()


def projected(const double[:, ::1] matrix, const double[::1] start, int steps, double rounding):
    """Return a matrix [k, k] that has outer eigenvalues of one [n, n], nearly.

    By ``steps`` steps of Arnoldi's method from a vector [n] of length one, or fewer where the space
    is invariant: where a residual is ``rounding`` of the matrix.
    """
    cdef int n = matrix.shape[0], k, last = steps, row, unit = 1, count, again
    cdef double one = 1.0, minus = -1.0, none = 0.0, length, norm, largest = 0.0
    cdef double[:, ::1] basis = np.empty((steps + 1, n))
    cdef double[:, ::1] result = np.zeros((steps + 1, steps))
    cdef double[::1] parts = np.empty(steps)
    cdef double *a = <double *>&matrix[0, 0]
    cdef double *vector
    cdef double *known = &basis[0, 0]
    basis[0, :] = start
    with nogil:
        for k in range(steps):
            vector, count = &basis[k + 1, 0], k + 1
            # BLAS goes by columns: a matrix by rows is its transpose
            dgemv(b"T", &n, &n, &one, a, &n, &basis[k, 0], &unit, &none, vector, &unit)
            length = norm = dnrm2(&n, vector, &unit)
            largest = max(largest, length)
            # what cancels loses digits: subtracted once more it is orthogonal to rounding
            for again in range(2):
                dgemv(b"T", &n, &count, &one, known, &n, vector, &unit, &none, &parts[0], &unit)
                dgemv(b"N", &n, &count, &minus, known, &n, &parts[0], &unit, &one, vector, &unit)
                for row in range(count):
                    result[row, k] += parts[row]
                norm = dnrm2(&n, vector, &unit)
                if norm >= CANCELS * length:
                    break
            result[k + 1, k] = norm
            if norm <= rounding * largest:
                last = k + 1
                break
            for row in range(n):
                vector[row] /= norm
    return np.asarray(result)[:last, :last]
