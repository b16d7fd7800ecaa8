/* Newton's method in steps of TS that knows the rounding of its residual; see newton_rounding.c. */
#pragma once

#include <petscsnes.h>

#define ROUNDING_SEARCH "rounding"

/* the name of a Vec composed with a SNES: sizes of terms of F that do not depend on x, row by row, whose
   rounding is in F too, where x itself is about zero */
#define NEWTON_TERMS "daeosens terms"

/* the line search of that name, for -snes_linesearch_type; once in a process */
PetscErrorCode NewtonRegister(void);
/* the test of convergence of a SNES; again: nothing.  KSPONLY becomes a whole step of Newton's method,
   so that its remainder is known */
PetscErrorCode NewtonAttach(SNES);
/* what was left of the unknowns' errors, at most in each solve, the sum of the solves since the last
   such call, relative to the largest sizes that they have had since then; 0 where there is no test of
   ours */
PetscErrorCode NewtonTakeRemainder(SNES, PetscReal *);
