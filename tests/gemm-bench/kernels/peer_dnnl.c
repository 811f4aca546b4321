/* oneDNN: s8, bf16 and f32 products with W in the order that the library asks for. Opened at run time; its header is
 * needed to build this, and without it the peer says so. */
#include "peer.h"

#include "kernels/cpu/product/onednn/onednn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_bf16(const struct peer *peer);

static const char *dnnl_type(const struct peer *peer, enum gemm_format format) {
  switch (format) {
  case GEMM_FORMAT_INT8:
  case GEMM_FORMAT_INT2A8:
    return "s8";
  case GEMM_FORMAT_FP8:
  case GEMM_FORMAT_BF16:
    return has_bf16(peer) ? "bf16" : "f32";
  default:
    return "f32";
  }
}

static uint64_t dnnl_bytes(struct peer *peer, enum gemm_format format, int64_t n, int64_t k) {
  const char *type = dnnl_type(peer, format);
  return (uint64_t)(n * k) * (strcmp(type, "f32") == 0 ? 4 : strcmp(type, "bf16") == 0 ? 2 : 1);
}

#ifdef ONEDNN

struct peer {
  struct onednn onednn; /* owned */
  dnnl_stream_t stream; /* owned */
  bool bf16;            /* which processors without AVX-512 have no products of */
};

static bool has_bf16(const struct peer *peer) {
  return peer->bf16;
}

struct peer_weight {
  struct peer *peer;
  dnnl_primitive_t product; /* owned */
  dnnl_memory_t x, y;       /* owned */
  int copies;
  dnnl_memory_t *w; /* owned; [copies] */
};

static void dnnl_close(struct peer *peer) {
  if (peer->stream != NULL) {
    peer->onednn.stream_destroy(peer->stream);
  }
  onednn_close(&peer->onednn);
  free(peer);
}

static bool try_bf16(struct peer *peer) {
  dnnl_memory_desc_t x, w, y;
  dnnl_matmul_desc_t product;
  dnnl_primitive_desc_t made = NULL;
  const struct onednn *onednn = &peer->onednn;
  bool ok =
      onednn->memory_desc_init_by_tag(&x, 2, (dnnl_dims_t){64, 64}, dnnl_bf16, dnnl_ab) == dnnl_success &&
      onednn->memory_desc_init_by_tag(&w, 2, (dnnl_dims_t){64, 64}, dnnl_bf16, dnnl_format_tag_any) == dnnl_success &&
      onednn->memory_desc_init_by_tag(&y, 2, (dnnl_dims_t){64, 64}, dnnl_f32, dnnl_ab) == dnnl_success &&
      onednn->matmul_desc_init(&product, &x, &w, NULL, &y) == dnnl_success &&
      onednn->primitive_desc_create(&made, &product, NULL, onednn->engine, NULL) == dnnl_success;
  if (made != NULL) {
    onednn->primitive_desc_destroy(made);
  }
  return ok;
}

static struct peer *dnnl_open(const char *path, int threads, struct error *error) {
  char number[16];
  snprintf(number, sizeof(number), "%d", threads);
  setenv("OMP_NUM_THREADS", number, 1);
  struct peer *peer = calloc(1, sizeof(*peer));
  if (peer == NULL) {
    error_set(error, STATUS_NOMEM, "no memory for oneDNN");
    return NULL;
  }
  if (onednn_open(path, &peer->onednn, error) != STATUS_OK) {
    free(peer);
    return NULL;
  }
  if (peer->onednn.stream_create(&peer->stream, peer->onednn.engine, dnnl_stream_default_flags) != dnnl_success) {
    dnnl_close(peer);
    error_set(error, STATUS_UNSUPPORTED, "oneDNN does not start");
    return NULL;
  }
  peer->bf16 = try_bf16(peer);
  return peer;
}

static void release(struct peer_weight *weight) {
  struct peer *peer = weight->peer;
  for (int i = 0; i < weight->copies && weight->w != NULL; i++) {
    if (weight->w[i] != NULL) {
      peer->onednn.memory_destroy(weight->w[i]);
    }
  }
  if (weight->x != NULL) {
    peer->onednn.memory_destroy(weight->x);
  }
  if (weight->y != NULL) {
    peer->onednn.memory_destroy(weight->y);
  }
  if (weight->product != NULL) {
    peer->onednn.primitive_destroy(weight->product);
  }
  free(weight->w);
  free(weight);
}

