/* A ggml backend, loaded by GGML_BACKEND_PATH: products of weights by gemmd, everything else by the others.
 *
 * gemmd is found as libgemmclient finds it: $GEMMD_SOCKET, else /run/gemmd/gemmd.sock. Where it does not answer there
 * is no device, and ggml goes on without. */
#include "gemmd_ggml.h"

#include <stdlib.h>
#include <string.h>

/* ---- a backend: where graphs are computed */

static const char *backend_name(ggml_backend_t backend) {
  return "GEMMD";
}

static void backend_free(ggml_backend_t backend) {
  free(backend);
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
  struct device *device = device_get();
  enum ggml_status result = GGML_STATUS_SUCCESS;
  pthread_mutex_lock(&device->lock);
  device->x_source = NULL;
  for (int i = 0; i < ggml_graph_n_nodes(graph) && result == GGML_STATUS_SUCCESS; i++) {
    struct ggml_tensor *node = ggml_graph_node(graph, i);
    if (node->op != GGML_OP_MUL_MAT || ggml_is_empty(node) || (node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0)
      continue; /* supports_op lets nothing else in but views */
    int status = product_compute(device, node);
    if (status != GEMMD_OK)
      result = status == GEMMD_NOMEM ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
  }
  pthread_mutex_unlock(&device->lock);
  return result;
}

static ggml_guid_t backend_guid(void) {
  static ggml_guid guid = {0x67, 0x65, 0x6d, 0x6d, 0x64, 0x2d, 0x67, 0x67,
                           0x6d, 0x6c, 0x2d, 0x30, 0x2e, 0x31, 0x2e, 0x30};
  return &guid;
}

/* ---- the device */

static const char *dev_name(ggml_backend_dev_t dev) {
  return "GEMMD";
}

static const char *dev_description(ggml_backend_dev_t dev) {
  return device_get()->description;
}

static void dev_memory(ggml_backend_dev_t dev, size_t *free_bytes, size_t *total) {
  *total = device_get()->memory_total;
  *free_bytes = device_get()->memory_total - device_get()->memory_used;
}

/* An accelerator beside the CPU: it computes some operations and leaves the rest. */
static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev) {
  return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static void dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
  props->name = dev_name(dev);
  props->description = dev_description(dev);
  props->type = dev_type(dev);
  dev_memory(dev, &props->memory_free, &props->memory_total);
  props->caps = (struct ggml_backend_dev_caps){.buffer_from_host_ptr = true, .mmap_support = true};
}

static ggml_backend_t dev_backend(ggml_backend_dev_t dev, const char *params) {
  report_begin();
  ggml_backend_t backend = calloc(1, sizeof *backend);
  if (backend != NULL)
    *backend = (struct ggml_backend){
        .guid = backend_guid(),
        .iface = {.get_name = backend_name, .free = backend_free, .graph_compute = backend_compute},
        .device = dev,
    };
  return backend;
}

static ggml_backend_buffer_type_t dev_buffer_type(ggml_backend_dev_t dev) {
  ggml_backend_buffer_type_t type = buffer_type();
  type->device = dev;
  return type;
}

static ggml_backend_buffer_t dev_buffer_from_pointer(ggml_backend_dev_t dev, void *pointer, size_t bytes,
                                                     size_t most_tensor) {
  (void)dev_buffer_type(dev);
  return buffer_from_pointer(pointer, bytes);
}

/* In memory of ours, or in none yet. */
static bool is_weight(const struct ggml_tensor *w) {
  return weight_fits(w) &&
         (w->buffer == NULL || (buffer_is_ours(w->buffer) && w->buffer->usage != GGML_BACKEND_BUFFER_USAGE_COMPUTE));
}

static bool is_product(const struct ggml_tensor *op) {
  return op->op == GGML_OP_MUL_MAT && is_weight(op->src[0]) && op->src[1]->type == GGML_TYPE_F32 &&
         ggml_is_contiguous(op->src[1]) && op->type == GGML_TYPE_F32 && ggml_is_contiguous(op);
}

/* Where a weight is to lie, ggml asks with a buffer of no size. */
static void note(const struct ggml_tensor *op, bool taken) {
  for (int i = 0; i < 2; i++) {
    const struct ggml_tensor *w = op->src[i];
    if (w != NULL && w->buffer != NULL && buffer_is_ours(w->buffer) && w->buffer->size == 0)
      taken ? report_coming() : report_left(w);
  }
}

static bool dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
  switch (op->op) {
  case GGML_OP_NONE:
  case GGML_OP_RESHAPE:
  case GGML_OP_VIEW:
  case GGML_OP_PERMUTE:
  case GGML_OP_TRANSPOSE:
    return true;
  default: {
    bool taken = is_product(op);
    note(op, taken);
    return taken;
  }
  }
}

static bool dev_supports_buffer_type(ggml_backend_dev_t dev, ggml_backend_buffer_type_t type) {
  return type == buffer_type() || ggml_backend_buft_is_host(type);
}

/* ---- the registry */

static const char *reg_name(ggml_backend_reg_t reg) {
  return "GEMMD";
}

static size_t reg_device_count(ggml_backend_reg_t reg) {
  return device_get()->session != NULL;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
  static struct ggml_backend_device dev = {
      .iface =
          {
              .get_name = dev_name,
              .get_description = dev_description,
              .get_memory = dev_memory,
              .get_type = dev_type,
              .get_props = dev_props,
              .init_backend = dev_backend,
              .get_buffer_type = dev_buffer_type,
              .buffer_from_host_ptr = dev_buffer_from_pointer,
              .supports_op = dev_supports_op,
              .supports_buft = dev_supports_buffer_type,
          },
  };
  dev.reg = reg;
  return &dev;
}

/* Before the first product: the threads are those of the engine's first graph. */
static void set_threads(ggml_backend_t backend, int threads) {
  pthread_mutex_lock(&device_get()->lock);
  device_get()->threads = threads;
  pthread_mutex_unlock(&device_get()->lock);
}

static void *reg_function(ggml_backend_reg_t reg, const char *name) {
  union {
    ggml_backend_set_n_threads_t function;
    void *address;
  } found = {.address = NULL};
  if (strcmp(name, "ggml_backend_set_n_threads") == 0)
    found.function = set_threads;
  return found.address;
}

static ggml_backend_reg_t registry(void) {
  static struct ggml_backend_reg reg = {
      .api_version = GGML_BACKEND_API_VERSION,
      .iface =
          {
              .get_name = reg_name,
              .get_device_count = reg_device_count,
              .get_device = reg_device,
              .get_proc_address = reg_function,
          },
  };
  if (device_get()->session == NULL)
    device_connect();
  return &reg;
}

GGML_BACKEND_DL_IMPL(registry)
