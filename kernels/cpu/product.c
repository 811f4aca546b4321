#include "product.h"

#include <stdlib.h>
#include <string.h>

/* Multiply-adds below which waking other threads costs more than it saves. */
#define WORTH_SHARING ((int64_t)1 << 16)

/* What a client looks out for without going to sleep, or nearly: on the core that it spins on, a thread of the pool
 * would have to wait for a time slice to end, and all others for that thread. */
#define BRIEF_NS 100000

struct part {
  struct product_engine *engine;
  const struct product_way *way;
  const struct backend_job *job;
  int64_t first; /* row of x and y */
  int64_t rows;
  bool staged; /* the rows are in the stage before the parts begin */
};

/* An even share of [0, count). */
static void share(int64_t count, int part, int parts, int64_t *begin, int64_t *end) {
  *begin = count * part / parts;
  *end = count * (part + 1) / parts;
}

static void stage_part(const struct part *task, int part, int parts) {
  int64_t begin, end;
  share(task->rows, part, parts, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    cpu_stage_row(&task->engine->stage, task->way->micro, task->job, task->first + i, i, part);
  }
}

/* Panels are shared out, so that each is read by one thread; rows of x where there are few panels. */
static void compute_part(const struct part *task, int part, int parts) {
  const struct product_engine *engine = task->engine;
  struct block_task block = {.micro = task->way->micro,
                             .sizes = &task->way->sizes,
                             .stage = &engine->stage,
                             .job = task->job,
                             .first = task->first,
                             .row_end = task->rows};
  int64_t panels = task->job->weight->layout.panels, begin = 0, end = panels;
  if (panels >= parts || task->rows < parts) {
    share(panels, part, parts, &begin, &end);
  } else {
    share(task->rows, part, parts, &block.row_begin, &block.row_end);
  }
  block.rows_ordinary = memchr(engine->stage.ordinary + block.row_begin, 0,
                               (size_t)(block.row_end - block.row_begin) * sizeof(bool)) == NULL;
  cpu_block_run(&block, &engine->spaces[part], begin, end);
}

/* The library's copy has columns for each thread of the pool, also where fewer compute. */
static void library_part(const struct part *task, int part, int parts) {
  const struct product_engine *engine = task->engine;
  for (int columns = part; columns < cpu_pool_threads(engine->pool); columns += parts) {
    cpu_library_part(engine->library, task->way->micro, task->job, &engine->stage, task->first, task->rows, columns);
  }
}

static void run_part(void *context, int part, int parts) {
  const struct part *task = context;
  if (!task->staged) {
    stage_part(task, part, parts);
    if (parts > 1) {
      cpu_pool_meet(task->engine->pool);
    }
  }
  if (task->way->library) {
    library_part(task, part, parts);
  } else {
    compute_part(task, part, parts);
  }
}

static enum status prepare(struct product_engine *engine, const struct product_way *way, const struct backend_job *job,
                           struct error *error) {
  int threads = cpu_pool_threads(engine->pool);
  int64_t most = job->m < way->rows ? job->m : way->rows;
  most = way->library ? cpu_library_rows(most) : most;
  enum status status = cpu_stage_prepare(&engine->stage, job->weight, way->micro, most, way->library, threads, error);
  for (int i = 0; status == STATUS_OK && i < threads; i++) {
    status = cpu_block_prepare(&engine->spaces[i], &way->sizes, &engine->stage, error);
  }
  return status;
}

struct product_way cpu_product_way(const struct product_engine *engine, const struct gemm_weight *shape, int64_t m) {
  int64_t rows = m < STAGE_ROWS ? m : STAGE_ROWS;
  bool alone = shape->n * shape->k < WORTH_SHARING / rows;
  return (struct product_way){.micro = engine->micro,
                              .threads = alone ? 1 : cpu_pool_threads(engine->pool),
                              .rows = STAGE_ROWS,
                              .sizes = block_sizes_default};
}

/* By one thread, roughly, with W in memory: what it reads of W at 16 bytes, and multiplies at 256, a nanosecond. */
static int64_t time_alone_ns(const struct backend_job *job) {
  const struct gemm_weight *shape = &job->weight->shape;
  return (int64_t)(job->weight->layout.total_bytes / 16) + shape->n * shape->k / 256 * job->m;
}

