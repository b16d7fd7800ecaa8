/* Derivatives of Runge-Kutta steps along directions, and of their adjoints, for steps that were
   linearised: stages are explicit, or implicit with factors of I - h a_ii f_u at hand
   (docs/mathematics.md, section 1). */
#include "dense_second.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* CALL with a number that the compiler knows, where there are few unknowns: loops over so few numbers
   take longer than what is in them, unless they are unrolled */
#define UNROLLED(n, CALL) \
  do { \
    switch (n) { \
    case 1: \
      CALL(1); \
      break; \
    case 2: \
      CALL(2); \
      break; \
    case 3: \
      CALL(3); \
      break; \
    case 4: \
      CALL(4); \
      break; \
    default: \
      CALL(n); \
    } \
  } while (0)

static int moves(const double *dp, long m)
{
  for (long k = 0; k < m; k++)
    if (dp[k] != 0.0) return 1;
  return 0;
}

/* sum [n] += h sum_{first<=j<last} a_j terms_j, with terms [s, n] and a_j every ``stride`` numbers */
INLINE void add(long n, double *restrict sum, double h, const double *a, long stride, const double *restrict terms, long first, long last)
{
  for (long j = first; j < last; j++) {
    const double factor = h * a[j * stride];
    for (long k = 0; k < n; k++) sum[k] += factor * terms[j * n + k];
  }
}

/* (I - h a_ii f_u) dU_i = du + h sum_{j<i} a_ij g_j + h a_ii f_p dp,  g_i = f_u dU_i + f_p dp */
INLINE void push_one(long n, const DenseSystem *system, double t, double h, const DenseLinear *at, const double *dp, const double *du, double *du_next, double *moved, double *work)
{
  const long s    = system->s;
  const int  by_p = moves(dp, system->m);
  double    *known = work, *zero = work + n, *along_p = work + 2 * n, *rates = work + 3 * n;

  memset(zero, 0, (size_t)n * sizeof(double));
  for (long i = 0; i < s; i++) {
    const double *a = system->a + i * s, *y = at->states + i * n;
    const double  ti = seen_time(&system->breakpoints, t + system->c[i] * h), scale = h * a[i];
    double       *stage = moved + i * n, *rate = rates + i * n;
    memcpy(stage, du, (size_t)n * sizeof(double));
    add(n, stage, h, a, 1, rates, 0, i);
    if (scale == 0.0) {
      system->push(ti, y, system->p, stage, dp, rate, system->push_data);
      continue;
    }
    memcpy(known, stage, (size_t)n * sizeof(double));
    if (by_p) {
      system->push(ti, y, system->p, zero, dp, along_p, system->push_data);
      for (long k = 0; k < n; k++) stage[k] += scale * along_p[k];
    }
    DenseSolve(system, at, i, stage, PETSC_FALSE);
    for (long k = 0; k < n; k++) rate[k] = (stage[k] - known[k]) / scale;
  }
  memcpy(du_next, du, (size_t)n * sizeof(double));
  add(n, du_next, h, system->b, 1, rates, 0, s);
}

void DensePush(const DenseSystem *system, double t, double h, const DenseLinear *at, long count, const double *dp, const double *du, double *du_next, double *moved, double *work)
{
  const long n = system->n, s = system->s;

#define PUSH(n) push_one(n, system, t, h, at, dp + d * system->m, du + d * n, du_next + d * n, moved + d * s * n, work)
  for (long d = 0; d < count; d++) UNROLLED(n, PUSH);
#undef PUSH
}

/* w_i = h (b_i lam + sum_{j>=i} a_ji l_j),  l_i = f_u^T w_i + source,  mu += f_p^T w_i;  w [n] and
   its row of l [s, n] are filled */
INLINE void carry_stage(long n, const DenseSystem *system, double t, double h, const DenseLinear *at, long i, const double *source, const double *lam, double *mu, double *w, double *l, double *work)
{
  const long    m = system->m, s = system->s;
  const double *y = at->states + i * n;
  const double  share = h * system->b[i], scale = h * system->a[i * s + i];
  double       *part = l + i * n, *right = work, *by_p = work + n;

  for (long k = 0; k < n; k++) w[k] = share * lam[k];
  add(n, w, h, system->a + i, s, l, i + 1, s);
  if (scale == 0.0) {
    system->pull(t, y, system->p, w, part, by_p, system->pull_data);
    if (source)
      for (long k = 0; k < n; k++) part[k] += source[k];
  } else {
    memcpy(right, w, (size_t)n * sizeof(double));
    if (source)
      for (long k = 0; k < n; k++) w[k] += scale * source[k];
    DenseSolve(system, at, i, w, PETSC_TRUE);
    for (long k = 0; k < n; k++) right[k] = (w[k] - right[k]) / scale;
    if (m) system->pull(t, y, system->p, w, part, by_p, system->pull_data);
    memcpy(part, right, (size_t)n * sizeof(double));
  }
  for (long k = 0; k < m; k++) mu[k] += by_p[k];
}

/* Stage by stage: the processor works at the adjoint of the next one and at the directions at once,
   which do not wait for each other. */
INLINE void bend(long n, const DenseSystem *system, double t, double h, const DenseLinear *at, long count, const double *dp, const double *moved, double *weights, int known, double *lam, double *mu, double *lam_dot, double *mu_dot, double *work)
{
  const long m = system->m, s = system->s;
  double    *l = work, *source = work + (1 + count) * s * n, *w_dot = source + n, *rest = w_dot + n;

  for (long i = s - 1; i >= 0; i--) {
    const double ti = seen_time(&system->breakpoints, t + system->c[i] * h);
    double      *w  = weights + i * n;
    if (!known) carry_stage(n, system, ti, h, at, i, NULL, lam, mu, w, l, rest);
    for (long d = 0; d < count; d++) {
      double *by_p = rest; /* the Hessian's part */
      system->hessian(ti, at->states + i * n, system->p, w, moved + (d * s + i) * n, dp + d * m, source, by_p, system->hessian_data);
      for (long k = 0; k < m; k++) mu_dot[d * m + k] += by_p[k];
      carry_stage(n, system, ti, h, at, i, source, lam_dot + d * n, mu_dot + d * m, w_dot, l + (1 + d) * s * n, rest);
    }
  }
  for (long i = 0; i < s; i++) {
    for (long k = 0; k < n && !known; k++) lam[k] += l[i * n + k];
    for (long d = 0; d < count; d++)
      for (long k = 0; k < n; k++) lam_dot[d * n + k] += l[((1 + d) * s + i) * n + k];
  }
}

void DenseBend(const DenseSystem *system, double t, double h, const DenseLinear *at, long count, const double *dp, const double *moved, double *weights, int known, double *lam, double *mu, double *lam_dot, double *mu_dot, double *work)
{
#define BEND(n) bend(n, system, t, h, at, count, dp, moved, weights, known, lam, mu, lam_dot, mu_dot, work)
  UNROLLED(system->n, BEND);
#undef BEND
}
