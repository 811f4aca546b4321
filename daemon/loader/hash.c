#include "hash.h"

#include <blake2.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 32, LEAF_HEADER_BYTES = 16 };

static void put_number(uint8_t *to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++)
    to[i] = (uint8_t)(value >> (8 * i));
}

static void put_header(uint8_t header[HEADER_BYTES], const char *kind, const struct gemm_weight *weight) {
  memcpy(header, kind, strlen(kind) + 1);
  put_number(header + 8, (uint64_t)weight->format, 4);
  put_number(header + 12, (uint64_t)(weight->scale | weight->input << 8), 4);
  put_number(header + 16, (uint64_t)weight->n, 8);
  put_number(header + 24, (uint64_t)weight->k, 8);
}

struct tree {
  const uint8_t *bytes;
  uint64_t length;
  uint8_t (*leaves)[HASH_BYTES];
  struct watch *watch;
};

static enum status hash_leaf(void *context, uint64_t index, void *scratch, struct error *error) {
  struct tree *tree = context;
  uint8_t header[LEAF_HEADER_BYTES] = "gemmd-2 leaf";
  uint64_t begin = index * HASH_PIECE_BYTES, left = tree->length - begin;
  uint64_t piece = left < HASH_PIECE_BYTES ? left : HASH_PIECE_BYTES;
  blake2b_state state;
  (void)scratch;
  (void)error;
  put_number(header + 12, index, 4);
  blake2b_init(&state, HASH_BYTES);
  blake2b_update(&state, header, sizeof header);
  blake2b_update(&state, tree->bytes + begin, (size_t)piece);
  blake2b_final(&state, tree->leaves[index], HASH_BYTES);
  atomic_fetch_add(&tree->watch->done, piece);
  return STATUS_OK;
}

enum status hash_weight(const struct gemm_weight *weight, const void *canonical, uint64_t bytes, unsigned threads,
                        struct watch *watch, uint8_t hash[HASH_BYTES], struct error *error) {
  uint64_t count = gemm_ceil_div(bytes, HASH_PIECE_BYTES);
  struct tree tree = {.bytes = canonical, .length = bytes, .watch = watch};
  tree.leaves = malloc((size_t)count * HASH_BYTES + 1);
  if (!tree.leaves)
    return error_set(error, STATUS_NOMEM, "no memory for the hashes of %llu bytes", (unsigned long long)bytes);
  struct bands bands = {.count = count, .scratch_bytes = 1, .threads = threads, .work = hash_leaf, .context = &tree};
  enum status status = bands_run(&bands, watch, error);
  if (status == STATUS_OK) {
    uint8_t header[HEADER_BYTES];
    blake2b_state state;
    put_header(header, "gemmd-2", weight);
    blake2b_init(&state, HASH_BYTES);
    blake2b_update(&state, header, sizeof header);
    blake2b_update(&state, (const uint8_t *)tree.leaves, (size_t)count * HASH_BYTES);
    blake2b_final(&state, hash, HASH_BYTES);
  }
  free(tree.leaves);
  return status;
}

void hash_sequential(const struct gemm_weight *weight, const void *canonical, uint64_t bytes,
                     uint8_t hash[HASH_BYTES]) {
  uint8_t header[HEADER_BYTES];
  blake2b_state state;
  put_header(header, "gemmd-1", weight);
  blake2b_init(&state, HASH_BYTES);
  blake2b_update(&state, header, sizeof header);
  blake2b_update(&state, canonical, (size_t)bytes);
  blake2b_final(&state, hash, HASH_BYTES);
}
