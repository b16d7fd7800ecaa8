/* Branch and bound for the minimisers of h(t, x, y, p) over a box of y.

A box of the work list stands for all its points, those on its surface too.  Where coordinates are
fixed at bounds ("active" is -1 or 1 there), it is a part of a face.  A box is

- discarded where h exceeds a value that is taken elsewhere (global minimisers only);
- reduced to the faces of the whole box that it touches, or discarded, where a component of the
  gradient has no zero in it, or a second derivative is negative everywhere in it;
- discarded where a face's gradient points inwards everywhere, or where some direction that no
  bound restricts has negative curvature everywhere;
- narrowed by Krawczyk's operator K = c - C h_y(c) + (I - C h_yy(box)) (box - c), C about
  h_yy^-1: all stationary points of the box are in K, and if K is in its interior there is one;
- finished where h is convex in it and its minimiser is known, or is proven to be one known
  (h_yy is positive definite everywhere if its middle is, by a Cholesky factorisation with a margin
  for rounding (Rump, BIT 46, 2006), and none of its matrices is singular: |I - C h_yy| v < v);
- bisected else, along the coordinate that moves its gradient component most.

Neumaier, Interval Methods for Systems of Equations, 1990; Hansen and Walster, Global Optimization
Using Interval Analysis, 2004. */

enum { UNIQUE_FAILED = 1, KINK = 2, AT_BOUND = 3, NOT_FINITE = 4, LEFT = 5 };
enum { COMPLETE = 0, BUDGET = 1, NOWHERE_FINITE = 2, CHANGED = 3, MEMORY = 4 };

typedef void (*Extension)(int level, int count, const double *boxes, double *values,
                          uint8_t *flags);

/* records side by side: growing arrays of n-dimensional boxes with what belongs to them */
typedef struct {
  long count, room;
  int lost;       /* memory ran out */
  double *box;    /* [count][n][2] */
  int8_t *active; /* [count][n] */
  double *number; /* [count][2]: the value, or a reason; or the lower bound of a box to do */
} List;

typedef struct {
  /* what Python fills */
  const Tape *low, *high; /* (h, h_y); (h_y, lower triangle of h_yy by rows) */
  Extension extension;    /* instead of both */
  int32_t n, inputs, y_at, global;
  const double *bounds; /* [n][2] */
  const double *width;  /* [n]: boxes narrower than this are not bisected */
  const double *given;  /* [inputs][2]: t, x, (y), p */
  long budget;
  /* where t and x go along a path: they are middle + time rates, for some rates of the intervals and
     a time between two; along is d(h, h_y)/dtime of (t, x, y, p, rates) */
  const Tape *along;
  const double *path; /* NULL, or time [2], middle [inputs][2], (t, x, y, p, rates) [...][2] */
  /* results */
  long boxes;
  int32_t status, known_only;
  double best; /* an upper bound of the minimum */
  List todo, found, regions, leaves, undecided;
  double *points; /* [found][n] */
  /* workspace */
  Value *w_low, *w_high, *w_middle, *w_along;
  double *scratch, *values, *inner, *center;
  uint8_t *flags, *inner_flags, *center_flags;
  double *sent;
  double *h_mid, *h_rad, *inverse, *factor, *spread, *vector;
  int8_t *alive; /* [n][2]: faces of the whole box that may have minimisers */
} Search;

static long outputs_of(const Search *S, int level) {
  return level == 1 ? 1 + S->n : S->n + S->n * (S->n + 1) / 2;
}

static int list_room(List *list, int n) {
  if (list->count < list->room) return 1;
  long room = list->room ? 2 * list->room : 64;
  double *box = realloc(list->box, sizeof(double) * 2 * n * room);
  if (box) list->box = box;
  int8_t *active = realloc(list->active, (size_t)n * room);
  if (active) list->active = active;
  double *number = realloc(list->number, sizeof(double) * 2 * room);
  if (number) list->number = number;
  if (!box || !active || !number) return 0;
  list->room = room;
  return 1;
}
static void list_put(List *list, int n, const double *box, const int8_t *active, double first,
                     double second) {
  if (!list_room(list, n)) {
    list->lost = 1;
    return;
  }
  long k = list->count++;
  memcpy(list->box + 2 * n * k, box, sizeof(double) * 2 * n);
  memcpy(list->active + n * k, active, n);
  list->number[2 * k] = first;
  list->number[2 * k + 1] = second;
}
static void list_copy(List *list, int n, long to, long from) {
  memcpy(list->box + 2 * n * to, list->box + 2 * n * from, sizeof(double) * 2 * n);
  memcpy(list->active + n * to, list->active + n * from, n);
  list->number[2 * to] = list->number[2 * from];
  list->number[2 * to + 1] = list->number[2 * from + 1];
}
static void list_free(List *list) {
  free(list->box);
  free(list->active);
  free(list->number);
  memset(list, 0, sizeof *list);
}

/* ---- evaluation -------------------------------------------------------------------------------- */

static void carry_out_at(const Search *S, const Tape *tape, Value *w, int count,
                         const double *boxes) {
  int n = S->n;
  for (int i = 0; i < n; ++i) {
    int place = tape->input[S->y_at + i];
    if (place < 0) continue;
    for (int k = 0; k < LANES; ++k) {
      const double *box = boxes + 2 * (n * (k < count ? k : 0) + i);
      set(w + place, k, of(box[0], box[1]));
    }
  }
  carry_out(tape->code + tape->first, tape->then, w, count);
}
/* h and h_y by the mean value theorem along the path, where that is narrower.  Terms of x that cancel
   each other, and components of x that go together, cancel in the derivative along the path too. */
static void narrow_along(Search *S, int count, const double *boxes, double *values,
                         const uint8_t *flags, const int *lane) {
  int m = (int)outputs_of(S, 1);
  carry_out_at(S, S->low, S->w_middle, count, boxes);
  carry_out_at(S, S->along, S->w_along, count, boxes);
  for (int j = 0; j < m; ++j) {
    const Value *middle = S->w_middle + S->low->output[j], *slope = S->w_along + S->along->output[j];
    for (int k = 0; k < count; ++k) {
      int at_ = m * (lane ? lane[k] : k) + j;
      if (flags[at_] | middle->flag[k] | (slope->flag[k] & (UNDEFINED | EMPTY))) continue;
      iv change = mul(of(S->path[0], S->path[1]), of(slope->lo[k], slope->hi[k]));
      iv narrow = add(of(middle->lo[k], middle->hi[k]), change);
      double *value = values + 2 * at_;
      double lo = most(value[0], narrow.lo), hi = least(value[1], narrow.hi);
      if (lo <= hi) value[0] = lo, value[1] = hi;
    }
  }
}
/* the middle and the slope of the box evaluated last, if the mean value theorem holds for all */
static int read_along(const Search *S, const uint8_t *flags, double *middle, double *slope) {
  int smooth = 1;
  for (int j = 0; j < (int)outputs_of(S, 1); ++j) {
    const Value *a = S->w_middle + S->low->output[j], *b = S->w_along + S->along->output[j];
    smooth &= !(flags[j] | a->flag[0] | (b->flag[0] & (UNDEFINED | EMPTY)));
    middle[2 * j] = a->lo[0], middle[2 * j + 1] = a->hi[0];
    slope[2 * j] = b->lo[0], slope[2 * j + 1] = b->hi[0];
  }
  return smooth;
}
/* count boxes of y [count][n][2] to values [count][outputs][2] */
static void evaluate(Search *S, int level, int count, const double *boxes, double *values,
                     uint8_t *flags) {
  int n = S->n, m = (int)outputs_of(S, level);
  if (S->extension) {
    for (int k = 0; k < count; ++k) {
      double *to = S->sent + 2 * S->inputs * k;
      memcpy(to, S->given, sizeof(double) * 2 * S->inputs);
      memcpy(to + 2 * S->y_at, boxes + 2 * n * k, sizeof(double) * 2 * n);
    }
    S->extension(level, count, S->sent, values, flags);
    return;
  }
  const Tape *tape = level == 1 ? S->low : S->high;
  Value *w = level == 1 ? S->w_low : S->w_high;
  carry_out_at(S, tape, w, count, boxes);
  for (int j = 0; j < m; ++j) {
    const Value *v = w + tape->output[j];
    for (int k = 0; k < count; ++k) {
      values[2 * (m * k + j)] = v->lo[k];
      values[2 * (m * k + j) + 1] = v->hi[k];
      flags[m * k + j] = v->flag[k];
    }
  }
  if (level == 1 && S->path && count == 1) narrow_along(S, count, boxes, values, flags, NULL);
}
static void give(const Tape *tape, Value *w, const double *given) {
  for (int i = 0; i < tape->inputs; ++i)
    if (tape->input[i] >= 0)
      for (int k = 0; k < LANES; ++k)
        set(w + tape->input[i], k, of(given[2 * i], given[2 * i + 1]));
  carry_out(tape->code, tape->first, w, LANES);
}
static void prepare(Search *S) {
  if (S->extension) return;
  give(S->low, S->w_low, S->given);
  give(S->high, S->w_high, S->given);
  if (!S->path) return;
  give(S->low, S->w_middle, S->path + 2);
  give(S->along, S->w_along, S->path + 2 + 2 * S->inputs);
}

