/* How a backend cuts each product of the table of hostile cases: turns [FIRST [STEP [CASE_MS]]]. Every STEP-th case
 * from FIRST on, one product at a time, of the backend that GEMMD_TEST_BACKEND names, else of the first that has a
 * device; what takes longer than CASE_MS is given up after its turn. Prints how many turns there were, the longest and
 * the predicted and real time of all. No daemon, no answer is looked at. */
#include "kernels/backend.h"
#include "proto/clock.h"
#include "tests/support/daemon/hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  PATTERN = 0x38,    /* of all bytes: numbers, codes and scales of every format */
  LONG_NS = 2000000, /* as of serving: what is predicted to take longer has turns of so long */
  STEPS_MOST = 16,
  SLOW_NS = 10000000,
};
#define ARENA_BYTES ((uint64_t)1 << 30)
#define SLAB_BYTES ((uint64_t)640 << 20)

struct bench {
  const struct backend_ops *ops;
  struct backend *backend;
  struct backend_arena *arena;
  struct backend_slab *slab;
  uint8_t *base;
};

struct outcome {
  uint64_t predicted_ns, ns, longest_ns;
  unsigned turns; /* 0: it went whole */
  enum status status;
};

static void check(enum status status, const struct error *error, const char *what) {
  if (status == STATUS_OK)
    return;
  fprintf(stderr, "%s: %s\n", what, error->text);
  exit(1);
}

static const struct backend_ops *choose(const struct backend_config *config) {
  const char *name = getenv("GEMMD_TEST_BACKEND");
  char reason[256];
  struct error error = {0};
  const struct backend_ops *ops = backend_choose(name != NULL ? name : "auto", config, reason, sizeof reason, &error);
  if (ops == NULL)
    check(error.status, &error, "backend");
  return ops;
}

static void open_bench(struct bench *bench) {
  struct backend_config config = {.in_flight = 4};
  struct error error = {0};
  int slab_fd;
  bench->ops = choose(&config);
  check(bench->ops->open(&config, &bench->backend, &error), &error, "open");
  bench->base = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (bench->base == MAP_FAILED)
    exit(1);
  memset(bench->base, PATTERN, ARENA_BYTES);
  check(bench->ops->arena_register(bench->backend, bench->base, ARENA_BYTES, &bench->arena, &error), &error, "arena");
  check(bench->ops->slab_create(bench->backend, SLAB_BYTES, &slab_fd, &bench->slab, &error), &error, "slab");
  close(slab_fd);
}

static void close_bench(struct bench *bench) {
  bench->ops->slab_close(bench->backend, bench->slab);
  bench->ops->arena_unregister(bench->backend, bench->arena);
  bench->ops->close(bench->backend);
  munmap(bench->base, ARENA_BYTES);
}

static struct gemm_weight shape_of(const struct hostile_case *what) {
  enum gemm_format format = (enum gemm_format)what->format;
  enum gemm_scale scale = gemm_is_wide(format)     ? GEMM_SCALE_NONE
                          : gemm_is_packed(format) ? GEMM_SCALE_GROUP
                                                   : GEMM_SCALE_ROW;
  return (struct gemm_weight){.n = what->n, .k = what->k, .format = format, .scale = scale};
}

/* False where the device has no room for it. */
static bool load(const struct bench *bench, const struct gemm_weight *shape, struct backend_weight **out) {
  struct backend_plan plan;
  struct error error = {0};
  return bench->ops->weight_plan(bench->backend, shape, &plan, &error) == STATUS_OK && plan.bytes <= SLAB_BYTES &&
         bench->ops->weight_store(bench->backend, shape, bench->base, bench->slab, 0, &error) == STATUS_OK &&
         bench->ops->weight_attach(bench->backend, shape, plan.layout, bench->slab, 0, out, &error) == STATUS_OK;
}

/* ---- one product */

static void note(struct outcome *outcome, uint64_t begin_ns) {
  uint64_t ns = clock_ns() - begin_ns;
  outcome->ns += ns;
  outcome->longest_ns = ns > outcome->longest_ns ? ns : outcome->longest_ns;
}

static enum status finish(const struct bench *bench, struct backend_done *done) {
  while (bench->ops->poll(bench->backend, done, 1) == 0)
    ;
  return done->status;
}

static void run_whole(const struct bench *bench, const struct backend_job *job, struct outcome *out) {
  struct backend_done done;
  struct error error = {0};
  uint64_t begin_ns = clock_ns();
  out->status = bench->ops->submit(bench->backend, job, &error);
  if (out->status == STATUS_OK)
    out->status = finish(bench, &done);
  note(out, begin_ns);
}

