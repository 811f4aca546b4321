/* How a weight lies in a slab: panels of columns of y, whose dwords are in the order in which the inner loops read
 * them.
 *
 * A panel is `width` rows of W (columns of y), the last one as many as remain, rounded up to a whole vector of 16; what
 * is not there is 0. Within a panel of w columns:
 *   INT8          [K/4][w][4] u8, the code + 128
 *   FP8           [K/4][w/16][64] e4m3. Bytes 16i..16i+7 of the 64 hold k, k+1 of columns 4i..4i+3, the next 8 hold
 *                 k+2, k+3: interleaved with their high bytes they are dwords of two bf16
 *   BF16          [K/2][w][2]
 *   F16           [K][w]
 *   2 and 4 bits  [K/g]: dwords of codes, [w] of them for each 16 or 8 of K, then [w] scales of 16 bits (f16, or bf16
 *                 where they are bf16, e8m0 or e4m3), then [w] zero points of u8 or f16, where there are some. Of b
 *                 bits, those from b * i on of byte j of a dword are code 4i + j: shifted by b * i and masked, a dword
 * is four successive codes. g is how many elements share a scale, 128 where a row has one, which is there for each 128
 * K is padded to a whole step, for these and FP8 with block scales to 128. Behind the panels: [N] f32 scales (INT8, FP8
 * with one scale or one a row; NVFP4's factors), or as they are in the canonical form (FP8 with block scales); then
 * what is done to x, as it is there.
 *
 * A weight with experts is that for each of them, one behind the other, each from a multiple of GEMM_SECTION on; what a
 * struct cpu_layout says is then of one, but for total_bytes, and the offset and the size of the canonical form. */
#pragma once

#include "../../../proto/gemm.h"

enum { CPU_LAYOUT = 2 };

struct cpu_layout {
  struct gemm_layout canonical;
  int64_t k;     /* padded */
  int64_t group; /* of K: elements that share a scale in a panel, a divisor of MICRO_GROUP */
  int64_t panels;
  int width;             /* of a panel but the last */
  uint64_t column_bytes; /* of a panel, for each of its columns */
  uint64_t scales_offset, scales_bytes;
  uint64_t input_offset; /* of canonical.input_bytes */
  uint64_t total_bytes;
  uint64_t expert_bytes; /* from one expert to the next; 0: there are none */
};

MUST_CHECK enum status cpu_layout_compute(const struct gemm_weight *weight, struct cpu_layout *out,
                                          struct error *error);
/* The layout of expert `e` as a weight by itself, in which it is read from what is returned: its part of `canonical`,
 * the canonical form of all of them, as *out->canonical names offsets. `layout` is of all; 0 where there are none. */
const void *cpu_layout_expert(const struct cpu_layout *layout, int64_t e, const void *canonical,
                              struct cpu_layout *out);
/* Of a zero point; 0: there are none. */
uint64_t cpu_layout_zero_bytes(const struct gemm_weight *weight);
/* Columns that panel `panel` has room for. */
int cpu_layout_width(const struct cpu_layout *layout, const struct gemm_weight *weight, int64_t panel);
/* Writes one panel, width * column_bytes. */
void cpu_layout_pack(const struct gemm_weight *weight, const struct cpu_layout *layout, const void *canonical,
                     int64_t panel, uint8_t *out);
/* Writes scales_bytes. */
void cpu_layout_scales(const struct gemm_weight *weight, const struct cpu_layout *layout, const void *canonical,
                       uint8_t *out);