/* Memory of the library, written with a pattern of ordinary numbers. */
static bool make_memory(struct peer *peer, const dnnl_memory_desc_t *desc, dnnl_data_type_t type, dnnl_memory_t *out) {
  if (peer->onednn.memory_create(out, desc, peer->onednn.engine, DNNL_MEMORY_ALLOCATE) != dnnl_success) {
    return false;
  }
  void *data = NULL;
  if (peer->onednn.memory_get_data_handle(*out, &data) != dnnl_success) {
    return false;
  }
  size_t bytes = peer->onednn.memory_desc_get_size(desc);
  for (size_t i = 0; i < bytes; i++) {
    uint8_t noise = (uint8_t)((i * 2654435761u) >> 13);
    bool last = type == dnnl_bf16 ? i % 2 == 1 : type == dnnl_f32 ? i % 4 == 3 : false;
    ((uint8_t *)data)[i] = last ? (uint8_t)(0x3e | (noise & 0x80)) : noise;
  }
  return true;
}

static bool make_product(struct peer_weight *weight, dnnl_data_type_t type, dnnl_data_type_t y_type, int64_t m,
                         int64_t n, int64_t k) {
  struct peer *peer = weight->peer;
  dnnl_memory_desc_t x, w, y;
  dnnl_matmul_desc_t product;
  dnnl_primitive_desc_t made = NULL;
  if (peer->onednn.memory_desc_init_by_tag(&x, 2, (dnnl_dims_t){m, k}, type, dnnl_ab) != dnnl_success ||
      peer->onednn.memory_desc_init_by_tag(&w, 2, (dnnl_dims_t){k, n}, type, dnnl_format_tag_any) != dnnl_success ||
      peer->onednn.memory_desc_init_by_tag(&y, 2, (dnnl_dims_t){m, n}, y_type, dnnl_ab) != dnnl_success ||
      peer->onednn.matmul_desc_init(&product, &x, &w, NULL, &y) != dnnl_success ||
      peer->onednn.primitive_desc_create(&made, &product, NULL, peer->onednn.engine, NULL) != dnnl_success) {
    return false;
  }
  bool ok = peer->onednn.primitive_create(&weight->product, made) == dnnl_success;
  const dnnl_memory_desc_t *own = peer->onednn.primitive_desc_query_md(made, dnnl_query_weights_md, 0);
  ok = ok && make_memory(peer, &x, type, &weight->x) && make_memory(peer, &y, dnnl_f32, &weight->y);
  for (int i = 0; ok && i < weight->copies; i++) {
    ok = make_memory(peer, own, type, &weight->w[i]);
  }
  peer->onednn.primitive_desc_destroy(made);
  return ok;
}

static struct peer_weight *prepare(struct peer *peer, enum gemm_format format, int64_t m, int64_t n, int64_t k,
                                   int copies, struct error *error) {
  const char *name = dnnl_type(peer, format);
  dnnl_data_type_t type = strcmp(name, "s8") == 0 ? dnnl_s8 : strcmp(name, "bf16") == 0 ? dnnl_bf16 : dnnl_f32;
  struct peer_weight *weight = calloc(1, sizeof(*weight));
  if (weight != NULL) {
    *weight = (struct peer_weight){.peer = peer, .copies = copies, .w = calloc((size_t)copies, sizeof(*weight->w))};
  }
  if (weight == NULL || weight->w == NULL) {
    free(weight);
    error_set(error, STATUS_NOMEM, "no memory for oneDNN's weights");
    return NULL;
  }
  if (!make_product(weight, type, type == dnnl_s8 ? dnnl_s32 : dnnl_f32, m, n, k)) {
    release(weight);
    error_set(error, STATUS_UNSUPPORTED, "oneDNN has no %s product of this size", name);
    return NULL;
  }
  return weight;
}

static bool run(struct peer_weight *weight, int copy) {
  const dnnl_exec_arg_t arguments[] = {
      {DNNL_ARG_SRC, weight->x}, {DNNL_ARG_WEIGHTS, weight->w[copy]}, {DNNL_ARG_DST, weight->y}};
  return weight->peer->onednn.primitive_execute(weight->product, weight->peer->stream, 3, arguments) == dnnl_success &&
         weight->peer->onednn.stream_wait(weight->peer->stream) == dnnl_success;
}

#else

static bool has_bf16(const struct peer *peer) {
  return true;
}

static struct peer *dnnl_open(const char *path, int threads, struct error *error) {
  error_set(error, STATUS_UNSUPPORTED, "built without the header of oneDNN 2 (libdnnl-dev)");
  return NULL;
}

static void dnnl_close(struct peer *peer) {}

static struct peer_weight *prepare(struct peer *peer, enum gemm_format format, int64_t m, int64_t n, int64_t k,
                                   int copies, struct error *error) {
  (void)peer, (void)format, (void)m, (void)n, (void)k, (void)copies, (void)error;
  return NULL;
}

static bool run(struct peer_weight *weight, int copy) {
  (void)weight, (void)copy;
  return false;
}

static void release(struct peer_weight *weight) {}

#endif

const struct peer_ops peer_dnnl = {
    .backend = "cpu",
    .name = "oneDNN",
    .open = dnnl_open,
    .close = dnnl_close,
    .type = dnnl_type,
    .bytes = dnnl_bytes,
    .prepare = prepare,
    .run = run,
    .release = release,
};
