#include "../kernels.h"

#include "kernels/backend.h"
#include "proto/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  SIZES_MOST = 16,
  VARIANTS_MOST = 1024,
  BASES = 12,
  ROUNDS = 7,
  LAUNCHES_MOST = 32,
  TURN_NS = 1000000,
  SECONDS = 4
};

struct bench {
  const struct backend_ops *ops;
  struct backend *backend;
  struct backend_arena *arena;
  float *y, *right; /* of the arena */
  uint64_t bytes;
  double seconds;       /* for the search of a case */
  uint64_t deadline_ns; /* of the part of it that is under way */
};

struct product {
  struct variant_problem problem;
  struct backend_operand operand;
  struct backend_job job;
  size_t copies;
  uint32_t launches;
};

static enum status measure(const struct bench *bench, struct product *product, const struct variant *variant,
                           uint32_t launches, uint64_t *ns, struct error *error) {
  const struct backend_timing timing = {.launches = launches};
  product->job.variant = variant;
  return bench->ops->measure(bench->backend, &product->job, NULL, product->copies, &timing, ns, error);
}

/* Nanoseconds of one, UINT64_MAX where it does not run. */
static uint64_t attempt(const struct bench *bench, struct product *product, struct variant *variant) {
  struct error ignored;
  uint64_t first = 0, second = 0;
  if (bench->ops->variant_check(bench->backend, &product->problem, variant, NULL, &ignored) != STATUS_OK ||
      measure(bench, product, variant, 1, &first, &ignored) != STATUS_OK)
    return UINT64_MAX;
  uint64_t launches = TURN_NS / (first > 0 ? first : 1);
  launches = launches < 2 ? 2 : launches < LAUNCHES_MOST ? launches : LAUNCHES_MOST;
  if (first > (uint64_t)20 * TURN_NS ||
      measure(bench, product, variant, (uint32_t)launches, &second, &ignored) != STATUS_OK)
    return first;
  return second;
}

struct timed {
  struct variant variant;
  uint64_t ns;
};

static int by_time(const void *left, const void *right) {
  const struct timed *a = left, *b = right;
  return (a->ns > b->ns) - (a->ns < b->ns);
}

/* As many as the time allows, one at least; returns how many. */
static int try_all(const struct bench *bench, struct product *product, const struct variant *list, int count,
                   struct timed *out) {
  int tried = 0;
  while (tried < count && (tried == 0 || clock_ns() < bench->deadline_ns)) {
    out[tried].variant = list[tried];
    out[tried].ns = attempt(bench, product, &out[tried].variant);
    tried++;
  }
  qsort(out, (size_t)tried, sizeof *out, by_time);
  return tried;
}

/* The parts of the search have a quarter, a half and a quarter of the time. */
static void allow(struct bench *bench, uint64_t begin_ns, double part) {
  bench->deadline_ns = begin_ns + (uint64_t)(part * bench->seconds * 1e9);
}

/* The library's: all algorithms, and then the best ones in every number of slices. */
static struct timed library_best(struct bench *bench, struct product *product, uint64_t begin_ns, int *tried) {
  static struct variant list[VARIANTS_MOST];
  static struct timed timed[VARIANTS_MOST], more[VARIANTS_MOST];
  const struct backend_ops *ops = bench->ops;
  struct timed best = {.ns = UINT64_MAX};
  int count = ops->library_variants != NULL
                  ? ops->library_variants(bench->backend, &product->problem, true, list, VARIANTS_MOST)
                  : 0;
  /* Of a long K an algorithm that is not cut takes a thousand times longer: each is tried in some slices instead. */
  enum { CUT = 24, LONG_K = 1 << 18, SPLIT_K = 4, REDUCTION = 5 };
  for (int i = 0; i < count && product->problem.weight.k >= LONG_K; i++)
    if (list[i].values[SPLIT_K] < CUT / 2) {
      list[i].values[SPLIT_K] = CUT;
      list[i].values[REDUCTION] = 2;
    }
  allow(bench, begin_ns, 0.75);
  count = try_all(bench, product, list, count, timed);
  allow(bench, begin_ns, 1);
  *tried = count;
  if (count > 0)
    best = timed[0];
  for (int b = 0; b < BASES && b < count && timed[b].ns != UINT64_MAX && clock_ns() < bench->deadline_ns; b++) {
    int found = ops->variants(bench->backend, &product->problem, &timed[b].variant, true, list, VARIANTS_MOST);
    found = try_all(bench, product, list, found, more);
    *tried += found;
    if (found > 0 && more[0].ns < best.ns)
      best = more[0];
  }
  return best;
}

static struct timed own_best(const struct bench *bench, struct product *product) {
  static struct variant list[VARIANTS_MOST];
  static struct timed timed[VARIANTS_MOST];
  int count = bench->ops->variants(bench->backend, &product->problem, NULL, true, list, VARIANTS_MOST), kept = 0;
  for (int i = 0; i < count; i++)
    if (!list[i].family->library)
      list[kept++] = list[i];
  count = try_all(bench, product, list, kept, timed);
  return count > 0 ? timed[0] : (struct timed){.ns = UINT64_MAX};
}

