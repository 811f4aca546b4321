#include "convert.h"

#include "../../../proto/number.h"
#include "convert_kernels.h"

#include <math.h>
#include <string.h>

/* A slice is as long as this, where a lane has room for it: short enough that all lanes have work. */
enum { SLICE_BYTES = 4 << 20 };

#define INT2_MOST 65504.0f /* the largest f16 */

struct convert {
  const struct gemm_weight *weight;
  const struct backend_source *source;
  struct gemm_layout layout;
  uint8_t *canonical;
  uint64_t row_bytes; /* of the source, dense */
  uint64_t slice_rows;
  uint64_t scale_bytes; /* of a row, or BLOCK: of 128; ONE: 0 */
  float one_scale;
  _Atomic uint32_t greatest; /* bits of an f32 */
};

/* ---- what is no number, or beyond f16 */

static float value_at(enum gemm_type type, const uint8_t *row, uint64_t i) {
  float value;
  uint16_t half;
  if (type == GEMM_F32) {
    memcpy(&value, row + 4 * i, sizeof value);
    return value;
  }
  memcpy(&half, row + 2 * i, sizeof half);
  return type == GEMM_F16 ? number_from_f16(half) : number_from_bf16(half);
}

/* The column of the first value of a row that is not finite, else of the first beyond `most`; k: there is none. */
static uint64_t bad_column(const struct convert *convert, const uint8_t *row, float most) {
  uint64_t k = (uint64_t)convert->weight->k, beyond = k;
  for (uint64_t i = 0; i < k; i++) {
    float value = value_at(convert->source->type, row, i);
    if (!isfinite(value))
      return i;
    if (beyond == k && fabsf(value) > most)
      beyond = i;
  }
  return beyond;
}

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* Of the rows in the lane's memory. */
static enum status refuse_value(const struct convert *convert, const struct lane *lane, uint64_t first, uint64_t rows,
                                struct error *error) {
  float most = gemm_is_int2(convert->weight->format) ? INT2_MOST : INFINITY;
  for (uint64_t i = 0; i < rows; i++) {
    const uint8_t *row = lane->pinned_in + i * convert->row_bytes;
    uint64_t column = bad_column(convert, row, most);
    if (column == (uint64_t)convert->weight->k)
      continue;
    float value = value_at(convert->source->type, row, column);
    return error_set(error, STATUS_BAD_FILE, "%g in row %llu, column %llu %s", (double)value,
                     (unsigned long long)(first + i), (unsigned long long)column,
                     isfinite(value) ? "is beyond what an f16 scale can express" : "is not finite");
  }
  return error_set(error, STATUS_BAD_FILE, "a value in rows %llu..%llu is not finite", (unsigned long long)first,
                   (unsigned long long)(first + rows - 1));
}

/* ---- a slice */

struct part {
  uint64_t first, rows;
  struct convert_slice slice;
};

static const uint8_t *source_on_device(const struct backend_source *source, uint64_t row) {
  const struct backend_arena *memory = source->memory;
  return memory->device + ((const uint8_t *)source->x - memory->base) + row * source->stride;
}

/* Rows of the source, on their way to the device where they are not there yet. */
static enum status bring(const struct convert *convert, struct lane *lane, uint64_t index, struct part *part,
                         struct error *error) {
  const struct gemm_weight *weight = convert->weight;
  const struct backend_source *source = convert->source;
  uint64_t first = index * convert->slice_rows, left = (uint64_t)weight->n - first;
  uint64_t rows = left < convert->slice_rows ? left : convert->slice_rows, bytes = rows * convert->row_bytes;
  *part = (struct part){.first = first, .rows = rows};
  part->slice = (struct convert_slice){
      .x = lane->in,
      .x_type = source->type,
      .x_stride = (int64_t)convert->row_bytes,
      .rows = (int64_t)rows,
      .k = weight->k,
      .format = weight->format,
      .scale = weight->scale,
      .ternary = source->ternary,
      .codes = lane->out,
      .row_bytes = (int64_t)convert->layout.row_bytes,
      .scales = lane->scales,
      .one_scale = convert->one_scale,
      .flawed = (uint32_t *)(void *)(lane->scales + LANE_SCALES - 4),
      .greatest = (uint32_t *)(void *)(lane->scales + LANE_SCALES - 4),
  };
  if (source->memory) {
    part->slice.x = source_on_device(source, first);
    part->slice.x_stride = (int64_t)source->stride;
    return STATUS_OK;
  }
  enum status status = source->read(source->context, first * convert->row_bytes, lane->pinned_in, bytes, error);
  if (status != STATUS_OK)
    return status;
  return runtime_check(cudaMemcpyAsync(lane->in, lane->pinned_in, bytes, cudaMemcpyHostToDevice, lane->stream),
                       "copying a weight to the GPU", error);
}

