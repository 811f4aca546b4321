#include "importer.h"

#include <string.h>

const struct import_entry *import_find(const struct import_model *model, const char *name) {
  size_t low = 0, high = model->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = strcmp(model->entries[middle].tensor->name, name);
    if (order == 0)
      return &model->entries[middle];
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

const struct import_entry *import_beside(const struct import_model *model, const char *name, size_t drop,
                                         const char *suffix) {
  char text[LIMIT_NAME_BYTES + 32];
  size_t length = strlen(name), kept = length < drop ? 0 : length - drop;
  if (length < drop || kept + strlen(suffix) >= sizeof text)
    return NULL;
  memcpy(text, name, kept);
  strcpy(text + kept, suffix);
  return import_find(model, text);
}

bool import_is_real(enum safetensors_dtype dtype) {
  return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

bool import_is_blocks(const struct safetensors_tensor *tensor) {
  return tensor->dtype == DTYPE_U8 && import_ends(tensor->name, "_blocks");
}

bool import_ends(const char *name, const char *suffix) {
  size_t length = strlen(name), end = strlen(suffix);
  return length >= end && strcmp(name + length - end, suffix) == 0;
}

void import_begin(struct import_weight *out, const struct importer *importer, const struct import_entry *tensor) {
  *out = (struct import_weight){
      .importer = importer, .tensor = tensor, .pack = 1, .pack_bytes = 1, .pack_rows = 1, .row_group = 1};
  size_t length = strnlen(tensor->tensor->name, sizeof out->name - 1);
  memcpy(out->name, tensor->tensor->name, length);
  out->files[out->file_count++] = tensor->file;
}

enum status import_matrix(struct import_weight *out, struct error *error) {
  const struct safetensors_tensor *tensor = out->tensor->tensor;
  if (tensor->rank != 2)
    return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' has %zu dimension%s; a weight is a matrix [N, K]",
                     IMPORT_SHOW(tensor->name), tensor->rank, plural(tensor->rank));
  if (tensor->shape[0] > INT64_MAX || tensor->shape[1] > INT64_MAX)
    return error_field(error, STATUS_TOO_LARGE, FIELD_N, INT64_MAX, 1, LIMIT_N);
  out->n = (int64_t)tensor->shape[0];
  out->k = (int64_t)tensor->shape[1];
  return STATUS_OK;
}

enum status import_add(struct import_weight *out, enum import_aux which, const struct import_entry *entry,
                       struct error *error) {
  out->aux[which] = entry;
  for (uint32_t i = 0; i < out->file_count; i++)
    if (out->files[i] == entry->file)
      return STATUS_OK;
  if (out->file_count == IMPORT_FILES)
    return error_set(error, STATUS_UNSUPPORTED, "tensors of '%s' lie in more than %d files", IMPORT_SHOW(out->name),
                     IMPORT_FILES);
  out->files[out->file_count++] = entry->file;
  return STATUS_OK;
}

enum status import_rotation(const struct safetensors_tensor *codes, int64_t group, uint32_t *input,
                            struct error *error) {
  for (uint32_t stages = 1; stages <= GEMM_ROTATE_MOST; stages++)
    if (group == (int64_t)1 << 2 * stages) {
      *input = stages * GEMM_INPUT_ROTATE;
      return STATUS_OK;
    }
  return error_set(error, STATUS_UNSUPPORTED,
                   "tensor '%s': x is rotated in groups of %lld; powers of 4 up to %d are taken",
                   IMPORT_SHOW(codes->name), (long long)group, 1 << 2 * GEMM_ROTATE_MOST);
}
