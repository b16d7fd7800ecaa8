/* The type of TS that takes the steps of dense_steps.c. */
#include "dense_steps.h"
#include "plain_ts.h"

#include <string.h>

typedef struct {
  Stages       stages;
  DenseSystem *system;
  DenseWork    work;
} Dense;

static PetscErrorCode step(TS ts)
{
  Dense     *d          = (Dense *)ts->data;
  DenseWork  w          = d->work;
  PetscInt   rejections = 0;
  PetscBool  accept     = PETSC_TRUE; /* TSAdapt asks for that of the attempt before */
  PetscReal *u;

  PetscFunctionBegin;
  PetscCall(VecGetArray(ts->vec_sol, &u));
  memcpy(w->start, u, (size_t)d->system->n * sizeof(double));
  PetscCall(VecRestoreArray(ts->vec_sol, &u));
  while (!ts->reason) {
    TSAdapt   adapt;
    PetscReal next   = ts->time_step;
    const int before = d->system->fault; /* of a trial that was survived */
    PetscBool solved, finite;
    PetscCall(TSGetAdapt(ts, &adapt));
    w->iterations    = 0;
    d->system->fault = 0;
    solved           = DenseTakeStages(w, ts->ptime, ts->time_step);
    finite           = d->system->fault ? PETSC_FALSE : PETSC_TRUE;
    if (finite) d->system->fault = before;
    ts->snes_its += (PetscInt)w->iterations;
    if (d->system->raised && *d->system->raised) PetscFunctionReturn(PETSC_ERR_USER);
    if (solved) {
      PetscCall(VecCopy(d->stages.vecs[d->system->s - 1], ts->vec_sol));
      PetscCall(TSAdaptCandidatesClear(adapt));
      PetscCall(TSAdaptCandidateAdd(adapt, NULL, d->system->order, 1, 1.0, (PetscReal)d->system->s, PETSC_TRUE));
      PetscCall(TSAdaptChoose(adapt, ts, ts->time_step, NULL, &next, &accept));
    } else if (!finite) {
      accept = PETSC_FALSE;
      /* right of a breakpoint the start is seen at another time */
      const PetscBool at_start = (PetscBool)(d->system->fault_t == seen_time(&d->system->breakpoints, ts->ptime));
      PetscCall(PlainRetry(ts, at_start ? ts->ptime : d->system->fault_t, &next));
    } else {
      accept = PETSC_FALSE;
      next *= adapt->scale_solve_failed;
      if (++ts->num_snes_failures >= ts->max_snes_failures && ts->max_snes_failures != PETSC_UNLIMITED) ts->reason = TS_DIVERGED_NONLINEAR_SOLVE;
    }
    if (accept) {
      ts->ptime += ts->time_step;
      ts->time_step = next;
      break;
    }
    PetscUseTypeMethod(ts, rollback);
    ts->time_step = ts->ptime + next - ts->ptime; /* the difference of two times, which the log keeps */
    ts->reject++;
    if (!ts->reason && ++rejections > ts->max_reject && ts->max_reject != PETSC_UNLIMITED) ts->reason = TS_DIVERGED_STEP_REJECTED;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode roll_back(TS ts)
{
  Dense     *d = (Dense *)ts->data;
  PetscReal *u;

  PetscFunctionBegin;
  PetscCall(VecGetArrayWrite(ts->vec_sol, &u));
  memcpy(u, d->work->start, (size_t)d->system->n * sizeof(double));
  PetscCall(VecRestoreArrayWrite(ts->vec_sol, &u));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode evaluate_step(TS ts, PetscInt order, Vec out, PetscBool *done)
{
  Dense       *d      = (Dense *)ts->data;
  DenseSystem *system = d->system;
  PetscReal   *u;

  PetscFunctionBegin;
  if (done) *done = PETSC_TRUE;
  if (order == system->order) {
    PetscCall(VecCopy(d->stages.vecs[system->s - 1], out));
  } else if (order == system->order - 1) {
    PetscCall(VecGetArrayWrite(out, &u));
    for (long k = 0; k < system->n; k++) {
      double rate = 0.0;
      for (long i = 0; i < system->s; i++) rate += system->b_embedded[i] * d->work->rates[i * system->n + k];
      u[k] = d->work->start[k] + ts->time_step * rate;
    }
    PetscCall(VecRestoreArrayWrite(out, &u));
  } else {
    PetscCheck(done, PetscObjectComm((PetscObject)ts), PETSC_ERR_SUP, "no solution of order %" PetscInt_FMT, order);
    *done = PETSC_FALSE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode reset(TS ts)
{
  Dense *d = (Dense *)ts->data;

  PetscFunctionBegin;
  PetscCall(PlainStagesDestroy(ts));
  PetscCall(DenseWorkDestroy(&d->work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_up(TS ts)
{
  Dense *d = (Dense *)ts->data;

  PetscFunctionBegin;
  PetscCheck(d->system, PetscObjectComm((PetscObject)ts), PETSC_ERR_ORDER, "DenseStepsAttach comes first");
  PetscCall(DenseWorkCreate(d->system, 0, &d->work));
  PetscCall(PlainStagesCreate(ts, d->system->s));
  memcpy(d->work->states, d->stages.values, (size_t)d->system->s * sizeof(double *));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create(TS ts)
{
  return PlainCreate(ts, sizeof(Dense), set_up, step, roll_back, evaluate_step, reset);
}

PetscErrorCode DenseStepsRegister(void)
{
  return TSRegister("dense", create);
}

PetscErrorCode DenseStepsAttach(TS ts, DenseSystem *system)
{
  ((Dense *)ts->data)->system = system;
  return PETSC_SUCCESS;
}
