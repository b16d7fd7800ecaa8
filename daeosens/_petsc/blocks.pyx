# cython: language_level=3
"""Transposed Runge-Kutta steps of many rows at once; signatures and types in blocks.pyi."""

import numpy as np

from libc.stdint cimport intptr_t, uintptr_t
from libc.string cimport memcpy
from scipy.linalg.cython_blas cimport daxpy, dgemm, dgemv

from daeosens._petsc.filling cimport all_finite

cdef long MANY = 1000000
"""Products of three sizes below it are fastest: OpenBLAS 0.3.30 does not copy their factors."""
cdef long LINE = 8
"""Numbers in a line of the cache."""


cdef extern from "runs.h" nogil:
    void add_runs(
        const int *runs, long count, const double *values, long rows, const double *w, long n,
        const double *v, long v_size, double *target, long leading, long fresh
    ) noexcept
    void combine(
        const double *vectors, long size, long count, const double *factors, double *out
    ) noexcept


ctypedef void (*Function)(double, const double *, const double *, double *, void *) noexcept


def fill_stages(tuple rhs, const double[:, ::1] a, const double[:, ::1] t,
                const double[::1] sizes, const double[::1] p, double[:, :, ::1] stages):
    """Fill the stages of explicit Runge-Kutta steps, of which the first ones are there.

    Parameters
    ----------
    rhs : (int, int)        addresses of f and of its user data
    a : ndarray [s, s]      coefficients
    t : ndarray [S, s]      when the stages are
    sizes : ndarray [S]
    p : ndarray [m]
    stages : ndarray [S, s, n]

    Returns
    -------
    bool                    all stages are finite
    """
    cdef uintptr_t address = rhs[0], data = rhs[1]
    cdef Function function = <Function>address
    cdef long s = a.shape[0], n = stages.shape[2], k, i, j
    cdef double[:, ::1] parts = np.empty((s, n))  # a step's start and its rates
    cdef double[::1] factors = np.ones(s)
    cdef const double *parameters = &p[0] if p.shape[0] else NULL
    for k in range(stages.shape[0]):
        memcpy(&parts[0, 0], &stages[k, 0, 0], n * sizeof(double))
        for i in range(1, s):
            function(t[k, i - 1], &stages[k, i - 1, 0], parameters, &parts[i, 0], <void *>data)
            for j in range(i):
                factors[j + 1] = sizes[k] * a[i, j]
            combine(&parts[0, 0], n, i + 1, &factors[0], &stages[k, i, 0])
    return all_finite(&stages[0, 0, 0], stages.size) if stages.size else True


cdef void times(
    const double *left, int rows, int inner, int leading_left, const double *matrix, int columns,
    bint transposed, double *out, int leading, double beta
) noexcept nogil:
    """Fill out [rows, columns] with beta out + left [rows, inner] times a matrix by rows.

    The rows of left and out are ``leading_left`` and ``leading`` apart.
    """
    cdef double one = 1.0
    cdef int step = 1
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

    cdef readonly long count, n, rows

    cdef void begin(self, long rows) except *:
        """Take ``rows`` rows from now on."""
        self.rows = rows

    cdef void pull(self, long k, const double *w, double *out, long leading) noexcept nogil:
        """Fill out [M, n] with w f_u at point k; the rows of both are ``leading`` apart."""


cdef class MatrixPulls(Pulls):
    """By the matrices f_u [K, n, n]."""

    cdef const double[:, :, ::1] _matrices

    def __init__(self, const double[:, :, ::1] matrices):
        self._matrices = matrices
        self.count, self.n = matrices.shape[0], matrices.shape[1]

    cdef void pull(self, long k, const double *w, double *out, long leading) noexcept nogil:
        cdef int n = <int>self.n, apart = <int>leading
        times(w, <int>self.rows, n, apart, &self._matrices[k, 0, 0], n, False, out, apart, 0.0)


