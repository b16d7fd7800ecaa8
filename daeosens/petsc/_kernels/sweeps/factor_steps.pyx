# cython: language_level=3
"""Transposed steps of right-hand sides with factors; signatures and types in factor_steps.pyi."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy, memset
from scipy.linalg.cython_blas cimport dgemm, dgemv

import numpy as np

from daeosens.petsc._kernels.sweeps.breakpoints cimport Breakpoints, breakpoints_of, enter_step, seen_time
from daeosens.petsc._kernels.filling cimport PetscScalar, all_finite
from daeosens.petsc._kernels.sweeps.running_costs cimport RunningCosts, add_running_costs, running_costs
from petsc4py.PETSc cimport CHKERR, PetscErrorCode, PetscVec, Vec


cdef extern from "petscvec.h" nogil:
    PetscErrorCode VecGetArray(PetscVec, PetscScalar **)
    PetscErrorCode VecRestoreArray(PetscVec, PetscScalar **)


cdef extern from "runs.h" nogil:
    void add_runs(
        const int *runs, long count, const double *values, long rows, const double *w, long n,
        const double *v, long v_size, double *target, long leading, long fresh
    ) noexcept


cdef extern from *:
    """
    /* for few unknowns quicker than a call of BLAS */
    static inline void add(double *restrict out, double factor, const double *restrict row, long n)
    {
        if (factor != 0.0) for (long i = 0; i < n; i++) out[i] += factor * row[i];
    }
    """
    void add(double *out, double factor, const double *row, long n) noexcept nogil


ctypedef void (*Function)(double, const double *, const double *, double *, void *) noexcept
ctypedef void (*Inner)(
    double, const double *, const double *, const double *, double *, void *) noexcept
ctypedef void (*Slopes)(
    double, const double *, const double *, const double *, double *, double *, double *, void *
) noexcept

cdef enum:
    ROOM = 1 << 19  # numbers: steps are taken in blocks that need no more, where one step does not


cdef struct Factor:             # y = A v
    Inner inner                 # v
    void *data
    long start                  # of v among those of all factors
    long first                  # of y
    int rows, columns
    bint transposed             # the columns of A follow one another
    const int *runs             # of the derivatives of all v and f in y
    long n_runs
    const double *constant      # entries; NULL: parameters from ``place`` on
    long place


cdef struct Pattern:
    const int *runs
    long count, entries


cdef struct Block:              # K points, and what is evaluated there
    long count
    double *t                   # [K]
    double *u                   # [K, n]
    double *v                   # [K, all columns]
    double *y                   # [K, all rows]
    double *by_u                # [K, entries]: the derivatives of all v and f
    double *by_y
    double *by_p
    double *adjoints            # [K, all rows]: of y
    double *parts               # [s, n]: f_u^T w_i; before, the rates of stages
    double *w                   # [n]
    double *v_bar               # [all columns]
    double *local               # [used parameters]


cdef struct Run:                # the steps of a trajectory
    const double *a
    const double *b
    const double *c
    long s, m
    const double *p
    const double *times
    const double *sizes
    Breakpoints breakpoints


cdef Pattern pattern(const int[:, ::1] runs, long entries):
    cdef Pattern found
    found.runs = &runs[0, 0] if runs.shape[0] else NULL
    found.count, found.entries = runs.shape[0], entries
    return found


cdef class FactorSteps:
    """Adjoint steps of f(t, u, p, y) with y_a = A_a v_a(t, u, p, y_1 ... y_{a-1}).

    All points of many steps are evaluated before they are carried back over, so that products with
    A_a are those of matrices.  The derivative in A_a, a sum over all points, is one too.

    Parameters
    ----------
    n : int                 number of unknowns
    rhs : (int, int)        addresses of f as a whole and of its user data
    inner : list of (int, int)
                            v_a(t, u, p, y) of each factor
    slopes : (int, int)     the values of the derivatives of all v and f in u, y and p
    entries : (int, int, int)
                            how many these are
    table : ndarray [factors, 6] of int32
                            first entry of v_a, rows, columns, transposed, runs ``by_y`` from, to
    matrices : list of int or ndarray
                            the first of the parameters that are the entries of A_a, or the entries
    runs : tuple of ndarray [., 5] of int32
                            where the values in u, y and p belong (``daeosens.petsc.diagonal_runs``)
    used : ndarray of int   the parameters that columns of the derivative in p stand for
    """

    cdef long n, v_size, y_size, n_factors
    cdef Function rhs
    cdef Slopes slopes
    cdef void *rhs_data
    cdef void *slopes_data
    cdef Pattern by_u, by_y, by_p
    cdef Factor *factors
    cdef const long[::1] used
    cdef object memory, kept
    cdef double[::1] room

    def __cinit__(self, long n, tuple rhs, list inner, tuple slopes, tuple entries,
                  const int[:, ::1] table, list matrices, tuple runs, const long[::1] used):
        cdef long a
        cdef uintptr_t address, data
        cdef const double[:, ::1] constant
        cdef Factor *factor
        self.kept = (table, matrices, runs)
        self.n, self.used, self.n_factors = n, used, len(inner)
        address, data = rhs
        self.rhs, self.rhs_data = <Function>address, <void *>data
        address, data = slopes
        self.slopes, self.slopes_data = <Slopes>address, <void *>data
        self.by_u, self.by_y, self.by_p = (
            pattern(runs[0], entries[0]), pattern(runs[1], entries[1]), pattern(runs[2], entries[2])
        )
        self.memory = bytearray(<size_t>self.n_factors * sizeof(Factor))
        self.factors = <Factor *><char *>self.memory
        for a in range(self.n_factors):
            factor = &self.factors[a]
            address, data = inner[a]
            factor.inner, factor.data = <Inner>address, <void *>data
            factor.start, factor.first = table[a, 0], self.y_size
            factor.rows, factor.columns, factor.transposed = table[a, 1], table[a, 2], table[a, 3]
            factor.runs = self.by_y.runs + 5 * table[a, 4]
            factor.n_runs = table[a, 5] - table[a, 4]
            if isinstance(matrices[a], np.ndarray):
                constant = matrices[a]
                factor.constant = &constant[0, 0]
            else:
                factor.place = matrices[a]
            self.y_size += factor.rows
            self.v_size += factor.columns
        self.room = np.empty(0)

    cdef long each(self) noexcept:
        """Return how many numbers a point needs."""
        return (1 + self.n + self.v_size + 2 * self.y_size + self.by_u.entries + self.by_y.entries
                + self.by_p.entries)

    cdef Block block(self, long points, long s) except *:
        """Return room for so many points."""
        cdef Block block
        cdef long n = self.n
        cdef long count = (points * self.each() + (s + 1) * n + self.v_size + self.used.shape[0])
        if self.room.shape[0] < count:
            self.room = np.empty(count)
        block.count = points
        block.t = &self.room[0]
        block.u = block.t + points
        block.v = block.u + points * n
        block.y = block.v + points * self.v_size
        block.adjoints = block.y + points * self.y_size
        block.by_u = block.adjoints + points * self.y_size
        block.by_y = block.by_u + points * self.by_u.entries
        block.by_p = block.by_y + points * self.by_y.entries
        block.parts = block.by_p + points * self.by_p.entries
        block.w = block.parts + s * n
        block.v_bar = block.w + n
        block.local = block.v_bar + self.v_size
        return block

    cdef int gather(self, Run *run, Block *block, long first, long last,
                    const double[:, ::1] states, const double[:, :, ::1] stages) except -1:
        """Take the points of steps, and find the stages that were not kept."""
        cdef long n = self.n, s = run.s, k, i
        cdef double *u = block.u
        cdef double *t = block.t
        for k in range(first, last):
            memcpy(u, &states[k, 0], <size_t>n * sizeof(double))
            enter_step(&run.breakpoints, run.times[k], run.sizes[k])
            if k >= stages.shape[0]:
                self.find_stages(run, k, u, block.parts)
            elif s > 1:
                memcpy(u + n, &stages[k, 0, 0], <size_t>((s - 1) * n) * sizeof(double))
            for i in range(s):
                t[i] = seen_time(&run.breakpoints, run.times[k] + run.c[i] * run.sizes[k])
            u, t = u + s * n, t + s
        return 0

    cdef void find_stages(self, const Run *run, long k, double *u, double *rates) noexcept:
        """Fill the stages [s, n] of a step, of which the first one is there."""
        cdef long s = run.s, i, j
        cdef long n = self.n
        cdef double h = run.sizes[k]
        for i in range(1, s):
            self.rhs(seen_time(&run.breakpoints, run.times[k] + run.c[i - 1] * h), u + (i - 1) * n,
                     run.p, rates + (i - 1) * n, self.rhs_data)
            memcpy(u + i * n, u, <size_t>n * sizeof(double))
            for j in range(i):
                add(u + i * n, h * run.a[i * s + j], rates + j * n, n)

    cdef void evaluate(self, const Run *run, Block *block) noexcept:
        """Find v, y and the derivatives between them at all points."""
        cdef long k, a
        cdef Factor *factor
        cdef const double *matrix
        cdef double *v
        cdef double *y
        cdef double one = 1.0, zero = 0.0
        cdef int count = <int>block.count, v_size = <int>self.v_size, y_size = <int>self.y_size
        cdef int leading
        for a in range(self.n_factors):
            factor = &self.factors[a]
            matrix = factor.constant if factor.constant != NULL else run.p + factor.place
            for k in range(count):
                factor.inner(block.t[k], block.u + k * self.n, run.p, block.y + k * y_size,
                             block.v + k * v_size + factor.start, factor.data)
            v, y = block.v + factor.start, block.y + factor.first
            leading = factor.rows if factor.transposed else factor.columns
            dgemm(b"N" if factor.transposed else b"T", b"N", &factor.rows, &count, &factor.columns,
                  &one, <double *>matrix, &leading, v, &v_size, &zero, y, &y_size)
        for k in range(count):
            self.slopes(block.t[k], block.u + k * self.n, run.p, block.y + k * y_size,
                        block.by_u + k * self.by_u.entries, block.by_y + k * self.by_y.entries,
                        block.by_p + k * self.by_p.entries, self.slopes_data)

    cdef void pull(self, const Run *run, Block *block, long k, double *out) noexcept:
        """Fill out [n] with f_u^T w at point k; keep what the derivative in p needs."""
        cdef long a
        cdef Factor *factor
        cdef const double *matrix
        cdef double *adjoints
        cdef double one = 1.0, zero = 0.0
        cdef int step = 1, first, second
        for a in range(self.n_factors - 1, -1, -1):
            factor = &self.factors[a]
            matrix = factor.constant if factor.constant != NULL else run.p + factor.place
            adjoints = block.adjoints + k * self.y_size + factor.first
            add_runs(factor.runs, factor.n_runs, block.by_y + k * self.by_y.entries, 1, block.w,
                     self.n, block.v_bar, self.v_size, adjoints, factor.rows,
                     factor.rows)
            first, second = factor.columns, factor.rows
            if factor.transposed:
                first, second = second, first
            dgemv(b"T" if factor.transposed else b"N", &first, &second, &one, <double *>matrix,
                  &first, adjoints, &step, &zero, block.v_bar + factor.start, &step)
        add_runs(self.by_u.runs, self.by_u.count, block.by_u + k * self.by_u.entries, 1, block.w,
                 self.n, block.v_bar, self.v_size, out, self.n, self.n)
        add_runs(self.by_p.runs, self.by_p.count, block.by_p + k * self.by_p.entries, 1, block.w,
                 self.n, block.v_bar, self.v_size, block.local, self.used.shape[0], 0)

    cdef void carry_row(self, const Run *run, Block *block, long first, long last, long row,
                        const RunningCosts *costs, double *lam, double *mu) noexcept:
        """Carry one row back over the steps of a block; all but the factors' part of mu."""
        cdef long s = run.s, k, i, j, point
        cdef long n = self.n
        cdef double h
        cdef double *part
        memset(block.local, 0, <size_t>self.used.shape[0] * sizeof(double))
        for k in range(last - 1, first - 1, -1):
            h = run.sizes[k]
            # w_i = h (b_i lam + sum_{j>i} a_ji l_j), l_i = f_u^T w_i
            for i in range(s - 1, -1, -1):
                point, part = (k - first) * s + i, block.parts + i * n
                memset(block.w, 0, <size_t>n * sizeof(double))
                add(block.w, h * run.b[i], lam, n)
                for j in range(i + 1, s):
                    add(block.w, h * run.a[j * s + i], block.parts + j * n, n)
                self.pull(run, block, point, part)
                add_running_costs(costs, row, h * run.b[i], block.t[point], block.u + point * n,
                                  run.p, n, run.m, part, mu)
            for i in range(s):
                add(lam, 1.0, block.parts + i * n, n)

    cdef void collect(self, Block *block, double *mu) noexcept:
        """Add the derivatives in the entries of the factors, and the others, to mu [m]."""
        cdef long a, j
        cdef Factor *factor
        cdef double *v
        cdef double *adjoints
        cdef double one = 1.0
        cdef int count = <int>block.count, v_size = <int>self.v_size, y_size = <int>self.y_size
        for a in range(self.n_factors):
            factor = &self.factors[a]
            if factor.constant != NULL:
                continue
            v, adjoints = block.v + factor.start, block.adjoints + factor.first
            if factor.transposed:
                dgemm(b"N", b"T", &factor.rows, &factor.columns, &count, &one, adjoints, &y_size,
                      v, &v_size, &one, mu + factor.place, &factor.rows)
            else:
                dgemm(b"N", b"T", &factor.columns, &factor.rows, &count, &one, v, &v_size,
                      adjoints, &y_size, &one, mu + factor.place, &factor.columns)
        for j in range(self.used.shape[0]):
            mu[self.used[j]] += block.local[j]

    cdef bint finite(
        self, Block *block, const double *lam, const double *mu, long m
    ) noexcept:
        return (all_finite(lam, self.n) and all_finite(mu, m)
                and all_finite(block.v, block.count * self.v_size)
                and all_finite(block.adjoints, block.count * self.y_size))

    def carry_back(
        self,
        tuple method,
        const double[::1] breakpoints,
        const double[::1] p,
        const double[::1] times,
        const double[::1] sizes,
        const double[:, ::1] states,
        const double[:, :, ::1] stages,
        long first,
        long last,
        list lam,
        list mu,
        tuple costs,
    ):
        """Carry adjoints back over explicit Runge-Kutta steps without Python.

        Arguments and what is returned are those of ``carry_back`` of ``sweeps``.
        """
        cdef const double[:, ::1] a
        cdef const double[::1] b, c
        cdef Run run
        cdef Block block
        cdef RunningCosts running = running_costs(costs)
        cdef long begin, row, most
        cdef bint sound = True
        cdef double *lam_row = NULL
        cdef double *mu_row = NULL
        a, b, c = method
        run.a, run.b, run.c, run.s = &a[0, 0], &b[0], &c[0], b.shape[0]
        run.breakpoints = breakpoints_of(breakpoints)
        run.m, run.p = p.shape[0], &p[0] if p.shape[0] else NULL
        run.times, run.sizes = &times[0], &sizes[0] if sizes.shape[0] else NULL
        most = max(1, ROOM // (self.each() * run.s))
        while sound and last > first:
            begin = max(first, last - most)
            block = self.block((last - begin) * run.s, run.s)
            self.gather(&run, &block, begin, last, states, stages)
            self.evaluate(&run, &block)
            for row in range(len(lam)):
                CHKERR(VecGetArray((<Vec>lam[row]).vec, &lam_row))
                CHKERR(VecGetArray((<Vec>mu[row]).vec, &mu_row))
                self.carry_row(&run, &block, begin, last, row, &running, lam_row, mu_row)
                self.collect(&block, mu_row)
                sound = sound and self.finite(&block, lam_row, mu_row, run.m)
                CHKERR(VecRestoreArray((<Vec>mu[row]).vec, &mu_row))
                CHKERR(VecRestoreArray((<Vec>lam[row]).vec, &lam_row))
            last = begin
            PyErr_CheckSignals()
        return sound
