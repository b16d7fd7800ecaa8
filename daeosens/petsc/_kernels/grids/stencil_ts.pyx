# cython: language_level=3
"""Functions of a grid's points as those of TS, SNES and KSP; signatures and types in the .pyi."""

import numpy as np

from daeosens.petsc._kernels.filling cimport PetscScalar
from daeosens.petsc._kernels.registered cimport point_taken
from daeosens.petsc._kernels.grids.stencils cimport (
    PULL, PUSH, RHS, Inputs, Kernel, Outcome, Points, Stencil, call_of, evaluate, inputs_of, into,
    with_ghosts
)
from daeosens.petsc._kernels.ts_functions cimport (
    PetscReal, TSSetIFunction, TSSetIJacobian, TSSetRHSFunction
)
from petsc4py.PETSc cimport (
    CHKERR, Mat, PETSC_SUCCESS, PetscDM, PetscErrorCode, PetscMat, PetscTS, PetscVec, TS, Vec
)


cdef extern from "petscts.h" nogil:
    ctypedef struct _p_PetscObject
    ctypedef _p_PetscObject *PetscObject
    PetscErrorCode DMRestoreLocalVector(PetscDM, PetscVec *)
    PetscErrorCode PetscObjectReference(PetscObject)
    PetscErrorCode PetscObjectStateIncrease(PetscObject)
    PetscErrorCode VecDestroy(PetscVec *)
    PetscErrorCode MatShellGetContext(PetscMat, void *)


cdef extern from *:
    """
    #include <petscmat.h>
    #define ROWS "daeosens rows"
    /* vectors of solvers, which use memory again as states do */
    static PetscErrorCode create_vecs(Mat matrix, Vec *right, Vec *left)
    {
        Vec rows;
        PetscFunctionBegin;
        PetscCall(PetscObjectQuery((PetscObject)matrix, ROWS, (PetscObject *)&rows));
        if (right) PetscCall(VecDuplicate(rows, right));
        if (left) PetscCall(VecDuplicate(rows, left));
        PetscFunctionReturn(PETSC_SUCCESS);
    }
    /* the scaling that PETSc 3.26 manages by itself costs a pass over the vectors for each product */
    static PetscErrorCode shell_of(
        Vec rows, void *context, PetscErrorCode (*mult)(Mat, Vec, Vec),
        PetscErrorCode (*transpose)(Mat, Vec, Vec), PetscErrorCode (*scale)(Mat, PetscScalar),
        PetscErrorCode (*shift)(Mat, PetscScalar), Mat *out)
    {
        PetscInt n, all;
        VecType type;
        PetscFunctionBegin;
        PetscCall(VecGetLocalSize(rows, &n));
        PetscCall(VecGetSize(rows, &all));
        PetscCall(VecGetType(rows, &type));
        PetscCall(MatCreateShell(PetscObjectComm((PetscObject)rows), n, n, all, all, context, out));
        PetscCall(MatShellSetVecType(*out, type));
        PetscCall(MatShellSetManageScalingShifts(*out));
        PetscCall(PetscObjectCompose((PetscObject)*out, ROWS, (PetscObject)rows));
        PetscCall(MatShellSetOperation(*out, MATOP_CREATE_VECS, (void (*)(void))create_vecs));
        PetscCall(MatShellSetOperation(*out, MATOP_MULT, (void (*)(void))mult));
        PetscCall(MatShellSetOperation(*out, MATOP_MULT_TRANSPOSE, (void (*)(void))transpose));
        PetscCall(MatShellSetOperation(*out, MATOP_SCALE, (void (*)(void))scale));
        PetscCall(MatShellSetOperation(*out, MATOP_SHIFT, (void (*)(void))shift));
        PetscCall(MatSetUp(*out));
        PetscCall(MatAssemblyBegin(*out, MAT_FINAL_ASSEMBLY));
        PetscCall(MatAssemblyEnd(*out, MAT_FINAL_ASSEMBLY));
        PetscFunctionReturn(PETSC_SUCCESS);
    }
    """
    ctypedef PetscErrorCode (*Product)(PetscMat, PetscVec, PetscVec) noexcept nogil
    ctypedef PetscErrorCode (*Change)(PetscMat, PetscScalar) noexcept nogil
    PetscErrorCode shell_of(
        PetscVec, void *, Product, Product, Change, Change, PetscMat *) noexcept nogil


