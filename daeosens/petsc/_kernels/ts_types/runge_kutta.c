/* Explicit Runge-Kutta steps of small serial problems whose equations are a C function: a TS type.
   The steps are those of TSRK with the same tableau and error estimate, on plain numbers: what TSRK
   spends on vectors, locks and logs takes far longer than the work for a few unknowns. */
#include "runge_kutta.h"
#include "plain_ts.h"
#include "stage_sum.h"

#include <string.h>

typedef struct {
  Stages          stages;
  ExplicitSystem *system;
  PetscBool       known; /* the rate of the last stage belongs to the start of the next step */
  double         *start; /* [n] */
  double         *rates; /* [s, n] */
} Explicit;

/* all stages from the start, of which the first rate may be there, and the solution; ``left`` is the
   time of a rate that is not finite, after which there is nothing more */
static PetscErrorCode take_stages(Explicit *e, double t, double h, PetscBool first_known, Vec solution, PetscBool *finite, double *left)
{
  ExplicitSystem *system = e->system;
  const long      n = system->n, s = system->s;
  double         *u;

  PetscFunctionBegin;
  enter_step(system->breakpoints, t, h);
  for (long i = 0; i < s; i++) {
    double *state = e->stages.values[i], *rate = e->rates + i * n;
    stage_sum(n, h, system->a + i * s, i, e->rates, e->start, state);
    if (!i && first_known) continue;
    *left  = t + system->c[i] * h;
    *finite = system->rate(system->context, seen_time(system->breakpoints, *left), state, rate) ? PETSC_TRUE : PETSC_FALSE;
    if (!*finite) PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(VecGetArrayWrite(solution, &u));
  if (system->fsal) memcpy(u, e->stages.values[s - 1], (size_t)n * sizeof(double)); /* to the last digit */
  else stage_sum(n, h, system->b, s, e->rates, e->start, u);
  PetscCall(VecRestoreArrayWrite(solution, &u));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode roll_back(TS ts)
{
  Explicit *e = (Explicit *)ts->data;
  double   *u;

  PetscFunctionBegin;
  PetscCall(VecGetArrayWrite(ts->vec_sol, &u));
  memcpy(u, e->start, (size_t)e->system->n * sizeof(double));
  PetscCall(VecRestoreArrayWrite(ts->vec_sol, &u));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode step(TS ts)
{
  Explicit       *e          = (Explicit *)ts->data;
  ExplicitSystem *system     = e->system;
  const size_t    bytes      = (size_t)system->n * sizeof(double);
  const PetscBool first      = (PetscBool)(e->known && !ts->steprestart && !ts->steprollback);
  PetscBool       accept     = PETSC_TRUE; /* TSAdapt asks for that of the attempt before */
  PetscInt        rejections = 0;
  PetscReal       next       = ts->time_step;
  const double   *u;

  PetscFunctionBegin;
  PetscCall(VecGetArrayRead(ts->vec_sol, &u));
  memcpy(e->start, u, bytes);
  PetscCall(VecRestoreArrayRead(ts->vec_sol, &u));
  if (first) memcpy(e->rates, e->rates + (system->s - 1) * system->n, bytes);
  e->known = PETSC_FALSE;
  while (!ts->reason) {
    TSAdapt   adapt;
    PetscBool finite;
    double    left;
    PetscCall(take_stages(e, ts->ptime, ts->time_step, first, ts->vec_sol, &finite, &left));
    if (finite) {
      PetscCall(TSGetAdapt(ts, &adapt));
      PetscCall(TSAdaptCandidatesClear(adapt));
      PetscCall(TSAdaptCandidateAdd(adapt, NULL, (PetscInt)system->order, 1, 1.0, (PetscReal)system->s, PETSC_TRUE));
      PetscCall(TSAdaptChoose(adapt, ts, ts->time_step, NULL, &next, &accept));
    } else {
      accept = PETSC_FALSE;
      if (system->raised && *system->raised) PetscFunctionReturn(PETSC_ERR_USER);
      PetscCall(PlainRetry(ts, left, &next));
    }
    if (accept) {
      ts->ptime += ts->time_step;
      ts->time_step = next;
      e->known      = system->fsal ? PETSC_TRUE : PETSC_FALSE;
      break;
    }
    PetscCall(roll_back(ts));
    ts->time_step = next;
    ts->reject++;
    if (!ts->reason && ++rejections > ts->max_reject && ts->max_reject != PETSC_UNLIMITED) ts->reason = TS_DIVERGED_STEP_REJECTED;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode evaluate_step(TS ts, PetscInt order, Vec out, PetscBool *done)
{
  Explicit     *e = (Explicit *)ts->data;
  const double *u;
  double       *values;

  PetscFunctionBegin;
  if (done) *done = PETSC_TRUE;
  if (order == e->system->order) {
    PetscCall(VecCopy(ts->vec_sol, out));
  } else if (order == e->system->order - 1 && e->system->difference) {
    PetscCall(VecGetArrayRead(ts->vec_sol, &u));
    PetscCall(VecGetArrayWrite(out, &values));
    stage_sum(e->system->n, ts->time_step, e->system->difference, e->system->s, e->rates, u, values);
    PetscCall(VecRestoreArrayWrite(out, &values));
    PetscCall(VecRestoreArrayRead(ts->vec_sol, &u));
  } else {
    PetscCheck(done, PetscObjectComm((PetscObject)ts), PETSC_ERR_SUP, "no solution of order %" PetscInt_FMT, order);
    *done = PETSC_FALSE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode reset(TS ts)
{
  Explicit *e = (Explicit *)ts->data;

  PetscFunctionBegin;
  PetscCall(PlainStagesDestroy(ts));
  PetscCall(PetscFree2(e->start, e->rates));
  e->known = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_up(TS ts)
{
  Explicit *e = (Explicit *)ts->data;

  PetscFunctionBegin;
  PetscCheck(e->system, PetscObjectComm((PetscObject)ts), PETSC_ERR_ORDER, "ExplicitStepsSet comes first");
  PetscCall(PetscMalloc2(e->system->n, &e->start, e->system->s * e->system->n, &e->rates));
  PetscCall(PlainStagesCreate(ts, e->system->s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create(TS ts)
{
  return PlainCreate(ts, sizeof(Explicit), set_up, step, roll_back, evaluate_step, reset);
}

PetscErrorCode ExplicitStepsSet(TS ts, const char *type, ExplicitSystem *system)
{
  PetscFunctionBegin;
  PetscCall(TSRegister(type, create));
  PetscCall(TSSetType(ts, type));
  ((Explicit *)ts->data)->system = system;
  PetscFunctionReturn(PETSC_SUCCESS);
}
