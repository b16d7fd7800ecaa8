# cython: language_level=3
"""C functions of problems as TS's own functions; signatures and types in registered.pyi."""

from libc.stdint cimport uintptr_t
from libc.string cimport memcpy

cimport numpy as np
import numpy as np

from daeosens.petsc._kernels.sweeps.breakpoints cimport breakpoints_of, enter_step, seen_time
from daeosens.petsc._kernels.filling cimport (
    MAT_FINAL_ASSEMBLY,
    MatAssemblyType,
    PetscInt,
    PetscScalar,
    VecGetArrayRead,
    VecGetArrayWrite,
    VecRestoreArrayRead,
    VecRestoreArrayWrite,
    all_finite,
    put_values,
)
from daeosens.petsc._kernels.ts_functions cimport (
    PetscReal, TSSetIFunction, TSSetIJacobian, TSSetRHSFunction
)
from daeosens.petsc._kernels.trials cimport leave, leave_jacobian
from petsc4py.PETSc cimport (
    CHKERR, Mat, PETSC_SUCCESS, PetscErrorCode, PetscMat, PetscTS,
    PetscVec, TS, Vec
)


np.import_array()


cdef extern from "petscts.h" nogil:
    ctypedef enum MatStructure:
        SUBSET_NONZERO_PATTERN
    PetscErrorCode TSGetTime(PetscTS, PetscReal *)
    PetscErrorCode TSGetTimeStep(PetscTS, PetscReal *)
    PetscErrorCode VecScale(PetscVec, PetscScalar)
    PetscErrorCode VecAXPY(PetscVec, PetscScalar, PetscVec)
    PetscErrorCode MatMult(PetscMat, PetscVec, PetscVec)
    PetscErrorCode MatScale(PetscMat, PetscScalar)
    PetscErrorCode MatShift(PetscMat, PetscScalar)
    PetscErrorCode MatZeroEntries(PetscMat)
    PetscErrorCode MatAXPY(PetscMat, PetscScalar, PetscMat, MatStructure)
    PetscErrorCode MatAssemblyBegin(PetscMat, MatAssemblyType)
    PetscErrorCode MatAssemblyEnd(PetscMat, MatAssemblyType)


cdef void fail(Context *c, int which, double t, const double *values) noexcept nogil:
    c.fault, c.fault_t = which, t
    # Values are kept for the message, as the vector is used again.
    if which == 1:
        memcpy(c.fault_values, values, <size_t>c.n * sizeof(double))


cdef PetscErrorCode enter(Context *c, PetscTS ts) noexcept nogil:
    """Take notice of the step under way, which begins or ends at breakpoints."""
    cdef PetscReal t = 0.0, h = 0.0
    cdef PetscErrorCode code = PETSC_SUCCESS
    if c.breakpoints.count:
        code = TSGetTime(ts, &t)
        if code == PETSC_SUCCESS:
            code = TSGetTimeStep(ts, &h)
        enter_step(&c.breakpoints, t, h)
    return code


cdef PetscErrorCode evaluate(
    Context *c, PetscTS ts, double t, PetscVec u, PetscVec out
) noexcept nogil:
    cdef const PetscScalar *numbers = NULL
    cdef PetscScalar *values = NULL
    cdef PetscErrorCode code = enter(c, ts)
    if code == PETSC_SUCCESS:
        code = VecGetArrayRead(u, &numbers)
    if code != PETSC_SUCCESS:
        return code
    code = VecGetArrayWrite(out, &values)
    if code != PETSC_SUCCESS:
        return code
    # At a breakpoint f is seen from the side of the step that is under way.
    c.rhs(seen_time(&c.breakpoints, t), numbers, c.p, values, c.rhs_data)
    cdef PetscErrorCode rejected = PETSC_SUCCESS
    if not all_finite(values, c.n):
        fail(c, 1, seen_time(&c.breakpoints, t), values)
        # TS is told to try a smaller step; the arrays are given back all the same.
        rejected = leave(ts, t)
    code = VecRestoreArrayWrite(out, &values)
    if code != PETSC_SUCCESS:
        return code
    code = VecRestoreArrayRead(u, &numbers)
    return rejected if code == PETSC_SUCCESS else code


cdef PetscErrorCode rhs_function(
    PetscTS ts, PetscReal t, PetscVec u, PetscVec out, void *context
) noexcept nogil:
    return evaluate(<Context *>context, ts, t, u, out)


cdef PetscErrorCode point_taken(PetscMat matrix) noexcept nogil:
    """Let the matrix of -snes_mf_operator take the point."""
    cdef PetscErrorCode code = MatAssemblyBegin(matrix, MAT_FINAL_ASSEMBLY)
    return MatAssemblyEnd(matrix, MAT_FINAL_ASSEMBLY) if code == PETSC_SUCCESS else code


def take_point(Mat matrix):
    """Let the matrix of -snes_mf_operator take the point at which a Jacobian was filled."""
    CHKERR(point_taken(matrix.mat))


cdef PetscErrorCode i_function(
    PetscTS ts, PetscReal t, PetscVec u, PetscVec udot, PetscVec out, void *context
) noexcept nogil:
    """M udot - f, in the order of ``Problem.residual``."""
    cdef Context *c = <Context *>context
    cdef PetscErrorCode code = evaluate(c, ts, t, u, out)
    if code == PETSC_SUCCESS:
        code = VecScale(out, -1.0)
    if c.mass == NULL:
        return VecAXPY(out, 1.0, udot) if code == PETSC_SUCCESS else code
    if code == PETSC_SUCCESS:
        code = MatMult(c.mass, udot, c.work)
    return VecAXPY(out, 1.0, c.work) if code == PETSC_SUCCESS else code


