/* Codes of e2m1 in blocks of K with a scale each, two a byte, the first in the low bits.
 * MXFP4, blocks of 32, scales e8m0:
 *   <name>_blocks, <name>_scales                 gpt-oss (transformers, integrations/mxfp4.py): U8 [E, N, K/32, 16] and
 *                                                [E, N, K/32] of experts, or without E: the weight <name>
 *   <stem>.weight_packed, <stem>.weight_scale    compressed-tensors, "mxfp4-pack-quantized": U8 [N, K/2], U8 or F8_E8M0
 *                                                [N, K/32]
 * NVFP4, blocks of 16, scales e4m3 times a factor of the whole, F32 of one element:
 *   <stem>.weight U8 [N, K/2], <stem>.weight_scale F8_E4M3 [N, K/16], <stem>.weight_scale_2
 *                                                ModelOpt (torch/quantization/qtensor/nvfp4_tensor.py)
 *   <stem>.weight_packed, <stem>.weight_scale, <stem>.weight_global_scale
 *                                                compressed-tensors, "nvfp4-pack-quantized": the factor is the
 *                                                reciprocal of weight_global_scale
 * Scales of x (input_scale, input_global_scale) are those of products whose x is quantized to 4 bits; x stays as it is
 * here. */
#include "importer.h"
#include "scales.h"

#include <string.h>

enum { BLOCK = 32, BLOCK_NV = 16 };
static const char blocks[] = "_blocks", packed[] = ".weight_packed";

/* Beside <stem>.weight of U8, whose stem is the name without `drop` bytes. */
static bool is_modelopt(const struct import_model *model, const char *name, size_t drop) {
  const struct import_entry *codes = import_beside(model, name, drop, ".weight");
  return codes != NULL && codes->tensor->dtype == DTYPE_U8 &&
         import_beside(model, name, drop, ".weight_scale_2") != NULL;
}

static bool is_part(const struct import_model *model, const char *name) {
  static const char *const suffixes[] = {".weight_scale", ".weight_global_scale", ".input_global_scale",
                                         ".weight_shape"};
  static const char *const of_modelopt[] = {".weight_scale", ".weight_scale_2", ".input_scale"};
  if ((import_ends(name, "_scales") && import_beside(model, name, strlen("_scales"), blocks) != NULL) ||
      (import_ends(name, "_bias") && import_beside(model, name, strlen("_bias"), blocks) != NULL))
    return true;
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
    if (import_ends(name, suffixes[i]) && import_beside(model, name, strlen(suffixes[i]), packed) != NULL)
      return true;
  for (size_t i = 0; i < sizeof of_modelopt / sizeof *of_modelopt; i++)
    if (import_ends(name, of_modelopt[i]) && is_modelopt(model, name, strlen(of_modelopt[i])))
      return true;
  return false;
}

/* U8 codes with scales of e4m3. */
static bool is_nvfp4(const struct import_model *model, const char *name, size_t stem) {
  const struct import_entry *scales = import_beside(model, name, stem, ".weight_scale");
  return scales != NULL && scales->tensor->dtype == DTYPE_F8_E4M3 &&
         (import_beside(model, name, stem, ".weight_scale_2") != NULL ||
          import_beside(model, name, stem, ".weight_global_scale") != NULL || import_ends(name, packed));
}

/* ModelOpt's pre_quant_scale changes x. */
static enum status take_factor(const struct import_model *model, size_t stem, struct import_weight *out,
                               struct error *error) {
  const char *name = out->tensor->tensor->name;
  const struct import_entry *factor = import_beside(model, name, stem, ".weight_scale_2");
  const struct import_entry *marker = import_beside(model, name, stem, ".pre_quant_scale");
  out->parameter = factor != NULL; /* of what divides or multiplies */
  if (factor == NULL)
    factor = import_beside(model, name, stem, ".weight_global_scale");
  if (marker != NULL)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' has a marker that is not understood ('%s')",
                     IMPORT_SHOW(name), IMPORT_SHOW(marker->tensor->name));
  if (factor == NULL || factor->tensor->dtype != DTYPE_F32 || factor->tensor->elements != 1)
    return error_set(error, STATUS_BAD_FILE, "tensor '%s' is NVFP4, and has no factor of its scales, one F32",
                     IMPORT_SHOW(name));
  return import_add(out, IMPORT_FACTOR, factor, error);
}

