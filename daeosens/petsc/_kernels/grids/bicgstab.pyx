# cython: language_level=3
"""BiCGStab in three passes over the vectors for each iteration, as a type of KSP.

For functions of a grid's points on one rank.  PETSc's KSPBCGS passes over whole vectors eight times
for what is added up and two times for products, and its preconditioner that does nothing copies;
here all that an iteration does with a few rows follows each other while a cache holds them.

Source: H. A. van der Vorst, SIAM J. Sci. Stat. Comput. 13(2), 1992.
"""

from libc.math cimport sqrt

from daeosens.petsc._kernels.filling cimport (
    PetscInt, PetscScalar, VecGetArrayRead, VecGetLocalSize, VecRestoreArrayRead
)
from daeosens.petsc._kernels.grids.stencil_ts cimport Jacobian, Shell
from daeosens.petsc._kernels.grids.stencils cimport (
    Box, Call, Iterate, IterateLoop, Kernel, Loops, Points, begin, call_of, finish, inputs_of, into
)
from petsc4py.PETSc cimport (
    CHKERR, KSP, Mat, PETSC_SUCCESS, PetscErrorCode, PetscKSP, PetscMat, PetscVec
)

from petsc4py.PETSc import PC

from daeosens.petsc._kernels.grids.stencil_ts import ATTRIBUTE


cdef enum:
    AT_ONCE = 1 << 11           # points that stay in a cache, with what an iteration knows of them


ctypedef void (*Operation)() noexcept nogil


cdef struct Solver:
    const Loops *loops
    Operation product           # of the matrices that it knows


cdef extern from *:
    """
    #include <petsc/private/kspimpl.h>
    static PetscErrorCode set_up(KSP ksp)
    {
        PetscFunctionBegin;
        PetscCall(KSPSetWorkVecs(ksp, 5));
        PetscFunctionReturn(PETSC_SUCCESS);
    }
    static PetscErrorCode type_of(KSP ksp, PetscErrorCode (*solve)(KSP), size_t size)
    {
        PetscFunctionBegin;
        PetscCall(PetscMalloc(size, &ksp->data));
        ksp->ops->setup = set_up;
        ksp->ops->solve = solve;
        ksp->ops->destroy = KSPDestroyDefault;
        ksp->ops->buildsolution = KSPBuildSolutionDefault;
        ksp->ops->buildresidual = KSPBuildResidualDefault;
        PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_PRECONDITIONED, PC_LEFT, 3));
        PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_UNPRECONDITIONED, PC_RIGHT, 2));
        PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_NONE, PC_LEFT, 1));
        PetscFunctionReturn(PETSC_SUCCESS);
    }
    static void *data_of(KSP ksp) { return ksp->data; }
    static Vec *work_of(KSP ksp) { return ksp->work; }
    static PetscErrorCode product_of(Mat matrix, void (**product)(void))
    {
        PetscFunctionBegin;
        PetscCall(MatShellGetOperation(matrix, MATOP_MULT, product));
        PetscFunctionReturn(PETSC_SUCCESS);
    }
    /* what the operator multiplies with: it may be another matrix than that of the last solve */
    static PetscErrorCode context_of(KSP ksp, void (*known)(void), void *context)
    {
        Mat matrix;
        void (*product)(void) = NULL;
        PetscFunctionBegin;
        PetscCall(KSPGetOperators(ksp, &matrix, NULL));
        PetscCall(product_of(matrix, &product));
        PetscCheck(product == known, PetscObjectComm((PetscObject)ksp), PETSC_ERR_ARG_WRONG,
            "the operator is not a matrix of compiled points");
        PetscCall(MatShellGetContext(matrix, context));
        PetscFunctionReturn(PETSC_SUCCESS);
    }
    static int transposed(KSP ksp) { return ksp->transpose_solve; }
    /* the first residual, which is the first direction, and its norm; ``shadow``: a copy that stays */
    static PetscErrorCode start(KSP ksp, Vec r, Vec p, Vec *shadow, double *norm)
    {
        Mat matrix;
        PetscFunctionBegin;
        PetscCall(VecCopy(ksp->vec_rhs, r));
        if (!ksp->guess_zero) {
            PetscCall(KSPGetOperators(ksp, &matrix, NULL));
            PetscCall(KSP_MatMult(ksp, matrix, ksp->vec_sol, *shadow));
            PetscCall(VecAXPY(r, -1.0, *shadow));
            PetscCall(VecCopy(r, *shadow));
        } else *shadow = ksp->vec_rhs;
        PetscCall(VecCopy(r, p));
        PetscCall(VecNorm(r, NORM_2, norm));
        PetscFunctionReturn(PETSC_SUCCESS);
    }
    /* whether the iterations go on */
    static PetscErrorCode report(KSP ksp, PetscInt its, double norm, int *goes_on)
    {
        PetscFunctionBegin;
        ksp->its = its;
        ksp->rnorm = ksp->normtype == KSP_NORM_NONE ? 0.0 : norm;
        PetscCall(KSPLogResidualHistory(ksp, ksp->rnorm));
        PetscCall(KSPMonitor(ksp, its, ksp->rnorm));
        PetscCall((*ksp->converged)(ksp, its, ksp->rnorm, &ksp->reason, ksp->cnvP));
        if (!ksp->reason && its >= ksp->max_it) ksp->reason = KSP_DIVERGED_ITS;
        *goes_on = !ksp->reason;
        PetscFunctionReturn(PETSC_SUCCESS);
    }
    """
    ctypedef PetscErrorCode (*OfKSP)(PetscKSP) noexcept nogil
    PetscErrorCode type_of(PetscKSP, OfKSP, size_t) noexcept nogil
    void *data_of(PetscKSP) noexcept nogil
    PetscVec *work_of(PetscKSP) noexcept nogil
    PetscErrorCode product_of(PetscMat, Operation *) noexcept nogil
    PetscErrorCode context_of(PetscKSP, Operation, void *) noexcept nogil
    int transposed(PetscKSP) noexcept nogil
    PetscErrorCode start(PetscKSP, PetscVec, PetscVec, PetscVec *, double *) noexcept nogil
    PetscErrorCode report(PetscKSP, PetscInt, double, int *) noexcept nogil
    PetscErrorCode KSPRegister(const char *, OfKSP)
    PetscErrorCode KSPGetSolution(PetscKSP, PetscVec *) noexcept nogil
    PetscErrorCode VecGetArray(PetscVec, PetscScalar **) noexcept nogil
    PetscErrorCode VecRestoreArray(PetscVec, PetscScalar **) noexcept nogil


