# cython: language_level=3
"""Transposed Runge-Kutta steps of many rows at once; signatures and types in blocks.pyi."""

import numpy as np

from libc.stdint cimport intptr_t
from libc.string cimport memcpy
from scipy.linalg.cython_blas cimport daxpy

from daeosens.petsc._kernels.sweeps.pulls cimport FactorPulls, Pulls

cdef long LINE = 8
"""Numbers in a line of the cache."""


cdef extern from "runs.h" nogil:
    void combine(
        const double *vectors, long size, long count, const double *factors, double *out
    ) noexcept


cdef extern from "crew.h" nogil:
    ctypedef void (*Work)(void *, long) noexcept
    void summon(long threads) noexcept
    long together(Work work, void *context, long workers) noexcept
    long next_piece(long *next, long several) noexcept


cdef long in_lines(long n) noexcept:
    """Return how far apart rows are that all begin where lines of the cache do, as is fastest."""
    return (n + LINE - 1) // LINE * LINE


cdef double *at_line(double[::1] memory) noexcept:
    """Return where the first line of the cache begins."""
    return &memory[-(<intptr_t>&memory[0] // <intptr_t>sizeof(double)) % LINE]


cdef void copy_rows(
    long rows, long n, const double *source, long apart, double *out, long leading
) noexcept nogil:
    cdef long r
    for r in range(rows):
        memcpy(out + r * leading, source + r * apart, n * sizeof(double))


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
