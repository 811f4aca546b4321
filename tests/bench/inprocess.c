/* The same product or plan inside one process, with no daemon: what gemm-bench compares gemmd with.
 *
 *   gemm-inprocess BACKEND FORMAT SCALE N K M X_TYPE Y_TYPE SECONDS
 *   gemm-inprocess plan BACKEND M X_TYPE Y_TYPE SECONDS FORMAT SCALE N K ACTIVATION ...
 *
 * Computes with a random weight in the best way that is known (the backend by itself: on a GPU, x read by the quantizer
 * from mapped memory, y written there by the kernel, the end seen in a polled word), and on a GPU in the obvious way as
 * well, in turns. Prints one JSON object of microseconds: {best: {p50, p99}, obvious: {p50, p99}, kernel, kernels}, the
 * last two being the product alone, and with its quantizer. Of a plan, kernel is what its kernels take one after the
 * other, as a graph in which none begins before the one ahead has ended, and plan what the plan takes on the device. */
#include "inprocess.h"
#include "proto/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { CALLS_MOST = 1 << 18, TURN = 200 };

struct times {
  uint32_t *ns; /* CALLS_MOST of them */
  size_t count;
};

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
  struct backend_slab *slabs[GEMM_STEPS_MOST]; /* a step's weight each */
  struct backend_step steps[GEMM_STEPS_MOST];
  struct backend_job job;
};

static enum status best_call(struct best *best, struct error *error) {
  struct backend_done done;
  enum status status = best->ops->submit(best->backend, &best->job, error);
  while (status == STATUS_OK && best->ops->poll(best->backend, &done, 1) == 0)
    ;
  return status == STATUS_OK && done.status != STATUS_OK ? error_set(error, done.status, "the product failed") : status;
}

static enum status place_weight(struct best *best, const struct inprocess_step *step, struct backend_slab **slab,
                                struct backend_weight **out, struct error *error) {
  struct backend_info info;
  struct backend_plan plan;
  int fd;
  best->ops->describe(best->backend, &info);
  enum status status = best->ops->weight_plan(best->backend, &step->shape, &plan, error);
  if (status == STATUS_OK)
    status = best->ops->slab_create(best->backend, gemm_round_up(plan.bytes, info.slab_granularity), &fd, slab, error);
  if (status == STATUS_OK)
    status = best->ops->weight_store(best->backend, &step->shape, step->canonical, *slab, 0, error);
  if (status == STATUS_OK)
    status = best->ops->weight_attach(best->backend, &step->shape, plan.layout, *slab, 0, out, error);
  return status;
}

static enum status place_weights(struct best *best, const struct inprocess_request *request, struct error *error) {
  enum status status = STATUS_OK;
  for (uint32_t i = 0; status == STATUS_OK && i < (request->step_count > 0 ? request->step_count : 1); i++) {
    const struct inprocess_step *step = &request->steps[i];
    best->steps[i] =
        (struct backend_step){.y_type = request->y_type, .activation = step->activation, .gated = step->gated};
    status = place_weight(best, step, &best->slabs[i], &best->steps[i].weight, error);
  }
  best->job.weight = best->steps[0].weight;
  best->job.steps = request->step_count > 0 ? best->steps : NULL;
  best->job.step_count = request->step_count;
  return status;
}

static uint64_t y_columns(const struct inprocess_request *request) {
  const struct inprocess_step *last = &request->steps[request->step_count > 0 ? request->step_count - 1 : 0];
  return (uint64_t)(last->gated ? last->shape.n / 2 : last->shape.n);
}