static int sound(double lo, double hi, uint8_t flag) {
  return !(flag & (UNDEFINED | EMPTY)) && lo > -INFINITY && hi < INFINITY;
}

/* ---- small matrices ------------------------------------------------------------------------------ */

/* lower Cholesky factor of a symmetric matrix [m][m] minus shift I; 0 if there is none */
static int cholesky(const double *a, double shift, double *l, int m) {
  for (int j = 0; j < m; ++j)
    for (int i = j; i < m; ++i) {
      double s = a[i * m + j] - (i == j ? shift : 0.0);
      for (int k = 0; k < j; ++k) s -= l[i * m + k] * l[j * m + k];
      if (i == j) {
        if (!(s > 0)) return 0;
        l[j * m + j] = sqrt(s);
      } else
        l[i * m + j] = s / l[j * m + j];
    }
  return 1;
}
/* positive definite, proven: Rump's bound of what rounding can do, doubled */
static int definite(const double *a, double *l, int m) {
  double trace = 0.0;
  for (int i = 0; i < m; ++i) {
    if (!(a[i * m + i] > 0)) return 0;
    trace += a[i * m + i];
  }
  return cholesky(a, 2.0 * (m + 3) * DBL_EPSILON * trace + 1e-290, l, m);
}
static void cholesky_solve(const double *l, double *b, int m) {
  for (int i = 0; i < m; ++i) {
    for (int k = 0; k < i; ++k) b[i] -= l[i * m + k] * b[k];
    b[i] /= l[i * m + i];
  }
  for (int i = m - 1; i >= 0; --i) {
    for (int k = i + 1; k < m; ++k) b[i] -= l[k * m + i] * b[k];
    b[i] /= l[i * m + i];
  }
}
/* about the inverse, by Gauss and Jordan with pivots; a is destroyed */
static int inverse(double *a, double *c, int m) {
  for (int i = 0; i < m * m; ++i) c[i] = 0.0;
  for (int i = 0; i < m; ++i) c[i * m + i] = 1.0;
  for (int j = 0; j < m; ++j) {
    int p = j;
    for (int i = j + 1; i < m; ++i)
      if (fabs(a[i * m + j]) > fabs(a[p * m + j])) p = i;
    double pivot = a[p * m + j];
    if (!(fabs(pivot) > 0) || !(fabs(pivot) < INFINITY)) return 0;
    for (int k = 0; k < m; ++k) {
      double s = a[p * m + k], t = c[p * m + k];
      a[p * m + k] = a[j * m + k], c[p * m + k] = c[j * m + k];
      a[j * m + k] = s / pivot, c[j * m + k] = t / pivot;
    }
    for (int i = 0; i < m; ++i) {
      double s = a[i * m + j];
      if (i == j || s == 0) continue;
      for (int k = 0; k < m; ++k) {
        a[i * m + k] -= s * a[j * m + k];
        c[i * m + k] -= s * c[j * m + k];
      }
    }
  }
  for (int i = 0; i < m * m; ++i)
    if (!(fabs(c[i]) < INFINITY)) return 0;
  return 1;
}
/* eigenvector of the smallest eigenvalue of a symmetric matrix by Jacobi's rotations; destroys a */
static void lowest(double *a, double *v, double *x, int m) {
  for (int i = 0; i < m * m; ++i) v[i] = 0.0;
  for (int i = 0; i < m; ++i) v[i * m + i] = 1.0;
  for (int sweep = 0; sweep < 6; ++sweep)
    for (int p = 0; p < m; ++p)
      for (int q = p + 1; q < m; ++q) {
        double apq = a[p * m + q];
        if (fabs(apq) <= 1e-14 * (fabs(a[p * m + p]) + fabs(a[q * m + q]))) continue;
        double theta = (a[q * m + q] - a[p * m + p]) / (2 * apq);
        double t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1));
        double c = 1 / sqrt(t * t + 1), s = t * c;
        for (int k = 0; k < m; ++k) {
          double u = a[k * m + p], w = a[k * m + q];
          a[k * m + p] = c * u - s * w, a[k * m + q] = s * u + c * w;
        }
        for (int k = 0; k < m; ++k) {
          double u = a[p * m + k], w = a[q * m + k];
          a[p * m + k] = c * u - s * w, a[q * m + k] = s * u + c * w;
        }
        for (int k = 0; k < m; ++k) {
          double u = v[k * m + p], w = v[k * m + q];
          v[k * m + p] = c * u - s * w, v[k * m + q] = s * u + c * w;
        }
      }
  int best = 0;
  for (int i = 1; i < m; ++i)
    if (a[i * m + i] < a[best * m + best]) best = i;
  for (int k = 0; k < m; ++k) x[k] = v[k * m + best];
}

/* ---- second order on a box --------------------------------------------------------------------- */

/* bounds sums of m products of numbers that are not negative, rounded to nearest */
static double safely(double sum, int m) { return sum * (1.0 + (m + 8) * DBL_EPSILON) + 1e-300; }

static iv entry(const double *high, int n, int i, int j) {
  if (j > i) {
    int s = i;
    i = j, j = s;
  }
  const double *e = high + 2 * (n + i * (i + 1) / 2 + j);
  return of(e[0], e[1]);
}

typedef struct {
  int m;          /* free coordinates */
  int usable;     /* h_y is continuous, h_yy bounded */
  int definite;   /* the middle of h_yy is */
  int invertible; /* the middle of h_yy has an inverse, and spread is filled */
  int convex;     /* h_yy is positive definite everywhere */
} Second;

/* middle and radius of h_yy among free coordinates, C and |I - C h_yy|; high = (h_y, h_yy) */
static Second second_order(Search *S, const int *free_, int m, const double *high,
                           const uint8_t *flags, const double *radius) {
  int n = S->n;
  Second second = {m, 1, 0, 0, 0};
  double *mid = S->h_mid, *rad = S->h_rad;
  for (int a = 0; a < m; ++a) {
    if (flags[free_[a]]) second.usable = 0;
    for (int b = 0; b <= a; ++b) {
      int i = free_[a], j = free_[b], at_ = n + i * (i + 1) / 2 + j;
      iv e = entry(high, n, i, j);
      if ((flags[at_] & EMPTY) || !(e.lo > -1e300 && e.hi < 1e300)) {
        second.usable = 0;
        return second;
      }
      double middle = 0.5 * e.lo + 0.5 * e.hi;
      mid[a * m + b] = mid[b * m + a] = middle;
      rad[a * m + b] = rad[b * m + a] = most(add_up(e.hi, -middle), add_up(middle, -e.lo));
    }
  }
  if (!second.usable) return second;
  second.definite = definite(mid, S->factor, m);
  memcpy(S->scratch, mid, sizeof(double) * m * m);
  if (!inverse(S->scratch, S->inverse, m)) return second;
  second.invertible = 1;
  double error = (m + 4) * DBL_EPSILON;
  for (int a = 0; a < m; ++a)
    for (int b = 0; b < m; ++b) {
      double sum = 0.0, size = 0.0;
      for (int k = 0; k < m; ++k) {
        double c = S->inverse[a * m + k], middle = mid[k * m + b];
        sum += c * middle;
        size += fabs(c) * (rad[k * m + b] + error * fabs(middle));
      }
      sum = (a == b ? 1.0 : 0.0) - sum;
      S->spread[a * m + b] = safely(fabs(sum) + size + DBL_EPSILON, m);
    }
  if (second.definite) { /* is there v > 0 with spread v < v?  Start with the shape of the box */
    double *v = S->vector, *next = v + m;
    for (int a = 0; a < m; ++a) v[a] = radius[a] > 0 ? radius[a] : 1e-300;
    for (int turn = 0; turn < 4 && !second.convex; ++turn) {
      int less = 1;
      double largest = 0.0;
      for (int a = 0; a < m; ++a) {
        double sum = 0.0;
        for (int b = 0; b < m; ++b) sum += S->spread[a * m + b] * v[b];
        next[a] = safely(sum, m);
        less &= next[a] < v[a];
        largest = most(largest, v[a]);
      }
      second.convex = less;
      for (int a = 0; a < m; ++a) v[a] = next[a] + 0.05 * v[a] + 1e-10 * largest;
    }
  }
  return second;
}

