/* Safetensors as most tools write them (github.com/huggingface/safetensors, README): a matrix [N, K] of F32, F16 or
 * BF16; or codes with scales beside them:
 *   I8, F8_E4M3 [N, K]  compressed-tensors ("int-quantized", "float-quantized": weight_scale [N, 1] or [1]), ModelOpt's
 *                       FP8 (weight_scale of one element, and input_scale), DeepSeek's and Qwen's FP8 (weight_scale_inv
 *                       [N/128, K/128], a factor in spite of its name), ComfyUI's scaled_fp8 (scale_weight of one
 *                       element) and comfy_quant (comfy.c)
 *   U8 [N, K/4]         gemmd's own INT2: four codes a byte, the first in the lowest bits, F16 scales
 *   U16 [N, K/4]        gemmd's own INT4, scales F16 or BF16, and MXFP4, scales F8_E8M0: four codes an element,
 *                       the first in the lowest bits; NVFP4, scales F8_E4M3
 *   U8, F16 <tensor>_zero  of the scales' shape: INT4's zero points
 *   F32 <tensor>_factor [N]: NVFP4's factors of rows
 *
 * What is done to x: <tensor>_input_scale, <stem>.input_scale (compressed-tensors with static activations, ModelOpt) or
 * <stem>.scale_input (ComfyUI), real, of one element, is the scale by which x is quantized; <tensor>_input_order, I32
 * [K], which element of x goes with each column, and <tensor>_input_rotation, I32 of one element, are gemmd's own, as
 * `gemmctl export` writes them.
 *
 * Scales: the tensor that the request names, else the only one that there is of
 *   <tensor>_scale, <tensor>_scale_inv, <tensor>.scale,
 *   and, <stem> being the tensor's name up to its last dot,
 *   <stem>.weight_scale, <stem>.weight_scale_inv, <stem>.scale, <stem>.scales, <stem>.scale_weight
 * All are factors. Their shape is the scale mode: one element ONE, [N] or [N, 1] ROW, [ceil(N/128), ceil(K/128)] BLOCK
 * (FP8), [N, ceil(K/128)] GROUP, [N, ceil(K/64)] and [N, ceil(K/32)] those of 64 and 32 (4 bits). */
#include "comfy.h"
#include "importer.h"
#include "scales.h"

#include "../../number.h"

#include <string.h>

/* The format whose codes a type holds; NONE for a type that no format takes. */
static enum gemm_format stored_format(enum safetensors_dtype dtype) {
  switch (dtype) {
  case DTYPE_I8:
    return GEMM_FORMAT_INT8;
  case DTYPE_F8_E4M3:
    return GEMM_FORMAT_FP8;
  case DTYPE_U8:
    return GEMM_FORMAT_INT2;
  case DTYPE_U16:
    return GEMM_FORMAT_INT4;
  default:
    return GEMM_FORMAT_NONE;
  }
}

/* ---- what stands beside a weight */

static size_t behind_stem(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot != NULL ? strlen(dot) : strlen(name);
}

/* *second: where there are two that could be meant. */
static const struct import_entry *find_scales(const struct import_model *model, const char *tensor,
                                              const struct import_entry **second) {
  static const char *const at_tensor[] = {"_scale", "_scale_inv", ".scale"};
  static const char *const at_stem[] = {".weight_scale", ".weight_scale_inv", ".scale", ".scales", ".scale_weight"};
  enum { AT_TENSOR = sizeof at_tensor / sizeof *at_tensor, AT_STEM = sizeof at_stem / sizeof *at_stem };
  const struct import_entry *found = NULL;
  size_t names = strchr(tensor, '.') != NULL ? AT_TENSOR + AT_STEM : AT_TENSOR;
  *second = NULL;
  for (size_t i = 0; i < names && *second == NULL; i++) {
    const struct import_entry *here = i < AT_TENSOR
                                          ? import_beside(model, tensor, 0, at_tensor[i])
                                          : import_beside(model, tensor, behind_stem(tensor), at_stem[i - AT_TENSOR]);
    if (found == NULL)
      found = here;
    else if (here != found)
      *second = here;
  }
  return found;
}

/* Tensors that are about a weight of the same stem, or of the name before the suffix. */
static bool is_beside(const struct import_model *model, const char *name) {
  static const char *const suffixes[] = {
      "_zero",          "_factor",       "_scale",        "_scale_inv",        ".scale",
      ".scales",        ".scale_weight", ".scale_input",  ".weight_scale_inv", ".weight_scale",
      ".k_scale",       ".input_scale",  ".output_scale", "_input_scale",      "_input_order",
      "_input_rotation"};
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
      ".weight_zero_point", ".zero_point",   ".zeros", ".weight_g_idx", ".g_idx",           ".weight_scale_2",
      ".pre_quant_scale",   ".weight_shape", ".SCB",   ".qzeros",       ".input_zero_point"};
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

