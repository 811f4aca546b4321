#include "operand.h"

#include "../launch/graph.h"
#include "../runtime/transfer.h"
#include "staging.h"

/* Doubled, so that a region grows a few times in its life. */
static enum status make_room(struct backend *backend, struct slot *slot, uint64_t bytes, struct error *error) {
  uint64_t have = atomic_load_explicit(&slot->operand.bytes, memory_order_relaxed), wanted = have;
  while (wanted < bytes)
    wanted = wanted == 0 ? backend->granularity : 2 * wanted;
  enum status status =
      region_grow(backend->driver, backend->device, &slot->operand, wanted, backend->granularity, error);
  if (status == STATUS_NOMEM)
    status = region_grow(backend->driver, backend->device, &slot->operand, bytes, backend->granularity, error);
  return status;
}

/* Device memory that already is what a product reads stays where it is. */
static const uint8_t *lies_there(const struct backend_operand *operand, const struct layout *layout) {
  enum { ALIGN = 256 };          /* that of staging, which kernels were chosen for */
  const uint8_t *w = operand->w; /* the device's own address where there is such memory */
  bool fits = operand->memory && operand->stride == layout->row_bytes && operand->shape.n == layout->n &&
              operand->shape.k == layout->k && (uintptr_t)w % ALIGN == 0;
  return fits ? w : NULL;
}

static cudaError_t copy_in(struct slot *slot, const struct layout *layout, uint8_t *codes) {
  const struct backend_operand *operand = slot->job.operand;
  struct rows rows = {.row_bytes = (uint64_t)operand->shape.k * 2,
                      .rows = (uint64_t)operand->shape.n,
                      .device = codes,
                      .device_stride = layout->row_bytes,
                      .host = (void *)(uintptr_t)operand->w,
                      .host_stride = operand->stride};
  cudaError_t result = cudaSuccess;
  if (layout->codes_bytes > rows.row_bytes * rows.rows)
    result = cudaMemsetAsync(codes, 0, layout->codes_bytes, graph_stream(slot));
  return result == cudaSuccess ? transfer_in(slot, operand->memory ? operand->memory : slot->job.arena, &rows) : result;
}

enum status operand_stage(struct backend *backend, struct slot *slot, int64_t rows, struct error *error) {
  const struct gemm_weight *shape = &slot->job.operand->shape;
  struct backend_weight made = {.weight = *shape};
  if (!gemm_is_wide(shape->format))
    return error_field(error, STATUS_UNSUPPORTED, FIELD_FORMAT, shape->format, 1, 0);
  enum status status = layout_compute(shape, LAYOUT_ROWS, &made.layout, error);
  if (status != STATUS_OK)
    return status;
  int64_t most = staging_rows(shape, &made.layout, backend->staging_most);
  made.rows_most = most < 1 ? 1 : most < rows ? most : rows;
  uint64_t begin = staging_place(shape, &made.layout, made.rows_most).bytes;
  made.codes = lies_there(slot->job.operand, &made.layout);
  status = make_room(backend, slot, begin + (made.codes ? 0 : made.layout.codes_bytes), error);
  if (status != STATUS_OK)
    return status;
  uint8_t *codes = made.codes ? NULL : (uint8_t *)(uintptr_t)slot->operand.address + begin;
  if (codes)
    made.codes = codes;
  slot->own = made;
  slot->job.weight = &slot->own;
  status = codes ? runtime_check(copy_in(slot, &made.layout, codes), "copying W to the GPU", error) : STATUS_OK;
  if (status != STATUS_OK)
    (void)cudaStreamSynchronize(graph_stream(slot)); /* what was queued still reads the arena */
  return status;
}
