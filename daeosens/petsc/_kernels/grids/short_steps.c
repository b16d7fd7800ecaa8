#include "short_steps.h"

#include <petsc/private/pcimpl.h>

#define CONTEXT "daeosens short steps"

/* Where the sum of a row's other entries, beside its diagonal, is larger, multigrid is quicker. */
#define WEAK 0.85

typedef struct {
  PetscBool alone;  /* the smoother, for the matrix that the preconditioner was set up with last */
  PetscBool formed; /* the coarse levels have been, for this matrix or an earlier one */
  PetscErrorCode (*set_up)(PC), (*apply)(PC, Vec, Vec), (*apply_transpose)(PC, Vec, Vec);
} ShortSteps;

static PetscErrorCode finest_smoother(PC pc, KSP *solver, PC *smoother)
{
  PetscInt levels;

  PetscFunctionBegin;
  PetscCall(PCMGGetLevels(pc, &levels));
  PetscCall(PCMGGetSmoother(pc, levels - 1, solver));
  PetscCall(KSPGetPC(*solver, smoother));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add to ``shares`` what couples an unknown to others, in moduli. */
static PetscErrorCode add_couplings(Mat matrix, PetscBool inside, PetscReal *shares)
{
  const PetscInt *begins, *columns;
  PetscScalar    *values;
  PetscMemType    type;
  PetscInt        count;

  PetscFunctionBegin;
  PetscCall(MatGetLocalSize(matrix, &count, NULL));
  PetscCall(MatSeqAIJGetCSRAndMemType(matrix, &begins, &columns, &values, &type));
  for (PetscInt i = 0; i < count; i++) {
    for (PetscInt j = begins[i]; j < begins[i + 1]; j++) {
      if (!inside || columns[j] != i) shares[i] += PetscAbsScalar(values[j]);
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode couples_weakly(Mat matrix, PetscBool *weak)
{
  Mat                inside = matrix, outside = NULL;
  const PetscInt    *numbers;
  const PetscScalar *pivots;
  PetscBool          distributed, stored;
  PetscReal         *shares;
  PetscInt           count;
  Vec                diagonal;

  PetscFunctionBegin;
  *weak = PETSC_FALSE;
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)matrix, &stored, MATSEQAIJ, MATMPIAIJ, ""));
  if (!stored) PetscFunctionReturn(PETSC_SUCCESS); /* products and blocks have no rows to look at */
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)matrix, MATMPIAIJ, &distributed));
  if (distributed) PetscCall(MatMPIAIJGetSeqAIJ(matrix, &inside, &outside, &numbers));
  PetscCall(MatGetLocalSize(matrix, &count, NULL));
  PetscCall(PetscCalloc1(count, &shares));
  PetscCall(add_couplings(inside, PETSC_TRUE, shares));
  if (outside) PetscCall(add_couplings(outside, PETSC_FALSE, shares));
  PetscCall(MatCreateVecs(matrix, NULL, &diagonal));
  PetscCall(MatGetDiagonal(matrix, diagonal));
  PetscCall(VecGetArrayRead(diagonal, &pivots));
  *weak = PETSC_TRUE;
  /* a comparison that NaN fails too */
  for (PetscInt i = 0; i < count && *weak; i++) *weak = (PetscBool)(shares[i] <= WEAK * PetscAbsScalar(pivots[i]));
  PetscCall(VecRestoreArrayRead(diagonal, &pivots));
  PetscCall(VecDestroy(&diagonal));
  PetscCall(PetscFree(shares));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, weak, 1, MPI_C_BOOL, MPI_LAND, PetscObjectComm((PetscObject)matrix)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_up(PC pc)
{
  ShortSteps *steps;
  PetscBool   called = pc->setupcalled;
  PetscInt    levels;
  KSP         solver;
  PC          smoother;

  PetscFunctionBegin;
  PetscCall(PetscObjectContainerQuery((PetscObject)pc, CONTEXT, &steps));
  PetscCall(couples_weakly(pc->pmat, &steps->alone));
  /* PCMG takes another matrix than the last one for the user's choice, and keeps all levels as they are */
  PetscCall(finest_smoother(pc, &solver, &smoother));
  PetscCall(KSPSetOperators(solver, pc->mat, pc->pmat));
  if (steps->alone) {
    PetscCall(PCSetUp(smoother));
    PetscCall(PCGetFailedReason(smoother, &pc->failedreason));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* it would go on with residuals of the first one that its levels were made for */
  PetscCall(PCMGGetLevels(pc, &levels));
  PetscCall(PCMGSetResidual(pc, levels - 1, PCMGResidualDefault, pc->mat));
  PetscCall(PCMGSetResidualTranspose(pc, levels - 1, PCMGResidualTransposeDefault, pc->mat));
  /* a set-up by the smoother alone is none of the levels */
  if (!steps->formed) pc->setupcalled = PETSC_FALSE;
  PetscCall((*steps->set_up)(pc));
  pc->setupcalled = called;
  steps->formed   = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode apply_either(PC pc, Vec x, Vec y, PetscBool transposed)
{
  ShortSteps *steps;
  KSP         solver;
  PC          smoother;

  PetscFunctionBegin;
  PetscCall(PetscObjectContainerQuery((PetscObject)pc, CONTEXT, &steps));
  if (steps->alone) {
    PetscCall(finest_smoother(pc, &solver, &smoother));
    PetscCall((transposed ? PCApplyTranspose : PCApply)(smoother, x, y));
  } else PetscCall((*(transposed ? steps->apply_transpose : steps->apply))(pc, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode apply(PC pc, Vec x, Vec y)
{
  return apply_either(pc, x, y, PETSC_FALSE);
}

static PetscErrorCode apply_transpose(PC pc, Vec x, Vec y)
{
  return apply_either(pc, x, y, PETSC_TRUE);
}

PetscErrorCode PCMGSmoothShortSteps(PC pc)
{
  ShortSteps *steps;
  KSP         solver;
  PetscInt    levels;

  PetscFunctionBegin;
  PetscCall(PetscNew(&steps));
  steps->set_up          = pc->ops->setup;
  steps->apply           = pc->ops->apply;
  steps->apply_transpose = pc->ops->applytranspose;
  pc->ops->setup          = set_up;
  pc->ops->apply          = apply;
  pc->ops->applytranspose = apply_transpose;
  /* those of PCMG know its levels only; without them PETSc applies the preconditioner */
  pc->ops->applyrichardson   = NULL;
  pc->ops->matapply          = NULL;
  pc->ops->matapplytranspose = NULL;
  PetscCall(PetscObjectContainerCompose((PetscObject)pc, CONTEXT, steps, PetscCtxDestroyDefault));
  /* the options are there now, and may not be when coarse levels are set up for the first time */
  PetscCall(PCMGGetLevels(pc, &levels));
  for (PetscInt k = 0; k < levels; k++) {
    PetscCall(PCMGGetSmoother(pc, k, &solver));
    PetscCall(KSPSetFromOptions(solver));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCMGGetLevelsInUse(PC pc, PetscInt *count)
{
  ShortSteps *steps = NULL;

  PetscFunctionBegin;
  PetscCall(PetscObjectContainerQuery((PetscObject)pc, CONTEXT, &steps));
  PetscCall(PCMGGetLevels(pc, count));
  if (steps && !steps->formed) *count = 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}
