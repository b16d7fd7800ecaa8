# cython: language_level=3
"""Products of rows with Jacobians, as sweeps call them."""

from libc.stdint cimport intptr_t


cdef class Pulls:
    cdef readonly long count, n, rows
    cdef void begin(self, long rows) except *
    cdef void pull(self, long k, const double *w, double *out, long leading) noexcept nogil


cdef class MatrixPulls(Pulls):
    cdef const double[:, :, ::1] _matrices


cdef class Sums:
    cdef const long[::1] starts, used
    cdef const long[:, ::1] outside
    cdef bint alone


cdef class FactorPulls(Pulls):
    cdef const double[:, ::1] _v, _by_u, _by_y, _by_p
    cdef const int[:, ::1] _runs_u, _runs_y, _runs_p
    cdef const int[:, ::1] _products
    cdef tuple _given
    cdef list _adjoints
    cdef intptr_t[:, ::1] _addresses    # of each matrix and its adjoints
    cdef double[::1] _v_bar
    cdef double[:, ::1] _local
    cdef long _columns
    cdef bint _only_u
    cdef Sums _sums
    cdef void go_on(self, long rows) noexcept nogil
    cdef void collect(self, double *mu, long m, bint fresh) noexcept nogil
    cdef const double *_values(self, const double[:, ::1] values, long k) noexcept nogil
    cdef void _add(self, const int[:, ::1] runs, long first, long last, const double *values,
                   const double *w, long apart, double *target, long leading,
                   long fresh) noexcept nogil
    cdef void _pull_u(self, long k, const double *w, double *out, long leading) noexcept nogil
