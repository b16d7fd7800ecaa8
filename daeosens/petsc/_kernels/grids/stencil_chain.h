/* The stages of a step at once: calls of one function, of which each reads around the points what the
   one before it fills.  The values of all are those of the function and of what the first one reads;
   the last one adds what the others have filled, too.

   Call k is 2 ``reach`` slabs behind the one before it, and begins ``reach`` slabs later, from where it
   goes around: there all neighbours are known first.  What is read around the points lies unknown by
   unknown in one ring of slabs for each call, which caches hold: memory is read once for all calls, and
   written where the values are wanted. */
#ifndef DAEOSENS_STENCIL_CHAIN_H
#define DAEOSENS_STENCIL_CHAIN_H

#include "stencil.h"

#define MOST_STAGES ADDENDS

typedef void (*ChainFunction)(const Box *calls, int count);

#ifdef DOF

typedef struct {
  const Box *first;               /* of the calls */
  int count, vector;              /* which of those that are read goes from call to call */
  long along, middle, reach;      /* how far it is read, along each dimension */
  long length, skip, slab, depth; /* numbers of a row, of an unknown, of a slab; slabs of a ring */
  double *rings, *zeros, *spare;
} Chain;

/* Fills one place along the slowest dimension, counted from where a call begins: ``to`` in a ring, and
   what is wanted beyond it to ``values``, unless that goes past the caches. */
typedef void (*SlabFunction)(
  const Box *b, const Chain *chain, double *work, long place, long s, const double *const *near,
  const double *const *add, double *to, double *values);

/* The slabs of a ring beside those in turn: its first ones, which are needed at the end again. */
#define AGAIN(count, reach) (((count) > 3 ? (count) - 1 : 2) * (reach))

static inline double *slab_at(const Chain *chain, int ring, long place)
{
  const long slows = chain->first->n[2], turn = chain->depth - 1;
  const long at = ring == 0 || place < slows ? place & turn : turn + 1 + place - slows;
  return chain->rings + (ring * (chain->depth + AGAIN(chain->count, chain->reach)) + at) * chain->slab;
}

/* The first number of the box in a slab. */
static inline long corner(const Chain *chain) { return chain->middle * chain->length + MARGIN(chain->along); }

/* What is beyond the edges of a slab. */
static inline void extend_slab(const Chain *chain, double *slab)
{
  const Box *b = chain->first;
  const long length = chain->length, middles = MIDDLES(b);
  double *row = slab + corner(chain);
  for (long m = 0; m < middles; m++) extend_row(b, chain->along, chain->skip, row + m * length);
  for (long k = 1; k <= chain->middle; k++) {
    const long beyond[] = {-k, middles - 1 + k};
    for (int side = 0; side < 2; side++) {
      const long from = inside(beyond[side], middles, b->periodic);
      for (int c = 0; c < DOF; c++) {
        double *of = slab + c * chain->skip + chain->middle * length, *to = of + beyond[side] * length;
        if (from >= 0) memcpy(to, of + from * length, length * sizeof(double));
        else memset(to, 0, length * sizeof(double));
      }
    }
  }
}

typedef double Lanes __attribute__((vector_size(32)));

#if defined(__clang__)
#define STREAM(lanes, to) __builtin_nontemporal_store(lanes, (Lanes *)(to))
#elif defined(__AVX__)
#define STREAM(lanes, to) __builtin_ia32_movntpd256(to, lanes)
#else
#define STREAM(lanes, to) memcpy(to, &lanes, sizeof(lanes))
#endif

/* Past the caches: this step does not read it again, and memory need not be read before. */
static inline void stream(const double *from, double *to, long count)
{
  long i = 0;
  for (; i < count && (size_t)(to + i) % sizeof(Lanes); i++) to[i] = from[i];
  for (; i + 4 <= count; i += 4) {
    Lanes lanes;
    memcpy(&lanes, from + i, sizeof(lanes));
    STREAM(lanes, to + i);
  }
  for (; i < count; i++) to[i] = from[i];
}

