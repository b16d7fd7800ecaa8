/* Intervals of doubles that enclose: every bound is rounded outwards.

Operations round to nearest, as always; where an error-free transformation (TwoSum, or a fused
multiply-add) shows that a result was rounded to the wrong side, the next number is taken (Rump,
Zimmermann, Boldo, Melquiond, BIT 49, 2009).  So exact results stay exact.  Functions of libm are
widened by more than the largest errors known of any libm in double precision (Gladman, Innocente,
Mather, Zimmermann, "Accuracy of mathematical functions", 2024: at most 0.63 units in the last place
for sin, cos, tan, asin, acos, atan, atan2, exp, log, pow; at most 2.3 for the others used here).

Bounds are never NaN: lower ones are below +inf, upper ones above -inf.  What a number is not says
its flag: EMPTY, the function is defined nowhere in the box, and the bounds mean nothing; UNDEFINED,
perhaps not everywhere; BROKEN, perhaps not continuous.  Values are those where it is defined. */

#pragma STDC FP_CONTRACT OFF
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off", "no-trapping-math", "no-math-errno", "signed-zeros")
#endif
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16
enum { UNDEFINED = 1, BROKEN = 2, EMPTY = 4 };

typedef struct {
  double lo, hi;
} iv;

typedef struct {
  double lo[LANES], hi[LANES];
  uint8_t flag[LANES];
} __attribute__((aligned(64))) Value;

static const double ETA = 4.9406564584124654e-324; /* the smallest number above 0 */
static const double PHI = 0x1.0000000000001p-53;   /* u (1 + 2u) */
static const double SMALL = 0x1p-960;              /* below it errors of products are rounded too */
static const double PI_UP = 0x1.921fb54442d19p+1;

static inline double up(double x) {
  double r = x + (fabs(x) * PHI + ETA);
  return x == -INFINITY ? -DBL_MAX : r;
}
static inline double down(double x) {
  double r = x - (fabs(x) * PHI + ETA);
  return x == INFINITY ? DBL_MAX : r;
}
/* for results of libm: k units in the last place, less half a unit for this rounding */
static inline double above(double x, double k) {
  double r = x + (fabs(x) * (k * 0x1p-52) + k * ETA);
  return x == -INFINITY ? -DBL_MAX : r;
}
static inline double below(double x, double k) {
  double r = x - (fabs(x) * (k * 0x1p-52) + k * ETA);
  return x == INFINITY ? DBL_MAX : r;
}
static inline double least(double a, double b) { return a < b ? a : b; }
static inline double most(double a, double b) { return a > b ? a : b; }
static inline iv of(double lo, double hi) {
  iv r = {lo, hi};
  return r;
}
static inline iv point(double x) { return of(x, x); }

/* the error of a rounded sum, exact without overflow (Knuth); NaN with it */
static inline double sum_error(double a, double b, double s) {
  double t = s - a;
  return (a - (s - t)) + (b - t);
}
static inline double add_down(double a, double b) {
  double s = a + b, e = sum_error(a, b, s), d = down(s);
  return e >= 0 ? s : d;
}
static inline double add_up(double a, double b) {
  double s = a + b, e = sum_error(a, b, s), d = up(s);
  return e <= 0 ? s : d;
}
static inline iv add(iv a, iv b) { return of(add_down(a.lo, b.lo), add_up(a.hi, b.hi)); }
static inline iv neg(iv a) { return of(-a.hi, -a.lo); }
static inline iv sub(iv a, iv b) { return of(add_down(a.lo, -b.hi), add_up(a.hi, -b.lo)); }