static int threads_left(const struct product_engine *engine, int threads, uint32_t awake, int64_t alone_ns) {
  int left = engine->cores - (int)awake;
  if (awake == 0 || left >= threads || alone_ns > BRIEF_NS) {
    return threads;
  }
  return left > 1 ? left : 1;
}

int cpu_product_threads(const struct product_engine *engine, const struct product_way *way,
                        const struct backend_job *job) {
  return threads_left(engine, way->threads, job->awake, time_alone_ns(job));
}

int cpu_product_plain_threads(const struct product_engine *engine, const struct backend_job *job, int64_t columns) {
  int64_t terms = job->m * columns * job->weight->shape.k; /* a nanosecond each, or a few */
  return threads_left(engine, cpu_pool_threads(engine->pool), job->awake, terms);
}

/* Rows at a time: with the library as many as it computes anyway, so that what it reads is in the stage. */
static int64_t rows_at_once(const struct product_engine *engine, const struct product_way *way) {
  int64_t rows = engine->stage.rows;
  while (way->library && cpu_library_rows(rows) > rows) {
    rows--;
  }
  return rows;
}

/* Every number of rows that will come: whole stages, and what is left. */
static enum status prepare_library(struct product_engine *engine, const struct backend_job *job, int64_t at_once,
                                   struct error *error) {
  int64_t rows = job->m < at_once ? job->m : at_once, left = job->m % rows;
  enum status status = cpu_library_prepare(engine->library, job->weight, &engine->stage, rows, error);
  return status == STATUS_OK && left != 0
             ? cpu_library_prepare(engine->library, job->weight, &engine->stage, left, error)
             : status;
}

enum status cpu_product_run(struct product_engine *engine, const struct product_way *way, const struct backend_job *job,
                            struct error *error) {
  enum status status = prepare(engine, way, job, error);
  int64_t at_once = status == STATUS_OK ? rows_at_once(engine, way) : 0;
  struct product_way own = cpu_product_way(engine, &job->weight->shape, job->m);
  if (status == STATUS_OK && way->library && prepare_library(engine, job, at_once, error) != STATUS_OK) {
    return cpu_product_run(engine, &own, job, error);
  }
  if (status != STATUS_OK) {
    return status;
  }
  for (int64_t first = 0; first < job->m; first += at_once) {
    int64_t left = job->m - first;
    struct part task = {.engine = engine, .way = way, .job = job, .first = first};
    task.rows = left < at_once ? left : at_once;
    /* Threads that are awake anyway would only wait for few rows. */
    task.staged = cpu_pool_is_lent(engine->pool) && task.rows < way->threads;
    if (task.staged) {
      stage_part(&task, 0, 1);
    }
    cpu_pool_run(engine->pool, way->threads, run_part, &task);
    if (way->library && cpu_library_failed(engine->library)) {
      return cpu_product_run(engine, &own, job, error);
    }
  }
  return STATUS_OK;
}

enum status cpu_product_open(struct product_engine *engine, const struct product_options *options,
                             struct error *error) {
  *engine = (struct product_engine){.micro = micro_choose(options->set), .cores = options->cores};
  if (engine->micro == NULL) {
    return error_set(error, STATUS_UNSUPPORTED, "this processor has no instruction set '%s' that gemmd knows",
                     options->set);
  }
  engine->spaces = calloc((size_t)options->threads, sizeof(*engine->spaces));
  if (engine->spaces == NULL) {
    return error_set(error, STATUS_NOMEM, "no memory for %d threads", options->threads);
  }
  /* who asks for a narrower set means all of it */
  uint64_t bytes = engine->micro == micro_choose(NULL) ? options->library_bytes : 0;
  enum status status = cpu_library_open(options->threads, bytes, &engine->library, error);
  if (status == STATUS_OK) {
    status = options->parallel != NULL
                 ? cpu_pool_lent(options->threads, options->parallel, options->parallel_context, &engine->pool, error)
                 : cpu_pool_create(options->threads, options->pins, &engine->pool, error);
  }
  if (status != STATUS_OK) {
    cpu_library_close(engine->library);
    free(engine->spaces);
  }
  return status;
}

void cpu_product_close(struct product_engine *engine) {
  for (int i = 0; i < cpu_pool_threads(engine->pool); i++) {
    cpu_block_free(&engine->spaces[i]);
  }
  free(engine->spaces);
  cpu_pool_destroy(engine->pool);
  cpu_library_close(engine->library);
  cpu_stage_free(&engine->stage);
}
