#include "weight.h"

#include "../exec/staging.h"
#include "../experts/run.h"
#include "../families/sm90/grouped_int2/config.h"
#include "../families/sm90/grouped_int4/config.h"
#include "../families/sm90/int2/a8_layout.h"
#include "../families/sm90/int2/scales.h"
#include "../families/sm90/int2_many/config.h"
#include "../families/sm90/int4/scales.h"
#include "checksum.h"

#include <stdlib.h>

/* Rows that a product would like to have staged at a time, and pairs of one over experts. */
enum { ROWS_WANTED = 4096, PAIRS_WANTED = 8192 };

static uint32_t layout_flag(const struct gemm_weight *weight) {
  return weight->input != 0 ? BACKEND_LAYOUT_INPUT : 0;
}

enum status cuda_weight_plan(struct backend *backend, const struct gemm_weight *weight, struct backend_plan *out,
                             struct error *error) {
  struct layout layout;
  enum status status =
      layout_compute(weight, layout_choose(weight, backend->gpu.capability, backend->gpu.places), &layout, error);
  if (status == STATUS_OK)
    *out = (struct backend_plan){
        .bytes = layout.total_bytes, .align = GEMM_SECTION, .layout = layout.layout | layout_flag(weight)};
  return status;
}

static enum status place_check(const struct layout *layout, const struct backend_slab *slab, uint64_t offset,
                               struct error *error) {
  if (offset % GEMM_SECTION != 0 || offset > slab->bytes || layout->total_bytes > slab->bytes - offset)
    return error_set(error, STATUS_INVALID, "a weight of %llu bytes does not lie at offset %llu of a slab of %llu",
                     (unsigned long long)layout->total_bytes, (unsigned long long)offset,
                     (unsigned long long)slab->bytes);
  return STATUS_OK;
}

struct store {
  const struct gemm_weight *weight;
  const struct layout *layout;
  const void *canonical;
  CUdeviceptr to;
  uint64_t slice_bytes;
};

/* Of a slice; of tiles, which take the host longer to lay out than the device to copy, less, so that all lanes work. */
enum { STORE_BYTES = 4 << 20, STORE_TILED_BYTES = 1 << 19 };

static enum status work_store(void *context, struct lane *lane, uint64_t index, struct error *error) {
  const struct store *store = context;
  uint64_t at = index * store->slice_bytes, left = store->layout->total_bytes - at;
  uint64_t bytes = left < store->slice_bytes ? left : store->slice_bytes;
  layout_fill(store->weight, store->layout, store->canonical, at, lane->pinned_in, bytes);
  cudaError_t result = cudaMemcpyAsync((void *)(uintptr_t)(store->to + at), lane->pinned_in, bytes,
                                       cudaMemcpyHostToDevice, lane->stream);
  return runtime_check(lane_finish(lane, result), "copying a weight to the GPU", error);
}

enum status cuda_weight_store(struct backend *backend, const struct gemm_weight *weight, const void *canonical,
                              struct backend_slab *slab, uint64_t offset, struct error *error) {
  struct layout layout;
  enum status status =
      layout_compute(weight, layout_choose(weight, backend->gpu.capability, backend->gpu.places), &layout, error);
  if (status == STATUS_OK)
    status = place_check(&layout, slab, offset, error);
  if (status == STATUS_OK)
    status = backend_enter(backend, error);
  if (status != STATUS_OK)
    return status;
  CUdeviceptr writable = slab->address;
  if (slab->read_only)
    status = memory_map(backend->driver, backend->device, slab->handle, slab->bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                        &writable, error);
  if (status != STATUS_OK)
    return status;
  struct store store = {.weight = weight,
                        .layout = &layout,
                        .canonical = canonical,
                        .to = writable + offset,
                        .slice_bytes = layout_is_tiled(&layout) ? STORE_TILED_BYTES : STORE_BYTES};
  const struct lanes_job job = {
      .slices = gemm_ceil_div(layout.total_bytes, store.slice_bytes), .work = work_store, .context = &store};
  status = lanes_run(&backend->lanes, &job, error);
  if (slab->read_only)
    memory_unmap(backend->driver, writable, slab->bytes);
  return status;
}

