/* The stages of Runge-Kutta steps whose equations are C functions, explicit and diagonally implicit ones.
   Implicit stages are solved for until rounding decides; without SNES, KSP and Mat, whose calls take
   far longer than the work for a few unknowns. */
#include "dense_steps.h"
#include "stage_sum.h"

#include <math.h>
#include <string.h>

#define SMALL     24    /* unknowns up to which loops here are faster than LAPACK */
#define CHEAP     8     /* unknowns up to which every iteration has its own factors */
#define SLOW      0.05  /* a rate of convergence that asks for new factors */
#define CONVERGED 1e-14 /* error of a stage, relative */
#define ROUNDING  1e-11 /* changes below this one that do not shrink any more are rounding */
#define STIFF     1e-8  /* likewise where the factors are those of the iteration: rounding grows with stiffness */
#define NOTHING   1e-150 /* unknowns far below this one are zero: digits are lost there, and squares */
#define MOST      25    /* iterations */
#define UPDATES   40    /* of factors in a step */
#define KEPT      0.5   /* a rate of convergence that asks for new factors where updates did not help */
#define FLAT      1e-13 /* as ROUNDING, beside updates */
#define NEAR      0.03  /* relative differences of first guesses that are next to one another */
#define NOISE     1e-10 /* changes below this one tell updates nothing */

static int all_finite(const double *values, long count)
{
  double sums[4] = {0.0}; /* NaN unless all are finite; several, for additions wait for one another */
  long   i       = 0;
  for (; i + 4 <= count; i += 4)
    for (int k = 0; k < 4; k++) sums[k] += 0.0 * values[i + k];
  for (; i < count; i++) sums[0] += 0.0 * values[i];
  return sums[0] + sums[1] + sums[2] + sums[3] == 0.0;
}

PetscBool DenseAreSound(DenseSystem *system, int which, double t, const double *values, long count)
{
  if (all_finite(values, count)) return PETSC_TRUE;
  system->fault   = which;
  system->fault_t = t;
  memcpy(system->fault_values, values, (size_t)count * sizeof(double));
  return PETSC_FALSE;
}

static PetscErrorCode not_found(DenseSystem *system)
{
  if (!system->fault) system->fault = 3;
  return PETSC_ERR_USER;
}

/* ---- linear systems ------------------------------------------------------------------------- */