/* K of Krawczyk for free coordinates: center c, its gradient g [n][2], radii; and slope [n][2], of g
   along the path, or NULL.  C times the slope is how minimisers move: less than C times the change. */
static void krawczyk(Search *S, const int *free_, int m, const double *c, const double *g,
                     const double *slope, const double *radius, iv *result) {
  for (int a = 0; a < m; ++a) {
    iv sum = point(c[free_[a]]), moves = point(0.0);
    double size = 0.0;
    for (int b = 0; b < m; ++b) {
      iv of_g = of(g[2 * free_[b]], g[2 * free_[b] + 1]), row = point(S->inverse[a * m + b]);
      sum = sub(sum, mul(row, of_g));
      if (slope) moves = add(moves, mul(row, of(slope[2 * free_[b]], slope[2 * free_[b] + 1])));
      size += S->spread[a * m + b] * radius[b];
    }
    if (slope) sum = sub(sum, mul(of(S->path[0], S->path[1]), moves));
    size = safely(size, m);
    result[a] = of(add_down(sum.lo, -size), add_up(sum.hi, size));
  }
}

static int free_coordinates(const Search *S, const int8_t *active, int *free_) {
  int m = 0;
  for (int i = 0; i < S->n; ++i)
    if (!active[i]) free_[m++] = i;
  return m;
}
static int inside(const double *inner, const double *outer, int n) {
  for (int i = 0; i < n; ++i)
    if (inner[2 * i] < outer[2 * i] || inner[2 * i + 1] > outer[2 * i + 1]) return 0;
  return 1;
}
static int meet(const double *a, const double *b, int n) {
  for (int i = 0; i < n; ++i)
    if (a[2 * i] > b[2 * i + 1] || a[2 * i + 1] < b[2 * i]) return 0;
  return 1;
}
static int same_face(const int8_t *a, const int8_t *b, int n) { return !memcmp(a, b, n); }
/* does h rise inwards from a face, near it?  For gradients that are not defined on it, as sqrt's */
static int rises_inwards(Search *S, const double *box, int i, int side) {
  int n = S->n;
  double thick[2 * n], low[2 * outputs_of(S, 1)], end = S->bounds[2 * i + side];
  uint8_t flags[outputs_of(S, 1)];
  double depth = 1e-3 * (S->bounds[2 * i + 1] - S->bounds[2 * i]);
  for (int turn = 0; turn < 3; ++turn, depth *= 1e-3) {
    memcpy(thick, box, sizeof thick);
    thick[2 * i] = side ? end - depth : end;
    thick[2 * i + 1] = side ? end : end + depth;
    evaluate(S, 1, 1, thick, low, flags);
    if ((flags[0] & (UNDEFINED | BROKEN | EMPTY)) || (flags[1 + i] & EMPTY)) continue;
    if (side ? low[3 + 2 * i] < 0 : low[2 + 2 * i] > 0) return 1;
  }
  return 0;
}
/* do multipliers hold the fixed coordinates at their bounds, everywhere in a box? */
static int held(Search *S, const double *box, const int8_t *active, const double *g,
                const uint8_t *flags) {
  for (int i = 0; i < S->n; ++i) {
    if (!active[i]) continue;
    int known = !(flags[i] & EMPTY);
    if (known && (active[i] < 0 ? g[2 * i] > 0 : g[2 * i + 1] < 0)) continue;
    if ((known && !flags[i]) || !rises_inwards(S, box, i, active[i] > 0)) return 0;
  }
  return 1;
}

static void try_value(Search *S, const double *low, const uint8_t *flags) {
  if (sound(low[0], low[1], flags[0]) && low[1] < S->best) S->best = low[1];
}

/* ---- points ------------------------------------------------------------------------------------ */

static void thin(const double *y, double *box, int n) {
  for (int i = 0; i < n; ++i) box[2 * i] = box[2 * i + 1] = y[i];
}

/* Newton's method for a stationary point of a face; 0 if it leaves the box or does not converge */
static int newton(Search *S, const int8_t *active, double *y) {
  int n = S->n, free_[n], m = free_coordinates(S, active, free_);
  double box[2 * n], step[n], radius[n], before = INFINITY;
  long size = outputs_of(S, 2);
  double high[2 * size];
  uint8_t flags[size];
  for (int turn = 0; turn < 40; ++turn) {
    thin(y, box, n);
    evaluate(S, 2, 1, box, high, flags);
    for (int a = 0; a < m; ++a) radius[a] = 1.0;
    Second second = second_order(S, free_, m, high, flags, radius);
    if (!second.usable || !cholesky(S->h_mid, 0.0, S->factor, m)) return 0;
    for (int a = 0; a < m; ++a) step[a] = 0.5 * high[2 * free_[a]] + 0.5 * high[2 * free_[a] + 1];
    cholesky_solve(S->factor, step, m);
    double relative = 0.0;
    for (int a = 0; a < m; ++a) {
      int i = free_[a];
      double next = y[i] - step[a], lo = S->bounds[2 * i], hi = S->bounds[2 * i + 1];
      if (!(next == next)) return 0;
      relative = most(relative, fabs(step[a]) / (fabs(y[i]) + 1e-3 * (hi - lo)));
      y[i] = least(most(next, lo), hi);
    }
    if (relative < 1e-15 || (relative < 1e-9 && relative >= before)) {
      for (int a = 0; a < m; ++a) {
        int i = free_[a];
        if (y[i] <= S->bounds[2 * i] || y[i] >= S->bounds[2 * i + 1]) return 0;
      }
      return 1;
    }
    before = relative;
  }
  return 0;
}

/* lowers the bound on the minimum from a point: Newton's method on what bounds do not hold */
static void descend(Search *S, const double *start) {
  int n = S->n, free_[n];
  double y[n], next[n], box[2 * n], step[n], radius[n];
  long size1 = outputs_of(S, 1), size2 = outputs_of(S, 2);
  double low[2 * size1], high[2 * size2];
  uint8_t flags1[size1], flags2[size2];
  memcpy(y, start, sizeof y);
  thin(y, box, n);
  evaluate(S, 1, 1, box, low, flags1);
  if (!sound(low[0], low[1], flags1[0])) return;
  try_value(S, low, flags1);
  double value = low[1];
  for (int turn = 0; turn < 60; ++turn) {
    int m = 0;
    for (int i = 0; i < n; ++i) {
      double g = low[2 + 2 * i];
      int stays = (y[i] <= S->bounds[2 * i] && g > 0) || (y[i] >= S->bounds[2 * i + 1] && g < 0);
      if (!stays) free_[m++] = i;
    }
    if (!m) return;
    evaluate(S, 2, 1, box, high, flags2);
    for (int a = 0; a < m; ++a) radius[a] = 1.0;
    Second second = second_order(S, free_, m, high, flags2, radius);
    double size = 0.0, shift = 0.0;
    for (int a = 0; a < m; ++a) {
      step[a] = 0.5 * low[2 + 2 * free_[a]] + 0.5 * low[3 + 2 * free_[a]];
      if (!(fabs(step[a]) < 1e300)) return;
      if (second.usable) size = most(size, fabs(S->h_mid[a * m + a]));
    }
    if (second.usable) {
      while (!cholesky(S->h_mid, -shift, S->factor, m)) {
        shift = shift > 0 ? 4 * shift : 1e-3 * size + 1e-8;
        if (!(shift < 1e290)) return;
      }
      cholesky_solve(S->factor, step, m);
    }
    double length = 1.0;
    int lower = 0;
    for (int back = 0; back < 30 && !lower; ++back, length *= 0.4) {
      memcpy(next, y, sizeof y);
      for (int a = 0; a < m; ++a) {
        int i = free_[a];
        next[i] = least(most(y[i] - length * step[a], S->bounds[2 * i]), S->bounds[2 * i + 1]);
      }
      thin(next, box, n);
      evaluate(S, 1, 1, box, low, flags1);
      lower = sound(low[0], low[1], flags1[0]) && low[1] < value;
    }
    if (!lower) return;
    int little = value - low[1] <= 1e-14 * fabs(value);
    value = low[1];
    memcpy(y, next, sizeof y);
    try_value(S, low, flags1);
    if (little) return;
  }
}

