# cython: language_level=3
"""The size of a first adaptive step; signatures and types in starting_step.pyi."""

from libc.math cimport INFINITY, cos, fabs, fmax, fmin
from libc.stdint cimport uintptr_t

cimport numpy as np
import numpy as np

from daeosens.petsc._kernels.filling cimport all_finite
from daeosens.petsc._kernels.registered cimport Function


np.import_array()

cdef double PART = 0.01      # of the state, and of the tolerance, that the first step may be worth
cdef double NEARBY = 1e-5    # of the state by which differences are taken
cdef double PART_OF_LEAVING = 0.1   # of the step, where unknowns leave zero
cdef double RESOLVED = 0.1   # of the time of the fastest mode: the first step at which it is seen


cdef class Rates:
    """f of u' = f around the start of a run, and sizes of its values: the largest of all ranks."""

    cdef Function function
    cdef void *data
    cdef const double *p
    cdef const double *u
    cdef long n
    cdef double rtol, atol, biggest
    cdef object call, agree, kept

    cdef int fill(self, double t, double *u, double *out, np.ndarray state, np.ndarray room) except -1:
        """Fill ``out`` [n]; ``state`` and ``room`` are the arrays of which those are the numbers."""
        if self.function != NULL:
            self.function(t, u, self.p, out, self.data)
        else:
            self.call(t, state, room)
        return 0

    cdef double over_ranks(self, double size) except? -1.0:
        return size if self.agree is None else self.agree(size)

    cdef double weight(self, long i) noexcept:
        return self.atol + self.rtol * fabs(self.u[i])

    cdef double scale(self, long i) noexcept:
        """The size of an unknown; of one that is zero what the tolerances compare it with."""
        cdef double size = fabs(self.u[i])
        if size > 0.0:
            return size
        if self.biggest == 0.0:
            return self.atol / NEARBY
        return fmin(self.atol / self.rtol, self.biggest)

    cdef double largest(self, const double *a, const double *less) except? -1.0:
        """The largest weighted entry of ``a`` - ``less`` (or of ``a``); infinite unless all are finite."""
        cdef double most = 0.0
        cdef long i
        if all_finite(a, self.n):
            for i in range(self.n):
                most = fmax(most, fabs(a[i] - (less[i] if less != NULL else 0.0)) / self.weight(i))
        else:
            most = INFINITY
        return self.over_ranks(most)

    cdef double move(self, const double *direction, const double *f, double *out) except? -1.0:
        """Put u beside itself along a direction, relative to scales; return how far, weighted.

        No unknown changes its sign, and those that are zero move as they will: domains end at zero.
        """
        cdef double most = 0.0, change, limit
        cdef long i
        for i in range(self.n):
            change = NEARBY * self.scale(i) * direction[i]
            if self.u[i] == 0.0:
                change = -fabs(change) if f[i] < 0.0 else fabs(change)
            else:
                limit = PART * fabs(self.u[i])
                change = fmin(fmax(change, -limit), limit)
            out[i] = self.u[i] + change
            most = fmax(most, fabs(change) / self.weight(i))
        return self.over_ranks(most)


def starting_step(
    object rate,
    double t,
    object u,
    object p,
    double least,
    double longest,
    int order,
    double rtol,
    double atol,
    long first_number=0,
    object agree=None,
):
    """Return the size of a first step of u' = f that sees the state, and modes beside it.

    Parameters
    ----------
    rate : (int, int) or callable
                            addresses of f and its user data, or ``rate(t, u, out)``, which fills
                            out [n]
    t : float               the start
    u : ndarray [n]         the rank's part of the state
    p : ndarray [m]         parameters, of a function in C
    least, longest : float  the result where rates tell nothing, or modes ask for shorter steps; and
                            the largest one
    order : int             of the method
    rtol, atol : float      the tolerances
    first_number : int      number of the first unknown of the rank
    agree : callable or None
                            ``agree(x)`` returns the largest x of all ranks

    Source
    ------
    Hairer, Norsett, Wanner, Solving Ordinary Differential Equations I, section II.4.
    """
    cdef Rates rates = Rates()
    cdef np.ndarray state = np.PyArray_ContiguousFromAny(u, np.NPY_DOUBLE, 1, 1), numbers
    cdef long i, n = np.PyArray_SIZE(state)
    cdef np.ndarray first_room = np.empty(n), room = np.empty(n), moved = np.empty(n)
    cdef double *f = <double *>np.PyArray_DATA(first_room)
    cdef double *g = <double *>np.PyArray_DATA(room)
    cdef double *v = <double *>np.PyArray_DATA(moved)
    cdef double size, first, step, change, bend, h, leaving, most, way
    cdef uintptr_t address, data
    rates.n, rates.rtol, rates.atol, rates.agree = n, rtol, atol, agree
    rates.u = <double *>np.PyArray_DATA(state)
    if isinstance(rate, tuple):
        address, data = rate
        rates.function, rates.data = <Function>address, <void *>data
        numbers = np.PyArray_ContiguousFromAny(p, np.NPY_DOUBLE, 1, 1)
        rates.kept, rates.p = numbers, <double *>np.PyArray_DATA(numbers)
    else:
        rates.call = rate
    rates.fill(t, <double *>rates.u, f, state, first_room)
    size, first = rates.largest(rates.u, NULL), rates.largest(f, NULL)
    if not 0.0 < first < INFINITY:
        return least  # at rest, or outside of the domain: for the run to say
    # d0/d1 of the source: a step of Euler's method that changes the state by a hundredth of itself
    step = fmin(longest, PART * size / first) if size > 0.0 else least
    for i in range(n):
        v[i] = rates.u[i] + step * f[i]
    rates.fill(t + step, v, g, moved, room)
    # the larger of |f| and |f'|, both weighted: d1 and d2 of the source
    bend = fmax(first, rates.largest(g, f) / step)
    if not bend < INFINITY:
        return fmin(least, PART * step)
    # h^(q+1) max(d1, d2) = 0.01, and not more than a hundred times the first guess
    h = fmin(longest, fmin(100.0 * step, (PART / bend) ** (1.0 / (order + 1))))
    # An unknown that leaves zero may leave a kink (|v| v, powers): derivatives of the first stage are
    # those of this one point, and what it weighs is kept small.
    leaving = 0.0
    for i in range(n):
        if rates.u[i] == 0.0 and f[i] != 0.0:
            leaving = 1.0
            break
    if rates.over_ranks(leaving) > 0.0 and h > least:
        h = fmax(least, PART_OF_LEAVING * h)
    if h <= least:
        return h
    # Derivatives pass through modes that the state may not excite.  A power iteration by differences
    # of f, of two products with f_u, estimates the fastest one.
    most = 0.0
    for i in range(n):
        most = fmax(most, fabs(rates.u[i]))
        g[i] = 0.2 + 0.8 * fabs(cos(1.0 + first_number + i))
        if rates.u[i] < 0.0:
            g[i] = -g[i]
    rates.biggest = rates.over_ranks(most)
    rates.move(g, f, v)
    rates.fill(t, v, g, moved, room)
    most = 0.0 if all_finite(g, n) else INFINITY
    for i in range(n):
        g[i] = (g[i] - f[i]) / rates.scale(i)
        most = fmax(most, fabs(g[i]))
    most = rates.over_ranks(most)
    if not 0.0 < most < INFINITY:
        return h if most == 0.0 else least
    for i in range(n):
        g[i] /= most
    way = rates.move(g, f, v)
    rates.fill(t, v, g, moved, room)
    change = rates.largest(g, f)
    return h if change == 0.0 else fmin(h, fmax(least, RESOLVED * way / change))
