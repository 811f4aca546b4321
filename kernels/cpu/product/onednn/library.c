#include "library.h"

#include "onednn.h"

const struct variant_family cpu_family_onednn = {.name = "onednn", .library = true};

#if defined(__x86_64__) && defined(ONEDNN)

#include "../../../../proto/number.h"
#include "../../weight/weight.h"
#include "../epilogue.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  PRODUCTS = 8, /* numbers of rows that a weight's primitives are kept for */
  IDLE_S = 30,  /* without a product, after which a copy makes room for another */
};

struct cpu_library {
  struct onednn onednn; /* owned */
  int threads;
  struct share *shares; /* owned; [threads] */
  uint64_t limit;
  pthread_mutex_t lock;  /* of what follows: weights are detached by another thread than products are computed by */
  _Atomic uint64_t used; /* bytes of copies; read by others without the lock */
  struct library_copy *copies;
};

/* What a thread has of its own. */
struct share {
  dnnl_stream_t stream; /* owned */
  void *sums;           /* owned */
  uint64_t sums_bytes;
  bool failed; /* to multiply its columns */
};

struct product {
  int64_t rows;               /* 0: none */
  dnnl_primitive_t primitive; /* owned */
  dnnl_memory_t x, y;         /* owned; their data is not */
};

/* A thread's columns. */
struct columns {
  int64_t first_panel, end_panel, count;
  dnnl_memory_desc_t w_desc;
  dnnl_memory_t w; /* owned, with its data */
  struct product products[PRODUCTS];
};

struct library_copy {
  struct backend_weight *weight;
  struct library_copy *other; /* the next of all */
  int64_t used_s;             /* when a product last used it */
  uint64_t bytes;
  int next; /* place of `products` that makes room for another */
  int parts;
  struct columns columns[];
};

/* ---- the library */

void cpu_library_close(struct cpu_library *library) {
  if (library == NULL) {
    return;
  }
  for (int i = 0; i < library->threads && library->shares != NULL; i++) {
    if (library->shares[i].stream != NULL) {
      library->onednn.stream_destroy(library->shares[i].stream);
    }
    free(library->shares[i].sums);
  }
  free(library->shares);
  pthread_mutex_destroy(&library->lock);
  onednn_close(&library->onednn);
  free(library);
}

static bool make_streams(struct cpu_library *library) {
  const struct onednn *onednn = &library->onednn;
  bool ok = true;
  for (int i = 0; ok && i < library->threads; i++) {
    ok = onednn->stream_create(&library->shares[i].stream, onednn->engine, dnnl_stream_default_flags) == dnnl_success;
  }
  return ok;
}

enum status cpu_library_open(int threads, uint64_t bytes, struct cpu_library **out, struct error *error) {
  struct onednn onednn;
  struct error absent;
  *out = NULL;
  if (bytes == 0 || !__builtin_cpu_supports("avx512vnni") || onednn_open(NULL, &onednn, &absent) != STATUS_OK) {
    return STATUS_OK;
  }
  struct cpu_library *library = calloc(1, sizeof(*library));
  struct share *shares = calloc((size_t)threads, sizeof(*shares));
  if (library == NULL || shares == NULL) {
    free(library);
    free(shares);
    onednn_close(&onednn);
    return error_set(error, STATUS_NOMEM, "no memory for oneDNN");
  }
  *library = (struct cpu_library){.onednn = onednn, .threads = threads, .limit = bytes, .shares = shares};
  pthread_mutex_init(&library->lock, NULL);
  if (!make_streams(library)) { /* another build of it, which is as if there were none */
    cpu_library_close(library);
    return STATUS_OK;
  }
  *out = library;
  return STATUS_OK;
}

const char *cpu_library_name(const struct cpu_library *library, char out[CPU_LIBRARY_NAME_BYTES]) {
  const dnnl_version_t *version = library != NULL ? library->onednn.version() : NULL;
  out[0] = 0;
  if (version != NULL) {
    snprintf(out, CPU_LIBRARY_NAME_BYTES, " onednn %d.%d.%d", version->major, version->minor, version->patch);
  }
  return out;
}