/* ---- proof of one minimiser -------------------------------------------------------------------- */

/* Is there exactly one minimiser in a region about y, and where?  From the largest region on.
   radius: [n], of the first try.  0 if none of the regions can be shown to have one. */
static int prove(Search *S, const int8_t *active, const double *y, const double *radius,
                 double growth, int turns, double *region, double *enclosure, double *value) {
  int n = S->n, free_[n], m = free_coordinates(S, active, free_);
  long size1 = outputs_of(S, 1), size2 = outputs_of(S, 2);
  double low[2 * size1], high[2 * size2], thin_box[2 * n], at_y[2 * size1], r[n];
  uint8_t flags1[size1], flags2[size2], flags_y[size1];
  iv k[n];
  thin(y, thin_box, n);
  evaluate(S, 1, 1, thin_box, at_y, flags_y);
  if (!sound(at_y[0], at_y[1], flags_y[0])) return 0;
  double middle[2 * size1], slope[2 * size1], span[n];
  int moving = S->path && read_along(S, flags_y, middle, slope);
  for (int a = 0; a < m; ++a) span[a] = growth * radius[free_[a]];
  for (int turn = 0; turn < turns; ++turn) {
    for (int i = 0; i < n; ++i) region[2 * i] = region[2 * i + 1] = y[i];
    for (int a = 0; a < m; ++a) {
      int i = free_[a];
      double to = most(span[a], 1e-15 * fabs(y[i]) + 1e-290);
      span[a] *= 0.3;
      region[2 * i] = most(y[i] - to, S->bounds[2 * i]);
      region[2 * i + 1] = least(y[i] + to, S->bounds[2 * i + 1]);
      r[a] = most(add_up(region[2 * i + 1], -y[i]), add_up(y[i], -region[2 * i]));
    }
    evaluate(S, 1, 1, region, low, flags1);
    if (!sound(low[0], low[1], flags1[0]) || (flags1[0] & BROKEN)) continue;
    if (!held(S, region, active, low + 2, flags1 + 1)) continue;
    if (m == 0) {
      memcpy(enclosure, region, sizeof(double) * 2 * n);
      value[0] = low[0], value[1] = low[1];
      return 1;
    }
    evaluate(S, 2, 1, region, high, flags2);
    Second second = second_order(S, free_, m, high, flags2, r);
    if (!second.convex) continue;
    krawczyk(S, free_, m, y, moving ? middle + 2 : at_y + 2, moving ? slope + 2 : NULL, r, k);
    int proven = 1;
    for (int a = 0; a < m; ++a)
      proven &= k[a].lo > region[2 * free_[a]] && k[a].hi < region[2 * free_[a] + 1];
    if (!proven) { /* of the shape of K, larger; and smaller the next time, or that goes on for ever */
      for (int a = 0; a < m && turn % 2 == 0; ++a)
        span[a] = 1.25 * most(k[a].hi - y[free_[a]], y[free_[a]] - k[a].lo);
      continue;
    }
    if (S->known_only) return 1;
    /* narrower: the minimiser stays in the result of every turn */
    memcpy(enclosure, region, sizeof(double) * 2 * n);
    double c[n];
    memcpy(c, y, sizeof c);
    for (int narrowing = 0; narrowing < 10; ++narrowing) {
      double gain = 1.0;
      for (int a = 0; a < m; ++a) {
        int i = free_[a];
        double before = enclosure[2 * i + 1] - enclosure[2 * i];
        enclosure[2 * i] = most(enclosure[2 * i], k[a].lo);
        enclosure[2 * i + 1] = least(enclosure[2 * i + 1], k[a].hi);
        double now = enclosure[2 * i + 1] - enclosure[2 * i];
        if (before > 0) gain = least(gain, now / before);
        c[i] = 0.5 * enclosure[2 * i] + 0.5 * enclosure[2 * i + 1];
        r[a] = most(add_up(enclosure[2 * i + 1], -c[i]), add_up(c[i], -enclosure[2 * i]));
      }
      thin(c, thin_box, n);
      evaluate(S, 1, 1, thin_box, at_y, flags_y);
      if (gain > 0.9 && narrowing > 1) break;
      evaluate(S, 2, 1, enclosure, high, flags2);
      second = second_order(S, free_, m, high, flags2, r);
      if (!second.usable || !second.invertible) break;
      krawczyk(S, free_, m, c, at_y + 2, NULL, r, k);
    }
    /* h is convex: above its tangent, and at the minimiser below its value at c */
    double under = at_y[0];
    for (int a = 0; a < m; ++a) {
      double g = most(fabs(at_y[2 + 2 * free_[a]]), fabs(at_y[3 + 2 * free_[a]]));
      under = add_down(under, -safely(g * r[a], 1));
    }
    value[0] = under, value[1] = at_y[1];
    return 1;
  }
  return 0;
}

/* Newton's method for a minimiser between the bounds, of which any may hold it; near it at last */
static void newton_between_bounds(Search *S, double *y) {
  int n = S->n, free_[n];
  long size = outputs_of(S, 2);
  double box[2 * n], high[2 * size], step[n], radius[n];
  uint8_t flags[size];
  for (int turn = 0; turn < 12; ++turn) {
    int m = 0;
    thin(y, box, n);
    evaluate(S, 2, 1, box, high, flags);
    for (int i = 0; i < n; ++i) {
      double g = 0.5 * high[2 * i] + 0.5 * high[2 * i + 1];
      int stays = (y[i] <= S->bounds[2 * i] && g > 0) || (y[i] >= S->bounds[2 * i + 1] && g < 0);
      if (!stays) step[m] = g, radius[m] = 1.0, free_[m++] = i;
    }
    if (!m) return;
    Second second = second_order(S, free_, m, high, flags, radius);
    if (!second.usable || !cholesky(S->h_mid, 0.0, S->factor, m)) return;
    cholesky_solve(S->factor, step, m);
    for (int a = 0; a < m; ++a) {
      int i = free_[a];
      y[i] = least(most(y[i] - step[a], S->bounds[2 * i]), S->bounds[2 * i + 1]);
    }
  }
}

/* a number below the smallest eigenvalue of every matrix between h_mid - h_rad and h_mid + h_rad */
static double least_curvature(Search *S, int m) {
  double *mid = S->h_mid, x[m], value = 0.0, trace = 0.0, radius = 0.0;
  memcpy(S->scratch, mid, sizeof(double) * m * m);
  lowest(S->scratch, S->factor, x, m);
  for (int a = 0; a < m; ++a) {
    double row = 0.0;
    for (int b = 0; b < m; ++b) {
      value += x[a] * mid[a * m + b] * x[b];
      row += S->h_rad[a * m + b];
    }
    radius = most(radius, safely(row, m));
    trace += fabs(mid[a * m + a]);
  }
  double below = 0.9 * value, rounding = 2.0 * (m + 3) * DBL_EPSILON * (trace + m * below) + 1e-290;
  if (!(below > 0) || !cholesky(mid, below + rounding, S->factor, m)) return 0.0;
  return add_down(below, -radius);
}

/* The same of a minimiser beside bounds that may become active or inactive: on which side their
   multipliers are need not be known, if h is convex in what these bounds restrict as well.  With
   curvature s > 0 and y feasible, s |z - y|^2 <= -h_y(y) (z - y) holds for the minimiser z over the
   region, so that it is not on a side of the region that is inside of the whole box.
   active: without those bounds afterwards. */
