# cython: language_level=3
"""Explicit Runge-Kutta steps in one pass over the vectors for each stage, as a type of TS.

For methods whose stages each read the rate of the one before only.  A stage computes the next one,
where TSRK copies, evaluates and adds up; the last one needs no rates of the others to compute the
solution, U_i - u being a_i h k_{i-1}.
"""

from libc.stdlib cimport calloc, free

from daeosens.petsc._kernels.grids.stencil_ts cimport Equations, RegisteredStencil
from daeosens.petsc._kernels.grids.stencils cimport (
    MOST_STAGES, RHS, Call, Outcome, also_add, call_of, evaluate_chain, inputs_of, into
)
from petsc4py.PETSc cimport CHKERR, PETSC_SUCCESS, PetscErrorCode, PetscTS, PetscVec, TS


cdef struct Chain:
    Equations *equations
    int s
    double a[MOST_STAGES]       # below the diagonal: a[i] = a_{i,i-1}
    double b[MOST_STAGES]
    double c[MOST_STAGES]
    PetscVec stages[MOST_STAGES] # the first one is the state before the step


cdef extern from *:
    """
    #include <petsc/private/tsimpl.h>
    static PetscErrorCode type_of(
        TS ts, void *data, PetscErrorCode (*set_up)(TS), PetscErrorCode (*step)(TS),
        PetscErrorCode (*stages)(TS, PetscInt *, Vec **), PetscErrorCode (*reset)(TS),
        PetscErrorCode (*destroy)(TS))
    {
        PetscFunctionBegin;
        ts->data = data;
        ts->usessnes = PETSC_FALSE;
        ts->default_adapt_type = TSADAPTNONE;
        ts->ops->setup = set_up;
        ts->ops->step = step;
        ts->ops->getstages = stages;
        ts->ops->reset = reset;
        ts->ops->destroy = destroy;
        PetscFunctionReturn(PETSC_SUCCESS);
    }
    static void *data_of(TS ts) { return ts->data; }
    /* the end of a step: the solution and the vector that holds the new one change places */
    static void advance(TS ts, Vec *solution)
    {
        Vec before = ts->vec_sol;
        ts->vec_sol = *solution;
        *solution = before;
        ts->ptime += ts->time_step;
    }
    """
    ctypedef double PetscReal
    ctypedef int PetscInt
    ctypedef PetscErrorCode (*OfTS)(PetscTS) noexcept nogil
    ctypedef PetscErrorCode (*Stages)(PetscTS, PetscInt *, PetscVec **) noexcept nogil
    PetscErrorCode type_of(PetscTS, void *, OfTS, OfTS, Stages, OfTS, OfTS) noexcept nogil
    void *data_of(PetscTS) noexcept nogil
    void advance(PetscTS, PetscVec *) noexcept nogil
    PetscErrorCode TSRegister(const char *, OfTS)
    PetscErrorCode TSGetTime(PetscTS, PetscReal *) noexcept nogil
    PetscErrorCode TSGetTimeStep(PetscTS, PetscReal *) noexcept nogil
    PetscErrorCode TSGetSolution(PetscTS, PetscVec *) noexcept nogil
    PetscErrorCode VecDuplicate(PetscVec, PetscVec *) noexcept nogil
    PetscErrorCode VecDestroy(PetscVec *) noexcept nogil
    int PETSC_ERR_MEM


cdef PetscErrorCode set_up(PetscTS ts) noexcept nogil:
    cdef Chain *chain = <Chain *>data_of(ts)
    cdef PetscVec u = NULL
    cdef PetscErrorCode code = TSGetSolution(ts, &u)
    cdef int i
    for i in range(chain.s):
        if code == PETSC_SUCCESS:
            code = VecDuplicate(u, &chain.stages[i])
    return code


cdef PetscErrorCode step(PetscTS ts) noexcept nogil:
    cdef Chain *chain = <Chain *>data_of(ts)
    cdef PetscVec u = NULL
    cdef PetscReal t = 0.0, h = 0.0
    cdef Equations *equations = chain.equations
    cdef Call calls[MOST_STAGES]
    cdef Outcome result
    cdef double rest = 1.0
    cdef int i, k
    cdef PetscErrorCode code = TSGetSolution(ts, &u)
    if code == PETSC_SUCCESS:
        code = TSGetTime(ts, &t)
    if code == PETSC_SUCCESS:
        code = TSGetTimeStep(ts, &h)
    if code != PETSC_SUCCESS:
        return code
    for i in range(chain.s):
        if i < chain.s - 1:
            result = into(chain.stages[i + 1], h * chain.a[i + 1], u, 1.0)
            # U_{i+1} = u + a_{i+1} h k_i, so that h k_i = (U_{i+1} - u) / a_{i+1}: the new state
            # is a sum of u and the stages, and no rate is kept.
            rest -= chain.b[i] / chain.a[i + 1]
        else:
            result = into(chain.stages[0], h * chain.b[i], u, rest)
            for k in range(i):
                also_add(&result, chain.stages[k + 1], chain.b[k] / chain.a[k + 1])
        calls[i] = call_of(
            equations.points, t + chain.c[i] * h, equations.p, NULL,
            inputs_of(chain.stages[i] if i else u, NULL), result)
    code = evaluate_chain(equations.points, equations.rhs, calls, chain.s)
    advance(ts, &chain.stages[0])
    return code


cdef PetscErrorCode get_stages(PetscTS ts, PetscInt *count, PetscVec **stages) noexcept nogil:
    cdef Chain *chain = <Chain *>data_of(ts)
    if count != NULL:
        count[0] = chain.s
    if stages != NULL:
        stages[0] = chain.stages
    return PETSC_SUCCESS


cdef PetscErrorCode reset(PetscTS ts) noexcept nogil:
    cdef Chain *chain = <Chain *>data_of(ts)
    cdef PetscErrorCode code = PETSC_SUCCESS
    cdef int i
    for i in range(chain.s):
        if code == PETSC_SUCCESS:
            code = VecDestroy(&chain.stages[i])
    return code


cdef PetscErrorCode destroy(PetscTS ts) noexcept nogil:
    cdef PetscErrorCode code = reset(ts)
    free(data_of(ts))
    return code


cdef PetscErrorCode create(PetscTS ts) noexcept nogil:
    cdef Chain *chain = <Chain *>calloc(1, sizeof(Chain))
    if chain == NULL:
        return <PetscErrorCode>PETSC_ERR_MEM
    return type_of(ts, chain, set_up, step, get_stages, reset, destroy)


CHAINED = "daeosens-chained"


def set_chained(TS ts, RegisteredStencil registered, a, b, c):
    """Let a TS take the steps of a Runge-Kutta method by passes.

    The vector of its solution is another one after each step.

    Parameters
    ----------
    ts : TS                 before ``setUp``
    registered : RegisteredStencil
                            whose right-hand side it has; must live as long
    a : ndarray [s]         below the diagonal: a[i] = a_{i,i-1}, not 0; a[0] is not read; s is 2 or 4
    b, c : ndarray [s]      of the tableau
    """
    cdef Chain *chain
    registered.stencil.chain(RHS)
    CHKERR(TSRegister(CHAINED.encode(), create))
    ts.setType(CHAINED)
    chain = <Chain *>data_of(ts.ts)
    chain.equations, chain.s = &registered.c, len(b)
    for i in range(len(b)):
        chain.a[i], chain.b[i], chain.c[i] = a[i], b[i], c[i]