enum status cpu_library_takes(const struct cpu_library *library, const struct gemm_weight *shape, enum micro_kind kind,
                              struct error *error) {
  if (library == NULL) {
    return error_set(error, STATUS_UNSUPPORTED, "oneDNN is not in use: absent, its copies have no room, or no VNNI");
  }
  bool alike = shape->format == GEMM_FORMAT_INT8 || shape->format == GEMM_FORMAT_BF16 ||
               (shape->format == GEMM_FORMAT_FP8 && shape->scale != GEMM_SCALE_BLOCK);
  uint64_t element = shape->format == GEMM_FORMAT_INT8 ? 1 : 2, bytes = (uint64_t)(shape->n * shape->k) * element;
  if (!alike || (kind != MICRO_INTEGER && kind != MICRO_BF16)) {
    return error_set(error, STATUS_UNSUPPORTED, "oneDNN takes INT8, BF16, and FP8 without block scales, as bf16");
  }
  if (bytes > library->limit) {
    return error_set(error, STATUS_UNSUPPORTED, "a copy of %" PRIu64 " bytes is over the limit of %" PRIu64, bytes,
                     library->limit);
  }
  return STATUS_OK;
}

int64_t cpu_library_rows(int64_t rows) {
  return variant_bucket(rows);
}

/* ---- a weight's copy */

static void free_product(struct cpu_library *library, struct product *product) {
  if (product->x != NULL) {
    library->onednn.memory_destroy(product->x);
  }
  if (product->y != NULL) {
    library->onednn.memory_destroy(product->y);
  }
  if (product->primitive != NULL) {
    library->onednn.primitive_destroy(product->primitive);
  }
  *product = (struct product){0};
}

static void free_copy(struct cpu_library *library, struct library_copy *copy) {
  for (int i = 0; i < copy->parts; i++) {
    for (int j = 0; j < PRODUCTS; j++) {
      free_product(library, &copy->columns[i].products[j]);
    }
    if (copy->columns[i].w != NULL) {
      library->onednn.memory_destroy(copy->columns[i].w);
    }
  }
  free(copy);
}

/* Takes a copy out of the list, with the lock held. */
static void drop(struct cpu_library *library, struct library_copy *copy) {
  struct library_copy **at = &library->copies;
  while (*at != copy) {
    at = &(*at)->other;
  }
  *at = copy->other;
  copy->weight->copy = NULL;
  library->used -= copy->bytes;
  free_copy(library, copy);
}

void cpu_library_forget(struct cpu_library *library, struct backend_weight *weight) {
  if (library != NULL) {
    pthread_mutex_lock(&library->lock);
    if (weight->copy != NULL) {
      drop(library, weight->copy);
    }
    pthread_mutex_unlock(&library->lock);
  }
}

uint64_t cpu_library_used(const struct cpu_library *library) {
  return library != NULL ? atomic_load_explicit(&library->used, memory_order_relaxed) : 0;
}

static int64_t now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec;
}

/* Whether so many bytes more are within the limit, without copies that nobody has used for a while. */
static bool make_room(struct cpu_library *library, uint64_t bytes) {
  int64_t now = now_s();
  pthread_mutex_lock(&library->lock);
  for (struct library_copy *copy = library->copies, *other; copy != NULL && library->used + bytes > library->limit;
       copy = other) {
    other = copy->other;
    if (now - copy->used_s > IDLE_S) {
      drop(library, copy);
    }
  }
  bool room = library->used + bytes <= library->limit;
  pthread_mutex_unlock(&library->lock);
  return room;
}

static void keep(struct cpu_library *library, struct library_copy *copy) {
  pthread_mutex_lock(&library->lock);
  copy->other = library->copies;
  library->copies = copy;
  library->used += copy->bytes;
  copy->weight->copy = copy;
  pthread_mutex_unlock(&library->lock);
}

static dnnl_data_type_t type_of(const struct stage *stage) {
  return stage->kind == MICRO_INTEGER ? dnnl_s8 : dnnl_bf16;
}

/* Elements of the stage from one row to the next, and in a row. */
static int64_t per_dword(const struct stage *stage) {
  return stage->kind == MICRO_INTEGER ? 4 : 2;
}

