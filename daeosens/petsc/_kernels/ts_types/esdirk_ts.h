/* A type of TS that takes the steps of ESDIRK methods, and of additive ones; see esdirk_ts.c. */
#pragma once

#include <petscts.h>

/* M u' = f(t, u) and a tableau of s stages: the first one explicit, the others with the same
   coefficient on the diagonal, the last one the solution.  Everything is borrowed. */
typedef struct {
  long          s;
  int           order;
  const double *a;        /* [s, s] by rows */
  const double *c;        /* [s] */
  const double *embedded; /* [s]: the solution of one order less as a sum of stages; NULL: there is none */
  Mat           mass;     /* NULL is the identity */
  Mat           null;     /* projection on the equations without u'; NULL: there are none */
  /* the coefficients of g in u' = f + g; NULL: there is no g */
  const double *additive;          /* [s, s] by rows, below the diagonal */
  const double *additive_end;      /* [s]: of the state after the step beside the last stage */
  const double *additive_embedded; /* [s]: of the solution of one order less beside the sum of stages */
} EsdirkSystem;

/* the name of an object, whichever, composed with a TS: f is affine in u, with one Jacobian at all times */
#define ESDIRK_AFFINE "daeosens affine"

PetscErrorCode EsdirkRegister(void);
PetscErrorCode EsdirkAttach(TS, const EsdirkSystem *);
