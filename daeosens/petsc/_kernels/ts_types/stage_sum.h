/* The sum that every stage begins with. */
#pragma once

#include <string.h>

/* out [n] = from + h sum_{j<count} weights[j] rates[j], with rates [., n], in the order of VecMAXPY: the
   digits of TSRK, so that stages that are found again are those of the run */
static inline void stage_sum(long n, double h, const double *weights, long count, const double *rates, const double *from, double *restrict out)
{
  const long rest  = count % 4;
  long       first = 0;
  const double *restrict p = rates, *restrict q = p + n, *restrict r = q + n, *restrict s;
  const double w0 = rest > 0 ? h * weights[0] : 0.0, w1 = rest > 1 ? h * weights[1] : 0.0;
  const double w2 = rest > 2 ? h * weights[2] : 0.0;

  while (first < count && weights[first] == 0.0) first++;
  if (count && first == count - 1) { /* each stage reads the rate before only, as those of RK4 do */
    const double  last = h * weights[first];
    const double *only = rates + first * n;
    for (long k = 0; k < n; k++) out[k] = from[k] + last * only[k];
    return;
  }
  memcpy(out, from, (size_t)n * sizeof(double));
  if (rest == 1)
    for (long k = 0; k < n; k++) out[k] += w0 * p[k];
  else if (rest == 2)
    for (long k = 0; k < n; k++) out[k] += w0 * p[k] + w1 * q[k];
  else if (rest == 3)
    for (long k = 0; k < n; k++) out[k] += w0 * p[k] + w1 * q[k] + w2 * r[k];
  for (long j = rest; j < count; j += 4) {
    const double a = h * weights[j], b = h * weights[j + 1], c = h * weights[j + 2], d = h * weights[j + 3];
    p = rates + j * n;
    q = p + n;
    r = q + n;
    s = r + n;
    for (long k = 0; k < n; k++) out[k] += a * p[k] + b * q[k] + c * r[k] + d * s[k];
  }
}
