/* Times at which the equations may jump, and the times of a step as callbacks see them: inside of its
   ends.  The rules are those of daeosens/problem/breakpoints.py. */
#pragma once

#include <float.h>
#include <math.h>

typedef struct {
  const double *times; /* [count], increasing */
  long          count;
  double        low, high; /* between which callbacks see the times of the step under way */
} Breakpoints;

/* The number of the piece between breakpoints that a step lies in: its middle decides, so that ends need
   to meet breakpoints to rounding only. */
static inline long piece_of_step(const Breakpoints *b, double t, double h)
{
  const double middle = t + 0.5 * h;
  long         low = 0, high = b->count;
  while (low < high) {
    const long half = (low + high) / 2;
    if (middle < b->times[half]) high = half;
    else low = half + 1;
  }
  return low;
}

static inline void enter_step(Breakpoints *b, double t, double h)
{
  if (!b->count) return;
  const long   piece = piece_of_step(b, t, h);
  const double first = piece ? b->times[piece - 1] : -INFINITY;
  const double last  = piece < b->count ? b->times[piece] : INFINITY;
  const double size  = fmax(fabs(t), h);
  double       margin = fmax(8.0 * DBL_EPSILON * size, fmin(1e-12 * size, 1e-6 * h));
  margin  = fmin(margin, 0.25 * (last - first));
  b->low  = first + margin;
  b->high = last - margin;
}

static inline double seen_time(const Breakpoints *b, double t)
{
  return b->count ? fmin(fmax(t, b->low), b->high) : t;
}
