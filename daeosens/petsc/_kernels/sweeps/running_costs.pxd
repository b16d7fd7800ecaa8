# cython: language_level=3
"""Running costs that are C functions; shared by the sweeps."""

from libc.stdint cimport uintptr_t


cdef extern from "running_costs.h" nogil:
    ctypedef struct RunningCosts:
        const long *first
        const double *weights
        const uintptr_t *functions
        double *values
        double *out
    void add_gradient(
        const uintptr_t *, double, double, const double *, const double *, double *, long, double *
    ) noexcept
    void add_running_costs(
        const RunningCosts *, long, double, double, const double *, const double *, long, long,
        double *, double *) noexcept


cdef inline RunningCosts running_costs(tuple arrays):
    """Borrow the arrays of ``running_costs``, which the sweeps in C have."""
    cdef RunningCosts costs
    cdef const long[::1] first
    cdef const double[::1] weights
    cdef const uintptr_t[:, ::1] functions
    cdef double[::1] values, out
    costs.first = NULL
    if arrays is not None:
        first, weights, functions, values, out = arrays
        costs.first, costs.weights, costs.functions = &first[0], &weights[0], &functions[0, 0]
        costs.values, costs.out = &values[0], &out[0]
    return costs
