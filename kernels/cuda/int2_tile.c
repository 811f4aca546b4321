#include "int2_tile.h"

#include <string.h>

enum { GROUP_BYTES = GEMM_GROUP / 4, ZEROS = 0x55 /* four times code 1 */ };

/* A word of int2_layout.h from 64 codes of a row: those that lanes of the same q hold. */
static uint32_t word_make(const uint8_t *codes, int q) {
  uint32_t word = 0;
  for (int s = 0; s < 4; s++) {
    for (int r = 0; r < 2; r++) {
      uint32_t two = codes[4 * s + 2 * r + q / 2] >> 4 * (q % 2), first = two & 3, second = two >> 2 & 3;
      int field = 1 + s + 4 * r;
      word |= field < 8 ? (first | second << 16) << 2 * field : second | first << 16;
    }
  }
  return word;
}

static void row_make(const uint8_t *codes, int row, uint8_t *unit) {
  for (int q = 0; q < 4; q++) {
    for (int half = 0; half < 2; half++) {
      uint32_t word = word_make(codes + half * GROUP_BYTES / 2, q);
      memcpy(unit + (row % 8 * 4 + q) * 16 + (2 * half + row / 8) * 4, &word, sizeof word);
    }
  }
}

void int2_tile_make(const struct gemm_weight *weight, const struct gemm_layout *layout, const uint8_t *canonical,
                    int64_t block, int64_t tile, uint8_t *out) {
  uint8_t zeros[GROUP_BYTES];
  memset(zeros, ZEROS, sizeof zeros);
  for (int row = 0; row < INT2_BLOCK_ROWS; row++) {
    int unit = row % INT2_HALF_ROWS / INT2_UNIT_ROWS, within = row % INT2_UNIT_ROWS;
    uint8_t *half = out + row / INT2_HALF_ROWS * INT2_HALF_BYTES;
    int64_t n = block * INT2_BLOCK_ROWS + row;
    const uint8_t *codes = zeros;
    uint16_t scale = 0;
    if (n < weight->n) {
      uint64_t column = layout->scale_columns == 1 ? 0 : (uint64_t)tile;
      codes = canonical + (uint64_t)n * layout->row_bytes + (uint64_t)tile * GROUP_BYTES;
      memcpy(&scale, canonical + layout->scales_offset + ((uint64_t)n * layout->scale_columns + column) * sizeof scale,
             sizeof scale);
    }
    row_make(codes, within, half + unit * INT2_UNIT_BYTES);
    memcpy(half + INT2_HALF_SCALES + unit * INT2_UNIT_ROWS * 2 + within % 8 * 4 + within / 8 * 2, &scale, sizeof scale);
  }
}
