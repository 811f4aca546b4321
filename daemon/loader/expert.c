#include "expert.h"

#include <stdio.h>
#include <string.h>

#define SHOW(text_) safetensors_show(text_).text

static enum status find(const struct import_model *model, const char *name, const struct import_entry **out,
                        struct error *error) {
  *out = import_find(model, name);
  return *out != NULL ? STATUS_OK : error_set(error, STATUS_NOT_FOUND, "the file has no tensor '%s'", SHOW(name));
}

static enum status find_own(const struct import_model *model, const char *pattern, const char *place, int64_t expert,
                            const struct import_entry **out, struct error *error) {
  char name[LIMIT_NAME_BYTES];
  int length = snprintf(name, sizeof name, "%.*s%lld%s", (int)(place - pattern), pattern, (long long)expert, place + 2);
  if (length < 0 || (size_t)length >= sizeof name)
    return error_set(error, STATUS_INVALID, "'%s' is too long a name for expert %lld", SHOW(pattern),
                     (long long)expert);
  return find(model, name, out, error);
}

/* Numbers, and codes whose importer knows the part of the scales that is an expert's (gpt-oss). GGUF has them in the
 * tensor. */
static bool is_sliced(const struct safetensors_tensor *tensor) {
  return import_is_real(tensor->dtype) || tensor->dtype >= DTYPE_GGUF || import_is_blocks(tensor);
}

static enum status cut(const struct import_entry *whole, int64_t expert, struct expert_slice *slice,
                       struct error *error) {
  const struct safetensors_tensor *from = whole->tensor;
  uint64_t count = from->shape[0], rows = from->shape[1];
  if (from->rank != (import_is_blocks(from) ? 4 : 3) || from->elements == 0)
    return error_set(error, STATUS_UNSUPPORTED,
                     "tensor '%s' has %zu dimension%s; experts are [E, N, K], or {} in a name", SHOW(from->name),
                     from->rank, plural(from->rank));
  if (!is_sliced(from))
    return error_set(error, STATUS_UNSUPPORTED,
                     "tensor '%s' is %s; stacked experts are taken as F32, F16, BF16 or MXFP4", SHOW(from->name),
                     safetensors_dtype_name(from->dtype));
  if ((uint64_t)expert >= count)
    return error_set(error, STATUS_NOT_FOUND, "tensor '%s' has %llu experts, and none of number %lld", SHOW(from->name),
                     (unsigned long long)count, (long long)expert);
  uint64_t bytes = (from->end - from->begin) / count;
  slice->tensor = *from;
  slice->tensor.rank = 2;
  slice->tensor.elements = from->elements / count;
  slice->tensor.shape[0] = rows;
  slice->tensor.shape[1] = slice->tensor.elements / rows;
  slice->tensor.begin += (uint64_t)expert * bytes;
  slice->tensor.end = slice->tensor.begin + bytes;
  slice->entry =
      (struct import_entry){.tensor = &slice->tensor, .file = whole->file, .part = (uint64_t)expert, .parts = count};
  return STATUS_OK;
}

enum status expert_find(const struct import_model *model, const char *pattern, int64_t expert,
                        struct expert_slice *slice, const struct import_entry **out, struct error *error) {
  const struct import_entry *whole;
  const char *place = strstr(pattern, "{}");
  if (place != NULL)
    return find_own(model, pattern, place, expert, out, error);
  enum status status = find(model, pattern, &whole, error);
  if (status == STATUS_OK)
    status = cut(whole, expert, slice, error);
  *out = &slice->entry;
  return status;
}
