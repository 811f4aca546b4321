/* AWQ checkpoints (AutoAWQ, awq/modules/linear/gemm.py: WQLinear_GEMM; the same in transformers and vLLM), of
 * "version" "gemm":
 *
 *   <stem>.qweight  I32 [K, N/8]: a word holds the codes q of eight rows of W
 *   <stem>.qzeros   I32 [G, N/8]: zero points z, packed alike
 *   <stem>.scales   F16 or BF16 [G, N]
 *
 * Place p of a word, p = 0 being its lowest four bits, is of row 8 j + i, where i = 0, 2, 4, 6, 1, 3, 5, 7 for p = 0
 * to 7. W[n][k] = scales[k / group][n] * (q - z): INT4 with zero points. */
#include "config.h"
#include "groups.h"

#include <string.h>
#include <strings.h>

enum { PACK = 8 };

static bool is_awq(const struct import_model *model) {
  return model->method != NULL && strcmp(model->method, "awq") == 0;
}

static bool is_part(const struct import_model *model, const char *name) {
  return (import_ends(name, "qzeros") || import_ends(name, "scales")) &&
         import_beside(model, name, strlen("qzeros"), "qweight") != NULL;
}

static enum status take_config(const struct import_model *model, const struct import_weight *out, struct error *error) {
  const char *version = import_config_text(model, "version");
  int64_t bits = import_config_integer(model, "bits", import_config_integer(model, "w_bit", 0));
  if (bits != 4)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' is AWQ of %lld bits; 4 are taken",
                     IMPORT_SHOW(out->tensor->tensor->name), (long long)bits);
  if (version != NULL && strcasecmp(version, "gemm") != 0)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' is AWQ of version '%s'; gemm is taken",
                     IMPORT_SHOW(out->tensor->tensor->name), IMPORT_SHOW(version));
  return STATUS_OK;
}

static enum status take_aux(const struct import_model *model, struct import_weight *out, struct error *error) {
  const char *name = out->tensor->tensor->name;
  const struct import_entry *scales = import_beside(model, name, strlen("qweight"), "scales");
  const struct import_entry *zeros = import_beside(model, name, strlen("qweight"), "qzeros");
  if (scales == NULL || zeros == NULL)
    return error_set(error, STATUS_NOT_FOUND, "tensor '%s' is AWQ's, and has no %s", IMPORT_SHOW(name),
                     scales == NULL ? "scales" : "qzeros");
  int64_t size = import_config_integer(model, "group_size", import_config_integer(model, "q_group_size", -1));
  out->group = (uint64_t)(size > 0 && size < out->k ? size : out->k);
  uint64_t groups = out->k > 0 ? import_groups(out) : 0;
  if (groups == 0 || out->k % 2 != 0 || !import_is_matrix(scales, scales->tensor->dtype, groups, (uint64_t)out->n) ||
      !import_is_matrix(zeros, DTYPE_I32, groups, (uint64_t)out->n / PACK))
    return error_set(error, STATUS_BAD_FILE,
                     "tensor '%s': scales and qzeros are not AWQ's for %lld x %lld in groups of %llu",
                     IMPORT_SHOW(name), (long long)out->n, (long long)out->k, (unsigned long long)out->group);
  enum status status = import_add(out, IMPORT_SCALES, scales, error);
  return status == STATUS_OK ? import_add(out, IMPORT_ZEROS, zeros, error) : status;
}

static enum status take_shape(const struct import_model *model, struct import_weight *out, struct error *error) {
  const struct safetensors_tensor *tensor = out->tensor->tensor;
  if (tensor->shape[0] > INT64_MAX || tensor->shape[1] > INT64_MAX / PACK)
    return error_field(error, STATUS_TOO_LARGE, FIELD_N, INT64_MAX, 1, LIMIT_N);
  out->k = (int64_t)tensor->shape[0];
  out->n = (int64_t)tensor->shape[1] * PACK;
  enum status status = take_aux(model, out, error);
  return status == STATUS_OK ? import_group_mode(out, true, error) : status;
}

static enum import_claim take(const struct import_model *model, const struct import_entry *tensor,
                              const struct import_wish *wish, struct import_weight *out, struct error *error) {
  const char *name = tensor->tensor->name;
  if (!is_awq(model))
    return IMPORT_NOT_MINE;
  if (wish == NULL && is_part(model, name))
    return IMPORT_PART;
  if (!import_ends(name, "qweight") || tensor->tensor->dtype != DTYPE_I32 || tensor->tensor->rank != 2)
    return IMPORT_NOT_MINE;
  import_begin(out, &import_awq, tensor);
  memmove(out->name + strlen(out->name) - strlen("qweight"), "weight", sizeof "weight");
  out->format = GEMM_FORMAT_INT4;
  out->by_columns = true;
  out->pack_bytes = sizeof(uint32_t);
  out->pack_rows = PACK;
  out->row_group = PACK;
  if (take_config(model, out, error) == STATUS_OK)
    (void)take_shape(model, out, error);
  return IMPORT_WEIGHT;
}

/* Of row n, whose words lie at `words`. */
static uint32_t code_at(const uint8_t *words, uint64_t n) {
  static const uint8_t places[PACK] = {0, 4, 1, 5, 2, 6, 3, 7};
  uint32_t word;
  memcpy(&word, words + n / PACK * sizeof word, sizeof word);
  return word >> 4 * places[n % PACK] & 15;
}

static void codes(const struct import_weight *weight, const struct import_data *data, const struct import_tile *tile,
                  uint8_t *out, uint64_t row_bytes) {
  for (uint64_t row = 0; row < tile->rows; row++)
    for (uint64_t k = 0; k + 1 < tile->columns; k += 2) {
      const uint8_t *words = tile->raw + k * tile->stride;
      out[row * row_bytes + k / 2] = (uint8_t)(code_at(words, row) | code_at(words + tile->stride, row) << 4);
    }
}

static float scale(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column) {
  return import_group_scale(weight, data, import_group_at(weight, column) * (uint64_t)weight->n + n);
}

static float zero(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column) {
  return (float)code_at(data->aux[IMPORT_ZEROS] + import_group_at(weight, column) * ((uint64_t)weight->n / PACK) * 4,
                        n);
}

const struct importer import_awq = {.name = "AWQ", .take = take, .codes = codes, .scale = scale, .zero = zero};