/* N and K, of a tensor that may have more dimensions. */
static enum status take_matrix(struct import_weight *out, bool of_blocks, bool stacked, struct error *error) {
  const struct safetensors_tensor *tensor = out->tensor->tensor;
  uint64_t experts = stacked ? tensor->shape[0] : 1, rows = tensor->shape[stacked ? 1 : 0];
  uint64_t bytes = rows > 0 && experts > 0 ? tensor->elements / experts / rows : 0;
  size_t rank = (of_blocks ? 3 : 2) + stacked - (out->tensor->parts > 0 /* one expert */);
  if (tensor->rank != rank)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' has %zu dimension%s; %zu are taken, or experts by number",
                     IMPORT_SHOW(tensor->name), tensor->rank, plural(tensor->rank), rank);
  uint64_t block_bytes = out->format == GEMM_FORMAT_NVFP4 ? BLOCK_NV / 2 : BLOCK / 2;
  if (bytes == 0 || bytes % block_bytes != 0 || rows > INT64_MAX || bytes > INT64_MAX / 2)
    return error_set(error, STATUS_BAD_FILE, "tensor '%s' has %llu rows of %llu bytes, no multiple of %d",
                     IMPORT_SHOW(tensor->name), (unsigned long long)rows, (unsigned long long)bytes, (int)block_bytes);
  if (stacked && experts > UINT32_MAX)
    return error_set(error, STATUS_TOO_LARGE, "tensor '%s' has %llu experts", IMPORT_SHOW(tensor->name),
                     (unsigned long long)experts);
  out->experts = stacked ? (uint32_t)experts : 0;
  out->n = (int64_t)rows;
  out->k = (int64_t)bytes * 2;
  return STATUS_OK;
}

static enum status take_scales(const struct import_entry *scales, struct import_weight *out, struct error *error) {
  const struct safetensors_tensor *codes = out->tensor->tensor;
  uint64_t parts = out->tensor->parts > 0 ? out->tensor->parts : 1, rows = (uint64_t)out->n;
  uint64_t experts = out->experts > 0 ? out->experts : out->tensor->parts; /* in the tensor of scales */
  if (scales == NULL)
    return error_set(error, STATUS_NOT_FOUND, "tensor '%s' is %s, and has no scales beside it",
                     IMPORT_SHOW(codes->name), gemm_format_name(out->format));
  uint64_t block = out->format == GEMM_FORMAT_NVFP4 ? BLOCK_NV : BLOCK;
  const struct safetensors_tensor *tensor = scales->tensor;
  bool shaped = experts > 0 ? tensor->rank == 3 && tensor->shape[0] == experts && tensor->shape[1] == rows
                            : tensor->rank == 2 && tensor->shape[0] == rows;
  bool typed =
      block == BLOCK_NV ? tensor->dtype == DTYPE_F8_E4M3 : tensor->dtype == DTYPE_U8 || tensor->dtype == DTYPE_F8_E8M0;
  if (!typed || !shaped || tensor->elements != codes->elements / (block / 2) * parts)
    return error_set(error, STATUS_BAD_FILE, "tensor '%s' is not a%s for each %d elements of %lld x %lld",
                     IMPORT_SHOW(tensor->name), block == BLOCK_NV ? "n F8_E4M3" : " U8", (int)block, (long long)out->n,
                     (long long)out->k);
  return import_add(out, IMPORT_SCALES, scales, error);
}

static enum import_claim take(const struct import_model *model, const struct import_entry *tensor,
                              const struct import_wish *wish, struct import_weight *out, struct error *error) {
  const char *name = tensor->tensor->name;
  bool of_blocks = import_is_blocks(tensor->tensor), of_packed = import_ends(name, packed);
  size_t stem = of_packed ? strlen(packed) : strlen(".weight");
  if (wish == NULL && is_part(model, name))
    return IMPORT_PART;
  if (tensor->tensor->dtype != DTYPE_U8 || !(of_blocks || of_packed || import_ends(name, ".weight")))
    return IMPORT_NOT_MINE;
  bool nvfp4 = !of_blocks && is_nvfp4(model, name, stem);
  if (!of_blocks && !of_packed && !nvfp4)
    return IMPORT_NOT_MINE;
  import_begin(out, &import_blocks4, tensor);
  if (of_blocks)
    out->name[strlen(out->name) - strlen(blocks)] = '\0';
  else
    strcpy(out->name + strlen(out->name) - stem, ".weight");
  out->format = nvfp4 ? GEMM_FORMAT_NVFP4 : GEMM_FORMAT_MXFP4;
  out->scale = gemm_format_facts(out->format)->scale_default;
  out->pack = 2;
  if (nvfp4 && take_factor(model, stem, out, error) != STATUS_OK)
    return IMPORT_WEIGHT;
  const struct import_entry *scales = of_blocks ? import_beside(model, name, strlen(blocks), "_scales")
                                                : import_beside(model, name, stem, ".weight_scale");
  bool stacked =
      wish == NULL && of_blocks && tensor->tensor->rank == 4; /* a load of a weight has one expert at a time */
  if (take_matrix(out, of_blocks, stacked, error) == STATUS_OK)
    (void)take_scales(scales, out, error);
  return IMPORT_WEIGHT;
}

static void codes(const struct import_weight *weight, const struct import_data *data, const struct import_tile *tile,
                  uint8_t *out, uint64_t row_bytes) {
  for (uint64_t row = 0; row < tile->rows; row++)
    memcpy(out + row * row_bytes, tile->raw + row * tile->stride, tile->columns / 2);
}

static float factor(const struct import_weight *weight, const struct import_data *data, uint64_t n) {
  float value = import_factor_at(weight, data, n);
  return weight->parameter ? value : 1.0f / value;
}

const struct importer import_blocks4 = {
    .name = "MXFP4", .take = take, .codes = codes, .scale = import_scale_at, .factor = factor};
