/* Medians. */
#pragma once

/* Sorts `values`. */
double turns_median(double *values, int count);
