#include "snapshot.h"

#include <inttypes.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define STEP_BYTES ((uint64_t)16 << 20)   /* of the slab, for each weight */
#define MEMORY_BYTES ((uint64_t)16 << 20) /* of the slab's end, for rows that stay on the device */

enum { STEPS = 3, CHAIN_MOST = 8 };

static const int64_t rows[] = {1, 7, 64, 200};

static void write_line(struct snapshot *snapshot, const char *way, const struct gemm_weight *shape,
                       const struct backend_job *job, enum status status, const struct error *error) {
  fprintf(snapshot->out, "%s %s %s %" PRId64 "x%" PRId64 " %s %s M %" PRId64 ": ", way, gemm_format_name(shape->format),
          gemm_scale_name(shape->scale), shape->n, shape->k, gemm_type_name(job->x_type), gemm_type_name(job->y_type),
          job->m);
  if (status == STATUS_OK)
    fprintf(snapshot->out, "%016" PRIx64 "\n", snapshot_y_hash(job, shape->n));
  else
    fprintf(snapshot->out, "%s\n", error->text);
}

/* A type that the format takes for x and y. */
static enum gemm_type both_types(enum gemm_format format) {
  return format == GEMM_FORMAT_F16 ? GEMM_F16 : GEMM_BF16;
}

/* ---- chains: rows of a product as jobs of their own */

static void run_chain(struct snapshot *snapshot, const struct gemm_weight *shape, struct backend_weight *weight,
                      int64_t m, bool uneven) {
  struct backend_job parts[CHAIN_MOST], whole = {.weight = weight, .m = m, .bias_type = GEMM_F32};
  struct error error;
  whole.x_type = whole.y_type = both_types(shape->format);
  enum status status = snapshot_stage(snapshot, shape, &whole, uneven)
                           ? STATUS_OK
                           : error_set(&error, STATUS_TOO_LARGE, "the arena is too small");
  int64_t row = 0;
  int count = 0;
  for (; row < m; count++) {
    int64_t share = count == CHAIN_MOST - 1 || m - row < 2 * count + 1 ? m - row : 2 * count + 1;
    parts[count] = whole;
    parts[count].m = share;
    parts[count].x = (const uint8_t *)whole.x + (uint64_t)row * whole.x_stride;
    parts[count].y = (uint8_t *)whole.y + (uint64_t)row * whole.y_stride;
    if (count > 0)
      parts[count - 1].next = &parts[count];
    row += share;
  }
  if (status == STATUS_OK)
    status = snapshot_finish(snapshot, parts, &error);
  write_line(snapshot, uneven ? "chain uneven" : "chain", shape, &whole, status, &error);
}

static void chains(struct snapshot *snapshot, int kind) {
  struct gemm_weight shape = {
      .n = 520, .k = 1032, .format = snapshot_kinds[kind].format, .scale = snapshot_kinds[kind].scale};
  struct backend_weight *weight;
  struct backend_plan plan;
  struct error error;
  uint64_t checksum;
  if (snapshot_load(snapshot, &shape, 0, 21, &plan, &checksum, &weight, &error) != STATUS_OK) {
    fprintf(snapshot->out, "chain: %s\n", error.text);
    return;
  }
  for (int i = 0; i < COUNT(rows); i++) {
    run_chain(snapshot, &shape, weight, rows[i], false);
    run_chain(snapshot, &shape, weight, rows[i], true);
  }
  snapshot->ops->weight_detach(snapshot->backend, weight);
}

/* ---- sequences: a gated product, one with a bias, one more */

static void run_sequence(struct snapshot *snapshot, const struct gemm_weight *whole, const struct backend_step *steps,
                         int64_t m, bool uneven) {
  struct backend_job job = {.weight = steps[0].weight,
                            .m = m,
                            .x_type = both_types(whole->format),
                            .y_type = steps[STEPS - 1].y_type,
                            .steps = steps,
                            .step_count = STEPS};
  struct error error;
  enum status status = snapshot_stage(snapshot, whole, &job, uneven)
                           ? snapshot_finish(snapshot, &job, &error)
                           : error_set(&error, STATUS_TOO_LARGE, "the arena is too small");
  write_line(snapshot, uneven ? "sequence uneven" : "sequence", whole, &job, status, &error);
}