cdef PetscErrorCode i_jacobian(
    PetscTS ts, PetscReal t, PetscVec u, PetscVec udot, PetscReal shift, PetscMat matrix,
    PetscMat preconditioner, void *context
) noexcept nogil:
    """-f_u + shift M, in the order of ``SystemMatrix.fill``."""
    cdef Context *c = <Context *>context
    cdef const PetscScalar *numbers = NULL
    cdef PetscErrorCode code = enter(c, ts)
    if code == PETSC_SUCCESS:
        code = VecGetArrayRead(u, &numbers)
    if code != PETSC_SUCCESS:
        return code
    c.jacobian(seen_time(&c.breakpoints, t), numbers, c.p, c.entries, c.jacobian_data)
    code = VecRestoreArrayRead(u, &numbers)
    if code == PETSC_SUCCESS and not all_finite(c.entries, c.n_entries):
        fail(c, 2, seen_time(&c.breakpoints, t), c.entries)
        return leave_jacobian(ts, t)
    if code == PETSC_SUCCESS:
        code = put_values(c.part, c.entries, c.places, c.n_entries)
    if code == PETSC_SUCCESS:
        # The entries are those of f_u; the matrix is shift M - f_u.
        code = MatScale(c.part, -1.0)
    if code == PETSC_SUCCESS and matrix != preconditioner:
        code = point_taken(matrix)
    if c.mass == NULL:
        return MatShift(c.part, shift) if code == PETSC_SUCCESS else code
    if code == PETSC_SUCCESS:
        code = MatZeroEntries(preconditioner)
    if code == PETSC_SUCCESS:
        code = MatAXPY(preconditioner, 1.0, c.part, SUBSET_NONZERO_PATTERN)
    if code == PETSC_SUCCESS:
        code = MatAXPY(preconditioner, shift, c.mass, SUBSET_NONZERO_PATTERN)
    return code


cdef class Registered:
    """The C functions of M u' = f(t, u, p) with what they need, to be given to a TS.

    It must live as long as the TS does.

    Parameters
    ----------
    n : int                 number of unknowns
    rhs : (int, int)        addresses of the function and its user data
    p : ndarray [m]         parameters; copied
    breakpoints : ndarray [K]
                            times at which f may jump
    python : PythonFunctions or None
                            what the function calls, if it is Python's
    """

    def __cinit__(self, long n, tuple rhs, object p, object breakpoints, object python=None):
        cdef double[::1] view
        cdef uintptr_t address = rhs[0], data = rhs[1]
        self.c.rhs, self.c.rhs_data = <Function>address, <void *>data
        self.c.n = n
        self.c.breakpoints, self.breakpoints = breakpoints_of(breakpoints), breakpoints
        # one number at least: the address of an empty array cannot be taken
        self.p = np.zeros(max(1, len(p)))
        self.fault_values = np.zeros(max(1, n))
        view = self.p
        self.c.p = &view[0]
        view = self.fault_values
        self.c.fault_values = &view[0]
        self.python = python
        if python is not None:
            self.c.raised = <const int *><uintptr_t>python.raised
        self.hold(p)

    def hold(self, p):
        """Give the functions other parameters [m]."""
        cdef np.ndarray values = np.PyArray_ContiguousFromAny(p, np.NPY_DOUBLE, 1, 1)
        if np.PyArray_SIZE(values) > len(self.p):
            raise ValueError(f"{np.PyArray_SIZE(values)} parameters where there were {len(self.p)}")
        memcpy(self.c.p, np.PyArray_DATA(values), <size_t>np.PyArray_SIZE(values) * sizeof(double))
        if self.python is not None:
            self.python.hold(p)

    def set_rhs(self, TS ts, Vec work):
        """Let a TS take f as its right-hand side."""
        CHKERR(TSSetRHSFunction(ts.ts, work.vec, rhs_function, <void *>&self.c))

    def set_residual(
        self,
        TS ts,
        Vec residual,
        tuple jacobian,
        object entries,
        const int[::1] places,
        Mat part,
        Mat mass,
        Mat matrix,
        Vec work,
    ):
        """Let a TS take M u' - f as its residual, with its Jacobian.

        Parameters
        ----------
        ts : TS
        residual : Vec [n]      that TS works with
        jacobian : (int, int)   addresses of f_u and its user data
        entries : ndarray       room for what the function of f_u fills
        places : ndarray or None
                                as for ``fill_matrix``
        part : Mat [n, n]       for -f_u
        mass : Mat [n, n] or None
                                None is the identity
        matrix : Mat [n, n]     for shift M - f_u; ``part`` where the mass is the identity
        work : Vec [n]          for M u'
        """
        cdef double[::1] view = entries.ravel()
        cdef uintptr_t address = jacobian[0], data = jacobian[1]
        self.c.jacobian, self.c.jacobian_data = <Function>address, <void *>data
        self.c.entries, self.c.n_entries = &view[0], view.shape[0]
        if places is not None and places.shape[0]:
            self.c.places = &places[0]
        self.c.part, self.c.work = part.mat, work.vec
        if mass is not None:
            self.c.mass = mass.mat
        self.kept = (entries, places, part, mass, work)
        CHKERR(TSSetIFunction(ts.ts, residual.vec, i_function, <void *>&self.c))
        CHKERR(TSSetIJacobian(ts.ts, matrix.mat, matrix.mat, i_jacobian, <void *>&self.c))

    def fault(self):
        """Return which function gave values that are not finite last, at which t, and the values.

        Returns
        -------
        (str, float, ndarray) or None
                                "rhs" with [n] or "jacobian" with its entries
        """
        if not self.c.fault:
            return None
        if self.c.fault == 1:
            return "rhs", self.c.fault_t, self.fault_values[: self.c.n]
        return "jacobian", self.c.fault_t, self.kept[0]