/* The process ends with it: nothing is given back. */
static enum status best_open(struct best *best, const char *name, const struct inprocess_request *request,
                             struct error *error) {
  struct backend_config config = {.in_flight = 2};
  char reason[256];
  uint64_t x_row = (uint64_t)request->steps[0].shape.k * gemm_type_bytes(request->x_type);
  uint64_t y_row = y_columns(request) * gemm_type_bytes(request->y_type);
  uint64_t y_at = gemm_round_up((uint64_t)request->m * x_row, 4096);
  uint64_t bytes = gemm_round_up(y_at + (uint64_t)request->m * y_row, 4096);
  best->ops = backend_choose(name, &config, reason, sizeof reason, error);
  if (best->ops == NULL)
    return error->status;
  enum status status = best->ops->open(&config, &best->backend, error);
  if (status == STATUS_OK)
    status = place_weights(best, request, error);
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

/* ---- a plan's kernels: with and without overlap, in turns */

enum { PLAN_ROUNDS = 15, PLAN_LAUNCHES = 20 };

static int by_time(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return a < b ? -1 : a > b;
}

static enum status plan_kernels(struct best *best, double *apart_ns, double *plan_ns, struct error *error) {
  uint64_t ns[2][PLAN_ROUNDS];
  enum status status = STATUS_OK;
  for (int turn = 0; status == STATUS_OK && turn < 2 * PLAN_ROUNDS; turn++) {
    int dependent = (turn + 1) / 2 % 2; /* A B B A */
    struct backend_timing timing = {.launches = PLAN_LAUNCHES, .quantize = true, .dependent = dependent};
    status =
        best->ops->measure(best->backend, &best->job, &best->job.weight, 1, &timing, &ns[dependent][turn / 2], error);
  }
  if (status != STATUS_OK)
    return status;
  qsort(ns[0], PLAN_ROUNDS, sizeof ns[0][0], by_time);
  qsort(ns[1], PLAN_ROUNDS, sizeof ns[1][0], by_time);
  *apart_ns = (double)ns[0][PLAN_ROUNDS / 2];
  *plan_ns = (double)ns[1][PLAN_ROUNDS / 2];
  return STATUS_OK;
}

/* ---- in turns */

static enum status time_turn(struct best *best, struct inprocess_obvious *obvious, struct times *times,
                             struct error *error) {
  for (int i = 0; i < TURN && times->count < CALLS_MOST; i++) {
    uint64_t begin = clock_ns();
    enum status status = best != NULL ? best_call(best, error) : obvious_call(obvious, error);
    uint64_t ns = clock_ns() - begin;
    if (status != STATUS_OK)
      return status;
    times->ns[times->count++] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
  }
  return STATUS_OK;
}

static enum status run(const char *backend, const struct inprocess_request *request, double seconds,
                       struct error *error) {
  static uint32_t best_ns[CALLS_MOST], obvious_ns[CALLS_MOST];
  static struct best best; /* it lasts as long as the process */
  struct inprocess_obvious *obvious = NULL;
  struct times best_times = {.ns = best_ns}, obvious_times = {.ns = obvious_ns};
  double product_ns = 0, both_ns = 0, plan_ns = 0;
  bool plan = request->step_count > 0;
  enum status status = best_open(&best, backend, request, error);
  if (status == STATUS_OK && plan)
    status = plan_kernels(&best, &product_ns, &plan_ns, error);
  if (status == STATUS_OK && !plan && strcmp(best.ops->name, "cuda") == 0)
    status = obvious_open(request, &obvious, error);
  if (status == STATUS_OK && obvious != NULL)
    status = obvious_kernel(obvious, &product_ns, &both_ns, error);
  uint64_t end = clock_ns() + (uint64_t)(seconds * 1e9);
  for (unsigned turn = 0; status == STATUS_OK && (turn < 4 || clock_ns() < end); turn++) {
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
  if (plan)
    printf(", \"kernel\": %.3f, \"plan\": %.3f", product_ns / 1e3, plan_ns / 1e3);
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
  for (uint64_t i = 0; canonical != NULL && i < layout.scale_count; i++)
    gemm_scale_put(gemm_scale_type(shape), canonical + layout.scales_offset, i, 0x1p-7f);
  return canonical;
}

/* ---- the command line */

enum { PRODUCT_WORDS = 10, PLAN_WORDS = 7, STEP_WORDS = 5 };

static const char *const usage =
    "usage: gemm-inprocess BACKEND FORMAT SCALE N K M X_TYPE Y_TYPE SECONDS\n"
    "       gemm-inprocess plan BACKEND M X_TYPE Y_TYPE SECONDS FORMAT SCALE N K ACTIVATION ...\n";

static bool parse_weight(char **words, struct inprocess_step *out) {
  out->shape.n = strtoll(words[2], NULL, 10);
  out->shape.k = strtoll(words[3], NULL, 10);
  return gemm_format_parse(words[0], &out->shape.format) && gemm_scale_parse(words[1], &out->shape.scale);
}

static bool parse_activation(const char *word, struct inprocess_step *out) {
  static const struct {
    const char *word;
    enum gemm_activation activation;
    bool gated;
  } words[] = {{"none", GEMM_ACTIVATION_NONE, false},
               {"relu", GEMM_RELU, false},
               {"gelu", GEMM_GELU, false},
               {"silu", GEMM_SILU, false},
               {"reglu", GEMM_RELU, true},
               {"geglu", GEMM_GELU, true},
               {"swiglu", GEMM_SILU, true}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(words[i].word, word) != 0)
      continue;
    out->activation = words[i].activation;
    out->gated = words[i].gated;
    return true;
  }
  return false;
}

static bool parse_types(char **words, struct inprocess_request *out) {
  return gemm_type_parse(words[0], &out->x_type) && gemm_type_parse(words[1], &out->y_type);
}

static bool parse_product(int count, char **words, struct inprocess_request *out) {
  if (count != PRODUCT_WORDS || !parse_weight(words + 2, &out->steps[0]) || !parse_types(words + 7, out))
    return false;
  out->m = strtoll(words[6], NULL, 10);
  return true;
}

static bool parse_plan(int count, char **words, struct inprocess_request *out) {
  int steps = (count - PLAN_WORDS) / STEP_WORDS;
  if (count < PLAN_WORDS || (count - PLAN_WORDS) % STEP_WORDS != 0 || steps < 1 || steps > GEMM_STEPS_MOST ||
      !parse_types(words + 4, out))
    return false;
  out->m = strtoll(words[3], NULL, 10);
  for (words += PLAN_WORDS; out->step_count < (uint32_t)steps; words += STEP_WORDS, out->step_count++)
    if (!parse_weight(words, &out->steps[out->step_count]) || !parse_activation(words[4], &out->steps[out->step_count]))
      return false;
  return true;
}

static enum status make_data(struct inprocess_request *request, struct error *error) {
  const struct gemm_weight *first = &request->steps[0].shape;
  if (request->m < 1)
    return error_field(error, STATUS_INVALID, FIELD_M, request->m, 1, INT32_MAX);
  for (uint32_t i = 0; i < (request->step_count > 0 ? request->step_count : 1); i++) {
    enum status status = gemm_weight_check(&request->steps[i].shape, error);
    if (status != STATUS_OK)
      return status;
    request->steps[i].canonical = random_weight(&request->steps[i].shape, error);
    if (request->steps[i].canonical == NULL)
      return error->status;
  }
  /* Small finite numbers in every type. */
  request->x = random_bytes((uint64_t)(request->m * first->k) * gemm_type_bytes(request->x_type), 0x3f);
  return request->x != NULL ? STATUS_OK : error_set(error, STATUS_NOMEM, "no memory for x");
}

int main(int count, char **words) {
  static struct inprocess_request request; /* it lasts as long as the process */
  struct error error = {.status = STATUS_OK};
  bool plan = count > 1 && strcmp(words[1], "plan") == 0;
  if (plan ? !parse_plan(count, words, &request) : !parse_product(count, words, &request)) {
    fprintf(stderr, "%s", usage);
    return 2;
  }
  if (make_data(&request, &error) != STATUS_OK ||
      run(words[plan ? 2 : 1], &request, strtod(words[plan ? 6 : 9], NULL), &error) != STATUS_OK) {
    fprintf(stderr, "gemm-inprocess: %s\n", error.text);
    return 1;
  }
  return 0;
}
