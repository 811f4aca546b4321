/* Products under way: queued on a slot's stream, seen to end in a word that the stream writes. */
#include "submit.h"

#include "../../../proto/clock.h"
#include "../launch/graph.h"
#include "experts.h"
#include "job.h"
#include "operand.h"
#include "predict.h"
#include "product.h"
#include "sequence.h"
#include "turns/turn.h"

/* Chunks queued at a time: the driver's queue is bounded, and a submit that fills it would wait for the device. */
enum { CHUNKS_AHEAD = 16 };

/* The next rows of a slot's job. */
static enum status product_queue(struct backend *backend, struct slot *slot, int64_t rows, struct error *error) {
  const struct backend_weight *weight = slot->job.weight;
  struct chunk chunk = {.slot = slot,
                        .job = &slot->job,
                        .weight = weight,
                        .at = staging_place(&weight->weight, &weight->layout, slot->rows_most),
                        .row = slot->next_row,
                        .rows = rows,
                        .rows_padded = staging_pad(&weight->weight, rows),
                        .follows = !chunk_as_is(&slot->job)};
  enum status status = chunk_stage(&chunk, error);
  return status == STATUS_OK ? chunk_compute(backend, &chunk, error) : status;
}

static enum status sequence_queue(struct backend *backend, struct slot *slot, int64_t rows, struct error *error) {
  const struct sequence sequence = {
      .slot = slot, .row = slot->next_row, .rows = rows, .rows_most = slot->rows_most, .dependent = true};
  enum status status = sequence_stage(&sequence, false, error);
  return status == STATUS_OK ? sequence_run(backend, &sequence, false, error) : status;
}

/* More rows take the device so long that what the host does meanwhile costs nothing. */
enum { GRAPH_ROWS_MOST = 256 };

/* Products with the same key launch about the same. */
static uint64_t graph_key(const struct slot *slot) {
  const struct backend_job *job = &slot->job;
  uint64_t of = job->steps ? (uintptr_t)job->steps : (uintptr_t)job->weight;
  return of ^ (uint64_t)variant_bucket(slot->rows) << 48 ^ (uint64_t)job->x_type << 60 ^ (uint64_t)job->y_type << 56;
}

static enum status chunk_queue(struct backend *backend, struct slot *slot, int64_t rows, struct error *error) {
  if (slot->job.experts)
    return experts_queue(backend, slot, rows, error);
  return slot->job.steps ? sequence_queue(backend, slot, rows, error) : product_queue(backend, slot, rows, error);
}

/* The same, with its kernels started as a graph where that can be. */
static enum status graph_queue(struct backend *backend, struct slot *slot, int64_t rows, struct error *error) {
  graph_hold(slot, graph_key(slot));
  enum status status = chunk_queue(backend, slot, rows, error);
  cudaError_t result = graph_release(slot);
  if (slot->launches.refused && backend->warn)
    backend->warn("CUDA makes no graph: kernels are launched one by one, which takes a few microseconds longer");
  backend->no_graphs = slot->launches.refused;
  return status == STATUS_OK ? runtime_check(result, "starting a product", error) : status;
}

/* Queues the next chunks of a slot's job, and behind them a write of the word that poll looks at. What fails once
 * something is queued is reported by poll, when the device has let go of the job's memory. */
static enum status slot_advance(struct backend *backend, struct slot *slot, struct error *error) {
  bool graph = slot->rows <= GRAPH_ROWS_MOST && !backend->no_graphs && !slot->job.experts;
  for (int i = 0; i < CHUNKS_AHEAD && slot->next_row < slot->rows && slot->status == STATUS_OK; i++) {
    int64_t left = slot->rows - slot->next_row, rows = left < slot->rows_most ? left : slot->rows_most;
    slot->status = graph ? graph_queue(backend, slot, rows, error) : chunk_queue(backend, slot, rows, error);
    slot->next_row += rows;
  }
  slot->sequence++;
  slot->looked_ns = clock_ns();
  CUresult result = backend->driver->cuStreamWriteValue32_v2(slot->stream, slot->word_device, slot->sequence, 0);
  enum status status = driver_check(backend->driver, result, "starting a product", error);
  if (slot->status == STATUS_OK)
    slot->status = status;
  return status;
}

/* How many rows of its job go at a time. */
static enum status slot_rows(struct slot *slot, struct error *error) {
  int64_t most = slot->job.weight->rows_most;
  if (slot->job.experts)
    return experts_rows(slot, &slot->job, slot->rows - slot->first_row, &slot->rows_most, error);
  if (slot->job.steps)
    return sequence_rows(slot, &slot->job, slot->rows - slot->first_row, &slot->rows_most, error);
  slot->rows_most = staging_go(slot->rows - slot->first_row, most);
  return STATUS_OK;
}