cdef class FactorPulls(Pulls):
    """By factors: f(t, u, p, y) with y_a = A_a v_a(t, u, p, y_1 ... y_{a-1}).

    What v and f are differentiated in has few entries, of which those in a row along a diagonal
    make a run.  The derivative in A_a is a sum of products of the adjoints of y_a with v_a.

    Where the only v is u itself, ``runs`` leave its derivative out: its adjoints are those of u.
    """

    cdef const double[:, ::1] _v, _by_u, _by_y, _by_p
    cdef const int[:, ::1] _runs_u, _runs_y, _runs_p
    cdef const int[:, ::1] _products
    cdef tuple _matrices
    cdef list _adjoints
    cdef intptr_t[:, ::1] _addresses  # of each matrix and its adjoints
    cdef double[::1] _v_bar
    cdef double[:, ::1] _local
    cdef long _columns
    cdef bint _only_u

    def __init__(self, long n, tuple matrices, const int[:, ::1] products, tuple runs,
                 tuple values, const double[:, ::1] v, bint only_u):
        cdef long a
        cdef const double[:, ::1] matrix
        self._v, self._only_u = v, only_u
        self.n, self.count = n, v.shape[0]
        self._matrices, self._products = matrices, products
        self._runs_u, self._runs_y, self._runs_p, self._columns = runs
        self._by_u, self._by_y, self._by_p = values
        self._addresses = np.empty((len(matrices), 2), dtype=np.intp)
        for a in range(len(matrices)):
            matrix = matrices[a]
            self._addresses[a, 0] = <intptr_t>&matrix[0, 0]

    cdef void begin(self, long rows) except *:
        cdef long a
        cdef double[:, :, ::1] adjoints
        self._local = np.zeros((rows, self._columns))
        if rows == self.rows:
            return
        self.rows = rows
        self._v_bar = np.empty(rows * self._v.shape[1] + 1)
        sizes = np.asarray(self._products)[:, 1]
        self._adjoints = [np.empty((rows, self.count, size)) for size in sizes]
        for a in range(len(self._adjoints)):
            adjoints = self._adjoints[a]
            self._addresses[a, 1] = <intptr_t>&adjoints[0, 0, 0]

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
        if self._only_u:
            self._pull_u(k, w, out, leading)
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
        if self._local.shape[1]:
            self._add(self._runs_p, 0, self._runs_p.shape[0], self._values(self._by_p, k), w,
                      leading, &self._local[0, 0], self._local.shape[1], 0)

    cdef void _pull_u(self, long k, const double *w, double *out, long leading) noexcept nogil:
        self._add(self._runs_u, 0, self._runs_u.shape[0], self._values(self._by_u, k), w, leading,
                  out, leading, self.n)

    def pull_all(self, const double[:, :, ::1] w):
        """Visit all points with weights w [K, M, n]."""
        cdef long k
        cdef double[:, ::1] out = np.empty((w.shape[1], self.n))
        self.begin(w.shape[1])
        for k in range(self.count):
            self.pull(k, &w[k, 0, 0], &out[0, 0], self.n)

    @property
    def local(self):
        """The sum over the points that were visited of the derivatives outside of matrices."""
        return np.asarray(self._local)

    def adjoints(self, long a):
        """The adjoints [M, K, rows] of y_a at the points that were visited."""
        return self._adjoints[a]


def add_outer(
    const double[:, :, ::1] adjoints,
    const double[:, :] v,
    bint transposed,
    double[:, ::1] mu,
    long start,
    bint fresh,
):
    """Add to mu [M, m], from ``start`` on, the sums over K points of adjoints times v^T.

    The adjoints are [M, K, rows], v [K, columns] with its rows contiguous; what they add has
    [rows, columns] entries, transposed [columns, rows].  ``fresh``: what is there is overwritten.
    """
    cdef double one = 1.0, beta
    cdef int rows = <int>adjoints.shape[2], columns = <int>v.shape[1]
    cdef int leading = <int>(v.strides[0] // sizeof(double)), piece
    cdef long several = max(MANY // (<long>rows * columns), 16), count = adjoints.shape[1], r, k
    cdef double *left
    cdef double *right
    with nogil:
        for r in range(adjoints.shape[0]):
            k = 0
            while k < count:
                beta = 0.0 if fresh and not k else 1.0
                piece = <int>min(several, count - k)
                left, right = <double *>&adjoints[r, k, 0], <double *>&v[k, 0]
                if transposed:
                    dgemm(b"N", b"T", &rows, &columns, &piece, &one, left, &rows, right, &leading,
                          &beta, &mu[r, start], &rows)
                else:
                    dgemm(b"N", b"T", &columns, &rows, &piece, &one, right, &leading, left, &rows,
                          &beta, &mu[r, start], &columns)
                k += several


cdef void copy_rows(
    long rows, long n, const double *given, long apart, double *out, long leading
) noexcept nogil:
    cdef long r
    for r in range(rows):
        memcpy(out + r * leading, given + r * apart, n * sizeof(double))


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
    cdef long rows = lam.shape[0], n = lam.shape[1]
    # products are faster with rows that begin where lines of the cache do
    cdef bint weighted = weights is not None, sloped = running is not None
    cdef bint apart = not (weighted or sloped)
    cdef long leading = (n + LINE - 1) // LINE * LINE if apart else n
    cdef int size = <int>(rows * leading), step = 1
    cdef double one = 1.0
    cdef double[::1] memory = np.zeros((s + 2) * size + LINE), ones = np.ones(s + 1)
    cdef double *parts = &memory[-(<intptr_t>&memory[0] // <intptr_t>sizeof(double)) % LINE]
    cdef double *w = parts + (s + 1) * size
    cdef double[:, :, ::1] all_weights
    cdef const double[:, :, :, ::1] slopes
    if weighted:
        all_weights = weights
    if sloped:
        slopes = running
    pulls.begin(rows)
    with nogil:
        copy_rows(rows, n, &lam[0, 0], n, parts, leading)
        for k in range(steps - 1, -1, -1):
            for i in range(s - 1, -1, -1):
                if weighted:
                    w = &all_weights[k * s + i, 0, 0]
                combine(parts, size, s - i, &coefficients[k, i, 0], w)
                pulls.pull(k * s + i, w, parts + (s - i) * size, leading)
                if sloped:
                    daxpy(&size, &one, <double *>&slopes[k, i, 0, 0], &step,
                          parts + (s - i) * size, &step)
            combine(parts, size, s + 1, &ones[0], parts)
            if observed[k]:
                copy_rows(rows, n, parts, leading, &lam[0, 0], n)
                with gil:
                    seed(k)
                copy_rows(rows, n, &lam[0, 0], n, parts, leading)
        copy_rows(rows, n, parts, leading, &lam[0, 0], n)
