# cython: language_level=3
"""Transposed Runge-Kutta steps of C functions; signatures and types in sweeps.pyi."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from daeosens._petsc.filling cimport (
    PetscScalar, VecGetArrayRead, VecRestoreArrayRead, all_finite
)
from petsc4py.PETSc cimport CHKERR, PetscErrorCode, PetscVec, Vec


cdef extern from "petscvec.h" nogil:
    PetscErrorCode VecGetArray(PetscVec, PetscScalar **)
    PetscErrorCode VecRestoreArray(PetscVec, PetscScalar **)


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
    const double *p
    long n, m, s, rows
    const double *a             # [s, s]
    const double *b
    const double *c
    double *memory              # of all that follows
    double *stages              # [s, n]
    double *rates               # [s, n]
    double *parts               # [rows, s, n]: f_u^T w_j
    double *w                   # [n]
    double *matrix              # [n, n], or [m] for f_p^T w
    double *matrix_p            # [n, m]
    double **lam                # [rows]
    double **mu


cdef int prepare(Sweep *sweep) except -1:
    cdef long n = sweep.n, m = sweep.m, s = sweep.s, rows = sweep.rows
    cdef long matrices = m if sweep.pull != NULL else n * (n + m)
    sweep.memory = <double *>malloc(<size_t>((2 + rows) * s * n + n + matrices + 1) * sizeof(double))
    sweep.lam = <double **>malloc(<size_t>(2 * rows) * sizeof(double *))
    if sweep.memory == NULL or sweep.lam == NULL:
        raise MemoryError
    sweep.mu = sweep.lam + rows
    sweep.stages = sweep.memory
    sweep.rates = sweep.stages + s * n
    sweep.parts = sweep.rates + s * n
    sweep.w = sweep.parts + rows * s * n
    sweep.matrix = sweep.w + n
    sweep.matrix_p = sweep.matrix + n * n
    return 0


cdef bint transpose_step(Sweep *sweep, double t, double h, long known) noexcept:
    """Carry all rows back over one step, of which so many stages are there; False: not finite."""
    cdef long n = sweep.n, m = sweep.m, s = sweep.s, i, k
    cdef double *stage
    cdef double *parts
    for i in range(known, s):
        k = i - 1
        sweep.rhs(t + sweep.c[k] * h, sweep.stages + k * n, sweep.p, sweep.rates + k * n,
                  sweep.rhs_data)
        memcpy(sweep.stages + i * n, sweep.stages, <size_t>n * sizeof(double))
        for k in range(i):
            add(sweep.stages + i * n, h * sweep.a[i * s + k], sweep.rates + k * n, n)
    for i in range(s - 1, -1, -1):
        stage = sweep.stages + i * n
        if sweep.pull == NULL:
            sweep.jacobian(t + sweep.c[i] * h, stage, sweep.p, sweep.matrix, sweep.data)
            if m:
                sweep.jacobian_p(t + sweep.c[i] * h, stage, sweep.p, sweep.matrix_p, sweep.data_p)
        for k in range(sweep.rows):
            parts = sweep.parts + k * s * n
            # w_i = h (b_i lam + sum_{j>i} a_ji l_j), l_i = f_u^T w_i
            weigh(sweep, i, h, sweep.lam[k], parts)
            memset(parts + i * n, 0, <size_t>n * sizeof(double))
            if sweep.pull == NULL:
                add_product(parts + i * n, sweep.w, sweep.matrix, n, n)
                add_product(sweep.mu[k], sweep.w, sweep.matrix_p, n, m)
            else:
                sweep.pull(t + sweep.c[i] * h, stage, sweep.p, sweep.w, parts + i * n, sweep.matrix,
                           sweep.data)
                add(sweep.mu[k], 1.0, sweep.matrix, m)
    for k in range(sweep.rows):
        for i in range(s):
            add(sweep.lam[k], 1.0, sweep.parts + (k * s + i) * n, n)
        if not (all_finite(sweep.lam[k], n) and all_finite(sweep.mu[k], m)):
            return False
    return True


cdef void weigh(Sweep *sweep, long i, double h, const double *lam, const double *parts) noexcept:
    cdef long n = sweep.n, s = sweep.s, j
    memset(sweep.w, 0, <size_t>n * sizeof(double))
    add(sweep.w, h * sweep.b[i], lam, n)
    for j in range(i + 1, s):
        add(sweep.w, h * sweep.a[j * s + i], parts + j * n, n)


cdef long read_stages(Sweep *sweep, Vec start, dict stages, double h) except -1:
    """Take the state before a step, or its stages if they were kept; return how many there are."""
    cdef const PetscScalar *values = NULL
    cdef long i = 0
    cdef Vec vec
    kept = stages.get((start.handle, h)) if stages else None
    for vec in (start,) if kept is None else kept[: sweep.s]:
        CHKERR(VecGetArrayRead(vec.vec, &values))
        memcpy(sweep.stages + i * sweep.n, values, <size_t>sweep.n * sizeof(double))
        CHKERR(VecRestoreArrayRead(vec.vec, &values))
        i += 1
    return i


def carry_back(
    tuple functions,
    bint products,
    tuple tableau,
    const double[::1] p,
    const double[::1] times,
    const double[::1] sizes,
    states,
    dict stages,
    long first,
    long last,
    list lam,
    list mu,
):
    """Carry adjoints back over steps of an explicit Runge-Kutta method without Python.

    Parameters
    ----------
    functions : tuple of (int, int)
                            addresses of C functions and of their user data: f; then f_u and f_p,
                            or their products (t, u, p, w, f_u^T w, f_p^T w, data)
    products : bool         which of both
    tableau : (a, b, c)     ndarrays [s, s], [s], [s]
    p : ndarray [m]
    times, sizes : ndarray [N+1], ndarray [N]
    states : sequence of Vec [n]
    stages : dict           those of a step by (handle of the state before, size), if they were kept
    first, last : int       numbers of the states between which the steps lie
    lam, mu : list of Vec [n], list of Vec [m]
                            adjoints after the last step, overwritten with those before the first
                            one; those of the parameters, added to

    Returns
    -------
    bool                    all values are finite
    """
    cdef Sweep sweep
    cdef const double[:, ::1] a = tableau[0]
    cdef const double[::1] b = tableau[1], c = tableau[2]
    cdef uintptr_t address, data
    cdef long k, got = 0
    cdef bint finite = True
    if first == last:
        return True
    memset(&sweep, 0, sizeof(Sweep))
    address, data = functions[0]
    sweep.rhs, sweep.rhs_data = <Function>address, <void *>data
    address, data = functions[1]
    sweep.data = <void *>data
    if products:
        sweep.pull = <Pull>address
    else:
        sweep.jacobian = <Function>address
        if p.shape[0]:
            address, data = functions[2]
        sweep.jacobian_p, sweep.data_p = <Function>address, <void *>data
    sweep.a, sweep.b, sweep.c = &a[0, 0], &b[0], &c[0]
    sweep.s, sweep.rows, sweep.m = b.shape[0], len(lam), p.shape[0]
    if sweep.m:
        sweep.p = &p[0]
    sweep.n = (<Vec>lam[0]).getLocalSize()
    try:
        prepare(&sweep)
        for got in range(sweep.rows):
            CHKERR(VecGetArray((<Vec>lam[got]).vec, &sweep.lam[got]))
            CHKERR(VecGetArray((<Vec>mu[got]).vec, &sweep.mu[got]))
        got = sweep.rows
        for k in range(last - 1, first - 1, -1):
            finite = transpose_step(
                &sweep, times[k], sizes[k], read_stages(&sweep, states[k], stages, sizes[k])
            )
            if not finite:
                break
            if k % SIGNALS == 0:
                PyErr_CheckSignals()
    finally:
        for k in range(got):
            CHKERR(VecRestoreArray((<Vec>lam[k]).vec, &sweep.lam[k]))
            CHKERR(VecRestoreArray((<Vec>mu[k]).vec, &sweep.mu[k]))
        free(sweep.memory)
        free(sweep.lam)
    return finite
