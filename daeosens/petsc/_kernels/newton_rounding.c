/* Newton's method in steps of TS that knows the rounding of its residual, and the scales of unknowns.

   Row i of F(x) = 0 is a sum of terms of which |J| |x| estimates the sizes: r_i = sum_j |J_ij| |x_j|.
   What |F_i| has below a few eps r_i is rounding, which no iteration makes smaller: in a row of
   diffusion, r_i = 4 |x| / h^2.  So the line search looks at rows above their rounding alone, and the
   method has converged where there are none.  Otherwise the residual has to have fallen by rtol as a
   whole, and below rtol r_i in each row, since rows may be many orders of magnitude apart.

   On a grid all points have the scale of the largest: what diffuses is nowhere small by itself, and
   iterative solvers do not resolve it there.

   An iterative linear solver leaves its tolerance times the change that it was asked for, which the
   residual may hide: beside large rows, smooth errors are rounding.  As long as that is more than a
   tenth of rtol of an unknown, there is another iteration, which corrects it.  It does so down to the
   rounding of the unknowns, and not by as many digits once more.

   Where matrices can only be applied, the size of all rows is that of J x with random signs. */
#include "newton_rounding.h"

#include <petscdmda.h>
#include <petsc/private/kspimpl.h>
#include <petsc/private/linesearchimpl.h>
#include <petsc/private/snesimpl.h>

#define CONTEXT "daeosens newton"
#define FEW_EPS (4.0 * PETSC_MACHINE_EPSILON)
#define STALLED 1e-8 /* relative changes below this one that do not shrink any more are rounding */
#define OF_START 1e-3 /* part of an unknown's first size that counts where it has become smaller */
#define SUFFICIENT 1e-4 /* decrease, as PETSc's line search asks for */

typedef struct {
  Vec        start, sizes, rows; /* x at the start; |x|; r */
  Vec        largest;            /* |x| at most since the last remainder was taken */
  PetscBool  afresh;             /* it was taken: there is none yet */
  Vec        terms;              /* borrowed, or NULL; see NEWTON_TERMS */
  PetscObjectId scattered;       /* the matrix whose columns of other ranks are fetched by: */
  VecScatter scatter;
  PetscInt   fields;             /* unknowns of a point of a grid; 0: there is none */
  Vec        others;
  PetscReal  first;     /* norm of the first residual */
  PetscReal  change;    /* the last relative change of an unknown, at most */
  PetscReal  above;     /* norm of the last residual above its rounding */
  PetscReal  norm;      /* norm of the last residual */
  PetscReal  remainder; /* see newton_rounding.h */
  PetscReal  atol;      /* of the linear solver, as the user has it */
  PetscBool  brief;    /* linear solves end at rounding */
  PetscBool  once;      /* one iteration, whatever it leaves */
} Newton;