/* 0 times infinity is 0: infinite bounds stand for numbers as large as one likes */
static inline iv product(double a, double b) {
  double p = a * b, e = fma(a, b, -p), d = down(p), u = up(p);
  int zero = (a == 0) | (b == 0);
  int near = fabs(p) < SMALL;
  int same = (a < 0) == (b < 0); /* what underflows keeps its sign */
  double lo = (e >= 0) & !near ? p : (same ? most(d, 0.0) : d);
  double hi = (e <= 0) & !near ? p : (same ? u : least(u, 0.0));
  return of(zero ? 0.0 : lo, zero ? 0.0 : hi);
}
static inline iv mul(iv a, iv b) {
  iv p = product(a.lo, b.lo), q = product(a.lo, b.hi), r = product(a.hi, b.lo),
     s = product(a.hi, b.hi);
  return of(least(least(p.lo, q.lo), least(r.lo, s.lo)), most(most(p.hi, q.hi), most(r.hi, s.hi)));
}
static inline iv sqr(iv a) {
  double x = fabs(a.lo), y = fabs(a.hi);
  double small = a.lo > 0 ? a.lo : (a.hi < 0 ? y : 0.0), large = most(x, y);
  iv p = product(small, small), q = product(large, large);
  return of(most(p.lo, 0.0), q.hi);
}
/* b is not 0 */
static inline iv quotient(double a, double b) {
  double q = a / b, e = fma(-q, b, a), d = down(q), u = up(q);
  e = b < 0 ? -e : e;
  int exact = (fabs(q) > SMALL) & (fabs(a) > SMALL);
  int same = (a < 0) == (b < 0);
  double lo = (e >= 0) & exact ? q : (same ? most(d, 0.0) : d);
  double hi = (e <= 0) & exact ? q : (same ? u : least(u, 0.0));
  /* infinity by infinity is whatever the finite numbers below both are: 0 to infinity */
  int unknown = q != q;
  double inf = (a < 0) != (b < 0) ? -INFINITY : INFINITY;
  lo = unknown ? least(0.0, inf) : lo;
  hi = unknown ? most(0.0, inf) : hi;
  return of(a == 0 ? 0.0 : lo, a == 0 ? 0.0 : hi);
}
/* b does not contain 0 */
static inline iv over(iv a, iv b) {
  iv p = quotient(a.lo, b.lo), q = quotient(a.lo, b.hi), r = quotient(a.hi, b.lo),
     s = quotient(a.hi, b.hi);
  return of(least(least(p.lo, q.lo), least(r.lo, s.lo)), most(most(p.hi, q.hi), most(r.hi, s.hi)));
}
static inline iv divide(iv a, iv b, uint8_t *flag) {
  if (b.lo > 0 || b.hi < 0) return over(a, b);
  *flag |= UNDEFINED;
  if (b.lo == 0 && b.hi == 0) {
    *flag |= EMPTY;
    return of(-INFINITY, INFINITY);
  }
  if (a.lo == 0 && a.hi == 0) return point(0.0);
  if ((b.lo < 0 && b.hi > 0) || (a.lo < 0 && a.hi > 0)) return of(-INFINITY, INFINITY);
  /* half lines: one end of b is 0, and a does not change its sign */
  if (b.lo == 0)
    return a.lo >= 0 ? of(quotient(a.lo, b.hi).lo, INFINITY) : of(-INFINITY, quotient(a.hi, b.hi).hi);
  return a.lo >= 0 ? of(-INFINITY, quotient(a.lo, b.lo).hi) : of(quotient(a.hi, b.lo).lo, INFINITY);
}
static inline iv hull(iv a, iv b) { return of(least(a.lo, b.lo), most(a.hi, b.hi)); }
static inline iv absolute(iv a) {
  double x = fabs(a.lo), y = fabs(a.hi);
  return of(a.lo > 0 ? a.lo : (a.hi < 0 ? y : 0.0), most(x, y));
}

/* ---- functions ------------------------------------------------------------------------------- */

