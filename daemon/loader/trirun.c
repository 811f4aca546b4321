#include "trirun.h"

/* A word is a lane's part of two tensor-core operands of 16 x 16: the lane holds k = 2 (lane % 4) + {0, 1, 8, 9} of
 * column lane / 4 of each and of the column 8 further. Codes of the two alternate, then those of odd and even k. */
void trirun_unpack(const uint32_t *words, uint64_t rows, uint64_t stride, uint8_t *codes, uint64_t row_bytes) {
  for (uint64_t row = 0; row < rows; row++) {
    for (uint32_t word = 0; word < TRIRUN_COLUMNS; word++) {
      uint32_t bits = words[row * stride + word], lane = word / 2;
      for (uint32_t i = 0; i < TRIRUN_WORD_CODES; i++) {
        uint32_t tile = 2 * (word % 2) + i % 2, odd = i / 8, high = i / 2 % 2, further = i / 4 % 2;
        uint64_t k = 16 * row + 2 * (lane % 4) + 8 * high + odd, n = 16 * tile + lane / 4 + 8 * further;
        codes[n * row_bytes + k / 4] |= (uint8_t)((bits >> 2 * i & 3) << k % 4 * 2);
      }
    }
  }
}

uint64_t trirun_scale_row(uint64_t place, bool grouped) {
  if (grouped) /* eight columns, 8 apart, behind each other */
    return place / 64 * 64 + place % 8 * 8 + place % 64 / 8;
  uint64_t within = place % 32; /* pairs of columns, those 8, 16 and 24 further behind each other */
  return place / 32 * 32 + within / 8 * 2 + within % 8 / 2 * 8 + within % 2;
}
