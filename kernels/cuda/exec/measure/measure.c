/* Products for the clock: as a graph, so that what the host does for each launch is not in it. */
#include "measure.h"

#include "../experts.h"
#include "../operand.h"
#include "../product.h"
#include "../sequence.h"
#include "../tensors.h"
#include "cold.h"
#include "measured.h"

#include <stdlib.h>

enum status measure_begin(cudaStream_t stream, struct error *error) {
  return runtime_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a product", error);
}

/* `status` is that of what was captured. *out is there to be destroyed even where it fails, or NULL. */
static enum status captured(cudaStream_t stream, enum status status, cudaGraph_t *out, struct error *error) {
  struct error later;
  *out = NULL;
  enum status ended = runtime_check(cudaStreamEndCapture(stream, out), "capturing a product", &later);
  if (status == STATUS_OK && ended != STATUS_OK) {
    status = ended;
    *error = later;
  }
  return status;
}

enum status measure_end(cudaStream_t stream, enum status status, cudaGraphExec_t *out, struct error *error) {
  cudaGraph_t graph;
  status = captured(stream, status, &graph, error);
  if (status == STATUS_OK)
    status = runtime_check(cudaGraphInstantiate(out, graph, 0), "capturing a product", error);
  if (graph)
    (void)cudaGraphDestroy(graph);
  return status;
}

enum status measure_time(cudaStream_t stream, cudaGraphExec_t graph, uint32_t launches, uint64_t *ns,
                         struct error *error) {
  cudaEvent_t begin = NULL, end = NULL;
  float milliseconds = 0;
  cudaError_t result = cudaEventCreate(&begin);
  if (result == cudaSuccess)
    result = cudaEventCreate(&end);
  if (result == cudaSuccess)
    result = cudaGraphUpload(graph, stream);
  if (result == cudaSuccess)
    result = cudaEventRecord(begin, stream);
  if (result == cudaSuccess)
    result = cudaGraphLaunch(graph, stream);
  if (result == cudaSuccess)
    result = cudaEventRecord(end, stream);
  if (result == cudaSuccess)
    result = cudaEventSynchronize(end);
  if (result == cudaSuccess)
    result = cudaEventElapsedTime(&milliseconds, begin, end);
  if (begin)
    (void)cudaEventDestroy(begin);
  if (end)
    (void)cudaEventDestroy(end);
  *ns = (uint64_t)((double)milliseconds * 1e6 / launches);
  return runtime_check(result, "timing a product", error);
}

/* x lies on the device as the product reads it, or as it came where each launch quantizes it. The graph stays the
 * backend's. */
static enum status product_graph(struct backend *backend, struct backend_weight *const *weights, size_t count,
                                 const struct backend_timing *timing, cudaGraphExec_t *out, struct error *error) {
  cudaGraph_t graph;
  struct slot *slot = &backend->slots[0];
  const struct backend_weight *weight = slot->job.weight;
  struct chunk chunk = {.slot = slot,
                        .job = &slot->job,
                        .weight = weight,
                        .at = staging_place(&weight->weight, &weight->layout, slot->rows_most),
                        .rows = slot->rows_most,
                        .rows_padded = staging_pad(&weight->weight, slot->rows_most),
                        .stays = true};
  bool quantizes = timing->quantize && chunk_quantizes(&chunk);
  chunk.follows = timing->dependent || quantizes;
  chunk.in_row = timing->dependent && !quantizes;
  enum status status = quantizes ? chunk_stage_bare(&chunk, error) : chunk_stage(&chunk, error);
  if (timing->cold)
    cold_make(backend, weights[0], count);
  bool copied = timing->cold && backend->cold.copies > 0;
  if (status == STATUS_OK)
    status = measure_begin(slot->stream, error);
  if (status != STATUS_OK)
    return status;
  for (uint32_t i = 0; i < timing->launches && status == STATUS_OK; i++) {
    struct backend_weight next = copied ? cold_next(backend, weights[0]) : *weights[i % count];
    chunk.weight = &next;
    if (quantizes)
      status = chunk_quantize_bare(&chunk, error);
    if (status == STATUS_OK)
      status = chunk_compute(backend, &chunk, error);
  }
  status = captured(slot->stream, status, &graph, error);
  if (status == STATUS_OK)
    status = measured_graph(backend, &slot->job, timing, graph, out, error);
  if (graph)
    (void)cudaGraphDestroy(graph);
  return status;
}

