# cython: language_level=3
"""What callbacks tell TS of a trial step that leaves the domain of the equations."""

from petsc4py.PETSc cimport PetscErrorCode, PetscTS


cdef PetscErrorCode leave(PetscTS ts, double t) noexcept nogil


cdef PetscErrorCode leave_jacobian(PetscTS ts, double t) noexcept nogil
