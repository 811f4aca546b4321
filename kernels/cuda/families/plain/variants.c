#include "variants.h"

/* Every product has a kernel: where no other has one on this device, or none that meets the numerics contract. */
bool plain_predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  (void)problem;
  *out = variant_default(&variant_plain);
  *us = KERNEL_LAST;
  return true;
}

enum status plain_check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                        struct variant *nearest, struct error *error) {
  (void)backend;
  (void)problem;
  (void)variant;
  (void)nearest;
  (void)error;
  return STATUS_OK;
}

/* 2-bit weights have a kernel that makes y. */
struct kernel_sums plain_leaves(const struct kernel_problem *problem, const struct variant *variant) {
  (void)variant;
  if (gemm_is_int2(problem->format))
    return (struct kernel_sums){.type = GEMM_TYPE_NONE};
  return (struct kernel_sums){.type = problem->format == GEMM_FORMAT_INT8 ? GEMM_S32 : GEMM_F32,
                              .scaled = problem->scale == GEMM_SCALE_BLOCK};
}
