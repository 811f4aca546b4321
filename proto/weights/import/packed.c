/* Codes of 4 bits of compressed-tensors (compressors/pack_quantized: PackedQuantizationCompressor), format
 * "pack-quantized":
 *   <stem>.weight_packed      I32 [N, ceil(K/8)]: eight codes q of a row in a word, the first in the lowest bits
 *   <stem>.weight_scale       F16 or BF16, [N, 1] or [N, G]
 *   <stem>.weight_zero_point  zero points z, I32 [ceil(N/8), G], packed along N; or I8 [N, G], z - 8. Without: 8
 *   <stem>.weight_shape       N, K as I64 or I32
 *   <stem>.weight_g_idx       I32 [K]: the group of each k ("actorder": "group")
 * W[n][k] = weight_scale[n][g] * (q - z). Act order: K is put in the order of the groups, and so is x. */
#include "config.h"
#include "groups.h"

#include <string.h>

enum { PACK = 8 };
static const char packed[] = ".weight_packed";

static const struct import_entry *part_of(const struct import_model *model, const char *name, const char *suffix) {
  return import_beside(model, name, strlen(packed), suffix);
}

static bool is_part(const struct import_model *model, const char *name) {
  static const char *const suffixes[] = {".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx"};
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
    if (import_ends(name, suffixes[i]) && import_beside(model, name, strlen(suffixes[i]), packed) != NULL)
      return true;
  return false;
}

static enum status take_shape(const struct import_model *model, struct import_weight *out, struct error *error) {
  const struct import_entry *shape = part_of(model, out->tensor->tensor->name, ".weight_shape");
  enum status status = import_matrix(out, error);
  if (status != STATUS_OK)
    return status;
  if (__builtin_mul_overflow(out->k, PACK, &out->k))
    return error_field(error, STATUS_TOO_LARGE, FIELD_K, INT64_MAX, 1, LIMIT_K);
  if (shape == NULL || shape->tensor->elements != 2 ||
      (shape->tensor->dtype != DTYPE_I64 && shape->tensor->dtype != DTYPE_I32))
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' has no weight_shape of two I64 or I32",
                     IMPORT_SHOW(out->tensor->tensor->name));
  return import_add(out, IMPORT_MARKER, shape, error);
}

static enum status take_zeros(const struct import_model *model, struct import_weight *out, struct error *error) {
  const struct import_entry *zeros = part_of(model, out->tensor->tensor->name, ".weight_zero_point");
  uint64_t n = (uint64_t)out->n, groups = import_groups(out);
  if (zeros == NULL)
    return STATUS_OK;
  if (!import_is_matrix(zeros, DTYPE_I8, n, groups) &&
      !import_is_matrix(zeros, DTYPE_I32, gemm_ceil_div(n, PACK), groups))
    return error_set(error, STATUS_BAD_FILE, "tensor '%s' is no zero point a group of %lld x %lld",
                     IMPORT_SHOW(zeros->tensor->name), (long long)out->n, (long long)out->k);
  return import_add(out, IMPORT_ZEROS, zeros, error);
}

/* The configuration's group_size, whose last group may be shorter, or equal ones. */
static enum status take_scales(const struct import_model *model, struct import_weight *out, struct error *error) {
  const char *name = out->tensor->tensor->name;
  const struct import_entry *scales = part_of(model, name, ".weight_scale");
  if (scales == NULL)
    return error_set(error, STATUS_NOT_FOUND, "tensor '%s' is packed, and has no weight_scale", IMPORT_SHOW(name));
  uint64_t k = (uint64_t)out->k, groups = scales->tensor->shape[1];
  int64_t size = import_config_group(model);
  out->group = size > 0 && gemm_ceil_div(k, (uint64_t)size) == groups && groups > 1 ? (uint64_t)size
               : groups > 0 && k % groups == 0                                      ? k / groups
                                                                                    : 0;
  if (out->group == 0 || !import_is_matrix(scales, scales->tensor->dtype, (uint64_t)out->n, groups))
    return error_set(error, STATUS_BAD_FILE, "tensor '%s' is no scale a group of %lld x %lld",
                     IMPORT_SHOW(scales->tensor->name), (long long)out->n, (long long)out->k);
  enum status status = import_add(out, IMPORT_SCALES, scales, error);
  if (status == STATUS_OK)
    status = take_zeros(model, out, error);
  return status == STATUS_OK ? import_group_mode(out, out->aux[IMPORT_ZEROS] != NULL, error) : status;
}

