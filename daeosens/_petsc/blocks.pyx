# cython: language_level=3
"""Transposed Runge-Kutta steps of many rows at once; signatures and types in blocks.pyi."""

import numpy as np

from libc.stdint cimport intptr_t, uintptr_t
from libc.string cimport memcpy, memset
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


cdef extern from "crew.h" nogil:
    ctypedef void (*Work)(void *, long) noexcept
    void summon(long threads) noexcept
    long together(Work work, void *context, long workers) noexcept
    long next_piece(long *next, long several) noexcept


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


cdef class Sums:
    """What adjoints of the products y_a = A_a v_a at K points add to those of the parameters.

    The derivative in A_a is a sum over the points of products of the adjoints of y_a with v_a.

    Parameters
    ----------
    starts : ndarray [factors]
                            the first of the parameters that are the entries of A_a, or -1
    inner : list of FewRows or None
                            v_a at all points; None for constants
    used : ndarray          the parameters that stand outside of the matrices in f and all v
    outside : ndarray [., 2]
                            from which parameter to which one none is an entry of one A_a only:
                            these are zero before anything is added
    alone : bool            entries of A_a are added to nothing that is there
    """

    cdef const long[::1] starts, used
    cdef const long[:, ::1] outside
    cdef object _kept
    cdef const intptr_t[:, ::1] inner   # of each: rows, apart, weights, their number
    cdef bint alone

    def __init__(self, const long[::1] starts, list inner, const long[::1] used,
                 const long[:, ::1] outside, bint alone):
        cdef const double[:, :] rows
        cdef const double[:, ::1] weights
        cdef intptr_t[:, ::1] found = np.zeros((len(inner), 4), dtype=np.intp)
        cdef long a
        self.starts, self.used, self.outside, self.alone = starts, used, outside, alone
        for a in range(len(inner)):
            if starts[a] < 0:
                continue
            rows = inner[a].rows
            found[a, 0], found[a, 1] = <intptr_t>&rows[0, 0], rows.strides[0] // sizeof(double)
            if inner[a].weights is not None:
                weights = inner[a].weights
                found[a, 2], found[a, 3] = <intptr_t>&weights[0, 0], weights.shape[1]
        self.inner, self._kept = found, inner


cdef class FactorPulls(Pulls):
    """By factors: f(t, u, p, y) with y_a = A_a v_a(t, u, p, y_1 ... y_{a-1}).

    What v and f are differentiated in has few entries, of which those in a row along a diagonal
    make a run.  Where the only v is u itself, ``runs`` leave its derivative out: its adjoints are
    those of u.
    """

    cdef const double[:, ::1] _v, _by_u, _by_y, _by_p
    cdef const int[:, ::1] _runs_u, _runs_y, _runs_p
    cdef const int[:, ::1] _products
    cdef tuple _given
    cdef list _adjoints
    cdef intptr_t[:, ::1] _addresses  # of each matrix and its adjoints
    cdef double[::1] _v_bar, _gathered
    cdef double[:, ::1] _local
    cdef long _columns
    cdef bint _only_u
    cdef Sums _sums

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
        cdef long a, most = 0
        cdef double[:, :, ::1] adjoints
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
            if self._sums is not None:
                most = max(most, self._sums.inner[a, 3] * self._products[a, 1])
        self._gathered = np.empty(most + 1)

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
        if self._columns:
            self._add(self._runs_p, 0, self._runs_p.shape[0], self._values(self._by_p, k), w,
                      leading, &self._local[0, 0], self._columns, 0)

    cdef void _pull_u(self, long k, const double *w, double *out, long leading) noexcept nogil:
        self._add(self._runs_u, 0, self._runs_u.shape[0], self._values(self._by_u, k), w, leading,
                  out, leading, self.n)

    cdef void collect(self, double *mu, long m, bint fresh) noexcept nogil:
        """Add to the rows of mu [M, m], of which nothing is there if ``fresh``."""
        cdef double *local = &self._local[0, 0] if self._columns else NULL
        cdef double one = 1.0, zero = 0.0
        cdef double *adjoints
        cdef const intptr_t *inner
        cdef const int *product
        cdef int points, several
        cdef long r, a, k
        for r in range(self.rows):
            if fresh:
                for k in range(self._sums.outside.shape[0]):
                    memset(mu + self._sums.outside[k, 0], 0, <size_t>(
                        self._sums.outside[k, 1] - self._sums.outside[k, 0]) * sizeof(double))
            for a in range(self._sums.starts.shape[0]):
                if self._sums.starts[a] < 0:
                    continue
                product, inner, points = &self._products[a, 0], &self._sums.inner[a, 0], <int>self.count
                adjoints = <double *>self._addresses[a, 1] + r * points * product[1]
                if inner[2]:
                    several = <int>inner[3]
                    dgemm(b"N", b"T", <int *>&product[1], &several, &points, &one, adjoints,
                          <int *>&product[1], <double *>inner[2], &several, &zero,
                          &self._gathered[0], <int *>&product[1])
                    adjoints, points = &self._gathered[0], several
                add_outer(adjoints, <double *>inner[0], inner[1], points, product,
                          fresh and self._sums.alone, mu + self._sums.starts[a])
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


