#include "tree.h"

#include <blake2.h>
#include <string.h>

enum { HEADER_BYTES = 32, EXPERTS_BYTES = 8, LEAF_HEADER_BYTES = 16 };

static void put_number(uint8_t *to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++)
    to[i] = (uint8_t)(value >> (8 * i));
}

const struct tree_kind tree_content = {.text = "gemmd-2 leaf", .piece_bytes = TREE_PIECE_BYTES};

static void hash_leaf(const struct tree_kind *kind, const uint8_t *piece, uint64_t bytes, uint64_t number,
                      uint8_t leaf[TREE_HASH_BYTES]) {
  uint8_t header[LEAF_HEADER_BYTES];
  blake2b_state state;
  memcpy(header, kind->text, sizeof kind->text);
  put_number(header + sizeof kind->text, number, 4);
  blake2b_init(&state, TREE_HASH_BYTES);
  blake2b_update(&state, header, sizeof header);
  blake2b_update(&state, piece, (size_t)bytes);
  blake2b_final(&state, leaf, TREE_HASH_BYTES);
}

void tree_leaves(const struct tree_kind *kind, const void *bytes, uint64_t length, uint64_t first,
                 uint8_t (*leaves)[TREE_HASH_BYTES]) {
  const uint8_t *at = bytes;
  uint64_t count = tree_lanes(), step = count * kind->piece_bytes;
  for (; count > 0 && length >= step; length -= step, at += step, first += count, leaves += count)
    tree_lanes_hash(kind, at, first, leaves);
  for (uint64_t piece; length > 0; length -= piece, at += piece) {
    piece = length < kind->piece_bytes ? length : kind->piece_bytes;
    hash_leaf(kind, at, piece, first++, *leaves++);
  }
}

static void put_header(uint8_t header[HEADER_BYTES], const char *kind, const struct gemm_weight *weight) {
  memcpy(header, kind, strlen(kind) + 1);
  put_number(header + 8, (uint64_t)weight->format, 4);
  put_number(header + 12, (uint64_t)(weight->scale | weight->input << 8), 4);
  put_number(header + 16, (uint64_t)weight->n, 8);
  put_number(header + 24, (uint64_t)weight->k, 8);
}

static void hash_all(const char *kind, const struct gemm_weight *weight, const void *bytes, uint64_t length,
                     uint8_t hash[TREE_HASH_BYTES]) {
  uint8_t header[HEADER_BYTES], experts[EXPERTS_BYTES];
  blake2b_state state;
  put_header(header, kind, weight);
  put_number(experts, (uint64_t)weight->experts, EXPERTS_BYTES);
  blake2b_init(&state, TREE_HASH_BYTES);
  blake2b_update(&state, header, sizeof header);
  blake2b_update(&state, experts, weight->experts > 0 ? sizeof experts : 0);
  blake2b_update(&state, bytes, (size_t)length);
  blake2b_final(&state, hash, TREE_HASH_BYTES);
}

void tree_root(const struct gemm_weight *weight, const uint8_t (*leaves)[TREE_HASH_BYTES], uint64_t count,
               uint8_t hash[TREE_HASH_BYTES]) {
  hash_all(weight->experts > 0 ? "gemmd-3" : "gemmd-2", weight, leaves, count * TREE_HASH_BYTES, hash);
}

void tree_numbers(enum gemm_type type, bool ternary, uint8_t hash[TREE_HASH_BYTES]) {
  uint8_t header[16] = "gemmd-n";
  blake2b_state state;
  put_number(header + 8, type, 4);
  put_number(header + 12, ternary, 4);
  blake2b_init(&state, TREE_HASH_BYTES);
  blake2b_update(&state, header, sizeof header);
  blake2b_update(&state, hash, TREE_HASH_BYTES);
  blake2b_final(&state, hash, TREE_HASH_BYTES);
}

void tree_sequential(const struct gemm_weight *weight, const void *canonical, uint64_t bytes,
                     uint8_t hash[TREE_HASH_BYTES]) {
  hash_all("gemmd-1", weight, canonical, bytes, hash);
}
