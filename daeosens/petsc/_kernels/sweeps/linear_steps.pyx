# cython: language_level=3
"""Steps linearised once for many products, in C (dense_derivatives.c); types in linear_steps.pyi."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

import numpy as np

from daeosens.petsc._kernels.sweeps.breakpoints cimport enter_step
from daeosens.petsc._kernels.ts_types.dense cimport (
    DenseBend, DenseLinear, DenseLinearise, DensePush, DenseSteps, DenseSystem, DenseWork,
    DenseWorkCreate, DenseWorkDestroy, PetscBLASInt
)
from daeosens.petsc._kernels.filling cimport (
    PetscInt, PetscScalar, VecGetArrayWrite, VecGetLocalSize, VecRestoreArrayWrite, all_finite
)
from petsc4py.PETSc cimport CHKERR, PETSC_SUCCESS, PetscErrorCode, PetscVec, Vec


cdef extern from "petscvec.h" nogil:
    PetscErrorCode VecDuplicate(PetscVec, PetscVec *)


cdef extern from "running_costs.h" nogil:
    void add_gradient(
        const uintptr_t *, double, double, const double *, const double *, double *, long, double *)


ctypedef void (*Curvature)(
    double, const double *, const double *, const double *, const double *, double *, double *,
    void *) noexcept nogil


cdef enum:
    SIGNALS = 1024  # so many steps between two looks whether the user wants to interrupt


cdef Vec filled(Vec like, const double *values):
    """Return a new vector with these values."""
    cdef Vec vec = Vec()
    cdef PetscScalar *entries = NULL
    cdef PetscInt count = 0
    CHKERR(VecDuplicate(like.vec, &vec.vec))
    CHKERR(VecGetLocalSize(vec.vec, &count))
    CHKERR(VecGetArrayWrite(vec.vec, &entries))
    if count:  # a vector of nothing has no array
        memcpy(entries, values, <size_t>count * sizeof(double))
    CHKERR(VecRestoreArrayWrite(vec.vec, &entries))
    return vec


cdef class LinearSteps:
    """The steps of a run with their stages and factors.

    Parameters
    ----------
    steps : DenseSteps      the method, and the functions: "push", "pull" and "hessian_product" too
    p : ndarray [m]         parameters of the run
    times, sizes : ndarray [N+1], ndarray [N]
    states : ndarray [N+1, n]
    kept : ndarray [K, s-1, n]
                            stages of the first K steps, without their first one
    keep : bool             stages and factors of all steps are kept, once found; otherwise those of
                            the last step that was looked at
    """

    cdef DenseSystem system     # a copy, with the parameters of this run
    cdef DenseWork work
    cdef DenseLinear linear
    cdef const double[::1] p, times, sizes
    cdef const double[:, ::1] states
    cdef const double[:, :, ::1] kept
    cdef object steps
    cdef double *at             # [count, s, n]
    cdef double *factors        # [count, s, n, n], where stages are implicit
    cdef double *room           # [(s + 3) n]
    cdef PetscBLASInt *pivots
    cdef unsigned char *known
    cdef bint keep
    cdef long current

    def __cinit__(
        self, DenseSteps steps, const double[::1] p, times, sizes, states, kept, bint keep
    ):
        cdef size_t count = len(sizes) if keep else 1
        cdef size_t n = steps.system.n, s = steps.system.s
        cdef size_t entries = s * n * n if steps.system.jacobian != NULL else 0
        self.system, self.steps = steps.system, steps
        self.p, self.times, self.sizes = p, times, sizes
        if self.system.m:
            self.system.p = &self.p[0]
        self.states, self.kept, self.keep, self.current = states, kept, keep, -1
        self.at = <double *>malloc((count * (s * n + entries) + (s + 3) * n) * sizeof(double))
        self.pivots = <PetscBLASInt *>malloc((count * s * n + 1) * sizeof(PetscBLASInt))
        self.known = <unsigned char *>calloc(count + 1, 1)
        if self.at == NULL or self.pivots == NULL or self.known == NULL:
            raise MemoryError
        self.factors = self.at + count * s * n
        self.room = self.factors + count * entries
        CHKERR(DenseWorkCreate(&self.system, 1, &self.work))

    def __dealloc__(self):
        DenseWorkDestroy(&self.work)
        free(self.at)
        free(self.pivots)
        free(self.known)

    @property
    def n_stages(self):
        """Number of stages of a step."""
        return self.system.s

    cdef bint linearise(self, long k) except -1:
        """Find stages and factors of a step; return whether that went well."""
        cdef DenseSystem *system = &self.system
        cdef long n = system.n, s = system.s, place = k if self.keep else 0
        cdef bint known = k < self.kept.shape[0]
        cdef PetscErrorCode code
        self.linear.states = self.at + place * s * n
        self.linear.factors = self.factors + place * s * n * n
        self.linear.pivots = self.pivots + place * s * n
        if self.known[place] and (self.keep or self.current == k):
            return True
        memcpy(self.linear.states, &self.states[k, 0], <size_t>n * sizeof(double))
        if known:
            memcpy(
                self.linear.states + n, &self.kept[k, 0, 0],
                <size_t>((s - 1) * n) * sizeof(double))
        code = DenseLinearise(
            self.work, self.times[k], self.sizes[k], known, &self.linear)
        if system.fault:
            return False
        CHKERR(code)
        self.known[place], self.current = True, k
        return True

    def push(self, long last, const double[:, ::1] dp, double[:, :, ::1] along, long first=0):
        """Carry tangents forward from the state number ``first`` to number ``last``.

        Parameters
        ----------
        last : int
        dp : ndarray [D, m]
        along : ndarray [last+1, D, n]
                                of the states; given for the first one, filled for later ones
        first : int

        Returns
        -------
        int                     the number of the last state that was reached: ``last``, unless a
                                step could not be linearised or led to what is not finite
        """
        cdef double[:, :, ::1] moved = np.empty((len(dp), self.system.s, self.system.n))
        return self.push_all(
            first, last, along.shape[1], &dp[0, 0] if dp.shape[1] else NULL, &along[0, 0, 0],
            &moved[0, 0, 0], 0)

    cdef long push_all(
        self, long first, long last, long count, const double *dp, double *along, double *moved,
        long stride
    ) except -1:
        """Fill the tangents [last+1, count, n] of the states, and of the stages of each step.

        Returns the number of the last state that was reached.
        """
        cdef long size = count * self.system.n, k
        self.system.fault = 0  # that of a step before, which was taken otherwise
        for k in range(first, last):
            if not self.linearise(k):
                return k
            self.push_step(k, count, dp, along + k * size, moved + k * stride)
            # what is not finite stays so: the steps after it would be for nothing
            if not all_finite(along + (k + 1) * size, size):
                return k
            if k % SIGNALS == 0:
                PyErr_CheckSignals()
        return last

    cdef void push_step(self, long k, long count, const double *dp, double *along, double *moved):
        enter_step(&self.system.breakpoints, self.times[k], self.sizes[k])
        # the tangent after the step is overwritten with itself where it is known
        DensePush(
            &self.system, self.times[k], self.sizes[k], &self.linear, count, dp, along,
            along + count * self.system.n, moved, self.room)


cdef class SecondSweep:
    """One adjoint and its derivatives along D directions, from the end of a run backwards.

    Parameters
    ----------
    steps : LinearSteps
    du, dp : ndarray [D, n], ndarray [D, m]
                            the directions
    weights : ndarray [N, s, n] or [1, s, n]
                            adjoints of the stages of each step, or of the last one
    known : bool            they are there: the adjoint is not carried
    keep : bool             tangents of the stages of all steps are kept

    Attributes
    ----------
    along : ndarray [N+1, D, n]
                            tangents of the states
    by_u, by_p : ndarray [1+D, n], ndarray [1+D, m]
                            the adjoint, and its derivatives
    """

    cdef LinearSteps steps
    cdef readonly object along, by_u, by_p
    cdef const double[:, ::1] dp
    cdef double[:, :, ::1] tangents, weights
    cdef double[:, ::1] lam, mu
    cdef double *moved          # [N, D, s, n] or [D, s, n]
    cdef double *room
    cdef long last, count, stride
    cdef bint known

    def __cinit__(
        self,
        LinearSteps steps,
        du,
        const double[:, ::1] dp,
        double[:, :, ::1] weights,
        bint known,
        bint keep,
    ):
        cdef long n = steps.system.n, s = steps.system.s, m = steps.system.m
        cdef long count = len(du), size = count * s * n
        self.steps, self.dp, self.weights, self.known = steps, dp, weights, known
        self.last, self.count, self.stride = steps.sizes.shape[0], count, size if keep else 0
        self.along = np.empty((self.last + 1, count, n))
        self.along[0] = du
        self.by_u, self.by_p = np.zeros((1 + count, n)), np.zeros((1 + count, m))
        self.tangents, self.lam, self.mu = self.along, self.by_u, self.by_p
        self.moved = <double *>malloc(
            <size_t>((self.last if keep else 1) * size) * sizeof(double))
        self.room = <double *>malloc(<size_t>(((1 + count) * s + 3) * n + m) * sizeof(double))
        if self.moved == NULL or self.room == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.moved)
        free(self.room)

    cdef const double *direction(self):
        return &self.dp[0, 0] if self.dp.shape[1] else NULL

    def push(self):
        """Carry the tangents forward; return whether they have reached the last state."""
        return self.last == self.steps.push_all(
            0, self.last, self.count, self.direction(), &self.tangents[0, 0, 0], self.moved,
            self.stride)

    def bend(self, long first):
        """Carry what there is back to the state number ``first``; return whether steps are found."""
        cdef LinearSteps steps = self.steps
        cdef long m = steps.system.m, k
        cdef double *moved
        for k in range(self.last - 1, first - 1, -1):
            if not steps.linearise(k):
                return False
            moved = self.moved + k * self.stride
            if not self.stride:
                steps.push_step(k, self.count, self.direction(), &self.tangents[k, 0, 0], moved)
            enter_step(&steps.system.breakpoints, steps.times[k], steps.sizes[k])
            DenseBend(
                &steps.system, steps.times[k], steps.sizes[k], &steps.linear, self.count,
                self.direction(), moved, &self.weights[k if self.weights.shape[0] > 1 else 0, 0, 0],
                self.known, &self.lam[0, 0], &self.mu[0, 0] if m else NULL, &self.lam[1, 0],
                &self.mu[1, 0] if m else NULL, self.room)
            if k % SIGNALS == 0:
                PyErr_CheckSignals()
        self.last = first
        return True

    def add(self, double weight, tuple functions):
        """Add a cost of the state that ``bend`` came to, and its second derivatives.

        Parameters
        ----------
        weight : float
        functions : tuple of 3 (int, int)
                                addresses and user data of the gradients in u and p and of the
                                products with the Hessian; 0: it is zero
        """
        cdef LinearSteps steps = self.steps
        cdef const double *u = &steps.states[self.last, 0]
        cdef const double *p = steps.system.p
        cdef long n = steps.system.n, m = steps.system.m, d, k
        cdef double t = steps.times[self.last]
        cdef double *by_u = self.room
        cdef double *by_p = self.room + n
        cdef uintptr_t[6] f
        (f[0], f[1]), (f[2], f[3]), (f[4], f[5]) = functions
        if not self.known:
            add_gradient(f, weight, t, u, p, by_u, n, &self.lam[0, 0])
            if m:
                add_gradient(f + 2, weight, t, u, p, by_p, m, &self.mu[0, 0])
        for d in range(self.count):
            (<Curvature>f[4])(
                t, u, p, &self.tangents[self.last, d, 0], self.direction() + d * m, by_u, by_p,
                <void *>f[5])
            for k in range(n):
                self.lam[1 + d, k] += weight * by_u[k]
            for k in range(m):
                self.mu[1 + d, k] += weight * by_p[k]

    def vectors(self, long k, Vec u, Vec p):
        """Return a row of ``by_u`` and of ``by_p`` as new vectors, made like ``u`` and ``p``."""
        cdef bint some = self.mu.shape[1] > 0
        return filled(u, &self.lam[k, 0]), filled(p, &self.mu[k, 0] if some else &self.lam[k, 0])

    @property
    def finite(self):
        """Whether all values are."""
        cdef long rows = 1 + self.count, n = self.steps.system.n, m = self.steps.system.m
        return all_finite(&self.lam[0, 0], rows * n) and (
            not m or all_finite(&self.mu[0, 0], rows * m))
