/* The same product inside one process, with no daemon: what gemm-bench compares gemmd with.
 *
 *   gemm-inprocess BACKEND FORMAT SCALE N K M X_TYPE Y_TYPE SECONDS
 *
 * Computes with a random weight in the best way that is known (the backend by itself: on a GPU, x read by the quantizer
 * from mapped memory, y written there by the kernel, the end seen in a polled word), and on a GPU in the obvious way as
 * well, in turns. Prints one JSON object of microseconds: {best: {p50, p99}, obvious: {p50, p99}, kernel, kernels}, the
 * last two being the product alone, and with its quantizer. */
#include "inprocess.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { CALLS_MOST = 1 << 18, TURN = 200 };

struct times {
  uint32_t *ns; /* owned */
  size_t count;
};

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_value(const void *left, const void *right) {
  uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
  return a < b ? -1 : a > b;
}

static void print_times(const char *name, struct times *times) {
  qsort(times->ns, times->count, sizeof *times->ns, by_value);
  printf("\"%s\": {\"p50\": %.3f, \"p99\": %.3f}", name, times->ns[times->count / 2] / 1e3,
         times->ns[times->count * 99 / 100] / 1e3);
}

/* ---- the backend by itself */

struct best {
  const struct backend_ops *ops;
  struct backend *backend;
  struct backend_arena *arena;
  struct backend_slab *slab;
  struct backend_job job;
};

static enum status best_call(struct best *best, struct error *error) {
  struct backend_done done;
  enum status status = best->ops->submit(best->backend, &best->job, error);
  while (status == STATUS_OK && best->ops->poll(best->backend, &done, 1) == 0)
    ;
  return status == STATUS_OK && done.status != STATUS_OK ? error_set(error, done.status, "the product failed") : status;
}

static enum status place_weight(struct best *best, const struct inprocess_request *request, struct error *error) {
  struct backend_info info;
  struct backend_plan plan;
  int fd;
  best->ops->describe(best->backend, &info);
  enum status status = best->ops->weight_plan(best->backend, &request->shape, &plan, error);
  if (status == STATUS_OK)
    status = best->ops->slab_create(best->backend, gemm_round_up(plan.bytes, info.slab_granularity), &fd, &best->slab,
                                    error);
  if (status == STATUS_OK)
    status = best->ops->weight_store(best->backend, &request->shape, request->canonical, best->slab, 0, error);
  if (status == STATUS_OK)
    status =
        best->ops->weight_attach(best->backend, &request->shape, plan.layout, best->slab, 0, &best->job.weight, error);
  return status;
}

/* The process ends with it: nothing is given back. */
static enum status best_open(struct best *best, const char *name, const struct inprocess_request *request,
                             struct error *error) {
  struct backend_config config = {.in_flight = 2};
  char reason[256];
  uint64_t x_row = (uint64_t)request->shape.k * gemm_type_bytes(request->x_type);
  uint64_t y_row = (uint64_t)request->shape.n * gemm_type_bytes(request->y_type);
  uint64_t y_at = gemm_round_up((uint64_t)request->m * x_row, 4096);
  uint64_t bytes = gemm_round_up(y_at + (uint64_t)request->m * y_row, 4096);
  best->ops = backend_choose(name, &config, reason, sizeof reason, error);
  if (best->ops == NULL)
    return error->status;
  enum status status = best->ops->open(&config, &best->backend, error);
  if (status == STATUS_OK)
    status = place_weight(best, request, error);
  uint8_t *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (status == STATUS_OK && base == MAP_FAILED)
    status = error_set(error, STATUS_NOMEM, "no memory for the tensors");
  if (status == STATUS_OK)
    status = best->ops->arena_register(best->backend, base, bytes, &best->arena, error);
  if (status != STATUS_OK)
    return status;
  memcpy(base, request->x, (uint64_t)request->m * x_row);
  best->job.arena = best->arena;
  best->job.m = request->m;
  best->job.x_type = request->x_type;
  best->job.y_type = request->y_type;
  best->job.x = base;
  best->job.y = base + y_at;
  best->job.x_stride = x_row;
  best->job.y_stride = y_row;
  return STATUS_OK;
}

/* ---- in turns */

static enum status time_turn(struct best *best, struct inprocess_obvious *obvious, struct times *times,
                             struct error *error) {
  for (int i = 0; i < TURN && times->count < CALLS_MOST; i++) {
    uint64_t begin = now_ns();
    enum status status = best != NULL ? best_call(best, error) : obvious_call(obvious, error);
    uint64_t ns = now_ns() - begin;
    if (status != STATUS_OK)
      return status;
    times->ns[times->count++] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
  }
  return STATUS_OK;
}

