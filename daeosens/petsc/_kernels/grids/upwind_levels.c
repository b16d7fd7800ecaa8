/* Source: D. Kuzmin, S. Turek, J. Comput. Phys. 175, 2002 (discrete upwinding). */
#include "upwind_levels.h"

#include <petsc/private/pcimpl.h>

#define CONTEXT "daeosens upwind levels"

typedef struct {
  PetscInt kinds, count;
  Mat     *matrices; /* of the levels, the coarsest first; NULL before the first set-up */
  PetscErrorCode (*set_up)(PC);
} Levels;

static PetscReal lacking(PetscReal there, PetscReal back)
{
  const PetscReal together = 0.5 * (there + back), apart = 0.5 * PetscAbsReal(there - back);

  return PetscMax(0.0, apart - PetscMax(0.0, -together));
}

/* of entries whose columns increase in both matrices; what is added to the diagonal goes to ``sums`` */
static PetscErrorCode add_part(Mat matrix, Mat transposed, const PetscInt *numbers, const PetscInt *others, PetscInt first, PetscInt kinds, PetscReal *sums)
{
  const PetscInt *begins, *columns, *begins_t, *columns_t;
  PetscScalar    *values, *values_t;
  PetscMemType    type;
  PetscInt        count;

  PetscFunctionBegin;
  PetscCall(MatGetLocalSize(matrix, &count, NULL));
  PetscCall(MatSeqAIJGetCSRAndMemType(matrix, &begins, &columns, &values, &type));
  PetscCall(MatSeqAIJGetCSRAndMemType(transposed, &begins_t, &columns_t, &values_t, &type));
  for (PetscInt i = 0; i < count; i++) {
    PetscInt k = begins_t[i];
    for (PetscInt j = begins[i]; j < begins[i + 1]; j++) {
      const PetscInt column = numbers ? numbers[columns[j]] : columns[j] + first;
      for (; k < begins_t[i + 1] && (others ? others[columns_t[k]] : columns_t[k] + first) < column; k++);
      if (k == begins_t[i + 1]) break;
      if ((others ? others[columns_t[k]] : columns_t[k] + first) != column) continue;
      if (column == i + first || (column - i - first) % kinds) continue;
      const PetscReal more = lacking(PetscRealPart(values[j]), PetscRealPart(values_t[k]));
      values[j] -= more;
      sums[i] += more;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add so much diffusion that of two unknowns of the same kind neither pushes the other off: where they
   are coupled by s + k and s - k, |k| > -s, both entries become smaller by |k| + s, and the diagonals
   larger.  What is added is symmetric with zero sums of rows, so that constants and sums are kept. */
static PetscErrorCode add_upwind(Mat matrix, PetscInt kinds)
{
  Mat             transposed, inside = matrix, outside = NULL, inside_t, outside_t = NULL;
  const PetscInt *numbers = NULL, *others = NULL;
  PetscBool       distributed;
  PetscScalar    *sums;
  PetscInt        first;
  Vec             diagonal;

  PetscFunctionBegin;
  PetscCall(MatTranspose(matrix, MAT_INITIAL_MATRIX, &transposed));
  inside_t = transposed;
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)matrix, MATMPIAIJ, &distributed));
  if (distributed) {
    PetscCall(MatMPIAIJGetSeqAIJ(matrix, &inside, &outside, &numbers));
    PetscCall(MatMPIAIJGetSeqAIJ(transposed, &inside_t, &outside_t, &others));
  }
  PetscCall(MatCreateVecs(matrix, NULL, &diagonal));
  PetscCall(VecSet(diagonal, 0.0));
  PetscCall(VecGetArray(diagonal, &sums));
  PetscCall(MatGetOwnershipRange(matrix, &first, NULL));
  PetscCall(add_part(inside, inside_t, NULL, NULL, first, kinds, sums));
  if (outside) PetscCall(add_part(outside, outside_t, numbers, others, first, kinds, sums));
  PetscCall(VecRestoreArray(diagonal, &sums));
  PetscCall(PetscObjectStateIncrease((PetscObject)inside));
  if (outside) PetscCall(PetscObjectStateIncrease((PetscObject)outside));
  PetscCall(MatDiagonalSet(matrix, diagonal, ADD_VALUES));
  PetscCall(PetscObjectStateIncrease((PetscObject)matrix));
  PetscCall(VecDestroy(&diagonal));
  PetscCall(MatDestroy(&transposed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy(PetscCtxRt context)
{
  Levels *levels = *(Levels **)context;

  PetscFunctionBegin;
  for (PetscInt k = 0; levels->matrices && k < levels->count; k++) PetscCall(MatDestroy(&levels->matrices[k]));
  PetscCall(PetscFree(levels->matrices));
  PetscCall(PetscFree(levels));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_up(PC pc)
{
  Levels  *levels;
  MatReuse reuse;
  KSP      solver;
  Mat      between;

  PetscFunctionBegin;
  PetscCall(PetscObjectContainerQuery((PetscObject)pc, CONTEXT, &levels));
  reuse = levels->matrices ? MAT_REUSE_MATRIX : MAT_INITIAL_MATRIX;
  if (!levels->matrices) PetscCall(PetscCalloc1(levels->count, &levels->matrices));
  for (PetscInt k = levels->count - 1; k >= 0; k--) {
    Mat *own = &levels->matrices[k];
    if (k == levels->count - 1) {
      if (*own) PetscCall(MatCopy(pc->pmat, *own, SAME_NONZERO_PATTERN));
      else PetscCall(MatDuplicate(pc->pmat, MAT_COPY_VALUES, own));
    } else {
      PetscCall(PCMGGetInterpolation(pc, k + 1, &between));
      PetscCall(MatPtAP(levels->matrices[k + 1], between, reuse, PETSC_DETERMINE, own));
    }
    PetscCall(add_upwind(*own, levels->kinds));
    PetscCall(PCMGGetSmoother(pc, k, &solver));
    /* residuals on the finest level are those of the matrix itself */
    PetscCall(KSPSetOperators(solver, k == levels->count - 1 ? pc->mat : *own, *own));
  }
  PetscCall((*levels->set_up)(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCMGSetUpwind(PC pc, PetscInt kinds)
{
  Levels *levels;

  PetscFunctionBegin;
  PetscCall(PetscNew(&levels));
  levels->kinds = kinds;
  PetscCall(PCMGGetLevels(pc, &levels->count));
  levels->set_up = pc->ops->setup;
  pc->ops->setup = set_up;
  PetscCall(PetscObjectContainerCompose((PetscObject)pc, CONTEXT, levels, destroy));
  PetscFunctionReturn(PETSC_SUCCESS);
}
