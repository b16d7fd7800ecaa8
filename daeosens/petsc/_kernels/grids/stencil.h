/* What functions of a grid's points are called with, and how they read the points around each.

   The generated functions and the extension that calls them share this file;
   tracing/stencil_interpreted.py has the same Box. */
#ifndef DAEOSENS_STENCIL_H
#define DAEOSENS_STENCIL_H

#include <math.h>
#include <string.h>

#define ADDENDS 4

/* Dimensions: the fastest, the one in the middle (of three), the slowest (of two or three);
   those that a grid does not have are of one point. */
typedef struct {
  long n[3];                   /* points of the box */
  double first[3], spacing[3]; /* coordinates of its first point */
  int periodic;                /* or zero beyond the edge */
  double t;
  const double *p, *dp;
  const double *in[3]; /* values at the points, the unknowns of one side by side */
  long ghosts[3];      /* so many points lie around the box there; 0: the edge decides */
  double *out;               /* alpha f + sum_k beta[k] add[k] */
  const double *add[ADDENDS]; /* none, one, two or all of them; the first may be out */
  double alpha, beta[ADDENDS];
  int addends;
  double *sums; /* over the box: added to */
  double *work; /* kept from one call to the next that goes on; of several calls: for all of them */
  long begin, from, to; /* places along the slowest dimension, counted from ``begin`` and around */
} Box;

typedef void (*PointFunction)(const Box *);

/* The rest is for generated functions, which say how many DIMENSIONS and unknowns a point (DOF) there
   are, and whether the grid is LARGE: caches may not hold what a run keeps. */
#ifdef DOF

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Fields that decay leave numbers below 1e-308, with which a processor takes ten times as long.
   In the loops over points they count as zero; callers have their own mode again afterwards. */
#if defined(__SSE2__)
#include <xmmintrin.h>
#define TINY_IS_ZERO 0x8040 /* in results, and in what is read */
#define TINY_MODE() _mm_getcsr()
#define SET_TINY_MODE(mode) _mm_setcsr(mode)
#else
#define TINY_IS_ZERO 0
#define TINY_MODE() 0u
#define SET_TINY_MODE(mode) (void)(mode)
#endif

/* Compilers know nothing of the mode: what it is for stays a call. */
#define APART __attribute__((noinline)) static

/* Those that are not there are the first one again, without weight. */
static inline Box with_all_addends(const Box *b)
{
  Box all = *b;
  for (; all.addends < ADDENDS; all.addends++) {
    all.add[all.addends] = all.add[0];
    all.beta[all.addends] = 0.0;
  }
  return all;
}

/* Points along the dimension in the middle: compilers know it where there is none. */
#define MIDDLES(b) (DIMENSIONS > 2 ? (b)->n[1] : 1)

/* Kept rows begin on cache lines, with so many numbers before the first point. */
#define LINE 8
#define MARGIN(more) (((more) + LINE - 1) / LINE * LINE)
#define LENGTH(n, more) (MARGIN(more) + MARGIN((n) + (more)))

/* On LARGE grids: points of a row at once, of which those of the next row are fetched meanwhile.
   Processors lose sight of streams that take turns, and cannot wait for a whole row at once. */
#define SEGMENT 64

static inline void fetch(const double *from, long count)
{
  for (long i = 0; i < count; i += LINE) __builtin_prefetch(from + i, 0, 2);
}

/* The number of a place, counted around; a division takes longer than a row's loop needs to begin. */
static inline long around(long i, long n)
{
  while (i < 0) i += n;
  while (i >= n) i -= n;
  return i;
}

/* The number of a point, or -1 where there is none. */
static inline long inside(long i, long n, int periodic)
{
  return (i >= 0 && i < n) || periodic ? around(i, n) : -1;
}

/* What is beyond both ends of a row that is there unknown by unknown. */
static inline void extend_row(const Box *b, long more, long skip, double *row)
{
  const long n = b->n[0];
  for (long k = 1; k <= more; k++) {
    const long left = inside(-k, n, b->periodic), right = inside(n - 1 + k, n, b->periodic);
    for (int c = 0; c < DOF; c++) {
      row[c * skip - k] = left >= 0 ? row[c * skip + left] : 0.0;
      row[c * skip + n - 1 + k] = right >= 0 ? row[c * skip + right] : 0.0;
    }
  }
}

/* The values of one row, unknown by unknown, with ``more`` of them on both sides. */
static void read_row(const Box *b, const double *restrict from, long ghosts, long more, long skip, double *restrict to)
{
  const long n = b->n[0];
  INDEPENDENT
  for (long i = 0; i < n; i++)
    for (int c = 0; c < DOF; c++) to[c * skip + i] = from[i * DOF + c];
  if (!ghosts) extend_row(b, more, skip, to);
  else
    for (long k = 1; k <= more; k++)
      for (int c = 0; c < DOF; c++) {
        to[c * skip - k] = from[-k * DOF + c];
        to[c * skip + n - 1 + k] = from[(n - 1 + k) * DOF + c];
      }
}

/* The rows at one place along the slowest dimension, with ``wm`` more of them on both sides. */
static void read_slab(const Box *b, int k, long wx, long wm, long slow, double *to)
{
  const long g = b->ghosts[k], gm = DIMENSIONS > 2 ? g : 0, gs = DIMENSIONS > 1 ? g : 0;
  const long middles = MIDDLES(b), length = LENGTH(b->n[0], wx), skip = (middles + 2 * wm) * length;
  const long s = g ? slow : inside(slow, b->n[2], b->periodic);
  for (long middle = -wm; middle < middles + wm; middle++) {
    const long m = g ? middle : inside(middle, middles, b->periodic);
    const long row = ((s + gs) * (middles + 2 * gm) + m + gm) * (b->n[0] + 2 * g) + g;
    double *to_row = to + (middle + wm) * length + MARGIN(wx);
    if (g || (s >= 0 && m >= 0)) read_row(b, b->in[k] + row * DOF, g, wx, skip, to_row);
    else
      for (int c = 0; c < DOF; c++) memset(to_row + c * skip - wx, 0, (b->n[0] + 2 * wx) * sizeof(double));
  }
}

static double sum_of(const double *values, long n)
{
  double sums[8] = {0.0}, sum = 0.0;
  long i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; k++) sums[k] += values[i + k];
  for (; i < n; i++) sum += values[i];
  for (int k = 0; k < 8; k++) sum += sums[k];
  return sum;
}

#endif

#endif
