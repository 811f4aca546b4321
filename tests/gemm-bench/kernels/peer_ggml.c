/* ggml's own formats of 2, 4, 8 and 16 bits, rows of x quantized by it as it likes, Q4_0 in the order that it has for
 * this processor where there is one ("repacked"). Opened at run time by its path; what
 * is used of it is declared here, because it comes without headers where it is a part of something else. */
#include "peer.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of ggml's types. */
enum { F32 = 0, F16 = 1, Q4_0 = 2, Q8_0 = 8, BF16 = 30, TQ2_0 = 35 };

struct ggml_context;
struct ggml_tensor;
struct ggml_graph;
struct ggml_backend;
struct ggml_buffer;
struct ggml_buffer_type;
struct ggml_registry;
struct ggml_device;
struct ggml_init {
  size_t bytes;
  void *memory;
  bool no_data;
};

struct peer {
  void *library; /* owned */
  struct ggml_context *(*init)(struct ggml_init how);
  void (*free)(struct ggml_context *context);
  size_t (*tensor_overhead)(void);
  size_t (*graph_overhead_custom)(size_t nodes, bool gradients);
  struct ggml_tensor *(*new_tensor_2d)(struct ggml_context *context, int type, int64_t columns, int64_t rows);
  struct ggml_tensor *(*mul_mat)(struct ggml_context *context, struct ggml_tensor *w, struct ggml_tensor *x);
  struct ggml_graph *(*new_graph_custom)(struct ggml_context *context, size_t nodes, bool gradients);
  void (*build_forward_expand)(struct ggml_graph *graph, struct ggml_tensor *tensor);
  size_t (*row_size)(int type, int64_t columns);
  size_t (*quantize_chunk)(int type, const float *from, void *to, int64_t start, int64_t rows, int64_t columns,
                           const float *importance);
  struct ggml_backend *(*backend_cpu_init)(void);
  void (*backend_cpu_set_n_threads)(struct ggml_backend *backend, int threads);
  void (*backend_free)(struct ggml_backend *backend);
  int (*backend_graph_compute)(struct ggml_backend *backend, struct ggml_graph *graph);
  struct ggml_buffer *(*backend_cpu_buffer_from_ptr)(void *memory, size_t bytes);
  void (*backend_buffer_free)(struct ggml_buffer *buffer);
  int (*backend_tensor_alloc)(struct ggml_buffer *buffer, struct ggml_tensor *tensor, void *at);
  struct ggml_registry *(*backend_cpu_reg)(void);
  struct ggml_device *(*backend_reg_dev_get)(struct ggml_registry *registry, size_t index);
  void *(*backend_reg_get_proc_address)(struct ggml_registry *registry, const char *name);
  struct ggml_buffer *(*backend_buft_alloc_buffer)(struct ggml_buffer_type *type, size_t bytes);
  void *(*backend_buffer_get_base)(struct ggml_buffer *buffer);
  void (*backend_tensor_set)(struct ggml_tensor *tensor, const void *data, size_t offset, size_t bytes);
  struct ggml_backend *backend;      /* owned */
  struct ggml_buffer_type *repacked; /* where tensors are put into its own order; NULL: there is none */
};

struct peer_weight {
  struct peer *peer;
  struct ggml_context *context; /* owned */
  struct ggml_buffer *buffer;   /* owned */
  struct ggml_buffer *own;      /* owned; W in ggml's own order; NULL: it lies in `memory` */
  uint8_t *memory;              /* owned; W by W, then x, then y */
  struct ggml_graph **graphs;   /* owned; one a copy, of the context */
};

static const char *ggml_type(const struct peer *peer, enum gemm_format format) {
  switch (format) {
  case GEMM_FORMAT_INT8:
    return "q8_0";
  case GEMM_FORMAT_INT2:
  case GEMM_FORMAT_INT2A8:
    return "tq2_0";
  case GEMM_FORMAT_INT4:
  case GEMM_FORMAT_INT4A8:
    return peer->repacked != NULL ? "q4_0r" : "q4_0";
  case GEMM_FORMAT_F16:
    return "f16";
  case GEMM_FORMAT_BF16:
    return "bf16";
  default:
    return NULL;
  }
}

