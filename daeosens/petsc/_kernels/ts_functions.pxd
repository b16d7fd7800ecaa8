# cython: language_level=3
"""The C functions that a TS calls, and who tells it of them; shared by the extensions."""

from petsc4py.PETSc cimport PetscErrorCode, PetscMat, PetscTS, PetscVec


cdef extern from "petscts.h" nogil:
    ctypedef double PetscReal
    ctypedef PetscErrorCode (*RHSFunction)(
        PetscTS, PetscReal, PetscVec, PetscVec, void *) noexcept nogil
    ctypedef PetscErrorCode (*IFunction)(
        PetscTS, PetscReal, PetscVec, PetscVec, PetscVec, void *) noexcept nogil
    ctypedef PetscErrorCode (*IJacobian)(
        PetscTS, PetscReal, PetscVec, PetscVec, PetscReal, PetscMat, PetscMat, void *
    ) noexcept nogil
    PetscErrorCode TSSetRHSFunction(PetscTS, PetscVec, RHSFunction, void *)
    PetscErrorCode TSSetIFunction(PetscTS, PetscVec, IFunction, void *)
    PetscErrorCode TSSetIJacobian(PetscTS, PetscMat, PetscMat, IJacobian, void *)
