# cython: language_level=3
"""What a TS knows of the C functions of a problem."""

from daeosens.petsc._kernels.sweeps.breakpoints cimport Breakpoints
from petsc4py.PETSc cimport PetscErrorCode, PetscMat, PetscVec

ctypedef void (*Function)(double, const double *, const double *, double *, void *) noexcept nogil


cdef struct Context:
    Function rhs, jacobian
    void *rhs_data
    void *jacobian_data
    double *p
    long n
    double *entries             # what the jacobian fills
    long n_entries
    const int *places           # NULL: dense
    PetscMat part               # -f_u; the matrix itself where the mass is the identity
    PetscMat mass               # NULL: the identity
    PetscVec work
    Breakpoints breakpoints
    const int *raised           # see PythonFunctions; NULL: no function is Python's
    int fault                   # 1: rhs, 2: jacobian
    double fault_t
    double *fault_values


cdef void fail(Context *c, int which, double t, const double *values) noexcept nogil


cdef PetscErrorCode point_taken(PetscMat matrix) noexcept nogil


cdef class Registered:
    cdef Context c
    cdef object p, kept, fault_values, entries, breakpoints
    cdef readonly object python
