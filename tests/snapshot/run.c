#include "snapshot.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 64, POISON = 0xfd, SEED_X = 11, SEED_BIAS = 12, SEED_SCALES = 13 };

enum status snapshot_load(struct snapshot *snapshot, const struct gemm_weight *shape, uint64_t offset, uint64_t seed,
                          struct backend_plan *plan, uint64_t *checksum, struct backend_weight **out,
                          struct error *error) {
  const struct backend_ops *ops = snapshot->ops;
  enum status status = ops->weight_plan(snapshot->backend, shape, plan, error);
  if (status != STATUS_OK)
    return status;
  if (offset + plan->bytes > snapshot->slab_bytes)
    return error_set(error, STATUS_NOMEM, "the slab is too small");
  uint8_t *canonical = snapshot_weight(shape, seed);
  if (canonical == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a weight");
  status = ops->weight_store(snapshot->backend, shape, canonical, snapshot->slab, offset, error);
  free(canonical);
  if (status == STATUS_OK)
    status = ops->weight_attach(snapshot->backend, shape, plan->layout, snapshot->slab, offset, out, error);
  if (status != STATUS_OK)
    return status;
  status = ops->weight_checksum(snapshot->backend, *out, checksum, error);
  if (status != STATUS_OK)
    ops->weight_detach(snapshot->backend, *out);
  return status;
}

enum status snapshot_finish(struct snapshot *snapshot, const struct backend_job *job, struct error *error) {
  struct backend_done done = {.status = STATUS_OK};
  enum status status = snapshot->ops->submit(snapshot->backend, job, error);
  while (status == STATUS_OK && snapshot->ops->poll(snapshot->backend, &done, 1) == 0)
    ;
  return status == STATUS_OK && done.status != STATUS_OK ? error_set(error, done.status, "the product failed") : status;
}

/* Where the next tensor begins. */
static uint64_t place(uint64_t *used, uint64_t bytes, bool uneven) {
  uint64_t at = gemm_round_up(*used + GUARD_BYTES, GEMM_SECTION) + (uneven ? SNAPSHOT_OFFSET_ODD : 0);
  *used = at + bytes;
  return at;
}

bool snapshot_stage(struct snapshot *snapshot, const struct gemm_weight *shape, struct backend_job *job, bool uneven) {
  uint64_t used = 0, m = (uint64_t)job->m, n = (uint64_t)shape->n, k = (uint64_t)shape->k;
  uint64_t x_size = gemm_type_bytes(job->x_type), y_size = gemm_type_bytes(job->y_type);
  bool scaled = (job->x_type == GEMM_INT8 || job->x_type == GEMM_E4M3) && job->y_type != GEMM_S32;
  uint64_t scales = scaled ? m * gemm_x_scale_columns(shape) : 0;
  job->x_stride = (k + (uneven ? 3 : 0)) * x_size;
  job->y_stride = (n + (uneven ? 5 : 0)) * y_size;
  uint64_t x_at = place(&used, m * job->x_stride, uneven), scales_at = place(&used, scales * sizeof(float), uneven);
  uint64_t bias_bytes = job->bias_type == GEMM_TYPE_NONE ? 0 : n * gemm_type_bytes(job->bias_type);
  uint64_t bias_at = place(&used, bias_bytes, uneven), y_at = place(&used, m * job->y_stride, uneven);
  if (used + GUARD_BYTES > snapshot->arena_bytes)
    return false;
  snapshot_x(snapshot->base + x_at, job->m, shape->k, job->x_type, job->x_stride, SEED_X);
  snapshot_scales((float *)(void *)(snapshot->base + scales_at), scales, SEED_SCALES);
  if (bias_bytes > 0)
    snapshot_x(snapshot->base + bias_at, 1, shape->n, job->bias_type, bias_bytes, SEED_BIAS);
  memset(snapshot->base + y_at, POISON, m * job->y_stride);
  job->arena = snapshot->arena;
  job->x = snapshot->base + x_at;
  job->x_scale = scaled ? snapshot->base + scales_at : NULL;
  job->bias = bias_bytes > 0 ? snapshot->base + bias_at : NULL;
  job->y = snapshot->base + y_at;
  return true;
}

uint64_t snapshot_y_hash(const struct backend_job *job, int64_t n) {
  uint64_t bytes = (uint64_t)(job->m - 1) * job->y_stride + (uint64_t)n * gemm_type_bytes(job->y_type);
  return snapshot_hash(job->y, bytes, 0);
}
