/* The type of TS that takes ESDIRK steps of M u' = f(t, u), M constant and singular or not, and the
   additive steps of u' = f(t, u) + g(t, u), implicit for f (TS's IFunction is M u' - f) and explicit
   for g (its RHSFunction).

   Stage i solves M U_i = M u + h sum_{j<=i} a_ij f_j for its state, with the sides f_j of the stages
   before it; of f_1 the part that algebraic equations say to be zero is left out.  TSDIRK solves for
   rates M k_i = f_i, of which a singular M leaves some undetermined: it has to guess which, and takes
   the first one over from the step before, whatever rounding that has made of it if it was short.

   Additive stages have h sum_{j<i} e_ij g_j besides, and the step ends at U_s + h sum_j d_j g_j: the last
   stage has the weights of the solution for f, but not for g. */
#include "esdirk_ts.h"
#include "../newton_rounding.h"

#include <petsc/private/tsimpl.h>

/* A step keeps its first Jacobian while residuals fall by this factor in each iteration of a stage, and
   for so many of them: as in RADAU5, Hairer and Wanner, Solving ODEs II, section IV.8 */
#define SLOW 0.1
#define PATIENCE 5
#define STRICT 1e-11

typedef struct {
  const EsdirkSystem *system;
  PetscInt            count;          /* of vectors made for stages */
  Vec                *stages, *sides; /* U_i and f_i */
  Vec                *rates;          /* g_i, of additive steps */
  Vec                 earlier, udot, work, terms;
  PetscReal           time, shift;    /* of the stage that is solved for */
  PetscReal           norm;           /* of the residual, an iteration before */
  PetscBool           current;        /* there is a Jacobian of this attempt */
  PetscBool           affine;         /* all Jacobians are the same */
  PetscBool           fresh;          /* the last iteration had the Jacobian of its state */
  PetscScalar        *weights;
} Esdirk;

/* TS takes f alone for the equations, and not f + g */
static PetscBool is_additive(const Esdirk *d)
{
  return d->system->additive ? PETSC_TRUE : PETSC_FALSE;
}

