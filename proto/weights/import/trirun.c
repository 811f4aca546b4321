/* 2-bit weights as TriRun packs them (github.com/NolanoOrg/TriRun, trirun/__init__.py): <stem>.B, I32 [K/16, N], and
 * <stem>.s, F16 [K/128, N] or [1, N]. Both are shuffled for its kernel; here is where each element belongs. */
#include "importer.h"

#include "../../number.h"

#include <string.h>

enum {
  WORD_CODES = 16,
  COLUMNS = 64, /* of W that are shuffled together, a word each in every row of B */
  LEAST_K = 128,
  LEAST_N = 256, /* K and N are multiples of these */
};

static bool is_named(const char *name, const char *last) {
  const char *dot = strrchr(name, '.');
  return strcmp(dot != NULL ? dot + 1 : name, last) == 0;
}

/* One scale a column of s, or one for each group. */
static enum status take_scales(const struct import_model *model, const struct import_wish *wish,
                               struct import_weight *out, struct error *error) {
  const char *name = out->tensor->tensor->name;
  bool named = wish != NULL && wish->scale_tensor != NULL && wish->scale_tensor[0] != '\0';
  enum gemm_scale wanted = wish != NULL ? wish->scale : GEMM_SCALE_NONE;
  const struct import_entry *entry =
      named ? import_find(model, wish->scale_tensor) : import_beside(model, name, 1, "s");
  if (entry == NULL && named)
    return error_set(error, STATUS_NOT_FOUND, "the file has no tensor '%s'", IMPORT_SHOW(wish->scale_tensor));
  if (entry == NULL)
    return error_set(error, STATUS_NOT_FOUND, "tensor '%s' is I32; the file has no scales of a usual name for it",
                     IMPORT_SHOW(name));
  const struct safetensors_tensor *scales = entry->tensor;
  if (scales->dtype != DTYPE_F16)
    return error_set(error, STATUS_UNSUPPORTED, "scale tensor '%s' is %s; F16 is needed", IMPORT_SHOW(scales->name),
                     safetensors_dtype_name(scales->dtype));
  uint64_t n = (uint64_t)out->n, groups = (uint64_t)out->k / GEMM_GROUP;
  bool fits = scales->rank == 2 && scales->shape[1] == n && (scales->shape[0] == 1 || scales->shape[0] == groups);
  out->scale = fits && scales->shape[0] == 1 ? GEMM_SCALE_ROW : GEMM_SCALE_GROUP;
  if (!fits || (wanted != GEMM_SCALE_NONE && wanted != out->scale))
    return error_set(error, STATUS_UNSUPPORTED,
                     "scale tensor '%s' of %zu dimensions [%llu, %llu] is no %s%sscale of TriRun for %lld x %lld",
                     IMPORT_SHOW(scales->name), scales->rank, (unsigned long long)scales->shape[0],
                     (unsigned long long)scales->shape[1], wanted ? gemm_scale_name(wanted) : "", wanted ? " " : "",
                     (long long)out->n, (long long)out->k);
  return import_add(out, IMPORT_SCALES, entry, error);
}

static enum status take_codes(struct import_weight *out, struct error *error) {
  const struct safetensors_tensor *tensor = out->tensor->tensor;
  if (tensor->shape[0] > INT64_MAX || tensor->shape[1] > INT64_MAX)
    return error_field(error, STATUS_TOO_LARGE, FIELD_N, INT64_MAX, 1, LIMIT_N);
  out->n = (int64_t)tensor->shape[1];
  if (__builtin_mul_overflow((int64_t)tensor->shape[0], WORD_CODES, &out->k))
    return error_field(error, STATUS_TOO_LARGE, FIELD_K, INT64_MAX, 1, LIMIT_K);
  if (out->n % LEAST_N != 0 || out->k % LEAST_K != 0)
    return error_set(error, STATUS_UNSUPPORTED,
                     "tensor '%s': TriRun packs N in multiples of %d and K of %d, got %lld x %lld",
                     IMPORT_SHOW(tensor->name), LEAST_N, LEAST_K, (long long)out->n, (long long)out->k);
  return STATUS_OK;
}

