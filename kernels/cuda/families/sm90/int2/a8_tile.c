#include "a8_tile.h"

#include <string.h>

enum { GROUP_BYTES = GEMM_GROUP / 4, ZEROS = 0x55 /* four times code 1 */ };

/* A word of int2/a8_layout.h from 128 codes of a row: those that lanes of the same q hold, of a half of each 32. */
static uint32_t word_make(const uint8_t *codes, int q, int half) {
  uint32_t word = 0;
  for (int j = 0; j < 4; j++) {
    uint32_t four = codes[8 * j + 4 * half + q];
    for (int b = 0; b < 4; b++)
      word |= (four >> 2 * b & 3) << (8 * b + 2 * j);
  }
  return word;
}

/* 64 rows of one group of K, of which the tile has two. */
static void group_make(const struct gemm_weight *weight, const struct gemm_layout *layout, const uint8_t *canonical,
                       int64_t block, int64_t group, uint8_t *tile) {
  uint8_t zeros[GROUP_BYTES];
  memset(zeros, ZEROS, sizeof zeros);
  for (int row = 0; row < INT2A8_BLOCK_ROWS; row++) {
    int within = row % INT2A8_UNIT_ROWS;
    int64_t n = block * INT2A8_BLOCK_ROWS + row;
    uint8_t *quarter = tile + row / INT2A8_UNIT_ROWS * INT2A8_QUARTER_BYTES;
    const uint8_t *codes = zeros;
    uint16_t scale = 0;
    if (n < weight->n && (uint64_t)group * GROUP_BYTES < layout->row_bytes) {
      uint64_t column = layout->scale_columns == 1 ? 0 : (uint64_t)group;
      codes = canonical + (uint64_t)n * layout->row_bytes + (uint64_t)group * GROUP_BYTES;
      memcpy(&scale, canonical + layout->scales_offset + ((uint64_t)n * layout->scale_columns + column) * sizeof scale,
             sizeof scale);
    }
    for (int lane = 0; lane < 8; lane++) { /* q, half */
      uint32_t word = word_make(codes, lane % 4, lane / 4);
      memcpy(quarter + group % 2 * INT2A8_UNIT_BYTES + (within % 8 * 4 + lane % 4) * 16 +
                 (lane / 4 * 2 + within / 8) * 4,
             &word, sizeof word);
    }
    memcpy(quarter + INT2A8_QUARTER_SCALES + group % 2 * INT2A8_UNIT_SCALES + within % 8 * 4 + within / 8 * 2, &scale,
           sizeof scale);
  }
}

void int2a8_tile_make(const struct gemm_weight *weight, const struct gemm_layout *layout, const uint8_t *canonical,
                      int64_t block, int64_t tile, uint8_t *out) {
  group_make(weight, layout, canonical, block, 2 * tile, out);
  group_make(weight, layout, canonical, block, 2 * tile + 1, out);
}
