/* Diagonally implicit Runge-Kutta steps of small dense systems; see dense_steps.c. */
#pragma once

#include <petscts.h>

#include "running_costs.h"

typedef void (*DenseFunction)(
  double t, const double *u, const double *p, double *out, void *user_data);
typedef void (*DenseProduct)(
  double t, const double *u, const double *p, const double *w, double *by_u, double *by_p, void *user_data);

/* u' = f(t, u, p) in n unknowns and a tableau of s stages: the first one explicit, the last one the
   solution.  Everything is borrowed. */
typedef struct {
  long          n, m, s;
  int           order;
  const double *a;            /* [s, s] by rows */
  const double *c;            /* [s] */
  const double *b_embedded;   /* [s], of one order less; NULL: none */
  DenseFunction rhs, jacobian, jacobian_p; /* f_p [n, m] by rows; not used where there is a pull */
  DenseProduct  pull;                      /* f_u^T w, f_p^T w; may be NULL */
  void         *rhs_data, *jacobian_data, *jacobian_p_data, *pull_data;
  const double *p;
  const int    *places;       /* where in [n, n] the entries of the jacobian belong; NULL: all, by rows */
  long          entries;
  /* what was not finite: 1 the rhs, 2 the jacobian; when, and its values [n] or [entries] */
  int           fault;
  double        fault_t;
  double       *fault_values;
} DenseSystem;

typedef struct _n_DenseWork *DenseWork;

PetscErrorCode DenseStepsRegister(void);
PetscErrorCode DenseStepsAttach(TS, DenseSystem *);

PetscErrorCode DenseWorkCreate(DenseSystem *, long rows, DenseWork *);
PetscErrorCode DenseWorkDestroy(DenseWork *);
PetscErrorCode DenseTransposeStep(DenseWork, double t, double h, const double *start, const double *stages, double **lam, double **mu, const RunningCosts *costs);