/* I32 that nobody else has taken is TriRun's, or nobody's. */
static enum import_claim take(const struct import_model *model, const struct import_entry *tensor,
                              const struct import_wish *wish, struct import_weight *out, struct error *error) {
  const char *name = tensor->tensor->name;
  if (wish == NULL && is_named(name, "s") && import_beside(model, name, 1, "B") != NULL)
    return IMPORT_PART;
  if (tensor->tensor->dtype != DTYPE_I32 || tensor->tensor->rank != 2)
    return IMPORT_NOT_MINE;
  import_begin(out, &import_trirun, tensor);
  if (!is_named(name, "B")) {
    (void)error_set(error, STATUS_UNSUPPORTED,
                    "tensor '%s' is I32; that is taken as TriRun packs it alone, under the name B, and as GPTQ does",
                    IMPORT_SHOW(name));
    return IMPORT_WEIGHT;
  }
  size_t length = strlen(out->name);
  if (length >= 1 && length + strlen("weight") < sizeof out->name)
    strcpy(out->name + length - 1, "weight");
  out->format = GEMM_FORMAT_INT2;
  out->by_columns = true;
  out->pack = WORD_CODES;
  out->pack_bytes = sizeof(uint32_t);
  out->row_group = COLUMNS;
  if (take_codes(out, error) == STATUS_OK)
    (void)take_scales(model, wish, out, error);
  return IMPORT_WEIGHT;
}

/* A word is a lane's part of two tensor-core operands of 16 x 16: the lane holds k = 2 (lane % 4) + {0, 1, 8, 9} of
 * column lane / 4 of each and of the column 8 further. Codes of the two alternate, then those of odd and even k. */
static void unpack(const uint8_t *raw, uint64_t stride, uint64_t rows, uint8_t *out, uint64_t row_bytes) {
  for (uint64_t row = 0; row < rows; row++) {
    for (uint32_t word = 0; word < COLUMNS; word++) {
      uint32_t bits, lane = word / 2;
      memcpy(&bits, raw + row * stride + word * sizeof bits, sizeof bits);
      for (uint32_t i = 0; i < WORD_CODES; i++) {
        uint32_t tile = 2 * (word % 2) + i % 2, odd = i / 8, high = i / 2 % 2, further = i / 4 % 2;
        uint64_t k = 16 * row + 2 * (lane % 4) + 8 * high + odd, n = 16 * tile + lane / 4 + 8 * further;
        out[n * row_bytes + k / 4] |= (uint8_t)((bits >> 2 * i & 3) << k % 4 * 2);
      }
    }
  }
}

static void codes(const struct import_weight *weight, const struct import_data *data, const struct import_tile *tile,
                  uint8_t *out, uint64_t row_bytes) {
  for (uint64_t i = 0; i < tile->rows; i += COLUMNS)
    unpack(tile->raw + i * sizeof(uint32_t), tile->stride, tile->columns / WORD_CODES, out + i * row_bytes, row_bytes);
}

/* The place in a row of s of the scale of row n of W. Grouped: eight columns, 8 apart, lie behind each other; else
 * pairs of columns, those 8, 16 and 24 further behind each other. */
static uint64_t place_of(uint64_t n, bool grouped) {
  if (grouped)
    return n / 64 * 64 + n % 8 * 8 + n % 64 / 8;
  uint64_t within = n % 32;
  return n / 32 * 32 + within % 8 / 2 * 8 + within / 8 * 2 + within % 2;
}

static float scale(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column) {
  bool grouped = weight->scale == GEMM_SCALE_GROUP;
  uint64_t index = (grouped ? column : 0) * (uint64_t)weight->n + place_of(n, grouped);
  uint16_t bits;
  memcpy(&bits, data->aux[IMPORT_SCALES] + 2 * index, sizeof bits);
  return number_from_f16(bits);
}

const struct importer import_trirun = {.name = "TriRun", .take = take, .codes = codes, .scale = scale};
