#include "run.h"

#include "../families/call.h"
#include "../families/select.h"
#include "../passes/epilogue.h"

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  const struct kernel_family *family = kernel_family_of(variant);
  return family ? family->launch(backend, call, variant, error) : STATUS_UNSUPPORTED;
}

/* A kernel that was chosen for the bucket's largest M may not take this one: then this very M is asked about, and at
 * last the plain kernel computes. */
enum status kernel_run(struct backend *backend, struct selector *selector, const struct kernel_call *call,
                       const struct variant *asked, struct variant *used, struct kernel_sums *left,
                       struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  enum status status = launch(backend, call, asked, error);
  if (status == STATUS_OK)
    *used = *asked;
  for (int exact = 0; exact < 2 && status == STATUS_UNSUPPORTED; exact++) {
    *used = selector_find(selector, backend, &problem, exact);
    status = launch(backend, call, used, error);
  }
  if (status == STATUS_UNSUPPORTED) {
    *used = variant_default(&variant_plain);
    status = launch(backend, call, used, error);
  }
  *left = (struct kernel_sums){.type = GEMM_TYPE_NONE};
  if (status == STATUS_OK && kernel_family_of(used)->leaves)
    *left = kernel_family_of(used)->leaves(&problem, used);
  return status;
}

bool kernel_sums_are_y(const struct kernel_call *call, const struct kernel_sums *left) {
  bool scales = call->weight->weight.scale != GEMM_SCALE_NONE && call->y_type != GEMM_S32;
  return left->type == call->y_type && (left->scaled || !scales) && (left->biased || !call->bias);
}

cudaError_t kernel_finish(const struct kernel_call *call, const struct kernel_sums *left) {
  const struct backend_weight *weight = call->weight;
  bool scales = !left->scaled && weight->weight.scale != GEMM_SCALE_NONE;
  const struct epilogue epilogue = {
      .sums = call->sums,
      .integers = left->type == GEMM_S32,
      .sums_stride = weight->layout.n,
      .w_scale = scales ? (const float *)(const void *)weight->scales : NULL,
      .x_scale = scales ? call->x_scale : NULL,
      .bias = left->biased ? NULL : call->bias,
      .bias_type = call->bias_type,
      .y = call->y,
      .y_type = call->y_type,
      .y_stride = call->y_stride,
      .m = call->m,
      .n = weight->weight.n,
  };
  return launch_epilogue(call->stream, &epilogue);
}
