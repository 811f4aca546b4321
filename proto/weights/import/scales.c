#include "scales.h"

#include "../../number.h"

#include <stdio.h>
#include <string.h>

static bool scale_fits(enum gemm_scale scale, const struct safetensors_tensor *tensor, int64_t n, int64_t k) {
  const struct gemm_scale_facts *facts = gemm_scale_facts(scale);
  uint64_t rows = tensor->shape[0], columns = tensor->rank < 2 ? 1 : tensor->shape[1];
  if (facts->n == 0)
    return tensor->elements == 1;
  return tensor->rank >= 1 && tensor->rank <= 2 && rows == gemm_ceil_div((uint64_t)n, (uint64_t)facts->n) &&
         columns == (facts->k > 0 ? gemm_ceil_div((uint64_t)k, (uint64_t)facts->k) : 1);
}

/* f32 holds what any real type does. */
static bool type_fits(enum gemm_type type, const struct safetensors_tensor *tensor) {
  switch (type) {
  case GEMM_F16:
    return tensor->dtype == DTYPE_F16;
  case GEMM_BF16:
    return tensor->dtype == DTYPE_BF16;
  case GEMM_E8M0:
    return tensor->dtype == DTYPE_U8 || tensor->dtype == DTYPE_F8_E8M0;
  case GEMM_E4M3:
    return tensor->dtype == DTYPE_F8_E4M3;
  default:
    return tensor->dtype == DTYPE_F32 || tensor->dtype == DTYPE_F16 || tensor->dtype == DTYPE_BF16;
  }
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

/* UNSUPPORTED where no mode of the format has scales of this type. */
static enum status check_type(const struct import_weight *out, struct error *error) {
  static const char *const names[] = {[GEMM_F32] = "F32, F16 or BF16",
                                      [GEMM_F16] = "F16",
                                      [GEMM_BF16] = "BF16",
                                      [GEMM_E8M0] = "F8_E8M0 or U8",
                                      [GEMM_E4M3] = "F8_E4M3"};
  const struct safetensors_tensor *scales = out->aux[IMPORT_SCALES]->tensor;
  enum gemm_type own = gemm_format_facts(out->format)->scale_type, other = own;
  for (int mode = 0; mode < GEMM_SCALES; mode++) {
    const struct gemm_weight as = {.format = out->format, .scale = (enum gemm_scale)mode};
    if (!gemm_takes_scale(out->format, as.scale))
      continue;
    if (type_fits(gemm_scale_type(&as), scales))
      return STATUS_OK;
    other = gemm_scale_type(&as) != own ? gemm_scale_type(&as) : other;
  }
  return error_set(error, STATUS_UNSUPPORTED, "scale tensor '%s' is %s; %s%s%s is needed", IMPORT_SHOW(scales->name),
                   safetensors_dtype_name(scales->dtype), names[own], other != own ? " or " : "",
                   other != own ? names[other] : "");
}

static bool zeros_fit(enum gemm_scale mode, const struct import_entry *zeros) {
  const struct gemm_scale_facts *facts = gemm_scale_facts(mode);
  return zeros == NULL ? !facts->zeros : facts->zeros && facts->zeros_f16 == (zeros->tensor->dtype == DTYPE_F16);
}

enum status import_scale_mode(enum gemm_scale wanted, struct import_weight *out, struct error *error) {
  static const enum gemm_scale first[] = {GEMM_SCALE_ONE, GEMM_SCALE_GROUP}; /* where several would fit */
  const struct safetensors_tensor *scales = out->aux[IMPORT_SCALES]->tensor;
  enum status status = check_type(out, error);
  for (int i = 0; status == STATUS_OK && i < 2 + GEMM_SCALES; i++) {
    enum gemm_scale mode = i < 2 ? first[i] : (enum gemm_scale)(i - 2);
    const struct gemm_weight as = {.n = out->n, .k = out->k, .format = out->format, .scale = mode};
    if ((wanted == GEMM_SCALE_NONE || wanted == mode) && gemm_takes_scale(out->format, mode) &&
        zeros_fit(mode, out->aux[IMPORT_ZEROS]) && type_fits(gemm_scale_type(&as), scales) &&
        scale_fits(mode, scales, out->n, out->k)) {
      out->scale = mode;
      return STATUS_OK;
    }
  }
  char shape[SHAPE_BYTES];
  if (status != STATUS_OK)
    return status;
  return error_set(error, STATUS_UNSUPPORTED,
                   "scale tensor '%s' of shape %s is no %s%s%s scale of a %s weight %lld x %lld",
                   IMPORT_SHOW(scales->name), shape_text(scales, shape), wanted ? "'" : "",
                   wanted ? gemm_scale_name(wanted) : "known", wanted ? "'" : "", gemm_format_name(out->format),
                   (long long)out->n, (long long)out->k);
}

uint64_t import_scale_index(const struct import_weight *weight, uint64_t n, uint64_t column) {
  const struct gemm_scale_facts *facts = gemm_scale_facts(weight->scale);
  uint64_t columns = facts->k > 0 ? gemm_ceil_div((uint64_t)weight->k, (uint64_t)facts->k) : 1;
  return facts->n > 0 ? n * columns + column : 0;
}

float import_scale_at(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column) {
  const struct safetensors_tensor *scales = weight->aux[IMPORT_SCALES]->tensor;
  uint64_t index = import_scale_index(weight, n, column);
  float value = 0.0f;
  if (scales->dtype == DTYPE_U8 || scales->dtype == DTYPE_F8_E8M0)
    return number_from_e8m0(data->aux[IMPORT_SCALES][index]);
  if (scales->dtype == DTYPE_F8_E4M3)
    return number_from_e4m3(data->aux[IMPORT_SCALES][index]);
  safetensors_to_f32(scales->dtype, data->aux[IMPORT_SCALES] + index * (scales->dtype == DTYPE_F32 ? 4 : 2), 1, &value);
  return value;
}

float import_factor_at(const struct import_weight *weight, const struct import_data *data, uint64_t n) {
  float value;
  uint64_t index = weight->aux[IMPORT_FACTOR]->tensor->elements == 1 ? 0 : n;
  memcpy(&value, data->aux[IMPORT_FACTOR] + index * sizeof value, sizeof value);
  return value;
}
