#include "tensors.h"

#include "../runtime/tensor_map.h"
#include "../runtime/transfer.h"
#include "../tensors/config.h"
#include "../tensors/cut.h"
#include "../tensors/general.h"
#include "../tensors/sm90/wide.h"
#include "../tensors/sums.h"
#include "operand.h"

#define COPIED_PER_NS 20.0 /* bytes: a link of 16 lanes of PCIe 4 */

/* ---- how a job is cut */

static const struct backend_arena *memory_of(const struct backend_arena *own, const struct backend_job *job) {
  return own ? own : job->arena;
}

static bool on_device(const struct backend_arena *memory) {
  return memory && memory->bytes == 0;
}

static uint64_t bits_of(uint64_t value) {
  return value & -value;
}

/* Of what is staged: 16. */
static int align_of(const struct backend_job *job, bool x_far, bool w_far) {
  const struct backend_operand *operand = job->operand;
  uint64_t bits = 16;
  if (!x_far)
    bits |= (uintptr_t)job->x | job->x_stride | operand->form.x_step;
  if (!w_far)
    bits |= (uintptr_t)operand->w | operand->stride | operand->form.w_step;
  return (int)bits_of(bits);
}

struct way {
  struct tensors_problem problem;
  struct tensors_config config;
  struct tensors_cut_problem cut_problem;
  struct tensors_cut cut;
  bool plain; /* the variant that others are compared with */
};

static struct tensors_cut_problem cut_problem_of(const struct backend *backend, const struct backend_job *job) {
  const struct backend_operand *operand = job->operand;
  return (struct tensors_cut_problem){
      .m = job->m,
      .n = operand->shape.n,
      .k = operand->shape.k,
      .batch = operand->form.batch > 1 ? operand->form.batch : 1,
      .x_far = !on_device(job->x_memory),
      .w_far = !on_device(operand->memory),
      .slices = 1,
      .bytes = operand_bytes(backend),
      .bytes_per_ns = (backend->bytes_per_s > 0 ? (double)backend->bytes_per_s : 3e11) / 2e9,
      .flops_per_ns = (backend->operations_per_s > 0 ? (double)backend->operations_per_s : 6e13) / 2 / 3e9,
      .copied_per_ns = COPIED_PER_NS};
}

static struct way way_of(const struct backend *backend, const struct backend_job *job) {
  struct way way = {.cut_problem = cut_problem_of(backend, job)};
  struct tensors_cut_problem *cut = &way.cut_problem;
  struct error ignored;
  way.problem = (struct tensors_problem){
      .device = backend->gpu, .m = cut->m, .n = cut->n, .k = cut->k, .align = align_of(job, cut->x_far, cut->w_far)};
  way.plain = backend->gpu.capability < 80 || (job->variant && job->variant->family == &variant_plain);
  struct variant own = tensors_default(&way.problem);
  const struct variant *asked = tensors_is_variant(job->variant) ? job->variant : &own;
  if (tensors_config(&way.problem, asked, &way.config, NULL, &ignored) != STATUS_OK &&
      tensors_config(&way.problem, &own, &way.config, NULL, &ignored) != STATUS_OK)
    way.plain = true;
  cut->slices = way.plain ? 1 : way.config.slices;
  way.cut = tensors_cut(cut);
  return way;
}

bool tensors_serves(const struct backend *backend, const struct backend_job *job) {
  if (!job->operand || !gemm_is_wide(job->operand->shape.format))
    return false;
  const struct tensors_form *form = &job->operand->form;
  if (form->x_turned || form->w_turned || form->add || form->batch > 1 || tensors_is_variant(job->variant))
    return true;
  const struct tensors_problem problem = {
      .device = backend->gpu, .m = job->m, .n = job->operand->shape.n, .k = job->operand->shape.k};
  return on_device(job->x_memory) && on_device(job->operand->memory) && !job->variant && tensors_pay(&problem);
}

uint64_t tensors_predict_ns(const struct backend *backend, const struct backend_job *job) {
  struct tensors_cut_problem problem = cut_problem_of(backend, job);
  double ns = tensors_cut_ns(&problem);
  return ns < 1e18 ? (uint64_t)ns : (uint64_t)1e18;
}

/* ---- memory of a piece */

struct places {
  uint64_t x, w, carry, partials, bias, y, bytes;
  uint64_t x_stride, w_stride, y_stride; /* of what is staged */
};

static uint64_t take(uint64_t *used, uint64_t bytes) {
  uint64_t begin = *used;
  *used = gemm_round_up(begin + bytes, GEMM_SECTION);
  return begin;
}