static inline double root_down(double x) {
  double s = sqrt(x), e = fma(s, s, -x), d = down(s);
  return e <= 0 && (x > SMALL || x == 0) ? s : most(d, 0.0);
}
static inline double root_up(double x) {
  double s = sqrt(x), e = fma(s, s, -x), u = up(s);
  return e >= 0 && (x > SMALL || x == 0) && x < INFINITY ? s : u;
}
/* cuts an argument off at a domain [lo, hi] */
static inline iv within(iv a, double lo, double hi, uint8_t *flag) {
  if (a.lo < lo || a.hi > hi) *flag |= UNDEFINED;
  if (a.hi < lo || a.lo > hi) {
    *flag |= EMPTY;
    return point(lo);
  }
  return of(most(a.lo, lo), least(a.hi, hi));
}
static iv f_sqrt(iv a, uint8_t *flag) {
  a = within(a, 0.0, INFINITY, flag);
  return of(root_down(a.lo), root_up(a.hi));
}
static iv f_exp(iv a, uint8_t *flag) {
  (void)flag;
  double lo = a.lo == 0 ? 1.0 : below(exp(a.lo), 2), hi = a.hi == 0 ? 1.0 : above(exp(a.hi), 2);
  return of(most(lo, 0.0), hi);
}
static iv f_expm1(iv a, uint8_t *flag) {
  (void)flag;
  double lo = a.lo == 0 ? 0.0 : below(expm1(a.lo), 4), hi = a.hi == 0 ? 0.0 : above(expm1(a.hi), 4);
  return of(most(lo, -1.0), hi);
}
/* 0 (or -1) is not in the domain: where the argument comes to it the value is not bounded */
static iv logarithm(iv a, double end, double (*f)(double), double k, double one, uint8_t *flag) {
  if (a.lo <= end) *flag |= UNDEFINED;
  if (a.hi <= end) {
    *flag |= EMPTY;
    return point(0.0);
  }
  double lo = a.lo <= end ? -INFINITY : (a.lo == one ? 0.0 : below(f(a.lo), k));
  return of(lo, a.hi == one ? 0.0 : above(f(a.hi), k));
}
static iv f_log(iv a, uint8_t *flag) { return logarithm(a, 0.0, log, 2, 1.0, flag); }
static iv f_log10(iv a, uint8_t *flag) { return logarithm(a, 0.0, log10, 4, 1.0, flag); }
static iv f_log1p(iv a, uint8_t *flag) { return logarithm(a, -1.0, log1p, 4, 0.0, flag); }

/* is there, in [a, b], a point (k + shift) pi with k even, or odd?  perhaps, if bits 1 or 2 are set */
static int extrema(iv a, double shift) {
  const double inverse = 0x1.45f306dc9c883p-2;
  if (!(a.lo > -1e15 && a.hi < 1e15)) return 3;
  double lo = a.lo * inverse, hi = a.hi * inverse;
  lo -= fabs(lo) * 0x1p-50 + ETA;
  hi += fabs(hi) * 0x1p-50 + ETA;
  lo -= shift;
  hi -= shift;
  lo -= fabs(lo) * 0x1p-51 + ETA;
  hi += fabs(hi) * 0x1p-51 + ETA;
  double first = ceil(lo), last = floor(hi);
  if (first > last) return 0;
  if (last - first >= 1) return 3;
  return fmod(fabs(first), 2.0) == 0 ? 1 : 2;
}
static iv wave(iv a, double shift, double (*f)(double)) {
  int at = extrema(a, shift);
  if (at == 3) return of(-1.0, 1.0);
  double x = f(a.lo), y = f(a.hi);
  double lo = below(least(x, y), 2), hi = above(most(x, y), 2);
  return of(at & 2 ? -1.0 : most(lo, -1.0), at & 1 ? 1.0 : least(hi, 1.0));
}
static iv f_sin(iv a, uint8_t *flag) {
  (void)flag;
  return wave(a, 0.5, sin);
}
static iv f_cos(iv a, uint8_t *flag) {
  (void)flag;
  return wave(a, 0.0, cos);
}
static iv f_tan(iv a, uint8_t *flag) {
  if (extrema(a, 0.5)) { /* perhaps a pole */
    *flag |= UNDEFINED;
    return of(-INFINITY, INFINITY);
  }
  return of(below(tan(a.lo), 2), above(tan(a.hi), 2));
}
static iv f_asin(iv a, uint8_t *flag) {
  a = within(a, -1.0, 1.0, flag);
  return of(below(asin(a.lo), 2), above(asin(a.hi), 2));
}
static iv f_acos(iv a, uint8_t *flag) {
  a = within(a, -1.0, 1.0, flag);
  return of(most(below(acos(a.hi), 2), 0.0), above(acos(a.lo), 2));
}
#define RISING(name, f, k, low, high)                                                             \
  static iv name(iv a, uint8_t *flag) {                                                           \
    (void)flag;                                                                                   \
    double lo = a.lo == 0 ? 0.0 : below(f(a.lo), k), hi = a.hi == 0 ? 0.0 : above(f(a.hi), k);    \
    return of(most(lo, low), least(hi, high));                                                    \
  }