/* ---- right */

static enum status compute(const struct bench *bench, const struct product *product, const struct variant *variant,
                           float *y, struct error *error) {
  struct backend_job job = product->job;
  struct backend_done done = {.status = STATUS_OK};
  job.variant = variant;
  job.y = y;
  memset(y, 0xff, (uint64_t)job.m * job.y_stride);
  enum status status = bench->ops->submit(bench->backend, &job, error);
  while (status == STATUS_OK && bench->ops->poll(bench->backend, &done, 1) == 0)
    ;
  return status == STATUS_OK && done.status != STATUS_OK ? error_set(error, done.status, "a product failed") : status;
}

/* Relative to the plain kernel's, of the row that is furthest off. */
static enum status error_of(const struct bench *bench, const struct product *product, const struct variant *variant,
                            double *worst, struct error *error) {
  const struct variant plain = variant_default(bench->ops->families[0]);
  enum status status = compute(bench, product, &plain, bench->right, error);
  if (status == STATUS_OK)
    status = compute(bench, product, variant, bench->y, error);
  *worst = 0;
  int64_t n = product->problem.weight.n;
  for (int64_t i = 0; status == STATUS_OK && i < product->job.m; i++) {
    double off = 0, all = 0;
    for (int64_t j = i * n; j < (i + 1) * n; j++) {
      off += pow((double)bench->y[j] - (double)bench->right[j], 2);
      all += pow((double)bench->right[j], 2);
    }
    double error_here = sqrt(off / all);
    *worst = error_here > *worst || isnan(error_here) ? error_here : *worst;
  }
  return status;
}

/* ---- one case */

struct outcome {
  struct timed own, library;
  double ratio, off; /* the library's time by ours, median of turns; 0: it has none */
  int tried;
};

