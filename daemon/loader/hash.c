#include "hash.h"

#include <blake2.h>
#include <string.h>

enum { HEADER_BYTES = 32, PIECE_BYTES = 16 << 20 };

static void put_number(uint8_t *to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++)
    to[i] = (uint8_t)(value >> (8 * i));
}

enum status hash_weight(const struct gemm_weight *weight, const void *canonical, uint64_t bytes, struct watch *watch,
                        uint8_t hash[HASH_BYTES], struct error *error) {
  uint8_t header[HEADER_BYTES] = "gemmd-1";
  put_number(header + 8, (uint64_t)weight->format, 4);
  put_number(header + 12, (uint64_t)weight->scale, 4);
  put_number(header + 16, (uint64_t)weight->n, 8);
  put_number(header + 24, (uint64_t)weight->k, 8);
  blake2b_state state;
  blake2b_init(&state, HASH_BYTES);
  blake2b_update(&state, header, sizeof header);
  for (uint64_t begin = 0; begin < bytes; begin += PIECE_BYTES) {
    uint64_t piece = bytes - begin < PIECE_BYTES ? bytes - begin : PIECE_BYTES;
    blake2b_update(&state, (const uint8_t *)canonical + begin, (size_t)piece);
    uint64_t done = atomic_fetch_add(&watch->done, piece) + piece;
    if (watch->tick && !watch->tick(watch->user, done, watch->total))
      return error_set(error, STATUS_CANCELLED, "the load was cancelled");
  }
  blake2b_final(&state, hash, HASH_BYTES);
  return STATUS_OK;
}