RISING(f_atan, atan, 2, -INFINITY, INFINITY)
RISING(f_sinh, sinh, 4, -INFINITY, INFINITY)
RISING(f_tanh, tanh, 4, -1.0, 1.0)
RISING(f_asinh, asinh, 4, -INFINITY, INFINITY)
RISING(f_erf, erf, 4, -1.0, 1.0)
static iv f_cosh(iv a, uint8_t *flag) {
  (void)flag;
  a = absolute(a);
  return of(most(below(cosh(a.lo), 4), 1.0), a.hi == 0 ? 1.0 : above(cosh(a.hi), 4));
}
static iv f_acosh(iv a, uint8_t *flag) {
  a = within(a, 1.0, INFINITY, flag);
  return of(most(below(acosh(a.lo), 4), 0.0), a.hi == 1 ? 0.0 : above(acosh(a.hi), 4));
}
static iv f_atanh(iv a, uint8_t *flag) {
  if (a.lo <= -1 || a.hi >= 1) *flag |= UNDEFINED;
  if (a.hi <= -1 || a.lo >= 1) {
    *flag |= EMPTY;
    return point(0.0);
  }
  double lo = a.lo <= -1 ? -INFINITY : (a.lo == 0 ? 0.0 : below(atanh(a.lo), 4));
  return of(lo, a.hi >= 1 ? INFINITY : (a.hi == 0 ? 0.0 : above(atanh(a.hi), 4)));
}
static iv f_floor(iv a, uint8_t *flag) {
  iv r = of(floor(a.lo), floor(a.hi));
  if (r.lo != r.hi) *flag |= BROKEN;
  return r;
}
static iv f_ceil(iv a, uint8_t *flag) {
  iv r = of(ceil(a.lo), ceil(a.hi));
  if (r.lo != r.hi) *flag |= BROKEN;
  return r;
}
static inline double signum(double x) { return x > 0 ? 1.0 : (x < 0 ? -1.0 : 0.0); }
static iv f_sign(iv a, uint8_t *flag) {
  iv r = of(signum(a.lo), signum(a.hi));
  if (r.lo != r.hi) *flag |= BROKEN;
  return r;
}
static iv f_inv(iv a, uint8_t *flag) { return divide(point(1.0), a, flag); }

