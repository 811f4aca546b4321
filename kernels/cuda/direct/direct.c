/* Jobs of enqueue: checked as a whole, then queued some rows at a time. */
#include "direct.h"

#include "../exec/job.h"
#include "../exec/sequence.h"
#include "../launch/function.h"
#include "../passes/activate.h"
#include "capture.h"
#include "experts.h"
#include "memo.h"
#include "open.h"
#include "pass.h"

/* ---- checks */

/* A kernel that is compiled at run time has code from its check on, or none. */
static enum status variant_has_code(const struct variant *variant, struct error *error) {
  if (variant && variant->family == &tile_family && variant->ready[0] == 0)
    return error_set(error, STATUS_UNSUPPORTED, "the kernel has not been compiled");
  return STATUS_OK;
}

static enum status lane_job_check(const struct backend *backend, int lane, const struct backend_job *job,
                                  struct error *error) {
  if (!backend->direct)
    return error_set(error, STATUS_WRONG_STATE, "this backend serves; it computes nothing for its caller");
  if (lane < 0 || lane >= backend->slot_count)
    return error_set(error, STATUS_INVALID, "lane must be 0..%d, got %d", backend->slot_count - 1, lane);
  if (job->m < 1 || job->m > backend->rows_most)
    return error_field(error, STATUS_INVALID, FIELD_M, job->m, 1, backend->rows_most);
  if (job->experts && (job->experts->top < 1 || job->experts->top > backend->pairs_most / job->m))
    return error_field(error, STATUS_INVALID, FIELD_TOP, job->experts->top, 1, backend->pairs_most / job->m);
  enum status status = job_types_check(job, error);
  if (status == STATUS_OK)
    status = variant_has_code(job->variant, error);
  for (uint32_t i = 0; i < job->step_count && status == STATUS_OK; i++)
    status = variant_has_code(job->steps[i].variant, error);
  return status;
}

/* Of the backend's own context, which is current; *capturing: into a graph. A lane keeps to a stream mostly. Where one
 * of another context has its handle since, the driver refuses the kernels. */
static enum status stream_check(const struct backend *backend, struct slot *lane, cudaStream_t stream, bool *capturing,
                                struct error *error) {
  CUcontext context = backend->context;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result = CUDA_SUCCESS;
  if (!lane->has_checked || lane->checked != stream)
    result = backend->driver->cuStreamGetCtx((CUstream)stream, &context);
  lane->has_checked = result == CUDA_SUCCESS && context == backend->context;
  lane->checked = stream;
  if (result == CUDA_SUCCESS && context != backend->context)
    return error_set(error, STATUS_UNSUPPORTED, "the stream is of another device or context than the weights");
  if (result == CUDA_SUCCESS)
    result = backend->driver->cuStreamIsCapturing((CUstream)stream, &status);
  *capturing = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return driver_check(backend->driver, result, "looking at the stream", error);
}

/* ---- one product */

static struct direct_pass pass_of(struct backend *backend, const struct slot *lane, const struct backend_job *job,
                                  cudaStream_t stream, int64_t row, int64_t rows) {
  uint64_t scale_columns = gemm_x_scale_columns(&job->weight->weight);
  return (struct direct_pass){
      .backend = backend,
      .lane = lane,
      .stream = stream,
      .weight = job->weight,
      .variant = job->variant,
      .rows = rows,
      .rows_padded = staging_pad(&job->weight->weight, rows),
      .x_type = job->x_type,
      .y_type = job->y_type,
      .bias_type = job->bias_type,
      .x = (const uint8_t *)job->x + (uint64_t)row * job->x_stride,
      .x_stride = job->x_stride,
      .x_scale =
          job->x_scale && job->y_type != GEMM_S32 ? (const float *)job->x_scale + (uint64_t)row * scale_columns : NULL,
      .bias = job->bias,
      .y = (uint8_t *)job->y + (uint64_t)row * job->y_stride,
      .y_stride = job->y_stride,
      /* While the caller's own kernel still runs: all that is read of what it may have written, x and a bias, is read
       * behind the wait for it. */
      .early = backend->gpu.capability >= 90,
  };
}

