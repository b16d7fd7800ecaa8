/* Products with the entries of sparse matrices in runs along the diagonals (daeosens.runs). */
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
