/* Tangents and adjoints of Runge-Kutta steps, and derivatives of adjoints along directions
   (docs/mathematics.md, section 1).  Stages are explicit, or implicit with factors of M - h a_ii f_u at
   hand. */
#include "dense_derivatives.h"

#include <math.h>
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
    DenseSubstitute((PetscBLASInt)n, at->factors + i * n * n, at->pivots + i * n, stage, PETSC_FALSE);
    for (long k = 0; k < n; k++) rate[k] = (stage[k] - known[k]) / scale;
  }
  memcpy(du_next, du, (size_t)n * sizeof(double));
  if (system->end == 0.0) add(n, du_next, h, system->b, 1, rates, 0, s);
  else { /* the same but for rounding, which in sums of rates of stiff equations is all there is */
    const double *stage = moved + (s - 1) * n, end = fabs(system->end - 1.0) < 1e-15 ? 1.0 : system->end;
    for (long k = 0; k < n; k++) du_next[k] = end == 1.0 ? stage[k] : du[k] + end * (stage[k] - du[k]);
  }
}

void DensePush(const DenseSystem *system, double t, double h, const DenseLinear *at, long count, const double *dp, const double *du, double *du_next, double *moved, double *work)
{
  const long n = system->n, s = system->s;

#define PUSH(n) push_one(n, system, t, h, at, dp + d * system->m, du + d * n, du_next + d * n, moved + d * s * n, work)
  for (long d = 0; d < count; d++) UNROLLED(n, PUSH);
#undef PUSH
}

/* A stage, and what it is linearised by: factors where it is implicit; unless there are ``products``, f_u
   where it is explicit, and f_p. */
typedef struct {
  long          i;
  int           products;
  double        t;
  const double *y;
  double       *factors;
  PetscBLASInt *pivots;
  const double *entries, *entries_p;
} Stage;

/* out += w^T matrix [n, columns] */
INLINE void add_product(long n, double *restrict out, const double *restrict w, const double *restrict matrix, long columns)
{
  for (long i = 0; i < n; i++, matrix += columns)
    for (long j = 0; j < columns; j++) out[j] += w[i] * matrix[j];
}

/* Of a row lam [n], with l_j of the stages after this one in l [s, n], and g [n], what comes to the stage
   from outside (NULL: nothing):

   q = h sum_{j>i} a_ji l_j, and h b_i lam if the step has no ``end``
   explicit:  w = q, l_i = f_u^T w + g
   implicit:  (M - h a_ii f_u)^T w = M^T q + h a_ii g, l_i = (w - q) / (h a_ii); where the step ends by its
              last stage, g of that one has end * lam besides
   mu += f_p^T w

   w [n] is filled, and the stage's row of l; q [n] and by_p [m] are room. */
INLINE void carry_stage(long n, const DenseSystem *system, double h, const Stage *at, const double *g, const double *lam, double *mu, double *restrict w, double *l, double *restrict q, double *by_p)
{
  const long   m = system->m, s = system->s, i = at->i;
  const double share = system->end != 0.0 ? 0.0 : h * system->b[i], scale = h * system->a[i * (s + 1)];
  double      *part = l + i * n;

  for (long k = 0; k < n; k++) w[k] = share * lam[k];
  add(n, w, h, system->a + i, s, l, i + 1, s);
  if (scale == 0.0) {
    if (at->products) {
      system->pull(at->t, at->y, system->p, w, part, by_p, system->pull_data);
    } else {
      memset(part, 0, (size_t)n * sizeof(double));
      if (system->places)
        for (long k = 0; k < system->entries; k++) part[system->places[k] % n] += w[system->places[k] / n] * at->entries[k];
      else add_product(n, part, w, at->entries, n);
    }
    for (long k = 0; g && k < n; k++) part[k] += g[k];
  } else {
    const double last = i == s - 1 ? scale * system->end : 0.0;
    memcpy(q, w, (size_t)n * sizeof(double));
    if (system->mass) {
      memset(w, 0, (size_t)n * sizeof(double));
      add_product(n, w, q, system->mass, n);
    }
    for (long k = 0; g && k < n; k++) w[k] += scale * g[k];
    for (long k = 0; last != 0.0 && k < n; k++) w[k] += last * lam[k];
    DenseSubstitute((PetscBLASInt)n, at->factors, at->pivots, w, PETSC_TRUE);
    if (m && at->products) system->pull(at->t, at->y, system->p, w, part, by_p, system->pull_data);
    for (long k = 0; k < n; k++) part[k] = (w[k] - q[k]) / scale;
  }
  if (!m || system->gathers) return;
  if (at->products)
    for (long k = 0; k < m; k++) mu[k] += by_p[k];
  else add_product(n, mu, w, at->entries_p, m);
}

/* lam = (1 - end) lam + sum of l_i, those of implicit stages times M^T */
INLINE void collect_stages(long n, const DenseSystem *system, const double *l, double *restrict lam)
{
  const long s = system->s;

  if (system->end != 0.0)
    for (long k = 0; k < n; k++) lam[k] *= 1.0 - system->end;
  for (long i = 0; i < s; i++)
    if (system->mass && system->a[i * (s + 1)] != 0.0) add_product(n, lam, l + i * n, system->mass, n);
    else
      for (long k = 0; k < n; k++) lam[k] += l[i * n + k];
}

