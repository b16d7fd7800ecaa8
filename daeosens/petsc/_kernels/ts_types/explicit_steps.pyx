# cython: language_level=3
"""A type of TS for explicit steps on plain numbers; signatures and types in explicit_steps.pyi."""

from daeosens.petsc._kernels.sweeps.breakpoints cimport Breakpoints
from daeosens.petsc._kernels.filling cimport all_finite
from daeosens.petsc._kernels.registered cimport Context, Registered, fail
from petsc4py.PETSc cimport CHKERR, PetscErrorCode, PetscTS, TS


cdef extern from "runge_kutta.h" nogil:
    ctypedef struct ExplicitSystem:
        bint (*rate)(void *, double, const double *, double *) noexcept nogil
        void *context
        Breakpoints *breakpoints
        long n, s, order
        bint fsal
        const double *a
        const double *b
        const double *difference
        const double *c
        const int *raised
    PetscErrorCode ExplicitStepsSet(PetscTS, const char *, ExplicitSystem *)


EXPLICIT = "daeosens-explicit"


cdef bint rate(void *context, double t, const double *u, double *out) noexcept nogil:
    cdef Context *c = <Context *>context
    c.rhs(t, u, c.p, out, c.rhs_data)
    if all_finite(out, c.n):
        return True
    fail(c, 1, t, out)
    return False


cdef class ExplicitSteps:
    """The steps of an explicit Runge-Kutta method on the equations of a serial problem.

    Must live as long as a TS that takes them.

    Parameters
    ----------
    registered : Registered
                            the equations
    tableau : tuple         as of ``rk_tableau``
    """

    cdef ExplicitSystem system
    cdef object kept

    def __cinit__(self, Registered registered, tuple tableau):
        cdef const double[:, ::1] a
        cdef const double[::1] b, c, difference
        a, b, c, embedded, self.system.order, self.system.fsal = tableau
        self.system.rate, self.system.context = rate, <void *>&registered.c
        self.system.breakpoints = &registered.c.breakpoints
        self.system.raised = registered.c.raised
        self.system.n, self.system.s = registered.c.n, b.shape[0]
        self.system.a, self.system.b, self.system.c = &a[0, 0], &b[0], &c[0]
        if embedded is not None:
            # The error estimate is h sum (bhat_i - b_i) k_i.
            difference = embedded - tableau[1]
            self.system.difference = &difference[0]
            embedded = difference
        # C has pointers into these arrays.
        self.kept = (registered, tableau, embedded)

    def attach(self, TS ts):
        """Make a TS take these steps."""
        CHKERR(ExplicitStepsSet(ts.ts, EXPLICIT.encode(), &self.system))
