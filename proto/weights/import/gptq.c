/* GPTQ checkpoints (AutoGPTQ and GPTQModel, nn_modules/qlinear: QuantLinear.pack; the same in transformers):
 *   <stem>.qweight  I32 [K/pack, N]: pack = 32/bits codes q of one row of W in a word, the first k in the lowest bits
 *   <stem>.qzeros   I32 [G, N/pack]: zero points z of a group, packed along N; stored less 1 where checkpoint_format is
 *                   "gptq", as they are where it is "gptq_v2"
 *   <stem>.scales   F16 [G, N]
 *   <stem>.g_idx    I32 [K]: the group of each k; k / (K/G) unless the weight was quantized in act order ("desc_act")
 * W[n][k] = scales[g][n] * (q - z). Taken: 8 bits with one group and z = 128, which is INT8 with a scale a row; 4 bits
 * with groups of a multiple of 32 or one, scales F16 or BF16, which is INT4 with zero points unless the configuration
 * has "sym"; 2 bits with groups of a multiple of 128 or one, and z = 1 or 2: q - 1 is the value of code q, and q - 2
 * that of code 3 - q with the scale's sign changed. Act order: K is put in the order of the groups, and so is x. */
#include "config.h"
#include "groups.h"

#include "../../number.h"

#include <string.h>

static bool is_part(const struct import_model *model, const char *name) {
  static const char *const suffixes[] = {"qzeros", "scales", "g_idx"};
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
    if (import_ends(name, suffixes[i]) && import_beside(model, name, strlen(suffixes[i]), "qweight") != NULL)
      return true;
  return false;
}

static uint32_t bits_of(const struct import_weight *weight) {
  return 32 / weight->pack;
}

static enum status take_config(const struct import_model *model, struct import_weight *out, struct error *error) {
  const char *name = out->tensor->tensor->name;
  if (model->method == NULL || strcmp(model->method, "gptq") != 0)
    return error_set(error, STATUS_UNSUPPORTED,
                     "tensor '%s': a configuration beside it must say that this is GPTQ, and of how many bits",
                     IMPORT_SHOW(name));
  int64_t bits = import_config_integer(model, "bits", 0);
  if (bits != 8 && bits != 4 && bits != 2)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' is GPTQ of %lld bits; 8, 4 and 2 are taken",
                     IMPORT_SHOW(name), (long long)bits);
  if (import_config_has(model, "dynamic") || import_config_has(model, "rotation"))
    return error_set(error, STATUS_UNSUPPORTED, "the model's configuration has '%s', which is not understood",
                     import_config_has(model, "dynamic") ? "dynamic" : "rotation");
  const char *format = import_config_text(model, "checkpoint_format");
  out->parameter = format == NULL || strcmp(format, "gptq") == 0; /* added to zero points */
  out->pack = (uint32_t)(32 / bits);
  return STATUS_OK;
}

static enum status take_aux(const struct import_model *model, struct import_weight *out, struct error *error) {
  static const char *const names[] = {"scales", "qzeros", "g_idx"};
  static const enum import_aux which[] = {IMPORT_SCALES, IMPORT_ZEROS, IMPORT_INDEX};
  const char *name = out->tensor->tensor->name;
  for (size_t i = 0; i < 3; i++) {
    const struct import_entry *entry = import_beside(model, name, strlen("qweight"), names[i]);
    if (entry == NULL && which[i] == IMPORT_INDEX)
      continue;
    if (entry == NULL)
      return error_set(error, STATUS_NOT_FOUND, "tensor '%s' is GPTQ's, and has no %s", IMPORT_SHOW(name), names[i]);
    enum status status = import_add(out, which[i], entry, error);
    if (status != STATUS_OK)
      return status;
  }
  return STATUS_OK;
}

/* By the configuration's group_size, whose last group may be shorter; else equal ones. */
static uint64_t group_size(const struct import_model *model, uint64_t k, uint64_t groups) {
  int64_t size = import_config_integer(model, "group_size", -1);
  if (size > 0 && gemm_ceil_div(k, (uint64_t)size) == groups)
    return groups == 1 ? k : (uint64_t)size;
  return groups > 0 && k % groups == 0 ? k / groups : 0;
}

