# cython: language_level=3
"""Functions of a grid's points on distributed vectors; signatures and types in stencils.pyi."""

from libc.stdint cimport uintptr_t

import numpy as np

from daeosens._petsc.filling cimport (
    PetscScalar, VecGetArrayRead, VecGetArrayWrite, VecRestoreArrayRead, VecRestoreArrayWrite
)
from petsc4py.PETSc cimport CHKERR, DM, PETSC_SUCCESS, PetscDM, PetscErrorCode, PetscVec, Vec


cdef extern from "petscdm.h" nogil:
    ctypedef enum InsertMode:
        INSERT_VALUES
    PetscErrorCode DMGetLocalVector(PetscDM, PetscVec *)
    PetscErrorCode DMRestoreLocalVector(PetscDM, PetscVec *)
    PetscErrorCode DMGlobalToLocal(PetscDM, PetscVec, InsertMode, PetscVec)


cdef PetscErrorCode with_ghosts(Points *points, PetscVec vec, PetscVec *local) noexcept nogil:
    cdef PetscErrorCode code = DMGetLocalVector(points.dm, local)
    return DMGlobalToLocal(points.dm, vec, INSERT_VALUES, local[0]) if code == PETSC_SUCCESS else code


cdef PetscErrorCode readable(PetscVec vec, const PetscScalar **values) noexcept nogil:
    values[0] = NULL
    return VecGetArrayRead(vec, values) if vec != NULL else PETSC_SUCCESS


cdef PetscErrorCode evaluate(
    Points *points, const Kernel *kernel, double t, const double *p, const double *dp,
    Inputs inputs, Outcome result
) noexcept nogil:
    """Call a function at all points of the rank.  Collective."""
    cdef Box box = points.box
    cdef PetscVec locals[3]
    cdef PetscVec used[3]
    cdef PetscScalar *out = NULL
    cdef PetscScalar *total = NULL
    cdef const PetscScalar *add = NULL
    cdef const PetscScalar *base = NULL
    cdef PetscErrorCode code = PETSC_SUCCESS
    cdef int k
    box.t, box.p, box.dp, box.sums = t, p, dp, result.sums
    box.alpha, box.beta, box.gamma = result.alpha, result.beta, result.gamma
    for k in range(kernel.vectors):
        locals[k], used[k], box.ghosts[k] = NULL, inputs.vecs[k], 0
        if points.dm != NULL and kernel.around[k]:
            box.ghosts[k] = points.ghosts
            used[k] = inputs.locals[k]
            if used[k] == NULL:
                code = with_ghosts(points, inputs.vecs[k], &locals[k])
                used[k] = locals[k]
            if code != PETSC_SUCCESS:
                return code
        code = VecGetArrayRead(used[k], &box.input[k])
        if code != PETSC_SUCCESS:
            return code
    if result.out != NULL:
        code = VecGetArrayWrite(result.out, &out)
    if code == PETSC_SUCCESS and result.total != NULL:
        code = VecGetArrayWrite(result.total, &total)
    if code == PETSC_SUCCESS and result.add != result.out:
        code = readable(result.add, &add)
    if code == PETSC_SUCCESS and result.base != result.total:
        code = readable(result.base, &base)
    if code != PETSC_SUCCESS:
        return code
    box.out, box.total = out, total
    box.add = add if result.add != result.out else out
    box.base = base if result.base != result.total else total
    kernel.call(&box)
    if base != NULL:
        code = VecRestoreArrayRead(result.base, &base)
    if code == PETSC_SUCCESS and add != NULL:
        code = VecRestoreArrayRead(result.add, &add)
    if code == PETSC_SUCCESS and total != NULL:
        code = VecRestoreArrayWrite(result.total, &total)
    if code == PETSC_SUCCESS and out != NULL:
        code = VecRestoreArrayWrite(result.out, &out)
    for k in range(kernel.vectors):
        if code == PETSC_SUCCESS:
            code = VecRestoreArrayRead(used[k], &box.input[k])
        if code == PETSC_SUCCESS and locals[k] != NULL:
            code = DMRestoreLocalVector(points.dm, &locals[k])
    return code


cdef Inputs inputs_of(PetscVec first, PetscVec second) noexcept nogil:
    cdef Inputs all
    all.vecs[0], all.vecs[1], all.vecs[2] = first, second, NULL
    all.locals[0], all.locals[1], all.locals[2] = NULL, NULL, NULL
    return all


cdef Outcome into(PetscVec out, double alpha, PetscVec add, double beta) noexcept nogil:
    cdef Outcome result
    result.out, result.alpha, result.add, result.beta = out, alpha, add, beta
    result.total, result.base, result.gamma, result.sums = NULL, NULL, 0.0, NULL
    return result


NAMES = (
    "rhs", "push", "pull", "pull_all", "push_p", "pull_p", "rhs_t", "hessian", "hessian_t",
    "jacobian",
)