/* x^r at a point x >= 0, r > 0 */
static inline iv power_point(double x, double r) {
  if (x == 0 || x == 1) return point(x);
  double v = pow(x, r);
  return of(most(below(v, 2), 0.0), above(v, 2));
}
static iv raised(iv a, double n) { /* to a whole number n > 0 */
  int odd = fmod(n, 2.0) != 0;
  if (!odd) a = absolute(a);
  if (a.lo >= 0) return of(power_point(a.lo, n).lo, power_point(a.hi, n).hi);
  iv left = power_point(-a.lo, n);
  if (a.hi <= 0) return of(-left.hi, -power_point(-a.hi, n).lo);
  return of(-left.hi, power_point(a.hi, n).hi);
}
static inline iv cube_point(double x) { return mul(point(x), sqr(point(x))); }
static iv whole_power(iv a, double n, uint8_t *flag) {
  if (n == 0) return point(1.0);
  if (n < 0) return divide(point(1.0), whole_power(a, -n, flag), flag);
  if (n == 1) return a;
  if (n == 2) return sqr(a);
  if (n == 3) return of(cube_point(a.lo).lo, cube_point(a.hi).hi);
  if (n == 4) return sqr(sqr(a));
  return raised(a, n);
}
static iv real_power(iv a, double r, uint8_t *flag) { /* r is no whole number */
  if (r < 0) {
    iv b = real_power(a, -r, flag);
    return *flag & EMPTY ? b : divide(point(1.0), b, flag);
  }
  a = within(a, 0.0, INFINITY, flag);
  return of(power_point(a.lo, r).lo, power_point(a.hi, r).hi);
}
static iv f_pow(iv a, iv b, uint8_t *flag) {
  if (b.lo == b.hi) return b.lo == floor(b.lo) ? whole_power(a, b.lo, flag) : real_power(a, b.lo, flag);
  iv r;
  int some = a.hi >= 0;
  if (some) {
    /* y log x has its extrema at corners: x^y too */
    double x[2] = {most(a.lo, 0.0), a.hi}, y[2] = {b.lo, b.hi};
    r = of(INFINITY, -INFINITY);
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) {
        double v = pow(x[i], y[j]); /* 0^0 = 1, 0^-1 = inf; inf^0 = 1 is a value between, too */
        r = hull(r, of(most(below(v, 2), 0.0), above(v, 2)));
      }
    if (x[0] == 0 && b.lo <= 0) {
      *flag |= b.lo < 0 ? UNDEFINED : BROKEN;
      r = hull(r, of(b.hi > 0 ? 0.0 : 1.0, b.lo < 0 ? INFINITY : 1.0));
    }
    if (x[1] == INFINITY && b.lo <= 0 && b.hi >= 0) r = of(0.0, INFINITY);
  }
  if (a.lo < 0) { /* defined at whole numbers between the ends of b alone */
    *flag |= UNDEFINED;
    if (ceil(b.lo) <= floor(b.hi)) {
      uint8_t inner = 0;
      iv size = f_pow(of(a.hi < 0 ? -a.hi : 0.0, -a.lo), b, &inner);
      iv both = of(-size.hi, size.hi);
      r = some ? hull(r, both) : both;
    } else if (!some) {
      *flag |= EMPTY;
      r = point(0.0);
    }
  }
  return r;
}
static iv f_atan2(iv y, iv x, uint8_t *flag) {
  if (y.lo <= 0 && y.hi >= 0 && x.lo <= 0) { /* the cut, from 0 to the left */
    *flag |= BROKEN;
    return of(-PI_UP, PI_UP);
  }
  iv r = of(INFINITY, -INFINITY);
  double ys[2] = {y.lo, y.hi}, xs[2] = {x.lo, x.hi};
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      double v = atan2(ys[i], xs[j]);
      r = hull(r, of(below(v, 2), above(v, 2)));
    }
  return r;
}
static iv f_hypot(iv a, iv b, uint8_t *flag) { return f_sqrt(add(sqr(a), sqr(b)), flag); }
/* x - n y with n = x/y cut off (remainder: rounded); the sign of fmod is that of x */
static iv f_fmod(iv a, iv b, uint8_t *flag) {
  iv c = absolute(b);
  if (c.lo == 0) *flag |= UNDEFINED;
  if (c.hi == 0) {
    *flag |= EMPTY;
    return point(0.0);
  }
  if (c.lo > 0) {
    iv q = over(a, c);
    if (trunc(q.lo) == trunc(q.hi) && fabs(q.hi) < 0x1p52) {
      iv r = sub(a, mul(point(trunc(q.lo)), c));
      return of(q.lo >= 0 ? most(r.lo, 0.0) : r.lo, q.hi <= 0 ? least(r.hi, 0.0) : r.hi);
    }
  }
  *flag |= BROKEN;
  return of(a.lo >= 0 ? 0.0 : -least(c.hi, -a.lo), a.hi <= 0 ? 0.0 : least(c.hi, a.hi));
}
static iv f_remainder(iv a, iv b, uint8_t *flag) {
  iv c = absolute(b);
  if (c.lo == 0) *flag |= UNDEFINED;
  if (c.hi == 0) {
    *flag |= EMPTY;
    return point(0.0);
  }
  if (c.lo > 0) {
    iv q = over(a, c);
    double lo = floor(q.lo + 0.5), n = ceil(q.hi - 0.5);
    if (lo == n && fabs(q.hi) < 0x1p40 && q.lo > n - 0.5 && q.hi < n + 0.5)
      return sub(a, mul(point(n), c));
  }
  *flag |= BROKEN;
  double half = 0.5 * c.hi + ETA;
  return of(-half, half);
}
static iv f_copysign(iv a, iv b, uint8_t *flag) {
  a = absolute(a);
  if (b.lo > 0) return a;
  if (b.hi < 0) return neg(a);
  if (a.hi > 0) *flag |= BROKEN;
  return of(-a.hi, a.hi);
}

