#include "tile.h"

#include <string.h>

enum { GROUP_BYTES = GEMM_GROUP / 4, ZEROS = 0x55 /* four times code 1 */ };

/* A nibble of int2/layout.h, of the codes of k1 and, two bits further on, k2. */
static const uint8_t nibbles[16] = {3, 2, 7, 6, 1, 0, 5, 4, 11, 10, 15, 14, 9, 8, 13, 12};

/* Half of a word, from 32 codes of a row. */
static uint16_t half_make(const uint8_t *codes, int q) {
  unsigned half = 0;
  for (int r = 0; r < 2; r++) {
    const uint8_t *first = codes + 4 * r + q / 2, *second = first + 2;
    for (int e = 0; e < 2; e++) {
      int shift = q % 2 * 4 + 2 * e;
      half |= (unsigned)nibbles[(*first >> shift & 3) | (*second >> shift & 3) << 2] << (8 * e + 4 * r);
    }
  }
  return (uint16_t)half;
}

static void row_make(const uint8_t *codes, int row, uint8_t *unit) {
  for (int q = 0; q < 4; q++) {
    for (int i = 0; i < 4; i++) {
      uint16_t half = half_make(codes + i * GROUP_BYTES / 4, q);
      memcpy(unit + (row % 8 * 4 + q) * 16 + 4 * i + row / 8 * 2, &half, sizeof half);
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
