#include "groups.h"

#include <stdlib.h>
#include <string.h>

uint64_t import_groups(const struct import_weight *weight) {
  return gemm_ceil_div((uint64_t)weight->k, weight->group);
}

uint64_t import_group_of(const struct import_weight *weight, const struct import_data *data, uint64_t k) {
  uint32_t index;
  if (data->aux[IMPORT_INDEX] == NULL)
    return k / weight->group;
  memcpy(&index, data->aux[IMPORT_INDEX] + k * sizeof index, sizeof index);
  return index;
}

uint64_t import_group_at(const struct import_weight *weight, uint64_t column) {
  return column * (uint64_t)gemm_scale_facts(weight->scale)->k / weight->group;
}

bool import_is_matrix(const struct import_entry *entry, enum safetensors_dtype dtype, uint64_t rows, uint64_t columns) {
  return entry != NULL && entry->tensor->dtype == dtype && entry->tensor->rank == 2 &&
         entry->tensor->shape[0] == rows && entry->tensor->shape[1] == columns;
}

float import_group_scale(const struct import_weight *weight, const struct import_data *data, uint64_t index) {
  float value;
  safetensors_to_f32(weight->aux[IMPORT_SCALES]->tensor->dtype, data->aux[IMPORT_SCALES] + index * sizeof(uint16_t), 1,
                     &value);
  return value;
}

/* The mode with a scale for `width` elements of a row, 0: for all; NONE: the format has none. */
static enum gemm_scale find_mode(enum gemm_format format, int64_t width, enum gemm_type type, bool zeros) {
  for (int mode = 0; mode < GEMM_SCALES; mode++) {
    const struct gemm_weight as = {.format = format, .scale = (enum gemm_scale)mode};
    const struct gemm_scale_facts *facts = gemm_scale_facts(as.scale);
    if (gemm_takes_scale(format, as.scale) && facts->n == 1 && facts->k == width && facts->zeros == zeros &&
        !facts->zeros_f16 && gemm_scale_type(&as) == type)
      return as.scale;
  }
  return GEMM_SCALE_NONE;
}

enum status import_group_mode(struct import_weight *out, bool zeros, struct error *error) {
  static const int64_t widths[] = {128, 64, 32};
  const struct safetensors_tensor *scales = out->aux[IMPORT_SCALES]->tensor;
  enum gemm_type type = scales->dtype == DTYPE_F16 ? GEMM_F16 : scales->dtype == DTYPE_BF16 ? GEMM_BF16 : GEMM_F32;
  const char *of = gemm_format_name(out->format);
  out->scale = import_groups(out) == 1 ? find_mode(out->format, 0, type, zeros) : GEMM_SCALE_NONE;
  for (size_t i = 0; out->scale == GEMM_SCALE_NONE && i < sizeof widths / sizeof *widths; i++)
    if (out->group % (uint64_t)widths[i] == 0)
      out->scale = find_mode(out->format, widths[i], type, zeros);
  if (out->scale != GEMM_SCALE_NONE)
    return STATUS_OK;
  if (find_mode(out->format, 0, type, zeros) == GEMM_SCALE_NONE)
    return error_set(error, STATUS_UNSUPPORTED, "scale tensor '%s' is %s, which scales of %s are not",
                     IMPORT_SHOW(scales->name), safetensors_dtype_name(scales->dtype), of);
  return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' has groups of %llu; a multiple of %d is taken, or one a row",
                   IMPORT_SHOW(out->tensor->tensor->name), (unsigned long long)out->group,
                   gemm_is_int2(out->format) ? GEMM_GROUP : 32);
}

enum status import_index_check(const struct import_weight *weight, const struct import_data *data,
                               struct error *error) {
  uint64_t groups = import_groups(weight);
  bool ordered = (weight->input & GEMM_INPUT_ORDER) != 0;
  for (uint64_t k = 0; data->aux[IMPORT_INDEX] != NULL && k < (uint64_t)weight->k; k++) {
    uint64_t index = import_group_of(weight, data, k);
    if (ordered ? index >= groups : index != k / weight->group)
      return error_set(error, ordered ? STATUS_BAD_FILE : STATUS_UNSUPPORTED,
                       "tensor '%s': its g_idx is %d at %llu, and there are %llu groups of %s",
                       IMPORT_SHOW(weight->tensor->tensor->name), (int)index, (unsigned long long)k,
                       (unsigned long long)groups, ordered ? "it" : "neighbours: the configuration has no desc_act");
  }
  return STATUS_OK;
}

/* Elements of each group come behind those of the groups before it: *next is where the next one of a group goes. */
static enum status place_all(const struct import_weight *weight, const struct import_data *data, uint64_t *next,
                             uint32_t *order, struct error *error) {
  uint64_t k = (uint64_t)weight->k, groups = import_groups(weight);
  for (uint64_t g = 0; g < groups; g++)
    next[g] = g * weight->group;
  for (uint64_t i = 0; i < k; i++) {
    uint64_t g = import_group_of(weight, data, i), end = (g + 1) * weight->group;
    uint64_t count = (end < k ? end : k) - g * weight->group;
    if (next[g] == g * weight->group + count)
      return error_set(error, STATUS_UNSUPPORTED,
                       "tensor '%s': group %llu of its g_idx has not %llu elements: it is no order of x",
                       IMPORT_SHOW(weight->tensor->tensor->name), (unsigned long long)g, (unsigned long long)count);
    order[next[g]++] = (uint32_t)i;
  }
  return STATUS_OK;
}

enum status import_index_order(const struct import_weight *weight, const struct import_data *data,
                               struct import_input *out, struct error *error) {
  out->input = weight->input;
  out->reorders = (weight->input & GEMM_INPUT_ORDER) != 0;
  if (!out->reorders)
    return STATUS_OK;
  uint64_t *next = malloc((size_t)import_groups(weight) * sizeof *next);
  if (next == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the order of %lld elements", (long long)weight->k);
  enum status status = place_all(weight, data, next, out->order, error);
  free(next);
  return status;
}
