# cython: language_level=3
"""Transposed steps of C functions; signatures and types in sweeps.pyi."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

cimport numpy as np
import numpy as np

from daeosens.petsc._kernels.sweeps.breakpoints cimport Breakpoints, breakpoints_of, enter_step, seen_time
from daeosens.petsc._kernels.contiguous cimport doubles
from daeosens.petsc._kernels.filling cimport PetscScalar, all_finite
from daeosens.petsc._kernels.sweeps.running_costs cimport (
    RunningCosts, add_gradient, add_running_costs, running_costs
)
from petsc4py.PETSc cimport CHKERR, PetscErrorCode, PetscVec, Vec
from scipy.linalg.cython_lapack cimport dgetrf, dgetrs


cdef extern from "petscvec.h" nogil:
    PetscErrorCode VecGetArray(PetscVec, PetscScalar **)
    PetscErrorCode VecRestoreArray(PetscVec, PetscScalar **)


np.import_array()


cdef extern from *:
    """
    /* out [columns] += w^T matrix [n, columns] */
    static inline void add_product(
        double *restrict out, const double *restrict w, const double *restrict matrix,
        long n, long columns)
    {
        for (long i = 0; i < n; i++, matrix += columns)
            for (long j = 0; j < columns; j++) out[j] += w[i] * matrix[j];
    }
    static inline void add(double *restrict out, double factor, const double *restrict row, long n)
    {
        if (factor != 0.0) for (long i = 0; i < n; i++) out[i] += factor * row[i];
    }
    """
    void add_product(
        double *out, const double *w, const double *matrix, long n, long columns) noexcept nogil
    void add(double *out, double factor, const double *row, long n) noexcept nogil


ctypedef void (*Function)(double, const double *, const double *, double *, void *)
ctypedef double (*Value)(double, const double *, const double *, void *)
ctypedef void (*Pull)(
    double, const double *, const double *, const double *, double *, double *, void *)

cdef enum:
    SIGNALS = 1024  # so many steps between two looks whether the user wants to interrupt


cdef struct Sweep:
    Function rhs, jacobian, jacobian_p
    Pull pull                   # NULL: by both matrices
    void *rhs_data
    void *data
    void *data_p
    void *pull_data
    const double *p
    const double *states        # [N+1, n]
    const double *kept          # [n_kept, stride]: stages without the first one
    long n, m, s, rows, n_kept, stride
    const double *a             # [s, s]; NULL: a theta method
    const double *b
    const double *c
    double theta, rest          # rest: weight of the start over that of the end
    bint endpoint
    const double *mass          # [n, n]; NULL: the identity
    RunningCosts costs
    Breakpoints breakpoints
    double *memory              # of all that follows
    double *stages              # [s, n]
    double *rates               # [s, n]
    double *parts               # [rows, s, n]: f_u^T w_j
    double *w                   # [n]
    double *matrix              # [n, n]
    double *matrix_p            # [n, m], or [m] for f_p^T w
    double *factors             # [n, n]
    int *pivots                 # [n]
    double **lam                # [rows]
    double **mu


cdef int prepare(Sweep *sweep) except -1:
    cdef long n = sweep.n, m = sweep.m, s = sweep.s, rows = sweep.rows
    cdef long count = (2 + rows) * s * n + n + 2 * n * n + (n + 1) * m
    sweep.memory = <double *>malloc(<size_t>count * sizeof(double))
    sweep.lam = <double **>malloc(<size_t>(2 * rows) * sizeof(double *))
    sweep.pivots = <int *>malloc(<size_t>n * sizeof(int))
    if sweep.memory == NULL or sweep.lam == NULL or sweep.pivots == NULL:
        raise MemoryError
    sweep.mu = sweep.lam + rows
    sweep.stages = sweep.memory
    sweep.rates = sweep.stages + s * n
    sweep.parts = sweep.rates + s * n
    sweep.w = sweep.parts + rows * s * n
    sweep.matrix = sweep.w + n
    sweep.factors = sweep.matrix + n * n
    sweep.matrix_p = sweep.factors + n * n
    return 0


cdef bint transpose_step(Sweep *sweep, double t, double h, long known) noexcept:
    """Carry all rows back over one step, of which so many stages are there; False: not finite."""
    cdef long n = sweep.n, m = sweep.m, s = sweep.s, i, k
    cdef double time
    cdef double *stage
    cdef double *parts
    enter_step(&sweep.breakpoints, t, h)
    for i in range(known, s):
        k = i - 1
        time = seen_time(&sweep.breakpoints, t + sweep.c[k] * h)
        sweep.rhs(time, sweep.stages + k * n, sweep.p, sweep.rates + k * n,
                  sweep.rhs_data)
        memcpy(sweep.stages + i * n, sweep.stages, <size_t>n * sizeof(double))
        for k in range(i):
            add(sweep.stages + i * n, h * sweep.a[i * s + k], sweep.rates + k * n, n)
    for i in range(s - 1, -1, -1):
        stage = sweep.stages + i * n
        time = seen_time(&sweep.breakpoints, t + sweep.c[i] * h)
        linearise(sweep, time, stage)
        for k in range(sweep.rows):
            parts = sweep.parts + k * s * n
            # w_i = h (b_i lam + sum_{j>i} a_ji l_j), l_i = f_u^T w_i
            weigh(sweep, i, h, sweep.lam[k], parts)
            memset(parts + i * n, 0, <size_t>n * sizeof(double))
            pull_back(sweep, time, stage, parts + i * n, sweep.mu[k])
            add_running_costs(&sweep.costs, k, h * sweep.b[i], time, stage, sweep.p, n, m,
                              parts + i * n, sweep.mu[k])
    for k in range(sweep.rows):
        for i in range(s):
            add(sweep.lam[k], 1.0, sweep.parts + (k * s + i) * n, n)
    return finite(sweep)


cdef void linearise(Sweep *sweep, double t, const double *u) noexcept:
    """Fill the matrices at a point, where there are no products."""
    if sweep.pull == NULL:
        sweep.jacobian(t, u, sweep.p, sweep.matrix, sweep.data)
        if sweep.m:
            sweep.jacobian_p(t, u, sweep.p, sweep.matrix_p, sweep.data_p)


cdef void pull_back(Sweep *sweep, double t, const double *u, double *by_u, double *mu) noexcept:
    """Fill by_u [n], zeros, with f_u^T w; add f_p^T w to mu [m]."""
    if sweep.pull == NULL:
        add_product(by_u, sweep.w, sweep.matrix, sweep.n, sweep.n)
        add_product(mu, sweep.w, sweep.matrix_p, sweep.n, sweep.m)
    else:
        sweep.pull(t, u, sweep.p, sweep.w, by_u, sweep.matrix_p, sweep.pull_data)
        add(mu, 1.0, sweep.matrix_p, sweep.m)


cdef bint finite(Sweep *sweep) noexcept:
    cdef long k
    for k in range(sweep.rows):
        if not (all_finite(sweep.lam[k], sweep.n) and all_finite(sweep.mu[k], sweep.m)):
            return False
    return True


cdef bint transpose_theta(Sweep *sweep, double t, double h) noexcept:
    """Carry all rows back over one step between the first two stages, which are its ends.

    With s = 1/(theta h) and a density r: endpoint form (s M - f_u(end))^T nu = lam + theta h r_u,
    lam0 = s M^T nu + rest f_u(start)^T nu + (1 - theta) h r_u(start); one-stage form
    (s M - f_u)^T nu = lam/theta + h r_u, lam0 = (1 - 1/theta) lam + s M^T nu.
    """
    cdef long n = sweep.n, m = sweep.m, i, k
    cdef double share = h * (sweep.theta if sweep.endpoint else 1.0)
    cdef int size = <int>n, one = 1, fault = 0
    cdef double shift = 1.0 / (sweep.theta * h), time = t + h
    cdef double *start = sweep.stages
    cdef double *stage = start + n
    cdef double *nu
    if not sweep.endpoint:
        time = t + sweep.theta * h
        for i in range(n):
            stage[i] = start[i] + sweep.theta * (stage[i] - start[i])
    enter_step(&sweep.breakpoints, t, h)
    time = seen_time(&sweep.breakpoints, time)
    t = seen_time(&sweep.breakpoints, t)
    linearise(sweep, time, stage)
    if sweep.pull != NULL:
        sweep.jacobian(time, stage, sweep.p, sweep.matrix, sweep.data)
    for i in range(n * n):
        sweep.factors[i] = -sweep.matrix[i]
        if sweep.mass != NULL:
            sweep.factors[i] += shift * sweep.mass[i]
    if sweep.mass == NULL:
        for i in range(n):
            sweep.factors[i * (n + 1)] += shift
    if not all_finite(sweep.factors, n * n):
        return False
    dgetrf(&size, &size, sweep.factors, &size, sweep.pivots, &fault)  # of the transpose: by rows
    if fault:
        return False
    for k in range(sweep.rows):
        nu = sweep.rates + k * n
        memset(nu, 0, <size_t>n * sizeof(double))
        add(nu, 1.0 if sweep.endpoint else 1.0 / sweep.theta, sweep.lam[k], n)
        add_running_costs(&sweep.costs, k, share, time, stage, sweep.p, n, m, nu, sweep.mu[k])
        dgetrs(b"N", &size, &one, sweep.factors, &size, sweep.pivots, nu, &size, &fault)
        memcpy(sweep.w, nu, <size_t>n * sizeof(double))
        memset(sweep.parts, 0, <size_t>n * sizeof(double))
        pull_back(sweep, time, stage, sweep.parts, sweep.mu[k])
        for i in range(n):
            sweep.lam[k][i] *= 0.0 if sweep.endpoint else 1.0 - 1.0 / sweep.theta
            sweep.w[i] *= shift
        if sweep.mass == NULL:
            add(sweep.lam[k], 1.0, sweep.w, n)
        else:
            add_product(sweep.lam[k], sweep.w, sweep.mass, n, n)
    if sweep.rest:
        linearise(sweep, t, start)
        for k in range(sweep.rows):
            memset(sweep.w, 0, <size_t>n * sizeof(double))
            add(sweep.w, sweep.rest, sweep.rates + k * n, n)
            memset(sweep.parts, 0, <size_t>n * sizeof(double))
            pull_back(sweep, t, start, sweep.parts, sweep.mu[k])
            add(sweep.lam[k], 1.0, sweep.parts, n)
            add_running_costs(&sweep.costs, k, h - share, t, start, sweep.p, n, m, sweep.lam[k],
                              sweep.mu[k])
    return finite(sweep)


cdef void weigh(Sweep *sweep, long i, double h, const double *lam, const double *parts) noexcept:
    cdef long n = sweep.n, s = sweep.s, j
    memset(sweep.w, 0, <size_t>n * sizeof(double))
    add(sweep.w, h * sweep.b[i], lam, n)
    for j in range(i + 1, s):
        add(sweep.w, h * sweep.a[j * s + i], parts + j * n, n)


cdef long read_stages(Sweep *sweep, long k) noexcept:
    """Take the state before step k, and its stages if they were kept; return how many there are."""
    memcpy(sweep.stages, sweep.states + k * sweep.n, <size_t>sweep.n * sizeof(double))
    if k >= sweep.n_kept:
        return 1
    memcpy(sweep.stages + sweep.n, sweep.kept + k * sweep.stride,
           <size_t>((sweep.s - 1) * sweep.n) * sizeof(double))
    return sweep.s


cdef int read_functions(Sweep *sweep, dict functions) except -1:
    cdef uintptr_t address, data
    for name, (address, data) in functions.items():
        if name == "rhs":
            sweep.rhs, sweep.rhs_data = <Function>address, <void *>data
        elif name == "pull":
            sweep.pull, sweep.pull_data = <Pull>address, <void *>data
        elif name == "jacobian":
            sweep.jacobian, sweep.data = <Function>address, <void *>data
        else:
            sweep.jacobian_p, sweep.data_p = <Function>address, <void *>data
    return 0


def carry_back(
    dict functions,
    tuple method,
    np.ndarray breakpoints,
    np.ndarray p,
    np.ndarray times,
    np.ndarray sizes,
    np.ndarray states,
    np.ndarray stages,
    long first,
    long last,
    list lam,
    list mu,
    tuple costs,
):
    """Carry adjoints back over steps of M u' = f(t, u, p) without Python.

    Parameters
    ----------
    functions : dict of str to (int, int)
                            addresses of C functions and of their user data: "rhs", f; "pull", the
                            products (t, u, p, w, f_u^T w, f_p^T w, data), or in its place
                            "jacobian" and "jacobian_p"; theta methods need "jacobian" anyway
    method : tuple          a [s, s], b [s], c [s] of an explicit Runge-Kutta method, or theta,
                            whether in endpoint form, and M [n, n] or None for the identity
    breakpoints : ndarray [K]
                            times at which f may jump
    p : ndarray [m]
    times, sizes : ndarray [N+1], ndarray [N]
    states : ndarray [N+1, n]
    stages : ndarray [K, s', n]
                            those of the first K steps without the first one
    first, last : int       numbers of the states between which the steps lie
    lam, mu : list of Vec [n], list of Vec [m]
                            adjoints after the last step, overwritten with those before the first
                            one; those of the parameters, added to
    costs : tuple or None   the running costs of each row (``compiled_costs.running_costs``)

    Returns
    -------
    bool                    all values are finite, all matrices regular
    """
    cdef Sweep sweep
    cdef const double *t = doubles(times)
    cdef const double *h = doubles(sizes)
    cdef long k, got = 0
    cdef bint sound = True
    if first == last:
        return True
    memset(&sweep, 0, sizeof(Sweep))
    read_functions(&sweep, functions)
    sweep.costs, sweep.breakpoints = running_costs(costs), breakpoints_of(breakpoints)
    if isinstance(method[0], np.ndarray):
        a, b, c = method
        sweep.a, sweep.b, sweep.c, sweep.s = doubles(a), doubles(b), doubles(c), len(b)
    else:
        sweep.theta, sweep.endpoint, mass = method
        sweep.rest = (1.0 - sweep.theta) / sweep.theta if sweep.endpoint else 0.0
        sweep.mass = doubles(mass) if mass is not None else NULL
        sweep.s = max(2, len(lam))
    sweep.rows, sweep.m, sweep.n = len(lam), p.shape[0], states.shape[1]
    sweep.p, sweep.states, sweep.kept = doubles(p), doubles(states), doubles(stages)
    sweep.n_kept, sweep.stride = stages.shape[0], stages.shape[1] * stages.shape[2]
    try:
        prepare(&sweep)
        for got in range(sweep.rows):
            CHKERR(VecGetArray((<Vec>lam[got]).vec, &sweep.lam[got]))
            CHKERR(VecGetArray((<Vec>mu[got]).vec, &sweep.mu[got]))
        got = sweep.rows
        for k in range(last - 1, first - 1, -1):
            if sweep.a != NULL:
                sound = transpose_step(&sweep, t[k], h[k], read_stages(&sweep, k))
            else:
                memcpy(sweep.stages, sweep.states + k * sweep.n,
                       <size_t>(2 * sweep.n) * sizeof(double))
                sound = transpose_theta(&sweep, t[k], h[k])
            if not sound:
                break
            if k % SIGNALS == 0:
                PyErr_CheckSignals()
    finally:
        for k in range(got):
            CHKERR(VecRestoreArray((<Vec>lam[k]).vec, &sweep.lam[k]))
            CHKERR(VecRestoreArray((<Vec>mu[k]).vec, &sweep.mu[k]))
        free(sweep.memory)
        free(sweep.lam)
        free(sweep.pivots)
    return sound


def add_point(
    tuple functions,
    double weight,
    np.ndarray p,
    np.ndarray times,
    np.ndarray states,
    long number,
    Vec lam,
    Vec mu,
):
    """Add the gradients of a cost of one state to adjoints, and return its value.

    Parameters
    ----------
    functions : tuple of 3 (int, int)
                            addresses and user data of the cost and of its gradients in u and p; 0:
                            a gradient is zero
    weight : float
    p : ndarray [m]
    times, states : ndarray [N+1], ndarray [N+1, n]
    number : int            of the state
    lam, mu : Vec [n], Vec [m]
                            added to

    Returns
    -------
    float or None           None if the value or an adjoint is not finite
    """
    cdef long n = states.shape[1], m = p.shape[0]
    cdef const double *u = doubles(states) + number * n
    cdef double t = doubles(times)[number], value
    cdef uintptr_t[6] f
    cdef bint finite
    cdef double *by_u = NULL
    cdef double *by_p = NULL
    cdef double *room = <double *>malloc(<size_t>max(n, m) * sizeof(double))
    if room == NULL:
        raise MemoryError
    (f[0], f[1]), (f[2], f[3]), (f[4], f[5]) = functions
    try:
        CHKERR(VecGetArray(lam.vec, &by_u))
        CHKERR(VecGetArray(mu.vec, &by_p))
        value = weight * (<Value>f[0])(t, u, doubles(p), <void *>f[1])
        add_gradient(f + 2, weight, t, u, doubles(p), room, n, by_u)
        add_gradient(f + 4, weight, t, u, doubles(p), room, m, by_p)
        finite = all_finite(&value, 1) and all_finite(by_u, n) and all_finite(by_p, m)
        CHKERR(VecRestoreArray(mu.vec, &by_p))
        CHKERR(VecRestoreArray(lam.vec, &by_u))
    finally:
        free(room)
    return value if finite else None
