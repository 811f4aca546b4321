/* Plans: sequences of products in which the result of one step is x of the next. Pure.
 *
 * A plan is an array of struct ring_step in the arena; a submission with RING_OP_PLAN names its place. Step i computes
 * v = x * W^T + bias, rounded to the step's y_type as a product's y is; then, in f32 and rounded to that type again,
 *   not gated   x' = act(v), [M, N]
 *   gated       x' = act(gate) * up, [M, N / 2]: of a row of v, gate is the first half and up the second. W is the
 *               fused [2F, K] weight of a gated layer, rows of the gate first; with SILU this is SwiGLU
 * (with experts [M*T, N] and [M*T, N / 2]: pairs), and x' is x of step i + 1, which quantizes it as its weight's format
 * does to any x; that of the last step is y. So a plan is what its client would get from single products with the
 * activations computed in between. */
#pragma once

#include "../gemm.h"
#include "../status.h"

/* As it lies in the arena, aligned to RING_STEP_ALIGN. */
struct ring_step {
  uint32_t weight;    /* handle of the session */
  uint8_t activation; /* enum gemm_activation */
  uint8_t gated;      /* 0 or 1 */
  uint8_t y_type;     /* F32, F16 or BF16 */
  uint8_t bias_type;  /* NONE: no bias */
  uint32_t n, k;      /* of the weight */
  uint64_t bias_offset;
  uint8_t reserved[40]; /* 0 */
};
_Static_assert(sizeof(struct ring_step) == 64, "a step is one line");
enum { RING_STEP_ALIGN = 64 };

/* What both sides check. */
struct plan_step {
  struct gemm_weight weight;
  enum gemm_activation activation;
  bool gated;
  enum gemm_type y_type, bias_type;
  uint64_t bias_offset;
};

/* 1..GEMM_STEPS_MOST steps at an aligned offset inside [begin, end). INVALID naming the field otherwise. */
MUST_CHECK enum status plan_place_check(uint32_t steps, uint64_t offset, uint64_t begin, uint64_t end,
                                        struct error *error);
/* Takes a private copy of a step for one with this weight: N and K must be the weight's, the rest what this version
 * knows. INVALID naming the field otherwise. */
MUST_CHECK enum status plan_step_read(const struct ring_step *from, const struct gemm_weight *weight,
                                      struct plan_step *out, struct error *error);
/* The steps follow from one another, and every bias lies in [begin, end). INVALID or UNSUPPORTED naming the field
 * otherwise; *bad is then the step. */
MUST_CHECK enum status plan_check(const struct plan_step *steps, uint32_t count, uint64_t begin, uint64_t end,
                                  uint32_t *bad, struct error *error);
/* Columns of what a step gives. */
int64_t plan_step_columns(const struct plan_step *step);
/* With experts: all steps have as many, and bias is [E, N].
 * x, x scale and y of one submission of a checked plan: N is the columns of y, K those of x; no bias of its own. As
 * gemm_product_check, and y apart from every bias of the plan. */
MUST_CHECK enum status plan_call_check(const struct plan_step *steps, uint32_t count, const struct gemm_product *call,
                                       uint64_t begin, uint64_t end, struct gemm_extent *out, struct error *error);
