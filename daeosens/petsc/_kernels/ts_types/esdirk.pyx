# cython: language_level=3
"""ESDIRK steps of M u' = f by TS (esdirk_ts.c); signatures and types in esdirk.pyi."""

import numpy as np

from petsc4py.PETSc cimport CHKERR, Mat, PetscErrorCode, PetscMat, PetscTS, TS


cdef extern from "esdirk_ts.h" nogil:
    ctypedef struct EsdirkSystem:
        long s
        int order
        const double *a
        const double *c
        const double *embedded
        PetscMat mass
        PetscMat null
    PetscErrorCode EsdirkRegister()
    PetscErrorCode EsdirkAttach(PetscTS, const EsdirkSystem *)


ESDIRK = "esdirk"


cdef class EsdirkSteps:
    """The coefficients of ESDIRK steps, and the mass of the equations.

    Parameters
    ----------
    tableau : (a, c, embedded)
                            ndarrays [s, s], [s], [s]: the first stage is explicit, the last one the
                            solution; ``embedded`` weighs the stages in that of one order less
    order : int             of the solution
    mass : Mat [n, n] or None
                            None is the identity
    null : Mat [n, n] or None
                            projection on the equations without u'; None: there are none
    """

    cdef EsdirkSystem system
    cdef object kept

    def __cinit__(self, tuple tableau, int order, Mat mass, Mat null):
        cdef double[:, ::1] a = np.ascontiguousarray(tableau[0])
        cdef double[::1] c = np.ascontiguousarray(tableau[1])
        cdef double[::1] embedded = np.ascontiguousarray(tableau[2])
        self.system.s, self.system.order = c.shape[0], order
        self.system.a, self.system.c, self.system.embedded = &a[0, 0], &c[0], &embedded[0]
        if mass is not None:
            self.system.mass = mass.mat
        if null is not None:
            self.system.null = null.mat
        self.kept = (a, c, embedded, mass, null)

    def attach(self, TS ts):
        """Let a TS of type "esdirk" take these steps; they must live as long as it does."""
        CHKERR(EsdirkAttach(ts.ts, &self.system))


CHKERR(EsdirkRegister())