/* A product of `rows` rows; `w`: in the order that the library likes where it says `any`. */
static bool describe(struct cpu_library *library, const struct stage *stage, int64_t rows, int64_t n,
                     const dnnl_memory_desc_t *w, dnnl_primitive_desc_t *out, dnnl_memory_desc_t *x,
                     dnnl_memory_desc_t *y) {
  dnnl_matmul_desc_t product;
  dnnl_data_type_t sum = stage->kind == MICRO_INTEGER ? dnnl_s32 : dnnl_f32;
  return library->onednn.memory_desc_init_by_strides(x, 2, (dnnl_dims_t){rows, stage->k}, type_of(stage),
                                                     (dnnl_dims_t){stage->stride * per_dword(stage), 1}) ==
             dnnl_success &&
         library->onednn.memory_desc_init_by_tag(y, 2, (dnnl_dims_t){rows, n}, sum, dnnl_ab) == dnnl_success &&
         library->onednn.matmul_desc_init(&product, x, w, NULL, y) == dnnl_success &&
         library->onednn.primitive_desc_create(out, &product, NULL, library->onednn.engine, NULL) == dnnl_success;
}

/* Rows of W, [count][k], as they would be without panels. */
static void *unpack(const struct backend_weight *weight, const struct stage *stage, const struct columns *columns) {
  int64_t width = weight->layout.width, k_count = stage->k;
  bool integer = stage->kind == MICRO_INTEGER;
  uint8_t *rows = calloc((size_t)(columns->count * k_count), integer ? 1 : 2);
  for (int64_t i = 0; rows != NULL && i < columns->count; i++) {
    int64_t panel = columns->first_panel + i / width, column = i % width;
    int64_t panel_width = cpu_layout_width(&weight->layout, &weight->shape, panel);
    const uint8_t *at = cpu_weight_panel(weight, panel, 0);
    int8_t *codes = (int8_t *)rows + i * k_count;
    uint16_t *halves = (uint16_t *)rows + i * k_count;
    for (int64_t k = 0; k < k_count && integer; k++) {
      codes[k] = (int8_t)(at[(k / 4 * panel_width + column) * 4 + k % 4] ^ 0x80);
    }
    for (int64_t k = 0; k < weight->shape.k && !integer; k++) {
      halves[k] = number_to_bf16((float)cpu_weight_code(weight, panel * width + column, k));
    }
  }
  return rows;
}

static bool reorder(struct cpu_library *library, dnnl_stream_t stream, const dnnl_memory_desc_t *from_desc, void *rows,
                    struct columns *columns) {
  dnnl_primitive_desc_t desc = NULL;
  dnnl_primitive_t primitive = NULL;
  dnnl_memory_t from = NULL;
  bool ok = library->onednn.memory_create(&from, from_desc, library->onednn.engine, rows) == dnnl_success &&
            library->onednn.memory_create(&columns->w, &columns->w_desc, library->onednn.engine,
                                          DNNL_MEMORY_ALLOCATE) == dnnl_success &&
            library->onednn.reorder_primitive_desc_create(&desc, from_desc, library->onednn.engine, &columns->w_desc,
                                                          library->onednn.engine, NULL) == dnnl_success &&
            library->onednn.primitive_create(&primitive, desc) == dnnl_success;
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, columns->w}};
  ok = ok && library->onednn.primitive_execute(primitive, stream, 2, arguments) == dnnl_success &&
       library->onednn.stream_wait(stream) == dnnl_success;
  if (primitive != NULL) {
    library->onednn.primitive_destroy(primitive);
  }
  if (desc != NULL) {
    library->onednn.primitive_desc_destroy(desc);
  }
  if (from != NULL) {
    library->onednn.memory_destroy(from);
  }
  return ok;
}

static bool fill_columns(struct cpu_library *library, const struct backend_weight *weight, const struct stage *stage,
                         int64_t rows, struct columns *columns, uint64_t *bytes) {
  dnnl_dims_t dims = {stage->k, columns->count};
  dnnl_memory_desc_t any, plain, x, y;
  dnnl_primitive_desc_t desc = NULL;
  if (library->onednn.memory_desc_init_by_tag(&any, 2, dims, type_of(stage), dnnl_format_tag_any) != dnnl_success ||
      library->onednn.memory_desc_init_by_tag(&plain, 2, dims, type_of(stage), dnnl_ba) != dnnl_success ||
      !describe(library, stage, rows, columns->count, &any, &desc, &x, &y)) {
    return false;
  }
  columns->w_desc = *library->onednn.primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
  library->onednn.primitive_desc_destroy(desc);
  *bytes += library->onednn.memory_desc_get_size(&columns->w_desc);
  void *plain_rows = unpack(weight, stage, columns);
  bool ok = plain_rows != NULL && reorder(library, library->shares[0].stream, &plain, plain_rows, columns);
  free(plain_rows);
  return ok;
}

