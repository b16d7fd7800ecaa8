"""Products of dense matrices in generated code."""

from __future__ import annotations

_ORIGINAL = "void casadi_mtimes_dense(const"

_PRODUCTS = """\
/* z[j] += a_j . v for the columns a_j [length]: four of them at a time, for the sake of the sums */
static void add_dots(const double *restrict a, long length, long count, const double *restrict v,
                     double *restrict z) {
  for (; count >= 4; count -= 4, a += 4 * length, z += 4) {
    const double *b = a + length, *c = b + length, *d = c + length;
    double p = 0.0, q = 0.0, r = 0.0, s = 0.0;
    #pragma omp simd reduction(+ : p, q, r, s)
    for (long k = 0; k < length; ++k) {
      p += a[k] * v[k];
      q += b[k] * v[k];
      r += c[k] * v[k];
      s += d[k] * v[k];
    }
    z[0] += p;
    z[1] += q;
    z[2] += r;
    z[3] += s;
  }
  for (; count; --count, a += length, ++z) {
    double p = 0.0;
    #pragma omp simd reduction(+ : p)
    for (long k = 0; k < length; ++k) p += a[k] * v[k];
    z[0] += p;
  }
}
/* z += sum of a_k v[k] for the columns a_k [length]: four of them at a time */
static void add_columns(const double *restrict a, long length, long count, const double *restrict v,
                        double *restrict z) {
  for (; count >= 4; count -= 4, a += 4 * length, v += 4) {
    const double *b = a + length, *c = b + length, *d = c + length;
    for (long j = 0; j < length; ++j)
      z[j] += (a[j] * v[0] + b[j] * v[1]) + (c[j] * v[2] + d[j] * v[3]);
  }
  for (; count; --count, a += length, ++v)
    for (long j = 0; j < length; ++j) z[j] += a[j] * v[0];
}
/* z += x y, or x^T y */
void casadi_mtimes_dense(const double *x, long long rows, long long columns, const double *y,
                         long long count, double *z, long long transposed) {
  if (rows == 1 && !transposed) {
    add_dots(y, columns, count, x, z);
    return;
  }
  for (; count; --count) {
    if (transposed) add_dots(x, rows, columns, y, z);
    else add_columns(x, rows, columns, y, z);
    y += transposed ? rows : columns;
    z += transposed ? columns : rows;
  }
}
"""


def with_fast_products(code: str) -> str:
    """Return CasADi's C source with products of dense matrices that use vector instructions.

    CasADi adds the terms of each sum one after the other, in memory; here the order is free.

    Examples
    --------
    >>> "add_dots" in with_fast_products("void casadi_mtimes_dense(const double* x) {}")
    True
    """
    # CasADi's function stays under another name, since its text is not ours to cut out
    return code.replace(_ORIGINAL, f"{_PRODUCTS}static void slow_products(const")
