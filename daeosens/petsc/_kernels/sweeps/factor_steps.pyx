# cython: language_level=3
"""Transposed steps of right-hand sides with factors; signatures and types in factor_steps.pyi."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy, memset
from scipy.linalg.cython_blas cimport dgemm, dgemv

import numpy as np

from daeosens.petsc._kernels.sweeps.breakpoints cimport enter_step, seen_time
from daeosens.petsc._kernels.filling cimport PetscScalar, all_finite
from daeosens.petsc._kernels.sweeps.running_costs cimport RunningCosts, running_costs
from daeosens.petsc._kernels.ts_types.dense cimport (
    DenseFillStages, DenseProduct, DenseSteps, DenseSystem, DenseTransposeStep, DenseWork,
    DenseWorkCreate, DenseWorkDestroy
)
from petsc4py.PETSc cimport CHKERR, PetscErrorCode, PetscVec, Vec


cdef extern from "petscvec.h" nogil:
    PetscErrorCode VecGetArray(PetscVec, PetscScalar **)
    PetscErrorCode VecRestoreArray(PetscVec, PetscScalar **)


cdef extern from "runs.h" nogil:
    void add_runs(
        const int *runs, long count, const double *values, long rows, const double *w, long n,
        const double *v, long v_size, double *target, long leading, long fresh
    ) noexcept


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
    double *v_bar               # [all columns]
    double *local               # [used parameters]


cdef struct Visit:              # of the points of a block from the last one to the first
    void *steps
    Block *block
    long point                  # that was visited last


cdef void pull_next(
    double t, const double *u, const double *p, const double *w, double *by_u, double *by_p,
    void *data,
) noexcept:
    cdef Visit *visit = <Visit *>data
    visit.point -= 1
    (<FactorSteps>visit.steps).pull(p, visit.block, visit.point, w, by_u)


cdef Pattern pattern(const int[:, ::1] runs, long entries):
    cdef Pattern result
    result.runs = &runs[0, 0] if runs.shape[0] else NULL
    result.count, result.entries = runs.shape[0], entries
    return result


cdef class FactorSteps:
    """Adjoint steps of f(t, u, p, y) with y_a = A_a v_a(t, u, p, y_1 ... y_{a-1}).

    All points of many steps are evaluated before they are carried back over, so that products with
    A_a are those of matrices.  The derivative in A_a, a sum over all points, is one too.

    Parameters
    ----------
    n : int                 number of unknowns
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
    cdef Slopes slopes
    cdef void *slopes_data
    cdef Pattern by_u, by_y, by_p
    cdef Factor *factors
    cdef const long[::1] used
    cdef object memory, kept
    cdef double[::1] room

    def __cinit__(self, long n, list inner, tuple slopes, tuple entries,
                  const int[:, ::1] table, list matrices, tuple runs, const long[::1] used):
        cdef long a
        cdef uintptr_t address, data
        cdef const double[:, ::1] constant
        cdef Factor *factor
        self.kept = (table, matrices, runs)
        self.n, self.used, self.n_factors = n, used, len(inner)
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

    cdef Block block(self, long points) except *:
        """Return room for so many points."""
        cdef Block block
        cdef long n = self.n
        cdef long count = points * self.each() + self.v_size + self.used.shape[0]
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
        block.v_bar = block.by_p + points * self.by_p.entries
        block.local = block.v_bar + self.v_size
        return block

    cdef bint gather(self, DenseSystem *system, DenseWork work, Block *block, long first, long last,
                     const double[::1] times, const double[::1] sizes,
                     const double[:, ::1] states, const double[:, :, ::1] stages) except -1:
        """Take the points of steps; return whether the stages that were not kept are found."""
        cdef long n = self.n, s = system.s, k, i
        cdef double *u = block.u
        cdef double *t = block.t
        for k in range(first, last):
            memcpy(u, &states[k, 0], <size_t>n * sizeof(double))
            enter_step(&system.breakpoints, times[k], sizes[k])
            if k < stages.shape[0]:
                if s > 1:
                    memcpy(u + n, &stages[k, 0, 0], <size_t>((s - 1) * n) * sizeof(double))
            elif not DenseFillStages(work, times[k], sizes[k], u):
                return False
            for i in range(s):
                t[i] = seen_time(&system.breakpoints, times[k] + system.c[i] * sizes[k])
            u, t = u + s * n, t + s
        return True

    cdef void evaluate(self, const double *p, Block *block) noexcept:
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
            matrix = factor.constant if factor.constant != NULL else p + factor.place
            for k in range(count):
                factor.inner(block.t[k], block.u + k * self.n, p, block.y + k * y_size,
                             block.v + k * v_size + factor.start, factor.data)
            v, y = block.v + factor.start, block.y + factor.first
            leading = factor.rows if factor.transposed else factor.columns
            dgemm(b"N" if factor.transposed else b"T", b"N", &factor.rows, &count, &factor.columns,
                  &one, <double *>matrix, &leading, v, &v_size, &zero, y, &y_size)
        for k in range(count):
            self.slopes(block.t[k], block.u + k * self.n, p, block.y + k * y_size,
                        block.by_u + k * self.by_u.entries, block.by_y + k * self.by_y.entries,
                        block.by_p + k * self.by_p.entries, self.slopes_data)

    cdef void pull(
        self, const double *p, Block *block, long k, const double *w, double *out
    ) noexcept:
        """Fill out [n] with f_u^T w at point k; keep what the derivative in p needs."""
        cdef long a
        cdef Factor *factor
        cdef const double *matrix
        cdef double *adjoints
        cdef double one = 1.0, zero = 0.0
        cdef int step = 1, first, second
        for a in range(self.n_factors - 1, -1, -1):
            factor = &self.factors[a]
            matrix = factor.constant if factor.constant != NULL else p + factor.place
            adjoints = block.adjoints + k * self.y_size + factor.first
            add_runs(factor.runs, factor.n_runs, block.by_y + k * self.by_y.entries, 1, w,
                     self.n, block.v_bar, self.v_size, adjoints, factor.rows,
                     factor.rows)
            first, second = factor.columns, factor.rows
            if factor.transposed:
                first, second = second, first
            dgemv(b"T" if factor.transposed else b"N", &first, &second, &one, <double *>matrix,
                  &first, adjoints, &step, &zero, block.v_bar + factor.start, &step)
        add_runs(self.by_u.runs, self.by_u.count, block.by_u + k * self.by_u.entries, 1, w,
                 self.n, block.v_bar, self.v_size, out, self.n, self.n)
        add_runs(self.by_p.runs, self.by_p.count, block.by_p + k * self.by_p.entries, 1, w,
                 self.n, block.v_bar, self.v_size, block.local, self.used.shape[0], 0)

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
        DenseSteps steps,
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

        Arguments and what is returned are those of ``DenseSteps.carry_back``, with ``steps`` of f
        as a whole, and its parameters.
        """
        cdef DenseSystem system = steps.system  # a copy, with products at the points of a block
        cdef DenseWork work = NULL
        cdef Block block
        cdef Visit visit
        cdef RunningCosts running
        cdef long begin, row, k, s = system.s, n = self.n, most = max(1, ROOM // (self.each() * s))
        cdef bint sound = True
        cdef double *u
        cdef double *lam_row = NULL
        cdef double *mu_row = NULL
        visit.steps, visit.block = <void *>self, &block
        system.pull = <DenseProduct><void *>pull_next  # which Cython takes for one without the interpreter
        system.pull_data, system.gathers = &visit, True
        CHKERR(DenseWorkCreate(&system, 1, &work))
        try:
            while sound and last > first:
                begin = max(first, last - most)
                block = self.block((last - begin) * s)
                if not self.gather(
                        &system, work, &block, begin, last, times, sizes, states, stages):
                    return False
                self.evaluate(system.p, &block)
                for row in range(len(lam)):
                    memset(block.local, 0, <size_t>self.used.shape[0] * sizeof(double))
                    visit.point = block.count
                    running = running_costs(costs)
                    if costs is not None:
                        running.first, running.values = running.first + row, running.values + row
                    CHKERR(VecGetArray((<Vec>lam[row]).vec, &lam_row))
                    CHKERR(VecGetArray((<Vec>mu[row]).vec, &mu_row))
                    for k in range(last - 1, begin - 1, -1):
                        u = block.u + (k - begin) * s * n
                        CHKERR(DenseTransposeStep(
                            work, times[k], sizes[k], u, u + n, &lam_row, &mu_row, &running))
                    self.collect(&block, mu_row)
                    sound = sound and self.finite(&block, lam_row, mu_row, system.m)
                    CHKERR(VecRestoreArray((<Vec>mu[row]).vec, &mu_row))
                    CHKERR(VecRestoreArray((<Vec>lam[row]).vec, &lam_row))
                last = begin
                PyErr_CheckSignals()
        finally:
            DenseWorkDestroy(&work)
        return sound
