#include "predict.h"

#include "chain.h"
#include "operand.h"
#include "tensors.h"
#include "turns/pieces.h"

static struct pieces_device device_of(const struct backend *backend, enum gemm_format format) {
  uint64_t operations = backend->operations_per_s;
  bool half = !gemm_quantizes_x(format);
  return (struct pieces_device){.operations_per_s = half ? operations / 2 : operations,
                                .bytes_per_s = backend->bytes_per_s};
}

static bool is_far(const struct backend_job *job) {
  return !job->x_memory || !job->y_memory;
}

/* Of x and y. */
static uint64_t row_bytes_of(const struct backend_job *job, int64_t n, int64_t k) {
  return (uint64_t)k * gemm_type_bytes(job->x_type) + (uint64_t)n * gemm_type_bytes(job->y_type);
}

/* With experts a row is multiplied by some of them; of few rows W is not read as a whole. */
static struct pieces_work experts_work(const struct backend_job *job, struct pieces_work work) {
  double top = (double)job->experts->top, pairs = top * (double)job->m;
  double share = pairs / (double)job->weight->weight.experts;
  work.operations_a_row *= top;
  work.weight_bytes = (uint64_t)((double)work.weight_bytes * (share < 1 ? share : 1));
  work.row_bytes *= job->experts->sum && !job->experts->x_pairs ? 1 : (uint64_t)job->experts->top;
  return work;
}

static struct pieces_work dense_work(const struct backend_job *job) {
  struct pieces_work work = {.far = is_far(job)};
  if (!job->steps) {
    const struct gemm_weight *shape = &job->weight->weight;
    work.operations_a_row = 2 * (double)shape->n * (double)shape->k;
    work.weight_bytes = job->weight->layout.total_bytes;
    work.row_bytes = row_bytes_of(job, shape->n, shape->k);
    return work;
  }
  for (uint32_t i = 0; i < job->step_count; i++) {
    const struct backend_weight *weight = job->steps[i].weight;
    work.operations_a_row += 2 * (double)weight->weight.n * (double)weight->weight.k;
    work.weight_bytes += weight->layout.total_bytes;
  }
  work.row_bytes = row_bytes_of(job, chain_columns(job), job->steps[0].weight->weight.k);
  return work;
}

static struct pieces_work work_of(const struct backend_job *job) {
  struct pieces_work work = dense_work(job);
  return job->experts ? experts_work(job, work) : work;
}

/* Of columns of y with a panel of W. */
static struct pieces_work panel_work(const struct backend_job *job, int64_t columns, bool copied) {
  int64_t k = job->operand->shape.k;
  uint64_t bytes = (uint64_t)columns * (uint64_t)k * 2;
  return (struct pieces_work){.operations_a_row = 2 * (double)columns * (double)k,
                              .weight_bytes = bytes,
                              .copied_bytes = copied ? bytes : 0,
                              .row_bytes = row_bytes_of(job, columns, k),
                              .far = is_far(job)};
}

static enum gemm_format format_of(const struct backend_job *job) {
  return job->operand ? job->operand->shape.format
         : job->steps ? job->steps[0].weight->weight.format
                      : job->weight->weight.format;
}

int64_t predict_rows_of(const struct backend_job *job) {
  int64_t rows = 0;
  for (const struct backend_job *each = job; each; each = each->next)
    rows += each->m;
  return rows;
}

uint64_t cuda_predict_ns(const struct backend *backend, const struct backend_job *job) {
  if (tensors_serves(backend, job))
    return tensors_predict_ns(backend, job);
  struct pieces_device device = device_of(backend, format_of(job));
  if (!job->operand) {
    struct pieces_work work = work_of(job);
    return pieces_predict_ns(&device, &work, predict_rows_of(job));
  }
  bool copied = !operand_lies_there(job->operand);
  struct pieces_work work = panel_work(job, job->operand->shape.n, copied);
  uint64_t ns = pieces_predict_ns(&device, &work, job->m);
  /* what one product may take of the device's memory bounds what goes at once, too */
  uint64_t taken = work.copied_bytes + work.row_bytes * (uint64_t)job->m;
  return taken <= operand_bytes(backend) / 2 ? ns : UINT64_MAX;
}

void predict_note(struct backend *backend, uint64_t ns) {
  if (ns > cuda_longest_ns(backend))
    atomic_store_explicit(&backend->longest_ns, ns, memory_order_relaxed);
}

uint64_t cuda_longest_ns(const struct backend *backend) {
  return atomic_load_explicit(&backend->longest_ns, memory_order_relaxed);
}

int64_t predict_piece(struct backend *backend, const struct backend_turns *turns, uint64_t budget_ns) {
  const struct backend_job *job = &turns->job;
  struct pieces_device device = device_of(backend, format_of(job));
  bool copied = job->operand && turns->staged != turns->column && !operand_lies_there(job->operand);
  struct pieces_work work = job->operand ? panel_work(job, turn_columns(turns), copied) : work_of(job);
  int64_t rows = pieces_rows(&device, &work, turns->rows - turns->row, budget_ns);
  predict_note(backend, pieces_predict_ns(&device, &work, rows));
  return rows;
}