static enum status check_shapes(const struct import_model *model, struct import_weight *out, struct error *error) {
  const struct import_entry *index = out->aux[IMPORT_INDEX], *scales = out->aux[IMPORT_SCALES];
  uint64_t n = (uint64_t)out->n, groups = scales->tensor->shape[0];
  enum safetensors_dtype type = bits_of(out) == 4 && scales->tensor->dtype == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F16;
  out->group = out->k > 0 ? group_size(model, (uint64_t)out->k, groups) : 0;
  if (!import_is_matrix(scales, type, groups, n) || out->group == 0 || n % out->pack != 0 ||
      !import_is_matrix(out->aux[IMPORT_ZEROS], DTYPE_I32, groups, n / out->pack) ||
      (index != NULL && (index->tensor->dtype != DTYPE_I32 || index->tensor->elements != (uint64_t)out->k)))
    return error_set(error, STATUS_BAD_FILE,
                     "tensor '%s': scales, qzeros and g_idx are not GPTQ's of %u bits for %lld x %lld",
                     IMPORT_SHOW(out->tensor->tensor->name), bits_of(out), (long long)out->n, (long long)out->k);
  return STATUS_OK;
}

static enum status take_scales(const struct import_model *model, struct import_weight *out, struct error *error) {
  uint64_t groups = import_groups(out);
  if (import_config_has(model, "desc_act") && groups > 1 && out->aux[IMPORT_INDEX] != NULL)
    out->input = GEMM_INPUT_ORDER;
  out->symmetric = bits_of(out) != 4 || import_config_has(model, "sym");
  out->format = bits_of(out) == 8 ? GEMM_FORMAT_INT8 : bits_of(out) == 4 ? GEMM_FORMAT_INT4 : GEMM_FORMAT_INT2;
  if (bits_of(out) < 8)
    return import_group_mode(out, !out->symmetric, error);
  out->scale = GEMM_SCALE_ROW;
  return groups == 1 ? STATUS_OK
                     : error_set(error, STATUS_UNSUPPORTED,
                                 "tensor '%s' of 8 bits has groups of %llu; one group a row is taken",
                                 IMPORT_SHOW(out->tensor->tensor->name), (unsigned long long)out->group);
}

static enum status take_shape(const struct import_model *model, struct import_weight *out, struct error *error) {
  const struct safetensors_tensor *tensor = out->tensor->tensor;
  if (tensor->shape[1] > INT64_MAX || tensor->shape[0] > INT64_MAX ||
      __builtin_mul_overflow((int64_t)tensor->shape[0], (int64_t)out->pack, &out->k))
    return error_field(error, STATUS_TOO_LARGE, FIELD_K, INT64_MAX, 1, LIMIT_K);
  out->n = (int64_t)tensor->shape[1];
  enum status status = take_aux(model, out, error);
  if (status == STATUS_OK)
    status = check_shapes(model, out, error);
  return status == STATUS_OK ? take_scales(model, out, error) : status;
}

static enum import_claim take(const struct import_model *model, const struct import_entry *tensor,
                              const struct import_wish *wish, struct import_weight *out, struct error *error) {
  const char *name = tensor->tensor->name;
  if (wish == NULL && is_part(model, name))
    return IMPORT_PART;
  if (!import_ends(name, "qweight") || tensor->tensor->dtype != DTYPE_I32 || tensor->tensor->rank != 2)
    return IMPORT_NOT_MINE;
  import_begin(out, &import_gptq, tensor);
  size_t length = strlen(out->name);
  memmove(out->name + length - strlen("qweight"), "weight", sizeof "weight");
  out->by_columns = true;
  out->pack_bytes = sizeof(uint32_t);
  if (take_config(model, out, error) == STATUS_OK)
    (void)take_shape(model, out, error);
  return IMPORT_WEIGHT;
}

static uint32_t word_at(const uint8_t *bytes, uint64_t index) {
  uint32_t word;
  memcpy(&word, bytes + index * sizeof word, sizeof word);
  return word;
}

/* As it is in the file, and as it is meant. */
static uint32_t stored_zero(const struct import_weight *weight, const struct import_data *data, uint64_t group,
                            uint64_t n) {
  uint32_t bits = bits_of(weight);
  uint32_t word = word_at(data->aux[IMPORT_ZEROS], group * ((uint64_t)weight->n / weight->pack) + n / weight->pack);
  return word >> (n % weight->pack * bits) & ((1u << bits) - 1);
}