/* P A = L U by rows, in place; false where A is singular */
static PetscBool factorise(PetscBLASInt n, double *a, PetscBLASInt *pivots)
{
  if (n > SMALL) {
    PetscBLASInt info = 0;
    LAPACKgetrf_(&n, &n, a, &n, pivots, &info); /* of the transpose, which is as good */
    return info ? PETSC_FALSE : PETSC_TRUE;
  }
  for (PetscBLASInt k = 0; k < n; k++) {
    PetscBLASInt pivot = k;
    for (PetscBLASInt i = k + 1; i < n; i++)
      if (fabs(a[i * n + k]) > fabs(a[pivot * n + k])) pivot = i;
    pivots[k] = pivot;
    if (a[pivot * n + k] == 0.0) return PETSC_FALSE;
    if (pivot != k)
      for (PetscBLASInt j = 0; j < n; j++) {
        const double other = a[k * n + j];
        a[k * n + j]       = a[pivot * n + j];
        a[pivot * n + j]   = other;
      }
    for (PetscBLASInt i = k + 1; i < n; i++) {
      const double factor = a[i * n + k] /= a[k * n + k];
      if (factor != 0.0)
        for (PetscBLASInt j = k + 1; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
    }
  }
  return PETSC_TRUE;
}

static void swap(double *x, PetscBLASInt k, PetscBLASInt pivot)
{
  const double other = x[pivot];
  x[pivot]           = x[k];
  x[k]               = other;
}

void DenseSubstitute(PetscBLASInt n, double *a, PetscBLASInt *pivots, double *x, PetscBool transposed)
{
  if (n > SMALL) {
    PetscBLASInt one = 1, info = 0;
    LAPACKgetrs_(transposed ? "N" : "T", &n, &one, a, &n, pivots, x, &n, &info);
  } else if (transposed) {
    for (PetscBLASInt i = 0; i < n; i++) {
      x[i] /= a[i * n + i];
      for (PetscBLASInt j = i + 1; j < n; j++) x[j] -= a[i * n + j] * x[i];
    }
    for (PetscBLASInt i = n - 1; i > 0; i--)
      for (PetscBLASInt j = 0; j < i; j++) x[j] -= a[i * n + j] * x[i];
    for (PetscBLASInt k = n - 1; k >= 0; k--) swap(x, k, pivots[k]);
  } else {
    for (PetscBLASInt k = 0; k < n; k++) swap(x, k, pivots[k]);
    for (PetscBLASInt i = 1; i < n; i++)
      for (PetscBLASInt j = 0; j < i; j++) x[i] -= a[i * n + j] * x[j];
    for (PetscBLASInt i = n - 1; i >= 0; i--) {
      for (PetscBLASInt j = i + 1; j < n; j++) x[i] -= a[i * n + j] * x[j];
      x[i] /= a[i * n + i];
    }
  }
}

/* What rounding of f changes unknowns by: rows of absolute values of the matrix times those of the state */
static void note_rounding(DenseWork w, const double *u)
{
  const long n = w->system->n;

  for (long i = 0; i < n; i++) {
    const double *row = w->factors + i * n;
    double        sum = 0.0;
    for (long j = 0; j < n; j++) sum += fabs(row[j] * u[j]);
    w->rounding[i] = PETSC_MACHINE_EPSILON * sum / PetscMax(1.0, fabs(row[i]));
  }
}

PetscBool DenseFactorise(DenseWork w, double t, const double *u, double scale)
{
  DenseSystem *system = w->system;
  const long   n      = system->n;

  system->jacobian(t, u, system->p, w->entries, system->jacobian_data);
  w->scale = 0.0;
  if (!DenseAreSound(system, 2, t, w->entries, system->entries)) return PETSC_FALSE;
  if (system->places) {
    memset(w->factors, 0, (size_t)(n * n) * sizeof(double));
    for (long k = 0; k < system->entries; k++) w->factors[system->places[k]] = -scale * w->entries[k];
  } else {
    for (long k = 0; k < n * n; k++) w->factors[k] = -scale * w->entries[k];
  }
  if (system->mass)
    for (long k = 0; k < n * n; k++) w->factors[k] += system->mass[k];
  else
    for (long k = 0; k < n; k++) w->factors[k * (n + 1)] += 1.0;
  if (system->raised) note_rounding(w, u);
  if (!factorise((PetscBLASInt)n, w->factors, w->pivots)) return PETSC_FALSE;
  w->scale = scale;
  return PETSC_TRUE;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Newton's method for y = known + scale f(t, y), until rounding decides; false where it fails */
static PetscBool solve_stage(DenseWork w, double t, double scale, double *y)
{
  DenseSystem *system = w->system;
  const long   n      = system->n;
  double       last = 0.0, *change = w->change;
  PetscBool    renew = n <= CHEAP ? PETSC_TRUE : PETSC_FALSE;

  for (int k = 0; k < MOST; k++) {
    const PetscBool fresh    = renew || w->scale != scale ? PETSC_TRUE : PETSC_FALSE;
    const double    rounding = fresh ? STIFF : ROUNDING;
    double          largest = 0.0, size = 0.0, rate;
    if (fresh && !DenseFactorise(w, t, y, scale)) break;
    system->rhs(t, y, system->p, change, system->rhs_data);
    if (!DenseAreSound(system, 1, t, change, n)) break;
    for (long i = 0; i < n; i++) change[i] = w->known[i] + scale * change[i] - y[i];
    DenseSubstitute((PetscBLASInt)n, w->factors, w->pivots, change, PETSC_FALSE);
    w->iterations++;
    for (long i = 0; i < n; i++) {
      y[i] += change[i];
      largest = PetscMax(largest, fabs(y[i]));
    }
    /* small components count too, down to a thousandth of the largest one */
    for (long i = 0; i < n; i++)
      if (change[i] != 0.0) size = PetscMax(size, fabs(change[i]) / (fabs(y[i]) + 1e-3 * largest + NOTHING));
    if (!(size < PETSC_INFINITY)) break;
    rate = k ? size / last : 1.0;
    if (size <= CONVERGED || (rate < 1.0 && size * rate / (1.0 - rate) <= CONVERGED) || (k && rate >= 0.5 && size <= rounding)) return PETSC_TRUE;
    if (rate > 2.0 && size > rounding) break;
    renew = n <= CHEAP || (k && rate > SLOW) ? PETSC_TRUE : PETSC_FALSE;
    last  = size;
  }
  return PETSC_FALSE;
}

/* x by the factors and their updates: (I + a_k b_k^T) ... (I + a_1 b_1^T) F^-1 x */
static void substitute_updated(DenseWork w, double *x)
{
  const long n = w->system->n;

  DenseSubstitute((PetscBLASInt)n, w->factors, w->pivots, x, PETSC_FALSE);
  for (long k = 0; k < w->n_updates; k++) {
    const double *a = w->updates + 2 * k * n, *b = a + n;
    double        product = 0.0;
    for (long i = 0; i < n; i++) product += b[i] * x[i];
    for (long i = 0; i < n; i++) x[i] += a[i] * product;
  }
}

/* Broyden's update of the inverse H by the change s of y [``last``] and what it left, x = H r: with
   weights W^2 for the sizes of unknowns, H + x s^T W^2 H / (s^T W^2 (s - x)).  x becomes the new H r. */
static void update(DenseWork w, const double *last, double *x)
{
  const long n  = w->system->n;
  double    *a  = w->updates + 2 * w->n_updates * n, *b = a + n;
  double     ss = 0.0, sx = 0.0;

  if (w->n_updates == UPDATES) return;
  for (long i = 0; i < n; i++) {
    b[i] = last[i] * w->weights[i];
    ss += b[i] * last[i];
    sx += b[i] * x[i];
  }
  if (!(ss - sx > 0.1 * ss)) return;
  for (long i = 0; i < n; i++) {
    a[i] = x[i] / (ss - sx);
    x[i] *= ss / (ss - sx);
  }
  w->n_updates++;
}

/* The same as ``solve_stage`` where functions are Python's: an evaluation takes longer than all else.
   The first Jacobian of a step serves all its stages, with an update in each iteration (Broyden,
   Mathematics of Computation 19, 1965).  What fails begins once more at the stage before. */
static PetscBool solve_sparing(DenseWork w, double t, double scale, const double *before, double *y)
{
  DenseSystem *system = w->system;
  const long   n      = system->n;
  double       last = 0.0, slower = 0.0, *change = w->change, *earlier = w->own;
  PetscBool    renew = PETSC_FALSE, again = PETSC_FALSE, differs = PETSC_FALSE;

  for (int k = 0, tried = 0; tried < 2 * MOST; k++, tried++) {
    PetscBool fresh = renew || w->scale != scale ? PETSC_TRUE : PETSC_FALSE, found = PETSC_TRUE;
    double    largest = 0.0, size = PETSC_INFINITY, coarse = PETSC_INFINITY, rate = 1.0, worst;
    if (fresh) {
      w->n_updates = 0;
      found        = DenseFactorise(w, t, y, scale);
      differs      = PETSC_FALSE;
    }
    if (found) {
      system->rhs(t, y, system->p, change, system->rhs_data);
      found = DenseAreSound(system, 1, t, change, n);
    }
    if (found) {
      for (long i = 0; i < n; i++) change[i] = w->known[i] + scale * change[i] - y[i];
      substitute_updated(w, change);
      if (differs && last > NOISE) update(w, earlier, change);
      w->iterations++;
      for (long i = 0; i < n; i++) {
        y[i] += change[i];
        largest = PetscMax(largest, fabs(y[i]));
      }
      size = coarse = 0.0;
      for (long i = 0; i < n; i++) {
        /* small unknowns count too, as units may differ by any factor: to a tenth of what they were,
           or to what is rounding of the larger ones that move them */
        const double unit = fabs(y[i]) + 0.1 * (fabs(before[i]) + fabs(w->known[i])) + w->rounding[i] / CONVERGED + NOTHING;
        earlier[i]        = change[i];
        w->weights[i]     = 1.0 / (unit * unit);
        if (change[i] == 0.0) continue;
        size   = PetscMax(size, fabs(change[i]) / unit);
        coarse = PetscMax(coarse, fabs(change[i]) / (fabs(y[i]) + 1e-3 * largest + NOTHING));
      }
      differs = PETSC_TRUE;
      rate    = k ? size / last : 1.0;
    }
    /* updates may be slow for once; after new factors a small unknown may be rounding of large ones */
    const PetscBool rounds = (fresh ? coarse <= STIFF : size <= FLAT) ? PETSC_TRUE : PETSC_FALSE;
    worst = PetscMax(rate, slower); /* rates by updates are uneven */
    if (size <= CONVERGED || (worst < 1.0 && size * worst / (1.0 - worst) <= CONVERGED) || (k && rate >= 0.5 && rounds)) return PETSC_TRUE;
    if (!(size < PETSC_INFINITY) || (rate > 2.0 && !rounds && coarse > STIFF) || k == MOST - 1) {
      if (again || *system->raised > 1) return PETSC_FALSE;
      again           = PETSC_TRUE;
      *system->raised = 0;
      system->fault   = 0;
      memcpy(y, before, (size_t)n * sizeof(double));
      renew  = PETSC_TRUE;
      slower = 0.0;
      k      = -1;
      continue;
    }
    renew = k && rate > KEPT ? PETSC_TRUE : PETSC_FALSE;
    if (k) slower = rate;
    last = size;
  }
  return PETSC_FALSE;
}

/* known + scale times the rate of the stage before, or times one that is extrapolated from all stages, if
   that is nearly the same: where a fast unknown sets out, stages far from it may solve their equations too */
static void first_guess(DenseWork w, long i, double scale, double *y)
{
  DenseSystem  *system = w->system;
  const long    n      = system->n;
  const double *rate = w->rates + (i - 1) * n, *before = w->states[i - 1];
  PetscBool     near = system->guess ? PETSC_TRUE : PETSC_FALSE;

  if (near) stage_sum(n, scale, system->guess + i * system->s, i, w->rates, w->known, y);
  for (long k = 0; k < n && near; k++)
    if (fabs(y[k] - w->known[k] - scale * rate[k]) > NEAR * (fabs(y[k]) + 0.1 * (fabs(before[k]) + fabs(w->known[k])))) near = PETSC_FALSE;
  if (!near)
    for (long k = 0; k < n; k++) y[k] = w->known[k] + scale * rate[k];
}

PetscBool DenseTakeStages(DenseWork w, double t, double h)
{
  DenseSystem *system = w->system;
  const long   n = system->n, s = system->s;

  w->scale = 0.0; /* a step that is taken again must not depend on the one before */
  enter_step(&system->breakpoints, t, h);
  for (long i = 0; i < s; i++) {
    const double *a = system->a + i * s, scale = h * a[i];
    const double  ti = seen_time(&system->breakpoints, t + system->c[i] * h);
    double       *y = w->states[i], *rate = w->rates + i * n, *known = scale == 0.0 ? y : w->known;
    stage_sum(n, h, a, i, w->rates, w->start, known);
    if (scale == 0.0) {
      if (i == s - 1) break; /* nobody asks for the rate of a last stage that is explicit */
      system->rhs(ti, y, system->p, rate, system->rhs_data);
      if (!DenseAreSound(system, 1, ti, rate, n)) return PETSC_FALSE;
      continue;
    }
    first_guess(w, i, scale, y);
    if (system->raised) {
      const double *before = i ? w->states[i - 1] : w->start;
      for (long k = 0; k < n; k++) /* what has a sign may have none but that one */
        if (y[k] * before[k] < 0.0) y[k] = before[k];
      if (!solve_sparing(w, ti, scale, before, y)) return PETSC_FALSE;
    } else if (!solve_stage(w, ti, scale, y)) return PETSC_FALSE;
    for (long k = 0; k < n; k++) rate[k] = (y[k] - w->known[k]) / scale;
  }
  return PETSC_TRUE;
}

PetscBool DenseFillStages(DenseWork w, double t, double h, double *stages)
{
  const long n = w->system->n;

  for (long i = 0; i < w->system->s; i++) w->states[i] = stages + i * n;
  memcpy(w->start, stages, (size_t)n * sizeof(double));
  return DenseTakeStages(w, t, h);
}

PetscErrorCode DenseLinearise(DenseWork w, double t, double h, PetscBool known, DenseLinear *at)
{
  DenseSystem *system = w->system;
  const long   n = system->n, s = system->s;

  PetscFunctionBegin;
  enter_step(&system->breakpoints, t, h);
  if (!known && !DenseFillStages(w, t, h, at->states)) PetscFunctionReturn(not_found(system));
  for (long i = 0; i < s; i++) {
    const double scale = h * system->a[i * s + i];
    if (scale == 0.0) continue;
    if (!DenseFactorise(w, seen_time(&system->breakpoints, t + system->c[i] * h), at->states + i * n, scale)) PetscFunctionReturn(not_found(system));
    memcpy(at->factors + i * n * n, w->factors, (size_t)(n * n) * sizeof(double));
    memcpy(at->pivots + i * n, w->pivots, (size_t)n * sizeof(PetscBLASInt));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- memory --------------------------------------------------------------------------------- */

PetscErrorCode DenseWorkCreate(DenseSystem *system, long rows, DenseWork *out)
{
  const long n = system->n, m = system->m, s = system->s;
  long       size = 0; /* of factors, which explicit stages have none of */
  DenseWork  w;

  PetscFunctionBegin;
  PetscCall(PetscNew(&w));
  w->system = system;
  w->rows   = rows;
  PetscCall(PetscMalloc5(n, &w->start, n, &w->known, n, &w->change, s * n, &w->rates, s, &w->states));
  for (long i = 0; i < s; i++)
    if (system->a[i * (s + 1)] != 0.0) size = n * n;
  PetscCall(PetscMalloc5(system->entries, &w->entries, size, &w->factors, n, &w->pivots, rows * s * n, &w->parts, rows || system->raised ? s * n : 0, &w->own));
  PetscCall(PetscMalloc3(system->raised ? 2 * UPDATES * n : 0, &w->updates, system->raised ? n : 0, &w->weights, system->raised ? n : 0, &w->rounding));
  PetscCall(PetscMalloc1(system->pull ? m : n * m, &w->entries_p));
  *out = w;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DenseWorkDestroy(DenseWork *work)
{
  DenseWork w = *work;

  PetscFunctionBegin;
  if (!w) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscFree5(w->start, w->known, w->change, w->rates, w->states));
  PetscCall(PetscFree5(w->entries, w->factors, w->pivots, w->parts, w->own));
  PetscCall(PetscFree(w->entries_p));
  PetscCall(PetscFree3(w->updates, w->weights, w->rounding));
  PetscCall(PetscFree(*work));
  PetscFunctionReturn(PETSC_SUCCESS);
}