cdef PetscErrorCode product(
    PetscMat matrix, PetscVec x, PetscVec out, bint transpose
) noexcept nogil:
    cdef Shell *shell = NULL
    cdef PetscErrorCode code = MatShellGetContext(matrix, &shell)
    if code != PETSC_SUCCESS:
        return code
    cdef Inputs inputs = inputs_of(shell.u, x)
    inputs.locals[0] = shell.local
    # factor f_u x + shift x, in one pass.
    cdef Outcome result = into(out, shell.factor, x if shell.shift else NULL, shell.shift)
    return evaluate(
        shell.points, shell.pull if transpose else shell.push,
        call_of(shell.points, shell.t, shell.p, NULL, inputs, result))


cdef PetscErrorCode push(PetscMat matrix, PetscVec x, PetscVec out) noexcept nogil:
    return product(matrix, x, out, False)


cdef PetscErrorCode pull(PetscMat matrix, PetscVec x, PetscVec out) noexcept nogil:
    return product(matrix, x, out, True)


cdef PetscErrorCode scale(PetscMat matrix, PetscScalar factor) noexcept nogil:
    cdef Shell *shell = NULL
    cdef PetscErrorCode code = MatShellGetContext(matrix, &shell)
    if code == PETSC_SUCCESS:
        shell.factor *= factor
        # (factor f_u + shift) is scaled as a whole.
        shell.shift *= factor
    return code


cdef PetscErrorCode shift(PetscMat matrix, PetscScalar more) noexcept nogil:
    cdef Shell *shell = NULL
    cdef PetscErrorCode code = MatShellGetContext(matrix, &shell)
    if code == PETSC_SUCCESS:
        shell.shift += more
    return code


cdef PetscErrorCode forget(Shell *shell) noexcept nogil:
    cdef PetscErrorCode code = PETSC_SUCCESS
    if shell.local != NULL:
        code = DMRestoreLocalVector(shell.points.dm, &shell.local)
        shell.local = NULL
    return VecDestroy(&shell.u) if code == PETSC_SUCCESS else code


cdef PetscErrorCode linearise(Shell *shell, PetscMat matrix, double t, PetscVec u) noexcept nogil:
    """Put a matrix at another point, f_u alone; it keeps u."""
    cdef PetscErrorCode code = PetscObjectReference(<PetscObject>u)
    if code == PETSC_SUCCESS:
        code = forget(shell)
    shell.u, shell.t, shell.factor, shell.shift = u, t, 1.0, 0.0
    if code == PETSC_SUCCESS and shell.points.dm != NULL:
        if shell.push.around[0] or shell.pull.around[0]:
            # Once for all products at this point.
            code = with_ghosts(shell.points, u, &shell.local)
    # Solvers see by this that the matrix is another one.
    return PetscObjectStateIncrease(<PetscObject>matrix) if code == PETSC_SUCCESS else code


cdef class Jacobian:
    """What a matrix of products needs while it is there: the point."""

    def __cinit__(self, Stencil stencil, long n_parameters):
        self.stencil = stencil
        self.p = np.zeros(max(1, n_parameters))
        self.values = self.p
        self.shell.points = &stencil.points
        self.shell.push, self.shell.pull = stencil.kernel(PUSH), stencil.kernel(PULL)
        self.shell.p, self.shell.factor = &self.values[0], 1.0

    def __dealloc__(self):
        forget(&self.shell)


ATTRIBUTE = "daeosens stencil"


