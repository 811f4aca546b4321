#include "pass.h"

#include "../exec/run.h"
#include "../families/call.h"
#include "../families/select.h"
#include "../launch/launch_kernel.h"
#include "../passes/input.h"
#include "open.h"

void *direct_staged(const struct direct_pass *pass, uint64_t offset) {
  return (void *)(uintptr_t)(pass->lane->staging.address + offset);
}

static bool is_code(enum gemm_type type) {
  return type == GEMM_INT8 || type == GEMM_E4M3;
}

static bool quantizes(const struct direct_pass *pass) {
  return gemm_quantizes_x(pass->weight->weight.format) && !is_code(pass->x_type);
}

/* ---- x */

static cudaError_t quantize(struct direct_pass *pass) {
  const struct gemm_weight *weight = &pass->weight->weight;
  const struct layout *layout = &pass->weight->layout;
  const struct quantize_pass quantize = {.x = pass->x,
                                         .x_type = pass->x_type,
                                         .x_stride = (int64_t)pass->x_stride,
                                         .rows = pass->rows,
                                         .rows_padded = pass->rows_padded,
                                         .k = weight->k,
                                         .k_padded = layout->k,
                                         .e4m3 = gemm_format_facts(weight->format)->codes == GEMM_E4M3,
                                         .codes = direct_staged(pass, pass->at.codes),
                                         .scales = direct_staged(pass, pass->at.scales),
                                         .dependent = pass->early,
                                         .input = pass->weight->input};
  pass->x = quantize.codes;
  pass->x_stride = layout->x_row_bytes;
  pass->x_scale = quantize.scales;
  pass->early = pass->backend->gpu.capability >= 90;
  return weight->scale == GEMM_SCALE_BLOCK ? launch_quantize_blocks(pass->stream, &quantize)
                                           : launch_quantize_input(pass->stream, &quantize);
}

/* Rows that are not quantized, in the weight's order. */
static cudaError_t reorder(struct direct_pass *pass) {
  const struct gemm_weight *weight = &pass->weight->weight;
  const struct order_pass order = {.x = pass->x,
                                   .type = pass->x_type,
                                   .x_stride = pass->x_stride,
                                   .rows = pass->rows,
                                   .k = weight->k,
                                   .columns = layout_x_columns(weight, &pass->weight->layout),
                                   .order = pass->weight->input.order,
                                   .to = direct_staged(pass, pass->at.ordered),
                                   .dependent = pass->early};
  pass->x = order.to;
  pass->x_stride = (uint64_t)order.columns * gemm_type_bytes(pass->x_type);
  pass->early = pass->backend->gpu.capability >= 90;
  return launch_order(pass->stream, &order);
}

cudaError_t direct_input(struct direct_pass *pass) {
  return gemm_quantizes_x(pass->weight->weight.format) ? quantize(pass) : reorder(pass);
}

/* Rows behind each other, zeros behind K, and behind the last row where there are to be more. */
static cudaError_t copy(struct direct_pass *pass, uint64_t row_bytes, uint64_t stride) {
  uint8_t *to = direct_staged(pass, layout_keeps_x(&pass->weight->weight) ? pass->at.x : pass->at.codes);
  uint64_t rows = (uint64_t)pass->rows, more = (uint64_t)(pass->rows_padded - pass->rows);
  cudaError_t result = cudaSuccess;
  launch_flush(pass->stream);
  if (stride > row_bytes)
    result = cudaMemset2DAsync(to + row_bytes, stride, 0, stride - row_bytes, rows, pass->stream);
  if (result == cudaSuccess && more > 0)
    result = cudaMemsetAsync(to + rows * stride, 0, more * stride, pass->stream);
  if (result == cudaSuccess)
    result =
        cudaMemcpy2DAsync(to, stride, pass->x, pass->x_stride, row_bytes, rows, cudaMemcpyDeviceToDevice, pass->stream);
  pass->x = to;
  pass->x_stride = stride;
  pass->early = false;
  return result;
}

/* Scales of codes: one a row lies as the kernels read it, blocks are transposed. */
static cudaError_t scales(struct direct_pass *pass) {
  if (pass->weight->weight.scale != GEMM_SCALE_BLOCK)
    return cudaSuccess;
  const float *from = pass->x_scale;
  float *to = direct_staged(pass, pass->at.scales);
  pass->x_scale = to;
  pass->early = false;
  return launch_scales_transpose(pass->stream, from, pass->rows, pass->rows_padded, pass->weight->layout.k / GEMM_GROUP,
                                 to);
}