static enum status sequence_graph(struct backend *backend, const struct backend_timing *timing, cudaGraphExec_t *graph,
                                  struct error *error) {
  struct slot *slot = &backend->slots[0];
  const struct sequence sequence = {.slot = slot,
                                    .rows = slot->rows_most,
                                    .rows_most = slot->rows_most,
                                    .dependent = timing->dependent,
                                    .stays = true};
  enum status status = sequence_stage(&sequence, timing->quantize, error);
  if (status == STATUS_OK)
    status = measure_begin(slot->stream, error);
  if (status != STATUS_OK)
    return status;
  for (uint32_t i = 0; i < timing->launches && status == STATUS_OK; i++)
    status = sequence_run(backend, &sequence, timing->quantize, error);
  return measure_end(slot->stream, status, graph, error);
}

/* Both tensors lie on the device, `count` times, form.x_step and form.w_step bytes apart. */
static enum status tensors_graph(struct backend *backend, size_t count, const struct backend_timing *timing,
                                 cudaGraphExec_t *graph, struct error *error) {
  struct slot *slot = &backend->slots[0];
  const struct backend_job job = slot->job;
  struct backend_operand one = *job.operand;
  int64_t pieces;
  one.form.x_step = one.form.w_step = 0;
  slot->job.operand = &one;
  if (backend->trial.device) { /* y stays on the device, as that of stored weights does */
    slot->job.y = backend->trial_y;
    slot->job.y_memory = &backend->trial;
    slot->job.y_stride = (uint64_t)one.shape.n * gemm_type_bytes(job.y_type);
  }
  enum status status = tensors_pieces(backend, &slot->job, &slot->operand, &pieces, error);
  if (status == STATUS_OK)
    status = measure_begin(slot->stream, error);
  if (status != STATUS_OK)
    return status;
  for (uint32_t i = 0; i < timing->launches && status == STATUS_OK; i++) {
    one.w = (const uint8_t *)job.operand->w + i % count * job.operand->form.w_step;
    slot->job.x = (const uint8_t *)job.x + i % count * job.operand->form.x_step;
    for (int64_t piece = 0; piece < pieces && status == STATUS_OK; piece++)
      status = tensors_queue(backend, slot, &slot->operand, piece, error);
  }
  slot->job = job;
  return measure_end(slot->stream, status, graph, error);
}

/* ---- two tensors by the kernels of stored weights */

/* One of the copies of both tensors, as it has been staged. */
struct staged {
  struct backend_weight weight;
  CUdeviceptr scratch;
};

static struct chunk staged_chunk(struct slot *slot, const struct staged *staged) {
  const struct backend_weight *weight = &staged->weight;
  slot->scratch = staged->scratch;
  return (struct chunk){.slot = slot,
                        .job = &slot->job,
                        .weight = weight,
                        .at = staging_place(&weight->weight, &weight->layout, slot->rows_most),
                        .rows = slot->rows_most,
                        .rows_padded = staging_pad(&weight->weight, slot->rows_most),
                        .stays = true};
}

/* A copy of x and W to memory of its own, or W where it lies. */
static enum status stage_copy(struct backend *backend, const struct backend_job *job, struct backend_operand *one,
                              const struct operand_panel *panel, struct staged *out, struct error *error) {
  struct slot *slot = &backend->slots[0];
  slot->job = *job;
  slot->job.operand = one;
  slot->job.x = (const uint8_t *)job->x + panel->copy * job->operand->form.x_step;
  one->w = (const uint8_t *)job->operand->w + panel->copy * job->operand->form.w_step;
  enum status status = operand_stage(backend, slot, panel, error);
  if (status != STATUS_OK)
    return status;
  *out = (struct staged){.weight = slot->own, .scratch = slot->scratch};
  slot->job.weight = &out->weight;
  slot->rows_most = staging_go(slot->job.m, out->weight.rows_most);
  struct chunk chunk = staged_chunk(slot, out);
  return chunk_stage(&chunk, error);
}