enum status direct_queue(struct backend *backend, const struct slot *lane, const struct backend_job *job,
                         cudaStream_t stream, struct error *error) {
  const struct backend_weight *weight = job->weight;
  int64_t each = staging_go(job->m, weight->rows_most);
  enum status status = STATUS_OK;
  for (int64_t row = 0; row < job->m && status == STATUS_OK; row += each) {
    struct direct_pass pass = pass_of(backend, lane, job, stream, row, job->m - row < each ? job->m - row : each);
    pass.at = staging_place(&weight->weight, &weight->layout, each);
    status = runtime_check(direct_stage(&pass), "bringing x into place", error);
    if (status == STATUS_OK)
      status = direct_product(&pass, false, error);
  }
  return status;
}

/* As the same product went before, or the long way. */
static enum status product_repeat(struct backend *backend, struct slot *lane, const struct backend_job *job,
                                  cudaStream_t stream, struct error *error) {
  struct memo_entry *entry = memo_find(lane->memo, job, job->weight->serial, direct_crowded(backend));
  struct record *record = memo_recall(entry, job);
  if (record)
    return driver_check(backend->driver, record_run(record, (CUstream)stream), "computing a product", error);
  launch_on(backend->runtime_ordinal);
  memo_begin(lane->memo);
  enum status status = direct_queue(backend, lane, job, stream, error);
  memo_end(lane->memo, entry, job, status == STATUS_OK);
  return status;
}

/* ---- a sequence */

/* A step's product: its bias and kernel, y at first in staging memory. *used moves on behind its place. */
static void pass_step(struct direct_pass *pass, const struct backend_step *step, int64_t rows_most, uint64_t *used) {
  pass->weight = step->weight;
  pass->variant = step->variant;
  pass->bias = step->bias;
  pass->bias_type = step->bias_type;
  pass->y_type = step->y_type;
  pass->rows_padded = staging_pad(&step->weight->weight, pass->rows);
  pass->at = sequence_place(step, rows_most, used);
  pass->y = direct_staged(pass, pass->at.y);
  pass->y_stride = (uint64_t)step->weight->weight.n * gemm_type_bytes(step->y_type);
}

static bool activates(const struct backend_step *step) {
  return step->gated || step->activation != GEMM_ACTIVATION_NONE;
}

static struct activate_pass activate_of(const struct direct_pass *v, const struct backend_step *step) {
  return (struct activate_pass){.v = v->y,
                                .v_stride = v->y_stride,
                                .type = step->y_type,
                                .m = v->rows,
                                .columns = step->gated ? step->weight->weight.n / 2 : step->weight->weight.n,
                                .activation = step->activation,
                                .gated = step->gated,
                                .dependent = v->backend->gpu.capability >= 90};
}

/* From v of one step to what the next one reads, where that has been laid out. */
static cudaError_t activate_into(const struct direct_pass *v, const struct backend_step *step,
                                 struct direct_pass *next) {
  const struct backend_weight *weight = next->weight;
  struct activate_pass pass = activate_of(v, step);
  next->x_type = step->y_type;
  sequence_reads(weight, next->rows_padded, step->y_type, &pass);
  bool codes = pass.to != ACTIVATE_TO_VALUES;
  pass.clusters = pass.dependent;
  bool as_it_comes = weight->weight.input || layout_keeps_x(&weight->weight);
  pass.out = direct_staged(next, as_it_comes ? next->at.x : next->at.codes);
  pass.scales = codes ? direct_staged(next, next->at.scales) : NULL;
  next->x = pass.out;
  next->x_stride = codes ? weight->layout.x_row_bytes : pass.out_stride;
  next->x_scale = pass.scales;
  next->early = pass.dependent;
  cudaError_t result = launch_activate(next->stream, &pass);
  return result == cudaSuccess && weight->weight.input ? direct_input(next) : result;
}