/* Of a product over experts, what comes in and goes out, and biases of a layer's two weights. */
static uint64_t experts_bytes(const struct backend_weight *weight, int64_t pairs) {
  const struct gemm_weight *of = &weight->weight;
  uint64_t in_and_out = 4 * (uint64_t)(pairs * (of->n + of->k)), bias = 4 * (uint64_t)(of->n * of->experts);
  return experts_weight_bytes(of, &weight->layout, pairs) + 2 * bias + in_and_out + (64 << 10);
}

static uint64_t power_of_two(uint64_t value) {
  return value <= 1 ? 1 : (uint64_t)1 << (64 - __builtin_clzll(value - 1));
}

/* Regions grow a few times in a backend's life, not with every weight: by powers of two. */
static uint64_t serving_bytes(const struct backend *backend, const struct backend_weight *weight) {
  uint64_t wanted = weight->weight.experts > 0 ? experts_bytes(weight, PAIRS_WANTED)
                                               : staging_place(&weight->weight, &weight->layout, ROWS_WANTED).bytes;
  return power_of_two(wanted < backend->staging_most ? wanted : backend->staging_most);
}

/* A lane has room for as many rows as may be asked for; four sizes from one power of two to the next. */
static uint64_t direct_bytes(const struct backend *backend, const struct backend_weight *weight) {
  enum { LEAST = 8 << 20 };
  int64_t rows = backend->rows_most < ROWS_MOST ? backend->rows_most : ROWS_MOST;
  uint64_t wanted = weight->weight.experts > 0
                        ? experts_weight_bytes(&weight->weight, &weight->layout, backend->pairs_most)
                        : staging_place(&weight->weight, &weight->layout, rows).bytes;
  wanted = wanted < LEAST ? LEAST : gemm_round_up(wanted, power_of_two(wanted) / 8);
  return wanted < backend->staging_most ? wanted : backend->staging_most;
}

/* Makes every slot long enough for one row (BLOCK: four), and where memory allows for many. */
static enum status staging_ensure(struct backend *backend, const struct backend_weight *weight, struct error *error) {
  /* twice: the largest of two weights has room for what one of them reads and what the other writes, whatever these are
   */
  uint64_t least = weight->weight.experts > 0 ? 2 * experts_bytes(weight, weight->weight.experts)
                                              : staging_place(&weight->weight, &weight->layout, 1).bytes;
  uint64_t wanted = backend->direct ? direct_bytes(backend, weight) : serving_bytes(backend, weight);
  for (int i = 0; i < backend->slot_count; i++) {
    struct region *region = &backend->slots[i].staging;
    enum status status = region_grow(backend->driver, backend->device, region, wanted, backend->granularity, error);
    if (status == STATUS_NOMEM || wanted < least)
      status = region_grow(backend->driver, backend->device, region, least, backend->granularity, error);
    if (status != STATUS_OK)
      return status;
  }
  return STATUS_OK;
}

/* Memory for the sums that blocks of a kernel leave for each other. */
static enum status int2_sums_ensure(struct backend *backend, struct error *error) {
  uint64_t bytes = int2_many_sums_bytes(backend->gpu.multiprocessors);
  cudaStream_t stream = backend->side.stream;
  cudaError_t result = cudaSuccess;
  for (int i = 0; i < backend->slot_count && result == cudaSuccess; i++) {
    void *sums = NULL;
    if (backend->slots[i].int2_sums)
      continue;
    result = cudaMalloc(&sums, bytes);
    if (result == cudaSuccess)
      result = cudaMemsetAsync(sums, INT2_MANY_NOTHING & 0xff, bytes, stream);
    if (result == cudaSuccess)
      result = cudaStreamSynchronize(stream);
    if (result == cudaSuccess) {
      backend->slots[i].int2_sums = sums;
      atomic_fetch_add_explicit(&backend->sums_bytes, bytes, memory_order_relaxed);
    } else if (sums) {
      (void)cudaFree(sums);
    }
  }
  return runtime_check(result, "taking memory for products with weights in tiles", error);
}

