/* Medians. */
#ifndef BENCH_TURNS_H
#define BENCH_TURNS_H

/* Sorts `values`. */
double turns_median(double *values, int count);

#endif
