# cython: language_level=3
"""Costs of single states, which are C functions; signatures and types in point_costs.pyi."""

from libc.stdint cimport uintptr_t
from libc.stdlib cimport free, malloc

cimport numpy as np
import numpy as np

from daeosens.petsc._kernels.contiguous cimport doubles
from daeosens.petsc._kernels.filling cimport PetscScalar, all_finite
from daeosens.petsc._kernels.sweeps.running_costs cimport add_gradient
from petsc4py.PETSc cimport CHKERR, PetscErrorCode, PetscVec, Vec


cdef extern from "petscvec.h" nogil:
    PetscErrorCode VecGetArray(PetscVec, PetscScalar **)
    PetscErrorCode VecRestoreArray(PetscVec, PetscScalar **)


np.import_array()


ctypedef double (*Value)(double, const double *, const double *, void *)


def add_point(
    tuple functions,
    double weight,
    np.ndarray p,
    np.ndarray times,
    np.ndarray states,
    long number,
    Vec lam,
    Vec mu,
):
    """Add the gradients of a cost of one state to adjoints, and return its value.

    Parameters
    ----------
    functions : tuple of 3 (int, int)
                            addresses and user data of the cost and of its gradients in u and p; 0:
                            a gradient is zero
    weight : float
    p : ndarray [m]
    times, states : ndarray [N+1], ndarray [N+1, n]
    number : int            of the state
    lam, mu : Vec [n], Vec [m]
                            added to

    Returns
    -------
    float or None           None if the value or an adjoint is not finite
    """
    cdef long n = states.shape[1], m = p.shape[0]
    cdef const double *u = doubles(states) + number * n
    cdef double t = doubles(times)[number], value
    cdef uintptr_t[6] f
    cdef bint finite
    cdef double *by_u = NULL
    cdef double *by_p = NULL
    cdef double *room = <double *>malloc(<size_t>max(n, m) * sizeof(double))
    if room == NULL:
        raise MemoryError
    # Value, gradient in u, gradient in p: each a function and its user data.
    (f[0], f[1]), (f[2], f[3]), (f[4], f[5]) = functions
    try:
        CHKERR(VecGetArray(lam.vec, &by_u))
        CHKERR(VecGetArray(mu.vec, &by_p))
        value = weight * (<Value>f[0])(t, u, doubles(p), <void *>f[1])
        add_gradient(f + 2, weight, t, u, doubles(p), room, n, by_u)
        add_gradient(f + 4, weight, t, u, doubles(p), room, m, by_p)
        finite = all_finite(&value, 1) and all_finite(by_u, n) and all_finite(by_p, m)
        CHKERR(VecRestoreArray(mu.vec, &by_p))
        CHKERR(VecRestoreArray(lam.vec, &by_u))
    finally:
        free(room)
    return value if finite else None