/* ---- conditions: [0, 0] false, [1, 1] true, [0, 1] not decided ---------------------------------- */

static inline iv decided(int yes, int no, uint8_t *flag) {
  if (!yes && !no) *flag |= BROKEN;
  return of(yes ? 1.0 : 0.0, no ? 0.0 : 1.0);
}
static inline int is_true(iv a) { return a.lo > 0 || a.hi < 0; }
static inline int is_false(iv a) { return a.lo == 0 && a.hi == 0; }
static iv f_lt(iv a, iv b, uint8_t *flag) { return decided(a.hi < b.lo, a.lo >= b.hi, flag); }
static iv f_le(iv a, iv b, uint8_t *flag) { return decided(a.hi <= b.lo, a.lo > b.hi, flag); }
static iv f_eq(iv a, iv b, uint8_t *flag) {
  int same = a.lo == a.hi && b.lo == b.hi && a.lo == b.lo;
  return decided(same, a.hi < b.lo || a.lo > b.hi, flag);
}
static iv f_ne(iv a, iv b, uint8_t *flag) {
  iv r = f_eq(a, b, flag);
  return of(1 - r.hi, 1 - r.lo);
}
static iv f_not(iv a, uint8_t *flag) { return decided(is_false(a), is_true(a), flag); }

/* ---- many boxes -------------------------------------------------------------------------------- */

#define EACH for (int k = 0; k < n; ++k)

static void flags_of(Value *r, const Value *a, const Value *b) {
  for (int k = 0; k < LANES; ++k) r->flag[k] = a->flag[k] | b->flag[k];
}
static iv at(const Value *a, int k) { return of(a->lo[k], a->hi[k]); }
static void set(Value *r, int k, iv v) {
  r->lo[k] = v.lo;
  r->hi[k] = v.hi;
}

/* arithmetic without branches, in vector registers: all lanes, also those that nobody reads */
#define VECTORS(name, call)                                                                        \
  static void name(Value *restrict r, const Value *restrict a, const Value *restrict b) {          \
    _Pragma("omp simd") for (int k = 0; k < LANES; ++k) {                                          \
      iv x = of(a->lo[k], a->hi[k]), y = of(b->lo[k], b->hi[k]);                                   \
      iv v = call;                                                                                 \
      r->lo[k] = v.lo;                                                                             \
      r->hi[k] = v.hi;                                                                             \
    }                                                                                              \
  }
VECTORS(v_add, add(x, y))
VECTORS(v_sub, sub(x, y))
VECTORS(v_mul, mul(x, y))
VECTORS(v_sqr, ((void)y, sqr(x)))
VECTORS(v_over, over(x, y))

static void v_div(Value *r, const Value *a, const Value *b, int n) {
  int proper = 1;
  EACH proper &= (b->lo[k] > 0) | (b->hi[k] < 0);
  if (proper)
    v_over(r, a, b);
  else
    EACH set(r, k, divide(at(a, k), at(b, k), &r->flag[k]));
}
static void select_lane(Value *r, const Value *c, const Value *a, const Value *b, int k) {
  iv condition = at(c, k);
  if (c->flag[k] & EMPTY) { /* nothing is known of it: neither value */
    set(r, k, point(0.0));
    r->flag[k] = c->flag[k];
  } else if (is_true(condition)) {
    iv v = at(a, k);
    r->flag[k] = a->flag[k] | c->flag[k];
    set(r, k, v);
  } else if (is_false(condition)) {
    iv v = b ? at(b, k) : point(0.0);
    r->flag[k] = (b ? b->flag[k] : 0) | c->flag[k];
    set(r, k, v);
  } else {
    uint8_t fa = a->flag[k], fb = b ? b->flag[k] : 0;
    iv va = at(a, k), vb = b ? at(b, k) : point(0.0);
    r->flag[k] = (fa | fb | c->flag[k] | BROKEN) & ~EMPTY;
    if (fa & fb & EMPTY) r->flag[k] |= EMPTY;
    set(r, k, fa & EMPTY ? vb : (fb & EMPTY ? va : hull(va, vb)));
  }
}
/* fmin and fmax take the other value where one is not defined */
static void extremum_lane(Value *r, const Value *a, const Value *b, int k, int largest) {
  uint8_t fa = a->flag[k], fb = b->flag[k];
  iv x = at(a, k), y = at(b, k), v;
  if (largest)
    v = of(most(x.lo, y.lo), most(x.hi, y.hi));
  else
    v = of(least(x.lo, y.lo), least(x.hi, y.hi));
  if (fb & UNDEFINED) v = hull(v, x);
  if (fa & UNDEFINED) v = hull(v, y);
  if (fa & EMPTY) v = y;
  if (fb & EMPTY) v = x;
  r->flag[k] = (uint8_t)(((fa | fb) & ~EMPTY) | (fa & fb & EMPTY));
  set(r, k, v);
}

