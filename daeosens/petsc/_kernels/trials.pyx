# cython: language_level=3
"""Trial steps that leave the domain of the equations; signatures and types in trials.pyi.

Where an error estimate chooses the steps, TS takes a trial step that gives values that are not
finite for one with too large an error, and tries a smaller one.  PETSc 3.26 stops with an error, and
comes back to the state before an explicit step by subtraction: with NaN never, and else with the
rounding of the trial.
"""

from petsc4py.PETSc cimport CHKERR, PETSC_ERR_USER, PETSC_SUCCESS, PetscErrorCode, PetscTS, TS


cdef extern from *:
    """
    #include <petsc/private/tsimpl.h>
    #define HOPELESS 1e100 /* an error that no adaptor accepts, and of which powers can be taken */

    /* of no further stage of an attempt that has left the domain, unless other ranks wait for this
       one: they learn of it by the error estimate */
    static PetscErrorCode left_domain(TS ts, PetscReal t, Vec u, PetscBool *accept)
    {
        PetscMPIInt ranks;
        PetscFunctionBegin;
        PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ts), &ranks));
        if (ranks > 1) PetscFunctionReturn(PETSC_SUCCESS);
        *accept = PETSC_FALSE;
        ts->functiondomainerror = NULL;
        PetscFunctionReturn(PETSC_SUCCESS);
    }

    /* Smaller steps may help where their sizes are chosen, but not at their common start.  A value
       that is not finite goes on into Newton's method, whose line search may come back from it. */
    static PetscBool leave_domain(TS ts, PetscReal t, PetscBool jacobian)
    {
        PetscBool fixed = PETSC_TRUE;
        if (ts->adapt) (void)PetscObjectTypeCompare((PetscObject)ts->adapt, TSADAPTNONE, &fixed);
        if (fixed || t == ts->ptime) return PETSC_FALSE;
        if (!ts->usessnes) ts->functiondomainerror = left_domain;
        else if (jacobian) (void)SNESSetJacobianDomainError(ts->snes);
        return PETSC_TRUE;
    }

    static PetscErrorCode before_stage(TS ts, PetscReal t)
    {
        PetscFunctionBegin;
        if (t == ts->ptime && ts->time_step != ts->time_step0) PetscCall(VecCopy(ts->vec_sol0, ts->vec_sol));
        PetscFunctionReturn(PETSC_SUCCESS);
    }

    /* the estimate of explicit steps, as TSAdapt makes it; HOPELESS where it is not finite */
    static PetscErrorCode estimate(TS ts, NormType type, PetscInt *order, PetscReal *error)
    {
        const PetscInt left = ts->functiondomainerror == left_domain;
        PetscReal norm_a, norm_r, rate = 0.0;
        PetscInt size, count, count_a, count_r;
        Vec other;
        DM dm;
        PetscFunctionBegin;
        ts->functiondomainerror = NULL;
        *order = ts->adapt->candidates.order[0];
        PetscCall(TSGetDM(ts, &dm));
        PetscCall(DMGetGlobalVector(dm, &other));
        PetscCall(TSEvaluateStep(ts, *order - 1, other, NULL));
        if (left) PetscCall(VecFlag(other, left));
        PetscCall(VecErrorWeightedNorms(
            ts->vec_sol, other, NULL, type, ts->atol, ts->vatol, ts->rtol, ts->vrtol,
            ts->adapt->ignore_max, error, &count, &norm_a, &count_a, &norm_r, &count_r));
        if (type == NORM_2 && count) *error = PetscSqrtReal(PetscSqr(*error) / count);
        PetscCall(VecGetSize(other, &size));
        if (type != NORM_2 || count < size) PetscCall(VecNorm(other, NORM_2, &rate)); /* these ignore NaN */
        if (PetscIsInfOrNanReal(*error + rate)) {
            *error = HOPELESS;
            if (ts->time_step > 1e-20 * (ts->max_time - ts->ptime)) {
                PetscCall(TSComputeRHSFunction(ts, ts->ptime, ts->vec_sol0, other));
                PetscCall(VecNorm(other, NORM_2, &rate));
            } else rate = PETSC_INFINITY;
        } else rate = 0.0;
        PetscCall(DMRestoreGlobalVector(dm, &other));
        PetscCheck(!PetscIsInfOrNanReal(rate), PetscObjectComm((PetscObject)ts), PETSC_ERR_FP, "not finite at the start of a step, or however small it is");
        PetscFunctionReturn(PETSC_SUCCESS);
    }

    typedef PetscErrorCode (*Choose)(
        TSAdapt, TS, PetscReal, PetscInt *, PetscReal *, PetscBool *, PetscReal *, PetscReal *, PetscReal *);
    static Choose basic = NULL; /* PETSc's own, of that name */

    /* the next trial is as small wherever the values were that are not finite; its size is the
       difference of two times, which is what the log can know of it once it is accepted */
    static PetscErrorCode choose(
        TSAdapt adapt, TS ts, PetscReal h, PetscInt *scheme, PetscReal *next, PetscBool *accept,
        PetscReal *error, PetscReal *error_a, PetscReal *error_r)
    {
        PetscFunctionBegin;
        PetscCall((*basic)(adapt, ts, h, scheme, next, accept, error, error_a, error_r));
        if (*error == HOPELESS) *next = h * adapt->scale_solve_failed;
        if (!*accept) {
            const PetscReal rounded = ts->ptime + *next - ts->ptime;
            if (rounded > 0.0) *next = rounded;
        }
        PetscFunctionReturn(PETSC_SUCCESS);
    }

    /* PETSc 3.26 takes a Newton step to values that are not finite for convergence where the norms of
       the line search, which are those of an earlier solve, say so */
    static PetscErrorCode before_solve(TS ts, PetscReal t)
    {
        PetscBool searches;
        SNESLineSearch search;
        PetscFunctionBegin;
        PetscCall(PetscObjectTypeCompare((PetscObject)ts->snes, SNESNEWTONLS, &searches));
        if (!searches) PetscFunctionReturn(PETSC_SUCCESS);
        PetscCall(SNESGetLineSearch(ts->snes, &search));
        PetscCall(SNESLineSearchSetNorms(search, 0.0, 0.0, 1.0));
        PetscFunctionReturn(PETSC_SUCCESS);
    }

    static PetscErrorCode survive(TS ts)
    {
        PetscBool fixed, is_basic;
        PetscMPIInt ranks;
        TSAdapt adapt;
        SNES snes;
        PetscFunctionBegin;
        if (ts->usessnes) PetscCall(TSSetPreStage(ts, before_solve));
        PetscCall(TSGetAdapt(ts, &adapt));
        PetscCall(PetscObjectTypeCompare((PetscObject)adapt, TSADAPTNONE, &fixed));
        if (fixed) PetscFunctionReturn(PETSC_SUCCESS);
        PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ts), &ranks));
        PetscCall(PetscObjectTypeCompare((PetscObject)adapt, TSADAPTBASIC, &is_basic));
        if (is_basic && adapt->ops->choose != choose) {
            basic = adapt->ops->choose;
            adapt->ops->choose = choose;
        }
        if (!ts->usessnes) {
            ts->ops->evaluatewlte = estimate;
            PetscCall(TSSetPreStage(ts, before_stage));
        } else if (ranks == 1) {
            PetscCall(TSGetSNES(ts, &snes));
            PetscCall(SNESSetCheckJacobianDomainError(snes, PETSC_TRUE));
        }
        PetscFunctionReturn(PETSC_SUCCESS);
    }

    static PetscErrorCode accept_any(
        TSAdapt adapt, TS ts, PetscReal h, PetscInt *scheme, PetscReal *next, PetscBool *accept,
        PetscReal *error, PetscReal *error_a, PetscReal *error_r)
    {
        PetscFunctionBegin;
        *next   = h;
        *accept = PETSC_TRUE;
        PetscFunctionReturn(PETSC_SUCCESS);
    }

    /* a step of the size that TS has, or none */
    static PetscErrorCode step_of_size(TS ts)
    {
        TSAdapt adapt;
        Choose chosen;
        PetscInt most = ts->max_reject;
        PetscErrorCode code;
        PetscFunctionBegin;
        PetscCall(TSGetAdapt(ts, &adapt));
        chosen = adapt->ops->choose;
        adapt->ops->choose = accept_any;
        ts->max_reject = 0;
        code = TSStep(ts);
        adapt->ops->choose = chosen;
        ts->max_reject = most;
        PetscFunctionReturn(code);
    }

    static PetscReal smallest(TS ts)
    {
        return ts->time_step == ts->time_step0 ? 0.0 : ts->time_step;
    }
    """
    bint leave_domain(PetscTS, double, bint) noexcept nogil
    PetscErrorCode survive(PetscTS) noexcept nogil
    PetscErrorCode step_of_size(PetscTS) noexcept nogil
    double smallest(PetscTS) noexcept nogil


cdef PetscErrorCode leave(PetscTS ts, double t) noexcept nogil:
    return PETSC_SUCCESS if leave_domain(ts, t, False) else PETSC_ERR_USER


cdef PetscErrorCode leave_jacobian(PetscTS ts, double t) noexcept nogil:
    return PETSC_SUCCESS if leave_domain(ts, t, True) else PETSC_ERR_USER


def reject_trial(TS ts, double t, *, bint jacobian=False):
    """Tell a TS that a rate, or a Jacobian, at ``t`` is not finite; return whether it tries again.

    It does not where steps are fixed, and at the start of a step.
    """
    return leave_domain(ts.ts, t, jacobian)


def survive_trials(TS ts):
    """Let a TS whose steps an error estimate chooses survive trial steps; after its options."""
    CHKERR(survive(ts.ts))


def take_step(TS ts):
    """Take one step of the size that a TS has, without regard to error estimates.

    It fails where Newton's method does: then the time of the TS stays, and smaller steps are not
    tried.
    """
    CHKERR(step_of_size(ts.ts))


def smallest_trial(TS ts):
    """Return the size of the step that was tried last; 0 where it is the first one."""
    return smallest(ts.ts)
