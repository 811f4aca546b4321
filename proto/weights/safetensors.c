#include "safetensors.h"

#include "../limits.h"
#include "../number.h"
#include "gguf_types.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  uint32_t bits;
} dtypes[] = {
#define ROW(name, bits) [DTYPE_##name] = {#name, bits},
    SAFETENSORS_DTYPES(ROW)
#undef ROW
};

#define SHOW(text_) safetensors_show(text_).text

struct safetensors_shown safetensors_show(const char *text) {
  struct safetensors_shown shown = {""};
  size_t most = sizeof shown.text - 1, i = 0;
  for (; i < most && text[i]; i++)
    shown.text[i] = text[i];
  if (text[i])
    memcpy(shown.text + most - 3, "...", 3);
  for (i = 0; shown.text[i]; i++)
    if (shown.text[i] < ' ' || shown.text[i] > '~')
      shown.text[i] = '?';
  return shown;
}

void safetensors_to_f32(enum safetensors_dtype dtype, const uint8_t *raw, size_t count, float *out) {
  if (dtype == DTYPE_F32) {
    memcpy(out, raw, count * sizeof *out);
    return;
  }
  if (dtype == DTYPE_BF16) {
    for (size_t i = 0; i < count; i++) {
      uint32_t bits = (uint32_t)raw[2 * i + 1] << 24 | (uint32_t)raw[2 * i] << 16;
      memcpy(&out[i], &bits, sizeof bits);
    }
    return;
  }
  for (size_t i = 0; i < count; i++) {
    uint16_t half;
    memcpy(&half, raw + 2 * i, sizeof half);
    out[i] = number_from_f16(half);
  }
}

const char *safetensors_dtype_name(enum safetensors_dtype dtype) {
  return dtype < DTYPE_GGUF ? dtypes[dtype].name : gguf_type_name((uint32_t)dtype - DTYPE_GGUF);
}

const char *safetensors_type_name(enum gemm_type type) {
  static const char *const names[] = {
      [GEMM_F32] = "F32",      [GEMM_F16] = "F16", [GEMM_BF16] = "BF16",   [GEMM_INT8] = "I8",
      [GEMM_E4M3] = "F8_E4M3", [GEMM_S32] = "I32", [GEMM_E8M0] = "F8_E8M0"};
  return names[type];
}

const char *safetensors_codes_name(enum gemm_format format) {
  const struct gemm_format_facts *facts = gemm_format_facts(format);
  return facts->bits >= 8 ? safetensors_type_name(facts->element) : facts->bits == 4 ? "U16" : "U8";
}

enum status safetensors_length(const uint8_t *first, size_t have, uint64_t file_bytes, uint64_t *json_bytes,
                               struct error *error) {
  if (have < SAFETENSORS_LENGTH_BYTES || file_bytes < SAFETENSORS_FILE_BYTES_LEAST)
    return error_set(error, STATUS_BAD_FILE, "file has %llu bytes; a safetensors file has at least %d",
                     (unsigned long long)file_bytes, SAFETENSORS_FILE_BYTES_LEAST);
  uint64_t length = 0;
  for (int i = SAFETENSORS_LENGTH_BYTES - 1; i >= 0; i--)
    length = length << 8 | first[i];
  if (length > LIMIT_FILE_HEADER_BYTES)
    return error_set(error, STATUS_BAD_FILE, "header length at byte 0 is %llu; the most is %llu",
                     (unsigned long long)length, (unsigned long long)LIMIT_FILE_HEADER_BYTES);
  if (length > file_bytes - SAFETENSORS_LENGTH_BYTES)
    return error_set(error, STATUS_BAD_FILE, "header length at byte 0 is %llu, but the file has %llu bytes",
                     (unsigned long long)length, (unsigned long long)file_bytes);
  *json_bytes = length;
  return STATUS_OK;
}

static enum status parse_dtype(const char *name, const json_t *value, struct safetensors_tensor *out,
                               struct error *error) {
  const char *text = json_string_value(value);
  if (!text)
    return error_set(error, STATUS_BAD_FILE, "tensor '%s' has no dtype", SHOW(name));
  for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
    if (strcmp(text, dtypes[i].name) == 0) {
      out->dtype = (enum safetensors_dtype)i;
      return STATUS_OK;
    }
  }
  return error_set(error, STATUS_BAD_FILE, "tensor '%s' has the unknown dtype '%s'", SHOW(name), SHOW(text));
}

