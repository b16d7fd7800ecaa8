/* Explicit and diagonally implicit Runge-Kutta steps of systems whose equations are C functions; see
   dense_steps.c, and dense_derivatives.c for their derivatives. */
#pragma once

#include <petscblaslapack.h>
#include <petscts.h>

#include "breakpoints.h"
#include "running_costs.h"

typedef void (*DenseFunction)(
  double t, const double *u, const double *p, double *out, void *user_data);
typedef void (*DenseProduct)(
  double t, const double *u, const double *p, const double *w, double *by_u, double *by_p, void *user_data);
typedef void (*DenseSlope)(
  double t, const double *u, const double *p, const double *du, const double *dp, double *out, void *user_data);
typedef void (*DenseCurvature)(
  double t, const double *u, const double *p, const double *w, const double *du, const double *dp, double *by_u, double *by_p, void *user_data);

/* M u' = f(t, u, p) in n unknowns and a tableau of s stages.  Those of a TS: M the identity, the first
   stage explicit, the others not, the last one the solution.  Everything is borrowed. */
typedef struct {
  long          n, m, s;
  int           order;
  const double *a;            /* [s, s] by rows */
  const double *b;            /* [s] */
  const double *c;            /* [s] */
  const double *b_embedded;   /* [s], of one order less; NULL: none */
  const double *guess;        /* [s, s] first guesses of rates as sums of those before; NULL: the one before */
  double        end;          /* the step leads to u + end (U_s - u), U_s implicit; 0: to u + h sum b_j f_j */
  const double *mass;         /* [n, n]; NULL: the identity; otherwise there is an end */
  DenseFunction rhs, jacobian, jacobian_p; /* f_p [n, m] by rows; not used where there is a pull */
  DenseProduct  pull;                      /* f_u^T w, f_p^T w; may be NULL */
  int           gathers;                   /* the pull fills f_u^T w only, and gathers by itself what p needs */
  DenseSlope    push;                      /* f_u du + f_p dp; may be NULL */
  DenseCurvature hessian;                  /* of w^T f along (du, dp); may be NULL */
  void         *rhs_data, *jacobian_data, *jacobian_p_data, *pull_data, *push_data, *hessian_data;
  Breakpoints   breakpoints;
  int          *raised;       /* after an exception of Python's functions 1, or 2 if it ends the run; NULL: C */
  const double *p;
  const int    *places;       /* where in [n, n] the entries of the jacobian belong; NULL: all, by rows */
  long          entries;
  /* what was not finite: 1 the rhs, 2 the jacobian; when, and its values [n] or [entries];
     3: stages of a step that was taken, or their factors, are not found again */
  int           fault;
  double        fault_t;
  double       *fault_values;
} DenseSystem;

/* Work space for steps of a system, and for transposed ones of some rows. */
typedef struct {
  DenseSystem  *system;
  double       *start;    /* [n] */
  double       *known;    /* [n] */
  double       *change;   /* [n] */
  double       *rates;    /* [s, n] */
  double      **states;   /* [s] of [n] */
  double       *own;      /* [s, n] of a transposed step */
  double       *entries;  /* of f_u */
  double       *entries_p;
  double       *factors;  /* [n, n] */
  PetscBLASInt *pivots;
  double       *parts;    /* [rows, s, n] of a transposed step */
  long          rows;
  double        scale;    /* h a_ii of the factors; 0: there are none */
  double       *updates;  /* [., 2, n] of their inverse, see dense_steps.c */
  double       *weights;  /* [n] of unknowns */
  double       *rounding; /* [n] changes of unknowns that are rounding of f */
  long          n_updates;
  long          iterations;
} *DenseWork;

/* A step's stages [s, n], and the factors [s, n, n] with pivots [s, n] of I - h a_ii f_u at those that
   are implicit. */
typedef struct {
  double       *states, *factors;
  PetscBLASInt *pivots;
} DenseLinear;

/* dense_ts.c: the type of TS, and the equations of one */
PetscErrorCode DenseStepsRegister(void);
PetscErrorCode DenseStepsAttach(TS, DenseSystem *);

PetscErrorCode DenseWorkCreate(DenseSystem *, long rows, DenseWork *);
PetscErrorCode DenseWorkDestroy(DenseWork *);
/* all stages of a step from ``start`` in the work space; false where one is not found, or not finite */
PetscBool DenseTakeStages(DenseWork, double t, double h);
/* likewise into ``stages`` [s, n], which holds the start */
PetscBool DenseFillStages(DenseWork, double t, double h, double *stages);

/* from the start of the step in ``states``; ``known``: all stages are there */
PetscErrorCode DenseLinearise(DenseWork, double t, double h, PetscBool known, DenseLinear *);
/* the factors of M - scale f_u(t, u), in the work space; false where there are none */
PetscBool DenseFactorise(DenseWork, double t, const double *u, double scale);
/* x by factors and pivots, or by their transpose */
void DenseSubstitute(PetscBLASInt n, double *factors, PetscBLASInt *pivots, double *x, PetscBool transposed);
/* whether values are finite; the system notes those that are not: 1 the rhs, 2 the jacobian */
PetscBool DenseAreSound(DenseSystem *, int which, double t, const double *values, long count);