static enum status take_factors(const struct import_model *model, struct import_weight *out, struct error *error) {
  const char *name = out->tensor->tensor->name;
  const struct import_entry *factors = import_beside(model, name, 0, "_factor");
  if (factors == NULL || factors->tensor->dtype != DTYPE_F32 || factors->tensor->elements != (uint64_t)out->n)
    return error_set(error, factors == NULL ? STATUS_NOT_FOUND : STATUS_BAD_FILE,
                     "tensor '%s' has no _factor, an F32 for each of %lld rows", IMPORT_SHOW(name), (long long)out->n);
  return import_add(out, IMPORT_FACTOR, factors, error);
}

static enum status take_scales(const struct import_model *model, const struct import_wish *wish,
                               struct import_weight *out, struct error *error) {
  const char *name = out->tensor->tensor->name, *type = safetensors_dtype_name(out->tensor->tensor->dtype);
  bool named = wish != NULL && wish->scale_tensor != NULL && wish->scale_tensor[0] != '\0';
  const struct import_entry *second = NULL;
  const struct import_entry *scales =
      named ? import_find(model, wish->scale_tensor) : find_scales(model, name, &second);
  if (scales == NULL && named)
    return error_set(error, STATUS_NOT_FOUND, "the file has no tensor '%s'", IMPORT_SHOW(wish->scale_tensor));
  if (scales == NULL)
    return error_set(error, STATUS_NOT_FOUND, "tensor '%s' is %s; the file has no scales of a usual name for it",
                     IMPORT_SHOW(name), type);
  if (second != NULL)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' has two scales, '%s' and '%s'", IMPORT_SHOW(name),
                     IMPORT_SHOW(scales->tensor->name), IMPORT_SHOW(second->tensor->name));
  if (scales->tensor->dtype == DTYPE_F8_E8M0 && out->format == GEMM_FORMAT_INT4)
    out->format = GEMM_FORMAT_MXFP4;
  if (scales->tensor->dtype == DTYPE_F8_E4M3 && out->format == GEMM_FORMAT_INT4)
    out->format = GEMM_FORMAT_NVFP4;
  enum status status = import_add(out, IMPORT_SCALES, scales, error);
  const struct import_entry *zeros = import_beside(model, name, 0, "_zero");
  if (status == STATUS_OK && zeros != NULL && out->format == GEMM_FORMAT_INT4) {
    status = import_add(out, IMPORT_ZEROS, zeros, error);
    if (status == STATUS_OK && ((zeros->tensor->dtype != DTYPE_U8 && zeros->tensor->dtype != DTYPE_F16) ||
                                zeros->tensor->elements != scales->tensor->elements))
      return error_set(error, STATUS_BAD_FILE, "tensor '%s' is not a U8 or an F16 for each scale",
                       IMPORT_SHOW(zeros->tensor->name));
  }
  if (status == STATUS_OK && out->format == GEMM_FORMAT_NVFP4)
    status = take_factors(model, out, error);
  return status == STATUS_OK ? import_scale_mode(wish != NULL ? wish->scale : GEMM_SCALE_NONE, out, error) : status;
}

/* ---- what is done to x */

static enum status take_beside(const struct import_model *model, const char *suffix, enum import_aux which,
                               enum safetensors_dtype dtype, uint64_t elements, struct import_weight *out,
                               struct error *error) {
  const struct import_entry *found = import_beside(model, out->tensor->tensor->name, 0, suffix);
  if (found == NULL)
    return STATUS_OK;
  if (found->tensor->dtype != dtype || found->tensor->elements != elements)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' is not %llu of %s", IMPORT_SHOW(found->tensor->name),
                     (unsigned long long)elements, safetensors_dtype_name(dtype));
  return import_add(out, which, found, error);
}

static enum status take_x_scale(const struct import_model *model, struct import_weight *out, struct error *error) {
  static const char *const at_stem[] = {".input_scale", ".scale_input"};
  const char *name = out->tensor->tensor->name;
  const struct import_entry *found = import_beside(model, name, 0, "_input_scale");
  for (size_t i = 0; strchr(name, '.') != NULL && found == NULL && i < sizeof at_stem / sizeof *at_stem; i++)
    found = import_beside(model, name, behind_stem(name), at_stem[i]);
  if (found == NULL)
    return STATUS_OK;
  if (!import_is_real(found->tensor->dtype) || found->tensor->elements != 1 || out->scale == GEMM_SCALE_BLOCK ||
      !gemm_quantizes_x(out->format))
    return error_set(error, STATUS_UNSUPPORTED,
                     "tensor '%s': x is quantized by one scale of F32, F16 or BF16, for %s weights with %s scales or "
                     "one",
                     IMPORT_SHOW(found->tensor->name), "INT8 and FP8", "a row");
  out->input |= GEMM_INPUT_SCALE;
  return import_add(out, IMPORT_X_SCALE, found, error);
}

static enum status take_input(const struct import_model *model, struct import_weight *out, struct error *error) {
  enum status status = take_x_scale(model, out, error);
  if (status == STATUS_OK)
    status =
        take_beside(model, "_input_order", IMPORT_INDEX, DTYPE_I32, (uint64_t)(out->k > 0 ? out->k : 0), out, error);
  if (status == STATUS_OK)
    status = take_beside(model, "_input_rotation", IMPORT_ROTATION, DTYPE_I32, 1, out, error);
  if (out->aux[IMPORT_INDEX] != NULL)
    out->input |= GEMM_INPUT_ORDER;
  return status;
}

