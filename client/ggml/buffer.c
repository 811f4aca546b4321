/* Memory of tensors: plain pages of this process. It counts as host memory, so that the CPU backend computes on what
 * lies in it (a KV cache, a weight that gemmd refused) and nothing is copied from backend to backend. Weights are
 * written through these functions; operations of a graph do not write to them. */
#include "gemmd_ggml.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

static struct memory *memory_of(ggml_backend_buffer_t buffer) {
  return buffer->context;
}

static void buffer_free(ggml_backend_buffer_t buffer) {
  struct memory *memory = memory_of(buffer);
  weight_forget(device_get(), memory, memory->base, buffer->size);
  if (memory->owned)
    free(memory->base);
  free(memory->open);
  free(memory->tensors);
  free(memory);
}

static void *buffer_base(ggml_backend_buffer_t buffer) {
  return memory_of(buffer)->base;
}

static enum ggml_status buffer_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor) {
  struct memory *memory = memory_of(buffer);
  if (tensor->view_src != NULL)
    return GGML_STATUS_SUCCESS;
  if (memory->tensor_count == memory->tensor_capacity) {
    size_t capacity = memory->tensor_capacity * 2 + 64;
    struct ggml_tensor **grown = realloc(memory->tensors, capacity * sizeof *grown);
    if (grown == NULL)
      return GGML_STATUS_ALLOC_FAILED;
    memory->tensors = grown;
    memory->tensor_capacity = capacity;
  }
  memory->tensors[memory->tensor_count++] = tensor;
  return GGML_STATUS_SUCCESS;
}

/* ggml lays a graph's tensors out anew before each run. */
static void buffer_reset(ggml_backend_buffer_t buffer) {
  memory_of(buffer)->tensor_count = 0;
}

/* Where bytes are to be written; what gemmd held of them is forgotten. */
static uint8_t *written(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, size_t offset, size_t bytes) {
  uint8_t *place = (uint8_t *)tensor->data + offset;
  weight_forget(device_get(), memory_of(buffer), place, bytes);
  return place;
}

static void buffer_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset,
                          size_t bytes) {
  memset(written(buffer, tensor, offset, bytes), value, bytes);
}

static void buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset,
                       size_t bytes) {
  memcpy(written(buffer, tensor, offset, bytes), data, bytes);
}

static void buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset,
                       size_t bytes) {
  memcpy(data, (const uint8_t *)tensor->data + offset, bytes);
}

static bool buffer_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *from, struct ggml_tensor *to) {
  ggml_backend_buffer_t source = from->view_src != NULL ? from->view_src->buffer : from->buffer;
  if (!ggml_backend_buffer_is_host(source) && !buffer_is_ours(source))
    return false;
  size_t bytes = ggml_nbytes(from);
  memcpy(written(buffer, to, 0, bytes), from->data, bytes);
  return true;
}

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
  struct memory *memory = memory_of(buffer);
  weight_forget(device_get(), memory, memory->base, buffer->size);
  memset(memory->base, value, buffer->size);
}

static const struct ggml_backend_buffer_i functions = {
    .free_buffer = buffer_free,
    .get_base = buffer_base,
    .init_tensor = buffer_init_tensor,
    .memset_tensor = buffer_memset,
    .set_tensor = buffer_set,
    .get_tensor = buffer_get,
    .cpy_tensor = buffer_copy,
    .clear = buffer_clear,
    .reset = buffer_reset,
};

static ggml_backend_buffer_t buffer_make(uint8_t *base, bool owned, size_t bytes) {
  struct memory *memory = base != NULL ? calloc(1, sizeof *memory) : NULL;
  if (memory == NULL) {
    if (owned)
      free(base);
    return NULL;
  }
  *memory = (struct memory){.base = base, .owned = owned};
  return ggml_backend_buffer_init(buffer_type(), functions, memory, bytes);
}

ggml_backend_buffer_t buffer_from_pointer(void *pointer, size_t bytes) {
  return buffer_make(pointer, false, bytes);
}

bool buffer_is_ours(ggml_backend_buffer_t buffer) {
  return buffer != NULL && buffer->buft == buffer_type();
}

/* ---- the type */

static const char *type_name(ggml_backend_buffer_type_t type) {
  return "GEMMD";
}

static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t bytes) {
  size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return buffer_make(aligned_alloc(ALIGNMENT, rounded > 0 ? rounded : ALIGNMENT), true, bytes);
}

static size_t type_alignment(ggml_backend_buffer_type_t type) {
  return ALIGNMENT;
}

static bool type_is_host(ggml_backend_buffer_type_t type) {
  return true;
}

ggml_backend_buffer_type_t buffer_type(void) {
  static struct ggml_backend_buffer_type type = {
      .iface =
          {
              .get_name = type_name,
              .alloc_buffer = type_alloc,
              .get_alignment = type_alignment,
              .is_host = type_is_host,
          },
  };
  return &type;
}
