# cython: language_level=3
"""Geometric multigrid as steps need it; signatures and types in multigrid.pyi."""

from petsc4py.PETSc cimport CHKERR, PC, PetscErrorCode, PetscPC


cdef extern from "short_steps.h" nogil:
    ctypedef int PetscInt
    PetscErrorCode PCMGGetLevelsInUse(PetscPC, PetscInt *)
    PetscErrorCode PCMGSmoothShortSteps(PetscPC)


cdef extern from "upwind_levels.h" nogil:
    PetscErrorCode PCMGSetUpwind(PetscPC, PetscInt)


def levels_in_use(PC preconditioner):
    """Return how many levels of a multigrid that is set up are, from the finest on.  Not collective.

    One where the smoother of the finest has been enough so far, else all.
    """
    cdef PetscInt count = 0
    CHKERR(PCMGGetLevelsInUse(preconditioner.pc, &count))
    return count


def smooth_short_steps(PC preconditioner):
    """Let multigrid be its finest smoother alone where a matrix has dominant diagonals.

    That of a short step does.  Coarse levels are set up when a matrix needs them first.  Collective.

    Parameters
    ----------
    preconditioner : PC
        Of type "mg" with all interpolations, and what else is to hold for its levels.
    """
    CHKERR(PCMGSmoothShortSteps(preconditioner.pc))


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