static void sequences(struct snapshot *snapshot, int kind) {
  static const struct gemm_weight shapes[STEPS] = {{.n = 1032, .k = 384}, {.n = 768, .k = 516}, {.n = 300, .k = 768}};
  struct backend_step steps[STEPS] = {{.gated = true, .activation = GEMM_SILU}, {.activation = GEMM_GELU}, {0}};
  struct gemm_weight whole = {.n = shapes[STEPS - 1].n,
                              .k = shapes[0].k,
                              .format = snapshot_kinds[kind].format,
                              .scale = snapshot_kinds[kind].scale};
  struct error error;
  uint8_t *bias = snapshot->kept;
  int loaded = 0;
  snapshot_x(bias, 1, shapes[1].n, GEMM_F32, SNAPSHOT_KEPT_BYTES, 31);
  for (; loaded < STEPS; loaded++) {
    struct gemm_weight shape = shapes[loaded];
    struct backend_plan plan;
    uint64_t checksum, offset = (uint64_t)loaded * STEP_BYTES;
    shape.format = whole.format;
    shape.scale = whole.scale;
    if (snapshot_load(snapshot, &shape, offset, 32, &plan, &checksum, &steps[loaded].weight, &error) != STATUS_OK)
      break;
    steps[loaded].y_type = both_types(whole.format);
  }
  steps[1].bias_type = GEMM_F32;
  steps[1].bias = bias;
  if (loaded < STEPS)
    fprintf(snapshot->out, "sequence: %s\n", error.text);
  for (int i = 0; i < COUNT(rows) && loaded == STEPS; i++) {
    run_sequence(snapshot, &whole, steps, rows[i], false);
    run_sequence(snapshot, &whole, steps, rows[i], true);
  }
  while (loaded-- > 0)
    snapshot->ops->weight_detach(snapshot->backend, steps[loaded].weight);
}

/* ---- W as a tensor of the arena */

static void operands(struct snapshot *snapshot, enum gemm_format format) {
  struct gemm_weight shape = {.n = 200, .k = 1000, .format = format, .scale = GEMM_SCALE_NONE};
  uint64_t stride = (uint64_t)(shape.k + 8) * gemm_type_bytes(both_types(format));
  uint8_t *w = snapshot->kept;
  snapshot_x(w, shape.n, shape.k, both_types(format), stride, 41);
  struct backend_operand operand = {.shape = shape, .w = w, .stride = stride};
  for (int i = 0; i < 2 * COUNT(rows); i++) {
    struct backend_job job = {
        .operand = &operand, .m = rows[i / 2], .x_type = both_types(format), .y_type = i % 2 ? GEMM_F32 : GEMM_F16};
    struct error error;
    enum status status = snapshot_stage(snapshot, &shape, &job, i % 4 == 1)
                             ? snapshot_finish(snapshot, &job, &error)
                             : error_set(&error, STATUS_TOO_LARGE, "the arena is too small");
    write_line(snapshot, "operand", &shape, &job, status, &error);
  }
}

/* ---- y, and x of the next product, in memory of the device */

static enum status run_there(struct snapshot *snapshot, const struct gemm_weight *shape, struct backend_arena *memory,
                             uint8_t *address, struct backend_job *job, struct error *error) {
  struct backend_job first, second;
  if (!snapshot_stage(snapshot, shape, job, false))
    return error_set(error, STATUS_TOO_LARGE, "the arena is too small");
  first = second = *job;
  first.y_memory = second.x_memory = memory;
  first.y = address + snapshot->slab_bytes - MEMORY_BYTES;
  second.x = first.y;
  second.x_stride = first.y_stride;
  enum status status = snapshot_finish(snapshot, &first, error);
  return status == STATUS_OK ? snapshot_finish(snapshot, &second, error) : status;
}

static void device_memory(struct snapshot *snapshot, int kind) {
  struct gemm_weight shape = {
      .n = 768, .k = 768, .format = snapshot_kinds[kind].format, .scale = snapshot_kinds[kind].scale};
  struct backend_arena *memory = NULL;
  struct backend_weight *weight;
  struct backend_plan plan;
  struct error error;
  void *address;
  uint64_t checksum;
  if (snapshot_load(snapshot, &shape, 0, 51, &plan, &checksum, &weight, &error) != STATUS_OK) {
    fprintf(snapshot->out, "device memory: %s\n", error.text);
    return;
  }
  enum status status = snapshot->ops->memory_import(snapshot->backend, snapshot->slab_fd, snapshot->slab_bytes, &memory,
                                                    &address, &error);
  for (int i = 0; i < COUNT(rows); i++) {
    enum gemm_type type = both_types(shape.format);
    struct backend_job job = {.weight = weight, .m = rows[i], .x_type = type, .y_type = type};
    if (memory != NULL)
      status = run_there(snapshot, &shape, memory, address, &job, &error);
    write_line(snapshot, "device memory", &shape, &job, status, &error);
  }
  if (memory != NULL)
    snapshot->ops->memory_close(snapshot->backend, memory);
  snapshot->ops->weight_detach(snapshot->backend, weight);
}

void snapshot_paths(struct snapshot *snapshot) {
  for (int kind = 0; kind < SNAPSHOT_KINDS; kind++) {
    chains(snapshot, kind);
    device_memory(snapshot, kind);
  }
  operands(snapshot, GEMM_FORMAT_F16);
  operands(snapshot, GEMM_FORMAT_BF16);
  for (int kind = 0; kind < SNAPSHOT_KINDS; kind++)
    sequences(snapshot, kind);
}
