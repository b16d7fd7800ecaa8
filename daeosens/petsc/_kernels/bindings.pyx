# cython: language_level=3
"""Functions of libpetsc that petsc4py 3.26 does not offer; signatures and types in bindings.pyi."""

import numpy as np

from petsc4py.PETSc cimport (
    CHKERR, PC, TS, PetscErrorCode, PetscPC, PetscTS, PetscVec, Vec
)

from petsc4py import PETSc

from daeosens.errors import InputError


cdef extern from "petscts.h" nogil:
    # Typed loosely on purpose: the C compiler takes the true widths from PETSc's own header.
    ctypedef int PetscInt
    ctypedef double PetscReal
    ctypedef bint PetscBool
    PetscErrorCode TSRKGetTableau(
        PetscTS, PetscInt *, const PetscReal **, const PetscReal **, const PetscReal **,
        const PetscReal **, PetscInt *, const PetscReal **, PetscBool *)
    PetscErrorCode TSRKGetOrder(PetscTS, PetscInt *)
    PetscErrorCode TSRKRegister(
        const char *, PetscInt, PetscInt, const PetscReal *, const PetscReal *, const PetscReal *,
        const PetscReal *, PetscInt, const PetscReal *)
    PetscErrorCode TSGetStages(PetscTS, PetscInt *, PetscVec **)
    PetscErrorCode PetscObjectReference(void *)


cdef extern from "petscvec.h" nogil:
    ctypedef double PetscScalar
    PetscErrorCode VecDuplicate(PetscVec, PetscVec *)
    PetscErrorCode VecGetArrayRead(PetscVec, const PetscScalar **)
    PetscErrorCode VecRestoreArrayRead(PetscVec, const PetscScalar **)
    PetscErrorCode VecPlaceArray(PetscVec, const PetscScalar *)
    PetscErrorCode VecLockReadPush(PetscVec)
    PetscErrorCode PetscObjectCompose(void *, const char *, void *)


cdef extern from "petscsys.h" nogil:
    ctypedef void *MPI_Comm
    MPI_Comm PETSC_COMM_SELF, PETSC_COMM_WORLD
    int MPI_Comm_size(MPI_Comm, int *)
    PetscErrorCode PetscCommDuplicate(MPI_Comm, MPI_Comm *, void *)
    PetscErrorCode PetscOptionsGetAll(void *, char **)
    PetscErrorCode PetscFree(void *)


cdef extern from "petscpc.h" nogil:
    PetscErrorCode PCApplyTransposeExists(PetscPC, PetscBool *)
    PetscErrorCode PCCompositeGetNumberPC(PetscPC, PetscInt *)



cdef extern from *:
    """
    #include <petsc/private/tsimpl.h>
    /* PETSc 3.26 sums the solution in another order than the last stage, to another last digit: the
       rate that the next step takes over is then not that of the state which it begins at */
    static PetscErrorCode (*evaluate_step_of_rk)(TS, PetscInt, Vec, PetscBool *) = NULL;
    static PetscErrorCode evaluate_last_stage(TS ts, PetscInt order, Vec out, PetscBool *done)
    {
      PetscInt own, count;
      Vec     *stages;
      PetscFunctionBegin;
      PetscCall(TSRKGetOrder(ts, &own));
      if (order != own) {
        PetscCall(evaluate_step_of_rk(ts, order, out, done));
        PetscFunctionReturn(PETSC_SUCCESS);
      }
      PetscCall(TSGetStages(ts, &count, &stages));
      PetscCall(VecCopy(stages[count - 1], out));
      if (done) *done = PETSC_TRUE;
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    static void EndAtLastStage(TS ts)
    {
      if (ts->ops->evaluatestep == evaluate_last_stage) return;
      evaluate_step_of_rk = ts->ops->evaluatestep;
      ts->ops->evaluatestep = evaluate_last_stage;
    }
    """
    void EndAtLastStage(PetscTS) nogil


def end_at_last_stage(TS ts):
    """Let a TS of type "rk", of a tableau whose last stage is the solution, end its steps with it.

    The rate of the last stage, which the next step takes over, is then that of the state which the
    next step begins at, to the last digit: a run that begins there takes the same steps.
    """
    if rk_tableau(ts)[5]:
        EndAtLastStage(ts.ts)


def no_options():
    """Return whether PETSc's options database is empty; quicker than asking for all of it.

    Not collective.
    """
    cdef char *text = NULL
    CHKERR(PetscOptionsGetAll(NULL, &text))
    cdef bint empty = text[0] == 0
    CHKERR(PetscFree(text))
    return empty


cdef object copy_of(const PetscReal *values, Py_ssize_t count):
    return np.array([values[i] for i in range(count)], dtype=np.float64)


def register_rk(str name, int order, double[:, ::1] a, double[::1] b, double[::1] b_embedded):
    """Make a Butcher tableau known as a type of TSRK, by its name; dense output is linear.

    Not collective.  PETSc copies what it is given.

    Parameters
    ----------
    name : str              the new type; one that is known already is replaced
    order : int             of the solution
    a : array [s, s]        strictly lower triangular
    b, b_embedded : array [s]
                            weights of the solution and of the error estimate's companion
    """
    cdef bytes text = name.encode()
    cdef Py_ssize_t s = a.shape[0]
    CHKERR(TSRKRegister(
        text, order, <PetscInt>s, &a[0, 0], &b[0], NULL, &b_embedded[0], 1, &b[0]))


