/* What the types of TS that step on plain numbers have in common: how they are made, and stages. */
#pragma once

#include <petsc/private/tsimpl.h>

/* Vectors for TS, numbers for the steps: the first member of what such a TS keeps. */
typedef struct {
  PetscInt    count;
  Vec        *vecs;
  PetscReal **values; /* [count] of [n] */
} Stages;

static inline PetscErrorCode PlainStagesCreate(TS ts, long count)
{
  Stages *stages = (Stages *)ts->data;

  PetscFunctionBegin;
  stages->count = (PetscInt)count;
  PetscCall(VecDuplicateVecs(ts->vec_sol, stages->count, &stages->vecs));
  PetscCall(VecGetArrays(stages->vecs, stages->count, &stages->values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static inline PetscErrorCode PlainStagesDestroy(TS ts)
{
  Stages *stages = (Stages *)ts->data;

  PetscFunctionBegin;
  if (!stages->vecs) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecRestoreArrays(stages->vecs, stages->count, &stages->values));
  PetscCall(VecDestroyVecs(stages->count, &stages->vecs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static inline PetscErrorCode PlainGetStages(TS ts, PetscInt *count, Vec **vecs)
{
  Stages *stages = (Stages *)ts->data;

  PetscFunctionBegin;
  if (count) *count = stages->count;
  if (vecs) *vecs = stages->vecs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static inline PetscErrorCode PlainDestroy(TS ts)
{
  PetscFunctionBegin;
  PetscUseTypeMethod(ts, reset);
  PetscCall(PetscFree(ts->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The size of the next trial after one to a value that is not finite at ``t``: an error where steps are
   fixed, and where that value is at the start of them all. */
static inline PetscErrorCode PlainRetry(TS ts, PetscReal t, PetscReal *next)
{
  PetscBool fixed;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)ts->adapt, TSADAPTNONE, &fixed));
  if (fixed || t == ts->ptime) PetscFunctionReturn(PETSC_ERR_USER);
  *next = ts->ptime + ts->time_step * ts->adapt->scale_solve_failed - ts->ptime; /* as the log knows it */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ``size`` is that of what the TS keeps, which is zero at first */
static inline PetscErrorCode PlainCreate(
  TS ts,
  size_t size,
  PetscErrorCode (*set_up)(TS),
  PetscErrorCode (*step)(TS),
  PetscErrorCode (*roll_back)(TS),
  PetscErrorCode (*evaluate_step)(TS, PetscInt, Vec, PetscBool *),
  PetscErrorCode (*reset)(TS))
{
  PetscFunctionBegin;
  PetscCall(PetscCalloc(size, &ts->data));
  ts->ops->setup         = set_up;
  ts->ops->step          = step;
  ts->ops->rollback      = roll_back;
  ts->ops->evaluatestep  = evaluate_step;
  ts->ops->getstages     = PlainGetStages;
  ts->ops->reset         = reset;
  ts->ops->destroy       = PlainDestroy;
  ts->usessnes           = PETSC_FALSE;
  ts->default_adapt_type = TSADAPTBASIC;
  PetscFunctionReturn(PETSC_SUCCESS);
}
