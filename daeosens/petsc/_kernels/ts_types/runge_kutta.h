/* Explicit Runge-Kutta steps on plain numbers. */
#pragma once

#include <petscts.h>

#include "breakpoints.h"

typedef struct {
  int (*rate)(void *context, double t, const double *u, double *out); /* f [n]; false: not finite */
  void         *context;
  Breakpoints  *breakpoints;
  long          n, s, order;
  int           fsal;       /* the last stage is the first one of the next step */
  const double *a;          /* [s, s] */
  const double *b;          /* [s] */
  const double *difference; /* [s]: b of the error estimate's companion, less b; NULL: none */
  const double *c;          /* [s] */
  const int    *raised;     /* not 0 after an exception, which ends the run; NULL: there are none */
} ExplicitSystem;

/* makes a TS one of that type; the system has to live as long */
PetscErrorCode ExplicitStepsSet(TS ts, const char *type, ExplicitSystem *system);
