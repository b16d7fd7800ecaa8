# cython: language_level=3, cdivision=True
"""Stages of steps of delay equations; types in delayed.pyi."""

cimport numpy as np
from libc.math cimport isfinite
from libc.stdint cimport int64_t, uintptr_t

from contiguous cimport doubles

np.import_array()

ctypedef void (*RHS)(double t, const double *y, const double *p, double *out, void *user_data) noexcept


def look_back(
    tuple steps,
    Py_ssize_t n,
    double t,
    double h,
    np.ndarray c,
    np.ndarray tau,
    tuple margins,
    np.ndarray z,
    np.ndarray looked,
):
    """Fill the delayed states of a step with the continuous extensions of the steps before it.

    Parameters
    ----------
    steps : (array [N+1], [N], [N+1, n], [N, S, n], [S, q+1])
        Times, sizes, states, rates at stages, and the coefficients of the weights b_i(s).
    n : int
        Number of the step.
    t, h : float
        Where it begins, and its size.
    c : array [C]
        Its parts at which delayed states are asked for.
    tau : array [d]
        Delays.
    margins : (float, float, float)
        The time up to which the history holds; how far a delayed time is moved back in a step of
        size 0, and towards the middle, as a part, in others: on which side of a step's end it is.
    z : array [C, d, n]
        Filled, but for what is in the history.
    looked : array [C, d] of int
        Filled with the step that a delayed time is in, -1 for the history.

    Returns
    -------
    int                     how many are in the history
    """
    cdef const double *ends = doubles(steps[0])
    cdef const double *sizes = doubles(steps[1])
    cdef const double *u = doubles(steps[2])
    cdef const double *rates = doubles(steps[3])
    cdef const double *weights = doubles(steps[4])
    cdef const double *parts = doubles(c)
    cdef const double *lags = doubles(tau)
    cdef double *out = doubles(z)
    cdef int64_t *number = <int64_t *>np.PyArray_DATA(looked)
    cdef Py_ssize_t size = z.shape[2], stages = (<np.ndarray>steps[3]).shape[1]
    cdef Py_ssize_t degree = (<np.ndarray>steps[4]).shape[1] - 1
    cdef Py_ssize_t i, j, k, m, low, high, past = 0
    cdef double first = margins[0], back = margins[1], inwards = margins[2]
    cdef double at, middle, side, s, weight
    cdef const double *rate
    for i in range(c.shape[0]):
        for j in range(tau.shape[0]):
            at = t + h * parts[i] - lags[j]
            middle = t + 0.5 * h - lags[j]
            # a step ends where a piece does: which side of it is meant shows in the middle
            side = at + inwards * (middle - at) if h else at - back
            if n == 0 or side <= first + (0.0 if h else back):
                number[0] = -1
                past += 1
            else:
                low, high = 0, n  # ends[low] <= side < ends[high], or the last step
                while high - low > 1:
                    m = (low + high) // 2
                    if ends[m] <= side:
                        low = m
                    else:
                        high = m
                number[0] = low
                # dense output: u_k + h_k sum_j b_j(s) f_j, s the share of step k that has passed
                s = (at - ends[low]) / sizes[low]
                for m in range(size):
                    out[m] = u[low * size + m]
                rate = rates + low * stages * size
                for k in range(stages):
                    weight = 0.0
                    for m in range(degree, -1, -1):
                        weight = weight * s + weights[k * (degree + 1) + m]
                    weight *= sizes[low]
                    for m in range(size):
                        out[m] += weight * rate[k * size + m]
            number += 1
            out += size
    return past


def take_stages(
    uintptr_t address,
    uintptr_t user_data,
    np.ndarray times,
    double h,
    np.ndarray a,
    np.ndarray u,
    np.ndarray z,
    np.ndarray p,
    np.ndarray k,
    np.ndarray work,
    bint known,
):
    """Evaluate a C function of y = (t, u, z) at the stages of an explicit Runge-Kutta step.

    Parameters
    ----------
    address, user_data : int
        ``void f(double t, const double *y, const double *p, double *out, void *user_data)``, which
        fills (0, f, 0).
    times : array [S]
        Of the stages.
    h : float
        Size of the step.
    a : array [S, S]
        Of the tableau.
    u : array [n]
        State before the step.
    z : array [S, d, n]
        Delayed states.
    p : array [m]
        Parameters.
    k : array [S, n]
        Filled with the rates.
    work : array [2, 1+n+dn]
        Overwritten.
    known : bool
        The first rate is there already.

    Returns
    -------
    bool                    all rates are finite
    """
    cdef RHS rhs = <RHS>address
    cdef const double *coefficients = doubles(a)
    cdef const double *before = doubles(u)
    cdef const double *late = doubles(z)
    cdef const double *at = doubles(times)
    cdef const double *parameters = doubles(p)
    cdef double *rates = doubles(k)
    cdef double *y = doubles(work)
    cdef Py_ssize_t size = u.shape[0], stages = k.shape[0], others = work.shape[1] - 1 - size
    cdef double *out = y + work.shape[1]
    cdef Py_ssize_t i, j, m
    cdef double total
    cdef bint finite = True
    for i in range(1 if known else 0, stages):
        y[0] = at[i]
        for m in range(size):
            total = 0.0
            for j in range(i):
                total += coefficients[i * stages + j] * rates[j * size + m]
            y[1 + m] = before[m] + h * total
        for m in range(others):
            y[1 + size + m] = late[i * others + m]
        rhs(0.0, y, parameters, out, <void *>user_data)
        for m in range(size):
            rates[i * size + m] = out[1 + m]
            finite = finite and isfinite(out[1 + m])
    return finite