static int number_of(enum gemm_format format) {
  static const int numbers[GEMM_FORMATS] = {
      [GEMM_FORMAT_INT8] = Q8_0,   [GEMM_FORMAT_INT2] = TQ2_0, [GEMM_FORMAT_INT2A8] = TQ2_0, [GEMM_FORMAT_INT4] = Q4_0,
      [GEMM_FORMAT_INT4A8] = Q4_0, [GEMM_FORMAT_F16] = F16,    [GEMM_FORMAT_BF16] = BF16};
  return numbers[format];
}

static void ggml_close(struct peer *peer) {
  if (peer->backend != NULL) {
    peer->backend_free(peer->backend);
  }
  dlclose(peer->library);
  free(peer);
}

static bool load(struct peer *peer, const char *name, void *function) {
  void *symbol = dlsym(peer->library, name);
  memcpy(function, &symbol, sizeof(symbol));
  return symbol != NULL;
}

#define LOAD(name) load(peer, "ggml_" #name, &peer->name)

static bool load_functions(struct peer *peer) {
  return LOAD(init) && LOAD(free) && LOAD(tensor_overhead) && LOAD(graph_overhead_custom) && LOAD(new_tensor_2d) &&
         LOAD(mul_mat) && LOAD(new_graph_custom) && LOAD(build_forward_expand) && LOAD(row_size) &&
         LOAD(quantize_chunk) && LOAD(backend_cpu_init) && LOAD(backend_cpu_set_n_threads) && LOAD(backend_free) &&
         LOAD(backend_graph_compute) && LOAD(backend_cpu_buffer_from_ptr) && LOAD(backend_buffer_free) &&
         LOAD(backend_tensor_alloc);
}

/* The first of the buffers that the CPU has beside its own; a library without them is fine. */
static struct ggml_buffer_type *find_repacked(struct peer *peer) {
  if (!LOAD(backend_cpu_reg) || !LOAD(backend_reg_dev_get) || !LOAD(backend_reg_get_proc_address) ||
      !LOAD(backend_buft_alloc_buffer) || !LOAD(backend_buffer_get_base) || !LOAD(backend_tensor_set)) {
    return NULL;
  }
  struct ggml_registry *registry = peer->backend_cpu_reg();
  struct ggml_buffer_type **(*extra)(struct ggml_device * device) = NULL;
  void *symbol = peer->backend_reg_get_proc_address(registry, "ggml_backend_dev_get_extra_bufts");
  memcpy(&extra, &symbol, sizeof(extra));
  struct ggml_buffer_type **types = extra != NULL ? extra(peer->backend_reg_dev_get(registry, 0)) : NULL;
  return types != NULL ? types[0] : NULL;
}

static struct peer *ggml_open(const char *path, int threads, struct error *error) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    error_set(error, STATUS_UNSUPPORTED, "ggml cannot be opened: %s", dlerror());
    return NULL;
  }
  struct peer *peer = calloc(1, sizeof(*peer));
  if (peer == NULL) {
    dlclose(library);
    error_set(error, STATUS_NOMEM, "no memory for ggml");
    return NULL;
  }
  peer->library = library;
  if (!load_functions(peer) || (peer->backend = peer->backend_cpu_init()) == NULL) {
    ggml_close(peer);
    error_set(error, STATUS_UNSUPPORTED, "%s is not the CPU library of ggml", path);
    return NULL;
  }
  peer->backend_cpu_set_n_threads(peer->backend, threads);
  peer->repacked = find_repacked(peer);
  return peer;
}

static uint64_t ggml_bytes(struct peer *peer, enum gemm_format format, int64_t n, int64_t k) {
  int block = gemm_is_int2(format) ? 256 : gemm_is_wide(format) ? 1 : 32;
  bool alike = ggml_type(peer, format) != NULL && k % block == 0;
  return alike ? (uint64_t)n * peer->row_size(number_of(format), k) : 0;
}

static void release(struct peer_weight *weight) {
  struct peer *peer = weight->peer;
  if (weight->buffer != NULL) {
    peer->backend_buffer_free(weight->buffer);
  }
  if (weight->own != NULL) {
    peer->backend_buffer_free(weight->own);
  }
  if (weight->context != NULL) {
    peer->free(weight->context);
  }
  free(weight->memory);
  free(weight->graphs);
  free(weight);
}