struct slot *submit_slot(struct backend *backend, bool piece) {
  struct slot *found = NULL;
  int alike = 0;
  for (int i = 0; i < backend->slot_count; i++) {
    struct slot *slot = &backend->slots[i];
    alike += slot->busy && (slot->turns != NULL) == piece;
    found = found || slot->busy ? found : slot;
  }
  return alike < backend->in_flight ? found : NULL;
}

void submit_take(struct slot *slot, const struct backend_job *job, struct backend_turns *turns, int64_t row,
                 int64_t end) {
  slot->begin_ns = clock_ns();
  slot->job = *job;
  slot->turns = turns;
  slot->first_row = slot->next_row = row;
  slot->rows = end;
  slot->status = STATUS_OK;
}

enum status submit_start(struct backend *backend, struct slot *slot, struct error *error) {
  enum status status = slot_rows(slot, error);
  if (status == STATUS_OK)
    status = slot_advance(backend, slot, error);
  slot->busy = status == STATUS_OK;
  return status;
}

static enum status stage_w(struct backend *backend, struct slot *slot, struct error *error) {
  struct operand_panel panel = {.columns = slot->job.operand->shape.n,
                                .rows = slot->rows,
                                .bytes = predict_operand_bytes(backend) / 4,
                                .region = &slot->operand};
  return operand_stage(backend, slot, &panel, error);
}

enum status cuda_submit(struct backend *backend, const struct backend_job *job, struct error *error) {
  struct slot *slot = submit_slot(backend, false);
  if (!slot)
    return error_set(error, STATUS_BUSY, "%d products are under way", backend->in_flight);
  enum status status = job_check(job, error);
  if (status == STATUS_OK)
    status = backend_enter(backend, error);
  if (status != STATUS_OK)
    return status;
  int64_t rows = 0;
  for (const struct backend_job *each = job; each; each = each->next)
    rows += each->m;
  submit_take(slot, job, NULL, 0, rows);
  status = job->operand ? stage_w(backend, slot, error) : STATUS_OK;
  if (status != STATUS_OK)
    return status;
  predict_note(backend, cuda_predict_ns(backend, job));
  return submit_start(backend, slot, error);
}

/* A fault stops the stream before it writes the word, so that is asked about from time to time. */
enum { LOOK_AFTER_NS = 2000000 };

/* True when the device has reached the slot's word; *failed: it never will. */
static bool word_written(struct slot *slot, uint64_t now_ns, enum status *failed) {
  struct error unreported;
  *failed = STATUS_OK;
  if (__atomic_load_n(slot->word, __ATOMIC_ACQUIRE) == slot->sequence)
    return true;
  if (now_ns - slot->looked_ns < LOOK_AFTER_NS)
    return false;
  slot->looked_ns = now_ns;
  cudaError_t result = cudaStreamQuery(slot->stream);
  if (result == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  *failed = runtime_check(result, "waiting for a product", &unreported);
  return *failed != STATUS_OK || __atomic_load_n(slot->word, __ATOMIC_ACQUIRE) == slot->sequence;
}

/* True when the slot's job has ended. */
static bool slot_ended(struct backend *backend, struct slot *slot, uint64_t now_ns) {
  struct error unreported;
  enum status failed;
  if (!word_written(slot, now_ns, &failed))
    return false;
  if (failed == STATUS_OK && slot->status == STATUS_OK && slot->next_row < slot->rows) {
    failed = backend_enter(backend, &unreported);
    if (failed == STATUS_OK)
      failed = slot_advance(backend, slot, &unreported);
    if (failed == STATUS_OK)
      return false;
  }
  if (failed != STATUS_OK)
    slot->status = failed;
  return true;
}

int cuda_poll(struct backend *backend, struct backend_done *done, int most) {
  int count = 0;
  uint64_t now_ns = clock_ns();
  for (int i = 0; i < backend->slot_count && count < most; i++) {
    struct slot *slot = &backend->slots[i];
    if (!slot->busy || !slot_ended(backend, slot, now_ns))
      continue;
    slot->busy = false;
    /* While another product was under way, the device was busy with that. */
    uint64_t begin_ns = slot->begin_ns > backend->ended_ns ? slot->begin_ns : backend->ended_ns;
    uint64_t took_ns = now_ns > begin_ns ? now_ns - begin_ns : 0;
    uint32_t skipped = experts_skipped(slot);
    if (slot->turns)
      skipped = slot->turns->skipped += skipped;
    bool goes_on = slot->turns && turn_ended(slot->turns, slot->status, took_ns);
    done[count++] = (struct backend_done){
        .tag = slot->job.tag,
        .status = slot->status,
        .device_ns = slot->turns && !goes_on ? slot->turns->took_ns : took_ns,
        .turn_ns = took_ns,
        .skipped = skipped,
        .goes_on = goes_on,
    };
    backend->ended_ns = now_ns;
  }
  return count;
}