static enum status take_index(const struct import_model *model, struct import_weight *out, struct error *error) {
  const struct import_entry *index = part_of(model, out->tensor->tensor->name, ".weight_g_idx");
  if (index == NULL || import_groups(out) == 1)
    return STATUS_OK;
  if (index->tensor->dtype != DTYPE_I32 || index->tensor->elements != (uint64_t)out->k)
    return error_set(error, STATUS_BAD_FILE, "tensor '%s' is not %lld of I32", IMPORT_SHOW(index->tensor->name),
                     (long long)out->k);
  out->input = GEMM_INPUT_ORDER;
  return import_add(out, IMPORT_INDEX, index, error);
}

static enum import_claim take(const struct import_model *model, const struct import_entry *tensor,
                              const struct import_wish *wish, struct import_weight *out, struct error *error) {
  const char *name = tensor->tensor->name;
  if (wish == NULL && is_part(model, name))
    return IMPORT_PART;
  if (!import_ends(name, packed) || tensor->tensor->dtype != DTYPE_I32)
    return IMPORT_NOT_MINE;
  import_begin(out, &import_packed, tensor);
  strcpy(out->name + strlen(out->name) - strlen(packed), ".weight");
  out->format = GEMM_FORMAT_INT4;
  out->pack = PACK;
  out->pack_bytes = sizeof(uint32_t);
  enum status status = take_shape(model, out, error);
  if (status == STATUS_OK)
    status = take_scales(model, out, error);
  if (status == STATUS_OK)
    (void)take_index(model, out, error);
  return IMPORT_WEIGHT;
}

/* As the tensor of the shape says it: what is packed in words of fewer bits has another K. */
static enum status check(const struct import_weight *weight, const struct import_data *data, struct error *error) {
  int64_t shape[2];
  for (int i = 0; i < 2; i++) {
    int32_t narrow;
    memcpy(&narrow, data->aux[IMPORT_MARKER] + (size_t)i * sizeof narrow, sizeof narrow);
    shape[i] = narrow;
  }
  if (weight->aux[IMPORT_MARKER]->tensor->dtype == DTYPE_I64)
    memcpy(shape, data->aux[IMPORT_MARKER], sizeof shape);
  if (shape[0] != weight->n || shape[1] != weight->k)
    return error_set(error, STATUS_UNSUPPORTED,
                     "tensor '%s' holds %lld x %lld codes of 4 bits, and its weight_shape is %lld x %lld",
                     IMPORT_SHOW(weight->tensor->tensor->name), (long long)weight->n, (long long)weight->k,
                     (long long)shape[0], (long long)shape[1]);
  return import_index_check(weight, data, error);
}

static void codes(const struct import_weight *weight, const struct import_data *data, const struct import_tile *tile,
                  uint8_t *out, uint64_t row_bytes) {
  for (uint64_t row = 0; row < tile->rows; row++)
    memcpy(out + row * row_bytes, tile->raw + row * tile->stride, tile->columns / weight->pack * weight->pack_bytes);
}

static float scale(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column) {
  return import_group_scale(weight, data, n * import_groups(weight) + import_group_at(weight, column));
}

static float zero(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column) {
  uint64_t groups = import_groups(weight), g = import_group_at(weight, column);
  if (weight->aux[IMPORT_ZEROS]->tensor->dtype == DTYPE_I8)
    return (float)((int8_t)data->aux[IMPORT_ZEROS][n * groups + g] + 8);
  uint32_t word;
  memcpy(&word, data->aux[IMPORT_ZEROS] + (n / PACK * groups + g) * sizeof word, sizeof word);
  return (float)(word >> 4 * (n % PACK) & 15);
}

const struct importer import_packed = {.name = "pack-quantized",
                                       .take = take,
                                       .check = check,
                                       .input = import_index_order,
                                       .codes = codes,
                                       .scale = scale,
                                       .zero = zero};
