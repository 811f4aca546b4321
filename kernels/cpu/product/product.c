#include "product.h"

#include "cost.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Multiply-adds below which waking other threads costs more than it saves. */
#define WORTH_SHARING ((int64_t)1 << 16)

/* Multiply-adds of a panel from which on each thread takes the next one when it has time: cores may differ, or be
 * wanted by others. */
#define WORTH_TAKING ((int64_t)1 << 21)

/* What a client looks out for without going to sleep, or nearly: on the core that it spins on, a thread of the pool
 * would have to wait for a time slice to end, and all others for that thread. */
#define BRIEF_NS 100000

/* Multiply-adds, and elements of x to be staged, of a piece between two pauses: a millisecond, or a few. */
#define PIECE_TERMS ((int64_t)1 << 27)
#define PIECE_STAGED ((int64_t)1 << 20)
#define LIBRARY_TERMS ((int64_t)1 << 31)
#define LIBRARY_ROWS 32
#define LONG_K ((int64_t)1 << 20)
#define LIBRARY_WEIGHT ((int64_t)1 << 27)

struct part {
  struct product_engine *engine;
  const struct product_way *way;
  const struct backend_job *job;
  int64_t first; /* row of x and y */
  int64_t rows;
  _Atomic int64_t *next;        /* panel, which threads take in turn; NULL: each has its share */
  bool staged;                  /* the rows are in the stage before the parts begin */
  int64_t begin, end;           /* of a piece: rows to be staged, or panels */
  int64_t step_begin, step_end; /* of a piece of panels: see block.h */
};

/* An even share of [0, count). */
static void share(int64_t count, int part, int parts, int64_t *begin, int64_t *end) {
  *begin = count * part / parts;
  *end = count * (part + 1) / parts;
}

static void stage_part(const struct part *task, int part, int parts) {
  int64_t begin, end;
  share(task->end - task->begin, part, parts, &begin, &end);
  for (int64_t i = task->begin + begin; i < task->begin + end; i++) {
    cpu_stage_row(&task->engine->stage, task->way->micro, task->job, task->first + i, i, part);
  }
}

/* Rows of x, interleaved ones by whole tiles. */
static void share_rows(const struct stage *stage, int64_t rows, int part, int parts, int64_t *begin, int64_t *end) {
  int64_t together = stage->interleaved > 0 ? stage->tile_rows : 1;
  share((rows + together - 1) / together, part, parts, begin, end);
  *begin = *begin * together < rows ? *begin * together : rows;
  *end = *end * together < rows ? *end * together : rows;
}

static void take_panels(const struct part *task, const struct block_task *block, int part) {
  int64_t panel = atomic_fetch_add(task->next, 1);
  for (; panel < task->end; panel = atomic_fetch_add(task->next, 1)) {
    cpu_block_run(block, &task->engine->spaces[part], panel, panel + 1);
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
                             .row_end = task->rows,
                             .step_begin = task->step_begin,
                             .step_end = task->step_end};
  int64_t panels = task->end - task->begin, begin = 0, end = panels;
  if (panels >= parts || task->rows < parts) {
    share(panels, part, parts, &begin, &end);
  } else {
    share_rows(&engine->stage, task->rows, part, parts, &block.row_begin, &block.row_end);
  }
  block.rows_ordinary = memchr(engine->stage.ordinary + block.row_begin, 0,
                               (size_t)(block.row_end - block.row_begin) * sizeof(bool)) == NULL;
  if (task->next != NULL) {
    take_panels(task, &block, part);
  } else {
    cpu_block_run(&block, &engine->spaces[part], task->begin + begin, task->begin + end);
  }
}

/* The library's copy has columns for each thread of the pool, also where fewer compute. */
static void library_part(const struct part *task, int part, int parts) {
  const struct product_engine *engine = task->engine;
  for (int columns = part; columns < cpu_pool_threads(engine->pool); columns += parts) {
    cpu_library_part(engine->library, task->way->micro, task->job, &engine->stage, task->first, task->rows, columns);
  }
}

static void run_part(void *context, int part, int parts) {
  struct part task = *(const struct part *)context;
  task.begin = 0;
  task.end = task.rows;
  if (!task.staged) {
    stage_part(&task, part, parts);
    if (parts > 1) {
      cpu_pool_meet(task.engine->pool);
    }
  }
  if (task.way->library) {
    library_part(&task, part, parts);
    return;
  }
  task.end = task.job->weight->layout.panels;
  compute_part(&task, part, parts);
}

/* ---- in pieces */

static void run_stage_piece(void *context, int part, int parts) {
  stage_part(context, part, parts);
}

