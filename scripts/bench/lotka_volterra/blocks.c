/* The same runs by PETSc TSRK 5bs; the derivatives by hand: the stages of all steps are kept, the
   recurrence back carries all costs at once, and matrix products do the rest. */
#include "model.c"
#include <petscblaslapack.h>

typedef struct {
  Program *program;
  PetscInt stages, steps, room;
  double *sizes, *points; /* [room], [room, stages, n] */
  double *growth, *moved; /* [steps, stages, n], [steps, stages, costs, n] */
  PetscInt moved_room;
} Blocks;

static PetscErrorCode keep(TS ts)
{
  Blocks *blocks;
  PetscInt stages;
  PetscReal before, now;
  Vec *points;

  PetscFunctionBeginUser;
  PetscCall(TSGetApplicationContext(ts, &blocks));
  PetscCall(TSGetPrevTime(ts, &before));
  PetscCall(TSGetTime(ts, &now));
  PetscCall(TSGetStages(ts, &stages, &points));
  const PetscInt n = blocks->program->model.n, width = blocks->stages * n;
  if (blocks->steps == blocks->room) {
    blocks->room = 2 * blocks->room + 64;
    PetscCall(PetscRealloc(blocks->room * sizeof(double), &blocks->sizes));
    PetscCall(PetscRealloc(blocks->room * width * sizeof(double), &blocks->points));
  }
  blocks->sizes[blocks->steps] = now - before;
  for (PetscInt i = 0; i < blocks->stages; i++) {
    const double *values;
    PetscCall(VecGetArrayRead(points[i], &values));
    PetscCall(PetscArraycpy(blocks->points + blocks->steps * width + i * n, values, n));
    PetscCall(VecRestoreArrayRead(points[i], &values));
  }
  blocks->steps++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode create_blocks(PetscInt n, const double *parameters, const double *start, double end,
                             double tolerance, PetscInt costs, Blocks **out)
{
  Blocks *blocks;

  PetscFunctionBeginUser;
  PetscCall(PetscNew(&blocks));
  *out = blocks;
  PetscCall(create(n, parameters, start, end, tolerance, costs, &blocks->program));
  TS ts = blocks->program->ts;
  PetscCall(TSRemoveTrajectory(ts));
  PetscCall(TSRKGetTableau(ts, &blocks->stages, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
  blocks->stages--; /* the last stage is the first of the next step */
  PetscCall(TSSetApplicationContext(ts, blocks));
  PetscCall(TSSetPostStep(ts, keep));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* weights [costs, n]: gradients of the costs in x(T); out [costs, n + n^2]: their gradients in p */
PetscErrorCode block_gradients(Blocks *blocks, const double *weights, double *out)
{
  Program *program = blocks->program;
  TS ts = program->ts;
  const PetscInt n = program->model.n, m = program->costs, s = blocks->stages;
  const PetscReal *inner, *outer;
  const double one = 1.0, zero = 0.0;
  PetscInt all;
  double *carried, *pulled, *weight;

  PetscFunctionBeginUser;
  blocks->steps = 0;
  PetscCall(put(program->solution, program->start));
  PetscCall(TSSetTime(ts, 0.0));
  PetscCall(TSSetStepNumber(ts, 0));
  PetscCall(TSSetTimeStep(ts, 1e-3 * program->end));
  PetscCall(TSSolve(ts, program->solution));
  PetscCall(TSRKGetTableau(ts, &all, &inner, &outer, NULL, NULL, NULL, NULL, NULL));
  const PetscInt points = blocks->steps * s;
  if (points > blocks->moved_room) {
    blocks->moved_room = points;
    PetscCall(PetscRealloc(points * n * sizeof(double), &blocks->growth));
    PetscCall(PetscRealloc(points * m * n * sizeof(double), &blocks->moved));
  }
  PetscCall(PetscMalloc3(m * n, &carried, s * m * n, &pulled, m * n, &weight));
  PetscBLASInt n_, m_, points_, width_;
  PetscCall(PetscBLASIntCast(n, &n_));
  PetscCall(PetscBLASIntCast(m, &m_));
  PetscCall(PetscBLASIntCast(points, &points_));
  PetscCall(PetscBLASIntCast(m * n, &width_));
  const double *a = program->model.interactions;
  for (PetscInt k = 0; k < points; k++)
    PetscCall(PetscArraycpy(blocks->growth + k * n, program->model.rates, n));
  PetscCallBLAS("BLASgemm", BLASgemm_("T", "N", &n_, &points_, &n_, &one, a, &n_, blocks->points, &n_, &one,
                                      blocks->growth, &n_));
  PetscCall(PetscArraycpy(carried, weights, m * n));
  for (PetscInt step = blocks->steps - 1; step >= 0; step--) {
    const double h = blocks->sizes[step];
    for (PetscInt i = s - 1; i >= 0; i--) {
      const PetscInt point = step * s + i;
      const double *restrict x = blocks->points + point * n, *restrict growth = blocks->growth + point * n;
      double *restrict moved = blocks->moved + point * m * n, *restrict to = pulled + i * m * n;
      for (PetscInt k = 0; k < m * n; k++) weight[k] = h * outer[i] * carried[k];
      for (PetscInt j = i + 1; j < s; j++) {
        const double factor = h * inner[j * all + i];
        const double *restrict from = pulled + j * m * n;
        if (factor)
          for (PetscInt k = 0; k < m * n; k++) weight[k] += factor * from[k];
      }
      for (PetscInt c = 0; c < m; c++)
        for (PetscInt k = 0; k < n; k++) {
          moved[c * n + k] = weight[c * n + k] * x[k];
          to[c * n + k] = weight[c * n + k] * growth[k];
        }
      PetscCallBLAS("BLASgemm", BLASgemm_("N", "N", &n_, &m_, &n_, &one, a, &n_, moved, &n_, &one, to, &n_));
    }
    for (PetscInt i = 0; i < s; i++)
      for (PetscInt k = 0; k < m * n; k++) carried[k] += pulled[i * m * n + k];
  }
  for (PetscInt c = 0; c < m; c++) {
    double *row = out + c * (n + n * n);
    for (PetscInt k = 0; k < n; k++) row[k] = 0.0;
    for (PetscInt point = 0; point < points; point++)
      for (PetscInt k = 0; k < n; k++) row[k] += blocks->moved[(point * m + c) * n + k];
    PetscCallBLAS("BLASgemm", BLASgemm_("N", "T", &n_, &n_, &points_, &one, blocks->points, &n_,
                                        blocks->moved + c * n, &width_, &zero, row + n, &n_));
  }
  PetscCall(PetscFree3(carried, pulled, weight));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode destroy_blocks(Blocks *blocks)
{
  PetscFunctionBeginUser;
  PetscCall(destroy(blocks->program));
  PetscCall(PetscFree(blocks->sizes));
  PetscCall(PetscFree(blocks->points));
  PetscCall(PetscFree(blocks->growth));
  PetscCall(PetscFree(blocks->moved));
  PetscCall(PetscFree(blocks));
  PetscFunctionReturn(PETSC_SUCCESS);
}