typedef struct {
  int32_t op, r, a, b, c;
} Instruction;

typedef struct {
  int32_t values, constants, inputs, outputs, first, then; /* first: what y does not enter */
  const double *constant;                                  /* [constants][2], values 0, 1, ... */
  const int32_t *input, *output;                           /* values of the inputs, or -1 */
  const Instruction *code;                                 /* [first + then] */
} Tape;

#define UNARY(code, f)                                                                             \
  case code:                                                                                       \
    memcpy(r->flag, a->flag, LANES);                                                               \
    EACH set(r, k, f(at(a, k), &r->flag[k]));                                                      \
    break;
#define BINARY(code, f)                                                                            \
  case code:                                                                                       \
    flags_of(r, a, b);                                                                             \
    EACH set(r, k, f(at(a, k), at(b, k), &r->flag[k]));                                            \
    break;

/* carry out instructions on the first n lanes; a result never overwrites an argument */
static void carry_out(const Instruction *code, int count, Value *w, int n) {
  for (int i = 0; i < count; ++i) {
    const Instruction *now = code + i;
    Value *r = w + now->r;
    const Value *a = w + now->a, *b = w + now->b, *c = w + now->c;
    switch (now->op) {
      case OP_ADD: flags_of(r, a, b); v_add(r, a, b); break;
      case OP_SUB: flags_of(r, a, b); v_sub(r, a, b); break;
      case OP_MUL: flags_of(r, a, b); v_mul(r, a, b); break;
      case OP_SQ: memcpy(r->flag, a->flag, LANES); v_sqr(r, a, a); break;
      case OP_DIV: flags_of(r, a, b); v_div(r, a, b, n); break;
      case OP_NEG:
        memcpy(r->flag, a->flag, LANES);
        for (int k = 0; k < LANES; ++k) r->lo[k] = -a->hi[k], r->hi[k] = -a->lo[k];
        break;
      case OP_TWICE:
        memcpy(r->flag, a->flag, LANES);
        EACH set(r, k, add(at(a, k), at(a, k)));
        break;
      case OP_FABS:
        memcpy(r->flag, a->flag, LANES);
        EACH set(r, k, absolute(at(a, k)));
        break;
      case OP_POW_WHOLE: /* the exponent is a constant */
        memcpy(r->flag, a->flag, LANES);
        EACH set(r, k, whole_power(at(a, k), b->lo[0], &r->flag[k]));
        break;
      case OP_POW_REAL:
        memcpy(r->flag, a->flag, LANES);
        EACH set(r, k, real_power(at(a, k), b->lo[0], &r->flag[k]));
        break;
      UNARY(OP_INV, f_inv)
      UNARY(OP_SQRT, f_sqrt)
      UNARY(OP_EXP, f_exp)
      UNARY(OP_EXPM1, f_expm1)
      UNARY(OP_LOG, f_log)
      UNARY(OP_LOG10, f_log10)
      UNARY(OP_LOG1P, f_log1p)
      UNARY(OP_SIN, f_sin)
      UNARY(OP_COS, f_cos)
      UNARY(OP_TAN, f_tan)
      UNARY(OP_ASIN, f_asin)
      UNARY(OP_ACOS, f_acos)
      UNARY(OP_ATAN, f_atan)
      UNARY(OP_SINH, f_sinh)
      UNARY(OP_COSH, f_cosh)
      UNARY(OP_TANH, f_tanh)
      UNARY(OP_ASINH, f_asinh)
      UNARY(OP_ACOSH, f_acosh)
      UNARY(OP_ATANH, f_atanh)
      UNARY(OP_ERF, f_erf)
      UNARY(OP_FLOOR, f_floor)
      UNARY(OP_CEIL, f_ceil)
      UNARY(OP_SIGN, f_sign)
      UNARY(OP_NOT, f_not)
      BINARY(OP_POW, f_pow)
      BINARY(OP_ATAN2, f_atan2)
      BINARY(OP_HYPOT, f_hypot)
      BINARY(OP_FMOD, f_fmod)
      BINARY(OP_REMAINDER, f_remainder)
      BINARY(OP_COPYSIGN, f_copysign)
      BINARY(OP_LT, f_lt)
      BINARY(OP_LE, f_le)
      BINARY(OP_EQ, f_eq)
      BINARY(OP_NE, f_ne)
      case OP_AND:
      case OP_OR:
        EACH {
          int any = now->op == OP_OR;
          iv x = at(a, k), y = at(b, k);
          uint8_t flag = a->flag[k] | b->flag[k];
          int yes = any ? is_true(x) || is_true(y) : is_true(x) && is_true(y);
          int no = any ? is_false(x) && is_false(y) : is_false(x) || is_false(y);
          if (yes || no) flag &= ~BROKEN;
          r->flag[k] = flag;
          set(r, k, of(yes ? 1.0 : 0.0, no ? 0.0 : 1.0));
        }
        break;
      case OP_IF_ELSE_ZERO: EACH select_lane(r, a, b, 0, k); break;
      case OP_SELECT: EACH select_lane(r, a, b, c, k); break;
      case OP_FMIN: EACH extremum_lane(r, a, b, k, 0); break;
      case OP_FMAX: EACH extremum_lane(r, a, b, k, 1); break;
      case OP_MINIMUM: /* of NumPy: not defined where one is not */
        flags_of(r, a, b);
        EACH set(r, k, of(least(a->lo[k], b->lo[k]), least(a->hi[k], b->hi[k])));
        break;
      case OP_MAXIMUM:
        flags_of(r, a, b);
        EACH set(r, k, of(most(a->lo[k], b->lo[k]), most(a->hi[k], b->hi[k])));
        break;
    }
  }
}

