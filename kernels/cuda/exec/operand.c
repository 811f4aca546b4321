#include "operand.h"

#include "../launch/graph.h"
#include "../runtime/transfer.h"
#include "staging.h"

enum { PANEL_SHARE = 3 }; /* a panel may take so much of what is staged beside it */
enum { ALIGN = 256 };     /* that of staging, which kernels were chosen for */

/* As it grew once it stays, within what one product may take. */
static enum status make_room(struct backend *backend, struct region *region, uint64_t bytes, struct error *error) {
  if (region->reserved == 0) {
    enum status status = region_open(backend->driver, OPERAND_ADDRESSES, backend->granularity, region, error);
    if (status != STATUS_OK)
      return status;
  }
  return region_grow(backend->driver, backend->device, region, bytes, backend->granularity, error);
}

/* Device memory that already is what a product reads stays where it is. */
static const uint8_t *lies_there(const struct backend_operand *operand, const struct gemm_weight *shape,
                                 const struct layout *layout, const uint8_t *w) {
  bool fits = operand->memory && operand->stride == layout->row_bytes && shape->n == layout->n &&
              shape->k == layout->k && (uintptr_t)w % ALIGN == 0;
  return fits ? w : NULL;
}

bool operand_lies_there(const struct backend_operand *operand) {
  struct layout layout;
  struct error unreported;
  return layout_compute(&operand->shape, LAYOUT_ROWS, &layout, &unreported) == STATUS_OK &&
         lies_there(operand, &operand->shape, &layout, operand->w) != NULL;
}

static cudaError_t copy_in(struct slot *slot, const struct operand_panel *panel, const struct layout *layout,
                           uint8_t *codes) {
  const struct backend_operand *operand = slot->job.operand;
  const uint8_t *w = (const uint8_t *)operand->w + (uint64_t)panel->column * operand->stride;
  struct rows rows = {.row_bytes = (uint64_t)operand->shape.k * 2,
                      .rows = (uint64_t)panel->columns,
                      .device = codes,
                      .device_stride = layout->row_bytes,
                      .host = (void *)(uintptr_t)w,
                      .host_stride = operand->stride};
  cudaError_t result = cudaSuccess;
  if (layout->codes_bytes > rows.row_bytes * rows.rows)
    result = cudaMemsetAsync(codes, 0, layout->codes_bytes, graph_stream(slot));
  return result == cudaSuccess ? transfer_in(slot, operand->memory ? operand->memory : slot->job.arena, &rows) : result;
}

/* The job's as far as the panel makes columns of it. */
static void turn_to_columns(struct backend_job *job, int64_t column) {
  job->y = (uint8_t *)job->y + (uint64_t)column * gemm_type_bytes(job->y_type);
  if (job->bias)
    job->bias = (const uint8_t *)job->bias + (uint64_t)column * gemm_type_bytes(job->bias_type);
}

/* Rows of zeros make few columns a multiple of what the library's fastest kernels want, but not where a few rows are
 * all that there is room for. */
static void fit_columns(const struct operand_panel *panel, struct layout *layout) {
  if (layout->n == panel->columns || layout->codes_bytes / PANEL_SHARE <= panel->bytes)
    return;
  layout->n = panel->columns;
  layout->codes_bytes = (uint64_t)panel->columns * layout->row_bytes;
}

enum status operand_stage(struct backend *backend, struct slot *slot, const struct operand_panel *panel,
                          struct error *error) {
  const struct backend_operand *operand = slot->job.operand;
  struct backend_weight made = {.weight = operand->shape};
  made.weight.n = panel->columns;
  if (!gemm_is_wide(made.weight.format))
    return error_field(error, STATUS_UNSUPPORTED, FIELD_FORMAT, made.weight.format, 1, 0);
  enum status status = layout_compute(&made.weight, LAYOUT_ROWS, &made.layout, error);
  if (status != STATUS_OK)
    return status;
  fit_columns(panel, &made.layout);
  int64_t most = staging_rows(&made.weight, &made.layout, panel->bytes);
  made.rows_most = most < 1 ? 1 : most < panel->rows ? most : panel->rows;
  uint64_t begin = staging_place(&made.weight, &made.layout, made.rows_most).bytes;
  const uint8_t *w = (const uint8_t *)operand->w + (uint64_t)panel->column * operand->stride;
  made.codes = lies_there(operand, &made.weight, &made.layout, w);
  /* the panel comes first, so that it stays where it is whatever is staged with later rows */
  uint64_t codes_bytes = made.codes ? 0 : gemm_round_up(made.layout.codes_bytes, ALIGN);
  uint64_t each = gemm_round_up(codes_bytes + begin, ALIGN);
  status = make_room(backend, panel->region, panel->copies > 1 ? each * panel->copies : codes_bytes + begin, error);
  if (status != STATUS_OK)
    return status;
  CUdeviceptr address = panel->region->address + each * panel->copy;
  uint8_t *codes = made.codes ? NULL : (uint8_t *)(uintptr_t)address;
  if (codes)
    made.codes = codes;
  slot->scratch = address + codes_bytes;
  slot->own = made;
  slot->job.weight = &slot->own;
  turn_to_columns(&slot->job, panel->column);
  if (codes && !panel->there)
    status = runtime_check(copy_in(slot, panel, &made.layout, codes), "copying W to the GPU", error);
  if (status != STATUS_OK)
    (void)cudaStreamSynchronize(graph_stream(slot)); /* what was queued still reads the arena */
  return status;
}

uint64_t operand_bytes(const struct backend *backend) {
  enum { SHARE = 64 };
  return backend->memory_total / SHARE / CUDA_TURNS;
}
