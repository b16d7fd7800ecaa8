/* A type of TS that takes the steps of ESDIRK methods; see esdirk_ts.c. */
#pragma once

#include <petscts.h>

/* M u' = f(t, u) and a tableau of s stages: the first one explicit, the others with the same
   coefficient on the diagonal, the last one the solution.  Everything is borrowed. */
typedef struct {
  long          s;
  int           order;
  const double *a;        /* [s, s] by rows */
  const double *c;        /* [s] */
  const double *embedded; /* [s]: the solution of one order less as a sum of stages */
  Mat           mass;     /* NULL is the identity */
  Mat           null;     /* projection on the equations without u'; NULL: there are none */
} EsdirkSystem;

PetscErrorCode EsdirkRegister(void);
PetscErrorCode EsdirkAttach(TS, const EsdirkSystem *);
