# cython: language_level=3
"""Products of many rows with Jacobians at many points; signatures and types in pulls.pyi."""

import numpy as np

from libc.stdint cimport intptr_t
from libc.string cimport memset
from scipy.linalg.cython_blas cimport dgemm, dgemv

cdef long MANY = 1000000
"""Products of three sizes below it are fastest: OpenBLAS 0.3.30 does not copy their factors."""


cdef extern from "runs.h" nogil:
    void add_runs(
        const int *runs, long count, const double *values, long rows, const double *w, long n,
        const double *v, long v_size, double *target, long leading, long fresh
    ) noexcept


cdef void times(
    const double *left, int rows, int inner, int leading_left, const double *matrix, int columns,
    bint transposed, double *out, int leading, double beta
) noexcept nogil:
    """Fill out [rows, columns] with beta out + left [rows, inner] times a matrix by rows.

    The rows of left and out are ``leading_left`` and ``leading`` apart.
    """
    cdef double one = 1.0
    cdef int step = 1
    # BLAS goes by columns: a matrix by rows is its transpose, so left and right change places.
    cdef int first = inner if transposed else columns, second = columns if transposed else inner
    cdef double *a = <double *>matrix
    cdef double *x = <double *>left
    if rows == 1:
        dgemv(b"T" if transposed else b"N", &first, &second, &one, a, &first, x, &step, &beta,
              out, &step)
    else:
        dgemm(b"T" if transposed else b"N", b"N", &columns, &rows, &inner, &one, a, &first, x,
              &leading_left, &beta, out, &leading)


cdef class Pulls:
    """Products of rows w [M, n] with f_u at K points."""

    cdef void begin(self, long rows) except *:
        """Take ``rows`` rows from now on."""
        self.rows = rows

    cdef void pull(self, long k, const double *w, double *out, long leading) noexcept nogil:
        """Fill out [M, n] with w f_u at point k; the rows of both are ``leading`` apart."""


cdef class MatrixPulls(Pulls):
    """By the matrices f_u [K, n, n]."""

    def __init__(self, const double[:, :, ::1] matrices):
        self._matrices = matrices
        self.count, self.n = matrices.shape[0], matrices.shape[1]

    cdef void pull(self, long k, const double *w, double *out, long leading) noexcept nogil:
        cdef int n = <int>self.n, apart = <int>leading
        times(w, <int>self.rows, n, apart, &self._matrices[k, 0, 0], n, False, out, apart, 0.0)


cdef class Sums:
    """What adjoints of the products y_a = A_a v_a at K points add to those of the parameters.

    The derivative in A_a is a sum over the points of products of the adjoints of y_a with v_a.

    Parameters
    ----------
    starts : ndarray [factors]
                            the first of the parameters that are the entries of A_a, or -1
    used : ndarray          the parameters that stand outside of the matrices in f and all v
    outside : ndarray [., 2]
                            from which parameter to which one none is an entry of one A_a only:
                            these are zero before anything is added
    alone : bool            entries of A_a are added to nothing that is there
    """

    def __init__(self, const long[::1] starts, const long[::1] used, const long[:, ::1] outside,
                 bint alone):
        self.starts, self.used, self.outside, self.alone = starts, used, outside, alone