/* Where the source lies on the device its rows come here, to be looked through. */
static enum status refuse(const struct convert *convert, struct lane *lane, const struct part *part,
                          struct error *error) {
  const struct backend_source *source = convert->source;
  if (source->memory) {
    cudaError_t result =
        cudaMemcpy2DAsync(lane->pinned_in, convert->row_bytes, part->slice.x, (size_t)part->slice.x_stride,
                          convert->row_bytes, part->rows, cudaMemcpyDeviceToHost, lane->stream);
    enum status status = runtime_check(lane_finish(lane, result), "copying a weight from the GPU", error);
    if (status != STATUS_OK)
      return status;
  }
  return refuse_value(convert, lane, part->first, part->rows, error);
}

static uint32_t *word_of(const struct lane *lane) {
  return (uint32_t *)(void *)(lane->pinned_scales + LANE_SCALES - 4);
}

static enum status work_magnitude(void *context, struct lane *lane, uint64_t index, struct error *error) {
  struct convert *convert = context;
  struct part part;
  enum status status = bring(convert, lane, index, &part, error);
  if (status != STATUS_OK)
    return status;
  cudaError_t result = cudaMemsetAsync(part.slice.greatest, 0, 4, lane->stream);
  if (result == cudaSuccess)
    result = launch_convert_magnitude(lane->stream, &part.slice);
  if (result == cudaSuccess)
    result = cudaMemcpyAsync(word_of(lane), part.slice.greatest, 4, cudaMemcpyDeviceToHost, lane->stream);
  status = runtime_check(lane_finish(lane, result), "looking for a weight's largest value", error);
  if (status != STATUS_OK)
    return status;
  uint32_t bits = *word_of(lane), seen = atomic_load(&convert->greatest);
  if (bits >= 0x7f800000u)
    return refuse(convert, lane, &part, error);
  while (bits > seen && !atomic_compare_exchange_weak(&convert->greatest, &seen, bits))
    ;
  return STATUS_OK;
}

static uint64_t scales_of(const struct convert *convert, uint64_t rows) {
  return convert->scale_bytes * (convert->weight->scale == GEMM_SCALE_BLOCK ? gemm_ceil_div(rows, GEMM_GROUP) : rows);
}

static bool flawed(const struct convert *convert, const struct lane *lane, const struct part *part) {
  if (gemm_is_int2(convert->weight->format))
    return *word_of(lane) < part->rows;
  const float *scales = (const float *)(const void *)lane->pinned_scales;
  uint64_t count = scales_of(convert, part->rows) / sizeof *scales;
  bool bad = false;
  for (uint64_t i = 0; i < count; i++)
    bad |= isnan(scales[i]) != 0;
  return bad;
}

static cudaError_t queue(const struct convert *convert, struct lane *lane, const struct part *part) {
  uint64_t codes = part->rows * convert->layout.row_bytes, scales = scales_of(convert, part->rows);
  cudaError_t result = cudaMemsetAsync(part->slice.flawed, 0xff, 4, lane->stream);
  if (result == cudaSuccess)
    result = launch_convert(lane->stream, &part->slice);
  if (result == cudaSuccess)
    result = cudaMemcpyAsync(lane->pinned_out, lane->out, codes, cudaMemcpyDeviceToHost, lane->stream);
  if (result == cudaSuccess && scales > 0)
    result = cudaMemcpyAsync(lane->pinned_scales, lane->scales, scales, cudaMemcpyDeviceToHost, lane->stream);
  if (result == cudaSuccess)
    result = cudaMemcpyAsync(word_of(lane), part->slice.flawed, 4, cudaMemcpyDeviceToHost, lane->stream);
  return result;
}

static enum status work_codes(void *context, struct lane *lane, uint64_t index, struct error *error) {
  const struct convert *convert = context;
  const struct gemm_layout *layout = &convert->layout;
  struct part part;
  enum status status = bring(convert, lane, index, &part, error);
  if (status == STATUS_OK)
    status = runtime_check(lane_finish(lane, queue(convert, lane, &part)), "converting a weight", error);
  if (status != STATUS_OK)
    return status;
  if (flawed(convert, lane, &part))
    return refuse(convert, lane, &part, error);
  memcpy(convert->canonical + part.first * layout->row_bytes, lane->pinned_out, part.rows * layout->row_bytes);
  memcpy(convert->canonical + layout->scales_offset + scales_of(convert, part.first), lane->pinned_scales,
         scales_of(convert, part.rows));
  return STATUS_OK;
}

/* ---- halves that stay what they are */

static bool finite_halves(const uint8_t *row, uint64_t count, enum gemm_type type) {
  uint16_t infinity = type == GEMM_F16 ? 0x7c00 : 0x7f80, half;
  bool finite = true;
  for (uint64_t i = 0; i < count; i++) {
    memcpy(&half, row + 2 * i, sizeof half);
    finite &= (half & infinity) != infinity;
  }
  return finite;
}

