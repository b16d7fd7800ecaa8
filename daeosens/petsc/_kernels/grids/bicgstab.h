/* Loops of BiCGStab over part of its vectors, which stay in a cache from one loop to the next.

   The generated functions and the extension that calls these share this file, see stencil.h. */
#ifndef DAEOSENS_BICGSTAB_H
#define DAEOSENS_BICGSTAB_H

typedef struct {
  double *x, *r, *p, *v, *t; /* solution, residual, direction, A p, A r */
  const double *shadow;
  double alpha, beta, omega;
  double sums[2];
} Iterate;

typedef void (*IterateLoop)(Iterate *, long, long);

#ifdef DOF

/* p = r + beta (p - omega v) */
void daeosens_turn(Iterate *it, long from, long to)
{
  const double beta = it->beta, omega = it->omega;
  const double *restrict r = it->r, *restrict v = it->v;
  double *restrict p = it->p;
  for (long i = from; i < to; i++) p[i] = r[i] + beta * (p[i] - omega * v[i]);
}

/* sums: shadow . v */
void daeosens_weigh(Iterate *it, long from, long to)
{
  const double *restrict shadow = it->shadow, *restrict v = it->v;
  double sum = 0.0;
  _Pragma("omp simd reduction(+ : sum)")
  for (long i = from; i < to; i++) sum += shadow[i] * v[i];
  it->sums[0] += sum;
}

/* r -= alpha v */
void daeosens_reduce(Iterate *it, long from, long to)
{
  const double alpha = it->alpha;
  const double *restrict v = it->v;
  double *restrict r = it->r;
  for (long i = from; i < to; i++) r[i] -= alpha * v[i];
}

/* sums: t . r, t . t */
void daeosens_compare(Iterate *it, long from, long to)
{
  const double *restrict r = it->r, *restrict t = it->t;
  double with_r = 0.0, with_t = 0.0;
  _Pragma("omp simd reduction(+ : with_r, with_t)")
  for (long i = from; i < to; i++) {
    with_r += t[i] * r[i];
    with_t += t[i] * t[i];
  }
  it->sums[0] += with_r;
  it->sums[1] += with_t;
}

/* x += alpha p + omega r, r -= omega t; sums: shadow . r, r . r */
void daeosens_advance(Iterate *it, long from, long to)
{
  const double alpha = it->alpha, omega = it->omega;
  const double *restrict p = it->p, *restrict t = it->t, *restrict shadow = it->shadow;
  double *restrict x = it->x, *restrict r = it->r;
  double with_shadow = 0.0, with_r = 0.0;
  _Pragma("omp simd reduction(+ : with_shadow, with_r)")
  for (long i = from; i < to; i++) {
    const double left = r[i] - omega * t[i];
    x[i] += alpha * p[i] + omega * r[i];
    r[i] = left;
    with_shadow += shadow[i] * left;
    with_r += left * left;
  }
  it->sums[0] += with_shadow;
  it->sums[1] += with_r;
}

#endif

#endif