static PetscErrorCode forget_scatter(Newton *n)
{
  PetscFunctionBegin;
  PetscCall(VecScatterDestroy(&n->scatter));
  PetscCall(VecDestroy(&n->others));
  n->scattered = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy(PetscCtxRt context)
{
  Newton *n = *(Newton **)context;

  PetscFunctionBegin;
  PetscCall(forget_scatter(n));
  PetscCall(VecDestroy(&n->start));
  PetscCall(VecDestroy(&n->sizes));
  PetscCall(VecDestroy(&n->rows));
  PetscCall(VecDestroy(&n->largest));
  PetscCall(PetscFree(n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- sizes of rows -------------------------------------------------------------------------- */

static PetscErrorCode add_sparse(Mat matrix, const PetscReal *sizes, PetscReal *rows)
{
  const PetscInt *begins, *columns;
  PetscScalar    *values;
  PetscMemType    type;
  PetscInt        count;

  PetscFunctionBegin;
  PetscCall(MatGetLocalSize(matrix, &count, NULL));
  PetscCall(MatSeqAIJGetCSRAndMemType(matrix, &begins, &columns, &values, &type));
  for (PetscInt i = 0; i < count; i++) {
    PetscReal sum = 0.0;
    for (PetscInt k = begins[i]; k < begins[i + 1]; k++) sum += PetscAbsScalar(values[k]) * sizes[columns[k]];
    rows[i] += sum;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode add_dense(Mat matrix, const PetscReal *sizes, PetscReal *rows)
{
  const PetscScalar *values;
  PetscInt           count, columns, lead;

  PetscFunctionBegin;
  PetscCall(MatGetLocalSize(matrix, &count, &columns));
  PetscCall(MatDenseGetLDA(matrix, &lead));
  PetscCall(MatDenseGetArrayRead(matrix, &values));
  for (PetscInt j = 0; j < columns; j++)
    for (PetscInt i = 0; i < count; i++) rows[i] += PetscAbsScalar(values[i + j * lead]) * sizes[j];
  PetscCall(MatDenseRestoreArrayRead(matrix, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* one size for all rows: the mean one of J x with random signs of x */
static PetscErrorCode probe(Mat matrix, Vec sizes, Vec rows)
{
  PetscScalar *signs;
  PetscReal    norm;
  PetscInt     first, last, all;
  Vec          x;

  PetscFunctionBegin;
  PetscCall(VecDuplicate(sizes, &x));
  PetscCall(VecCopy(sizes, x));
  PetscCall(VecGetOwnershipRange(x, &first, &last));
  PetscCall(VecGetSize(x, &all));
  PetscCall(VecGetArray(x, &signs));
  for (PetscInt k = first; k < last; k++)
    if (((unsigned int)k * 2654435761u) >> 31) signs[k - first] = -signs[k - first];
  PetscCall(VecRestoreArray(x, &signs));
  PetscCall(MatMult(matrix, x, rows));
  PetscCall(VecNorm(rows, NORM_2, &norm));
  PetscCall(VecSet(rows, norm / PetscSqrtReal((PetscReal)PetscMax(all, 1))));
  PetscCall(VecDestroy(&x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode fetch(Newton *n, Mat matrix, Mat outside, const PetscInt *numbers)
{
  PetscObjectId number;
  PetscInt      count;
  IS            from;

  PetscFunctionBegin;
  PetscCall(MatGetLocalSize(outside, NULL, &count));
  PetscCall(PetscObjectGetId((PetscObject)matrix, &number));
  if (n->scattered != number) {
    PetscCall(forget_scatter(n));
    PetscCall(VecCreateSeq(PETSC_COMM_SELF, count, &n->others));
    PetscCall(ISCreateGeneral(PETSC_COMM_SELF, count, numbers, PETSC_COPY_VALUES, &from));
    PetscCall(VecScatterCreate(n->sizes, from, n->others, NULL, &n->scatter));
    PetscCall(ISDestroy(&from));
    n->scattered = number;
  }
  PetscCall(VecScatterBegin(n->scatter, n->sizes, n->others, INSERT_VALUES, SCATTER_FORWARD));
  PetscCall(VecScatterEnd(n->scatter, n->sizes, n->others, INSERT_VALUES, SCATTER_FORWARD));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* r = |J| |x| from the sizes of x */
static PetscErrorCode sum_rows(Newton *n, Mat matrix)
{
  const PetscScalar *sizes, *others;
  PetscScalar       *rows;
  PetscBool          sparse, distributed, dense;
  Mat                inside = matrix, outside = NULL;
  const PetscInt    *numbers;

  PetscFunctionBegin;
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)matrix, MATSEQAIJ, &sparse));
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)matrix, MATMPIAIJ, &distributed));
  PetscCall(PetscObjectTypeCompare((PetscObject)matrix, MATSEQDENSE, &dense));
  if (!sparse && !distributed && !dense) {
    PetscCall(probe(matrix, n->sizes, n->rows));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (distributed) {
    PetscCall(MatMPIAIJGetSeqAIJ(matrix, &inside, &outside, &numbers));
    PetscCall(fetch(n, matrix, outside, numbers));
  }
  PetscCall(VecSet(n->rows, 0.0));
  PetscCall(VecGetArrayRead(n->sizes, &sizes));
  PetscCall(VecGetArray(n->rows, &rows));
  PetscCall(dense ? add_dense(inside, sizes, rows) : add_sparse(inside, sizes, rows));
  if (outside) {
    PetscCall(VecGetArrayRead(n->others, &others));
    PetscCall(add_sparse(outside, others, rows));
    PetscCall(VecRestoreArrayRead(n->others, &others));
  }
  PetscCall(VecRestoreArray(n->rows, &rows));
  PetscCall(VecRestoreArrayRead(n->sizes, &sizes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the size of an unknown is the largest one that it has on the grid */
static PetscErrorCode share_sizes(PetscReal *sizes, PetscInt count, PetscInt fields, MPI_Comm comm)
{
  PetscReal *largest;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(fields, &largest));
  for (PetscInt i = 0; i < count; i += fields)
    for (PetscInt k = 0; k < fields; k++) largest[k] = PetscMax(largest[k], sizes[i + k]);
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, largest, fields, MPIU_REAL, MPIU_MAX, comm));
  for (PetscInt i = 0; i < count; i += fields)
    for (PetscInt k = 0; k < fields; k++) sizes[i + k] = largest[k];
  PetscCall(PetscFree(largest));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* sizes of unknowns: |x|, and others if there are any */
static PetscErrorCode measure_unknowns(Newton *n, Vec x, Vec more, PetscReal part)
{
  const PetscScalar *values, *others;
  PetscScalar       *sizes;
  PetscInt           count;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(x, &count));
  PetscCall(VecGetArrayRead(x, &values));
  PetscCall(VecGetArrayRead(more, &others));
  PetscCall(VecGetArrayWrite(n->sizes, &sizes));
  for (PetscInt i = 0; i < count; i++) sizes[i] = PetscMax(PetscAbsScalar(values[i]), part * PetscAbsScalar(others[i]));
  if (n->fields) PetscCall(share_sizes(sizes, count, n->fields, PetscObjectComm((PetscObject)x)));
  PetscCall(VecRestoreArrayWrite(n->sizes, &sizes));
  PetscCall(VecRestoreArrayRead(more, &others));
  PetscCall(VecRestoreArrayRead(x, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode measure_rows(Newton *n, Mat matrix)
{
  PetscFunctionBegin;
  PetscCall(sum_rows(n, matrix));
  if (n->terms) PetscCall(VecAXPY(n->rows, 1.0, n->terms));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* norm of the rows of F above their rounding, and whether one is above ``part`` of its size */
static PetscErrorCode norm_above(Newton *n, Vec f, PetscReal part, PetscReal *norm, PetscBool *large)
{
  const PetscScalar *values, *rows;
  PetscReal          sums[2] = {0.0, 0.0};
  PetscInt           count;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(f, &count));
  PetscCall(VecGetArrayRead(f, &values));
  PetscCall(VecGetArrayRead(n->rows, &rows));
  for (PetscInt i = 0; i < count; i++) {
    const PetscReal size = PetscAbsScalar(values[i]), row = PetscRealPart(rows[i]);
    if (size <= FEW_EPS * row) continue;
    sums[0] += size * size;
    if (!(size <= part * row)) sums[1] = 1.0;
  }
  PetscCall(VecRestoreArrayRead(n->rows, &rows));
  PetscCall(VecRestoreArrayRead(f, &values));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, 2, MPIU_REAL, MPIU_SUM, PetscObjectComm((PetscObject)f)));
  *norm = PetscSqrtReal(sums[0]);
  if (large) *large = sums[1] > 0.0 ? PETSC_TRUE : PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the largest change of an unknown, relative to its size */
static PetscErrorCode relative_change(Vec of, Vec y, PetscReal factor, PetscReal *change)
{
  const PetscScalar *values, *sizes;
  PetscReal          largest = 0.0;
  PetscInt           count;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(y, &count));
  PetscCall(VecGetArrayRead(y, &values));
  PetscCall(VecGetArrayRead(of, &sizes));
  for (PetscInt i = 0; i < count; i++) {
    const PetscReal size = PetscRealPart(sizes[i]), part = factor * PetscAbsScalar(values[i]);
    if (part > largest * size) largest = size > 0.0 ? part / size : PETSC_MAX_REAL;
  }
  PetscCall(VecRestoreArrayRead(of, &sizes));
  PetscCall(VecRestoreArrayRead(y, &values));
  PetscCallMPI(MPIU_Allreduce(&largest, change, 1, MPIU_REAL, MPIU_MAX, PetscObjectComm((PetscObject)y)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the linear solver, if it iterates until its residual is small; else NULL */
static PetscErrorCode iterative_solver(SNES snes, KSP *ksp)
{
  PetscBool direct;

  PetscFunctionBegin;
  PetscCall(SNESGetKSP(snes, ksp));
  PetscCall(PetscObjectTypeCompare((PetscObject)*ksp, KSPPREONLY, &direct));
  if (direct) *ksp = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what the last linear solve left of its solution, at most; 0 by a direct solver */
static PetscErrorCode linear_part(SNES snes, PetscReal *part)
{
  PetscReal atol;
  KSP       ksp;

  PetscFunctionBegin;
  *part = 0.0;
  PetscCall(iterative_solver(snes, &ksp));
  if (!ksp) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(KSPGetTolerances(ksp, part, &atol, NULL, NULL));
  if (ksp->rnorm0 > 0.0) *part = PetscMax(*part, PetscMin(1.0, atol / ksp->rnorm0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Linear solves have the user's absolute tolerance again. */
static PetscErrorCode solve_in_full(SNES snes, Newton *n)
{
  KSP ksp;

  PetscFunctionBegin;
  if (!n->brief) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(SNESGetKSP(snes, &ksp));
  PetscCall(KSPSetTolerances(ksp, PETSC_CURRENT, n->atol, PETSC_CURRENT, PETSC_CURRENT));
  n->brief = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the least and the largest size of an unknown; on a grid, those of its first point are all there are */
static PetscErrorCode bounds_of_sizes(Newton *n, PetscReal *least, PetscReal *largest)
{
  const PetscScalar *sizes;
  PetscReal          bounds[2] = {PETSC_MIN_REAL, PETSC_MIN_REAL}; /* of -size and size */
  PetscInt           count;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(n->sizes, &count));
  if (n->fields) count = PetscMin(count, n->fields);
  PetscCall(VecGetArrayRead(n->sizes, &sizes));
  for (PetscInt i = 0; i < count; i++) {
    const PetscReal size = PetscRealPart(sizes[i]);
    bounds[0] = PetscMax(bounds[0], -size), bounds[1] = PetscMax(bounds[1], size);
  }
  PetscCall(VecRestoreArrayRead(n->sizes, &sizes));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, bounds, 2, MPIU_REAL, MPIU_MAX, PetscObjectComm((PetscObject)n->sizes)));
  *least = -bounds[0], *largest = bounds[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Let the linear solves that follow the first one end where what they leave is rounding of the smallest
   unknown, by the residual of the first solve and the relative ``change`` that it has made. */
static PetscErrorCode solve_to_rounding(SNES snes, Newton *n, PetscReal change)
{
  PetscReal least, largest;
  KSP       ksp;

  PetscFunctionBegin;
  PetscCall(iterative_solver(snes, &ksp));
  if (!ksp || !(ksp->rnorm0 > 0.0) || !(change > 0.0)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(bounds_of_sizes(n, &least, &largest));
  PetscCall(KSPGetTolerances(ksp, NULL, &n->atol, NULL, NULL));
  PetscCall(KSPSetTolerances(ksp, PETSC_CURRENT, PetscMax(n->atol, ksp->rnorm0 * least / largest * PETSC_MACHINE_EPSILON / change), PETSC_CURRENT, PETSC_CURRENT));
  n->brief = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether what a linear solve began with was rounding of the unknowns already */
static PetscErrorCode nothing_solved(SNES snes, Newton *n, PetscBool *idle)
{
  PetscInt iterations;
  KSP      ksp;

  PetscFunctionBegin;
  *idle = PETSC_FALSE;
  if (!n->brief) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(SNESGetKSP(snes, &ksp));
  PetscCall(KSPGetIterationNumber(ksp, &iterations));
  *idle = iterations ? PETSC_FALSE : PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- convergence ---------------------------------------------------------------------------- */

static PetscErrorCode begin(Newton *n, Vec x, PetscReal norm)
{
  PetscFunctionBegin;
  if (!n->start) {
    PetscBool on_grid = PETSC_FALSE;
    DM        dm;
    PetscCall(VecGetDM(x, &dm));
    if (dm) PetscCall(PetscObjectTypeCompare((PetscObject)dm, DMDA, &on_grid));
    if (on_grid) PetscCall(VecGetBlockSize(x, &n->fields));
    PetscCall(VecDuplicate(x, &n->start));
    PetscCall(VecDuplicate(x, &n->sizes));
    PetscCall(VecDuplicate(x, &n->rows));
    PetscCall(VecDuplicate(x, &n->largest));
    n->afresh = PETSC_TRUE;
  }
  if (n->afresh) {
    PetscCall(VecCopy(x, n->largest));
    PetscCall(VecAbs(n->largest));
    n->afresh = PETSC_FALSE;
  }
  PetscCall(VecCopy(x, n->start));
  n->first = n->norm = n->above = norm;
  n->change = PETSC_MAX_REAL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode converged(SNES snes, PetscInt iteration, PetscReal xnorm, PetscReal ynorm, PetscReal norm, SNESConvergedReason *reason, void *context)
{
  Newton   *n = (Newton *)context;
  Vec       x = snes->vec_sol, f = snes->vec_func;
  PetscReal above, change, part, lambda = 1.0;
  PetscBool large, stalled, searches, solved, idle;

  PetscFunctionBegin;
  *reason = SNES_CONVERGED_ITERATING;
  if (PetscIsInfOrNanReal(norm)) {
    *reason = SNES_DIVERGED_FUNCTION_NANORINF;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!iteration) {
    PetscCall(solve_in_full(snes, n));
    PetscCall(begin(n, x, norm));
    PetscCall(PetscObjectQuery((PetscObject)snes, NEWTON_TERMS, (PetscObject *)&n->terms));
  }
  if (norm == 0.0 || norm < snes->abstol) {
    *reason = SNES_CONVERGED_FNORM_ABS;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!iteration) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscObjectTypeCompare((PetscObject)snes, SNESNEWTONLS, &searches));
  if (searches) PetscCall(SNESLineSearchGetLambda(snes->linesearch, &lambda));
  PetscCall(measure_unknowns(n, x, n->start, OF_START));
  PetscCall(measure_rows(n, snes->jacobian_pre));
  PetscCall(norm_above(n, f, snes->rtol, &above, &large));
  PetscCall(relative_change(n->sizes, snes->vec_sol_update, lambda, &change));
  /* no smaller than before, and either a tiny change or as small as asked for, though not in all rows:
     solvers that iterate do not resolve rows that are many orders of magnitude smaller than others */
  stalled = above >= 0.5 * n->above && ((change <= STALLED && change >= 0.5 * n->change) || above <= snes->rtol * n->first) ? PETSC_TRUE : PETSC_FALSE;
  PetscCall(linear_part(snes, &part));
  solved = part * change <= 0.1 * snes->rtol ? PETSC_TRUE : PETSC_FALSE;
  PetscCall(nothing_solved(snes, n, &idle));
  if (solved && (above == 0.0 || (above <= snes->rtol * n->first && !large))) *reason = SNES_CONVERGED_FNORM_RELATIVE;
  else if (idle) PetscCall(solve_in_full(snes, n)); /* some rows ask for more */
  else if (stalled || change <= snes->stol) *reason = SNES_CONVERGED_SNORM_RELATIVE;
  else if (snes->divtol > 0.0 && norm > snes->divtol * n->first) *reason = SNES_DIVERGED_DTOL;
  else if (snes->nfuncs >= snes->max_funcs && snes->max_funcs >= 0) *reason = SNES_DIVERGED_FUNCTION_COUNT;
  if (n->once && *reason == SNES_CONVERGED_ITERATING) *reason = SNES_CONVERGED_ITS;
  if (*reason > 0) { /* an unknown that has decayed to nothing is known to a part of what it was */
    PetscReal of_run;
    PetscCall(VecPointwiseMax(n->largest, n->largest, n->sizes));
    PetscCall(relative_change(n->largest, snes->vec_sol_update, lambda, &of_run));
    n->remainder += of_run * (n->norm > 0.0 ? PetscMin(1.0, norm / n->norm) : 1.0);
  }
  if (*reason != SNES_CONVERGED_ITERATING) PetscCall(solve_in_full(snes, n));
  else if (iteration == 1) PetscCall(solve_to_rounding(snes, n, change));
  n->above = above, n->change = change, n->norm = norm;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static Newton *context_of(SNES snes)
{
  return snes->ops->converged == converged ? (Newton *)snes->cnvP : NULL;
}

PetscErrorCode NewtonAttach(SNES snes)
{
  Newton        *n;
  PetscBool      once;
  SNESLineSearch whole;

  PetscFunctionBegin;
  if (context_of(snes)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(&n));
  PetscCall(PetscObjectTypeCompare((PetscObject)snes, SNESKSPONLY, &once));
  if (once) { /* PETSc does not look at what that leaves */
    n->once = PETSC_TRUE;
    PetscCall(SNESSetType(snes, SNESNEWTONLS));
    PetscCall(SNESSetTolerances(snes, PETSC_CURRENT, 0.5, PETSC_CURRENT, PETSC_CURRENT, PETSC_CURRENT)); /* not strict */
    PetscCall(SNESGetLineSearch(snes, &whole));
    PetscCall(SNESLineSearchSetType(whole, SNESLINESEARCHBASIC));
  }
  PetscCall(SNESSetConvergenceTest(snes, converged, n, destroy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NewtonTakeRemainder(SNES snes, PetscReal *remainder)
{
  Newton *n = context_of(snes);

  PetscFunctionBegin;
  *remainder = n ? n->remainder : 0.0;
  if (n) n->remainder = 0.0, n->afresh = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- line search ---------------------------------------------------------------------------- */

static PetscErrorCode try_step(SNESLineSearch search, PetscReal lambda, PetscReal *norm)
{
  SNES snes = search->snes;

  PetscFunctionBegin;
  PetscCall(VecWAXPY(search->vec_sol_new, -lambda, search->vec_update, search->vec_sol));
  PetscCall((*search->ops->snesfunc)(snes, search->vec_sol_new, search->vec_func_new));
  PetscCall(VecNorm(search->vec_func_new, NORM_2, norm));
  if (PetscIsInfOrNanReal(*norm)) snes->functiondomainerror = PETSC_FALSE; /* a shorter step may stay inside */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the place of the least value of the parabola, or the cubic, through what is known of f(lambda):
   at 0, with its slope, at the last lambda and at the one before, of which there may be none */
static PetscReal next_lambda(PetscReal f, PetscReal slope, PetscReal lambda, PetscReal g, PetscReal before, PetscReal g_before)
{
  PetscReal next;

  if (!(g < PETSC_MAX_REAL)) return 0.5 * lambda;
  if (!(before > 0.0) || !(g_before < PETSC_MAX_REAL)) {
    next = -slope * lambda * lambda / (2.0 * (g - f - lambda * slope));
  } else {
    const PetscReal t1 = (g - f - lambda * slope) / (lambda * lambda), t2 = (g_before - f - before * slope) / (before * before);
    const PetscReal a = (t1 - t2) / (lambda - before), b = (lambda * t2 - before * t1) / (lambda - before);
    const PetscReal d = PetscMax(b * b - 3.0 * a * slope, 0.0);
    next = a == 0.0 ? -slope / (2.0 * b) : (-b + PetscSqrtReal(d)) / (3.0 * a);
  }
  return PetscIsInfOrNanReal(next) ? 0.5 * lambda : PetscClipInterval(next, 0.1 * lambda, 0.5 * lambda);
}

/* norm of the residual after a shorter step, above its rounding where that is known */
static PetscErrorCode try_above(SNESLineSearch search, Newton *n, PetscReal lambda, PetscReal *norm)
{
  PetscFunctionBegin;
  PetscCall(try_step(search, lambda, norm));
  if (n && !PetscIsInfOrNanReal(*norm)) PetscCall(norm_above(n, search->vec_func_new, 0.0, norm, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The whole step where the residual above its rounding falls, or where the step is tiny; else less. */
static PetscErrorCode search(SNESLineSearch search)
{
  SNES      snes = search->snes;
  Newton   *n    = context_of(snes);
  PetscReal f = search->fnorm, g, before = 0.0, g_before = 0.0, lambda = search->damping, change;
  PetscBool changed_y = PETSC_FALSE, changed_w = PETSC_FALSE, fallen, finite;

  PetscFunctionBegin;
  PetscCall(SNESLineSearchSetReason(search, SNES_LINESEARCH_SUCCEEDED));
  PetscCall(SNESLineSearchPreCheck(search, search->vec_sol, search->vec_update, &changed_y));
  PetscCall(try_step(search, lambda, &g));
  finite = PetscIsInfOrNanReal(g) ? PETSC_FALSE : PETSC_TRUE;
  fallen = finite && g * g <= f * f * (1.0 - 2.0 * SUFFICIENT * lambda) ? PETSC_TRUE : PETSC_FALSE;
  if (!fallen && n) {
    PetscCall(measure_unknowns(n, search->vec_sol, finite ? search->vec_sol_new : search->vec_sol, 1.0));
    PetscCall(measure_rows(n, snes->jacobian_pre));
    PetscCall(relative_change(n->sizes, search->vec_update, lambda, &change));
    PetscCall(norm_above(n, search->vec_func, 0.0, &f, NULL));
    if (finite) PetscCall(norm_above(n, search->vec_func_new, 0.0, &g, NULL));
    fallen = finite && (change <= STALLED || g * g <= f * f * (1.0 - 2.0 * SUFFICIENT * lambda)) ? PETSC_TRUE : PETSC_FALSE;
    if (!fallen && f == 0.0) n = NULL, f = search->fnorm; /* a large step for what seemed to be rounding */
  }
  for (PetscInt k = 0; !fallen; k++) {
    const PetscReal half = 0.5 * f * f, slope = -2.0 * half, value = PetscIsInfOrNanReal(g) ? PETSC_MAX_REAL : 0.5 * g * g;
    const PetscReal next = next_lambda(half, slope, lambda, value, before, g_before);
    before = lambda, g_before = value, lambda = next;
    if (k >= search->max_it || lambda < search->minlambda) {
      PetscCall(SNESLineSearchSetReason(search, PetscIsInfOrNanReal(g) ? SNES_LINESEARCH_FAILED_NANORINF : SNES_LINESEARCH_FAILED_REDUCT));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(try_above(search, n, lambda, &g));
    fallen = 0.5 * g * g < half + SUFFICIENT * lambda * slope ? PETSC_TRUE : PETSC_FALSE;
  }
  PetscCall(SNESLineSearchPostCheck(search, search->vec_sol, search->vec_update, search->vec_sol_new, &changed_y, &changed_w));
  if (changed_w) PetscCall((*search->ops->snesfunc)(snes, search->vec_sol_new, search->vec_func_new));
  PetscCall(VecCopy(search->vec_sol_new, search->vec_sol));
  PetscCall(VecCopy(search->vec_func_new, search->vec_func));
  PetscCall(SNESLineSearchSetLambda(search, lambda));
  PetscCall(SNESLineSearchComputeNorms(search));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create(SNESLineSearch search_)
{
  PetscFunctionBegin;
  search_->ops->apply = search;
  search_->max_it     = 40;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NewtonRegister(void)
{
  return SNESLineSearchRegister(ROUNDING_SEARCH, create);
}
