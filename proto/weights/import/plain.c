/* Safetensors as most tools write them (github.com/huggingface/safetensors, README): a matrix [N, K] of F32, F16 or
 * BF16; or codes with scales beside them:
 *   I8, F8_E4M3 [N, K]  compressed-tensors ("int-quantized", "float-quantized": weight_scale [N, 1] or [1]), ModelOpt's
 *                       FP8 (weight_scale of one element, and input_scale), DeepSeek's and Qwen's FP8 (weight_scale_inv
 *                       [N/128, K/128], a factor in spite of its name), ComfyUI's scaled_fp8 (scale_weight of one
 *                       element) and comfy_quant (comfy.c)
 *   U8 [N, K/4]         gemmd's own INT2: four codes a byte, the first in the lowest bits, F16 scales
 * Static scales of activations (input_scale, scale_input) are not used: gemmd quantizes each row of x by what is in it.
 *
 * Scales: the tensor that the request names, else the first there is of
 *   <tensor>_scale, <tensor>_scale_inv, <tensor>.scale,
 *   and, <stem> being the tensor's name up to its last dot,
 *   <stem>.weight_scale, <stem>.weight_scale_inv, <stem>.scale, <stem>.scales, <stem>.scale_weight
 * All are factors. Their shape is the scale mode: one element ONE, [N] or [N, 1] ROW, [ceil(N/128), ceil(K/128)] BLOCK
 * (FP8), [N, ceil(K/128)] GROUP (INT2). */
#include "comfy.h"
#include "importer.h"

#include "../../number.h"

#include <stdio.h>
#include <string.h>

static bool is_real(enum safetensors_dtype dtype) {
  return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

/* The format whose codes a type holds; NONE for a type that no format takes. */
static enum gemm_format stored_format(enum safetensors_dtype dtype) {
  switch (dtype) {
  case DTYPE_I8:
    return GEMM_FORMAT_INT8;
  case DTYPE_F8_E4M3:
    return GEMM_FORMAT_FP8;
  case DTYPE_U8:
    return GEMM_FORMAT_INT2;
  default:
    return GEMM_FORMAT_NONE;
  }
}

/* ---- what stands beside a weight */

static size_t behind_stem(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot != NULL ? strlen(dot) : strlen(name);
}

static const struct import_entry *find_scales(const struct import_model *model, const char *tensor) {
  static const char *const at_tensor[] = {"_scale", "_scale_inv", ".scale"};
  static const char *const at_stem[] = {".weight_scale", ".weight_scale_inv", ".scale", ".scales", ".scale_weight"};
  const struct import_entry *found = NULL;
  for (size_t i = 0; found == NULL && i < sizeof at_tensor / sizeof *at_tensor; i++)
    found = import_beside(model, tensor, 0, at_tensor[i]);
  for (size_t i = 0; strchr(tensor, '.') != NULL && found == NULL && i < sizeof at_stem / sizeof *at_stem; i++)
    found = import_beside(model, tensor, behind_stem(tensor), at_stem[i]);
  return found;
}

/* Tensors that are about a weight of the same stem, or of the name before the suffix. */
static bool is_beside(const struct import_model *model, const char *name) {
  static const char *const suffixes[] = {
      "_scale",       "_scale_inv",        ".scale",        ".scales",  ".scale_weight",
      ".scale_input", ".weight_scale_inv", ".weight_scale", ".k_scale", ".input_scale",
      ".output_scale"};
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
    size_t length = strlen(suffixes[i]);
    if (!import_ends(name, suffixes[i]))
      continue;
    if (import_beside(model, name, length, "") != NULL || import_beside(model, name, length, ".weight") != NULL)
      return true;
  }
  return false;
}

