#include "trial.h"

#include "../../operands.h"
#include "fill.h"

enum { COPIES_MOST = 16, FREE_SHARE = 4 };
#define COLD_BYTES ((uint64_t)192 << 20) /* more than an L2 holds */

/* Lines of so many elements, aligned to what the problem says and no more. */
static uint64_t stride_of(const struct variant_problem *problem, int64_t elements) {
  uint64_t align = (uint64_t)problem->tensors.align, stride = gemm_round_up((uint64_t)elements * 2, align);
  return align < 16 && stride % (2 * align) == 0 ? stride + align : stride;
}

struct made {
  uint64_t x_stride, w_stride, x_step, w_step;
  size_t copies;
};

static struct made place(const struct variant_problem *problem) {
  const struct variant_tensors *tensors = &problem->tensors;
  int64_t m = problem->m, n = problem->weight.n, k = problem->weight.k;
  struct made out = {.x_stride = stride_of(problem, tensors->x_turned ? m : k),
                     .w_stride = stride_of(problem, tensors->w_turned ? n : k)};
  out.x_step = gemm_round_up(out.x_stride * (uint64_t)(tensors->x_turned ? k : m), GEMM_SECTION) + GEMM_SECTION;
  out.w_step = gemm_round_up(out.w_stride * (uint64_t)(tensors->w_turned ? k : n), GEMM_SECTION) + GEMM_SECTION;
  uint64_t copies = COLD_BYTES / (out.x_step + out.w_step) + 1;
  out.copies = copies < 2 ? 2 : copies < COPIES_MOST ? copies : COPIES_MOST;
  return out;
}

static enum status take(struct backend *backend, uint64_t bytes, struct error *error) {
  size_t free_bytes = 0, total = 0;
  void *memory = NULL;
  enum status status = runtime_check(cudaMemGetInfo(&free_bytes, &total), "asking for free memory", error);
  if (status == STATUS_OK && bytes > free_bytes / FREE_SHARE)
    return error_set(error, STATUS_TOO_LARGE, "x and W to try with take %llu MiB, a quarter of the free memory is %llu",
                     (unsigned long long)(bytes >> 20), (unsigned long long)(free_bytes / FREE_SHARE >> 20));
  if (status == STATUS_OK)
    status = runtime_check(cudaMalloc(&memory, bytes), "taking memory to try products with", error);
  if (status != STATUS_OK)
    return status;
  backend->trial = (struct backend_arena){.base = memory, .device = memory};
  return STATUS_OK;
}

static enum status fill(struct backend *backend, const struct variant_problem *problem, const struct made *made,
                        uint8_t *x, uint8_t *w, struct error *error) {
  cudaStream_t stream = backend->slots[0].stream;
  struct tensors_fill rows = {.type = problem->x_type,
                              .rows = problem->m,
                              .k = problem->weight.k,
                              .stride = made->x_stride,
                              .turned = problem->tensors.x_turned,
                              .kinds = OPERANDS_KINDS,
                              .seed = 1};
  struct tensors_fill columns = {.type = problem->x_type,
                                 .rows = problem->weight.n,
                                 .k = problem->weight.k,
                                 .stride = made->w_stride,
                                 .turned = problem->tensors.w_turned,
                                 .seed = 2};
  cudaError_t result = cudaSuccess;
  for (size_t i = 0; i < made->copies && result == cudaSuccess; i++) {
    rows.to = x + i * made->x_step;
    columns.to = w + i * made->w_step;
    result = tensors_fill_launch(stream, &rows);
    if (result == cudaSuccess)
      result = tensors_fill_launch(stream, &columns);
  }
  if (result == cudaSuccess)
    result = cudaStreamSynchronize(stream);
  return runtime_check(result, "making tensors to try products with", error);
}

enum status cuda_tensors_make(struct backend *backend, const struct variant_problem *problem, struct backend_job *job,
                              struct backend_operand *operand, size_t *copies, struct error *error) {
  struct made made = place(problem);
  uint64_t y_bytes = (uint64_t)problem->m * (uint64_t)problem->weight.n * sizeof(float);
  uint64_t all_x = made.x_step * made.copies, all_w = made.w_step * made.copies,
           skipped = (uint64_t)problem->tensors.align % 16;
  enum status status = backend_enter(backend, error);
  if (status == STATUS_OK)
    status = take(backend, all_x + all_w + y_bytes, error);
  if (status != STATUS_OK)
    return status;
  uint8_t *x = backend->trial.device + skipped, *w = x + all_x;
  backend->trial_y = backend->trial.device + all_x + all_w;
  status = fill(backend, problem, &made, x, w, error);
  if (status != STATUS_OK) {
    cuda_tensors_drop(backend);
    return status;
  }
  job->x = x;
  job->x_stride = made.x_stride;
  job->x_memory = &backend->trial;
  operand->w = w;
  operand->stride = made.w_stride;
  operand->memory = &backend->trial;
  operand->form.x_step = made.x_step;
  operand->form.w_step = made.w_step;
  *copies = made.copies;
  return STATUS_OK;
}

void cuda_tensors_drop(struct backend *backend) {
  struct error ignored;
  if (backend->trial.device && backend_enter(backend, &ignored) == STATUS_OK)
    (void)cudaFree(backend->trial.device);
  region_close(backend->driver, &backend->trial_staging);
  backend->trial = (struct backend_arena){.base = NULL};
}