/* What has been asked of the device comes to `out`, when it is there. */
static enum status answer_take(struct side *side, cudaError_t asked, uint64_t *out, const char *what,
                               struct error *error) {
  if (asked == cudaSuccess)
    asked = cudaMemcpyAsync(side->heard, side->answer, sizeof *out, cudaMemcpyDeviceToHost, side->stream);
  if (asked == cudaSuccess)
    asked = cudaStreamSynchronize(side->stream);
  enum status status = runtime_check(asked, what, error);
  if (status == STATUS_OK)
    *out = *side->heard;
  return status;
}

static enum status scales_look(struct backend *backend, struct backend_weight *weight, struct error *error) {
  struct side *side = &backend->side;
  uint64_t large = 0;
  uint64_t bytes = weight->layout.codes_bytes;
  struct int4_form form = int4_form_of(weight->weight.format, weight->weight.scale);
  cudaError_t asked = weight->layout.layout == LAYOUT_TILES2
                          ? launch_int2_large_scales(side->stream, weight->codes, bytes, side->answer)
                          : launch_int4_scales(side->stream, weight->codes, bytes, &form,
                                               gemm_scale_type(&weight->weight), side->answer);
  enum status status = answer_take(side, asked, &large, "looking at a weight's scales", error);
  weight->large_scales = large != 0;
  return status;
}

static int64_t rows_fit(const struct backend *backend, const struct backend_weight *weight) {
  uint64_t bytes = UINT64_MAX;
  for (int i = 0; i < backend->slot_count; i++) {
    uint64_t have = atomic_load_explicit(&backend->slots[i].staging.bytes, memory_order_relaxed);
    bytes = have < bytes ? have : bytes;
  }
  return staging_rows(&weight->weight, &weight->layout, bytes);
}

/* What is done to x, where it lies in the slab. */
static struct quantize_input input_of(const struct backend_weight *weight) {
  const struct gemm_layout *canonical = &weight->layout.canonical;
  const uint8_t *at = weight->codes + weight->layout.input_offset;
  struct quantize_input out = {.stages = gemm_rotation(weight->weight.input)};
  if (weight->weight.input & GEMM_INPUT_SCALE)
    out.scale = (const float *)(const void *)at;
  if (weight->weight.input & GEMM_INPUT_ORDER)
    out.order = (const uint32_t *)(const void *)(at + (canonical->order_offset - canonical->input_offset));
  return out;
}

/* How kernels go about a weight in tiles. UNSUPPORTED: none of this device's reads it. */
static enum status ways_find(const struct backend *backend, struct backend_weight *made, struct error *error) {
  const struct gemm_weight *weight = &made->weight;
  uint32_t layout = made->layout.layout;
  bool hopper = backend->gpu.capability == 90;
  int sms = backend->gpu.multiprocessors;
  if (layout == LAYOUT_TILES2 && hopper && !backend->gpu.places)
    return error_set(error, STATUS_UNSUPPORTED,
                     "the weight lies in tiles that this device's sparse matrix instructions do not read right");
  if (layout == LAYOUT_TILES2 && weight->experts > 0 && !(hopper && grouped_int2_fits(weight->n, weight->k)))
    return error_set(error, STATUS_UNSUPPORTED, "this device has no kernel for INT2 experts of K %lld",
                     (long long)weight->k);
  const struct int4_form form = int4_form_of(weight->format, weight->scale);
  bool found = true;
  if (layout == LAYOUT_TILES2 && weight->experts == 0)
    found = int2_few_ways_find(weight->n, weight->k, sms, made->few);
  else if (layout == LAYOUT_TILES2A8 && weight->experts > 0)
    found = hopper && weight->n % INT2A8_BLOCK_ROWS == 0;
  else if (layout == LAYOUT_TILES2A8)
    found = int2a8_ways_find(weight->n, weight->k, sms, made->int2a8);
  else if (layout == LAYOUT_TILES4 && weight->experts > 0)
    found = hopper && grouped_int4_fits(weight->n, weight->k);
  else if (layout == LAYOUT_TILES4 && !hopper)
    found = backend->gpu.capability >= 80;
  else if (layout == LAYOUT_TILES4)
    found = int4_few_ways_find(&form, weight->n, weight->k, sms, made->few4);
  else if (layout == LAYOUT_TILES4A8)
    found = hopper;
  if (found)
    return STATUS_OK;
  return error_set(error, STATUS_UNSUPPORTED, "this device has no kernel for %s in tiles, of K %lld",
                   gemm_format_name(weight->format), (long long)weight->k);
}