static struct places places_of(const struct backend_job *job, const struct way *way) {
  const struct tensors_form *form = &job->operand->form;
  const struct tensors_cut *cut = &way->cut;
  uint64_t rows = (uint64_t)cut->rows, columns = (uint64_t)cut->columns, depth = (uint64_t)cut->depth;
  struct places out = {.x_stride = gemm_round_up((form->x_turned ? rows : depth) * 2, 16),
                       .w_stride = gemm_round_up((form->w_turned ? columns : depth) * 2, 16),
                       .y_stride = columns * gemm_type_bytes(job->y_type)};
  bool carries = cut->depth < way->cut_problem.k;
  out.x = take(&out.bytes, way->cut_problem.x_far ? out.x_stride * (form->x_turned ? depth : rows) : 0);
  out.w = take(&out.bytes, way->cut_problem.w_far ? out.w_stride * (form->w_turned ? depth : columns) : 0);
  out.carry = take(&out.bytes, carries ? rows * columns * sizeof(float) : 0);
  out.partials = take(&out.bytes, tensors_partial_bytes(cut->rows, cut->columns, cut->slices));
  out.bias = take(&out.bytes, job->bias ? columns * sizeof(float) : 0);
  out.y = take(&out.bytes, rows * out.y_stride);
  return out;
}

enum status tensors_pieces(struct backend *backend, const struct backend_job *job, struct region *region,
                           int64_t *pieces, struct error *error) {
  struct way way = way_of(backend, job);
  struct places places = places_of(job, &way);
  *pieces = way.cut.pieces;
  enum status status = STATUS_OK;
  if (region->reserved == 0)
    status = region_open(backend->driver, OPERAND_ADDRESSES, backend->granularity, region, error);
  return status == STATUS_OK
             ? region_grow(backend->driver, backend->device, region, places.bytes, backend->granularity, error)
             : status;
}

/* ---- a piece */

/* Rows [row, row + rows) of an operand, elements [k, k + depth), where it lies. */
struct part {
  const uint8_t *data;
  uint64_t stride;
  bool turned;
  int64_t row, rows, k, depth;
};

static const uint8_t *part_begin(const struct part *part) {
  int64_t line = part->turned ? part->k : part->row, first = part->turned ? part->row : part->k;
  return part->data + (uint64_t)line * part->stride + (uint64_t)first * 2;
}

/* To `device`, where lines are `stride` bytes apart. */
static cudaError_t part_in(struct slot *slot, const struct backend_arena *memory, const struct part *part, void *device,
                           uint64_t stride) {
  const struct rows rows = {.row_bytes = (uint64_t)(part->turned ? part->rows : part->depth) * 2,
                            .rows = (uint64_t)(part->turned ? part->depth : part->rows),
                            .device = device,
                            .device_stride = stride,
                            .host = (void *)(uintptr_t)part_begin(part),
                            .host_stride = part->stride};
  return transfer_in(slot, memory, &rows);
}

static enum status launch_wide(struct backend *backend, cudaStream_t stream, const struct tensors_config *config,
                               const struct tensors_product *p, struct error *error) {
  CUtensorMap x, w;
  int x_rows = wide_box_rows(&config->tile, p->x_turned, false),
      w_rows = wide_box_rows(&config->tile, p->w_turned, true);
  enum status status = tensor_map_make(backend->driver, p->x, p->x_turned ? p->k : p->m,
                                       2 * (p->x_turned ? p->m : p->k), (int64_t)p->x_stride, x_rows, &x, error);
  if (status == STATUS_OK)
    status = tensor_map_make(backend->driver, p->w, p->w_turned ? p->k : p->n, 2 * (p->w_turned ? p->n : p->k),
                             (int64_t)p->w_stride, w_rows, &w, error);
  return status == STATUS_OK
             ? runtime_check(wide_launch(stream, &config->tile, p, &x, &w), "computing a product", error)
             : status;
}

static enum status launch(struct backend *backend, cudaStream_t stream, const struct way *way,
                          const struct tensors_product *product, struct error *error) {
  struct tensors_config config = way->config;
  if (way->plain)
    return runtime_check(general_plain_launch(stream, product), "computing a product", error);
  bool even = tensors_padded_rows(product->m) / TENSORS_ROW_PAD % 2 == 0;
  config.tile.cluster = even ? config.tile.cluster : 1;
  if (config.wide && !wide_config_valid(product, &config.tile))
    config.tile = (struct wide_config){.columns = 64, .cluster = 1};
  if (config.wide)
    return launch_wide(backend, stream, &config, product, error);
  return runtime_check(general_launch(stream, product, tensors_vector(way->problem.align)), "computing a product",
                       error);
}

/* y of a piece: in place where the device reaches it, else staged, both ways where it is added to. */
struct target {
  const struct backend_arena *memory;
  struct rows rows;
  bool staged;
  void *y;
  uint64_t stride;
};

static struct target target_of(const struct backend_job *job, const struct tensors_piece *piece, uint8_t *staging,
                               uint64_t staging_stride) {
  uint64_t element = gemm_type_bytes(job->y_type);
  uint8_t *y = (uint8_t *)job->y + (uint64_t)piece->product * job->operand->form.y_step +
               (uint64_t)piece->row * job->y_stride + (uint64_t)piece->column * element;
  struct target out = {.memory = memory_of(job->y_memory, job), .y = staging, .stride = staging_stride};
  out.rows = (struct rows){.row_bytes = (uint64_t)piece->columns * element,
                           .rows = (uint64_t)piece->rows,
                           .device = staging,
                           .device_stride = staging_stride,
                           .host = y,
                           .host_stride = job->y_stride};
  out.staged = !out.memory->device;
  if (!out.staged) {
    out.y = out.memory->device + (y - out.memory->base);
    out.stride = job->y_stride;
  }
  return out;
}

