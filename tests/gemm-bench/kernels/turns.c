#include "turns.h"

#include <stdlib.h>

static int order(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double turns_median(double *values, int count) {
  qsort(values, (size_t)count, sizeof(*values), order);
  return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
