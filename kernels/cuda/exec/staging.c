#include "staging.h"

int64_t staging_pad(const struct gemm_weight *weight, int64_t rows) {
  return weight->scale == GEMM_SCALE_BLOCK ? (rows + 3) / 4 * 4 : rows;
}

static uint64_t take(uint64_t *used, uint64_t bytes) {
  uint64_t offset = *used;
  *used = gemm_round_up(offset + bytes, GEMM_SECTION);
  return offset;
}

struct staging staging_place(const struct gemm_weight *weight, const struct layout *layout, int64_t rows) {
  /* At most ROWS_MOST rows of 2^24 elements of 4 bytes: nothing overflows. */
  uint64_t m = (uint64_t)staging_pad(weight, rows), n = (uint64_t)layout->n, k = (uint64_t)weight->k;
  bool as_is = gemm_is_wide(weight->format);
  bool packed = gemm_is_packed(weight->format), block = weight->scale == GEMM_SCALE_BLOCK;
  uint64_t scale_bytes = !gemm_quantizes_x(weight->format) ? 0 : 4 * m * (block ? (uint64_t)layout->k / GEMM_GROUP : 1);
  struct staging out = {0};
  out.x = take(&out.bytes, as_is ? 0 : 4 * m * (packed ? (uint64_t)layout->k : k));
  out.ordered = take(&out.bytes, weight->input && packed && scale_bytes == 0 ? 4 * m * (uint64_t)layout->k : 0);
  out.codes = take(&out.bytes, m * layout->x_row_bytes);
  out.scales = take(&out.bytes, scale_bytes);
  out.scales_in = take(&out.bytes, block ? scale_bytes : 0);
  out.sums = take(&out.bytes, packed ? 0 : 4 * m * n);
  out.y = take(&out.bytes, 4 * m * (uint64_t)weight->n);
  out.bias = take(&out.bytes, 4 * n);
  out.y_rows = take(&out.bytes, gemm_quantizes_x(weight->format) ? 8 * m : 0);
  return out;
}

int64_t staging_rows(const struct gemm_weight *weight, const struct layout *layout, uint64_t bytes) {
  int64_t low = 0, high = ROWS_MOST;
  while (low < high) {
    int64_t middle = (low + high + 1) / 2;
    if (staging_place(weight, layout, middle).bytes <= bytes)
      low = middle;
    else
      high = middle - 1;
  }
  return low > GEMM_GROUP ? low / GEMM_GROUP * GEMM_GROUP : low;
}

int64_t staging_go(int64_t rows, int64_t most) {
  int64_t goes = (rows + most - 1) / most, each = (rows + goes - 1) / goes;
  if (goes > 1 && each > GEMM_GROUP)
    each = (each + GEMM_GROUP - 1) / GEMM_GROUP * GEMM_GROUP;
  return each < most ? each : most;
}
