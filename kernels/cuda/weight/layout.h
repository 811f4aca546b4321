/* How a weight lies in device memory. Pure.
 *
 *   LAYOUT_ROWS (INT8, FP8, F16, BF16)  rows of codes as in the canonical form, but padded with zeros to what cuBLASLt
 *       takes: N and K to multiples of 16 (BLOCK: K of 128). Scales f32 behind them: one a
 *       padded row (a single scale is repeated), or for BLOCK one row for each 128 rows of W, padded to a multiple
 *       of 4 scales.
 *       With experts: the rows of all of them behind each other, padded at their end alone; scales likewise.
 *   LAYOUT_LINES (the same, of long rows that would be padded anyway)  rows of whole lines of memory, 128 bytes: else
 *       what is copied of a row at a time touches two of them.
 *   LAYOUT_CODES2 (INT2, INT2A8), LAYOUT_CODES4 (INT4, INT4A8, MXFP4, NVFP4)  the canonical form.
 *   LAYOUT_TILES2 (INT2)  codes and scales together in tiles: sm90/int2/layout.h.
 *   LAYOUT_TILES2A8 (INT2A8)  the same in another order: sm90/int2/a8_layout.h.
 *   LAYOUT_TILES4 (INT4, MXFP4, NVFP4), LAYOUT_TILES4A8 (INT4A8)  codes, scales and zero points together in tiles:
 *       sm90/int4/layout.h; NVFP4's factors behind them. */
#pragma once

#include "../../../proto/gemm.h"

/* A number is never given to another order, since weights outlive the program: 0x4303 was of tiles in one half,
 * 0x4305 of codes in the order of a dense operand, 0x4308 had MXFP4's codes in another order. */
enum {
  LAYOUT_ROWS = 0x4301,
  LAYOUT_CODES2 = 0x4302,
  LAYOUT_TILES2A8 = 0x4304,
  LAYOUT_TILES2 = 0x4306,
  LAYOUT_CODES4 = 0x4307,
  LAYOUT_TILES4A8 = 0x4309,
  LAYOUT_LINES = 0x430a,
  LAYOUT_TILES4 = 0x430b,
};

struct layout {
  uint32_t layout;
  int64_t n, k; /* padded; with experts: n is of all of them */
  uint64_t row_bytes, codes_bytes;
  uint64_t x_row_bytes; /* of quantized x as the product reads it; 0: x stays as it comes */
  uint64_t scales_offset;
  uint64_t scale_columns;   /* that carry a scale, in one row of scales */
  uint64_t scale_row_bytes; /* from one row of scales to the next */
  uint64_t scales_bytes;    /* of packed weights with their zero points and factors */
  uint64_t factors_offset;  /* of an f32 for each row of W; 0: there are none */
  uint64_t input_offset;    /* of canonical.input_bytes as they are there, behind all else */
  uint64_t total_bytes;     /* a multiple of GEMM_SECTION */
  struct gemm_layout canonical;
};

/* The layout in which a device of this capability (10 * major + minor) stores the weight. `places`: it has passed the
 * check of places.h; INT2 lies in no tiles on 9.0 without. */
uint32_t layout_choose(const struct gemm_weight *weight, int capability, bool places);

/* True where x is read as it comes though W is not of its type: its codes become numbers of x's on the way. */
static inline bool layout_keeps_x(const struct gemm_weight *weight) {
  return gemm_is_packed(weight->format) && !gemm_quantizes_x(weight->format);
}

/* Elements of a row of x as the product reads it, zeros behind K. */
static inline int64_t layout_x_columns(const struct gemm_weight *weight, const struct layout *layout) {
  bool canonical = layout->layout == LAYOUT_CODES2 || layout->layout == LAYOUT_CODES4;
  return layout_keeps_x(weight) && canonical ? weight->k : layout->k;
}

/* Of packed codes in the order of a Hopper kernel. */
bool layout_is_tiled(const struct layout *layout);

/* UNSUPPORTED where the weight does not lie in such a layout. */
MUST_CHECK enum status layout_compute(const struct gemm_weight *weight, uint32_t layout, struct layout *out,
                                      struct error *error);

/* Writes bytes [offset, offset + bytes) of the stored form of `canonical` to `out`. */
void layout_fill(const struct gemm_weight *weight, const struct layout *layout, const void *canonical, uint64_t offset,
                 void *out, uint64_t bytes);

/* The canonical form of a weight whose stored form is `stored`, into zeros. */
void layout_read(const struct gemm_weight *weight, const struct layout *layout, const void *stored, void *canonical);
