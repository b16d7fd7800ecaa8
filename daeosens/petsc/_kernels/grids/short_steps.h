/* Multigrid that leaves its coarse grids where the smoother of the finest one is enough. */
#pragma once

#include <petscpc.h>

/* Let a PCMG look at its matrix whenever it is set up.

   M - theta h f_u of a short step has dominant diagonals.  Then one sweep of the
   finest level's smoother preconditions as well as a cycle, at a fraction of its price, and no coarse
   matrices are made.  Steps may become longer later: the levels are set up when they are needed.
   The options of the levels are read here. */
PetscErrorCode PCMGSmoothShortSteps(PC pc);

/* How many levels of a PCMG that is set up are, from the finest on. */
PetscErrorCode PCMGGetLevelsInUse(PC pc, PetscInt *count);
