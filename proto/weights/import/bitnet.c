/* BitNet b1.58 of transformers (integrations/bitnet.py: pack_weights, BitLinear, AutoBitLinear), quant_method "bitnet":
 *   <stem>.weight        U8 [N/4, K]: row n of W in row n % (N/4), in bits 2 * (n / (N/4)); code c stands for c - 1
 *   <stem>.weight_scale  [1]; BitLinear, which is meant where linear_class is not given, divides by it; AutoBitLinear
 *                        ("autobitlinear") multiplies with it
 * The scale is rounded to f16, which INT2 has. */
#include "config.h"
#include "importer.h"

#include <math.h>
#include <string.h>

static enum import_claim take(const struct import_model *model, const struct import_entry *tensor,
                              const struct import_wish *wish, struct import_weight *out, struct error *error) {
  const struct safetensors_tensor *codes = tensor->tensor;
  if (model->method == NULL || strcmp(model->method, "bitnet") != 0 || codes->dtype != DTYPE_U8 || codes->rank != 2 ||
      !import_ends(codes->name, ".weight"))
    return IMPORT_NOT_MINE;
  import_begin(out, &import_bitnet, tensor);
  const struct import_entry *scale = import_beside(model, codes->name, 0, "_scale");
  const char *kind = import_config_text(model, "linear_class");
  if (scale == NULL || scale->tensor->elements != 1 ||
      (scale->tensor->dtype != DTYPE_F32 && scale->tensor->dtype != DTYPE_F16 && scale->tensor->dtype != DTYPE_BF16)) {
    (void)error_set(error, STATUS_BAD_FILE, "tensor '%s' is BitNet's, and has no weight_scale of one element",
                    IMPORT_SHOW(codes->name));
    return IMPORT_WEIGHT;
  }
  out->parameter = kind != NULL && strcmp(kind, "autobitlinear") == 0; /* multiplied with */
  out->format = GEMM_FORMAT_INT2;
  out->scale = GEMM_SCALE_ROW;
  if (codes->shape[1] > INT64_MAX || __builtin_mul_overflow(codes->shape[0], 4, &out->n))
    (void)error_field(error, STATUS_TOO_LARGE, FIELD_N, INT64_MAX, 1, LIMIT_N);
  else if (codes->shape[1] % 4 != 0)
    (void)error_set(error, STATUS_UNSUPPORTED, "tensor '%s' has K = %llu; a multiple of 4 is taken",
                    IMPORT_SHOW(codes->name), (unsigned long long)codes->shape[1]);
  else if (import_add(out, IMPORT_SCALES, scale, error) == STATUS_OK)
    out->k = (int64_t)codes->shape[1];
  return IMPORT_WEIGHT;
}

static uint64_t file_row(const struct import_weight *weight, uint64_t n) {
  return n % weight->tensor->tensor->shape[0];
}

static void codes(const struct import_weight *weight, const struct import_data *data, const struct import_tile *tile,
                  uint8_t *out, uint64_t row_bytes) {
  for (uint64_t row = 0; row < tile->rows; row++) {
    const uint8_t *from = tile->raw + row * tile->stride;
    uint32_t shift = 2 * (uint32_t)((tile->first + row) / weight->tensor->tensor->shape[0]);
    for (uint64_t i = 0; i < tile->columns; i++)
      out[row * row_bytes + i / 4] |= (uint8_t)((from[i] >> shift & 3) << i % 4 * 2);
  }
}

static float scale(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column) {
  float value = 0.0f;
  safetensors_to_f32(weight->aux[IMPORT_SCALES]->tensor->dtype, data->aux[IMPORT_SCALES], 1, &value);
  return weight->parameter ? value : 1.0f / value;
}

const struct importer import_bitnet = {
    .name = "BitNet", .take = take, .file_row = file_row, .codes = codes, .scale = scale};
