# cython: language_level=3
"""How functions of a grid's points are called from C; shared by the extensions."""

from petsc4py.PETSc cimport PetscDM, PetscErrorCode, PetscVec


cdef extern from "stencil.h" nogil:
    ctypedef struct Box:
        long n[3]
        double first[3]
        double spacing[3]
        int periodic
        double t
        const double *p
        const double *dp
        const double *input "in"[3]
        long ghosts[3]
        double *out
        const double *add[4]
        double alpha
        double beta[4]
        int addends
        double *sums
        double *work
        long begin
        long first_place "from"
        long end_place "to"
    ctypedef void (*PointFunction)(const Box *) noexcept nogil


cdef extern from "stencil_chain.h" nogil:
    ctypedef void (*ChainFunction)(const Box *, int) noexcept nogil
    enum: MOST_STAGES


cdef extern from "bicgstab.h" nogil:
    ctypedef struct Iterate:
        double *x
        double *r
        double *p
        double *v
        double *t
        const double *shadow
        double alpha, beta, omega
        double sums[2]
    ctypedef void (*IterateLoop)(Iterate *, long, long) noexcept nogil


cdef struct Loops:
    IterateLoop turn, weigh, reduce, compare, advance


cdef struct Kernel:
    PointFunction call
    ChainFunction chain         # NULL: there is none
    int chained                 # the vector that each call of a chain fills for the next one
    int vectors
    int around[3]               # whether the neighbours of the points are read
    long reach                  # how far, along the slowest dimension


cdef struct Points:
    Box box
    PetscDM dm                  # NULL: one rank, which has all points
    double *chain_work
    long ghosts


cdef struct Outcome:
    PetscVec out
    PetscVec add[4]
    double alpha
    double beta[4]
    int addends
    double *sums


cdef struct Inputs:
    PetscVec vecs[3]
    PetscVec locals[3]          # with the points of other ranks, where that is known; or NULL


cdef struct Call:
    Box box
    Inputs inputs
    Outcome result
    PetscVec locals[3]          # that were made for this call


cdef PetscErrorCode with_ghosts(Points *points, PetscVec vec, PetscVec *local) noexcept nogil
cdef Call call_of(
    const Points *points, double t, const double *p, const double *dp, Inputs inputs, Outcome result
) noexcept nogil
cdef PetscErrorCode begin(Points *points, const Kernel *kernel, Call *call) noexcept nogil
cdef PetscErrorCode finish(Points *points, const Kernel *kernel, Call *call) noexcept nogil
cdef PetscErrorCode evaluate(Points *points, const Kernel *kernel, Call call) noexcept nogil
cdef PetscErrorCode evaluate_chain(
    Points *points, const Kernel *kernel, Call *calls, int count) noexcept nogil
cdef Inputs inputs_of(PetscVec first, PetscVec second) noexcept nogil
cdef Outcome into(PetscVec out, double alpha, PetscVec add, double beta) noexcept nogil
cdef void also_add(Outcome *result, PetscVec add, double beta) noexcept nogil


cdef enum:
    RHS = 0
    PUSH = 1
    PULL = 2
    PULL_ALL = 3
    PULL_P = 5
    KERNELS = 11


cdef class Stencil:
    cdef Points points
    cdef Kernel kernels[KERNELS]
    cdef Loops loops
    cdef object kept
    cdef dict numbers, late, late_chains
    cdef Kernel *kernel(self, int number) except NULL
    cdef Kernel *chain(self, int number) except NULL
