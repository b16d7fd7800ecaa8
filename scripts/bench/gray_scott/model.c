/* Gray-Scott on PETSc: TS and TSAdjoint, RK4 and theta methods, all products without matrices. */
#include <petscts.h>

static const double d1 = 8e-5, d2 = 4e-5, feed = 0.024, removal = 0.06, side = 2.5;

typedef struct {
  PetscInt points;
  const double *start; /* [points, points, 2] */
  double *state;       /* point of linearisation */
  PetscReal shift;     /* of the Jacobian of udot - f */
  PetscReal rate_sign; /* -1 where the derivative is that of udot - f */
  PetscReal dt;
  PetscInt steps;
  TS ts, forward;
  Vec solution, lambda, mu;
} Program;

#define FOR_POINTS(n) \
  for (PetscInt i = 0; i < n; i++) { \
    const PetscInt row = 2 * n * i, above = 2 * n * ((i + n - 1) % n), below = 2 * n * ((i + 1) % n); \
    for (PetscInt j = 0; j < n; j++) { \
      const PetscInt here = row + 2 * j, left = row + 2 * (j ? j - 1 : n - 1), right = row + 2 * (j < n - 1 ? j + 1 : 0); \
      const PetscInt up = above + 2 * j, down = below + 2 * j;
#define END_POINTS \
    } \
  }
#define AROUND(y, c) (y[up + c] + y[down + c] + y[left + c] + y[right + c] - 4.0 * y[here + c])

static void evaluate(PetscInt n, const double *restrict y, double *restrict f)
{
  const double scale = n * n / (side * side);
  FOR_POINTS(n)
  const double u = y[here], v = y[here + 1], reaction = u * v * v;
  f[here]     = d1 * scale * AROUND(y, 0) - reaction + feed * (1.0 - u);
  f[here + 1] = d2 * scale * AROUND(y, 1) + reaction - (feed + removal) * v;
  END_POINTS
}

/* out = shift w + sign f_y w or f_y^T w */
static void multiply(const Program *program, PetscBool transposed, double sign, double shift, const double *restrict w,
                     double *restrict out)
{
  const PetscInt n = program->points;
  const double *restrict y = program->state;
  const double scale = n * n / (side * side);
  FOR_POINTS(n)
  const double by_u = y[here + 1] * y[here + 1], by_v = 2.0 * y[here] * y[here + 1];
  const double a = w[here], b = w[here + 1];
  double first = d1 * scale * AROUND(w, 0) - feed * a, second = d2 * scale * AROUND(w, 1) - (feed + removal) * b;
  if (transposed) {
    first += by_u * (b - a);
    second += by_v * (b - a);
  } else {
    first -= by_u * a + by_v * b;
    second += by_u * a + by_v * b;
  }
  out[here]     = shift * a + sign * first;
  out[here + 1] = shift * b + sign * second;
  END_POINTS
}