static cudaError_t activate_out(const struct direct_pass *v, const struct backend_step *step, void *y,
                                uint64_t y_stride) {
  struct activate_pass pass = activate_of(v, step);
  pass.k_padded = pass.columns;
  pass.out = y;
  pass.out_stride = y_stride;
  return launch_activate(v->stream, &pass);
}

/* All steps of some rows. `first` is the job's pass for them. */
static enum status steps_enqueue(const struct backend_job *job, const struct direct_pass *first, int64_t rows_most,
                                 struct error *error) {
  const struct backend_step *last = &job->steps[job->step_count - 1];
  struct direct_pass pass = *first;
  uint64_t used = 0;
  enum status status = STATUS_OK;
  for (uint32_t i = 0; i < job->step_count && status == STATUS_OK; i++) {
    const struct backend_step *step = &job->steps[i];
    const struct direct_pass before = pass;
    pass_step(&pass, step, rows_most, &used);
    bool out = step == last && !activates(step);
    if (out) {
      pass.y = first->y;
      pass.y_stride = first->y_stride;
    }
    cudaError_t staged = i == 0 ? direct_stage(&pass) : activate_into(&before, step - 1, &pass);
    status = runtime_check(staged, "bringing x into place", error);
    if (status == STATUS_OK)
      status = direct_product(&pass, !out, error);
  }
  if (status == STATUS_OK && activates(last))
    status = runtime_check(activate_out(&pass, last, first->y, first->y_stride), "starting an activation", error);
  return status;
}

static enum status sequence_enqueue(struct backend *backend, const struct slot *lane, const struct backend_job *job,
                                    cudaStream_t stream, struct error *error) {
  int64_t each;
  enum status status = sequence_rows(lane, job, job->m, &each, error);
  for (int64_t row = 0; row < job->m && status == STATUS_OK; row += each) {
    struct direct_pass pass = pass_of(backend, lane, job, stream, row, job->m - row < each ? job->m - row : each);
    status = steps_enqueue(job, &pass, each, error);
  }
  return status;
}

/* ---- all of it */

/* In the backend's context. */
static enum status enqueue(struct backend *backend, struct slot *lane, const struct backend_job *job,
                           cudaStream_t stream, struct error *error) {
  bool capturing = false;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  enum status status = stream_check(backend, lane, stream, &capturing, error);
  if (status != STATUS_OK)
    return status;
  /* What is said to the driver once a kernel is no part of the graph. */
  if (capturing) {
    (void)backend->driver->cuThreadExchangeStreamCaptureMode(&mode);
    status = direct_retain(backend, job, stream, error);
  }
  launch_on(backend->runtime_ordinal);
  if (status == STATUS_OK && job->experts)
    status = direct_experts(backend, lane, job, stream, error);
  else if (status == STATUS_OK)
    status = job->steps ? sequence_enqueue(backend, lane, job, stream, error)
                        : product_repeat(backend, lane, job, stream, error);
  if (capturing)
    (void)backend->driver->cuThreadExchangeStreamCaptureMode(&mode);
  return status;
}

enum status cuda_enqueue(struct backend *backend, int lane, const struct backend_job *job, void *stream,
                         struct error *error) {
  enum status status = lane_job_check(backend, lane, job, error);
  if (status != STATUS_OK)
    return status;
  struct slot *slot = &backend->slots[lane];
  if (atomic_exchange_explicit(&slot->entered, true, memory_order_acquire))
    return error_set(error, STATUS_BUSY, "another thread is using lane %d", lane);
  const struct driver *driver = backend->driver;
  CUcontext before = NULL;
  CUresult result = driver->cuCtxGetCurrent(&before);
  bool elsewhere = result == CUDA_SUCCESS && before != backend->context;
  if (elsewhere)
    result = driver->cuCtxSetCurrent(backend->context);
  status = driver_check(driver, result, "using the GPU", error);
  if (status == STATUS_OK)
    status = enqueue(backend, slot, job, stream, error);
  slot->has_checked = slot->has_checked && status == STATUS_OK;
  if (elsewhere)
    (void)driver->cuCtxSetCurrent(before);
  atomic_store_explicit(&slot->entered, false, memory_order_release);
  return status;
}
