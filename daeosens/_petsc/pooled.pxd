# cython: language_level=3
"""Vectors whose memory is used again, for the other extensions."""

from petsc4py.PETSc cimport PetscErrorCode, PetscVec


cdef PetscErrorCode duplicate_to_fill(PetscVec vec, PetscVec *out) noexcept nogil
