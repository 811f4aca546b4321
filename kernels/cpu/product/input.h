/* What a weight wants done to a row of x before it is multiplied: enum gemm_input. */
#pragma once

#include "../micro/micro.h"
#include "../weight/weight.h"

/* Floats beside the row itself that cpu_input_row needs. */
int64_t cpu_input_spare(const struct gemm_weight *shape);
/* The row x of the type, in the weight's order and rotated where it is to be, as shape.k of f32. */
void cpu_input_row(const struct backend_weight *weight, const struct micro_ops *micro, enum gemm_type type,
                   const void *x, float *spare, float *to);
/* The scale by which the row is quantized, whose largest magnitude is given: the weight's own, or that of the rules. */
float cpu_input_scale(const struct backend_weight *weight, float largest);
