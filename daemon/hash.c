#include "hash.h"

#include <stdlib.h>

struct tree {
  const uint8_t *bytes;
  uint64_t length;
  uint64_t lanes; /* pieces that a thread hashes at a time */
  uint64_t full;  /* turns that take so many; those behind take one, so that what is left is not one thread's */
  uint8_t (*leaves)[TREE_HASH_BYTES];
  struct watch *watch;
};

static enum status hash_turn(void *context, uint64_t index, void *scratch, struct error *error) {
  struct tree *tree = context;
  bool full = index < tree->full;
  uint64_t first = full ? index * tree->lanes : tree->full * tree->lanes + (index - tree->full);
  uint64_t begin = first * TREE_PIECE_BYTES, most = (full ? tree->lanes : 1) * TREE_PIECE_BYTES;
  uint64_t left = tree->length - begin, bytes = left < most ? left : most;
  tree_leaves(&tree_content, tree->bytes + begin, bytes, first, tree->leaves + first);
  atomic_fetch_add(&tree->watch->done, bytes);
  return STATUS_OK;
}

enum status hash_weight(const struct gemm_weight *weight, const void *canonical, uint64_t bytes, unsigned threads,
                        struct watch *watch, uint8_t hash[TREE_HASH_BYTES], struct error *error) {
  uint64_t count = gemm_ceil_div(bytes, TREE_PIECE_BYTES);
  uint64_t lanes = tree_lanes() > 0 ? tree_lanes() : 1;
  struct tree tree = {
      .bytes = canonical, .length = bytes, .lanes = lanes, .full = bytes / TREE_PIECE_BYTES / lanes, .watch = watch};
  tree.leaves = malloc((size_t)count * TREE_HASH_BYTES + 1);
  if (!tree.leaves)
    return error_set(error, STATUS_NOMEM, "no memory for the hashes of %llu bytes", (unsigned long long)bytes);
  struct bands bands = {.count = tree.full + (count - tree.full * lanes),
                        .scratch_bytes = 1,
                        .threads = threads,
                        .work = hash_turn,
                        .context = &tree};
  enum status status = bands_run(&bands, watch, error);
  if (status == STATUS_OK)
    tree_root(weight, (const uint8_t(*)[TREE_HASH_BYTES])tree.leaves, count, hash);
  free(tree.leaves);
  return status;
}
