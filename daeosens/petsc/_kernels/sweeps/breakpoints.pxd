# cython: language_level=3
"""Times at which the equations may jump, in C; shared by steps and sweeps."""


cdef extern from "breakpoints.h" nogil:
    ctypedef struct Breakpoints:
        const double *times
        long count
    long piece_of_step(const Breakpoints *, double, double) noexcept
    void enter_step(Breakpoints *, double, double) noexcept
    double seen_time(const Breakpoints *, double) noexcept


cdef inline Breakpoints breakpoints_of(const double[::1] times):
    """Borrow an array [K]."""
    cdef Breakpoints breakpoints
    breakpoints.count = times.shape[0]
    breakpoints.times = &times[0] if breakpoints.count else NULL
    return breakpoints