/* True: there is more. */
static bool turn(const struct bench *bench, struct backend_turns *turns, struct outcome *out) {
  struct backend_done done = {.goes_on = false};
  struct error error = {0};
  uint64_t begin_ns = clock_ns();
  if (bench->ops->turns_next != NULL) {
    done.goes_on = !bench->ops->turns_next(bench->backend, turns, LONG_NS, &done, &error);
    out->status = done.goes_on ? STATUS_OK : done.status;
  } else {
    out->status = bench->ops->turns_submit(bench->backend, turns, LONG_NS, &error);
    if (out->status == STATUS_OK)
      out->status = finish(bench, &done);
  }
  out->turns++;
  note(out, begin_ns);
  return done.goes_on;
}

static void run_turns(const struct bench *bench, const struct backend_job *job, uint64_t most_ns, struct outcome *out) {
  struct backend_turns *turns;
  struct error error = {0};
  out->status = bench->ops->turns_begin(bench->backend, job, 1, &turns, &error);
  for (bool more = out->status == STATUS_OK; more;) {
    if (out->ns > most_ns)
      bench->ops->turns_abandon(bench->backend, turns);
    more = turn(bench, turns, out);
  }
}

/* False where it does not fit into this program. */
static bool run(const struct bench *bench, const struct hostile_case *what, uint64_t most_ns, struct outcome *out) {
  struct gemm_weight shape = shape_of(what);
  struct backend_weight *weight = NULL;
  struct backend_operand operand = {.shape = shape, .w = bench->base, .stride = (uint64_t)what->k * 2};
  struct backend_step steps[STEPS_MOST];
  enum gemm_type type = shape.format == GEMM_FORMAT_BF16 ? GEMM_BF16 : GEMM_F16;
  struct backend_job job = {.arena = bench->arena,
                            .m = what->m,
                            .awake = 1,
                            .x_type = type,
                            .y_type = GEMM_F32,
                            .x = bench->base,
                            .x_stride = (uint64_t)what->k * 2,
                            .y_stride = (uint64_t)what->n * 4};
  uint64_t y_bytes = (uint64_t)what->m * job.y_stride, x_bytes = (uint64_t)what->m * job.x_stride;
  if (x_bytes + y_bytes > ARENA_BYTES || (what->kind != HOSTILE_TENSORS && !load(bench, &shape, &weight)))
    return false;
  job.y = bench->base + ARENA_BYTES - gemm_round_up(y_bytes, GEMM_SECTION);
  job.weight = weight;
  job.operand = what->kind == HOSTILE_TENSORS ? &operand : NULL;
  for (unsigned i = 0; i < what->steps; i++)
    steps[i] = (struct backend_step){.weight = weight, .y_type = i + 1 < what->steps ? type : GEMM_F32};
  if (what->kind == HOSTILE_PLAN)
    job.steps = steps, job.step_count = what->steps;
  *out = (struct outcome){.predicted_ns = bench->ops->predict_ns(bench->backend, &job)};
  if (out->predicted_ns > LONG_NS)
    run_turns(bench, &job, most_ns, out);
  else
    run_whole(bench, &job, out);
  if (weight != NULL)
    bench->ops->weight_detach(bench->backend, weight);
  memset(job.y, PATTERN, y_bytes);
  return true;
}

/* ---- the table */

static void print(size_t index, const struct hostile_case *what, const struct outcome *outcome) {
  bool unbounded = outcome->predicted_ns == UINT64_MAX; /* its memory is bounded by turns, too */
  printf("%4zu %5u %9.2f %9.2f ", index, outcome->turns, (double)outcome->longest_ns / 1e6, (double)outcome->ns / 1e6);
  if (unbounded)
    printf("%9s", "-");
  else
    printf("%9.2f", (double)outcome->predicted_ns / 1e6);
  printf("  %s%s\n", what->line,
         outcome->status == STATUS_OK          ? ""
         : outcome->status == STATUS_CANCELLED ? ", given up"
                                               : ", failed");
  fflush(stdout);
}

int main(int count, char **words) {
  long first = count > 1 ? atol(words[1]) : 0, step = count > 2 ? atol(words[2]) : 1;
  uint64_t most_ns = (count > 3 ? strtoull(words[3], NULL, 10) : 1000) * 1000000;
  struct bench bench;
  struct hostile_case what;
  struct outcome outcome;
  unsigned cases = 0, slow = 0, failed = 0;
  if (first < 0 || step < 1)
    return 1;
  open_bench(&bench);
  if (bench.ops->predict_ns == NULL)
    return 1;
  printf("case turns   longest  all, ms predicted\n");
  for (long i = first; hostile_read((size_t)i, &what); i += step) {
    if (!run(&bench, &what, most_ns, &outcome))
      continue;
    print((size_t)i, &what, &outcome);
    cases++;
    slow += outcome.longest_ns > SLOW_NS;
    failed += outcome.status != STATUS_OK && outcome.status != STATUS_CANCELLED;
  }
  printf("%u products, %u with a turn beyond %d ms, %u failed\n", cases, slow, SLOW_NS / 1000000, failed);
  close_bench(&bench);
  return failed > 0;
}