/* ---- weights */

static enum status take_stored(const struct import_model *model, const struct import_wish *wish,
                               struct import_weight *out, struct error *error) {
  if (gemm_is_packed(out->format)) {
    out->pack_bytes = out->tensor->tensor->dtype == DTYPE_U16 ? 2 : 1;
    out->pack = 8 * out->pack_bytes / (uint32_t)gemm_format_facts(out->format)->bits;
    if (__builtin_mul_overflow(out->k, out->pack, &out->k))
      return error_field(error, STATUS_TOO_LARGE, FIELD_K, INT64_MAX, 1, LIMIT_K);
  }
  enum status status = take_scales(model, wish, out, error);
  return status == STATUS_OK ? take_input(model, out, error) : status;
}

static enum status take_marker(const struct import_model *model, struct import_weight *out, struct error *error) {
  const struct safetensors_tensor *tensor = out->tensor->tensor;
  enum status status = import_comfy_metadata(&model->files[out->tensor->file], tensor, &out->input, error);
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
  out->real = import_is_real(tensor->dtype);
  out->format = stored_format(tensor->dtype);
  if (!out->real && out->format == GEMM_FORMAT_NONE)
    return error_set(error, STATUS_UNSUPPORTED,
                     "tensor '%s' is %s; F32, F16, BF16, I8, F8_E4M3, U8 and I32 (INT2) and U16 (4 bits) are taken",
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

static enum status look_at_marker(const struct import_weight *weight, const struct import_data *data, uint32_t *input,
                                  struct error *error) {
  const struct import_entry *marker = weight->aux[IMPORT_MARKER];
  *input = GEMM_INPUT_NONE;
  if (marker == NULL)
    return STATUS_OK;
  return import_comfy_marker((const char *)data->aux[IMPORT_MARKER],
                             (size_t)(marker->tensor->end - marker->tensor->begin), weight->tensor->tensor, input,
                             error);
}

static enum status check(const struct import_weight *weight, const struct import_data *data, struct error *error) {
  uint32_t rotation;
  return look_at_marker(weight, data, &rotation, error);
}

/* The order that a file brings has every element of x once. */
static enum status take_order(const struct import_weight *weight, const uint8_t *from, uint32_t *order,
                              struct error *error) {
  uint32_t k = (uint32_t)weight->k;
  memset(order, 0, k * sizeof *order);
  for (uint32_t i = 0; i < k; i++) {
    uint32_t at;
    memcpy(&at, from + i * sizeof at, sizeof at);
    if (at >= k || order[at] != 0)
      return error_set(error, STATUS_BAD_FILE, "tensor '%s': element %u is %d, which is no element of x, or is twice",
                       IMPORT_SHOW(weight->aux[IMPORT_INDEX]->tensor->name), i, (int)at);
    order[at] = 1;
  }
  memcpy(order, from, k * sizeof *order);
  return STATUS_OK;
}

static enum status input(const struct import_weight *weight, const struct import_data *data, struct import_input *out,
                         struct error *error) {
  uint32_t rotation;
  enum status status = look_at_marker(weight, data, &rotation, error);
  out->input = weight->input | rotation;
  if (status == STATUS_OK && weight->aux[IMPORT_X_SCALE] != NULL)
    safetensors_to_f32(weight->aux[IMPORT_X_SCALE]->tensor->dtype, data->aux[IMPORT_X_SCALE], 1, &out->scale);
  if (status == STATUS_OK && weight->aux[IMPORT_ROTATION] != NULL) {
    int32_t group;
    memcpy(&group, data->aux[IMPORT_ROTATION], sizeof group);
    status = import_rotation(weight->tensor->tensor, group, &rotation, error);
    out->input |= rotation;
  }
  return status == STATUS_OK && (out->input & GEMM_INPUT_ORDER)
             ? take_order(weight, data->aux[IMPORT_INDEX], out->order, error)
             : status;
}

static void numbers(const struct import_weight *weight, const struct import_tile *tile, uint64_t row, float *out) {
  safetensors_to_f32(weight->tensor->tensor->dtype, tile->raw + row * tile->stride, tile->columns, out);
}

static void codes(const struct import_weight *weight, const struct import_data *data, const struct import_tile *tile,
                  uint8_t *out, uint64_t row_bytes) {
  for (uint64_t row = 0; row < tile->rows; row++)
    memcpy(out + row * row_bytes, tile->raw + row * tile->stride, tile->columns / weight->pack * weight->pack_bytes);
}

static float zero(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column) {
  return gemm_zero_get(weight->scale, data->aux[IMPORT_ZEROS], import_scale_index(weight, n, column));
}

const struct importer import_plain = {.name = "safetensors",
                                      .take = take,
                                      .check = check,
                                      .input = input,
                                      .numbers = numbers,
                                      .codes = codes,
                                      .scale = import_scale_at,
                                      .zero = zero,
                                      .factor = import_factor_at};