static enum status parse_shape(const char *name, const json_t *value, struct safetensors_tensor *out,
                               struct error *error) {
  if (!json_is_array(value))
    return error_set(error, STATUS_BAD_FILE, "tensor '%s' has no shape", SHOW(name));
  out->rank = json_array_size(value);
  out->elements = 1;
  bool overflow = false;
  for (size_t i = 0; i < out->rank; i++) {
    const json_t *item = json_array_get(value, i);
    if (!json_is_integer(item) || json_integer_value(item) < 0)
      return error_set(error, STATUS_BAD_FILE, "tensor '%s': shape[%zu] is not a whole number from 0", SHOW(name), i);
    uint64_t extent = (uint64_t)json_integer_value(item);
    if (i < 2)
      out->shape[i] = extent;
    /* A zero anywhere makes the product zero, but what comes before it must not wrap first. */
    overflow |= __builtin_mul_overflow(out->elements, extent, &out->elements);
  }
  if (overflow)
    return error_set(error, STATUS_BAD_FILE, "tensor '%s': its shape has more elements than 64 bits hold", SHOW(name));
  return STATUS_OK;
}

static enum status parse_offsets(const char *name, const json_t *value, uint64_t data_begin, uint64_t data_bytes,
                                 struct safetensors_tensor *out, struct error *error) {
  const json_t *first = json_array_get(value, 0), *second = json_array_get(value, 1);
  if (json_array_size(value) != 2 || !json_is_integer(first) || !json_is_integer(second))
    return error_set(error, STATUS_BAD_FILE, "tensor '%s': data_offsets are not two whole numbers", SHOW(name));
  json_int_t begin = json_integer_value(first), end = json_integer_value(second);
  if (begin < 0 || end < begin)
    return error_set(error, STATUS_BAD_FILE, "tensor '%s': data_offsets are %lld, %lld", SHOW(name), (long long)begin,
                     (long long)end);
  if ((uint64_t)end > data_bytes)
    return error_set(error, STATUS_BAD_FILE, "tensor '%s' ends at byte %lld of the data, which has %llu", SHOW(name),
                     (long long)end, (unsigned long long)data_bytes);
  out->begin = data_begin + (uint64_t)begin;
  out->end = data_begin + (uint64_t)end;
  return STATUS_OK;
}

static enum status check_size(const struct safetensors_tensor *tensor, struct error *error) {
  uint64_t bits = 0;
  bool overflow = __builtin_mul_overflow(tensor->elements, (uint64_t)dtypes[tensor->dtype].bits, &bits);
  if (!overflow && bits % 8 == 0 && bits / 8 == tensor->end - tensor->begin)
    return STATUS_OK;
  return error_set(error, STATUS_BAD_FILE, "tensor '%s' at byte %llu has %llu bytes, but its shape is %llu elements %s",
                   SHOW(tensor->name), (unsigned long long)tensor->begin,
                   (unsigned long long)(tensor->end - tensor->begin), (unsigned long long)tensor->elements,
                   dtypes[tensor->dtype].name);
}

static enum status parse_tensor(const char *name, const json_t *value, uint64_t data_begin, uint64_t data_bytes,
                                struct safetensors_tensor *out, struct error *error) {
  enum status status = parse_dtype(name, json_object_get(value, "dtype"), out, error);
  if (status == STATUS_OK)
    status = parse_shape(name, json_object_get(value, "shape"), out, error);
  if (status == STATUS_OK)
    status = parse_offsets(name, json_object_get(value, "data_offsets"), data_begin, data_bytes, out, error);
  if (status != STATUS_OK)
    return status;
  out->name = strdup(name);
  if (!out->name)
    return error_set(error, STATUS_NOMEM, "no memory for the names of the tensors");
  return check_size(out, error);
}

static enum status take_metadata(const json_t *metadata, struct safetensors *file, struct error *error) {
  if (!json_is_object(metadata))
    return error_set(error, STATUS_BAD_FILE, "__metadata__ is not a map");
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)metadata, key, value) {
    if (!json_is_string(value))
      return error_set(error, STATUS_BAD_FILE, "__metadata__: '%s' is not a string", SHOW(key));
  }
  const char *text = json_string_value(json_object_get(metadata, "_quantization_metadata"));
  file->quantization = text != NULL ? strdup(text) : NULL;
  if (text != NULL && file->quantization == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the header");
  return STATUS_OK;
}

static int compare_place(const void *left, const void *right) {
  const struct safetensors_tensor *a = left, *b = right;
  if (a->begin != b->begin)
    return a->begin < b->begin ? -1 : 1;
  return a->end < b->end ? -1 : a->end > b->end;
}

