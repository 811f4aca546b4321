#include "route.h"

static uint64_t aligned(uint64_t bytes) {
  return gemm_round_up(bytes, EXPERTS_ALIGN);
}

int64_t experts_tiles_most(int64_t pairs, int experts, int tile_rows) {
  return pairs / tile_rows + (pairs < experts ? pairs : experts);
}

uint64_t experts_route_bytes(int64_t pairs, int experts, int tile_rows) {
  return aligned(sizeof(struct experts_counts)) + 2 * aligned((uint64_t)pairs * sizeof(int32_t)) +
         aligned((uint64_t)experts_tiles_most(pairs, experts, tile_rows) * sizeof(struct experts_tile));
}

struct experts_route experts_route_at(void *memory, int64_t pairs, int experts, int tile_rows) {
  uint8_t *at = memory;
  struct experts_route out = {.counts = (void *)at};
  at += aligned(sizeof(struct experts_counts));
  out.place = (void *)at;
  at += aligned((uint64_t)pairs * sizeof(int32_t));
  out.pair = (void *)at;
  at += aligned((uint64_t)pairs * sizeof(int32_t));
  out.tiles = (void *)at;
  return out;
}