static enum status make_copy(struct cpu_library *library, struct backend_weight *weight, const struct stage *stage,
                             int64_t rows, struct error *error) {
  int parts = library->threads;
  uint64_t about = (uint64_t)(weight->shape.n * stage->k) * (stage->kind == MICRO_INTEGER ? 1 : 2);
  if (!make_room(library, about)) {
    return error_set(error, STATUS_NOMEM, "copies of weights for oneDNN are limited to %" PRIu64 " bytes",
                     library->limit);
  }
  struct library_copy *copy = calloc(1, sizeof(*copy) + (size_t)parts * sizeof(struct columns));
  if (copy == NULL) {
    return error_set(error, STATUS_NOMEM, "no memory for oneDNN's copy of a weight");
  }
  bool ok = true;
  copy->weight = weight;
  for (int i = 0; i < parts && ok; i++) {
    struct columns *columns = &copy->columns[copy->parts++];
    int64_t width = weight->layout.width, end;
    columns->first_panel = weight->layout.panels * i / parts;
    columns->end_panel = weight->layout.panels * (i + 1) / parts;
    end = columns->end_panel * width < weight->shape.n ? columns->end_panel * width : weight->shape.n;
    columns->count = end - columns->first_panel * width;
    ok = columns->count <= 0 || fill_columns(library, weight, stage, rows, columns, &copy->bytes);
  }
  if (!ok) {
    free_copy(library, copy);
    return error_set(error, STATUS_NOMEM, "oneDNN has no copy of a weight");
  }
  keep(library, copy);
  return STATUS_OK;
}

/* ---- products */

static const struct product *find(const struct columns *columns, int64_t rows) {
  for (int i = 0; i < PRODUCTS; i++) {
    if (columns->products[i].rows == rows) {
      return &columns->products[i];
    }
  }
  return NULL;
}

static bool make_product(struct cpu_library *library, const struct stage *stage, int64_t rows, struct columns *columns,
                         struct product *out) {
  dnnl_memory_desc_t x, y;
  dnnl_primitive_desc_t desc = NULL;
  if (!describe(library, stage, rows, columns->count, &columns->w_desc, &desc, &x, &y)) {
    return false;
  }
  free_product(library, out);
  bool ok = library->onednn.primitive_create(&out->primitive, desc) == dnnl_success &&
            library->onednn.memory_create(&out->x, &x, library->onednn.engine, DNNL_MEMORY_NONE) == dnnl_success &&
            library->onednn.memory_create(&out->y, &y, library->onednn.engine, DNNL_MEMORY_NONE) == dnnl_success;
  library->onednn.primitive_desc_destroy(desc);
  out->rows = ok ? rows : 0;
  return ok;
}

static bool reserve(struct share *share, uint64_t bytes) {
  if (bytes > share->sums_bytes) {
    void *sums = aligned_alloc(64, gemm_round_up(bytes, 64));
    if (sums == NULL) {
      return false;
    }
    free(share->sums);
    share->sums = sums;
    share->sums_bytes = bytes;
  }
  return true;
}

/* Whether what was prepared last would make room for what comes next, which the same product may want as well. */
static bool is_next(const struct library_copy *copy, int64_t rows) {
  for (int i = 0; i < copy->parts; i++) {
    if (copy->columns[i].products[copy->next].rows == rows) {
      return true;
    }
  }
  return false;
}

enum status cpu_library_prepare(struct cpu_library *library, struct backend_weight *weight, const struct stage *stage,
                                int64_t rows, struct error *error) {
  rows = cpu_library_rows(rows);
  library->onednn.omp_set_num_threads(1);
  enum status status = weight->copy == NULL ? make_copy(library, weight, stage, rows, error) : STATUS_OK;
  if (status != STATUS_OK) {
    return status;
  }
  struct library_copy *copy = weight->copy;
  copy->used_s = now_s();
  bool ok = true;
  for (int i = 0; i < copy->parts && ok; i++) {
    struct columns *columns = &copy->columns[i];
    if (columns->count <= 0) {
      continue;
    }
    ok = reserve(&library->shares[i], (uint64_t)(rows * columns->count) * sizeof(float));
    if (ok && find(columns, rows) == NULL) {
      ok = make_product(library, stage, rows, columns, &columns->products[copy->next]);
    }
  }
  for (int i = 0; i < PRODUCTS && is_next(copy, rows); i++) {
    copy->next = (copy->next + 1) % PRODUCTS;
  }
  return ok ? STATUS_OK : error_set(error, STATUS_NOMEM, "oneDNN has no product of %" PRId64 " rows", rows);
}

