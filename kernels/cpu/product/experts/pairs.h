/* Pairs of a row and an expert, in the order of the experts: counts, where each expert's begin, and which they are. A
 * counting sort, so that pairs of one expert stay in the order of their rows. */
#pragma once

#include <stdint.h>

struct pairs {
  int64_t rows, top, experts;
  int32_t *places; /* [rows * top]: of a pair among the sorted ones; -1: its id is no expert */
  int32_t *sorted; /* [begins[experts]]: which pair, row * top + t */
  int32_t *begins; /* [experts + 1]: of each expert's among the sorted ones */
};

/* Memory for at most so many rows, with `top` and `experts` set; both the same `rows`. */
uint64_t pairs_bytes(const struct pairs *pairs, int64_t rows);
void pairs_place(struct pairs *pairs, int64_t rows, void *memory);

/* `ids` are [rows, top], each read once: somebody may be writing to them. */
void pairs_sort(struct pairs *pairs, const int32_t *ids, int64_t rows);
