# cython: language_level=3
"""A TS type for small dense systems (dense_steps.c); signatures and types in dense.pyi."""

from libc.stdint cimport uintptr_t

import numpy as np

from petsc4py.PETSc cimport CHKERR, PetscErrorCode, PetscTS, TS


cdef extern from "dense_steps.h" nogil:
    ctypedef void (*DenseFunction)(double, const double *, const double *, double *, void *)
    ctypedef struct DenseSystem:
        long n, s
        int order
        const double *a
        const double *c
        const double *b_embedded
        DenseFunction rhs, jacobian
        void *rhs_data
        void *jacobian_data
        const double *p
        const int *places
        long entries
        int fault
        double fault_t
        double *fault_values
    PetscErrorCode DenseStepsRegister()
    PetscErrorCode DenseStepsAttach(PetscTS, DenseSystem *)


cdef class DenseSteps:
    cdef DenseSystem system
    cdef object kept, p, fault_values

    def __cinit__(self, long n, a, c, b_embedded, int order, tuple rhs, tuple jacobian, places, p):
        cdef double[:, ::1] view_a = np.ascontiguousarray(a)
        cdef double[::1] view
        cdef int[::1] where
        cdef uintptr_t address
        self.system.n, self.system.s, self.system.order = n, len(c), order
        self.system.a = &view_a[0, 0]
        self.kept = [view_a]
        view = np.ascontiguousarray(c)
        self.kept.append(view)
        self.system.c = &view[0]
        if b_embedded is not None:
            view = np.ascontiguousarray(b_embedded)
            self.kept.append(view)
            self.system.b_embedded = &view[0]
        address = rhs[0]
        self.system.rhs = <DenseFunction>address
        address = rhs[1]
        self.system.rhs_data = <void *>address
        address = jacobian[0]
        self.system.jacobian = <DenseFunction>address
        address = jacobian[1]
        self.system.jacobian_data = <void *>address
        self.system.entries = n * n
        if places is not None:
            where = places
            self.kept.append(where)
            self.system.places, self.system.entries = &where[0], where.shape[0]
        self.p = np.zeros(max(1, len(p)))
        view = self.p
        self.system.p = &view[0]
        self.fault_values = np.zeros(max(n, self.system.entries))
        view = self.fault_values
        self.system.fault_values = &view[0]
        self.hold(p)

    def hold(self, p):
        self.p[: len(p)] = p

    def attach(self, TS ts):
        CHKERR(DenseStepsAttach(ts.ts, &self.system))

    def fault(self):
        return (self.system.fault, self.system.fault_t) if self.system.fault else None


CHKERR(DenseStepsRegister())
