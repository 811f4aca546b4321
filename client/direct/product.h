#pragma once

#include "state.h"

/* The job of a call with so many columns of y, checked as products with `whole`; its weight, bias and variant are left
 * to be filled in. `experts` NULL: over none; else *chosen is what the job points to. */
MUST_CHECK enum status product_job(const struct gemmd_direct *direct, const gemmd_direct_product *product,
                                   const gemmd_direct_experts *experts, const struct gemm_weight *whole,
                                   struct backend_experts *chosen, struct backend_job *out, struct error *error);
