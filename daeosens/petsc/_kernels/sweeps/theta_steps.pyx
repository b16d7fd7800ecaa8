# cython: language_level=3
"""Theta steps on grids carried back without Python; signatures and types in theta_steps.pyi."""

from cpython.exc cimport PyErr_CheckSignals

import numpy as np

from daeosens.petsc._kernels.grids.stencil_ts cimport Jacobian, Shell, linearise
from daeosens.petsc._kernels.grids.stencils cimport (
    PULL, PULL_ALL, PULL_P, Inputs, Kernel, Outcome, Stencil, call_of, evaluate, inputs_of, into
)
from petsc4py.PETSc cimport (
    CHKERR, KSP, Mat, PETSC_SUCCESS, PetscErrorCode, PetscKSP, PetscMat, PetscVec, Vec
)

from daeosens.petsc._kernels.grids.stencil_ts import ATTRIBUTE


cdef extern from "petscksp.h" nogil:
    ctypedef enum KSPConvergedReason:
        pass
    PetscErrorCode KSPSolveTranspose(PetscKSP, PetscVec, PetscVec)
    PetscErrorCode KSPGetConvergedReason(PetscKSP, KSPConvergedReason *)
    PetscErrorCode VecAXPBY(PetscVec, double, double, PetscVec)


cdef PetscErrorCode transposed(
    const Shell *shell, const Kernel *kernel, PetscVec nu, Outcome result
) noexcept nogil:
    """Call a transposed derivative at the matrix's point, of nu."""
    cdef Inputs inputs = inputs_of(shell.u, nu)
    inputs.locals[0] = shell.local
    return evaluate(
        shell.points, kernel, call_of(shell.points, shell.t, shell.p, NULL, inputs, result))


def pull_theta_steps(
    KSP solver, times, sizes, states, const double[::1] p, double theta, bint endpoint, Vec lam,
    Vec nu, double[::1] sums,
):
    """Carry lam back over theta steps that are linearised at their ends.

    (s - f_u^T) nu = lam at the end, s = 1/(theta h); lam = s nu + rest f_u^T nu at the start, where
    rest is (1 - theta)/theta of the endpoint form, or else 0.  Collective.

    Parameters
    ----------
    solver : KSP            of a matrix of ``create_matrix``
    times, sizes : sequence of float
                            starts and sizes of the steps
    states : sequence of Vec [n]
                            those before each step, and the last one
    p : ndarray [m]
    theta : float
    endpoint : bool         otherwise theta is 1
    lam : Vec [n]           overwritten
    nu : Vec [n]            work space
    sums : ndarray [m] or [0]
                            f_p^T nu + rest f_p^T nu at the start, of the rank's own points, is added

    Returns
    -------
    bool                    whether all solves converged; otherwise lam is of no use
    """
    cdef Mat matrix = solver.getOperators()[0]
    cdef Jacobian jacobian = matrix.getAttr(ATTRIBUTE)
    cdef Shell *shell = &jacobian.shell
    cdef Stencil stencil = jacobian.stencil
    cdef double rest = (1.0 - theta) / theta if endpoint else 0.0
    cdef double[:, ::1] summed = np.zeros((2, max(1, sums.shape[0])))
    cdef bint of_p = sums.shape[0] > 0
    cdef double t, h, shift
    cdef Vec start, end
    cdef Outcome result
    cdef KSPConvergedReason reason
    cdef int k
    jacobian.p[: len(p)] = p
    for n in range(len(sizes) - 1, -1, -1):
        PyErr_CheckSignals()
        t, h, start, end = times[n], sizes[n], states[n], states[n + 1]
        # (I - theta h f_u)^T nu_0 = lam with nu = theta h nu_0: the scaling saves a pass over the
        # vectors.
        shift = 1.0 / (theta * h)
        CHKERR(linearise(shell, matrix.mat, t + h, end.vec))
        shell.factor, shell.shift = -1.0, shift
        CHKERR(KSPSolveTranspose(solver.ksp, lam.vec, nu.vec))
        CHKERR(KSPGetConvergedReason(solver.ksp, &reason))
        if <int>reason < 0:
            return False
        if of_p:
            result = into(NULL, 1.0, NULL, 0.0)
            result.sums = &summed[0, 0]
            CHKERR(transposed(shell, stencil.kernel(PULL_P), nu.vec, result))
        # Backward Euler: lam = s nu, no derivative at the start.
        if rest == 0.0:
            CHKERR(VecAXPBY(lam.vec, shift, 0.0, nu.vec))
            continue
        CHKERR(linearise(shell, matrix.mat, t, start.vec))
        result = into(lam.vec, rest, nu.vec, shift)
        result.sums = &summed[1, 0]
        CHKERR(transposed(shell, stencil.kernel(PULL_ALL if of_p else PULL), nu.vec, result))
    for k in range(sums.shape[0]):
        # h [theta f_p^T at the end + (1 - theta) f_p^T at the start] nu_0, summed over all steps.
        sums[k] += summed[0, k] + rest * summed[1, k]
    return True