static int prove_beside_bounds(Search *S, int8_t *active, const double *y, const double *radius,
                               int turns, double *region) {
  int n = S->n, free_[n], m;
  long size1 = outputs_of(S, 1), size2 = outputs_of(S, 2);
  double low[2 * size1], high[2 * size2], box[2 * n], at_y[2 * size1], r[n];
  uint8_t flags1[size1], flags2[size2], flags_y[size1];
  int8_t strictly[n];
  thin(y, box, n);
  evaluate(S, 1, 1, box, at_y, flags_y);
  if (!sound(at_y[0], at_y[1], flags_y[0])) return 0;
  for (int i = 0; i < n; ++i) {
    const double *g = at_y + 2 + 2 * i;
    int known_ = !flags_y[1 + i] && (active[i] < 0 ? g[0] > 0 : g[1] < 0);
    strictly[i] = known_ ? active[i] : 0;
  }
  m = free_coordinates(S, strictly, free_);
  double growth = 8.0; /* all of the box at first */
  for (int turn = 0; turn < turns; ++turn, growth *= 0.3) {
    int beside = 0;
    for (int i = 0; i < n; ++i) region[2 * i] = region[2 * i + 1] = y[i];
    for (int a = 0; a < m; ++a) {
      int i = free_[a];
      double lo = S->bounds[2 * i], hi = S->bounds[2 * i + 1];
      double span = growth * most(radius[i], 0.125 * (hi - lo));
      region[2 * i] = most(y[i] - span, lo);
      region[2 * i + 1] = least(y[i] + span, hi);
      beside |= region[2 * i] == lo || region[2 * i + 1] == hi;
      r[a] = most(add_up(region[2 * i + 1], -y[i]), add_up(y[i], -region[2 * i]));
    }
    if (!beside) return 0;
    evaluate(S, 1, 1, region, low, flags1);
    if (!sound(low[0], low[1], flags1[0]) || (flags1[0] & BROKEN)) continue;
    if (!held(S, region, strictly, low + 2, flags1 + 1)) continue;
    evaluate(S, 2, 1, region, high, flags2);
    Second second = second_order(S, free_, m, high, flags2, r);
    if (!second.usable || !second.definite) continue;
    double curvature = least_curvature(S, m), size = 0.0;
    if (!(curvature > 0)) continue;
    for (int a = 0; a < m; ++a) {
      int i = free_[a];
      double falls = most(-at_y[2 + 2 * i], 0.0), rises = most(at_y[3 + 2 * i], 0.0);
      double slope = most(falls, rises);
      if (y[i] == S->bounds[2 * i]) slope = falls;
      if (y[i] == S->bounds[2 * i + 1]) slope = rises;
      size += slope * slope;
    }
    double away = safely(sqrt(safely(size, m)) / curvature, 1);
    int proven = 1;
    for (int a = 0; a < m; ++a) {
      int i = free_[a];
      proven &= region[2 * i] == S->bounds[2 * i] || add_down(y[i], -away) > region[2 * i];
      proven &= region[2 * i + 1] == S->bounds[2 * i + 1] ||
                add_up(y[i], away) < region[2 * i + 1];
    }
    if (!proven) continue;
    memcpy(active, strictly, n);
    return 1;
  }
  return 0;
}

static void add_found(Search *S, const int8_t *active, const double *y, const double *region,
                      const double *enclosure, const double *value) {
  int n = S->n;
  if (S->found.count >= S->found.room) {
    long room = S->found.room ? 2 * S->found.room : 64;
    double *points = realloc(S->points, sizeof(double) * n * room);
    if (!points) {
      S->found.lost = 1;
      return;
    }
    S->points = points;
  }
  memcpy(S->points + n * S->found.count, y, sizeof(double) * n);
  list_put(&S->found, n, enclosure, active, value[0], value[1]);
  list_put(&S->regions, n, region, active, 0, 0);
}

/* finds and proves the minimiser that Newton's method comes to from a point; is it new? */
static int add_minimiser(Search *S, const int8_t *active, const double *start,
                         const double *radius) {
  int n = S->n;
  double y[n], region[2 * n], enclosure[2 * n], value[2], span[n];
  memcpy(y, start, sizeof y);
  /* the larger the region in which it is alone, the further it may move before a new search: begin
     with half of the whole box on either side */
  for (int i = 0; i < n; ++i)
    span[i] = most(radius[i], 0.125 * (S->bounds[2 * i + 1] - S->bounds[2 * i]));
  if (!newton(S, active, y)) return 0;
  for (long k = 0; k < S->found.count; ++k) {
    if (!same_face(active, S->found.active + n * k, n)) continue;
    thin(y, region, n);
    if (inside(region, S->regions.box + 2 * n * k, n)) return 0;
  }
  if (!prove(S, active, y, span, 4.0, 28, region, enclosure, value)) return 0;
  for (long k = 0; k < S->found.count; ++k) {
    if (!same_face(active, S->found.active + n * k, n)) continue;
    if (inside(enclosure, S->regions.box + 2 * n * k, n)) return 0;
    if (inside(S->found.box + 2 * n * k, region, n)) return 0;
  }
  for (int i = 0; i < n; ++i)
    y[i] = active[i] ? y[i] : 0.5 * enclosure[2 * i] + 0.5 * enclosure[2 * i + 1];
  add_found(S, active, y, region, enclosure, value);
  if (value[1] < S->best) S->best = value[1];
  return 1;
}

/* ---- the work list: a heap by the lower bound of h (global), or a stack --------------------------- */

static void push(Search *S, const double *box, const int8_t *active, double lower, int covered) {
  List *todo = &S->todo;
  list_put(todo, S->n, box, active, lower, covered);
  if (!S->global) return;
  int n = S->n;
  long k = todo->count - 1;
  double copy[2 * n], numbers[2] = {lower, covered};
  int8_t face[n];
  memcpy(copy, box, sizeof copy);
  memcpy(face, active, n);
  while (k > 0 && todo->number[2 * ((k - 1) / 2)] > lower) {
    list_copy(todo, n, k, (k - 1) / 2);
    k = (k - 1) / 2;
  }
  memcpy(todo->box + 2 * n * k, copy, sizeof copy);
  memcpy(todo->active + n * k, face, n);
  memcpy(todo->number + 2 * k, numbers, sizeof numbers);
}
static int pop(Search *S, double *box, int8_t *active, double *numbers) {
  List *todo = &S->todo;
  int n = S->n;
  if (!todo->count) return 0;
  long top = S->global ? 0 : todo->count - 1;
  memcpy(box, todo->box + 2 * n * top, sizeof(double) * 2 * n);
  memcpy(active, todo->active + n * top, n);
  memcpy(numbers, todo->number + 2 * top, sizeof(double) * 2);
  long last = --todo->count;
  if (!S->global || !last) return 1;
  long k = 0;
  for (;;) { /* the last box sinks from the top */
    long child = 2 * k + 1;
    if (child >= last) break;
    if (child + 1 < last && todo->number[2 * (child + 1)] < todo->number[2 * child]) ++child;
    if (todo->number[2 * child] >= todo->number[2 * last]) break;
    list_copy(todo, n, k, child);
    k = child;
  }
  if (k != last) list_copy(todo, n, k, last);
  return 1;
}

/* ---- one box ------------------------------------------------------------------------------------- */

#define KEPT_LEAVES 200000

/* boxes whose treatment has to be repeated to show that nothing changed */
static void leaf(Search *S, const double *box, const int8_t *active, int covered) {
  if (!covered && !S->known_only && S->leaves.count <= KEPT_LEAVES)
    list_put(&S->leaves, S->n, box, active, 0, 0);
}

/* h_y [n][2]: reduce a box to a face, or discard it; 1 if that is done */
static int reduce(Search *S, const double *box, const int8_t *active, const double *g,
                  const uint8_t *flags, double lower, int covered) {
  int n = S->n, changed = 0;
  double smaller[2 * n];
  int8_t face[n];
  memcpy(smaller, box, sizeof smaller);
  memcpy(face, active, n);
  for (int i = 0; i < n; ++i) {
    if (flags[i] & EMPTY) continue;
    int rises = g[2 * i] > 0, falls = g[2 * i + 1] < 0;
    if (!rises && !falls) continue;
    if (active[i]) {
      if ((active[i] < 0 && falls) || (active[i] > 0 && rises)) {
        leaf(S, box, active, covered);
        return 1;
      }
      continue;
    }
    double end = S->bounds[2 * i + (rises ? 0 : 1)];
    if (box[2 * i + (rises ? 0 : 1)] != end) {
      leaf(S, box, active, covered);
      return 1;
    }
    smaller[2 * i] = smaller[2 * i + 1] = end;
    face[i] = rises ? -1 : 1;
    changed = 1;
  }
  if (!changed) return 0;
  leaf(S, box, active, covered);
  push(S, smaller, face, lower, 1);
  return 1;
}

static int touches(const Search *S, const double *box, int i, int side) {
  return S->alive[2 * i + side] && box[2 * i + side] == S->bounds[2 * i + side];
}