/* [rows][count] sums, through the same epilogue as our own. */
static void finish(const struct columns *columns, const struct micro_ops *micro, const struct backend_job *job,
                   const struct stage *stage, int64_t first, int64_t rows, const float *sums) {
  float some[MICRO_ROWS][MICRO_WIDTH];
  struct epilogue epilogue;
  int64_t width = job->weight->layout.width;
  for (int64_t panel = columns->first_panel; panel < columns->end_panel; panel++) {
    const float *from = sums + (panel - columns->first_panel) * width;
    cpu_epilogue_begin(&epilogue, micro, job, stage, first, panel, stage->kind == MICRO_INTEGER, false);
    for (int64_t row = 0; row < rows; row += MICRO_ROWS) {
      int64_t count = rows - row < MICRO_ROWS ? rows - row : MICRO_ROWS;
      for (int64_t i = 0; i < count; i++) {
        memcpy(some[i], from + (row + i) * columns->count, (size_t)epilogue.columns * sizeof(float));
      }
      cpu_epilogue_rows(&epilogue, row, count, some);
    }
  }
}

void cpu_library_part(struct cpu_library *library, const struct micro_ops *micro, const struct backend_job *job,
                      const struct stage *stage, int64_t first, int64_t rows, int part) {
  const struct columns *columns = &job->weight->copy->columns[part];
  struct share *share = &library->shares[part];
  if (columns->count <= 0) {
    return;
  }
  const struct product *product = find(columns, cpu_library_rows(rows));
  const dnnl_exec_arg_t arguments[] = {
      {DNNL_ARG_SRC, product->x}, {DNNL_ARG_WEIGHTS, columns->w}, {DNNL_ARG_DST, product->y}};
  library->onednn.omp_set_num_threads(1);
  library->onednn.memory_set_data_handle(product->x, stage->values);
  library->onednn.memory_set_data_handle(product->y, share->sums);
  if (library->onednn.primitive_execute(product->primitive, share->stream, 3, arguments) != dnnl_success ||
      library->onednn.stream_wait(share->stream) != dnnl_success) {
    share->failed = true;
    return;
  }
  finish(columns, micro, job, stage, first, rows, share->sums);
}

bool cpu_library_failed(struct cpu_library *library) {
  bool failed = false;
  for (int i = 0; i < library->threads; i++) {
    failed = failed || library->shares[i].failed;
    library->shares[i].failed = false;
  }
  return failed;
}

#else

enum status cpu_library_open(int threads, uint64_t bytes, struct cpu_library **out, struct error *error) {
  (void)threads, (void)bytes, (void)error;
  *out = NULL;
  return STATUS_OK;
}

void cpu_library_close(struct cpu_library *library) {}

const char *cpu_library_name(const struct cpu_library *library, char out[CPU_LIBRARY_NAME_BYTES]) {
  out[0] = 0;
  return out;
}

enum status cpu_library_takes(const struct cpu_library *library, const struct gemm_weight *shape, enum micro_kind kind,
                              struct error *error) {
  (void)library, (void)shape, (void)kind;
  return error_set(error, STATUS_UNSUPPORTED, "built without the header of oneDNN 2 (libdnnl-dev)");
}

int64_t cpu_library_rows(int64_t rows) {
  return rows;
}

enum status cpu_library_prepare(struct cpu_library *library, struct backend_weight *weight, const struct stage *stage,
                                int64_t rows, struct error *error) {
  (void)library, (void)weight, (void)stage, (void)rows;
  return error_set(error, STATUS_UNSUPPORTED, "built without the header of oneDNN 2 (libdnnl-dev)");
}

void cpu_library_part(struct cpu_library *library, const struct micro_ops *micro, const struct backend_job *job,
                      const struct stage *stage, int64_t first, int64_t rows, int part) {
  (void)library, (void)micro, (void)job, (void)stage, (void)first, (void)rows, (void)part;
}

bool cpu_library_failed(struct cpu_library *library) {
  return false;
}

void cpu_library_forget(struct cpu_library *library, struct backend_weight *weight) {
  (void)library, (void)weight;
}

uint64_t cpu_library_used(const struct cpu_library *library) {
  return 0;
}

#endif
