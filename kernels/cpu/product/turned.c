#include "turned.h"

#include "cost.h"

#include <string.h>

enum {
  AT_ONCE = 1 << 18, /* elements, between two pauses */
  ALONE = 4096,      /* so few one thread turns faster by itself */
  TILE = 32,         /* both sides of what is turned at a time: lines of 64 bytes are read and written whole */
};

struct stretch {
  const struct turned *turned;
  int64_t begin, end; /* of K, within the part */
};

static void turn_tile(const struct turned *turned, int64_t row, int64_t rows, int64_t k, int64_t k_count) {
  const uint8_t *from = turned->from;
  for (int64_t j = 0; j < k_count; j++) {
    const uint8_t *line = from + (uint64_t)(turned->k + k + j) * turned->stride + (uint64_t)(turned->row + row) * 2;
    for (int64_t i = 0; i < rows; i++) {
      memcpy(&turned->to[(row + i) * turned->k_count + k + j], line + 2 * i, sizeof(uint16_t));
    }
  }
}

static void turn_part(void *context, int part, int parts) {
  const struct stretch *stretch = context;
  const struct turned *turned = stretch->turned;
  int64_t tiles = (turned->rows + TILE - 1) / TILE;
  for (int64_t tile = tiles * part / parts; tile < tiles * (part + 1) / parts; tile++) {
    int64_t row = tile * TILE, rows = turned->rows - row < TILE ? turned->rows - row : TILE;
    for (int64_t k = stretch->begin; k < stretch->end; k += TILE) {
      turn_tile(turned, row, rows, k, stretch->end - k < TILE ? stretch->end - k : TILE);
    }
  }
}

enum status turned_run(const struct turned *turned, struct cpu_pool *pool, struct cpu_pause *pause,
                       struct error *error) {
  enum status status = STATUS_OK;
  int64_t at_once = AT_ONCE / turned->rows / TILE * TILE;
  at_once = at_once > TILE ? at_once : TILE;
  struct stretch stretch = {.turned = turned};
  for (; status == STATUS_OK && stretch.begin < turned->k_count; stretch.begin = stretch.end) {
    stretch.end = turned->k_count - stretch.begin < at_once ? turned->k_count : stretch.begin + at_once;
    int64_t elements = turned->rows * (stretch.end - stretch.begin);
    cpu_pool_run(pool, elements < ALONE ? 1 : cpu_pool_threads(pool), turn_part, &stretch);
    status = cpu_pause_here(pause, cost_stage_ns(turned->rows, stretch.end - stretch.begin), error);
  }
  return status;
}