static Value *workspace(const Tape *tape) {
  size_t size = sizeof(Value) * (size_t)(tape->values + 1);
  Value *w = aligned_alloc(64, size);
  memset(w, 0, size);
  for (int i = 0; i < tape->constants; ++i)
    for (int k = 0; k < LANES; ++k) {
      double lo = tape->constant[2 * i], hi = tape->constant[2 * i + 1];
      if (lo != lo) w[i].flag[k] = UNDEFINED | EMPTY;
      else set(w + i, k, of(lo, hi));
    }
  return w;
}

/* boxes [count][inputs][2] to values [count][outputs][2] and flags [count][outputs] */
void evaluate_boxes(const Tape *tape, long count, const double *boxes, double *values,
                    uint8_t *flags) {
  Value *w = workspace(tape);
  for (long from = 0; from < count; from += LANES) {
    int n = count - from < LANES ? (int)(count - from) : LANES;
    for (int i = 0; i < tape->inputs; ++i) {
      if (tape->input[i] < 0) continue;
      Value *v = w + tape->input[i];
      EACH {
        const double *box = boxes + ((from + k) * tape->inputs + i) * 2;
        set(v, k, of(box[0], box[1]));
      }
    }
    carry_out(tape->code, tape->first + tape->then, w, n);
    for (int j = 0; j < tape->outputs; ++j) {
      const Value *v = w + tape->output[j];
      EACH {
        long to = (from + k) * tape->outputs + j;
        values[2 * to] = v->lo[k];
        values[2 * to + 1] = v->hi[k];
        flags[to] = v->flag[k];
      }
    }
  }
  free(w);
}