static void run_panel_piece(void *context, int part, int parts) {
  compute_part(context, part, parts);
}

static enum status run_piece(const struct part *task, cpu_task run, uint64_t predicted_ns, struct error *error) {
  struct part piece = *task;
  cpu_pool_run(task->engine->pool, task->way->threads, run, &piece);
  return cpu_pause_here(task->engine->pause, predicted_ns, error);
}

static enum status run_panels(const struct part *task, int64_t steps, struct error *error) {
  const struct stage *stage = &task->engine->stage;
  const struct backend_weight *weight = task->job->weight;
  int64_t width = weight->layout.width;
  uint64_t columns = (uint64_t)((task->end - task->begin - 1) * width +
                                cpu_layout_width(&weight->layout, &weight->shape, task->end - 1));
  uint64_t bytes = columns * weight->layout.column_bytes / (uint64_t)stage->steps * (uint64_t)steps;
  return run_piece(task, run_panel_piece,
                   cost_product_ns(task->rows, columns * (uint64_t)(steps * (stage->k / stage->steps)), bytes), error);
}

static enum status stage_in_pieces(struct part *task, struct error *error) {
  int64_t at_once = PIECE_STAGED / task->engine->stage.k;
  at_once = at_once > 1 ? at_once : 1;
  enum status status = STATUS_OK;
  for (task->begin = 0; status == STATUS_OK && task->begin < task->rows; task->begin = task->end) {
    task->end = task->rows - task->begin < at_once ? task->rows : task->begin + at_once;
    status = run_piece(task, run_stage_piece, cost_stage_ns(task->end - task->begin, task->engine->stage.k), error);
  }
  return status;
}

/* One panel a thread, or a few threads one, which take too long for one piece. */
static enum status divide_panels(struct part *task, int64_t steps, struct error *error) {
  enum status status = STATUS_OK;
  for (int64_t step = 0; status == STATUS_OK && step < task->engine->stage.steps; step += steps) {
    int64_t left = task->engine->stage.steps - step;
    task->step_begin = step;
    task->step_end = step + (left < steps ? left : steps);
    status = run_panels(task, task->step_end - step, error);
  }
  task->step_begin = task->step_end = 0;
  return status;
}

static enum status compute_in_pieces(struct part *task, struct error *error) {
  const struct stage *stage = &task->engine->stage;
  const struct backend_weight *weight = task->job->weight;
  int threads = task->way->threads;
  int64_t terms = task->rows * stage->k * weight->layout.width, at_once = PIECE_TERMS / terms;
  int64_t divides = cpu_block_divides(task->way->micro, &weight->shape), steps = 0;
  if (divides > 0 && terms * threads > 2 * PIECE_TERMS) {
    int64_t k = PIECE_TERMS / (task->rows * weight->layout.width * threads) / divides * divides;
    steps = (k > divides ? k : divides) / (stage->k / stage->steps);
  }
  at_once = at_once > threads ? at_once : threads;
  enum status status = STATUS_OK;
  for (task->begin = 0; status == STATUS_OK && task->begin < weight->layout.panels; task->begin = task->end) {
    int64_t left = weight->layout.panels - task->begin;
    task->end = task->begin + (left < at_once ? left : at_once);
    status =
        steps > 0 && steps < stage->steps ? divide_panels(task, steps, error) : run_panels(task, stage->steps, error);
  }
  return status;
}

static enum status run_in_pieces(struct part *task, struct error *error) {
  enum status status = stage_in_pieces(task, error);
  return status == STATUS_OK ? compute_in_pieces(task, error) : status;
}

/* ---- all of it */

