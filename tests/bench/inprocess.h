/* A product computed inside this process in the usual way, for comparison. */
#pragma once

#include "kernels/backend.h"

/* A weight, and in a plan what stands behind its product. */
struct inprocess_step {
  struct gemm_weight shape;
  const void *canonical; /* owned */
  enum gemm_activation activation;
  bool gated;
};

/* One product, or a plan, again and again. */
struct inprocess_request {
  struct inprocess_step steps[GEMM_STEPS_MOST];
  uint32_t step_count; /* 0: one product, with the weight of the first */
  int64_t m;
  enum gemm_type x_type, y_type;
  const void *x; /* [m, k] dense */
};

struct inprocess_obvious;

/* On a GPU: x copied in, quantized, multiplied by the kernel that gemmd takes, y copied out, the stream waited for.
 * UNSUPPORTED where there is none such for the request. */
MUST_CHECK enum status obvious_open(const struct inprocess_request *request, struct inprocess_obvious **out,
                                    struct error *error);
/* One call, all of it. */
MUST_CHECK enum status obvious_call(struct inprocess_obvious *obvious, struct error *error);
/* Nanoseconds that the device needs for one multiplication, many of them behind each other, and for one with the
 * quantization ahead of it. */
MUST_CHECK enum status obvious_kernel(struct inprocess_obvious *obvious, double *product_ns, double *both_ns,
                                      struct error *error);
void obvious_close(struct inprocess_obvious *obvious);
