/* Geometric multigrid whose matrices have upwind differences on every level. */
#pragma once

#include <petscpc.h>

/* Make the matrices of a PCMG's levels whenever it is set up, from interpolations that it has already.

   A coarse matrix that is the product of the fine one and interpolations has central differences,
   whatever the fine one has: over cells of little diffusion waves of two cells are not damped, and
   grow where a flow enters across an edge without slope.  So each level, the finest too, is given as
   much diffusion as upwind differences have.  ``kinds``: unknowns at a point. */
PetscErrorCode PCMGSetUpwind(PC pc, PetscInt kinds);