/* Fill what a stage is linearised by in the work space; false: not finite, or singular. */
static PetscBool linearise(DenseWork work, Stage *at, double scale)
{
  DenseSystem *system = work->system;

  if (scale != 0.0) {
    if (!DenseFactorise(work, at->t, at->y, scale)) return PETSC_FALSE;
  } else if (!system->pull) {
    system->jacobian(at->t, at->y, system->p, work->entries, system->jacobian_data);
    if (!DenseAreSound(system, 2, at->t, work->entries, system->entries)) return PETSC_FALSE;
  }
  if (system->m && !system->pull) system->jacobian_p(at->t, at->y, system->p, work->entries_p, system->jacobian_p_data);
  return PETSC_TRUE;
}

INLINE PetscBool carry_rows(long n, DenseWork work, double t, double h, double **lam, double **mu, const RunningCosts *costs)
{
  DenseSystem *system = work->system;
  const long   m = system->m, s = system->s;
  double      *g = work->rates, *by_p = work->entries_p;

  for (long i = s - 1; i >= 0; i--) {
    Stage at = {i, system->pull != NULL, seen_time(&system->breakpoints, t + system->c[i] * h), work->own + i * n, work->factors, work->pivots, work->entries, work->entries_p};
    if (!linearise(work, &at, h * system->a[i * (s + 1)])) return PETSC_FALSE;
    for (long r = 0; r < work->rows; r++) {
      if (costs->first) {
        memset(g, 0, (size_t)n * sizeof(double));
        add_running_costs(costs, r, h * system->b[i], at.t, at.y, system->p, n, m, g, mu[r]);
      }
      carry_stage(n, system, h, &at, costs->first ? g : NULL, lam[r], mu[r], work->change, work->parts + r * s * n, work->known, by_p);
    }
  }
  for (long r = 0; r < work->rows; r++) collect_stages(n, system, work->parts + r * s * n, lam[r]);
  return PETSC_TRUE;
}

PetscErrorCode DenseTransposeStep(DenseWork work, double t, double h, const double *start, const double *stages, double **lam, double **mu, const RunningCosts *costs)
{
  DenseSystem *system = work->system;
  const long   n = system->n, s = system->s;
  PetscBool    solved;

  PetscFunctionBegin;
  enter_step(&system->breakpoints, t, h);
  memcpy(work->own, start, (size_t)n * sizeof(double));
  if (!stages) {
    solved = DenseFillStages(work, t, h, work->own);
  } else {
    if (s > 1) memcpy(work->own + n, stages, (size_t)((s - 1) * n) * sizeof(double));
    else if (system->end != 0.0) /* the stage is between both ends */
      for (long k = 0; k < n; k++) work->own[k] += (stages[k] - start[k]) / system->end;
    solved = PETSC_TRUE;
  }
#define CARRY(n) solved = solved && carry_rows(n, work, t, h, lam, mu, costs) ? PETSC_TRUE : PETSC_FALSE
  UNROLLED(n, CARRY);
#undef CARRY
  if (solved) PetscFunctionReturn(PETSC_SUCCESS);
  if (!system->fault) system->fault = 3;
  PetscFunctionReturn(PETSC_ERR_USER);
}

/* Stage by stage: the processor works at the adjoint of the next one and at the directions at once,
   which do not wait for each other. */
INLINE void bend(long n, const DenseSystem *system, double t, double h, const DenseLinear *linear, long count, const double *dp, const double *moved, double *weights, int known, double *lam, double *mu, double *lam_dot, double *mu_dot, double *work)
{
  const long m = system->m, s = system->s;
  double    *l = work, *g = work + (1 + count) * s * n, *w_dot = g + n, *q = w_dot + n, *by_p = q + n;

  for (long i = s - 1; i >= 0; i--) {
    const Stage at = {i, 1, seen_time(&system->breakpoints, t + system->c[i] * h), linear->states + i * n, linear->factors + i * n * n, linear->pivots + i * n, NULL, NULL};
    double     *w  = weights + i * n;
    if (!known) carry_stage(n, system, h, &at, NULL, lam, mu, w, l, q, by_p);
    for (long d = 0; d < count; d++) {
      system->hessian(at.t, at.y, system->p, w, moved + (d * s + i) * n, dp + d * m, g, by_p, system->hessian_data);
      for (long k = 0; k < m; k++) mu_dot[d * m + k] += by_p[k];
      carry_stage(n, system, h, &at, g, lam_dot + d * n, mu_dot + d * m, w_dot, l + (1 + d) * s * n, q, by_p);
    }
  }
  if (!known) collect_stages(n, system, l, lam);
  for (long d = 0; d < count; d++) collect_stages(n, system, l + (1 + d) * s * n, lam_dot + d * n);
}

void DenseBend(const DenseSystem *system, double t, double h, const DenseLinear *at, long count, const double *dp, const double *moved, double *weights, int known, double *lam, double *mu, double *lam_dot, double *mu_dot, double *work)
{
#define BEND(n) bend(n, system, t, h, at, count, dp, moved, weights, known, lam, mu, lam_dot, mu_dot, work)
  UNROLLED(system->n, BEND);
#undef BEND
}
