# cython: language_level=3
"""ESDIRK steps of M u' = f and additive ones by TS (esdirk_ts.c); signatures in esdirk.pyi."""

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
        const double *additive
        const double *additive_end
        const double *additive_embedded
    PetscErrorCode EsdirkRegister()
    PetscErrorCode EsdirkAttach(PetscTS, const EsdirkSystem *)


ESDIRK = "esdirk"


cdef class EsdirkSteps:
    """The coefficients of ESDIRK steps, and the mass of the equations.

    Parameters
    ----------
    tableau : (a, c, embedded)
                            ndarrays [s, s], [s], [s]: the first stage is explicit, the last one the
                            solution; ``embedded`` weighs the stages in that of one order less, or is
                            None
    order : int             of the solution
    mass : Mat [n, n] or None
                            None is the identity
    null : Mat [n, n] or None
                            projection on the equations without u'; None: there are none
    additive : (a, end, embedded) or None
                            ndarrays [s, s], [s], [s]: the coefficients of g in u' = f + g, in the
                            stages and in what comes to the last one, and to the sum of stages
    """

    cdef EsdirkSystem system
    cdef object kept

    def __cinit__(self, tuple tableau, int order, Mat mass, Mat null, tuple additive=None):
        cdef double[:, ::1] a = np.ascontiguousarray(tableau[0])
        cdef double[::1] c = np.ascontiguousarray(tableau[1])
        cdef double[::1] embedded = None
        cdef double[:, ::1] of_stages
        cdef double[::1] end, of_embedded
        self.system.s, self.system.order = c.shape[0], order
        self.system.a, self.system.c = &a[0, 0], &c[0]
        if tableau[2] is not None:
            embedded = np.ascontiguousarray(tableau[2])
            self.system.embedded = &embedded[0]
        if mass is not None:
            self.system.mass = mass.mat
        if null is not None:
            self.system.null = null.mat
        self.kept = (a, c, embedded, mass, null, additive)
        if additive is not None:
            of_stages, end, of_embedded = additive
            self.system.additive, self.system.additive_end = &of_stages[0, 0], &end[0]
            self.system.additive_embedded = &of_embedded[0]

    def attach(self, TS ts):
        """Let a TS of type "esdirk" take these steps; they must live as long as it does."""
        CHKERR(EsdirkAttach(ts.ts, &self.system))


CHKERR(EsdirkRegister())
