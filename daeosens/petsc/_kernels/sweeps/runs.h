/* Sums of vectors, and products with the entries of sparse matrices in runs along the diagonals
   (daeosens.petsc.diagonal_runs). */
#pragma once

#include <string.h>

#if defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 12 && !defined(__clang__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDEST
#endif

/* target += source .* values along the runs {from w, row, column, length, place} of a pattern,
   for each row of w [rows, n] and v [rows, v_size]; rows of target are ``leading`` apart, and
   their first ``fresh`` entries count as zero */
WIDEST static void add_runs(
    const int *runs, long count, const double *values, long rows,
    const double *w, long n, const double *v, long v_size, double *target, long leading,
    long fresh)
{
    const int all = fresh && count && !runs[2] && runs[3] == fresh; /* by the first run */
    for (long r = 0; r < rows; r++, w += n, v += v_size, target += leading) {
        if (fresh && !all) memset(target, 0, fresh * sizeof(double));
        for (const int *run = runs; run < runs + 5 * count; run += 5) {
            const double *restrict source = (run[0] ? w : v) + run[1];
            const double *restrict value = values + run[4];
            double *restrict sum = target + run[2];
            if (all && run == runs)
                for (int i = 0; i < run[3]; i++) sum[i] = source[i] * value[i];
            else
                for (int i = 0; i < run[3]; i++) sum[i] += source[i] * value[i];
        }
    }
}

typedef double Lane __attribute__((vector_size(64), aligned(8), may_alias));

/* out [size] = the sum of vectors [count, size] times factors; it may be the first of them */
WIDEST static inline void combine(
    const double *vectors, long size, long count, const double *factors, double *out)
{
    enum { WIDTH = sizeof(Lane) / sizeof(double), SEVERAL = 4 };
    long k = 0;
    for (; k + SEVERAL * WIDTH <= size; k += SEVERAL * WIDTH) {
        const Lane *vector = (const Lane *)(vectors + k);
        Lane a = vector[0] * factors[0], b = vector[1] * factors[0];
        Lane c = vector[2] * factors[0], d = vector[3] * factors[0];
        for (long j = 1; j < count; j++) {
            vector = (const Lane *)(vectors + j * size + k);
            a += vector[0] * factors[j], b += vector[1] * factors[j];
            c += vector[2] * factors[j], d += vector[3] * factors[j];
        }
        Lane *sum = (Lane *)(out + k);
        sum[0] = a, sum[1] = b, sum[2] = c, sum[3] = d;
    }
    for (; k + WIDTH <= size; k += WIDTH) {
        Lane sum = *(const Lane *)(vectors + k) * factors[0];
        for (long j = 1; j < count; j++) sum += *(const Lane *)(vectors + j * size + k) * factors[j];
        *(Lane *)(out + k) = sum;
    }
    for (; k < size; k++) {
        double sum = 0.0;
        for (long j = 0; j < count; j++) sum += vectors[j * size + k] * factors[j];
        out[k] = sum;
    }
}
