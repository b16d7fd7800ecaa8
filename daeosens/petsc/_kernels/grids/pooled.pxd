# cython: language_level=3
"""Vectors whose memory is used again, for the other extensions."""

from petsc4py.PETSc cimport PetscErrorCode, PetscVec, Vec


cdef PetscErrorCode duplicate_to_fill(PetscVec vec, PetscVec *out) noexcept nogil
cdef Vec owner_of(PetscVec vec)             # a vector of Python, which owns it