/* f at the start of a step, without what it has in equations without u' */
static PetscErrorCode first_side(TS ts, Esdirk *d)
{
  Vec side = d->sides[0];

  PetscFunctionBegin;
  PetscCall(VecZeroEntries(d->udot));
  PetscCall(TSComputeIFunction(ts, ts->ptime, d->stages[0], d->udot, side, is_additive(d)));
  PetscCall(VecScale(side, -1.0));
  if (d->system->null) {
    PetscCall(MatMult(d->system->null, side, d->work));
    PetscCall(VecAXPY(side, -1.0, d->work));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* f_i by the equation of its stage, which damps what is left of Newton's iteration where f amplifies it */
static PetscErrorCode later_side(Esdirk *d, Vec stage, Vec side)
{
  PetscFunctionBegin;
  PetscCall(VecWAXPY(d->udot, -1.0, d->stages[0], stage));
  PetscCall(VecScale(d->udot, d->shift));
  if (d->system->mass) PetscCall(MatMult(d->system->mass, d->udot, side));
  else PetscCall(VecCopy(d->udot, side));
  PetscCall(VecAXPY(side, -1.0, d->earlier));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the sizes of M u / (h gamma) and of what the stages before give, of which the equation is a difference */
static PetscErrorCode measure_terms(Esdirk *d)
{
  PetscFunctionBegin;
  if (d->system->mass) PetscCall(MatMult(d->system->mass, d->stages[0], d->terms));
  else PetscCall(VecCopy(d->stages[0], d->terms));
  PetscCall(VecScale(d->terms, d->shift));
  PetscCall(VecAbs(d->terms));
  PetscCall(VecCopy(d->earlier, d->work));
  PetscCall(VecAbs(d->work));
  PetscCall(VecAXPY(d->terms, 1.0, d->work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* With a Jacobian that is kept the last change is no square of the one before: once more with the
   residual that is known, which costs a solve alone.  ``work`` is overwritten. */
static PetscErrorCode refine(SNES snes, Vec stage, Vec work)
{
  SNESConvergedReason reason;
  KSPConvergedReason  solved;
  Vec                 residual;
  KSP                 ksp;
  Mat                 matrix;

  PetscFunctionBegin;
  PetscCall(SNESGetConvergedReason(snes, &reason));
  PetscCall(SNESGetJacobian(snes, &matrix, NULL, NULL, NULL));
  if (reason <= 0 || !matrix) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(SNESGetFunction(snes, &residual, NULL, NULL));
  PetscCall(SNESGetKSP(snes, &ksp));
  PetscCall(KSPSolve(ksp, residual, work));
  PetscCall(KSPGetConvergedReason(ksp, &solved));
  if (solved > 0) PetscCall(VecAXPY(stage, -1.0, work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* add h times a sum of the g_j of the stages before number ``end`` */
static PetscErrorCode add_rates(Esdirk *d, const double *weights, PetscInt end, PetscReal h, Vec out)
{
  PetscFunctionBegin;
  for (PetscInt j = 0; j < end; j++) d->weights[j] = h * weights[j];
  PetscCall(VecMAXPY(out, end, d->weights, d->rates));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* g_i, unless nothing reads it */
static PetscErrorCode explicit_rate(TS ts, Esdirk *d, PetscInt i, PetscReal time)
{
  const EsdirkSystem *system = d->system;
  const PetscInt      s      = (PetscInt)system->s;
  PetscBool           read;

  PetscFunctionBegin;
  if (!system->additive) PetscFunctionReturn(PETSC_SUCCESS);
  read = system->additive_end[i] != 0.0 || (system->embedded && system->additive_embedded[i] != 0.0) ? PETSC_TRUE : PETSC_FALSE;
  for (PetscInt k = i + 1; k < s; k++)
    if (system->additive[k * s + i] != 0.0) read = PETSC_TRUE;
  if (read) PetscCall(TSComputeRHSFunction(ts, time, d->stages[i], d->rates[i]));
  else PetscCall(VecZeroEntries(d->rates[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the state after the step */
static PetscErrorCode complete(Esdirk *d, PetscReal h, Vec out)
{
  const EsdirkSystem *system = d->system;

  PetscFunctionBegin;
  PetscCall(VecCopy(d->stages[system->s - 1], out));
  if (system->additive) PetscCall(add_rates(d, system->additive_end, (PetscInt)system->s, h, out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take_stages(TS ts, TSAdapt adapt, PetscBool *solved)
{
  Esdirk             *d      = (Esdirk *)ts->data;
  const EsdirkSystem *system = d->system;
  const PetscReal     t = ts->ptime, h = ts->time_step, gamma = system->a[system->s * system->s - 1];
  const PetscInt      s = (PetscInt)system->s;
  PetscInt            iterations, linear;
  SNES                snes;

  PetscFunctionBegin;
  PetscCall(TSGetSNES(ts, &snes));
  d->shift = 1.0 / (h * gamma);
  d->current = PETSC_FALSE;
  PetscCall(TSPreStage(ts, t));
  PetscCall(first_side(ts, d));
  PetscCall(explicit_rate(ts, d, 0, t));
  PetscCall(TSPostStage(ts, t, 0, d->stages));
  for (PetscInt i = 1; i < s; i++) {
    d->time = t + h * system->c[i];
    PetscCall(TSPreStage(ts, d->time));
    for (PetscInt j = 0; j < i; j++) d->weights[j] = system->a[i * s + j] / gamma;
    PetscCall(VecZeroEntries(d->earlier));
    PetscCall(VecMAXPY(d->earlier, i, d->weights, d->sides));
    if (system->additive) PetscCall(add_rates(d, system->additive + i * s, i, 1.0 / gamma, d->earlier));
    if (!system->null) PetscCall(measure_terms(d));
    PetscCall(VecCopy(d->stages[i - 1], d->stages[i]));
    PetscCall(SNESSolve(snes, NULL, d->stages[i]));
    PetscCall(SNESGetIterationNumber(snes, &iterations));
    /* rounding of M u / h in the rows hides what is left of sums of rows without it: O(h^2) by one iteration */
    if (system->null ? iterations > 0 : iterations > 1 && !d->fresh) PetscCall(refine(snes, d->stages[i], d->work));
    PetscCall(SNESGetLinearSolveIterations(snes, &linear));
    ts->snes_its += iterations;
    ts->ksp_its += linear;
    PetscCall(TSAdaptCheckStage(adapt, ts, d->time, d->stages[i], solved));
    if (!*solved) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(later_side(d, d->stages[i], d->sides[i]));
    PetscCall(explicit_rate(ts, d, i, d->time));
    PetscCall(TSPostStage(ts, d->time, i, d->stages));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode step(TS ts)
{
  Esdirk             *d      = (Esdirk *)ts->data;
  const EsdirkSystem *system = d->system;
  PetscInt            rejections = 0;
  PetscBool           accept     = PETSC_TRUE; /* TSAdapt asks for that of the attempt before */
  TSAdapt             adapt;

  PetscFunctionBegin;
  PetscCall(TSGetAdapt(ts, &adapt));
  PetscCall(VecCopy(ts->vec_sol, d->stages[0]));
  while (!ts->reason) {
    PetscReal next, rounded;
    PetscBool solved = PETSC_TRUE;
    PetscCall(take_stages(ts, adapt, &solved));
    next = ts->time_step; /* a stage that was not found has made it smaller */
    if (solved) {
      PetscCall(complete(d, ts->time_step, ts->vec_sol));
      PetscCall(TSAdaptCandidatesClear(adapt));
      PetscCall(TSAdaptCandidateAdd(adapt, ((PetscObject)ts)->type_name, system->order, 1, 1.0, (PetscReal)system->s, PETSC_TRUE));
      PetscCall(TSAdaptChoose(adapt, ts, ts->time_step, NULL, &next, &accept));
    }
    accept = solved ? accept : PETSC_FALSE;
    if (accept) {
      ts->ptime += ts->time_step;
      ts->time_step = next;
      break;
    }
    PetscUseTypeMethod(ts, rollback);
    rounded       = ts->ptime + next - ts->ptime; /* the difference of two times, which the log keeps */
    ts->time_step = rounded > 0.0 ? rounded : next;
    ts->reject++;
    if (!ts->reason && ++rejections > ts->max_reject && ts->max_reject != PETSC_UNLIMITED) ts->reason = TS_DIVERGED_STEP_REJECTED;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode roll_back(TS ts)
{
  PetscFunctionBegin;
  PetscCall(VecCopy(((Esdirk *)ts->data)->stages[0], ts->vec_sol));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The embedded solution does not depend on the rate at the start, which algebraic variables have not. */
static PetscErrorCode evaluate_step(TS ts, PetscInt order, Vec out, PetscBool *done)
{
  Esdirk             *d      = (Esdirk *)ts->data;
  const EsdirkSystem *system = d->system;

  PetscFunctionBegin;
  if (done) *done = PETSC_TRUE;
  if (order == system->order) {
    PetscCall(complete(d, ts->time_step, out));
  } else if (order == system->order - 1 && system->embedded) {
    for (long i = 0; i < system->s; i++) d->weights[i] = system->embedded[i];
    PetscCall(VecZeroEntries(out));
    PetscCall(VecMAXPY(out, (PetscInt)system->s, d->weights, d->stages));
    if (system->additive) PetscCall(add_rates(d, system->additive_embedded, (PetscInt)system->s, ts->time_step, out));
  } else {
    PetscCheck(done, PetscObjectComm((PetscObject)ts), PETSC_ERR_SUP, "no solution of order %" PetscInt_FMT, order);
    *done = PETSC_FALSE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode snes_function(SNES snes, Vec u, Vec out, TS ts)
{
  Esdirk *d = (Esdirk *)ts->data;
  DM      dm, own = ts->dm;

  PetscFunctionBegin;
  PetscCall(VecWAXPY(d->udot, -1.0, d->stages[0], u));
  PetscCall(VecScale(d->udot, d->shift));
  PetscCall(SNESGetDM(snes, &dm));
  ts->dm = dm;
  PetscCall(TSComputeIFunction(ts, d->time, u, d->udot, out, is_additive(d)));
  ts->dm = own;
  PetscCall(VecAXPY(out, -1.0, d->earlier));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode snes_jacobian(SNES snes, Vec u, Mat matrix, Mat preconditioner, TS ts)
{
  Esdirk   *d = (Esdirk *)ts->data;
  DM        dm, own = ts->dm;
  PetscInt  iteration;
  PetscReal norm, rtol;
  PetscBool slow, kept;

  PetscFunctionBegin;
  PetscCall(SNESGetIterationNumber(snes, &iteration));
  PetscCall(SNESGetFunctionNorm(snes, &norm));
  slow    = iteration >= PATIENCE || (iteration && !(norm <= SLOW * d->norm)) ? PETSC_TRUE : PETSC_FALSE;
  d->norm = norm;
  /* products that PETSc differences belong to the point of the iteration; who asks for less than
     STRICT gets Newton's iterations, of whose last one the remainder is known */
  PetscCall(SNESGetTolerances(snes, NULL, &rtol, NULL, NULL, NULL));
  kept     = d->current && !slow && matrix == preconditioner && rtol <= STRICT ? PETSC_TRUE : PETSC_FALSE;
  d->fresh = kept && !d->affine ? PETSC_FALSE : PETSC_TRUE;
  if (kept) PetscFunctionReturn(PETSC_SUCCESS);
  d->current = PETSC_TRUE;
  PetscCall(VecWAXPY(d->udot, -1.0, d->stages[0], u));
  PetscCall(VecScale(d->udot, d->shift));
  PetscCall(SNESGetDM(snes, &dm));
  ts->dm = dm;
  PetscCall(TSComputeIJacobian(ts, d->time, u, d->udot, d->shift, matrix, preconditioner, is_additive(d)));
  ts->dm = own;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode get_stages(TS ts, PetscInt *count, Vec **stages)
{
  Esdirk *d = (Esdirk *)ts->data;

  PetscFunctionBegin;
  if (count) *count = d->count;
  if (stages) *stages = d->stages;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_up(TS ts)
{
  Esdirk     *d = (Esdirk *)ts->data;
  PetscObject affine;
  SNES        snes;
  DM          dm;

  PetscFunctionBegin;
  PetscCheck(d->system, PetscObjectComm((PetscObject)ts), PETSC_ERR_ORDER, "EsdirkAttach comes first");
  d->count = (PetscInt)d->system->s;
  PetscCall(PetscObjectQuery((PetscObject)ts, ESDIRK_AFFINE, &affine));
  d->affine = affine ? PETSC_TRUE : PETSC_FALSE;
  PetscCall(VecDuplicateVecs(ts->vec_sol, d->count, &d->stages));
  PetscCall(VecDuplicateVecs(ts->vec_sol, d->count, &d->sides));
  if (d->system->additive) PetscCall(VecDuplicateVecs(ts->vec_sol, d->count, &d->rates));
  PetscCall(VecDuplicate(ts->vec_sol, &d->earlier));
  PetscCall(VecDuplicate(ts->vec_sol, &d->udot));
  PetscCall(VecDuplicate(ts->vec_sol, &d->work));
  PetscCall(VecDuplicate(ts->vec_sol, &d->terms));
  PetscCall(PetscMalloc1(d->count, &d->weights));
  PetscCall(TSGetDM(ts, &dm));
  PetscCall(TSGetSNES(ts, &snes));
  PetscCall(SNESSetDM(snes, dm));
  /* where sums of rows hold no M u', its rounding in the rows would hide what is left of those sums */
  if (!d->system->null) PetscCall(PetscObjectCompose((PetscObject)snes, NEWTON_TERMS, (PetscObject)d->terms));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode reset(TS ts)
{
  Esdirk *d = (Esdirk *)ts->data;

  PetscFunctionBegin;
  if (!d->count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecDestroyVecs(d->count, &d->stages));
  PetscCall(VecDestroyVecs(d->count, &d->sides));
  if (d->rates) PetscCall(VecDestroyVecs(d->count, &d->rates));
  PetscCall(VecDestroy(&d->earlier));
  PetscCall(VecDestroy(&d->udot));
  PetscCall(VecDestroy(&d->work));
  PetscCall(VecDestroy(&d->terms));
  PetscCall(PetscFree(d->weights));
  d->count = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy(TS ts)
{
  PetscFunctionBegin;
  PetscCall(reset(ts));
  PetscCall(PetscFree(ts->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create(TS ts)
{
  PetscFunctionBegin;
  PetscCall(PetscCalloc(sizeof(Esdirk), &ts->data));
  ts->ops->setup         = set_up;
  ts->ops->step          = step;
  ts->ops->rollback      = roll_back;
  ts->ops->evaluatestep  = evaluate_step;
  ts->ops->snesfunction  = snes_function;
  ts->ops->snesjacobian  = snes_jacobian;
  ts->ops->getstages     = get_stages;
  ts->ops->reset         = reset;
  ts->ops->destroy       = destroy;
  ts->usessnes           = PETSC_TRUE;
  ts->default_adapt_type = TSADAPTBASIC;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode EsdirkRegister(void)
{
  return TSRegister("esdirk", create);
}

PetscErrorCode EsdirkAttach(TS ts, const EsdirkSystem *system)
{
  ((Esdirk *)ts->data)->system = system;
  return PETSC_SUCCESS;
}