/* Rows of W are all alike: what they hold changes no time. */
static bool fill(struct peer_weight *weight, int type, int64_t rows, int64_t m, int64_t k, float *x) {
  size_t row_bytes = weight->peer->row_size(type, k);
  for (int64_t i = 0; i < m * k; i++) {
    x[i] = (float)((int)((uint64_t)i * 2654435761u >> 13 & 2047) - 1023) / 512;
  }
  bool ok = weight->peer->quantize_chunk(type, x, weight->memory, 0, 1, k, NULL) == row_bytes;
  for (int64_t row = 1; row < rows; row++) {
    memcpy(weight->memory + (size_t)row * row_bytes, weight->memory, row_bytes);
  }
  return ok;
}

/* All products write the same y. */
static bool make_graphs(struct peer_weight *weight, int type, int64_t m, int64_t n, int64_t k, int copies,
                        uint8_t *x_at, uint8_t *y_at) {
  struct peer *peer = weight->peer;
  size_t w_bytes = (size_t)n * peer->row_size(type, k);
  struct ggml_tensor *x = peer->new_tensor_2d(weight->context, F32, k, m);
  bool ok = peer->backend_tensor_alloc(weight->buffer, x, x_at) == 0;
  for (int i = 0; ok && i < copies; i++) {
    struct ggml_tensor *w = peer->new_tensor_2d(weight->context, type, k, n);
    struct ggml_tensor *y = peer->mul_mat(weight->context, w, x);
    uint8_t *from = weight->memory + (size_t)i * w_bytes;
    uint8_t *own =
        weight->own != NULL ? (uint8_t *)peer->backend_buffer_get_base(weight->own) + (size_t)i * w_bytes : NULL;
    ok = peer->backend_tensor_alloc(own != NULL ? weight->own : weight->buffer, w, own != NULL ? own : from) == 0 &&
         peer->backend_tensor_alloc(weight->buffer, y, y_at) == 0;
    if (ok && own != NULL) {
      peer->backend_tensor_set(w, from, 0, w_bytes);
    }
    weight->graphs[i] = peer->new_graph_custom(weight->context, 8, false);
    peer->build_forward_expand(weight->graphs[i], y);
  }
  return ok;
}

static struct peer_weight *prepare(struct peer *peer, enum gemm_format format, int64_t m, int64_t n, int64_t k,
                                   int copies, struct error *error) {
  int type = number_of(format);
  size_t w_bytes = gemm_round_up((uint64_t)copies * ggml_bytes(peer, format, n, k), 4096);
  size_t x_bytes = gemm_round_up((uint64_t)(m * k) * sizeof(float), 4096);
  size_t bytes = w_bytes + x_bytes + gemm_round_up((uint64_t)(m * n) * sizeof(float), 4096);
  size_t copy_bytes = 2 * peer->tensor_overhead() + peer->graph_overhead_custom(8, false) + 256;
  struct peer_weight *weight = calloc(1, sizeof(*weight));
  if (weight == NULL) {
    error_set(error, STATUS_NOMEM, "no memory for ggml's weights");
    return NULL;
  }
  *weight = (struct peer_weight){
      .peer = peer,
      .context = peer->init((struct ggml_init){.bytes = (size_t)copies * copy_bytes + 65536, .no_data = true}),
      .memory = aligned_alloc(4096, bytes),
      .graphs = calloc((size_t)copies, sizeof(struct ggml_graph *))};
  if (weight->memory != NULL) {
    weight->buffer = peer->backend_cpu_buffer_from_ptr(weight->memory, bytes);
  }
  bool repacks = type == Q4_0 && peer->repacked != NULL;
  if (repacks) {
    weight->own = peer->backend_buft_alloc_buffer(peer->repacked, w_bytes);
  }
  uint8_t *x = weight->memory + w_bytes;
  if (weight->context == NULL || weight->buffer == NULL || weight->graphs == NULL || (repacks && weight->own == NULL) ||
      !fill(weight, type, n * copies, m, k, (float *)x) ||
      !make_graphs(weight, type, m, n, k, copies, x, x + x_bytes)) {
    release(weight);
    error_set(error, STATUS_NOMEM, "no memory for ggml's weights");
    return NULL;
  }
  return weight;
}

static bool run(struct peer_weight *weight, int copy) {
  return weight->peer->backend_graph_compute(weight->peer->backend, weight->graphs[copy]) == 0;
}

const struct peer_ops peer_ggml = {
    .backend = "cpu",
    .name = "ggml",
    .open = ggml_open,
    .close = ggml_close,
    .type = ggml_type,
    .bytes = ggml_bytes,
    .prepare = prepare,
    .run = run,
    .release = release,
};