static _Atomic uint64_t serials;

enum status cuda_weight_attach(struct backend *backend, const struct gemm_weight *weight, uint32_t layout,
                               struct backend_slab *slab, uint64_t offset, struct backend_weight **out,
                               struct error *error) {
  struct backend_weight made = {.weight = *weight};
  layout ^= layout_flag(weight); /* a flag that is not as it must be makes it one that nobody knows */
  enum status status = layout_compute(weight, layout, &made.layout, error);
  if (status != STATUS_OK)
    return status;
  bool hopper = backend->gpu.capability == 90;
  status = ways_find(backend, &made, error);
  if (status == STATUS_OK)
    status = place_check(&made.layout, slab, offset, error);
  if (status == STATUS_OK)
    status = backend_enter(backend, error);
  if (status == STATUS_OK)
    status = staging_ensure(backend, &made, error);
  if (status == STATUS_OK && hopper && layout_is_tiled(&made.layout))
    status = int2_sums_ensure(backend, error);
  if (status != STATUS_OK)
    return status;
  made.serial = atomic_fetch_add_explicit(&serials, 1, memory_order_relaxed) + 1;
  made.codes = (const uint8_t *)(uintptr_t)(slab->address + offset);
  made.scales = made.codes + made.layout.scales_offset;
  if (made.layout.factors_offset > 0)
    made.factors = (const float *)(const void *)(made.codes + made.layout.factors_offset);
  made.input = input_of(&made);
  made.rows_most = rows_fit(backend, &made);
  bool ranged = gemm_scale_type(weight) != GEMM_E4M3; /* has scales beyond what kernels take */
  if (hopper && ranged && (layout == LAYOUT_TILES2 || layout == LAYOUT_TILES4))
    status = scales_look(backend, &made, error);
  if (status != STATUS_OK)
    return status;
  *out = malloc(sizeof made);
  if (!*out)
    return error_set(error, STATUS_NOMEM, "no memory for a weight");
  **out = made;
  return STATUS_OK;
}

void cuda_weight_detach(struct backend *backend, struct backend_weight *weight) {
  free(weight);
}

enum status cuda_weight_checksum(struct backend *backend, struct backend_weight *weight, uint64_t *out,
                                 struct error *error) {
  struct side *side = &backend->side;
  enum status status = backend_enter(backend, error);
  if (status != STATUS_OK)
    return status;
  return answer_take(side, launch_checksum(side->stream, weight->codes, weight->layout.total_bytes, side->answer), out,
                     "computing a checksum", error);
}

enum status cuda_weight_read(struct backend *backend, struct backend_weight *weight, void *canonical,
                             struct error *error) {
  uint64_t bytes = weight->layout.total_bytes;
  enum status status = backend_enter(backend, error);
  if (status != STATUS_OK)
    return status;
  void *stored = malloc(bytes);
  if (stored == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for %llu bytes of a weight", (unsigned long long)bytes);
  cudaError_t result = cudaMemcpyAsync(stored, weight->codes, bytes, cudaMemcpyDeviceToHost, backend->side.stream);
  if (result == cudaSuccess)
    result = cudaStreamSynchronize(backend->side.stream);
  status = runtime_check(result, "copying a weight from the GPU", error);
  if (status == STATUS_OK)
    layout_read(&weight->weight, &weight->layout, stored, canonical);
  free(stored);
  return status;
}