cudaError_t direct_stage(struct direct_pass *pass) {
  if (quantizes(pass) || pass->weight->weight.input)
    return direct_input(pass);
  uint64_t element = gemm_type_bytes(pass->x_type);
  uint64_t row_bytes = (uint64_t)pass->weight->weight.k * element,
           stride = (uint64_t)layout_x_columns(&pass->weight->weight, &pass->weight->layout) * element;
  /* Kernels of packed tiles read rows that are any multiple of 16 bytes apart. */
  uint32_t layout = pass->weight->layout.layout;
  bool apart =
      (layout == LAYOUT_TILES2 || layout == LAYOUT_TILES4) && pass->x_stride >= stride && pass->x_stride % 16 == 0;
  bool in_place = (pass->x_stride == stride || apart) && row_bytes == stride && pass->rows_padded == pass->rows &&
                  (uintptr_t)pass->x % GEMM_ALIGN == 0;
  cudaError_t result = in_place ? cudaSuccess : copy(pass, row_bytes, stride);
  return result == cudaSuccess && pass->x_scale ? scales(pass) : result;
}

/* ---- the product */

static struct kernel_call call_of(const struct direct_pass *pass) {
  const struct slot *lane = pass->lane;
  return (struct kernel_call){
      .weight = pass->weight,
      .m = pass->rows,
      .m_padded = pass->rows_padded,
      .x_type = pass->x_type,
      .y_type = pass->y_type,
      .bias_type = pass->bias ? pass->bias_type : GEMM_TYPE_NONE,
      .x = pass->x,
      .x_stride = pass->x_stride,
      .x_scale = pass->x_scale,
      .bias = pass->bias,
      .y = pass->y,
      .y_stride = pass->y_stride,
      .sums = direct_staged(pass, pass->at.sums),
      .workspace = (void *)(uintptr_t)lane->workspace.address,
      .int2_sums = lane->int2_sums,
      .stream = pass->stream,
      .follows = pass->early,
      .in_row = pass->early,
      .resident = direct_crowded(pass->backend),
  };
}

/* Rows of sums are those of y, so that who leaves y in the place of sums can leave it there. */
static bool y_holds_sums(const struct direct_pass *pass) {
  const struct backend_weight *weight = pass->weight;
  return weight->weight.n == weight->layout.n && pass->rows_padded == pass->rows &&
         pass->y_stride == (uint64_t)weight->layout.n * gemm_type_bytes(pass->y_type) &&
         (uintptr_t)pass->y % GEMM_ALIGN == 0;
}

/* y of what a kernel has left. */
static cudaError_t finish(struct direct_pass *pass, const struct kernel_call *call, const struct kernel_sums *left,
                          bool anywhere) {
  if (left->type == GEMM_TYPE_NONE || call->sums == pass->y)
    return cudaSuccess;
  if (!kernel_sums_are_y(call, left))
    return kernel_finish(call, left);
  uint64_t element = gemm_type_bytes(pass->y_type), stride = (uint64_t)pass->weight->layout.n * element;
  if (anywhere) {
    pass->y = call->sums;
    pass->y_stride = stride;
    return cudaSuccess;
  }
  launch_flush(pass->stream);
  return cudaMemcpy2DAsync(pass->y, pass->y_stride, call->sums, stride, (uint64_t)pass->weight->weight.n * element,
                           (uint64_t)pass->rows, cudaMemcpyDeviceToDevice, pass->stream);
}

static enum status launch(struct direct_pass *pass, const struct kernel_problem *problem, const struct variant *variant,
                          bool anywhere, struct error *error) {
  const struct kernel_family *family = kernel_family_of(variant);
  if (!family)
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  struct kernel_call call = call_of(pass);
  struct kernel_sums left = {.type = GEMM_TYPE_NONE};
  if (family->leaves)
    left = family->leaves(problem, variant);
  if (left.type != GEMM_TYPE_NONE && kernel_sums_are_y(&call, &left) && y_holds_sums(pass))
    call.sums = pass->y;
  enum status status = family->launch(pass->backend, &call, variant, error);
  return status == STATUS_OK ? runtime_check(finish(pass, &call, &left, anywhere), "finishing a product", error)
                             : status;
}

/* As kernel_run has it: the kernel of the bucket, where it does not take this M that of this very M, at last the plain
 * one. */
enum status direct_product(struct direct_pass *pass, bool anywhere, struct error *error) {
  const struct kernel_call call = call_of(pass);
  const struct kernel_problem problem = kernel_call_problem(pass->backend, &call);
  enum status status = STATUS_UNSUPPORTED;
  if (pass->variant)
    status = launch(pass, &problem, pass->variant, anywhere, error);
  for (int exact = 0; exact < 2 && status == STATUS_UNSUPPORTED; exact++) {
    const struct variant chosen = selector_find(pass->lane->selector, pass->backend, &problem, exact);
    status = launch(pass, &problem, &chosen, anywhere, error);
  }
  if (status == STATUS_UNSUPPORTED) {
    const struct variant plain = variant_default(&variant_plain);
    status = launch(pass, &problem, &plain, anywhere, error);
  }
  return status;
}
