# cython: language_level=3
"""Multigrid with upwind differences on every level; signatures and types in upwind.pyi."""

from petsc4py.PETSc cimport CHKERR, PC, PetscErrorCode, PetscPC


cdef extern from "upwind_levels.h" nogil:
    ctypedef int PetscInt
    PetscErrorCode PCMGSetUpwind(PetscPC, PetscInt)


def upwind_levels(PC preconditioner, PetscInt kinds):
    """Let multigrid make the matrices of its levels itself, with upwind differences.

    So much diffusion is added to products of the finer one that no unknown grows by what it gives
    to another one of its kind; sums of rows and of columns stay.  Collective.

    Parameters
    ----------
    preconditioner : PC
        Of type "mg" with all interpolations, and ``pc_mg_galerkin`` "external".
    kinds : int
        How many kinds of unknowns follow each other, those of a grid's point.
    """
    CHKERR(PCMGSetUpwind(preconditioner.pc, kinds))
