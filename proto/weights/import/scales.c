#include "scales.h"

#include <stdio.h>

static bool scale_fits(enum gemm_scale scale, const struct safetensors_tensor *tensor, int64_t n, int64_t k) {
  const struct gemm_scale_facts *facts = gemm_scale_facts(scale);
  uint64_t rows = tensor->shape[0], columns = tensor->rank < 2 ? 1 : tensor->shape[1];
  if (facts->n == 0)
    return tensor->elements == 1;
  return tensor->rank >= 1 && tensor->rank <= 2 && rows == gemm_ceil_div((uint64_t)n, (uint64_t)facts->n) &&
         columns == (facts->k > 0 ? gemm_ceil_div((uint64_t)k, (uint64_t)facts->k) : 1);
}

enum { SHAPE_BYTES = 64 };

/* As many dimensions as it has, of which two are kept: "[]", "[3]", "[3, 4]". */
static const char *shape_text(const struct safetensors_tensor *tensor, char out[SHAPE_BYTES]) {
  unsigned long long first = tensor->shape[0], second = tensor->shape[1];
  if (tensor->rank == 0)
    snprintf(out, SHAPE_BYTES, "[]");
  else if (tensor->rank == 1)
    snprintf(out, SHAPE_BYTES, "[%llu]", first);
  else
    snprintf(out, SHAPE_BYTES, "[%llu, %llu%s]", first, second, tensor->rank > 2 ? ", .." : "");
  return out;
}

enum status import_scale_mode(enum gemm_scale wanted, struct import_weight *out, struct error *error) {
  static const enum gemm_scale order[] = {GEMM_SCALE_ONE, GEMM_SCALE_GROUP, GEMM_SCALE_ROW, GEMM_SCALE_BLOCK};
  const struct safetensors_tensor *scales = out->aux[IMPORT_SCALES]->tensor;
  for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
    if (wanted != GEMM_SCALE_NONE && wanted != order[i])
      continue;
    if (gemm_takes_scale(out->format, order[i]) && scale_fits(order[i], scales, out->n, out->k)) {
      out->scale = order[i];
      return STATUS_OK;
    }
  }
  char shape[SHAPE_BYTES];
  return error_set(error, STATUS_UNSUPPORTED,
                   "scale tensor '%s' of shape %s is no %s%s%s scale of a %s weight %lld x %lld",
                   IMPORT_SHOW(scales->name), shape_text(scales, shape), wanted ? "'" : "",
                   wanted ? gemm_scale_name(wanted) : "known", wanted ? "'" : "", gemm_format_name(out->format),
                   (long long)out->n, (long long)out->k);
}

float import_scale_at(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column) {
  const struct safetensors_tensor *scales = weight->aux[IMPORT_SCALES]->tensor;
  const struct gemm_scale_facts *facts = gemm_scale_facts(weight->scale);
  uint64_t columns = facts->k > 0 ? gemm_ceil_div((uint64_t)weight->k, (uint64_t)facts->k) : 1;
  uint64_t index = facts->n > 0 ? n * columns + column : 0;
  float value = 0.0f;
  safetensors_to_f32(scales->dtype, data->aux[IMPORT_SCALES] + index * (scales->dtype == DTYPE_F32 ? 4 : 2), 1, &value);
  return value;
}