static cudaError_t bias_in(struct slot *slot, const struct tensors_piece *piece, uint8_t *device) {
  const struct backend_job *job = &slot->job;
  uint64_t element = gemm_type_bytes(job->bias_type);
  const struct rows rows = {.row_bytes = (uint64_t)piece->columns * element,
                            .rows = 1,
                            .device = device,
                            .host = (uint8_t *)(uintptr_t)job->bias + (uint64_t)piece->column * element};
  return transfer_in(slot, job->arena, &rows);
}

static cudaError_t finish(struct backend *backend, struct slot *slot, const struct way *way,
                          const struct tensors_piece *piece, const struct places *places, uint8_t *memory,
                          const struct tensors_product *product) {
  const struct backend_job *job = &slot->job;
  struct target target = target_of(job, piece, memory + places->y, places->y_stride);
  bool carries = way->cut.depth < way->cut_problem.k, wide = way->config.wide && !way->plain;
  struct tensors_sums sums = {.partials = product->partials,
                              .slices = product->slices,
                              .m = product->m,
                              .n = product->n,
                              .carry = carries ? (float *)(void *)(memory + places->carry) : NULL,
                              .first = piece->first,
                              .last = piece->last,
                              .dependent = wide && backend->gpu.capability >= 90 && !job->bias && !target.staged,
                              .y = target.y,
                              .y_stride = target.stride,
                              .y_type = job->y_type,
                              .add = job->operand->form.add,
                              .bias = job->bias ? memory + places->bias : NULL,
                              .bias_type = job->bias_type};
  cudaError_t result = cudaSuccess;
  if (piece->last && job->bias)
    result = bias_in(slot, piece, memory + places->bias);
  if (result == cudaSuccess && piece->last && target.staged && sums.add)
    result = transfer_in(slot, target.memory, &target.rows);
  if (result == cudaSuccess)
    result = tensors_sums_launch(slot->stream, &sums);
  if (result == cudaSuccess && piece->last && target.staged)
    result = transfer_out(slot, target.memory, &target.rows);
  return result;
}

enum status tensors_queue(struct backend *backend, struct slot *slot, struct region *region, int64_t index,
                          struct error *error) {
  const struct backend_job *job = &slot->job;
  const struct backend_operand *operand = job->operand;
  const struct tensors_form *form = &operand->form;
  struct way way = way_of(backend, job);
  struct places places = places_of(job, &way);
  struct tensors_piece piece = tensors_piece(&way.cut_problem, &way.cut, index);
  uint8_t *memory = (uint8_t *)(uintptr_t)region->address;
  struct part x = {.data = (const uint8_t *)job->x + (uint64_t)piece.product * form->x_step,
                   .stride = job->x_stride,
                   .turned = form->x_turned,
                   .row = piece.row,
                   .rows = piece.rows,
                   .k = piece.k,
                   .depth = piece.depth};
  struct part w = {.data = (const uint8_t *)operand->w + (uint64_t)piece.product * form->w_step,
                   .stride = operand->stride,
                   .turned = form->w_turned,
                   .row = piece.column,
                   .rows = piece.columns,
                   .k = piece.k,
                   .depth = piece.depth};
  struct tensors_product product = {.type = job->x_type,
                                    .m = piece.rows,
                                    .n = piece.columns,
                                    .k = piece.depth,
                                    .x = part_begin(&x),
                                    .w = part_begin(&w),
                                    .x_stride = x.stride,
                                    .w_stride = w.stride,
                                    .x_turned = x.turned,
                                    .w_turned = w.turned,
                                    .dependent = !way.cut_problem.x_far && !way.cut_problem.w_far,
                                    .partials = (float *)(void *)(memory + places.partials)};
  int64_t steps = (piece.depth + WIDE_STEP - 1) / WIDE_STEP;
  product.slices = way.cut.slices < steps ? way.cut.slices : (int)steps;
  cudaError_t result = cudaSuccess;
  if (way.cut_problem.x_far) {
    result = part_in(slot, memory_of(job->x_memory, job), &x, memory + places.x, places.x_stride);
    product.x = memory + places.x;
    product.x_stride = places.x_stride;
  }
  if (result == cudaSuccess && way.cut_problem.w_far) {
    result = part_in(slot, memory_of(operand->memory, job), &w, memory + places.w, places.w_stride);
    product.w = memory + places.w;
    product.w_stride = places.w_stride;
  }
  enum status status = runtime_check(result, "copying tensors to the GPU", error);
  if (status == STATUS_OK)
    status = launch(backend, slot->stream, &way, &product, error);
  if (status == STATUS_OK)
    status =
        runtime_check(finish(backend, slot, &way, &piece, &places, memory, &product), "finishing a product", error);
  return status;
}
