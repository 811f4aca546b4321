#include "experts.h"

#include "../experts/run.h"

enum status direct_experts(struct backend *backend, const struct slot *lane, const struct backend_job *job,
                           cudaStream_t stream, struct error *error) {
  const struct backend_experts *experts = job->experts;
  uint64_t have = atomic_load_explicit(&lane->staging.bytes, memory_order_relaxed);
  int64_t each = 0;
  enum status status = experts_run_rows(job, job->m, 0, have, &each, error);
  struct experts_run run = {.backend = backend,
                            .selector = lane->selector,
                            .stream = stream,
                            .job = job,
                            .x_stride = job->x_stride,
                            .y_stride = job->y_stride,
                            .skipped = experts->skipped,
                            .memory = lane->staging.address,
                            .workspace = (void *)(uintptr_t)lane->workspace.address,
                            .early = true};
  run.bias[0] = job->bias;
  for (uint32_t i = 0; i < job->step_count; i++)
    run.bias[i] = job->steps[i].bias;
  for (int64_t row = 0; row < job->m && status == STATUS_OK; row += each) {
    run.rows = job->m - row < each ? job->m - row : each;
    run.x = (const uint8_t *)job->x + (uint64_t)(row * experts_x_rows(job)) * job->x_stride;
    run.y = (uint8_t *)job->y + (uint64_t)(row * experts_y_rows(job)) * job->y_stride;
    run.ids = experts->ids + row * experts->top;
    run.routing = experts->routing ? experts->routing + row * experts->top : NULL;
    status = experts_run(&run, error);
  }
  return status;
}
