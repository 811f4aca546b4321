#include "../call.h"
#include "../table.h"
#include "launch.h"
#include "packed.h"

/* Every product has a kernel: where no other has one on this device, or none that meets the numerics contract. */
static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  *out = variant_default(&variant_plain);
  *us = KERNEL_LAST;
  return true;
}

/* Packed weights have a kernel that makes y. */
static struct kernel_sums leaves(const struct kernel_problem *problem, const struct variant *variant) {
  if (gemm_is_packed(problem->format))
    return (struct kernel_sums){.type = GEMM_TYPE_NONE};
  return (struct kernel_sums){.type = problem->format == GEMM_FORMAT_INT8 ? GEMM_S32 : GEMM_F32,
                              .scaled = problem->scale == GEMM_SCALE_BLOCK};
}

static cudaError_t sums_launch(const struct kernel_device *device, const struct kernel_call *call) {
  const struct backend_weight *weight = call->weight;
  int64_t m = call->m_padded, n = weight->layout.n, k = weight->layout.k;
  bool block = weight->weight.scale == GEMM_SCALE_BLOCK;
  const struct plain_product product = {
      .format = weight->weight.format,
      .m = m,
      .n = n,
      .k = k,
      .x = call->x,
      .w = weight->codes,
      .x_scale = block ? call->x_scale : NULL,
      .w_scale = block ? (const float *)(const void *)weight->scales : NULL,
      .x_scale_stride = call->m_padded,
      .w_scale_stride = (int64_t)weight->layout.scale_row_bytes / 4,
      .sums = call->sums,
      .cut = plain_cut(m, n, k, plain_blocks(m, n), device->multiprocessors, device->workspace_bytes),
      .parts = call->workspace,
  };
  return launch_plain(call->stream, &product);
}

static cudaError_t packed_launch(const struct kernel_device *device, const struct kernel_call *call) {
  const struct backend_weight *weight = call->weight;
  int64_t m = call->m, n = weight->weight.n, k = weight->weight.k;
  enum gemm_type x_type = gemm_quantizes_x(weight->weight.format) ? GEMM_INT8 : call->x_type;
  const struct gemm_layout *canonical = &weight->layout.canonical;
  const struct packed_product product = {
      .format = weight->weight.format,
      .x = call->x,
      .x_type = x_type,
      .x_stride = (int64_t)(call->x_stride / gemm_type_bytes(x_type)),
      .x_scale = call->x_scale,
      .codes = weight->codes,
      .row_bytes = weight->layout.row_bytes,
      .scales = weight->scales,
      .scale_type = gemm_scale_type(&weight->weight),
      .zeros = canonical->zeros_bytes > 0 ? weight->codes + canonical->zeros_offset : NULL,
      .zeros_f16 = gemm_scale_facts(weight->weight.scale)->zeros_f16,
      .scale_stride = (int64_t)weight->layout.scale_columns,
      .group = gemm_scale_group(&weight->weight),
      .factors = weight->factors,
      .bias = call->bias,
      .bias_type = call->bias_type,
      .y = call->y,
      .y_type = call->y_type,
      .y_stride = call->y_stride,
      .m = m,
      .n = n,
      .k = k,
      .cut = plain_cut(m, n, k, packed_blocks(m, n), device->multiprocessors, device->workspace_bytes),
      .parts = call->workspace,
  };
  return launch_packed(call->stream, &product);
}

/* Nothing reads tiles but the kernels that they are for. */
static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  if (layout_is_tiled(&call->weight->layout))
    return error_set(error, STATUS_UNSUPPORTED, "the plain kernel does not read weights in tiles");
  bool packed = gemm_is_packed(call->weight->weight.format);
  return runtime_check(packed ? packed_launch(&backend->gpu, call) : sums_launch(&backend->gpu, call),
                       "computing a product", error);
}

const struct kernel_family plain_kernels = {
    .variants = &variant_plain,
    .predict = predict,
    .launch = launch,
    .leaves = leaves,
};
