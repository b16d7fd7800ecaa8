/* Tangents and adjoints of Runge-Kutta steps, of first and second order; see dense_derivatives.c. */
#pragma once

#include "dense_steps.h"

/* Carry rows lam [n] and mu [m] back over a step.

   ``stages`` [s-1, n] are those after the first one, where there is one stage only the end of the step;
   NULL: they are found again. */
PetscErrorCode DenseTransposeStep(DenseWork, double t, double h, const double *start, const double *stages, double **lam, double **mu, const RunningCosts *costs);

/* Tangents of a step along ``count`` directions.

   du, du_next [count, n]  before and after the step
   dp [count, m]
   moved [count, s, n]     of the stages
   work [(s + 3) n] */
void DensePush(const DenseSystem *, double t, double h, const DenseLinear *, long count, const double *dp, const double *du, double *du_next, double *moved, double *work);

/* Carry one adjoint, lam [n] and mu [m], and its derivatives along directions, lam_dot [count, n]
   and mu_dot [count, m], back over a step.

   weights [s, n]          adjoints of the stages; ``known``: they are there, lam and mu stay
   work [((1 + count) s + 3) n + m] */
void DenseBend(const DenseSystem *, double t, double h, const DenseLinear *, long count, const double *dp, const double *moved, double *weights, int known, double *lam, double *mu, double *lam_dot, double *mu_dot, double *work);