cdef class Stencil:
    """The functions of the points of one rank's box of a grid.

    Parameters
    ----------
    dm : DMDA or None       wide enough for all that is read; None on one rank
    ghosts : int            its width
    n : (int, int, int)     points of the box, along the fastest, middle and slowest dimension
    first, spacing : (float, float, float)
                            coordinates of the first point, distance of neighbours
    periodic : bool         otherwise values beyond the edge are 0
    work : ndarray          what the functions need
    """

    def __cinit__(self, DM dm, long ghosts, n, first, spacing, bint periodic, double[::1] work):
        cdef int k
        self.kept, self.work, self.numbers = [dm], work, {}
        self.points.dm = dm.dm if dm is not None else NULL
        self.points.ghosts = ghosts
        for k in range(3):
            self.points.box.n[k] = n[k]
            self.points.box.first[k] = first[k]
            self.points.box.spacing[k] = spacing[k]
        self.points.box.periodic = periodic
        self.points.box.work = &work[0]

    def add(self, str name, uintptr_t address, around, keeps):
        """Add a function.

        Parameters
        ----------
        name : str          one of ``NAMES``
        address : int       of a function of ``stencil.h``
        around : sequence of bool
                            for each vector whether values around the points are read
        keeps : object      what has to stay alive
        """
        cdef Kernel *kernel = &self.kernels[NAMES.index(name)]
        kernel.call, kernel.vectors = <PointFunction>address, len(around)
        for k, each in enumerate(around):
            kernel.around[k] = each
        self.numbers[name] = NAMES.index(name)
        self.kept.append(keeps)

    def apply(
        self, str name, double t, const double[::1] p, tuple inputs, Vec out=None,
        double alpha=1.0, Vec add=None, double beta=1.0, const double[::1] dp=None, sums=None,
    ):
        """Fill ``out`` with alpha f + beta add, and return the rank's own sums.  Collective.

        Parameters
        ----------
        name : str          of a function
        t : float
        p, dp : ndarray [m] parameters and their direction
        inputs : tuple of Vec [n]
        out, add : Vec or None
        alpha, beta : float
        sums : int or None  how many there are

        Returns
        -------
        ndarray [sums]
        """
        cdef double[::1] summed = np.zeros(max(1, sums or 0))
        cdef Inputs all = inputs_of(NULL, NULL)
        cdef Outcome result = into(
            out.vec if out is not None else NULL, alpha, add.vec if add is not None else NULL, beta)
        cdef double nothing = 0.0
        cdef const double *at = &p[0] if p.shape[0] else &nothing
        cdef const double *along = &dp[0] if dp is not None and dp.shape[0] else &nothing
        result.sums = &summed[0]
        for k, each in enumerate(inputs):
            all.vecs[k] = (<Vec?>each).vec
        CHKERR(evaluate(&self.points, &self.kernels[self.numbers[name]], t, at, along, all, result))
        return np.asarray(summed)[: sums or 0]

    def pull_step(
        self, double t, double h, const double[::1] p, tuple stages, Vec lam, tuple work,
        const double[::1] a, const double[::1] b, const double[::1] c, double[::1] sums,
    ):
        """Carry lam back over a Runge-Kutta step whose stages each read the one before only.

        w_i = b_i lam + a_{i+1} l_{i+1},  l_i = h f_u^T w_i,  lam += sum_i l_i; each stage is one
        pass over the vectors.  Collective.

        Parameters
        ----------
        t, h : float        start and size of the step
        p : ndarray [m]
        stages : tuple of Vec [n]
        lam : Vec [n]       overwritten
        work : tuple of Vec [n]
                            three of them
        a : ndarray [s]     below the diagonal: a[i] = a_{i,i-1}, a[0] is not read
        b, c : ndarray [s]
        sums : ndarray [m] or [0]
                            h f_p^T w_i of the rank's own points is added
        """
        cdef int s = b.shape[0], i
        cdef double nothing = 0.0, factor
        cdef const double *at = &p[0] if p.shape[0] else &nothing
        cdef Kernel *kernel = &self.kernels[PULL_ALL if sums.shape[0] else PULL]
        cdef double[::1] summed = np.zeros(max(1, sums.shape[0]))
        cdef PetscVec w = lam.vec, total = (<Vec?>work[2]).vec, base = lam.vec
        cdef Outcome result
        for i in range(s - 1, -1, -1):
            # of the last stage w is b lam: the factor is taken out
            factor = h * b[i] if i == s - 1 else h
            result = into(
                (<Vec?>work[i % 2]).vec if i else NULL, factor * a[i], lam.vec, b[i - 1] if i else 0.0)
            result.total = total if i else lam.vec
            result.base, result.gamma, result.sums = base, factor, &summed[0]
            summed[:] = 0.0
            CHKERR(evaluate(
                &self.points, kernel, t + c[i] * h, at, NULL,
                inputs_of((<Vec?>stages[i]).vec, w), result))
            for k in range(sums.shape[0]):
                sums[k] += factor * summed[k]
            w, base = result.out, total
