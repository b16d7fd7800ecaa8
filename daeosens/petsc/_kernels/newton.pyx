# cython: language_level=3
"""Newton's method that knows the rounding of its residual; signatures and types in newton.pyi."""

from petsc4py.PETSc cimport CHKERR, SNES, PetscErrorCode, PetscSNES


cdef extern from "newton_rounding.h" nogil:
    PetscErrorCode NewtonRegister()
    PetscErrorCode NewtonAttach(PetscSNES)
    PetscErrorCode NewtonTakeRemainder(PetscSNES, double *)


CHKERR(NewtonRegister())


def know_rounding(SNES snes):
    """Let a SNES end where its residual is rounding, and look at each unknown by its scale.

    Collective.  The line search that belongs to it is named "rounding".  Of the type "ksponly" it
    becomes one whole step, whose remainder is known.

    Parameters
    ----------
    snes : SNES             whose line search, and type, may be any
    """
    CHKERR(NewtonAttach(snes.snes))


def take_remainder(SNES snes):
    """Return which error the solves since the last call may have left in an unknown, relative.

    An estimate, the sum over the solves: the last change of an unknown, relative to its size, times the part of the residual
    that was left by it.  0 without ``know_rounding``.  Not collective.
    """
    cdef double remainder = 0.0
    CHKERR(NewtonTakeRemainder(snes.snes, &remainder))
    return remainder