static inline void interleave(const double *restrict row, long skip, long n, double *restrict to)
{
  INDEPENDENT
  for (long i = 0; i < n; i++)
    for (int c = 0; c < DOF; c++) to[i * DOF + c] = row[c * skip + i];
}

static inline void write_slab(const Chain *chain, const double *slab, double *out)
{
  const long n = chain->first->n[0];
  double some[SEGMENT * DOF];
  for (long m = 0; m < MIDDLES(chain->first); m++, out += n * DOF) {
    const double *row = slab + corner(chain) + m * chain->length;
    for (long begin = 0; begin < n; begin += SEGMENT) {
      const long points = n - begin < SEGMENT ? n - begin : SEGMENT;
      interleave(row + begin, chain->skip, points, some);
      stream(some, out + begin * DOF, points * DOF);
    }
  }
}

static inline __attribute__((always_inline)) void follow(
  const Chain *chain, double *work, long size, SlabFunction inner, SlabFunction last)
{
  const Box *b = chain->first;
  const int count = chain->count;
  const Box end = with_all_addends(b + count - 1);
  const long slows = b->n[2], reach = chain->reach, points = b->n[0] * MIDDLES(b);
  const long read = slows + (count > 2 ? count : 2) * reach;
  for (long tick = -2 * reach; tick < slows + 2 * reach * (count - 1); tick++) {
    const long next = tick + 2 * reach;
    if (next < read)
      read_slab(b, chain->vector, chain->along, chain->middle, around(next - reach, slows), slab_at(chain, 0, next));
    for (int k = 0; k < count; k++) {
      const long place = tick - 2 * reach * k;
      if (place < 0 || place >= slows) continue;
      const long s = around(place + k * reach, slows);
      const double *near[2 * reach + 1], *add[MOST_STAGES];
      for (long d = -reach; d <= reach; d++) {
        const int there = b->periodic || (s + d >= 0 && s + d < slows);
        near[reach + d] = (there ? slab_at(chain, k, place + reach + d) : chain->zeros) + corner(chain);
      }
      add[0] = slab_at(chain, 0, place + (k + 1) * reach) + corner(chain);
      if (k == count - 1) {
        for (int j = 1; j < MOST_STAGES; j++)
          add[j] = j < count ? slab_at(chain, j, place + (count - j) * reach) + corner(chain) : add[0];
        last(&end, chain, work + k * size, place, s, near, add, NULL, NULL);
        continue;
      }
      double *to = slab_at(chain, k + 1, place);
      double *values = b[k].out ? b[k].out + s * points * DOF : chain->spare;
      inner(b + k, chain, work + k * size, place, s, near, add, to + corner(chain), values);
      extend_slab(chain, to);
      if (LARGE && b[k].out) write_slab(chain, to, b[k].out + s * points * DOF);
      if (place < AGAIN(count, reach)) memcpy(slab_at(chain, k + 1, slows + place), to, chain->slab * sizeof(double));
    }
  }
}

/* ``own``: numbers that each call needs for itself */
static inline __attribute__((always_inline)) void call_chain(
  const Box *calls, int count, int vector, long along, long middle, long reach, long own, SlabFunction inner,
  SlabFunction last)
{
  Chain chain = {calls, count, vector, along, middle, reach};
  chain.length = LENGTH(calls->n[0], along);
  chain.skip = (MIDDLES(calls) + 2 * middle) * chain.length;
  chain.slab = DOF * chain.skip;
  for (chain.depth = 1; chain.depth < (count > 2 ? count : 2) * reach + 1;) chain.depth *= 2;
  chain.zeros = calls->work;
  if (!calls->periodic) memset(chain.zeros, 0, chain.slab * sizeof(double));
  chain.spare = chain.zeros + chain.slab;
  chain.rings = chain.spare + chain.slab;
  follow(&chain, chain.rings + count * (chain.depth + AGAIN(count, reach)) * chain.slab, own, inner, last);
}

#endif

#endif
