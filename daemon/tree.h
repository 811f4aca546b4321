/* The identity of content, as a tree, so that all cores and all lanes of a core can compute it. */
#pragma once

#include "../proto/gemm.h"
#include "tree_lanes.h"

#include <stdint.h>

enum { TREE_HASH_BYTES = 32, TREE_PIECE_BYTES = 1 << 20 };

/* Content: of every MiB (the last may be shorter) a leaf, BLAKE2b-256 over 16 bytes ("gemmd-2 leaf", and the leaf's
 * number from 0, little endian, in the last four) and the piece. */
extern const struct tree_kind tree_content;

/* Of bytes that begin with piece `first` all leaves. */
void tree_leaves(const struct tree_kind *kind, const void *bytes, uint64_t length, uint64_t first,
                 uint8_t (*leaves)[TREE_HASH_BYTES]);
/* BLAKE2b-256 over a header of 32 bytes ("gemmd-2" and a NUL, then format, scale mode, N and K, little endian, of 4, 4,
 * 8 and 8 bytes) and all leaves. With experts the header begins with "gemmd-3", and behind it is E, of 8 bytes. */
void tree_root(const struct gemm_weight *weight, const uint8_t (*leaves)[TREE_HASH_BYTES], uint64_t count,
               uint8_t hash[TREE_HASH_BYTES]);

/* What stands for numbers that content is made of, in a certain way: BLAKE2b-256 over "gemmd-n" and a NUL, their type
 * and whether the method is ternary, little endian, of 4 bytes each, and the hash that they have as if they were the
 * content, which is in `hash`. */
void tree_numbers(enum gemm_type type, bool ternary, uint8_t hash[TREE_HASH_BYTES]);

/* What stood for content before: BLAKE2b-256 over such a header, with "gemmd-1", and the canonical bytes. Content that
 * was stored under it is still found by it. */
void tree_sequential(const struct gemm_weight *weight, const void *canonical, uint64_t bytes,
                     uint8_t hash[TREE_HASH_BYTES]);