static void undecided(Search *S, const double *box, const int8_t *active, double lower,
                      int reason) {
  list_put(&S->undecided, S->n, box, active, reason, lower);
  if (S->known_only) S->status = CHANGED;
}

static void bisect(Search *S, const double *box, const int8_t *active, const double *g,
                   double lower, int covered, int reason) {
  int n = S->n, along = -1;
  double most_moved = -1.0;
  for (int i = 0; i < n; ++i) {
    double w = box[2 * i + 1] - box[2 * i];
    if (active[i] || !(w > S->width[i])) continue;
    double moved = w * (g[2 * i + 1] - g[2 * i]);
    if (!(moved < INFINITY)) moved = 1e300 * (w / (S->bounds[2 * i + 1] - S->bounds[2 * i]));
    if (moved > most_moved) most_moved = moved, along = i;
  }
  if (along < 0) {
    undecided(S, box, active, lower, reason);
    return;
  }
  double lo = box[2 * along], hi = box[2 * along + 1];
  /* not in the middle, where symmetric functions have their extrema */
  double middle = lo + 0.4871 * (hi - lo), half[2 * n];
  if (!(middle > lo && middle < hi)) {
    undecided(S, box, active, lower, reason);
    return;
  }
  memcpy(half, box, sizeof half);
  half[2 * along + 1] = middle;
  push(S, half, active, lower, covered);
  half[2 * along] = middle, half[2 * along + 1] = hi;
  push(S, half, active, lower, covered);
}

/* known minimisers: is one of them the only one that a convex box can have? */
static int known(const Search *S, const double *box, const int8_t *active, const double *narrowed) {
  int n = S->n;
  for (long k = 0; k < S->found.count; ++k) {
    const double *e = S->found.box + 2 * n * k, *region = S->regions.box + 2 * n * k;
    if (e[0] > box[1] && region[0] > box[1]) continue;
    if (e[1] < box[0] && region[1] < box[0]) continue;
    if (!same_face(active, S->found.active + n * k, n)) continue;
    if (inside(e, box, n) || inside(narrowed, region, n)) return 1;
  }
  return 0;
}

typedef struct {
  int along;
  double from, to; /* no stationary point is between */
} Gap;

/* narrows a box: 0 = h_i(c) + h_ii (y_i - c_i) + sum of h_ij (y_j - c_j), solved for y_i; 0 if that
   leaves nothing.  A divisor that contains 0 leaves two parts: the widest gap is given back. */
static int by_components(const Search *S, const int *free_, int m, const int *held_at,
                         const double *c, const double *g, const double *high, double *y,
                         Gap *gap) {
  int n = S->n;
  double widest = 0.1;
  for (int a = 0; a < m; ++a) {
    int i = free_[a];
    if (held_at[a]) continue;
    iv sum = of(g[2 * i], g[2 * i + 1]), d = entry(high, n, i, i);
    for (int b = 0; b < m; ++b) {
      int j = free_[b];
      if (j == i) continue;
      iv away = of(add_down(y[2 * j], -c[j]), add_up(y[2 * j + 1], -c[j]));
      sum = add(sum, mul(entry(high, n, i, j), away));
    }
    double *lo = y + 2 * i, *hi = y + 2 * i + 1;
    if (d.lo > 0 || d.hi < 0) {
      iv step = sub(point(c[i]), over(sum, d));
      *lo = most(*lo, step.lo), *hi = least(*hi, step.hi);
      if (*lo > *hi) return 0;
      continue;
    }
    if (sum.lo <= 0 && sum.hi >= 0) continue;
    /* where d > 0 the point is on one side of c, where d < 0 on the other; none in between */
    double size = sum.lo > 0 ? sum.lo : -sum.hi;
    double by_positive = d.hi > 0 ? quotient(size, d.hi).lo : INFINITY;
    double by_negative = d.lo < 0 ? quotient(size, -d.lo).lo : INFINITY;
    double left = add_up(c[i], -(sum.lo > 0 ? by_positive : by_negative));
    double right = add_down(c[i], sum.lo > 0 ? by_negative : by_positive);
    int has_left = left >= *lo, has_right = right <= *hi;
    if (!has_left && !has_right) return 0;
    if (!has_left) *lo = most(*lo, right);
    else if (!has_right) *hi = least(*hi, left);
    else if ((right - left) / (*hi - *lo) > widest) {
      widest = (right - left) / (*hi - *lo);
      gap->along = i, gap->from = left, gap->to = right;
    }
  }
  return 1;
}

static void treat(Search *S, const double *box, const int8_t *active, const double *low,
                  const uint8_t *low_flags, const double *high, const uint8_t *high_flags,
                  const double *center, const uint8_t *center_flags, double lower, int covered) {
  int n = S->n, free_[n], m = free_coordinates(S, active, free_);
  double radius[n], full_radius[n], c[n], g[2 * n], next[2 * n];
  for (int i = 0; i < n; ++i) {
    c[i] = 0.5 * box[2 * i] + 0.5 * box[2 * i + 1];
    full_radius[i] = most(add_up(box[2 * i + 1], -c[i]), add_up(c[i], -box[2 * i]));
  }
  for (int a = 0; a < m; ++a) radius[a] = full_radius[free_[a]];
  memcpy(g, low + 2, sizeof g);
  if (m == 0) {
    if (held(S, box, active, g, low_flags + 1)) {
      double y[n], value[2] = {low[0], low[1]};
      for (int i = 0; i < n; ++i) y[i] = box[2 * i];
      if (!known(S, box, active, box)) {
        if (S->known_only) S->status = CHANGED;
        add_found(S, active, y, box, box, value);
        if (value[1] < S->best) S->best = value[1];
      }
      leaf(S, box, active, covered);
    } else
      undecided(S, box, active, lower, AT_BOUND);
    return;
  }
  Second second = second_order(S, free_, m, high, high_flags, radius);
  if ((low_flags[0] & BROKEN) || !second.usable) {
    bisect(S, box, active, g, lower, covered, KINK);
    return;
  }
  /* the gradient from its values at the center: narrower in small boxes */
  int at_center = sound(center[0], center[1], center_flags[0]);
  for (int i = 0; i < n && at_center; ++i) {
    if (center_flags[1 + i] || low_flags[1 + i]) continue;
    double size = 0.0;
    for (int a = 0; a < m; ++a) {
      int j = free_[a], row = i > j ? i : j, column = i > j ? j : i;
      if (high_flags[n + row * (row + 1) / 2 + column] & EMPTY) size = INFINITY;
      iv e = entry(high, n, i, j);
      size += most(fabs(e.lo), fabs(e.hi)) * radius[a];
    }
    size = safely(size, m);
    if (!(size < INFINITY)) continue;
    g[2 * i] = most(g[2 * i], add_down(center[2 + 2 * i], -size));
    g[2 * i + 1] = least(g[2 * i + 1], add_up(center[3 + 2 * i], size));
    if (g[2 * i] > g[2 * i + 1]) { /* cannot be, both enclose */
      g[2 * i] = low[2 + 2 * i], g[2 * i + 1] = low[3 + 2 * i];
    }
  }
  if (reduce(S, box, active, g, low_flags + 1, lower, covered)) return;
  if (S->global && at_center) { /* h from its value and slope at the center */
    double first = center[0], second_ = center[0];
    for (int a = 0; a < m; ++a) {
      int i = free_[a];
      double slope = most(fabs(g[2 * i]), fabs(g[2 * i + 1]));
      double here = most(fabs(center[2 + 2 * i]), fabs(center[3 + 2 * i]));
      first = add_down(first, -safely(slope * radius[a], 1));
      second_ = add_down(second_, -safely(here * radius[a], 1));
      for (int b = 0; b < m && !second.convex; ++b) {
        iv e = entry(high, n, i, free_[b]);
        double curved = a == b ? -least(e.lo, 0.0) : most(fabs(e.lo), fabs(e.hi));
        second_ = add_down(second_, -safely(0.5 * curved * radius[a] * radius[b], 2));
      }
    }
    lower = most(lower, most(first, second_));
    if (lower > S->best) {
      leaf(S, box, active, covered);
      return;
    }
  }
  /* where no bound is near, h is convex along every direction at a minimiser */
  int loose[n], l = 0, inner = 1, held_at[n];
  for (int a = 0; a < m; ++a) {
    int i = free_[a];
    held_at[a] = touches(S, box, i, 0) || touches(S, box, i, 1);
    if (held_at[a]) inner = 0;
    else loose[l++] = a;
    iv e = entry(high, n, i, i);
    if (e.hi < 0) {
      leaf(S, box, active, covered);
      int8_t face[n];
      for (int side = 0; side < 2; ++side) {
        if (!touches(S, box, i, side)) continue;
        memcpy(next, box, sizeof next);
        memcpy(face, active, n);
        next[2 * i] = next[2 * i + 1] = box[2 * i + side];
        face[i] = side ? 1 : -1;
        push(S, next, face, lower, 1);
      }
      return;
    }
  }
  if (!second.definite && l > 1) {
    double *part = S->scratch, x[n];
    for (int a = 0; a < l; ++a)
      for (int b = 0; b < l; ++b) part[a * l + b] = S->h_mid[loose[a] * m + loose[b]];
    lowest(part, S->factor, x, l);
    double sum = 0.0, size = 0.0;
    for (int a = 0; a < l; ++a)
      for (int b = 0; b < l; ++b) {
        double middle = S->h_mid[loose[a] * m + loose[b]];
        sum += x[a] * middle * x[b];
        size += fabs(x[a]) * (S->h_rad[loose[a] * m + loose[b]] +
                              (2 * l + 8) * DBL_EPSILON * fabs(middle)) * fabs(x[b]);
      }
    if (sum + safely(size, l * l) < 0) {
      leaf(S, box, active, covered);
      return;
    }
  }
  /* stationary points are in narrower boxes, by components of the gradient and by Krawczyk's K */
  Gap gap = {-1, 0, 0};
  memcpy(next, box, sizeof next);
  if (at_center && !by_components(S, free_, m, held_at, c, center + 2, high, next, &gap)) {
    leaf(S, box, active, covered);
    return;
  }
  if (second.invertible && inner && at_center) {
    iv k[n];
    krawczyk(S, free_, m, c, center + 2, NULL, radius, k);
    for (int a = 0; a < m; ++a) {
      int i = free_[a];
      next[2 * i] = most(next[2 * i], k[a].lo);
      next[2 * i + 1] = least(next[2 * i + 1], k[a].hi);
      if (next[2 * i] > next[2 * i + 1]) {
        leaf(S, box, active, covered);
        return;
      }
    }
  }
  double gain = 1.0;
  for (int a = 0; a < m; ++a) {
    int i = free_[a];
    double before = box[2 * i + 1] - box[2 * i];
    if (before > S->width[i]) gain = least(gain, (next[2 * i + 1] - next[2 * i]) / before);
  }
  if (second.convex) {
    if (known(S, box, active, next)) {
      leaf(S, box, active, covered);
      return;
    }
    double start[n];
    for (int i = 0; i < n; ++i) start[i] = 0.5 * next[2 * i] + 0.5 * next[2 * i + 1];
    if (!S->known_only && add_minimiser(S, active, start, full_radius) &&
        known(S, box, active, next)) {
      leaf(S, box, active, covered);
      return;
    }
  }
  if (gain < 0.6) {
    leaf(S, box, active, covered);
    push(S, next, active, lower, 1);
    return;
  }
  double *ends = next + 2 * (gap.along < 0 ? 0 : gap.along);
  /* the box may have become narrower than the gap since */
  if (gap.along >= 0 && gap.from >= ends[0] && gap.to <= ends[1]) {
    leaf(S, box, active, covered);
    double end = ends[1];
    ends[1] = gap.from;
    push(S, next, active, lower, 1);
    ends[0] = gap.to, ends[1] = end;
    push(S, next, active, lower, 1);
    return;
  }
  bisect(S, box, active, g, lower, covered, inner ? UNIQUE_FAILED : AT_BOUND);
}