/* What changes the meaning of a weight and is not computed here. */
static enum status refuse_markers(const struct import_model *model, const struct import_entry *entry,
                                  struct error *error) {
  static const char *const at_tensor[] = {"_zero_point", ".absmax", ".quant_map", ".quant_state", "_g_idx"};
  static const char *const at_stem[] = {
      ".weight_zero_point", ".zero_point",      ".zeros",        ".weight_g_idx", ".g_idx",
      ".weight_scale_2",    ".pre_quant_scale", ".weight_shape", ".SCB",          ".qzeros"};
  const char *name = entry->tensor->name;
  const struct import_entry *found = NULL;
  for (size_t i = 0; found == NULL && i < sizeof at_tensor / sizeof *at_tensor; i++)
    found = import_beside(model, name, 0, at_tensor[i]);
  for (size_t i = 0; strchr(name, '.') != NULL && found == NULL && i < sizeof at_stem / sizeof *at_stem; i++)
    found = import_beside(model, name, behind_stem(name), at_stem[i]);
  if (found == NULL)
    return STATUS_OK;
  bool zero_point = strstr(found->tensor->name, "zero_point") != NULL;
  return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' has %s ('%s')%s", IMPORT_SHOW(name),
                   zero_point ? "zero points" : "a marker that is not understood", IMPORT_SHOW(found->tensor->name),
                   zero_point ? "; only symmetric weights are taken" : "");
}

/* ---- scales */

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