/* The format's rule: the data is fully indexed. It makes two different readers see the same file. */
static enum status check_cover(struct safetensors *file, uint64_t data_begin, uint64_t file_bytes,
                               struct error *error) {
  if (file->count > 0)
    qsort(file->tensors, file->count, sizeof file->tensors[0], compare_place);
  uint64_t expected = data_begin;
  for (size_t i = 0; i < file->count; i++) {
    const struct safetensors_tensor *tensor = &file->tensors[i];
    if (tensor->begin < expected)
      return error_set(error, STATUS_BAD_FILE, "tensor '%s' at byte %llu overlaps '%s', which ends at byte %llu",
                       SHOW(tensor->name), (unsigned long long)tensor->begin, SHOW(file->tensors[i - 1].name),
                       (unsigned long long)expected);
    if (tensor->begin > expected)
      return error_set(error, STATUS_BAD_FILE, "bytes %llu to %llu before tensor '%s' belong to no tensor",
                       (unsigned long long)expected, (unsigned long long)tensor->begin, SHOW(tensor->name));
    expected = tensor->end;
  }
  if (expected != file_bytes)
    return error_set(error, STATUS_BAD_FILE, "bytes %llu to %llu at the end of the file belong to no tensor",
                     (unsigned long long)expected, (unsigned long long)file_bytes);
  return STATUS_OK;
}

static enum status parse_root(json_t *root, uint64_t data_begin, uint64_t file_bytes, struct safetensors *file,
                              struct error *error) {
  size_t size = json_object_size(root);
  if (size > LIMIT_FILE_TENSORS + 1)
    return error_set(error, STATUS_BAD_FILE, "file has %zu tensors; the most is %u", size, LIMIT_FILE_TENSORS);
  file->tensors = calloc(size + 1, sizeof file->tensors[0]);
  if (!file->tensors)
    return error_set(error, STATUS_NOMEM, "no memory for the list of tensors");
  const char *key;
  json_t *value;
  json_object_foreach(root, key, value) {
    enum status status =
        strcmp(key, "__metadata__") == 0
            ? take_metadata(value, file, error)
            : parse_tensor(key, value, data_begin, file_bytes - data_begin, &file->tensors[file->count++], error);
    if (status != STATUS_OK)
      return status;
  }
  if (file->count > LIMIT_FILE_TENSORS)
    return error_set(error, STATUS_BAD_FILE, "file has %zu tensors; the most is %u", file->count, LIMIT_FILE_TENSORS);
  return check_cover(file, data_begin, file_bytes, error);
}

/* Before any is read: a value of two bytes takes a hundred of memory then. */
static bool has_too_many_values(const char *json, size_t bytes) {
  size_t values = 0;
  bool in_text = false;
  for (size_t i = 0; i < bytes && values <= LIMIT_FILE_VALUES; i++) {
    if (json[i] == '"')
      in_text = !in_text;
    else if (in_text)
      i += json[i] == '\\';
    else
      values += json[i] == '{' || json[i] == '[' || json[i] == ',';
  }
  return values > LIMIT_FILE_VALUES;
}

enum status safetensors_parse(const char *json, uint64_t json_bytes, uint64_t file_bytes, struct safetensors *out,
                              struct error *error) {
  *out = (struct safetensors){0};
  if (json_bytes > file_bytes || SAFETENSORS_LENGTH_BYTES > file_bytes - json_bytes)
    return error_set(error, STATUS_BAD_FILE, "header of %llu bytes in a file of %llu", (unsigned long long)json_bytes,
                     (unsigned long long)file_bytes);
  if (json_bytes == 0 || json[0] != '{')
    return error_set(error, STATUS_BAD_FILE, "header at byte %d does not begin with '{'", SAFETENSORS_LENGTH_BYTES);
  if (has_too_many_values(json, (size_t)json_bytes))
    return error_set(error, STATUS_BAD_FILE, "header has more than %zu values", LIMIT_FILE_VALUES);
  json_error_t reason;
  json_t *root = json_loadb(json, (size_t)json_bytes, JSON_REJECT_DUPLICATES, &reason);
  if (!root)
    return error_set(error, STATUS_BAD_FILE, "header at byte %lld: %s",
                     (long long)SAFETENSORS_LENGTH_BYTES + reason.position, SHOW(reason.text));
  enum status status = parse_root(root, SAFETENSORS_LENGTH_BYTES + json_bytes, file_bytes, out, error);
  json_decref(root);
  if (status != STATUS_OK)
    safetensors_free(out);
  return status;
}

void safetensors_free(struct safetensors *file) {
  for (size_t i = 0; i < file->count; i++)
    free(file->tensors[i].name);
  free(file->tensors);
  free(file->quantization);
  *file = (struct safetensors){0};
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name) {
  for (size_t i = 0; i < file->count; i++)
    if (strcmp(file->tensors[i].name, name) == 0)
      return &file->tensors[i];
  return NULL;
}