/* ---- all boxes ----------------------------------------------------------------------------------- */

static void work(Search *S) {
  int n = S->n;
  long size1 = outputs_of(S, 1), size2 = outputs_of(S, 2);
  double *boxes = S->center + 2 * size1 * LANES, *centers = boxes + 2 * n * LANES;
  int8_t active[LANES][n];
  double numbers[LANES][2];
  int lane[LANES];
  while (S->todo.count && S->status == COMPLETE) {
    if (S->todo.lost | S->found.lost | S->regions.lost | S->leaves.lost | S->undecided.lost) {
      S->status = MEMORY;
      return;
    }
    if (S->boxes >= S->budget) {
      S->status = S->known_only ? CHANGED : BUDGET;
      return;
    }
    int count = 0;
    while (count < LANES && pop(S, boxes + 2 * n * count, active[count], numbers[count])) {
      if (S->global && numbers[count][0] > S->best) {
        leaf(S, boxes + 2 * n * count, active[count], (int)numbers[count][1]);
        continue;
      }
      ++count;
    }
    if (!count) break;
    S->boxes += count;
    evaluate(S, 1, count, boxes, S->values, S->flags);
    int left = 0;
    for (int k = 0; k < count && S->status == COMPLETE; ++k) {
      double *box = boxes + 2 * n * k, *low = S->values + 2 * size1 * k, y[2 * n];
      uint8_t *flags = S->flags + size1 * k;
      int covered = (int)numbers[k][1];
      if (!sound(low[0], low[1], flags[0])) {
        int proven = flags[0] & EMPTY;
        /* the middle, and the ends, where singularities like to be */
        for (int side = 0; side < 3 && !proven; ++side) {
          double at_point[2 * size1];
          uint8_t point_flags[size1];
          for (int i = 0; i < n; ++i) {
            double middle = 0.5 * box[2 * i] + 0.5 * box[2 * i + 1];
            if (box[2 * i] < 0 && box[2 * i + 1] > 0) middle = 0.0;
            y[2 * i] = y[2 * i + 1] = side ? box[2 * i + side - 1] : middle;
          }
          evaluate(S, 1, 1, y, at_point, point_flags);
          proven = !sound(at_point[0], at_point[1], point_flags[0]) &&
                   ((point_flags[0] & EMPTY) || at_point[0] >= DBL_MAX || at_point[1] <= -DBL_MAX ||
                    (at_point[0] == -INFINITY && at_point[1] == INFINITY));
          if (proven) memcpy(box, y, sizeof y);
        }
        if (proven) {
          S->status = S->known_only ? CHANGED : NOWHERE_FINITE;
          list_put(&S->undecided, n, box, active[k], NOT_FINITE, low[0]);
          continue;
        }
        double everywhere[2 * n];
        for (int i = 0; i < n; ++i) everywhere[2 * i] = -INFINITY, everywhere[2 * i + 1] = INFINITY;
        bisect(S, box, active[k], everywhere, -INFINITY, covered, NOT_FINITE);
        continue;
      }
      numbers[k][0] = most(numbers[k][0], low[0]);
      if (S->global && numbers[k][0] > S->best) {
        leaf(S, box, active[k], covered);
        continue;
      }
      if (!(flags[0] & BROKEN) &&
          reduce(S, box, active[k], low + 2, flags + 1, numbers[k][0], covered))
        continue;
      lane[left++] = k;
    }
    if (!left) continue;
    if (S->path) { /* only where the plain enclosure does not do */
      for (int j = 0; j < left; ++j)
        memcpy(centers + 2 * n * j, boxes + 2 * n * lane[j], sizeof(double) * 2 * n);
      narrow_along(S, left, centers, S->values, S->flags, lane);
      int still = 0;
      for (int j = 0; j < left; ++j) {
        int k = lane[j];
        double *low = S->values + 2 * size1 * k;
        uint8_t *flags = S->flags + size1 * k;
        if ((flags[0] & BROKEN) || !reduce(S, boxes + 2 * n * k, active[k], low + 2, flags + 1,
                                           numbers[k][0], (int)numbers[k][1]))
          lane[still++] = k;
      }
      left = still;
      if (!left) continue;
    }
    for (int j = 0; j < left; ++j) {
      memmove(boxes + 2 * n * j, boxes + 2 * n * lane[j], sizeof(double) * 2 * n);
      for (int i = 0; i < n; ++i) {
        const double *ends = boxes + 2 * (n * j + i);
        centers[2 * (n * j + i)] = centers[2 * (n * j + i) + 1] = 0.5 * ends[0] + 0.5 * ends[1];
      }
    }
    evaluate(S, 2, left, boxes, S->inner, S->inner_flags);
    evaluate(S, 1, left, centers, S->center, S->center_flags);
    if (S->path && left > 1) narrow_along(S, left, centers, S->center, S->center_flags, NULL);
    if (S->global)
      for (int j = 0; j < left; ++j) {
        double before = S->best;
        try_value(S, S->center + 2 * size1 * j, S->center_flags + size1 * j);
        if (S->best < before && !S->known_only) {
          double y[n];
          for (int i = 0; i < n; ++i) y[i] = centers[2 * (n * j + i)];
          descend(S, y);
        }
      }
    for (int j = 0; j < left && S->status == COMPLETE; ++j)
      treat(S, boxes + 2 * n * j, active[lane[j]], S->values + 2 * size1 * lane[j],
            S->flags + size1 * lane[j], S->inner + 2 * size2 * j, S->inner_flags + size2 * j,
            S->center + 2 * size1 * j, S->center_flags + size1 * j, numbers[lane[j]][0],
            (int)numbers[lane[j]][1]);
  }
}