cdef long in_lines(long n) noexcept:
    """Return how far apart rows are that all begin where lines of the cache do, as is fastest."""
    return (n + LINE - 1) // LINE * LINE


cdef double *at_line(double[::1] memory) noexcept:
    """Return where the first line of the cache begins."""
    return &memory[-(<intptr_t>&memory[0] // <intptr_t>sizeof(double)) % LINE]


cdef void copy_rows(
    long rows, long n, const double *given, long apart, double *out, long leading
) noexcept nogil:
    cdef long r
    for r in range(rows):
        memcpy(out + r * leading, given + r * apart, n * sizeof(double))


cdef void carry_step(
    Pulls pulls, long k, long s, const double *coefficients, const double *ones, long size,
    long leading, double *parts, double *w, long weighted, const double *slopes
) noexcept nogil:
    """Carry back over step k the first ``size`` of ``parts``; what follows is room for s others.

    Weights go to w, and further by ``weighted`` to those of the stages; slopes may be NULL.
    """
    cdef double one = 1.0
    cdef int all_of_them = <int>size, step = 1
    cdef long i
    for i in range(s - 1, -1, -1):
        combine(parts, size, s - i, coefficients + i * (s + 1), w + i * weighted)
        pulls.pull(k * s + i, w + i * weighted, parts + (s - i) * size, leading)
        if slopes != NULL:
            daxpy(&all_of_them, &one, <double *>slopes + i * size, &step, parts + (s - i) * size,
                  &step)
    combine(parts, size, s + 1, ones, parts)


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
    cdef long steps = coefficients.shape[0], s = coefficients.shape[1], k
    cdef long rows = lam.shape[0], n = lam.shape[1], weighted = 0
    cdef long leading = n if weights is not None or running is not None else in_lines(n)
    cdef long size = rows * leading
    cdef double[::1] memory = np.zeros((s + 2) * size + LINE), ones = np.ones(s + 1)
    cdef double *parts = at_line(memory)
    cdef double *all_weights = parts + (s + 1) * size
    cdef const double *slopes = NULL
    cdef double[:, :, ::1] given_weights
    cdef const double[:, :, :, ::1] given_slopes
    if weights is not None:
        given_weights, weighted = weights, size
        all_weights = &given_weights[0, 0, 0]
    if running is not None:
        given_slopes = running
        slopes = &given_slopes[0, 0, 0, 0]
    pulls.begin(rows)
    with nogil:
        copy_rows(rows, n, &lam[0, 0], n, parts, leading)
        for k in range(steps - 1, -1, -1):
            carry_step(pulls, k, s, &coefficients[k, 0, 0], &ones[0], size, leading, parts,
                       all_weights + k * s * weighted, weighted,
                       slopes + k * s * size if slopes != NULL else NULL)
            if observed[k]:
                copy_rows(rows, n, parts, leading, &lam[0, 0], n)
                with gil:
                    seed(k)
                copy_rows(rows, n, &lam[0, 0], n, parts, leading)
        copy_rows(rows, n, parts, leading, &lam[0, 0], n)


cdef struct Sweep:              # of M rows back over S steps of s stages
    const double *coefficients
    const double *ones          # s + 1 of them
    long steps, s, n, m, rows, leading
    double *lam
    double *mu
    bint fresh
    long at_once                # rows that are carried together, at most
    long next                   # row that nobody has begun with
    void **pulls                # of each worker
    double **parts


cdef void carry_some(void *context, long worker) noexcept nogil:
    """Carry rows back that nobody has begun with, as long as there are any."""
    cdef Sweep *sweep = <Sweep *>context
    cdef double *parts = sweep.parts[worker]
    cdef double *lam
    cdef long first, rows, size, s = sweep.s, n = sweep.n, k
    while True:
        first = next_piece(&sweep.next, sweep.at_once)
        if first >= sweep.rows:
            return
        rows = min(sweep.at_once, sweep.rows - first)
        lam, size = sweep.lam + first * n, rows * sweep.leading
        (<FactorPulls>sweep.pulls[worker]).go_on(rows)
        copy_rows(rows, n, lam, n, parts, sweep.leading)
        for k in range(sweep.steps - 1, -1, -1):
            carry_step(<FactorPulls>sweep.pulls[worker], k, s,
                       sweep.coefficients + k * s * (s + 1), sweep.ones, size, sweep.leading,
                       parts, parts + (s + 1) * size, 0, NULL)
        copy_rows(rows, n, parts, sweep.leading, lam, n)
        if sweep.m:
            (<FactorPulls>sweep.pulls[worker]).collect(sweep.mu + first * sweep.m, sweep.m,
                                                       sweep.fresh)


def carry_together(
    list pulls,
    const double[:, :, ::1] coefficients,
    double[:, ::1] lam,
    double[:, ::1] mu,
    long at_once,
    bint fresh,
):
    """Carry rows back as ``carry`` does, by several threads, with the derivative in parameters.

    Parameters
    ----------
    pulls : list of FactorPulls
                            at the points of the stages: twins, one for each thread
    coefficients : ndarray [S, s, s+1]
    lam : ndarray [M, n]
    mu : ndarray [M, m]     what the points say about the parameters is added to it
    at_once : int           rows that a thread carries together, at most
    fresh : bool            mu holds nothing yet

    Returns
    -------
    int                     threads that came; all rows are carried by those that do
    """
    cdef Sweep sweep
    cdef long workers = len(pulls), k, numbers
    cdef double[:, ::1] memory
    cdef double[::1] ones = np.ones(coefficients.shape[1] + 1)
    cdef void **places
    sweep.ones, sweep.steps, sweep.s = &ones[0], coefficients.shape[0], coefficients.shape[1]
    sweep.rows, sweep.n, sweep.m = lam.shape[0], lam.shape[1], mu.shape[1]
    sweep.coefficients, sweep.fresh = &coefficients[0, 0, 0], fresh
    sweep.lam, sweep.mu = &lam[0, 0], &mu[0, 0] if mu.shape[1] else NULL
    sweep.leading, sweep.at_once, sweep.next = in_lines(sweep.n), at_once, 0
    numbers = (sweep.s + 2) * at_once * sweep.leading
    memory = np.zeros((workers, numbers + LINE))
    room = bytearray(2 * workers * sizeof(void *))
    places = <void **><char *>room
    sweep.pulls, sweep.parts = places, <double **>(places + workers)
    for k in range(workers):
        (<FactorPulls?>pulls[k]).begin(at_once)
        sweep.pulls[k], sweep.parts[k] = <void *>pulls[k], at_line(memory[k])
    with nogil:
        workers = together(carry_some, &sweep, workers)
    return workers


def wake(long threads):
    """Wake so many threads: ``carry_together`` will follow within a millisecond."""
    summon(threads)
