/* Running costs of several adjoints, which are C functions with their gradients. */
#pragma once

#include <stdint.h>

typedef double (*CostValue)(double t, const double *u, const double *p, void *user_data);
typedef void (*CostGradient)(
  double t, const double *u, const double *p, double *out, void *user_data);

typedef struct {
  const long      *first;     /* [rows + 1]: those of row r are first[r] ... first[r + 1] - 1 */
  const double    *weights;
  const uintptr_t *functions; /* [., 6]: value, gradients in u and in p, each with its user data; 0: none */
  double          *values;    /* [rows], added to */
  double          *out;       /* [max(n, m)], room */
} RunningCosts;

/* by += weight * gradient(t, u, p) [count] */
static inline void add_gradient(
  const uintptr_t *function, double weight, double t, const double *u, const double *p, double *out,
  long count, double *by)
{
  if (!function[0] || !count) return;
  ((CostGradient)function[0])(t, u, p, out, (void *)function[1]);
  for (long i = 0; i < count; i++) by[i] += weight * out[i];
}

/* share * the costs of a row and their gradients, added to its value, by_u [n] and by_p [m] */
static inline void add_running_costs(
  const RunningCosts *costs, long row, double share, double t, const double *u, const double *p,
  long n, long m, double *by_u, double *by_p)
{
  if (!costs->first) return;
  for (long k = costs->first[row]; k < costs->first[row + 1]; k++) {
    const uintptr_t *functions = costs->functions + 6 * k;
    const double     weight    = share * costs->weights[k];
    costs->values[row] += weight * ((CostValue)functions[0])(t, u, p, (void *)functions[1]);
    add_gradient(functions + 2, weight, t, u, p, costs->out, n, by_u);
    add_gradient(functions + 4, weight, t, u, p, costs->out, m, by_p);
  }
}
