/* Products with the entries of sparse matrices in runs along the diagonals (daeosens.runs). */
#pragma once

/* target += source .* values along the runs {from w, row, column, length, place} of a pattern,
   for each row of w [rows, n] and v [rows, v_size] */
static inline void add_runs(
    const int *runs, long count, const double *values, long rows,
    const double *w, long n, const double *v, long v_size, double *target, long size)
{
    for (long r = 0; r < rows; r++, w += n, v += v_size, target += size)
        for (const int *run = runs; run < runs + 5 * count; run += 5) {
            const double *restrict source = (run[0] ? w : v) + run[1];
            const double *restrict value = values + run[4];
            double *restrict sum = target + run[2];
            for (int i = 0; i < run[3]; i++) sum[i] += source[i] * value[i];
        }
}
