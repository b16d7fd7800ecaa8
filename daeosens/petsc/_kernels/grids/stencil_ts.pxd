# cython: language_level=3
"""What a TS knows of the functions of a grid's points."""

from daeosens.petsc._kernels.grids.stencils cimport Kernel, Points, Stencil
from petsc4py.PETSc cimport PetscErrorCode, PetscMat, PetscVec


cdef struct Shell:
    Points *points
    const Kernel *push
    const Kernel *pull
    double t, factor, shift
    const double *p
    PetscVec u
    PetscVec local              # of u with the points of other ranks, where f_u needs them


cdef struct Equations:
    Points *points
    const Kernel *rhs
    Shell *shell
    const double *p


cdef PetscErrorCode linearise(Shell *shell, PetscMat matrix, double t, PetscVec u) noexcept nogil


cdef class Jacobian:
    cdef Shell shell
    cdef Stencil stencil
    cdef object p
    cdef double[::1] values


cdef class RegisteredStencil:
    cdef Equations c
    cdef Stencil stencil
    cdef object p, matrix
    cdef double[::1] values