static enum status staged_graph(struct backend *backend, const struct staged *copies, size_t count,
                                const struct backend_timing *timing, cudaGraphExec_t *graph, struct error *error) {
  struct slot *slot = &backend->slots[0];
  enum status status = measure_begin(slot->stream, error);
  if (status != STATUS_OK)
    return status;
  for (uint32_t i = 0; i < timing->launches && status == STATUS_OK; i++) {
    struct chunk chunk = staged_chunk(slot, &copies[i % count]);
    chunk.follows = chunk.in_row = timing->dependent;
    status = chunk_compute(backend, &chunk, error);
  }
  return measure_end(slot->stream, status, graph, error);
}

/* In turn by `count` copies of both, as tensors_graph has them: a library's times are of memory, too. */
static enum status operand_graph(struct backend *backend, size_t count, const struct backend_timing *timing,
                                 cudaGraphExec_t *graph, struct error *error) {
  struct slot *slot = &backend->slots[0];
  const struct backend_job job = slot->job;
  struct backend_operand one = *job.operand;
  struct operand_panel panel = {.columns = one.shape.n,
                                .rows = job.m,
                                .bytes = operand_bytes(backend) / 4,
                                .region = backend->trial.device ? &backend->trial_staging : &slot->operand,
                                .copies = count};
  struct staged *copies = calloc(count, sizeof *copies);
  enum status status = copies ? STATUS_OK : error_set(error, STATUS_NOMEM, "no memory for a product's trial");
  for (; panel.copy < count && status == STATUS_OK; panel.copy++)
    status = stage_copy(backend, &job, &one, &panel, &copies[panel.copy], error);
  if (status == STATUS_OK)
    status = staged_graph(backend, copies, count, timing, graph, error);
  slot->job = job;
  free(copies);
  return status;
}

/* x, ids and routing lie on the device; what each launch does is all that a product over experts is, or what is left of
 * it where a product before has sorted the rows. A layer's rows are written over. */
static enum status experts_graph(struct backend *backend, struct backend_weight *const *weights, size_t count,
                                 const struct backend_timing *timing, cudaGraphExec_t *graph, struct error *error) {
  struct slot *slot = &backend->slots[0];
  bool sorted = !timing->quantize && !slot->job.steps;
  enum status status = experts_stage(slot, slot->rows_most, error);
  if (status == STATUS_OK && sorted)
    status = experts_bare(backend, slot, slot->rows_most, false, error);
  if (status == STATUS_OK)
    status = measure_begin(slot->stream, error);
  if (status != STATUS_OK)
    return status;
  for (uint32_t i = 0; i < timing->launches && status == STATUS_OK; i++) {
    if (!slot->job.steps)
      slot->job.weight = weights[i % count];
    status = experts_bare(backend, slot, slot->rows_most, sorted, error);
  }
  return measure_end(slot->stream, status, graph, error);
}

enum status cuda_measure(struct backend *backend, const struct backend_job *job, struct backend_weight *const *weights,
                         size_t count, const struct backend_timing *timing, uint64_t *ns, struct error *error) {
  struct slot *slot = &backend->slots[0];
  cudaGraphExec_t graph = NULL;
  slot->job = *job;
  slot->first_row = slot->next_row = 0;
  slot->rows = job->m;
  enum status status = backend_enter(backend, error);
  if (job->operand)
    slot->rows_most = job->m;
  else if (!job->experts && !job->steps)
    slot->rows_most = staging_go(job->m, job->weight->rows_most);
  else if (status == STATUS_OK)
    status = (job->experts ? experts_rows : sequence_rows)(slot, job, job->m, &slot->rows_most, error);
  if (status == STATUS_OK && job->operand)
    status = tensors_serves(backend, job) ? tensors_graph(backend, count, timing, &graph, error)
                                          : operand_graph(backend, count, timing, &graph, error);
  else if (status == STATUS_OK && job->experts)
    status = experts_graph(backend, weights, count, timing, &graph, error);
  else if (status == STATUS_OK)
    status = job->steps ? sequence_graph(backend, timing, &graph, error)
                        : product_graph(backend, weights, count, timing, &graph, error);
  if (status == STATUS_OK)
    status = measure_time(slot->stream, graph, timing->launches, ns, error);
  if (graph && !measured_keeps(backend, graph))
    (void)cudaGraphExecDestroy(graph);
  /* Products of many rows are computed in several goes. */
  if (status == STATUS_OK)
    *ns = *ns * (uint64_t)job->m / (uint64_t)slot->rows_most;
  return status;
}
