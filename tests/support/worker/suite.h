/* What the conformance programs of single products share: what to ask of a device, what must come, and a table of the
 * worst that did. Failures end the running cmocka test with a message. */
#pragma once

#include "device.h"

enum { SUITE_FORMATS = GEMM_FORMATS, SUITE_TYPES = 7 }; /* one more than the last of enum gemm_type */

/* Of the scales that a row of x has where the weight is of this shape. */
int64_t suite_scale_columns(const struct gemm_weight *shape);
/* The n-th (cyclic) type that the format takes. */
enum gemm_type suite_x_type(enum gemm_format format, int n);
enum gemm_type suite_y_type(enum gemm_format format, enum gemm_type x_type, int n);
/* A bias [n] of `type`, and its values as float64 in *values. The caller frees both. */
void *suite_bias(int64_t n, enum gemm_type type, double **values);

/* What y must be, [x->m, n]; bias may be NULL. `raw`: of INT8 codes without scales, the sums. The caller frees. */
double *suite_reference(const struct oracle_x *x, const struct oracle_weight *weight, const double *bias, bool raw);
/* Compares dense y, [m, n], with the reference, and notes the worst row that the gate applies to. */
void suite_judge(const struct device *device, const struct device_request *request, const void *y,
                 const double *reference);
/* Runs it twice: right, and the same bits again. */
void suite_expect(struct device *device, const struct device_request *request, const double *reference);

/* Prints the worst row's relative error that was seen, by backend, format and type of y. */
void suite_table(void);