def rk_tableau(TS ts):
    """Read the Butcher tableau of a TS of type "rk"; a custom one of TSRKRegister too.

    Not collective.

    Parameters
    ----------
    ts : TS                 of type "rk"; ``setUp`` is not needed

    Returns
    -------
    a : ndarray [s, s]      strictly lower triangular
    b : ndarray [s]         weights of the solution
    c : ndarray [s]         abscissae
    b_embedded : ndarray [s] or None
                            weights of the error estimate's companion; None where there is none
    order : int             of the solution
    fsal : bool             the last stage is evaluated at the new solution (first same as last)

    Raises
    ------
    InputError              the TS is of another type
    """
    if ts.getType() != PETSc.TS.Type.RK:
        raise InputError(
            f"rk_tableau: the TS is of type {ts.getType()!r}",
            expected="'rk'",
            remedy="ts.setType('rk')",
        )
    cdef PetscInt n_stages = 0, order = 0
    cdef PetscBool fsal = False
    cdef const PetscReal *a = NULL
    cdef const PetscReal *b = NULL
    cdef const PetscReal *c = NULL
    cdef const PetscReal *b_embedded = NULL
    # The count TSRKGetTableau returns as "p" is the interpolant's, not the order of the method.
    CHKERR(TSRKGetTableau(ts.ts, &n_stages, &a, &b, &c, &b_embedded, NULL, NULL, &fsal))
    CHKERR(TSRKGetOrder(ts.ts, &order))
    if fsal:
        # PETSc 3.26 sums a row for it, 1 - 2e-16 for "5dp": the rate that the next step takes over
        # would be that of another time than the one it begins at, and differ from a run begun there
        (<PetscReal *>c)[n_stages - 1] = 1.0
    return (
        copy_of(a, n_stages * n_stages).reshape(n_stages, n_stages),
        copy_of(b, n_stages),
        copy_of(c, n_stages),
        copy_of(b_embedded, n_stages) if b_embedded != NULL else None,
        int(order),
        bool(fsal),
    )


def stages(TS ts):
    """List the stage values of the last step: views of PETSc's own vectors, not copies.

    They hold the stages of the step just taken and are overwritten by the next one; copy what is
    to be kept.  Empty before ``ts.setUp()`` and for types without stages.  Not collective.

    Parameters
    ----------
    ts : TS                 after at least one step

    Returns
    -------
    list of Vec [n]         in the order of the tableau's rows
    """
    cdef PetscInt n_stages = 0, i
    cdef PetscVec *values = NULL
    cdef Vec view
    CHKERR(TSGetStages(ts.ts, &n_stages, &values))
    views = []
    if values == NULL:
        return views
    for i in range(n_stages):
        view = Vec()
        CHKERR(PetscObjectReference(<void *>values[i]))
        view.vec = values[i]
        views.append(view)
    return views


cdef int keep_communicators() except -1:
    """Never let go of PETSc's duplicates of the communicators of one rank.

    Otherwise each goes with its last object, also where Python collects garbage inside mpi4py 4.1,
    which then waits for ever for a lock of its own: the one that guards its tables of communicators
    is held while it makes a new one, and asked for when a communicator is freed.
    """
    cdef MPI_Comm kept
    cdef int size = 0
    CHKERR(PetscCommDuplicate(PETSC_COMM_SELF, &kept, NULL))
    MPI_Comm_size(PETSC_COMM_WORLD, &size)
    if size == 1:  # objects of several ranks are never destroyed by the garbage collector
        CHKERR(PetscCommDuplicate(PETSC_COMM_WORLD, &kept, NULL))
    return 0


keep_communicators()


def lock_onto(Vec view, Vec vec):
    """Make an empty ``view`` a vector that shares the numbers of another one, and is locked.

    PETSc refuses to write through it; it keeps the other vector.  Collective.
    """
    cdef const PetscScalar *numbers = NULL
    CHKERR(VecDuplicate(vec.vec, &view.vec))
    CHKERR(VecGetArrayRead(vec.vec, &numbers))
    CHKERR(VecPlaceArray(view.vec, numbers))
    CHKERR(VecRestoreArrayRead(vec.vec, &numbers))
    CHKERR(PetscObjectCompose(view.vec, b"daeosens_shared", vec.vec))
    CHKERR(VecLockReadPush(view.vec))


def has_transpose(PC pc):
    """Whether a preconditioner can be applied transposed, apart from solvers in it; not collective.

    SOR can for symmetric matrices alone, which does not count here.
    """
    cdef PetscBool exists = False
    cdef PetscInt count = 0
    kind = pc.getType()
    if kind == PETSc.PC.Type.COMPOSITE:
        CHKERR(PCCompositeGetNumberPC(pc.pc, &count))
        if not all(has_transpose(pc.getCompositePC(k)) for k in range(count)):
            return False
    CHKERR(PCApplyTransposeExists(pc.pc, &exists))
    return bool(exists) and kind not in (PETSc.PC.Type.SOR, PETSc.PC.Type.EISENSTAT)