/* The mode that the shape of the scales stands for; one that the request names must fit. */
static enum status choose_scale(enum gemm_scale wanted, struct import_weight *out, struct error *error) {
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

static enum status take_scales(const struct import_model *model, const struct import_wish *wish,
                               struct import_weight *out, struct error *error) {
  const char *name = out->tensor->tensor->name, *type = safetensors_dtype_name(out->tensor->tensor->dtype);
  bool named = wish != NULL && wish->scale_tensor != NULL && wish->scale_tensor[0] != '\0';
  const struct import_entry *scales = named ? import_find(model, wish->scale_tensor) : find_scales(model, name);
  if (scales == NULL && named)
    return error_set(error, STATUS_NOT_FOUND, "the file has no tensor '%s'", IMPORT_SHOW(wish->scale_tensor));
  if (scales == NULL)
    return error_set(error, STATUS_NOT_FOUND, "tensor '%s' is %s; the file has no scales of a usual name for it",
                     IMPORT_SHOW(name), type);
  bool half = gemm_format_facts(out->format)->scale_type == GEMM_F16;
  if (half ? scales->tensor->dtype != DTYPE_F16 : !is_real(scales->tensor->dtype))
    return error_set(error, STATUS_UNSUPPORTED, "scale tensor '%s' is %s; %s is needed",
                     IMPORT_SHOW(scales->tensor->name), safetensors_dtype_name(scales->tensor->dtype),
                     half ? "F16" : "F32, F16 or BF16");
  enum status status = import_add(out, IMPORT_SCALES, scales, error);
  return status == STATUS_OK ? choose_scale(wish != NULL ? wish->scale : GEMM_SCALE_NONE, out, error) : status;
}

/* ---- weights */

static enum status take_stored(const struct import_model *model, const struct import_wish *wish,
                               struct import_weight *out, struct error *error) {
  if (gemm_is_packed(out->format)) {
    out->pack = 8 / (uint32_t)gemm_format_facts(out->format)->bits;
    if (__builtin_mul_overflow(out->k, out->pack, &out->k))
      return error_field(error, STATUS_TOO_LARGE, FIELD_K, INT64_MAX, 1, LIMIT_K);
  }
  return take_scales(model, wish, out, error);
}

static enum status take_marker(const struct import_model *model, struct import_weight *out, struct error *error) {
  const struct safetensors_tensor *tensor = out->tensor->tensor;
  enum status status = import_comfy_metadata(&model->files[out->tensor->file], tensor, error);
  const struct import_entry *marker =
      strchr(tensor->name, '.') != NULL ? import_beside(model, tensor->name, behind_stem(tensor->name), ".comfy_quant")
                                        : NULL;
  return status == STATUS_OK && marker != NULL ? import_add(out, IMPORT_MARKER, marker, error) : status;
}

static enum status take_matrix(const struct import_model *model, const struct import_wish *wish,
                               struct import_weight *out, struct error *error) {
  const struct safetensors_tensor *tensor = out->tensor->tensor;
  enum status status = import_matrix(out, error);
  if (status != STATUS_OK)
    return status;
  out->real = is_real(tensor->dtype);
  out->format = stored_format(tensor->dtype);
  if (!out->real && out->format == GEMM_FORMAT_NONE)
    return error_set(error, STATUS_UNSUPPORTED,
                     "tensor '%s' is %s; F32, F16, BF16, I8, F8_E4M3, U8 and I32 (INT2) are taken",
                     IMPORT_SHOW(tensor->name), safetensors_dtype_name(tensor->dtype));
  bool named = wish != NULL && wish->scale_tensor != NULL && wish->scale_tensor[0] != '\0';
  status = !out->real && named ? take_stored(model, wish, out, error) : STATUS_OK;
  if (status == STATUS_OK)
    status = refuse_markers(model, out->tensor, error);
  if (status == STATUS_OK)
    status = take_marker(model, out, error);
  if (status == STATUS_OK && !out->real && !named)
    status = take_stored(model, wish, out, error);
  if (status != STATUS_OK || !out->real)
    return status;
  out->pack_bytes = tensor->dtype == DTYPE_F32 ? 4 : 2;
  out->format = tensor->dtype == DTYPE_F16    ? GEMM_FORMAT_F16
                : tensor->dtype == DTYPE_BF16 ? GEMM_FORMAT_BF16
                                              : GEMM_FORMAT_NONE;
  return STATUS_OK;
}

/* Where a model is listed, what is no matrix and what cannot be a weight is left out. */
static bool is_no_weight(const struct import_model *model, const struct safetensors_tensor *tensor) {
  return tensor->rank != 2 || tensor->elements == 0 || tensor->dtype == DTYPE_I64 || tensor->dtype == DTYPE_U64 ||
         tensor->dtype == DTYPE_BOOL || is_beside(model, tensor->name);
}

static enum import_claim take(const struct import_model *model, const struct import_entry *tensor,
                              const struct import_wish *wish, struct import_weight *out, struct error *error) {
  if (wish == NULL && is_no_weight(model, tensor->tensor))
    return IMPORT_PART;
  import_begin(out, &import_plain, tensor);
  (void)take_matrix(model, wish, out, error);
  return IMPORT_WEIGHT;
}

static enum status check(const struct import_weight *weight, const struct import_data *data, struct error *error) {
  const struct import_entry *marker = weight->aux[IMPORT_MARKER];
  if (marker == NULL)
    return STATUS_OK;
  return import_comfy_marker((const char *)data->aux[IMPORT_MARKER],
                             (size_t)(marker->tensor->end - marker->tensor->begin), weight->tensor->tensor, error);
}

static void numbers(const struct import_weight *weight, const struct import_tile *tile, uint64_t row, float *out) {
  safetensors_to_f32(weight->tensor->tensor->dtype, tile->raw + row * tile->stride, tile->columns, out);
}

static void codes(const struct import_weight *weight, const struct import_data *data, const struct import_tile *tile,
                  uint8_t *out, uint64_t row_bytes) {
  (void)data;
  for (uint64_t row = 0; row < tile->rows; row++)
    memcpy(out + row * row_bytes, tile->raw + row * tile->stride, tile->columns / weight->pack);
}

static float scale(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column) {
  const struct safetensors_tensor *scales = weight->aux[IMPORT_SCALES]->tensor;
  const struct gemm_scale_facts *facts = gemm_scale_facts(weight->scale);
  uint64_t columns = facts->k > 0 ? gemm_ceil_div((uint64_t)weight->k, (uint64_t)facts->k) : 1;
  uint64_t index = facts->n > 0 ? n * columns + column : 0;
  float value = 0.0f;
  safetensors_to_f32(scales->dtype, data->aux[IMPORT_SCALES] + index * (scales->dtype == DTYPE_F32 ? 4 : 2), 1, &value);
  return value;
}

const struct importer import_plain = {
    .name = "safetensors", .take = take, .check = check, .numbers = numbers, .codes = codes, .scale = scale};
