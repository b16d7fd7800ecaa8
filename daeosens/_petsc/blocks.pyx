# cython: language_level=3
"""Transposed Runge-Kutta steps of many rows at once; signatures and types in blocks.pyi."""

import numpy as np

from libc.stdint cimport intptr_t
from libc.string cimport memcpy, memset
from scipy.linalg.cython_blas cimport daxpy, dgemm, dgemv


cdef extern from "runs.h" nogil:
    void add_runs(
        const int *runs, long count, const double *values, long rows,
        const double *w, long n, const double *v, long v_size, double *target, long size
    ) noexcept


cdef void times(
    const double *left, int rows, int inner, const double *matrix, int columns, bint transposed,
    double *out, int leading
) noexcept nogil:
    """Fill out [rows, columns of leading] with left [rows, inner] times a matrix by rows."""
    cdef double one = 1.0, zero = 0.0
    cdef int step = 1
    cdef int first = inner if transposed else columns, second = columns if transposed else inner
    cdef double *a = <double *>matrix
    cdef double *x = <double *>left
    if rows == 1:
        dgemv(b"T" if transposed else b"N", &first, &second, &one, a, &first, x, &step, &zero,
              out, &step)
    else:
        dgemm(b"T" if transposed else b"N", b"N", &columns, &rows, &inner, &one, a, &first, x,
              &inner, &zero, out, &leading)


cdef class Pulls:
    """Products of rows w [M, n] with f_u at K points."""

    cdef readonly long count, n, rows

    cdef void pull(self, long k, const double *w, double *out) noexcept:
        """Fill out [M, n] with w f_u at point k."""


cdef class MatrixPulls(Pulls):
    """By the matrices f_u [K, n, n]."""

    cdef const double[:, :, ::1] _matrices

    def __init__(self, const double[:, :, ::1] matrices, long rows):
        self._matrices = matrices
        self.count, self.n, self.rows = matrices.shape[0], matrices.shape[1], rows

    cdef void pull(self, long k, const double *w, double *out) noexcept:
        cdef int n = <int>self.n
        times(w, <int>self.rows, n, &self._matrices[k, 0, 0], n, False, out, n)


cdef class FactorPulls(Pulls):
    """By factors: f(t, u, p, y) with y_a = A_a v_a(t, u, p, y_1 ... y_{a-1}).

    What v and f are differentiated in has few entries, of which those in a row along a diagonal
    make a run.  The derivative in A_a is a sum of products of the adjoints of y_a with v_a.
    """

    cdef const double[:, ::1] _v, _by_u, _by_y, _by_p
    cdef const int[:, ::1] _runs_u, _runs_y, _runs_p
    cdef const int[:, ::1] _products
    cdef tuple _matrices
    cdef list _adjoints
    cdef intptr_t[:, ::1] _addresses  # of each matrix and its adjoints
    cdef double[::1] _v_bar
    cdef double[:, ::1] _local

    def __init__(self, long n, long rows, tuple matrices, const int[:, ::1] products, tuple runs,
                 tuple values, const double[:, ::1] v):
        cdef long a
        cdef const double[:, ::1] matrix
        cdef double[:, :, ::1] adjoints
        self._v = v
        self.n, self.count, self.rows = n, v.shape[0], rows
        self._matrices, self._products = matrices, products
        self._runs_u, self._runs_y, self._runs_p, columns = runs
        self._by_u, self._by_y, self._by_p = values
        self._v_bar = np.empty(rows * v.shape[1] + 1)
        self._local = np.zeros((rows, columns))
        self._adjoints = [np.empty((self.count, rows, size)) for size in np.asarray(products)[:, 1]]
        self._addresses = np.empty((len(matrices), 2), dtype=np.intp)
        for a in range(len(matrices)):
            matrix, adjoints = matrices[a], self._adjoints[a]
            self._addresses[a, 0] = <intptr_t>&matrix[0, 0]
            self._addresses[a, 1] = <intptr_t>&adjoints[0, 0, 0]

    cdef const double *_values(self, const double[:, ::1] values, long k) noexcept:
        return &values[k, 0] if values.shape[1] else NULL

    cdef void _add(self, const int[:, ::1] runs, long first, long last, const double *values,
                   const double *w, double *target, long size) noexcept:
        if last > first:
            add_runs(&runs[first, 0], last - first, values, self.rows, w, self.n,
                     &self._v_bar[0], self._v.shape[1], target, size)

    cdef void pull(self, long k, const double *w, double *out) noexcept:
        cdef long a, size
        cdef const int *product
        cdef double *adjoints
        for a in range(self._products.shape[0] - 1, -1, -1):
            product = &self._products[a, 0]  # {start in v, rows, columns, transposed, runs: 2}
            size = self.rows * product[1]
            adjoints = <double *>self._addresses[a, 1] + k * size
            memset(adjoints, 0, size * sizeof(double))
            self._add(self._runs_y, product[4], product[5], self._values(self._by_y, k), w,
                      adjoints, product[1])
            times(adjoints, <int>self.rows, product[1], <double *>self._addresses[a, 0],
                  product[2], product[3], &self._v_bar[product[0]], <int>self._v.shape[1])
        memset(out, 0, self.rows * self.n * sizeof(double))
        self._add(self._runs_u, 0, self._runs_u.shape[0], self._values(self._by_u, k), w, out,
                  self.n)
        if self._local.shape[1]:
            self._add(self._runs_p, 0, self._runs_p.shape[0], self._values(self._by_p, k), w,
                      &self._local[0, 0], self._local.shape[1])

    def pull_all(self, const double[:, :, ::1] w):
        """Visit all points with weights w [K, M, n]."""
        cdef long k
        cdef double[:, ::1] out = np.empty((self.rows, self.n))
        for k in range(self.count):
            self.pull(k, &w[k, 0, 0], &out[0, 0])

    @property
    def local(self):
        """The sum over the points that were visited of the derivatives outside of matrices."""
        return np.asarray(self._local)

    def add_outer(self, long a, double[:, ::1] mu, long start, bint fresh):
        """Add the derivatives in the entries of A_a, by rows from ``start`` on, to mu [M, m]."""
        cdef double one = 1.0, beta = 0.0 if fresh else 1.0
        cdef int count = <int>self.count, v_size = <int>self._v.shape[1]
        cdef int rows = self._products[a, 1], columns = self._products[a, 2]
        cdef int leading = <int>self.rows * rows
        cdef double[:, :, ::1] adjoints = self._adjoints[a]
        cdef double *v = <double *>&self._v[0, self._products[a, 0]]
        cdef long r
        for r in range(self.rows):
            if self._products[a, 3]:
                dgemm(b"N", b"T", &rows, &columns, &count, &one, &adjoints[0, r, 0], &leading,
                      v, &v_size, &beta, &mu[r, start], &rows)
            else:
                dgemm(b"N", b"T", &columns, &rows, &count, &one, v, &v_size,
                      &adjoints[0, r, 0], &leading, &beta, &mu[r, start], &columns)