cdef void sweep(
    const Kernel *kernel, Box *box, long size, Iterate *iterate, IterateLoop before,
    IterateLoop after
) noexcept nogil:
    """Call a product at all places, each of ``size`` numbers, ``before`` ahead and ``after`` behind.

    It begins ``reach`` places later, and goes around: there its neighbours are known first.
    """
    cdef long slows = box.n[2], ahead = 0, done, first, end
    cdef long several = max(1, AT_ONCE // (box.n[0] * box.n[1]))
    iterate.sums[0] = iterate.sums[1] = 0.0
    box.begin, box.end_place = kernel.reach % slows, 0
    while box.end_place < slows:
        done, ahead = ahead, min(slows, ahead + several)
        if before != NULL:
            before(iterate, done * size, ahead * size)
        box.first_place = box.end_place
        # A place is ready where the values around it, reach to either side, have been updated;
        # the last turn takes all that is left.
        box.end_place = slows if ahead == slows else max(box.end_place, ahead - 2 * kernel.reach)
        kernel.call(box)
        first, end = box.begin + box.first_place, box.begin + box.end_place
        after(iterate, first * size, min(end, slows) * size)
        # Beyond the last place it goes on with the first ones.
        if end > slows:
            after(iterate, (max(first, slows) - slows) * size, (end - slows) * size)


cdef PetscErrorCode iterate(
    PetscKSP ksp, const Loops *loops, const Kernel *kernel, Box *of_p, Box *of_r, Iterate *it,
    long size, double norm
) noexcept nogil:
    """Improve the solution until the solver is content; ``norm`` is that of the first residual."""
    cdef double rho = norm * norm, before
    cdef PetscInt number = 0
    cdef int goes_on = 0
    cdef PetscErrorCode code = report(ksp, number, norm, &goes_on)
    while code == PETSC_SUCCESS and goes_on:
        # First pass: p = r + beta (p - omega v), v = A p and (shadow, v).
        sweep(kernel, of_p, size, it, loops.turn if number else NULL, loops.weigh)
        # of a residual that is zero nothing is left to improve
        it.alpha = rho / it.sums[0] if it.sums[0] else 0.0
        # Second pass: r = r - alpha v, t = A r, (t, r) and (t, t).
        sweep(kernel, of_r, size, it, loops.reduce, loops.compare)
        it.omega = it.sums[0] / it.sums[1] if it.sums[1] else 0.0
        it.sums[0] = it.sums[1] = 0.0
        # Third pass: x and r are updated; (shadow, r) and |r|^2 for the next direction and for
        # the norm.
        loops.advance(it, 0, size * of_p.n[2])
        before, rho = rho, it.sums[0]
        it.beta = rho / before * it.alpha / it.omega if before and it.omega else 0.0
        number += 1
        code = report(ksp, number, sqrt(it.sums[1]), &goes_on)
    return code


cdef PetscErrorCode solve(PetscKSP ksp) noexcept nogil:
    cdef Solver *solver = <Solver *>data_of(ksp)
    cdef Shell *shell = NULL
    cdef Points *points
    cdef const Kernel *kernel
    cdef PetscVec *work = work_of(ksp)
    cdef PetscVec x = NULL, shadow = work[4]
    cdef PetscVec r = work[0], p = work[1], v = work[2], t = work[3]
    cdef Call of_p, of_r
    cdef Iterate it
    cdef double norm = 0.0
    cdef PetscInt count = 0
    cdef PetscErrorCode code = context_of(ksp, solver.product, &shell)
    if code != PETSC_SUCCESS:
        return code
    points, kernel = shell.points, shell.pull if transposed(ksp) else shell.push
    code = start(ksp, r, p, &shadow, &norm)
    if code == PETSC_SUCCESS:
        code = KSPGetSolution(ksp, &x)
    if code == PETSC_SUCCESS:
        code = VecGetLocalSize(x, &count)
    if code == PETSC_SUCCESS:
        code = VecGetArray(x, &it.x)
    if code == PETSC_SUCCESS:
        code = VecGetArrayRead(shadow, &it.shadow)
    if code == PETSC_SUCCESS:
        code = begin_product(shell, kernel, p, v, &of_p)
    if code == PETSC_SUCCESS:
        code = begin_product(shell, kernel, r, t, &of_r)
    if code != PETSC_SUCCESS:
        return code
    it.p, it.v = <double *>of_p.box.input[1], of_p.box.out
    it.r, it.t = <double *>of_r.box.input[1], of_r.box.out
    code = iterate(
        ksp, solver.loops, kernel, &of_p.box, &of_r.box, &it, count // points.box.n[2], norm)
    if code == PETSC_SUCCESS:
        code = finish(points, kernel, &of_r)
    if code == PETSC_SUCCESS:
        code = finish(points, kernel, &of_p)
    if code == PETSC_SUCCESS:
        code = VecRestoreArrayRead(shadow, &it.shadow)
    return VecRestoreArray(x, &it.x) if code == PETSC_SUCCESS else code


cdef PetscErrorCode begin_product(
    Shell *shell, const Kernel *kernel, PetscVec of, PetscVec out, Call *call
) noexcept nogil:
    """Prepare the matrix's product with a vector."""
    call[0] = call_of(
        shell.points, shell.t, shell.p, NULL, inputs_of(shell.u, of),
        into(out, shell.factor, of if shell.shift else NULL, shell.shift))
    return begin(shell.points, kernel, call)


cdef PetscErrorCode create(PetscKSP ksp) noexcept nogil:
    return type_of(ksp, solve, sizeof(Solver))


BICGSTAB = "daeosens-bicgstab"


def take_passes(KSP ksp, Mat matrix):
    """Let a solver that is BiCGStab without preconditioner take fewer passes over the vectors.

    Does nothing for other solvers, on several ranks, without compiled loops, and for other matrices
    than those of ``create_matrix``.

    Parameters
    ----------
    ksp : KSP               with its options, before it is set up
    matrix : Mat            its operator; another one of the same problem may follow
    """
    cdef Jacobian jacobian = matrix.getAttr(ATTRIBUTE)
    cdef Solver *solver
    if jacobian is None or jacobian.shell.points.dm != NULL or jacobian.stencil.loops.turn == NULL:
        return
    if ksp.getType() != KSP.Type.BCGS or ksp.getPC().getType() != PC.Type.NONE:
        return
    CHKERR(KSPRegister(BICGSTAB.encode(), create))
    ksp.setType(BICGSTAB)
    solver = <Solver *>data_of(ksp.ksp)
    solver.loops = &jacobian.stencil.loops
    CHKERR(product_of(matrix.mat, &solver.product))