def create_matrix(Stencil stencil, Vec u, long n_parameters):
    """Return f_u as a matrix that can be multiplied, scaled and shifted."""
    cdef Mat matrix = Mat()
    jacobian = Jacobian(stencil, n_parameters)
    CHKERR(shell_of(
        u.vec, <void *>&(<Jacobian>jacobian).shell, push, pull, scale, shift, &matrix.mat))
    matrix.setAttr(ATTRIBUTE, jacobian)
    return matrix


def linearise_matrix(double t, Vec u, p, Mat matrix):
    """Put a matrix at the point (t, u, p); it keeps u.  Collective."""
    cdef Jacobian jacobian = matrix.getAttr(ATTRIBUTE)
    jacobian.p[: len(p)] = p
    CHKERR(linearise(&jacobian.shell, matrix.mat, t, u.vec))


cdef PetscErrorCode rhs_function(
    PetscTS ts, PetscReal t, PetscVec u, PetscVec out, void *context
) noexcept nogil:
    cdef Equations *c = <Equations *>context
    cdef Outcome result = into(out, 1.0, NULL, 0.0)
    return evaluate(
        c.points, c.rhs, call_of(c.points, t, c.p, NULL, inputs_of(u, NULL), result))


cdef PetscErrorCode i_function(
    PetscTS ts, PetscReal t, PetscVec u, PetscVec udot, PetscVec out, void *context
) noexcept nogil:
    """udot - f."""
    cdef Equations *c = <Equations *>context
    cdef Outcome result = into(out, -1.0, udot, 1.0)
    return evaluate(
        c.points, c.rhs, call_of(c.points, t, c.p, NULL, inputs_of(u, NULL), result))


cdef PetscErrorCode i_jacobian(
    PetscTS ts, PetscReal t, PetscVec u, PetscVec udot, PetscReal shift, PetscMat matrix,
    PetscMat preconditioner, void *context
) noexcept nogil:
    """shift - f_u."""
    cdef Equations *c = <Equations *>context
    cdef PetscErrorCode code = linearise(c.shell, preconditioner, t, u)
    c.shell.factor, c.shell.shift = -1.0, shift
    # With -snes_mf_operator the operator is PETSc's own matrix of differences.
    if matrix != preconditioner and code == PETSC_SUCCESS:
        code = point_taken(matrix)
    return code


cdef class RegisteredStencil:
    """The functions of the points as those of a TS, which it must outlive.

    Parameters
    ----------
    stencil : Stencil
    p : ndarray [m]         parameters; copied
    """

    def __cinit__(self, Stencil stencil, p):
        self.stencil = stencil
        self.p = np.zeros(max(1, len(p)))
        self.values = self.p
        self.c.points, self.c.rhs = &stencil.points, stencil.kernel(RHS)
        self.c.p = &self.values[0]
        self.hold(p)

    def hold(self, p):
        """Give the functions other parameters [m]."""
        self.p[: len(p)] = p
        if self.matrix is not None:
            (<Jacobian>self.matrix).p[: len(p)] = p

    def set_rhs(self, TS ts, Vec work):
        """Let a TS take f as its right-hand side."""
        CHKERR(TSSetRHSFunction(ts.ts, work.vec, rhs_function, <void *>&self.c))

    def set_residual(self, TS ts, Vec residual, Mat matrix=None):
        """Let a TS take u' - f as its residual, with a matrix of ``create_matrix`` or its own."""
        CHKERR(TSSetIFunction(ts.ts, residual.vec, i_function, <void *>&self.c))
        if matrix is None:
            return
        self.matrix = matrix.getAttr(ATTRIBUTE)
        self.c.shell = &(<Jacobian>self.matrix).shell
        self.hold(self.p)
        CHKERR(TSSetIJacobian(ts.ts, matrix.mat, matrix.mat, i_jacobian, <void *>&self.c))

    def fault(self):
        """Return None: values that are not finite are seen in the states."""
        return None