cdef class FactorPulls(Pulls):
    """By factors: f(t, u, p, y) with y_a = A_a v_a(t, u, p, y_1 ... y_{a-1}).

    What v and f are differentiated in has few entries, of which those in a row along a diagonal
    make a run.  Where the only v is u itself, ``runs`` leave its derivative out: its adjoints are
    those of u.
    """

    def __init__(self, long n, tuple matrices, const int[:, ::1] products, tuple runs,
                 tuple values, const double[:, ::1] v, bint only_u, Sums sums):
        cdef long a
        cdef const double[:, ::1] matrix
        self._given = n, matrices, products, runs, values, v, only_u, sums
        self._v, self._only_u, self._sums = v, only_u, sums
        self.n, self.count = n, v.shape[0]
        self._products = products
        self._runs_u, self._runs_y, self._runs_p, self._columns = runs
        self._by_u, self._by_y, self._by_p = values
        self._addresses = np.empty((len(matrices), 2), dtype=np.intp)
        for a in range(len(matrices)):
            matrix = matrices[a]
            self._addresses[a, 0] = <intptr_t>&matrix[0, 0]

    def twin(self):
        """The same products for another thread."""
        return FactorPulls(*self._given)

    cdef void begin(self, long rows) except *:
        cdef long a
        cdef double[:, :, ::1] adjoints
        # Sums over points of what parameters outside of matrices get; compact, as few parameters
        # are.
        self._local = np.zeros((rows, self._columns))
        if rows == self.rows:
            return
        self.rows = rows
        self._v_bar = np.empty(rows * self._v.shape[1] + 1)
        self._adjoints = []
        for a in range(self._products.shape[0]):
            adjoints = np.empty((rows, self.count, self._products[a, 1]))
            self._adjoints.append(adjoints)
            self._addresses[a, 1] = <intptr_t>&adjoints[0, 0, 0]

    cdef void go_on(self, long rows) noexcept nogil:
        """Take other rows, not more than those that it began with."""
        self.rows = rows
        if self._columns:
            memset(&self._local[0, 0], 0, <size_t>(rows * self._columns) * sizeof(double))

    cdef const double *_values(self, const double[:, ::1] values, long k) noexcept nogil:
        return &values[k, 0] if values.shape[1] else NULL

    cdef void _add(self, const int[:, ::1] runs, long first, long last, const double *values,
                   const double *w, long apart, double *target, long leading,
                   long fresh) noexcept nogil:
        cdef const int *begin = &runs[first, 0] if last > first else NULL
        add_runs(begin, last - first, values, self.rows, w, apart,
                 &self._v_bar[0], self._v.shape[1], target, leading, fresh)

    cdef void pull(self, long k, const double *w, double *out, long leading) noexcept nogil:
        cdef long a, apart
        cdef const int *product
        cdef double *adjoints
        cdef double *v_bar
        # w f_u first, to which the adjoints of v = u are added; otherwise the other way round,
        # with what v_bar holds.
        if self._only_u:
            self._pull_u(k, w, out, leading)
        # y_a may depend on earlier y: adjoints go from the last product back.
        for a in range(self._products.shape[0] - 1, -1, -1):
            product = &self._products[a, 0]  # {start in v, rows, columns, transposed, runs: 2}
            apart = self.count * product[1]
            adjoints = <double *>self._addresses[a, 1] + k * product[1]
            self._add(self._runs_y, product[4], product[5], self._values(self._by_y, k), w, leading,
                      adjoints, apart, product[1])
            v_bar = out if self._only_u else &self._v_bar[product[0]]
            times(adjoints, <int>self.rows, product[1], <int>apart,
                  <double *>self._addresses[a, 0], product[2], product[3], v_bar,
                  <int>(leading if self._only_u else self._v.shape[1]),
                  1.0 if self._only_u else 0.0)
        if not self._only_u:
            self._pull_u(k, w, out, leading)
        if self._columns:
            self._add(self._runs_p, 0, self._runs_p.shape[0], self._values(self._by_p, k), w,
                      leading, &self._local[0, 0], self._columns, 0)

    cdef void _pull_u(self, long k, const double *w, double *out, long leading) noexcept nogil:
        self._add(self._runs_u, 0, self._runs_u.shape[0], self._values(self._by_u, k), w, leading,
                  out, leading, self.n)

    cdef void collect(self, double *mu, long m, bint fresh) noexcept nogil:
        """Add to the rows of mu [M, m], of which nothing is there if ``fresh``."""
        cdef double *local = &self._local[0, 0] if self._columns else NULL
        cdef double *adjoints
        cdef const int *product
        cdef long r, a, k
        for r in range(self.rows):
            if fresh:
                for k in range(self._sums.outside.shape[0]):
                    memset(mu + self._sums.outside[k, 0], 0, <size_t>(
                        self._sums.outside[k, 1] - self._sums.outside[k, 0]) * sizeof(double))
            for a in range(self._sums.starts.shape[0]):
                if self._sums.starts[a] < 0:
                    continue
                product = &self._products[a, 0]
                adjoints = <double *>self._addresses[a, 1] + r * self.count * product[1]
                # The derivative in A_a of sum_k ybar_k^T A_a v_k is sum_k ybar_k v_k^T: one
                # matrix product over all points.
                add_outer(adjoints, <double *>&self._v[0, product[0]], self._v.shape[1], self.count,
                          product, fresh and self._sums.alone, mu + self._sums.starts[a])
            for k in range(self._sums.used.shape[0]):
                mu[self._sums.used[k]] += local[k]
            mu, local = mu + m, local + self._columns

    def pull_all(self, const double[:, :, ::1] w):
        """Visit all points with weights w [K, M, n]."""
        cdef long k
        cdef double[:, ::1] out = np.empty((w.shape[1], self.n))
        self.begin(w.shape[1])
        for k in range(self.count):
            self.pull(k, &w[k, 0, 0], &out[0, 0], self.n)

    def add_to(self, double[:, ::1] mu, bint fresh):
        """Add what the points that were visited say about the parameters to mu [M, m].

        ``fresh``: mu holds nothing yet.
        """
        if mu.shape[0]:
            self.collect(&mu[0, 0], mu.shape[1], fresh)


cdef void add_outer(
    double *left, double *right, long apart, long count, const int *product, bint fresh, double *out
) noexcept nogil:
    """Add the sum over ``count`` rows of left [count, rows] times those of right to ``out``.

    It has [rows, columns] entries, transposed [columns, rows]; the rows of right [count, columns]
    are ``apart``.  ``fresh``: what is there is overwritten.
    """
    cdef double one = 1.0, beta
    cdef int rows = product[1], columns = product[2], leading = <int>apart, piece
    # So many points at a time as keep a product below the size at which BLAS copies.
    cdef long several = max(MANY // (<long>rows * columns), 16), k = 0
    while k < count:
        beta = 0.0 if fresh and not k else 1.0
        piece = <int>min(several, count - k)
        if product[3]:
            dgemm(b"N", b"T", &rows, &columns, &piece, &one, left, &rows, right, &leading,
                  &beta, out, &rows)
        else:
            dgemm(b"N", b"T", &columns, &rows, &piece, &one, right, &leading, left, &rows,
                  &beta, out, &columns)
        left, right, k = left + several * rows, right + several * apart, k + several
