/* Generalised Lotka-Volterra on PETSc: TSRK 5bs and TSAdjoint, all products without matrices. */
#include <petscts.h>

typedef struct {
  PetscInt n;
  const double *rates;        /* r [n] */
  const double *interactions; /* A [n, n] */
  double *state, *growth;     /* x and r + A x at the point of linearisation [n] */
} Model;

static void grow(const Model *model, const double *x, double *growth)
{
  const PetscInt n = model->n;
  for (PetscInt i = 0; i < n; i++) {
    const double *row = model->interactions + i * n;
    double sum = model->rates[i];
    for (PetscInt j = 0; j < n; j++) sum += row[j] * x[j];
    growth[i] = sum;
  }
}

static PetscErrorCode rhs(TS ts, PetscReal t, Vec in, Vec out, void *context)
{
  Model *model = context;
  const double *x;
  double *f;

  PetscFunctionBeginUser;
  PetscCall(VecGetArrayRead(in, &x));
  PetscCall(VecGetArrayWrite(out, &f));
  grow(model, x, f);
  for (PetscInt i = 0; i < model->n; i++) f[i] *= x[i];
  PetscCall(VecRestoreArrayWrite(out, &f));
  PetscCall(VecRestoreArrayRead(in, &x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode linearise(TS ts, PetscReal t, Vec in, Mat matrix, Mat preconditioner, void *context)
{
  Model *model = context;
  const double *x;

  PetscFunctionBeginUser;
  PetscCall(VecGetArrayRead(in, &x));
  PetscCall(PetscArraycpy(model->state, x, model->n));
  grow(model, x, model->growth);
  PetscCall(VecRestoreArrayRead(in, &x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* f_p depends on the state alone, which linearise has kept at the same point */
static PetscErrorCode linearise_p(TS ts, PetscReal t, Vec in, Mat matrix, void *context)
{
  PetscFunctionBeginUser;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode pull_state(Mat matrix, Vec in, Vec out)
{
  Model *model;
  const double *w;
  double *product;

  PetscFunctionBeginUser;
  PetscCall(MatShellGetContext(matrix, &model));
  PetscCall(VecGetArrayRead(in, &w));
  PetscCall(VecGetArrayWrite(out, &product));
  const PetscInt n = model->n;
  for (PetscInt i = 0; i < n; i++) product[i] = model->growth[i] * w[i];
  for (PetscInt i = 0; i < n; i++) {
    const double *row = model->interactions + i * n;
    const double weight = model->state[i] * w[i];
    for (PetscInt j = 0; j < n; j++) product[j] += weight * row[j];
  }
  PetscCall(VecRestoreArrayWrite(out, &product));
  PetscCall(VecRestoreArrayRead(in, &w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode pull_parameters(Mat matrix, Vec in, Vec out)
{
  Model *model;
  const double *w;
  double *product;

  PetscFunctionBeginUser;
  PetscCall(MatShellGetContext(matrix, &model));
  PetscCall(VecGetArrayRead(in, &w));
  PetscCall(VecGetArrayWrite(out, &product));
  const PetscInt n = model->n;
  const double *x = model->state;
  for (PetscInt i = 0; i < n; i++) {
    const double weight = x[i] * w[i];
    double *row = product + n + i * n;
    product[i] = weight;
    for (PetscInt j = 0; j < n; j++) row[j] = weight * x[j];
  }
  PetscCall(VecRestoreArrayWrite(out, &product));
  PetscCall(VecRestoreArrayRead(in, &w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

typedef struct {
  Model model;
  const double *start;
  PetscReal end;
  PetscInt costs;
  TS ts;
  Vec solution, *lambda, *mu;
} Program;

/* made once, run many times; the arrays have to stay alive */
PetscErrorCode create(PetscInt n, const double *parameters, const double *start, double end, double tolerance,
                      PetscInt costs, Program **out)
{
  Program *program;
  Vec mu;
  const PetscInt m = n + n * n;
  Mat jacobian, jacobian_p;
  TSAdapt adapt;
  TSTrajectory trajectory;

  PetscFunctionBeginUser;
  PetscCall(PetscNew(&program));
  *out = program;
  Model *model = &program->model;
  model->n = n;
  model->rates = parameters;
  model->interactions = parameters + n;
  program->start = start;
  program->end = end;
  program->costs = costs;
  PetscCall(PetscMalloc2(n, &model->state, n, &model->growth));
  PetscCall(VecCreateSeq(PETSC_COMM_SELF, n, &program->solution));
  PetscCall(VecDuplicateVecs(program->solution, costs, &program->lambda));
  PetscCall(VecCreateSeq(PETSC_COMM_SELF, m, &mu));
  PetscCall(VecDuplicateVecs(mu, costs, &program->mu));
  PetscCall(VecDestroy(&mu));
  PetscCall(MatCreateShell(PETSC_COMM_SELF, n, n, n, n, model, &jacobian));
  PetscCall(MatShellSetOperation(jacobian, MATOP_MULT_TRANSPOSE, (void (*)(void))pull_state));
  PetscCall(MatCreateShell(PETSC_COMM_SELF, n, m, n, m, model, &jacobian_p));
  PetscCall(MatShellSetOperation(jacobian_p, MATOP_MULT_TRANSPOSE, (void (*)(void))pull_parameters));

  PetscCall(TSCreate(PETSC_COMM_SELF, &program->ts));
  PetscCall(TSSetType(program->ts, TSRK));
  PetscCall(TSRKSetType(program->ts, TSRK5BS));
  PetscCall(TSSetRHSFunction(program->ts, NULL, rhs, model));
  PetscCall(TSSetRHSJacobian(program->ts, jacobian, jacobian, linearise, model));
  PetscCall(TSSetRHSJacobianP(program->ts, jacobian_p, linearise_p, model));
  PetscCall(TSSetMaxTime(program->ts, end));
  PetscCall(TSSetExactFinalTime(program->ts, TS_EXACTFINALTIME_MATCHSTEP));
  PetscCall(TSSetTolerances(program->ts, tolerance, NULL, tolerance, NULL));
  PetscCall(TSGetAdapt(program->ts, &adapt));
  PetscCall(TSAdaptSetType(adapt, TSADAPTBASIC));
  PetscCall(TSSetSaveTrajectory(program->ts));
  PetscCall(TSGetTrajectory(program->ts, &trajectory));
  PetscCall(TSTrajectorySetType(trajectory, program->ts, TSTRAJECTORYMEMORY));
  PetscCall(MatDestroy(&jacobian));
  PetscCall(MatDestroy(&jacobian_p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode put(Vec vec, const double *from)
{
  PetscInt size;
  double *values;

  PetscFunctionBeginUser;
  PetscCall(VecGetLocalSize(vec, &size));
  PetscCall(VecGetArrayWrite(vec, &values));
  PetscCall(PetscArraycpy(values, from, size));
  PetscCall(VecRestoreArrayWrite(vec, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* weights [costs, n]: gradients of the costs in x(T); out [costs, n + n^2]: their gradients in p */
PetscErrorCode gradients(Program *program, const double *weights, double *out)
{
  const PetscInt n = program->model.n, m = n + n * n;

  PetscFunctionBeginUser;
  PetscCall(put(program->solution, program->start));
  PetscCall(TSSetTime(program->ts, 0.0));
  PetscCall(TSSetStepNumber(program->ts, 0));
  PetscCall(TSSetTimeStep(program->ts, 1e-3 * program->end));
  PetscCall(TSSolve(program->ts, program->solution));
  for (PetscInt k = 0; k < program->costs; k++) {
    PetscCall(put(program->lambda[k], weights + k * n));
    PetscCall(VecZeroEntries(program->mu[k]));
  }
  PetscCall(TSSetCostGradients(program->ts, program->costs, program->lambda, program->mu));
  PetscCall(TSAdjointSolve(program->ts));
  for (PetscInt k = 0; k < program->costs; k++) {
    const double *found;
    PetscCall(VecGetArrayRead(program->mu[k], &found));
    PetscCall(PetscArraycpy(out + k * m, found, m));
    PetscCall(VecRestoreArrayRead(program->mu[k], &found));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode destroy(Program *program)
{
  PetscFunctionBeginUser;
  PetscCall(TSDestroy(&program->ts));
  PetscCall(VecDestroyVecs(program->costs, &program->lambda));
  PetscCall(VecDestroyVecs(program->costs, &program->mu));
  PetscCall(VecDestroy(&program->solution));
  PetscCall(PetscFree2(program->model.state, program->model.growth));
  PetscCall(PetscFree(program));
  PetscFunctionReturn(PETSC_SUCCESS);
}