def carry(
    Pulls pulls,
    const double[:, :, ::1] coefficients,
    double[:, ::1] lam,
    object weights,
    object running,
    const unsigned char[::1] observed,
    object seed,
):
    """Carry ``lam`` [M, n] back over S Runge-Kutta steps of s stages, in place.

    w_i = coefficients[k, i] . (lam, l_{s-1}, ..., l_{i+1}), l_i = w_i f_u + running[k, i], and
    lam += sum of l_i.

    Parameters
    ----------
    pulls : Pulls           at the points of the stages
    coefficients : ndarray [S, s, s+1]
    lam : ndarray [M, n]
    weights : ndarray [S s, M, n] or None
                            filled with w, if wanted
    running : ndarray [S, s, M, n] or None
    observed : ndarray [S] of uint8
                            where ``seed(k)`` is called once ``lam`` is that of the start of step k
    seed : callable
    """
    cdef long steps = coefficients.shape[0], s = coefficients.shape[1], k, i
    cdef int size = <int>(lam.shape[0] * lam.shape[1]), length, step = 1
    cdef double one = 1.0, zero = 0.0
    cdef double[:, ::1] parts = np.empty((s + 1, size))
    cdef double[::1] ones = np.ones(s), scratch = np.empty(0 if weights is not None else size)
    cdef double[:, :, ::1] all_weights
    cdef const double[:, :, :, ::1] slopes
    cdef double *w = NULL
    if weights is not None:
        all_weights = weights
    else:
        w = &scratch[0]
    if running is not None:
        slopes = running
    memcpy(&parts[0, 0], &lam[0, 0], size * sizeof(double))
    for k in range(steps - 1, -1, -1):
        for i in range(s - 1, -1, -1):
            if weights is not None:
                w = &all_weights[k * s + i, 0, 0]
            length = <int>(s - i)
            dgemv(b"N", &size, &length, &one, &parts[0, 0], &size,
                  <double *>&coefficients[k, i, 0], &step, &zero, w, &step)
            pulls.pull(k * s + i, w, &parts[s - i, 0])
            if running is not None:
                daxpy(&size, &one, <double *>&slopes[k, i, 0, 0], &step, &parts[s - i, 0], &step)
        length = <int>s
        dgemv(b"N", &size, &length, &one, &parts[1, 0], &size, &ones[0], &step, &one,
              &parts[0, 0], &step)
        if observed[k]:
            memcpy(&lam[0, 0], &parts[0, 0], size * sizeof(double))
            seed(k)
            memcpy(&parts[0, 0], &lam[0, 0], size * sizeof(double))
    memcpy(&lam[0, 0], &parts[0, 0], size * sizeof(double))
