# cython: language_level=3
"""Steps linearised once for many products, in C (dense_second.c); types in linear_steps.pyi."""

from cpython.exc cimport PyErr_CheckSignals
from libc.string cimport memcpy

import numpy as np

from daeosens._petsc.dense cimport (
    DenseLinear, DenseLinearise, DenseSteps, DenseSystem, DenseWork, DenseWorkCreate,
    DenseWorkDestroy, PetscBLASInt
)
from daeosens._petsc.filling cimport all_finite
from petsc4py.PETSc cimport CHKERR, PETSC_SUCCESS, PetscErrorCode


cdef extern from "dense_second.h" nogil:
    void DensePush(
        const DenseSystem *, double, double, const DenseLinear *, long, const double *,
        const double *, double *, double *, double *)
    void DenseBend(
        const DenseSystem *, double, double, const DenseLinear *, long, const double *,
        const double *, double *, bint, double *, double *, double *, double *, double *)


cdef enum:
    SIGNALS = 1024  # so many steps between two looks whether the user wants to interrupt


cdef class LinearSteps:
    """The steps of a run with their stages and factors.

    Parameters
    ----------
    steps : DenseSteps      the method, and the functions: "push", "pull" and "hessian_product" too
    times, sizes : ndarray [N+1], ndarray [N]
    states : ndarray [N+1, n]
    kept : ndarray [K, s-1, n]
                            stages of the first K steps, without their first one
    keep : bool             stages and factors of all steps are kept, once found; otherwise those of
                            the last step that was looked at
    """

    cdef DenseSteps steps
    cdef DenseWork work
    cdef DenseLinear linear
    cdef const double[::1] times
    cdef const double[::1] sizes
    cdef const double[:, ::1] states
    cdef const double[:, :, ::1] kept
    cdef object factors, pivots
    cdef double[:, :, ::1] at
    cdef unsigned char[::1] found
    cdef bint keep
    cdef long current
    cdef double[::1] room

    def __cinit__(self, DenseSteps steps, times, sizes, states, kept, bint keep):
        cdef DenseSystem *system = &steps.system
        cdef long count = len(sizes) if keep else 1
        cdef long n = system.n, s = system.s
        cdef bint implicit = system.jacobian != NULL
        self.steps, self.times, self.sizes = steps, times, sizes
        self.states, self.kept, self.keep, self.current = states, kept, keep, -1
        self.at = np.empty((count, s, n))
        self.factors = np.empty((count, s if implicit else 0, n, n))
        self.pivots = np.empty(count * s * n * sizeof(PetscBLASInt), dtype=np.uint8)
        self.found = np.zeros(count, dtype=np.uint8)
        self.room = np.empty((s + 3) * n)
        CHKERR(DenseWorkCreate(system, 1, &self.work))

    def __dealloc__(self):
        DenseWorkDestroy(&self.work)

    @property
    def n_stages(self):
        """Number of stages of a step."""
        return self.steps.system.s

    cdef bint linearise(self, long k) except -1:
        """Find stages and factors of a step; return whether that went well."""
        cdef DenseSystem *system = &self.steps.system
        cdef long n = system.n, place = k if self.keep else 0
        cdef double[:, :, :, ::1] factors = self.factors
        cdef unsigned char[::1] pivots = self.pivots
        cdef bint known = k < self.kept.shape[0]
        cdef PetscErrorCode code
        self.linear.states = &self.at[place, 0, 0]
        if factors.shape[1]:
            self.linear.factors = &factors[place, 0, 0, 0]
            self.linear.pivots = <PetscBLASInt *>&pivots[0] + place * system.s * n
        if self.found[place] and (self.keep or self.current == k):
            return True
        memcpy(self.linear.states, &self.states[k, 0], <size_t>n * sizeof(double))
        if known:
            memcpy(
                self.linear.states + n, &self.kept[k, 0, 0],
                <size_t>((system.s - 1) * n) * sizeof(double))
        code = DenseLinearise(
            self.work, self.times[k], self.sizes[k], self.linear.states, known, &self.linear)
        if system.fault:
            return False
        CHKERR(code)
        self.found[place], self.current = True, k
        return True

    def push(
        self,
        long last,
        const double[:, ::1] dp,
        double[:, :, ::1] along,
        double[:, :, :, ::1] moved,
    ):
        """Carry tangents forward to the state number ``last``.

        Parameters
        ----------
        last : int
        dp : ndarray [D, m]
        along : ndarray [last+1, D, n]
                                of the states; given for the first one, filled for the others
        moved : ndarray [last, D, s, n] or [1, D, s, n]
                                of the stages of each step, or of the last one; filled

        Returns
        -------
        bool                    the run could be linearised, and all values are finite
        """
        cdef const double *direction = &dp[0, 0] if dp.shape[1] else NULL
        cdef long k
        for k in range(last):
            if not self.linearise(k):
                return False
            self.push_step(k, direction, along, &moved[k if moved.shape[0] > 1 else 0, 0, 0, 0])
            if k % SIGNALS == 0:
                PyErr_CheckSignals()
        return all_finite(&along[last, 0, 0], along.shape[1] * along.shape[2])

    cdef void push_step(
        self, long k, const double *dp, double[:, :, ::1] along, double *moved
    ):
        # the tangent after the step is overwritten with itself where it is known
        DensePush(
            &self.steps.system, self.times[k], self.sizes[k], &self.linear, along.shape[1], dp,
            &along[k, 0, 0], &along[k + 1, 0, 0], moved, &self.room[0])

    def bend(
        self,
        long first,
        long last,
        const double[:, ::1] dp,
        double[:, :, ::1] along,
        double[:, :, :, ::1] moved,
        double[:, :, ::1] weights,
        bint known,
        double[::1] lam,
        double[::1] mu,
        double[:, ::1] lam_dot,
        double[:, ::1] mu_dot,
    ):
        """Carry an adjoint and its derivatives along directions back between two states.

        Parameters
        ----------
        first, last : int       numbers of the states
        dp, along, moved : as for ``push``, which comes first
        weights : ndarray [N, s, n] or [1, s, n]
                                adjoints of the stages of each step, or of the last one
        known : bool            they are there: lam and mu stay as they are
        lam, mu : ndarray [n], ndarray [m]
        lam_dot, mu_dot : ndarray [D, n], ndarray [D, m]
                                overwritten; mu and mu_dot are added to

        Returns
        -------
        bool                    all values are finite
        """
        cdef long m = mu.shape[0], k, count = along.shape[1]
        cdef const double *direction = &dp[0, 0] if m else NULL
        cdef long room = ((1 + count) * self.steps.system.s + 3) * lam.shape[0] + m
        cdef double *stages
        if self.room.shape[0] < room:
            self.room = np.empty(room)
        for k in range(last - 1, first - 1, -1):
            if not self.linearise(k):
                return False
            stages = &moved[k if moved.shape[0] > 1 else 0, 0, 0, 0]
            if moved.shape[0] == 1:
                self.push_step(k, direction, along, stages)
            DenseBend(
                &self.steps.system, self.times[k], self.sizes[k], &self.linear, count, direction,
                stages, &weights[k if weights.shape[0] > 1 else 0, 0, 0], known, &lam[0],
                &mu[0] if m else NULL, &lam_dot[0, 0], &mu_dot[0, 0] if m else NULL,
                &self.room[0])
            if k % SIGNALS == 0:
                PyErr_CheckSignals()
        return (
            all_finite(&lam[0], lam.shape[0])
            and all_finite(&lam_dot[0, 0], count * lam.shape[0])
            and (not m or all_finite(&mu[0], m) and all_finite(&mu_dot[0, 0], count * m))
        )