static PetscErrorCode product(Mat matrix, Vec in, Vec out, PetscBool transposed, PetscBool explicit)
{
  Program *program;
  const double *w;
  double *values;

  PetscFunctionBeginUser;
  PetscCall(MatShellGetContext(matrix, &program));
  PetscCall(VecGetArrayRead(in, &w));
  PetscCall(VecGetArrayWrite(out, &values));
  if (explicit) multiply(program, transposed, 1.0, 0.0, w, values);
  else multiply(program, transposed, -1.0, program->shift, w, values);
  PetscCall(VecRestoreArrayWrite(out, &values));
  PetscCall(VecRestoreArrayRead(in, &w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode pull_rhs(Mat matrix, Vec in, Vec out) { return product(matrix, in, out, PETSC_TRUE, PETSC_TRUE); }
static PetscErrorCode push(Mat matrix, Vec in, Vec out) { return product(matrix, in, out, PETSC_FALSE, PETSC_FALSE); }
static PetscErrorCode pull(Mat matrix, Vec in, Vec out) { return product(matrix, in, out, PETSC_TRUE, PETSC_FALSE); }

static PetscErrorCode rhs(TS ts, PetscReal t, Vec in, Vec out, void *context)
{
  const double *y;
  double *f;

  PetscFunctionBeginUser;
  PetscCall(VecGetArrayRead(in, &y));
  PetscCall(VecGetArrayWrite(out, &f));
  evaluate(((Program *)context)->points, y, f);
  PetscCall(VecRestoreArrayWrite(out, &f));
  PetscCall(VecRestoreArrayRead(in, &y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode residual(TS ts, PetscReal t, Vec in, Vec rate, Vec out, void *context)
{
  PetscFunctionBeginUser;
  PetscCall(rhs(ts, t, in, out, context));
  PetscCall(VecAYPX(out, -1.0, rate));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode linearise(TS ts, PetscReal t, Vec in, Mat matrix, Mat preconditioner, void *context)
{
  Program *program = context;
  const double *y;

  PetscFunctionBeginUser;
  PetscCall(VecGetArrayRead(in, &y));
  PetscCall(PetscArraycpy(program->state, y, 2 * program->points * program->points));
  PetscCall(VecRestoreArrayRead(in, &y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode linearise_residual(TS ts, PetscReal t, Vec in, Vec rate, PetscReal shift, Mat matrix,
                                         Mat preconditioner, void *context)
{
  PetscFunctionBeginUser;
  ((Program *)context)->shift = shift;
  PetscCall(linearise(ts, t, in, matrix, preconditioner, context));
  PetscCall(MatAssemblyBegin(matrix, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(matrix, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* out = sign f_p^T w [4], for d1, d2, feed and removal */
static PetscErrorCode pull_rates(Mat matrix, Vec in, Vec out)
{
  Program *program;
  const double *w;
  double *values, sums[4] = {0.0, 0.0, 0.0, 0.0};

  PetscFunctionBeginUser;
  PetscCall(MatShellGetContext(matrix, &program));
  PetscCall(VecGetArrayRead(in, &w));
  const PetscInt n = program->points;
  const double *restrict y = program->state;
  const double scale = n * n / (side * side);
  FOR_POINTS(n)
  const double a = w[here], b = w[here + 1];
  sums[0] += a * AROUND(y, 0);
  sums[1] += b * AROUND(y, 1);
  sums[2] += a * (1.0 - y[here]) - b * y[here + 1];
  sums[3] -= b * y[here + 1];
  END_POINTS
  PetscCall(VecRestoreArrayRead(in, &w));
  PetscCall(VecGetArrayWrite(out, &values));
  for (PetscInt k = 0; k < 4; k++) values[k] = program->rate_sign * (k < 2 ? scale * sums[k] : sums[k]);
  PetscCall(VecRestoreArrayWrite(out, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode linearise_rates(TS ts, PetscReal t, Vec in, Mat matrix, void *context)
{
  PetscFunctionBeginUser;
  ((Program *)context)->rate_sign = 1.0;
  PetscCall(linearise(ts, t, in, matrix, matrix, context));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode linearise_residual_rates(TS ts, PetscReal t, Vec in, Vec rate, PetscReal shift, Mat matrix,
                                               void *context)
{
  PetscFunctionBeginUser;
  PetscCall(linearise_rates(ts, t, in, matrix, context));
  ((Program *)context)->rate_sign = -1.0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* theta = 0: RK4 */
static PetscErrorCode create_ts(Program *program, double theta, PetscBool save, TS *out)
{
  const PetscInt size = 2 * program->points * program->points;
  Mat jacobian, rates;
  TSAdapt adapt;
  TS ts;

  PetscFunctionBeginUser;
  PetscCall(MatCreateShell(PETSC_COMM_SELF, size, size, size, size, program, &jacobian));
  PetscCall(TSCreate(PETSC_COMM_SELF, &ts));
  if (theta == 0.0) {
    PetscCall(TSSetType(ts, TSRK));
    PetscCall(TSRKSetType(ts, TSRK4));
    PetscCall(TSSetRHSFunction(ts, NULL, rhs, program));
    PetscCall(TSSetRHSJacobian(ts, jacobian, jacobian, linearise, program));
    PetscCall(MatShellSetOperation(jacobian, MATOP_MULT_TRANSPOSE, (void (*)(void))pull_rhs));
  } else {
    SNES snes;
    KSP ksp;
    PC pc;
    PetscCall(TSSetType(ts, theta == 1.0 ? TSBEULER : TSCN));
    PetscCall(TSSetIFunction(ts, NULL, residual, program));
    PetscCall(TSSetIJacobian(ts, jacobian, jacobian, linearise_residual, program));
    PetscCall(MatShellSetOperation(jacobian, MATOP_MULT, (void (*)(void))push));
    PetscCall(MatShellSetOperation(jacobian, MATOP_MULT_TRANSPOSE, (void (*)(void))pull));
    PetscCall(TSGetSNES(ts, &snes));
    PetscCall(SNESSetTolerances(snes, PETSC_CURRENT, 1e-10, PETSC_CURRENT, PETSC_CURRENT, PETSC_CURRENT));
    PetscCall(SNESGetKSP(snes, &ksp));
    PetscCall(KSPSetType(ksp, KSPBCGS));
    PetscCall(KSPSetTolerances(ksp, 1e-10, PETSC_CURRENT, PETSC_CURRENT, PETSC_CURRENT));
    PetscCall(KSPGetPC(ksp, &pc));
    PetscCall(PCSetType(pc, PCNONE));
  }
  PetscCall(MatDestroy(&jacobian));
  PetscCall(MatCreateShell(PETSC_COMM_SELF, size, 4, size, 4, program, &rates));
  PetscCall(MatShellSetOperation(rates, MATOP_MULT_TRANSPOSE, (void (*)(void))pull_rates));
  PetscCall(MatSetUp(rates));
  if (theta == 0.0) PetscCall(TSSetRHSJacobianP(ts, rates, linearise_rates, program));
  else PetscCall(TSSetIJacobianP(ts, rates, linearise_residual_rates, program));
  PetscCall(MatDestroy(&rates));
  PetscCall(TSSetMaxSteps(ts, program->steps));
  PetscCall(TSSetMaxTime(ts, program->dt * program->steps));
  PetscCall(TSSetExactFinalTime(ts, TS_EXACTFINALTIME_MATCHSTEP));
  PetscCall(TSGetAdapt(ts, &adapt));
  PetscCall(TSAdaptSetType(adapt, TSADAPTNONE));
  if (save) {
    TSTrajectory trajectory;
    PetscCall(TSSetSaveTrajectory(ts));
    PetscCall(TSGetTrajectory(ts, &trajectory));
    PetscCall(TSTrajectorySetType(trajectory, ts, TSTRAJECTORYMEMORY));
  }
  *out = ts;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* made once, run many times; ``start`` has to stay alive */
PetscErrorCode create(PetscInt points, const double *start, double theta, double dt, PetscInt steps, Program **out)
{
  const PetscInt size = 2 * points * points;
  Program *program;

  PetscFunctionBeginUser;
  PetscCall(PetscNew(&program));
  *out = program;
  program->points = points;
  program->start = start;
  program->dt = dt;
  program->steps = steps;
  PetscCall(PetscMalloc1(size, &program->state));
  PetscCall(VecCreateSeq(PETSC_COMM_SELF, size, &program->solution));
  PetscCall(VecDuplicate(program->solution, &program->lambda));
  PetscCall(VecCreateSeq(PETSC_COMM_SELF, 4, &program->mu));
  PetscCall(create_ts(program, theta, PETSC_FALSE, &program->forward));
  PetscCall(create_ts(program, theta, PETSC_TRUE, &program->ts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run(Program *program, TS ts)
{
  double *values;

  PetscFunctionBeginUser;
  PetscCall(VecGetArrayWrite(program->solution, &values));
  PetscCall(PetscArraycpy(values, program->start, 2 * program->points * program->points));
  PetscCall(VecRestoreArrayWrite(program->solution, &values));
  PetscCall(TSSetTime(ts, 0.0));
  PetscCall(TSSetStepNumber(ts, 0));
  PetscCall(TSSetTimeStep(ts, program->dt));
  PetscCall(TSSolve(ts, program->solution));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode take(Program *program, Vec vec, double *out)
{
  const double *values;

  PetscFunctionBeginUser;
  PetscCall(VecGetArrayRead(vec, &values));
  PetscCall(PetscArraycpy(out, values, 2 * program->points * program->points));
  PetscCall(VecRestoreArrayRead(vec, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* out: the final state */
PetscErrorCode forward(Program *program, double *out)
{
  PetscFunctionBeginUser;
  PetscCall(run(program, program->forward));
  PetscCall(take(program, program->solution, out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* out: the final state; what the gradient needs is kept */
PetscErrorCode forward_sweep(Program *program, double *out)
{
  PetscFunctionBeginUser;
  PetscCall(run(program, program->ts));
  PetscCall(take(program, program->solution, out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* out: the gradient of |final|^2 / 2 in the initial state, after a forward sweep */
PetscErrorCode adjoint_sweep(Program *program, double *out)
{
  PetscFunctionBeginUser;
  PetscCall(VecCopy(program->solution, program->lambda));
  PetscCall(TSSetCostGradients(program->ts, 1, &program->lambda, NULL));
  PetscCall(TSAdjointSolve(program->ts));
  PetscCall(take(program, program->lambda, out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* out: the gradient in the four rates, from the sweep that gives that in the initial state */
PetscErrorCode adjoint_sweep_rates(Program *program, double *out)
{
  const double *values;

  PetscFunctionBeginUser;
  PetscCall(VecCopy(program->solution, program->lambda));
  PetscCall(VecZeroEntries(program->mu));
  PetscCall(TSSetCostGradients(program->ts, 1, &program->lambda, &program->mu));
  PetscCall(TSAdjointSolve(program->ts));
  PetscCall(VecGetArrayRead(program->mu, &values));
  PetscCall(PetscArraycpy(out, values, 4));
  PetscCall(VecRestoreArrayRead(program->mu, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode destroy(Program *program)
{
  PetscFunctionBeginUser;
  PetscCall(TSDestroy(&program->ts));
  PetscCall(TSDestroy(&program->forward));
  PetscCall(VecDestroy(&program->solution));
  PetscCall(VecDestroy(&program->lambda));
  PetscCall(VecDestroy(&program->mu));
  PetscCall(PetscFree(program->state));
  PetscCall(PetscFree(program));
  PetscFunctionReturn(PETSC_SUCCESS);
}