static enum status work_halves(void *context, struct lane *lane, uint64_t index, struct error *error) {
  const struct convert *convert = context;
  const struct backend_source *source = convert->source;
  uint64_t first = index * convert->slice_rows, rows = least((uint64_t)convert->weight->n - first, convert->slice_rows);
  cudaError_t result =
      cudaMemcpy2DAsync(lane->pinned_in, convert->row_bytes, source_on_device(source, first), source->stride,
                        convert->row_bytes, rows, cudaMemcpyDeviceToHost, lane->stream);
  enum status status = runtime_check(lane_finish(lane, result), "copying a weight from the GPU", error);
  for (uint64_t i = 0; status == STATUS_OK && i < rows; i++) {
    const uint8_t *row = lane->pinned_in + i * convert->row_bytes;
    if (!finite_halves(row, (uint64_t)convert->weight->k, source->type))
      return refuse_value(convert, lane, first, rows, error);
    memcpy(convert->canonical + (first + i) * convert->layout.row_bytes, row, convert->row_bytes);
  }
  return status;
}

/* ---- the whole */

/* Whether halves go over as they are. */
static bool as_they_are(const struct convert *convert) {
  return gemm_format_facts(convert->weight->format)->element == convert->source->type && convert->source->memory;
}

static enum status prepare(struct convert *convert, struct error *error) {
  const struct gemm_weight *weight = convert->weight;
  enum status status = gemm_layout_compute(weight, &convert->layout, error);
  if (status != STATUS_OK)
    return status;
  const struct gemm_layout *layout = &convert->layout;
  bool block = weight->scale == GEMM_SCALE_BLOCK, int2 = gemm_is_int2(weight->format);
  bool wide = gemm_is_wide(weight->format);
  bool other = gemm_is_packed(weight->format) && !(int2 && weight->scale == GEMM_SCALE_GROUP);
  if ((wide && !as_they_are(convert)) || other)
    return error_set(error, STATUS_UNSUPPORTED, "the device does not convert to %s with scales of mode %s",
                     gemm_format_name(weight->format), gemm_scale_name(weight->scale));
  convert->row_bytes = (uint64_t)weight->k * gemm_type_bytes(convert->source->type);
  convert->scale_bytes = wide || weight->scale == GEMM_SCALE_ONE ? 0 : layout->scales_bytes / layout->scale_rows;
  uint64_t out = wide ? LANE_IN : LANE_OUT, rows = least(LANE_IN / convert->row_bytes, out / layout->row_bytes);
  rows = least(rows, least((LANE_SCALES - 4) / (convert->scale_bytes + 1), SLICE_BYTES / convert->row_bytes + 1));
  if (block)
    rows = rows > GEMM_GROUP ? rows / GEMM_GROUP * GEMM_GROUP : GEMM_GROUP;
  if (rows == 0 || rows * convert->row_bytes > LANE_IN || rows * layout->row_bytes > out)
    return error_set(error, STATUS_UNSUPPORTED, "rows of %llu bytes are too long to be converted by the device",
                     (unsigned long long)convert->row_bytes);
  convert->slice_rows = rows;
  return STATUS_OK;
}

static enum status find_one_scale(struct backend *backend, struct convert *convert, uint64_t slices,
                                  struct error *error) {
  const struct lanes_job job = {.slices = slices, .work = work_magnitude, .context = convert};
  enum status status = lanes_run(&backend->lanes, &job, error);
  uint32_t bits = atomic_load(&convert->greatest);
  float absmax;
  memcpy(&absmax, &bits, sizeof absmax);
  convert->one_scale =
      convert->weight->format == GEMM_FORMAT_FP8 ? number_scale_e4m3(absmax) : number_scale_int8(absmax);
  memcpy(convert->canonical + convert->layout.scales_offset, &convert->one_scale, sizeof convert->one_scale);
  return status;
}

/* One behind the other they are rows of a single matrix, where no scale is of several rows of one of them. */
static enum status experts_join(const struct gemm_weight *weight, struct gemm_weight *out, struct error *error) {
  *out = gemm_expert(weight);
  out->n *= gemm_matrices(weight);
  bool apart = weight->scale != GEMM_SCALE_ONE && (weight->scale != GEMM_SCALE_BLOCK || weight->n % GEMM_GROUP == 0);
  struct error ignored;
  if (weight->experts == 0 || (apart && gemm_weight_check(out, &ignored) == STATUS_OK))
    return STATUS_OK;
  return error_set(error, STATUS_UNSUPPORTED, "experts whose rows share scales are not converted by the device");
}

enum status cuda_weight_convert(struct backend *backend, const struct gemm_weight *asked,
                                const struct backend_source *source, void *canonical, struct error *error) {
  struct gemm_weight joined;
  const struct gemm_weight *weight = &joined;
  enum status together = experts_join(asked, &joined, error);
  if (together != STATUS_OK)
    return together;
  struct convert convert = {.weight = weight, .source = source, .canonical = canonical};
  enum status status = prepare(&convert, error);
  if (status != STATUS_OK)
    return status;
  const struct lanes_job job = {.slices = gemm_ceil_div((uint64_t)weight->n, convert.slice_rows),
                                .work = gemm_is_wide(weight->format) ? work_halves : work_codes,
                                .context = &convert};
  if (weight->scale == GEMM_SCALE_ONE)
    status = find_one_scale(backend, &convert, job.slices, error);
  return status == STATUS_OK ? lanes_run(&backend->lanes, &job, error) : status;
}
