# cython: language_level=3
"""What the extensions know of steps of small dense systems."""

from daeosens.petsc._kernels.sweeps.breakpoints cimport Breakpoints
from daeosens.petsc._kernels.sweeps.running_costs cimport RunningCosts
from petsc4py.PETSc cimport PetscErrorCode, PetscTS


cdef extern from "dense_steps.h" nogil:
    # Typed loosely on purpose: the C compiler takes the true widths from PETSc's own header.
    ctypedef int PetscBLASInt
    ctypedef bint PetscBool
    ctypedef void (*DenseFunction)(double, const double *, const double *, double *, void *)
    ctypedef void (*DenseProduct)(
        double, const double *, const double *, const double *, double *, double *, void *)
    ctypedef void (*DenseSlope)(
        double, const double *, const double *, const double *, const double *, double *, void *)
    ctypedef void (*DenseCurvature)(
        double, const double *, const double *, const double *, const double *, const double *,
        double *, double *, void *)
    ctypedef struct DenseSystem:
        long n, m, s
        int order
        const double *a
        const double *b
        const double *c
        const double *b_embedded
        const double *guess
        double end
        const double *mass
        DenseFunction rhs, jacobian, jacobian_p
        DenseProduct pull
        int gathers
        DenseSlope push
        DenseCurvature hessian
        void *rhs_data
        void *jacobian_data
        void *jacobian_p_data
        void *pull_data
        void *push_data
        void *hessian_data
        Breakpoints breakpoints
        int *raised
        const double *p
        const int *places
        long entries
        int fault
        double fault_t
        double *fault_values
    ctypedef struct DenseLinear:
        double *states
        double *factors
        PetscBLASInt *pivots
    ctypedef void *DenseWork
    PetscErrorCode DenseStepsRegister()
    PetscErrorCode DenseStepsAttach(PetscTS, DenseSystem *)
    PetscErrorCode DenseWorkCreate(DenseSystem *, long, DenseWork *)
    PetscErrorCode DenseWorkDestroy(DenseWork *)
    PetscBool DenseFillStages(DenseWork, double, double, double *)
    PetscErrorCode DenseLinearise(DenseWork, double, double, PetscBool, DenseLinear *)


cdef extern from "dense_derivatives.h" nogil:
    PetscErrorCode DenseTransposeStep(
        DenseWork, double, double, const double *, const double *, double **, double **,
        const RunningCosts *)
    void DensePush(
        const DenseSystem *, double, double, const DenseLinear *, long, const double *,
        const double *, double *, double *, double *)
    void DenseBend(
        const DenseSystem *, double, double, const DenseLinear *, long, const double *,
        const double *, double *, bint, double *, double *, double *, double *, double *)


cdef class DenseSteps:
    cdef DenseSystem system
    cdef object kept, p, fault_values
    cdef readonly object python