/* which faces of the whole box can have minimisers: not where h falls inwards all over them */
static void look_at_faces(Search *S) {
  int n = S->n;
  long size = outputs_of(S, 1);
  double face[2 * n], low[2 * size];
  uint8_t flags[size];
  for (int i = 0; i < n; ++i)
    for (int side = 0; side < 2; ++side) {
      memcpy(face, S->bounds, sizeof face);
      face[2 * i] = face[2 * i + 1] = S->bounds[2 * i + side];
      evaluate(S, 1, 1, face, low, flags);
      int clean = !(flags[0] & (UNDEFINED | BROKEN | EMPTY)) && !(flags[1 + i] & EMPTY);
      int inwards = side ? low[2 + 2 * i] > 0 : low[3 + 2 * i] < 0;
      S->alive[2 * i + side] = !(clean && inwards);
    }
}

static void clear(Search *S) {
  S->todo.count = S->found.count = S->regions.count = S->undecided.count = 0;
  S->todo.lost = S->found.lost = S->regions.lost = S->leaves.lost = S->undecided.lost = 0;
  S->boxes = 0;
  S->status = COMPLETE;
  S->best = INFINITY;
}

Search *search_new(const Tape *low, const Tape *high, const Tape *along, Extension extension, int n,
                   int inputs, int y_at, const double *bounds) {
  Search *S = calloc(1, sizeof(Search));
  S->low = low, S->high = high, S->along = along, S->extension = extension;
  S->n = n, S->inputs = inputs, S->y_at = y_at, S->bounds = bounds;
  if (!extension) {
    S->w_low = workspace(low), S->w_high = workspace(high);
    S->w_middle = workspace(low), S->w_along = workspace(along);
  }
  long size1 = outputs_of(S, 1), size2 = outputs_of(S, 2);
  S->values = malloc(sizeof(double) * 2 * size1 * LANES);
  S->inner = malloc(sizeof(double) * 2 * size2 * LANES);
  S->center = malloc(sizeof(double) * (2 * size1 + 4 * n) * LANES);
  S->flags = malloc(size1 * LANES);
  S->inner_flags = malloc(size2 * LANES);
  S->center_flags = malloc(size1 * LANES);
  S->alive = malloc(2 * (size_t)n);
  S->sent = malloc(sizeof(double) * 2 * inputs * LANES);
  double *matrices = malloc(sizeof(double) * (6 * n * n + 4 * n));
  S->h_mid = matrices, S->h_rad = matrices + n * n, S->inverse = matrices + 2 * n * n;
  S->factor = matrices + 3 * n * n, S->spread = matrices + 4 * n * n;
  S->scratch = matrices + 5 * n * n, S->vector = matrices + 6 * n * n;
  return S;
}
void search_free(Search *S) {
  list_free(&S->todo), list_free(&S->found), list_free(&S->regions), list_free(&S->leaves);
  list_free(&S->undecided);
  free(S->points), free(S->w_low), free(S->w_high), free(S->w_middle), free(S->w_along);
  free(S->values), free(S->inner);
  free(S->center), free(S->flags), free(S->inner_flags), free(S->center_flags), free(S->sent);
  free(S->h_mid), free(S->alive);
  free(S);
}

/* given: [inputs][2], t, x, y (not read) and p */
int search_run(Search *S, const double *given, const double *width, int global, long budget) {
  int n = S->n;
  clear(S);
  S->leaves.count = 0;
  S->given = given, S->width = width, S->global = global, S->budget = budget;
  S->path = NULL;
  S->known_only = 0;
  prepare(S);
  look_at_faces(S);
  int8_t active[n];
  memset(active, 0, n);
  push(S, S->bounds, active, -INFINITY, 0);
  if (global) {
    double y[n];
    for (int i = 0; i < n; ++i) y[i] = 0.5 * S->bounds[2 * i] + 0.5 * S->bounds[2 * i + 1];
    descend(S, y);
  }
  work(S);
  /* what is left, before bounds on the minimum were as good as they are now */
  double box[2 * n], numbers[2];
  while (S->status == BUDGET && pop(S, box, active, numbers))
    if (!global || numbers[0] <= S->best) list_put(&S->undecided, n, box, active, LEFT, numbers[0]);
  return S->status;
}

/* Is each of these minimisers still the only one of its region, and no other there?  For all t, x, p
   of intervals, along a path if it is known; leaves: boxes whose treatment showed it before. */
int search_check(Search *S, const double *given, const double *path, const double *width,
                 int global, long budget, long count, const double *points, const double *regions, const int8_t *actives,
                 long n_leaves, const double *leaves, const int8_t *leaf_actives) {
  int n = S->n;
  clear(S);
  S->given = given, S->width = width, S->global = global, S->budget = budget;
  S->path = path;
  S->known_only = 1;
  prepare(S);
  look_at_faces(S);
  double region[2 * n], enclosure[2 * n], value[2] = {0, 0}, radius[n], y[n];
  for (long k = 0; k < count; ++k) {
    const double *known_y = points + n * k, *known_region = regions + 2 * n * k;
    for (int i = 0; i < n; ++i)
      radius[i] = most(known_region[2 * i + 1] - known_y[i], known_y[i] - known_region[2 * i]);
    int8_t active[n];
    memcpy(active, actives + n * k, n);
    memcpy(y, known_y, sizeof y);
    int there = 1;
    if (path) { /* regions about where they are in the middle of the path */
      give(S->high, S->w_high, path + 2);
      there = newton(S, active, y);
      give(S->high, S->w_high, given);
    }
    if (!there || !prove(S, active, y, radius, 4.0, 9, region, enclosure, value)) {
      memcpy(y, known_y, sizeof y);
      if (path) give(S->high, S->w_high, path + 2);
      newton_between_bounds(S, y);
      if (path) give(S->high, S->w_high, given);
      if (!prove_beside_bounds(S, active, y, radius, 9, region)) return CHANGED;
    }
    for (long j = 0; j < k; ++j) /* as many as before, if each has a region for itself */
      if (meet(S->regions.box + 2 * n * j, region, n)) return CHANGED;
    add_found(S, active, y, region, region, value);
    if (global) {
      double thin_box[2 * n], low[2 * outputs_of(S, 1)];
      uint8_t flags[outputs_of(S, 1)];
      thin(y, thin_box, n);
      evaluate(S, 1, 1, thin_box, low, flags);
      try_value(S, low, flags);
    }
  }
  for (long k = 0; k < n_leaves; ++k)
    push(S, leaves + 2 * n * k, leaf_actives + n * k, -INFINITY, 1);
  work(S);
  return S->status;
}

/* list: 0 minimisers, 1 their regions, 2 leaves, 3 undecided */
static const List *list_of(const Search *S, int list) {
  const List *lists[] = {&S->found, &S->regions, &S->leaves, &S->undecided};
  return lists[list];
}
long search_count(const Search *S, int list) { return list_of(S, list)->count; }
long search_boxes(const Search *S) { return S->boxes; }
double search_best(const Search *S) { return S->best; }
void search_copy(const Search *S, int list, double *boxes, int8_t *active, double *numbers) {
  const List *from = list_of(S, list);
  memcpy(boxes, from->box, sizeof(double) * 2 * S->n * from->count);
  memcpy(active, from->active, (size_t)S->n * from->count);
  memcpy(numbers, from->number, sizeof(double) * 2 * from->count);
}
void search_points(const Search *S, double *points) {
  memcpy(points, S->points, sizeof(double) * S->n * S->found.count);
}