static enum status prepare(struct product_engine *engine, const struct product_way *way, const struct backend_job *job,
                           struct error *error) {
  int threads = cpu_pool_threads(engine->pool);
  int64_t most = job->m < way->rows ? job->m : way->rows;
  most = way->library ? cpu_library_rows(most) : most;
  int64_t least = engine->pause != NULL ? 1 : MICRO_ROWS;
  enum status status =
      cpu_stage_prepare(&engine->stage, job->weight, way->micro, most, least, way->library, threads, error);
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
static int64_t rows_at_once(const struct product_engine *engine, const struct product_way *way,
                            const struct gemm_weight *shape) {
  int64_t rows = engine->stage.rows;
  if (engine->pause != NULL &&
      way->library) { /* all columns are one piece, and with few rows W is what takes the time */
    int64_t piece = LIBRARY_TERMS / (shape->n * shape->k);
    piece = piece > LIBRARY_ROWS ? piece : LIBRARY_ROWS;
    rows = rows < piece ? rows : piece;
  } else if (engine->pause != NULL && cpu_block_divides(way->micro, shape) == 0) {
    int64_t columns = cpu_block_shares(way->micro, shape) ? shape->n : (int64_t)MICRO_WIDTH * way->threads;
    int64_t piece = 2 * PIECE_TERMS / (columns * engine->stage.k);
    piece = piece > MICRO_TABLE_ROWS ? piece : engine->stage.k > LONG_K ? 1 : MICRO_TABLE_ROWS;
    rows = rows < piece ? rows : piece;
  }
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

static uint64_t library_ns(const struct part *task) {
  const struct gemm_weight *shape = &task->job->weight->shape;
  return (uint64_t)(shape->n * shape->k) / COST_LIBRARY_TERMS * (uint64_t)task->rows +
         cost_stage_ns(task->rows, shape->k);
}

/* Others compute with the library in a pause, and may have made room for what they need. */
static enum status run_library_rows(struct part *task, struct error *error) {
  struct product_engine *engine = task->engine;
  enum status status = STATUS_OK;
  if (engine->pause != NULL) {
    status = cpu_library_prepare(engine->library, task->job->weight, &engine->stage, task->rows, error);
  }
  if (status == STATUS_OK) {
    cpu_pool_run(engine->pool, task->way->threads, run_part, task);
    status = cpu_library_failed(engine->library) ? STATUS_UNSUPPORTED
                                                 : cpu_pause_here(engine->pause, library_ns(task), error);
  }
  return status;
}

static bool worth_taking(const struct part *task) {
  const struct backend_weight *weight = task->job->weight;
  return weight->layout.panels >= 2 * (int64_t)task->way->threads &&
         task->rows * weight->layout.width * weight->layout.k >= WORTH_TAKING &&
         !cpu_block_shares(task->way->micro, &weight->shape);
}

static enum status run_rows(struct part *task, struct error *error) {
  if (task->way->library) {
    return run_library_rows(task, error);
  }
  if (task->engine->pause != NULL) {
    return run_in_pieces(task, error);
  }
  /* Threads that are awake anyway would only wait for few rows. */
  task->staged = cpu_pool_is_lent(task->engine->pool) && task->rows < task->way->threads;
  if (task->staged) {
    task->begin = 0;
    task->end = task->rows;
    stage_part(task, 0, 1);
  }
  _Atomic int64_t next = 0;
  task->next = worth_taking(task) ? &next : NULL;
  cpu_pool_run(task->engine->pool, task->way->threads, run_part, task);
  task->next = NULL;
  return STATUS_OK;
}

enum status cpu_product_run(struct product_engine *engine, const struct product_way *way, const struct backend_job *job,
                            struct error *error) {
  struct product_way own = cpu_product_way(engine, &job->weight->shape, job->m);
  if (engine->pause != NULL && way->library && job->weight->shape.n * job->weight->shape.k > LIBRARY_WEIGHT) {
    return cpu_product_run(engine, &own, job, error); /* a few rows with it are too much for one piece */
  }
  enum status status = prepare(engine, way, job, error);
  int64_t at_once = status == STATUS_OK ? rows_at_once(engine, way, &job->weight->shape) : 0;
  if (status == STATUS_OK && way->library && prepare_library(engine, job, at_once, error) != STATUS_OK) {
    return cpu_product_run(engine, &own, job, error);
  }
  for (int64_t first = 0; status == STATUS_OK && first < job->m; first += at_once) {
    int64_t left = job->m - first;
    struct part task = {.engine = engine, .way = way, .job = job, .first = first};
    task.rows = left < at_once ? left : at_once;
    engine->stage.interleaved = way->library ? 0
                                             : cpu_block_interleaves(way->micro, &way->sizes, &engine->stage,
                                                                     job->weight->shape.format, task.rows);
    status = run_rows(&task, error);
    if (way->library && status != STATUS_OK && status != STATUS_CANCELLED) {
      return cpu_product_run(engine, &own, job, error);
    }
  }
  return status;
}

/* ---- groups of rows with weights of their own */

struct groups_part {
  struct product_engine *engine;
  const struct product_way *way;
  const struct backend_job *job;
  const struct product_group *groups;
  int64_t count, panels, cost; /* panels of one; cost of all */
  const int32_t *sources;      /* NULL, or [m]: rows of x */
};

/* The first panel of the group, whose panels begin at cost `before`, that begins at `cost` or behind it. */
static int64_t panel_at(const struct groups_part *task, int64_t group, int64_t before, int64_t cost) {
  int64_t each = task->groups[group].cost, panel = cost <= before ? 0 : (cost - before + each - 1) / each;
  return panel < task->panels ? panel : task->panels;
}

static void compute_group(const struct groups_part *task, const struct product_group *group, int part, int64_t begin,
                          int64_t end) {
  const struct product_engine *engine = task->engine;
  struct backend_job job = *task->job;
  job.weight = (struct backend_weight *)(uintptr_t)group->weight;
  job.bias = group->bias;
  struct block_task block = {.micro = task->way->micro,
                             .sizes = &task->way->sizes,
                             .stage = &engine->stage,
                             .job = &job,
                             .row_begin = group->begin,
                             .row_end = group->end};
  block.rows_ordinary =
      memchr(engine->stage.ordinary + group->begin, 0, (size_t)(group->end - group->begin) * sizeof(bool)) == NULL;
  cpu_block_run(&block, &engine->spaces[part], begin, end);
}

/* A row of x that several groups have is made ready once by each thread. */
static void stage_sources(const struct groups_part *task, int part, int parts) {
  struct stage *stage = &task->engine->stage;
  int64_t begin, end, there[PRODUCT_SOURCES] = {0}; /* place + 1 */
  share(task->job->m, part, parts, &begin, &end);
  for (int64_t place = begin; place < end; place++) {
    int64_t row = task->sources != NULL ? task->sources[place] : place;
    if (task->sources != NULL && there[row] != 0) {
      cpu_stage_copy(stage, &task->job->weight->shape, there[row] - 1, place);
      continue;
    }
    cpu_stage_row(stage, task->way->micro, task->job, row, place, part);
    if (task->sources != NULL) {
      there[row] = place + 1;
    }
  }
}

static void run_groups_part(void *context, int part, int parts) {
  const struct groups_part *task = context;
  int64_t begin, end, before = 0;
  stage_sources(task, part, parts);
  if (parts > 1) {
    cpu_pool_meet(task->engine->pool);
  }
  share(task->cost, part, parts, &begin, &end);
  for (int64_t i = 0; i < task->count && before < end; before += task->panels * task->groups[i++].cost) {
    int64_t first = panel_at(task, i, before, begin), last = panel_at(task, i, before, end);
    if (first < last) {
      compute_group(task, &task->groups[i], part, first, last);
    }
  }
}

enum status cpu_product_groups(struct product_engine *engine, const struct backend_job *job,
                               const struct product_group *groups, int64_t count, const int32_t *sources,
                               struct error *error) {
  struct backend_job one = *job;
  one.weight = (struct backend_weight *)(uintptr_t)groups[0].weight;
  struct product_way way = cpu_product_way(engine, &one.weight->shape, job->m * count);
  struct groups_part task = {.engine = engine,
                             .way = &way,
                             .job = &one,
                             .groups = groups,
                             .count = count,
                             .panels = one.weight->layout.panels,
                             .sources = sources};
  for (int64_t i = 0; i < count; i++) {
    task.cost += task.panels * groups[i].cost;
  }
  enum status status = prepare(engine, &way, &one, error);
  if (status == STATUS_OK) {
    way.threads = threads_left(engine, way.threads, one.awake, time_alone_ns(&one) * count);
    cpu_pool_run(engine->pool, way.threads, run_groups_part, &task);
  }
  return status;
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

static void free_memory(struct product_engine *engine) {
  for (int i = 0; i < cpu_pool_threads(engine->pool); i++) {
    cpu_block_free(&engine->spaces[i]);
  }
  cpu_stage_free(&engine->stage);
}

void cpu_product_close(struct product_engine *engine) {
  cpu_product_close_beside(engine);
  cpu_pool_destroy(engine->pool);
  cpu_library_close(engine->library);
}

enum status cpu_product_open_beside(const struct product_engine *of, struct cpu_pause *pause,
                                    struct product_engine *out, struct error *error) {
  int threads = cpu_pool_threads(of->pool);
  *out = (struct product_engine){
      .micro = of->micro, .pool = of->pool, .library = of->library, .cores = of->cores, .pause = pause};
  out->spaces = calloc((size_t)threads, sizeof(*out->spaces));
  return out->spaces != NULL ? STATUS_OK : error_set(error, STATUS_NOMEM, "no memory for %d threads", threads);
}

void cpu_product_close_beside(struct product_engine *engine) {
  free_memory(engine);
  free(engine->spaces);
}

uint64_t cpu_product_bytes(const struct product_engine *engine) {
  uint64_t bytes = engine->stage.memory_bytes;
  for (int i = 0; i < cpu_pool_threads(engine->pool); i++) {
    bytes += engine->spaces[i].memory_bytes;
  }
  return bytes;
}

void cpu_product_rest(struct product_engine *engine) {
  free_memory(engine);
}
