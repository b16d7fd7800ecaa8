/* A model on PETSc TS: runs that keep the states of all steps, and gradients of u_0(T) by TSAdjoint. */
#include <petsc/private/tsimpl.h> /* the norm of errors has no function of its own */

typedef void (*Function)(double, const double *, const double *, double *, void *);

typedef struct {
  Function       rhs, jacobian, jacobian_p;
  PetscInt       n, m;
  const double  *start, *p;
  double         end, dt, *entries;
  TS             ts;
  Vec            solution, lambda, mu, *states;
  PetscInt       count, room;
} Program;

static PetscErrorCode evaluate(TS ts, PetscReal t, Vec in, Vec out, void *context)
{
  Program      *program = context;
  const double *u;
  double       *f;

  PetscFunctionBeginUser;
  PetscCall(VecGetArrayRead(in, &u));
  PetscCall(VecGetArrayWrite(out, &f));
  program->rhs(t, u, program->p, f, NULL);
  PetscCall(VecRestoreArrayWrite(out, &f));
  PetscCall(VecRestoreArrayRead(in, &u));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode fill(Program *program, Function function, PetscReal t, Vec in, Mat out)
{
  const double *u;
  double       *values;
  PetscInt      rows, columns;

  PetscFunctionBeginUser;
  PetscCall(VecGetArrayRead(in, &u));
  function(t, u, program->p, program->entries, NULL);
  PetscCall(VecRestoreArrayRead(in, &u));
  PetscCall(MatGetSize(out, &rows, &columns));
  PetscCall(MatDenseGetArrayWrite(out, &values));
  for (PetscInt j = 0; j < columns; j++)
    for (PetscInt i = 0; i < rows; i++) values[j * rows + i] = program->entries[i * columns + j];
  PetscCall(MatDenseRestoreArrayWrite(out, &values));
  PetscCall(MatAssemblyBegin(out, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(out, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode by_u(TS ts, PetscReal t, Vec u, Mat matrix, Mat preconditioner, void *context)
{
  return fill(context, ((Program *)context)->jacobian, t, u, matrix);
}

static PetscErrorCode by_p(TS ts, PetscReal t, Vec u, Mat matrix, void *context)
{
  return fill(context, ((Program *)context)->jacobian_p, t, u, matrix);
}

static PetscErrorCode keep(TS ts, PetscInt step, PetscReal t, Vec u, void *context)
{
  Program *program = context;

  PetscFunctionBeginUser;
  if (program->count == program->room) {
    program->room = 2 * program->room + 64;
    PetscCall(PetscRealloc(program->room * sizeof(Vec), &program->states));
  }
  PetscCall(VecDuplicate(u, &program->states[program->count]));
  PetscCall(VecCopy(u, program->states[program->count++]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode prepare_gradient(Program *program)
{
  const PetscInt n = program->n, m = program->m;
  Mat            matrix_u, matrix_p;
  TSTrajectory   trajectory;

  PetscFunctionBeginUser;
  PetscCall(MatCreateSeqDense(PETSC_COMM_SELF, n, n, NULL, &matrix_u));
  PetscCall(MatCreateSeqDense(PETSC_COMM_SELF, n, m, NULL, &matrix_p));
  PetscCall(TSSetRHSJacobian(program->ts, matrix_u, matrix_u, by_u, program));
  PetscCall(TSSetRHSJacobianP(program->ts, matrix_p, by_p, program));
  PetscCall(TSSetSaveTrajectory(program->ts));
  PetscCall(TSGetTrajectory(program->ts, &trajectory));
  PetscCall(TSTrajectorySetType(trajectory, program->ts, TSTRAJECTORYMEMORY));
  PetscCall(VecDuplicate(program->solution, &program->lambda));
  PetscCall(VecCreateSeq(PETSC_COMM_SELF, m, &program->mu));
  PetscCall(MatDestroy(&matrix_u));
  PetscCall(MatDestroy(&matrix_p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* functions: rhs, jacobian, jacobian_p; tolerance 0: steps of size dt; the arrays have to stay alive */
PetscErrorCode create(Function *functions, PetscInt n, PetscInt m, const double *start, const double *p,
                      const char *method, double end, double dt, double tolerance, int gradients, Program **out)
{
  Program *program;
  TSAdapt  adapt;

  PetscFunctionBeginUser;
  PetscCall(PetscNew(&program));
  *out = program;
  program->rhs        = functions[0];
  program->jacobian   = functions[1];
  program->jacobian_p = functions[2];
  program->n          = n;
  program->m          = m;
  program->start      = start;
  program->p          = p;
  program->end        = end;
  program->dt         = dt;
  PetscCall(PetscMalloc1(n * PetscMax(n, m), &program->entries));
  PetscCall(VecCreateSeq(PETSC_COMM_SELF, n, &program->solution));
  PetscCall(TSCreate(PETSC_COMM_SELF, &program->ts));
  PetscCall(TSSetType(program->ts, TSRK));
  PetscCall(TSRKSetType(program->ts, method));
  PetscCall(TSSetRHSFunction(program->ts, NULL, evaluate, program));
  PetscCall(TSSetMaxTime(program->ts, end));
  PetscCall(TSSetMaxSteps(program->ts, 1000000));
  PetscCall(TSSetExactFinalTime(program->ts, TS_EXACTFINALTIME_MATCHSTEP));
  if (tolerance > 0.0) PetscCall(TSSetTolerances(program->ts, tolerance, NULL, tolerance, NULL));
  PetscCall(TSGetAdapt(program->ts, &adapt));
  PetscCall(TSAdaptSetType(adapt, tolerance > 0.0 ? TSADAPTBASIC : TSADAPTNONE));
  PetscCall(TSAdaptSetClip(adapt, 0.1, 4.0)); /* steps as those they are compared with */
  PetscCall(TSAdaptSetSafety(adapt, 0.8, 0.5));
  adapt->wnormtype = NORM_INFINITY;
  if (gradients) PetscCall(prepare_gradient(program));
  else PetscCall(TSMonitorSet(program->ts, keep, program, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode run(Program *program, double *last, long *steps)
{
  const double *found;
  double       *values;
  PetscInt      count;

  PetscFunctionBeginUser;
  while (program->count) PetscCall(VecDestroy(&program->states[--program->count]));
  PetscCall(VecGetArrayWrite(program->solution, &values));
  PetscCall(PetscArraycpy(values, program->start, program->n));
  PetscCall(VecRestoreArrayWrite(program->solution, &values));
  PetscCall(TSSetTime(program->ts, 0.0));
  PetscCall(TSSetStepNumber(program->ts, 0));
  PetscCall(TSSetTimeStep(program->ts, program->dt));
  PetscCall(TSSolve(program->ts, program->solution));
  PetscCall(VecGetArrayRead(program->solution, &found));
  PetscCall(PetscArraycpy(last, found, program->n));
  PetscCall(VecRestoreArrayRead(program->solution, &found));
  PetscCall(TSGetStepNumber(program->ts, &count));
  *steps = count;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* after run: out [m], the gradient of u_0(T) in p */
PetscErrorCode gradient(Program *program, double *out)
{
  const double *found;

  PetscFunctionBeginUser;
  PetscCall(VecZeroEntries(program->lambda));
  PetscCall(VecZeroEntries(program->mu));
  PetscCall(VecSetValue(program->lambda, 0, 1.0, INSERT_VALUES));
  PetscCall(VecAssemblyBegin(program->lambda));
  PetscCall(VecAssemblyEnd(program->lambda));
  PetscCall(TSSetCostGradients(program->ts, 1, &program->lambda, &program->mu));
  PetscCall(TSAdjointSolve(program->ts));
  PetscCall(VecGetArrayRead(program->mu, &found));
  PetscCall(PetscArraycpy(out, found, program->m));
  PetscCall(VecRestoreArrayRead(program->mu, &found));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode destroy(Program *program)
{
  PetscFunctionBeginUser;
  while (program->count) PetscCall(VecDestroy(&program->states[--program->count]));
  PetscCall(TSDestroy(&program->ts));
  PetscCall(VecDestroy(&program->solution));
  PetscCall(VecDestroy(&program->lambda));
  PetscCall(VecDestroy(&program->mu));
  PetscCall(PetscFree(program->states));
  PetscCall(PetscFree(program->entries));
  PetscCall(PetscFree(program));
  PetscFunctionReturn(PETSC_SUCCESS);
}
