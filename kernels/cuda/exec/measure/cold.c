#include "cold.h"

/* More than an L2 holds; of the free memory no more than this part. */
#define COLD_BYTES ((uint64_t)128 << 20)
enum { FREE_SHARE = 8 };

static enum status take(struct backend *backend, struct cold *cold, struct error *error) {
  size_t free_bytes = 0, total = 0;
  if (cold->region.bytes > 0)
    return STATUS_OK;
  enum status status = runtime_check(cudaMemGetInfo(&free_bytes, &total), "asking for free memory", error);
  if (status == STATUS_OK && free_bytes / FREE_SHARE < COLD_BYTES)
    return STATUS_NOMEM;
  if (status == STATUS_OK && cold->region.reserved == 0)
    status = region_open(backend->driver, COLD_BYTES, backend->granularity, &cold->region, error);
  return status == STATUS_OK
             ? region_grow(backend->driver, backend->device, &cold->region, COLD_BYTES, backend->granularity, error)
             : status;
}

static enum status copy(struct backend *backend, struct cold *cold, const struct backend_weight *weight,
                        struct error *error) {
  uint64_t one = weight->layout.total_bytes, all = cold->copies * one, bytes;
  uint8_t *to = (uint8_t *)(uintptr_t)cold->region.address;
  cudaStream_t stream = backend->slots[0].stream;
  cudaError_t result = cudaMemcpyAsync(to, weight->codes, one, cudaMemcpyDeviceToDevice, stream);
  for (uint64_t have = one; have < all && result == cudaSuccess; have += bytes) {
    bytes = have < all - have ? have : all - have;
    result = cudaMemcpyAsync(to + have, to, bytes, cudaMemcpyDeviceToDevice, stream);
  }
  return runtime_check(result, "copying a weight to measure it", error);
}

void cold_make(struct backend *backend, const struct backend_weight *weight, size_t count) {
  struct cold *cold = &backend->cold;
  uint64_t bytes = weight->layout.total_bytes;
  struct error ignored;
  if (cold->serial == weight->serial && cold->count == count)
    return;
  cold->serial = weight->serial;
  cold->count = count;
  cold->turn = 0;
  cold->copies = count * bytes < COLD_BYTES ? (uint32_t)(COLD_BYTES / bytes) : 0;
  if (cold->copies > 0 &&
      (take(backend, cold, &ignored) != STATUS_OK || copy(backend, cold, weight, &ignored) != STATUS_OK))
    cold->copies = 0;
}

struct backend_weight cold_next(struct backend *backend, const struct backend_weight *weight) {
  struct cold *cold = &backend->cold;
  struct backend_weight out = *weight;
  uint32_t turn = cold->turn;
  cold->turn = turn == cold->copies ? 0 : turn + 1;
  if (turn == 0)
    return out;
  out.codes = (const uint8_t *)(uintptr_t)(cold->region.address + (turn - 1) * weight->layout.total_bytes);
  out.scales = out.codes + (weight->scales - weight->codes);
  if (weight->factors)
    out.factors = (const float *)(const void *)(out.codes + weight->layout.factors_offset);
  return out;
}

void cold_open(struct backend *backend) {
  struct error ignored;
  backend->cold.stays = take(backend, &backend->cold, &ignored) == STATUS_OK;
}

void cold_rest(struct backend *backend) {
  if (!backend->cold.stays)
    cold_close(backend);
}

void cold_close(struct backend *backend) {
  if (backend->driver)
    region_close(backend->driver, &backend->cold.region);
  backend->cold = (struct cold){.serial = 0};
}
