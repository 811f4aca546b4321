/* 2-bit weights as TriRun packs them (github.com/NolanoOrg/TriRun, trirun/__init__.py): B, I32 [K/16, N], and s, F16
 * [K/128, N] or [1, N]. Both are shuffled for its kernel; here is where each element belongs. Pure. */
#ifndef LOADER_TRIRUN_H
#define LOADER_TRIRUN_H

#include <stdbool.h>
#include <stdint.h>

enum {
  TRIRUN_WORD_CODES = 16,
  TRIRUN_COLUMNS = 64, /* of W that are shuffled together, a word each in every row of B */
  TRIRUN_K = 128,      /* K and N are multiples of these */
  TRIRUN_N = 256,
};

/* 64 columns of B, `rows` rows `stride` words apart, to 64 rows of canonical codes (gemm.h), which hold zeros. */
void trirun_unpack(const uint32_t *words, uint64_t rows, uint64_t stride, uint8_t *codes, uint64_t row_bytes);
/* The row of W that element `place` of a row of s is for; grouped: s has a row for each 128 of K, else one in all. */
uint64_t trirun_scale_row(uint64_t place, bool grouped);

#endif