static int by_value(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static enum status turns(const struct bench *bench, struct product *product, struct outcome *out, struct error *error) {
  double ratios[ROUNDS];
  enum status status = STATUS_OK;
  uint64_t own = UINT64_MAX, library = UINT64_MAX, launches = TURN_NS / (out->own.ns + 1);
  launches = launches < 2 ? 2 : launches < LAUNCHES_MOST ? launches : LAUNCHES_MOST;
  for (int i = 0; i < ROUNDS && status == STATUS_OK; i++) {
    uint64_t a = 0, b = 0;
    status = measure(bench, product, &out->own.variant, (uint32_t)launches, &a, error);
    if (status == STATUS_OK)
      status = measure(bench, product, &out->library.variant, (uint32_t)launches, &b, error);
    ratios[i] = a > 0 ? (double)b / (double)a : 0;
    own = a < own ? a : own;
    library = b < library ? b : library;
  }
  if (status != STATUS_OK)
    return status;
  qsort(ratios, ROUNDS, sizeof *ratios, by_value);
  out->own.ns = own;
  out->library.ns = library;
  out->ratio = ratios[ROUNDS / 2];
  return STATUS_OK;
}

static enum status run_case(struct bench *bench, struct product *product, struct outcome *out, struct error *error) {
  uint64_t begin_ns = clock_ns();
  *out = (struct outcome){.ratio = 0};
  allow(bench, begin_ns, 0.25);
  out->own = own_best(bench, product);
  if (out->own.ns == UINT64_MAX)
    return error_set(error, STATUS_UNSUPPORTED, "no kernel computes this product");
  out->library = library_best(bench, product, begin_ns, &out->tried);
  enum status status = out->library.ns != UINT64_MAX ? turns(bench, product, out, error) : STATUS_OK;
  return status == STATUS_OK ? error_of(bench, product, &out->own.variant, &out->off, error) : status;
}

static void print(const struct tool_call *call, const struct product *product, const struct outcome *outcome) {
  char kernel[VARIANT_TEXT_BYTES], rival[VARIANT_TEXT_BYTES], shape[VARIANT_TEXT_BYTES];
  double us = (double)outcome->own.ns / 1e3, library_us = outcome->ratio > 0 ? (double)outcome->library.ns / 1e3 : 0;
  double bytes = 2 * (double)(product->job.m + product->problem.weight.n) * (double)product->problem.weight.k;
  variant_text(&outcome->own.variant, kernel);
  variant_text(&outcome->library.variant, rival);
  variant_problem_text(&product->problem, shape);
  if (call->json)
    printf("{\"shape\": \"%s\", \"us\": %.2f, \"gb_per_s\": %.0f, \"kernel\": \"%s\", \"off\": %.2e, \"library_us\": "
           "%.2f, \"library_kernel\": \"%s\", \"library_tried\": %d, \"ratio\": %.3f}\n",
           shape, us, bytes / us / 1e3, kernel, outcome->off, library_us, rival, outcome->tried, outcome->ratio);
  else
    printf("%-52s %9.2f us %5.0f GB/s %9.2f us %6.3f  off %.1e  %s\n", shape, us, bytes / us / 1e3, library_us,
           outcome->ratio, outcome->off, kernel);
  fflush(stdout);
}

/* ---- all of them */

static bool parse_sizes(const struct tool_call *call, const char *name, const char *usual, int64_t *out, int *count) {
  const char *text = tool_value(call, name) != NULL ? tool_value(call, name) : usual;
  *count = 0;
  for (char *end; *text != '\0' && *count < SIZES_MOST; text = *end == ',' ? end + 1 : end) {
    out[*count] = strtoll(text, &end, 10);
    if (end == text || (*end != ',' && *end != '\0') || out[*count] < 1 || out[*count] > (int64_t)1 << 24) {
      (void)tool_fail(call, TOOL_USAGE, "--%s takes numbers from 1 to 2^24 with commas between", name);
      return false;
    }
    ++*count;
  }
  return true;
}

static enum status make(struct bench *bench, struct product *product, int64_t m, int64_t n, int64_t k, bool turned,
                        struct error *error) {
  *product =
      (struct product){.problem = {.weight = {.n = n, .k = k, .format = GEMM_FORMAT_F16},
                                   .m = m,
                                   .x_type = GEMM_F16,
                                   .y_type = GEMM_F32,
                                   .tensors = {.given = true, .x_turned = turned, .w_turned = turned, .align = 16}}};
  product->operand = (struct backend_operand){.shape = product->problem.weight,
                                              .form = {.x_turned = turned, .w_turned = turned, .batch = 1}};
  product->job = (struct backend_job){.operand = &product->operand,
                                      .arena = bench->arena,
                                      .m = m,
                                      .x_type = GEMM_F16,
                                      .y_type = GEMM_F32,
                                      .y = bench->y,
                                      .y_stride = (uint64_t)n * sizeof(float)};
  return bench->ops->tensors_make(bench->backend, &product->problem, &product->job, &product->operand, &product->copies,
                                  error);
}

static enum status run_all(struct tool_call *call, struct bench *bench, struct error *error) {
  int64_t sides[SIZES_MOST], ks[SIZES_MOST];
  int side_count, k_count, cases = 0;
  double logs = 0, worst = INFINITY;
  bool turned = tool_value(call, "turned") != NULL;
  const char *seconds = tool_value(call, "seconds");
  char *end = NULL;
  bench->seconds = seconds != NULL ? strtod(seconds, &end) : SECONDS;
  if ((end != NULL && *end != '\0') || !(bench->seconds > 0)) {
    (void)tool_fail(call, TOOL_USAGE, "--seconds takes a number above 0");
    return error_set(error, STATUS_INVALID, "seconds");
  }
  enum status status = STATUS_OK;
  if (!parse_sizes(call, "sides", "64,128,256", sides, &side_count) ||
      !parse_sizes(call, "k", "25088,200704,1605632", ks, &k_count))
    return error_set(error, STATUS_INVALID, "sizes");
  for (int i = 0; status == STATUS_OK && i < k_count * side_count * side_count; i++) {
    struct product product;
    struct outcome outcome;
    status = make(bench, &product, sides[i % side_count], sides[i / side_count % side_count],
                  ks[i / side_count / side_count], turned, error);
    if (status != STATUS_OK)
      break;
    status = run_case(bench, &product, &outcome, error);
    bench->ops->tensors_drop(bench->backend);
    if (status != STATUS_OK)
      break;
    print(call, &product, &outcome);
    if (outcome.ratio > 0) {
      logs += log(outcome.ratio);
      worst = outcome.ratio < worst ? outcome.ratio : worst;
      cases++;
    }
  }
  if (status == STATUS_OK && cases > 0)
    printf(call->json ? "{\"cases\": %d, \"geometric\": %.3f, \"worst\": %.3f}\n"
                      : "%d cases: library / ours: geometric mean %.3f, worst %.3f\n",
           cases, exp(logs / cases), worst);
  return status;
}

static enum status open_all(struct bench *bench, const struct backend_config *config, struct error *error) {
  bench->bytes = (uint64_t)2 * 4096 * 4096 * sizeof(float);
  bench->y = aligned_alloc(4096, bench->bytes);
  if (bench->y == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for y");
  bench->right = bench->y + bench->bytes / 2 / sizeof(float);
  enum status status = bench->ops->open(config, &bench->backend, error);
  return status == STATUS_OK ? bench->ops->arena_register(bench->backend, bench->y, bench->bytes, &bench->arena, error)
                             : status;
}

enum tool_exit bench_tensors(struct tool_call *call) {
  struct backend_config config = {.in_flight = 1};
  struct bench bench = {.backend = NULL};
  struct error error = {.status = STATUS_OK};
  char reason[256];
  bench.ops = backend_choose("cuda", &config, reason, sizeof reason, &error);
  if (bench.ops == NULL)
    return tool_fail(call, TOOL_REFUSED, "%s", error.text);
  enum status status = open_all(&bench, &config, &error);
  if (status == STATUS_OK)
    status = run_all(call, &bench, &error);
  if (bench.arena != NULL)
    bench.ops->arena_unregister(bench.backend, bench.arena);
  if (bench.backend != NULL)
    bench.ops->close(bench.backend);
  free(bench.y);
  return status == STATUS_OK ? TOOL_OK : tool_fail(call, TOOL_REFUSED, "%s", error.text);
}
