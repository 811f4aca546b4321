#include "canonical.h"

#include <string.h>

enum status canonical_part_check(const struct gemm_weight *part, int64_t n_begin, int64_t n_total,
                                 struct gemm_layout *whole_layout, struct gemm_layout *part_layout,
                                 struct error *error) {
  struct gemm_weight whole = *part;
  whole.n = n_total;
  enum status status = gemm_layout_compute(&whole, whole_layout, error);
  if (status == STATUS_OK)
    status = gemm_layout_compute(part, part_layout, error);
  if (status != STATUS_OK)
    return status;
  if (part->n > n_total)
    return error_field(error, STATUS_INVALID, FIELD_N, part->n, 1, n_total);
  if (n_begin < 0 || n_begin > n_total - part->n)
    return error_set(error, STATUS_INVALID, "first row must be 0..%lld, got %lld", (long long)(n_total - part->n),
                     (long long)n_begin);
  int64_t rows = gemm_scale_facts(part->scale)->n;
  if (rows > 1 && n_begin % rows != 0)
    return error_set(error, STATUS_INVALID, "first row must be a multiple of %lld for %s scales, got %lld",
                     (long long)rows, gemm_scale_name(part->scale), (long long)n_begin);
  return STATUS_OK;
}

/* Rows of scales that stand before row `n_begin` of W. */
static uint64_t scale_rows_before(enum gemm_scale scale, int64_t n_begin) {
  int64_t rows = gemm_scale_facts(scale)->n;
  return rows > 0 ? (uint64_t)(n_begin / rows) : 0;
}

/* Copies what lies at `offset` of the part, `bytes`, and zeros what stands between `end` and it. Returns its end. */
static uint64_t copy_section(uint8_t *out, uint64_t end, uint64_t offset, const uint8_t *from, uint64_t bytes) {
  if (bytes == 0)
    return end;
  memset(out + end, 0, offset - end);
  memcpy(out + offset, from, bytes);
  return offset + bytes;
}

void canonical_part_copy(enum gemm_scale scale, const struct gemm_layout *whole_layout, const void *whole,
                         int64_t n_begin, const struct gemm_layout *part_layout, void *to) {
  const uint8_t *from = whole;
  uint64_t before = scale_rows_before(scale, n_begin), rows = part_layout->scale_rows > 0 ? part_layout->scale_rows : 1;
  memcpy(to, from + (uint64_t)n_begin * whole_layout->row_bytes, part_layout->codes_bytes);
  uint64_t end = part_layout->codes_bytes;
  memset((uint8_t *)to + end, 0, part_layout->scales_offset - end);
  end = copy_section(to, part_layout->scales_offset, part_layout->scales_offset,
                     from + whole_layout->scales_offset + before * (part_layout->scales_bytes / rows),
                     part_layout->scales_bytes);
  end = copy_section(to, end, part_layout->zeros_offset,
                     from + whole_layout->zeros_offset + before * (part_layout->zeros_bytes / rows),
                     part_layout->zeros_bytes);
  end = copy_section(to, end, part_layout->factors_offset,
                     from + whole_layout->factors_offset + before * (part_layout->factors_bytes / rows),
                     part_layout->factors_bytes);
  (void)copy_section(to, end, part_layout->input_offset, from + whole_layout->input_offset, part_layout->input_bytes);
}