static uint32_t zero_of(const struct import_weight *weight, const struct import_data *data, uint64_t group,
                        uint64_t n) {
  return (stored_zero(weight, data, group, n) + weight->parameter) & ((1u << bits_of(weight)) - 1);
}

/* Of 4 bits one less 1 that was 0 is 15: tools make 0 of it, 16, or what runs over into its neighbour. */
static enum status check_zero(const struct import_weight *weight, uint64_t group, uint64_t n, uint32_t stored,
                              uint32_t zero, struct error *error) {
  uint32_t bits = bits_of(weight);
  bool wraps = bits == 4 && zero < stored;
  if (bits == 8 ? zero == 128 : bits == 2 ? zero == 1 || zero == 2 : !wraps && (!weight->symmetric || zero == 8))
    return STATUS_OK;
  return error_set(error, STATUS_UNSUPPORTED, "tensor '%s': the zero point of row %llu, group %llu is %u; %s",
                   IMPORT_SHOW(weight->tensor->tensor->name), (unsigned long long)n, (unsigned long long)group,
                   wraps ? stored + 1 : zero,
                   bits == 8   ? "128 is taken"
                   : bits == 2 ? "1 and 2 are taken"
                   : wraps     ? "it is stored less 1, and 1 to 15 are taken"
                               : "the configuration has sym, and it must be 8");
}

static enum status check(const struct import_weight *weight, const struct import_data *data, struct error *error) {
  enum status status = import_index_check(weight, data, error);
  for (uint64_t g = 0; g < import_groups(weight); g++)
    for (uint64_t n = 0; status == STATUS_OK && n < (uint64_t)weight->n; n++)
      status = check_zero(weight, g, n, stored_zero(weight, data, g, n), zero_of(weight, data, g, n), error);
  return status;
}

/* Codes of 2 bits in a word whose elements may be of several groups, whose zero point may be either. */
static uint32_t mixed_word(const struct import_weight *weight, const struct import_data *data, uint64_t row, uint64_t k,
                           uint32_t word) {
  for (uint32_t j = 0; j < weight->pack; j++)
    if (zero_of(weight, data, import_group_of(weight, data, k + j), row) == 2)
      word ^= 3u << 2 * j; /* 3 - q */
  return word;
}

static void codes(const struct import_weight *weight, const struct import_data *data, const struct import_tile *tile,
                  uint8_t *out, uint64_t row_bytes) {
  uint32_t bits = bits_of(weight), mask = (1u << bits) - 1;
  uint64_t words = tile->columns / weight->pack;
  bool mixed = bits == 2 && (weight->input & GEMM_INPUT_ORDER) != 0;
  for (uint64_t row = 0; row < tile->rows; row++) {
    uint8_t *to = out + row * row_bytes;
    for (uint64_t i = 0; i < words; i++) {
      uint32_t word = word_at(tile->raw + i * tile->stride, row);
      uint64_t k = tile->column + i * weight->pack;
      if (mixed)
        word = mixed_word(weight, data, tile->first + row, k, word);
      else if (bits == 2 && zero_of(weight, data, import_group_of(weight, data, k), tile->first + row) == 2)
        word = ~word; /* 3 - q of each */
      if (bits < 8)
        memcpy(to + i * sizeof word, &word, sizeof word); /* little endian: the first code in the lowest bits */
      else
        for (uint32_t j = 0; j < weight->pack; j++)
          to[i * weight->pack + j] = (uint8_t)((word >> (j * bits) & mask) ^ 0x80u); /* q - 128 */
    }
  }
}

static float scale(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column) {
  uint64_t g = import_group_at(weight, column);
  float value = import_group_scale(weight, data, g * (uint64_t)weight->n + n);
  return bits_of(weight) == 2 && zero_of(weight, data, g, n) == 2 ? -value : value;
}

static float zero(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column) {
  return (float)zero_of(weight, data, import_group_at(weight, column), n);
}

const struct importer import_gptq = {.name = "GPTQ",
                                     .take = take,
                                     .check = check,
                                     .input = import_index_order,
                                     .codes = codes,
                                     .scale = scale,
                                     .zero = zero};
