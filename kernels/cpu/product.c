#include "product.h"

#include <stdlib.h>

/* Multiply-adds below which waking other threads costs more than it saves. */
#define WORTH_SHARING ((int64_t)1 << 16)

struct part {
  struct product_engine *engine;
  const struct backend_job *job;
  int64_t first; /* row of x and y */
  int64_t rows;
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
    cpu_stage_row(&task->engine->stage, task->engine->micro, task->job, task->first + i, i, part);
  }
}

/* Panels are shared out, so that each is read by one thread; rows of x where there are few panels. */
static void compute_part(const struct part *task, int part, int parts) {
  const struct product_engine *engine = task->engine;
  struct block_task block = {.micro = engine->micro,
                             .variant = engine->variant,
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
  cpu_block_run(&block, &engine->spaces[part], begin, end);
}

static void run_part(void *context, int part, int parts) {
  const struct part *task = context;
  stage_part(task, part, parts);
  if (parts > 1) {
    cpu_pool_meet(task->engine->pool);
  }
  compute_part(task, part, parts);
}

static enum status prepare(struct product_engine *engine, const struct backend_job *job, struct error *error) {
  int threads = cpu_pool_threads(engine->pool);
  enum status status = cpu_stage_prepare(&engine->stage, job->weight, engine->micro, job->m, threads, error);
  for (int i = 0; status == STATUS_OK && i < threads; i++) {
    status = cpu_block_prepare(&engine->spaces[i], engine->variant, &engine->stage, error);
  }
  return status;
}

enum status cpu_product_run(struct product_engine *engine, const struct backend_job *job, struct error *error) {
  const struct gemm_weight *shape = &job->weight->shape;
  enum status status = prepare(engine, job, error);
  if (status != STATUS_OK) {
    return status;
  }
  for (int64_t first = 0; first < job->m; first += engine->stage.rows) {
    int64_t left = job->m - first;
    struct part task = {.engine = engine, .job = job, .first = first};
    task.rows = left < engine->stage.rows ? left : engine->stage.rows;
    if (shape->n * shape->k < WORTH_SHARING / task.rows) {
      run_part(&task, 0, 1);
    } else {
      cpu_pool_run(engine->pool, run_part, &task);
    }
  }
  return STATUS_OK;
}

enum status cpu_product_open(struct product_engine *engine, int threads, const char *set, struct error *error) {
  *engine = (struct product_engine){.micro = micro_choose(set), .variant = &block_variants[0]};
  if (engine->micro == NULL) {
    return error_set(error, STATUS_UNSUPPORTED, "this processor has no instruction set '%s' that gemmd knows", set);
  }
  engine->spaces = calloc((size_t)threads, sizeof(*engine->spaces));
  if (engine->spaces == NULL) {
    return error_set(error, STATUS_NOMEM, "no memory for %d threads", threads);
  }
  enum status status = cpu_pool_create(threads, &engine->pool, error);
  if (status != STATUS_OK) {
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
  cpu_stage_free(&engine->stage);
}