static enum status run(const char *backend, const struct inprocess_request *request, double seconds,
                       struct error *error) {
  struct best best = {.ops = NULL};
  struct inprocess_obvious *obvious = NULL;
  struct times best_times = {.ns = calloc(CALLS_MOST, sizeof(uint32_t))};
  struct times obvious_times = {.ns = calloc(CALLS_MOST, sizeof(uint32_t))};
  double product_ns = 0, both_ns = 0;
  if (best_times.ns == NULL || obvious_times.ns == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the times");
  enum status status = best_open(&best, backend, request, error);
  if (status == STATUS_OK && strcmp(best.ops->name, "cuda") == 0)
    status = obvious_open(request, &obvious, error);
  if (status == STATUS_OK && obvious != NULL)
    status = obvious_kernel(obvious, &product_ns, &both_ns, error);
  uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
  for (unsigned turn = 0; status == STATUS_OK && (turn < 4 || now_ns() < end); turn++) {
    status = time_turn(&best, NULL, &best_times, error);
    if (status == STATUS_OK && obvious != NULL)
      status = time_turn(NULL, obvious, &obvious_times, error);
    if (turn == 0) /* the first calls load code and wake clocks */
      best_times.count = obvious_times.count = 0;
  }
  if (status != STATUS_OK)
    return status;
  printf("{");
  print_times("best", &best_times);
  if (obvious != NULL) {
    printf(", ");
    print_times("obvious", &obvious_times);
    printf(", \"kernel\": %.3f, \"kernels\": %.3f", product_ns / 1e3, both_ns / 1e3);
  }
  printf("}\n");
  return STATUS_OK;
}

static void *random_bytes(uint64_t bytes, uint8_t mask) {
  uint8_t *out = malloc(bytes);
  uint64_t state = 88172645463325252u;
  for (uint64_t i = 0; out != NULL && i < bytes; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    out[i] = (uint8_t)(state >> 56) & mask;
  }
  return out;
}

/* Codes of every value, scales of 2^-7 whatever their type. */
static void *random_weight(const struct gemm_weight *shape, struct error *error) {
  struct gemm_layout layout;
  if (gemm_layout_compute(shape, &layout, error) != STATUS_OK)
    return NULL;
  uint8_t *canonical = random_bytes(layout.total_bytes, 0x3f);
  if (canonical == NULL)
    (void)error_set(error, STATUS_NOMEM, "no memory for the weight");
  bool wide = shape->format != GEMM_FORMAT_INT2;
  for (uint64_t i = 0; canonical != NULL && i < layout.scale_count; i++) {
    const float f32 = 0x1p-7f;
    const uint16_t f16 = 0x2000;
    memcpy(canonical + layout.scales_offset + i * (wide ? 4 : 2), wide ? (const void *)&f32 : (const void *)&f16,
           wide ? 4 : 2);
  }
  return canonical;
}

int main(int count, char **arguments) {
  struct inprocess_request request = {.m = 0};
  struct error error = {.status = STATUS_OK};
  if (count != 10 || !gemm_format_parse(arguments[2], &request.shape.format) ||
      !gemm_scale_parse(arguments[3], &request.shape.scale) || !gemm_type_parse(arguments[7], &request.x_type) ||
      !gemm_type_parse(arguments[8], &request.y_type)) {
    fprintf(stderr, "usage: gemm-inprocess BACKEND FORMAT SCALE N K M X_TYPE Y_TYPE SECONDS\n");
    return 2;
  }
  request.shape.n = strtoll(arguments[4], NULL, 10);
  request.shape.k = strtoll(arguments[5], NULL, 10);
  request.m = strtoll(arguments[6], NULL, 10);
  if (request.m < 1 || gemm_weight_check(&request.shape, &error) != STATUS_OK) {
    fprintf(stderr, "gemm-inprocess: %s\n", error.status != STATUS_OK ? error.text : "M must be at least 1");
    return 2;
  }
  /* Small finite numbers in every type. */
  request.x = random_bytes((uint64_t)(request.m * request.shape.k) * gemm_type_bytes(request.x_type), 0x3f);
  request.canonical = random_weight(&request.shape, &error);
  if (request.x == NULL || request.canonical == NULL ||
      run(arguments[1], &request, strtod(arguments[9], NULL), &error) != STATUS_OK) {
    fprintf(stderr, "gemm-inprocess: %s\n", error.status != STATUS_OK ? error.text : "no memory for x");
    return 1;
  }
  return 0;
}
